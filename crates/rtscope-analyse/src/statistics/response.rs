//! Predicted response times: from the release of an application to the end of its work.
//!
//! [`predict`] plays the kernel's rules forward: fixed priorities with first come, first served
//! within one; turns of a quantum for RR; the bandwidth of real-time threads on each CPU; what is
//! left in fair shares by weight. [`fixed_priority`] is response-time analysis for periodic tasks.
//! Neither knows the cost of a switch, interrupts, caches, or other programs on the machine.

use rtscope_model::{cpu::CpuSet, experiment::SchedulingRules, schedule::Policy};

/// An application to predict.
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
    /// Its release.
    pub release_ns: u64,
}

/// Weight of a nice value: 1024 for 0, a factor of 1.25 for each step (the kernel's table is this
/// series, rounded). The idle policy has 3.
#[must_use]
pub fn weight(policy: Policy, nice: i8) -> f64 {
    if policy == Policy::Idle { 3.0 } else { 1024.0 * 1.25_f64.powi(-i32::from(nice)) }
}

/// Response time of a periodic task by fixed-point iteration: its own time plus the time of every
/// task of higher priority as often as it is released meanwhile (Joseph and Pandya, "Finding
/// Response Times in a Real-Time System", 1986). `higher` holds execution time and period; `blocked_ns` is
/// the longest time that a task of lower priority holds it up. None when it would exceed the limit.
#[must_use]
pub fn fixed_priority(
    own_ns: u64,
    blocked_ns: u64,
    higher: &[(u64, u64)],
    limit_ns: u64,
) -> Option<u64> {
    let mut response = own_ns + blocked_ns;
    while response <= limit_ns {
        let preempted: u64 =
            higher.iter().map(|(time, period)| response.div_ceil((*period).max(1)) * time).sum();
        let next = own_ns + blocked_ns + preempted;
        if next == response {
            return Some(response);
        }
        response = next;
    }
    None
}

/// Response time of each job.
#[must_use]
pub fn predict(jobs: &[Job], rules: &SchedulingRules) -> Vec<u64> {
    let mut machine = Machine::new(jobs, rules);
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

/// Below this a remainder is rounding.
const NOTHING_NS: f64 = 1e-3;

/// The real-time bandwidth of a CPU.
#[derive(Clone, Copy, Debug, Default)]
struct Bandwidth {
    /// Real-time threads have run for so long in this period while others waited.
    used_ns: f64,
    /// When the fair class has got its share; none while real-time threads may run.
    throttled_until_ns: Option<f64>,
}

/// The state of the game.
struct Machine<'a> {
    jobs: &'a [Job],
    rules: &'a SchedulingRules,
    cpus: Vec<u32>,
    now_ns: f64,
    left_ns: Vec<f64>,
    finish_ns: Vec<f64>,
    /// Released real-time jobs, the head of each priority first.
    queue: Vec<usize>,
    queued: Vec<bool>,
    /// Rest of the turn of each RR job.
    turn_ns: Vec<f64>,
    last_cpu: Vec<Option<usize>>,
    bandwidth: Vec<Bandwidth>,
}

impl<'a> Machine<'a> {
    fn new(jobs: &'a [Job], rules: &'a SchedulingRules) -> Machine<'a> {
        let cpus: Vec<u32> = rules.cpus.iter().collect();
        Machine {
            jobs,
            rules,
            now_ns: 0.0,
            left_ns: jobs.iter().map(|job| job.work_ns as f64).collect(),
            finish_ns: jobs.iter().map(|job| job.release_ns as f64).collect(),
            queue: Vec::new(),
            queued: vec![false; jobs.len()],
            turn_ns: vec![rules.rr_quantum_ns as f64; jobs.len()],
            last_cpu: vec![None; jobs.len()],
            bandwidth: vec![Bandwidth::default(); cpus.len()],
            cpus,
        }
    }

    fn is_ready(&self, job: usize) -> bool {
        self.left_ns[job] > NOTHING_NS
            && self.jobs[job].release_ns as f64 <= self.now_ns + NOTHING_NS
    }

    /// Goes to the next event; false when everything is done or nothing can run.
    fn step(&mut self) -> bool {
        self.admit();
        // Real-time threads are only held up for somebody.
        for cpu in 0..self.cpus.len() {
            if !self.fair_waits(cpu) {
                self.bandwidth[cpu] = Bandwidth::default();
            }
        }
        let running = self.place_real_time();
        let rates = self.fair_rates(&running);
        let waits: Vec<bool> = (0..self.cpus.len()).map(|cpu| self.fair_waits(cpu)).collect();
        let Some(span_ns) = self.until_next(&running, &rates, &waits) else { return false };
        self.now_ns += span_ns;
        for (cpu, job) in running.iter().enumerate() {
            let Some(job) = *job else { continue };
            self.left_ns[job] -= span_ns;
            self.turn_ns[job] -= span_ns;
            self.last_cpu[job] = Some(cpu);
            self.bandwidth[cpu].used_ns += if waits[cpu] { span_ns } else { 0.0 };
        }
        for (job, rate) in rates.iter().enumerate() {
            self.left_ns[job] -= rate * span_ns;
        }
        self.settle(&running, &waits);
        true
    }

    /// Puts newly released real-time jobs at the end of their priority.
    fn admit(&mut self) {
        let mut new: Vec<usize> = (0..self.jobs.len())
            .filter(|&job| {
                !self.queued[job] && self.jobs[job].policy.is_real_time() && self.is_ready(job)
            })
            .collect();
        new.sort_by_key(|&job| self.jobs[job].release_ns);
        for job in new {
            self.queued[job] = true;
            self.queue.push(job);
        }
        let jobs = self.jobs;
        self.queue.sort_by_key(|&job| std::cmp::Reverse(jobs[job].priority));
    }

    /// The real-time job of each CPU, by priority and then by the queue. A job stays where it ran;
    /// else it takes the CPU that fewest others are bound to.
    fn place_real_time(&self) -> Vec<Option<usize>> {
        let mut running = vec![None; self.cpus.len()];
        for &job in &self.queue {
            let free = |cpu: &usize| {
                running[*cpu].is_none()
                    && self.bandwidth[*cpu].throttled_until_ns.is_none()
                    && self.jobs[job].cpus.contains(self.cpus[*cpu])
            };
            let bound = |cpu: &usize| {
                let own = self.cpus[*cpu];
                let others =
                    (0..self.jobs.len()).filter(|&other| other != job && self.is_ready(other));
                others
                    .filter(|&other| {
                        self.jobs[other].cpus.len() == 1 && self.jobs[other].cpus.contains(own)
                    })
                    .count()
            };
            let free: Vec<usize> = (0..self.cpus.len()).filter(free).collect();
            let stays = self.last_cpu[job].filter(|cpu| free.contains(cpu));
            let chosen =
                stays.or_else(|| free.iter().copied().min_by_key(|cpu| (bound(cpu), *cpu)));
            if let Some(cpu) = chosen {
                running[cpu] = Some(job);
            }
        }
        running
    }

    /// Share of a CPU that each fair job gets: all grow in step with their weights until a group has
    /// filled the CPUs that its members may use.
    fn fair_rates(&self, running: &[Option<usize>]) -> Vec<f64> {
        let mut rates = vec![0.0; self.jobs.len()];
        let fair: Vec<usize> = (0..self.jobs.len())
            .filter(|&job| !self.jobs[job].policy.is_real_time() && self.is_ready(job))
            .collect();
        let can_use: Vec<u64> = fair
            .iter()
            .map(|&job| {
                let usable = |cpu: &usize| {
                    running[*cpu].is_none() && self.jobs[job].cpus.contains(self.cpus[*cpu])
                };
                (0..self.cpus.len().min(64)).filter(usable).fold(0, |mask, cpu| mask | 1 << cpu)
            })
            .collect();
        let mut open: Vec<usize> = (0..fair.len()).filter(|&n| can_use[n] != 0).collect();
        while !open.is_empty() {
            let groups = (1_u32..1 << fair.len()).filter_map(|group| {
                let members = || (0..fair.len()).filter(move |n| group >> n & 1 == 1);
                let growing: f64 =
                    members().filter(|n| open.contains(n)).map(|n| self.weight_of(fair[n])).sum();
                let cpus = members().fold(0, |mask, n| mask | can_use[n]);
                // One job can't use more than one CPU, however many it may choose from.
                let room = f64::from(cpus.count_ones()).min(members().count() as f64);
                let taken: f64 =
                    members().filter(|n| !open.contains(n)).map(|n| rates[fair[n]]).sum();
                (growing > 0.0).then(|| ((room - taken).max(0.0) / growing, group))
            });
            let Some((level, group)) = groups.min_by(|a, b| a.0.total_cmp(&b.0)) else { break };
            for n in 0..fair.len() {
                if group >> n & 1 == 1 && open.contains(&n) {
                    rates[fair[n]] = level * self.weight_of(fair[n]);
                    open.retain(|other| *other != n);
                }
            }
        }
        rates
    }

    fn weight_of(&self, job: usize) -> f64 {
        weight(self.jobs[job].policy, self.jobs[job].nice)
    }

    /// Whether a fair job is ready that may use this CPU.
    fn fair_waits(&self, cpu: usize) -> bool {
        (0..self.jobs.len()).any(|job| {
            let asked = &self.jobs[job];
            !asked.policy.is_real_time()
                && asked.cpus.contains(self.cpus[cpu])
                && self.is_ready(job)
        })
    }

    /// Time to the next event.
    fn until_next(&self, running: &[Option<usize>], rates: &[f64], waits: &[bool]) -> Option<f64> {
        let mut spans: Vec<f64> = Vec::new();
        let releases = self.jobs.iter().map(|job| job.release_ns as f64 - self.now_ns);
        spans.extend(releases.filter(|span| *span > NOTHING_NS));
        for (cpu, job) in running.iter().enumerate() {
            let bandwidth = self.bandwidth[cpu];
            spans.extend(bandwidth.throttled_until_ns.map(|until| until - self.now_ns));
            let Some(job) = *job else { continue };
            spans.push(self.left_ns[job]);
            if self.jobs[job].policy == Policy::Rr {
                spans.push(self.turn_ns[job]);
            }
            if let (true, Some(runtime)) = (waits[cpu], self.rules.rt_runtime_ns) {
                spans.push(runtime as f64 - bandwidth.used_ns);
            }
        }
        let fair = rates.iter().enumerate().filter(|(_, rate)| **rate > 0.0);
        spans.extend(fair.map(|(job, rate)| self.left_ns[job] / rate));
        spans.into_iter().map(|span| span.max(0.0)).min_by(f64::total_cmp)
    }

    /// What ended with the last event.
    fn settle(&mut self, running: &[Option<usize>], waits: &[bool]) {
        for job in 0..self.jobs.len() {
            if self.left_ns[job] <= NOTHING_NS && self.left_ns[job] != f64::NEG_INFINITY {
                self.finish_ns[job] = self.now_ns;
                self.left_ns[job] = f64::NEG_INFINITY;
                self.queue.retain(|other| *other != job);
            }
        }
        for job in running.iter().flatten().copied() {
            if self.jobs[job].policy == Policy::Rr && self.turn_ns[job] <= NOTHING_NS {
                self.turn_ns[job] = self.rules.rr_quantum_ns as f64;
                if self.queue.contains(&job) {
                    self.queue.retain(|other| *other != job);
                    self.queue.push(job);
                }
            }
        }
        let period_ns = self.rules.rt_period_ns as f64;
        for (cpu, bandwidth) in self.bandwidth.iter_mut().enumerate() {
            if bandwidth.throttled_until_ns.is_some_and(|until| until <= self.now_ns + NOTHING_NS) {
                *bandwidth = Bandwidth::default();
            }
            // Without anyone waiting, or without a real-time job, a new period begins.
            if !waits[cpu] || running[cpu].is_none() && bandwidth.throttled_until_ns.is_none() {
                *bandwidth = Bandwidth::default();
            }
            let Some(runtime) = self.rules.rt_runtime_ns else { continue };
            let is_full = bandwidth.used_ns >= runtime as f64 - NOTHING_NS;
            if is_full && bandwidth.throttled_until_ns.is_none() {
                let rest = (period_ns - runtime as f64).max(0.0);
                bandwidth.throttled_until_ns = (rest > 0.0).then_some(self.now_ns + rest);
                bandwidth.used_ns = 0.0;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const MS: u64 = 1_000_000;

    fn rules(cpus: &str) -> SchedulingRules {
        SchedulingRules {
            cpus: cpus.parse().expect("CPUs"),
            one: 1,
            rr_quantum_ns: 100 * MS,
            rt_runtime_ns: None,
            rt_period_ns: 1000 * MS,
        }
    }

    fn job(policy: Policy, priority: u8, cpus: &str, work_ms: u64) -> Job {
        Job {
            policy,
            priority,
            nice: 0,
            cpus: cpus.parse().expect("CPUs"),
            work_ns: work_ms * MS,
            release_ns: 0,
        }
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
        predict(jobs, rules).into_iter().map(|ns| (ns + MS / 2) / MS).collect()
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
        // Nobody waits: nobody is held up.
        assert_eq!(in_ms(&jobs[..1], &limited), [2000]);
        assert_eq!(in_ms(&jobs, &rules("0")), [2000, 2150]);
    }

    #[test]
    fn what_the_fair_class_does_not_need_goes_back() {
        let rules =
            SchedulingRules { rt_runtime_ns: Some(95 * MS), rt_period_ns: 100 * MS, ..rules("0") };
        // 95 of FIFO, 1 of fair, which needs no more, the last 1 of FIFO.
        let jobs = [
            job(Policy::Fifo, 10, "0", 78),
            job(Policy::Other, 0, "0", 1),
            job(Policy::Fifo, 10, "0", 18),
        ];
        assert_eq!(in_ms(&jobs, &rules), [78, 96, 97]);
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
        assert_eq!(fixed_priority(3, 0, &[], 7), Some(3));
        assert_eq!(fixed_priority(3, 0, &[(3, 7)], 12), Some(6));
        assert_eq!(fixed_priority(5, 0, &[(3, 7), (3, 12)], 20), Some(20));
        assert_eq!(fixed_priority(5, 1, &[(3, 7), (3, 12)], 20), None);
        assert_eq!(fixed_priority(1, 0, &[(1, 1)], 1000), None);
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
                let responses = in_ms(&jobs, &rules);
                prop_assert_eq!(responses.iter().max(), Some(&total));
                for (response, (work, _)) in responses.iter().zip(&works) {
                    prop_assert!(response >= work);
                }
            }
        }
    }
}
