//! Statistics of latencies: exact where they can be, with intervals, and honest about what a run
//! can't say.

pub mod change_point;
pub mod check;
pub mod claim;
mod cosines;
pub mod dependence;
pub mod drift;
pub mod exceedance;
pub mod explain;
pub mod frames;
mod gamma;
pub mod interruptions;
pub mod machine_use;
pub mod modes;
pub mod quantile;
pub mod random;
pub mod sched;
pub mod slope;
pub mod stat;
pub mod summary;
pub mod tail;
pub mod wave;
pub mod worst_case;
