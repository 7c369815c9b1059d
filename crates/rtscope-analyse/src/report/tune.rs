//! What `rtscope tune suggest` shows on a terminal.

use std::fmt::Write;

use rtscope_model::{
    doctor::{Suggestion, SuggestionDocument},
    time::Nanos,
};

/// The settings in order, each with what it costs and how sure it is; last the command for all of them.
#[must_use]
pub fn text(document: &SuggestionDocument) -> String {
    let mut text = format!(
        "for {}, deadline {}, real-time threads on {}\n",
        document.purpose,
        Nanos(document.deadline_ns),
        document.cpus.named()
    );
    let (by_rtscope, by_hand): (Vec<&Suggestion>, Vec<&Suggestion>) =
        document.suggestions.iter().partition(|one| one.by_hand.is_none());
    if by_rtscope.is_empty() {
        text += "\nNo setting that rtscope can change is suggested.\n";
    }
    for (number, one) in (1..).zip(&by_rtscope) {
        let _ = write!(text, "\n{number}. {}", head(one));
        let _ = writeln!(text, "   {}", one.command.as_deref().unwrap_or_default());
        for line in one.boot_line.iter().filter(|_| !one.settings.is_empty()) {
            let _ = writeln!(text, "   or from the next boot on, {line}");
        }
        for line in one.boot_line.iter().filter(|_| one.settings.is_empty()) {
            let _ = writeln!(text, "   by hand: {line}");
        }
        let _ = writeln!(text, "   costs: {}", one.cost);
    }
    if !by_hand.is_empty() {
        text += "\nrtscope has no setting for these:\n";
    }
    for one in &by_hand {
        let _ = write!(text, "- {}", head(one));
        let _ = writeln!(text, "  {}", one.by_hand.as_deref().unwrap_or_default());
    }
    if let Some(command) = &document.command {
        text += &match document.root {
            None => format!(
                "\nAll of medium or high severity that can be changed now, until `rtscope tune restore` or the next boot:\n  {command}\n\
                 First look at what it would change: add --dry-run. Measure before and after.\n"
            ),
            Some(_) => format!(
                "\nAll of medium or high severity that can be changed at each boot of that system:\n  {command}\n\
                 Measure before and after.\n"
            ),
        };
    }
    if let Some(command) = &document.boot_command {
        let _ = write!(text, "From the next boot on:\n  {command}\n");
    }
    text
}

fn head(one: &Suggestion) -> String {
    let delay = one.delay_ns.map_or(String::new(), |ns| format!(", may add {}", Nanos(ns)));
    format!("{} ({}{delay}, {})\n", one.text, one.severity.word(), one.sureness.word())
}
