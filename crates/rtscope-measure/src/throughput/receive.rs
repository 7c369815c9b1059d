//! The receiving side: takes what comes, counts it, and says what it has counted.

use std::{
    io::{self, Read},
    net::{SocketAddr, TcpListener, TcpStream, UdpSocket},
    thread,
    time::{Duration, Instant},
};

use rtscope_model::throughput::{Received, TransportProtocol};
use rtscope_sys::tree::Tree;

use super::{
    CpuLoad, flood,
    sequence::Sequence,
    set_receive_buffer,
    wire::{self, Answer, PATIENCE, Request, VERSION},
};
use crate::signals::Interrupt;

/// The longest transfer that is accepted.
const LIMIT: Duration = Duration::from_secs(300);

/// How long a sender may be silent between two transfers: it may measure without traffic.
const IDLE: Duration = Duration::from_secs(360);

/// Without a datagram for so long after the sender has finished, no more will come.
const QUIET: Duration = Duration::from_millis(200);

/// Time between two checks whether to end, while a sender is silent.
const LOOK_FOR_END: Duration = Duration::from_millis(200);

/// Time between two looks for somebody who connects.
const LOOK: Duration = Duration::from_millis(5);

/// Room for what is received at a time: more than any datagram.
const ROOM: usize = 128 << 10;

/// Serves senders one after the other until it is interrupted.
///
/// # Errors
///
/// When nobody can connect any more. What goes wrong with one sender is told to `say`.
pub fn serve(
    listener: &TcpListener,
    tree: &Tree,
    interrupt: &Interrupt,
    mut say: impl FnMut(&str),
) -> io::Result<()> {
    while !interrupt.is_stopped() {
        let Some((mut control, from)) = accept(listener, Duration::from_millis(200))? else {
            continue;
        };
        say(&format!("{from}: connected"));
        match session(&mut control, tree, interrupt) {
            Ok(transfers) => say(&format!("{from}: {transfers} transfers")),
            Err(error) => say(&format!("{from}: {error}")),
        }
    }
    Ok(())
}

/// Waits for somebody to connect.
pub(super) fn accept(
    listener: &TcpListener,
    patience: Duration,
) -> io::Result<Option<(TcpStream, SocketAddr)>> {
    listener.set_nonblocking(true)?;
    let until = Instant::now() + patience;
    loop {
        match listener.accept() {
            Ok((stream, from)) => {
                stream.set_nonblocking(false)?;
                stream.set_nodelay(true)?;
                stream.set_read_timeout(Some(PATIENCE))?;
                stream.set_write_timeout(Some(PATIENCE))?;
                return Ok(Some((stream, from)));
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
        if Instant::now() >= until {
            return Ok(None);
        }
        thread::sleep(LOOK);
    }
}

/// Receives for one sender until it hangs up; how many transfers.
pub(super) fn session(
    control: &mut TcpStream,
    tree: &Tree,
    interrupt: &Interrupt,
) -> io::Result<u64> {
    let mut transfers = 0;
    while is_asked(control, interrupt)? {
        let Some(request) = wire::hear(control)? else { break };
        let version = match request {
            Request::Transfer { version, .. } | Request::Flood { version, .. } => version,
            Request::Finished => continue,
        };
        if version != VERSION {
            let why = format!("it uses version {VERSION}, not {version}");
            wire::send(control, &Answer::Refused(why))?;
            continue;
        }
        let (protocol, window_bytes, limit_ns) = match request {
            Request::Transfer { protocol, window_bytes, limit_ns, .. } => {
                (protocol, window_bytes, limit_ns)
            }
            Request::Flood { size, .. } => {
                flood::flood(control, size, interrupt)?;
                return Ok(transfers);
            }
            Request::Finished => continue,
        };
        let limit = Duration::from_nanos(limit_ns).min(LIMIT) + PATIENCE;
        let window = window_bytes as usize;
        let received = match protocol {
            TransportProtocol::Tcp => stream(control, window, limit, tree)?,
            TransportProtocol::Udp => datagrams(control, window, limit, tree)?,
        };
        wire::send(control, &Answer::Report(received))?;
        transfers += 1;
    }
    Ok(transfers)
}

/// Waits for the sender's next request, or for the end of its connection. False if this side is to end.
fn is_asked(control: &TcpStream, interrupt: &Interrupt) -> io::Result<bool> {
    control.set_read_timeout(Some(LOOK_FOR_END))?;
    let began = Instant::now();
    while !interrupt.is_stopped() {
        match control.peek(&mut [0]) {
            Ok(_) => {
                control.set_read_timeout(Some(PATIENCE))?;
                return Ok(true);
            }
            Err(e) if is_nothing_yet(&e) => {}
            Err(e) => return Err(e),
        }
        if began.elapsed() > IDLE {
            let text = format!("the sender was silent for {} s", IDLE.as_secs());
            return Err(io::Error::new(io::ErrorKind::TimedOut, text));
        }
    }
    Ok(false)
}

/// Whether nothing came within a timeout, or a signal ended the wait.
fn is_nothing_yet(error: &io::Error) -> bool {
    use io::ErrorKind::{Interrupted, TimedOut, WouldBlock};
    matches!(error.kind(), WouldBlock | TimedOut | Interrupted)
}

/// The local address of a connection, with any port. It has the interface, which a link-local address needs.
fn any_port(control: &TcpStream) -> io::Result<SocketAddr> {
    let mut own = control.local_addr()?;
    own.set_port(0);
    Ok(own)
}

/// Receives a stream up to its end.
fn stream(
    control: &mut TcpStream,
    window: usize,
    limit: Duration,
    tree: &Tree,
) -> io::Result<Received> {
    let peer = control.peer_addr()?.ip();
    let listener = TcpListener::bind(any_port(control)?)?;
    // Connections inherit it, and it decides what window can be offered: before anybody connects.
    set_receive_buffer(&listener, window)?;
    wire::send(control, &Answer::Ready { port: listener.local_addr()?.port() })?;
    let mut data = match accept(&listener, PATIENCE)? {
        Some((data, from)) if from.ip() == peer => data,
        Some((_, from)) => {
            let text = format!("{} connected instead of the sender", from.ip());
            return Err(io::Error::new(io::ErrorKind::PermissionDenied, text));
        }
        None => return Err(io::Error::new(io::ErrorKind::TimedOut, "the sender did not connect")),
    };
    let buffer_bytes = rustix::net::sockopt::socket_recv_buffer_size(&data)? as u64;
    let mut room = vec![0; ROOM];
    let load = CpuLoad::begin(tree);
    let start = Instant::now();
    let mut bytes = 0;
    loop {
        match data.read(&mut room) {
            Ok(0) => break,
            Ok(count) => bytes += count as u64,
            // As after Ctrl-Z and `fg`.
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
        if start.elapsed() > limit {
            let text = "the sender did not finish in time";
            return Err(io::Error::new(io::ErrorKind::TimedOut, text));
        }
    }
    let span_ns = start.elapsed().as_nanos() as u64;
    let (cpu_load, buffer_bytes) = (Some(load.so_far()), Some(buffer_bytes));
    Ok(Received { bytes, span_ns, cpu_load, buffer_bytes, ..Received::default() })
}

/// Receives datagrams until the sender says that all are sent and no more come. Those of others don't count.
fn datagrams(
    control: &mut TcpStream,
    window: usize,
    limit: Duration,
    tree: &Tree,
) -> io::Result<Received> {
    let peer = control.peer_addr()?.ip();
    let socket = UdpSocket::bind(any_port(control)?)?;
    set_receive_buffer(&socket, window)?;
    socket.set_read_timeout(Some(QUIET))?;
    let buffer_bytes = rustix::net::sockopt::socket_recv_buffer_size(&socket)? as u64;
    wire::send(control, &Answer::Ready { port: socket.local_addr()?.port() })?;
    let mut room = vec![0; ROOM];
    let mut sequence = Sequence::default();
    let (mut bytes, mut finished) = (0, false);
    let load = CpuLoad::begin(tree);
    let mut cpu_load = None;
    let begin = Instant::now();
    let (mut first, mut last) = (None, begin);
    while begin.elapsed() < limit {
        match socket.recv_from(&mut room) {
            Ok((count, from)) if count >= 8 && from.ip() == peer => {
                let number = u64::from_be_bytes(room[..8].try_into().expect("eight bytes"));
                let known = sequence.count;
                sequence.note(number);
                bytes += if sequence.count > known { count as u64 } else { 0 };
                last = Instant::now();
                first = first.or(Some(last));
            }
            Ok(_) => {}
            Err(error) if is_nothing_yet(&error) => {
                if finished {
                    break;
                }
                // Read while nothing arrives: while datagrams arrive, reading it would lose some.
                cpu_load = Some(load.over(last.duration_since(load.begin)));
                finished = is_finished(control)?;
            }
            Err(error) => return Err(error),
        }
    }
    let span_ns = first.map_or(0, |first| last.duration_since(first).as_nanos() as u64);
    Ok(Received {
        bytes,
        datagrams: sequence.count,
        duplicates: sequence.duplicates,
        reordered: sequence.reordered,
        span_ns,
        cpu_load: Some(cpu_load.unwrap_or_else(|| load.so_far())),
        buffer_bytes: Some(buffer_bytes),
    })
}

/// Whether the sender has said that all is sent; it is not waited for.
fn is_finished(control: &mut TcpStream) -> io::Result<bool> {
    control.set_nonblocking(true)?;
    let waiting = control.peek(&mut [0]);
    control.set_nonblocking(false)?;
    match waiting {
        Ok(0) => Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the sender is gone")),
        Ok(_) => Ok(matches!(wire::hear(control)?, Some(Request::Finished))),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(false),
        Err(error) => Err(error),
    }
}
