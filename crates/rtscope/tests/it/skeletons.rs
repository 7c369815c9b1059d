//! `rtscope new`: each language's skeleton is written, built without a warning, and run; what it measured
//! is imported.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::Duration,
};

use crate::support::{
    folder, json, kill, output, output_of, program, root_or_skip, skip, text, wait_for, words,
};

/// A skeleton that was built, in its folder.
struct Built {
    folder: tempfile::TempDir,
    words: Vec<String>,
}

impl Built {
    /// Writes and builds; none, and said so, without its compiler.
    fn new(test: &str, language: &str) -> Option<Built> {
        let (tool, build, run) = match language {
            "c" => ("cc", "make CC=cc", "./motor"),
            "cpp" => ("g++", "make CXX=g++", "./motor"),
            "ada" => ("gnatmake", "make", "./motor"),
            "rust" => ("cargo", "cargo build --quiet --offline", "./target/debug/motor"),
            _ => ("python3", "python3 -W error -m py_compile main.py", "python3 -W error main.py"),
        };
        if program(tool).is_none() {
            skip(test, &format!("without {tool}"));
            return None;
        }
        let folder = folder();
        let written = output(folder.path(), &format!("new motor --lang {language}"));
        assert_eq!(written.status.code(), Some(0), "{}", text(&written.stderr));
        assert!(text(&written.stdout).contains("cd motor"), "{}", text(&written.stdout));
        let built = Built { folder, words: words(run) };
        let build = words(build);
        let mut command = built.command(&build[0]);
        let made = output_of(
            command
                .args(&build[1..])
                // The skeleton is built as it stands, not as the tests are.
                .env("RUSTFLAGS", "-D warnings")
                .env_remove("CARGO_TARGET_DIR")
                .env_remove("CARGO_BUILD_TARGET"),
        );
        let said = [text(&made.stdout), text(&made.stderr)].concat();
        assert!(made.status.success(), "{language}: {said}");
        assert!(!said.to_lowercase().contains("warning:"), "{language}: {said}");
        Some(built)
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join("motor")
    }

    fn command(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        command.current_dir(self.path()).stdin(Stdio::null());
        command
    }

    fn run(&self, options: &str) -> Command {
        let mut command = self.command(&self.words[0]);
        command.args(&self.words[1..]).args(words(options));
        command
    }
}

/// Policy numbers of a process's threads, and their priorities.
fn places(pid: u32) -> Vec<(u32, u32)> {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let place = |task: fs::DirEntry| {
        let stat = fs::read_to_string(task.path().join("stat")).ok()?;
        let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
        Some((fields.get(38)?.parse().ok()?, fields.get(37)?.parse().ok()?))
    };
    tasks.filter_map(place).collect()
}

/// Ends a program that a failed test left.
struct Left(Child);

impl Drop for Left {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn a_skeleton_does_what_it_says(test: &str, language: &str) {
    let Some(built) = Built::new(test, language) else { return };
    if !root_or_skip(test) {
        return;
    }
    runs_its_cycles(&built);
    ends_in_order_on_a_signal(&built);
    refuses_clearly(&built);
    keeps_its_grid(test, &built);
    crate::check::a_skeleton_has_no_findings(test, &built.path(), &built.words.join(" "));
}

fn runs_its_cycles(built: &Built) {
    let ran =
        output_of(&mut built.run(
            "--cycles 200 --period-us 2000 --policy rr --priority 60 --histogram latencies.txt",
        ));
    let said = text(&ran.stdout);
    assert_eq!(ran.status.code(), Some(0), "{}", text(&ran.stderr));
    assert!(said.contains("200 cycles, "), "{said}");
    let max_us =
        said.split("max ").nth(1).and_then(|rest| rest.split(' ').next()).expect("a figure");
    let record = json(&built.path(), "import latencies.txt --out record --json");
    let all = &record["cells"][0]["all"];
    assert_eq!(record["verdict"], "measured");
    assert_eq!(all["recorded"], 200, "{record}");
    let max_ns = all["latency_ns"]["max"].as_u64().expect("a maximum");
    assert_eq!((max_ns / 1_000).to_string(), max_us, "{record}");
}

/// Watched from outside: it sleeps until instants of its grid, and doesn't drift off it.
fn keeps_its_grid(test: &str, built: &Built) {
    let options = "--cycles 400 --period-us 2000 --policy fifo --priority 40 --histogram grid.txt";
    let command = format!("{} {options}", built.words.join(" "));
    let seen = output(&built.path(), &format!("drift --duration 20s --json -- {command}"));
    if text(&seen.stderr).contains("this kernel has no tracefs") {
        skip(test, "needs a kernel with tracefs");
        return;
    }
    let document: serde_json::Value = serde_json::from_slice(&seen.stdout)
        .unwrap_or_else(|e| panic!("{e}: {}", text(&seen.stderr)));
    let subject = &document["subjects"][0];
    assert_eq!(
        (&subject["behaviour"], &subject["meant"]),
        (&"absolute".into(), &"grid".into()),
        "{document}"
    );
    assert_eq!(subject["period_ns"].as_f64(), Some(2e6), "{subject}");
}

fn ends_in_order_on_a_signal(built: &Built) {
    for signal in ["INT", "TERM"] {
        let mut command = built.run("--policy fifo --priority 3 --histogram ended.txt");
        let child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().expect("starts");
        let mut left = Left(child);
        let pid = left.0.id();
        // The kernel's number of FIFO is 1.
        wait_for("the real-time thread", Duration::from_secs(20), || places(pid).contains(&(1, 3)));
        kill(pid, signal);
        wait_for("its end", Duration::from_secs(20), || {
            left.0.try_wait().expect("waited").is_some_and(|status| {
                assert_eq!(status.code(), Some(0), "SIG{signal}");
                true
            })
        });
        assert!(
            fs::read_to_string(built.path().join("ended.txt")).is_ok_and(|t| t.contains("# Max"))
        );
    }
}

fn refuses_clearly(built: &Built) {
    let refused = |command: &mut Command, code: i32, words: &[&str]| {
        let output = output_of(command);
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{said}");
        for word in words {
            assert!(said.contains(word), "{word}: {said}");
        }
    };
    refused(&mut built.run("--period-us 5"), 64, &["--period-us", "50 to 10000000", "--help"]);
    refused(&mut built.run("--policy fofi"), 64, &["--policy", "fifo"]);
    refused(&mut built.run("--speed 5"), 64, &["--speed", "--help"]);
    refused(&mut built.run("--cpu 1023"), 1, &["CPU 1023"]);
    let mut powerless = built.command("setpriv");
    powerless.args(["--bounding-set=-all", "--inh-caps=-all"]).args(&built.words);
    refused(&mut powerless, 1, &["can't", "limits.d", "--policy other"]);
    let helped = output_of(&mut built.run("--help"));
    assert_eq!(helped.status.code(), Some(0));
    let help = text(&helped.stdout);
    for option in ["--period-us", "--policy", "--priority", "--cpu", "--cycles", "--histogram"] {
        assert!(help.contains(option), "{option}: {help}");
    }
}

#[test]
fn a_c_skeleton_does_what_it_says() {
    a_skeleton_does_what_it_says("a_c_skeleton_does_what_it_says", "c");
}

#[test]
fn a_cpp_skeleton_does_what_it_says() {
    a_skeleton_does_what_it_says("a_cpp_skeleton_does_what_it_says", "cpp");
}

#[test]
fn an_ada_skeleton_does_what_it_says() {
    a_skeleton_does_what_it_says("an_ada_skeleton_does_what_it_says", "ada");
}

#[test]
fn a_rust_skeleton_does_what_it_says() {
    a_skeleton_does_what_it_says("a_rust_skeleton_does_what_it_says", "rust");
}

#[test]
fn a_python_skeleton_does_what_it_says() {
    a_skeleton_does_what_it_says("a_python_skeleton_does_what_it_says", "python");
}

#[test]
fn nothing_is_written_over_and_a_wrong_name_writes_nothing() {
    let folder = folder();
    let is_empty = |path: &Path| fs::read_dir(path).expect("a folder").next().is_none();
    for name in ["../motor", "2motor", "a/b", "-"] {
        let refused = output(folder.path(), &format!("new {name} --lang c"));
        assert_eq!(refused.status.code(), Some(64), "{name}");
        assert!(text(&refused.stderr).contains("the name m"), "{}", text(&refused.stderr));
    }
    let refused = output(folder.path(), "new motor --lang cobol");
    assert_eq!(refused.status.code(), Some(64));
    assert!(text(&refused.stderr).contains("python"), "{}", text(&refused.stderr));
    assert!(is_empty(folder.path()));
    fs::create_dir(folder.path().join("motor")).expect("made");
    let refused = output(folder.path(), "new motor --lang c");
    assert_eq!(refused.status.code(), Some(64));
    assert!(text(&refused.stderr).contains("there already"), "{}", text(&refused.stderr));
    assert!(is_empty(&folder.path().join("motor")));
}
