//! The judgement as documents for programs.

pub mod cyclictest;
pub mod json;
