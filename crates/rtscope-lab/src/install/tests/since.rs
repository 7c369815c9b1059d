//! What others did to the boot loader's files between an installation and the way back.

use super::*;

fn back_with_notes(root: &Path) -> (RolledBack, Vec<String>) {
    let mut notes = Vec::new();
    let mut report = |progress| {
        if let StepProgress::Warning(text) = progress {
            notes.push(text);
        }
    };
    let back = rollback(root, None, &mut Steps::default(), &mut report).expect("back");
    (back, notes)
}

#[test]
fn entries_of_the_owner_in_a_file_that_was_made_stay() {
    let case = Case::new();
    let root = case.root("grub", BootLayout::Grub);
    let custom = root.join("boot/grub/custom.cfg");
    fs::remove_file(&custom).expect("removed");
    let before = snapshot(&root);
    let wish = wish(&case.kernel, &root, BootLayout::Grub);
    install(&wish, &mut Steps::default(), &mut quiet).expect("installed");
    let ours = fs::read_to_string(&custom).expect("made");
    fs::write(&custom, format!("{ours}menuentry 'Rescue' {{\n}}\n")).expect("edited");
    let (_, notes) = back_with_notes(&root);
    assert!(notes.iter().any(|note| note.contains("was edited since")), "{notes:?}");
    assert_eq!(fs::read_to_string(&custom).expect("stays"), "menuentry 'Rescue' {\n}\n");
    // With nothing of the owner's in it, it goes.
    fs::remove_file(&custom).expect("removed");
    install(&wish, &mut Steps::default(), &mut quiet).expect("installed");
    let ours = fs::read_to_string(&custom).expect("made");
    fs::write(&custom, format!("{ours}\n")).expect("edited");
    let (_, notes) = back_with_notes(&root);
    assert!(notes.is_empty() && snapshot(&root) == before, "{notes:?}");
}

#[test]
fn of_a_kernel_and_parameters_above_it_only_one_goes_from_an_edited_file() {
    let case = Case::new();
    for (layout, file) in [
        (BootLayout::Grub, "boot/grub/custom.cfg"),
        (BootLayout::Extlinux, "boot/extlinux/extlinux.conf"),
        (BootLayout::UBoot, "boot/uEnv.txt"),
        (BootLayout::RaspberryPi, "boot/firmware/config.txt"),
    ] {
        let root = case.root(&format!("{layout}"), layout);
        let before = fs::read_to_string(root.join(file)).expect("a file");
        let wish = wish(&case.kernel, &root, layout);
        install(&wish, &mut Steps::default(), &mut quiet).expect("installed");
        let kernel = layout.chosen(&root).expect("sound");
        set_parameters(&root, layout, "nosmt", &mut Steps::default(), &mut quiet).expect("set");
        let text = fs::read_to_string(root.join(file)).expect("a file");
        fs::write(root.join(file), text + "# the owner's\n").expect("edited");
        remove_parameters(&root, &mut Steps::default(), &mut quiet).expect("back");
        assert_eq!(layout.chosen(&root).expect("sound"), kernel, "{layout}: the kernel stays");
        rollback(&root, None, &mut Steps::default(), &mut quiet).expect("back");
        let after = fs::read_to_string(root.join(file)).expect("a file");
        let end = if before.ends_with('\n') { "" } else { "\n" };
        assert_eq!(after, format!("{before}{end}# the owner's\n"), "{layout}");
    }
}

#[test]
fn a_menu_that_names_the_kernel_that_is_gone_is_told_of() {
    let case = Case::new();
    let root = case.root("grub", BootLayout::Grub);
    let wish = wish(&case.kernel, &root, BootLayout::Grub);
    install(&wish, &mut Steps::default(), &mut quiet).expect("installed");
    let (back, _) = back_with_notes(&root);
    assert_eq!((back.missing, back.chosen), (None, BootLayout::Grub.chosen(&root).ok()));
    install(&wish, &mut Steps::default(), &mut quiet).expect("installed");
    // `update-grub` puts the newest kernel first.
    let menu = root.join("boot/grub/grub.cfg");
    let text = fs::read_to_string(&menu).expect("a menu");
    fs::write(&menu, text.replace("vmlinuz-6.1.0-old", "vmlinuz-6.12.0-rt")).expect("written");
    let (back, _) = back_with_notes(&root);
    assert_eq!(back.missing, Some(root.join("boot/vmlinuz-6.12.0-rt")));
    // What was missing before the installation isn't the way back's doing.
    fs::write(&menu, GRUB.replace("/boot/vmlinuz-6.1.0-old", "/@/boot/vmlinuz-6.1.0-old"))
        .expect("written");
    install(&wish, &mut Steps::default(), &mut quiet).expect("installed");
    assert_eq!(back_with_notes(&root).0.missing, None);
}

#[test]
fn a_copy_that_was_made_goes_unless_the_owner_added_to_it() {
    let case = Case::new();
    let root = case.root("once", BootLayout::RaspberryPi);
    let before = snapshot(&root);
    let once = Wish { once: true, ..wish(&case.kernel, &root, BootLayout::RaspberryPi) };
    let copy = root.join("boot/firmware/tryboot.txt");
    for (added, stays) in [(&b""[..], false), (b"# caf\xe9\n", true)] {
        install(&once, &mut Steps::default(), &mut quiet).expect("installed");
        let text = fs::read_to_string(&copy).expect("made");
        let edited = text.replace("arm_64bit=1", "arm_64bit=0");
        fs::write(&copy, [edited.as_bytes(), added].concat()).expect("edited");
        back_with_notes(&root);
        assert_eq!(copy.exists(), stays);
        assert_eq!(snapshot(&root) == before, !stays);
    }
    let left = fs::read(&copy).expect("a file");
    assert!(left.ends_with(b"arm_boost=1\n# caf\xe9\n"), "in the owner's encoding");
}

#[test]
fn the_way_back_from_edited_files_can_be_broken_off_anywhere() {
    let case = Case::new();
    for (layout, file, is_new) in [
        (BootLayout::Grub, "boot/grub/custom.cfg", true),
        (BootLayout::Grub, "boot/grub/custom.cfg", false),
        (BootLayout::Extlinux, "boot/extlinux/extlinux.conf", false),
        (BootLayout::RaspberryPi, "boot/firmware/config.txt", false),
    ] {
        let edited = |name: &str| {
            let root = case.root(name, layout);
            if is_new {
                fs::remove_file(root.join(file)).expect("removed");
            }
            let wish = wish(&case.kernel, &root, layout);
            install(&wish, &mut Steps::default(), &mut quiet).expect("installed");
            let text = fs::read_to_string(root.join(file)).expect("a file");
            fs::write(root.join(file), text + "# the owner's\n").expect("edited");
            root
        };
        let root = edited(&format!("{layout}-{is_new}"));
        rollback(&root, None, &mut Steps::default(), &mut quiet).expect("back");
        let at_once = snapshot(&root);
        for n in 0.. {
            let root = edited(&format!("{layout}-{is_new}-{n}"));
            if rollback(&root, None, &mut Steps::stopping_before(n), &mut quiet).is_ok() {
                assert!(n > 5);
                break;
            }
            let again = rollback(&root, None, &mut Steps::default(), &mut quiet);
            assert!(matches!(again, Ok(_) | Err(LabError::Refused(_))), "{layout}, {n}: {again:?}");
            assert!(snapshot(&root) == at_once, "{layout}: broken off at {n}");
        }
    }
}

#[test]
fn beside_a_kernel_that_boots_once_the_default_stays() {
    let case = Case::new();
    let root = case.root("grub", BootLayout::Grub);
    let before = snapshot(&root);
    set_parameters(&root, BootLayout::Grub, "nosmt", &mut Steps::default(), &mut quiet)
        .expect("set");
    let default = BootLayout::Grub.chosen(&root).expect("sound");
    let once = Wish { once: true, ..wish(&case.kernel, &root, BootLayout::Grub) };
    let done = install(&once, &mut Steps::default(), &mut quiet).expect("installed");
    assert_eq!(done.chosen, default);
    let text = fs::read_to_string(root.join("boot/grub/custom.cfg")).expect("a file");
    assert!(
        text.contains(&format!("/boot/vmlinuz-6.12.0-rt root=/dev/sda1 ro quiet nosmt {WORDS}\n"))
    );
    rollback(&root, None, &mut Steps::default(), &mut quiet).expect("back");
    remove_parameters(&root, &mut Steps::default(), &mut quiet).expect("back");
    assert!(snapshot(&root) == before);
}

#[test]
fn two_processes_do_not_change_one_root_at_a_time() {
    let case = Case::new();
    let root = case.root("root", LAYOUTS[0]);
    let before = snapshot(&root);
    let other = FolderLock::of(&root).expect("a folder").expect("free");
    let wish = wish(&case.kernel, &root, LAYOUTS[0]);
    let refused = [
        install(&wish, &mut Steps::default(), &mut quiet).map(drop),
        rollback(&root, None, &mut Steps::default(), &mut quiet).map(drop),
        set_parameters(&root, LAYOUTS[0], "quiet", &mut Steps::default(), &mut quiet).map(drop),
        remove_parameters(&root, &mut Steps::default(), &mut quiet).map(drop),
    ];
    for outcome in refused {
        let said = outcome.expect_err("locked").to_string();
        assert!(said.starts_with("another rtscope is changing the kernels"), "{said}");
    }
    assert!(snapshot(&root) == before);
    drop(other);
    install(&wish, &mut Steps::default(), &mut quiet).expect("free again");
}
