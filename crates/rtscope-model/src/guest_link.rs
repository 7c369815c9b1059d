//! How a record leaves an emulated guest: files as frames on a serial line.
//!
//! ```text
//! magic      8 bytes   RTSCOPE1
//! name       2 bytes   its length, little-endian
//! body       4 bytes   its length, little-endian
//! checksum   4 bytes   CRC-32 (IEEE 802.3) of the two lengths, the name and the body
//! name, body
//! ```
//!
//! The last frame has no name; its body is the number of frames before it, as decimal text. A line may
//! carry other text too, as a kernel's messages: a reader skips what is not a frame. A frame that was
//! cut or damaged is told as such and never as a file.

/// What a frame begins with.
const MAGIC: &[u8; 8] = b"RTSCOPE1";

/// Bytes before the name.
const HEADER: usize = MAGIC.len() + 2 + 4 + 4;

/// The longest body: a length above it is noise that looks like a frame.
pub const BODY_MAX: usize = 64 << 20;

pub const NAME_MAX: usize = 255;

/// Name of the frame that tells why there is no record; its body is a text.
pub const FAILURE: &str = "failure";

/// What was read from a line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Frame {
    /// A file, whole and undamaged.
    File {
        /// Its path in the record, as `slices/t0.jsonl`.
        name: String,
        body: Vec<u8>,
    },
    /// Nothing follows.
    End {
        /// How many files were sent.
        files: usize,
    },
    /// Something began as a frame and its checksum is wrong.
    Damaged,
}

/// A file as a frame. None when the name is empty or too long, or the body is too long.
#[must_use]
pub fn file(name: &str, body: &[u8]) -> Option<Vec<u8>> {
    if name.is_empty() || name.len() > NAME_MAX || body.len() > BODY_MAX {
        return None;
    }
    Some(frame(name, body))
}

/// The frame after the last file.
#[must_use]
pub fn end(files: usize) -> Vec<u8> {
    frame("", files.to_string().as_bytes())
}

fn frame(name: &str, body: &[u8]) -> Vec<u8> {
    let lengths =
        [&(name.len() as u16).to_le_bytes()[..], &(body.len() as u32).to_le_bytes()].concat();
    let checksum = checksum(&lengths, &[name.as_bytes(), body]);
    [MAGIC, &lengths[..], &checksum.to_le_bytes(), name.as_bytes(), body].concat()
}

fn checksum(lengths: &[u8], parts: &[&[u8]]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(lengths);
    parts.iter().for_each(|part| hasher.update(part));
    hasher.finalize()
}

/// Finds frames in the bytes of a line, in pieces of any size.
#[derive(Clone, Debug, Default)]
pub struct FrameReader {
    waiting: Vec<u8>,
    /// What was passed over.
    text: Vec<u8>,
    /// Nothing after a damaged frame is a frame.
    is_damaged: bool,
}

impl FrameReader {
    /// Takes bytes from the line; the frames that are now complete, in order. A damaged one is the last: whoever looked
    /// for another in the bytes that it claims would add them up again and again.
    pub fn feed(&mut self, bytes: &[u8]) -> Vec<Frame> {
        let mut frames = Vec::new();
        if self.is_damaged {
            self.text.extend_from_slice(bytes);
            return frames;
        }
        self.waiting.extend_from_slice(bytes);
        let mut at = 0;
        loop {
            let rest = &self.waiting[at..];
            match step(rest) {
                Step::Skip(noise) => {
                    self.text.extend_from_slice(&rest[..noise]);
                    at += noise;
                    if at == self.waiting.len() {
                        break;
                    }
                }
                Step::Frame(frame, length) => {
                    self.is_damaged = frame == Frame::Damaged;
                    frames.push(frame);
                    at += length;
                    if self.is_damaged {
                        self.text.extend_from_slice(&self.waiting[at..]);
                        self.waiting = Vec::new();
                        return frames;
                    }
                }
                Step::More => break,
            }
        }
        self.waiting.drain(..at);
        frames
    }

    /// What came beside the frames since the last call: a kernel's messages, where the line carries them.
    pub fn take_text(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.text)
    }

    /// Whether a frame has begun that is not complete.
    #[must_use]
    pub fn is_inside(&self) -> bool {
        self.waiting.len() >= MAGIC.len()
    }
}

/// What the bytes at some place are.
enum Step {
    /// Not a frame for so many bytes.
    Skip(usize),
    /// A frame of this length.
    Frame(Frame, usize),
    /// The beginning of a frame.
    More,
}

fn step(bytes: &[u8]) -> Step {
    let begins = |at: &usize| {
        let rest = &bytes[*at..];
        rest.len().min(MAGIC.len()) > 0 && MAGIC.starts_with(&rest[..rest.len().min(MAGIC.len())])
    };
    match (0..bytes.len()).find(begins) {
        None => return Step::Skip(bytes.len()),
        Some(0) => {}
        Some(noise) => return Step::Skip(noise),
    }
    if bytes.len() < HEADER {
        return Step::More;
    }
    let number = |at: usize, width: usize| {
        bytes[at..at + width].iter().rev().fold(0, |sum, byte| sum << 8 | usize::from(*byte))
    };
    let (name, body, sum) = (number(8, 2), number(10, 4), number(14, 4));
    if name > NAME_MAX || body > BODY_MAX {
        return Step::Skip(1);
    }
    let length = HEADER + name + body;
    if bytes.len() < length {
        return Step::More;
    }
    let (name, body) = bytes[HEADER..length].split_at(name);
    if checksum(&bytes[8..14], &[name, body]) as usize != sum {
        return Step::Frame(Frame::Damaged, MAGIC.len());
    }
    Step::Frame(meaning(name, body), length)
}

fn meaning(name: &[u8], body: &[u8]) -> Frame {
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).ok();
    match text(name) {
        Some(name) if !name.is_empty() => Frame::File { name, body: body.to_vec() },
        Some(_) => match text(body).and_then(|body| body.parse().ok()) {
            Some(files) => Frame::End { files },
            None => Frame::Damaged,
        },
        None => Frame::Damaged,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn of(name: &str, body: &[u8]) -> Frame {
        Frame::File { name: name.to_owned(), body: body.to_vec() }
    }

    #[test]
    fn frames_are_found_among_other_text() {
        let line = [
            b"[    0.1] Booting RTSCOPE".as_slice(),
            &file("plan.toml", b"name = 'x'").expect("fits"),
            b"a message\r\n",
            &file("empty", b"").expect("fits"),
            &end(2),
            b"reboot: Power down",
        ];
        let mut reader = FrameReader::default();
        assert_eq!(
            reader.feed(&line.concat()),
            [of("plan.toml", b"name = 'x'"), of("empty", b""), Frame::End { files: 2 }]
        );
        let text = String::from_utf8(reader.take_text()).expect("text");
        assert_eq!(text, "[    0.1] Booting RTSCOPEa message\r\nreboot: Power down");
        assert!(reader.take_text().is_empty());
    }

    #[test]
    fn nothing_after_a_damaged_frame_is_a_frame() {
        let mut damaged = file("name", b"a body").expect("fits");
        damaged[HEADER + 6] ^= 1;
        let next = file("next", b"whole").expect("fits");
        let mut reader = FrameReader::default();
        assert_eq!(reader.feed(&[damaged.as_slice(), &next].concat()), [Frame::Damaged]);
        assert_eq!(reader.feed(&next), []);
        let passed = damaged.len() - MAGIC.len() + 2 * next.len();
        assert_eq!((reader.take_text().len(), reader.is_inside()), (passed, false));
    }

    #[test]
    fn what_does_not_fit_is_not_framed() {
        assert!(file("", b"x").is_none() && file(&"n".repeat(NAME_MAX + 1), b"").is_none());
    }

    proptest! {
        #[test]
        fn pieces_of_any_size_give_the_same_frames(
            bodies in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..200), 1..5),
            noise in prop::collection::vec(any::<u8>(), 0..20),
            piece in 1_usize..64,
        ) {
            let mut line = noise;
            for (i, body) in bodies.iter().enumerate() {
                line.extend(file(&format!("f{i}"), body).expect("fits"));
            }
            line.extend(end(bodies.len()));
            let mut reader = FrameReader::default();
            let frames: Vec<Frame> = line.chunks(piece).flat_map(|part| reader.feed(part)).collect();
            let mut expected: Vec<Frame> =
                bodies.iter().enumerate().map(|(i, body)| of(&format!("f{i}"), body)).collect();
            expected.push(Frame::End { files: bodies.len() });
            prop_assert_eq!(frames, expected);
            prop_assert!(!reader.is_inside());
        }

        #[test]
        fn a_cut_frame_is_never_a_file(body in prop::collection::vec(any::<u8>(), 0..200), keep in 0.0..1.0) {
            let whole = file("name", &body).expect("fits");
            let cut = (whole.len() as f64 * keep) as usize;
            prop_assert_eq!(FrameReader::default().feed(&whole[..cut]), []);
        }

        #[test]
        fn a_flipped_bit_is_never_a_file(
            body in prop::collection::vec(any::<u8>(), 1..200),
            place in 0.0..1.0,
            bit in 0_u8..8,
        ) {
            let mut line = file("name", &body).expect("fits");
            let at = (line.len() as f64 * place) as usize;
            line[at] ^= 1 << bit;
            line.extend(file("next", b"whole").expect("fits"));
            let frames = FrameReader::default().feed(&line);
            prop_assert!(!frames.contains(&of("name", &body)));
        }
    }
}
