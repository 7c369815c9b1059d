//! `rtscope restore`: put back what a killed run left changed.

use std::{path::Path, process::ExitCode};

use rtscope_measure::tune;

use super::{print, restore_leftovers};
use crate::exit;

pub(super) fn main() -> anyhow::Result<ExitCode> {
    let sound = restore_leftovers();
    let own = tune::journal_dir();
    let of_root = Path::new(tune::JOURNALS_OF_ROOT);
    let mut holders = tune::holders(&own);
    if own != of_root {
        match tune::left_by_root(of_root) {
            Ok(None) => {}
            Ok(Some(why)) => anyhow::bail!(why),
            Err(unseen) => note!("rtscope: {unseen}"),
        }
        holders.extend(tune::holders(of_root));
    }
    for holder in &holders {
        print(&format!("{holder}\n"))?;
    }
    print(match (sound, holders.is_empty()) {
        (true, true) => "every setting is as it was\n",
        (true, false) => "every other setting is as it was\n",
        (false, _) => "some settings could not be restored\n",
    })?;
    Ok(ExitCode::from(if sound { exit::PASS } else { exit::ERROR }))
}
