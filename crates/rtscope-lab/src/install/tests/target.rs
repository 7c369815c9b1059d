//! Kernels for other machines.

use std::io::Write;

use flate2::write::GzEncoder;

use super::*;

/// The head of an ELF file for a machine.
fn program(machine: u8) -> Vec<u8> {
    let mut head = b"\x7fELF\x02\x01\x01".to_vec();
    head.resize(18, 0);
    head.extend([machine, 0]);
    head.resize(64, 0);
    head
}

#[test]
fn a_kernel_for_another_machine_is_refused_untouched() {
    let case = Case::new();
    let mut kernel = case.kernel.clone();
    let mut tried = |root: &Path, layout: BootLayout, arch: &str| {
        kernel.manifest.arch = arch.to_owned();
        let before = snapshot(root);
        let plain = wish(&kernel, root, layout);
        let outcome = install(&plain, &mut Steps::default(), &mut quiet);
        if let Err(error) = &outcome {
            assert!(snapshot(root) == before && error.is_usage(), "{error}");
            let said = error.to_string();
            assert!(said.ends_with("; use --force to install it anyway"), "{said}");
            let forced = Wish { force: true, ..plain };
            install(&forced, &mut Steps::default(), &mut quiet).expect("forced");
        }
        rollback(root, None, &mut Steps::default(), &mut quiet).expect("back");
        outcome.map(drop).map_err(|error| error.to_string())
    };
    let pi = case.root("pi", BootLayout::RaspberryPi);
    let said = tried(&pi, BootLayout::RaspberryPi, "x86_64").expect_err("refused");
    assert!(
        said.starts_with("small-rt is a kernel for x86_64, and no Raspberry Pi runs"),
        "{said}"
    );

    // Its programs say what it runs; a 64-bit kernel runs those of 32 bits.
    let kinds = [(62, "x86_64"), (3, "x86_64"), (183, "arm64"), (40, "arm arm64"), (243, "riscv")];
    for (machine, takes) in kinds {
        let root = case.root(&format!("machine-{machine}"), BootLayout::Extlinux);
        fs::create_dir_all(root.join("usr/bin")).expect("made");
        fs::write(root.join("usr/bin/bash"), program(machine)).expect("written");
        for arch in ["x86_64", "arm64", "arm", "riscv"] {
            let outcome = tried(&root, BootLayout::Extlinux, arch);
            let takes = takes.split(' ').any(|taken| taken == arch);
            assert_eq!(outcome.is_ok(), takes, "{machine} {arch}: {outcome:?}");
        }
    }

    // Where there are no programs, the old kernel's image does.
    for (at, mark, arch) in [(0x202, &b"HdrS"[..], "x86_64"), (0x38, b"ARM\x64", "arm64")] {
        let root = case.root(&format!("image-{arch}"), BootLayout::Extlinux);
        let mut image = vec![0; 0x1000];
        image[at..at + mark.len()].copy_from_slice(mark);
        fs::write(root.join("boot/Image-old"), image).expect("written");
        assert_eq!(tried(&root, BootLayout::Extlinux, arch), Ok(()));
        let said = tried(&root, BootLayout::Extlinux, "riscv").expect_err("refused");
        assert!(said.contains("the kernel that boots now (") && said.contains(arch), "{said}");
    }
}

#[test]
fn a_file_system_that_only_an_initrd_finds_is_not_left_without() {
    let case = Case::new();
    for (disk, is_found) in [
        ("UUID=1234", false),
        ("LABEL=root", false),
        ("/dev/mapper/vg-root", false),
        ("/dev/vg0/root", false),
        ("/dev/md0", false),
        ("PARTUUID=7-02", true),
        ("/dev/mmcblk0p2", true),
    ] {
        let root = case.root(&disk.replace('/', "-"), BootLayout::Grub);
        let with = GRUB
            .replace("/dev/sda1", disk)
            .replace("quiet\n}", "quiet\n\tinitrd /boot/initrd-old\n}");
        write(&root, "boot/grub/grub.cfg", &with);
        write(&root, "boot/initrd-old", "old disk");
        let before = snapshot(&root);
        let without =
            Wish { initrd: Initrd::Without, ..wish(&case.kernel, &root, BootLayout::Grub) };
        let outcome = install(&without, &mut Steps::default(), &mut quiet);
        assert_eq!(outcome.is_ok(), is_found, "{disk}: {outcome:?}");
        if let Err(error) = outcome {
            assert!(error.to_string().contains(&format!("root={disk}")), "{error}");
            assert!(snapshot(&root) == before);
            let forced = Wish { force: true, ..without };
            install(&forced, &mut Steps::default(), &mut quiet).expect("forced");
        }
    }
}

#[test]
fn u_boot_gets_an_image_packed_only_where_it_had_one() {
    let case = Case::new();
    let image = fs::read(case.kernel.vmlinuz()).expect("an image");
    let mut packed = GzEncoder::new(Vec::new(), flate2::Compression::fast());
    packed.write_all(&image).expect("packed");
    let packed = packed.finish().expect("packed");
    fs::write(case.kernel.vmlinuz(), &packed).expect("written");
    for (layout, old, packs) in [
        (BootLayout::Extlinux, "boot/Image-old", false),
        (BootLayout::Extlinux, "boot/Image-old", true),
        (BootLayout::UBoot, "boot/vmlinuz-6.1.0-old", false),
        (BootLayout::UBoot, "boot/vmlinuz-6.1.0-old", true),
    ] {
        let root = case.root(&format!("{layout}-{packs}"), layout);
        if packs {
            fs::write(root.join(old), &packed).expect("written");
        }
        let plain = wish(&case.kernel, &root, layout);
        let done = install(&plain, &mut Steps::default(), &mut quiet).expect("installed");
        let found = fs::read(done.chosen.image).expect("an image");
        assert!(found == if packs { &packed } else { &image }[..], "{layout} {packs}");
    }
}

#[test]
fn a_pi_whose_command_line_has_another_name_gets_it_under_that_name() {
    let case = Case::new();
    let layout = BootLayout::RaspberryPi;
    let root = case.root("named", layout);
    let config = root.join("boot/firmware/config.txt");
    let text = fs::read_to_string(&config).expect("a file") + "\n[all]\ncmdline=mine.txt\n";
    fs::write(&config, text).expect("written");
    write(&root, "boot/firmware/mine.txt", "root=PARTUUID=8-02 rootwait\n");
    for in_place in [false, true] {
        let plain = Wish { in_place, ..wish(&case.kernel, &root, layout) };
        let done = install(&plain, &mut Steps::default(), &mut quiet).expect("installed");
        let line = done.chosen.cmdline;
        assert!(line.starts_with("root=PARTUUID=8-02 rootwait ") && line.contains(WORDS), "{line}");
        rollback(&root, None, &mut Steps::default(), &mut quiet).expect("back");
    }
}

#[test]
fn words_of_the_wish_count_more_than_parameters_that_were_set() {
    let case = Case::new();
    let root = case.root("grub", BootLayout::Grub);
    let words = "isolcpus=1 nosmt";
    set_parameters(&root, BootLayout::Grub, words, &mut Steps::default(), &mut quiet).expect("set");
    let own = Wish { words: "isolcpus=3", ..wish(&case.kernel, &root, BootLayout::Grub) };
    let done = install(&own, &mut Steps::default(), &mut quiet).expect("installed");
    assert_eq!(done.chosen.cmdline, "root=/dev/sda1 ro quiet nosmt isolcpus=3");
}

#[test]
fn a_board_that_names_a_folder_gets_words_in_the_variable_that_it_has() {
    let case = Case::new();
    let root = case.root("folder", BootLayout::UBoot);
    write(&root, "boot/uEnv.txt", "bootdir=/boot\nname_kern=gone\nextraargs=quiet\n");
    let plain = wish(&case.kernel, &root, BootLayout::UBoot);
    let refused = install(&plain, &mut Steps::default(), &mut quiet).expect_err("refused");
    assert!(refused.to_string().contains("another partition"), "{refused}");
    write(&root, "boot/Image", "old image");
    write(&root, "boot/uEnv.txt", "bootdir=/boot\nextraargs=quiet\n");
    let plain = wish(&case.kernel, &root, BootLayout::UBoot);
    install(&plain, &mut Steps::default(), &mut quiet).expect("installed");
    let text = fs::read_to_string(root.join("boot/uEnv.txt")).expect("a file");
    assert!(text.contains(&format!("extraargs=quiet {WORDS}\n")), "{text}");
    assert!(!text.contains("optargs"), "{text}");
}

#[test]
fn words_that_a_boot_loader_would_take_for_its_own_are_refused() {
    let case = Case::new();
    let root = case.root("words", BootLayout::Grub);
    let before = snapshot(&root);
    for words in ["a\nset default=0", "x=$y", "init='/bin/sh'", "a;reboot", "a{b"] {
        let broken = Wish { words, ..wish(&case.kernel, &root, BootLayout::Grub) };
        let refused = install(&broken, &mut Steps::default(), &mut quiet).expect_err("refused");
        assert!(refused.is_usage() && snapshot(&root) == before, "{refused}");
    }
}

#[test]
fn a_kernel_for_emulators_is_installed_only_when_that_is_meant() {
    let case = Case::new();
    let mut kernel = case.kernel.clone();
    kernel.manifest.inputs.insert("fragment 0 lab".into(), "0".into());
    let root = case.root("machine", BootLayout::Grub);
    let plain = wish(&kernel, &root, BootLayout::Grub);
    let said = install(&plain, &mut Steps::default(), &mut quiet).expect_err("refused").to_string();
    assert!(
        said.contains("only an emulated one") && said.contains("; use --force to install it"),
        "{said}"
    );
    let forced = Wish { force: true, ..plain };
    install(&forced, &mut Steps::default(), &mut quiet).expect("an emulated machine");
}
