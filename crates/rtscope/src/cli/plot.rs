//! `rtscope plot`: one plot of a record as a file.

use std::{path::PathBuf, process::ExitCode};

use anyhow::Context;
use rtscope_analyse::plot::{self, Kind};
use rtscope_measure::recorder::write_whole;

use super::{Refused, print};
use crate::{
    exit,
    output::shown,
    png,
    record::{self, Terms},
};

/// Draw one plot of a record as SVG or PNG
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// The record's folder
    run: PathBuf,
    /// histogram, exceedance, timeline, heatmap, losses or load
    #[arg(short, long)]
    kind: String,
    /// The file: its ending says the format, .svg or .png
    #[arg(short, long, value_name = "FILE")]
    out: PathBuf,
    /// Width in pixels
    #[arg(long, default_value_t = 1000, value_parser = clap::value_parser!(u32).range(200..=8000))]
    width: u32,
    /// Height in pixels [default: what the plot needs]
    #[arg(long, value_parser = clap::value_parser!(u32).range(120..=8000))]
    height: Option<u32>,
}

pub(super) fn main(args: &Args) -> anyhow::Result<ExitCode> {
    let kind: Kind = args.kind.parse().map_err(Refused)?;
    let format = args.out.extension().and_then(|e| e.to_str()).unwrap_or_default().to_lowercase();
    if format != "svg" && format != "png" {
        let text = format!("{}: write a name that ends in .svg or .png", args.out.display());
        return Err(Refused(text).into());
    }
    let judged = record::open(&args.run, &Terms::default())?;
    let options = plot::Options {
        width: args.width,
        height: args.height,
        standalone: true,
        ..plot::Options::default()
    };
    let svg = plot::draw(kind, &judged.record, &judged.judgement, &options);
    let bytes = if format == "svg" { svg.into_bytes() } else { png::of_svg(&svg)? };
    write_whole(&args.out, &bytes)
        .with_context(|| format!("can't write {}", args.out.display()))?;
    print(&format!("{}\n", shown(&args.out)))?;
    Ok(ExitCode::from(exit::PASS))
}
