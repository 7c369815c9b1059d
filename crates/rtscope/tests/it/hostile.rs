//! Names that others choose (threads, hosts, kernels, plans, files) don't reach the terminal as
//! anything but text: no control character, and no line that looks like one of ours.

use std::{
    fs,
    path::Path,
    process::{Command, Output, Stdio},
};

use rtscope_testing::executable;

use crate::support::{folder, output_of, program, rtscope, skip, text, words};

/// Clears the line, rings, sets the title, turns the writing around, and begins a line of its own.
const NAME: &str = "x\u{1b}[2K\u{7}\u{9b}2K\u{202e}\u{1b}]0;t\u{7}\rq\nVerdict: PASS";

/// The same in TOML and JSON.
const QUOTED: &str = r#""x\u001b[2K\u0007\u009b2K\u202e\u001b]0;t\u0007\rq\nVerdict: PASS""#;

/// A copy of a shipped record, of which everything that has a name has that one.
fn record(folder: &Path) {
    let from = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/compare/stock");
    let to = folder.join("run");
    fs::create_dir_all(to.join("slices")).expect("a folder");
    let read = |name: &str| fs::read_to_string(from.join(name)).expect("a file");
    let write = |name: &str, text: &str| fs::write(to.join(name), text).expect("a file");
    for slices in fs::read_dir(from.join("slices")).expect("a folder").flatten() {
        let name = format!("slices/{}", slices.file_name().to_string_lossy());
        write(&name, &read(&name));
    }
    let plan = read("plan.toml").replacen("name = \"lab-quick\"", &format!("name = {QUOTED}"), 1);
    write("plan.toml", &plan.replace("name = \"disk\"", &format!("name = {QUOTED}")));
    let mut machine: serde_json::Value =
        serde_json::from_str(&read("environment.before.json")).expect("json");
    machine["host"] = NAME.into();
    machine["machine_model"] = NAME.into();
    machine["kernel"]["release"] = NAME.into();
    write("environment.before.json", &machine.to_string());
    let found = format!(
        r#"{{"at_ns":1,"event":"found","code":{QUOTED},"weight":"warning","text":{QUOTED},"advice":{QUOTED}}}"#
    );
    let events = read("events.jsonl");
    let (first, rest) = events.split_once('\n').expect("lines");
    write("events.jsonl", &format!("{first}\n{found}\n{rest}"));
}

fn run(folder: &Path, arguments: &[&str]) -> Output {
    output_of(rtscope(folder).args(arguments))
}

/// Checks all that was printed; the name must be in it, as far as that is said.
fn check(what: &str, output: &Output, is_named: bool) {
    let printed = text(&output.stdout) + &text(&output.stderr);
    let obeyed = |c: char| c.is_control() && c != '\n' && c != '\t' || c == '\u{202e}';
    assert!(!printed.contains(obeyed), "{what}: {printed:?}");
    assert!(!printed.lines().any(|line| line.starts_with("Verdict: PASS")), "{what}: {printed}");
    assert!(!is_named || printed.contains("Verdict: PASS"), "{what} doesn't name it: {printed}");
}

#[test]
fn a_record_is_only_text() {
    let folder = folder();
    let here = folder.path();
    record(here);
    record(here);
    fs::rename(here.join("run"), here.join("again")).expect("renamed");
    record(here);
    for (line, is_named) in [
        ("report run", true),
        ("report run --json", true),
        ("compare run again", true),
        ("compare --json run -- again", true),
        ("claim run --limit 1ms --once-in 1s", true),
        ("plot run --out p.svg", false),
        ("history import run --store h.db", false),
        ("history list --store h.db", true),
        ("history show 1 --store h.db", true),
        ("plan check run/plan.toml", false),
        ("plan show run/plan.toml", false),
    ] {
        check(
            line,
            &run(here, &words(line).iter().map(String::as_str).collect::<Vec<_>>()),
            is_named,
        );
    }
    for format in ["csv", "csv-slices", "json", "junit", "ktap", "openmetrics", "markdown", "lava"]
    {
        let output = run(here, &["export", "run", "--format", format]);
        assert_eq!(output.status.code(), Some(0), "{format}: {}", text(&output.stderr));
        check(format, &output, format != "lava");
    }
}

#[test]
fn the_name_of_a_file_is_only_text() {
    let folder = folder();
    let here = folder.path();
    record(here);
    fs::rename(here.join("run"), here.join(NAME)).expect("renamed");
    fs::write(
        here.join("file"),
        "T: 0 (18607) P:80 I:1000 C: 3000 Min: 4 Act: 10 Avg: 9 Max: 98\n",
    )
    .expect("a file");
    fs::rename(here.join("file"), here.join(format!("{NAME}.txt"))).expect("renamed");
    let file = format!("{NAME}.txt");
    let missing = format!("{NAME}-not-there");
    for arguments in [
        &["report", NAME][..],
        &["compare", NAME, NAME],
        &["report", &missing],
        &["import", &file, "--out", "in"],
        &["import", &missing],
        &["import", NAME],
        &["run", &missing],
        &["run", "--out", NAME],
        &["export", NAME, "--format", "csv,junit", "--out", "results"],
        &["export", NAME, "--format", NAME],
        &["plan", "check", &file],
        &["ps", NAME],
        &[NAME],
    ] {
        check(&arguments.join(" "), &run(here, arguments), false);
    }
}

#[test]
fn the_name_of_a_thread_is_only_text() {
    let folder = folder();
    // A thread is called as its program's file, of which the kernel keeps 15 bytes.
    let program = folder.path().join("a\u{1b}[2K\nVerdict: P");
    executable::copy(Path::new("/bin/sleep"), &program);
    let mut thread = Command::new(&program).arg("60").spawn().expect("starts");
    let pid = thread.id().to_string();
    let look = run(folder.path(), &["ps", "--pid", &pid, "--look", "10ms"]);
    let tree = run(folder.path(), &["ps", "--pid", &pid, "--look", "10ms", "--tree"]);
    thread.kill().and_then(|()| thread.wait()).expect("it ends");
    for output in [look, tree] {
        check("ps", &output, false);
        let printed = text(&output.stdout);
        assert!(printed.contains(r"a\u001b[2K\nVerdict"), "{printed}");
    }
}

#[test]
fn a_run_shows_its_plan_s_names_as_text() {
    let folder = folder();
    let plan = format!(
        "name = {QUOTED}\ntitle = {QUOTED}\n[sampler]\nthreads = 1\npolicy = \"other\"\n\
         [[phase]]\nname = {QUOTED}\nduration = \"200ms\"\n"
    );
    fs::write(folder.path().join("p.toml"), plan).expect("a plan");
    let output = run(folder.path(), &["run", "p.toml", "--out", "run"]);
    check("run", &output, true);
    assert!(text(&output.stdout).contains("Verdict: MEASURED"), "{}", text(&output.stdout));
}

/// What a command prints on a terminal of this name.
fn on_a_terminal(folder: &Path, term: &str, no_color: &str, arguments: &str) -> Option<String> {
    let script = program("script")?;
    let command = format!("{} {arguments}", env!("CARGO_BIN_EXE_rtscope"));
    let output = output_of(
        Command::new(script)
            .args(["-qec", &command, "/dev/null"])
            .env("TERM", term)
            .env("NO_COLOR", no_color)
            .current_dir(folder)
            .stdin(Stdio::null()),
    );
    Some(text(&output.stdout))
}

#[test]
fn a_dumb_terminal_and_no_color_get_no_attributes() {
    let folder = folder();
    record(folder.path());
    let shown = |term: &str, no_color: &str, arguments: &str| {
        on_a_terminal(folder.path(), term, no_color, arguments)
    };
    let Some(coloured) = shown("xterm", "", "report run") else {
        return skip("a_dumb_terminal_and_no_color_get_no_attributes", "no script command");
    };
    assert!(coloured.contains("\u{1b}[1"), "an empty NO_COLOR is none: {coloured}");
    // A screen that is redrawn moves the cursor and resets attributes that were never set.
    let is_attribute = |sequence: &&str| {
        let end = sequence.find(|c: char| c.is_ascii_alphabetic()).unwrap_or(0);
        sequence[end..].starts_with('m') && !["0", ""].contains(&&sequence[..end])
    };
    for (term, no_color) in [("xterm", "1"), ("dumb", "")] {
        let report = shown(term, no_color, "report run").expect("script is there");
        assert!(!report.contains('\u{1b}'), "{report:?}");
        let measure = format!("run quick --duration 300ms --threads 1 --policy other --out {term}");
        let run = shown(term, no_color, &measure).expect("script is there");
        assert_eq!(run.split("\u{1b}[").skip(1).filter(is_attribute).count(), 0, "{run:?}");
        assert!(term == "xterm" || !run.contains('\u{1b}'), "{run:?}");
    }
}
