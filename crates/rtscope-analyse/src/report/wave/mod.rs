//! Square waves as pages: what was seen of one, two captures side by side, and how fast a program can be.

pub mod capture;
pub mod compare;
pub mod sweep;
