//! How often the intervals of `docs/method` enclose the truth: simulated systems whose truth is known, each
//! measured many times.
//!
//! ```sh
//! cargo run --release -p rtscope-analyse --example coverage -- 400
//! cargo run --release -p rtscope-analyse --example coverage -- 400 quantiles
//! ```
//!
//! Each subject is a module of its own, with a function that prints its rows: `quantiles`, `rates`, `whole`
//! and `shifts` (`docs/method/coverage.md`), `claims` and `usual` (`claims.md`), `tail` (`tail.md`), `drift` (`drift.md`).

#![expect(clippy::disallowed_methods, reason = "a program of its own: it reads its command line")]

mod claims;
mod drift;
mod quantiles;
mod rates;
mod ratios;
mod score;
mod shifts;
mod systems;
mod tail;
mod usual;
mod whole;

use std::env::args;

/// Prints what so many runs of each system come to.
type Rows = fn(u32);

/// The subjects by name.
const SUBJECTS: [(&str, Rows); 10] = [
    ("quantiles", quantiles::rows),
    ("short", quantiles::short_rows),
    ("rates", rates::rows),
    ("whole", whole::rows),
    ("shifts", shifts::rows),
    ("ratios", ratios::rows),
    ("claims", claims::rows),
    ("usual", usual::rows),
    ("tail", tail::rows),
    ("drift", drift::rows),
];

fn main() {
    let runs: u32 = args().nth(1).and_then(|text| text.parse().ok()).unwrap_or(100);
    let only = args().nth(2);
    for (name, rows) in SUBJECTS {
        if only.as_deref().is_none_or(|only| only == name) {
            rows(runs);
        }
    }
}
