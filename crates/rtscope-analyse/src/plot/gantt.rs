//! Who ran on which CPU when, as bars on one line a CPU; below it, thinner, who was held up by throttling.

use rtscope_model::sched::ExperimentRecord;

use super::{
    scale::Scale,
    svg::{Path, Svg},
    theme::{COLOURS, dark_rules},
};

const LEFT: f64 = 64.0;
const ROW: f64 = 46.0;
const BAR: f64 = 30.0;
const THIN: f64 = 4.0;

/// The chart of an experiment. Each application has a colour; a vertical mark shows when it ended.
#[must_use]
pub fn draw(record: &ExperimentRecord, width: u32, standalone: bool) -> String {
    let width = f64::from(width.clamp(320, 4000));
    let end_ns = record.applications.iter().map(|app| app.finish_ns).max().unwrap_or(1);
    let cpus: Vec<u32> = record.rules.cpus.iter().filter(|cpu| is_used(record, *cpu)).collect();
    let top = 40.0;
    let bottom = top + ROW * cpus.len() as f64;
    let height = bottom + 44.0;
    let scale = Scale::linear(0.0, end_ns as f64, LEFT, width - LEFT - 24.0);
    let title = "Who ran on which CPU when";
    let mut svg = Svg::plot("gantt", (width, height), title, Some(&described(record)));
    if standalone {
        svg.raw(&format!("<style>{}</style>\n", dark_rules()));
        svg.rect("paper", 0.0, 0.0, width, height);
    }
    legend(&mut svg, record);
    for tick in scale.time_ticks(8) {
        let x = scale.place(tick.value);
        svg.line("grid", x, top - 4.0, x, bottom);
        svg.label("tick", "middle", x, bottom + 18.0, &tick.label);
    }
    svg.label("sub", "end", width - 24.0, bottom + 36.0, "since the release");
    for (row, cpu) in cpus.iter().enumerate() {
        let y = top + ROW * row as f64 + (ROW - BAR) / 2.0;
        svg.label("text", "end", LEFT - 10.0, y + BAR / 2.0 + 4.0, &format!("CPU {cpu}"));
        svg.rect("bar-ground", LEFT, y, width - LEFT - 24.0, BAR);
        for (n, app) in record.applications.iter().enumerate() {
            let mut bars = Path::default();
            for run in app.runs.iter().filter(|run| run.cpu == *cpu) {
                let (from, to) = (scale.place(run.start_ns as f64), scale.place(run.end_ns as f64));
                bars.rect(from, y, (to - from).max(0.2), BAR);
            }
            // What it was held up for, below.
            for span in app.throttled.iter().flatten().filter(|span| span.cpu == *cpu) {
                let at = |ns: u64| scale.place(ns as f64);
                let (from, to) = (at(span.start_ns), at(span.end_ns));
                bars.rect(from, y + BAR + 2.0, (to - from).max(0.2), THIN);
            }
            svg.path(&format!("C{}", n % COLOURS), &bars);
        }
    }
    for (n, app) in record.applications.iter().enumerate() {
        let x = scale.place(app.finish_ns as f64);
        svg.line(&format!("curve c{}", n % COLOURS), x, top - 6.0, x, bottom + 4.0);
    }
    svg.finish()
}

fn is_used(record: &ExperimentRecord, cpu: u32) -> bool {
    record.applications.iter().flat_map(|app| &app.runs).any(|run| run.cpu == cpu)
}

fn legend(svg: &mut Svg, record: &ExperimentRecord) {
    let mut x = LEFT;
    for (n, app) in record.applications.iter().enumerate() {
        svg.rect(&format!("C{}", n % COLOURS), x, 10.0, 12.0, 12.0);
        let text = format!("{} ({})", app.name, app.found.policy);
        svg.label("text", "start", x + 18.0, 20.0, &text);
        x += 34.0 + 7.0 * text.chars().count() as f64;
    }
}

/// The chart in words.
fn described(record: &ExperimentRecord) -> String {
    let one = |app: &rtscope_model::sched::ObservedApplication| {
        format!(
            "{}: {} runs, ended {:.1} ms after the release",
            app.name,
            app.runs.len(),
            app.finish_ns as f64 / 1e6
        )
    };
    record.applications.iter().map(one).collect::<Vec<_>>().join("; ")
}
