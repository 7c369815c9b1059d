//! The calling thread: its number, its signals, what it has used.

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
        minor_faults: usage.ru_minflt as u64,
        major_faults: usage.ru_majflt as u64,
        voluntary_switches: usage.ru_nvcsw as u64,
        involuntary_switches: usage.ru_nivcsw as u64,
    }
}

impl std::ops::Sub for Usage {
    type Output = Usage;

    fn sub(self, earlier: Usage) -> Usage {
        Usage {
            cpu_ns: self.cpu_ns - earlier.cpu_ns,
            minor_faults: self.minor_faults - earlier.minor_faults,
            major_faults: self.major_faults - earlier.major_faults,
            voluntary_switches: self.voluntary_switches - earlier.voluntary_switches,
            involuntary_switches: self.involuntary_switches - earlier.involuntary_switches,
        }
    }
}

/// Blocks every signal in the calling thread but SIGXCPU, so that signals go to the control thread
/// and only a thread that runs too long hears of it itself.
pub fn block_signals() {
    let mut all = MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: the set is filled before it is used; a null old set is allowed.
    unsafe {
        libc::sigfillset(all.as_mut_ptr());
        libc::sigdelset(all.as_mut_ptr(), libc::SIGXCPU);
        libc::pthread_sigmask(libc::SIG_BLOCK, all.as_ptr(), std::ptr::null_mut());
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
