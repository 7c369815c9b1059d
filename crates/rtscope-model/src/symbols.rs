//! The kernel's symbols: names of addresses, from `/proc/kallsyms`.

use std::{collections::BTreeSet, ops::Range};

use crate::trace::TimerFunction;

/// Where interrupts enter the kernel, on x86-64, arm64, 32-bit ARM and RISC-V. What a stack has below them was
/// interrupted.
const ENTRIES: &[&str] = &[
    "asm_sysvec_",
    "asm_common_interrupt",
    "asm_exc_",
    "el1h_64_irq",
    "el0t_64_irq",
    "el0t_32_irq",
    "__irq_svc",
    "__irq_usr",
    "handle_exception",
];

/// KernelSymbols in the order of their addresses.
#[derive(Clone, Debug, Default)]
pub struct KernelSymbols {
    text: String,
    /// Address, and where its name lies in the text.
    all: Vec<(u64, usize, usize)>,
    /// First and last address of each function by which interrupts enter.
    entries: Vec<(u64, u64)>,
    code: Range<u64>,
    preempt_count: Option<u64>,
}

impl KernelSymbols {
    /// Of the text of `/proc/kallsyms`; none where the kernel hides addresses.
    #[must_use]
    pub fn parse(text: String) -> Option<KernelSymbols> {
        let mut all = Vec::new();
        let (mut start, mut code, mut preempt_count) = (0, 0..0, None);
        for line in text.split_inclusive('\n') {
            match named_address(line) {
                Some(("_stext", address)) => code.start = address,
                Some(("_etext", address)) => code.end = address,
                // Since Linux 6.2 it was the second word of a variable whose first one is a pointer
                // (arch/x86/include/asm/current.h), before and after that a variable of its own.
                Some(("__preempt_count", address)) => preempt_count = Some(address),
                Some(("pcpu_hot", address)) => preempt_count = Some(address.wrapping_add(8)),
                _ => {}
            }
            if let Some((address, at, end)) = symbol(line) {
                all.push((address, start + at, start + end));
            }
            start += line.len();
        }
        all.sort_unstable();
        if all.is_empty() {
            return None;
        }
        let mut symbols = KernelSymbols { text, all, entries: Vec::new(), code, preempt_count };
        symbols.entries =
            symbols.ranges(|name| ENTRIES.iter().any(|entry| name.starts_with(entry)));
        Some(symbols)
    }

    /// Where the kernel's own code begins and ends, without its modules. Empty where it has no such symbols.
    #[must_use]
    pub fn code(&self) -> Range<u64> {
        self.code.clone()
    }

    /// The offset from `%gs` at which x86-64 keeps a CPU's preempt count. None on other processors, and where the
    /// kernel was built without `CONFIG_KALLSYMS_ALL`.
    #[must_use]
    pub fn preempt_count(&self) -> Option<u64> {
        self.preempt_count
    }

    fn name(&self, index: usize) -> &str {
        let (_, from, to) = self.all[index];
        &self.text[from..to]
    }

    fn ranges(&self, is_meant: impl Fn(&str) -> bool) -> Vec<(u64, u64)> {
        let end = |n: usize| {
            let start = self.all[n].0;
            // Thousands may have the same address.
            let later = self.all.partition_point(|(address, ..)| *address <= start);
            self.all.get(later).map_or(u64::MAX, |(address, ..)| *address)
        };
        let meant = (0..self.all.len()).filter(|n| is_meant(self.name(*n)));
        meant.map(|n| (self.all[n].0, end(n))).collect()
    }

    /// The function that an address lies in, without what compilers append.
    #[must_use]
    pub fn function(&self, address: u64) -> Option<&str> {
        let end = self.all.partition_point(|(start, ..)| *start <= address);
        let (start, ..) = *self.all.get(end.checked_sub(1)?)?;
        // Of several names for an address the first one.
        let first = self.all.partition_point(|(other, ..)| *other < start);
        self.name(first).split('.').next()
    }

    /// The address of a function, whatever a compiler appended to its name.
    #[must_use]
    pub fn address(&self, function: &str) -> Option<u64> {
        let is_meant = |n: &usize| self.name(*n).split('.').next() == Some(function);
        (0..self.all.len()).find(is_meant).map(|n| self.all[n].0)
    }

    /// The function that an address lies in and that function's first address.
    #[must_use]
    pub fn place(&self, address: u64) -> Option<(&str, u64)> {
        let end = self.all.partition_point(|(start, ..)| *start <= address);
        let (start, ..) = *self.all.get(end.checked_sub(1)?)?;
        Some((self.function(address)?, start))
    }

    /// The functions that these addresses lie in and those after them, as lines of `/proc/kallsyms`.
    #[must_use]
    pub fn excerpt(&self, addresses: &BTreeSet<u64>) -> String {
        let mut meant = BTreeSet::new();
        for address in addresses {
            let end = self.all.partition_point(|(start, ..)| start <= address);
            if let Some((start, ..)) = end.checked_sub(1).map(|last| self.all[last]) {
                // Of several names for an address the first one, as in `function`.
                let first = self.all.partition_point(|(other, ..)| *other < start);
                meant.extend([first, end.min(self.all.len() - 1)]);
            }
        }
        let line = |n: usize| format!("{:016x} t {}\n", self.all[n].0, self.name(n));
        meant.into_iter().map(line).collect()
    }

    /// What a timer does, by the address of its function.
    #[must_use]
    pub fn timer(&self, address: u64) -> TimerFunction {
        let at = self.all.partition_point(|(start, ..)| *start < address);
        let same = self.all[at..].iter().take_while(|(start, ..)| *start == address);
        same.map(|(_, from, to)| TimerFunction::named(&self.text[*from..*to]))
            .find(|function| function.ends_a_sleep())
            .unwrap_or(TimerFunction::Other)
    }

    /// Whether a return address lies where interrupts enter.
    #[must_use]
    pub fn is_entry(&self, address: u64) -> bool {
        self.entries.iter().any(|(from, to)| (*from..*to).contains(&address))
    }
}

/// Name and address of a line's symbol, whatever its kind: on arm64 the end of the code counts as data.
fn named_address(line: &str) -> Option<(&str, u64)> {
    let mut words = line.split_whitespace();
    let (address, _, name) = (words.next()?, words.next()?, words.next()?);
    // Few lines have a name that is looked for; the number is read only of those.
    let is_meant = matches!(name, "_stext" | "_etext" | "__preempt_count" | "pcpu_hot");
    is_meant.then(|| Some((name, u64::from_str_radix(address, 16).ok()?)))?
}

/// Address of a line's symbol, and from where to where the line has its name.
fn symbol(line: &str) -> Option<(u64, usize, usize)> {
    let (address, rest) = line.split_once(' ')?;
    let address = u64::from_str_radix(address, 16).ok().filter(|address| *address != 0)?;
    let (kind, rest) = rest.split_once(' ')?;
    // Functions: what is not is data.
    if !matches!(kind, "t" | "T" | "w" | "W") {
        return None;
    }
    let name = rest.split(['\t', '\n', ' ']).next()?;
    let at = line.len() - rest.len();
    Some((address, at, at + name.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "ffffffff81000df0 T asm_sysvec_apic_timer_interrupt\nffffffff81000e10 T asm_other\n\
                        ffffffff8141e230 t hrtimer_wakeup.cfi_jt\nffffffff81730990 t timerfd_tmrproc [m]\n\
                        ffffffff81730991 T schedule\nffffffff81730999 d data\nx\n";

    #[test]
    fn functions_of_timers_are_found_unless_their_addresses_are_hidden() {
        let found = KernelSymbols::parse(TEXT.to_owned()).expect("symbols");
        assert_eq!(found.timer(0xffff_ffff_8141_e230), TimerFunction::Sleep);
        assert_eq!(found.timer(0xffff_ffff_8173_0990), TimerFunction::TimerFd);
        assert_eq!(found.timer(0xffff_ffff_8173_0991), TimerFunction::Other);
        assert_eq!(found.timer(7), TimerFunction::Other);
        assert!(KernelSymbols::parse("0000000000000000 t hrtimer_wakeup".to_owned()).is_none());
    }

    #[test]
    fn the_kernel_s_own_code_ends_at_a_symbol_of_any_kind() {
        let of =
            |lines: &str| KernelSymbols::parse(format!("{TEXT}{lines}")).expect("symbols").code();
        assert_eq!(
            of("ffff800008010000 T _stext\nffff800008c60000 D _etext\n"),
            0xffff_8000_0801_0000..0xffff_8000_08c6_0000
        );
        assert!(of("").is_empty());
    }

    #[test]
    fn the_preempt_count_is_a_variable_of_its_own_or_one_of_several() {
        let of = |line: &str| {
            KernelSymbols::parse(format!("{TEXT}{line}\n")).expect("symbols").preempt_count()
        };
        assert_eq!(of("000000000001fb40 A __preempt_count"), Some(0x1fb40));
        assert_eq!(of("0000000000034b00 A pcpu_hot"), Some(0x34b08));
        assert_eq!(of("ffffffff824631dc r __ksymtab___preempt_count"), None);
    }

    #[test]
    fn an_excerpt_gives_an_address_the_name_that_the_whole_gives_it() {
        let twice = "10 t one\n10 t other\n20 t next\n20 t alias\n";
        let found = KernelSymbols::parse(twice.to_owned()).expect("symbols");
        let addresses = [0x11, 0x21].into_iter().collect();
        let excerpt = KernelSymbols::parse(found.excerpt(&addresses)).expect("symbols");
        for (address, name) in [(0x10, "one"), (0x1f, "one"), (0x20, "next"), (0x99, "next")] {
            assert_eq!(found.function(address), Some(name));
            assert_eq!(excerpt.function(address), Some(name));
        }
    }

    #[test]
    fn thousands_of_names_for_an_address_take_no_time() {
        let text = "10 t asm_exc_x\n".repeat(200_000) + "20 t next\n";
        let found = KernelSymbols::parse(text).expect("symbols");
        assert!(found.is_entry(0x1f) && !found.is_entry(0x20));
    }

    #[test]
    fn an_address_has_the_name_of_the_function_that_it_lies_in() {
        let found = KernelSymbols::parse(TEXT.to_owned()).expect("symbols");
        assert_eq!(found.function(0xffff_ffff_8141_e231), Some("hrtimer_wakeup"));
        assert_eq!(found.function(0xffff_ffff_8173_0998), Some("schedule"));
        assert_eq!(found.function(5), None);
        assert_eq!(found.address("hrtimer_wakeup"), Some(0xffff_ffff_8141_e230));
        assert!(found.is_entry(0xffff_ffff_8100_0e0f));
        assert!(!found.is_entry(0xffff_ffff_8100_0e10));
    }
}
