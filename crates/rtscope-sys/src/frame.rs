//! Sockets for frames: UDP and raw Ethernet, with the kernel's timestamps, and what an interface is like.
//!
//! Every call that a real-time thread makes is one system call without an allocation.

use std::{
    mem::{MaybeUninit, offset_of},
    net::UdpSocket,
    os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd},
};

use crate::error::{Error, check};

/// The EtherType of our frames: the first that IEEE 802 sets aside for local experiments.
pub const ETHER_TYPE: u16 = 0x88b5;

/// Destination, source and type of an Ethernet frame.
pub const ETHERNET_HEADER: usize = 14;

pub type MacAddress = [u8; 6];

/// When a frame passed the kernel, and its card: on `CLOCK_REALTIME` and on the card's own clock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stamps {
    pub kernel_ns: Option<u64>,
    pub card_ns: Option<u64>,
}

/// What a look at a socket found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arrival {
    /// A frame of so many bytes; of a longer one than the buffer the rest is lost.
    Frame {
        len: usize,
        stamps: Stamps,
    },
    Nothing,
    /// The kernel's error number, as when a peer's system has no such port.
    Failed(i32),
}

/// Why a wait ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FrameWait {
    /// There is something to read.
    Readable,
    TimeOver,
    /// By a signal.
    Interrupted,
}

/// A socket that sends and receives whole frames.
#[derive(Debug)]
pub struct FrameSocket(OwnedFd);

impl From<UdpSocket> for FrameSocket {
    fn from(socket: UdpSocket) -> FrameSocket {
        FrameSocket(socket.into())
    }
}

/// Room for the control messages of one frame: timestamps, an error's origin and addresses.
const CONTROL_BYTES: usize = 256;

/// Room for control messages, aligned as the kernel's headers are.
#[repr(C, align(8))]
struct Control([u8; CONTROL_BYTES]);

impl FrameSocket {
    /// A socket for Ethernet frames of [`ETHER_TYPE`] on one interface of the caller's namespace.
    ///
    /// # Errors
    ///
    /// EPERM without `CAP_NET_RAW`.
    pub fn ethernet(interface: &Interface) -> Result<FrameSocket, Error> {
        let call = || format!("open a socket for Ethernet frames on {}", interface.name);
        // Without a protocol nothing arrives until the socket is bound to its interface.
        // SAFETY: plain integers.
        let fd = unsafe { libc::socket(libc::AF_PACKET, libc::SOCK_RAW | libc::SOCK_CLOEXEC, 0) };
        check(i64::from(fd), call)?;
        // SAFETY: the descriptor is new and ours.
        let socket = FrameSocket(unsafe { OwnedFd::from_raw_fd(fd) });
        // SAFETY: all of its fields may be zero.
        let mut address: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
        address.sll_family = libc::AF_PACKET as u16;
        address.sll_protocol = ETHER_TYPE.to_be();
        address.sll_ifindex = interface.index.cast_signed();
        // SAFETY: the pointer is valid for the length that is passed.
        let answer = unsafe {
            libc::bind(fd, (&raw const address).cast(), size_of_val(&address) as libc::socklen_t)
        };
        check(i64::from(answer), call)?;
        Ok(socket)
    }

    /// Lets only frames through whose bytes from `offset` on are these, a word of 4 bytes each. Others don't wake the
    /// reader.
    ///
    /// # Errors
    ///
    /// When the kernel refuses the filter.
    pub fn only(&self, words: &[(u32, u32)]) -> Result<(), Error> {
        let step = |code: u32, jt, jf, k| libc::sock_filter { code: code as u16, jt, jf, k };
        let mut program = Vec::new();
        for (i, (offset, word)) in words.iter().enumerate() {
            // A word that differs jumps over what is left: two steps for each other word, and the "accept".
            let left = (2 * (words.len() - 1 - i) + 1) as u8;
            program.push(step(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0, *offset));
            program.push(step(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, 0, left, *word));
        }
        program.push(step(libc::BPF_RET | libc::BPF_K, 0, 0, u32::MAX));
        program.push(step(libc::BPF_RET | libc::BPF_K, 0, 0, 0));
        let filter = libc::sock_fprog { len: program.len() as u16, filter: program.as_mut_ptr() };
        self.set(libc::SO_ATTACH_FILTER, &filter, "filter frames")
    }

    /// Asks for the kernel's timestamps of frames that go out and come in, and for the card's where it makes some
    /// already: no setting of the card is changed.
    ///
    /// # Errors
    ///
    /// When the kernel refuses.
    pub fn ask_stamps(&self) -> Result<(), Error> {
        let flags: u32 = libc::SOF_TIMESTAMPING_TX_SOFTWARE
            | libc::SOF_TIMESTAMPING_RX_SOFTWARE
            | libc::SOF_TIMESTAMPING_SOFTWARE
            | libc::SOF_TIMESTAMPING_TX_HARDWARE
            | libc::SOF_TIMESTAMPING_RX_HARDWARE
            | libc::SOF_TIMESTAMPING_RAW_HARDWARE
            | OPT_TSONLY;
        self.set(libc::SO_TIMESTAMPING, &flags, "ask for timestamps")
    }

    fn set<T>(&self, option: i32, value: &T, what: &str) -> Result<(), Error> {
        // SAFETY: the pointer is valid for the length that is passed, and lives through the call.
        let answer = unsafe {
            libc::setsockopt(
                self.0.as_raw_fd(),
                libc::SOL_SOCKET,
                option,
                std::ptr::from_ref(value).cast(),
                size_of::<T>() as libc::socklen_t,
            )
        };
        check(i64::from(answer), || what.to_owned()).map(drop)
    }

    /// The largest IP packet that goes to the connected peer in one piece; none where the kernel doesn't say.
    #[must_use]
    pub fn path_mtu(&self) -> Option<u32> {
        let mut mtu: libc::c_int = 0;
        let mut len = size_of_val(&mtu) as libc::socklen_t;
        // SAFETY: both pointers are valid, and the length is that of the integer.
        let answer = unsafe {
            libc::getsockopt(
                self.0.as_raw_fd(),
                libc::IPPROTO_IP,
                libc::IP_MTU,
                (&raw mut mtu).cast(),
                &raw mut len,
            )
        };
        u32::try_from(mtu).ok().filter(|_| answer == 0)
    }

    /// Sends a frame without waiting for room; else the kernel's error number.
    #[inline]
    pub fn send(&self, frame: &[u8]) -> Result<(), i32> {
        let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
        // SAFETY: the pointer is valid for the length that is passed.
        let sent =
            unsafe { libc::send(self.0.as_raw_fd(), frame.as_ptr().cast(), frame.len(), flags) };
        if sent < 0 { Err(last_errno()) } else { Ok(()) }
    }

    /// Takes a frame that is there.
    #[inline]
    pub fn receive(&self, buffer: &mut [u8]) -> Arrival {
        self.message(buffer, libc::MSG_DONTWAIT)
    }

    /// Takes the timestamps of a frame that was sent, if some are there.
    #[inline]
    pub fn sent(&self) -> Option<Stamps> {
        match self.message(&mut [], libc::MSG_DONTWAIT | libc::MSG_ERRQUEUE) {
            Arrival::Frame { stamps, .. } => Some(stamps),
            Arrival::Nothing | Arrival::Failed(_) => None,
        }
    }

    #[inline]
    fn message(&self, buffer: &mut [u8], flags: i32) -> Arrival {
        let mut control = MaybeUninit::<Control>::uninit();
        let mut part = libc::iovec { iov_base: buffer.as_mut_ptr().cast(), iov_len: buffer.len() };
        // SAFETY: all of its fields may be zero.
        let mut header: libc::msghdr = unsafe { std::mem::zeroed() };
        header.msg_iov = &raw mut part;
        header.msg_iovlen = 1;
        header.msg_control = control.as_mut_ptr().cast();
        header.msg_controllen = CONTROL_BYTES as _;
        // SAFETY: buffer and control live through the call, with the lengths that are passed.
        let len = unsafe { libc::recvmsg(self.0.as_raw_fd(), &raw mut header, flags) };
        if len < 0 {
            return match last_errno() {
                libc::EAGAIN | libc::EINTR => Arrival::Nothing,
                errno => Arrival::Failed(errno),
            };
        }
        // SAFETY: the kernel has filled the header, whose control messages lie in `control`.
        let stamps = unsafe { stamps_in(&header) };
        Arrival::Frame { len: len as usize, stamps }
    }

    /// Waits so long for something to read: a frame, or timestamps of one that was sent.
    #[inline]
    pub fn wait(&self, ns: u64) -> FrameWait {
        wait_readable(self.0.as_fd(), ns)
    }
}

/// Waits so long until there is something to read, or an error.
#[inline]
pub(crate) fn wait_readable(socket: BorrowedFd<'_>, ns: u64) -> FrameWait {
    let mut one = libc::pollfd { fd: socket.as_raw_fd(), events: libc::POLLIN, revents: 0 };
    let time = libc::timespec {
        tv_sec: (ns / 1_000_000_000) as libc::time_t,
        tv_nsec: (ns % 1_000_000_000) as libc::c_long,
    };
    // SAFETY: both pointers are valid for the call; no set of signals is given.
    match unsafe { libc::ppoll(&raw mut one, 1, &raw const time, std::ptr::null()) } {
        0 => FrameWait::TimeOver,
        n if n < 0 => FrameWait::Interrupted,
        _ => FrameWait::Readable,
    }
}

/// Timestamps of sent frames without the frames (`linux/net_tstamp.h`).
const OPT_TSONLY: u32 = 1 << 11;

pub(crate) fn last_errno() -> i32 {
    std::io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO)
}

/// Size of the three timestamps in a control message, in bytes.
const TIMES_BYTES: u32 = size_of::<[libc::timespec; 3]>() as u32;

/// The timestamps among the control messages.
///
/// # Safety
///
/// The kernel has filled the header, and its control buffer is alive.
unsafe fn stamps_in(header: &libc::msghdr) -> Stamps {
    let mut stamps = Stamps::default();
    // SAFETY: as the caller promises.
    let mut next = unsafe { libc::CMSG_FIRSTHDR(header) };
    // SAFETY: a header that is not null lies within the buffer.
    while let Some(message) = unsafe { next.as_ref() } {
        // SAFETY: no pointer is involved.
        let is_whole = message.cmsg_len >= unsafe { libc::CMSG_LEN(TIMES_BYTES) } as _;
        let is_time = message.cmsg_type == libc::SCM_TIMESTAMPING;
        if message.cmsg_level == libc::SOL_SOCKET && is_time && is_whole {
            // By software, unused, by the card (`struct scm_timestamping`).
            // SAFETY: the kernel wrote three times here; their place may be less aligned than they are.
            let times: [libc::timespec; 3] =
                unsafe { libc::CMSG_DATA(message).cast::<[libc::timespec; 3]>().read_unaligned() };
            stamps.kernel_ns = stamps.kernel_ns.or(instant_ns(&times[0]));
            stamps.card_ns = stamps.card_ns.or(instant_ns(&times[2]));
        }
        // SAFETY: as above.
        next = unsafe { libc::CMSG_NXTHDR(header, message) };
    }
    stamps
}

fn instant_ns(time: &libc::timespec) -> Option<u64> {
    let ns = time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64;
    (ns > 0).then_some(ns)
}

/// A network interface of the caller's namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interface {
    pub name: String,
    pub index: u32,
    pub mac: MacAddress,
    /// The largest payload of a frame.
    pub mtu: u32,
    /// Switched on.
    pub is_up: bool,
    /// There is a carrier: the cable is plugged in.
    pub is_running: bool,
    /// It carries Ethernet frames.
    pub is_ethernet: bool,
}

/// `SIOCGIF...`: what an interface is like (netdevice(7)).
const GET_INDEX: u64 = 0x8933;
const GET_FLAGS: u64 = 0x8913;
const GET_HARDWARE: u64 = 0x8927;
const GET_MTU: u64 = 0x8921;

impl Interface {
    /// An interface by its name.
    ///
    /// # Errors
    ///
    /// ENODEV when there is none of this name.
    pub fn named(name: &str) -> Result<Interface, Error> {
        let call = || format!("find network interface {name}");
        // SAFETY: all of its fields may be zero.
        let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
        // One byte stays 0: the end of the name.
        if name.is_empty() || name.len() >= request.ifr_name.len() {
            let source = std::io::Error::from_raw_os_error(libc::ENODEV);
            return Err(Error::Call { call: call(), source });
        }
        for (to, from) in request.ifr_name.iter_mut().zip(name.bytes()) {
            *to = from.cast_signed() as libc::c_char;
        }
        // Any socket of the namespace will do.
        let socket: OwnedFd = UdpSocket::bind("0.0.0.0:0")
            .map_err(|source| Error::Call { call: call(), source })?
            .into();
        let mut ask = |number: u64| {
            // SAFETY: the structure lives through the call, and the kernel writes no more than it.
            let answer = unsafe { libc::ioctl(socket.as_raw_fd(), number as _, &raw mut request) };
            check(i64::from(answer), call).map(|_| request.ifr_ifru)
        };
        // SAFETY: the kernel has filled the field of each request.
        unsafe {
            let index = ask(GET_INDEX)?.ifru_ifindex;
            let flags = i32::from(ask(GET_FLAGS)?.ifru_flags);
            let hardware = ask(GET_HARDWARE)?.ifru_hwaddr;
            let mut mac = [0; 6];
            for (to, from) in mac.iter_mut().zip(hardware.sa_data) {
                *to = from as u8;
            }
            Ok(Interface {
                name: name.to_owned(),
                index: index.cast_unsigned(),
                mac,
                mtu: ask(GET_MTU)?.ifru_mtu.cast_unsigned(),
                is_up: flags & libc::IFF_UP != 0,
                is_running: flags & libc::IFF_RUNNING != 0,
                is_ethernet: hardware.sa_family == libc::ARPHRD_ETHER,
            })
        }
    }
}

// The kernel's three times begin where a control message's data does.
const _: () =
    assert!(offset_of!(Control, 0) == 0 && align_of::<Control>() >= align_of::<libc::cmsghdr>());

#[cfg(test)]
mod tests {
    use super::*;

    fn pair() -> (FrameSocket, FrameSocket) {
        let (a, b) = (UdpSocket::bind("127.0.0.1:0"), UdpSocket::bind("127.0.0.1:0"));
        let (a, b) = (a.expect("a port"), b.expect("a port"));
        a.connect(b.local_addr().expect("bound")).expect("there");
        (a.into(), b.into())
    }

    #[test]
    fn a_frame_is_stamped_on_its_way_out_and_in() {
        let (near, far) = pair();
        near.ask_stamps().expect("stamps");
        far.ask_stamps().expect("stamps");
        let mut buffer = [0; 64];
        assert_eq!(far.receive(&mut buffer), Arrival::Nothing);
        assert_eq!(far.wait(1_000_000), FrameWait::TimeOver);
        // The kernel begins to stamp arrivals a moment after somebody asked: a worker of its own sees to it.
        let mut stamps = (None, None);
        for _ in 0..2_000 {
            near.send(&[7; 30]).expect("sent");
            let sent = near.sent().and_then(|stamps| stamps.kernel_ns);
            assert_eq!(far.wait(1_000_000_000), FrameWait::Readable);
            let Arrival::Frame { len: 30, stamps: found } = far.receive(&mut buffer) else {
                panic!("no frame")
            };
            stamps = (sent, found.kernel_ns);
            if stamps.1.is_some() {
                break;
            }
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        let (Some(sent_ns), Some(came_ns)) = stamps else { panic!("{stamps:?}") };
        assert!(sent_ns <= came_ns, "{sent_ns} {came_ns}");
        assert_eq!((near.sent(), buffer[..30] == [7; 30]), (None, true));
        assert!(near.path_mtu().is_some_and(|mtu| mtu >= 1_500));
    }

    #[test]
    fn a_port_that_nobody_has_is_an_error_number() {
        let (near, far) = pair();
        drop(far);
        let refused = (0..100).find_map(|_| {
            let sent = near.send(&[1]).err();
            near.wait(1_000_000);
            let heard = match near.receive(&mut [0; 8]) {
                Arrival::Failed(errno) => Some(errno),
                _ => None,
            };
            sent.or(heard)
        });
        assert_eq!(refused, Some(libc::ECONNREFUSED));
    }

    #[test]
    fn an_interface_is_known_by_its_name() {
        let own = Interface::named("lo").expect("the loopback device");
        assert!(own.is_up && !own.is_ethernet && own.mtu >= 1_500, "{own:?}");
        for wrong in ["", "no-such-device-of-ours", "nope0"] {
            let error = Interface::named(wrong).expect_err(wrong);
            assert_eq!(error.errno(), Some(libc::ENODEV), "{error}");
        }
    }

    #[test]
    fn a_filter_lets_one_kind_of_frame_through() {
        let (near, far) = pair();
        // A UDP socket's filter sees the 8 bytes of the header first.
        far.only(&[(8, 0x0102_0304), (12, 0x0506_0708)]).expect("a filter");
        for frame in [[1, 2, 3, 4, 5, 6, 7, 9], [0; 8], [1, 2, 3, 4, 5, 6, 7, 8], [9; 8]] {
            near.send(&frame).expect("sent");
        }
        let mut buffer = [0; 8];
        assert!(matches!(far.receive(&mut buffer), Arrival::Frame { len: 8, .. }));
        assert_eq!(buffer, [1, 2, 3, 4, 5, 6, 7, 8]);
        assert_eq!(far.receive(&mut buffer), Arrival::Nothing);
    }
}
