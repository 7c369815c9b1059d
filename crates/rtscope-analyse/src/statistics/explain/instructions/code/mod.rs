//! What an instruction does with the flow of control, interrupts and the preempt count, by its bytes.

mod arm64;
mod x86;

use rtscope_model::symbols::KernelSymbols;

/// The processor whose instructions are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Processor {
    X86,
    Arm64,
}

/// Where control goes after an instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Flow {
    /// To the next instruction, or by a jump.
    On,
    /// Into a function; its address where the instruction has it.
    Call(Option<u64>),
    /// Out of a function.
    Return,
    /// Out of an interrupt, or on arm64 of any exception.
    InterruptReturn,
    /// From a program into the kernel.
    SystemCall,
    /// From the kernel into a program.
    SystemReturn,
}

/// What an instruction does to the preempt count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CountChange {
    /// Adds a number.
    By(i64),
    /// Adds a register that is made from the function's second argument.
    ByArgument,
    /// Writes what isn't known.
    Other,
}

impl Processor {
    /// By the kernel's own name of the architecture; none of one whose instructions aren't read.
    #[must_use]
    pub fn of(arch: &str) -> Option<Processor> {
        match arch {
            "x86_64" => Some(Processor::X86),
            "arm64" => Some(Processor::Arm64),
            _ => None,
        }
    }

    /// Where control goes after the instruction at an address.
    pub(super) fn flow(self, address: u64, bytes: &[u8]) -> Flow {
        match self {
            Processor::X86 => x86::flow(address, bytes),
            Processor::Arm64 => arm64::flow(address, bytes),
        }
    }

    /// Whether an instruction reads the counter that the clock is made from.
    pub(super) fn reads_clock(self, bytes: &[u8]) -> bool {
        match self {
            Processor::X86 => x86::reads_clock(bytes),
            Processor::Arm64 => arm64::reads_clock(bytes),
        }
    }

    /// Whether an instruction waits for an interrupt.
    pub(super) fn halts(self, bytes: &[u8]) -> bool {
        match self {
            Processor::X86 => x86::halts(bytes),
            Processor::Arm64 => arm64::halts(bytes),
        }
    }

    /// Whether an instruction switches interrupts off (true) or on (false), where that can be seen.
    pub(super) fn masks_interrupts(self, bytes: &[u8]) -> Option<bool> {
        match self {
            Processor::X86 => x86::masks_interrupts(bytes),
            Processor::Arm64 => arm64::masks_interrupts(bytes),
        }
    }

    /// Where the preempt count is, from the beginning of the CPU's variables. On arm64 it belongs to the thread, and no
    /// symbol says where.
    pub(super) fn preempt_count(self, symbols: &KernelSymbols) -> Option<u64> {
        match self {
            Processor::X86 => symbols.preempt_count(),
            Processor::Arm64 => None,
        }
    }

    /// How the instruction at an address changes the preempt count at an offset.
    pub(super) fn changes_count(
        self,
        address: u64,
        bytes: &[u8],
        offset: u64,
    ) -> Option<CountChange> {
        match self {
            Processor::X86 => x86::changes_count(address, bytes, offset),
            Processor::Arm64 => None,
        }
    }

    /// The number that an instruction passes as a function's second argument.
    pub(super) fn second_argument(self, bytes: &[u8]) -> Option<i64> {
        match self {
            Processor::X86 => x86::second_argument(bytes),
            Processor::Arm64 => None,
        }
    }
}
