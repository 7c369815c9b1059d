//! Rules about what else ran on the machine: the hypervisor, other real-time threads, the scheduler's
//! own limit.

use std::collections::BTreeSet;

use rtscope_model::{
    environment::RealTimeThread,
    event::Event,
    finding::{Finding, Weight},
    guest::VirtualTime,
    record::ThreadRecord,
    schedule::Policy,
    time::Nanos,
};

use super::{Scene, listed, thread::rank};
use crate::statistics::machine_use::spans_of;

/// Share of a CPU's time that a hypervisor may take: above it, stolen time is seen as latency.
const STEAL_SHARE: f64 = 0.001;

/// A hypervisor took a measured CPU away.
pub(super) fn steal_time(scene: &Scene) -> Option<Finding> {
    let measured = scene.measured_cpus();
    let mut stolen = Vec::new();
    for cell in scene.cells {
        let spans = spans_of(scene.record, cell.cell);
        let wall_ns: u64 = spans.iter().map(|span| span.span_ns).sum();
        for cpu in measured.iter() {
            let on_cpu = spans.iter().flat_map(|span| &span.cpus).filter(|span| span.cpu == cpu);
            let steal_ns: u64 = on_cpu.map(|span| span.steal_ns).sum();
            let share = steal_ns as f64 / wall_ns.max(1) as f64;
            if share > STEAL_SHARE {
                let percent = share * 100.0;
                stolen.push(format!(
                    "{percent:.2} % of CPU {cpu} in {} ({} of {})",
                    cell.name,
                    Nanos(steal_ns),
                    Nanos(wall_ns)
                ));
            }
        }
    }
    let places = listed(stolen)?;
    let text = format!("the hypervisor took CPU time away: {places}");
    let advice = "measure on the machine itself, or give the guest CPUs of its own";
    Some(Finding::new("steal-time", Weight::PreventsPass, text).advise(advice))
}

/// Real-time threads that run before the sampler, or in turn with it, on its CPUs: those that were
/// there before the run, those that came up since, and those of the plan's own loads.
pub(super) fn competing_threads(scene: &Scene) -> Option<Finding> {
    let names = competitors(scene)?;
    let text = format!("other threads may run before the sampler on its CPUs: {names}");
    Some(Finding::new("competing-threads", Weight::PreventsPass, text).advise(AGAINST_COMPETITORS))
}

/// What to do against threads that run before the sampler.
pub(super) const AGAINST_COMPETITORS: &str =
    "stop them, move them to other CPUs, or sample at a higher priority";

/// The names of the threads that run before the sampler, or in turn with it, on its CPUs.
pub(super) fn competitors(scene: &Scene) -> Option<String> {
    let here: Vec<&RealTimeThread> = scene.before()?.real_time_threads.iter().collect();
    let old =
        here.iter().filter(|thread| competes(thread, &scene.record.threads)).map(|t| named(t));
    let mut places: Vec<String> = old.collect();
    for stamped in &scene.record.events {
        let Event::NewRealTimeThreads(new) = &stamped.event else { continue };
        let samplers = scene.threads_of(new.cell);
        let mut competing = new.threads.iter().filter(|thread| competes(thread, samplers.clone()));
        match new.load {
            Some(load) => places.extend(competing.next().map(|first| {
                let line = scene.load_line(new.cell, load);
                format!("{line} ({} threads, the highest {})", new.count, rank_words(first))
            })),
            None => places.extend(competing.map(|t| format!("{} since the run began", named(t)))),
        }
    }
    let mut told = BTreeSet::new();
    places.retain(|place| told.insert(place.clone()));
    listed(places)
}

/// Whether a thread may run before one of these sampling threads, or in turn with it.
fn competes<'a>(
    other: &RealTimeThread,
    samplers: impl IntoIterator<Item = &'a ThreadRecord>,
) -> bool {
    !is_stopper(other)
        && samplers.into_iter().any(|ours| {
            let ours = &ours.found;
            // Below the real-time policies, the kernel's own threads are part of what is measured.
            let expected = other.kernel && !ours.policy.is_real_time();
            !expected
                && rank(other.policy, other.priority) >= rank(ours.policy, ours.priority)
                && !other.cpus.common(&ours.cpus).is_empty()
        })
}

/// `jackd (812, fifo 70)`; a thread of another rtscope is told as such.
fn named(thread: &RealTimeThread) -> String {
    let RealTimeThread { name, tid, pid, .. } = thread;
    let whose = match thread.process.as_deref() {
        Some("rtscope") => format!(" of another rtscope, process {pid}"),
        Some(process) => format!(" of {process}, process {pid}"),
        None => String::new(),
    };
    format!("{name} ({tid}{whose}, {})", rank_words(thread))
}

fn rank_words(thread: &RealTimeThread) -> String {
    match thread.policy {
        Policy::Deadline => thread.policy.to_string(),
        policy => format!("{policy} {}", thread.priority),
    }
}

/// The kernel's stopper and watchdog threads have the highest priority on every Linux machine and
/// run briefly or never: they belong to the system under test.
fn is_stopper(thread: &RealTimeThread) -> bool {
    let name = thread.name.split('/').next().unwrap_or_default();
    thread.kernel && ["migration", "stopper", "watchdog", "watchdogd"].contains(&name)
}

/// The machine's time is not its own. In virtual time the host has no part in it.
pub(super) fn virtual_machine(scene: &Scene) -> Option<Finding> {
    if scene.record.virtual_time.is_some() {
        return None;
    }
    let text = scene.symptom("virtual-machine")?;
    let advice = "these figures hold for this guest and host: measure the real machine";
    Some(Finding::new("virtual-machine", Weight::PreventsPass, text).advise(advice))
}

/// What time that passes by instructions leaves out.
pub(super) fn virtual_time(scene: &Scene) -> Option<Finding> {
    let VirtualTime { shift } = scene.record.virtual_time?;
    let instruction_ns = 1_u64.checked_shl(u32::from(shift))?;
    let text = format!(
        "virtual time advanced by {instruction_ns} ns per instruction, so the host could not delay this guest; caches, \
         the memory bus and real devices don't affect the figures"
    );
    Some(Finding::new("virtual-time", Weight::Note, text))
}

/// A container measures its host's kernel.
pub(super) fn container(scene: &Scene) -> Option<Finding> {
    let text = scene.symptom("container")?;
    Some(Finding::new("container", Weight::Note, text))
}

/// The scheduler throttled real-time threads during the run.
pub(super) fn throttled(scene: &Scene) -> Option<Finding> {
    let times = scene.record.events.iter().filter_map(|stamped| match &stamped.event {
        Event::System(span) => span.throttled,
        _ => None,
    });
    let times = Some(times.sum::<u64>()).filter(|&times| times > 0)?;
    let text = format!("real-time threads were throttled {times} times during the run");
    let advice = "switch it off for the run with --set throttling=off, or let real-time loads \
        sleep";
    Some(Finding::new("throttled", Weight::PreventsPass, text).advise(advice))
}

#[cfg(test)]
mod tests {
    use rtscope_model::other_work::NewRealTimeThreads;

    use super::{
        super::tests::{all, good, only},
        *,
    };
    use crate::test_support::Run;

    fn real_time(name: &str, policy: Policy, priority: u8, cpus: &str) -> RealTimeThread {
        RealTimeThread {
            pid: 7,
            tid: 8,
            name: name.to_owned(),
            process: None,
            policy,
            priority,
            cpus: cpus.parse().expect("a set"),
            kernel: false,
        }
    }

    fn thread(name: &str, policy: Policy, priority: u8, cpus: &str, kernel: bool) -> Run {
        let thread = RealTimeThread { kernel, ..real_time(name, policy, priority, cpus) };
        good().machine(|machine| machine.real_time_threads = vec![thread.clone()])
    }

    #[test]
    fn stolen_time_is_a_share_of_a_cell() {
        let stolen = |cpu: usize, steal_ns: u64| {
            let mut first = true;
            good().edit(move |event| {
                if let Event::System(span) = event
                    && std::mem::take(&mut first)
                {
                    span.cpus[cpu].steal_ns = steal_ns;
                }
            })
        };
        // A cell takes 2 s: 2 ms are a thousandth.
        assert_eq!(all(&stolen(1, 2_000_000)), []);
        assert_eq!(
            only(&stolen(1, 20_000_000), "steal-time", Weight::PreventsPass),
            "the hypervisor took CPU time away: 1.00 % of CPU 1 in rest (20 ms of 2 s)"
        );
        let unmeasured = good().edit(|event| {
            if let Event::System(span) = event {
                span.cpus[0].cpu = 2;
                span.cpus[0].steal_ns = 1_000_000_000;
            }
        });
        assert_eq!(all(&unmeasured), []);
    }

    #[test]
    fn a_competing_thread_is_one_that_may_run_first() {
        let fires = |run: &Run| !all(run).is_empty();
        let text = only(
            &thread("irq-hog", Policy::Fifo, 90, "0-3", false),
            "competing-threads",
            Weight::PreventsPass,
        );
        assert!(text.ends_with(": irq-hog (8, fifo 90)"), "{text}");
        assert!(fires(&thread("late", Policy::Deadline, 0, "0", false)));
        assert!(fires(&thread("irq/9-acpi", Policy::Fifo, 95, "1", true)));
        assert!(!fires(&thread("slower", Policy::Rr, 89, "0-3", false)));
        assert!(!fires(&thread("elsewhere", Policy::Fifo, 99, "2", false)));
        assert!(!fires(&thread("migration/0", Policy::Fifo, 99, "0", true)));
        assert!(fires(&thread("migration/0", Policy::Fifo, 99, "0", false)), "not the kernel's");
    }

    /// The good run, in which these threads came up in cell 1.
    fn with_new(load: Option<u32>, count: u32, thread: RealTimeThread) -> Run {
        let threads = vec![thread];
        good().happens(Event::NewRealTimeThreads(NewRealTimeThreads {
            cell: 1,
            load,
            threads,
            count,
        }))
    }

    #[test]
    fn the_loads_of_the_plan_compete_too() {
        let low = |run: Run| {
            run.edit(|event| {
                if let Event::ThreadPlaced { asked, found, .. } = event {
                    (asked.priority, found.priority) = (5, 5);
                }
            })
        };
        let hackbench = || with_new(Some(0), 400, real_time("rtscope", Policy::Fifo, 49, "0-1"));
        assert_eq!(all(&hackbench()), [], "the sampler is at 90");
        assert_eq!(
            only(&low(hackbench()), "competing-threads", Weight::PreventsPass),
            "other threads may run before the sampler on its CPUs: message groups=1 (400 threads, \
             the highest fifo 49)"
        );
    }

    #[test]
    fn a_thread_that_came_up_since_and_that_of_another_rtscope_are_told() {
        let jackd = with_new(None, 1, real_time("jackd", Policy::Fifo, 95, "1"));
        let text = only(&jackd, "competing-threads", Weight::PreventsPass);
        assert!(text.ends_with(": jackd (8, fifo 95) since the run began"), "{text}");
        let process = Some("rtscope".to_owned());
        let theirs = RealTimeThread { process, ..real_time("sample-0", Policy::Fifo, 90, "1") };
        let run = good().machine(|machine| machine.real_time_threads = vec![theirs.clone()]);
        let text = only(&run, "competing-threads", Weight::PreventsPass);
        assert!(text.ends_with(": sample-0 (8 of another rtscope, process 7, fifo 90)"), "{text}");
    }

    #[test]
    fn under_a_fair_sampler_the_kernels_own_threads_are_expected() {
        let fair = |run: Run| {
            run.edit(|event| {
                if let Event::ThreadPlaced { asked, found, .. } = event {
                    (asked.policy, found.policy) = (Policy::Other, Policy::Other);
                }
            })
        };
        assert_eq!(all(&fair(thread("irq/9-acpi", Policy::Fifo, 50, "0", true))), []);
        let jack = fair(thread("jackd", Policy::Fifo, 10, "0", false));
        only(&jack, "competing-threads", Weight::PreventsPass);
    }

    #[test]
    fn guests_and_containers_are_told_apart() {
        let inside = |kind: &str| good().machine(|m| m.virtualisation = Some(kind.to_owned()));
        only(&inside("kvm"), "virtual-machine", Weight::PreventsPass);
        let text = only(&inside("virtual machine"), "virtual-machine", Weight::PreventsPass);
        assert!(text.starts_with("this is a virtual machine: "), "{text}");
        only(&inside("podman"), "container", Weight::Note);
        let texts: Vec<String> = all(&inside("kvm, docker")).into_iter().map(|f| f.text).collect();
        assert_eq!(texts.len(), 2);
        assert!(texts[0].contains("(kvm)") && texts[1].contains("(docker)"), "{texts:?}");
    }

    #[test]
    fn in_virtual_time_the_host_is_no_objection() {
        let guest = || good().machine(|m| m.virtualisation = Some("qemu".to_owned()));
        let in_time = |lab: &str| {
            let mut run = guest();
            run.lab = lab.to_owned();
            run
        };
        let text =
            only(&in_time(r#"{"time": "virtual", "shift": 1}"#), "virtual-time", Weight::Note);
        assert!(text.contains("2 ns per instruction"), "{text}");
        only(&in_time(r#"{"time": "wall"}"#), "virtual-machine", Weight::PreventsPass);
    }

    #[test]
    fn throttled_threads_are_counted() {
        let hit = good().edit(|event| {
            if let Event::System(span) = event {
                span.throttled = Some(3);
            }
        });
        assert!(only(&hit, "throttled", Weight::PreventsPass).contains(" 6 times"));
    }
}
