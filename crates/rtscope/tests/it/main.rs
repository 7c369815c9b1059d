//! The real program on this machine. No test asserts a latency: machines are noisy. What they assert
//! is that the books balance, that nothing is left behind, and that mistakes are said clearly.

#![forbid(unsafe_code)]

mod accounting;
mod check;
mod collect;
mod command_lines;
mod compare;
mod container;
mod doctor;
mod doctor_input;
mod documents;
mod drift;
mod dropin;
mod explain;
mod explain_files;
mod export;
mod export_fleet;
mod fleet;
mod fleet_kills;
mod fleet_labgrid;
mod fleet_slurm;
mod fleet_ssh;
mod hackbench;
mod history;
mod hostile;
mod import;
mod kernels;
mod killed;
mod lava;
mod loads;
mod long;
mod mutations;
mod network;
mod observer;
mod ordinary_user;
mod packaging;
mod page;
mod plans;
mod ps;
mod pull_lab;
mod regression;
mod sched;
mod settings;
mod skeletons;
mod speed;
mod starved;
mod stat;
mod streams;
mod support;
mod threads;
mod throughput;
mod truth;
mod tune;
mod wave;
mod wrong_input;
