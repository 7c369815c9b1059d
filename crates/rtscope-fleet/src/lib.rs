//! The same plan on many machines.
//!
//! A *place* is a machine that rtscope can reach. A *job* is one run of a plan at a place. For each job a driver here
//! takes a lease on the place, copies this program and the plan there, and starts a *keeper* there, which runs the plan
//! whether or not anybody is connected. Later the driver collects the record and gives the place back.
//!
//! Nothing is installed at a place: all of a job is in one folder, which the keeper removes when the place is given
//! back or when the lease ends.

#![forbid(unsafe_code)]

pub mod agent;
pub mod drive;
pub mod error;
pub mod facts;
pub mod hold;
pub mod journal;
pub mod labgrid;
pub mod link;
pub mod machines;
pub mod parcel;
pub mod places;
pub mod selector;
pub mod shell;
pub mod slurm;
