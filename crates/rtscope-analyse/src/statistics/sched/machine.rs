//! The kernel's rules played forward, from one event to the next.

use rtscope_model::{
    sched::{MutexProtocol, SchedulingRules},
    schedule::Policy,
};

use super::{Job, weight};

/// Below this a remainder is rounding.
const NOTHING_NS: f64 = 1e-3;

/// What limits the real-time threads of a CPU.
#[derive(Clone, Copy, Debug)]
pub(super) enum Limit {
    /// The fair server: real-time threads are held up for somebody, after that much of waiting.
    Server {
        /// Left to real-time threads in a period; none is no limit.
        share_ns: Option<u64>,
    },
    /// Throttling: they are held up until the period ends, whether somebody waits or not.
    Throttling {
        /// Granted in a period.
        runtime_ns: u64,
        /// When the first period ends. It began whenever it did.
        period_end_ns: f64,
    },
}

impl Limit {
    fn share_ns(self) -> Option<u64> {
        match self {
            Limit::Server { share_ns } => share_ns,
            Limit::Throttling { runtime_ns, .. } => Some(runtime_ns),
        }
    }

    fn is_for_somebody(self) -> bool {
        matches!(self, Limit::Server { .. })
    }
}

/// The real-time bandwidth of a CPU.
#[derive(Clone, Copy, Debug, Default)]
struct Bandwidth {
    /// Real-time threads have run for so long in this period; before a server, while others waited.
    used_ns: f64,
    /// When the fair class has got its share; none while real-time threads may run.
    throttled_until_ns: Option<f64>,
}

/// What a deadline job may still do.
#[derive(Clone, Copy, Debug, Default)]
struct Reservation {
    left_ns: f64,
    deadline_ns: f64,
    /// Its budget is used up until then.
    throttled_until_ns: Option<f64>,
}

/// The state of the game.
pub(super) struct Machine<'a> {
    jobs: &'a [Job],
    rules: &'a SchedulingRules,
    limit: Limit,
    inherits: bool,
    cpus: Vec<u32>,
    now_ns: f64,
    left_ns: Vec<f64>,
    pub(super) finish_ns: Vec<f64>,
    /// Released real-time jobs, the head of each priority first.
    queue: Vec<usize>,
    queued: Vec<bool>,
    /// Rest of the turn of each RR job.
    turn_ns: Vec<f64>,
    last_cpu: Vec<Option<usize>>,
    bandwidth: Vec<Bandwidth>,
    reservations: Vec<Reservation>,
    /// Who holds the mutex, who has had it, and who has found it taken.
    owner: Option<usize>,
    has_had: Vec<bool>,
    waits: Vec<bool>,
}

impl<'a> Machine<'a> {
    pub(super) fn new(
        jobs: &'a [Job],
        rules: &'a SchedulingRules,
        mutex: MutexProtocol,
        limit: Limit,
    ) -> Machine<'a> {
        let cpus: Vec<u32> = rules.cpus.iter().collect();
        let reservation = |job: &Job| {
            job.budget.map_or(Reservation::default(), |budget| Reservation {
                left_ns: budget.runtime_ns as f64,
                deadline_ns: (job.release_ns + budget.deadline_ns) as f64,
                throttled_until_ns: None,
            })
        };
        Machine {
            jobs,
            rules,
            limit,
            inherits: mutex == MutexProtocol::Inherit,
            reservations: jobs.iter().map(reservation).collect(),
            owner: None,
            has_had: vec![false; jobs.len()],
            waits: vec![false; jobs.len()],
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
        let asked = &self.jobs[job];
        let is_turn = asked.after.is_none_or(|before| self.left_ns[before] == f64::NEG_INFINITY);
        self.left_ns[job] > NOTHING_NS
            && is_turn
            && asked.release_ns as f64 <= self.now_ns + NOTHING_NS
    }

    /// Whether it must have the mutex before it goes on.
    fn needs_mutex(&self, job: usize) -> bool {
        self.jobs[job].holds_ns > 0 && !self.has_had[job]
    }

    /// Whether it has found the mutex taken and waits for it.
    fn is_blocked(&self, job: usize) -> bool {
        self.waits[job] && self.owner.is_some_and(|owner| owner != job)
    }

    /// It shall run: takes the mutex if it must, or begins to wait. Whether it can run.
    fn may_go_on(&mut self, job: usize) -> bool {
        if !self.needs_mutex(job) {
            return true;
        }
        if self.owner.is_some() {
            self.waits[job] = true;
            return false;
        }
        self.owner = Some(job);
        (self.has_had[job], self.waits[job]) = (true, false);
        true
    }

    /// Rank among the real-time jobs, the smallest first: deadlines by their instant, then priorities.
    /// None is an ordinary job. Who holds the mutex may have inherited the best of those that wait.
    fn rank(&self, job: usize) -> Option<(u8, f64)> {
        let own = |job: usize| {
            let asked = &self.jobs[job];
            match asked.policy {
                Policy::Deadline => Some((0, self.reservations[job].deadline_ns)),
                policy if policy.is_real_time() => Some((1, -f64::from(asked.priority))),
                _ => None,
            }
        };
        let inherited = (self.inherits && self.owner == Some(job))
            .then(|| (0..self.jobs.len()).filter(|other| self.is_blocked(*other)).filter_map(own))
            .into_iter()
            .flatten();
        own(job).into_iter().chain(inherited).min_by(|a, b| a.partial_cmp(b).expect("numbers"))
    }

    /// The real-time jobs in the order in which they run.
    fn real_time_order(&self) -> Vec<usize> {
        let heir = self.owner.filter(|owner| !self.queue.contains(owner) && self.is_ready(*owner));
        let mut order: Vec<(usize, (u8, f64))> = self
            .queue
            .iter()
            .copied()
            .chain(heir)
            .filter_map(|job| Some((job, self.rank(job)?)))
            .collect();
        // Stable: within one priority the queue's order stays.
        order.sort_by(|a, b| a.1.partial_cmp(&b.1).expect("numbers"));
        order.into_iter().map(|(job, _)| job).collect()
    }

    /// Goes to the next event; false when everything is done or nothing can run.
    pub(super) fn step(&mut self) -> bool {
        self.admit();
        for cpu in 0..self.cpus.len() {
            if self.limit.is_for_somebody() && !self.fair_waits(cpu) {
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
            if self.jobs[job].policy == Policy::Deadline {
                self.reservations[job].left_ns -= span_ns;
            } else {
                let counts = waits[cpu] || !self.limit.is_for_somebody();
                self.bandwidth[cpu].used_ns += if counts { span_ns } else { 0.0 };
            }
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
    }

    /// The real-time job of each CPU. Who finds the mutex taken leaves its CPU to others, and may lift
    /// the holder: then the order is another.
    fn place_real_time(&mut self) -> Vec<Option<usize>> {
        'again: loop {
            let mut running = vec![None; self.cpus.len()];
            for job in self.real_time_order() {
                let is_held_up = self.reservations[job].throttled_until_ns.is_some();
                if self.is_blocked(job) || is_held_up {
                    continue;
                }
                let Some(cpu) = self.cpu_for(job, &running) else { continue };
                if !self.may_go_on(job) {
                    continue 'again;
                }
                running[cpu] = Some(job);
            }
            return running;
        }
    }

    /// The CPU that a real-time job gets: it stays where it ran, else it takes the one that fewest others
    /// are bound to.
    fn cpu_for(&self, job: usize, running: &[Option<usize>]) -> Option<usize> {
        let is_deadline = self.jobs[job].policy == Policy::Deadline;
        let is_free = |cpu: &usize| {
            running[*cpu].is_none()
                && (is_deadline || self.bandwidth[*cpu].throttled_until_ns.is_none())
                && self.jobs[job].cpus.contains(self.cpus[*cpu])
        };
        let bound = |cpu: &usize| {
            let own = self.cpus[*cpu];
            let others = (0..self.jobs.len()).filter(|&other| other != job && self.is_ready(other));
            let on_it = |&other: &usize| {
                self.jobs[other].cpus.len() == 1 && self.jobs[other].cpus.contains(own)
            };
            others.filter(on_it).count()
        };
        let free: Vec<usize> = (0..self.cpus.len()).filter(is_free).collect();
        let stays = self.last_cpu[job].filter(|cpu| free.contains(cpu));
        stays.or_else(|| free.iter().copied().min_by_key(|cpu| (bound(cpu), *cpu)))
    }

    /// Share of a CPU that each fair job gets: all grow in step with their weights until a group has
    /// filled the CPUs that its members may use.
    fn fair_rates(&mut self, running: &[Option<usize>]) -> Vec<f64> {
        let mut rates = vec![0.0; self.jobs.len()];
        let has_cpu = |job: usize| running.contains(&Some(job));
        let mut fair: Vec<usize> = (0..self.jobs.len())
            .filter(|&job| !self.jobs[job].policy.is_real_time() && self.is_ready(job))
            .filter(|&job| !has_cpu(job) && !self.is_blocked(job))
            .collect();
        let left = (0..self.cpus.len()).filter(|cpu| running[*cpu].is_none());
        let left: Vec<u32> = left.map(|cpu| self.cpus[cpu]).collect();
        let jobs = self.jobs;
        fair.retain(|&job| {
            left.iter().all(|cpu| !jobs[job].cpus.contains(*cpu)) || self.may_go_on(job)
        });
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
        let held_up = self.reservations.iter().filter_map(|own| own.throttled_until_ns);
        spans.extend(held_up.map(|until| until - self.now_ns));
        for (cpu, job) in running.iter().enumerate() {
            let bandwidth = self.bandwidth[cpu];
            spans.extend(bandwidth.throttled_until_ns.map(|until| until - self.now_ns));
            let Some(job) = *job else { continue };
            spans.push(self.left_ns[job]);
            spans.extend(self.section_left(job));
            if self.jobs[job].policy == Policy::Deadline {
                spans.push(self.reservations[job].left_ns);
                continue;
            }
            if self.jobs[job].policy == Policy::Rr {
                spans.push(self.turn_ns[job]);
            }
            if let (true, Some(runtime)) =
                (waits[cpu] || !self.limit.is_for_somebody(), self.limit.share_ns())
            {
                spans.push(runtime as f64 - bandwidth.used_ns);
            }
            if let Limit::Throttling { period_end_ns, .. } = self.limit {
                spans.push(period_end_ns - self.now_ns);
            }
        }
        let fair = rates.iter().enumerate().filter(|(_, rate)| **rate > 0.0);
        spans.extend(fair.map(|(job, rate)| {
            self.section_left(job).map_or(self.left_ns[job], |ns| ns.min(self.left_ns[job])) / rate
        }));
        spans.into_iter().map(|span| span.max(0.0)).min_by(f64::total_cmp)
    }

    /// What is left of the part that the holder of the mutex does with it.
    fn section_left(&self, job: usize) -> Option<f64> {
        let asked = &self.jobs[job];
        let done_ns = asked.work_ns as f64 - self.left_ns[job];
        (self.owner == Some(job)).then(|| (asked.holds_ns as f64 - done_ns).max(0.0))
    }

    /// Lets the mutex go, and grants deadlines their next budget.
    fn settle_mutex_and_budgets(&mut self) {
        if let Some(owner) = self.owner
            && self.section_left(owner).is_some_and(|ns| ns <= NOTHING_NS)
        {
            self.owner = None;
        }
        for (job, own) in self.jobs.iter().zip(&mut self.reservations) {
            let Some(budget) = job.budget else { continue };
            if own.throttled_until_ns.is_some_and(|until| until <= self.now_ns + NOTHING_NS) {
                own.throttled_until_ns = None;
                own.left_ns = budget.runtime_ns as f64;
                own.deadline_ns += budget.period_ns as f64;
            }
            if own.left_ns <= NOTHING_NS && own.throttled_until_ns.is_none() {
                let begin_ns = own.deadline_ns - budget.deadline_ns as f64;
                own.throttled_until_ns = Some(begin_ns + budget.period_ns as f64);
            }
        }
    }

    /// What ended with the last event.
    fn settle(&mut self, running: &[Option<usize>], waits: &[bool]) {
        self.settle_mutex_and_budgets();
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
        self.settle_bandwidth(running, waits);
    }

    /// Ends periods of the real-time bandwidth, and holds up who has used it.
    fn settle_bandwidth(&mut self, running: &[Option<usize>], waits: &[bool]) {
        let period_ns = self.rules.rt_period_ns.max(1) as f64;
        if let Limit::Throttling { runtime_ns, period_end_ns } = &mut self.limit {
            while *period_end_ns <= self.now_ns + NOTHING_NS {
                *period_end_ns += period_ns;
                for bandwidth in &mut self.bandwidth {
                    bandwidth.used_ns = (bandwidth.used_ns - *runtime_ns as f64).max(0.0);
                    bandwidth.throttled_until_ns = None;
                }
            }
            for bandwidth in &mut self.bandwidth {
                if bandwidth.used_ns >= *runtime_ns as f64 - NOTHING_NS {
                    bandwidth.throttled_until_ns = Some(*period_end_ns);
                }
            }
            return;
        }
        for (cpu, bandwidth) in self.bandwidth.iter_mut().enumerate() {
            if bandwidth.throttled_until_ns.is_some_and(|until| until <= self.now_ns + NOTHING_NS) {
                *bandwidth = Bandwidth::default();
            }
            // Without anyone waiting, or without a real-time job, a new period begins.
            if !waits[cpu] || running[cpu].is_none() && bandwidth.throttled_until_ns.is_none() {
                *bandwidth = Bandwidth::default();
            }
            let Some(runtime) = self.limit.share_ns() else { continue };
            let is_full = bandwidth.used_ns >= runtime as f64 - NOTHING_NS;
            if is_full && bandwidth.throttled_until_ns.is_none() {
                let rest = (period_ns - runtime as f64).max(0.0);
                bandwidth.throttled_until_ns = (rest > 0.0).then_some(self.now_ns + rest);
                bandwidth.used_ns = 0.0;
            }
        }
    }
}
