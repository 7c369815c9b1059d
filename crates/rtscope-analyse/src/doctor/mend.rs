//! The line that changes something on this machine: where its boot loader has the kernel's command line, and its
//! settings.

use rtscope_model::doctor::{BootLoader, MachineFacts};

/// How to set parameters of the kernel's command line here. Where a parameter has another value already, this replaces
/// it.
pub(super) fn boot(facts: &MachineFacts, words: &str) -> String {
    let line = match facts.boot_loader {
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
        BootLoader::SystemdBoot => file(facts).to_owned(),
        BootLoader::Unknown => "the kernel command line, in your boot loader".to_owned(),
    };
    let after = match facts.boot_loader {
        BootLoader::SystemdBoot => {
            "then run kernel-install add-all, or reinstall the kernel, and reboot"
        }
        _ => "then reboot",
    };
    let old = facts.environment.kernel.cmdline.split_whitespace();
    let old: Vec<&str> = old.filter(|word| sets_again(word, words)).collect();
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

/// The whole new line of GRUB's settings.
fn grub(facts: &MachineFacts, words: &str) -> String {
    const NAME: &str = "GRUB_CMDLINE_LINUX_DEFAULT";
    let text = facts.text("etc/default/grub").unwrap_or_default();
    let old = text
        .lines()
        .filter_map(|line| line.trim().strip_prefix(NAME)?.strip_prefix('='))
        .next_back();
    let old = old.unwrap_or_default().trim_matches(['"', '\'']);
    let kept = old.split_whitespace().filter(|word| !sets_again(word, words));
    let new: Vec<&str> = kept.chain(words.split_whitespace()).collect();
    let update = grub_update(facts);
    format!("in /etc/default/grub: {NAME}=\"{}\" (then run {update} and reboot)", new.join(" "))
}

fn grub_update(facts: &MachineFacts) -> &'static str {
    match facts.files.contains_key("boot/grub2/grubenv") {
        true => "grub2-mkconfig -o /boot/grub2/grub.cfg",
        false => "update-grub",
    }
}

/// Where the kernel's command line is.
fn file(facts: &MachineFacts) -> &'static str {
    match facts.boot_loader {
        BootLoader::Grub => "/etc/default/grub",
        BootLoader::RaspberryPi
            if !facts.files.contains_key("boot/firmware/cmdline.txt")
                && facts.files.contains_key("boot/cmdline.txt") =>
        {
            "/boot/cmdline.txt"
        }
        BootLoader::RaspberryPi => "/boot/firmware/cmdline.txt",
        BootLoader::Extlinux => "/boot/extlinux/extlinux.conf",
        BootLoader::UBoot => "/boot/uEnv.txt",
        BootLoader::SystemdBoot => "/etc/kernel/cmdline",
        BootLoader::Unknown => "the boot loader's configuration",
    }
}

/// A change in the file of the kernel's command line, and what must follow it: `before` it and `after` it are what to
/// change, for example "change rcu_nocbs=9" and " so that it names only CPUs 0-7".
pub(super) fn boot_edit(facts: &MachineFacts, before: &str, after: &str) -> String {
    let next = match facts.boot_loader {
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
