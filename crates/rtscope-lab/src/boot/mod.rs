//! Boots a guest and watches it until its record has come, or it is clear that none will.
//!
//! The emulator writes the guest's serial lines to files, and the files are looked at: nothing the
//! host does, however slow, can hold the guest up. A guest that is silent for too long is ended; what
//! its console said is kept.

use std::{
    collections::BTreeMap,
    fs::{self, File},
    io::Read,
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Stdio},
    thread,
    time::{Duration, Instant},
};

use flate2::read::GzDecoder;
use rtscope_model::wire::{FAILURE, Frame, FrameReader};
use rustix::process::{Pid, Signal, kill_process};

use crate::{
    console::{self, Trouble},
    disk,
    error::LabError,
    qemu::{CommandLine, Log},
};

mod stuck;

use stuck::Sleep;

/// File of the console in a record's folder.
pub const CONSOLE: &str = "console.txt";

/// File of what the emulator itself says, while it runs.
pub(crate) const ERRORS: &str = "console.emulator";

/// Time between two looks.
const LOOK: Duration = Duration::from_millis(20);

/// How long an emulator may take to end after its guest has sent everything.
const END_GRACE: Duration = Duration::from_millis(500);

/// How long an emulator that logs its run may take to end: the log is whole only when it ended in order,
/// and on a busy host that takes a while.
const LOG_GRACE: Duration = Duration::from_secs(60);

/// A guest that says that its system has ended and that can't switch itself off is ended after this.
const HALT_GRACE: Duration = Duration::from_secs(2);

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

/// The kernel counts a process's time in hundredths of a second, on every architecture of ours.
const TICKS_PER_SECOND: u64 = 100;

/// The largest file of a record: guards against a body that unpacks to more than the memory.
const FILE_BYTES_MAX: u64 = 1 << 30;

/// The most that all files of a record may have.
const RECORD_BYTES_MAX: u64 = 2 << 30;

/// The most that one look reads of a file.
const LOOK_BYTES_MAX: u64 = 16 << 20;

/// The most that a guest may print: one that prints for ever isn't silent.
const CONSOLE_BYTES_MAX: usize = 64 << 20;

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
            Ending::Stuck => "the emulator waits for an event that its log doesn't have next: the guest doesn't do \
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
                format!("the guest was ended: it sent {what}, more than any record has")
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

/// A file that somebody else appends to.
struct Growing {
    path: PathBuf,
    file: Option<File>,
}

impl Growing {
    fn new(path: &Path) -> Growing {
        Growing { path: path.to_owned(), file: None }
    }

    /// What is new, or a part of it.
    fn more(&mut self) -> Vec<u8> {
        let mut bytes = Vec::new();
        if self.file.is_none() {
            self.file = File::open(&self.path).ok();
        }
        if let Some(file) = &mut self.file {
            // What can't be read now is read at the next look.
            let _ = file.take(LOOK_BYTES_MAX).read_to_end(&mut bytes);
        }
        bytes
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
    let mut watch = Watch {
        console: Growing::new(console),
        channel: (order.line.machine.channel != "console").then(|| Growing::new(channel)),
        reader: FrameReader::default(),
        said: String::new(),
        mute_is_told: false,
        sleep: Sleep::default(),
        looked: Instant::now(),
        lines: 0,
        files: BTreeMap::new(),
        files_bytes: 0,
        verdict: None,
    };
    let (mut heard, mut used, mut in_order) = (Instant::now(), Duration::ZERO, false);
    let ending = loop {
        if watch.look(order.on_line) {
            (heard, used) = (Instant::now(), emulator.cpu_time());
        }
        watch.tell_if_mute(&emulator, order);
        if let Some(ending) = watch.verdict.take() {
            in_order = match order.line.log {
                Some(_) => watch.see_out(&mut emulator, order),
                None => emulator.wait(END_GRACE),
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
    if watch.channel.is_none() && matches!(ending, Ending::Sent | Ending::Failed(_)) {
        // The record went through the console, and is no part of what the console said.
        fs::write(console, &watch.said).map_err(LabError::file("write", console))?;
    }
    // The emulator says nothing of what it could not write.
    let lost = !matches!(ending, Ending::Sent | Ending::Failed(_) | Ending::Interrupted);
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
    Some(Duration::from_millis(ticks * 1000 / TICKS_PER_SECOND))
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

/// What has come from a guest so far.
struct Watch {
    console: Growing,
    /// None when the record comes on the console.
    channel: Option<Growing>,
    reader: FrameReader,
    said: String,
    /// Whether it was told that nothing was said.
    mute_is_told: bool,
    /// Since when the emulator sleeps, as far as the last look showed.
    sleep: Sleep,
    looked: Instant,
    /// How many of the agent's lines were handed on.
    lines: usize,
    files: BTreeMap<String, Vec<u8>>,
    files_bytes: u64,
    verdict: Option<Ending>,
}

impl Watch {
    /// Calls for a guest that had a CPU for as long as any kernel needs and has said nothing, once.
    fn tell_if_mute(&mut self, emulator: &Emulator, order: &Boot<'_>) {
        if self.said.is_empty() && !self.mute_is_told && emulator.cpu_time() >= order.first_word {
            self.mute_is_told = true;
            (order.on_mute)();
        }
    }

    /// How a guest ended whose emulator rests and will never wake.
    fn rest_for_good(&mut self, emulator: &Emulator, order: &Boot<'_>) -> Option<Ending> {
        // In virtual time the emulator does not sleep when nobody is left whom a timer could wake.
        let is_silent = self.said.is_empty() && order.line.spec.timing.is_virtual();
        let is_replay = matches!(order.line.log, Some(Log::Replay(_)));
        if is_silent && has_halted(emulator.waiting_time(), emulator.cpu_time()) {
            // Its kernel booted once.
            return Some(if is_replay { Ending::Stuck } else { Ending::Halted });
        }
        if !is_replay {
            return None;
        }
        let elapsed = std::mem::replace(&mut self.looked, Instant::now()).elapsed();
        let slept = self.sleep.look(elapsed, stuck::wanted(emulator.child.id()));
        (slept >= order.stuck).then_some(Ending::Stuck)
    }

    /// Reads what is new. Whether there was something.
    fn look(&mut self, on_line: &mut dyn FnMut(&str)) -> bool {
        let said = self.console.more();
        let more = match &mut self.channel {
            Some(channel) => {
                self.said.push_str(&String::from_utf8_lossy(&said));
                let frames = channel.more();
                self.read(&frames);
                !said.is_empty() || !frames.is_empty()
            }
            None => {
                self.read(&said);
                let text = self.reader.take_text();
                // A damaged frame's bytes are no words.
                self.said.extend(String::from_utf8_lossy(&text).chars().filter(|c| is_word(*c)));
                !said.is_empty()
            }
        };
        if self.said.len() > CONSOLE_BYTES_MAX {
            self.verdict = Some(Ending::TooMuch("64 MiB to its console"));
            return more;
        }
        let whole = self.said.rfind('\n').map_or("", |end| &self.said[..end]);
        let lines: Vec<&str> = console::agent_lines(whole).collect();
        lines.iter().skip(self.lines).for_each(|line| on_line(line));
        self.lines = lines.len();
        more
    }

    /// Reads all that is still there, of an emulator that has ended.
    fn look_at_rest(&mut self, on_line: &mut dyn FnMut(&str)) {
        let is_too_much = |watch: &Watch| matches!(watch.verdict, Some(Ending::TooMuch(_)));
        while self.look(on_line) && !is_too_much(self) {}
    }

    /// Lets the emulator end in order after its guest has sent everything, and reads what the console still
    /// says. Whether it did.
    fn see_out(&mut self, emulator: &mut Emulator, order: &mut Boot<'_>) -> bool {
        let (began, mut heard) = (Instant::now(), Instant::now());
        let in_order = loop {
            if self.look(order.on_line) {
                heard = Instant::now();
            }
            if let Some(status) = emulator.ended() {
                break status.success();
            }
            let halted = console::has_ended(&self.said) && heard.elapsed() > HALT_GRACE;
            if halted || began.elapsed() > LOG_GRACE || (order.stop)() {
                break emulator.end_in_order();
            }
            thread::sleep(LOOK);
        };
        self.look_at_rest(order.on_line);
        in_order
    }

    fn read(&mut self, bytes: &[u8]) {
        for frame in self.reader.feed(bytes) {
            self.take(frame);
        }
    }

    fn take(&mut self, frame: Frame) {
        match frame {
            Frame::File { name, body } => match unpack(&body) {
                Some(bytes) => {
                    self.files_bytes += bytes.len() as u64;
                    self.files.insert(name, bytes);
                    if self.files_bytes > RECORD_BYTES_MAX {
                        self.verdict = Some(Ending::TooMuch("2 GiB of files"));
                    }
                }
                None => self.verdict = Some(Ending::Damaged),
            },
            Frame::Damaged => self.verdict = Some(Ending::Damaged),
            Frame::End { .. } if self.verdict.is_some() => {}
            Frame::End { files } if files != self.files.len() => {
                self.verdict = Some(Ending::Damaged)
            }
            Frame::End { .. } => {
                let failure = self.files.remove(FAILURE);
                self.verdict = Some(match failure {
                    Some(why) => Ending::Failed(String::from_utf8_lossy(&why).into_owned()),
                    None => Ending::Sent,
                });
            }
        }
    }

    /// Why an emulator that ended has sent no record.
    fn without_record(&self, status: ExitStatus, emulator: &Emulator) -> Ending {
        // A guest's end is no failure of the emulator; one that can't read its log fails at any time.
        if (self.said.is_empty() || !status.success()) && !emulator.errors_text().is_empty() {
            return Ending::Emulator(format!("{} ({status})", emulator.errors_text()));
        }
        self.explain(|last| match (last, self.files.is_empty()) {
            ("", _) => Ending::Mute,
            (last, true) => Ending::NoRecord(last.to_owned()),
            (_, false) => Ending::Damaged,
        })
    }

    /// What the console shows, or else what its last line suggests.
    fn explain(&self, otherwise: impl FnOnce(&str) -> Ending) -> Ending {
        match console::trouble(&self.said) {
            Some(trouble) => Ending::Trouble(trouble),
            None => otherwise(console::tail(&self.said, 1).first().copied().unwrap_or("")),
        }
    }
}

fn is_word(c: char) -> bool {
    c == '\n' || (' '..='~').contains(&c)
}

fn unpack(body: &[u8]) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    GzDecoder::new(body).take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes).ok()?;
    (bytes.len() as u64 <= FILE_BYTES_MAX).then_some(bytes)
}

#[cfg(test)]
mod tests;
