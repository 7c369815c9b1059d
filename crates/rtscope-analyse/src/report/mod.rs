//! The judgement as text and as pages for people.

pub mod alignment;
pub mod capture;
pub mod check;
pub mod compare;
pub mod counter;
pub mod drift;
pub mod experiment;
pub mod html;
pub mod lab;
pub mod terminal;
pub mod throughput;
pub mod wave;
