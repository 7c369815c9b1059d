//! `message`: groups of senders and receivers that pass messages, as hackbench does.
//!
//! Exercises wake-ups, context switches, run queues with hundreds of tasks, and the locks of
//! sockets or pipes. It can't show anything of devices and their interrupts: messages stay in
//! memory.
//!
//! Each group has `fds` senders and as many receivers. A sender writes one message to every
//! receiver of its group in turn, and starts over; a receiver reads what is sent to it, message by
//! message, with blocking calls. With `loops=N` each sender goes round N times, and the load ends
//! when `groups * fds * fds * N` messages have been received. A unit of work is a message received.

use std::{
    io,
    net::{Ipv4Addr, TcpListener, TcpStream},
    os::{fd::OwnedFd, unix::net::UnixStream},
    sync::Arc,
};

use rustix::{
    io::Errno,
    net::{RecvFlags, SendFlags},
};

use super::{
    LoadDescriptor, LoadError, any_options,
    board::Counter,
    leaves_nothing, needs_nothing,
    options::{LoadOption, LoadOptions, ValueKind},
    worker::{Job, Processes, Threads, allow_open_files},
};

const OPTIONS: &[LoadOption] = &[
    LoadOption {
        name: "groups",
        kind: ValueKind::Number { min: 1, max: 1_000 },
        default: "10",
        about: "groups of senders and receivers",
    },
    LoadOption {
        name: "fds",
        kind: ValueKind::Number { min: 1, max: 500 },
        default: "20",
        about: "senders in a group, and as many receivers",
    },
    LoadOption {
        name: "size",
        kind: ValueKind::Size { min: 1, max: 1 << 20 },
        default: "100B",
        about: "size of a message",
    },
    LoadOption {
        name: "loops",
        kind: ValueKind::Number { min: 0, max: i64::MAX },
        default: "0",
        about: "messages from each sender to each receiver, then the load ends; 0 for no end",
    },
    LoadOption {
        name: "mode",
        kind: ValueKind::Word(&["process", "thread"]),
        default: "process",
        about: "what senders and receivers are",
    },
    LoadOption {
        name: "via",
        kind: ValueKind::Word(&["socket", "pipe", "inet"]),
        default: "socket",
        about: "what the messages go through",
    },
];

pub(super) const DESCRIPTOR: LoadDescriptor = LoadDescriptor {
    name: "message",
    about: "passes messages between groups of senders and receivers, as hackbench does",
    unit: |_| "messages",
    options: OPTIONS,
    check: any_options,
    is_here: needs_nothing,
    run,
    clean: leaves_nothing,
};

/// Messages that a receiver reads between two additions to its counter.
const BATCH: u64 = 16;

/// The work of one sender or receiver.
#[derive(Clone, Copy, Debug)]
struct Shape {
    groups: u64,
    fds: u64,
    message_bytes: usize,
    /// None for no end.
    loops: Option<u64>,
    via: Via,
}

/// What messages go through.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Via {
    /// A pair of Unix sockets.
    Socket,
    Pipe,
    /// A TCP connection over the loopback interface.
    Inet,
}

impl Shape {
    fn new(options: &LoadOptions) -> Shape {
        Shape {
            groups: options.number("groups"),
            fds: options.number("fds"),
            message_bytes: options.size("size"),
            loops: Some(options.number("loops")).filter(|loops| *loops > 0),
            via: match options.word("via") {
                "pipe" => Via::Pipe,
                "inet" => Via::Inet,
                _ => Via::Socket,
            },
        }
    }

    /// A channel to one receiver: the end to read from and the end to write to.
    fn channel(self) -> Result<(End, End), LoadError> {
        Ok(match self.via {
            Via::Pipe => {
                let (reader, writer) = io::pipe().map_err(LoadError::io("make a pipe"))?;
                (End::Pipe(reader.into()), End::Pipe(writer.into()))
            }
            Via::Socket => {
                let pair = UnixStream::pair().map_err(LoadError::io("make a socket pair"))?;
                (End::Socket(pair.0.into()), End::Socket(pair.1.into()))
            }
            Via::Inet => {
                let (reader, writer) =
                    connection().map_err(LoadError::io("connect to ourselves"))?;
                (End::Socket(reader.into()), End::Socket(writer.into()))
            }
        })
    }

    /// The channels of one group: ends to read from, ends to write to.
    fn group(self) -> Result<(Vec<End>, Vec<End>), LoadError> {
        let channels: Result<Vec<_>, _> = (0..self.fds).map(|_| self.channel()).collect();
        Ok(channels?.into_iter().unzip())
    }

    /// What a sender does.
    fn send(self, writers: &[End]) -> Result<(), LoadError> {
        let message = vec![0u8; self.message_bytes];
        let mut left = self.loops;
        while left != Some(0) {
            for writer in writers {
                writer.write(&message).map_err(LoadError::io("send a message"))?;
            }
            left = left.map(|n| n - 1);
        }
        Ok(())
    }

    /// What a receiver does.
    fn receive(self, reader: &End, counter: Counter<'_>) -> Result<(), LoadError> {
        let mut message = vec![0u8; self.message_bytes];
        let mut left = self.loops.map_or(u64::MAX, |loops| loops.saturating_mul(self.fds));
        while left > 0 {
            let batch = left.min(BATCH);
            for _ in 0..batch {
                reader.read(&mut message).map_err(LoadError::io("receive a message"))?;
            }
            counter.add(batch);
            left -= batch;
        }
        Ok(())
    }
}

/// Both ends of a TCP connection over the loopback interface.
fn connection() -> io::Result<(TcpStream, TcpStream)> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let writer = TcpStream::connect(listener.local_addr()?)?;
    let (reader, _) = listener.accept()?;
    Ok((reader, writer))
}

/// One end of a channel. Sockets have calls of their own, which are shorter ways into the same code
/// of the kernel than those of files.
#[derive(Debug)]
enum End {
    Pipe(OwnedFd),
    Socket(OwnedFd),
}

impl End {
    fn write(&self, message: &[u8]) -> io::Result<()> {
        let mut left = message;
        while !left.is_empty() {
            let written = match self {
                End::Pipe(end) => rustix::io::write(end, left),
                End::Socket(end) => rustix::net::send(end, left, SendFlags::NOSIGNAL),
            };
            match written {
                Ok(bytes) => left = &left[bytes..],
                Err(Errno::INTR) => (),
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    fn read(&self, message: &mut [u8]) -> io::Result<()> {
        let mut left = message;
        while !left.is_empty() {
            let read = match self {
                End::Pipe(end) => rustix::io::read(end, &mut *left),
                End::Socket(end) => {
                    rustix::net::recv(end, &mut *left, RecvFlags::empty()).map(|(bytes, _)| bytes)
                }
            };
            match read {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(bytes) => left = &mut left[bytes..],
                Err(Errno::INTR) => (),
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }
}

fn run(job: &Job) -> Result<(), LoadError> {
    let shape = Shape::new(&job.options);
    match job.options.word("mode") {
        "thread" => in_threads(job, shape),
        _ => in_processes(job, shape),
    }
}

fn in_processes(job: &Job, shape: Shape) -> Result<(), LoadError> {
    allow_open_files(shape.fds * 2)?;
    let mut crew = Processes::new(job)?;
    for _ in 0..shape.groups {
        let (readers, writers) = shape.group()?;
        for reader in &readers {
            crew.add(&job.placement, |counter| shape.receive(reader, counter))?;
        }
        for _ in 0..shape.fds {
            crew.add(&job.placement, |_| shape.send(&writers))?;
        }
    }
    crew.work()
}

fn in_threads(job: &Job, shape: Shape) -> Result<(), LoadError> {
    allow_open_files(shape.groups * shape.fds * 2)?;
    let mut crew = Threads::new(job)?;
    for _ in 0..shape.groups {
        let (readers, writers) = shape.group()?;
        let writers = Arc::new(writers);
        for reader in readers {
            crew.add(&job.placement, move |counter| shape.receive(&reader, counter))?;
        }
        for _ in 0..shape.fds {
            let writers = Arc::clone(&writers);
            crew.add(&job.placement, move |_| shape.send(&writers))?;
        }
    }
    crew.work()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::board::Board;

    #[test]
    fn a_group_passes_exactly_what_was_asked() {
        for via in [Via::Socket, Via::Pipe, Via::Inet] {
            // More than a pipe holds, and not a multiple of the batch.
            let shape = Shape { groups: 1, fds: 3, message_bytes: 9_000, loops: Some(7), via };
            let (readers, writers) = shape.group().expect("channels");
            let board = Board::new().expect("memory");
            std::thread::scope(|scope| {
                for (i, reader) in readers.iter().enumerate() {
                    let counter = board.counter(i);
                    scope.spawn(move || shape.receive(reader, counter).expect("received"));
                }
                for _ in 0..shape.fds {
                    scope.spawn(|| shape.send(&writers).expect("sent"));
                }
            });
            assert_eq!(board.work(), 3 * 3 * 7);
        }
    }
}
