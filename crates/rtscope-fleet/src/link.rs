//! Says to the user that a place doesn't answer, and that it answers again.

use std::time::{Duration, Instant};

use crate::error::FleetError;

/// How often it is said again.
const AGAIN: Duration = Duration::from_secs(60);

/// Takes what happens at a place, for the user.
pub type Say<'a> = &'a (dyn Fn(&str) + Sync);

/// The link to a place during one step.
pub(crate) struct Link<'a> {
    say: Say<'a>,
    began: Instant,
    /// Since when it is down, and when that was said last.
    down: Option<(Instant, Instant)>,
}

impl<'a> Link<'a> {
    pub(crate) fn new(say: Say<'a>) -> Link<'a> {
        Link { say, began: Instant::now(), down: None }
    }

    /// How long the step takes so far.
    pub(crate) fn age(&self) -> Duration {
        self.began.elapsed()
    }

    pub(crate) fn is_down(&mut self, why: &FleetError) {
        let now = Instant::now();
        let (since, said) = self.down.unwrap_or((now, now));
        let is_new = self.down.is_none();
        let is_due = now.duration_since(said) >= AGAIN;
        self.down = Some((since, if is_due { now } else { said }));
        if is_new {
            (self.say)(&format!("{why}; trying again"));
        } else if is_due {
            let seconds = now.duration_since(since).as_secs();
            (self.say)(&format!("{why}; still trying after {seconds} s"));
        }
    }

    pub(crate) fn is_up(&mut self) {
        if self.down.take().is_some() {
            (self.say)("connected again");
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    #[test]
    fn a_link_that_breaks_is_said_once_and_so_is_its_return() {
        let said = Mutex::new(Vec::new());
        let say = |text: &str| said.lock().expect("alone").push(text.to_owned());
        let mut link = Link::new(&say);
        link.is_up();
        for _ in 0..3 {
            link.is_down(&FleetError::Connection("reset".to_owned()));
        }
        link.is_up();
        link.is_up();
        let said = said.into_inner().expect("alone");
        assert_eq!(said, ["no connection: reset; trying again", "connected again"]);
    }
}
