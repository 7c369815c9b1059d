//! Other programs: found before they are needed, run with their words kept.

mod group;

use std::{
    ffi::OsString,
    fs::File,
    io::{BufRead, BufReader, Read, Seek, SeekFrom},
    os::fd::AsFd,
    path::{Path, PathBuf},
    process::{Command, ExitStatus, Stdio},
    time::Duration,
};

use self::group::Group;
pub use self::group::end_all;
pub(crate) use self::group::in_terminal;
use crate::{
    error::LabError,
    progress::{Report, StepProgress},
};

/// What a step needs: a program or a header, and the Debian package that has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Need {
    /// A program's name, or a header's path below an include folder.
    pub name: String,
    pub package: String,
}

impl Need {
    /// A program or, when the name ends in `.h`, a header.
    #[must_use]
    pub fn of(name: &str, package: &str) -> Need {
        Need { name: name.to_owned(), package: package.to_owned() }
    }

    fn is_met(&self) -> bool {
        if self.name.ends_with(".h") {
            let include = Path::new("/usr/include");
            let own = format!("{}-linux-gnu", std::env::consts::ARCH);
            return include.join(&self.name).exists()
                || include.join(own).join(&self.name).exists();
        }
        find(&self.name).is_some()
    }
}

#[must_use]
pub fn find(program: &str) -> Option<PathBuf> {
    std::env::split_paths(&search_path())
        .map(|folder| folder.join(program))
        .find(|path| path.is_file())
}

/// Where programs are looked for. Those of the system's owner are not in everybody's path.
fn search_path() -> OsString {
    let mut path = std::env::var_os("PATH").unwrap_or_default();
    path.push(":/usr/sbin:/sbin");
    path
}

/// Checks that everything needed is there.
///
/// # Errors
///
/// [`LabError::Lacking`], with the one command that gets all that is missing.
pub fn require(needs: &[Need]) -> Result<(), LabError> {
    let mut missing: Vec<&Need> = Vec::new();
    for need in needs.iter().filter(|need| !need.is_met()) {
        // Several steps may need it.
        if !missing.contains(&need) {
            missing.push(need);
        }
    }
    if missing.is_empty() {
        return Ok(());
    }
    let mut packages: Vec<&str> = missing.iter().map(|need| need.package.as_str()).collect();
    packages.sort_unstable();
    packages.dedup();
    let packages = packages.join(" ");
    let command = match find("apt-get") {
        Some(_) if rustix::process::geteuid().is_root() => {
            format!("run `apt-get install {packages}`")
        }
        Some(_) => format!("run `sudo apt-get install {packages}`"),
        None => format!(
            "on Debian run `apt-get install {packages}`, on other systems install the packages with the same content"
        ),
    };
    let lacking = missing.iter().map(|need| need.name.clone()).collect();
    Err(LabError::Lacking { lacking, command })
}

/// Runs a program to its end and returns its standard output.
///
/// # Errors
///
/// It can't be started, or it fails: with what it said.
pub fn output(command: &mut Command) -> Result<String, LabError> {
    bytes_of(command).map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
}

/// As [`output`], for what is no text.
pub fn bytes_of(command: &mut Command) -> Result<Vec<u8>, LabError> {
    bytes_of_at_most(command, u64::MAX)
}

/// As [`output`], for a program whose standard error is ours.
///
/// # Errors
///
/// As [`output`].
pub fn output_aloud(command: &mut Command) -> Result<String, LabError> {
    let program = PathBuf::from(command.get_program());
    let err = std::io::stderr().as_fd().try_clone_to_owned();
    let err = err.map_err(LabError::file("run", &program))?;
    let (bytes, status) = until_end(command, err.into(), u64::MAX)?;
    match status {
        Some(status) if !status.success() => {
            let (program, status) = (shown(command), status.to_string());
            Err(LabError::Program { program, status, said: String::new() })
        }
        _ => Ok(String::from_utf8_lossy(&bytes).into_owned()),
    }
}

/// Runs a program to its end, or until it has said more than `most` bytes; then there is no status.
fn until_end(
    command: &Command,
    err: Stdio,
    most: u64,
) -> Result<(Vec<u8>, Option<ExitStatus>), LabError> {
    let program = PathBuf::from(command.get_program());
    let failed = |cause| LabError::File { operation: "run", path: program.clone(), cause };
    let (mut reader, writer) = std::io::pipe().map_err(failed)?;
    let group = Group::start(command, writer.into(), err).map_err(failed)?;
    let mut bytes = Vec::new();
    reader.by_ref().take(most.saturating_add(1)).read_to_end(&mut bytes).map_err(failed)?;
    let status = match bytes.len() as u64 > most {
        true => None,
        false => Some(group.wait().map_err(failed)?),
    };
    Ok((bytes, status))
}

/// As [`bytes_of`], for a program that may say more than it should: it is ended when it has said more than `most` bytes,
/// and what it said is one byte more.
pub fn bytes_of_at_most(command: &mut Command, most: u64) -> Result<Vec<u8>, LabError> {
    let program = PathBuf::from(command.get_program());
    let failed = |cause| LabError::File { operation: "run", path: program.clone(), cause };
    let mut said = tempfile().map_err(failed)?;
    let copy = said.try_clone().map_err(failed)?;
    let (bytes, status) = until_end(command, copy.into(), most)?;
    let Some(status) = status.filter(|status| !status.success()) else { return Ok(bytes) };
    let mut complaint = all_of(&mut said);
    if complaint.trim().is_empty() {
        complaint = String::from_utf8_lossy(&bytes).into_owned();
    }
    let program = shown(command);
    Err(LabError::Program { program, status: status.to_string(), said: complaint })
}

/// Runs programs each of which reads what the one before it writes; what the last one writes is lost.
/// Of the commands only program and words count.
///
/// # Errors
///
/// One of them can't be started, or fails: with what all of them said.
pub fn pipeline(commands: &[Command]) -> Result<(), LabError> {
    // One shell has all of them in one group. A pipeline's status is that of its last program, so each
    // tells its own when it fails.
    let mut script = String::new();
    let mut words = Vec::new();
    for command in commands {
        script += if script.is_empty() { "{ " } else { " | { " };
        for word in std::iter::once(command.get_program()).chain(command.get_args()) {
            words.push(word);
            script += &format!("\"${{{}}}\" ", words.len());
        }
        script += "4>&- || echo $? >&4; }";
    }
    let script = format!("failed=$({{ {script}; }} 4>&1 >/dev/null); exit ${{failed%%[!0-9]*}}");
    let mut shell = Command::new("sh");
    shell.args(["-c", &script, "rtscope"]).args(words);
    output(&mut shell).map(drop).map_err(|error| match error {
        LabError::Program { status, said, .. } => {
            let program = commands.iter().map(shown).collect::<Vec<_>>().join(" | ");
            LabError::Program { program, status, said }
        }
        other => other,
    })
}

/// Runs a program that fetches something, and says how much is there while it does. `bytes` is asked
/// twice a second.
pub fn fetching(
    command: &mut Command,
    bytes: impl Fn() -> u64,
    report: &mut Report<'_>,
) -> Result<(), LabError> {
    let program = PathBuf::from(command.get_program());
    let failed = |cause| LabError::File { operation: "run", path: program.clone(), cause };
    let mut said = tempfile().map_err(failed)?;
    let copy = said.try_clone().map_err(failed)?;
    let mut group = Group::start(command, Stdio::null(), copy.into()).map_err(failed)?;
    let status = loop {
        if let Some(status) = group.ended().map_err(failed)? {
            break status;
        }
        std::thread::sleep(Duration::from_millis(500));
        report(StepProgress::Amount {
            unit: "MiB",
            done: bytes() / (1024 * 1024),
            total: None,
            seconds_left: None,
            at: String::new(),
        });
    };
    if status.success() {
        return Ok(());
    }
    let program = shown(command);
    Err(LabError::Program { program, status: status.to_string(), said: all_of(&mut said) })
}

fn all_of(said: &mut File) -> String {
    let mut bytes = Vec::new();
    let _ = said.seek(SeekFrom::Start(0)).and_then(|_| said.read_to_end(&mut bytes));
    String::from_utf8_lossy(&bytes).into_owned()
}

/// A file without a name, for what a program says.
fn tempfile() -> std::io::Result<File> {
    use rustix::fs::{Mode, OFlags};
    let flags = OFlags::TMPFILE | OFlags::RDWR;
    let file = rustix::fs::open(std::env::temp_dir(), flags, Mode::RUSR | Mode::WUSR)?;
    Ok(File::from(file))
}

/// Runs a program and hands over each line of its output, both streams in their order.
pub fn each_line(
    command: &mut Command,
    mut line: impl FnMut(&str),
) -> Result<ExitStatus, LabError> {
    let program = PathBuf::from(command.get_program());
    let (reader, writer) = std::io::pipe().map_err(LabError::file("make a pipe to", &program))?;
    let second = writer.try_clone().map_err(LabError::file("make a pipe to", &program))?;
    let group = Group::start(command, writer.into(), second.into())
        .map_err(LabError::file("run", &program))?;
    for piece in BufReader::new(reader).split(b'\n') {
        let Ok(piece) = piece else { break };
        line(&String::from_utf8_lossy(&piece));
    }
    group.wait().map_err(LabError::file("wait for", &program))
}

fn shown(command: &Command) -> String {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    let words: Vec<_> = words.map(|word| word.to_string_lossy()).take(8).collect();
    words.join(" ")
}

/// Unpacks what lies below a path of a Debian package.
pub(crate) fn extract_package(package: &Path, to: &Path, below: &str) -> Result<(), LabError> {
    let mut archive = Command::new("dpkg-deb");
    archive.arg("--fsys-tarfile").arg(package);
    let mut tar = Command::new("tar");
    tar.args(["-x", "-f", "-", "--no-same-owner", "-C"]).arg(to).arg(below);
    pipeline(&[archive, tar])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_is_named_with_one_command() {
        let needs = [
            Need::of("sh", "dash"),
            Need::of("no-such-program", "zebra"),
            Need::of("no/such/header.h", "antelope"),
            Need::of("no-such-other", "zebra"),
            Need::of("no-such-program", "zebra"),
        ];
        let said = require(&needs).expect_err("lacking").to_string();
        assert!(
            said.starts_with(
                "this machine lacks no-such-program, no/such/header.h, no-such-other:"
            )
        );
        assert!(said.contains("antelope zebra") && !said.contains("dash"), "{said}");
        assert!(require(&needs[..1]).is_ok());
    }

    #[test]
    fn a_program_has_a_session_of_its_own_and_the_folders_of_root_s_programs() {
        let script = "echo $$; cut -d ' ' -f 6 /proc/$$/stat; echo $PATH";
        let said = output(Command::new("sh").args(["-c", script])).expect("runs");
        let [process, session, path] = said.lines().collect::<Vec<_>>()[..] else {
            panic!("{said}")
        };
        assert_eq!(process, session);
        assert!(path.ends_with(":/usr/sbin:/sbin"), "{path}");
    }

    #[test]
    fn a_program_that_is_not_there_is_no_shell_s_matter() {
        let said = output(&mut Command::new("no-such-program")).expect_err("none").to_string();
        assert!(said.starts_with("can't run no-such-program: ") && !said.contains("sh:"), "{said}");
    }

    #[test]
    fn a_pipeline_is_done_when_each_of_its_programs_is() {
        let folder = tempfile::tempdir().expect("a folder");
        let of = |script: &str, word: &str| {
            let mut command = Command::new("sh");
            command.args(["-c", script, word]);
            command
        };
        let place = folder.path().join("what it's $called");
        let mut last = of("cat > \"$1\"", "sh");
        last.arg(&place);
        let all = [of("echo $0", "a  'b'"), of("cat; cat", "sh"), last];
        pipeline(&all).expect("done");
        assert_eq!(std::fs::read_to_string(&place).expect("written"), "a 'b'\n");
        for failing in 0..3 {
            let mut all = ["echo one", "cat", "cat"].map(|script| of(script, "sh"));
            all[failing] = of("echo wrong thing >&2; cat; exit 3", "sh");
            let said = pipeline(&all).expect_err("fails").to_string();
            assert!(said.contains("exit status: 3") && said.contains("wrong thing"), "{said}");
        }
        let said = pipeline(&[Command::new("no-such-program")]).expect_err("none").to_string();
        assert!(said.starts_with("no-such-program failed (exit status: 127)"), "{said}");
    }

    #[test]
    fn a_failing_program_says_why() {
        let mut command = Command::new("sh");
        command.args(["-c", "echo wrong thing >&2; exit 3"]);
        let said = output(&mut command).expect_err("fails").to_string();
        assert!(said.contains("exit status: 3") && said.contains("wrong thing"), "{said}");
        let mut lines = Vec::new();
        let mut command = Command::new("sh");
        command.args(["-c", "echo one; echo two >&2"]);
        let status = each_line(&mut command, |line| lines.push(line.to_owned()));
        assert!(status.expect("runs").success());
        assert_eq!(lines, ["one", "two"]);
    }
}
