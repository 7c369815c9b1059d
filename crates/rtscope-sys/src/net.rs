//! Network namespaces with a virtual cable between them, made by netlink so that no other program
//! is needed, and sockets for ICMP.

use std::{
    ffi::CString,
    fs::File,
    io::{Read, Write},
    net::{Ipv4Addr, UdpSocket},
    os::fd::{AsRawFd, FromRawFd, OwnedFd},
};

use crate::error::{Error, check};

/// A network namespace. The kernel removes it, with the devices in it, when no process, socket or
/// value of this type is left in it.
#[derive(Debug)]
struct Namespace(File);

impl Namespace {
    /// Moves the calling thread into a new, empty namespace.
    ///
    /// # Errors
    ///
    /// EPERM without `CAP_SYS_ADMIN`; EINVAL when the kernel has no network namespaces.
    fn enter_new() -> Result<Namespace, Error> {
        // SAFETY: plain integers.
        let answer = unsafe { libc::unshare(libc::CLONE_NEWNET) };
        check(i64::from(answer), || "unshare network namespace".to_owned())?;
        let path = "/proc/thread-self/ns/net";
        let file = File::open(path).map_err(|source| Error::File {
            operation: "open",
            path: path.into(),
            source,
        })?;
        Ok(Namespace(file))
    }

    /// Moves the calling thread into this namespace.
    ///
    /// # Errors
    ///
    /// EPERM without `CAP_SYS_ADMIN`.
    fn enter(&self) -> Result<(), Error> {
        // SAFETY: plain integers; the descriptor is open while the value lives.
        let answer = unsafe { libc::setns(self.0.as_raw_fd(), libc::CLONE_NEWNET) };
        check(i64::from(answer), || "setns".to_owned()).map(drop)
    }
}

/// Where packets come from and where they go to, within this machine. Sockets belong to the namespace in which they
/// are made.
///
/// A thread that has moved into another namespace doesn't come back: take one of its own, and let it end.
#[derive(Debug)]
pub struct LocalSides {
    /// Address of the near side.
    pub near: Ipv4Addr,
    /// Address of the far side.
    pub far: Ipv4Addr,
    /// Near and far, when they are namespaces of their own.
    namespaces: Option<(Namespace, Namespace)>,
}

impl LocalSides {
    /// The near end of the cable.
    pub const NEAR_DEVICE: &str = "near0";
    /// The far end of the cable.
    pub const FAR_DEVICE: &str = "far0";

    /// Both in the caller's namespace, by the loopback device.
    #[must_use]
    pub fn loopback() -> LocalSides {
        LocalSides { near: Ipv4Addr::LOCALHOST, far: Ipv4Addr::LOCALHOST, namespaces: None }
    }

    /// Two new namespaces that hold nothing but a virtual cable and addresses set aside for documentation (RFC 5737).
    /// Afterwards the calling thread is in the near one. If this fails, it may be in either, or where it was.
    ///
    /// # Errors
    ///
    /// EPERM without `CAP_SYS_ADMIN`; what a kernel without network namespaces or veth devices answers.
    pub fn cabled() -> Result<LocalSides, Error> {
        const PREFIX_BITS: u8 = 24;
        let (near, far) = (Ipv4Addr::new(192, 0, 2, 1), Ipv4Addr::new(192, 0, 2, 2));
        let near_namespace = Namespace::enter_new()?;
        let far_namespace = Namespace::enter_new()?;
        make_veth(LocalSides::FAR_DEVICE, LocalSides::NEAR_DEVICE, &near_namespace)?;
        add_address(LocalSides::FAR_DEVICE, far, PREFIX_BITS)?;
        set_up(LocalSides::FAR_DEVICE)?;
        near_namespace.enter()?;
        add_address(LocalSides::NEAR_DEVICE, near, PREFIX_BITS)?;
        set_up(LocalSides::NEAR_DEVICE)?;
        Ok(LocalSides { near, far, namespaces: Some((near_namespace, far_namespace)) })
    }

    /// Whether a virtual cable is between them.
    #[must_use]
    pub fn are_cabled(&self) -> bool {
        self.namespaces.is_some()
    }

    /// Moves the calling thread to the near side; nothing is to be done without a cable.
    ///
    /// # Errors
    ///
    /// EPERM without `CAP_SYS_ADMIN`.
    pub fn enter_near(&self) -> Result<(), Error> {
        self.namespaces.as_ref().map_or(Ok(()), |(near, _)| near.enter())
    }

    /// Moves the calling thread to the far side; nothing is to be done without a cable.
    ///
    /// # Errors
    ///
    /// EPERM without `CAP_SYS_ADMIN`.
    pub fn enter_far(&self) -> Result<(), Error> {
        self.namespaces.as_ref().map_or(Ok(()), |(_, far)| far.enter())
    }
}

/// Makes a virtual cable: one end in the caller's namespace, the other in another one.
///
/// # Errors
///
/// EPERM without `CAP_NET_ADMIN`; EOPNOTSUPP when the kernel has no veth devices.
fn make_veth(here: &str, there: &str, their_namespace: &Namespace) -> Result<(), Error> {
    const VETH_INFO_PEER: u16 = 1;
    let mut request = Request::new(
        libc::RTM_NEWLINK,
        (libc::NLM_F_CREATE | libc::NLM_F_EXCL) as u16,
        &link_header(0, 0),
    );
    request.text(libc::IFLA_IFNAME, here);
    request.nested(libc::IFLA_LINKINFO, |link| {
        link.text(libc::IFLA_INFO_KIND, "veth");
        link.nested(libc::IFLA_INFO_DATA, |veth| {
            veth.nested(VETH_INFO_PEER, |peer| {
                peer.bytes.extend_from_slice(&link_header(0, 0));
                peer.text(libc::IFLA_IFNAME, there);
                let descriptor = their_namespace.0.as_raw_fd();
                peer.attribute(libc::IFLA_NET_NS_FD, &descriptor.to_ne_bytes());
            });
        });
    });
    request.send(&format!("make veth {here} {there}"))
}

/// Gives a device of the caller's namespace an address.
///
/// # Errors
///
/// ENODEV when there is no such device; EPERM without `CAP_NET_ADMIN`.
fn add_address(device: &str, address: Ipv4Addr, prefix_bits: u8) -> Result<(), Error> {
    let mut header = vec![libc::AF_INET as u8, prefix_bits, 0, 0];
    header.extend_from_slice(&index(device)?.to_ne_bytes());
    let flags = (libc::NLM_F_CREATE | libc::NLM_F_EXCL) as u16;
    let mut request = Request::new(libc::RTM_NEWADDR, flags, &header);
    request.attribute(libc::IFA_LOCAL, &address.octets());
    request.attribute(libc::IFA_ADDRESS, &address.octets());
    request.send(&format!("add address {address} to {device}"))
}

/// Switches a device of the caller's namespace on.
///
/// # Errors
///
/// ENODEV when there is no such device; EPERM without `CAP_NET_ADMIN`.
pub fn set_up(device: &str) -> Result<(), Error> {
    let header = link_header(index(device)?, libc::IFF_UP as u32);
    Request::new(libc::RTM_NEWLINK, 0, &header).send(&format!("set {device} up"))
}

fn index(device: &str) -> Result<u32, Error> {
    let name = CString::new(device).unwrap_or_default();
    // SAFETY: the pointer is valid for a C string.
    match unsafe { libc::if_nametoindex(name.as_ptr()) } {
        0 => Err(Error::last(format!("find network device {device}"))),
        index => Ok(index),
    }
}

/// `struct ifinfomsg` of a device, 0 for a new one, with flags to set.
fn link_header(index: u32, set_flags: u32) -> [u8; 16] {
    let mut bytes = [0; 16];
    bytes[4..8].copy_from_slice(&index.to_ne_bytes());
    bytes[8..12].copy_from_slice(&set_flags.to_ne_bytes());
    bytes[12..16].copy_from_slice(&set_flags.to_ne_bytes());
    bytes
}

/// A request to the kernel's routing netlink (rtnetlink(7)): a header, a fixed part, attributes,
/// all padded to 4 bytes.
struct Request {
    bytes: Vec<u8>,
}

/// `struct nlmsghdr`.
const HEADER_BYTES: usize = 16;

impl Request {
    fn new(kind: u16, flags: u16, fixed: &[u8]) -> Request {
        let flags = flags | (libc::NLM_F_REQUEST | libc::NLM_F_ACK) as u16;
        let mut bytes = vec![0; HEADER_BYTES];
        bytes[4..6].copy_from_slice(&kind.to_ne_bytes());
        bytes[6..8].copy_from_slice(&flags.to_ne_bytes());
        bytes.extend_from_slice(fixed);
        Request { bytes }
    }

    fn attribute(&mut self, kind: u16, value: &[u8]) {
        self.nested(kind, |request| request.bytes.extend_from_slice(value));
    }

    /// A text, with the zero that the kernel wants at its end.
    fn text(&mut self, kind: u16, value: &str) {
        self.attribute(kind, &[value.as_bytes(), &[0]].concat());
    }

    /// An attribute whose value `fill` appends: `struct rtattr` with length and kind, then the
    /// value.
    fn nested(&mut self, kind: u16, fill: impl FnOnce(&mut Request)) {
        let start = self.bytes.len();
        self.bytes.extend_from_slice(&[0; 4]);
        fill(self);
        let len = (self.bytes.len() - start) as u16;
        self.bytes[start..start + 2].copy_from_slice(&len.to_ne_bytes());
        self.bytes[start + 2..start + 4].copy_from_slice(&kind.to_ne_bytes());
        self.bytes.resize(self.bytes.len().next_multiple_of(4), 0);
    }

    /// Sends the request and waits for the kernel's answer.
    fn send(mut self, what: &str) -> Result<(), Error> {
        let len = self.bytes.len() as u32;
        self.bytes[0..4].copy_from_slice(&len.to_ne_bytes());
        let mut socket = File::from(socket(libc::AF_NETLINK, libc::SOCK_RAW, libc::NETLINK_ROUTE)?);
        let failed = |source| Error::Call { call: what.to_owned(), source };
        // A netlink socket that is not connected talks to the kernel.
        socket.write_all(&self.bytes).map_err(failed)?;
        let mut answer = [0; 4096];
        let read = socket.read(&mut answer).map_err(failed)?;
        match acknowledged(&answer[..read]) {
            0 => Ok(()),
            errno => Err(failed(std::io::Error::from_raw_os_error(errno))),
        }
    }
}

/// The error number in a netlink answer: 0 when the kernel agreed.
fn acknowledged(answer: &[u8]) -> i32 {
    let kind = answer.get(4..6).and_then(|b| b.try_into().ok()).map(u16::from_ne_bytes);
    let number = answer.get(16..20).and_then(|b| b.try_into().ok()).map(i32::from_ne_bytes);
    match (kind, number) {
        (Some(kind), Some(number)) if i32::from(kind) == libc::NLMSG_ERROR => -number,
        _ => libc::EPROTO,
    }
}

fn socket(domain: i32, kind: i32, protocol: i32) -> Result<OwnedFd, Error> {
    // SAFETY: plain integers.
    let fd = unsafe { libc::socket(domain, kind | libc::SOCK_CLOEXEC, protocol) };
    check(i64::from(fd), || match domain {
        libc::AF_NETLINK => "open a netlink socket".to_owned(),
        _ => "open a socket for ICMP".to_owned(),
    })?;
    // SAFETY: the descriptor is new and ours.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Bytes of a connection that were written and that the other side's system has not acknowledged.
pub fn unacknowledged(stream: &std::net::TcpStream) -> std::io::Result<u64> {
    let mut bytes: libc::c_int = 0;
    // SAFETY: the call fills one integer, and the pointer is valid for it; the socket is open.
    let done = unsafe {
        libc::ioctl(std::os::fd::AsRawFd::as_raw_fd(stream), libc::TIOCOUTQ, &raw mut bytes)
    };
    if done < 0 { Err(std::io::Error::last_os_error()) } else { Ok(bytes.max(0) as u64) }
}

/// The error number of a packet that a full queue has no room for.
pub const NO_BUFFERS: i32 = libc::ENOBUFS;

#[derive(Debug)]
pub enum IcmpSocket {
    /// Sees every ICMP packet of its namespace, each with its IP header.
    Raw(UdpSocket),
    /// A ping socket: the kernel chooses the identifier and sorts the replies.
    Ping(UdpSocket),
}

/// Opens a socket for ICMP: a raw one, or else a ping socket. Both are used through the plain calls
/// connect, send and recv, which is what `UdpSocket` makes of them.
///
/// # Errors
///
/// EPERM or EACCES without `CAP_NET_RAW` and outside `net.ipv4.ping_group_range`.
pub fn icmp_socket() -> Result<IcmpSocket, Error> {
    const ICMP_FILTER: i32 = 1;
    let all_but_echo_replies: u32 = !1;
    let Ok(raw) = socket(libc::AF_INET, libc::SOCK_RAW, libc::IPPROTO_ICMP) else {
        let ping = socket(libc::AF_INET, libc::SOCK_DGRAM, libc::IPPROTO_ICMP)?;
        return Ok(IcmpSocket::Ping(ping.into()));
    };
    // SAFETY: the pointer is valid for the length that is passed. Without the filter more packets
    // arrive than are wanted, which readers bear: an error is nothing to act on.
    unsafe {
        libc::setsockopt(
            raw.as_raw_fd(),
            libc::SOL_RAW,
            ICMP_FILTER,
            (&raw const all_but_echo_replies).cast(),
            size_of::<u32>() as libc::socklen_t,
        );
    }
    Ok(IcmpSocket::Raw(raw.into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attributes_are_nested_and_padded() {
        let mut request = Request::new(16, 0, &[]);
        request.nested(18, |outer| outer.text(1, "veth"));
        let attributes = &request.bytes[HEADER_BYTES..];
        let u16_at = |i: usize| u16::from_ne_bytes([attributes[i], attributes[i + 1]]);
        // The inner one: 4 bytes of header and "veth\0", padded to 12; the outer: 4 more.
        assert_eq!((u16_at(0), u16_at(2)), (16, 18));
        assert_eq!((u16_at(4), u16_at(6)), (9, 1));
        assert_eq!(&attributes[8..16], b"veth\0\0\0\0");
    }

    #[test]
    fn an_answer_is_an_error_number() {
        let mut answer = vec![0; 36];
        answer[4..6].copy_from_slice(&(libc::NLMSG_ERROR as u16).to_ne_bytes());
        assert_eq!(acknowledged(&answer), 0);
        answer[16..20].copy_from_slice(&(-libc::EPERM).to_ne_bytes());
        assert_eq!(acknowledged(&answer), libc::EPERM);
        assert_eq!(acknowledged(&answer[..10]), libc::EPROTO);
    }

    #[test]
    fn two_namespaces_are_cabled_together() {
        if !crate::process::is_root() {
            return rtscope_testing::skip::skip_this("needs root");
        }
        // A thread of its own, because a thread that has moved doesn't come back.
        let answer = std::thread::spawn(|| -> Result<usize, Error> {
            let sides = LocalSides::cabled()?;
            sides.enter_far()?;
            let receiver = UdpSocket::bind((sides.far, 0)).expect("an address of ours");
            sides.enter_near()?;
            let sender = UdpSocket::bind((sides.near, 0)).expect("an address of ours");
            drop(sides);
            let to = receiver.local_addr().expect("bound");
            sender.send_to(b"hello", to).expect("sent");
            receiver.set_read_timeout(Some(std::time::Duration::from_secs(5))).expect("plain");
            Ok(receiver.recv(&mut [0; 16]).expect("received"))
        })
        .join()
        .expect("no panic");
        assert_eq!(answer.expect("a cable"), 5);
        assert!(
            index(LocalSides::NEAR_DEVICE).is_err(),
            "the device is in the test's own namespace"
        );
    }
}
