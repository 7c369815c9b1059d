//! Instructions of arm64, each of four bytes: Arm Architecture Reference Manual for A-profile, C4 and C6.

use super::Flow;

/// The bit of DAIF that masks interrupts, in the immediate of `msr daifset` and `msr daifclr`.
const INTERRUPTS: u32 = 2;

fn word(bytes: &[u8]) -> Option<u32> {
    bytes.try_into().ok().map(u32::from_le_bytes)
}

pub(super) fn flow(address: u64, bytes: &[u8]) -> Flow {
    let Some(word) = word(bytes) else { return Flow::On };
    // BL: 26 bits of a signed number of instructions.
    if word & 0xfc00_0000 == 0x9400_0000 {
        let offset = i64::from((word << 6).cast_signed() >> 6) * 4;
        return Flow::Call(Some(address.wrapping_add_signed(offset)));
    }
    // Register branches: bits 21 to 24 are the operation, bits 10 to 15 whether the address is authenticated.
    let is_branch = word & 0xfe1f_0000 == 0xd61f_0000 && matches!(word >> 10 & 0x3f, 0 | 2 | 3);
    match (is_branch, word >> 21 & 7) {
        (true, 1) => Flow::Call(None),
        (true, 2) => Flow::Return,
        (true, 4) => Flow::InterruptReturn,
        _ if word & 0xffe0_001f == 0xd400_0001 => Flow::SystemCall,
        _ => Flow::On,
    }
}

/// `mrs` of CNTVCT_EL0 or CNTVCTSS_EL0.
pub(super) fn reads_clock(bytes: &[u8]) -> bool {
    word(bytes).is_some_and(|word| matches!(word & !0x1f, 0xd53b_e040 | 0xd53b_e0c0))
}

/// `wfi`.
pub(super) fn halts(bytes: &[u8]) -> bool {
    word(bytes) == Some(0xd503_207f)
}

/// `msr daifset` and `msr daifclr`. What restores the flags from a register isn't known.
pub(super) fn masks_interrupts(bytes: &[u8]) -> Option<bool> {
    let word = word(bytes)?;
    let has_interrupts = word >> 8 & INTERRUPTS != 0;
    match word & 0xffff_f0ff {
        0xd503_40df => has_interrupts.then_some(true),
        0xd503_40ff => has_interrupts.then_some(false),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instructions_are_known_as_an_assembler_writes_them() {
        // By aarch64-linux-gnu-as: each line's instruction and its word.
        let of = |word: u32| flow(0x1000, &word.to_le_bytes());
        let words = [
            ("bl .+8", 0x9400_0002, Flow::Call(Some(0x1008))),
            ("bl .-16", 0x97ff_fffc, Flow::Call(Some(0xff0))),
            ("blr x3", 0xd63f_0060, Flow::Call(None)),
            ("blraaz x3", 0xd63f_087f, Flow::Call(None)),
            ("blraa x3, x4", 0xd73f_0864, Flow::Call(None)),
            ("ret", 0xd65f_03c0, Flow::Return),
            ("retaa", 0xd65f_0bff, Flow::Return),
            ("eret", 0xd69f_03e0, Flow::InterruptReturn),
            ("svc #0", 0xd400_0001, Flow::SystemCall),
            ("br x17", 0xd61f_0220, Flow::On),
            ("b .+8", 0x1400_0002, Flow::On),
            ("brk #0", 0xd420_0000, Flow::On),
            ("nop", 0xd503_201f, Flow::On),
        ];
        for (text, word, expected) in words {
            assert_eq!(of(word), expected, "{text}");
        }
        let bytes = |word: u32| word.to_le_bytes();
        assert!(reads_clock(&bytes(0xd53b_e041)), "mrs x1, cntvct_el0");
        assert!(!reads_clock(&bytes(0xd53b_e001)), "mrs x1, cntfrq_el0");
        assert!(halts(&bytes(0xd503_207f)) && !halts(&bytes(0xd503_205f)), "wfi, wfe");
        assert_eq!(masks_interrupts(&bytes(0xd503_43df)), Some(true), "msr daifset, #3");
        assert_eq!(masks_interrupts(&bytes(0xd503_43ff)), Some(false), "msr daifclr, #3");
        assert_eq!(masks_interrupts(&bytes(0xd503_48df)), None, "msr daifset, #8");
        assert_eq!(masks_interrupts(&bytes(0xd51b_4220)), None, "msr daif, x0");
        assert_eq!(flow(0, &[0xd4, 0]), Flow::On, "cut off");
    }
}
