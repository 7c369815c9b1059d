//! What a program does wrong in real time, seen from outside: one function for each mistake.

use rtscope_model::{
    check::{Observation, ObservedThread},
    finding::{Finding, Weight},
    schedule::Policy,
    time::{Nanos, Rounding},
};

use crate::{
    number::counted,
    statistics::{
        check::{Rhythm, SleepForm, rhythm},
        slope::Slope,
    },
};

/// What the user expects of the program.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Expectation {
    /// Policy, and its priority where it is said.
    pub policy: Option<(Policy, Option<u8>)>,
    pub period_ns: Option<u64>,
}

/// A thread with its rhythm.
#[derive(Clone, Debug)]
pub struct ObservedProgram<'a> {
    pub thread: &'a ObservedThread,
    /// Its rhythm, where it has one.
    pub rhythm: Option<Rhythm>,
    /// Whether it is held against the rules: the periodic threads of real-time policies, else the one
    /// with most activations, else (without events) the real-time threads or the first.
    pub judged: bool,
}

/// A program, judged.
#[derive(Clone, Debug)]
pub struct Checked<'a> {
    pub observation: &'a Observation,
    pub threads: Vec<ObservedProgram<'a>>,
    /// The mistakes.
    pub findings: Vec<Finding>,
    /// What could not be told, and why.
    pub untold: Vec<String>,
}

/// A mistake in the rhythm, the place or the memory of a thread.
type Rule = fn(&ObservedProgram<'_>, &Observation, &Expectation) -> Option<Finding>;

/// Every mistake that can be named, in the order in which they are told.
const RULES: [Rule; 9] =
    [policy, memory, faults, relative_sleep, wall_clock, overrun, missed, period, locks];

#[must_use]
pub fn judge<'a>(observation: &'a Observation, expected: &Expectation) -> Checked<'a> {
    let mut threads: Vec<ObservedProgram<'_>> = observation
        .threads
        .iter()
        .map(|thread| ObservedProgram { thread, rhythm: rhythm(&thread.events), judged: false })
        .collect();
    choose(&mut threads);
    let mut findings = Vec::new();
    for seen in threads.iter().filter(|seen| seen.judged) {
        findings.extend(RULES.iter().filter_map(|rule| rule(seen, observation, expected)));
    }
    // Several threads of a process share its memory.
    let mut known = Vec::new();
    findings.retain(|finding: &Finding| {
        let is_new = !known.contains(finding);
        known.push(finding.clone());
        is_new
    });
    Checked { observation, untold: untold(observation, &threads), threads, findings }
}

fn choose(threads: &mut [ObservedProgram<'_>]) {
    let is_real_time = |seen: &ObservedProgram<'_>| seen.thread.placement.policy.is_real_time();
    let is_periodic = |seen: &ObservedProgram<'_>| seen.rhythm.is_some();
    let count =
        |seen: &ObservedProgram<'_>| seen.rhythm.as_ref().map_or(0, |own| own.activations.len());
    let busiest = threads.iter().map(count).max().unwrap_or(0);
    let both = threads.iter().any(|seen| is_periodic(seen) && is_real_time(seen));
    let any_real_time = threads.iter().any(is_real_time);
    let mut is_taken = false;
    for seen in threads {
        seen.judged = if both {
            is_periodic(seen) && is_real_time(seen)
        } else if busiest > 0 {
            count(seen) == busiest && !is_taken
        } else if any_real_time {
            is_real_time(seen)
        } else {
            !is_taken
        };
        is_taken |= seen.judged;
    }
}

fn named(thread: &ObservedThread) -> String {
    format!("thread {} ({})", thread.tid, thread.name)
}

fn policy(seen: &ObservedProgram<'_>, _: &Observation, expected: &Expectation) -> Option<Finding> {
    let (name, found) = (named(seen.thread), &seen.thread.placement);
    let shown = match found.policy.has_priority() {
        true => format!("{} {}", found.policy, found.priority),
        false => found.policy.to_string(),
    };
    let Some((policy, priority)) = expected.policy else {
        let text = format!("{name} runs as {shown}: any other program may delay it");
        let finding = Finding::new("ordinary-policy", Weight::Warning, text);
        let advice = "give it a real-time policy (chrt -f 80 COMMAND, or sched_setscheduler in the thread), or give --expect other if that is intended";
        return (!found.policy.is_real_time()).then(|| finding.advise(advice));
    };
    let is_as_asked =
        policy == found.policy && priority.is_none_or(|priority| priority == found.priority);
    let asked = priority.map_or(policy.to_string(), |priority| format!("{policy} {priority}"));
    let text = format!("{name} runs as {shown}, but {asked} was expected");
    let advice = "check that the program tests the return value of sched_setscheduler or pthread_create, and that it sets PTHREAD_EXPLICIT_SCHED: without it a new thread has its creator's policy";
    (!is_as_asked)
        .then(|| Finding::new("policy-not-as-expected", Weight::PreventsPass, text).advise(advice))
}

fn memory(
    seen: &ObservedProgram<'_>,
    observation: &Observation,
    _: &Expectation,
) -> Option<Finding> {
    let memory = observation.memory.iter().find(|memory| memory.pid == seen.thread.pid)?;
    let (locked, resident) = (memory.locked_bytes, memory.resident_bytes);
    let advice = "call mlockall(MCL_CURRENT | MCL_FUTURE) before the loop";
    let process = memory.pid;
    if locked == 0 {
        let text = format!(
            "no memory of process {process} is locked: a page may be missing when the loop needs it"
        );
        return Some(Finding::new("memory-not-locked", Weight::Warning, text).advise(advice));
    }
    // Some pages can't be locked: those of the kernel that every process sees.
    let kib = |bytes: u64| bytes / 1024;
    let text = format!(
        "{} KiB of the memory of process {process} are locked and {} KiB are in use",
        kib(locked),
        kib(resident)
    );
    (locked < resident / 5 * 4)
        .then(|| Finding::new("memory-partly-locked", Weight::Warning, text).advise(advice))
}

fn faults(
    seen: &ObservedProgram<'_>,
    observation: &Observation,
    _: &Expectation,
) -> Option<Finding> {
    let count = match (&seen.rhythm, observation.sources.faults) {
        (Some(rhythm), true) => rhythm.faults,
        _ => seen.thread.faults?,
    };
    let text = format!(
        "{} had {count} page faults in its loop within {}",
        named(seen.thread),
        Nanos(observation.look_ns)
    );
    let advice =
        "lock the memory, touch it and the stack before the loop, and allocate nothing in the loop";
    (count > 0).then(|| Finding::new("page-faults", Weight::Warning, text).advise(advice))
}

fn relative_sleep(seen: &ObservedProgram<'_>, _: &Observation, _: &Expectation) -> Option<Finding> {
    let rhythm = seen.rhythm.as_ref().filter(|rhythm| rhythm.sleep == SleepForm::For)?;
    let median = rhythm.drift_ns.max(0.0);
    let share = median / rhythm.period_ns as f64;
    let text = format!(
        "{} uses relative sleeps. Its median period is {} longer than its sleep, which adds up to {} per hour. \
            {}",
        named(seen.thread),
        Nanos(median as u64),
        Nanos((share * HOUR_NS) as u64),
        drift_text(rhythm.drift)
    );
    let advice = "add the period to the last instant and sleep until that: clock_nanosleep with TIMER_ABSTIME, in C++ sleep_until, in Ada delay until";
    Some(Finding::new("relative-sleep", Weight::Warning, text).advise(advice))
}

const HOUR_NS: f64 = 3.6e12;

/// The drift with long delays included, as far as it is known.
fn drift_text(drift: Option<Slope>) -> String {
    let Some(slope) = drift else { return String::new() };
    let in_an_hour = |share: f64| Nanos((share.max(0.0) * HOUR_NS).round() as u64);
    match slope.half {
        Ok(half) => format!(
            "With all observed delays, the drift is {} per hour (95 % interval {} to {})",
            in_an_hour(slope.value),
            in_an_hour(slope.value - half).rounded(Rounding::Down),
            in_an_hour(slope.value + half).rounded(Rounding::Up)
        ),
        Err(why) => format!(
            "The effect of long delays is not known, because {}. Use a longer --duration",
            why.reason()
        ),
    }
}

fn wall_clock(seen: &ObservedProgram<'_>, _: &Observation, _: &Expectation) -> Option<Finding> {
    seen.rhythm.as_ref().filter(|rhythm| rhythm.is_wall_clock)?;
    let text = format!(
        "{} sleeps by the wall clock: when that clock is set, the thread wakes too early or too late",
        named(seen.thread)
    );
    let advice = "use CLOCK_MONOTONIC; in C++ std::chrono::steady_clock";
    Some(Finding::new("wall-clock-sleep", Weight::Warning, text).advise(advice))
}

fn overrun(seen: &ObservedProgram<'_>, _: &Observation, _: &Expectation) -> Option<Finding> {
    let rhythm = seen.rhythm.as_ref().filter(|rhythm| rhythm.overrun > 0)?;
    let longest = rhythm.activations.iter().map(|one| one.run_ns).max().unwrap_or(0);
    let text = format!(
        "{} missed {} of {} because of its own work, which takes up to {}",
        named(seen.thread),
        counted(rhythm.overrun, "period"),
        Nanos(rhythm.period_ns),
        Nanos(longest)
    );
    let advice = "make the work shorter, the period longer, or split the work";
    Some(Finding::new("overrun", Weight::Warning, text).advise(advice))
}

fn missed(seen: &ObservedProgram<'_>, _: &Observation, _: &Expectation) -> Option<Finding> {
    let rhythm = seen.rhythm.as_ref().filter(|rhythm| rhythm.missed > rhythm.overrun)?;
    let why = match rhythm.tells_work() {
        true => "because it got its CPU too late or was blocked: its own work was short",
        false => {
            "because of its own work or because it got its CPU too late: the trace can't show which"
        }
    };
    let text = format!(
        "{} missed {} of {} {why}",
        named(seen.thread),
        counted(rhythm.missed - rhythm.overrun, "period"),
        Nanos(rhythm.period_ns),
    );
    let advice = "see what runs before it (rtscope ps --above PRIORITY) and how late this machine wakes a thread (rtscope run)";
    Some(Finding::new("missed-periods", Weight::Warning, text).advise(advice))
}

/// A mean period may be off by so much of it.
const PERIOD_TOLERANCE: f64 = 0.001;

fn period(seen: &ObservedProgram<'_>, _: &Observation, expected: &Expectation) -> Option<Finding> {
    let (rhythm, asked_ns) = (seen.rhythm.as_ref()?, expected.period_ns?);
    let off = rhythm.period_ns as f64 / asked_ns.max(1) as f64 - 1.0;
    let text = format!(
        "{} has a period of {}, but {} was expected",
        named(seen.thread),
        Nanos(rhythm.period_ns),
        Nanos(asked_ns)
    );
    let advice = "check how the program computes its next instant";
    (off.abs() > PERIOD_TOLERANCE)
        .then(|| Finding::new("period-not-as-expected", Weight::PreventsPass, text).advise(advice))
}

fn locks(
    seen: &ObservedProgram<'_>,
    observation: &Observation,
    _: &Expectation,
) -> Option<Finding> {
    let rhythm = seen.rhythm.as_ref()?;
    let waits = || rhythm.waits.iter().filter(|wait| wait.is_mutex);
    let longest = waits().map(|wait| wait.waited_ns).max()?;
    let mut wakers: Vec<&ObservedThread> = waits()
        .filter_map(|wait| wait.by)
        .filter_map(|by| observation.threads.iter().find(|thread| thread.tid == by))
        .collect();
    wakers.sort_by_key(|thread| thread.tid);
    wakers.dedup_by_key(|thread| thread.tid);
    let wakers: Vec<String> = wakers
        .iter()
        .map(|thread| format!("{}, {}", named(thread), thread.placement.policy))
        .collect();
    let from = match wakers.is_empty() {
        true => String::new(),
        false => format!(" until {} released it", wakers.join(" or ")),
    };
    let text = format!(
        "{} waited {} times for a mutex without priority inheritance, for at most {}{from}: while it waits, threads of medium priority may run before the holder",
        named(seen.thread),
        waits().count(),
        Nanos(longest)
    );
    let advice = "create the mutex with pthread_mutexattr_setprotocol(PTHREAD_PRIO_INHERIT), which std::mutex doesn't do, or share the data without a lock";
    Some(Finding::new("lock-without-inheritance", Weight::Warning, text).advise(advice))
}

fn untold(observation: &Observation, threads: &[ObservedProgram<'_>]) -> Vec<String> {
    let sources = observation.sources;
    let mut untold = Vec::new();
    if let Some(why) = &observation.untraced {
        untold.push(format!("period, jitter, drift and missed periods: {why}"));
    } else if !(sources.switches && sources.timers) {
        untold.push("period, jitter, drift and missed periods: the kernel's trace could not be used (it needs root and a kernel with tracing)".to_owned());
    } else if threads.iter().all(|seen| seen.rhythm.is_none()) {
        untold.push("period, jitter, drift and missed periods: no thread was woken by its timer five times. Use a longer --duration. If that doesn't help, either no thread is periodic, or another thread arms the timer".to_owned());
    }
    let blind = |seen: &&ObservedProgram<'_>| {
        seen.judged && seen.rhythm.as_ref().is_some_and(|rhythm| !rhythm.tells_work())
    };
    for seen in threads.iter().filter(blind) {
        let (hidden, all) = seen
            .rhythm
            .as_ref()
            .map_or((0, 0), |own| (own.without_switches(), own.activations.len()));
        untold.push(format!(
            "latency and work of {}, and so whether long work or late wake-ups cause missed periods: {hidden} of its {all} activations had no sched_switch. The thread did not sleep before them, or the kernel did not show the switch, as in some virtual machines. Try again, or use another CPU",
            named(seen.thread)
        ));
    }
    if !sources.futexes {
        untold.push("blocking without priority inheritance: the kernel has no events for system calls, or they could not be used".to_owned());
    }
    if observation.lost > 0 {
        untold.push(format!(
            "events of the first part of the observation: {} of them did not fit into the trace buffer",
            observation.lost
        ));
    }
    untold
}

#[cfg(test)]
mod tests {
    use rtscope_model::{
        check::{ProcessMemory, Sources, ThreadEvent, ThreadEventKind},
        schedule::Placement,
    };

    use super::*;
    use crate::statistics::slope::NoInterval;

    const MS: u64 = 1_000_000;

    fn thread(tid: u32, policy: Policy, events: Vec<ThreadEvent>) -> ObservedThread {
        let priority = u8::from(policy.has_priority()) * 80;
        let cpus = [0].into_iter().collect();
        let placement = Placement { policy, priority, nice: 0, budget: None, cpus };
        ObservedThread { pid: 9, tid, name: format!("t{tid}"), placement, faults: Some(0), events }
    }

    /// Ten activations on a grid of 10 ms; `more` is put in after each.
    fn periodic(more: &[ThreadEventKind]) -> Vec<ThreadEvent> {
        let mut events = Vec::new();
        for n in 0..10 {
            let at = 1_000 * MS + n * 10 * MS;
            // Uneven sleeps, an even grid.
            let begin = at - 9 * MS + n % 3 * 50_000;
            for (at_ns, what) in [
                (begin, ThreadEventKind::Timer { expires_ns: at, relative: false }),
                (begin, ThreadEventKind::Out { ready: false }),
                (at, ThreadEventKind::Waking { by: None }),
                (at + 20_000, ThreadEventKind::In),
            ] {
                events.push(ThreadEvent { at_ns, what });
            }
            let later = |(k, what): (u64, &ThreadEventKind)| ThreadEvent {
                at_ns: at + 30_000 + k * 1_000,
                what: *what,
            };
            events.extend((0..).zip(more).map(later));
        }
        events
    }

    fn seen(threads: Vec<ObservedThread>) -> Observation {
        Observation {
            look_ns: 1_000 * MS,
            sources: Sources { switches: true, timers: true, faults: true, futexes: true },
            memory: vec![ProcessMemory { pid: 9, locked_bytes: 4 << 20, resident_bytes: 4 << 20 }],
            threads,
            ..Observation::default()
        }
    }

    fn codes(observation: &Observation, expected: &Expectation) -> Vec<String> {
        judge(observation, expected).findings.into_iter().map(|finding| finding.code).collect()
    }

    fn fifo_80() -> Expectation {
        Expectation { policy: Some((Policy::Fifo, Some(80))), period_ns: Some(10 * MS) }
    }

    #[test]
    fn a_drift_is_told_for_an_hour() {
        let slope = |half| Slope { value: 1e-6, half };
        let told = |half| drift_text(Some(slope(half)));
        assert_eq!(
            told(Ok(4e-7)),
            "With all observed delays, the drift is 3.6 ms per hour (95 % interval 2.16 ms to 5.04 ms)"
        );
        assert!(told(Err(NoInterval::Few)).starts_with("The effect of long delays is not known"));
        assert_eq!(drift_text(None), "");
    }

    #[test]
    fn a_right_program_has_no_findings_and_everything_is_told() {
        let right =
            seen(vec![thread(1, Policy::Other, vec![]), thread(2, Policy::Fifo, periodic(&[]))]);
        let checked = judge(&right, &fifo_80());
        assert_eq!((checked.findings, checked.untold), (vec![], vec![]));
        assert_eq!(
            checked.threads.iter().map(|seen| seen.judged).collect::<Vec<_>>(),
            [false, true]
        );
    }

    #[test]
    fn hidden_switches_are_said_and_no_work_is_called_short() {
        let is_switch = |event: &ThreadEvent| {
            matches!(event.what, ThreadEventKind::In | ThreadEventKind::Out { .. })
        };
        let mut events = periodic(&[]);
        events.retain(|event| !is_switch(event));
        let hidden = seen(vec![thread(2, Policy::Fifo, events.clone())]);
        let checked = judge(&hidden, &fifo_80());
        assert_eq!(checked.findings, []);
        let said = &checked.untold[0];
        assert!(said.contains("thread 2 (t2)") && said.contains("had no sched_switch"), "{said}");
        // Two periods are left out: by what, nobody knows.
        let gap = |event: &ThreadEvent| !(1_035 * MS..1_055 * MS).contains(&event.at_ns);
        events.retain(gap);
        let missed = seen(vec![thread(2, Policy::Fifo, events)]);
        let checked = judge(&missed, &fifo_80());
        assert_eq!(checked.findings[0].code, "missed-periods");
        assert!(
            checked.findings[0].text.contains("can't show which"),
            "{}",
            checked.findings[0].text
        );
    }

    #[test]
    fn work_that_is_longer_than_the_period_is_named_with_its_length() {
        let mut events = periodic(&[]);
        // From 1,030.02 ms on it runs until it sleeps at 1,051 ms, for 20.98 ms, across two periods.
        events.retain(|event| !(1_031 * MS..1_051 * MS).contains(&event.at_ns));
        let late = seen(vec![thread(2, Policy::Fifo, events)]);
        let checked = judge(&late, &fifo_80());
        let found: Vec<&str> = checked.findings.iter().map(|one| one.code.as_str()).collect();
        assert_eq!(found, ["overrun"]);
        let text = &checked.findings[0].text;
        assert!(text.contains("missed 2 periods of 10 ms") && text.ends_with("21 ms"), "{text}");
    }

    #[test]
    fn a_relative_sleep_is_named_with_what_it_adds_up_to() {
        // Sleeps of 10 ms from 2 ms after each wake-up: the period is 12 ms, so 2 of 12 ms are late.
        let activation = |n: u64| {
            let begin = 1_000 * MS + n * 12 * MS;
            [
                (begin, ThreadEventKind::Timer { expires_ns: begin + 10 * MS, relative: true }),
                (begin, ThreadEventKind::Out { ready: false }),
                (begin + 10 * MS, ThreadEventKind::Waking { by: None }),
                (begin + 10 * MS, ThreadEventKind::In),
            ]
        };
        let events = (0..10).flat_map(activation).map(|(at_ns, what)| ThreadEvent { at_ns, what });
        let relative = seen(vec![thread(2, Policy::Fifo, events.collect())]);
        let checked = judge(&relative, &Expectation { period_ns: None, ..fifo_80() });
        let text = &checked.findings[0].text;
        let expected = "is 2 ms longer than its sleep, which adds up to 10 min per hour";
        assert!(text.contains(expected), "{text}");
    }

    #[test]
    fn each_mistake_is_named_alone() {
        let right = || seen(vec![thread(2, Policy::Fifo, periodic(&[]))]);
        let with = |change: fn(&mut Observation)| {
            let mut wrong = right();
            change(&mut wrong);
            codes(&wrong, &fifo_80())
        };
        assert_eq!(with(|o| o.memory[0].locked_bytes = 0), ["memory-not-locked"]);
        assert_eq!(with(|o| o.memory[0].locked_bytes = 1 << 20), ["memory-partly-locked"]);
        assert_eq!(with(|o| o.threads[0].placement.priority = 79), ["policy-not-as-expected"]);
        assert_eq!(
            with(|o| o.threads[0].placement.policy = Policy::Rr),
            ["policy-not-as-expected"]
        );
        assert_eq!(
            with(|o| o.threads[0].events = periodic(&[ThreadEventKind::Fault])),
            ["page-faults"]
        );
        let mut other = fifo_80();
        other.period_ns = Some(11 * MS);
        assert_eq!(codes(&right(), &other), ["period-not-as-expected"]);
        let ordinary = seen(vec![thread(2, Policy::Other, periodic(&[]))]);
        assert_eq!(codes(&ordinary, &Expectation::default()), ["ordinary-policy"]);
        let expected = Expectation { policy: Some((Policy::Other, None)), period_ns: None };
        assert_eq!(codes(&ordinary, &expected), [""; 0]);
    }

    #[test]
    fn a_mutex_without_inheritance_is_named_with_who_held_it() {
        let wait = [
            ThreadEventKind::Futex { operation: 0, value: 2, limited: false },
            ThreadEventKind::Out { ready: false },
            ThreadEventKind::Waking { by: Some(1) },
            ThreadEventKind::In,
        ];
        let program =
            |events| seen(vec![thread(1, Policy::Other, vec![]), thread(2, Policy::Fifo, events)]);
        let wrong = program(periodic(&wait));
        let checked = judge(&wrong, &fifo_80());
        assert_eq!(checked.findings[0].code, "lock-without-inheritance");
        let text = &checked.findings[0].text;
        assert!(text.contains("9 times") && text.contains("thread 1 (t1), other"), "{text}");
        let with_inheritance = ThreadEventKind::Futex { operation: 6, value: 0, limited: false };
        let right = program(periodic(&[with_inheritance, wait[1], wait[2], wait[3]]));
        assert_eq!(codes(&right, &fifo_80()), [""; 0]);
    }

    /// Wake-ups that the kernel doesn't show are perhaps the late ones.
    #[test]
    fn figures_of_some_activations_are_not_called_those_of_all() {
        let shown = |unseen: u64| {
            let mut events = periodic(&[]);
            let is_hidden = |event: &ThreadEvent| {
                let nth = (event.at_ns - 990 * MS) / (10 * MS);
                let is_switch =
                    matches!(event.what, ThreadEventKind::In | ThreadEventKind::Out { .. });
                is_switch && (1..=unseen).contains(&nth)
            };
            events.retain(|event| !is_hidden(event));
            let program = seen(vec![thread(2, Policy::Fifo, events)]);
            let checked = judge(&program, &fifo_80());
            (crate::report::check::table(&checked), checked.untold.len())
        };
        let (all, none) = shown(0);
        assert!(none == 0 && !all.contains("of them"), "{all}");
        assert!(all.ends_with("No mistake was found.\n"), "{all}");
        let (some, _) = shown(2);
        assert!(some.contains("(from 8 of them; the worst may be among the others)"), "{some}");
        let (few, untold) = shown(8);
        assert!(untold == 1 && few.contains("of them; the worst may be among the others"), "{few}");
        let mut blind = seen(vec![thread(1, Policy::Fifo, vec![])]);
        blind.sources = Sources::default();
        let text = crate::report::check::table(&judge(&blind, &Expectation::default()));
        assert!(text.ends_with("No mistake was found in what could be seen.\n"), "{text}");
    }

    #[test]
    fn what_has_no_source_is_not_told_and_no_mistake() {
        let mut blind = seen(vec![thread(1, Policy::Fifo, vec![])]);
        blind.sources = Sources::default();
        let checked = judge(&blind, &Expectation::default());
        assert_eq!(checked.findings, []);
        assert_eq!(checked.untold.len(), 2);
        blind.untraced = Some("can't write buffer_size_kb: no memory".to_owned());
        assert!(judge(&blind, &Expectation::default()).untold[0].ends_with(": no memory"));
        blind.threads[0].faults = Some(3);
        assert_eq!(codes(&blind, &Expectation::default()), ["page-faults"]);
        let quiet = seen(vec![thread(1, Policy::Fifo, vec![])]);
        assert!(judge(&quiet, &Expectation::default()).untold[0].contains("another thread arms"));
    }
}
