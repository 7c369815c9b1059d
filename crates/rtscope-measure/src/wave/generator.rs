//! A generator of square waves: waits for the instant of each edge, and sets the line.
//!
//! The latency of an edge is the first reading of the clock after the wait, minus the instant that the
//! edge was planned for. With the relative method every wait begins when the last one ended, so that each
//! latency is added to all edges to come; with the others the grid of planned instants stays, and what has
//! passed while the generator was late is left out and counted. A late edge is made at once, and the pulse that
//! it begins lasts until the first planned edge that leaves it a quarter of its length: a late generator makes
//! fewer pulses, and no runt that an instrument can't see.
//!
//! What it can't show: when the level reaches a pin. The scope is another program.

use std::{fmt, str::FromStr};

use rtscope_sys::clock::Clock;

use super::{WaveError, line::WaveOutput};

/// How many violating samples are kept one by one; the others are counted.
const LATE_KEPT: usize = 10_000;

/// The shortest pulse that is made on purpose, as a share of the planned one.
const RUNT: f64 = 0.25;

/// How a generator waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method {
    /// Sleeps until an instant (`clock_nanosleep`, `TIMER_ABSTIME`).
    Absolute,
    /// Sleeps for a time from now.
    Relative,
    /// Reads the clock until the instant has come.
    Spin,
    /// Reads a timer that is armed at an instant (`timerfd`, `TFD_TIMER_ABSTIME`): its clock sleeps so.
    Timerfd,
}

impl Method {
    /// All, in the order of the guide.
    pub const ALL: [Method; 4] =
        [Method::Absolute, Method::Relative, Method::Spin, Method::Timerfd];

    /// The word on the command line.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Method::Absolute => "absolute",
            Method::Relative => "relative",
            Method::Spin => "spin",
            Method::Timerfd => "timerfd",
        }
    }
}

impl fmt::Display for Method {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.word())
    }
}

impl FromStr for Method {
    type Err = String;

    fn from_str(text: &str) -> Result<Method, String> {
        let words = Method::ALL.map(Method::word);
        Method::ALL
            .into_iter()
            .find(|method| method.word() == text)
            .ok_or_else(|| format!("{text:?} is not a method: use one of {}", words.join(", ")))
    }
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Wanted {
    period_ns: f64,
    high_ns: f64,
    duration_ns: u64,
}

impl Wanted {
    /// A wave of a frequency in Hz, with a share of each period high.
    ///
    /// # Errors
    ///
    /// When the frequency is not between 0.001 Hz and 100 MHz, or a pulse is shorter than 1 ns.
    pub fn new(frequency_hz: f64, duty: f64, duration_ns: u64) -> Result<Wanted, WaveError> {
        let period_ns = 1e9 / frequency_hz;
        let high_ns = period_ns * duty;
        if !(0.001..=1e8).contains(&frequency_hz) {
            return Err(WaveError::Wave(format!(
                "can't generate {frequency_hz} Hz: use 0.001 to 100,000,000 Hz"
            )));
        }
        if !(high_ns >= 1.0 && period_ns - high_ns >= 1.0) {
            return Err(WaveError::Wave(format!(
                "a duty cycle of {} % leaves no pulse",
                duty * 100.0
            )));
        }
        Ok(Wanted { period_ns, high_ns, duration_ns })
    }

    /// How long it takes at most, in nanoseconds: the last period may begin just before the duration is over.
    #[must_use]
    pub fn longest_ns(&self) -> u64 {
        self.duration_ns.saturating_add(self.period_ns.ceil() as u64)
    }

    /// When an edge is planned, from the start: even ones rise. Rounded by itself, so that rounding never adds up.
    fn edge_ns(&self, edge: u64) -> u64 {
        let high_ns = if edge % 2 == 1 { self.high_ns } else { 0.0 };
        ((edge / 2 + 1) as f64 * self.period_ns + high_ns).round() as u64
    }

    /// How many edges the duration holds: a period is begun when the one before ended within it.
    fn edges(&self) -> u64 {
        2 * ((self.duration_ns as f64 - self.high_ns) / self.period_ns).ceil().max(0.0) as u64
    }

    fn pulse_ns(&self, edge: u64) -> u64 {
        let high_ns = if edge % 2 == 1 { self.high_ns } else { self.period_ns - self.high_ns };
        high_ns.round() as u64
    }

    /// How many periods are left out after an edge that was so late.
    fn swallowed(&self, edge: u64, latency_ns: u64) -> u64 {
        let spare_ns = (1.0 - RUNT) * self.pulse_ns(edge + 1) as f64;
        ((latency_ns as f64 - spare_ns) / self.period_ns).ceil() as u64
    }
}

/// An edge that came later than the limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Late {
    /// Its number, from 0.
    pub edge: u64,
    /// When it was planned, from the start of the wave.
    pub planned_ns: u64,
    pub latency_ns: u64,
}

/// What a generator did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Made {
    pub edges: u64,
    /// Edges left out because their periods, or nearly, had passed.
    pub missed: u64,
    /// Rising edges made.
    pub rises: u64,
    /// The first of them.
    pub first_rise_ns: u64,
    pub last_rise_ns: u64,
    pub latency_ns_max: u64,
    /// Sum of the latencies of all edges.
    pub latency_ns_sum: u64,
    /// Edges later than the limit.
    pub violations: u64,
    /// The first of those, up to 10,000.
    pub late: Vec<Late>,
    /// Levels that the line refused.
    pub failures: u64,
}

impl Made {
    #[inline]
    fn add(&mut self, rises: bool, now_ns: u64, latency_ns: u64) {
        self.edges += 1;
        self.latency_ns_max = self.latency_ns_max.max(latency_ns);
        self.latency_ns_sum = self.latency_ns_sum.saturating_add(latency_ns);
        if rises {
            self.first_rise_ns = if self.rises == 0 { now_ns } else { self.first_rise_ns };
            self.last_rise_ns = now_ns;
            self.rises += 1;
        }
    }

    /// The generator's own count: periods by the time they took. None before the second rising edge.
    #[must_use]
    pub fn frequency_hz(&self) -> Option<f64> {
        let span_ns = self.last_rise_ns.checked_sub(self.first_rise_ns).filter(|ns| *ns > 0)?;
        Some((self.rises - 1) as f64 * 1e9 / span_ns as f64)
    }
}

/// What is done when an edge is late.
pub struct Alarm<'a> {
    /// The latency from which an edge is a violation; none is no limit.
    pub limit_ns: Option<u64>,
    /// The line that is high from right after a late edge until right after the next one in time. A pulse
    /// is as long as one of the wave at least: whoever sees the wave can see it.
    pub line: Option<&'a mut dyn WaveOutput>,
}

impl fmt::Debug for Alarm<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Alarm").field("limit_ns", &self.limit_ns).finish_non_exhaustive()
    }
}

impl Method {
    /// Waits until an instant.
    #[inline]
    fn wait(self, clock: &impl Clock, due_ns: u64) {
        match self {
            Method::Absolute | Method::Timerfd => clock.sleep_until_ns(due_ns),
            Method::Spin => while clock.now_ns() < due_ns {},
            Method::Relative => clock.sleep_for_ns(due_ns.saturating_sub(clock.now_ns())),
        }
    }

    /// Waits until an instant is near. It looks for Ctrl-C meanwhile, because a pulse may last long. Returns whether
    /// the wave is to end.
    fn look_until_near(self, clock: &impl Clock, due_ns: u64, stopped: &dyn Fn() -> bool) -> bool {
        loop {
            let now_ns = clock.now_ns();
            if due_ns.saturating_sub(now_ns) <= 2 * LOOK_NS {
                return false;
            }
            if stopped() {
                return true;
            }
            match self {
                Method::Spin => self.wait(clock, now_ns + LOOK_NS),
                _ => clock.sleep_until_ns(now_ns + LOOK_NS),
            }
        }
    }
}

/// Time between two looks for a signal in a pulse that is more than twice as long.
const LOOK_NS: u64 = 200_000_000;

/// Makes a wave, from low to low. After the first wait it doesn't allocate, lock or print.
#[must_use]
pub fn make(
    line: &mut impl WaveOutput,
    clock: &impl Clock,
    wanted: &Wanted,
    method: Method,
    alarm: &mut Alarm<'_>,
    stopped: &dyn Fn() -> bool,
) -> Made {
    let kept = if alarm.limit_ns.is_some() { LATE_KEPT } else { 0 };
    let mut made = Made { late: Vec::with_capacity(kept), ..Made::default() };
    let limit_ns = alarm.limit_ns.unwrap_or(u64::MAX);
    // Relative waits hand their latency on: they have no grid whose edges could be missed.
    let has_grid = method != Method::Relative;
    let edges = wanted.edges();
    let start_ns = clock.now_ns();
    let mut edge = 0;
    let mut is_raised = false;
    loop {
        let planned_ns = wanted.edge_ns(edge);
        // A wave ends low: with the falling edge of the last period that it began.
        if edge % 2 == 0 && stopped() {
            break;
        }
        // A late edge may have swallowed the last planned ones while some of the time was still left.
        let is_done = has_grid && edge >= edges;
        if edge % 2 == 0 && (is_done || clock.now_ns() - start_ns >= wanted.duration_ns) {
            made.missed += if has_grid { edges.saturating_sub(edge) } else { 0 };
            break;
        }
        let (rises, pulse_ns) = (edge % 2 == 0, wanted.pulse_ns(edge));
        let due_ns = match has_grid {
            true => start_ns + planned_ns,
            false => clock.now_ns() + pulse_ns,
        };
        if pulse_ns > 2 * LOOK_NS && method.look_until_near(clock, due_ns, stopped) {
            made.edges += u64::from(!rises);
            line.set(false);
            break;
        }
        method.wait(clock, due_ns);
        let now_ns = clock.now_ns();
        line.set(rises);
        let latency_ns = now_ns.saturating_sub(due_ns);
        made.add(rises, now_ns, latency_ns);
        let is_late = latency_ns > limit_ns;
        if is_late {
            made.violations += 1;
            if made.late.len() < LATE_KEPT {
                made.late.push(Late { edge, planned_ns, latency_ns });
            }
        }
        if let Some(line) = alarm.line.as_mut().filter(|_| is_late != is_raised) {
            line.set(is_late);
            is_raised = is_late;
        }
        // No more than are left: one that is late beyond the end swallows only what was planned.
        let left = edges.saturating_sub(edge + 1) / 2;
        let swallowed = match has_grid {
            true => wanted.swallowed(edge, latency_ns).min(left),
            false => 0,
        };
        made.missed += 2 * swallowed;
        edge += 1 + 2 * swallowed;
    }
    if let Some(line) = alarm.line.as_mut().filter(|_| is_raised) {
        line.set(false);
    }
    made.failures = line.failures();
    made
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use rtscope_testing::clock::SimulatedClock;

    use super::*;

    struct Recorded<'a> {
        clock: &'a SimulatedClock,
        edges: RefCell<Vec<(u64, bool)>>,
    }

    impl WaveOutput for Recorded<'_> {
        fn set(&mut self, high: bool) {
            self.edges.borrow_mut().push((self.clock.now_ns(), high));
        }
        fn failures(&self) -> u64 {
            0
        }
    }

    /// When, and whether the line rose.
    type Edges = Vec<(u64, bool)>;

    fn made(
        method: Method,
        late: Option<(u64, u64)>,
        limit_ns: Option<u64>,
    ) -> (Made, Edges, Edges) {
        let clock = SimulatedClock::at(1_000).with_pauses(late);
        let mut line = Recorded { clock: &clock, edges: RefCell::default() };
        let mut alarm_line = Recorded { clock: &clock, edges: RefCell::default() };
        let wanted = Wanted::new(1_000.0, 0.3, 10_000_000).expect("a wave");
        let mut alarm = Alarm { limit_ns, line: Some(&mut alarm_line) };
        let made = make(&mut line, &clock, &wanted, method, &mut alarm, &|| false);
        (made, line.edges.into_inner(), alarm_line.edges.into_inner())
    }

    #[test]
    fn edges_come_at_their_planned_instants_and_end_low() {
        let (made, edges, alarms) = made(Method::Absolute, None, Some(0));
        assert_eq!(
            edges[..4],
            [(1_001_000, true), (1_301_000, false), (2_001_000, true), (2_301_000, false)]
        );
        assert_eq!(edges.last(), Some(&(10_301_000, false)));
        assert_eq!((made.edges, made.missed, made.violations, alarms), (20, 0, 0, vec![]));
        assert_eq!(made.frequency_hz(), Some(1_000.0));
    }

    #[test]
    fn a_late_edge_swallows_whole_periods_and_raises_the_alarm() {
        // The edge that is planned for 3 ms is 2.2 ms late: two periods have passed.
        let (made, edges, alarms) =
            made(Method::Absolute, Some((3_001_000, 2_200_000)), Some(1_000_000));
        assert_eq!((made.edges, made.missed), (16, 4));
        assert_eq!(made.late, [Late { edge: 4, planned_ns: 3_000_000, latency_ns: 2_200_000 }]);
        assert_eq!((made.violations, made.latency_ns_max), (1, 2_200_000));
        // High until the falling edge, which is in time.
        assert_eq!(alarms, [(5_201_000, true), (5_301_000, false)]);
        // The grid stays: the next rising edge is that of 6 ms.
        assert!(edges.contains(&(6_001_000, true)) && !edges.contains(&(4_001_000, true)));
    }

    #[test]
    fn a_late_edge_leaves_no_runt() {
        // Rising 0.28 ms late of a pulse of 0.3 ms, falling 0.6 ms late of one of 0.7 ms: the pulses that they
        // begin end a period later.
        for (late_at_ns, latency_ns, at, pulse_ns) in
            [(3_001_000, 280_000, 4, 1_020_000), (3_301_000, 600_000, 5, 1_100_000)]
        {
            let (made, edges, _) = made(Method::Absolute, Some((late_at_ns, latency_ns)), None);
            assert_eq!((made.edges, made.missed), (18, 2));
            assert_eq!(edges[at + 1].0 - edges[at].0, pulse_ns);
        }
    }

    #[test]
    fn every_planned_edge_is_made_or_missed_however_late_the_last_ones_are() {
        for (late_at_ns, latency_ns) in [
            (8_001_000, 5_000_000),
            (10_001_000, 5_000_000),
            (9_301_000, 700_000),
            // The last period has all but passed, the duration has not.
            (9_301_000, 600_000),
            (1_001_000, 1 << 40),
        ] {
            let (made, edges, _) = made(Method::Absolute, Some((late_at_ns, latency_ns)), None);
            assert_eq!(made.edges + made.missed, 20, "{late_at_ns} {latency_ns}: {made:?}");
            assert_eq!(edges.last().map(|edge| edge.1), Some(false), "it ends low");
        }
    }

    #[test]
    fn a_timer_that_was_late_once_stays_in_step() {
        // 2.2 ms late: two periods are left out, and all edges to come are in time.
        let late = Some((3_001_000, 2_200_000));
        let (timer, edges, _) = made(Method::Timerfd, late, None);
        assert_eq!((timer.edges, timer.missed, timer.latency_ns_max), (16, 4, 2_200_000));
        let grid = |at_ns: u64| matches!((at_ns - 1_000) % 1_000_000, 0 | 300_000);
        assert!(edges.iter().filter(|(at_ns, _)| !grid(*at_ns)).count() == 1, "{edges:?}");
        assert_eq!(timer, made(Method::Absolute, late, None).0);
    }

    #[test]
    fn a_relative_wait_hands_its_latency_on() {
        let (made, edges, _) = made(Method::Relative, Some((3_001_000, 400_000)), None);
        assert_eq!((made.missed, made.latency_ns_max), (0, 400_000));
        assert!(edges.iter().skip(6).all(|(at_ns, _)| (at_ns - 1_000 - 400_000) % 100_000 == 0));
        assert_eq!(made.late, []);
    }

    /// Ctrl-C took effect only at the next rising edge: after up to a period, which may be minutes.
    #[test]
    fn a_long_pulse_ends_when_it_is_stopped_and_leaves_the_line_low() {
        let wanted = Wanted::new(0.01, 0.5, 180_000_000_000).expect("a wave");
        assert_eq!(wanted.longest_ns(), 280_000_000_000);
        for method in Method::ALL.into_iter().filter(|method| *method != Method::Spin) {
            for (stops_at_ns, edges) in [(30_000_000_000, 0), (130_000_000_000, 2)] {
                let clock = SimulatedClock::at(0);
                let mut line = Recorded { clock: &clock, edges: RefCell::default() };
                let mut alarm = Alarm { limit_ns: None, line: None };
                let stopped = || clock.time_ns() >= stops_at_ns;
                let made = make(&mut line, &clock, &wanted, method, &mut alarm, &stopped);
                assert_eq!(made.edges, edges, "{method:?}");
                assert!(clock.time_ns() - stops_at_ns <= 2 * LOOK_NS, "{method:?}");
                assert!(line.edges.into_inner().last().is_none_or(|(_, high)| !high));
            }
        }
    }

    const MS: u64 = 1_000_000;

    /// The wait for a long pulse has several steps, and each of them may be late.
    #[test]
    fn a_long_relative_pulse_hides_no_latency() {
        for (held_up_at_ms, rises_at_ms, violations) in [(100, 500, 0), (450, 505, 1)] {
            let clock = SimulatedClock::at(0).with_pauses(Some((held_up_at_ms * MS, 5 * MS)));
            let mut line = Recorded { clock: &clock, edges: RefCell::default() };
            let wanted = Wanted::new(1.0, 0.5, 2_000 * MS).expect("a wave");
            let mut alarm = Alarm { limit_ns: Some(MS), line: None };
            let made = make(&mut line, &clock, &wanted, Method::Relative, &mut alarm, &|| false);
            let edges = line.edges.into_inner();
            assert_eq!((edges[0].0, edges[1].0), (rises_at_ms * MS, (rises_at_ms + 500) * MS));
            assert_eq!(made.violations, violations);
        }
    }

    #[test]
    fn rounding_never_adds_up() {
        let wanted = Wanted::new(3.0, 0.5, 0).expect("a wave");
        assert_eq!(wanted.edge_ns(2 * 3_000_000 - 2), 1_000_000_000_000_000);
        assert!(Wanted::new(0.0, 0.5, 1).is_err() && Wanted::new(1e9, 0.5, 1).is_err());
        assert!(Wanted::new(1e3, 1.0, 1).is_err() && Wanted::new(f64::NAN, 0.5, 1).is_err());
    }

    #[test]
    fn methods_are_read_as_they_are_written() {
        for method in Method::ALL {
            assert_eq!(method.word().parse(), Ok(method));
        }
    }
}
