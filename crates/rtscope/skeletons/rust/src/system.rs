//! What the standard library doesn't have. The only unsafe code.

use std::io;

const NS_PER_S: i64 = 1_000_000_000;

/// More stack than the loop and what it calls will ever use.
const STACK_BYTES: usize = 256 * 1024;

/// A scheduling policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Policy {
    Fifo,
    Rr,
    Other,
}

const PERMISSION: &str = "\nTo get permission: run it as root; or
  sudo setcap cap_sys_nice,cap_ipc_lock+ep target/release/skeleton_name
or lines in /etc/security/limits.d for your user, and a new login:
  USER - rtprio 98
  USER - memlock unlimited
To try it without: --policy other.";

/// What the kernel refused, and what to do about it.
fn check(answer: i32, what: &str) -> Result<(), String> {
    if answer == 0 {
        return Ok(());
    }
    let error = io::Error::last_os_error();
    let lacks_permission = matches!(
        error.raw_os_error(),
        Some(libc::EPERM | libc::ENOMEM | libc::EAGAIN)
    );
    Err(format!(
        "{what}: {error}{}",
        if lacks_permission { PERMISSION } else { "" }
    ))
}

/// The monotonic clock.
pub fn now_ns() -> i64 {
    let mut now = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: the pointer is valid for one timespec.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut now) };
    now.tv_sec as i64 * NS_PER_S + now.tv_nsec as i64
}

/// Sleeps until an instant of the monotonic clock; false when a signal came first.
pub fn sleep_until(instant_ns: i64) -> bool {
    let until = libc::timespec {
        tv_sec: (instant_ns / NS_PER_S) as _,
        tv_nsec: (instant_ns % NS_PER_S) as _,
    };
    let (clock, flags) = (libc::CLOCK_MONOTONIC, libc::TIMER_ABSTIME);
    // SAFETY: the pointer is valid for one timespec; an absolute sleep leaves no rest.
    unsafe { libc::clock_nanosleep(clock, flags, &until, std::ptr::null_mut()) == 0 }
}

/// Calls a function at signals; it may only do what a signal handler may. A sleep then ends.
pub fn on_signals(numbers: &[i32], handler: extern "C" fn(i32)) {
    for number in numbers {
        // SAFETY: all zeroes is a value of sigaction: no flags, an empty mask.
        let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
        action.sa_sigaction = handler as *const () as usize;
        // SAFETY: the pointer is valid for one sigaction; a null old value is allowed.
        unsafe { libc::sigaction(*number, &action, std::ptr::null_mut()) };
    }
}

/// Locks all memory that the process has and will have.
pub fn lock_memory() -> Result<(), String> {
    // SAFETY: plain integers.
    let answer = unsafe { libc::mlockall(libc::MCL_CURRENT | libc::MCL_FUTURE) };
    check(answer, "can't lock memory")
}

/// Touches the stack that the loop will use: locked memory still is faulted in at its first use.
#[inline(never)]
pub fn prefault_stack() {
    let mut bytes = [0_u8; STACK_BYTES];
    for byte in bytes.iter_mut().step_by(1024) {
        *byte = 1;
    }
    std::hint::black_box(&bytes);
}

/// Keeps the calling thread on a CPU.
pub fn run_on(cpu: usize) -> Result<(), String> {
    // SAFETY: all zeroes is an empty set; the CPU is below CPU_SETSIZE by the options' range.
    let answer = unsafe {
        let mut cpus: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(cpu, &mut cpus);
        libc::sched_setaffinity(0, std::mem::size_of_val(&cpus), &cpus)
    };
    check(answer, &format!("can't run on CPU {cpu}"))
}

/// Gives the calling thread a policy and a priority.
pub fn run_as(policy: Policy, priority: i32) -> Result<(), String> {
    let (number, name) = match policy {
        Policy::Fifo => (libc::SCHED_FIFO, "fifo"),
        Policy::Rr => (libc::SCHED_RR, "rr"),
        Policy::Other => (libc::SCHED_OTHER, "other"),
    };
    // SAFETY: all zeroes is a value of sched_param; the pointer is valid for one.
    let answer = unsafe {
        let mut param: libc::sched_param = std::mem::zeroed();
        param.sched_priority = priority;
        libc::sched_setscheduler(0, number, &param)
    };
    check(answer, &format!("can't run as {name} {priority}"))
}
