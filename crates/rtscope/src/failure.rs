//! What went wrong, as it is told; and what was asked wrongly.

use std::fmt;

use rtscope_lab::error::LabError;
use rtscope_measure::{RunError, load::LoadError};
use rtscope_model::{
    printable::{printable, printable_lines},
    text::TextError,
};

/// A command line that can be read but makes no sense.
#[derive(Debug)]
pub(crate) struct Refused(pub(crate) String);

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Refused {}

/// What was not permitted, with the ways to the permission, a line each.
#[derive(Debug)]
pub(crate) struct Ways(pub(crate) String);

impl fmt::Display for Ways {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Ways {}

/// What was asked wrongly of the lab has its own exit code, and each problem of a spec its own line.
pub(crate) fn lab_failure(error: anyhow::Error) -> anyhow::Error {
    match error.downcast::<LabError>() {
        Ok(LabError::Spec(problems)) => problems.into(),
        Ok(lab) if lab.is_usage() => Refused(lab.to_string()).into(),
        Ok(lab) => lab.into(),
        Err(other) => other,
    }
}

/// Whether an error tells the ways to a permission, a line each.
fn tells_ways(cause: &(dyn std::error::Error + 'static)) -> bool {
    let of_load = |error: &LoadError| matches!(error, LoadError::Permission(_));
    let of_run = |error: &RunError| match error {
        RunError::Permission(_) | RunError::Place(..) => true,
        RunError::Load { why, .. } => of_load(why),
        _ => false,
    };
    cause.is::<Ways>()
        || cause.downcast_ref().is_some_and(of_load)
        || cause.downcast_ref().is_some_and(of_run)
}

/// An error and its causes in one line. A cause that the text before it tells already, as that of a
/// system call, is not told again. Only problems of a text, the ways to a permission and the lab's errors
/// have lines of their own, the last ones indented: they quote the output of other programs.
pub(crate) fn error_text(error: &anyhow::Error) -> String {
    let shown = |cause: &(dyn std::error::Error + 'static)| match cause.to_string() {
        text if cause.is::<TextError>() => text,
        text if cause.is::<LabError>() => text.replace('\n', "\n  "),
        text if tells_ways(cause) => printable_lines(&text).into_owned(),
        text => printable(&text).into_owned(),
    };
    // The cause of an SQLite error is the same error with its number.
    let causes = error.chain().filter(|cause| !cause.is::<rusqlite::ffi::Error>());
    causes.fold(String::new(), |text, cause| match shown(cause) {
        cause if text.contains(&cause) => text,
        cause if text.is_empty() => cause,
        cause => format!("{text}: {cause}"),
    })
}

#[cfg(test)]
mod tests {
    use std::io;

    use rtscope_measure::recorder::RecordError;

    use super::error_text;

    #[test]
    fn each_way_to_a_permission_has_a_line() {
        let ways = ["one", "two", "three"].map(str::to_owned);
        let error = anyhow::Error::new(rtscope_measure::RunError::Permission(ways));
        let text = error_text(&error);
        assert_eq!(text.lines().skip(1).collect::<Vec<_>>(), ["  - one", "  - two", "  - three"]);
        // No other error has lines of its own.
        let text = error_text(&anyhow::anyhow!("a\n  - b"));
        assert_eq!(text, "a\\n  - b");
    }

    #[test]
    fn what_the_system_answered_is_told_once() {
        let source = io::Error::from_raw_os_error(2);
        let error = anyhow::Error::new(RecordError::Read { path: "nosuch".into(), source });
        let other = rusqlite::Connection::open_in_memory().and_then(|one| one.execute("x", []));
        let text = error_text(&anyhow::Error::new(other.expect_err("no SQL")));
        assert!(text.contains("syntax error") && !text.contains("Error code"), "{text}");
        assert_eq!(
            error_text(&error.context("no report")),
            "no report: can't read a record from nosuch: No such file or directory (os error 2)"
        );
    }
}
