//! Full disks, and real file systems in files.

use std::{io::Write, os::unix::fs::symlink, process::Command};

use super::*;

/// A file system in a file or in memory, unmounted when it goes.
struct Mounted(PathBuf);

impl Mounted {
    fn mount(words: &[&str], at: &Path) -> Option<Mounted> {
        fs::create_dir_all(at).expect("made");
        let status = Command::new("mount").args(words).arg(at).output().ok()?;
        status.status.success().then(|| Mounted(at.to_owned()))
    }

    /// FAT with clusters of 4 KiB, as a card has it.
    fn fat(folder: &Path, at: &Path) -> Option<Mounted> {
        Mounted::image(folder, "fat.img", &["mkfs.vfat", "-F", "16", "-s", "8"], 20, at)
    }

    /// ext4 without blocks that only root gets; `files` is how many files it takes.
    fn ext4(folder: &Path, files: &str, at: &Path) -> Option<Mounted> {
        let words = ["mkfs.ext4", "-q", "-F", "-m", "0", "-N", files];
        Mounted::image(folder, "ext4.img", &words, 16, at)
    }

    /// Leaves some KiB free.
    fn fill(&self, free_kib: u64) -> Filler {
        let path = self.0.join("filler");
        let mut file = fs::File::create(&path).expect("a file");
        let some = [7; 64 << 10];
        loop {
            let over = disk_free_bytes(&self.0).saturating_sub(free_kib << 10);
            let bytes = usize::try_from(over).expect("small").min(some.len());
            if bytes < 4096 || file.write_all(&some[..bytes]).is_err() {
                // What isn't written yet isn't counted by ext4.
                let _ = file.sync_all();
                return Filler(path);
            }
        }
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

const NO_FAT: &str = "needs the right to mount, mkfs.vfat, and a kernel with vfat";

/// A file that takes the room on a file system, until it goes.
struct Filler(PathBuf);

impl Drop for Filler {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
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
        assert!(said.contains("small has ") && said.contains("MiB are missing. Nothing"), "{said}");
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
        // The other layouts were tested.
        return rtscope_testing::skip::skip_this(NO_FAT);
    };
    let make = |_: &str| {
        old_system(&at, BootLayout::RaspberryPi);
        at.clone()
    };
    stop_everywhere(&case, BootLayout::RaspberryPi, make, |_| empty(&at));
}

/// A kernel of 2 MiB with modules of 1 MiB and a link among them.
fn large_kernel(case: &Case) -> KeptKernel {
    let mut kernel = case.kernel.clone();
    kernel.dir = case.folder.path().join("large");
    new_kernel(&kernel.dir);
    fs::write(kernel.vmlinuz(), vec![1; 2 << 20]).expect("written");
    let modules = kernel.modules().expect("modules");
    fs::write(modules.join("kernel/a/big.ko"), vec![2; 1 << 20]).expect("written");
    symlink("big.ko", modules.join("kernel/a/link.ko")).expect("linked");
    kernel
}

fn is_untouched(root: &Path, before: &Snapshot, when: &str) {
    assert!(snapshot(root) == *before, "{when}: changed");
    assert!(!root.join("var/lib/rtscope").exists(), "{when}: a journal stays");
}

#[test]
fn on_full_ext4_and_fat_it_says_what_is_short_and_changes_nothing() {
    let case = Case::new();
    let (folder, at) = (case.folder.path(), case.folder.path().join("card"));
    let (layout, boot_at) = (BootLayout::RaspberryPi, at.join("boot/firmware"));
    let Some(root) = Mounted::ext4(folder, "200", &at) else {
        return rtscope_testing::skip::skip_this("needs the right to mount, and mkfs.ext4");
    };
    let Some(boot) = Mounted::fat(folder, &boot_at) else {
        return rtscope_testing::skip::skip_this(NO_FAT);
    };
    old_system(&at, layout);
    let kernel = large_kernel(&case);
    let checked = Wish { check_space: true, ..wish(&kernel, &at, layout) };
    let attempt = || install(&checked, &mut Steps::default(), &mut quiet);
    let (on_root, on_boot) =
        (format!("{} has ", at.display()), format!("{} has ", boot_at.display()));
    for (root_full, boot_full) in [(true, false), (false, true), (true, true)] {
        let (_a, _b) = (root_full.then(|| root.fill(500)), boot_full.then(|| boot.fill(1000)));
        let (before, old) = (snapshot(&at), layout.chosen(&at).expect("sound"));
        let error = attempt().expect_err("no room");
        let said = error.to_string();
        assert!(!error.is_usage() && said.contains("no room for small-rt 6.12.0-rt: "), "{said}");
        assert_eq!(said.contains(&on_root), root_full, "{said}");
        assert_eq!(said.contains(&on_boot), boot_full, "{said}");
        is_untouched(&at, &before, &said);
        assert_eq!(layout.chosen(&at).expect("sound"), old);
    }
    let (before, old) = (snapshot(&at), layout.chosen(&at).expect("sound"));
    attempt().expect("there is room");
    assert!(check(&at, layout, &kernel, &old, &before), "the new kernel is chosen");
    let link = at.join("lib/modules/6.12.0-rt/kernel/a/link.ko");
    assert_eq!(link.read_link().expect("ext4 has links"), Path::new("big.ko"));
    rollback(&at, None, &mut Steps::default(), &mut quiet).expect("back");
    is_untouched(&at, &before, "rolled back");
}

/// What is checked first can still be too little: something else may write meanwhile.
#[test]
fn ext4_and_fat_that_fill_up_meanwhile_are_as_before() {
    let case = Case::new();
    let (folder, at) = (case.folder.path(), case.folder.path().join("card"));
    let layout = BootLayout::RaspberryPi;
    let Some(root) = Mounted::ext4(folder, "200", &at) else {
        return rtscope_testing::skip::skip_this("needs the right to mount, and mkfs.ext4");
    };
    let Some(boot) = Mounted::fat(folder, &at.join("boot/firmware")) else {
        return rtscope_testing::skip::skip_this(NO_FAT);
    };
    old_system(&at, layout);
    let kernel = large_kernel(&case);
    let wish = wish(&kernel, &at, layout);
    let (mut failed, mut done) = (0, 0);
    let boots = [0, 4, 8, 64, 1000, 2048, 2060, 2064, 2068, 2072, 2076, 2080, 2100];
    let roots = [0, 4, 8, 16, 64, 68, 72, 76, 80, 88, 96, 128, 900, 1100, 1120, 1140, 1160, 1200];
    let cases = boots.map(|kib| (&boot, kib)).into_iter().chain(roots.map(|kib| (&root, kib)));
    for (place, free_kib) in cases {
        let _filler = place.fill(free_kib);
        let (before, old) = (snapshot(&at), layout.chosen(&at).expect("sound"));
        let when = format!("{} with {free_kib} KiB free", place.0.display());
        match install(&wish, &mut Steps::default(), &mut quiet) {
            Ok(_) => {
                assert!(check(&at, layout, &kernel, &old, &before), "{when}");
                rollback(&at, None, &mut Steps::default(), &mut quiet).expect("back");
                done += 1;
            }
            Err(error) => {
                assert!(error.to_string().contains("make space"), "{when}: {error}");
                failed += 1;
            }
        }
        is_untouched(&at, &before, &when);
    }
    assert!(failed > 10 && done > 1, "{failed} failed, {done} done");
}

#[test]
fn a_file_system_without_room_for_more_files_is_named() {
    let case = Case::new();
    let at = case.folder.path().join("card");
    let Some(_root) = Mounted::ext4(case.folder.path(), "32", &at) else {
        return rtscope_testing::skip::skip_this("needs the right to mount, and mkfs.ext4");
    };
    old_system(&at, BootLayout::Grub);
    for n in 0.. {
        if rustix::fs::statvfs(&at).expect("a file system").f_favail <= 3 {
            break;
        }
        fs::write(at.join(format!("file-{n}")), "").expect("written");
    }
    let before = snapshot(&at);
    for check_space in [true, false] {
        let wish = Wish { check_space, ..wish(&case.kernel, &at, BootLayout::Grub) };
        let said = install(&wish, &mut Steps::default(), &mut quiet).expect_err("no room");
        let said = said.to_string();
        assert!(said.contains("make space"), "{said}");
        assert_eq!(said.contains("has room for 3 more files and needs "), check_space, "{said}");
        is_untouched(&at, &before, &said);
    }
}

/// The partition by itself, without links and permissions, and with names in capitals as other systems
/// write them.
#[test]
fn a_card_that_is_all_fat_takes_a_kernel_and_gives_it_back() {
    let case = Case::new();
    let at = case.folder.path().join("card");
    let Some(_boot) = Mounted::fat(case.folder.path(), &at) else {
        return rtscope_testing::skip::skip_this(NO_FAT);
    };
    for (name, text) in [
        ("CONFIG.TXT", "# owner's\n"),
        ("CMDLINE.TXT", "console=serial0,115200 root=PARTUUID=7-02\n"),
        ("kernel8.img", "old image"),
        ("bcm2711-rpi-4-b.dtb", "old tree"),
    ] {
        write(&at, name, text);
    }
    let layout = BootLayout::RaspberryPi;
    let kernel = large_kernel(&case);
    let (before, old) = (snapshot(&at), layout.chosen(&at).expect("sound"));
    assert!(before.contains_key(Path::new("CONFIG.TXT")), "FAT keeps capitals");
    let wish = Wish { check_space: true, ..wish(&kernel, &at, layout) };
    install(&wish, &mut Steps::default(), &mut quiet).expect("installed");
    let chosen = layout.chosen(&at).expect("sound");
    assert!(chosen.image != old.image && chosen.missing().is_none(), "{chosen:?}");
    let modules = at.join("lib/modules/6.12.0-rt/kernel/a");
    let link = modules.join("link.ko");
    assert!(link.symlink_metadata().expect("there").is_file(), "the link's target");
    assert_eq!(fs::read(link).ok(), fs::read(modules.join("big.ko")).ok());
    rollback(&at, None, &mut Steps::default(), &mut quiet).expect("back");
    let names = |of: &Snapshot| of.keys().cloned().collect::<Vec<_>>();
    // The folders above the journal weren't there before.
    assert_eq!(names(&snapshot(&at)), names(&before));
    assert!(snapshot(&at) == before, "every byte is as before");
    for n in (0..).step_by(3) {
        let outcome = install(&wish, &mut Steps::stopping_before(n), &mut quiet);
        let back = rollback(&at, None, &mut Steps::default(), &mut quiet);
        assert!(matches!(back, Ok(_) | Err(LabError::Refused(_))), "step {n}: {back:?}");
        let mut now = snapshot(&at);
        // Nothing says whose they are when the first steps are broken off.
        now.retain(|path, _| !["var", "var/lib"].map(Path::new).contains(&&**path));
        assert_eq!(names(&now), names(&before), "step {n}");
        assert!(now == before, "step {n}");
        if outcome.is_ok() {
            assert!(n > 20, "{n} steps");
            break;
        }
    }
}
