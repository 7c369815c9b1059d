//! A load, as one line of a plan: `message groups=1 policy=fifo priority=49 cpus=0-1`.

use std::{collections::BTreeMap, fmt, str::FromStr};

/// A load's name and what was asked of it, not yet checked against the load's own options.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoadLine {
    /// Name in the table of loads.
    pub name: String,
    /// Options by name; the words after `--` are under `command`.
    pub options: BTreeMap<String, String>,
}

impl fmt::Display for LoadLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)?;
        for (key, value) in self.options.iter().filter(|(key, _)| *key != "command") {
            write!(f, " {key}={value}")?;
        }
        match self.options.get("command") {
            Some(command) => write!(f, " -- {command}"),
            None => Ok(()),
        }
    }
}

impl FromStr for LoadLine {
    type Err = String;

    fn from_str(text: &str) -> Result<LoadLine, String> {
        let (head, command) = match text.split_once(" -- ") {
            Some((head, command)) => (head, Some(command.trim())),
            None => (text, None),
        };
        let mut words = head.split_whitespace();
        let name = words.next().ok_or(
            "a load's line is empty: write its name and options, for example message groups=1",
        )?;
        let mut options = BTreeMap::new();
        for word in words {
            let (key, value) = word
                .split_once('=')
                .filter(|(key, value)| !key.is_empty() && !value.is_empty())
                .ok_or_else(|| format!("{word:?} in a load's line: write options as key=value"))?;
            if options.insert(key.to_owned(), value.to_owned()).is_some() {
                return Err(format!("option {key:?} is given twice in {text:?}"));
            }
        }
        if let Some(command) = command {
            options.insert("command".to_owned(), command.to_owned());
        }
        Ok(LoadLine { name: name.to_owned(), options })
    }
}

crate::text::serde_as_text!(LoadLine);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_read_and_written() {
        let line: LoadLine = "message groups=1  fds=20".parse().expect("a line");
        assert_eq!((line.name.as_str(), line.options["fds"].as_str()), ("message", "20"));
        assert_eq!(line.to_string(), "message fds=20 groups=1");
        let line: LoadLine = "external nice=5 -- make -j4 all".parse().expect("a line");
        assert_eq!(line.options["command"], "make -j4 all");
        assert_eq!(line.to_string().parse(), Ok(line));
        for wrong in ["", "message groups", "message =1", "message a=1 a=2", "message a="] {
            assert!(wrong.parse::<LoadLine>().is_err(), "{wrong:?} was accepted");
        }
    }
}
