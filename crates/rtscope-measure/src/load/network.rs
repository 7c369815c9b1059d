//! `network`: sends packets as fast as it can, to itself.
//!
//! Exercises the network stack in both directions: sockets, softirqs, queues, and with `over=veth`
//! a device with neighbour resolution between two network namespaces. It can't show anything of a
//! network card and its interrupts: packets stay in memory.
//!
//! With `over=peer` another machine that runs `rtscope throughput --serve` floods this one with echo requests,
//! so that a network card and its interrupts take part. The kernel here answers them.
//!
//! `kind=udp` floods a receiver with datagrams, `kind=icmp` floods the kernel with echo requests,
//! `kind=tcp` streams. A unit of work is a datagram that arrived, an echo reply that came back, a
//! byte that arrived.
//!
//! With `over=loopback` only 127.0.0.1 is used. With `over=veth` two namespaces are made that hold
//! nothing but a virtual cable and addresses set aside for documentation (RFC 5737); the kernel
//! removes them with the load's last process.

use std::{
    io::{self, Read, Write},
    net::{Ipv4Addr, SocketAddr, SocketAddrV4, TcpListener, TcpStream, UdpSocket},
    thread,
};

use rtscope_model::text::Problem;
use rtscope_sys::net::{IcmpSocket, LocalSides, NO_BUFFERS, icmp_socket};

use super::{
    LoadDescriptor, LoadError,
    board::Counter,
    leaves_nothing, needs_nothing,
    options::{LoadOption, LoadOptions, ValueKind, size_text},
    worker::{Job, Processes},
};
use crate::throughput::flood::Flooded;

const OPTIONS: &[LoadOption] = &[
    LoadOption {
        name: "kind",
        kind: ValueKind::Word(&["udp", "icmp", "tcp"]),
        default: "udp",
        about: "udp: a flood of datagrams; icmp: a flood of echo requests; tcp: a stream",
    },
    LoadOption {
        name: "over",
        kind: ValueKind::Word(&["loopback", "veth", "peer"]),
        default: "loopback",
        about: "loopback: 127.0.0.1; veth: a virtual cable between two namespaces of its own; peer: another machine \
                floods this one",
    },
    LoadOption {
        name: "peer",
        kind: ValueKind::Text,
        default: "",
        about: "machine that runs `rtscope throughput --serve`, for over=peer: HOST or HOST:PORT",
    },
    LoadOption {
        name: "workers",
        kind: ValueKind::Workers,
        default: "1",
        about: "pairs of a sender and a receiver",
    },
    LoadOption {
        name: "size",
        kind: ValueKind::Size { min: 1, max: 1 << 20 },
        default: "1KiB",
        about: "bytes in a packet, or for tcp in a write",
    },
];

pub(super) const DESCRIPTOR: LoadDescriptor = LoadDescriptor {
    name: "network",
    about: "sends packets to itself: a UDP flood, an ICMP echo flood, or a TCP stream",
    unit: |options| if options.word("kind") == "tcp" { "bytes" } else { "packets" },
    options: OPTIONS,
    check,
    is_here: needs_nothing,
    run,
    clean: leaves_nothing,
};

/// The most bytes in a packet: 65,535 without the headers of IP and of UDP or ICMP, which are as
/// long.
pub(crate) const PACKET_MAX: usize = 65_535 - 20 - 8;

/// Packets that a sender sends before it lets others run: a receiver of the same real-time priority
/// on the same CPU would never have its turn otherwise.
pub(crate) const BURST: usize = 32;

fn check(options: &LoadOptions) -> Result<(), Problem> {
    let (kind, size) = (options.word("kind"), options.size("size"));
    let is_peer = options.word("over") == "peer";
    if is_peer && (kind != "icmp" || options.given("peer").is_none()) {
        let message = "over=peer is a flood of echo requests from another machine: write kind=icmp over=peer peer=HOST";
        return Err(Problem::new(message));
    }
    if is_peer && options.word("workers") != "1" {
        return Err(Problem::new("a peer sends only one flood: leave workers out with over=peer"));
    }
    if !is_peer && options.given("peer").is_some() {
        return Err(Problem::new("peer has a meaning only with over=peer"));
    }
    if kind == "tcp" || size <= PACKET_MAX {
        return Ok(());
    }
    let size = size_text(size as u64);
    let message = format!("size={size}: write at most {PACKET_MAX}B for kind={kind}");
    Err(Problem::new(message))
}

fn run(job: &Job) -> Result<(), LoadError> {
    let options = &job.options;
    if options.word("over") == "peer" {
        return flooded(job);
    }
    let sides = match options.word("over") {
        "veth" => LocalSides::cabled()?,
        _ => LocalSides::loopback(),
    };
    let size = options.size("size");
    let mut crew = Processes::new(job)?;
    for worker in 0..options.workers(&job.placement.cpus) {
        match options.word("kind") {
            "tcp" => add_tcp(&mut crew, job, &sides, size)?,
            "icmp" => add_icmp(&mut crew, job, &sides, size, worker)?,
            _ => add_udp(&mut crew, job, &sides, size)?,
        }
    }
    crew.work()
}

/// A peer sends the echo requests. This machine's kernel answers them, so that the workers only count.
fn flooded(job: &Job) -> Result<(), LoadError> {
    let options = &job.options;
    let peer = options.given("peer").unwrap_or_default();
    let what = || format!("flood from the peer {peer}, which runs `rtscope throughput --serve`");
    let mut crew = Processes::new(job)?;
    let flood = Flooded::ask(peer, options.size("size"));
    let mut flood = flood.map_err(LoadError::io(what()))?;
    // The first report says whether the peer does it.
    let first = flood.replies().map_err(LoadError::io(what()))?;
    crew.add(&job.placement, move |counter| {
        counter.add(first);
        loop {
            counter.add(flood.replies().map_err(LoadError::io(what()))?);
        }
    })?;
    crew.work()
}

/// Makes a socket on the near side. All are made before the workers are forked, since a socket belongs to the namespace that
/// it is made in.
fn on_near<T>(
    sides: &LocalSides,
    make: impl FnOnce(SocketAddr) -> io::Result<T>,
) -> Result<T, LoadError> {
    sides.enter_near()?;
    make(any_port(sides.near)).map_err(LoadError::io(format!("socket at {}", sides.near)))
}

/// Makes a socket on the far side.
fn on_far<T>(
    sides: &LocalSides,
    make: impl FnOnce(SocketAddr) -> io::Result<T>,
) -> Result<T, LoadError> {
    sides.enter_far()?;
    make(any_port(sides.far)).map_err(LoadError::io(format!("socket at {}", sides.far)))
}

fn any_port(address: Ipv4Addr) -> SocketAddr {
    SocketAddr::V4(SocketAddrV4::new(address, 0))
}

fn add_udp(
    crew: &mut Processes<'_>,
    job: &Job,
    sides: &LocalSides,
    size: usize,
) -> Result<(), LoadError> {
    let receiver = on_far(sides, UdpSocket::bind)?;
    let to = receiver.local_addr().map_err(LoadError::io("address of a socket"))?;
    let sender = on_near(sides, UdpSocket::bind)?;
    sender.connect(to).map_err(LoadError::io(format!("connect to {to}")))?;
    crew.add(&job.placement, |counter| receive(&receiver, size, counter, |_| true))?;
    crew.add(&job.placement, |_| flood(&sender, &vec![0; size]))
}

/// Why there is no socket for echo requests.
fn refused(error: rtscope_sys::Error) -> LoadError {
    if error.is_permission() { LoadError::Icmp(error) } else { LoadError::System(error) }
}

fn add_icmp(
    crew: &mut Processes<'_>,
    job: &Job,
    sides: &LocalSides,
    size: usize,
    worker: usize,
) -> Result<(), LoadError> {
    sides.enter_near()?;
    let (socket, is_raw) = match icmp_socket().map_err(refused)? {
        IcmpSocket::Raw(socket) => (socket, true),
        IcmpSocket::Ping(socket) => (socket, false),
    };
    let to = any_port(sides.far);
    socket.connect(to).map_err(LoadError::io(format!("connect to {}", sides.far)))?;
    // Different for every worker of every load at a time, nearly: a reply to another is not
    // counted.
    let identifier = (std::process::id() as u16).wrapping_add(worker as u16);
    let is_ours = move |packet: &[u8]| !is_raw || is_reply_to(packet, identifier);
    crew.add(&job.placement, |counter| receive(&socket, reply_room(size), counter, is_ours))?;
    crew.add(&job.placement, |_| flood(&socket, &echo_request(identifier, size)))
}

fn add_tcp(
    crew: &mut Processes<'_>,
    job: &Job,
    sides: &LocalSides,
    size: usize,
) -> Result<(), LoadError> {
    let listener = on_far(sides, TcpListener::bind)?;
    let to = listener.local_addr().map_err(LoadError::io("address of a socket"))?;
    let mut sender = on_near(sides, |_| TcpStream::connect(to))?;
    let (mut receiver, _) = listener.accept().map_err(LoadError::io("accept"))?;
    crew.add(&job.placement, |counter| {
        let mut bytes = vec![0; size];
        loop {
            let read = receiver.read(&mut bytes).map_err(LoadError::io("receive"))?;
            if read == 0 {
                return Err(LoadError::Broken("the stream ended"));
            }
            counter.add(read as u64);
        }
    })?;
    crew.add(&job.placement, |_| {
        let bytes = vec![0; size];
        loop {
            sender.write_all(&bytes).map_err(LoadError::io("send"))?;
        }
    })
}

fn flood(socket: &UdpSocket, packet: &[u8]) -> Result<(), LoadError> {
    loop {
        for _ in 0..BURST {
            match socket.send(packet) {
                Ok(_) => {}
                // The queue of a device is full, or nobody listens any more: a flood goes on.
                Err(e) if is_passing(&e) => break,
                Err(source) => return Err(LoadError::Io { what: "send".to_owned(), source }),
            }
        }
        thread::yield_now();
    }
}

pub(crate) fn is_passing(error: &io::Error) -> bool {
    error.raw_os_error() == Some(NO_BUFFERS) || error.kind() == io::ErrorKind::ConnectionRefused
}

fn receive(
    socket: &UdpSocket,
    room: usize,
    counter: Counter<'_>,
    is_ours: impl Fn(&[u8]) -> bool,
) -> Result<(), LoadError> {
    let mut packet = vec![0; room];
    loop {
        let len = socket.recv(&mut packet).map_err(LoadError::io("receive"))?;
        if is_ours(&packet[..len]) {
            counter.add(1);
        }
    }
}

const IP_HEADER_MAX: usize = 60;
const ICMP_HEADER: usize = 8;
const ECHO_REQUEST: u8 = 8;
const ECHO_REPLY: u8 = 0;

/// Room for a reply to a request of so many bytes.
pub(crate) const fn reply_room(size: usize) -> usize {
    size + IP_HEADER_MAX + ICMP_HEADER
}

/// An ICMP echo request (RFC 792): type, code, checksum, identifier, sequence number, payload.
pub(crate) fn echo_request(identifier: u16, payload_bytes: usize) -> Vec<u8> {
    let mut packet = vec![0; ICMP_HEADER + payload_bytes];
    packet[0] = ECHO_REQUEST;
    packet[4..6].copy_from_slice(&identifier.to_be_bytes());
    let checksum = checksum(&packet);
    packet[2..4].copy_from_slice(&checksum.to_be_bytes());
    packet
}

/// The internet checksum (RFC 1071): the complement of the sum of all 16-bit words, with carries
/// added back in.
fn checksum(bytes: &[u8]) -> u16 {
    let words = bytes.chunks(2).map(|pair| [pair[0], *pair.get(1).unwrap_or(&0)]);
    let mut sum: u32 = words.map(|pair| u32::from(u16::from_be_bytes(pair))).sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}

/// Whether an IP packet is an echo reply with this identifier. The lower half of the first byte is
/// the length of the IP header in words of 4 bytes.
pub(crate) fn is_reply_to(packet: &[u8], identifier: u16) -> bool {
    let header_bytes = packet.first().map_or(0, |first| usize::from(first & 15) * 4);
    let Some(icmp) = packet.get(header_bytes..) else { return false };
    icmp.first() == Some(&ECHO_REPLY) && icmp.get(4..6) == Some(&identifier.to_be_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_carries_a_right_checksum() {
        // The example of RFC 1071.
        assert_eq!(checksum(&[0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7]), !0xddf2);
        for payload in [0, 1, 56, 1_400] {
            // With its checksum in place, the sum of a packet is all ones.
            assert_eq!(checksum(&echo_request(0x1234, payload)), 0);
        }
    }

    #[test]
    fn only_our_replies_are_counted() {
        let mut packet = vec![0; 20];
        packet[0] = 0x45;
        packet.extend(echo_request(77, 4));
        assert!(!is_reply_to(&packet, 77), "a request");
        packet[20] = ECHO_REPLY;
        assert!(is_reply_to(&packet, 77));
        assert!(!is_reply_to(&packet, 78));
        assert!(!is_reply_to(&packet[..22], 77));
        assert!(!is_reply_to(&[0x4f], 77));
    }

    #[test]
    fn a_flood_from_a_peer_is_asked_for_completely() {
        let check = |line: &str| crate::load::check(&line.parse().expect("a line"));
        assert_eq!(check("network kind=icmp over=peer peer=192.0.2.7:99"), Ok(()));
        for line in ["network over=peer peer=a", "network kind=icmp over=peer"] {
            let problem = check(line).expect_err(line);
            assert!(
                problem.message.contains("kind=icmp over=peer peer=HOST"),
                "{}",
                problem.message
            );
        }
        assert!(check("network kind=icmp peer=a").is_err(), "a peer that nobody asks");
    }

    #[test]
    fn a_packet_must_fit_into_ip() {
        let check = |line: &str| crate::load::check(&line.parse().expect("a line"));
        assert_eq!(check("network kind=tcp size=1MiB"), Ok(()));
        assert_eq!(check("network kind=udp size=65507"), Ok(()));
        let problem = check("network kind=icmp size=64KiB").expect_err("refused");
        assert!(problem.message.contains("at most 65507B"), "{}", problem.message);
    }
}
