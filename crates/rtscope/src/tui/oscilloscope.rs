//! The scope as an oscilloscope in the terminal: a waveform with trigger, time base, freeze and persistence,
//! and the figures of the last look below it.
//!
//! Each frame is one look at the line. The drawing knows the capture and nothing else: a column in which the
//! scope was blind is shaded, whatever the wave may have done there.

use std::io;

use ratatui::{
    Frame,
    buffer::Buffer,
    crossterm::event::{Event, KeyCode, KeyEventKind, KeyModifiers},
    layout::{Position, Rect},
    style::{Color, Modifier, Style},
};
use rtscope_analyse::statistics::wave::Wave;
use rtscope_model::{time::Nanos, wave::Capture};

use super::full_screen::{FullScreen, KEYS};

/// Divisions of the time axis.
const DIVISIONS: u64 = 10;

/// Traces that stay with persistence.
const TRACES: usize = 12;

/// Rows of the waveform.
const ROWS: u16 = 8;

/// The longest time of a division: the screen waits for two of its own lengths before it shows a trace.
pub(crate) const BASE_NS_MAX: u64 = 100_000_000;

/// Steps of the time base: 1, 2, 5, from 200 ns to [`BASE_NS_MAX`].
fn steps() -> Vec<u64> {
    let powers = (2..=8).flat_map(|power| [1, 2, 5].map(|step| step * 10_u64.pow(power)));
    powers.filter(|ns| (200..=BASE_NS_MAX).contains(ns)).collect()
}

/// Where a trace begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Trigger {
    Rising,
    Falling,
    Free,
}

/// What is seen in a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ColumnState {
    Low,
    High,
    /// An edge, or several.
    Edge,
    Blind,
    /// Before the first edge nothing is known of a line that had none.
    Nothing,
}

/// What is drawn, and how it was asked for.
#[derive(Clone, Debug)]
pub(crate) struct Scene {
    /// Nanoseconds of a division.
    base_ns: u64,
    /// Whether the base is still to be chosen, from the first wave seen.
    is_automatic: bool,
    trigger: Trigger,
    is_frozen: bool,
    persists: bool,
    /// The newest last: cells over the width that they were made for.
    traces: Vec<Vec<ColumnState>>,
    numbers: Vec<(&'static str, String)>,
    title: String,
    is_over: bool,
}

impl Scene {
    pub(crate) fn new(line: &str, base_ns: Option<u64>) -> Scene {
        Scene {
            base_ns: base_ns.unwrap_or(1_000_000).max(1),
            is_automatic: base_ns.is_none(),
            trigger: Trigger::Rising,
            is_frozen: false,
            persists: false,
            traces: Vec::new(),
            numbers: Vec::new(),
            title: line.to_owned(),
            is_over: false,
        }
    }

    /// How long to look for the next trace: two screens, so that a trigger is in it.
    pub(crate) fn look_ns(&self) -> u64 {
        (self.base_ns * DIVISIONS * 2).max(50_000_000)
    }

    /// Takes in a look.
    fn take(&mut self, capture: &Capture, wave: &Wave, width: u16) {
        if self.is_frozen {
            return;
        }
        if let (true, Some(period)) = (self.is_automatic, &wave.period) {
            // Three to eight periods on the screen.
            let wanted_ns = period.ns_median / 2;
            self.base_ns = steps().into_iter().find(|ns| *ns >= wanted_ns).unwrap_or(BASE_NS_MAX);
            self.is_automatic = false;
        }
        self.numbers = numbers(wave);
        let keep = if self.persists { TRACES } else { 1 };
        self.traces.push(cells(capture, self.trigger, self.base_ns * DIVISIONS, width));
        let old = self.traces.len().saturating_sub(keep);
        self.traces.drain(..old);
    }

    /// Does what a key asks for.
    fn key(&mut self, event: &Event) {
        let Event::Key(key) = event else { return };
        if key.kind == KeyEventKind::Release {
            return;
        }
        let ends = key.modifiers.contains(KeyModifiers::CONTROL) && key.code == KeyCode::Char('c');
        match key.code {
            KeyCode::Char('q' | 'Q') => self.is_over = true,
            _ if ends => self.is_over = true,
            KeyCode::Left | KeyCode::Char('+') => self.step(false),
            KeyCode::Right | KeyCode::Char('-') => self.step(true),
            KeyCode::Char('f' | 'F' | ' ') => self.is_frozen = !self.is_frozen,
            KeyCode::Char('p' | 'P') => self.persists = !self.persists,
            KeyCode::Char('t' | 'T') => {
                self.trigger = match self.trigger {
                    Trigger::Rising => Trigger::Falling,
                    Trigger::Falling => Trigger::Free,
                    Trigger::Free => Trigger::Rising,
                };
                self.traces.clear();
            }
            _ => {}
        }
    }

    fn step(&mut self, longer: bool) {
        let steps = steps();
        let place = steps.partition_point(|ns| *ns < self.base_ns);
        let place = if longer { place + 1 } else { place.saturating_sub(1) };
        self.base_ns = steps[place.min(steps.len() - 1)];
        self.is_automatic = false;
        // Traces of another base would lie about their time.
        self.traces.clear();
    }

    fn draw(&self, frame: &mut Frame<'_>) {
        let (area, buffer) = (frame.area(), frame.buffer_mut());
        let bold = Style::new().add_modifier(Modifier::BOLD);
        let trigger = match self.trigger {
            Trigger::Rising => "rising edge",
            Trigger::Falling => "falling edge",
            Trigger::Free => "free",
        };
        let mut state = format!("{}/div   trigger: {trigger}", Nanos(self.base_ns));
        if self.persists {
            state += "   persistence";
        }
        if self.is_frozen {
            state += "   FROZEN";
        }
        put(buffer, area, 0, &self.title, bold);
        put(buffer, area, 1, &state, Style::new());
        self.waveform(buffer, area, 3);
        let scale = format!(
            "0{:>width$}",
            Nanos(self.base_ns * DIVISIONS).to_string(),
            width = usize::from(area.width.max(12)) - 1
        );
        put(buffer, area, 3 + ROWS, &scale, Style::new().fg(Color::DarkGray));
        for (row, (name, value)) in (5 + ROWS..).zip(&self.numbers) {
            put(buffer, area, row, &format!("{name:<14}{value}"), Style::new());
        }
        let keys = "q end   left/right time base   t trigger   f freeze   p persistence";
        put(buffer, area, area.height.saturating_sub(1), keys, Style::new().fg(Color::DarkGray));
    }

    /// Older traces first, dim; the newest on top.
    fn waveform(&self, buffer: &mut Buffer, area: Rect, top: u16) {
        for (age, trace) in self.traces.iter().rev().enumerate().rev() {
            let style = match age {
                0 => Style::new().fg(Color::Green),
                _ => Style::new().fg(Color::DarkGray),
            };
            for (column, cell) in trace.iter().enumerate().take(usize::from(area.width)) {
                for row in 0..ROWS {
                    let symbol = match cell {
                        ColumnState::High if row == 0 => "─",
                        ColumnState::Low if row == ROWS - 1 => "─",
                        ColumnState::Edge => "│",
                        ColumnState::Blind => "░",
                        _ => continue,
                    };
                    let at = Position::new(area.x + column as u16, area.y + top + row);
                    if let Some(place) = buffer.cell_mut(at) {
                        place.set_symbol(symbol).set_style(style);
                    }
                }
            }
        }
    }
}

fn put(buffer: &mut Buffer, area: Rect, row: u16, text: &str, style: Style) {
    if row < area.height {
        buffer.set_stringn(area.x, area.y + row, text, usize::from(area.width), style);
    }
}

/// What the figures below the waveform say.
fn numbers(wave: &Wave) -> Vec<(&'static str, String)> {
    let mut rows = Vec::new();
    let refused = || format!("refused: {}", wave.refused.as_deref().unwrap_or("unknown"));
    let frequency = wave.frequency_hz.map(|hz| {
        let ppm = wave.uncertainty_ppm.unwrap_or_default();
        format!("{hz:.4} Hz +- {ppm:.1} ppm")
    });
    rows.push(("frequency", frequency.unwrap_or_else(refused)));
    if let Some(duty) = wave.duty {
        rows.push(("duty cycle", format!("{:.2} %", duty * 100.0)));
    }
    if let Some(period) = &wave.period {
        let (min, max) = (Nanos(period.ns_min), Nanos(period.ns_max));
        let jitter = Nanos(period.jitter_ns_rms.round() as u64);
        rows.push(("period", format!("{min} to {max}, jitter {jitter} rms")));
    }
    let lost = wave.lost.map_or_else(String::new, |lost| format!(", {lost} lost"));
    rows.push(("edges", format!("{} seen{lost}, {} glitches", wave.edges, wave.glitches)));
    let (share, resolution) = (wave.blind_share * 100.0, Nanos(wave.resolution_ns));
    rows.push(("scope", format!("{resolution} resolution, blind {share:.2} % of the look")));
    rows
}

/// The columns of a trace that begins at the trigger, one division from the left.
fn cells(capture: &Capture, trigger: Trigger, span_ns: u64, width: u16) -> Vec<ColumnState> {
    let width = u64::from(width.max(1));
    let before_ns = span_ns / DIVISIONS;
    let earliest_ns = capture.start_ns + before_ns;
    let wanted = |rises: bool| match trigger {
        Trigger::Rising => rises,
        Trigger::Falling => !rises,
        Trigger::Free => false,
    };
    let triggered = capture.edges.iter().find(|e| e.at_ns() >= earliest_ns && wanted(e.rises()));
    let from_ns = triggered.map_or(capture.start_ns, |edge| edge.at_ns() - before_ns);
    let mut next = capture.edges.partition_point(|edge| edge.at_ns() < from_ns);
    let mut level =
        match (next.checked_sub(1).map(|last| &capture.edges[last]), capture.edges.get(next)) {
            (Some(before), _) => Some(before.rises()),
            (None, Some(after)) => Some(!after.rises()),
            (None, None) => None,
        };
    let column = |n: u64| {
        let (start_ns, end_ns) =
            (from_ns + n * span_ns / width, from_ns + (n + 1) * span_ns / width);
        let mut edges = 0;
        while let Some(edge) = capture.edges.get(next).filter(|edge| edge.at_ns() < end_ns) {
            level = Some(edge.rises());
            next += 1;
            edges += 1;
        }
        let gap = capture.gaps.partition_point(|gap| gap.end_ns <= start_ns);
        // Only a gap that takes the better part of the column: short ones are all over it.
        let blind_ns = capture
            .gaps
            .get(gap)
            .map_or(0, |gap| gap.end_ns.min(end_ns).saturating_sub(gap.start_ns.max(start_ns)));
        match level {
            _ if blind_ns * 2 > end_ns - start_ns => ColumnState::Blind,
            _ if start_ns >= capture.end_ns => ColumnState::Nothing,
            _ if edges > 0 => ColumnState::Edge,
            Some(true) => ColumnState::High,
            Some(false) => ColumnState::Low,
            None => ColumnState::Nothing,
        }
    };
    (0..width).map(column).collect()
}

/// The screen. It closes on drop.
pub(crate) struct Oscilloscope {
    screen: FullScreen,
    scene: Scene,
}

impl Oscilloscope {
    /// Takes the whole terminal, at standard error.
    ///
    /// # Errors
    ///
    /// When standard error is no terminal, or no key can be read: the terminal is left as it was.
    pub(crate) fn open(scene: Scene) -> io::Result<Oscilloscope> {
        Ok(Oscilloscope { screen: FullScreen::open()?, scene })
    }

    /// Length of the interval for shares and wake-ups next.
    pub(crate) fn look_ns(&self) -> u64 {
        self.scene.look_ns()
    }

    /// Shows a look and takes the keys. False when the user has enough.
    pub(crate) fn show(&mut self, capture: &Capture, wave: &Wave) -> io::Result<bool> {
        for _ in 0..KEYS {
            let Some(event) = self.screen.key()? else { break };
            self.scene.key(&event);
        }
        let area = self.screen.fit()?;
        self.scene.take(capture, wave, area.width);
        self.screen.draw(|frame| self.scene.draw(frame))?;
        Ok(!self.scene.is_over)
    }
}

#[cfg(test)]
#[path = "oscilloscope_tests.rs"]
mod tests;
