//! Late activations for the pages that explain them.

use crate::kinds::MS;
use rtscope_analyse::{
    report::{
        compare_lab,
        explain_lab::{self, Explanation},
        worst_lab::{self, AimedRun, FoundWakeup, SearchSide, WorstSearch},
    },
    statistics::explain::{
        Certainty, Explained, Piece, PieceKind,
        agreement::{Agreement, ComparedWakeup, KindTimes},
        instructions::{FunctionTime, LateWakeup, Paths, StackTime},
    },
};

/// A wake-up that a thread's system call held up, and one of an idle CPU.
pub(crate) fn explained_in_the_lab() -> Explanation {
    let piece = |kind, name: &str, at_ns, ns, place: Option<&str>| Piece {
        kind,
        name: name.to_owned(),
        at_ns,
        ns,
        certainty: Certainty::Measured,
        why: "the emulator recorded the instructions that the guest executed",
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
            wakers: Vec::new(),
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
        piece(PieceKind::ExpiryWork, "hrtimer_wakeup", 7 * MS, 4_000, None),
        piece(PieceKind::Blocking, "release_pages", 7 * MS + 4_000, 866_500, Some(place)),
        piece(PieceKind::Switching, "scheduler", 7 * MS + 870_500, 4_900, None),
    ];
    let idle = vec![piece(PieceKind::IdleExit, "exit from idle", 7 * MS, 20_000, None)];
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
        events: Some(disagreement()),
        spikes: vec![wakeup("rest", idle), wakeup("disk", held)],
    }
}

/// The events of the system call's wake-up say something else.
fn disagreement() -> Agreement {
    let kind =
        KindTimes { kind: PieceKind::Blocking, by_instructions_ns: 866_500, by_events_ns: 810_000 };
    let one = ComparedWakeup {
        phase: "disk".to_owned(),
        at_ns: 7 * MS,
        until_end_ns: 870_500,
        kinds: vec![kind],
        names: Vec::new(),
        agrees: false,
    };
    Agreement { compared: vec![one], without_events: 1 }
}

/// The same guest with two kernels.
pub(crate) fn compared_in_the_lab() -> String {
    let first = explained_in_the_lab();
    let mut second = explained_in_the_lab();
    second.kernel = "6.1.0-56-rt-amd64".to_owned();
    second.spikes.iter_mut().for_each(|one| {
        one.explained.pieces.truncate(1);
        one.instructions.interrupt_to_wakeup = Some(568);
    });
    let all = compare_lab::compare(&first, &second).expect("common phases");
    compare_lab::page(&all, [&first, &second])
}

/// A search that found more than periodic sampling.
pub(crate) fn searched_in_the_lab() -> String {
    let found = |latency_ns, aim_ns| FoundWakeup {
        latency_ns,
        phase: "disk".to_owned(),
        seed: 2,
        aim_ns,
        at_ns: 2_812_429_888,
        record: "lab/<worst>".to_owned(),
    };
    let side = |worst| SearchSide {
        guests: 8,
        failed: 0,
        wakeups: 48_000,
        took_ns: 71_362_268_116,
        worst: Some(worst),
    };
    let aim = |promised_ns, latency_ns| AimedRun {
        seed: 2,
        aim_ns: 10_487_950_731,
        promised_ns,
        latency_ns,
    };
    let explained = explained_in_the_lab();
    let all = WorstSearch {
        format: worst_lab::FORMAT,
        version: "0".to_owned(),
        kernel: "debian-stock".to_owned(),
        plan: "lab-quick".to_owned(),
        budget_ns: 80_000_000_000,
        shift: 2,
        search: side(found(919_348, Some(10_487_950_731))),
        periodic: side(found(888_591, None)),
        aims: vec![aim(Some(912_280), Some(919_348)), aim(None, None)],
        cause: worst_lab::cause_of(&explained),
        not_explained: None,
    };
    let text = worst_lab::table(&all);
    assert!(text.contains("919.3 us late under disk; periodic sampling found 888.6 us"), "{text}");
    worst_lab::page(&all, Some(&explained))
}
