//! Rules about the machine: how it is set up, and whether it stayed so.

use std::collections::BTreeMap;

use rtscope_model::{
    environment::Environment,
    event::Event,
    finding::{Finding, Weight},
};

use super::{Scene, listed};

/// Nothing is known about the machine.
pub(super) fn unknown(scene: &Scene) -> Option<Finding> {
    let text = "the record doesn't describe the machine and its settings";
    // Of an import that goes without saying, and is said once.
    (scene.before().is_none() && !scene.record.is_imported())
        .then(|| Finding::new("environment-missing", Weight::PreventsPass, text))
}

/// Real-time throttling is on.
pub(super) fn throttling_on(scene: &Scene) -> Option<Finding> {
    let text = scene.symptom("throttling-on")?;
    let sampled = scene.record.threads.iter().any(|t| t.found.policy.has_priority());
    if !sampled || scene.was_set("throttling") {
        return None;
    }
    let advice = "switch it off for the run with --set throttling=off";
    Some(Finding::new("throttling-on", Weight::Note, text).advise(advice))
}

/// Timers fire on ticks.
pub(super) fn low_resolution_timers(scene: &Scene) -> Option<Finding> {
    let text = scene.symptom("low-resolution-timers")?;
    let advice = "boot a kernel with CONFIG_HIGH_RES_TIMERS=y, and without highres=off";
    Some(Finding::new("low-resolution-timers", Weight::PreventsPass, text).advise(advice))
}

/// The machine was not the same before and after; settings of the run were not yet changed, and
/// restored.
pub(super) fn changed(scene: &Scene) -> Option<Finding> {
    let (before, after) = (scene.before()?, scene.record.after.as_ref()?);
    let mut changes = Vec::new();
    let mut compare = |what: String, before: String, after: String| {
        if before != after {
            changes.push(format!("{what} from {before} to {after}"));
        }
    };
    let online = |machine: &Environment| machine.cpus.online.to_string();
    compare("online CPUs".to_owned(), online(before), online(after));
    let source = |machine: &Environment| known(machine.clock.current.as_deref());
    compare("clock source".to_owned(), source(before), source(after));
    let runtime = |machine: &Environment| {
        known(machine.throttling.runtime_us.map(|us| us.to_string()).as_deref())
    };
    compare("real-time runtime".to_owned(), runtime(before), runtime(after));
    for cpu in before.cpus.online.common(&after.cpus.online).iter() {
        let governor = |machine: &Environment| {
            let cpu = machine.cpus.each.iter().find(|each| each.cpu == cpu);
            known(cpu.and_then(|cpu| cpu.governor.as_deref()))
        };
        compare(format!("governor of CPU {cpu}"), governor(before), governor(after));
    }
    let text = format!("the machine changed during the run: {}", listed(changes)?);
    let advice = "stop the program that changes it (a power daemon, CPU hotplug) and measure again";
    Some(Finding::new("environment-changed", Weight::Warning, text).advise(advice))
}

fn known(value: Option<&str>) -> String {
    value.unwrap_or("unknown").to_owned()
}

/// The record was cut short while a setting was changed. A run that comes to its end tells itself
/// what it could not restore.
pub(super) fn settings_left(scene: &Scene) -> Option<Finding> {
    if scene.record.is_complete() {
        return None;
    }
    let mut changed: BTreeMap<&str, (&str, &str)> = BTreeMap::new();
    for stamped in &scene.record.events {
        match &stamped.event {
            Event::SettingChanged { path, from, to, .. } => {
                changed.entry(path).or_insert((from, to)).1 = to;
            }
            Event::SettingRestored { path, .. } => {
                changed.remove(path.as_str());
            }
            _ => {}
        }
    }
    let left = changed.iter().filter(|(_, (from, to))| from != to);
    let left = left.map(|(path, (from, to))| format!("{path} is {to}, was {from}"));
    let text = format!("settings had not been restored when the record ended: {}", listed(left)?);
    let advice = "the next run restores them; to do it now, run 'rtscope restore'";
    Some(Finding::new("settings-left", Weight::Warning, text).advise(advice))
}

/// The kernel can't preempt itself everywhere.
pub(super) fn kernel_not_rt(scene: &Scene) -> Option<Finding> {
    let known = scene.symptom("kernel-not-rt");
    let text = known.or_else(|| scene.symptom("preemption-not-known"))?;
    let advice = "a PREEMPT_RT kernel bounds what the kernel itself adds to a latency";
    Some(Finding::new("kernel-not-rt", Weight::Note, text).advise(advice))
}

/// Measured CPUs change their frequency.
pub(super) fn governor(scene: &Scene) -> Option<Finding> {
    let text = scene.symptom("governor")?;
    if scene.was_set("governor") {
        return None;
    }
    let advice = "try --set governor=performance and compare; keep what the product will use";
    Some(Finding::new("governor", Weight::Note, text).advise(advice))
}

/// Measured CPUs may sleep so deeply that waking takes time.
pub(super) fn deep_idle(scene: &Scene) -> Option<Finding> {
    let text = scene.symptom_within("deep-idle", held_latency_us(scene))?;
    let advice = "the exit latency delays wake-ups: try --set dma-latency=0 and compare; keep what \
        the product will use";
    Some(Finding::new("deep-idle", Weight::Note, text).advise(advice))
}

/// The exit latency that the run held idle states to; no limit when it didn't.
fn held_latency_us(scene: &Scene) -> u64 {
    let held = scene.record.events.iter().find_map(|stamped| match &stamped.event {
        Event::SettingChanged { setting, to, .. } if setting == "dma-latency" => to.parse().ok(),
        _ => None,
    });
    held.unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use rtscope_model::{
        environment::{IdleState, Preemption, Throttling},
        event::Stamped,
    };

    use super::{
        super::tests::{all, good, only},
        *,
    };
    use crate::test_support::Run;

    fn machine(edit: impl Fn(&mut Environment)) -> Run {
        good().machine(edit)
    }

    fn changed_setting(mut run: Run, setting: &str, path: &str, restore: bool) -> Run {
        let (setting, path) = (setting.to_owned(), path.to_owned());
        let mut events = vec![Event::SettingChanged {
            setting: setting.clone(),
            path: path.clone(),
            from: "950000".to_owned(),
            to: "-1".to_owned(),
        }];
        if restore {
            events.push(Event::SettingRestored { setting, path, to: "950000".to_owned() });
        }
        for event in events.into_iter().rev() {
            run.events.insert(1, Stamped { at_ns: 0, event });
        }
        run
    }

    #[test]
    fn a_machine_that_is_not_in_the_record_is_found() {
        let mut run = good();
        run.before = None;
        only(&run, "environment-missing", Weight::PreventsPass);
    }

    #[test]
    fn throttling_is_noted_unless_lifted() {
        let limit = Throttling { runtime_us: Some(950_000), period_us: Some(1_000_000) };
        let on = |release: &'static str| {
            machine(move |machine| {
                machine.kernel.release = release.to_owned();
                machine.throttling = limit;
            })
        };
        let limited = || on("6.1.0-rt");
        only(&limited(), "throttling-on", Weight::Note);
        // The fair server took its place.
        assert_eq!(all(&on("6.12.0-rt")), []);
        let path = "/proc/sys/kernel/sched_rt_runtime_us";
        assert_eq!(all(&changed_setting(limited(), "throttling", path, true)), []);
    }

    #[test]
    fn a_setting_that_was_changed_when_the_record_ended_is_found() {
        let killed = |restore| {
            let mut run = changed_setting(good(), "throttling", "/proc/x", restore);
            run.events.pop();
            run
        };
        let text = only(&killed(false), "settings-left", Weight::Warning);
        assert!(text.ends_with("/proc/x is -1, was 950000"), "{text}");
        assert_eq!(all(&killed(true)), []);
        // A setting may be changed again in a later phase.
        let again = |last_restored| {
            let run = changed_setting(good(), "throttling", "/proc/x", last_restored);
            let mut run = changed_setting(run, "throttling", "/proc/x", true);
            run.events.pop();
            run
        };
        let text = only(&again(false), "settings-left", Weight::Warning);
        assert!(text.ends_with("/proc/x is -1, was 950000"), "{text}");
        assert_eq!(all(&again(true)), []);
    }

    #[test]
    fn timers_on_ticks_are_found() {
        let text = only(
            &machine(|machine| machine.clock.resolution_ns = Some(4_000_000)),
            "low-resolution-timers",
            Weight::PreventsPass,
        );
        assert!(text.ends_with(" 4 ms"), "{text}");
        assert_eq!(all(&machine(|machine| machine.clock.resolution_ns = Some(1_000))), []);
    }

    #[test]
    fn what_changed_meanwhile_is_told() {
        let after = |edit: fn(&mut Environment)| {
            let mut run = good();
            run.after.iter_mut().for_each(edit);
            run
        };
        let told = |edit| only(&after(edit), "environment-changed", Weight::Warning);
        assert!(told(|m| m.cpus.online.insert(9)).ends_with("online CPUs from 0-2 to 0-2,9"));
        assert!(told(|m| m.clock.current = None).ends_with("clock source from tsc to unknown"));
        assert!(
            told(|m| m.throttling.runtime_us = Some(5)).ends_with("real-time runtime from -1 to 5")
        );
        let governor = |m: &mut Environment| m.cpus.each[1].governor = Some("powersave".to_owned());
        assert!(told(governor).ends_with("governor of CPU 1 from performance to powersave"));
    }

    #[test]
    fn how_the_machine_is_set_up_is_noted() {
        let text = only(
            &machine(|m| m.kernel.preemption = Preemption::Voluntary),
            "kernel-not-rt",
            Weight::Note,
        );
        assert_eq!(text, "the kernel is PREEMPT_VOLUNTARY, not PREEMPT_RT");
        only(
            &machine(|m| m.kernel.preemption = Preemption::Unknown),
            "kernel-not-rt",
            Weight::Note,
        );
        let governed = machine(|m| m.cpus.each[0].governor = Some("powersave".to_owned()));
        assert!(only(&governed, "governor", Weight::Note).ends_with(": CPU 0 powersave"));
        let unmeasured = machine(|m| m.cpus.each[2].governor = Some("powersave".to_owned()));
        assert_eq!(all(&unmeasured), []);
        let asleep = |latency_us| {
            machine(move |m| {
                let state =
                    |name: &str, latency_us| IdleState { name: name.to_owned(), latency_us };
                m.cpus.each[0].idle_states = vec![state("C1", 1), state("C6", latency_us)];
            })
        };
        let text = only(&asleep(133), "deep-idle", Weight::Note);
        assert!(text.ends_with(": CPU 0 C6 (133 us)"), "{text}");
        assert_eq!(all(&asleep(9)), []);
        let held = |to: &str| {
            changed_setting(asleep(133), "dma-latency", "/dev/cpu_dma_latency", true).edit(
                |event| {
                    if let Event::SettingChanged { to: value, .. } = event {
                        to.clone_into(value);
                    }
                },
            )
        };
        assert_eq!(all(&held("0")), []);
        only(&held("200"), "deep-idle", Weight::Note);
    }
}
