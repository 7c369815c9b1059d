//! The rhythm of a thread from the kernel's events: when it was woken by its timer, for which instant
//! that was programmed, how long it computed, and what it waited for otherwise.
//!
//! An activation is from the switch to the thread after its timer has expired **to** its next going to
//! sleep. Its latency is from the programmed instant **to** that switch: less than what the thread
//! itself would measure, by its way from the switch to its first reading of a clock. Events carry whole
//! microseconds.

use rtscope_model::check::{ThreadEvent, ThreadEventKind};

use super::slope::{self, Slope};

/// A timer that the thread sleeps on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Timer {
    started_ns: u64,
    expires_ns: u64,
    relative: bool,
}

impl Timer {
    /// Instants of the wall clock are decades ahead of those since boot.
    fn is_wall_clock(&self) -> bool {
        self.expires_ns > self.started_ns.saturating_add(DECADE_NS)
    }

    fn has_expired(&self, at_ns: u64) -> bool {
        // Events are cut to microseconds.
        self.is_wall_clock() || self.expires_ns <= at_ns + 1_000
    }
}

const DECADE_NS: u64 = 10 * 365 * 86_400 * 1_000_000_000;

/// Why a thread runs now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WatchedActivation {
    /// The instant it was programmed for, of the timer's clock.
    pub programmed_ns: u64,
    /// It got its CPU.
    pub start_ns: u64,
    /// CPU time until it slept again; 0 when no switch of it was seen.
    pub run_ns: u64,
    /// Whether a switch to the thread or from it was seen.
    pub has_switches: bool,
    /// From the start of the timer to its programmed expiry.
    slept_ns: i64,
    relative: bool,
    wall_clock: bool,
}

/// A wait in `futex` without a limit and without priority inheritance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wait {
    /// From leaving the CPU to getting one.
    pub waited_ns: u64,
    /// Who woke it.
    pub by: Option<u32>,
    /// Whether the C library's mutexes wait so: for a value of 2.
    pub is_mutex: bool,
}

/// How a thread sleeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SleepForm {
    /// Until instants on a grid.
    Until,
    /// For a time, counted from when it went to sleep.
    For,
}

/// The rhythm of a thread.
#[derive(Clone, Debug, PartialEq)]
pub struct Rhythm {
    /// Wake-ups by its timer.
    pub activations: Vec<WatchedActivation>,
    /// Distance between programmed instants: the median.
    pub period_ns: u64,
    /// The mean of them, which drift moves.
    pub mean_period_ns: f64,
    pub sleep: SleepForm,
    /// Whether its instants are those of the wall clock.
    pub is_wall_clock: bool,
    /// How much longer than its sleep the median period is, for [`SleepForm::For`]: what it falls behind by in a
    /// period without long delays.
    pub drift_ns: f64,
    /// Phase gained for each unit of time, long delays included; for [`SleepForm::For`] only.
    pub drift: Option<Slope>,
    /// Periods without an activation, or with one that came a period late. A thread that sleeps for a time
    /// has no grid: of it these are the whole periods that its wake-ups were late.
    pub missed: u64,
    /// Those of them before which the thread itself computed for nearly a period.
    pub overrun: u64,
    /// Waits without priority inheritance between the first and the last activation.
    pub waits: Vec<Wait>,
    /// Page faults between the first and the last activation.
    pub faults: u64,
}

/// Fewer activations have no rhythm.
const FEWEST: usize = 5;

/// A thread that computes for so much of its period has overrun it, when the next one is missed.
const NEARLY: f64 = 0.9;

/// The rhythm of a thread; none when its timer woke it less than five times.
#[must_use]
pub fn rhythm(events: &[ThreadEvent]) -> Option<Rhythm> {
    let mut reader = Reader::default();
    for event in events {
        reader.take(event);
    }
    let activations = reader.activations;
    if activations.len() < FEWEST {
        return None;
    }
    let from_ns = activations[0].start_ns;
    let to_ns = activations[activations.len() - 1].start_ns;
    let inside = |at_ns: u64| (from_ns..=to_ns).contains(&at_ns);
    let steps: Vec<i64> = steps(&activations);
    let sleeps: Vec<i64> = activations.iter().map(|one| one.slept_ns).collect();
    let period_ns = u64::try_from(median(&steps)).unwrap_or(0).max(1);
    let mean_period_ns = steps.iter().sum::<i64>() as f64 / steps.len() as f64;
    let sleep = how(&activations, &steps, &sleeps);
    let (missed, overrun) = match sleep {
        SleepForm::Until => missed(&activations, period_ns),
        SleepForm::For => (swallowed(&activations, period_ns), 0),
    };
    let (drift_ns, drift) = match sleep {
        SleepForm::Until => (0.0, None),
        SleepForm::For => drift(&steps, &sleeps),
    };
    Some(Rhythm {
        period_ns,
        mean_period_ns,
        sleep,
        is_wall_clock: activations.iter().any(|one| one.wall_clock),
        drift_ns,
        drift,
        missed,
        overrun,
        waits: reader.waits.iter().filter(|(at, _)| inside(*at)).map(|(_, wait)| *wait).collect(),
        faults: reader.faults.iter().filter(|at| inside(**at)).count() as u64,
        activations,
    })
}

impl Rhythm {
    /// Latencies in order of time; none by the wall clock, whose distance to the events is not known,
    /// and none where the timer expired before the thread had gone to sleep.
    #[must_use]
    pub fn latencies_ns(&self) -> Vec<u64> {
        let is_known =
            |one: &&WatchedActivation| !one.wall_clock && one.start_ns != one.programmed_ns;
        let known = self.activations.iter().filter(is_known);
        known.map(|one| one.start_ns.saturating_sub(one.programmed_ns)).collect()
    }

    /// CPU time of each activation whose switches were seen.
    #[must_use]
    pub fn runs_ns(&self) -> Vec<u64> {
        let seen = self.activations.iter().filter(|one| one.has_switches);
        seen.map(|one| one.run_ns).collect()
    }

    /// Activations without a switch: the thread did not sleep before, or the kernel did not show it.
    #[must_use]
    pub fn without_switches(&self) -> usize {
        self.activations.iter().filter(|one| !one.has_switches).count()
    }

    /// Whether late wake-ups can be told from long work: most activations have their switches.
    #[must_use]
    pub fn tells_work(&self) -> bool {
        self.without_switches() * 2 < self.activations.len()
    }

    #[must_use]
    pub fn distances_ns(&self) -> Vec<u64> {
        self.activations.windows(2).map(|pair| pair[1].start_ns - pair[0].start_ns).collect()
    }
}

fn steps(activations: &[WatchedActivation]) -> Vec<i64> {
    let step = |pair: &[WatchedActivation]| {
        i64::try_from(pair[1].programmed_ns).unwrap_or(0)
            - i64::try_from(pair[0].programmed_ns).unwrap_or(0)
    };
    activations.windows(2).map(step).collect()
}

fn median(values: &[i64]) -> i64 {
    let mut sorted = values.to_vec();
    sorted.sort_unstable();
    sorted.get(sorted.len() / 2).copied().unwrap_or(0)
}

/// Half of the values are at most so far from their median.
fn spread(values: &[i64]) -> i64 {
    let middle = median(values);
    median(&values.iter().map(|value| (value - middle).abs()).collect::<Vec<_>>())
}

/// Who sleeps until instants has even steps and uneven sleeps; who sleeps for a time has even sleeps and
/// uneven steps. How it was asked for decides only where both are even: a program may ask for an
/// instant and have computed it from now, or for a time and have computed it from a grid.
fn how(activations: &[WatchedActivation], steps: &[i64], sleeps: &[i64]) -> SleepForm {
    const EVEN_NS: i64 = 1_000;
    let (of_steps, of_sleeps) = (spread(steps), spread(sleeps));
    if of_sleeps + EVEN_NS < of_steps {
        SleepForm::For
    } else if of_steps + EVEN_NS < of_sleeps {
        SleepForm::Until
    } else {
        let relative = activations.iter().filter(|one| one.relative).count();
        if relative * 2 > activations.len() { SleepForm::For } else { SleepForm::Until }
    }
}

/// How much longer than its sleep the median period is, and the drift that all of them make. A step goes
/// from a programmed instant to the next, which is a sleep after it was programmed.
fn drift(steps: &[i64], sleeps: &[i64]) -> (f64, Option<Slope>) {
    let excess: Vec<i64> =
        steps.iter().zip(&sleeps[1..]).map(|(step, slept)| step - slept).collect();
    let pairs = steps.iter().zip(&excess).map(|(step, excess)| (*step as f64, *excess as f64));
    (median(&excess) as f64, Some(slope::of_steps(&pairs.collect::<Vec<_>>())))
}

/// Whole periods that wake-ups were late.
fn swallowed(activations: &[WatchedActivation], period_ns: u64) -> u64 {
    let known = activations.iter().filter(|one| !one.wall_clock);
    known.map(|one| one.start_ns.saturating_sub(one.programmed_ns) / period_ns).sum()
}

/// Missed periods, and those before which the thread itself computed for nearly a period.
fn missed(activations: &[WatchedActivation], period_ns: u64) -> (u64, u64) {
    let (mut missed, mut overrun) = (0, 0);
    let mut is_own = false;
    for pair in activations.windows(2) {
        let [one, next] = [pair[0], pair[1]];
        let late_ns = next.start_ns.saturating_sub(next.programmed_ns);
        let is_late = !next.wall_clock && late_ns >= period_ns;
        let step = next.programmed_ns.saturating_sub(one.programmed_ns) as f64;
        let skipped = ((step / period_ns as f64).round() as u64).saturating_sub(1);
        is_own |= one.run_ns as f64 > NEARLY * period_ns as f64;
        let here = skipped.max(u64::from(is_late));
        missed += here;
        overrun += if is_own { here } else { 0 };
        // One that comes in time owes nothing to what was before.
        is_own &= is_late;
    }
    (missed, overrun)
}

/// Reads events in their order.
#[derive(Default)]
struct Reader {
    activations: Vec<WatchedActivation>,
    waits: Vec<(u64, Wait)>,
    faults: Vec<u64>,
    /// A timer that was started and has not woken it yet.
    timer: Option<Timer>,
    /// It waits so in futex, since its call.
    futex: Option<bool>,
    /// Since when it sleeps.
    asleep_ns: Option<u64>,
    woken: Option<(u64, Option<u32>)>,
    running_ns: Option<u64>,
}

impl Reader {
    fn take(&mut self, event: &ThreadEvent) {
        let at_ns = event.at_ns;
        match event.what {
            ThreadEventKind::Timer { expires_ns, relative } => {
                // The one before expired while the thread was still on its way to sleep.
                if let Some(timer) = self.timer.take().filter(|timer| timer.has_expired(at_ns)) {
                    self.activate(timer, timer.started_ns.max(timer.expires_ns.min(at_ns)), false);
                }
                self.timer = Some(Timer { started_ns: at_ns, expires_ns, relative });
            }
            ThreadEventKind::Futex { operation, value, limited } => {
                let waits = matches!(operation, 0 | 9) && !limited;
                self.futex = waits.then_some(value == 2);
            }
            ThreadEventKind::Out { ready } => {
                let since_ns = self.running_ns.take();
                if let (Some(one), Some(since_ns)) = (self.activations.last_mut(), since_ns) {
                    one.run_ns += at_ns.saturating_sub(since_ns);
                    one.has_switches = true;
                }
                if !ready {
                    (self.asleep_ns, self.woken) = (Some(at_ns), None);
                }
            }
            ThreadEventKind::Waking { by } => {
                if self.asleep_ns.is_some() && self.woken.is_none() {
                    self.woken = Some((at_ns, by));
                }
            }
            ThreadEventKind::In => self.resume(at_ns),
            ThreadEventKind::Fault => self.faults.push(at_ns),
        }
    }

    /// It gets a CPU: after sleep, or after it was preempted.
    fn resume(&mut self, at_ns: u64) {
        self.running_ns = Some(at_ns);
        let Some(since_ns) = self.asleep_ns.take() else { return };
        let (woken_ns, by) = self.woken.take().unwrap_or((at_ns, None));
        let futex = self.futex.take();
        if let Some(timer) = self.timer.take() {
            if timer.has_expired(woken_ns) {
                self.activate(timer, at_ns, true);
            }
        } else if let Some(is_mutex) = futex {
            let wait = Wait { waited_ns: at_ns.saturating_sub(since_ns), by, is_mutex };
            self.waits.push((at_ns, wait));
        }
    }

    fn activate(&mut self, timer: Timer, start_ns: u64, has_switches: bool) {
        let signed = |ns: u64| i64::try_from(ns).unwrap_or(i64::MAX);
        self.activations.push(WatchedActivation {
            programmed_ns: timer.expires_ns,
            start_ns,
            run_ns: 0,
            has_switches,
            slept_ns: signed(timer.expires_ns) - signed(timer.started_ns),
            relative: timer.relative,
            wall_clock: timer.is_wall_clock(),
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    #[test]
    fn a_timer_has_expired_from_its_instant_on() {
        let timer = |expires_ns| Timer { started_ns: 1_000 * MS, expires_ns, relative: false };
        assert!(timer(1_010 * MS).has_expired(1_010 * MS - 1_000));
        assert!(!timer(1_010 * MS).has_expired(1_010 * MS - 1_001));
        let of_the_wall_clock = timer(1_000 * MS + DECADE_NS + 1);
        assert!(of_the_wall_clock.has_expired(1_010 * MS) && !timer(DECADE_NS).has_expired(MS));
    }

    /// A thread that is woken `latency` late, computes for `work`, and starts its next timer.
    struct Thread {
        events: Vec<ThreadEvent>,
        now_ns: u64,
    }

    impl Thread {
        fn new() -> Thread {
            Thread { events: Vec::new(), now_ns: 1_000 * MS }
        }

        fn event(&mut self, what: ThreadEventKind) {
            self.events.push(ThreadEvent { at_ns: self.now_ns / 1_000 * 1_000, what });
        }

        fn sleep(&mut self, expires_ns: u64, relative: bool, latency_ns: u64) {
            self.event(ThreadEventKind::Timer { expires_ns, relative });
            self.event(ThreadEventKind::Out { ready: false });
            self.now_ns = self.now_ns.max(expires_ns) + 2_000;
            self.event(ThreadEventKind::Waking { by: None });
            self.now_ns = self.now_ns.max(expires_ns + latency_ns);
            self.event(ThreadEventKind::In);
        }

        fn work(&mut self, ns: u64) {
            self.now_ns += ns;
        }
    }

    /// Latencies that no formula makes: 5 to 40 us.
    fn latency(n: u64) -> u64 {
        5_000 + n * n * 7_919 % 35_000
    }

    #[test]
    fn a_grid_is_told_from_a_time_however_it_was_asked_for() {
        for relative in [false, true] {
            let (mut grid, mut time) = (Thread::new(), Thread::new());
            for n in 0..50 {
                grid.sleep((1_010 + n) * MS + 777, relative, latency(n));
                grid.work(200_000 + latency(n * 3));
                let until = time.now_ns + MS;
                time.sleep(until, relative, latency(n));
                time.work(200_000 + latency(n * 3));
            }
            let grid = rhythm(&grid.events).expect("a rhythm");
            assert_eq!((grid.sleep, grid.period_ns, grid.missed), (SleepForm::Until, MS, 0));
            assert!(grid.drift_ns.abs() < 1.0);
            let time = rhythm(&time.events).expect("a rhythm");
            assert_eq!(time.sleep, SleepForm::For);
            // By hand: 200 us of work and twice a latency of about 22 us a period.
            assert!((230_000.0..270_000.0).contains(&time.drift_ns), "{}", time.drift_ns);
        }
    }

    #[test]
    fn stalls_move_neither_the_median_drift_nor_hide_what_they_swallowed() {
        // 300 us of work, and one wake-up of 100 that is 40 ms late.
        let mut thread = Thread::new();
        for n in 0..1_000 {
            let until = thread.now_ns + MS;
            let late = if n % 100 == 7 { 40 * MS } else { latency(n) };
            thread.sleep(until, true, late);
            thread.work(300_000);
        }
        let rhythm = rhythm(&thread.events).expect("a rhythm");
        assert!((310_000.0..345_000.0).contains(&rhythm.drift_ns), "{}", rhythm.drift_ns);
        // 40 ms in periods of 1.32 ms: 30 of each stall.
        assert_eq!(rhythm.missed, 10 * 30);
        // The mean step is 1.72 ms, of which 0.72 ms are drift.
        let slope = rhythm.drift.expect("a drift");
        assert!((slope.value - 0.72 / 1.72).abs() < 0.01, "{slope:?}");
        let half = slope.half.expect("an interval");
        assert!(half < 0.1, "{slope:?}");
    }

    #[test]
    fn latencies_distances_and_work_are_those_that_were_put_in() {
        let mut thread = Thread::new();
        for n in 0..10 {
            thread.sleep((1_010 + 2 * n) * MS, false, 10_000 + 1_000 * n);
            thread.work(300_000);
        }
        let rhythm = rhythm(&thread.events).expect("a rhythm");
        let expected: Vec<u64> = (0..10).map(|n| 10_000 + 1_000 * n).collect();
        assert_eq!(rhythm.latencies_ns(), expected);
        assert!(rhythm.distances_ns().iter().all(|ns| *ns == 2 * MS + 1_000));
        assert!(rhythm.activations[..9].iter().all(|one| one.run_ns == 300_000));
    }

    #[test]
    fn without_switches_no_work_is_known() {
        let mut thread = Thread::new();
        for n in 0..10 {
            thread.sleep((1_010 + 3 * n) * MS, false, 9_000);
            thread.work(2_500_000);
        }
        let all = rhythm(&thread.events).expect("a rhythm");
        // The last one has not slept yet: its switch was seen.
        assert!(all.tells_work() && all.without_switches() == 0);
        let is_switch = |event: &ThreadEvent| {
            matches!(event.what, ThreadEventKind::In | ThreadEventKind::Out { .. })
        };
        let hidden: Vec<ThreadEvent> =
            thread.events.iter().copied().filter(|event| !is_switch(event)).collect();
        let hidden = rhythm(&hidden).expect("timers are enough for a rhythm");
        assert_eq!((hidden.period_ns, hidden.tells_work()), (3 * MS, false));
        assert_eq!((hidden.runs_ns(), hidden.latencies_ns()), (vec![], vec![]));
        assert_eq!(hidden.without_switches(), hidden.activations.len());
    }

    #[test]
    fn skipped_and_late_periods_are_missed_by_whom_they_were() {
        // It skips: 2.5 periods of work at the fourth, and a wake-up 3.2 periods late at the eighth.
        let mut thread = Thread::new();
        let mut next = 1_010 * MS;
        for n in 0..12 {
            thread.sleep(next, false, if n == 8 { 3_200_000 } else { 9_000 });
            thread.work(if n == 4 { 2_500_000 } else { 100_000 });
            next += MS;
            next += thread.now_ns.saturating_sub(next).div_ceil(MS) * MS;
        }
        let skips = rhythm(&thread.events).expect("a rhythm");
        // 4: two skipped. 8: late itself, 3.3 ms on the next: three more are skipped.
        assert_eq!((skips.missed, skips.overrun), (2 + 1 + 3, 2));
        // It does not skip: after 2.5 periods of work it comes 1.5 periods late, then in time again.
        let mut thread = Thread::new();
        for n in 0..12 {
            thread.sleep((1_010 + n) * MS, false, 9_000);
            thread.work(if n == 4 { 2_500_000 } else { 100_000 });
        }
        let runs_behind = rhythm(&thread.events).expect("a rhythm");
        assert_eq!((runs_behind.missed, runs_behind.overrun), (1, 1));
    }

    #[test]
    fn waits_and_faults_count_inside_of_the_loop_only() {
        let mut thread = Thread::new();
        thread.event(ThreadEventKind::Fault);
        for n in 0..6 {
            thread.sleep((1_010 + n) * MS, false, 9_000);
            thread.work(1_000);
            thread.event(ThreadEventKind::Fault);
            let (operation, limited) = ([0, 6, 9, 0, 9, 0][n as usize], n == 3);
            thread.event(ThreadEventKind::Futex { operation, value: 2 - n % 2, limited });
            thread.event(ThreadEventKind::Out { ready: false });
            thread.work(50_000);
            thread.event(ThreadEventKind::Waking { by: Some(7) });
            thread.event(ThreadEventKind::In);
        }
        thread.work(MS);
        thread.event(ThreadEventKind::Fault);
        let rhythm = rhythm(&thread.events).expect("a rhythm");
        // Of the six the last is behind the last activation, as is its fault; 6 has inheritance, one
        // is limited.
        let wait = |is_mutex| Wait { waited_ns: 50_000, by: Some(7), is_mutex };
        assert_eq!(rhythm.waits, [wait(true), wait(true), wait(true)]);
        assert_eq!(rhythm.faults, 5);
    }

    #[test]
    fn instants_of_the_wall_clock_have_no_latency() {
        let mut thread = Thread::new();
        for n in 0..8 {
            let started_ns = thread.now_ns;
            thread.sleep((1_010 + n) * MS, false, 9_000);
            let wall = ThreadEventKind::Timer {
                expires_ns: 1_790_000_000_000 * MS + n * MS,
                relative: false,
            };
            let timer = thread.events.len() - 4;
            assert_eq!(thread.events[timer].at_ns, started_ns / 1_000 * 1_000);
            thread.events[timer].what = wall;
        }
        let rhythm = rhythm(&thread.events).expect("a rhythm");
        assert!(rhythm.is_wall_clock && rhythm.latencies_ns().is_empty());
        assert_eq!(rhythm.period_ns, MS);
        assert_eq!(rhythm.missed, 0);
    }

    #[test]
    fn a_few_wake_ups_are_no_rhythm() {
        let mut thread = Thread::new();
        for n in 0..4 {
            thread.sleep((1_010 + n) * MS, false, 9_000);
        }
        assert_eq!(rhythm(&thread.events), None);
        assert_eq!(rhythm(&[]), None);
    }

    #[test]
    fn even_steps_decide_before_how_the_sleep_was_asked_for() {
        let one = WatchedActivation {
            programmed_ns: 0,
            start_ns: 0,
            run_ns: 0,
            has_switches: false,
            slept_ns: 0,
            relative: true,
            wall_clock: false,
        };
        // Spreads of 2 us and 20 us: both are even only within 1 us.
        let (even, uneven) = ([0, 2_000, 4_000], [0, 20_000, 40_000]);
        assert_eq!(how(&[one], &even, &uneven), SleepForm::Until);
        assert_eq!(how(&[one], &uneven, &even), SleepForm::For);
        assert_eq!(how(&[one], &even, &even), SleepForm::For);
    }
}
