//! Settings for every boot: a unit of systemd, or a start script where there is no systemd, that runs
//! `rtscope tune apply --keep`. One way for all settings, with the same journal and the same checks as by hand.
//!
//! The file says who wrote it and with which settings, and has a checksum: what was edited since is not removed by
//! accident.

use std::{
    collections::BTreeMap,
    fs,
    io::{self, Read},
    os::unix::fs::{MetadataExt, PermissionsExt, symlink},
    path::{Path, PathBuf},
};

use rtscope_model::text::shell_word;
use rtscope_sys::{tree::Tree, whole::write_to_disk};
use serde::Serialize;

use super::service;

/// What starts programs at boot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum StartWay {
    Systemd,
    /// A folder of scripts that are run in the order of their names, as of BusyBox.
    Scripts,
    /// The same, with links in a folder of its own that name those to run, as of sysvinit.
    LinkedScripts,
}

impl StartWay {
    /// The link that makes our file run, and what it leads to.
    fn link(self) -> Option<(&'static str, String)> {
        match self {
            StartWay::Systemd => Some((WANTS, format!("/{UNIT}"))),
            StartWay::LinkedScripts => Some((START, "../init.d/S99rtscope-tune".to_owned())),
            StartWay::Scripts => None,
        }
    }
}

const UNIT: &str = "etc/systemd/system/rtscope-tune.service";
const WANTS: &str = "etc/systemd/system/multi-user.target.wants/rtscope-tune.service";
const SCRIPT: &str = "etc/init.d/S99rtscope-tune";
const START: &str = "etc/rcS.d/S99rtscope-tune";

/// Before the settings in the file.
const SETTINGS: &str = "# Settings: ";
/// Before the checksum of all other lines.
const CHECKSUM: &str = "# Checksum: ";

/// Why settings were not made permanent, or not taken back.
#[derive(Debug, thiserror::Error)]
pub enum PersistError {
    #[error("{operation} {path}: {source}", path = path.display())]
    File { operation: &'static str, path: PathBuf, source: io::Error },
    #[error(
        "{root} has neither systemd nor a folder of start scripts that rtscope knows: add this line to a script that runs at boot: {line}",
        root = root.display()
    )]
    NoStart { root: PathBuf, line: String },
    #[error(
        "{path} was edited since rtscope wrote it, so rtscope leaves it as it is: use --force, or edit it by hand",
        path = path.display()
    )]
    Edited { path: PathBuf },
    #[error("{0}")]
    Program(String),
    #[error(
        "{setting} lasts only while a program holds it, so no start script can keep it: use idle-latency"
    )]
    EndsWithProcess { setting: String },
}

fn failed(operation: &'static str, path: &Path) -> impl FnOnce(io::Error) -> PersistError {
    let path = path.to_owned();
    move |source| PersistError::File { operation, path, source }
}

/// What is permanent below a root.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Persisted {
    pub settings: BTreeMap<String, String>,
    /// Whether somebody has edited the file.
    pub edited: bool,
    /// The files, with their root.
    pub files: Vec<PathBuf>,
}

/// What is permanent below a root; none when nothing is.
///
/// # Errors
///
/// The file is there and can't be read.
pub fn persisted(root: &Path) -> Result<Option<Persisted>, PersistError> {
    let tree = Tree::under(root);
    for (file, link) in [(UNIT, WANTS), (SCRIPT, START)] {
        let path = place(&tree, file)?;
        let is_file = match path.symlink_metadata() {
            Ok(there) => there.is_file(),
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            Err(error) => return Err(failed("read", &path)(error)),
        };
        // A link or a pipe in its place is not what was written, and isn't followed.
        let text = match is_file {
            true => read(&path).map_err(failed("read", &path))?,
            false => Vec::new(),
        };
        let text = String::from_utf8_lossy(&text);
        let settings = text.lines().find_map(|line| line.strip_prefix(SETTINGS));
        let settings = settings.and_then(|json| serde_json::from_str(json).ok());
        let links = [place(&tree, link)?];
        let links = links.into_iter().filter(|link| link.symlink_metadata().is_ok());
        let edited = settings.is_none() || !is_whole(&text);
        let files = std::iter::once(path.clone()).chain(links).collect();
        return Ok(Some(Persisted { settings: settings.unwrap_or_default(), edited, files }));
    }
    Ok(None)
}

/// More bytes than any file of ours has: a longer one was edited.
const BYTES_MAX: u64 = 1024 * 1024;

fn read(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    fs::File::open(path)?.take(BYTES_MAX).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// The place of a name below a root, with the links on the way followed as the system there would.
fn place(tree: &Tree, name: &str) -> Result<PathBuf, PersistError> {
    tree.place_of_name(name).map_err(failed("find", &tree.path(name)))
}

/// What starts at each boot: a file, and where needed the link that makes it run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct StartFile {
    pub path: PathBuf,
    pub text: String,
    /// Where the link is, and what it leads to.
    pub link: Option<(PathBuf, String)>,
    #[serde(skip)]
    mode: u32,
}

impl StartFile {
    /// The file that makes settings permanent, with those that are already. Nothing is written.
    ///
    /// # Errors
    ///
    /// A root without a way to start something, a program that others may change, or a file that was edited.
    pub fn new(
        root: &Path,
        program: &Path,
        version: &str,
        settings: &BTreeMap<String, String>,
        force: bool,
    ) -> Result<StartFile, PersistError> {
        let held = super::SETTINGS
            .iter()
            .find(|one| one.needs_its_process() && settings.contains_key(one.name));
        if let Some(held) = held {
            return Err(PersistError::EndsWithProcess { setting: held.name.to_owned() });
        }
        let found = persisted(root)?;
        if let Some(found) = found.as_ref().filter(|found| found.edited && !force) {
            return Err(PersistError::Edited { path: found.files[0].clone() });
        }
        let settings = with_earlier(found.map(|found| found.settings), settings);
        check_program(root, program)?;
        let way = start_way(root).ok_or_else(|| PersistError::NoStart {
            root: root.to_owned(),
            line: words(program, &settings)
                .into_iter()
                .map(|word| shell_word(&word))
                .collect::<Vec<_>>()
                .join(" "),
        })?;
        let (file, text, mode) = match way {
            StartWay::Systemd => (UNIT, unit(program, version, &settings), 0o644),
            StartWay::Scripts | StartWay::LinkedScripts => {
                (SCRIPT, script(program, version, &settings), 0o755)
            }
        };
        let tree = Tree::under(root);
        let link = match way.link() {
            Some((link, target)) => Some((place(&tree, link)?, target)),
            None => None,
        };
        let path = place(&tree, file)?;
        Ok(StartFile { path, text: with_checksum(&text), link, mode })
    }

    /// Makes the settings permanent: writes the file whole or not at all, then the link.
    ///
    /// # Errors
    ///
    /// The file or the link can't be written.
    pub fn write(&self) -> Result<(), PersistError> {
        let folder = self.path.parent().unwrap_or(&self.path);
        fs::create_dir_all(folder).map_err(failed("make", folder))?;
        write_to_disk(&self.path, self.text.as_bytes(), Some(self.mode))
            .map_err(failed("write", &self.path))?;
        match &self.link {
            Some((link, target)) => enable(link, target),
            None => Ok(()),
        }
    }
}

/// All that each boot would apply: settings, with those that are permanent already.
#[must_use]
pub fn with_earlier(
    earlier: Option<BTreeMap<String, String>>,
    settings: &BTreeMap<String, String>,
) -> BTreeMap<String, String> {
    let mut all = earlier.unwrap_or_default();
    all.extend(settings.clone());
    all
}

/// Removes what [`StartFile::write`] wrote. Answers what it was; none when there was nothing.
///
/// # Errors
///
/// A file that was edited, unless forced, or that can't be removed.
pub fn remove_persisted(root: &Path, force: bool) -> Result<Option<Persisted>, PersistError> {
    let Some(found) = persisted(root)? else { return Ok(None) };
    if found.edited && !force {
        return Err(PersistError::Edited { path: found.files[0].clone() });
    }
    // The link first: a link without its file is reported at each boot.
    for path in found.files.iter().rev() {
        fs::remove_file(path).map_err(failed("remove", path))?;
    }
    // Only if it was made for the link.
    if let Ok(wants) = place(&Tree::under(root), WANTS) {
        let _ = fs::remove_dir(wants.parent().unwrap_or(root));
    }
    Ok(Some(found))
}

fn start_way(root: &Path) -> Option<StartWay> {
    let tree = Tree::under(root);
    let systemd = ["usr/lib/systemd/systemd", "lib/systemd/systemd"];
    if systemd.iter().any(|path| tree.exists(path)) {
        return Some(StartWay::Systemd);
    }
    if !tree.is_file("etc/init.d/rcS") {
        return None;
    }
    match (tree.is_folder("etc/rcS.d"), tree.exists("etc/init.d/.depend.boot")) {
        (false, _) => Some(StartWay::Scripts),
        (true, false) => Some(StartWay::LinkedScripts),
        // What starts is in the order of this file, which insserv writes on the system itself.
        (true, true) => None,
    }
}

/// Refuses a program that isn't in the system, or, on this machine, that somebody else than root could replace: root
/// starts it. On a card, who owns which file is decided by whoever writes the card.
fn check_program(root: &Path, program: &Path) -> Result<(), PersistError> {
    let refused = |text: String| Err(PersistError::Program(text));
    if !program.is_absolute() {
        return refused(format!("--program {}: write an absolute path", program.display()));
    }
    let there = root.join(program.strip_prefix("/").unwrap_or(program));
    if !Tree::under(root).is_file(program.strip_prefix("/").unwrap_or(program)) {
        return refused(format!(
            "{} isn't there: copy rtscope to {}, or name it with --program",
            there.display(),
            root.join("usr/local/bin/rtscope").display()
        ));
    }
    if root != Path::new("/") {
        return Ok(());
    }
    let whole = there.canonicalize().map_err(failed("find", &there))?;
    let is_open = |path: &&Path| {
        path.metadata()
            .is_ok_and(|found| found.uid() != 0 || found.permissions().mode() & 0o022 != 0)
    };
    match whole.ancestors().find(is_open) {
        Some(open) => refused(format!(
            "users other than root can change {}, but root would run it at each boot: copy rtscope to /usr/local/bin and \
             name it with --program",
            open.display()
        )),
        None => Ok(()),
    }
}

fn words(program: &Path, settings: &BTreeMap<String, String>) -> Vec<String> {
    let own = [program.display().to_string(), "tune".into(), "apply".into(), "--keep".into()];
    own.into_iter().chain(settings.iter().map(|(name, value)| format!("{name}={value}"))).collect()
}

fn heading(version: &str, settings: &BTreeMap<String, String>) -> String {
    let json = serde_json::to_string(settings).unwrap_or_default();
    format!(
        "# Written by rtscope {version} (rtscope tune apply --persist).\n\
         # `rtscope tune restore --persist` removes it. Don't edit it.\n{SETTINGS}{json}\n"
    )
}

fn unit(program: &Path, version: &str, settings: &BTreeMap<String, String>) -> String {
    let line: Vec<String> = words(program, settings).iter().map(|word| systemd(word)).collect();
    let delegated = match settings.contains_key("shield") {
        true => {
            "# Without this, systemd disables the controller when it reloads its units, and the shield ends.\n\
             Delegate=cpuset\n"
        }
        false => "",
    };
    format!(
        "{}\n[Unit]\nDescription=System settings that rtscope keeps\n\
         # Start after units that would reset these settings, and after those to be stopped.\n\
         After=sysinit.target network.target {}\n\n\
         [Service]\nType=oneshot\nRemainAfterExit=yes\n{delegated}ExecStart={}\nExecStop={} tune restore\n\n\
         [Install]\nWantedBy=multi-user.target\n",
        heading(version, settings),
        service::UNITS.join(" "),
        line.join(" "),
        systemd(&program.display().to_string())
    )
}

fn script(program: &Path, version: &str, settings: &BTreeMap<String, String>) -> String {
    let line: Vec<String> = words(program, settings).iter().map(|word| shell_word(word)).collect();
    format!(
        "#!/bin/sh\n{}case \"$1\" in\nstart|'') {} ;;\nstop) {} tune restore ;;\nesac\n",
        heading(version, settings),
        line.join(" "),
        shell_word(&program.display().to_string())
    )
}

/// A word as systemd reads it.
fn systemd(word: &str) -> String {
    let text =
        word.replace('\\', "\\\\").replace('"', "\\\"").replace('%', "%%").replace('$', "$$");
    let plain = text.chars().all(|c| c.is_ascii_alphanumeric() || "/_-.=:,@+%$".contains(c));
    if plain { text } else { format!("\"{text}\"") }
}

fn with_checksum(text: &str) -> String {
    format!("{text}{CHECKSUM}{:08x}\n", crc32fast::hash(text.as_bytes()))
}

fn is_whole(text: &str) -> bool {
    let Some(at) = text.rfind(CHECKSUM) else { return false };
    with_checksum(&text[..at]) == text
}

/// What `systemctl enable` does, and `update-rc.d`.
fn enable(link: &Path, target: &str) -> Result<(), PersistError> {
    if fs::read_link(link).is_ok_and(|there| there == Path::new(target)) {
        return Ok(());
    }
    let folder = link.parent().unwrap_or(link);
    fs::create_dir_all(folder).map_err(failed("make", folder))?;
    match fs::remove_file(link) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            return Err(failed("replace", link)(error));
        }
        _ => {}
    }
    symlink(target, link).map_err(failed("make", link))
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Image(tempfile::TempDir);

    impl Image {
        fn new(files: &[&str]) -> Image {
            let image = Image(tempfile::tempdir().expect("a folder"));
            for file in files {
                image.file(file, "");
            }
            image
        }

        fn file(&self, path: &str, text: &str) {
            let path = self.0.path().join(path);
            fs::create_dir_all(path.parent().expect("a folder")).expect("made");
            fs::write(path, text).expect("written");
        }

        fn persist(&self, name: &str, value: &str, force: bool) -> Result<Persisted, PersistError> {
            let settings = [(name.to_owned(), value.to_owned())].into();
            let program = Path::new("/usr/bin/rtscope");
            StartFile::new(self.0.path(), program, "1.0", &settings, force)?.write()?;
            Ok(persisted(self.0.path())?.expect("permanent now"))
        }

        fn read(&self, path: &str) -> String {
            fs::read_to_string(self.0.path().join(path)).expect("a file")
        }

        fn all(&self) -> Vec<PathBuf> {
            let (mut found, mut open) = (Vec::new(), vec![self.0.path().to_owned()]);
            while let Some(folder) = open.pop() {
                for entry in fs::read_dir(folder).expect("read").flatten() {
                    if entry.file_type().expect("a type").is_dir() {
                        open.push(entry.path());
                    } else {
                        found.push(entry.path());
                    }
                }
            }
            found.sort();
            found
        }
    }

    const SYSTEMD: [&str; 2] = ["usr/lib/systemd/systemd", "usr/bin/rtscope"];

    #[test]
    fn a_unit_says_who_wrote_it_and_is_taken_back_whole() {
        let image = Image::new(&SYSTEMD);
        let before = image.all();
        let program = Path::new("/usr/bin/rtscope");
        let settings = [("throttling".to_owned(), "off".to_owned())].into();
        let file =
            StartFile::new(image.0.path(), program, "1.0", &settings, false).expect("a unit");
        assert_eq!(image.all(), before);
        image.persist("throttling", "off", false).expect("written");
        assert_eq!(image.read(UNIT), file.text);
        assert!(file.link.is_some_and(|(link, _)| link.is_symlink()));
        let found = image.persist("thread-priority", "fifo:50@irq/*a b*", false).expect("both");
        assert_eq!(found.settings.len(), 2);
        assert!(!found.edited);
        let unit = image.read(UNIT);
        assert!(unit.starts_with("# Written by rtscope 1.0"), "{unit}");
        let line = "ExecStart=/usr/bin/rtscope tune apply --keep \"thread-priority=fifo:50@irq/*a b*\" throttling=off\n";
        assert!(unit.contains(line) && !unit.contains("Delegate"), "{unit}");
        let found = image.persist("shield", "2", false).expect("all three");
        assert!(image.read(UNIT).contains("\nDelegate=cpuset\nExecStart="));
        let link = fs::read_link(image.0.path().join(WANTS)).expect("enabled");
        assert_eq!(link, Path::new("/etc/systemd/system/rtscope-tune.service"));
        let removed = remove_persisted(image.0.path(), false).expect("removed").expect("something");
        assert_eq!(removed.settings, found.settings);
        assert_eq!(image.all(), before);
        assert_eq!(remove_persisted(image.0.path(), false).expect("nothing to do"), None);
    }

    #[test]
    fn an_edited_file_stays_unless_forced() {
        let image = Image::new(&SYSTEMD);
        image.persist("throttling", "off", false).expect("written");
        image.file(UNIT, &image.read(UNIT).replace("throttling=off", "throttling=on"));
        let refused = remove_persisted(image.0.path(), false).expect_err("edited").to_string();
        assert!(refused.contains("was edited") && refused.contains("--force"), "{refused}");
        assert!(image.persist("thp", "never", false).is_err());
        assert!(image.0.path().join(UNIT).exists());
        assert!(remove_persisted(image.0.path(), true).expect("forced").is_some());
        // One that is no file of ours at all.
        image.file(UNIT, "[Unit]\n");
        assert!(remove_persisted(image.0.path(), false).is_err());
    }

    #[test]
    fn without_systemd_a_start_script_is_written() {
        let image = Image::new(&["etc/init.d/rcS", "usr/bin/rtscope"]);
        image.persist("irq-affinity", "0@eth0;1@tty*", false).expect("written");
        let script = image.read(SCRIPT);
        assert!(script.starts_with("#!/bin/sh\n# Written by rtscope"), "{script}");
        assert!(script.contains("tune apply --keep 'irq-affinity=0@eth0;1@tty*' ;;"), "{script}");
        let mode = image.0.path().join(SCRIPT).metadata().expect("a file").permissions().mode();
        assert_eq!(mode & 0o777, 0o755);
    }

    /// Yocto and Devuan have BusyBox's folder too, and run what another one names.
    #[test]
    fn sysvinit_runs_the_start_script_by_a_link() {
        let image = Image::new(&["etc/init.d/rcS", "etc/rcS.d/S02banner.sh", "usr/bin/rtscope"]);
        let before = image.all();
        let found = image.persist("throttling", "off", false).expect("written");
        let link = image.0.path().join("etc/rcS.d/S99rtscope-tune");
        assert_eq!(found.files.last(), Some(&link));
        assert_eq!(fs::read_link(&link).expect("a link"), Path::new("../init.d/S99rtscope-tune"));
        let run = std::process::Command::new("sh").arg("-n").arg(&link).status();
        assert!(run.is_ok_and(|status| status.success()), "the link leads to the script");
        remove_persisted(image.0.path(), false).expect("removed").expect("something");
        assert_eq!(image.all(), before);
        // Where insserv has written the order, a link alone starts nothing.
        image.file("etc/init.d/.depend.boot", "TARGETS = mountkernfs.sh\n");
        let refused = image.persist("throttling", "off", false).expect_err("no start").to_string();
        assert!(refused.contains("add this line"), "{refused}");
    }

    #[test]
    fn links_and_pipes_of_a_card_do_not_lead_to_this_machine() {
        let host = tempfile::tempdir().expect("a folder");
        let (file, folder) = (host.path().join("shadow"), host.path().join("etc"));
        for (name, target) in [
            ("etc", &folder),
            ("etc/systemd/system/multi-user.target.wants", &folder),
            (&format!("{UNIT}.part"), &file),
            (UNIT, &file),
            (WANTS, &file),
        ] {
            for force in [false, true] {
                fs::create_dir_all(&folder).expect("made");
                fs::write(&file, "secret").expect("written");
                let image = Image::new(&SYSTEMD);
                let link = image.0.path().join(name);
                fs::create_dir_all(link.parent().expect("a folder")).expect("made");
                symlink(target, &link).expect("linked");
                let done = image.persist("throttling", "off", force);
                assert_eq!(done.is_ok(), name != UNIT || force, "{name}: {done:?}");
                let _ = remove_persisted(image.0.path(), true);
                assert_eq!(fs::read_to_string(&file).expect("a file"), "secret", "{name}");
                assert_eq!(fs::read_dir(&folder).expect("a folder").count(), 0, "{name}");
            }
        }
        let image = Image::new(&SYSTEMD);
        image.file(UNIT, "");
        let unit = image.0.path().join(UNIT);
        fs::remove_file(&unit).expect("removed");
        let made = std::process::Command::new("mkfifo").arg(&unit).status();
        assert!(made.is_ok_and(|status| status.success()));
        assert!(matches!(
            image.persist("throttling", "off", false),
            Err(PersistError::Edited { .. })
        ));
        assert!(image.persist("throttling", "off", true).is_ok_and(|found| !found.edited));
    }

    #[test]
    fn what_cannot_be_started_is_refused() {
        let image = Image::new(&["usr/bin/rtscope"]);
        let refused = image.persist("throttling", "off", false).expect_err("no init").to_string();
        assert!(
            refused.contains("neither systemd") && refused.contains("--keep throttling=off"),
            "{refused}"
        );
        let image = Image::new(&["etc/init.d/rcS"]);
        let refused =
            image.persist("throttling", "off", false).expect_err("no program").to_string();
        assert!(refused.contains("isn't there") && refused.contains("--program"), "{refused}");
        let refused = image.persist("dma-latency", "0", false).expect_err("held").to_string();
        assert!(refused.contains("idle-latency"), "{refused}");
    }

    #[test]
    fn words_are_safe_for_systemd() {
        assert_eq!(systemd("a=1%$x"), "a=1%%$$x");
        assert_eq!(systemd("a\"b\\c"), r#""a\"b\\c""#);
        assert_eq!(systemd("fifo:1@a*"), "\"fifo:1@a*\"");
    }
}
