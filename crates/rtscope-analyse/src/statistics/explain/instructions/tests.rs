//! Made-up streams of blocks of which everything is known.

use std::collections::HashMap;

use rtscope_model::instructions::{Block, Executed};

use super::*;

/// Functions of the made-up kernel: 0x1000 bytes each, from here on.
const KERNEL: u64 = 0xffff_ffff_8100_0000;

const FUNCTIONS: [&str; 24] = [
    "do_syscall_64",
    "release_pages",
    "free_page",
    "__cond_resched",
    "__schedule",
    "__switch_to_asm",
    "asm_sysvec_apic_timer_interrupt",
    "__hrtimer_run_queues",
    "hrtimer_wakeup",
    "try_to_wake_up",
    "__do_softirq",
    "rcu_core_si",
    "exit_to_user_mode",
    "asm_sysvec_reschedule_ipi",
    "vectors",
    "el0t_64_sync",
    "el1h_64_sync",
    "el1h_64_irq",
    "do_mem_abort",
    "hrtimer_interrupt",
    "__switch_to",
    "cpu_switch_to",
    "ret_to_user",
    "asm_common_interrupt",
];

const NOP: &[u8] = &[0x90];
const CALL: &[u8] = &[0xff, 0xd0];
const RETURN_BACK: &[u8] = &[0xc3];
/// Over the int3 that follows it.
const CALL_BEHIND_INT3: &[u8] = &[0xe8, 1, 0, 0, 0];
const IRET: &[u8] = &[0x48, 0xcf];
const SYSRET: &[u8] = &[0x48, 0x0f, 0x07];
const SYSCALL: &[u8] = &[0x0f, 0x05];
const RDTSC: &[u8] = &[0x0f, 0x31];
const HLT: &[u8] = &[0xf4];
const CLI: &[u8] = &[0xfa];
const STI: &[u8] = &[0xfb];

/// `%gs:COUNT` is the preempt count: `incl` and `decl` of it, and a write of what isn't known.
const COUNT: u64 = 0x1_fb40;
const INCL: &[u8] = &[0x65, 0xff, 0x04, 0x25, 0x40, 0xfb, 1, 0];
const DECL: &[u8] = &[0x65, 0xff, 0x0c, 0x25, 0x40, 0xfb, 1, 0];
const XCHG: &[u8] = &[0x65, 0x87, 0x04, 0x25, 0x40, 0xfb, 1, 0];

/// Of arm64.
const NOP_ARM64: [u8; 4] = 0xd503_201f_u32.to_le_bytes();
const BLR: &[u8] = &0xd63f_0060_u32.to_le_bytes();
const RET: &[u8] = &0xd65f_03c0_u32.to_le_bytes();
const ERET: &[u8] = &0xd69f_03e0_u32.to_le_bytes();
const SVC: &[u8] = &0xd400_0001_u32.to_le_bytes();
const MRS_CLOCK: &[u8] = &0xd53b_e041_u32.to_le_bytes();
const DAIFSET: &[u8] = &0xd503_43df_u32.to_le_bytes();
const DAIFCLR: &[u8] = &0xd503_43ff_u32.to_le_bytes();

/// A stream that is being made up.
#[derive(Default)]
struct Stream {
    is_arm64: bool,
    blocks: HashMap<u32, Block>,
    executed: Vec<Executed>,
    /// Instructions so far.
    count: u64,
}

fn symbols() -> KernelSymbols {
    let line =
        |(n, name): (usize, &&str)| format!("{:016x} T {name}\n", KERNEL + 0x1000 * n as u64);
    let text: String = FUNCTIONS.iter().enumerate().map(line).collect();
    let text = format!("{COUNT:016x} A __preempt_count\n{text}");
    KernelSymbols::parse(text).expect("symbols")
}

/// The address of an offset in a function; a program's where there is no such function.
fn address(function: &str, offset: u64) -> u64 {
    let at = FUNCTIONS.iter().position(|name| *name == function);
    at.map_or(0x40_0000, |n| KERNEL + 0x1000 * n as u64) + offset
}

impl Stream {
    /// Executes so many instructions in a function, from an offset in it: NOPs, and then this one.
    fn run(&mut self, function: &str, offset: u64, count: u64, last: &[u8]) -> &mut Stream {
        let nop = if self.is_arm64 { &NOP_ARM64 } else { NOP };
        let mut instructions = vec![nop.to_vec(); count as usize - 1];
        instructions.push(last.to_vec());
        let block = Block { address: address(function, offset), host: 0, instructions };
        let number = self.blocks.len() as u32;
        self.blocks.insert(number, block);
        self.executed.push(Executed { block: number, before: self.count });
        self.count += count;
        self
    }

    /// Explains a latency of so many nanoseconds, with 4 ns an instruction.
    fn explain(&self, latency_ns: u64) -> LateWakeup {
        let window = Window {
            latency_ns,
            expiry_ns: 1_000_000,
            mark: self.count,
            executed: self.executed.clone(),
        };
        let blocks = self.blocks.clone();
        let instructions = Instructions { blocks, windows: vec![window], is_whole: true };
        let symbols = symbols();
        let processor = if self.is_arm64 { Processor::Arm64 } else { Processor::X86 };
        let seen =
            WatchedGuest { instructions: &instructions, symbols: &symbols, processor, shift: 2 };
        let (phase, thread) = ("disk".to_owned(), "CPU 0".to_owned());
        let one = explain_window(
            &seen,
            &ChosenWakeup { phase, thread, window: &instructions.windows[0] },
        );
        assert!(!one.explained.is_lossy, "the instructions are whole");
        let sum: u64 = one.explained.pieces.iter().map(|piece| piece.ns).sum();
        assert_eq!(sum, latency_ns, "{:?}", one.explained.pieces);
        let mut at_ns = 1_000_000;
        for piece in &one.explained.pieces {
            assert_eq!(piece.at_ns, at_ns, "no gap: {:?}", one.explained.pieces);
            at_ns += piece.ns;
        }
        one
    }

    /// The timer's interrupt wakes the thread: 10 + 20 + 30 + 40 instructions in, and 4 times 5 out.
    fn timer_interrupt(&mut self) -> &mut Stream {
        self.run("asm_sysvec_apic_timer_interrupt", 0, 10, CALL)
            .run("__hrtimer_run_queues", 0, 20, CALL)
            .run("hrtimer_wakeup", 0, 30, CALL)
            .run("try_to_wake_up", 0, 40, RETURN_BACK)
            .run("hrtimer_wakeup", 31, 5, RETURN_BACK)
            .run("__hrtimer_run_queues", 21, 5, RETURN_BACK)
            .run("asm_sysvec_apic_timer_interrupt", 11, 5, IRET)
    }

    /// The scheduler switches, and the thread reads the clock: 50 + 10 + 60 + 70 instructions.
    fn switch(&mut self) -> &mut Stream {
        self.run("__schedule", 0, 50, CALL)
            .run("__switch_to_asm", 0, 3, CALL_BEHIND_INT3)
            .run("__switch_to_asm", 9, 3, CALL_BEHIND_INT3)
            .run("__switch_to_asm", 18, 4, RETURN_BACK)
            .run("__schedule", 51, 20, RETURN_BACK)
            .run("exit_to_user_mode", 7, 40, SYSRET)
            .run("program", 0, 70, RDTSC)
            .run("program", 71, 25, NOP)
    }
}

/// Kind, name and instructions of each piece.
fn shown(one: &LateWakeup) -> Vec<(PieceKind, &str, u64)> {
    let pieces = one.explained.pieces.iter();
    pieces.map(|piece| (piece.kind, piece.name.as_str(), piece.ns / 4)).collect()
}

/// A program's system call frees pages until it may be preempted.
fn freeing() -> Stream {
    let mut stream = Stream::default();
    stream
        .run("program", 0, 9, SYSCALL)
        .run("do_syscall_64", 0, 8, CALL)
        .run("release_pages", 0, 300, CALL)
        .run("free_page", 0, 17, NOP)
        .timer_interrupt()
        .run("free_page", 17, 200, RETURN_BACK)
        .run("release_pages", 301, 500, CALL)
        .run("__cond_resched", 0, 6, CALL)
        .switch();
    stream
}

#[test]
fn a_latency_is_cut_at_the_interrupt_the_wake_up_and_the_switch() {
    // From the interrupt on: 115 in it, 706 blocked, 50 + 10 + 60 + 70 to the clock.
    let one = freeing().explain((115 + 706 + 190) * 4);
    assert_eq!(
        shown(&one),
        [
            (PieceKind::ExpiryWork, "the interrupt itself", 30),
            (PieceKind::ExpiryWork, "hrtimer_wakeup", 75),
            (PieceKind::ExpiryWork, "the interrupt itself", 10),
            (PieceKind::Blocking, "release_pages", 706),
            (PieceKind::Switching, "scheduler", 50),
            (PieceKind::Switching, RETURN, 70),
            (PieceKind::Switching, "the thread reads the clock", 70),
        ]
    );
    let place = one.explained.pieces[3].place.as_deref().expect("a place");
    assert_eq!(
        place,
        "release_pages 2.0 us, free_page 0.8 us, __cond_resched 0.0 us; preemption was enabled for 2.8 us, but the kernel \
         didn't switch there; up to __cond_resched in release_pages"
    );
    assert_eq!(
        one.instructions,
        Paths {
            expiry_to_interrupt: Some(0),
            interrupt_to_wakeup: Some(60),
            wakeup_to_switch: Some(40 + 15 + 706 + 50),
            switch_to_user: Some(70),
            user_to_clock: Some(70),
        }
    );
    let deepest =
        one.stacks.iter().find(|stack| stack.functions.ends_with(&["free_page".to_owned()]));
    let functions = &deepest.expect("a stack").functions;
    assert_eq!(*functions, [USER, "do_syscall_64", "release_pages", "free_page"]);
    // The calls that fill the buffer of return addresses are no depth.
    let switch = |stack: &&StackTime| stack.functions.iter().any(|name| name == "__switch_to_asm");
    let depths: Vec<usize> =
        one.stacks.iter().filter(switch).map(|stack| stack.functions.len()).collect();
    assert_eq!(depths, [2], "{:?}", one.stacks);
    assert_eq!(one.functions[0], FunctionTime { name: "release_pages".to_owned(), ns: 2000 });
}

#[test]
fn what_is_left_of_a_division_belongs_to_the_first_piece() {
    let one = freeing().explain((115 + 706 + 190) * 4 + 3);
    assert_eq!(one.explained.pieces[0].ns, 30 * 4 + 3);
}

#[test]
fn a_late_interrupt_is_the_function_s_that_kept_interrupts_off() {
    let mut stream = Stream::default();
    stream
        .run("do_syscall_64", 0, 8, CALL)
        .run("release_pages", 0, 5, CLI)
        .run("release_pages", 5, 2000, CALL)
        .run("free_page", 0, 300, STI)
        .timer_interrupt()
        .run("free_page", 300, 200, CALL)
        .switch();
    let one = stream.explain((2300 + 115 + 200 + 190) * 4);
    let first = &one.explained.pieces[0];
    assert_eq!(
        (first.kind, first.name.as_str(), first.ns),
        (PieceKind::InterruptsOff, "release_pages", 9200)
    );
    assert!(first.place.as_deref().expect("a place").ends_with(
        "; disabled in release_pages (do_syscall_64), enabled again in free_page (release_pages)"
    ));
    assert_eq!(one.instructions.expiry_to_interrupt, Some(2300));
}

#[test]
fn an_interrupt_that_is_late_by_a_microsecond_came_with_the_timer_s_steps() {
    let first = |instructions: u64| {
        let mut stream = Stream::default();
        stream.run("release_pages", 0, instructions, NOP).timer_interrupt().switch();
        stream.explain((instructions + 115 + 190) * 4).explained.pieces.remove(0)
    };
    let steps = "steps of the hardware's timer";
    assert_eq!((first(250).kind, first(250).name.as_str()), (PieceKind::ExpiryWork, steps));
    assert_eq!(first(251).kind, PieceKind::InterruptsOff);
}

#[test]
fn a_cpu_that_waited_for_the_timer_executed_nothing_meanwhile() {
    let mut stream = Stream::default();
    stream.run("do_syscall_64", 0, 3000, HLT).timer_interrupt().switch();
    let one = stream.explain((115 + 190) * 4 + 220);
    let first = &one.explained.pieces[0];
    assert_eq!(
        (first.kind, first.ns, one.instructions.expiry_to_interrupt),
        (PieceKind::IdleExit, 220, Some(0))
    );
}

/// As [`freeing`], in a section without preemption, 317 instructions of which come before the interrupt. `first` is the
/// first instruction in the kernel.
fn locked(first: &[u8]) -> LateWakeup {
    let mut stream = Stream::default();
    stream
        .run("program", 0, 9, SYSCALL)
        .run("do_syscall_64", 0, 8, first)
        .run("do_syscall_64", 8, 3, CALL)
        .run("release_pages", 0, 20, INCL)
        .run("release_pages", 20, 300, CALL)
        .run("free_page", 0, 17, NOP)
        .timer_interrupt()
        .run("free_page", 17, 200, RETURN_BACK)
        .run("release_pages", 320, 500, DECL)
        .run("release_pages", 820, 6, CALL)
        .switch();
    stream.explain((115 + 706 + 190) * 4)
}

#[test]
fn a_blocking_piece_names_who_switched_preemption_off_and_on() {
    let of = |first| locked(first).explained.pieces[3].place.clone().expect("a place");
    // By hand: 317 before the interrupt, 115 in it, 700 after it, 4 ns each.
    let place = of(NOP);
    let section = "; preemption was disabled for 4.5 us, disabled in release_pages (do_syscall_64), enabled again in \
                   release_pages (do_syscall_64)";
    assert!(place.contains(section), "{place}");
    // A write of what isn't known before the section doesn't matter.
    assert!(of(XCHG).contains(section), "{}", of(XCHG));
    // Off already when the program entered the kernel: what was seen can't be all.
    let place = of(DECL);
    assert!(!place.contains("preemption"), "{place}");
}

#[test]
fn where_preemption_was_on_and_nothing_switched_the_longest_section_is_named() {
    let mut stream = Stream::default();
    stream
        .run("program", 0, 9, SYSCALL)
        .run("do_syscall_64", 0, 8, CALL)
        .timer_interrupt()
        .run("release_pages", 0, 20, INCL)
        .run("release_pages", 20, 100, DECL)
        .run("release_pages", 120, 300, INCL)
        .run("release_pages", 420, 50, DECL)
        .run("release_pages", 470, 6, CALL)
        .switch();
    let one = stream.explain((115 + 476 + 190) * 4);
    let place = one.explained.pieces[3].place.as_deref().expect("a place");
    // By hand: 20 + 300 + 6 instructions of 4 ns with preemption on, and 100 at once with it off.
    let expected = "; preemption was enabled for 1.3 us, but the kernel didn't switch there; it was disabled for at most 0.4 us at a \
                    stretch, disabled in release_pages (user space), enabled again in release_pages (user space); ";
    assert!(place.contains(expected), "{place}");
}

#[test]
fn softirqs_other_interrupts_and_other_threads_have_their_own_pieces() {
    let mut stream = Stream::default();
    stream
        .run("do_syscall_64", 0, 8, NOP)
        .run("asm_sysvec_apic_timer_interrupt", 0, 10, CALL)
        .run("hrtimer_wakeup", 0, 30, CALL)
        .run("try_to_wake_up", 0, 40, RETURN_BACK)
        .run("hrtimer_wakeup", 31, 5, RETURN_BACK)
        .run("asm_sysvec_apic_timer_interrupt", 11, 3, CALL)
        .run("__do_softirq", 0, 11, CALL)
        .run("rcu_core_si", 0, 400, RETURN_BACK)
        .run("__do_softirq", 12, 5, RETURN_BACK)
        .run("asm_sysvec_apic_timer_interrupt", 15, 5, IRET)
        .run("do_syscall_64", 8, 30, NOP)
        .run("asm_sysvec_reschedule_ipi", 0, 90, IRET)
        .run("do_syscall_64", 38, 1, NOP)
        .run("asm_common_interrupt", 0, 70, IRET)
        .run("do_syscall_64", 39, 1, CALL)
        .run("__schedule", 0, 50, CALL)
        .run("__switch_to_asm", 0, 10, RETURN_BACK)
        .run("__schedule", 51, 20, RETURN_BACK)
        .run("release_pages", 40, 600, CALL)
        .switch();
    let one = stream.explain((10 + 30 + 40 + 5 + 3 + 416 + 5 + 30 + 90 + 72 + 80 + 600 + 190) * 4);
    let has = |kind: PieceKind, name: &str, count: u64| {
        let found = shown(&one).into_iter().any(|piece| piece == (kind, name, count));
        assert!(found, "{kind:?} {name} {count}: {:?}", shown(&one));
    };
    has(PieceKind::Softirq, "softirq RCU", 400);
    has(PieceKind::Interrupt, "reschedule_ipi", 90);
    has(PieceKind::Interrupt, DEVICE, 70);
    has(PieceKind::Interference, "release_pages", 600);
    // The scheduler's first way, and the second one.
    has(PieceKind::Blocking, "do_syscall_64", 30);
}

/// PREEMPT_RT runs softirqs in threads, where the timer's interrupt waits for what switched interrupts off in them.
#[test]
fn a_softirq_in_a_thread_keeps_interrupts_off_and_is_preempted() {
    let mut stream = Stream::default();
    stream
        .run("__do_softirq", 0, 11, CALL)
        .run("release_pages", 40, 600, RETURN_BACK)
        .run("asm_sysvec_apic_timer_interrupt", 0, 10, CALL)
        .run("hrtimer_wakeup", 0, 30, CALL)
        .run("try_to_wake_up", 0, 40, RETURN_BACK)
        .run("hrtimer_wakeup", 31, 5, RETURN_BACK)
        .run("asm_sysvec_apic_timer_interrupt", 11, 3, IRET)
        .run("__do_softirq", 12, 20, CALL)
        .switch();
    let one = stream.explain((600 + 10 + 30 + 40 + 5 + 3 + 20 + 190) * 4);
    let has = |kind: PieceKind, name: &str, count: u64| {
        let found = shown(&one).into_iter().any(|piece| piece == (kind, name, count));
        assert!(found, "{kind:?} {name} {count}: {:?}", shown(&one));
    };
    has(PieceKind::InterruptsOff, "release_pages", 600);
    has(PieceKind::Softirq, "softirqs", 20);
    has(PieceKind::Switching, "scheduler", 50);
}

#[test]
fn a_block_that_a_fault_or_a_device_cut_counts_what_was_done() {
    let mut stream = freeing();
    let whole = stream.executed.len();
    // The emulator cut the block of 500 instructions before its 400th, which it executed in a block of its own.
    let at =
        stream.executed.iter().position(|one| stream.blocks[&one.block].instructions.len() == 500);
    let at = at.expect("the block");
    let single = Block {
        address: address("release_pages", 301 + 399),
        host: 0,
        instructions: vec![NOP.to_vec()],
    };
    let rest = Block {
        address: address("release_pages", 301 + 400),
        host: 0,
        instructions: stream.blocks[&stream.executed[at].block].instructions[400..].to_vec(),
    };
    let before = stream.executed[at].before;
    for (n, block, begun) in [(1000, single, 400), (1001, rest, 401)] {
        stream.blocks.insert(n, block);
        stream
            .executed
            .insert(at + 1 + (n - 1000) as usize, Executed { block: n, before: before + begun });
    }
    for later in &mut stream.executed[at + 3..] {
        later.before += 1;
    }
    stream.count += 1;
    assert_eq!(stream.executed.len(), whole + 2);
    let one = stream.explain((115 + 706 + 190) * 4);
    assert!(
        shown(&one).contains(&(PieceKind::Blocking, "release_pages", 706)),
        "{:?}",
        shown(&one)
    );
}

/// As [`Stream::timer_interrupt`], with the table of vectors before it: 3 + 10 + 5 + 20 + 30 + 40 in, 19 out.
fn timer_interrupt_arm64(stream: &mut Stream) -> &mut Stream {
    stream
        .run("vectors", 0x280, 3, &NOP_ARM64)
        .run("el1h_64_irq", 0, 10, BLR)
        .run("hrtimer_interrupt", 0, 5, BLR)
        .run("__hrtimer_run_queues", 0, 20, BLR)
        .run("hrtimer_wakeup", 0, 30, BLR)
        .run("try_to_wake_up", 0, 40, RET)
        .run("hrtimer_wakeup", 4 * 30, 5, RET)
        .run("__hrtimer_run_queues", 4 * 20, 5, RET)
        .run("hrtimer_interrupt", 4 * 5, 4, RET)
        .run("el1h_64_irq", 4 * 10, 5, ERET)
}

/// As [`Stream::switch`]: 55 instructions to the switch, 75 to user space, 70 to the clock.
fn switch_arm64(stream: &mut Stream) -> &mut Stream {
    stream
        .run("__schedule", 0, 50, BLR)
        .run("__switch_to", 0, 5, BLR)
        .run("cpu_switch_to", 0, 10, RET)
        .run("__switch_to", 4 * 5, 5, RET)
        .run("__schedule", 4 * 50, 20, RET)
        .run("ret_to_user", 0, 40, ERET)
        .run("program", 0, 70, MRS_CLOCK)
        .run("program", 4 * 70, 25, &NOP_ARM64)
}

#[test]
fn a_latency_of_arm64_is_cut_at_its_own_entries_and_its_own_switch() {
    let mut stream = Stream { is_arm64: true, ..Stream::default() };
    stream
        .run("program", 0, 9, SVC)
        .run("vectors", 0x400, 3, &NOP_ARM64)
        .run("el0t_64_sync", 0, 10, BLR)
        .run("do_syscall_64", 0, 8, BLR)
        .run("release_pages", 0, 300, &NOP_ARM64);
    timer_interrupt_arm64(&mut stream).run("release_pages", 4 * 300, 500, BLR).run(
        "__cond_resched",
        0,
        6,
        BLR,
    );
    let one = switch_arm64(&mut stream).explain((127 + 506 + 55 + 75 + 70) * 4);
    assert_eq!(
        shown(&one),
        [
            (PieceKind::ExpiryWork, "the interrupt itself", 38),
            (PieceKind::ExpiryWork, "hrtimer_wakeup", 75),
            (PieceKind::ExpiryWork, "the interrupt itself", 14),
            (PieceKind::Blocking, "release_pages", 506),
            (PieceKind::Switching, "scheduler", 55),
            (PieceKind::Switching, RETURN, 75),
            (PieceKind::Switching, "the thread reads the clock", 70),
        ]
    );
    let place = one.explained.pieces[3].place.as_deref().expect("a place");
    assert!(place.ends_with("; up to __cond_resched in release_pages"), "{place}");
    assert!(!place.contains("preemption"), "its count isn't followed: {place}");
    assert_eq!(
        one.instructions,
        Paths {
            expiry_to_interrupt: Some(0),
            interrupt_to_wakeup: Some(68),
            wakeup_to_switch: Some(40 + 19 + 506 + 55),
            switch_to_user: Some(75),
            user_to_clock: Some(70),
        }
    );
    // The system call is the outermost frame, and no interrupt.
    let inner = |stack: &&StackTime| stack.functions.ends_with(&["release_pages".to_owned()]);
    let stack = one.stacks.iter().find(inner).expect("a stack");
    assert_eq!(stack.functions, [USER, "el0t_64_sync", "do_syscall_64", "release_pages"]);
}

#[test]
fn on_arm64_a_fault_is_what_the_code_caused_and_interrupts_off_have_their_functions() {
    let mut stream = Stream { is_arm64: true, ..Stream::default() };
    stream
        .run("program", 0, 9, SVC)
        .run("vectors", 0x400, 3, &NOP_ARM64)
        .run("el0t_64_sync", 0, 10, BLR)
        .run("do_syscall_64", 0, 8, DAIFSET)
        .run("do_syscall_64", 4 * 8, 1000, &NOP_ARM64)
        .run("vectors", 0x200, 3, &NOP_ARM64)
        .run("el1h_64_sync", 0, 10, BLR)
        .run("do_mem_abort", 0, 100, RET)
        .run("el1h_64_sync", 4 * 10, 5, ERET)
        .run("do_syscall_64", 4 * 1008, 300, BLR)
        .run("release_pages", 0, 12, DAIFCLR);
    timer_interrupt_arm64(&mut stream).run("release_pages", 4 * 12, 500, BLR);
    let one = switch_arm64(&mut stream).explain((1430 + 127 + 500 + 55 + 75 + 70) * 4);
    let first = &one.explained.pieces[0];
    assert_eq!(
        (first.kind, first.name.as_str(), first.ns),
        (PieceKind::InterruptsOff, "do_syscall_64", 1430 * 4)
    );
    let place = first.place.as_deref().expect("a place");
    let expected = "; disabled in do_syscall_64 (el0t_64_sync), enabled again in release_pages (do_syscall_64)";
    assert!(place.ends_with(expected), "{place}");
}

#[test]
fn the_parts_of_a_path_are_in_the_order_of_time() {
    let paths = Paths {
        expiry_to_interrupt: Some(1),
        interrupt_to_wakeup: Some(2),
        wakeup_to_switch: Some(3),
        switch_to_user: Some(4),
        user_to_clock: Some(5),
    };
    assert_eq!(paths.parts(), [1, 2, 3, 4, 5].map(Some));
}

#[test]
fn a_processor_without_a_preempt_count_has_no_function_that_changes_it() {
    // add w1, w1, #1: it would change a count elsewhere.
    let add = 0x1100_0421_u32.to_le_bytes();
    assert_eq!(Processor::Arm64.second_argument(&add), None);
    assert!(Processor::Arm64.changes_count(KERNEL, &add, 0).is_none());
}
