//! `rtscope lab wave`: square waves in kernels.

use std::{
    path::{Path, PathBuf},
    process::ExitCode,
};

use anyhow::Context;
use clap::Subcommand;
use rtscope_analyse::{
    report::{lab::figures, published::Whose, wave::sweep as report},
    statistics::wave::sweep::Sweep,
};
use rtscope_lab::{lab::GuestVerbs, tool::Need};
use rtscope_measure::wave::{
    bench::Scratch,
    line::Address,
    subject::{self, OWN},
};
use rtscope_model::{guest, time::Nanos};

use super::{
    typed::Typed,
    verb::{self, Guests, Measured, Verb},
};
use crate::{
    cli::{
        Refused,
        published::Choice,
        wave::{Tries, WaveOptions, with_all_in_full},
    },
    exit,
};

#[derive(Debug, Subcommand)]
pub(in crate::cli) enum Wave {
    Generate(Generate),
    Sweep(Sweeps),
}

/// Find how fast programs can make a square wave in kernels
///
/// Each kernel boots in an emulator and runs `rtscope wave sweep`. The page and the table
/// compare the limits. In virtual time (the default) two runs with the same
/// inputs find the same limit.
///
/// Subjects: c, c-rt, cpp, ada, rust, or all of these, and course-c and
/// course-c-rt. rtscope compiles them on this machine, without shared libraries. A path names a static program of your own, which must count
/// its edges. With one CPU the scope reads this count. With --wall --smp 2 it
/// looks at the line.
///
/// Examples:
///   rtscope lab wave sweep --subject c -k debian-stock -k debian-rt --quick
///   rtscope lab wave sweep --subject c --subject c-rt -k debian-rt --load cpu
///   rtscope lab wave sweep --subject course-c -k debian-rt --published course-lab
///   rtscope lab wave sweep --subject rust -k tiny-6.12-rt --policy fifo:49
///   rtscope lab wave sweep --subject c-rt -k debian-rt --wall --smp 2 --quick
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
pub(in crate::cli) struct Sweeps {
    /// Subject to try: a name, a static program's path, or all; repeatable
    #[arg(long, value_name = "SUBJECT", required = true)]
    subject: Vec<String>,
    #[command(flatten)]
    guests: Guests,
    #[command(flatten)]
    tries: Typed<Tries>,
    #[command(flatten)]
    published: Choice,
}

/// Make a square wave in kernels and compare the errors of its edges
///
/// Each kernel boots in an emulator and runs `rtscope wave generate`. The page and the table
/// compare the frequency, the late edges and the missing edges. The line is in
/// memory, or a line of a simulated GPIO chip (gpio:sim/0), which rtscope's own
/// kernels have.
///
/// Examples:
///   rtscope lab wave generate --freq 1kHz -k debian-stock -k debian-rt
///   rtscope lab wave generate --freq 5kHz --policy fifo:49 -k debian-rt
///   rtscope lab wave generate gpio:sim/0 --freq 1kHz -k tiny-6.12-rt
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
pub(in crate::cli) struct Generate {
    /// The line: memory:NAME, or gpio:sim/N for line N of a simulated GPIO chip
    #[arg(default_value = "memory:lab")]
    line: String,
    #[command(flatten)]
    guests: Guests,
    #[command(flatten)]
    wave: Typed<WaveOptions>,
}

/// What virtual time can't say.
const LIMITS: &[&str] = &[
    "Every instruction takes the same time: no caches, no bus and no GPIO controller. A limit is that of a CPU of this \
     speed with a line that takes a single store: compare kernels and programs, and expect other frequencies on a \
     board.",
    "--wall --smp 2 tries the same programs by this computer's clock, with a scope that looks at the line.",
];

/// Lines of the simulated chip.
const GPIO_LINES: u32 = 8;

/// About how long the sweep of a subject takes in the guest's time.
const SWEEP: Nanos = Nanos::from_secs(20);

pub(super) fn main(wave: &Wave) -> anyhow::Result<ExitCode> {
    match wave {
        Wave::Generate(args) => generate(args),
        Wave::Sweep(args) => sweep(args),
    }
}

fn sweep(args: &Sweeps) -> anyhow::Result<ExitCode> {
    const NAME: &str = "wave sweep";
    let published = args.published.entries("none")?;
    args.tries.options.check()?;
    let subjects = with_all_in_full(&args.subject, subject::all_static());
    args.guests.require(compilers(&subjects)?)?;
    let files = subject_files(&subjects)?;
    let subject_words = subjects.iter().map(|subject| format!("--subject={subject}"));
    let words: Vec<String> = subject_words
        .chain([format!("--compiled=/{}", guest::SUBJECTS)])
        .chain(args.tries.words.iter().cloned())
        .collect();
    let read = |guest: &Path, whose: Whose<'_>| {
        let document = verb::printed(NAME, guest)?;
        let sweep: Sweep = serde_json::from_value(document.clone())
            .with_context(|| format!("{}: no sweep", guest.display()))?;
        let has_limits = sweep.curves.iter().all(|curve| curve.found.no_limit.is_none());
        Ok(Measured {
            figures: figures::of_sweep(&sweep),
            ours: sweep.ours(whose),
            document,
            page: Some(report::page(&sweep, &[])),
            code: if has_limits { exit::PASS } else { exit::INCONCLUSIVE },
        })
    };
    let verb = Verb {
        name: NAME,
        words: &words,
        // The page stays in the guest: it is drawn here.
        out: ["--json", "--out", "/tmp/page.html"].map(str::to_owned).to_vec(),
        length: Nanos(SWEEP.0.saturating_mul(subjects.len() as u64)),
        needs: GuestVerbs { files, ..GuestVerbs::default() },
        limits: LIMITS,
        published,
        read: &read,
    };
    verb::main(&args.guests, verb)
}

/// What compiles the subjects; a subject that isn't known is refused.
fn compilers(subjects: &[String]) -> anyhow::Result<Vec<Need>> {
    let mut needs = Vec::new();
    for word in subjects.iter().filter(|word| *word != OWN) {
        match subject::compiler(word) {
            Some((tool, package)) => needs.push(Need::of(tool, package)),
            None if word.contains('/') => {}
            None => {
                let (names, _) = subject::all_static();
                let names = names.join(", ");
                let text = format!(
                    "a guest has no subject {word}: use {names}, or a path such as ./{word}"
                );
                return Err(Refused(text).into());
            }
        }
    }
    Ok(needs)
}

/// The programs of the subjects as files of a guest.
fn subject_files(subjects: &[String]) -> anyhow::Result<Vec<(String, Vec<u8>, bool)>> {
    let scratch = Scratch::new()?;
    let mut files: Vec<(String, Vec<u8>, bool)> = Vec::new();
    for word in subjects.iter().filter(|word| *word != OWN) {
        let compiled = subject::compile_static(word, scratch.path())?;
        let path = compiled.unwrap_or_else(|| PathBuf::from(word));
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let in_guest = format!("{}/{name}", guest::SUBJECTS);
        if files.iter().any(|(known, ..)| *known == in_guest) {
            return Err(Refused(format!("subject {name}: named twice")).into());
        }
        files.push(verb::program_file(&path, in_guest)?);
    }
    Ok(files)
}

fn generate(args: &Generate) -> anyhow::Result<ExitCode> {
    const NAME: &str = "wave generate";
    let options = &args.wave.options;
    options.check()?;
    let gpio_lines = match args.line.parse()? {
        Address::Memory(_) => None,
        Address::Gpio(chip, _) if chip == guest::GPIO_LABEL => Some(GPIO_LINES),
        Address::Gpio(..) | Address::Led(_) => {
            let label = guest::GPIO_LABEL;
            let text = format!("{}: a guest has only memory:NAME and gpio:{label}/N", args.line);
            return Err(Refused(text).into());
        }
    };
    let words: Vec<String> =
        [args.line.clone()].into_iter().chain(args.wave.words.iter().cloned()).collect();
    let read = |guest: &Path, _: Whose<'_>| {
        let document = verb::printed(NAME, guest)?;
        let is_late = document["violations"].as_u64().is_some_and(|count| count > 0);
        let code = if is_late { exit::FAIL } else { exit::PASS };
        let figures = figures::of_wave(&document);
        Ok(Measured { figures, ours: Vec::new(), document, page: None, code })
    };
    let verb = Verb {
        name: NAME,
        words: &words,
        out: vec!["--json".to_owned()],
        length: options.duration(),
        needs: GuestVerbs { gpio_lines, ..GuestVerbs::default() },
        limits: LIMITS,
        published: Vec::new(),
        read: &read,
    };
    verb::main(&args.guests, verb)
}
