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
        BootLoader::UBootMenu => return u_boot_menu(facts, words),
        BootLoader::Armbian => return armbian(facts, words),
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
    let words_of = |line: ShellLine<'_>| (line.path.to_owned(), words(line.value));
    let path = file(facts);
    let path = path.trim_start_matches('/');
    let Some(text) = facts.text(path) else { return Vec::new() };
    let words_of_file = match facts.boot_loader {
        BootLoader::Grub => return grub_lines(facts).into_iter().map(words_of).collect(),
        BootLoader::UBootMenu => {
            let lines = u_boot_menu_lines(facts);
            if lines.is_empty() {
                let of_kernel = file_of(facts, "etc/kernel/cmdline");
                return of_kernel.map(|(path, text)| (path.to_owned(), words(text))).collect();
            }
            let from = lines.iter().rposition(ShellLine::replaces).unwrap_or_default();
            return lines.into_iter().skip(from).map(words_of).collect();
        }
        BootLoader::Armbian => words(extra_arguments(text).unwrap_or_default()),
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

/// A line of settings for the shell that makes up the command line.
struct ShellLine<'a> {
    path: &'a str,
    name: &'a str,
    /// Without the quotes around it.
    value: &'a str,
}

impl ShellLine<'_> {
    /// Whether the lines before it don't count any more: it doesn't add to what its variable has.
    fn replaces(&self) -> bool {
        !self.value.contains(self.name)
    }

    fn has_one_of(&self, words: &str) -> bool {
        self.value.split_whitespace().any(|word| sets_again(word, words))
    }

    /// The whole new line with these words.
    fn with(&self, words: &str) -> String {
        let kept = self.value.split_whitespace().filter(|word| !sets_again(word, words));
        let new: Vec<&str> = kept.chain(words.split_whitespace()).collect();
        format!("in /{}: {}=\"{}\"", self.path, self.name, new.join(" "))
    }
}

/// The lines of some files that set one of these variables.
fn shell_lines<'a>(
    files: impl Iterator<Item = (&'a str, &'a str)>,
    names: &[&str],
) -> Vec<ShellLine<'a>> {
    let lines = files.flat_map(|(path, text)| text.lines().map(move |line| (path, line)));
    let line = |(path, line): (&'a str, &'a str)| -> Option<ShellLine<'a>> {
        let (name, value) = line.trim().split_once('=')?;
        let name = name.trim_end_matches('+');
        names.contains(&name).then(|| ShellLine { path, name, value: unquoted(value) })
    };
    lines.filter_map(line).collect()
}

fn file_of<'a>(facts: &'a MachineFacts, path: &'a str) -> impl Iterator<Item = (&'a str, &'a str)> {
    facts.text(path).map(|text| (path, text)).into_iter()
}

const GRUB_DEFAULT: &str = "GRUB_CMDLINE_LINUX_DEFAULT";

/// Lines of GRUB's settings for its usual entry, in the order in which they are read.
fn grub_lines(facts: &MachineFacts) -> Vec<ShellLine<'_>> {
    let files = file_of(facts, "etc/default/grub");
    let all = files.chain(facts.texts_below("etc/default/grub.d/"));
    shell_lines(all, &[GRUB_DEFAULT, "GRUB_CMDLINE_LINUX"])
}

/// Settings of u-boot-menu that come with other packages, and those of the user, which count more.
const MENU_VENDOR: &str = "usr/share/u-boot-menu/conf.d/";
const MENU_USER: &str = "etc/u-boot-menu/conf.d/";

/// Lines of u-boot-menu's settings, in the order in which `u-boot-update` reads them.
fn u_boot_menu_lines(facts: &MachineFacts) -> Vec<ShellLine<'_>> {
    let all = file_of(facts, "etc/default/u-boot").chain(facts.texts_below(MENU_VENDOR));
    shell_lines(all.chain(facts.texts_below(MENU_USER)), &["U_BOOT_PARAMETERS"])
}

/// The whole new line of u-boot-menu's settings. Without one, `u-boot-update` takes `/etc/kernel/cmdline`, else `ro
/// quiet`: a first line must begin with what it replaces.
fn u_boot_menu(facts: &MachineFacts, words: &str) -> String {
    const THEN: &str = "(then run u-boot-update and reboot)";
    let lines = u_boot_menu_lines(facts);
    let of_kernel = facts.text("etc/kernel/cmdline").unwrap_or_default().split_whitespace();
    let kept: Vec<&str> = of_kernel.filter(|word| !word.starts_with("root=")).collect();
    let kept = if kept.is_empty() { "ro quiet".to_owned() } else { kept.join(" ") };
    let first =
        ShellLine { path: "etc/default/u-boot", name: "U_BOOT_PARAMETERS", value: kept.as_str() };
    // What stands before the last line that replaces all doesn't count.
    let from = lines.iter().rposition(ShellLine::replaces).unwrap_or_default();
    let counting = lines.get(from..).unwrap_or_default();
    let line = counting.iter().rfind(|line| line.has_one_of(words)).or(counting.first());
    let line = line.unwrap_or(&first);
    // Files of packages are overwritten by the next version: a later file of the user counts more.
    let own = format!("{MENU_USER}latency.conf");
    let path = if line.path.starts_with(MENU_VENDOR) { own.as_str() } else { line.path };
    format!("{} {THEN}", ShellLine { path, ..*line }.with(words))
}

/// The parameters in `armbianEnv.txt`; of several lines, U-Boot takes the last.
fn extra_arguments(text: &str) -> Option<&str> {
    text.lines().rev().find_map(|line| line.trim().strip_prefix("extraargs=")).map(str::trim)
}

/// The whole new line of `armbianEnv.txt`, whose values have no quotes.
fn armbian(facts: &MachineFacts, words: &str) -> String {
    let text = facts.text(ARMBIAN).unwrap_or_default();
    let old = extra_arguments(text).unwrap_or_default().split_whitespace();
    let kept = old.filter(|word| !sets_again(word, words));
    let new: Vec<&str> = kept.chain(words.split_whitespace()).collect();
    format!("in /{ARMBIAN}: extraargs={} (then reboot)", new.join(" "))
}

const ARMBIAN: &str = "boot/armbianEnv.txt";

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
    let sets = |line: &&ShellLine<'_>| line.name == GRUB_DEFAULT && line.replaces();
    let line = lines.iter().rfind(|line| line.has_one_of(words));
    let line = line.or_else(|| lines.iter().rfind(sets));
    let none = ShellLine { path: "etc/default/grub", name: GRUB_DEFAULT, value: "" };
    let new = line.unwrap_or(&none).with(words);
    format!("{new} (then run {} and reboot)", grub_update(facts))
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
        BootLoader::UBootMenu => {
            let lines = u_boot_menu_lines(facts);
            format!("/{}", lines.last().map_or("etc/default/u-boot", |line| line.path))
        }
        BootLoader::Armbian => format!("/{ARMBIAN}"),
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
        BootLoader::UBootMenu => ", run u-boot-update, and reboot".to_owned(),
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
        BootLoader::UBootMenu => "run u-boot-update and reboot".to_owned(),
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

    fn with(mut facts: MachineFacts, path: &str, text: &str) -> MachineFacts {
        facts.files.insert(path.to_owned(), FileReading::Text(text.to_owned()));
        facts
    }

    #[test]
    fn armbian_has_its_parameters_in_one_line_without_quotes() {
        let env = "verbosity=1\nextraargs=old=1\nextraargs=cma=256M isolcpus=1";
        let board = facts(BootLoader::Armbian, ARMBIAN, env);
        assert_eq!(
            boot(&board, "isolcpus=3 nohz_full=3"),
            "in /boot/armbianEnv.txt: extraargs=cma=256M isolcpus=3 nohz_full=3 (then reboot)"
        );
        assert_eq!(
            boot_words(&board),
            [(
                "boot/armbianEnv.txt".to_owned(),
                vec!["cma=256M".to_owned(), "isolcpus=1".to_owned()]
            )]
        );
        let bare = facts(BootLoader::Armbian, ARMBIAN, "verbosity=1");
        assert_eq!(
            boot(&bare, "isolcpus=3"),
            "in /boot/armbianEnv.txt: extraargs=isolcpus=3 (then reboot)"
        );
        assert_eq!(
            boot_without(&board, "cma=256M"),
            "remove cma=256M from the kernel command line in /boot/armbianEnv.txt, and reboot"
        );
    }

    #[test]
    fn the_first_line_of_u_boot_menu_begins_with_what_it_replaces() {
        let menu = facts(BootLoader::UBootMenu, "etc/default/u-boot", "U_BOOT_TIMEOUT=\"5\"");
        assert_eq!(
            boot(&menu, "isolcpus=3"),
            "in /etc/default/u-boot: U_BOOT_PARAMETERS=\"ro quiet isolcpus=3\" (then run u-boot-update and reboot)"
        );
        let menu = with(menu, "etc/kernel/cmdline", "root=LABEL=x rw loglevel=3");
        assert!(boot(&menu, "isolcpus=3").contains("PARAMETERS=\"rw loglevel=3 isolcpus=3\""));
        assert!(is_pending(&with_line(menu.clone(), "ro"), "loglevel"));
    }

    #[test]
    fn the_last_file_of_u_boot_menu_counts() {
        let text = "U_BOOT_PARAMETERS=\"ro isolcpus=1\"";
        let menu = facts(BootLoader::UBootMenu, "etc/default/u-boot", text);
        assert_eq!(
            boot(&menu, "isolcpus=3"),
            "in /etc/default/u-boot: U_BOOT_PARAMETERS=\"ro isolcpus=3\" (then run u-boot-update and reboot)"
        );
        assert!(is_pending(&with_line(menu.clone(), "ro"), "isolcpus"));
        // A package's file replaces that line, and an update of the package would replace the file.
        let path = format!("{MENU_VENDOR}board.conf");
        let menu = with(menu, &path, "U_BOOT_PARAMETERS=\"ro console=ttyS2\"");
        assert!(!is_pending(&with_line(menu.clone(), "ro"), "isolcpus"));
        assert_eq!(
            boot(&menu, "isolcpus=3"),
            "in /etc/u-boot-menu/conf.d/latency.conf: U_BOOT_PARAMETERS=\"ro console=ttyS2 isolcpus=3\" (then run \
             u-boot-update and reboot)"
        );
        let path = format!("{MENU_USER}mine.conf");
        let menu = with(menu, &path, "U_BOOT_PARAMETERS=\"$U_BOOT_PARAMETERS nosmt\"");
        assert!(boot(&menu, "nosmt=force").contains(
            "in /etc/u-boot-menu/conf.d/mine.conf: U_BOOT_PARAMETERS=\"$U_BOOT_PARAMETERS nosmt=force\""
        ));
        assert!(
            boot_without(&menu, "nosmt")
                .ends_with("in /etc/u-boot-menu/conf.d/mine.conf, run u-boot-update, and reboot")
        );
    }

    fn with_line(mut facts: MachineFacts, line: &str) -> MachineFacts {
        line.clone_into(&mut facts.environment.kernel.cmdline);
        facts
    }
}
