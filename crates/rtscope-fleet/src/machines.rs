//! Which machine each place of a run is: two names for one machine would measure each other.

use std::{
    collections::BTreeMap,
    sync::{Mutex, PoisonError},
};

use crate::{error::FleetError, places::FleetPlace};

/// The places that were taken, by the boot of their machine. No two machines have the same, unlike the identification in
/// `/etc/machine-id`, which copies of a disk share.
#[derive(Debug, Default)]
pub struct Machines(Mutex<BTreeMap<String, String>>);

impl Machines {
    /// Notes that a place was taken.
    ///
    /// # Errors
    ///
    /// Another place is the same machine.
    pub(crate) fn note(&self, boot: &str, place: &FleetPlace) -> Result<(), FleetError> {
        if boot.is_empty() || place.shares_machine {
            return Ok(());
        }
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let first = known.entry(boot.to_owned()).or_insert_with(|| place.name.clone());
        match *first == place.name {
            true => Ok(()),
            false => Err(FleetError::Place(format!(
                "it is the same machine as place {first}: remove one of them, or write `shares-machine = true` if several \
                 places on one machine are intended, such as containers"
            ))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_has_one_place_unless_the_file_says_otherwise() {
        let text = "[places.a]\nlocal = true\n[places.b]\nlocal = true\n[places.c]\nlocal = true\nshares-machine = true\n";
        let file = crate::places::parse("places.toml".as_ref(), text).expect("sound");
        let [a, b, c] = file.named.as_slice() else { panic!("three") };
        let machines = Machines::default();
        machines.note("one", a).expect("the first");
        machines.note("one", a).expect("again");
        machines.note("one", c).expect("meant");
        machines.note("two", b).expect("another machine");
        machines.note("", b).expect("not known");
        let said = machines.note("one", b).expect_err("the same").to_string();
        assert!(said.contains("the same machine as place a"), "{said}");
    }
}
