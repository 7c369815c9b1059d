//! CPU time that nobody else wants, for as long as others measure.

use std::{fs, process::Command, time::Duration};

use rustix::thread::{CapabilitySet, capabilities};

use crate::shell;

/// The number of the policy `SCHED_IDLE`.
const IDLE: &str = "5";

/// How long a call of chrt may take.
const LIMIT: Duration = Duration::from_secs(60);

/// How often it is looked whether programs have been started meanwhile, which have the policy of those that started them.
const LOOKS_MAX: usize = 100;

/// This thread, and the programs that it starts from now on, run where no other wants the CPU. Where that isn't possible,
/// they run as others do: without a capability there is no way back.
pub(super) fn yield_to_all() {
    if !may_leave() {
        return;
    }
    set("--idle", &rustix::thread::gettid().to_string());
}

/// All of this process and of what it has started runs as others do again: on a busy machine, what yields never ends.
pub(super) fn stop_yielding() {
    for _ in 0..LOOKS_MAX {
        let all = yielding();
        if all.is_empty() {
            return;
        }
        all.iter().for_each(|thread| set("--other", thread));
    }
}

/// Whether this thread has the capability for that: in a container, root may not have it.
fn may_leave() -> bool {
    capabilities(None).is_ok_and(|sets| sets.effective.contains(CapabilitySet::SYS_NICE))
}

fn set(policy: &str, thread: &str) {
    let mut chrt = Command::new("chrt");
    let _ = shell::output(chrt.args([policy, "--pid", "0", thread]), LIMIT);
}

/// The threads that yield, of this process and of what it has started.
fn yielding() -> Vec<String> {
    let below = shell::processes_below(std::process::id());
    let processes = below.into_iter().chain([std::process::id()]);
    let threads = processes.filter_map(|pid| fs::read_dir(format!("/proc/{pid}/task")).ok());
    let threads = threads.flatten().flatten().map(|entry| entry.path());
    threads
        .filter(|thread| {
            let stat = fs::read_to_string(thread.join("stat")).unwrap_or_default();
            // Field 41 of proc_pid_stat(5).
            shell::stat_fields(&stat).is_some_and(|fields| fields.get(38) == Some(&IDLE))
        })
        .filter_map(|thread| Some(thread.file_name()?.to_string_lossy().into_owned()))
        .collect()
}

#[cfg(test)]
mod tests {
    use std::{process::Stdio, thread};

    use super::*;

    #[test]
    fn what_yields_stops_with_all_that_it_has_started() {
        if !rtscope_testing::skip::root_or_skip("what_yields_stops_with_all_that_it_has_started") {
            return;
        }
        let script = "sleep 100 & echo; wait";
        let mut started = thread::spawn(move || {
            yield_to_all();
            let mut sh = Command::new("sh");
            sh.args(["-c", script]).stdout(Stdio::piped()).spawn().expect("it starts")
        })
        .join()
        .expect("no panic");
        let mut line = [0];
        std::io::Read::read_exact(started.stdout.as_mut().expect("a pipe"), &mut line)
            .expect("ready");
        let (before, own) = (yielding(), started.id().to_string());
        stop_yielding();
        let after = yielding();
        shell::kill_tree(&mut started);
        assert!(before.len() >= 2 && before.contains(&own), "{before:?}");
        assert!(after.is_empty(), "{after:?}");
    }
}
