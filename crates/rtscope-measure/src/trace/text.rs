//! Events from lines of the trace as text: `NAME-TID [CPU] FLAGS SECONDS.MICROSECONDS: EVENT: WORDS`. Instants
//! are cut to microseconds.

use rtscope_model::trace::Section;

use super::{Event, INSTANTS_END_NS, Name, TimerFunction, What, futex};

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
    // `trace-cmd report` leaves the flags out, and puts more blanks behind colons.
    let rest = rest.trim_start();
    let (flags, rest) = match rest.split_once(' ')? {
        (time, _) if time.ends_with(':') => ("", rest),
        other => other,
    };
    let (at, event_text) = rest.trim_start().split_once(": ")?;
    let at_ns = instant_ns(at).filter(|ns| *ns < INSTANTS_END_NS)?;
    let tid = name.trim_end().rsplit_once('-')?.1.parse().ok()?;
    let cpu = cpu.parse().ok()?;
    let in_interrupt = flags.chars().any(|flag| "hHsSzZ".contains(flag));
    // The fourth flag is the depth, a dot for none.
    let depth = flags.chars().nth(3).and_then(|digit| digit.to_digit(16)).unwrap_or(0);
    let preempt_depth = (depth & 0x0f) as u8;
    let event = |what| Event { at_ns, cpu, tid, in_interrupt, preempt_depth, what };
    Some(happened(event_text).map(event))
}

/// `SECONDS.MICROSECONDS`, or with nanoseconds as of `trace-cmd report -t`.
fn instant_ns(text: &str) -> Option<u64> {
    let (seconds, fraction) = text.split_once('.')?;
    let unit_ns = if fraction.len() > 6 { 1 } else { 1_000 };
    let second_ns = seconds.parse::<u64>().ok()?.checked_mul(1_000_000_000)?;
    second_ns.checked_add(fraction.parse::<u64>().ok()?.checked_mul(unit_ns)?)
}

/// Of a line with a timer's expiry what the timer's own clock said.
pub(crate) fn expiry_ns(line: &str) -> Option<u64> {
    number(line.split_once("hrtimer_expire_entry: ")?.1, "now=")
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
    let words = words.trim_start();
    match name {
        "sched_switch" if !words.starts_with("prev_comm=") => switch_of_report(words),
        "sched_switch" => {
            let (prev, next) = words.split_once(" ==> ")?;
            Some(What::Switch {
                from: number(prev, "prev_pid=")?,
                is_ready: value(prev, "prev_state=")?.starts_with('R'),
                to: number(next, "next_pid=")?,
                to_priority: number(next, "next_prio=")?,
                to_name: Name::new(between(next, "next_comm=", " next_pid=")?.as_bytes()),
            })
        }
        // As newer ones of `trace-cmd report` write it: `motor:41 [49] CPU:001`.
        "sched_waking" if !words.starts_with("comm=") => {
            let (name, tid) = words.rsplit_once(" [")?.0.rsplit_once(':')?;
            Some(What::Waking { tid: tid.parse().ok()?, name: Name::new(name.as_bytes()) })
        }
        "sched_waking" => {
            let name = between(words, "comm=", " pid=")?;
            Some(What::Waking { tid: number(words, " pid=")?, name: Name::new(name.as_bytes()) })
        }
        "hrtimer_start" => {
            let instant = |key: &str| number::<u64>(words, key).filter(|ns| *ns < INSTANTS_END_NS);
            let hard_ns = instant(" expires=")?;
            let expires_ns = instant("softexpires=").unwrap_or(hard_ns);
            Some(What::TimerStart {
                function: TimerFunction::named(value(words, "function=")?.split('/').next()?),
                expires_ns,
                slack_ns: hard_ns.saturating_sub(expires_ns),
                is_relative: value(words, "mode=").is_some_and(|mode| mode.starts_with("REL")),
            })
        }
        "page_fault_user" => Some(What::PageFault),
        "sys_exit" => Some(What::SystemCallEnds),
        "irq_handler_entry" => {
            let name = Name::new(words.split_once(" name=")?.1.as_bytes());
            Some(What::Enter(Section::Irq { line: number(words, "irq=")?, name }))
        }
        "irq_handler_exit" => {
            let (line, name) = (number(words, "irq=")?, Name::default());
            Some(What::Leave(Section::Irq { line, name }))
        }
        "softirq_entry" => Some(What::Enter(Section::Softirq(number(words, "vec=")?))),
        "softirq_exit" => Some(What::Leave(Section::Softirq(number(words, "vec=")?))),
        // As text there is no address, and 0 is an unknown function.
        "hrtimer_expire_entry" => Some(What::Enter(Section::Expiry(0))),
        "hrtimer_expire_exit" => Some(What::Leave(Section::Expiry(0))),
        "cpu_idle" => Some(What::Idle { begins: number::<u32>(words, "state=")? != u32::MAX }),
        "sched_stat_runtime" => Some(What::Runtime { ns: number(words, "runtime=")? }),
        _ => super::format::vector(name).map(|(section, begins)| match begins {
            true => What::Enter(section),
            false => What::Leave(section),
        }),
    }
}

/// A switch as `trace-cmd report` writes it: `hog:42 [0] S ==> motor:41 [49]`.
fn switch_of_report(words: &str) -> Option<What> {
    let (prev, next) = words.split_once(" ==> ")?;
    let (prev, state) = prev.rsplit_once("] ")?;
    let thread = |text: &str| -> Option<(String, u32, String)> {
        let (name, priority) = text.rsplit_once(" [")?;
        let (name, tid) = name.rsplit_once(':')?;
        Some((name.to_owned(), tid.parse().ok()?, priority.to_owned()))
    };
    let (_, from, _) = thread(prev)?;
    let (to_name, to, to_priority) = thread(next.trim_end().strip_suffix(']')?)?;
    Some(What::Switch {
        from,
        is_ready: state.starts_with('R'),
        to,
        to_priority: to_priority.parse().ok()?,
        to_name: Name::new(to_name.as_bytes()),
    })
}

/// The value of `KEY=` in an event's words, up to a blank.
fn value<'a>(words: &'a str, key: &str) -> Option<&'a str> {
    let at = words.rfind(key)?;
    words[at + key.len()..].split(' ').next()
}

/// What stands between a key at the begin and the last of another one: a name, which may hold anything.
fn between<'a>(words: &'a str, begin: &str, end: &str) -> Option<&'a str> {
    Some(words.strip_prefix(begin)?.rsplit_once(end)?.0)
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
        assert_eq!(event.preempt_depth, 2);
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
                slack_ns: 100,
                is_relative: false
            })
        );
        assert_eq!(
            what(
                "sched_switch: prev_comm=a prev_pid=41 prev_prio=19 prev_state=R+ ==> \
                 next_comm=swapper/1 next_pid=0 next_prio=120"
            ),
            Some(What::Switch {
                from: 41,
                is_ready: true,
                to: 0,
                to_priority: 120,
                to_name: Name::new(b"swapper/1")
            })
        );
    }

    #[test]
    fn what_interrupts_is_told_by_its_begin_and_its_end() {
        let what = |event: &str| {
            parse(&format!("a-41 [000] d.h1. 10.000140: {event}")).map(|one| one.what)
        };
        let disk = |name: &[u8]| Section::Irq { line: 9, name: Name::new(name) };
        for (event, expected) in [
            ("irq_handler_entry: irq=9 name=my disk", What::Enter(disk(b"my disk"))),
            ("irq_handler_exit: irq=9 ret=handled", What::Leave(disk(b""))),
            ("softirq_entry: vec=3 [action=NET_RX]", What::Enter(Section::Softirq(3))),
            ("local_timer_entry: vector=236", What::Enter(Section::LocalTimer)),
            ("reschedule_exit: vector=253", What::Leave(Section::Reschedule)),
            (
                "hrtimer_expire_entry: hrtimer=00 function=hrtimer_wakeup now=5",
                What::Enter(Section::Expiry(0)),
            ),
            ("cpu_idle: state=4294967295 cpu_id=0", What::Idle { begins: false }),
            ("sched_stat_runtime: comm=a b pid=4 runtime=1234 [ns]", What::Runtime { ns: 1_234 }),
        ] {
            assert_eq!(what(event), Some(expected), "{event}");
        }
        assert_eq!(what("irq_handler_entry: irq=9"), None);
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
