//! Busy processes beside the tests: the machine of somebody who works on it meanwhile.

use std::process::{Child, Command};

use anyhow::{Context, Result};

/// Uses one CPU for as long as the process that started it is there, however that one ends.
const LOOP: &str = "while kill -0 $PPID 2> /dev/null; do :; done";

/// Processes that compute until this is dropped.
pub(super) struct Busy(Vec<Child>);

impl Busy {
    pub(super) fn start(processes: usize) -> Result<Busy> {
        let mut busy = Busy(Vec::new());
        for _ in 0..processes {
            let started = Command::new("sh").args(["-c", LOOP]).spawn();
            busy.0.push(started.context("can't start a busy process")?);
        }
        Ok(busy)
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        for child in &mut self.0 {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{fs, thread, time::Duration};

    use super::*;
    use crate::shell;

    #[test]
    fn they_compute_until_they_are_dropped() {
        let busy = Busy::start(2).expect("started");
        let stats: Vec<String> =
            busy.0.iter().map(|child| format!("/proc/{}/stat", child.id())).collect();
        // Field 14 of proc_pid_stat(5).
        let ticks = |stat: &String| -> Option<u64> {
            shell::stat_fields(&fs::read_to_string(stat).ok()?)?.get(11)?.parse().ok()
        };
        let have_computed = || stats.iter().all(|stat| ticks(stat).is_some_and(|n| n > 0));
        while !have_computed() {
            thread::sleep(Duration::from_millis(20));
        }
        drop(busy);
        assert!(stats.iter().all(|stat| fs::metadata(stat).is_err()));
    }
}
