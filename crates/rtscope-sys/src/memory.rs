//! Keeping memory where it is, so that a real-time loop never waits for a page.

use std::hint::black_box;

use crate::error::{Error, check};

/// Locks every page the process has and will have (`mlockall`).
///
/// # Errors
///
/// EPERM or ENOMEM when `RLIMIT_MEMLOCK` is too small.
pub fn lock_all() -> Result<(), Error> {
    // SAFETY: no memory is passed.
    let answer = unsafe { libc::mlockall(libc::MCL_CURRENT | libc::MCL_FUTURE) };
    check(i64::from(answer), || "mlockall".to_owned()).map(drop)
}

pub fn unlock_all() {
    // SAFETY: no memory is passed; unlocking can't fail.
    unsafe { libc::munlockall() };
}

/// How much stack [`prefault_stack`] touches.
pub const STACK_PREFAULT_BYTES: usize = 64 * 1024;

/// Touches the stack below the caller, so that no later call of up to [`STACK_PREFAULT_BYTES`] deep
/// faults a page in.
#[inline(never)]
pub fn prefault_stack() {
    let mut bytes = [0u8; STACK_PREFAULT_BYTES];
    for page in bytes.chunks_mut(4096) {
        page[0] = 1;
    }
    black_box(&bytes);
}

/// Gives pages that were freed back to the kernel, so that locked memory stays small.
pub fn trim() {
    #[cfg(target_env = "gnu")]
    // SAFETY: no memory is passed.
    unsafe {
        libc::malloc_trim(0);
    }
}

/// Keeps the allocator from making an arena (64 MiB of address space) for each thread and from
/// giving memory back while locked: fewer, earlier page faults.
pub fn single_arena() {
    #[cfg(target_env = "gnu")]
    // SAFETY: plain parameters of the allocator.
    unsafe {
        libc::mallopt(libc::M_ARENA_MAX, 1);
    }
}
