//! A ring that the kernel and one thread share (`linux/if_xdp.h`): one of them writes entries, the other takes them.

use std::{
    os::fd::{AsRawFd, BorrowedFd},
    ptr::NonNull,
    sync::atomic::{AtomicU32, Ordering::*},
};

use crate::error::Error;

/// One of the four rings of a socket.
#[derive(Debug)]
pub(super) struct Ring {
    memory: NonNull<u8>,
    len: usize,
    /// Places within the memory.
    producer: usize,
    consumer: usize,
    entries: usize,
    mask: u32,
}

// SAFETY: the memory belongs to the value alone, besides the kernel; both counters are reached through atomics.
unsafe impl Send for Ring {}

impl Ring {
    /// Maps a ring with so many entries, a power of two, of so many bytes each.
    pub(super) fn map(
        socket: BorrowedFd<'_>,
        offsets: &libc::xdp_ring_offset,
        count: u32,
        entry_bytes: usize,
        page_offset: u64,
    ) -> Result<Ring, Error> {
        let len = offsets.desc as usize + count as usize * entry_bytes;
        // SAFETY: a new mapping at an address of the kernel's choice.
        let address = unsafe {
            libc::mmap64(
                std::ptr::null_mut(),
                len,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED | libc::MAP_POPULATE,
                socket.as_raw_fd(),
                page_offset as i64,
            )
        };
        match NonNull::new(address.cast()) {
            Some(memory) if address != libc::MAP_FAILED => Ok(Ring {
                memory,
                len,
                producer: offsets.producer as usize,
                consumer: offsets.consumer as usize,
                entries: offsets.desc as usize,
                mask: count - 1,
            }),
            _ => Err(Error::last("map a ring of an AF_XDP socket")),
        }
    }

    fn counter(&self, at: usize) -> &AtomicU32 {
        // SAFETY: the kernel says that an aligned counter is at this place of the mapping, which lives as long as the
        // value; the kernel changes it, so it is only reached as an atomic.
        unsafe { &*self.memory.as_ptr().add(at).cast::<AtomicU32>() }
    }

    fn entry<T>(&self, index: u32) -> *mut T {
        let at = self.entries + (index & self.mask) as usize * size_of::<T>();
        debug_assert!(at + size_of::<T>() <= self.len);
        // SAFETY: masked, the index lies within the mapping.
        unsafe { self.memory.as_ptr().add(at).cast() }
    }

    /// Writes the next entry and shows it to the kernel. False when there is no room.
    #[inline]
    pub(super) fn put<T: Copy>(&mut self, entry: T) -> bool {
        let next = self.counter(self.producer).load(Relaxed);
        // The kernel has read what it has consumed, so that the place may be written again.
        let taken = self.counter(self.consumer).load(Acquire);
        if next.wrapping_sub(taken) > self.mask {
            return false;
        }
        // SAFETY: the entry is ours until the producer counter passes it, and no other thread has this ring.
        unsafe { self.entry::<T>(next).write(entry) };
        self.counter(self.producer).store(next.wrapping_add(1), Release);
        true
    }

    /// Takes the next entry that the kernel has written.
    #[inline]
    pub(super) fn take<T: Copy>(&mut self) -> Option<T> {
        let next = self.counter(self.consumer).load(Relaxed);
        if next == self.counter(self.producer).load(Acquire) {
            return None;
        }
        // SAFETY: the kernel has written the entry before it showed it, and leaves it until it is consumed.
        let entry = unsafe { self.entry::<T>(next).read() };
        self.counter(self.consumer).store(next.wrapping_add(1), Release);
        Some(entry)
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours, and no reference into it outlives `self`.
        unsafe { libc::munmap(self.memory.as_ptr().cast(), self.len) };
    }
}
