//! Throughput: bytes as fast as they go, by socket buffer ("window"), with and without a latency
//! sampler beside them.
//!
//! From when to when: the receiver's span, from its first look for bytes to the last that came. What
//! it can't show over loopback and veth: a network card and its interrupts.

pub(crate) mod flood;
mod iperf3;
mod receive;
mod sampler;
mod send;
mod sequence;
mod wire;

use std::{
    io,
    net::{IpAddr, SocketAddr, TcpListener, TcpStream},
    os::fd::AsFd,
    thread,
    time::{Duration, Instant},
};

use rtscope_model::{
    schedule::Placement,
    throughput::{FORMAT, Received, ThroughputRecord, Transfer, TransportProtocol},
    time::Nanos,
};
use rtscope_sys::{net::LocalSides, tree::Tree};
use rustix::net::sockopt;

pub use self::{flood::PORT, receive::serve};
use self::{sampler::Sampler, wire::PATIENCE};
use crate::{environment::SystemCounters, signals::Interrupt};

/// Where the bytes go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Over {
    /// 127.0.0.1.
    Loopback,
    /// A virtual cable between two namespaces of our own.
    Veth,
    /// A peer that serves, by the words with which it was named.
    Peer(String, SocketAddr),
    /// `iperf3 -s`, by the words with which it was named: streams only.
    Iperf3(String, SocketAddr),
}

/// The receiving side.
enum Far {
    /// Ours, by its control connection.
    Ours(TcpStream),
    /// An iperf3 server; each transfer has a control connection of its own.
    Iperf3(SocketAddr),
}

impl Far {
    fn transfer(
        &mut self,
        protocol: TransportProtocol,
        window_bytes: u64,
        duration: Duration,
        options: &ThroughputOptions,
    ) -> io::Result<(send::Sent, Received)> {
        let here = (&options.tree, &options.interrupt);
        match self {
            Far::Ours(control) => send::transfer(control, protocol, window_bytes, duration, here),
            Far::Iperf3(address) => iperf3::transfer(*address, window_bytes, duration, here),
        }
    }
}

/// What is to be measured.
#[derive(Debug)]
pub struct ThroughputOptions {
    pub over: Over,
    pub protocols: Vec<TransportProtocol>,
    /// Socket buffers.
    pub windows: Vec<u64>,
    /// How long each transfer.
    pub duration: Nanos,
    /// The sampler's place; none is no sampler.
    pub sampler: Option<Placement>,
    pub tree: Tree,
    pub interrupt: Interrupt,
    /// Version of rtscope, for the record.
    pub version: String,
    /// Wall clock, RFC 3339, for the record.
    pub wall_clock: String,
}

/// Why there is no throughput.
#[derive(Debug, thiserror::Error)]
pub enum ThroughputError {
    #[error(
        "no peer answers at {address} ({cause}): start `rtscope throughput --serve` there, and check that its port is open"
    )]
    NoPeer { address: String, cause: io::Error },
    /// No iperf3 answers.
    #[error(
        "no iperf3 answers at {address} ({cause}): start `iperf3 -s` there, and check that its port is open"
    )]
    NoIperf3 { address: String, cause: io::Error },
    #[error(
        "can't create a virtual cable between two namespaces ({0}): this needs root, and a kernel with veth"
    )]
    Cable(String),
    /// During a transfer.
    #[error("the transfer broke: {0}")]
    Broken(io::Error),
    #[error("the sampler can't run as {asked}: {cause}")]
    Place { asked: Box<Placement>, cause: rtscope_sys::Error },
    #[error(
        "the sampler did not run as {0} within {1} s: a thread of a higher priority holds its CPU; end that thread, or choose another CPU"
    )]
    Starved(Box<Placement>, u64),
    #[error("a thread of the measurement did not run to its end")]
    Thread,
}

impl ThroughputError {
    /// Whether a real-time permission is lacking.
    #[must_use]
    pub fn is_permission(&self) -> bool {
        matches!(self, ThroughputError::Place { cause, .. } if cause.is_permission())
    }
}

/// Measures.
///
/// # Errors
///
/// When there is no peer or cable, a transfer breaks, or the sampler can't be placed.
pub fn run(options: &ThroughputOptions) -> Result<ThroughputRecord, ThroughputError> {
    // A thread that moves into a namespace doesn't come back: it ends, and the namespace with it.
    thread::scope(|scope| {
        let measuring = scope.spawn(|| match &options.over {
            Over::Peer(name, address) => {
                let control = connected(name, *address)?;
                measured(options, Far::Ours(control))
            }
            Over::Iperf3(name, address) => {
                measured(options, Far::Iperf3(*address)).map_err(|error| match error {
                    ThroughputError::Broken(cause) if is_absence(&cause) => {
                        ThroughputError::NoIperf3 { address: name.clone(), cause }
                    }
                    other => other,
                })
            }
            Over::Loopback => local(options, &LocalSides::loopback()),
            Over::Veth => local(options, &LocalSides::cabled().map_err(cable)?),
        });
        measuring.join().map_err(|_| ThroughputError::Thread)?
    })
}

/// Whether nobody is there, of all that may go wrong.
fn is_absence(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionRefused, HostUnreachable, NetworkUnreachable};
    matches!(error.kind(), ConnectionRefused | HostUnreachable | NetworkUnreachable)
}

fn connected(name: &str, address: SocketAddr) -> Result<TcpStream, ThroughputError> {
    let no_peer = |cause| ThroughputError::NoPeer { address: name.to_owned(), cause };
    let control = TcpStream::connect_timeout(&address, PATIENCE).map_err(no_peer)?;
    control.set_nodelay(true).map_err(no_peer)?;
    Ok(control)
}

#[expect(clippy::needless_pass_by_value, reason = "for map_err")]
fn cable(error: rtscope_sys::Error) -> ThroughputError {
    ThroughputError::Cable(error.to_string())
}

/// Both sides are ours: the receiving one is a thread on the far side.
fn local(
    options: &ThroughputOptions,
    sides: &LocalSides,
) -> Result<ThroughputRecord, ThroughputError> {
    thread::scope(|scope| {
        let (tell, told) = std::sync::mpsc::channel();
        let receiving = scope.spawn(move || -> Result<(), ThroughputError> {
            sides.enter_far().map_err(cable)?;
            let listener =
                TcpListener::bind((IpAddr::V4(sides.far), 0)).map_err(ThroughputError::Broken)?;
            let address = listener.local_addr().map_err(ThroughputError::Broken)?;
            let _ = tell.send(address);
            let accepted = receive::accept(&listener, PATIENCE).map_err(ThroughputError::Broken)?;
            match accepted {
                Some((mut control, _)) => {
                    receive::session(&mut control, &options.tree, &options.interrupt)
                        .map(drop)
                        .map_err(ThroughputError::Broken)
                }
                None => Ok(()),
            }
        });
        let record = told.recv().map_err(|_| ThroughputError::Thread).and_then(|address| {
            sides.enter_near().map_err(cable)?;
            measured(options, Far::Ours(connected("the far side", address)?))
        });
        let received = receiving.join().map_err(|_| ThroughputError::Thread)?;
        // The receiving side knows better why a transfer broke.
        received.and(record)
    })
}

/// All transfers, each without and with the sampler.
fn measured(
    options: &ThroughputOptions,
    mut far: Far,
) -> Result<ThroughputRecord, ThroughputError> {
    let duration = Duration::from_nanos(options.duration.0);
    // The receiving side answers when the transfer is over, and a moment later.
    if let Far::Ours(control) = &far {
        control.set_read_timeout(Some(duration + PATIENCE * 2)).map_err(ThroughputError::Broken)?;
        control.set_write_timeout(Some(PATIENCE)).map_err(ThroughputError::Broken)?;
    }
    let rest = match &options.sampler {
        Some(place) => {
            let sampler = Sampler::start(place, options.duration)?;
            pause(duration, &options.interrupt);
            Some(sampler.finish()?)
        }
        None => None,
    };
    let mut transfers = Vec::new();
    for protocol in &options.protocols {
        for window_bytes in &options.windows {
            for with_sampler in [false, true] {
                let place = options.sampler.as_ref().filter(|_| with_sampler);
                if options.interrupt.is_stopped() || with_sampler && place.is_none() {
                    continue;
                }
                let sampler =
                    place.map(|place| Sampler::start(place, options.duration)).transpose()?;
                let (sent, received) = far
                    .transfer(*protocol, *window_bytes, duration, options)
                    .map_err(ThroughputError::Broken)?;
                transfers.push(Transfer {
                    protocol: *protocol,
                    window_bytes: *window_bytes,
                    buffer_bytes: sent.buffer_bytes,
                    sent_bytes: sent.bytes,
                    sent_datagrams: sent.datagrams,
                    span_ns: sent.span_ns,
                    cpu_load: sent.cpu_load,
                    received,
                    sampled: sampler.map(Sampler::finish).transpose()?,
                });
            }
        }
    }
    Ok(ThroughputRecord {
        format: FORMAT,
        version: options.version.clone(),
        wall_clock: options.wall_clock.clone(),
        kernel: options.tree.read("proc/sys/kernel/osrelease").unwrap_or_default(),
        over: match &options.over {
            Over::Loopback => "loopback".to_owned(),
            Over::Veth => "veth".to_owned(),
            Over::Peer(name, _) => name.clone(),
            Over::Iperf3(name, _) => format!("iperf3 at {name}"),
        },
        cpus: SystemCounters::read(&options.tree)
            .span_since(&SystemCounters::read(&options.tree), 1)
            .cpus
            .len() as u64,
        duration: options.duration,
        rest,
        transfers,
        interrupted: options.interrupt.is_stopped(),
    })
}

fn pause(duration: Duration, interrupt: &Interrupt) {
    let until = std::time::Instant::now() + duration;
    while std::time::Instant::now() < until && !interrupt.is_stopped() {
        thread::sleep(Duration::from_millis(20).min(duration));
    }
}

/// The CPU load since a reading of the counters. It covers exactly the time between two readings.
struct CpuLoad<'a> {
    tree: &'a Tree,
    before: SystemCounters,
    begin: Instant,
}

impl CpuLoad<'_> {
    fn begin(tree: &Tree) -> CpuLoad<'_> {
        CpuLoad { tree, before: SystemCounters::read(tree), begin: Instant::now() }
    }

    /// 0 to 1 of all CPUs, up to now.
    fn so_far(&self) -> f64 {
        self.over(self.begin.elapsed())
    }

    /// 0 to 1 of all CPUs, over this time. Nothing must have been done after it.
    fn over(&self, time: Duration) -> f64 {
        let span_ns = time.as_nanos() as u64;
        let span = SystemCounters::read(self.tree).span_since(&self.before, span_ns);
        let busy: u64 = span.cpus.iter().map(|cpu| cpu.busy_ns).sum();
        let whole = span_ns as f64 * span.cpus.len().max(1) as f64;
        (busy as f64 / whole.max(1.0)).min(1.0)
    }
}

/// Sets the buffer of a receiving socket: beyond the system's limit where that is permitted, else up to it.
fn set_receive_buffer(socket: impl AsFd, bytes: usize) -> io::Result<()> {
    let socket = socket.as_fd();
    sockopt::set_socket_recv_buffer_size_force(socket, bytes)
        .or_else(|_| sockopt::set_socket_recv_buffer_size(socket, bytes))?;
    Ok(())
}

/// As [`set_receive_buffer`], of a sending socket; its size as read back.
fn set_send_buffer(socket: impl AsFd, bytes: usize) -> io::Result<u64> {
    let socket = socket.as_fd();
    sockopt::set_socket_send_buffer_size_force(socket, bytes)
        .or_else(|_| sockopt::set_socket_send_buffer_size(socket, bytes))?;
    Ok(sockopt::socket_send_buffer_size(socket)? as u64)
}

#[cfg(test)]
mod tests {
    use std::net::UdpSocket;

    use super::{
        wire::{Answer, Request, VERSION},
        *,
    };

    fn options(protocols: Vec<TransportProtocol>) -> ThroughputOptions {
        ThroughputOptions {
            over: Over::Loopback,
            protocols,
            windows: vec![16 << 10, 64 << 10],
            duration: Nanos::from_ms(60),
            sampler: None,
            tree: Tree::default(),
            interrupt: Interrupt::default(),
            version: "0".to_owned(),
            wall_clock: String::new(),
        }
    }

    #[test]
    fn every_byte_of_a_stream_that_was_sent_comes() {
        let record = run(&options(vec![TransportProtocol::Tcp])).expect("it runs");
        assert_eq!(record.transfers.len(), 2);
        for one in &record.transfers {
            assert!(one.sent_bytes > 0 && one.sent_bytes == one.received.bytes, "{one:?}");
            // The kernel takes twice what is asked, for its own book-keeping.
            assert_eq!(one.received.buffer_bytes, Some(2 * one.window_bytes), "{one:?}");
            assert!((0.0..=1.0).contains(&one.cpu_load));
        }
    }

    #[test]
    fn datagrams_that_come_are_not_more_than_were_sent() {
        let record = run(&options(vec![TransportProtocol::Udp])).expect("it runs");
        for one in &record.transfers {
            assert_eq!(one.sent_bytes, one.sent_datagrams * send::DATAGRAM as u64);
            assert_eq!(one.received.bytes, one.received.datagrams * send::DATAGRAM as u64);
            assert!(one.received.datagrams > 0 && one.received.duplicates == 0, "{one:?}");
            assert!(one.received.datagrams <= one.sent_datagrams, "{one:?}");
        }
    }

    /// A receiving side, and the connection to it.
    fn receiver() -> (TcpStream, thread::JoinHandle<io::Result<u64>>) {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let control = TcpStream::connect(listener.local_addr().expect("bound")).expect("there");
        let receiving = thread::spawn(move || {
            let accepted = receive::accept(&listener, PATIENCE)?;
            let mut control = accepted.expect("connected").0;
            receive::session(&mut control, &Tree::default(), &Interrupt::default())
        });
        (control, receiving)
    }

    #[test]
    fn a_peer_floods_who_asks_until_the_connection_ends() {
        if rtscope_sys::net::icmp_socket().is_err() {
            return rtscope_testing::skip::skip_this("needs a socket for echo requests");
        }
        let (mut control, receiving) = receiver();
        wire::send(&mut control, &Request::Flood { version: wire::VERSION, size: 64 })
            .expect("asked");
        let mut replies = 0;
        while replies == 0 {
            match wire::hear(&mut control).expect("an answer").expect("there") {
                wire::Answer::Flooded { replies: more } => replies += more,
                other => panic!("{other:?}"),
            }
        }
        drop(control);
        // The flood ends with the connection, and was no transfer.
        assert_eq!(receiving.join().expect("ends").expect("well"), 0);
    }

    fn request(version: u32) -> Request {
        Request::Transfer {
            version,
            protocol: TransportProtocol::Udp,
            window_bytes: 1 << 20,
            limit_ns: 20_000_000_000,
        }
    }

    #[test]
    fn lost_repeated_and_reordered_datagrams_are_counted_exactly() {
        let (mut control, receiving) = receiver();
        wire::send(&mut control, &request(VERSION)).expect("told");
        let Some(Answer::Ready { port }) = wire::hear(&mut control).expect("heard") else {
            panic!("not ready")
        };
        let socket = UdpSocket::bind("127.0.0.1:0").expect("a port");
        // Of 0 to 9: 3, 6 and 7 are lost, 5 comes twice, 4 comes after 5.
        for number in [0_u64, 1, 2, 5, 4, 5, 8, 9] {
            let datagram = [&number.to_be_bytes()[..], &[0; 92]].concat();
            socket.send_to(&datagram, ("127.0.0.1", port)).expect("sent");
        }
        let other = UdpSocket::bind("127.0.0.2:0").expect("a port");
        other.send_to(&[[0; 7], [77; 7]].concat(), ("127.0.0.1", port)).expect("sent");
        wire::send(&mut control, &Request::Finished).expect("told");
        let Some(Answer::Report(report)) = wire::hear(&mut control).expect("heard") else {
            panic!("no report")
        };
        let counts = (report.datagrams, report.duplicates, report.reordered, report.bytes);
        assert_eq!(counts, (7, 1, 1, 700));
        drop(control);
        assert_eq!(receiving.join().expect("no panic").expect("a session"), 1);
        let transfer = Transfer {
            protocol: TransportProtocol::Udp,
            window_bytes: 1,
            buffer_bytes: 1,
            sent_bytes: 1_000,
            sent_datagrams: 10,
            span_ns: 1,
            cpu_load: 0.0,
            received: Received { span_ns: 1_000_000, ..report },
            sampled: None,
        };
        assert_eq!((transfer.lost_datagrams(), transfer.bits_per_second()), (3, 5.6e6));
    }

    #[test]
    fn another_version_is_refused_and_another_language_not_understood() {
        let (mut control, receiving) = receiver();
        wire::send(&mut control, &request(VERSION + 1)).expect("told");
        let answer: Option<Answer> = wire::hear(&mut control).expect("heard");
        assert!(matches!(answer, Some(Answer::Refused(why)) if why.contains("version")));
        drop(control);
        assert_eq!(receiving.join().expect("no panic").expect("a session"), 0);
        let (mut control, receiving) = receiver();
        io::Write::write_all(&mut control, b"GET / HTTP/1.1\r\n").expect("sent");
        assert!(receiving.join().expect("no panic").is_err());
    }

    #[test]
    fn a_missing_peer_is_told_with_what_to_do() {
        let port = TcpListener::bind("127.0.0.1:0").and_then(|one| one.local_addr());
        let address = port.expect("a port");
        let over = Over::Peer("board:1".to_owned(), address);
        let error = run(&ThroughputOptions { over, ..options(vec![TransportProtocol::Tcp]) })
            .expect_err("none");
        let text = error.to_string();
        assert!(text.contains("board:1") && text.contains("--serve"), "{text}");
    }

    #[test]
    fn a_cable_between_namespaces_is_gone_afterwards() {
        if !rtscope_sys::process::is_root() {
            return rtscope_testing::skip::skip_this("needs root");
        }
        let own = || std::fs::read_link("/proc/self/ns/net").expect("a namespace");
        let before = (rtscope_testing::devices::lasting(), own());
        match run(&ThroughputOptions { over: Over::Veth, ..options(vec![TransportProtocol::Tcp]) })
        {
            Ok(record) => {
                assert!(record.transfers.iter().all(|one| one.sent_bytes == one.received.bytes));
            }
            Err(error) => assert!(matches!(error, ThroughputError::Cable(_)), "{error}"),
        }
        assert_eq!((rtscope_testing::devices::lasting(), own()), before);
    }
}
