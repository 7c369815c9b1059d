//! `rtscope lab throughput`: network throughput in kernels.

use std::{path::Path, process::ExitCode};

use rtscope_analyse::report::{lab::figures, published::Whose, throughput as report};
use rtscope_lab::lab::GuestVerbs;

use super::{
    typed::Typed,
    verb::{self, Guests, Measured, Verb},
};
use crate::cli::{
    published::Choice,
    throughput::{self, PUBLISHED, Transfers},
};

/// Measure network throughput in kernels
///
/// Each kernel boots in an emulator and runs `rtscope throughput` over loopback, or over a virtual cable between two
/// network namespaces (--over veth), with and without a latency sampler. The page and the table set bandwidth, CPU
/// load and wake-up latency side by side, and a vendor's figures beside them. --published none leaves those out.
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
    #[command(flatten)]
    published: Choice,
}

/// What virtual time can't say.
const LIMITS: &[&str] = &[
    "There is no network adapter: no interrupts, no DMA and no line rate. Only the kernel's own path \
     limits the bandwidth.",
    "Every instruction takes the same time, and copied bytes miss no cache: compare kernels and windows, and expect \
     other figures on a board. --wall uses this computer's clock instead.",
];

pub(super) fn main(args: &Args) -> anyhow::Result<ExitCode> {
    let published = args.published.entries(PUBLISHED)?;
    let transfers = &args.transfers.options;
    transfers.check()?;
    let read = |guest: &Path, whose: Whose<'_>| {
        let record = throughput::read(&guest.join("throughput"))?;
        Ok(Measured {
            figures: figures::of_throughput(&record),
            ours: report::ours(&record, whose),
            document: report::document(&record, &[]),
            page: Some(report::page(&record, &[])),
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
        published,
        read: &read,
    };
    verb::main(&args.guests, verb)
}
