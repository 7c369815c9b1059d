//! Which cells of two sides belong together: those of one name. Where no name is on both sides, the only one of each
//! run. Repeats of a cell in one run (`rest`, `rest #2`) have one name.

use rtscope_model::{
    text::shell_word,
    time::{Nanos, Rounding},
};

use crate::{judgement::CellSummary, number::grouped};

use super::ComparedRun;

/// A cell of a run.
#[derive(Clone, Copy, Debug)]
pub(super) struct Member<'a> {
    pub(super) run: ComparedRun<'a>,
    pub(super) cell: &'a CellSummary,
}

impl<'a> Member<'a> {
    fn name(&self) -> &'a str {
        without_repeat(&self.cell.name)
    }
}

/// The name of a cell without the number of its repeat.
fn without_repeat(name: &str) -> &str {
    match name.rsplit_once(" #") {
        Some((first, number)) if number.parse::<u32>().is_ok() => first,
        _ => name,
    }
}

/// Whether a cell is the one that was asked for, or a repeat of it: `rest` also asks for `rest #2`.
#[must_use]
pub fn is_cell(asked: &str, name: &str) -> bool {
    asked == name || asked == without_repeat(name)
}

/// Cells of both sides that are compared.
#[derive(Clone, Debug)]
pub(super) struct Pair<'a> {
    pub(super) name: String,
    pub(super) a: Vec<Member<'a>>,
    pub(super) b: Vec<Member<'a>>,
}

/// The pairs in the order of the first run, and what has no partner, in words.
pub(super) fn pairs<'a>(
    a: &[ComparedRun<'a>],
    b: &[ComparedRun<'a>],
) -> (Vec<Pair<'a>>, Vec<String>) {
    let (of_a, of_b) = (members(a), members(b));
    let (names_a, names_b) = (names(&of_a), names(&of_b));
    let (silent_a, silent_b) = (silent(a), silent(b));
    let notes_of = |of_a: &[Silent<'a>], of_b: &[Silent<'a>]| -> Vec<String> {
        let of_a = of_a.iter().map(|one| one.note("A", a.len()));
        of_a.chain(of_b.iter().map(|one| one.note("B", b.len()))).collect()
    };
    let is_shared = names_a.iter().any(|name| names_b.contains(name));
    let has_one = |run: &ComparedRun<'a>| names(&members(&[*run])).len() <= 1;
    let is_there = !names_a.is_empty() && !names_b.is_empty();
    // An import's only cell is called as its file.
    if is_there && !is_shared && a.iter().chain(b).all(has_one) {
        let name = format!("{} against {}", several(&names_a), several(&names_b));
        return (vec![Pair { name, a: of_a, b: of_b }], notes_of(&silent_a, &silent_b));
    }
    let of = |members: &[Member<'a>], name: &str| -> Vec<Member<'a>> {
        members.iter().filter(|member| member.name() == name).copied().collect()
    };
    let shared = names_a.iter().filter(|name| names_b.contains(name));
    let pairs: Vec<Pair<'a>> = shared
        .map(|name| Pair { name: (*name).to_owned(), a: of(&of_a, name), b: of(&of_b, name) })
        .collect();
    let alone = |names: &[&str], others: &[&str], silent: &[Silent<'a>], side: &str| {
        let is_silent =
            |name: &str| silent.iter().any(|silent| without_repeat(silent.name) == name);
        let is_there = |name: &str| others.contains(&name) || is_silent(name);
        let alone: Vec<&str> = names.iter().filter(|name| !is_there(name)).copied().collect();
        let are = if alone.len() == 1 { "is" } else { "are" };
        (!alone.is_empty()).then(|| format!("{} {are} only in {side}", alone.join(", ")))
    };
    let notes =
        [alone(&names_a, &names_b, &silent_b, "A"), alone(&names_b, &names_a, &silent_a, "B")];
    let silent = notes_of(&silent_a, &silent_b).into_iter();
    (pairs, silent.chain(notes.into_iter().flatten()).collect())
}

/// A phase in which some runs of a side answered no activation: it has no latency to compare, and is the worst there is.
struct Silent<'a> {
    name: &'a str,
    runs: usize,
    missed: u64,
    waited_ns: u64,
}

impl Silent<'_> {
    fn note(&self, side: &str, of_runs: usize) -> String {
        let whose = match of_runs {
            1 => side.to_owned(),
            all => format!("{} of {all} runs of {side}", self.runs),
        };
        let waited = match self.waited_ns {
            0 => String::new(),
            ns => format!("; the longest wait was at least {}", Nanos(ns).rounded(Rounding::Down)),
        };
        format!(
            "in {whose}, no activation of {} was answered: {} missed{waited}. So there is no latency to compare. Such \
             a phase is worse than any latency",
            self.name,
            grouped(self.missed)
        )
    }
}

/// Each cell by its own name: what a repeat of it recorded says nothing of the one that stood still.
fn silent<'a>(runs: &[ComparedRun<'a>]) -> Vec<Silent<'a>> {
    let mut found: Vec<Silent<'a>> = Vec::new();
    for cell in runs.iter().flat_map(wanted) {
        let row = &cell.all;
        if row.missed == 0 || row.recorded > 0 {
            continue;
        }
        let at = found.iter().position(|known| known.name == cell.name).unwrap_or_else(|| {
            found.push(Silent { name: &cell.name, runs: 0, missed: 0, waited_ns: 0 });
            found.len() - 1
        });
        let known = &mut found[at];
        known.runs += 1;
        known.missed += row.missed;
        known.waited_ns = known.waited_ns.max(row.max_ns().unwrap_or(0));
    }
    found
}

/// The cells of a run that were asked for.
fn wanted<'a>(run: &ComparedRun<'a>) -> impl Iterator<Item = &'a CellSummary> + use<'a> {
    let asked = run.cell;
    run.judgement
        .cells
        .iter()
        .filter(move |cell| asked.is_none_or(|name| is_cell(name, &cell.name)))
}

/// The cells that recorded something.
fn members<'a>(runs: &[ComparedRun<'a>]) -> Vec<Member<'a>> {
    let of_run = |run: &ComparedRun<'a>| {
        let run = *run;
        wanted(&run)
            .filter(|cell| cell.all.recorded > 0)
            .map(move |cell| Member { run, cell })
            .collect::<Vec<_>>()
    };
    runs.iter().flat_map(of_run).collect()
}

/// Names as one: the first, and how many more.
fn several(names: &[&str]) -> String {
    match names {
        [] => String::new(),
        [one] => (*one).to_owned(),
        [first, others @ ..] => format!("{first} and {} more", others.len()),
    }
}

/// Where no cell has a partner: how to choose one of each side.
pub(super) fn advice(a: &[ComparedRun<'_>], b: &[ComparedRun<'_>]) -> Option<String> {
    let one_of = |side: &[ComparedRun<'_>]| {
        let found = members(side).first().copied()?;
        Some(shell_word(&format!("{}@{}", found.run.name, found.name())))
    };
    let (one, other) = (one_of(a)?, one_of(b)?);
    Some(format!("choose a phase of each side: rtscope compare {one} -- {other}"))
}

/// The names of cells in the order of their first appearance.
fn names<'a>(members: &[Member<'a>]) -> Vec<&'a str> {
    let mut names: Vec<&str> = Vec::new();
    for member in members {
        if !names.contains(&member.name()) {
            names.push(member.name());
        }
    }
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_repeat_is_asked_by_its_own_name_or_with_the_others() {
        assert!(is_cell("rest", "rest") && is_cell("rest", "rest #2") && is_cell("a #2", "a #2"));
        assert!(!is_cell("rest #2", "rest #3") && !is_cell("rest", "rest #b"));
        assert!(!is_cell("rest #2", "rest"));
    }
}
