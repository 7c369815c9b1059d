//! Modules of a kernel for its guest: found by name, with what they depend on, in the order in which they
//! must be loaded.
//!
//! The order is that of `modules.dep`, which `depmod` makes where the package that the modules come from
//! has none.

use std::{
    collections::BTreeMap,
    fs,
    io::Read,
    path::{Path, PathBuf},
    process::Command,
};

use flate2::read::GzDecoder;

use crate::{
    cache::{Cache, publish},
    digest::{key_of, sha256_of_file},
    error::LabError,
    links,
    progress::{Report, step},
    tool::{self, Need},
};

/// The most that a guest's modules may have, unpacked: with debug information, one may have more than 100 MiB.
const MODULES_BYTES_MAX: u64 = 1 << 30;

/// What `/lib/modules/RELEASE` is on a running system.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Modules {
    dir: PathBuf,
    release: String,
    /// They come from an archive or with a kernel, and so does their `modules.dep`. That of a system may name modules
    /// elsewhere.
    is_foreign: bool,
}

/// A module for a guest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Module {
    /// Where it lies in the guest.
    pub path: String,
    /// Unpacked.
    pub body: Vec<u8>,
}

impl Modules {
    /// Opens a folder, a Debian package or an archive with modules. What is packed is unpacked into the
    /// cache, once.
    ///
    /// # Errors
    ///
    /// There are no modules in it, or of several kernels and none of the asked release.
    pub fn open(
        source: &Path,
        release: Option<&str>,
        cache: &Cache,
        report: &mut Report<'_>,
    ) -> Result<Modules, LabError> {
        if source.is_dir() {
            return Modules::in_folder(source, release);
        }
        let sha256 = sha256_of_file(source).map_err(LabError::file("read", source))?;
        let root =
            cache.root().join("modules").join(key_of(&[("modules, no links", sha256.as_bytes())]));
        if !root.is_dir() {
            step(report, format!("unpacking modules of {}", source.display()));
            publish(&root, |part| unpack(source, part).and_then(|()| links::remove(part)))?;
        }
        Modules::of_kernel(&root, release)
    }

    /// Opens a folder with the modules of a kernel that somebody else may have built.
    ///
    /// # Errors
    ///
    /// As [`open`](Modules::open).
    pub fn of_kernel(folder: &Path, release: Option<&str>) -> Result<Modules, LabError> {
        Ok(Modules { is_foreign: true, ..Modules::in_folder(folder, release)? })
    }

    /// The modules in a folder: it is `/lib/modules/RELEASE` itself, holds `RELEASE` folders, or is a
    /// root with `lib/modules` in it.
    fn in_folder(folder: &Path, release: Option<&str>) -> Result<Modules, LabError> {
        let none = || {
            LabError::Refused(format!(
                "{} holds no modules of {}: name a folder such as /lib/modules/RELEASE",
                folder.display(),
                release.unwrap_or("a kernel")
            ))
        };
        let mut found = Vec::new();
        for place in ["", "lib/modules", "usr/lib/modules"].map(|inner| folder.join(inner)) {
            if is_modules(&place) {
                found.push(place);
            } else {
                let entries = fs::read_dir(&place).into_iter().flatten().flatten();
                found.extend(entries.map(|entry| entry.path()).filter(|path| is_modules(path)));
            }
        }
        let name = |dir: &PathBuf| {
            dir.canonicalize().ok()?.file_name().map(|name| name.to_string_lossy().into_owned())
        };
        let mut named: Vec<(String, PathBuf)> =
            found.into_iter().filter_map(|dir| Some((name(&dir)?, dir))).collect();
        if let Some(release) = release
            && named.len() > 1
        {
            named.retain(|(name, _)| name == release);
        }
        let (name, dir) = named.pop().filter(|_| named.is_empty()).ok_or_else(none)?;
        let release = release.map_or(name, str::to_owned);
        let modules = Modules { dir, release, is_foreign: false };
        modules.require_order()?;
        Ok(modules)
    }

    /// Makes `modules.dep` where there is none.
    fn require_order(&self) -> Result<(), LabError> {
        if self.dir.join("modules.dep").is_file() {
            return Ok(());
        }
        tool::require(&[Need::of("depmod", "kmod")])?;
        // depmod wants ROOT/lib/modules/RELEASE.
        let root =
            self.dir.ancestors().nth(3).filter(|_| {
                self.dir.parent().is_some_and(|parent| parent.ends_with("lib/modules"))
            });
        let root = root.ok_or_else(|| {
            LabError::Refused(format!(
                "{} has no modules.dep: run `depmod`, or name a folder that ends in \
                 lib/modules/RELEASE",
                self.dir.display()
            ))
        })?;
        let release = self.dir.file_name().unwrap_or_default();
        tool::output(Command::new("depmod").arg("-b").arg(root).arg(release)).map(drop)
    }

    /// The modules of these names and all that they need, in the order in which they must be loaded.
    /// What is part of the kernel itself is left out.
    pub fn ordered(&self, names: &[String]) -> Result<Vec<Module>, LabError> {
        let read = |name: &str| {
            let path = self.dir.join(name);
            fs::read_to_string(&path).map_err(LabError::file("read", &path))
        };
        let dependencies = Dependencies::parse(&read("modules.dep")?);
        let built_in: Vec<String> =
            read("modules.builtin").unwrap_or_default().lines().map(plain_name).collect();
        let mut paths: Vec<String> = Vec::new();
        for name in names {
            if built_in.contains(&plain_name(name)) {
                continue;
            }
            let all = dependencies
                .in_order(name)
                .ok_or_else(|| dependencies.unknown(name, &self.release))?;
            for path in all {
                if !paths.contains(&path) {
                    paths.push(path);
                }
            }
        }
        let mut rest = MODULES_BYTES_MAX;
        let module = |path: &String| {
            if self.is_foreign && !links::stays_below(Path::new(path)) {
                return Err(LabError::Refused(format!(
                    "the kernel's modules.dep names {path:?}, which is outside its folder: if you trust it, name the folder \
                     with --modules"
                )));
            }
            let body = unpacked(&self.dir.join(path), rest)?;
            rest -= body.len() as u64;
            let plain = path.split_inclusive(".ko").next().unwrap_or(path);
            Ok(Module { path: format!("lib/modules/{}/{plain}", self.release), body })
        };
        paths.iter().map(module).collect()
    }
}

fn is_modules(dir: &Path) -> bool {
    dir.join("modules.dep").is_file()
        || dir.join("modules.order").is_file()
        || dir.join("kernel").is_dir() && !dir.join("boot").is_dir()
}

/// Unpacks the modules of a Debian package or of an archive.
fn unpack(source: &Path, to: &Path) -> Result<(), LabError> {
    if source.extension().is_some_and(|ending| ending == "deb") {
        tool::require(&[Need::of("dpkg-deb", "dpkg"), Need::of("tar", "tar")])?;
        return tool::extract_package(source, to, "./lib/modules")
            .or_else(|_| tool::extract_package(source, to, "./usr/lib/modules"));
    }
    tool::require(&[Need::of("tar", "tar")])?;
    let mut tar = Command::new("tar");
    tool::output(tar.args(["-x", "--no-same-owner", "-C"]).arg(to).arg("-f").arg(source)).map(drop)
}

/// A module's bytes, unpacked: not every kernel unpacks them itself.
fn unpacked(path: &Path, bytes_max: u64) -> Result<Vec<u8>, LabError> {
    let ending = path.extension().and_then(|ending| ending.to_str());
    let program = match ending {
        Some("xz") => Some(Need::of("xz", "xz-utils")),
        Some("zst") => Some(Need::of("zstd", "zstd")),
        _ => None,
    };
    let bytes = match program {
        Some(program) => {
            tool::require(std::slice::from_ref(&program))?;
            let mut command = Command::new(&program.name);
            tool::bytes_of_at_most(command.arg("-dcq").arg(path), bytes_max)?
        }
        None => {
            let file = fs::File::open(path).map_err(LabError::file("read", path))?;
            let reader: Box<dyn Read> = match ending {
                Some("gz") => Box::new(GzDecoder::new(file)),
                _ => Box::new(file),
            };
            let mut bytes = Vec::new();
            let read = reader.take(bytes_max + 1).read_to_end(&mut bytes);
            read.map_err(LabError::file("unpack", path))?;
            bytes
        }
    };
    if bytes.len() as u64 > bytes_max {
        return Err(LabError::Refused(format!(
            "{} and the modules before it exceed {} MiB when unpacked: name fewer modules",
            path.display(),
            MODULES_BYTES_MAX >> 20
        )));
    }
    Ok(bytes)
}

/// A module's name as the kernel writes it: without folder and ending, dashes as underscores.
fn plain_name(path: &str) -> String {
    let file = path.rsplit('/').next().unwrap_or(path);
    let name = file.split(".ko").next().unwrap_or(file);
    name.trim().replace('-', "_")
}

/// `modules.dep`: each module's file, and those that it needs.
struct Dependencies {
    /// By name: its path, and the paths of all that it needs, the last of which is loaded first.
    needs: BTreeMap<String, (String, Vec<String>)>,
}

impl Dependencies {
    fn parse(text: &str) -> Dependencies {
        let line = |line: &str| {
            let (path, needs) = line.split_once(':')?;
            let needs = needs.split_whitespace().map(str::to_owned).collect();
            Some((plain_name(path), (path.trim().to_owned(), needs)))
        };
        Dependencies { needs: text.lines().filter_map(line).collect() }
    }

    /// The paths of a module and of what it needs, the first to be loaded first.
    fn in_order(&self, name: &str) -> Option<Vec<String>> {
        let (path, needs) = self.needs.get(&plain_name(name))?;
        Some(needs.iter().rev().chain([path]).cloned().collect())
    }

    fn unknown(&self, name: &str, release: &str) -> LabError {
        let wanted = plain_name(name);
        let nearest = rtscope_model::text::suggest(&wanted, self.needs.keys().map(String::as_str));
        let hint = nearest.map_or(String::new(), |nearest| format!(" (did you mean {nearest:?}?)"));
        LabError::Refused(format!("the kernel {release} has no module {name:?}{hint}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Three lines of the file of Debian's 6.1.
    const DEP: &str = "\
kernel/drivers/net/veth.ko:
kernel/fs/configfs/configfs.ko:
kernel/drivers/target/target_core_mod.ko: kernel/fs/configfs/configfs.ko
kernel/drivers/net/wireguard/wireguard.ko: kernel/net/ipv4/udp_tunnel.ko.xz kernel/lib/crypto/libchacha.ko
";

    #[test]
    fn what_a_module_needs_is_loaded_before_it_and_the_last_named_first() {
        let dependencies = Dependencies::parse(DEP);
        assert_eq!(dependencies.in_order("veth").expect("there"), ["kernel/drivers/net/veth.ko"]);
        let all = dependencies.in_order("target-core-mod").expect("there");
        assert_eq!(
            all,
            ["kernel/fs/configfs/configfs.ko", "kernel/drivers/target/target_core_mod.ko"]
        );
        let all = dependencies.in_order("wireguard").expect("there");
        assert_eq!(all[0], "kernel/lib/crypto/libchacha.ko");
        let said = dependencies.unknown("vet", "6.1").to_string();
        assert!(said.contains("did you mean \"veth\"?") && said.contains("6.1"), "{said}");
    }

    #[test]
    fn a_folder_is_searched_and_packed_modules_are_unpacked() {
        use std::io::Write;

        let root = tempfile::tempdir().expect("a folder");
        let dir = root.path().join("lib/modules/6.1.0");
        fs::create_dir_all(dir.join("kernel")).expect("made");
        let mut packer = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        packer.write_all(b"a module").expect("packed");
        fs::write(dir.join("kernel/a.ko.gz"), packer.finish().expect("packed")).expect("written");
        fs::write(dir.join("kernel/b.ko"), b"another").expect("written");
        fs::write(dir.join("modules.dep"), "kernel/a.ko.gz: kernel/b.ko\nkernel/b.ko:\n")
            .expect("written");
        fs::write(dir.join("modules.builtin"), "kernel/net/c-d.ko\n").expect("written");
        let cache = Cache::at(root.path().join("cache"));
        for folder in [root.path().to_owned(), dir.clone(), root.path().join("lib/modules")] {
            let modules =
                Modules::open(&folder, Some("6.1.0"), &cache, &mut |_| {}).expect("there");
            let names = ["c_d", "a", "b"].map(str::to_owned);
            let ordered = modules.ordered(&names).expect("there");
            let told: Vec<(&str, &[u8])> =
                ordered.iter().map(|m| (m.path.as_str(), m.body.as_slice())).collect();
            assert_eq!(
                told,
                [
                    ("lib/modules/6.1.0/kernel/b.ko", &b"another"[..]),
                    ("lib/modules/6.1.0/kernel/a.ko", &b"a module"[..]),
                ]
            );
        }
        let said =
            Modules::open(&root.path().join("lib/modules/6.1.0/kernel"), None, &cache, &mut |_| {})
                .expect_err("no modules")
                .to_string();
        assert!(said.contains("holds no modules"), "{said}");
    }

    #[test]
    fn an_archive_names_no_file_of_this_machine() {
        let room = tempfile::tempdir().expect("a folder");
        let secret = room.path().join("secret");
        fs::write(&secret, "a key").expect("written");
        let dir = room.path().join("packed/lib/modules/6.1.0");
        fs::create_dir_all(dir.join("kernel")).expect("made");
        std::os::unix::fs::symlink(&secret, dir.join("kernel/link.ko")).expect("made");
        fs::write(dir.join("kernel/real.ko"), "a module").expect("written");
        let order = format!(
            "kernel/link.ko:\nkernel/real.ko:\n{}/named.ko:\n../../../../secret.ko:\n",
            room.path().display()
        );
        fs::write(dir.join("modules.dep"), order).expect("written");
        for name in ["named.ko", "secret.ko"] {
            fs::copy(&secret, room.path().join(name)).expect("written");
        }
        let archive = room.path().join("modules.tar");
        let mut tar = Command::new("tar");
        let tar = tar.arg("-cf").arg(&archive).arg("-C").arg(room.path().join("packed")).arg("lib");
        assert!(tar.status().expect("tar").success());
        let cache = Cache::at(room.path().join("cache"));
        let modules = Modules::open(&archive, None, &cache, &mut |_| {}).expect("unpacked");
        let of = |name: &str| modules.ordered(&[name.to_owned()]).map_err(|e| e.to_string());
        assert_eq!(of("real").expect("there")[0].body, b"a module");
        assert!(of("link").expect_err("a link").contains("can't read"));
        for name in ["named", "secret"] {
            let why = of(name).expect_err("outside");
            assert!(why.contains("outside its folder"), "{why}");
        }
    }

    #[test]
    fn the_right_release_is_taken_of_several() {
        let root = tempfile::tempdir().expect("a folder");
        for release in ["6.1.0", "6.12.0"] {
            let dir = root.path().join("lib/modules").join(release);
            fs::create_dir_all(&dir).expect("made");
            fs::write(dir.join("modules.dep"), "kernel/a.ko:\n").expect("written");
        }
        let cache = Cache::at(root.path());
        let open = |release| Modules::open(root.path(), release, &cache, &mut |_| {});
        assert!(open(Some("6.12.0")).expect("there").dir.ends_with("6.12.0"));
        assert!(open(None).is_err() && open(Some("6.6.0")).is_err());
    }
}
