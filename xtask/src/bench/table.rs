//! The lines of the bench: two tools side by side, or one figure against a limit.

use std::fmt::Write as _;

use serde_json::{Value, json};

/// What a line must reach.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Goal {
    AtMost(f64),
    AtLeast(f64),
    /// Nothing: the figure explains others.
    None,
}

/// One figure of ours in each round, beside the other tool's where it has one.
#[derive(Clone, Debug)]
pub(super) struct Line {
    pub(super) what: String,
    pub(super) unit: &'static str,
    pub(super) ours: Vec<f64>,
    /// In the same rounds; empty when there is nothing to compare with.
    pub(super) theirs: Vec<f64>,
    /// Of the ratio where there is one, else of the figure.
    pub(super) goal: Goal,
}

/// What became of a goal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    /// The median meets it.
    Met,
    /// The median doesn't, but the rounds scatter too much to tell it from the limit.
    Level,
    /// The median doesn't, and the interval of the median excludes the limit.
    NotMet,
}

impl Outcome {
    const fn word(self) -> &'static str {
        match self {
            Outcome::Met => "met",
            Outcome::Level => "level",
            Outcome::NotMet => "not met",
        }
    }
}

/// Smallest, median and largest.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Spread {
    pub(super) min: f64,
    pub(super) median: f64,
    pub(super) max: f64,
}

impl Spread {
    /// Of some values; zeroes of none.
    pub(super) fn of(values: &[f64]) -> Spread {
        let mut sorted = values.to_vec();
        sorted.sort_by(f64::total_cmp);
        let at = |i: usize| sorted.get(i).copied().unwrap_or(0.0);
        let n = sorted.len();
        let median = (at(n.saturating_sub(1) / 2) + at(n / 2)) / 2.0;
        Spread { min: at(0), median, max: at(n.saturating_sub(1)) }
    }
}

impl Line {
    /// Ours divided by theirs, round by round; empty without theirs.
    fn ratios(&self) -> Vec<f64> {
        self.ours.iter().zip(&self.theirs).map(|(a, b)| a / b).collect()
    }

    /// The spread of ours divided by theirs; none without theirs.
    pub(super) fn ratio(&self) -> Option<Spread> {
        (!self.theirs.is_empty()).then(|| Spread::of(&self.ratios()))
    }

    /// What became of the goal; none without one. A figure of ours alone has no other side whose
    /// scatter could excuse it.
    pub(super) fn outcome(&self) -> Option<Outcome> {
        let is_alone = self.theirs.is_empty();
        let values = if is_alone { self.ours.clone() } else { self.ratios() };
        let (low, high) = interval_of_median(&values);
        let median = Spread::of(&values).median;
        let (is_met, is_near) = match self.goal {
            Goal::AtMost(limit) => (median <= limit, low <= limit),
            Goal::AtLeast(limit) => (median >= limit, high >= limit),
            Goal::None => return None,
        };
        Some(match (is_met, is_near && !is_alone) {
            (true, _) => Outcome::Met,
            (false, true) => Outcome::Level,
            (false, false) => Outcome::NotMet,
        })
    }
}

/// An interval that has the true median with at least 95 %: of n values the k-th smallest and the k-th
/// largest, with the largest k for which a coin shows heads fewer than k times in n throws with at most
/// 2.5 % (sign test). All values, when there are too few for any k.
fn interval_of_median(values: &[f64]) -> (f64, f64) {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let n = sorted.len();
    let mut chance = 0.5f64.powi(n as i32);
    let (mut below, mut k) = (chance, 1);
    while below <= 0.025 && k <= n / 2 {
        chance *= (n - k + 1) as f64 / k as f64;
        below += chance;
        if below <= 0.025 {
            k += 1;
        }
    }
    let at = |i: usize| sorted.get(i).copied().unwrap_or(0.0);
    (at(k - 1), at(n.saturating_sub(k)))
}

/// The lines as a table for a terminal.
pub(super) fn text(lines: &[Line]) -> String {
    let mut text = format!(
        "{:<44} {:>8} {:>11} {:>11}   {:<19} {:<9} outcome\n",
        "median over the rounds", "unit", "theirs", "ours", "ratio (min..max)", "goal"
    );
    for line in lines {
        let theirs = Some(&line.theirs).filter(|theirs| !theirs.is_empty());
        let theirs = theirs.map_or("-".to_owned(), |theirs| figure(Spread::of(theirs).median));
        let ratio = line.ratio().map_or("-".to_owned(), |ratio| {
            format!("{:.2} ({:.2}..{:.2})", ratio.median, ratio.min, ratio.max)
        });
        let goal = match line.goal {
            Goal::AtMost(limit) => format!("<= {limit}"),
            Goal::AtLeast(limit) => format!(">= {limit}"),
            Goal::None => String::new(),
        };
        let _ = writeln!(
            text,
            "{:<44} {:>8} {theirs:>11} {:>11}   {ratio:<19} {goal:<9} {}",
            line.what,
            line.unit,
            figure(Spread::of(&line.ours).median),
            line.outcome().map_or("", Outcome::word)
        );
    }
    text
}

/// Three digits that count, no more.
fn figure(value: f64) -> String {
    match value {
        v if v >= 100.0 => format!("{v:.0}"),
        v if v >= 10.0 => format!("{v:.1}"),
        v => format!("{v:.2}"),
    }
}

/// The lines with every round, as a JSON document.
pub(super) fn json(machine: &str, rounds: usize, lines: &[Line]) -> String {
    let spread = |s: Spread| json!({ "min": s.min, "median": s.median, "max": s.max });
    let line = |line: &Line| -> Value {
        json!({
            "what": line.what,
            "unit": line.unit,
            "ours": line.ours,
            "theirs": line.theirs,
            "ratio": line.ratio().map(spread),
            "goal": match line.goal {
                Goal::AtMost(limit) => json!({ "at_most": limit }),
                Goal::AtLeast(limit) => json!({ "at_least": limit }),
                Goal::None => Value::Null,
            },
            "outcome": line.outcome().map(Outcome::word),
        })
    };
    let lines: Vec<Value> = lines.iter().map(line).collect();
    let document = json!({ "machine": machine, "rounds": rounds, "lines": lines });
    format!("{document:#}\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(ours: &[f64], theirs: &[f64], goal: Goal) -> Line {
        let (ours, theirs) = (ours.to_vec(), theirs.to_vec());
        Line { what: "wake-up".to_owned(), unit: "us", ours, theirs, goal }
    }

    #[test]
    fn a_spread_is_of_the_sorted_values() {
        assert_eq!(Spread::of(&[3.0, 1.0, 2.0]), Spread { min: 1.0, median: 2.0, max: 3.0 });
        assert_eq!(Spread::of(&[4.0, 1.0]), Spread { min: 1.0, median: 2.5, max: 4.0 });
        assert_eq!(Spread::of(&[]).median, 0.0);
    }

    #[test]
    fn a_goal_is_of_the_ratio_of_neighbours() {
        let line = line(&[1.0, 8.0, 3.0], &[2.0, 10.0, 1.0], Goal::AtMost(1.0));
        assert_eq!(line.ratio(), Some(Spread { min: 0.5, median: 0.8, max: 3.0 }));
        assert_eq!(line.outcome(), Some(Outcome::Met));
        let at_least = |limit| Line { goal: Goal::AtLeast(limit), ..line.clone() }.outcome();
        assert_eq!(at_least(1.0), Some(Outcome::Level));
        assert_eq!(at_least(3.1), Some(Outcome::NotMet));
        assert_eq!(Line { goal: Goal::None, ..line }.outcome(), None);
    }

    #[test]
    fn the_interval_of_a_median_is_that_of_the_sign_test() {
        // Ranks from tables of the binomial distribution: none leaves 2.5 % on a side with five
        // values, 1 and 7 of seven, 2 and 10 of eleven, 4 and 12 of fifteen.
        let ranks = |n: u32| interval_of_median(&(1..=n).map(f64::from).collect::<Vec<_>>());
        assert_eq!((ranks(1), ranks(5)), ((1.0, 1.0), (1.0, 5.0)));
        assert_eq!((ranks(7), ranks(11), ranks(15)), ((1.0, 7.0), (2.0, 10.0), (4.0, 12.0)));
    }

    #[test]
    fn without_another_tool_a_goal_is_of_the_figure() {
        assert_eq!(line(&[9.0], &[], Goal::AtMost(10.0)).outcome(), Some(Outcome::Met));
        assert_eq!(
            line(&[9.0, 12.0, 11.0], &[], Goal::AtMost(10.0)).outcome(),
            Some(Outcome::NotMet)
        );
    }

    #[test]
    fn the_table_and_the_document_say_the_same() {
        let lines = [line(&[123.4], &[246.8], Goal::AtMost(1.0)), line(&[0.5], &[], Goal::None)];
        let text = text(&lines);
        assert!(text.contains("247") && text.contains("0.50 (0.50..0.50)"), "{text}");
        assert_eq!(text.matches("met").count(), 1);
        let document: Value = serde_json::from_str(&json("m", 1, &lines)).expect("JSON");
        assert_eq!(document["lines"][0]["outcome"], "met");
        assert_eq!(document["lines"][1]["ratio"], Value::Null);
    }
}
