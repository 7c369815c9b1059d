//! `rtscope import`: other tools' results as a record.

use std::{
    fs::{self, File},
    io::{self, Read},
    os::unix::fs::{FileTypeExt, OpenOptionsExt},
    path::{Path, PathBuf},
    process::ExitCode,
    sync::mpsc,
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, bail};
use rtscope_analyse::{
    import::{self, Import, Options, Reading, Stream},
    instrument,
};
use rtscope_measure::recorder::{self, Source};
use rtscope_model::{record::Files, time::Nanos, verdict::Requirement};
use rtscope_sys::system;
use rustix::fs::OFlags;

use super::{Refused, print, wall_clock, wave::import as capture};
use crate::{
    exit,
    output::{note_lines, shown},
    record::{self, Additions, Judged},
};

/// Read other tools' results as a record, and captures as waves
///
/// rtscope recognises the format of a file by its first lines. Each run in a file becomes a cell;
/// several files become one record, whose cells can be compared. The record is judged and plotted
/// like any other, and its findings list what the file doesn't tell.
///
/// A logic analyser's capture (VCD, or sigrok's CSV) is analysed like one from `rtscope
/// wave capture`. An unknown level (x, z) is a gap. rtscope lists errors in the file and analyses the rest.
///
/// Examples:
///   rtscope import output.txt
///   rtscope import *.json --out before --require 'max < 100us'
///   cyclictest -q -m -Sp90 -h400 -D1h | rtscope import - --interval 1ms
///   rtscope import piscope.vcd --channel 17 --freq 1kHz
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
pub(super) struct Args {
    /// Results of another tool; - is standard input
    #[arg(required = true)]
    files: Vec<PathBuf>,
    /// Folder for the record and the page [default: rtscope-runs/import-TIME]
    #[arg(short, long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Format of the files: cyclictest, cyclictest-json, rtla, jitterdebugger, osadl, linuxcnc, columns,
    /// vcd or sigrok-csv [default: recognised for each file]
    #[arg(short, long)]
    format: Option<String>,
    /// Unit of the latencies: us or ns [default: the unit named in the file, else us]
    #[arg(long, value_name = "UNIT")]
    unit: Option<String>,
    /// Interval of the threads, if the files don't contain it
    #[arg(short, long, value_name = "TIME")]
    interval: Option<Nanos>,
    /// Requirement for every cell, for example 'max < 200us'; repeatable
    #[arg(short, long, value_name = "REQUIREMENT")]
    require: Vec<Requirement>,
    /// Ignore this finding when computing the verdict; the record keeps the code; repeatable
    #[arg(long, value_name = "CODE")]
    accept: Vec<String>,
    /// Print the verdict, or the figures of a capture, as one JSON document
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    capture: capture::Options,
}

/// Bytes that are read at once.
const PIECE: usize = 256 << 10;

pub(super) fn main(args: &Args) -> anyhow::Result<ExitCode> {
    check(args)?;
    let mut readings = Vec::new();
    for path in &args.files {
        let (head, source) = begin(path)?;
        if is_capture(args, &head) {
            check_capture(args)?;
            return capture::main(path, source, &args.capture, args.out.as_deref(), args.json);
        }
        if args.capture.are_given() {
            let text = "--channel, --samplerate and --freq are for captures: leave them out, or the --format";
            return Err(Refused(text.to_owned()).into());
        }
        let reading = read(path, source, args.format.as_deref(), options(args, path))?;
        readings.push((stem_of(path), reading));
    }
    let wall_clock = wall_clock();
    let files = files(&wall_clock, args.require.clone(), readings)?;
    let folder = args.out.clone().unwrap_or_else(|| record::fresh_folder("import", &wall_clock));
    recorder::store(&folder, &files)?;
    let additions = Additions { require: Vec::new(), accept: args.accept.clone() };
    let judged = record::judged(&Source::from(files), &additions)?;
    let page = judged.publish(&folder)?;
    if args.json {
        print(&judged.json()?)?;
        note!("Report: {}", page.display());
    } else {
        print(&judged.summary())?;
        print(&format!("Report: {}\n", shown(&page)))?;
    }
    Ok(exit::of_record(&judged.judgement, true))
}

/// A file of another tool, judged as a record that is kept nowhere.
pub(super) fn judged(path: &Path, additions: &Additions) -> anyhow::Result<Judged> {
    let (_, source) = begin(path)?;
    let options = Options { name: name_of(path), ..Options::default() };
    let reading = read(path, source, None, options)?;
    let files = files(&wall_clock(), Vec::new(), vec![(stem_of(path), reading)])?;
    record::judged(&Source::from(files), additions)
}

/// Opens a file. What its format is known by is read ahead, and comes from the source again.
fn begin(path: &Path) -> anyhow::Result<(Vec<u8>, Box<dyn Read + Send>)> {
    let failed = || format!("can't read {}", path.display());
    let source: Box<dyn Read + Send> = match path.as_os_str() == "-" {
        true => Box::new(io::stdin()),
        false => open(path, WRITER_LIMIT).with_context(failed)?,
    };
    let (mut head, mut source) = (Vec::new(), source);
    source.by_ref().take(capture::HEAD_BYTES).read_to_end(&mut head).with_context(failed)?;
    let source = io::Cursor::new(head.clone()).chain(source);
    Ok((head, Box::new(source)))
}

fn is_capture(args: &Args, head: &[u8]) -> bool {
    match &args.format {
        Some(format) => capture::FORMATS.iter().any(|(name, _)| name == format),
        None => args.capture.are_given() || instrument::is_capture(head),
    }
}

/// Refuses what a capture has not.
fn check_capture(args: &Args) -> Result<(), Refused> {
    let given = [
        ("--require", !args.require.is_empty()),
        ("--accept", !args.accept.is_empty()),
        ("--interval", args.interval.is_some()),
        ("--unit", args.unit.is_some()),
    ];
    if let Some((option, _)) = given.into_iter().find(|(_, is_given)| *is_given) {
        return Err(Refused(format!("{option}: a capture has edges, not latencies; leave it out")));
    }
    match args.files.len() {
        1 => Ok(()),
        _ => Err(Refused("a capture is imported alone: name one file".to_owned())),
    }
}

/// Refuses what no file could be read with.
fn check(args: &Args) -> Result<(), Refused> {
    if let Some(unit) = args.unit.as_deref().filter(|unit| !["us", "ns"].contains(unit)) {
        return Err(Refused(format!("--unit {unit}: write us or ns")));
    }
    if args.interval == Some(Nanos::ZERO) {
        return Err(Refused("--interval 0: write a time, for example 1ms".to_owned()));
    }
    Ok(())
}

fn options(args: &Args, path: &Path) -> Options {
    let unit_ns = |unit: &str| if unit == "us" { 1_000 } else { 1 };
    Options {
        name: name_of(path),
        unit_ns: args.unit.as_deref().map(unit_ns),
        interval_ns: args.interval.map(|interval| interval.0),
    }
}

fn files(
    wall_clock: &str,
    require: Vec<Requirement>,
    readings: Vec<(String, Reading)>,
) -> anyhow::Result<Files> {
    let import = Import {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        command: std::env::args().collect(),
        wall_clock: wall_clock.to_owned(),
        require,
    };
    import::files(&import, readings).map_err(anyhow::Error::msg)
}

/// Reads one file piece by piece.
fn read(
    path: &Path,
    source: impl Read + Send,
    format: Option<&str>,
    options: Options,
) -> anyhow::Result<Reading> {
    let known = capture::FORMATS.map(|(name, _)| name).join(", ");
    let mut stream =
        Stream::open(format, options).map_err(|why| Refused(format!("{why}, {known}")))?;
    let failed = || format!("can't read {}", path.display());
    let feed = |piece: &[u8]| {
        stream.feed(piece);
        !stream.is_endless()
    };
    pieces(source, feed).with_context(failed)?;
    let reading = stream.finish();
    if reading.cells.is_empty() && format.is_none() {
        let formats: Vec<String> = import::formats()
            .chain(capture::FORMATS)
            .map(|(name, reads)| format!("  {name:<19} {reads}"))
            .collect();
        let told: Vec<&str> = reading.findings.iter().map(|f| f.text.as_str()).collect();
        note_lines(&format!("formats that are read:\n{}", formats.join("\n")));
        bail!("{}", told.join("; "));
    }
    Ok(reading)
}

/// How long a FIFO may be without anybody who writes to it.
const WRITER_LIMIT: Duration = Duration::from_secs(10);

/// Opens a file, or a pipe that has a name. Opening a FIFO to which nobody writes would wait without end, and
/// most devices give data without end.
fn open(path: &Path, limit: Duration) -> io::Result<Box<dyn Read + Send>> {
    let kind = fs::metadata(path)?.file_type();
    if kind.is_file() {
        return Ok(Box::new(File::open(path)?));
    }
    let refused = |text: String| io::Error::new(io::ErrorKind::InvalidInput, text);
    if !kind.is_fifo() {
        let what = if kind.is_dir() { "a folder" } else { "a device or a socket" };
        return Err(refused(format!(
            "it is {what}; name a regular file or a pipe, or write - for standard input"
        )));
    }
    let mut fifo = File::options().read(true).custom_flags(system::NONBLOCK).open(path)?;
    let until = Instant::now() + limit;
    let mut first = vec![0];
    // Without a writer a read is at its end. With one that has written nothing yet, it would block.
    loop {
        match fifo.read(&mut first) {
            Ok(0) if Instant::now() >= until => {
                return Err(refused(format!(
                    "no program has written to the FIFO for {} s; start the one that does first",
                    limit.as_secs()
                )));
            }
            Ok(0) => thread::sleep(Duration::from_millis(20)),
            Ok(_) => break,
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => {
                first.clear();
                break;
            }
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
    rustix::fs::fcntl_setfl(&fifo, rustix::fs::fcntl_getfl(&fifo)? - OFlags::NONBLOCK)?;
    Ok(Box::new(io::Cursor::new(first).chain(fifo)))
}

/// Hands a source over piece by piece, up to its end or until nothing more is wanted. The next piece is read
/// while the last one is made use of: two pieces go around between the threads.
fn pieces(mut source: impl Read + Send, mut feed: impl FnMut(&[u8]) -> bool) -> io::Result<()> {
    let (give, take) = mpsc::sync_channel::<(Vec<u8>, usize)>(1);
    let (give_back, used) = mpsc::channel::<Vec<u8>>();
    for _ in 0..2 {
        give_back.send(vec![0; PIECE]).expect("the other end is here");
    }
    thread::scope(|scope| {
        let reading = scope.spawn(move || -> io::Result<()> {
            for mut piece in used {
                let length = loop {
                    match source.read(&mut piece) {
                        Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                        other => break other?,
                    }
                };
                if length == 0 || give.send((piece, length)).is_err() {
                    break;
                }
            }
            Ok(())
        });
        for (piece, length) in take {
            if !feed(&piece[..length]) {
                break;
            }
            // The reader may have come to the end.
            let _ = give_back.send(piece);
        }
        // Whoever waits for a piece to fill must not wait any longer.
        drop(give_back);
        reading.join().expect("reading does not panic")
    })
}

fn name_of(path: &Path) -> String {
    match path.as_os_str() == "-" {
        true => "standard input".to_owned(),
        false => shown(path),
    }
}

/// What a file's cells are called: its name without the ending, unless every folder has such a file.
fn stem_of(path: &Path) -> String {
    let stem = path.file_stem().map(|stem| stem.to_string_lossy().into_owned());
    match (stem.as_deref(), path.parent().and_then(Path::file_name)) {
        (Some("-"), _) => "import".to_owned(),
        (Some("results"), Some(folder)) => folder.to_string_lossy().into_owned(),
        (Some(stem), _) => stem.to_owned(),
        (None, _) => "import".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Hands bytes over a few at a time, and fails at its end where it is told to.
    struct Slow {
        left: u32,
        fails: bool,
    }

    impl Read for Slow {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            match self.left {
                0 if self.fails => Err(io::Error::other("the disk is gone")),
                0 => Ok(0),
                left => {
                    self.left -= 1;
                    buffer[..3].fill((left % 251) as u8);
                    Ok(3)
                }
            }
        }
    }

    #[test]
    fn every_piece_comes_once_and_in_order_and_an_error_after_the_last() {
        for fails in [false, true] {
            let mut seen = Vec::new();
            let ended = pieces(Slow { left: 1_000, fails }, |piece| {
                seen.extend_from_slice(piece);
                true
            });
            assert_eq!(ended.is_err(), fails);
            let wanted: Vec<u8> =
                (1..=1_000u32).rev().flat_map(|left| [(left % 251) as u8; 3]).collect();
            assert_eq!(seen, wanted);
        }
    }

    #[test]
    fn a_fifo_without_a_writer_is_refused_and_one_with_a_writer_is_read() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("fifo");
        let (kind, mode) = (rustix::fs::FileType::Fifo, rustix::fs::Mode::RWXU);
        rustix::fs::mknodat(rustix::fs::CWD, &path, kind, mode, 0).expect("a FIFO");
        let refused = open(&path, Duration::from_millis(50)).err().expect("refused").to_string();
        assert!(refused.contains("no program has written to the FIFO"), "{refused}");
        let text = "5\n6\n".repeat(1_000);
        let writer = {
            let (path, text) = (path.clone(), text.clone());
            thread::spawn(move || fs::write(path, text).expect("written"))
        };
        let mut read = String::new();
        let mut source = open(&path, Duration::from_secs(60)).expect("opened");
        source.read_to_string(&mut read).expect("read");
        writer.join().expect("it ends");
        assert_eq!(read, text);
    }

    #[test]
    fn an_endless_source_is_left_when_no_more_is_wanted() {
        let mut pieces_left = 3;
        pieces(io::repeat(0), |_| {
            pieces_left -= 1;
            pieces_left > 0
        })
        .expect("no error");
        assert_eq!(pieces_left, 0);
    }
}
