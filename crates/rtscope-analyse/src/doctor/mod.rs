//! What in the settings of a machine can delay a real-time thread: rules over the facts that were read of it.
//!
//! A rule is a row of a table in `rules`, and a pure function over the facts. What wasn't read can't make a rule fire,
//! but for the rules that say that something isn't known. A delay is an order of magnitude that others published or
//! that follows from the setting. It ranks findings for a deadline and is no measurement of this machine.

pub mod against;
mod mend;
pub(crate) mod preemption;
mod purpose;
mod rules;
pub mod suggest;

use rtscope_model::{
    cmdline,
    cpu::CpuSet,
    doctor::{
        DoctorDocument, DoctorFinding, FORMAT, FileValue, MachineFacts, ProblemKind, Readiness,
        Severity, Sureness,
    },
    environment::{Environment, Preemption},
};

pub use self::purpose::{PURPOSES, Purpose};
use crate::number::counted;

/// What the rules look at.
pub(crate) struct Examined<'a> {
    facts: &'a MachineFacts,
    /// CPUs that real-time threads are meant for: the isolated ones, or all.
    cpus: CpuSet,
    /// Longest exit latency that is asked of idle states, in us.
    idle_limit_us: u64,
    purpose: &'a Purpose,
}

impl<'a> Examined<'a> {
    fn new(facts: &'a MachineFacts, purpose: &'a Purpose) -> Examined<'a> {
        let found = &facts.environment.cpus;
        let isolated = found.isolated.common(&found.online);
        let cpus = if isolated.is_empty() { found.online.clone() } else { isolated };
        // What programs ask for at this moment, by holding the device open.
        let asked_us = facts.number("dev/cpu_dma_latency").and_then(|us| us.try_into().ok());
        Examined { facts, cpus, idle_limit_us: asked_us.unwrap_or(u64::MAX), purpose }
    }

    fn environment(&self) -> &'a Environment {
        &self.facts.environment
    }

    /// The preemption model that the running kernel shows, which counts more than a file in `/boot`.
    fn preemption(&self) -> Preemption {
        preemption::model(self.facts)
    }

    /// The kernel's command line.
    fn line(&self) -> &'a str {
        &self.environment().kernel.cmdline
    }

    /// The last value of a parameter of the command line.
    fn parameter(&self, name: &str) -> Option<&'a str> {
        cmdline::value(self.line(), name)
    }

    /// The CPUs that a parameter of the command line names.
    fn parameter_cpus(&self, name: &str) -> Option<CpuSet> {
        cmdline::cpus(self.line(), name, self.environment().cpus.online.last())
    }

    /// Whether the configuration is known and an option is built in.
    fn built(&self, option: &str) -> bool {
        self.environment().kernel.config.get(option).is_some_and(|value| value == "y")
    }

    /// Whether the configuration is known and an option isn't in it.
    fn not_built(&self, option: &str) -> bool {
        let config = &self.environment().kernel.config;
        !config.is_empty() && !config.contains_key(option)
    }

    /// A kernel setting below `/proc/sys`.
    fn sysctl(&self, name: &str) -> Option<&'a str> {
        self.environment().sysctl.get(name).map(String::as_str)
    }

    /// Isolated CPUs that are online.
    fn isolated(&self) -> CpuSet {
        self.environment().cpus.isolated.common(&self.environment().cpus.online)
    }

    /// CPUs left for everything else.
    fn housekeeping(&self) -> CpuSet {
        self.environment().cpus.online.without(&self.environment().cpus.isolated)
    }

    /// The first two numbers of the release: `(6, 12)`.
    fn version(&self) -> Option<(u32, u32)> {
        preemption::version(self.environment())
    }

    fn is_x86(&self) -> bool {
        ["x86_64", "i686", "i586"].contains(&self.environment().kernel.machine.as_str())
    }

    /// The hypervisor, or the container, that was recognised.
    fn around(&self, is_container: bool) -> Option<&'a str> {
        let mut words = self.environment().virtualisation.as_deref()?.split(", ");
        words.find(|word| CONTAINERS.contains(word) == is_container)
    }
}

/// What recognised virtualisation is a container: it shares its host's kernel.
const CONTAINERS: [&str; 9] = [
    "container",
    "docker",
    "lxc",
    "lxc-libvirt",
    "openvz",
    "podman",
    "proot",
    "rkt",
    "systemd-nspawn",
];

/// What a rule is about. A purpose can leave topics out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Topic {
    Kernel,
    Permission,
    Scheduling,
    Isolation,
    Power,
    Memory,
    Time,
    Debug,
    Firmware,
    Virtual,
    Board,
    Network,
}

/// A row of the table: what is the same whatever it finds.
pub(crate) struct Rule {
    code: &'static str,
    topic: Topic,
    kind: ProblemKind,
    sureness: Sureness,
    /// Order of magnitude of the delay in us; 0 where threads don't run as they should at all.
    delay_us: u64,
    why: &'static str,
    cost: &'static str,
    find: fn(&Examined<'_>) -> Option<Symptom>,
}

/// What a rule found on this machine.
pub(crate) struct Symptom {
    pub(crate) text: String,
    mend: String,
    found: Vec<FileValue>,
    /// In place of the rule's own.
    why: Option<&'static str>,
    /// In place of the rule's own.
    delay_us: Option<u64>,
    /// At most so severe: what delays only threads that behave in a way that few do.
    at_most: Severity,
}

impl Symptom {
    fn new(text: impl Into<String>, mend: impl Into<String>) -> Symptom {
        Symptom {
            text: text.into(),
            mend: mend.into(),
            found: Vec::new(),
            why: None,
            delay_us: None,
            at_most: Severity::High,
        }
    }

    /// What it is based on.
    #[expect(clippy::needless_pass_by_value, reason = "callers hand over what they have just made")]
    fn shown_by(mut self, file: impl Into<String>, value: impl ToString) -> Symptom {
        self.found.push(FileValue { file: file.into(), value: value.to_string() });
        self
    }

    /// Another reason than that of the rule.
    fn because(mut self, why: &'static str) -> Symptom {
        self.why = Some(why);
        self
    }

    fn delay_us(mut self, delay_us: u64) -> Symptom {
        self.delay_us = Some(delay_us);
        self
    }

    fn at_most(mut self, severity: Severity) -> Symptom {
        self.at_most = severity;
        self
    }
}

/// Examines a machine for a purpose and its deadline in ns.
#[must_use]
pub fn diagnose(
    facts: &MachineFacts,
    purpose: &Purpose,
    deadline_ns: u64,
    version: &str,
) -> DoctorDocument {
    let examined = Examined::new(facts, purpose);
    let (mut findings, mut left_out) = (Vec::new(), Vec::new());
    for rule in rules::all() {
        let Some(symptom) = (rule.find)(&examined) else { continue };
        let is_needed =
            rule.kind == ProblemKind::Contradiction || !purpose.without.contains(&rule.topic);
        match severity(rule, &symptom, deadline_ns).filter(|_| is_needed) {
            Some(severity) => findings.push(finding(&examined, rule, symptom, severity)),
            None => left_out.push(rule.code.to_owned()),
        }
    }
    let key = |one: &DoctorFinding| {
        (std::cmp::Reverse(one.severity), std::cmp::Reverse(one.delay_ns.unwrap_or(u64::MAX)))
    };
    // Stable: what is equally severe stays in the order of the table.
    findings.sort_by_key(key);
    let readiness = readiness(facts, &findings);
    DoctorDocument {
        format: FORMAT,
        version: version.to_owned(),
        purpose: purpose.name.to_owned(),
        deadline_ns,
        readiness,
        verdict: verdict(readiness, &findings, deadline_ns),
        preemption: preemption::proof(facts),
        findings,
        left_out,
        facts: facts.clone(),
    }
}

/// How severe a symptom is for a deadline; none where it can't matter.
fn severity(rule: &Rule, symptom: &Symptom, deadline_ns: u64) -> Option<Severity> {
    if rule.kind == ProblemKind::NotKnown {
        return Some(Severity::Unknown);
    }
    let delay_ns = symptom.delay_us.unwrap_or(rule.delay_us).saturating_mul(1_000);
    let reaches = |parts: u64| delay_ns == 0 || delay_ns.saturating_mul(parts) >= deadline_ns;
    let severity = match () {
        () if reaches(2) => Severity::High,
        () if reaches(10) => Severity::Medium,
        () if reaches(100) || rule.kind == ProblemKind::Contradiction => Severity::Low,
        () => return None,
    };
    Some(if symptom.at_most < severity { symptom.at_most } else { severity })
}

/// Whether only the owner of the kernel can change it: of a container, that is its host.
fn is_of_kernel(rule: &Rule) -> bool {
    let of_group = ["cgroup-quota", "cpus-narrowed", "rt-group-without-time"];
    !matches!(rule.topic, Topic::Permission | Topic::Virtual) && !of_group.contains(&rule.code)
}

fn finding(x: &Examined<'_>, rule: &Rule, symptom: Symptom, severity: Severity) -> DoctorFinding {
    let mend = match x.around(true) {
        Some(_) if is_of_kernel(rule) => format!("on the host: {}", symptom.mend),
        _ => symptom.mend,
    };
    let delay_us = symptom.delay_us.unwrap_or(rule.delay_us);
    let has_delay = delay_us > 0 && rule.kind != ProblemKind::NotKnown;
    DoctorFinding {
        code: rule.code.to_owned(),
        kind: rule.kind,
        severity,
        sureness: rule.sureness,
        text: symptom.text,
        found: symptom.found,
        why: symptom.why.unwrap_or(rule.why).to_owned(),
        mend,
        cost: rule.cost.to_owned(),
        delay_ns: has_delay.then(|| delay_us.saturating_mul(1_000)),
    }
}

fn readiness(facts: &MachineFacts, findings: &[DoctorFinding]) -> Readiness {
    let is_shown =
        !facts.environment.kernel.release.is_empty() && !facts.environment.cpus.online.is_empty();
    match findings.iter().any(|one| one.severity == Severity::High) {
        true => Readiness::NotReady,
        false if !is_shown => Readiness::NotKnown,
        false => Readiness::Ready,
    }
}

fn verdict(readiness: Readiness, findings: &[DoctorFinding], deadline_ns: u64) -> String {
    let count = |severity| findings.iter().filter(|one| one.severity == severity).count() as u64;
    let deadline = rtscope_model::time::Nanos(deadline_ns);
    let medium = count(Severity::Medium);
    match readiness {
        Readiness::NotReady => {
            let high = count(Severity::High);
            format!(
                "not ready for a deadline of {deadline}: {} of high severity, {} may use half of the deadline or \
                 prevent real-time scheduling",
                counted(high, "finding"),
                if high == 1 { "which" } else { "each of which" }
            )
        }
        Readiness::NotKnown => {
            "not known: the files don't show a kernel and its CPUs; run rtscope doctor on the machine itself".to_owned()
        }
        Readiness::Ready if medium > 0 => format!(
            "no finding alone is estimated to use half of a deadline of {deadline}, but {medium} may use a tenth or \
             more{}; measure with rtscope run",
            if medium == 1 { "" } else { " each" }
        ),
        Readiness::Ready => format!(
            "no finding is estimated to use a tenth of a deadline of {deadline}; measure with rtscope run"
        ),
    }
}

/// What the rule of a code finds, for the rules of a record. `idle_limit_us` bounds the idle states.
pub(crate) fn symptom(
    code: &str,
    facts: &MachineFacts,
    cpus: CpuSet,
    idle_limit_us: u64,
) -> Option<Symptom> {
    let examined = Examined { cpus, idle_limit_us, ..Examined::new(facts, &PURPOSES[0]) };
    let rule = rules::all().find(|rule| rule.code == code)?;
    (rule.find)(&examined)
}

/// Settings that may each use half of a latency limit on the measured CPUs, the largest delay first. What surrounds the
/// kernel, such as a hypervisor, isn't among them: no setting of this machine changes it.
pub(crate) fn suspects(
    facts: &MachineFacts,
    cpus: CpuSet,
    idle_limit_us: u64,
    limit_ns: u64,
) -> Vec<DoctorFinding> {
    let examined = Examined { cpus, idle_limit_us, ..Examined::new(facts, &PURPOSES[0]) };
    let is_setting =
        |rule: &&Rule| rule.kind == ProblemKind::Setting && rule.topic != Topic::Virtual;
    let mut found: Vec<DoctorFinding> = rules::all()
        .filter(is_setting)
        .filter_map(|rule| {
            let symptom = (rule.find)(&examined)?;
            let severity =
                severity(rule, &symptom, limit_ns).filter(|one| *one == Severity::High)?;
            Some(finding(&examined, rule, symptom, severity))
        })
        .collect();
    found.sort_by_key(|one| std::cmp::Reverse(one.delay_ns));
    found
}

/// The codes of all rules, in the order of the table.
pub fn codes() -> impl Iterator<Item = &'static str> {
    rules::all().map(|rule| rule.code)
}

#[cfg(test)]
mod tests;
