//! Proof of load: what each load achieved in each span of the run, and how busy the CPUs were.
//!
//! A span runs from one report to the next, about one second. Where spans share a column, the least
//! and the most of them are drawn, so that a hole in the load is never averaged away. The plot can't
//! show what a load did to caches or memory, nor loads that are not ours.

use rtscope_model::event::Event;

use super::{
    Plot, PlotKind, PlotOptions,
    columns::COLUMNS,
    scale::{Scale, Tick, nice_above, short},
    scene::{PlottedCell, Scene},
    sheet::{Frame, HEADER, Key, Readout, ReadoutPanel, Sample, Series, Sheet},
    svg::Path,
    table::Table,
    theme::COLOURS,
    timeline,
};
use crate::number::{grouped, per_second};

pub(super) const PLOT: Plot = Plot {
    name: "load",
    title: "Proof of load",
    shows: "It shows what each load achieved over time, and how busy each CPU was: without them \
            a good latency proves nothing. It can't show loads that are not part of the plan, other \
            than as busy time.",
    headline,
    draw,
    table,
};

/// Loads with a panel of their own.
const PANELS: usize = 5;

/// What was reported for a span of time: the least and the most of the spans it was gathered from.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Span {
    start_ns: u64,
    end_ns: u64,
    low: f64,
    high: f64,
}

/// Values over time.
#[derive(Clone, Debug, PartialEq)]
struct Trace {
    name: String,
    unit: String,
    /// Class of its colour without the letter, and whether it is a load's.
    ink: usize,
    spans: Vec<Span>,
}

impl Trace {
    fn most(&self) -> f64 {
        self.spans.iter().map(|span| span.high).fold(0.0, f64::max)
    }

    /// At most [`COLUMNS`] spans.
    fn thinned(mut self) -> Trace {
        let each = self.spans.len().div_ceil(COLUMNS).max(1);
        let gather = |spans: &[Span]| Span {
            start_ns: spans[0].start_ns,
            end_ns: spans[spans.len() - 1].end_ns,
            low: spans.iter().map(|span| span.low).fold(f64::MAX, f64::min),
            high: spans.iter().map(|span| span.high).fold(0.0, f64::max),
        };
        self.spans = self.spans.chunks(each).map(gather).collect();
        self
    }
}

/// The rates of each load, a second, by its line.
fn loads(scene: &Scene<'_>) -> Vec<Trace> {
    let mut traces: Vec<Trace> = Vec::new();
    for stamped in &scene.record.events {
        let Event::LoadRate { cell, load, span_ns: span_ns @ 1.., work, unit, .. } = &stamped.event
        else {
            continue;
        };
        let Some(of) = scene.cells.iter().find(|of| of.summary.cell == *cell) else { continue };
        let Some(summary) = of.summary.loads.get(*load as usize) else { continue };
        let known = traces.iter().position(|trace| trace.name == summary.line);
        let at = known.unwrap_or_else(|| {
            traces.push(Trace {
                name: summary.line.clone(),
                unit: unit.clone(),
                ink: of.ink,
                spans: Vec::new(),
            });
            traces.len() - 1
        });
        let value = *work as f64 / (*span_ns as f64 / 1e9);
        traces[at].spans.push(Span {
            start_ns: stamped.at_ns.saturating_sub(*span_ns),
            end_ns: stamped.at_ns,
            low: value,
            high: value,
        });
    }
    traces.into_iter().map(Trace::thinned).collect()
}

/// Busy and stolen time of each CPU in percent.
fn cpus(scene: &Scene<'_>) -> (Vec<Trace>, Vec<Trace>) {
    let (mut busy, mut steal): (Vec<Trace>, Vec<Trace>) = (Vec::new(), Vec::new());
    let shown = scene.span_ns().unwrap_or((0, u64::MAX));
    for stamped in &scene.record.events {
        let Event::System(span) = &stamped.event else { continue };
        let start_ns = stamped.at_ns.saturating_sub(span.span_ns);
        if span.span_ns == 0 || stamped.at_ns < shown.0 || start_ns > shown.1 {
            continue;
        }
        for cpu in &span.cpus {
            let name = format!("CPU {}", cpu.cpu);
            for (traces, ns) in [(&mut busy, cpu.busy_ns), (&mut steal, cpu.steal_ns)] {
                let at = traces.iter().position(|trace| trace.name == name).unwrap_or_else(|| {
                    let (name, unit) = (name.clone(), "%".to_owned());
                    traces.push(Trace { name, unit, ink: COLOURS, spans: Vec::new() });
                    traces.len() - 1
                });
                let value = (ns as f64 / span.span_ns as f64 * 100.0).min(100.0);
                let end_ns = stamped.at_ns;
                traces[at].spans.push(Span { start_ns, end_ns, low: value, high: value });
            }
        }
    }
    let finish = |traces: Vec<Trace>| ink(scene, traces.into_iter().map(Trace::thinned).collect());
    (finish(busy), finish(steal))
}

/// Gives CPUs the colours of their threads, and others the free ones; drops what gets none.
fn ink(scene: &Scene<'_>, mut traces: Vec<Trace>) -> Vec<Trace> {
    for trace in &mut traces {
        let track = scene.tracks.iter().position(|track| track.label == trace.name);
        trace.ink = track.unwrap_or(COLOURS);
    }
    let mut free = (0..COLOURS).filter(|n| *n >= scene.tracks.len());
    for trace in traces.iter_mut().filter(|trace| trace.ink == COLOURS) {
        trace.ink = free.next().unwrap_or(COLOURS);
    }
    traces.retain(|trace| trace.ink < COLOURS);
    traces
}

fn headline(scene: &Scene<'_>) -> String {
    let summaries = || scene.cells.iter().flat_map(|cell| &cell.summary.loads);
    if scene.cells.is_empty() {
        return "No phase ran, so no load did".to_owned();
    }
    if summaries().next().is_none() {
        return match scene.was_at_rest {
            true => "The plan has no load: these are latencies at rest",
            false => "The plan has no load, but other programs kept the machine busy",
        }
        .to_owned();
    }
    if let Some(load) = summaries().find(|load| load.spans == 0 || load.work == 0) {
        return format!("The load {} reported no work", load.line);
    }
    if let Some(load) = summaries().find(|load| load.idle_spans > 0) {
        return format!(
            "The load {} did no work in {} of {} spans",
            load.line, load.idle_spans, load.spans
        );
    }
    if let Some(load) = summaries().find(|load| !load.ok) {
        let how = load.ended.clone().unwrap_or_else(|| "no end was recorded".to_owned());
        return format!("The load {} did not end as it should: {how}", load.line);
    }
    let load = summaries().max_by(|a, b| a.per_second.total_cmp(&b.per_second));
    load.map_or_else(String::new, |load| {
        format!(
            "The load ran in every span: {} at {} {} a second",
            load.line,
            per_second(load.per_second),
            load.unit
        )
    })
}

/// One panel: what it is called, its curves, and the top of its axis.
struct Panel {
    name: String,
    remark: String,
    traces: Vec<Trace>,
    most: f64,
    kind: &'static str,
    of_loads: bool,
}

fn panels(scene: &Scene<'_>) -> Vec<Panel> {
    let loads = loads(scene);
    let (busy, steal) = cpus(scene);
    let dropped = loads.len().saturating_sub(PANELS);
    let mut panels: Vec<Panel> = loads
        .into_iter()
        .take(PANELS)
        .map(|trace| Panel {
            name: trace.name.clone(),
            remark: format!("{} a second", trace.unit),
            most: trace.most(),
            traces: vec![trace],
            kind: "rate",
            of_loads: true,
        })
        .collect();
    if let Some(last) = panels.last_mut().filter(|_| dropped > 0) {
        last.remark = format!("{}; {dropped} more loads are in the table", last.remark);
    }
    let cpu = |name: &str, remark: &str, traces: Vec<Trace>, most: f64| Panel {
        name: name.to_owned(),
        remark: remark.to_owned(),
        traces,
        most,
        kind: "percent",
        of_loads: false,
    };
    if !busy.is_empty() {
        panels.push(cpu("CPU busy", "percent of the time, loads and everything else", busy, 100.0));
    }
    let stolen = steal.iter().map(Trace::most).fold(0.0, f64::max);
    if stolen > 0.0 {
        panels.push(cpu(
            "CPU stolen",
            "percent of the time, taken by the hypervisor",
            steal,
            stolen,
        ));
    }
    panels
}

/// Why there is nothing to draw.
pub(super) const NONE: &str = "The record holds no rates of loads and no CPU times";

/// Whether there is nothing to draw.
pub(super) fn is_empty(scene: &Scene<'_>) -> bool {
    scene.span_ns().is_none() || panels(scene).is_empty()
}

fn draw(scene: &Scene<'_>, options: &PlotOptions) -> String {
    let mut sheet = Sheet::new(PlotKind::Load, scene, options, &headline(scene));
    let panels = panels(scene);
    let (Some(span), false) = (scene.span_ns(), panels.is_empty()) else {
        return sheet.empty(NONE);
    };
    let cpus = panels.iter().find(|panel| !panel.of_loads);
    let key = |trace: &Trace| Key {
        label: trace.name.clone(),
        ink: format!("c{}", trace.ink),
        sample: Sample::Line(trace.ink),
        toggles: Some(("track", trace.ink)),
    };
    sheet.legend(&cpus.map_or(Vec::new(), |panel| panel.traces.iter().map(key).collect()));
    let natural = if panels.len() <= 2 { 130.0 } else { 100.0 };
    let frames = sheet.panels(panels.len(), natural, HEADER, 66.0);
    let x = timeline::time_scale(&frames[0], span);
    timeline::shade(&mut sheet, scene, &frames, &x);
    sheet.x_axis(&frames, &x, &x.time_ticks(9), "time since the start of the run");
    let mut read = Vec::new();
    let steps = steps(&panels);
    for (number, (panel, frame)) in panels.iter().zip(&frames).enumerate() {
        draw_panel(&mut sheet, frame, panel, &x, number);
        read.push(read_panel(panel, frame, &steps));
    }
    sheet.read_out(Readout {
        x: "time",
        log: false,
        domain: (x.from, x.to),
        range: (frames[0].left, frames[0].width),
        steps,
        phases: timeline::phases(scene),
        panels: read,
        grid: None,
    });
    sheet.finish("Rate of each load over time, and the share of time that each CPU was busy.")
}

fn draw_panel(sheet: &mut Sheet, frame: &Frame, panel: &Panel, x: &Scale, number: usize) {
    let step = nice_above((panel.most / 3.0).max(1e-6));
    let y = frame.y(false, 0.0, (panel.most / step).ceil().max(1.0) * step);
    let ticks: Vec<Tick> =
        y.values(3).into_iter().map(|value| Tick { value, label: short(value) }).collect();
    sheet.header(frame, &panel.name, &panel.remark);
    sheet.y_axis(frame, &y, &ticks);
    sheet.plane(frame, number);
    for trace in &panel.traces {
        let letter = if panel.of_loads { 'k' } else { 'c' };
        let (line, area) = curve(&trace.spans, x, &y, panel.of_loads);
        let group = sheet.svg.element("g");
        let group = match panel.of_loads {
            true => group,
            false => group.attribute("data-track", &trace.ink.to_string()),
        };
        group.open();
        sheet.svg.path(&format!("between {}{}", letter.to_ascii_uppercase(), trace.ink), &area);
        let dash = if panel.of_loads { 0 } else { trace.ink };
        sheet.curve(&format!("{letter}{}", trace.ink), dash, &line);
        sheet.svg.close();
    }
    sheet.end_plane();
    sheet.base_line(frame);
}

/// The least as a step curve for loads, the most for CPUs; and the area down to 0 for loads, or
/// between least and most.
fn curve(spans: &[Span], x: &Scale, y: &Scale, of_loads: bool) -> (Path, Path) {
    let (mut line, mut area) = (Path::default(), Path::default());
    let mut end_ns = 0;
    for span in spans {
        let (left, right) = (x.place(span.start_ns as f64), x.place(span.end_ns as f64));
        // A span that starts clearly after the end of the one before starts a new line.
        if span.start_ns > end_ns.max(1) + (span.end_ns - span.start_ns) / 2 {
            line.lift();
        }
        end_ns = span.end_ns;
        let value = y.place(if of_loads { span.low } else { span.high });
        line.to(left, value);
        line.to(right, value);
        let bottom = y.place(if of_loads { 0.0 } else { span.low });
        let top = y.place(span.high);
        if bottom - top > 0.05 {
            area.rect(left, top, right - left, bottom - top);
        }
    }
    (line, area)
}

/// Steps of the read-out: those of the panel with the most.
fn steps(panels: &[Panel]) -> Vec<(u64, u64)> {
    let traces = panels.iter().flat_map(|panel| &panel.traces);
    let longest = traces.max_by_key(|trace| trace.spans.len());
    longest.map_or(Vec::new(), |trace| {
        trace.spans.iter().map(|span| (span.start_ns, span.end_ns)).collect()
    })
}

fn read_panel(panel: &Panel, frame: &Frame, steps: &[(u64, u64)]) -> ReadoutPanel {
    let value = |trace: &Trace, (start_ns, end_ns): (u64, u64)| {
        let middle = start_ns.midpoint(end_ns);
        let at = trace.spans.partition_point(|span| span.end_ns <= middle);
        let span = trace.spans.get(at).filter(|span| span.start_ns <= middle)?;
        let value = if panel.of_loads { span.low } else { span.high };
        Some((value * 10.0).round() / 10.0)
    };
    let series = |trace: &Trace| Series {
        name: if panel.of_loads { trace.unit.clone() } else { trace.name.clone() },
        kind: panel.kind,
        values: steps.iter().map(|&step| value(trace, step)).collect(),
    };
    ReadoutPanel {
        name: panel.name.clone(),
        range: (frame.top, frame.height),
        series: panel.traces.iter().map(series).collect(),
    }
}

fn table(scene: &Scene<'_>) -> Table {
    let mut table = Table::new([
        "phase",
        "load",
        "work",
        "unit",
        "a second",
        "spans",
        "idle spans",
        "end",
        "CPU busy",
    ]);
    for cell in &scene.cells {
        let busy = busy_percent(scene, cell);
        if cell.summary.loads.is_empty() {
            let name = cell.summary.name.clone();
            let dash = || "-".to_owned();
            table.row([name, "none".into(), dash(), dash(), dash(), dash(), dash(), dash(), busy]);
            continue;
        }
        for load in &cell.summary.loads {
            table.row([
                cell.summary.name.clone(),
                load.line.clone(),
                grouped(load.work),
                load.unit.clone(),
                per_second(load.per_second),
                grouped(load.spans),
                grouped(load.idle_spans),
                load.ended.clone().unwrap_or_else(|| "not recorded".to_owned()),
                busy.clone(),
            ]);
        }
    }
    table
}

/// Mean busy share over all CPUs while a cell ran.
fn busy_percent(scene: &Scene<'_>, cell: &PlottedCell<'_>) -> String {
    let (mut busy_ns, mut all_ns) = (0u128, 0u128);
    for stamped in &scene.record.events {
        let Event::System(span) = &stamped.event else { continue };
        let middle = stamped.at_ns.saturating_sub(span.span_ns / 2);
        if (cell.start_ns..cell.end_ns).contains(&middle) {
            busy_ns += span.cpus.iter().map(|cpu| u128::from(cpu.busy_ns)).sum::<u128>();
            all_ns += u128::from(span.span_ns) * span.cpus.len() as u128;
        }
    }
    match all_ns {
        0 => "-".to_owned(),
        _ => format!("{:.0} %", busy_ns as f64 / all_ns as f64 * 100.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{judge, plot::fixture, test_support::Run};

    const PLAN: &str = "name = \"p\"\n[[phase]]\nname = \"a\"\nduration = \"2s\"\n\
                        load = [\"message groups=1\"]\n";

    fn headline_of(run: &Run) -> String {
        let record = run.record();
        let judgement = judge(&record, &[]);
        headline(&Scene::new(&record, &judgement, None))
    }

    #[test]
    fn a_hole_in_the_load_is_the_headline() {
        let run = |work: &[u64]| {
            Run::new(PLAN, 1).cell(0, &[&[5_000; 2_000]]).load(0, "message groups=1", work).end()
        };
        assert_eq!(
            headline_of(&run(&[4_000, 6_000])),
            "The load ran in every span: message groups=1 at 5,000 messages a second"
        );
        assert_eq!(
            headline_of(&run(&[4_000, 0, 6_000])),
            "The load message groups=1 did no work in 1 of 3 spans"
        );
        assert_eq!(headline_of(&run(&[])), "The load message groups=1 reported no work");
    }

    #[test]
    fn shortening_keeps_the_least_and_the_most() {
        let span = |n: u64| Span {
            start_ns: n,
            end_ns: n + 1,
            low: if n == 1_234 { 0.0 } else { 7.0 },
            high: if n == 999 { 9.0 } else { 7.0 },
        };
        let trace = Trace {
            name: String::new(),
            unit: String::new(),
            ink: 0,
            spans: (0..5_000).map(span).collect(),
        };
        let spans = trace.thinned().spans;
        assert!(spans.len() <= COLUMNS);
        assert!(spans.iter().any(|span| span.low == 0.0));
        assert!(spans.iter().any(|span| span.high == 9.0));
        assert_eq!((spans[0].start_ns, spans[spans.len() - 1].end_ns), (0, 5_000));
    }

    #[test]
    fn rates_and_busy_times_are_those_of_the_record() {
        let record = fixture::typical();
        let judgement = judge(&record, &[]);
        let scene = Scene::new(&record, &judgement, None);
        let loads = loads(&scene);
        assert_eq!((loads.len(), loads[0].spans.len()), (1, 10));
        assert!(loads[0].spans.iter().all(|span| (118e3..127e3).contains(&span.low)));
        let (busy, steal) = cpus(&scene);
        assert_eq!((busy.len(), busy[0].spans.len()), (2, 20));
        assert!(steal.iter().all(|trace| trace.most() == 0.0));
    }
}
