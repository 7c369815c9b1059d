//! What is at work beside the sampling threads, and what happened.

use ratatui::style::{Color, Style};
use rtscope_analyse::number;

use super::pen::{ALARM, BOLD, CARE, DIM, Pen};
use crate::tui::{
    axis::clock,
    state::{Load, State, Tone},
};

/// A load's rate as people say it: `123,456 messages/s`, `81.2 MB/s`; or that it ended.
fn rate(load: &Load) -> (String, Style) {
    match (load.ended, load.rate) {
        (Some(false), _) => ("failed".to_owned(), ALARM),
        (Some(true), _) => ("ended".to_owned(), DIM),
        (None, None) => ("started".to_owned(), DIM),
        (None, Some(rate)) if load.unit == "bytes" => {
            (format!("{} MB/s", number::per_second(rate / 1e6)), BOLD)
        }
        (None, Some(rate)) => (format!("{} {}/s", number::per_second(rate), load.unit), BOLD),
    }
}

/// One line: the load at the left, its rate at the right.
pub(crate) fn load(pen: &mut Pen<'_>, y: u16, load: &Load) {
    let (text, style) = rate(load);
    let width = pen.width();
    let begin = pen.text_right(width, y, &text, style);
    pen.part(0, y, begin.saturating_sub(2), 1).text(0, 0, &load.line, Style::new());
}

/// Part of all CPUs' time that others may use in a phase that is called rest.
const REST_SHARE: f64 = 0.10;

/// What a phase without a load is: rest, unless others use the machine.
fn without_load(state: &State) -> (String, Style) {
    match state.machine.and_then(|machine| machine.others) {
        Some(share) if share > REST_SHARE => {
            (format!("none, but others use {:.0} % of the CPUs", share * 100.0), CARE)
        }
        Some(_) => ("none: the machine is at rest".to_owned(), DIM),
        None => ("none".to_owned(), DIM),
    }
}

/// All loads with their rates, and the machine's own counters.
pub(crate) fn loads(pen: &mut Pen<'_>, state: &State) {
    let last = pen.height().saturating_sub(1);
    let room = if state.machine.is_some() { last } else { last + 1 };
    if state.loads.is_empty() {
        let (text, style) = without_load(state);
        pen.text(0, 0, &text, style);
    }
    let hidden = state.loads.len().saturating_sub(room as usize);
    let shown = state.loads.len().saturating_sub(if hidden > 0 { hidden + 1 } else { 0 });
    state.loads.iter().take(shown).enumerate().for_each(|(y, one)| load(pen, y as u16, one));
    if hidden > 0 {
        pen.text(0, shown as u16, &format!("+ {} more", state.loads.len() - shown), DIM);
    }
    if let Some(machine) = state.machine {
        let style = if machine.stolen >= 0.01 { CARE } else { DIM };
        let end = pen.text(0, last, &format!("steal {:.1} %", machine.stolen * 100.0), style);
        let (switches, interrupts) =
            (number::per_second(machine.switches), number::per_second(machine.interrupts));
        pen.text(end, last, &format!(", {switches} switches/s, {interrupts} interrupts/s"), DIM);
    }
}

/// The last events, the newest at the bottom.
pub(crate) fn events(pen: &mut Pen<'_>, state: &State) {
    let entries = &state.log.entries;
    let first = entries.len().saturating_sub(pen.height() as usize);
    for (y, entry) in entries.iter().skip(first).enumerate() {
        pen.text_right(7, y as u16, &clock(entry.at_ns), DIM);
        pen.text(9, y as u16, &entry.text, tone(entry.tone));
    }
}

/// How loud an entry is drawn.
pub(crate) fn tone(tone: Tone) -> Style {
    match tone {
        Tone::Plain => Style::new(),
        Tone::Note => Style::new().fg(Color::Cyan),
        Tone::Warning => CARE,
        Tone::Bad => ALARM,
    }
}
