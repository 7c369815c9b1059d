//! `cargo xtask documents`: what five public documents do and print, item by item, beside ours.
//!
//! `xtask/documents.toml` lists the items with the command line that does each. Every command runs once, in the order
//! of the file. Ours is read from what it wrote, and `docs/documents.md` is the table.

mod items;
mod page;
mod reading;

use std::{
    collections::BTreeMap,
    fs::{self, File},
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail, ensure};

use self::{
    items::Items,
    page::{Counts, Head},
    reading::{Brought, Row},
};
use crate::{
    room::{Room, date_and_kernel},
    shell,
};

const USAGE: &str = "usage: cargo xtask documents [--list] [--only WORD] [--program FILE]";

/// The items, from the root of the checkout.
const FILE: &str = "xtask/documents.toml";

/// What is written, from the root of the checkout.
const PAGE: &str = "docs/documents.md";

/// How much of a program's complaint a row shows.
const COMPLAINT: usize = 160;

#[derive(Debug, Default, PartialEq)]
struct Asked {
    list: bool,
    only: Option<String>,
    program: Option<PathBuf>,
}

/// Runs the commands and writes the page. Whether no item is missing.
pub(crate) fn run(words: &[&str]) -> Result<bool> {
    let asked = parse(words)?;
    let text = fs::read_to_string(crate::root().join(FILE)).with_context(|| FILE)?;
    let mut items = Items::parse(&text).with_context(|| FILE)?;
    if let Some(word) = &asked.only {
        items.only(word);
        ensure!(!items.documents.is_empty(), "no item contains {word:?}");
    }
    if asked.list {
        list(&items);
        return Ok(true);
    }
    let program = match &asked.program {
        Some(program) => fs::canonicalize(program)?,
        None => shell::built(&["--release", "--package", "rtscope"])?,
    };
    let began = Instant::now();
    let room = crate::scratch()?.join("documents");
    let brought = all_brought(&items, &program, &room)?;
    let rows: Vec<Vec<Row>> = items
        .documents
        .iter()
        .map(|document| {
            let of = |item: &items::Item| {
                let brought = item.command.as_ref().and_then(|name| brought.get(name));
                reading::row(item, brought, &room)
            };
            document.items.iter().map(of).collect()
        })
        .collect();
    let (date, kernel) = date_and_kernel()?;
    let head = Head {
        date,
        kernel,
        cpus: std::thread::available_parallelism()?.get(),
        minutes: began.elapsed().as_secs_f64() / 60.0,
    };
    let page = page::page(&items, &rows, &head);
    if asked.only.is_some() {
        print!("{page}");
    } else {
        fs::write(crate::root().join(PAGE), page).with_context(|| PAGE)?;
    }
    let counts = Counts::of(rows.iter().flatten());
    println!(
        "{counts}, in {:.1} min; each command's output is in {}",
        head.minutes,
        room.display()
    );
    Ok(counts.missing() == 0)
}

fn parse(words: &[&str]) -> Result<Asked> {
    let mut asked = Asked::default();
    let mut words = words.iter();
    while let Some(word) = words.next() {
        let mut value = || words.next().map(|&word| word.to_owned()).context(USAGE);
        match *word {
            "--list" => asked.list = true,
            "--only" => asked.only = Some(value()?),
            "--program" => asked.program = Some(value()?.into()),
            _ => bail!(USAGE),
        }
    }
    Ok(asked)
}

fn list(items: &Items) {
    for document in &items.documents {
        println!("{}", document.name);
        for item in &document.items {
            let command = item.command.as_ref().and_then(|name| items.command(name));
            let how = command.map_or("(no command)", |command| command.line.as_str());
            println!("  {}: {how}", item.item);
        }
    }
}

/// Runs every command that the items need, in a fresh folder.
fn all_brought(items: &Items, program: &Path, room: &Path) -> Result<BTreeMap<String, Brought>> {
    let room = Room::new(room.to_owned(), program, "fixtures/documents")?;
    let needed = items.needed();
    let mut all = BTreeMap::new();
    for (n, command) in needed.iter().enumerate() {
        let began = Instant::now();
        let brought = brought(command, &room)?;
        let failure = brought.failure.as_ref().map_or_else(String::new, |why| format!(": {why}"));
        let (all_of_them, took) = (needed.len(), began.elapsed().as_secs_f64());
        eprintln!("{}/{all_of_them} {took:.1} s  {}{failure}", n + 1, command.line);
        all.insert(command.name.clone(), brought);
    }
    Ok(all)
}

/// Runs one command line.
fn brought(one: &items::Command, room: &Room) -> Result<Brought> {
    let [out, err] = ["out", "err"].map(|end| room.path().join(format!("{}.{end}", one.name)));
    let mut command = room.shell(&one.line);
    command.stdout(File::create(&out)?).stderr(File::create(&err)?);
    let limit = Duration::from_secs(one.limit);
    let status = shell::wait(&mut shell::start(&mut command)?, limit)?;
    let [output, complaint] = [out, err].map(|path| fs::read(path).unwrap_or_default());
    let complaint = String::from_utf8_lossy(&complaint).into_owned();
    let failure = match status.map(|status| status.code()) {
        None => Some(format!("it was still running after {} s", one.limit)),
        Some(Some(code)) if one.codes.contains(&code) => None,
        Some(code) => {
            let code = code.map_or("a signal".to_owned(), |code| format!("exit code {code}"));
            let last: String = shell::last_lines(&complaint, 1).chars().take(COMPLAINT).collect();
            Some(format!("{code}, {last}"))
        }
    };
    Ok(Brought { failure, output: String::from_utf8_lossy(&output).into_owned() })
}

#[cfg(test)]
mod tests {
    use rtscope_testing::executable;

    use super::*;

    #[test]
    fn options() {
        let asked = parse(&["--only", "wave", "--program", "x", "--list"]).expect("sound");
        assert_eq!((asked.list, asked.only.as_deref()), (true, Some("wave")));
        parse(&["--only"]).expect_err("no word");
        parse(&["wave"]).expect_err("no option");
    }

    #[test]
    fn a_command_that_fails_or_hangs_says_so_and_the_next_one_runs() {
        let room = tempfile::tempdir().expect("a folder");
        let program = room.path().join("fake");
        let script = "#!/bin/sh\necho out\necho because >&2\nsleep ${2:-0}\nexit $1\n";
        executable::write(&program, script);
        let text = "[[command]]\nname = 'good'\nline = 'rtscope 3'\ncodes = [0, 3]\n\
            [[command]]\nname = 'bad'\nline = 'rtscope 1'\n\
            [[command]]\nname = 'slow'\nline = 'rtscope 0 100'\nlimit = 1\n\
            [[command]]\nname = 'last'\nline = 'rtscope 0 | tr u U'\n\
            [[document]]\nname = 'X'\n\
            [[document.item]]\nitem = 'a'\ncommand = 'good'\nsays = 'x'\n\
            [[document.item]]\nitem = 'b'\ncommand = 'bad'\nsays = 'x'\n\
            [[document.item]]\nitem = 'c'\ncommand = 'slow'\nsays = 'x'\n\
            [[document.item]]\nitem = 'd'\ncommand = 'last'\nsays = 'x'\n";
        let items = Items::parse(text).expect("sound");
        let all = all_brought(&items, &program, &room.path().join("room")).expect("they ran");
        assert_eq!(all["good"].failure, None);
        assert_eq!(all["bad"].failure.as_deref(), Some("exit code 1, because"));
        assert_eq!(all["slow"].failure.as_deref(), Some("it was still running after 1 s"));
        assert_eq!(all["last"].output, "oUt\n");
    }
}
