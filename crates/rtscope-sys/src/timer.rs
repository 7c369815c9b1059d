//! Timers of the kernel behind file descriptors: periodic ones, waiting for many of them at once, and a
//! clock that sleeps by one.

use std::{
    fs::File,
    io::Read,
    os::fd::{AsRawFd, FromRawFd, OwnedFd},
    time::Duration,
};

use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
    timerfd_settime,
};

use crate::{
    clock::{Clock, SystemClock},
    error::{Error, check},
};

/// A periodic timer (`timerfd`, `CLOCK_MONOTONIC`).
#[derive(Debug)]
pub struct PeriodicTimer(File);

impl PeriodicTimer {
    /// A timer that first expires after `first` and then every `interval`. Both are at least 1 ns.
    ///
    /// # Errors
    ///
    /// EMFILE when the process may open no more files.
    pub fn start(first: Duration, interval: Duration) -> Result<PeriodicTimer, Error> {
        let flags = libc::TFD_NONBLOCK | libc::TFD_CLOEXEC;
        // SAFETY: plain integers.
        let fd = unsafe { libc::timerfd_create(libc::CLOCK_MONOTONIC, flags) };
        check(i64::from(fd), || "timerfd_create".to_owned())?;
        // SAFETY: the descriptor is new and ours.
        let file = File::from(unsafe { OwnedFd::from_raw_fd(fd) });
        let time = libc::itimerspec {
            it_interval: to_timespec(interval),
            // A first expiry of 0 would switch the timer off.
            it_value: to_timespec(first.max(Duration::from_nanos(1))),
        };
        // SAFETY: the pointer is valid for one itimerspec; a null old value is allowed.
        let answer = unsafe { libc::timerfd_settime(fd, 0, &raw const time, std::ptr::null_mut()) };
        check(i64::from(answer), || "timerfd_settime".to_owned())?;
        Ok(PeriodicTimer(file))
    }

    /// Takes an expiry, and starts the timer again. False when there was none.
    ///
    /// The kernel counts the periods that pass before the timer is read, but its interrupt comes
    /// once only until then: one reading is one expiry.
    #[must_use]
    pub fn take(&self) -> bool {
        let mut periods = [0; 8];
        (&self.0).read_exact(&mut periods).is_ok()
    }
}

fn to_timespec(time: Duration) -> libc::timespec {
    libc::timespec { tv_sec: time.as_secs() as libc::time_t, tv_nsec: time.subsec_nanos() as _ }
}

/// `CLOCK_MONOTONIC`, on which a thread sleeps by reading a timer (`timerfd`) that is armed once for each
/// sleep: at an absolute instant where one is asked for.
#[derive(Debug)]
pub struct TimerfdClock(File);

impl TimerfdClock {
    /// A clock with a timer of its own.
    ///
    /// # Errors
    ///
    /// EMFILE when the process may open no more files.
    pub fn new() -> Result<TimerfdClock, Error> {
        let fd = timerfd_create(TimerfdClockId::Monotonic, TimerfdFlags::CLOEXEC);
        let fd =
            fd.map_err(|e| Error::Call { call: "timerfd_create".to_owned(), source: e.into() })?;
        Ok(TimerfdClock(File::from(fd)))
    }

    fn wait(&self, flags: TimerfdTimerFlags, ns: u64) {
        // A first expiry of 0 would switch the timer off.
        let ns = ns.max(1);
        let once = Itimerspec {
            it_interval: Timespec { tv_sec: 0, tv_nsec: 0 },
            it_value: Timespec {
                tv_sec: (ns / 1_000_000_000) as i64,
                tv_nsec: (ns % 1_000_000_000) as _,
            },
        };
        let mut periods = [0; 8];
        if timerfd_settime(&self.0, flags, &once).is_ok() {
            // `read_exact` goes on after a signal.
            let _ = (&self.0).read_exact(&mut periods);
        }
    }
}

impl Clock for TimerfdClock {
    fn now_ns(&self) -> u64 {
        SystemClock::MONOTONIC.now_ns()
    }

    fn sleep_until_ns(&self, instant_ns: u64) {
        self.wait(TimerfdTimerFlags::ABSTIME, instant_ns);
    }

    fn sleep_for_ns(&self, duration_ns: u64) {
        self.wait(TimerfdTimerFlags::empty(), duration_ns);
    }

    fn cpu(&self) -> u32 {
        SystemClock::MONOTONIC.cpu()
    }
}

/// Waits for many timers (`epoll`).
#[derive(Debug)]
pub struct TimerWait(OwnedFd);

impl TimerWait {
    /// How many timers one waiting tells of.
    pub const AT_ONCE: usize = 64;

    /// Waits for nothing yet.
    ///
    /// # Errors
    ///
    /// EMFILE when the process may open no more files.
    pub fn new() -> Result<TimerWait, Error> {
        // SAFETY: plain integers.
        let fd = unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) };
        check(i64::from(fd), || "epoll_create1".to_owned())?;
        // SAFETY: the descriptor is new and ours.
        Ok(TimerWait(unsafe { OwnedFd::from_raw_fd(fd) }))
    }

    /// Waits for this timer too; `name` is what [`TimerWait::wait`] will call it.
    ///
    /// # Errors
    ///
    /// ENOSPC when the user may watch no more files.
    pub fn add(&self, timer: &PeriodicTimer, name: usize) -> Result<(), Error> {
        let mut event = libc::epoll_event { events: libc::EPOLLIN as u32, u64: name as u64 };
        let (epoll, file) = (self.0.as_raw_fd(), timer.0.as_raw_fd());
        // SAFETY: the pointer is valid for one event, which the kernel copies.
        let answer = unsafe { libc::epoll_ctl(epoll, libc::EPOLL_CTL_ADD, file, &raw mut event) };
        check(i64::from(answer), || "epoll_ctl".to_owned()).map(drop)
    }

    /// Waits until timers have expired, and hands on the names of up to [`TimerWait::AT_ONCE`].
    pub fn wait(&self, mut expired: impl FnMut(usize)) {
        let mut events = [libc::epoll_event { events: 0, u64: 0 }; TimerWait::AT_ONCE];
        let room = TimerWait::AT_ONCE as libc::c_int;
        // SAFETY: the pointer is valid for as many events as are asked for.
        let count = unsafe { libc::epoll_wait(self.0.as_raw_fd(), events.as_mut_ptr(), room, -1) };
        // An interrupted waiting tells of none.
        for event in &events[..usize::try_from(count).unwrap_or(0)] {
            expired(event.u64 as usize);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_timer_sleeps_until_its_instant_and_not_longer_when_that_has_passed() {
        let clock = TimerfdClock::new().expect("a descriptor");
        let until_ns = clock.now_ns() + 2_000_000;
        clock.sleep_until_ns(until_ns);
        assert!(clock.now_ns() >= until_ns);
        clock.sleep_until_ns(until_ns);
        clock.sleep_until_ns(0);
        let begin_ns = clock.now_ns();
        clock.sleep_for_ns(1_000_000);
        assert!(clock.now_ns() >= begin_ns + 1_000_000);
    }

    #[test]
    fn the_timer_that_expired_is_named() {
        let wait = TimerWait::new().expect("descriptors");
        let hour = Duration::from_secs(3600);
        let never = PeriodicTimer::start(hour, hour).expect("a timer");
        let soon = PeriodicTimer::start(Duration::ZERO, hour).expect("a timer");
        wait.add(&never, 3).expect("room");
        wait.add(&soon, 7).expect("room");
        let mut names = Vec::new();
        wait.wait(|name| names.push(name));
        assert_eq!(names, [7]);
        assert!(soon.take() && !soon.take() && !never.take());
    }
}
