//! Executed blocks as calls of functions: a stack that calls, returns, interrupts and their ends build.
//!
//! What was called before the blocks begin isn't known, so the stack may lack its outermost functions. Nor is the stack
//! known of a thread that the kernel switches to.

use std::collections::HashMap;

use rtscope_model::{
    instructions::{Block, Instructions, Window},
    symbols::KernelSymbols,
};

use super::{
    code::{CountChange, Flow, Processor},
    preempt_count::Change,
};

/// Addresses below it are a program's.
const KERNEL: u64 = 1 << 63;

/// What code of a program is called.
pub(super) const USER: &str = "user space";

/// Deeper calls are not followed.
const DEPTH_MAX: usize = 256;

/// The functions that change from one thread's stack to another's, on x86-64 and arm64.
pub(super) const SWITCHES: [&str; 2] = ["__switch_to_asm", "cpu_switch_to"];

/// What the kernel of x86-64 enters by before the interrupt's own entry.
const STUB: &str = "irq_entries_start";

/// Tables of vectors by which the kernel of arm64 enters, each of [`TABLE`] bytes.
const TABLES: [&str; 3] = ["vectors", "tramp_vectors", "__bp_harden_el1_vectors"];
const TABLE: u64 = 0x800;

/// Entries of arm64 in the order of a table's vectors, each of [`VECTOR`] bytes: Arm Architecture Reference Manual,
/// D1.3; `arch/arm64/kernel/entry.S`.
const ENTRIES: [&str; 16] = [
    "el1t_64_sync",
    "el1t_64_irq",
    "el1t_64_fiq",
    "el1t_64_error",
    "el1h_64_sync",
    "el1h_64_irq",
    "el1h_64_fiq",
    "el1h_64_error",
    "el0t_64_sync",
    "el0t_64_irq",
    "el0t_64_fiq",
    "el0t_64_error",
    "el0t_32_sync",
    "el0t_32_irq",
    "el0t_32_fiq",
    "el0t_32_error",
];
const VECTOR: u64 = 0x80;

/// How the entries end by which arm64 enters because of what the code itself caused.
const SYNCHRONOUS: &str = "_sync";

/// How the entries of exceptions begin on x86-64.
const FAULTS: &str = "asm_exc_";

/// A function in a stack: an index of [`Walk::nodes`]. The first one stands for nothing.
pub(super) type NodeId = usize;

/// A function as another one called it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Node {
    pub(super) parent: NodeId,
    pub(super) function: String,
    /// Whether an interrupt called it.
    pub(super) is_interrupt: bool,
}

/// Instructions that were executed one after the other in one function.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Run {
    /// Instructions before it.
    pub(super) at: u64,
    pub(super) count: u64,
    pub(super) node: NodeId,
    /// Whether it begins with the function's first instruction.
    pub(super) enters: bool,
    /// Where the innermost interrupt began.
    pub(super) interrupt_at: Option<u64>,
    /// Where a reading of the clock, and a wait for an interrupt, ended.
    pub(super) clock_at: Option<u64>,
    pub(super) halt_at: Option<u64>,
    /// Whether interrupts are off at its end, where it switches them.
    pub(super) masks: Option<bool>,
}

/// What was executed before a late wake-up.
#[derive(Clone, Debug)]
pub(super) struct Walk {
    pub(super) nodes: Vec<Node>,
    pub(super) runs: Vec<Run>,
    /// Changes of the preempt count; none where the kernel has no symbol of it.
    pub(super) counts: Option<Vec<Change>>,
    /// Instructions from the beginning to the mark.
    pub(super) end: u64,
}

/// A block that was executed, with what is known of it.
struct Facts {
    function: String,
    /// Its address is the function's.
    is_start: bool,
    is_entry: bool,
    /// Whether it enters by what the code itself caused.
    is_fault: bool,
    is_user: bool,
    address: u64,
    /// Behind its last instruction.
    next: u64,
    flow: Flow,
    /// Changes of the preempt count, by the number of their instruction.
    counts: Vec<(u64, CountChange)>,
    /// The last second argument of a function that it sets.
    argument: Option<i64>,
}

struct Frame {
    node: NodeId,
    /// Where a call goes on; 0 where that isn't known.
    returns_to: u64,
    interrupt_at: Option<u64>,
}

struct Walker {
    processor: Processor,
    nodes: Vec<Node>,
    known: HashMap<Node, NodeId>,
    stack: Vec<Frame>,
}

/// Follows the blocks of a wake-up.
pub(super) fn walk(
    all: &Instructions,
    window: &Window,
    symbols: &KernelSymbols,
    processor: Processor,
) -> Walk {
    let root = Node { parent: 0, function: String::new(), is_interrupt: false };
    let (known, stack) = (HashMap::new(), Vec::new());
    let mut walker = Walker { processor, nodes: vec![root], known, stack };
    let mut facts: HashMap<u32, Facts> = HashMap::new();
    for executed in &window.executed {
        let block = &all.blocks[&executed.block];
        facts.entry(executed.block).or_insert_with(|| Facts::of(block, symbols, processor));
    }
    let (mut runs, mut at) = (Vec::with_capacity(window.executed.len()), 0);
    let (mut counts, mut argument) = (Vec::new(), None);
    let mut before: Option<(&Facts, bool)> = None;
    for (n, executed) in window.executed.iter().enumerate() {
        let (block, now) = (&all.blocks[&executed.block], &facts[&executed.block]);
        let next = window.executed.get(n + 1);
        let begun = next.map_or(window.mark, |next| next.before) - executed.before;
        let length = block.instructions.len() as u64;
        let count = finished(block, begun.min(length), next.map(|next| &facts[&next.block]));
        walker.enter(before, now, at);
        runs.push(walker.run(block, now, (at, count)));
        argument = now.argument.or(argument);
        let done = now.counts.iter().take_while(|(n, _)| *n < count);
        let place = |n: u64| (at + n + 1, walker.top(), now.function.as_str());
        counts.extend(done.map(|(n, change)| Change::new(place(*n), *change, argument)));
        before = Some((now, count == length));
        at += count;
    }
    let counts = processor.preempt_count(symbols).map(|_| counts);
    Walk { nodes: walker.nodes, runs, counts, end: at }
}

/// How many instructions of a block were executed to their end. The emulator begins the last one anew in a block of
/// its own when it accesses a device, and the kernel does after a page fault.
fn finished(block: &Block, begun: u64, next: Option<&Facts>) -> u64 {
    let Some(next) = next.filter(|_| begun > 0 && begun < block.instructions.len() as u64) else {
        return begun;
    };
    let done = &block.instructions[..begun as usize - 1];
    let last = block.address + done.iter().map(|bytes| bytes.len() as u64).sum::<u64>();
    if next.address == last || next.is_fault { begun - 1 } else { begun }
}

/// Whether an entry is that of an exception.
fn is_fault(entry: &str) -> bool {
    entry.starts_with(FAULTS) || ENTRIES.contains(&entry) && entry.ends_with(SYNCHRONOUS)
}

impl Facts {
    fn of(block: &Block, symbols: &KernelSymbols, processor: Processor) -> Facts {
        let address = block.address;
        let is_user = address < KERNEL;
        let place = symbols.place(address).filter(|_| !is_user);
        let length: usize = block.instructions.iter().map(Vec::len).sum();
        let next = address.wrapping_add(length as u64);
        let last = block.instructions.last().map_or(&[][..], Vec::as_slice);
        let offset = place.map_or(0, |(_, start)| address - start);
        let is_table = place.is_some_and(|(name, _)| TABLES.contains(&name));
        let function = match place {
            _ if is_table => ENTRIES[(offset % TABLE / VECTOR) as usize].to_owned(),
            Some((name, _)) => name.to_owned(),
            None if is_user => USER.to_owned(),
            None => format!("{address:#x}"),
        };
        let is_start = place.is_some() && offset == 0;
        let is_own_entry = is_table || is_start && ENTRIES.contains(&function.as_str());
        let is_entry = is_own_entry || function == STUB || is_start && symbols.is_entry(address);
        let count_at = processor.preempt_count(symbols).filter(|_| !is_user);
        let mut backwards = block.instructions.iter().rev();
        Facts {
            counts: count_at.map_or_else(Vec::new, |at| count_changes(block, at, processor)),
            argument: backwards.find_map(|bytes| processor.second_argument(bytes)),
            is_fault: is_entry && is_fault(&function),
            is_entry,
            is_start,
            is_user,
            address,
            next,
            flow: processor.flow(next.wrapping_sub(last.len() as u64), last),
            function,
        }
    }
}

/// The instructions of a block that change the preempt count at an offset.
fn count_changes(block: &Block, offset: u64, processor: Processor) -> Vec<(u64, CountChange)> {
    let (mut all, mut address) = (Vec::new(), block.address);
    for (n, bytes) in (0..).zip(&block.instructions) {
        let change = processor.changes_count(address, bytes, offset);
        all.extend(change.map(|change| (n, change)));
        address = address.wrapping_add(bytes.len() as u64);
    }
    all
}

impl Walker {
    fn node(&mut self, parent: NodeId, function: &str, is_interrupt: bool) -> NodeId {
        let node = Node { parent, function: function.to_owned(), is_interrupt };
        if let Some(known) = self.known.get(&node) {
            return *known;
        }
        self.nodes.push(node.clone());
        self.known.insert(node, self.nodes.len() - 1);
        self.nodes.len() - 1
    }

    fn top(&self) -> NodeId {
        self.stack.last().map_or(0, |frame| frame.node)
    }

    fn push(&mut self, function: &str, returns_to: u64, interrupt_at: Option<u64>) {
        if self.stack.len() == DEPTH_MAX {
            self.stack.clear();
        }
        let node = self.node(self.top(), function, interrupt_at.is_some());
        self.stack.push(Frame { node, returns_to, interrupt_at });
    }

    /// Goes from one block to the next. `before` is the one before and whether it was executed to its end.
    fn enter(&mut self, before: Option<(&Facts, bool)>, now: &Facts, at: u64) {
        let flow = before.filter(|(_, whole)| *whole).map_or(Flow::On, |(facts, _)| facts.flow);
        let next = before.map_or(0, |(facts, _)| facts.next);
        let is_called = matches!(flow, Flow::Call(Some(target)) if target == now.address);
        let is_entered = now.is_entry && self.is_stub_of(now);
        let is_interrupted = now.is_entry && !is_called && !is_entered && flow != Flow::SystemCall;
        // From one stub to the next the kernel may also jump by a return.
        let flow = if is_entered { Flow::On } else { flow };
        // The switch fills the CPU's buffer of return addresses: calls to its own next instructions, without returns.
        let is_switch = SWITCHES.contains(&now.function.as_str());
        let is_filling = is_switch && !now.is_start;
        match flow {
            Flow::Call(_) if is_filling => {}
            Flow::Call(_) if !is_interrupted => self.push(&now.function, next, None),
            Flow::Return if is_interrupted => drop(self.stack.pop()),
            Flow::Return => self.leave(now),
            Flow::InterruptReturn => self.end_interrupt(),
            Flow::SystemCall if !now.is_user => self.push(&now.function, next, None),
            Flow::SystemReturn => self.stack.clear(),
            _ => {}
        }
        if is_interrupted {
            self.push(&now.function, 0, Some(at));
        } else if now.is_user && self.nodes[self.top()].function != USER {
            self.stack.clear();
            self.push(USER, 0, None);
        } else {
            self.correct(now);
        }
        if now.is_start && is_switch {
            self.forget_callers();
        }
    }

    /// Whether the interrupt that this block enters has begun already, at a stub that only jumps here.
    fn is_stub_of(&self, now: &Facts) -> bool {
        let top = &self.nodes[self.top()];
        top.function == now.function || top.is_interrupt && top.function == STUB
    }

    /// Returns to a caller. Code that returns to a function's beginning jumps there (a return trampoline).
    fn leave(&mut self, now: &Facts) {
        let since = self.stack.iter().rposition(|frame| frame.interrupt_at.is_some()).unwrap_or(0);
        let found = self.stack[since..].iter().rposition(|frame| frame.returns_to == now.address);
        match found {
            Some(depth) => self.stack.truncate(since + depth),
            None => drop(self.stack.pop()),
        }
    }

    fn end_interrupt(&mut self) {
        match self.stack.iter().rposition(|frame| frame.interrupt_at.is_some()) {
            Some(depth) => self.stack.truncate(depth),
            None => self.stack.clear(),
        }
    }

    /// Makes the innermost function the one that is executed: after a jump into another one, or where the stack
    /// wasn't known. What an interrupt called keeps its name.
    fn correct(&mut self, now: &Facts) {
        let Some(top) = self.stack.last() else { return self.push(&now.function, 0, None) };
        let node = &self.nodes[top.node];
        if node.function == now.function || node.is_interrupt && !now.is_entry {
            return;
        }
        let (parent, is_interrupt) = (node.parent, node.is_interrupt);
        let node = self.node(parent, &now.function, is_interrupt);
        if let Some(top) = self.stack.last_mut() {
            top.node = node;
        }
    }

    /// The stack is another thread's now: only the scheduler's own functions are the same in both.
    fn forget_callers(&mut self) {
        let is_scheduler = |frame: &Frame| self.nodes[frame.node].function == "__schedule";
        let scheduler = self.stack.iter().rposition(is_scheduler);
        let kept = scheduler.unwrap_or(self.stack.len().saturating_sub(2));
        let kept = self.stack.split_off(kept);
        self.stack.clear();
        for frame in kept {
            let function = self.nodes[frame.node].function.clone();
            self.push(&function, frame.returns_to, None);
        }
    }

    fn run(&self, block: &Block, now: &Facts, (at, count): (u64, u64)) -> Run {
        let done = block.instructions.iter().take(count as usize);
        let processor = self.processor;
        let last = |is_meant: fn(Processor, &[u8]) -> bool| {
            let found = done.clone().rposition(|bytes| is_meant(processor, bytes));
            found.map(|n| at + n as u64 + 1)
        };
        let clock_at = if now.is_user { last(Processor::reads_clock) } else { None };
        Run {
            at,
            count,
            node: self.top(),
            enters: now.is_start,
            interrupt_at: self.stack.iter().rev().find_map(|frame| frame.interrupt_at),
            clock_at,
            halt_at: last(Processor::halts),
            masks: done.filter_map(|bytes| processor.masks_interrupts(bytes)).next_back(),
        }
    }
}

impl Walk {
    /// A node and its callers, the innermost first.
    pub(super) fn callers(&self, node: NodeId) -> impl Iterator<Item = NodeId> {
        std::iter::successors(Some(node).filter(|node| *node != 0), |node| {
            Some(self.nodes[*node].parent).filter(|parent| *parent != 0)
        })
    }

    /// The function of a node.
    pub(super) fn function(&self, node: NodeId) -> &str {
        &self.nodes[node].function
    }

    /// Functions up to the innermost interrupt, which is among them.
    pub(super) fn context(&self, node: NodeId) -> Vec<NodeId> {
        let mut all = Vec::new();
        for caller in self.callers(node) {
            all.push(caller);
            if self.nodes[caller].is_interrupt && !self.is_fault(caller) {
                break;
            }
        }
        all
    }

    /// Whether an interrupt is an exception: what the code itself caused.
    pub(super) fn is_fault(&self, node: NodeId) -> bool {
        self.nodes[node].is_interrupt && is_fault(self.function(node))
    }
}
