//! A verb of rtscope in guests: it runs there as it would run on a board, and its figures stand side by side here.

use std::{path::Path, process::ExitCode, time::Duration};

use anyhow::Context;
use rtscope_analyse::report::{
    lab::{
        figures::GuestFigure,
        verbs::{self, SideBySide},
    },
    published::{Ours, Whose, of_table},
};
use rtscope_lab::{brought, lab::GuestVerbs, program::GuestProgram, tool::Need};
use rtscope_measure::{environment, guest_init::SHOWN};
use rtscope_model::{
    guest,
    printable::make_printable,
    published::{KernelKind, Published},
    time::Nanos,
};
use rtscope_sys::tree::Tree;
use serde_json::Value;

use super::{
    guest_options::{self, Lab},
    output,
};
use crate::{
    exit,
    record::{self, DOCUMENT_BYTES_MAX},
};

/// The kernels of a verb, how their guests run, and where the answer goes.
#[derive(Debug, clap::Args)]
pub(in crate::cli) struct Guests {
    /// Kernel to run, as for `lab run`; repeatable
    #[arg(short, long, value_name = "KERNEL", required = true)]
    kernel: Vec<String>,
    #[command(flatten)]
    judging: guest_options::Judging,
    #[command(flatten)]
    options: guest_options::Options,
}

impl Guests {
    /// Asks for these tools of this machine and for all that the guests will need, before any of it is used.
    pub(super) fn require(&self, tools: Vec<Need>) -> anyhow::Result<()> {
        guest_options::Lab::require(&self.options, &self.kernel, tools)
    }
}

/// What a verb measured in a guest.
pub(super) struct Measured {
    /// The figures that are compared.
    pub(super) figures: Vec<GuestFigure>,
    /// What published figures are set beside.
    pub(super) ours: Vec<Ours>,
    /// Its own document.
    pub(super) document: Value,
    /// Its own page, where it has one.
    pub(super) page: Option<String>,
    /// Its exit code.
    pub(super) code: u8,
}

/// A verb, and how its record is read.
pub(super) struct Verb<'a> {
    /// As it is typed, `wave sweep`.
    pub(super) name: &'static str,
    /// Its words behind the name, without those that say where the record goes.
    pub(super) words: &'a [String],
    /// Further words: where the record goes.
    pub(super) out: Vec<String>,
    /// How long it runs in the guest's time, about.
    pub(super) length: Nanos,
    /// What the guest needs for it.
    pub(super) needs: GuestVerbs,
    /// What virtual time can't say of it, a sentence each.
    pub(super) limits: &'static [&'static str],
    /// Figures of documents that are shown beside those of the guests.
    pub(super) published: Vec<Published>,
    /// Reads what it measured from a guest's folder.
    pub(super) read: &'a dyn Fn(&Path, Whose<'_>) -> anyhow::Result<Measured>,
}

impl Verb<'_> {
    /// The name as that of a folder.
    fn folder(&self) -> String {
        folder(self.name)
    }

    fn command(&self) -> guest::Command {
        let words = self.name.split(' ').map(str::to_owned);
        // What follows `--` belongs to another program.
        let own = self.words.iter().position(|word| word == "--").unwrap_or(self.words.len());
        let (own, rest) = self.words.split_at(own);
        let words = words.chain(own.iter().cloned()).chain(self.out.iter().cloned());
        guest::Command { name: self.folder(), words: words.chain(rest.iter().cloned()).collect() }
    }
}

/// The folder of a verb in a guest's record.
pub(super) fn folder(name: &str) -> String {
    name.replace(' ', "-")
}

/// The words that send a verb's record into its folder.
pub(super) fn out(name: &str) -> Vec<String> {
    vec!["--out".to_owned(), guest::Command::folder(&folder(name))]
}

/// The document that a verb printed in a guest.
pub(super) fn printed(name: &str, guest: &Path) -> anyhow::Result<Value> {
    let output = guest::Command::output(&folder(name));
    let read = || format!("can't read {}", guest.join(&output).display());
    let text = record::text_in(guest, &output, DOCUMENT_BYTES_MAX).with_context(read)?;
    let mut document: Value = serde_json::from_str(&text).with_context(read)?;
    make_printable(&mut document);
    Ok(document)
}

/// A program of this machine as a file of a guest, which has no shared libraries.
pub(super) fn program_file(
    path: &Path,
    in_guest: String,
) -> anyhow::Result<(String, Vec<u8>, bool)> {
    let program = GuestProgram::read(path, true)?;
    Ok((in_guest, program.bytes().to_vec(), true))
}

/// Runs a verb in every kernel and compares its figures.
pub(super) fn main(guests: &Guests, mut verb: Verb<'_>) -> anyhow::Result<ExitCode> {
    let command = verb.command();
    let mut lab = Lab::open(&guests.options)?;
    lab.lab.check_without_plan()?;
    let out = output::place(guests.judging.out.as_ref(), &verb.folder())?;
    let kernels = lab.kernels(&guests.kernel)?;
    verb.needs.name = verb.folder();
    verb.needs.longest = Duration::from_nanos(verb.length.0);
    verb.needs.commands = vec![command.clone()];
    let seeds = guests.judging.seeds.unwrap_or(1);
    let (runs, outcomes) = lab.verbs_into(&out, &kernels, Some(seeds), &verb.needs)?;
    let mut all = SideBySide {
        verb: verb.name,
        words: command.words.join(" "),
        limits: verb.limits,
        time: lab.timing(),
        kernels: kernels.iter().map(|kernel| kernel.label.clone()).collect(),
        facts: brought::facts(&runs),
        guests: Vec::new(),
        failures: Vec::new(),
        published: Vec::new(),
    };
    let (mut documents, mut ours, mut code) = (Vec::new(), Vec::new(), exit::PASS);
    for (n, (queued, outcome)) in runs.iter().zip(outcomes).enumerate() {
        let mut came = output::look_at(queued, outcome);
        let name = queued.folder_name();
        if came.has_record && came.failures.is_empty() {
            let kernel = n / seeds as usize;
            let whose = Whose { label: &all.kernels[kernel], kernel: kind(&queued.folder) };
            let measured = (verb.read)(&queued.folder, whose)?;
            ours.extend(measured.ours);
            let page = measured.page.map(|text| keep_page(&queued.folder, &verb, &text));
            let page = page.transpose()?.map(|file| format!("{name}/{file}"));
            let figures = measured.figures;
            all.guests.push(verbs::VerbInGuest { kernel, name: name.clone(), page, figures });
            came.document["measured"] = measured.document;
            code = code.max(measured.code);
        }
        all.failures.extend(came.failures.into_iter().map(|why| (name.clone(), why)));
        documents.push(came.document);
    }
    all.published = of_table(&verb.published, &ours);
    let (page, table) = (verbs::page(&all), verbs::table(&all));
    let document = verbs::document(&all, &documents);
    output::publish(&out, "figures.json", &page, &document, (&table, guests.judging.json))?;
    Ok(ExitCode::from(if all.failures.is_empty() { code } else { exit::ERROR }))
}

/// The kind of the kernel that made a guest's record, by what that kernel showed of itself.
fn kind(guest: &Path) -> Option<KernelKind> {
    KernelKind::of(environment::kernel(&Tree::under(guest.join(SHOWN))).preemption)
}

/// Writes the page of a guest's record beside it; its path in the guest's folder.
fn keep_page(guest: &Path, verb: &Verb<'_>, text: &str) -> anyhow::Result<String> {
    let folder = verb.folder();
    record::write_in(&guest.join(&folder), guest::PAGE, text)?;
    Ok(format!("{folder}/{}", guest::PAGE))
}
