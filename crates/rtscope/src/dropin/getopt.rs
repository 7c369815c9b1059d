//! Options read the way GNU `getopt_long` reads them: bundled and glued short options, long ones by
//! any unambiguous beginning, values glued or in the next word, other words skipped.

/// Whether an option takes a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Value {
    None,
    Required,
    /// Only when glued to the option.
    Optional,
}

/// An option. `long` names it; a short one without a long form has a `long` that can't be typed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Opt {
    pub(crate) long: &'static str,
    pub(crate) short: Option<char>,
    pub(crate) value: Value,
}

impl Opt {
    pub(crate) const fn new(long: &'static str, short: Option<char>, value: Value) -> Opt {
        Opt { long, short, value }
    }
}

/// An option as it was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ParsedOption {
    /// Its long name.
    pub(crate) name: &'static str,
    pub(crate) value: Option<String>,
}

/// The words of a command line, read from left to right.
#[derive(Debug)]
pub(crate) struct Arguments<'a> {
    table: &'static [Opt],
    words: &'a [String],
    next: usize,
    /// What is left of a bundle of short options.
    bundle: String,
    /// Words that are neither options nor values.
    strays: Vec<String>,
}

impl<'a> Arguments<'a> {
    /// `words` without the program's name.
    pub(crate) fn new(table: &'static [Opt], words: &'a [String]) -> Arguments<'a> {
        Arguments { table, words, next: 0, bundle: String::new(), strays: Vec::new() }
    }

    /// The word after the option that was read last.
    pub(crate) fn peek(&self) -> Option<&str> {
        self.words.get(self.next).map(String::as_str)
    }

    /// Takes the next word if it is as wanted.
    fn take_if(&mut self, wanted: impl FnOnce(&str) -> bool) -> Option<String> {
        let word = self.peek().filter(|word| wanted(word))?.to_owned();
        self.next += 1;
        Some(word)
    }

    /// Takes the next word for the value of an option that may have none, if it is as wanted. `getopt` reads
    /// that word itself, too: one that begins with a dash is an option after all.
    pub(crate) fn take_value_if(&mut self, wanted: impl FnOnce(&str) -> bool) -> Option<String> {
        self.take_if(|word| !word.starts_with('-') && wanted(word))
    }

    /// The next option; an error is what getopt says after the program's name.
    pub(crate) fn option(&mut self) -> Option<Result<ParsedOption, String>> {
        while self.bundle.is_empty() {
            let word = self.words.get(self.next)?;
            self.next += 1;
            if word == "--" {
                self.strays.extend_from_slice(&self.words[self.next..]);
                self.next = self.words.len();
                return None;
            } else if let Some(long) = word.strip_prefix("--") {
                return Some(self.long(long));
            } else if let Some(bundle) = word.strip_prefix('-') {
                self.bundle = bundle.to_owned();
            } else if !word.is_empty() {
                self.strays.push(word.clone());
            }
        }
        Some(self.short())
    }

    /// The words so far that are neither options nor values. `getopt` leaves them to the program, and
    /// most programs forget them.
    pub(crate) fn strays(&self) -> &[String] {
        &self.strays
    }

    fn long(&mut self, word: &str) -> Result<ParsedOption, String> {
        let (name, glued) = match word.split_once('=') {
            Some((name, value)) => (name, Some(value.to_owned())),
            None => (word, None),
        };
        let exact = self.table.iter().find(|opt| opt.long == name);
        let begins = |opt: &&Opt| opt.long.starts_with(name);
        let all: Vec<&Opt> = self.table.iter().filter(begins).collect();
        let opt = match (exact, &all[..]) {
            (Some(opt), _) => opt,
            (None, [opt]) => opt,
            (None, []) => return Err(format!("unrecognized option '--{name}'")),
            (None, several) => {
                let names: String = several.iter().map(|o| format!(" '--{}'", o.long)).collect();
                return Err(format!("option '--{name}' is ambiguous; possibilities:{names}"));
            }
        };
        let value = match (opt.value, glued) {
            (Value::None, Some(_)) => {
                return Err(format!("option '--{}' doesn't allow an argument", opt.long));
            }
            (Value::Required, None) => {
                let missing = || format!("option '--{}' requires an argument", opt.long);
                Some(self.take_if(|_| true).ok_or_else(missing)?)
            }
            (_, glued) => glued,
        };
        Ok(ParsedOption { name: opt.long, value })
    }

    fn short(&mut self) -> Result<ParsedOption, String> {
        let mut letters = self.bundle.chars();
        let letter = letters.next().unwrap_or_default();
        let rest = letters.as_str().to_owned();
        let known = self.table.iter().find(|opt| opt.short == Some(letter));
        let Some(opt) = known else {
            self.bundle = rest;
            return Err(format!("invalid option -- '{letter}'"));
        };
        if opt.value == Value::None {
            self.bundle = rest;
            return Ok(ParsedOption { name: opt.long, value: None });
        }
        self.bundle.clear();
        let value = match (opt.value, rest.is_empty()) {
            (_, false) => Some(rest),
            (Value::Required, true) => {
                let missing = || format!("option requires an argument -- '{letter}'");
                Some(self.take_if(|_| true).ok_or_else(missing)?)
            }
            _ => None,
        };
        Ok(ParsedOption { name: opt.long, value })
    }
}

/// What is said of a word that is neither an option nor a value.
pub(crate) fn stray(table: &[Opt], word: &str) -> String {
    let is_option = |letter: char| table.iter().any(|opt| opt.short == Some(letter));
    match word.starts_with(is_option) {
        true => format!(
            "{word:?} is a stray word and is ignored: an option begins with a dash, as in -{word}"
        ),
        false => format!("{word:?} is a stray word and is ignored"),
    }
}

/// The number that a text begins with, as C's `atoi` reads it; 0 when it begins with none.
pub(crate) fn atoi(text: &str) -> i64 {
    let text = text.trim_start();
    let (sign, digits) = match text.strip_prefix('-') {
        Some(rest) => (-1, rest),
        None => (1, text.strip_prefix('+').unwrap_or(text)),
    };
    let length = digits.find(|c: char| !c.is_ascii_digit()).unwrap_or(digits.len());
    match digits[..length].parse::<i64>() {
        Ok(number) => sign * number,
        Err(_) if length > 0 => sign * i64::from(i32::MAX),
        Err(_) => 0,
    }
}

/// Whether a text begins with a number.
pub(crate) fn is_number(text: &str) -> bool {
    let text = text.trim_start();
    text.trim_start_matches(['-', '+']).starts_with(|c: char| c.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &[Opt] = &[
        Opt::new("affinity", Some('a'), Value::Optional),
        Opt::new("histogram", Some('h'), Value::Required),
        Opt::new("histfile", None, Value::Required),
        Opt::new("quiet", Some('q'), Value::None),
    ];

    fn read(line: &[&str]) -> Vec<Result<(&'static str, Option<String>), String>> {
        let words: Vec<String> = line.iter().map(|word| (*word).to_owned()).collect();
        let mut words = Arguments::new(TABLE, &words);
        std::iter::from_fn(|| words.option()).map(|o| o.map(|f| (f.name, f.value))).collect()
    }

    fn ok(
        name: &'static str,
        value: Option<&str>,
    ) -> Result<(&'static str, Option<String>), String> {
        Ok((name, value.map(str::to_owned)))
    }

    #[test]
    fn a_value_may_be_glued_or_the_next_word() {
        assert_eq!(read(&["-qh20"]), [ok("quiet", None), ok("histogram", Some("20"))]);
        assert_eq!(read(&["-h 20", ""]), [ok("histogram", Some(" 20"))]);
        assert_eq!(read(&["-qh", "20"]), [ok("quiet", None), ok("histogram", Some("20"))]);
        assert_eq!(
            read(&["--histog=7", "x", "-a"]),
            [ok("histogram", Some("7")), ok("affinity", None)]
        );
        assert_eq!(read(&["--", "-q"]), []);
    }

    #[test]
    fn mistakes_are_said_in_getopts_words() {
        let said = |line: &[&str]| read(line).into_iter().find_map(Result::err).expect("a mistake");
        assert_eq!(said(&["--bogus"]), "unrecognized option '--bogus'");
        assert_eq!(said(&["-n"]), "invalid option -- 'n'");
        assert_eq!(said(&["-h"]), "option requires an argument -- 'h'");
        assert_eq!(said(&["--quiet=1"]), "option '--quiet' doesn't allow an argument");
        let ambiguous = "option '--hist' is ambiguous; possibilities: '--histogram' '--histfile'";
        assert_eq!(said(&["--hist", "5"]), ambiguous);
    }

    #[test]
    fn numbers_are_read_as_atoi_reads_them() {
        let numbers = [" 3500", "15s", "-5", "-p", "", "99999999999999999999"].map(atoi);
        assert_eq!(numbers, [3500, 15, -5, 0, 0, 2_147_483_647]);
        assert!(is_number(" 3x") && !is_number("-p") && !is_number(""));
    }
}
