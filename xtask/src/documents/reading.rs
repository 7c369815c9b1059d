//! Ours of an item, from what its command brought, and the verdict.

use std::{fmt, fs, path::Path};

use serde_json::Value;

use super::items::{Item, Order, Pairs, Pointed, Unit};

/// Figures that differ by less than this factor agree: the machines are others.
const NEAR: f64 = 2.0;

/// What a command brought.
#[derive(Debug)]
pub(super) struct Brought {
    /// Why it failed; none when it ended as it should.
    pub(super) failure: Option<String>,
    pub(super) output: String,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    Works,
    /// It works, and the figure is another: why.
    Differs(String),
    /// It can't be done here: why.
    Board(String),
    /// Nothing came: why.
    Missing(String),
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Verdict::Works => f.write_str("works"),
            Verdict::Differs(why) => write!(f, "differs: {why}"),
            Verdict::Board(why) => write!(f, "needs a board: {why}"),
            Verdict::Missing(why) => write!(f, "missing: {why}"),
        }
    }
}

/// A row of the table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Row {
    pub(super) theirs: String,
    pub(super) ours: String,
    pub(super) verdict: Verdict,
}

/// The row of an item. `folder` is where its command ran.
pub(super) fn row(item: &Item, brought: Option<&Brought>, folder: &Path) -> Row {
    let without = |verdict| Row { theirs: item.theirs.clone(), ours: String::new(), verdict };
    if let Some(why) = &item.board {
        return without(Verdict::Board(why.clone()));
    }
    if let Some(why) = &item.lacks {
        return without(Verdict::Missing(why.clone()));
    }
    let Some(brought) = brought else {
        return without(Verdict::Missing("the command wasn't run".to_owned()));
    };
    if let Some(failure) = &brought.failure {
        return without(Verdict::Missing(failure.clone()));
    }
    read(item, &brought.output, folder).unwrap_or_else(|why| without(Verdict::Missing(why)))
}

fn read(item: &Item, output: &str, folder: &Path) -> Result<Row, String> {
    let works = |ours: String| Row { theirs: item.theirs.clone(), ours, verdict: Verdict::Works };
    if let Some(text) = &item.says {
        return says(text, output).map(works);
    }
    if let Some(file) = &item.file {
        return written(&folder.join(file)).map(|()| works(file.clone()));
    }
    let document: Value =
        serde_json::from_str(output).map_err(|error| format!("no JSON came: {error}"))?;
    match &item.pairs {
        Some(pairs) => paired(pairs, &item.why, &document).map(|row| row.excused(item)),
        None => pointed(item, &document),
    }
}

impl Row {
    /// Figures may be absent for a reason that the item expects: this machine lacks what a board has, or it was tried
    /// and there is none.
    fn excused(mut self, item: &Item) -> Row {
        if let Verdict::Missing(why) = &self.verdict {
            let is_for =
                |text: &Option<String>| text.as_ref().is_some_and(|text| why.contains(text));
            if is_for(&item.board_if) {
                self.verdict = Verdict::Board(why.clone());
            } else if is_for(&item.differs_if) {
                self.verdict = Verdict::Differs(why.clone());
            }
        }
        self
    }
}

/// The first line that contains a text, without the space around it and between its words.
fn says(text: &str, output: &str) -> Result<String, String> {
    let line = output.lines().find(|line| line.contains(text));
    let line = line.ok_or_else(|| format!("its output doesn't contain {text:?}"))?;
    Ok(line.split_whitespace().collect::<Vec<_>>().join(" "))
}

/// Whether a file is there and isn't empty.
fn written(path: &Path) -> Result<(), String> {
    let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    match fs::metadata(path) {
        Ok(found) if found.len() > 0 => Ok(()),
        Ok(_) => Err(format!("{name} is empty")),
        Err(error) => Err(format!("{name}: {error}")),
    }
}

/// The published figures that the item is about, beside ours.
fn paired(pairs: &Pairs, why: &str, document: &Value) -> Result<Row, String> {
    let mut all = Vec::new();
    published(document, &mut all);
    let fitting: Vec<&Value> = all.into_iter().filter(|pair| pairs.holds(pair)).collect();
    if fitting.is_empty() {
        return Err("no published figure belongs to it".to_owned());
    }
    let text = |pair: &Value, key: &str| pair[key].as_str().unwrap_or_default().to_owned();
    let named = |pair: &Value, figure: &str| match pair["statistic"].as_str() {
        Some(statistic) => format!("{} {figure}", statistic.replace('_', " ")),
        None => figure.to_owned(),
    };
    let theirs = fitting.iter().map(|pair| named(pair, &text(pair, "published_text")));
    let ours = fitting.iter().map(|pair| {
        // The item says which kernel it is of: one label needs no name.
        let label = match pair["ours"].as_array().map(Vec::as_slice) {
            Some([one]) => format!(" in {}", one["label"].as_str().unwrap_or_default()),
            _ => String::new(),
        };
        let figure = text(pair, "ours_text");
        named(pair, figure.strip_suffix(&label).unwrap_or(&figure))
    });
    let (theirs, ours) = (theirs.collect::<Vec<_>>(), ours.collect::<Vec<_>>());
    let lacking: Vec<&&Value> = fitting.iter().filter(|pair| pair["ours"].is_null()).collect();
    let verdict = if lacking.len() == fitting.len() {
        let why = text(lacking[0], "ours_text");
        Verdict::Missing(why.strip_prefix("none: ").unwrap_or(&why).to_owned())
    } else if let Some(pair) = lacking.first() {
        Verdict::Differs(named(pair, &text(pair, "ours_text")))
    } else {
        // The item's own reason goes before that of its table.
        let reasons = fitting.iter().map(|pair| text(pair, "why"));
        let why = std::iter::once(why.to_owned()).chain(reasons).find(|why| !why.is_empty());
        let figures = fitting.iter().filter_map(|pair| {
            let theirs = pair["published"].as_f64()?;
            Some((theirs, pair["ours"].as_array()?.as_slice()))
        });
        let ours = figures.flat_map(|(theirs, ours)| {
            let both = |one: &Value| [one["low"].as_f64(), one["high"].as_f64()];
            ours.iter().flat_map(both).flatten().map(move |ours| (theirs, ours)).collect::<Vec<_>>()
        });
        judged(ours, &why.unwrap_or_default())
    };
    Ok(Row { theirs: theirs.join(", "), ours: ours.join(", "), verdict })
}

/// All elements of all `published` arrays in a document.
fn published<'a>(document: &'a Value, found: &mut Vec<&'a Value>) {
    match document {
        Value::Object(fields) => {
            for (key, value) in fields {
                match value.as_array() {
                    Some(pairs) if key == "published" => found.extend(pairs),
                    _ => published(value, found),
                }
            }
        }
        Value::Array(values) => values.iter().for_each(|value| published(value, found)),
        _ => {}
    }
}

impl Pairs {
    fn holds(&self, pair: &Value) -> bool {
        let same = |wanted: &Option<String>, key: &str| {
            wanted.as_ref().is_none_or(|wanted| pair[key].as_str() == Some(wanted))
        };
        let statistic = pair["statistic"].as_str();
        let is_wanted = |one: &str| self.statistics.iter().any(|wanted| wanted == one);
        same(&self.subject, "subject")
            && same(&self.kernel, "kernel")
            && same(&self.policy, "policy")
            && same(&self.load, "load")
            && pair["condition"].as_str() == self.condition.as_deref()
            && pair["thread"].as_u64() == self.thread
            && (self.statistics.is_empty() || statistic.is_some_and(is_wanted))
    }
}

/// The verdict over figures and ours: how far ours is off, where it is.
fn judged(all: impl Iterator<Item = (f64, f64)>, why: &str) -> Verdict {
    let because = match why {
        "" => String::new(),
        why => format!("; {why}"),
    };
    let (mut low, mut high) = (f64::INFINITY, f64::NEG_INFINITY);
    for (theirs, ours) in all {
        // Nothing is a multiple of 0.
        if theirs <= 0.0 && ours > theirs {
            return Verdict::Differs(format!("ours isn't {theirs}{because}"));
        }
        let ratio = if theirs > 0.0 { ours / theirs } else { 1.0 };
        (low, high) = (low.min(ratio), high.max(ratio));
    }
    if low > high || (low > 1.0 / NEAR && high < NEAR) {
        return Verdict::Works;
    }
    let of = match (ratio(low), ratio(high)) {
        (low, high) if low == high => low,
        (low, high) => format!("{low} to {high}"),
    };
    Verdict::Differs(format!("{of} of theirs{because}"))
}

/// Two digits that count, or more.
fn ratio(value: f64) -> String {
    match value {
        large if large >= 10.0 => format!("{large:.0}"),
        small if small > 0.0 && small < 0.1 => {
            format!("{small:.0$}", (1.0 - small.log10().floor()) as usize)
        }
        value => format!("{value:.2}"),
    }
}

fn pointed(item: &Item, document: &Value) -> Result<Row, String> {
    let mut found = Vec::new();
    for value in &item.values {
        let one = at(document, &value.at).filter(|one| !one.is_null());
        found.push(one.ok_or_else(|| format!("{} isn't in its document", value.name))?);
    }
    let shown = |(value, found): (&Pointed, &&Value)| shown(value, found);
    let ours: Vec<String> = item.values.iter().zip(&found).map(shown).collect();
    let numbers: Vec<f64> = found.iter().filter_map(|one| one.as_f64()).collect();
    let pairs = item.values.iter().zip(&found);
    let pairs = pairs.filter_map(|(value, found)| Some((value.theirs?, found.as_f64()?)));
    let verdict = match item.order {
        Some(order) if !order.holds(&numbers, found.len()) => {
            Verdict::Differs(format!("the values aren't {}", order.name()))
        }
        _ => judged(pairs, &item.why),
    };
    Ok(Row { theirs: item.theirs.clone(), ours: ours.join(", "), verdict })
}

impl Order {
    fn holds(self, numbers: &[f64], count: usize) -> bool {
        let mut steps = numbers.windows(2).map(|pair| pair[1].total_cmp(&pair[0]));
        let wanted = match self {
            Order::Rising => std::cmp::Ordering::Greater,
            Order::Falling => std::cmp::Ordering::Less,
            Order::Same => std::cmp::Ordering::Equal,
        };
        numbers.len() == count && steps.all(|step| step == wanted)
    }

    fn name(self) -> &'static str {
        match self {
            Order::Rising => "rising",
            Order::Falling => "falling",
            Order::Same => "the same",
        }
    }
}

/// A value of a document: keys and indexes between slashes, and `KEY=TEXT` for an object of an array.
fn at<'a>(document: &'a Value, path: &str) -> Option<&'a Value> {
    path.split('/').filter(|part| !part.is_empty()).try_fold(document, |value, part| match value {
        Value::Array(all) => match part.split_once('=') {
            Some((key, text)) => all.iter().find(|one| one[key].as_str() == Some(text)),
            None => all.get(part.parse::<usize>().ok()?),
        },
        value => value.get(part),
    })
}

fn shown(value: &Pointed, found: &Value) -> String {
    let figure = match (value.unit, found) {
        (_, Value::String(text)) => text.clone(),
        (Unit::Ns, Value::Number(_)) => time(found.as_f64().unwrap_or_default()),
        (Unit::Hz, Value::Number(_)) => frequency(found.as_f64().unwrap_or_default()),
        (Unit::Share, Value::Number(_)) => {
            format!("{:.2} %", found.as_f64().unwrap_or_default() * 100.0)
        }
        // A float is written with every digit that it holds, and one decimal tells enough.
        (_, Value::Number(number)) if number.is_f64() => {
            let number = found.as_f64().unwrap_or_default();
            let decimals = usize::from(number.abs() < 1e4);
            format!("{number:.decimals$}")
        }
        (_, other) => other.to_string(),
    };
    match value.name.as_str() {
        "" => figure,
        name => format!("{name} {figure}"),
    }
}

fn time(ns: f64) -> String {
    match ns.abs() {
        small if small < 1e3 => format!("{ns:.0} ns"),
        middle if middle < 1e6 => format!("{:.1} us", ns / 1e3),
        large if large < 1e9 => format!("{:.1} ms", ns / 1e6),
        _ => format!("{:.2} s", ns / 1e9),
    }
}

fn frequency(hz: f64) -> String {
    match hz {
        small if small < 1e3 => format!("{small:.0} Hz"),
        middle if middle < 1e6 => format!("{:.2} kHz", middle / 1e3),
        large => format!("{:.2} MHz", large / 1e6),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(toml: &str, output: &str) -> Row {
        let item: Item = toml::from_str(toml).expect("an item");
        let brought = Brought { failure: None, output: output.to_owned() };
        row(&item, Some(&brought), Path::new("/"))
    }

    /// Pairs as a verb writes them: in a list of guests, with two figures of one subject and one of a thread.
    const PAIRS: &str = r#"{"runs": [{"published": [
        {"subject": "idle", "kernel": "stock", "statistic": "max", "published": 878000.0,
         "published_text": "878us", "ours": [{"label": "deb", "low": 600000.0, "high": 700000.0}],
         "ours_text": "600us to 700us in deb", "why": "another machine"},
        {"subject": "idle", "kernel": "stock", "statistic": "min", "published": 6000.0,
         "published_text": "6us", "ours": null, "ours_text": "none: no stock kernel ran"},
        {"subject": "idle", "kernel": "stock", "statistic": "max", "thread": 1, "published": 1000.0,
         "published_text": "1us", "ours": [{"label": "", "low": 40.0, "high": 40.0}],
         "ours_text": "0.04us", "why": "another machine"},
        {"subject": "late", "statistic": "above 1ms", "published": 0.0, "published_text": "0",
         "ours": [{"label": "", "low": 3.0, "high": 3.0}], "ours_text": "3", "why": ""}]}]}"#;

    #[test]
    fn pairs_are_found_wherever_they_are_and_judged_by_their_ratio() {
        let near = of("item = 'x'\npairs = { subject = 'idle', statistics = ['max'] }", PAIRS);
        assert_eq!((near.theirs.as_str(), near.ours.as_str()), ("max 878us", "max 600us to 700us"));
        assert_eq!(near.verdict, Verdict::Works);
        let both = of("item = 'x'\npairs = { subject = 'idle' }", PAIRS);
        assert_eq!(both.verdict.to_string(), "differs: min none: no stock kernel ran");
        let thread = of("item = 'x'\npairs = { thread = 1 }", PAIRS);
        assert_eq!(thread.verdict.to_string(), "differs: 0.040 of theirs; another machine");
        let zero = of("item = 'x'\npairs = { subject = 'late' }", PAIRS);
        assert_eq!(zero.verdict.to_string(), "differs: ours isn't 0");
        let lacking = of("item = 'x'\npairs = { statistics = ['min'] }", PAIRS);
        assert_eq!(lacking.verdict.to_string(), "missing: no stock kernel ran");
        let board = "item = 'x'\nboard_if = 'no stock kernel'\npairs = { statistics = ['min'] }";
        assert_eq!(of(board, PAIRS).verdict.to_string(), "needs a board: no stock kernel ran");
        let tried = "item = 'x'\ndiffers_if = 'no stock'\npairs = { statistics = ['min'] }";
        assert_eq!(of(tried, PAIRS).verdict.to_string(), "differs: no stock kernel ran");
        let own = "item = 'x'\nwhy = 'a guest'\npairs = { thread = 1 }";
        assert_eq!(of(own, PAIRS).verdict.to_string(), "differs: 0.040 of theirs; a guest");
        let none = of("item = 'x'\npairs = { subject = 'busy' }", PAIRS);
        assert_eq!(none.verdict.to_string(), "missing: no published figure belongs to it");
    }

    #[test]
    fn values_are_pointed_at_and_their_order_counts() {
        let document = r#"{"loops": [{"name": "delay", "drift": 2500000.0},
            {"name": "until", "drift": 12.0}], "ok": true, "hz": 125000.0,
            "rate": 2075.7126762788475}"#;
        let order = |order: &str| {
            let toml = format!(
                "item = 'x'\norder = '{order}'\n[[values]]\nname = 'delay'\nunit = 'ns'\n\
                 at = '/loops/name=delay/drift'\n[[values]]\nname = 'until'\nunit = 'ns'\nat = '/loops/1/drift'"
            );
            of(&toml, document)
        };
        assert_eq!(order("falling").ours, "delay 2.5 ms, until 12 ns");
        assert_eq!(order("falling").verdict, Verdict::Works);
        assert_eq!(order("rising").verdict.to_string(), "differs: the values aren't rising");
        let value = |more: &str| of(&format!("item = 'x'\n[[values]]\n{more}"), document);
        assert_eq!(value("name = ''\nat = '/ok'").ours, "true");
        let far = value("name = 'f'\nunit = 'hz'\nat = '/hz'\ntheirs = 1000.0");
        assert_eq!(far.ours, "f 125.00 kHz");
        assert_eq!(far.verdict.to_string(), "differs: 125 of theirs");
        assert_eq!(ratio(0.000_357), "0.00036");
        // A figure of no unit isn't printed with every digit of a float.
        assert_eq!(value("name = 'r'\nat = '/rate'").ours, "r 2075.7");
        let gone = value("name = 'g'\nat = '/loops/name=other/drift'");
        assert_eq!(gone.verdict.to_string(), "missing: g isn't in its document");
    }

    #[test]
    fn a_line_a_file_and_what_failed() {
        let line = of("item = 'x'\nsays = 'T: 1'\ntheirs = 'T: 1 Max: 7'", "a\n  T: 1   Max:  3\n");
        assert_eq!((line.theirs.as_str(), line.ours.as_str()), ("T: 1 Max: 7", "T: 1 Max: 3"));
        assert!(matches!(of("item = 'x'\nsays = 'T: 2'", "T: 1").verdict, Verdict::Missing(_)));
        let folder = tempfile::tempdir().expect("a folder");
        fs::write(folder.path().join("empty.svg"), "").expect("written");
        fs::write(folder.path().join("a.svg"), "<svg/>").expect("written");
        let brought = |failure: Option<&str>| Brought {
            failure: failure.map(str::to_owned),
            output: String::new(),
        };
        for (file, works) in [("a.svg", true), ("empty.svg", false), ("b.svg", false)] {
            let item = Item { file: Some(file.to_owned()), ..Item::default() };
            let row = row(&item, Some(&brought(None)), folder.path());
            assert_eq!(row.verdict == Verdict::Works, works, "{file}: {row:?}");
        }
        let item = Item { file: Some("a.svg".to_owned()), ..Item::default() };
        let failed = row(&item, Some(&brought(Some("exit code 64"))), folder.path());
        assert_eq!(failed.verdict.to_string(), "missing: exit code 64");
        let board = Item { board: Some("two machines".to_owned()), ..Item::default() };
        let board = row(&board, None, folder.path()).verdict.to_string();
        assert_eq!(board, "needs a board: two machines");
    }
}
