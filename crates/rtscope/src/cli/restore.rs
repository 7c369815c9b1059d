//! `rtscope restore`: put back what a killed run left changed.

use std::{path::Path, process::ExitCode};

use rtscope_measure::tune;

use super::print;
use crate::{exit, leftovers};

pub(super) fn main() -> anyhow::Result<ExitCode> {
    let (found, sound) = leftovers::restore();
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
    let sound = leftovers::no_damaged_journal()? && sound;
    print(match (found, sound, holders.is_empty()) {
        (0, true, true) => "no killed run has left a setting to restore\n",
        (0, true, false) => "no killed run has left another setting to restore\n",
        (_, true, true) => "every setting is as it was\n",
        (_, true, false) => "every other setting is as it was\n",
        (_, false, _) => "some settings may not be as they were: see above\n",
    })?;
    Ok(ExitCode::from(if sound { exit::PASS } else { exit::ERROR }))
}
