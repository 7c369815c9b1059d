//! The table of features in `ARCHITECTURE.md`: every verb and every room is in it, and what it names exists.

use super::Problem;

const MAP: &str = "ARCHITECTURE.md";

/// Where the table's columns of crates lead, from the root.
const COLUMNS: [&str; 5] = [
    "crates/rtscope/src",
    "crates/rtscope-measure/src",
    "crates/rtscope-sampler/src",
    "crates/rtscope-analyse/src",
    "crates/rtscope-model/src",
];

/// The problems of the map. `rooms` are the folders directly below a crate's `src`, except those of tests, as paths from
/// the root; `exists` answers for such paths.
pub(super) fn check(
    map: &str,
    verbs: &[String],
    rooms: &[String],
    exists: impl Fn(&str) -> bool,
) -> Vec<Problem> {
    let mut problems = Vec::new();
    let head = |line: &str| line.starts_with("| feature |");
    let Some(start) = map.lines().position(head) else {
        return vec![Problem::new(MAP, 1, "there is no table of features")];
    };
    let rows = map.lines().enumerate().skip(start + 2);
    let rows: Vec<_> = rows.take_while(|(_, line)| line.starts_with('|')).collect();
    let mut shown_verbs: Vec<&str> = Vec::new();
    for (number, row) in &rows {
        let cells: Vec<&str> = row.trim_matches('|').split('|').collect();
        let [_, verbs, crates @ .., page] = &cells[..] else { continue };
        shown_verbs.extend(quoted(verbs));
        let paths = crates
            .iter()
            .zip(COLUMNS)
            .flat_map(|(cell, folder)| quoted(cell).map(move |path| format!("{folder}/{path}")));
        for path in paths.chain(quoted(page).map(str::to_owned)) {
            // A module is a file or a folder.
            if !exists(&path) && !exists(&format!("{path}.rs")) {
                let message = format!("the table of features names {path}, which is not there");
                problems.push(Problem::new(MAP, number + 1, message));
            }
        }
    }
    let absent = verbs.iter().filter(|verb| !shown_verbs.contains(&verb.as_str()));
    problems.extend(absent.map(|verb| {
        Problem::new(MAP, start + 1, format!("the table of features lacks the verb {verb}"))
    }));
    let after = map.lines().skip(start).collect::<Vec<_>>().join("\n");
    let named: Vec<&str> = quoted(&after).collect();
    for room in rooms {
        let name = room.rsplit('/').next().unwrap_or_default();
        if !named.iter().any(|path| path.split('/').next() == Some(name)) {
            let message =
                format!("neither the table of features nor the list below it names {room}");
            problems.push(Problem::new(MAP, start + 1, message));
        }
    }
    problems
}

/// What stands between backquotes.
fn quoted(text: &str) -> impl Iterator<Item = &str> {
    text.split('`').skip(1).step_by(2)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAP: &str = "# Map\n\n| feature | verbs | `a` | `b` | `c` | `d` | `e` | page |\n|---|---|---|---|---|---|---|---|\n\
        | waves | `wave` | `cli/wave` | `wave` | | | `wave.rs` | `docs/wave.md` |\n\n* `boot` boots.\n";

    fn messages(verbs: &[&str], rooms: &[&str], there: &[&str]) -> Vec<String> {
        let owned =
            |words: &[&str]| -> Vec<String> { words.iter().map(|&word| word.to_owned()).collect() };
        let problems = check(MAP, &owned(verbs), &owned(rooms), |path| there.contains(&path));
        problems.into_iter().map(|problem| problem.message).collect()
    }

    const THERE: [&str; 4] = [
        "crates/rtscope/src/cli/wave",
        "crates/rtscope-measure/src/wave.rs",
        "crates/rtscope-model/src/wave.rs",
        "docs/wave.md",
    ];

    #[test]
    fn a_map_that_names_everything_has_no_problem() {
        let rooms = ["crates/rtscope-measure/src/wave", "crates/rtscope-lab/src/boot"];
        assert_eq!(messages(&["wave"], &rooms, &THERE), [""; 0]);
    }

    #[test]
    fn what_is_missing_is_named() {
        let found = messages(&["wave", "stat"], &["crates/rtscope-lab/src/tool"], &THERE[1..]);
        let expected = [
            "the table of features names crates/rtscope/src/cli/wave, which is not there",
            "the table of features lacks the verb stat",
            "neither the table of features nor the list below it names crates/rtscope-lab/src/tool",
        ];
        assert_eq!(found, expected);
    }
}
