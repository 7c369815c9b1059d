//! `rtscope doctor` and `rtscope collect` with folders and files that somebody damaged or made up.

use std::{
    fs,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    process::Command,
};

use crate::{
    collect::unpack,
    support::{folder as room, output, text},
};

/// The exit code and the first line of what is printed.
fn said(room: &Path, words: &str) -> (Option<i32>, String) {
    let out = output(room, words);
    let shown = if out.stdout.is_empty() { text(&out.stderr) } else { text(&out.stdout) };
    (out.status.code(), shown.lines().next().unwrap_or_default().to_owned())
}

fn pipe(path: &Path) {
    let _ = fs::remove_file(path);
    let made = Command::new("mkfifo").arg(path).status().expect("mkfifo of coreutils");
    assert!(made.success());
}

#[test]
fn pipes_devices_and_links_in_a_folder_are_no_files_of_the_kernel() {
    let room = room();
    let root = unpack("server-isolated", room.path());
    let line = root.join("proc/cmdline");
    let change: [(&str, &dyn Fn()); 5] = [
        ("a pipe", &|| pipe(&line)),
        ("a device", &|| symlink("/dev/zero", &line).expect("linked")),
        ("a link to itself", &|| symlink("cmdline", &line).expect("linked")),
        ("a folder above it", &|| symlink("..", &line).expect("linked")),
        ("a file of 3 GiB", &|| {
            fs::File::create(&line).expect("made").set_len(3 << 30).expect("a hole");
        }),
    ];
    for (what, make) in change {
        let _ = fs::remove_file(&line);
        make();
        let (code, first) = said(room.path(), "doctor --root server-isolated");
        assert_eq!(code, Some(0), "{what}: {first}");
    }
    for path in ["dev/cpu/4/msr", "dev/cpu_dma_latency"] {
        pipe(&root.join(path));
    }
    assert_eq!(said(room.path(), "doctor --root server-isolated").0, Some(0));
}

#[test]
fn a_link_in_a_folder_reads_nothing_of_this_machine() {
    let room = room();
    let root = unpack("server-isolated", room.path());
    let secret = room.path().join("secret");
    fs::write(&secret, "@audio - rtprio 95\n").expect("written");
    let limits = root.join("etc/security/limits.d");
    fs::create_dir_all(&limits).expect("made");
    symlink(&secret, limits.join("a.conf")).expect("linked");
    symlink("../../../../secret", limits.join("b.conf")).expect("linked");
    let out = output(room.path(), "collect --root server-isolated --out -");
    assert!(!text(&out.stdout).contains("audio"), "{}", text(&out.stdout));
}

#[test]
fn many_cpus_and_interrupts_take_a_bounded_time() {
    let room = room();
    let root = unpack("server-isolated", room.path());
    let put = |path: &str, content: String| fs::write(root.join(path), content).expect("written");
    put("sys/devices/system/cpu/online", "0-1023\n".to_owned());
    put("sys/devices/system/cpu/isolated", "512-1023\n".to_owned());
    let lines: String = (0..20_000).map(|irq| format!("{irq}: 1 1  IO-APIC  dev{irq}\n")).collect();
    put("proc/interrupts", format!("  CPU0 CPU1\n{lines}"));
    let began = std::time::Instant::now();
    let (code, first) = said(room.path(), "doctor --root server-isolated --json");
    assert!(code.is_some() && first == "{", "{code:?} {first}");
    // A hundred times what it takes: a square of these numbers would take far longer.
    assert!(began.elapsed().as_secs() < 100, "{:?}", began.elapsed());
}

fn document(room: &Path) -> PathBuf {
    let _ = unpack("raspberry-pi-4", room);
    let made = output(room, "collect --root raspberry-pi-4 --out good.json");
    assert_eq!(made.status.code(), Some(0));
    room.join("good.json")
}

#[test]
fn a_wrong_document_is_refused_with_what_would_be_right() {
    let room = room();
    let good = fs::read_to_string(document(room.path())).expect("text");
    let put = |name: &str, content: &str| fs::write(room.path().join(name), content).expect("put");
    put("empty.json", "");
    put("other.json", "{\"format\": 1, \"verdict\": \"pass\"}");
    put("newer.json", "{\"format\": 2}");
    put("cut.json", &good[..good.len() / 2]);
    put("cpus.json", &good.replacen("\"online\": \"0-3\"", "\"online\": \"0-99999999\"", 1));
    assert!(fs::read_to_string(room.path().join("cpus.json")).expect("text").contains("99999999"));
    for name in ["empty", "other", "cut", "cpus"] {
        for option in ["--from", "--against"] {
            let (code, first) = said(room.path(), &format!("doctor {option} {name}.json"));
            assert_eq!(code, Some(1), "{option} {name}: {first}");
            assert!(first.contains("name a file that rtscope collect"), "{option} {name}: {first}");
        }
    }
    let (code, first) = said(room.path(), "doctor --from newer.json");
    assert!(code == Some(1) && first.contains("this version reads format 1"), "{first}");
    let (code, first) = said(room.path(), "doctor --from none.json");
    assert!(code == Some(1) && first.contains("No such file") && !first.contains("name a file"));
}

#[test]
fn a_folder_of_results_can_be_read_again() {
    let room = room();
    let _ = document(room.path());
    let made = output(room.path(), "doctor --root raspberry-pi-4 --out seen --all");
    let again = output(room.path(), "doctor --from seen --all");
    let without_page = text(&made.stdout).replace("\nPage: seen/report.html\n", "");
    assert_eq!(text(&again.stdout), without_page);
    assert_eq!(made.status.code(), again.status.code());
}

#[test]
fn wrong_words_are_usage_errors() {
    let room = room();
    let _ = document(room.path());
    for words in [
        "doctor --root none",
        "doctor --root good.json",
        "doctor --root raspberry-pi-4 --from good.json",
        "doctor --for nonsense",
        "doctor --deadline 0",
        "doctor --deadline 11s",
        "doctor --deadline soon",
        "collect --root none",
    ] {
        let (code, first) = said(room.path(), words);
        assert!(code == Some(64) && first.starts_with("rtscope: "), "{words}: {code:?} {first}");
    }
    assert_eq!(said(room.path(), "collect --root raspberry-pi-4 --out .").0, Some(1));
}
