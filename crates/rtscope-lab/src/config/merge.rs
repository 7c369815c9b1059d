//! Configurations as text: read, merged, written.

use std::{collections::BTreeMap, fmt::Write};

/// A value of an option.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Value {
    /// `# CONFIG_X is not set`.
    Off,
    /// As after the equals sign: `y`, `m`, `4`, `"-rt"`.
    Set(String),
}

impl Value {
    /// As after the equals sign; `n` for what is off.
    #[must_use]
    pub fn word(&self) -> &str {
        match self {
            Value::Off => "n",
            Value::Set(text) => text,
        }
    }
}

/// Options by name, without `CONFIG_`.
pub type ConfigOptions = BTreeMap<String, Value>;

/// Reads a `.config` or a fragment.
#[must_use]
pub fn read(text: &str) -> ConfigOptions {
    text.lines().filter_map(read_line).collect()
}

fn read_line(line: &str) -> Option<(String, Value)> {
    let line = line.trim();
    if let Some(name) = line.strip_prefix("# CONFIG_").and_then(|l| l.strip_suffix(" is not set")) {
        return Some((name.to_owned(), Value::Off));
    }
    let (name, value) = line.strip_prefix("CONFIG_")?.split_once('=')?;
    let value = match value.trim() {
        "n" => Value::Off,
        value => Value::Set(value.to_owned()),
    };
    Some((name.to_owned(), value))
}

/// The lines of a configuration that ask for nothing and are no comment either, by their number from 1, each
/// with what is wrong.
#[must_use]
pub fn senseless(text: &str) -> Vec<(usize, String)> {
    let lines = text.lines().enumerate();
    lines.filter_map(|(at, line)| Some((at + 1, wrong_with(line.trim())?))).collect()
}

fn wrong_with(line: &str) -> Option<String> {
    if line.is_empty() || line.starts_with('#') {
        return None;
    }
    let (name, value) = line.split_once('=').map_or((line, None), |(n, v)| (n, Some(v)));
    let option = name.strip_prefix("CONFIG_").filter(|name| {
        !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
    });
    match (option, value) {
        (Some(_), Some(value)) if is_value(value) => None,
        (Some(_), Some(value)) if !value.is_empty() => {
            Some(format!("{line:?}: {value:?} is not y, m, n, a number or a text in double quotes"))
        }
        (Some(_), _) => {
            Some(format!("{line:?} has no value: write {name}=y, or `# {name} is not set`"))
        }
        (None, _) => Some(format!(
            "{line:?} is neither CONFIG_NAME=VALUE, nor `# CONFIG_NAME is not set`, nor a comment"
        )),
    }
}

/// Whether a text is a value as the kernel's tools write it.
fn is_value(text: &str) -> bool {
    let is_quoted = text.len() >= 2 && text.starts_with('"') && text.ends_with('"');
    let hexadecimal = text.strip_prefix("0x").or_else(|| text.strip_prefix("0X"));
    let (digits, radix) = match hexadecimal {
        Some(digits) => (digits, 16),
        None => (text.strip_prefix('-').unwrap_or(text), 10),
    };
    let is_number = !digits.is_empty() && digits.chars().all(|c| c.is_digit(radix));
    ["y", "m", "n"].contains(&text) || is_quoted || is_number
}

/// Where a later fragment overrides an earlier one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Override {
    /// Option.
    pub name: String,
    /// The fragment that is overridden, and its value.
    pub earlier: (String, Value),
    /// The one that overrides it, and its value.
    pub later: (String, Value),
}

/// What fragments ask for, merged: the later one wins. With where they contradict each other.
#[must_use]
pub fn asked(fragments: &[(&str, &str)]) -> (ConfigOptions, Vec<Override>) {
    let mut merged: BTreeMap<String, (String, Value)> = BTreeMap::new();
    let mut overrides = Vec::new();
    for (fragment, text) in fragments {
        for (name, value) in read(text) {
            let later = ((*fragment).to_owned(), value);
            if let Some(earlier) = merged.insert(name.clone(), later.clone())
                && earlier.1 != later.1
            {
                overrides.push(Override { name, earlier, later });
            }
        }
    }
    (merged.into_iter().map(|(name, (_, value))| (name, value)).collect(), overrides)
}

/// A base with what fragments ask for in place of its own. The asked options come last and in the
/// fragments' order: of a choice, the kernel's tools take the member that is named last.
#[must_use]
pub fn merged(base: &ConfigOptions, fragments: &[(&str, &str)]) -> String {
    let (asked, _) = asked(fragments);
    let mut options = base.clone();
    options.retain(|name, _| !asked.contains_key(name));
    let mut text = write(&options);
    let mut lines: Vec<(String, Value)> =
        fragments.iter().flat_map(|(_, text)| text.lines().filter_map(read_line)).collect();
    for i in (0..lines.len()).rev() {
        if lines[i + 1..].iter().any(|later| later.0 == lines[i].0) {
            lines.remove(i);
        }
    }
    for (name, value) in lines {
        text += &write(&ConfigOptions::from([(name, value)]));
    }
    text
}

/// Options as a `.config`.
#[must_use]
pub fn write(options: &ConfigOptions) -> String {
    let mut text = String::new();
    for (name, value) in options {
        let _ = match value {
            Value::Off => writeln!(text, "# CONFIG_{name} is not set"),
            Value::Set(value) => writeln!(text, "CONFIG_{name}={value}"),
        };
    }
    text
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn later_fragments_win_and_it_is_said() {
        let (options, overrides) = asked(&[
            ("lab", "CONFIG_SMP=y\nCONFIG_HZ=100\n# a comment\n"),
            ("rt", "CONFIG_HZ=1000\n# CONFIG_KEXEC is not set\nCONFIG_SMP=y\nCONFIG_X=n\n"),
        ]);
        assert_eq!(
            write(&options),
            "CONFIG_HZ=1000\n# CONFIG_KEXEC is not set\nCONFIG_SMP=y\n# CONFIG_X is not set\n"
        );
        assert_eq!(overrides.len(), 1);
        assert_eq!((overrides[0].earlier.0.as_str(), overrides[0].later.0.as_str()), ("lab", "rt"));
    }

    #[test]
    fn of_a_choice_the_last_named_member_is_asked() {
        let base = read("CONFIG_HZ_250=y\nCONFIG_KEXEC=y\nCONFIG_NET=m\n");
        let fragments = [
            ("lab", "CONFIG_HZ_1000=y\nCONFIG_PREEMPT=y\n"),
            ("none", "CONFIG_PREEMPT_NONE=y\nCONFIG_KEXEC=n\n"),
        ];
        assert_eq!(
            merged(&base, &fragments),
            "CONFIG_HZ_250=y\nCONFIG_NET=m\nCONFIG_HZ_1000=y\nCONFIG_PREEMPT=y\n\
             CONFIG_PREEMPT_NONE=y\n# CONFIG_KEXEC is not set\n"
        );
        let twice = [("a", "CONFIG_X=y\nCONFIG_Y=y\n"), ("b", "CONFIG_X=m\n")];
        assert_eq!(merged(&ConfigOptions::new(), &twice), "CONFIG_Y=y\nCONFIG_X=m\n");
    }

    #[test]
    fn a_senseless_line_is_told_with_its_number() {
        let sound = "# a comment\n\n  CONFIG_A=y \nCONFIG_B=m\r\nCONFIG_C=n\n# CONFIG_D is not set\n\
                     CONFIG_E=-5\nCONFIG_F=0x1F\nCONFIG_4K=\"a = b\"\n";
        assert_eq!(senseless(sound), []);
        let text = "CONFIG_FOO\nCONFIG_A=y\nhello world\nCONFIG_B=\nCONFIG_C = y\nCONFIG_D=yes\nconfig_e=y\n\
                    CONFIG_=y\nCONFIG_F=0x\nCONFIG_G=\"\nCONFIG_H=y # on\n";
        let found = senseless(text);
        let lines: Vec<usize> = found.iter().map(|(line, _)| *line).collect();
        assert_eq!(lines, [1, 3, 4, 5, 6, 7, 8, 9, 10, 11]);
        assert!(
            found[0].1.contains("\"CONFIG_FOO\" has no value: write CONFIG_FOO=y"),
            "{found:?}"
        );
        assert!(found[1].1.contains("\"hello world\" is neither"), "{found:?}");
        assert!(found[4].1.contains("\"yes\" is not y, m, n"), "{found:?}");
    }

    proptest! {
        #[test]
        fn nothing_that_is_written_is_senseless(
            value in "(y|m|n|-?[0-9]{1,6}|0x[0-9a-f]{1,6}|\"[a-z =#-]{0,9}\")"
        ) {
            let options = ConfigOptions::from([("A".to_owned(), Value::Set(value)), ("B".to_owned(), Value::Off)]);
            prop_assert_eq!(senseless(&write(&options)), []);
        }

        #[test]
        fn what_is_written_is_read_back(
            names in proptest::collection::btree_map(
                "[A-Z][A-Z0-9_]{0,12}",
                prop_oneof![
                    Just(Value::Off),
                    "(y|m|[0-9]{1,6}|0x[0-9a-f]{1,6}|\"[a-z =#-]{0,9}\")".prop_map(Value::Set)
                ],
                0..20,
            )
        ) {
            prop_assert_eq!(read(&write(&names)), names);
        }
    }
}
