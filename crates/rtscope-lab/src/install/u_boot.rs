//! U-Boot with `uEnv.txt`, whose lines override its environment; of two equal names the last counts.
//!
//! Boards that name the kernel by its release (`uname_r`, as BeagleBones) get files under the new
//! release; others (`bootdir`, as the vendor's evaluation boards) a folder of its own.

use std::{
    fs,
    path::{Path, PathBuf},
};

use super::{
    Initrd, Wish, below,
    change::{Change, Content},
    initrd,
    layout::{Chosen, folder_with, located},
    marked_block::{Mark, with_block, without_block},
    parameters::{Words, without_parameters},
};
use crate::error::LabError;

const FOLDERS: [&str; 2] = ["boot", ""];
const CONFIG: &str = "uEnv.txt";

/// Images that such boards load when the environment doesn't say.
const IMAGES: [&str; 2] = ["Image", "zImage"];

struct Environment {
    path: PathBuf,
    text: String,
    root: PathBuf,
}

impl Environment {
    fn read(root: &Path) -> Result<Environment, LabError> {
        let path = folder_with(root, &FOLDERS, CONFIG)?.join(CONFIG);
        let text = below::read_text(root, &path)?;
        Ok(Environment { path, text, root: root.to_owned() })
    }

    fn value(&self, name: &str) -> Option<&str> {
        let lines = self.text.lines().map(str::trim).filter(|line| !line.starts_with('#'));
        lines
            .filter_map(|line| line.split_once('=').filter(|(key, _)| *key == name))
            .next_back()
            .map(|(_, v)| v.trim())
    }

    /// The folder that `bootdir` names; `/boot` when it isn't set.
    fn boot_folder(&self) -> PathBuf {
        self.root.join(self.value("bootdir").unwrap_or("/boot").trim_start_matches('/'))
    }

    /// The initial RAM disk of boards that name a folder: every board's script has a name of its own for it.
    fn initrd_of_folder(&self) -> Option<PathBuf> {
        let lines = self.text.lines().map(str::trim).filter(|line| !line.starts_with('#'));
        let named = lines.filter_map(|line| line.split_once('=')).filter(|(key, value)| {
            let key = key.to_ascii_lowercase();
            !value.trim().is_empty()
                && ["initrd", "ramdisk", "initramfs", "rdfile"]
                    .iter()
                    .any(|word| key.contains(word))
        });
        let folder = self.boot_folder();
        let mut paths = named.map(|(_, name)| located(&self.root, &folder, name.trim()));
        paths.find(|path| below::is_file(&self.root, path))
    }

    /// The variable that holds words for the kernel: boards differ in it.
    fn words_variable(&self) -> &'static str {
        if self.value("uname_r").is_some() {
            return "cmdline";
        }
        let known = ["optargs", "extraargs", "cmdline"];
        known.into_iter().find(|name| self.value(name).is_some()).unwrap_or(known[0])
    }

    fn image_name(&self) -> Option<String> {
        let asked = self.value("bootfile").or(self.value("name_kern"));
        let folder = self.boot_folder();
        asked.map(str::to_owned).or_else(|| {
            IMAGES
                .iter()
                .find(|name| below::is_file(&self.root, &folder.join(name)))
                .map(|name| (*name).to_owned())
        })
    }
}

/// What U-Boot would start.
pub(super) fn chosen(root: &Path) -> Result<Chosen, LabError> {
    let environment = Environment::read(root)?;
    let words = |name: &str| environment.value(name).unwrap_or_default().to_owned();
    if let Some(release) = environment.value("uname_r") {
        let boot = root.join("boot");
        let initrd = boot.join(format!("initrd.img-{release}"));
        let trees = boot.join("dtbs").join(release);
        return Ok(Chosen {
            image: boot.join(format!("vmlinuz-{release}")),
            initrd: below::is_file(root, &initrd).then_some(initrd),
            device_tree: below::is_there(root, &trees).then_some(trees),
            cmdline: words("cmdline"),
        });
    }
    let folder = environment.boot_folder();
    let name = environment.image_name().ok_or_else(|| {
        LabError::Refused(format!(
            "{} sets neither uname_r nor bootfile, and {} has no Image or zImage, so rtscope doesn't \
             know how this board finds its kernel",
            environment.path.display(),
            folder.display()
        ))
    })?;
    Ok(Chosen {
        image: folder.join(name),
        initrd: environment.initrd_of_folder(),
        device_tree: Some(folder),
        cmdline: words(environment.words_variable()),
    })
}

pub(super) fn changes(wish: &Wish<'_>) -> Result<Vec<Change>, LabError> {
    if wish.once {
        return Err(LabError::Refused(
            "uEnv.txt has no way to boot a kernel once; leave --once out".to_owned(),
        ));
    }
    let mut environment = Environment::read(wish.root)?;
    environment.text = without_block(&environment.text);
    let (mut changes, body) = match environment.value("uname_r") {
        Some(old) => by_release(wish, &environment, old)?,
        None => by_folder(wish, &environment)?,
    };
    let text = with_block(&environment.text, &wish.title(), &body);
    changes.push(Change::Replace { path: environment.path, text, mark: Mark::Block });
    Ok(changes)
}

/// The variable with words for the kernel, set again with other words.
pub(super) fn with_parameters(root: &Path, words: &Words<'_>) -> Result<Vec<Change>, LabError> {
    let mut environment = Environment::read(root)?;
    environment.text = without_parameters(&environment.text);
    let name = environment.words_variable();
    let line = words.on(environment.value(name).unwrap_or_default());
    let text = with_block(&environment.text, &words.title(), &format!("{name}={line}\n"));
    Ok(vec![Change::Replace { path: environment.path, text, mark: Mark::Block }])
}

/// The line that sets the variable with words for the kernel, where it changes.
fn words_line(wish: &Wish<'_>, environment: &Environment) -> Result<String, LabError> {
    let name = environment.words_variable();
    let old = environment.value(name).unwrap_or_default();
    let new = wish.line(old)?;
    Ok(if new == old { String::new() } else { format!("{name}={new}\n") })
}

fn by_release(
    wish: &Wish<'_>,
    environment: &Environment,
    old: &str,
) -> Result<(Vec<Change>, String), LabError> {
    let release = wish.release();
    let boot = wish.root.join("boot");
    let image = boot.join(format!("vmlinuz-{release}"));
    let old_image = boot.join(format!("vmlinuz-{old}"));
    let mut changes = vec![Change::File { from: wish.image_beside(&old_image), to: image }];
    if let Some(from) = wish.kernel.dtbs() {
        changes.push(Change::Tree { from, to: boot.join("dtbs").join(release) });
    }
    let old_initrd = boot.join(format!("initrd.img-{old}"));
    if let Some(from) =
        initrd(wish, below::is_file(wish.root, &old_initrd).then_some(&*old_initrd))?
    {
        changes.push(Change::File { from, to: boot.join(format!("initrd.img-{release}")) });
    }
    Ok((changes, format!("uname_r={release}\n{}", words_line(wish, environment)?)))
}

fn by_folder(
    wish: &Wish<'_>,
    environment: &Environment,
) -> Result<(Vec<Change>, String), LabError> {
    let Some(dtbs) = wish.kernel.dtbs() else {
        return Err(LabError::Refused(format!(
            "{} has no device trees, and this board takes them from the kernel's folder: build it with \
             `dtbs = true`",
            wish.kernel.manifest.name
        )));
    };
    let old_initrd = environment.initrd_of_folder();
    if matches!(wish.initrd, Initrd::File(_))
        || (wish.initrd == Initrd::Made && old_initrd.is_some())
    {
        let has = old_initrd.map_or(String::new(), |old| {
            format!(" (the old kernel starts with {})", old.display())
        });
        return Err(LabError::Refused(format!(
            "rtscope doesn't know how this board would load an initial RAM disk from a folder of its own{has}: \
             give --no-initrd if all drivers for the root file system are built into the new kernel"
        )));
    }
    let name = environment.image_name().unwrap_or_else(|| IMAGES[0].to_owned());
    let old = environment.boot_folder().join(&name);
    if !below::is_file(wish.root, &old) {
        wish.refuse_unless_forced(&format!(
            "{} names {}, which isn't there, so it may mean another partition",
            environment.path.display(),
            old.display()
        ))?;
    }
    let image = wish.image_beside(&old);
    let mut files = vec![(image, PathBuf::from(name))];
    let mut open = vec![dtbs.clone()];
    while let Some(folder) = open.pop() {
        for entry in fs::read_dir(&folder).map_err(LabError::file("read", &folder))?.flatten() {
            let path = entry.path();
            if path.is_dir() {
                open.push(path);
            } else if let Ok(below) = path.strip_prefix(&dtbs) {
                // Boards look beside the image, or in `dtb`: both with and without the vendor's folder.
                let bare = PathBuf::from(below.file_name().unwrap_or_default());
                files.push((Content::Copy(path.clone()), Path::new("dtb").join(below)));
                files.push((Content::Copy(path.clone()), bare));
            }
        }
    }
    files.sort_by(|a, b| a.1.cmp(&b.1));
    files.dedup_by(|a, b| a.1 == b.1);
    let folder = environment.boot_folder();
    let seen = environment.value("bootdir").unwrap_or("/boot").trim_end_matches('/').to_owned();
    let mark = wish.mark();
    let body = format!("bootdir={seen}/{mark}\n{}", words_line(wish, environment)?);
    Ok((vec![Change::Files { from: files, to: folder.join(&mark) }], body))
}
