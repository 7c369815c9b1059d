//! Endings of guests, with a script in the emulator's place: what it writes is what a guest says.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};

use rtscope_model::{guest::Timing, guest_link};

use super::{watch::unpack, *};
use crate::{
    machine::Machine,
    qemu::{GuestSpec, Log},
};

/// A folder with the files that a guest's lines go to.
struct Room(tempfile::TempDir);

impl Room {
    fn new() -> Room {
        Room(tempfile::tempdir().expect("a folder"))
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// Words before the emulator's: a shell that runs the script in its place. `$CONSOLE` and `$CHANNEL`
    /// are the files of the lines.
    fn guard(&self, script: &str) -> Vec<String> {
        let (console, channel) = (self.path("console.txt"), self.path("channel"));
        let script =
            format!("CONSOLE={} CHANNEL={}; {script}", console.display(), channel.display());
        ["sh", "-c", &script, "sh"].map(str::to_owned).into()
    }

    fn boot(&self, script: &str, silence_ms: u64, stop: &(dyn Fn() -> bool + Sync)) -> BootEnd {
        self.boot_on("x86-64", script, silence_ms, stop)
    }

    fn boot_on(
        &self,
        machine: &str,
        script: &str,
        silence_ms: u64,
        stop: &(dyn Fn() -> bool + Sync),
    ) -> BootEnd {
        self.boot_with(None, machine, script, silence_ms, stop)
    }

    fn boot_with(
        &self,
        log: Option<Log<'_>>,
        machine: &str,
        script: &str,
        silence_ms: u64,
        stop: &(dyn Fn() -> bool + Sync),
    ) -> BootEnd {
        let machine = Machine::find(machine).expect("shipped");
        let (console, channel) = (self.path("console.txt"), self.path("channel"));
        let guard = self.guard(script);
        let mut order = Boot {
            line: CommandLine { log, ..command_line(&machine, &console, &channel) },
            guard: &guard,
            silence: Duration::from_millis(silence_ms),
            first_word: Duration::MAX,
            stuck: Duration::from_secs(2),
            on_mute: &|| {},
            stop,
            on_line: &mut |_| {},
        };
        boot(&mut order).expect("a shell")
    }

    fn ending(&self, script: &str) -> Ending {
        self.boot(script, 30_000, &|| false).ending
    }
}

fn command_line<'a>(machine: &'a Machine, console: &'a Path, channel: &'a Path) -> CommandLine<'a> {
    CommandLine {
        machine,
        spec: GuestSpec { timing: Timing::Wall, ..GuestSpec::default() },
        kernel: Path::new("kernel"),
        is_unpacked: false,
        image: Path::new("image"),
        device_tree: None,
        append: &[],
        console,
        channel,
        log: None,
        plugin: None,
    }
}

#[test]
fn what_the_console_shows_is_how_the_guest_ended() {
    let panic = "Kernel panic - not syncing: Attempted to kill init! exitcode=0x00000009";
    let found = Room::new().ending(&format!("echo '[    1.000000] {panic}' >> $CONSOLE"));
    assert_eq!(found, Ending::Trouble(Trouble::Panic(panic.to_owned())));
    let found = Room::new().ending("echo 'Out of memory: Killed process 30 (x)' >> $CONSOLE");
    assert_eq!(found, Ending::Trouble(Trouble::OutOfMemory));
    let found = Room::new().ending("echo 'rtscope: phase 1/1 rest' >> $CONSOLE");
    assert_eq!(found, Ending::NoRecord("rtscope: phase 1/1 rest".to_owned()));
    assert_eq!(Room::new().ending("true"), Ending::Mute);
    match Room::new().ending("echo 'no such machine' >&2; exit 1") {
        Ending::Emulator(said) => {
            assert!(said.contains("no such machine") && said.contains("exit status: 1"), "{said}")
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_silent_guest_is_ended_and_told_from_one_that_never_spoke() {
    let guest = Room::new().boot("exec sleep 1000", 300, &|| false);
    assert_eq!((guest.ending, guest.console.as_str()), (Ending::Mute, ""));
    let script = "echo 'rtscope: phase 2/3 disk' >> $CONSOLE; exec sleep 1000";
    let guest = Room::new().boot(script, 5_000, &|| false);
    assert_eq!(guest.ending, Ending::Hung("rtscope: phase 2/3 disk".to_owned()));
    assert!(guest.ending.sentence().contains("--silence"), "{}", guest.ending.sentence());
}

#[test]
fn a_guest_that_works_and_says_nothing_is_told_of_once() {
    let told_of = |script: &str| {
        let room = Room::new();
        let machine = Machine::find("x86-64").expect("shipped");
        let (console, channel) = (room.path("console.txt"), room.path("channel"));
        let told = AtomicU32::new(0);
        let guest = boot(&mut Boot {
            line: command_line(&machine, &console, &channel),
            guard: &room.guard(script),
            silence: Duration::from_secs(30),
            first_word: Duration::from_millis(100),
            stuck: Duration::MAX,
            on_mute: &|| {
                told.fetch_add(1, Relaxed);
            },
            stop: &|| told.load(Relaxed) > 0 || room.path("over").exists(),
            on_line: &mut |_| {},
        });
        assert_eq!(guest.expect("a shell").ending, Ending::Interrupted);
        told.into_inner()
    };
    assert_eq!(told_of("while :; do :; done"), 1);
    // The same work after a word; the file shows that it took its time.
    let over =
        "i=0; while [ $i -lt 300000 ]; do i=$((i + 1)); done; : > ${CONSOLE%console.txt}over";
    assert_eq!(told_of(&format!("echo a word >> $CONSOLE; {over}; exec sleep 1000")), 0);
}

#[test]
fn an_interruption_ends_the_emulator_and_keeps_the_console() {
    let room = Room::new();
    let stop = AtomicBool::new(false);
    let (pid, script) =
        (room.path("pid"), "echo booting >> $CONSOLE; echo $$ > PID; exec sleep 1000");
    let script = script.replace("PID", &pid.display().to_string());
    let guest = thread::scope(|scope| {
        scope.spawn(|| {
            while !fs::read_to_string(&pid).is_ok_and(|text| text.ends_with('\n')) {
                thread::sleep(LOOK);
            }
            stop.store(true, Relaxed);
        });
        room.boot(&script, 30_000, &|| stop.load(Relaxed))
    });
    assert_eq!(guest.ending, Ending::Interrupted);
    let pid = fs::read_to_string(&pid).expect("written");
    assert!(!Path::new("/proc").join(pid.trim()).exists(), "the emulator is still there");
    assert_eq!(fs::read_to_string(room.path("console.txt")).expect("kept"), "booting\n");
}

fn packed(bytes: &[u8], level: flate2::Compression) -> Vec<u8> {
    let mut packer = flate2::write::GzEncoder::new(Vec::new(), level);
    std::io::Write::write_all(&mut packer, bytes).expect("packed");
    packer.finish().expect("packed")
}

#[test]
fn a_record_is_whole_or_damaged_or_a_reason() {
    let packed = |text: &[u8]| packed(text, flate2::Compression::fast());
    let send = |frames: &[Vec<u8>]| {
        let room = Room::new();
        fs::write(room.path("frames"), frames.concat()).expect("written");
        let frames = room.path("frames");
        let script = format!("echo x >> $CONSOLE; cat {} >> $CHANNEL", frames.display());
        room.boot(&script, 30_000, &|| false)
    };
    let file = |name: &str, text: &[u8]| guest_link::file(name, &packed(text)).expect("a frame");
    let guest = send(&[file("a", b"1"), guest_link::end(1)]);
    assert_eq!((guest.ending, &guest.files["a"]), (Ending::Sent, &b"1".to_vec()));
    let guest = send(&[file("a", b"1"), guest_link::end(2)]);
    assert_eq!(guest.ending, Ending::Damaged, "a file is missing");
    let mut broken = file("a", b"1");
    let last = broken.len() - 1;
    broken[last] ^= 1;
    assert_eq!(send(&[broken, guest_link::end(1)]).ending, Ending::Damaged);
    let guest = send(&[file(guest_link::FAILURE, b"no CPU 7"), guest_link::end(1)]);
    assert_eq!(guest.ending, Ending::Failed("no CPU 7".to_owned()));
}

#[test]
fn an_emulator_that_logs_is_left_to_end_in_order() {
    let run = |end: &str| {
        let room = Room::new();
        fs::write(room.path("frames"), guest_link::end(0)).expect("written");
        let script = format!("cat {} >> $CHANNEL; {end}", room.path("frames").display());
        let log = Some(Log::Record(Path::new("log")));
        let guest = room.boot_with(log, "x86-64", &script, 30_000, &|| false);
        assert_eq!(guest.ending, Ending::Sent);
        (guest.in_order, guest.console)
    };
    // Longer than an emulator has that logs nothing.
    let (in_order, console) = run("sleep 1; echo 'reboot: Power down' >> $CONSOLE; exit 0");
    assert_eq!((in_order, console.as_str()), (true, "reboot: Power down\n"));
    // A machine that can't switch itself off is told to end.
    let halted = "echo 'reboot: System halted' >> $CONSOLE";
    let (in_order, _) = run(&format!("trap 'exit 0' TERM; {halted}; while :; do sleep 0.1; done"));
    assert!(in_order, "it was told and ended");
    let (in_order, _) = run("exit 1");
    assert!(!in_order, "a log of an emulator that failed is not whole");
}

#[test]
fn a_record_that_comes_by_the_console_is_no_part_of_what_the_console_said() {
    let room = Room::new();
    // A body of letters: as text it would look like the kernel's.
    let body = packed(b"\nOops: a file's own words\n", flate2::Compression::none());
    let frames = [guest_link::file("a", &body).expect("a frame"), guest_link::end(1)].concat();
    fs::write(room.path("frames"), frames).expect("written");
    let script = format!(
        "echo 'rtscope: phase 1/1 rest' >> $CONSOLE; cat {} >> $CONSOLE; echo 'rtscope: sent' >> $CONSOLE",
        room.path("frames").display()
    );
    let guest = room.boot_on("arm64", &script, 30_000, &|| false);
    assert_eq!(guest.ending, Ending::Sent);
    assert_eq!(guest.files["a"], b"\nOops: a file's own words\n");
    let kept = fs::read_to_string(room.path("console.txt")).expect("text");
    assert!(kept.starts_with("rtscope: phase 1/1 rest\n"), "{kept:?}");
    assert!(!kept.contains("Oops"), "{kept:?}");
}

#[test]
fn a_probe_says_whether_anything_was_said_within_its_limit() {
    let machine = Machine::find("x86-64").expect("shipped");
    let room = Room::new();
    let (console, channel) = (room.path("console.txt"), room.path("channel"));
    let line = command_line(&machine, &console, &channel);
    let probe = |script: &str, limit_ms| {
        speaks(&line, &room.guard(script), Duration::from_millis(limit_ms)).expect("a shell")
    };
    assert!(probe("echo Linux >> $CONSOLE; exec sleep 1000", 30_000));
    assert!(!probe("exec sleep 1000", 200));
    let script = "echo 'KVM: Permission denied' >&2; exit 1";
    let said = speaks(&line, &room.guard(script), Duration::from_secs(30)).expect_err("it ended");
    assert!(said.to_string().contains("KVM: Permission denied"), "{said}");
}

#[test]
fn a_replay_that_sleeps_is_ended_long_before_its_silence() {
    let log = || Some(Log::Replay(Path::new("log")));
    let run = |log, script: &str, stop: &(dyn Fn() -> bool + Sync)| {
        let script = format!("echo booting >> $CONSOLE; {script}");
        Room::new().boot_with(log, "x86-64", &script, 600_000, stop).ending
    };
    let ending = run(log(), "exec sleep 1000", &|| false);
    assert_eq!(ending, Ending::Stuck);
    assert!(ending.sentence().contains("not the next one in its log"), "{}", ending.sentence());
    // A guest that is no replay may sleep, and a replay that computes goes on.
    let looks = AtomicU32::new(0);
    let many = || looks.fetch_add(1, Relaxed) > 250;
    assert_eq!(run(None, "exec sleep 1000", &many), Ending::Interrupted);
    looks.store(0, Relaxed);
    assert_eq!(run(log(), "while :; do :; done", &many), Ending::Interrupted);
}

#[test]
fn a_starved_guest_does_not_hang() {
    let seconds = Duration::from_secs;
    let limit = seconds(300);
    assert!(!hangs(seconds(299), seconds(299), limit), "not silent for long enough");
    assert!(hangs(seconds(301), seconds(290), limit), "it runs and says nothing");
    assert!(hangs(seconds(301), seconds(0), limit), "it waits for what never comes");
    assert!(!hangs(seconds(700), seconds(60), limit), "others have the CPU");
    assert!(hangs(seconds(900), seconds(75), limit), "it had enough even so");
}

#[test]
fn a_halted_guest_is_known_by_what_its_emulator_does() {
    let ms = Duration::from_millis;
    // QEMU 7.2 with a kernel whose payload was overwritten, and with one that boots and rests.
    assert!(has_halted(ms(4_450), ms(4_450 + 6_180)));
    assert!(!has_halted(ms(2_220), ms(2_220 + 2_830)), "not for long enough");
    assert!(!has_halted(ms(170), ms(170 + 7_200)));
    assert!(!has_halted(ms(6_000), ms(60_000)), "a long rest in a guest without a console");
}

#[test]
fn a_process_s_time_is_read_whatever_its_name() {
    let stat = "7 (a b) c) S 1 7 7 0 -1 4194304 100 0 0 0 1234 66 0 0 20 0 3 0 99";
    assert_eq!(cpu_time(stat), Some(Duration::from_secs(13)));
    assert_eq!(cpu_time("7 (short) S 1"), Some(Duration::ZERO));
    assert_eq!(cpu_time(""), None);
}

#[test]
fn a_guest_that_never_stops_printing_is_ended() {
    for line in ["CONSOLE", "CHANNEL"] {
        let script = format!("yes 'again and again' | head -c 70000000 >> ${line}; exec sleep 100");
        let found = Room::new().ending(&script);
        assert!(matches!(found, Ending::TooMuch(_)), "{line}: {found:?}");
    }
}

#[test]
fn no_more_of_a_file_is_unpacked_than_a_record_may_have() {
    let packed = packed(&[7; 100], flate2::Compression::fast());
    assert_eq!(unpack(&packed, 100).expect("packed"), Some(vec![7; 100]));
    assert_eq!(unpack(&packed, 99).expect("packed"), None);
    unpack(b"not packed", 100).expect_err("no gzip");
}
