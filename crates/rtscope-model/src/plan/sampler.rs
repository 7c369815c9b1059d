//! The sampler: which threads wake when, on which CPUs, and how their latencies are kept.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Deserializer, Serialize};

use super::NetworkSampler;
use crate::{
    cpu::CpuSet,
    histogram::{EXACT_MAX, EXACT_MIN, Layout},
    schedule::Policy,
    time::Nanos,
};

/// The clock that expiries are programmed on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ClockName {
    /// `CLOCK_MONOTONIC`.
    #[default]
    Monotonic,
    /// `CLOCK_REALTIME`: may step.
    Realtime,
}

/// How a thread sleeps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Sleep {
    /// `clock_nanosleep` with `TIMER_ABSTIME` on a fixed grid: the way a real-time program must.
    #[default]
    Absolute,
    /// `clock_nanosleep` for the interval from now on: drifts.
    Relative,
}

/// What happens to the activations that a late wake-up swallowed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Overrun {
    /// Skipped, and each counted as missed; sleep on to the next expiry that lies ahead.
    #[default]
    Skip,
    /// Caught up: each runs at once, late, and is recorded.
    Replay,
}

/// When the threads start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ThreadStart {
    /// At one common instant.
    #[default]
    Together,
    /// At the next full second of the clock.
    Second,
}

/// Whether each thread has a CPU of its own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Pinning {
    /// Thread n on the n-th CPU of the set, round robin.
    #[default]
    Pinned,
    /// Each thread on any CPU of the set.
    Free,
}

/// Width of an exact histogram bucket.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Resolution {
    #[default]
    #[serde(rename = "1us")]
    Microsecond,
    #[serde(rename = "1ns")]
    Nanosecond,
}

/// How wake-ups are spread over all phases of the kernel's tick.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Spread {
    /// Not at all: `false`.
    #[default]
    None,
    /// Each interval is 0.62 % longer: `true`.
    Even,
    /// Each expiry is later than its instant of the grid by a pseudo-random part of so many percent of the interval, 1
    /// to 100: `"50%"`, or `0.5`.
    Part(u8),
}

impl fmt::Display for Spread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Spread::None => f.write_str("false"),
            Spread::Even => f.write_str("true"),
            Spread::Part(percent) => write!(f, "{percent}%"),
        }
    }
}

const SPREAD_TEXT: &str =
    "spread is out of range: write true, or a share of the interval in whole percent, 1% to 100%";

impl FromStr for Spread {
    type Err = String;

    fn from_str(text: &str) -> Result<Spread, String> {
        let part = |percent: f64| {
            let whole = percent.round();
            let is_sound = (percent - whole).abs() < 1e-6 && (1.0..=100.0).contains(&whole);
            is_sound.then_some(Spread::Part(whole as u8)).ok_or_else(|| SPREAD_TEXT.to_owned())
        };
        let number = |text: &str| text.trim().parse::<f64>().map_err(|_| SPREAD_TEXT.to_owned());
        match (text.trim(), text.trim().strip_suffix('%')) {
            ("false", _) => Ok(Spread::None),
            ("true", _) => Ok(Spread::Even),
            (_, Some(percent)) => part(number(percent)?),
            (fraction, None) => part(number(fraction)? * 100.0),
        }
    }
}

impl Serialize for Spread {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Spread::Part(_) => serializer.collect_str(self),
            spread => serializer.serialize_bool(*spread == Spread::Even),
        }
    }
}

impl<'de> Deserialize<'de> for Spread {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Spread, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum Written {
            Switch(bool),
            Fraction(f64),
            Text(String),
        }
        let text = match Written::deserialize(deserializer) {
            Ok(Written::Switch(is_even)) => is_even.to_string(),
            Ok(Written::Fraction(fraction)) => fraction.to_string(),
            Ok(Written::Text(text)) => text,
            Err(_) => String::new(),
        };
        text.parse().map_err(serde::de::Error::custom)
    }
}

/// The CPUs to measure.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum CpuChoice {
    /// Every CPU the process may use: isolated CPUs are not among them.
    #[default]
    All,
    /// The highest-numbered of these: a machine's quietest, by custom.
    Last,
    /// These, isolated or not.
    These(CpuSet),
}

impl fmt::Display for CpuChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CpuChoice::All => f.write_str("all"),
            CpuChoice::Last => f.write_str("last"),
            CpuChoice::These(set) => write!(f, "{set}"),
        }
    }
}

impl FromStr for CpuChoice {
    type Err = String;

    fn from_str(text: &str) -> Result<CpuChoice, String> {
        match text.trim() {
            "all" => Ok(CpuChoice::All),
            "last" => Ok(CpuChoice::Last),
            "" => Err("no CPU is named: write all, last, or a set such as 0-3,6".to_owned()),
            set => {
                set.parse().map(CpuChoice::These).map_err(|e| format!("{e}, or write all or last"))
            }
        }
    }
}

crate::text::serde_as_text!(CpuChoice);

/// Declares the sampler and its patch from one list of fields, so that a plan, a phase and the
/// command line can each set some of them and none can be forgotten on the way.
macro_rules! sampler {
    ($($(#[$doc:meta])* $field:ident: $type:ty = $default:expr, $reader:literal;)*) => {
        /// A sampler with every default filled in.
        #[derive(Clone, Debug, PartialEq)]
        pub struct Sampler { $($(#[$doc])* pub $field: $type,)* }

        impl Default for Sampler {
            fn default() -> Sampler {
                Sampler { $($field: $default,)* }
            }
        }

        /// Some fields of a sampler: what a plan, a phase or a command line sets.
        #[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
        #[serde(deny_unknown_fields)]
        pub struct SamplerPatch {
            $($(#[$doc])*
            #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = $reader)]
            pub $field: Option<$type>,)*
        }

        impl SamplerPatch {
            /// The sampler with this patch laid over it. Threads that become `SCHED_DEADLINE` are free to move
            /// unless the patch says otherwise: the kernel refuses to pin them.
            #[must_use]
            pub fn applied_to(&self, base: &Sampler) -> Sampler {
                let mut sampler =
                    Sampler { $($field: self.$field.clone().unwrap_or_else(|| base.$field.clone()),)* };
                if self.policy == Some(Policy::Deadline) && self.placement.is_none() {
                    sampler.placement = Pinning::Free;
                }
                sampler
            }

            /// The patch that makes `sampler` of `base`.
            #[must_use]
            pub fn between(base: &Sampler, sampler: &Sampler) -> SamplerPatch {
                let mut patch = SamplerPatch {
                    $($field: (sampler.$field != base.$field).then(|| sampler.$field.clone()),)*
                };
                if patch.applied_to(base).placement != sampler.placement {
                    patch.placement = Some(sampler.placement);
                }
                patch
            }
        }
    };
}

sampler! {
    /// Number of threads; 0 is one for each measured CPU.
    threads: u32 = 0, "threads";
    /// The CPUs to measure.
    cpus: CpuChoice = CpuChoice::All, "some";
    /// Whether each thread has a CPU of its own.
    placement: Pinning = Pinning::Pinned, "some";
    /// Scheduling policy.
    policy: Policy = Policy::Fifo, "some";
    /// Real-time priority, 1 to 99; without meaning for policies that have none.
    priority: u8 = 90, "priority";
    /// Nice value of the fair policies, -20 to 19.
    nice: i8 = 0, "nice";
    /// `SCHED_DEADLINE`: CPU time granted in each interval; 0 is a tenth of the interval.
    runtime: Nanos = Nanos::ZERO, "some";
    /// Time between two activations of a thread.
    interval: Nanos = Nanos::from_ms(1), "interval";
    /// Thread n's interval is longer by n times this.
    distance: Nanos = Nanos::ZERO, "distance";
    /// Each thread's interval, in turn; empty is `interval` for all.
    intervals: Vec<Nanos> = Vec::new(), "intervals";
    /// How wake-ups are spread over all phases of the kernel's tick.
    spread: Spread = Spread::None, "some";
    /// Seed of a pseudo-random spread; a guest of the lab adds its own.
    spread_seed: u64 = 0, "spread_seed";
    /// The clock that expiries are programmed on.
    clock: ClockName = ClockName::Monotonic, "some";
    /// How a thread sleeps.
    sleep: Sleep = Sleep::Absolute, "some";
    /// What happens to activations that a late wake-up swallowed.
    overrun: Overrun = Overrun::Skip, "some";
    /// When the threads start.
    start: ThreadStart = ThreadStart::Together, "some";
    /// Thread n starts later by n times this.
    stagger: Nanos = Nanos::ZERO, "stagger";
    /// How long to run before samples count.
    warmup: Nanos = Nanos::from_ms(200), "some";
    /// Width of an exact histogram bucket.
    resolution: Resolution = Resolution::Microsecond, "some";
    /// Number of exact histogram buckets; latencies beyond are kept log-linear.
    buckets: u32 = 10_000, "buckets";
    /// Length of a slice.
    slice: Nanos = Nanos::from_secs(1), "slice";
    /// Stop the run when a latency is above this; 0 is never.
    break_above: Nanos = Nanos::ZERO, "some";
    /// Keep every sample in a file.
    raw: bool = false, "some";
    /// The frame that a thread sends at each activation and waits for.
    network: NetworkSampler = NetworkSampler::Off, "some";
}

/// How much longer [`Spread::Even`] makes an interval, in parts of a billion: a hundredth of the golden ratio's
/// fraction.
///
/// An interval that divides the tick, or that the tick divides, meets the same few phases of the tick again
/// and again: 500 us against 4 ms meet 8. The golden ratio is the number that fractions come least near to.
/// So an interval that is longer by a part of it is in no simple ratio with any tick, whatever the ratio was
/// before, and its grid moves evenly over all phases: once from one of the few to the next in 162 wake-ups.
const SPREAD: u64 = 6_180_340;

impl SamplerPatch {
    /// Whether a policy or a priority is asked by name.
    #[must_use]
    pub fn asks_policy(&self) -> bool {
        self.policy.is_some() || self.priority.is_some()
    }

    /// What is set here and has no meaning for any of these policies: its key, and a sentence.
    pub(super) fn without_meaning(
        &self,
        policies: &[Policy],
        spelling: Spelling,
    ) -> Vec<(&'static str, String)> {
        let set = [
            ("priority", self.priority.is_some()),
            ("nice", self.nice.is_some()),
            ("runtime", self.runtime.is_some()),
        ];
        let useless = set.into_iter().filter(|(key, set)| {
            *set && !policies.is_empty() && !policies.iter().any(|policy| takes(*policy, key))
        });
        let sentence = |key| {
            let mut found: Vec<&str> = policies.iter().map(|policy| policy.word()).collect();
            found.sort_unstable();
            found.dedup();
            let fit = Policy::ALL.into_iter().filter(|policy| takes(*policy, key));
            let fit: Vec<String> = fit.map(|p| spelling.with("policy", p.word())).collect();
            let (name, found) = (spelling.key(key), found.join(" and "));
            let fit = fit.join(" or ");
            format!("{name} has no meaning for policy {found}: leave it out, or write {fit}")
        };
        useless.map(|(key, _)| (key, sentence(key))).collect()
    }

    /// Without what has no meaning for a policy.
    pub(super) fn only_for(mut self, policy: Policy) -> SamplerPatch {
        self.priority = self.priority.filter(|_| takes(policy, "priority"));
        self.nice = self.nice.filter(|_| takes(policy, "nice"));
        self.runtime = self.runtime.filter(|_| takes(policy, "runtime"));
        self
    }
}

/// Whether a policy takes a priority, a nice value or a runtime.
fn takes(policy: Policy, key: &str) -> bool {
    match key {
        "priority" => policy.has_priority(),
        "nice" => matches!(policy, Policy::Other | Policy::Batch),
        _ => policy == Policy::Deadline,
    }
}

/// How a sentence spells a sampler's field: as the one who wrote it did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Spelling {
    /// As in a plan's `[sampler]` table: `placement = "free"`.
    Plan,
    /// As on the command line: `--placement free`.
    CommandLine,
}

impl Spelling {
    fn key(self, key: &str) -> String {
        match self {
            Spelling::Plan => key.to_owned(),
            Spelling::CommandLine => format!("--{key}"),
        }
    }

    fn with(self, key: &str, value: &str) -> String {
        match self {
            Spelling::Plan => format!("{key} = {value:?}"),
            Spelling::CommandLine => format!("--{key} {value}"),
        }
    }
}

impl Sampler {
    #[must_use]
    pub fn layout(&self) -> Layout {
        let unit_ns = match self.resolution {
            Resolution::Microsecond => 1_000,
            Resolution::Nanosecond => 1,
        };
        Layout { unit_ns, exact: self.buckets }
    }

    /// The interval of the n-th thread, with its spread.
    #[must_use]
    pub fn interval_of(&self, thread: u32) -> Nanos {
        let asked = if self.intervals.is_empty() {
            Nanos(self.interval.0 + self.distance.0 * u64::from(thread))
        } else {
            self.intervals[thread as usize % self.intervals.len()]
        };
        if self.spread != Spread::Even {
            return asked;
        }
        // The longest interval has 57 bits, a part of it is smaller than itself.
        let longer = u128::from(asked.0) * u128::from(SPREAD) / 1_000_000_000;
        Nanos(asked.0 + longer as u64)
    }

    /// This sampler with a default wherever the policy takes no such value: two samplers that do the
    /// same are equal so.
    #[must_use]
    pub fn in_effect(&self) -> Sampler {
        let default = Sampler::default();
        SamplerPatch::between(&default, self).only_for(self.policy).applied_to(&default)
    }

    /// What doesn't fit together, as sentences.
    #[must_use]
    pub fn contradictions(&self, spelling: Spelling) -> Vec<String> {
        let mut found = Vec::new();
        if self.policy == Policy::Deadline && self.placement == Pinning::Pinned {
            found.push(format!(
                "the kernel refuses to pin SCHED_DEADLINE threads: set {}",
                spelling.with("placement", "free")
            ));
        }
        if matches!(self.spread, Spread::Part(_)) && self.sleep == Sleep::Relative {
            found.push(format!(
                "a spread in percent moves the expiries of a grid, but relative sleeps have no grid: set {}",
                spelling.with("sleep", "absolute")
            ));
        }
        found.extend(self.network_contradictions(spelling));
        if self.threads > 0 && self.intervals.len() > self.threads as usize {
            found.push(too_many_intervals(self.intervals.len(), self.threads));
        }
        let shortest = (0..self.intervals.len().max(1)).map(|n| self.interval_of(n as u32)).min();
        if self.policy == Policy::Deadline && shortest.is_some_and(|i| self.runtime > i) {
            found.push(format!(
                "runtime {} is longer than the interval: write at most the interval",
                self.runtime
            ));
        }
        found
    }
}

impl Sampler {
    /// What doesn't fit to frames.
    fn network_contradictions(&self, spelling: Spelling) -> Vec<String> {
        let Some(path) = self.network.path() else { return Vec::new() };
        let mut found = Vec::new();
        let is_cyclic = self.sleep == Sleep::Absolute && self.overrun == Overrun::Skip;
        if !is_cyclic || matches!(self.spread, Spread::Part(_)) {
            let (sleep, overrun) =
                (spelling.with("sleep", "absolute"), spelling.with("overrun", "skip"));
            found.push(format!(
                "a network sampler keeps a fixed cycle: set {sleep} and {overrun}, and don't give spread as a percentage"
            ));
        }
        if self.clock == ClockName::Realtime {
            found.push(format!(
                "a network sampler waits by the monotonic clock: set {}",
                spelling.with("clock", "monotonic")
            ));
        }
        let threads = 0..self.intervals.len().max(1) as u32;
        found.extend(threads.filter_map(|n| path.contradiction(self.interval_of(n))).take(1));
        found
    }
}

/// The sentence about intervals that no thread would take.
#[must_use]
pub fn too_many_intervals(intervals: usize, threads: u32) -> String {
    let plural = if threads == 1 { "" } else { "s" };
    format!(
        "intervals has {intervals} values for {threads} thread{plural}: give at most one for each \
         thread, or more threads"
    )
}

fn some<'de, D: Deserializer<'de>, T: Deserialize<'de>>(d: D) -> Result<Option<T>, D::Error> {
    T::deserialize(d).map(Some)
}

fn checked<'de, D: Deserializer<'de>, T: Deserialize<'de>>(
    d: D,
    ok: impl Fn(&T) -> bool,
    otherwise: &str,
) -> Result<Option<T>, D::Error> {
    let value = T::deserialize(d)?;
    if ok(&value) { Ok(Some(value)) } else { Err(serde::de::Error::custom(otherwise)) }
}

/// A whole number in a range: read as a wide one, so that -1 is out of range too.
fn whole<'de, D: Deserializer<'de>, T: TryFrom<i64>>(
    d: D,
    range: std::ops::RangeInclusive<i64>,
    otherwise: &str,
) -> Result<Option<T>, D::Error> {
    let value = i64::deserialize(d)?;
    let value = range.contains(&value).then(|| T::try_from(value).ok()).flatten();
    value.map(Some).ok_or_else(|| serde::de::Error::custom(otherwise))
}

/// The most threads of a session.
const THREADS_MAX: i64 = 10_000;

fn threads<'de, D: Deserializer<'de>>(d: D) -> Result<Option<u32>, D::Error> {
    whole(
        d,
        0..=THREADS_MAX,
        "threads is out of range: 1 to 10000; leave it out for one on each measured CPU",
    )
}

const PRIORITY_TEXT: &str = "priority is out of range: 1 to 99, 99 the highest";

fn priority<'de, D: Deserializer<'de>>(d: D) -> Result<Option<u8>, D::Error> {
    whole(d, 1..=99, PRIORITY_TEXT)
}

pub(super) fn priority_axis<'de, D: Deserializer<'de>>(d: D) -> Result<Vec<u8>, D::Error> {
    let priorities = Vec::<i64>::deserialize(d)?.into_iter();
    let one = |priority: i64| u8::try_from(priority).ok().filter(|n| (1..=99).contains(n));
    priorities
        .map(one)
        .collect::<Option<_>>()
        .ok_or_else(|| serde::de::Error::custom(PRIORITY_TEXT))
}

fn spread_seed<'de, D: Deserializer<'de>>(d: D) -> Result<Option<u64>, D::Error> {
    whole(d, 0..=i64::MAX, "spread_seed is out of range: a whole number from 0 on")
}

fn nice<'de, D: Deserializer<'de>>(d: D) -> Result<Option<i8>, D::Error> {
    whole(d, -20..=19, "nice is out of range: -20 to 19")
}

/// The shortest interval that a thread may be given: below it the loop would never sleep.
pub(super) const INTERVAL_MIN: Nanos = Nanos::from_us(10);

const INTERVAL_TEXT: &str = "interval is out of range: at least 10us and at most 1d";

fn is_interval(interval: &Nanos) -> bool {
    (INTERVAL_MIN..=Nanos::from_secs(86_400)).contains(interval)
}

fn interval<'de, D: Deserializer<'de>>(d: D) -> Result<Option<Nanos>, D::Error> {
    checked(d, is_interval, INTERVAL_TEXT)
}

fn intervals<'de, D: Deserializer<'de>>(d: D) -> Result<Option<Vec<Nanos>>, D::Error> {
    checked(d, |all: &Vec<Nanos>| all.iter().all(is_interval), INTERVAL_TEXT)
}

pub(super) fn interval_axis<'de, D: Deserializer<'de>>(d: D) -> Result<Vec<Nanos>, D::Error> {
    intervals(d).map(Option::unwrap_or_default)
}

fn buckets<'de, D: Deserializer<'de>>(d: D) -> Result<Option<u32>, D::Error> {
    whole(d, i64::from(EXACT_MIN)..=i64::from(EXACT_MAX), "buckets is out of range: 64 to 10000000")
}

/// With the most threads the last one's interval and start still fit a 64-bit number of nanoseconds.
const APART_MAX: Nanos = Nanos::from_secs(3600);

fn distance<'de, D: Deserializer<'de>>(d: D) -> Result<Option<Nanos>, D::Error> {
    checked(
        d,
        |n: &Nanos| *n <= APART_MAX,
        "distance is out of range: at most 1h from thread to thread",
    )
}

fn stagger<'de, D: Deserializer<'de>>(d: D) -> Result<Option<Nanos>, D::Error> {
    checked(
        d,
        |n: &Nanos| *n <= APART_MAX,
        "stagger is out of range: at most 1h from thread to thread",
    )
}

fn slice<'de, D: Deserializer<'de>>(d: D) -> Result<Option<Nanos>, D::Error> {
    checked(
        d,
        |s: &Nanos| (Nanos::from_ms(10)..=Nanos::from_secs(3600)).contains(s),
        "slice is out of range: 10ms to 1h",
    )
}
