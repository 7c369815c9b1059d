//! Frames of a network sampler: how they go out and come back.
//!
//! ```text
//! message   what a frame carries
//! wire      the near end, which a sampling thread sends by and waits at
//! peer      the far end, which sends frames back
//! ```
//!
//! Sockets belong to the namespace that they are opened in, so a thread of its own opens those of a virtual cable in
//! two new namespaces, and ends. The namespaces have no name: the kernel removes them with the last socket, also after
//! a SIGKILL.

mod message;
mod peer;
mod wire;

use std::{
    io,
    net::{Ipv4Addr, SocketAddr, ToSocketAddrs, UdpSocket},
    sync::atomic::{AtomicU64, Ordering::Relaxed},
    thread,
    time::Duration,
};

use rtscope_model::{
    cpu::CpuSet,
    plan::{FramePath, FrameRoute, FrameTransport, Plan},
    schedule::{Placement, Policy},
};
use rtscope_sys::{
    clock::{Clock, SystemClock},
    frame::{ETHER_TYPE, ETHERNET_HEADER, FrameSocket, Interface, MacAddress},
    net::LocalSides,
    xdp::{FRAME_BYTES_MAX, XdpSocket},
};

pub use self::peer::{serve_ethernet, serve_udp};
use self::{
    message::{Kind, Message, VERSION, WORD_OF_KIND, WORD_OF_TOKEN},
    peer::PeerSocket,
    wire::NearEnd,
};
pub(crate) use self::{peer::LocalPeer, wire::SocketWire};

/// The port of `rtscope network --serve` when none is named.
const PORT: u16 = 15_202;

/// How often a peer is asked whether it is there, and how long each time.
const HELLOS: u32 = 20;
const HELLO_NS: u64 = 100_000_000;

/// Headers of a UDP datagram: that of UDP, and that of IPv4 or IPv6.
const UDP_HEADERS_V4: u32 = 8 + 20;
const UDP_HEADERS_V6: u32 = 8 + 40;

fn udp_headers(address: &SocketAddr) -> u32 {
    if address.is_ipv4() { UDP_HEADERS_V4 } else { UDP_HEADERS_V6 }
}

/// Why frames can't be sent.
#[derive(Debug, thiserror::Error)]
pub enum NetworkError {
    #[error("there is no network interface {0:?}: `ip link` shows those of this machine")]
    NoInterface(String),
    #[error("the interface {0} is down: bring it up with `ip link set {0} up`")]
    Down(String),
    #[error(
        "the interface {0} has no carrier: plug in its cable, and check that the other end is up"
    )]
    NoCarrier(String),
    #[error("the interface {0} carries no Ethernet frames: use udp, or another interface")]
    NotEthernet(String),
    #[error(
        "a frame of size {size} does not fit: {name} takes at most {most}; ask for a smaller size, or raise its MTU"
    )]
    Mtu { size: u32, name: String, most: u32 },
    #[error(
        "xdp allows only one thread, but there are {0}: its socket needs the interface's queue for itself; add --threads 1"
    )]
    Threads(u32),
    #[error(
        "can't send frames by AF_XDP on {interface}: {error}; this needs root and Linux 5.9 or later, and no other XDP program on the interface"
    )]
    Xdp { interface: String, error: rtscope_sys::Error },
    #[error("no permission to {0}: run as root, or give the program CAP_NET_RAW and CAP_NET_ADMIN")]
    Permission(String),
    #[error(
        "there is no host {host:?} ({cause}): write a name or an address, with :PORT if it is not {PORT}"
    )]
    NoHost { host: String, cause: String },
    #[error("{0:?} is not a MAC address: write it as 02:00:00:00:00:01")]
    NotAMac(String),
    #[error(
        "no peer answers at {0}: start `rtscope network --serve` there with the same transport, and check that no \
         firewall is in the way"
    )]
    Silent(String),
    #[error(
        "no frame came back from {out} to {back} within 2 s: connect the two, directly or through a switch"
    )]
    NotConnected { out: String, back: String },
    #[error(
        "the peer at {peer} uses version {theirs} of the frames, but this rtscope uses version {VERSION}: use the same rtscope on both sides"
    )]
    Version { peer: String, theirs: u8 },
    #[error(
        "can't create a virtual cable between two namespaces ({0}): this needs root, and a kernel with veth"
    )]
    Cable(String),
    #[error("can't {0}: {1}")]
    Io(String, io::Error),
    #[error(transparent)]
    System(rtscope_sys::Error),
    #[error("{0}")]
    Peer(String),
}

impl NetworkError {
    /// Whether the plan or the command line asks for what this machine doesn't have.
    #[must_use]
    pub fn is_wrong_request(&self) -> bool {
        matches!(
            self,
            NetworkError::NoInterface(_)
                | NetworkError::NotEthernet(_)
                | NetworkError::Mtu { .. }
                | NetworkError::NoHost { .. }
                | NetworkError::NotAMac(_)
                | NetworkError::Threads(_)
        )
    }
}

/// How the threads of a session send frames.
#[derive(Clone, Debug)]
pub struct NetworkSpec {
    pub path: FramePath,
    /// Where a peer of this process runs.
    pub peer_cpus: CpuSet,
}

impl NetworkSpec {
    /// How long a frame of a thread with this cycle may take.
    pub(crate) fn timeout_ns(&self, interval_ns: u64) -> u64 {
        self.path.timeout.map_or(interval_ns, |timeout| timeout.0)
    }

    /// A peer runs as the thread does that waits for it, on CPUs of its own where there are some.
    pub(crate) fn peer_place(&self, asked: &Placement) -> Placement {
        let policy = if asked.policy == Policy::Deadline { Policy::Fifo } else { asked.policy };
        let priority = match asked.priority {
            0 if policy.has_priority() => PEER_PRIORITY,
            priority => priority,
        };
        Placement { policy, priority, budget: None, cpus: self.peer_cpus.clone(), ..asked.clone() }
    }
}

/// The priority of a peer whose thread has none, because it runs under the deadline policy.
const PEER_PRIORITY: u8 = 90;

/// The near ends of a path, one for each thread, and the peers that are threads of this process.
#[derive(Debug, Default)]
pub(crate) struct Links {
    pub(crate) wires: Vec<SocketWire>,
    pub(crate) peers: Vec<LocalPeer>,
}

/// Whether every path of a plan can be used now: opened once, and answered once.
///
/// # Errors
///
/// The first that can't.
pub fn check(plan: &Plan) -> Result<(), NetworkError> {
    let mut seen: Vec<&FramePath> = Vec::new();
    for path in plan.phases.iter().filter_map(|phase| phase.sampler.network.path()) {
        if !seen.contains(&path) {
            Links::open(path, 1, None)?;
            seen.push(path);
        }
    }
    Ok(())
}

impl Links {
    /// Opens a path for so many threads, and hears from the other end of each. Peers of this process run at a place,
    /// or anywhere.
    ///
    /// # Errors
    ///
    /// What is missing, and what to do.
    pub(crate) fn open(
        path: &FramePath,
        threads: u32,
        place: Option<&Placement>,
    ) -> Result<Links, NetworkError> {
        let ends = thread::scope(|scope| {
            // It may move into another namespace, and never comes back.
            let opening = scope.spawn(|| ends(path, threads));
            opening.join().map_err(|_| NetworkError::Peer("opening the sockets failed".to_owned()))
        })??;
        let mut links = Links::default();
        for (wire, peer) in ends {
            if let Some(peer) = peer {
                links.peers.push(LocalPeer::start(peer, path.faults, place.cloned())?);
            }
            links.wires.push(wire);
        }
        for wire in &mut links.wires {
            greet(wire, path)?;
            if path.stamps {
                wire.has_stamps = wire.out.ask_stamps().map_err(NetworkError::System)?;
                if let Some(back) = &wire.back {
                    back.ask_stamps().map_err(NetworkError::System)?;
                }
            }
        }
        Ok(links)
    }
}

type Ends = Vec<(SocketWire, Option<PeerSocket>)>;

fn ends(path: &FramePath, threads: u32) -> Result<Ends, NetworkError> {
    if path.transport == FrameTransport::Xdp && threads > 1 {
        return Err(NetworkError::Threads(threads));
    }
    let is_udp = path.transport == FrameTransport::Udp;
    match &path.route {
        FrameRoute::Loopback => {
            (0..threads).map(|_| udp_pair(path, &LocalSides::loopback())).collect()
        }
        FrameRoute::Veth => {
            let sides = LocalSides::cabled().map_err(cable)?;
            let pair =
                |_| if is_udp { udp_pair(path, &sides) } else { ethernet_pair(path, &sides) };
            (0..threads).map(pair).collect()
        }
        FrameRoute::Peer { host, interface: None } => {
            let host = host.as_deref().unwrap_or_default();
            let address = address_of(host)?;
            (0..threads).map(|_| Ok((udp_to(path, address, host)?, None))).collect()
        }
        FrameRoute::Peer { host, interface: Some(name) } => {
            let interface = usable(name)?;
            let to = host.as_deref().map_or(Ok([0xff; 6]), mac_of)?;
            (0..threads).map(|_| Ok((ethernet_to(path, &interface, to)?, None))).collect()
        }
        FrameRoute::Cards { out, back } => {
            let (out, back) = (usable(out)?, usable(back)?);
            (0..threads).map(|_| Ok((over_cards(path, &out, &back)?, None))).collect()
        }
    }
}

/// An interface that Ethernet frames can be sent by.
fn usable(name: &str) -> Result<Interface, NetworkError> {
    let mut looks = 0;
    loop {
        match look_at(name) {
            Err(NetworkError::NoCarrier(_)) if looks < CARRIER_LOOKS => {
                thread::sleep(CARRIER_PAUSE);
                looks += 1;
            }
            found => return found,
        }
    }
}

/// The kernel tells of the carrier of an interface that was just switched on, as of a virtual cable, a moment later.
const CARRIER_LOOKS: u32 = 200;
const CARRIER_PAUSE: Duration = Duration::from_millis(10);

fn look_at(name: &str) -> Result<Interface, NetworkError> {
    let interface =
        Interface::named(name).map_err(|_| NetworkError::NoInterface(name.to_owned()))?;
    let name = interface.name.clone();
    match (interface.is_ethernet, interface.is_up, interface.is_running) {
        (false, ..) => Err(NetworkError::NotEthernet(name)),
        (_, false, _) => Err(NetworkError::Down(name)),
        (.., false) => Err(NetworkError::NoCarrier(name)),
        _ => Ok(interface),
    }
}

fn ethernet(interface: &Interface) -> Result<FrameSocket, NetworkError> {
    FrameSocket::ethernet(interface).map_err(|error| match error.is_permission() {
        true => NetworkError::Permission(format!("send Ethernet frames by {}", interface.name)),
        false => NetworkError::System(error),
    })
}

/// What a transport sends Ethernet frames by on an interface.
fn near_end(path: &FramePath, interface: &Interface) -> Result<NearEnd, NetworkError> {
    fits(path.size, 0, interface.mtu, &interface.name)?;
    if path.transport != FrameTransport::Xdp {
        return ethernet(interface).map(NearEnd::Socket);
    }
    let most = (FRAME_BYTES_MAX - ETHERNET_HEADER) as u32;
    fits(path.size, 0, most, "a frame by AF_XDP")?;
    let rings = XdpSocket::open(interface)
        .map_err(|error| NetworkError::Xdp { interface: interface.name.clone(), error })?;
    Ok(NearEnd::Rings(Box::new(rings)))
}

/// Refuses a frame that isn't sent in one piece.
fn fits(size: u16, headers: u32, mtu: u32, name: &str) -> Result<(), NetworkError> {
    let (size, most) = (u32::from(size), mtu.saturating_sub(headers));
    if size <= most { Ok(()) } else { Err(NetworkError::Mtu { size, name: name.to_owned(), most }) }
}

/// A number that no other thread on the network has, nearly.
fn new_token() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    let nth = NEXT.fetch_add(1, Relaxed);
    // Spread over all bits, as the lower half is what a filter looks at.
    let mixed = SystemClock::MONOTONIC.now_ns() ^ u64::from(std::process::id()).rotate_left(40);
    mixed.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(32).wrapping_add(nth)
}

fn io_error(what: &str) -> impl FnOnce(io::Error) -> NetworkError {
    let what = what.to_owned();
    move |error| NetworkError::Io(what, error)
}

#[expect(clippy::needless_pass_by_value, reason = "for map_err")]
fn cable(error: rtscope_sys::Error) -> NetworkError {
    NetworkError::Cable(error.to_string())
}

/// Two sockets that are connected to each other.
fn udp_pair(
    path: &FramePath,
    sides: &LocalSides,
) -> Result<(SocketWire, Option<PeerSocket>), NetworkError> {
    let bind = |at: Ipv4Addr| UdpSocket::bind((at, 0)).map_err(io_error("open a UDP socket"));
    let local =
        |socket: &UdpSocket| socket.local_addr().map_err(io_error("read a socket's address"));
    sides.enter_far().map_err(cable)?;
    let far = bind(sides.far)?;
    sides.enter_near().map_err(cable)?;
    let near = bind(sides.near)?;
    near.connect(local(&far)?).map_err(io_error("connect a UDP socket"))?;
    let near_address = local(&near)?;
    sides.enter_far().map_err(cable)?;
    far.connect(near_address).map_err(io_error("connect a UDP socket"))?;
    let near = FrameSocket::from(near);
    if let Some(mtu) = near.path_mtu() {
        let name = if sides.are_cabled() { "the virtual cable" } else { "the loopback device" };
        fits(path.size, UDP_HEADERS_V4, mtu, name)?;
    }
    let wire = SocketWire::new(NearEnd::Socket(near), None, &[], path.size, new_token());
    Ok((wire, Some(PeerSocket::Udp(far.into()))))
}

fn address_of(host: &str) -> Result<SocketAddr, NetworkError> {
    let no_host = |cause: String| NetworkError::NoHost { host: host.to_owned(), cause };
    let found = host.to_socket_addrs().or_else(|_| (host, PORT).to_socket_addrs());
    let found = found.map_err(|error| no_host(error.to_string()))?;
    preferred(found).ok_or_else(|| no_host("it has no address".to_owned()))
}

/// The address of a host that has several. `rtscope network --serve` listens at those of IPv4 when none is named.
fn preferred(addresses: impl Iterator<Item = SocketAddr>) -> Option<SocketAddr> {
    addresses.min_by_key(SocketAddr::is_ipv6)
}

fn udp_to(path: &FramePath, address: SocketAddr, host: &str) -> Result<SocketWire, NetworkError> {
    let any = match address {
        SocketAddr::V4(_) => "0.0.0.0:0",
        SocketAddr::V6(_) => "[::]:0",
    };
    let socket = UdpSocket::bind(any).map_err(io_error("open a UDP socket"))?;
    socket.connect(address).map_err(io_error(&format!("reach {host}")))?;
    let socket = FrameSocket::from(socket);
    if let Some(mtu) = socket.path_mtu() {
        fits(path.size, udp_headers(&address), mtu, &format!("the way to {host}"))?;
    }
    Ok(SocketWire::new(NearEnd::Socket(socket), None, &[], path.size, new_token()))
}

/// The header of an Ethernet frame.
fn header(to: MacAddress, from: MacAddress) -> [u8; ETHERNET_HEADER] {
    let mut header = [0; ETHERNET_HEADER];
    header[..6].copy_from_slice(&to);
    header[6..12].copy_from_slice(&from);
    header[12..].copy_from_slice(&ETHER_TYPE.to_be_bytes());
    header
}

fn ethernet_pair(
    path: &FramePath,
    sides: &LocalSides,
) -> Result<(SocketWire, Option<PeerSocket>), NetworkError> {
    sides.enter_far().map_err(cable)?;
    let interface = usable(LocalSides::FAR_DEVICE)?;
    let peer = PeerSocket::Ethernet(ethernet(&interface)?, interface.mac);
    sides.enter_near().map_err(cable)?;
    let wire = ethernet_to(path, &usable(LocalSides::NEAR_DEVICE)?, interface.mac)?;
    Ok((wire, Some(peer)))
}

fn ethernet_to(
    path: &FramePath,
    interface: &Interface,
    to: MacAddress,
) -> Result<SocketWire, NetworkError> {
    let socket = near_end(path, interface)?;
    let token = new_token();
    let frame = header(to, interface.mac);
    Ok(SocketWire::new(socket, None, &frame, path.size, token))
}

fn over_cards(
    path: &FramePath,
    out: &Interface,
    back: &Interface,
) -> Result<SocketWire, NetworkError> {
    let (sends, receives) = (near_end(path, out)?, near_end(path, back)?);
    Ok(SocketWire::new(sends, Some(receives), &header(back.mac, out.mac), path.size, new_token()))
}

fn mac_of(text: &str) -> Result<MacAddress, NetworkError> {
    let bytes: Option<Vec<u8>> = text
        .split(':')
        .map(|pair| u8::from_str_radix(pair, 16).ok().filter(|_| pair.len() == 2))
        .collect();
    let mac = bytes.and_then(|bytes| MacAddress::try_from(bytes).ok());
    mac.ok_or_else(|| NetworkError::NotAMac(text.to_owned()))
}

/// Asks the other end whether it is there, and lets nothing but its answers through from then on.
fn greet(wire: &mut SocketWire, path: &FramePath) -> Result<(), NetworkError> {
    for number in 0..HELLOS {
        let _ = wire.say(Kind::Hello, u64::from(number));
        let Some((message, frame)) = wire.hear(HELLO_NS) else {
            continue;
        };
        match message.kind {
            Kind::Welcome => {
                // A search ends at who answers.
                if wire.at > 0 {
                    wire.frame[..6].copy_from_slice(&frame[6..12]);
                }
            }
            Kind::Hello if wire.back.is_some() => {}
            Kind::Refused => {
                return Err(NetworkError::Version {
                    peer: where_to(path),
                    theirs: message.version,
                });
            }
            _ => continue,
        }
        if wire.at > 0 {
            let at = wire.at as u32;
            let only = [
                (at + WORD_OF_KIND, Message::kind_word(wire.expects)),
                (at + WORD_OF_TOKEN, wire.token as u32),
            ];
            wire.incoming().only(&only).map_err(NetworkError::System)?;
        }
        return Ok(());
    }
    Err(match &path.route {
        FrameRoute::Cards { out, back } => {
            NetworkError::NotConnected { out: out.clone(), back: back.clone() }
        }
        _ => NetworkError::Silent(where_to(path)),
    })
}

/// Where frames of a path go, in words.
#[must_use]
pub fn where_to(path: &FramePath) -> String {
    match &path.route {
        FrameRoute::Loopback => "the loopback device".to_owned(),
        FrameRoute::Veth => "the other end of the virtual cable".to_owned(),
        FrameRoute::Peer { host: Some(host), interface: None } => host.clone(),
        FrameRoute::Peer { host, interface } => {
            let interface = interface.as_deref().unwrap_or_default();
            match host {
                Some(host) => format!("{host} by {interface}"),
                None => format!("the interface {interface}"),
            }
        }
        FrameRoute::Cards { out, back } => format!("{back} by {out}"),
    }
}

#[cfg(test)]
mod tests;
