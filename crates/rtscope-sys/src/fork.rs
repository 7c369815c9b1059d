//! Forked processes without exec, how they ended, and the signals of a process with one thread:
//! what a load made of many worker processes needs.

use std::{
    fmt,
    mem::MaybeUninit,
    panic::{AssertUnwindSafe, catch_unwind},
    time::Duration,
};

use crate::{
    error::{Error, check},
    mapping::page_bytes,
};

/// The exit code of a forked process that panicked, as Rust programs have it.
pub const PANICKED: u8 = 101;

/// How a process ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// By itself, with this code.
    Code(i32),
    Signal(i32),
}

impl fmt::Display for Exit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Exit::Code(code) => write!(f, "exit code {code}"),
            Exit::Signal(number) => write!(f, "signal {number}"),
        }
    }
}

/// What waiting for a child found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Waited {
    /// This child ended.
    Ended(u32, Exit),
    /// There are children, but none has ended.
    Running,
    NoChild,
}

/// Which children to wait for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Children {
    Any,
    /// Those of a process group.
    Group(u32),
    One(u32),
}

/// Forks. The child runs `work`, exits with the code that it returns, and never comes back.
///
/// # Errors
///
/// EDEADLK when the process has more than one thread: the child would have a copy of the locks that
/// the others hold, and nobody to release them. EAGAIN when there may be no more processes.
pub fn fork(work: impl FnOnce() -> u8) -> Result<u32, Error> {
    let threads = std::fs::read_dir("/proc/self/task").map_or(0, Iterator::count);
    if threads != 1 {
        let source = std::io::Error::from_raw_os_error(libc::EDEADLK);
        return Err(Error::Call { call: format!("fork with {threads} threads"), source });
    }
    // SAFETY: the caller is the only thread, so that the child's copy of the process is whole.
    match unsafe { libc::fork() } {
        -1 => Err(Error::last("fork")),
        0 => {
            let code = catch_unwind(AssertUnwindSafe(work)).unwrap_or(PANICKED);
            // SAFETY: ends the process; nothing of the parent's copy is unwound or flushed.
            unsafe { libc::_exit(i32::from(code)) }
        }
        pid => Ok(pid as u32),
    }
}

/// Forks a child that writes to each page of `memory`, its own copy, and exits; waits for it: the cycle
/// of a short-lived process. Without memory it exits at once.
///
/// # Errors
///
/// EAGAIN when there may be no more processes.
pub fn fork_and_wait(memory: &mut [u8]) -> Result<(), Error> {
    let page_bytes = page_bytes();
    // SAFETY: the child only writes to memory and calls `_exit`, which is allowed whatever threads the
    // process has.
    let pid = unsafe { libc::fork() };
    if pid == 0 {
        for page in memory.chunks_mut(page_bytes) {
            std::hint::black_box(page)[0] = 1;
        }
        // SAFETY: ends the process.
        unsafe { libc::_exit(0) }
    }
    check(i64::from(pid), || "fork".to_owned())?;
    loop {
        // SAFETY: a null status is allowed.
        let answer = unsafe { libc::waitpid(pid, std::ptr::null_mut(), 0) };
        if answer != -1 {
            return Ok(());
        }
        let error = Error::last("waitpid");
        if error.errno() != Some(libc::EINTR) {
            return Err(error);
        }
    }
}

/// Takes note of a child that has ended. With `block` it waits for one, and `Running` is not an
/// answer.
#[must_use]
pub fn wait(children: Children, block: bool) -> Waited {
    let which = match children {
        Children::Any => -1,
        Children::Group(leader) => -(leader as libc::pid_t),
        Children::One(pid) => pid as libc::pid_t,
    };
    let flags = if block { 0 } else { libc::WNOHANG };
    loop {
        let mut status = 0;
        // SAFETY: the pointer is valid for one status.
        match unsafe { libc::waitpid(which, &raw mut status, flags) } {
            0 => return Waited::Running,
            -1 if std::io::Error::last_os_error().raw_os_error() == Some(libc::EINTR) => {}
            -1 => return Waited::NoChild,
            pid => return Waited::Ended(pid as u32, exit_of(status)),
        }
    }
}

fn exit_of(status: libc::c_int) -> Exit {
    match libc::WIFSIGNALED(status) {
        true => Exit::Signal(libc::WTERMSIG(status)),
        false => Exit::Code(libc::WEXITSTATUS(status)),
    }
}

/// Signals by their names, so that callers need no libc.
pub mod signal {
    pub const ALARM: i32 = libc::SIGALRM;
    pub const CHILD: i32 = libc::SIGCHLD;
    pub const HANG_UP: i32 = libc::SIGHUP;
    pub const INTERRUPT: i32 = libc::SIGINT;
    pub const KILL: i32 = libc::SIGKILL;
    pub const TERMINATE: i32 = libc::SIGTERM;
}

/// Gives the signals that end a process their default action and unblocks every signal: a parent's
/// choices are inherited, and a timer's SIGALRM must end a load whatever its parent chose.
pub fn default_signals() {
    let ending = [libc::SIGALRM, libc::SIGHUP, libc::SIGINT, libc::SIGTERM, libc::SIGCHLD];
    for number in ending {
        // SAFETY: the default action of a signal that exists.
        unsafe { libc::signal(number, libc::SIG_DFL) };
    }
    let mut none = MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: the set is emptied before it is used; a null old set is allowed.
    unsafe {
        libc::sigemptyset(none.as_mut_ptr());
        libc::sigprocmask(libc::SIG_SETMASK, none.as_ptr(), std::ptr::null_mut());
    }
}

fn set_of(signals: &[i32]) -> libc::sigset_t {
    let mut set = MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: the set is emptied before signals are added; a number that is no signal is refused.
    unsafe {
        libc::sigemptyset(set.as_mut_ptr());
        for number in signals {
            libc::sigaddset(set.as_mut_ptr(), *number);
        }
        set.assume_init()
    }
}

/// Holds signals back until [`next_signal`] takes them.
pub fn hold_signals(signals: &[i32]) {
    let set = set_of(signals);
    // SAFETY: the pointer is valid for one set; a null old set is allowed.
    unsafe { libc::sigprocmask(libc::SIG_BLOCK, &raw const set, std::ptr::null_mut()) };
}

/// Waits for one of the signals that are held back; `None` when the time has passed.
#[must_use]
pub fn next_signal(signals: &[i32], timeout: Duration) -> Option<i32> {
    let set = set_of(signals);
    let time = libc::timespec {
        tv_sec: libc::time_t::try_from(timeout.as_secs()).unwrap_or(libc::time_t::MAX),
        tv_nsec: timeout.subsec_nanos() as _,
    };
    // SAFETY: both pointers are valid for the call; null information is allowed.
    let number =
        unsafe { libc::sigtimedwait(&raw const set, std::ptr::null_mut(), &raw const time) };
    (number > 0).then_some(number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_with_threads_is_not_forked() {
        // The test harness runs each test in a thread of its own.
        let error = fork(|| 0).expect_err("refused");
        assert_eq!(error.errno(), Some(libc::EDEADLK));
    }

    #[test]
    fn a_short_lived_process_is_reaped() {
        let mut memory = [0; 10];
        fork_and_wait(&mut memory).expect("a process");
        assert_eq!(memory, [0; 10], "the child wrote to its own copy");
    }

    #[test]
    fn an_exit_is_told_from_a_signal() {
        assert_eq!(exit_of(3 << 8), Exit::Code(3));
        assert_eq!(exit_of(libc::SIGKILL), Exit::Signal(libc::SIGKILL));
    }
}
