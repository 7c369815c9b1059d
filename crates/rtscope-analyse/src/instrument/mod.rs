//! Captures of instruments: files of logic analysers as what our own scope would have seen.
//!
//! Two formats: VCD (also pigpio's piscope, and our own captures), where an unknown level (`x`, `z`) is a
//! gap; and sigrok's CSV. Whatever is wrong with a file is a finding; what could be read is kept.

mod csv;
mod grid;
mod vcd;

use rtscope_model::{
    printable::printable,
    time::Nanos,
    wave::{Capture, Edge, Gap},
};

pub use self::vcd::write as write_vcd;

/// Findings that are kept one by one.
const FINDINGS_MAX: usize = 20;

/// Channels of a file, at most.
const CHANNELS_MAX: usize = 64;

/// Instants beyond this are no instants.
const LAST_NS: u128 = 1 << 62;

/// What a file holds of one channel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CaptureReading {
    /// The channel, as a scope of ours would have captured it.
    pub capture: Capture,
    pub format: &'static str,
    pub channels: Vec<String>,
    /// What is wrong with the file, for people.
    pub findings: Vec<String>,
}

/// What to read of a file.
#[derive(Clone, Copy, Debug, Default)]
pub struct CaptureChoice<'a> {
    /// The channel; without one the only one that changes.
    pub channel: Option<&'a str>,
    /// Samples in a second, for files that don't say, or whose unit of time is shorter than a sample.
    pub samples_hz: Option<f64>,
}

/// Why a file gives no capture.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unreadable {
    #[error("it is neither VCD (value change dump) nor CSV of sigrok: save it as one of them")]
    Format,
    #[error("it has no one-bit channel")]
    NoChannel,
    #[error("it has no channel {asked:?}; there are {}", there.join(", "))]
    Absent { asked: String, there: Vec<String> },
    #[error("several channels change: choose one with --channel: {}", there.join(", "))]
    Several {
        /// Those, with their edges.
        there: Vec<String>,
    },
    #[error("it doesn't give its sample rate: add --samplerate, for example --samplerate 1MHz")]
    NoTimes,
}

/// Whether a file that begins so says that it is a capture. Rows of bare numbers may be one too, and may as well
/// be latencies.
#[must_use]
pub fn is_capture(beginning: &[u8]) -> bool {
    let text = String::from_utf8_lossy(beginning);
    vcd::is_one(&text) || csv::says_so(&text)
}

/// Reads a file.
///
/// # Errors
///
/// When it has no known format, no such channel, or no times.
pub fn read(bytes: &[u8], choice: CaptureChoice<'_>) -> Result<CaptureReading, Unreadable> {
    let text = String::from_utf8_lossy(bytes);
    let content = if vcd::is_one(&text) {
        vcd::read(&text)
    } else if csv::is_one(&text) {
        csv::read(&text, choice.samples_hz)?
    } else {
        return Err(Unreadable::Format);
    };
    content.choose(choice)
}

/// A file's channels, however it was written.
struct Content {
    format: &'static str,
    channels: Vec<Channel>,
    start_ns: Option<u64>,
    end_ns: u64,
    resolution_ns: u64,
    /// Whether the file tells how often its instrument sampled.
    is_rate_known: bool,
    /// How many edges the line's program made, and how many of them in gaps, if the file has these counts.
    made: Option<u64>,
    made_in_gaps: Option<u64>,
    findings: Findings,
}

impl Content {
    fn choose(self, choice: CaptureChoice<'_>) -> Result<CaptureReading, Unreadable> {
        let asked = choice.channel;
        let names: Vec<String> = self.channels.iter().map(|one| one.name.clone()).collect();
        let mut changing = self.channels.iter().enumerate().filter(|(_, one)| one.is_changing());
        let place = match asked {
            Some(asked) => names.iter().position(|name| name == asked).ok_or_else(|| {
                Unreadable::Absent { asked: asked.to_owned(), there: names.clone() }
            })?,
            None => match (changing.next(), changing.next()) {
                (Some((place, _)), None) => place,
                (None, _) if names.is_empty() => return Err(Unreadable::NoChannel),
                (None, _) => 0,
                (Some(_), Some(_)) => {
                    let all = self.channels.iter().filter(|one| one.is_changing());
                    let there = all.map(|one| format!("{} ({} edges)", one.name, one.edges.len()));
                    return Err(Unreadable::Several { there: there.collect() });
                }
            },
        };
        let mut channels = self.channels;
        let mut channel = channels.swap_remove(place);
        channel.close(self.end_ns);
        let asked_hz = choice.samples_hz.filter(|_| !self.is_rate_known);
        let sample_ns = asked_hz.map_or(0, |hz| (1e9 / hz).ceil() as u64);
        let resolution_ns = self.resolution_ns.max(sample_ns);
        let grid_ns =
            grid::distance_ns(&channel.edges, &channel.gaps).filter(|grid| *grid > resolution_ns);
        let mut findings = self.findings.finish();
        findings.extend(grid_ns.map(|grid_ns| {
            format!(
                "the edges lie on a grid of {}: the instrument may have sampled only that often, although the file counts in {}",
                Nanos(grid_ns),
                Nanos(resolution_ns)
            )
        }));
        if grid_ns.is_none() && !self.is_rate_known && asked_hz.is_none() {
            findings.extend(hidden_grid(&channel, resolution_ns));
        }
        let capture = Capture {
            line: channel.name,
            start_ns: self.start_ns.unwrap_or(0),
            end_ns: self.end_ns,
            resolution_ns: grid_ns.unwrap_or(resolution_ns).max(1),
            // The first edge tells it as well, where there is one.
            starts_high: channel.starts_high.filter(|_| channel.edges.is_empty()),
            edges: channel.edges,
            gaps: channel.gaps,
            made: self.made,
            made_in_gaps: self.made_in_gaps,
            is_full: false,
        };
        Ok(CaptureReading { capture, format: self.format, channels: names, findings })
    }
}

/// That an instrument may have sampled less often than its file's unit, although no grid shows.
fn hidden_grid(channel: &Channel, resolution_ns: u64) -> Option<String> {
    let longest_ns = grid::longest_ns(&channel.edges, &channel.gaps)?;
    (longest_ns >= 2 * resolution_ns.max(1)).then(|| {
        format!(
            "all pulses are multiples of {}, so the file doesn't show how often the instrument sampled. If it was less often than every {}, the frequency is less certain, or even that of a faster wave. Give --samplerate if you know the rate",
            Nanos(longest_ns),
            Nanos(resolution_ns)
        )
    })
}

/// A channel while its file is read.
#[derive(Debug, Default)]
struct Channel {
    name: String,
    /// The first level, unless it is unknown.
    starts_high: Option<bool>,
    is_fed: bool,
    level: Option<bool>,
    /// Since when the level is unknown, and what it was.
    unknown: Option<(u64, bool)>,
    edges: Vec<Edge>,
    gaps: Vec<Gap>,
}

impl Channel {
    fn new(name: &str) -> Channel {
        Channel { name: printable(name).into_owned(), ..Channel::default() }
    }

    /// The level from an instant on; none is unknown. Instants don't go back.
    fn feed(&mut self, at_ns: u64, value: Option<bool>) {
        if !self.is_fed {
            (self.is_fed, self.starts_high) = (true, value);
        }
        match (self.level, value) {
            (Some(before), None) => self.unknown = Some((at_ns, before)),
            (Some(before), Some(now)) if before != now => self.edges.push(Edge::new(at_ns, now)),
            (None, Some(now)) => {
                if let Some((start_ns, before)) = self.unknown.take() {
                    self.gaps.push(Gap { start_ns, end_ns: at_ns, moved: before != now });
                }
            }
            _ => {}
        }
        self.level = value;
    }

    /// The file has ended: a level that is unknown is a gap up to there.
    fn close(&mut self, end_ns: u64) {
        if let Some((start_ns, _)) = self.unknown.take() {
            self.gaps.push(Gap { start_ns, end_ns: end_ns.max(start_ns), moved: false });
        }
    }

    fn is_changing(&self) -> bool {
        !self.edges.is_empty()
    }
}

/// What is wrong with a file, up to a bound.
#[derive(Debug, Default)]
struct Findings {
    list: Vec<String>,
    more: usize,
}

impl Findings {
    fn add(&mut self, line: usize, what: impl FnOnce() -> String) {
        if self.list.len() < FINDINGS_MAX {
            self.list.push(format!("line {}: {}", line + 1, what()));
        } else {
            self.more += 1;
        }
    }

    fn finish(mut self) -> Vec<String> {
        if self.more > 0 {
            self.list.push(format!("and {} more", self.more));
        }
        self.list
    }
}

/// A word of a file in a message: short, whatever it is.
fn shown(word: &str) -> String {
    format!("{:?}", word.chars().take(24).collect::<String>())
}
