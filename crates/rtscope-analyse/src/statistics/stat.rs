//! Counters over repeated runs: means with intervals, what they say together, and two programs compared.
//!
//! The interval of a mean is Student's, 95 %, over the runs; a derived figure is made in each run and
//! then treated alike. Two programs are compared by the ratio of their means, with an interval from the
//! logarithm's variance (delta method, Welch's degrees of freedom).

use rtscope_model::stat::{Count, Counted, CountedProgram, CountedRun, CounterRecord};
use serde::Serialize;
use statrs::distribution::{ContinuousCDF, StudentsT};

/// A figure of a program: a counter, or what is derived from several.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StatFigure {
    /// From start to end.
    ElapsedNs,
    Counter(Counted),
    /// CPU time over elapsed time.
    CpusUsed,
    InstructionsPerCycle,
    /// Cycles in a second of CPU time.
    CyclesPerSecond,
    /// Mispredicted branches over branches.
    BranchMissRate,
}

impl StatFigure {
    /// Its key in a document.
    #[must_use]
    pub fn key(self) -> &'static str {
        match self {
            StatFigure::ElapsedNs => "elapsed_ns",
            StatFigure::Counter(counted) => counted.key(),
            StatFigure::CpusUsed => "cpus_used",
            StatFigure::InstructionsPerCycle => "instructions_per_cycle",
            StatFigure::CyclesPerSecond => "cycles_per_second",
            StatFigure::BranchMissRate => "branch_miss_rate",
        }
    }

    /// All, in the order in which they are shown.
    #[must_use]
    pub fn all() -> Vec<StatFigure> {
        let derived = [
            StatFigure::CpusUsed,
            StatFigure::CyclesPerSecond,
            StatFigure::InstructionsPerCycle,
            StatFigure::BranchMissRate,
        ];
        let counters = Counted::ALL.into_iter().map(StatFigure::Counter);
        [StatFigure::ElapsedNs].into_iter().chain(counters).chain(derived).collect()
    }

    /// The figure of one run; why not, where there is none.
    fn value(self, run: &CountedRun, simulated: bool) -> Result<f64, String> {
        let over = |above: Counted, below: Counted| {
            let (above, below) = (scaled(run, above)?, scaled(run, below)?);
            if below > 0.0 { Ok(above / below) } else { Err(format!("division by {below}")) }
        };
        match self {
            StatFigure::ElapsedNs | StatFigure::CpusUsed if simulated => {
                Err("not simulated: the simulator counts neither time nor the kernel".to_owned())
            }
            StatFigure::ElapsedNs => Ok(run.elapsed_ns as f64),
            StatFigure::Counter(counted) => scaled(run, counted),
            StatFigure::CpusUsed => {
                Ok(scaled(run, Counted::TaskClockNs)? / run.elapsed_ns.max(1) as f64)
            }
            StatFigure::InstructionsPerCycle => over(Counted::Instructions, Counted::Cycles),
            StatFigure::CyclesPerSecond => {
                over(Counted::Cycles, Counted::TaskClockNs).map(|each_ns| each_ns * 1e9)
            }
            StatFigure::BranchMissRate => over(Counted::BranchMisses, Counted::Branches),
        }
    }
}

fn count(run: &CountedRun, counted: Counted) -> Option<&Count> {
    let place = Counted::ALL.iter().position(|one| *one == counted)?;
    run.counts.get(place)
}

fn scaled(run: &CountedRun, counted: Counted) -> Result<f64, String> {
    let count = count(run, counted).ok_or_else(|| "not recorded".to_owned())?;
    match (count, count.scaled()) {
        (Count::Absent(why), _) => Err(why.clone()),
        (_, None) => {
            Err("never counted: other counters used the processor's counters all the time"
                .to_owned())
        }
        (_, Some(value)) => Ok(value),
    }
}

/// A mean over runs.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Mean {
    pub mean: f64,
    /// 95 % interval; none with one run.
    pub low: Option<f64>,
    pub high: Option<f64>,
    /// Standard deviation of the runs; none with one.
    pub deviation: Option<f64>,
    pub runs: u64,
}

impl Mean {
    fn from_values(values: &[f64]) -> Option<Mean> {
        let n = values.len() as f64;
        if values.is_empty() {
            return None;
        }
        let mean = values.iter().sum::<f64>() / n;
        let runs = values.len() as u64;
        if values.len() < 2 {
            return Some(Mean { mean, low: None, high: None, deviation: None, runs });
        }
        let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
        let deviation = (squares / (n - 1.0)).sqrt();
        let half = quantile(n - 1.0) * deviation / n.sqrt();
        Some(Mean {
            mean,
            low: Some(mean - half),
            high: Some(mean + half),
            deviation: Some(deviation),
            runs,
        })
    }
}

/// A ratio of two means.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct MeanRatio {
    /// The second over the first.
    pub ratio: f64,
    /// 95 % interval; none with one run.
    pub low: Option<f64>,
    pub high: Option<f64>,
}

impl MeanRatio {
    /// None where a mean is 0: a ratio says nothing then.
    fn between(a: &Mean, b: &Mean) -> Option<MeanRatio> {
        if a.mean <= 0.0 || b.mean <= 0.0 {
            return None;
        }
        let ratio = b.mean / a.mean;
        let relative = |one: &Mean| {
            one.deviation.map(|deviation| (deviation / one.mean).powi(2) / one.runs as f64)
        };
        let (Some(of_a), Some(of_b)) = (relative(a), relative(b)) else {
            return Some(MeanRatio { ratio, low: None, high: None });
        };
        let (na, nb) = (a.runs as f64, b.runs as f64);
        let variance = of_a + of_b;
        let freedom = match variance > 0.0 {
            true => variance.powi(2) / (of_a.powi(2) / (na - 1.0) + of_b.powi(2) / (nb - 1.0)),
            false => na + nb - 2.0,
        };
        let factor = (quantile(freedom) * variance.sqrt()).exp();
        Some(MeanRatio { ratio, low: Some(ratio / factor), high: Some(ratio * factor) })
    }
}

fn quantile(freedom: f64) -> f64 {
    StudentsT::new(0.0, 1.0, freedom.max(1.0)).map_or(1.96, |t| t.inverse_cdf(0.975))
}

/// A figure of a program.
#[derive(Clone, Debug, PartialEq)]
pub struct JudgedRuns {
    pub figure: StatFigure,
    /// Over its runs; why there is none.
    pub mean: Result<Mean, String>,
    /// The smallest share of a run's time in which the counter counted, where it is one.
    pub share: Option<f64>,
    /// Whether only what the program did itself was counted.
    pub user_only: bool,
}

/// All figures of a program.
#[must_use]
pub fn judge(program: &CountedProgram, simulated: bool) -> Vec<JudgedRuns> {
    let one = |figure: StatFigure| {
        let values: Result<Vec<f64>, String> =
            program.runs.iter().map(|run| figure.value(run, simulated)).collect();
        let counts = || {
            program.runs.iter().filter_map(|run| match figure {
                StatFigure::Counter(counted) => count(run, counted),
                _ => None,
            })
        };
        JudgedRuns {
            figure,
            mean: values.and_then(|all| Mean::from_values(&all).ok_or_else(|| "no run".to_owned())),
            share: counts().filter_map(Count::share).min_by(f64::total_cmp),
            user_only: counts().any(|count| matches!(count, Count::Value { user_only: true, .. })),
        }
    };
    StatFigure::all().into_iter().map(one).collect()
}

/// The ratio of each figure of the second program to that of the first. None with one program.
#[must_use]
pub fn compare(
    record: &CounterRecord,
    simulated: bool,
) -> Option<Vec<(StatFigure, Option<MeanRatio>)>> {
    let [a, b] = &record.programs[..] else { return None };
    let pairs = judge(a, simulated).into_iter().zip(judge(b, simulated));
    let ratio = |(a, b): (JudgedRuns, JudgedRuns)| match (&a.mean, &b.mean) {
        (Ok(left), Ok(right)) => (a.figure, MeanRatio::between(left, right)),
        _ => (a.figure, None),
    };
    Some(pairs.map(ratio).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn program(instructions: &[u64], cycles: &Count) -> CountedProgram {
        let value =
            |counted| Count::Value { counted, enabled_ns: 10, running_ns: 10, user_only: false };
        let run = |instructions: &u64| CountedRun {
            elapsed_ns: 2_000,
            failed: None,
            counts: vec![
                value(1_000),
                value(0),
                value(0),
                value(5),
                cycles.clone(),
                value(*instructions),
                value(400),
                value(100),
            ],
        };
        CountedProgram {
            name: "x".to_owned(),
            command: vec!["x".to_owned()],
            runs: instructions.iter().map(run).collect(),
        }
    }

    fn mean(all: &[JudgedRuns], figure: StatFigure) -> &Result<Mean, String> {
        &all.iter().find(|one| one.figure == figure).expect("all are judged").mean
    }

    #[test]
    fn means_have_students_interval() {
        let absent = Count::Absent("not supported".to_owned());
        let all = judge(&program(&[90, 100, 110], &absent), false);
        let found = mean(&all, StatFigure::Counter(Counted::Instructions)).clone().expect("a mean");
        // Deviation 10, three runs: 4.3027 * 10 / sqrt(3).
        assert_eq!((found.mean, found.deviation), (100.0, Some(10.0)));
        assert!((found.high.expect("an interval") - 124.841).abs() < 1e-2, "{found:?}");
        assert!((found.low.expect("an interval") - 75.159).abs() < 1e-2, "{found:?}");
        // Two runs: deviation 7.0711, 12.7062 * 7.0711 / sqrt(2).
        let two = Mean::from_values(&[95.0, 105.0]).expect("a mean");
        assert!((two.high.expect("an interval") - 163.531).abs() < 1e-2, "{two:?}");
        assert_eq!(Mean::from_values(&[95.0]).expect("a mean").high, None);
        let rate = mean(&all, StatFigure::BranchMissRate).clone().expect("a rate");
        assert_eq!((rate.mean, rate.low, rate.high), (0.25, Some(0.25), Some(0.25)));
        assert_eq!(mean(&all, StatFigure::CpusUsed).clone().expect("a share").mean, 0.5);
        let one = judge(&program(&[90], &Count::Absent(String::new())), false);
        assert_eq!(mean(&one, StatFigure::ElapsedNs).clone().expect("one run").low, None);
    }

    #[test]
    fn what_is_lacking_is_lacking_in_everything_that_is_made_of_it() {
        let all = judge(&program(&[90, 100], &Count::Absent("not supported".to_owned())), false);
        for figure in [
            StatFigure::Counter(Counted::Cycles),
            StatFigure::InstructionsPerCycle,
            StatFigure::CyclesPerSecond,
        ] {
            assert_eq!(*mean(&all, figure), Err("not supported".to_owned()));
        }
        // Half of the time: scaled, and said.
        let half = Count::Value { counted: 25, enabled_ns: 100, running_ns: 50, user_only: true };
        let all = judge(&program(&[100, 100], &half), false);
        assert_eq!(
            mean(&all, StatFigure::InstructionsPerCycle).clone().expect("a ratio").mean,
            2.0
        );
        let cycles = all.iter().find(|one| one.figure == StatFigure::Counter(Counted::Cycles));
        assert_eq!(cycles.map(|one| (one.share, one.user_only)), Some((Some(0.5), true)));
        let never = Count::Value { counted: 0, enabled_ns: 100, running_ns: 0, user_only: false };
        let all = judge(&program(&[1], &never), false);
        assert!(mean(&all, StatFigure::Counter(Counted::Cycles)).is_err(), "not 0");
    }

    #[test]
    fn a_ratio_has_the_interval_of_its_logarithm() {
        let a = Mean::from_values(&[90.0, 100.0, 110.0]).expect("a mean");
        let b = Mean::from_values(&[180.0, 200.0, 220.0]).expect("a mean");
        let ratio = MeanRatio::between(&a, &b).expect("a ratio");
        // Relative variances 0.01 / 3 each; 4 degrees of freedom: exp(2.7764 * sqrt(0.02 / 3)).
        let factor = (2.776_445f64 * (0.02f64 / 3.0).sqrt()).exp();
        assert!((ratio.ratio - 2.0).abs() < 1e-12);
        assert!((ratio.high.expect("an interval") / 2.0 / factor - 1.0).abs() < 1e-6, "{ratio:?}");
        assert!((ratio.low.expect("an interval") * factor / 2.0 - 1.0).abs() < 1e-6);
        assert_eq!(MeanRatio::between(&a, &Mean::from_values(&[0.0]).expect("a mean")), None);
    }
}
