//! The drop-in front ends: the program under another tool's name, beside that tool where it is
//! installed, and read by what other people's scripts make of its output.

use std::{
    fs,
    os::unix::fs::symlink,
    path::Path,
    process::{Command, Output, Stdio},
    time::Duration,
};

use serde_json::Value;

use crate::support::{
    folder, kill, output_of, program, root_or_skip, rtscope, skip, text, wait_for, words,
};

/// A folder with the program under another name.
pub(crate) fn bin(folder: &Path, name: &str) -> std::path::PathBuf {
    let bin = folder.join("bin");
    fs::create_dir_all(&bin).expect("a folder");
    let link = bin.join(name);
    if !link.exists() {
        symlink(env!("CARGO_BIN_EXE_rtscope"), &link).expect("a link");
    }
    link
}

/// Runs the program through a link.
pub(crate) fn called(folder: &Path, name: &str, arguments: &[String]) -> Output {
    let mut command = Command::new(bin(folder, name));
    output_of(command.args(arguments).current_dir(folder).stdin(Stdio::null()))
}

fn cyclictest(folder: &Path, arguments: &str) -> Output {
    called(folder, "cyclictest", &words(arguments))
}

/// A shell script with the links first in its path.
fn script(folder: &Path, script: &str) -> Output {
    let path = std::env::var("PATH").unwrap_or_default();
    let path =
        format!("{}:{path}", bin(folder, "cyclictest").parent().expect("a folder").display());
    bin(folder, "hackbench");
    let mut bash = Command::new("bash");
    output_of(bash.args(["-ec", script]).env("PATH", path).current_dir(folder).stdin(Stdio::null()))
}

/// A text with every number masked and blanks made one. Where a number is so large that it leaves no
/// blank before it, as a latency of 10 ms does, none is expected before any.
pub(crate) fn form(bytes: &[u8]) -> String {
    let mut form = String::new();
    for c in text(bytes).chars() {
        let c = if c.is_ascii_digit() { 'N' } else { c };
        let repeated = matches!(c, 'N' | ' ') && form.ends_with(c);
        if !repeated {
            form.push(c);
        }
    }
    let form = form.replace("N.N", "N").replace("( N)", "(N)");
    // On a busy machine, the original prints latencies below 0 with the signals of a timer (-x).
    form.replace(": -N", ":N").replace(":-N", ":N").replace(": N", ":N")
}

#[test]
fn its_output_has_the_form_of_the_real_one() {
    if !root_or_skip("its_output_has_the_form_of_the_real_one") {
        return;
    }
    let Some(real) = program("cyclictest") else {
        skip("its_output_has_the_form_of_the_real_one", "without cyclictest (rt-tests)");
        return;
    };
    let folder = folder();
    // Without a latency that decides the form: every histogram is so narrow that all overflows.
    let lines = [
        "-q -l20",
        "-q -l20 -t3 -p80 --priospread",
        "-q -l20 -S -p80 -m",
        "-q -l20 -N -p80",
        "-q -l5 -h 1 -N -t2 -p80",
        "-q -l5 -H 1 -N -t2 -p80",
        "-q -l5 -H 1 -N -p80",
        "-q -l20 -b 1 -N -p80",
        "-q -l20 -b 10000000 -p80",
        "-v -l5 -p80",
        "-v -q -l5 -p80 -a 0",
        "-v -q -l5 -p80 -o 2 -h 1 -N",
        "-q -l5 -x -p80",
        "-q -l5 -s -p80",
        "-q -l5 -s -x -p80",
        "-q -l5 -r -p80",
        "-q -l5 -A 100 -p80",
        "-q -l5 --secaligned -p80",
        "-q -D1 -p80 -a 0",
        "-q -l5 --policy rr -t2",
        "-q -l5 --policy other -p5",
        "-q -l5 -p5 --policy other",
        "-q -l5 -p0",
        "-q -l5 -smp -p 80",
        "-q -l5 --latency 5",
        "-q -l5 --laptop",
        "-q -l5 -c 1 -p80",
        "-q -l5 --default-system",
        "-q -l5 --spike 1 -N -p80",
        "-q -l5 --json=/nonexistent/x",
        "-q -l5 --histfile /nonexistent/x -h 5",
        "-q -l5 --histfile kept -h 5",
        "-q -l5 -M -S -a 0 -t 3",
    ];
    for line in lines {
        let ours = cyclictest(folder.path(), line);
        let theirs = output_of(Command::new(&real).args(words(line)).current_dir(folder.path()));
        assert_eq!(form(&ours.stdout), form(&theirs.stdout), "{line}: {}", text(&ours.stderr));
        assert_eq!(ours.status.code(), theirs.status.code(), "{line}");
    }
    // Mistakes end alike: the help on standard output, the same code.
    for line in
        ["--bogus", "-q -p 100", "-h 0", "-o 2", "-c 3", "-a 7777", "-t0", "-A --secaligned", "-l"]
    {
        let ours = cyclictest(folder.path(), line);
        let theirs = output_of(Command::new(&real).args(words(line)));
        assert_eq!(ours.status.code(), theirs.status.code(), "{line}");
        for output in [ours, theirs] {
            assert!(text(&output.stdout).starts_with("cyclictest V "), "{line}");
        }
    }
}

#[test]
fn the_json_document_has_every_key_of_the_real_one() {
    if !root_or_skip("the_json_document_has_every_key_of_the_real_one") {
        return;
    }
    let folder = folder();
    let line = "-q -l50 -t2 -p80 -h 100000 --json=ours.json";
    let output = cyclictest(folder.path(), line);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let read = |name: &str| -> Value {
        let text = fs::read_to_string(folder.path().join(name)).expect("a document");
        // On a busy machine the real one may end before its second thread woke, whose average is then
        // no number, and no JSON.
        let text = text.replace("-nan", "0.0").replace("nan", "0.0");
        serde_json::from_str(&text).unwrap_or_else(|e| panic!("{e}: {text}"))
    };
    let ours = read("ours.json");
    let thread = &ours["thread"]["0"];
    let counted: u64 =
        thread["histogram"].as_object().expect("bins").values().filter_map(Value::as_u64).sum();
    let overflow = thread["overflow"].as_u64().expect("a count");
    assert_eq!(Some(counted + overflow), thread["cycles"].as_u64());
    // The first thread that is done ends the others.
    assert!(thread["cycles"].as_u64().is_some_and(|cycles| (1..=50).contains(&cycles)), "{thread}");
    let Some(real) = program("cyclictest") else {
        skip("the_json_document_has_every_key_of_the_real_one", "without cyclictest (rt-tests)");
        return;
    };
    let words = words("-q -l50 -t2 -p80 -h 100000 --json=theirs.json");
    output_of(Command::new(real).args(words).current_dir(folder.path()));
    let theirs = read("theirs.json");
    for (path, theirs, ours) in [
        ("", &theirs, &ours),
        ("sysinfo", &theirs["sysinfo"], &ours["sysinfo"]),
        ("thread.0", &theirs["thread"]["0"], thread),
    ] {
        for (key, value) in theirs.as_object().expect("an object") {
            let found = ours.get(key).unwrap_or_else(|| panic!("{path}.{key} is missing"));
            let kind = |value: &Value| std::mem::discriminant(value);
            assert_eq!(kind(found), kind(value), "{path}.{key}");
        }
    }
}

#[test]
fn strict_exit_codes_are_asked_for() {
    if !root_or_skip("strict_exit_codes_are_asked_for") {
        return;
    }
    let folder = folder();
    let code = |line: &str| cyclictest(folder.path(), line).status.code();
    assert_eq!(code("-q -l50 -N -b 1 -p80"), Some(0));
    assert_eq!(code("-q -l50 -N -b 1 -p80 --strict-exit"), Some(2));
    assert_eq!(code("-q -l5 -p80 --strict-exit"), Some(0));
    assert_eq!((code("--bogus"), code("--bogus --strict-exit")), (Some(0), Some(64)));
    // The verb, without a link.
    let output = output_of(rtscope(folder.path()).args(words("cyclictest -q -l5 -p80 -h 3")));
    assert!(text(&output.stdout).contains("\n# Max Latencies: "), "{}", text(&output.stderr));
}

#[test]
fn signals_and_the_pipe_show_the_state() {
    if !root_or_skip("signals_and_the_pipe_show_the_state") {
        return;
    }
    let folder = folder();
    let child = Command::new(bin(folder.path(), "cyclictest"))
        .args(words("-q -t2 -p80 -i1000 -F pipe"))
        .current_dir(folder.path())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("starts");
    let (id, minute) = (child.id(), Duration::from_secs(60));
    let snapshot = format!("/dev/shm/cyclictest{id}");
    let pipe = folder.path().join("pipe");
    // It is made after the snapshot's file, of which a killed cyclictest with this number may have left one.
    wait_for("the pipe", minute, || pipe.exists());
    // Opening it waits for the writer, reading for its end: one state.
    let state = fs::read_to_string(&pipe).expect("a state");
    assert_eq!(state.lines().filter(|line| line.starts_with("T: ")).count(), 2, "{state}");
    kill(id, "USR2");
    let shown = || fs::read_to_string(&snapshot).unwrap_or_default();
    wait_for("the snapshot", minute, || shown().contains("T: 1 ("));
    assert!(shown().contains("# cyclictest current status:"), "{}", shown());
    kill(id, "USR1");
    std::thread::sleep(Duration::from_millis(500));
    kill(id, "INT");
    let output = child.wait_with_output().expect("ends");
    assert_eq!(output.status.code(), Some(0));
    assert!(text(&output.stderr).contains("# cyclictest current status:"));
    assert!(!Path::new(&snapshot).exists() && !pipe.exists(), "left behind");
}

/// cyclictest leaves the timer slack of its threads alone, and ordinary threads have 50 us of it.
#[test]
fn an_ordinary_thread_keeps_its_timer_slack() {
    let folder = folder();
    let mut child = Command::new(bin(folder.path(), "cyclictest"))
        .args(words("-q -i1000"))
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("starts");
    let tasks = format!("/proc/{}/task", child.id());
    let of_measuring = || -> Vec<String> {
        let threads = fs::read_dir(&tasks).into_iter().flatten().flatten();
        let threads = threads.filter(|thread| thread.file_name() != *child.id().to_string());
        let slack = |id: std::ffi::OsString| {
            fs::read_to_string(Path::new("/proc").join(id).join("timerslack_ns"))
        };
        threads.filter_map(|thread| slack(thread.file_name()).ok()).collect()
    };
    wait_for("the measuring thread", Duration::from_secs(60), || !of_measuring().is_empty());
    std::thread::sleep(Duration::from_millis(300));
    let slack = of_measuring();
    kill(child.id(), "INT");
    assert!(child.wait().expect("ends").success());
    assert!(!slack.is_empty() && slack.iter().all(|ns| ns.trim() == "50000"), "{slack:?}");
}

/// Whether a process has a file of this name open: one that has been removed has another name.
fn has_open(pid: u32, path: &Path) -> bool {
    let files = fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
    files.filter_map(|file| fs::read_link(file.path()).ok()).any(|name| name == path)
}

/// As `get_cyclictest_snapshot` does it: a signal, and the file is read at once.
#[test]
fn a_snapshot_is_there_when_its_signal_was_sent() {
    if !root_or_skip("a_snapshot_is_there_when_its_signal_was_sent") {
        return;
    }
    let folder = folder();
    let mut child = Command::new(bin(folder.path(), "cyclictest"))
        .args(words("-q -t2 -p80 -i1000"))
        .stdout(Stdio::null())
        .spawn()
        .expect("starts");
    let (id, minute) = (child.id(), Duration::from_secs(60));
    let snapshot = format!("/dev/shm/cyclictest{id}");
    let shown = || fs::read_to_string(&snapshot).unwrap_or_default();
    // A killed cyclictest with this number may have left a file of that name.
    wait_for("the snapshot's file", minute, || {
        has_open(id, Path::new(&snapshot)) && shown().contains("T: 1 (")
    });
    // Whoever reads at any time finds both threads, never an empty file.
    for _ in 0..200 {
        kill(id, "USR2");
        let text = shown();
        assert!(text.contains("T: 0 (") && text.contains("T: 1 ("), "{text:?}");
    }
    wait_for("a new state", minute, || !shown().contains("C:      0 "));
    kill(id, "INT");
    assert!(child.wait().expect("ends").success());
}

#[test]
fn the_trace_is_stopped_where_its_file_system_is_not_mounted() {
    const TEST: &str = "the_trace_is_stopped_where_its_file_system_is_not_mounted";
    if !root_or_skip(TEST) {
        return;
    }
    let folder = folder();
    // A name space of its own, in which nothing hides or shows the trace.
    let script = "umount -q /sys/kernel/tracing; umount -q /sys/kernel/debug/tracing; umount -q /sys/kernel/debug; \
                  grep -cE '^[^ ]+ [^ ]+ (tracefs|debugfs) ' /proc/mounts; \
                  exec \"$0\" -q -l50 -p80 -N -b 1 --tracemark";
    let mut unshare = Command::new("unshare");
    let cyclictest = bin(folder.path(), "cyclictest");
    unshare.args(["-m", "sh", "-c", script]).arg(cyclictest).stdin(Stdio::null());
    let output = output_of(&mut unshare);
    let (stdout, stderr) = (text(&output.stdout), text(&output.stderr));
    if !stdout.starts_with("0\n") {
        skip(TEST, "needs the right to mount");
        return;
    }
    let switch = Path::new("/sys/kernel/tracing/tracing_on");
    if stderr.contains("FATAL") && !switch.exists() {
        skip(TEST, "needs a kernel with tracefs");
        return;
    }
    assert!(stdout.contains("# Break value: "), "{stdout} {stderr}");
    if switch.exists() {
        assert_eq!(fs::read_to_string(switch).expect("a switch").trim(), "0", "{stderr}");
        fs::write(switch, "1").expect("put back");
    }
}

/// The argument lists of programs that call cyclictest, as they build them.
#[test]
fn command_lines_of_others_work() {
    if !root_or_skip("command_lines_of_others_work") {
        return;
    }
    let folder = folder();
    let run = |list: &[&str]| {
        let list: Vec<String> = list.iter().map(|word| (*word).to_owned()).collect();
        let output = called(folder.path(), "cyclictest", &list);
        assert_eq!(output.status.code(), Some(0), "{list:?}: {}", text(&output.stderr));
        text(&output.stdout)
    };
    // rteval: a value behind a blank in one word, an empty word, options bundled and repeated.
    let rteval =
        run(&["", "-qmu", "-h 3500", "-p95", "-t1", "-a0", "--default-system", "-b1", "-D1"]);
    assert!(
        rteval.contains("\n# Max Latencies: ") && rteval.contains("\n# Break value: "),
        "{rteval}"
    );
    let columns = rteval.lines().filter(|line| line.starts_with(|c: char| c.is_ascii_digit()));
    assert!(columns.clone().all(|line| line.split_whitespace().count() == 2));
    assert_eq!(columns.count(), 3_500);
    // OpenShift: the duration ends in a letter that is none of the known ones. It takes the rest of the
    // line of maxima for one number a thread.
    let openshift =
        run(&["-D", "1s", "-p", "1", "-t", "1", "-a", "0", "-h", "30", "-i", "1000", "--quiet"]);
    let maxima = openshift.lines().find_map(|line| line.strip_prefix("# Max Latencies:"));
    let maxima = maxima.map(|maxima| maxima.trim().parse::<u64>());
    assert!(matches!(maxima, Some(Ok(max)) if max > 0), "{openshift}");
    // crucible: a file for the histogram, whose last maximum is that of all, and one for JSON.
    run(&[
        "--policy",
        "fifo",
        "--priority",
        "95",
        "--interval",
        "1000",
        "--histofall",
        "100",
        "--histfile",
        "histogram.txt",
        "--duration",
        "1",
        "--quiet",
        "--affinity",
        "0",
        "--threads",
        "2",
        "--mlockall",
        "--json",
        "cyclictest.json",
        "--mainaffinity",
        "0",
        "--breaktrace=1000000",
    ]);
    let histogram = fs::read_to_string(folder.path().join("histogram.txt")).expect("a histogram");
    let maxima = histogram.lines().find_map(|line| line.strip_prefix("# Max Latencies:"));
    let maxima: Vec<u64> =
        maxima.expect("maxima").split(' ').filter_map(|n| n.parse().ok()).collect();
    assert_eq!((maxima.len(), maxima[2]), (3, maxima[0].max(maxima[1])));
    let json = fs::read_to_string(folder.path().join("cyclictest.json")).expect("a document");
    let json: Value = serde_json::from_str(&json).expect("JSON");
    assert_eq!((&json["num_threads"], &json["return_code"]), (&2.into(), &0.into()));
}

/// The command lines of people: scheduler developers, and the kernel's documentation.
#[test]
fn command_lines_of_people_work() {
    if !root_or_skip("command_lines_of_people_work") {
        return;
    }
    let folder = folder();
    // Not real-time, a histogram in a file, percentiles made from it by hand.
    let line = "--policy other -D 1 -q -n -H 20000 --histfile data.txt";
    assert_eq!(cyclictest(folder.path(), line).status.code(), Some(0));
    let histogram = fs::read_to_string(folder.path().join("data.txt")).expect("a histogram");
    let rows = histogram.lines().filter(|line| line.starts_with(|c: char| c.is_ascii_digit()));
    let count = |line: &str| line.split_whitespace().nth(1).and_then(|n| n.parse::<u64>().ok());
    assert!(rows.filter_map(count).sum::<u64>() > 0, "{histogram}");
    // Obsolete -n.
    let kernel = text(&cyclictest(folder.path(), "-p80 -d0 -i250 -n -a -t -q -l100").stdout);
    assert!(kernel.contains("T: 0 ("), "{kernel}");
}

/// How rteval, Linaro and KernelCI read what they get: the rules, not their code.
#[test]
fn parsers_of_others_find_their_figures() {
    if !root_or_skip("parsers_of_others_find_their_figures") {
        return;
    }
    let folder = folder();
    // rteval: a column for each CPU of the list, in its order; comments by their beginning; whatever
    // else there is must be skipped.
    let cpus = machine_cpus();
    let list = cpus.iter().map(u32::to_string).collect::<Vec<_>>().join(",");
    let line =
        format!("-i100 -qmu '-h 3500' -p95 -t{} -a{list} --default-system -l200", cpus.len());
    let output = cyclictest(folder.path(), &line);
    let printed = text(&output.stdout);
    let (mut counts, mut maxima) = (vec![0u64; cpus.len()], Vec::new());
    for line in printed.lines().filter(|line| !line.is_empty()) {
        if let Some(list) = line.strip_prefix("# Max Latencies: ") {
            maxima =
                list.split_whitespace().map(|max| max.parse::<u64>().expect("a maximum")).collect();
        } else if !line.starts_with('#') {
            let numbers: Vec<u64> =
                line.split_whitespace().map(|n| n.parse().expect("a number")).collect();
            assert_eq!(numbers.len(), cpus.len() + 1, "{line}");
            counts.iter_mut().zip(&numbers[1..]).for_each(|(sum, count)| *sum += count);
        }
    }
    assert_eq!(maxima.len(), cpus.len(), "{printed}");
    // Where the machine stops for so long, all that a thread has may lie beyond the histogram.
    let seen = counts.iter().any(|count| *count > 0) || maxima.iter().any(|max| *max >= 3_500);
    assert!(seen && counts.iter().all(|count| *count <= 200), "{counts:?} {maxima:?}");
    // Linaro and KernelCI now: JSON, a result for each figure of each thread and the return code.
    cyclictest(folder.path(), "-q -l50 -t2 -p98 -h 100 --json=result.json");
    let json = fs::read_to_string(folder.path().join("result.json")).expect("a document");
    let json: Value = serde_json::from_str(&json).expect("JSON");
    assert_eq!(json["return_code"], 0);
    for thread in 0..json["num_threads"].as_u64().expect("a count") {
        let thread = &json["thread"][thread.to_string()];
        let of = |key: &str| thread[key].as_f64().expect("a figure");
        let is_sound = of("min") <= of("avg").ceil() && of("avg").floor() <= of("max");
        assert!(is_sound || of("cycles") == 0.0, "{thread}");
    }
    // Linaro before: the screen after its last escape, each line split at blanks and colons.
    let screen = text(&cyclictest(folder.path(), "-l100 -t2 -p98").stdout);
    let (_, last) = screen.rsplit_once('\u{1b}').expect("an escape");
    // Behind the last escape nothing is drawn again: the state is the one before it.
    let (before, _) = screen.rsplit_once('\u{1b}').expect("an escape");
    let shown = if last.contains("T:") { last } else { before };
    let shown = &shown[shown.rfind("T: 0").expect("the first thread")..];
    let threads: Vec<Vec<&str>> = shown
        .lines()
        .filter(|line| line.starts_with("T:"))
        .map(|line| line.split([' ', ':']).filter(|token| !token.is_empty()).collect())
        .collect();
    assert_eq!(threads.len(), 2, "{shown}");
    for tokens in &threads {
        let after = |name: &str| {
            let at = tokens.iter().position(|token| *token == name).expect("a token");
            tokens[at + 1].parse::<u64>().expect("a number")
        };
        assert!(after("Min") <= after("Max") || after("C") == 0, "{tokens:?}");
    }
}

/// The CPUs that this process may use.
fn machine_cpus() -> Vec<u32> {
    let status = fs::read_to_string("/proc/self/status").expect("/proc");
    let list = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
    let range = |part: &str| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let number = |text: &str| text.parse::<u32>().expect("a CPU");
        number(first)..=number(last)
    };
    list.expect("a list").trim().split(',').flat_map(range).collect()
}

/// What can't be had is said, with an exit code, where a script would take another figure for it.
#[test]
fn what_is_not_supported_is_refused() {
    if !root_or_skip("what_is_not_supported_is_refused") {
        return;
    }
    let folder = folder();
    let aux = cyclictest(folder.path(), "-q -l5 -p80 -c aux0");
    assert_eq!((aux.status.code(), text(&aux.stdout).as_str()), (Some(1), ""));
    assert!(text(&aux.stderr).contains("--clock aux0 is not supported"), "{}", text(&aux.stderr));
    // crucible's --smi: counted where the CPU shows it, refused as cyclictest refuses it elsewhere.
    let smi = cyclictest(folder.path(), "-q -l5 -p80 -a 0 -h 5 --smi");
    let counts = text(&smi.stdout).contains("\n# SMIs: ");
    let refused = text(&smi.stderr).contains("SMI counter is not supported");
    assert_eq!((counts, refused), (smi.status.code() == Some(0), smi.status.code() == Some(1)));
}

/// OSADL's way from a histogram to a plot: comments off, columns apart, the largest maximum.
#[test]
fn the_histogram_can_be_plotted_column_by_column() {
    if !root_or_skip("the_histogram_can_be_plotted_column_by_column") {
        return;
    }
    let folder = folder();
    let recipe = r#"
        cyclictest -l500 -m -Sp90 -i200 -h400 -q > output
        max=$(grep 'Max Latencies' output | tr ' ' '\n' | sort -n | tail -1 | sed 's/^0*//')
        grep -v -e '^#' -e '^$' output | tr ' ' '\t' > histogram
        cores=$(($(head -1 histogram | wc -w) - 1))
        for i in $(seq 1 $cores); do cut -f1,$((i + 1)) histogram > histogram$i; done
        echo "$max $cores $(wc -l < histogram1)"
    "#;
    let output = script(folder.path(), recipe);
    let found = text(&output.stdout);
    let numbers: Vec<u64> = found.split_whitespace().filter_map(|n| n.parse().ok()).collect();
    assert_eq!(numbers.len(), 3, "{found} {}", text(&output.stderr));
    assert!(numbers[0] > 0 && numbers[1] > 0 && numbers[2] == 400, "{found}");
    plot(
        "the_histogram_can_be_plotted_column_by_column",
        folder.path(),
        "set logscale y\n",
        "'histogram1' using 1:2 with steps",
    );
}

/// The way of the three plotting scripts of an embedded project: verbose samples split by thread, then
/// plotted over time, and counted with cut, sort and uniq.
#[test]
fn verbose_samples_can_be_split_counted_and_plotted() {
    if !root_or_skip("verbose_samples_can_be_split_counted_and_plotted") {
        return;
    }
    let folder = folder();
    let recipe = r#"
        cyclictest -n -p 99 -i 1000 -v > 1.log &
        sleep 0.5
        hackbench -g 1 -l 20
        kill $!
        wait $! || true
        grep -v '^#' 1.log | while IFS="$IFS:" read -r thread cycle value; do
            case "$thread$cycle$value" in *[!0-9]*) continue ;; esac
            echo "$cycle $value" >> plot_thread$thread.log
        done
        cut -d: -f3 < 1.log | sort -n | uniq -c | sed 's/^ *//' | grep -E '^[0-9]+ +[0-9]+$' > latencydata
        echo "$(wc -l < plot_thread0.log) $(awk '{ n += $1 } END { print n }' latencydata)"
        awk 'NR > 1 && $1 != last + 1 { bad = 1 } { last = $1 } END { print bad + 0 }' plot_thread0.log
    "#;
    let output = script(folder.path(), recipe);
    let found = text(&output.stdout);
    assert!(found.contains("Time: "), "{found} {}", text(&output.stderr));
    let numbers: Vec<u64> = found
        .lines()
        .skip(3)
        .flat_map(str::split_whitespace)
        .filter_map(|n| n.parse().ok())
        .collect();
    // Every sample once, in order, and none but these has three columns ("Thread 0 Interval: N" is one).
    let [samples, counted, gaps] = numbers[..] else { panic!("{found}") };
    assert!(samples > 100 && gaps == 0, "{found}");
    assert!(counted == samples, "{found}");
    let test = "verbose_samples_can_be_split_counted_and_plotted";
    plot(test, folder.path(), "set xrange [1:*]\n", "'plot_thread0.log' notitle");
    plot(test, folder.path(), "set logscale x\n", "'latencydata' using 2:1 notitle with histeps");
}

fn plot(test: &str, folder: &Path, settings: &str, what: &str) {
    if program("gnuplot").is_none() {
        skip(test, "without gnuplot");
        return;
    }
    let _ = fs::remove_file(folder.join("plot.svg"));
    let commands = format!("set terminal svg\n{settings}set output 'plot.svg'\nplot {what}\n");
    fs::write(folder.join("plot.gp"), commands).expect("a file");
    let output = output_of(Command::new("gnuplot").arg("plot.gp").current_dir(folder));
    let plot = fs::read_to_string(folder.join("plot.svg")).unwrap_or_default();
    assert!(output.status.success() && plot.contains("</svg>"), "{}", text(&output.stderr));
}
