//! `rtscope kernel`: make a kernel; `install` puts it into a system.

mod diff;
mod install;
mod screen;
mod show;

use std::{
    fmt::Write as _,
    path::{Path, PathBuf},
    process::ExitCode,
    time::Duration,
};

use clap::Subcommand;
use rtscope_lab::{
    build::{self, BuildChoice, Prepared},
    cache::{Cache, KeptKernel},
    costs::minutes,
    error::LabError,
    package, prebuilt,
    source::{self, Fetched},
    spec::{self, Spec},
    tool,
};

use self::screen::Screen;
use super::{
    ending,
    lab::{cache_at, known_cache},
    print, wall_clock,
};
use crate::{exit, failure::lab_failure, output::shown, record};

/// Which kernel, and where things are kept.
#[derive(Debug, clap::Args)]
pub(super) struct KernelArgs {
    /// A shipped kernel's name, or the file of a spec (with :VARIANT if it has several)
    #[arg(value_name = "KERNEL")]
    name: String,
    /// Git repository, or folder of unpacked sources, of the vendor's kernel
    #[arg(long, value_name = "PLACE")]
    from: Option<String>,
    #[command(flatten)]
    kept: CacheArgs,
}

#[derive(Clone, Debug, clap::Args)]
pub(super) struct CacheArgs {
    /// Folder of sources and kernels [default: $XDG_CACHE_HOME/rtscope; as root, /var/cache/rtscope]
    #[arg(long, value_name = "DIR")]
    cache: Option<PathBuf>,
    /// Print one JSON document
    #[arg(long)]
    json: bool,
    /// Print all output of the programs that fetch and build
    #[arg(short, long)]
    verbose: bool,
}

impl CacheArgs {
    fn cache(&self) -> Cache {
        cache_at(self.cache.as_ref())
    }
}

#[derive(Debug, Subcommand)]
pub(super) enum Verb {
    /// List the kernels that rtscope can build, and those in the cache
    ///
    /// Examples:
    ///   rtscope kernel list
    #[command(verbatim_doc_comment)]
    List {
        #[command(flatten)]
        kept: CacheArgs,
    },
    /// Show the inputs of a kernel, and how far it was tested
    ///
    /// For a kernel that Debian builds, such as debian-stock, it shows the package and its version.
    ///
    /// Examples:
    ///   rtscope kernel show tiny-6.12-rt
    ///   rtscope kernel show debian-rt --json
    #[command(verbatim_doc_comment)]
    Show(KernelArgs),
    /// Fetch source and patches, and check that their versions match
    ///
    /// Examples:
    ///   rtscope kernel fetch tiny-6.12-rt
    #[command(verbatim_doc_comment)]
    Fetch(KernelArgs),
    /// Unpack the source and apply the patches
    ///
    /// Examples:
    ///   rtscope kernel patch tiny-6.12-rt
    #[command(verbatim_doc_comment)]
    Patch(KernelArgs),
    /// Create the configuration
    ///
    /// It lists the requested options that the kernel's configuration dropped, and says why.
    ///
    /// Examples:
    ///   rtscope kernel configure tiny-6.12-rt
    ///   rtscope kernel configure tiny-6.12-rt --menuconfig
    #[command(verbatim_doc_comment)]
    Configure {
        #[command(flatten)]
        asked: KernelArgs,
        /// Open the kernel's own menu; rtscope builds what you choose there
        #[arg(long)]
        menuconfig: bool,
    },
    /// Build a kernel and keep it in the cache
    ///
    /// Examples:
    ///   rtscope kernel build tiny-6.12-rt
    ///   rtscope kernel build my-kernel.toml --jobs 8
    #[command(verbatim_doc_comment)]
    Build {
        #[command(flatten)]
        asked: KernelArgs,
        /// Number of parallel jobs [default: one for each CPU]
        #[arg(short, long, value_name = "N")]
        jobs: Option<u32>,
        /// Build even if requested options were lost
        #[arg(long)]
        lost_options_too: bool,
    },
    /// Pack a built kernel for installation on another machine
    ///
    /// Examples:
    ///   rtscope kernel package tiny-6.12-rt
    ///   rtscope kernel package tiny-6.12-rt --deb --out packages
    #[command(verbatim_doc_comment)]
    Package {
        #[command(flatten)]
        asked: KernelArgs,
        /// Make Debian packages by the kernel's own rules instead of a tarball
        #[arg(long)]
        deb: bool,
        /// Folder to write to [default: rtscope-runs/packages-TIME]
        #[arg(short, long, value_name = "DIR")]
        out: Option<PathBuf>,
    },
    /// Install a built kernel beside the old one
    ///
    /// The old kernel still boots if the installation is interrupted, and `kernel rollback` goes back to it. Without
    /// --once, the new kernel is the default at every boot, even if it panics: try it with --once first.
    ///
    /// Examples:
    ///   rtscope kernel install pi-4-rt.tar.gz --root /mnt --layout raspberry-pi
    ///   rtscope kernel install my-kernel --root / --layout grub --once
    #[command(verbatim_doc_comment)]
    Install(install::Args),
    /// Check that the running kernel is the one that was built
    ///
    /// It also checks whether the kernel is really PREEMPT_RT. Exit code: 0 if it is the same kernel, 2 if it isn't, 3
    /// if rtscope can't determine this.
    ///
    /// Examples:
    ///   rtscope kernel verify
    ///   rtscope kernel verify tiny-6.12-rt --json
    #[command(verbatim_doc_comment)]
    Verify {
        /// A built kernel's name, key, tarball or folder [default: the one that was installed last]
        kernel: Option<String>,
        #[command(flatten)]
        kept: CacheArgs,
    },
    /// Remove the kernel that was installed last
    ///
    /// It restores every file as it was before the installation. Exit code: 0, or 2 if the boot loader would now start a
    /// kernel that is gone.
    ///
    /// Examples:
    ///   rtscope kernel rollback
    ///   rtscope kernel rollback my-kernel --root /mnt
    #[command(verbatim_doc_comment)]
    Rollback {
        /// Refuse to remove any other kernel than this one
        kernel: Option<String>,
        /// Root folder of the system
        #[arg(long, value_name = "DIR", default_value = "/")]
        root: PathBuf,
        /// Print one JSON document
        #[arg(long)]
        json: bool,
    },
    /// Compare the configurations of two kernels
    ///
    /// It lists the differing options that affect latency, and says how.
    ///
    /// Examples:
    ///   rtscope kernel diff running tiny-6.12-rt
    ///   rtscope kernel diff .config rtscope-runs/quick-20260101T000000 --all
    #[command(verbatim_doc_comment)]
    Diff {
        /// First configuration: a kernel's name, a file, a record's folder, or `running`
        before: String,
        /// Second configuration
        after: String,
        /// List options that don't affect latency as well
        #[arg(long)]
        all: bool,
        #[command(flatten)]
        kept: CacheArgs,
    },
}

pub(super) fn main(verb: &Verb) -> anyhow::Result<ExitCode> {
    let ending = ending::of_all(match verb {
        Verb::Install(_) | Verb::Rollback { .. } => {
            "the old kernel still boots; repeat the command, or run `kernel rollback` to clean up"
        }
        _ => "finished steps are kept; the same command continues",
    })?;
    let outcome = match verb {
        Verb::List { kept } => list(kept),
        Verb::Show(asked) => show::show(asked),
        Verb::Fetch(asked) => fetch(asked),
        Verb::Patch(asked) => patch(asked),
        Verb::Configure { asked, menuconfig } => configure(asked, *menuconfig),
        Verb::Build { asked, jobs, lost_options_too } => build(asked, *jobs, *lost_options_too),
        Verb::Package { asked, deb, out } => pack(asked, *deb, out.as_deref()),
        Verb::Install(args) => install::install(args),
        Verb::Verify { kernel, kept } => install::verify(kernel.as_deref(), kept),
        Verb::Rollback { kernel, root, json } => install::rollback(kernel.as_deref(), root, *json),
        Verb::Diff { before, after, all, kept } => diff::diff([before, after], *all, kept),
    };
    if let (Err(_), Some(code)) = (&outcome, ending.code()) {
        return Ok(ExitCode::from(code));
    }
    outcome.map_err(lab_failure)
}

fn print_json(value: &serde_json::Value) -> anyhow::Result<ExitCode> {
    print(&(serde_json::to_string_pretty(value)? + "\n"))?;
    Ok(ExitCode::from(exit::PASS))
}

fn list(kept: &CacheArgs) -> anyhow::Result<ExitCode> {
    let built = known_cache(kept.cache.as_ref())?.kernels();
    let specs = spec::all();
    if kept.json {
        return print_json(&serde_json::json!({
            "specs": specs,
            "built": built.iter().map(|kernel| &kernel.manifest).collect::<Vec<_>>(),
        }));
    }
    let width = specs.iter().map(|spec| spec.name.len()).max().unwrap_or(0);
    let mut text = String::from("Kernels that rtscope can build:\n");
    for spec in &specs {
        let _ = writeln!(text, "  {:width$}  {}", spec.name, spec.title);
    }
    let _ = writeln!(text, "\nBuilt by Debian, for the lab: {}", prebuilt::NAMES.join(", "));
    let _ = writeln!(text, "\nKept in {}:", shown(kept.cache().root()));
    for KeptKernel { manifest, .. } in &built {
        let _ = writeln!(
            text,
            "  {:width$}  {}  {}  {}",
            manifest.name, manifest.key, manifest.release, manifest.version
        );
    }
    if built.is_empty() {
        text.push_str("  none yet; `rtscope kernel build NAME` builds one\n");
    }
    print(&text)?;
    Ok(ExitCode::from(exit::PASS))
}

/// The steps up to fetching. What the steps after it need is checked first: a download may take long.
fn fetched(
    asked: &KernelArgs,
    ready: impl FnOnce(&Spec) -> Result<(), LabError>,
    screen: &mut Screen,
) -> anyhow::Result<(Spec, Fetched)> {
    let spec = spec::find(&asked.name)?;
    ready(&spec)?;
    let cache = asked.kept.cache();
    let fetched = source::fetch(&spec, &cache, asked.from.as_deref(), &mut |p| screen.show(&p))?;
    Ok((spec, fetched))
}

fn fetch(asked: &KernelArgs) -> anyhow::Result<ExitCode> {
    let (_, fetched) = fetched(asked, |_| Ok(()), &mut Screen::new(asked.kept.verbose))?;
    if asked.kept.json {
        return print_json(&serde_json::to_value(&fetched)?);
    }
    let patches = match fetched.patches.len() {
        0 => "no patch".to_owned(),
        1 => format!("patch {}", fetched.patches[0].name),
        n => format!("{n} patches"),
    };
    print(&format!("fetched: {}; {patches}\n", fetched.identity))?;
    Ok(ExitCode::from(exit::PASS))
}

fn patch(asked: &KernelArgs) -> anyhow::Result<ExitCode> {
    let mut screen = Screen::new(asked.kept.verbose);
    let ready = |spec: &Spec| tool::require(&source::needs(spec));
    let (_, fetched) = fetched(asked, ready, &mut screen)?;
    let tree = source::tree(&fetched, &asked.kept.cache(), &mut |p| screen.show(&p))?;
    drop(screen);
    if asked.kept.json {
        return print_json(&serde_json::to_value(&tree)?);
    }
    let mut text = format!("source {} in {}\n", tree.version, shown(&tree.path));
    match &tree.report {
        Some(report) => text.push_str(&report.text()),
        None if fetched.patches.is_empty() => text.push_str("no patch to apply\n"),
        None => text.push_str("the patches are already applied\n"),
    }
    print(&text)?;
    Ok(ExitCode::from(exit::PASS))
}

/// The steps up to the configuration.
fn prepared(
    asked: &KernelArgs,
    ready: impl FnOnce(&Spec) -> Result<(), LabError>,
    again: bool,
    menuconfig: bool,
    screen: &mut Screen,
) -> anyhow::Result<(Spec, Prepared)> {
    let (spec, fetched) = fetched(asked, ready, screen)?;
    let cache = asked.kept.cache();
    let prepared =
        build::prepare(&spec, &fetched, &cache, again, menuconfig, &mut |p| screen.show(&p))?;
    Ok((spec, prepared))
}

fn configure(asked: &KernelArgs, menuconfig: bool) -> anyhow::Result<ExitCode> {
    let (_, prepared) = prepared(
        asked,
        build::require_tools,
        true,
        menuconfig,
        &mut Screen::new(asked.kept.verbose),
    )?;
    let configured = &prepared.configured;
    let code = if configured.lost.is_empty() { exit::PASS } else { exit::ERROR };
    if asked.kept.json {
        print_json(&serde_json::to_value(configured)?)?;
        return Ok(ExitCode::from(code));
    }
    let mut text = format!("{} options are on; {}\n", configured.options, shown(&configured.path));
    for lost in &configured.lost {
        let _ = writeln!(text, "{lost}");
    }
    print(&text)?;
    Ok(ExitCode::from(code))
}

fn build(asked: &KernelArgs, jobs: Option<u32>, lost_too: bool) -> anyhow::Result<ExitCode> {
    let mut screen = Screen::new(asked.kept.verbose);
    let cache = asked.kept.cache();
    let (spec, fetched) = fetched(asked, build::require_tools, &mut screen)?;
    let mut report = |progress| screen.show(&progress);
    let kernel = match build::built_already(&spec, &fetched, &cache)? {
        Some(kernel) => kernel,
        None => {
            let choice = BuildChoice { jobs: jobs.unwrap_or_else(cpus), lost_too };
            let prepared = build::prepare(&spec, &fetched, &cache, false, false, &mut report)?;
            build::build(&spec, &prepared, &cache, choice, &mut report)?
        }
    };
    drop(screen);
    if asked.kept.json {
        return print_json(&serde_json::to_value(&kernel.manifest)?);
    }
    print(&built_in_words(&kernel))?;
    Ok(ExitCode::from(exit::PASS))
}

fn built_in_words(kernel: &KeptKernel) -> String {
    let manifest = &kernel.manifest;
    let mut text = format!(
        "{} {} {}\n{}\n",
        manifest.name,
        manifest.release,
        manifest.version,
        shown(&kernel.dir)
    );
    if let Some(figures) = manifest.build {
        let _ = writeln!(
            text,
            "{} objects in {} with {} jobs; {} warnings, kept in warnings.txt",
            figures.objects,
            minutes(Duration::from_secs_f64(figures.seconds)),
            figures.jobs,
            figures.warnings
        );
    }
    text
}

fn cpus() -> u32 {
    let cpus = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    u32::try_from(cpus).unwrap_or(1)
}

fn pack(asked: &KernelArgs, deb: bool, out: Option<&Path>) -> anyhow::Result<ExitCode> {
    let fresh = || record::fresh_folder("packages", &wall_clock());
    let out = &out.map_or_else(fresh, Path::to_owned);
    let mut screen = Screen::new(asked.kept.verbose);
    let cache = asked.kept.cache();
    let paths = if deb {
        let (spec, prepared) =
            prepared(asked, build::require_tools_and_packers, false, false, &mut screen)?;
        let choice = BuildChoice { jobs: cpus(), lost_too: false };
        let mut report = |progress| screen.show(&progress);
        let kernel = build::build(&spec, &prepared, &cache, choice, &mut report)?;
        package::debian(&prepared, &kernel, &cache, out, cpus(), &mut report)?
    } else {
        let kernel = package::find(&asked.name, &cache)?;
        vec![package::tarball(&kernel, out, &mut |p| screen.show(&p))?]
    };
    drop(screen);
    if asked.kept.json {
        return print_json(&serde_json::json!({ "files": paths }));
    }
    for path in &paths {
        print(&format!("{}\n", shown(path)))?;
    }
    Ok(ExitCode::from(exit::PASS))
}
