//! Events from their binary form. Where their fields lie is told by the kernel itself, in the `format` file of
//! each event (Documentation/trace/events.rst).

use std::{collections::HashMap, sync::Arc};

use rtscope_model::trace::{Place, Section};

use super::{Event, INSTANTS_END_NS, KernelSymbols, Name, What, futex};

/// Bits of `common_flags`: in a hard interrupt, a soft one, one that can't be masked
/// (`include/linux/trace_events.h`).
const IN_INTERRUPT: u64 = 0x08 | 0x10 | 0x40;

/// The part of `common_preempt_count` that counts how often preemption was switched off; the rest counts the same of
/// migration.
const DEPTH: u64 = 0x0f;

/// Bit of a timer's mode: relative (`enum hrtimer_mode`).
const RELATIVE: u64 = 0x01;

/// Where a field lies in an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Field {
    pub(super) offset: usize,
    pub(super) size: usize,
    is_signed: bool,
}

impl Field {
    /// The field's bytes; none where the event is too short.
    fn bytes(self, event: &[u8]) -> Option<&[u8]> {
        event.get(self.offset..self.offset.checked_add(self.size)?)
    }

    /// A number in this machine's order of bytes, extended to 64 bits.
    pub(super) fn number(self, event: &[u8]) -> Option<u64> {
        let bytes = self.bytes(event)?;
        Some(match (bytes.len(), self.is_signed) {
            (1, false) => u64::from(bytes[0]),
            (2, false) => u64::from(u16::from_ne_bytes(bytes.try_into().ok()?)),
            (4, false) => u64::from(u32::from_ne_bytes(bytes.try_into().ok()?)),
            (4, true) => i64::from(i32::from_ne_bytes(bytes.try_into().ok()?)).cast_unsigned(),
            (8, _) => u64::from_ne_bytes(bytes.try_into().ok()?),
            _ => return None,
        })
    }
}

/// The fields of a `format` file, or of `events/header_page`, by name.
pub(super) fn fields(text: &str) -> HashMap<String, Field> {
    text.lines().filter_map(field).collect()
}

/// `field:int prev_prio; offset:28; size:4; signed:1;`, with tabs between.
fn field(line: &str) -> Option<(String, Field)> {
    let mut parts = line.trim().strip_prefix("field:")?.split(';').map(str::trim);
    let declared = parts.next()?.rsplit(' ').next()?;
    let name = declared.split('[').next()?.to_owned();
    let mut number = |key: &str| parts.next()?.strip_prefix(key)?.parse().ok();
    let (offset, size) = (number("offset:")?, number("size:")?);
    let is_signed = number("signed:").is_some_and(|value| value == 1);
    Some((name, Field { offset, size, is_signed }))
}

/// The number by which the ring buffer calls an event.
fn id(text: &str) -> Option<u64> {
    text.lines().find_map(|line| line.strip_prefix("ID:")?.trim().parse().ok())
}

/// Fields that every event has.
#[derive(Clone, Copy, Debug)]
struct Common {
    id: Field,
    flags: Field,
    preempt_count: Field,
    tid: Field,
}

/// One kind of event with its fields.
#[derive(Clone, Debug)]
enum Kind {
    Switch {
        from: Field,
        state: Field,
        not_ready: u64,
        to: Field,
        to_priority: Field,
        to_name: Field,
    },
    Waking {
        tid: Field,
        name: Field,
    },
    TimerStart {
        function: Field,
        soft: Field,
        hard: Field,
        mode: Field,
    },
    PageFault,
    SystemCallEnds,
    Futex {
        operation: Field,
        value: Field,
        timeout: Field,
    },
    Irq {
        begins: bool,
        line: Field,
        name: Option<Field>,
    },
    Softirq {
        begins: bool,
        number: Field,
    },
    /// An interrupt that one word names.
    Named {
        begins: bool,
        section: Section,
    },
    Expiry {
        function: Option<Field>,
        now: Option<Field>,
    },
    Idle {
        state: Field,
    },
    Runtime {
        ns: Field,
    },
    Stack {
        callers: Field,
    },
    Work {
        begins: bool,
        function: Field,
    },
    InterruptSent {
        from: Field,
        callback: Field,
    },
    Nmi {
        handler: Field,
        ns: Field,
    },
}

impl Kind {
    /// The kind that an event is, as `sched/sched_switch`, by its `format` file.
    fn new(event: &str, text: &str) -> Option<Kind> {
        let fields = fields(text);
        let field = |name: &str| fields.get(name).copied();
        Some(match event {
            "sched/sched_switch" => Kind::Switch {
                from: field("prev_pid")?,
                state: field("prev_state")?,
                not_ready: states(text)?,
                to: field("next_pid")?,
                to_priority: field("next_prio")?,
                to_name: field("next_comm")?,
            },
            "sched/sched_waking" => Kind::Waking { tid: field("pid")?, name: field("comm")? },
            "timer/hrtimer_start" => Kind::TimerStart {
                function: field("function")?,
                soft: field("softexpires").or_else(|| field("expires"))?,
                hard: field("expires")?,
                mode: field("mode")?,
            },
            "exceptions/page_fault_user" => Kind::PageFault,
            "raw_syscalls/sys_exit" => Kind::SystemCallEnds,
            "syscalls/sys_enter_futex" => Kind::Futex {
                operation: field("op")?,
                value: field("val")?,
                timeout: field("utime")?,
            },
            "irq/irq_handler_entry" => {
                Kind::Irq { begins: true, line: field("irq")?, name: Some(field("name")?) }
            }
            "irq/irq_handler_exit" => Kind::Irq { begins: false, line: field("irq")?, name: None },
            "irq/softirq_entry" => Kind::Softirq { begins: true, number: field("vec")? },
            "irq/softirq_exit" => Kind::Softirq { begins: false, number: field("vec")? },
            "timer/hrtimer_expire_entry" => {
                Kind::Expiry { function: Some(field("function")?), now: field("now") }
            }
            "timer/hrtimer_expire_exit" => Kind::Expiry { function: None, now: None },
            "power/cpu_idle" => Kind::Idle { state: field("state")? },
            "sched/sched_stat_runtime" => Kind::Runtime { ns: field("runtime")? },
            STACK => Kind::Stack { callers: field("caller")? },
            "workqueue/workqueue_execute_start" => {
                Kind::Work { begins: true, function: field("function")? }
            }
            "workqueue/workqueue_execute_end" => {
                Kind::Work { begins: false, function: field("function")? }
            }
            "ipi/ipi_send_cpu" | "ipi/ipi_send_cpumask" => {
                Kind::InterruptSent { from: field("callsite")?, callback: field("callback")? }
            }
            "nmi/nmi_handler" => Kind::Nmi { handler: field("handler")?, ns: field("delta_ns")? },
            _ => {
                let (section, begins) = vector(event.strip_prefix("irq_vectors/")?)?;
                Kind::Named { begins, section }
            }
        })
    }
}

/// The event of a stack.
pub(super) const STACK: &str = "ftrace/kernel_stack";

/// An event of the vectors of x86, as `local_timer_entry`, and whether it is a begin.
pub(super) fn vector(event: &str) -> Option<(Section, bool)> {
    let (name, begins) = match event.strip_suffix("_entry") {
        Some(name) => (name, true),
        None => (event.strip_suffix("_exit")?, false),
    };
    let section = match name {
        "local_timer" => Section::LocalTimer,
        "reschedule" => Section::Reschedule,
        "call_function" | "call_function_single" => Section::FunctionCall,
        "irq_work" => Section::IrqWork,
        _ => return None,
    };
    Some((section, begins))
}

/// A text whose place in the event a field tells (`__data_loc`): its offset in the low half, its length in the high
/// one.
fn text_at(place: Field, event: &[u8]) -> Option<&[u8]> {
    let place = place.number(event)?;
    let (offset, size) = (place & 0xffff, place >> 16 & 0xffff);
    event.get(offset as usize..(offset + size) as usize)
}

/// All states in which a thread is not ready, as bits: those that the event's own text names, as in
/// `{ 0x00000001, "S" }`.
fn states(text: &str) -> Option<u64> {
    let named = text.split("{ 0x").skip(1);
    let bits = named.filter_map(|rest| u64::from_str_radix(rest.split_once(", \"")?.0, 16).ok());
    Some(bits.fold(0, |all, bit| all | bit)).filter(|all| *all != 0)
}

/// Turns the bytes of events into values.
#[derive(Clone, Debug)]
pub(super) struct Decoder {
    common: Common,
    kinds: HashMap<u64, Kind>,
    /// The kernel's functions, where an event has addresses.
    symbols: Arc<KernelSymbols>,
}

impl Decoder {
    /// A decoder for events with the texts of their `format` files. `symbols` are the kernel's functions, where
    /// they are needed. None when something isn't as we know it: then the trace is read as text.
    pub(super) fn new(
        events: &[(String, String)],
        symbols: Option<Arc<KernelSymbols>>,
    ) -> Option<Decoder> {
        let common = fields(&events.first()?.1);
        let field = |name: &str| common.get(name).copied();
        let common = Common {
            id: field("common_type")?,
            flags: field("common_flags")?,
            preempt_count: field("common_preempt_count")?,
            tid: field("common_pid")?,
        };
        let kind = |(event, text): &(String, String)| Some((id(text)?, Kind::new(event, text)?));
        let kinds: Option<HashMap<u64, Kind>> = events.iter().map(kind).collect();
        Some(Decoder { common, kinds: kinds?, symbols: symbols.unwrap_or_default() })
    }

    /// A decoder for those of these events that are known here; none where no event has the common fields.
    pub(super) fn of_known(
        events: &[(String, String)],
        symbols: Arc<KernelSymbols>,
    ) -> Option<Decoder> {
        let is_known = |(event, text): &&(String, String)| {
            id(text).is_some() && Kind::new(event, text).is_some()
        };
        let known: Vec<(String, String)> = events.iter().filter(is_known).cloned().collect();
        Decoder::new(&known, Some(symbols))
    }

    /// What a timer's own clock said at its expiry, in the event of one.
    pub(super) fn expiry_ns(&self, bytes: &[u8]) -> Option<u64> {
        match self.kinds.get(&self.common.id.number(bytes)?)? {
            Kind::Expiry { now: Some(now), .. } => now.number(bytes),
            _ => None,
        }
    }

    pub(super) fn symbols(&self) -> Arc<KernelSymbols> {
        self.symbols.clone()
    }

    /// Whether these events need the kernel's symbols.
    pub(super) fn needs_symbols(events: &[String]) -> bool {
        let have = ["timer/hrtimer_", "workqueue/", "ipi/", "nmi/", STACK];
        events.iter().any(|event| have.iter().any(|start| event.starts_with(start)))
    }

    /// An event's value; none for one that nobody here knows, and one that is cut short.
    pub(super) fn decode(&self, at_ns: u64, cpu: u32, bytes: &[u8]) -> Option<Event> {
        let number = |field: Field| field.number(bytes);
        let small = |field: Field| u32::try_from(number(field)?).ok();
        let kind = self.kinds.get(&number(self.common.id)?)?;
        Some(Event {
            at_ns,
            cpu,
            tid: small(self.common.tid)?,
            in_interrupt: number(self.common.flags)? & IN_INTERRUPT != 0,
            preempt_depth: (number(self.common.preempt_count)? & DEPTH) as u8,
            what: self.what(kind, bytes)?,
        })
    }

    fn what(&self, kind: &Kind, bytes: &[u8]) -> Option<What> {
        let number = |field: Field| field.number(bytes);
        let small = |field: Field| u32::try_from(number(field)?).ok();
        let instant = |field: Field| number(field).filter(|ns| *ns < INSTANTS_END_NS);
        let edge = |begins: bool, section: Section| match begins {
            true => What::Enter(section),
            false => What::Leave(section),
        };
        Some(match *kind {
            Kind::Switch { from, state, not_ready, to, to_priority, to_name } => What::Switch {
                from: small(from)?,
                is_ready: number(state)? & not_ready == 0,
                to: small(to)?,
                to_priority: i32::try_from(number(to_priority)?.cast_signed()).ok()?,
                to_name: Name::new(to_name.bytes(bytes)?),
            },
            Kind::Waking { tid, name } => {
                What::Waking { tid: small(tid)?, name: Name::new(name.bytes(bytes)?) }
            }
            Kind::TimerStart { function, soft, hard, mode } => {
                let expires_ns = instant(soft)?;
                What::TimerStart {
                    function: self.symbols.timer(number(function)?),
                    expires_ns,
                    slack_ns: instant(hard)?.saturating_sub(expires_ns),
                    is_relative: number(mode)? & RELATIVE != 0,
                }
            }
            Kind::PageFault => What::PageFault,
            Kind::SystemCallEnds => What::SystemCallEnds,
            Kind::Futex { operation, value, timeout } => {
                // The kernel keeps arguments of 32 bits in words of 64.
                let low = |field| number(field).map(|word| word & u64::from(u32::MAX));
                futex(low(operation)?, low(value)?, number(timeout)?)?
            }
            Kind::Irq { begins, line, name } => {
                let name =
                    name.map_or(Some(Name::default()), |name| text_at(name, bytes).map(Name::new));
                edge(begins, Section::Irq { line: small(line)?, name: name? })
            }
            Kind::Softirq { begins, number } => edge(begins, Section::Softirq(small(number)?)),
            Kind::Named { begins, section } => edge(begins, section),
            Kind::Expiry { function, .. } => {
                let address = function.map_or(Some(0), number)?;
                edge(function.is_some(), Section::Expiry(address))
            }
            Kind::Idle { state } => What::Idle { begins: small(state)? != u32::MAX },
            Kind::Runtime { ns } => What::Runtime { ns: number(ns)? },
            Kind::Stack { callers } => {
                // After a 32-bit number, an array of 64-bit words begins at a multiple of 8, and one of 32-bit words
                // doesn't. The size of the field doesn't help: newer kernels write 0.
                let word = if callers.offset.is_multiple_of(8) { 8 } else { 4 };
                What::Interrupted(self.interrupted(bytes.get(callers.offset..)?, word)?)
            }
            Kind::Work { begins, function } => What::Work { function: number(function)?, begins },
            Kind::InterruptSent { from, callback } => {
                What::InterruptSent { from: number(from)?, callback: number(callback)? }
            }
            Kind::Nmi { handler, ns } => What::Nmi { handler: number(handler)?, ns: number(ns)? },
        })
    }

    /// What was interrupted, according to a stack of addresses of this size, innermost caller first. None if the stack
    /// has no interrupt.
    fn interrupted(&self, callers: &[u8], word_bytes: usize) -> Option<Place> {
        let number = |word: &[u8]| match word {
            [a, b, c, d] => u64::from(u32::from_ne_bytes([*a, *b, *c, *d])),
            _ => u64::from_ne_bytes(word.try_into().unwrap_or_default()),
        };
        let last = u64::MAX >> (64 - 8 * word_bytes);
        let words = callers.chunks_exact(word_bytes).map(number);
        let callers: Vec<u64> =
            words.take_while(|address| *address != 0 && *address != last).collect();
        let entry = callers.iter().rposition(|address| self.symbols.is_entry(*address))?;
        Some(callers.get(entry + 1).map_or(Place::User, |address| Place::Kernel(*address)))
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// `sched_switch` of Linux 6.18 on x86-64, its states shortened.
    pub(in crate::trace) const SWITCH: &str = "\
name: sched_switch
ID: 372
format:
\tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;
\tfield:unsigned char common_flags;\toffset:2;\tsize:1;\tsigned:0;
\tfield:unsigned char common_preempt_count;\toffset:3;\tsize:1;\tsigned:0;
\tfield:int common_pid;\toffset:4;\tsize:4;\tsigned:1;

\tfield:char prev_comm[16];\toffset:8;\tsize:16;\tsigned:0;
\tfield:pid_t prev_pid;\toffset:24;\tsize:4;\tsigned:1;
\tfield:int prev_prio;\toffset:28;\tsize:4;\tsigned:1;
\tfield:long prev_state;\toffset:32;\tsize:8;\tsigned:1;
\tfield:char next_comm[16];\toffset:40;\tsize:16;\tsigned:0;
\tfield:pid_t next_pid;\toffset:56;\tsize:4;\tsigned:1;
\tfield:int next_prio;\toffset:60;\tsize:4;\tsigned:1;

print fmt: \"...\", \"|\", { 0x00000001, \"S\" }, { 0x00000002, \"D\" }, { 0x00000080, \"I\" }) : \"R\"
";

    /// The bytes of such an event.
    pub(in crate::trace) fn switch(tid: u32, flags: u8, to: (u32, i32), state: u64) -> Vec<u8> {
        let mut bytes = vec![0; 64];
        bytes[..2].copy_from_slice(&372_u16.to_ne_bytes());
        bytes[2] = flags;
        bytes[4..8].copy_from_slice(&tid.to_ne_bytes());
        bytes[24..28].copy_from_slice(&tid.to_ne_bytes());
        bytes[32..40].copy_from_slice(&state.to_ne_bytes());
        bytes[56..60].copy_from_slice(&to.0.to_ne_bytes());
        bytes[60..64].copy_from_slice(&to.1.to_ne_bytes());
        bytes
    }

    pub(in crate::trace) fn decoder() -> Decoder {
        let events = [("sched/sched_switch".to_owned(), SWITCH.to_owned())];
        Decoder::new(&events, None).expect("a known format")
    }

    #[test]
    fn a_switch_is_read_where_its_fields_lie() {
        let event = decoder().decode(5, 1, &switch(41, 0, (7, -1), 0x100)).expect("a switch");
        // 0x100 says that the thread was preempted.
        let (to_name, preempt_depth) = (Name::default(), 0);
        let what = What::Switch { from: 41, is_ready: true, to: 7, to_priority: -1, to_name };
        let expected =
            Event { at_ns: 5, cpu: 1, tid: 41, in_interrupt: false, preempt_depth, what };
        assert_eq!(event, expected);
        let slept = decoder().decode(5, 1, &switch(41, 0x08, (0, 120), 0x2)).expect("a switch");
        assert!(slept.in_interrupt);
        assert_eq!(
            slept.what,
            What::Switch { from: 41, is_ready: false, to: 0, to_priority: 120, to_name }
        );
    }

    /// `ftrace/kernel_stack` of a kernel with addresses of 64 bits, and of 32 bits.
    #[test]
    fn a_stack_is_read_in_the_kernel_s_own_words() {
        let symbols = KernelSymbols::parse("10 t asm_exc_x\n20 t schedule\n".to_owned());
        let symbols = std::sync::Arc::new(symbols.expect("symbols"));
        let head =
            SWITCH.split("\n\n").next().expect("a head").replace("sched_switch", "kernel_stack");
        for (offset, word) in [(16, 8), (12, 4)] {
            let text = format!(
                "{head}\n\n\tfield:int size;\toffset:8;\tsize:4;\tsigned:1;\n\
                 \tfield:unsigned long caller[8];\toffset:{offset};\tsize:{};\tsigned:0;\n",
                8 * word
            );
            let decoder = Decoder::new(&[(STACK.to_owned(), text)], Some(symbols.clone()));
            let mut bytes = vec![0; offset];
            bytes[..2].copy_from_slice(&372_u16.to_ne_bytes());
            for address in [0x30_u64, 0x14, 0x24, u64::MAX] {
                bytes.extend(&address.to_le_bytes()[..word]);
            }
            let found = decoder.expect("a format").decode(5, 1, &bytes).expect("a stack");
            assert_eq!(found.what, What::Interrupted(Place::Kernel(0x24)), "{word}");
        }
    }

    #[test]
    fn what_is_cut_short_or_unknown_is_no_event() {
        let bytes = switch(41, 0, (7, 1), 0);
        for end in 0..bytes.len() {
            assert_eq!(decoder().decode(5, 1, &bytes[..end]), None, "{end}");
        }
        assert_eq!(decoder().decode(5, 1, &[9; 64]), None);
        let event = |name: &str, text: &str| [(name.to_owned(), text.to_owned())];
        assert!(Decoder::new(&event("sched/other", SWITCH), None).is_none());
        assert!(Decoder::new(&event("sched/sched_waking", SWITCH), None).is_none());
        assert!(Decoder::new(&event("sched/sched_switch", "ID: 3"), None).is_none());
    }
}
