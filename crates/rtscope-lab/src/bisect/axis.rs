//! What lies between a good kernel and a bad one: words of the command line, or options of the
//! configuration, each a change that can be applied by itself.

use std::collections::BTreeSet;

use crate::{
    config::merge::{self, Value},
    digest::key_of,
    error::LabError,
    spec::{Base, Fragment, Spec},
};

/// A word of the kernel command line that differs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct WordChange {
    /// What goes.
    before: Option<String>,
    /// What comes.
    after: Option<String>,
}

impl WordChange {
    pub(super) fn text(&self) -> String {
        match (&self.before, &self.after) {
            (Some(before), Some(after)) => format!("{before} becomes {after}"),
            (Some(before), None) => format!("without {before}"),
            (None, Some(after)) => format!("with {after}"),
            (None, None) => String::new(),
        }
    }
}

/// What makes one list of words the other, in the order of the words.
pub(super) fn word_changes(good: &[String], bad: &[String]) -> Vec<WordChange> {
    let key = |word: &str| word.split('=').next().unwrap_or_default().to_owned();
    let mut changes = Vec::new();
    let mut taken: Vec<&String> = Vec::new();
    for before in good.iter().filter(|word| !bad.contains(word)) {
        let same = |word: &&String| key(word) == key(before) && !good.contains(word);
        let after = bad.iter().find(|word| same(word) && !taken.contains(word));
        taken.extend(after);
        changes.push(WordChange { before: Some(before.clone()), after: after.cloned() });
    }
    for after in bad.iter().filter(|word| !good.contains(word) && !taken.contains(word)) {
        changes.push(WordChange { before: None, after: Some(after.clone()) });
    }
    changes
}

/// The good words with some of the changes.
pub(super) fn with_words(
    good: &[String],
    changes: &[WordChange],
    applied: &[usize],
) -> Vec<String> {
    let applied: Vec<&WordChange> = applied.iter().filter_map(|at| changes.get(*at)).collect();
    let kept = |word: &String| match applied.iter().find(|c| c.before.as_ref() == Some(word)) {
        Some(change) => change.after.clone(),
        None => Some(word.clone()),
    };
    let come = applied.iter().filter(|c| c.before.is_none()).filter_map(|c| c.after.clone());
    good.iter().filter_map(kept).chain(come).collect()
}

/// An option that two specs ask for differently.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct OptionChange {
    name: String,
    before: Option<Value>,
    after: Option<Value>,
}

impl OptionChange {
    pub(super) fn text(&self) -> String {
        let word = |value: &Option<Value>| {
            value.as_ref().map_or("not asked".to_owned(), |value| value.word().to_owned())
        };
        format!("CONFIG_{}: {} becomes {}", self.name, word(&self.before), word(&self.after))
    }
}

/// What two specs ask for differently; refused when they differ in more than options.
pub(super) fn option_changes(good: &Spec, bad: &Spec) -> Result<Vec<OptionChange>, LabError> {
    for (same, what) in [
        (good.source == bad.source, "source"),
        (good.patches == bad.patches, "patches"),
        (good.arch == bad.arch, "architecture"),
        (
            matches!((&good.base, &bad.base), (Base::Target(a), Base::Target(b)) if a == b)
                || matches!((&good.base, &bad.base), (Base::File(_), Base::File(_))),
            "base",
        ),
    ] {
        if !same {
            return Err(LabError::Refused(format!(
                "{} and {} differ in their {what}, not only in options: name the kernels between them with \
                 --through, or their commits with --tree",
                good.name, bad.name
            )));
        }
    }
    let (before, after) = (asked(good)?, asked(bad)?);
    let names: BTreeSet<&String> = before.keys().chain(after.keys()).collect();
    let change = |name: &String| OptionChange {
        name: name.clone(),
        before: before.get(name).cloned(),
        after: after.get(name).cloned(),
    };
    Ok(names.into_iter().map(change).filter(|change| change.before != change.after).collect())
}

/// All that a spec asks for: of its base, where that is a file, and of its fragments.
fn asked(spec: &Spec) -> Result<merge::ConfigOptions, LabError> {
    let base = match &spec.base {
        Base::File(path) => std::fs::read_to_string(path).map_err(LabError::file("read", path))?,
        Base::Target(_) => String::new(),
    };
    let fragments = spec.fragments.iter().map(|f| (f.name.as_str(), f.text.as_str()));
    let all: Vec<(&str, &str)> =
        std::iter::once(("base", base.as_str())).chain(fragments).collect();
    Ok(merge::asked(&all).0)
}

/// The good kernel's spec with some of the changes: with none it is that very kernel, which may be kept.
pub(super) fn with_options(good: &Spec, changes: &[OptionChange], applied: &[usize]) -> Spec {
    if applied.is_empty() {
        return good.clone();
    }
    let applied: Vec<&OptionChange> = applied.iter().filter_map(|at| changes.get(*at)).collect();
    let mut spec = good.clone();
    for fragment in &mut spec.fragments {
        let asks_for_it =
            |line: &str| applied.iter().any(|change| merge::read(line).contains_key(&change.name));
        let kept = fragment.text.lines().filter(|line| !asks_for_it(line));
        fragment.text = kept.flat_map(|line| [line, "\n"]).collect();
    }
    let line = |change: &&OptionChange| {
        let name = &change.name;
        match &change.after {
            Some(Value::Set(value)) => format!("CONFIG_{name}={value}\n"),
            Some(Value::Off) => format!("# CONFIG_{name} is not set\n"),
            // With nobody asking for it, it is what the base makes it.
            None => String::new(),
        }
    };
    let text: String = applied.iter().map(line).collect();
    let key = key_of(&[("options", text.as_bytes())]);
    spec.fragments.push(Fragment { name: "bisect".to_owned(), text });
    spec.name = format!("{}-bisect-{}", good.name, key.get(..12).unwrap_or(&key));
    spec
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<String> {
        text.split_whitespace().map(str::to_owned).collect()
    }

    #[test]
    fn words_change_one_by_one_from_good_to_bad() {
        let (good, bad) = (words("preempt=full nohz=off quiet"), words("quiet preempt=none debug"));
        let changes = word_changes(&good, &bad);
        let texts: Vec<String> = changes.iter().map(WordChange::text).collect();
        assert_eq!(texts, ["preempt=full becomes preempt=none", "without nohz=off", "with debug"]);
        assert_eq!(with_words(&good, &changes, &[]), good);
        let mut all = with_words(&good, &changes, &[0, 1, 2]);
        all.sort();
        assert_eq!(all, ["debug", "preempt=none", "quiet"]);
        assert_eq!(with_words(&good, &changes, &[1]), words("preempt=full quiet"));
        assert_eq!(word_changes(&good, &good), []);
    }

    #[test]
    fn options_change_one_by_one_from_good_to_bad() {
        let find = |name: &str| crate::spec::find(name).expect("shipped");
        let (good, bad) = (find("tiny-6.12-rt"), find("tiny-6.12-dynamic"));
        let changes = option_changes(&good, &bad).expect("only options differ");
        assert!(!changes.is_empty());
        let wanted = asked(&bad).expect("fragments");
        let all: Vec<usize> = (0..changes.len()).collect();
        assert_eq!(asked(&with_options(&good, &changes, &all)).expect("fragments"), wanted);
        // The good end is the kernel as it was named: one that is kept isn't built again.
        let none = with_options(&good, &changes, &[]);
        assert_eq!((&none.name, asked(&none).ok()), (&good.name, asked(&good).ok()));
        assert!(changes.iter().any(|change| change.text().contains("CONFIG_PREEMPT_RT")));
        let said = option_changes(&good, &find("tiny-6.1-rt")).expect_err("source").to_string();
        assert!(said.contains("differ in their source"), "{said}");
    }
}
