//! The sending side: sends as fast as it can for a time.

use std::{
    io::{self, Write},
    net::{Shutdown, SocketAddr, TcpStream, UdpSocket},
    time::{Duration, Instant},
};

use rtscope_model::throughput::{Received, TransportProtocol};
use rtscope_sys::{net::NO_BUFFERS, tree::Tree};

use super::{
    CpuLoad, set_send_buffer,
    wire::{self, Answer, PATIENCE, Request, VERSION},
};
use crate::signals::Interrupt;

/// Bytes in a write to a stream.
pub(super) const WRITE: usize = 64 << 10;

/// Bytes in a datagram: fits into an Ethernet frame, so that nothing is cut into pieces.
pub(super) const DATAGRAM: usize = 1_400;

/// Datagrams between two looks at the clock.
const BURST: u64 = 16;

/// What was sent.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Sent {
    pub(super) bytes: u64,
    pub(super) datagrams: u64,
    pub(super) span_ns: u64,
    pub(super) buffer_bytes: u64,
    /// CPU load while it sent, 0 to 1 of all CPUs.
    pub(super) cpu_load: f64,
}

/// Where the counters of this machine are, and what ends a transfer early.
pub(super) type Here<'a> = (&'a Tree, &'a Interrupt);

/// A transfer: what was sent, what came.
pub(super) fn transfer(
    control: &mut TcpStream,
    protocol: TransportProtocol,
    window_bytes: u64,
    duration: Duration,
    here: Here<'_>,
) -> io::Result<(Sent, Received)> {
    let request = Request::Transfer {
        version: VERSION,
        protocol,
        window_bytes,
        limit_ns: duration.as_nanos() as u64,
    };
    wire::send(control, &request)?;
    let port = match hear(control)? {
        Answer::Ready { port } => port,
        Answer::Refused(why) => return Err(io::Error::other(format!("the peer refuses: {why}"))),
        Answer::Report(_) | Answer::Flooded { .. } => {
            return Err(io::Error::other("the peer sent an unexpected answer"));
        }
    };
    // With the interface that a link-local address needs.
    let mut peer = control.peer_addr()?;
    peer.set_port(port);
    let window = window_bytes as usize;
    let sent = match protocol {
        TransportProtocol::Tcp => stream(peer, window, duration, here)?,
        TransportProtocol::Udp => {
            let mut own = control.local_addr()?;
            own.set_port(0);
            let sent = datagrams(own, peer, window, duration, here)?;
            wire::send(control, &Request::Finished)?;
            sent
        }
    };
    match hear(control)? {
        Answer::Report(received) => Ok((sent, received)),
        _ => Err(io::Error::other("the peer sent an unexpected answer")),
    }
}

fn hear(control: &mut TcpStream) -> io::Result<Answer> {
    let gone = || io::Error::new(io::ErrorKind::UnexpectedEof, "the peer has hung up");
    wire::hear(control)?.ok_or_else(gone)
}

fn stream(to: SocketAddr, window: usize, duration: Duration, here: Here<'_>) -> io::Result<Sent> {
    let mut data = TcpStream::connect_timeout(&to, PATIENCE)?;
    let sent = into_stream(&mut data, window, duration, here)?;
    data.shutdown(Shutdown::Write)?;
    Ok(sent)
}

/// Writes for a time; the stream stays open.
pub(super) fn into_stream(
    data: &mut TcpStream,
    window: usize,
    duration: Duration,
    (tree, interrupt): Here<'_>,
) -> io::Result<Sent> {
    let buffer_bytes = set_send_buffer(&*data, window)?;
    data.set_write_timeout(Some(PATIENCE))?;
    let bytes_of_a_write = vec![0x5a; WRITE];
    let load = CpuLoad::begin(tree);
    let start = Instant::now();
    let mut bytes = 0;
    while start.elapsed() < duration && !interrupt.is_stopped() {
        bytes += data.write(&bytes_of_a_write)? as u64;
    }
    let span_ns = start.elapsed().as_nanos() as u64;
    Ok(Sent { bytes, datagrams: 0, span_ns, buffer_bytes, cpu_load: load.so_far() })
}

fn datagrams(
    own: SocketAddr,
    to: SocketAddr,
    window: usize,
    duration: Duration,
    (tree, interrupt): Here<'_>,
) -> io::Result<Sent> {
    let socket = UdpSocket::bind(own)?;
    socket.connect(to)?;
    let buffer_bytes = set_send_buffer(&socket, window)?;
    let mut datagram = vec![0x5a; DATAGRAM];
    let load = CpuLoad::begin(tree);
    let start = Instant::now();
    let mut count: u64 = 0;
    while start.elapsed() < duration && !interrupt.is_stopped() {
        for _ in 0..BURST {
            datagram[..8].copy_from_slice(&count.to_be_bytes());
            match socket.send(&datagram) {
                Ok(_) => count += 1,
                // A full queue has not taken it; a receiver that has gone is told at the end.
                Err(error)
                    if error.raw_os_error() == Some(NO_BUFFERS)
                        || error.kind() == io::ErrorKind::ConnectionRefused => {}
                Err(error) => return Err(error),
            }
        }
    }
    let span_ns = start.elapsed().as_nanos() as u64;
    let (bytes, cpu_load) = (count * DATAGRAM as u64, load.so_far());
    Ok(Sent { bytes, datagrams: count, span_ns, buffer_bytes, cpu_load })
}
