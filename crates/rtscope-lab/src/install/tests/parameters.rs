//! Parameters in a boot entry of their own: the old entry stays, and every byte comes back.

use super::*;

const ALL: [BootLayout; 6] = [
    BootLayout::RaspberryPi,
    BootLayout::Armbian,
    BootLayout::Grub,
    BootLayout::Extlinux,
    BootLayout::UBoot,
    BootLayout::SystemdBoot,
];

fn system(name: &str, layout: BootLayout) -> (tempfile::TempDir, PathBuf) {
    let room = tempfile::tempdir().expect("a folder");
    let root = room.path().join(name);
    if layout == BootLayout::SystemdBoot {
        write(&root, "var/lib/x", "");
        write(&root, "boot/loader/loader.conf", "timeout 3\ndefault  debian-6.1*\n");
        let entry = |version: &str| {
            format!(
                "title Debian\nversion {version}\nlinux /vmlinuz-{version}\noptions root=/dev/sda2 quiet isolcpus=3\n"
            )
        };
        write(&root, "boot/loader/entries/debian-6.1.9.conf", &entry("6.1.9"));
        write(&root, "boot/loader/entries/debian-6.1.10.conf", &entry("6.1.10"));
        write(&root, "boot/loader/entries/debian-6.12.conf", &entry("6.12"));
        write(&root, "boot/vmlinuz-6.1.10", "image");
    } else if layout == BootLayout::Armbian {
        let text = "verbosity=1\nextraargs=cma=128M\nrootdev=UUID=1\nextraargs=cma=256M isolcpus=3\nfdtfile=x.dtb";
        write(&root, "var/lib/x", "");
        write(&root, "boot/armbianEnv.txt", text);
        write(&root, "boot/Image", "image");
        write(&root, "boot/uInitrd", "disk");
    } else {
        old_system(&root, layout);
    }
    (room, root)
}

fn set(root: &Path, layout: BootLayout, words: &str) -> Result<ParametersSet, LabError> {
    set_parameters(root, layout, words, &mut Steps::default(), &mut quiet)
}

fn back(root: &Path) -> Result<Option<String>, LabError> {
    remove_parameters(root, &mut Steps::default(), &mut quiet)
}

#[test]
fn every_layout_boots_the_same_kernel_with_the_words_and_goes_back() {
    for layout in ALL {
        let (_room, root) = system("root", layout);
        assert_eq!(layout_of(&root), Some(layout));
        let (before, old) = (snapshot(&root), layout.chosen(&root).expect("sound"));
        let first = set(&root, layout, "isolcpus=2-3 nohz_full=2-3").expect("set");
        assert_eq!(first.chosen.image, old.image, "{layout}");
        assert_eq!((first.chosen.initrd, first.chosen.device_tree), (old.initrd, old.device_tree));
        let line = first.chosen.cmdline;
        assert!(line.ends_with("isolcpus=2-3 nohz_full=2-3"), "{layout}: {line}");
        assert_eq!(line.matches("isolcpus=").count(), 1, "{layout}: the old value goes: {line}");
        for word in old.cmdline.split_whitespace().filter(|word| !word.starts_with("isolcpus")) {
            assert!(line.contains(word), "{layout}: {word} of the old line is in {line}");
        }
        // A second call adds to the first, and changes what it names again.
        let second = set(&root, layout, "threadirqs isolcpus=3").expect("set");
        assert_eq!(second.words, "nohz_full=2-3 threadirqs isolcpus=3");
        assert!(second.chosen.cmdline.ends_with(&second.words), "{layout}");
        assert_eq!(parameters(&root).expect("readable"), Some(second.words.clone()));
        assert_eq!(back(&root).expect("back"), Some(second.words));
        assert!(snapshot(&root) == before, "{layout}: every byte comes back");
        assert!(!root.join("var/lib/rtscope").exists(), "nothing of ours stays");
        assert_eq!(back(&root).expect("nothing to do"), None);
    }
}

#[test]
fn the_old_entry_stays_in_its_file() {
    for (layout, file, kept) in [
        (BootLayout::Extlinux, "boot/extlinux/extlinux.conf", "LABEL old\n"),
        (BootLayout::SystemdBoot, "boot/loader/entries/debian-6.1.10.conf", "isolcpus=3"),
        (BootLayout::RaspberryPi, "boot/firmware/cmdline.txt", "rootwait\n"),
        (BootLayout::Grub, "boot/grub/grub.cfg", "menuentry 'Old'"),
        (BootLayout::UBoot, "boot/uEnv.txt", "cmdline=coherent_pool=1M quiet\n"),
        (BootLayout::Armbian, "boot/armbianEnv.txt", "extraargs=cma=256M isolcpus=3\n"),
    ] {
        let (_room, root) = system("root", layout);
        set(&root, layout, "isolcpus=1").expect("set");
        let text = fs::read_to_string(root.join(file)).expect("a file");
        assert!(text.contains(kept), "{layout}: {text}");
    }
}

/// Does something to a system of each layout that is stopped before its first step, its second one and so on, until it
/// gets to its end; each time, what was set can be taken back. `of` says whether it got there.
fn stopped_before_each_step(of: impl Fn(BootLayout, usize, &Path) -> bool) {
    for layout in ALL {
        for n in 0.. {
            let (_room, root) = system("root", layout);
            let before = snapshot(&root);
            let done = of(layout, n, &root);
            back(&root).expect("back");
            assert!(snapshot(&root) == before, "{layout}, step {n}");
            if done {
                assert!(n > 5);
                break;
            }
        }
    }
}

#[test]
fn stopped_before_any_step_the_old_line_or_the_new_one_boots() {
    stopped_before_each_step(|layout, n, root| {
        let old = layout.chosen(root).expect("sound");
        let mut steps = Steps::stopping_before(n);
        let outcome = set_parameters(root, layout, "isolcpus=1", &mut steps, &mut quiet);
        let now = layout.chosen(root).expect("still sound");
        assert_eq!(now.image, old.image, "{layout}, step {n}");
        let is_new = now.cmdline.ends_with("isolcpus=1");
        assert!(is_new || now.cmdline == old.cmdline, "{layout}, step {n}: {}", now.cmdline);
        assert!(outcome.is_err() || is_new);
        outcome.is_ok()
    });
}

#[test]
fn kernels_and_parameters_go_in_the_other_order() {
    let case = Case::new();
    for layout in LAYOUTS {
        let root = case.root(&format!("{layout}"), layout);
        let before = snapshot(&root);
        set(&root, layout, "isolcpus=1").expect("set");
        let refused = rollback(&root, None, &mut Steps::default(), &mut quiet).expect_err("ours");
        assert!(refused.to_string().contains("tune restore --boot"), "{refused}");
        let wish = wish(&case.kernel, &root, layout);
        install(&wish, &mut Steps::default(), &mut quiet).expect("a kernel on top");
        let line = layout.chosen(&root).expect("sound").cmdline;
        let kept = line.split_whitespace().filter(|word| *word == "isolcpus=1").count();
        assert_eq!(kept, 1, "{layout}: the new kernel keeps the parameters: {line}");
        let refused = back(&root).expect_err("a kernel is on top").to_string();
        assert!(refused.contains("rtscope kernel rollback"), "{refused}");
        // The entry of the new kernel gets parameters of its own.
        let on_top = set(&root, layout, "nohz_full=1").expect("set");
        assert_eq!(on_top.words, "nohz_full=1");
        assert!(on_top.chosen.cmdline.contains(WORDS), "{layout}: {}", on_top.chosen.cmdline);
        assert!(on_top.chosen.cmdline.ends_with("nohz_full=1"), "{layout}");
        if layout == BootLayout::Grub {
            let menu = fs::read_to_string(root.join("boot/grub/custom.cfg")).expect("a menu");
            let title = "menuentry 'Linux 6.12.0-rt (rtscope parameters)'";
            assert!(menu.contains(title), "{menu}");
        }
        back(&root).expect("the upper ones");
        rollback(&root, None, &mut Steps::default(), &mut quiet).expect("the kernel");
        back(&root).expect("the lower ones");
        assert!(snapshot(&root) == before, "{layout}");
    }
}

#[test]
fn words_that_would_break_a_file_are_refused() {
    let (_room, root) = system("root", BootLayout::Grub);
    let before = snapshot(&root);
    for words in
        ["", " ", "a\nb", "x=$(reboot)", "a='b'", "a;b", "a#b", "{", &"x".repeat(2000), "ä"]
    {
        let refused = set(&root, BootLayout::Grub, words).expect_err("refused");
        assert!(refused.is_usage(), "{words:?}: {refused}");
    }
    write(&root, "boot/grub/grub.cfg", &GRUB.replace("custom.cfg", "other.cfg"));
    let refused =
        set(&root, BootLayout::Grub, "isolcpus=1").expect_err("no custom.cfg").to_string();
    assert!(refused.contains("GRUB_CMDLINE_LINUX_DEFAULT"), "{refused}");
    write(&root, "boot/grub/grub.cfg", GRUB);
    assert!(snapshot(&root) == before);
    assert_eq!(layout_of(root.parent().expect("above")), None);
}

#[test]
fn an_entry_that_firmware_variables_choose_is_not_guessed() {
    let (_room, root) = system("root", BootLayout::SystemdBoot);
    write(&root, "boot/loader/loader.conf", "default @saved\n");
    let refused =
        set(&root, BootLayout::SystemdBoot, "isolcpus=1").expect_err("unknown").to_string();
    assert!(refused.contains("default @saved"), "{refused}");
    // Without a default, the newest version is taken.
    write(&root, "boot/loader/loader.conf", "timeout 1\n");
    write(&root, "boot/vmlinuz-6.12", "image");
    let done = set(&root, BootLayout::SystemdBoot, "isolcpus=1").expect("set");
    assert!(done.chosen.image.ends_with("vmlinuz-6.12"), "{:?}", done.chosen);
}

/// What Debian's u-boot-update 4.2.2 writes with these parameters.
fn generated(parameters: &str) -> String {
    format!(
        "## IMPORTANT WARNING\n## Do not edit this file manually, use: u-boot-update\n\ndefault l0\ntimeout 50\n\n\
         label l0\n\tmenu label Debian 6.1\n\tlinux /boot/vmlinuz-6.1\n\tappend root=/dev/sda2 {parameters}\n"
    )
}

#[test]
fn parameters_outlive_what_u_boot_update_writes() {
    const EXTLINUX: &str = "boot/extlinux/extlinux.conf";
    const OWN: &str = "etc/u-boot-menu/conf.d/zz-rtscope.conf";
    for has_folder in [true, false] {
        let (_room, root) = system("root", BootLayout::Extlinux);
        write(&root, EXTLINUX, &generated("ro quiet isolcpus=3"));
        write(&root, "boot/vmlinuz-6.1", "image");
        write(&root, "etc/default/u-boot", "#U_BOOT_TIMEOUT=\"50\"\n");
        let reads = if has_folder { "for file in /etc/u-boot-menu/conf.d/*.conf" } else { "" };
        write(&root, "usr/sbin/u-boot-update", &format!("#!/bin/sh\n{reads}\n"));
        let before = snapshot(&root);
        set(&root, BootLayout::Extlinux, "isolcpus=2").expect("set");
        let second = set(&root, BootLayout::Extlinux, "nohz_full=2").expect("set");
        assert!(second.chosen.cmdline.ends_with("ro quiet isolcpus=2 nohz_full=2"));
        let file = if has_folder { OWN } else { "etc/default/u-boot" };
        let settings = fs::read_to_string(root.join(file)).expect("settings");
        let line = "U_BOOT_PARAMETERS=\"ro quiet isolcpus=2 nohz_full=2\"\nU_BOOT_ROOT=\"root=/dev/sda2\"\n";
        assert_eq!(settings.matches("U_BOOT_PARAMETERS=").count(), 1, "{settings}");
        assert!(settings.contains(line), "{settings}");
        back(&root).expect("back");
        assert!(snapshot(&root) == before, "every byte comes back");
        // A new kernel came meanwhile: its entry has the words, and keeps them until the next run.
        set(&root, BootLayout::Extlinux, "isolcpus=2").expect("set");
        write(&root, EXTLINUX, &generated("ro quiet isolcpus=2"));
        let mut said = Vec::new();
        let mut report = |progress| {
            if let crate::progress::StepProgress::Warning(text) = progress {
                said.push(text);
            }
        };
        remove_parameters(&root, &mut Steps::default(), &mut report).expect("back");
        assert!(said.iter().any(|text| text.contains("u-boot-update wrote")), "{said:?}");
        let settings = fs::read_to_string(root.join(file)).unwrap_or_default();
        assert!(!settings.contains("isolcpus"), "{settings}");
    }
}

/// The boot loader's files, without the journals.
fn boot_files(root: &Path) -> Snapshot {
    snapshot(&root.join("boot"))
}

/// The earlier entry went before the new one was written: killed in between, the next boot was without either.
#[test]
fn stopped_before_any_step_of_a_second_call_the_earlier_words_or_both_boot() {
    let at_once = |layout: BootLayout| {
        let (_room, root) = system("root", layout);
        set(&root, layout, "isolcpus=1 nosmt").expect("set");
        boot_files(&root)
    };
    let at_once: Vec<Snapshot> = ALL.into_iter().map(at_once).collect();
    stopped_before_each_step(|layout, n, root| {
        let of_one_call = ALL.iter().zip(&at_once).find(|(one, _)| **one == layout);
        let of_one_call = of_one_call.expect("each was made").1;
        set(root, layout, "isolcpus=1").expect("set");
        let mut steps = Steps::stopping_before(n);
        let outcome = set_parameters(root, layout, "nosmt", &mut steps, &mut quiet);
        let line = layout.chosen(root).expect("still sound").cmdline;
        let is_new = line.ends_with("isolcpus=1 nosmt");
        assert!(is_new || line.ends_with("isolcpus=1"), "{layout}, step {n}: {line}");
        let done = outcome.is_ok();
        let words = if done { "isolcpus=1 nosmt" } else { "isolcpus=1" };
        assert_eq!(parameters(root).expect("readable").as_deref(), Some(words));
        if done {
            assert!(is_new);
        } else {
            // A third call finds the earlier words, and makes what one call would have.
            let third = set(root, layout, "nosmt").expect("set");
            assert_eq!(third.words, "isolcpus=1 nosmt", "{layout}, step {n}");
        }
        assert!(boot_files(root) == *of_one_call, "{layout}, step {n}: as of one call");
        done
    });
}

#[test]
fn stopped_while_they_go_back_the_words_go_at_the_second_try() {
    stopped_before_each_step(|layout, n, root| {
        set(root, layout, "isolcpus=1").expect("set");
        set(root, layout, "nosmt").expect("set");
        let removed = remove_parameters(root, &mut Steps::stopping_before(n), &mut quiet);
        layout.chosen(root).expect("still sound");
        removed.is_ok()
    });
}

#[test]
fn parameters_that_cannot_be_written_leave_those_before() {
    let layout = BootLayout::RaspberryPi;
    let (_room, root) = system("root", layout);
    let before = snapshot(&root);
    set(&root, layout, "isolcpus=1").expect("set");
    // Written last, after the line of words: that one goes back.
    let in_the_way = root.join("boot/firmware/config.txt.rtscope-part/file");
    let mut report = |_: StepProgress| {
        fs::create_dir_all(in_the_way.parent().expect("a folder")).expect("made");
        fs::write(&in_the_way, "of somebody else").expect("written");
    };
    let outcome = set_parameters(&root, layout, "nosmt", &mut Steps::default(), &mut report);
    let error = outcome.expect_err("it is in the way").to_string();
    assert!(error.contains("config.txt.rtscope-part"), "{error}");
    assert_eq!(parameters(&root).expect("readable").as_deref(), Some("isolcpus=1"));
    let line = layout.chosen(&root).expect("sound").cmdline;
    assert!(line.ends_with(" isolcpus=1"), "{line}");
    back(&root).expect("back");
    assert!(snapshot(&root) == before);
}

#[test]
fn an_updated_kernel_gets_the_words_of_both_calls() {
    let (_room, root) = system("root", BootLayout::Grub);
    set(&root, BootLayout::Grub, "isolcpus=1").expect("set");
    let old = BootLayout::Grub.chosen(&root).expect("sound").image;
    let name = old.file_name().expect("a name").to_string_lossy().into_owned();
    let path = root.join("boot/grub/grub.cfg");
    let menu = fs::read_to_string(&path).expect("a menu").replace(&name, "vmlinuz-newer");
    fs::write(&path, menu).expect("updated");
    write(&root, "boot/vmlinuz-newer", "image");
    let chosen = set(&root, BootLayout::Grub, "nosmt").expect("set").chosen;
    assert!(chosen.image.ends_with("vmlinuz-newer"), "{chosen:?}");
    assert!(chosen.cmdline.ends_with("isolcpus=1 nosmt"), "{chosen:?}");
}

#[test]
fn what_no_boot_loader_would_read_leaves_the_parameters_before() {
    let (_room, root) = system("root", BootLayout::Grub);
    set(&root, BootLayout::Grub, "isolcpus=1").expect("set");
    write(&root, "boot/grub/grub.cfg", &GRUB.replace("custom.cfg", "other.cfg"));
    assert!(set(&root, BootLayout::Grub, "nosmt").is_err());
    assert_eq!(parameters(&root).expect("readable").as_deref(), Some("isolcpus=1"));
}
