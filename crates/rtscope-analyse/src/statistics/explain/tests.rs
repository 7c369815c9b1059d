use std::collections::BTreeMap;

use rtscope_model::{
    explain::{FORMAT, RunningThread, Waker, Wakeup, WatchedThread},
    time::Nanos,
    trace::Name,
};

use super::*;

const US: u64 = 1_000;

/// The timer's expiry.
const EXPIRY_US: u64 = 1_000;

fn name(text: &str) -> Name {
    Name::new(text.as_bytes())
}

fn record(spike: Spike) -> ExplainRecord {
    let thread = WatchedThread { tid: 7, name: name("app"), ..WatchedThread::default() };
    ExplainRecord {
        format: FORMAT,
        version: "0".to_owned(),
        wall_clock: String::new(),
        wall_ahead_ns: None,
        kernel: "6.12".to_owned(),
        is_preempt_rt: Some(false),
        is_guest: false,
        program: "app".to_owned(),
        duration: Nanos::from_secs(1),
        above: None,
        kept_max: 1,
        events: Vec::new(),
        missing: Vec::new(),
        threads: vec![thread],
        spikes: vec![spike],
        symbols: vec!["free_pages".to_owned(), "tick_nohz_handler".to_owned()],
        lost: 0,
        lost_by_cpu: BTreeMap::new(),
        pauses: Vec::new(),
    }
}

fn on(cpu: u32, at_us: u64, tid: u32, preempt_depth: u8, what: What) -> Event {
    Event { at_ns: at_us * US, cpu, tid, in_interrupt: false, preempt_depth, what }
}

fn event(at_us: u64, tid: u32, what: What) -> Event {
    on(0, at_us, tid, 0, what)
}

fn switch(at_us: u64, from: u32, to: u32, to_priority: i32, to_name: &str) -> Event {
    let (is_ready, to_name) = (true, name(to_name));
    event(at_us, from, What::Switch { from, is_ready, to, to_priority, to_name })
}

fn irq() -> Section {
    Section::Irq { line: 9, name: name("disk") }
}

/// A wake-up by the timer at 1,000 us, in the interrupt that begins so late, and the switch.
fn spike(interrupt_us: u64, switched_us: u64, more: &[Event]) -> Spike {
    let by = RunningThread { tid: 9, name: name("low"), priority: Some(120), ..Default::default() };
    let mut events = vec![
        event(interrupt_us, 9, What::Enter(Section::LocalTimer)),
        event(interrupt_us + 1, 9, What::Enter(Section::Expiry(0))),
        event(interrupt_us + 2, 9, What::Waking { tid: 7, name: name("app") }),
        event(interrupt_us + 3, 9, What::Leave(Section::Expiry(0))),
        event(interrupt_us + 4, 9, What::Leave(Section::LocalTimer)),
        switch(switched_us, 9, 7, 9, "app"),
    ];
    events.extend(more);
    events.sort_by_key(|event| event.at_ns);
    Spike {
        tid: 7,
        priority: 9,
        timer: Some(ExpiredTimer { expires_ns: EXPIRY_US * US, slack_ns: 0 }),
        waking: Wakeup { at_ns: (interrupt_us + 2) * US, cpu: 0, by: 9, in_interrupt: true },
        wakers: Vec::new(),
        cpu: 0,
        switched_ns: switched_us * US,
        returned_ns: None,
        before: vec![by],
        events,
        is_lossy: false,
    }
}

/// Kind, name and length in microseconds of each piece. They must add up.
fn pieces(spike: Spike) -> Vec<(PieceKind, String, u64)> {
    let explained = explain(&record(spike)).remove(0);
    let sum: u64 = explained.pieces.iter().map(|piece| piece.ns).sum();
    assert_eq!(sum, explained.latency_ns, "{:?}", explained.pieces);
    explained.pieces.into_iter().map(|p| (p.kind, p.name, p.ns / US)).collect()
}

fn has(all: &[(PieceKind, String, u64)], kind: PieceKind, name: &str, us: u64) {
    assert!(all.contains(&(kind, name.to_owned(), us)), "no {kind:?} {name} {us} in {all:?}");
}

#[test]
fn a_wake_up_in_time_is_the_timers_interrupt_and_the_switch() {
    let all = pieces(spike(1_000, 1_006, &[]));
    assert_eq!(
        all,
        [
            (PieceKind::ExpiryWork, "the interrupt itself".to_owned(), 1),
            (PieceKind::ExpiryWork, "a timer's function".to_owned(), 1),
            (PieceKind::ExpiryWork, "the interrupt itself".to_owned(), 2),
            (PieceKind::Switching, "scheduler".to_owned(), 2),
        ]
    );
}

#[test]
fn two_interrupts_back_to_back_before_the_timer_are_both_named() {
    let usb = Section::Irq { line: 11, name: name("usb") };
    let more = [
        event(990, 9, What::Enter(irq())),
        event(1_040, 9, What::Leave(irq())),
        event(1_041, 9, What::Enter(usb)),
        event(1_098, 9, What::Leave(Section::Irq { line: 11, name: Name::default() })),
    ];
    let all = pieces(spike(1_100, 1_106, &more));
    has(&all, PieceKind::Interrupt, "IRQ 9 (disk)", 40);
    has(&all, PieceKind::Interrupt, "IRQ 11 (usb)", 57);
}

#[test]
fn a_late_interrupt_is_told_by_what_it_interrupted() {
    let stack = |place| [event(1_102, 9, What::Interrupted(place))];
    let all = pieces(spike(1_100, 1_106, &stack(Place::User)));
    has(&all, PieceKind::OutsideLinux, "while low-9 ran", 100);
    let all = pieces(spike(1_100, 1_106, &[]));
    assert_eq!(all[0].0, PieceKind::Unknown);
    let spike = spike(1_100, 1_106, &stack(Place::Kernel(1)));
    let explained = explain(&record(spike.clone())).remove(0);
    assert_eq!(explained.pieces[0].place.as_deref(), Some("free_pages"));
    has(&pieces(spike), PieceKind::InterruptsOff, "while low-9 ran", 100);
}

/// A softirq runs with interrupts on: the timer's interrupt would have come.
#[test]
fn a_softirq_that_the_timer_did_not_interrupt_had_interrupts_off() {
    let more = [
        event(990, 9, What::Enter(Section::Softirq(9))),
        event(1_102, 9, What::Interrupted(Place::Kernel(1))),
        event(1_105, 9, What::Leave(Section::Softirq(9))),
    ];
    let late = spike(1_100, 1_106, &more);
    has(&pieces(late.clone()), PieceKind::InterruptsOff, "while softirq RCU ran", 100);
    let certainty = |is_guest| {
        let record = ExplainRecord { is_guest, ..record(late.clone()) };
        explain(&record).remove(0).pieces[0].certainty
    };
    assert_eq!([certainty(false), certainty(true)], [Certainty::Measured, Certainty::Unknown]);
}

/// The interrupt lasts from 1,000 to 3,500 us, or to 1,900 us.
#[test]
fn a_long_interrupt_of_a_guest_may_be_its_host() {
    let late = |until_us: u64| {
        let begun = event(1_000, 9, What::Enter(irq()));
        spike(until_us, until_us + 6, &[begun, event(until_us, 9, What::Leave(irq()))])
    };
    let first = |until_us, is_guest| {
        let record = ExplainRecord { is_guest, ..record(late(until_us)) };
        let piece = explain(&record).remove(0).pieces.remove(0);
        (piece.kind, piece.certainty, piece.name)
    };
    let known = (PieceKind::Interrupt, Certainty::Measured, "IRQ 9 (disk)".to_owned());
    assert_eq!([first(1_900, true), first(3_500, false)], [known.clone(), known]);
    let (kind, certainty, name) = first(3_500, true);
    assert_eq!((kind, certainty), (PieceKind::Unknown, Certainty::Unknown));
    assert_eq!(name, "IRQ 9 (disk) or a stop by the host");
}

#[test]
fn a_host_that_took_the_cpu_is_told_by_what_the_thread_was_charged_with() {
    let charge = |at_us, ns| event(at_us, 9, What::Runtime { ns });
    // 200 us passed between the charges, and 90 were charged.
    let more = [charge(905, 4 * US), charge(1_105, 90 * US)];
    has(&pieces(spike(1_100, 1_106, &more)), PieceKind::Steal, "while low-9 ran", 100);
    // All were charged: then nobody took it.
    let more = [charge(905, 4 * US), charge(1_105, 200 * US)];
    assert_eq!(pieces(spike(1_100, 1_106, &more))[0].0, PieceKind::Unknown);
    // An interrupt took what wasn't charged: the host took nothing.
    let interrupt = [event(950, 9, What::Enter(irq())), event(1_050, 9, What::Leave(irq()))];
    let more = [&[charge(905, 4 * US)], &interrupt[..], &[charge(1_105, 90 * US)]].concat();
    let all = pieces(spike(1_100, 1_106, &more));
    has(&all, PieceKind::Interrupt, "IRQ 9 (disk)", 50);
    assert!(all.iter().all(|piece| piece.0 != PieceKind::Steal), "{all:?}");
    // What the host took is no longer than what the thread ran, 195 us, less what it was charged with.
    let more = [charge(905, 4 * US), charge(1_105, 130 * US)];
    has(&pieces(spike(1_100, 1_106, &more)), PieceKind::Steal, "while low-9 ran", 65);
    // The thread ran on after the wake-up, and the scheduler's clock still stood there.
    let more = [charge(905, 4 * US), charge(1_505, 195 * US)];
    let all = pieces(spike(1_100, 1_506, &more));
    has(&all, PieceKind::Blocking, "low-9", 401);
    assert!(all.iter().all(|piece| piece.0 != PieceKind::Steal), "{all:?}");
}

#[test]
fn an_idle_cpu_takes_its_time_to_wake() {
    let more =
        [event(900, 0, What::Idle { begins: true }), event(1_060, 0, What::Idle { begins: false })];
    let all = pieces(spike(1_060, 1_066, &more));
    has(&all, PieceKind::IdleExit, "exit from idle", 60);
    // The timer's interrupt, which had ended by its event at 1,064 us, wakes another thread on its way out.
    let more = [
        event(900, 0, What::Idle { begins: true }),
        event(1_066, 0, What::Waking { tid: 3, name: name("ktimers/0") }),
        event(1_069, 0, What::Idle { begins: false }),
    ];
    let mut late = spike(1_060, 1_070, &more);
    late.before[0] = RunningThread { is_idle: true, ..Default::default() };
    late.events.iter_mut().for_each(|event| event.tid = 0);
    let all = pieces(late);
    has(&all, PieceKind::ExpiryWork, "the interrupt itself", 4);
    has(&all, PieceKind::IdleExit, "exit from idle", 3);
}

/// A switch takes some microseconds. What takes longer is no switch.
#[test]
fn a_long_time_in_the_idle_thread_is_not_called_switching() {
    let idle = [switch(1_005, 9, 0, 120, "swapper/0")];
    has(&pieces(spike(1_000, 1_020, &idle)), PieceKind::Switching, "scheduler", 15);
    has(&pieces(spike(1_000, 2_500, &idle)), PieceKind::Unknown, "in the idle thread", 1_495);
}

#[test]
fn slack_is_the_threads_own() {
    let mut late = spike(1_055, 1_061, &[]);
    late.timer = Some(ExpiredTimer { expires_ns: EXPIRY_US * US, slack_ns: 50 * US });
    late.priority = 120;
    let all = pieces(late);
    has(&all, PieceKind::TimerSlack, "the timer may expire later", 50);
    has(&all, PieceKind::Unknown, "interrupts off in low-9, or not Linux", 5);
}

#[test]
fn a_thread_of_higher_priority_interferes_and_one_of_lower_priority_blocks() {
    let hog = [switch(1_010, 9, 8, 0, "hog"), switch(2_010, 8, 9, 120, "low")];
    let mut late = spike(1_000, 2_020, &hog);
    // Who ran on although the other was ready shows that preemption was off.
    late.events.extend([
        on(0, 2_011, 9, 1, What::Enter(irq())),
        on(0, 2_012, 9, 1, What::Leave(irq())),
        on(0, 2_017, 9, 2, What::Enter(irq())),
        on(0, 2_018, 9, 2, What::Leave(irq())),
    ]);
    late.events.sort_by_key(|event| event.at_ns);
    // It was on in between.
    let mut on_again = late.clone();
    on_again
        .events
        .extend([on(0, 2_014, 9, 0, What::Enter(irq())), on(0, 2_015, 9, 0, What::Leave(irq()))]);
    on_again.events.sort_by_key(|event| event.at_ns);
    let on_again = explain(&record(on_again)).remove(0);
    assert_eq!(on_again.pieces.iter().find_map(|piece| piece.place.as_deref()), None);
    let explained = explain(&record(late.clone())).remove(0);
    let all = pieces(late);
    has(&all, PieceKind::Interference, "hog-8 (real-time priority 99)", 1_000);
    has(&all, PieceKind::Blocking, "low-9", 6);
    let place = explained.pieces.iter().rev().find_map(|piece| piece.place.as_deref());
    assert_eq!(place, Some("preemption was disabled for 6.0 us or more"));
    let certain = |n: usize| explained.pieces[n].certainty;
    let blocking = explained.pieces.iter().rposition(|piece| piece.kind == PieceKind::Blocking);
    assert_eq!(blocking.map(certain), Some(Certainty::LowerBound));
}

/// Function 1 of the record is `free_pages`, function 2 `tick_nohz_handler`.
#[test]
fn a_thread_of_the_kernel_is_told_by_the_work_that_it_does() {
    let work = [
        event(990, 9, What::Work { function: 1, begins: true }),
        event(1_300, 9, What::Work { function: 1, begins: false }),
        event(1_350, 9, What::Work { function: 2, begins: true }),
    ];
    let explained = explain(&record(spike(1_000, 1_400, &work))).remove(0);
    let blocking = explained.pieces.iter().filter(|piece| piece.kind == PieceKind::Blocking);
    let told: Vec<_> = blocking.map(|piece| (piece.ns / US, piece.place.as_deref())).collect();
    let told_of = |ns, function| (ns, Some(function));
    assert_eq!(
        told,
        [told_of(296, "it runs free_pages"), (50, None), told_of(50, "it runs tick_nohz_handler")]
    );
    // What it has done doesn't count.
    let done = [work[0], Event { at_ns: 995 * US, ..work[1] }];
    let explained = explain(&record(spike(1_000, 1_400, &done))).remove(0);
    assert!(explained.pieces.iter().all(|piece| piece.place.is_none()));
}

/// The event of one comes at its end.
#[test]
fn an_interrupt_that_cannot_be_masked_is_taken_off_what_it_interrupted() {
    let nmi = [event(1_100, 9, What::Nmi { handler: 1, ns: 60 * US })];
    let all = pieces(spike(1_000, 1_200, &nmi));
    has(&all, PieceKind::Blocking, "low-9", 36);
    has(&all, PieceKind::Interrupt, "NMI (free_pages)", 60);
    // One that keeps the timer's interrupt away, and that began before the timer was due.
    let nmi = [event(1_040, 9, What::Nmi { handler: 0, ns: 60 * US })];
    let all = pieces(spike(1_050, 1_060, &nmi));
    has(&all, PieceKind::Interrupt, "NMI", 40);
    has(&all, PieceKind::Unknown, "interrupts off in low-9, or not Linux", 10);
}

#[test]
fn softirqs_are_named_and_what_interrupts_them_is_taken_off() {
    let more = [
        event(1_005, 9, What::Enter(Section::Softirq(3))),
        event(1_050, 9, What::Enter(irq())),
        event(1_070, 9, What::Leave(irq())),
        event(1_205, 9, What::Leave(Section::Softirq(3))),
    ];
    let all = pieces(spike(1_000, 1_208, &more));
    has(&all, PieceKind::Softirq, "softirq NET_RX", 45);
    has(&all, PieceKind::Interrupt, "IRQ 9 (disk)", 20);
    has(&all, PieceKind::Softirq, "softirq NET_RX", 135);
}

/// PREEMPT_RT runs softirqs in threads: the timer's interrupt interrupts another timer's function there.
#[test]
fn a_softirq_in_a_thread_is_preempted_and_is_no_work_of_the_timer() {
    let more = [
        event(900, 9, What::Enter(Section::Softirq(8))),
        event(910, 9, What::Enter(Section::Expiry(2))),
    ];
    let all = pieces(spike(1_000, 1_008, &more));
    has(&all, PieceKind::Switching, "scheduler", 4);
    assert!(all.iter().all(|piece| piece.0 != PieceKind::Softirq), "{all:?}");
    // What takes longer than a switch is the softirq's.
    has(&pieces(spike(1_000, 1_060, &more)), PieceKind::Softirq, "softirq HRTIMER", 56);
}

#[test]
fn a_wake_up_from_another_cpu_waits_for_that_one() {
    let waker = RunningThread { cpu: 1, tid: 5, name: name("net"), ..Default::default() };
    let mut late = spike(1_000, 1_050, &[]);
    (late.timer, late.events) = (
        None,
        vec![
            on(1, 1_000, 5, 0, What::Waking { tid: 7, name: name("app") }),
            on(0, 1_020, 0, 0, What::Idle { begins: false }),
            on(0, 1_021, 0, 0, What::Enter(Section::Reschedule)),
            on(0, 1_025, 0, 0, What::Leave(Section::Reschedule)),
            switch(1_050, 0, 7, 9, "app"),
        ],
    );
    late.waking = Wakeup { at_ns: 1_000 * US, cpu: 1, by: 5, in_interrupt: false };
    late.before = vec![waker, RunningThread { is_idle: true, ..Default::default() }];
    late.events.insert(0, on(1, 940, 0, 0, What::Enter(irq())));
    late.events.insert(1, on(1, 944, 0, 0, What::Leave(irq())));
    late.events.insert(2, Event { cpu: 1, ..switch(950, 0, 5, 120, "net") });
    let by = Wakeup { at_ns: 942 * US, cpu: 1, by: 0, in_interrupt: true };
    late.wakers = vec![Waker { tid: 5, name: name("net"), waking: by }];
    let explained = explain(&record(late.clone())).remove(0);
    assert_eq!(explained.woken_by.as_deref(), Some("net-5"));
    let origin =
        WakerLink { thread: "net-5".to_owned(), woken_by: "IRQ 9 (disk)".to_owned(), ns: 58 * US };
    assert_eq!(explained.wakers, [origin]);
    let all = pieces(late);
    has(&all, PieceKind::IdleExit, "exit from idle", 20);
    has(&all, PieceKind::Interrupt, "reschedule from another CPU", 4);
}

#[test]
fn the_way_back_to_the_program_belongs_to_the_latency() {
    let more = [
        event(1_008, 7, What::Enter(irq())),
        event(1_028, 7, What::Leave(irq())),
        switch(1_030, 7, 5, 0, "hog"),
        switch(1_080, 5, 7, 9, "app"),
        event(1_083, 7, What::SystemCallEnds),
        event(1_084, 7, What::PageFault),
        event(1_090, 7, What::PageFault),
    ];
    let late = Spike { returned_ns: Some(1_090 * US), ..spike(1_000, 1_006, &more) };
    let all = explain(&record(late.clone())).remove(0).pieces;
    let faults = all.last().expect("pieces");
    assert_eq!((faults.name.as_str(), faults.certainty), ("page fault", Certainty::LowerBound));
    assert_eq!(faults.place.as_deref(), Some("a page fault of unknown length followed"));
    let all = pieces(late);
    has(&all, PieceKind::Interrupt, "IRQ 9 (disk)", 20);
    has(&all, PieceKind::Interference, "hog-5 (real-time priority 99)", 50);
    has(&all, PieceKind::Switching, "return to user space", 4);
    has(&all, PieceKind::Switching, "page fault", 6);
    // Where the return isn't known, the latency ends with the switch.
    assert_eq!(pieces(spike(1_000, 1_006, &more)), pieces(spike(1_000, 1_006, &[])));
}

/// Whatever the events are, the pieces add up and nothing panics.
#[test]
fn pieces_add_up_whatever_the_events_are() {
    let mut random = crate::statistics::random::Random::new(5);
    for _ in 0..500 {
        let mut more = Vec::new();
        for _ in 0..(random.share() * 12.0) as usize {
            let at_us = 900 + (random.share() * 400.0) as u64;
            let section = [irq(), Section::Softirq(1), Section::LocalTimer, Section::Expiry(2)]
                [(random.share() * 4.0) as usize];
            more.push(match (random.share() * 6.0) as u32 {
                0 => event(at_us, 9, What::Enter(section)),
                1 => event(at_us, 9, What::Leave(section)),
                2 => event(at_us, 9, What::Idle { begins: random.share() < 0.5 }),
                3 => event(at_us, 9, What::Runtime { ns: at_us }),
                4 => event(at_us, 9, What::Interrupted(Place::Kernel(at_us))),
                _ => switch(at_us, 9, 5, (random.share() * 140.0) as i32, "x"),
            });
        }
        let late_us = (random.share() * 200.0) as u64;
        let spike = spike(EXPIRY_US + late_us, EXPIRY_US + late_us + 10, &more);
        let returned_us = late_us + 10 + (random.share() * 200.0) as u64;
        let returned_ns = Some((EXPIRY_US + returned_us) * US).filter(|_| random.share() < 0.5);
        let _ = pieces(Spike { returned_ns, ..spike });
    }
}

#[test]
fn a_piece_keeps_its_place_and_takes_one_where_it_has_none() {
    let piece = |place: Option<&str>, why| Piece {
        kind: PieceKind::InterruptsOff,
        name: "timer".to_owned(),
        at_ns: 5,
        ns: 10,
        certainty: Certainty::Measured,
        why,
        place: place.map(str::to_owned),
    };
    for (own, other, place, why) in [
        (Some("a"), Some("b"), Some("a"), "own"),
        (None, Some("b"), Some("b"), "other"),
        (None, None, None, "own"),
    ] {
        let mut sum = piece(own, "own");
        sum.add(&Piece { at_ns: 3, ..piece(other, "other") });
        assert_eq!((sum.place.as_deref(), sum.why, sum.at_ns, sum.ns), (place, why, 3, 20));
    }
}
