//! `cyclictest`: its command line, driven by our sampler.
//!
//! ```text
//! options   the words, and what is wrong with them        (cpus: sets of CPUs)
//! help      the text that -h does not print
//! spec      the session that they ask for
//! run       set-up, and what is printed before and after
//! tick      what is printed on the way: screen, samples, the answers to signals, the named pipe
//! ```
//!
//! A latency is measured as everywhere in rtscope, from the programmed expiry to the first reading of
//! the clock. Where cyclictest has another meaning of its own it is kept: missed periods are skipped
//! without a word, threads have different intervals, `/dev/cpu_dma_latency` is held at 0.

mod cpus;
mod help;
mod options;
mod run;
mod spec;
mod tick;

use rtscope_sys::{sched, tree::Tree};

use self::{
    cpus::Machine,
    options::{Action, parse},
};
use super::{print, say};
use crate::leftovers;

/// Runs cyclictest with these words and answers its exit code.
pub(super) fn main(words: &[String]) -> u8 {
    let tree = Tree::default();
    let machine = machine(&tree);
    let parsed = parse(words, &machine);
    parsed.stderr.iter().for_each(|line| say(line));
    print(&parsed.stdout);
    match parsed.outcome {
        Action::Help(code) => {
            print(&help::text());
            code
        }
        Action::Refused(code) => code,
        Action::Run(options) => {
            leftovers::restore();
            let command = std::iter::once("cyclictest").chain(words.iter().map(String::as_str));
            let measurement = run::Measurement {
                options: &options,
                machine: &machine,
                tree: &tree,
                command: command.collect::<Vec<_>>().join(" "),
                strict_exit: parsed.strict_exit,
            };
            measurement.run().unwrap_or_else(|stop| {
                say(&stop.text);
                stop.code
            })
        }
    }
}

fn machine(tree: &Tree) -> Machine {
    let read = |file: &str| {
        let text = tree.read(format!("sys/devices/system/cpu/{file}")).unwrap_or_default();
        text.parse().unwrap_or_default()
    };
    let allowed = sched::affinity(sched::SELF).unwrap_or_default();
    Machine { allowed, configured: read("present"), online: read("online") }
}
