//! The comparison as a page, as one JSON document, and as a table for a terminal.

use std::{collections::BTreeMap, fmt::Write as _, path::Path, process::ExitCode};

use anyhow::Context;
use rtscope_analyse::{
    number::us,
    report::lab::{
        self as page,
        beside::{Buckets, Pair, QUANTILES},
    },
};
use rtscope_model::verdict::Verdict;
use serde_json::{Value, json};

use super::Comparison;
use crate::{cli::print, exit, output::shown};

impl Comparison {
    /// The document that `--json` prints.
    fn document(&self) -> Value {
        json!({
            "format": 1,
            "plan": self.page.plan,
            "timing": self.timing,
            "headline": page::headline(&self.page),
            "verdict": self.verdict(),
            "requirements": self.page.required,
            "pairs": page::apart::pairs(&self.page),
            "broken": self.broken,
            "warnings": self.page.warnings,
            "kernels": self.documents,
        })
    }

    /// Writes the page and the document, tells the figures, and says where the page is.
    pub(in crate::cli::lab) fn publish(
        &self,
        out: &Path,
        as_json: bool,
    ) -> anyhow::Result<ExitCode> {
        let text = serde_json::to_string_pretty(&self.document())? + "\n";
        let (page, document) = (out.join("index.html"), out.join("comparison.json"));
        for (path, text) in [(&page, &page::page(&self.page)), (&document, &text)] {
            let written = rtscope_measure::recorder::write_whole(path, text.as_bytes())
                .with_context(|| format!("can't write {}", path.display()));
            // What the guests have shown, or why they have not, is not lost with the page.
            written.inspect_err(|_| {
                let _ = print(&self.table());
            })?;
        }
        if as_json {
            print(&text)?;
            note!("Report: {}", page.display());
        } else {
            print(&self.table())?;
            print(&format!("Report: {}\n", shown(&page)))?;
        }
        Ok(if self.failed { ExitCode::from(exit::ERROR) } else { exit::of_verdict(self.verdict()) })
    }

    /// A line a load, a column a kernel.
    fn figures(&self) -> String {
        let mut text = String::new();
        let loads = page::loads(&self.page);
        let first = loads.iter().map(|load| load.len()).max().unwrap_or(0).max("preemption".len());
        let widths: Vec<usize> =
            self.page.kernels.iter().map(|label| label.len().max(15)).collect();
        let models = page::models(&self.page);
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
                let figure = match page::p99_9_and_max(&self.page, kernel, load) {
                    Some((p99_9, max)) => format!("{} / {}", us(p99_9), us(max)),
                    None => page::absence(&self.page, kernel, load).to_owned(),
                };
                let _ = write!(text, "  {figure:>width$}");
            }
            text.push('\n');
        }
        text
    }

    /// The figures for a terminal, and what they tell.
    fn table(&self) -> String {
        let mut text = format!("{}\n\n", page::headline(&self.page));
        text.push_str(&self.figures());
        text.push_str(match self.page.seeds {
            0 | 1 => "\np99.9 / max in us\n",
            _ => "\np99.9 / max in us: the median and the largest of all seeds\n",
        });
        text.extend(page::conditions(&self.page).iter().map(|said| format!("{said}\n")));
        text.extend(page::unbounded(&self.page).map(|said| said + "\n"));
        text.push_str(&page::apart::text(&self.page));
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
            let is_open = |one: &&page::Required| one.verdict == Verdict::Inconclusive;
            for one in self.page.required.iter().filter(is_open) {
                let page::Required { kernel, load, requirement, seen, .. } = one;
                let _ = writeln!(text, "  {kernel}, {load}: {requirement} is undecided: {seen}");
            }
        }
        text.push('\n');
        text
    }
}

/// A pair of histograms as JSON.
pub(super) fn pair_document(pair: &Pair) -> Value {
    let side = |of: &Buckets| {
        let quantiles = QUANTILES.map(|(name, parts)| (name, of.at(parts)));
        json!({
            "count": of.count(),
            "max_us": of.max_us,
            "overflow": of.overflow,
            "quantiles_us": BTreeMap::from(quantiles),
            "histogram_us": of.counts,
        })
    };
    let costs = pair.costs_ns().map(|(ours, theirs)| json!({"ours": ours, "cyclictest": theirs}));
    let apart = QUANTILES.map(|(name, parts)| (name, pair.apart_us(parts)));
    json!({
        "cell": pair.load,
        "ours": side(&pair.ours),
        "cyclictest": side(&pair.theirs),
        "apart_us": BTreeMap::from(apart),
        "meets": pair.meets(),
        "cpu_ns_per_wakeup": costs,
    })
}
