//! Who ran when, from the kernel's `sched_switch` events: a tracing instance of our own, filtered to
//! the threads of the experiment, removed afterwards.

use rtscope_model::experiment::Run;
use rtscope_sys::tree::Tree;

use crate::trace::{self, Instance, Line};

/// Buffer of each CPU: some ten thousand events.
const BUFFER_KIB: u32 = 2048;

/// A tracing instance that records, until it is dropped.
#[derive(Debug)]
pub(super) struct Capture(Instance);

/// What was recorded.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Traced {
    /// Runs of each thread, in instants of `CLOCK_MONOTONIC`; one that the trace saw no end of ends
    /// at `u64::MAX`.
    pub(super) runs: Vec<Vec<Run>>,
    /// Events that had no room.
    pub(super) lost: u64,
}

impl Capture {
    /// Starts; none where the kernel has no tracing or we may not.
    pub(super) fn start(tree: &Tree, tids: &[i32]) -> Option<Capture> {
        let instance = Instance::new(tree, BUFFER_KIB).ok()?;
        let either = |tid: &i32| format!("prev_pid == {tid} || next_pid == {tid}");
        let filter = tids.iter().map(either).collect::<Vec<_>>().join(" || ");
        instance.write("events/sched/sched_switch/filter", &filter).ok()?;
        instance.enable("sched/sched_switch").then_some(Capture(instance))
    }

    /// Ends and reads; none when it can't be read.
    pub(super) fn finish(self, tids: &[i32]) -> Option<Traced> {
        let traced = parse(&self.0.finish()?, tids);
        traced.runs.iter().any(|runs| !runs.is_empty()).then_some(traced)
    }
}

/// Reads the trace as text.
fn parse(text: &str, tids: &[i32]) -> Traced {
    let mut runs = vec![Vec::new(); tids.len()];
    let mut open: Vec<Option<(u64, u32)>> = vec![None; tids.len()];
    let mut lost = 0;
    for line in text.lines() {
        lost = trace::lost(line).unwrap_or(lost);
        let Some(switch) = Switch::parse(line) else { continue };
        for (n, tid) in tids.iter().enumerate() {
            if switch.from == *tid
                && let Some((start_ns, cpu)) = open[n].take()
            {
                runs[n].push(Run { cpu, start_ns, end_ns: switch.at_ns });
            }
            if switch.to == *tid {
                open[n] = Some((switch.at_ns, switch.cpu));
            }
        }
    }
    // Who joins a thread may be faster than its last switch: it ran until the trace ended.
    for (runs, open) in runs.iter_mut().zip(open) {
        runs.extend(open.map(|(start_ns, cpu)| Run { cpu, start_ns, end_ns: u64::MAX }));
    }
    Traced { runs, lost }
}

/// One event.
#[derive(Debug)]
struct Switch {
    at_ns: u64,
    cpu: u32,
    from: i32,
    to: i32,
}

impl Switch {
    fn parse(line: &str) -> Option<Switch> {
        let line = Line::parse(line)?;
        let what = line.event.strip_prefix("sched_switch: ")?;
        let (prev, next) = what.split_once(" ==> ")?;
        let number =
            |text: &str, key: &str| text.rsplit_once(key)?.1.split(' ').next()?.parse().ok();
        Some(Switch {
            at_ns: line.at_ns,
            cpu: line.cpu,
            from: number(prev, "prev_pid=")?,
            to: number(next, "next_pid=")?,
        })
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
        let run = |cpu, start_us: u64, end_us: u64| Run {
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
        let still_runs = Run { end_ns: u64::MAX, ..run(1, 10_000_100, 0) };
        assert_eq!(parse(&cut, &[41]).runs, [[still_runs]]);
    }

    #[test]
    fn a_line_that_is_cut_short_is_no_event() {
        let line = TRACE.lines().nth(3).expect("an event");
        for end in 0..line.rfind("next_pid=").expect("its key") + 9 {
            assert!(Switch::parse(&line[..end]).is_none(), "{}", &line[..end]);
        }
    }

    #[test]
    fn a_machine_without_tracing_has_none() {
        let folder = tempfile::tempdir().expect("a folder");
        assert!(Capture::start(&Tree::under(folder.path()), &[1]).is_none());
    }
}
