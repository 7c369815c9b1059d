//! What a run shows while it goes: nothing, plain lines, or one of the terminal screens.

use std::io::{self, IsTerminal};

use rtscope_analyse::statistics::claim::Claim;
use rtscope_measure::signals::Interrupt;
use rtscope_model::{
    event::{Event, Stamped},
    finding::Weight,
    plan::Plan,
    time::{Nanos, Rounding},
    verdict::Verdict,
};

use crate::output;
use crate::tui::{
    self, Screen,
    state::{State, Sum, Summary, busy_others},
};

/// How much a run shows while it goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Show {
    Quiet,
    /// An in-place block on a terminal, plain lines elsewhere.
    Usual,
    /// Plain lines everywhere, with the place of each thread and every finding.
    Verbose,
    /// The full screen.
    Live,
}

/// The screen for a run. Screens go to standard error, so that standard output stays clean.
pub(crate) fn open(
    show: Show,
    plan: &Plan,
    interrupt: &Interrupt,
) -> anyhow::Result<Box<dyn Screen>> {
    let terminal = io::stderr().is_terminal();
    match show {
        Show::Quiet => Ok(Box::new(Silence)),
        Show::Live if !terminal => {
            anyhow::bail!("--live needs a terminal: leave it out, or don't redirect standard error")
        }
        Show::Live => {
            let interrupt = interrupt.clone();
            Ok(Box::new(tui::live(plan, move || interrupt.stop())?))
        }
        // A terminal that can't be drawn on (TERM=dumb) still takes lines.
        Show::Usual if output::can_redraw(&io::stderr()) => match tui::inline(plan) {
            Ok(screen) => Ok(Box::new(screen)),
            Err(_) => Ok(Box::new(Lines::new(plan, false))),
        },
        Show::Usual => Ok(Box::new(Lines::new(plan, false))),
        Show::Verbose => Ok(Box::new(Lines::new(plan, true))),
    }
}

/// Shows nothing.
struct Silence;

impl Screen for Silence {
    fn event(&mut self, _: &Stamped) {}

    fn claim(&mut self, _: &Claim) {}
}

/// A line when a phase starts and one when it has ended, for pipes and logs. The second is made from
/// the phase's slices, as the table is: live figures are only a look at a moment.
struct Lines {
    state: State,
    /// Lines that wait for the one of the phase before, whose last slices are on their way.
    held: Vec<String>,
    /// Wall time of a claim from which its next line is due.
    claim_due_ns: u64,
    verbose: bool,
}

/// Wall time between two lines about a claim.
const CLAIM_LINES_NS: u64 = 60_000_000_000;

impl Lines {
    fn new(plan: &Plan, verbose: bool) -> Lines {
        Lines { state: State::new(plan), held: Vec::new(), claim_due_ns: 0, verbose }
    }

    /// The lines that can be printed after this event.
    fn lines(&mut self, stamped: &Stamped) -> Vec<String> {
        self.state.apply(stamped);
        let mut lines = Vec::new();
        // Slices come in a batch, before the event of a look: only then are all of them in.
        if matches!(
            stamped.event,
            Event::Progress(_)
                | Event::PhaseEnded { .. }
                | Event::SessionStarted { .. }
                | Event::RunEnded { .. }
        ) {
            while let Some(summary) = self.state.take_summary() {
                lines.extend(figures(&summary));
                lines.append(&mut self.held);
            }
        }
        self.held.extend(self.text(&stamped.event));
        if !self.state.is_closing() {
            lines.append(&mut self.held);
        }
        lines
    }

    /// The line about a claim, when one is due or it is decided.
    fn claim_line(&mut self, claim: &Claim) -> Option<String> {
        let is_open = claim.verdict == Verdict::Inconclusive;
        let is_due = claim.wall_ns >= self.claim_due_ns;
        if self.claim_due_ns == u64::MAX || is_open && !is_due {
            return None;
        }
        // Nothing more is said of a claim that is decided.
        self.claim_due_ns = if is_open { claim.wall_ns + CLAIM_LINES_NS } else { u64::MAX };
        Some(format!("      {}", claim.progress()))
    }

    fn text(&self, event: &Event) -> Option<String> {
        match event {
            Event::PhaseStarted { cell, name } => {
                let (cells, nth) = (&self.state.cells, *cell as usize);
                let expected = cells.get(nth)?.expected;
                Some(format!("[{}/{}] {name}: {expected}", nth + 1, cells.len()))
            }
            // Dozens of files, and then one event for all threads that were moved.
            Event::SettingChanged { setting, path, .. }
                if setting == "shield" && path.starts_with('/') && !self.verbose =>
            {
                None
            }
            Event::SettingChanged { setting, path, from, to } if !path.starts_with('/') => {
                Some(format!("setting {setting}: {path}: {from} -> {to}, until the run ends"))
            }
            Event::SettingChanged { setting, from, to, .. } => {
                Some(format!("setting {setting}: {from} -> {to}, until the run ends"))
            }
            Event::ThreadPlaced { thread, tid, interval_ns, asked, found, .. } if self.verbose => {
                let interval = Nanos(*interval_ns);
                let but = match asked == found {
                    true => String::new(),
                    false => format!(", but {asked} was requested"),
                };
                Some(format!("thread {thread} (TID {tid}): every {interval}, {found}{but}"))
            }
            Event::SettingRestored { setting, to, .. } if self.verbose => {
                Some(format!("setting {setting}: restored to {to}"))
            }
            Event::Found(finding) if self.verbose || finding.weight >= Weight::Warning => {
                Some(format!("note: {}", finding.text))
            }
            Event::OtherWork(work) => busy_others(work).map(|text| format!("note: {text}")),
            _ => None,
        }
    }
}

/// The figures of a phase; none when nothing was measured.
fn figures(summary: &Summary) -> Option<String> {
    let told = |sum: &&Sum| sum.recorded > 0 || sum.open_ns > 0;
    let sums = || summary.lanes.iter().map(|(_, sum)| sum).filter(told);
    let worst = sums().max_by_key(|sum| sum.worst_ns())?;
    let (least, max) = match worst.is_at_least() {
        true => ("at least ", Nanos(worst.worst_ns()).rounded(Rounding::Down).to_string()),
        false => ("", Nanos(worst.worst_ns()).to_string()),
    };
    let missed: u64 = sums().map(|sum| sum.missed).sum();
    let mut text = format!("      max {least}{max}, missed {missed}");
    let labels = |is_one: fn(&Sum) -> bool| {
        let lanes = summary.lanes.iter().filter(|(_, sum)| is_one(sum));
        lanes.map(|(label, _)| label.as_str()).collect::<Vec<_>>().join(", ")
    };
    for (what, lanes) in [
        ("a wake-up unanswered on", labels(|sum| sum.awaits)),
        ("nothing heard from", labels(|sum| sum.is_unheard)),
    ] {
        if !lanes.is_empty() {
            text += &format!(", {what} {lanes}");
        }
    }
    Some(text)
}

impl Screen for Lines {
    fn event(&mut self, stamped: &Stamped) {
        for text in self.lines(stamped) {
            // A closed pipe must not end a measurement.
            note!("{text}");
        }
    }

    fn claim(&mut self, claim: &Claim) {
        if let Some(text) = self.claim_line(claim) {
            note!("{text}");
        }
    }
}

#[cfg(test)]
mod tests {
    use rtscope_model::{
        event::{Bounds, EndReason},
        finding::Finding,
        histogram::Layout,
        slice::{Scope, Slice},
    };

    use super::*;
    use crate::tui::script::{Script, plan, session_started, slice, thread_placed};

    #[test]
    fn a_claim_has_a_line_a_minute_and_one_when_it_is_decided() {
        use rtscope_analyse::statistics::claim::ClaimWatch;
        let mut lines = Lines::new(&plan(), false);
        let (limit, once_in) = (Nanos::from_us(200), Nanos::from_secs(60));
        let mut watch = ClaimWatch::new(limit, once_in, Layout::default(), [0]);
        let said = (0..223u64).filter_map(|second| {
            let mut seen = slice(0, 0, Layout::default(), &[4_000]);
            (seen.start_ns, seen.end_ns) = (second * 1_000_000_000, (second + 1) * 1_000_000_000);
            watch.add(&seen);
            lines.claim_line(&watch.claim())
        });
        let said: Vec<String> = said.collect();
        assert_eq!(said.len(), 5, "{said:?}");
        assert!(said[1].contains("28 % of the time needed, no exceedance; about 2 min 40 s more"));
        assert_eq!(said[4].trim(), "backed: no exceedance");
    }

    #[test]
    fn verbose_lines_tell_where_each_thread_is_and_every_finding() {
        let note = Finding::new("some", Weight::Note, "worth knowing");
        let events = [session_started(0, 1), thread_placed(0, 3), Event::Found(note)];
        let said = |verbose| {
            let mut lines = Lines::new(&plan(), verbose);
            let stamped = events.iter().map(|event| Stamped { at_ns: 0, event: event.clone() });
            stamped.flat_map(|event| lines.lines(&event)).collect::<Vec<String>>().join("\n")
        };
        let told = said(true);
        assert!(told.contains("thread 0 (TID 1000): every 1 ms, "), "{told}");
        assert!(told.contains("on CPU 3") && told.contains("note: worth knowing"), "{told}");
        assert_eq!(said(false), "");
    }

    /// The lines of events, each with its time in ms.
    fn said(events: Vec<(u64, Event)>) -> Vec<String> {
        let mut lines = Lines::new(&plan(), false);
        let stamped =
            events.into_iter().map(|(ms, event)| Stamped { at_ns: ms * 1_000_000, event });
        stamped.flat_map(|event| lines.lines(&event)).collect()
    }

    #[test]
    fn the_line_of_a_phase_knows_of_a_wake_up_that_is_still_open() {
        let mut events = Vec::new();
        let mut at = |ms: u64, event| events.push((ms, event));
        at(0, session_started(0, 2));
        at(0, thread_placed(0, 0));
        at(0, thread_placed(1, 1));
        at(0, Event::PhaseStarted { cell: 0, name: "rest".to_owned() });
        let seen = |thread, end_ms: u64| {
            let slice = slice(thread, 0, Layout::default(), &[4_000]);
            Event::Slice(Slice { end_ns: end_ms * 1_000_000, ..slice })
        };
        at(2_000, seen(1, 2_000));
        // Thread 1 has answered since its slice.
        at(2_100, Script::live(Some(0), 2, 3_000, 2_100 * 1_000_000));
        at(5_000, seen(0, 5_000));
        let bounds = Some(Bounds { from_ns: 0, to_ns: 5_000_000_000 });
        at(5_010, Event::PhaseEnded { cell: 0, why: EndReason::Duration, bounds });
        at(5_200, Script::live(None, 2, 3_000, 5_200 * 1_000_000));
        let expected = "      max at least 3.09 s, missed 0, a wake-up unanswered on CPU 1";
        assert_eq!(said(events), ["[1/3] rest: 5 s", expected]);
    }

    /// Its first expiry may be yet to come.
    #[test]
    fn a_thread_that_gave_no_sign_in_a_phase_is_named() {
        let mut events = Vec::new();
        let mut at = |ms: u64, event| events.push((ms, event));
        at(0, session_started(0, 2));
        at(0, thread_placed(0, 0));
        at(0, thread_placed(1, 1));
        at(0, Event::PhaseStarted { cell: 0, name: "rest".to_owned() });
        let end_ns = 5_000_000_000;
        at(5_000, Event::Slice(Slice { end_ns, ..slice(0, 0, Layout::default(), &[4_000]) }));
        let bounds = Some(Bounds { from_ns: 0, to_ns: end_ns });
        at(5_010, Event::PhaseEnded { cell: 0, why: EndReason::Duration, bounds });
        at(5_200, Script::live(None, 2, 3_000, 5_200 * 1_000_000));
        let expected = "      max 4 us, missed 0, nothing heard from CPU 1";
        assert_eq!(said(events), ["[1/3] rest: 5 s", expected]);
    }

    #[test]
    fn a_thread_that_was_late_at_the_start_of_a_phase_is_not_said_to_wait() {
        let mut events = Vec::new();
        let mut at = |ms: u64, event| events.push((ms, event));
        at(0, session_started(0, 1));
        at(0, thread_placed(0, 0));
        at(0, Event::PhaseStarted { cell: 0, name: "rest".to_owned() });
        let (place, end_ns) = ((0, Scope::Cell(0)), 5_000_000_000);
        let waits = [9_000_000, 8_000_000].into_iter();
        let span_ns = (0, 2_000_000);
        at(2, Event::Slice(Slice::unanswered(place, Layout::default(), span_ns, 2, waits)));
        at(5_000, Event::Slice(Slice { end_ns, ..slice(0, 0, Layout::default(), &[4_000]) }));
        let bounds = Some(Bounds { from_ns: 0, to_ns: end_ns });
        at(5_010, Event::PhaseEnded { cell: 0, why: EndReason::Duration, bounds });
        at(5_200, Script::live(None, 1, 3_000, 5_200 * 1_000_000));
        assert_eq!(said(events), ["[1/3] rest: 5 s", "      max at least 9 ms, missed 2"]);
    }

    #[test]
    fn the_line_of_a_phase_is_made_from_its_own_slices() {
        let mut events = Vec::new();
        let mut at = |ms: u64, event| events.push((ms, event));
        let seen = |cell, ns: &[u64]| Event::Slice(slice(0, cell, Layout::default(), ns));
        let begins = |cell: u32, name: &str| Event::PhaseStarted { cell, name: name.to_owned() };
        let ends = |cell, why| Event::PhaseEnded { cell, why, bounds: None };
        at(0, session_started(0, 1));
        at(0, thread_placed(0, 0));
        at(0, begins(0, "rest"));
        at(1_000, seen(0, &[4_000, 79_000]));
        // What is shown live has begun anew: the cell was full.
        at(1_010, Script::live(Some(0), 1, 3_000, 1_010 * 1_000_000));
        at(1_020, ends(0, EndReason::Cycles));
        at(1_021, begins(1, "message load"));
        // The last slice, with the largest, comes when the next phase runs.
        at(1_140, seen(0, &[81_000]));
        at(1_140, Script::live(Some(1), 1, 5_000, 1_140 * 1_000_000));
        // This one fails before anything is measured.
        at(1_150, ends(1, EndReason::Failed));
        at(1_151, begins(2, "rest again"));
        at(5_000, ends(2, EndReason::Duration));
        at(5_010, seen(2, &[7_000]));
        at(5_020, Event::run_ended(EndReason::Finished));
        assert_eq!(
            said(events),
            [
                "[1/3] rest: 5 s",
                "      max 81 us, missed 0",
                "[2/3] message load: 10 s",
                "[3/3] rest again: 5 s",
                "      max 7 us, missed 0",
            ]
        );
    }
}
