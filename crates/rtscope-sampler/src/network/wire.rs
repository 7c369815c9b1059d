//! A wire of sockets: what the loop of a network sampler sends by and waits at.

use std::time::Duration;

use rtscope_sys::{
    clock::{Clock, SystemClock},
    frame::{Arrival, FrameSocket, FrameWait, Stamps},
    xdp::XdpSocket,
};

use super::{
    message::{Kind, Message},
    peer::{ROOM, hear},
};
use crate::frames::{Came, Wire};

/// What frames are sent and received by.
#[derive(Debug)]
pub(super) enum NearEnd {
    Socket(FrameSocket),
    Rings(Box<XdpSocket>),
}

impl NearEnd {
    #[inline]
    fn send(&mut self, frame: &[u8]) -> Result<(), i32> {
        match self {
            NearEnd::Socket(socket) => socket.send(frame),
            NearEnd::Rings(rings) => rings.send(frame),
        }
    }

    #[inline]
    pub(super) fn receive(&mut self, buffer: &mut [u8]) -> Arrival {
        match self {
            NearEnd::Socket(socket) => socket.receive(buffer),
            NearEnd::Rings(rings) => match rings.receive(buffer) {
                Some(len) => Arrival::Frame { len, stamps: Stamps::default() },
                None => Arrival::Nothing,
            },
        }
    }

    #[inline]
    pub(super) fn wait(&self, ns: u64) -> FrameWait {
        match self {
            NearEnd::Socket(socket) => socket.wait(ns),
            NearEnd::Rings(rings) => rings.wait(ns),
        }
    }

    /// The stamps of a frame that was sent; frames in rings have none.
    #[inline]
    pub(super) fn sent(&self) -> Option<Stamps> {
        match self {
            NearEnd::Socket(socket) => socket.sent(),
            NearEnd::Rings(_) => None,
        }
    }

    /// Whether the kernel stamps its frames.
    pub(super) fn ask_stamps(&self) -> Result<bool, rtscope_sys::Error> {
        match self {
            NearEnd::Socket(socket) => socket.ask_stamps().map(|()| true),
            NearEnd::Rings(_) => Ok(false),
        }
    }

    /// Lets only frames with these words through. The program before a socket with rings has no such choice: others
    /// are counted as strays.
    pub(super) fn only(&self, words: &[(u32, u32)]) -> Result<(), rtscope_sys::Error> {
        match self {
            NearEnd::Socket(socket) => socket.only(words),
            NearEnd::Rings(_) => Ok(()),
        }
    }
}

/// The near end of a path, ready to send.
#[derive(Debug)]
pub(crate) struct SocketWire {
    pub(super) out: NearEnd,
    /// Where frames come back, if it isn't where they go out.
    pub(super) back: Option<NearEnd>,
    /// The frame, with its headers; the number is filled in for each.
    pub(super) frame: Box<[u8]>,
    /// Where the payload begins.
    pub(super) at: usize,
    pub(super) token: u64,
    /// The kind of what comes back.
    pub(super) expects: Kind,
    pub(super) has_stamps: bool,
    pub(super) sent: Stamps,
    pub(super) buffer: Box<[u8]>,
}

/// A socket with an error is looked at again after so long: it must not keep a real-time thread busy.
const AFTER_ERROR: Duration = Duration::from_micros(50);

impl SocketWire {
    pub(super) fn new(
        out: NearEnd,
        back: Option<NearEnd>,
        header: &[u8],
        size: u16,
        token: u64,
    ) -> SocketWire {
        let mut frame = header.to_vec();
        frame.resize(header.len() + usize::from(size), 0);
        let expects = if back.is_some() { Kind::Frame } else { Kind::Answer };
        SocketWire {
            out,
            back,
            frame: frame.into_boxed_slice(),
            at: header.len(),
            token,
            expects,
            has_stamps: false,
            sent: Stamps::default(),
            buffer: vec![0; ROOM].into_boxed_slice(),
        }
    }

    /// Writes a message into the frame and sends it.
    #[inline]
    pub(super) fn say(&mut self, kind: Kind, number: u64) -> Result<(), i32> {
        Message::new(kind, self.token, number).write(&mut self.frame[self.at..]);
        self.out.send(&self.frame)
    }

    pub(super) fn incoming(&mut self) -> &mut NearEnd {
        self.back.as_mut().unwrap_or(&mut self.out)
    }

    /// Waits for a message of its token; what else comes is passed over.
    pub(super) fn hear(&mut self, wait_ns: u64) -> Option<(Message, Vec<u8>)> {
        let (at, token) = (self.at, self.token);
        hear(self.incoming(), at, token, wait_ns)
    }

    /// Notes the stamps of the last frame that was sent, if they are there.
    #[inline]
    fn note_sent(&mut self) {
        if self.has_stamps {
            while let Some(stamps) = self.out.sent() {
                self.sent.kernel_ns = stamps.kernel_ns.or(self.sent.kernel_ns);
                self.sent.card_ns = stamps.card_ns.or(self.sent.card_ns);
            }
        }
    }

    #[inline]
    fn look(&mut self) -> Option<Came> {
        let socket = self.back.as_mut().unwrap_or(&mut self.out);
        match socket.receive(&mut self.buffer) {
            Arrival::Frame { len, stamps } => {
                let payload = self.buffer.get(self.at..len.min(ROOM));
                let message = payload.and_then(Message::read);
                let is_ours = |m: &Message| m.token == self.token && m.kind == self.expects;
                Some(match message.filter(is_ours) {
                    Some(message) => Came::Frame(message.number, stamps),
                    None => Came::Stray,
                })
            }
            Arrival::Nothing => None,
            Arrival::Failed(_) => {
                std::thread::sleep(AFTER_ERROR);
                Some(Came::Interrupted)
            }
        }
    }
}

impl Wire for SocketWire {
    #[inline]
    fn send(&mut self, number: u64) -> bool {
        self.sent = Stamps::default();
        let is_sent = self.say(Kind::Frame, number).is_ok();
        // While the frame is on its way. What is still queued would end the wait for the answer early.
        self.note_sent();
        is_sent
    }

    #[inline]
    fn receive(&mut self, wait_ns: u64) -> Came {
        if let Some(came) = self.look() {
            return came;
        }
        match self.incoming().wait(wait_ns) {
            FrameWait::TimeOver => Came::Nothing,
            FrameWait::Interrupted => Came::Interrupted,
            FrameWait::Readable => match self.look() {
                Some(came) => came,
                None => {
                    // Nothing but the stamps of the frame that was sent.
                    self.note_sent();
                    Came::Interrupted
                }
            },
        }
    }

    #[inline]
    fn sent(&mut self) -> Stamps {
        self.note_sent();
        self.sent
    }

    #[inline]
    fn stamp_clock_ns(&self) -> Option<u64> {
        self.has_stamps.then(|| SystemClock::REALTIME.now_ns())
    }

    #[inline]
    fn has_one_card(&self) -> bool {
        self.back.is_none()
    }
}
