//! The items of the documents, as `xtask/documents.toml` lists them.

use std::collections::BTreeSet;

use anyhow::{Context, Result, bail, ensure};
use serde::Deserialize;

/// The whole file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Items {
    #[serde(rename = "command")]
    pub(super) commands: Vec<Command>,
    #[serde(rename = "document")]
    pub(super) documents: Vec<Document>,
}

/// A command line that is run once, whatever the number of items that read what it brings.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Command {
    pub(super) name: String,
    /// A line for the shell.
    pub(super) line: String,
    /// The commands that have to run before, because this one reads what they wrote.
    #[serde(default)]
    pub(super) after: Vec<String>,
    /// The exit codes that are all right.
    #[serde(default = "zero")]
    pub(super) codes: Vec<i32>,
    /// How long it may take, in seconds.
    #[serde(default = "a_minute")]
    pub(super) limit: u64,
}

fn zero() -> Vec<i32> {
    vec![0]
}

fn a_minute() -> u64 {
    60
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Document {
    pub(super) name: String,
    /// The guide page that follows the document step by step, from `docs`.
    pub(super) walk: Option<String>,
    #[serde(rename = "item")]
    pub(super) items: Vec<Item>,
}

/// Something that a document does or prints, and where ours comes from: exactly one of `pairs`, `values`, `says`,
/// `file`, `board` and `lacks`.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Item {
    pub(super) item: String,
    pub(super) command: Option<String>,
    /// What the document shows, where it isn't in the pairs.
    #[serde(default)]
    pub(super) theirs: String,
    /// Why ours differs, where it isn't in the pairs.
    #[serde(default)]
    pub(super) why: String,
    /// Pairs in the `published` arrays of the command's JSON document.
    pub(super) pairs: Option<Pairs>,
    /// Values in the command's JSON document.
    #[serde(default)]
    pub(super) values: Vec<Pointed>,
    /// How the values follow on each other.
    pub(super) order: Option<Order>,
    /// The first line of the command's output that contains this text is ours.
    pub(super) says: Option<String>,
    /// A file that the command writes.
    pub(super) file: Option<String>,
    /// Why it takes a board, or something else that isn't here.
    pub(super) board: Option<String>,
    /// No figure of ours, with a reason that contains this text, means that it takes a board.
    pub(super) board_if: Option<String>,
    /// No figure of ours, with a reason that contains this text, is what was found: another result than theirs.
    pub(super) differs_if: Option<String>,
    /// What rtscope lacks.
    pub(super) lacks: Option<String>,
}

/// Which pairs: those that agree in every field that is here. A pair of a single thread or under a condition needs
/// its field.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Pairs {
    pub(super) subject: Option<String>,
    pub(super) kernel: Option<String>,
    pub(super) policy: Option<String>,
    pub(super) load: Option<String>,
    pub(super) condition: Option<String>,
    pub(super) thread: Option<u64>,
    /// The statistics; all without it.
    #[serde(default)]
    pub(super) statistics: Vec<String>,
}

/// A value in a JSON document.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Pointed {
    pub(super) name: String,
    /// Keys and indexes between slashes; `KEY=TEXT` is the first object of an array whose KEY is TEXT.
    pub(super) at: String,
    #[serde(default)]
    pub(super) unit: Unit,
    /// The document's figure, in the base of the unit.
    pub(super) theirs: Option<f64>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Unit {
    /// Text, a switch, or a number as it is.
    #[default]
    Plain,
    Ns,
    Hz,
    Share,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Order {
    Rising,
    Falling,
    Same,
}

impl Items {
    pub(super) fn parse(text: &str) -> Result<Items> {
        let items: Items = toml::from_str(text)?;
        let mut known = BTreeSet::new();
        for command in &items.commands {
            let name = command.name.as_str();
            ensure!(command.line.contains("rtscope "), "{name} doesn't run rtscope");
            for after in &command.after {
                ensure!(
                    known.contains(after.as_str()),
                    "{name} stands before {after}, which it needs"
                );
            }
            ensure!(known.insert(name), "there are two commands {name}");
        }
        let mut used = BTreeSet::new();
        for document in &items.documents {
            for item in &document.items {
                item.check(&known).with_context(|| format!("{}: {}", document.name, item.item))?;
                used.extend(item.command.as_deref());
            }
        }
        used.extend(items.commands.iter().flat_map(Command::needs));
        if let Some(idle) = known.difference(&used).next() {
            bail!("no item reads the command {idle}");
        }
        Ok(items)
    }

    pub(super) fn command(&self, name: &str) -> Option<&Command> {
        self.commands.iter().find(|command| command.name == name)
    }

    /// Leaves the items that a word is in: in the document's name, the item or its command's line.
    pub(super) fn only(&mut self, word: &str) {
        let word = word.to_lowercase();
        let is_in = |text: &str| text.to_lowercase().contains(&word);
        for document in &mut self.documents {
            if is_in(&document.name) {
                continue;
            }
            document.items.retain(|item| {
                let line = item.command.iter().flat_map(|name| {
                    self.commands.iter().filter(move |command| command.name == *name)
                });
                is_in(&item.item)
                    || line.into_iter().any(|one| is_in(&one.line) || is_in(&one.name))
            });
        }
        self.documents.retain(|document| !document.items.is_empty());
    }

    /// The commands that the items need, in their order.
    pub(super) fn needed(&self) -> Vec<&Command> {
        let items = self.documents.iter().flat_map(|document| &document.items);
        let mut names: BTreeSet<&str> = items.filter_map(|item| item.command.as_deref()).collect();
        // What a command needs stands before it.
        for command in self.commands.iter().rev() {
            if names.contains(command.name.as_str()) {
                names.extend(command.needs());
            }
        }
        self.commands.iter().filter(|command| names.contains(command.name.as_str())).collect()
    }
}

impl Command {
    fn needs(&self) -> impl Iterator<Item = &str> {
        self.after.iter().map(String::as_str)
    }
}

impl Item {
    fn check(&self, commands: &BTreeSet<&str>) -> Result<()> {
        let read = [
            self.pairs.is_some(),
            !self.values.is_empty(),
            self.says.is_some(),
            self.file.is_some(),
        ];
        let read = read.into_iter().filter(|one| *one).count();
        let absent = usize::from(self.board.is_some()) + usize::from(self.lacks.is_some());
        ensure!(read + absent == 1, "one of pairs, values, says, file, board, lacks");
        ensure!(absent == 1 || self.command.is_some(), "without a command");
        if let Some(command) = &self.command {
            ensure!(commands.contains(command.as_str()), "there is no command {command}");
        }
        ensure!(self.order.is_none() || self.values.len() > 1, "an order takes two values");
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const COMMANDS: &str = "[[command]]\nname = 'a'\nline = 'rtscope run quick'\n\
        [[command]]\nname = 'b'\nline = 'rtscope plot a'\nafter = ['a']\n\
        [[command]]\nname = 'c'\nline = 'rtscope drift'\n";

    fn items(more: &str) -> Result<Items> {
        let document = "[[document]]\nname = 'X'\n\
            [[document.item]]\nitem = 'a plot'\ncommand = 'b'\nfile = 'x.svg'\n\
            [[document.item]]\nitem = 'sleeps'\ncommand = 'c'\nsays = 'falls behind'\n";
        Items::parse(&format!("{COMMANDS}{document}{more}"))
    }

    #[test]
    fn the_shipped_items_are_sound_and_name_every_plan_of_the_documents() {
        let text = std::fs::read_to_string(crate::root().join(super::super::FILE)).expect("a file");
        let items = Items::parse(&text).unwrap_or_else(|error| panic!("{error:#}"));
        assert_eq!(items.documents.len(), 5);
        let lines: Vec<&str> = items.commands.iter().map(|one| one.line.as_str()).collect();
        let guide = std::fs::read_to_string(crate::root().join("docs/guide/published.md"));
        let guide = guide.expect("the guide");
        let table = guide.split("## Five documents").nth(1).expect("its table");
        let table = table.split("\n\n").nth(1).expect("its rows");
        let names = table.split('`').skip(1).step_by(2);
        let verbs = ["stat", "wave sweep", "throughput"];
        for name in names.filter(|name| !verbs.contains(name)) {
            let is_there = lines.iter().any(|line| line.split([' ', '=']).any(|word| word == name));
            assert!(is_there, "no command runs {name}");
        }
    }

    #[test]
    fn a_word_leaves_its_items_and_what_they_need() {
        let mut all = items("").expect("sound");
        all.only("PLOT");
        let needed: Vec<&str> = all.needed().iter().map(|one| one.name.as_str()).collect();
        assert_eq!(needed, ["a", "b"]);
        let mut all = items("").expect("sound");
        all.only("drift");
        assert_eq!(all.needed().len(), 1, "the line has the word");
        all.only("nothing");
        assert!(all.documents.is_empty());
    }

    #[test]
    fn mistakes_are_refused() {
        for more in [
            "[[document.item]]\nitem = 'x'\ncommand = 'd'\nsays = 'y'\n",
            "[[document.item]]\nitem = 'x'\nsays = 'y'\n",
            "[[document.item]]\nitem = 'x'\nboard = 'y'\nlacks = 'z'\n",
            "[[document.item]]\nitem = 'x'\ncommand = 'a'\n",
            "[[command]]\nname = 'idle'\nline = 'rtscope ps'\n",
            "[[command]]\nname = 'a'\nline = 'rtscope ps'\n",
        ] {
            items(more).expect_err(more);
        }
    }
}
