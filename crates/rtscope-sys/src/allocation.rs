//! An allocator that counts, to prove that a loop doesn't allocate.

use std::{
    alloc::{GlobalAlloc, Layout, System},
    cell::Cell,
};

/// The system's allocator with a count of each thread's calls. Make it the `#[global_allocator]` of
/// a test program.
#[derive(Clone, Copy, Debug, Default)]
pub struct CountingAllocator;

thread_local! {
    // Constant and without a destructor, so that reaching it doesn't allocate.
    static CALLS: Cell<u64> = const { Cell::new(0) };
}

impl CountingAllocator {
    /// How often the calling thread has allocated, grown or freed memory.
    #[must_use]
    pub fn calls() -> u64 {
        CALLS.with(Cell::get)
    }
}

fn count() {
    CALLS.with(|calls| calls.set(calls.get() + 1));
}

// SAFETY: every call is passed on unchanged to the system's allocator.
unsafe impl GlobalAlloc for CountingAllocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count();
        // SAFETY: the caller keeps the contract, which is the same.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        count();
        // SAFETY: as above.
        unsafe { System.dealloc(memory, layout) }
    }

    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count();
        // SAFETY: as above.
        unsafe { System.realloc(memory, layout, size) }
    }
}
