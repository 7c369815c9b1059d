//! `rtscope fleet-agent`: what rtscope does at a place; started by `fleet`.

use std::{io, path::PathBuf, process::ExitCode};

use rtscope_fleet::{agent, hold::Hold};
use rtscope_measure::signals::Interrupt;
use serde::Serialize;

use crate::{exit, output::print_bytes};

#[derive(Debug, clap::Args)]
pub(in crate::cli) struct Args {
    /// What to do
    #[arg(value_enum)]
    what: What,
    /// Folder of all jobs
    #[arg(long)]
    base: PathBuf,
    /// The job's name
    #[arg(long)]
    job: String,
    /// SHA-256 of this program
    #[arg(long, default_value = "")]
    sha256: String,
    /// Where in the record's files to begin
    #[arg(long, default_value_t = 0)]
    offset: u64,
    /// Process without which the keeper ends
    #[arg(long)]
    while_pid: Option<u32>,
}

#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum What {
    Begin,
    Keep,
    State,
    List,
    Send,
    Release,
}

pub(in crate::cli) fn main(args: &Args) -> anyhow::Result<ExitCode> {
    let hold = Hold::new(&args.base, &args.job)?;
    match args.what {
        What::Begin => tell(&agent::begin(&hold, &args.sha256)?)?,
        What::Keep => {
            let interrupt = Interrupt::install_patient()?;
            agent::keep(&hold, &|| interrupt.is_stopped() || !agent::is_alive(args.while_pid))?;
        }
        What::State => tell(&agent::state(&hold))?,
        What::List => tell(&agent::list(&hold, &mut io::stdout())?)?,
        What::Send => agent::send(&hold, args.offset, &mut io::stdout().lock())?,
        What::Release => {
            tell(&agent::release(&hold)?)?;
        }
    }
    Ok(ExitCode::from(exit::PASS))
}

fn tell(answer: &impl Serialize) -> anyhow::Result<()> {
    print_bytes(&serde_json::to_vec(answer)?)
}
