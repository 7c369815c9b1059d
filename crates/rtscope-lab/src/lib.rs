//! The kernel lab: kernels made, installed, booted in an emulator, and compared in virtual time.
//!
//! ```text
//! kernel: spec -> source -> patch -> config -> build -> package -> install -> verify -> rollback
//! lab:    kernel -> image -> boot -> collect -> record
//! ```
//!
//! It never measures: it boots the static binary of rtscope in the kernel under test and reads the
//! record that comes back.
//!
//! What a kernel of our own is made of:
//!
//! ```
//! let spec = rtscope_lab::spec::find("tiny-6.12-rt")?;
//! assert_eq!(spec.arch, "x86_64");
//! assert!(spec.fragments.iter().any(|fragment| fragment.text.contains("CONFIG_PREEMPT_RT=y")));
//! # Ok::<(), rtscope_lab::error::LabError>(())
//! ```

#![forbid(unsafe_code)]

pub mod bisect;
pub mod boot;
pub mod brought;
pub mod build;
pub mod build_target;
pub mod cache;
pub mod config;
pub mod console;
pub mod costs;
pub mod cyclictest;
pub mod debian;
pub mod digest;
pub mod disk;
pub mod emulator_plugin;
pub mod engine;
pub mod error;
pub mod explain;
mod folder_lock;
pub mod guest_run;
pub mod image;
pub mod images;
pub mod inputs;
pub mod install;
pub mod kept;
mod kernel_image;
pub mod kernel_ref;
pub mod kernel_under_test;
pub mod lab;
mod links;
pub mod machine;
pub mod modules;
pub mod name;
mod no_record;
pub mod options;
pub mod package;
pub mod patch;
pub mod patch_report;
pub mod prebuilt;
pub mod program;
pub mod progress;
pub mod qemu;
pub mod queue;
pub mod ready;
pub mod recheck;
pub mod record_folders;
pub mod replay;
pub mod replay_log;
pub mod source;
pub mod spec;
pub mod tool;
mod unpacked;
pub mod verify;
pub mod worst;
