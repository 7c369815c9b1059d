//! GRUB with a generated `grub.cfg`, which is left alone: our entry goes into `custom.cfg`, which Debian's
//! and most others' `grub.cfg` reads at its end. The entry is the old kernel's with our files in it.

use std::path::{Path, PathBuf};

use super::{
    Wish, below,
    change::{Change, Content},
    initrd,
    layout::{Chosen, folder_with, located},
    marked_block::{Mark, with_block, without_block},
    parameters::{MARK, Words, entry_title, without_parameters},
};
use crate::error::LabError;

const FOLDERS: [&str; 4] = ["boot/grub", "boot/grub2", "grub", "grub2"];

/// A menu entry.
#[derive(Clone, Debug, Default, PartialEq)]
struct Entry {
    title: String,
    id: Option<String>,
    body: Vec<String>,
    /// Number at the top level; entries of submenus have their submenu's.
    number: usize,
    nested: bool,
}

impl Entry {
    fn line(&self, commands: &[&str]) -> Option<Vec<&str>> {
        let words = |line: &'_ String| -> bool {
            line.split_whitespace().next().is_some_and(|word| commands.contains(&word))
        };
        self.body.iter().find(|line| words(line)).map(|line| line.split_whitespace().collect())
    }
}

const LINUX: [&str; 3] = ["linux", "linuxefi", "linux16"];
const INITRD: [&str; 3] = ["initrd", "initrdefi", "initrd16"];

fn folder(root: &Path) -> Result<PathBuf, LabError> {
    folder_with(root, &FOLDERS, "grub.cfg")
}

fn read(root: &Path, folder: &Path) -> Result<String, LabError> {
    below::read_text(root, &folder.join("grub.cfg"))
}

fn custom(root: &Path, folder: &Path) -> Result<String, LabError> {
    let path = folder.join("custom.cfg");
    if below::is_file(root, &path) { below::read_text(root, &path) } else { Ok(String::new()) }
}

/// What GRUB would start.
pub(super) fn chosen(root: &Path) -> Result<Chosen, LabError> {
    let folder = folder(root)?;
    let main = read(root, &folder)?;
    let custom = custom(root, &folder)?;
    let entry = default_entry(&[&main, &custom]).ok_or_else(|| no_entry(&folder))?;
    let linux = entry.line(&LINUX).ok_or_else(|| no_entry(&folder))?;
    let boot = folder.parent().unwrap_or(root).to_owned();
    let image = linux.get(1).copied().unwrap_or_default();
    let initrd =
        entry.line(&INITRD).and_then(|words| words.get(1).map(|name| located(root, &boot, name)));
    Ok(Chosen {
        image: located(root, &boot, image),
        initrd,
        device_tree: None,
        cmdline: linux.get(2..).unwrap_or_default().join(" "),
    })
}

fn no_entry(folder: &Path) -> LabError {
    LabError::Refused(format!(
        "{} has no menu entry with a `linux` line that rtscope could copy",
        folder.join("grub.cfg").display()
    ))
}

/// The entry of the last `set default=` that names one, else the first.
fn default_entry(texts: &[&str]) -> Option<Entry> {
    let mut all: Vec<Entry> = Vec::new();
    let mut default = "0".to_owned();
    let mut number = 0;
    for text in texts {
        let (entries, asked) = entries(text, &mut number);
        all.extend(entries);
        default = asked.unwrap_or(default);
    }
    let wanted = |entry: &&Entry| match default.parse::<usize>() {
        Ok(number) => entry.number == number && !entry.nested,
        // `submenu>entry` names the entry last.
        Err(_) => {
            let name = default.rsplit('>').next().unwrap_or(&default);
            entry.title == name || entry.id.as_deref() == Some(name)
        }
    };
    all.iter().find(wanted).or(all.first()).cloned()
}

/// Entries of a text, and its last `set default=` that isn't computed.
fn entries(text: &str, number: &mut usize) -> (Vec<Entry>, Option<String>) {
    let mut found = Vec::new();
    let mut default = None;
    let mut open: Option<(Entry, usize)> = None;
    let mut depth = 0_usize;
    let mut submenus: Vec<usize> = Vec::new();
    for line in text.lines().map(str::trim).filter(|line| !line.starts_with('#')) {
        let starts = line.ends_with('{');
        if let Some(rest) = line.strip_prefix("menuentry ").filter(|_| starts && open.is_none()) {
            let nested = !submenus.is_empty();
            let entry = Entry {
                title: quoted(rest).unwrap_or_default(),
                id: id_of(rest),
                number: *number,
                nested,
                body: Vec::new(),
            };
            open = Some((entry, depth));
            if !nested {
                *number += 1;
            }
        } else if line.starts_with("submenu ") && starts {
            if submenus.is_empty() {
                *number += 1;
            }
            submenus.push(depth);
        } else if let Some(value) =
            line.strip_prefix("set default=").filter(|value| !value.contains('$'))
        {
            default = Some(value.trim_matches(['"', '\'']).to_owned());
        }
        if line.ends_with('{') {
            depth += 1;
        } else if line == "}" {
            depth = depth.saturating_sub(1);
            if open.as_ref().is_some_and(|(_, at)| *at == depth) {
                found.extend(open.take().map(|(entry, _)| entry));
            }
            if submenus.last() == Some(&depth) {
                submenus.pop();
            }
            continue;
        }
        if let Some((entry, _)) = open.as_mut().filter(|_| !line.starts_with("menuentry ")) {
            entry.body.push(line.to_owned());
        }
    }
    (found, default)
}

fn quoted(text: &str) -> Option<String> {
    let mark = text.chars().find(|c| ['\'', '"'].contains(c))?;
    text.split(mark).nth(1).map(str::to_owned)
}

fn id_of(text: &str) -> Option<String> {
    let at = ["$menuentry_id_option ", "--id "]
        .iter()
        .find_map(|key| text.find(key).map(|at| at + key.len()))?;
    let rest = &text[at..];
    if rest.starts_with(['\'', '"']) {
        quoted(rest)
    } else {
        rest.split_whitespace().next().map(str::to_owned)
    }
}

pub(super) fn changes(wish: &Wish<'_>) -> Result<Vec<Change>, LabError> {
    let folder = folder(wish.root)?;
    let main = read(wish.root, &folder)?;
    refuse_without_custom(
        &folder,
        &main,
        "install a Debian package instead (`rtscope kernel package`)",
    )?;
    let old_custom = custom(wish.root, &folder)?;
    let entry =
        default_entry(&[&main, &without_block(&old_custom)]).ok_or_else(|| no_entry(&folder))?;
    let linux = entry.line(&LINUX).ok_or_else(|| no_entry(&folder))?;
    let old = linux.get(1).copied().unwrap_or_default();
    // As the boot loader sees it: /boot/ or, where that is a partition of its own, /.
    let seen = old.rsplit_once('/').map_or("", |(folder, _)| folder);
    let boot = folder.parent().unwrap_or(wish.root);
    let release = wish.release();
    let mut changes = Vec::new();
    let mut copy = |from: Option<PathBuf>, name: String| {
        if let Some(from) = from {
            changes.push(Change::File { from: Content::Copy(from), to: boot.join(name) });
        }
    };
    copy(Some(wish.kernel.vmlinuz()), format!("vmlinuz-{release}"));
    copy(wish.kernel.config(), format!("config-{release}"));
    let map = wish.kernel.manifest.system_map.as_ref().map(|path| wish.kernel.dir.join(path));
    copy(map, format!("System.map-{release}"));
    let old_initrd = entry
        .line(&INITRD)
        .and_then(|words| words.get(1).map(|name| located(wish.root, boot, name)));
    let initrd = initrd(wish, old_initrd.as_deref())?;
    let has_initrd = initrd.is_some();
    let to = boot.join(format!("initrd.img-{release}"));
    changes.extend(initrd.map(|from| Change::File { from, to }));
    // What was the default stays so beside a kernel that boots once.
    let kept = if wish.once { old_custom } else { without_block(&old_custom) };
    let text = with_block(&kept, &wish.title(), &block(wish, &entry, seen, has_initrd)?);
    changes.push(custom_with(wish.root, &folder, text));
    Ok(changes)
}

/// The change that writes `custom.cfg`.
fn custom_with(root: &Path, folder: &Path, text: String) -> Change {
    let path = folder.join("custom.cfg");
    match below::is_file(root, &path) {
        true => Change::Replace { path, text, mark: Mark::Block },
        false => Change::File { from: Content::Text(text), to: path },
    }
}

/// Refuses a menu that doesn't read the file that our entry is in.
fn refuse_without_custom(folder: &Path, main: &str, instead: &str) -> Result<(), LabError> {
    if main.contains("custom.cfg") {
        return Ok(());
    }
    Err(LabError::Refused(format!(
        "{} doesn't read custom.cfg: {instead}, or make /etc/grub.d/41_custom executable and run update-grub",
        folder.join("grub.cfg").display()
    )))
}

/// A copy of the default entry with other words.
pub(super) fn with_parameters(root: &Path, words: &Words<'_>) -> Result<Vec<Change>, LabError> {
    let folder = folder(root)?;
    let main = read(root, &folder)?;
    refuse_without_custom(
        &folder,
        &main,
        "write the parameters into GRUB_CMDLINE_LINUX_DEFAULT of /etc/default/grub and run update-grub",
    )?;
    let old = without_parameters(&custom(root, &folder)?);
    let entry = default_entry(&[&main, &old]).ok_or_else(|| no_entry(&folder))?;
    entry.line(&LINUX).ok_or_else(|| no_entry(&folder))?;
    let title = entry_title(&entry.title.replace('\'', ""));
    let mut body = format!("menuentry '{title}' --id {MARK} {{\n");
    for line in &entry.body {
        let parts: Vec<&str> = line.split_whitespace().collect();
        match parts.first() {
            Some(first) if LINUX.contains(first) => {
                let image = parts.get(1).copied().unwrap_or_default();
                let rest = words.on(&parts.get(2..).unwrap_or_default().join(" "));
                body += &format!("\t{first} {image} {rest}\n");
            }
            Some(&"echo") => {}
            _ => body += &format!("\t{line}\n"),
        }
    }
    body += &format!("}}\n{}", as_default(MARK));
    let text = with_block(&old, &words.title(), &body);
    Ok(vec![custom_with(root, &folder, text)])
}

/// Makes an entry the default, where none was chosen for this boot alone. GRUB falls back to the first entry when it can't
/// load this one.
fn as_default(id: &str) -> String {
    format!("if [ \"${{boot_once}}\" != true ]; then\n\tset default={id}\n\tset fallback=0\nfi\n")
}

/// Our entry: the old one's lines with our files.
fn block(wish: &Wish<'_>, entry: &Entry, seen: &str, has_initrd: bool) -> Result<String, LabError> {
    let release = wish.release();
    let mut text = format!("menuentry 'Linux {release} (rtscope)' --id {} {{\n", wish.mark());
    for line in &entry.body {
        let words: Vec<&str> = line.split_whitespace().collect();
        let first = words.first().copied().unwrap_or_default();
        if LINUX.contains(&first) {
            let line = wish.line(&words.get(2..).unwrap_or_default().join(" "))?;
            text += &format!("\t{first} {seen}/vmlinuz-{release} {line}\n");
        } else if INITRD.contains(&first) {
            if has_initrd {
                text += &format!("\t{first} {seen}/initrd.img-{release}\n");
            }
        } else if first != "echo" {
            text += &format!("\t{line}\n");
        }
    }
    text += "}\n";
    if !wish.once {
        text += &as_default(&wish.mark());
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    const DEBIAN: &str = r#"
if [ "${next_entry}" ] ; then
   set default="${next_entry}"
else
   set default="0"
fi
menuentry 'Debian GNU/Linux' --class debian $menuentry_id_option 'gnulinux-simple-1' {
	load_video
	if [ x$grub_platform = xxen ]; then insmod xzio; fi
	echo	'Loading Linux 6.1 ...'
	linux	/boot/vmlinuz-6.1.0-9-amd64 root=UUID=1 ro  quiet
	initrd	/boot/initrd.img-6.1.0-9-amd64
}
submenu 'Advanced options' $menuentry_id_option 'gnulinux-advanced-1' {
	menuentry 'Debian, with Linux 6.1.0-8' $menuentry_id_option 'gnulinux-6.1.0-8' {
		linux	/boot/vmlinuz-6.1.0-8-amd64 root=UUID=1 ro single
	}
}
menuentry "Other" --id other {
	linux /vmlinuz-other root=/dev/sda3
}
"#;

    fn image(default: &str) -> String {
        let text = format!("{DEBIAN}\nset default={default}\n");
        default_entry(&[&text]).expect("an entry").line(&LINUX).expect("a kernel")[1].to_owned()
    }

    #[test]
    fn the_default_entry_is_found_by_number_title_and_id() {
        assert_eq!(image("0"), "/boot/vmlinuz-6.1.0-9-amd64");
        assert_eq!(image("2"), "/vmlinuz-other");
        assert_eq!(
            image("\"gnulinux-advanced-1>gnulinux-6.1.0-8\""),
            "/boot/vmlinuz-6.1.0-8-amd64"
        );
        assert_eq!(image("other"), "/vmlinuz-other");
        assert_eq!(image("\"gone\""), "/boot/vmlinuz-6.1.0-9-amd64", "GRUB takes the first then");
        assert!(default_entry(&[""]).is_none());
    }
}
