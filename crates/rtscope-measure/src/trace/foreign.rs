//! Reads the files of `trace-cmd record`, in version 6 (trace-cmd.dat.v6(5)) and in version 7 without compression
//! (trace-cmd.dat.v7(5)).

use std::sync::Arc;

use super::{Event, KernelSymbols, format::Decoder, page::Layout};

/// How each such file begins.
const MAGIC: &[u8] = b"\x17\x08\x44tracing";

/// Options of which something is read.
const DONE: u16 = 0;
const BUFFER: u16 = 3;
const TRACE_CLOCK: u16 = 4;
const UNAME: u16 = 5;
const HEADER_INFO: u16 = 16;
const FTRACE_EVENTS: u16 = 17;
const EVENT_FORMATS: u16 = 18;
const KALLSYMS: u16 = 19;

/// Sections of options in a file of version 7: one for each buffer and some more.
const OPTIONS_MAX: usize = 10_000;

/// Why a file can't be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TraceDatError {
    #[error("the file ends in the middle of {0}: it is damaged, or was not copied whole")]
    Cut(&'static str),
    #[error("the file has version {0} of trace-cmd's format: rtscope reads 6 and 7")]
    Version(String),
    #[error(
        "the file is compressed: convert it with `trace-cmd convert -i FILE -o NEW --compression none`"
    )]
    Compressed,
    #[error("the file comes from a machine with a different byte order")]
    Endian,
    #[error(
        "the file's events have the clock {0}, which doesn't count time: record with `trace-cmd record -C mono`"
    )]
    Clock(String),
    #[error("the file has {0} that rtscope doesn't know")]
    Unknown(&'static str),
    #[error("the file has overlapping {0}: it is damaged, so copy or record it again")]
    Overlapping(&'static str),
}

/// What a file holds.
#[derive(Debug)]
pub(crate) struct TraceDat {
    /// In the order of time.
    pub(crate) events: Vec<Event>,
    /// The clock of their time stamps.
    pub(crate) clock: String,
    /// Each expiry of a timer: its time stamp, and what the timer's own clock said.
    pub(crate) expiries: Vec<(u64, u64)>,
    /// Where events are missing: the last event of the CPU before, and the first one after that.
    pub(crate) gaps: Vec<(u64, u64)>,
    pub(crate) symbols: Arc<KernelSymbols>,
    /// `uname` of the machine, where it is known.
    pub(crate) machine: Option<String>,
}

/// Whether these are the first bytes of such a file.
pub(crate) fn is_trace_dat(bytes: &[u8]) -> bool {
    bytes.starts_with(MAGIC)
}

/// Reads a file.
pub(crate) fn read(bytes: &[u8]) -> Result<TraceDat, TraceDatError> {
    let mut at = Cursor { bytes, at: MAGIC.len() };
    let version = at.text("its head")?;
    if at.take(1, "its head")? != [u8::from(cfg!(target_endian = "big"))] {
        return Err(TraceDatError::Endian);
    }
    at.take(1, "its head")?;
    let mut parts = Parts { page_size: at.u32("its head")? as usize, ..Parts::default() };
    match version.as_str() {
        "6" => parts.version_6(at)?,
        "7" => parts.version_7(at)?,
        _ => return Err(TraceDatError::Version(version)),
    }
    parts.decode(bytes)
}

/// A place in the file.
#[derive(Clone, Copy, Debug)]
struct Cursor<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Cursor<'a> {
    fn take(&mut self, count: u64, part: &'static str) -> Result<&'a [u8], TraceDatError> {
        let end = usize::try_from(count).ok().and_then(|count| self.at.checked_add(count));
        let taken = end.and_then(|end| self.bytes.get(self.at..end));
        let taken = taken.ok_or(TraceDatError::Cut(part))?;
        self.at += taken.len();
        Ok(taken)
    }

    fn number<const N: usize>(&mut self, part: &'static str) -> Result<[u8; N], TraceDatError> {
        let bytes = self.take(N as u64, part)?;
        bytes.try_into().map_err(|_| TraceDatError::Cut(part))
    }

    fn u16(&mut self, part: &'static str) -> Result<u16, TraceDatError> {
        self.number(part).map(u16::from_ne_bytes)
    }

    fn u32(&mut self, part: &'static str) -> Result<u32, TraceDatError> {
        self.number(part).map(u32::from_ne_bytes)
    }

    fn u64(&mut self, part: &'static str) -> Result<u64, TraceDatError> {
        self.number(part).map(u64::from_ne_bytes)
    }

    /// Text up to a NUL.
    fn text(&mut self, part: &'static str) -> Result<String, TraceDatError> {
        let rest = self.bytes.get(self.at..).unwrap_or_default();
        let end = rest.iter().position(|byte| *byte == 0).ok_or(TraceDatError::Cut(part))?;
        self.at += end + 1;
        Ok(String::from_utf8_lossy(&rest[..end]).into_owned())
    }

    /// Text behind its length of 64 bits.
    fn sized(&mut self, part: &'static str) -> Result<String, TraceDatError> {
        let size = self.u64(part)?;
        Ok(String::from_utf8_lossy(self.take(size, part)?).into_owned())
    }

    fn seek(self, at: u64) -> Cursor<'a> {
        Cursor { at: usize::try_from(at).unwrap_or(usize::MAX), ..self }
    }
}

/// The pages of a CPU: its number, and where they lie.
type Extent = (u32, u64, u64);

/// How long the pages of all CPUs are.
fn size_of(cpus: &[Extent]) -> u64 {
    cpus.iter().fold(0, |sum, cpu| sum.saturating_add(cpu.2))
}

/// What was read of a file.
#[derive(Debug, Default)]
struct Parts {
    page_size: usize,
    header_page: String,
    formats: Vec<(String, String)>,
    /// Bytes of the formats: sections may lie on each other, so they could be many times the file's.
    formats_bytes: usize,
    kallsyms: String,
    clock: String,
    machine: Option<String>,
    cpus: Vec<Extent>,
}

impl Parts {
    fn version_6(&mut self, mut at: Cursor<'_>) -> Result<(), TraceDatError> {
        self.headers(&mut at)?;
        self.ftrace_formats(&mut at)?;
        self.event_formats(&mut at)?;
        self.symbols(&mut at)?;
        let size = at.u32("trace_printk's formats")?;
        at.take(size.into(), "trace_printk's formats")?;
        at.sized("the names of threads")?;
        let cpus = at.u32("the CPUs")?;
        let mut kind = at.take(10, "the options")?;
        if kind == b"options  \0" {
            loop {
                let id = at.u16("the options")?;
                if id == DONE {
                    break;
                }
                let size = at.u32("the options")?;
                let data = at.take(size.into(), "the options")?;
                self.option(id, data);
            }
            kind = at.take(10, "the buffers")?;
        }
        if kind != b"flyrecord\0" {
            return Err(TraceDatError::Unknown("a kind of buffer"));
        }
        for cpu in 0..cpus {
            self.cpus.push((cpu, at.u64("the buffers")?, at.u64("the buffers")?));
        }
        if !self.clock.is_empty() {
            self.clock = clock_of(&at.sized("the clock")?);
        }
        Ok(())
    }

    fn version_7(&mut self, mut at: Cursor<'_>) -> Result<(), TraceDatError> {
        at.text("its head")?;
        at.text("its head")?;
        let mut next = at.u64("its head")?;
        for _ in 0..OPTIONS_MAX {
            if next == 0 {
                return Ok(());
            }
            let mut options = section(at.seek(next))?;
            loop {
                let id = options.u16("the options")?;
                let size = options.u32("the options")?;
                let start = options.at;
                options.take(size.into(), "the options")?;
                let mut data = Cursor { at: start, ..options };
                match id {
                    DONE => {
                        next = data.u64("the options")?;
                        break;
                    }
                    BUFFER => self.buffer(data)?,
                    HEADER_INFO => {
                        self.headers(&mut section(at.seek(data.u64("the options")?))?)?
                    }
                    FTRACE_EVENTS => {
                        self.ftrace_formats(&mut section(at.seek(data.u64("the options")?))?)?;
                    }
                    EVENT_FORMATS => {
                        self.event_formats(&mut section(at.seek(data.u64("the options")?))?)?;
                    }
                    KALLSYMS => self.symbols(&mut section(at.seek(data.u64("the options")?))?)?,
                    _ => self.option(id, &at.bytes[start..options.at]),
                }
            }
        }
        Err(TraceDatError::Unknown("more options"))
    }

    fn headers(&mut self, at: &mut Cursor<'_>) -> Result<(), TraceDatError> {
        at.take(12, "the headers")?;
        self.header_page = at.sized("the headers")?;
        at.take(13, "the headers")?;
        at.sized("the headers").map(drop)
    }

    fn ftrace_formats(&mut self, at: &mut Cursor<'_>) -> Result<(), TraceDatError> {
        for _ in 0..at.u32("the formats of events")? {
            self.format("ftrace", at)?;
        }
        Ok(())
    }

    fn format(&mut self, system: &str, at: &mut Cursor<'_>) -> Result<(), TraceDatError> {
        let text = at.sized("the formats of events")?;
        // Each is kept with its system's name.
        self.formats_bytes += system.len() + text.len() + 1;
        if self.formats_bytes > at.bytes.len() {
            return Err(TraceDatError::Overlapping("sections"));
        }
        self.formats.push((format!("{system}/{}", name_of(&text)), text));
        Ok(())
    }

    fn event_formats(&mut self, at: &mut Cursor<'_>) -> Result<(), TraceDatError> {
        for _ in 0..at.u32("the formats of events")? {
            let system = at.text("the formats of events")?;
            for _ in 0..at.u32("the formats of events")? {
                self.format(&system, at)?;
            }
        }
        Ok(())
    }

    fn symbols(&mut self, at: &mut Cursor<'_>) -> Result<(), TraceDatError> {
        let size = at.u32("the kernel's symbols")?;
        let text = at.take(size.into(), "the kernel's symbols")?;
        self.kallsyms = String::from_utf8_lossy(text).into_owned();
        Ok(())
    }

    fn option(&mut self, id: u16, data: &[u8]) {
        let text = || String::from_utf8_lossy(data).trim_end_matches('\0').trim().to_owned();
        match id {
            TRACE_CLOCK if self.clock.is_empty() => self.clock = clock_of(&text()),
            UNAME => self.machine = Some(text()),
            _ => {}
        }
    }

    /// A buffer of version 7. Of several the one with the most pages is read.
    fn buffer(&mut self, mut at: Cursor<'_>) -> Result<(), TraceDatError> {
        at.u64("the buffers")?;
        at.text("the buffers")?;
        let clock = at.text("the buffers")?;
        let page_size = at.u32("the buffers")? as usize;
        let mut cpus = Vec::new();
        for _ in 0..at.u32("the buffers")? {
            cpus.push((at.u32("the buffers")?, at.u64("the buffers")?, at.u64("the buffers")?));
        }
        if self.cpus.is_empty() || size_of(&cpus) > size_of(&self.cpus) {
            (self.cpus, self.clock, self.page_size) = (cpus, clock_of(&clock), page_size);
        }
        Ok(())
    }

    fn decode(self, bytes: &[u8]) -> Result<TraceDat, TraceDatError> {
        if ["counter", "uptime", "x86-tsc", "ppc-tb"].contains(&self.clock.as_str()) {
            return Err(TraceDatError::Clock(self.clock));
        }
        // Pages of CPUs that lie on each other would give any number of events.
        if size_of(&self.cpus) > bytes.len() as u64 {
            return Err(TraceDatError::Overlapping("buffers"));
        }
        let layout = Layout::parse(&self.header_page);
        let layout = layout.ok_or(TraceDatError::Unknown("a form of pages"))?;
        let symbols = KernelSymbols::parse(self.kallsyms).map(Arc::new).unwrap_or_default();
        let decoder = Decoder::of_known(&self.formats, symbols.clone());
        let decoder = decoder.ok_or(TraceDatError::Unknown("a form of events"))?;
        let (mut events, mut expiries, mut gaps) = (Vec::new(), Vec::new(), Vec::new());
        let page_size = self.page_size.max(layout.size);
        for (cpu, start, size) in self.cpus {
            let pages = Cursor { bytes, at: 0 }.seek(start).take(size, "the events")?;
            // Time of the last event before a page.
            let mut last_ns = 0;
            for page in pages.chunks(page_size) {
                let (before_ns, mut first_ns) = (last_ns, None);
                // What is left of a page that makes no sense is given up.
                let _ = layout.walk(page, |at_ns, data| {
                    first_ns.get_or_insert(at_ns);
                    last_ns = at_ns;
                    if let Some(now_ns) = decoder.expiry_ns(data) {
                        expiries.push((at_ns, now_ns));
                    }
                    events.extend(decoder.decode(at_ns, cpu, data));
                });
                if let (true, Some(first_ns)) = (layout.has_missed(page), first_ns) {
                    gaps.push((before_ns, first_ns));
                }
            }
        }
        events.retain(|event: &Event| event.at_ns < super::INSTANTS_END_NS);
        events.sort_by_key(|event| event.at_ns);
        gaps.sort_by_key(|gap| gap.1);
        let (clock, machine) = (self.clock, self.machine);
        Ok(TraceDat { events, clock, expiries, gaps, symbols, machine })
    }
}

/// The content of a section of version 7.
fn section(mut at: Cursor<'_>) -> Result<Cursor<'_>, TraceDatError> {
    at.u16("a section")?;
    let is_compressed = at.u16("a section")? & 1 != 0;
    at.u32("a section")?;
    at.u64("a section")?;
    if is_compressed { Err(TraceDatError::Compressed) } else { Ok(at) }
}

/// The clock that is in force, of `[local] global mono` or of one name.
fn clock_of(text: &str) -> String {
    let marked = text.split_once('[').and_then(|(_, rest)| rest.split_once(']'));
    marked.map_or(text, |(name, _)| name).trim_matches(['\0', ' ']).to_owned()
}

/// The name in a `format` file.
fn name_of(format: &str) -> &str {
    format.lines().find_map(|line| line.strip_prefix("name: ")).unwrap_or_default().trim()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_that_lie_on_each_other_are_refused() {
        let twice = Parts { cpus: vec![(0, 0, 60), (1, 0, 60)], ..Parts::default() };
        let why = twice.decode(&[0; 100]).expect_err("more than there is");
        assert_eq!(why, TraceDatError::Overlapping("buffers"));

        let size = 60_u64.to_ne_bytes();
        let bytes = [&size[..], &[b'x'; 60]].concat();
        let mut parts = Parts::default();
        let mut read = || parts.format("sched", &mut Cursor { bytes: &bytes, at: 0 });
        read().expect("once");
        let refused = Err(TraceDatError::Overlapping("sections"));
        assert_eq!(read(), refused);
        let (long, mut parts) = ("x".repeat(100), Parts::default());
        assert_eq!(parts.format(&long, &mut Cursor { bytes: &bytes, at: 0 }), refused);
    }
}
