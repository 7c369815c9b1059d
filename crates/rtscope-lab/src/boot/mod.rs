//! Boots a guest and watches it until its record has come, or it is clear that none will.
//!
//! The emulator writes the guest's serial lines to files, and the files are looked at: nothing the
//! host does, however slow, can hold the guest up. A guest that is silent for too long is ended; what
//! its console said is kept.

use std::{
    collections::BTreeMap,
    fs::{self, File},
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Stdio},
    thread,
    time::{Duration, Instant},
};

use rtscope_sys::system::ticks_per_second;
use rustix::process::{Pid, Signal, kill_process};

use crate::{
    console::{self, Trouble},
    disk,
    error::LabError,
    qemu::CommandLine,
};

mod stuck;
mod watch;

use watch::Watch;

/// File of the console in a record's folder.
pub const CONSOLE: &str = "console.txt";

/// File of what the emulator itself says, while it runs.
pub(crate) const ERRORS: &str = "console.emulator";

/// Time between two looks.
const LOOK: Duration = Duration::from_millis(20);

/// How long an emulator may take to end after its guest has sent everything.
const END_GRACE: Duration = Duration::from_millis(500);

/// How long an emulator may take to end in order when it is told to.
const ORDERLY: Duration = Duration::from_secs(10);

/// A silent guest that has had less than one part in so many of a CPU's time is starved, not hung; with
/// less than [`HALTED`] of a second of it, it waits for what never comes.
const STARVED_PARTS: u32 = 4;

/// What a guest that is switched on and does nothing uses.
const HALTED: Duration = Duration::from_secs(1);

/// A guest that has said nothing and whose emulator has waited for its timers for so much of a CPU's time ...
const HALTED_WAIT: Duration = Duration::from_secs(3);

/// ... and for more than one part in so many of all its time, has halted: of a guest at work, that thread of the
/// emulator has 2 % of the time while it boots, and 10 % while it rests.
const HALTED_PARTS: u32 = 3;

/// An emulator that sleeps for so long in a replay waits for what never comes.
pub(crate) const STUCK: Duration = Duration::from_secs(30);

/// A guest to be booted.
#[expect(missing_debug_implementations, reason = "holds functions, which show nothing")]
pub struct Boot<'a> {
    /// What the emulator is told.
    pub line: CommandLine<'a>,
    /// The emulator's words come after these: a program that ends it when this process ends. Empty for
    /// none.
    pub guard: &'a [String],
    /// How long the guest may be silent.
    pub silence: Duration,
    /// CPU time of the emulator after which a guest that has said nothing is told of.
    pub first_word: Duration,
    /// How long an emulator may sleep in a replay.
    pub stuck: Duration,
    /// Is called once for such a guest.
    pub on_mute: &'a dyn Fn(),
    /// Whether to end the guest now.
    pub stop: &'a (dyn Fn() -> bool + Sync),
    /// Takes each line that the agent says.
    pub on_line: &'a mut dyn FnMut(&str),
}

/// What came of a guest.
#[derive(Debug)]
pub struct BootEnd {
    /// The files of its record, by path.
    pub files: BTreeMap<String, Vec<u8>>,
    /// All that its console said.
    pub console: String,
    pub ending: Ending,
    /// How long it took on the host's clock.
    pub took: Duration,
    /// Whether the emulator ended in order: the log of its run is whole, and so is the console.
    pub in_order: bool,
}

/// How a guest ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ending {
    /// The record is here, whole.
    Sent,
    /// The agent says why it has no record.
    Failed(String),
    /// The console shows what went wrong.
    Trouble(Trouble),
    /// Nothing ever came on the console.
    Mute,
    /// The guest's CPU halted before anything came on the console.
    Halted,
    /// In a replay, the emulator waits for what its log doesn't have next.
    Stuck,
    /// The guest fell silent after this line.
    Hung(String),
    /// The guest ended without a record; its last lines.
    NoRecord(String),
    /// A part of the record was damaged or lost on the way.
    Damaged,
    /// It has sent more than any record has: what of.
    TooMuch(&'static str),
    /// The host had no room for what the guest said.
    DiskFull(PathBuf),
    /// The emulator did not run, or failed: how it ended and what it said.
    Emulator(String),
    /// The user ended it.
    Interrupted,
}

impl Ending {
    /// Whether the guest itself said so, after all that it had to send.
    fn is_the_guests(&self) -> bool {
        matches!(self, Ending::Sent | Ending::Failed(_))
    }

    /// What happened and what to do about it, as a sentence.
    #[must_use]
    pub fn sentence(&self) -> String {
        match self {
            Ending::Sent => "the record is whole".to_owned(),
            Ending::Failed(why) => format!("the run in the guest failed: {why}"),
            Ending::Trouble(trouble) => trouble.sentence(),
            Ending::Mute => "the guest sent nothing. Its kernel may have no serial support \
                (CONFIG_SERIAL_8250_CONSOLE or CONFIG_SERIAL_AMBA_PL011_CONSOLE). The guest may have too \
                little memory to boot: give it more with --memory. Or the kernel does not boot on this \
                machine: try another one with --machine"
                .to_owned(),
            Ending::Halted => "the guest's CPU halted before the kernel printed anything. Its image may be \
                damaged: copy it again, or build it again. The guest may have too little memory: give it more \
                with --memory. Or the kernel does not boot on this machine: try another one with --machine"
                .to_owned(),
            Ending::Stuck => "the emulator waits for an event that is not the next one in its log: the guest doesn't do \
                what the logged one did"
                .to_owned(),
            Ending::Hung(last) => format!(
                "the guest fell silent after {last:?}: it hangs, or is slow on a busy host (give it \
                 more time with --silence)"
            ),
            Ending::NoRecord(last) => {
                format!("the guest ended without a record; its last line was {last:?}")
            }
            Ending::Damaged => {
                "a part of the record was damaged on its way out of the guest".to_owned()
            }
            Ending::TooMuch(what) => {
                format!("rtscope ended the guest because it sent more than {what}: read the end of its console")
            }
            Ending::DiskFull(folder) => format!(
                "the disk of {} is full, so the guest's record could not be kept: make space \
                 (`rtscope lab cache prune` removes what can be made again), or choose another folder \
                 with --out",
                folder.display()
            ),
            Ending::Emulator(said) => format!("the emulator failed: {said}"),
            Ending::Interrupted => "it was interrupted".to_owned(),
        }
    }
}

/// Boots a guest and waits for its end.
///
/// # Errors
///
/// The emulator can't be started, or the files of the lines not be made. Whatever happens inside the
/// guest is no error but its [`Ending`]. No emulator is left running.
pub fn boot(order: &mut Boot<'_>) -> Result<BootEnd, LabError> {
    let (console, channel) = (order.line.console, order.line.channel);
    for path in [console, channel] {
        File::create(path).map_err(LabError::file("create", path))?;
    }
    let began = Instant::now();
    let mut emulator = Emulator::start(&order.line, order.guard)?;
    let mut watch = Watch::new(order);
    let (mut heard, mut used, mut in_order) = (Instant::now(), Duration::ZERO, false);
    let ending = loop {
        if watch.look(order.on_line) {
            (heard, used) = (Instant::now(), emulator.cpu_time());
        }
        watch.tell_if_mute(&emulator, order);
        if let Some(ending) = watch.verdict.take() {
            in_order = match order.line.log {
                Some(_) if ending.is_the_guests() => watch.see_out(&mut emulator, order),
                _ => emulator.wait(END_GRACE),
            };
            break ending;
        }
        if let Some(status) = emulator.ended() {
            // What was written between the look and the end.
            watch.look_at_rest(order.on_line);
            in_order = status.success();
            break watch.verdict.take().unwrap_or_else(|| watch.without_record(status, &emulator));
        }
        if (order.stop)() {
            break Ending::Interrupted;
        }
        if console::has_ended(&watch.said) && heard.elapsed() > END_GRACE {
            break watch.explain(|last| Ending::NoRecord(last.to_owned()));
        }
        if let Some(ending) = watch.rest_for_good(&emulator, order) {
            break ending;
        }
        if hangs(heard.elapsed(), emulator.cpu_time().saturating_sub(used), order.silence) {
            break watch.explain(|last| match last {
                "" => Ending::Mute,
                last => Ending::Hung(last.to_owned()),
            });
        }
        thread::sleep(LOOK);
    };
    drop(emulator);
    let _ = fs::remove_file(channel);
    if watch.channel.is_none() && ending.is_the_guests() {
        // The record went through the console, and is no part of what the console said.
        fs::write(console, &watch.said).map_err(LabError::file("write", console))?;
    }
    // The emulator says nothing of what it could not write.
    let lost = !ending.is_the_guests() && ending != Ending::Interrupted;
    let ending = match console.parent() {
        Some(folder) if lost && is_full(folder) => Ending::DiskFull(folder.to_owned()),
        _ => ending,
    };
    Ok(BootEnd { files: watch.files, console: watch.said, ending, took: began.elapsed(), in_order })
}

/// Boots a guest until it says anything, or for as long as the limit; then ends it. Whether it spoke.
///
/// # Errors
///
/// The emulator can't be started or ended by itself (with its own words), or the files of the lines can't
/// be made.
pub fn speaks(line: &CommandLine<'_>, guard: &[String], limit: Duration) -> Result<bool, LabError> {
    for path in [line.console, line.channel] {
        File::create(path).map_err(LabError::file("create", path))?;
    }
    let mut emulator = Emulator::start(line, guard)?;
    let until = Instant::now() + limit;
    loop {
        if fs::metadata(line.console).is_ok_and(|file| file.len() > 0) {
            return Ok(true);
        }
        if let Some(status) = emulator.ended() {
            // What was written between the look and the end.
            if fs::metadata(line.console).is_ok_and(|file| file.len() > 0) {
                return Ok(true);
            }
            let (program, said) = (line.machine.program.clone(), emulator.errors_text());
            return Err(LabError::Program { program, status: status.to_string(), said });
        }
        if Instant::now() > until {
            return Ok(false);
        }
        thread::sleep(LOOK);
    }
}

/// Whether less than a record's worth of space is left.
fn is_full(folder: &Path) -> bool {
    disk::free_mib(folder) == Some(0)
}

/// Whether a guest that was silent for a time, in which its emulator used so much of a CPU, hangs. On a
/// busy host the emulator waits for its turn: that time does not count.
fn hangs(silent: Duration, used: Duration, limit: Duration) -> bool {
    silent > limit && (used < HALTED || used >= limit / STARVED_PARTS)
}

/// Whether a guest that never spoke has halted for good, from how long its emulator waited for timers and what
/// it has used in all. Both are CPU times: on a busy host they just take longer to come.
fn has_halted(waited: Duration, all: Duration) -> bool {
    waited >= HALTED_WAIT && waited * HALTED_PARTS >= all
}

/// The CPU time in the text of a `/proc/PID/stat`: fields 14 and 15 of proc(5), after a name that may hold
/// anything.
fn cpu_time(stat: &str) -> Option<Duration> {
    let (_, fields) = stat.rsplit_once(')')?;
    let ticks = fields.split_whitespace().skip(11).take(2).map(str::parse::<u64>);
    let ticks = ticks.sum::<Result<u64, _>>().ok()?;
    Some(Duration::from_millis(ticks * 1000 / ticks_per_second()))
}

/// The emulator's process. Dropping it ends it.
struct Emulator {
    child: Child,
    errors: PathBuf,
}

impl Emulator {
    fn start(line: &CommandLine<'_>, guard: &[String]) -> Result<Emulator, LabError> {
        let program = &line.machine.program;
        let arguments = line.arguments();
        let all: Vec<&String> = guard.iter().chain([program]).chain(&arguments).collect();
        let errors = line.console.with_file_name(ERRORS);
        let file = File::create(&errors).map_err(LabError::file("create", &errors))?;
        let child = Command::new(all[0])
            .args(&all[1..])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(file)
            .spawn()
            .map_err(LabError::file("run", all[0]))?;
        Ok(Emulator { child, errors })
    }

    /// Time of CPUs that it has used; none where the system doesn't show it.
    fn cpu_time(&self) -> Duration {
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.child.id()));
        stat.ok().and_then(|stat| cpu_time(&stat)).unwrap_or_default()
    }

    /// Time of CPUs that its first thread has used, which waits for timers and files while another one runs the
    /// guest.
    fn waiting_time(&self) -> Duration {
        let id = self.child.id();
        let stat = fs::read_to_string(format!("/proc/{id}/task/{id}/stat"));
        stat.ok().and_then(|stat| cpu_time(&stat)).unwrap_or_default()
    }

    fn ended(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().ok().flatten()
    }

    /// Waits for its end. Whether it came within the limit, and in order.
    fn wait(&mut self, limit: Duration) -> bool {
        let until = Instant::now() + limit;
        while self.ended().is_none() && Instant::now() < until {
            thread::sleep(LOOK);
        }
        self.ended().is_some_and(|status| status.success())
    }

    /// Tells it to end in order, and waits for that.
    fn end_in_order(&mut self) -> bool {
        // Until its end is seen, no other process has its number.
        if let Some(pid) = Pid::from_raw(self.child.id().cast_signed()) {
            let _ = kill_process(pid, Signal::TERM);
        }
        self.wait(ORDERLY)
    }

    fn errors_text(&self) -> String {
        fs::read_to_string(&self.errors).unwrap_or_default().trim().to_owned()
    }
}

impl Drop for Emulator {
    fn drop(&mut self) {
        if self.ended().is_none() {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
        let _ = fs::remove_file(&self.errors);
    }
}

#[cfg(test)]
mod tests;
