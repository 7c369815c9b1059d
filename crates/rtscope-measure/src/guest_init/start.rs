//! What an emulated guest finds and waits for before it measures: words of the command line that its kernel
//! doesn't know, and the kernel's own work after it has started.

use std::{env, path::Path, thread, time::Duration};

use rtscope_model::guest::{self, GuestStart, Worker};
use rtscope_sys::{
    clock::{Clock, SystemClock},
    tree::Tree,
};

use crate::other_work::OtherWorkWatch;

/// Time between two looks at the CPUs. `/proc/stat` counts in steps of 10 ms.
const LOOK: Duration = Duration::from_millis(250);

/// The guest is at rest when the CPUs did nothing else for so many looks in a row.
const QUIET_LOOKS: u32 = 2;

/// Share of all CPUs' time that counts as nothing.
const QUIET_SHARE: f64 = 0.05;

/// Longest wait. What goes on after it belongs to the kernel under test, and a finding names it.
const LOOKS_MAX: u32 = 80;

/// What the kernel gives its first process without being asked.
const OWN_VARIABLES: [&str; 2] = ["HOME", "TERM"];

/// Waits until the kernel has done what it does by itself after a start.
pub(super) fn settle(tree: &Tree) -> GuestStart {
    let clock = SystemClock::MONOTONIC;
    let began_ns = clock.now_ns();
    let mut start = GuestStart { unknown_words: unknown_words(), ..GuestStart::default() };
    let mut quiet = 0;
    for _ in 0..LOOKS_MAX {
        let watch = OtherWorkWatch::start(tree, std::process::id(), clock.now_ns());
        thread::sleep(LOOK);
        // A kernel that doesn't show who uses its CPUs is not waited for.
        let Some(work) = watch.finish(tree, std::process::id(), clock.now_ns(), 0) else { break };
        let busy_ns = work.kernel_ns + work.others_ns;
        let all_ns = work.span_ns * work.cpus.len() as u64;
        let is_quiet = busy_ns as f64 <= QUIET_SHARE * all_ns as f64;
        if !is_quiet {
            work.processes.iter().for_each(|one| add(&mut start.workers, &one.name, one.cpu_ns));
        }
        quiet = if is_quiet { quiet + 1 } else { 0 };
        if quiet == QUIET_LOOKS {
            break;
        }
    }
    start.at_rest = quiet == QUIET_LOOKS;
    start.waited_ns = clock.now_ns() - began_ns;
    start.workers.sort_by(|a, b| b.cpu_ns.cmp(&a.cpu_ns).then_with(|| a.name.cmp(&b.name)));
    start
}

fn add(workers: &mut Vec<Worker>, name: &str, cpu_ns: u64) {
    match workers.iter_mut().find(|known| known.name == name) {
        Some(known) => known.cpu_ns += cpu_ns,
        None => workers.push(Worker { name: name.to_owned(), cpu_ns }),
    }
}

/// The kernel hands words that it doesn't know to its first process: those with a value as variables, others
/// as arguments (`Documentation/admin-guide/kernel-parameters.rst`). Words with a dot are for
/// modules, and are not handed on.
fn unknown_words() -> Vec<String> {
    let own = |name: &str| OWN_VARIABLES.contains(&name);
    let variables = env::vars_os().filter_map(|(name, value)| {
        let (name, value) = (name.into_string().ok()?, value.into_string().ok()?);
        (!own(&name)).then(|| format!("{name}={value}"))
    });
    let arguments = env::args_os().skip(1).filter_map(|word| word.into_string().ok());
    variables.chain(arguments).collect()
}

/// Adds what was found to the record.
pub(super) fn keep(start: &GuestStart, record: &Path) -> Result<(), String> {
    let text = serde_json::to_string(start).map_err(|e| e.to_string())?;
    std::fs::write(record.join(guest::START), text + "\n").map_err(|e| e.to_string())
}
