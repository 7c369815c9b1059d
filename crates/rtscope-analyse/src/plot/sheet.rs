//! The sheet that every plot is drawn on: heading, legend, panels one below the other with one
//! common x axis, and the numbers that the page's script reads out.

use serde::Serialize;

use super::{
    PlotKind, PlotOptions,
    scale::{Scale, Tick},
    scene::{Limit, Scene},
    svg::{Path, Svg},
    theme::{self, DASHES},
    words::cut,
};

/// Space below the last panel for tick labels and the name of the x axis.
const FOOT: f64 = 44.0;

/// Space above a panel for its name, or the names of the phases.
pub(crate) const HEADER: f64 = 30.0;

/// Space above a panel without a name.
pub(crate) const NO_HEADER: f64 = 12.0;

/// Estimated width of a character of the legend.
const CHARACTER: f64 = 6.7;

/// The smallest panel that can still be read.
const PANEL_MIN: f64 = 56.0;

/// Shapes of markers around 0, so that a track is not told by its colour alone: disc, square,
/// triangle, diamond, triangle down, bar, plus, cross.
const MARKERS: [&str; 8] = [
    "M-4 0A4 4 0 1 1 4 0A4 4 0 1 1 -4 0Z",
    "M-3.5 -3.5H3.5V3.5H-3.5Z",
    "M0 -4.5L4.5 3.5H-4.5Z",
    "M0 -5L5 0L0 5L-5 0Z",
    "M0 4.5L4.5 -3.5H-4.5Z",
    "M-5 -2H5V2H-5Z",
    "M-1.5 -5H1.5V-1.5H5V1.5H1.5V5H-1.5V1.5H-5V-1.5H-1.5Z",
    "M-4.5 -2.5L-2.5 -4.5L0 -2L2.5 -4.5L4.5 -2.5L2 0L4.5 2.5L2.5 4.5L0 2L-2.5 4.5L-4.5 2.5L-2 0Z",
];

/// A plot in the making.
#[derive(Debug)]
pub(crate) struct Sheet {
    /// What was drawn so far.
    pub(crate) svg: Svg,
    pub(crate) width: f64,
    name: String,
    standalone: bool,
    asked_height: Option<f64>,
    /// Everything above is drawn.
    top: f64,
    title: String,
    readout: Option<Readout>,
}

/// A rectangle that curves are drawn in.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Frame {
    pub(crate) left: f64,
    pub(crate) top: f64,
    pub(crate) width: f64,
    pub(crate) height: f64,
}

impl Frame {
    pub(crate) fn right(&self) -> f64 {
        self.left + self.width
    }

    pub(crate) fn bottom(&self) -> f64 {
        self.top + self.height
    }

    /// A horizontal logarithmic or linear axis over the frame.
    pub(crate) fn x(&self, log: bool, from: f64, to: f64) -> Scale {
        let scale = if log { Scale::log } else { Scale::linear };
        scale(from, to, self.left, self.width)
    }

    /// A vertical axis, growing upwards.
    pub(crate) fn y(&self, log: bool, from: f64, to: f64) -> Scale {
        let scale = if log { Scale::log } else { Scale::linear };
        scale(from, to, self.bottom(), -self.height)
    }
}

/// An entry of the legend.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Key {
    pub(crate) label: String,
    /// Class of the sample.
    pub(crate) ink: String,
    /// What the sample looks like.
    pub(crate) sample: Sample,
    /// Name and value of the attribute that marks what the entry shows and hides, as `track` 0.
    pub(crate) toggles: Option<(&'static str, usize)>,
}

/// What the sample of a legend's entry looks like.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Sample {
    /// A line with the dash of this place.
    Line(usize),
    /// A line with the marker of this track.
    Marked(usize),
    /// A filled square.
    Square,
}

/// What the page's script needs to read values out: the x axis and the values of each step of it.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Readout {
    /// `latency` or `time`.
    pub(crate) x: &'static str,
    pub(crate) log: bool,
    /// First and last value of the axis.
    pub(crate) domain: (f64, f64),
    /// Place of the axis: left edge and width.
    pub(crate) range: (f64, f64),
    /// Start and end of each step of x. Steps may leave gaps.
    pub(crate) steps: Vec<(u64, u64)>,
    /// Start, end and name of each phase, where x is time.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) phases: Vec<(u64, u64, String)>,
    /// The panels from top to bottom.
    pub(crate) panels: Vec<ReadoutPanel>,
    /// Counts by step and row, for a plot that is a field of them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) grid: Option<ReadoutGrid>,
}

/// Counts by step of x and row of y.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct ReadoutGrid {
    /// Edges of the rows, ascending, on a logarithmic axis over the whole first panel.
    pub(crate) edges: Vec<u64>,
    /// First and last value of that axis.
    pub(crate) domain: (f64, f64),
    /// For each step, row and count of what is not 0.
    pub(crate) cells: Vec<Vec<(usize, u64)>>,
}

/// The values of one panel.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct ReadoutPanel {
    /// Name; empty when the plot has one panel.
    pub(crate) name: String,
    /// Upper edge and height.
    pub(crate) range: (f64, f64),
    pub(crate) series: Vec<Series>,
}

/// The values of one curve.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Series {
    pub(crate) name: String,
    /// How a value is told: `count`, `latency`, `share`, `rate` or `percent`.
    pub(crate) kind: &'static str,
    /// One value for each step.
    pub(crate) values: Vec<Option<f64>>,
}

impl Sheet {
    /// A sheet with its heading. `title` states the finding.
    pub(crate) fn new(
        kind: PlotKind,
        scene: &Scene<'_>,
        options: &PlotOptions,
        title: &str,
    ) -> Sheet {
        Sheet::named(kind.name().to_owned(), options, title, &subtitle(scene))
    }

    /// A sheet that is not of one record: its name, which is part of the identifiers, and the line
    /// below its title.
    pub(crate) fn named(name: String, options: &PlotOptions, title: &str, subtitle: &str) -> Sheet {
        let width = f64::from(options.width.clamp(320, 4000));
        let mut sheet = Sheet {
            svg: Svg::default(),
            width,
            name,
            standalone: options.standalone,
            asked_height: options.height.map(|height| f64::from(height.clamp(160, 8000))),
            top: 6.0,
            title: title.to_owned(),
            readout: None,
        };
        if options.standalone {
            let room = (width / 8.6) as usize;
            sheet.svg.label("head", "start", 20.0, 32.0, &cut(title, room));
            let room = (width / 6.2) as usize;
            sheet.svg.label("sub", "start", 20.0, 51.0, &cut(subtitle, room));
            sheet.top = 66.0;
        }
        sheet
    }

    /// Draws the legend, in as many rows as it needs.
    pub(crate) fn legend(&mut self, keys: &[Key]) {
        let (mut x, mut y) = (20.0, self.top + 8.0);
        for key in keys {
            let label = cut(&key.label, 40);
            let width = 30.0 + label.chars().count() as f64 * CHARACTER + 18.0;
            if x + width > self.width && x > 20.0 {
                (x, y) = (20.0, y + 19.0);
            }
            let mut group = self.svg.element("g").attribute("class", "key");
            if let Some((name, value)) = key.toggles {
                group = group.attribute("data-toggles", &format!("{name}={value}"));
            }
            group.open();
            match key.sample {
                Sample::Line(_) | Sample::Marked(_) => {
                    let mut path = Path::default();
                    path.to(x, y);
                    path.to(x + 24.0, y);
                    let dash = if let Sample::Line(dash) = key.sample { dash } else { 0 };
                    self.curve(&key.ink, dash, &path);
                    if let Sample::Marked(place) = key.sample {
                        let marker = self.svg.element("path").ink(&key.ink.replace('c', "C"));
                        let at = format!("translate({} {y})", x + 12.0);
                        let shape = MARKERS[place % MARKERS.len()];
                        marker.attribute("transform", &at).attribute("d", shape).done();
                    }
                }
                Sample::Square => self.svg.rect(&key.ink, x + 6.0, y - 6.0, 12.0, 12.0),
            }
            self.svg.label("text", "start", x + 30.0, y + 4.0, &label);
            self.svg.close();
            x += width;
        }
        if !keys.is_empty() {
            self.top = y + 20.0;
        }
    }

    /// Room for `count` panels of a natural height, one below the other, each with a header; after
    /// them comes the foot. `left` is the room for the y axis.
    pub(crate) fn panels(
        &mut self,
        count: usize,
        natural: f64,
        header: f64,
        left: f64,
    ) -> Vec<Frame> {
        let count = count.max(1);
        let height = self.asked_height.map_or(natural, |asked| {
            ((asked - self.top - FOOT) / count as f64 - header).max(PANEL_MIN)
        });
        let frame = |n: usize| Frame {
            left,
            top: self.top + (height + header) * n as f64 + header,
            width: self.width - left - 20.0,
            height,
        };
        let frames: Vec<Frame> = (0..count).map(frame).collect();
        self.top += (height + header) * count as f64 + FOOT;
        frames
    }

    /// Where the next thing goes.
    pub(crate) fn top(&self) -> f64 {
        self.top
    }

    /// Takes room that the plot fills itself.
    pub(crate) fn advance(&mut self, height: f64) {
        self.top += height;
    }

    /// Draws the common x axis below all panels, with grid lines through each.
    pub(crate) fn x_axis(&mut self, frames: &[Frame], scale: &Scale, ticks: &[Tick], name: &str) {
        let Some(last) = frames.last() else { return };
        self.svg
            .element("g")
            .attribute("class", "x-axis")
            .number("data-y", last.bottom() + 17.0)
            .open();
        let mut free_from = f64::MIN;
        for tick in ticks {
            let x = scale.place(tick.value);
            let mut path = Path::default();
            for frame in frames {
                path.lift();
                path.to(x, frame.top);
                path.to(x, frame.bottom());
            }
            self.svg.path("grid", &path);
            let half = tick.label.chars().count() as f64 * 3.2;
            // A long label at the right end would leave the sheet: it ends there instead.
            let middle = x.min(last.right() + 20.0 - half);
            if middle - half > free_from {
                self.svg.label("tick", "middle", middle, last.bottom() + 17.0, &tick.label);
                free_from = middle + half + 6.0;
            }
        }
        self.svg.close();
        let middle = last.left + last.width / 2.0;
        self.svg.label("text", "middle", middle, last.bottom() + 36.0, name);
    }

    /// Draws a panel's y axis with grid lines.
    pub(crate) fn y_axis(&mut self, frame: &Frame, scale: &Scale, ticks: &[Tick]) {
        let mut grid = Path::default();
        for tick in ticks {
            let y = scale.place(tick.value);
            grid.lift();
            grid.to(frame.left, y);
            grid.to(frame.right(), y);
            if !tick.label.is_empty() {
                self.svg.label("tick", "end", frame.left - 8.0, y + 4.0, &tick.label);
            }
        }
        self.svg.path("grid", &grid);
    }

    pub(crate) fn base_line(&mut self, frame: &Frame) {
        self.svg.line("axis", frame.left, frame.bottom(), frame.right(), frame.bottom());
    }

    /// The name of the y axis, along all panels.
    pub(crate) fn y_name(&mut self, frames: &[Frame], name: &str) {
        let (Some(first), Some(last)) = (frames.first(), frames.last()) else { return };
        let middle = f64::midpoint(first.top, last.bottom()).round();
        self.svg
            .element("text")
            .ink("text")
            .attribute("text-anchor", "middle")
            .attribute("transform", &format!("translate(14 {middle}) rotate(-90)"))
            .text(name);
    }

    /// A panel's name, and a remark at its right end.
    pub(crate) fn header(&mut self, frame: &Frame, name: &str, remark: &str) {
        let y = frame.top - 10.0;
        self.svg.label("name", "start", frame.left, y, &cut(name, 60));
        self.svg.label("sub", "end", frame.right(), y, remark);
    }

    /// A marker of the shape and colour of a track, which moves when the x axis is zoomed.
    pub(crate) fn marker(&mut self, place: usize, x: f64, y: f64) {
        let marker = self.svg.element("path").ink(&format!("C{}", place % MARKERS.len()));
        marker.pinned(x, y).attribute("d", MARKERS[place % MARKERS.len()]).done();
    }

    /// Opens a group that is cut at the frame and stretched when the x axis is zoomed.
    /// Close it with [`Sheet::end_plane`].
    pub(crate) fn plane(&mut self, frame: &Frame, number: usize) {
        let id = format!("plot-{}-clip-{number}", self.name);
        self.svg.element("clipPath").attribute("id", &id).open();
        self.svg.rect("", frame.left, frame.top - 2.0, frame.width, frame.height + 3.0);
        self.svg.close();
        self.svg.element("g").attribute("clip-path", &format!("url(#{id})")).open();
        self.svg.element("g").attribute("class", "plane").open();
    }

    /// Closes what [`Sheet::plane`] opened.
    pub(crate) fn end_plane(&mut self) {
        self.svg.close();
        self.svg.close();
    }

    /// A line with the dash of a place in a palette.
    pub(crate) fn curve(&mut self, ink: &str, dash: usize, path: &Path) {
        if path.is_empty() {
            return;
        }
        let dash = DASHES[dash % DASHES.len()];
        let element = self.svg.element("path").ink(&format!("curve {ink}"));
        let element =
            if dash == "none" { element } else { element.attribute("stroke-dasharray", dash) };
        element.path(path).done();
    }

    /// Vertical lines at required limits, with what they are where `named`; limits beyond the axis
    /// are named at its end.
    pub(crate) fn vertical_limits(
        &mut self,
        frame: &Frame,
        scale: &Scale,
        limits: &[(&Limit, bool)],
    ) {
        for (n, (limit, named)) in limits.iter().take(6).enumerate() {
            let value = limit.limit_ns as f64;
            let y = frame.top + 12.0 + 14.0 * n as f64;
            if value > scale.to {
                if !named {
                    continue;
                }
                let text = format!("{} (beyond) >", limit.label);
                self.svg.label("limit-text", "end", frame.right() - 4.0, y, &text);
                continue;
            }
            let x = scale.place(value);
            self.svg.element("g").attribute("class", "pin").pinned(x, 0.0).open();
            self.svg.line("limit", 0.0, frame.top, 0.0, frame.bottom());
            let room = limit.label.chars().count() as f64 * CHARACTER + 8.0;
            let (anchor, dx) =
                if x + room < frame.right() { ("start", 5.0) } else { ("end", -5.0) };
            if *named {
                self.svg.label("limit-text", anchor, dx, y, &limit.label);
            }
            self.svg.close();
        }
    }

    /// Horizontal lines at required limits, where they lie within the axis.
    pub(crate) fn horizontal_limits(&mut self, frame: &Frame, scale: &Scale, limits: &[Limit]) {
        let mut named_y = f64::MAX;
        for limit in limits.iter().take(6) {
            let value = limit.limit_ns as f64;
            if value > scale.to || value < scale.from {
                continue;
            }
            let y = scale.place(value);
            self.svg.line("limit", frame.left, y, frame.right(), y);
            // Names that would lie on each other: the lowest is written.
            if named_y - y > 12.0 {
                self.svg.label("limit-text", "end", frame.right() - 4.0, y - 4.0, &limit.label);
                named_y = y;
            }
        }
    }

    /// A sheet that says why there is nothing to see.
    pub(crate) fn nothing(&mut self, why: &str) {
        let y = self.top;
        self.svg.rect("bar-ground", 20.0, y, self.width - 40.0, 84.0);
        self.svg.label("text", "middle", self.width / 2.0, y + 47.0, why);
        self.top += 100.0;
    }

    /// The finished SVG of a plot that has nothing to draw, with the reason.
    pub(crate) fn empty(mut self, why: &str) -> String {
        self.nothing(&format!("{why}."));
        self.finish("There is nothing to draw.")
    }

    /// Keeps what the page's script reads out.
    pub(crate) fn read_out(&mut self, readout: Readout) {
        self.readout = Some(readout);
    }

    /// The finished SVG. `description` says in words what is drawn.
    pub(crate) fn finish(self, description: &str) -> String {
        let height = self.asked_height.unwrap_or(0.0).max(self.top);
        let kind = &self.name;
        let mut svg = Svg::default();
        let (title_id, desc_id) = (format!("plot-{kind}-title"), format!("plot-{kind}-desc"));
        let mut root = svg
            .element("svg")
            .attribute("xmlns", "http://www.w3.org/2000/svg")
            .attribute("class", "plot")
            .attribute("id", &format!("plot-{kind}"))
            .attribute("viewBox", &format!("0 0 {} {}", self.width.round(), height.ceil()))
            .number("width", self.width.round())
            .number("height", height.ceil())
            .attribute("role", "img")
            .attribute("aria-labelledby", &format!("{title_id} {desc_id}"))
            .attribute("font-family", "sans-serif");
        if let Some(readout) = self.readout.as_ref().filter(|_| !self.standalone) {
            let json = serde_json::to_string(readout).expect("numbers and texts");
            root = root.attribute("data-readout", &json);
        }
        root.open();
        svg.element("title").attribute("id", &title_id).text(&self.title);
        svg.element("desc").attribute("id", &desc_id).text(description);
        if self.standalone {
            svg.raw(&format!("<style>{}</style>\n", theme::dark_rules()));
            svg.rect("paper", 0.0, 0.0, self.width.round(), height.ceil());
        }
        svg.raw(&self.svg.finish());
        svg.finish()
    }
}

/// What was measured and where: plan, host, kernel.
fn subtitle(scene: &Scene<'_>) -> String {
    let mut words = vec![format!("rtscope run {}", scene.record.plan.name)];
    if let Some(environment) = &scene.record.before {
        words.push(format!("{}, Linux {}", environment.host, environment.kernel.release));
    }
    words.join(" on ")
}
