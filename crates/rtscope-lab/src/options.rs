//! What the user asks for all guests of a run of the lab.

use std::path::PathBuf;

use rtscope_model::{guest::Tracer, time::Nanos};
use serde::{Deserialize, Serialize};

use crate::{qemu::GuestSpec, tool::Need};

/// How guests are run. The default is one CPU in virtual time, and nothing beside the plan.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct GuestOptions {
    /// What each guest is given; the seed is that of its run.
    pub spec: GuestSpec,
    /// Guests at a time; none for one on each CPU.
    pub jobs: Option<u16>,
    /// The machine's name; none for the default of a kernel's architecture.
    pub machine: Option<String>,
    /// Modules that are loaded beside those of the plan's loads.
    pub modules: Vec<String>,
    /// Where the modules are; none for those of the kernel's package or build.
    pub modules_from: Option<PathBuf>,
    /// Whether Debian's cyclictest measures each phase, too.
    pub with_cyclictest: bool,
    /// A tracer of the kernel that runs after the plan.
    pub tracer: Option<Tracer>,
    /// Lines of a simulated GPIO chip.
    pub gpio_lines: Option<u32>,
    /// How long a guest may be silent; none for as long as its plan makes likely.
    pub silence: Option<Nanos>,
    /// Whether guests are run whose record is known.
    pub fresh: bool,
    /// What this machine needs beside the emulator, such as the compiler of a guest's programs.
    #[serde(skip)]
    pub tools: Vec<Need>,
}
