//! Lines and words of ours in files of others: marked, so that they can be taken out again and leave
//! every other byte as it was.

/// First line of a block. What follows says which kernel.
const BEGIN: &str = "# >>> rtscope kernel ";

/// First line of a block before which a line end had to be added.
const BEGIN_JOINED: &str = "# >>> rtscope kernel+ ";

/// Last line of a block.
const END: &str = "# <<< rtscope kernel";

/// Put before a line of the owner's that is out of force while ours is in.
const SILENCED: &str = "#rtscope# ";

/// Around our words on a kernel command line, where no comment is possible. The kernel takes words with
/// a dot for parameters of a module that isn't there, and ignores them.
const WORDS: [&str; 2] = [" rtscope.begin ", " rtscope.end"];

/// How something of ours is marked in a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Mark {
    /// Lines between two comments, and silenced lines.
    Block,
    /// Words on the one line of a file.
    Words,
}

impl Mark {
    /// The text without what is ours. Of several blocks, only that of a title goes.
    #[must_use]
    pub fn taken_out(self, text: &str, title: &str) -> String {
        match self {
            Mark::Block => without_titled_block(text, title),
            Mark::Words => without_words(text),
        }
    }
}

/// Whether a text has something of ours.
#[must_use]
pub fn is_marked(text: &str) -> bool {
    [BEGIN, BEGIN_JOINED, SILENCED, WORDS[0]].iter().any(|mark| text.contains(mark))
}

/// A text with a block of ours at its end. `title` names the kernel, `body` is made of whole lines.
#[must_use]
pub fn with_block(text: &str, title: &str, body: &str) -> String {
    let ends = text.is_empty() || text.ends_with('\n');
    let (joint, begin) = if ends { ("", BEGIN) } else { ("\n", BEGIN_JOINED) };
    let title = title.replace('\n', " ");
    format!("{text}{joint}{begin}{title}\n{}\n{END}\n", body.trim_end_matches('\n'))
}

/// A text with lines silenced that a test chooses.
#[must_use]
pub fn silenced(text: &str, chosen: impl Fn(&str) -> bool) -> String {
    let line = |line: &str| {
        if chosen(line.trim()) { format!("{SILENCED}{line}") } else { line.to_owned() }
    };
    text.split_inclusive('\n').map(line).collect()
}

/// A text without a block of ours and with its silenced lines back.
#[must_use]
pub fn without_block(text: &str) -> String {
    let cut = cut(text, "");
    cut.split_inclusive('\n').map(loud).collect()
}

/// A text without the block of ours that has this title (before a colon, if it has one), and with the lines that it
/// silenced. Another block stays, and the lines that it silenced stay silent.
#[must_use]
pub fn without_titled_block(text: &str, title: &str) -> String {
    let cut = cut(text, title);
    let is_kernels = cut.lines().any(|line| line_begin(line, "").is_some());
    let mut inside = false;
    let line = |line| {
        inside |= line_begin(line, "").is_some();
        let is_back = inside || !is_kernels;
        inside &= bare(line) != END;
        if is_back { loud(line) } else { line }
    };
    cut.split_inclusive('\n').map(line).collect()
}

/// A text without the blocks of a title; without all of them if it is empty.
fn cut(text: &str, title: &str) -> String {
    let mut kept = String::with_capacity(text.len());
    let mut inside = false;
    // Where a line end of ours is in what is kept.
    let mut joint = None;
    for line in text.split_inclusive('\n') {
        if bare(line) == END && inside {
            inside = false;
        } else if let Some(begin) = line_begin(line, title) {
            inside = true;
            if begin == BEGIN_JOINED {
                joint = Some(kept.len());
            }
        } else if !inside {
            kept.push_str(line);
        }
    }
    // Lines that were added after it need it.
    if joint == Some(kept.len()) {
        kept.pop();
    }
    kept
}

/// A line without its end.
fn bare(line: &str) -> &str {
    line.trim_end_matches(['\n', '\r'])
}

/// How a block begins in this line, if it has the title.
fn line_begin(line: &str, title: &str) -> Option<&'static str> {
    let has_title = |rest: &str| {
        let is_end = |more: &str| more.starts_with(':') || bare(more).is_empty();
        title.is_empty() || rest.strip_prefix(title).is_some_and(is_end)
    };
    let begins = |begin: &&str| line.strip_prefix(*begin).is_some_and(has_title);
    [BEGIN_JOINED, BEGIN].into_iter().find(|begin| begins(begin))
}

/// A silenced line as it was.
fn loud(line: &str) -> &str {
    line.strip_prefix(SILENCED).unwrap_or(line)
}

/// The one line of a file with words of ours at its end; what follows the line stays.
#[must_use]
pub fn with_words(text: &str, words: &str) -> String {
    if words.is_empty() {
        return text.to_owned();
    }
    let at = text.find(['\n', '\r']).unwrap_or(text.len());
    format!("{}{}{words}{}{}", &text[..at], WORDS[0], WORDS[1], &text[at..])
}

/// The line without words of ours.
#[must_use]
pub fn without_words(text: &str) -> String {
    let Some(from) = text.find(WORDS[0]) else { return text.to_owned() };
    let Some(length) = text[from..].find(WORDS[1]) else { return text.to_owned() };
    format!("{}{}", &text[..from], &text[from + length + WORDS[1].len()..])
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_courses_line_is_added_and_taken_out() {
        let line = "console=serial0,115200 root=PARTUUID=738a4d67-02 rootwait\n";
        let words = "dwc_otg.fiq_enable=0 dwc_otg.fiq_fsm_enable=0 dwc_otg.nak_holdoff=0";
        let with = with_words(line, words);
        assert_eq!(with.lines().count(), 1, "the firmware reads one line only");
        assert!(with.contains(&format!("rootwait rtscope.begin {words} rtscope.end\n")));
        assert_eq!(without_words(&with), line);
    }

    #[test]
    fn blocks_are_comments_at_the_end() {
        let with = with_block("a=1", "tiny", "[all]\nkernel=x\n");
        assert_eq!(
            with,
            "a=1\n# >>> rtscope kernel+ tiny\n[all]\nkernel=x\n# <<< rtscope kernel\n"
        );
        assert!(is_marked(&with) && !is_marked("a=1"));
        let edited = with.replace("a=1", "a=2\nb=3") + "c=4\n";
        assert_eq!(without_block(&edited), "a=2\nb=3\nc=4\n");
        let quiet = silenced("DEFAULT a\nLABEL a\n", |line| line.starts_with("DEFAULT"));
        assert_eq!(quiet, "#rtscope# DEFAULT a\nLABEL a\n");
        // Somebody removed the block by hand.
        assert_eq!(without_titled_block(&quiet, "tiny"), "DEFAULT a\nLABEL a\n");
    }

    #[test]
    fn parameters_go_from_above_a_kernels_block() {
        let silent = |text: &str| silenced(text, |line| line.starts_with("DEFAULT"));
        for old in ["DEFAULT old\nLABEL old\n", "LABEL old\nDEFAULT old"] {
            let kernel = with_block(&silent(old), "tiny 6.12", "LABEL tiny\nDEFAULT tiny\n");
            for below in [old, &kernel] {
                let with = with_block(&silent(below), "boot parameters: nosmt", "DEFAULT ours\n");
                assert_eq!(without_titled_block(&with, "boot parameters"), below);
                assert_eq!(without_titled_block(below, "boot parameters"), below);
                let more = format!("{with}# more\n");
                let without = without_titled_block(&more, "boot parameters");
                let end = if below.ends_with('\n') { "" } else { "\n" };
                assert_eq!(without, format!("{below}{end}# more\n"));
            }
        }
    }

    proptest! {
        #[test]
        fn a_block_leaves_every_other_byte(
            text in "([a-zA-Z0-9=_/#. \\[\\]-]{0,12}(\n|\r\n)?){0,8}",
            title in "[a-z0-9 .-]{0,20}",
            body in "([a-z=0-9/ ]{0,10}\n){0,4}",
            which in 0_usize..8,
        ) {
            prop_assume!(!is_marked(&text));
            let chosen = text.lines().nth(which).unwrap_or("").trim().to_owned();
            let quiet = silenced(&text, |line| !chosen.is_empty() && line == chosen);
            let with = with_block(&quiet, &title, &body);
            prop_assert_eq!(without_block(&with), text.clone());
            prop_assert_eq!(without_block(&text), text);
        }

        #[test]
        fn words_leave_every_other_byte(
            text in "[a-z0-9=. ,-]{0,60}\n{0,2}",
            words in "[a-z0-9=._]{1,10}( [a-z0-9=._]{1,10}){0,3}",
        ) {
            prop_assume!(!is_marked(&text));
            prop_assert_eq!(without_words(&with_words(&text, &words)), text.clone());
            prop_assert_eq!(without_words(&text), text);
        }
    }
}
