//! What comes from a guest: its console and its record, both of which it may fill without end.

use std::{
    collections::BTreeMap,
    fs::File,
    io::{self, Read},
    path::{Path, PathBuf},
    process::ExitStatus,
    thread,
    time::{Duration, Instant},
};

use flate2::read::GzDecoder;
use rtscope_model::guest_link::{FAILURE, Frame, FrameReader};

use super::{
    Boot, Emulator, Ending, LOOK, has_halted,
    stuck::{self, Sleep},
};
use crate::{console, qemu::Log};

/// How long an emulator that logs its run may take to end: the log is whole only when it ended in order,
/// and on a busy host that takes a while.
const LOG_GRACE: Duration = Duration::from_secs(60);

/// A guest that says that its system has ended and that can't switch itself off is ended after this.
const HALT_GRACE: Duration = Duration::from_secs(2);

/// The most that all files of a record may have, unpacked.
const RECORD_BYTES_MAX: u64 = 2 << 30;

/// What a file takes besides its bytes: one of no bytes has a name, too.
const FILE_BYTES: u64 = 512;

/// The most that one look reads of a file.
const LOOK_BYTES_MAX: u64 = 16 << 20;

/// The most that a guest may print: one that prints for ever isn't silent.
const CONSOLE_BYTES_MAX: usize = 64 << 20;

/// A file that somebody else appends to.
pub(super) struct Growing {
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

/// What has come from a guest so far.
pub(super) struct Watch {
    console: Growing,
    /// None when the record comes on the console.
    pub(super) channel: Option<Growing>,
    reader: FrameReader,
    pub(super) said: String,
    /// Whether it was told that nothing was said.
    mute_is_told: bool,
    /// Since when the emulator sleeps, as far as the last look showed.
    sleep: Sleep,
    looked: Instant,
    /// How many of the agent's lines were handed on.
    lines: usize,
    pub(super) files: BTreeMap<String, Vec<u8>>,
    /// Of all files, with what each takes besides.
    files_bytes: u64,
    /// What came over the record's line and is no part of it.
    noise_bytes: usize,
    pub(super) verdict: Option<Ending>,
}

impl Watch {
    pub(super) fn new(order: &Boot<'_>) -> Watch {
        let line = &order.line;
        Watch {
            console: Growing::new(line.console),
            channel: (line.machine.channel != "console").then(|| Growing::new(line.channel)),
            reader: FrameReader::default(),
            said: String::new(),
            mute_is_told: false,
            sleep: Sleep::default(),
            looked: Instant::now(),
            lines: 0,
            files: BTreeMap::new(),
            files_bytes: 0,
            noise_bytes: 0,
            verdict: None,
        }
    }

    /// Calls for a guest that had a CPU for as long as any kernel needs and has said nothing, once.
    pub(super) fn tell_if_mute(&mut self, emulator: &Emulator, order: &Boot<'_>) {
        if self.said.is_empty() && !self.mute_is_told && emulator.cpu_time() >= order.first_word {
            self.mute_is_told = true;
            (order.on_mute)();
        }
    }

    /// How a guest ended whose emulator rests and will never wake.
    pub(super) fn rest_for_good(
        &mut self,
        emulator: &Emulator,
        order: &Boot<'_>,
    ) -> Option<Ending> {
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
    pub(super) fn look(&mut self, on_line: &mut dyn FnMut(&str)) -> bool {
        let said = self.console.more();
        let more = match &mut self.channel {
            Some(channel) => {
                self.said.push_str(&String::from_utf8_lossy(&said));
                let frames = channel.more();
                self.read(&frames);
                self.noise_bytes += self.reader.take_text().len();
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
            self.verdict = Some(Ending::TooMuch("64 MiB of console output"));
            return more;
        }
        if self.noise_bytes > CONSOLE_BYTES_MAX {
            self.verdict = Some(Ending::TooMuch("64 MiB of data outside its record"));
        }
        let whole = self.said.rfind('\n').map_or("", |end| &self.said[..end]);
        let lines: Vec<&str> = console::agent_lines(whole).collect();
        lines.iter().skip(self.lines).for_each(|line| on_line(line));
        self.lines = lines.len();
        more
    }

    /// Reads all that is still there, of an emulator that has ended.
    pub(super) fn look_at_rest(&mut self, on_line: &mut dyn FnMut(&str)) {
        while self.look(on_line) && !self.is_too_much() {}
    }

    fn is_too_much(&self) -> bool {
        matches!(self.verdict, Some(Ending::TooMuch(_)))
    }

    /// Lets the emulator end in order after its guest has sent everything, and reads what the console still
    /// says. Whether it did.
    pub(super) fn see_out(&mut self, emulator: &mut Emulator, order: &mut Boot<'_>) -> bool {
        let (began, mut heard) = (Instant::now(), Instant::now());
        let in_order = loop {
            if self.look(order.on_line) {
                heard = Instant::now();
            }
            if let Some(status) = emulator.ended() {
                break status.success();
            }
            let halted = console::has_ended(&self.said) && heard.elapsed() > HALT_GRACE;
            if halted || began.elapsed() > LOG_GRACE || self.is_too_much() || (order.stop)() {
                break emulator.end_in_order();
            }
            thread::sleep(LOOK);
        };
        self.look_at_rest(order.on_line);
        in_order
    }

    fn read(&mut self, bytes: &[u8]) {
        for frame in self.reader.feed(bytes) {
            if !self.is_too_much() {
                self.take(frame);
            }
        }
    }

    fn take(&mut self, frame: Frame) {
        match frame {
            Frame::File { name, body } => {
                match unpack(&body, RECORD_BYTES_MAX.saturating_sub(self.files_bytes)) {
                    Ok(Some(bytes)) => {
                        self.files_bytes += bytes.len() as u64 + FILE_BYTES;
                        self.files.insert(name, bytes);
                    }
                    Ok(None) => self.verdict = Some(Ending::TooMuch("2 GiB of files")),
                    Err(_) => self.verdict = Some(Ending::Damaged),
                }
            }
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
    pub(super) fn without_record(&self, status: ExitStatus, emulator: &Emulator) -> Ending {
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
    pub(super) fn explain(&self, otherwise: impl FnOnce(&str) -> Ending) -> Ending {
        match console::trouble(&self.said) {
            Some(trouble) => Ending::Trouble(trouble),
            None => otherwise(console::tail(&self.said, 1).first().copied().unwrap_or("")),
        }
    }
}

fn is_word(c: char) -> bool {
    c == '\n' || (' '..='~').contains(&c)
}

/// A file's bytes; none if there are more than `bytes_max`, of which no more are unpacked.
pub(super) fn unpack(body: &[u8], bytes_max: u64) -> io::Result<Option<Vec<u8>>> {
    let mut bytes = Vec::new();
    GzDecoder::new(body).take(bytes_max + 1).read_to_end(&mut bytes)?;
    Ok((bytes.len() as u64 <= bytes_max).then_some(bytes))
}
