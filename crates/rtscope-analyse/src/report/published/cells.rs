//! The cells of a record as figures that published ones may be set beside.

use rtscope_model::{
    machine_use::CpuClass,
    published::{KernelKind, Published, PublishedStatistic},
    record::Record,
    schedule::Policy,
    verdict,
};

use super::{Ours, PublishedBesideOurs, beside, statistics};
use crate::{
    judgement::{CellSummary, FigureRow, Judgement},
    statistics::{
        machine_use::{self, MachineUse},
        quantile,
    },
};

/// A run's own published figures beside what it measured.
#[must_use]
pub fn of_run(record: &Record, judgement: &Judgement) -> Vec<PublishedBesideOurs> {
    let published = &record.plan.published;
    beside(published, &of_cells(record, judgement, "", published))
}

/// What each cell of a record shows of the statistics that are published: all threads together, and each of them.
#[must_use]
pub fn of_cells(
    record: &Record,
    judgement: &Judgement,
    label: &str,
    published: &[Published],
) -> Vec<Ours> {
    let kernel = record.before.as_ref().and_then(|found| KernelKind::of(found.kernel.preemption));
    let wanted = statistics(published);
    let wants_cpu_time = wanted.iter().any(|one| matches!(one, PublishedStatistic::CpuTime(_)));
    let mut all = Vec::new();
    for cell in &judgement.cells {
        let phase = record.plan.phases.get(cell.cell as usize);
        let uses = wants_cpu_time.then(|| machine_use::of_cell(record, cell.cell));
        let rows = cell.threads.iter().zip(0u32..).map(|(row, n)| (row, Some(n)));
        for (row, thread) in std::iter::once((&cell.all, None)).chain(rows) {
            let first = row.thread.or(cell.threads.first().and_then(|row| row.thread));
            all.push(Ours {
                subject: cell.name.clone(),
                label: label.to_owned(),
                kernel,
                policy: found_policy(record, first).or(phase.map(|phase| phase.sampler.policy)),
                load: phase.map_or_else(String::new, |phase| phase.load_text()),
                thread,
                condition: None,
                figures: wanted
                    .iter()
                    .filter_map(|statistic| {
                        let found = match (statistic, &uses) {
                            (PublishedStatistic::CpuTime(class), Some(uses))
                                if thread.is_none() =>
                            {
                                cpu_time(*class, uses)
                            }
                            _ => figure(*statistic, cell, row)?,
                        };
                        Some((*statistic, found))
                    })
                    .collect(),
            });
        }
    }
    all
}

/// The policy that was read back in a thread; none where nothing was.
fn found_policy(record: &Record, thread: Option<u32>) -> Option<Policy> {
    let is_it = |one: &&rtscope_model::record::ThreadRecord| Some(one.thread) == thread;
    let found = record.threads.iter().find(is_it).filter(|one| one.imported.is_none())?;
    Some(found.found.policy)
}

/// A share of all CPUs' time.
fn cpu_time(class: CpuClass, uses: &MachineUse) -> Result<f64, String> {
    let share = uses.all().map(|all| all.share(class));
    share.ok_or_else(|| "the record doesn't hold CPU time by class".to_owned())
}

/// A statistic of wake-ups; none for one that isn't of them.
fn figure(
    statistic: PublishedStatistic,
    cell: &CellSummary,
    row: &FigureRow,
) -> Option<Result<f64, String>> {
    use verdict::Statistic as Of;
    let histogram = &row.histogram;
    let ns = |found: Option<u64>| found.map(|ns| ns as f64);
    let value = match statistic {
        PublishedStatistic::Min => ns(histogram.min_ns()),
        PublishedStatistic::Latency(Of::Mean) => histogram.mean_ns(),
        PublishedStatistic::Latency(Of::Quantile(parts)) => {
            ns(histogram.at_rank_ns(quantile::rank(histogram.count(), parts)))
        }
        PublishedStatistic::Latency(Of::Max) => ns(row.max_ns()),
        PublishedStatistic::Latency(Of::Missed) if row.missed_is_known => Some(row.missed as f64),
        PublishedStatistic::Latency(Of::Missed) => {
            return Some(Err("missed activations are not known".to_owned()));
        }
        // The bucket in which a limit lies counts: a wake-up that may be late is no reason to be pleased.
        PublishedStatistic::Above(limit) => Some(histogram.at_or_above(limit.0).1 as f64),
        PublishedStatistic::Recorded => Some(row.recorded as f64),
        PublishedStatistic::Mode if row.thread.is_none() => {
            let largest = cell.modes.iter().max_by(|a, b| a.count.cmp(&b.count));
            ns(largest.map(|mode| mode.peak_ns))
        }
        _ => return None,
    };
    Some(value.ok_or_else(|| "no wake-up was measured".to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{judge, test_support::Run};

    const PLAN: &str = r#"
name = "two"
[[phase]]
name = "rest"
duration = "2s"
[[phase]]
name = "busy"
duration = "2s"
load = ["message groups=1"]
[[published]]
phase = "busy"
figures = { min = "4us", mean = "10us", p50 = "5us", max = "1ms", 'above 50us' = 3, recorded = 4000, missed = 0 }
source = "a lab"
[[published]]
load = "none"
thread = 1
figures = { max = "8us", frequency = "1Hz" }
source = "a lab"
"#;

    #[test]
    fn a_run_stands_beside_the_figures_of_its_plan() {
        let mut busy = vec![5_000u64; 1_999];
        busy.push(100_000);
        let record = Run::new(PLAN, 2)
            .cell(0, &[&[3_000; 2_000], &[4_000; 2_000]])
            .cell(1, &[&[5_000; 2_000], &busy])
            .load(1, "message groups=1", &[1_000, 2_000])
            .end()
            .record();
        let all = of_run(&record, &judge(&record, &[]));
        let shown: Vec<(String, String)> = all.iter().map(|one| (one.name(), one.ours())).collect();
        let ours = |statistic: &str| {
            let name = format!("busy, {statistic}");
            shown.iter().find(|(known, _)| *known == name).map(|(_, ours)| ours.clone())
        };
        // The mean: (3,999 * 5 us + 100 us) / 4,000.
        let expected = [
            ("min", "5us"),
            ("mean", "5.02us"),
            // The end of its bucket, as everywhere.
            ("p50", "6us"),
            ("max", "0.1ms"),
            ("above 50us", "1"),
            ("recorded", "4000"),
            ("missed", "0"),
        ];
        for (statistic, expected) in expected {
            assert_eq!(ours(statistic).as_deref(), Some(expected), "{statistic}: {shown:?}");
        }
        assert_eq!(all[7].name(), "at rest, thread 1, max");
        assert_eq!(all[7].ours(), "4us");
        assert_eq!(all[8].ours(), "none: frequency is not measured here");
    }
}
