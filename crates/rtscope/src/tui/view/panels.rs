//! What is at work beside the sampling threads, and what happened.

use ratatui::style::{Color, Style};
use rtscope_analyse::number;

use super::pen::{ALARM, BOLD, CARE, DIM, Pen, columns, wrapped};
use crate::tui::{
    axis::clock,
    state::{Load, Machine, State, Tone},
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

/// The load at the left, its rate at the right; below it where there is no room beside. Returns how many rows
/// that takes.
pub(crate) fn load(pen: &mut Pen<'_>, y: u16, load: &Load) -> u16 {
    let (text, style) = rate(load);
    let (width, rows) = (pen.width(), rows_of(load, pen.width()));
    pen.paragraph(y, &load.line, Style::new());
    if y + rows <= pen.height() {
        pen.text_right(width, y + rows - 1, &text, style);
    }
    rows
}

/// How many rows a load takes in so many columns.
pub(crate) fn rows_of(load: &Load, width: u16) -> u16 {
    let lines = wrapped(&load.line, width);
    let last = lines.last().map_or(0, |line| columns(line));
    let is_beside = last + 2 + columns(&rate(load).0) <= width;
    lines.len() as u16 + u16::from(!is_beside)
}

/// Part of all CPUs' time that others may use in a phase that is called rest.
const REST_SHARE: f64 = 0.10;

/// What a phase without a load is: rest, unless others use the machine.
fn without_load(state: &State) -> (String, Style) {
    match state.machine.as_ref().and_then(|machine| machine.others) {
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
    let classes = state.machine.as_ref().and_then(class_line);
    // The line of classes only goes where a load is seen beside it.
    let classes = classes.filter(|_| last >= 2);
    let own = u16::from(state.machine.is_some()) + u16::from(classes.is_some());
    let room = last + 1 - own;
    if state.loads.is_empty() {
        let (text, style) = without_load(state);
        pen.text(0, 0, &text, style);
    }
    let mut y = 0;
    for (n, one) in state.loads.iter().enumerate() {
        let more = state.loads.len() - n - 1;
        if y + rows_of(one, pen.width()) + u16::from(more > 0) > room {
            pen.text(0, y, &format!("+ {} more", more + 1), DIM);
            break;
        }
        y += load(pen, y, one);
    }
    if let Some(line) = classes {
        pen.text(0, last - 1, &line, DIM);
    }
    if let Some(machine) = &state.machine {
        let style = if machine.stolen >= 0.01 { CARE } else { DIM };
        let end = pen.text(0, last, &format!("steal {:.1} %", machine.stolen * 100.0), style);
        let (switches, interrupts) =
            (number::per_second(machine.switches), number::per_second(machine.interrupts));
        pen.text(end, last, &format!(", {switches} switches/s, {interrupts} interrupts/s"), DIM);
    }
}

/// CPU time by class, as `mpstat` names it, and the busiest interrupt line.
fn class_line(machine: &Machine) -> Option<String> {
    let names = ["usr", "nice", "sys", "iowait", "irq", "soft", "steal", "idle"];
    let shown = names.into_iter().zip(machine.classes?).filter(|(name, share)| {
        *name != "steal" && (*share >= 0.0005 || matches!(*name, "usr" | "sys" | "idle"))
    });
    let shown: Vec<String> =
        shown.map(|(name, share)| format!("{name} {:.1}", share * 100.0)).collect();
    let busiest = machine.busiest.as_ref();
    let busiest = busiest.map(|(name, rate)| format!(", {name} {}/s", number::per_second(*rate)));
    Some(format!("CPU % {}{}", shown.join(" "), busiest.unwrap_or_default()))
}

/// The last events, the newest at the bottom.
pub(crate) fn events(pen: &mut Pen<'_>, state: &State) {
    let width = pen.width().saturating_sub(9);
    let mut room = usize::from(pen.height());
    let mut shown = Vec::new();
    for entry in state.log.entries.iter().rev() {
        let rows = wrapped(&entry.text, width);
        if rows.len() > room && !shown.is_empty() {
            break;
        }
        room = room.saturating_sub(rows.len());
        shown.push((entry, rows));
    }
    let mut y = 0;
    for (entry, rows) in shown.iter().rev() {
        pen.text_right(7, y, &clock(entry.at_ns), DIM);
        for row in rows {
            pen.text(9, y, row, tone(entry.tone));
            y += 1;
        }
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
