//! A card that others wrote: whatever its links, pipes and journals say, nothing outside of it is read or changed.

use std::{
    fs::Permissions,
    os::unix::fs::{PermissionsExt, chown, symlink},
};

use super::*;
use crate::install::journal::open_part;

/// A card in a room with files of this machine.
struct Card {
    room: tempfile::TempDir,
    root: PathBuf,
}

const SECRET: &str = "secret of this machine";

impl Card {
    fn new(layout: BootLayout) -> Card {
        let room = tempfile::tempdir().expect("a folder");
        let root = room.path().join("card");
        old_system(&root, layout);
        write(room.path(), "host/file", SECRET);
        write(room.path(), "host/etc/passwd", SECRET);
        fs::create_dir_all(room.path().join("host/var/lib")).expect("made");
        Card { room, root }
    }

    fn host(&self) -> PathBuf {
        self.room.path().join("host")
    }

    fn link(&self, name: &str, target: impl AsRef<Path>) {
        let path = self.root.join(name);
        let _ = fs::remove_file(&path).or_else(|_| fs::remove_dir_all(&path));
        fs::create_dir_all(path.parent().expect("a folder")).expect("made");
        symlink(target, path).expect("linked");
    }

    fn set(&self, layout: BootLayout) -> Result<ParametersSet, LabError> {
        set_parameters(&self.root, layout, "isolcpus=1", &mut Steps::default(), &mut quiet)
    }

    fn back(&self) -> Result<Option<String>, LabError> {
        remove_parameters(&self.root, &mut Steps::default(), &mut quiet)
    }

    /// The machine is as it was, and the card has nothing of it.
    fn check(&self, case: &str) {
        let host = snapshot(&self.host());
        let files: Vec<&Path> = host.keys().map(PathBuf::as_path).collect();
        let expected = ["etc", "etc/passwd", "file", "var", "var/lib"].map(Path::new);
        assert_eq!(files, expected, "{case}");
        for path in ["etc/passwd", "file"] {
            assert_eq!(host[Path::new(path)].1, SECRET.as_bytes(), "{case}: {path}");
        }
        let mut open = vec![self.root.clone()];
        while let Some(folder) = open.pop() {
            for path in fs::read_dir(folder).expect("read").flatten().map(|entry| entry.path()) {
                let there = path.symlink_metadata().expect("there");
                if there.is_dir() {
                    open.push(path);
                } else if there.is_file() {
                    let text =
                        String::from_utf8_lossy(&fs::read(&path).expect("a file")).into_owned();
                    assert!(!text.contains(SECRET), "{case}: {} has it", path.display());
                }
            }
        }
    }
}

/// A journal of an installation that didn't end, with one line of its own.
fn journal(root: &Path, line: &str) {
    let heading = Heading {
        kernel: crate::cache::Identity::default(),
        layout: BootLayout::RaspberryPi,
        parameters: Some("isolcpus=1".to_owned()),
    };
    let first = serde_json::to_string(&JournalLine::Begin(heading)).expect("a line");
    let name = "var/lib/rtscope/kernels/0001-parameters/journal.jsonl";
    write(root, name, &format!("{first}\n{line}\n"));
}

#[test]
fn a_journal_of_a_card_names_nothing_outside_of_it() {
    for (what, path) in [
        ("new", "HOST"),
        ("new", "../host"),
        ("new", "etc/../../host/file"),
        ("new", ""),
        ("folder", "../host/var/lib"),
        ("above", "HOST/var/lib"),
        ("replaced", "../host/file"),
    ] {
        let card = Card::new(BootLayout::RaspberryPi);
        let path = path.replace("HOST", card.host().to_str().expect("text"));
        let saved = "\"saved\":\"saved/0\",\"sha256\":\"\",\"mark\":\"block\"";
        journal(&card.root, &format!("{{\"what\":\"{what}\",\"path\":\"{path}\",{saved}}}"));
        write(&card.root, "var/lib/rtscope/kernels/0001-parameters/saved/0", "evil");
        let case = format!("{what} {path}");
        let refused = card.back().expect_err(&case).to_string();
        assert!(refused.contains("0001-parameters") && refused.contains("outside"), "{refused}");
        assert!(card.set(BootLayout::RaspberryPi).is_err(), "{case}");
        assert!(rollback(&card.root, None, &mut Steps::default(), &mut quiet).is_err(), "{case}");
        assert!(card.root.join("boot/firmware/config.txt").is_file(), "{case}");
        card.check(&case);
    }
}

/// Root restores files from a journal of this machine.
#[test]
fn a_journal_that_others_can_change_is_found() {
    if !rtscope_testing::skip::root_or_skip("a_journal_that_others_can_change_is_found") {
        return;
    }
    let card = Card::new(BootLayout::RaspberryPi);
    let dir = card.root.join("var/lib/rtscope/kernels/0001-parameters");
    journal(&card.root, "{\"what\":\"done\"}");
    write(&card.root, "var/lib/rtscope/kernels/0001-parameters/saved/0", "old");
    assert_eq!(open_part(&dir).expect("looked at"), None);
    for name in ["", "..", "../..", "journal.jsonl", "saved", "saved/0"] {
        let path = dir.join(name);
        let mode = path.metadata().expect("there").permissions();
        for open in [0o757, 0o775] {
            let group = if open == 0o775 { 65_534 } else { 0 };
            chown(&path, None, Some(group)).expect("given");
            fs::set_permissions(&path, Permissions::from_mode(open)).expect("opened");
            assert!(open_part(&dir).expect("looked at").is_some(), "{name} {open:o}");
            fs::set_permissions(&path, mode.clone()).expect("closed");
        }
        chown(&path, Some(65_534), Some(0)).expect("given");
        assert!(open_part(&dir).expect("looked at").is_some(), "{name}");
        chown(&path, Some(0), None).expect("taken back");
        assert_eq!(open_part(&dir).expect("looked at"), None, "{name}");
    }
}

#[test]
fn a_saved_file_is_one_of_its_journal() {
    let folder = "var/lib/rtscope/kernels/0001-parameters";
    for (saved, link, target) in [
        ("../../../../../../../host/file", "none", "host"),
        ("saved/file", "saved", "host"),
        ("saved/0", "saved/0", "host/file"),
    ] {
        let card = Card::new(BootLayout::RaspberryPi);
        let line = format!(
            "{{\"what\":\"replaced\",\"path\":\"boot/firmware/cmdline.txt\",\"saved\":\"{saved}\",\"sha256\":\"\",\"mark\":\"block\"}}"
        );
        journal(&card.root, &line);
        card.link(&format!("{folder}/{link}"), card.room.path().join(target));
        assert!(card.back().is_err(), "{saved}");
        card.check(saved);
    }
}

#[test]
fn links_of_a_card_do_not_lead_to_this_machine() {
    let layout = BootLayout::RaspberryPi;
    let part = "boot/firmware/config.txt.rtscope-part";
    let own = "boot/firmware/rtscope-parameters.txt.rtscope-part";
    let first = "var/lib/rtscope/kernels/0001-parameters";
    for (name, target) in [
        ("boot/firmware/config.txt", "host/file"),
        ("boot/firmware/cmdline.txt", "host/file"),
        ("boot/firmware/rtscope-parameters.txt", "host/file"),
        (part, "host/file"),
        (own, "host/file"),
        ("var", "host/var"),
        ("var/lib/rtscope", "host/etc"),
        ("var/lib/rtscope/kernels", "host/etc"),
        (first, "host/etc"),
        (&format!("{first}/saved"), "host/etc"),
        (&format!("{first}/saved/0"), "host/file"),
        (&format!("{first}/journal.jsonl"), "host/file"),
    ] {
        for up in [false, true] {
            let card = Card::new(layout);
            let above = "../".repeat(name.matches('/').count() + 1);
            match up {
                true => card.link(name, format!("{above}{target}")),
                false => card.link(name, card.room.path().join(target)),
            }
            let done = card.set(layout);
            card.check(&format!("{name} -> {target}: {done:?}"));
            if done.is_ok() {
                let _ = card.back();
                card.check(&format!("{name} -> {target}, back"));
            }
        }
    }
}

#[test]
fn a_prefix_does_not_lead_out_of_a_card() {
    let card = Card::new(BootLayout::RaspberryPi);
    write(&card.host(), "kernel8.img", "image");
    write(&card.host(), "bcm2711-rpi-4-b.dtb", "tree");
    write(&card.host(), "cmdline.txt", SECRET);
    for prefix in ["../../../host/".to_owned(), format!("{}/", card.host().display())] {
        write(&card.root, "boot/firmware/config.txt", &format!("os_prefix={prefix}\n"));
        let done = card.set(BootLayout::RaspberryPi).expect("set");
        assert!(done.chosen.image.starts_with(&card.root), "{:?}", done.chosen);
        assert!(!done.chosen.cmdline.contains(SECRET), "{:?}", done.chosen);
        assert!(!card.host().join("rtscope-parameters.txt").exists());
        card.back().expect("back");
    }
}

#[test]
fn a_pipe_in_a_file_s_place_is_an_error() {
    for (layout, name) in [
        (BootLayout::RaspberryPi, "boot/firmware/cmdline.txt"),
        (BootLayout::RaspberryPi, "var/lib/rtscope/kernels/0001-x/journal.jsonl"),
        (BootLayout::Grub, "boot/grub/custom.cfg"),
    ] {
        let card = Card::new(layout);
        let path = card.root.join(name);
        let _ = fs::remove_file(&path);
        fs::create_dir_all(path.parent().expect("a folder")).expect("made");
        let made = std::process::Command::new("mkfifo").arg(&path).status();
        assert!(made.is_ok_and(|status| status.success()));
        let outcome = card.set(layout);
        assert!(layout == BootLayout::Grub || outcome.is_err(), "{name}: {outcome:?}");
        card.check(name);
    }
}

/// As boards with a read-only root have it.
#[test]
fn links_inside_of_a_card_lead_where_its_system_follows_them() {
    let (card, layout) = (Card::new(BootLayout::RaspberryPi), BootLayout::RaspberryPi);
    fs::create_dir_all(card.root.join("data")).expect("made");
    fs::rename(card.root.join("var"), card.root.join("data/var")).expect("moved");
    symlink("/data/var", card.root.join("var")).expect("linked");
    write(&card.root, "data/config.txt", "dtparam=audio=on\n");
    card.link("boot/firmware/config.txt", "/data/config.txt");
    let first = card.set(layout).expect("set");
    assert!(first.chosen.cmdline.ends_with("isolcpus=1"), "{first:?}");
    assert!(card.root.join("data/var/lib/rtscope/kernels").is_dir());
    let text = fs::read_to_string(card.root.join("data/config.txt")).expect("a file");
    assert!(text.contains("cmdline=rtscope-parameters.txt"), "{text}");
    assert!(card.root.join("boot/firmware/config.txt").is_symlink(), "the link stays");
    assert_eq!(card.back().expect("back").as_deref(), Some("isolcpus=1"));
    let text = fs::read_to_string(card.root.join("data/config.txt")).expect("a file");
    assert_eq!(text, "dtparam=audio=on\n");
    assert!(!card.root.join("data/var/lib/rtscope").exists(), "nothing of ours stays");
    card.check("inside");
}
