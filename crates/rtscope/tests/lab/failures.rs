//! What goes wrong in a guest or around it: a clear sentence, the console kept, no emulator left.

use std::{
    fs,
    path::Path,
    process::{Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use rtscope_lab::{cache::Cache, program::GuestProgram};

use crate::{any_kernel, document, emulators, is_kept, ready_or_skip, room, rtscope, skip, text};

/// A plan of 50 ms: the guests here end before it does.
const SHORT: &str = "
name = 'short'
title = 'rest'
[[phase]]
name = 'rest'
duration = '50ms'
";

/// Runs the short plan in Debian's stock kernel; what it says, with its exit code.
fn run(folder: &Path, words: &[&str]) -> (Option<i32>, String) {
    fs::write(folder.join("short.toml"), SHORT).expect("written");
    let first = ["lab", "run", "short.toml", "--fresh", "--out", "out"];
    let ran = rtscope(folder, &[&first[..], words].concat()).output().expect("starts");
    (ran.status.code(), text(&ran))
}

#[test]
fn a_guest_that_ends_badly_says_why_and_leaves_its_console() {
    let test = "a_guest_that_ends_badly_says_why_and_leaves_its_console";
    if !ready_or_skip(test) {
        return;
    }
    let (starved, enough) = (starving_mib().to_string(), "1024".to_owned());
    for (kernel, is_starved, sentence, console) in CASES {
        let memory = if is_starved { &starved } else { &enough };
        let room = room();
        let mark = room.path().join("out").display().to_string();
        let words = ["--kernel", kernel, "--memory", memory];
        let (code, said) = run(room.path(), &words);
        assert_eq!(code, Some(1), "{kernel}: {said}");
        assert!(said.contains(sentence), "{kernel}: {said}");
        let folder = fs::read_dir(room.path().join("out")).expect("kept").flatten();
        let folder = folder.map(|entry| entry.path()).find(|path| path.is_dir()).expect("a guest");
        let kept = fs::read_to_string(folder.join("console.txt")).expect("a console");
        assert!(kept.contains(console), "{kernel}: {kept}");
        let failed = document(&room.path().join("out"))["kernels"][0]["failed"].clone();
        assert!(failed.as_str().is_some_and(|why| why.contains(sentence)), "{kernel}: {failed}");
        assert!(emulators(&mark).is_empty(), "{kernel}: an emulator is left");
    }
}

/// Memory in which the kernel boots and the program, unpacked beside its archive, finds no room.
fn starving_mib() -> u64 {
    let program =
        GuestProgram::read(Path::new(env!("CARGO_BIN_EXE_rtscope")), false).expect("built");
    (program.bytes().len() as u64 >> 20) * 2 + 72
}

/// Kernel with its words, whether its memory is short, what is said of its end, and what its console
/// shows.
const CASES: [(&str, bool, &str, &str); 4] = [
    // The archive is there and not looked at, as in a kernel without support for it.
    (
        "debian-stock:initcall_blacklist=populate_rootfs",
        false,
        "the kernel found nothing to run",
        "Unable to mount root fs",
    ),
    // Without the file system of sockets, the first socket is one too many.
    ("debian-stock:initcall_blacklist=sock_init", false, "the kernel failed", "Kernel panic"),
    ("debian-stock:8250.nr_uarts=0", false, "changes the serial line", ""),
    ("debian-stock", true, "out of memory", "Kernel panic"),
];

#[test]
fn ctrl_c_ends_the_guests_and_keeps_their_consoles() {
    let test = "ctrl_c_ends_the_guests_and_keeps_their_consoles";
    if !ready_or_skip(test) {
        return;
    }
    let room = room();
    let mark = room.path().join("out").display().to_string();
    let words =
        ["lab", "run", "small.toml", "--kernel", any_kernel(), "--fresh", "--memory", "1024"];
    let mut command = rtscope(room.path(), &[&words[..], &["--out", "out"]].concat());
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("starts");
    let console = room.path().join(format!("out/{}-seed1/console.txt", any_kernel()));
    let until = Instant::now() + Duration::from_secs(300);
    // The guest's agent speaks: the kernel is fetched and has booted.
    while !fs::read_to_string(&console).is_ok_and(|said| said.contains("rtscope: phase"))
        && Instant::now() < until
    {
        thread::sleep(Duration::from_millis(50));
    }
    let pid = child.id().to_string();
    assert!(Command::new("kill").args(["-INT", &pid]).status().expect("kill").success());
    let ran = child.wait_with_output().expect("ends");
    assert_eq!(ran.status.code(), Some(130), "{}", text(&ran));
    assert!(text(&ran).contains("interrupted"), "{}", text(&ran));
    assert!(emulators(&mark).is_empty(), "an emulator is left");
    assert!(fs::read_to_string(console).expect("kept").contains("rtscope: phase"));
}

#[test]
fn a_missing_emulator_or_package_is_named_with_the_command_that_gets_it() {
    let room = room();
    let empty = room.path().join("empty");
    fs::create_dir(&empty).expect("made");
    fs::write(room.path().join("short.toml"), SHORT).expect("written");
    fs::write(room.path().join("bzImage"), empty_kernel()).expect("written");
    if !cfg!(target_arch = "x86_64") {
        skip(
            "a_missing_emulator_or_package_is_named_with_the_command_that_gets_it",
            "boots kernels for x86-64",
        );
        return;
    }
    let said = |kernel: &str| {
        let words = ["lab", "run", "short.toml", "--kernel", kernel, "--cache", "cache"];
        let ran = rtscope(room.path(), &words).env("PATH", &empty).output().expect("starts");
        assert_eq!(ran.status.code(), Some(1), "{}", text(&ran));
        text(&ran)
    };
    let emulator = said("path=bzImage");
    assert!(
        emulator.contains("lacks qemu-system-x86_64") && emulator.contains("qemu-system-x86"),
        "{emulator}"
    );
    // All that is missing, at once.
    let package = said("debian-rt");
    let lacks = "lacks qemu-system-x86_64, apt-get, dpkg-deb, tar: on Debian run `apt-get install apt dpkg \
                 qemu-system-x86 tar`";
    assert!(package.contains(lacks), "{package}");
    assert!(!room.path().join("cache").exists(), "nothing was made before it was clear");
}

/// A bzImage of nothing but its header: the set-up, and no kernel behind it.
fn empty_kernel() -> Vec<u8> {
    let mut image = vec![0; 5 * 512];
    image[0x202..0x206].copy_from_slice(b"HdrS");
    image
}

/// A static program of one segment, for a machine of ELF's list.
fn elf(machine: u8) -> Vec<u8> {
    let mut elf = vec![0; 0x200];
    elf[..6].copy_from_slice(b"\x7fELF\x02\x01");
    (elf[16], elf[18]) = (2, machine);
    (elf[0x20], elf[0x36], elf[0x38]) = (0x40, 56, 1);
    (elf[0x40], elf[0x60]) = (1, 0x78);
    elf
}

#[test]
fn nothing_is_fetched_for_what_could_not_run() {
    let test = "nothing_is_fetched_for_what_could_not_run";
    if !ready_or_skip(test) {
        return;
    }
    let room = room();
    fs::write(room.path().join("short.toml"), SHORT).expect("written");
    fs::write(room.path().join("aarch64"), elf(183)).expect("written");
    fs::write(room.path().join("x86-64"), elf(62)).expect("written");
    fs::write(room.path().join("garbage"), "no program").expect("written");
    let dynamic = fs::read("/bin/sh").expect("a shell");
    fs::write(room.path().join("dynamic"), dynamic).expect("written");
    for (words, sentence) in [
        ("debian-rt --program aarch64", "this program is for aarch64, the guest is x86_64"),
        ("debian-rt-arm64 --program x86-64", "this program is for x86_64, the guest is aarch64"),
        ("debian-rt-arm64", "this rtscope is for x86_64, the guest is aarch64"),
        ("debian-rt --program garbage", "not a program for Linux"),
        ("debian-rt --program dynamic", "not static"),
        ("debian-rt --program none", "read none"),
        ("debian-rt --machine arm64", "is a kernel for x86_64, and the machine arm64"),
        ("debian-rt --modules none", "--modules none"),
        ("debian-rt --kernel debian-rt", "named twice"),
        ("debian-rt --kernel debain-stock", "did you mean \"debian-stock\"?"),
        ("debian-rt --wall --shift 2", "cannot be used with"),
    ] {
        let mut all = vec!["lab", "run", "short.toml", "--cache", "cache", "--kernel"];
        all.extend(words.split(' '));
        let ran = rtscope(room.path(), &all).output().expect("starts");
        assert!(matches!(ran.status.code(), Some(1 | 2 | 64)), "{words}: {}", text(&ran));
        assert!(text(&ran).contains(sentence), "{words}: {}", text(&ran));
        assert!(!room.path().join("cache").exists(), "{words}: something was fetched");
    }
}

#[test]
fn a_damaged_kernel_is_told_before_it_boots_and_one_that_halts_soon_after() {
    let test = "a_damaged_kernel_is_told_before_it_boots_and_one_that_halts_soon_after";
    if !ready_or_skip(test) || !is_kept("debian-stock") {
        return;
    }
    let room = room();
    let cache = Cache::default();
    let kernel = cache.find("debian-stock").expect("kept").vmlinuz();
    let whole = fs::read(&kernel).expect("a kernel");
    let mut altered = whole.clone();
    let middle = whole.len() / 2;
    altered[middle..middle + 64].fill(0x58);
    for (image, sentence) in [
        (&whole[..600], "cut short, with 600 of"),
        (&whole[..20_000], "cut short, with 20000 of"),
        (&altered, "damaged"),
    ] {
        fs::write(room.path().join("vmlinuz"), image).expect("written");
        let (code, said) = run(room.path(), &["--kernel", "path=vmlinuz"]);
        assert_eq!(code, Some(64), "{said}");
        assert!(said.contains("vmlinuz does not boot:") && said.contains(sentence), "{said}");
        assert!(!room.path().join("out").exists(), "a guest was started");
    }
    // As a kernel that has neither checksum nor signature: it can't be known before.
    let header = u32::from_le_bytes(altered[0x3c..0x40].try_into().expect("four")) as usize;
    altered[header + 0xa8..header + 0xb0].fill(0);
    let release = 0x200 + usize::from(u16::from_le_bytes([altered[0x20e], altered[0x20f]]));
    altered[release..release + 4].copy_from_slice(b"6.99");
    fs::write(room.path().join("vmlinuz"), &altered).expect("written");
    // The limit of silence is far beyond what the test may take.
    let (code, said) = run(room.path(), &["--kernel", "path=vmlinuz", "--silence", "1h"]);
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("CPU halted before the kernel printed anything"), "{said}");
}

/// A small file system of its own, unmounted when it is dropped.
struct Small(std::path::PathBuf);

impl Small {
    fn mount(folder: &Path, size: &str) -> Option<Small> {
        fs::create_dir_all(folder).expect("made");
        let words = ["-t", "tmpfs", "-o", &format!("size={size}"), "tmpfs"];
        let status = Command::new("mount").args(words).arg(folder).stderr(Stdio::null()).status();
        status.is_ok_and(|status| status.success()).then(|| Small(folder.to_owned()))
    }
}

impl Drop for Small {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("--lazy").arg(&self.0).status();
    }
}

#[test]
fn a_full_disk_is_told_before_a_guest_boots_and_nothing_is_left_half_written() {
    let test = "a_full_disk_is_told_before_a_guest_boots_and_nothing_is_left_half_written";
    if !ready_or_skip(test) {
        return;
    }
    let room = room();
    let Some(cache) = Small::mount(&room.path().join("cache"), "4M") else {
        skip(test, "needs root");
        return;
    };
    let out = Small::mount(&room.path().join("small"), "4M").expect("mounted like the first");
    fs::write(room.path().join("bzImage"), empty_kernel()).expect("written");
    // The guest's files don't fit the cache.
    let (code, said) = run(room.path(), &["--kernel", "path=bzImage", "--cache", "cache"]);
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("MiB free") && said.contains("--cache DIR"), "{said}");
    let images = fs::read_dir(cache.0.join("images")).expect("made");
    assert_eq!(images.count(), 0, "a part of an image is left");
    // The records don't fit their folder.
    let words = ["lab", "run", "short.toml", "--kernel", "path=bzImage", "--out", "small/out"];
    let ran = rtscope(room.path(), &words).output().expect("starts");
    assert_eq!(ran.status.code(), Some(1), "{}", text(&ran));
    assert!(text(&ran).contains("--out DIR"), "{}", text(&ran));
    drop(out);
}
