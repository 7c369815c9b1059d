//! Events by hand: what is kept of them.

use rtscope_model::trace::Name;

use super::*;

const US: u64 = 1_000;

fn limits(above_ns: u64, kept_max: usize) -> Finder {
    let mut finder = Finder::new(Limits { above_ns, kept_max, realtime_ns: 1 << 60 });
    finder.watch(7);
    finder
}

fn event(at_us: u64, cpu: u32, tid: u32, what: What) -> Event {
    let at_ns = at_us * US;
    Event { at_ns, cpu, tid, in_interrupt: false, preempt_depth: 0, what }
}

fn switch(at_us: u64, cpu: u32, from: u32, to: u32) -> Event {
    let (to_priority, to_name) = (19, Name::new(b"app"));
    event(at_us, cpu, from, What::Switch { from, is_ready: false, to, to_priority, to_name })
}

fn arm(at_us: u64, expires_ns: u64) -> Event {
    let (function, slack_ns, is_relative) = (TimerFunction::Sleep, 0, false);
    event(at_us, 0, 7, What::TimerStart { function, expires_ns, slack_ns, is_relative })
}

/// It sleeps until an instant, its timer expires so much later, and it runs at another instant.
fn activation(expires_us: u64, expiry_us: u64, runs_us: u64) -> [Event; 6] {
    let before_us = expires_us - 50;
    [
        arm(before_us, expires_us * US),
        switch(before_us + 1, 0, 7, 0),
        event(expiry_us, 0, 0, What::Enter(Section::Expiry(3))),
        event(expiry_us + 1, 0, 0, What::Waking { tid: 7, name: Name::new(b"app") }),
        event(expiry_us + 2, 0, 0, What::Leave(Section::Expiry(0))),
        switch(runs_us, 0, 0, 7),
    ]
}

#[test]
fn a_latency_is_from_the_timers_expiry_to_the_switch() {
    let mut finder = limits(0, 5);
    activation(1_000, 1_004, 1_010).iter().for_each(|event| finder.see(event));
    // On another clock, which is ahead.
    let mut other = activation(2_000, 2_000, 2_007);
    other[0] = arm(1_950, (1 << 60) + 2_000 * US);
    other.iter().for_each(|event| finder.see(event));
    let (threads, spikes) = finder.finish();
    assert_eq!(spikes.iter().map(Spike::latency_ns).collect::<Vec<_>>(), [10_000, 7_000]);
    let thread = &threads[0];
    assert_eq!((thread.tid, thread.activations, thread.by_timer, thread.late), (7, 2, 2, 2));
    assert_eq!((thread.latency_ns_max, thread.latency_ns_sum), (10_000, 17_000));
    assert_eq!(spikes[0].events.len(), 6);
}

#[test]
fn who_is_woken_by_another_thread_is_late_from_its_wake_up_on() {
    let mut finder = limits(0, 5);
    let events = [
        arm(950, 90_000 * US),
        switch(951, 0, 7, 0),
        event(1_000, 1, 9, What::Waking { tid: 7, name: Name::new(b"app") }),
        switch(1_020, 0, 0, 7),
    ];
    events.iter().for_each(|event| finder.see(event));
    let (_, spikes) = finder.finish();
    assert_eq!((spikes[0].timer, spikes[0].latency_ns()), (None, 20_000));
    assert_eq!((spikes[0].waking.by, spikes[0].waking.cpu), (9, 1));
    // The events of both CPUs, in order.
    assert_eq!(spikes[0].events.len(), 4);
    assert!(spikes[0].events.is_sorted_by_key(|event| event.at_ns));
}

/// From the expiry on, of a thread that comes to run 10 us after it.
fn latency_us(after: &[Event]) -> u64 {
    let mut finder = limits(0, 5);
    activation(1_000, 1_004, 1_010).iter().chain(after).for_each(|event| finder.see(event));
    let (_, spikes) = finder.finish();
    assert_eq!((spikes.len(), spikes[0].switched_ns), (1, 1_010 * US));
    spikes[0].latency_ns() / US
}

#[test]
fn a_latency_ends_when_the_thread_is_back_in_its_program() {
    let ends = |at_us| event(at_us, 0, 7, What::SystemCallEnds);
    let faults = |at_us| event(at_us, 0, 7, What::PageFault);
    assert_eq!(latency_us(&[]), 10, "the kernel doesn't show it");
    assert_eq!(latency_us(&[ends(1_013), ends(1_014)]), 13);
    assert_eq!(latency_us(&[faults(1_012), ends(1_013), faults(1_015), faults(1_030)]), 30);
    assert_eq!(latency_us(&[ends(1_013), faults(1_500)]), 13, "the program's own work");
    assert_eq!(latency_us(&[ends(1_013), arm(1_014, 9), faults(1_015)]), 13);
    let interrupt = Event { in_interrupt: true, ..ends(1_012) };
    assert_eq!(latency_us(&[interrupt, ends(1_013)]), 13);
    assert_eq!(latency_us(&[ends(1_010 + RETURN_NS / US + 1)]), 10, "its call goes on");
}

#[test]
fn a_thread_that_is_preempted_on_its_way_back_is_late_and_one_that_sleeps_is_not() {
    let ends = |at_us, cpu| event(at_us, cpu, 7, What::SystemCallEnds);
    let leaves = |is_ready| {
        let (to_priority, to_name) = (0, Name::new(b"hog"));
        event(1_012, 0, 7, What::Switch { from: 7, is_ready, to: 8, to_priority, to_name })
    };
    let after_us = 1_012 + 2 * RETURN_NS / US;
    let back = |cpu| switch(after_us, cpu, 8, 7);
    assert_eq!(latency_us(&[leaves(true), back(0), ends(after_us + 2, 0)]), after_us - 998);
    assert_eq!(latency_us(&[leaves(false), back(0), ends(after_us + 2, 0)]), 10);
    assert_eq!(latency_us(&[leaves(true), back(1), ends(after_us + 2, 1)]), 10, "another CPU");
}

#[test]
fn the_worst_are_kept_and_all_are_counted() {
    let mut finder = limits(5 * US, 2);
    for (n, late_us) in [3, 9, 6, 30, 8].into_iter().enumerate() {
        let expires_us = 1_000 * (n as u64 + 1);
        let events = activation(expires_us, expires_us, expires_us + late_us);
        events.iter().for_each(|event| finder.see(event));
    }
    let (threads, spikes) = finder.finish();
    assert_eq!((threads[0].activations, threads[0].late), (5, 4));
    assert_eq!(spikes.iter().map(Spike::latency_ns).collect::<Vec<_>>(), [30_000, 9_000]);
}

#[test]
fn each_phase_keeps_its_own_worst_and_what_is_between_them_is_not_kept() {
    let mut finder = limits(0, 1);
    let phase = |from_us: u64, to_us: u64| from_us * US..to_us * US;
    finder.keep_in(&[phase(0, 9_000)]);
    for (n, late_us) in [50, 40, 90, 3, 9].into_iter().enumerate() {
        if n == 1 {
            finder.keep_in(&[phase(1_500, 2_500), phase(3_500, 9_000)]);
        }
        let expires_us = 1_000 * (n as u64 + 1);
        let events = activation(expires_us, expires_us, expires_us + late_us);
        events.iter().for_each(|event| finder.see(event));
    }
    assert_eq!(finder.times().len(), 2);
    let (threads, spikes) = finder.finish();
    assert_eq!(spikes.iter().map(Spike::latency_ns).collect::<Vec<_>>(), [40_000, 9_000]);
    assert_eq!(threads[0].activations, 5);
}

#[test]
fn what_ran_before_is_known_though_its_events_are_gone() {
    let mut finder = limits(0, 1);
    finder.see(&switch(1, 0, 0, 9));
    // Long after what is held.
    let start_us = 10 * LEAD_NS / US;
    activation(start_us, start_us, start_us + 9)[2..].iter().for_each(|event| finder.see(event));
    let (_, spikes) = finder.finish();
    assert_eq!((spikes[0].before[0].tid, spikes[0].before[0].priority), (9, Some(19)));
    assert_eq!(spikes[0].timer, None, "it was armed before anybody looked");
}

/// A kernel was seen that leaves out switches away from a thread.
#[test]
fn who_does_something_runs_though_nobody_saw_the_switch() {
    let mut finder = limits(0, 5);
    let events = activation(1_000, 1_004, 1_010);
    events[..5].iter().for_each(|event| finder.see(event));
    activation(2_000, 2_004, 2_010).iter().for_each(|event| finder.see(event));
    let (threads, spikes) = finder.finish();
    assert_eq!(spikes.iter().map(Spike::latency_ns).collect::<Vec<_>>(), [10_000]);
    assert_eq!((threads[0].activations, threads[0].unseen), (1, 1));
}

#[test]
fn who_is_woken_before_it_sleeps_is_not_late() {
    let mut finder = limits(0, 5);
    let waking = |at_us| event(at_us, 1, 9, What::Waking { tid: 7, name: Name::new(b"app") });
    let events = [switch(900, 0, 0, 7), waking(1_000), arm(1_001, 9), switch(1_002, 0, 7, 0)];
    events.iter().chain(&[waking(2_000), switch(2_003, 0, 0, 7)]).for_each(|one| finder.see(one));
    let (threads, spikes) = finder.finish();
    assert_eq!((threads[0].activations, threads[0].unseen), (1, 0));
    assert_eq!(spikes[0].latency_ns(), 3_000);
}

#[test]
fn an_activation_soon_after_a_loss_is_marked_and_a_later_one_is_not() {
    let mut finder = limits(0, 5);
    finder.see(&event(95_000, 0, 0, What::Enter(Section::Expiry(3))));
    finder.lost(100_000 * US);
    activation(115_000, 115_000, 115_010).iter().for_each(|event| finder.see(event));
    activation(175_000, 175_000, 175_005).iter().for_each(|event| finder.see(event));
    assert_eq!(finder.cpus[&0].expiring, 0, "its end was lost");
    let (_, spikes) = finder.finish();
    assert!(spikes[0].is_lossy && !spikes[1].is_lossy);
}

#[test]
fn after_a_loss_nothing_is_believed_of_a_sleep_that_had_begun() {
    let mut finder = limits(0, 5);
    let events = activation(1_000, 1_004, 1_010);
    events[..3].iter().for_each(|event| finder.see(event));
    finder.lost(0);
    events[3..].iter().for_each(|event| finder.see(event));
    let (_, spikes) = finder.finish();
    assert_eq!(spikes[0].timer, None);
}
