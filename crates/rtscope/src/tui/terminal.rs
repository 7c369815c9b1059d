//! The terminal behind the screens: standard error, so that standard output stays clean for pipes.
//!
//! The control thread draws, and it must not be held up by a terminal: a slow serial line, a hung
//! connection, a user who pressed Ctrl-S. So the terminal is opened anew without blocking. What it
//! doesn't take at once is kept and sent before anything new is drawn; frames in between are left
//! out. Errors are never reported: a screen that can't be drawn goes silent.

use std::{
    cell::RefCell,
    fs::{File, OpenOptions},
    io::{self, ErrorKind, IsTerminal, Write},
    os::{fd::AsFd, unix::fs::OpenOptionsExt},
    rc::Rc,
    sync::{
        Once,
        atomic::{AtomicU8, Ordering::SeqCst},
    },
    time::{Duration, Instant},
};

use crate::output;
use ratatui::{
    crossterm::{cursor, execute, terminal},
    layout::Size,
};
use rustix::{fs::OFlags, termios::tcgetwinsize};

/// A terminal without a size of its own, as a serial line.
const FALLBACK: Size = Size { width: 80, height: 24 };

/// How long a closing screen waits for the terminal to take what is left: a slow serial line takes
/// about a line of text in a tenth of a second.
const FAREWELL: Duration = Duration::from_secs(2);

/// Writes to the terminal, never waits. Clones write to the same terminal.
#[derive(Clone, Debug)]
pub(super) struct Tty(Rc<RefCell<Line>>);

#[derive(Debug)]
struct Line {
    file: File,
    pending: Vec<u8>,
    broken: bool,
}

impl Tty {
    /// The terminal at standard error.
    ///
    /// # Errors
    ///
    /// When standard error is no terminal, or one that can't move its cursor.
    pub(super) fn open() -> io::Result<Tty> {
        let stderr = io::stderr();
        if !stderr.is_terminal() {
            return Err(io::Error::new(ErrorKind::Unsupported, "standard error is not a terminal"));
        }
        if !output::can_redraw(&stderr) {
            let text = "the terminal can't move its cursor (see TERM)";
            return Err(io::Error::new(ErrorKind::Unsupported, text));
        }
        let flags = (OFlags::NONBLOCK | OFlags::NOCTTY).bits().cast_signed();
        let open = |path| OpenOptions::new().write(true).custom_flags(flags).open(path);
        // A new open file: the flag of the one that we share with the shell stays as it is.
        let file = open("/proc/self/fd/2")
            .or_else(|_| open("/dev/tty"))
            .or_else(|_| stderr.as_fd().try_clone_to_owned().map(File::from))?;
        Ok(Tty(Rc::new(RefCell::new(Line { file, pending: Vec::new(), broken: false }))))
    }

    pub(super) fn size(&self) -> Size {
        match tcgetwinsize(&self.0.borrow().file) {
            Ok(size) if size.ws_col > 0 && size.ws_row > 0 => {
                Size { width: size.ws_col, height: size.ws_row }
            }
            _ => FALLBACK,
        }
    }

    /// Whether the terminal takes a new frame: it took all of the last one.
    pub(super) fn is_ready(&self) -> bool {
        let mut line = self.0.borrow_mut();
        line.send();
        line.pending.is_empty() && !line.broken
    }

    /// Sends what is left, for a short time.
    pub(super) fn finish(&self) {
        let until = Instant::now() + FAREWELL;
        while !self.is_ready() && !self.0.borrow().broken && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

impl Line {
    /// Sends what the terminal takes now.
    fn send(&mut self) {
        while !self.pending.is_empty() && !self.broken {
            match self.file.write(&self.pending) {
                Ok(n) => drop(self.pending.drain(..n)),
                Err(e) if e.kind() == ErrorKind::WouldBlock => return,
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(_) => self.broken = true,
            }
        }
    }
}

impl Write for Tty {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let line = &mut *self.0.borrow_mut();
        if !line.broken {
            line.pending.extend_from_slice(bytes);
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.borrow_mut().send();
        Ok(())
    }
}

/// What the terminal was turned into.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Mode {
    /// A block under the prompt, where the cursor rests at the block's first character.
    Inline = 1,
    /// The alternate screen, in raw mode.
    Full = 2,
}

/// The mode that must be undone; 0 is none.
static TURNED: AtomicU8 = AtomicU8::new(0);

/// The terminal in a mode, for as long as this lives or until a panic.
#[derive(Debug)]
pub(super) struct Turned(Mode);

impl Turned {
    /// From here on a panic of any thread puts the terminal back before it speaks.
    pub(super) fn into(mode: Mode) -> Turned {
        static HOOK: Once = Once::new();
        HOOK.call_once(|| {
            let speak = std::panic::take_hook();
            std::panic::set_hook(Box::new(move |panic| {
                put_back(&mut io::stderr());
                speak(panic);
            }));
        });
        TURNED.store(mode as u8, SeqCst);
        Turned(mode)
    }

    /// Whether the terminal is still in the mode.
    pub(super) fn is_on(&self) -> bool {
        TURNED.load(SeqCst) == self.0 as u8
    }

    /// Puts the terminal back, once.
    pub(super) fn back(&self, tty: &mut Tty) {
        tty.finish();
        put_back(tty);
        tty.finish();
    }
}

fn put_back(out: &mut impl Write) {
    let mode = TURNED.swap(0, SeqCst);
    if mode == Mode::Inline as u8 {
        let _ = execute!(
            out,
            cursor::MoveToColumn(0),
            terminal::Clear(terminal::ClearType::FromCursorDown)
        );
    } else if mode == Mode::Full as u8 {
        let _ = execute!(out, terminal::LeaveAlternateScreen, cursor::Show);
        let _ = terminal::disable_raw_mode();
    }
}

#[cfg(test)]
mod tests {
    use std::{io::Read, os::fd::OwnedFd};

    use rustix::fs::fcntl_setfl;

    use super::*;

    fn pipe() -> (std::io::PipeReader, Tty) {
        let (reader, writer) = std::io::pipe().expect("a pipe");
        fcntl_setfl(&writer, OFlags::NONBLOCK).expect("a flag");
        let file = File::from(OwnedFd::from(writer));
        (reader, Tty(Rc::new(RefCell::new(Line { file, pending: Vec::new(), broken: false }))))
    }

    #[test]
    fn a_terminal_that_takes_nothing_holds_nobody_up_and_loses_nothing() {
        let (mut reader, mut tty) = pipe();
        assert!(tty.is_ready());
        // More than a pipe holds, and nobody reads.
        let sent: Vec<u8> = (0..200_000u32).map(|n| n as u8).collect();
        tty.write_all(&sent).and_then(|()| tty.flush()).expect("it never fails");
        assert!(!tty.is_ready());
        let mut taken = Vec::new();
        let mut chunk = vec![0; 4_096];
        while !tty.is_ready() {
            let n = reader.read(&mut chunk).expect("a pipe");
            taken.extend_from_slice(&chunk[..n]);
        }
        drop(tty);
        reader.read_to_end(&mut taken).expect("a pipe");
        assert!(taken == sent, "{} bytes of {}", taken.len(), sent.len());
    }

    #[test]
    fn a_terminal_that_is_gone_is_silence() {
        let (reader, mut tty) = pipe();
        drop(reader);
        tty.write_all(b"frame").and_then(|()| tty.flush()).expect("it never fails");
        assert!(!tty.is_ready(), "nothing more is drawn");
        tty.finish();
        assert!(tty.0.borrow().broken);
    }
}
