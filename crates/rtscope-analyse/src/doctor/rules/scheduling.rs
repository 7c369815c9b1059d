//! Limits on the CPU time of real-time threads.

use rtscope_model::doctor::{
    ProblemKind::{NotKnown, Setting},
    Severity,
    Sureness::{Likely, Sure},
};

use super::{
    super::{Examined, Rule, Symptom, Topic, mend},
    listed,
};

pub(super) const RULES: &[Rule] = &[
    Rule {
        code: "throttling-on",
        topic: Topic::Scheduling,
        kind: Setting,
        sureness: Sure,
        delay_us: 50_000,
        why: "a CPU whose real-time threads have used their share runs none of them until the period ends",
        cost: "a real-time thread that never sleeps stops its CPU for all other programs",
        find: throttling,
    },
    Rule {
        code: "fair-server-on",
        topic: Topic::Scheduling,
        kind: Setting,
        sureness: Sure,
        delay_us: 50_000,
        why: "since Linux 6.12, the fair server runs ordinary threads ahead of real-time threads that starve them",
        cost: "a real-time thread that never sleeps stops its CPU for all other programs",
        find: fair_server,
    },
    Rule {
        code: "fair-server-not-known",
        topic: Topic::Scheduling,
        kind: NotKnown,
        sureness: Sure,
        delay_us: 0,
        why: "since Linux 6.12 the fair server takes up to 50 ms in each second from real-time threads that starve others",
        cost: "nothing",
        find: fair_server_not_known,
    },
    Rule {
        code: "rt-group-without-time",
        topic: Topic::Scheduling,
        kind: Setting,
        sureness: Sure,
        delay_us: 0,
        why: "with RT_GROUP_SCHED, a control group without real-time runtime may not have real-time threads",
        cost: "the other groups get less",
        find: group_without_time,
    },
    Rule {
        code: "rt-group-sched",
        topic: Topic::Scheduling,
        kind: Setting,
        sureness: Likely,
        delay_us: 0,
        why: "with RT_GROUP_SCHED, new control groups of version 1 start without real-time runtime",
        cost: "no real-time budgets for groups",
        find: group_sched,
    },
    Rule {
        code: "cgroup-quota",
        topic: Topic::Scheduling,
        kind: Setting,
        sureness: Sure,
        delay_us: 50_000,
        why: "a group that has used its quota waits for the next period; real-time threads are exempt, but ordinary threads \
              that they depend on aren't",
        cost: "the group can take CPU time from others",
        find: quota,
    },
    Rule {
        code: "cpus-narrowed",
        topic: Topic::Scheduling,
        kind: Setting,
        sureness: Sure,
        delay_us: 100,
        why: "a program that is started here can't use the other CPUs, isolated ones among them",
        cost: "nothing",
        find: narrowed,
    },
];

/// Whether the limits matter: they only meet threads that use nearly all of their CPU.
fn at_most(x: &Examined<'_>) -> Severity {
    if x.purpose.polls { Severity::High } else { Severity::Low }
}

fn throttling(x: &Examined<'_>) -> Option<Symptom> {
    let limit = x.environment().throttling;
    let (runtime_us, period_us) = (limit.runtime_us?, limit.period_us.unwrap_or(1_000_000));
    // From 6.12 on the limit only counts for groups, and for the admission of deadline threads.
    let is_replaced =
        x.version().is_some_and(|version| version >= (6, 12)) && !x.built("RT_GROUP_SCHED");
    if runtime_us < 0 || runtime_us >= period_us || is_replaced {
        return None;
    }
    let text = format!(
        "real-time throttling is on: FIFO and RR threads may use {runtime_us} us in {period_us} us; it affects only CPUs \
         that real-time threads keep busy"
    );
    Some(
        Symptom::new(text, mend::sysctl("kernel/sched_rt_runtime_us", "-1"))
            .at_most(at_most(x))
            .delay_us((period_us - runtime_us).unsigned_abs())
            .shown_by("/proc/sys/kernel/sched_rt_runtime_us", runtime_us),
    )
}

/// Files of the fair server, by CPU, with the runtime in ns.
fn servers(x: &Examined<'_>) -> Vec<(String, u64)> {
    let files = x.facts.texts_below("sys/kernel/debug/sched/fair_server/");
    files.filter_map(|(path, text)| Some((path.to_owned(), text.parse().ok()?))).collect()
}

fn fair_server(x: &Examined<'_>) -> Option<Symptom> {
    let on = x.cpus.iter().find_map(|cpu| {
        let path = format!("sys/kernel/debug/sched/fair_server/cpu{cpu}/runtime");
        servers(x)
            .into_iter()
            .find(|(file, ns)| *file == path && *ns > 0)
            .map(|(file, ns)| (cpu, file, ns))
    });
    let (cpu, file, ns) = on?;
    let text = format!("the fair server of CPU {cpu} may take {} us in each second", ns / 1_000);
    let cpus: Vec<String> = x.cpus.iter().map(|cpu| cpu.to_string()).collect();
    let mend = format!(
        "for n in {}; do echo 0 > /sys/kernel/debug/sched/fair_server/cpu$n/runtime; done (lasts until the next boot)",
        cpus.join(" ")
    );
    Some(
        Symptom::new(text, mend)
            .at_most(at_most(x))
            .delay_us(ns / 1_000)
            .shown_by(format!("/{file}"), ns),
    )
}

fn fair_server_not_known(x: &Examined<'_>) -> Option<Symptom> {
    let is_new = x.version().is_some_and(|version| version >= (6, 12));
    let folder = "sys/kernel/debug/sched/fair_server/";
    let is_shown =
        x.facts.files.iter().any(|(path, _)| path.starts_with(folder) && !x.facts.is_refused(path));
    (is_new && !is_shown && !x.cpus.is_empty()).then(|| {
        let text = "it isn't known how much time the fair server may take: debugfs doesn't show it";
        let mend = "look as root, with debugfs mounted: mount -t debugfs none /sys/kernel/debug; \
                    some kernels refuse it when they are locked down";
        let first = x.cpus.iter().next().unwrap_or(0);
        Symptom::new(text, mend).shown_by(format!("/{folder}cpu{first}/runtime"), "can't be read")
    })
}

/// The runtime of the groups of version 1 that this process is in, own group first.
fn group_runtimes(x: &Examined<'_>) -> Vec<(String, i64)> {
    let files = x
        .facts
        .texts_below("sys/fs/cgroup/")
        .filter(|(path, _)| path.ends_with("/cpu.rt_runtime_us"));
    let mut found: Vec<(String, i64)> =
        files.filter_map(|(path, text)| Some((path.to_owned(), text.parse().ok()?))).collect();
    found.sort_by_key(|(path, _)| std::cmp::Reverse(path.len()));
    found
}

fn group_without_time(x: &Examined<'_>) -> Option<Symptom> {
    let (path, _) = group_runtimes(x).into_iter().find(|(_, us)| *us == 0)?;
    let text = "this login's control group has no real-time runtime";
    Some(Symptom::new(text, mend::write(&path, "950000")).shown_by(format!("/{path}"), 0))
}

fn group_sched(x: &Examined<'_>) -> Option<Symptom> {
    (x.built("RT_GROUP_SCHED") && x.parameter("rt_group_sched") != Some("0")).then(|| {
        let mend = "if programs are refused real-time threads: build the kernel without CONFIG_RT_GROUP_SCHED, or boot newer \
                    kernels with rt_group_sched=0";
        let source = x.environment().kernel.config_source.as_deref().unwrap_or("configuration");
        Symptom::new("the kernel divides real-time runtime among control groups", mend)
            .at_most(Severity::Low)
            .shown_by(source, "CONFIG_RT_GROUP_SCHED=y")
    })
}

fn quota(x: &Examined<'_>) -> Option<Symptom> {
    let limits = x.facts.texts_below("sys/fs/cgroup/").filter_map(|(path, text)| {
        let (quota, period): (i64, i64) = match path.rsplit('/').next()? {
            "cpu.max" => {
                let (quota, period) = text.split_once(' ')?;
                (quota.parse().ok()?, period.parse().ok()?)
            }
            "cpu.cfs_quota_us" => {
                let period = path.replace("cpu.cfs_quota_us", "cpu.cfs_period_us");
                (text.parse().ok()?, x.facts.number(&period).unwrap_or(100_000))
            }
            _ => return None,
        };
        (quota > 0).then(|| (path.to_owned(), text.to_owned(), quota, period))
    });
    let (path, text, quota, period) = limits.into_iter().next()?;
    let words = format!("this control group may use {quota} us of CPU time in {period} us");
    let mend = match x.around(true) {
        Some(_) => "start the container without a limit on its CPU time, and give it CPUs of its own (--cpuset-cpus)".to_owned(),
        None if path.ends_with("/cpu.cfs_quota_us") => mend::write(&path, "-1"),
        None => mend::write(&path, "max"),
    };
    Some(
        Symptom::new(words, mend)
            .at_most(Severity::Medium)
            .delay_us(period.unsigned_abs())
            .shown_by(format!("/{path}"), text),
    )
}

fn narrowed(x: &Examined<'_>) -> Option<Symptom> {
    let cpus = &x.environment().cpus;
    let refused = cpus.online.without(&cpus.allowed);
    // Without isolation the scheduler gives all of them; isolated ones are left out for everybody.
    let by_others = refused.without(&cpus.isolated);
    if cpus.allowed.is_empty() || by_others.is_empty() {
        return None;
    }
    let places = listed([format!("CPUs {} of {}", cpus.allowed, cpus.online)])?;
    let mend =
        "look for a cpuset or taskset around this login: taskset -pc $$ and /proc/self/cgroup";
    Some(
        Symptom::new(format!("programs that are started here may use only {places}"), mend)
            .at_most(Severity::Low)
            .shown_by("/proc/self/status", format!("Cpus_allowed_list {}", cpus.allowed)),
    )
}
