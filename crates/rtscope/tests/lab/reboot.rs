//! Settings and boot parameters across real reboots: GRUB on a disk image, Debian's kernel, BusyBox as init, three boots,
//! each in a new emulator.
//!
//! Not in virtual time, and nothing is measured. The guest prints facts, and the test judges them.

use std::{
    collections::BTreeMap,
    fs,
    os::unix::fs::{PermissionsExt, symlink},
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use rtscope_lab::{
    cache::Cache,
    image::{self, Contents},
    prebuilt::Prebuilt,
    program::GuestProgram,
    tool,
};

use crate::{ready_or_skip, skip, text};

/// What makes the disk and the boot loader.
const TOOLS: [&str; 5] = ["grub-mkrescue", "xorriso", "mformat", "mke2fs", "busybox"];

/// GRUB for a PC's BIOS.
const GRUB: &str = "/usr/lib/grub/i386-pc";

/// The root file system's, by which GRUB and the initial RAM disk find it.
const UUID: &str = "2f1a8c56-6f0e-4d5c-9d52-0d9a3f6f7c11";

/// Drivers that Debian's kernel has as modules, and without which it doesn't find the disk.
const MODULES: [&str; 4] = ["virtio_pci", "virtio_blk", "crc32c_generic", "ext4"];

/// Names by which the guest's scripts call BusyBox.
const COMMANDS: &str = "[ cat chown cp cut echo find grep kill ls md5sum mkdir mount poweroff reboot renice sed sh sleep \
                        sort stat sync taskset umount";

/// Where others work beside, it takes several times as long as on a quiet machine.
const LIMIT: Duration = Duration::from_secs(1200);

const TEST: &str = "settings_and_boot_parameters_outlive_a_reboot_and_go_back_to_the_byte";

#[test]
fn settings_and_boot_parameters_outlive_a_reboot_and_go_back_to_the_byte() {
    let Some(room) = machine_or_skip() else { return };
    let facts = Facts::of_guest(room.path());
    (1..=3).for_each(|stage| assert_eq!(facts[&format!("end-{stage}")], "exit 0"));
    settings_are_as_they_were_after_a_command_and_after_a_kill(&facts);
    what_is_permanent_is_there_after_a_reboot(&facts);
    nothing_is_left_after_the_last_boot(&facts);
}

fn settings_are_as_they_were_after_a_command_and_after_a_kill(facts: &Facts) {
    let before = &facts["settings-before"];
    for dirtied in [
        "/proc/sys/vm/stat_interval: 7",
        "/proc/sys/vm/swappiness: 23",
        "transparent_hugepage/enabled: always [madvise] never",
        "/proc/irq/default_smp_affinity: 4",
        "/sys/devices/virtual/workqueue/cpumask: 4",
        "(ksoftirqd/0) 17 -3 0 0 Cpus_allowed:\t1",
    ] {
        assert!(before.contains(dirtied), "{dirtied}: {before}");
    }
    let during = &facts["a-command"];
    for held in
        ["shield: 2\nown: Cpus_allowed_list:\t2\ninit: Cpus_allowed_list:\t0-1\n33\n9\n", "exit 5"]
    {
        assert!(during.contains(held), "{held}: {during}");
    }
    equal(before, &facts["settings-after-a-command"]);
    let held = &facts["settings-held"];
    for changed in
        ["/proc/sys/vm/swappiness: 9", "always madvise [never]", "(ksoftirqd/0) -6 -3 5 1"]
    {
        assert!(held.contains(changed) && !before.contains(changed), "{changed}: {held}");
    }
    let of_thread = |state: &str| {
        let line = state.lines().find(|line| line.contains("(kcompactd0)"));
        line.and_then(|line| line.split_once('\t')).map(|(_, mask)| mask.to_owned())
    };
    assert_eq!(
        (of_thread(before).as_deref(), of_thread(held).as_deref()),
        (Some("7"), Some("2")),
        "the shield leaves a thread where another setting of the same command puts it"
    );
    // Those that are pinned to CPU 0, to CPU 2, to both, and to none.
    let masks = |state: &str| -> Vec<String> {
        let sleeps = state.lines().filter(|line| line.contains("(sleep)"));
        sleeps.filter_map(|line| Some(line.split_once('\t')?.1.to_owned())).collect()
    };
    assert_eq!(
        (masks(before), masks(held)),
        (strings(["1", "4", "5", "7"]), strings(["1", "3", "1", "3"]))
    );
    equal(held, &facts["settings-killed"]);
    let status = &facts["status-killed"];
    assert!(status.contains("which was killed") && status.ends_with("exit 2"), "{status}");
    // Some interrupts can't be moved: they are as they were, and nobody made them so since.
    assert!(!status.contains("(changed to "), "{status}");
    let restored = &facts["restore-killed"];
    assert!(
        restored.ends_with("every setting that was kept or left changed is restored\nexit 0"),
        "{restored}"
    );
    equal(before, &facts["settings-after-a-kill"]);
}

fn what_is_permanent_is_there_after_a_reboot(facts: &Facts) {
    for (name, said) in [
        ("persist", "/etc/init.d/S99rtscope-tune"),
        ("boot", "The next boot has isolcpus=2\n"),
        ("boot-more", "The next boot has isolcpus=2 skew_tick=1\n"),
        (
            "status-permanent",
            "(/etc/init.d/S99rtscope-tune): stat-interval=55\nboot parameters: isolcpus=2 skew_tick=1",
        ),
        ("status-2", "kept: /usr/bin/rtscope tune apply --keep stat-interval=55"),
        ("status-2", "boot parameters: isolcpus=2 skew_tick=1"),
        (
            "restore-permanent",
            "removed /etc/init.d/S99rtscope-tune\nthe next boot is without isolcpus=2 skew_tick=1\nexit 0",
        ),
    ] {
        assert!(facts[name].contains(said), "{name}: {}", facts[name]);
    }
    assert_ne!(facts["files-between"], facts["files-before"]);
    let words = |stage: u32| -> Vec<String> {
        let line = &facts[&format!("boot-{stage}")];
        line.lines().next().unwrap_or_default().split(' ').map(str::to_owned).collect()
    };
    let (first, second) = (words(1), words(2));
    assert!(!first.is_empty() && second[..first.len()] == first, "{first:?}, then {second:?}");
    assert_eq!(second[first.len()..], ["isolcpus=2", "skew_tick=1"]);
    assert_eq!((&*facts["isolated-1"], &*facts["isolated-2"]), ("\nexit 0", "2\nexit 0"));
    // The kernel's own interval is a second; nothing but the start script changes it in the second boot.
    assert_eq!(facts["stat-interval-1"], "1\nexit 0");
    assert_eq!(facts["stat-interval-2"], "55\nexit 0");
    assert_eq!(facts["stat-interval-restored"], "1\nexit 0");
    let left = &facts["status-restored"];
    assert!(!left.contains("at each boot") && !left.contains("boot parameters"), "{left}");
}

fn nothing_is_left_after_the_last_boot(facts: &Facts) {
    for name in ["boot", "isolated", "stat-interval", "status"] {
        assert_eq!(facts[&format!("{name}-3")], facts[&format!("{name}-1")]);
    }
    assert_eq!(facts["status-1"], "no setting is changed by rtscope\nexit 0");
    let files = &facts["files-before"];
    assert!(
        files.contains("  /boot/grub/grub.cfg") && files.contains("  /usr/bin/rtscope"),
        "{files}"
    );
    equal(files, &facts["files-after"]);
}

fn strings<const N: usize>(each: [&str; N]) -> Vec<String> {
    each.map(str::to_owned).to_vec()
}

/// Two facts are equal to the byte, or the lines that differ are named.
fn equal(before: &str, after: &str) {
    let missing = |from: &str, of: &str| -> Vec<String> {
        from.lines().filter(|line| !of.lines().any(|one| one == *line)).map(str::to_owned).collect()
    };
    let (gone, new) = (missing(before, after), missing(after, before));
    assert!(before == after, "before: {gone:#?}\nafter: {new:#?}");
}

/// What the guest printed, by name.
struct Facts {
    facts: BTreeMap<String, String>,
    console: String,
}

impl Facts {
    /// Boots the machine three times, which ends each boot itself.
    fn of_guest(room: &Path) -> Facts {
        let boots = [1, 2, 3].map(|stage| boot(room, stage));
        let console = boots.each_ref().map(|(console, _)| console.as_str()).concat();
        let facts = boots.each_ref().map(|(_, facts)| format!("\n{facts}")).concat();
        let facts = facts.split("\n== ").filter_map(|fact| fact.split_once('\n'));
        let facts =
            facts.map(|(name, text)| (name.to_owned(), text.trim_end().to_owned())).collect();
        Facts { facts, console }
    }
}

/// One boot: the console, and the facts. A new emulator each time, since after a reset GRUB takes five times as long in it.
/// The CPUs take turns: where the host has fewer, one would spin while it waits for another that isn't running.
fn boot(room: &Path, stage: u32) -> (String, String) {
    let limit = LIMIT.as_secs();
    let line = format!(
        "{limit} qemu-system-x86_64 -accel tcg,thread=single -m 768 -smp 3 -nic none -display none \
         -monitor none -no-reboot -boot d -cdrom boot.iso -drive file=disk.img,format=raw,if=virtio,cache=unsafe \
         -serial file:console-{stage}.txt -serial file:facts-{stage}.txt"
    );
    let ran = Command::new("timeout").current_dir(room).args(line.split_whitespace()).output();
    let ran = ran.expect("timeout");
    let [console, facts] = ["console", "facts"].map(|name| {
        let bytes = fs::read(room.join(format!("{name}-{stage}.txt"))).unwrap_or_default();
        String::from_utf8_lossy(&bytes).replace('\r', "")
    });
    assert!(ran.status.success(), "{}\n{console}\n{facts}", text(&ran));
    (console, facts)
}

impl std::ops::Index<&str> for Facts {
    type Output = String;

    fn index(&self, name: &str) -> &String {
        self.facts.get(name).unwrap_or_else(|| {
            panic!("the guest printed no {name}, but {:?}\n{}", self.facts.keys(), self.console)
        })
    }
}

impl std::ops::Index<&String> for Facts {
    type Output = String;

    fn index(&self, name: &String) -> &String {
        &self[name.as_str()]
    }
}

/// A folder with a disk and a boot loader, if this machine can make them.
fn machine_or_skip() -> Option<tempfile::TempDir> {
    if !ready_or_skip(TEST) {
        return None;
    }
    let has_all = TOOLS.iter().all(|name| tool::find(name).is_some());
    let has_grub = Path::new(GRUB).join("moddep.lst").exists();
    // That of the package `busybox` needs libraries.
    let busybox = tool::find("busybox").and_then(|path| GuestProgram::read(&path, false).ok());
    let Some(busybox) = busybox.filter(|_| has_all && has_grub) else {
        let needs = "needs grub-mkrescue, GRUB for a PC's BIOS, xorriso, mtools, mke2fs and a static busybox";
        skip(TEST, needs);
        return None;
    };
    let room = tempfile::tempdir().expect("a folder");
    let release = boot_files(&room.path().join("root/boot"), busybox.bytes());
    root_files(&room.path().join("root"), busybox.bytes(), &release);
    disk_and_loader(room.path());
    Some(room)
}

/// Debian's kernel with an initial RAM disk; its release.
fn boot_files(boot: &Path, busybox: &[u8]) -> String {
    let cache = Cache::default();
    // The emulator takes a part of the time to unpack it that `debian-stock` needs, in each of the boots.
    let debian = Prebuilt::find("debian-cloud").expect("known");
    let kernel = debian.bring(&cache, &mut |_| {}).expect("Debian's kernel");
    let modules = debian.modules(&kernel, &cache, &mut |_| {}).expect("its modules");
    let modules = modules.ordered(&MODULES.map(str::to_owned)).expect("drivers");
    let mut files = vec![("bin/busybox".to_owned(), busybox.to_vec(), true)];
    files.extend(modules.into_iter().enumerate().map(|(i, module)| {
        let name = module.path.rsplit('/').next().unwrap_or_default();
        (format!("modules/{i:02}-{name}"), module.body, false)
    }));
    let program = include_bytes!("reboot/init.sh").to_vec();
    let archive = image::write(&Contents { program, files, ..Contents::default() }).expect("small");
    let release = kernel.manifest.release.clone();
    fs::create_dir_all(boot.join("grub")).expect("made");
    fs::copy(kernel.vmlinuz(), boot.join(format!("vmlinuz-{release}"))).expect("copied");
    fs::write(boot.join(format!("initrd.img-{release}")), archive).expect("written");
    release
}

/// A small system with start scripts, and this program in it.
fn root_files(root: &Path, busybox: &[u8], release: &str) {
    let write = |name: &str, bytes: &[u8], mode: u32| {
        let path = root.join(name);
        fs::create_dir_all(path.parent().expect("a folder")).expect("made");
        fs::write(&path, bytes).expect("written");
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).expect("set");
    };
    for folder in ["dev", "proc", "root", "run", "sbin", "sys", "tmp", "var/lib"] {
        fs::create_dir_all(root.join(folder)).expect("made");
    }
    let ours = GuestProgram::read(Path::new(env!("CARGO_BIN_EXE_rtscope")), false).expect("static");
    let menu =
        include_str!("reboot/grub.cfg").replace("@UUID@", UUID).replace("@RELEASE@", release);
    write("boot/grub/grub.cfg", menu.as_bytes(), 0o444);
    write("usr/bin/rtscope", ours.bytes(), 0o755);
    write("bin/busybox", busybox, 0o755);
    write("etc/inittab", b"::sysinit:/etc/init.d/rcS\n::once:/etc/stage\n", 0o644);
    write("etc/init.d/rcS", include_bytes!("reboot/rcS.sh"), 0o755);
    write("etc/stage", include_bytes!("reboot/stage.sh"), 0o755);
    write("stage", b"1\n", 0o644);
    for name in COMMANDS.split_whitespace() {
        symlink("busybox", root.join("bin").join(name)).expect("a link");
    }
    symlink("../bin/busybox", root.join("sbin/init")).expect("a link");
}

/// A disk with one ext4, and a CD with GRUB, which reads the disk's own menu.
fn disk_and_loader(room: &Path) {
    let run = |program: &str, words: &[&str]| {
        let mut command =
            Command::new(tool::find(program).unwrap_or_else(|| PathBuf::from(program)));
        let ran = command.current_dir(room).args(words).output().expect("starts");
        assert!(ran.status.success(), "{program}: {}", text(&ran));
    };
    // What GRUB 2.06 and Debian's kernel both read, whatever this machine's mke2fs makes by default. Nothing is
    // initialized later, in the guest.
    let features =
        "none,has_journal,extent,filetype,sparse_super,large_file,dir_index,ext_attr,extra_isize";
    let at_once = "lazy_itable_init=0,lazy_journal_init=0";
    run(
        "mke2fs",
        &[
            "-q", "-t", "ext4", "-O", features, "-E", at_once, "-U", UUID, "-d", "root",
            "disk.img", "128M",
        ],
    );
    let grub = room.join("cd/boot/grub");
    fs::create_dir_all(&grub).expect("made");
    let menu = format!(
        "serial --unit=0\nterminal_input serial\nterminal_output serial\ninsmod ext2\nsearch --fs-uuid --set=root {UUID}\n\
         configfile ($root)/boot/grub/grub.cfg\n"
    );
    fs::write(grub.join("grub.cfg"), menu).expect("written");
    run("grub-mkrescue", &[&format!("--directory={GRUB}"), "-o", "boot.iso", "cd"]);
}
