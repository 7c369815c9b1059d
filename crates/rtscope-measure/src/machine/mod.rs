//! A plan meets the machine: which CPUs, which threads, does it fit.

mod limits;

use rtscope_model::{
    cpu::CpuSet,
    environment::Environment,
    finding::{Finding, Weight},
    plan::{CpuChoice, Phase, Pinning, Plan, Sampler, Spread, too_many_intervals},
    printable::quoted,
    schedule::{Budget, Placement, Policy},
    slice::RawSample,
};
use rtscope_sampler::{
    Beat, Offset, SessionSpec, ThreadPlan, Wake, memory_of_thread, network::NetworkSpec,
};

use crate::{RunError, load::Launcher, ps};

pub(crate) use self::limits::Limits;
use self::limits::Need;

/// One session as it will be run on this machine.
#[derive(Clone, Debug)]
pub(crate) struct SessionPlan {
    /// The cells, as indices into the plan's phases.
    pub(crate) cells: std::ops::Range<usize>,
    pub(crate) measured: CpuSet,
    /// Where the control thread runs: off the measured CPUs where there are others.
    pub(crate) control: CpuSet,
    pub(crate) spec: SessionSpec,
}

/// Seconds of samples that a raw ring holds: the control thread may be held up so long.
const RAW_SECONDS: u64 = 3;

/// Lays the plan out on the machine.
///
/// # Errors
///
/// A CPU that doesn't exist or is offline, no CPU at all, intervals that no thread would take, or a limit of
/// the system that is too low.
pub(crate) fn lay_out(
    plan: &Plan,
    machine: &Environment,
    limits: &Limits,
) -> Result<Vec<SessionPlan>, RunError> {
    let mut first_thread = 0;
    let mut sessions = Vec::new();
    for cells in plan.sessions() {
        let sampler = &plan.phases[cells.start].sampler;
        let measured = measured_cpus(&sampler.cpus, machine)?;
        let mut spec = session_spec(sampler, &measured, first_thread, cells.len() as u32);
        if sampler.intervals.len() > spec.threads.len() {
            let (intervals, threads) = (sampler.intervals.len(), spec.threads.len() as u32);
            return Err(RunError::Intervals(too_many_intervals(intervals, threads)));
        }
        first_thread += spec.threads.len() as u32;
        let has_frames = sampler.network.path().is_some();
        limits.check(&need(&spec, first_thread, has_frames)).map_err(RunError::Limit)?;
        let others = machine.cpus.usable().without(&measured);
        let control = if others.is_empty() { machine.cpus.allowed.clone() } else { others };
        spec.network = sampler
            .network
            .path()
            .map(|path| NetworkSpec { path: path.clone(), peer_cpus: control.clone() });
        sessions.push(SessionPlan { cells, measured, control, spec });
    }
    Ok(sessions)
}

fn measured_cpus(choice: &CpuChoice, machine: &Environment) -> Result<CpuSet, RunError> {
    let usable = machine.cpus.usable();
    if usable.is_empty() {
        return Err(RunError::NoCpu);
    }
    match choice {
        CpuChoice::All => Ok(usable),
        CpuChoice::Last => Ok(usable.last().into_iter().collect()),
        CpuChoice::These(set) => {
            let absent = set.without(&machine.cpus.online);
            if absent.is_empty() {
                return Ok(set.clone());
            }
            Err(RunError::NoSuchCpu { absent, online: machine.cpus.online.clone() })
        }
    }
}

fn session_spec(
    sampler: &Sampler,
    measured: &CpuSet,
    first_thread: u32,
    cells: u32,
) -> SessionSpec {
    let cpus: Vec<u32> = measured.iter().collect();
    let count = if sampler.threads == 0 { cpus.len() as u32 } else { sampler.threads };
    let threads = (0..count).map(|n| {
        let interval = sampler.interval_of(n);
        let own = match sampler.placement {
            Pinning::Pinned => [cpus[n as usize % cpus.len()]].into_iter().collect(),
            Pinning::Free => measured.clone(),
        };
        let asked = placement(sampler, interval.0, own);
        ThreadPlan { thread: first_thread + n, asked, interval_ns: interval.0 }
    });
    let threads: Vec<ThreadPlan> = threads.collect();
    let shortest_ns = threads.iter().map(|t| t.interval_ns).min().unwrap_or(1);
    let samples = (RAW_SECONDS * 1_000_000_000 / shortest_ns).max(1024) as usize;
    SessionSpec {
        layout: sampler.layout(),
        slice_ns: sampler.slice.0,
        clock: sampler.clock,
        beat: Beat {
            // Before the start this is the distance between two threads' first expiries.
            first_ns: sampler.stagger.0,
            interval_ns: sampler.interval_of(0).0,
            offset: offset(sampler),
            sleep: sampler.sleep,
            overrun: sampler.overrun,
            break_above_ns: if sampler.break_above.0 == 0 {
                u64::MAX
            } else {
                sampler.break_above.0
            },
            raw_from_ns: 0,
        },
        raw_capacity: if sampler.raw { samples } else { 0 },
        wake: Wake::default(),
        timer_slack_ns: Some(1),
        marker: None,
        cells,
        one_cell: false,
        network: None,
        name_holder: ps::holder,
        threads,
    }
}

/// How much later than its instant an activation is due, by the plan.
fn offset(sampler: &Sampler) -> Offset {
    match sampler.spread {
        Spread::None | Spread::Even => Offset::None,
        Spread::Part(percent) => {
            Offset::Spread { percent: u64::from(percent), seed: sampler.spread_seed }
        }
    }
}

fn placement(sampler: &Sampler, interval_ns: u64, cpus: CpuSet) -> Placement {
    let policy = sampler.policy;
    let fair = matches!(policy, Policy::Other | Policy::Batch);
    let budget = (policy == Policy::Deadline).then(|| Budget {
        // The kernel refuses budgets below about a microsecond.
        runtime_ns: if sampler.runtime.0 > 0 {
            sampler.runtime.0
        } else {
            (interval_ns / 10).max(2_000)
        },
        deadline_ns: interval_ns,
        period_ns: interval_ns,
    });
    Placement {
        policy,
        priority: if policy.has_priority() { sampler.priority } else { 0 },
        nice: if fair { sampler.nice } else { 0 },
        budget,
        cpus,
    }
}

/// What a session needs, when the plan has `threads` threads up to its end.
fn need(spec: &SessionSpec, threads: u32, has_frames: bool) -> Need {
    let own = spec.threads.len() as u64;
    let raw = spec.raw_capacity as u64 * size_of::<RawSample>() as u64;
    let files = if spec.raw_capacity > 0 { 2 } else { 1 };
    let memory = memory_of_thread(spec.layout, own as usize, has_frames);
    Need {
        threads: own,
        memory_bytes: own.saturating_mul(memory + raw),
        files: u64::from(threads) * files,
    }
}

/// Whether the loads of all phases could start, as far as that is known before they do: a mistake in
/// the last phase is not to show after hours.
///
/// # Errors
///
/// The first load that could not.
pub(crate) fn loads_can_start(
    plan: &Plan,
    sessions: &[SessionPlan],
    launcher: &mut Launcher,
) -> Result<(), RunError> {
    for session in sessions {
        launcher.measured = session.measured.clone();
        for phase in &plan.phases[session.cells.clone()] {
            for line in &phase.loads {
                launcher.can_start(line).map_err(|why| RunError::Load {
                    line: line.to_string(),
                    phase: phase.name.clone(),
                    why,
                })?;
            }
        }
    }
    Ok(())
}

/// Leaves out the phases whose loads run beside the measured CPUs (`cpus=others`), on a machine with a single CPU:
/// nothing is beside it. The other phases are measured all the same. None when all stay.
pub(crate) fn leave_out(plan: &mut Plan, usable: &CpuSet) -> Option<Finding> {
    let is_beside = |phase: &Phase| {
        phase.loads.iter().any(|line| line.options.get("cpus").is_some_and(|cpus| cpus == "others"))
    };
    if usable.len() != 1 || plan.phases.iter().all(is_beside) {
        return None;
    }
    let (left_out, kept): (Vec<Phase>, Vec<Phase>) =
        std::mem::take(&mut plan.phases).into_iter().partition(is_beside);
    plan.phases = kept;
    if left_out.is_empty() {
        return None;
    }
    let is_left_out = |name: &str| left_out.iter().any(|phase| phase.name == name);
    plan.published.retain(|one| !one.subject.as_deref().is_some_and(is_left_out));
    let names: Vec<String> = left_out.iter().map(|phase| quoted(&phase.name)).collect();
    let text = format!(
        "phases left out, because their loads run on CPUs other than the measured one, and there is only one CPU: {}",
        names.join(", ")
    );
    Some(Finding::new("phases-left-out", Weight::Warning, text))
}

/// That CPUs that run are not measured, because this process may not use them unless they are named: it is in somebody's
/// shield, under `taskset`, or they are isolated.
pub(crate) fn not_allowed(plan: &Plan, machine: &Environment) -> Option<Finding> {
    let named = |phase: &Phase| match &phase.sampler.cpus {
        CpuChoice::These(cpus) => Some(cpus.clone()),
        CpuChoice::All | CpuChoice::Last => None,
    };
    let left = machine.cpus.online.without(&machine.cpus.allowed);
    let left = plan.phases.iter().filter_map(named).fold(left, |left, cpus| left.without(&cpus));
    if left.is_empty() || plan.phases.iter().all(|phase| named(phase).is_some()) {
        return None;
    }
    let text = format!(
        "this process may run on CPUs {} only: CPUs {left} are measured only if they are named",
        machine.cpus.allowed
    );
    let advice = format!(
        "if they are isolated, name them: --cpus {left}; otherwise check for a shield (`rtscope tune status`), a cpuset or \
         taskset"
    );
    Some(Finding::new("cpus-not-allowed", Weight::Note, text).advise(advice))
}

/// Whether a phase's loads may hold every CPU against an ordinary thread: then the control thread
/// must run above them, or it could not end them.
pub(crate) fn real_time_load_priority(phases: &[Phase]) -> Option<u8> {
    let lines = phases.iter().flat_map(|phase| &phase.loads);
    let priorities = lines.filter_map(|line| {
        let policy: Policy = line.options.get("policy")?.parse().ok()?;
        let priority = line.options.get("priority").and_then(|p| p.parse().ok()).unwrap_or(1);
        policy.has_priority().then_some(priority)
    });
    priorities.max()
}

#[cfg(test)]
mod tests {
    use rtscope_model::plan;

    use super::*;

    #[test]
    fn cpus_that_this_process_may_not_use_are_told_unless_others_are_named() {
        let told = |cpus: &str| not_allowed(&plan(&format!("cpus = \"{cpus}\"")), &machine());
        let found = told("all").expect("CPU 3 is left");
        assert!(found.text.contains("0-2 only") && found.advice.contains("--cpus 3"), "{found:?}");
        assert!(told("last").is_some() && told("1").is_none());
    }

    fn machine() -> Environment {
        let mut machine = Environment::default();
        machine.cpus.online = "0-3".parse().expect("a set");
        machine.cpus.allowed = "0-2".parse().expect("a set");
        machine
    }

    fn plan(sampler: &str) -> Plan {
        let text =
            format!("name = 'x'\n[sampler]\n{sampler}\n[[phase]]\nname = 'p'\nduration = '1s'\n");
        plan::parse("x", &text).expect("a plan")
    }

    #[test]
    fn isolated_cpus_are_measured_when_named() {
        let all = lay_out(&plan(""), &machine(), &Limits::default()).expect("fits");
        assert_eq!(all[0].measured.to_string(), "0-2");
        let named = lay_out(&plan("cpus = '3'"), &machine(), &Limits::default()).expect("fits");
        assert_eq!(
            (named[0].measured.to_string(), named[0].control.to_string()),
            ("3".into(), "0-2".into())
        );
    }

    #[test]
    fn with_one_cpu_only_the_phases_beside_it_are_left_out() {
        let text = "name = 'x'\n[sampler]\ncpus = 'last'\n[matrix]\nduration = '1s'\n\
                    load = ['none', 'cpu', 'cpu cpus=others']\n[[published]]\nload = 'cpu'\n\
                    figures = { max = '1us' }\nsource = 's'\n";
        let parse = || plan::parse("x", text).expect("a plan");
        let mut all = parse();
        assert_eq!(leave_out(&mut all, &machine().cpus.usable()), None);
        assert_eq!(all, parse());
        let mut one = machine();
        one.cpus.allowed = "2".parse().expect("a set");
        let found = leave_out(&mut all, &one.cpus.usable()).expect("a finding");
        assert_eq!((found.code.as_str(), all.phases.len()), ("phases-left-out", 2));
        assert!(found.text.ends_with(&quoted(&parse().phases[2].name)), "{}", found.text);
        // What is left can be run, and its text read back.
        let sessions = lay_out(&all, &one, &Limits::default()).expect("fits");
        let online = one.cpus.online.clone();
        let mut launcher =
            Launcher { online, ..Launcher::new(CpuSet::default(), one.cpus.allowed.clone()) };
        assert!(loads_can_start(&all, &sessions, &mut launcher).is_ok());
        assert_eq!(plan::parse_kept("x", &all.to_toml()), Ok(all));
        // A plan of nothing else is refused, as before.
        let mut beside = parse();
        beside.phases.drain(..2);
        assert_eq!(leave_out(&mut beside, &one.cpus.usable()), None);
        assert_eq!(beside.phases.len(), 1);
    }

    #[test]
    fn threads_share_cpus_round_robin() {
        let laid = lay_out(
            &plan("threads = 4\ncpus = '1-2'\ndistance = '500us'"),
            &machine(),
            &Limits::default(),
        )
        .expect("fits");
        let threads = &laid[0].spec.threads;
        let cpus: Vec<String> = threads.iter().map(|t| t.asked.cpus.to_string()).collect();
        assert_eq!(cpus, ["1", "2", "1", "2"]);
        let intervals: Vec<u64> = threads.iter().map(|t| t.interval_ns / 1000).collect();
        assert_eq!(intervals, [1000, 1500, 2000, 2500]);
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        let refused = |sampler| {
            lay_out(&plan(sampler), &machine(), &Limits::default())
                .expect_err("refused")
                .to_string()
        };
        assert!(refused("cpus = '2-5'").contains("CPUs 4-5"), "{}", refused("cpus = '2-5'"));
        let four = refused("intervals = ['1ms', '2ms', '3ms', '4ms']");
        assert!(four.contains("4 values for 3 threads"), "{four}");
    }

    #[test]
    fn without_a_cpu_nothing_is_measured() {
        for sampler in ["", "threads = 2", "cpus = 'last'"] {
            let refused = lay_out(&plan(sampler), &Environment::default(), &Limits::default());
            let refused = refused.expect_err("refused").to_string();
            assert!(refused.contains("no CPU was found"), "{refused}");
        }
    }

    #[test]
    fn a_thousand_threads_need_less_than_half_a_gibibyte_of_slots() {
        let laid = lay_out(&plan("threads = 1024"), &machine(), &Limits::default()).expect("fits");
        let need = need(&laid[0].spec, 1024, false);
        assert_eq!((need.threads, need.files), (1024, 1024));
        assert!((300 << 20..600 << 20).contains(&need.memory_bytes), "{}", need.memory_bytes);
        let raw = lay_out(&plan("raw = true"), &machine(), &Limits::default()).expect("fits");
        assert_eq!(super::need(&raw[0].spec, 3, false).files, 6);
    }

    #[test]
    fn a_load_that_could_not_start_is_named_before_anything_is_measured() {
        let refused = |load: &str| {
            let mut plan = plan("cpus = '0-1'");
            plan.phases[0].loads = vec![load.parse().expect("a line")];
            let sessions = lay_out(&plan, &machine(), &Limits::default()).expect("fits");
            let all: CpuSet = "0-2".parse().expect("a set");
            let mut launcher =
                Launcher { online: machine().cpus.online, ..Launcher::new(CpuSet::default(), all) };
            match loads_can_start(&plan, &sessions, &mut launcher) {
                Ok(()) => String::new(),
                Err(e) => e.to_string(),
            }
        };
        for sound in ["cpu cpus=2-3", "fork cpus=others", "external log=x -- true", "disk dir=/tmp"]
        {
            assert_eq!(refused(sound), "");
        }
        assert_eq!(
            refused("cpu cpus=3-5"),
            "load \"cpu cpus=3-5\" of phase \"p\" can't start on this machine: CPUs 4-5 are not online: \
             this machine has CPUs 0-3; name other CPUs with cpus="
        );
        for (load, said) in [
            ("external -- nosuchcommand -x", "command \"nosuchcommand\" was not found: install it"),
            ("external log=/nonexistent/log -- true", "name another with log="),
            ("disk dir=/nonexistent", "/nonexistent: No such file or directory"),
            ("disk dir=/dev/null", "/dev/null: Not a directory"),
        ] {
            assert!(refused(load).contains(said), "{load}: {}", refused(load));
        }
    }
}
