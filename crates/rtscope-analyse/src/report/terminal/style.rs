//! Ink and wrapping: how text gets onto a terminal of a given width, with colour or without.

/// How a terminal shows text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Style {
    pub width: usize,
    /// Whether it understands colours (ANSI escape codes).
    pub colour: bool,
}

/// What a piece of text is to its reader.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ink {
    Plain,
    Strong,
    Faint,
    Good,
    Bad,
    Doubtful,
}

impl Style {
    /// The text in its ink; unchanged without colour.
    pub(super) fn paint(self, ink: Ink, text: &str) -> String {
        let code = match ink {
            Ink::Plain => return text.to_owned(),
            Ink::Strong => "1",
            Ink::Faint => "2",
            Ink::Good => "1;32",
            Ink::Bad => "1;31",
            Ink::Doubtful => "1;33",
        };
        if self.colour && !text.trim().is_empty() {
            format!("\x1b[{code}m{text}\x1b[0m")
        } else {
            text.to_owned()
        }
    }

    /// A text whose lines are wrapped where they are too long. What follows a column of names, or a
    /// mark such as `->`, hangs below itself; other lines go on two columns further in.
    #[must_use]
    pub fn fold(self, text: &str) -> String {
        let line = |line: &str| match columns(line) <= self.width {
            true => format!("{line}\n"),
            false => {
                let (head, indent) = hanging(line, self.width / 2);
                self.paragraph(&line[..head], indent, &line[head..])
            }
        };
        let folded: String = text.lines().map(line).collect();
        if text.ends_with('\n') { folded } else { folded.trim_end_matches('\n').to_owned() }
    }

    /// A paragraph that begins with `first`, already painted and `indent` columns wide; further
    /// lines are indented as far. A word longer than a line stays whole.
    #[must_use]
    pub fn paragraph(self, first: &str, indent: usize, text: &str) -> String {
        let room = self.width.saturating_sub(indent).max(20);
        let mut lines: Vec<String> = vec![String::new()];
        for word in unbroken_words(text) {
            let line = lines.last_mut().expect("there is a first line");
            if line.is_empty() {
                *line = word;
            } else if columns(line) + 1 + columns(&word) <= room {
                line.push(' ');
                line.push_str(&word);
            } else {
                lines.push(word);
            }
        }
        format!("{first}{}\n", lines.join(&format!("\n{}", " ".repeat(indent))))
    }
}

/// Columns of a text on a terminal: what chooses a colour takes none.
fn columns(text: &str) -> usize {
    let mut parts = text.split("\x1b[");
    let first = parts.next().map_or(0, |part| part.chars().count());
    let after = |part: &str| part.split_once('m').map_or(0, |(_, shown)| shown.chars().count());
    first + parts.map(after).sum::<usize>()
}

/// Where the text of a line begins that is wrapped (in bytes), and how far its further lines are indented (in
/// characters): behind the last gap between two columns within `most` characters, else behind a mark.
fn hanging(line: &str, most: usize) -> (usize, usize) {
    let text = line.trim_start();
    let lead = line.len() - text.len();
    let mut gaps = line.char_indices().map(|(at, _)| at).filter(|&at| {
        at > lead
            && !line[at..].starts_with(' ')
            && line[..at].ends_with("  ")
            && columns(&line[..at]) <= most
    });
    if let Some(at) = gaps.next_back() {
        return (at, columns(&line[..at]));
    }
    match text.split_once(' ') {
        Some((mark, _)) if mark.chars().all(|c| c.is_ascii_punctuation()) => {
            (lead + mark.len() + 1, lead + mark.len() + 1)
        }
        _ => (lead, lead + 2),
    }
}

/// The words of a text; a number and its unit are one, so that no line break parts them.
fn unbroken_words(text: &str) -> Vec<String> {
    let mut words: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        let unit = word.trim_end_matches([',', ';', ':', '.', ')']);
        let is_unit = ["ns", "us", "ms", "s", "min", "h", "d", "%"].contains(&unit);
        match words.last_mut() {
            Some(number) if is_unit && number.ends_with(|c: char| c.is_ascii_digit()) => {
                number.push(' ');
                number.push_str(word);
            }
            _ => words.push(word.to_owned()),
        }
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_paragraph_keeps_its_width_and_indent() {
        let style = Style { width: 30, colour: false };
        let text = style.paragraph("  note  ", 8, "short words are put on lines of twenty-two");
        assert_eq!(text, "  note  short words are put on\n        lines of twenty-two\n");
    }

    #[test]
    fn long_lines_hang_below_their_text() {
        let style = Style { width: 30, colour: false };
        let text = "short  line\n  size     memory that each of them takes\n! one two three four five six seven\n\
                    a line of words without any columns at all";
        assert_eq!(
            style.fold(text),
            "short  line\n  size     memory that each of\n           them takes\n! one two three four five six\n  seven\n\
             a line of words without any\n  columns at all"
        );
        assert_eq!(style.fold("as it is\n"), "as it is\n");
        let colourful = format!("\x1b[1m{}\x1b[0m", "x".repeat(30));
        assert_eq!(style.fold(&format!("\x1b[1ma b\x1b[0m {colourful}")).lines().count(), 2);
        assert_eq!(style.fold(&colourful), colourful);
    }

    #[test]
    fn a_number_stays_with_its_unit() {
        assert_eq!(
            unbroken_words("at 95 %, in 21.5 us (4 s): us"),
            ["at", "95 %,", "in", "21.5 us", "(4 s):", "us"]
        );
    }

    #[test]
    fn there_is_no_escape_code_without_colour() {
        let plain = Style { width: 80, colour: false };
        assert_eq!(plain.paint(Ink::Bad, "bad"), "bad");
        let coloured = Style { colour: true, ..plain };
        assert_eq!(coloured.paint(Ink::Bad, "bad"), "\x1b[1;31mbad\x1b[0m");
        assert_eq!(coloured.paint(Ink::Plain, "plain"), "plain");
        assert_eq!(coloured.paint(Ink::Bad, "  "), "  ");
    }
}
