//! Memory straight from the kernel and back to it, past the allocator, and writing all files out.

use std::ptr::NonNull;

use crate::error::Error;

/// Anonymous memory of the kernel's (`mmap`), all 0, given back when dropped. A page of it exists
/// from when it is first touched.
#[derive(Debug)]
pub struct Pages {
    memory: NonNull<u8>,
    len: usize,
}

// SAFETY: the mapping belongs to the value alone, and is reached through a reference to it.
unsafe impl Send for Pages {}

impl Pages {
    /// Maps memory; `len` bytes, at least 1.
    ///
    /// # Errors
    ///
    /// ENOMEM when there is not so much address space, or the kernel doesn't overcommit.
    pub fn map(len: usize) -> Result<Pages, Error> {
        // SAFETY: a new private mapping at an address of the kernel's choice.
        let address = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                len,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
                -1,
                0,
            )
        };
        match NonNull::new(address.cast()) {
            Some(memory) if address != libc::MAP_FAILED => Ok(Pages { memory, len }),
            _ => Err(Error::last(format!("mmap {len} bytes"))),
        }
    }

    pub fn as_mut_slice(&mut self) -> &mut [u8] {
        // SAFETY: the mapping is `len` bytes of zeroes that only this value reaches, and lives as
        // long as it.
        unsafe { std::slice::from_raw_parts_mut(self.memory.as_ptr(), self.len) }
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours, and no reference into it outlives `self`.
        unsafe { libc::munmap(self.memory.as_ptr().cast(), self.len) };
    }
}

#[must_use]
pub fn page_bytes() -> usize {
    // SAFETY: plain integers.
    let bytes = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    usize::try_from(bytes).ok().filter(|bytes| *bytes > 0).unwrap_or(4096)
}

/// Writes what all file systems hold in memory to their disks, and waits for it (`sync`).
pub fn sync_all_files() {
    // SAFETY: no argument, no memory.
    unsafe { libc::sync() };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_are_empty_and_writable() {
        let mut pages = Pages::map(3 * page_bytes()).expect("memory");
        let slice = pages.as_mut_slice();
        assert_eq!(slice.len(), 3 * page_bytes());
        assert!(slice.iter().all(|byte| *byte == 0));
        slice.fill(7);
        drop(pages);
        assert!(Pages::map(usize::MAX / 2).is_err());
    }
}
