//! Which instructions a guest executed before its late wake-ups: what the lab's plugin of the emulator writes.
//!
//! The file is described at the head of the plugin's source. It is read piece by piece, and whatever is in it: what
//! makes no sense ends the reading, and what came before it counts.

use std::{collections::HashMap, ops::Range};

/// Instructions that follow each other in memory, as the emulator translated them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Block {
    /// Of the first instruction.
    pub address: u64,
    /// Where the emulator has this memory of the guest; 0 where it has none.
    pub host: u64,
    /// The bytes of each instruction.
    pub instructions: Vec<Vec<u8>>,
}

/// A block that was executed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Executed {
    /// Which, of [`Instructions::blocks`].
    pub block: u32,
    /// Instructions that the guest had executed before.
    pub before: u64,
}

/// A late wake-up, with what was executed before it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Window {
    /// The latency that the sampler measured.
    pub latency_ns: u64,
    /// The programmed expiry, on the guest's `CLOCK_MONOTONIC`.
    pub expiry_ns: u64,
    /// Instructions that the guest had executed when it marked the wake-up.
    pub mark: u64,
    /// Blocks in order, from well before the expiry to the mark.
    pub executed: Vec<Executed>,
}

/// All that a plugin wrote.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Instructions {
    /// Blocks by their numbers.
    pub blocks: HashMap<u32, Block>,
    /// Late wake-ups in the order of time.
    pub windows: Vec<Window>,
    /// Whether the plugin ended in order and lost nothing.
    pub is_whole: bool,
}

impl Instructions {
    /// Reads what a plugin wrote.
    #[must_use]
    pub fn read(bytes: &[u8]) -> Instructions {
        let mut all = Instructions { is_whole: true, ..Instructions::default() };
        let mut input = Input(bytes);
        if all.fill(&mut input).is_none() {
            all.is_whole = false;
        }
        all
    }

    /// Gives each block of the kernel's own code the kernel's address of it. An emulator may have translated it at
    /// another address, which showed the same memory while the kernel started. `code` is where the kernel's code begins
    /// and ends: one piece of memory, and of the emulator's.
    pub fn place_kernel(&mut self, code: Range<u64>) {
        let mut shifts: HashMap<u64, u32> = HashMap::new();
        for block in self.blocks.values().filter(|it| it.host != 0 && code.contains(&it.address)) {
            *shifts.entry(block.address.wrapping_sub(block.host)).or_default() += 1;
        }
        let most = shifts.into_iter().max_by_key(|(shift, count)| (*count, *shift));
        let Some((shift, _)) = most else { return };
        for block in self.blocks.values_mut().filter(|it| it.host != 0) {
            let address = block.host.wrapping_add(shift);
            if code.contains(&address) {
                block.address = address;
            }
        }
    }

    /// Adds entry after entry up to the end; none where the input ends before it or makes no sense.
    fn fill(&mut self, input: &mut Input<'_>) -> Option<()> {
        loop {
            match input.byte()? {
                b'B' => {
                    let number = input.u32()?;
                    let (address, host) = (input.u64()?, input.u64()?);
                    let mut block = Block { address, host, instructions: Vec::new() };
                    for _ in 0..input.u32()? {
                        let length = input.byte()?;
                        block.instructions.push(input.take(length.into())?.to_vec());
                    }
                    self.blocks.insert(number, block);
                }
                b'W' => {
                    let mut window = Window {
                        latency_ns: input.u64()?,
                        expiry_ns: input.u64()?,
                        mark: input.u64()?,
                        executed: Vec::new(),
                    };
                    for _ in 0..input.u32()? {
                        let (block, before) = (input.u32()?, input.u64()?);
                        let is_sound = self.blocks.contains_key(&block)
                            && before <= window.mark
                            && window.executed.last().is_none_or(|last| last.before <= before);
                        if !is_sound {
                            return None;
                        }
                        window.executed.push(Executed { block, before });
                    }
                    self.windows.push(window);
                }
                b'L' => self.is_whole = false,
                b'E' => return Some(()),
                _ => return None,
            }
        }
    }
}

/// Bytes that are still to be read.
struct Input<'a>(&'a [u8]);

impl<'a> Input<'a> {
    fn take(&mut self, length: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(taken)
    }

    fn byte(&mut self) -> Option<u8> {
        self.take(1).map(|bytes| bytes[0])
    }

    fn u32(&mut self) -> Option<u32> {
        self.take(4)?.try_into().ok().map(u32::from_le_bytes)
    }

    fn u64(&mut self) -> Option<u64> {
        self.take(8)?.try_into().ok().map(u64::from_le_bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A block of a NOP and a return at 0x1000, and a wake-up with it executed twice.
    fn sample() -> Vec<u8> {
        let mut bytes = vec![b'B'];
        bytes.extend(7_u32.to_le_bytes());
        bytes.extend(0x1000_u64.to_le_bytes());
        bytes.extend(0x7000_u64.to_le_bytes());
        bytes.extend(2_u32.to_le_bytes());
        bytes.extend([1, 0x90, 1, 0xc3]);
        bytes.push(b'W');
        for number in [5000_u64, 1_000_000, 104] {
            bytes.extend(number.to_le_bytes());
        }
        bytes.extend(2_u32.to_le_bytes());
        for before in [100_u64, 102] {
            bytes.extend(7_u32.to_le_bytes());
            bytes.extend(before.to_le_bytes());
        }
        bytes.push(b'E');
        bytes
    }

    #[test]
    fn what_the_plugin_wrote_is_read() {
        let all = Instructions::read(&sample());
        assert!(all.is_whole);
        assert_eq!((all.blocks[&7].address, all.blocks[&7].host), (0x1000, 0x7000));
        assert_eq!(all.blocks[&7].instructions, [vec![0x90], vec![0xc3]]);
        let [window] = all.windows.as_slice() else { panic!("one wake-up") };
        assert_eq!((window.latency_ns, window.expiry_ns, window.mark), (5000, 1_000_000, 104));
        assert_eq!(window.executed[1], Executed { block: 7, before: 102 });
    }

    #[test]
    fn a_block_that_was_translated_while_the_kernel_started_gets_the_kernel_s_address() {
        let block = |address, host| Block { address, host, instructions: Vec::new() };
        // The kernel is at 0x8000 to 0x9000, which the emulator has at 0x1000. It started at 0x400.
        let blocks =
            [(0x8010, 0x1010), (0x8020, 0x1020), (0x430, 0x1030), (0x440, 0x3000), (0x50, 0)];
        let blocks = (0..).zip(blocks).map(|(n, (address, host))| (n, block(address, host)));
        let mut all = Instructions { blocks: blocks.collect(), ..Instructions::default() };
        all.place_kernel(0x8000..0x9000);
        let addresses: Vec<u64> = (0..5).map(|n| all.blocks[&n].address).collect();
        assert_eq!(addresses, [0x8010, 0x8020, 0x8030, 0x440, 0x50]);
        all.place_kernel(0..0);
        assert_eq!(all.blocks[&2].address, 0x8030);
    }

    #[test]
    fn what_is_cut_off_lost_or_makes_no_sense_is_not_whole() {
        let whole = sample();
        for length in 0..whole.len() {
            assert!(!Instructions::read(&whole[..length]).is_whole, "cut at {length}");
        }
        let lost = [&whole[..whole.len() - 1], b"LE"].concat();
        let found = Instructions::read(&lost);
        assert!(!found.is_whole && found.windows.len() == 1);
        // A wake-up that names a block that isn't there.
        assert_eq!(Instructions::read(&whole[whole.len() - 54..]).windows, []);
    }
}
