//! One page with everything that has a name on the command line or in a plan.

use std::fmt::Write as _;

use clap::ValueEnum as _;
use rtscope_analyse::{doctor::PURPOSES, export, import};
use rtscope_lab::{machine::Machine, prebuilt, spec};
use rtscope_measure::{
    load::{COMMON_OPTIONS, LOADS, LoadOption, ValueKind},
    tune::SETTINGS,
};
use rtscope_model::time::Nanos;

use super::{NOT_RELEASED, prose, table};
use crate::{cli::sched, plans, skeletons::Language};

/// A row of a name and what it is.
fn named(name: &str, about: &str) -> Vec<String> {
    vec![format!("`{name}`"), prose(about)]
}

/// A heading, a sentence below it, and a table.
type Section = (String, &'static str, String);

fn section(heading: &str, text: &'static str, table: String) -> Section {
    (heading.to_owned(), text, table)
}

/// The page.
pub(super) fn page() -> String {
    let mut page =
        "# Names that commands take\n\nThis page is made from the tables of the program.\n"
            .to_owned();
    let sections = [plans_and_loads(), settings(), formats(), of_the_lab()].concat();
    for (heading, text, table) in sections {
        let _ = write!(page, "\n## {heading}\n\n{text}\n\n{table}");
    }
    page
}

fn plans_and_loads() -> Vec<Section> {
    let loads = LOADS.iter().map(|load| named(load.name, load.about));
    let mut sections = vec![
        section(
            "Plans",
            "`rtscope plan show NAME` prints one, `rtscope run NAME` runs it.",
            plans(),
        ),
        section(
            "Scheduling experiments",
            "`rtscope sched run NAME`. See [Experiments](../guide/experiments.md).",
            experiments(),
        ),
        section(
            "Loads",
            "`rtscope load NAME OPTION=VALUE...`, and `load` in a plan. See [Loads](../guide/loads.md).",
            table(&["load", "what it does"], loads),
        ),
    ];
    for load in LOADS.iter().filter(|load| !load.options.is_empty()) {
        let heading = format!("Options of {}", load.name);
        sections.push((
            heading,
            "Beside these, it has the options of every load.",
            options(load.options),
        ));
    }
    let common = options(COMMON_OPTIONS);
    sections.push(section("Options of every load", "These may follow any load.", common));
    sections
}

fn settings() -> Vec<Section> {
    let settings = SETTINGS
        .iter()
        .map(|one| vec![format!("`{}`", one.name), prose(one.values), prose(one.about)]);
    let purposes = PURPOSES.iter().map(|one| {
        let deadline = Nanos(one.deadline_ns).to_string();
        vec![format!("`{}`", one.name), deadline, prose(one.about)]
    });
    vec![
        section(
            "Settings",
            "`--set NAME=VALUE`, `settings` in a plan, `rtscope tune`. See [Settings](../guide/settings.md).",
            table(&["setting", "values", "what it is"], settings),
        ),
        section(
            "Purposes of doctor",
            "`rtscope doctor --for NAME`. See [Doctor](../guide/doctor.md).",
            table(&["purpose", "deadline", "what it is for"], purposes),
        ),
    ]
}

fn formats() -> Vec<Section> {
    let exports = export::FORMATS.iter().filter(|one| one.name != NOT_RELEASED);
    let exports = exports.map(|one| named(one.name, one.what));
    let imports = import::formats().map(|(name, what)| named(name, what));
    vec![
        section(
            "Formats of export",
            "`rtscope export DIR --format NAME`. See [Exports](../guide/export.md).",
            table(&["format", "content"], exports),
        ),
        section(
            "Formats of import",
            "`rtscope import FILE --format NAME`. See [Imports](../guide/import.md).",
            table(&["format", "what it is"], imports),
        ),
    ]
}

fn of_the_lab() -> Vec<Section> {
    let machines = Machine::shipped();
    let machines = machines.iter().map(|one| named(&one.name, &one.about));
    let languages = Language::value_variants().iter().filter_map(|language| {
        let value = language.to_possible_value()?;
        Some(named(value.get_name(), &value.get_help().unwrap_or_default().to_string()))
    });
    vec![
        section(
            "Kernels",
            "`rtscope lab run --kernel NAME`. See [Kernels](../guide/kernel.md).",
            kernels(),
        ),
        section(
            "Machines of the lab",
            "`rtscope lab run --machine NAME`. See [The lab](../guide/lab.md).",
            table(&["machine", "what it is"], machines),
        ),
        section(
            "Languages of skeletons",
            "`rtscope new NAME --lang LANGUAGE`. See [Skeletons](../guide/skeletons.md).",
            table(&["language", "what it is"], languages),
        ),
    ]
}

fn plans() -> String {
    let rows = plans::SHIPPED.iter().map(|shipped| {
        let plan = rtscope_model::plan::parse(shipped.name, shipped.text).expect("a plan");
        let (phases, time) = (plan.phases.len().to_string(), plan.expected().to_string());
        vec![format!("`{}`", shipped.name), phases, time, prose(&plan.title)]
    });
    table(&["plan", "phases", "time", "what it measures"], rows)
}

fn experiments() -> String {
    let rows = sched::SHIPPED.iter().map(|(name, text)| {
        let typed: toml::Table = text.parse().expect("TOML");
        let title = typed.get("title").and_then(|title| title.as_str()).unwrap_or_default();
        named(name, title)
    });
    table(&["experiment", "what it shows"], rows)
}

fn kernels() -> String {
    let made = spec::all();
    let made = made
        .iter()
        .map(|one| vec![format!("`{}`", one.name), "built".to_owned(), prose(&one.title)]);
    let fetched = prebuilt::NAMES.iter().map(|name| {
        vec![
            format!("`{name}`"),
            "fetched".to_owned(),
            "a kernel of Debian, from its package".to_owned(),
        ]
    });
    table(&["kernel", "how it comes", "what it is"], fetched.chain(made))
}

fn options(options: &[LoadOption]) -> String {
    let rows = options.iter().map(|one| {
        let default = match one.default {
            "" => String::new(),
            default => format!("`{default}`"),
        };
        vec![format!("`{}`", one.name), values(one.kind), default, prose(one.about)]
    });
    table(&["option", "values", "default", "meaning"], rows)
}

fn values(kind: ValueKind) -> String {
    match kind {
        ValueKind::Number { min, max } => format!("{min} to {max}"),
        ValueKind::Size { min, max } => format!("a size, {min} to {max} bytes"),
        ValueKind::Word(words) => {
            words.iter().map(|word| format!("`{word}`")).collect::<Vec<_>>().join(", ")
        }
        ValueKind::Flag => "`true` or `false`".to_owned(),
        ValueKind::Workers => "a number, or `cpus`".to_owned(),
        ValueKind::Cpus => "`all`, `measured`, `others`, or a set".to_owned(),
        ValueKind::Text => "text".to_owned(),
    }
}
