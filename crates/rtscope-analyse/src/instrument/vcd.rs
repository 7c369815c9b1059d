//! VCD, the value change dump of IEEE Std 1364, 21.7: `$timescale 1 us $end`, `$var wire 1 ! D0 $end`, then
//! `#time` and changes as `1!`.
//!
//! Our own captures are VCD too: an unknown level is a gap, and a comment holds the resolution and the
//! counts of the line's program.

use std::{collections::HashMap, fmt::Write as _};

use rtscope_model::wave::Capture;

use super::{CHANNELS_MAX, Channel, Content, Findings, LAST_NS, shown};

/// Before what only we write into a comment.
const OURS: &str = "rtscope-capture";

/// How much of a file is looked at to know it.
const HEAD: usize = 64 << 10;

pub(super) fn is_one(text: &str) -> bool {
    let mut words = text.split_ascii_whitespace().take(HEAD / 8);
    words.any(|word| matches!(word, "$timescale" | "$enddefinitions" | "$var"))
}

/// A section up to its `$end`.
#[derive(Default)]
struct Section {
    name: String,
    words: Vec<String>,
}

struct Reader {
    content: Content,
    /// Picoseconds of a unit of time.
    unit_ps: Option<u128>,
    places: HashMap<String, usize>,
    section: Option<Section>,
    /// The value of a vector, whose identifier comes next.
    vector: Option<Option<bool>>,
    now_ns: u64,
}

pub(super) fn read(text: &str) -> Content {
    let content = Content {
        format: "VCD",
        channels: Vec::new(),
        start_ns: None,
        end_ns: 0,
        resolution_ns: 1,
        is_rate_known: false,
        made: None,
        made_in_gaps: None,
        findings: Findings::default(),
    };
    let mut reader = Reader {
        content,
        unit_ps: None,
        places: HashMap::new(),
        section: None,
        vector: None,
        now_ns: 0,
    };
    let mut last_line = 0;
    for (number, line) in text.lines().enumerate() {
        line.split_ascii_whitespace().for_each(|word| reader.word(number, word));
        last_line = number;
    }
    if reader.section.is_some() {
        reader.content.findings.add(last_line, || "the file ends within a section".to_owned());
    }
    reader.content
}

impl Reader {
    fn word(&mut self, line: usize, word: &str) {
        if let Some(mut section) = self.section.take() {
            if word == "$end" {
                self.close(line, &section);
            } else {
                // A section that never ends holds the rest of the file: only its beginning matters.
                if section.words.len() < 64 {
                    section.words.push(word.to_owned());
                }
                self.section = Some(section);
            }
            return;
        }
        if let Some(value) = self.vector.take() {
            return self.change(line, word, value);
        }
        let mut rest = word.chars();
        match rest.next() {
            Some('$') => match word {
                "$dumpvars" | "$dumpall" | "$dumpon" | "$dumpoff" | "$end" => {}
                _ => self.section = Some(Section { name: word.to_owned(), words: Vec::new() }),
            },
            Some('#') => self.time(line, rest.as_str()),
            Some('0') => self.change(line, rest.as_str(), Some(false)),
            Some('1') => self.change(line, rest.as_str(), Some(true)),
            Some('x' | 'X' | 'z' | 'Z') => self.change(line, rest.as_str(), None),
            Some('b' | 'B' | 'r' | 'R') => {
                let value = match word.chars().next_back() {
                    Some('0') => Some(false),
                    Some('1') => Some(true),
                    _ => None,
                };
                self.vector = Some(value);
            }
            _ => {
                self.content.findings.add(line, || format!("{} is not a value change", shown(word)))
            }
        }
    }

    fn close(&mut self, line: usize, section: &Section) {
        match section.name.as_str() {
            "$timescale" => {
                self.unit_ps = unit_ps(&section.words.concat());
                match self.unit_ps {
                    Some(ps) => self.content.resolution_ns = ps.div_ceil(1_000).max(1) as u64,
                    None => {
                        let words = section.words.join(" ");
                        let findings = &mut self.content.findings;
                        findings.add(line, || format!("{} is not a time scale", shown(&words)));
                    }
                }
            }
            "$var" => self.variable(line, &section.words),
            "$comment" if section.words.first().is_some_and(|word| word == OURS) => {
                self.content.is_rate_known = true;
                self.ours(&section.words);
            }
            _ => {}
        }
    }

    fn variable(&mut self, line: usize, words: &[String]) {
        let [_, size, id, name, ..] = words else {
            return self.content.findings.add(line, || "a variable without a name".to_owned());
        };
        // Of vectors and real numbers nothing is told here; their changes are known and skipped.
        let place = if size == "1" && self.content.channels.len() < CHANNELS_MAX {
            self.content.channels.push(Channel::new(name));
            self.content.channels.len() - 1
        } else {
            usize::MAX
        };
        self.places.insert(id.clone(), place);
    }

    fn ours(&mut self, words: &[String]) {
        let value = |name: &str| {
            let found = words.iter().find_map(|word| word.strip_prefix(name)?.strip_prefix('='));
            found.and_then(|text| text.parse::<u64>().ok())
        };
        self.content.resolution_ns = value("resolution_ns").unwrap_or(self.content.resolution_ns);
        self.content.made = value("made");
        self.content.made_in_gaps = value("made_in_gaps");
    }

    fn time(&mut self, line: usize, digits: &str) {
        let findings = &mut self.content.findings;
        let unit_ps = *self.unit_ps.get_or_insert_with(|| {
            findings.add(line, || "no time scale: 1 ns is assumed".to_owned());
            1_000
        });
        let Ok(units) = digits.parse::<u64>() else {
            return findings.add(line, || format!("{} is not a time", shown(digits)));
        };
        // Rounded to the nearest nanosecond.
        let at_ns = (u128::from(units) * unit_ps + 500) / 1_000;
        if at_ns > LAST_NS {
            return findings.add(line, || "a time beyond 100 years is left out".to_owned());
        }
        let at_ns = at_ns as u64;
        if at_ns < self.now_ns {
            return findings.add(line, || "time goes backwards: this time is ignored".to_owned());
        }
        self.now_ns = at_ns;
        self.content.start_ns.get_or_insert(at_ns);
        self.content.end_ns = at_ns;
    }

    fn change(&mut self, line: usize, id: &str, value: Option<bool>) {
        match self.places.get(id) {
            Some(&place) => {
                let Some(channel) = self.content.channels.get_mut(place) else { return };
                match self.content.start_ns {
                    Some(_) => channel.feed(self.now_ns, value),
                    // Before the first instant it is the level from which the line starts.
                    None => channel.level = value,
                }
            }
            None => {
                self.content
                    .findings
                    .add(line, || format!("a change of {}, which no variable declares", shown(id)));
            }
        }
    }
}

/// Picoseconds of `1us`, `10ns`, `100fs`.
fn unit_ps(text: &str) -> Option<u128> {
    let units = [
        ("fs", 1, 1_000),
        ("ps", 1, 1),
        ("ns", 1_000, 1),
        ("us", 1_000_000, 1),
        ("ms", 1_000_000_000, 1),
        ("s", 1_000_000_000_000, 1),
    ];
    let (number, times, parts) = units
        .iter()
        .find_map(|(unit, times, parts)| Some((text.strip_suffix(unit)?, *times, *parts)))?;
    let number: u128 = number.parse().ok().filter(|n| [1, 10, 100].contains(n))?;
    // Femtoseconds below a picosecond would need another unit: no analyser of square waves has them.
    (number * times).is_multiple_of(parts).then_some(number * times / parts).filter(|ps| *ps > 0)
}

/// A capture as VCD: gaps are unknown levels.
#[must_use]
pub fn write(capture: &Capture) -> String {
    let mut text =
        format!("$timescale 1 ns $end\n$comment {OURS} resolution_ns={}", capture.resolution_ns);
    // A scope that can't tell how many edges were in gaps writes no count, so that a reader doesn't assume 0.
    for (word, count) in [("made", capture.made), ("made_in_gaps", capture.made_in_gaps)] {
        if let Some(count) = count {
            let _ = write!(text, " {word}={count}");
        }
    }
    // A name must not contain blanks, and must not be a keyword such as `$end`.
    let name: String =
        capture.line.chars().map(|c| if c.is_whitespace() || c == '$' { '_' } else { c }).collect();
    let name = if name.is_empty() { "line" } else { &name };
    let _ = write!(
        text,
        " $end\n$scope module rtscope $end\n$var wire 1 ! {name} $end\n\
         $upscope $end\n$enddefinitions $end\n"
    );
    let mut level = capture.level_at_start();
    let _ = writeln!(text, "#{} {}!", capture.start_ns, u8::from(level));
    let mut gaps = capture.gaps.iter().peekable();
    let mut gap_to = |text: &mut String, level: &mut bool, at_ns: u64| {
        while let Some(gap) = gaps.next_if(|gap| gap.end_ns <= at_ns) {
            *level ^= gap.moved;
            let _ = writeln!(text, "#{} x!\n#{} {}!", gap.start_ns, gap.end_ns, u8::from(*level));
        }
    };
    for edge in &capture.edges {
        gap_to(&mut text, &mut level, edge.at_ns());
        level = edge.rises();
        let _ = writeln!(text, "#{} {}!", edge.at_ns(), u8::from(level));
    }
    gap_to(&mut text, &mut level, u64::MAX);
    let _ = writeln!(text, "#{}", capture.end_ns);
    text
}
