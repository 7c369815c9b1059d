//! `rtscope plot`: one plot of a record as a file.

use std::{path::PathBuf, process::ExitCode};

use clap::builder::PossibleValuesParser;
use rtscope_analyse::plot::{self, PlotKind};

use super::{Refused, print};
use crate::{
    exit, png,
    record::{self, Additions, Destination},
};

/// Draw one plot of a record as SVG or PNG
///
/// If the record has nothing to draw, the plot says why, and the exit code is 3.
///
/// Examples:
///   rtscope plot my-run --kind histogram
///   rtscope plot my-run --kind timeline --out timeline.png --width 1600
///   rtscope plot my-run --kind exceedance --out - > exceedance.svg
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
pub(super) struct Args {
    /// The record's folder
    run: PathBuf,
    /// Plot to draw
    #[arg(long, value_parser = PossibleValuesParser::new(PlotKind::ALL.map(PlotKind::name)))]
    kind: String,
    /// Write to FILE; its ending selects the format, .svg or .png; - writes SVG to standard output
    /// [default: rtscope-runs/KIND-TIME.svg]
    #[arg(short, long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Width in pixels
    #[arg(long, default_value_t = 1000, value_parser = clap::value_parser!(u32).range(200..=8000))]
    width: u32,
    /// Height in pixels [default: what the plot needs]
    #[arg(long, value_parser = clap::value_parser!(u32).range(120..=8000))]
    height: Option<u32>,
}

pub(super) fn main(args: &Args) -> anyhow::Result<ExitCode> {
    let kind: PlotKind = args.kind.parse().map_err(Refused)?;
    let out = Destination::new(args.out.as_deref(), &args.kind, "svg");
    let format = png::Format::for_destination(&out)?;
    let judged = record::open(&args.run, &Additions::default())?;
    let options = plot::PlotOptions {
        width: args.width,
        height: args.height,
        standalone: true,
        ..plot::PlotOptions::default()
    };
    let svg = plot::draw(kind, &judged.record, &judged.judgement, &options);
    if out.write(&format.encode(svg)?)? {
        print(&format!("{out}\n"))?;
    }
    Ok(ExitCode::from(match plot::lacks(kind, &judged.record, &judged.judgement) {
        Some(why) => {
            note!("rtscope: the plot is empty. {why}");
            exit::INCONCLUSIVE
        }
        None => exit::PASS,
    }))
}
