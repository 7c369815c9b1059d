//! Predicted response times: from the release of an application to the end of its work.
//!
//! [`predict`] plays the kernel's rules forward: fixed priorities with first come, first served
//! within one; turns of a quantum for RR; the bandwidth of real-time threads on each CPU; what is
//! left in fair shares by weight; deadlines with their budgets; one mutex, with or without priority
//! inheritance. [`fixed_priority`] is response-time analysis for periodic tasks, [`admitted`] the
//! kernel's test for new deadline threads.
//! Neither knows the cost of a switch, interrupts, caches, or other programs on the machine.

mod machine;

use rtscope_model::{
    cpu::CpuSet,
    sched::{MutexProtocol, SchedulingRules},
    schedule::{Budget, Policy},
};

use self::machine::{Limit, Machine};

/// Instants at which the period of throttling may begin that are looked at.
const PHASES: u32 = 20;

/// A job of an application to predict.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Job {
    /// Policy: real-time ones run before fair ones.
    pub policy: Policy,
    /// Real-time priority.
    pub priority: u8,
    /// Nice value of the fair class.
    pub nice: i8,
    /// CPUs it may use.
    pub cpus: CpuSet,
    /// CPU time it needs.
    pub work_ns: u64,
    pub release_ns: u64,
    /// How much of the work it begins with while it holds the mutex; 0 takes no mutex.
    pub holds_ns: u64,
    /// Budget of a deadline application.
    pub budget: Option<Budget>,
    /// The job of the same thread that must be done before, by its place in the list.
    pub after: Option<usize>,
}

impl Job {
    /// One of a plain application: no mutex, no budget, nothing before it.
    #[must_use]
    pub fn new(policy: Policy, priority: u8, cpus: CpuSet, work_ns: u64) -> Job {
        let (nice, release_ns, holds_ns) = (0, 0, 0);
        Job {
            policy,
            priority,
            nice,
            cpus,
            work_ns,
            release_ns,
            holds_ns,
            budget: None,
            after: None,
        }
    }
}

/// CPU time that real-time threads may have in each period while ordinary ones wait: by throttling or by
/// what the fair server leaves, whichever is less. None is no limit.
#[must_use]
pub fn real_time_share(rules: &SchedulingRules) -> Option<u64> {
    let server = rules.fair_server.filter(|server| server.runtime_ns > 0);
    // In parts of the one period that throttling has.
    let left = server.map(|server| {
        let granted = server.runtime_ns as f64 / server.period_ns.max(1) as f64;
        (rules.rt_period_ns as f64 * (1.0 - granted).max(0.0)).round() as u64
    });
    [rules.rt_runtime_ns, left].into_iter().flatten().min()
}

/// Which of the deadline applications the kernel admits, in their order: as long as the sum of runtime
/// over period stays within what throttling leaves of all CPUs, less the fair servers. Without
/// throttling all are.
#[must_use]
pub fn admitted(budgets: &[Option<Budget>], rules: &SchedulingRules) -> Vec<bool> {
    let share = |runtime_ns: u64, period_ns: u64| runtime_ns as f64 / period_ns.max(1) as f64;
    let room = rules.rt_runtime_ns.map(|runtime_ns| {
        let servers = rules.fair_server.map_or(0.0, |own| share(own.runtime_ns, own.period_ns));
        (share(runtime_ns, rules.rt_period_ns) - servers) * rules.cpus.len() as f64
    });
    let mut taken = 0.0;
    let mut admit = |budget: &Option<Budget>| {
        let (Some(budget), Some(room)) = (budget, room) else { return true };
        let asked = share(budget.runtime_ns, budget.period_ns);
        let fits = taken + asked <= room + 1e-6;
        taken += if fits { asked } else { 0.0 };
        fits
    };
    budgets.iter().map(&mut admit).collect()
}

/// Weight of a nice value: 1024 for 0, a factor of 1.25 for each step (the kernel's table is this
/// series, rounded). The idle policy has 3.
#[must_use]
pub fn weight(policy: Policy, nice: i8) -> f64 {
    if policy == Policy::Idle { 3.0 } else { 1024.0 * 1.25_f64.powi(-i32::from(nice)) }
}

/// Longest response time of a periodic task of fixed priority: its own time plus the time of every task of
/// higher priority as often as it is released meanwhile (Joseph and Pandya, "Finding Response Times in a
/// Real-Time System", 1986). A job that isn't done when the next is released holds that one up, which may then
/// respond later still: so every job of the busy period is looked at (Lehoczky, "Fixed Priority Scheduling of
/// Periodic Task Sets with Arbitrary Deadlines", 1990). `own` and each of `higher` are execution time and
/// period; `blocked_ns` is the longest time that a task of lower priority holds it up. None when a response
/// would exceed the limit.
#[must_use]
pub fn fixed_priority(
    own: (u64, u64),
    blocked_ns: u64,
    higher: &[(u64, u64)],
    limit_ns: u64,
) -> Option<u64> {
    let (own_ns, period_ns) = (own.0, own.1.max(1));
    let preempted = |until: u64| -> u64 {
        higher.iter().map(|(time, period)| until.div_ceil((*period).max(1)) * time).sum()
    };
    let (mut longest, mut done) = (0, blocked_ns);
    for job in 0.. {
        let released = job * period_ns;
        let mut next = done + own_ns;
        loop {
            done = next;
            if done.saturating_sub(released) > limit_ns {
                return None;
            }
            next = blocked_ns + (job + 1) * own_ns + preempted(done);
            if next <= done {
                break;
            }
        }
        longest = longest.max(done - released);
        if done <= released + period_ns {
            break;
        }
    }
    Some(longest)
}

/// Response time of each job. Where throttling limits real-time threads, as if one of its periods began at
/// 0, when the experiment is released.
#[must_use]
pub fn predict(jobs: &[Job], rules: &SchedulingRules, mutex: MutexProtocol) -> Vec<u64> {
    play(jobs, rules, mutex, limit(rules, 1.0))
}

/// The shortest and the longest response time of each job over the instants at which a period of throttling
/// may begin: nobody knows when. None where no throttling acts, or there is too little to throttle.
#[must_use]
pub fn predict_range(
    jobs: &[Job],
    rules: &SchedulingRules,
    mutex: MutexProtocol,
) -> Option<Vec<(u64, u64)>> {
    let Limit::Throttling { runtime_ns, .. } = limit(rules, 1.0) else { return None };
    let real_time = jobs.iter().filter(|job| job.policy.is_real_time());
    if real_time.map(|job| job.work_ns).sum::<u64>() < runtime_ns {
        return None;
    }
    let phases = (1..=PHASES).map(|n| f64::from(n) / f64::from(PHASES));
    let all: Vec<Vec<u64>> =
        phases.map(|phase| play(jobs, rules, mutex, limit(rules, phase))).collect();
    let range = |job: usize| {
        let of_job = || all.iter().map(|responses| responses[job]);
        (of_job().min().unwrap_or_default(), of_job().max().unwrap_or_default())
    };
    Some((0..jobs.len()).map(range).collect())
}

/// What limits real-time threads; the first period of throttling ends at a share of it.
fn limit(rules: &SchedulingRules, phase: f64) -> Limit {
    match (rules.fair_server, rules.rt_runtime_ns) {
        (None, Some(runtime_ns)) if runtime_ns < rules.rt_period_ns => {
            Limit::Throttling { runtime_ns, period_end_ns: rules.rt_period_ns as f64 * phase }
        }
        _ => Limit::Server { share_ns: real_time_share(rules) },
    }
}

fn play(jobs: &[Job], rules: &SchedulingRules, mutex: MutexProtocol, limit: Limit) -> Vec<u64> {
    let mut machine = Machine::new(jobs, rules, mutex, limit);
    // Each step ends a job, a turn, a period or a wait; the bound only guards against a mistake.
    for _ in 0..1_000_000 {
        if !machine.step() {
            break;
        }
    }
    jobs.iter()
        .zip(&machine.finish_ns)
        .map(|(job, finish)| (finish - job.release_ns as f64).max(0.0).round() as u64)
        .collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rtscope_model::sched::FairServer;

    use super::*;

    const MS: u64 = 1_000_000;

    fn rules(cpus: &str) -> SchedulingRules {
        SchedulingRules {
            cpus: cpus.parse().expect("CPUs"),
            one: 1,
            rr_quantum_ns: 100 * MS,
            rt_runtime_ns: None,
            rt_period_ns: 1000 * MS,
            fair_server: None,
        }
    }

    fn job(policy: Policy, priority: u8, cpus: &str, work_ms: u64) -> Job {
        Job::new(policy, priority, cpus.parse().expect("CPUs"), work_ms * MS)
    }

    fn fifo(cpus: &str) -> Job {
        job(Policy::Fifo, 80, cpus, 400)
    }

    fn other(cpus: &str) -> Job {
        job(Policy::Other, 0, cpus, 400)
    }

    fn rr(cpus: &str) -> Job {
        job(Policy::Rr, 80, cpus, 400)
    }

    fn in_ms(jobs: &[Job], rules: &SchedulingRules) -> Vec<u64> {
        predict(jobs, rules, MutexProtocol::Plain)
            .into_iter()
            .map(|ns| (ns + MS / 2) / MS)
            .collect()
    }

    #[test]
    fn one_fifo_pinned_is_one_to_three_to_three() {
        assert_eq!(in_ms(&[fifo("1"), other("1"), other("1")], &rules("0-1")), [400, 1200, 1200]);
    }

    #[test]
    fn one_fifo_free_shares_what_it_leaves() {
        let jobs = |cpus| [fifo(cpus), other(cpus), other(cpus)];
        assert_eq!(in_ms(&jobs("0-3"), &rules("0-3")), [400, 400, 400]);
        // Two CPUs: 400 ms at half a CPU each, then 200 ms at a whole one.
        assert_eq!(in_ms(&jobs("0-1"), &rules("0-1")), [400, 600, 600]);
    }

    #[test]
    fn free_jobs_share_what_pinned_ones_leave() {
        // Three on CPU 0 get a third of it each, which is less than 2/5; the free ones get half of CPU 1 each.
        let jobs = [other("0"), other("0"), other("0"), other("0-1"), other("0-1")];
        assert_eq!(in_ms(&jobs, &rules("0-1")), [1200, 1200, 1200, 800, 800]);
    }

    #[test]
    fn two_fifo_pinned_come_one_after_the_other() {
        assert_eq!(in_ms(&[fifo("1"), fifo("1"), other("1")], &rules("0-1")), [400, 800, 1200]);
    }

    #[test]
    fn two_rr_pinned_take_turns_of_a_quantum() {
        // Turns of 100 ms: the first ends its fourth at 700, the second at 800.
        assert_eq!(in_ms(&[rr("1"), rr("1"), other("1")], &rules("0-1")), [700, 800, 1200]);
        // 2.32 s: 23 whole turns each, then 20 ms: 46 * 100 + 20, and 20 more.
        let long = |policy| job(policy, 80, "1", 2320);
        assert_eq!(in_ms(&[long(Policy::Rr), long(Policy::Rr)], &rules("0-3")), [4620, 4640]);
    }

    #[test]
    fn two_fifo_free_leave_nothing_on_two_cpus() {
        let jobs = |cpus| [fifo(cpus), fifo(cpus), other(cpus)];
        assert_eq!(in_ms(&jobs("0-1"), &rules("0-1")), [400, 400, 800]);
        assert_eq!(in_ms(&jobs("0-2"), &rules("0-2")), [400, 400, 400]);
        assert_eq!(in_ms(&jobs("0"), &rules("0")), [400, 800, 1200]);
    }

    #[test]
    fn a_higher_priority_takes_the_cpu_when_it_is_released() {
        let mut late = job(Policy::Fifo, 90, "1", 50);
        late.release_ns = 100 * MS;
        // 100 of 400, then 50 of the other, then the rest; 50 for the late one.
        assert_eq!(in_ms(&[fifo("1"), late], &rules("0-1")), [450, 50]);
    }

    #[test]
    fn the_bandwidth_limit_gives_the_fair_class_its_part() {
        let limited = SchedulingRules { rt_runtime_ns: Some(950 * MS), ..rules("0") };
        // 950 of FIFO, 50 of fair, 950 of FIFO, 50 of fair, the last 100 of FIFO; then the fair rest.
        let jobs = [job(Policy::Fifo, 1, "0", 2000), job(Policy::Other, 0, "0", 150)];
        assert_eq!(in_ms(&jobs, &limited), [2100, 2150]);
        // Throttling leaves the CPU idle when nobody waits; the fair server does not.
        assert_eq!(in_ms(&jobs[..1], &limited), [2100]);
        assert_eq!(in_ms(&jobs, &served(&limited, 50)), [2100, 2150]);
        assert_eq!(in_ms(&jobs[..1], &served(&limited, 50)), [2000]);
        assert_eq!(in_ms(&jobs, &rules("0")), [2000, 2150]);
    }

    /// The same with a fair server in place of throttling.
    fn served(rules: &SchedulingRules, runtime_ms: u64) -> SchedulingRules {
        let server = FairServer { runtime_ns: runtime_ms * MS, period_ns: rules.rt_period_ns };
        SchedulingRules { fair_server: Some(server), ..rules.clone() }
    }

    #[test]
    fn nobody_knows_when_a_period_of_throttling_begins() {
        let limited = SchedulingRules { rt_runtime_ns: Some(950 * MS), ..rules("0") };
        let jobs = [job(Policy::Fifo, 1, "0", 1900), job(Policy::Other, 0, "0", 30)];
        let range = predict_range(&jobs, &limited, MutexProtocol::Plain).expect("throttled");
        let in_ms: Vec<_> = range.iter().map(|(low, high)| (low / MS, high / MS)).collect();
        // A period from 0 on: throttled 950-1000, so 30 ms later than that the ordinary one is done, and
        // again 1950-2000, but by then all is done. One that ends at 950 ms has seen no more than its share:
        // throttled then from 1900 on, when FIFO is done. 50 ms of standstill or none for FIFO.
        assert_eq!(in_ms, [(1900, 1950), (980, 1930)]);
        assert_eq!(predict_range(&jobs, &served(&limited, 50), MutexProtocol::Plain), None);
        assert_eq!(predict_range(&jobs[1..], &limited, MutexProtocol::Plain), None);
        assert_eq!(predict_range(&jobs, &rules("0"), MutexProtocol::Plain), None);
    }

    #[test]
    fn what_the_fair_class_does_not_need_goes_back() {
        let rules =
            SchedulingRules { rt_runtime_ns: Some(95 * MS), rt_period_ns: 100 * MS, ..rules("0") };
        // 95 of FIFO, 1 of fair, which needs no more, the last 1 of FIFO: from the fair server. Throttling
        // holds up to the end of its period.
        let jobs = [
            job(Policy::Fifo, 10, "0", 78),
            job(Policy::Other, 0, "0", 1),
            job(Policy::Fifo, 10, "0", 18),
        ];
        assert_eq!(in_ms(&jobs, &served(&rules, 5)), [78, 96, 97]);
        assert_eq!(in_ms(&jobs, &rules), [78, 96, 101]);
    }

    #[test]
    fn nice_values_share_by_weight() {
        let mut nicer = other("0");
        nicer.nice = 5;
        // Weights 1.25^5 = 3.0518 to 1: the first runs at 0.75319 and ends at 531 ms, both at 800.
        assert_eq!(in_ms(&[other("0"), nicer], &rules("0")), [531, 800]);
    }

    #[test]
    fn a_bound_job_keeps_its_cpu_from_free_ones() {
        // Free and bound fair jobs on two CPUs: three jobs, two CPUs; the two bound share theirs.
        assert_eq!(in_ms(&[other("0"), other("0"), other("0-1")], &rules("0-1")), [800, 800, 400]);
    }

    #[test]
    fn response_time_analysis_agrees_with_the_textbook_by_hand() {
        // C = 3, 3, 5 and T = 7, 12, 20: 3; 3 + 3 = 6; 5 + 3*3 + 2*3 = 20 after the fixed point.
        assert_eq!(fixed_priority((3, 7), 0, &[], 7), Some(3));
        assert_eq!(fixed_priority((3, 12), 0, &[(3, 7)], 12), Some(6));
        assert_eq!(fixed_priority((5, 20), 0, &[(3, 7), (3, 12)], 20), Some(20));
        assert_eq!(fixed_priority((5, 20), 1, &[(3, 7), (3, 12)], 20), None);
        assert_eq!(fixed_priority((1, 10), 0, &[(1, 1)], 1000), None);
    }

    #[test]
    fn the_longest_response_may_be_that_of_a_later_job() {
        let by_simulation = |own: (u64, u64), higher: (u64, u64)| {
            let (mut left, mut done, mut worst) = (Vec::new(), 0, 0);
            let mut high = 0;
            for now in 0..20_000u64 {
                high += if now.is_multiple_of(higher.1) { higher.0 } else { 0 };
                if now.is_multiple_of(own.1) {
                    left.push(own.0);
                }
                if high > 0 {
                    high -= 1;
                } else if done < left.len() {
                    left[done] -= 1;
                    if left[done] == 0 {
                        worst = worst.max(now + 1 - done as u64 * own.1);
                        done += 1;
                    }
                }
            }
            worst
        };
        for (own, higher) in [
            ((62, 100), (26, 70)),
            ((52, 140), (52, 100)),
            ((3, 12), (3, 7)),
            ((60, 100), (20, 60)),
        ] {
            let found = fixed_priority(own, 0, &[higher], 10_000);
            assert_eq!(found, Some(by_simulation(own, higher)), "{own:?} {higher:?}");
        }
        // Known from the article: the fifth job of (62, 100) below (26, 70) responds last, after 118.
        assert_eq!(fixed_priority((62, 100), 0, &[(26, 70)], 10_000), Some(118));
        assert_eq!(fixed_priority((62, 100), 0, &[(26, 70)], 117), None);
    }

    /// Low takes the mutex for the first 60 of 100 ms, high comes at 10 and needs it for 10 of 20 ms, middle
    /// comes at 20 and computes for 200 ms.
    fn inversion() -> Vec<Job> {
        let at = |job: Job, release_ms: u64, holds_ms: u64| Job {
            release_ns: release_ms * MS,
            holds_ns: holds_ms * MS,
            ..job
        };
        vec![
            at(job(Policy::Fifo, 10, "0", 100), 0, 60),
            at(job(Policy::Fifo, 80, "0", 20), 10, 10),
            at(job(Policy::Fifo, 50, "0", 200), 20, 0),
        ]
    }

    fn with(mutex: MutexProtocol, jobs: &[Job]) -> Vec<u64> {
        predict(jobs, &rules("0"), mutex).into_iter().map(|ns| (ns + MS / 2) / MS).collect()
    }

    #[test]
    fn without_inheritance_the_middle_one_keeps_the_high_one_waiting() {
        // Low 0-20, middle 20-220, low to the end of its section 220-260, high 260-280, low 280-320.
        assert_eq!(with(MutexProtocol::Plain, &inversion()), [320, 270, 200]);
    }

    #[test]
    fn with_inheritance_the_high_one_waits_for_the_section_only() {
        // Low 0-60 (as 80 from 10 on), high 60-80, middle 80-280, low 280-320.
        assert_eq!(with(MutexProtocol::Inherit, &inversion()), [320, 70, 260]);
    }

    #[test]
    fn an_ordinary_holder_inherits_too() {
        let mut jobs = inversion();
        jobs[0] = Job { policy: Policy::Other, priority: 0, ..jobs[0].clone() };
        assert_eq!(with(MutexProtocol::Inherit, &jobs), [320, 70, 260]);
        assert_eq!(with(MutexProtocol::Plain, &jobs), [320, 270, 200]);
    }

    /// Jobs of a periodic application, released together with the others.
    fn periodic(jobs: &mut Vec<Job>, priority: u8, time_ms: u64, period_ms: u64, count: u64) {
        for n in 0..count {
            let after = (n > 0).then(|| jobs.len() - 1);
            let release_ns = n * period_ms * MS;
            jobs.push(Job { release_ns, after, ..job(Policy::Fifo, priority, "0", time_ms) });
        }
    }

    #[test]
    fn periodic_jobs_respond_as_response_time_analysis_says() {
        let mut jobs = Vec::new();
        periodic(&mut jobs, 30, 3, 7, 6);
        periodic(&mut jobs, 20, 3, 12, 4);
        periodic(&mut jobs, 10, 5, 20, 2);
        let responses = in_ms(&jobs, &rules("0"));
        // By hand: A 0-3, B 3-6, C 6-7, A 7-10, C 10-12, B 12-14, A 14-17, B 17-18, C 18-20: as the fixed
        // point says. All are released together, so no later job waits longer.
        assert_eq!(responses[..6].iter().max(), Some(&3));
        assert_eq!(responses[6..10].iter().max(), Some(&6));
        assert_eq!(responses[10], 20);
        assert_eq!(fixed_priority((5, 20), 0, &[(3, 7), (3, 12)], 20), Some(20));
    }

    #[test]
    fn a_job_waits_for_the_one_before_it() {
        let mut jobs = Vec::new();
        periodic(&mut jobs, 30, 15, 10, 3);
        // 0-15, 15-30 (released at 10), 30-45 (at 20).
        assert_eq!(in_ms(&jobs, &rules("0")), [15, 20, 25]);
    }

    fn deadline(
        work_ms: u64,
        runtime_ms: u64,
        deadline_ms: u64,
        period_ms: u64,
        cpus: &str,
    ) -> Job {
        let budget = Budget {
            runtime_ns: runtime_ms * MS,
            deadline_ns: deadline_ms * MS,
            period_ns: period_ms * MS,
        };
        Job { budget: Some(budget), ..job(Policy::Deadline, 0, cpus, work_ms) }
    }

    #[test]
    fn an_overrun_gets_its_budget_once_a_period() {
        // 10 of 100 ms: 0-10, 100-110, 200-210, 300-305; the ordinary one has the rest.
        let jobs = [deadline(35, 10, 100, 100, "0"), job(Policy::Other, 0, "0", 150)];
        assert_eq!(in_ms(&jobs, &rules("0")), [305, 170]);
        // A FIFO thread runs when the budget is used up.
        let jobs = [deadline(15, 10, 100, 100, "0"), job(Policy::Fifo, 99, "0", 120)];
        assert_eq!(in_ms(&jobs, &rules("0")), [105, 135]);
    }

    #[test]
    fn the_earlier_deadline_runs_first() {
        let mut late = deadline(10, 10, 25, 100, "0");
        late.release_ns = 5 * MS;
        // Deadlines 60, 40, 30: the last comes at 5 and takes the CPU from the second.
        let jobs = [deadline(10, 20, 60, 100, "0"), deadline(20, 20, 40, 100, "0"), late];
        assert_eq!(in_ms(&jobs, &rules("0")), [40, 30, 10]);
    }

    #[test]
    fn deadlines_are_admitted_while_they_fit() {
        let budget = |percent: u64| {
            Some(Budget { runtime_ns: percent * MS, deadline_ns: 100 * MS, period_ns: 100 * MS })
        };
        let limited = SchedulingRules { rt_runtime_ns: Some(950 * MS), ..rules("0-1") };
        // Two CPUs have 1.9: 0.8 and 0.8 fit, the next does not, a small one does.
        let asked = [budget(80), budget(80), budget(80), None, budget(20)];
        assert_eq!(admitted(&asked, &limited), [true, true, false, true, true]);
        // The fair servers take 0.1 of it: 1.8.
        let server = Some(FairServer { runtime_ns: 50 * MS, period_ns: 1000 * MS });
        let served = SchedulingRules { fair_server: server, ..limited.clone() };
        let asked = [budget(80), budget(80), budget(21), budget(20)];
        assert_eq!(admitted(&asked, &served), [true, true, false, true]);
        assert_eq!(admitted(&asked, &rules("0")), [true; 4]);
        assert_eq!(
            admitted(&asked, &SchedulingRules { cpus: "0".parse().expect("a CPU"), ..limited }),
            [true, false, false, false]
        );
    }

    #[test]
    fn the_fair_server_leaves_what_throttling_does() {
        let server = Some(FairServer { runtime_ns: 50 * MS, period_ns: 1000 * MS });
        let off = SchedulingRules { fair_server: server, ..rules("0") };
        assert_eq!(real_time_share(&off), Some(950 * MS));
        let less = SchedulingRules { rt_runtime_ns: Some(900 * MS), ..off };
        assert_eq!(real_time_share(&less), Some(900 * MS));
        assert_eq!(real_time_share(&rules("0")), None);
        // A server that may not run leaves everything.
        let idle = FairServer { runtime_ns: 0, period_ns: 1_000 * MS };
        let off = SchedulingRules { fair_server: Some(idle), ..rules("0") };
        assert_eq!(real_time_share(&off), None);
        // FIFO 1900 ms, ordinary 30 ms: after 900 ms it gets its 30.
        let jobs = [job(Policy::Fifo, 50, "0", 1900), job(Policy::Other, 0, "0", 30)];
        assert_eq!(in_ms(&jobs, &less), [1930, 930]);
        assert_eq!(in_ms(&jobs, &rules("0")), [1900, 1930]);
    }

    proptest! {
        #[test]
        fn one_cpu_does_all_work_and_no_more(
            works in proptest::collection::vec((1u64..300, 0usize..3), 1..6),
        ) {
            let policies = [Policy::Fifo, Policy::Rr, Policy::Other];
            let jobs: Vec<Job> = works
                .iter()
                .map(|(work, policy)| {
                    let policy = policies[*policy];
                    job(policy, u8::from(policy.has_priority()) * 10, "0", *work)
                })
                .collect();
            let total: u64 = works.iter().map(|(work, _)| work).sum();
            for limit in [None, Some(95 * MS)] {
                let rules = SchedulingRules { rt_runtime_ns: limit, rt_period_ns: 100 * MS, ..rules("0") };
                let rules = if limit.is_some() { served(&rules, 5) } else { rules };
                let responses = in_ms(&jobs, &rules);
                prop_assert_eq!(responses.iter().max(), Some(&total));
                for (response, (work, _)) in responses.iter().zip(&works) {
                    prop_assert!(response >= work);
                }
            }
        }
    }
}
