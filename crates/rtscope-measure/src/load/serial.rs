//! `serial`: writes to serial lines and reads from them.
//!
//! Exercises the terminal layer, its buffers and the work queue that carries bytes from one end of a line to
//! the other. Each line is a pair of pseudo-terminals, so it can't show anything of a serial port, its FIFO and
//! its interrupts. With `device` a port is used: connect its transmit and receive pins.
//!
//! A unit of work is a byte that was read.

use std::{
    fs::{File, OpenOptions},
    io::{Read, Write},
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
};

use rustix::{
    fs::OFlags,
    pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt},
    termios::{OptionalActions, tcgetattr, tcsetattr},
};

use super::{
    LoadDescriptor, LoadError, any_options, leaves_nothing,
    options::{LoadOption, LoadOptions, ValueKind},
    worker::{Job, Processes},
};

const OPTIONS: &[LoadOption] = &[
    LoadOption {
        name: "workers",
        kind: ValueKind::Workers,
        default: "1",
        about: "lines, each with a process that writes and one that reads",
    },
    LoadOption {
        name: "size",
        kind: ValueKind::Size { min: 1, max: 64 << 10 },
        default: "256B",
        about: "bytes in a write",
    },
    LoadOption {
        name: "device",
        kind: ValueKind::Text,
        default: "",
        about: "serial port with its transmit and receive pins connected, for example /dev/ttyS1; a pair of \
                pseudo-terminals when it isn't given",
    },
];

pub(super) const DESCRIPTOR: LoadDescriptor = LoadDescriptor {
    name: "serial",
    about: "writes to a serial line and reads from it",
    unit: |_| "bytes",
    options: OPTIONS,
    check: any_options,
    is_here,
    run,
    clean: leaves_nothing,
};

fn is_here(options: &LoadOptions) -> Result<(), LoadError> {
    let path = PathBuf::from(options.given("device").unwrap_or("/dev/ptmx"));
    open(&path).map(drop)
}

/// Opens a terminal without making it ours to control.
fn open(path: &Path) -> Result<File, LoadError> {
    let flags = OFlags::NOCTTY.bits().cast_signed();
    let opened = OpenOptions::new().read(true).write(true).custom_flags(flags).open(path);
    opened.map_err(LoadError::io(format!("open {}", path.display())))
}

fn run(job: &Job) -> Result<(), LoadError> {
    let options = &job.options;
    let size = options.size("size");
    let mut crew = Processes::new(job)?;
    for _ in 0..options.workers(&job.placement.cpus) {
        let (mut near, mut far) = match options.given("device") {
            Some(device) => port(Path::new(device))?,
            None => pair()?,
        };
        crew.add(&job.placement, move |counter| {
            let mut room = vec![0; 4096];
            loop {
                let read = far.read(&mut room).map_err(LoadError::io("read a line"))?;
                counter.add(read as u64);
            }
        })?;
        crew.add(&job.placement, move |_| {
            // Not a character that a line would obey.
            let bytes = vec![0x55; size];
            loop {
                near.write_all(&bytes).map_err(LoadError::io("write to a line"))?;
            }
        })?;
    }
    crew.work()
}

/// Both ends of a pair of pseudo-terminals.
fn pair() -> Result<(File, File), LoadError> {
    let broken = |e: rustix::io::Errno| LoadError::io("make a pair of pseudo-terminals")(e.into());
    let near =
        openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).map_err(broken)?;
    grantpt(&near).map_err(broken)?;
    unlockpt(&near).map_err(broken)?;
    let name = ptsname(&near, Vec::new()).map_err(broken)?;
    let far = open(Path::new(&*name.to_string_lossy()))?;
    make_raw(&far)?;
    Ok((near.into(), far))
}

/// Both ends of a port whose pins are connected.
fn port(device: &Path) -> Result<(File, File), LoadError> {
    let far = open(device)?;
    make_raw(&far)?;
    Ok((open(device)?, far))
}

/// Bytes go through as they are, and nothing is echoed.
fn make_raw(terminal: &File) -> Result<(), LoadError> {
    let broken = |e: rustix::io::Errno| LoadError::io("set up a serial line")(e.into());
    let mut attributes = tcgetattr(terminal).map_err(broken)?;
    attributes.make_raw();
    tcsetattr(terminal, OptionalActions::Now, &attributes).map_err(broken)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pair_carries_every_byte_as_it_is() {
        let (mut near, mut far) = pair().expect("a pair");
        // Interrupt, end of file, line ends: a line that isn't raw would swallow or change them.
        let bytes = [3, 4, 10, 13, 17, 19, 0x55, 255];
        near.write_all(&bytes).expect("written");
        let mut read = [0; 8];
        far.read_exact(&mut read).expect("read");
        assert_eq!(read, bytes);
    }
}
