//! What every caller of Slurm's programs needs to know of them.

use std::process::Command;

/// States of a job or a task that has ended, as `squeue --format=%T` prints them.
pub const ENDED: [&str; 10] = [
    "BOOT_FAIL",
    "CANCELLED",
    "COMPLETED",
    "DEADLINE",
    "FAILED",
    "NODE_FAIL",
    "OUT_OF_MEMORY",
    "PREEMPTED",
    "REVOKED",
    "TIMEOUT",
];

/// Variables of Slurm describe the job that this process may run in, or are defaults for options, and would change what its
/// programs do. Those of sbatch are the user's own.
const VARIABLES: [&str; 4] = ["SLURM_", "SQUEUE_", "SCANCEL_", "SINFO_"];

/// Those that say where Slurm is.
const KEPT: [&str; 4] = ["SLURM_CONF", "SLURM_CONF_SERVER", "SLURM_JWT", "SLURM_CLUSTERS"];

/// Takes from a command's environment what would change the answers of Slurm's programs.
pub fn without_defaults(command: &mut Command) -> &mut Command {
    for (name, _) in std::env::vars_os() {
        let name = name.to_string_lossy();
        if VARIABLES.iter().any(|start| name.starts_with(start)) && !KEPT.contains(&name.as_ref()) {
            command.env_remove(name.as_ref());
        }
    }
    command
}
