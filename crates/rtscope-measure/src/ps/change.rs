//! Changes how a thread is scheduled, and reads back what the kernel made of it.

use rtscope_model::{
    cpu::CpuSet,
    schedule::{Placement, Policy},
};
use rtscope_sys::sched;

/// What shall be changed; what is none stays as it is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WantedChange {
    pub policy: Option<Policy>,
    /// Priority, 1 to 99.
    pub priority: Option<u8>,
    /// Nice value, -20 to 19.
    pub nice: Option<i8>,
    pub cpus: Option<CpuSet>,
}

/// What was, and what is now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Changed {
    pub before: Placement,
    pub asked: Placement,
    pub found: Placement,
}

/// Why a thread was not changed. What was changed before the kernel refused is put back.
#[derive(Debug, thiserror::Error)]
pub enum ChangeError {
    /// What is asked contradicts itself.
    #[error("{0}")]
    Contradiction(String),
    #[error("can't change thread {tid}: {source}")]
    Refused { tid: i32, source: rtscope_sys::Error },
}

impl WantedChange {
    /// The whole placement of a thread that has one now.
    ///
    /// # Errors
    ///
    /// When policy, priority and nice value don't go together.
    pub fn whole(&self, now: &Placement) -> Result<Placement, ChangeError> {
        let wrong = |text: String| Err(ChangeError::Contradiction(text));
        let policy = self.policy.unwrap_or(now.policy);
        if policy == Policy::Deadline && now.policy != Policy::Deadline {
            return wrong(
                "deadline needs a budget, which only the program itself knows".to_owned(),
            );
        }
        let priority = match (policy.has_priority(), self.priority, now.priority) {
            (true, Some(priority @ 1..=99), _) | (true, None, priority @ 1..=99) => priority,
            (true, Some(other), _) => {
                return wrong(format!("priority {other}: write a number from 1 to 99"));
            }
            (true, None, _) => return wrong(format!("{policy} needs a priority from 1 to 99")),
            (false, Some(_), _) => return wrong(format!("{policy} has no priority")),
            (false, None, _) => 0,
        };
        let nice = match (policy, self.nice) {
            (Policy::Other | Policy::Batch, nice) => nice.unwrap_or(now.nice),
            (_, Some(_)) => return wrong(format!("{policy} has no nice value")),
            (_, None) => 0,
        };
        let budget = now.budget.filter(|_| policy == Policy::Deadline);
        let cpus = self.cpus.clone().unwrap_or_else(|| now.cpus.clone());
        Ok(Placement { policy, priority, nice, budget, cpus })
    }
}

/// Places a thread as asked and reads back.
///
/// # Errors
///
/// When the thread is gone or the kernel refuses; then the thread is as before.
pub fn change(tid: i32, before: &Placement, asked: &Placement) -> Result<Changed, ChangeError> {
    let refused = |source| ChangeError::Refused { tid, source };
    if asked.cpus != before.cpus {
        sched::set_affinity(tid, &asked.cpus).map_err(refused)?;
    }
    let same_way = Placement { cpus: before.cpus.clone(), ..asked.clone() } == *before;
    if !same_way && let Err(source) = sched::set_policy(tid, asked) {
        // Best effort: the refusal is what the caller must hear of.
        let _ = sched::set_affinity(tid, &before.cpus);
        return Err(refused(source));
    }
    let found = sched::placement(tid).map_err(refused)?;
    Ok(Changed { before: before.clone(), asked: asked.clone(), found })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn other() -> Placement {
        let cpus = [0, 1].into_iter().collect();
        Placement { policy: Policy::Other, priority: 0, nice: 3, budget: None, cpus }
    }

    #[test]
    fn what_is_not_asked_stays() {
        let asked =
            WantedChange { cpus: Some([1].into_iter().collect()), ..WantedChange::default() };
        assert_eq!(asked.whole(&other()).expect("sound").to_string(), "other nice 3 on CPU 1");
        let asked =
            WantedChange { policy: Some(Policy::Rr), priority: Some(7), ..WantedChange::default() };
        assert_eq!(asked.whole(&other()).expect("sound").to_string(), "rr 7 on CPUs 0-1");
    }

    #[test]
    fn contradictions_are_said() {
        for (policy, priority, nice) in [
            (Some(Policy::Fifo), None, None),
            (Some(Policy::Fifo), Some(0), None),
            (Some(Policy::Fifo), Some(9), Some(1)),
            (None, Some(9), None),
            (Some(Policy::Deadline), None, None),
        ] {
            let asked = WantedChange { policy, priority, nice, cpus: None };
            assert!(asked.whole(&other()).is_err(), "{asked:?}");
        }
    }

    #[test]
    fn a_thread_is_changed_and_a_refusal_changes_nothing() {
        std::thread::spawn(|| {
            let before = sched::placement(sched::SELF).expect("own place");
            let asked = Placement { policy: Policy::Batch, nice: 4, priority: 0, ..before.clone() };
            let changed = change(sched::SELF, &before, &asked).expect("allowed to everybody");
            assert_eq!((changed.found, &changed.before), (asked.clone(), &before));
            let nowhere = Placement { cpus: [16_000].into_iter().collect(), ..asked.clone() };
            assert!(change(sched::SELF, &asked, &nowhere).is_err());
            assert_eq!(sched::placement(sched::SELF).expect("own place"), asked);
        })
        .join()
        .expect("no panic");
    }
}
