//! `rtscope fleet lava`: a job of LAVA for a plan.

use std::{path::PathBuf, process::ExitCode};

use clap::ValueEnum;
use rtscope_fleet::{
    lava::{LavaJob, LavaSystem, PLAN_MARK},
    pull_lab::http::check_address,
};

use crate::{
    cli::{print_bytes, shape},
    exit,
    failure::Refused,
    plans, record,
};

/// Write a job for LAVA that runs a plan on a device
///
/// The job boots the device from your files, fetches one static rtscope from an address that the device can reach,
/// and runs the plan. LAVA gets a test case for each figure and each requirement, and the case `rtscope` for the run:
/// pass, fail, or unknown if it is inconclusive. Submit the job with LAVA's own tools, for example `lavacli jobs
/// submit`.
///
/// The device type qemu boots in LAVA's QEMU, from a kernel with a ramdisk or from a disk. For any other device type,
/// LAVA serves the files by TFTP, and the boot loader of --method fetches them: --kernel and --ramdisk or --nfsrootfs.
/// rtscope must be built for the device's architecture.
///
/// Examples:
///   rtscope fleet lava --device-type qemu --program http://a/b --rootfs http://a/c
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
pub(in crate::cli) struct Args {
    /// A shipped plan's name, or a file; - is standard input [default: quick]
    plan: Option<String>,
    /// Device type, as LAVA names it
    #[arg(long, value_name = "NAME")]
    device_type: String,
    /// Address of a static rtscope for the device
    #[arg(long, value_name = "URL")]
    program: String,
    /// SHA-256 of that rtscope; the device checks the download
    #[arg(long, value_name = "SUM")]
    program_sha256: Option<String>,
    /// Address of the kernel
    #[arg(short, long, value_name = "URL")]
    kernel: Option<String>,
    /// Format of the kernel image, if the boot loader needs to know it
    #[arg(long, value_name = "FORM")]
    kernel_type: Option<KernelForm>,
    /// Address of the device tree
    #[arg(long, value_name = "URL")]
    dtb: Option<String>,
    /// Address of the kernel's modules, as a tar archive
    #[arg(long, value_name = "URL")]
    modules: Option<String>,
    /// Address of a ramdisk, as a cpio archive
    #[arg(long, value_name = "URL")]
    ramdisk: Option<String>,
    /// Address of a root file system for NFS, as a tar archive
    #[arg(long, value_name = "URL", conflicts_with = "ramdisk")]
    nfsrootfs: Option<String>,
    /// Address of a disk image for QEMU
    #[arg(long, value_name = "URL")]
    rootfs: Option<String>,
    /// Boot loader of the device
    #[arg(long, value_name = "NAME", default_value = "u-boot")]
    method: BootMethod,
    /// Architecture of QEMU's guest, as LAVA names it
    #[arg(long, value_name = "NAME", default_value = "amd64")]
    arch: String,
    /// Kernel command line for QEMU
    #[arg(long, value_name = "WORDS", default_value = "console=ttyS0,115200 root=/dev/vda rw")]
    kernel_args: String,
    /// Prompt of the device's shell, as a regular expression; repeatable [default: '# ' and '\$ ']
    #[arg(long, value_name = "REGEX")]
    prompt: Vec<String>,
    /// Log in as this user, who has no password
    #[arg(long, value_name = "USER")]
    login: Option<String>,
    /// Take a device that has this tag; repeatable
    #[arg(long, value_name = "TAG")]
    tag: Vec<String>,
    /// Write the job to this file; - is standard output, which is the default
    #[arg(short, long, value_name = "FILE")]
    out: Option<PathBuf>,
    #[command(flatten)]
    shape: shape::Shape,
}

/// Boot methods of LAVA whose job says which commands the boot loader runs.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum BootMethod {
    #[value(name = "u-boot")]
    UBoot,
    Barebox,
    Grub,
    Ipxe,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum KernelForm {
    Image,
    Zimage,
    Uimage,
}

/// What ends the prompt of most shells.
const PROMPTS: [&str; 2] = ["# ", "\\$ "];

pub(super) fn main(args: &Args) -> anyhow::Result<ExitCode> {
    let plan = args.shape.plan(args.plan.as_deref(), plans::DEFAULT)?;
    check(args)?;
    let text = plan.to_toml();
    if text.lines().any(|line| line == PLAN_MARK) {
        return Err(Refused(format!("the plan has the line {PLAN_MARK}: remove it")).into());
    }
    let prompts = match args.prompt.is_empty() {
        true => PROMPTS.map(str::to_owned).to_vec(),
        false => args.prompt.clone(),
    };
    let job = LavaJob {
        name: format!("rtscope {}", plan.name),
        device_type: args.device_type.clone(),
        tags: args.tag.clone(),
        system: system(args)?,
        prompts,
        login: args.login.clone(),
        program: args.program.clone(),
        program_sha256: args.program_sha256.as_ref().map(|sum| sum.to_ascii_lowercase()),
        plan: text,
        plan_s: plan.expected().0.div_ceil(1_000_000_000),
    };
    let yaml = job.to_yaml();
    match args.out.as_deref().filter(|file| file.as_os_str() != "-") {
        Some(file) => {
            record::write(file, &yaml)?;
            note!("{}", file.display());
        }
        None => print_bytes(yaml.as_bytes())?,
    }
    Ok(ExitCode::from(exit::PASS))
}

fn check(args: &Args) -> Result<(), Refused> {
    let files =
        [&args.kernel, &args.dtb, &args.modules, &args.ramdisk, &args.nfsrootfs, &args.rootfs];
    let addresses = files.into_iter().flatten().chain([&args.program]);
    for address in addresses {
        check_address(address).map_err(Refused)?;
    }
    let is_sum = |sum: &String| sum.len() == 64 && sum.bytes().all(|c| c.is_ascii_hexdigit());
    if !args.program_sha256.as_ref().is_none_or(is_sum) {
        let text = "--program-sha256: a SHA-256 has 64 hexadecimal digits, as sha256sum prints it";
        return Err(Refused(text.to_owned()));
    }
    if args.device_type.is_empty() || args.device_type.len() > 200 {
        return Err(Refused("--device-type: a name has 1 to 200 characters".to_owned()));
    }
    Ok(())
}

/// How the device gets its system.
fn system(args: &Args) -> Result<LavaSystem, Refused> {
    let lacking =
        |what: &str| Refused(format!("the device type {} needs {what}", args.device_type));
    if args.device_type == "qemu" {
        if args.dtb.is_some() || args.modules.is_some() || args.nfsrootfs.is_some() {
            let text =
                "--dtb, --modules and --nfsrootfs are for boards: leave them out for a QEMU guest";
            return Err(Refused(text.to_owned()));
        }
        if args.rootfs.is_none() && args.ramdisk.is_none() {
            return Err(lacking("--rootfs, or --kernel with --ramdisk"));
        }
        if args.rootfs.is_none() && args.kernel.is_none() {
            return Err(lacking("--kernel with a ramdisk"));
        }
        return Ok(LavaSystem::Qemu {
            arch: args.arch.clone(),
            kernel: args.kernel.clone(),
            ramdisk: args.ramdisk.clone(),
            rootfs: args.rootfs.clone(),
            kernel_args: args.kernel_args.replace('"', "\\\""),
        });
    }
    if args.rootfs.is_some() {
        return Err(Refused(
            "--rootfs is for the device type qemu: use --nfsrootfs or --ramdisk".to_owned(),
        ));
    }
    let kernel = args.kernel.clone().ok_or_else(|| lacking("--kernel"))?;
    if args.ramdisk.is_none() && args.nfsrootfs.is_none() {
        return Err(lacking("--ramdisk or --nfsrootfs"));
    }
    let word = |value: &dyn Fn() -> Option<clap::builder::PossibleValue>| {
        value().map(|value| value.get_name().to_owned())
    };
    Ok(LavaSystem::Board {
        method: word(&|| args.method.to_possible_value()).unwrap_or_default(),
        kernel,
        kernel_type: args.kernel_type.and_then(|form| word(&|| form.to_possible_value())),
        dtb: args.dtb.clone(),
        modules: args.modules.clone(),
        ramdisk: args.ramdisk.clone(),
        nfsrootfs: args.nfsrootfs.clone(),
    })
}
