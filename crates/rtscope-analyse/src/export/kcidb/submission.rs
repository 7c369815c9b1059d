//! What a document for KernelCI is named by: who submits it, and which build was tested.

use std::{fmt, str::FromStr};

/// Who submits, and which build was tested.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Submission {
    pub origin: SubmissionOrigin,
    /// The build's name in KernelCI; without one, the document brings a build of its own.
    pub build: Option<BuildId>,
}

/// The CI system that submits. KernelCI gives each a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SubmissionOrigin(String);

/// Name of a build: the origin that submitted it, a colon, and any text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BuildId(String);

/// Why a text is no such name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct NotAName(String);

/// The schema's rule.
fn is_origin(text: &str) -> bool {
    let is_good = |c: u8| c.is_ascii_lowercase() || c.is_ascii_digit() || c == b'_';
    !text.is_empty() && text.bytes().all(is_good)
}

impl Default for SubmissionOrigin {
    fn default() -> SubmissionOrigin {
        SubmissionOrigin("rtscope".to_owned())
    }
}

impl FromStr for SubmissionOrigin {
    type Err = NotAName;

    fn from_str(text: &str) -> Result<SubmissionOrigin, NotAName> {
        if is_origin(text) {
            return Ok(SubmissionOrigin(text.to_owned()));
        }
        let why = "an origin consists of small letters, digits and '_', as 'my_lab'";
        Err(NotAName(why.to_owned()))
    }
}

impl FromStr for BuildId {
    type Err = NotAName;

    fn from_str(text: &str) -> Result<BuildId, NotAName> {
        let is_good = |(origin, name): (&str, &str)| {
            is_origin(origin) && !name.is_empty() && !name.contains(char::is_control)
        };
        if text.split_once(':').is_some_and(is_good) {
            return Ok(BuildId(text.to_owned()));
        }
        let why = "a build has the name of its origin, a colon and its own name, as \
                   'maestro:6870c1b2'; an origin consists of small letters, digits and '_'";
        Err(NotAName(why.to_owned()))
    }
}

impl BuildId {
    /// One that was made of good parts.
    pub(super) fn made(origin: &SubmissionOrigin, name: &str) -> BuildId {
        BuildId(format!("{origin}:{name}"))
    }
}

impl fmt::Display for SubmissionOrigin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

impl fmt::Display for BuildId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_that_the_schema_takes_are_taken() {
        for good in ["a", "my_lab", "0day"] {
            assert!(good.parse::<SubmissionOrigin>().is_ok(), "{good}");
            assert!(format!("{good}:x y:z").parse::<BuildId>().is_ok(), "{good}");
        }
        for bad in ["", "My", "my-lab", "a b", "a:b", "\u{e4}"] {
            let said = bad.parse::<SubmissionOrigin>().expect_err("refused").to_string();
            assert!(said.contains("my_lab"), "{bad}: {said}");
        }
        for bad in ["My:z", "my-lab:z", "maestro", "maestro:", ":x", "a:\0", "a:x\n"] {
            let said = bad.parse::<BuildId>().expect_err("refused").to_string();
            assert!(said.contains("maestro:"), "{bad}: {said}");
        }
    }
}
