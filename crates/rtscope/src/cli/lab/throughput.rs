//! `rtscope lab throughput`: network throughput in kernels.

use std::{path::Path, process::ExitCode};

use rtscope_analyse::report::{lab::figures, throughput as report};
use rtscope_lab::lab::GuestVerbs;

use super::{
    typed::Typed,
    verb::{self, Guests, Measured, Verb},
};
use crate::cli::throughput::{self, Transfers};

/// Measure network throughput in kernels
///
/// Each kernel boots in an emulator and runs `rtscope throughput` over loopback, or over a virtual cable between two
/// network namespaces (--over veth), with and without a latency sampler. The page and the table set bandwidth, CPU
/// load and wake-up latency side by side.
///
/// Examples:
///   rtscope lab throughput --kernel debian-stock --kernel debian-rt
///   rtscope lab throughput -k debian-stock --windows 16,64 -d 500ms
///   rtscope lab throughput -k debian-rt --over veth --protocol both --no-sampler
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
pub(in crate::cli) struct Args {
    #[command(flatten)]
    guests: Guests,
    #[command(flatten)]
    transfers: Typed<Transfers>,
}

/// What virtual time can't say.
const LIMITS: &[&str] = &[
    "There is no network adapter: no interrupts, no DMA and no line rate. The bandwidth is what the kernel's own path \
     leaves.",
    "Every instruction takes the same time, and copied bytes miss no cache: compare kernels and windows, and expect \
     other figures on a board. --wall has this computer's clock instead.",
];

pub(super) fn main(args: &Args) -> anyhow::Result<ExitCode> {
    let transfers = &args.transfers.options;
    transfers.check()?;
    let read = |guest: &Path| {
        let record = throughput::read(&guest.join("throughput"))?;
        Ok(Measured {
            figures: figures::of_throughput(&record),
            document: report::document(&record),
            page: Some(report::page(&record)),
            code: throughput::code(&record),
        })
    };
    let verb = Verb {
        name: "throughput",
        words: &args.transfers.words,
        out: verb::out("throughput"),
        length: transfers.length(),
        needs: GuestVerbs { over_veth: transfers.is_over_veth(), ..GuestVerbs::default() },
        limits: LIMITS,
        read: &read,
    };
    verb::main(&args.guests, verb)
}
