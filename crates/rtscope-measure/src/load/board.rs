//! What a load's processes and the control thread share: the load's state, its work, and why it
//! failed.
//!
//! Everything is an atomic in shared memory, so that the control thread reads whenever it likes and
//! neither side waits for the other, even when one of them is killed.

use std::{
    os::fd::OwnedFd,
    sync::atomic::{
        AtomicU64,
        Ordering::{AcqRel, Acquire, Relaxed, Release},
    },
};

use rtscope_sys::shared::SharedCounters;

/// Words in a cache line of 64 bytes.
const LINE: usize = 8;

/// How many counters of work there are. Workers beyond that share one.
const COUNTERS: usize = 256;

/// Words of the text that says why the load failed.
const TEXT: usize = 64;

const STATE: usize = 0;
const PLACED: usize = 1;
const TEXT_TAKEN: usize = 2;
const TEXT_LEN: usize = 3;
const TOOK: usize = 4;
const TEXT_START: usize = LINE;
const COUNTERS_START: usize = TEXT_START + TEXT;
const WORDS: usize = COUNTERS_START + COUNTERS * LINE;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    Starting = 0,
    Working = 1,
    Done = 2,
    Failed = 3,
}

/// The shared memory of one load.
#[derive(Debug)]
pub(super) struct Board(SharedCounters);

impl Board {
    pub(super) fn new() -> Result<Board, rtscope_sys::Error> {
        SharedCounters::new(WORDS).map(Board)
    }

    pub(super) fn from_file(file: OwnedFd) -> Result<Board, rtscope_sys::Error> {
        SharedCounters::from_file(file, WORDS).map(Board)
    }

    pub(super) fn file(&self) -> &OwnedFd {
        self.0.file()
    }

    fn word(&self, index: usize) -> &AtomicU64 {
        &self.0.as_slice()[index]
    }

    pub(super) fn state(&self) -> State {
        match self.word(STATE).load(Acquire) {
            0 => State::Starting,
            1 => State::Working,
            2 => State::Done,
            _ => State::Failed,
        }
    }

    /// Goes on to a state. A load that has failed stays so.
    pub(super) fn set_state(&self, state: State) {
        let forward = |now: u64| (now < state as u64).then_some(state as u64);
        let _ = self.word(STATE).fetch_update(AcqRel, Acquire, forward);
    }

    /// A worker has been placed and read back.
    pub(super) fn count_placed(&self) {
        self.word(PLACED).fetch_add(1, Relaxed);
    }

    /// How many workers have been placed.
    pub(super) fn placed(&self) -> u64 {
        self.word(PLACED).load(Relaxed)
    }

    /// The work took so long, from the opening of the gate to the end of the last worker.
    pub(super) fn set_took_ns(&self, took_ns: u64) {
        self.word(TOOK).store(took_ns, Release);
    }

    /// How long the work took; 0 while it goes on.
    pub(super) fn took_ns(&self) -> u64 {
        self.word(TOOK).load(Acquire)
    }

    /// Says why the load failed. Who says it first is heard; a long text is cut.
    pub(super) fn fail(&self, text: &str) {
        if self.word(TEXT_TAKEN).swap(1, AcqRel) == 0 {
            let bytes = &text.as_bytes()[..text.floor_char_boundary(TEXT * 8)];
            for (i, chunk) in bytes.chunks(8).enumerate() {
                let mut word = [0; 8];
                word[..chunk.len()].copy_from_slice(chunk);
                self.word(TEXT_START + i).store(u64::from_ne_bytes(word), Relaxed);
            }
            self.word(TEXT_LEN).store(bytes.len() as u64, Release);
        }
        self.set_state(State::Failed);
    }

    /// Why the load failed, if a process of it could say so.
    pub(super) fn failure(&self) -> Option<String> {
        let len = self.word(TEXT_LEN).load(Acquire) as usize;
        let words = (0..TEXT).map(|i| self.word(TEXT_START + i).load(Relaxed));
        let bytes: Vec<u8> = words.flat_map(u64::to_ne_bytes).take(len).collect();
        (len > 0).then(|| String::from_utf8_lossy(&bytes).into_owned())
    }

    pub(super) fn counter(&self, worker: usize) -> Counter<'_> {
        Counter(self.word(COUNTERS_START + worker % COUNTERS * LINE))
    }

    pub(super) fn work(&self) -> u64 {
        (0..COUNTERS).map(|i| self.counter(i).0.load(Relaxed)).sum()
    }
}

/// Counts one worker's work, in a cache line of its own.
#[derive(Clone, Copy, Debug)]
pub(super) struct Counter<'a>(&'a AtomicU64);

impl Counter<'_> {
    #[inline]
    pub(super) fn add(self, work: u64) {
        self.0.fetch_add(work, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_sides_see_work_and_state() {
        let ours = Board::new().expect("memory");
        let theirs = Board::from_file(ours.file().try_clone().expect("a file")).expect("the same");
        for worker in 0..COUNTERS * 2 {
            theirs.counter(worker).add(3);
        }
        theirs.count_placed();
        theirs.set_state(State::Working);
        assert_eq!(ours.work(), 3 * 2 * COUNTERS as u64);
        assert_eq!((ours.state(), ours.placed()), (State::Working, 1));
    }

    #[test]
    fn the_first_failure_is_kept() {
        let board = Board::new().expect("memory");
        assert_eq!(board.failure(), None);
        board.fail("disk full");
        board.fail("worker ended");
        board.set_state(State::Done);
        assert_eq!(board.failure().as_deref(), Some("disk full"));
        assert_eq!(board.state(), State::Failed);
    }

    #[test]
    fn a_long_failure_is_cut_between_characters() {
        let board = Board::new().expect("memory");
        board.fail(&"é".repeat(1000));
        let text = board.failure().expect("a text");
        assert_eq!(text.chars().filter(|c| *c == 'é').count(), text.chars().count());
        assert!(text.len() <= TEXT * 8 && text.len() > TEXT * 8 - 2);
    }
}
