//! The branch workload: the loop of the load `cpu`, so many passes, then it ends.

use std::hint::black_box;

use crate::load::cpu::{numbers, summed};

/// Passes over all numbers that take some tenths of a second.
pub const PASSES: u32 = 3_000;

/// Passes for a simulator, which needs fifty times as long.
pub const PASSES_SIMULATED: u32 = 200;

/// Sums those of 32,768 random integers that are at least 128, so many times; sorted first, or as they
/// come.
pub fn run(sorted: bool, passes: u32) {
    let numbers = numbers(sorted);
    for _ in 0..passes {
        black_box(summed(black_box(&numbers)));
    }
}
