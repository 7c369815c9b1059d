//! What a document for KernelCI is named by: who submits it, and which build was tested.

use std::{fmt, str::FromStr};

use super::schema::OutputFile;

/// Who submits, and which build was tested.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Submission {
    pub origin: SubmissionOrigin,
    /// The build's name in KernelCI; without one, the document brings a build of its own.
    pub build: Option<BuildId>,
    pub files: PublishedFiles,
}

/// The files of a record that others can read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PublishedFiles {
    /// Address of the record's folder.
    pub base_url: String,
    /// Names in that folder.
    pub names: Vec<String>,
}

/// What the guest's kernel printed, in the record of a guest.
const CONSOLE: &str = "console.txt";

impl PublishedFiles {
    fn address(&self, name: &str) -> String {
        let mut address = format!("{}/", self.base_url.trim_end_matches('/'));
        for byte in name.bytes() {
            match byte {
                b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'.' | b'_' | b'-' | b'~' => {
                    address.push(char::from(byte));
                }
                other => address += &format!("%{other:02X}"),
            }
        }
        address
    }

    /// The address of the kernel's messages, where the record has them.
    pub(super) fn log_url(&self) -> Option<String> {
        self.names.iter().any(|name| name == CONSOLE).then(|| self.address(CONSOLE))
    }

    pub(super) fn output_files(&self) -> Vec<OutputFile> {
        // What the schema doesn't take as a name.
        let names = self.names.iter().filter(|name| !name.is_empty() && !name.contains('/'));
        names.map(|name| OutputFile { name: name.clone(), url: self.address(name) }).collect()
    }
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
        let why = "an origin consists of lower-case letters, digits and '_', for example 'my_lab'";
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
        let why = "a build has the name of its origin, a colon and its own name, for example \
                   'maestro:6870c1b2'; an origin consists of lower-case letters, digits and '_'";
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
    fn a_file_s_address_is_one_word() {
        let names = ["console.txt", "a b%\u{e4}.csv", "x/y", ""].map(str::to_owned).to_vec();
        let files = PublishedFiles { base_url: "https://a.example/run/".to_owned(), names };
        assert_eq!(files.log_url().as_deref(), Some("https://a.example/run/console.txt"));
        let found = files.output_files();
        let found: Vec<&str> = found.iter().map(|file| file.url.as_str()).collect();
        assert_eq!(
            found,
            ["https://a.example/run/console.txt", "https://a.example/run/a%20b%25%C3%A4.csv"]
        );
        assert_eq!(PublishedFiles::default().log_url(), None);
    }

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
