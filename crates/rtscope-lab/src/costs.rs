//! What guests have cost on this machine, kept to say before a run how long it will take.
//!
//! Only an estimate hangs on it: a file that can't be read counts as empty.

use std::{collections::BTreeMap, fs, time::Duration};

use serde::{Deserialize, Serialize};

use crate::{
    cache::{Cache, write_file},
    error::LabError,
    guest_run::GuestRun,
};

/// File in the cache.
const FILE: &str = "costs.json";

/// Version of the file.
const FORMAT: u32 = 1;

/// Weight of a new run against all before it.
const WEIGHT: f64 = 0.5;

/// Without any measurement: what a boot costs, and what a second of the guest's time costs.
const GUESSED_BOOT: Duration = Duration::from_secs(10);
const GUESSED_PACE: u32 = 3;

/// What guests have cost.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Costs {
    format: u32,
    /// By kernel, how time passes, and plan.
    guests: BTreeMap<String, Cost>,
}

/// What one kind of guest has cost.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
struct Cost {
    /// How long its plan takes in the guest's time.
    plan_ms: f64,
    /// How long a run took on this machine's clock.
    took_ms: f64,
}

/// How long runs will take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RunEstimate {
    /// All of them, several at a time.
    pub time: Duration,
    /// Those whose kind was run before.
    pub measured: usize,
}

impl Costs {
    #[must_use]
    pub fn read(cache: &Cache) -> Costs {
        let text = fs::read_to_string(cache.root().join(FILE)).unwrap_or_default();
        let read = serde_json::from_str::<Costs>(&text).ok();
        let read = read.filter(|costs| costs.format == FORMAT);
        read.unwrap_or(Costs { format: FORMAT, guests: BTreeMap::new() })
    }

    pub fn note(&mut self, run: &GuestRun, took: Duration) {
        let plan_ms = run.planned.as_secs_f64() * 1e3;
        let took_ms = took.as_secs_f64() * 1e3;
        self.guests
            .entry(kind(run))
            .and_modify(|cost| cost.took_ms += (took_ms - cost.took_ms) * WEIGHT)
            .or_insert(Cost { plan_ms, took_ms })
            .plan_ms = plan_ms;
    }

    /// Keeps them in the cache, in one step.
    pub fn keep(&self, cache: &Cache) -> Result<(), LabError> {
        let path = cache.root().join(FILE);
        let text = serde_json::to_string_pretty(self).unwrap_or_default() + "\n";
        write_file(&path, text.as_bytes()).map_err(LabError::file("write", &path))
    }

    /// How long these runs will take, `jobs` at a time.
    #[must_use]
    pub fn estimate<'a>(
        &self,
        runs: impl Iterator<Item = &'a GuestRun>,
        jobs: usize,
    ) -> RunEstimate {
        let (mut sum, mut longest, mut measured, mut all) = (0.0, 0.0_f64, 0, 0);
        for run in runs {
            let known = self.took_ms(run);
            let ms = known.unwrap_or_else(|| guessed_ms(run));
            (sum, longest) = (sum + ms, longest.max(ms));
            (measured, all) = (measured + usize::from(known.is_some()), all + 1);
        }
        let ms = (sum / jobs.clamp(1, all.max(1)) as f64).max(longest);
        RunEstimate { time: Duration::from_secs_f64(ms / 1e3), measured }
    }

    /// What this kind has taken; or one with the same kernel and another plan, in proportion beyond its boot.
    fn took_ms(&self, run: &GuestRun) -> Option<f64> {
        if let Some(cost) = self.guests.get(&kind(run)) {
            return Some(cost.took_ms);
        }
        let prefix = kernel(run);
        let plan_ms = run.planned.as_secs_f64() * 1e3;
        let boot_ms = GUESSED_BOOT.as_secs_f64() * 1e3;
        let scaled = |cost: &Cost| {
            let boot_ms = boot_ms.min(cost.took_ms / 2.0);
            let pace = (cost.took_ms - boot_ms) / cost.plan_ms.max(1.0);
            boot_ms + pace * plan_ms
        };
        let others = self.guests.iter().filter(|(name, _)| name.starts_with(&prefix));
        let others: Vec<f64> = others.map(|(_, cost)| scaled(cost)).collect();
        (!others.is_empty()).then(|| others.iter().sum::<f64>() / others.len() as f64)
    }
}

impl RunEstimate {
    /// The sentence: how many guests there are, how many of them are known, and how long the others take.
    #[must_use]
    pub fn sentence(self, all: usize, known: usize, jobs: usize) -> String {
        let plural = |n: usize| if n == 1 { "1 guest".to_owned() } else { format!("{n} guests") };
        let left = all - known;
        let already = match known {
            0 => String::new(),
            known if known == all => return format!("{}: all known already", plural(all)),
            known => format!(", {known} of them known already"),
        };
        let at_a_time = match jobs.min(left) {
            1 => String::new(),
            jobs => format!(", {jobs} at a time"),
        };
        let how = match self.measured {
            0 => "a guess, because no such guest ran here before".to_owned(),
            measured if measured == left => "from earlier runs of such guests".to_owned(),
            measured => format!("{measured} from earlier runs of such guests, the others guessed"),
        };
        // Less would look more exact than it is.
        let time = minutes(self.time.max(Duration::from_secs(1)));
        format!("{}{already}{at_a_time}: about {time} ({how})", plural(all))
    }
}

/// A time in seconds or minutes, as exactly as an estimate can be.
#[must_use]
pub fn minutes(time: Duration) -> String {
    let seconds = time.as_secs();
    if seconds < 90 { format!("{seconds} s") } else { format!("{} min", seconds.div_ceil(60)) }
}

fn guessed_ms(run: &GuestRun) -> f64 {
    (GUESSED_BOOT + run.planned * GUESSED_PACE).as_secs_f64() * 1e3
}

/// Kernel and how time passes; the words of a kernel's command line cost nothing.
fn kernel(run: &GuestRun) -> String {
    let kernel = run.kernel.label.split(':').next().unwrap_or_default();
    let time = match run.spec.timing.is_virtual() {
        true => "virtual",
        false => "wall",
    };
    format!("{kernel} {} {time} {} CPU ", run.machine.name, run.spec.cpus)
}

fn kind(run: &GuestRun) -> String {
    kernel(run) + &run.plan
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::no_record::samples::run;

    #[test]
    fn what_was_measured_is_taken_and_the_rest_is_guessed() {
        let folder = tempfile::tempdir().expect("a folder");
        let (cache, seconds) = (Cache::at(folder.path()), Duration::from_secs);
        let run = |kernel: &str, plan: &str, planned: u64| {
            let mut run = run(folder.path(), &[], None);
            run.kernel.label = kernel.to_owned();
            (run.plan, run.planned) = (plan.to_owned(), seconds(planned));
            run
        };
        let (rt, stock) = (run("rt", "rest", 4), run("stock", "rest", 4));
        let mut costs = Costs::read(&cache);
        let guess = GUESSED_BOOT + seconds(4) * GUESSED_PACE;
        let none = costs.estimate([&rt, &rt].into_iter(), 1);
        assert_eq!(none, RunEstimate { time: guess * 2, measured: 0 });
        costs.note(&rt, seconds(20));
        costs.keep(&cache).expect("kept");
        let mut costs = Costs::read(&cache);
        let runs = [&rt, &rt, &rt, &stock];
        let mixed = costs.estimate(runs.into_iter(), 2);
        assert_eq!(mixed, RunEstimate { time: (seconds(60) + guess) / 2, measured: 3 });
        // Another word is no other cost, and another plan takes a boot and its own time.
        let word = run("rt:preempt=full", "rest", 4);
        assert_eq!(costs.estimate([&word].into_iter(), 2).time, seconds(20));
        let longer = costs.estimate([&run("rt", "long", 8)].into_iter(), 8);
        assert_eq!(longer, RunEstimate { time: seconds(30), measured: 1 });
        // The newest runs count most.
        costs.note(&rt, seconds(40));
        assert_eq!(costs.estimate([&rt].into_iter(), 1).time, seconds(30));
        // More jobs than runs don't make them shorter, and none take no time.
        assert_eq!(costs.estimate([&rt, &stock].into_iter(), 9).time, seconds(30));
        assert_eq!(costs.estimate([].into_iter(), 2).time, Duration::ZERO);
        fs::write(folder.path().join(FILE), "{").expect("damaged");
        assert_eq!(Costs::read(&cache).estimate([&rt].into_iter(), 1).measured, 0);
    }

    #[test]
    fn what_is_known_and_what_is_guessed_is_said() {
        let said = |all, known, seconds, measured| {
            let estimate = RunEstimate { time: Duration::from_secs(seconds), measured };
            estimate.sentence(all, known, 2)
        };
        assert_eq!(
            said(160, 40, 1210, 120),
            "160 guests, 40 of them known already, 2 at a time: about 21 min (from earlier runs of such guests)"
        );
        assert_eq!(
            said(1, 0, 13, 0),
            "1 guest: about 13 s (a guess, because no such guest ran here before)"
        );
        assert!(
            said(4, 0, 40, 3).contains("3 from earlier runs of such guests, the others guessed")
        );
        assert_eq!(said(8, 8, 0, 0), "8 guests: all known already");
    }
}
