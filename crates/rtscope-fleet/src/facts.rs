//! What a place is, and who has it.

use std::{collections::BTreeMap, path::PathBuf};

use crate::{
    error::FleetError,
    places::{FleetPlace, Reach},
    shell::{Shell, Stop},
    slurm::Cluster,
};

/// What a place says of itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Facts {
    /// As `uname -m`.
    pub machine: String,
    /// As `uname -r`.
    pub kernel: String,
    /// Of the device tree.
    pub model: Option<String>,
    /// Who has it, and for how many seconds at most, where that is known.
    pub held: Option<(String, Option<u64>)>,
    /// The boot of its machine, where the place was taken.
    pub(crate) boot: String,
    pub(crate) base: PathBuf,
    pub(crate) free_kib: u64,
}

impl Facts {
    /// Reads what the script `look.sh` prints.
    #[must_use]
    pub fn read(said: &str) -> Facts {
        let pairs: BTreeMap<&str, &str> =
            said.lines().filter_map(|line| line.split_once('=')).collect();
        let text = |key: &str| {
            let value: String =
                pairs.get(key).copied().unwrap_or_default().chars().take(200).collect();
            rtscope_model::printable::printable(&value).into_owned()
        };
        let number = |key: &str| pairs.get(key).and_then(|value| value.parse().ok());
        let held =
            pairs.contains_key("held").then(|| (text("held"), Some(number("left").unwrap_or(0))));
        Facts {
            machine: text("machine"),
            kernel: text("kernel"),
            model: Some(text("model")).filter(|model| !model.is_empty()),
            held,
            boot: text("boot"),
            base: PathBuf::from(pairs.get("base").copied().unwrap_or_default()),
            free_kib: number("free_kib").unwrap_or(u64::MAX),
        }
    }

    /// Of a node that Slurm lists: only the one who has it may go there.
    pub(crate) fn of_listed(
        machine: String,
        kernel: String,
        held: Option<(String, Option<u64>)>,
    ) -> Facts {
        Facts { machine, kernel, held, ..Facts::default() }
    }
}

/// Looks at a place without taking it.
///
/// # Errors
///
/// It can't be reached.
pub fn look(place: &FleetPlace, stop: Stop<'_>) -> Result<Facts, FleetError> {
    if let Reach::Labgrid { coordinator, .. } = &place.reach {
        // Only the one who has it may go there.
        let listed = coordinator.list()?.into_iter().find(|listed| listed.name == place.name);
        let held = listed.and_then(|listed| listed.taken_by).map(|holder| (holder, None));
        return Ok(Facts { held, ..Facts::default() });
    }
    if let Reach::Slurm { .. } = &place.reach {
        return Cluster::look(&place.name, stop);
    }
    let folder = place.folder.as_deref().unwrap_or_default();
    let answer = Shell::of(place).run(include_str!("scripts/look.sh"), &[folder], stop)?;
    Ok(Facts::read(&answer.success()?))
}
