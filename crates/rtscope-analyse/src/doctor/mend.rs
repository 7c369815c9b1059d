//! The line that changes something on this machine: where its boot loader has the kernel's command line, and its
//! settings.

use rtscope_model::doctor::{BootLoader, MachineFacts};

/// How to set parameters of the kernel's command line here. Where a parameter has another value already, this replaces
/// it.
pub(super) fn boot(facts: &MachineFacts, words: &str) -> String {
    let line = match facts.boot_loader {
        BootLoader::Grub if has_entries(facts) => {
            return format!("grubby --update-kernel=ALL --args=\"{words}\" (then reboot)");
        }
        BootLoader::Grub => return grub(facts, words),
        BootLoader::RaspberryPi => format!("the one line of {}", file(facts)),
        BootLoader::Extlinux => format!("the line APPEND in {}", file(facts)),
        BootLoader::UBoot => {
            let text = facts.text("boot/uEnv.txt").unwrap_or_default();
            let has = |name: &&str| text.lines().any(|line| line.starts_with(&format!("{name}=")));
            let name =
                ["cmdline", "optargs", "extraargs"].into_iter().find(has).unwrap_or("optargs");
            format!("the line {name}= in {}", file(facts))
        }
        BootLoader::SystemdBoot => file(facts),
        BootLoader::Unknown => "the kernel command line, in your boot loader".to_owned(),
    };
    let after = match facts.boot_loader {
        BootLoader::SystemdBoot => {
            "then run kernel-install add-all, or reinstall the kernel, and reboot"
        }
        _ => "then reboot",
    };
    // What the file has counts, and where it has nothing, what the kernel was started with.
    let written = boot_words(facts).into_iter().flat_map(|(_, words)| words);
    let mut old: Vec<String> = written.filter(|word| sets_again(word, words)).collect();
    if old.is_empty() {
        let running = facts.environment.kernel.cmdline.split_whitespace();
        old = running.filter(|word| sets_again(word, words)).map(str::to_owned).collect();
    }
    match old.is_empty() {
        true => format!("append to {line}: {words} ({after})"),
        false => format!("in {line}: {words} in place of {} ({after})", old.join(" ")),
    }
}

/// Whether a word of a command line is a parameter that new words set.
fn sets_again(word: &str, words: &str) -> bool {
    let name = |word: &str| word.split('=').next().unwrap_or_default().replace('-', "_");
    words.split_whitespace().any(|new| name(new) == name(word))
}

/// A word of a command line with its parameter's name as the kernel reads it: dash and underscore are the same.
pub(super) fn canonical(word: &str) -> String {
    match word.split_once('=') {
        Some((name, value)) => format!("{}={value}", name.replace('-', "_")),
        None => word.to_owned(),
    }
}

/// The words that each file of this machine's boot loader has for the command line of the next boot, with the file's
/// path. Files of other boot loaders can be left from another time.
pub(super) fn boot_words(facts: &MachineFacts) -> Vec<(String, Vec<String>)> {
    let words = |text: &str| -> Vec<String> {
        let parts = text.split(|c: char| c.is_whitespace() || matches!(c, '"' | '\''));
        parts.filter(|word| !word.is_empty()).map(canonical).collect()
    };
    let path = file(facts);
    let path = path.trim_start_matches('/');
    let Some(text) = facts.text(path) else { return Vec::new() };
    let words_of_file = match facts.boot_loader {
        BootLoader::Grub => {
            let line = |line: GrubLine<'_>| (line.path.to_owned(), words(line.value));
            return grub_lines(facts).into_iter().map(line).collect();
        }
        BootLoader::Extlinux => words(&started_entry(text)),
        BootLoader::UBoot => {
            let values =
                text.lines().filter_map(|line| line.split_once('=').map(|(_, value)| value));
            words(&values.collect::<Vec<_>>().join(" "))
        }
        BootLoader::RaspberryPi | BootLoader::SystemdBoot | BootLoader::Unknown => words(text),
    };
    vec![(path.to_owned(), words_of_file)]
}

/// Whether a parameter is in the boot loader's settings, and not in the running kernel's command line.
pub(super) fn is_pending(facts: &MachineFacts, name: &str) -> bool {
    let is_it = |word: &str| canonical(word).split('=').next() == Some(name);
    let line = &facts.environment.kernel.cmdline;
    !line.is_empty()
        && !line.split_whitespace().any(is_it)
        && boot_words(facts).iter().any(|(_, words)| words.iter().any(|word| is_it(word)))
}

/// The lines APPEND of the entry that `extlinux.conf` starts by itself: that of DEFAULT, else the first.
fn started_entry(text: &str) -> String {
    let rows: Vec<(String, &str)> = text
        .lines()
        .map(|line| line.trim().split_once(char::is_whitespace).unwrap_or((line.trim(), "")))
        .map(|(word, rest)| (word.to_lowercase(), rest.trim()))
        .collect();
    let named = |word: &str| rows.iter().find(|(name, _)| name == word).map(|(_, rest)| *rest);
    let wanted = named("default")
        .filter(|label| rows.iter().any(|(name, rest)| name == "label" && rest == label));
    let wanted = wanted.or_else(|| named("label"));
    let mut label = None;
    let mut found = Vec::new();
    for (word, rest) in rows {
        match word.as_str() {
            "label" => label = Some(rest),
            // What stands before the first entry is for all.
            "append" if label.is_none() || label == wanted => found.push(rest),
            _ => {}
        }
    }
    found.join(" ")
}

/// A line of GRUB's settings that makes up the command line of its usual entry.
struct GrubLine<'a> {
    path: &'a str,
    name: &'a str,
    /// Without the quotes around it.
    value: &'a str,
}

const GRUB_DEFAULT: &str = "GRUB_CMDLINE_LINUX_DEFAULT";

/// Those lines, in the order in which they are read.
fn grub_lines<'a>(facts: &'a MachineFacts) -> Vec<GrubLine<'a>> {
    let texts = facts.text("etc/default/grub").map(|text| ("etc/default/grub", text));
    let all = texts.into_iter().chain(facts.texts_below("etc/default/grub.d/"));
    let lines = all.flat_map(|(path, text)| text.lines().map(move |line| (path, line)));
    let line = |(path, line): (&'a str, &'a str)| -> Option<GrubLine<'a>> {
        let (name, value) = line.trim().split_once('=')?;
        let name = name.trim_end_matches('+');
        let is_usual = name == GRUB_DEFAULT || name == "GRUB_CMDLINE_LINUX";
        is_usual.then(|| GrubLine { path, name, value: unquoted(value) })
    };
    lines.filter_map(line).collect()
}

/// What is between the quotes of a value; a comment may follow them.
fn unquoted(value: &str) -> &str {
    match value.chars().next().filter(|c| matches!(c, '"' | '\'')) {
        Some(quote) => value[1..].split(quote).next().unwrap_or_default(),
        None => value.split(" #").next().unwrap_or_default().trim(),
    }
}

/// The whole new line of GRUB's settings: the last line that has one of the parameters, else the last one that sets the
/// usual variable. One that only adds to the variable lets an earlier line count.
fn grub(facts: &MachineFacts, words: &str) -> String {
    let lines = grub_lines(facts);
    let has =
        |line: &&GrubLine<'_>| line.value.split_whitespace().any(|word| sets_again(word, words));
    let sets =
        |line: &&GrubLine<'_>| line.name == GRUB_DEFAULT && !line.value.contains(GRUB_DEFAULT);
    let line = lines.iter().rfind(has).or_else(|| lines.iter().rfind(sets));
    let (path, name, old) = line
        .map_or(("etc/default/grub", GRUB_DEFAULT, ""), |line| (line.path, line.name, line.value));
    let kept = old.split_whitespace().filter(|word| !sets_again(word, words));
    let new: Vec<&str> = kept.chain(words.split_whitespace()).collect();
    let update = grub_update(facts);
    format!("in /{path}: {name}=\"{}\" (then run {update} and reboot)", new.join(" "))
}

fn grub_update(facts: &MachineFacts) -> &'static str {
    match facts.files.contains_key("boot/grub2/grubenv") {
        true => "grub2-mkconfig -o /boot/grub2/grub.cfg",
        false => "update-grub",
    }
}

/// Whether GRUB starts entries of the Boot Loader Specification, which `grub2-mkconfig` doesn't rewrite.
fn has_entries(facts: &MachineFacts) -> bool {
    let text = facts.text("etc/default/grub").unwrap_or_default();
    text.lines().any(|line| line.replace('"', "").trim() == "GRUB_ENABLE_BLSCFG=true")
}

/// Where the kernel's command line is.
fn file(facts: &MachineFacts) -> String {
    match facts.boot_loader {
        BootLoader::Grub => {
            let lines = grub_lines(facts);
            let line = lines.iter().rfind(|line| line.name == GRUB_DEFAULT);
            format!("/{}", line.map_or("etc/default/grub", |line| line.path))
        }
        BootLoader::RaspberryPi
            if !facts.files.contains_key("boot/firmware/cmdline.txt")
                && facts.files.contains_key("boot/cmdline.txt") =>
        {
            "/boot/cmdline.txt".to_owned()
        }
        BootLoader::RaspberryPi => "/boot/firmware/cmdline.txt".to_owned(),
        BootLoader::Extlinux => "/boot/extlinux/extlinux.conf".to_owned(),
        BootLoader::UBoot => "/boot/uEnv.txt".to_owned(),
        BootLoader::SystemdBoot => "/etc/kernel/cmdline".to_owned(),
        BootLoader::Unknown => "the boot loader's configuration".to_owned(),
    }
}

/// A change in the file of the kernel's command line, and what must follow it: `before` it and `after` it are what to
/// change, for example "change rcu_nocbs=9" and " so that it names only CPUs 0-7".
pub(super) fn boot_edit(facts: &MachineFacts, before: &str, after: &str) -> String {
    let next = match facts.boot_loader {
        BootLoader::Grub if has_entries(facts) => {
            return format!(
                "{before} in the boot entries{after} (grubby --update-kernel=ALL), and reboot"
            );
        }
        BootLoader::Grub => format!(", run {}, and reboot", grub_update(facts)),
        BootLoader::SystemdBoot => ", run kernel-install add-all, and reboot".to_owned(),
        _ => ", and reboot".to_owned(),
    };
    format!("{before} in {}{after}{next}", file(facts))
}

/// How to remove parameters from the kernel's command line here.
pub(super) fn boot_without(facts: &MachineFacts, what: &str) -> String {
    boot_edit(facts, &format!("remove {what} from the kernel command line"), "")
}

/// What to do where the settings are right and the running kernel was started without them.
pub(super) fn boot_again(facts: &MachineFacts) -> String {
    match facts.boot_loader {
        BootLoader::Grub if has_entries(facts) => {
            "write them into the boot entries with grubby --update-kernel=ALL --args=..., and reboot".to_owned()
        }
        BootLoader::Grub => format!("run {} and reboot", grub_update(facts)),
        BootLoader::SystemdBoot => {
            "run kernel-install add-all, or reinstall the kernel, and reboot".to_owned()
        }
        _ => "reboot, and look at /proc/cmdline; if it is still missing, the boot loader reads another file".to_owned(),
    }
}

/// How to set a value below `/proc/sys`, now and after each boot.
pub(super) fn sysctl(name: &str, value: &str) -> String {
    let name = name.replace('/', ".");
    format!(
        "sysctl -w {name}={value} (to keep it: the line {name}={value} in /etc/sysctl.d/90-latency.conf)"
    )
}

/// How to write a file below `/sys`, which lasts until the next boot.
pub(super) fn write(path: &str, value: &str) -> String {
    format!("echo {value} > /{path} (lasts until the next boot)")
}

/// How to stop a service for good.
pub(super) fn disable(service: &str) -> String {
    format!("systemctl disable --now {service}")
}

#[cfg(test)]
mod tests {
    use rtscope_model::doctor::FileReading;

    use super::*;

    fn facts(boot_loader: BootLoader, path: &str, text: &str) -> MachineFacts {
        let files = [(path.to_owned(), FileReading::Text(text.to_owned()))].into();
        MachineFacts { boot_loader, files, ..MachineFacts::default() }
    }

    #[test]
    fn each_boot_loader_has_its_own_file() {
        let grub =
            facts(BootLoader::Grub, "etc/default/grub", "GRUB_CMDLINE_LINUX_DEFAULT=\"quiet\"");
        assert_eq!(
            boot(&grub, "isolcpus=3"),
            "in /etc/default/grub: GRUB_CMDLINE_LINUX_DEFAULT=\"quiet isolcpus=3\" (then run update-grub and reboot)"
        );
        let pi = facts(BootLoader::RaspberryPi, "boot/cmdline.txt", "console=tty1");
        assert!(boot(&pi, "isolcpus=3").contains(" /boot/cmdline.txt: isolcpus=3"));
        let bone = facts(BootLoader::UBoot, "boot/uEnv.txt", "uname_r=6.1\ncmdline=quiet");
        assert!(boot(&bone, "isolcpus=0").contains("cmdline= in /boot/uEnv.txt"));
        assert!(boot(&MachineFacts::default(), "x").contains("your boot loader"));
    }

    #[test]
    fn a_new_value_replaces_the_old_one() {
        let text = "GRUB_CMDLINE_LINUX_DEFAULT=\"quiet irqaffinity=0-7 rcu-nocbs=3 nosmt\"";
        let mut grub = facts(BootLoader::Grub, "etc/default/grub", text);
        assert_eq!(
            boot(&grub, "irqaffinity=0-3 rcu_nocbs=4"),
            "in /etc/default/grub: GRUB_CMDLINE_LINUX_DEFAULT=\"quiet nosmt irqaffinity=0-3 rcu_nocbs=4\" \
             (then run update-grub and reboot)"
        );
        assert_eq!(
            boot_without(&grub, "idle=poll"),
            "remove idle=poll from the kernel command line in /etc/default/grub, run update-grub, and reboot"
        );
        grub.files.insert("boot/grub2/grubenv".to_owned(), FileReading::Text(String::new()));
        assert!(boot_without(&grub, "idle=poll").contains(", run grub2-mkconfig -o "));
        let mut pi = facts(BootLoader::RaspberryPi, "boot/cmdline.txt", "irqaffinity=0-3");
        pi.environment.kernel.cmdline = "quiet irqaffinity=0-3".to_owned();
        let line = "irqaffinity=0-2 in place of irqaffinity=0-3 (then reboot)";
        assert!(boot(&pi, "irqaffinity=0-2").ends_with(line));
    }
}
