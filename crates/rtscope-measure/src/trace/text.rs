//! Events from lines of the trace as text: `NAME-TID [CPU] FLAGS SECONDS.MICROSECONDS: EVENT: WORDS`. Instants
//! are cut to microseconds.

use super::event::{Event, INSTANTS_END_NS, Name, TimerFunction, What, futex};

/// Reads a line; none for a comment, a line that is cut short, and an event that nobody here knows.
pub(crate) fn parse(line: &str) -> Option<Event> {
    if line.starts_with('#') {
        return None;
    }
    // A name may hold anything: the CPU stands in the first brackets with a number of three digits and the
    // flags and the time behind them.
    line.match_indices(" [").find_map(|(at, _)| after_name(&line[..at], &line[at + 2..])).flatten()
}

/// None when these brackets are part of a name; some none when the event is unknown.
fn after_name(name: &str, rest: &str) -> Option<Option<Event>> {
    let (cpu, rest) = rest.split_once("] ")?;
    let (flags, rest) = rest.split_once(' ')?;
    let (at, event) = rest.trim_start().split_once(": ")?;
    let (seconds, micros) = at.split_once('.')?;
    let second_us = seconds.parse::<u64>().ok()?.checked_mul(1_000_000)?;
    let at_us = second_us.checked_add(micros.parse().ok()?)?;
    let at_ns = at_us.checked_mul(1_000).filter(|ns| *ns < INSTANTS_END_NS)?;
    let tid = name.trim_end().rsplit_once('-')?.1.parse().ok()?;
    let cpu = cpu.parse().ok()?;
    let in_interrupt = flags.chars().any(|flag| "hHsSzZ".contains(flag));
    Some(happened(event).map(|what| Event { at_ns, cpu, tid, in_interrupt, what }))
}

fn happened(event: &str) -> Option<What> {
    // A call's line has the form `sys_futex(uaddr: 0x7f, op: 0x80, ...)`.
    if let Some(words) = event.strip_prefix("sys_futex(") {
        let hex = |key: &str| {
            let word = words.split_once(key)?.1.split([',', ')', ' ']).next()?;
            u64::from_str_radix(word.trim_start_matches("0x"), 16).ok()
        };
        return futex(hex("op: ")?, hex("val: ")?, hex("utime: ")?);
    }
    let (name, words) = event.split_once(": ")?;
    match name {
        "sched_switch" => {
            let (prev, next) = words.split_once(" ==> ")?;
            Some(What::Switch {
                from: number(prev, "prev_pid=")?,
                is_ready: value(prev, "prev_state=")?.starts_with('R'),
                to: number(next, "next_pid=")?,
                to_priority: number(next, "next_prio=")?,
            })
        }
        "sched_waking" => {
            let (name, _) = words.strip_prefix("comm=")?.rsplit_once(" pid=")?;
            Some(What::Waking { tid: number(words, " pid=")?, name: Name::new(name.as_bytes()) })
        }
        "hrtimer_start" => {
            let expires = value(words, "softexpires=").or_else(|| value(words, " expires="))?;
            Some(What::TimerStart {
                function: TimerFunction::named(value(words, "function=")?),
                expires_ns: expires.parse().ok().filter(|ns| *ns < INSTANTS_END_NS)?,
                is_relative: value(words, "mode=").is_some_and(|mode| mode.starts_with("REL")),
            })
        }
        "page_fault_user" => Some(What::PageFault),
        _ => None,
    }
}

/// The value of `KEY=` in an event's words, up to a blank.
fn value<'a>(words: &'a str, key: &str) -> Option<&'a str> {
    let at = words.rfind(key)?;
    words[at + key.len()..].split(' ').next()
}

fn number<N: std::str::FromStr>(words: &str, key: &str) -> Option<N> {
    value(words, key)?.parse().ok()
}

/// How many events had no room, from a line of the head of a trace.
pub(crate) fn lost(line: &str) -> Option<u64> {
    let counts = line.strip_prefix("# entries-in-buffer/entries-written: ")?;
    let mut numbers = counts.split(['/', ' ']).filter_map(|word| word.parse::<u64>().ok());
    let (kept, written) = (numbers.next()?, numbers.next()?);
    Some(written.saturating_sub(kept))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_read_whatever_the_name_is() {
        let text =
            " a [x] 9-1 b-41   [001] d.h2.  1858.317769: sched_waking: comm=a [002] pid=9 prio=1";
        let event = parse(text).expect("an event");
        assert_eq!((event.tid, event.cpu, event.in_interrupt), (41, 1, true));
        let what = What::Waking { tid: 9, name: Name::new(b"a [002]") };
        assert_eq!((event.at_ns, event.what), (1_858_317_769_000, what));
        let fault = "x-1 [000] d..2. 1.5: page_fault_user: y";
        assert!(!parse(fault).expect("an event").in_interrupt);
        assert_eq!(parse("# tracer: nop [000] d..2. 1.5: page_fault_user: x"), None);
        assert_eq!(lost("# entries-in-buffer/entries-written: 4/9   #P:2"), Some(5));
    }

    #[test]
    fn each_event_becomes_a_value() {
        let what = |event: &str| {
            parse(&format!("a-41 [000] d..1. 10.000140: {event}")).map(|one| one.what)
        };
        assert_eq!(
            what(
                "sys_futex(uaddr: 0x7f, op: 0x189, val: 0x2f, utime: 0x7fee, uaddr2: 0, val3: 0xf)"
            ),
            Some(What::Futex { operation: 9, value: 0x2f, is_limited: true })
        );
        assert_eq!(
            what(
                "hrtimer_start: hrtimer=0 function=timerfd_tmrproc expires=10001000123 \
                 softexpires=10001000023 mode=ABS was_armed=0"
            ),
            Some(What::TimerStart {
                function: TimerFunction::TimerFd,
                expires_ns: 10_001_000_023,
                is_relative: false
            })
        );
        assert_eq!(
            what(
                "sched_switch: prev_comm=a prev_pid=41 prev_prio=19 prev_state=R+ ==> \
                 next_comm=swapper/1 next_pid=0 next_prio=120"
            ),
            Some(What::Switch { from: 41, is_ready: true, to: 0, to_priority: 120 })
        );
    }

    #[test]
    fn a_line_that_is_cut_short_is_no_event() {
        let text = "app-41 [001] d..2. 10.400200: sched_switch: prev_comm=app prev_pid=41 prev_prio=19 \
                    prev_state=S ==> next_comm=x next_pid=42 next_prio=1";
        for end in 0..text.rfind("next_prio=").expect("its key") + 10 {
            assert_eq!(parse(&text[..end]), None, "{}", &text[..end]);
        }
        assert!(parse(text).is_some());
    }

    /// Such a name of a thread made the conversion to nanoseconds overflow.
    #[test]
    fn a_line_with_an_impossible_time_is_skipped() {
        for at in
            ["18446744073709551615.0", "18446744073709.999999", "18446744074.0", "4611686019.0"]
        {
            assert_eq!(parse(&format!("a-1 [000] d..2. {at}: page_fault_user: y")), None, "{at}");
        }
    }
}
