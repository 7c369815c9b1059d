//! Kernels kept outside every project, each in a folder that is named by the hash of all that went
//! into it: source, patches, configuration, architecture, compiler. The same inputs are never built
//! twice, and a kernel whose inputs changed is another kernel.
//!
//! ```text
//! ROOT/downloads/       what was fetched, by its own checksum or version
//! ROOT/trees/           unpacked and patched sources
//! ROOT/build/KEY/       objects, kept so that a build can be resumed
//! ROOT/kernels/KEY/     manifest.json, vmlinuz, config, System.map, modules/, dtbs/
//! ROOT/locks/           what somebody works on
//! ```

mod lock;

use std::{
    collections::BTreeMap,
    fs::{self, DirBuilder},
    io,
    os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt},
    path::{Path, PathBuf},
    time::Duration,
};

use serde::{Deserialize, Serialize};

pub use self::lock::Lock;
use crate::{config::merge, error::LabError, images};

/// Name of the file that makes a folder a kernel.
pub const MANIFEST: &str = "manifest.json";

/// A half-done folder that nothing was added to for so long is nobody's.
const LEFT_AFTER: Duration = Duration::from_secs(24 * 3600);

/// What is known of a kept kernel. Paths are relative to its folder.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Manifest {
    /// Name on command lines, as `tiny-6.12-rt`.
    pub name: String,
    /// Hash of all inputs, 16 hexadecimal digits.
    pub key: String,
    /// `uname -r`.
    pub release: String,
    /// `uname -v`.
    pub version: String,
    /// The kernel's own name of the architecture: `x86_64`, `arm64`, `arm`, `riscv`.
    pub arch: String,
    /// The image that a boot loader or an emulator takes.
    pub vmlinuz: PathBuf,
    pub config: Option<PathBuf>,
    /// Symbols.
    pub system_map: Option<PathBuf>,
    /// The folder of the modules of this release (what `/lib/modules/RELEASE` is).
    pub modules: Option<PathBuf>,
    /// Device trees, as laid out below `dts`.
    pub dtbs: Option<PathBuf>,
    /// The linker's build id, in hexadecimal digits; `/sys/kernel/notes` of the running kernel has it.
    pub build_id: Option<String>,
    /// The inputs in words: what was hashed.
    pub inputs: BTreeMap<String, String>,
    /// How the build went; none for a kernel that somebody else built.
    pub build: Option<BuildFigures>,
}

/// What a build took: the measure for the next one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct BuildFigures {
    /// Files compiled, assembled, linked or generated.
    pub objects: u64,
    /// Warnings of the compiler.
    pub warnings: u64,
    /// Time from start to end.
    pub seconds: f64,
    pub jobs: u32,
    /// Size of the folder of objects.
    pub disk_bytes: u64,
    /// Options that are `y` or `m`.
    pub options: u64,
}

#[derive(Clone, Debug, PartialEq)]
pub struct KeptKernel {
    pub dir: PathBuf,
    /// What is known of it.
    pub manifest: Manifest,
}

/// What tells a kernel from every other.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity {
    pub name: String,
    /// Hash of all inputs; the kernel shows it in `/proc/version`.
    pub key: String,
    /// `uname -r`.
    pub release: String,
    /// `uname -v`.
    pub version: String,
    /// The linker's build id.
    pub build_id: Option<String>,
    /// Whether it is a real-time kernel, by its configuration.
    pub real_time: Option<bool>,
}

impl Identity {
    /// One line that names the kernel.
    #[must_use]
    pub fn title(&self) -> String {
        format!("{} {}", self.name, self.release)
    }
}

impl KeptKernel {
    /// What tells it from every other.
    #[must_use]
    pub fn identity(&self) -> Identity {
        let Manifest { name, key, release, version, build_id, .. } = self.manifest.clone();
        let config = self.config().and_then(|path| fs::read_to_string(path).ok());
        let is_set = |text: String| {
            merge::read(&text).get("PREEMPT_RT").is_some_and(|value| value.word() == "y")
        };
        Identity { name, key, release, version, build_id, real_time: config.map(is_set) }
    }

    /// Reads a folder with a manifest.
    pub fn open(dir: &Path) -> io::Result<KeptKernel> {
        let text = fs::read_to_string(dir.join(MANIFEST))?;
        let manifest = serde_json::from_str(&text)?;
        Ok(KeptKernel { dir: dir.to_owned(), manifest })
    }

    /// The image.
    #[must_use]
    pub fn vmlinuz(&self) -> PathBuf {
        self.dir.join(&self.manifest.vmlinuz)
    }

    #[must_use]
    pub fn config(&self) -> Option<PathBuf> {
        self.manifest.config.as_ref().map(|path| self.dir.join(path))
    }

    #[must_use]
    pub fn modules(&self) -> Option<PathBuf> {
        self.manifest.modules.as_ref().map(|path| self.dir.join(path))
    }

    /// The folder of its device trees.
    #[must_use]
    pub fn dtbs(&self) -> Option<PathBuf> {
        self.manifest.dtbs.as_ref().map(|path| self.dir.join(path))
    }
}

/// The folder of everything that is kept.
#[derive(Clone, Debug)]
pub struct Cache {
    root: PathBuf,
}

impl Default for Cache {
    /// `$XDG_CACHE_HOME/rtscope`; without that `/var/cache/rtscope` for root and `~/.cache/rtscope`
    /// for others, or a folder of their own in that for temporary files.
    fn default() -> Cache {
        let set = |name| std::env::var_os(name).filter(|value| !value.is_empty());
        let own = || set("HOME").map(|home| PathBuf::from(home).join(".cache"));
        let parent = match set("XDG_CACHE_HOME") {
            Some(path) => PathBuf::from(path),
            None if rustix::process::geteuid().is_root() => PathBuf::from("/var/cache"),
            None => own().unwrap_or_else(own_temporary),
        };
        Cache { root: parent.join("rtscope") }
    }
}

/// Folder of the guests' file systems.
pub(crate) const IMAGES: &str = "images";

/// Folders whose content is needed to fetch or build a kernel.
const BUILT_FROM: [&str; 4] = ["downloads", "trees", "build", "kernels"];

/// Folders in which killed processes may have left something half-done.
const SWEPT: [&str; 8] =
    ["downloads", "kernels", IMAGES, "unpacked", "modules", "symbols", "plugin", "cyclictest"];

/// Removes a file, or a folder with all that is in it. Another process may be faster.
fn remove(path: &Path) -> io::Result<()> {
    let removed = match path.is_dir() && !path.is_symlink() {
        true => fs::remove_dir_all(path),
        false => fs::remove_file(path),
    };
    match removed {
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    }
}

fn is_alive(process: u32) -> bool {
    Path::new("/proc").join(process.to_string()).exists()
}

/// Makes a folder of the cache in one step, with what `fill` puts into it. If two processes make the same one, the
/// folder of the faster process stays.
///
/// # Errors
///
/// `fill` fails, or the folder can't be made; nothing is left of it then.
pub(crate) fn publish(
    folder: &Path,
    fill: impl FnOnce(&Path) -> Result<(), LabError>,
) -> Result<(), LabError> {
    let part = folder.with_extension(format!("part{}", std::process::id()));
    // In a container, a killed process may have had the same process ID.
    let _ = fs::remove_dir_all(&part);
    let made = fs::create_dir_all(&part)
        .map_err(LabError::file("make", &part))
        .and_then(|()| fill(&part))
        .and_then(|()| match fs::rename(&part, folder) {
            Err(_) if folder.is_dir() => Ok(()),
            renamed => renamed.map_err(LabError::file("rename", &part)),
        });
    let _ = fs::remove_dir_all(&part);
    made
}

/// The process that is making, or was making, what has this name; none for what is finished.
fn maker(name: &str) -> Option<u32> {
    let begun = ["part-", "unpacking-", "probe-", "replay-", "explain-"];
    let id = match begun.iter().any(|word| name.starts_with(word)) {
        true => name.rsplit('-').next(),
        false => name.rsplit_once(".part").map(|(_, id)| id),
    };
    id?.parse().ok()
}

/// Writes a file of the cache in one step. Two processes may make the same one, so each has a second name of its own.
pub(crate) fn write_file(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let part = path.with_extension(format!("part{}", std::process::id()));
    let written = fs::write(&part, bytes).and_then(|()| fs::rename(&part, path));
    if written.is_err() {
        let _ = fs::remove_file(&part);
    }
    written
}

/// A folder for a user without a home, as a service has none. The emulator's plugin is in the cache and runs as this user,
/// so what somebody else may have put there isn't taken.
fn own_temporary() -> PathBuf {
    let user = rustix::process::geteuid().as_raw();
    let is_own = |path: &PathBuf| {
        let _ = DirBuilder::new().mode(0o700).create(path);
        fs::symlink_metadata(path).is_ok_and(|found| {
            found.is_dir() && found.uid() == user && found.permissions().mode() & 0o022 == 0
        })
    };
    let path = std::env::temp_dir().join(format!("rtscope-cache-{user}"));
    // What can't be made says what to do.
    if is_own(&path) { path } else { PathBuf::from("/dev/null/set-HOME-or-XDG_CACHE_HOME") }
}

impl Cache {
    /// A cache in a folder, which need not exist.
    #[must_use]
    pub fn at(root: impl Into<PathBuf>) -> Cache {
        let root = root.into();
        // Programs that work in other folders are told of it.
        Cache { root: std::path::absolute(&root).unwrap_or(root) }
    }

    #[must_use]
    pub fn root(&self) -> &Path {
        &self.root
    }

    #[must_use]
    pub fn downloads(&self) -> PathBuf {
        self.root.join("downloads")
    }

    /// The unpacked, patched source of a name.
    #[must_use]
    pub fn tree(&self, name: &str) -> PathBuf {
        self.root.join("trees").join(name)
    }

    /// The objects of a kernel.
    #[must_use]
    pub fn build_dir(&self, key: &str) -> PathBuf {
        self.root.join("build").join(key)
    }

    /// The folder of a finished kernel.
    #[must_use]
    pub fn kernel_dir(&self, key: &str) -> PathBuf {
        self.root.join("kernels").join(key)
    }

    /// Removes what killed ones of us left half-done: named by a process that is gone, and a day old, for
    /// that process may be in another container.
    pub fn sweep(&self) {
        let rooms = SWEPT.iter().map(|room| self.root.join(room)).chain([self.root.clone()]);
        let entries = rooms.filter_map(|room| fs::read_dir(room).ok()).flatten().flatten();
        for entry in entries {
            if maker(&entry.file_name().to_string_lossy()).is_none_or(is_alive) {
                continue;
            }
            let modified = entry.metadata().and_then(|there| there.modified()).ok();
            if modified.and_then(|at| at.elapsed().ok()).is_some_and(|age| age > LEFT_AFTER) {
                let _ = remove(&entry.path());
            }
        }
    }

    /// Whether the folder looks like a cache: nothing of anybody else's is deleted.
    #[must_use]
    pub fn is_one(&self) -> bool {
        const MARKS: [&str; 4] = ["costs.json", "locks", "machines", "apt"];
        MARKS.iter().any(|mark| self.root.join(mark).exists())
    }

    /// Deletes what is in a folder of the cache, except what another rtscope uses or is making. Returns how many entries
    /// stay.
    ///
    /// # Errors
    ///
    /// Something can't be removed.
    pub fn prune(&self, room: &str) -> Result<usize, LabError> {
        let folder = self.root.join(room);
        let is_needed = BUILT_FROM.contains(&room) && self.is_locked();
        let mut left = 0;
        for entry in fs::read_dir(&folder).into_iter().flatten().flatten() {
            let path = entry.path();
            let is_made = maker(&entry.file_name().to_string_lossy()).is_some_and(is_alive);
            if is_needed || is_made || room == IMAGES && images::is_in_use(&path) {
                left += 1;
            } else {
                remove(&path).map_err(LabError::file("remove", &path))?;
            }
        }
        Ok(left)
    }

    /// Every finished kernel, by name; those of one name by age, the newest first.
    #[must_use]
    pub fn kernels(&self) -> Vec<KeptKernel> {
        let entries = fs::read_dir(self.root.join("kernels")).into_iter().flatten().flatten();
        let mut found: Vec<_> = entries
            .filter_map(|entry| {
                let age = entry.path().join(MANIFEST).metadata().ok()?.modified().ok()?;
                let kernel = KeptKernel::open(&entry.path()).ok()?;
                (kernel.vmlinuz().is_file()).then_some((age, kernel))
            })
            .collect();
        found.sort_by(|(age_a, a), (age_b, b)| {
            a.manifest.name.cmp(&b.manifest.name).then(age_b.cmp(age_a))
        });
        found.into_iter().map(|(_, kernel)| kernel).collect()
    }

    /// The newest kernel of a name, or the one whose key starts with at least 6 given digits.
    #[must_use]
    pub fn find(&self, name_or_key: &str) -> Option<KeptKernel> {
        let named = |kernel: &KeptKernel| {
            let key = &kernel.manifest.key;
            kernel.manifest.name == name_or_key
                || (name_or_key.len() >= 6 && key.starts_with(name_or_key))
        };
        self.kernels().into_iter().find(named)
    }

    /// Makes a prepared folder a kept kernel, in one step. One that is there already stays.
    pub fn keep(&self, prepared: &Path, manifest: &Manifest) -> io::Result<KeptKernel> {
        let text = serde_json::to_string_pretty(manifest)? + "\n";
        fs::write(prepared.join(MANIFEST), text)?;
        let dir = self.kernel_dir(&manifest.key);
        fs::create_dir_all(dir.parent().unwrap_or(&self.root))?;
        match fs::rename(prepared, &dir) {
            Ok(()) => {}
            Err(_) if dir.join(MANIFEST).is_file() => fs::remove_dir_all(prepared)?,
            // A folder without a manifest is what an earlier, broken attempt left.
            Err(e) if e.kind() == io::ErrorKind::DirectoryNotEmpty => {
                fs::remove_dir_all(&dir)?;
                fs::rename(prepared, &dir)?;
            }
            Err(e) => return Err(e),
        }
        KeptKernel::open(&dir)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn prepared(cache: &Cache, key: &str, name: &str) -> PathBuf {
        let dir = cache.root().join(format!("prepared-{key}"));
        fs::create_dir_all(&dir).expect("a folder");
        fs::write(dir.join("vmlinuz"), name).expect("a file");
        dir
    }

    #[test]
    fn a_kernel_is_kept_once_and_found_by_name_and_key() {
        let folder = tempfile::tempdir().expect("a folder");
        let cache = Cache::at(folder.path());
        assert!(cache.kernels().is_empty());
        let manifest = |key: &str, name: &str| Manifest {
            key: key.to_owned(),
            name: name.to_owned(),
            vmlinuz: "vmlinuz".into(),
            ..Manifest::default()
        };
        for (key, name) in [("aaaaaaaa", "tiny-rt"), ("bbbbbbbb", "tiny-dynamic")] {
            let kept = cache.keep(&prepared(&cache, key, name), &manifest(key, name));
            assert_eq!(kept.expect("kept").manifest.name, name);
        }
        assert_eq!(cache.find("tiny-rt").expect("by name").manifest.key, "aaaaaaaa");
        assert_eq!(cache.find("bbbbbb").expect("by key").manifest.name, "tiny-dynamic");
        assert_eq!(cache.find("bb"), None);
        let again = prepared(&cache, "aaaaaaaa", "other text");
        let kept = cache.keep(&again, &manifest("aaaaaaaa", "tiny-rt")).expect("the first one");
        assert_eq!(fs::read_to_string(kept.vmlinuz()).expect("a file"), "tiny-rt");
        assert!(!again.exists());
        fs::remove_file(cache.kernel_dir("bbbbbbbb").join("vmlinuz")).expect("removed");
        assert_eq!(cache.kernels().len(), 1, "a kernel without its image is none");
    }

    #[test]
    fn what_another_one_uses_is_not_pruned() {
        let folder = tempfile::tempdir().expect("a folder");
        let cache = Cache::at(folder.path());
        let make = |path: PathBuf| {
            fs::create_dir_all(path.parent().expect("a folder")).expect("made");
            fs::write(&path, "x").expect("written");
            path
        };
        let image = |name: &str| make(cache.root().join(IMAGES).join(name));
        let (held, free) = (image("held.cpio"), image("free.cpio"));
        let (at_work, left) =
            (image(&format!("a.part{}", std::process::id())), image("a.part4194305"));
        let in_use = images::ImageInUse::image(&held);
        let (build, unpacked) =
            (make(cache.build_dir("aa").join("o")), make(cache.tree("bb").join("c")));
        let lock = cache.lock("aa", &mut |_| {}).expect("locked");
        assert_eq!(cache.prune(IMAGES).expect("pruned"), 2);
        let is_there = [&held, &free, &at_work, &left].map(|path| path.exists());
        assert_eq!(is_there, [true, false, true, false]);
        // Who builds needs the source.
        let all = || ["build", "trees", "records"].map(|room| cache.prune(room).expect("pruned"));
        assert_eq!(all(), [1, 1, 0]);
        assert!(build.exists() && unpacked.exists());
        drop((in_use, lock));
        assert_eq!((cache.prune(IMAGES).expect("pruned"), all()), (1, [0, 0, 0]));
        assert!(!held.exists() && !build.exists() && !unpacked.exists());
    }

    #[test]
    fn of_two_that_make_one_folder_the_first_one_s_stays() {
        let folder = tempfile::tempdir().expect("a folder");
        let made = folder.path().join("modules/key");
        let file = |part: &Path, text: &str| {
            fs::write(part.join("file"), text).map_err(LabError::file("write", part))
        };
        publish(&made, |part| {
            // The other process is done meanwhile.
            fs::create_dir_all(&made).expect("made");
            file(&made, "first")?;
            file(part, "second")
        })
        .expect("there");
        assert_eq!(fs::read_to_string(made.join("file")).expect("a file"), "first");
        let refused = publish(&folder.path().join("modules/other"), |part| {
            file(part, "half")?;
            Err(LabError::Interrupted)
        });
        assert!(refused.is_err());
        let left = fs::read_dir(folder.path().join("modules")).expect("a folder").count();
        assert_eq!(left, 1, "only what is whole");
    }

    #[test]
    fn what_killed_ones_left_goes_and_what_is_at_work_stays() {
        let folder = tempfile::tempdir().expect("a folder");
        let cache = Cache::at(folder.path());
        let old = std::time::SystemTime::now() - 2 * LEFT_AFTER;
        let own = std::process::id();
        // No process has so high a number.
        let names = ["part-4194305", "part-4194306", "trees-4194305", &format!("part-{own}")];
        for name in names {
            let path = cache.downloads().join(name);
            fs::create_dir_all(&path).expect("made");
            if name != "part-4194306" {
                fs::File::open(&path).and_then(|it| it.set_modified(old)).expect("set");
            }
        }
        cache.sweep();
        let left = names.map(|name| cache.downloads().join(name).exists());
        assert_eq!(left, [false, true, true, true]);
        let replay = cache.root().join("replay-4194305");
        fs::create_dir(&replay).expect("made");
        fs::File::open(&replay).and_then(|it| it.set_modified(old)).expect("set");
        cache.sweep();
        assert!(!replay.exists());
        let image = cache.root().join("images").join("7a.part4194305");
        fs::create_dir(cache.root().join("images")).expect("made");
        fs::File::create(&image).and_then(|it| it.set_modified(old)).expect("set");
        cache.sweep();
        assert!(!image.exists());
    }
}
