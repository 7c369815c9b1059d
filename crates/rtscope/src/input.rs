//! Files, pipes and standard input as sources of bytes: opened without waiting for ever, and read piece by piece.

use std::{
    fs::{self, File},
    io::{self, Read},
    os::unix::fs::{FileTypeExt, OpenOptionsExt},
    path::Path,
    sync::mpsc,
    thread,
    time::{Duration, Instant},
};

use anyhow::Context;
use rtscope_sys::system;
use rustix::fs::OFlags;

/// Bytes that are read at once.
const PIECE: usize = 256 << 10;

/// Opens a file, or with `-` standard input. The bytes that its format is known by are read ahead, and come from the
/// source again.
pub(crate) fn begin(
    path: &Path,
    head_bytes: u64,
) -> anyhow::Result<(Vec<u8>, Box<dyn Read + Send>)> {
    let failed = || format!("can't read {}", path.display());
    let source: Box<dyn Read + Send> = match path.as_os_str() == "-" {
        true => Box::new(io::stdin()),
        false => open(path, WRITER_LIMIT).with_context(failed)?,
    };
    let (mut head, mut source) = (Vec::new(), source);
    source.by_ref().take(head_bytes).read_to_end(&mut head).with_context(failed)?;
    let source = io::Cursor::new(head.clone()).chain(source);
    Ok((head, Box::new(source)))
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
                    "no program has written to the FIFO for {} s; start the program that writes to it first",
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
pub(crate) fn pieces(
    mut source: impl Read + Send,
    mut feed: impl FnMut(&[u8]) -> bool,
) -> io::Result<()> {
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
