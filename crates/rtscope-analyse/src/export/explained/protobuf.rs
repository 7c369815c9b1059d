//! Messages in protobuf's wire format, field by field.

/// A message.
#[derive(Clone, Debug, Default)]
pub(super) struct Message(Vec<u8>);

impl Message {
    /// A whole number.
    pub(super) fn number(mut self, field: u32, value: u64) -> Message {
        self.varint(u64::from(field) << 3);
        self.varint(value);
        self
    }

    /// A whole number that may be negative, as protobuf's `int32` and `int64`.
    pub(super) fn signed(self, field: u32, value: i32) -> Message {
        self.number(field, i64::from(value).cast_unsigned())
    }

    pub(super) fn text(mut self, field: u32, text: &str) -> Message {
        self.bytes(field, text.as_bytes());
        self
    }

    pub(super) fn message(mut self, field: u32, message: &Message) -> Message {
        self.bytes(field, &message.0);
        self
    }

    pub(super) fn into_bytes(self) -> Vec<u8> {
        self.0
    }

    fn bytes(&mut self, field: u32, bytes: &[u8]) {
        const LENGTH_DELIMITED: u64 = 2;
        self.varint(u64::from(field) << 3 | LENGTH_DELIMITED);
        self.varint(bytes.len() as u64);
        self.0.extend_from_slice(bytes);
    }

    fn varint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.0.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.0.push(value as u8);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The examples of protobuf's own page about its encoding.
    #[test]
    fn the_examples_of_the_specification_are_encoded_as_it_says() {
        let number = Message::default().number(1, 150);
        assert_eq!(number.clone().into_bytes(), [0x08, 0x96, 0x01]);
        let text = Message::default().text(2, "testing").into_bytes();
        assert_eq!(text, [0x12, 0x07, 0x74, 0x65, 0x73, 0x74, 0x69, 0x6e, 0x67]);
        let nested = Message::default().message(3, &number).into_bytes();
        assert_eq!(nested, [0x1a, 0x03, 0x08, 0x96, 0x01]);
        let negative = Message::default().signed(1, -2).into_bytes();
        assert_eq!(negative, [0x08, 0xfe, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01]);
    }
}
