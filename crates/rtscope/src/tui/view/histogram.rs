//! The latency histogram of the running cell: logarithmic latencies, one column each.

use ratatui::style::Style;
use rtscope_analyse::number;

use super::pen::{ALARM, DIM, Pen, Symbols, axis_label};
use crate::tui::{
    axis::{LogAxis, Places, label},
    state::Density,
};

/// What is drawn, and how.
pub(crate) struct Histogram<'a> {
    pub(crate) density: &'a Density,
    pub(crate) symbols: &'a Symbols,
    pub(crate) style: Style,
    /// Counts on a linear scale instead of a logarithmic one.
    pub(crate) linear: bool,
    /// Latencies from here on are loud.
    pub(crate) limit_ns: Option<u64>,
}

/// Room for the counts at the left.
const GUTTER: u16 = 10;

impl Histogram<'_> {
    /// One or a few lines: the range at both ends.
    pub(crate) fn draw_small(&self, pen: &mut Pen<'_>) {
        let bottom = pen.height().saturating_sub(1);
        let Some(axis) = self.density.axis() else {
            pen.text(3, bottom, "the histogram comes with the first second", DIM);
            return;
        };
        let begin = pen.text_right(11, bottom, &label(axis.from_ns), DIM).max(11) + 1;
        let remark = if pen.width() >= 60 { "log count" } else { "" };
        let width = pen.width().saturating_sub(begin + 11 + remark.len() as u16).min(60);
        let rows = pen.height();
        self.bars(&mut pen.part(begin, 0, width, rows), axis);
        let end = pen.text(begin + width + 1, bottom, &label(axis.to_ns), DIM);
        pen.text(end + 2, bottom, remark, DIM);
    }

    /// With counts at the left and latencies below.
    pub(crate) fn draw(&self, pen: &mut Pen<'_>) {
        let rows = pen.height().saturating_sub(1);
        let Some(axis) = self.density.axis() else {
            pen.text(GUTTER, rows / 2, "comes with the first slice", DIM);
            return;
        };
        let width = pen.width().saturating_sub(GUTTER + 1);
        let peak = self.bars(&mut pen.part(GUTTER, 0, width, rows), axis);
        pen.text_right(GUTTER - 1, 0, &number::grouped(peak.round() as u64), DIM);
        pen.text_right(GUTTER - 1, rows.saturating_sub(1), "0", DIM);
        if let Some(limit_ns) = self.limit_ns.filter(|ns| (axis.from_ns..axis.to_ns).contains(ns)) {
            let x = GUTTER + column_of(axis, limit_ns, width);
            (0..rows).for_each(|y| pen.mark(x, y, self.symbols.marks[0], ALARM));
        }
        let mut below = pen.part(GUTTER, rows, width, 1);
        let mut places = Places::default();
        for ns in axis.ticks() {
            axis_label(&mut below, column_of(axis, ns, width), &label(ns), &mut places);
        }
    }

    /// Bars over the whole part; returns the count of the highest.
    fn bars(&self, pen: &mut Pen<'_>, axis: LogAxis) -> f64 {
        let mut columns = vec![0.0; pen.width() as usize];
        self.density.columns(axis, &mut columns);
        let peak = columns.iter().copied().fold(0.0, f64::max);
        let first_loud = self.limit_ns.filter(|ns| *ns < axis.to_ns);
        let first_loud = first_loud.map(|ns| column_of(axis, ns, pen.width()));
        let bars = columns.iter().enumerate().map(|(x, &count)| {
            let height = match self.linear {
                true => count / peak,
                false => count.ln_1p() / peak.ln_1p(),
            };
            let is_loud = first_loud.is_some_and(|loud| x >= loud as usize);
            (if count > 0.0 { height } else { 0.0 }, if is_loud { ALARM } else { self.style })
        });
        pen.bars(&self.symbols.bars, bars);
        peak
    }
}

fn column_of(axis: LogAxis, ns: u64, width: u16) -> u16 {
    ((axis.position(ns) * f64::from(width)) as u16).min(width.saturating_sub(1))
}
