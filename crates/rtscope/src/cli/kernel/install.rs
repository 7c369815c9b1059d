//! `rtscope kernel install`, `verify` and `rollback`: a kernel that was built, in a system.

use std::{
    fmt::Write as _,
    path::{Path, PathBuf},
    process::ExitCode,
};

use rtscope_lab::{
    install::{self, BootLayout, Initrd, Steps, Wish},
    package, verify,
};

use super::{CacheArgs, Screen, print, print_json};
use crate::{exit, output::shown};

#[derive(Debug, clap::Args)]
pub(in crate::cli) struct Args {
    /// A built kernel's name, key, tarball or folder
    kernel: String,
    /// Root folder of the system, with its boot partition mounted in it
    #[arg(long, value_name = "DIR")]
    root: PathBuf,
    /// Boot loader of that system: raspberry-pi, grub, extlinux or u-boot. With armbian or
    /// systemd-boot, install the package that `kernel package` makes instead
    #[arg(long, value_name = "LAYOUT")]
    layout: BootLayout,
    /// Words to add to the kernel's command line
    #[arg(long, value_name = "WORDS", default_value = "", allow_hyphen_values = true)]
    cmdline: String,
    /// Boot the new kernel only once, and the old kernel again afterwards
    #[arg(long)]
    once: bool,
    /// Install for a Raspberry Pi with firmware from before 2020, without a folder of its own
    #[arg(long)]
    in_place: bool,
    /// Use this initial RAM disk for the new kernel
    #[arg(long, value_name = "FILE", conflicts_with = "no_initrd")]
    initrd: Option<PathBuf>,
    /// Install without an initial RAM disk
    #[arg(long)]
    no_initrd: bool,
    /// Install even if the kernel will probably not boot, for example on another architecture
    #[arg(long)]
    force: bool,
    #[command(flatten)]
    kept: CacheArgs,
}

pub(super) fn install(asked: &Args) -> anyhow::Result<ExitCode> {
    let kernel = package::find(&asked.kernel, &asked.kept.cache())?;
    let initrd = match (&asked.initrd, asked.no_initrd) {
        (Some(path), _) => Initrd::File(path),
        (None, true) => Initrd::Without,
        (None, false) => Initrd::Made,
    };
    let wish = Wish {
        kernel: &kernel,
        root: &asked.root,
        layout: asked.layout,
        words: asked.cmdline.trim(),
        once: asked.once,
        in_place: asked.in_place,
        initrd,
        force: asked.force,
        check_space: true,
    };
    let mut screen = Screen::new(asked.kept.verbose);
    let installed = install::install(&wish, &mut Steps::default(), &mut |p| screen.show(&p))?;
    drop(screen);
    if asked.kept.json {
        return print_json(&serde_json::to_value(&installed)?);
    }
    let mut text = String::new();
    for path in &installed.changed {
        let _ = writeln!(text, "  {}", shown(asked.root.join(path)));
    }
    let _ = writeln!(text, "the boot loader will boot {}", shown(&installed.chosen.image));
    let _ = writeln!(
        text,
        "next: {}; then `rtscope kernel verify`. To go back: `rtscope kernel rollback{}`",
        wish.boot_step(),
        install::of_root(wish.root)
    );
    print(&text)?;
    Ok(ExitCode::from(exit::PASS))
}

pub(super) fn verify(name: Option<&str>, kept: &CacheArgs) -> anyhow::Result<ExitCode> {
    let kernel = name.map(|name| package::find(name, &kept.cache())).transpose()?;
    let found = verify::verify(Path::new("/"), kernel.as_ref())?;
    let code = match (found.failed(), found.passed()) {
        (true, _) => exit::FAIL,
        (false, true) => exit::PASS,
        (false, false) => exit::INCONCLUSIVE,
    };
    if kept.json {
        print_json(&serde_json::to_value(&found)?)?;
        return Ok(ExitCode::from(code));
    }
    let mut text = format!("running: {} {}\n", found.running.release, found.running.version);
    match &found.expected {
        Some(expected) => {
            let _ = writeln!(text, "expected: {} ({})", expected.name, expected.key);
        }
        None => text.push_str("rtscope has not installed a kernel here, and none was named\n"),
    }
    for check in &found.checks {
        let mark = match check.passed {
            Some(true) => "yes",
            Some(false) => "NO",
            None => "?",
        };
        let _ = writeln!(text, "  {mark:4} {:10} {}", check.name, check.text);
    }
    print(&text)?;
    Ok(ExitCode::from(code))
}

pub(super) fn rollback(name: Option<&str>, root: &Path, json: bool) -> anyhow::Result<ExitCode> {
    let mut screen = Screen::new(false);
    let back = install::rollback(root, name, &mut Steps::default(), &mut |p| screen.show(&p))?;
    drop(screen);
    let code = if back.missing.is_some() { exit::FAIL } else { exit::PASS };
    if json {
        print_json(&serde_json::to_value(&back)?)?;
        return Ok(ExitCode::from(code));
    }
    let name = &back.taken_back.kernel.name;
    print(&match &back.missing {
        None => {
            let image =
                back.chosen.as_ref().map_or("its kernel".to_owned(), |one| shown(&one.image));
            format!("{name} was rolled back; the boot loader will boot {image}\n")
        }
        Some(missing) => format!(
            "{name} was rolled back, but the boot loader's configuration was regenerated after the installation, and \
             now boots {}, which is gone. {} before you reboot: until then this system may not boot\n",
            shown(missing),
            match back.taken_back.layout {
                BootLayout::Grub => {
                    "Run `update-grub` in that system (elsewhere `grub2-mkconfig -o /boot/grub2/grub.cfg`)"
                }
                BootLayout::Extlinux => {
                    "Run `u-boot-update` in that system, or change extlinux.conf,"
                }
                _ => "Change that",
            }
        ),
    })?;
    Ok(ExitCode::from(code))
}
