//! `rtscope restore`: put back what a killed run left changed.

use std::process::ExitCode;

use super::{print, restore_leftovers};
use crate::exit;

pub(super) fn main() -> anyhow::Result<ExitCode> {
    let sound = restore_leftovers();
    print(if sound {
        "every setting is as it was\n"
    } else {
        "some settings could not be restored\n"
    })?;
    Ok(ExitCode::from(if sound { exit::PASS } else { exit::ERROR }))
}
