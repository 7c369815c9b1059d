//! Instructions of x86-64: Intel 64 and IA-32 Architectures Software Developer's Manual, volume 2.

use super::{CountChange, Flow};

/// An instruction without its prefixes.
fn bare(bytes: &[u8]) -> &[u8] {
    let is_prefix = |byte: &u8| matches!(byte, 0x26 | 0x2e | 0x36 | 0x3e | 0x40..=0x4f | 0x64..=0x66 | 0xf2 | 0xf3);
    let start = bytes.iter().position(|byte| !is_prefix(byte)).unwrap_or(bytes.len());
    &bytes[start..]
}

pub(super) fn flow(address: u64, bytes: &[u8]) -> Flow {
    match bare(bytes) {
        [0xe8, offset @ ..] => {
            let offset = offset.try_into().ok().map(i32::from_le_bytes);
            let next = address.wrapping_add(bytes.len() as u64);
            Flow::Call(offset.map(|offset| next.wrapping_add_signed(offset.into())))
        }
        // The middle bits of the second byte are the operation: 2 and 3 are calls.
        [0xff, kind, ..] if matches!(kind >> 3 & 7, 2 | 3) => Flow::Call(None),
        [0xc2 | 0xc3, ..] => Flow::Return,
        [0xcf] => Flow::InterruptReturn,
        [0x0f, 0x05] => Flow::SystemCall,
        [0x0f, 0x07] => Flow::SystemReturn,
        _ => Flow::On,
    }
}

/// How the instruction at an address changes the CPU's variable at an offset from `%gs`, if it does. The operand is
/// `%gs:offset`, absolute or relative to the next instruction. What sets, clears or compares bits is no change.
pub(super) fn changes_count(address: u64, bytes: &[u8], offset: u64) -> Option<CountChange> {
    let code = bare(bytes);
    let prefixes = &bytes[..bytes.len() - code.len()];
    if !prefixes.contains(&0x65) {
        return None;
    }
    let (operation, rest) = match code {
        [0x0f, second, rest @ ..] => (u16::from(*second) | 0x0f00, rest),
        [first, rest @ ..] => (u16::from(*first), rest),
        [] => return None,
    };
    let (kind, rest) = rest.split_first()?;
    let next = address.wrapping_add(bytes.len() as u64);
    let (base, rest) = match (kind & 0xc7, rest) {
        (0x05, rest) => (next, rest),
        (0x04, [0x25, rest @ ..]) => (0, rest),
        _ => return None,
    };
    let (displacement, number) = rest.split_first_chunk()?;
    if base.wrapping_add_signed(i32::from_le_bytes(*displacement).into()) != offset {
        return None;
    }
    let number = match *number {
        [one] => Some(i64::from(one.cast_signed())),
        _ => number.try_into().ok().map(|bytes| i64::from(i32::from_le_bytes(bytes))),
    };
    // Bits 3 to 5 of the second byte are the operation of 0x81, 0x83 and 0xff, else a register.
    match (operation, kind >> 3 & 7) {
        (0xff, 0) => Some(CountChange::By(1)),
        (0xff, 1) => Some(CountChange::By(-1)),
        (0x81 | 0x83, 0) => number.map(CountChange::By),
        (0x81 | 0x83, 5) => number.map(|number| CountChange::By(-number)),
        (0x01, 6) => Some(CountChange::ByArgument),
        (0x01 | 0x29 | 0x87 | 0x89 | 0xc7 | 0x0fb1 | 0x0fc1, _) => Some(CountChange::Other),
        _ => None,
    }
}

/// The number that an instruction passes as a function's second argument (`mov $number,%esi`).
pub(super) fn second_argument(bytes: &[u8]) -> Option<i64> {
    match bytes {
        [0xbe, number @ ..] => {
            number.try_into().ok().map(|bytes| i64::from(i32::from_le_bytes(bytes)))
        }
        _ => None,
    }
}

/// `rdtsc` and `rdtscp`.
pub(super) fn reads_clock(bytes: &[u8]) -> bool {
    matches!(bare(bytes), [0x0f, 0x31] | [0x0f, 0x01, 0xf9])
}

/// `hlt`.
pub(super) fn halts(bytes: &[u8]) -> bool {
    bare(bytes) == [0xf4]
}

/// `cli` and `sti`.
pub(super) fn masks_interrupts(bytes: &[u8]) -> Option<bool> {
    match bare(bytes) {
        [0xfa] => Some(true),
        [0xfb] => Some(false),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_and_returns_are_known_with_and_without_prefixes() {
        // By an assembler: call to the next instruction, to one 16 bytes before, *%r11, *0x10(%rax).
        assert_eq!(flow(0x1000, &[0xe8, 0, 0, 0, 0]), Flow::Call(Some(0x1005)));
        assert_eq!(flow(0x1000, &[0xe8, 0xeb, 0xff, 0xff, 0xff]), Flow::Call(Some(0xff0)));
        assert_eq!(flow(0x1000, &[0x2e, 0xe8, 0, 0, 0, 0]), Flow::Call(Some(0x1006)));
        assert_eq!(flow(0, &[0x41, 0xff, 0xd3]), Flow::Call(None));
        assert_eq!(flow(0, &[0xff, 0x50, 0x10]), Flow::Call(None));
        // jmp *%rax and push (%rax) begin alike.
        assert_eq!(flow(0, &[0xff, 0xe0]), Flow::On);
        assert_eq!(flow(0, &[0xff, 0x30]), Flow::On);
        assert_eq!(flow(0, &[0xf3, 0xc3]), Flow::Return);
        assert_eq!(flow(0, &[0x48, 0xcf]), Flow::InterruptReturn);
        assert_eq!(flow(0, &[0x48, 0x0f, 0x07]), Flow::SystemReturn);
        assert_eq!(flow(0, &[0x0f, 0x1f, 0]), Flow::On);
        assert!(reads_clock(&[0x0f, 0x31]) && reads_clock(&[0x0f, 0x01, 0xf9]));
        assert!(halts(&[0xf4]) && !halts(&[0x0f, 0xf4]));
        assert_eq!(masks_interrupts(&[0xfa]), Some(true));
        assert_eq!(masks_interrupts(&[]), None);
    }

    #[test]
    fn changes_of_the_preempt_count_are_known_by_their_operand() {
        // By objdump, of Debian's kernel 6.1: incl and addl of %gs:0x1fb40, relative to the next instruction.
        let of = |address, bytes: &[u8]| changes_count(address, bytes, 0x1fb40);
        let incl = [0x65, 0xff, 0x05, 0x09, 0xd6, 0x01, 0x7f];
        assert_eq!(of(0xffff_ffff_8100_2530, &incl), Some(CountChange::By(1)));
        assert_eq!(of(0xffff_ffff_8100_2531, &incl), None, "another variable");
        assert_eq!(of(0xffff_ffff_8100_2530, &incl[1..]), None, "of no CPU");
        let addl = [0x65, 0x81, 0x05, 0x78, 0xa1, 0xfe, 0x7e, 0, 0, 0xff, 0xff];
        assert_eq!(of(0xffff_ffff_8103_59bd, &addl), Some(CountChange::By(-0x10000)));
        let add_esi = [0x65, 0x01, 0x35, 0x61, 0x68, 0xf7, 0x7e];
        assert_eq!(of(0xffff_ffff_810a_92d8, &add_esi), Some(CountChange::ByArgument));
        let mov = [0x65, 0x8b, 0x05, 0x5a, 0x68, 0xf7, 0x7e];
        assert_eq!(of(0xffff_ffff_810a_92df, &mov), None, "it only reads");
        // By an assembler: decl %gs:0x1fb40, subl $1, and cmpxchg, all absolute.
        assert_eq!(of(0, &[0x65, 0xff, 0x0c, 0x25, 0x40, 0xfb, 1, 0]), Some(CountChange::By(-1)));
        assert_eq!(
            of(0, &[0x65, 0x83, 0x2c, 0x25, 0x40, 0xfb, 1, 0, 1]),
            Some(CountChange::By(-1))
        );
        let cmpxchg = [0x65, 0x0f, 0xb1, 0x14, 0x25, 0x40, 0xfb, 1, 0];
        assert_eq!(of(0, &cmpxchg), Some(CountChange::Other));
        for cut in 0..addl.len() {
            assert_eq!(of(0xffff_ffff_8103_59bd, &addl[..cut]), None);
        }
        assert_eq!(second_argument(&[0xbe, 1, 2, 0, 0]), Some(0x201));
        assert_eq!(second_argument(&[0x41, 0xbe, 1, 2, 0, 0]), None, "r14d");
    }
}
