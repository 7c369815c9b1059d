//! What a guest does beside its plan: modules and a GPIO chip before it; after it, cyclictest and a
//! tracer of the kernel, each under the same loads as the phase.
//!
//! cyclictest runs after our sampler and not at the same time: two threads of one priority would
//! measure each other. Both see the same kernel, interval, priority, number of cycles and loads, and
//! both start at the same place of a second: wake-ups that coincide with the kernel's tick are later
//! than others, and how many do is decided by where a run begins.

use std::{
    collections::BTreeMap,
    fs,
    path::Path,
    process::{Command, Stdio},
    thread::{self, JoinHandle},
    time::Duration,
};

use rtscope_model::{
    cpu::CpuSet,
    event::{Event, Stamped},
    guest::{self, Beside, Cost, OURS, THEIRS, Tracer},
    plan::{CpuChoice, Phase, Plan, Sleep},
    schedule::{Placement, Policy},
    slice::{Scope, Slice},
    thread::Thread,
    time::Nanos,
};
use rtscope_sys::{module, sched, tree::Tree};

use super::{RECORD, gpio, say};
use crate::{inspect, load::Launcher, machine::real_time_load_priority};

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

/// How much longer than its phase a load may run.
const LOAD_GRACE_NS: u64 = 60_000_000_000;

/// The places of the kernel's tracing files: its own file system, or within the debug one.
const TRACING: [&str; 2] = ["/sys/kernel/tracing", "/sys/kernel/debug/tracing"];

/// What cyclictest's run beside the plan needs of the plan's own, seen in its events.
#[derive(Debug)]
pub(super) struct Watch<'a> {
    beside: &'a Beside,
    plan: &'a Plan,
    run_ns: u64,
    /// Where in a second of `CLOCK_MONOTONIC` the wake-ups of each cell began.
    starts: BTreeMap<u32, u64>,
    /// Who looks at what our sampling threads cost in each cell.
    costs: BTreeMap<u32, JoinHandle<Option<Cost>>>,
}

impl<'a> Watch<'a> {
    pub(super) fn new(beside: &'a Beside, plan: &'a Plan) -> Watch<'a> {
        Watch { beside, plan, run_ns: 0, starts: BTreeMap::new(), costs: BTreeMap::new() }
    }

    /// Takes note of an event.
    pub(super) fn see(&mut self, stamped: &Stamped) {
        match &stamped.event {
            Event::RunStarted { monotonic_ns, .. } => self.run_ns = *monotonic_ns,
            Event::PhaseStarted { cell, .. } if self.beside.cyclictest => {
                let Some(phase) = self.plan.phases.get(*cell as usize).cloned() else { return };
                let looker = thread::Builder::new().stack_size(LOOKER_BYTES);
                let looks = looker.spawn(move || cost(std::process::id(), &phase));
                self.costs.extend(looks.ok().map(|looks| (*cell, looks)));
            }
            Event::Slice(Slice { scope: Scope::Cell(cell), start_ns, .. }) => {
                self.starts.entry(*cell).or_insert(self.run_ns + start_ns);
            }
            _ => {}
        }
    }

    /// Microseconds after the full second; 0 for a cell that had no slice.
    fn after_second_us(&self, cell: usize) -> u64 {
        self.starts.get(&(cell as u32)).map_or(0, |ns| ns % 1_000_000_000 / 1000)
    }

    /// What our sampling threads cost in a cell.
    fn cost(&mut self, cell: usize) -> Option<Cost> {
        self.costs.remove(&(cell as u32))?.join().ok()?
    }
}

/// What the lab asks beside the plan; nothing when there is no such file.
pub(super) fn read() -> Result<Beside, String> {
    match fs::read_to_string(Path::new("/").join(guest::PATH)) {
        Ok(text) => Beside::parse(&text),
        Err(_) => Ok(Beside::default()),
    }
}

/// Loads modules, and makes and tries the GPIO chip: what that showed.
pub(super) fn before(beside: &Beside) -> Result<Option<String>, String> {
    for path in &beside.modules {
        module::load(&Path::new("/").join(path)).map_err(|e| e.to_string())?;
    }
    beside.gpio_lines.map(gpio::make_and_try).transpose()
}

/// Measures each phase once more by cyclictest, and traces it. A file of the record says what could
/// not be done; the record of the plan itself is whole whatever happens here.
pub(super) fn after(mut watch: Watch<'_>) {
    let (beside, plan) = (watch.beside, watch.plan);
    let mut failures = String::new();
    for (cell, phase) in plan.phases.iter().enumerate() {
        if beside.cyclictest {
            say(&format!("cyclictest {}/{} {}", cell + 1, plan.phases.len(), phase.name));
            let start_us = watch.after_second_us(cell);
            let settings = plan.settings_of(phase);
            let latency_us = settings.get("dma-latency").map(String::as_str);
            let said = under_loads(phase, |cpus| cyclictest(phase, cpus, start_us, latency_us));
            let ours = watch.cost(cell).map(|cost| cost.line(OURS)).unwrap_or_default();
            let said = said.map(|said| ours + &said);
            keep("cyclictest", cell, phase, said, &mut failures);
        }
        if let Some(tracer) = beside.tracer {
            say(&format!("{tracer} {}/{} {}", cell + 1, plan.phases.len(), phase.name));
            let said = under_loads(phase, |_| trace(tracer, phase));
            keep(tracer.name(), cell, phase, said, &mut failures);
        }
    }
    if !failures.is_empty() {
        write(guest::FAILURES, &failures, &mut String::new());
    }
}

/// Writes what was said beside the record.
fn keep(
    kind: &str,
    cell: usize,
    phase: &Phase,
    said: Result<String, String>,
    failures: &mut String,
) {
    match said {
        Ok(text) => write(&guest::phase_file(kind, cell), &text, failures),
        Err(why) => {
            say(&format!("{kind} of {}: {why}", phase.name));
            failures.push_str(&format!("{kind} of {}: {why}\n", phase.name));
        }
    }
}

/// Writes a file of the record.
pub(super) fn write(name: &str, text: &str, failures: &mut String) {
    let path = Path::new(RECORD).join(name);
    let parent = path.parent().unwrap_or(Path::new(RECORD));
    if let Err(e) = fs::create_dir_all(parent).and_then(|()| fs::write(&path, text)) {
        failures.push_str(&format!("{name}: {e}\n"));
    }
}

/// Does something while the loads of a phase run; the loads are stopped after it.
fn under_loads(
    phase: &Phase,
    act: impl FnOnce(&CpuSet) -> Result<String, String>,
) -> Result<String, String> {
    let all = sched::affinity(sched::SELF).map_err(|e| e.to_string())?;
    let measured = match &phase.sampler.cpus {
        CpuChoice::All => all.clone(),
        CpuChoice::Last => all.last().into_iter().collect(),
        CpuChoice::These(set) => set.clone(),
    };
    let before = sched::placement(sched::SELF).map_err(|e| e.to_string())?;
    // Above loads of real-time priority, so that it can end them.
    if let Some(priority) = real_time_load_priority(std::slice::from_ref(phase)) {
        let priority = (priority + 1).min(99);
        let above = Placement { policy: Policy::Fifo, priority, nice: 0, ..before.clone() };
        sched::set_policy(sched::SELF, &above).map_err(|e| e.to_string())?;
    }
    let launcher = Launcher::new(measured.clone(), all);
    let limit = Nanos(phase.expected().0.saturating_mul(4).saturating_add(LOAD_GRACE_NS));
    let loads: Result<Vec<_>, String> = phase
        .loads
        .iter()
        .map(|line| launcher.start(line, limit).map_err(|e| format!("load {}: {e}", line.name)))
        .collect();
    let said = loads.and_then(|loads| {
        thread::sleep(Duration::from_nanos(phase.settle.0));
        let said = act(&measured);
        drop(loads);
        said
    });
    let _ = sched::set_policy(sched::SELF, &before);
    said
}

/// What cyclictest says of a phase, and what its sampling threads cost.
fn cyclictest(
    phase: &Phase,
    cpus: &CpuSet,
    start_us: u64,
    latency_us: Option<&str>,
) -> Result<String, String> {
    let words = words(phase, cpus, start_us, latency_us)?;
    let child = Command::new(CYCLICTEST)
        .args(&words)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|e| format!("{CYCLICTEST}: {e}"))?;
    let cost = cost(child.id(), phase);
    let output = child.wait_with_output().map_err(|e| format!("{CYCLICTEST}: {e}"))?;
    let said = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    if !output.status.success() {
        return Err(format!("{}: {}", output.status, said(&output.stderr).trim()));
    }
    let cost = cost.map(|cost| cost.line(THEIRS)).unwrap_or_default();
    Ok(format!("{cost}# cyclictest {}\n{}", words.join(" "), said(&output.stdout)))
}

/// What the sampling threads of a process cost between two looks, half a phase apart, so that neither
/// start nor end is in it. None when they did not sample in time, or were gone too soon. Both tools are
/// looked at in this one way. Two looks are all: each takes CPU time from the threads that are looked at.
fn cost(pid: u32, phase: &Phase) -> Option<Cost> {
    let tree = Tree::default();
    let sampler = &phase.sampler;
    let look = || -> Option<Cost> {
        let threads = inspect::threads_of(&tree, pid);
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
fn words(
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
    let interval_us = sampler.interval.0 / 1000;
    let cycles = match (phase.end.cycles, phase.end.duration) {
        (Some(cycles), _) => cycles,
        (None, Some(duration)) => duration.0 / sampler.interval.0.max(1),
        (None, None) => return Err("the phase has neither cycles nor a duration".to_owned()),
    };
    let threads = if sampler.threads == 0 { cpus.len() as u32 } else { sampler.threads };
    let words = [
        "--quiet".to_owned(),
        "--mlockall".to_owned(),
        format!("--policy={policy}"),
        format!("--priority={}", sampler.priority),
        format!("--interval={interval_us}"),
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

/// What a tracer of the kernel says in as much time as a phase takes.
fn trace(tracer: Tracer, phase: &Phase) -> Result<String, String> {
    let folder = TRACING.into_iter().map(Path::new).find(|f| f.join("current_tracer").exists());
    let folder = folder.ok_or("the kernel has no tracing: it needs CONFIG_FTRACE")?;
    let put = |name: &str, text: &str| {
        fs::write(folder.join(name), text).map_err(|e| format!("{name}: {e}"))
    };
    let known = fs::read_to_string(folder.join("available_tracers")).unwrap_or_default();
    if !known.split_whitespace().any(|name| name == tracer.name()) {
        let option = tracer.name().to_uppercase();
        return Err(format!("the kernel lacks CONFIG_{option}_TRACER; it has {}", known.trim()));
    }
    put("trace", "")?;
    put("current_tracer", tracer.name())?;
    put("tracing_on", "1")?;
    thread::sleep(Duration::from_nanos(phase.expected().0));
    put("tracing_on", "0")?;
    let text = fs::read_to_string(folder.join("trace")).map_err(|e| format!("trace: {e}"));
    put("current_tracer", "nop")?;
    text
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
        let asked = words(&phase(text), &cpus, 250, None).expect("asked").join(" ");
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
        let asked = words(&phase(&timed), &cpus, 0, Some("0")).expect("asked").join(" ");
        assert!(asked.contains("--loops=4000") && asked.contains("--latency=0"), "{asked}");
        assert!(!asked.contains("--default-system"), "{asked}");
        let ordinary = text.replace("'fifo'\npriority = 80", "'other'");
        assert!(
            words(&phase(&ordinary), &cpus, 0, None).expect_err("no counterpart").contains("other")
        );
        let relative = text.replace("priority = 80", "sleep = 'relative'");
        assert!(words(&phase(&relative), &cpus, 0, None).is_err());
    }

    #[test]
    fn a_guest_without_further_wishes_does_nothing() {
        assert_eq!(before(&Beside::default()), Ok(None));
    }
}
