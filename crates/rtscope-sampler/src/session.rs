//! A set of sampling threads: placed and verified while parked, released together, drained while
//! they run, joined at the end.

use std::{
    io,
    sync::{
        Arc,
        atomic::Ordering::*,
        mpsc::{self, Receiver, Sender},
    },
    thread::JoinHandle,
    time::{Duration, Instant},
};

use rtscope_model::{
    cpu::CpuSet,
    event::{Bounds, Live, Tally},
    histogram::Layout,
    plan::{ClockName, Sleep},
    schedule::Placement,
    slice::{RawSample, Slice},
};
use rtscope_sys::{
    clock::{Clock, NanosleepClock, SystemClock},
    memory, sched, thread,
    tracefs::Marker,
};

use crate::{
    cover::Cover,
    enter::{Placed, enter},
    frames::FrameLoop,
    gate::{Gate, Word},
    ledger::Ledger,
    network::{Links, LocalPeer, NetworkError, NetworkSpec, SocketWire},
    reign::{Shared, is_cell},
    running::Running,
    slot::{Slot, exchange_with, spare_slots},
    wakeup::{Beat, LiveFigures, LoopTally, run},
};

/// How far ahead a cell begins, in nanoseconds. A sampling thread may wake while the control thread writes the
/// beginning, or may delay the control thread. Without this margin, it would count its activation in the time before.
/// That left a hole in the cell.
pub const ENTER_AHEAD_NS: u64 = 100_000;

/// Stack of a sampling thread: the part that is touched beforehand, and as much again.
const STACK_BYTES: usize = 2 * memory::STACK_PREFAULT_BYTES + 64 * 1024;

/// Bytes that each of so many sampling threads needs: slots and stack.
#[must_use]
pub fn memory_of_thread(layout: Layout, threads: usize, has_frames: bool) -> u64 {
    Slot::bytes(layout, has_frames) * (spare_slots(threads) as u64 + 1) + STACK_BYTES as u64
}

/// How long a thread may take to place itself.
pub(crate) const PLACING_LIMIT: Duration = Duration::from_secs(5);

/// How long threads may take to end once they were told to.
const ENDING_LIMIT: Duration = Duration::from_secs(3);

/// How long a thread may leave looks unanswered, besides the time in which it is to sleep.
const SILENCE_LIMIT: Duration = Duration::from_secs(5);

/// So many frames in a row must be missing until a peer counts as silent.
const SILENT_CYCLES: u64 = 5;

/// Why a session could not start.
#[derive(Debug, thiserror::Error)]
pub enum SampleError {
    #[error("can't start sampling thread {thread}: {source}")]
    Spawn { thread: u32, source: io::Error },
    #[error("sampling thread {thread} can't run as {asked}: {source}")]
    Place { thread: u32, asked: Placement, source: rtscope_sys::Error },
    #[error("sampling thread {thread} did not run on CPU {cpus} within {} s: {holder}; end it, or measure on other CPUs", PLACING_LIMIT.as_secs())]
    Starved {
        thread: u32,
        /// Where it was to run.
        cpus: CpuSet,
        /// Who held the CPUs, in words.
        holder: String,
    },
    #[error(transparent)]
    Network(#[from] NetworkError),
}

impl SampleError {
    /// Whether the caller lacks a permission.
    #[must_use]
    pub fn is_permission(&self) -> bool {
        matches!(self, SampleError::Place { source, .. } if source.is_permission())
    }
}

#[derive(Clone, Debug)]
pub struct ThreadPlan {
    /// Index over all sessions.
    pub thread: u32,
    /// Where and how it shall run.
    pub asked: Placement,
    /// Time between two activations.
    pub interval_ns: u64,
}

#[derive(Clone, Debug)]
pub struct SessionSpec {
    pub threads: Vec<ThreadPlan>,
    pub layout: Layout,
    pub slice_ns: u64,
    pub clock: ClockName,
    /// When threads wake, but for each thread's first expiry and interval.
    pub beat: Beat,
    /// Samples that each thread's raw ring holds; 0 is none.
    pub raw_capacity: usize,
    /// The kernel's call that threads sleep with.
    pub wake: Wake,
    /// How late the kernel may wake threads of a fair policy on purpose; none leaves the 50 us that it has for every
    /// thread. Real-time threads have no slack.
    pub timer_slack_ns: Option<u64>,
    /// The kernel's trace, when a break shall mark and stop it.
    pub marker: Option<Marker>,
    /// How many cells the session has.
    pub cells: u32,
    /// The session has one cell, and the threads end with it.
    pub one_cell: bool,
    /// The frame that each thread sends at an activation, if it does.
    pub network: Option<NetworkSpec>,
    /// Names who runs on some CPUs before all others, for the message about a thread that doesn't get to run there.
    pub name_holder: fn(&CpuSet) -> String,
}

/// The kernel's call that a thread sleeps with. A latency ends at the same clock reading with each.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Wake {
    /// `clock_nanosleep`.
    #[default]
    ClockNanosleep,
    /// `nanosleep`, always relative: its expiry is the clock reading before it plus the interval.
    Nanosleep,
    /// A POSIX timer, and `sigwait` for its signal.
    Timer,
}

/// What a session hands over at its end.
#[derive(Debug)]
pub enum Remainder {
    Slice(Slice),
    /// Of a thread, which may have kept it after the last look at its ring: with its expiry since the start of the run.
    Sample(u32, RawSample),
}

/// What became of a thread.
#[derive(Clone, Debug)]
pub struct EndedThread {
    /// Index over all sessions.
    pub thread: u32,
    /// What it cost and suffered inside the loop.
    pub tally: Tally,
    /// Its place, read back after the loop: somebody may have changed it meanwhile. None when the
    /// kernel did not tell.
    pub found: Option<Placement>,
    /// Activations of a cell that found no free slot.
    pub without_slot: u64,
    /// The latency that broke the run, and its expiry since the start of the run.
    pub broke_at: Option<(u64, u64)>,
}

/// A thread that did not end when it was told to: it never ran again.
#[derive(Clone, Debug)]
pub struct Starved {
    /// Index over all sessions.
    pub thread: u32,
    /// Where it was to run.
    pub cpus: CpuSet,
    /// Who held its CPUs, in words.
    pub holder: String,
}

/// A running session, seen from the control thread.
#[derive(Debug)]
pub struct Session {
    clock: SystemClock,
    /// The session's clock at the start of the run: instants of slices are relative to it.
    origin_ns: u64,
    shared: Arc<Shared>,
    /// The cells that were entered, in order.
    cells: Vec<u32>,
    gate: Arc<Gate>,
    threads: Vec<Running>,
    /// What each thread was placed as, with its kernel number; in order of threads.
    pub placed: Vec<(i32, Placement)>,
    /// Peers of this process: they end after the threads.
    peers: Vec<LocalPeer>,
    /// From the spec.
    name_holder: fn(&CpuSet) -> String,
}

type Report = (usize, Placed);

impl Session {
    /// Starts the threads; each places itself, reads its place back and parks. `elapsed_ns` is the
    /// age of the run.
    ///
    /// # Errors
    ///
    /// When a thread can't be had or placed; no thread is left behind.
    pub fn park(spec: &SessionSpec, elapsed_ns: u64) -> Result<Session, SampleError> {
        let clock = match spec.clock {
            ClockName::Monotonic => SystemClock::MONOTONIC,
            ClockName::Realtime => SystemClock::REALTIME,
        };
        let mut session = Session {
            clock,
            origin_ns: clock.now_ns().saturating_sub(elapsed_ns),
            shared: Arc::new(Shared::with_cells(spec.cells, spec.one_cell, spec.marker.clone())),
            cells: Vec::new(),
            gate: Arc::new(Gate::default()),
            threads: Vec::new(),
            placed: Vec::new(),
            peers: Vec::new(),
            name_holder: spec.name_holder,
        };
        let mut wires = session.open(spec)?.into_iter();
        thread::allow_wake();
        let (report, reports) = mpsc::channel();
        for (i, plan) in spec.threads.iter().enumerate() {
            let running = session
                .spawn(i, plan, spec, wires.next(), report.clone())
                .map_err(|source| SampleError::Spawn { thread: plan.thread, source })?;
            session.threads.push(running);
        }
        session.placed = session.collect(&reports)?;
        Ok(session)
    }

    /// The near ends of the frames' paths, one for each thread, if frames are sent.
    fn open(&mut self, spec: &SessionSpec) -> Result<Vec<SocketWire>, NetworkError> {
        let (Some(network), Some(first)) = (&spec.network, spec.threads.first()) else {
            return Ok(Vec::new());
        };
        let place = network.peer_place(&first.asked);
        let links = Links::open(&network.path, spec.threads.len() as u32, Some(&place))?;
        self.peers = links.peers;
        Ok(links.wires)
    }

    fn spawn(
        &self,
        i: usize,
        plan: &ThreadPlan,
        spec: &SessionSpec,
        wire: Option<SocketWire>,
        report: Sender<Report>,
    ) -> io::Result<Running> {
        let spare = spare_slots(spec.threads.len());
        let has_frames = wire.is_some();
        let (mut exchange, slots) = exchange_with(spare, spec.layout, spec.slice_ns, has_frames);
        let mut near = near_end(wire, spec, plan);
        let capacity = Some(spec.raw_capacity).filter(|samples| *samples > 0);
        let (mut ring, raw) = capacity.map(rtrb::RingBuffer::new).unzip();
        let live = Arc::new(LiveFigures::default());
        let (clock, shared, gate) = (self.clock, self.shared.clone(), self.gate.clone());
        let (figures, asked, wake) = (live.clone(), plan.asked.clone(), spec.wake);
        let slack_ns = spec.timer_slack_ns;
        let mut beat = Beat { interval_ns: plan.interval_ns, ..spec.beat };
        let offset_ns = spec.beat.first_ns * i as u64;
        let body = move || {
            let (placed, timer) = enter(asked, slack_ns, (wake, clock));
            let failed = placed.is_err();
            let _ = report.send((i, placed));
            drop(report);
            let word = gate.wait();
            let (Word::Go(start_ns), false) = (word, failed) else { return None };
            beat.first_ns = start_ns + offset_ns;
            let before = thread::usage();
            let began_ns = clock.now_ns();
            let (figures, ring) = (&*figures, ring.as_mut());
            let tally = match (&mut near, wake) {
                (Some((wire, ledger, timeout_ns)), _) => {
                    let (clock, beat, shared, live) = (&clock, &beat, &*shared, figures);
                    let timeout_ns = *timeout_ns;
                    let frames = FrameLoop { clock, beat, timeout_ns, shared, live };
                    frames.run(wire, ledger, &mut exchange, ring)
                }
                (None, Wake::ClockNanosleep) => {
                    run(&clock, &beat, &shared, figures, &mut exchange, ring)
                }
                (None, Wake::Nanosleep) => {
                    run(&NanosleepClock(clock), &beat, &shared, figures, &mut exchange, ring)
                }
                (None, Wake::Timer) => {
                    run(timer.as_ref()?, &beat, &shared, figures, &mut exchange, ring)
                }
            };
            let used = thread::usage() - before;
            let wall_ns = clock.now_ns().saturating_sub(began_ns);
            let found = sched::placement(sched::SELF).ok();
            Some((whole_tally(&tally, used, wall_ns), found, tally, exchange))
        };
        let name = format!("{}{}", crate::THREAD_NAME, plan.thread);
        let handle = std::thread::Builder::new().name(name).stack_size(STACK_BYTES).spawn(body)?;
        Ok(Running {
            plan: plan.clone(),
            grid_ns: (spec.beat.sleep == Sleep::Absolute).then_some(plan.interval_ns),
            live,
            slots,
            cover: Cover::new(spec.layout, offset_ns),
            unanswered: 0,
            asked_ns: 0,
            raw,
            handle: Some(handle),
        })
    }

    fn collect(&self, reports: &Receiver<Report>) -> Result<Vec<(i32, Placement)>, SampleError> {
        let mut placed = vec![None; self.threads.len()];
        let until = Instant::now() + PLACING_LIMIT;
        for _ in &self.threads {
            match reports.recv_timeout(until.saturating_duration_since(Instant::now())) {
                Ok((i, Ok(found))) => placed[i] = Some(found),
                Ok((i, Err((asked, source)))) => {
                    let thread = self.threads[i].plan.thread;
                    return Err(SampleError::Place { thread, asked, source });
                }
                Err(_) => {
                    let silent = placed.iter().position(Option::is_none).unwrap_or(0);
                    let ThreadPlan { thread, asked, .. } = self.threads[silent].plan.clone();
                    let holder = (self.name_holder)(&asked.cpus);
                    return Err(SampleError::Starved { thread, cpus: asked.cpus, holder });
                }
            }
        }
        Ok(placed.into_iter().flatten().collect())
    }

    /// Releases the threads: they start at `start_ns` on the session's clock.
    pub fn release(&mut self, start_ns: u64) {
        for running in &mut self.threads {
            // Without a grid the first interval begins when the thread does.
            let interval_ns = if running.grid_ns.is_some() { 0 } else { running.plan.interval_ns };
            let first_ns = start_ns.saturating_add(interval_ns);
            running.cover.start(first_ns.saturating_sub(self.origin_ns));
        }
        self.gate.say(Word::Go(start_ns));
    }

    /// The session's clock, now.
    #[must_use]
    pub fn now_ns(&self) -> u64 {
        self.clock.now_ns()
    }

    /// Activations that are due [`ENTER_AHEAD_NS`] from now, or later, belong to this cell, until a thread has recorded
    /// `limit` of them.
    pub fn enter(&mut self, cell: u32, limit: Option<u64>) {
        self.cells.push(cell);
        self.shared.enter(self.clock.now_ns() + ENTER_AHEAD_NS, limit);
    }

    /// From now on activations are counted but not judged.
    pub fn leave(&self) {
        self.shared.end_cell(self.cell_reign(), self.clock.now_ns());
    }

    /// Which activations belong to a cell, the last that was entered; none before it has ended.
    #[must_use]
    pub fn bounds(&self, cell: u32) -> Option<Bounds> {
        let (from_ns, to_ns) = self.shared.span_ns(self.cell_reign());
        let since_start = |at_ns: u64| at_ns.saturating_sub(self.origin_ns);
        let ended = self.cells.last() == Some(&cell) && to_ns != u64::MAX;
        ended.then(|| Bounds { from_ns: since_start(from_ns), to_ns: since_start(to_ns) })
    }

    /// The reign of the cell that was entered last.
    fn cell_reign(&self) -> u32 {
        (2 * self.cells.len() as u32).saturating_sub(1)
    }

    /// Whether the cell that was entered last has ended by itself: a thread reached its limit.
    #[must_use]
    pub fn is_full(&self) -> bool {
        let cell = self.cell_reign();
        is_cell(cell) && self.shared.reign() != cell
    }

    /// Whether a latency was above the break threshold.
    #[must_use]
    pub fn is_broken(&self) -> bool {
        self.shared.is_broken()
    }

    /// Hands over the finished slices.
    pub fn drain(&mut self, mut sink: impl FnMut(Slice)) {
        for running in &mut self.threads {
            running.drain(self.origin_ns, &self.cells, &self.shared, &mut sink);
        }
    }

    /// A thread that never woke in so many looks that it should have, and who holds its CPUs. `look` is the
    /// time between two of them: a count of looks, unlike a time, doesn't grow while the machine itself
    /// stands still.
    #[must_use]
    pub fn starved(&self, look: Duration) -> Option<Starved> {
        let is_starved = |running: &&Running| {
            // Twice: the interval may have begun before the first look, and the grid ahead of it.
            let asleep_ns =
                running.plan.interval_ns.saturating_add(running.cover.offset_ns).saturating_mul(2);
            let silence = SILENCE_LIMIT.saturating_add(Duration::from_nanos(asleep_ns));
            u128::from(running.unanswered) > silence.as_nanos() / look.as_nanos().max(1)
        };
        self.threads.iter().find(is_starved).map(|running| running.starved(self.name_holder))
    }

    /// A thread whose frames have not come back for so long, and for how many cycles.
    #[must_use]
    pub fn silent(&self, limit: Duration) -> Option<(u32, u64)> {
        let silent = |running: &Running| {
            let cycles = running.live.silent.load(Relaxed);
            let silent_ns = u128::from(cycles) * u128::from(running.plan.interval_ns);
            (cycles >= SILENT_CYCLES && silent_ns >= limit.as_nanos())
                .then_some((running.plan.thread, cycles))
        };
        self.threads.iter().find_map(silent)
    }

    /// Hands over raw samples: thread, expiry since the start of the run, latency.
    pub fn drain_raw(&mut self, mut sink: impl FnMut(u32, RawSample)) {
        let origin_ns = self.origin_ns;
        for running in &mut self.threads {
            let Some(ring) = &mut running.raw else { continue };
            while let Ok(sample) = ring.pop() {
                let expiry_ns = sample.expiry_ns.saturating_sub(origin_ns);
                sink(running.plan.thread, RawSample { expiry_ns, ..sample });
            }
        }
    }

    /// What the threads show since they were asked last, and asks them again: figures are as old as the
    /// look before this one.
    #[must_use]
    pub fn live(&mut self) -> Vec<Live> {
        let clock = &self.clock;
        let of = |running: &mut Running| {
            let figures = &running.live;
            let recorded = figures.recorded.load(Relaxed);
            let live = Live {
                thread: running.plan.thread,
                cpu: figures.cpu.load(Relaxed),
                now_ns: figures.now_ns.load(Relaxed),
                min_ns: figures.min_ns.load(Relaxed),
                mean_ns: figures.sum_ns.load(Relaxed).checked_div(recorded).unwrap_or(0),
                max_ns: figures.max_ns.load(Relaxed),
                recorded,
                missed: figures.missed.load(Relaxed),
            };
            let is_answered = running.ask(clock);
            running.unanswered = if is_answered { 0 } else { running.unanswered + 1 };
            live
        };
        self.threads.iter_mut().map(of).collect()
    }

    /// Ends the threads, wakes those that sleep and hands over what is left, and what was due in a cell and
    /// never answered. A thread that doesn't run within seconds is left behind: it ends when it runs again.
    pub fn stop(mut self, mut left: impl FnMut(Remainder)) -> (Vec<EndedThread>, Vec<Starved>) {
        for running in &mut self.threads {
            running.ask(&self.clock);
        }
        self.end_threads(ENDING_LIMIT);
        let mut sink = |slice| left(Remainder::Slice(slice));
        let (mut ended, mut starved) = (Vec::new(), Vec::new());
        let (origin_ns, now_ns) = (self.origin_ns, self.clock.now_ns());
        let since_start = |at_ns: u64| at_ns.saturating_sub(origin_ns);
        for running in &mut self.threads {
            let (cells, shared) = (&self.cells, &self.shared);
            running.drain(origin_ns, cells, shared, &mut sink);
            let sampled = running.sampled(origin_ns, cells);
            let Some(handle) = running.handle.take().filter(JoinHandle::is_finished) else {
                let (asked_ns, interval_ns) = (running.asked_ns, running.plan.interval_ns);
                running.cover.unknown_until(&sampled, since_start(asked_ns), interval_ns);
                running.cover.close(&sampled, shared, since_start(now_ns), &mut sink);
                starved.push(running.starved(self.name_holder));
                continue;
            };
            let Ok(Some((mut tally, found, counted, exchange))) = handle.join() else { continue };
            // The thread may have ended after the look above.
            running.drain(origin_ns, cells, shared, &mut sink);
            if let Some(taken) = exchange.rest(&sampled) {
                running.cover.add(&sampled, shared, taken, &mut sink);
            }
            running.cover.close(&sampled, shared, since_start(counted.ended_ns), &mut sink);
            tally.omitted_unexpanded += running.cover.unexpanded;
            ended.push(EndedThread {
                thread: running.plan.thread,
                tally,
                found,
                without_slot: counted.cell_without_slot,
                broke_at: counted
                    .broke_at
                    .map(|(latency_ns, at_ns)| (latency_ns, since_start(at_ns))),
            });
        }
        self.drain_raw(|thread, sample| left(Remainder::Sample(thread, sample)));
        (ended, starved)
    }

    /// Tells the threads to end, and wakes those that sleep until they do, or until the time is over.
    fn end_threads(&self, limit: Duration) {
        self.shared.stop(self.clock.now_ns());
        self.gate.say(Word::Cancel);
        let until = Instant::now() + limit;
        let mut pause = Duration::from_micros(200);
        loop {
            let is_left = |running: &Running| {
                running.handle.as_ref().is_some_and(|handle| !handle.is_finished())
            };
            let left = (0..).zip(&self.threads).filter(|(_, running)| is_left(running));
            let left: Vec<usize> = left.map(|(i, _)| i).collect();
            if left.is_empty() || Instant::now() >= until {
                break;
            }
            for (tid, _) in left.into_iter().filter_map(|i| self.placed.get(i)) {
                thread::wake(*tid);
            }
            std::thread::sleep(pause);
            pause = (2 * pause).min(Duration::from_millis(50));
        }
    }
}

impl Drop for Session {
    /// A session that is given up (an error on the way) must leave no thread behind that runs.
    fn drop(&mut self) {
        if self.threads.iter().any(|running| running.handle.is_some()) {
            self.end_threads(ENDING_LIMIT);
        }
    }
}

/// What a thread sends frames by, the ledger of its frames, and their timeout.
fn near_end(
    wire: Option<SocketWire>,
    spec: &SessionSpec,
    plan: &ThreadPlan,
) -> Option<(SocketWire, Ledger, u64)> {
    let timeout_ns = spec.network.as_ref()?.timeout_ns(plan.interval_ns);
    Some((wire?, Ledger::default(), timeout_ns))
}

fn whole_tally(counted: &LoopTally, used: thread::Usage, wall_ns: u64) -> Tally {
    Tally {
        wakeups: counted.wakeups,
        cpu_ns: used.cpu_ns,
        wall_ns,
        minor_faults: used.minor_faults,
        major_faults: used.major_faults,
        voluntary_switches: used.voluntary_switches,
        involuntary_switches: used.involuntary_switches,
        migrations: counted.migrations,
        raw_lost: counted.raw_lost,
        omitted_unexpanded: counted.omitted_unexpanded,
        without_slot: counted.without_slot,
        smi: None,
    }
}
