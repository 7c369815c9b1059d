//! The file of places, `places.toml`.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

use rtscope_model::{
    text::{Problem, TextError, problem_of},
    time::Nanos,
};
use serde::Deserialize;

use crate::{error::FleetError, labgrid::Coordinator, selector::Selector, slurm::Cluster};

/// A machine that rtscope can reach.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FleetPlace {
    /// Letters, digits, `-`, `_` and `.`: it names a folder of results.
    pub name: String,
    pub reach: Reach,
    /// Words, or `KEY=VALUE`.
    pub tags: Vec<String>,
    /// Where the folder of a job is made; none for `/var/tmp`, which outlives a reboot.
    pub folder: Option<String>,
    /// The static rtscope for this machine; none for this very program.
    pub program: Option<PathBuf>,
    /// How long the place stays taken when nobody gives it back; none for a time that the plan's length gives.
    pub lease: Option<Nanos>,
    /// Other places may be the same machine, such as containers.
    pub shares_machine: bool,
    /// The folder of the file of places: where relative paths in its words for ssh begin.
    pub base: PathBuf,
}

/// How a place is reached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reach {
    /// This machine.
    Local,
    /// With the system's `ssh`.
    Ssh {
        /// A host, `USER@HOST`, or a name in ssh's own configuration.
        target: String,
        /// Further words for `ssh`, before the target.
        options: Vec<String>,
    },
    /// As the coordinator says once it has handed the place out.
    Labgrid {
        coordinator: Coordinator,
        /// Further words for `ssh`.
        ssh_options: Vec<String>,
    },
    /// In a job of Slurm, which hands the node of this name out.
    Slurm { cluster: Cluster },
}

impl Reach {
    /// The same with further words for ssh.
    #[must_use]
    pub(crate) fn with_options(mut self, more: &[String]) -> Reach {
        if let Reach::Ssh { options, .. } = &mut self {
            options.extend_from_slice(more);
        }
        self
    }

    #[must_use]
    pub fn word(&self) -> &'static str {
        match self {
            Reach::Local => "local",
            Reach::Ssh { .. } => "ssh",
            Reach::Labgrid { .. } => "labgrid",
            Reach::Slurm { .. } => "slurm",
        }
    }
}

/// The file as it is written.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct Text {
    #[serde(default)]
    defaults: DefaultsText,
    #[serde(default)]
    places: BTreeMap<String, PlaceText>,
    labgrid: Option<Coordinator>,
    slurm: Option<Cluster>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct DefaultsText {
    #[serde(default)]
    ssh_options: Vec<String>,
    #[serde(default)]
    tags: Vec<String>,
    folder: Option<String>,
    program: Option<PathBuf>,
    lease: Option<Nanos>,
    shares_machine: Option<bool>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct PlaceText {
    ssh: Option<String>,
    #[serde(default)]
    local: bool,
    #[serde(default)]
    ssh_options: Vec<String>,
    #[serde(default)]
    tags: Vec<String>,
    folder: Option<String>,
    program: Option<PathBuf>,
    lease: Option<Nanos>,
    shares_machine: Option<bool>,
}

/// The longest name of a place.
const NAME_MAX: usize = 60;

/// The places of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlacesFile {
    /// Those that the file names.
    pub named: Vec<FleetPlace>,
    /// Hands out more of them.
    coordinator: Option<Coordinator>,
    /// As well.
    cluster: Option<Cluster>,
    ssh_options: Vec<String>,
    /// What a place gets that is handed out.
    pattern: FleetPlace,
}

/// Reads the file of places; `file` names it in problems, and a relative path of a program begins at its folder.
///
/// # Errors
///
/// All that is wrong with the text, with lines where they are known.
pub fn parse(file: &Path, text: &str) -> Result<PlacesFile, TextError> {
    let name = file.display().to_string();
    let read: Text = toml::from_str(text)
        .map_err(|e| TextError { name: name.clone(), problems: vec![problem_of(text, &e)] })?;
    let base = file.parent().unwrap_or(Path::new(""));
    let (mut named, mut problems) = (Vec::new(), Vec::new());
    for (place, words) in read.places {
        match place_of(&place, words, &read.defaults, base) {
            Ok(place) => named.push(place),
            Err(message) => problems.push(Problem {
                line: line_of_place(text, &place),
                ..Problem::new(format!("place {place:?}: {message}"))
            }),
        }
    }
    if named.is_empty() && problems.is_empty() && read.labgrid.is_none() && read.slurm.is_none() {
        problems.push(Problem::new(
            "there is no place: write [places.NAME] with ssh = \"USER@HOST\" or local = true, or [labgrid] with \
             coordinator = \"HOST:PORT\", or [slurm]",
        ));
    }
    if let Some(why) = read.slurm.as_ref().and_then(Cluster::problem) {
        problems.push(Problem::new(format!("[slurm]: {why}")));
    }
    let local = PlaceText { local: true, ..PlaceText::default() };
    let pattern = place_of("pattern", local, &read.defaults, base).unwrap_or_else(|message| {
        problems.push(Problem::new(format!("[defaults]: {message}")));
        FleetPlace::local("pattern")
    });
    let ssh_options = read.defaults.ssh_options;
    match problems.is_empty() {
        true => Ok(PlacesFile {
            named,
            coordinator: read.labgrid,
            cluster: read.slurm,
            ssh_options,
            pattern,
        }),
        false => Err(TextError { name, problems }),
    }
}

impl FleetPlace {
    /// Slurm's name of it; empty where Slurm doesn't hand it out.
    pub(crate) fn node(&self) -> &str {
        match self.reach {
            Reach::Slurm { .. } => &self.name,
            _ => "",
        }
    }

    fn local(name: &str) -> FleetPlace {
        FleetPlace {
            name: name.to_owned(),
            reach: Reach::Local,
            tags: Vec::new(),
            folder: None,
            program: None,
            lease: None,
            shares_machine: false,
            base: PathBuf::new(),
        }
    }
}

impl PlacesFile {
    /// The named places, and those that a coordinator or a cluster knows. A place that is named as well is reached as the
    /// file says; one whose name can't be that of a folder is left out.
    ///
    /// # Errors
    ///
    /// The coordinator or the cluster doesn't answer.
    pub fn all(&self) -> Result<Vec<FleetPlace>, FleetError> {
        let mut all = self.named.clone();
        let mut add = |name: String, tags: Vec<String>, reach: Reach| {
            if is_name(&name) && all.iter().all(|known| known.name != name) {
                let tags = [self.pattern.tags.clone(), tags].concat();
                all.push(FleetPlace { name, tags, reach, ..self.pattern.clone() });
            }
        };
        if let Some(coordinator) = &self.coordinator {
            for place in coordinator.list()? {
                let (coordinator, ssh_options) = (coordinator.clone(), self.ssh_options.clone());
                let reach = Reach::Labgrid { coordinator, ssh_options };
                add(place.name.clone(), place.tags(), reach);
            }
        }
        if let Some(cluster) = &self.cluster {
            for node in cluster.list()? {
                add(node.name, node.tags, Reach::Slurm { cluster: cluster.clone() });
            }
        }
        all.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(all)
    }
}

fn place_of(
    name: &str,
    text: PlaceText,
    defaults: &DefaultsText,
    base: &Path,
) -> Result<FleetPlace, String> {
    if !is_name(name) {
        return Err(format!(
            "a name has 1 to {NAME_MAX} letters, digits, - _ or ., and begins with a letter or a digit"
        ));
    }
    let reach = match (text.ssh, text.local) {
        (Some(target), false) => {
            if target.is_empty() || target.starts_with('-') {
                return Err(format!(
                    "ssh = {target:?} is not a host: write USER@HOST or a host name from the ssh configuration"
                ));
            }
            let options = [defaults.ssh_options.as_slice(), &text.ssh_options].concat();
            Reach::Ssh { target, options }
        }
        (None, true) => Reach::Local,
        (Some(_), true) => {
            return Err("it has both ssh and local: keep only one of them".to_owned());
        }
        (None, false) => {
            return Err("it has neither ssh nor local: write ssh = \"USER@HOST\" or local = true"
                .to_owned());
        }
    };
    let tags = [defaults.tags.as_slice(), &text.tags].concat();
    if let Some(tag) = tags.iter().find(|tag| !Selector::is_tag(tag)) {
        return Err(format!(
            "the tag {tag:?} is neither a word nor KEY=VALUE of letters, digits and - _ . / + : (place, tag and reach can't be keys)"
        ));
    }
    let folder = text.folder.or_else(|| defaults.folder.clone());
    if let Some(folder) = folder.as_ref().filter(|folder| !folder.starts_with('/')) {
        return Err(format!("the folder {folder:?} doesn't begin with /"));
    }
    let program = text.program.or_else(|| defaults.program.clone()).map(|path| base.join(path));
    let lease = text.lease.or(defaults.lease);
    let shares_machine = text.shares_machine.or(defaults.shares_machine).unwrap_or(false);
    Ok(FleetPlace {
        name: name.to_owned(),
        reach,
        tags,
        folder,
        program,
        lease,
        shares_machine,
        base: base.to_owned(),
    })
}

/// Whether it can name a place, and a folder of results.
#[must_use]
pub fn is_name(name: &str) -> bool {
    let is_known = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    name.len() <= NAME_MAX
        && name.starts_with(|c: char| c.is_ascii_alphanumeric())
        && name.chars().all(is_known)
}

/// The line of a place's heading.
fn line_of_place(text: &str, name: &str) -> Option<usize> {
    let headings = [format!("[places.{name}]"), format!("[places.{name:?}]")];
    let is_heading =
        |line: &str| headings.iter().any(|heading| line.trim_start().starts_with(heading));
    text.lines().position(is_heading).map(|line| line + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Vec<FleetPlace>, String> {
        let file = parse(Path::new("lab/places.toml"), text).map_err(|e| e.to_string())?;
        file.all().map_err(|e| e.to_string())
    }

    #[test]
    fn a_place_gets_what_all_places_have() {
        let places = read(
            "[defaults]\nssh-options = [\"-p\", \"2222\"]\ntags = [\"hall=3\"]\nlease = \"2h\"\nprogram = \"rtscope-arm64\"\n\
             [places.drill]\nssh = \"root@drill\"\nssh-options = [\"-C\"]\ntags = [\"rt\"]\n\
             [places.here]\nlocal = true\nfolder = \"/data\"\nprogram = \"/opt/rtscope\"\nlease = \"10min\"\n",
        )
        .expect("sound");
        let [drill, here] = places.as_slice() else { panic!("{places:?}") };
        let words =
            |options: &[&str]| options.iter().map(|&word| word.to_owned()).collect::<Vec<_>>();
        let reach =
            Reach::Ssh { target: "root@drill".to_owned(), options: words(&["-p", "2222", "-C"]) };
        assert_eq!(drill.reach, reach);
        assert_eq!(drill.tags, words(&["hall=3", "rt"]));
        assert_eq!(drill.program, Some(PathBuf::from("lab/rtscope-arm64")));
        assert_eq!(drill.lease, "2h".parse().ok());
        assert_eq!((here.reach.word(), here.folder.as_deref()), ("local", Some("/data")));
        assert_eq!(here.program, Some(PathBuf::from("/opt/rtscope")));
        assert_eq!(here.lease, "10min".parse().ok());
    }

    #[test]
    fn all_that_is_wrong_is_told_with_its_line() {
        let said = read(
            "[places.a]\nlocal = true\n\n[places.b]\n[places.\"../c\"]\nlocal = true\n[places.d]\nssh = \"-oProxyCommand=x\"\n\
             [places.e]\nlocal = true\ntags = [\"a b\"]\n[places.f]\nlocal = true\nfolder = \"tmp\"\n",
        )
        .expect_err("wrong");
        let lines: Vec<&str> = said.lines().collect();
        assert_eq!(lines.len(), 5, "{said}");
        for (place, line, why) in [
            ("\"b\"", "4", "neither ssh nor local"),
            ("\"../c\"", "5", "a name has"),
            ("\"d\"", "7", "is not a host"),
            ("\"e\"", "9", "neither a word"),
            ("\"f\"", "12", "doesn't begin with /"),
        ] {
            let begins = format!("lab/places.toml:{line}: place {place}");
            assert!(
                lines.iter().any(|l| l.starts_with(&begins) && l.contains(why)),
                "{begins}: {said}"
            );
        }
        assert!(read("").expect_err("none").contains("there is no place"));
        let said = read("[places.a]\nlokal = true\n").expect_err("unknown");
        assert!(
            said.contains("places.toml:2") && said.contains("did you mean \"local\""),
            "{said}"
        );
    }
}
