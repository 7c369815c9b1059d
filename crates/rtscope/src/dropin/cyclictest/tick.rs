//! What is printed while a run goes on: the screen, samples, the answers to signals, the named pipe. Everything here happens in the control thread.

use std::{
    fs::{self, File, OpenOptions},
    io::{Read, Write},
    os::unix::{
        fs::{FileExt, OpenOptionsExt},
        net::UnixStream,
    },
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

use anyhow::Context;
use rtscope_analyse::export::cyclictest::{
    CyclictestRun, CyclictestThread, CyclictestUnit, LiveRun, SampleOptions, lost_sentence,
};
use rtscope_measure::{
    dropin::{EndedThreads, Measurement},
    environment::smi,
};
use rtscope_sampler::{Remainder, Starved};
use rtscope_sys::{system, tree::Tree};
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    fs::{CWD, FileType, Mode},
};
use signal_hook::consts::{SIGUSR1, SIGUSR2};

use super::options::Options;
use crate::dropin::{print, say};

/// Time between two looks whether somebody reads the pipe.
const PIPE_LOOK: Duration = Duration::from_millis(500);

/// What has been seen of the run.
pub(super) struct Watch<'a> {
    options: &'a Options,
    tree: &'a Tree,
    pub(super) running: LiveRun,
    /// System management interrupts of each thread's CPU.
    smis: Option<smi::SmiCounter>,
    status_asked: Arc<AtomicBool>,
    snapshot_asked: Arc<AtomicBool>,
    /// Readable when one of them was asked for.
    asked: UnixStream,
    snapshot: Snapshot,
    pipe: Option<Pipe>,
    drawn: bool,
}

impl<'a> Watch<'a> {
    pub(super) fn new(
        options: &'a Options,
        unit: CyclictestUnit,
        tree: &'a Tree,
        threads: Vec<CyclictestThread>,
    ) -> anyhow::Result<Watch<'a>> {
        let run = CyclictestRun {
            unit,
            buckets: options.buckets,
            sums: options.sums,
            armed: options.break_above.is_some(),
            broke: None,
            threads,
            // The drop-in has a wait in its thread's maximum.
            waits: Vec::new(),
        };
        let kept = SampleOptions {
            lines: options.verbose,
            window: if options.oscope > 1 { options.oscope as u64 } else { 0 },
            spikes_above: options.spike,
            spikes_max: options.spike_nodes,
        };
        let cpus = run.threads.iter().map(|thread| thread.cpu);
        let smis = options.smi.then(|| smi::SmiCounter::start(tree, cpus));
        let (asked, asking) = UnixStream::pair()?;
        asked.set_nonblocking(true)?;
        let flag = |signal| -> std::io::Result<Arc<AtomicBool>> {
            let flag = Arc::new(AtomicBool::new(false));
            signal_hook::flag::register(signal, flag.clone())?;
            signal_hook::low_level::pipe::register(signal, asking.try_clone()?)?;
            Ok(flag)
        };
        let watch = Watch {
            options,
            tree,
            running: LiveRun::new(run, kept),
            smis,
            status_asked: flag(SIGUSR1)?,
            snapshot_asked: flag(SIGUSR2)?,
            asked,
            snapshot: Snapshot::new(),
            pipe: options.fifo.clone().map(Pipe::new).transpose()?,
            drawn: false,
        };
        // Whoever reads before the first answer finds the threads, not an empty file.
        watch.snapshot.write(&watch.running.run.status());
        Ok(watch)
    }

    /// Waits for so long, or until a signal asks for the state: whoever sends it reads at once.
    pub(super) fn wait(&mut self, time: Duration) {
        let time = Timespec::try_from(time).ok();
        let mut asked = [PollFd::new(&self.asked, PollFlags::IN)];
        // An interrupted wait is a short one.
        if matches!(poll(&mut asked, time.as_ref()), Ok(1..)) {
            let mut bytes = [0; 64];
            while matches!((&self.asked).read(&mut bytes), Ok(1..)) {}
        }
    }

    /// One look; false when nobody reads standard output any more.
    pub(super) fn tick(&mut self, threads: &mut Measurement) -> bool {
        let larger = self.take_figures(threads);
        let mut alive = true;
        if self.options.verbose {
            let smis = self.count_smis();
            alive &= print(&self.running.take_lines(smis.as_deref()));
        } else if !self.options.quiet && (larger || !self.options.refresh_on_max || !self.drawn) {
            alive &= self.draw();
        }
        if self.status_asked.swap(false, Relaxed) {
            say(self.running.run.status().trim_end());
        }
        if self.snapshot_asked.swap(false, Relaxed) {
            self.snapshot.write(&self.running.run.status());
        }
        if let Some(pipe) = &mut self.pipe {
            pipe.serve(&self.running.run);
        }
        alive
    }

    /// Ends the threads, takes what they have left, and shows it.
    pub(super) fn end(&mut self, mut threads: Measurement) -> EndedThreads {
        self.take_figures(&mut threads);
        let ending = threads.end(|left| match left {
            Remainder::Slice(slice) => self.running.add_last_slice(&slice),
            Remainder::Sample(thread, sample) => self.running.add_sample(thread, &sample),
        });
        self.running.end();
        let lost = lost_sentence(ending.ended.iter().map(|ended| &ended.tally));
        for text in self.running.wait_sentences().into_iter().chain(lost) {
            say(&format!("WARN: {text}"));
        }
        self.count_smis();
        if self.options.verbose {
            print(&self.running.take_lines(None));
        } else if !self.options.quiet {
            self.draw();
            if self.options.refresh_on_max {
                let lines = self.running.run.threads.len() + 2;
                print(&format!("\u{1b}[{lines}A\u{1b}[{lines}B"));
            }
        }
        for Starved { thread, cpus, holder } in &ending.starved {
            say(&format!("WARN: thread {thread} did not run on CPU {cpus} for seconds: {holder}"));
        }
        ending
    }

    /// Takes what was sampled since the last look. Whether there is a new maximum.
    fn take_figures(&mut self, threads: &mut Measurement) -> bool {
        threads.drain(|slice| self.running.add_slice(&slice));
        let live = threads.look(|thread, sample| self.running.add_sample(thread, &sample));
        self.running.show(&live)
    }

    /// Counts system management interrupts anew; how many came since the last time.
    fn count_smis(&mut self) -> Option<Vec<u64>> {
        let run = &self.running.run;
        let cpus = run.threads.iter().map(|thread| thread.cpu);
        let counts = self.smis.as_ref()?.since(self.tree, cpus);
        Some(self.running.set_smis(&counts))
    }

    fn draw(&mut self) -> bool {
        let load_average = self.tree.read("proc/loadavg").unwrap_or_default();
        let screen = self.running.run.screen(self.options.policy.word(), &load_average);
        let up = match std::mem::replace(&mut self.drawn, true) {
            true => format!("\u{1b}[{}A", self.running.run.threads.len() + 2),
            false => String::new(),
        };
        print(&(up + &screen))
    }
}

/// The file in shared memory that SIGUSR2 fills, for `get_cyclictest_snapshot`.
struct Snapshot {
    path: PathBuf,
    /// None when it can't be made, which was said.
    file: Option<File>,
}

impl Snapshot {
    fn new() -> Snapshot {
        let path = PathBuf::from(format!("/dev/shm/cyclictest{}", std::process::id()));
        // Everybody may write there: a link or a file of that name is not ours.
        let _ = fs::remove_file(&path);
        let file = File::create_new(&path);
        let file = file.inspect_err(|e| say(&format!("WARN: {}: {e}", path.display()))).ok();
        Snapshot { path, file }
    }

    /// Writes over the text that is there, so that nobody reads an empty file.
    fn write(&self, text: &str) {
        let Some(file) = &self.file else { return };
        let written = file.write_all_at(text.as_bytes(), 0);
        if let Err(e) = written.and_then(|()| file.set_len(text.len() as u64)) {
            say(&format!("WARN: {}: {e}", self.path.display()));
        }
    }
}

impl Drop for Snapshot {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
    }
}

/// The named pipe of `-F`: whoever opens it reads the state once.
struct Pipe {
    path: PathBuf,
    looked: Instant,
}

impl Pipe {
    fn new(path: String) -> anyhow::Result<Pipe> {
        let path = PathBuf::from(path);
        let _ = fs::remove_file(&path);
        let mode = Mode::from_raw_mode(0o666);
        rustix::fs::mknodat(CWD, &path, FileType::Fifo, mode, 0)
            .with_context(|| format!("mkfifo {}", path.display()))?;
        Ok(Pipe { path, looked: Instant::now() })
    }

    fn serve(&mut self, run: &CyclictestRun) {
        if self.looked.elapsed() < PIPE_LOOK {
            return;
        }
        self.looked = Instant::now();
        if let Some(mut reader) = self.open() {
            // A reader that has gone away again is none.
            let _ = reader.write_all(run.lines().as_bytes());
        }
    }

    /// Opens only when somebody reads.
    fn open(&self) -> Option<File> {
        OpenOptions::new().write(true).custom_flags(system::NONBLOCK).open(&self.path).ok()
    }
}

impl Drop for Pipe {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
    }
}
