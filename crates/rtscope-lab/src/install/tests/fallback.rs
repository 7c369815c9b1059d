//! What a Raspberry Pi boots when its firmware ignores the new kernel's folder.

use super::*;

#[test]
fn without_its_folder_the_firmware_boots_the_old_kernel() {
    let case = Case::new();
    let layout = BootLayout::RaspberryPi;
    let file = case.folder.path().join("initrd-new");
    fs::write(&file, "070701 new disk").expect("written");
    // What the old configuration says, and the files that it boots with.
    let olds: [(&str, &[&str]); 4] = [
        ("", &[]),
        ("kernel=vmlinuz-own\n", &["vmlinuz-own"]),
        ("auto_initramfs=1\n", &["kernel_2712.img", "initramfs_2712", "initramfs8"]),
        ("initramfs initrd-old followkernel\n", &["initrd-old"]),
    ];
    for (number, (text, files)) in olds.into_iter().enumerate() {
        let root = case.root(&format!("fallback-{number}"), layout);
        let boot = root.join("boot/firmware");
        for name in files {
            write(&boot, name, "old");
        }
        let config = fs::read_to_string(boot.join("config.txt")).expect("a file");
        fs::write(boot.join("config.txt"), format!("{config}\n[all]\n{text}")).expect("written");
        let (before, old) = (snapshot(&root), layout.chosen(&root).expect("sound"));
        for initrd in [Initrd::File(&file), Initrd::Without] {
            let wish = Wish { initrd, ..wish(&case.kernel, &root, layout) };
            let done = install(&wish, &mut Steps::default(), &mut quiet).expect("installed");
            let folder = boot.join("rtscope-01234567");
            assert!(done.chosen.image.starts_with(&folder), "{:?}", done.chosen);
            assert_eq!(done.chosen.initrd.is_some(), initrd != Initrd::Without, "{text}");
            // A board whose device tree isn't there: the prefix is ignored.
            for name in ["bcm2711-rpi-4-b.dtb", "bcm2711-other.dtb"] {
                let (tree, aside) = (folder.join("bcm2711-rpi-4-b.dtb"), folder.join(name));
                fs::rename(&tree, &aside).expect("renamed");
                let found = layout.chosen(&root).expect("sound");
                if aside == tree {
                    assert_eq!(found, done.chosen);
                } else if initrd == Initrd::Without || old.initrd.is_some() {
                    assert_eq!(found, old, "{text}");
                } else {
                    assert_eq!(found.image, old.image, "{text}");
                }
            }
            rollback(&root, None, &mut Steps::default(), &mut quiet).expect("back");
            assert!(snapshot(&root) == before, "{text}");
        }
    }
}

#[test]
fn a_board_that_the_new_kernel_does_not_know_is_named() {
    let case = Case::new();
    let layout = BootLayout::RaspberryPi;
    let file = case.folder.path().join("initrd-new");
    fs::write(&file, "070701 new disk").expect("written");
    let root = case.root("boards", layout);
    let boot = root.join("boot/firmware");
    write(&boot, "bcm2709-rpi-2-b.dtb", "no board of 64 bits");
    let plain = wish(&case.kernel, &root, layout);
    install(&plain, &mut Steps::default(), &mut quiet).expect("installed");
    rollback(&root, None, &mut Steps::default(), &mut quiet).expect("back");
    write(&boot, "bcm2712-rpi-5-b.dtb", "old tree");
    let said = install(&plain, &mut Steps::default(), &mut quiet).expect_err("refused").to_string();
    assert!(said.contains("no device tree bcm2712-rpi-5-b.dtb, which") && !said.contains("2709"));
    let forced = Wish { force: true, ..plain };
    install(&forced, &mut Steps::default(), &mut quiet).expect("installed");
    rollback(&root, None, &mut Steps::default(), &mut quiet).expect("back");

    for name in ["own/kernel8.img", "own/bcm2711-rpi-4-b.dtb", "own/initramfs8"] {
        write(&boot, name, "old");
    }
    let config = fs::read_to_string(boot.join("config.txt")).expect("a file");
    let config = config + "\n[all]\nauto_initramfs=1\nos_prefix=own/\n";
    fs::write(boot.join("config.txt"), config).expect("written");
    let own =
        |force| Wish { force, initrd: Initrd::File(&file), ..wish(&case.kernel, &root, layout) };
    let said = install(&own(false), &mut Steps::default(), &mut quiet).expect_err("refused");
    assert!(said.to_string().contains("os_prefix of its own"), "{said}");
    let done = install(&own(true), &mut Steps::default(), &mut quiet).expect("installed").chosen;
    assert!(done.initrd.is_some_and(|path| path.ends_with("rtscope-01234567/initramfs8")));

    // A prefix without a slash is no folder: it stands before each name.
    let root = case.root("prefix", layout);
    let boot = root.join("boot/firmware");
    for name in ["alt-kernel8.img", "alt-bcm2711-rpi-4-b.dtb", "alt-initramfs8"] {
        write(&boot, name, "old");
    }
    let config = fs::read_to_string(boot.join("config.txt")).expect("a file");
    let config = config + "\n[all]\nauto_initramfs=1\nos_prefix=alt-\n";
    fs::write(boot.join("config.txt"), config).expect("written");
    let alt =
        |force| Wish { force, initrd: Initrd::File(&file), ..wish(&case.kernel, &root, layout) };
    let said = install(&alt(false), &mut Steps::default(), &mut quiet).expect_err("refused");
    assert!(said.to_string().contains("alt-kernel8.img) has an os_prefix of its own"), "{said}");
    let done = install(&alt(true), &mut Steps::default(), &mut quiet).expect("installed").chosen;
    assert!(done.initrd.is_some_and(|path| path.ends_with("rtscope-01234567/initramfs8")));

    let root = case.root("narrow", layout);
    let boot = root.join("boot/firmware");
    fs::rename(boot.join("kernel8.img"), boot.join("kernel7l.img")).expect("renamed");
    let plain = wish(&case.kernel, &root, layout);
    let said = install(&plain, &mut Steps::default(), &mut quiet).expect_err("refused").to_string();
    assert!(said.contains("kernel7l.img") && said.contains("fall back"), "{said}");
    let forced = Wish { force: true, ..wish(&case.kernel, &root, layout) };
    let done = install(&forced, &mut Steps::default(), &mut quiet).expect("installed");
    assert!(done.chosen.image.ends_with("rtscope-01234567/kernel.img"), "{:?}", done.chosen);
}
