//! What the CPUs spent a phase on, by class, and how often each interrupt line came.
//!
//! A share is a class's part of the time of all classes, as `mpstat` computes it. The kernel counts that time
//! by the clock tick: a phase of some ticks says little.

use std::collections::BTreeMap;

use rtscope_model::{
    event::{CpuSpan, Event, SystemSpan},
    machine_use::{CpuClass, InterruptLine, absorb_lines},
    record::Record,
};

/// What a phase used.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct MachineUse {
    /// All CPUs together, then each; empty in older records.
    pub cpus: Vec<CpuUse>,
    /// Interrupt lines, the busiest first; empty in older records.
    pub lines: Vec<LineUse>,
    /// Mean power of the CPUs' packages in watts; none where the machine doesn't show it.
    pub power_w: Option<f64>,
}

/// What a CPU spent its time on.
#[derive(Clone, Debug, PartialEq)]
pub struct CpuUse {
    /// The CPU; none for all together.
    pub cpu: Option<u32>,
    /// Share of each class of [`CpuClass::ALL`], 0 to 1.
    pub shares: [f64; 8],
}

/// How often an interrupt line came.
#[derive(Clone, Debug, PartialEq)]
pub struct LineUse {
    /// Its number or the kernel's letters.
    pub line: String,
    /// Its devices.
    pub name: String,
    /// On all CPUs, by second.
    pub per_second: f64,
    /// CPUs with their rates, by second.
    pub cpus: Vec<(u32, f64)>,
}

impl MachineUse {
    #[must_use]
    pub fn all(&self) -> Option<&CpuUse> {
        self.cpus.first()
    }
}

impl CpuUse {
    /// The share of a class, 0 to 1.
    #[must_use]
    pub fn share(&self, class: CpuClass) -> f64 {
        let nth = CpuClass::ALL.iter().position(|known| *known == class);
        nth.map_or(0.0, |n| self.shares[n])
    }

    fn of(cpu: Option<u32>, times_ns: [u64; 8]) -> Option<CpuUse> {
        let all_ns = times_ns.iter().fold(0u64, |sum, ns| sum.saturating_add(*ns));
        let shares = times_ns.map(|ns| ns as f64 / all_ns as f64);
        (all_ns > 0).then_some(CpuUse { cpu, shares })
    }
}

/// The spans of the machine's counters that lie for the most part inside a cell.
pub(crate) fn spans_of(record: &Record, cell: u32) -> Vec<&SystemSpan> {
    let events = &record.events;
    let at = |wanted: fn(&Event) -> Option<u32>| {
        events.iter().find(|e| wanted(&e.event) == Some(cell)).map(|e| e.at_ns)
    };
    let started = |event: &Event| match event {
        Event::PhaseStarted { cell, .. } => Some(*cell),
        _ => None,
    };
    let ended = |event: &Event| match event {
        Event::PhaseEnded { cell, .. } => Some(*cell),
        _ => None,
    };
    let Some(start_ns) = at(started) else { return Vec::new() };
    let end_ns = at(ended).unwrap_or(u64::MAX);
    let inside = events.iter().filter_map(|stamped| match &stamped.event {
        Event::System(span) => {
            let middle_ns = stamped.at_ns.saturating_sub(span.span_ns / 2);
            (start_ns..end_ns).contains(&middle_ns).then_some(span)
        }
        _ => None,
    });
    inside.collect()
}

/// What a cell used.
#[must_use]
pub fn of_cell(record: &Record, cell: u32) -> MachineUse {
    let spans = spans_of(record, cell);
    let mut times_ns: BTreeMap<u32, [u64; 8]> = BTreeMap::new();
    let mut lines: Vec<InterruptLine> = Vec::new();
    let mut counted_ns = 0u64;
    for span in &spans {
        for cpu in &span.cpus {
            add(times_ns.entry(cpu.cpu).or_default(), cpu);
        }
        if !span.lines.is_empty() {
            absorb_lines(&mut lines, &span.lines);
            counted_ns = counted_ns.saturating_add(span.span_ns);
        }
    }
    let mut all_ns = [0u64; 8];
    for (sum, ns) in times_ns.values().flat_map(|times| (0usize..).zip(times)) {
        all_ns[sum] = all_ns[sum].saturating_add(*ns);
    }
    let each = times_ns.into_iter().filter_map(|(cpu, times)| CpuUse::of(Some(cpu), times));
    let by_second = |count: u64| count as f64 / (counted_ns as f64 / 1e9);
    let line_use = |line: InterruptLine| LineUse {
        per_second: by_second(line.total()),
        cpus: line.counts.iter().map(|(cpu, count)| (*cpu, by_second(*count))).collect(),
        line: line.line,
        name: line.name,
    };
    MachineUse {
        cpus: CpuUse::of(None, all_ns).into_iter().chain(each).collect(),
        lines: lines.into_iter().filter(|_| counted_ns > 0).map(line_use).collect(),
        power_w: power_w(&spans),
    }
}

/// Microjoules by nanosecond are kilowatts.
fn power_w(spans: &[&SystemSpan]) -> Option<f64> {
    let with = || spans.iter().filter_map(|span| Some((span.energy_uj?, span.span_ns)));
    let (energy_uj, span_ns) = with().fold((0u64, 0u64), |sum, (energy_uj, span_ns)| {
        (sum.0.saturating_add(energy_uj), sum.1.saturating_add(span_ns))
    });
    (span_ns > 0).then(|| energy_uj as f64 / span_ns as f64 * 1e3)
}

fn add(sums: &mut [u64; 8], cpu: &CpuSpan) {
    for (sum, class) in sums.iter_mut().zip(CpuClass::ALL) {
        // Steal alone, as in older records, would look as if there were nothing else.
        *sum = sum.saturating_add(cpu.class_ns(class).unwrap_or(0));
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::test_support::Run;

    const PLAN: &str = r#"
name = "two"
[[phase]]
name = "rest"
duration = "2s"
[[phase]]
name = "busy"
duration = "2s"
load = ["network kind=tcp"]
[[published]]
phase = "busy"
figures = { user = "40.70%", softirq = "44.97%", idle = "0%" }
source = "a training"
"#;

    /// Two phases; in the second, CPU 0 did softirqs mostly, and a network card interrupted.
    pub(crate) fn run() -> Run {
        let run = Run::new(PLAN, 2)
            .cell(0, &[&[3_000; 2_000], &[4_000; 2_000]])
            .cell(1, &[&[5_000; 2_000], &[6_000; 2_000]])
            .load(1, "network kind=tcp", &[1_000, 2_000])
            .end();
        let mut cell = 0;
        run.edit(move |event| {
            if let Event::PhaseStarted { cell: started, .. } = event {
                cell = *started;
            }
            let Event::System(span) = event else { return };
            let of = |share: u64| span.span_ns / 100 * share;
            if cell == 1 {
                span.cpus[0].times_ns = Some([of(10), 0, of(5), 0, 0, of(80), 0]);
                span.cpus[0].steal_ns = of(5);
                span.cpus[1].times_ns = Some([of(70), 0, of(30), 0, 0, 0, 0]);
                let (line, name) = ("24".to_owned(), "eth0 <b>".to_owned());
                let count = span.span_ns / 1_000_000;
                span.lines = vec![InterruptLine { line, name, counts: vec![(0, count)] }];
            }
        })
    }

    #[test]
    fn shares_are_those_of_mpstat() {
        let record = run().record();
        assert_eq!(of_cell(&record, 0), MachineUse::default(), "an older record has none");
        let found = of_cell(&record, 1);
        let percent = |nth: usize| found.cpus[nth].shares.map(|share| (share * 100.0).round());
        assert_eq!(
            found.cpus.iter().map(|one| one.cpu).collect::<Vec<_>>(),
            [None, Some(0), Some(1)]
        );
        assert_eq!(percent(1), [10.0, 0.0, 5.0, 0.0, 0.0, 80.0, 5.0, 0.0]);
        assert_eq!(percent(2), [70.0, 0.0, 30.0, 0.0, 0.0, 0.0, 0.0, 0.0]);
        assert_eq!(
            found.all().map(|all| (all.share(CpuClass::Softirq) * 1e3).round()),
            Some(400.0)
        );
        assert_eq!(found.lines[0].per_second.round(), 1_000.0);
        assert_eq!(found.lines[0].cpus.len(), 1);
    }

    #[test]
    fn power_is_energy_by_time_where_the_machine_shows_it() {
        assert_eq!(of_cell(&run().record(), 1).power_w, None);
        // 15 uJ in each microsecond.
        let shown = run().edit(|event| {
            if let Event::System(span) = event {
                span.energy_uj = Some(span.span_ns / 1_000 * 15);
            }
        });
        let power_w = of_cell(&shown.record(), 1).power_w.expect("shown");
        assert!((power_w - 15.0).abs() < 1e-3, "{power_w}");
    }
}
