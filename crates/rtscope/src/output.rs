//! The one way to standard output and standard error for text that isn't a screen.
//!
//! Names of threads, hosts, plans and files come from others. What a terminal would obey in them is
//! shown instead of sent (see `rtscope_model::printable`). A message on standard error is one line;
//! standard output takes lines, tabs and, where the terminal wants them, our own attributes.

use std::{
    ffi::OsStr,
    io::{self, IsTerminal, Write},
    os::fd::AsFd,
    path::Path,
    sync::OnceLock,
};

use clap::ColorChoice;
use rtscope_analyse::report::terminal::Style;
use rtscope_model::printable::{guarded, printable};
use rustix::termios::tcgetwinsize;

/// Writes a line to standard error, formatted as by `format!`.
macro_rules! note {
    ($($arg:tt)*) => { $crate::output::note(&format!($($arg)*)) };
}

/// Writes text to standard output. A reader that has gone away is no error.
pub(crate) fn print(text: &str) -> anyhow::Result<()> {
    print_bytes(guarded(text, has_attributes(&io::stdout())).as_bytes())
}

/// Writes text for people to standard output, no line wider than its terminal.
pub(crate) fn print_folded(text: &str) -> anyhow::Result<()> {
    print(&folded(text, &io::stdout()))
}

/// A text as a stream shows it: folded on a terminal, as it is anywhere else.
fn folded(text: &str, stream: &(impl IsTerminal + AsFd)) -> String {
    let fold = |width| Style { width, colour: false }.fold(text);
    columns(stream).map_or_else(|| text.to_owned(), fold)
}

pub(crate) fn columns(stream: &(impl IsTerminal + AsFd)) -> Option<usize> {
    let found = || tcgetwinsize(stream).map_or(0, |size| size.ws_col);
    stream.is_terminal().then(|| usable_columns(found()))
}

/// A serial line knows no size, and reports 0.
fn usable_columns(found: u16) -> usize {
    if found == 0 { 80 } else { usize::from(found) }
}

/// Width for output to a file or a pipe, from `COLUMNS`, as in `ls`.
fn asked_columns() -> Option<usize> {
    std::env::var("COLUMNS").ok()?.parse().ok().filter(|&columns| columns > 0)
}

/// Writes a document as it is to standard output.
pub(crate) fn print_bytes(bytes: &[u8]) -> anyhow::Result<()> {
    match io::stdout().write_all(bytes).and_then(|()| io::stdout().flush()) {
        Err(e) if e.kind() != io::ErrorKind::BrokenPipe => {
            Err(anyhow::Error::new(e).context("can't write to standard output"))
        }
        _ => Ok(()),
    }
}

/// How standard output shows text.
pub(crate) fn style() -> Style {
    let colour = has_attributes(&io::stdout());
    let width = columns(&io::stdout()).or_else(asked_columns);
    Style { width: width.unwrap_or(100), colour }
}

/// Writes one line to standard error. Nobody to read it is no error, here and below.
pub(crate) fn note(line: &str) {
    let _ = writeln!(io::stderr(), "{}", folded(&printable(line), &io::stderr()));
}

/// Writes several lines to standard error. Their names must be printable already.
pub(crate) fn note_lines(text: &str) {
    let _ = writeln!(io::stderr(), "{}", folded(&guarded(text, false), &io::stderr()));
}

/// Writes an error's lines to standard error. Their names must be printable already.
pub(crate) fn note_error(text: &str) {
    let text = folded(&format!("{ERROR} {}", guarded(text, false)), &io::stderr());
    let _ = writeln!(io::stderr(), "{}", marked(&text, has_attributes(&io::stderr())));
}

/// What every error begins with.
const ERROR: &str = "rtscope:";

/// An error's text whose beginning stands out, where attributes are wanted.
fn marked(text: &str, has_attributes: bool) -> String {
    match text.strip_prefix(ERROR) {
        Some(rest) if has_attributes => format!("\x1b[1;31m{ERROR}\x1b[0m{rest}"),
        _ => text.to_owned(),
    }
}

/// Writes what is wrong with the command line: as every other error, with clap's hints behind it.
pub(crate) fn note_usage(error: &clap::Error) {
    let has_attributes = has_attributes(&io::stderr());
    let text = error.render();
    let text = if has_attributes { text.ansi().to_string() } else { text.to_string() };
    // What the standard library says of a number that is none.
    let text = text.replace("invalid digit found in string", "write a whole number");
    let text = folded(&text.replacen("error:", ERROR, 1), &io::stderr());
    let _ = write!(io::stderr(), "{text}");
}

/// Writes a line of progress to standard error, over the one before; see [`can_redraw`].
pub(crate) fn progress(line: &str) {
    let _ = write!(io::stderr(), "\r\x1b[K{}", printable(line));
    let _ = io::stderr().flush();
}

/// A path in one line, whatever is in its name.
pub(crate) fn shown(path: impl AsRef<Path>) -> String {
    printable(&path.as_ref().display().to_string()).into_owned()
}

/// Whether a stream is a terminal that can move its cursor.
pub(crate) fn can_redraw(stream: &impl IsTerminal) -> bool {
    stream.is_terminal() && moves_cursor(std::env::var_os("TERM").as_deref())
}

/// What `--color` says.
static COLOR: OnceLock<ColorChoice> = OnceLock::new();

/// Takes what `--color` says, before anything is written.
pub(crate) fn choose_color(choice: ColorChoice) {
    let _ = COLOR.set(choice);
}

/// Whether a stream gets attributes (colours, bold): as `--color` says, else where it is a terminal that shows them
/// and its user wants them.
pub(crate) fn has_attributes(stream: &impl IsTerminal) -> bool {
    attributes(COLOR.get().copied(), can_redraw(stream) && no_color_is_unset())
}

/// Whether the user wants attributes: as `--color` says, else `NO_COLOR`, when it is set and not empty, says no.
pub(crate) fn wants_attributes() -> bool {
    attributes(COLOR.get().copied(), no_color_is_unset())
}

fn attributes(choice: Option<ColorChoice>, by_itself: bool) -> bool {
    match choice {
        Some(ColorChoice::Always) => true,
        Some(ColorChoice::Never) => false,
        Some(ColorChoice::Auto) | None => by_itself,
    }
}

fn no_color_is_unset() -> bool {
    is_unset(std::env::var_os("NO_COLOR").as_deref())
}

fn moves_cursor(term: Option<&OsStr>) -> bool {
    !is_unset(term) && term != Some(OsStr::new("dumb"))
}

fn is_unset(variable: Option<&OsStr>) -> bool {
    variable.is_none_or(OsStr::is_empty)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dumb_terminal_gets_no_attributes() {
        for (term, moves) in
            [(None, false), (Some(""), false), (Some("dumb"), false), (Some("xterm"), true)]
        {
            assert_eq!(moves_cursor(term.map(OsStr::new)), moves, "{term:?}");
        }
        for (no_color, unset) in [(None, true), (Some(""), true), (Some("0"), false)] {
            assert_eq!(is_unset(no_color.map(OsStr::new)), unset, "{no_color:?}");
        }
    }

    #[test]
    fn an_option_overrides_terminal_and_environment() {
        for by_itself in [true, false] {
            assert!(attributes(Some(ColorChoice::Always), by_itself));
            assert!(!attributes(Some(ColorChoice::Never), by_itself));
            assert_eq!(attributes(Some(ColorChoice::Auto), by_itself), by_itself);
            assert_eq!(attributes(None, by_itself), by_itself);
        }
    }

    #[test]
    fn a_terminal_without_a_size_has_80_columns() {
        assert_eq!([0, 1, 132].map(usable_columns), [80, 1, 132]);
    }

    #[test]
    fn what_is_no_terminal_gets_whole_lines() {
        let file = tempfile::tempfile().expect("a file");
        let text = "a long line, for grep ".repeat(9);
        assert_eq!(folded(&text, &file), text);
    }

    #[test]
    fn an_error_stands_out_where_that_is_wanted() {
        assert_eq!(marked("rtscope: no such file", false), "rtscope: no such file");
        assert_eq!(marked("rtscope: no", true), "\x1b[1;31mrtscope:\x1b[0m no");
    }

    #[test]
    fn a_path_is_one_line() {
        assert_eq!(shown("a\nVerdict: PASS\x1b[2K"), "a\\nVerdict: PASS\\u001b[2K");
    }
}
