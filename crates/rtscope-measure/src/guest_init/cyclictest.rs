//! cyclictest beside our sampler, in the same guest.
//!
//! It runs after our sampler and not at the same time: two threads of one priority would measure each
//! other. Both see the same kernel, interval, priority, number of cycles and loads, and the loads stand alike:
//! the first wake-up that counts is at the same place of a second, because wake-ups that coincide with the
//! kernel's tick are later than others, and it is as long after the loads' start.

use std::{
    collections::BTreeMap,
    process::{Command, Stdio},
    thread::{self, JoinHandle},
    time::Duration,
};

use rtscope_model::{
    cpu::CpuSet,
    event::{Event, Stamped},
    guest::{Cost, GuestExtras, OURS, THEIRS},
    plan::{Phase, Plan, Sleep},
    schedule::Policy,
    slice::{Scope, Slice},
    thread::Thread,
};
use rtscope_sys::{
    clock::{Clock, SystemClock},
    tree::Tree,
};

use super::stage::Stage;
use crate::ps;

const SECOND_NS: u64 = 1_000_000_000;

/// Where the lab puts Debian's cyclictest.
const CYCLICTEST: &str = "/usr/bin/cyclictest";

/// Buckets of cyclictest's histogram, in microseconds.
const BUCKETS: u32 = 5000;

/// How often it is looked whether a process samples, and how often at most: cyclictest begins at a full
/// second.
const LOOK_EVERY: Duration = Duration::from_millis(50);
const LOOKS: usize = 80;

/// Wake-ups after which its threads sample: they sleep a few times before.
const BEGUN: u64 = 20;

/// Stack of the thread that looks at our own: the process's memory is locked.
const LOOKER_BYTES: usize = 256 * 1024;

/// How long before a full second it is started, to begin at that second: it takes the next one that is at least
/// 0.1 s away.
const EARLIER_NS: u64 = 800_000_000;

/// What cyclictest's run needs of the plan's own, seen in its events.
#[derive(Debug)]
pub(super) struct Watch<'a> {
    pub(super) beside: &'a GuestExtras,
    pub(super) plan: &'a Plan,
    run_ns: u64,
    /// When each phase began, and its loads, on `CLOCK_MONOTONIC`.
    begun: BTreeMap<u32, u64>,
    /// The first expiry that counts in each cell, on `CLOCK_MONOTONIC`.
    first: BTreeMap<u32, u64>,
    /// Who looks at what our sampling threads cost in each cell.
    costs: BTreeMap<u32, JoinHandle<Option<Cost>>>,
}

/// When our sampler and its loads began.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Begin {
    loads_ns: u64,
    /// The first expiry that counts.
    first_ns: u64,
}

/// When cyclictest and its loads begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Schedule {
    loads_ns: u64,
    start_ns: u64,
    /// From the full second that follows to one interval before its first expiry.
    after_second_us: u64,
}

impl Begin {
    /// The next time, from `now_ns` on, that stands to the second and to its loads as this one.
    fn again(self, now_ns: u64, interval_ns: u64) -> Schedule {
        let origin_ns = self.first_ns.saturating_sub(interval_ns);
        // Cut to microseconds as cyclictest takes them.
        let after_ns = origin_ns % SECOND_NS / 1000 * 1000;
        let lead_ns = self.first_ns as i64 - self.loads_ns as i64;
        let loads_at = |second_ns: u64| (second_ns + after_ns + interval_ns) as i64 - lead_ns;
        let mut second_ns = (now_ns + EARLIER_NS).next_multiple_of(SECOND_NS);
        while loads_at(second_ns) < now_ns as i64 {
            second_ns += SECOND_NS;
        }
        Schedule {
            loads_ns: loads_at(second_ns) as u64,
            start_ns: second_ns - EARLIER_NS,
            after_second_us: after_ns / 1000,
        }
    }
}

impl<'a> Watch<'a> {
    pub(super) fn new(beside: &'a GuestExtras, plan: &'a Plan) -> Watch<'a> {
        let (begun, first, costs) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
        Watch { beside, plan, run_ns: 0, begun, first, costs }
    }

    pub(super) fn see(&mut self, stamped: &Stamped) {
        match &stamped.event {
            Event::RunStarted { monotonic_ns, .. } => self.run_ns = *monotonic_ns,
            Event::PhaseStarted { cell, .. } if self.beside.cyclictest => {
                self.begun.insert(*cell, self.run_ns + stamped.at_ns);
                let Some(phase) = self.plan.phases.get(*cell as usize).cloned() else { return };
                let looker = thread::Builder::new().stack_size(LOOKER_BYTES);
                let looks = looker.spawn(move || cost(std::process::id(), &phase));
                self.costs.extend(looks.ok().map(|looks| (*cell, looks)));
            }
            Event::Slice(Slice { scope: Scope::Cell(cell), start_ns, .. }) => {
                self.first.entry(*cell).or_insert(self.run_ns + start_ns);
            }
            _ => {}
        }
    }

    /// What cyclictest says of a cell, and what both tools' sampling threads cost.
    pub(super) fn cyclictest(&mut self, cell: usize, stage: &Stage<'_>) -> Result<String, String> {
        let (phase, index) = (&self.plan.phases[cell], cell as u32);
        let begin = (self.begun.get(&index), self.first.get(&index));
        let (Some(&loads_ns), Some(&first_ns)) = begin else {
            return Err("rtscope's sampler did not measure this phase".to_owned());
        };
        let clock = SystemClock::MONOTONIC;
        let schedule =
            Begin { loads_ns, first_ns }.again(clock.now_ns(), phase.sampler.interval_of(0).0);
        let settings = self.plan.settings_of(phase);
        let latency_us = settings.get("dma-latency").map(String::as_str);
        let words = arguments(phase, &stage.measured, schedule.after_second_us, latency_us)?;
        let start = || {
            clock.sleep_until_ns(schedule.start_ns);
            Command::new(CYCLICTEST)
                .args(&words)
                .stdin(Stdio::null())
                .stdout(Stdio::piped())
                .stderr(Stdio::piped())
                .spawn()
                .map_err(|e| format!("{CYCLICTEST}: {e}"))
        };
        let load = || {
            clock.sleep_until_ns(schedule.loads_ns);
            stage.start_loads()
        };
        let (child, loads) = match schedule.loads_ns < schedule.start_ns {
            true => {
                let loads = load();
                (start(), loads)
            }
            false => (start(), load()),
        };
        let child = child?;
        let theirs = cost(child.id(), phase);
        let output = child.wait_with_output().map_err(|e| format!("{CYCLICTEST}: {e}"))?;
        drop(loads?);
        let said = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        if !output.status.success() {
            return Err(format!("{}: {}", output.status, said(&output.stderr).trim()));
        }
        let ours = self.costs.remove(&index).and_then(|looks| looks.join().ok()?);
        let line =
            |cost: Option<Cost>, whose| cost.map(|cost| cost.line(whose)).unwrap_or_default();
        Ok(format!(
            "{}{}# cyclictest {}\n{}",
            line(ours, OURS),
            line(theirs, THEIRS),
            words.join(" "),
            said(&output.stdout)
        ))
    }
}

/// What the sampling threads of a process cost between two looks, half a phase apart, so that neither
/// start nor end is in it. None when they did not sample in time, or were gone too soon. Both tools are
/// looked at in this one way. Two looks are all: each takes CPU time from the threads that are looked at.
fn cost(pid: u32, phase: &Phase) -> Option<Cost> {
    let tree = Tree::default();
    let sampler = &phase.sampler;
    let look = || -> Option<Cost> {
        let threads = ps::threads_of(&tree, pid);
        let samples = |thread: &&Thread| {
            let placement = &thread.placement;
            (placement.policy, placement.priority) == (sampler.policy, sampler.priority)
        };
        let used = |thread: &Thread| {
            Some(Cost { cpu_ns: thread.cpu_ns?, wakeups: thread.voluntary_switches? })
        };
        threads.iter().filter(samples).map(used).sum()
    };
    let begun = (0..LOOKS).find_map(|_| {
        thread::sleep(LOOK_EVERY);
        look().filter(|cost| cost.wakeups >= BEGUN)
    })?;
    thread::sleep(Duration::from_nanos(phase.expected().0 / 2));
    let now = look()?;
    Some(Cost {
        cpu_ns: now.cpu_ns.checked_sub(begun.cpu_ns)?,
        wakeups: now.wakeups.checked_sub(begun.wakeups).filter(|wakeups| *wakeups > 0)?,
    })
}

/// cyclictest's words for what our sampler does in a phase, begun at the same place of a second.
/// `latency_us` is what the plan asks of the CPUs' idle states, if anything.
fn arguments(
    phase: &Phase,
    cpus: &CpuSet,
    start_us: u64,
    latency_us: Option<&str>,
) -> Result<Vec<String>, String> {
    let sampler = &phase.sampler;
    let policy = match sampler.policy {
        Policy::Fifo => "fifo",
        Policy::Rr => "rr",
        other => return Err(format!("cyclictest has no counterpart to the policy {other}")),
    };
    if sampler.sleep != Sleep::Absolute || !sampler.intervals.is_empty() {
        return Err("cyclictest runs with one interval and absolute times only".to_owned());
    }
    let interval_ns = sampler.interval_of(0).0;
    let cycles = match (phase.end.cycles, phase.end.duration) {
        (Some(cycles), _) => cycles,
        (None, Some(duration)) => duration.0 / interval_ns.max(1),
        (None, None) => return Err("the phase has neither cycles nor a duration".to_owned()),
    };
    let threads = if sampler.threads == 0 { cpus.len() as u32 } else { sampler.threads };
    let words = [
        "--quiet".to_owned(),
        "--mlockall".to_owned(),
        format!("--policy={policy}"),
        format!("--priority={}", sampler.priority),
        format!("--interval={}", interval_ns / 1000),
        format!("--distance={}", sampler.distance.0 / 1000),
        format!("--loops={cycles}"),
        format!("--threads={threads}"),
        format!("--affinity={cpus}"),
        format!("--histogram={BUCKETS}"),
        format!("--secaligned={start_us}"),
        // By itself it would keep the CPUs awake, which makes their wake-ups cheaper.
        latency_us.map_or("--default-system".to_owned(), |us| format!("--latency={us}")),
    ];
    Ok(words.into())
}

#[cfg(test)]
mod tests {
    use rtscope_model::plan;

    use super::*;

    fn phase(text: &str) -> Phase {
        plan::parse("test", text).expect("a plan").phases.remove(0)
    }

    #[test]
    fn cyclictest_is_asked_for_what_the_sampler_does() {
        let text = "name = 'x'\n[sampler]\npolicy = 'fifo'\npriority = 80\ninterval = '500us'\n\
                    [[phase]]\nname = 'rest'\ncycles = 2000\n";
        let cpus: CpuSet = "0-1".parse().expect("CPUs");
        let asked = arguments(&phase(text), &cpus, 250, None).expect("asked").join(" ");
        for word in [
            "--priority=80",
            "--interval=500",
            "--loops=2000",
            "--threads=2",
            "--affinity=0-1",
            "--policy=fifo",
            "--secaligned=250",
            "--default-system",
        ] {
            assert!(asked.split(' ').any(|found| found == word), "{word}: {asked}");
        }
        let timed = text.replace("cycles = 2000", "duration = '2s'");
        let asked = arguments(&phase(&timed), &cpus, 0, Some("0")).expect("asked").join(" ");
        assert!(asked.contains("--loops=4000") && asked.contains("--latency=0"), "{asked}");
        assert!(!asked.contains("--default-system"), "{asked}");
        let ordinary = text.replace("'fifo'\npriority = 80", "'other'");
        assert!(
            arguments(&phase(&ordinary), &cpus, 0, None)
                .expect_err("no counterpart")
                .contains("other")
        );
        let relative = text.replace("priority = 80", "sleep = 'relative'");
        assert!(arguments(&phase(&relative), &cpus, 0, None).is_err());
    }

    #[test]
    fn it_stands_to_the_second_and_to_its_loads_as_ours_did() {
        const INTERVAL_NS: u64 = 500_000;
        // Loads a quarter of a second before the first expiry; loads just after it; loads five seconds before.
        for (loads_ns, first_ns) in [
            (7_250_000_000, 7_500_000_000),
            (7_500_100_000, 7_500_000_000),
            (2_100_000_000, 7_300_000_000),
            (7_000_300_000, 7_000_400_000),
        ] {
            let begin = Begin { loads_ns, first_ns };
            for now_ns in [20_000_000_000, 20_250_000_000, 20_999_999_999] {
                let schedule = begin.again(now_ns, INTERVAL_NS);
                let second_ns = (schedule.start_ns + EARLIER_NS) / SECOND_NS * SECOND_NS;
                let first = second_ns + schedule.after_second_us * 1000 + INTERVAL_NS;
                assert!(schedule.start_ns >= now_ns && schedule.loads_ns >= now_ns, "{schedule:?}");
                assert_eq!(first % SECOND_NS, first_ns % SECOND_NS, "{schedule:?}");
                assert_eq!(
                    first as i64 - schedule.loads_ns as i64,
                    first_ns as i64 - loads_ns as i64,
                    "{schedule:?}"
                );
            }
        }
    }
}
