//! `rtscope wave generate`: makes a square wave.

use std::{fmt::Write as _, process::ExitCode};

use rtscope_analyse::number::{exact_hertz, exact_us, grouped};
use rtscope_measure::{
    signals::Interrupt,
    watchdog::Watchdog,
    wave::{
        generator::{self, Alarm, Made, Method, Wanted},
        line::{self, Address, WaveOutput},
        seat,
    },
};
use rtscope_model::{schedule::Policy, time::Nanos};
use rtscope_sys::{clock::SystemClock, memory, sched, thread, timer::TimerfdClock, tree::Tree};

use super::{Hertz, PRIORITY, Share, spin_is_bearable};
use crate::{
    cli::{Refused, place::Place, print},
    exit,
};

/// Violating samples that are printed.
const LATE_SHOWN: usize = 20;

/// Make a square wave on a line
///
/// With --limit, an edge that is later than the limit is a violation. rtscope
/// lists the violations. With --alarm, a second line goes high right after a
/// late edge, and low after the next edge that is on time. If there is a violation,
/// the exit code is 2.
///
/// By default the generator is an ordinary thread on any CPU. The method spin
/// with a real-time policy runs on the first CPU. It needs a second CPU, and
/// real-time throttling must be on.
///
/// Examples:
///   rtscope wave generate memory:test --freq 1kHz
///   rtscope wave generate memory:test --freq 50Hz --limit 1ms --alarm memory:late
///   rtscope wave generate gpio:gpiochip0/17 --freq 100Hz
///   rtscope wave generate led:usr0 --freq 2Hz --duration 1min
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
pub(in crate::cli) struct Args {
    /// The line: memory:NAME, gpio:CHIP/LINE or led:NAME
    line: String,
    #[command(flatten)]
    wave: WaveOptions,
    /// Keep this line high while the last edge was later than the limit
    #[arg(long, value_name = "LINE", requires = "limit")]
    alarm: Option<String>,
    /// Print one JSON document
    #[arg(long)]
    json: bool,
    /// Print nothing
    #[arg(short, long)]
    quiet: bool,
}

/// The wave, and who makes it.
#[derive(Debug, clap::Args)]
pub(in crate::cli) struct WaveOptions {
    /// Frequency of the wave, for example 50Hz, 2.5kHz or 1MHz
    #[arg(long, value_name = "HZ")]
    freq: Hertz,
    /// Share of each period in which the line is high
    #[arg(long, value_name = "SHARE", default_value = "50%")]
    duty: Share,
    /// Wait for each edge in this way: absolute, relative, spin or timerfd
    #[arg(long, value_name = "METHOD", default_value = "absolute")]
    method: Method,
    #[command(flatten)]
    place: Place,
    /// Generate for this long
    #[arg(short, long, value_name = "TIME", default_value = "10s")]
    duration: Nanos,
    /// Latency limit of an edge
    #[arg(short, long, value_name = "TIME")]
    limit: Option<Nanos>,
}

impl WaveOptions {
    /// The wave that is wanted.
    ///
    /// # Errors
    ///
    /// What makes no sense on any machine.
    fn wanted(&self) -> Result<Wanted, Refused> {
        Wanted::new(self.freq.0, self.duty.0, self.duration.0).map_err(|e| Refused(e.to_string()))
    }

    /// Refuses what makes no sense on any machine.
    pub(in crate::cli) fn check(&self) -> anyhow::Result<()> {
        self.wanted()?;
        self.place.scheduling(PRIORITY)?;
        Ok(())
    }

    pub(in crate::cli) fn duration(&self) -> Nanos {
        self.duration
    }
}

pub(super) fn main(args: &Args) -> anyhow::Result<ExitCode> {
    let address: Address = args.line.parse()?;
    let alarm: Option<Address> = args.alarm.as_deref().map(str::parse).transpose()?;
    if alarm.as_ref() == Some(&address) {
        return Err(
            Refused("--alarm names the line of the wave: name another one".to_owned()).into()
        );
    }
    let wanted = args.wave.wanted()?;
    let tree = Tree::default();
    // First, because a line in memory would stay if this failed.
    place(args, &tree)?;
    let mut line = line::open_output(&address, &tree)?;
    let mut alarm = alarm.map(|alarm| line::open_output(&alarm, &tree)).transpose()?;
    let interrupt = Interrupt::install()?;
    let watchdog = Watchdog::over_spinners(Nanos(wanted.longest_ns()));
    let mut alarms = Alarm {
        limit_ns: args.wave.limit.map(|limit| limit.0),
        line: alarm.as_mut().map(|line| line as &mut dyn WaveOutput),
    };
    let stopped = || interrupt.is_stopped();
    let made = match args.wave.method {
        Method::Timerfd => {
            let clock = TimerfdClock::new()?;
            generator::make(&mut line, &clock, &wanted, args.wave.method, &mut alarms, &stopped)
        }
        _ => {
            let clock = SystemClock::MONOTONIC;
            generator::make(&mut line, &clock, &wanted, args.wave.method, &mut alarms, &stopped)
        }
    };
    drop(watchdog);
    line.release();
    if let Some(alarm) = alarm {
        alarm.release();
    }
    if args.json {
        print(&(serde_json::to_string_pretty(&document(args, &made))? + "\n"))?;
    } else if !args.quiet {
        print(&text(args, &made))?;
    }
    Ok(ExitCode::from(match made.violations {
        _ if made.failures > 0 => exit::ERROR,
        0 => exit::PASS,
        _ => exit::FAIL,
    }))
}

/// Places this thread, which makes the wave itself.
fn place(args: &Args, tree: &Tree) -> anyhow::Result<()> {
    let spins = args.wave.method == Method::Spin;
    let asked = args.wave.place.scheduling(PRIORITY)?;
    let real_time = asked.filter(|scheduling| scheduling.policy.is_real_time());
    let has_cpu = args.wave.place.cpu.asked()?.is_some();
    if has_cpu {
        sched::set_affinity(sched::SELF, &args.wave.place.cpu.or_last()?)?;
    }
    if let Some(policy) = real_time.filter(|_| spins) {
        if !has_cpu {
            spin_is_bearable(policy, tree)?;
            let first = sched::affinity(sched::SELF)?.iter().take(1).collect();
            sched::set_affinity(sched::SELF, &first)?;
        } else if seat::is_unthrottled(tree) {
            spin_is_bearable(policy, tree)?;
        }
    }
    // The 50 us by which the kernel may be late on purpose are for programs that don't care.
    thread::set_timer_slack_ns(1);
    if let Some(scheduling) = asked {
        let cpus = sched::affinity(sched::SELF)?;
        sched::place_exactly(&scheduling.on(cpus))?;
        if scheduling.policy != Policy::Other {
            // Without the permission to lock, a page fault may make an edge late; that shows.
            let _ = memory::lock_all();
        }
    }
    Ok(())
}

fn document(args: &Args, made: &Made) -> serde_json::Value {
    let late = made.late.iter().map(|late| {
        serde_json::json!({
            "edge": late.edge, "planned_ns": late.planned_ns, "latency_ns": late.latency_ns,
        })
    });
    serde_json::json!({
        "line": args.line, "wanted_hz": args.wave.freq.0, "duty": args.wave.duty.0,
        "method": args.wave.method.word(),
        "frequency_hz": made.frequency_hz(), "edges": made.edges, "missed_edges": made.missed,
        "failures": made.failures, "latency_ns_max": made.latency_ns_max,
        "latency_ns_mean": (made.edges > 0).then(|| made.latency_ns_sum as f64 / made.edges as f64),
        "limit_ns": args.wave.limit.map(|limit| limit.0), "violations": made.violations,
        "late": late.collect::<Vec<_>>(),
    })
}

fn text(args: &Args, made: &Made) -> String {
    let own = made.frequency_hz().map_or_else(|| "none".to_owned(), exact_hertz);
    let mut text = format!(
        "{}: {} edges, {} missed; {own} by its own count; latest edge {}\n",
        args.line,
        grouped(made.edges),
        grouped(made.missed),
        exact_us(made.latency_ns_max),
    );
    if made.failures > 0 {
        let _ = writeln!(text, "the line refused {} changes of its level", grouped(made.failures));
    }
    let Some(limit) = args.wave.limit else { return text };
    let _ = writeln!(text, "{} edges later than {limit}", grouped(made.violations));
    for late in made.late.iter().take(LATE_SHOWN) {
        let at = Nanos(late.planned_ns).as_secs_f64();
        let _ = writeln!(
            text,
            "  edge {:>10} at {at:>12.6} s: {}",
            late.edge,
            exact_us(late.latency_ns)
        );
    }
    if made.violations > LATE_SHOWN as u64 {
        let _ = writeln!(
            text,
            "  and {} more (--json lists 10,000)",
            made.violations - LATE_SHOWN as u64
        );
    }
    text
}
