//! What tests of several crates share: a browser, a clock whose time only the test moves, this machine's network
//! devices, programs that can be run at once, skips that are counted, a Slurm, and a small KernelCI.
//!
//! No program contains it: crates use it for their tests alone, which `cargo xtask tidy` checks.

#![forbid(unsafe_code)]

pub mod browser;
pub mod clock;
pub mod devices;
pub mod executable;
pub mod kernel_ci;
pub mod skip;
pub mod slurm;
