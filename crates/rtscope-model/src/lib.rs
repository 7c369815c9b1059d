//! The nouns of rtscope, in the order of its path:
//!
//! ```text
//! plan -> environment -> slices and events -> record -> findings -> verdict
//! ```
//!
//! Values only: no file, no clock, no environment, no unsafe code. The measuring half writes these
//! values and the judging half reads them; neither knows the other.
//!
//! A plan as it is typed, and what it asks for:
//!
//! ```
//! use rtscope_model::plan;
//!
//! let text = "name = 'mine'\nrequire = ['max < 100us']\n[[phase]]\nname = 'rest'\nduration = '10s'\n";
//! let plan = plan::parse("mine.toml", text)?;
//! assert_eq!(plan.phases[0].name, "rest");
//! assert_eq!(plan.require[0].to_string(), "max < 100us");
//! # Ok::<(), rtscope_model::text::TextError>(())
//! ```

#![forbid(unsafe_code)]

pub mod chain;
pub mod check;
pub mod cmdline;
pub mod coverage;
pub mod cpu;
pub mod doctor;
pub mod drift;
pub mod environment;
pub mod event;
pub mod explain;
pub mod finding;
pub mod frames;
pub mod guest;
pub mod guest_link;
pub mod instructions;
pub mod interruptions;
pub mod load;
pub mod machine_use;
pub mod origin;
pub mod other_work;
pub mod plan;
pub mod printable;
pub mod published;
pub mod record;
pub mod sched;
pub mod schedule;
pub mod slice;
pub mod stat;
pub mod stretches;
pub mod symbols;
pub mod text;
pub mod thread;
pub mod throughput;
pub mod time;
pub mod trace;
pub mod verdict;
pub mod wave;

pub use rtscope_histogram as histogram;
