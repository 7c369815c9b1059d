//! Every layout, stopped before every single step, on full disks and on real file systems in files: the
//! old kernel always still boots, and going back restores every byte.

mod disk;
mod fallback;
mod hostile;
mod parameters;
mod since;
mod target;

use std::{
    collections::BTreeMap,
    fs,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
};

use super::*;
use crate::cache::Manifest;

const LAYOUTS: [BootLayout; 4] =
    [BootLayout::RaspberryPi, BootLayout::Grub, BootLayout::Extlinux, BootLayout::UBoot];

const WORDS: &str = "dwc_otg.fiq_enable=0 dwc_otg.fiq_fsm_enable=0 dwc_otg.nak_holdoff=0";

const GRUB: &str = "set default=\"0\"\nmenuentry 'Old' $menuentry_id_option 'old' {\n\tinsmod ext2\n\
    \tlinux\t/boot/vmlinuz-6.1.0-old root=/dev/sda1 ro quiet\n}\n\
    if [ -f  ${config_directory}/custom.cfg ]; then\n  source ${config_directory}/custom.cfg\nfi\n";

const EXTLINUX: &str = "TIMEOUT 30\nDEFAULT old\n\nLABEL old\n\tLINUX /boot/Image-old\n\
    \tFDT /boot/dtbs-old/ti/board.dtb\n\tAPPEND root=/dev/mmcblk0p2 rw\n";

fn write(root: &Path, name: &str, text: &str) {
    let path = root.join(name);
    fs::create_dir_all(path.parent().expect("a folder")).expect("made");
    fs::write(path, text).expect("written");
}

/// A root as the layout's systems have it, with an old kernel.
fn old_system(root: &Path, layout: BootLayout) {
    write(root, "lib/modules/6.1.0-old/modules.dep", "old modules");
    fs::create_dir_all(root.join("var/lib")).expect("made");
    let files: &[(&str, &str)] = match layout {
        BootLayout::RaspberryPi => &[
            ("boot/firmware/config.txt", "# owner's\ndtparam=audio=on\n[pi4]\narm_boost=1"),
            ("boot/firmware/cmdline.txt", "console=serial0,115200 root=PARTUUID=7-02 rootwait\n"),
            ("boot/firmware/kernel8.img", "old image"),
            ("boot/firmware/bcm2711-rpi-4-b.dtb", "old tree"),
            ("boot/firmware/overlays/README", "old overlays"),
        ],
        BootLayout::Grub => &[
            ("boot/grub/grub.cfg", GRUB),
            ("boot/grub/custom.cfg", "# the owner's own\nset timeout=3\n"),
            ("boot/vmlinuz-6.1.0-old", "old image"),
        ],
        BootLayout::Extlinux => &[
            ("boot/extlinux/extlinux.conf", EXTLINUX),
            ("boot/Image-old", "old image"),
            ("boot/dtbs-old/ti/board.dtb", "old tree"),
        ],
        BootLayout::UBoot => &[
            ("boot/uEnv.txt", "# owner's\nuname_r=6.1.0-old\ncmdline=coherent_pool=1M quiet\n"),
            ("boot/vmlinuz-6.1.0-old", "old image"),
            ("boot/dtbs/6.1.0-old/am57xx.dtb", "old tree"),
        ],
        // Kernels are not installed there.
        BootLayout::Armbian | BootLayout::SystemdBoot => &[],
    };
    for (name, text) in files {
        write(root, name, text);
    }
}

/// A small kernel with modules, device trees and overlays.
fn new_kernel(dir: &Path) -> KeptKernel {
    write(dir, "vmlinuz", &"new image ".repeat(4000));
    write(dir, "config", "CONFIG_PREEMPT_RT=y\n");
    write(dir, "System.map", "map");
    write(dir, "modules/6.12.0-rt/modules.dep", "new modules");
    write(dir, "modules/6.12.0-rt/kernel/a/b.ko", &"module ".repeat(3000));
    write(dir, "dtbs/broadcom/bcm2711-rpi-4-b.dtb", "new tree");
    write(dir, "dtbs/overlays/disable-bt.dtbo", "new overlay");
    write(dir, "dtbs/ti/board.dtb", "new tree of ti");
    let manifest = Manifest {
        name: "small-rt".into(),
        key: "0123456789abcdef".into(),
        release: "6.12.0-rt".into(),
        version: "#1 SMP PREEMPT_RT".into(),
        arch: "arm64".into(),
        vmlinuz: "vmlinuz".into(),
        config: Some("config".into()),
        system_map: Some("System.map".into()),
        modules: Some("modules/6.12.0-rt".into()),
        dtbs: Some("dtbs".into()),
        ..Manifest::default()
    };
    KeptKernel { dir: dir.to_owned(), manifest }
}

#[test]
fn a_kernel_without_the_modules_that_it_needs_is_refused() {
    let room = tempfile::tempdir().expect("a folder");
    let (root, dir) = (room.path().join("root"), room.path().join("kernel"));
    old_system(&root, BootLayout::Grub);
    let mut kernel = new_kernel(&dir);
    kernel.manifest.modules = None;
    let said = |kernel: &KeptKernel| {
        let wish = wish(kernel, &root, BootLayout::Grub);
        install(&wish, &mut Steps::default(), &mut |_| {}).map(drop).map_err(|e| e.to_string())
    };
    write(&dir, "config", "CONFIG_MODULES=y\nCONFIG_EXT4_FS=m\n");
    let own = said(&kernel).expect_err("refused");
    assert!(own.contains("without its modules") && own.contains("modules = true"), "{own}");
    kernel.manifest.inputs.insert("package".into(), "linux-image-6.1".into());
    let debian = said(&kernel).expect_err("refused");
    assert!(debian.ends_with("`apt-get install linux-image-6.1`"), "{debian}");
    write(&dir, "config", "CONFIG_MODULES=y\nCONFIG_EXT4_FS=y\n");
    assert_eq!(said(&kernel), Ok(()), "all is built in");
}

type Snapshot = BTreeMap<PathBuf, (u32, Vec<u8>)>;

/// Every file, link and folder with mode and content; not our own journals.
fn snapshot(root: &Path) -> Snapshot {
    let mut found = Snapshot::new();
    let mut open = vec![root.to_owned()];
    while let Some(dir) = open.pop() {
        for entry in fs::read_dir(&dir).expect("read").flatten() {
            let path = entry.path();
            let name = path.strip_prefix(root).expect("below").to_owned();
            if name == Path::new("var/lib/rtscope") || name == Path::new("lost+found") {
                continue;
            }
            let there = path.symlink_metadata().expect("there");
            let bytes = if there.is_dir() {
                open.push(path);
                Vec::new()
            } else {
                fs::read(&path).expect("a file")
            };
            found.insert(name, (there.permissions().mode(), bytes));
        }
    }
    found
}

fn wish<'a>(kernel: &'a KeptKernel, root: &'a Path, layout: BootLayout) -> Wish<'a> {
    Wish {
        kernel,
        root,
        layout,
        words: WORDS,
        once: false,
        in_place: false,
        initrd: Initrd::Made,
        force: false,
        check_space: false,
    }
}

/// The invariant. Answers whether the new kernel is chosen.
fn check(
    root: &Path,
    layout: BootLayout,
    kernel: &KeptKernel,
    old: &Chosen,
    before: &Snapshot,
) -> bool {
    let now = snapshot(root);
    for (path, content) in before {
        let name = path.file_name().expect("a name").to_string_lossy();
        let is_config = ["config.txt", "cmdline.txt", "custom.cfg", "extlinux.conf", "uEnv.txt"]
            .contains(&&*name);
        assert!(
            is_config || now.get(path) == Some(content),
            "{} of the old kernel changed",
            path.display()
        );
    }
    let chosen = layout.chosen(root).expect("the boot configuration can be read");
    assert_eq!(chosen.missing(), None, "the chosen kernel is whole");
    if chosen.image == old.image {
        assert_eq!(chosen.device_tree, old.device_tree);
        return false;
    }
    let same =
        |a: &Path, b: &Path| assert_eq!(fs::read(a).ok(), fs::read(b).ok(), "{}", a.display());
    same(&chosen.image, &kernel.vmlinuz());
    let modules = root.join("lib/modules/6.12.0-rt");
    same(&modules.join("kernel/a/b.ko"), &kernel.modules().expect("modules").join("kernel/a/b.ko"));
    assert!(chosen.cmdline.contains(WORDS), "{}", chosen.cmdline);
    true
}

struct Case {
    folder: tempfile::TempDir,
    kernel: KeptKernel,
}

impl Case {
    fn new() -> Case {
        let folder = tempfile::tempdir().expect("a folder");
        let kernel = new_kernel(&folder.path().join("kernel"));
        Case { folder, kernel }
    }

    fn root(&self, name: &str, layout: BootLayout) -> PathBuf {
        let root = self.folder.path().join(name);
        old_system(&root, layout);
        root
    }
}

fn quiet(_: StepProgress) {}

/// Stops an installation before every step, and the way back before every step.
fn stop_everywhere(
    case: &Case,
    layout: BootLayout,
    make: impl Fn(&str) -> PathBuf,
    clear: impl Fn(&Path),
) {
    let (mut stops, mut switched) = (0, 0);
    for n in 0.. {
        let root = make(&format!("{layout}-{n}"));
        let (before, old) = (snapshot(&root), layout.chosen(&root).expect("sound"));
        let wish = wish(&case.kernel, &root, layout);
        let outcome = install(&wish, &mut Steps::stopping_before(n), &mut quiet);
        let new = check(&root, layout, &case.kernel, &old, &before);
        switched += usize::from(new);
        match outcome {
            Err(LabError::Stopped(_)) => stops += 1,
            Ok(_) => {
                assert!(new, "{layout}: installed and not chosen");
                clear(&root);
                break;
            }
            Err(error) => panic!("{layout}, step {n}: {error}"),
        }
        let back = rollback(&root, None, &mut Steps::default(), &mut quiet);
        match back {
            Ok(_) | Err(LabError::Refused(_)) => {}
            Err(error) => panic!("{layout}, back from step {n}: {error}"),
        }
        assert!(snapshot(&root) == before, "{layout}: step {n}: going back restores every byte");
        clear(&root);
    }
    assert!(stops > 15, "{layout}: {stops} steps");
    assert!(switched < 6, "{layout}: the new kernel is chosen by one of the last steps");
}

#[test]
fn stopped_before_any_step_the_old_kernel_boots() {
    let case = Case::new();
    for layout in LAYOUTS {
        stop_everywhere(
            &case,
            layout,
            |name| case.root(name, layout),
            |root| {
                fs::remove_dir_all(root).expect("removed");
            },
        );
    }
}

#[test]
fn the_way_back_can_be_broken_off_anywhere() {
    let case = Case::new();
    for layout in LAYOUTS {
        for n in 0.. {
            let root = case.root(&format!("back-{layout}-{n}"), layout);
            let (before, old) = (snapshot(&root), layout.chosen(&root).expect("sound"));
            let wish = wish(&case.kernel, &root, layout);
            install(&wish, &mut Steps::default(), &mut quiet).expect("installed");
            let outcome = rollback(&root, None, &mut Steps::stopping_before(n), &mut quiet);
            check(&root, layout, &case.kernel, &old, &before);
            if outcome.is_ok() {
                assert!(n > 5 && snapshot(&root) == before);
                assert!(!root.join("var/lib/rtscope").exists(), "nothing of ours stays");
                break;
            }
            let again = rollback(&root, None, &mut Steps::default(), &mut quiet);
            assert!(matches!(again, Ok(_) | Err(LabError::Refused(_))), "{layout}, {n}: {again:?}");
            assert!(snapshot(&root) == before, "{layout}: broken off at {n}");
            fs::remove_dir_all(&root).expect("removed");
        }
    }
}

#[test]
fn a_new_installation_clears_a_broken_one_away() {
    let case = Case::new();
    for layout in LAYOUTS {
        let root = case.root(&format!("{layout}"), layout);
        let before = snapshot(&root);
        let wish = wish(&case.kernel, &root, layout);
        for n in [4, 9, 14] {
            let stopped = install(&wish, &mut Steps::stopping_before(n), &mut quiet);
            assert!(matches!(stopped, Err(LabError::Stopped(_))));
        }
        let done = install(&wish, &mut Steps::default(), &mut quiet).expect("installed");
        assert!(done.chosen.cmdline.contains(WORDS));
        let said =
            install(&wish, &mut Steps::default(), &mut quiet).expect_err("twice").to_string();
        assert!(said.contains("lib/modules/6.12.0-rt is there already"), "{said}");
        rollback(&root, Some("small-rt"), &mut Steps::default(), &mut quiet).expect("back");
        assert!(snapshot(&root) == before, "{layout}");
        let nothing =
            rollback(&root, None, &mut Steps::default(), &mut quiet).expect_err("nothing");
        assert!(nothing.to_string().contains("nothing was installed below"), "{nothing}");
    }
}

#[test]
fn two_kernels_go_in_the_other_order() {
    let case = Case::new();
    let mut second = new_kernel(&case.folder.path().join("second"));
    second.manifest.name = "second".into();
    second.manifest.key = "fedcba9876543210".into();
    second.manifest.release = "6.12.1-rt".into();
    for layout in LAYOUTS {
        let root = case.root(&format!("{layout}"), layout);
        let before = snapshot(&root);
        install(&wish(&case.kernel, &root, layout), &mut Steps::default(), &mut quiet)
            .expect("first");
        let between = (snapshot(&root), layout.chosen(&root).expect("sound"));
        let done = install(&wish(&second, &root, layout), &mut Steps::default(), &mut quiet);
        let done = done.expect("second");
        assert_ne!(done.chosen.image, between.1.image, "{layout}");
        assert_eq!(
            done.chosen.cmdline.matches("dwc_otg.fiq_enable").count(),
            1,
            "{}",
            done.chosen.cmdline
        );
        let said = rollback(&root, Some("small-rt"), &mut Steps::default(), &mut quiet);
        assert!(said.expect_err("order").to_string().contains("second was installed last"));
        rollback(&root, Some("fedcba98"), &mut Steps::default(), &mut quiet).expect("second back");
        assert!(snapshot(&root) == between.0, "{layout}");
        rollback(&root, None, &mut Steps::default(), &mut quiet).expect("first back");
        assert!(snapshot(&root) == before, "{layout}");
    }
}

#[test]
fn what_the_owner_edited_since_stays_edited() {
    let case = Case::new();
    let root = case.root("edited", BootLayout::RaspberryPi);
    let wish = wish(&case.kernel, &root, BootLayout::RaspberryPi);
    install(&wish, &mut Steps::default(), &mut quiet).expect("installed");
    let config = root.join("boot/firmware/config.txt");
    let text = fs::read_to_string(&config).expect("a file");
    assert!(text.contains("[all]\narm_64bit=1\nos_prefix=rtscope-01234567/\n#"), "{text}");
    fs::write(&config, text.replace("audio=on", "audio=off")).expect("edited");
    let mut said = Vec::new();
    rollback(&root, None, &mut Steps::default(), &mut |p| said.push(format!("{p:?}")))
        .expect("back");
    assert!(said.iter().any(|line| line.contains("was edited since")), "{said:?}");
    let text = fs::read_to_string(&config).expect("a file");
    assert_eq!(text, "# owner's\ndtparam=audio=off\n[pi4]\narm_boost=1");
}

#[test]
fn the_raspberry_pis_other_ways() {
    let case = Case::new();
    let layout = BootLayout::RaspberryPi;
    let root = case.root("once", layout);
    let (before, old) = (snapshot(&root), layout.chosen(&root).expect("sound"));
    let once = Wish { once: true, ..wish(&case.kernel, &root, layout) };
    let done = install(&once, &mut Steps::default(), &mut quiet).expect("installed");
    assert_eq!(done.chosen, old, "a power cycle boots the old kernel");
    let config = fs::read_to_string(root.join("boot/firmware/tryboot.txt")).expect("a file");
    assert!(config.contains("[all]\narm_64bit=1\nos_prefix=rtscope-01234567/\n"), "{config}");
    rollback(&root, None, &mut Steps::default(), &mut quiet).expect("back");
    assert!(snapshot(&root) == before);

    let root = case.root("in-place", layout);
    for n in 0.. {
        let before = snapshot(&root);
        let in_place = Wish { in_place: true, ..wish(&case.kernel, &root, layout) };
        let outcome = install(&in_place, &mut Steps::stopping_before(n), &mut quiet);
        check(&root, layout, &case.kernel, &old_of(&root), &before);
        let done = outcome.is_ok();
        if done {
            let line = fs::read_to_string(root.join("boot/firmware/cmdline.txt")).expect("a file");
            assert_eq!(line.lines().count(), 1);
            assert!(
                line.contains(&format!("rootwait rtscope.begin {WORDS} rtscope.end")),
                "{line}"
            );
            assert!(layout.chosen(&root).expect("sound").image.ends_with("rtscope-01234567.img"));
        }
        let _ = rollback(&root, None, &mut Steps::default(), &mut quiet);
        assert!(snapshot(&root) == before, "step {n}");
        if done {
            break;
        }
    }

    let mut bare = case.kernel.clone();
    bare.manifest.dtbs = None;
    let root = case.root("bare", layout);
    let said = install(&wish(&bare, &root, layout), &mut Steps::default(), &mut quiet);
    assert!(
        said.expect_err("refused").to_string().contains("has no device trees"),
        "no folder without one"
    );
}

fn old_of(root: &Path) -> Chosen {
    let image = root.join("boot/firmware/kernel8.img");
    Chosen { image, device_tree: Some(root.join("boot/firmware")), ..Chosen::default() }
}

#[test]
fn grubs_other_ways() {
    let case = Case::new();
    let root = case.root("grub", BootLayout::Grub);
    let old = BootLayout::Grub.chosen(&root).expect("sound");
    let custom = root.join("boot/grub/custom.cfg");
    fs::remove_file(&custom).expect("removed");
    let before = snapshot(&root);
    let once = Wish { once: true, ..wish(&case.kernel, &root, BootLayout::Grub) };
    let done = install(&once, &mut Steps::default(), &mut quiet).expect("installed");
    assert_eq!(done.chosen, old, "the default stays the old kernel");
    let text = fs::read_to_string(&custom).expect("made");
    assert!(
        text.contains("menuentry 'Linux 6.12.0-rt (rtscope)' --id rtscope-01234567 {"),
        "{text}"
    );
    assert!(
        text.contains("\tinsmod ext2\n\tlinux /boot/vmlinuz-6.12.0-rt root=/dev/sda1 ro quiet dwc")
    );
    assert!(!text.contains("set default"), "{text}");
    rollback(&root, None, &mut Steps::default(), &mut quiet).expect("back");
    assert!(snapshot(&root) == before);
    let plain = wish(&case.kernel, &root, BootLayout::Grub);
    let done = install(&plain, &mut Steps::default(), &mut quiet).expect("installed");
    assert!(done.chosen.image.ends_with("vmlinuz-6.12.0-rt"));
    let text = fs::read_to_string(&custom).expect("made");
    let default = "if [ \"${boot_once}\" != true ]; then\n\tset default=rtscope-01234567\n\tset fallback=0\nfi\n";
    assert!(text.contains(default), "{text}");
    rollback(&root, None, &mut Steps::default(), &mut quiet).expect("back");
    let alone = GRUB.split("if [ -f").next().expect("a part").to_owned();
    write(&root, "boot/grub/grub.cfg", &alone);
    let said = install(&plain, &mut Steps::default(), &mut quiet).expect_err("refused").to_string();
    assert!(said.contains("doesn't read custom.cfg") && said.contains("kernel package"), "{said}");
}

#[test]
fn with_the_boot_partition_not_mounted_nothing_is_taken_back() {
    let case = Case::new();
    let root = case.root("unmounted", BootLayout::RaspberryPi);
    let before = snapshot(&root);
    let wish = wish(&case.kernel, &root, BootLayout::RaspberryPi);
    install(&wish, &mut Steps::default(), &mut quiet).expect("installed");
    let (boot, aside) = (root.join("boot/firmware"), case.folder.path().join("aside"));
    fs::rename(&boot, &aside).expect("moved");
    fs::create_dir(&boot).expect("made");
    let said = rollback(&root, None, &mut Steps::default(), &mut quiet).expect_err("refused");
    assert!(said.to_string().contains("is it mounted"), "{said}");
    fs::remove_dir(&boot).expect("empty");
    fs::rename(&aside, &boot).expect("moved");
    rollback(&root, None, &mut Steps::default(), &mut quiet).expect("back");
    assert!(snapshot(&root) == before);
}

#[test]
fn links_of_the_system_stay_inside_it() {
    let case = Case::new();
    let root = case.root("links", BootLayout::UBoot);
    fs::create_dir_all(root.join("usr")).expect("made");
    fs::rename(root.join("lib"), root.join("usr/lib")).expect("moved");
    std::os::unix::fs::symlink("/usr/lib", root.join("lib")).expect("linked");
    let wish = wish(&case.kernel, &root, BootLayout::UBoot);
    install(&wish, &mut Steps::default(), &mut quiet).expect("installed");
    assert!(root.join("usr/lib/modules/6.12.0-rt/modules.dep").is_file());
    assert!(!Path::new("/usr/lib/modules/6.12.0-rt").exists(), "not this machine's");
    rollback(&root, None, &mut Steps::default(), &mut quiet).expect("back");
    assert!(!root.join("usr/lib/modules/6.12.0-rt").exists());
}

/// What makes the old kernel of a layout start with an initial RAM disk: file, text put after it, disk.
fn with_initrd(root: &Path, layout: BootLayout, which: usize) -> bool {
    let all: &[(&str, &str, &str)] = match layout {
        BootLayout::RaspberryPi => &[
            ("boot/firmware/config.txt", "\n[all]\nauto_initramfs=1\n", "boot/firmware/initramfs8"),
            ("boot/firmware/config.txt", "\ninitramfs i.img followkernel\n", "boot/firmware/i.img"),
        ],
        BootLayout::Grub | BootLayout::Armbian | BootLayout::SystemdBoot => &[],
        BootLayout::Extlinux => &[("boot/extlinux/extlinux.conf", "\tINITRD /boot/i\n", "boot/i")],
        BootLayout::UBoot => &[
            ("boot/uEnv.txt", "", "boot/initrd.img-6.1.0-old"),
            ("boot/uEnv.txt", "uname_r=\nbootdir=/boot\nrdfile=/boot/rd.gz\n", "boot/rd.gz"),
        ],
    };
    let Some((config, text, disk)) = all.get(which) else { return false };
    let mut whole = fs::read_to_string(root.join(config)).expect("a file") + text;
    if text.starts_with("uname_r=") {
        whole = whole.replace("uname_r=6.1.0-old\n", "").replace("uname_r=\n", "");
        write(root, "boot/Image", "old image");
    }
    fs::write(root.join(config), whole).expect("written");
    write(root, disk, "old disk");
    true
}

#[test]
fn an_old_initrd_is_forgotten_by_no_layout() {
    let case = Case::new();
    let file = case.folder.path().join("initrd-new");
    fs::write(&file, "070701 new disk").expect("written");
    for layout in LAYOUTS {
        for (which, in_place) in [(0, false), (1, false), (0, true), (1, true)] {
            let root = case.root(&format!("{layout}-{which}-{in_place}"), layout);
            if !with_initrd(&root, layout, which) {
                continue;
            }
            let (before, old) = (snapshot(&root), layout.chosen(&root).expect("sound"));
            assert!(old.initrd.is_some() && old.missing().is_none(), "{old:?}");
            let plain = Wish { in_place, ..wish(&case.kernel, &root, layout) };
            let said = install(&plain, &mut Steps::default(), &mut quiet).expect_err("refused");
            assert!(said.to_string().contains("--no-initrd"), "{said}");
            assert!(snapshot(&root) == before, "{layout} is untouched");
            let done = |initrd| {
                let wish = Wish { initrd, in_place, ..wish(&case.kernel, &root, layout) };
                let outcome = install(&wish, &mut Steps::default(), &mut quiet);
                let Ok(done) = outcome else { return None };
                let found = done.chosen.initrd.map(|path| fs::read_to_string(path).ok());
                rollback(&root, None, &mut Steps::default(), &mut quiet).expect("back");
                assert!(snapshot(&root) == before, "{layout} is as it was");
                Some(found)
            };
            let by_folder = layout == BootLayout::UBoot && which == 1;
            let given = done(Initrd::File(&file));
            assert_eq!(
                given,
                (!by_folder).then(|| Some(Some("070701 new disk".to_owned()))),
                "{layout}"
            );
            let without = done(Initrd::Without).expect("installed");
            // Scripts of boards that name a folder load what they loaded before.
            assert_eq!(without.is_some(), by_folder, "{layout} {which}: {without:?}");
        }
    }
}

#[test]
fn an_old_initrd_is_never_forgotten() {
    let case = Case::new();
    let root = case.root("initrd", BootLayout::Grub);
    let with = GRUB.replace("quiet\n}", "quiet\n\tinitrd /boot/initrd-old\n}");
    write(&root, "boot/grub/grub.cfg", &with);
    write(&root, "boot/initrd-old", "old disk");
    let plain = wish(&case.kernel, &root, BootLayout::Grub);
    let said = install(&plain, &mut Steps::default(), &mut quiet).expect_err("refused").to_string();
    assert!(said.contains("--initrd") && said.contains("--no-initrd"), "{said}");
    let file = case.folder.path().join("initrd-new");
    fs::write(&file, "070701 new disk").expect("written");
    let given = Wish { initrd: Initrd::File(&file), ..wish(&case.kernel, &root, BootLayout::Grub) };
    let done = install(&given, &mut Steps::default(), &mut quiet).expect("installed");
    assert_eq!(done.chosen.initrd, Some(root.join("boot/initrd.img-6.12.0-rt")));
    assert!(
        done.chosen.cmdline.starts_with("root=/dev/sda1 ro quiet dwc_otg"),
        "{}",
        done.chosen.cmdline
    );
}

#[test]
fn a_root_of_another_layout_is_refused_untouched() {
    let case = Case::new();
    let root = case.root("pi", BootLayout::RaspberryPi);
    let before = snapshot(&root);
    for layout in [BootLayout::Grub, BootLayout::Extlinux, BootLayout::UBoot] {
        let said = install(&wish(&case.kernel, &root, layout), &mut Steps::default(), &mut quiet);
        assert!(said.expect_err("refused").to_string().contains("is the layout right?"));
    }
    assert!(snapshot(&root) == before && !root.join("var/lib/rtscope").exists());
    assert_eq!(
        "raspbery-pi"
            .parse::<BootLayout>()
            .expect_err("no")
            .matches("did you mean \"raspberry-pi\"")
            .count(),
        1
    );
}
