//! Settings that were tried, a row for each figure: its change with the 95 % interval, on a logarithmic axis on which
//! half and twice are equally far from no change.

use super::{
    scale::Scale,
    svg::{Path, Svg},
};
use crate::compare::trial::{Trial, TrialFigure};

const WIDTH: f64 = 700.0;
const LEFT: f64 = 270.0;
const RIGHT: f64 = 34.0;
const TOP: f64 = 34.0;
const ROW: f64 = 24.0;
const DOT: f64 = 4.0;

/// Letters of a row's name that fit beside the plot.
const LETTERS: usize = 40;

/// The axis reaches at least from a half to twice, and at most from a hundredth to a hundred times.
const LEAST: f64 = 2.0;
const MOST: f64 = 100.0;

/// Draws the changes; none where no figure has one.
#[must_use]
pub(crate) fn draw(trials: &[Trial], id: &str) -> Option<String> {
    let rows: Vec<(&Trial, &TrialFigure)> = trials
        .iter()
        .flat_map(|trial| trial.figures.iter().map(move |figure| (trial, figure)))
        .filter(|(_, figure)| figure.change.is_some())
        .collect();
    let changes = rows.iter().filter_map(|(_, figure)| figure.change);
    let ends = changes.flat_map(|change| [1.0 / change.low.max(1e-9), change.high]);
    let reach =
        ends.fold(None, |most: Option<f64>, end| Some(most.map_or(end, |it| it.max(end))))?;
    let reach = reach.clamp(LEAST, MOST);
    let scale = Scale::log(1.0 / reach, reach, LEFT, WIDTH - LEFT - RIGHT);
    let bottom = TOP + ROW * rows.len() as f64;
    let title = "Change of each figure with each setting, with 95 % intervals";
    let described = "Left of the line is better than as found, right of it is worse.";
    let mut svg = Svg::plot(id, (WIDTH, bottom + 30.0), title, Some(described));
    for value in ticks(reach) {
        let x = scale.place(value);
        svg.line("grid", x, TOP - 6.0, x, bottom);
        svg.label("tick", "middle", x, bottom + 18.0, &percent(value));
    }
    svg.label("tick", "start", LEFT, TOP - 14.0, "better");
    svg.label("tick", "end", WIDTH - RIGHT, TOP - 14.0, "worse");
    let none = scale.place(1.0);
    svg.line("limit", none, TOP - 6.0, none, bottom);
    for (nth, (trial, figure)) in rows.iter().enumerate() {
        let y = TOP + ROW * (nth as f64 + 0.5);
        row(&mut svg, &scale, y, (trial, figure));
    }
    Some(svg.finish())
}

fn row(svg: &mut Svg, scale: &Scale, y: f64, (trial, figure): (&Trial, &TrialFigure)) {
    let Some(change) = figure.change else { return };
    let name = format!("{}, {}", trial.name, figure.load);
    svg.label("text", "end", LEFT - 12.0, y + 4.0, &cut(&name));
    let ink = match (figure.differs, change.ratio < 1.0) {
        (true, true) => "good",
        (true, false) => "missed",
        (false, _) => "others-area",
    };
    svg.line("axis", scale.place(change.low), y, scale.place(change.high), y);
    let mut dot = Path::default();
    dot.rect(scale.place(change.ratio) - DOT, y - DOT, 2.0 * DOT, 2.0 * DOT);
    svg.path(ink, &dot);
}

fn cut(name: &str) -> String {
    if name.chars().count() <= LETTERS {
        return name.to_owned();
    }
    name.chars().take(LETTERS - 3).chain("...".chars()).collect()
}

/// Ratios that are named on the axis.
fn ticks(reach: f64) -> Vec<f64> {
    let all = [0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0];
    let fine = [0.5, 0.7, 1.0, 1.4, 2.0];
    let from = if reach < 4.0 { &fine[..] } else { &all[..] };
    from.iter().copied().filter(|value| (1.0 / reach..=reach).contains(value)).collect()
}

fn percent(ratio: f64) -> String {
    match ratio {
        1.0 => "as found".to_owned(),
        r if r >= 5.0 => format!("{r:.0} times"),
        r => format!("{:+.0} %", 100.0 * (r - 1.0)),
    }
}
