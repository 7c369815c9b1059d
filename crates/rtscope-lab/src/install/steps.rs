//! Every change to a disk, one by one, so that a test can stop an installation before any of them.

use crate::error::LabError;

/// Counts steps; stops before one when a test asks.
#[derive(Clone, Copy, Debug, Default)]
pub struct Steps {
    taken: usize,
    stop_before: Option<usize>,
}

impl Steps {
    /// Stops before step `n`, from 0, as a killed process would.
    #[must_use]
    pub fn stopping_before(n: usize) -> Steps {
        Steps { taken: 0, stop_before: Some(n) }
    }

    #[must_use]
    pub fn taken(&self) -> usize {
        self.taken
    }

    /// Called before each change.
    ///
    /// # Errors
    ///
    /// [`LabError::Stopped`] where a test asked for it.
    pub fn take(&mut self) -> Result<(), LabError> {
        if self.stop_before == Some(self.taken) {
            return Err(LabError::Stopped(self.taken));
        }
        self.taken += 1;
        Ok(())
    }
}
