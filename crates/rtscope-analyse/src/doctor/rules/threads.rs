//! Real-time threads that are there already, and their priorities.

use rtscope_model::{
    doctor::{
        ProblemKind::{Contradiction, Setting},
        Severity,
        Sureness::{Likely, Possible, Sure},
    },
    environment::{Preemption, RealTimeThread},
    schedule::Policy,
};

use super::{
    super::{Examined, Rule, Symptom, Topic},
    listed,
};

pub(super) const RULES: &[Rule] = &[
    Rule {
        code: "other-rt-threads",
        topic: Topic::Scheduling,
        kind: Setting,
        sureness: Sure,
        delay_us: 200,
        why: "while one of these threads runs, a thread of lower priority on its CPU waits",
        cost: "that program may miss its own deadlines",
        find: others,
    },
    Rule {
        code: "priority-99",
        topic: Topic::Scheduling,
        kind: Contradiction,
        sureness: Sure,
        delay_us: 0,
        why: "nothing can be placed above it, not even the interrupt thread that it depends on",
        cost: "usually nothing",
        find: ninety_nine,
    },
    Rule {
        code: "priority-above-servers",
        topic: Topic::Scheduling,
        kind: Contradiction,
        sureness: Likely,
        delay_us: 200,
        why: "the interrupt thread has a lower priority, so every thread between them delays it, and with it whoever \
              waits for that device",
        cost: "the interrupt threads delay what runs below them",
        find: above_servers,
    },
    Rule {
        code: "softirq-low",
        topic: Topic::Network,
        kind: Setting,
        sureness: Possible,
        delay_us: 100,
        why: "packets are received in softirqs; where ksoftirqd runs them, every real-time thread runs first",
        cost: "softirqs delay threads below them",
        find: softirq_low,
    },
];

fn stem(name: &str) -> &str {
    name.split('/').next().unwrap_or_default()
}

fn shown(thread: &RealTimeThread) -> String {
    match thread.policy {
        Policy::Deadline => format!("{} ({}, {})", thread.name, thread.tid, thread.policy),
        policy => format!("{} ({}, {policy} {})", thread.name, thread.tid, thread.priority),
    }
}

fn user_threads<'a>(x: &Examined<'a>) -> impl Iterator<Item = &'a RealTimeThread> + use<'a> {
    x.environment().real_time_threads.iter().filter(|thread| !thread.kernel)
}

/// Threads that serve others: those of interrupts and of softirqs.
fn servers<'a>(x: &Examined<'a>) -> impl Iterator<Item = &'a RealTimeThread> + use<'a> {
    let names = ["irq", "ktimers", "ksoftirqd", "ktimersoftd"];
    let all = x.environment().real_time_threads.iter();
    all.filter(move |thread| thread.kernel && names.contains(&stem(&thread.name)))
}

fn others(x: &Examined<'_>) -> Option<Symptom> {
    // From the middle of the range on, where interrupt threads are and most programs put their own.
    let high =
        |thread: &&RealTimeThread| thread.policy == Policy::Deadline || thread.priority >= 50;
    let here = |thread: &&RealTimeThread| !thread.cpus.common(&x.cpus).is_empty();
    let mut threads: Vec<&RealTimeThread> = user_threads(x).filter(high).filter(here).collect();
    threads.sort_by_key(|thread| std::cmp::Reverse(thread.priority));
    let places = listed(threads.iter().map(|thread| shown(thread)))?;
    let first = threads.first()?;
    let text = format!("other programs have real-time threads of high priority: {places}");
    let tid = first.tid;
    let mend = match first.policy {
        // Nothing runs before these.
        Policy::Deadline => format!(
            "give it another policy (rtscope ps --set {tid} --policy fifo:40), or stop the program"
        ),
        policy if first.priority >= 99 => format!(
            "lower its priority (rtscope ps --set {tid} --policy {policy}:40), move it (--cpus 0), or stop the program"
        ),
        _ => format!(
            "if it isn't yours: give your thread a higher priority, move theirs (rtscope ps --set {tid} --cpus 0), or stop \
             the program"
        ),
    };
    // Below the highest priority, it may be the thread that all this is for.
    let is_above_all = first.policy == Policy::Deadline || first.priority >= 99;
    let severity = if is_above_all { Severity::High } else { Severity::Medium };
    Some(
        Symptom::new(text, mend)
            .at_most(severity)
            .shown_by(format!("/proc/{}/task/{}/stat", first.pid, first.tid), shown(first)),
    )
}

fn ninety_nine(x: &Examined<'_>) -> Option<Symptom> {
    let threads: Vec<&RealTimeThread> = user_threads(x)
        .filter(|thread| thread.priority == 99 && thread.policy != Policy::Deadline)
        // Those on the CPUs of real-time threads are in other-rt-threads.
        .filter(|thread| thread.cpus.common(&x.cpus).is_empty())
        .collect();
    let first = threads.first()?;
    let places = listed(threads.iter().map(|thread| shown(thread)))?;
    let mend = format!(
        "lower it: rtscope ps --set {} --policy {}:90, and in the program's own settings",
        first.tid, first.policy
    );
    Some(
        Symptom::new(format!("threads of programs have priority 99: {places}"), mend)
            .at_most(Severity::Medium)
            .shown_by(format!("/proc/{}/task/{}/stat", first.pid, first.tid), shown(first)),
    )
}

fn above_servers(x: &Examined<'_>) -> Option<Symptom> {
    let pair = user_threads(x).find_map(|user| {
        let below = |server: &&RealTimeThread| {
            user.policy != Policy::Deadline
                && stem(&server.name) == "irq"
                && server.priority < user.priority
                && !server.cpus.common(&user.cpus).is_empty()
        };
        servers(x).find(below).map(|server| (user, server))
    });
    let (user, server) = pair?;
    let text = format!(
        "{} has a higher priority than threads that serve devices on its CPUs, for example {}",
        shown(user),
        shown(server)
    );
    let mend = format!(
        "if a thread waits for this device, raise its interrupt thread: rtscope ps --set {} --policy fifo:{}",
        server.tid,
        user.priority.saturating_add(1).min(98)
    );
    Some(
        Symptom::new(text, mend)
            .at_most(Severity::Medium)
            .shown_by(format!("/proc/{}/task/{}/stat", user.pid, user.tid), shown(user))
            .shown_by(format!("/proc/{}/task/{}/stat", server.pid, server.tid), shown(server)),
    )
}

fn softirq_low(x: &Examined<'_>) -> Option<Symptom> {
    let is_real = x.preemption() == Preemption::RealTime;
    let sees_kernel = x.environment().real_time_threads.iter().any(|thread| thread.kernel);
    let raised = servers(x).any(|thread| stem(&thread.name) == "ksoftirqd");
    (is_real && sees_kernel && !raised).then(|| {
        let text = "ksoftirqd has no real-time policy";
        let mend = "if your thread waits for the network: rtscope ps --name ksoftirqd, then --set TID --policy fifo:11";
        // Interrupt threads receive packets themselves; ksoftirqd takes over only under much load.
        Symptom::new(text, mend)
            .at_most(Severity::Low)
            .shown_by("kernel threads", "no ksoftirqd/N with a real-time policy")
    })
}
