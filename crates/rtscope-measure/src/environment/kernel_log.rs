//! What the kernel says while a run goes: that it throttled real-time threads, and its warnings.
//!
//! Read from `/dev/kmsg` (root, or a kernel that lets everybody read it), without waiting. The kernel
//! says that it throttled only once a boot, so a count of 0 proves nothing after the first time. From
//! Linux 6.12 on a fair server takes the place of throttling where it is built in, and says nothing.

use std::{
    fs::{File, OpenOptions},
    io::{ErrorKind, Read, Seek, SeekFrom},
    os::unix::fs::OpenOptionsExt,
};

use rtscope_sys::{system::NONBLOCK, tree::Tree};

/// The longest record that the kernel gives out (`PRINTK_MESSAGE_MAX`, 2 KiB), with room.
const RECORD_BYTES: usize = 8 * 1024;

/// The least severe level that is a warning (`KERN_WARNING`). Above the levels come those of user
/// space, which may write to the same log.
const WARNING: u32 = 4;

/// Messages that are kept: the first ones say most, and an oops has dozens.
const KEPT_MAX: usize = 3;

/// Follows the kernel's log from the moment it is opened.
#[derive(Debug)]
pub struct KernelLog {
    file: Option<File>,
    warnings: Vec<String>,
    more: u64,
}

impl KernelLog {
    /// Follows the log from now on; follows nothing where it can't be read.
    #[must_use]
    pub fn open(tree: &Tree) -> KernelLog {
        let open = OpenOptions::new().read(true).custom_flags(NONBLOCK).open(tree.path("dev/kmsg"));
        let file = open.ok().and_then(|mut file| file.seek(SeekFrom::End(0)).ok().map(|_| file));
        KernelLog { file, warnings: Vec::new(), more: 0 }
    }

    /// Reads what is new, and keeps its warnings. How often real-time threads were throttled since
    /// the last time; none where the log can't be read.
    pub fn read(&mut self) -> Option<u64> {
        let mut throttled = 0;
        let mut record = [0; RECORD_BYTES];
        loop {
            match self.file.as_mut()?.read(&mut record) {
                Ok(0) => break,
                Ok(n) => throttled += self.take(&String::from_utf8_lossy(&record[..n])),
                // Messages that were overwritten before they were read: go on with the next.
                Err(e) if e.kind() == ErrorKind::BrokenPipe => {}
                Err(_) => break,
            }
        }
        Some(throttled)
    }

    /// One record: `level,sequence,time,flags;text`, then lines of its context.
    fn take(&mut self, record: &str) -> u64 {
        let Some((head, text)) = record.split_once(';') else { return 0 };
        let level = head.split(',').next().and_then(|word| word.parse::<u32>().ok());
        let text = text.lines().next().unwrap_or_default();
        if level.is_some_and(|level| level <= WARNING) {
            match self.warnings.len() {
                n if n < KEPT_MAX => self.warnings.push(text.to_owned()),
                _ => self.more += 1,
            }
        }
        u64::from(text.contains("RT throttling activated"))
    }

    /// The warnings since the last time, and how many more there were.
    pub fn take_warnings(&mut self) -> (Vec<String>, u64) {
        (std::mem::take(&mut self.warnings), std::mem::take(&mut self.more))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn follow(records: &[&str]) -> (u64, (Vec<String>, u64)) {
        let mut log = KernelLog { file: None, warnings: Vec::new(), more: 0 };
        let throttled = records.iter().map(|record| log.take(record)).sum();
        (throttled, log.take_warnings())
    }

    #[test]
    fn warnings_and_throttling_are_told_apart_from_chatter() {
        let (throttled, (warnings, more)) = follow(&[
            "6,1,100,-;eth0: link up\n SUBSYSTEM=net\n",
            "4,2,200,-;sched: RT throttling activated\n",
            "12,3,300,-;systemd: a warning of user space\n",
            "not a record",
        ]);
        assert_eq!((throttled, more), (1, 0));
        assert_eq!(warnings, ["sched: RT throttling activated"]);
    }

    #[test]
    fn a_flood_is_counted_not_kept() {
        let flood = vec!["3,1,1,-;disk trouble\n"; 100];
        let (_, (warnings, more)) = follow(&flood);
        assert_eq!((warnings.len(), more), (KEPT_MAX, 97));
    }

    #[test]
    fn a_log_that_can_not_be_read_says_nothing() {
        let folder = tempfile::tempdir().expect("a folder");
        assert_eq!(KernelLog::open(&Tree::under(folder.path())).read(), None);
    }

    #[test]
    fn this_machine_is_followed_from_now_on() {
        let mut log = KernelLog::open(&Tree::default());
        if log.file.is_some() {
            log.read();
            let (warnings, more) = log.take_warnings();
            assert!(more < 20, "old messages were read: {warnings:?} and {more} more");
        }
    }
}
