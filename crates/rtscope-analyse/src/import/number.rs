//! Numbers in bytes: eight at a time where a field is eight wide, one by one elsewhere.

/// Every byte the same.
const fn all(byte: u8) -> u64 {
    u64::from_le_bytes([byte; 8])
}

/// A field of eight bytes: spaces, then digits up to its end. The arithmetic runs on all eight bytes
/// at once; a space counts as a leading zero.
#[inline]
pub(super) fn field(bytes: [u8; 8]) -> Option<u64> {
    let text = u64::from_le_bytes(bytes);
    // A digit has bit 4, a space has not and no lower bit either.
    let spaces = (!text & all(0x10)) >> 4;
    let digits = text | all(0x10);
    let is_space = text & (spaces * 0x0f) == 0;
    let is_leading = (spaces >> 8) & !spaces == 0 && spaces >> 56 == 0;
    let is_digit =
        digits & all(0xf0) == all(0x30) && digits.wrapping_add(all(6)) & all(0xf0) == all(0x30);
    if !(is_space && is_leading && is_digit) {
        return None;
    }
    // Pairs, then fours, then all eight: the first byte is the highest digit.
    let ones = digits - all(0x30);
    let pairs = (ones.wrapping_mul(10) + (ones >> 8)) & 0x00ff_00ff_00ff_00ff;
    let fours = (pairs.wrapping_mul(100) + (pairs >> 16)) & 0x0000_ffff_0000_ffff;
    Some((fours.wrapping_mul(10_000) + (fours >> 32)) & 0xffff_ffff)
}

/// A whole number, `None` for anything else and beyond 64 bits.
pub(super) fn whole(word: &[u8]) -> Option<u64> {
    if word.is_empty() || word.len() > 20 {
        return None;
    }
    word.iter().try_fold(0u64, |sum, &byte| {
        let digit = byte.is_ascii_digit().then(|| u64::from(byte - b'0'))?;
        sum.checked_mul(10)?.checked_add(digit)
    })
}

/// A latency as a tool prints it: negative, and close to 2^64 (a negative one in an unsigned
/// field), are wake-ups before their time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Printed {
    /// In units.
    Late(u64),
    /// Before its time.
    Early,
}

pub(super) fn latency(word: &[u8]) -> Option<Printed> {
    match word.strip_prefix(b"-") {
        Some(rest) => whole(rest).map(|_| Printed::Early),
        None => whole(word).map(|value| match value {
            0..=0x7fff_ffff_ffff_ffff => Printed::Late(value),
            _ => Printed::Early,
        }),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_field_is_spaces_and_then_digits() {
        let read = |text: &str| field(text.as_bytes().try_into().expect("eight bytes"));
        assert_eq!(read("       0"), Some(0));
        assert_eq!(read("    1234"), Some(1_234));
        assert_eq!(read("99999999"), Some(99_999_999));
        assert_eq!(read("12345678"), Some(12_345_678));
        let wrong =
            ["        ", "   12 34", "1       ", "      -5", "     !23", "   1234\n", "    12:4"];
        for wrong in wrong {
            assert_eq!(read(wrong), None, "{wrong:?}");
        }
    }

    #[test]
    fn hostile_numbers_are_refused_or_early() {
        assert_eq!(whole(b"18446744073709551615"), Some(u64::MAX));
        assert_eq!(whole(b"18446744073709551616"), None);
        assert_eq!(whole(b"1e5"), None);
        assert_eq!(latency(b"18446744073709551000"), Some(Printed::Early));
        assert_eq!(latency(b"-3"), Some(Printed::Early));
        assert_eq!(latency(b"-"), None);
    }

    proptest! {
        #[test]
        fn a_field_is_read_as_the_library_reads_it(text in "[ -:]{8}") {
            let bytes: [u8; 8] = text.as_bytes().try_into().expect("eight bytes");
            let expected = text.trim_start_matches(' ');
            let is_plain = !expected.is_empty() && expected.bytes().all(|b| b.is_ascii_digit());
            prop_assert_eq!(field(bytes), is_plain.then(|| expected.parse().expect("digits")));
        }

        #[test]
        fn every_number_is_read(value in 0u64..100_000_000) {
            let text = format!("{value:8}");
            prop_assert_eq!(field(text.as_bytes().try_into().expect("eight bytes")), Some(value));
        }
    }
}
