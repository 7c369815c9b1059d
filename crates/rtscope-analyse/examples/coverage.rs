//! How often the intervals of `docs/method/tail.md`, `comparison.md` and `drift.md` enclose the truth:
//! simulated systems whose tail is known, each measured many times.
//!
//! ```sh
//! cargo run --release -p rtscope-analyse --example coverage -- 200
//! cargo run --release -p rtscope-analyse --example coverage -- 200 drift
//! ```

#![expect(clippy::disallowed_methods, reason = "a program of its own: it reads its command line")]

#[path = "coverage/drift.rs"]
mod drift;
#[path = "coverage/tail.rs"]
mod tail;

use std::env::args;

fn main() {
    let runs: u32 = args().nth(1).and_then(|text| text.parse().ok()).unwrap_or(100);
    let only = args().nth(2);
    let wants = |part: &str| only.as_deref().is_none_or(|only| only == part);
    if wants("tail") {
        tail::rows(runs);
    }
    if wants("drift") {
        drift::rows(runs);
    }
}
