//! Mistakes: a clear error each, the right exit code, nothing lost, nothing left.

use std::{
    fs,
    process::{Command, Stdio},
    time::Duration,
};

use crate::support::{
    folder, json, output, output_of, program, refused, root_or_skip, rtscope, skip, text, wait_for,
    words,
};

/// A device that never ends filled the memory.
#[test]
fn a_plan_without_an_end_is_refused() {
    let said = ["/dev/zero is not a plan: it is larger than 16 MiB"];
    refused(folder().path(), "plan check /dev/zero", 64, &said);
}

#[test]
fn a_wrong_command_line_is_a_usage_error() {
    let folder = folder();
    let at = folder.path();
    refused(at, "", 64, &["Usage"]);
    refused(at, "reprot", 64, &["'report'"]);
    refused(at, "run --prio 80", 64, &["--priority"]);
    refused(at, "run qiuck", 64, &["qiuck", "did you mean \"quick\""]);
    refused(at, "run --priority 100", 64, &["priority is out of range", "1 to 99"]);
    refused(at, "run --priority 0", 64, &["priority is out of range"]);
    refused(at, "run --interval 0", 64, &["interval is out of range"]);
    refused(at, "run --interval 1", 64, &["is not a duration", "200us"]);
    refused(at, "run --cpus 4095", 64, &["4095", "not online"]);
    refused(at, "run --cpus x", 64, &["is not a set of CPUs"]);
    refused(at, "run --policy deadline --placement pinned", 64, &["pin", "--placement free"]);
    refused(at, "run --policy other --priority 5", 64, &["--priority has no meaning", "fifo"]);
    refused(at, "run --threads 1 --intervals 1ms,2ms", 64, &["2 values for 1 thread"]);
    refused(at, "run --break-above 0", 64, &["--break-above 0", "leave it out"]);
    refused(at, "run --priority -1", 64, &["--priority -1", "1 to 99"]);
    refused(at, "run --interval -5us", 64, &["--interval", "\"-5us\" is not a duration"]);
    let twice = "run --set throttling=off --set throttling=on";
    refused(at, twice, 64, &["throttling is set twice"]);
    refused(at, "run --resolution 1ns --buckets 10000000 --threads 2000", 64, &["memory"]);
    refused(at, "run --require 'max'", 64, &["max < 200us"]);
    refused(at, "run --scale 0", 64, &["factor above 0"]);
    refused(at, "run --cycles 0", 64, &["nothing to measure"]);
    refused(at, "run --cycles 10 --duration 1s", 64, &["--cycles", "--duration"]);
    refused(at, "run --scale -1", 64, &["factor above 0"]);
    refused(at, "run osadl --scale 1e30", 64, &["longer than 36500 d"]);
    refused(at, "run --duration 200000d", 64, &["longer than 36500 d"]);
    refused(at, "run --duration -5s", 64, &["\"-5s\" is not a duration"]);
    refused(at, "run --duration 0", 64, &["nothing to measure"]);
    refused(at, "load cpu --duration 0", 64, &["--duration must be more than 0"]);
    refused(at, "plot nowhere --kind histogram --out x.gif", 64, &[".svg or .png"]);
    refused(at, "plot nowhere --kind histo --out x.svg", 64, &["histogram"]);
    refused(at, "report nowhere", 1, &["nowhere"]);
    assert_eq!(fs::read_dir(at).expect("a folder").count(), 0, "a refused command leaves nothing");
}

#[test]
fn a_full_standard_output_is_named_and_each_cause_told_once() {
    let full = fs::OpenOptions::new().write(true).open("/dev/full").expect("a full device");
    let mut command = Command::new(env!("CARGO_BIN_EXE_rtscope"));
    let output = command.args(["plan", "list"]).stdout(full).output().expect("runs");
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("can't write to standard output: No space left"), "{said}");
    let folder = folder();
    let said = text(&self::output(folder.path(), "run --out /proc/no").stderr);
    assert_eq!(said.matches("os error").count(), 1, "{said}");
}

#[test]
fn a_wrong_plan_is_named_with_file_and_line() {
    let folder = folder();
    let plan = |text: &str| fs::write(folder.path().join("p.toml"), text).expect("a plan");
    let phase = "[[phase]]\nname = 'a'\nduration = '1s'\n";
    plan(&format!("name = 'x'\n[sampler]\nprioritty = 5\n{phase}"));
    refused(
        folder.path(),
        "run p.toml",
        64,
        &["p.toml:3", "prioritty", "did you mean \"priority\""],
    );
    plan(&format!("name = 'x'\n{phase}load = ['mesage']\n"));
    refused(folder.path(), "plan check p.toml", 64, &["p.toml:5", "did you mean \"message\""]);
    plan(&format!("name = 'x'\n{phase}load = ['message group=1']\n"));
    refused(folder.path(), "plan check p.toml", 64, &["p.toml:5", "group"]);
    plan(&format!("name = 'x'\nsettings = {{ throtling = 'off' }}\n{phase}"));
    refused(folder.path(), "plan check p.toml", 64, &["p.toml:2", "did you mean \"throttling\""]);
    plan("not toml at all");
    refused(folder.path(), "plan check p.toml", 64, &["p.toml:1"]);
    fs::write(folder.path().join("p.toml"), [0xff, 0xfe, 0x00]).expect("a plan");
    refused(folder.path(), "plan check p.toml", 1, &["can't read plan p.toml"]);
}

/// A load that could not start was found out when its phase began, maybe after hours.
#[test]
fn a_load_that_could_not_start_is_said_at_once() {
    let folder = folder();
    for (load, said) in [
        ("external -- nosuchcommand", "command \"nosuchcommand\" was not found: install it"),
        ("disk dir=nowhere", "can't write to the folder nowhere"),
        ("cpu cpus=4095", "CPU 4095 is not online: this machine has CPUs"),
    ] {
        let plan = format!(
            "name = 'x'\n[[phase]]\nname = 'rest'\nduration = '1h'\n\
             [[phase]]\nname = 'busy'\nduration = '1h'\nload = ['{load}']\n"
        );
        fs::write(folder.path().join("p.toml"), plan).expect("a plan");
        let place = format!("load \"{load}\" of phase \"busy\"");
        refused(folder.path(), "run p.toml --out run", 64, &[&place, said]);
        assert!(!folder.path().join("run").exists(), "nothing was begun");
        // The plan itself is right: on another machine it may run.
        let check = output(folder.path(), "plan check p.toml");
        let told = text(&check.stdout);
        assert_eq!(check.status.code(), Some(0), "{told}");
        assert!(
            told.contains("x: sound") && told.contains("note: 'rtscope run' would refuse"),
            "{told}"
        );
        assert!(told.contains(said), "{told}");
    }
}

#[test]
fn a_setting_that_this_machine_does_not_have_is_said_by_plan_check_too() {
    let folder = folder();
    let plan = "name = 'x'\n[[phase]]\nname = 'rest'\nduration = '1s'\n[[phase]]\nname = 'steered'\n\
                duration = '1s'\nsettings = { irq-affinity = '4095' }\n";
    fs::write(folder.path().join("p.toml"), plan).expect("a plan");
    let check = output(folder.path(), "plan check p.toml");
    let told = text(&check.stdout);
    assert_eq!(check.status.code(), Some(0), "{told}");
    assert!(told.contains("refuse this plan on this machine: irq-affinity: CPU 4095"), "{told}");
    let right = plan.replace("4095", "0");
    fs::write(folder.path().join("p.toml"), right).expect("a plan");
    let told = output(folder.path(), "plan check p.toml");
    assert!(!text(&told.stdout).contains("would refuse"), "{}", text(&told.stdout));
}

#[test]
fn a_folder_that_can_not_be_written_is_said_at_once() {
    let folder = folder();
    fs::write(folder.path().join("file"), "in the way").expect("a file");
    refused(folder.path(), "run --out file/run", 1, &["file/run", "--out"]);
    refused(folder.path(), "run --out /proc/run", 1, &["/proc/run"]);
    let first = output(folder.path(), "run --duration 500ms --out run --quiet");
    assert_eq!(first.status.code(), Some(0));
    refused(folder.path(), "run --out run", 1, &["already holds a record"]);
}

#[test]
fn a_full_disk_in_mid_run_loses_nothing() {
    if !root_or_skip("a_full_disk_in_mid_run_loses_nothing") {
        return;
    }
    if program("mount").is_none() {
        return skip("a_full_disk_in_mid_run_loses_nothing", "no mount command");
    }
    let folder = folder();
    let disk = folder.path().join("disk");
    fs::create_dir(&disk).expect("a folder");
    let mount = |arguments: &[&str]| Command::new("mount").args(arguments).arg(&disk).status();
    // Room for the plan and the first environment, not for the run.
    if !mount(&["-t", "tmpfs", "-o", "size=100k", "none"]).is_ok_and(|status| status.success()) {
        return skip("a_full_disk_in_mid_run_loses_nothing", "no tmpfs can be mounted here");
    }
    let output = output_of(
        rtscope(folder.path())
            .args(words("run quick --duration 3s --slice 100ms --raw --out disk/run --json")),
    );
    // Raw samples would have taken the room of all else.
    let raw = fs::metadata(disk.join("run/raw/t0.bin")).map_or(0, |found| found.len());
    let _ = Command::new("umount").arg(&disk).status();
    let stderr = text(&output.stderr);
    let document: serde_json::Value =
        serde_json::from_slice(&output.stdout).unwrap_or_else(|e| panic!("{e}: {stderr}"));
    assert!(stderr.contains("not on disk"), "{stderr}");
    assert_eq!(output.status.code(), Some(1), "the record is not whole: {stderr}");
    assert_eq!(stderr.matches("the record can't be written").count(), 1, "{stderr}");
    let findings = document["findings"].to_string();
    for code in ["record-not-written", "raw-not-written", "raw-samples-lost"] {
        assert!(findings.contains(code), "{code}: {findings}");
    }
    assert_eq!(raw, 0);
    for row in document["cells"]
        .as_array()
        .expect("cells")
        .iter()
        .flat_map(|c| c["cpus"].as_array().expect("CPUs"))
    {
        let count = |key: &str| row[key].as_u64().expect("a count");
        assert_eq!(count("planned"), count("recorded") + count("missed"));
        assert!(count("recorded") > 300, "all of it is judged: {row}");
    }
}

#[test]
fn a_run_whose_folder_is_removed_tells_its_figures() {
    let folder = folder();
    let child = rtscope(folder.path())
        .args(words("run quick --duration 3s --cpus last --out run --json"))
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("starts");
    let slices = folder.path().join("run/slices/t0.jsonl");
    wait_for("a slice", Duration::from_secs(20), || {
        fs::metadata(&slices).is_ok_and(|found| found.len() > 0)
    });
    fs::remove_dir_all(folder.path().join("run")).expect("removed");
    let output = child.wait_with_output().expect("ends");
    let stderr = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{stderr}");
    assert!(stderr.contains("not on disk: No such file"), "{stderr}");
    let document: serde_json::Value =
        serde_json::from_slice(&output.stdout).unwrap_or_else(|e| panic!("{e}: {stderr}"));
    assert_eq!(document["cells"].as_array().map(Vec::len), Some(3), "{document}");
    for cell in document["cells"].as_array().expect("cells") {
        assert!(cell["all"]["recorded"].as_u64() > Some(300), "{cell}");
    }
}

/// Who may read a record and not write it, or has no room, saw nothing of it.
#[test]
fn a_record_that_can_not_be_written_is_reported() {
    let folder = folder();
    let at = folder.path();
    assert_eq!(output(at, "run --duration 500ms --out run --quiet").status.code(), Some(0));
    for file in ["verdict.json", "report.html"] {
        fs::remove_file(at.join("run").join(file)).expect("removed");
        // Root may write everywhere, but not to a file of the name of a folder.
        fs::create_dir(at.join(format!("run/{file}.part"))).expect("a folder");
    }
    let told = output(at, "report run");
    let (stdout, stderr) = (text(&told.stdout), text(&told.stderr));
    assert_eq!(told.status.code(), Some(1), "{stderr}");
    assert!(stdout.contains("rest again") && stdout.contains("p99"), "{stdout}");
    assert!(stderr.contains("no page was written: can't write run/verdict.json"), "{stderr}");
    assert!(stderr.contains("--out"), "{stderr}");
    let document = json(at, "report run --json");
    assert_eq!(document["verdict"], "measured");
    // A verdict is a verdict with a page and without.
    let failed = output(at, "report run --require 'max < 1ns'");
    assert_ne!(failed.status.code(), Some(1), "{}", text(&failed.stderr));
    fs::create_dir(at.join("pages")).expect("a folder");
    for (out, page) in [("page.html", "page.html"), ("pages", "pages/report.html")] {
        let elsewhere = output(at, &format!("report run --out {out}"));
        assert_eq!(elsewhere.status.code(), Some(0), "{}", text(&elsewhere.stderr));
        assert!(text(&elsewhere.stdout).ends_with(&format!("Report: {page}\n")));
        assert!(fs::read_to_string(at.join(page)).expect("a page").contains("<svg"));
    }
}

#[test]
fn help_teaches() {
    let folder = folder();
    let help = output(folder.path(), "--help");
    assert_eq!(help.status.code(), Some(0));
    let help = text(&help.stdout);
    for word in ["run", "report", "plot", "plan", "load", "restore", "exit code"] {
        assert!(help.contains(word), "{word}");
    }
    let run = text(&output(folder.path(), "run --help").stdout);
    let run = run.split_whitespace().collect::<Vec<_>>().join(" ");
    for word in ["Examples", "--require", "--priority", "[default: quick, or soak with --until]"] {
        assert!(run.contains(word), "{word}");
    }
}
