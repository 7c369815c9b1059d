//! `rtscope wave live`: the scope as an oscilloscope in the terminal.

use std::process::ExitCode;

use rtscope_analyse::statistics::wave::judge;
use rtscope_measure::{
    signals::Interrupt,
    wave::{
        WaveError,
        gpio::{self, InputLine},
        line::{self, Address},
        scope::{self, CaptureLimits, GAPS_MAX},
        seat::Seat,
    },
};
use rtscope_model::{time::Nanos, wave::Capture};
use rtscope_sys::{clock::SystemClock, line::MemoryLine, tree::Tree};

use super::Hertz;
use crate::{
    cli::{Refused, place::OneCpu},
    exit,
    tui::oscilloscope::{BASE_NS_MAX, Oscilloscope, Scene},
};

/// Room for edges of one look.
const EDGES_MAX: usize = 1_000_000;

/// Show a line as an oscilloscope does
///
/// The trigger holds the waveform still. Keys: left and right change the time base, t the trigger (rising,
/// falling, free), f freezes, p keeps older traces, q quits. A shaded column is a time in which the scope was
/// blind. The scope runs on the last CPU; make the wave on another.
///
/// Examples:
///   rtscope wave live memory:test
///   rtscope wave live gpio:gpiochip0/17 --base 200us
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
pub(in crate::cli) struct Args {
    /// The line: memory:NAME or gpio:CHIP/LINE
    line: String,
    /// Time of a division, at most 100ms [default: from the wave]
    #[arg(long, value_name = "TIME")]
    base: Option<Nanos>,
    /// Intended frequency of the wave
    #[arg(long, value_name = "FREQUENCY")]
    freq: Option<Hertz>,
    #[command(flatten)]
    cpu: OneCpu,
    /// End after this number of frames
    #[arg(long, value_name = "N")]
    looks: Option<u64>,
}

pub(super) fn main(args: &Args) -> anyhow::Result<ExitCode> {
    let base_ns = args.base.map(|base| base.0);
    if base_ns.is_some_and(|ns| !(100..=BASE_NS_MAX).contains(&ns)) {
        return Err(Refused("--base: must be from 100ns to 100ms".to_owned()).into());
    }
    args.line.parse::<Address>()?;
    args.cpu.or_last()?;
    let interrupt = Interrupt::install()?;
    let mut screen = Oscilloscope::open(Scene::new(&args.line, base_ns)).map_err(|why| {
        Refused(format!("the screen can't be drawn: {why}; wave capture prints the figures"))
    })?;
    // Last, because a line in memory would stay if there were no screen.
    let mut look = eyes(args)?;
    for _ in 0..args.looks.unwrap_or(u64::MAX) {
        let capture = look(screen.look_ns())?;
        let wave = judge(&capture, args.freq.map(|hz| hz.0));
        if !screen.show(&capture, &wave)? || interrupt.is_stopped() {
            break;
        }
    }
    Ok(ExitCode::from(exit::PASS))
}

/// A line that is removed at the end, unless somebody else uses it.
struct WatchedLine(MemoryLine);

impl Drop for WatchedLine {
    fn drop(&mut self) {
        line::remove_unused(&self.0);
    }
}

/// What looks at the line for a time.
type Eyes = Box<dyn FnMut(u64) -> Result<Capture, WaveError>>;

fn eyes(args: &Args) -> anyhow::Result<Eyes> {
    let (tree, clock, name) = (Tree::default(), SystemClock::MONOTONIC, args.line.clone());
    let limits = move |rest, duration_ns| CaptureLimits {
        duration_ns,
        edges_max: EDGES_MAX,
        gaps_max: GAPS_MAX,
        rest,
    };
    Ok(match args.line.parse()? {
        Address::Memory(line) => {
            let line = WatchedLine(line::open_memory(&line)?);
            let seat = Seat::best(&args.cpu.or_last()?, &tree);
            // Beside a wave that spins on the only other CPU the machine must stay usable.
            let seat = seat.modest();
            Box::new(move |ns| {
                let line = &line;
                scope::capture(&line.0, &name, &seat.place, &clock, limits(seat.rest, ns))
            })
        }
        Address::Gpio(chip, line) => {
            let mut line = InputLine::open(&chip, &line, &tree)?;
            Box::new(move |ns| {
                let refused = |why| WaveError::Gpio { line: name.clone(), why };
                line.forget().map_err(refused)?;
                let (capture, ended) = gpio::collect(&mut line, &name, &clock, limits(None, ns));
                ended.map_or(Ok(capture), |why| Err(refused(why)))
            })
        }
        other => return Err(WaveError::NotReadable(other.to_string()).into()),
    })
}
