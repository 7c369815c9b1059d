//! Settings as the command line names them.

use std::collections::BTreeMap;

use rtscope_measure::tune;

use crate::failure::Refused;

/// Reads `NAME=VALUE`, each checked. `option` stands before each in errors.
///
/// # Errors
///
/// A word without `=`, an unknown setting, a value that it doesn't take, a setting that is named twice.
pub(in crate::cli) fn read(
    option: &str,
    words: &[String],
) -> anyhow::Result<BTreeMap<String, String>> {
    let mut settings = BTreeMap::new();
    for word in words {
        let wrong = |text: String| Refused(format!("{option}{word}: {text}"));
        let (name, value) =
            word.split_once('=').ok_or_else(|| wrong("write it as throttling=off".to_owned()))?;
        tune::check(name, value).map_err(|problem| wrong(problem.to_string()))?;
        if settings.insert(name.to_owned(), value.to_owned()).is_some() {
            return Err(wrong(format!("{name} is set twice; leave one out")).into());
        }
    }
    Ok(settings)
}
