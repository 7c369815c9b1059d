//! KernelCI's pull labs: a lab that asks for its jobs, runs them, and posts what came of them.
//!
//! ```text
//! GET  API/events            job nodes that became available: those of this lab's runtime are noticed
//! GET  API/node/ID           is it still free?
//! PUT  API/node/ID           data.job_id: the job is ours
//! GET  (the definition, the kernel, the modules)
//! ...                        the guests
//! POST KCIDB/submit          a test for each test of the job, and for each figure
//! PUT  API/node/ID           state done, result
//! ```
//!
//! The events, the states of a node and the fields of a definition are those of kernelci-api and of `pull_labs` in
//! kernelci-core. KernelCI's node has no state for "taken", so a job is claimed by its `data.job_id`, as KernelCI's own
//! client does.
//!
//! Every step is in a journal before the next one begins. So a process that is killed leaves jobs that the next one goes on
//! with: a job that was begun is run again, and what was posted is found out from the node.

pub mod api;
pub mod definition;
pub mod http;
pub mod journal;
pub mod outcome;
pub mod token;
