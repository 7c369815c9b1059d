//! What parked threads wait at, until the control thread says a word.

use std::sync::{Condvar, Mutex, PoisonError};

/// A gate that parked threads wait at.
#[derive(Debug, Default)]
pub(crate) struct Gate {
    word: Mutex<Word>,
    changed: Condvar,
}

#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) enum Word {
    #[default]
    Wait,
    /// The common start on the session's clock.
    Go(u64),
    Cancel,
}

impl Gate {
    /// The first word counts: a thread that was released and has not run yet must not miss it.
    pub(crate) fn say(&self, word: Word) {
        let mut said = self.word.lock().unwrap_or_else(PoisonError::into_inner);
        if *said == Word::Wait {
            *said = word;
        }
        self.changed.notify_all();
    }

    pub(crate) fn wait(&self) -> Word {
        let guard = self.word.lock().unwrap_or_else(PoisonError::into_inner);
        *self
            .changed
            .wait_while(guard, |word| *word == Word::Wait)
            .unwrap_or_else(PoisonError::into_inner)
    }
}
