//! Processes that only compute: the machine of somebody who works on it meanwhile.

use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result};

use crate::shell;

/// Uses one CPU for as long as the process of that number is there.
const LOOP: &str = "while kill -0 \"$1\" 2> /dev/null; do :; done";

/// Processes that compute until this is dropped. The kernel kills them if the one that started them is killed.
pub(crate) struct Busy(Vec<Child>);

impl Busy {
    /// Starts so many, with a nice value.
    pub(crate) fn start(processes: usize, nice: u8) -> Result<Busy> {
        let mut busy = Busy(Vec::new());
        for _ in 0..processes {
            let started = command(std::process::id(), nice).spawn();
            busy.0.push(started.context("can't start a busy process")?);
        }
        Ok(busy)
    }
}

fn command(parent: u32, nice: u8) -> Command {
    let mut command = Command::new("nice");
    command.args(["-n", &nice.to_string(), "sh", "-c", LOOP, "sh", &parent.to_string()]);
    let mut command = shell::bound(&command);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command
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
    use std::{
        fs, thread,
        time::{Duration, Instant},
    };

    use super::*;

    #[test]
    fn they_compute_until_they_are_dropped() {
        let busy = Busy::start(2, 0).expect("started");
        let stats: Vec<String> =
            busy.0.iter().map(|child| format!("/proc/{}/stat", child.id())).collect();
        // Field 14 of proc_pid_stat(5).
        let ticks = |stat: &String| -> Option<u64> {
            shell::stat_fields(&fs::read_to_string(stat).ok()?)?.get(11)?.parse().ok()
        };
        let have_computed = || stats.iter().all(|stat| ticks(stat).is_some_and(|n| n > 0));
        let began = Instant::now();
        while !have_computed() {
            assert!(began.elapsed() < Duration::from_secs(60), "they don't compute");
            thread::sleep(Duration::from_millis(20));
        }
        drop(busy);
        assert!(stats.iter().all(|stat| fs::metadata(stat).is_err()));
    }

    #[test]
    fn without_the_process_that_they_stand_by_they_end() {
        let mut gone = Command::new("true").spawn().expect("started");
        gone.wait().expect("ends");
        assert!(command(gone.id(), 0).status().expect("ends").success());
    }
}
