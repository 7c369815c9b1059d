//! Joins spans of counters that follow each other: the machine's own, and those of each load.

use std::collections::BTreeMap;

use crate::event::{Event, Stamped};

/// Which spans may be joined: the machine's (none), or those of a load in a cell.
type Series = Option<(u32, u32)>;

/// Joins spans as they come. A span is joined only to the one before it of its series, and never over
/// another event: what lies in a phase stays in it.
#[derive(Debug, Default)]
pub struct Spans {
    open: BTreeMap<Series, Stamped>,
}

/// The series and the length of a span; none for other events.
fn series(event: &Event) -> Option<(Series, u64)> {
    match event {
        Event::System(span) => Some((None, span.span_ns)),
        Event::LoadRate { cell, load, span_ns, .. } => Some((Some((*cell, *load)), *span_ns)),
        _ => None,
    }
}

impl Spans {
    /// Takes the next event. Spans are held back until they are about `length_ns` long; what follows
    /// from the event is given to `done`, in the order of time.
    pub fn add(&mut self, next: Stamped, length_ns: u64, done: &mut impl FnMut(Stamped)) {
        let Some((key, _)) = series(&next.event) else {
            self.end(done);
            return done(next);
        };
        if length_ns == 0 {
            self.end(done);
            return done(next);
        }
        match self.open.get_mut(&key) {
            Some(open) if fits(open, &next, length_ns) => join(open, next),
            _ => self.open.insert(key, next).into_iter().for_each(done),
        }
    }

    /// Gives what is held back to `done`.
    pub fn end(&mut self, done: &mut impl FnMut(Stamped)) {
        let mut open: Vec<Stamped> = std::mem::take(&mut self.open).into_values().collect();
        open.sort_by_key(|stamped| stamped.at_ns);
        open.into_iter().for_each(done);
    }
}

/// Whether both together are not longer than asked: a reading that came a little late may be in it.
fn fits(open: &Stamped, next: &Stamped, length_ns: u64) -> bool {
    let open_ns = series(&open.event).map_or(0, |(_, span_ns)| span_ns);
    let start_ns = open.at_ns.saturating_sub(open_ns);
    next.at_ns.saturating_sub(start_ns) <= length_ns + length_ns / 16
}

fn join(open: &mut Stamped, next: Stamped) {
    let both_idle = open.event.idle_spans().and(next.event.idle_spans());
    open.at_ns = next.at_ns;
    match (&mut open.event, next.event) {
        (Event::System(sum), Event::System(next)) => sum.absorb(&next),
        (
            Event::LoadRate { span_ns, work, spans, idle, .. },
            Event::LoadRate { span_ns: next_ns, work: next_work, spans: n, .. },
        ) => {
            *idle = both_idle;
            *span_ns = span_ns.saturating_add(next_ns);
            *work = work.saturating_add(next_work);
            *spans = spans.saturating_add(n);
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        event::{CpuSpan, EndReason, IdleSpans, SystemSpan},
        machine_use::InterruptLine,
    };

    const SECOND_NS: u64 = 1_000_000_000;

    fn line(counts: &[(u32, u64)]) -> InterruptLine {
        let (line, name) = ("24".to_owned(), "eth0".to_owned());
        InterruptLine { line, name, counts: counts.to_vec() }
    }

    /// Two CPUs and a load for some seconds, then the end of the phase.
    fn events(seconds: u64) -> Vec<Stamped> {
        let of_second = |n: u64| {
            let cpu = |cpu| CpuSpan {
                cpu,
                busy_ns: n,
                steal_ns: u64::from(cpu),
                times_ns: Some([n, 1, 0, 0, 0, 0, 7]),
            };
            let system = SystemSpan {
                span_ns: SECOND_NS,
                context_switches: 3,
                interrupts: n,
                throttled: n.is_multiple_of(2).then_some(1),
                own_ns: Some(2),
                energy_uj: Some(4),
                cpus: vec![cpu(0), cpu(1)],
                lines: vec![line(&[(0, 2), (3, n)])],
            };
            let rate = Event::load_rate(0, 1, SECOND_NS, n % 4, "messages");
            let at_ns = (n + 1) * SECOND_NS;
            [Stamped { at_ns, event: rate }, Stamped { at_ns, event: Event::System(system) }]
        };
        let ended = Event::PhaseEnded { cell: 0, why: EndReason::Duration, bounds: None };
        let mut all: Vec<Stamped> = (0..seconds).flat_map(of_second).collect();
        all.push(Stamped { at_ns: seconds * SECOND_NS, event: ended });
        all
    }

    fn joined(events: &[Stamped], length_ns: u64) -> Vec<Stamped> {
        let (mut spans, mut all) = (Spans::default(), Vec::new());
        for event in events {
            spans.add(event.clone(), length_ns, &mut |event| all.push(event));
        }
        spans.end(&mut |event| all.push(event));
        all
    }

    #[test]
    fn joined_spans_keep_every_sum_and_how_often_a_load_did_nothing() {
        let all = joined(&events(20), 10 * SECOND_NS);
        assert_eq!(all.len(), 5);
        assert!(all.windows(2).all(|pair| pair[0].at_ns <= pair[1].at_ns));
        let Event::LoadRate { span_ns, work, spans, idle, .. } = &all[0].event else {
            panic!("{all:?}")
        };
        let expected = (10 * SECOND_NS, 13, 10, IdleSpans { spans: 3, span_ns: 3 * SECOND_NS });
        assert_eq!((*span_ns, *work, *spans, *idle), expected);
        let Event::System(system) = &all[2].event else { panic!("{all:?}") };
        assert_eq!((system.span_ns, system.interrupts), (10 * SECOND_NS, (10..20).sum::<u64>()));
        assert_eq!(
            (system.throttled, system.own_ns, system.energy_uj),
            (Some(5), Some(20), Some(40))
        );
        let cpu = CpuSpan {
            cpu: 1,
            busy_ns: (10..20).sum(),
            steal_ns: 10,
            times_ns: Some([(10..20).sum(), 10, 0, 0, 0, 0, 70]),
        };
        assert_eq!(system.cpus[1], cpu);
        assert_eq!(system.lines, [line(&[(0, 20), (3, (10..20).sum())])]);
        assert!(matches!(all[4].event, Event::PhaseEnded { .. }));
    }

    #[test]
    fn nothing_is_joined_over_another_event() {
        let twice = [events(3), events(3)].concat();
        assert_eq!(joined(&twice, 60 * SECOND_NS).len(), 6);
        assert_eq!(joined(&twice, 0), twice);
    }
}
