//! What is shown and kept while a run goes on: the screen, samples, spikes, the answers to signals, the
//! named pipe. Everything here happens in the control thread.

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
use rtscope_analyse::export::cyclictest::{self, Figures, Run, Thread, Unit};
use rtscope_measure::{
    environment::smi,
    sampler::{Ended, RawSample, Session, Starved},
};
use rtscope_model::{
    slice::{Scope, Slice},
    time::Nanos,
};
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
    pub(super) run: Run,
    seen: Seen,
    /// System management interrupts of each thread's CPU before the run.
    smi_before: Vec<u64>,
    status_asked: Arc<AtomicBool>,
    snapshot_asked: Arc<AtomicBool>,
    /// Readable when one of them was asked for.
    asked: UnixStream,
    snapshot: Snapshot,
    pipe: Option<Pipe>,
    drawn: bool,
}

/// What is made of single samples.
#[derive(Default)]
struct Seen {
    unit: Unit,
    verbose: bool,
    buckets: u32,
    spike: Option<u64>,
    spike_nodes: usize,
    spikes: Vec<(usize, u64, u64)>,
    /// Samples of a window, and what was seen in those of it: number, largest and its cycle.
    oscope: u64,
    windows: Vec<(u64, u64, u64)>,
    overflow_cycles: Vec<Vec<u64>>,
    /// Lines that are to be printed, by thread, without their ends.
    lines: Vec<String>,
}

impl<'a> Watch<'a> {
    pub(super) fn new(
        options: &'a Options,
        unit: Unit,
        tree: &'a Tree,
        threads: Vec<Thread>,
    ) -> anyhow::Result<Watch<'a>> {
        let seen = Seen {
            unit,
            verbose: options.verbose,
            buckets: options.buckets,
            spike: options.spike,
            spike_nodes: options.spike_nodes,
            oscope: if options.oscope > 1 { options.oscope as u64 } else { 0 },
            windows: vec![(0, 0, 0); threads.len()],
            overflow_cycles: vec![Vec::new(); threads.len()],
            ..Seen::default()
        };
        let (asked, asking) = UnixStream::pair()?;
        asked.set_nonblocking(true)?;
        let flag = |signal| -> std::io::Result<Arc<AtomicBool>> {
            let flag = Arc::new(AtomicBool::new(false));
            signal_hook::flag::register(signal, flag.clone())?;
            signal_hook::low_level::pipe::register(signal, asking.try_clone()?)?;
            Ok(flag)
        };
        let mut watch = Watch {
            options,
            tree,
            run: Run {
                unit,
                buckets: options.buckets,
                sums: options.sums,
                armed: options.break_above.is_some(),
                broke: None,
                threads,
                // The drop-in has a wait in its thread's maximum.
                waits: Vec::new(),
            },
            seen,
            smi_before: Vec::new(),
            status_asked: flag(SIGUSR1)?,
            snapshot_asked: flag(SIGUSR2)?,
            asked,
            snapshot: Snapshot::new(),
            pipe: options.fifo.clone().map(Pipe::new).transpose()?,
            drawn: false,
        };
        watch.smi_before = watch.smis();
        // Whoever reads before the first answer finds the threads, not an empty file.
        watch.snapshot.write(&watch.run.status());
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
    pub(super) fn tick(&mut self, session: &mut Session) -> bool {
        let larger = self.take_figures(session);
        let mut alive = true;
        if self.options.verbose {
            let smis = self.options.smi.then(|| self.smi_steps());
            alive &= print(&self.seen.take_lines(smis.as_deref()));
        } else if !self.options.quiet && (larger || !self.options.refresh_on_max || !self.drawn) {
            alive &= self.draw();
        }
        if self.status_asked.swap(false, Relaxed) {
            say(self.run.status().trim_end());
        }
        if self.snapshot_asked.swap(false, Relaxed) {
            self.snapshot.write(&self.run.status());
        }
        if let Some(pipe) = &mut self.pipe {
            pipe.serve(&self.run);
        }
        alive
    }

    /// Ends the threads and takes what they have left. How they ended, and those that did not.
    pub(super) fn end(&mut self, mut session: Session) -> (Vec<Ended>, Vec<Starved>) {
        self.take_figures(&mut session);
        let threads = &mut self.run.threads;
        let mut waited_ns = vec![0; threads.len()];
        let (ended, starved) = session.stop(|slice| {
            if let Some(waited_ns) = waited_ns.get_mut(slice.thread as usize)
                && slice.recorded == 0
            {
                *waited_ns = slice.omitted_extent.max_ns.max(*waited_ns);
            }
            add(threads, &slice);
        });
        let cycles = &mut self.seen.overflow_cycles;
        for ((thread, cycles), waited_ns) in threads.iter_mut().zip(cycles).zip(&waited_ns) {
            thread.overflow_cycles = std::mem::take(cycles);
            // The slices have the exact figures; which was the last only the live ones know.
            let last_ns = thread.figures.map_or(0, |figures| figures.last_ns);
            let histogram = &thread.histogram;
            let exact = histogram.min_ns().zip(histogram.max_ns()).zip(histogram.mean_ns());
            thread.figures = exact.map(|((min_ns, max_ns), mean_ns)| Figures {
                cycles: histogram.count(),
                min_ns,
                last_ns,
                mean_ns,
                max_ns,
            });
            thread.add_wait(*waited_ns);
        }
        self.tell_waits(&waited_ns);
        let lost: u64 = ended.iter().map(|ended| ended.tally.raw_lost).sum();
        if lost > 0 {
            say(&format!(
                "WARN: {lost} samples were measured but not printed one by one: the main thread was held up"
            ));
        }
        if self.options.smi {
            self.smi_steps();
        }
        if self.options.verbose {
            print(&self.seen.take_lines(None));
        } else if !self.options.quiet {
            self.draw();
            if self.options.refresh_on_max {
                let lines = self.run.threads.len() + 2;
                print(&format!("\u{1b}[{lines}A\u{1b}[{lines}B"));
            }
        }
        (ended, starved)
    }

    /// Says which threads had not woken when the run ended: no sample shows it.
    fn tell_waits(&self, waited_ns: &[u64]) {
        for (n, waited_ns) in waited_ns.iter().enumerate().filter(|(_, waited_ns)| **waited_ns > 0)
        {
            let missed = self.run.threads[n].missed;
            say(&format!(
                "WARN: when the run ended, thread {n} had waited for at least {} and missed {missed} cycles in \
                    total. Its maximum includes this wait",
                Nanos(*waited_ns)
            ));
        }
    }

    /// What `--spike` noted, as text.
    pub(super) fn spikes(&self) -> String {
        cyclictest::spikes(&self.seen.spikes, self.run.unit)
    }

    /// Takes what was sampled since the last look. Whether there is a new maximum.
    fn take_figures(&mut self, session: &mut Session) -> bool {
        let threads = &mut self.run.threads;
        session.drain(|slice| add(threads, &slice));
        let seen = &mut self.seen;
        session.drain_raw(|thread, sample| seen.sample(thread as usize, &sample));
        let mut larger = false;
        for (thread, live) in threads.iter_mut().zip(session.live()) {
            if live.recorded == 0 {
                continue;
            }
            larger |= thread.figures.is_none_or(|figures| figures.max_ns < live.max_ns);
            thread.cpu = live.cpu;
            thread.figures = Some(Figures {
                cycles: live.recorded,
                min_ns: live.min_ns,
                last_ns: live.now_ns,
                mean_ns: live.mean_ns as f64,
                max_ns: live.max_ns,
            });
        }
        larger
    }

    fn draw(&mut self) -> bool {
        let load_average = self.tree.read("proc/loadavg").unwrap_or_default();
        let screen = self.run.screen(self.options.policy.word(), &load_average);
        let up = match std::mem::replace(&mut self.drawn, true) {
            true => format!("\u{1b}[{}A", self.run.threads.len() + 2),
            false => String::new(),
        };
        print(&(up + &screen))
    }

    fn smis(&self) -> Vec<u64> {
        if !self.options.smi {
            return Vec::new();
        }
        self.run.threads.iter().map(|t| smi::count(self.tree, t.cpu).unwrap_or(0)).collect()
    }

    /// Counts anew; how many came since the last time.
    fn smi_steps(&mut self) -> Vec<u64> {
        let now = self.smis();
        let mut steps = Vec::new();
        for ((thread, before), now) in self.run.threads.iter_mut().zip(&self.smi_before).zip(now) {
            let count = now.wrapping_sub(*before) & 0xffff_ffff;
            steps.push(count.saturating_sub(thread.smi.unwrap_or(0)));
            thread.smi = Some(count);
        }
        steps
    }
}

fn add(threads: &mut [Thread], slice: &Slice) {
    let Some(thread) = threads.get_mut(slice.thread as usize) else { return };
    if slice.scope == Scope::Cell(0) {
        let sum_ns = u128::from(slice.sum_ns);
        thread.histogram.add(&slice.bins, slice.min_ns, slice.max_ns, sum_ns);
        thread.missed += slice.missed;
    }
}

impl Seen {
    fn sample(&mut self, thread: usize, sample: &RawSample) {
        let RawSample { expiry_ns, latency_ns, cycle } = *sample;
        let value = self.unit.of(latency_ns);
        let overflow = &mut self.overflow_cycles[thread];
        if value >= u64::from(self.buckets) && overflow.len() < self.buckets as usize {
            overflow.push(cycle);
        }
        if self.spike.is_some_and(|above| value > above) && self.spikes.len() < self.spike_nodes {
            self.spikes.push((thread, latency_ns, expiry_ns + latency_ns));
        }
        if !self.verbose {
            return;
        }
        if self.oscope == 0 {
            self.lines.push(cyclictest::sample(thread, cycle, latency_ns, self.unit));
            return;
        }
        let (count, largest_ns, at) = &mut self.windows[thread];
        if *count == 0 || latency_ns > *largest_ns {
            (*largest_ns, *at) = (latency_ns, cycle);
        }
        *count += 1;
        if *count == self.oscope {
            self.lines.push(cyclictest::sample(thread, *at, *largest_ns, self.unit));
            *count = 0;
        }
    }

    /// The lines so far. With counts of SMIs each line gets a column; those of a thread since the last
    /// look stand at its last line, 0 at the others.
    fn take_lines(&mut self, smis: Option<&[u64]>) -> String {
        let mut lines = std::mem::take(&mut self.lines);
        if let Some(smis) = smis {
            let mut left: Vec<u64> = smis.to_vec();
            for line in lines.iter_mut().rev() {
                let thread = line.split(':').next().and_then(|word| word.trim().parse().ok());
                let count = thread.and_then(|n: usize| left.get_mut(n)).map_or(0, std::mem::take);
                *line = format!("{}{count:8}\n", line.trim_end());
            }
        }
        lines.concat()
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
        let file = File::create(&path);
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

    fn serve(&mut self, run: &Run) {
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
