//! Whether the running kernel is the one that was built, and whether it is really a real-time kernel.
//!
//! The build writes its key into the kernel as the name of the building host (`/proc/version`), and the
//! linker a build id (`/sys/kernel/notes`): two builds of one release are told apart.

use std::{
    fmt, fs,
    path::{Path, PathBuf},
};

use serde::Serialize;

use crate::{
    cache::{Identity, KeptKernel},
    config::difference,
    digest::hex,
    error::LabError,
    install::journal,
};

/// The running kernel as it shows itself.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct RunningKernel {
    /// `uname -r`.
    pub release: String,
    /// `uname -v`.
    pub version: String,
    /// `/proc/version`.
    pub banner: String,
    /// The linker's build id, where the kernel shows it.
    pub build_id: Option<String>,
    /// `CONFIG_PREEMPT_RT`, where the kernel shows its configuration.
    pub configured_real_time: Option<bool>,
    /// `/sys/kernel/realtime`, which kernels with the patch have and mainline has not.
    pub realtime_file: Option<bool>,
}

/// One thing that was compared.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct KernelCheck {
    /// What.
    pub name: &'static str,
    /// Whether it is as it should be; none where the kernel doesn't show it.
    pub passed: Option<bool>,
    pub text: String,
}

/// What a verification found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Verification {
    pub running: RunningKernel,
    /// The kernel that should run.
    pub expected: Option<Identity>,
    pub checks: Vec<KernelCheck>,
}

impl Verification {
    /// Whether something is not as it should be.
    #[must_use]
    pub fn failed(&self) -> bool {
        self.checks.iter().any(|check| check.passed == Some(false))
    }

    /// Whether the running kernel is told from every other by what it shows, and all is as it should be.
    #[must_use]
    pub fn passed(&self) -> bool {
        let sure = |name| self.checks.iter().any(|c| c.name == name && c.passed == Some(true));
        !self.failed() && (self.expected.is_none() || sure("build id") || sure("key"))
    }
}

impl fmt::Display for Verification {
    /// What is as it should be, what is not, and what can't be told, in a line.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let words = |check: &KernelCheck| match check.passed {
            Some(true) => Some(format!("{} {}", check.name, check.text)),
            Some(false) => Some(format!("wrong {}: {}", check.name, check.text)),
            None => None,
        };
        let known: Vec<String> = self.checks.iter().filter_map(words).collect();
        f.write_str(&known.join("; "))
    }
}

/// Reads what the running kernel shows, below a root.
///
/// # Errors
///
/// It shows nothing: there is no `/proc`.
pub fn running(root: &Path) -> Result<RunningKernel, LabError> {
    let read = |name: &str| fs::read_to_string(root.join(name)).map(|text| text.trim().to_owned());
    let path = root.join("proc/sys/kernel/osrelease");
    let release = read("proc/sys/kernel/osrelease").map_err(LabError::file("read", path))?;
    let config = root.join("proc/config.gz");
    let beside = root.join(format!("boot/config-{release}"));
    let config = [config, beside].into_iter().find(|path| path.is_file());
    let real_time =
        |path: PathBuf| difference::read_file(&path).ok().map(|set| set.contains_key("PREEMPT_RT"));
    Ok(RunningKernel {
        version: read("proc/sys/kernel/version").unwrap_or_default(),
        banner: read("proc/version").unwrap_or_default(),
        build_id: fs::read(root.join("sys/kernel/notes")).ok().and_then(|notes| build_id(&notes)),
        configured_real_time: config.and_then(real_time),
        realtime_file: read("sys/kernel/realtime").ok().map(|text| text == "1"),
        release,
    })
}

/// The GNU build id among a kernel's ELF notes: name size, description size and type, each in four bytes;
/// then name and description, each padded to four.
fn build_id(notes: &[u8]) -> Option<String> {
    let word = |at: usize| -> Option<usize> {
        let bytes: [u8; 4] = notes.get(at..at + 4)?.try_into().ok()?;
        usize::try_from(u32::from_ne_bytes(bytes)).ok()
    };
    let mut at = 0;
    loop {
        let (name, description, kind) = (word(at)?, word(at + 4)?, word(at + 8)?);
        let start = at + 12 + name.checked_next_multiple_of(4)?;
        let bytes = notes.get(start..start.checked_add(description)?)?;
        if kind == 3 && notes.get(at + 12..at + 12 + name) == Some(b"GNU\0") {
            return Some(hex(bytes));
        }
        at = start + description.checked_next_multiple_of(4)?;
    }
}

/// Verifies the running kernel, below a root, against a kept kernel, or against the one that was
/// installed last. Without either it only says whether it is a real-time kernel.
pub fn verify(root: &Path, kernel: Option<&KeptKernel>) -> Result<Verification, LabError> {
    let expected = match kernel {
        Some(kernel) => Some(kernel.identity()),
        None => journal::all(root)?
            .into_iter()
            .rfind(|found| found.done && found.heading.parameters.is_none())
            .map(|found| found.heading.kernel),
    };
    verify_against(root, expected)
}

/// Verifies the kernel that shows itself below a root against one that is known by its identity alone.
/// Without one, it only says whether it is a real-time kernel.
pub fn verify_against(root: &Path, expected: Option<Identity>) -> Result<Verification, LabError> {
    let running = running(root)?;
    let mut checks = Vec::new();
    if let Some(expected) = &expected {
        checks.extend(identity(&running, expected));
    }
    // With nothing asked, a real-time kernel is what is looked for.
    let asked = expected.as_ref().map_or(Some(true), |kernel| kernel.real_time);
    checks.push(real_time(&running, asked));
    Ok(Verification { running, expected, checks })
}

fn identity(running: &RunningKernel, expected: &Identity) -> Vec<KernelCheck> {
    let equal = |name, found: &str, asked: &str| KernelCheck {
        name,
        passed: (!found.is_empty() && !asked.is_empty()).then(|| found == asked),
        text: match (found, asked) {
            ("", _) => "not shown by the running kernel".to_owned(),
            // Kernels of others come without it.
            (found, "") => format!("{found}; the expected one is not known"),
            (found, asked) if found == asked => found.to_owned(),
            (found, asked) => format!("{found}, not {asked}"),
        },
    };
    let id = match (&running.build_id, &expected.build_id) {
        (Some(found), Some(asked)) => equal("build id", found, asked),
        _ => KernelCheck { name: "build id", passed: None, text: "not known of both".to_owned() },
    };
    // A kernel of somebody else's has another host's name there.
    let has_key = running.banner.contains(&format!("@{})", expected.key));
    let key = KernelCheck {
        name: "key",
        passed: has_key.then_some(true),
        text: if has_key { expected.key.clone() } else { "not in /proc/version".to_owned() },
    };
    vec![
        equal("release", &running.release, &expected.release),
        equal("version", &running.version, &expected.version),
        key,
        id,
    ]
}

/// Whether the running kernel is a real-time kernel, by all that it shows; and as it should be, if that is known.
fn real_time(running: &RunningKernel, asked: Option<bool>) -> KernelCheck {
    let in_version =
        running.version.contains("PREEMPT_RT") || running.version.contains("PREEMPT RT");
    let shown = [
        ("uname -v", (!running.version.is_empty()).then_some(in_version)),
        ("its configuration", running.configured_real_time),
        ("/sys/kernel/realtime", running.realtime_file),
    ];
    let known: Vec<(&str, bool)> =
        shown.into_iter().filter_map(|(name, value)| Some((name, value?))).collect();
    let names = |wanted: bool| {
        known
            .iter()
            .filter(|(_, is)| *is == wanted)
            .map(|(name, _)| *name)
            .collect::<Vec<_>>()
            .join(", ")
    };
    let (yes, no) = (names(true), names(false));
    let (passed, text) = match (yes.is_empty(), no.is_empty()) {
        (false, true) => (asked, format!("PREEMPT_RT, according to {yes}")),
        (true, false) => (asked.map(|asked| !asked), format!("not PREEMPT_RT, according to {no}")),
        (true, true) => (None, "not known".to_owned()),
        (false, false) => (
            Some(false),
            format!("contradictory: PREEMPT_RT according to {yes}, and not according to {no}"),
        ),
    };
    KernelCheck { name: "real-time", passed, text }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: &str = "0123456789abcdef";

    fn put(root: &Path, name: &str, bytes: &[u8]) {
        let path = root.join(name);
        fs::create_dir_all(path.parent().expect("a folder")).expect("made");
        fs::write(path, bytes).expect("written");
    }

    fn note(kind: u32, name: &[u8], description: &[u8]) -> Vec<u8> {
        let mut bytes = Vec::new();
        for word in [name.len() as u32, description.len() as u32, kind] {
            bytes.extend(word.to_ne_bytes());
        }
        for part in [name, description] {
            bytes.extend(part);
            bytes.resize(bytes.len().next_multiple_of(4), 0);
        }
        bytes
    }

    /// A system that runs a kernel of ours.
    fn system(version: &str) -> tempfile::TempDir {
        let root = tempfile::tempdir().expect("a folder");
        put(root.path(), "proc/sys/kernel/osrelease", b"6.12.0-rt\n");
        put(root.path(), "proc/sys/kernel/version", format!("{version}\n").as_bytes());
        let banner = format!("Linux version 6.12.0-rt (rtscope@{KEY}) (gcc 12) {version}\n");
        put(root.path(), "proc/version", banner.as_bytes());
        let notes = [note(0x100, b"Xen\0", b"abc"), note(3, b"GNU\0", &[0xab; 20])].concat();
        put(root.path(), "sys/kernel/notes", &notes);
        root
    }

    fn kernel(folder: &Path, change: impl FnOnce(&mut crate::cache::Manifest)) -> KeptKernel {
        put(folder, "config", b"CONFIG_PREEMPT_RT=y\n");
        let mut manifest = crate::cache::Manifest {
            name: "small-rt".into(),
            key: KEY.into(),
            release: "6.12.0-rt".into(),
            version: "#1 SMP PREEMPT_RT Thu".into(),
            config: Some("config".into()),
            build_id: Some("ab".repeat(20)),
            ..crate::cache::Manifest::default()
        };
        change(&mut manifest);
        KeptKernel { dir: folder.to_owned(), manifest }
    }

    fn failing(found: &Verification) -> Vec<&'static str> {
        let failed = found.checks.iter().filter(|check| check.passed == Some(false));
        failed.map(|check| check.name).collect()
    }

    #[test]
    fn the_kernel_that_was_built_is_recognised() {
        let root = system("#1 SMP PREEMPT_RT Thu");
        let folder = tempfile::tempdir().expect("a folder");
        let found = verify(root.path(), Some(&kernel(folder.path(), |_| {}))).expect("read");
        assert!(found.passed(), "{found:#?}");
        assert_eq!(found.running.build_id, Some("ab".repeat(20)));
    }

    #[test]
    fn boot_parameters_above_a_kernel_are_no_kernel() {
        let root = system("#1 SMP PREEMPT_RT Thu");
        let folder = tempfile::tempdir().expect("a folder");
        let kernel = kernel(folder.path(), |_| {}).identity();
        let journal = |kernel: Identity, parameters: Option<String>| {
            let heading =
                journal::Heading { kernel, layout: crate::install::BootLayout::Grub, parameters };
            let mut steps = crate::install::Steps::default();
            let mut journal =
                journal::Journal::begin(root.path(), &heading, &mut steps).expect("begun");
            journal.add(&journal::JournalLine::Done, &mut steps).expect("done");
        };
        journal(kernel.clone(), None);
        journal(
            Identity { name: "boot parameters".into(), ..Identity::default() },
            Some("nosmt".into()),
        );
        let found = verify(root.path(), None).expect("read");
        assert_eq!(found.expected, Some(kernel));
        assert!(found.passed(), "{found:#?}");
    }

    #[test]
    fn another_build_of_the_same_release_is_not() {
        let root = system("#1 SMP PREEMPT_RT Thu");
        let folder = tempfile::tempdir().expect("a folder");
        let other = kernel(folder.path(), |manifest| manifest.build_id = Some("cd".repeat(20)));
        let found = verify(root.path(), Some(&other)).expect("read");
        assert_eq!(failing(&found), ["build id"]);
        let unknown = kernel(folder.path(), |manifest| {
            manifest.build_id = None;
            manifest.key = "fedcba9876543210".into();
        });
        let found = verify(root.path(), Some(&unknown)).expect("read");
        assert!(!found.failed() && !found.passed(), "neither build id nor key: can't be told");
        let old = kernel(folder.path(), |manifest| manifest.release = "6.1.0".into());
        assert_eq!(failing(&verify(root.path(), Some(&old)).expect("read")), ["release"]);
    }

    #[test]
    fn a_version_that_nobody_wrote_down_is_no_difference() {
        let root = system("#1 SMP PREEMPT_RT Thu");
        let folder = tempfile::tempdir().expect("a folder");
        let debians = kernel(folder.path(), |manifest| manifest.version.clear());
        let found = verify(root.path(), Some(&debians)).expect("read");
        let check = found.checks.iter().find(|check| check.name == "version").expect("checked");
        assert_eq!(check.passed, None);
        assert_eq!(check.text, "#1 SMP PREEMPT_RT Thu; the expected one is not known");
    }

    #[test]
    fn real_time_is_not_taken_on_trust() {
        let of = |version: &str, config: Option<&str>, file: Option<&str>| {
            let root = system(version);
            if let Some(config) = config {
                put(root.path(), "boot/config-6.12.0-rt", config.as_bytes());
            }
            if let Some(file) = file {
                put(root.path(), "sys/kernel/realtime", file.as_bytes());
            }
            let found = verify(root.path(), None).expect("read");
            (found.passed(), found.checks[0].text.clone())
        };
        assert_eq!(
            of("#1 SMP PREEMPT_RT Thu", Some("CONFIG_PREEMPT_RT=y\n"), None),
            (true, "PREEMPT_RT, according to uname -v, its configuration".to_owned())
        );
        assert!(of("#1 SMP PREEMPT RT Thu", None, Some("1\n")).0, "kernels with the patch of old");
        assert!(!of("#1 SMP PREEMPT_DYNAMIC Thu", None, None).0);
        let (passed, text) = of("#1 SMP PREEMPT_RT Thu", Some("CONFIG_PREEMPT=y\n"), None);
        assert!(!passed && text.starts_with("contradictory"), "{text}");
    }

    #[test]
    fn a_kernel_without_a_known_configuration_need_not_be_a_real_time_kernel() {
        let root = system("#1 SMP PREEMPT_DYNAMIC Thu");
        let folder = tempfile::tempdir().expect("a folder");
        let ubuntus = Identity {
            real_time: None,
            version: String::new(),
            ..kernel(folder.path(), |_| {}).identity()
        };
        let found = verify_against(root.path(), Some(ubuntus)).expect("read");
        assert!(!found.failed(), "{found}");
        assert!(
            found.checks.iter().any(|check| check.name == "real-time" && check.passed.is_none())
        );
        put(root.path(), "sys/kernel/realtime", b"1\n");
        for real_time in [None, Some(false), Some(true)] {
            let asked = Identity { real_time, ..kernel(folder.path(), |_| {}).identity() };
            let found = verify_against(root.path(), Some(asked)).expect("read");
            assert!(failing(&found).contains(&"real-time"), "contradictory: {found}");
        }
    }

    #[test]
    fn damaged_notes_have_no_build_id() {
        assert_eq!(build_id(&[]), None);
        assert_eq!(build_id(&[0xff; 64]), None);
        let whole = note(3, b"GNU\0", &[1; 20]);
        assert_eq!(build_id(&whole[..whole.len() - 1]), None);
    }
}
