//! Machines of `fixtures/doctor` with one thing changed: `rtscope doctor` must find that, and nothing else.
//! `fixtures/doctor/mutations.toml` has them.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
};

use rtscope_analyse::doctor::{Purpose, diagnose};
use rtscope_measure::doctor::collect;
use rtscope_model::doctor::DoctorDocument;
use rtscope_sys::tree::Tree;
use serde::Deserialize;

use crate::{collect::unpack, support::folder as room};

const FILE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fixtures/doctor/mutations.toml");

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Mutations {
    mutation: Vec<Mutation>,
}

/// The head of the file says what each field means.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Mutation {
    name: String,
    base: String,
    #[serde(rename = "for")]
    purpose: Option<String>,
    #[serde(default)]
    put: BTreeMap<String, String>,
    #[serde(default)]
    replace: BTreeMap<String, [String; 2]>,
    #[serde(default)]
    remove: Vec<String>,
    #[serde(default)]
    appears: BTreeMap<String, String>,
    #[serde(default)]
    gone: BTreeSet<String>,
    #[serde(default)]
    mend: BTreeMap<String, String>,
    #[serde(default)]
    text: BTreeMap<String, String>,
}

impl Mutation {
    fn apply(&self, root: &Path) {
        for path in self.remove.iter().map(|path| root.join(path)) {
            let removed =
                if path.is_dir() { fs::remove_dir_all(&path) } else { fs::remove_file(&path) };
            removed.unwrap_or_else(|e| panic!("{}: {}: {e}", self.name, path.display()));
        }
        for (path, [old, new]) in &self.replace {
            let text = fs::read_to_string(root.join(path)).expect("text");
            assert!(text.contains(old), "{}: {path} has no {old:?}", self.name);
            fs::write(root.join(path), text.replace(old, new)).expect("written");
        }
        for (path, content) in &self.put {
            let path = root.join(path);
            fs::create_dir_all(path.parent().expect("a folder")).expect("made");
            fs::write(path, content).expect("written");
        }
    }

    fn examined(&self, root: &Path) -> DoctorDocument {
        let purpose = Purpose::named(self.purpose.as_deref().unwrap_or("ethercat"));
        let purpose = purpose.expect("a purpose");
        diagnose(&collect(&Tree::under(root)), purpose, purpose.deadline_ns, "test")
    }

    /// What is wrong with the findings before and after.
    fn problems(&self, before: &DoctorDocument, after: &DoctorDocument) -> Vec<String> {
        let (old, new) = (severities(before), severities(after));
        let appears: BTreeMap<String, String> =
            new.iter().filter(|(code, _)| !old.contains_key(*code)).map(owned).collect();
        let gone: BTreeSet<String> =
            old.keys().filter(|code| !new.contains_key(*code)).cloned().collect();
        let mut problems = Vec::new();
        if appears != self.appears {
            problems.push(format!("appears {appears:?}, not {:?}", self.appears));
        }
        if gone != self.gone {
            problems.push(format!("gone {gone:?}, not {:?}", self.gone));
        }
        let finding = |code: &str| after.findings.iter().find(|one| one.code == code);
        for (what, parts) in [("mend", &self.mend), ("text", &self.text)] {
            for (code, part) in parts {
                let told = finding(code).map_or("", |one| match what {
                    "mend" => &one.mend,
                    _ => &one.text,
                });
                if !told.contains(part.as_str()) {
                    problems.push(format!("{what} of {code} is {told:?}, without {part:?}"));
                }
            }
        }
        problems
    }
}

fn owned((code, severity): (&String, &String)) -> (String, String) {
    (code.clone(), severity.clone())
}

/// The severity of every finding, those that are left out too.
fn severities(document: &DoctorDocument) -> BTreeMap<String, String> {
    let findings = document.findings.iter();
    let shown = findings.map(|one| (one.code.clone(), one.severity.word().to_owned()));
    let left_out = document.left_out.iter().map(|code| (code.clone(), "left-out".to_owned()));
    shown.chain(left_out).collect()
}

#[test]
fn each_change_of_a_machine_is_found_once_and_nothing_else_is() {
    let all: Mutations = toml::from_str(&fs::read_to_string(FILE).expect("text")).expect("TOML");
    let mut wrong = Vec::new();
    for mutation in &all.mutation {
        let room = room();
        let root = unpack(&mutation.base, room.path());
        let before = mutation.examined(&root);
        mutation.apply(&root);
        let problems = mutation.problems(&before, &mutation.examined(&root));
        wrong.extend(problems.iter().map(|problem| format!("{}: {problem}", mutation.name)));
    }
    assert!(all.mutation.len() >= 40);
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Bytes that no file of the kernel has.
const GARBAGE: [&[u8]; 4] =
    [b"", b"\xff\xfe\0\x1b[31m\x07\xc3\x28", b"-1", b"99999999999999999999999999 : ( ) , - % =\n="];

#[test]
fn garbage_in_any_file_invents_nothing_of_severity_high() {
    let room = room();
    let root = unpack("server-isolated", room.path());
    let mut files = Vec::new();
    walk(&root, &mut files);
    // One of each kind: the files of the other CPUs and threads are read in the same way.
    let mut kinds = BTreeSet::new();
    files.retain(|file| {
        let kind: String =
            file.display().to_string().chars().filter(|c| !c.is_ascii_digit()).collect();
        kinds.insert(kind)
    });
    assert!(files.len() > 40, "{}", files.len());
    for file in &files {
        let kept = fs::read(file).expect("bytes");
        for garbage in GARBAGE {
            fs::write(file, garbage).expect("written");
            let facts = collect(&Tree::under(&root));
            let purpose = Purpose::named("ethercat").expect("a purpose");
            let document = diagnose(&facts, purpose, purpose.deadline_ns, "test");
            let high: Vec<&str> = document
                .findings
                .iter()
                .filter(|one| one.severity.word() == "high")
                .map(|one| one.code.as_str())
                .collect();
            // Any word but one is another governor, and a line without the parameters is one that wasn't booted.
            let is_right = (file.ends_with("scaling_governor") && high == ["governor"])
                || (file.ends_with("proc/cmdline") && high == ["boot-config-not-in-force"]);
            assert!(high.is_empty() || is_right, "{}: {garbage:?}: {high:?}", file.display());
        }
        fs::write(file, kept).expect("written");
    }
}

fn walk(folder: &Path, files: &mut Vec<std::path::PathBuf>) {
    for entry in fs::read_dir(folder).expect("a folder").flatten() {
        match entry.path() {
            path if path.is_dir() => walk(&path, files),
            path => files.push(path),
        }
    }
}
