//! Lines of a GPIO chip, through its character device (`linux/gpio.h`, version 2): set by a generator, and
//! looked at by the kernel itself, which stamps each edge in the line's interrupt.
//!
//! The kernel numbers the edges of a line. A number that is left out is an edge that the kernel saw and had
//! no room for: it is counted, and the time around it is a gap. What it can't show: edges that the chip
//! itself swallowed, because they came faster than its interrupt was served; edges that came before the
//! interrupt's thread ran, which gives the numbers; and how late the interrupt was, which is in the stamp.

use std::{os::unix::fs::MetadataExt as _, path::Path, time::Duration};

use gpiocdev::{
    Chip, Request,
    line::{EdgeDetection, EdgeKind, Offset, Value},
    request::Builder,
};
use rtscope_model::wave::{Capture, Edge, Gap};
use rtscope_sys::{clock::Clock, tree::Tree};

use super::{WaveError, scope::CaptureLimits};

/// Edges that the kernel keeps for us: the most that it takes (64 lines of 16).
const KERNEL_EVENTS: u32 = 1_024;

/// Edges read at a time.
const READ_EVENTS: usize = 64;

/// A stamp is believed to so many nanoseconds: two readings of the kernel's clock in an interrupt.
const STAMP_NS: u64 = 1_000;

/// The longest wait for an edge, after which the clock is looked at.
const WAIT_MAX: Duration = Duration::from_millis(100);

/// Who holds our lines, for others.
const CONSUMER: &str = "rtscope";

/// A line that a wave is made on.
#[derive(Debug)]
pub struct OutputLine {
    request: Request,
    offset: Offset,
}

impl OutputLine {
    /// Takes a line, low. The chip is a name as `gpiochip0` or a chip's label, the line a number or a name.
    ///
    /// # Errors
    ///
    /// When there is no such chip or line, no permission, or somebody else has the line.
    pub fn open(chip: &str, line: &str, tree: &Tree) -> Result<OutputLine, WaveError> {
        let (request, offset) =
            take(chip, line, tree, |builder| builder.as_output(Value::Inactive))?;
        Ok(OutputLine { request, offset })
    }

    /// Raises or lowers it. False when the kernel refuses, as it does when the chip is gone.
    #[inline]
    pub fn set(&self, high: bool) -> bool {
        let value = if high { Value::Active } else { Value::Inactive };
        self.request.set_value(self.offset, value).is_ok()
    }
}

/// An edge as the kernel tells it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LineEdge {
    /// When, in nanoseconds of `CLOCK_MONOTONIC`.
    pub at_ns: u64,
    /// Whether the line rose.
    pub rises: bool,
    /// Its number among the line's edges, from 1.
    pub number: u32,
}

/// Where events come from.
pub trait Events {
    /// The next one; none when there was none within a time.
    ///
    /// # Errors
    ///
    /// Why there will be none any more, for people.
    fn next(&mut self, wait: Duration) -> Result<Option<LineEdge>, String>;

    /// The number of the last event that was taken; 0 before the first.
    fn last(&self) -> u32;
}

/// A line that is looked at.
#[derive(Debug)]
pub struct InputLine {
    request: Request,
    buffer: Vec<u64>,
    /// Words of the buffer that were read, and where the next event begins.
    read: usize,
    next: usize,
    last: u32,
}

impl InputLine {
    /// Takes a line as an input with an event for each edge.
    ///
    /// # Errors
    ///
    /// As [`OutputLine::open`]; and when its chip can't tell edges.
    pub fn open(chip: &str, line: &str, tree: &Tree) -> Result<InputLine, WaveError> {
        let both = |builder: &mut Builder| {
            builder
                .as_input()
                .with_edge_detection(EdgeDetection::BothEdges)
                .with_kernel_event_buffer_size(KERNEL_EVENTS);
        };
        let (request, _) = take(chip, line, tree, |builder| {
            both(builder);
            builder
        })?;
        let buffer = vec![0; request.edge_event_u64_size() * READ_EVENTS];
        Ok(InputLine { request, buffer, read: 0, next: 0, last: 0 })
    }

    /// Drops what came between two looks, so that it is neither seen nor lost in the next one.
    pub fn forget(&mut self) -> Result<(), String> {
        while self.next(Duration::ZERO)?.is_some() {}
        Ok(())
    }
}

impl Events for InputLine {
    fn next(&mut self, wait: Duration) -> Result<Option<LineEdge>, String> {
        let gone = |e: gpiocdev::Error| format!("the line can't be read any more: {e}");
        if self.next == self.read {
            if !self.request.wait_edge_event(wait).map_err(gone)? {
                return Ok(None);
            }
            self.read = self.request.read_edge_events_into_slice(&mut self.buffer).map_err(gone)?;
            self.next = 0;
        }
        let end = self.next + self.request.edge_event_u64_size();
        let Some(words) = self.buffer[..self.read].get(self.next..end) else {
            self.next = self.read;
            return Ok(None);
        };
        let event = self.request.edge_event_from_slice(words).map_err(gone)?;
        (self.next, self.last) = (end, event.line_seqno);
        Ok(Some(LineEdge {
            at_ns: event.timestamp_ns,
            rises: event.kind == EdgeKind::Rising,
            number: event.line_seqno,
        }))
    }

    fn last(&self) -> u32 {
        self.last
    }
}

/// Collects a line's events. The second value says why it ended before its time, where it did.
pub fn collect(
    events: &mut impl Events,
    name: &str,
    clock: &impl Clock,
    limits: CaptureLimits,
) -> (Capture, Option<String>) {
    let start_ns = clock.now_ns();
    let until_ns = start_ns.saturating_add(limits.duration_ns);
    let mut capture = Capture {
        line: name.to_owned(),
        start_ns,
        end_ns: until_ns,
        resolution_ns: STAMP_NS,
        starts_high: None,
        edges: Vec::new(),
        gaps: Vec::new(),
        made: None,
        made_in_gaps: None,
        is_full: false,
    };
    let (mut last_number, mut last_ns, mut lost) = (events.last(), start_ns, 0_u64);
    let ended = loop {
        if capture.edges.len() == limits.edges_max || capture.gaps.len() == limits.gaps_max {
            capture.is_full = true;
            break None;
        }
        let left = Duration::from_nanos(until_ns.saturating_sub(clock.now_ns()));
        match events.next(left.min(WAIT_MAX)) {
            Ok(Some(event)) if event.at_ns > until_ns => break None,
            Ok(Some(event)) => {
                let missing = u64::from(event.number.wrapping_sub(last_number).wrapping_sub(1));
                // The first event may have been stamped before our own first reading of the clock.
                let at_ns = event.at_ns.max(last_ns);
                if missing > 0 {
                    let moved = missing % 2 == 1;
                    capture.gaps.push(Gap { start_ns: last_ns, end_ns: at_ns, moved });
                    lost += missing;
                }
                capture.edges.push(Edge::new(at_ns, event.rises));
                (last_number, last_ns) = (event.number, at_ns);
            }
            Ok(None) if left.is_zero() => break None,
            Ok(None) => {}
            Err(why) => break Some(why),
        }
    };
    if ended.is_some() || capture.is_full {
        capture.end_ns = last_ns;
    }
    capture.made = Some(capture.edges.len() as u64 + lost);
    capture.made_in_gaps = Some(lost);
    (capture, ended)
}

fn take(
    chip: &str,
    line: &str,
    tree: &Tree,
    configure: impl Fn(&mut Builder) -> &mut Builder,
) -> Result<(Request, Offset), WaveError> {
    let address = format!("gpio:{chip}/{line}");
    let refused = |why: String| WaveError::Gpio { line: address.clone(), why };
    let path = chip_path(chip, tree)?;
    let device = Chip::from_path(&path).map_err(|e| refused(opening(&path, &e.to_string())))?;
    let info = device.info().map_err(|e| refused(e.to_string()))?;
    let offset = match line.parse::<Offset>() {
        Ok(number) if number < info.num_lines => number,
        Ok(_) => {
            let last = info.num_lines.saturating_sub(1);
            return Err(refused(format!("{} has lines 0 to {last}", info.name)));
        }
        Err(_) => match device.find_line_info(line) {
            Some(found) => found.offset,
            None => return Err(refused(format!("no line of {} has that name", info.name))),
        },
    };
    let mut builder = Request::builder();
    configure(builder.on_chip(&path).with_consumer(CONSUMER).with_line(offset));
    let request = builder.request().map_err(|e| {
        // Who holds it is known to the kernel only by the name that it was given.
        let holder = device.line_info(offset).ok().filter(|info| info.used);
        refused(match holder.map(|info| info.consumer) {
            Some(consumer) if consumer.is_empty() => "it is in use by the kernel".to_owned(),
            Some(consumer) => format!("it is in use by {consumer:?}"),
            None => format!("{e}"),
        })
    })?;
    Ok((request, offset))
}

/// The device of a chip by its name or label.
fn chip_path(chip: &str, tree: &Tree) -> Result<std::path::PathBuf, WaveError> {
    let name = chip.strip_prefix("/dev/").unwrap_or(chip);
    let there: Vec<String> = tree
        .list("sys/bus/gpio/devices")
        .into_iter()
        .filter(|name| name.starts_with("gpiochip"))
        .collect();
    if there.iter().any(|known| known == name) {
        return Ok(tree.path(Path::new("dev").join(name)));
    }
    let label = |known: &str| {
        let path = tree.path(Path::new("dev").join(known));
        Chip::from_path(path).and_then(|chip| chip.info()).map(|info| info.label).ok()
    };
    let labels: Vec<(String, Option<String>)> =
        there.iter().map(|known| (known.clone(), label(known))).collect();
    if let Some((known, _)) = labels.iter().find(|(_, label)| label.as_deref() == Some(name)) {
        return Ok(tree.path(Path::new("dev").join(known)));
    }
    let words = |(known, label): &(String, Option<String>)| match label {
        Some(label) => format!("{known} ({label})"),
        None => known.clone(),
    };
    let there = labels.iter().map(words).collect();
    Err(WaveError::Absent { what: format!("GPIO chip {chip}"), there })
}

/// Why a chip can't be opened, and what to do when it is a matter of permission.
fn opening(path: &Path, why: &str) -> String {
    let unreadable = std::fs::File::options().read(true).write(true).open(path).err();
    if unreadable.is_none_or(|e| e.kind() != std::io::ErrorKind::PermissionDenied) {
        return why.to_owned();
    }
    let gid = std::fs::metadata(path).map_or(0, |found| found.gid());
    format!("no permission for {}: {}", path.display(), remedy(gid, &Tree::default()))
}

/// Who may open a file of a group.
fn remedy(gid: u32, tree: &Tree) -> String {
    let groups = tree.read("etc/group").unwrap_or_default();
    let named = |line: &str| {
        let mut fields = line.split(':');
        let name = fields.next()?.to_owned();
        (fields.nth(1)?.parse() == Ok(gid)).then_some(name)
    };
    match groups.lines().find_map(named) {
        Some(group) if gid != 0 => {
            format!(
                "only the group {group} may open it; run `sudo usermod -aG {group} $USER` and log in again"
            )
        }
        _ => "only root may open it".to_owned(),
    }
}

#[cfg(test)]
mod tests;
