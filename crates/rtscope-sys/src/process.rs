//! Processes that must not outlive their parent, limits, and kernel timers that end a process
//! whatever it does.

use crate::error::{Error, check};

/// Asks the kernel to send a signal when the parent dies. Returns false when the parent is already
/// gone: then the caller must exit.
///
/// The parent is the *thread* that forked: it must live as long as the child is wanted.
#[must_use]
pub fn die_with_parent(parent_pid: u32, signal: i32) -> bool {
    // SAFETY: plain integers.
    unsafe {
        libc::prctl(libc::PR_SET_PDEATHSIG, signal as libc::c_ulong);
        libc::getppid() as u32 == parent_pid
    }
}

/// Makes a command's process be killed when the calling thread ends, even by SIGKILL; `in_own_group`
/// puts it at the head of a process group, which a Ctrl-C for us doesn't reach.
pub fn bind_to_us(command: &mut std::process::Command, in_own_group: bool) {
    use std::os::unix::process::CommandExt;
    let parent = std::process::id();
    let bind = move || {
        if in_own_group {
            new_group();
        }
        match die_with_parent(parent, libc::SIGKILL) {
            true => Ok(()),
            false => Err(std::io::Error::from_raw_os_error(libc::ESRCH)),
        }
    };
    // SAFETY: between fork and exec the closure makes system calls only: it doesn't allocate or lock.
    unsafe { command.pre_exec(bind) };
}

/// Puts a command's process at the head of a session and a process group of its own. It has no terminal then: what would
/// ask there for a password fails.
pub fn in_own_session(command: &mut std::process::Command) {
    use std::os::unix::process::CommandExt;
    let begin = || {
        // SAFETY: a call without arguments.
        match unsafe { libc::setsid() } {
            -1 => Err(std::io::Error::last_os_error()),
            _ => Ok(()),
        }
    };
    // SAFETY: between fork and exec the closure makes a system call only: it doesn't allocate or lock.
    unsafe { command.pre_exec(begin) };
}

/// Ends the process by SIGALRM after a time of wall clock: the timer is the kernel's, so that not even a FIFO thread that
/// never yields can prevent it, except on PREEMPT_RT (see [`limit_real_time`]). 0 takes the timer back. Not inherited by a
/// child.
///
/// The first process of a container is one that the kernel doesn't end by such a signal: there, a handler
/// ends it. The handler runs in a thread that doesn't block the signal, so such a thread must get a CPU.
pub fn end_after(limit: std::time::Duration) {
    if std::process::id() == 1 {
        end_on_alarm();
    }
    let time = libc::itimerval {
        it_interval: libc::timeval { tv_sec: 0, tv_usec: 0 },
        it_value: libc::timeval {
            tv_sec: limit.as_secs() as libc::time_t,
            tv_usec: limit.subsec_micros() as libc::suseconds_t,
        },
    };
    // SAFETY: the pointer is valid; a null old value is allowed.
    unsafe { libc::setitimer(libc::ITIMER_REAL, &raw const time, std::ptr::null_mut()) };
}

/// Kills the process when one of its real-time threads has run for so long without sleeping. Children inherit it, and
/// can't lift it.
///
/// On PREEMPT_RT, a thread of the kernel handles the timer of [`end_after`] (`ksoftirqd`, or `ktimers` with FIFO priority
/// 1), and a real-time thread that never sleeps keeps it from running. This limit is looked at by the tick itself
/// (`watchdog` in the kernel's `kernel/sched/rt.c`).
pub fn limit_real_time(longest: std::time::Duration) {
    let longest_us = u64::try_from(longest.as_micros()).unwrap_or(u64::MAX);
    let (_, hard) = limit(Resource::RtTime);
    let lowest = Some(hard.map_or(longest_us, |hard| hard.min(longest_us)));
    let _ = set_limit(Resource::RtTime, (lowest, lowest));
}

/// Makes SIGALRM end the process by a handler, with the exit code that a shell shows for the signal.
fn end_on_alarm() {
    extern "C" fn end(signal: libc::c_int) {
        // SAFETY: ends the process at once; allowed in a handler.
        unsafe { libc::_exit(128 + signal) };
    }
    // SAFETY: sigaction is plain integers and a pointer; all zeroes is a value of it.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    action.sa_sigaction = end as *const () as libc::sighandler_t;
    // SAFETY: the handler makes one system call; a null old action is allowed.
    unsafe { libc::sigaction(libc::SIGALRM, &raw const action, std::ptr::null_mut()) };
}

/// The timer of [`end_after`]; dropping it takes the timer back, whichever way its owner is left.
#[derive(Debug)]
#[must_use = "dropping it takes the timer back"]
pub struct Deadline(());

impl Deadline {
    /// Ends the process after a time, unless this is dropped before. There is one timer for each
    /// process: a later [`end_after`] sets it again.
    pub fn after(limit: std::time::Duration) -> Deadline {
        end_after(limit);
        Deadline(())
    }
}

impl Drop for Deadline {
    fn drop(&mut self) {
        end_after(std::time::Duration::ZERO);
    }
}

/// Puts the calling process at the head of a new process group.
pub fn new_group() {
    // SAFETY: plain integers.
    unsafe { libc::setpgid(0, 0) };
}

/// Sends a signal to a process. False if it is gone. True also if we aren't permitted to signal it.
#[must_use]
pub fn signal(pid: u32, signal: i32) -> bool {
    i32::try_from(pid).is_ok_and(|pid| pid > 0 && is_there(pid, signal))
}

/// Sends a signal to every process of a group. False if there is none. True also if we aren't permitted to signal any
/// of them, such as those of `sudo`.
#[must_use]
pub fn signal_group(leader: u32, signal: i32) -> bool {
    i32::try_from(leader).is_ok_and(|pid| pid > 1 && is_there(-pid, signal))
}

/// Signals a process, or a group by its negative number. The callers have checked it: 0 and -1 mean many other
/// processes.
fn is_there(target: i32, signal: i32) -> bool {
    // SAFETY: plain integers.
    let sent = unsafe { libc::kill(target, signal) } == 0;
    sent || std::io::Error::last_os_error().raw_os_error() == Some(libc::EPERM)
}

/// Makes the calling process the new parent of its orphaned descendants.
pub fn adopt_orphans() {
    // SAFETY: plain integers.
    unsafe { libc::prctl(libc::PR_SET_CHILD_SUBREAPER, 1 as libc::c_ulong) };
}

/// A resource limit, soft and hard; `None` is unlimited.
pub type Limit = (Option<u64>, Option<u64>);

/// Resources that real-time programs run into.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Resource {
    /// `RLIMIT_RTPRIO`: highest real-time priority without privilege.
    RtPriority,
    /// `RLIMIT_RTTIME`: microseconds of CPU that a real-time thread may use without blocking.
    RtTime,
    /// `RLIMIT_MEMLOCK`: bytes that may be locked.
    LockedMemory,
    /// `RLIMIT_NOFILE`: open files.
    OpenFiles,
    /// `RLIMIT_NPROC`: processes and threads of the user.
    Processes,
}

const fn number(resource: Resource) -> libc::__rlimit_resource_t {
    match resource {
        Resource::RtPriority => libc::RLIMIT_RTPRIO,
        Resource::RtTime => libc::RLIMIT_RTTIME,
        Resource::LockedMemory => libc::RLIMIT_MEMLOCK,
        Resource::OpenFiles => libc::RLIMIT_NOFILE,
        Resource::Processes => libc::RLIMIT_NPROC,
    }
}

/// A limit of the calling process.
#[must_use]
pub fn limit(resource: Resource) -> Limit {
    let mut limits = libc::rlimit64 { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the pointer is valid for one rlimit; the resource exists, so the call can't fail.
    unsafe { libc::getrlimit64(number(resource), &raw mut limits) };
    let finite = |value| (value != libc::RLIM64_INFINITY).then_some(value);
    (finite(limits.rlim_cur), finite(limits.rlim_max))
}

/// Sets a limit of the calling process.
///
/// # Errors
///
/// EPERM when the hard limit would be raised without privilege.
pub fn set_limit(resource: Resource, (soft, hard): Limit) -> Result<(), Error> {
    let value = |limit: Option<u64>| limit.unwrap_or(libc::RLIM64_INFINITY);
    let limits = libc::rlimit64 { rlim_cur: value(soft), rlim_max: value(hard) };
    // SAFETY: the pointer is valid for one rlimit.
    let answer = unsafe { libc::setrlimit64(number(resource), &raw const limits) };
    check(i64::from(answer), || format!("setrlimit {resource:?}")).map(drop)
}

/// A soft limit that holds until this is dropped, which puts the old one back.
#[derive(Debug)]
#[must_use = "dropping it puts the old limit back"]
pub struct SoftLimit {
    resource: Resource,
    before: Limit,
}

impl SoftLimit {
    /// Sets a soft limit, where it is permitted: it may not be above the hard one.
    pub fn set(resource: Resource, soft: u64) -> SoftLimit {
        let before = limit(resource);
        let _ = set_limit(resource, (Some(soft), before.1));
        SoftLimit { resource, before }
    }
}

impl Drop for SoftLimit {
    fn drop(&mut self) {
        let _ = set_limit(self.resource, self.before);
    }
}

/// Number of the effective user.
#[must_use]
pub fn user() -> u32 {
    // SAFETY: no argument.
    unsafe { libc::geteuid() }
}

/// Whether the effective user is root.
#[must_use]
pub fn is_root() -> bool {
    user() == 0
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_deadline_and_a_limit_last_as_long_as_they_are_held() {
        let before = limit(Resource::RtTime);
        {
            let _deadline = Deadline::after(Duration::from_millis(300));
            let _limit = SoftLimit::set(Resource::RtTime, 900_000);
            assert_eq!(limit(Resource::RtTime), (Some(900_000), before.1));
        }
        assert_eq!(limit(Resource::RtTime), before);
        // The timer would have ended this process.
        std::thread::sleep(Duration::from_millis(400));
    }
}
