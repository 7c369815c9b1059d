//! The calling thread: its number, its signals, what it has used; and what the kernel's scheduler says of any.

use std::mem::MaybeUninit;

/// What a thread has used so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// CPU time, user and system.
    pub cpu_ns: u64,
    /// Page faults without I/O.
    pub minor_faults: u64,
    /// Page faults with I/O.
    pub major_faults: u64,
    /// Times it went to sleep.
    pub voluntary_switches: u64,
    /// Times it was preempted.
    pub involuntary_switches: u64,
}

/// What a thread's `schedstat` says (`/proc/PID/task/TID/schedstat`). Without `CONFIG_SCHED_INFO`, all of it is 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SchedStat {
    /// Time on a CPU.
    pub ran_ns: u64,
    /// Time in which it was ready to run, and waited for a CPU.
    pub queued_ns: u64,
}

impl SchedStat {
    /// Reads the file's text; none where it isn't one.
    #[must_use]
    pub fn parse(text: &str) -> Option<SchedStat> {
        let mut numbers = text.split_whitespace().map(|word| word.parse().ok());
        Some(SchedStat { ran_ns: numbers.next()??, queued_ns: numbers.next()?? })
    }
}

/// The kernel's number of the calling thread.
#[must_use]
pub fn id() -> i32 {
    // SAFETY: no argument, no memory.
    unsafe { libc::gettid() }
}

/// What the calling thread has used (`getrusage(RUSAGE_THREAD)`; CPU time by the thread's own clock,
/// which counts nanoseconds).
#[must_use]
pub fn usage() -> Usage {
    let mut usage = MaybeUninit::<libc::rusage>::uninit();
    let mut time = MaybeUninit::<libc::timespec>::uninit();
    // SAFETY: both pointers are valid for what the calls fill, and neither call can fail for the
    // calling thread.
    let (usage, time) = unsafe {
        libc::getrusage(libc::RUSAGE_THREAD, usage.as_mut_ptr());
        libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, time.as_mut_ptr());
        (usage.assume_init(), time.assume_init())
    };
    Usage {
        cpu_ns: time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64,
        minor_faults: counted(usage.ru_minflt),
        major_faults: counted(usage.ru_majflt),
        voluntary_switches: counted(usage.ru_nvcsw),
        involuntary_switches: counted(usage.ru_nivcsw),
    }
}

/// The kernel counts in an `unsigned long`, but the C library's type is signed. On a 32-bit board, the count of a long
/// run would turn negative. Later, it wraps around.
fn counted(count: libc::c_long) -> u64 {
    count as libc::c_ulong as _
}

fn since(count: u64, earlier: u64) -> u64 {
    (count as libc::c_ulong).wrapping_sub(earlier as libc::c_ulong) as _
}

impl std::ops::Sub for Usage {
    type Output = Usage;

    fn sub(self, earlier: Usage) -> Usage {
        Usage {
            cpu_ns: self.cpu_ns - earlier.cpu_ns,
            minor_faults: since(self.minor_faults, earlier.minor_faults),
            major_faults: since(self.major_faults, earlier.major_faults),
            voluntary_switches: since(self.voluntary_switches, earlier.voluntary_switches),
            involuntary_switches: since(self.involuntary_switches, earlier.involuntary_switches),
        }
    }
}

/// The signal of [`wake`]: one that nobody else sends, and whose default is to be ignored.
pub(crate) const WAKE: i32 = libc::SIGURG;

/// Makes [`wake`] end sleeps: a signal that is ignored would not. For the whole process, once.
pub fn allow_wake() {
    extern "C" fn nothing(_: libc::c_int) {}
    // SAFETY: sigaction is plain integers and a pointer; all zeroes is a value of it, without
    // SA_RESTART.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    action.sa_sigaction = nothing as *const () as libc::sighandler_t;
    // SAFETY: the handler does nothing; a null old action is allowed.
    unsafe { libc::sigaction(WAKE, &raw const action, std::ptr::null_mut()) };
}

/// Ends the sleep that a thread of this process is in, if it sleeps. One that is about to sleep is not
/// reached: whoever must wake it tries again. False when the thread is gone.
pub fn wake(tid: i32) -> bool {
    // SAFETY: plain integers; the thread is looked for in this process alone.
    unsafe { libc::syscall(libc::SYS_tgkill, libc::getpid(), tid, WAKE) == 0 }
}

/// Blocks every signal in the calling thread but SIGXCPU and that of [`wake`], so that signals go to the
/// control thread and only a thread that runs too long hears of it itself. What the thread has inherited doesn't
/// count: its parent may have blocked SIGXCPU ([`leave_cpu_limit_to_others`]).
pub fn block_signals() {
    let mut all = MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: the set is filled before it is used; a null old set is allowed.
    unsafe {
        libc::sigfillset(all.as_mut_ptr());
        libc::sigdelset(all.as_mut_ptr(), libc::SIGXCPU);
        libc::sigdelset(all.as_mut_ptr(), WAKE);
        libc::pthread_sigmask(libc::SIG_SETMASK, all.as_ptr(), std::ptr::null_mut());
    }
}

/// Blocks SIGXCPU in the calling thread: a control thread that is starved could not handle it, so
/// it must go to the threads that run.
pub fn leave_cpu_limit_to_others() {
    let mut one = MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: the set is filled before it is used; a null old set is allowed.
    unsafe {
        libc::sigemptyset(one.as_mut_ptr());
        libc::sigaddset(one.as_mut_ptr(), libc::SIGXCPU);
        libc::pthread_sigmask(libc::SIG_BLOCK, one.as_ptr(), std::ptr::null_mut());
    }
}

/// Sets the timer slack of the calling thread: how late the kernel may be on purpose, for threads of
/// the fair class (`prctl(PR_SET_TIMERSLACK)`; 50 us by default, real-time threads have none).
pub fn set_timer_slack_ns(slack_ns: u64) {
    // SAFETY: plain integers.
    unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, slack_ns as libc::c_ulong) };
}
