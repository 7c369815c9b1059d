//! The code blocks of the documents, and the command lines in them.

use std::{
    fs,
    path::{Path, PathBuf},
};

/// A block of code between fences.
pub(crate) struct Block {
    /// The document, relative to the checkout, and the line of the fence.
    pub(crate) page: String,
    pub(crate) line: usize,
    pub(crate) language: String,
    pub(crate) text: String,
}

/// The checkout.
pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The documents below `docs`, sorted, and the README.
pub(crate) fn pages() -> Vec<String> {
    let root = root();
    let (mut pages, mut open) = (vec!["README.md".to_owned()], vec!["docs".to_owned()]);
    while let Some(folder) = open.pop() {
        for entry in fs::read_dir(root.join(&folder)).expect("a folder").flatten() {
            let path = format!("{folder}/{}", entry.file_name().to_string_lossy());
            if entry.path().is_dir() {
                open.push(path);
            } else if path.ends_with(".md") {
                pages.push(path);
            }
        }
    }
    pages.sort();
    pages
}

/// The blocks of a document.
pub(crate) fn blocks_of(page: &str) -> Vec<Block> {
    blocks(page, &fs::read_to_string(root().join(page)).expect("a document"))
}

/// The blocks of a text. A fence may be indented, as one of a list is.
fn blocks(page: &str, text: &str) -> Vec<Block> {
    let mut blocks: Vec<Block> = Vec::new();
    let mut open: Option<usize> = None;
    for (i, line) in text.lines().enumerate() {
        let code = line.trim_start();
        match (open, code.strip_prefix("```")) {
            (None, Some(language)) => {
                open = Some(line.len() - code.len());
                let (page, language) = (page.to_owned(), language.to_owned());
                blocks.push(Block { page, line: i + 1, language, text: String::new() });
            }
            (Some(_), Some(_)) => open = None,
            (Some(indent), None) => {
                let block = blocks.last_mut().expect("an open block");
                block.text.push_str(line.get(indent..).unwrap_or_default());
                block.text.push('\n');
            }
            (None, None) => {}
        }
    }
    blocks
}

/// The commands of a block as a shell takes them: lines that end in `\` go on, as does what a `<<'END'` begins. Of a
/// session only what stands behind a `$` is a command.
pub(crate) fn commands(block: &Block) -> Vec<String> {
    let lines: Vec<&str> = match block.language.as_str() {
        "sh" => block.text.lines().collect(),
        "console" => block.text.lines().filter_map(|line| line.strip_prefix("$ ")).collect(),
        _ => return Vec::new(),
    };
    let mut commands: Vec<String> = Vec::new();
    let (mut goes_on, mut until) = (false, None::<String>);
    for line in lines {
        match commands.last_mut().filter(|_| goes_on || until.is_some()) {
            Some(command) => {
                command.push('\n');
                command.push_str(line);
            }
            None if line.trim().is_empty() || line.starts_with('#') => continue,
            None => commands.push(line.to_owned()),
        }
        goes_on = line.ends_with('\\');
        if until.as_deref() == Some(line) {
            until = None;
        } else if let Some((_, word)) = line.split_once("<<'") {
            until = word.split('\'').next().map(str::to_owned);
        }
    }
    commands
}

#[test]
fn blocks_and_their_commands_are_read() {
    let text = "text\n\n```sh\n# a comment\na \\\n  b   # why\n\nc <<'END'\n# text\nEND\nd\n```\n\n* x\n\n  ```console\n  $ e\n  out\n  $ f\n  ```\n";
    let blocks = blocks("p", text);
    let all: Vec<_> = blocks.iter().map(|block| (block.line, commands(block))).collect();
    assert_eq!(all[0].0, 3);
    assert_eq!(all[0].1, ["a \\\n  b   # why", "c <<'END'\n# text\nEND", "d"]);
    assert_eq!(all[1], (16, vec!["e".to_owned(), "f".to_owned()]));
}
