//! `rtscope ps`: who may run before whom, and a change of it.

mod change;
mod table;

use std::{
    io,
    process::ExitCode,
    time::{Duration, Instant},
};

use rtscope_measure::{ps, signals::Interrupt};
use rtscope_model::{cpu::CpuSet, thread::Thread, time::Nanos};
use rtscope_sys::tree::Tree;

use super::{Refused, place::PolicyChoice, print};
use crate::{exit, output};

/// List all threads in scheduling order, or change one
///
/// Each line shows the policy, priority, CPUs, wake-ups and share of CPU time of one thread.
/// The shares and wake-ups are those of a short interval (--look). The last line shows the CPU time
/// of all real-time threads.
///
/// With --set rtscope changes a thread to the values of --policy, --priority, --nice and --cpus, and
/// reads them back. It refuses a change that would starve the machine, unless --force is given.
///
/// Examples:
///   rtscope ps --above 80
///   rtscope ps --rt --cpus 1 --watch 1s
///   rtscope ps --name irq/ --tree
///   rtscope ps --set 1234 --policy fifo:60 --cpus 1
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
pub(super) struct Args {
    /// Show only threads of this policy, for example fifo or fifo:80; with --set: set this policy
    #[arg(long)]
    policy: Option<PolicyChoice>,
    /// Show only threads of this priority, 1 to 99; with --set: set this priority
    #[arg(short, long, value_name = "N", value_parser = clap::value_parser!(u8).range(1..=99))]
    priority: Option<u8>,
    /// Show only threads that may use one of these CPUs; with --set: set these CPUs
    #[arg(short, long, alias = "cpu", value_name = "SET")]
    cpus: Option<CpuSet>,
    /// Show only threads that run before a FIFO thread of this priority
    #[arg(long, value_name = "PRIORITY", value_parser = clap::value_parser!(u8).range(0..=99))]
    above: Option<u8>,
    /// Show only real-time policies
    #[arg(long)]
    rt: bool,
    /// Show only threads whose name contains this text
    #[arg(long, value_name = "TEXT")]
    name: Option<String>,
    /// Show only threads of this process
    #[arg(long)]
    pid: Option<u32>,
    /// Show only the kernel's own threads
    #[arg(long, conflicts_with = "user")]
    kernel: bool,
    /// Show only threads of programs
    #[arg(long)]
    user: bool,
    /// Sort by process, children below their parents
    #[arg(long)]
    tree: bool,
    /// Length of the interval for shares and wake-ups
    #[arg(long, value_name = "TIME", default_value = "500ms")]
    look: Nanos,
    /// Repeat the listing after this time
    #[arg(long, value_name = "TIME", num_args = 0..=1, default_missing_value = "2s", conflicts_with = "set")]
    watch: Option<Nanos>,
    /// Number of listings with --watch
    #[arg(long, value_name = "N", requires = "watch")]
    count: Option<u64>,
    /// Print one JSON document for each listing
    #[arg(long)]
    json: bool,
    /// Change this thread
    #[arg(long, value_name = "TID")]
    set: Option<u32>,
    /// Nice value to set with --set, -20 to 19
    #[arg(long, requires = "set", allow_hyphen_values = true, value_parser = clap::value_parser!(i8).range(-20..=19))]
    nice: Option<i8>,
    /// Change the thread even if this may starve the machine
    #[arg(long, requires = "set")]
    force: bool,
}

pub(super) fn main(args: &Args) -> anyhow::Result<ExitCode> {
    if !(1_000_000..=3_600_000_000_000).contains(&args.look.0) {
        return Err(Refused(format!("--look {}: from 1ms to 1h", args.look)).into());
    }
    if let Some(tid) = args.set {
        return change::main(args, tid);
    }
    let interrupt = Interrupt::install()?;
    let tree = Tree::default();
    let look = args.watch.unwrap_or(args.look);
    let clears = args.watch.is_some() && !args.json && output::can_redraw(&io::stdout());
    let rounds = if args.watch.is_some() { args.count.unwrap_or(u64::MAX) } else { 1 };
    let mut earlier = (ps::threads(&tree), Instant::now());
    for _ in 0..rounds {
        if !wait(Duration::from_nanos(look.0), &interrupt) {
            break;
        }
        let mut found = ps::threads(&tree);
        let now = Instant::now();
        let span_ns = (now - earlier.1).as_nanos() as u64;
        ps::compare(&earlier.0, &mut found, span_ns);
        show(args, &found, span_ns, clears)?;
        earlier = (found, now);
    }
    Ok(ExitCode::from(exit::PASS))
}

/// Waits; false when a signal ended it.
fn wait(time: Duration, interrupt: &Interrupt) -> bool {
    let until = Instant::now() + time;
    while let Some(left) = until.checked_duration_since(Instant::now()) {
        if interrupt.is_stopped() {
            return false;
        }
        std::thread::sleep(left.min(Duration::from_millis(50)));
    }
    !interrupt.is_stopped()
}

fn show(args: &Args, found: &[Thread], span_ns: u64, clears: bool) -> anyhow::Result<()> {
    let shown: Vec<&Thread> = found.iter().filter(|thread| is_asked(args, thread)).collect();
    let share = real_time_percent(found, span_ns);
    if args.json {
        let document = serde_json::json!({
            "look_ns": span_ns, "real_time_percent": share, "threads": shown,
        });
        return print(&(serde_json::to_string_pretty(&document)? + "\n"));
    }
    let width = output::columns(&io::stdout()).unwrap_or(usize::MAX);
    let table = if args.tree { table::tree(&shown, width) } else { table::rows(&shown, width) };
    if clears {
        output::print_bytes(b"\x1b[H\x1b[2J")?;
    }
    let plural = if shown.len() == 1 { "" } else { "s" };
    print(&format!(
        "{table}{} of {} thread{plural}; real-time threads used {share:.1} % of one CPU in {}\n",
        shown.len(),
        found.len(),
        Nanos(span_ns),
    ))
}

fn is_asked(args: &Args, thread: &Thread) -> bool {
    let place = &thread.placement;
    args.policy.is_none_or(|choice| {
        place.policy == choice.policy && choice.priority.is_none_or(|n| place.priority == n)
    }) && args.priority.is_none_or(|n| place.policy.has_priority() && place.priority == n)
        && args.cpus.as_ref().is_none_or(|cpus| !cpus.common(&place.cpus).is_empty())
        && args.above.is_none_or(|priority| thread.runs_before(priority))
        && (!args.rt || place.policy.is_real_time())
        && args.name.as_ref().is_none_or(|text| thread.name.contains(text))
        && args.pid.is_none_or(|pid| thread.pid == pid)
        && (!args.kernel || thread.kernel)
        && (!args.user || !thread.kernel)
}

/// CPU time of all real-time threads, in hundredths of one CPU.
fn real_time_percent(found: &[Thread], span_ns: u64) -> f64 {
    let real_time = found.iter().filter(|thread| thread.placement.policy.is_real_time());
    let used: u64 = real_time.filter_map(|thread| thread.look).map(|look| look.cpu_ns).sum();
    if span_ns == 0 { 0.0 } else { used as f64 * 100.0 / span_ns as f64 }
}
