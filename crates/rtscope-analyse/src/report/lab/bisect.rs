//! What a search for the change that broke a latency has found, as text and as one JSON document.

use rtscope_model::verdict::Requirement;
use serde_json::{Value, json};

/// A search that came to its end.
#[derive(Clone, Debug)]
pub struct Search<'a> {
    /// The plan's name.
    pub plan: &'a str,
    /// What was required.
    pub require: &'a [Requirement],
    /// The good end, as it was asked for.
    pub good: &'a str,
    /// The bad end.
    pub bad: &'a str,
    /// What lies between the two, as `words`.
    pub between: &'a str,
    /// Each kernel that was judged.
    pub steps: Value,
    /// The changes that broke it.
    pub found: &'a [String],
    /// Whether some of them may be innocent.
    pub vague: bool,
    /// Runs of each kernel.
    pub seeds: u64,
    /// How many kernels were run.
    pub kernels: usize,
}

/// Chance that, of two kernels that don't differ, all seeds of the one meet a requirement and all of the other
/// fail it: of all ways in which as many passes as failures may fall on both, one is that.
fn chance(seeds: u64) -> f64 {
    // 1 / (2n choose n).
    (1..=seeds).map(|k| k as f64 / (seeds + k) as f64).product()
}

/// The document.
#[must_use]
pub fn document(search: &Search<'_>) -> Value {
    json!({
        "format": 1,
        "plan": search.plan,
        "require": search.require.iter().map(ToString::to_string).collect::<Vec<_>>(),
        "good": search.good,
        "bad": search.bad,
        "between": search.between,
        "steps": search.steps,
        "found": search.found,
        "vague": search.vague,
        "seeds": search.seeds,
        "chance": chance(search.seeds),
    })
}

/// What a terminal shows. `steps` is where the document is.
#[must_use]
pub fn text(search: &Search<'_>, steps: &str) -> String {
    let head = match (search.vague, search.found.len()) {
        (true, _) => "one of these broke it; the kernels between them could not be judged:",
        (false, 1) => "this broke it:",
        (false, _) => "these broke it together:",
    };
    let seeds = search.seeds;
    format!(
        "{head}\n  {}\n\n{seeds} seeds passed in the good kernel, and {seeds} failed in the bad one: kernels that \
         don't differ show that in {:.1} % of cases.\n{} kernels were run; the steps: {steps}\n",
        search.found.join("\n  "),
        100.0 * chance(seeds),
        search.kernels,
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_kernels_fall_apart_by_seeds_as_rarely_as_combinatorics_says() {
        assert_eq!(chance(1), 0.5);
        assert!((chance(3) - 1.0 / 20.0).abs() < 1e-12);
        assert!((chance(5) - 1.0 / 252.0).abs() < 1e-12);
    }
}
