//! Folders with what the documents name: programs, records, files of other tools.

use std::{fs, path::Path, process::Command};

use rtscope_testing::executable;

use super::blocks::root;
use crate::support::{output, text};

/// rtscope as the documents' commands find it: what measures is as short as it may be, and a verdict is no failure.
const SHORT: &str = r#"
short=
case "$1" in
  run | network) short='--scale 0.005' ;;
  throughput) short='--duration 100ms' ;;
  check | drift | explain | load) short='--duration 1s' ;;
  sched) case "$2" in run) short='--work 20ms' ;; esac ;;
  cyclictest) short='-D 1' ;;
  stat) short='--repeat 1' ;;
  wave) case "$2" in generate | capture) short='--duration 1s' ;; esac ;;
esac
# What it replaces. A run has two options for its length.
replaced="${short% *}"
case "$1" in run) replaced='--scale --duration' ;; esac
left=$#
while [ $left -gt 0 ]; do
  word=$1
  shift
  left=$((left - 1))
  case "$word" in
    --) set -- "$@" $short; short=; replaced= ;;
    --cycles | --until | --help) short= ;;
    --at-most) shift; left=$((left - 1)); set -- "$@" "$word" 1s; continue ;;
  esac
  case " $replaced " in
    *" $word "*) shift; left=$((left - 1)) ;;
    *) set -- "$@" "$word" ;;
  esac
done
"$PROGRAM" "$@" $short
code=$?
case $code in 2 | 3) code=0 ;; esac
exit $code
"#;

/// Programs that the documents call: each wakes every millisecond for three seconds, whatever its arguments are.
const PROGRAMS: [&str; 5] = ["my-program", "my-control-loop", "daemon", "old", "new"];

/// The path on which a block finds its programs.
pub(super) fn path(room: &Path) -> String {
    format!("{}:{}", room.join(".bin").display(), std::env::var("PATH").unwrap_or_default())
}

fn script(path: &Path, text: &str) {
    executable::write(path, &format!("#!/bin/sh\n{text}\n"));
}

/// A board that is this machine: what is typed for it runs in a folder of its own.
const SSH: &str = r#"
[ "$1" = root@board ] && shift && cd "$BOARD" && exec sh -c "$*"
"#;

const SCP: &str = r#"
for word; do
  case "$word" in root@board:*) word="$BOARD/${word#root@board:}" ;; esac
  set -- "$@" "$word"
  shift
done
exec cp "$@"
"#;

/// rtscope, sudo, the front ends, and the way to the board.
pub(super) fn programs(room: &Path) {
    let bin = room.join(".bin");
    fs::create_dir_all(&bin).expect("a folder");
    let program = env!("CARGO_BIN_EXE_rtscope");
    script(&bin.join("rtscope"), &format!("PROGRAM={program}\n{SHORT}"));
    script(&bin.join("sudo"), "exec \"$@\"");
    let board = room.join(".board");
    fs::create_dir(&board).expect("a folder");
    for (name, text) in [("ssh", SSH), ("scp", SCP)] {
        script(&bin.join(name), &format!("BOARD={}\n{text}", board.display()));
    }
    for name in ["cyclictest", "hackbench"] {
        script(&bin.join(name), &format!("exec rtscope {name} \"$@\""));
    }
}

/// Records that pages name without saying how to make them.
const RECORDS: [&str; 15] = [
    "A",
    "B",
    "DIR",
    "DIR1",
    "DIR2",
    "a1",
    "a2",
    "a3",
    "b1",
    "b2",
    "b3",
    "stock",
    "rt",
    "run",
    "rtscope-runs/one",
];

/// Everything that pages name without saying how to make it.
pub(super) fn examples(room: &Path) {
    programs(room);
    let done = |line: &str| {
        let made = output(room, line);
        assert!(matches!(made.status.code(), Some(0 | 2 | 3)), "{line}: {}", text(&made.stderr));
        made
    };
    fs::create_dir(room.join("rtscope-runs")).expect("a folder");
    // The default plan with a tenth of its load: hundreds of processes take longer to come and go than a run lasts.
    let plan = text(&done("plan show quick").stdout).replace("groups=10", "groups=1");
    assert!(plan.contains("groups=1\""), "{plan}");
    fs::write(room.join(".quick.toml"), plan).expect("written");
    for name in RECORDS {
        done(&format!("run .quick.toml --scale 0.005 --quiet --out {name}"));
    }
    fs::create_dir(room.join("before")).expect("a folder");
    let printed = done("cyclictest -q -D 1 -h 400 --json=before/one.json").stdout;
    for name in ["cyclictest.txt", "cyclictest.log", "before.txt", "after.txt"] {
        fs::write(room.join(name), &printed).expect("written");
    }
    for name in PROGRAMS {
        script(&room.join(name), "exec ./motor --period-us 1000 --cycles 3000");
    }
    std::os::unix::fs::symlink(root().join("fixtures"), room.join("fixtures")).expect("a link");
    done("new motor --lang c");
    let made = Command::new("make").current_dir(room.join("motor")).output();
    assert!(made.is_ok_and(|made| made.status.success()), "a skeleton is made");
    fs::rename(room.join("motor"), room.join("made")).expect("moved");
    fs::copy(room.join("made/motor"), room.join("motor")).expect("copied");
}

/// A folder of its own for a page.
pub(super) fn copy(from: &Path, to: &Path) {
    let copied = Command::new("cp").arg("-a").arg(from.join(".")).arg(to).status();
    assert!(copied.is_ok_and(|status| status.success()), "copied");
}
