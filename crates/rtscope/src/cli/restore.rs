//! `rtscope restore`: put back what a killed run left changed.

use std::{path::Path, process::ExitCode};

use rtscope_measure::tune;

use super::{print, restore_leftovers};
use crate::exit;

pub(super) fn main() -> anyhow::Result<ExitCode> {
    let sound = restore_leftovers();
    if !rtscope_sys::process::is_root()
        && let Some(why) = tune::left_by_root(Path::new(tune::JOURNALS_OF_ROOT))
    {
        anyhow::bail!(why);
    }
    print(if sound {
        "every setting is as it was\n"
    } else {
        "some settings could not be restored\n"
    })?;
    Ok(ExitCode::from(if sound { exit::PASS } else { exit::ERROR }))
}
