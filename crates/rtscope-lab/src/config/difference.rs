//! What two kernels' configurations differ in, and why it matters for latency: removed, added,
//! changed, in the words that board vendors use in their tables.
//!
//! It compares what the kernels were built with. Boot parameters and settings may undo much of it, in
//! both directions; the environment in a record says what was in force.

use std::{
    collections::BTreeMap,
    fmt::Write as _,
    fs,
    io::Read,
    path::{Path, PathBuf},
};

use flate2::read::GzDecoder;
use rtscope_model::environment::Environment;
use serde::Serialize;

use super::{
    merge,
    topics::{TOPICS, Topic},
};
use crate::{cache::Cache, error::LabError, spec};

/// Far above any configuration: guards against a file that is something else.
const CONFIG_BYTES_MAX: u64 = 16 * 1024 * 1024;

/// Options that are on, with their values; texts without quotes.
pub type Set = BTreeMap<String, String>;

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ChangedOption {
    /// Option without `CONFIG_`.
    pub option: String,
    /// Value in the first; none is off.
    pub before: Option<String>,
    /// Value in the second; none is off.
    pub after: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct TopicDifferences {
    pub topic: &'static str,
    /// What it does to latency.
    pub why: &'static str,
    pub changes: Vec<ChangedOption>,
}

/// What two configurations differ in.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ConfigDifference {
    /// Topics of which the second has less.
    pub removed: Vec<TopicDifferences>,
    /// Topics of which the second has more.
    pub added: Vec<TopicDifferences>,
    /// Topics where values differ, or some options came and others went.
    pub changed: Vec<TopicDifferences>,
    /// Options that belong to no topic.
    pub other: Vec<ChangedOption>,
}

#[must_use]
pub fn compare(before: &Set, after: &Set) -> ConfigDifference {
    let names: std::collections::BTreeSet<&String> = before.keys().chain(after.keys()).collect();
    let mut by_topic: BTreeMap<usize, Vec<ChangedOption>> = BTreeMap::new();
    let mut difference = ConfigDifference::default();
    for name in names {
        let (was, is) = (before.get(name).cloned(), after.get(name).cloned());
        if was == is {
            continue;
        }
        let change = ChangedOption { option: name.clone(), before: was, after: is };
        match TOPICS.iter().position(|topic| topic.options.iter().any(|o| matches(o, name))) {
            Some(topic) => by_topic.entry(topic).or_default().push(change),
            None => difference.other.push(change),
        }
    }
    for (topic, changes) in by_topic {
        let Topic { name, why, .. } = TOPICS[topic];
        let came = changes.iter().filter(|change| change.before.is_none()).count();
        let went = changes.iter().filter(|change| change.after.is_none()).count();
        let list = match (came, went) {
            (_, 0) if came == changes.len() => &mut difference.added,
            (0, _) if went == changes.len() => &mut difference.removed,
            _ => &mut difference.changed,
        };
        list.push(TopicDifferences { topic: name, why, changes });
    }
    difference
}

fn matches(pattern: &str, name: &str) -> bool {
    if let Some(start) = pattern.strip_suffix('*') {
        return name.starts_with(start);
    }
    pattern.strip_prefix('*').map_or(pattern == name, |end| name.ends_with(end))
}

impl ChangedOption {
    fn text(&self) -> String {
        match (&self.before, &self.after) {
            (Some(before), Some(after)) => format!("{} {before} -> {after}", self.option),
            (Some(before), None) if before == "y" => format!("-{}", self.option),
            (None, Some(after)) if after == "y" => format!("+{}", self.option),
            (Some(before), None) => format!("-{}={before}", self.option),
            (None, after) => format!("+{}={}", self.option, after.as_deref().unwrap_or("")),
        }
    }
}

/// The difference as text: the vendor's table. `all` names the options of no topic too.
#[must_use]
pub fn text(difference: &ConfigDifference, names: [&str; 2], all: bool) -> String {
    let mut text = format!("From {} to {}:\n", names[0], names[1]);
    let parts = [
        ("Removed", &difference.removed),
        ("Added", &difference.added),
        ("Changed", &difference.changed),
    ];
    for (heading, rows) in parts {
        if rows.is_empty() {
            continue;
        }
        let _ = writeln!(text, "\n{heading}");
        for row in rows {
            let changes: Vec<String> = row.changes.iter().map(ChangedOption::text).collect();
            let _ = writeln!(text, "  {}", row.topic);
            wrap(&mut text, row.why, "    ");
            let shown = if all { changes.len() } else { changes.len().min(8) };
            let more = changes.len() - shown;
            let mut list = changes[..shown].join(", ");
            if more > 0 {
                let _ = write!(list, " and {more} more");
            }
            wrap(&mut text, &list, "      ");
        }
    }
    let nothing = parts.iter().all(|(_, rows)| rows.is_empty());
    if nothing {
        text.push_str("\nNo option that affects latency differs.\n");
    }
    if all && !difference.other.is_empty() {
        let _ = writeln!(text, "\nOther options");
        for change in &difference.other {
            let _ = writeln!(text, "  {}", change.text());
        }
    } else if !difference.other.is_empty() {
        let _ = writeln!(
            text,
            "\n{} other options differ; use --all to list them.",
            difference.other.len()
        );
    }
    text
}

fn wrap(text: &mut String, words: &str, indent: &str) {
    let mut line = indent.to_owned();
    for word in words.split(' ').filter(|word| !word.is_empty()) {
        if line.len() + word.len() + 1 > 96 && line.trim() != "" {
            let _ = writeln!(text, "{}", line.trim_end());
            line = indent.to_owned();
        }
        line += word;
        line.push(' ');
    }
    let _ = writeln!(text, "{}", line.trim_end());
}

/// A configuration and what to call it.
#[derive(Clone, Debug)]
pub struct Side {
    pub name: String,
    pub options: Set,
}

/// Finds a configuration: `running`, a built or configured kernel's name or key, a configuration file
/// (plain or `.gz`), a record's folder, an environment as JSON, a folder with a `.config`.
///
/// # Errors
///
/// Nothing of that name, or a file without options.
pub fn find(name: &str, cache: &Cache) -> Result<Side, LabError> {
    let of = |what: String, options: Set| Side { name: what, options };
    if name == "running" {
        return Ok(of("the running kernel".to_owned(), running(Path::new("/"))?));
    }
    let path = Path::new(name);
    if let Some(file) = file_of(path) {
        let options = read_file(&file)?;
        if options.is_empty() {
            return Err(LabError::Refused(format!(
                "{} holds no kernel configuration",
                file.display()
            )));
        }
        return Ok(of(name.to_owned(), options));
    }
    if let Some(kernel) = cache.find(name) {
        let config = kernel.config().ok_or_else(|| {
            LabError::Refused(format!("the configuration of {name} isn't kept with it"))
        })?;
        return Ok(of(format!("{name} ({})", kernel.manifest.release), read_file(&config)?));
    }
    match spec::find(name) {
        Ok(spec) => Err(LabError::Refused(format!(
            "{} isn't built yet, so its configuration isn't known: run `rtscope kernel configure {name}` \
             and compare the file that it names, or `rtscope kernel build {name}`",
            spec.name
        ))),
        Err(_) => Err(LabError::Refused(format!(
            "{name:?} is neither a kernel nor a file: give a built kernel's name, a configuration file, a \
             record's folder, or `running`"
        ))),
    }
}

/// The file in a folder, or the file itself.
fn file_of(path: &Path) -> Option<PathBuf> {
    if path.is_file() {
        return Some(path.to_owned());
    }
    let names = ["environment.before.json", "config", ".config"];
    names.iter().map(|name| path.join(name)).find(|file| path.is_dir() && file.is_file())
}

/// The running kernel's configuration, below a root.
fn running(root: &Path) -> Result<Set, LabError> {
    let packed = root.join("proc/config.gz");
    if packed.exists() {
        return read_file(&packed);
    }
    let path = root.join("proc/sys/kernel/osrelease");
    let release = fs::read_to_string(&path).map_err(LabError::file("read", &path))?;
    let release = release.trim();
    let beside = [format!("boot/config-{release}"), format!("lib/modules/{release}/config")];
    let found = beside.iter().map(|name| root.join(name)).find(|path| path.is_file());
    found.map_or_else(
        || {
            Err(LabError::Refused(format!(
                "the running kernel {release} shows no configuration: there is neither \
                 /proc/config.gz nor /boot/config-{release}"
            )))
        },
        |path| read_file(&path),
    )
}

pub(crate) fn read_file(path: &Path) -> Result<Set, LabError> {
    let bytes = fs::read(path).map_err(LabError::file("read", path))?;
    let text = if bytes.starts_with(&[0x1f, 0x8b]) {
        let mut text = String::new();
        let read =
            GzDecoder::new(bytes.as_slice()).take(CONFIG_BYTES_MAX).read_to_string(&mut text);
        read.map_err(LabError::file("unpack", path))?;
        text
    } else {
        String::from_utf8_lossy(&bytes).into_owned()
    };
    if let Ok(environment) = serde_json::from_str::<Environment>(&text) {
        return Ok(environment.kernel.config);
    }
    let on = |(name, value): (String, merge::Value)| match value {
        merge::Value::Off => None,
        merge::Value::Set(text) => Some((name, text.trim_matches('"').to_owned())),
    };
    Ok(merge::read(&text).into_iter().filter_map(on).collect())
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use flate2::{Compression, write::GzEncoder};

    use super::*;

    const STOCK: &str = "CONFIG_PREEMPT=y\nCONFIG_CPU_FREQ=y\nCONFIG_CPU_FREQ_GOV_ONDEMAND=m\nCONFIG_CPU_IDLE=y\n\
        CONFIG_THERMAL=y\nCONFIG_BT=m\nCONFIG_OPROFILE=y\nCONFIG_KEXEC=y\nCONFIG_HOTPLUG_CPU=y\n\
        CONFIG_TRANSPARENT_HUGEPAGE=y\nCONFIG_HZ=250\nCONFIG_HZ_250=y\nCONFIG_EXT4_FS=y\nCONFIG_LOCALVERSION=\"\"\n";
    const RT: &str = "CONFIG_PREEMPT_RT=y\nCONFIG_HZ=1000\nCONFIG_HZ_1000=y\nCONFIG_EXT4_FS=m\n\
        CONFIG_OSNOISE_TRACER=y\nCONFIG_LOCALVERSION=\"-rt\"\n# CONFIG_KEXEC is not set\n";

    fn set(text: &str) -> Set {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("config");
        fs::write(&path, text).expect("written");
        read_file(&path).expect("read")
    }

    #[test]
    fn the_vendors_table_comes_out() {
        let difference = compare(&set(STOCK), &set(RT));
        let topics =
            |rows: &[TopicDifferences]| rows.iter().map(|row| row.topic).collect::<Vec<_>>();
        assert_eq!(
            topics(&difference.removed),
            [
                "Preemption model",
                "CPU frequency and performance governors",
                "CPU idle, power management, suspend and sleep",
                "Thermal control",
                "Bluetooth",
                "Profiling (OProfile)",
                "KEXEC",
                "Hotplug",
                "Transparent huge pages"
            ]
        );
        assert_eq!(
            topics(&difference.added),
            ["Real-time preemption", "Latency tracers that are switched on when needed"]
        );
        assert_eq!(topics(&difference.changed), ["Timer tick frequency"]);
        let other: Vec<&str> = difference.other.iter().map(|c| c.option.as_str()).collect();
        assert_eq!(other, ["EXT4_FS", "LOCALVERSION"]);
        let shown = text(&difference, ["stock", "rt"], false);
        assert!(shown.contains("  KEXEC\n    Boots a second kernel"), "{shown}");
        assert!(shown.contains("-CPU_FREQ, -CPU_FREQ_GOV_ONDEMAND=m"), "{shown}");
        assert!(
            shown.contains("HZ 250 -> 1000") && shown.contains("2 other options differ"),
            "{shown}"
        );
        assert!(shown.lines().all(|line| line.len() <= 100));
        assert!(text(&difference, ["stock", "rt"], true).contains("EXT4_FS y -> m"));
    }

    #[test]
    fn equal_kernels_differ_in_nothing() {
        let difference = compare(&set(STOCK), &set(STOCK));
        assert_eq!(difference, ConfigDifference::default());
        assert!(text(&difference, ["a", "b"], false).contains("No option that affects latency"));
    }

    #[test]
    fn every_source_of_a_configuration_is_read() {
        let folder = tempfile::tempdir().expect("a folder");
        let cache = Cache::at(folder.path().join("cache"));
        let mut packer = GzEncoder::new(Vec::new(), Compression::default());
        packer.write_all(RT.as_bytes()).expect("memory");
        let packed = folder.path().join("config.gz");
        fs::write(&packed, packer.finish().expect("memory")).expect("written");
        let of_file = find(&packed.display().to_string(), &cache).expect("a file").options;
        assert_eq!(of_file["LOCALVERSION"], "-rt");
        let record = folder.path().join("record");
        fs::create_dir(&record).expect("made");
        let mut environment = Environment::default();
        environment.kernel.config = of_file.clone();
        let text = serde_json::to_string(&environment).expect("text");
        fs::write(record.join("environment.before.json"), text).expect("written");
        let of_record = find(&record.display().to_string(), &cache).expect("a record").options;
        assert_eq!(of_record, of_file);
        let root = folder.path().join("root");
        fs::create_dir_all(root.join("proc/sys/kernel")).expect("made");
        fs::create_dir_all(root.join("boot")).expect("made");
        fs::write(root.join("proc/sys/kernel/osrelease"), "6.1.0-9\n").expect("written");
        assert!(running(&root).expect_err("none").to_string().contains("/boot/config-6.1.0-9"));
        fs::write(root.join("boot/config-6.1.0-9"), RT).expect("written");
        assert_eq!(running(&root).expect("beside"), of_file);
        let said = find("tiny-6.12-rt", &cache).expect_err("not built").to_string();
        assert!(said.contains("rtscope kernel configure tiny-6.12-rt"), "{said}");
        let empty = folder.path().join("empty");
        fs::write(&empty, "nothing\n").expect("written");
        let said = find(&empty.display().to_string(), &cache).expect_err("empty").to_string();
        assert!(said.contains("holds no kernel configuration"), "{said}");
    }

    #[test]
    fn every_topic_says_why() {
        for topic in TOPICS {
            assert!(topic.why.ends_with('.') && topic.why.len() > 40, "{}", topic.name);
            assert!(!topic.options.is_empty(), "{}", topic.name);
        }
    }
}
