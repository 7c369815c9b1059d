//! Builds of a small tree that is made as a kernel is.

use super::*;

const SAID: &str = "\
make[1]: Entering directory '/o'
  CALL    scripts/checksyscalls.sh
  CC      kernel/fork.o
  CC [M]  fs/ext4/inode.o
kernel/foo.c: In function 'foo':
kernel/foo.c:12:5: warning: unused variable 'x' [-Wunused-variable]
kernel/foo.c:14:9: error: 'struct task_struct' has no member named 'nothing'
make[4]: *** [../scripts/Makefile.build:229: kernel/foo.o] Error 1
make[3]: *** [../scripts/Makefile.build:478: kernel] Error 2
  AR      lib/built-in.a
make: *** [Makefile:224: __sub-make] Error 2
";

#[test]
fn objects_warnings_and_the_failing_file_are_read() {
    let mut reader = Reader::default();
    let objects = SAID.lines().filter(|line| reader.line(line)).count();
    assert_eq!((objects, reader.objects), (4, 4));
    assert_eq!(reader.at, "lib/built-in.a");
    assert_eq!(reader.warnings.len(), 1);
    let said = reader.failure(PathBuf::from("/o/log")).to_string();
    assert!(
        said.starts_with("the build failed in kernel/foo.o:\nkernel/foo.c:14:9: error:"),
        "{said}"
    );
    assert!(said.ends_with("the whole output is in /o/log") && !said.contains("unused"), "{said}");
}

#[test]
fn estimates_come_from_the_nearest_earlier_build() {
    let guess = estimate(800, &[], 2);
    assert!(!guess.measured && guess.objects > 1000);
    assert!(estimate(800, &[], 4).seconds < guess.seconds);
    let of = |options, objects, seconds| BuildFigures {
        options,
        objects,
        seconds,
        jobs: 2,
        disk_bytes: objects * 1000,
        warnings: 0,
    };
    let earlier = [of(700, 1400, 300.0), of(6000, 20_000, 9000.0)];
    let near = estimate(1400, &earlier, 4);
    assert_eq!((near.objects, near.disk_bytes, near.measured), (2800, 2_800_000, true));
    assert!((near.seconds - 300.0).abs() < 1e-9, "twice the objects on twice the cores");
}

#[test]
fn needs_follow_the_options() {
    let names = |text: &str| -> Vec<String> {
        build_target::needs(&merge::read(text)).into_iter().map(|need| need.package).collect()
    };
    assert!(
        names("CONFIG_KERNEL_LZ4=y\nCONFIG_OBJTOOL=y\n")
            .ends_with(&["libelf-dev".into(), "lz4".into()])
    );
    assert!(!names("# CONFIG_KERNEL_LZ4 is not set\n").contains(&"lz4".to_owned()));
}

/// A tree that is built as a kernel is, by `make` with the kernel's targets, and compiles two files.
const MAKEFILE: &str = "VERSION = 9\nPATCHLEVEL = 1\nSUBLEVEL = 2\n\
    .PHONY: tinyconfig olddefconfig bzImage kernelrelease\n\
    tinyconfig:\n\t@echo CONFIG_64BIT=y > $(O)/.config\n\
    olddefconfig:\n\t@test ! -e ../stopped && sed -i '/CONFIG_NEVER=/d' $(O)/.config\n\
    kernelrelease:\n\t@echo 9.1.2-small\n\
    bzImage: $(O)/a.o $(O)/b.o\n\t@mkdir -p $(O)/arch/x86/boot $(O)/include/generated\n\
    \t@cat $^ > $(O)/arch/x86/boot/bzImage\n\t@touch $(O)/System.map $(O)/vmlinux\n\
    \t@echo '#define UTS_VERSION \"#1 SMP PREEMPT_RT'$$KBUILD_BUILD_HOST'\"' > $(O)/include/generated/utsversion.h\n\
    $(O)/%.o: %.c\n\t@echo '  CC      $*.o'\n\t@echo \"$*.c:1:1: warning: odd\" >&2\n\
    \t@grep -q broken $< && { echo '$*.c:1:1: error: broken' >&2; exit 1; } || cp $< $@\n";

struct Small {
    folder: tempfile::TempDir,
    cache: Cache,
    spec: Spec,
}

impl Small {
    fn new(fragment: &str) -> Small {
        let folder = tempfile::tempdir().expect("a folder");
        let tree = folder.path().join("tree");
        fs::create_dir_all(&tree).expect("made");
        for (name, text) in [
            ("Makefile", MAKEFILE),
            ("Kbuild", ""),
            ("Kconfig", "config NEVER\n\tbool \"Never\"\n\tdepends on SOMETHING\n"),
            ("a.c", "a"),
            ("b.c", "b"),
        ] {
            fs::write(tree.join(name), text).expect("written");
        }
        fs::write(folder.path().join("own.config"), fragment).expect("written");
        let text = "name = \"small\"\ntitle = \"Small\"\narch = \"x86_64\"\nbase = \"tinyconfig\"\n\
                    fragments = [\"own.config\"]\nmodules = false\n[source]\nkind = \"folder\"\npath = \"tree\"\n";
        let mut specs = crate::spec::parse("small", text, folder.path()).expect("sound");
        let cache = Cache::at(folder.path().join("cache"));
        Small { cache, spec: specs.remove(0), folder }
    }

    fn build(&self, lost_too: bool) -> Result<(KeptKernel, Vec<StepProgress>), LabError> {
        let mut said = Vec::new();
        let mut report = |progress| said.push(progress);
        let fetched = crate::source::fetch(&self.spec, &self.cache, None, &mut report)?;
        let prepared = prepare(&self.spec, &fetched, &self.cache, false, false, &mut report)?;
        let choice = BuildChoice { jobs: 1, lost_too };
        let kernel = build(&self.spec, &prepared, &self.cache, choice, &mut report)?;
        Ok((kernel, said))
    }

    fn write(&self, name: &str, text: &str) {
        fs::write(self.folder.path().join("tree").join(name), text).expect("written");
    }
}

fn can_build() -> bool {
    let more = ["flex", "bison"].map(|name| Need::of(name, name));
    let all = [build_target::needs(&ConfigOptions::new()).as_slice(), &more].concat();
    let lacking = tool::require(&all).err();
    if lacking.is_some() {
        rtscope_testing::skip::skip_this("needs the tools that build kernels");
    }
    lacking.is_none()
}

#[test]
fn a_kernel_is_built_once_and_kept_with_its_key_in_it() {
    if !can_build() {
        return;
    }
    let small = Small::new("CONFIG_PREEMPT_RT=y\n");
    let (kernel, said) = small.build(false).expect("built");
    let manifest = &kernel.manifest;
    assert_eq!(manifest.release, "9.1.2-small");
    assert_eq!(manifest.version, format!("#1 SMP PREEMPT_RT{}", manifest.key));
    assert_eq!(fs::read_to_string(kernel.vmlinuz()).expect("an image"), "ab");
    assert_eq!(kernel.identity().real_time, Some(true));
    let figures = manifest.build.expect("figures");
    assert_eq!((figures.objects, figures.warnings, figures.options), (2, 2, 2));
    let warnings = fs::read_to_string(kernel.dir.join("warnings.txt")).expect("kept");
    assert_eq!(warnings, "a.c:1:1: warning: odd\nb.c:1:1: warning: odd");
    let is_object = |p: &&StepProgress| matches!(p, StepProgress::Amount { unit: "objects", .. });
    assert_eq!(said.iter().filter(is_object).count(), 2);
    let (again, said) = small.build(false).expect("there");
    assert_eq!(again.manifest.key, manifest.key);
    assert!(!said.iter().any(|p| is_object(&p)), "not built twice");
    let fetched =
        crate::source::fetch(&small.spec, &small.cache, None, &mut |_| {}).expect("there");
    let found = || built_already(&small.spec, &fetched, &small.cache).expect("read");
    assert_eq!(found().expect("found").manifest.key, manifest.key);
    let config = small.cache.build_dir(&manifest.inputs["inputs"]).join(".config");
    fs::write(&config, "CONFIG_PREEMPT_RT=y\nCONFIG_BY_HAND=y\n").expect("written");
    assert_eq!(found(), None, "a configuration changed by hand is another kernel");
    fs::remove_dir_all(config.parent().expect("a folder")).expect("removed");
    assert_eq!(found().expect("found").manifest.key, manifest.key, "the objects aren't needed");
    small.write("a.c", "other");
    let (other, _) = small.build(false).expect("built");
    assert_ne!(other.manifest.key, manifest.key, "another source is another kernel");
}

#[test]
fn a_build_that_failed_goes_on_where_it_stopped() {
    if !can_build() {
        return;
    }
    let small = Small::new("CONFIG_PREEMPT_RT=y\n");
    small.write("b.c", "broken");
    let said = small.build(false).expect_err("fails").to_string();
    assert!(
        said.starts_with("the build failed in ") && said.contains("b.o:\nb.c:1:1: error: broken"),
        "{said}"
    );
    assert!(small.cache.kernels().is_empty(), "nothing half-built is kept");
    let log = PathBuf::from(said.rsplit(" in ").next().expect("a path"));
    // The same inputs: what went wrong was the surroundings, as a full disk.
    let tree = small.folder.path().join("tree/b.c");
    let modified = tree.metadata().and_then(|there| there.modified()).expect("a time");
    fs::write(&tree, "repair").expect("written");
    let file = File::options().write(true).open(&tree).expect("open");
    file.set_modified(modified).expect("set");
    let (kernel, _) = small.build(false).expect("built");
    let log = fs::read_to_string(log).expect("a log");
    assert!(!log.contains("a.o") && log.contains("  CC      b.o"), "a.o was there already: {log}");
    assert_eq!(kernel.manifest.build.expect("figures").objects, 3, "b.o was tried twice");
    assert_eq!(fs::read_to_string(kernel.vmlinuz()).expect("an image"), "arepair");
}

#[test]
fn a_configuration_that_was_broken_off_is_made_anew() {
    if !can_build() {
        return;
    }
    let small = Small::new("CONFIG_PREEMPT_RT=y\n");
    let fetched =
        crate::source::fetch(&small.spec, &small.cache, None, &mut |_| {}).expect("there");
    let configure = |again| {
        prepare(&small.spec, &fetched, &small.cache, again, false, &mut |_| {}).map(|it| it.target)
    };
    assert!(configure(true).expect("configured").is_configured());
    let stopped = small.folder.path().join("stopped");
    fs::write(&stopped, "").expect("written");
    assert!(configure(true).is_err());
    let config = configure(false).err().map(|e| e.to_string()).unwrap_or_default();
    assert!(config.contains("olddefconfig"), "half a configuration isn't built: {config}");
    fs::remove_file(&stopped).expect("removed");
    small.build(false).expect("built");
}

#[test]
fn a_lost_option_stops_the_build_and_is_explained() {
    if !can_build() {
        return;
    }
    let small = Small::new("CONFIG_PREEMPT_RT=y\nCONFIG_NEVER=y\n");
    let said = small.build(false).expect_err("lost").to_string();
    assert!(
        said.contains("CONFIG_NEVER=y is lost (absent): needs SOMETHING (now n) (Kconfig:1)"),
        "{said}"
    );
    assert!(small.build(true).is_ok(), "unless it is wanted so");
}

/// A download takes long: what a build lacks is asked for before it, with the tools of packages too.
#[test]
fn the_tools_of_options_that_a_spec_asks_for_are_known_before_anything_is_fetched() {
    let mut spec = crate::spec::find("tiny-6.12-rt").expect("shipped");
    let has = |spec: &crate::spec::Spec, name: &str| {
        super::needs_of(spec).iter().any(|need| need.name == name)
    };
    assert!(has(&spec, "make") && has(&spec, "bc") && !has(&spec, "lzop"));
    spec.fragments[0].text.push_str("\nCONFIG_KERNEL_LZO=y\n");
    assert!(has(&spec, "lzop"));
    let packers = package_needs();
    assert!(packers.iter().any(|need| need.package == "debhelper"));
}
