//! Settings that a killed process of ours left changed: restored before anything is measured.

use rtscope_measure::tune;
use rtscope_sys::tree::Tree;

/// Restores them, and says so on standard error. How many settings it found, and whether all are as they were.
pub(crate) fn restore() -> (usize, bool) {
    let restored = tune::restore_leftovers(&Tree::default(), &tune::journal_dir());
    let (found, mut sound) = (restored.len(), true);
    for one in restored {
        sound &= one.error.is_none();
        note!("rtscope: {one}");
    }
    (found, sound)
}
