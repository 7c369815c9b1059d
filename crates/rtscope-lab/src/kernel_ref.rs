//! A kernel as a command line names it.
//!
//! ```text
//! debian-rt                   a prebuilt one, fetched when it isn't there
//! debian-stock:preempt=full   with further words of the kernel command line, each after a colon
//! tiny-6.12-rt                one that `rtscope kernel build` has made
//! path=/boot/vmlinuz-6.1      any file
//! linux-image-6.1_amd64.deb   a Debian package, with or without `path=`: the kernel and modules in it
//! mine=debian-rt:threadirqs   with a label of one's own, by which everything calls it
//! mine=path=/boot/vmlinuz     the same; `path` alone is never a label
//! ```
//!
//! What stands before the first `=` is a label, unless a colon comes earlier (then it belongs to a word) or
//! it is `path`.

use std::{collections::BTreeMap, fmt, path::PathBuf};

use crate::{error::LabError, name};

/// Where a kernel comes from.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum KernelSource {
    /// A prebuilt one, or one that was built here.
    Name(String),
    File(PathBuf),
    Package(PathBuf),
}

/// A kernel as it is typed: `LABEL=NAME:WORD:WORD`. A path may hold no colon. Its text form is what was typed.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct KernelRef {
    typed: String,
    label: Option<String>,
    name: String,
    source: KernelSource,
    words: Vec<String>,
}

impl fmt::Display for KernelRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.typed)
    }
}

impl KernelRef {
    /// Takes a typed kernel apart.
    ///
    /// # Errors
    ///
    /// The label can't be the name of a folder, or a part of it is empty.
    pub fn parse(typed: &str) -> Result<KernelRef, LabError> {
        let mut parts = typed.split(':');
        let head = parts.next().unwrap_or_default();
        let words: Vec<String> = parts.map(str::to_owned).collect();
        let (label, name) = match head.split_once('=') {
            None | Some(("path", _)) => (None, head),
            Some((label, name)) => {
                name::check("the label", label).map_err(|why| {
                    LabError::Refused(format!("--kernel {typed}: {why}; write a file as path=FILE"))
                })?;
                (Some(label.to_owned()), name)
            }
        };
        let empty = if name.strip_prefix("path=").unwrap_or(name).is_empty() {
            "it names no kernel"
        } else if words.iter().any(String::is_empty) {
            "nothing follows a colon"
        } else {
            ""
        };
        if !empty.is_empty() {
            return Err(LabError::Refused(format!(
                "kernel {typed:?}: {empty}. Write a name such as debian-rt, path=FILE, or the file of a Debian \
                 package; a label goes before it as LABEL=, and kernel parameters after it, each preceded by a colon: \
                 mine=debian-stock:preempt=full"
            )));
        }
        let source = source_of(name);
        Ok(KernelRef { typed: typed.to_owned(), label, name: name.to_owned(), source, words })
    }

    /// A kernel of a name, with words of the kernel command line.
    #[must_use]
    pub fn named(name: &str, words: Vec<String>) -> KernelRef {
        let typed = std::iter::once(name).chain(words.iter().map(String::as_str));
        let typed = typed.collect::<Vec<_>>().join(":");
        KernelRef { typed, label: None, name: name.to_owned(), source: source_of(name), words }
    }

    /// The same kernel with one more word.
    #[must_use]
    pub fn with_word(&self, word: &str) -> KernelRef {
        let mut other = self.clone();
        other.typed = format!("{}:{word}", self.typed);
        other.words.push(word.to_owned());
        other
    }

    /// What the kernel is called: the label, else all that was typed.
    #[must_use]
    pub fn label(&self) -> &str {
        self.label.as_deref().unwrap_or(&self.typed)
    }

    /// The kernel without label and words, as it was typed.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    #[must_use]
    pub fn source(&self) -> &KernelSource {
        &self.source
    }

    /// Words of the kernel command line.
    #[must_use]
    pub fn words(&self) -> &[String] {
        &self.words
    }

    /// What was typed, without the label.
    fn without_label(&self) -> &str {
        self.label.as_ref().map_or(&self.typed, |label| &self.typed[label.len() + 1..])
    }
}

fn source_of(name: &str) -> KernelSource {
    let path = name.strip_prefix("path=");
    let file = path.unwrap_or(name);
    match (file.ends_with(".deb"), path) {
        (true, _) => KernelSource::Package(PathBuf::from(file)),
        (false, Some(path)) => KernelSource::File(PathBuf::from(path)),
        (false, None) => KernelSource::Name(name.to_owned()),
    }
}

/// Refuses two kernels that would be called the same.
///
/// # Errors
///
/// Which two, and what to do.
pub fn check_labels(kernels: &[KernelRef]) -> Result<(), LabError> {
    let mut known: BTreeMap<&str, &KernelRef> = BTreeMap::new();
    for one in kernels {
        let label = one.label();
        if let Some(other) = known.insert(label, one) {
            if other == one {
                return Err(LabError::Refused(format!("{one}: it is named twice")));
            }
            return Err(LabError::Refused(format!(
                "two kernels are called {label}, {other} and {one}: give one of them another label, for example \
                 --kernel OTHER={}",
                one.without_label()
            )));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_label_stands_before_the_name_and_words_after_it() {
        let parsed = |typed: &str| {
            let kernel = KernelRef::parse(typed).expect("sound");
            assert_eq!(kernel.to_string(), typed);
            (kernel.label.clone(), kernel.name.clone(), kernel.words.join(" "))
        };
        let is = |label: Option<&str>, name: &str, words: &str| {
            (label.map(str::to_owned), name.to_owned(), words.to_owned())
        };
        assert_eq!(parsed("debian-rt"), is(None, "debian-rt", ""));
        let full = "debian-stock:preempt=full:threadirqs";
        assert_eq!(parsed(full), is(None, "debian-stock", "preempt=full threadirqs"));
        let mine = parsed("mine=debian-stock:preempt=full");
        assert_eq!(mine, is(Some("mine"), "debian-stock", "preempt=full"));
        assert_eq!(parsed("rt=path=/boot/vm=1"), is(Some("rt"), "path=/boot/vm=1", ""));
        assert_eq!(parsed("path=/boot/vm=1"), is(None, "path=/boot/vm=1", ""));
        for typed in ["a/b=debian-rt", "=debian-rt", "a b=debian-rt", "..=debian-rt", "/k/a=b.deb"]
        {
            let said = KernelRef::parse(typed).expect_err("no folder's name").to_string();
            assert!(said.contains("the label") && said.contains("path=FILE"), "{said}");
        }
    }

    #[test]
    fn a_kernel_with_an_empty_part_is_refused_with_what_one_looks_like() {
        for (typed, why) in [
            ("", "names no kernel"),
            (":", "names no kernel"),
            ("x=", "names no kernel"),
            ("path=", "names no kernel"),
            ("rt=path=", "names no kernel"),
            (":preempt=full", "names no kernel"),
            ("tiny-6.12-rt:", "nothing follows a colon"),
            ("debian-rt::quiet", "nothing follows a colon"),
        ] {
            let said = KernelRef::parse(typed).expect_err(typed).to_string();
            assert!(said.contains(&format!("{typed:?}")) && said.contains(why), "{said}");
            assert!(said.ends_with("mine=debian-stock:preempt=full"), "{said}");
        }
    }

    #[test]
    fn a_name_a_file_and_a_package_are_told_apart() {
        let source = |typed: &str| KernelRef::parse(typed).expect("sound").source;
        assert_eq!(source("rt=debian-rt:quiet"), KernelSource::Name("debian-rt".to_owned()));
        assert_eq!(source("path=/boot/vmlinuz"), KernelSource::File("/boot/vmlinuz".into()));
        for typed in ["/k/a.deb", "path=/k/a.deb", "mine=path=/k/a.deb:quiet"] {
            assert_eq!(source(typed), KernelSource::Package("/k/a.deb".into()));
        }
    }

    #[test]
    fn a_word_more_keeps_the_label_and_is_as_if_it_were_typed() {
        for typed in ["mine=debian-stock:quiet", "path=/boot/vmlinuz"] {
            let more = KernelRef::parse(typed).expect("sound").with_word("nohz=off");
            assert_eq!(KernelRef::parse(&format!("{typed}:nohz=off")).ok(), Some(more));
        }
        let words = ["quiet", "nohz=off"].map(str::to_owned).to_vec();
        let named = KernelRef::named("debian-rt", words);
        assert_eq!(KernelRef::parse("debian-rt:quiet:nohz=off").ok(), Some(named));
    }

    #[test]
    fn two_kernels_of_one_label_are_refused() {
        let check = |typed: &[&str]| {
            let kernels =
                typed.iter().map(|one| KernelRef::parse(one)).collect::<Result<Vec<_>, _>>();
            check_labels(&kernels.expect("sound"))
        };
        assert!(check(&["a=debian-rt", "b=debian-rt", "debian-rt"]).is_ok());
        let said = check(&["rt=path=/a", "rt=debian-rt:quiet"]).expect_err("one label").to_string();
        assert!(
            said.contains("two kernels are called rt, rt=path=/a and rt=debian-rt:quiet"),
            "{said}"
        );
        assert!(said.ends_with("--kernel OTHER=debian-rt:quiet"), "{said}");
        // A label that is another kernel's name.
        assert!(check(&["debian-rt", "debian-rt=debian-stock"]).is_err());
        assert!(check(&["debian-rt", "debian-rt"]).is_err());
    }
}
