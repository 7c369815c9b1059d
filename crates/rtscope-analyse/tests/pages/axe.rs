//! What axe-core finds on a page. It comes from its own registry by `cargo xtask test`, and stays out of the
//! project: its licence is the MPL.

use std::{fs, path::Path};

use rtscope_testing::browser::Browser;

/// Where `cargo xtask test` puts it, below the target folder.
const SCRIPT: &str = "xtask/axe/node_modules/axe-core/axe.min.js";

/// Checks the page as it stands, and says each finding in a line: rule, weight, how often, and the first
/// element.
const RUN: &str = "axe.run({ resultTypes: ['violations'], RULES }).then(found => found.violations.map(one => \
    `${one.id} (${one.impact}), ${one.nodes.length} times: ${one.nodes[0].html} \
    ${one.nodes[0].any.concat(one.nodes[0].all, one.nodes[0].none).map(why => why.message).join('; ')}`))";

/// The script; none where it was not fetched.
pub(crate) fn script() -> Option<String> {
    // Temporary files of tests lie in the target folder, too.
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).ancestors();
    target.map(|folder| folder.join(SCRIPT)).find_map(|file| fs::read_to_string(file).ok())
}

/// Which of its rules axe-core applies.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Rules {
    All,
    /// Rules of colours. Applying them takes half of the time.
    Colours,
    AllButColours,
}

impl Rules {
    fn option(self) -> &'static str {
        match self {
            Rules::All => "",
            Rules::Colours => "runOnly: ['color-contrast', 'link-in-text-block']",
            Rules::AllButColours => {
                "rules: { 'color-contrast': { enabled: false }, 'link-in-text-block': { enabled: false } }"
            }
        }
    }
}

/// What axe-core finds on the page that the browser shows.
pub(crate) fn findings(browser: &mut Browser, rules: Rules) -> Vec<String> {
    let found = browser.evaluate(&RUN.replace("RULES", rules.option()));
    let lines = found.as_array().expect("a list").iter();
    lines.map(|line| line.as_str().expect("a text").to_owned()).collect()
}
