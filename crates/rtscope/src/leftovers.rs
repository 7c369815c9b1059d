//! What a process of ours left when it was killed: settings and tracing instances. They are put back and removed when it
//! panics, or before anything is measured.

use rtscope_measure::{
    trace,
    tune::{self, Restored},
};
use rtscope_sys::tree::Tree;

/// From here on a panic of any thread restores what this process has changed: a release ends at once.
pub(crate) fn restore_on_panic() {
    let say_where = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        say_where(panic);
        said(tune::restore_own(&Tree::default(), &tune::journal_dir()));
    }));
}

/// Restores what killed processes left, and says so on standard error. How many settings and tracing instances it found,
/// and whether all settings are as they were.
pub(crate) fn restore() -> (usize, bool) {
    let instances = trace::remove_left(&Tree::default());
    for name in &instances {
        note!(
            "rtscope: removed {name}, a tracing instance of a killed rtscope that was still recording"
        );
    }
    let (found, sound) = said(tune::restore_leftovers(&Tree::default(), &tune::journal_dir()));
    (found + instances.len(), sound)
}

/// Says what became of settings. How many there were, and whether all are as they were.
pub(crate) fn said(restored: Vec<Restored>) -> (usize, bool) {
    let (found, mut sound) = (restored.len(), true);
    for one in restored {
        sound &= one.error.is_none();
        note!("rtscope: {one}");
    }
    (found, sound)
}
