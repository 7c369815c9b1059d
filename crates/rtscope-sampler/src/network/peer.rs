//! The side that sends frames back: a thread of this process, or `rtscope network --serve` on another machine.

use std::{
    io,
    net::{SocketAddr, UdpSocket},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::*},
        mpsc::{self, RecvTimeoutError},
    },
    thread::JoinHandle,
    time::Duration,
};

use rtscope_model::{
    plan::{FRAME_SIZE_MAX, PeerFaults},
    schedule::Placement,
};
use rtscope_sys::{
    frame::{Arrival, ETHERNET_HEADER, FrameSocket, FrameWait, MacAddress},
    memory, sched, thread,
};

use super::{
    NetworkError,
    message::{Kind, Message, VERSION},
    wire::NearEnd,
};
use crate::session::PLACING_LIMIT;

/// Room for the largest frame.
pub(super) const ROOM: usize = FRAME_SIZE_MAX as usize + ETHERNET_HEADER + 32;

/// Time between two looks whether the peer shall end.
const LOOK_NS: u64 = 50_000_000;

/// Answers frames, and does with some of them what was asked.
#[derive(Debug)]
struct Responder<A> {
    faults: PeerFaults,
    /// Answers that are to be sent before that to the next frame, and those after it.
    late: Vec<(Vec<u8>, A)>,
    swapped: Vec<(Vec<u8>, A)>,
}

impl<A: Copy> Responder<A> {
    fn new(faults: PeerFaults) -> Responder<A> {
        Responder { faults, late: Vec::new(), swapped: Vec::new() }
    }

    /// Answers a frame from an address whose payload begins at a place.
    fn respond(&mut self, frame: &mut [u8], at: usize, from: A, mut send: impl FnMut(&[u8], A)) {
        let Some(message) = frame.get(at..).and_then(Message::read) else { return };
        let kind = match message.kind {
            Kind::Frame if message.version == VERSION => Kind::Answer,
            Kind::Hello if message.version == VERSION => Kind::Welcome,
            Kind::Hello => Kind::Refused,
            _ => return,
        };
        Message { version: VERSION, kind, ..message }.write(&mut frame[at..]);
        if kind != Kind::Answer {
            return send(frame, from);
        }
        let hits =
            |period: u32| period > 0 && message.number % u64::from(period) == u64::from(period) - 1;
        self.late.drain(..).for_each(|(frame, to)| send(&frame, to));
        let held = std::mem::take(&mut self.swapped);
        if hits(self.faults.drop) {
        } else if hits(self.faults.late) {
            self.late.push((frame.to_vec(), from));
        } else if hits(self.faults.swap) {
            self.swapped.push((frame.to_vec(), from));
        } else {
            send(frame, from);
            if hits(self.faults.duplicate) {
                send(frame, from);
            }
        }
        held.iter().for_each(|(frame, to)| send(frame, *to));
    }
}

/// Sends an Ethernet frame back to where it came from.
fn turn_around(frame: &mut [u8], own: MacAddress) {
    if let Some((to, rest)) = frame.split_first_chunk_mut::<6>()
        && let Some(from) = rest.first_chunk_mut::<6>()
    {
        *to = *from;
        *from = own;
    }
}

/// The peer's socket.
#[derive(Debug)]
pub(super) enum PeerSocket {
    /// Connected to the other side.
    Udp(FrameSocket),
    /// On an interface with this address.
    Ethernet(FrameSocket, MacAddress),
}

impl PeerSocket {
    /// Answers until it is told to end.
    fn serve(&self, faults: PeerFaults, ends: impl Fn() -> bool) {
        let mut responder = Responder::new(faults);
        let mut buffer = vec![0; ROOM];
        let (socket, at) = match self {
            PeerSocket::Udp(socket) => (socket, 0),
            PeerSocket::Ethernet(socket, _) => (socket, ETHERNET_HEADER),
        };
        while !ends() {
            match socket.receive(&mut buffer) {
                Arrival::Frame { len, .. } => {
                    let frame = &mut buffer[..len.min(ROOM)];
                    if let PeerSocket::Ethernet(_, own) = self {
                        turn_around(frame, *own);
                    }
                    responder.respond(frame, at, (), |answer, ()| {
                        // What isn't sent is lost: the other side counts it.
                        let _ = socket.send(answer);
                    });
                }
                Arrival::Nothing => {
                    socket.wait(LOOK_NS);
                }
                // An interface that went down: it may come again.
                Arrival::Failed(_) => std::thread::sleep(Duration::from_millis(1)),
            }
        }
    }
}

/// A peer that is a thread of this process. It ends when dropped.
#[derive(Debug)]
pub(crate) struct LocalPeer {
    ends: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl LocalPeer {
    /// Starts one; with a place it runs there, and that was read back.
    pub(super) fn start(
        socket: PeerSocket,
        faults: PeerFaults,
        place: Option<Placement>,
    ) -> Result<LocalPeer, NetworkError> {
        let ends = Arc::new(AtomicBool::new(false));
        let (told, (report, reports)) = (ends.clone(), mpsc::channel());
        let body = move || {
            thread::block_signals();
            thread::set_timer_slack_ns(1);
            let placed = place.map_or(Ok(()), |place| sched::place(&place).map(drop));
            memory::prefault_stack();
            let failed = placed.is_err();
            let _ = report.send(placed);
            if !failed {
                socket.serve(faults, || told.load(Relaxed));
            }
        };
        let thread = std::thread::Builder::new()
            .name("frame-peer".to_owned())
            .spawn(body)
            .map_err(|e| NetworkError::Io("start a thread for the peer".to_owned(), e))?;
        let mut peer = LocalPeer { ends, thread: Some(thread) };
        match reports.recv_timeout(PLACING_LIMIT) {
            Ok(Ok(())) => Ok(peer),
            Ok(Err(error)) => Err(NetworkError::System(error)),
            Err(RecvTimeoutError::Disconnected) => {
                Err(NetworkError::Peer("the thread of the peer ended".to_owned()))
            }
            Err(RecvTimeoutError::Timeout) => {
                // Joining the thread would block, too.
                drop(peer.thread.take());
                let limit = PLACING_LIMIT.as_secs();
                Err(NetworkError::Peer(format!(
                    "the thread of the peer did not run within {limit} s: a thread of a higher priority holds its \
                     CPU; end that thread, or choose another CPU"
                )))
            }
        }
    }
}

impl Drop for LocalPeer {
    fn drop(&mut self) {
        self.ends.store(true, Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Answers datagrams at an address until `ends` answers true, which is asked after each datagram, and every 50 ms where
/// none comes.
///
/// # Errors
///
/// When the socket fails.
pub fn serve_udp(
    socket: &UdpSocket,
    faults: PeerFaults,
    ends: impl Fn() -> bool,
) -> io::Result<()> {
    socket.set_read_timeout(Some(Duration::from_nanos(LOOK_NS)))?;
    let mut responder: Responder<SocketAddr> = Responder::new(faults);
    let mut buffer = vec![0; ROOM];
    while !ends() {
        match socket.recv_from(&mut buffer) {
            Ok((len, from)) => responder.respond(&mut buffer[..len], 0, from, |answer, to| {
                let _ = socket.send_to(answer, to);
            }),
            Err(error) if is_passing(&error) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Whether a socket goes on after an error: nothing came, a signal, or an earlier answer that nobody took.
fn is_passing(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionRefused, Interrupted, TimedOut, WouldBlock};
    matches!(error.kind(), WouldBlock | TimedOut | Interrupted | ConnectionRefused)
}

/// Answers Ethernet frames on an interface until `ends` answers true, which is asked after each frame, and every 50 ms
/// where none comes.
///
/// # Errors
///
/// When there is no such interface, or no permission.
pub fn serve_ethernet(
    interface: &str,
    faults: PeerFaults,
    ends: impl Fn() -> bool,
) -> Result<(), NetworkError> {
    let interface = super::usable(interface)?;
    let socket = super::ethernet(&interface)?;
    PeerSocket::Ethernet(socket, interface.mac).serve(faults, ends);
    Ok(())
}

/// Waits for a message of a kind from a socket; what else comes is passed over.
pub(super) fn hear(
    socket: &mut NearEnd,
    at: usize,
    token: u64,
    wait_ns: u64,
) -> Option<(Message, Vec<u8>)> {
    let mut buffer = vec![0; ROOM];
    let until = std::time::Instant::now() + Duration::from_nanos(wait_ns);
    loop {
        let left = until.saturating_duration_since(std::time::Instant::now());
        match socket.receive(&mut buffer) {
            Arrival::Frame { len, .. } => {
                let message = buffer.get(at..len.min(ROOM)).and_then(Message::read);
                if let Some(message) = message.filter(|message| message.token == token) {
                    buffer.truncate(len);
                    return Some((message, buffer));
                }
            }
            _ if left.is_zero() => return None,
            Arrival::Nothing => {
                if socket.wait(left.as_nanos() as u64) == FrameWait::Readable {
                    // It may be the timestamps of a frame that was sent.
                    while socket.sent().is_some() {}
                }
            }
            Arrival::Failed(_) => std::thread::sleep(Duration::from_millis(1)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The numbers of what comes back of frames 0 to `count`, in order.
    fn answered(faults: PeerFaults, count: u64) -> Vec<u64> {
        let mut responder = Responder::new(faults);
        let mut numbers = Vec::new();
        for number in 0..count {
            let mut frame = [0; 40];
            Message::new(Kind::Frame, 9, number).write(&mut frame[10..]);
            responder.respond(&mut frame, 10, (), |answer, ()| {
                let message = Message::read(&answer[10..]).expect("an answer");
                assert_eq!((message.kind, message.token), (Kind::Answer, 9));
                numbers.push(message.number);
            });
        }
        numbers
    }

    #[test]
    fn a_peer_does_wrong_what_it_was_asked_to() {
        let none = PeerFaults::default();
        assert_eq!(answered(none, 4), [0, 1, 2, 3]);
        assert_eq!(answered(PeerFaults { drop: 3, ..none }, 7), [0, 1, 3, 4, 6]);
        assert_eq!(answered(PeerFaults { duplicate: 2, ..none }, 4), [0, 1, 1, 2, 3, 3]);
        assert_eq!(answered(PeerFaults { late: 3, ..none }, 5), [0, 1, 2, 3, 4]);
        assert_eq!(answered(PeerFaults { swap: 3, ..none }, 5), [0, 1, 3, 2, 4]);
        // A held answer is sent when the next frame is dropped, too.
        assert_eq!(answered(PeerFaults { drop: 4, swap: 3, ..none }, 5), [0, 1, 2, 4]);
    }

    #[test]
    fn another_version_is_refused_and_others_are_not_answered() {
        let mut responder = Responder::new(PeerFaults::default());
        let mut answer = |message: Message| {
            let (mut frame, mut heard) = ([0; 24], None);
            message.write(&mut frame);
            responder.respond(&mut frame, 0, (), |answer, ()| heard = Message::read(answer));
            heard.map(|message| (message.version, message.kind))
        };
        let hello = Message::new(Kind::Hello, 1, 0);
        assert_eq!(answer(hello), Some((VERSION, Kind::Welcome)));
        assert_eq!(answer(Message { version: 9, ..hello }), Some((VERSION, Kind::Refused)));
        assert_eq!(answer(Message::new(Kind::Answer, 1, 0)), None);
        let other = Message { version: 9, ..Message::new(Kind::Frame, 1, 0) };
        assert_eq!(answer(other), None);
    }

    #[test]
    fn a_frame_goes_back_to_its_sender() {
        let mut frame = [1, 1, 1, 1, 1, 1, 2, 2, 2, 2, 2, 2, 0x88, 0xb5];
        turn_around(&mut frame, [3; 6]);
        assert_eq!(frame, [2, 2, 2, 2, 2, 2, 3, 3, 3, 3, 3, 3, 0x88, 0xb5]);
    }
}
