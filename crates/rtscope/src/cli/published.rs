//! `--published`: figures that a document prints, beside those of verbs that have no plan.

use std::path::Path;

use anyhow::Context;
use rtscope_analyse::report::published::Whose;
use rtscope_measure::environment;
use rtscope_model::{
    published::{KernelKind, Published, PublishedTable},
    text::{is_toml_file, suggest},
};
use rtscope_sys::tree::Tree;

use super::Refused;
use crate::record;

/// The tables that are part of the binary: name and text.
macro_rules! shipped {
    ($($name:literal)*) => {
        &[$(($name, include_str!(concat!("../../plans/published/", $name, ".toml"))),)*]
    };
}

const SHIPPED: &[(&str, &str)] = shipped! { "course-lab" "vendor-training" };

/// The largest file of figures: those of the longest document take some ten KiB.
const TABLE_BYTES_MAX: u64 = 16 << 20;

/// The word for no figures at all.
const NONE: &str = "none";

/// Which published figures are shown beside ours.
#[derive(Clone, Debug, Default, clap::Args)]
pub(super) struct Choice {
    /// Show published figures beside ours: course-lab, vendor-training, a TOML file of published figures, or none
    #[arg(long, value_name = "TABLE")]
    published: Option<String>,
}

impl Choice {
    /// The entries that were asked for, or those of a shipped table where nothing was.
    pub(super) fn entries(&self, default: &str) -> anyhow::Result<Vec<Published>> {
        let name = self.published.as_deref().unwrap_or(default);
        if name == NONE {
            return Ok(Vec::new());
        }
        let text = match SHIPPED.iter().find(|(known, _)| *known == name) {
            Some((_, text)) => (*text).to_owned(),
            None if is_toml_file(name) => record::bounded_text(Path::new(name), TABLE_BYTES_MAX)
                .with_context(|| format!("can't read {name}"))?,
            None => {
                let names = SHIPPED.iter().map(|(known, _)| *known).chain([NONE]);
                let hint = suggest(name, names).map(|near| format!(" (did you mean {near:?}?)"));
                return Err(Refused(format!(
                    "--published {name}: neither a shipped table nor a TOML file{}; write course-lab, \
                     vendor-training, FILE.toml or none",
                    hint.unwrap_or_default()
                ))
                .into());
            }
        };
        Ok(PublishedTable::parse(name, &text)?.published)
    }
}

/// Whose figures those of a record are: this machine's, where its kernel made the record.
pub(super) fn whose(release: &str) -> Whose<'static> {
    let kernel = environment::kernel(&Tree::default());
    let kind = KernelKind::of(kernel.preemption).filter(|_| kernel.release == release);
    Whose { label: "", kernel: kind }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_shipped_table_is_sound_and_named_as_its_file() {
        for (name, text) in SHIPPED {
            let table = PublishedTable::parse(name, text).unwrap_or_else(|e| panic!("{e}"));
            assert_eq!(table.name, *name);
            assert!(!table.title.is_empty() && !table.published.is_empty());
        }
        let choice = |name: &str| Choice { published: Some(name.to_owned()) };
        let said = choice("course-lap").entries(NONE).expect_err("refused").to_string();
        assert!(said.contains("did you mean \"course-lab\"?"), "{said}");
        assert_eq!(choice(NONE).entries("course-lab").expect("nothing"), []);
    }
}
