//! Which places are meant: `tag=rt,arch=arm64`.

use std::{fmt, str::FromStr};

use crate::places::FleetPlace;

/// Conditions that a place meets all of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Selector(Vec<Condition>);

#[derive(Clone, Debug, PartialEq, Eq)]
struct Condition {
    key: String,
    is_equal: bool,
    /// `*` stands for any characters.
    value: String,
}

/// A text that is no selector, and why.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct NotASelector(String);

impl FromStr for Selector {
    type Err = NotASelector;

    fn from_str(text: &str) -> Result<Selector, NotASelector> {
        text.split(',').map(Condition::parse).collect::<Result<_, _>>().map(Selector)
    }
}

impl Condition {
    fn parse(text: &str) -> Result<Condition, NotASelector> {
        let (key, value) = text.split_once('=').unwrap_or(("", ""));
        let (key, is_equal) = key.strip_suffix('!').map_or((key, true), |key| (key, false));
        let (key, value) = (key.trim(), value.trim());
        if !is_word(key) || !is_word(&value.replace('*', "x")) {
            return Err(NotASelector(format!(
                "{:?} is not a condition: write for example place=drill-*, tag=rt, reach=ssh, or the key of a tag such as arch=arm64, \
                 with != for the opposite and commas between conditions",
                text.trim()
            )));
        }
        Ok(Condition { key: key.to_owned(), is_equal, value: value.to_owned() })
    }

    fn is_met(&self, place: &FleetPlace) -> bool {
        let is_tag = |tag: &String| fits(&self.value, tag);
        let has_value = |tag: &String| {
            tag.split_once('=')
                .is_some_and(|(key, value)| key == self.key && fits(&self.value, value))
        };
        let found = match self.key.as_str() {
            "place" => fits(&self.value, &place.name),
            "reach" => fits(&self.value, place.reach.word()),
            "tag" => place.tags.iter().any(is_tag),
            _ => place.tags.iter().any(has_value),
        };
        found == self.is_equal
    }
}

impl fmt::Display for Selector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, Condition { key, is_equal, value }) in self.0.iter().enumerate() {
            let (comma, sign) = (if i > 0 { "," } else { "" }, if *is_equal { "=" } else { "!=" });
            write!(f, "{comma}{key}{sign}{value}")?;
        }
        Ok(())
    }
}

impl Selector {
    /// Whether a place meets all conditions.
    #[must_use]
    pub fn selects(&self, place: &FleetPlace) -> bool {
        self.0.iter().all(|condition| condition.is_met(place))
    }

    /// Whether a text can be a tag: a word, or `KEY=VALUE` with a key that means nothing else.
    #[must_use]
    pub fn is_tag(text: &str) -> bool {
        let is_pair = |(key, value): (&str, &str)| {
            is_word(key) && is_word(value) && !["place", "tag", "reach"].contains(&key)
        };
        text.split_once('=').map_or_else(|| is_word(text), is_pair)
    }
}

fn is_word(text: &str) -> bool {
    !text.is_empty() && text.chars().all(|c| c.is_ascii_alphanumeric() || "-_./+:".contains(c))
}

/// Whether a text fits a pattern in which `*` stands for any characters: each part at the first place where it can be.
fn fits(pattern: &str, text: &str) -> bool {
    let Some((start, rest)) = pattern.split_once('*') else { return pattern == text };
    let (middle, end) = rest.rsplit_once('*').unwrap_or(("", rest));
    let Some(text) = text.strip_prefix(start).and_then(|text| text.strip_suffix(end)) else {
        return false;
    };
    let found =
        middle.split('*').try_fold(text, |text, part| Some(&text[text.find(part)? + part.len()..]));
    found.is_some()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::places::Reach;

    #[test]
    fn places_are_chosen_by_name_and_tags() {
        let tags = ["rt", "arch=arm64", "rack=3/2"].map(str::to_owned).to_vec();
        let name = "drill-12".to_owned();
        let place = FleetPlace {
            name,
            reach: Reach::Local,
            tags,
            folder: None,
            program: None,
            lease: None,
            shares_machine: false,
            base: Default::default(),
        };
        let selects = |text: &str| text.parse::<Selector>().expect("a selector").selects(&place);
        for text in [
            "place=drill-12",
            "place=drill-*",
            "place=*12",
            "place=*l*1*",
            "place!=mill-*",
            "tag=rt",
            "arch=arm64",
            "rack=3/*",
            "reach=local",
            "arch!=x86_64",
            "tag=rt, arch=arm64",
        ] {
            assert!(selects(text), "{text}");
        }
        for text in [
            "place=drill",
            "tag=r",
            "arch=arm",
            "tag!=rt",
            "tag=rt,arch=x86_64",
            "board=x",
            "place=*3",
        ] {
            assert!(!selects(text), "{text}");
        }
    }

    #[test]
    fn many_stars_take_no_time() {
        let text = "a".repeat(60);
        assert!(!fits("*a*a*a*a*a*a*a*a*a*a*b", &text) && fits("*a*a*a*a*a*a*", &text));
        assert!(fits("a*a", "aa") && !fits("a*a", "a") && fits("*", "") && fits("a**b", "ab"));
        assert!(!Selector::is_tag("place=x") && Selector::is_tag("placed=x"));
    }

    #[test]
    fn what_is_no_condition_is_refused() {
        for text in ["", "rt", "tag=", "=rt", "tag=rt,", "tag=a b", "tag=$(x)"] {
            let said = text.parse::<Selector>().expect_err(text).to_string();
            assert!(said.contains("is not a condition"), "{said}");
        }
        assert_eq!(
            "tag!=rt, arch = arm64".parse::<Selector>().expect("read").to_string(),
            "tag!=rt,arch=arm64"
        );
    }
}
