//! Clocks that can be read and slept on. The sampler's loop is generic over [`Clock`], so that the
//! same loop runs on a simulated clock in the tests.

use std::{mem::MaybeUninit, ptr};

use rustix::time::ClockId;

use crate::error::{Error, check};

/// A clock with an epoch of its own, in nanoseconds.
pub trait Clock {
    fn now_ns(&self) -> u64;
    /// Sleeps until an instant. Returns at once when it has passed.
    fn sleep_until_ns(&self, instant_ns: u64);
    /// Sleeps for a duration from now.
    fn sleep_for_ns(&self, duration_ns: u64);
    /// As [`Clock::sleep_until_ns`], but a signal ends the sleep too; then the answer is true. A clock
    /// that no signal can reach sleeps to the end.
    #[inline]
    fn doze_until_ns(&self, instant_ns: u64) -> Interrupted {
        self.sleep_until_ns(instant_ns);
        false
    }
    /// As [`Clock::sleep_for_ns`], but a signal ends the sleep too; then the answer is true.
    #[inline]
    fn doze_for_ns(&self, duration_ns: u64) -> Interrupted {
        self.sleep_for_ns(duration_ns);
        false
    }
    /// The CPU that the caller runs on.
    fn cpu(&self) -> u32;
}

/// One of the kernel's clocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SystemClock(ClockId);

impl SystemClock {
    /// `CLOCK_MONOTONIC`.
    pub const MONOTONIC: SystemClock = SystemClock(ClockId::Monotonic);
    /// `CLOCK_REALTIME`.
    pub const REALTIME: SystemClock = SystemClock(ClockId::Realtime);
    /// `CLOCK_BOOTTIME`: as `CLOCK_MONOTONIC`, but it goes on while the machine is suspended.
    pub const BOOTTIME: SystemClock = SystemClock(ClockId::Boottime);
    /// `CLOCK_PROCESS_CPUTIME_ID`: CPU time of the calling process, all its threads together.
    pub const PROCESS_CPU: SystemClock = SystemClock(ClockId::ProcessCPUTime);

    const fn number(self) -> libc::clockid_t {
        self.0 as libc::clockid_t
    }

    /// The resolution that the kernel declares: 1 ns with high-resolution timers, a tick without.
    #[must_use]
    pub fn resolution_ns(self) -> u64 {
        let mut time = MaybeUninit::uninit();
        // SAFETY: the pointer is valid for one timespec, which the call fills; the clock exists, so
        // the call can't fail.
        unsafe {
            c::clock_getres(self.number(), time.as_mut_ptr());
            to_ns(time.assume_init())
        }
    }
}

/// The C library's calls with 64 bits of seconds. On 32-bit machines its plain names still have 32, in
/// which the wall clock ends in 2038; the wide ones are exported since glibc 2.34.
#[cfg(all(target_env = "gnu", target_arch = "arm"))]
mod c {
    use libc::{c_int, clockid_t, timer_t};

    /// `struct __timespec64`.
    #[repr(C)]
    pub(super) struct Timespec {
        pub(super) tv_sec: i64,
        pub(super) tv_nsec: i32,
        pub(super) padding: i32,
    }

    /// `struct __itimerspec64`.
    #[repr(C)]
    pub(super) struct Itimerspec {
        pub(super) it_interval: Timespec,
        pub(super) it_value: Timespec,
    }

    unsafe extern "C" {
        #[link_name = "__clock_gettime64"]
        pub(super) fn clock_gettime(clock: clockid_t, time: *mut Timespec) -> c_int;
        #[link_name = "__clock_getres64"]
        pub(super) fn clock_getres(clock: clockid_t, time: *mut Timespec) -> c_int;
        #[link_name = "__clock_nanosleep_time64"]
        pub(super) fn clock_nanosleep(
            clock: clockid_t,
            flags: c_int,
            time: *const Timespec,
            left: *mut Timespec,
        ) -> c_int;
        #[link_name = "__nanosleep64"]
        pub(super) fn nanosleep(time: *const Timespec, left: *mut Timespec) -> c_int;
        #[link_name = "__timer_settime64"]
        pub(super) fn timer_settime(
            timer: timer_t,
            flags: c_int,
            time: *const Itimerspec,
            old: *mut Itimerspec,
        ) -> c_int;
    }

    pub(super) const fn timespec(seconds: u64, nanoseconds: u32) -> Timespec {
        Timespec { tv_sec: seconds as i64, tv_nsec: nanoseconds as i32, padding: 0 }
    }
}

#[cfg(not(all(target_env = "gnu", target_arch = "arm")))]
mod c {
    pub(super) use libc::{
        clock_getres, clock_gettime, clock_nanosleep, itimerspec as Itimerspec, nanosleep,
        timer_settime, timespec as Timespec,
    };

    pub(super) const fn timespec(seconds: u64, nanoseconds: u32) -> Timespec {
        Timespec { tv_sec: seconds as libc::time_t, tv_nsec: nanoseconds as libc::c_long }
    }
}

const fn to_ns(time: c::Timespec) -> u64 {
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

const fn to_timespec(ns: u64) -> c::Timespec {
    c::timespec(ns / 1_000_000_000, (ns % 1_000_000_000) as u32)
}

/// Whether a signal ended a sleep before its time: [`crate::thread::wake`], or that the process was stopped
/// and continued.
pub type Interrupted = bool;

/// The kernel's call itself: the C library's is a place where a thread can be cancelled, which costs a wake-up
/// half as many instructions as all our own arithmetic.
#[cfg(target_pointer_width = "64")]
#[inline]
fn sleep_until(clock: SystemClock, ns: u64) -> Interrupted {
    let c::Timespec { tv_sec, tv_nsec, .. } = to_timespec(ns);
    let time = rustix::thread::Timespec { tv_sec, tv_nsec };
    rustix::thread::clock_nanosleep_absolute(clock.0, &time) == Err(rustix::io::Errno::INTR)
}

/// Kernels before 5.1 lack the call with 64 bits of seconds; the C library knows what to do then.
#[cfg(not(target_pointer_width = "64"))]
fn sleep_until(clock: SystemClock, ns: u64) -> Interrupted {
    sleep(clock, libc::TIMER_ABSTIME, ns)
}

fn sleep(clock: SystemClock, flags: libc::c_int, ns: u64) -> Interrupted {
    let time = to_timespec(ns);
    // SAFETY: both pointers are valid for the call; a null remainder is allowed.
    let answer =
        unsafe { c::clock_nanosleep(clock.number(), flags, &raw const time, ptr::null_mut()) };
    answer == libc::EINTR
}

impl Clock for SystemClock {
    #[inline]
    fn now_ns(&self) -> u64 {
        let mut time = MaybeUninit::uninit();
        // SAFETY: as in `resolution_ns`.
        unsafe {
            c::clock_gettime(self.number(), time.as_mut_ptr());
            to_ns(time.assume_init())
        }
    }

    #[inline]
    fn sleep_until_ns(&self, instant_ns: u64) {
        while sleep_until(*self, instant_ns) {}
    }

    #[inline]
    fn sleep_for_ns(&self, duration_ns: u64) {
        // It would start over, which is what "relative" means.
        while sleep(*self, 0, duration_ns) {}
    }

    #[inline]
    fn doze_until_ns(&self, instant_ns: u64) -> Interrupted {
        sleep_until(*self, instant_ns)
    }

    #[inline]
    fn doze_for_ns(&self, duration_ns: u64) -> Interrupted {
        sleep(*self, 0, duration_ns)
    }

    #[inline]
    fn cpu(&self) -> u32 {
        crate::sched::current_cpu()
    }
}

/// A clock on which relative sleeps are `nanosleep`: the call has no absolute form.
#[derive(Clone, Copy, Debug)]
pub struct NanosleepClock(pub SystemClock);

impl Clock for NanosleepClock {
    #[inline]
    fn now_ns(&self) -> u64 {
        self.0.now_ns()
    }

    #[inline]
    fn sleep_until_ns(&self, instant_ns: u64) {
        while self.doze_until_ns(instant_ns) {}
    }

    #[inline]
    fn sleep_for_ns(&self, duration_ns: u64) {
        while self.doze_for_ns(duration_ns) {}
    }

    #[inline]
    fn doze_until_ns(&self, instant_ns: u64) -> Interrupted {
        self.doze_for_ns(instant_ns.saturating_sub(self.0.now_ns()))
    }

    #[inline]
    fn doze_for_ns(&self, duration_ns: u64) -> Interrupted {
        let time = to_timespec(duration_ns);
        // SAFETY: the pointer is valid for the call; a null remainder is allowed. A duration is always
        // valid, so that only a signal makes it fail.
        unsafe { c::nanosleep(&raw const time, ptr::null_mut()) != 0 }
    }

    #[inline]
    fn cpu(&self) -> u32 {
        self.0.cpu()
    }
}

/// A clock on which a thread sleeps until a POSIX timer has sent it a signal (`timer_create`,
/// `sigwait`). It belongs to the thread that made it.
#[derive(Debug)]
pub struct TimerClock {
    clock: SystemClock,
    timer: libc::timer_t,
    signal: libc::sigset_t,
}

impl TimerClock {
    /// A timer of the calling thread, whose SIGALRM is blocked, and so is the signal of
    /// [`crate::thread::wake`]: the thread takes both as it waits.
    ///
    /// # Errors
    ///
    /// EAGAIN when the kernel has no timer left.
    pub fn new(clock: SystemClock) -> Result<TimerClock, Error> {
        // SAFETY: sigset_t and sigevent are plain integers; all zeroes is a value of them.
        let (mut signal, mut event): (libc::sigset_t, libc::sigevent) =
            unsafe { (std::mem::zeroed(), std::mem::zeroed()) };
        // SAFETY: the set is emptied before it is used; a null old set is allowed.
        unsafe {
            libc::sigemptyset(&raw mut signal);
            libc::sigaddset(&raw mut signal, libc::SIGALRM);
            libc::sigaddset(&raw mut signal, crate::thread::WAKE);
            libc::pthread_sigmask(libc::SIG_BLOCK, &raw const signal, ptr::null_mut());
        }
        event.sigev_notify = libc::SIGEV_THREAD_ID;
        event.sigev_signo = libc::SIGALRM;
        event.sigev_notify_thread_id = crate::thread::id();
        let mut timer = ptr::null_mut();
        // SAFETY: both pointers are valid for the call.
        let answer = unsafe { libc::timer_create(clock.number(), &raw mut event, &raw mut timer) };
        check(i64::from(answer), || "timer_create".to_owned())?;
        Ok(TimerClock { clock, timer, signal })
    }

    fn wait(&self, flags: libc::c_int, ns: u64) -> Interrupted {
        let time = c::Itimerspec {
            it_interval: to_timespec(0),
            // An expiry of 0 would switch the timer off.
            it_value: to_timespec(ns.max(1)),
        };
        let mut number = 0;
        // SAFETY: the timer is ours, and the pointers are valid for the calls. The signal is blocked
        // in this thread, so that it stays pending until it is taken here.
        unsafe {
            if c::timer_settime(self.timer, flags, &raw const time, ptr::null_mut()) == 0 {
                libc::sigwait(&raw const self.signal, &raw mut number);
            }
        }
        number == crate::thread::WAKE
    }
}

impl Drop for TimerClock {
    fn drop(&mut self) {
        // SAFETY: the timer is ours, and nobody uses it any more.
        unsafe { libc::timer_delete(self.timer) };
    }
}

impl Clock for TimerClock {
    #[inline]
    fn now_ns(&self) -> u64 {
        self.clock.now_ns()
    }

    #[inline]
    fn sleep_until_ns(&self, instant_ns: u64) {
        while self.doze_until_ns(instant_ns) {}
    }

    #[inline]
    fn sleep_for_ns(&self, duration_ns: u64) {
        while self.doze_for_ns(duration_ns) {}
    }

    #[inline]
    fn doze_until_ns(&self, instant_ns: u64) -> Interrupted {
        self.wait(libc::TIMER_ABSTIME, instant_ns)
    }

    #[inline]
    fn doze_for_ns(&self, duration_ns: u64) -> Interrupted {
        self.wait(0, duration_ns)
    }

    #[inline]
    fn cpu(&self) -> u32 {
        self.clock.cpu()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sleeper_can_be_woken() {
        a_signal_wakes(|| Ok(SystemClock::REALTIME));
        a_signal_wakes(|| Ok(NanosleepClock(SystemClock::MONOTONIC)));
        a_signal_wakes(|| TimerClock::new(SystemClock::MONOTONIC));
    }

    /// An hour's sleep of each kind ends by a signal, and says so.
    fn a_signal_wakes<C: Clock + 'static>(clock: fn() -> Result<C, Error>) {
        const HOUR_NS: u64 = 3_600_000_000_000;
        crate::thread::allow_wake();
        let (tell, told) = std::sync::mpsc::channel();
        let sleeper = std::thread::spawn(move || {
            crate::thread::block_signals();
            let clock = clock().expect("a clock");
            tell.send(crate::thread::id()).expect("a listener");
            clock.doze_until_ns(clock.now_ns() + HOUR_NS) && clock.doze_for_ns(HOUR_NS)
        });
        let tid = told.recv().expect("its number");
        while !sleeper.is_finished() {
            crate::thread::wake(tid);
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        assert!(sleeper.join().expect("ends"));
    }

    #[test]
    fn a_clock_never_wakes_a_sleeper_early() {
        let clock = SystemClock::MONOTONIC;
        never_early(&clock);
        never_early(&NanosleepClock(clock));
        never_early(&TimerClock::new(clock).expect("a timer"));
    }

    fn never_early(clock: &impl Clock) {
        let until = clock.now_ns() + 2_000_000;
        clock.sleep_until_ns(until);
        assert!(clock.now_ns() >= until);
        let before = clock.now_ns();
        clock.sleep_for_ns(1_000_000);
        assert!(clock.now_ns() >= before + 1_000_000);
    }
}
