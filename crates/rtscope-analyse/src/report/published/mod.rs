//! Published figures beside ours: for each published figure the one of ours that belongs to it, or why there is none.
//!
//! A report says what it has as [`Ours`]: figures, and under which conditions they came about. [`beside`] pairs them with
//! the published ones. A page includes `template/published.html`, a terminal shows [`text`], a document holds
//! [`document`].

mod cells;

use std::{cmp::Ordering, collections::BTreeMap, fmt::Write as _};

use rtscope_model::{
    published::{Amount, KernelKind, Published, PublishedStatistic},
    schedule::Policy,
    verdict,
};
use serde_json::{Value, json};

pub use self::cells::{of_cells, of_run};
use crate::number::{counted, grouped};

/// Two figures that differ by no more than this part are alike.
const ALIKE: f64 = 0.1;

/// Figures of ours that published ones may be set beside.
#[derive(Clone, Debug, Default)]
pub struct Ours {
    /// The phase, application, program, subject of a sweep or transfer.
    pub subject: String,
    /// Whose figures they are where there are several, for example a kernel under test; may be empty.
    pub label: String,
    /// The kind of kernel, where it is known.
    pub kernel: Option<KernelKind>,
    /// The policy, where there is one.
    pub policy: Option<Policy>,
    /// The load: `none` at rest.
    pub load: String,
    /// The sampling thread; none is all of them together.
    pub thread: Option<u32>,
    /// What else was so, in the words of [`Published::condition`].
    pub condition: Option<String>,
    /// The figures, in the base of their unit, or why there is none.
    pub figures: Vec<(PublishedStatistic, Result<f64, String>)>,
}

/// Whose figures a record without an environment of its own holds.
#[derive(Clone, Copy, Debug, Default)]
pub struct Whose<'a> {
    /// As [`Ours::label`].
    pub label: &'a str,
    /// As [`Ours::kernel`].
    pub kernel: Option<KernelKind>,
}

impl Whose<'_> {
    /// Figures of theirs without a policy, a load or a thread.
    #[must_use]
    pub fn ours(self, subject: &str) -> Ours {
        Ours {
            subject: subject.to_owned(),
            label: self.label.to_owned(),
            kernel: self.kernel,
            load: "none".to_owned(),
            ..Ours::default()
        }
    }
}

/// What one of ours shows beside a published figure, over all of the same label.
#[derive(Clone, Debug, PartialEq)]
struct Seen {
    label: String,
    low: f64,
    high: f64,
}

/// A published figure and ours.
#[derive(Clone, Debug, PartialEq)]
pub struct PublishedBesideOurs {
    published: Published,
    statistic: Option<PublishedStatistic>,
    amount: Option<Amount>,
    seen: Result<Vec<Seen>, String>,
    /// How many wake-ups theirs is of, and ours where it is of the fewest; none where either isn't known.
    recorded: Option<(f64, f64)>,
}

/// Pairs every published figure with ours.
#[must_use]
pub fn beside(published: &[Published], ours: &[Ours]) -> Vec<PublishedBesideOurs> {
    published.iter().flat_map(|entry| of_entry(entry, ours)).collect()
}

/// Pairs the figures of a table with ours. A table serves several verbs: entries with other statistics than ours are left out.
#[must_use]
pub fn of_table(published: &[Published], ours: &[Ours]) -> Vec<PublishedBesideOurs> {
    let is_measured = |statistic: &PublishedStatistic| {
        ours.iter().flat_map(|one| &one.figures).any(|(known, _)| known == statistic)
    };
    let is_ours = |entry: &&Published| entry.figures.0.iter().any(|(one, _)| is_measured(one));
    published.iter().filter(is_ours).flat_map(|entry| of_entry(entry, ours)).collect()
}

/// The statistics that the entries ask for, each once: what a report computes of its figures.
#[must_use]
pub fn statistics(published: &[Published]) -> Vec<PublishedStatistic> {
    let mut all: Vec<PublishedStatistic> = Vec::new();
    for (statistic, _) in published.iter().flat_map(|entry| &entry.figures.0) {
        if !all.contains(statistic) {
            all.push(*statistic);
        }
    }
    all
}

fn of_entry(entry: &Published, ours: &[Ours]) -> Vec<PublishedBesideOurs> {
    let fitting = fitting(entry, ours);
    let one = |statistic: Option<PublishedStatistic>, amount: Option<Amount>| {
        let seen = match (&fitting, statistic) {
            (Err(why), _) => Err(why.clone()),
            (Ok(_), None) => Ok(Vec::new()),
            (Ok(fitting), Some(statistic)) => seen(statistic, fitting),
        };
        PublishedBesideOurs {
            published: entry.clone(),
            statistic,
            amount,
            seen,
            recorded: recorded(entry, &fitting),
        }
    };
    if entry.figures.0.is_empty() {
        return vec![one(None, None)];
    }
    entry.figures.0.iter().map(|(s, amount)| one(Some(*s), Some(amount.clone()))).collect()
}

/// How many wake-ups the entry is of, and the fewest of ours.
fn recorded(entry: &Published, fitting: &Result<Vec<&Ours>, String>) -> Option<(f64, f64)> {
    let (_, theirs) =
        entry.figures.0.iter().find(|(one, _)| *one == PublishedStatistic::Recorded)?;
    let ours = seen(PublishedStatistic::Recorded, fitting.as_ref().ok()?).ok()?;
    Some((theirs.value, ours.iter().map(|one| one.low).reduce(f64::min)?))
}

/// A condition of an entry: whether figures of ours are under it, and why none of them is.
type Condition<'a> = (Box<dyn Fn(&Ours) -> bool + 'a>, String);

/// Those of ours that an entry is of.
fn fitting<'a>(entry: &Published, ours: &'a [Ours]) -> Result<Vec<&'a Ours>, String> {
    let subject = entry.subject.as_deref().unwrap_or_default();
    let kernel = entry.kernel.map_or("", KernelKind::name);
    let policy = entry.policy.map_or("", Policy::word);
    let load = entry.load.as_deref().unwrap_or_default();
    let condition = entry.condition.as_deref().unwrap_or_default();
    let conditions: [Condition<'_>; 6] = [
        (
            Box::new(|one| entry.subject.is_none() || one.subject == subject),
            format!("{subject} was not measured"),
        ),
        (
            Box::new(|one| entry.kernel.is_none() || one.kernel == entry.kernel),
            format!("no {kernel} ran"),
        ),
        (
            Box::new(|one| entry.policy.is_none() || one.policy == entry.policy),
            format!("not measured under policy {policy}"),
        ),
        (Box::new(|one| entry.fits_load(&one.load)), format!("not measured under load {load}")),
        (
            Box::new(|one| one.condition == entry.condition),
            format!("not measured with this condition: {condition}"),
        ),
        (
            Box::new(|one| one.thread == entry.thread),
            entry.thread.map_or_else(String::new, |thread| format!("there was no thread {thread}")),
        ),
    ];
    let mut left: Vec<&Ours> = ours.iter().collect();
    for (holds, why) in conditions {
        let kinds_unknown = left.iter().all(|one| one.kernel.is_none());
        left.retain(|one| holds(one));
        if left.is_empty() {
            let is_kernel = why.ends_with(" ran") && kinds_unknown && !ours.is_empty();
            return Err(match is_kernel {
                true => "whether our kernel is a real-time one is not known".to_owned(),
                false => why,
            });
        }
    }
    Ok(left)
}

/// A statistic of ours: the range for each label.
fn seen(statistic: PublishedStatistic, ours: &[&Ours]) -> Result<Vec<Seen>, String> {
    let (mut all, mut why): (Vec<Seen>, _) = (Vec::new(), None);
    for one in ours {
        let figure = one.figures.iter().find(|(known, _)| *known == statistic);
        let value = match figure.map(|(_, value)| value) {
            Some(Ok(value)) => *value,
            Some(Err(reason)) => {
                why.get_or_insert_with(|| reason.clone());
                continue;
            }
            None => continue,
        };
        match all.iter_mut().find(|known| known.label == one.label) {
            Some(known) => {
                (known.low, known.high) = (known.low.min(value), known.high.max(value));
            }
            None => all.push(Seen { label: one.label.clone(), low: value, high: value }),
        }
    }
    let why = why.unwrap_or_else(|| format!("{statistic} is not measured here"));
    if all.is_empty() { Err(why) } else { Ok(all) }
}

impl PublishedBesideOurs {
    /// What the figure is of, in words.
    #[must_use]
    pub fn name(&self) -> String {
        let one = &self.published;
        let load = one.load.as_ref().map(|load| match load.as_str() {
            "none" => "at rest".to_owned(),
            load => format!("under {load}"),
        });
        let parts = [
            one.subject.clone(),
            one.kernel.map(|kind| kind.name().to_owned()),
            one.policy.map(|policy| policy.word().to_owned()),
            load,
            one.condition.clone(),
            one.thread.map(|thread| format!("thread {thread}")),
            self.statistic.map(|statistic| statistic.to_string().replace('_', " ")),
        ];
        parts.into_iter().flatten().collect::<Vec<_>>().join(", ")
    }

    /// The published figure, or why there is none.
    #[must_use]
    pub fn theirs(&self) -> String {
        match &self.amount {
            Some(amount) => amount.text.clone(),
            None => format!("none: {}", self.published.missing),
        }
    }

    /// Ours in the same unit, or why there is none.
    #[must_use]
    pub fn ours(&self) -> String {
        match (&self.seen, &self.amount) {
            (Err(why), _) => format!("none: {why}"),
            (Ok(_), None) => "measured: see the figures".to_owned(),
            (Ok(all), Some(amount)) => {
                let one = |seen: &Seen| {
                    let (low, high) = (amount.alike(seen.low), amount.alike(seen.high));
                    let range = if low == high { low } else { format!("{low} to {high}") };
                    match seen.label.as_str() {
                        "" => range,
                        label => format!("{range} in {label}"),
                    }
                };
                all.iter().map(one).collect::<Vec<_>>().join("; ")
            }
        }
    }

    /// Ours over the published figure, one ratio for each label; empty where there is none.
    #[must_use]
    pub fn ratio(&self) -> String {
        let (Ok(all), Some(amount)) = (&self.seen, &self.amount) else { return String::new() };
        if amount.value <= 0.0 {
            return String::new();
        }
        let one = |value: f64| match value / amount.value {
            large if large >= 100.0 => format!("{large:.0}"),
            small if small < 0.0995 => format!("{small:.3}"),
            ratio => format!("{ratio:.2}"),
        };
        let range = |seen: &Seen| match (one(seen.low), one(seen.high)) {
            (low, high) if low == high => low,
            (low, high) => format!("{low} to {high}"),
        };
        all.iter().map(range).collect::<Vec<_>>().join("; ")
    }

    /// Who published it.
    #[must_use]
    pub fn source(&self) -> &str {
        &self.published.source
    }

    /// Why ours differs: what the two show by themselves, the entry's reason for this direction, and its reason for any
    /// difference.
    #[must_use]
    pub fn why(&self) -> String {
        let side = self.side();
        let one = &self.published;
        let reason = match side {
            Ordering::Greater => &one.why_larger,
            Ordering::Less => &one.why_smaller,
            Ordering::Equal => "",
        };
        let parts = [self.counts(side), reason.to_owned(), one.why.clone()];
        let parts: Vec<String> = parts.into_iter().filter(|part| !part.is_empty()).collect();
        parts.join("; ")
    }

    /// Whether all of ours are larger or smaller than theirs by more than [`ALIKE`].
    fn side(&self) -> Ordering {
        let (Ok(all), Some(amount)) = (&self.seen, &self.amount) else { return Ordering::Equal };
        let theirs = amount.value;
        match all.as_slice() {
            [] => Ordering::Equal,
            all if all.iter().all(|one| one.low > theirs * (1.0 + ALIKE)) => Ordering::Greater,
            all if all.iter().all(|one| one.high < theirs * (1.0 - ALIKE)) => Ordering::Less,
            _ => Ordering::Equal,
        }
    }

    /// What the numbers of wake-ups say of two maxima.
    fn counts(&self, side: Ordering) -> String {
        let is_max = self.statistic == Some(PublishedStatistic::Latency(verdict::Statistic::Max));
        let Some((theirs, ours)) = self.recorded.filter(|_| is_max) else { return String::new() };
        let [of_theirs, of_ours] = [theirs, ours].map(|count| grouped(count as u64));
        match side {
            Ordering::Less if ours * 2.0 < theirs => format!(
                "ours is the maximum of {of_ours} wake-ups, theirs of {of_theirs}: a longer run finds larger ones"
            ),
            Ordering::Greater if ours * 2.0 < theirs => {
                format!("ours was reached within {of_ours} wake-ups, theirs within {of_theirs}")
            }
            _ => String::new(),
        }
    }
}

/// All pairs as a document.
#[must_use]
pub fn document(all: &[PublishedBesideOurs]) -> Value {
    let one = |pair: &PublishedBesideOurs| {
        let published = &pair.published;
        let ours = pair.seen.as_ref().ok();
        let ours = ours.map(|all| {
            let one =
                |seen: &Seen| json!({"label": seen.label, "low": seen.low, "high": seen.high});
            all.iter().map(one).collect::<Vec<_>>()
        });
        json!({
            "subject": published.subject,
            "kernel": published.kernel,
            "policy": published.policy,
            "load": published.load,
            "thread": published.thread,
            "condition": published.condition,
            "statistic": pair.statistic.map(|statistic| statistic.to_string()),
            "published": pair.amount.as_ref().map(|amount| amount.value),
            "published_text": pair.theirs(),
            "ours": ours,
            "ours_text": pair.ours(),
            "source": published.source,
            "why": pair.why(),
        })
    };
    all.iter().map(one).collect::<Vec<_>>().into()
}

/// The pairs for a terminal: a line for each figure that ours stands beside, and what the others lack. Empty without a
/// published figure.
#[must_use]
pub fn text(all: &[PublishedBesideOurs]) -> String {
    if all.is_empty() {
        return String::new();
    }
    // Those of single threads are many, and say little more.
    let (threads, whole): (Vec<&PublishedBesideOurs>, Vec<&PublishedBesideOurs>) =
        all.iter().partition(|pair| pair.published.thread.is_some());
    let (paired, unpaired): (Vec<&PublishedBesideOurs>, Vec<&PublishedBesideOurs>) =
        whole.into_iter().partition(|pair| pair.seen.is_ok() && pair.amount.is_some());
    let mut text = String::new();
    if !paired.is_empty() {
        text += "Published figures and ours (in parentheses: ours / published)\n";
        let width = |cells: &dyn Fn(&PublishedBesideOurs) -> String| {
            paired.iter().map(|pair| cells(pair).chars().count()).max().unwrap_or(0)
        };
        let (names, theirs) =
            (width(&PublishedBesideOurs::name), width(&PublishedBesideOurs::theirs));
        for pair in &paired {
            let ratio = match pair.ratio() {
                none if none.is_empty() => none,
                ratio => format!(" ({ratio})"),
            };
            let _ = writeln!(
                text,
                "  {:names$}  {:>theirs$}  {}{ratio}",
                pair.name(),
                pair.theirs(),
                pair.ours()
            );
        }
        let mut sources: Vec<&str> = Vec::new();
        for pair in paired {
            if !sources.contains(&pair.source()) {
                sources.push(pair.source());
            }
        }
        text.extend(sources.iter().map(|source| format!("  source: {source}\n")));
    }
    let mut lacks: BTreeMap<String, u64> = BTreeMap::new();
    for pair in unpaired {
        let why = match (&pair.seen, &pair.amount) {
            (Err(why), _) => why.clone(),
            (Ok(_), _) => format!("the document has no figure: {}", pair.published.missing),
        };
        *lacks.entry(why).or_default() += 1;
    }
    for (why, count) in lacks {
        let _ =
            writeln!(text, "  {} without one of ours: {why}", counted(count, "published figure"));
    }
    if !threads.is_empty() {
        let count = counted(threads.len() as u64, "published figure");
        let _ = writeln!(text, "  {count} of single threads: see the report");
    }
    text
}

#[cfg(test)]
mod tests {
    use rtscope_model::published::PublishedTable;

    use super::*;

    const TABLE: &str = r#"
name = "x"
title = "x"
[[published]]
subject = "idle"
kernel = "stock"
figures = { max = "878us", mean = "18us" }
source = "a lab, figure 2"
why = "<another> machine"
[[published]]
subject = "idle"
kernel = "real-time"
figures = { max = "72us" }
source = "a lab, figure 25"
[[published]]
policy = "rr"
load = "message"
thread = 1
figures = { max = "175us" }
source = "a study, figure 7"
[[published]]
policy = "other"
missing = "the study leaves it out"
source = "a study, 1.3"
[[published]]
subject = "idle"
condition = "interrupts are paced"
figures = { max = "9us" }
source = "a training"
"#;

    fn table() -> Vec<Published> {
        PublishedTable::parse("x", TABLE).expect("a table").published
    }

    fn max(value: f64) -> Vec<(PublishedStatistic, Result<f64, String>)> {
        vec![("max".parse().expect("a statistic"), Ok(value))]
    }

    fn ours() -> Vec<Ours> {
        let idle = |label: &str, value| Ours {
            subject: "idle".to_owned(),
            label: label.to_owned(),
            kernel: Some(KernelKind::Stock),
            policy: Some(Policy::Fifo),
            load: "none".to_owned(),
            figures: max(value),
            ..Ours::default()
        };
        let rr = Ours {
            subject: "rr, message".to_owned(),
            policy: Some(Policy::Rr),
            load: "message groups=10".to_owned(),
            thread: Some(1),
            ..idle("", 350_000.0)
        };
        vec![idle("debian", 439_000.0), idle("debian", 878_000.0), idle("own", 8_780.0), rr]
    }

    #[test]
    fn each_published_figure_stands_beside_ours_or_has_a_reason() {
        let all = beside(&table(), &ours());
        let rows: Vec<(String, String, String)> =
            all.iter().map(|one| (one.name(), one.theirs(), one.ours())).collect();
        let row = |a: &str, b: &str, c: &str| (a.to_owned(), b.to_owned(), c.to_owned());
        assert_eq!(
            rows,
            [
                row("idle, stock kernel, mean", "18us", "none: mean is not measured here"),
                row("idle, stock kernel, max", "878us", "439us to 878us in debian; 8.78us in own"),
                row("idle, real-time kernel, max", "72us", "none: no real-time kernel ran"),
                row("rr, under message, thread 1, max", "175us", "350us"),
                row(
                    "other",
                    "none: the study leaves it out",
                    "none: not measured under policy other"
                ),
                row(
                    "idle, interrupts are paced, max",
                    "9us",
                    "none: not measured with this condition: interrupts are paced"
                ),
            ]
        );
        assert_eq!(
            (all[1].ratio().as_str(), all[3].ratio().as_str()),
            ("0.50 to 1.00; 0.010", "2.00")
        );
    }

    #[test]
    fn the_reason_follows_from_the_pair() {
        let table = "name = 'x'\ntitle = 'x'\n[[published]]\nfigures = { max = '1019us', recorded = 600000 }\n\
                     source = 'a training'\nwhy = 'another machine'\nwhy_larger = 'one CPU'\n\
                     why_smaller = 'no device'\n";
        let table = PublishedTable::parse("x", table).expect("a table").published;
        let why = |max_ns: f64, recorded: f64| {
            let mut figures = max(max_ns);
            figures.push((PublishedStatistic::Recorded, Ok(recorded)));
            beside(&table, &[Ours { figures, ..Ours::default() }])[0].why()
        };
        assert_eq!(
            why(23_514_000.0, 3_036.0),
            "ours was reached within 3,036 wake-ups, theirs within 600,000; one CPU; another machine"
        );
        assert_eq!(
            why(24_000.0, 3_036.0),
            "ours is the maximum of 3,036 wake-ups, theirs of 600,000: a longer run finds larger ones; \
             no device; another machine"
        );
        assert_eq!(why(24_000.0, 599_000.0), "no device; another machine");
        assert_eq!(why(1_000_000.0, 3_036.0), "another machine", "they are alike");
    }

    #[test]
    fn a_kind_of_kernel_that_is_not_known_is_said() {
        let unknown: Vec<Ours> =
            ours().into_iter().map(|one| Ours { kernel: None, ..one }).collect();
        let all = beside(&table(), &unknown);
        assert_eq!(all[1].ours(), "none: whether our kernel is a real-time one is not known");
        assert_eq!(all[3].ours(), "350us", "the entry says nothing of the kernel");
    }

    #[test]
    fn a_terminal_and_a_document_hold_the_same() {
        let all = beside(&table(), &ours());
        let text = text(&all);
        assert!(text.contains("878us  439us to 878us in debian; 8.78us in own (0.50 to"), "{text}");
        assert!(text.contains("source: a lab, figure 2\n"), "{text}");
        assert!(text.contains("1 published figure of single threads"), "{text}");
        assert!(
            text.contains("1 published figure without one of ours: no real-time kernel ran\n"),
            "{text}"
        );
        let document = document(&all);
        assert_eq!(document[1]["published"], 878_000.0);
        assert_eq!(document[1]["ours"][0]["low"], 439_000.0);
        assert!(document[2]["ours"].is_null());
        assert_eq!(document[2]["ours_text"], "none: no real-time kernel ran");
        assert!(super::text(&[]).is_empty());
        assert_eq!(of_table(&table(), &ours()).len(), 5, "an entry without a figure is of no verb");
        assert_eq!(of_table(&table(), &[Whose::default().ours("idle")]), []);
    }
}
