//! The events of a record in bounded memory.

use super::Spans;
use crate::{
    event::{CpuSpan, Event, Stamped},
    machine_use::InterruptLine,
};

/// Memory that spans of counters may take before they are joined.
const BYTES_MAX: usize = 16 << 20;

/// The longest that spans get: beyond it nothing is left to gain.
const LENGTH_NS_MAX: u64 = 1 << 56;

/// Collects events. Spans of counters are joined to twice the length whenever they take too much.
#[derive(Debug)]
pub(super) struct Events {
    events: Vec<Stamped>,
    spans: Spans,
    count: u64,
    length_ns: u64,
    bytes: usize,
    bytes_max: usize,
}

impl Default for Events {
    fn default() -> Events {
        Events {
            events: Vec::new(),
            spans: Spans::default(),
            count: 0,
            length_ns: 0,
            bytes: 0,
            bytes_max: BYTES_MAX,
        }
    }
}

impl Events {
    pub(super) fn add(&mut self, event: Stamped) {
        self.count += 1;
        let (events, bytes) = (&mut self.events, &mut self.bytes);
        self.spans.add(event, self.length_ns, &mut |event| {
            *bytes += bytes_of(&event);
            events.push(event);
        });
        while self.bytes > self.bytes_max {
            self.length_ns = (self.length_ns * 2).max(2_000_000_000);
            self.join();
            if self.length_ns >= LENGTH_NS_MAX {
                // Events that nothing can join: they are what there is.
                self.bytes_max = usize::MAX;
            }
        }
    }

    fn join(&mut self) {
        let all = std::mem::take(&mut self.events);
        let mut spans = std::mem::take(&mut self.spans);
        let mut open = Vec::new();
        spans.end(&mut |event| open.push(event));
        let events = &mut self.events;
        for event in all.into_iter().chain(open) {
            spans.add(event, self.length_ns, &mut |event| events.push(event));
        }
        self.spans = spans;
        self.bytes = self.events.iter().map(bytes_of).sum();
    }

    /// The events in order, and how many there were.
    pub(super) fn finish(mut self) -> (Vec<Stamped>, u64) {
        let events = &mut self.events;
        self.spans.end(&mut |event| events.push(event));
        self.events.shrink_to_fit();
        (self.events, self.count)
    }
}

fn bytes_of(stamped: &Stamped) -> usize {
    let spans = match &stamped.event {
        Event::System(span) => {
            let lines = span.lines.iter().map(|line| {
                size_of::<InterruptLine>()
                    + line.line.capacity()
                    + line.name.capacity()
                    + line.counts.capacity() * size_of::<(u32, u64)>()
            });
            span.cpus.capacity() * size_of::<CpuSpan>() + lines.sum::<usize>()
        }
        _ => 0,
    };
    size_of::<Stamped>() + spans
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::SystemSpan;

    #[test]
    fn a_week_of_256_cpus_takes_bounded_memory() {
        let mut events = Events::default();
        let cpus: Vec<CpuSpan> =
            (0..256).map(|cpu| CpuSpan { cpu, busy_ns: 1, ..CpuSpan::default() }).collect();
        // Timer, rescheduling and function calls come on every CPU; a device's interrupt on one.
        let line = |line: u32| InterruptLine {
            line: line.to_string(),
            name: "eth0".to_owned(),
            counts: (0..if line < 3 { 256 } else { 1 }).map(|cpu| (cpu, 1)).collect(),
        };
        let lines: Vec<InterruptLine> = (0..16).map(line).collect();
        let minutes = 7 * 24 * 60;
        for n in 0..minutes {
            let span = SystemSpan {
                span_ns: 60_000_000_000,
                interrupts: n,
                cpus: cpus.clone(),
                lines: lines.clone(),
                ..SystemSpan::default()
            };
            let event = Event::System(span);
            events.add(Stamped { at_ns: (n + 1) * 60_000_000_000, event });
            assert!(events.bytes <= BYTES_MAX);
        }
        let (events, count) = events.finish();
        assert_eq!(count, minutes);
        assert!((200..1_000).contains(&events.len()), "{}", events.len());
        let interrupts: u64 = events
            .iter()
            .map(|stamped| match &stamped.event {
                Event::System(span) => span.interrupts,
                _ => 0,
            })
            .sum();
        assert_eq!(interrupts, (0..minutes).sum::<u64>());
    }
}
