//! What `rtscope doctor` reads of a machine, and what it concludes. One document holds both, so that another machine
//! can judge the same facts again.
//!
//! A file that isn't there is not in the map: no rule may take its absence for a value.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::{cpu::CpuSet, environment::Environment};

/// Version of the document.
pub const FORMAT: u32 = 1;

/// What was read of a machine.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct MachineFacts {
    /// The same as in a record.
    pub environment: Environment,
    /// Files by their path without the leading slash, for example `sys/kernel/realtime`.
    pub files: BTreeMap<String, FileReading>,
    /// Boot loader that the files in `/boot` and `/etc` show.
    pub boot_loader: BootLoader,
    /// Running programs, and enabled units of systemd, that are known to change settings or to disturb.
    pub services: Vec<String>,
    /// System management interrupts of each CPU since its reset; only on Intel CPUs, for root.
    pub smi_counts: BTreeMap<u32, u64>,
    /// Whether the facts are those of the running machine, not of a folder with copies of its files.
    pub live: bool,
}

impl MachineFacts {
    /// The text of a file; none where it isn't there or can't be read.
    #[must_use]
    pub fn text(&self, path: &str) -> Option<&str> {
        match self.files.get(path)? {
            FileReading::Text(text) => Some(text),
            FileReading::Refused => None,
        }
    }

    /// Whether a file is there, but the kernel refused to show it.
    #[must_use]
    pub fn is_refused(&self, path: &str) -> bool {
        self.files.get(path) == Some(&FileReading::Refused)
    }

    /// A file that holds a whole number.
    #[must_use]
    pub fn number(&self, path: &str) -> Option<i64> {
        self.text(path)?.parse().ok()
    }

    /// A file that holds a list of CPUs, for example `0-3,6`.
    #[must_use]
    pub fn cpus(&self, path: &str) -> Option<CpuSet> {
        self.text(path)?.parse().ok()
    }

    /// A file that holds a mask of CPUs in hexadecimal digits, for example `ff,00000003`.
    #[must_use]
    pub fn mask(&self, path: &str) -> Option<CpuSet> {
        CpuSet::from_mask(self.text(path)?)
    }

    /// The files whose path begins so, with their texts.
    pub fn texts_below<'a>(&'a self, start: &'a str) -> impl Iterator<Item = (&'a str, &'a str)> {
        let below = self
            .files
            .range(start.to_owned()..)
            .take_while(move |(path, _)| path.starts_with(start));
        below.filter_map(|(path, reading)| match reading {
            FileReading::Text(text) => Some((path.as_str(), text.as_str())),
            FileReading::Refused => None,
        })
    }

    /// Whether a program runs, or a unit is enabled.
    #[must_use]
    pub fn has_service(&self, name: &str) -> bool {
        self.services.iter().any(|service| service == name)
    }
}

/// A file as it was read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FileReading {
    /// Its text, without white space at its ends. A document has its lines as a list.
    #[serde(with = "lines")]
    Text(String),
    /// It is there, but the kernel or its permissions refused it.
    Refused,
}

/// A text as a list of its lines: a document has no text with line ends, since a terminal obeys them.
mod lines {
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    pub(super) fn serialize<S: Serializer>(text: &str, serializer: S) -> Result<S::Ok, S::Error> {
        text.lines().collect::<Vec<_>>().serialize(serializer)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<String, D::Error> {
        Ok(Vec::<String>::deserialize(from)?.join("\n"))
    }
}

/// What starts the kernel, which decides where its command line is written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum BootLoader {
    #[default]
    Unknown,
    /// GRUB with `/etc/default/grub`.
    Grub,
    /// The firmware of a Raspberry Pi with `cmdline.txt`.
    RaspberryPi,
    /// `extlinux.conf`.
    Extlinux,
    /// `extlinux.conf` that Debian's u-boot-menu writes from `/etc/default/u-boot`.
    UBootMenu,
    /// U-Boot with the boot script of Armbian, which reads `armbianEnv.txt`.
    Armbian,
    /// U-Boot with `uEnv.txt`.
    UBoot,
    /// systemd-boot with `/etc/kernel/cmdline`.
    SystemdBoot,
}

/// How much a problem matters for the deadline in question.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Severity {
    /// It may add less than a tenth of the deadline.
    Low,
    /// It isn't known, because the kernel doesn't show it.
    Unknown,
    /// It may add a tenth of the deadline or more.
    Medium,
    /// It may add half of the deadline or more, or it keeps real-time threads from running at all.
    High,
}

impl Severity {
    /// One word for a table.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Severity::Low => "low",
            Severity::Unknown => "unknown",
            Severity::Medium => "medium",
            Severity::High => "high",
        }
    }
}

/// How sure a rule is that what it found delays a wake-up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Sureness {
    /// The kernel's documentation or its source says so.
    Sure,
    /// It does on many machines.
    Likely,
    /// It did on some machines: measure before and after.
    Possible,
}

impl Sureness {
    /// One word for a table.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Sureness::Sure => "sure",
            Sureness::Likely => "likely",
            Sureness::Possible => "possible",
        }
    }
}

/// What kind of problem it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ProblemKind {
    /// A setting, or a property of the machine.
    Setting,
    /// Two settings that work against each other.
    Contradiction,
    /// Something that matters and can't be known here.
    NotKnown,
}

/// A file with what it says: what a finding is based on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileValue {
    /// Path with its leading slash, or the name of the source where it isn't a file.
    pub file: String,
    pub value: String,
}

/// One thing that `rtscope doctor` found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DoctorFinding {
    /// Stable name in kebab-case.
    pub code: String,
    pub kind: ProblemKind,
    pub severity: Severity,
    pub sureness: Sureness,
    /// A sentence: what was found.
    pub text: String,
    pub found: Vec<FileValue>,
    /// Why it matters for latency.
    pub why: String,
    /// What to do, with the line for this machine.
    pub mend: String,
    /// What mending it can cost.
    pub cost: String,
    /// Order of magnitude of the delay that it may add; none where it keeps threads from running, or isn't known.
    pub delay_ns: Option<u64>,
}

/// How a kernel was recognised, and by what.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PreemptionProof {
    /// The kernel's own name for the model, for example `PREEMPT_RT`.
    pub model: String,
    /// Sources that speak for `PREEMPT_RT`.
    pub real_time: Vec<FileValue>,
    /// Sources that speak against it.
    pub not_real_time: Vec<FileValue>,
}

/// The verdict of `rtscope doctor`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Readiness {
    /// Nothing found that may break the deadline.
    Ready,
    /// Something may break the deadline.
    NotReady,
    /// Too little is shown to say.
    NotKnown,
}

/// The document of `rtscope doctor --json` and of `rtscope collect`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DoctorDocument {
    /// [`FORMAT`].
    pub format: u32,
    /// Version of rtscope.
    pub version: String,
    /// Purpose that it was judged for, for example `ethercat`.
    pub purpose: String,
    pub deadline_ns: u64,
    pub readiness: Readiness,
    /// The verdict in one sentence.
    pub verdict: String,
    pub preemption: PreemptionProof,
    /// The worst first.
    pub findings: Vec<DoctorFinding>,
    /// Findings that don't matter for the purpose and its deadline, by their code.
    pub left_out: Vec<String>,
    pub facts: MachineFacts,
}

/// A setting of `rtscope tune` with its value.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SettingValue {
    pub name: String,
    pub value: String,
}

/// What changes one thing that `rtscope doctor` found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Suggestion {
    /// Code of the finding; `cpus-asked` for CPUs that the user named.
    pub code: String,
    pub severity: Severity,
    pub sureness: Sureness,
    /// A sentence: what was found.
    pub text: String,
    /// Why it matters for latency.
    pub why: String,
    pub cost: String,
    /// Order of magnitude of the delay that it may add.
    pub delay_ns: Option<u64>,
    /// Settings that can be changed at once.
    pub settings: Vec<SettingValue>,
    /// Words for the kernel's command line.
    pub boot: Option<String>,
    /// The line that sets these words in this machine's boot loader.
    pub boot_line: Option<String>,
    /// The command that changes it; none where rtscope has no setting for it.
    pub command: Option<String>,
    /// What to do where rtscope has no setting for it.
    pub by_hand: Option<String>,
}

/// The document of `rtscope tune suggest --json`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SuggestionDocument {
    pub format: u32,
    /// Version of rtscope.
    pub version: String,
    pub purpose: String,
    pub deadline_ns: u64,
    /// CPUs that are meant for real-time threads.
    pub cpus: CpuSet,
    /// Folder with the files of the machine, as `--root` names it; none for the running machine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub root: Option<String>,
    /// In the order of the findings, the worst first.
    pub suggestions: Vec<Suggestion>,
    /// One command for all of severity medium or high that can be changed at once.
    pub command: Option<String>,
    /// One command for all words of the command line, of the same severities.
    pub boot_command: Option<String>,
    /// The line for all words in this machine's boot loader.
    pub boot_line: Option<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn facts(path: &str, text: &str) -> MachineFacts {
        let files = [(path.to_owned(), FileReading::Text(text.to_owned()))].into();
        MachineFacts { files, ..MachineFacts::default() }
    }

    #[test]
    fn the_lines_of_a_file_outlive_a_document() {
        let facts = facts("etc/limits", "one\ntwo");
        let text = serde_json::to_string(&facts).expect("JSON");
        assert_eq!(crate::printable::from_json::<MachineFacts>(&text).expect("facts"), facts);
    }

    #[test]
    fn a_file_that_was_refused_has_no_text() {
        let mut facts = facts("a/b", "1");
        facts.files.insert("a/c".to_owned(), FileReading::Refused);
        assert_eq!((facts.number("a/b"), facts.number("a/c")), (Some(1), None));
        assert!(facts.is_refused("a/c") && !facts.is_refused("a/b") && !facts.is_refused("a/d"));
        assert_eq!(facts.texts_below("a/").collect::<Vec<_>>(), [("a/b", "1")]);
    }
}
