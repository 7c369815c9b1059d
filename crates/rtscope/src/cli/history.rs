//! `rtscope history`: runs over months, listed, shown and drawn.

use std::{
    path::{Path, PathBuf},
    process::ExitCode,
};

use anyhow::Context;
use rtscope_analyse::{
    number::{counted, grouped, us},
    plot::{
        PlotOptions,
        trend::{self, TrendPoint},
    },
};
use rtscope_model::{text::suggest, time::Nanos, verdict::Statistic};
use serde_json::json;

use super::{Refused, print};
use crate::{
    cli::fleet,
    exit,
    failure::error_text,
    history::{self, Added, Entry, RunPlace, Store, Wanted},
    output::{print_folded, shown},
    png,
    record::{self, Additions, Destination},
};

/// What to do with the history.
#[derive(Debug, clap::Subcommand)]
pub(super) enum Verb {
    /// Add records to the history; skip those that it already contains
    ///
    /// A known record gets the new label, if you give one.
    ///
    /// Examples:
    ///   rtscope history import rtscope-runs/quick-*
    ///   rtscope history import --label 'rack 3' --at 2025-01-31 old-run
    ///   rtscope history import rtscope-runs/fleet-quick-*
    #[command(verbatim_doc_comment)]
    Import(Import),
    /// List the runs
    ///
    /// Examples:
    ///   rtscope history list
    ///   rtscope history list --json
    #[command(verbatim_doc_comment)]
    List(List),
    /// Show the figures of one run
    ///
    /// Examples:
    ///   rtscope history show 12
    #[command(verbatim_doc_comment)]
    Show(Show),
    /// Remove runs from the history; their records stay
    ///
    /// If you remove the last run, a later run may get its number.
    ///
    /// Examples:
    ///   rtscope history remove 12 13
    #[command(verbatim_doc_comment)]
    Remove(Remove),
    /// Show or plot a figure over time, with the changes of its level
    ///
    /// Examples:
    ///   rtscope history trend 'message load'
    ///   rtscope history trend 'message load' --statistic max --out max.svg
    ///   rtscope history trend 'message load' --place drill-3
    #[command(verbatim_doc_comment)]
    Trend(Trend),
}

/// The file of the history.
#[derive(Debug, clap::Args)]
pub(super) struct File {
    /// File of the history [default: rtscope/history.sqlite in your data folder]
    #[arg(long, value_name = "FILE")]
    store: Option<PathBuf>,
}

#[derive(Debug, clap::Args)]
pub(super) struct Import {
    /// Folders of records, or of `rtscope fleet run` with the records of its places
    #[arg(required = true)]
    runs: Vec<PathBuf>,
    /// Label for these runs, for example `rack 3`
    #[arg(long, default_value = "")]
    label: String,
    /// Day on which imports were measured, for example 2025-01-31, if their files don't contain it
    #[arg(long, value_name = "DAY")]
    at: Option<jiff::civil::Date>,
    #[command(flatten)]
    file: File,
}

#[derive(Debug, clap::Args)]
pub(super) struct List {
    #[command(flatten)]
    wanted: Wanted,
    #[command(flatten)]
    file: File,
    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

#[derive(Debug, clap::Args)]
pub(super) struct Show {
    /// Number of the run, from the list
    id: i64,
    #[command(flatten)]
    file: File,
}

#[derive(Debug, clap::Args)]
pub(super) struct Remove {
    /// Numbers of the runs, from the list
    #[arg(required = true, value_name = "ID")]
    ids: Vec<i64>,
    #[command(flatten)]
    file: File,
}

#[derive(Debug, clap::Args)]
pub(super) struct Trend {
    /// The cell's name
    cell: String,
    #[command(flatten)]
    wanted: Wanted,
    /// Figure to show: max, mean, or a quantile such as p99.9
    #[arg(long, default_value = "p99.9", value_parser = statistic)]
    statistic: Statistic,
    /// Plot the figure over time to FILE, .svg or .png; - writes SVG to standard output
    #[arg(short, long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Plot all histograms, one behind the other, to FILE, .svg or .png; - as for --out
    #[arg(long, value_name = "FILE")]
    surface: Option<PathBuf>,
    #[command(flatten)]
    file: File,
    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

/// A statistic of latencies: what a requirement may bound, without its limit.
fn statistic(text: &str) -> Result<Statistic, String> {
    let requirement: Result<rtscope_model::verdict::Requirement, _> =
        format!("{text} < 1s").parse();
    match requirement.map(|requirement| requirement.statistic) {
        Ok(statistic) if !statistic.is_count() => Ok(statistic),
        _ => Err("write max, mean, or a quantile such as p99.9".to_owned()),
    }
}

pub(super) fn main(verb: &Verb) -> anyhow::Result<ExitCode> {
    match verb {
        Verb::Import(args) => import(args),
        Verb::List(args) => list(args),
        Verb::Show(args) => show(args),
        Verb::Remove(args) => remove(args),
        Verb::Trend(args) => draw(args),
    }?;
    Ok(ExitCode::from(exit::PASS))
}

fn place_of(file: &File) -> anyhow::Result<PathBuf> {
    file.store.clone().map_or_else(history::default_file, Ok)
}

/// A history that is there: nothing is made for who only reads.
fn open(file: &File) -> anyhow::Result<Store> {
    let place = place_of(file)?;
    let missing = || {
        Refused(format!(
            "there is no history {}: make one with `rtscope history import DIR...`",
            shown(&place)
        ))
    };
    Ok(Store::open_known(&place)?.ok_or_else(missing)?)
}

fn import(args: &Import) -> anyhow::Result<()> {
    let mut store = Store::open(&place_of(&args.file)?)?;
    let is_record = |run: &PathBuf| record::is_one(run);
    let runs: Vec<(PathBuf, RunPlace)> =
        args.runs.iter().map(|run| fleet::records_in(run)).collect::<Result<Vec<_>, _>>()?.concat();
    // A pattern such as rtscope-runs/* also names pages, plots and results of other commands.
    let any_record = runs.iter().any(|(run, _)| is_record(run));
    let mut failed = None;
    for (run, place) in &runs {
        if any_record && run.exists() && !is_record(run) {
            print(&format!("{} is not a record: skipped\n", shown(run)))?;
            continue;
        }
        match import_one(args, &mut store, run, place) {
            Ok(told) => print(&format!("{} {told}\n", shown(run)))?,
            // The others are worth having.
            Err(error) if failed.is_some() => note!("rtscope: {}", error_text(&error)),
            Err(error) => failed = Some(error),
        }
    }
    failed.map_or(Ok(()), Err)
}

/// Adds a record; what became of it.
fn import_one(
    args: &Import,
    store: &mut Store,
    run: &Path,
    place: &RunPlace,
) -> anyhow::Result<String> {
    if run.is_file() {
        let text = format!("{} is a file: name the folder of a record", shown(run));
        return Err(Refused(text).into());
    }
    let judged = record::open(run, &Additions::default())?;
    let folder = run.canonicalize().unwrap_or_else(|_| run.to_owned()).display().to_string();
    let place = (args.label.as_str(), place);
    Ok(match store.add(&judged.record, &judged.judgement, place, &folder, args.at)? {
        Added::New(id) => format!("is run {id}"),
        Added::Known => "is already in the history".to_owned(),
        Added::Relabelled(id) => {
            format!("is already in the history, as run {id}, which has this label now")
        }
    })
}

fn list(args: &List) -> anyhow::Result<()> {
    // Who names no file may not have a history yet.
    let store = match args.file.store {
        Some(_) => Some(open(&args.file)?),
        None => Store::open_known(&place_of(&args.file)?)?,
    };
    let runs = store.as_ref().map_or_else(|| Ok(Vec::new()), |store| store.list(&args.wanted))?;
    if args.json {
        let runs: Vec<_> = runs.iter().map(document).collect();
        return print(&(serde_json::to_string_pretty(&runs)? + "\n"));
    }
    if runs.is_empty() {
        return print(&match store.map_or(Ok(0), |store| store.count())? {
            0 => "No runs found: add records with `rtscope history import DIR...`\n".to_owned(),
            all => format!(
                "No run matches these options; without them, `rtscope history list` shows {}\n",
                counted(all as u64, "run")
            ),
        });
    }
    let mut text = String::new();
    for run in &runs {
        text += &line(run);
    }
    print_folded(&text)
}

/// Host and kernel in words; an import's file may tell neither.
fn on(host: &str, kernel: &str) -> String {
    let known: Vec<&str> = [host, kernel].into_iter().filter(|word| !word.is_empty()).collect();
    if known.is_empty() { "unknown machine".to_owned() } else { known.join(", ") }
}

fn document(run: &Entry) -> serde_json::Value {
    let Entry { id, started, host, kernel, plan, label, verdict, folder, place } = run;
    json!({
        "id": id, "started": started, "host": host, "kernel": kernel, "plan": plan, "label": label,
        "verdict": verdict, "folder": folder, "place": place.name, "tags": place.tags, "model": place.model,
    })
}

fn line(run: &Entry) -> String {
    let Entry { id, started, host, kernel, plan, label, verdict, .. } = run;
    let label = if label.is_empty() { String::new() } else { format!("  [{label}]") };
    let place = &run.place.name;
    let at = if place.is_empty() { String::new() } else { format!("{place}: ") };
    let on = at + &on(host, kernel);
    format!("{id:>5}  {started}  {plan:<12} {verdict:<12} {on}{label}\n")
}

fn show(args: &Show) -> anyhow::Result<()> {
    let store = open(&args.file)?;
    let run = store.run(args.id)?.ok_or_else(|| no_run(args.id))?;
    let mut text = format!("{}       {}\n", line(&run), run.folder);
    for cell in store.cells(args.id)? {
        let figure = |statistic| match cell.figure(statistic) {
            None => "-".to_owned(),
            Some((ns, is_lower_end)) => lower_end(is_lower_end).to_owned() + &us(ns),
        };
        text += &format!(
            "{}: {} recorded, {}; {} of observation, summed over all threads; us: p50 {}, p99.9 {}, max {}\n",
            cell.name,
            grouped(cell.histogram.count()),
            cell.missed
                .map_or_else(|| "missed unknown".to_owned(), |n| format!("{} missed", grouped(n))),
            Nanos(cell.exposure_ns),
            figure(Statistic::Quantile(500_000_000)),
            figure(Statistic::Quantile(999_000_000)),
            figure(Statistic::Max)
        );
    }
    print_folded(&text)
}

/// Before a figure that may be larger.
fn lower_end(is_one: bool) -> &'static str {
    if is_one { ">= " } else { "" }
}

fn remove(args: &Remove) -> anyhow::Result<()> {
    let mut store = open(&args.file)?;
    // Nothing is removed if a number is wrong.
    for id in &args.ids {
        store.run(*id)?.ok_or_else(|| no_run(*id))?;
    }
    for id in &args.ids {
        if store.remove(*id)? {
            print(&format!("run {id} is removed\n"))?;
        }
    }
    Ok(())
}

fn no_run(id: i64) -> Refused {
    Refused(format!("there is no run {id}; `rtscope history list` shows all runs"))
}

/// Why no run has a cell of this name.
fn no_cell(args: &Trend, store: &Store) -> anyhow::Result<Refused> {
    let names = store.cell_names()?;
    if names.contains(&args.cell) {
        return Ok(Refused(format!(
            "no run that matches these options has a cell {:?}",
            args.cell
        )));
    }
    let more = match suggest(&args.cell, names.iter().map(String::as_str)) {
        Some(near) => format!(" (did you mean {near:?}?)"),
        None if names.is_empty() => String::new(),
        None => format!("; the history has the cells {}", names.join(", ")),
    };
    Ok(Refused(format!("no run of the history has a cell {:?}{more}", args.cell)))
}

/// The wanted cell of each wanted run, in order of time.
fn points(args: &Trend, store: &Store) -> anyhow::Result<Vec<TrendPoint>> {
    let mut points = Vec::new();
    for run in store.list(&args.wanted)? {
        let began: jiff::Timestamp = run
            .started
            .parse()
            .with_context(|| format!("run {}: {:?} is not a valid time", run.id, run.started))?;
        for cell in store.cells(run.id)?.into_iter().filter(|cell| cell.name == args.cell) {
            points.extend(cell.figure(args.statistic).map(|(value_ns, is_lower_end)| TrendPoint {
                at_s: began.as_second(),
                day: run.started.chars().take(10).collect(),
                on: on(&run.host, &run.kernel),
                value_ns,
                is_lower_end,
                histogram: cell.histogram.clone(),
            }));
        }
    }
    Ok(points)
}

fn draw(args: &Trend) -> anyhow::Result<()> {
    let [out, surface] =
        [&args.out, &args.surface].map(|out| out.as_deref().map(Destination::named));
    let documents =
        [&out, &surface].into_iter().flatten().filter(|to| **to == Destination::Stdout).count();
    if documents + usize::from(args.json) > 1 {
        let text = "only one document can go to standard output: use only one of --json, --out - and --surface -";
        return Err(Refused(text.to_owned()).into());
    }
    let store = open(&args.file)?;
    let points = points(args, &store)?;
    if points.is_empty() {
        return Err(no_cell(args, &store)?.into());
    }
    let what = format!("{} of {}", args.statistic, args.cell);
    let options = PlotOptions { width: 1_000, ..PlotOptions::default() };
    let found = trend::changes(&points, args.statistic);
    let mut has_stdout = true;
    if let Some(out) = out {
        has_stdout &= write(&out, trend::draw(&points, &what, &found, &options))?;
    }
    if let Some(out) = surface {
        has_stdout &= write(&out, trend::surface(&points, &args.cell, &options))?;
    }
    let changes = found.as_deref().unwrap_or_default();
    let refused = found.as_ref().err().map(ToString::to_string);
    if args.json {
        let point = |point: &TrendPoint| json!({ "day": point.day, "at_s": point.at_s, "on": point.on, "value_ns": point.value_ns, "is_lower_end": point.is_lower_end });
        let document = json!({
            "what": what,
            "points": points.iter().map(point).collect::<Vec<_>>(),
            "changes": changes,
            "no_search": refused,
        });
        return print(&(serde_json::to_string_pretty(&document)? + "\n"));
    }
    if !has_stdout {
        return Ok(());
    }
    let mut text = format!("{what}, in us\n");
    for (n, point) in points.iter().enumerate() {
        if let Some(change) = changes.iter().find(|change| change.at == n) {
            let level = |ns: f64| us(ns.round() as u64);
            text += &format!("  -- from {} to {} --\n", level(change.before), level(change.after));
        }
        // Of an import that was dated by hand, only the day is known.
        let format = if point.at_s % 86_400 == 0 { "%Y-%m-%d" } else { "%Y-%m-%d %H:%MZ" };
        let began = jiff::Timestamp::from_second(point.at_s)?.strftime(format).to_string();
        let value = lower_end(point.is_lower_end).to_owned() + &us(point.value_ns);
        text += &format!("  {began:17}  {value:>9}  {}\n", point.on);
    }
    if let Some(why) = refused {
        text += &format!("rtscope did not look for level changes: {why}\n");
    }
    print(&text)
}

/// Writes a plot, and says where on standard error; false when standard output has it.
fn write(out: &Destination, svg: String) -> anyhow::Result<bool> {
    let is_file = out.write(&png::Format::for_destination(out)?.encode(svg)?)?;
    if is_file {
        note!("{out}");
    }
    Ok(is_file)
}
