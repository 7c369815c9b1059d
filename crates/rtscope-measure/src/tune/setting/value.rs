//! The values that settings take, read from the texts of users.

use rtscope_model::cpu::CpuSet;

use crate::tune::{kernel_thread::Rank, service};

pub(super) fn on_off(value: &str) -> Option<String> {
    match value {
        "on" => Some("1".to_owned()),
        "off" => Some("0".to_owned()),
        _ => None,
    }
}

pub(super) fn number(value: &str, least: u32, most: u32) -> Option<String> {
    let number: u32 = value.parse().ok()?;
    (least..=most).contains(&number).then(|| number.to_string())
}

/// At least one CPU.
pub(super) fn cpus(value: &str) -> Option<CpuSet> {
    value.parse().ok().filter(|cpus: &CpuSet| !cpus.is_empty())
}

/// A number with the CPUs that it is for, on all when none are named: `0@2-3`.
pub(in crate::tune) struct ForCpus {
    pub(in crate::tune) number: i64,
    pub(in crate::tune) cpus: Option<CpuSet>,
}

impl ForCpus {
    pub(in crate::tune) fn read(value: &str, least: i64, most: i64) -> Option<ForCpus> {
        let (number, at) = match value.split_once('@') {
            None => (value, None),
            Some((number, at)) => (number, Some(cpus(at)?)),
        };
        let number = number.parse().ok().filter(|number| (least..=most).contains(number))?;
        Some(ForCpus { number, cpus: at })
    }

    pub(in crate::tune) fn is_for(&self, cpu: u32) -> bool {
        self.cpus.as_ref().is_none_or(|cpus| cpus.contains(cpu))
    }
}

/// One of several values, each with a pattern of names: `0@eth0; 1@ttyS0`. None stands for all.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::tune) struct ForNames {
    pub(in crate::tune) value: String,
    pub(in crate::tune) pattern: Option<String>,
}

/// Reads such a list. `each` gives the text of a value.
pub(in crate::tune) fn for_names(
    text: &str,
    each: impl Fn(&str) -> Option<String>,
) -> Option<Vec<ForNames>> {
    let one = |entry: &str| {
        let (value, pattern) = match entry.split_once('@') {
            None => (entry, None),
            Some((value, pattern)) => (value, Some(pattern.trim())),
        };
        let pattern = match pattern {
            Some("") => return None,
            other => other.map(str::to_owned),
        };
        Some(ForNames { value: each(value.trim())?, pattern })
    };
    text.split(';').map(str::trim).map(one).collect()
}

/// The same as a text, in the form that is read again.
fn joined(entries: &[ForNames]) -> String {
    let one = |entry: &ForNames| match &entry.pattern {
        None => entry.value.clone(),
        Some(pattern) => format!("{}@{pattern}", entry.value),
    };
    entries.iter().map(one).collect::<Vec<_>>().join(";")
}

pub(super) fn interrupts(value: &str) -> Option<String> {
    for_names(value, |cpus_text| Some(cpus(cpus_text)?.to_string())).map(|found| joined(&found))
}

/// As [`for_names`], where each must name threads.
fn of_threads(text: &str, each: impl Fn(&str) -> Option<String>) -> Option<String> {
    let entries = for_names(text, each)?;
    entries.iter().all(|entry| entry.pattern.is_some()).then(|| joined(&entries))
}

pub(super) fn thread_cpus(value: &str) -> Option<String> {
    of_threads(value, |text| Some(cpus(text)?.to_string()))
}

pub(super) fn thread_ranks(value: &str) -> Option<String> {
    of_threads(value, |text| Rank::read(text).map(Rank::text))
}

/// The word for every known unit.
pub(in crate::tune) const KNOWN: &str = "known";

/// Units by their whole names, separated by commas.
pub(super) fn units(value: &str) -> Option<String> {
    if value == KNOWN {
        return Some(value.to_owned());
    }
    let units: Option<Vec<&str>> =
        value.split(',').map(|name| service::unit(name.trim())).collect();
    units.map(|units| units.join(","))
}

/// The word for the last CPU of a machine.
pub(in crate::tune) const LAST: &str = "last";

/// The CPUs of a shield, and whether the kernel spreads threads over them.
pub(in crate::tune) struct ShieldValue {
    /// None is the last CPU that is online.
    pub(in crate::tune) cpus: Option<CpuSet>,
    pub(in crate::tune) balanced: bool,
}

impl ShieldValue {
    pub(in crate::tune) fn read(value: &str) -> Option<ShieldValue> {
        let (kind, at) = value.split_once('@').unwrap_or(("root", value));
        let balanced = match kind {
            "root" => true,
            "isolated" => false,
            _ => return None,
        };
        let cpus = if at == LAST { None } else { Some(cpus(at)?) };
        Some(ShieldValue { cpus, balanced })
    }
}

/// A set of CPUs as a mask, in the form of another mask: as many digits, and commas at the same places.
pub(in crate::tune) fn mask_like(old: &str, cpus: &CpuSet) -> String {
    let digits = old
        .chars()
        .filter(char::is_ascii_hexdigit)
        .count()
        .max(cpus.last().map_or(1, |last| last as usize / 4 + 1));
    let digit = |place: usize| {
        let bits = (0..4).filter(|bit| cpus.contains(place as u32 * 4 + bit));
        char::from_digit(bits.map(|bit| 1 << bit).sum(), 16).unwrap_or('0')
    };
    let mut text = String::new();
    for place in (0..digits).rev() {
        text.push(digit(place));
        if place > 0 && place % 8 == 0 {
            text.push(',');
        }
    }
    text
}

/// The CPUs of a mask.
pub(in crate::tune) fn of_mask(text: &str) -> CpuSet {
    let digits: Vec<u32> = text.chars().filter_map(|c| c.to_digit(16)).collect();
    let places = (0_u32..).zip(digits.iter().rev());
    let bits = places.flat_map(|(place, digit)| {
        (0..4).filter(move |bit| digit >> bit & 1 == 1).map(move |bit| place * 4 + bit)
    });
    bits.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mask_keeps_the_form_of_the_old_one() {
        let set = |text: &str| text.parse::<CpuSet>().expect("CPUs");
        for (old, cpus, new) in [
            ("3", "0", "1"),
            ("ff", "0-1,7", "83"),
            ("ffffffff,ffffffff", "0,32", "00000001,00000001"),
            ("f,ffffffff", "35", "8,00000000"),
            ("1", "4", "10"),
        ] {
            assert_eq!(mask_like(old, &set(cpus)), new);
            assert_eq!(of_mask(new), set(cpus));
        }
    }
}
