//! Programs with all that they start in a process group of their own, which ends when rtscope does,
//! whatever ends it: a `make` has compilers below it that no signal of ours would reach.

use std::{
    io::{self, PipeWriter},
    process::{Child, Command, ExitStatus, Stdio},
    sync::{Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use rtscope_sys::process::in_own_session;
use rustix::process::{Pid, Signal, kill_process_group};

use super::{find, search_path};

/// A watcher in the group reads from a pipe that only rtscope holds open. At its end the group is asked
/// to end, as half-written objects are removed then, and killed when it doesn't. The program takes the
/// shell's place; the watcher is no child of it, for a make that ends waits for all of its children.
const WATCHED: &str = "exec 3<&0 0</dev/null; \
    ( (trap '' TERM; read -r end <&3; kill -TERM 0; sleep 2; kill -KILL 0) >/dev/null 2>&1 &); \
    exec \"$@\" 3<&-";

/// How long a group may take to end when it is asked to.
const ENDS_IN: Duration = Duration::from_secs(5);

/// How often is looked whether it has.
const LOOK: Duration = Duration::from_millis(20);

/// The groups that run.
#[derive(Debug)]
struct Running {
    /// Their leaders. A number is in the list only as long as the group's watcher lives, so that it is
    /// no other group's.
    leaders: Vec<Pid>,
    /// No further one may start.
    ending: bool,
}

static RUNNING: Mutex<Running> = Mutex::new(Running { leaders: Vec::new(), ending: false });

/// Held while a program has the terminal.
static TERMINAL: Mutex<()> = Mutex::new(());

/// Runs a program that has this terminal, and with it its own way with Ctrl-C: [`end_all`] waits for its
/// end.
pub(crate) fn in_terminal(command: &mut Command) -> io::Result<ExitStatus> {
    let _held = TERMINAL.lock().unwrap_or_else(PoisonError::into_inner);
    command.status()
}

fn running() -> MutexGuard<'static, Running> {
    RUNNING.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A running program with its group.
#[derive(Debug)]
pub(super) struct Group {
    child: Child,
    leader: Pid,
    /// Its end is the watcher's sign.
    _alive: PipeWriter,
}

impl Group {
    /// Starts a command's program with its words, environment and folder, and these outputs.
    pub(super) fn start(command: &Command, out: Stdio, err: Stdio) -> io::Result<Group> {
        let program = command.get_program();
        // The shell would say it in its own words.
        let name = program.to_string_lossy();
        if !name.contains('/') && find(&name).is_none() {
            return Err(io::ErrorKind::NotFound.into());
        }
        let (reader, alive) = io::pipe()?;
        let mut shell = Command::new("sh");
        shell.args(["-c", WATCHED, "rtscope"]).arg(program).args(command.get_args());
        shell.env("PATH", search_path());
        for (name, value) in command.get_envs() {
            match value {
                Some(value) => shell.env(name, value),
                None => shell.env_remove(name),
            };
        }
        if let Some(folder) = command.get_current_dir() {
            shell.current_dir(folder);
        }
        shell.env("LC_ALL", "C").stdin(reader).stdout(out).stderr(err);
        // Without a terminal, a program that would ask for a password fails. In the background of ours it would stop.
        in_own_session(&mut shell);
        let mut running = running();
        if running.ending {
            return Err(io::ErrorKind::Interrupted.into());
        }
        let child = shell.spawn()?;
        let leader = Pid::from_child(&child);
        running.leaders.push(leader);
        Ok(Group { child, leader, _alive: alive })
    }

    /// The program's outcome, when it has ended.
    pub(super) fn ended(&mut self) -> io::Result<Option<ExitStatus>> {
        self.child.try_wait()
    }

    pub(super) fn wait(mut self) -> io::Result<ExitStatus> {
        self.child.wait()
    }
}

impl Drop for Group {
    /// Whatever is left of the group ends with its program.
    fn drop(&mut self) {
        let mut running = running();
        let _ = kill_process_group(self.leader, Signal::KILL);
        running.leaders.retain(|leader| *leader != self.leader);
        drop(running);
        let _ = self.child.wait();
    }
}

/// Ends every program that runs for us, with all that it started, and lets no further one start. For
/// whoever looks after interruptions; the step that waits for the program fails then.
pub fn end_all() {
    running().ending = true;
    drop(TERMINAL.lock().unwrap_or_else(PoisonError::into_inner));
    let signal = |signal| {
        for leader in &running().leaders {
            let _ = kill_process_group(*leader, signal);
        }
    };
    signal(Signal::TERM);
    let until = Instant::now() + ENDS_IN;
    while Instant::now() < until && !running().leaders.is_empty() {
        std::thread::sleep(LOOK);
    }
    signal(Signal::KILL);
}
