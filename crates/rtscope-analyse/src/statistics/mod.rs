//! Statistics of latencies: exact where they can be, with intervals, and honest about what a run
//! can't say.

pub mod alignment;
pub mod change_point;
pub mod claim;
pub mod counter;
pub mod dependence;
pub mod drift;
pub mod edges;
pub mod exceedance;
pub mod modes;
pub mod quantile;
pub mod random;
pub mod response;
pub mod rhythm;
pub mod slope;
pub mod summary;
pub mod sweep;
pub mod tail;
mod waves;
