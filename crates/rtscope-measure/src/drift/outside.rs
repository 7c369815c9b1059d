//! A program watched from outside, by the kernel's own events: `hrtimer_start` says when a thread went to
//! sleep, until when, and whether it asked for a time or for an instant; `sched_waking` says when it woke.
//!
//! The program runs as it is: nothing is put into it. From when to when: an activation is the instant at
//! which the kernel wakes the thread. How much later it gets a CPU is not part of it.

use std::{
    collections::BTreeMap,
    os::unix::process::ExitStatusExt,
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use rtscope_model::drift::{LoopActivation, Periodic, WatchedProgram};
use rtscope_sys::{fork::signal, process, thread as own, tree::Tree};

use super::{ACTIVATIONS_MAX, DriftError, DriftOptions, LOOK};
use crate::trace::{Event, Instance, Name, OTHER_CLOCK_NS, What, text};

/// Buffer of each CPU: some ten thousand events, which are read each 50 ms.
const BUFFER_KIB: u32 = 2048;

/// What the program may take to end when it is asked to.
const GRACE: Duration = Duration::from_secs(2);

/// Time stamps of a trace as text are cut to microseconds.
const STAMP_NS: u64 = 1_000;

/// What is known of one thread.
#[derive(Debug, Default)]
struct Sleeper {
    name: Name,
    /// It sleeps: since when, until when.
    armed: Option<(u64, u64)>,
    activations: Vec<LoopActivation>,
    relative: u64,
    absolute: u64,
    other: u64,
}

/// Turns the kernel's events into activations of threads.
#[derive(Debug)]
struct Watch {
    /// The thread that started the program, which is none of its threads.
    own: i32,
    sleepers: BTreeMap<i32, Sleeper>,
}

impl Watch {
    /// Whether the activations of a thread fill a recording: what comes after them would be lost.
    fn is_full(&self) -> bool {
        self.sleepers.values().any(|one| one.activations.len() as u64 >= ACTIVATIONS_MAX)
    }

    fn event(&mut self, event: &Event) {
        let tid = event.tid.cast_signed();
        match event.what {
            What::TimerStart { function, expires_ns, is_relative, .. }
                if function.ends_a_sleep() && !event.in_interrupt && tid != self.own =>
            {
                let sleeper = self.sleepers.entry(tid).or_default();
                match is_relative {
                    true => sleeper.relative += 1,
                    false => sleeper.absolute += 1,
                }
                sleeper.unseen(event.at_ns);
                sleeper.armed = Some((event.at_ns, expires_ns));
            }
            What::Waking { tid, name } => {
                if let Some(sleeper) = self.sleepers.get_mut(&tid.cast_signed()) {
                    sleeper.woken(event.at_ns);
                    sleeper.name = name;
                }
            }
            _ => {}
        }
    }
}

impl Sleeper {
    fn woken(&mut self, woke_ns: u64) {
        let is_due = |expiry_ns: u64| {
            woke_ns + STAMP_NS >= expiry_ns || expiry_ns - woke_ns > OTHER_CLOCK_NS
        };
        // Who is woken by something else goes to sleep again, if it will.
        match self.armed.take() {
            Some((armed_ns, expiry_ns)) if armed_ns <= woke_ns && is_due(expiry_ns) => {
                self.push(LoopActivation { armed_ns, expiry_ns, woke_ns });
            }
            _ => self.other += 1,
        }
    }

    /// It goes to sleep, and nobody saw it woken from the sleep before: that had ended before it began,
    /// as in a program that catches up.
    fn unseen(&mut self, now_ns: u64) {
        if let Some((armed_ns, expiry_ns)) = self.armed.take()
            && expiry_ns <= now_ns + STAMP_NS
        {
            let woke_ns = expiry_ns.clamp(armed_ns, now_ns.max(armed_ns));
            self.push(LoopActivation { armed_ns, expiry_ns, woke_ns });
        }
    }

    /// The activations in their order, from an instant on.
    fn since(&self, start_ns: u64) -> Vec<LoopActivation> {
        let from_start = self.activations.iter().map(|one| LoopActivation {
            armed_ns: one.armed_ns - start_ns,
            // On another clock it stays as it is: only its differences say something.
            expiry_ns: one.expiry_ns.saturating_sub(start_ns),
            woke_ns: one.woke_ns - start_ns,
        });
        let mut all: Vec<LoopActivation> = from_start.collect();
        // The kernel writes events in order. A thread's name that looks like an event can break the order.
        all.sort_by_key(|one| one.woke_ns);
        all
    }

    fn push(&mut self, one: LoopActivation) {
        if (self.activations.len() as u64) < ACTIVATIONS_MAX {
            self.activations.push(one);
        }
    }
}

/// Why the look ends when a thread has as many activations as a recording holds.
fn all_that_fits() -> String {
    format!("rtscope stopped at {ACTIVATIONS_MAX} activations, all that a recording holds")
}

/// Starts a program, watches it, ends it.
pub(super) fn watch(
    options: &DriftOptions,
    command: &[String],
    threads: &[String],
    period_ns: Option<u64>,
) -> Result<Vec<Periodic>, DriftError> {
    let mut instance = Instance::new(&Tree::default(), BUFFER_KIB)?;
    // Forked threads and processes are followed from this one on.
    instance.write("options/event-fork", "1")?;
    instance.write("set_event_pid", &own::id().to_string())?;
    for event in ["timer/hrtimer_start", "sched/sched_waking"] {
        instance.switch_on(event)?;
    }
    let mut recording = instance.record()?;
    let mut watch = Watch { own: own::id(), sleepers: BTreeMap::new() };
    let mut running = Running::start(command)?;
    let until = Instant::now() + Duration::from_nanos(options.duration.0);
    let mut ended = None;
    while Instant::now() < until && !options.interrupt.is_stopped() {
        thread::sleep(LOOK);
        recording.drain(|event| watch.event(event)).map_err(DriftError::Read)?;
        ended = running.ended().or_else(|| watch.is_full().then(all_that_fits));
        if ended.is_some() {
            break;
        }
    }
    // What it does when it is asked to end is none of its periods.
    let lost = recording.finish(|event| watch.event(event)).map_err(DriftError::Read)?;
    drop(running);
    judged(watch, command, threads, period_ns, lost, ended.as_deref())
}

/// Reads a trace as text and returns the activations of its most active thread.
///
/// # Errors
///
/// When no thread made three periods.
pub fn read_trace(text: &str, command: &[String]) -> Result<Periodic, DriftError> {
    let mut watch = Watch { own: own::id(), sleepers: BTreeMap::new() };
    text.lines().filter_map(text::parse).for_each(|event| watch.event(&event));
    let mut found = judged(watch, command, &[], None, 0, None)?;
    Ok(found.remove(0))
}

/// The threads that are to be judged. Their instants count from the first one of all of them.
fn judged(
    watch: Watch,
    command: &[String],
    wanted: &[String],
    period_ns: Option<u64>,
    lost: u64,
    ended: Option<&str>,
) -> Result<Vec<Periodic>, DriftError> {
    let threads = watch.sleepers.len() as u64;
    let mut sleepers = watch.sleepers;
    let names = || {
        let name = |(tid, one): (&i32, &Sleeper)| {
            format!("{} ({tid}, {} activations)", one.name, one.activations.len())
        };
        sleepers.iter().map(name).collect::<Vec<_>>().join(", ")
    };
    let how = ended.map_or(String::new(), |how| format!("; it ended early: {how}"));
    let seen = match threads {
        0 => "none of its threads slept on a timer".to_owned(),
        _ => format!("threads that slept on timers: {}", names()),
    };
    let any = [None];
    let asked: Vec<Option<&str>> = match wanted {
        [] => any.to_vec(),
        wanted => wanted.iter().map(|name| Some(name.as_str())).collect(),
    };
    let mut chosen: Vec<(i32, Sleeper)> = Vec::new();
    for name in asked {
        let Some(tid) = busiest(&sleepers, name) else {
            let which = name.map_or(String::new(), |name| format!("thread {name} of "));
            let text =
                format!("{which}{} did not complete three periods: {seen}{how}", command.join(" "));
            return Err(DriftError::NotPeriodic(text));
        };
        // Two threads may have one name: the second time it is the next.
        chosen.extend(sleepers.remove(&tid).map(|one| (tid, one)));
    }
    let instants = chosen.iter().flat_map(|(_, one)| &one.activations);
    let start_ns = instants.map(|one| one.armed_ns).min().unwrap_or(0);
    let program = |tid: i32, one: &Sleeper| WatchedProgram {
        command: command.to_vec(),
        tid,
        threads,
        relative_sleeps: one.relative,
        absolute_sleeps: one.absolute,
        other_wakeups: one.other,
        lost,
        ended: ended.map(str::to_owned),
    };
    let periodic = chosen.iter().map(|(tid, one)| Periodic {
        activations: one.since(start_ns),
        name: one.name.to_string(),
        sleep: None,
        period_ns,
        work_ns: None,
        placement: None,
        missed: 0,
        program: Some(program(*tid, one)),
    });
    Ok(periodic.collect())
}

/// The thread of a name or number, or any, with the most activations.
fn busiest(sleepers: &BTreeMap<i32, Sleeper>, name: Option<&str>) -> Option<i32> {
    let is_meant = |tid: i32, sleeper: &Sleeper| {
        name.is_none_or(|name| sleeper.name.to_string() == name || tid.to_string() == name)
    };
    sleepers
        .iter()
        .filter(|(tid, one)| is_meant(**tid, one) && one.activations.len() >= 3)
        .max_by_key(|(_, one)| one.activations.len())
        .map(|(tid, _)| *tid)
}

/// The program. Dropping it ends it, with all that it has started in its group.
struct Running(Child);

impl Running {
    fn start(command: &[String]) -> Result<Running, DriftError> {
        let program = command.first().cloned().unwrap_or_default();
        let mut child = Command::new(&program);
        child.args(&command[1.min(command.len())..]).stdin(Stdio::null()).stdout(Stdio::null());
        process::bind_to_us(&mut child, true);
        child.spawn().map(Running).map_err(|cause| DriftError::Start { program, cause })
    }

    /// How it ended, if it has.
    fn ended(&mut self) -> Option<String> {
        let status = self.0.try_wait().ok()??;
        Some(match (status.code(), status.signal()) {
            (Some(code), _) => format!("exit code {code}"),
            (_, Some(number)) => format!("signal {number}"),
            _ => status.to_string(),
        })
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = process::signal_group(self.0.id(), signal::TERMINATE);
        let until = Instant::now() + GRACE;
        while Instant::now() < until && matches!(self.0.try_wait(), Ok(None)) {
            thread::sleep(Duration::from_millis(5));
        }
        // Whatever is left of its group goes too.
        let _ = process::signal_group(self.0.id(), signal::KILL);
        let _ = self.0.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn watched(lines: &[&str]) -> Watch {
        let mut watch = Watch { own: 1, sleepers: BTreeMap::new() };
        lines.iter().filter_map(|line| text::parse(line)).for_each(|event| watch.event(&event));
        watch
    }

    fn start(tid: i32, at: &str, function: &str, expiry: u64, mode: &str) -> String {
        format!(
            " app-{tid} [000] d..1. {at}: hrtimer_start: hrtimer=0 function={function} expires={} softexpires={expiry} mode={mode} was_armed=0",
            expiry.saturating_add(50_000)
        )
    }

    fn waking(at: &str, tid: i32) -> String {
        format!(
            " <idle>-0 [000] d.h3. {at}: sched_waking: comm=my app pid={tid} prio=94 target_cpu=000"
        )
    }

    #[test]
    fn a_sleep_and_its_end_are_an_activation() {
        let lines = [
            start(7, "10.000000", "hrtimer_wakeup", 10_010_000_000, "REL"),
            // Woken by another thread, then by the timer; then a sleep that was over at once.
            waking("10.004000", 7),
            start(7, "10.004100", "hrtimer_wakeup", 10_010_000_000, "REL"),
            waking("10.010060", 7),
            start(7, "10.010080", "hrtimer_wakeup", 10_009_000_000, "ABS"),
            // The kernel's own timers in its context, and those of the thread that watches.
            start(7, "10.010100", "tick_nohz_handler", 10_012_000_000, "ABS"),
            start(1, "10.010100", "hrtimer_wakeup", 10_060_000_000, "REL"),
            start(7, "10.010200", "hrtimer_wakeup", 10_020_000_000, "ABS|HARD"),
            waking("10.020055", 7),
            waking("10.020100", 8),
        ];
        let watch = watched(&lines.iter().map(String::as_str).collect::<Vec<_>>());
        let one = &watch.sleepers[&7];
        assert_eq!(watch.sleepers.len(), 1);
        assert_eq!((one.relative, one.absolute, one.other), (2, 2, 1));
        assert_eq!(one.name.to_string(), "my app");
        let woke: Vec<u64> = one.activations.iter().map(|a| a.woke_ns / 1_000).collect();
        assert_eq!(woke, [10_010_060, 10_010_080, 10_020_055]);
        assert_eq!(one.activations[2].expiry_ns, 10_020_000_000);
    }

    #[test]
    fn a_program_without_periods_is_said_to_have_none() {
        let command = ["./a".to_owned(), "-x".to_owned()];
        let ended = Some("exit code 1");
        let error = judged(watched(&[]), &command, &[], None, 0, ended).expect_err("no period");
        let text = error.to_string();
        assert!(text.contains("./a -x") && text.contains("exit code 1"), "{text}");
        let lines = [start(7, "10.000000", "hrtimer_wakeup", 10_010_000_000, "REL")];
        let watch = watched(&[&lines[0]]);
        let error = judged(watch, &command, &[], None, 0, None).expect_err("one sleep");
        assert!(error.to_string().contains("(7, 0 activations)"), "{error}");
    }

    #[test]
    fn two_threads_are_told_from_one_instant_on() {
        let mut lines = Vec::new();
        for n in 0..4u64 {
            for (tid, offset_us) in [(7, 0), (8, 300 * n)] {
                let at = |us: u64| format!("10.{:06}", us + offset_us);
                let expiry = 10_000_000_000 + (10_000 * (n + 1) + offset_us) * 1_000;
                lines.push(start(tid, &at(10_000 * n), "hrtimer_wakeup", expiry, "REL"));
                lines.push(waking(&at(10_000 * (n + 1)), tid));
            }
        }
        lines.sort_by_key(|line| {
            line.split_whitespace().find_map(|word| word.strip_prefix("10.").map(str::to_owned))
        });
        let watch = || watched(&lines.iter().map(String::as_str).collect::<Vec<_>>());
        let command = ["./a".to_owned()];
        let both = ["8".to_owned(), "7".to_owned()];
        let found = judged(watch(), &command, &both, None, 0, None).expect("two threads");
        let woke = |n: usize| -> Vec<u64> {
            found[n].activations.iter().map(|one| one.woke_ns / 1_000).collect()
        };
        assert_eq!(woke(0), [10_000, 20_300, 30_600, 40_900]);
        assert_eq!(woke(1), [10_000, 20_000, 30_000, 40_000]);
        // Both are called "my app": the second time it is the other one.
        let both = ["my app".to_owned(), "my app".to_owned()];
        let found = judged(watch(), &command, &both, None, 0, None).expect("two threads");
        let tids: Vec<i32> =
            found.iter().filter_map(|one| Some(one.program.as_ref()?.tid)).collect();
        assert_eq!(tids, [8, 7]);
        let error = judged(watch(), &command, &["9".to_owned()], None, 0, None).expect_err("no 9");
        assert!(error.to_string().starts_with("thread 9 of ./a did not complete three"), "{error}");
    }

    #[test]
    fn a_recording_that_is_full_ends_the_look() {
        let mut watch = watched(&[&start(7, "10.000000", "hrtimer_wakeup", 10_010_000_000, "REL")]);
        let one = LoopActivation { armed_ns: 0, expiry_ns: 1, woke_ns: 2 };
        let sleeper = watch.sleepers.get_mut(&7).expect("a sleeper");
        sleeper.activations = vec![one; ACTIVATIONS_MAX as usize - 1];
        assert!(!watch.is_full());
        watch.event(&text::parse(&waking("10.010060", 7)).expect("an event"));
        assert!(watch.is_full());
    }

    /// A thread's name can look like a line of the trace and go back in time: a subtraction overflowed.
    #[test]
    fn activations_out_of_order_are_put_in_order() {
        let sleep = |at: &str, expiry_ns: u64, woke: &str| {
            [start(7, at, "hrtimer_wakeup", expiry_ns, "ABS"), waking(woke, 7)].join("\n")
        };
        let lines = [
            sleep("10.020000", 10_030_000_000, "10.030050"),
            sleep("10.000000", 10_010_000_000, "10.010050"),
            sleep("10.010100", 10_020_000_000, "10.020050"),
            // A wake-up before the sleep began, and an expiry at an impossible time.
            sleep("10.040000", 10_030_000_000, "10.035000"),
            sleep("10.050000", 1 << 62, "10.060000"),
        ];
        let periodic = read_trace(&lines.join("\n"), &["app".to_owned()]).expect("three periods");
        let woke: Vec<u64> = periodic.activations.iter().map(|one| one.woke_ns / 1_000).collect();
        assert_eq!(woke, [10_050, 20_050, 30_050]);
        assert_eq!(periodic.activations[0].armed_ns, 0);
    }

    #[test]
    fn an_expiry_on_the_wall_clock_counts() {
        let lines = [
            start(7, "10.000000", "hrtimer_wakeup", 1_700_000_000_000_000_000, "ABS"),
            waking("10.010060", 7),
        ];
        let watch = watched(&[&lines[0], &lines[1]]);
        assert_eq!(watch.sleepers[&7].activations.len(), 1);
    }
}
