//! Events from their binary form. Where their fields lie is told by the kernel itself, in the `format` file of
//! each event (Documentation/trace/events.rst).

use std::collections::HashMap;

use super::event::{Event, INSTANTS_END_NS, Name, TimerFunction, What, futex};

/// Bits of `common_flags`: in a hard interrupt, a soft one, one that can't be masked
/// (`include/linux/trace_events.h`).
const IN_INTERRUPT: u64 = 0x08 | 0x10 | 0x40;

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
    tid: Field,
}

/// One kind of event with its fields.
#[derive(Clone, Debug)]
enum Kind {
    Switch { from: Field, state: Field, not_ready: u64, to: Field, to_priority: Field },
    Waking { tid: Field, name: Field },
    TimerStart { function: Field, expires: Field, mode: Field },
    PageFault,
    Futex { operation: Field, value: Field, timeout: Field },
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
            },
            "sched/sched_waking" => Kind::Waking { tid: field("pid")?, name: field("comm")? },
            "timer/hrtimer_start" => Kind::TimerStart {
                function: field("function")?,
                expires: field("softexpires").or_else(|| field("expires"))?,
                mode: field("mode")?,
            },
            "exceptions/page_fault_user" => Kind::PageFault,
            "syscalls/sys_enter_futex" => Kind::Futex {
                operation: field("op")?,
                value: field("val")?,
                timeout: field("utime")?,
            },
            _ => return None,
        })
    }
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
    /// The kernel's functions for timers, by their address.
    functions: HashMap<u64, TimerFunction>,
}

impl Decoder {
    /// A decoder for events with the texts of their `format` files. `symbols` is `/proc/kallsyms`, where it
    /// is needed. None when something isn't as we know it: then the trace is read as text.
    pub(super) fn new(events: &[(String, String)], symbols: Option<&str>) -> Option<Decoder> {
        let common = fields(&events.first()?.1);
        let field = |name: &str| common.get(name).copied();
        let common = Common {
            id: field("common_type")?,
            flags: field("common_flags")?,
            tid: field("common_pid")?,
        };
        let kind = |(event, text): &(String, String)| Some((id(text)?, Kind::new(event, text)?));
        let kinds: Option<HashMap<u64, Kind>> = events.iter().map(kind).collect();
        let functions = match symbols {
            Some(symbols) => Some(functions(symbols)).filter(|found| !found.is_empty())?,
            None => HashMap::new(),
        };
        Some(Decoder { common, kinds: kinds?, functions })
    }

    /// Whether these events need the kernel's symbols.
    pub(super) fn needs_symbols(events: &[String]) -> bool {
        events.iter().any(|event| event == "timer/hrtimer_start")
    }

    /// An event's value; none for one that nobody here knows, and one that is cut short.
    pub(super) fn decode(&self, at_ns: u64, cpu: u32, bytes: &[u8]) -> Option<Event> {
        let number = |field: Field| field.number(bytes);
        let small = |field: Field| u32::try_from(number(field)?).ok();
        let what = match self.kinds.get(&number(self.common.id)?)? {
            Kind::Switch { from, state, not_ready, to, to_priority } => What::Switch {
                from: small(*from)?,
                is_ready: number(*state)? & not_ready == 0,
                to: small(*to)?,
                to_priority: i32::try_from(number(*to_priority)?.cast_signed()).ok()?,
            },
            Kind::Waking { tid, name } => {
                What::Waking { tid: small(*tid)?, name: Name::new(name.bytes(bytes)?) }
            }
            Kind::TimerStart { function, expires, mode } => What::TimerStart {
                function: *self.functions.get(&number(*function)?).unwrap_or(&TimerFunction::Other),
                expires_ns: number(*expires).filter(|ns| *ns < INSTANTS_END_NS)?,
                is_relative: number(*mode)? & RELATIVE != 0,
            },
            Kind::PageFault => What::PageFault,
            Kind::Futex { operation, value, timeout } => {
                // The kernel keeps arguments of 32 bits in words of 64.
                let low = |field| number(field).map(|word| word & u64::from(u32::MAX));
                futex(low(*operation)?, low(*value)?, number(*timeout)?)?
            }
        };
        Some(Event {
            at_ns,
            cpu,
            tid: small(self.common.tid)?,
            in_interrupt: number(self.common.flags)? & IN_INTERRUPT != 0,
            what,
        })
    }
}

/// The timers' functions in `/proc/kallsyms`; none where addresses are hidden.
fn functions(symbols: &str) -> HashMap<u64, TimerFunction> {
    let known = |line: &str| {
        let mut words = line.split_ascii_whitespace();
        let address = words.next()?;
        let function = TimerFunction::named(words.nth(1)?);
        if !function.ends_a_sleep() {
            return None;
        }
        let address = u64::from_str_radix(address, 16).ok().filter(|address| *address != 0)?;
        Some((address, function))
    };
    symbols.lines().filter_map(known).collect()
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
        let what = What::Switch { from: 41, is_ready: true, to: 7, to_priority: -1 };
        assert_eq!(event, Event { at_ns: 5, cpu: 1, tid: 41, in_interrupt: false, what });
        let slept = decoder().decode(5, 1, &switch(41, 0x08, (0, 120), 0x2)).expect("a switch");
        assert!(slept.in_interrupt);
        assert_eq!(slept.what, What::Switch { from: 41, is_ready: false, to: 0, to_priority: 120 });
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

    #[test]
    fn functions_of_timers_are_found_unless_their_addresses_are_hidden() {
        let symbols = "ffffffff8141e230 t hrtimer_wakeup\nffffffff81730990 t timerfd_tmrproc [m]\n\
                       ffffffff81730991 T schedule\nx\n";
        let found = functions(symbols);
        assert_eq!(found.len(), 2);
        assert_eq!(found[&0xffff_ffff_8141_e230], TimerFunction::Sleep);
        assert!(functions("0000000000000000 t hrtimer_wakeup").is_empty());
    }
}
