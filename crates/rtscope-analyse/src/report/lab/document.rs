//! The comparison as one JSON document, and as a table for a terminal.

use std::fmt::Write as _;

use rtscope_model::verdict::Verdict;
use serde_json::{Value, json};

use super::{
    KernelRequirement, absence, apart,
    beside::{Buckets, QUANTILES},
    collect::Collected,
    conditions, headline, loads, missed, models, p99_9_and_max, unbounded, worst,
};
use crate::{
    number::{counted, us},
    report::published,
};

impl Collected {
    /// The document that `--json` prints.
    #[must_use]
    pub fn document(&self) -> Value {
        json!({
            "format": 1,
            "plan": self.page.plan,
            "timing": self.page.time,
            "headline": headline(&self.page),
            "verdict": self.verdict(),
            "requirements": self.page.required,
            "pairs": apart::pairs(&self.page),
            "too_few_wake_ups": unbounded(&self.page),
            "broken": self.broken,
            "causes": self.page.causes,
            "warnings": self.page.warnings,
            "published": published::document(&self.page.published),
            "kernels": self.documents,
        })
    }

    /// A line a load, a column a kernel.
    fn figures(&self) -> String {
        let mut text = String::new();
        let loads = loads(&self.page);
        let first = loads.iter().map(|load| load.len()).max().unwrap_or(0).max("preemption".len());
        let widths: Vec<usize> =
            self.page.kernels.iter().map(|label| label.len().max(15)).collect();
        let models = models(&self.page);
        for (name, columns) in [("load", &self.page.kernels), ("preemption", &models)] {
            let _ = write!(text, "{name:first$}");
            for (column, width) in columns.iter().zip(&widths) {
                let _ = write!(text, "  {column:>width$}");
            }
            text.push('\n');
        }
        for load in loads {
            let _ = write!(text, "{load:first$}");
            for (kernel, width) in widths.iter().enumerate() {
                let figure = match p99_9_and_max(&self.page, kernel, load) {
                    Some((p99_9, max)) => format!("{} / {}", us(p99_9), us(max)),
                    None => absence(&self.page, kernel, load).to_owned(),
                };
                let _ = write!(text, "  {figure:>width$}");
            }
            text.push('\n');
        }
        text
    }

    /// The figures for a terminal, and what they tell.
    #[must_use]
    pub fn table(&self) -> String {
        let mut text = format!("{}\n\n", headline(&self.page));
        text.push_str(&self.figures());
        text.push_str(match self.page.seeds {
            0 | 1 => "\np99.9 / max in us\n",
            _ => "\np99.9 / max in us: the median and the largest of all seeds\n",
        });
        text.extend(missed(&self.page).iter().map(|(load, kernel, missed)| {
            let missed = counted(*missed, "activation");
            format!("{load}, {kernel}: {missed} missed, counted with the times that they would have waited\n")
        }));
        text.extend(conditions(&self.page).iter().map(|said| format!("{said}\n")));
        text.extend(unbounded(&self.page).map(|said| said + "\n"));
        text.push_str(&apart::text(&self.page));
        text.push_str(&worst::text(&self.page.causes));
        text.push_str(&published::text(&self.page.published));
        for pair in &self.page.beside {
            let of = |side: &Buckets| {
                QUANTILES
                    .map(|(_, parts)| side.at(parts).map_or("-".to_owned(), |us| us.to_string()))
            };
            let _ = writeln!(
                text,
                "cyclictest beside ours, {} {} seed {}: p50/p99/p99.9 {} and {} us: {}",
                pair.kernel,
                pair.load,
                pair.seed,
                of(&pair.theirs).join("/"),
                of(&pair.ours).join("/"),
                pair.verdict()
            );
            if let Some((ours, theirs)) = pair.costs_ns() {
                let _ = writeln!(
                    text,
                    "  CPU time a wake-up: {:.2} and {:.2} us, ours is {:.3} times cyclictest's",
                    theirs / 1e3,
                    ours / 1e3,
                    ours / theirs
                );
            }
        }
        for (what, said, _) in &self.page.traces {
            let _ = writeln!(text, "{what}: {said}");
        }
        if !self.page.failures.is_empty() {
            text.push('\n');
        }
        for (name, why) in &self.page.failures {
            let _ = writeln!(text, "{name}: {why}");
        }
        text.extend(self.page.warnings.iter().map(|line| format!("warning: {line}\n")));
        text.extend(self.broken.iter().map(|line| format!("{line}\n")));
        if self.verdict() != Verdict::Measured {
            let _ = writeln!(text, "{}", self.verdict());
            let is_open = |one: &&KernelRequirement| one.verdict == Verdict::Inconclusive;
            for one in self.page.required.iter().filter(is_open) {
                let KernelRequirement { kernel, load, requirement, seen, .. } = one;
                let _ = writeln!(text, "  {kernel}, {load}: {requirement} is undecided: {seen}");
            }
        }
        text.push('\n');
        text
    }
}
