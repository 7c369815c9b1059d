//! The system, as small safe functions: clocks, scheduling, memory, threads, processes, counters in
//! shared memory, and the `/proc` and `/sys` trees under an injectable root.
//!
//! The only crate with `unsafe` code. It holds mechanism: no policy, no statistics.
//!
//! The tree is this machine's, or any folder that looks like one:
//!
//! ```
//! use rtscope_sys::tree::Tree;
//!
//! let release = Tree::default().read("proc/sys/kernel/osrelease")?;
//! assert!(!release.trim().is_empty());
//! # Ok::<(), rtscope_sys::Error>(())
//! ```

pub mod allocation;
pub mod clock;
pub mod error;
pub mod ethtool;
pub mod fork;
pub mod frame;
pub mod line;
pub mod mapping;
pub mod mark;
pub mod memory;
pub mod module;
pub mod mount;
pub mod mutex;
pub mod net;
pub mod perf_event;
pub mod power;
pub mod process;
pub mod sched;
pub mod shared;
pub mod shield;
pub mod slurm;
pub mod swap;
pub mod system;
pub mod terminal;
pub mod thread;
pub mod timer;
pub mod tracefs;
pub mod tree;
pub mod whole;
pub mod xdp;

pub use error::Error;
