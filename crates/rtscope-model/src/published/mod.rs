//! Figures that others have published: what each is a figure of, and where it stands.
//!
//! Plans, experiments and tables of figures hold them as `[[published]]` tables. An entry says to what its
//! figures belong (a phase, an application, a program, the subject of a sweep, a transfer), under which kernel,
//! policy and load, and which document prints them. Each figure is a statistic with its value and unit.

mod table;

use std::{fmt, str::FromStr};

use serde::{
    Deserialize, Deserializer, Serialize, Serializer,
    de::{DeserializeSeed, Error as _, MapAccess, Visitor},
    ser::SerializeMap,
};
use toml::Spanned;

use crate::{
    environment::Preemption,
    machine_use::CpuClass,
    plan::mistakes,
    printable::printable,
    schedule::Policy,
    stat::Counted,
    text::{Problem, lines_of, suggest},
    time::Nanos,
    verdict,
};

/// What a figure is counted or measured in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PublishedUnit {
    /// A time. Values are nanoseconds.
    Time,
    /// A frequency. Values are hertz.
    Frequency,
    /// A rate of bits. Values are bits a second.
    Bits,
    /// A share. Values are 1 for 100 %.
    Share,
    /// A count or a ratio.
    Number,
}

impl PublishedUnit {
    /// The suffixes that a value may have, with what one of it is worth. A longer suffix comes before one that it ends in.
    const fn suffixes(self) -> &'static [(&'static str, f64)] {
        match self {
            PublishedUnit::Time => {
                &[("ns", 1.0), ("us", 1e3), ("ms", 1e6), ("min", 6e10), ("s", 1e9)]
            }
            PublishedUnit::Frequency => &[("GHz", 1e9), ("MHz", 1e6), ("kHz", 1e3), ("Hz", 1.0)],
            PublishedUnit::Bits => {
                &[("Gbit/s", 1e9), ("Mbit/s", 1e6), ("kbit/s", 1e3), ("bit/s", 1.0)]
            }
            PublishedUnit::Share => &[("%", 0.01)],
            PublishedUnit::Number => &[("", 1.0)],
        }
    }

    /// How a value of it is written.
    const fn example(self) -> &'static str {
        match self {
            PublishedUnit::Time => "a time, for example 878us or 2.32s",
            PublishedUnit::Frequency => "a frequency, for example 900Hz or 50kHz",
            PublishedUnit::Bits => "a rate, for example 621.6Mbit/s",
            PublishedUnit::Share => "a share, for example 24.03%",
            PublishedUnit::Number => "a number without a unit",
        }
    }
}

/// What a figure says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PublishedStatistic {
    Min,
    /// Mean, quantile or largest latency, or the number of missed activations.
    Latency(verdict::Statistic),
    /// The latency where most wake-ups gather.
    Mode,
    /// Wake-ups that were later than this.
    Above(Nanos),
    /// Measured activations.
    Recorded,
    /// From the release of an application to the end of its work.
    Response,
    /// From the start of a program to its end.
    Elapsed,
    /// A counter of a program.
    Counter(Counted),
    /// CPU time over elapsed time.
    CpusUsed,
    /// Cycles in a second of CPU time.
    Clock,
    InstructionsPerCycle,
    /// How many times the highest frequency of one subject is that of another.
    FrequencyRatio,
    /// Mispredicted branches over branches.
    BranchMissRate,
    /// The highest frequency that a program keeps.
    MaxFrequency,
    /// The frequency of a wave.
    Frequency,
    /// Bits that came in a second.
    Bandwidth,
    CpuLoad,
    /// Share of a class of CPU time, all CPUs together.
    CpuTime(CpuClass),
}

/// The statistics that have a fixed name, in the order in which they are shown.
const NAMED: [(&str, PublishedStatistic); 33] = [
    ("min", PublishedStatistic::Min),
    ("mean", PublishedStatistic::Latency(verdict::Statistic::Mean)),
    ("mode", PublishedStatistic::Mode),
    ("max", PublishedStatistic::Latency(verdict::Statistic::Max)),
    ("missed", PublishedStatistic::Latency(verdict::Statistic::Missed)),
    ("recorded", PublishedStatistic::Recorded),
    ("response", PublishedStatistic::Response),
    ("elapsed", PublishedStatistic::Elapsed),
    ("task_clock", PublishedStatistic::Counter(Counted::TaskClockNs)),
    ("context_switches", PublishedStatistic::Counter(Counted::ContextSwitches)),
    ("migrations", PublishedStatistic::Counter(Counted::Migrations)),
    ("page_faults", PublishedStatistic::Counter(Counted::PageFaults)),
    ("cycles", PublishedStatistic::Counter(Counted::Cycles)),
    ("instructions", PublishedStatistic::Counter(Counted::Instructions)),
    ("branches", PublishedStatistic::Counter(Counted::Branches)),
    ("branch_misses", PublishedStatistic::Counter(Counted::BranchMisses)),
    ("cpus_used", PublishedStatistic::CpusUsed),
    ("clock", PublishedStatistic::Clock),
    ("instructions_per_cycle", PublishedStatistic::InstructionsPerCycle),
    ("frequency_ratio", PublishedStatistic::FrequencyRatio),
    ("branch_miss_rate", PublishedStatistic::BranchMissRate),
    ("max_frequency", PublishedStatistic::MaxFrequency),
    ("frequency", PublishedStatistic::Frequency),
    ("bandwidth", PublishedStatistic::Bandwidth),
    ("cpu_load", PublishedStatistic::CpuLoad),
    (CpuClass::User.name(), PublishedStatistic::CpuTime(CpuClass::User)),
    (CpuClass::Nice.name(), PublishedStatistic::CpuTime(CpuClass::Nice)),
    (CpuClass::System.name(), PublishedStatistic::CpuTime(CpuClass::System)),
    (CpuClass::Iowait.name(), PublishedStatistic::CpuTime(CpuClass::Iowait)),
    (CpuClass::Irq.name(), PublishedStatistic::CpuTime(CpuClass::Irq)),
    (CpuClass::Softirq.name(), PublishedStatistic::CpuTime(CpuClass::Softirq)),
    (CpuClass::Steal.name(), PublishedStatistic::CpuTime(CpuClass::Steal)),
    (CpuClass::Idle.name(), PublishedStatistic::CpuTime(CpuClass::Idle)),
];

impl PublishedStatistic {
    /// What its values are in.
    #[must_use]
    pub const fn unit(self) -> PublishedUnit {
        use verdict::Statistic as Of;
        match self {
            PublishedStatistic::Min
            | PublishedStatistic::Latency(Of::Max | Of::Mean | Of::Quantile(_))
            | PublishedStatistic::Mode
            | PublishedStatistic::Response
            | PublishedStatistic::Elapsed
            | PublishedStatistic::Counter(Counted::TaskClockNs) => PublishedUnit::Time,
            PublishedStatistic::Clock
            | PublishedStatistic::MaxFrequency
            | PublishedStatistic::Frequency => PublishedUnit::Frequency,
            PublishedStatistic::BranchMissRate
            | PublishedStatistic::CpuLoad
            | PublishedStatistic::CpuTime(_) => PublishedUnit::Share,
            PublishedStatistic::Bandwidth => PublishedUnit::Bits,
            PublishedStatistic::Latency(Of::Missed | Of::Late | Of::Lost)
            | PublishedStatistic::Above(_)
            | PublishedStatistic::Recorded
            | PublishedStatistic::Counter(_)
            | PublishedStatistic::CpusUsed
            | PublishedStatistic::FrequencyRatio
            | PublishedStatistic::InstructionsPerCycle => PublishedUnit::Number,
        }
    }
}

impl PublishedStatistic {
    /// Its place among others: quantiles before the maximum, and limits after it.
    fn rank(self) -> (usize, u64) {
        let of = |name: &str| NAMED.iter().position(|(known, _)| *known == name).unwrap_or(0);
        match self {
            PublishedStatistic::Latency(verdict::Statistic::Quantile(parts)) => {
                (of("mode"), parts.into())
            }
            PublishedStatistic::Above(limit) => (of("max"), limit.0.saturating_add(1)),
            named => (of(&named.to_string()), 0),
        }
    }
}

impl fmt::Display for PublishedStatistic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PublishedStatistic::Latency(statistic) => statistic.fmt(f),
            PublishedStatistic::Above(limit) => write!(f, "above {}", limit.exact()),
            other => {
                let named = NAMED.iter().find(|(_, known)| known == other);
                f.write_str(named.map_or("", |(name, _)| name))
            }
        }
    }
}

impl FromStr for PublishedStatistic {
    type Err = Problem;

    fn from_str(text: &str) -> Result<PublishedStatistic, Problem> {
        if let Some((_, known)) = NAMED.iter().find(|(name, _)| *name == text) {
            return Ok(*known);
        }
        if let Some(limit) = text.strip_prefix("above ") {
            let limit: Nanos = limit.parse().map_err(|e| Problem::new(format!("{text:?}: {e}")))?;
            return Ok(PublishedStatistic::Above(limit));
        }
        if let Some(parts) = verdict::quantile_parts_of(text) {
            return Ok(PublishedStatistic::Latency(verdict::Statistic::Quantile(parts)));
        }
        let names = || NAMED.iter().map(|(name, _)| *name);
        let known: Vec<&str> = names().collect();
        let message =
            format!("{text:?} is not a statistic: write p99.9, 'above 1ms', {}", known.join(", "));
        Err(Problem { suggestion: suggest(text, names()), ..Problem::new(message) })
    }
}

/// A value with its unit, as it was written.
#[derive(Clone, Debug, PartialEq)]
pub struct Amount {
    /// As it was written.
    pub text: String,
    /// In the base of its unit, as [`PublishedUnit`] says.
    pub value: f64,
    /// What the suffix stands for.
    scale: f64,
}

impl Amount {
    /// Reads a value of this unit.
    ///
    /// # Errors
    ///
    /// What would be one.
    pub fn parse(text: &str, unit: PublishedUnit) -> Result<Amount, String> {
        let bad = || format!("{text:?} is not a valid value here: write {}", unit.example());
        let trimmed = text.trim();
        let mut suffixes = unit.suffixes().iter();
        let (number, scale) = suffixes
            .find_map(|(suffix, scale)| Some((trimmed.strip_suffix(suffix)?, *scale)))
            .ok_or_else(bad)?;
        let number: f64 = number.trim_end().replace(',', "").parse().map_err(|_| bad())?;
        match number.is_finite() && number >= 0.0 {
            true => Ok(Amount { text: trimmed.to_owned(), value: number * scale, scale }),
            false => Err(bad()),
        }
    }

    /// A latency in microseconds, or in nanoseconds where it is no whole number of them.
    fn latency(time: Nanos) -> Amount {
        let (scale, suffix) = if time.0.is_multiple_of(1_000) { (1_000, "us") } else { (1, "ns") };
        let text = format!("{}{suffix}", time.0 / scale);
        Amount { text, value: time.0 as f64, scale: scale as f64 }
    }

    /// Another value in the unit in which this one is written.
    #[must_use]
    pub fn alike(&self, value: f64) -> String {
        let number = self.text.trim_end_matches(|c: char| !c.is_ascii_digit());
        let suffix = &self.text[number.len()..];
        let value = value / self.scale;
        let decimals = match value.abs() {
            small if small >= 1_000.0 || small.fract() == 0.0 => 0,
            small if small >= 100.0 => 1,
            small if small >= 1.0 => 2,
            _ => 3,
        };
        let text = format!("{value:.decimals$}");
        let text = match text.contains('.') {
            true => text.trim_end_matches('0').trim_end_matches('.'),
            false => &text,
        };
        format!("{text}{suffix}")
    }
}

/// Statistics with their values, in the order of [`NAMED`].
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PublishedFigures(pub Vec<(PublishedStatistic, Amount)>);

impl Serialize for PublishedFigures {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.0.len()))?;
        for (statistic, amount) in &self.0 {
            map.serialize_entry(&statistic.to_string(), &amount.text)?;
        }
        map.end()
    }
}

impl<'de> Deserialize<'de> for PublishedFigures {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<PublishedFigures, D::Error> {
        deserializer.deserialize_map(FiguresVisitor)
    }
}

struct FiguresVisitor;

impl<'de> Visitor<'de> for FiguresVisitor {
    type Value = PublishedFigures;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("statistics with their values, such as { max = \"878us\", missed = 3 }")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<PublishedFigures, A::Error> {
        let mut figures = PublishedFigures::default();
        while let Some(Named(statistic)) = map.next_key()? {
            let amount = map.next_value_seed(Valued(statistic))?;
            figures.0.push((statistic, amount));
        }
        figures.0.sort_by_key(|(statistic, _)| statistic.rank());
        Ok(figures)
    }
}

struct Named(PublishedStatistic);

impl<'de> Deserialize<'de> for Named {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Named, D::Error> {
        let name = String::deserialize(deserializer)?;
        name.parse().map(Named).map_err(D::Error::custom)
    }
}

/// The value of a statistic: a text, or a number where there is no unit to write.
struct Valued(PublishedStatistic);

impl<'de> DeserializeSeed<'de> for Valued {
    type Value = Amount;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Amount, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl Visitor<'_> for Valued {
    type Value = Amount;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0.unit().example())
    }

    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Amount, E> {
        Amount::parse(text, self.0.unit()).map_err(|e| E::custom(format!("{}: {e}", self.0)))
    }

    fn visit_i64<E: serde::de::Error>(self, number: i64) -> Result<Amount, E> {
        self.visit_str(&number.to_string())
    }

    fn visit_u64<E: serde::de::Error>(self, number: u64) -> Result<Amount, E> {
        self.visit_str(&number.to_string())
    }

    fn visit_f64<E: serde::de::Error>(self, number: f64) -> Result<Amount, E> {
        self.visit_str(&number.to_string())
    }
}

/// The kind of kernel that a figure is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum KernelKind {
    /// Without `PREEMPT_RT`.
    Stock,
    /// With `PREEMPT_RT`.
    RealTime,
}

impl KernelKind {
    /// The kind of a kernel with this preemption model; none where that could not be told.
    #[must_use]
    pub const fn of(preemption: Preemption) -> Option<KernelKind> {
        match preemption {
            Preemption::Unknown => None,
            Preemption::RealTime => Some(KernelKind::RealTime),
            _ => Some(KernelKind::Stock),
        }
    }

    /// Its name for people.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            KernelKind::Stock => "stock kernel",
            KernelKind::RealTime => "real-time kernel",
        }
    }
}

/// Figures that a document prints of one subject under the same conditions.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, from = "PublishedText")]
pub struct Published {
    /// The phase, application, program, subject of a sweep or transfer; none is any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub subject: Option<String>,
    /// The kind of kernel; none is any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kernel: Option<KernelKind>,
    /// The policy; none is any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub policy: Option<Policy>,
    /// The load: `none` at rest, the whole line or its name. None is any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub load: Option<String>,
    /// The sampling thread; none is all of them together.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub thread: Option<u32>,
    /// What else was so, in words: our figures without this condition don't belong to it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub condition: Option<String>,
    #[serde(skip_serializing_if = "has_none")]
    pub figures: PublishedFigures,
    /// Why the document has no figure here.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub missing: String,
    /// Document and section, figure or page: enough to find it again.
    pub source: String,
    /// Why a run of ours shows another figure.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub why: String,
    /// Why it shows a larger one, where it does.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub why_larger: String,
    /// Why it shows a smaller one, where it does.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub why_smaller: String,
}

fn has_none(figures: &PublishedFigures) -> bool {
    figures.0.is_empty()
}

/// An entry as it is typed. Earlier versions wrote `real_time` and a single `max`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PublishedText {
    #[serde(alias = "phase")]
    subject: Option<String>,
    kernel: Option<KernelKind>,
    policy: Option<Policy>,
    load: Option<String>,
    thread: Option<u32>,
    condition: Option<String>,
    #[serde(default)]
    figures: PublishedFigures,
    #[serde(default)]
    missing: String,
    #[serde(default)]
    source: String,
    #[serde(default)]
    why: String,
    #[serde(default)]
    why_larger: String,
    #[serde(default)]
    why_smaller: String,
    real_time: Option<bool>,
    max: Option<Nanos>,
}

impl From<PublishedText> for Published {
    fn from(typed: PublishedText) -> Published {
        let kind = |real_time| if real_time { KernelKind::RealTime } else { KernelKind::Stock };
        let mut figures = typed.figures;
        if let Some(max) = typed.max {
            figures
                .0
                .push((PublishedStatistic::Latency(verdict::Statistic::Max), Amount::latency(max)));
        }
        Published {
            subject: typed.subject,
            kernel: typed.kernel.or(typed.real_time.map(kind)),
            policy: typed.policy,
            load: typed.load,
            thread: typed.thread,
            condition: typed.condition,
            figures,
            missing: typed.missing,
            source: typed.source,
            why: typed.why,
            why_larger: typed.why_larger,
            why_smaller: typed.why_smaller,
        }
    }
}

impl Published {
    /// Texts go to the terminal.
    pub(crate) fn make_printable(&mut self) {
        let amounts = self.figures.0.iter_mut().map(|(_, amount)| &mut amount.text);
        let reasons = [&mut self.why, &mut self.why_larger, &mut self.why_smaller];
        let texts = [&mut self.missing, &mut self.source];
        let names = [&mut self.subject, &mut self.load, &mut self.condition];
        for text in
            texts.into_iter().chain(reasons).chain(names.into_iter().flatten()).chain(amounts)
        {
            *text = printable(text).into_owned();
        }
    }

    /// Whether the entry is of this load: `none`, a line, or several joined by ` + `.
    #[must_use]
    pub fn fits_load(&self, load: &str) -> bool {
        let names = || load.split(" + ").map(|line| line.split(' ').next().unwrap_or_default());
        self.load.as_ref().is_none_or(|asked| asked == load || asked.split(" + ").eq(names()))
    }

    /// What is wrong with the entry, where its subject is one of `subjects`.
    pub(crate) fn problem<'a>(
        &self,
        noun: &str,
        subjects: impl Iterator<Item = &'a str> + Clone,
    ) -> Option<Problem> {
        if self.figures.0.is_empty() == self.missing.is_empty() {
            return Some(Problem::new(
                "a published entry needs figures, or the reason why they are missing: write figures = { max = \
                 \"878us\" } or missing = \"...\"",
            ));
        }
        if self.source.trim().is_empty() {
            return Some(Problem::new(
                "a published entry needs a source: name the document and the section, figure or page",
            ));
        }
        let name = self.subject.as_ref()?;
        if subjects.clone().any(|known| known == name) {
            return None;
        }
        let message = format!("a published figure names {noun} {name:?}, which does not exist");
        Some(Problem { suggestion: suggest(name, subjects), ..Problem::new(message) })
    }
}

/// The entries of a text with the offset where each begins, as far as the text can be read.
#[derive(Deserialize)]
struct Entries {
    #[serde(default)]
    published: Vec<Spanned<Published>>,
}

/// What is wrong with the entries of a text, each with its line. Their subjects are a `noun`, one of these. Of an entry
/// in which something could not be read (`known`), nothing else is said.
pub(crate) fn problems(
    text: &str,
    noun: &str,
    subjects: &[&str],
    known: &[Problem],
) -> Vec<Problem> {
    let entries = mistakes::read::<Entries>(text).0.map_or_else(Vec::new, |read| read.published);
    let starts = lines_of(text, entries.iter().map(|one| one.span().start));
    let is_read = |n: usize| {
        let end = starts.get(n + 1).copied().unwrap_or(usize::MAX);
        let lines = known.iter().filter_map(|problem| problem.line);
        !lines.into_iter().any(|line| (starts[n]..end).contains(&line))
    };
    let problem = |(n, entry): (usize, &Spanned<Published>)| {
        let problem = entry.as_ref().problem(noun, subjects.iter().copied())?;
        is_read(n).then_some(Problem { line: Some(starts[n]), ..problem })
    };
    entries.iter().enumerate().filter_map(problem).collect()
}

/// A table of published figures: a file for commands that have no plan.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PublishedTable {
    pub name: String,
    /// The document, one line.
    pub title: String,
    pub published: Vec<Published>,
}

#[cfg(test)]
mod tests;
