//! CSV of sigrok (sigrok-cli, PulseView): comments that begin with `;`, `META samplerate: 1000000`, perhaps a
//! row of names, then a row for each sample with 0 or 1 for each channel. A first column may hold times.

use super::{CHANNELS_MAX, Channel, Content, Findings, LAST_NS, Unreadable, shown};

/// Rows that are looked at to know a file.
const HEAD: usize = 50;

pub(super) fn is_one(text: &str) -> bool {
    let is_value = |field: &str| field.trim().parse::<f64>().is_ok();
    let is_row = |line: &str| line.contains(',') && line.split(',').all(is_value);
    says_so(text) || text.lines().take(HEAD).any(|line| is_row(line.trim()))
}

/// Whether the text names the format: sigrok's own heads, or the one of exported times.
pub(super) fn says_so(text: &str) -> bool {
    let heads = ["; CSV", "META samplerate", "Time [s],"];
    text.lines().take(HEAD).any(|line| heads.iter().any(|head| line.trim().starts_with(head)))
}

/// What the first column is.
#[derive(Clone, Copy)]
enum Times {
    /// None: rows are samples.
    None,
    /// Times in so many nanoseconds; the first column is none of a channel.
    Column(f64),
    /// The first column is there and says nothing.
    Ignored,
}

struct Reader {
    content: Content,
    names: Vec<String>,
    samples_hz: Option<f64>,
    times: Times,
    /// Rows of values so far.
    rows: u64,
    now_ns: u64,
}

pub(super) fn read(text: &str, samples_hz: Option<f64>) -> Result<Content, Unreadable> {
    let content = Content {
        format: "sigrok CSV",
        channels: Vec::new(),
        start_ns: None,
        end_ns: 0,
        resolution_ns: 0,
        is_rate_known: true,
        made: None,
        made_in_gaps: None,
        findings: Findings::default(),
    };
    let mut reader = Reader {
        content,
        names: Vec::new(),
        samples_hz: samples_hz.filter(|hz| *hz > 0.0),
        times: Times::None,
        rows: 0,
        now_ns: 0,
    };
    for (number, line) in text.lines().enumerate() {
        reader.line(number, line.trim())?;
    }
    Ok(reader.content)
}

impl Reader {
    fn line(&mut self, number: usize, line: &str) -> Result<(), Unreadable> {
        if let Some(said) = line.strip_prefix("META samplerate:") {
            self.samples_hz = said.trim().parse().ok().filter(|hz| *hz > 0.0).or(self.samples_hz);
        } else if let Some(comment) = line.strip_prefix(';') {
            self.comment(comment.trim());
        } else if !line.is_empty() {
            let fields: Vec<&str> =
                line.split(',').map(|field| field.trim().trim_matches('"')).collect();
            let is_header =
                self.rows == 0 && fields.iter().any(|field| field.parse::<f64>().is_err());
            if is_header && self.content.channels.is_empty() {
                self.header(&fields);
            } else {
                self.row(number, &fields)?;
            }
        }
        Ok(())
    }

    fn comment(&mut self, text: &str) {
        if let Some((_, rate)) = text.split_once("amplerate:") {
            self.samples_hz = frequency(rate.trim()).or(self.samples_hz);
        } else if let Some(rest) = text.strip_prefix("Channels")
            && let Some((_, names)) = rest.split_once(':')
        {
            self.names = names.split(',').map(|name| name.trim().to_owned()).collect();
        }
    }

    fn header(&mut self, fields: &[&str]) {
        let first = fields[0].to_ascii_lowercase();
        self.times = match first.as_str() {
            "samples" => Times::Ignored,
            "nanoseconds" => Times::Column(1.0),
            "microseconds" => Times::Column(1e3),
            "milliseconds" => Times::Column(1e6),
            "seconds" => Times::Column(1e9),
            text if text.starts_with("time") => Times::Column(1e9),
            _ => Times::None,
        };
        let names = &fields[usize::from(!matches!(self.times, Times::None))..];
        // "logic" is sigrok's word for every digital channel.
        let are_names = names.iter().all(|name| *name != "logic");
        if are_names || self.names.len() != names.len() {
            let name = |(n, name): (usize, &&str)| match are_names {
                true => (*name).to_owned(),
                false => format!("D{n}"),
            };
            self.names = names.iter().enumerate().map(name).collect();
        }
        self.open(names.len());
    }

    fn open(&mut self, count: usize) {
        let name = |n: usize| self.names.get(n).cloned().unwrap_or_else(|| format!("D{n}"));
        let channels = (0..count.min(CHANNELS_MAX)).map(|n| Channel::new(&name(n)));
        self.content.channels = channels.collect();
    }

    fn row(&mut self, number: usize, fields: &[&str]) -> Result<(), Unreadable> {
        let values = match self.times {
            Times::None => fields,
            _ => fields.get(1..).unwrap_or_default(),
        };
        if self.content.channels.is_empty() {
            self.open(values.len());
        }
        let row = self.rows;
        self.rows += 1;
        let Some(at_ns) = self.at_ns(number, row, fields[0])? else { return Ok(()) };
        self.resolve(fields[0]);
        self.now_ns = at_ns;
        self.content.start_ns.get_or_insert(at_ns);
        self.content.end_ns = at_ns;
        let wanted = self.content.channels.len();
        let is_whole = values.len() == wanted || (wanted == CHANNELS_MAX && values.len() > wanted);
        let mut wrong = !is_whole;
        for (n, channel) in self.content.channels.iter_mut().enumerate() {
            let value = match values.get(n).filter(|_| is_whole) {
                Some(&"0") => Some(false),
                Some(&"1") => Some(true),
                _ => None,
            };
            wrong |= value.is_none();
            channel.feed(at_ns, value);
        }
        if wrong {
            let text = fields.join(",");
            self.content.findings.add(number, || {
                format!("{} is not a valid sample: treated as a gap", shown(&text))
            });
        }
        Ok(())
    }

    /// The resolution: the time of a sample, or a unit in the last place of the times.
    fn resolve(&mut self, first: &str) {
        let ns = match self.times {
            Times::Column(unit_ns) => {
                let places = first.split_once('.').map_or(0, |(_, places)| places.len());
                unit_ns / 10_f64.powi(places.min(18) as i32)
            }
            _ => 1e9 / self.samples_hz.unwrap_or(1e9),
        };
        let ns = ns.ceil().max(1.0) as u64;
        let least = self.content.resolution_ns;
        self.content.resolution_ns = if least == 0 { ns } else { least.min(ns) };
    }

    /// When a row was sampled. None when its time makes no sense.
    fn at_ns(&mut self, number: usize, row: u64, first: &str) -> Result<Option<u64>, Unreadable> {
        let at_ns = match self.times {
            Times::Column(unit_ns) => {
                first.parse::<f64>().ok().map(|time| (time * unit_ns).round())
            }
            _ => {
                let hz = self.samples_hz.ok_or(Unreadable::NoTimes)?;
                Some((row as f64 * 1e9 / hz).round())
            }
        };
        let sound = at_ns.filter(|ns| *ns >= self.now_ns as f64 && *ns < LAST_NS as f64);
        if sound.is_none() {
            let findings = &mut self.content.findings;
            findings.add(number, || {
                format!("{} is not a time at or after the previous one: row left out", shown(first))
            });
        }
        Ok(sound.map(|ns| ns as u64))
    }
}

/// Hertz of `1 MHz`.
fn frequency(text: &str) -> Option<f64> {
    let units = [("GHz", 1e9), ("MHz", 1e6), ("kHz", 1e3), ("Hz", 1.0), ("", 1.0)];
    let (number, unit) =
        units.iter().find_map(|(suffix, unit)| Some((text.strip_suffix(suffix)?, *unit)))?;
    number.trim().parse::<f64>().ok().map(|n| n * unit).filter(|hz| hz.is_finite() && *hz > 0.0)
}
