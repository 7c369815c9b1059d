//! Late activations for the pages that explain them.

use rtscope_analyse::{
    report::explain_lab::{self, Explanation},
    statistics::explain::{
        Certainty, Explained, Kind, Piece,
        instructions::{FunctionTime, LateWakeup, Paths, StackTime},
    },
};
use rtscope_model::{
    explain::{ExpiredTimer, ExplainRecord, RunningThread, Spike, Wakeup, WatchedThread},
    time::Nanos,
    trace::{Event, Name, Section, What},
};

use crate::kinds::MS;

/// A wake-up that a thread's system call held up, and one of an idle CPU.
pub(crate) fn explained_in_the_lab() -> Explanation {
    let piece = |kind, name: &str, at_ns, ns, place: Option<&str>| Piece {
        kind,
        name: name.to_owned(),
        at_ns,
        ns,
        certainty: Certainty::Measured,
        place: place.map(str::to_owned),
    };
    let wakeup = |phase: &str, pieces: Vec<Piece>| LateWakeup {
        phase: phase.to_owned(),
        explained: Explained {
            tid: 0,
            name: "CPU 0".to_owned(),
            latency_ns: pieces.iter().map(|piece| piece.ns).sum(),
            cpu: 0,
            at_ns: 7 * MS,
            woken_by: None,
            is_lossy: false,
            pieces,
        },
        instructions: Paths {
            expiry_to_interrupt: Some(55),
            interrupt_to_wakeup: Some(368),
            wakeup_to_switch: Some(219_223),
            switch_to_user: None,
            user_to_clock: Some(39),
        },
        functions: vec![FunctionTime { name: "release_pages".to_owned(), ns: 132_100 }],
        stacks: [["do_syscall_64", "release_pages"], ["asm_sysvec", "hrtimer_wakeup"]]
            .map(|functions| StackTime {
                functions: functions.map(str::to_owned).into(),
                ns: 5_000,
            })
            .into(),
    };
    let place = "release_pages 132.1 us; up to __cond_resched in <tlb>";
    let held = vec![
        piece(Kind::ExpiryWork, "hrtimer_wakeup", 7 * MS, 4_000, None),
        piece(Kind::Blocking, "release_pages", 7 * MS + 4_000, 866_500, Some(place)),
        piece(Kind::Switching, "scheduler", 7 * MS + 870_500, 4_900, None),
    ];
    let idle = vec![piece(Kind::IdleExit, "exit from idle", 7 * MS, 20_000, None)];
    Explanation {
        format: explain_lab::FORMAT,
        version: "0.1.0".to_owned(),
        record: "lab/debian-stock-seed1".to_owned(),
        kernel: "6.1.0-56-amd64".to_owned(),
        is_preempt_rt: Some(false),
        emulator: "QEMU emulator version 7.2.22".to_owned(),
        shift: 2,
        equal_files: 13,
        is_whole: false,
        spikes: vec![wakeup("rest", idle), wakeup("disk", held)],
    }
}

/// A thread that waits for an interrupt, for a thread of a higher priority and for one of a lower one.
pub(crate) fn explained() -> ExplainRecord {
    let name = |text: &str| Name::new(text.as_bytes());
    let event = |at_ns: u64, tid: u32, what: What| Event {
        at_ns,
        cpu: 1,
        tid,
        in_interrupt: false,
        preempt_depth: 0,
        what,
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
        cpu: 1,
        switched_ns: 1_590_000,
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
    }
}
