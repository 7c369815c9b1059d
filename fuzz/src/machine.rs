//! What a machine says of itself: its command line, its lists of CPUs, its symbols, the files that `doctor` reads.

use std::collections::BTreeSet;

use rtscope_analyse::{
    doctor::{PURPOSES, Purpose, against, diagnose},
    report::doctor as report,
};
use rtscope_model::{
    cmdline,
    cpu::CpuSet,
    doctor::{DoctorDocument, FileReading, MachineFacts},
    printable,
    symbols::KernelSymbols,
};

use super::{
    Stages, parts,
    pipe::{self, Stage},
};

/// Parameters with a list of CPUs, and others.
const PARAMETERS: [&str; 4] = ["isolcpus", "nohz_full", "rcu_nocbs", "a"];

/// Reads bytes as a command line of the kernel, as a list of CPUs and as a mask. What was read must read back.
///
/// # Panics
///
/// When it does not.
pub fn cmdline(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    let last = bytes.first().filter(|byte| **byte != b' ').map(|byte| u32::from(*byte));
    let lists = PARAMETERS.map(|parameter| {
        let value = cmdline::value(&text, parameter);
        assert!(value.is_none_or(|value| text.contains(value)));
        assert!(!cmdline::has_flag(&text, parameter) || text.contains(parameter));
        cmdline::cpus(&text, parameter, last)
    });
    for cpus in lists.into_iter().flatten().chain(text.parse()).chain(CpuSet::from_mask(&text)) {
        assert_eq!(cpus.to_string().parse(), Ok(cpus));
    }
}

/// Reads bytes as `/proc/kallsyms`. An excerpt must give addresses the same names.
///
/// # Panics
///
/// When it does not.
pub fn symbols(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes).into_owned();
    let words = text.split_whitespace().filter_map(|word| u64::from_str_radix(word, 16).ok());
    let near = |address: u64| [address.wrapping_sub(1), address, address.wrapping_add(1)];
    let addresses: BTreeSet<u64> = words.take(30).flat_map(near).collect();
    let Some(symbols) = KernelSymbols::parse(text) else { return };
    let again = KernelSymbols::parse(symbols.excerpt(&addresses)).unwrap_or_default();
    for address in addresses {
        assert_eq!(again.function(address), symbols.function(address), "{address:x}");
        let place = symbols.place(address);
        assert!(place.is_none_or(|(_, first)| first <= address));
        assert_eq!(place.map(|(name, _)| name), symbols.function(address));
        let _ = (symbols.timer(address), symbols.is_entry(address));
    }
    let _ = (symbols.code(), symbols.preempt_count(), symbols.address("schedule"));
}

/// Reads bytes as a document of `rtscope collect`, or as the files of a machine, and examines the machine for each
/// purpose.
///
/// # Panics
///
/// When a text has characters that a terminal obeys, or a page is not whole.
pub fn doctor(bytes: &[u8], stages: Stages) {
    let text = String::from_utf8_lossy(bytes);
    let facts = match printable::from_json::<DoctorDocument>(&text) {
        Ok(document) => document.facts,
        Err(_) => files(&text),
    };
    let all: &[Purpose] = &PURPOSES;
    let chosen = pipe::number_of(bytes) as usize % all.len();
    let purposes = if stages.is_all() { all } else { &all[chosen..=chosen] };
    for purpose in purposes {
        let document = diagnose(&facts, purpose, purpose.deadline_ns, "0");
        if stages.has(Stage::Print, bytes) {
            pipe::check_text(&report::text(&document, true));
        }
        if stages.has(Stage::Compare, bytes) {
            let other = diagnose(&MachineFacts::default(), purpose, purpose.deadline_ns, "0");
            pipe::check_text(&report::against_text(&against::apart(&document, &other), "a"));
        }
        if stages.has(Stage::Page, bytes) {
            pipe::check_page(&report::page(&document));
        }
    }
}

/// The files of a running machine: what else is read of it follows from them in the product, where a folder is read.
fn files(text: &str) -> MachineFacts {
    let mut facts = MachineFacts { live: true, ..MachineFacts::default() };
    for (name, content) in parts(text) {
        let content = printable::printable_lines(content.trim()).into_owned();
        match name {
            "proc/cmdline" => facts.environment.kernel.cmdline = content,
            "environment" => facts.environment = printable::from_json(&content).unwrap_or_default(),
            "services" => facts.services = content.lines().map(str::to_owned).collect(),
            _ => {
                let name = printable::printable(name).into_owned();
                drop(facts.files.insert(name, FileReading::Text(content)));
            }
        }
    }
    facts
}
