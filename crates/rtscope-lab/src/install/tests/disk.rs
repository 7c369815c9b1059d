//! Full disks, and real file systems in files.

use std::process::Command;

use super::*;

/// A file system in a file or in memory, unmounted when it goes.
struct Mounted(PathBuf);

impl Mounted {
    fn mount(words: &[&str], at: &Path) -> Option<Mounted> {
        fs::create_dir_all(at).expect("made");
        let status = Command::new("mount").args(words).arg(at).output().ok()?;
        status.status.success().then(|| Mounted(at.to_owned()))
    }

    /// A file of some MiB, formatted and mounted.
    fn image(folder: &Path, name: &str, mkfs: &[&str], mib: u64, at: &Path) -> Option<Mounted> {
        let image = folder.join(name);
        fs::File::create(&image).and_then(|file| file.set_len(mib << 20)).expect("a file");
        let program = crate::tool::find(mkfs[0])?;
        let made = Command::new(program).args(&mkfs[1..]).arg(&image).output().ok()?;
        assert!(made.status.success(), "{made:?}");
        Mounted::mount(&["-o", "loop", &image.display().to_string()], at)
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(&self.0).status();
    }
}

#[test]
fn on_full_disks_nothing_stays_half_installed() {
    let case = Case::new();
    let place = case.folder.path().join("small");
    let Some(_mounted) = Mounted::mount(&["-t", "tmpfs", "-o", "size=1m", "none"], &place) else {
        return rtscope_testing::skip::skip_this("needs the right to mount");
    };
    for layout in LAYOUTS {
        let (mut failed, mut done) = (0, 0);
        for free_kib in (0..240).step_by(8) {
            let root = place.join(format!("{layout}"));
            old_system(&root, layout);
            let (before, old) = (snapshot(&root), layout.chosen(&root).expect("sound"));
            let filler = place.join("filler");
            let free = disk_free_bytes(&place).saturating_sub(free_kib * 1024);
            fs::write(&filler, vec![0; usize::try_from(free).expect("small")]).expect("filled");
            let outcome =
                install(&wish(&case.kernel, &root, layout), &mut Steps::default(), &mut quiet);
            let new = check(&root, layout, &case.kernel, &old, &before);
            match outcome {
                Ok(_) => {
                    assert!(new);
                    done += 1;
                    rollback(&root, None, &mut Steps::default(), &mut quiet).expect("back");
                }
                Err(error) => {
                    assert!(error.to_string().contains("make space"), "{layout}: {error}");
                    failed += 1;
                }
            }
            assert!(snapshot(&root) == before, "{layout} with {free_kib} KiB free");
            fs::remove_file(&filler).expect("removed");
            fs::remove_dir_all(&root).expect("removed");
        }
        assert!(failed > 3 && done > 3, "{layout}: {failed} failed, {done} done");
        let root = place.join(format!("{layout}"));
        old_system(&root, layout);
        let mut huge = case.kernel.clone();
        huge.dir = case.folder.path().join("huge");
        new_kernel(&huge.dir);
        fs::write(huge.vmlinuz(), vec![1; 3 << 20]).expect("written");
        let checked = Wish { check_space: true, ..wish(&huge, &root, layout) };
        let said =
            install(&checked, &mut Steps::default(), &mut quiet).expect_err("refused").to_string();
        assert!(said.contains("MiB free and this needs about"), "{said}");
        assert!(!root.join("var/lib/rtscope").exists(), "refused before anything is written");
        fs::remove_dir_all(&root).expect("removed");
    }
}

fn disk_free_bytes(path: &Path) -> u64 {
    let found = rustix::fs::statvfs(path).expect("a file system");
    found.f_bavail * found.f_frsize
}

#[test]
fn on_ext4_and_fat_in_files() {
    let case = Case::new();
    let at = case.folder.path().join("card");
    let folder = case.folder.path();
    let Some(_root) = Mounted::image(folder, "ext4.img", &["mkfs.ext4", "-q", "-F"], 16, &at)
    else {
        return rtscope_testing::skip::skip_this("needs the right to mount, and mkfs.ext4");
    };
    let empty = |at: &Path| {
        for entry in fs::read_dir(at).expect("read").flatten() {
            let path = entry.path();
            let kept = path.ends_with("lost+found") || path.ends_with("boot");
            if !kept {
                let removed = fs::remove_dir_all(&path).or_else(|_| fs::remove_file(&path));
                removed.expect("removed");
            }
        }
        for entry in fs::read_dir(at.join("boot")).into_iter().flatten().flatten() {
            let path = entry.path();
            if path.ends_with("firmware") {
                for inner in fs::read_dir(&path).expect("read").flatten() {
                    let removed =
                        fs::remove_dir_all(inner.path()).or_else(|_| fs::remove_file(inner.path()));
                    removed.expect("removed");
                }
            } else {
                let removed = fs::remove_dir_all(&path).or_else(|_| fs::remove_file(&path));
                removed.expect("removed");
            }
        }
    };
    for layout in [BootLayout::Grub, BootLayout::Extlinux, BootLayout::UBoot] {
        let make = |_: &str| {
            old_system(&at, layout);
            at.clone()
        };
        stop_everywhere(&case, layout, make, |_| empty(&at));
    }
    let boot = at.join("boot/firmware");
    let Some(_boot) = Mounted::image(folder, "fat.img", &["mkfs.vfat"], 16, &boot) else {
        println!("skipped the Raspberry Pi's: no mkfs.vfat");
        return;
    };
    let make = |_: &str| {
        old_system(&at, BootLayout::RaspberryPi);
        at.clone()
    };
    stop_everywhere(&case, BootLayout::RaspberryPi, make, |_| empty(&at));
}
