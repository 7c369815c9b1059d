//! A fleet before and after a change, place by place.

use std::fmt::Write as _;

use askama::Template;
use serde::Serialize;

use crate::{
    compare::{Basis, Comparison},
    number::counted,
    plot,
    report::terminal::Style,
};

/// [`FleetComparison::format`].
pub const FORMAT: u32 = 1;

/// The places that both sides have.
#[derive(Debug, Serialize)]
pub struct FleetComparison {
    /// [`FORMAT`].
    pub format: u32,
    /// Version of rtscope.
    pub version: String,
    /// Folders of the fleets.
    pub a: Vec<String>,
    pub b: Vec<String>,
    /// The ones that differ first.
    pub places: Vec<ComparedPlace>,
    /// Places without a record on one side.
    pub on_one_side: Vec<String>,
}

/// A place on both sides.
#[derive(Debug, Serialize)]
pub struct ComparedPlace {
    pub place: String,
    pub differs: bool,
    #[serde(flatten)]
    pub comparison: Comparison,
}

impl FleetComparison {
    /// Sorts the places: the ones that differ first.
    #[must_use]
    pub fn new(
        [a, b]: [Vec<String>; 2],
        version: &str,
        compared: Vec<(String, Comparison)>,
        on_one_side: Vec<String>,
    ) -> FleetComparison {
        let place = |(place, comparison): (String, Comparison)| {
            let differs = comparison.changes.iter().any(|change| !change.differing().is_empty());
            ComparedPlace { place, differs, comparison }
        };
        let mut places: Vec<ComparedPlace> = compared.into_iter().map(place).collect();
        places.sort_by(|a, b| b.differs.cmp(&a.differs).then_with(|| a.place.cmp(&b.place)));
        FleetComparison { format: FORMAT, version: version.to_owned(), a, b, places, on_one_side }
    }

    /// How many places differ, in one line.
    #[must_use]
    pub fn headline(&self) -> String {
        let different = self.places.iter().filter(|place| place.differs).count();
        let all = counted(self.places.len() as u64, "place");
        let missing = match self.on_one_side.len() {
            0 => String::new(),
            n => format!("; {} without a record on one side", counted(n as u64, "place")),
        };
        match (different, self.has_repeats()) {
            (0, _) => format!("No difference found at {all}{missing}"),
            (n, true) => format!("{n} of {all} differ{}{missing}", if n == 1 { "s" } else { "" }),
            (n, false) => format!(
                "The runs of {n} of {all} differ, but one run on a side can't tell a change from chance{missing}"
            ),
        }
    }

    /// Whether every interval contains the differences between runs of one place.
    fn has_repeats(&self) -> bool {
        let mut changes = self.places.iter().flat_map(|place| &place.comparison.changes);
        changes.all(|change| change.basis == Basis::Runs)
    }

    /// What the figures of many places are worth.
    fn worth(&self) -> &'static str {
        if self.has_repeats() { WITH_REPEATS } else { WITHOUT_REPEATS }
    }
}

const WITHOUT_REPEATS: &str = "All figures of all places are adjusted together (Holm). But with one run on a side, the intervals don't \
                               include the differences between runs of one place, which are often larger than what changed. \
                               Measure each side three times or more, in turn, and name all folders: A1 A2 A3 -- B1 B2 B3.";
const WITH_REPEATS: &str = "All figures of all places are adjusted together (Holm): if nothing has changed anywhere and runs vary normally, \
                     a difference is found in at most 5 % of such comparisons.";

/// The places for a terminal.
#[must_use]
pub fn text(all: &FleetComparison, style: Style) -> String {
    let mut text =
        format!("{}\nA  {}\nB  {}\n\n", all.headline(), all.a.join(", "), all.b.join(", "));
    for place in &all.places {
        text += &style.paragraph("", 4, &format!("{}: {}", place.place, place.comparison.answer));
    }
    if !all.on_one_side.is_empty() {
        let _ = writeln!(text, "\nOnly on one side: {}", all.on_one_side.join(", "));
    }
    text + "\n" + &style.paragraph("", 0, all.worth())
}

#[derive(Debug, Template)]
#[template(path = "fleet_compare.html")]
struct Page<'a> {
    style: &'static str,
    plot_rules: String,
    headline: String,
    all: &'a FleetComparison,
    worth: &'static str,
    json: String,
}

/// The page with the places; the page of each is `places/PLACE.html` below it.
///
/// # Panics
///
/// Never: the template only fails when its target does, and that is a string.
#[must_use]
pub fn page(all: &FleetComparison) -> String {
    let page = Page {
        style: include_str!("template/style.css"),
        plot_rules: plot::dark_rules(),
        headline: all.headline(),
        all,
        worth: all.worth(),
        json: super::harmless_json(all),
    };
    page.render().expect("writing to a string never fails")
}
