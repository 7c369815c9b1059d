//! What an emulated guest does beside its plan, or in its place: the lab asks for it, and the guest's agent
//! does it.
//!
//! The text form is TOML, so that a guest's image can be read by eye. A guest without such a file does
//! nothing but its plan.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};

use crate::{printable::printable, time::Nanos};

/// Where the text lies in a guest.
pub const PATH: &str = "guest.toml";

/// File of a record that says what could not be done beside the plan, a line each.
pub const FAILURES: &str = "beside.txt";

/// File of an experiment's record in the folder that is named after it.
pub const EXPERIMENT: &str = "experiment.json";

/// File of a record that says what a simulated GPIO chip showed.
pub const GPIO: &str = "gpio.txt";

/// Label of that chip: its lines are `gpio:sim/0` and so on.
pub const GPIO_LABEL: &str = "sim";

/// Folder of a record in which the kernel that ran shows itself.
pub const SHOWN: &str = "guest";

/// Where a guest makes its record: in memory.
pub const RECORD: &str = "/run/record";

/// Folder in a guest with the subjects of square waves, which are compiled outside.
pub const SUBJECTS: &str = "subjects";

/// File of a page, which is drawn by whoever reads the record and isn't sent.
pub const PAGE: &str = "report.html";

/// File of a record that says what the guest found and waited for before it measured: a [`GuestStart`].
pub const START: &str = "start.json";

/// File of a guest that measures nothing, with the symbols of its kernel: the text of `/proc/kallsyms`.
pub const SYMBOLS: &str = "kallsyms";

/// File of a record with the kernel's events around the worst wake-ups of each phase: an
/// [`ExplainRecord`](crate::explain::ExplainRecord).
pub const EVENTS: &str = "kernel-events.json";

/// Word of the kernel command line with which a guest records them.
pub const EVENTS_WORD: &str = "rtscope.events=1";

/// File in a guest with the instant of `CLOCK_MONOTONIC` to which it moves one expiry, in nanoseconds of always 18
/// digits. It is no word of the kernel command line, because the kernel's random numbers depend on those.
pub const AIM: &str = "aim";

/// What a guest found and waited for before it measured.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct GuestStart {
    /// Words of the kernel command line that the kernel doesn't know, or whose value it refused: they
    /// change nothing.
    pub unknown_words: Vec<String>,
    /// How long the guest waited for the kernel's own work, in nanoseconds of its time.
    pub waited_ns: u64,
    /// Whether that work came to an end.
    pub at_rest: bool,
    /// Who kept the CPUs busy meanwhile, the busiest first.
    pub workers: Vec<Worker>,
}

/// A process or a kernel thread, and its CPU time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Worker {
    pub name: String,
    pub cpu_ns: u64,
}

impl GuestStart {
    /// What is worth telling, in words; none when the guest was at rest at once.
    #[must_use]
    pub fn sentence(&self) -> Option<String> {
        let busiest = self.workers.first()?;
        let waited = Nanos(self.waited_ns);
        let name = printable(&busiest.name);
        let cpu = Nanos(busiest.cpu_ns);
        Some(match self.at_rest {
            true => {
                format!("waited {waited} for the kernel's own work: {name} used {cpu} of CPU time")
            }
            false => format!(
                "was not at rest after {waited}: {name} used {cpu} of CPU time; the figures at rest include its work"
            ),
        })
    }
}

/// A verb of rtscope that a guest runs as it would run on a board.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Command {
    /// Its name: that of its [`Command::folder`] in the record, and of its output.
    pub name: String,
    /// The words of the command line behind `rtscope`.
    pub words: Vec<String>,
}

impl Command {
    /// Where its record goes in the guest.
    #[must_use]
    pub fn folder(name: &str) -> String {
        format!("{RECORD}/{name}")
    }

    /// File of the record with what it prints.
    #[must_use]
    pub fn output(name: &str) -> String {
        format!("{name}.txt")
    }
}

/// What the guest does beside its plan.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct GuestExtras {
    /// Modules of the kernel, as paths in the guest, in the order in which they are loaded before the
    /// plan runs.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub modules: Vec<String>,
    /// Whether cyclictest measures each phase once more, after the plan.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub cyclictest: bool,
    /// A tracer of the kernel that runs under the loads of each phase, after the plan.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tracer: Option<Tracer>,
    /// Lines of a simulated GPIO chip that is made and tried before the plan runs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gpio_lines: Option<u32>,
    /// Verbs, in the order in which they are run: such a guest has no plan.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub commands: Vec<Command>,
}

/// How time passes in a guest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "time")]
pub enum Timing {
    /// By instructions: each takes 2^shift ns, and idle time passes at once.
    Virtual {
        /// 0 stands for 1000 million instructions a second, 1 for 500, 2 for 250, and so on.
        shift: u8,
    },
    /// By the host's clock, emulated.
    Wall,
    /// By the host's clock, on the host's own CPU.
    Kvm,
}

impl Timing {
    /// Whether time passes by instructions.
    #[must_use]
    pub fn is_virtual(self) -> bool {
        matches!(self, Timing::Virtual { .. })
    }
}

/// Time that passes by instructions: the host can't delay the guest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VirtualTime {
    /// An instruction takes `2^shift` ns.
    pub shift: u8,
}

impl VirtualTime {
    /// What a record's `lab.json` says; none when the guest's time was its host's.
    #[must_use]
    pub fn find(lab: &str) -> Option<VirtualTime> {
        #[derive(Deserialize)]
        struct Lab {
            time: String,
            shift: Option<u8>,
        }
        let lab: Lab = serde_json::from_str(lab).ok()?;
        (lab.time == "virtual").then_some(VirtualTime { shift: lab.shift? })
    }
}

/// A tracer of the kernel that measures by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Tracer {
    /// What takes a CPU away from a thread that wants to run: interrupts, softirqs, other threads.
    Osnoise,
    /// How late a periodic timer's interrupt and its thread are.
    Timerlat,
}

impl Tracer {
    /// The kernel's name, and the file's.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Tracer::Osnoise => "osnoise",
            Tracer::Timerlat => "timerlat",
        }
    }
}

impl fmt::Display for Tracer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Tracer {
    type Err = String;

    fn from_str(text: &str) -> Result<Tracer, String> {
        [Tracer::Osnoise, Tracer::Timerlat]
            .into_iter()
            .find(|tracer| tracer.name() == text)
            .ok_or_else(|| format!("there is no tracer {text:?}: write osnoise or timerlat"))
    }
}

impl GuestExtras {
    /// Whether there is nothing to do.
    #[must_use]
    pub fn is_nothing(&self) -> bool {
        *self == GuestExtras::default()
    }

    /// The text that [`GuestExtras::parse`] reads back.
    ///
    /// # Panics
    ///
    /// Never: every field can be written as TOML.
    #[must_use]
    pub fn to_toml(&self) -> String {
        toml::to_string(self).expect("plain fields")
    }

    pub fn parse(text: &str) -> Result<GuestExtras, String> {
        toml::from_str(text).map_err(|e| e.to_string())
    }
}

/// Whose cost a line is of: our sampling threads'.
pub const OURS: &str = "rtscope";

/// Whose cost a line is of: cyclictest's sampling threads'.
pub const THEIRS: &str = "cyclictest";

/// What sampling threads cost over a number of their wake-ups. Its text form is a line of
/// [`phase_file`]: `# CPU time of cyclictest: 5200000 ns in 1000 wake-ups`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cost {
    /// CPU time, user and system.
    pub cpu_ns: u64,
    /// Wake-ups, all threads together.
    pub wakeups: u64,
}

impl Cost {
    /// CPU time for each wake-up in nanoseconds; none without a wake-up.
    #[must_use]
    pub fn each_ns(self) -> Option<f64> {
        (self.wakeups > 0).then(|| self.cpu_ns as f64 / self.wakeups as f64)
    }

    #[must_use]
    pub fn line(self, whose: &str) -> String {
        format!("# CPU time of {whose}: {} ns in {} wake-ups\n", self.cpu_ns, self.wakeups)
    }

    /// The cost in a text that holds its line.
    #[must_use]
    pub fn find(text: &str, whose: &str) -> Option<Cost> {
        let begin = format!("# CPU time of {whose}: ");
        let said = text.lines().find_map(|line| line.strip_prefix(&begin))?;
        let (cpu_ns, rest) = said.split_once(" ns in ")?;
        let wakeups = rest.strip_suffix(" wake-ups")?;
        Some(Cost { cpu_ns: cpu_ns.parse().ok()?, wakeups: wakeups.parse().ok()? })
    }
}

impl std::iter::Sum for Cost {
    fn sum<I: Iterator<Item = Cost>>(all: I) -> Cost {
        all.fold(Cost::default(), |sum, one| Cost {
            cpu_ns: sum.cpu_ns + one.cpu_ns,
            wakeups: sum.wakeups + one.wakeups,
        })
    }
}

/// Where the text of an experiment lies in a guest.
#[must_use]
pub fn experiment_file(name: &str) -> String {
    format!("experiments/{name}.toml")
}

/// The name of a phase's file: what cyclictest or a tracer said under its loads.
#[must_use]
pub fn phase_file(kind: &str, cell: usize) -> String {
    format!("{kind}/{cell}.txt")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_back() {
        let all = GuestExtras {
            modules: vec!["lib/modules/6.1/veth.ko".to_owned()],
            cyclictest: true,
            tracer: Some(Tracer::Timerlat),
            gpio_lines: Some(8),
            commands: vec![Command {
                name: "drift".to_owned(),
                words: ["drift", "--period=1ms"].map(str::to_owned).to_vec(),
            }],
        };
        for beside in [all, GuestExtras::default()] {
            assert_eq!(GuestExtras::parse(&beside.to_toml()), Ok(beside));
        }
        assert_eq!(GuestExtras::default().to_toml(), "");
        let cost = Cost { cpu_ns: 5_200_000, wakeups: 1000 };
        let text = format!("{}# cyclictest --quiet\n000001 1000\n", cost.line(THEIRS));
        assert_eq!((Cost::find(&text, THEIRS), Cost::find(&text, OURS)), (Some(cost), None));
        assert_eq!((cost.each_ns(), Cost::default().each_ns()), (Some(5200.0), None));
        assert_eq!(Cost::find("# CPU time of rtscope: much", OURS), None);
        assert!(
            GuestExtras::parse("modulse = []").expect_err("a typing error").contains("modulse")
        );
        assert_eq!("timerlat".parse(), Ok(Tracer::Timerlat));
        assert!("timer".parse::<Tracer>().expect_err("unknown").contains("osnoise"));
    }
}
