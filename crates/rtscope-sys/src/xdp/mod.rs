//! `AF_XDP` sockets: frames that pass by the kernel's protocol stack, through rings in shared memory.
//!
//! In generic mode and with copies, which every device has: no setting of the card changes. A socket sees the frames of
//! queue 0 of its interface alone.

mod program;
mod ring;

use std::{
    os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd},
    time::Duration,
};

use self::{program::Attached, ring::Ring};
use crate::{
    error::{Error, check},
    frame::{FrameWait, Interface, wait_readable},
    mapping::Pages,
};

/// Frames of the socket: the first half to receive into, the second to send from.
const FRAMES: u32 = 64;
const HALF: u32 = FRAMES / 2;

/// The memory of a frame: what the kernel needs before it, and the frame.
const FRAME_BYTES: u32 = 4_096;

/// The longest frame, with its Ethernet header.
pub const FRAME_BYTES_MAX: usize = 3_500;

/// `struct xdp_umem_reg` as all kernels with these sockets know it.
#[repr(C)]
struct FrameMemory {
    address: u64,
    len: u64,
    frame_bytes: u32,
    headroom: u32,
    flags: u32,
    padding: u32,
}

/// A socket on queue 0 of an interface.
#[derive(Debug)]
pub struct XdpSocket {
    // Detached first, so that no frame goes to a socket that ends.
    _attached: Attached,
    received: Ring,
    to_send: Ring,
    to_fill: Ring,
    completed: Ring,
    memory: Pages,
    /// The frame that is sent next.
    next: u32,
    socket: OwnedFd,
}

impl XdpSocket {
    /// Opens a socket and hands it the frames of our type that come to queue 0.
    ///
    /// # Errors
    ///
    /// EPERM without `CAP_NET_RAW`, `CAP_NET_ADMIN` and `CAP_BPF`; EAFNOSUPPORT when the kernel has no such sockets;
    /// EBUSY when another program has the queue.
    pub fn open(interface: &Interface) -> Result<XdpSocket, Error> {
        // SAFETY: plain integers.
        let fd = unsafe { libc::socket(libc::AF_XDP, libc::SOCK_RAW | libc::SOCK_CLOEXEC, 0) };
        check(i64::from(fd), || "open an AF_XDP socket".to_owned())?;
        // SAFETY: the descriptor is new and ours.
        let socket = unsafe { OwnedFd::from_raw_fd(fd) };
        let mut memory = Pages::map((FRAMES * FRAME_BYTES) as usize)?;
        let frames = memory.as_mut_slice();
        // Touched, so that no page is missing later.
        frames.fill(0);
        let registered = FrameMemory {
            address: frames.as_ptr() as u64,
            len: frames.len() as u64,
            frame_bytes: FRAME_BYTES,
            headroom: 0,
            flags: 0,
            padding: 0,
        };
        set(&socket, libc::XDP_UMEM_REG, &registered)?;
        for ring in [
            libc::XDP_UMEM_FILL_RING,
            libc::XDP_UMEM_COMPLETION_RING,
            libc::XDP_RX_RING,
            libc::XDP_TX_RING,
        ] {
            set(&socket, ring, &HALF)?;
        }
        let [received, to_send, mut to_fill, completed] = rings(&socket)?;
        for frame in 0..HALF {
            to_fill.put(u64::from(frame * FRAME_BYTES));
        }
        bind(&socket, interface)?;
        let attached = Attached::new(interface.index, socket.as_fd())?;
        Ok(XdpSocket {
            _attached: attached,
            received,
            to_send,
            to_fill,
            completed,
            memory,
            next: 0,
            socket,
        })
    }

    /// Sends a frame; else the kernel's error number. A frame that is too long is cut.
    #[inline]
    pub fn send(&mut self, frame: &[u8]) -> Result<(), i32> {
        while self.completed.take::<u64>().is_some() {}
        let at = (HALF + self.next % HALF) * FRAME_BYTES;
        let len = frame.len().min(FRAME_BYTES_MAX);
        self.memory.as_mut_slice()[at as usize..][..len].copy_from_slice(&frame[..len]);
        let entry = libc::xdp_desc { addr: u64::from(at), len: len as u32, options: 0 };
        if !self.to_send.put(entry) {
            return Err(libc::ENOBUFS);
        }
        self.next = self.next.wrapping_add(1);
        // SAFETY: no memory is passed: the call tells the kernel to look at the ring.
        let answer = unsafe {
            libc::sendto(
                self.socket.as_raw_fd(),
                std::ptr::null(),
                0,
                libc::MSG_DONTWAIT,
                std::ptr::null(),
                0,
            )
        };
        if answer < 0 { Err(crate::frame::last_errno()) } else { Ok(()) }
    }

    /// Copies a frame that is there; its length, or none when there is none.
    #[inline]
    pub fn receive(&mut self, buffer: &mut [u8]) -> Option<usize> {
        let entry: libc::xdp_desc = self.received.take()?;
        let frames = self.memory.as_mut_slice();
        let at = usize::try_from(entry.addr).ok().filter(|at| *at < frames.len());
        let bytes = at.and_then(|at| frames.get(at..at + entry.len as usize)).unwrap_or_default();
        let len = bytes.len().min(buffer.len());
        buffer[..len].copy_from_slice(&bytes[..len]);
        // Back to where the frame's memory begins.
        self.to_fill.put(entry.addr / u64::from(FRAME_BYTES) * u64::from(FRAME_BYTES));
        Some(len)
    }

    /// Waits so long for a frame.
    #[inline]
    pub fn wait(&self, ns: u64) -> FrameWait {
        wait_readable(self.socket.as_fd(), ns)
    }
}

fn set<T>(socket: &OwnedFd, option: i32, value: &T) -> Result<(), Error> {
    // SAFETY: the pointer is valid for the length that is passed, and lives through the call. The memory of frames that
    // a value may name lives as long as the socket.
    let answer = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_XDP,
            option,
            std::ptr::from_ref(value).cast(),
            size_of::<T>() as libc::socklen_t,
        )
    };
    check(i64::from(answer), || "set up an AF_XDP socket".to_owned()).map(drop)
}

/// Received frames, frames to send, memory to fill, and memory of sent frames.
fn rings(socket: &OwnedFd) -> Result<[Ring; 4], Error> {
    // SAFETY: all of its fields may be zero.
    let mut offsets: libc::xdp_mmap_offsets = unsafe { std::mem::zeroed() };
    let mut len = size_of_val(&offsets) as libc::socklen_t;
    // SAFETY: both pointers are valid, and the length is that of the structure.
    let answer = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_XDP,
            libc::XDP_MMAP_OFFSETS,
            (&raw mut offsets).cast(),
            &raw mut len,
        )
    };
    check(i64::from(answer), || "find the rings of an AF_XDP socket".to_owned())?;
    if len as usize != size_of_val(&offsets) {
        // Before Linux 5.4 the structure is shorter.
        let source = std::io::Error::from_raw_os_error(libc::EOPNOTSUPP);
        return Err(Error::Call { call: "find the rings of an AF_XDP socket".to_owned(), source });
    }
    let fd = socket.as_fd();
    let (frame, address) = (size_of::<libc::xdp_desc>(), size_of::<u64>());
    Ok([
        Ring::map(fd, &offsets.rx, HALF, frame, 0)?,
        Ring::map(fd, &offsets.tx, HALF, frame, 0x8000_0000)?,
        Ring::map(fd, &offsets.fr, HALF, address, 0x1_0000_0000)?,
        Ring::map(fd, &offsets.cr, HALF, address, 0x1_8000_0000)?,
    ])
}

fn bind(socket: &OwnedFd, interface: &Interface) -> Result<(), Error> {
    let address = libc::sockaddr_xdp {
        sxdp_family: libc::AF_XDP as u16,
        sxdp_flags: libc::XDP_COPY,
        sxdp_ifindex: interface.index,
        sxdp_queue_id: 0,
        sxdp_shared_umem_fd: 0,
    };
    let mut tries = 0;
    loop {
        // SAFETY: the pointer is valid for the length that is passed.
        let answer = unsafe {
            libc::bind(
                socket.as_raw_fd(),
                (&raw const address).cast(),
                size_of_val(&address) as libc::socklen_t,
            )
        };
        tries += 1;
        let bound = check(i64::from(answer), || {
            format!("bind an AF_XDP socket to queue 0 of {}", interface.name)
        });
        match bound {
            Err(error) if error.errno() == Some(libc::EBUSY) && tries < BIND_TRIES => {
                std::thread::sleep(BIND_PAUSE);
            }
            bound => return bound.map(drop),
        }
    }
}

/// The kernel gives a queue back a moment after its last socket was closed.
const BIND_TRIES: u32 = 20;
const BIND_PAUSE: Duration = Duration::from_millis(25);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        frame::{Arrival, FrameSocket},
        net::LocalSides,
    };

    fn frame() -> Vec<u8> {
        let mut frame = vec![0xff; 60];
        frame[12..14].copy_from_slice(&crate::frame::ETHER_TYPE.to_be_bytes());
        frame
    }

    /// The near end of a cable between two namespaces, and a socket on the far one.
    fn ends() -> Result<(Interface, FrameSocket), Error> {
        let sides = LocalSides::cabled()?;
        sides.enter_far()?;
        let far = FrameSocket::ethernet(&Interface::named(LocalSides::FAR_DEVICE)?)?;
        sides.enter_near()?;
        let near = Interface::named(LocalSides::NEAR_DEVICE)?;
        // The kernel lets a device send up to a second after its cable was plugged in; what is sent earlier is lost.
        let arrives = FrameSocket::ethernet(&near)?;
        while arrives.wait(10_000_000) == FrameWait::TimeOver {
            far.send(&frame()).expect("sent");
        }
        Ok((near, far))
    }

    #[test]
    fn frames_go_out_and_come_in_by_the_rings_and_each_ring_is_used_many_times() {
        if !crate::process::is_root() {
            return rtscope_testing::skip::skip_this("needs root");
        }
        // A thread of its own, because a thread that has moved doesn't come back.
        let run = || -> Result<(), Error> {
            let (near, far) = ends()?;
            let mut socket = XdpSocket::open(&near)?;
            let mut frame = frame();
            let mut buffer = [0; 200];
            for number in 0..10 * FRAMES {
                frame[14] = number as u8;
                socket.send(&frame).expect("room");
                assert_eq!(far.wait(1_000_000_000), FrameWait::Readable);
                let Arrival::Frame { len: 60, .. } = far.receive(&mut buffer) else {
                    panic!("no frame {number}")
                };
                assert_eq!(buffer[14], number as u8);
                far.send(&frame).expect("sent");
                assert_eq!(socket.wait(1_000_000_000), FrameWait::Readable, "{number}");
                assert_eq!(socket.receive(&mut buffer), Some(60));
                assert_eq!(buffer[..60], frame[..]);
                assert_eq!(socket.receive(&mut buffer), None);
            }
            Ok(())
        };
        std::thread::spawn(run).join().expect("no panic").expect("sockets");
    }

    #[test]
    fn other_frames_go_on_to_the_kernel() {
        if !crate::process::is_root() {
            return rtscope_testing::skip::skip_this("needs root");
        }
        let run = || -> Result<(), Error> {
            let (near, _far) = ends()?;
            let mut socket = XdpSocket::open(&near)?;
            // A device that was just switched on sends frames of IPv6 by itself; none of them is ours.
            assert_eq!(socket.wait(100_000_000), FrameWait::TimeOver);
            assert_eq!(socket.receive(&mut [0; 100]), None);
            assert!(XdpSocket::open(&near).is_err(), "the queue is taken");
            Ok(())
        };
        std::thread::spawn(run).join().expect("no panic").expect("sockets");
    }
}
