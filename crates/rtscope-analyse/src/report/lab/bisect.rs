//! What a search for the change that broke a latency has found, as text and as one JSON document.

use rtscope_model::verdict::Requirement;
use serde_json::{Value, json};

use crate::compare::Chance;

/// A search that came to its end.
#[derive(Clone, Debug)]
pub struct BisectionReport<'a> {
    pub plan: &'a str,
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

/// Refuses a search with so few seeds that kernels which don't differ may look like its two ends.
///
/// # Errors
///
/// How likely that is, and how many seeds it takes.
pub fn check_seeds(seeds: u64) -> Result<(), String> {
    let is_enough = |seeds: &u64| {
        let p = chance(*seeds);
        Chance { p, p_adjusted: p }.is_different()
    };
    if is_enough(&seeds) {
        return Ok(());
    }
    let fewest = (seeds..).find(is_enough).unwrap_or(seeds);
    Err(format!(
        "--seeds {seeds}: two kernels that don't differ would look like a good and a bad one in {:.0} % of cases; \
         use --seeds {fewest} or more, for less than 5 %",
        100.0 * chance(seeds)
    ))
}

#[must_use]
pub fn document(search: &BisectionReport<'_>) -> Value {
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
pub fn text(search: &BisectionReport<'_>, steps: &str) -> String {
    let head = match (search.vague, search.found.len()) {
        (true, _) => {
            "one of these changes breaks the requirement; the kernels between them could not be judged:"
        }
        (false, 1) => "this change breaks the requirement:",
        (false, _) => "these changes break the requirement together:",
    };
    let seeds = search.seeds;
    format!(
        "{head}\n  {}\n\n{seeds} seeds passed in the good kernel, and {seeds} failed in the bad one: two equal \
         kernels would show that in {:.1} % of cases.\n{} kernels were run; the steps: {steps}\n",
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

    #[test]
    fn nothing_is_blamed_by_seeds_that_chance_can_divide_as_well() {
        // 1/2, 1/6, 1/20 and 1/70: less than 5 % from four on.
        for (seeds, percent) in [(1, "in 50 %"), (2, "in 17 %"), (3, "in 5 %")] {
            let said = check_seeds(seeds).expect_err("too few");
            assert!(said.contains(percent) && said.contains("use --seeds 4"), "{said}");
        }
        assert_eq!(check_seeds(4), Ok(()));
    }
}
