//! The secret that a server knows a lab by. It is in no message, no file of ours and no command line.

use std::{fmt, fs, path::Path, process::Command};

use crate::error::FleetError;

/// The variables of the environment that have them, with the names that KernelCI's own client gives them.
pub const API_TOKEN: &str = "KERNELCI_API_TOKEN";
pub const KCIDB_TOKEN: &str = "KCIDB_JWT";

/// Takes the tokens out of a program's environment. None needs them there: curl gets its token on standard input.
pub fn remove_tokens(command: &mut Command) {
    for name in [API_TOKEN, KCIDB_TOKEN] {
        command.env_remove(name);
    }
}

/// More than any token has.
const BYTES_MAX: usize = 16 << 10;

/// A token; its text form doesn't show it.
#[derive(Clone, PartialEq, Eq)]
pub struct ServerToken(String);

impl fmt::Debug for ServerToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ServerToken(...)")
    }
}

impl ServerToken {
    /// Takes a text without the white space around it.
    ///
    /// # Errors
    ///
    /// It can't be a part of a header. The message names `from`, not the text.
    pub fn new(text: &str, from: &str) -> Result<ServerToken, FleetError> {
        let text = text.trim();
        let is_good = |c: char| c.is_ascii_graphic() && !['"', '\\'].contains(&c);
        if text.is_empty() || text.len() > BYTES_MAX || !text.chars().all(is_good) {
            return Err(FleetError::Refused(format!(
                "{from} has no token: it must be one word of ASCII characters"
            )));
        }
        Ok(ServerToken(text.to_owned()))
    }

    /// Reads a file.
    ///
    /// # Errors
    ///
    /// It can't be read, or has no token.
    pub fn read(file: &Path) -> Result<ServerToken, FleetError> {
        let text = fs::read_to_string(file).map_err(FleetError::file("read", file))?;
        ServerToken::new(&text, &file.display().to_string())
    }

    /// The header that shows it to a server.
    pub(super) fn header(&self) -> String {
        format!("Authorization: Bearer {}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_one_word_and_never_shown() {
        let token = ServerToken::new("  eyJh.bG-c_i\n", "FILE").expect("a token");
        assert_eq!(token.header(), "Authorization: Bearer eyJh.bG-c_i");
        assert_eq!(format!("{token:?}"), "ServerToken(...)");
        for bad in ["", " \n", "a b", "a\"b", "a\\b", "a\nheader: b", "\u{e4}"] {
            let said = ServerToken::new(bad, "FILE").expect_err("no token").to_string();
            assert!(said.starts_with("FILE has no token") && !said.contains("header"), "{said}");
        }
    }
}
