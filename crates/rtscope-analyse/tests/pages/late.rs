//! Late activations for the pages that explain them.

use crate::kinds::MS;
use rtscope_analyse::{
    report::explain_lab::{self, Explanation},
    statistics::explain::{
        Certainty, Explained, Piece, PieceKind,
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
        spikes: vec![wakeup("rest", idle), wakeup("disk", held)],
    }
}
