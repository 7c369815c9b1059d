//! What a frame carries: who it is from and which it is. The rest of it is empty.
//!
//! ```text
//! 0..4    "rtnf"
//! 4       version of this layout
//! 5       kind
//! 8..16   token of the thread that sends, big-endian
//! 16..24  number of the frame, big-endian
//! ```

/// The version of the layout and of what is said with it.
pub(super) const VERSION: u8 = 1;

const MAGIC: [u8; 4] = *b"rtnf";

/// Where the kind and the upper half of the token are, for a socket's filter: words of 4 bytes.
pub(super) const WORD_OF_KIND: u32 = 4;
pub(super) const WORD_OF_TOKEN: u32 = 12;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Is a peer there?
    Hello = 1,
    /// A peer is here.
    Welcome = 2,
    /// A peer is here that speaks another version.
    Refused = 3,
    /// A frame of a cycle.
    Frame = 4,
    /// The same frame, sent back.
    Answer = 5,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Message {
    pub(super) version: u8,
    pub(super) kind: Kind,
    pub(super) token: u64,
    pub(super) number: u64,
}

impl Message {
    pub(super) fn new(kind: Kind, token: u64, number: u64) -> Message {
        Message { version: VERSION, kind, token, number }
    }

    /// Writes it to the beginning of a payload, which is at least as long.
    #[inline]
    pub(super) fn write(&self, payload: &mut [u8]) {
        payload[..4].copy_from_slice(&MAGIC);
        payload[4..8].copy_from_slice(&[self.version, self.kind as u8, 0, 0]);
        payload[8..16].copy_from_slice(&self.token.to_be_bytes());
        payload[16..24].copy_from_slice(&self.number.to_be_bytes());
    }

    /// Reads one; none when it isn't one.
    #[inline]
    pub(super) fn read(payload: &[u8]) -> Option<Message> {
        let (head, rest) = payload.split_first_chunk::<8>()?;
        let (token, rest) = rest.split_first_chunk::<8>()?;
        let (number, _) = rest.split_first_chunk::<8>()?;
        let kind = match head[5] {
            1 => Kind::Hello,
            2 => Kind::Welcome,
            3 => Kind::Refused,
            4 => Kind::Frame,
            5 => Kind::Answer,
            _ => return None,
        };
        let message = Message {
            version: head[4],
            kind,
            token: u64::from_be_bytes(*token),
            number: u64::from_be_bytes(*number),
        };
        (head[..4] == MAGIC).then_some(message)
    }

    /// The word of 4 bytes at [`WORD_OF_KIND`].
    pub(super) fn kind_word(kind: Kind) -> u32 {
        u32::from_be_bytes([VERSION, kind as u8, 0, 0])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_written_and_read_and_nothing_else_is_one() {
        let message = Message::new(Kind::Frame, 0x0102_0304_0506_0708, 77);
        let mut bytes = [0xff; 30];
        message.write(&mut bytes);
        assert_eq!(Message::read(&bytes), Some(message));
        assert_eq!(Message::read(&bytes[..24]), Some(message));
        assert_eq!(Message::read(&bytes[..23]), None);
        let word = |at: u32| u32::from_be_bytes(bytes[at as usize..][..4].try_into().expect("4"));
        assert_eq!(word(WORD_OF_KIND), Message::kind_word(Kind::Frame));
        assert_eq!(word(WORD_OF_TOKEN), 0x0506_0708);
        for (at, byte) in [(0, b'x'), (5, 9), (5, 0)] {
            let mut other = bytes;
            other[at] = byte;
            assert_eq!(Message::read(&other), None);
        }
    }
}
