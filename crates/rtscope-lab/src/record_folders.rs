//! The folder of the records: what those of each kernel are called in it, and whether it can be gone on with.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs, io,
    os::unix::fs::MetadataExt,
    path::Path,
};

use serde::{Deserialize, Serialize};

use crate::{
    engine::order::WorkOrder, error::LabError, folder_lock::FolderLock, inputs, name, recheck,
};

/// File that says which guests the records of a folder are of.
pub(crate) const GUESTS: &str = "order.json";

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
    if out.exists() && !out.is_dir() {
        let text = format!("--out {}: it is a file; name a folder for the records", out.display());
        return Err(LabError::Refused(text));
    }
    match is_taken(out) {
        true => Err(LabError::Refused(format!(
            "{} is not empty: choose another folder with --out",
            out.display()
        ))),
        false => Ok(()),
    }
}

pub(crate) fn is_taken(out: &Path) -> bool {
    fs::read_dir(out).is_ok_and(|mut entries| entries.next().is_some())
}

/// What a folder holds: the hash of all inputs of each guest, by the folder of its record.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct GuestList {
    format: u32,
    guests: BTreeMap<String, String>,
}

/// Locks a folder that is there.
///
/// # Errors
///
/// Another rtscope writes into it.
fn lock(out: &Path) -> Result<FolderLock, LabError> {
    if let Some(lock) = FolderLock::of(out)? {
        return Ok(lock);
    }
    let inode = out.metadata().map(|found| found.ino()).unwrap_or_default();
    let locks = fs::read_to_string("/proc/locks").unwrap_or_default();
    let holder = holder(&locks, inode).map_or(String::new(), |pid| format!(" (process {pid})"));
    Err(LabError::Refused(format!(
        "another rtscope{holder} is writing into {}: wait until it has ended, or choose another folder with --out",
        out.display()
    )))
}

/// Makes a folder for what can't be gone on with, for this rtscope alone.
///
/// # Errors
///
/// It can't be made, another rtscope writes into it, or it holds anything.
pub fn claim_empty(out: &Path) -> Result<FolderLock, LabError> {
    fs::create_dir_all(out).map_err(LabError::file("make", out))?;
    let claim = lock(out)?;
    check_empty(out).map(|()| claim)
}

/// The process that holds a lock on an inode, by the text of `/proc/locks`: see proc(5). None where it is in
/// another PID namespace.
fn holder(locks: &str, inode: u64) -> Option<u32> {
    let of_inode = format!(":{inode}");
    let line = locks.lines().find(|line| {
        let mut words = line.split_whitespace().skip(1);
        words.next() == Some("FLOCK") && words.any(|word| word.ends_with(&of_inode))
    })?;
    line.split_whitespace().nth(4)?.parse().ok().filter(|pid| *pid > 0)
}

/// Makes the folder for the records of these guests, each with the hash of its inputs; or goes on in one
/// that holds just these, where the records that are not whole are removed. `reuse` says that those that are
/// whole will be taken as they are.
///
/// # Errors
///
/// Another rtscope writes into it. It holds others, or can't be made; then none is left behind. Or it holds files
/// that would be lost, or a record that is no longer the one that its guest sent.
pub fn claim(
    out: &Path,
    guests: BTreeMap<String, String>,
    reuse: bool,
) -> Result<FolderLock, LabError> {
    let list = GuestList { format: 1, guests };
    let path = out.join(GUESTS);
    let was_there = out.is_dir();
    let not_made = |e: io::Error| {
        let _ = fs::remove_file(&path);
        if !was_there {
            let _ = fs::remove_dir(out);
        }
        match e.kind() {
            io::ErrorKind::StorageFull => LabError::Full { path: out.to_owned(), cause: e },
            io::ErrorKind::ReadOnlyFilesystem | io::ErrorKind::PermissionDenied => {
                LabError::Refused(format!(
                    "can't make {}: {e}; choose another folder with --out",
                    out.display()
                ))
            }
            _ => LabError::file("make", out)(e),
        }
    };
    fs::create_dir_all(out).map_err(not_made)?;
    let claim = lock(out)?;
    if !is_taken(out) {
        let text = serde_json::to_string_pretty(&list).unwrap_or_default() + "\n";
        fs::write(&path, text).map_err(not_made)?;
        return Ok(claim);
    }
    let text = fs::read_to_string(&path).unwrap_or_default();
    let before: Option<GuestList> = serde_json::from_str(&text).ok();
    if before.is_none() && WorkOrder::read(out).is_ok() {
        return Err(LabError::Refused(format!(
            "{} belongs to a matrix that runs in batches: add --engine to continue it, or choose another folder with \
             --out",
            out.display()
        )));
    }
    if before.as_ref() != Some(&list) {
        return Err(another(out, before.as_ref(), &list));
    }
    let mut replaced = Vec::new();
    for (name, key) in &list.guests {
        let record = out.join(name);
        if is_replaced(&record, key, reuse)? {
            replaced.push(record);
        }
    }
    for record in replaced {
        fs::remove_dir_all(&record).map_err(LabError::file("remove", &record))?;
    }
    Ok(claim)
}

/// Whether the folder of a guest is removed before the guest runs.
///
/// # Errors
///
/// Something in it would be lost, or the record is no longer the one that its guest sent.
fn is_replaced(record: &Path, key: &str, reuse: bool) -> Result<bool, LabError> {
    if !is_taken(record) {
        return Ok(record.exists());
    }
    let refused = |why: String| {
        LabError::Refused(format!(
            "{}: {why}. rtscope overwrites nothing there: move these files away, or choose another folder with --out",
            record.display()
        ))
    };
    let inputs = inputs::read_inputs(record)
        .map_err(|e| refused(format!("it has files but no readable {} ({e})", inputs::INPUTS)))?;
    if inputs.whole && reuse {
        if inputs.key != key {
            return Err(refused(format!(
                "{} has another key than {GUESTS}, so one of them was altered",
                inputs::INPUTS
            )));
        }
        return recheck::check(record, &inputs).map(|()| false);
    }
    let recheck::FilesNotSent { mut foreign, added, .. } =
        recheck::FilesNotSent::of(record, &inputs)?;
    foreign.extend(added);
    match foreign.is_empty() {
        true => Ok(true),
        false => Err(refused(format!("rtscope did not write {}", foreign.join(", ")))),
    }
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
        "{} holds the records of other guests{which}. Only the same command with the same rtscope, kernels \
         and emulator can continue there: choose another folder with --out",
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
        let said = check(&foreign.join("letter")).expect_err("a file").to_string();
        assert!(said.contains("letter: it is a file; name a folder"), "{said}");
        claim(&foreign.join("letter").join("below"), of("k1"), true).expect_err("no folder");
    }
    const WHOLE: &str = r#"{"format":1,"key":"k1","kernel":"","kernel_file":"","kernel_sha256":"",
        "image_sha256":"","machine":"","time":"wall","seed":1,"cpus":1,"memory_mib":null,
        "emulator":"","arguments":[],"files":{"plan.toml":"0"},"whole":true}"#;

    #[test]
    fn a_folder_that_another_rtscope_writes_into_is_refused_until_that_one_ends() {
        let folder = tempfile::tempdir().expect("a folder");
        let out = folder.path().join("out");
        let guests = || BTreeMap::from([("rt-seed1".to_owned(), "k1".to_owned())]);
        let first = claim(&out, guests(), true).expect("made");
        let record = out.join("rt-seed1");
        fs::create_dir(&record).expect("made");
        fs::write(record.join("console.txt"), "booting").expect("written");
        let holder = format!("(process {}) is writing", std::process::id());
        for reuse in [true, false] {
            let said = claim(&out, guests(), reuse).expect_err("in use").to_string();
            assert!(said.contains(&holder) && said.contains("--out"), "{said}");
        }
        claim_empty(&out).expect_err("in use");
        drop(first);
        fs::remove_dir_all(&record).expect("removed");
        claim(&out, guests(), true).expect("free again");
        let said = claim_empty(&out).expect_err("not empty").to_string();
        assert!(said.contains("not empty"), "{said}");
        let empty = claim_empty(&folder.path().join("search")).expect("made");
        claim_empty(&folder.path().join("search")).expect_err("in use");
        drop(empty);
    }

    #[test]
    fn the_holder_of_a_folder_is_found_among_all_locks() {
        // As the kernel writes it: proc(5), and a waiter with an arrow.
        let locks = "1: POSIX  ADVISORY  WRITE 11 fe:00:77 0 EOF\n1: -> FLOCK  ADVISORY  WRITE 12 fe:00:77 0 EOF\n\
                     2: FLOCK  ADVISORY  WRITE 13 fe:00:677 0 EOF\n3: FLOCK  ADVISORY  WRITE 14 fe:00:77 0 EOF\n\
                     4: FLOCK  ADVISORY  WRITE 0 fe:00:78 0 EOF\n";
        assert_eq!(
            [77, 677, 78, 9].map(|inode| holder(locks, inode)),
            [Some(14), Some(13), None, None]
        );
    }

    #[test]
    fn files_of_a_record_whose_lab_json_is_gone_or_damaged_are_not_overwritten() {
        let folder = tempfile::tempdir().expect("a folder");
        let out = folder.path().join("out");
        let guests = || BTreeMap::from([("rt-seed1".to_owned(), "k1".to_owned())]);
        claim(&out, guests(), true).expect("made");
        let record = out.join("rt-seed1");
        fs::create_dir(&record).expect("made");
        fs::write(record.join("plan.toml"), "measured").expect("written");
        let other_key = WHOLE.replace("\"k1\"", "\"k2\"");
        for (text, why) in [
            (None, "no readable lab.json"),
            (Some("{\"format\""), "no readable lab.json"),
            (Some(other_key.as_str()), "another key than order.json"),
        ] {
            if let Some(text) = text {
                fs::write(record.join("lab.json"), text).expect("written");
            }
            let said = claim(&out, guests(), true).expect_err(why).to_string();
            assert!(said.contains(why) && said.contains("--out"), "{said}");
        }
        fs::write(record.join("lab.json"), "{").expect("written");
        claim(&out, guests(), false).expect_err("--fresh doesn't know whose they are either");
        assert_eq!(fs::read_to_string(record.join("plan.toml")).expect("there"), "measured");
    }

    #[test]
    fn a_record_that_is_measured_again_takes_no_file_of_the_user_with_it() {
        let folder = tempfile::tempdir().expect("a folder");
        let out = folder.path().join("out");
        let guests = || BTreeMap::from([("rt-seed1".to_owned(), "k1".to_owned())]);
        claim(&out, guests(), true).expect("made");
        let record = out.join("rt-seed1");
        fs::create_dir_all(record.join("drift")).expect("made");
        for name in ["lab.json", "plan.toml", "verdict.json", "drift/report.html", "notes.txt"] {
            fs::write(record.join(name), WHOLE).expect("written");
        }
        for whole in ["\"whole\":true", "\"whole\":false"] {
            let text = WHOLE.replace("\"whole\":true", whole);
            fs::write(record.join("lab.json"), text).expect("written");
            let said = claim(&out, guests(), false).expect_err("a letter").to_string();
            assert!(said.contains("rtscope did not write notes.txt."), "{said}");
            assert!(record.join("plan.toml").exists() && record.join("notes.txt").exists());
        }
        fs::remove_file(record.join("notes.txt")).expect("removed");
        // A reader would take it for a file of the guest, which didn't send it.
        fs::write(record.join("beside.txt"), "notes").expect("written");
        let said = claim(&out, guests(), false).expect_err("a letter").to_string();
        assert!(said.contains("rtscope did not write beside.txt."), "{said}");
        fs::remove_file(record.join("beside.txt")).expect("removed");
        claim(&out, guests(), false).expect("nothing is lost");
        assert!(!record.exists());
    }
}
