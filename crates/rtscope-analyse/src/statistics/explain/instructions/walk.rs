//! Executed blocks as calls of functions: a stack that calls, returns, interrupts and their ends build.
//!
//! What was called before the blocks begin isn't known, so the stack may lack its outermost functions. Nor is the stack
//! known of a thread that the kernel switches to.

use std::collections::HashMap;

use rtscope_model::{
    instructions::{Block, Instructions, Window},
    symbols::KernelSymbols,
};

use super::code::{self, Flow};

/// Addresses below it are a program's.
const KERNEL: u64 = 1 << 63;

/// What code of a program is called.
pub(super) const USER: &str = "user space";

/// Deeper calls are not followed.
const DEPTH_MAX: usize = 256;

/// The function that changes from one thread's stack to another's.
pub(super) const SWITCH: &str = "__switch_to_asm";

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
    /// Instructions from the beginning to the mark.
    pub(super) end: u64,
}

/// A block that was executed, with what is known of it.
struct Facts {
    function: String,
    /// Its address is the function's.
    is_start: bool,
    is_entry: bool,
    is_user: bool,
    address: u64,
    /// Behind its last instruction.
    next: u64,
    flow: Flow,
}

struct Frame {
    node: NodeId,
    /// Where a call goes on; 0 where that isn't known.
    returns_to: u64,
    interrupt_at: Option<u64>,
}

struct Walker {
    nodes: Vec<Node>,
    known: HashMap<Node, NodeId>,
    stack: Vec<Frame>,
}

/// Follows the blocks of a wake-up.
pub(super) fn walk(all: &Instructions, window: &Window, symbols: &KernelSymbols) -> Walk {
    let root = Node { parent: 0, function: String::new(), is_interrupt: false };
    let mut walker = Walker { nodes: vec![root], known: HashMap::new(), stack: Vec::new() };
    let mut facts: HashMap<u32, Facts> = HashMap::new();
    for executed in &window.executed {
        let block = &all.blocks[&executed.block];
        facts.entry(executed.block).or_insert_with(|| Facts::of(block, symbols));
    }
    let (mut runs, mut at) = (Vec::with_capacity(window.executed.len()), 0);
    let mut before: Option<(&Facts, bool)> = None;
    for (n, executed) in window.executed.iter().enumerate() {
        let (block, now) = (&all.blocks[&executed.block], &facts[&executed.block]);
        let next = window.executed.get(n + 1);
        let begun = next.map_or(window.mark, |next| next.before) - executed.before;
        let length = block.instructions.len() as u64;
        let count = finished(block, begun.min(length), next.map(|next| &facts[&next.block]));
        walker.enter(before, now, at);
        runs.push(walker.run(block, now, (at, count)));
        before = Some((now, count == length));
        at += count;
    }
    Walk { nodes: walker.nodes, runs, end: at }
}

/// How many instructions of a block were executed to their end. The emulator begins the last one anew in a block of
/// its own when it accesses a device, and the kernel does after a page fault.
fn finished(block: &Block, begun: u64, next: Option<&Facts>) -> u64 {
    let Some(next) = next.filter(|_| begun > 0 && begun < block.instructions.len() as u64) else {
        return begun;
    };
    let done = &block.instructions[..begun as usize - 1];
    let last = block.address + done.iter().map(|bytes| bytes.len() as u64).sum::<u64>();
    let is_fault = next.is_entry && next.function.starts_with("asm_exc_");
    if next.address == last || is_fault { begun - 1 } else { begun }
}

impl Facts {
    fn of(block: &Block, symbols: &KernelSymbols) -> Facts {
        let address = block.address;
        let is_user = address < KERNEL;
        let place = symbols.place(address).filter(|_| !is_user);
        let length: usize = block.instructions.iter().map(Vec::len).sum();
        let next = address.wrapping_add(length as u64);
        let last = block.instructions.last().map_or(&[][..], Vec::as_slice);
        let function = match place {
            Some((name, _)) => name.to_owned(),
            None if is_user => USER.to_owned(),
            None => format!("{address:#x}"),
        };
        let is_stub = function == "irq_entries_start";
        let is_start = place.is_some_and(|(_, start)| start == address);
        Facts {
            is_entry: is_stub || is_start && symbols.is_entry(address),
            is_start,
            is_user,
            address,
            next,
            flow: code::flow(next.wrapping_sub(last.len() as u64), last),
            function,
        }
    }
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
        let is_interrupted = now.is_entry && !is_called && !self.is_stub_of(now);
        // The switch fills the CPU's buffer of return addresses: calls to its own next instructions, without returns.
        let is_filling = now.function == SWITCH && !now.is_start;
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
        if now.is_start && now.function == SWITCH {
            self.forget_callers();
        }
    }

    /// Whether the interrupt that this block enters has begun already, at a stub that only jumps here.
    fn is_stub_of(&self, now: &Facts) -> bool {
        let top = &self.nodes[self.top()];
        top.is_interrupt && (top.function == "irq_entries_start" || top.function == now.function)
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
        let kept = self.stack.split_off(self.stack.len().saturating_sub(2));
        self.stack.clear();
        for frame in kept {
            let function = self.nodes[frame.node].function.clone();
            self.push(&function, frame.returns_to, None);
        }
    }

    fn run(&self, block: &Block, now: &Facts, (at, count): (u64, u64)) -> Run {
        let done = block.instructions.iter().take(count as usize);
        let last = |is_meant: fn(&[u8]) -> bool| {
            let found = done.clone().rposition(|bytes| is_meant(bytes));
            found.map(|n| at + n as u64 + 1)
        };
        let clock_at = if now.is_user { last(code::reads_clock) } else { None };
        Run {
            at,
            count,
            node: self.top(),
            enters: now.is_start,
            interrupt_at: self.stack.iter().rev().find_map(|frame| frame.interrupt_at),
            clock_at,
            halt_at: last(code::halts),
            masks: done.filter_map(|bytes| code::masks_interrupts(bytes)).next_back(),
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
        self.nodes[node].is_interrupt && self.function(node).starts_with("asm_exc_")
    }
}
