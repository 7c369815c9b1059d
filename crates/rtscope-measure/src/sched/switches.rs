//! Who ran when, from the kernel's `sched_switch` events: a tracing instance of our own, filtered to
//! the threads of the experiment and to real-time ones, removed afterwards.
//!
//! A thread that was taken off its CPU though it was ready, while that CPU runs an ordinary thread or none,
//! is held up by something else than priorities: by throttling, the fair server, or its own budget. One
//! that wakes up while it is held up is seen from its next run on only.

use rtscope_model::sched::CpuInterval;
use rtscope_sys::tree::Tree;

use crate::trace::{Event, Instance, Recording, What, text};

/// Buffer of each CPU: some ten thousand events.
const BUFFER_KIB: u32 = 2048;

/// Priorities from here on are those of ordinary threads and of the idle ones, as the kernel counts them.
const ORDINARY: i32 = 100;

/// The switches of an experiment's threads, while they are recorded.
#[derive(Debug)]
pub(super) struct Capture(Recording);

/// What was recorded.
#[derive(Debug, PartialEq, Eq)]
pub struct Traced {
    /// Runs of each thread, in instants of `CLOCK_MONOTONIC`; one that the trace saw no end of ends
    /// at `u64::MAX`.
    pub runs: Vec<Vec<CpuInterval>>,
    /// When each was ready and its CPU ran an ordinary thread or none: for ordinary ones it means nothing.
    pub held_up: Vec<Vec<CpuInterval>>,
    /// Events that had no room.
    pub lost: u64,
}

impl Capture {
    /// Starts; none where the kernel has no tracing or we may not.
    pub(super) fn start(tree: &Tree, tids: &[i32]) -> Option<Capture> {
        let mut instance = Instance::new(tree, BUFFER_KIB).ok()?;
        let either = |tid: &i32| format!("prev_pid == {tid} || next_pid == {tid}");
        // Between two ordinary threads nothing changes for those that are held up.
        let real_time = format!("prev_prio < {ORDINARY} || next_prio < {ORDINARY}");
        let words: Vec<String> = tids.iter().map(either).chain([real_time]).collect();
        let filter = words.join(" || ");
        instance.write("events/sched/sched_switch/filter", &filter).ok()?;
        instance.switch_on("sched/sched_switch").ok()?;
        instance.record().ok().map(Capture)
    }

    /// Ends and reads; none when it can't be read.
    pub(super) fn finish(self, tids: &[i32]) -> Option<Traced> {
        let mut threads = Threads::new(tids);
        let lost = self.0.finish(|event| threads.see(event)).ok()?;
        let traced = threads.end(lost);
        traced.runs.iter().any(|runs| !runs.is_empty()).then_some(traced)
    }
}

/// Reads the trace as text, for these threads.
#[must_use]
pub fn parse(text: &str, tids: &[i32]) -> Traced {
    let mut threads = Threads::new(tids);
    let mut lost = 0;
    for line in text.lines() {
        lost = text::lost(line).unwrap_or(lost);
        if let Some(event) = text::parse(line) {
            threads.see(&event);
        }
    }
    threads.end(lost)
}

/// The threads of an experiment while their events are read.
struct Threads(Vec<(u32, Thread)>);

impl Threads {
    fn new(tids: &[i32]) -> Threads {
        Threads(tids.iter().map(|tid| (tid.cast_unsigned(), Thread::default())).collect())
    }

    fn see(&mut self, event: &Event) {
        self.0.iter_mut().for_each(|(tid, thread)| thread.see(event, *tid));
    }

    fn end(self, lost: u64) -> Traced {
        let mut threads: Vec<Thread> = self.0.into_iter().map(|(_, thread)| thread).collect();
        // Who joins a thread may be faster than its last switch: it ran until the trace ended.
        for thread in &mut threads {
            let open = thread.runs_since.take();
            thread.runs.extend(open.map(|(start_ns, cpu)| CpuInterval {
                cpu,
                start_ns,
                end_ns: u64::MAX,
            }));
        }
        let (runs, held_up) =
            threads.into_iter().map(|thread| (thread.runs, thread.held_up)).unzip();
        Traced { runs, held_up, lost }
    }
}

/// What the trace has shown of a thread.
#[derive(Debug, Default)]
struct Thread {
    runs: Vec<CpuInterval>,
    runs_since: Option<(u64, u32)>,
    held_up: Vec<CpuInterval>,
    /// The CPU that it was taken off though it was ready.
    ready_on: Option<u32>,
    held_up_since: Option<u64>,
}

impl Thread {
    fn see(&mut self, event: &Event, tid: u32) {
        let Event {
            at_ns, cpu, what: What::Switch { from, is_ready, to, to_priority, .. }, ..
        } = *event
        else {
            return;
        };
        if from == tid {
            let run = self.runs_since.take();
            self.runs.extend(run.map(|(start_ns, cpu)| CpuInterval {
                cpu,
                start_ns,
                end_ns: at_ns,
            }));
            self.ready_on = is_ready.then_some(cpu);
        }
        let goes_on = to == tid;
        if let Some(cpu) = self.ready_on.filter(|ready_on| goes_on || *ready_on == cpu) {
            let start_ns = self.held_up_since.take();
            self.held_up.extend(start_ns.map(|start_ns| CpuInterval {
                cpu,
                start_ns,
                end_ns: at_ns,
            }));
            self.held_up_since = (!goes_on && to_priority >= ORDINARY).then_some(at_ns);
        }
        if goes_on {
            self.runs_since = Some((at_ns, cpu));
            self.ready_on = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TRACE: &str = "\
# tracer: nop
#
# entries-in-buffer/entries-written: 4/9   #P:2
          <idle>-0       [001] d..2.    10.000100: sched_switch: prev_comm=swapper/1 prev_pid=0 prev_prio=120 prev_state=R ==> next_comm=app 1 next_pid=41 next_prio=19
          app 1-41      [001] d..2.    10.400200: sched_switch: prev_comm=app 1 prev_pid=41 prev_prio=19 prev_state=S ==> next_comm=a [x] next_pid=42 next_prio=120
         a [x]-42      [001] d..2.    10.500000: sched_switch: prev_comm=a [x] prev_pid=42 prev_prio=120 prev_state=R+ ==> next_comm=kworker next_pid=7 next_prio=120
          <idle>-0       [000] d..2.    10.500100: sched_switch: prev_comm=swapper/0 prev_pid=0 prev_prio=120 prev_state=R ==> next_comm=a [x] next_pid=42 next_prio=120
         a [x]-42      [000] d..2.    10.600000: sched_switch: prev_comm=a [x] prev_pid=42 prev_prio=120 prev_state=X ==> next_comm=swapper/0 next_pid=0 next_prio=120
";

    #[test]
    fn switches_become_runs_and_losses_are_counted() {
        let traced = parse(TRACE, &[41, 42]);
        let run = |cpu, start_us: u64, end_us: u64| CpuInterval {
            cpu,
            start_ns: start_us * 1_000,
            end_ns: end_us * 1_000,
        };
        assert_eq!(traced.runs[0], [run(1, 10_000_100, 10_400_200)]);
        assert_eq!(
            traced.runs[1],
            [run(1, 10_400_200, 10_500_000), run(0, 10_500_100, 10_600_000)]
        );
        assert_eq!(traced.lost, 5);
        let cut = TRACE.lines().take(4).collect::<Vec<_>>().join("\n");
        let still_runs = CpuInterval { end_ns: u64::MAX, ..run(1, 10_000_100, 0) };
        assert_eq!(parse(&cut, &[41]).runs, [[still_runs]]);
    }

    #[test]
    fn who_is_ready_while_an_ordinary_thread_runs_is_held_up() {
        let event = |at_ms: u64, from: i32, state: &str, to: i32, priority: i32| {
            format!(
                "  x-{from} [001] d..2. 0.{at_ms:03}000: sched_switch: prev_comm=x prev_pid={from} \
                 prev_prio=19 prev_state={state} ==> next_comm=y next_pid={to} next_prio={priority}\n"
            )
        };
        let span = |start_ms: u64, end_ms: u64| CpuInterval {
            cpu: 1,
            start_ns: start_ms * 1_000_000,
            end_ns: end_ms * 1_000_000,
        };
        // Preempted by a real-time thread until 20; held up while an ordinary one runs from 20 to 25, and
        // from 30 to 50, a thread of the kernel of real-time priority between; then it sleeps.
        let text = [
            event(0, 0, "S", 41, 19),
            event(10, 41, "R+", 7, 9),
            event(20, 7, "S", 42, 120),
            event(25, 42, "R", 8, 49),
            event(30, 8, "S", 0, 120),
            event(50, 0, "R", 41, 19),
            event(60, 41, "S", 42, 120),
            event(70, 42, "S", 41, 19),
        ];
        let traced = parse(&text.concat(), &[41, 42]);
        assert_eq!(traced.held_up[0], [span(20, 25), span(30, 50)]);
        assert_eq!(traced.runs[0][..2], [span(0, 10), span(50, 60)]);
        // A deadline thread has a priority below 0.
        let text = [event(0, 0, "S", 41, -1), event(5, 41, "R", 43, -1), event(9, 43, "S", 41, -1)];
        assert_eq!(parse(&text.concat(), &[41]).held_up[0], []);
    }

    #[test]
    fn a_machine_without_tracing_has_none() {
        let folder = tempfile::tempdir().expect("a folder");
        assert!(Capture::start(&Tree::under(folder.path()), &[1]).is_none());
    }
}
