//! The page: a table for each document, and how many rows have which verdict.

use std::fmt::Write as _;

use super::{
    items::{Document, Items},
    reading::{Row, Verdict},
};

/// When, where and with what the rows were made.
#[derive(Debug)]
pub(super) struct Head {
    pub(super) date: String,
    pub(super) kernel: String,
    pub(super) cpus: usize,
    pub(super) minutes: f64,
}

/// How many rows have which verdict: works, differs, board, missing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Counts([usize; 4]);

impl Counts {
    pub(super) fn of<'a>(rows: impl IntoIterator<Item = &'a Row>) -> Counts {
        let mut counts = Counts::default();
        for row in rows {
            let index = match row.verdict {
                Verdict::Works => 0,
                Verdict::Differs(_) => 1,
                Verdict::Board(_) => 2,
                Verdict::Missing(_) => 3,
            };
            counts.0[index] += 1;
        }
        counts
    }

    pub(super) fn missing(self) -> usize {
        self.0[3]
    }

    fn cells(self) -> String {
        let [works, differs, board, missing] = self.0;
        let all: usize = self.0.iter().sum();
        format!("{all} | {works} | {differs} | {board} | {missing}")
    }
}

impl std::fmt::Display for Counts {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let [works, differs, board, missing] = self.0;
        write!(f, "{works} work, {differs} differ, {board} need a board, {missing} are missing")
    }
}

/// The page. `rows` are those of the items, document by document.
pub(super) fn page(items: &Items, rows: &[Vec<Row>], head: &Head) -> String {
    let Head { date, kernel, cpus, minutes } = head;
    let mut text = format!(
        "# The five documents, item by item\n\n\
         `cargo xtask documents` runs every command of this page and writes it.\n\
         This one was made on {date} in {minutes:.0} minutes, on {cpus} CPUs with Linux {kernel}.\n\
         The lab's guests had the kernels that their commands name.\n\
         rtscope doesn't rebuild a kernel or rerun a guest that is in the cache. Such a row shows the output of the first run.\n\
         The folder `fixtures` of some commands is `fixtures/documents` of the repository: run them beside a copy.\n\n\
         The commands are short: `--scale` shortens plans that take up to 8 hours.\n\
         \"Ours\" is read from what the command wrote.\n\
         A row \"works\" if each of our figures is within a factor of two of theirs.\n\
         Otherwise it \"differs\", with the factor and the reason.\n\
         A row without paired figures \"works\" if the command wrote the expected output.\n\
         [Published figures](guide/published.md) explains how rtscope pairs them.\n\n\
         The name of a document leads to a page that follows it step by step: what its authors did, our command, and \
         why figures differ.\n\n\
         | document | items | work | differ | need a board | missing |\n|---|---|---|---|---|---|\n"
    );
    for (document, rows) in items.documents.iter().zip(rows) {
        let _ = writeln!(text, "| {} | {} |", linked(document), Counts::of(rows).cells());
    }
    let _ = writeln!(text, "| all | {} |", Counts::of(rows.iter().flatten()).cells());
    for (document, rows) in items.documents.iter().zip(rows) {
        let _ = write!(text, "\n## {}\n\n", document.name);
        text.push_str(
            "| item | command | their figure | ours | verdict |\n|---|---|---|---|---|\n",
        );
        for (item, row) in document.items.iter().zip(rows) {
            let command = item.command.as_ref().and_then(|name| items.command(name));
            let command = command.map_or_else(String::new, |one| format!("`{}`", cell(&one.line)));
            let (theirs, ours) = (cell(&row.theirs), cell(&row.ours));
            let verdict = cell(&row.verdict.to_string());
            let _ = writeln!(
                text,
                "| {} | {command} | {theirs} | {ours} | {verdict} |",
                cell(&item.item)
            );
        }
    }
    text
}

/// The name of a document in a cell, which leads to its walk if there is one.
fn linked(document: &Document) -> String {
    let name = cell(&document.name);
    document.walk.as_ref().map_or_else(|| name.clone(), |walk| format!("[{name}]({walk})"))
}

/// A text in a cell of a table.
fn cell(text: &str) -> String {
    text.replace('|', "\\|").split_whitespace().collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_item_has_its_row_and_every_verdict_is_counted() {
        let items = "[[command]]\nname = 'a'\nline = 'rtscope export a --format cyclictest | sort'\n\
            [[document]]\nname = 'A course'\nwalk = 'walks/a.md'\n\
            [[document.item]]\nitem = 'first'\ncommand = 'a'\nsays = 'x'\n\
            [[document.item]]\nitem = 'second'\nboard = 'a pin'\n\
            [[document]]\nname = 'A study'\n[[document.item]]\nitem = 'third'\nlacks = 'all'\n";
        let items = Items::parse(items).expect("sound");
        let row =
            |ours: &str, verdict| Row { theirs: "7us".to_owned(), ours: ours.to_owned(), verdict };
        let rows = [
            vec![
                row("a | b", Verdict::Differs("0.1 of theirs".to_owned())),
                row("", Verdict::Board("a pin".to_owned())),
            ],
            vec![row("", Verdict::Missing("all".to_owned()))],
        ];
        let head = Head {
            date: "2026-01-01".to_owned(),
            kernel: "6.1".to_owned(),
            cpus: 2,
            minutes: 11.6,
        };
        let page = page(&items, &rows, &head);
        for part in [
            "made on 2026-01-01 in 12 minutes, on 2 CPUs with Linux 6.1",
            "| [A course](walks/a.md) | 2 | 0 | 1 | 1 | 0 |\n| A study | 1 | 0 | 0 | 0 | 1 |\n| all | 3 | 0 | 1 | 1 | 1 |",
            "| first | `rtscope export a --format cyclictest \\| sort` | 7us | a \\| b | differs: 0.1 of theirs |",
            "\n## A study\n\n| item |",
            "| second |  | 7us |  | needs a board: a pin |",
        ] {
            assert!(page.contains(part), "{part} is missing in {page}");
        }
    }
}
