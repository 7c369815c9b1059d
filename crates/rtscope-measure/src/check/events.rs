//! The trace as text, read into the events of each thread.

use std::collections::BTreeMap;

use rtscope_model::check::{Event, What};

use crate::trace::{self, Line};

/// What a trace tells.
#[derive(Debug, Default)]
pub struct Trace {
    /// Events of each thread, in order.
    pub threads: BTreeMap<u32, Vec<Event>>,
    /// Events that had no room.
    pub lost: u64,
}

/// Reads a trace; events that are none of ours are left out.
#[must_use]
pub fn read(text: &str) -> Trace {
    let mut found = Trace::default();
    for line in text.lines() {
        found.lost = trace::lost(line).unwrap_or(found.lost);
        let Some(line) = Line::parse(line) else { continue };
        for (tid, what) in happened(&line).into_iter().flatten() {
            let event = Event { at_ns: line.at_ns, what };
            found.threads.entry(tid).or_default().push(event);
        }
    }
    // The kernel writes events in order. A thread's name that looks like an event can break the order.
    found.threads.values_mut().for_each(|events| events.sort_by_key(|event| event.at_ns));
    found
}

/// What a line says of threads: a switch is two events.
fn happened(line: &Line<'_>) -> [Option<(u32, What)>; 2] {
    let own = |what: Option<What>| [what.map(|what| (line.tid, what)), None];
    // A call's line has the form `sys_futex(uaddr: 0x7f, op: 0x80, ...)`.
    if let Some(words) = line.event.strip_prefix("sys_futex(") {
        return own(futex(words));
    }
    let Some((name, rest)) = line.event.split_once(": ") else { return [None, None] };
    match name {
        "sched_switch" => switch(rest),
        "sched_waking" => {
            let by = (!line.in_interrupt).then_some(line.tid);
            [number(rest, " pid=").map(|tid| (tid, What::Waking { by })), None]
        }
        "hrtimer_start" if !line.in_interrupt => own(timer(rest)),
        "page_fault_user" => own(Some(What::Fault)),
        _ => [None, None],
    }
}

fn switch(text: &str) -> [Option<(u32, What)>; 2] {
    let sides = || {
        let (prev, next) = text.split_once(" ==> ")?;
        // The idle thread is none.
        let some = |tid: &u32| *tid != 0;
        let state = after(prev, "prev_state=")?;
        let out = number(prev, "prev_pid=").filter(some);
        let out = out.map(|tid| (tid, What::Out { ready: state.starts_with('R') }));
        let next = number(next, "next_pid=").filter(some).map(|tid| (tid, What::In));
        Some([out, next])
    };
    sides().unwrap_or([None, None])
}

/// Timers of other purposes than waking a thread have other functions.
fn timer(text: &str) -> Option<What> {
    let wakes = after(text, "function=")?.starts_with("hrtimer_wakeup");
    let expires = after(text, "softexpires=").or_else(|| after(text, "expires="))?;
    let expires_ns = trace::parse_instant_ns(expires.split(' ').next()?)?;
    let relative = after(text, "mode=").is_some_and(|mode| mode.starts_with("REL"));
    wakes.then_some(What::Timer { expires_ns, relative })
}

fn futex(text: &str) -> Option<What> {
    let hex = |key: &str| {
        let word = text.split_once(key)?.1.split([',', ')', ' ']).next()?;
        u64::from_str_radix(word.trim_start_matches("0x"), 16).ok()
    };
    // The flags say whose the word is and which clock counts.
    const FLAGS: u64 = 0x80 | 0x100;
    Some(What::Futex {
        operation: u32::try_from(hex("op: ")? & !FLAGS).ok()?,
        value: hex("val: ")?,
        limited: hex("utime: ")? != 0,
    })
}

fn after<'a>(text: &'a str, key: &str) -> Option<&'a str> {
    Some(text.rsplit_once(key)?.1)
}

fn number<N: std::str::FromStr>(text: &str, key: &str) -> Option<N> {
    after(text, key)?.split([' ', ')']).next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TRACE: &str = "\
# entries-in-buffer/entries-written: 8/10   #P:2
  opt cgu.0-9391    [001] d.h2.  10.000100: sched_waking: comm=app pid=41 prio=19 target_cpu=001
  opt cgu.0-9391    [001] d..2.  10.000110: sched_switch: prev_comm=opt cgu.0 prev_pid=9391 prev_prio=125 prev_state=R+ ==> next_comm=app next_pid=41 next_prio=19
        app-41      [001] .....  10.000120: page_fault_user: address=0x1 ip=0x2 error_code=0x4
        app-41      [001] .....  10.000130: sys_futex(uaddr: 0x7f, op: 0x80, val: 2, utime: 0, uaddr2: 5, val3: 0x33)
        app-41      [001] .....  10.000135: sys_futex(uaddr: 0x7f, op: 0x189, val: 0x2f, utime: 0x7fee, uaddr2: 0, val3: 0xffffffff)
        app-41      [001] d..1.  10.000140: hrtimer_start: hrtimer=0000000013bd function=hrtimer_wakeup expires=10001000123 softexpires=10001000023 mode=REL was_armed=0
        app-41      [001] d..1.  10.000141: hrtimer_start: hrtimer=0000000013be function=tick_nohz_handler expires=5 softexpires=5 mode=ABS was_armed=0
        app-41      [001] d..2.  10.000150: sched_switch: prev_comm=app prev_pid=41 prev_prio=19 prev_state=S ==> next_comm=swapper/1 next_pid=0 next_prio=120
        low-42      [000] d..2.  10.000160: sched_waking: comm=app pid=41 prio=19 target_cpu=001
";

    #[test]
    fn each_event_goes_to_its_thread() {
        let trace = read(TRACE);
        let at = |us: u64, what| Event { at_ns: 10_000_000_000 + us * 1_000, what };
        assert_eq!(
            trace.threads[&41],
            [
                at(100, What::Waking { by: None }),
                at(110, What::In),
                at(120, What::Fault),
                at(130, What::Futex { operation: 0, value: 2, limited: false }),
                at(135, What::Futex { operation: 9, value: 0x2f, limited: true }),
                at(140, What::Timer { expires_ns: 10_001_000_023, relative: true }),
                at(150, What::Out { ready: false }),
                at(160, What::Waking { by: Some(42) }),
            ]
        );
        assert_eq!(trace.threads[&9391], [at(110, What::Out { ready: true })]);
        assert_eq!((trace.threads.len(), trace.lost), (2, 2));
    }

    /// A thread's name can look like a line of the trace and go back in time: differences overflowed.
    #[test]
    fn events_out_of_order_are_put_in_order() {
        let fault = |at: &str| format!("app-41 [001] ..... {at}: page_fault_user: address=0x1\n");
        let trace = read(&[fault("10.5"), fault("9.5"), fault("10.1")].concat());
        let at_ns: Vec<u64> = trace.threads[&41].iter().map(|event| event.at_ns).collect();
        assert!(at_ns.is_sorted(), "{at_ns:?}");
        let timer = "app-41 [001] d..1. 10.1: hrtimer_start: function=hrtimer_wakeup expires=18446744073709551615 mode=ABS";
        assert!(read(timer).threads.is_empty());
    }

    #[test]
    fn a_trace_that_is_cut_anywhere_is_no_panic() {
        for end in 0..TRACE.len() {
            let _ = read(&TRACE[..end]);
        }
    }
}
