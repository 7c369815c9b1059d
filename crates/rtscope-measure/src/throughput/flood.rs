//! A flood of echo requests from a peer: `rtscope throughput --serve` floods whoever asks for it, over the
//! network card that lies between both, until the connection that asked ends. Nobody else can be meant: the
//! requests go to the address from which the connection came.

use std::{
    io,
    net::{IpAddr, SocketAddr, TcpStream, ToSocketAddrs, UdpSocket},
    time::{Duration, Instant},
};

use rtscope_sys::net::{IcmpSocket, icmp_socket};

use super::wire::{self, Answer, PATIENCE, Request, VERSION};
use crate::{
    load::network::{BURST, PACKET_MAX, echo_request, is_passing, is_reply_to, reply_room},
    signals::Interrupt,
};

/// The port of a peer when none is named.
pub const PORT: u16 = 15_201;

/// Time between two reports: short enough that a load is seen to work in each span.
const REPORT: Duration = Duration::from_millis(100);

/// The serving side: floods until the other side is gone.
pub(super) fn flood(control: &mut TcpStream, size: u64, interrupt: &Interrupt) -> io::Result<()> {
    let IpAddr::V4(to) = control.peer_addr()?.ip().to_canonical() else {
        return wire::send(control, &Answer::Refused("it floods over IPv4 only".to_owned()));
    };
    let (socket, is_raw) = match icmp_socket() {
        Ok(IcmpSocket::Raw(socket)) => (socket, true),
        Ok(IcmpSocket::Ping(socket)) => (socket, false),
        Err(error) => {
            let why = format!("{error}: run rtscope throughput --serve as root there");
            return wire::send(control, &Answer::Refused(why));
        }
    };
    socket.connect(SocketAddr::from((to, 0)))?;
    socket.set_nonblocking(true)?;
    let size = (size as usize).min(PACKET_MAX);
    let identifier = std::process::id() as u16;
    let (request, mut room) = (echo_request(identifier, size), vec![0; reply_room(size)]);
    let mut report_at = Instant::now() + REPORT;
    let mut replies = 0;
    while !interrupt.is_stopped() {
        send(&socket, &request)?;
        loop {
            match socket.recv(&mut room) {
                Ok(len) => replies += u64::from(!is_raw || is_reply_to(&room[..len], identifier)),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) if is_passing(&error) => break,
                Err(error) => return Err(error),
            }
        }
        if Instant::now() >= report_at {
            // Who has asked is gone when this fails: it needs no more.
            if wire::send(control, &Answer::Flooded { replies }).is_err() {
                return Ok(());
            }
            (replies, report_at) = (0, Instant::now() + REPORT);
        }
        std::thread::yield_now();
    }
    Ok(())
}

/// A burst; what a full queue refuses is not sent.
fn send(socket: &UdpSocket, request: &[u8]) -> io::Result<()> {
    for _ in 0..BURST {
        match socket.send(request) {
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock || is_passing(&error) => break,
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// The side that is flooded: its connection to the peer.
pub(crate) struct Flooded(TcpStream);

impl Flooded {
    pub(crate) fn ask(peer: &str, size: usize) -> io::Result<Flooded> {
        let named = if peer.contains(':') { peer.to_owned() } else { format!("{peer}:{PORT}") };
        let address = named.to_socket_addrs()?.find(SocketAddr::is_ipv4);
        let none = || io::Error::new(io::ErrorKind::NotFound, "it has no IPv4 address");
        let mut control = TcpStream::connect_timeout(&address.ok_or_else(none)?, PATIENCE)?;
        control.set_nodelay(true)?;
        control.set_read_timeout(Some(PATIENCE))?;
        wire::send(&mut control, &Request::Flood { version: VERSION, size: size as u64 })?;
        Ok(Flooded(control))
    }

    /// Waits for the next report: echo replies that went back to the peer.
    pub(crate) fn replies(&mut self) -> io::Result<u64> {
        match wire::hear(&mut self.0)? {
            Some(Answer::Flooded { replies }) => Ok(replies),
            Some(Answer::Refused(why)) => Err(io::Error::other(format!("the peer refuses: {why}"))),
            Some(_) => Err(io::Error::other("the peer sent an unexpected answer")),
            None => {
                Err(io::Error::other("the peer has hung up: is its rtscope older than this one?"))
            }
        }
    }
}
