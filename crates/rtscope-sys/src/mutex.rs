//! A mutex with or without priority inheritance, which the standard library's has not.

use std::{cell::UnsafeCell, fmt, io, mem::MaybeUninit};

use crate::Error;

/// A mutex of the C library that guards nothing but the order of threads.
pub struct Mutex(Box<UnsafeCell<libc::pthread_mutex_t>>);

// SAFETY: a pthread mutex is made to be used by many threads; its memory stays where it is.
unsafe impl Sync for Mutex {}
// SAFETY: it belongs to no thread while it is not locked, and a lock can't be sent.
unsafe impl Send for Mutex {}

impl fmt::Debug for Mutex {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Mutex")
    }
}

/// The mutex is held until this is dropped, by the thread that took it.
#[derive(Debug)]
#[must_use = "dropping it lets the mutex go"]
pub struct HeldMutex<'a> {
    mutex: &'a Mutex,
    /// A raw pointer keeps it in its thread.
    _thread: std::marker::PhantomData<*const ()>,
}

impl Mutex {
    /// A mutex. With inheritance its holder runs with the highest priority of those that wait.
    ///
    /// # Errors
    ///
    /// ENOTSUP where the kernel has no priority inheritance.
    pub fn new(inherits: bool) -> Result<Mutex, Error> {
        let checked = |answer| checked(answer, "pthread_mutex_init");
        let mut attributes = MaybeUninit::<libc::pthread_mutexattr_t>::uninit();
        let protocol = if inherits { libc::PTHREAD_PRIO_INHERIT } else { libc::PTHREAD_PRIO_NONE };
        let mutex = Mutex(Box::new(UnsafeCell::new(libc::PTHREAD_MUTEX_INITIALIZER)));
        let kind = libc::PTHREAD_MUTEX_ERRORCHECK;
        // SAFETY: the attributes are initialised before they are used and destroyed afterwards; the
        // mutex is used by nobody yet.
        unsafe {
            checked(libc::pthread_mutexattr_init(attributes.as_mut_ptr()))?;
            let set =
                checked(libc::pthread_mutexattr_setprotocol(attributes.as_mut_ptr(), protocol));
            let typed = set.and_then(|()| {
                checked(libc::pthread_mutexattr_settype(attributes.as_mut_ptr(), kind))
            });
            let made = typed.and_then(|()| {
                checked(libc::pthread_mutex_init(mutex.0.get(), attributes.as_ptr()))
            });
            libc::pthread_mutexattr_destroy(attributes.as_mut_ptr());
            made?;
        }
        Ok(mutex)
    }

    /// Waits for the mutex and takes it.
    ///
    /// # Errors
    ///
    /// EDEADLK when the thread holds it already; with inheritance also what the kernel answers, which
    /// keeps the chain of waiting threads.
    pub fn lock(&self) -> Result<HeldMutex<'_>, Error> {
        // SAFETY: the mutex is initialised, and of the kind that checks who holds it.
        let answer = unsafe { libc::pthread_mutex_lock(self.0.get()) };
        checked(answer, "pthread_mutex_lock")?;
        Ok(HeldMutex { mutex: self, _thread: std::marker::PhantomData })
    }
}

/// The answer of a call that gives its error number, or 0.
fn checked(answer: i32, call: &str) -> Result<(), Error> {
    match answer {
        0 => Ok(()),
        number => {
            let source = io::Error::from_raw_os_error(number);
            Err(Error::Call { call: call.to_owned(), source })
        }
    }
}

impl Drop for HeldMutex<'_> {
    fn drop(&mut self) {
        // SAFETY: this thread holds it.
        unsafe { libc::pthread_mutex_unlock(self.mutex.0.get()) };
    }
}

impl Drop for Mutex {
    fn drop(&mut self) {
        // SAFETY: nobody holds it: that would borrow it.
        unsafe { libc::pthread_mutex_destroy(self.0.get()) };
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

    use super::*;

    #[test]
    fn one_thread_at_a_time_holds_it() {
        for inherits in [false, true] {
            let mutex = Mutex::new(inherits).expect("a mutex");
            let (inside, most) = (AtomicU32::new(0), AtomicU32::new(0));
            std::thread::scope(|scope| {
                for _ in 0..3 {
                    scope.spawn(|| {
                        for _ in 0..200 {
                            let _held = mutex.lock().expect("nobody fails");
                            most.fetch_max(inside.fetch_add(1, Relaxed) + 1, Relaxed);
                            std::thread::yield_now();
                            inside.fetch_sub(1, Relaxed);
                        }
                    });
                }
            });
            assert_eq!((inside.into_inner(), most.into_inner()), (0, 1));
        }
    }

    #[test]
    fn a_lock_that_fails_is_an_error() {
        for inherits in [false, true] {
            let mutex = Mutex::new(inherits).expect("a mutex");
            let held = mutex.lock().expect("free");
            let error = mutex.lock().expect_err("this thread holds it");
            assert_eq!(error.errno(), Some(libc::EDEADLK), "{error}");
            drop(held);
            drop(mutex.lock().expect("free again"));
        }
    }
}
