//! A load's options: what they may be, and a line that was found right.

use std::collections::BTreeMap;

use rtscope_model::{cpu::CpuSet, load::LoadLine, text::Problem};
use serde::Serialize;

/// What an option's value may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ValueKind {
    /// A whole number in a range.
    Number { min: i64, max: i64 },
    /// A number of bytes, as `64KiB`, in a range.
    Size { min: u64, max: u64 },
    /// One of these words.
    Word(&'static [&'static str]),
    /// `true` or `false`.
    Flag,
    /// A number of workers, or `cpus`: as many as the load has CPUs.
    Workers,
    /// `all`, `measured`, `others`, or a set as `0-3`.
    Cpus,
    /// Any text.
    Text,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct LoadOption {
    /// Name, as in `groups=10`.
    pub name: &'static str,
    /// What its value may be.
    #[serde(skip)]
    pub kind: ValueKind,
    /// What it is when it isn't given; empty for none.
    pub default: &'static str,
    /// One line: what it means.
    pub about: &'static str,
}

/// The most workers that a load may have.
const WORKERS_MAX: i64 = 10_000;

/// Options of every load.
pub const COMMON_OPTIONS: &[LoadOption] = &[
    LoadOption {
        name: "policy",
        kind: ValueKind::Word(&["other", "batch", "idle", "fifo", "rr"]),
        default: "other",
        about: "scheduling policy of every worker",
    },
    LoadOption {
        name: "priority",
        kind: ValueKind::Number { min: 1, max: 99 },
        default: "",
        about: "real-time priority of every worker; 1 for fifo and rr when it isn't given",
    },
    LoadOption {
        name: "nice",
        kind: ValueKind::Number { min: -20, max: 19 },
        default: "",
        about: "nice value of every worker, for policies that are not real-time",
    },
    LoadOption {
        name: "cpus",
        kind: ValueKind::Cpus,
        default: "all",
        about: "where the workers may run: all, measured, others (not measured), or a set such as 0-3",
    },
];

/// A load's options, checked, with every default filled in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoadOptions(BTreeMap<&'static str, String>);

impl LoadOptions {
    /// Checks a line against a load's own options and the common ones.
    ///
    /// # Errors
    ///
    /// The first option that is unknown or whose value isn't allowed.
    pub(super) fn parse(
        line: &LoadLine,
        own: &'static [LoadOption],
    ) -> Result<LoadOptions, Problem> {
        let known = || own.iter().chain(COMMON_OPTIONS);
        for (name, value) in &line.options {
            let option = known().find(|option| option.name == name).ok_or_else(|| {
                Problem::new(format!("load {:?} has no option {name:?}", line.name))
                    .suggest(name, known().map(|option| option.name))
            })?;
            check_value(option, value)?;
        }
        let of = |option: &LoadOption| {
            line.options.get(option.name).cloned().unwrap_or_else(|| option.default.to_owned())
        };
        let options = LoadOptions(known().map(|option| (option.name, of(option))).collect());
        options.check_policy()?;
        Ok(options)
    }

    fn check_policy(&self) -> Result<(), Problem> {
        let policy = self.word("policy");
        let real_time = matches!(policy, "fifo" | "rr");
        let refused = match (self.given("priority"), self.given("nice")) {
            (Some(_), _) if !real_time => {
                format!(
                    "priority has no meaning for policy={policy}: write policy=fifo or policy=rr"
                )
            }
            (_, Some(_)) if real_time => {
                format!("nice has no meaning for policy={policy}: leave it out")
            }
            _ => return Ok(()),
        };
        Err(Problem::new(refused))
    }

    fn get(&self, name: &str) -> &str {
        self.0.get(name).expect("the option is in the load's table")
    }

    /// A text or number that may be left out.
    pub(super) fn given(&self, name: &str) -> Option<&str> {
        Some(self.get(name)).filter(|value| !value.is_empty())
    }

    pub(super) fn word(&self, name: &str) -> &str {
        self.get(name)
    }

    pub(super) fn flag(&self, name: &str) -> bool {
        self.get(name) == "true"
    }

    pub(super) fn number(&self, name: &str) -> u64 {
        self.get(name).parse().expect("the value was checked")
    }

    pub(super) fn size(&self, name: &str) -> usize {
        let bytes = bytes_of(self.get(name)).expect("the value was checked");
        usize::try_from(bytes).unwrap_or(usize::MAX)
    }

    /// The number of workers of a load with these CPUs.
    pub(super) fn workers(&self, cpus: &CpuSet) -> usize {
        match self.get("workers") {
            "cpus" => cpus.len(),
            number => number.parse().expect("the value was checked"),
        }
    }
}

fn check_value(option: &LoadOption, value: &str) -> Result<(), Problem> {
    let name = option.name;
    let wrong = |allowed: String| Err(Problem::new(format!("{name}={value}: {allowed}")));
    let in_range = |min: i64, max: i64| value.parse().is_ok_and(|n| (min..=max).contains(&n));
    match option.kind {
        ValueKind::Number { min, max } if !in_range(min, max) => {
            wrong(format!("write a whole number from {min} to {max}"))
        }
        ValueKind::Workers if value != "cpus" && !in_range(1, WORKERS_MAX) => wrong(format!(
            "write a number from 1 to {WORKERS_MAX}, or cpus for as many as there are CPUs"
        )),
        ValueKind::Size { min, max }
            if !bytes_of(value).is_some_and(|n| (min..=max).contains(&n)) =>
        {
            let range = format!("write a size from {} to {}", size_text(min), size_text(max));
            wrong(match without_unit(value) {
                Some(whole) => {
                    format!("{value:?} lacks its unit: write {whole}, or {}", &range[6..])
                }
                None => range,
            })
        }
        ValueKind::Word(words) if !words.contains(&value) => {
            let message = format!("{name}={value}: write one of {}", words.join(", "));
            Err(Problem::new(message).suggest(value, words.iter().copied()))
        }
        ValueKind::Flag if !matches!(value, "true" | "false") => {
            wrong("write true or false".to_owned())
        }
        ValueKind::Cpus if !matches!(value, "all" | "measured" | "others") => {
            match value.parse::<CpuSet>() {
                Ok(set) if !set.is_empty() => Ok(()),
                _ => wrong("write all, measured, others, or a set such as 0-3,6".to_owned())
                    .map_err(|problem| problem.suggest(value, ["all", "measured", "others"])),
            }
        }
        _ => Ok(()),
    }
}

const SIZE_UNITS: [(&str, u32); 5] = [("GiB", 30), ("MiB", 20), ("KiB", 10), ("B", 0), ("", 0)];

/// The number of bytes in a text as `64KiB`, `2MiB`, `100`.
fn bytes_of(text: &str) -> Option<u64> {
    let (number, shift) =
        SIZE_UNITS.iter().find_map(|(suffix, shift)| Some((text.strip_suffix(suffix)?, *shift)))?;
    number.parse::<u64>().ok()?.checked_mul(1 << shift)
}

/// A size with the unit that its letter perhaps stands for: `2MiB` for `2M`.
fn without_unit(value: &str) -> Option<String> {
    let number = value.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let unit = match value[number.len()..].to_ascii_lowercase().as_str() {
        "k" | "kb" => "KiB",
        "m" | "mb" => "MiB",
        "g" | "gb" => "GiB",
        _ => return None,
    };
    let whole = format!("{number}{unit}");
    bytes_of(&whole).map(|_| whole)
}

/// A number of bytes in the largest unit that divides it.
pub(super) fn size_text(bytes: u64) -> String {
    let fits = |(_, shift): &&(&str, u32)| bytes > 0 && bytes.is_multiple_of(1 << shift);
    let (suffix, shift) = SIZE_UNITS.iter().find(fits).unwrap_or(&("B", 0));
    format!("{}{suffix}", bytes >> shift)
}

#[cfg(test)]
mod tests {
    use super::*;

    const OWN: &[LoadOption] = &[
        LoadOption {
            name: "groups",
            kind: ValueKind::Number { min: 1, max: 100 },
            default: "10",
            about: "",
        },
        LoadOption {
            name: "size",
            kind: ValueKind::Size { min: 1, max: 1 << 20 },
            default: "64KiB",
            about: "",
        },
        LoadOption {
            name: "via",
            kind: ValueKind::Word(&["socket", "pipe"]),
            default: "socket",
            about: "",
        },
        LoadOption { name: "workers", kind: ValueKind::Workers, default: "cpus", about: "" },
    ];

    fn read(line: &str) -> Result<LoadOptions, Problem> {
        LoadOptions::parse(&line.parse().expect("a line"), OWN)
    }

    #[test]
    fn defaults_are_filled_in() {
        let options = read("message groups=3 policy=fifo").expect("right");
        assert_eq!((options.number("groups"), options.size("size")), (3, 64 << 10));
        assert_eq!((options.word("via"), options.given("priority")), ("socket", None));
        let two: CpuSet = [0, 5].into_iter().collect();
        assert_eq!(options.workers(&two), 2);
        assert_eq!(read("message workers=7").expect("right").workers(&two), 7);
    }

    #[test]
    fn mistakes_are_named_with_a_suggestion() {
        let refused = |line: &str| {
            let problem = read(line).expect_err(line);
            (problem.message, problem.suggestion.unwrap_or_default())
        };
        assert_eq!(refused("message gruops=3").1, "groups");
        assert!(
            refused("message gruops=3").0.contains("load \"message\" has no option \"gruops\"")
        );
        assert_eq!(refused("message via=sockt").1, "socket");
        assert_eq!(refused("message policy=fio").1, "fifo");
        assert_eq!(refused("message cpus=mesured").1, "measured");
        for (line, advice) in [
            ("message groups=0", "from 1 to 100"),
            ("message groups=many", "from 1 to 100"),
            ("message size=2MiB", "from 1B to 1MiB"),
            ("message size=64QiB", "from 1B to 1MiB"),
            ("message size=2k", "\"2k\" lacks its unit: write 2KiB, or a size from 1B to 1MiB"),
            ("message size=64KB", "lacks its unit: write 64KiB"),
            ("message workers=0", "or cpus"),
            ("message policy=fifo priority=100", "from 1 to 99"),
            ("message priority=5", "write policy=fifo"),
            ("message policy=rr nice=5", "leave it out"),
            ("message nice=20", "from -20 to 19"),
            ("message cpus=3-1", "as 0-3,6"),
        ] {
            assert!(refused(line).0.contains(advice), "{line}: {:?}", refused(line));
        }
    }

    #[test]
    fn sizes_are_read_and_written() {
        for (text, bytes) in
            [("100B", 100), ("64KiB", 65_536), ("3MiB", 3 << 20), ("1GiB", 1 << 30)]
        {
            assert_eq!(bytes_of(text), Some(bytes));
            assert_eq!(size_text(bytes), text);
        }
        assert_eq!(bytes_of("100"), Some(100));
        for wrong in ["", "KiB", "-1", "1.5MiB", "1KB", "99999999999GiB"] {
            assert_eq!(bytes_of(wrong), None, "{wrong:?}");
        }
    }
}
