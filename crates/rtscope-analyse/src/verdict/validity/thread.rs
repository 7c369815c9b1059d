//! Rules about the sampling threads: whether they ran where and how they were asked, undisturbed by
//! what a measurement must not have of its own.

use rtscope_model::{
    event::Event,
    finding::{Finding, Weight},
    record::ThreadRecord,
    schedule::{Placement, Policy},
};

use super::{Scene, listed};

/// The three ways to get permission.
const PERMISSION: &str = "run as root; or give the binary the capabilities with \
    'setcap cap_sys_nice,cap_ipc_lock+ep'; or raise rtprio and memlock for your user in \
    /etc/security/limits.conf";

/// Policy, priority, nice, budget or CPUs did not read back as asked, before the loop or after it.
pub(super) fn placement(scene: &Scene) -> Option<Finding> {
    let threads = &scene.record.threads;
    let elsewhere = |t: &ThreadRecord| {
        let end = t.found_at_end.as_ref().filter(|end| differs(&t.found, end));
        let name = format!("thread {}: asked {}", t.thread, t.asked);
        match (differs(&t.asked, &t.found), end) {
            (false, None) => None,
            (true, None) => Some(format!("{name}, found {}", t.found)),
            (false, Some(end)) => {
                Some(format!("{name}, found the same at its start, but {end} at its end"))
            }
            (true, Some(end)) => {
                Some(format!("{name}, found {} at its start, and {end} at its end", t.found))
            }
        }
    };
    let places = listed(threads.iter().filter_map(elsewhere))?;
    let permitted = scene.before().is_none_or(|machine| machine.permission.real_time);
    let advice = match threads.iter().any(|t| differs(&t.asked, &t.found)) {
        false => "something else changed them while they ran: look for chrt, taskset, a cpuset",
        true if permitted => {
            "look at cpusets, taskset and container limits that this process runs under"
        }
        true => PERMISSION,
    };
    let text = format!("threads did not run as asked: {places}");
    Some(Finding::new("placement", Weight::Invalidates, text).advise(advice))
}

/// A part without meaning for the policy, or that wasn't asked, can't differ.
fn differs(asked: &Placement, found: &Placement) -> bool {
    asked.policy != found.policy
        || (asked.policy.has_priority() && asked.priority != found.priority)
        || (!asked.policy.is_real_time() && asked.nice != found.nice)
        || (asked.budget.is_some() && asked.budget != found.budget)
        || (!asked.cpus.is_empty() && asked.cpus != found.cpus)
}

/// Memory could be paged out under the threads.
pub(super) fn memory_not_locked(scene: &Scene) -> Option<Finding> {
    scene.record.events.iter().find_map(|stamped| match stamped.event {
        Event::SessionStarted { locked_kib: 0, .. } => Some(
            Finding::new("memory-not-locked", Weight::PreventsPass, "memory was not locked")
                .advise(PERMISSION),
        ),
        _ => None,
    })
}

/// Page faults inside the loop: the sampler measured itself.
pub(super) fn page_faults(scene: &Scene) -> Option<Finding> {
    let places = scene.counts(|_, tally| tally.minor_faults + tally.major_faults)?;
    let text = format!("page faults inside the measuring loop: {places}");
    let advice = "lock memory (rlimit memlock) and leave the machine some free memory";
    Some(Finding::new("page-faults", Weight::Invalidates, text).advise(advice))
}

/// A thread that was pinned woke on another CPU.
pub(super) fn migrations(scene: &Scene) -> Option<Finding> {
    let pinned = |thread: &ThreadRecord| thread.found.cpus.len() == 1;
    let places = scene.counts(|thread, tally| if pinned(thread) { tally.migrations } else { 0 })?;
    let text = format!("pinned threads woke on another CPU: {places}");
    let advice = "look for a CPU that went offline or a cpuset that was changed during the run";
    Some(Finding::new("migrations", Weight::Invalidates, text).advise(advice))
}

/// A real-time sampler was preempted while it ran.
pub(super) fn involuntary_switches(scene: &Scene) -> Option<Finding> {
    let real_time = |thread: &ThreadRecord| thread.found.policy.has_priority();
    let places = scene
        .counts(|thread, tally| if real_time(thread) { tally.involuntary_switches } else { 0 })?;
    let text = format!("the sampler was preempted while it ran: {places}");
    let advice = "look for threads of a higher priority, or of SCHED_DEADLINE";
    Some(Finding::new("involuntary-switches", Weight::Warning, text).advise(advice))
}

/// The file of raw samples has holes; histograms have none.
pub(super) fn raw_samples_lost(scene: &Scene) -> Option<Finding> {
    let places = scene.counts(|_, tally| tally.raw_lost)?;
    let text = format!("raw samples are missing from the file, but not in the figures: {places}");
    let advice = "write to a faster disk with more room, or measure at a longer interval";
    Some(Finding::new("raw-samples-lost", Weight::Warning, text).advise(advice))
}

/// Wake-ups before their expiry: the clock was stepped.
pub(super) fn early_wakeups(scene: &Scene) -> Option<Finding> {
    let places = listed(scene.cells.iter().flat_map(|cell| {
        let early = cell.threads.iter().filter(|row| row.early > 0);
        early.map(|row| format!("{} on {}: {}", cell.name, row.label, row.early))
    }))?;
    let text = format!("wake-ups before their expiry, counted as latency 0: {places}");
    let advice =
        "a clock was stepped: sample on CLOCK_MONOTONIC, or stop the program that sets the time";
    Some(Finding::new("early-wakeups", Weight::Warning, text).advise(advice))
}

/// A stall was longer than what is expanded into the corrected histogram.
pub(super) fn corrected_incomplete(scene: &Scene) -> Option<Finding> {
    let places = scene.counts(|_, tally| tally.omitted_unexpanded)?;
    let text = format!("the corrected latencies leave out missed activations: {places}");
    // Quantiles and means are judged with them.
    Some(Finding::new("corrected-incomplete", Weight::PreventsPass, text))
}

/// The firmware took CPUs away.
pub(super) fn smi(scene: &Scene) -> Option<Finding> {
    let places = scene.counts(|_, tally| tally.smi.unwrap_or(0))?;
    let text = format!("system management interrupts during the run: {places}");
    let advice = "the firmware stops the CPU where no kernel can see it: look for an update, and \
        turn off USB legacy support and power management in its setup";
    Some(Finding::new("smi", Weight::Warning, text).advise(advice))
}

/// A run that came to its end says nothing of what a thread suffered.
pub(super) fn tally_missing(scene: &Scene) -> Option<Finding> {
    let measured = scene.record.threads.iter().filter(|thread| thread.imported.is_none());
    let untold = measured.filter(|thread| thread.tally.is_none());
    let places = listed(untold.map(|thread| scene.record.label(thread)))?;
    let text = format!("the record has no page faults and migrations for: {places}");
    scene.record.is_complete().then(|| Finding::new("tally-missing", Weight::PreventsPass, text))
}

/// The control thread had to share a measured CPU.
pub(super) fn control_thread(scene: &Scene) -> Option<Finding> {
    let measured = scene.measured_cpus();
    let shared = scene.record.events.iter().find_map(|stamped| match &stamped.event {
        Event::SessionStarted { control, .. } => {
            Some(control.cpus.common(&measured)).filter(|shared| !shared.is_empty())
        }
        _ => None,
    })?;
    let text = format!("rtscope's own control thread ran on measured CPUs ({shared})");
    let advice = "it wakes at most 10 times a second, or as often as short slices need, at a lower \
        priority; to keep it away, leave a CPU unmeasured";
    Some(Finding::new("control-thread", Weight::Note, text).advise(advice))
}

/// The priority that decides who runs first: a deadline thread before every other, the fair
/// policies last.
pub(super) fn rank(policy: Policy, priority: u8) -> u8 {
    match policy {
        Policy::Deadline => 100,
        policy if policy.has_priority() => priority,
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use rtscope_model::{
        event::Tally,
        schedule::{Budget, Policy},
    };

    use super::{
        super::tests::{all, good, only},
        *,
    };
    use crate::test_support::{Run, fifo};

    #[test]
    fn a_budget_and_cpus_differ_only_if_they_were_asked() {
        let budget = |ms: u64| Some(Budget { runtime_ns: ms, deadline_ns: 10, period_ns: 10 });
        let of = |budget, cpus: &str| Placement {
            policy: Policy::Deadline,
            priority: 0,
            nice: 0,
            budget,
            cpus: cpus.parse().expect("a set"),
        };
        let found = of(budget(1), "0-1");
        assert!(!differs(&found, &found) && !differs(&of(None, ""), &found));
        assert!(differs(&of(budget(2), ""), &found) && differs(&of(None, "0"), &found));
    }

    fn placed(edit: impl Fn(&mut Placement, &mut Placement)) -> Run {
        good().edit(|event| {
            if let Event::ThreadPlaced { thread: 1, asked, found, .. } = event {
                edit(asked, found);
            }
        })
    }

    #[test]
    fn a_thread_that_did_not_read_back_is_named() {
        let refused = placed(|_, found| {
            *found = Placement { policy: Policy::Other, priority: 0, ..fifo(1) };
        });
        assert_eq!(
            only(&refused, "placement", Weight::Invalidates),
            "threads did not run as asked: thread 1: asked fifo 90 on CPU 1, found other on CPU 1"
        );
        assert!(!all(&refused)[0].advice.contains("setcap"));
        let unpermitted = refused.machine(|machine| machine.permission.real_time = false);
        assert!(all(&unpermitted)[0].advice.contains("setcap"));
        only(&placed(|_, found| found.priority = 89), "placement", Weight::Invalidates);
        only(&placed(|_, found| found.cpus.insert(0)), "placement", Weight::Invalidates);
        let nice = |asked: i8| {
            placed(move |a, f| {
                (a.policy, f.policy) = (Policy::Batch, Policy::Batch);
                a.nice = asked;
            })
        };
        only(&nice(5), "placement", Weight::Invalidates);
        assert_eq!(all(&nice(0)), []);
        assert_eq!(all(&placed(|asked, _| asked.nice = 5)), [], "fifo has no nice value");
    }

    #[test]
    fn a_thread_that_was_changed_while_it_ran_is_named() {
        let ends = |edit: fn(&mut Placement)| {
            good().edit(|event| {
                if let Event::ThreadEnded { thread, found, .. } = event {
                    let mut end = fifo(*thread);
                    if *thread == 1 {
                        edit(&mut end);
                    }
                    *found = Some(end);
                }
            })
        };
        let demoted = ends(|found| {
            *found = Placement { policy: Policy::Other, priority: 0, ..fifo(1) };
        });
        assert_eq!(
            only(&demoted, "placement", Weight::Invalidates),
            "threads did not run as asked: thread 1: asked fifo 90 on CPU 1, found the same at its \
             start, but other on CPU 1 at its end"
        );
        assert!(all(&demoted)[0].advice.contains("chrt"));
        only(&ends(|found| found.priority = 89), "placement", Weight::Invalidates);
        only(&ends(|found| found.cpus.insert(0)), "placement", Weight::Invalidates);
        assert_eq!(all(&ends(|_| ())), []);
    }

    /// When a CPU goes offline, the kernel moves a thread that was pinned to it and widens its mask.
    #[test]
    fn a_cpu_that_went_away_in_mid_run_keeps_it_from_a_pass() {
        let moved = |comes_back: bool| {
            let mut run = good().edit(|event| {
                if let Event::ThreadEnded { thread: 1, found, tally } = event {
                    let cpus = if comes_back { "1" } else { "0" };
                    let cpus = cpus.parse().expect("a set");
                    (tally.migrations, *found) = (1, Some(Placement { cpus, ..fifo(1) }));
                }
            });
            if !comes_back {
                let after = run.after.as_mut().expect("an environment");
                after.cpus.online = "0".parse().expect("a set");
            }
            run
        };
        let found = all(&moved(false));
        let told: Vec<(&str, Weight)> = found.iter().map(|f| (f.code.as_str(), f.weight)).collect();
        let expected = [
            ("placement", Weight::Invalidates),
            ("migrations", Weight::Invalidates),
            ("environment-changed", Weight::Warning),
        ];
        assert_eq!(told, expected);
        assert!(found[0].text.contains("fifo 90 on CPU 0 at its end"), "{}", found[0].text);
        // A CPU that is back at the end has moved the thread all the same.
        only(&moved(true), "migrations", Weight::Invalidates);
    }

    #[test]
    fn unlocked_memory_is_found() {
        let unlocked = good().edit(|event| {
            if let Event::SessionStarted { locked_kib, .. } = event {
                *locked_kib = 0;
            }
        });
        only(&unlocked, "memory-not-locked", Weight::PreventsPass);
    }

    #[test]
    fn what_a_thread_suffered_is_found() {
        type Edit = fn(&mut Tally);
        let cases: [(Edit, &str, Weight); 7] = [
            (|t| t.minor_faults = 2, "page-faults", Weight::Invalidates),
            (|t| t.major_faults = 2, "page-faults", Weight::Invalidates),
            (|t| t.migrations = 2, "migrations", Weight::Invalidates),
            (|t| t.involuntary_switches = 2, "involuntary-switches", Weight::Warning),
            (|t| t.raw_lost = 2, "raw-samples-lost", Weight::Warning),
            (|t| t.omitted_unexpanded = 2, "corrected-incomplete", Weight::PreventsPass),
            (|t| t.smi = Some(2), "smi", Weight::Warning),
        ];
        for (edit, code, weight) in cases {
            let text = only(&good().tally(edit), code, weight);
            assert!(text.ends_with(": CPU 0: 2, CPU 1: 2"), "{text}");
        }
        assert_eq!(all(&good().tally(|t| (t.smi, t.voluntary_switches) = (Some(0), 9))), []);
    }

    #[test]
    fn a_free_or_fair_thread_may_move_and_be_preempted() {
        let free = placed(|asked, found| {
            asked.cpus.insert(0);
            found.cpus.insert(0);
        });
        let moved = only(&free.tally(|t| t.migrations = 3), "migrations", Weight::Invalidates);
        assert!(moved.ends_with(": CPU 0: 3"), "only the pinned one: {moved}");
        let fair = good().edit(|event| {
            if let Event::ThreadPlaced { asked, found, .. } = event {
                (asked.policy, found.policy) = (Policy::Other, Policy::Other);
            }
        });
        assert_eq!(all(&fair.tally(|t| t.involuntary_switches = 3)), []);
    }

    #[test]
    fn early_wakeups_are_named() {
        let mut run = good();
        run.slices[0].early = 4;
        assert!(only(&run, "early-wakeups", Weight::Warning).ends_with(": rest on CPU 0: 4"),);
    }

    #[test]
    fn a_complete_run_without_tally_is_found() {
        let mut run = good();
        run.events.retain(|e| !matches!(e.event, Event::ThreadEnded { thread: 0, .. }));
        assert!(only(&run, "tally-missing", Weight::PreventsPass).ends_with(": CPU 0"));
        run.events.pop();
        assert_eq!(all(&run), [], "a record that was cut short says so by itself");
    }

    #[test]
    fn a_shared_control_cpu_is_noted() {
        let shared = good().edit(|event| {
            if let Event::SessionStarted { control, .. } = event {
                control.cpus.insert(1);
            }
        });
        assert!(only(&shared, "control-thread", Weight::Note).ends_with("(1)"));
    }
}
