//! A file as `trace-cmd record` writes it, in version 6 of its format (trace-cmd.dat.v6(5)): the kernel's pages as they
//! were, and what is needed to read them.

use std::collections::{BTreeMap, BTreeSet};

use super::{KernelSymbols, page::MISSED, pages::Pages};

/// Where the word with the length and the flags lies in a page.
const COMMIT: usize = 8;

/// What trace-cmd needs besides the pages.
#[derive(Clone, Debug)]
pub(super) struct Description {
    /// `events/header_page` and `events/header_event`.
    pub(super) headers: [String; 2],
    /// Events, as `sched/sched_switch`, with their `format` files.
    pub(super) formats: Vec<(String, String)>,
    /// Bytes of a page.
    pub(super) page_size: usize,
    /// CPUs, counted from 0 to the last one.
    pub(super) cpus: u32,
}

/// The file. `names` are those of threads.
pub(super) fn write(
    about: &Description,
    pages: &Pages,
    symbols: &KernelSymbols,
    names: &BTreeMap<u32, String>,
) -> Vec<u8> {
    let mut file = head(about);
    formats(&mut file, &about.formats);
    let symbols = symbols.excerpt(&addresses(about, pages));
    file.extend((symbols.len() as u32).to_ne_bytes());
    file.extend(symbols.as_bytes());
    // Formats of `trace_printk`: none.
    file.extend(0_u32.to_ne_bytes());
    let names: String = names.iter().map(|(tid, name)| format!("{tid} {name}\n")).collect();
    file.extend((names.len() as u64).to_ne_bytes());
    file.extend(names.as_bytes());
    file.extend(about.cpus.to_ne_bytes());
    let clock = b"[mono]\0";
    const TRACE_CLOCK: u16 = 4;
    const DONE: u16 = 0;
    file.extend(b"options  \0");
    file.extend(TRACE_CLOCK.to_ne_bytes());
    file.extend((clock.len() as u32).to_ne_bytes());
    file.extend(clock);
    file.extend(DONE.to_ne_bytes());
    file.extend(b"flyrecord\0");
    buffers(file, about, pages, clock)
}

/// Up to the headers of pages.
fn head(about: &Description) -> Vec<u8> {
    let mut file = b"\x17\x08\x44tracing6\0".to_vec();
    file.push(u8::from(cfg!(target_endian = "big")));
    file.push(size_of::<usize>() as u8);
    file.extend((about.page_size as u32).to_ne_bytes());
    for (name, text) in ["header_page\0", "header_event\0"].iter().zip(&about.headers) {
        file.extend(name.as_bytes());
        file.extend((text.len() as u64).to_ne_bytes());
        file.extend(text.as_bytes());
    }
    file
}

/// The formats of events: those of ftrace itself, then those of the other systems.
fn formats(file: &mut Vec<u8>, all: &[(String, String)]) {
    let mut systems: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for (event, text) in all {
        let system = event.split('/').next().unwrap_or_default();
        systems.entry(system).or_default().push(text);
    }
    let ftrace = systems.remove("ftrace").unwrap_or_default();
    let texts = |file: &mut Vec<u8>, texts: &[&str]| {
        file.extend((texts.len() as u32).to_ne_bytes());
        for text in texts {
            file.extend((text.len() as u64).to_ne_bytes());
            file.extend(text.as_bytes());
        }
    };
    texts(file, &ftrace);
    file.extend((systems.len() as u32).to_ne_bytes());
    for (system, of_system) in systems {
        file.extend(system.as_bytes());
        file.push(0);
        texts(file, &of_system);
    }
}

/// Where each CPU's pages lie, the clock, and the pages.
fn buffers(mut file: Vec<u8>, about: &Description, pages: &Pages, clock: &[u8]) -> Vec<u8> {
    let head = file.len() + about.cpus as usize * 16 + 8 + clock.len();
    let mut at = head.next_multiple_of(about.page_size);
    for cpu in 0..about.cpus {
        let size = pages.of_cpu(cpu).count() * about.page_size;
        file.extend((at as u64).to_ne_bytes());
        file.extend((size as u64).to_ne_bytes());
        at += size;
    }
    file.extend((clock.len() as u64).to_ne_bytes());
    file.extend(clock);
    file.resize(head.next_multiple_of(about.page_size), 0);
    for page in (0..about.cpus).flat_map(|cpu| pages.of_cpu(cpu)) {
        let start = file.len();
        file.extend(&page.bytes[..about.page_size]);
        if !page.follows {
            let commit = start + COMMIT..start + COMMIT + 8;
            let word = file[commit.clone()].try_into().map_or(0, u64::from_ne_bytes);
            file[commit].copy_from_slice(&(word | MISSED).to_ne_bytes());
        }
    }
    file
}

/// Whatever in the pages may be an address of the kernel's code. What isn't does no harm: a name more is in the file.
fn addresses(about: &Description, pages: &Pages) -> BTreeSet<u64> {
    const KERNEL: u64 = 0xffff << 48;
    let mut found = BTreeSet::new();
    for page in (0..about.cpus).flat_map(|cpu| pages.of_cpu(cpu)) {
        for word in page.bytes.windows(8).step_by(4) {
            let word = word.try_into().map_or(0, u64::from_ne_bytes);
            if word & KERNEL == KERNEL {
                found.insert(word);
            }
        }
    }
    found
}
