//! A trace in Perfetto's protobuf form (`protos/perfetto/trace` in its sources).
//!
//! Each late activation has a track with its pieces as slices. The kernel's events around it are there too, and
//! Perfetto draws CPUs, threads, interrupts and timers of them. Events have no clock of their own, so that Perfetto
//! takes both for the boot clock, which differs from `CLOCK_MONOTONIC` only by the time that the machine was suspended.

use std::collections::BTreeMap;

use rtscope_model::{
    explain::{ExplainRecord, Spike},
    trace::{Event, Name, Section, What},
};

use super::protobuf::Message;
use crate::{
    number::us,
    statistics::explain::{Explained, Piece, explain},
};

/// Fields of `Trace` and `TracePacket`.
const PACKET: u32 = 1;
const FTRACE_EVENTS: u32 = 1;
const TIMESTAMP: u32 = 8;
const SEQUENCE: u32 = 10;
const TRACK_EVENT: u32 = 11;
const SEQUENCE_FLAGS: u32 = 13;
const TRACK_DESCRIPTOR: u32 = 60;

/// Values of `TrackEvent.Type`.
const BEGIN: u64 = 1;
const END: u64 = 2;

/// The track that holds those of all late activations.
const ROOT: u64 = 1;

/// `TASK_INTERRUPTIBLE`: the events keep only whether a thread is ready.
const ASLEEP: u64 = 1;

/// The trace.
pub(super) fn trace(record: &ExplainRecord) -> Vec<u8> {
    let root = Message::default().number(1, ROOT).text(2, "rtscope: late activations");
    // The first packet of a sequence says that nothing came before it.
    let first = packet().number(SEQUENCE_FLAGS, 1).message(TRACK_DESCRIPTOR, &root);
    let mut trace = Message::default().message(PACKET, &first);
    for (n, one) in explain(record).iter().enumerate() {
        for packet in track(n, one) {
            trace = trace.message(PACKET, &packet);
        }
    }
    for (cpu, events) in by_cpu(&record.spikes) {
        trace = trace.message(PACKET, &bundle(cpu, &events));
    }
    trace.into_bytes()
}

fn packet() -> Message {
    Message::default().number(SEQUENCE, 1)
}

/// A late activation's track, and its slices.
fn track(n: usize, one: &Explained) -> Vec<Message> {
    let uuid = ROOT + 1 + n as u64;
    let name = format!("{}. {}-{} on CPU {}", n + 1, one.name, one.tid, one.cpu);
    let track = Message::default().number(1, uuid).text(2, &name).number(5, ROOT);
    let slice = |at_ns: u64, event: Message| {
        packet().number(TIMESTAMP, at_ns).message(TRACK_EVENT, &event.number(11, uuid))
    };
    let late = Message::default()
        .number(9, BEGIN)
        .text(22, "late")
        .text(23, &format!("{}-{} {} us late", one.name, one.tid, us(one.latency_ns)));
    let mut packets = vec![packet().message(TRACK_DESCRIPTOR, &track), slice(one.at_ns, late)];
    for piece in &one.pieces {
        packets.push(slice(piece.at_ns, begin(piece)));
        packets.push(slice(piece.at_ns + piece.ns, Message::default().number(9, END)));
    }
    packets.push(slice(one.at_ns + one.latency_ns, Message::default().number(9, END)));
    packets
}

/// The begin of a piece's slice, with what else is known of it.
fn begin(piece: &Piece) -> Message {
    let note = |name: &str, text: &str| Message::default().text(10, name).text(6, text);
    let slice = Message::default()
        .number(9, BEGIN)
        .text(22, piece.kind.text())
        .text(23, &format!("{}: {}", piece.kind.text(), piece.name))
        .message(4, &note("certainty", piece.certainty.text()))
        .message(4, &note("why", piece.why));
    match &piece.place {
        Some(place) => slice.message(4, &note("where", place)),
        None => slice,
    }
}

/// The events of all late activations, each once, in the order of time.
fn by_cpu(spikes: &[Spike]) -> BTreeMap<u32, Vec<&Event>> {
    let mut all: BTreeMap<u32, Vec<&Event>> = BTreeMap::new();
    // Late activations may be near each other, and share events: whatever begins before the last one of the CPU is known.
    let mut spikes: Vec<&Spike> = spikes.iter().collect();
    spikes.sort_by_key(|spike| spike.switched_ns);
    for spike in spikes {
        let known: BTreeMap<u32, u64> =
            all.iter().filter_map(|(cpu, events)| Some((*cpu, events.last()?.at_ns))).collect();
        for event in &spike.events {
            if known.get(&event.cpu).is_none_or(|last_ns| event.at_ns > *last_ns) {
                all.entry(event.cpu).or_default().push(event);
            }
        }
    }
    all
}

fn bundle(cpu: u32, events: &[&Event]) -> Message {
    let mut bundle = Message::default().number(1, u64::from(cpu));
    let mut running: Option<(u32, Name, i32)> = None;
    for event in events {
        if let Some((field, what)) = happened(event, running) {
            let one = Message::default()
                .number(1, event.at_ns)
                .number(2, u64::from(event.tid))
                .message(field, &what);
            bundle = bundle.message(2, &one);
        }
        if let What::Switch { to, to_priority, to_name, .. } = event.what {
            running = Some((to, to_name, to_priority));
        }
    }
    packet().message(FTRACE_EVENTS, &bundle)
}

/// An event's field of `FtraceEvent`, and its message; none for what Perfetto doesn't draw.
fn happened(event: &Event, running: Option<(u32, Name, i32)>) -> Option<(u32, Message)> {
    let message = Message::default();
    let begins = matches!(event.what, What::Enter(_));
    let edge = |entry: u32| if begins { entry } else { entry + 1 };
    Some(match event.what {
        What::Switch { from, is_ready, to, to_priority, to_name } => {
            let before = running.filter(|(tid, ..)| *tid == from);
            let state = if is_ready { 0 } else { ASLEEP };
            let (name, priority) = before.map_or((Name::default(), 120), |(_, n, p)| (n, p));
            let message = message
                .text(1, &name.to_string())
                .number(2, u64::from(from))
                .signed(3, priority)
                .number(4, state)
                .text(5, &to_name.to_string())
                .number(6, u64::from(to))
                .signed(7, to_priority);
            (4, message)
        }
        What::Waking { tid, name } => {
            (20, message.text(1, &name.to_string()).number(2, u64::from(tid)).number(4, 1))
        }
        What::Idle { begins } => {
            let state = if begins { 0 } else { u64::from(u32::MAX) };
            (13, message.number(1, state).number(2, u64::from(event.cpu)))
        }
        What::Enter(section) | What::Leave(section) => match section {
            Section::Irq { line, name } if begins => {
                (36, message.number(1, u64::from(line)).text(2, &name.to_string()))
            }
            Section::Irq { line, .. } => (37, message.number(1, u64::from(line)).number(2, 1)),
            Section::Softirq(number) => (edge(24), message.number(1, u64::from(number))),
            Section::Expiry(_) => (edge(553), message),
            Section::LocalTimer => (edge(559), message),
            Section::Reschedule | Section::FunctionCall | Section::IrqWork => return None,
        },
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// A field's number and its value: a number, or bytes. Read as protobuf's specification says, not as it is written
    /// above.
    #[derive(Clone, Debug, PartialEq)]
    enum Value<'a> {
        Number(u64),
        Bytes(&'a [u8]),
    }

    fn varint(bytes: &mut &[u8]) -> u64 {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let (byte, rest) = bytes.split_first().expect("a varint that ends");
            *bytes = rest;
            value |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return value;
            }
        }
        panic!("a varint of more than 64 bits");
    }

    fn fields(mut bytes: &[u8]) -> Vec<(u64, Value<'_>)> {
        let mut all = Vec::new();
        while !bytes.is_empty() {
            let key = varint(&mut bytes);
            let value = match key & 7 {
                0 => Value::Number(varint(&mut bytes)),
                2 => {
                    let length = varint(&mut bytes) as usize;
                    let (value, rest) = bytes.split_at(length);
                    bytes = rest;
                    Value::Bytes(value)
                }
                other => panic!("wire type {other}"),
            };
            all.push((key >> 3, value));
        }
        all
    }

    fn within<'a>(message: &[(u64, Value<'a>)], field: u64) -> Vec<Vec<(u64, Value<'a>)>> {
        let bytes = |value: &Value<'a>| match value {
            Value::Bytes(bytes) => fields(bytes),
            Value::Number(_) => panic!("a number in field {field}"),
        };
        message.iter().filter(|one| one.0 == field).map(|one| bytes(&one.1)).collect()
    }

    fn number(message: &[(u64, Value<'_>)], field: u64) -> Option<u64> {
        message.iter().find_map(|(key, value)| match value {
            Value::Number(value) if *key == field => Some(*value),
            _ => None,
        })
    }

    /// Woken at 1,000 ns by a timer that was due at 500 ns, and switched to at 3,000 ns from another thread.
    fn record() -> ExplainRecord {
        let event = |at_ns: u64, what: serde_json::Value| json!({ "at_ns": at_ns, "cpu": 1, "tid": 9, "in_interrupt": false, "preempt_depth": 0, "what": what });
        let switch = json!({ "switch": {
            "from": 9, "is_ready": true, "to": 7, "to_priority": 49, "to_name": "motor" } });
        let events = [
            event(900, json!({ "enter": "local-timer" })),
            event(1_000, json!({ "waking": { "tid": 7, "name": "motor" } })),
            event(1_100, json!({ "leave": "local-timer" })),
            event(3_000, switch),
        ];
        let spike = |events: &[serde_json::Value]| {
            json!({
                "tid": 7, "priority": 49, "timer": { "expires_ns": 500, "slack_ns": 0 },
                "waking": { "at_ns": 1_000, "cpu": 1, "by": 9, "in_interrupt": true },
                "cpu": 1, "switched_ns": 3_000, "is_lossy": false, "events": events,
                "before": [{ "cpu": 1, "tid": 9, "name": "hog", "priority": 10, "is_idle": false }],
            })
        };
        serde_json::from_value(json!({
            "format": 1, "version": "0.1.0", "wall_clock": "", "kernel": "6.12.0", "is_preempt_rt": false,
            "is_guest": false, "program": "motor", "duration": "1s", "above": null, "kept_max": 20, "events": [],
            "missing": [], "threads": [], "symbols": [], "lost": 0,
            // Two that share their events, which are written once.
            "spikes": [spike(&events), spike(&events[1..])],
        }))
        .expect("a record")
    }

    #[test]
    fn each_late_activation_has_a_track_whose_slices_add_up_to_it() {
        let bytes = trace(&record());
        let packets = within(&fields(&bytes), 1);
        let of_first = |packet: &&Vec<(u64, Value<'_>)>| {
            within(packet, 11).first().and_then(|event| number(event, 11)) == Some(ROOT + 1)
        };
        let edges: Vec<(u64, u64)> = packets
            .iter()
            .filter(of_first)
            .map(|packet| {
                let kind = number(&within(packet, 11)[0], 9).expect("a type");
                (number(packet, 8).expect("a time"), kind)
            })
            .collect();
        assert_eq!((edges.first(), edges.last()), (Some(&(500, BEGIN)), Some(&(3_000, END))));
        let pieces = &edges[1..edges.len() - 1];
        let sum: u64 = pieces.chunks(2).map(|piece| piece[1].0 - piece[0].0).sum();
        assert!(pieces.chunks(2).all(|piece| (piece[0].1, piece[1].1) == (BEGIN, END)));
        assert_eq!(sum, 2_500);
        let named = packets.iter().flat_map(|packet| within(packet, 60)).count();
        assert_eq!(named, 3, "a root and two tracks");
    }

    #[test]
    fn events_that_late_activations_share_are_written_once() {
        let bytes = trace(&record());
        let packets = within(&fields(&bytes), 1);
        let bundles: Vec<_> = packets.iter().flat_map(|packet| within(packet, 1)).collect();
        assert_eq!((bundles.len(), number(&bundles[0], 1)), (1, Some(1)));
        let events = within(&bundles[0], 2);
        let kinds: Vec<(u64, u64)> =
            events.iter().map(|one| (number(one, 1).expect("a time"), one[2].0)).collect();
        assert_eq!(kinds, [(900, 559), (1_000, 20), (1_100, 560), (3_000, 4)]);
        let switch = &within(&events[3], 4)[0];
        assert_eq!((number(switch, 2), number(switch, 6)), (Some(9), Some(7)));
        assert!(switch.contains(&(5, Value::Bytes(b"motor"))));
    }
}
