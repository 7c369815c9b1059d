//! Kernels for other machines.

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
            assert!(said.ends_with("; --force installs it all the same"), "{said}");
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
fn a_kernel_for_emulators_is_installed_only_when_that_is_meant() {
    let case = Case::new();
    let mut kernel = case.kernel.clone();
    kernel.manifest.inputs.insert("fragment 0 lab".into(), "0".into());
    let root = case.root("machine", BootLayout::Grub);
    let plain = wish(&kernel, &root, BootLayout::Grub);
    let said = install(&plain, &mut Steps::default(), &mut quiet).expect_err("refused").to_string();
    assert!(
        said.contains("only an emulated one") && said.contains("; --force installs it"),
        "{said}"
    );
    let forced = Wish { force: true, ..plain };
    install(&forced, &mut Steps::default(), &mut quiet).expect("an emulated machine");
}
