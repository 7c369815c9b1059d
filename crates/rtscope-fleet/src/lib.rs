//! The same plan on many machines.
//!
//! A *place* is a machine that rtscope can reach. A *job* is one run of a plan at a place. For each job a driver here
//! takes a lease on the place, copies this program and the plan there, and starts a *keeper* there, which runs the plan
//! whether or not anybody is connected. Later the driver collects the record and gives the place back.
//!
//! Nothing is installed at a place: all of a job is in one folder, which the keeper removes when the place is given
//! back or when the lease ends.
//!
//! The places of a file that an order is for:
//!
//! ```
//! use std::path::Path;
//!
//! use rtscope_fleet::{places, selector::Selector};
//!
//! let text = "[places.saw]\nssh = 'root@saw'\ntags = ['rt', 'arch=arm64']\n[places.desk]\nlocal = true\n";
//! let file = places::parse(Path::new("places.toml"), text)?;
//! let selector: Selector = "tag=rt,arch=arm64".parse()?;
//! let chosen: Vec<_> = file.named.iter().filter(|place| selector.selects(place)).collect();
//! assert_eq!(chosen[0].name, "saw");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

#![forbid(unsafe_code)]

pub mod agent;
pub mod drive;
pub mod error;
pub mod facts;
pub mod hold;
pub mod journal;
pub mod labgrid;
pub mod lava;
pub mod link;
pub mod machines;
pub mod parcel;
pub mod places;
pub mod pull_lab;
pub mod selector;
pub mod shell;
pub mod slurm;
mod step_log;
