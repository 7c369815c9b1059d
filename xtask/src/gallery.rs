//! `cargo xtask gallery`: real pages for people who want to see one before they install anything.
//!
//! `xtask/gallery.toml` lists the pages, each with the commands that make it. They run on this machine, one page after
//! the other, and what they wrote goes into `docs/gallery`, with a list that shows the commands.

use std::{
    fs,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail, ensure};
use serde::Deserialize;

use crate::{
    room::{Room, date_and_kernel},
    shell,
};

const USAGE: &str = "usage: cargo xtask gallery [--only NAME] [--program FILE]";

/// The pages, from the root of the checkout.
const FILE: &str = "xtask/gallery.toml";

/// Where they go, from the root of the checkout.
const FOLDER: &str = "docs/gallery";

/// A repository keeps every version of a page for ever: the most bytes of one.
const BYTES_MAX: u64 = 1_500_000;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Gallery {
    #[serde(rename = "page")]
    pages: Vec<Page>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Page {
    /// Of its file, without the ending.
    name: String,
    title: String,
    /// What there is to see.
    about: String,
    /// Lines for the shell: what a reader would type.
    lines: String,
    /// What they write, from the folder that they run in.
    file: String,
    /// The exit codes of a page that is as it should be.
    #[serde(default = "zero")]
    codes: Vec<i32>,
    /// In seconds.
    #[serde(default = "five_minutes")]
    limit: u64,
}

fn zero() -> Vec<i32> {
    vec![0]
}

fn five_minutes() -> u64 {
    300
}

/// Makes the pages anew. Whether all of them could be made.
pub(crate) fn run(words: &[&str]) -> Result<bool> {
    let (mut only, mut program) = (None, None);
    for pair in words.chunks(2) {
        match pair {
            ["--only", name] => only = Some(*name),
            ["--program", file] => program = Some(fs::canonicalize(file)?),
            _ => bail!(USAGE),
        }
    }
    let gallery = read()?;
    let known: Vec<&str> = gallery.pages.iter().map(|page| page.name.as_str()).collect();
    if let Some(name) = only {
        ensure!(known.contains(&name), "no page {name:?}: one of {}", known.join(", "));
    }
    let program = match program {
        Some(program) => program,
        None => shell::built(&["--release", "--package", "rtscope"])?,
    };
    let room = crate::scratch()?.join("gallery");
    let folder = crate::root().join(FOLDER);
    fs::create_dir_all(&folder)?;
    let mut all_made = true;
    for page in gallery.pages.iter().filter(|page| only.is_none_or(|name| name == page.name)) {
        let began = Instant::now();
        let made = page.made(&program, room.join(&page.name), &folder);
        let said = match &made {
            Ok(bytes) => format!("{:.0} kB", *bytes as f64 / 1e3),
            Err(e) => format!("FAILED: {e:#}"),
        };
        println!("{:6.1} s  {:<16}{said}", began.elapsed().as_secs_f64(), page.name);
        all_made &= made.is_ok();
    }
    if all_made {
        fs::write(folder.join("README.md"), gallery.list()?)?;
    }
    Ok(all_made)
}

fn read() -> Result<Gallery> {
    let text = fs::read_to_string(crate::root().join(FILE)).with_context(|| FILE)?;
    toml::from_str(&text).with_context(|| FILE)
}

impl Gallery {
    /// The list of the pages, with the commands and the machine that made them.
    fn list(&self) -> Result<String> {
        let (date, kernel) = date_and_kernel()?;
        let cpus = std::thread::available_parallelism()?;
        Ok(format!(
            "# Gallery\n\n\
             Pages as rtscope writes them. Each is one file and loads nothing from elsewhere. `cargo xtask gallery` made them. The\n\
             newest was made on {date}, on a virtual machine with {cpus} CPUs and Linux {kernel}, on a shared host.\n\
             The findings of a page say what else ran on the machine, such as compilers or tests.\n\n\
             A page that rtscope writes can link to files of its record. The gallery has only the pages, so the links became text.\n{}",
            self.sections()
        ))
    }

    /// What there is to see on each page, and its commands.
    fn sections(&self) -> String {
        let section = |Page { name, title, about, lines, .. }: &Page| {
            let (about, lines) = (about.trim(), lines.trim());
            format!("\n## [{title}]({name}.html)\n\n{about}\n\n```sh\n{lines}\n```\n")
        };
        self.pages.iter().map(section).collect()
    }
}

impl Page {
    /// Runs the lines in a folder of their own, and copies what they wrote. The bytes of the page.
    fn made(&self, program: &Path, room: PathBuf, folder: &Path) -> Result<u64> {
        let room = Room::new(room, program, "fixtures")?;
        let (log, limit) = (room.path().join("log"), Duration::from_secs(self.limit));
        let finished = shell::logged(&mut room.shell(&self.lines), &log, limit)?;
        let code = finished.status.and_then(|status| status.code());
        if !code.is_some_and(|code| self.codes.contains(&code)) {
            bail!("exit code {code:?}: {}", shell::last_lines(&finished.log, 5));
        }
        let made = room.path().join(&self.file);
        let page = fs::read_to_string(&made).with_context(|| made.display().to_string())?;
        let page = without_links_to_files(&page);
        ensure!(page.len() as u64 <= BYTES_MAX, "{} bytes, at most {BYTES_MAX}", page.len());
        fs::write(folder.join(format!("{}.html", self.name)), &page)?;
        Ok(page.len() as u64)
    }
}

/// A page whose links to other files are text: the gallery doesn't have these files.
fn without_links_to_files(page: &str) -> String {
    const LINK: &str = "<a href=\"";
    let mut text = String::with_capacity(page.len());
    let mut rest = page;
    while let Some(at) = rest.find(LINK) {
        let target = &rest[at + LINK.len()..];
        let (Some(end), Some(tag_end), Some(close)) =
            (target.find('"'), target.find('>'), target.find("</a>"))
        else {
            break;
        };
        text += &rest[..at];
        let is_kept = target.starts_with('#') || target[..end].contains("://");
        match is_kept {
            true => text += &rest[at..at + LINK.len() + close + "</a>".len()],
            false => text += &target[tag_end + 1..close],
        }
        rest = &target[close + "</a>".len()..];
    }
    text + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_to_files_become_text_and_others_stay() {
        let page = "<p><a href=\"a/report.html\">the <b>record</b></a>, <a href=\"#top\">top</a>, \
                    <a href=\"https://example.org/\" rel=\"x\">out</a></p>";
        let expected = "<p>the <b>record</b>, <a href=\"#top\">top</a>, \
                        <a href=\"https://example.org/\" rel=\"x\">out</a></p>";
        assert_eq!(without_links_to_files(page), expected);
        assert_eq!(without_links_to_files("<a href=\"cut"), "<a href=\"cut");
    }

    #[test]
    fn a_page_is_what_its_lines_wrote_and_a_failure_says_why() {
        let room = tempfile::tempdir().expect("a folder");
        let program = room.path().join("program");
        fs::write(&program, "").expect("written");
        let made = |lines: &str, codes: Vec<i32>| {
            let (name, file) = ("one".to_owned(), "page.html".to_owned());
            let (title, about) = (String::new(), String::new());
            let page = Page { name, title, about, lines: lines.to_owned(), file, codes, limit: 60 };
            page.made(&program, room.path().join("room"), room.path())
        };
        assert_eq!(made("echo '<p>' > page.html; exit 2", vec![2]).expect("made"), 4);
        assert_eq!(fs::read_to_string(room.path().join("one.html")).expect("there"), "<p>\n");
        let said = made("echo because; exit 3", vec![0]).expect_err("fails").to_string();
        assert!(said.contains("Some(3)") && said.contains("because"), "{said}");
        made("true", vec![0]).expect_err("no page");
    }

    #[test]
    fn each_page_of_the_list_is_there_and_small() {
        let gallery = read().expect("sound");
        let list = fs::read_to_string(crate::root().join(FOLDER).join("README.md")).expect("there");
        for page in &gallery.pages {
            let file = crate::root().join(FOLDER).join(format!("{}.html", page.name));
            let bytes = fs::metadata(&file).expect("made").len();
            assert!((1_000..=BYTES_MAX).contains(&bytes), "{}: {bytes}", page.name);
        }
        assert!(list.ends_with(&gallery.sections()), "{FOLDER}/README.md isn't what {FILE} says");
    }
}
