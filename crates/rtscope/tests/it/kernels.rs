//! `rtscope kernel` on a small tree that is made as a kernel is: interrupted, without space, without tools.

use std::{
    fs,
    os::unix::fs::symlink,
    path::PathBuf,
    process::{Child, Command, Output, Stdio},
    time::Duration,
};

use rtscope_testing::executable;

use crate::support::{
    folder, kill, marked_seconds, output_of, processes_with, program, root_or_skip, rtscope, skip,
    text, wait_for,
};

/// A make below make below a shell, as in a kernel: each step waits for as long as its file `slow` says.
/// A compiler that is stopped leaves half an object, as real ones do.
const MAKEFILE: &str = "VERSION = 9\nPATCHLEVEL = 1\nSUBLEVEL = 2\n\
    .PHONY: tinyconfig olddefconfig bzImage inner kernelrelease\n\
    SLOW = sh -c 'sleep $$(cat ../slow-$@ 2>/dev/null || echo 0); true'\n\
    tinyconfig:\n\t@$(SLOW)\n\t@echo CONFIG_64BIT=y > $(O)/.config\n\
    olddefconfig:\n\t@true\n\
    kernelrelease:\n\t@echo 9.1.2-small\n\
    bzImage:\n\t@set -e; $(MAKE) O=$(O) inner\n\
    inner: $(O)/a.o $(O)/b.o\n\t@mkdir -p $(O)/arch/x86/boot $(O)/include/generated\n\
    \t@$(SLOW)\n\
    \t@cat $^ > $(O)/arch/x86/boot/bzImage\n\t@touch $(O)/System.map $(O)/vmlinux\n\
    $(O)/%.o: %.c\n\t@echo '  CC      $*.o'\n\t@cp $< $@\n";

const SPEC: &str = "name = 'small'\ntitle = 'Small'\narch = 'x86_64'\nbase = 'tinyconfig'\n\
    modules = false\n[source]\nkind = 'folder'\npath = 'tree'\n";

struct Small(tempfile::TempDir);

impl Small {
    /// None where the tools that every kernel needs are missing.
    fn new(test: &str) -> Option<Small> {
        let needed = ["make", "gcc", "bc", "readelf", "flex", "bison"];
        if needed.iter().any(|name| program(name).is_none()) {
            skip(test, "needs the tools that build kernels");
            return None;
        }
        let small = Small(folder());
        fs::create_dir(small.path("tree")).expect("a folder");
        for (name, text) in [
            ("small.toml", SPEC),
            ("tree/Makefile", MAKEFILE),
            ("tree/Kbuild", ""),
            ("tree/Kconfig", ""),
            ("tree/a.c", "a"),
            ("tree/b.c", "b"),
        ] {
            fs::write(small.path(name), text).expect("written");
        }
        Some(small)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn start(&self) -> Child {
        rtscope(self.0.path())
            .args(["kernel", "build", "small.toml", "--cache", "cache"])
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("starts")
    }

    fn run(&self, words: &[&str]) -> Output {
        output_of(rtscope(self.0.path()).args(words).args(["--cache", "cache"]))
    }

    fn kernels(&self) -> usize {
        fs::read_dir(self.path("cache/kernels")).map_or(0, Iterator::count)
    }
}

fn printed(output: &Output) -> String {
    text(&output.stdout) + &text(&output.stderr)
}

#[test]
fn no_make_outlives_an_interrupted_build_and_the_next_one_goes_on() {
    let Some(small) = Small::new("no_make_outlives_an_interrupted_build_and_the_next_one_goes_on")
    else {
        return;
    };
    let limit = Duration::from_secs(60);
    for ((stage, signal), number) in ["tinyconfig", "inner"]
        .iter()
        .flat_map(|s| ["INT", "TERM", "KILL"].map(|k| (s, k)))
        .zip(0..)
    {
        // A name that only this try's processes carry.
        let marker = marked_seconds(600 + number);
        let slow = small.path(&format!("slow-{stage}"));
        fs::write(&slow, &marker).expect("written");
        let child = small.start();
        let sleeps = format!("sleep {marker}");
        wait_for("the step", limit, || !processes_with(&sleeps).is_empty());
        // The source's folder is on the command lines of make and all below it.
        let tree = fs::canonicalize(small.path("tree")).expect("there").display().to_string();
        let below = || processes_with(&sleeps).len() + processes_with(&tree).len();
        assert!(below() > 1, "make runs");
        kill(child.id(), signal);
        let output = child.wait_with_output().expect("ends");
        wait_for("make to end", limit, || below() == 0);
        if signal != "KILL" {
            let said = printed(&output);
            assert_eq!(output.status.code(), Some(130), "{stage} {signal}: {said}");
            assert!(said.contains("interrupted; finished steps are kept"), "{said}");
        }
        assert_eq!(small.kernels(), 0, "nothing half-built is kept");
        fs::remove_file(&slow).expect("removed");
    }
    let built = small.run(&["kernel", "build", "small.toml"]);
    assert!(built.status.success(), "{}", printed(&built));
    assert_eq!(small.kernels(), 1);
    // The objects were made by the first build that came so far.
    let objects = fs::read_dir(small.path("cache/build")).expect("there").flatten().next();
    let log = objects.expect("objects").path().join("rtscope-build.log");
    let log = fs::read_to_string(log).expect("a log");
    assert!(!log.contains("  CC "), "they are there already: {log}");
}

/// Modules as a kernel installs them: with their dependencies, and a link to where they were built.
const MODULES: &str = "modules:\n\t@echo '  CC [M]  a.o'\n\
    modules_install:\n\t@mkdir -p $(INSTALL_MOD_PATH)/lib/modules/9.1.2-small/kernel\n\
    \t@cp a.c $(INSTALL_MOD_PATH)/lib/modules/9.1.2-small/kernel/a.ko\n\
    \t@echo kernel/a.ko: > $(INSTALL_MOD_PATH)/lib/modules/9.1.2-small/modules.dep\n\
    \t@ln -s $(O) $(INSTALL_MOD_PATH)/lib/modules/9.1.2-small/build\n";

const GRUB: &str = "menuentry 'Old' {\n\tlinux\t/boot/vmlinuz-old ro\n}\nsource custom.cfg\n";

#[test]
fn a_kernel_with_modules_is_built_and_installed_with_their_dependencies() {
    let test = "a_kernel_with_modules_is_built_and_installed_with_their_dependencies";
    let Some(small) = Small::new(test) else { return };
    let makefile =
        MAKEFILE.replace("CONFIG_64BIT=y >", "CONFIG_64BIT=y CONFIG_MODULES=y | tr ' ' '\\n' >");
    fs::write(small.path("tree/Makefile"), makefile + MODULES).expect("written");
    fs::write(small.path("small.toml"), SPEC.replace("modules = false", "modules = true"))
        .expect("written");
    let built = small.run(&["kernel", "build", "small.toml"]);
    assert!(built.status.success(), "{}", printed(&built));
    fs::create_dir_all(small.path("root/boot/grub")).expect("a folder");
    fs::write(small.path("root/boot/grub/grub.cfg"), GRUB).expect("written");
    fs::write(small.path("root/boot/vmlinuz-old"), "old").expect("written");
    let words = ["kernel", "install", "small", "--root", "root", "--layout", "grub"];
    let installed = small.run(&words);
    assert!(installed.status.success(), "{}", printed(&installed));
    let modules = small.path("root/lib/modules/9.1.2-small");
    let read = |name: &str| fs::read_to_string(modules.join(name)).expect("a file");
    assert_eq!((&*read("modules.dep"), &*read("kernel/a.ko")), ("kernel/a.ko:\n", "a"));
    assert!(modules.join("build").symlink_metadata().is_err(), "no link to this machine's folders");
    let back = output_of(rtscope(small.0.path()).args(["kernel", "rollback", "--root", "root"]));
    assert!(back.status.success() && !small.path("root/lib").exists(), "{}", printed(&back));
    // A menu that was written while it was there names it.
    assert!(small.run(&words).status.success());
    let menu = GRUB.replace("vmlinuz-old", "vmlinuz-9.1.2-small");
    fs::write(small.path("root/boot/grub/grub.cfg"), menu).expect("written");
    let back = output_of(rtscope(small.0.path()).args(["kernel", "rollback", "--root", "root"]));
    assert_eq!(back.status.code(), Some(2), "{}", printed(&back));
    assert!(printed(&back).contains("`update-grub`"), "{}", printed(&back));
}

#[test]
fn no_program_outlives_an_interrupted_unpacking_and_nobody_waits_for_it() {
    let test = "no_program_outlives_an_interrupted_unpacking_and_nobody_waits_for_it";
    let Some(small) = Small::new(test) else { return };
    // A folder that is patched is copied by two programs in a pipeline, as packages are unpacked by three.
    let patch = "--- a/a.c\n+++ b/a.c\n@@ -1 +1 @@\n-a\n+c\n";
    fs::write(small.path("9.1.2.patch"), patch).expect("written");
    fs::write(small.path("tree/a.c"), "a\n").expect("written");
    let spec = format!("{SPEC}[[patch]]\nkind = 'file'\nfrom = '9.1.2.patch'\n");
    fs::write(small.path("small.toml"), spec).expect("written");
    let bin = small.path("bin");
    let path = format!("{}:{}", bin.display(), std::env::var("PATH").unwrap_or_default());
    let limit = Duration::from_secs(60);
    for (signal, number) in ["INT", "TERM", "KILL"].iter().zip(610..) {
        let sleeps = format!("sleep {}", marked_seconds(number));
        let tar = bin.join("tar");
        executable::write(&tar, &format!("#!/bin/sh\n{sleeps}\n"));
        let mut patch = rtscope(small.0.path());
        patch.args(["kernel", "patch", "small.toml", "--cache", "cache"]).env("PATH", &path);
        let mut child = patch.stderr(Stdio::null()).spawn().expect("starts");
        wait_for("both programs", limit, || processes_with(&sleeps).len() == 2);
        kill(child.id(), signal);
        let status = child.wait().expect("ends");
        wait_for("the programs to end", limit, || processes_with(&sleeps).is_empty());
        assert_eq!(status.code(), (*signal != "KILL").then_some(130), "{signal}");
    }
    let patched = small.run(&["kernel", "patch", "small.toml"]);
    assert!(patched.status.success(), "{}", printed(&patched));
    let trees = fs::read_dir(small.path("cache/trees")).expect("there").flatten();
    let trees: Vec<PathBuf> = trees.map(|entry| entry.path()).collect();
    let [tree] = trees.as_slice() else { panic!("one tree and nothing else: {trees:?}") };
    assert_eq!(fs::read_to_string(tree.join("a.c")).expect("there"), "c\n");
}

/// A file system in memory, of a few MiB.
struct InMemory(PathBuf);

impl InMemory {
    fn mount(place: PathBuf, mib: u32) -> InMemory {
        fs::create_dir(&place).expect("a folder");
        let size = format!("size={mib}m");
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", &size, "tmpfs"]).arg(&place);
        assert!(mount.status().expect("mount").success());
        InMemory(place)
    }
}

impl Drop for InMemory {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(&self.0).status();
    }
}

#[test]
fn a_disk_that_fills_in_the_middle_is_named_and_nothing_half_built_is_kept() {
    let test = "a_disk_that_fills_in_the_middle_is_named_and_nothing_half_built_is_kept";
    if !root_or_skip(test) {
        return;
    }
    let Some(small) = Small::new(test) else { return };
    // As a kernel's own makefiles ask, and as a compiler writes.
    let makefile =
        MAKEFILE.replace("cp $< $@", "head -c 400000000 /dev/zero > $@") + ".DELETE_ON_ERROR:\n";
    fs::write(small.path("tree/Makefile"), makefile).expect("written");
    let build = || small.run(&["kernel", "build", "small.toml"]);
    // Less than what the first build on a machine is guessed to take, then just enough for the guess.
    let disk = InMemory::mount(small.path("cache"), 100);
    let refused = build();
    assert_eq!(refused.status.code(), Some(1), "{}", printed(&refused));
    assert!(printed(&refused).contains("MiB free and this needs about"), "{}", printed(&refused));
    let mut grow = Command::new("mount");
    grow.args(["-o", "remount,size=240m"]).arg(&disk.0);
    assert!(grow.status().expect("mount").success());
    let failed = build();
    assert_eq!(failed.status.code(), Some(1), "{}", printed(&failed));
    let told = printed(&failed);
    assert!(
        told.contains("the build failed in ") && (told.contains("/a.o:") || told.contains("/b.o:")),
        "{told}"
    );
    assert!(told.contains("the disk is full: make space and run it again"), "{told}");
    assert_eq!(small.kernels(), 0, "nothing half-built is kept");
}

#[test]
fn all_that_any_kernel_needs_is_named_in_one_command() {
    let Some(small) = Small::new("all_that_any_kernel_needs_is_named_in_one_command") else {
        return;
    };
    let path = small.path("bin");
    fs::create_dir(&path).expect("a folder");
    for name in ["sh", "apt-get", "make"] {
        if let Some(there) = program(name) {
            symlink(there, path.join(name)).expect("a link");
        }
    }
    // Before anything is fetched: nothing can download this patch.
    let patch = "[[patch]]\nkind = 'file'\nfrom = 'https://example.invalid/9.1.2.patch'\n";
    let spec = format!("{SPEC}{patch}sha256 = '{}'\n", "0".repeat(64));
    fs::write(small.path("small.toml"), spec).expect("written");
    let mut build = rtscope(small.0.path());
    build.args(["kernel", "build", "small.toml", "--cache", "cache"]).env("PATH", &path);
    let lacking = output_of(&mut build);
    let told = printed(&lacking);
    assert_eq!(lacking.status.code(), Some(1), "{told}");
    assert!(told.contains("this machine lacks ") && told.contains("gcc"), "{told}");
    assert_eq!(told.matches("gcc").count(), 2, "once by name and once by package: {told}");
    if program("apt-get").is_some() {
        assert!(told.contains("apt-get install bc binutils bison flex gcc patch tar`"), "{told}");
    }
}
