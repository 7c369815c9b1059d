//! Drop-in front ends: the command lines, outputs and exit codes of other tools, measured by ours.
//!
//! A front end runs as `rtscope NAME ...`, or when the program is called through a link of that name.
//! What its users' scripts read (standard output, files, exit codes) is as the other tool has it;
//! what they ought to know goes to standard error.

mod cyclictest;
mod getopt;
mod hackbench;

use std::{
    io::{self, Write},
    path::Path,
    process::ExitCode,
};

/// The version of rt-tests whose outputs these are.
const RT_TESTS_VERSION: &str = "2.40";

/// A front end: its name, and what it does with the words behind it.
struct FrontEnd {
    name: &'static str,
    main: fn(&[String]) -> u8,
}

const FRONT_ENDS: [FrontEnd; 2] = [
    FrontEnd { name: "cyclictest", main: cyclictest::main },
    FrontEnd { name: "hackbench", main: hackbench::main },
];

/// Runs the front end that the program was called as, or that its first word names; none for rtscope
/// itself.
pub(crate) fn main() -> Option<ExitCode> {
    let words: Vec<String> =
        std::env::args_os().map(|word| word.to_string_lossy().into_owned()).collect();
    let called = Path::new(words.first()?).file_name()?.to_string_lossy().into_owned();
    let find = |name: &str| FRONT_ENDS.iter().find(|front_end| front_end.name == name);
    let (front_end, rest) = match find(&called) {
        Some(front_end) => (front_end, &words[1..]),
        None => (find(words.get(1)?)?, &words[2..]),
    };
    Some(ExitCode::from((front_end.main)(rest)))
}

/// Writes to standard output; false when nobody reads it any more.
fn print(text: &str) -> bool {
    let mut stdout = io::stdout().lock();
    stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()).is_ok()
}

/// Lines on standard error. Nobody to read them is no error.
fn say(text: &str) {
    text.lines().for_each(|line| note!("{line}"));
}
