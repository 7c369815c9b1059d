//! How long guests will take, said before they start.

use std::time::Duration;

use rtscope_lab::costs::Estimate;

use super::teller::minutes;

/// The sentence: how many guests there are, how many of them are known, and how long the others take.
pub(super) fn sentence(all: usize, known: usize, jobs: usize, estimate: Estimate) -> String {
    let plural = |n: usize| if n == 1 { "1 guest".to_owned() } else { format!("{n} guests") };
    let left = all - known;
    let already = match known {
        0 => String::new(),
        known if known == all => return format!("{}: all known already", plural(all)),
        known => format!(", {known} of them known already"),
    };
    let at_a_time = match jobs.min(left) {
        1 => String::new(),
        jobs => format!(", {jobs} at a time"),
    };
    let how = match estimate.measured {
        0 => "a guess: none like these ran here before".to_owned(),
        measured if measured == left => "by what such guests took before".to_owned(),
        measured => format!("{measured} by what such guests took before, the others guessed"),
    };
    // Less would look more exact than it is.
    let time = minutes(estimate.time.max(Duration::from_secs(1)));
    format!("{}{already}{at_a_time}: about {time} ({how})", plural(all))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_known_and_what_is_guessed_is_said() {
        let said = |all, known, seconds, measured| {
            let estimate = Estimate { time: Duration::from_secs(seconds), measured };
            sentence(all, known, 2, estimate)
        };
        assert_eq!(
            said(160, 40, 1210, 120),
            "160 guests, 40 of them known already, 2 at a time: about 21 min (by what such guests took before)"
        );
        assert_eq!(
            said(1, 0, 13, 0),
            "1 guest: about 13 s (a guess: none like these ran here before)"
        );
        assert!(
            said(4, 0, 40, 3).contains("3 by what such guests took before, the others guessed")
        );
        assert_eq!(said(8, 8, 0, 0), "8 guests: all known already");
    }
}
