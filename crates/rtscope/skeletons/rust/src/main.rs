//! A periodic real-time application: edit [`work`].
//!
//! Before the loop everything that may take its time is done: options are read, memory is locked and
//! touched, the thread is placed. The loop itself only sleeps, reads the clock, works and counts.

mod latency;
mod options;
mod system;

use std::{
    process::ExitCode,
    sync::atomic::{AtomicBool, Ordering},
};

use latency::Latencies;
use options::Options;

const EXIT_USAGE: u8 = 64;

static STOP: AtomicBool = AtomicBool::new(false);

extern "C" fn on_signal(_number: i32) {
    STOP.store(true, Ordering::Relaxed);
}

/// The work of one period: no allocation, no `println!`, no `std::sync::Mutex` that a thread of lower
/// priority may hold (it has no priority inheritance).
fn work() {}

/// Runs until it is stopped or has done its cycles (0: no limit). Returns how many periods were
/// skipped.
fn repeat(period_ns: i64, cycles: u64, latencies: &mut Latencies) -> u64 {
    let is_stopped = || STOP.load(Ordering::Relaxed);
    let mut skipped = 0;
    let mut next_ns = system::now_ns() + period_ns;
    while !is_stopped() && (cycles == 0 || latencies.cycles() < cycles) {
        // Until an instant, not for a time: what a period takes too long is not added to the next.
        while !system::sleep_until(next_ns) && !is_stopped() {}
        if is_stopped() {
            break;
        }
        latencies.note(system::now_ns() - next_ns);
        work();
        next_ns += period_ns;
        // Overrun: periods whose begin has passed are skipped and counted, so that the next one is
        // again on the grid and a backlog can't build up.
        let late_ns = system::now_ns() - next_ns;
        if late_ns > 0 {
            let periods = late_ns / period_ns + 1;
            skipped += periods as u64;
            next_ns += periods * period_ns;
        }
    }
    skipped
}

fn run(options: &Options) -> Result<(), String> {
    system::on_signals(&[libc::SIGINT, libc::SIGTERM], on_signal);
    // Everything that is needed is made before memory is locked.
    let mut latencies = Latencies::new();
    system::lock_memory()?;
    system::prefault_stack();
    if let Some(cpu) = options.cpu {
        system::run_on(cpu)?;
    }
    system::run_as(options.policy, options.priority)?;
    let skipped = repeat(options.period_us * 1000, options.cycles, &mut latencies);
    println!(
        "{} cycles, {skipped} skipped; latency min {} avg {} max {} us",
        latencies.cycles(),
        latencies.min_us(),
        latencies.avg_us(),
        latencies.max_us()
    );
    match &options.histogram {
        Some(path) => latencies
            .write(path)
            .map_err(|error| format!("can't write {}: {error}", path.display())),
        None => Ok(()),
    }
}

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    if words == ["--help"] {
        print!("{}", options::HELP);
        return ExitCode::SUCCESS;
    }
    let options = match Options::read(&words) {
        Ok(options) => options,
        Err(why) => {
            eprintln!("skeleton_name: {why}; --help lists the options");
            return ExitCode::from(EXIT_USAGE);
        }
    };
    match run(&options) {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("skeleton_name: {why}");
            ExitCode::FAILURE
        }
    }
}
