//! Records of `explain`.

use std::collections::BTreeMap;

use rtscope_model::{
    explain::{ExpiredTimer, ExplainRecord, RunningThread, Spike, Wakeup, WatchedThread},
    interruptions::{Accounts, Interruption, InterruptionKind, Interruptions, Owner, Sender},
    time::Nanos,
    trace::{Event, Name, Section, What},
};

/// A thread that waits for an interrupt, for a thread of a higher priority and for one of a lower one.
pub(crate) fn explained() -> ExplainRecord {
    let name = |text: &str| Name::new(text.as_bytes());
    let event = |at_ns: u64, tid: u32, what: What| {
        let (cpu, in_interrupt, preempt_depth) = (1, false, 0);
        Event { at_ns, cpu, tid, in_interrupt, preempt_depth, what }
    };
    let switch = |at_ns, from, to, to_priority, text| {
        let (is_ready, to_name) = (true, name(text));
        event(at_ns, from, What::Switch { from, is_ready, to, to_priority, to_name })
    };
    let disk = Section::Irq { line: 9, name: name("<disk>") };
    let events = vec![
        event(990_000, 9, What::Enter(disk)),
        event(1_040_000, 9, What::Leave(disk)),
        event(1_041_000, 9, What::Enter(Section::LocalTimer)),
        event(1_042_000, 9, What::Waking { tid: 7, name: name("motor") }),
        event(1_044_000, 9, What::Leave(Section::LocalTimer)),
        switch(1_090_000, 9, 8, 0, "hog & co"),
        switch(1_590_000, 8, 7, 49, "motor"),
    ];
    let low =
        RunningThread { cpu: 1, tid: 9, name: name("low"), priority: Some(120), is_idle: false };
    let spike = Spike {
        tid: 7,
        priority: 49,
        timer: Some(ExpiredTimer { expires_ns: 1_000_000, slack_ns: 0 }),
        waking: Wakeup { at_ns: 1_042_000, cpu: 1, by: 9, in_interrupt: true },
        wakers: Vec::new(),
        cpu: 1,
        switched_ns: 1_590_000,
        returned_ns: None,
        before: vec![low],
        events,
        is_lossy: true,
    };
    let thread = WatchedThread {
        tid: 7,
        name: name("motor"),
        priority: 49,
        activations: 5_220,
        by_timer: 5_219,
        late: 1,
        latency_ns_max: 590_000,
        latency_ns_sum: 60_000_000,
        ..WatchedThread::default()
    };
    ExplainRecord {
        format: rtscope_model::explain::FORMAT,
        version: "0.1.0".to_owned(),
        wall_clock: "2020-01-01T00:00:00Z".to_owned(),
        wall_ahead_ns: Some(1_577_836_800_000_000_000),
        kernel: "6.12.0".to_owned(),
        is_preempt_rt: Some(false),
        is_guest: false,
        program: "./motor".to_owned(),
        duration: Nanos::from_secs(10),
        above: Some(Nanos::from_us(100)),
        kept_max: 20,
        events: vec!["sched/sched_switch".to_owned()],
        missing: vec!["irq/irq_handler_entry".to_owned()],
        threads: vec![thread],
        spikes: vec![spike],
        symbols: Vec::new(),
        lost: 3,
        lost_by_cpu: BTreeMap::from([(1, 3)]),
        pauses: Vec::new(),
    }
}

/// A CPU that something on another one interrupts, for two hours.
pub(crate) fn interruptions() -> Interruptions {
    let row = |kind, name: &str, count: u64, sum_us| Interruption {
        kind,
        name: name.to_owned(),
        count,
        sum: Nanos::from_us(sum_us),
        worst: Nanos::from_us(sum_us / count + 3),
        by_hour: vec![count, 0],
        senders: vec![Sender {
            thread: "<cc1> & co".to_owned(),
            function: "flush_tlb_mm_range".to_owned(),
            count,
        }],
    };
    Interruptions {
        format: rtscope_model::interruptions::FORMAT,
        version: "0.1.0".to_owned(),
        wall_clock: "2020-01-01T00:00:00Z".to_owned(),
        kernel: "6.12.0".to_owned(),
        cpu: 3,
        owner: Some(Owner { tid: 7, name: Name::new(b"motor"), ran: Nanos::from_secs(900) }),
        duration: Nanos::from_secs(7_200),
        idle: Nanos::from_secs(6_200),
        rows: vec![
            row(
                InterruptionKind::LocalTimer,
                InterruptionKind::LocalTimer.text(),
                1_800_000,
                3_600_000,
            ),
            row(InterruptionKind::FunctionCall, InterruptionKind::FunctionCall.text(), 12, 48),
            row(InterruptionKind::Work, "vmstat_update", 7_200, 14_400),
        ],
        missing: vec!["ipi/ipi_send_cpumask".to_owned()],
        includes_rtscope: true,
        accounts: Some(Accounts { charged: Nanos::from_us(60_000), apart: Nanos::from_us(13_000) }),
        lost: 2,
    }
}
