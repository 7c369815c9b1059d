//! The kernel's events, sorted by the threads that they concern.

use std::collections::BTreeMap;

use rtscope_model::check::{ThreadEvent, ThreadEventKind};

use crate::trace::{self, text};

/// What a trace tells.
#[derive(Debug, Default)]
pub struct Trace {
    /// Events of each thread, in order.
    pub threads: BTreeMap<u32, Vec<ThreadEvent>>,
    /// Events that had no room.
    pub lost: u64,
}

impl Trace {
    pub(super) fn see(&mut self, event: &trace::Event) {
        for (tid, what) in happened(event).into_iter().flatten() {
            let event = ThreadEvent { at_ns: event.at_ns, what };
            self.threads.entry(tid).or_default().push(event);
        }
    }
}

/// Reads a trace as text; events that are none of ours are left out.
#[must_use]
pub fn read(text: &str) -> Trace {
    let mut found = Trace::default();
    for line in text.lines() {
        found.lost = text::lost(line).unwrap_or(found.lost);
        if let Some(event) = text::parse(line) {
            found.see(&event);
        }
    }
    // The kernel writes events in order. A thread's name that looks like an event can break the order.
    found.threads.values_mut().for_each(|events| events.sort_by_key(|event| event.at_ns));
    found
}

/// What an event says of threads: a switch is two events.
fn happened(event: &trace::Event) -> [Option<(u32, ThreadEventKind)>; 2] {
    let own = |what: ThreadEventKind| [Some((event.tid, what)), None];
    match event.what {
        trace::What::Switch { from, is_ready, to, .. } => {
            // The idle thread is none.
            let out = (from != 0).then_some((from, ThreadEventKind::Out { ready: is_ready }));
            [out, (to != 0).then_some((to, ThreadEventKind::In))]
        }
        trace::What::Waking { tid, .. } => {
            let by = (!event.in_interrupt).then_some(event.tid);
            [Some((tid, ThreadEventKind::Waking { by })), None]
        }
        trace::What::TimerStart { function, expires_ns, is_relative, .. }
            if function.ends_a_sleep() && !event.in_interrupt =>
        {
            own(ThreadEventKind::Timer { expires_ns, relative: is_relative })
        }
        trace::What::PageFault => own(ThreadEventKind::Fault),
        trace::What::Futex { operation, value, is_limited } => {
            own(ThreadEventKind::Futex { operation, value, limited: is_limited })
        }
        _ => [None, None],
    }
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
        let at = |us: u64, what| ThreadEvent { at_ns: 10_000_000_000 + us * 1_000, what };
        assert_eq!(
            trace.threads[&41],
            [
                at(100, ThreadEventKind::Waking { by: None }),
                at(110, ThreadEventKind::In),
                at(120, ThreadEventKind::Fault),
                at(130, ThreadEventKind::Futex { operation: 0, value: 2, limited: false }),
                at(135, ThreadEventKind::Futex { operation: 9, value: 0x2f, limited: true }),
                at(140, ThreadEventKind::Timer { expires_ns: 10_001_000_023, relative: true }),
                at(150, ThreadEventKind::Out { ready: false }),
                at(160, ThreadEventKind::Waking { by: Some(42) }),
            ]
        );
        assert_eq!(trace.threads[&9391], [at(110, ThreadEventKind::Out { ready: true })]);
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
