//! The folder of the records: what those of each kernel are called in it, and whether it can be gone on with.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs, io,
    path::Path,
};

use serde::{Deserialize, Serialize};

use crate::{error::LabError, inputs, name, recheck};

/// File that says which guests the records of a folder are of.
const GUESTS: &str = "order.json";

/// A name for a folder, of the characters of a kernel's name.
#[must_use]
pub fn safe(text: &str) -> String {
    let plain = text.chars().map(|c| if name::may_hold(c) { c } else { '-' });
    let mut name: String = plain.take(name::CHARS_MAX).collect();
    // Neither hidden, nor the folder above.
    if name.starts_with('.') {
        name.replace_range(..1, "-");
    }
    name
}

/// What the records of each kernel are called: a kernel's label, or its name and its words, and of a path no
/// more of its end than tells it from the others. A label that fits a folder is the folder's name.
///
/// # Errors
///
/// A kernel is named twice.
pub fn names<'a>(labels: impl IntoIterator<Item = &'a str>) -> Result<Vec<String>, LabError> {
    let labels: Vec<&str> = labels.into_iter().collect();
    let mut seen = BTreeSet::new();
    if let Some(twice) = labels.iter().find(|label| !seen.insert(**label)) {
        return Err(LabError::Refused(format!("{twice}: it is named twice")));
    }
    let longest = labels.iter().map(|label| label.split('/').count()).max().unwrap_or(1);
    let fits = |label: &str| safe(label) == label;
    let fitting = labels.iter().filter(|label| fits(label));
    let mut taken: BTreeSet<String> = fitting.map(|label| (*label).to_owned()).collect();
    let name = |label: &&str| {
        if fits(label) {
            return (*label).to_owned();
        }
        let is_alone = |parts: &usize| {
            let own = short(label, *parts);
            labels.iter().filter(|other| short(other, *parts) == own).count() == 1
        };
        let name = short(label, (1..longest).find(is_alone).unwrap_or(longest));
        let numbered = (2_u32..).map(|n| format!("{name}-{n}"));
        let free = std::iter::once(name.clone()).chain(numbered).find(|n| taken.insert(n.clone()));
        free.unwrap_or(name)
    };
    Ok(labels.iter().map(name).collect())
}

/// A label whose path is cut to its last parts.
fn short(label: &str, parts: usize) -> String {
    let (kernel, words) = label.split_at(label.find(':').unwrap_or(label.len()));
    let path = kernel.strip_prefix("path=").unwrap_or(kernel);
    let all: Vec<&str> = path.split('/').filter(|part| !matches!(*part, "" | ".")).collect();
    safe(&format!("{}{words}", all[all.len().saturating_sub(parts)..].join("/")))
}

/// Checks a folder for records. Nothing is made yet: what is refused later leaves nothing behind.
///
/// # Errors
///
/// The folder holds what is not the lab's.
pub fn check(out: &Path) -> Result<(), LabError> {
    if out.join(GUESTS).is_file() { Ok(()) } else { check_empty(out) }
}

/// As [`check`], for what can't be gone on with.
///
/// # Errors
///
/// The folder holds anything.
pub fn check_empty(out: &Path) -> Result<(), LabError> {
    match is_taken(out) {
        true => Err(LabError::Refused(format!(
            "{} is not empty: choose another folder with --out",
            out.display()
        ))),
        false => Ok(()),
    }
}

fn is_taken(out: &Path) -> bool {
    fs::read_dir(out).is_ok_and(|mut entries| entries.next().is_some())
}

/// What a folder holds: the hash of all inputs of each guest, by the folder of its record.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct GuestList {
    format: u32,
    guests: BTreeMap<String, String>,
}

/// Makes the folder for the records of these guests, each with the hash of its inputs; or goes on in one
/// that holds just these, where the records that are not whole are removed. `reuse` says that those that are
/// whole will be taken as they are.
///
/// # Errors
///
/// It holds others, or can't be made; then none is left behind. Or a record that would be taken is no longer
/// the one that its guest brought.
pub fn claim(out: &Path, guests: BTreeMap<String, String>, reuse: bool) -> Result<(), LabError> {
    let list = GuestList { format: 1, guests };
    let path = out.join(GUESTS);
    if is_taken(out) {
        let text = fs::read_to_string(&path).unwrap_or_default();
        let before: Option<GuestList> = serde_json::from_str(&text).ok();
        if before.as_ref() != Some(&list) {
            return Err(another(out, before.as_ref(), &list));
        }
        for name in list.guests.keys() {
            let record = out.join(name);
            let inputs = inputs::read_inputs(&record).ok().filter(|inputs| inputs.whole);
            if let Some(inputs) = inputs {
                if reuse {
                    recheck::check(&record, &inputs)?;
                }
            } else if record.exists() {
                fs::remove_dir_all(&record).map_err(LabError::file("remove", &record))?;
            }
        }
        return Ok(());
    }
    let was_there = out.is_dir();
    let text = serde_json::to_string_pretty(&list).unwrap_or_default() + "\n";
    let made = fs::create_dir_all(out).and_then(|()| fs::write(&path, text));
    made.map_err(|e| {
        let _ = fs::remove_file(&path);
        if !was_there {
            let _ = fs::remove_dir(out);
        }
        match e.kind() {
            io::ErrorKind::StorageFull => LabError::Full { path: out.to_owned(), cause: e },
            _ => LabError::file("make", out)(e),
        }
    })
}

/// Why a folder can't be gone on with.
fn another(out: &Path, before: Option<&GuestList>, now: &GuestList) -> LabError {
    let known = before.map(|list| &list.guests);
    let differs = known.and_then(|known| {
        let of = |guests: &BTreeMap<String, String>, name: &String| guests.get(name).cloned();
        let mut names = known.keys().chain(now.guests.keys());
        names.find(|name| of(known, name) != of(&now.guests, name))
    });
    let which = differs.map_or(String::new(), |name| format!(" ({name} differs)"));
    LabError::Refused(format!(
        "{} holds the records of other guests{which}: the same command, with the same rtscope, kernels \
         and emulator, would go on there; choose another folder with --out",
        out.display()
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernels_of_one_file_name_have_names_of_their_own() {
        let of = |labels: &[&str]| names(labels.iter().copied()).expect("distinct").join(" ");
        assert_eq!(of(&["path=ka/vmlinuz", "path=kb/vmlinuz"]), "ka-vmlinuz kb-vmlinuz");
        assert_eq!(of(&["path=/boot/vmlinuz-6.1", "debian-rt"]), "vmlinuz-6.1 debian-rt");
        assert_eq!(
            of(&["debian-stock:a.b=/x", "debian-rt:a.b=/x", "debian-stock:rdinit=/nope"]),
            "debian-stock-a.b--x debian-rt-a.b--x debian-stock-rdinit--nope"
        );
        // Names that become equal only as those of folders.
        assert_eq!(of(&["a:b", "a-b", "path=a-b", "path=/a-b"]), "a-b-2 a-b a-b-3 a-b-4");
        let said = names(["debian-rt", "debian-rt"]).expect_err("twice").to_string();
        assert_eq!(said, "debian-rt: it is named twice");
    }

    #[test]
    fn a_name_stays_in_its_folder() {
        for text in ["..", "../up", "/", ".hidden", &"x".repeat(300)] {
            let name = safe(text);
            assert!(!name.starts_with('.') && !name.contains('/') && name.len() <= 100, "{name}");
        }
    }

    #[test]
    fn a_folder_is_gone_on_with_by_the_same_order_only() {
        let folder = tempfile::tempdir().expect("a folder");
        let out = folder.path().join("out");
        let of = |key: &str| BTreeMap::from([("rt-rest-seed1".to_owned(), key.to_owned())]);
        assert!(check(&out).is_ok() && !out.exists());
        claim(&out, of("k1"), true).expect("made");
        let half = out.join("rt-rest-seed1");
        fs::create_dir(&half).expect("a guest that was interrupted");
        check(&out).expect("the lab's own");
        check_empty(&out).expect_err("taken");
        let said = claim(&out, of("k2"), true).expect_err("another kernel").to_string();
        assert!(said.contains("rt-rest-seed1 differs") && half.exists(), "{said}");
        claim(&out, of("k1"), true).expect("the same");
        assert!(!half.exists(), "a record that is not whole is made again");
        // One that is whole is taken as it is only when nobody has altered it.
        let inputs = r#"{"format":1,"key":"k1","kernel":"","kernel_file":"","kernel_sha256":"",
            "image_sha256":"","machine":"","time":"wall","seed":1,"cpus":1,"memory_mib":null,
            "emulator":"","arguments":[],"files":{"histograms.json":"0"},"whole":true}"#;
        fs::create_dir(&half).expect("made");
        fs::write(half.join("lab.json"), inputs).expect("written");
        fs::write(half.join("histograms.json"), "{}").expect("written");
        let said = claim(&out, of("k1"), true).expect_err("altered").to_string();
        assert!(said.contains("histograms.json (altered)") && said.contains("--fresh"), "{said}");
        claim(&out, of("k1"), false).expect("it will be measured again");
        let foreign = folder.path().join("foreign");
        fs::create_dir(&foreign).expect("made");
        fs::write(foreign.join("letter"), "x").expect("written");
        assert!(check(&foreign).is_err() && claim(&foreign, of("k1"), true).is_err());
        claim(&foreign.join("letter").join("below"), of("k1"), true).expect_err("no folder");
    }
}
