//! What `ethtool -c` shows: how a network device paces its interrupts.

use std::{
    net::UdpSocket,
    os::fd::{AsRawFd, OwnedFd},
};

use rtscope_model::environment::InterruptPacing;

/// Reads the parameters (`ETHTOOL_GCOALESCE`).
const GET_COALESCE: u32 = 0x0e;

/// `struct ethtool_coalesce`: 23 words, of which these places are read.
#[repr(C)]
struct Request([u32; 23]);

/// How a network device paces its interrupts; none where its driver doesn't say, or where it has no device.
#[must_use]
pub fn coalescing(device: &str) -> Option<InterruptPacing> {
    // Any socket will do: the call is about the device that is named.
    let socket: OwnedFd = UdpSocket::bind("0.0.0.0:0").ok()?.into();
    let mut request = Request([0; 23]);
    request.0[0] = GET_COALESCE;
    // SAFETY: all of its fields may be zero.
    let mut interface: libc::ifreq = unsafe { std::mem::zeroed() };
    // One byte stays 0: the end of the name.
    if device.len() >= interface.ifr_name.len() {
        return None;
    }
    for (to, from) in interface.ifr_name.iter_mut().zip(device.bytes()) {
        *to = from.cast_signed() as libc::c_char;
    }
    interface.ifr_ifru.ifru_data = (&raw mut request).cast();
    // SAFETY: both structures live through the call, and the kernel writes no more than its structure of 23 words.
    let answer =
        unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCETHTOOL as _, &raw mut interface) };
    let words = request.0;
    (answer == 0).then(|| InterruptPacing {
        receive_us: words[1],
        receive_frames: words[2],
        send_us: words[5],
        send_frames: words[6],
        adaptive_receive: words[10] != 0,
        adaptive_send: words[11] != 0,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_without_pacing_or_a_long_name_has_none() {
        assert_eq!(coalescing("lo"), None);
        assert_eq!(coalescing("no-such-device-0"), None);
        assert_eq!(coalescing(&"x".repeat(99)), None);
    }
}
