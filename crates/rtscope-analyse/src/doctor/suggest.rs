//! From findings to settings: what `rtscope tune` can change of what doctor found, in the order of the findings.
//!
//! A finding that no setting of rtscope changes keeps its own line, for the user to do by hand.

use rtscope_model::{
    cpu::CpuSet,
    doctor::{
        DoctorDocument, DoctorFinding, SettingValue, Severity, Suggestion, SuggestionDocument,
        Sureness,
    },
    text::shell_word,
};

use super::{Examined, Purpose, mend, rules};

/// Version of the document.
pub const FORMAT: u32 = 1;

/// What changes a machine so that a rule doesn't fire any more.
enum Way {
    /// Settings that can be changed at once.
    Settings(Vec<SettingValue>),
    /// Words of the kernel's command line.
    Boot(String),
    /// The CPUs are shielded at once, and the words do more at the next boot.
    Both(Vec<SettingValue>, String),
}

/// The settings that a machine's findings ask for. `cpus` are those of the user's real-time threads; without them, the
/// isolated ones or the last core. `root` is where the commands find the machine's files; without it, they change the
/// machine that they are typed on.
#[must_use]
pub fn suggest(
    document: &DoctorDocument,
    purpose: &Purpose,
    cpus: Option<&CpuSet>,
    root: Option<&str>,
) -> SuggestionDocument {
    let examined = Examined::new(&document.facts, purpose);
    let commands = Commands { root };
    let own = cpus.cloned().or_else(|| for_threads(&examined)).unwrap_or_default();
    let mut suggestions: Vec<Suggestion> = document
        .findings
        .iter()
        .map(|finding| suggestion(&examined, finding, &own, commands))
        .collect();
    let has_shield = |one: &Suggestion| one.settings.iter().any(|setting| setting.name == "shield");
    if let Some(cpus) = cpus.filter(|cpus| is_open(&examined, cpus))
        && !suggestions.iter().any(has_shield)
    {
        suggestions.insert(0, asked_shield(&examined, cpus, commands));
    }
    // What hardly matters for the deadline may cost more than it brings: it isn't in the commands for all.
    // A shield for CPUs that the user named is asked for.
    let matters =
        |one: &&Suggestion| one.severity >= Severity::Medium || cpus.is_some() && has_shield(one);
    let matter = || suggestions.iter().filter(matters);
    let mut all: Vec<SettingValue> = Vec::new();
    for setting in matter().flat_map(|one| &one.settings) {
        match all.iter_mut().find(|known| known.name == setting.name) {
            // Two findings may name services of their own.
            Some(known) if known.name == "services" => {
                let mut names: Vec<&str> = known.value.split(',').collect();
                names.extend(setting.value.split(','));
                names.sort_unstable();
                names.dedup();
                known.value = names.join(",");
            }
            Some(_) => {}
            None => all.push(setting.clone()),
        }
    }
    let words: Vec<&str> = matter().filter_map(|one| one.boot.as_deref()).collect();
    let boot = merged(&words);
    SuggestionDocument {
        format: FORMAT,
        version: document.version.clone(),
        purpose: document.purpose.clone(),
        deadline_ns: document.deadline_ns,
        cpus: own,
        root: root.map(str::to_owned),
        command: commands.settings(&all),
        boot_command: (!boot.is_empty()).then(|| commands.boot(&boot)),
        boot_line: (!boot.is_empty()).then(|| mend::boot(&document.facts, &boot)),
        suggestions,
    }
}

fn for_threads(x: &Examined<'_>) -> Option<CpuSet> {
    let isolated = x.isolated();
    if isolated.is_empty() { rules::proposed(x) } else { Some(isolated) }
}

/// Whether CPUs that the user named can be shielded and are not isolated yet.
fn is_open(x: &Examined<'_>, cpus: &CpuSet) -> bool {
    let online = &x.environment().cpus.online;
    !cpus.without(&x.isolated()).is_empty()
        && cpus.without(online).is_empty()
        && !online.without(cpus).is_empty()
}

fn suggestion(
    x: &Examined<'_>,
    finding: &DoctorFinding,
    own: &CpuSet,
    commands: Commands<'_>,
) -> Suggestion {
    let (settings, boot) = match way(x, finding, own) {
        Some(Way::Settings(settings)) => (settings, None),
        Some(Way::Boot(words)) => (Vec::new(), Some(words)),
        Some(Way::Both(settings, words)) => (settings, Some(words)),
        None => (Vec::new(), None),
    };
    Suggestion {
        code: finding.code.clone(),
        severity: finding.severity,
        sureness: finding.sureness,
        text: finding.text.clone(),
        why: finding.why.clone(),
        cost: finding.cost.clone(),
        delay_ns: finding.delay_ns,
        command: commands
            .settings(&settings)
            .or_else(|| boot.as_deref().map(|words| commands.boot(words))),
        boot_line: boot.as_deref().map(|words| mend::boot(x.facts, words)),
        by_hand: (settings.is_empty() && boot.is_none()).then(|| finding.mend.clone()),
        settings,
        boot,
    }
}

fn asked_shield(x: &Examined<'_>, cpus: &CpuSet, commands: Commands<'_>) -> Suggestion {
    let settings = vec![set("shield", cpus)];
    let boot = rules::isolating(x, cpus);
    Suggestion {
        code: "cpus-asked".to_owned(),
        severity: Severity::Medium,
        sureness: Sureness::Likely,
        text: format!("CPUs {cpus} are meant for real-time threads, but aren't isolated"),
        why: "any other thread, interrupt or work of the kernel there delays yours".to_owned(),
        cost: "all other programs have fewer CPUs".to_owned(),
        delay_ns: None,
        command: commands.settings(&settings),
        boot_line: Some(mend::boot(x.facts, &boot)),
        by_hand: None,
        settings,
        boot: Some(boot),
    }
}

fn set(name: &str, value: &(impl ToString + ?Sized)) -> SettingValue {
    SettingValue { name: name.to_owned(), value: value.to_string() }
}

/// What changes a finding; none where rtscope has no setting for it.
fn way(x: &Examined<'_>, finding: &DoctorFinding, own: &CpuSet) -> Option<Way> {
    let one = |name: &str, value: &str| Some(Way::Settings(vec![set(name, value)]));
    let boot = |words: String| Some(Way::Boot(words));
    let rest = x.housekeeping();
    let others = x.environment().cpus.online.without(own);
    match finding.code.as_str() {
        "nothing-isolated" if !own.is_empty() && !others.is_empty() => {
            Some(Way::Both(vec![set("shield", own)], rules::isolating(x, own)))
        }
        "irqaffinity-over-isolated" | "default-affinity-over-isolated" => {
            boot(format!("irqaffinity={rest}"))
        }
        "irqs-on-isolated" => one("irq-affinity", &rest.to_string()),
        "irqbalance-undoes" => one("services", "irqbalance"),
        "nohz-full-without-rcu-nocbs" | "rcu-callbacks-on-isolated" => {
            boot(format!("rcu_nocbs={}", x.isolated()))
        }
        "nohz-full-not-isolated" => {
            boot(format!("isolcpus=managed_irq,domain,{}", x.environment().cpus.nohz_full))
        }
        "workqueues-on-isolated" => one("workqueue-cpus", &rest.to_string()),
        "vm-statistics-on-isolated" => one("stat-interval", "120"),
        "governor" => one("governor", "performance"),
        "governor-set-back" | "smi-services" => services(finding),
        "deep-idle" => {
            let limit_us = rules::DEEP_US - 1;
            let at = if own.is_empty() { String::new() } else { format!("@{own}") };
            one("idle-latency", &format!("{limit_us}{at}"))
        }
        "smt" => boot("nosmt".to_owned()),
        "mitigations" => boot("mitigations=off".to_owned()),
        "thp-always" => one("thp", "madvise"),
        "numa-balancing" => one("numa-balancing", "off"),
        "ksm" => one("ksm", "unmerge"),
        "swap" => one("swap", "off"),
        "preempt-can-be-full" => boot("preempt=full".to_owned()),
        "irqs-not-threaded" => boot("threadirqs".to_owned()),
        "softirq-low" => one("thread-priority", "fifo:11@ksoftirqd/*"),
        "nmi-watchdog" => one("nmi-watchdog", "off"),
        "machine-check-poll" => boot("mce=ignore_ce".to_owned()),
        "timer-migration" => one("timer-migration", "off"),
        "throttling-on" => one("throttling", "off"),
        "fair-server-on" => one("fair-server", "off"),
        _ => None,
    }
}

/// Units that `rtscope tune` stops, of those that a finding shows. The name of a program is that of its service.
fn services(finding: &DoctorFinding) -> Option<Way> {
    const KNOWN: [&str; 11] = [
        "auto-cpufreq",
        "cpufrequtils",
        "cpupower",
        "fwupd-refresh.timer",
        "mcelog",
        "ondemand",
        "power-profiles-daemon",
        "smartd",
        "thermald",
        "tlp",
        "tuned",
    ];
    let shown = finding.found.iter().flat_map(|one| one.value.split([',', ' ']));
    let names = shown.map(|name| name.trim().trim_end_matches(".service"));
    let mut names: Vec<&str> = names.filter(|name| KNOWN.contains(name)).collect();
    names.dedup();
    (!names.is_empty()).then(|| Way::Settings(vec![set("services", &names.join(","))]))
}

/// The words of several findings; of two values of a parameter, the first stays.
fn merged(words: &[&str]) -> String {
    let name = |word: &str| word.split('=').next().unwrap_or_default().to_owned();
    let mut kept: Vec<&str> = Vec::new();
    for word in words.iter().flat_map(|words| words.split_whitespace()) {
        if !kept.iter().any(|known| name(known) == name(word)) {
            kept.push(word);
        }
    }
    kept.join(" ")
}

/// The commands that change a system: this machine, or the one whose files are below a root.
#[derive(Clone, Copy)]
struct Commands<'a> {
    root: Option<&'a str>,
}

impl Commands<'_> {
    /// Settings of another system can only be made permanent.
    fn settings(self, settings: &[SettingValue]) -> Option<String> {
        let word =
            |setting: &SettingValue| shell_word(&format!("{}={}", setting.name, setting.value));
        let words: Vec<String> = settings.iter().map(word).collect();
        let how = match self.root {
            None => "--keep".to_owned(),
            Some(_) => format!("--persist{}", self.place()),
        };
        (!words.is_empty()).then(|| format!("rtscope tune apply {how} {}", words.join(" ")))
    }

    fn boot(self, words: &str) -> String {
        let each = words.split_whitespace().map(|word| format!(" --boot {}", shell_word(word)));
        format!("rtscope tune apply{}{}", each.collect::<String>(), self.place())
    }

    fn place(self) -> String {
        self.root.map_or(String::new(), |root| format!(" --root {}", shell_word(root)))
    }
}

#[cfg(test)]
mod tests {
    use rtscope_model::doctor::MachineFacts;

    use super::*;
    use crate::doctor::{PURPOSES, diagnose};

    fn two_cpus() -> MachineFacts {
        let mut facts = MachineFacts::default();
        facts.environment.kernel.release = "6.12.0".to_owned();
        facts.environment.cpus.online = "0-3".parse().expect("CPUs");
        facts.environment.memory.transparent_hugepage = Some("always".to_owned());
        facts.environment.sysctl.insert("kernel/timer_migration".to_owned(), "1".to_owned());
        facts
    }

    fn suggested(facts: &MachineFacts, cpus: Option<&str>) -> SuggestionDocument {
        let document = diagnose(facts, &PURPOSES[0], 100_000, "test");
        let cpus = cpus.map(|text| text.parse::<CpuSet>().expect("CPUs"));
        suggest(&document, &PURPOSES[0], cpus.as_ref(), None)
    }

    #[test]
    fn what_doctor_found_becomes_one_command() {
        let found = suggested(&two_cpus(), Some("2-3"));
        let command = found.command.expect("a command");
        for setting in ["shield=2-3", "thp=madvise", "timer-migration=off"] {
            assert!(command.contains(setting), "{command}");
        }
        assert!(command.starts_with("rtscope tune apply --keep "));
        let boot = found.boot_command.expect("words");
        assert!(boot.contains("--boot isolcpus=managed_irq,domain,2-3"), "{boot}");
        assert!(boot.contains("--boot irqaffinity=0-1"), "{boot}");
    }

    #[test]
    fn the_order_is_that_of_the_findings_and_nothing_is_lost() {
        let facts = two_cpus();
        let document = diagnose(&facts, &PURPOSES[0], 100_000, "test");
        let found = suggest(&document, &PURPOSES[0], None, None);
        let codes: Vec<&str> = found.suggestions.iter().map(|one| one.code.as_str()).collect();
        let expected: Vec<&str> = document.findings.iter().map(|one| one.code.as_str()).collect();
        assert_eq!(codes, expected);
        let is_one_way = |one: &Suggestion| one.by_hand.is_some() != one.command.is_some();
        assert!(found.suggestions.iter().all(is_one_way), "{found:?}");
        // The last CPU is taken when none is named.
        assert_eq!(found.cpus.to_string(), "3");
    }

    #[test]
    fn all_cpus_are_never_shielded() {
        let found = suggested(&two_cpus(), Some("0-3"));
        assert!(!found.command.expect("others").contains("shield"));
    }

    #[test]
    fn commands_for_another_system_do_not_change_this_one() {
        let document = diagnose(&two_cpus(), &PURPOSES[0], 100_000, "test");
        let root = "/mnt/it's a card";
        let found = suggest(&document, &PURPOSES[0], None, Some(root));
        let place = r" --root '/mnt/it'\''s a card'";
        let each = found.suggestions.iter().filter_map(|one| one.command.as_ref());
        let all: Vec<&String> = each.chain(&found.command).chain(&found.boot_command).collect();
        assert!(all.len() > 3, "{all:?}");
        for command in all {
            assert!(command.contains(place) && !command.contains("--keep"), "{command}");
            assert!(command.contains("--persist") != command.contains("--boot"), "{command}");
        }
        let text = crate::report::tune::text(&found);
        assert!(text.contains(" at each boot of that system"), "{text}");
        assert!(!text.contains("changed now"), "{text}");
    }

    #[test]
    fn a_pattern_is_quoted_for_the_shell() {
        let settings = [set("thread-priority", "fifo:11@ksoftirqd/*")];
        let text = Commands { root: None }.settings(&settings).expect("a command");
        assert!(text.ends_with(" 'thread-priority=fifo:11@ksoftirqd/*'"), "{text}");
    }
}
