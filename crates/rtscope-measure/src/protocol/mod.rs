//! The protocol: sessions one after the other, in each its phases, in each its loads.
//!
//! One thread conducts: it sleeps [`TICK`] at a time (less where slices are short), empties the sampling
//! threads' slots, looks whether the phase is over, and once a second reads what the loads and the machine did. Nothing
//! it does is on behalf of a sampling thread.

mod surroundings;

use std::time::Duration;

use rtscope_model::{
    environment::RealTimeThread,
    event::{EndReason, Event, Progress},
    finding::{Finding, Weight},
    plan::{Phase, Plan, ThreadStart},
    printable::quoted,
    schedule::{Placement, Policy},
    time::Nanos,
};
use rtscope_sampler::{
    ENTER_AHEAD_NS, EndedThread, Offset, Remainder, Session, Starved, look_span_ns, network,
};
use rtscope_sys::{
    clock::{Clock, SystemClock},
    memory, sched,
    tree::Tree,
};

use crate::{
    RunError,
    environment::{
        InterruptCounters, SystemCounters, energy::EnergyCounters, kernel_log::KernelLog, smi,
    },
    load::{self, Launcher, RunningLoad},
    machine::{SessionPlan, real_time_load_priority},
    other_work::OtherWorkWatch,
    signals::Interrupt,
    stream::Stream,
    timekeeping::{self, ClockWatch},
    watchdog::Watchdog,
};

/// Time between two looks: 8 a second, or more where slices are short.
const TICK: Duration = Duration::from_millis(125);

/// Time between two readings of the loads' and the machine's counters.
const SPAN: Nanos = Nanos::from_secs(1);

/// The kernel counts CPU time in ticks of up to 10 ms: a shorter span than some of them says nothing.
const COUNTERS_SPAN_MIN: Nanos = Nanos::from_ms(50);

/// When no frame came back for so long, the peer is gone.
const PEER_SILENCE: Duration = Duration::from_secs(3);

/// How long a session waits at its end for activations that are due later than their instants.
const LAST_EXPIRY: Duration = Duration::from_secs(2);

/// How long parked threads are given between release and first expiry.
const RELEASE_MARGIN: Nanos = Nanos::from_ms(10);

/// What the conductor works with, for all sessions of a run.
pub(crate) struct Conductor<'a, 'b> {
    pub(crate) plan: &'a Plan,
    pub(crate) stream: &'a mut Stream<'b>,
    pub(crate) interrupt: &'a Interrupt,
    pub(crate) watchdog: &'a Watchdog,
    pub(crate) tree: &'a Tree,
    pub(crate) launcher: Launcher,
    pub(crate) counters: SystemCounters,
    pub(crate) interrupts: InterruptCounters,
    pub(crate) energy: EnergyCounters,
    pub(crate) counters_at_ns: u64,
    /// How long the control thread had waited for a CPU at that time.
    pub(crate) queued_ns: Option<u64>,
    /// CPU time of this process at that instant.
    pub(crate) own_cpu_ns: u64,
    pub(crate) kernel_log: KernelLog,
    /// Real-time threads of others before the run.
    pub(crate) real_time_before: &'a [RealTimeThread],
    /// The watch over other processes, while a phase counts.
    pub(crate) others: Option<OtherWorkWatch>,
    pub(crate) clocks: ClockWatch,
    /// Time between two looks of the running session.
    pub(crate) tick: Duration,
    /// When live figures were last handed on.
    pub(crate) progress_at_ns: u64,
}

impl Conductor<'_, '_> {
    /// Runs one session. A reason means that the whole run ends here.
    pub(crate) fn session(
        &mut self,
        index: u32,
        laid: &SessionPlan,
    ) -> Result<Option<EndReason>, RunError> {
        let before = self.place_control(laid)?;
        let outcome = self.sampled(index, laid);
        // Back to where the process was, for the next session and for the report.
        let _ = sched::set_policy(sched::SELF, &before);
        let _ = sched::set_affinity(sched::SELF, &before.cpus);
        outcome
    }

    fn sampled(&mut self, index: u32, laid: &SessionPlan) -> Result<Option<EndReason>, RunError> {
        let mut session = Session::park(&laid.spec, self.stream.elapsed_ns())?;
        let look_ns = look_span_ns(laid.spec.slice_ns, laid.spec.threads.len());
        self.tick = TICK.min(Duration::from_nanos(look_ns));
        self.announce(index, laid, &session);
        let smi_before = self.smi(laid);
        let sampler = &self.plan.phases[laid.cells.start].sampler;
        let now_ns = session.now_ns();
        let start_ns = start_instant(now_ns, sampler.start);
        session.release(start_ns);
        self.launcher.measured = laid.measured.clone();
        let mut end = self.wait(&mut session, Nanos(start_ns - now_ns + sampler.warmup.0));
        for cell in laid.cells.clone() {
            if end.is_some() {
                break;
            }
            let why = self.phase(&mut session, cell as u32);
            if matches!(why, EndReason::Break | EndReason::Interrupted) {
                end = Some(why);
            }
        }
        self.await_last_expiry(laid);
        self.hand_on(&mut session);
        let stream = &mut *self.stream;
        let (ended, starved) = session.stop(|left| match left {
            Remainder::Slice(slice) => stream.emit(Event::Slice(slice)),
            Remainder::Sample(thread, sample) => stream.recorder.raw(thread, sample),
        });
        stream.recorder.flush_raw();
        self.account(laid, &ended, &smi_before);
        if let Some(first) = starved.first() {
            self.stream.found(starved_finding(first));
            return Ok(Some(EndReason::Failed));
        }
        Ok(end)
    }

    /// With an offset, the last activation of a cell may be due up to an interval after its instant, and so after the
    /// cell's end; and a frame may be awaited as long. Where intervals are longer than anybody would wait, it counts as missed.
    fn await_last_expiry(&self, laid: &SessionPlan) {
        if laid.spec.beat.offset == Offset::None && laid.spec.network.is_none() {
            return;
        }
        let longest_ns = laid.spec.threads.iter().map(|thread| thread.interval_ns).max();
        std::thread::sleep(Duration::from_nanos(longest_ns.unwrap_or(0)).min(LAST_EXPIRY));
    }

    /// Puts the control thread off the measured CPUs, and above real-time loads, so that it can end
    /// them. Its place before is returned.
    fn place_control(&mut self, laid: &SessionPlan) -> Result<Placement, RunError> {
        let before = sched::placement(sched::SELF).map_err(RunError::Control)?;
        sched::set_affinity(sched::SELF, &laid.control).map_err(RunError::Control)?;
        if let Some(priority) = real_time_load_priority(&self.plan.phases[laid.cells.clone()]) {
            let above = Placement {
                policy: Policy::Fifo,
                priority: (priority + 1).min(99),
                nice: 0,
                budget: None,
                cpus: laid.control.clone(),
            };
            sched::set_policy(sched::SELF, &above).map_err(RunError::Control)?;
        }
        Ok(before)
    }

    fn announce(&mut self, index: u32, laid: &SessionPlan, session: &Session) {
        let first_thread = laid.spec.threads.first().map_or(0, |t| t.thread);
        self.stream.emit(Event::SessionStarted {
            session: index,
            first_cell: laid.cells.start as u32,
            cells: laid.cells.len() as u32,
            layout: laid.spec.layout,
            first_thread,
            threads: laid.spec.threads.len() as u32,
            locked_kib: locked_kib(self.tree),
            control: sched::placement(sched::SELF).unwrap_or_else(|_| Placement {
                policy: Policy::Other,
                priority: 0,
                nice: 0,
                budget: None,
                cpus: laid.control.clone(),
            }),
        });
        for (plan, (tid, found)) in laid.spec.threads.iter().zip(&session.placed) {
            self.stream.emit(Event::ThreadPlaced {
                thread: plan.thread,
                session: index,
                tid: *tid as u32,
                interval_ns: plan.interval_ns,
                asked: plan.asked.clone(),
                found: found.clone(),
            });
        }
    }

    /// One phase: its loads, its end. Samples count from the start of the first load, unless the phase
    /// settles first, until the phase is over: what the loads' end takes is nobody's phase.
    fn phase(&mut self, session: &mut Session, cell: u32) -> EndReason {
        let phase = &self.plan.phases[cell as usize];
        let settles = phase.settle > Nanos::ZERO;
        if !settles {
            // It takes some milliseconds, which are no time of the phase.
            self.watch_others();
        }
        self.stream.emit(Event::PhaseStarted { cell, name: phase.name.clone() });
        if !settles {
            self.hand_on(session);
            session.enter(cell, phase.end.cycles);
        }
        let (mut loads, failure) = self.start_loads(cell, phase);
        if phase.end.load_ends {
            // At the end of the phase they will be gone.
            self.read_real_time_threads(cell, &loads);
        }
        let why = match failure {
            Some(finding) => {
                self.stream.found(finding);
                EndReason::Failed
            }
            None => self.measure(session, cell, phase, &mut loads),
        };
        self.hand_on(session);
        session.leave();
        self.read_rates(cell, &mut loads);
        self.read_system();
        self.look_at_clocks(phase);
        self.stream.emit(Event::PhaseEnded { cell, why, bounds: session.bounds(cell) });
        let before = surroundings::ahead_of_loads();
        self.read_other_work(cell);
        if !phase.end.load_ends {
            self.read_real_time_threads(cell, &loads);
        }
        surroundings::as_before(before);
        self.stop_loads(session, cell, phase, loads);
        why
    }

    /// From the loads' start to the end of the phase.
    fn measure(
        &mut self,
        session: &mut Session,
        cell: u32,
        phase: &Phase,
        loads: &mut [Load],
    ) -> EndReason {
        if phase.settle > Nanos::ZERO {
            if let Some(why) = self.wait(session, phase.settle) {
                return why;
            }
            self.watch_others();
            session.enter(cell, phase.end.cycles);
        }
        self.watch(session, cell, phase, loads)
    }

    /// Starts a phase's loads: those that run, and why the next one does not.
    fn start_loads(&mut self, cell: u32, phase: &Phase) -> (Vec<Load>, Option<Finding>) {
        let limit = load::limit_of(phase);
        let mut loads: Vec<Load> = Vec::new();
        for (i, line) in phase.loads.iter().enumerate() {
            match self.launcher.start(line, limit) {
                Ok(running) => {
                    let (load, pid) = (i as u32, running.pid());
                    self.stream.emit(Event::LoadStarted {
                        cell,
                        load,
                        line: line.to_string(),
                        pid,
                    });
                    loads.push(Load {
                        running: Some(running),
                        work: 0,
                        at_ns: self.stream.elapsed_ns(),
                    });
                }
                Err(e) => {
                    let text = format!(
                        "load {} of phase {} did not start: {e}",
                        quoted(&line.name),
                        quoted(&phase.name)
                    );
                    let finding = Finding::new("load-did-not-start", Weight::Invalidates, text);
                    return (loads, Some(finding));
                }
            }
        }
        (loads, None)
    }

    /// Ticks until the phase is over.
    fn watch(
        &mut self,
        session: &mut Session,
        cell: u32,
        phase: &Phase,
        loads: &mut [Load],
    ) -> EndReason {
        // What was decided of the phase before is not about this one.
        self.interrupt.take_decided();
        let until_ns = phase.end.duration.map(|d| self.stream.elapsed_ns() + ENTER_AHEAD_NS + d.0);
        let mut span_ns = self.stream.elapsed_ns();
        loop {
            self.tick(session, Some(cell), until_ns);
            let now_ns = self.stream.elapsed_ns();
            if now_ns - span_ns >= SPAN.0 {
                self.read_rates(cell, loads);
                self.read_system();
                self.look_at_others();
                self.look_at_clocks(phase);
                span_ns = now_ns;
            }
            let (load_ended, died) = self.poll_loads(cell, phase, loads);
            if let Some(gone) = self.gone(session, phase) {
                self.stream.found(gone);
                return EndReason::Failed;
            } else if session.is_broken() {
                return EndReason::Break;
            } else if self.interrupt.is_stopped() {
                return EndReason::Interrupted;
            } else if session.is_full() {
                return EndReason::Cycles;
            } else if let Some(finding) = died {
                self.stream.found(finding);
                return EndReason::Failed;
            } else if self.interrupt.take_decided() {
                return EndReason::Decided;
            } else if load_ended && phase.end.load_ends {
                return EndReason::LoadEnded;
            } else if until_ns.is_some_and(|until_ns| now_ns >= until_ns) {
                return EndReason::Duration;
            }
        }
    }

    /// Ticks for a time in which nothing is judged; a reason means that the run was ended.
    fn wait(&mut self, session: &mut Session, time: Nanos) -> Option<EndReason> {
        let until_ns = self.stream.elapsed_ns() + time.0;
        while self.stream.elapsed_ns() < until_ns {
            if self.interrupt.is_stopped() {
                return Some(EndReason::Interrupted);
            }
            self.tick(session, None, Some(until_ns));
            if let Some(starved) = session.starved(TICK) {
                self.stream.found(starved_finding(&starved));
                return Some(EndReason::Failed);
            }
        }
        None
    }

    /// What makes it useless to go on: a thread that doesn't run, or frames that no longer come back.
    fn gone(&self, session: &Session, phase: &Phase) -> Option<Finding> {
        let starved = session.starved(TICK).map(|starved| starved_finding(&starved));
        starved.or_else(|| {
            let (thread, cycles) = session.silent(PEER_SILENCE)?;
            let path = phase.sampler.network.path()?;
            Some(silent_finding(thread, cycles, &network::where_to(path)))
        })
    }

    /// Sleeps a tick, or less when the end is nearer, and hands on what was sampled meanwhile.
    fn tick(&mut self, session: &mut Session, cell: Option<u32>, until_ns: Option<u64>) {
        let now_ns = self.stream.elapsed_ns();
        let left_ns = until_ns.map_or(u64::MAX, |until_ns| until_ns.saturating_sub(now_ns));
        let pause = self.tick.min(Duration::from_nanos(left_ns));
        std::thread::sleep(pause);
        let slept_ns = self.stream.elapsed_ns() - now_ns;
        self.hand_on(session);
        self.judge_sleep(slept_ns.saturating_sub(pause.as_nanos() as u64));
        let (elapsed_ns, all_ns) = (self.stream.elapsed_ns(), self.plan.expected().0.max(1));
        // Screens gain nothing from more than 8 a second.
        if self.tick < TICK && elapsed_ns - self.progress_at_ns < TICK.as_nanos() as u64 {
            return;
        }
        self.progress_at_ns = elapsed_ns;
        self.stream.emit(Event::Progress(Progress {
            cell,
            done: (elapsed_ns as f64 / all_ns as f64).min(1.0),
            left_ns: all_ns.saturating_sub(elapsed_ns),
            threads: session.live(),
        }));
    }

    /// Hands on what was sampled. Starting and stopping loads may have taken seconds: done before the
    /// scope changes, so that every thread has an empty slot for the new one.
    fn hand_on(&mut self, session: &mut Session) {
        self.watchdog.renew();
        let stream = &mut *self.stream;
        session.drain(|slice| stream.emit(Event::Slice(slice)));
        session.drain_raw(|thread, sample| stream.recorder.raw(thread, sample));
        stream.recorder.flush_raw();
    }

    fn read_rates(&mut self, cell: u32, loads: &mut [Load]) {
        for (i, load) in loads.iter_mut().enumerate() {
            load.report(cell, i as u32, self.stream);
        }
    }

    fn read_system(&mut self) {
        let now_ns = self.stream.elapsed_ns();
        if now_ns - self.counters_at_ns < COUNTERS_SPAN_MIN.0 {
            return;
        }
        let counters = SystemCounters::read(self.tree);
        let mut span = counters.span_since(&self.counters, now_ns - self.counters_at_ns);
        let interrupts = InterruptCounters::read(self.tree);
        span.lines = interrupts.since(&self.interrupts);
        let energy = EnergyCounters::read(self.tree);
        span.energy_uj = energy.since_uj(&self.energy);
        self.energy = energy;
        span.throttled = self.kernel_log.read();
        let own_cpu_ns = SystemClock::PROCESS_CPU.now_ns();
        span.own_ns = Some(own_cpu_ns - self.own_cpu_ns);
        (self.counters, self.interrupts, self.counters_at_ns) = (counters, interrupts, now_ns);
        self.queued_ns = timekeeping::queued_ns(self.tree);
        self.own_cpu_ns = own_cpu_ns;
        self.stream.emit(Event::System(span));
    }

    /// Notes loads that have ended. Answers whether any has, and why the first one ended that should not
    /// have. The work of one that was stopped was read before.
    fn poll_loads(
        &mut self,
        cell: u32,
        phase: &Phase,
        loads: &mut [Load],
    ) -> (bool, Option<Finding>) {
        let (mut any, mut died) = (false, None);
        for (i, load) in loads.iter_mut().enumerate() {
            let Some(running) = &mut load.running else { continue };
            let was_asked = running.is_asked();
            let Some(ended) = running.poll() else { continue };
            any = true;
            if !ended.ok {
                let (line, name) = (quoted(&phase.loads[i].name), quoted(&phase.name));
                let text = format!("load {line} of phase {name} died: {}", ended.how);
                died = died.or(Some(Finding::new("load-died", Weight::Invalidates, text)));
            }
            if !was_asked {
                load.report(cell, i as u32, self.stream);
            }
            let work = load.work;
            load.running = None;
            self.stream.emit(Event::LoadEnded {
                cell,
                load: i as u32,
                work,
                ok: ended.ok,
                how: ended.how,
            });
        }
        (any, died)
    }

    /// Ends the loads. One that waits in the kernel, for a disk that is written out, may take seconds:
    /// what is sampled meanwhile is handed on.
    fn stop_loads(
        &mut self,
        session: &mut Session,
        cell: u32,
        phase: &Phase,
        mut loads: Vec<Load>,
    ) {
        loads.iter_mut().filter_map(|load| load.running.as_mut()).for_each(RunningLoad::ask_to_end);
        let mut pause = Duration::from_millis(5);
        loop {
            self.poll_loads(cell, phase, &mut loads);
            if loads.iter().all(|load| load.running.is_none()) {
                break;
            }
            std::thread::sleep(pause);
            pause = (2 * pause).min(TICK);
            self.hand_on(session);
        }
        self.read_system();
    }

    /// SMI counts of the CPUs that have one sampling thread each.
    fn smi(&self, laid: &SessionPlan) -> Vec<Option<u64>> {
        let of = |cpus: &rtscope_model::cpu::CpuSet| {
            let only = cpus.iter().next().filter(|_| cpus.len() == 1)?;
            smi::count(self.tree, only)
        };
        laid.spec.threads.iter().map(|t| of(&t.asked.cpus)).collect()
    }

    /// Says which threads stopped the run. The first of them answered first.
    fn tell_breaks(&mut self, ended: &[EndedThread]) {
        let broke = ended.iter().filter_map(|thread| Some((thread.thread, thread.broke_at?)));
        let mut broke: Vec<_> = broke.collect();
        broke.sort_by_key(|(_, (latency_ns, expiry_ns))| latency_ns + expiry_ns);
        for (thread, (latency_ns, expiry_ns)) in broke {
            self.stream.emit(Event::BreakHit { thread, latency_ns, expiry_ns });
        }
    }

    /// Closes the books of a session's threads.
    fn account(&mut self, laid: &SessionPlan, ended: &[EndedThread], smi_before: &[Option<u64>]) {
        self.tell_warnings();
        let smi_after = self.smi(laid);
        self.tell_breaks(ended);
        for thread in ended {
            let i = laid.spec.threads.iter().position(|plan| plan.thread == thread.thread);
            let smi = |counts: &[Option<u64>]| counts.get(i?).copied().flatten();
            let mut tally = thread.tally;
            tally.raw_lost += self.stream.recorder.raw_lost(thread.thread);
            tally.smi = smi(smi_before).zip(smi(&smi_after)).map(|(a, b)| b.wrapping_sub(a));

            if thread.without_slot > 0 {
                let text = format!(
                    "thread {} had no slot for {} activations: the control thread was held up for seconds",
                    thread.thread, thread.without_slot
                );
                self.stream.found(Finding::new(
                    "activations-without-slot",
                    Weight::Invalidates,
                    text,
                ));
            }
            let found = thread.found.clone();
            self.stream.emit(Event::ThreadEnded { thread: thread.thread, tally, found });
        }
    }
}

/// Says that a thread does not run, and who is in its way.
fn starved_finding(starved: &Starved) -> Finding {
    let Starved { thread, cpus, holder } = starved;
    let text = format!("sampling thread {thread} did not run on CPU {cpus} for seconds: {holder}");
    Finding::new("thread-starved", Weight::PreventsPass, text)
        .advise("end these threads or give them a lower priority, or measure on another CPU")
}

/// Says that no frame comes back any more.
fn silent_finding(thread: u32, cycles: u64, peer: &str) -> Finding {
    let text = format!(
        "no frame of thread {thread} came back in {cycles} cycles in a row: {peer} is silent"
    );
    Finding::new("peer-silent", Weight::PreventsPass, text).advise(
        "check that the peer still runs and that the link is up; ask for a longer timeout or cycle if frames take longer",
    )
}

/// A load of the running phase.
struct Load {
    /// None once it has ended.
    running: Option<RunningLoad>,
    work: u64,
    at_ns: u64,
}

impl Load {
    /// Says what was achieved since the last time.
    fn report(&mut self, cell: u32, load: u32, stream: &mut Stream<'_>) {
        let Some(running) = &self.running else { return };
        let (work, now_ns) = (running.work(), stream.elapsed_ns());
        let span_ns = now_ns - self.at_ns;
        let rate = Event::load_rate(cell, load, span_ns, work - self.work, running.unit());
        (self.work, self.at_ns) = (work, now_ns);
        stream.emit(rate);
    }
}

/// Locked memory of this process in KiB; 0 when it isn't shown.
fn locked_kib(tree: &Tree) -> u64 {
    let status = tree.read("proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmLck:"));
    line.and_then(|rest| rest.split_whitespace().next()?.parse().ok()).unwrap_or(0)
}

/// The instant of the first expiry, at a whole microsecond as cyclictest's: where an expiry nearly coincides with
/// the kernel's tick, the rest of a microsecond decides which of them goes first.
fn start_instant(now_ns: u64, start: ThreadStart) -> u64 {
    let soon_ns = (now_ns + RELEASE_MARGIN.0).next_multiple_of(1_000);
    match start {
        ThreadStart::Together => soon_ns,
        ThreadStart::Second => soon_ns.next_multiple_of(1_000_000_000),
    }
}

/// Locks the process's memory for as long as the value lives.
#[derive(Debug)]
pub(crate) struct LockedMemory;

impl LockedMemory {
    pub(crate) fn lock() -> Result<LockedMemory, rtscope_sys::Error> {
        memory::lock_all().map(|()| LockedMemory)
    }
}

impl Drop for LockedMemory {
    fn drop(&mut self) {
        memory::unlock_all();
    }
}
