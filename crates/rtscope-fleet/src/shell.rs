//! Runs scripts at a place: by this machine's shell, by that of another through ssh, or as a step of a job of Slurm.
//!
//! ssh is the system's own, with the user's keys and configuration. It never asks for anything (`BatchMode`) and
//! checks the other host's key as it always does.

use std::{
    fs::File,
    io::{self, Read, Write},
    path::PathBuf,
    process::{Child, Command, Stdio},
    sync::atomic::{AtomicU64, Ordering::Relaxed},
    thread::{self, ScopedJoinHandle},
    time::{Duration, Instant},
};

use rtscope_model::{printable::printable, text::shell_word};
use rtscope_sys::{fork::signal, process, slurm};

use crate::{
    error::FleetError,
    places::{FleetPlace, Reach},
    slurm::Allocation,
};

/// How long a place may be silent, and take nothing.
pub const SILENCE_MAX: Duration = Duration::from_secs(60);

/// More than any answer of ours has; a place that says more is cut short.
const ANSWER_MAX: u64 = 4 << 20;

const COMPLAINT_MAX: u64 = 64 << 10;

const POLL: Duration = Duration::from_millis(10);

/// What ssh exits with when there is no connection (ssh(1)).
const SSH_FAILED: i32 = 255;

/// What a shell says of a program that it may not run, and of one that it doesn't find.
pub(crate) const NOT_EXECUTABLE: i32 = 126;
pub(crate) const NOT_FOUND: i32 = 127;

/// Words for ssh: it asks for nothing, compresses, and ends when the other side is silent for 15 s.
const SSH_WORDS: [&str; 14] = [
    "-T",
    "-C",
    "-o",
    "BatchMode=yes",
    "-o",
    "ConnectTimeout=10",
    "-o",
    "ServerAliveInterval=5",
    "-o",
    "ServerAliveCountMax=3",
    "-o",
    "ClearAllForwardings=yes",
    // A master connection that ssh keeps for others holds our pipes open forever. ssh may still use an existing one.
    "-o",
    "ControlMaster=no",
];

/// Runs a script in a step of Slurm, and says on standard error that it ended: srun's exit code doesn't tell a script that
/// failed from a node that is lost.
const STEP: &str = r#"script=$1; shift; sh -c "$script" rtscope "$@"; echo "rtscope-ended=$?" >&2"#;

const STEP_ENDED: &str = "rtscope-ended=";

/// Whether the user wants everything to end.
pub type Stop<'a> = &'a (dyn Fn() -> bool + Sync);

/// The shell of a place.
#[derive(Clone, Debug)]
pub struct Shell {
    way: Way,
    /// Where ssh begins relative paths.
    base: PathBuf,
    silence_max: Duration,
}

/// How a script gets to its shell.
#[derive(Clone, Debug)]
enum Way {
    Here,
    /// The program and its words before the command.
    Ssh(Vec<String>),
    Step(Allocation),
    /// The place was given back, or lost.
    Gone,
}

/// What a script did.
#[derive(Clone, Debug)]
pub struct ShellAnswer {
    pub code: i32,
    pub said: String,
    /// The end of what it said on standard error, printable.
    pub complaint: String,
}

/// What goes to a script, and where what it says goes.
#[derive(Debug)]
enum Flow<'a> {
    Words,
    Send(&'a mut File),
    Receive(&'a mut File, u64),
}

impl Shell {
    #[must_use]
    pub fn of(place: &FleetPlace) -> Shell {
        let way = match &place.reach {
            // A place of labgrid or Slurm is reached once it is handed out.
            Reach::Local | Reach::Labgrid { .. } | Reach::Slurm { .. } => Way::Here,
            Reach::Ssh { target, options } => {
                let words = ["ssh"].into_iter().chain(SSH_WORDS).map(str::to_owned);
                Way::Ssh(
                    words
                        .chain(options.iter().cloned())
                        .chain(["--".to_owned(), target.clone()])
                        .collect(),
                )
            }
        };
        Shell { way, base: place.base.clone(), silence_max: SILENCE_MAX }
    }

    /// The shell of this machine.
    pub(crate) fn here() -> Shell {
        Shell { way: Way::Here, base: PathBuf::new(), silence_max: SILENCE_MAX }
    }

    /// Of a node that Slurm has handed out; none when it was given back or lost.
    pub(crate) fn of_allocation(allocation: Option<Allocation>) -> Shell {
        Shell { way: allocation.map_or(Way::Gone, Way::Step), ..Shell::here() }
    }

    /// Runs a script for `sh` with words `$1`, `$2` and so on.
    ///
    /// # Errors
    ///
    /// There is no connection, it broke, nothing came for a minute, or the user ended it. A script that fails is none.
    pub fn run(
        &self,
        script: &str,
        words: &[&str],
        stop: Stop<'_>,
    ) -> Result<ShellAnswer, FleetError> {
        self.flow(script, words, Flow::Words, stop)
    }

    /// As [`Shell::run`]; the script reads a file from where it stands to its end.
    pub fn send(
        &self,
        script: &str,
        words: &[&str],
        from: &mut File,
        stop: Stop<'_>,
    ) -> Result<ShellAnswer, FleetError> {
        self.flow(script, words, Flow::Send(from), stop)
    }

    /// As [`Shell::run`]; what the script writes goes to a file, at most so many bytes of it.
    pub fn receive(
        &self,
        script: &str,
        words: &[&str],
        (to, bytes_max): (&mut File, u64),
        stop: Stop<'_>,
    ) -> Result<ShellAnswer, FleetError> {
        self.flow(script, words, Flow::Receive(to, bytes_max), stop)
    }

    fn flow(
        &self,
        script: &str,
        words: &[&str],
        flow: Flow<'_>,
        stop: Stop<'_>,
    ) -> Result<ShellAnswer, FleetError> {
        let Some(mut command) = self.command(script, words) else {
            return Err(FleetError::AllocationEnded(
                "Slurm's job for this place has ended".to_owned(),
            ));
        };
        slurm::without_defaults(&mut command);
        command.stdin(if matches!(flow, Flow::Send(_)) { Stdio::piped() } else { Stdio::null() });
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        // Ended with us, also after SIGKILL; what it started at the place looks after itself.
        process::bind_to_us(&mut command, true);
        let mut child = command.spawn().map_err(|e| match e.kind() {
            io::ErrorKind::NotFound => FleetError::Refused(
                match self.way {
                    Way::Step(_) => "this machine has no srun: run `apt-get install slurm-client`, or install it another way",
                    _ => "this machine lacks ssh: run `apt-get install openssh-client`, or install it another way",
                }
                .to_owned(),
            ),
            _ => FleetError::Connection(e.to_string()),
        })?;
        let moved = AtomicU64::new(0);
        let (input, output, errors) =
            (child.stdin.take(), child.stdout.take(), child.stderr.take());
        thread::scope(|scope| {
            let moved = &moved;
            let (reader, writer): (ScopedJoinHandle<'_, io::Result<Vec<u8>>>, _) = match flow {
                Flow::Words => (scope.spawn(move || copied(output, ANSWER_MAX, moved)), None),
                Flow::Send(file) => {
                    let send = scope.spawn(move || carry(Some(file), input, u64::MAX, moved));
                    (scope.spawn(move || copied(output, ANSWER_MAX, moved)), Some(send))
                }
                Flow::Receive(file, max) => (
                    scope.spawn(move || carry(output, Some(file), max, moved).map(|()| Vec::new())),
                    None,
                ),
            };
            let complaints = scope.spawn(move || copied(errors, COMPLAINT_MAX, moved));
            let ended = self.wait(&mut child, moved, stop);
            let received = joined(reader);
            // A place that stops to read isn't wrong with that: how much it has is asked afterwards.
            let _ = writer.map(joined);
            let complaint = joined(complaints).unwrap_or_default();
            let code = ended.map_err(|e| self.explained(e))?;
            let said = received.map_err(FleetError::file("write", "what the place sent"))?;
            self.answer(code, &said, &complaint)
        })
    }

    /// None where the place isn't ours any more.
    fn command(&self, script: &str, words: &[&str]) -> Option<Command> {
        let shell = ["sh", "-c", script, "rtscope"];
        let all = shell.into_iter().chain(words.iter().copied());
        Some(match &self.way {
            Way::Gone => return None,
            Way::Here => {
                let mut command = Command::new("sh");
                command.args(all.skip(1));
                command
            }
            Way::Ssh(ssh) => {
                let mut command = Command::new(&ssh[0]);
                // ssh hands one text to the other user's shell, whichever that is.
                let text: Vec<String> = all.map(shell_word).collect();
                if !self.base.as_os_str().is_empty() {
                    command.current_dir(&self.base);
                }
                command.args(&ssh[1..]).arg(text.join(" "));
                command
            }
            Way::Step(allocation) => {
                let step = allocation.words();
                let mut command = Command::new(&step[0]);
                command.args(&step[1..]).args(["sh", "-c", STEP, "rtscope", script]).args(words);
                command
            }
        })
    }

    /// Whether Slurm has taken the place away, as far as it answers.
    pub(crate) fn is_lost(&self) -> bool {
        match &self.way {
            Way::Step(allocation) => allocation.ended().is_some(),
            Way::Gone => true,
            Way::Here | Way::Ssh(_) => false,
        }
    }

    /// A connection that failed because Slurm took the place away is not tried again.
    fn explained(&self, why: FleetError) -> FleetError {
        match &self.way {
            Way::Step(allocation) => allocation.explained(why),
            _ => why,
        }
    }

    /// Waits for the program, as long as something moves. Its exit code.
    fn wait(
        &self,
        child: &mut Child,
        moved: &AtomicU64,
        stop: Stop<'_>,
    ) -> Result<i32, FleetError> {
        let (mut last, mut since) = (0, Instant::now());
        loop {
            let now = moved.load(Relaxed);
            if now != last {
                (last, since) = (now, Instant::now());
            }
            let why = match child.try_wait() {
                Ok(Some(status)) => return Ok(status.code().unwrap_or(SSH_FAILED)),
                Ok(None) if stop() => FleetError::Interrupted,
                Ok(None) if since.elapsed() > self.silence_max => FleetError::Connection(format!(
                    "no data arrived for {} s",
                    self.silence_max.as_secs()
                )),
                Ok(None) => {
                    thread::sleep(POLL);
                    continue;
                }
                Err(e) => FleetError::Connection(e.to_string()),
            };
            // Its whole group: a script at this machine has programs of its own, which keep the pipes open.
            let _ = process::signal_group(child.id(), signal::KILL);
            let _ = child.wait();
            return Err(why);
        }
    }

    fn answer(&self, code: i32, said: &[u8], complaint: &[u8]) -> Result<ShellAnswer, FleetError> {
        let complaint = String::from_utf8_lossy(complaint);
        let mut lines: Vec<&str> =
            complaint.lines().filter(|line| !line.trim().is_empty()).collect();
        let ended = lines.iter().rposition(|line| line.starts_with(STEP_ENDED));
        let ended = match &self.way {
            Way::Step(_) => ended.map(|at| lines.remove(at)),
            _ => None,
        };
        let last = &lines[lines.len().saturating_sub(3)..];
        let complaint = printable(&last.join("; ")).into_owned();
        let said = String::from_utf8_lossy(said).into_owned();
        let lost = |program: &str| match complaint.is_empty() {
            true => FleetError::Connection(format!("{program} ended without a message")),
            false => FleetError::Connection(complaint.clone()),
        };
        match &self.way {
            Way::Ssh(_) if code == SSH_FAILED => {
                let is_refused = ["Permission denied (", "Host key verification failed"];
                Err(match is_refused.iter().any(|why| complaint.contains(why)) {
                    true => FleetError::NotLetIn(complaint),
                    false => lost("ssh"),
                })
            }
            Way::Step(allocation) => {
                let code =
                    ended.and_then(|line| line.strip_prefix(STEP_ENDED)?.trim().parse().ok());
                let code = code.ok_or_else(|| allocation.explained(lost("srun")))?;
                Ok(ShellAnswer { code, said, complaint })
            }
            _ => Ok(ShellAnswer { code, said, complaint }),
        }
    }
}

impl ShellAnswer {
    /// What a script said that did what it should.
    ///
    /// # Errors
    ///
    /// It failed: with what it said.
    pub fn success(self) -> Result<String, FleetError> {
        match (self.code, self.complaint.is_empty()) {
            (0, _) => Ok(self.said),
            (code, true) => {
                Err(FleetError::Place(format!("the place's shell ended with exit code {code}")))
            }
            (_, false) => Err(FleetError::said(&self.complaint)),
        }
    }
}

fn joined<T>(thread: ScopedJoinHandle<'_, T>) -> T {
    thread.join().unwrap_or_else(|e| std::panic::resume_unwind(e))
}

/// All that comes, but no more than so many bytes are kept.
fn copied(from: Option<impl Read>, max: u64, moved: &AtomicU64) -> io::Result<Vec<u8>> {
    let mut kept = Vec::new();
    let Some(mut from) = from else { return Ok(kept) };
    let mut piece = vec![0; 16 << 10];
    loop {
        let n = match from.read(&mut piece) {
            Ok(0) | Err(_) => return Ok(kept),
            Ok(n) => n,
        };
        // What is too much counts as silence, so that a place that never stops is ended.
        let room = (max - kept.len() as u64).min(n as u64) as usize;
        kept.extend(&piece[..room]);
        moved.fetch_add(room as u64, Relaxed);
    }
}

/// Carries from one to the other until the end, or until `max` bytes: who sends more has a closed pipe.
fn carry(
    from: Option<impl Read>,
    to: Option<impl Write>,
    max: u64,
    moved: &AtomicU64,
) -> io::Result<()> {
    let (Some(mut from), Some(mut to)) = (from, to) else { return Ok(()) };
    let mut piece = vec![0; 64 << 10];
    let mut left = max;
    loop {
        let n = match from.read(&mut piece) {
            Ok(0) => return to.flush(),
            Ok(n) => n,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
            Err(e) => return Err(e),
        };
        let room = left.min(n as u64) as usize;
        to.write_all(&piece[..room])?;
        left -= room as u64;
        moved.fetch_add(room as u64, Relaxed);
        if room < n {
            return to.flush();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Seek, SeekFrom};

    use super::*;

    const GO_ON: Stop<'static> = &|| false;

    #[test]
    fn words_reach_a_script_as_they_are() {
        let words = ["a b", "it's", "$(exit 9)", "*", ""];
        let answer = Shell::here().run("printf '<%s>' \"$@\"; exit 3", &words, GO_ON).expect("run");
        assert_eq!((answer.code, answer.said.as_str()), (3, "<a b><it's><$(exit 9)><*><>"));
        // ssh joins its words with spaces, and the other side's shell reads them.
        let ssh = ["sh", "-c", "eval \"$0\""].map(str::to_owned).to_vec();
        let far = Shell { way: Way::Ssh(ssh), ..Shell::here() };
        let answer = far.run("printf '<%s>' \"$@\"", &words, GO_ON).expect("run");
        assert_eq!(answer.success().expect("0"), "<a b><it's><$(exit 9)><*><>");
    }

    #[test]
    fn a_broken_connection_is_no_answer_of_the_place() {
        let ssh = |code: &str| Shell {
            way: Way::Ssh(vec![
                "sh".into(),
                "-c".into(),
                format!("echo '\x1b[2Jlost' >&2; exit {code}"),
            ]),
            ..Shell::here()
        };
        let broken = ssh("255").run("", &[], GO_ON).expect_err("broken");
        assert!(broken.is_connection() && broken.to_string().contains("lost"), "{broken}");
        assert!(!broken.to_string().contains('\x1b'));
        let answered = ssh("4").run("", &[], GO_ON).expect("an answer");
        assert_eq!(answered.code, 4);
        assert!(answered.success().expect_err("failed").to_string().contains("lost"));
    }

    #[test]
    fn a_silent_place_and_a_flood_are_ended() {
        let impatient = Shell { silence_max: Duration::from_millis(300), ..Shell::here() };
        for script in ["sleep 100", "exec sleep 100 <&- >&-", "yes"] {
            let said = impatient.run(script, &[], GO_ON).expect_err(script);
            assert!(said.is_connection(), "{said}");
        }
        let stopped = Shell::here().run("sleep 100", &[], &|| true).expect_err("stopped");
        assert!(matches!(stopped, FleetError::Interrupted));
    }

    #[test]
    fn files_go_both_ways_and_no_further_than_allowed() {
        let mut file = tempfile::tempfile().expect("a file");
        file.write_all(&[7; 200_000]).expect("written");
        file.seek(SeekFrom::Start(50_000)).expect("sought");
        let answer = Shell::here().send("wc -c", &[], &mut file, GO_ON).expect("sent");
        assert_eq!(answer.said.trim(), "150000");
        let mut back = tempfile::tempfile().expect("a file");
        let script = "head -c 100000 /dev/zero";
        Shell::here().receive(script, &[], (&mut back, 100_000), GO_ON).expect("received");
        Shell::here().receive(script, &[], (&mut back, 10), GO_ON).expect("cut");
        assert_eq!(back.metadata().expect("there").len(), 100_010);
    }
}
