//! The judgement as text and as pages for people.

pub mod check;
pub mod compare;
pub mod compare_lab;
pub mod doctor;
pub mod drift;
pub mod explain;
pub mod explain_lab;
pub mod fleet;
pub mod fleet_compare;
pub mod html;
pub mod interruptions;
pub mod lab;
#[cfg(test)]
mod machine_use_tests;
pub mod published;
pub mod sched;
pub mod stat;
pub mod terminal;
pub mod throughput;
pub mod trials;
pub mod tune;
pub mod wave;
pub mod worst_lab;
