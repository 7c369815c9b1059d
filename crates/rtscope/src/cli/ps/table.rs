//! Threads as lines of text.

use std::collections::BTreeMap;

use rtscope_analyse::report::terminal::Style;
use rtscope_model::thread::Thread;

/// Names of the columns; the name comes last, with what is known of the thread behind it.
const HEADING: [&str; 11] =
    ["PID", "TID", "S", "POLICY", "NICE", "CPU", "CPUS", "CPU%", "WAKE/s", "PRE/s", "WAIT%"];

/// Columns whose values begin at the left.
const LEFT: [usize; 3] = [2, 3, 6];

/// How far the rest of a line is indented that does not fit.
const INDENT: usize = 14;

struct Line {
    values: [String; HEADING.len()],
    /// Its name, indented below its parent's in a tree.
    name: String,
    role: Option<String>,
}

/// The table of some threads in their order, no line wider than `width`.
pub(super) fn rows(threads: &[&Thread], width: usize) -> String {
    shown(&threads.iter().map(|thread| line(thread, 0)).collect::<Vec<_>>(), width)
}

fn line(thread: &Thread, indent: usize) -> Line {
    let place = &thread.placement;
    let per_second =
        |count: u64, span_ns: u64| format!("{:.0}", count as f64 * 1e9 / span_ns.max(1) as f64);
    let look = thread.look.map_or_else(
        || ["-", "-", "-", "-"].map(str::to_owned),
        |look| {
            [
                format!("{:.1}", look.cpu_percent()),
                per_second(look.wakeups, look.span_ns),
                per_second(look.preemptions, look.span_ns),
                format!("{:.1}", look.waited_ns as f64 * 100.0 / look.span_ns.max(1) as f64),
            ]
        },
    );
    let [share, wakeups, preemptions, waited] = look;
    let name = &thread.name;
    let name = if thread.kernel { format!("[{name}]") } else { name.clone() };
    Line {
        values: [
            thread.pid.to_string(),
            thread.tid.to_string(),
            thread.state.clone(),
            match place.policy.has_priority() {
                true => format!("{}:{}", place.policy, place.priority),
                false => place.policy.to_string(),
            },
            if place.policy.is_real_time() { "-".to_owned() } else { place.nice.to_string() },
            thread.cpu.to_string(),
            place.cpus.to_string(),
            share,
            wakeups,
            preemptions,
            waited,
        ],
        name: format!("{:indent$}{name}", ""),
        role: thread.role.as_ref().map(|role| format!("({role})")),
    }
}

/// Lines below the heading, each column as wide as what is in it.
fn shown(lines: &[Line], width: usize) -> String {
    let heading = HEADING.map(str::to_owned);
    let values = || std::iter::once(&heading).chain(lines.iter().map(|line| &line.values));
    let widest = |n: usize| values().map(|values| values[n].chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..HEADING.len()).map(widest).collect();
    let aligned = |values: &[String; HEADING.len()]| {
        values.iter().zip(&widths).enumerate().fold(String::new(), |text, (n, (value, &width))| {
            match LEFT.contains(&n) {
                true => format!("{text}{value:width$} "),
                false => format!("{text}{value:>width$} "),
            }
        })
    };
    let mut text = format!("{}NAME\n", aligned(&heading));
    for line in lines {
        let head = aligned(&line.values);
        let room = width.saturating_sub(head.chars().count());
        let role = line.role.as_deref().unwrap_or_default();
        let whole = format!("{}  {role}", line.name);
        let below = |text: &str| {
            Style { width, colour: false }.paragraph(&" ".repeat(INDENT), INDENT, text)
        };
        text += &if whole.trim_end().chars().count() <= room {
            format!("{head}{}\n", whole.trim_end())
        } else if line.name.chars().count() <= room {
            format!("{head}{}\n{}", line.name, below(role))
        } else {
            format!("{}\n{}", head.trim_end(), below(&whole))
        };
    }
    text
}

/// Threads below their process, processes below the one that started them. A process whose parent
/// is not shown stands at the left.
pub(super) fn tree(threads: &[&Thread], width: usize) -> String {
    let mut processes: BTreeMap<u32, Vec<&Thread>> = BTreeMap::new();
    for thread in threads {
        processes.entry(thread.pid).or_default().push(thread);
    }
    let mut lines: Vec<Line> = Vec::new();
    let roots: Vec<u32> = processes
        .iter()
        .filter(|(_, own)| !processes.contains_key(&own[0].parent))
        .map(|(pid, _)| *pid)
        .collect();
    // Deepest last on the stack is shown next: children follow their parent.
    let mut open: Vec<(u32, usize)> = roots.into_iter().rev().map(|pid| (pid, 0)).collect();
    while let Some((pid, depth)) = open.pop() {
        let Some(mut own) = processes.get(&pid).cloned() else { continue };
        own.sort_by_key(|thread| thread.tid);
        let (first, rest) = own.split_at(1);
        lines.extend(first.iter().map(|thread| line(thread, depth * 2)));
        lines.extend(rest.iter().map(|thread| line(thread, depth * 2 + 1)));
        let children: Vec<u32> = processes
            .iter()
            .filter(|(child, own)| own[0].parent == pid && **child != pid)
            .map(|(child, _)| *child)
            .collect();
        open.extend(children.into_iter().rev().map(|child| (child, depth + 1)));
    }
    shown(&lines, width)
}

#[cfg(test)]
mod tests {
    use rtscope_model::{
        schedule::{Placement, Policy},
        thread::Look,
    };

    use super::*;

    fn thread(pid: u32, tid: u32, parent: u32, name: &str) -> Thread {
        Thread {
            pid,
            tid,
            parent,
            name: name.to_owned(),
            state: "S".to_owned(),
            placement: Placement {
                policy: Policy::Fifo,
                priority: 80,
                nice: 0,
                budget: None,
                cpus: [1].into_iter().collect(),
            },
            cpu: 1,
            kernel: false,
            role: None,
            cpu_ns: None,
            waited_ns: None,
            voluntary_switches: None,
            involuntary_switches: None,
            migrations: None,
            look: Some(Look {
                span_ns: 500_000_000,
                cpu_ns: 125_000_000,
                waited_ns: 0,
                wakeups: 50,
                preemptions: 3,
            }),
        }
    }

    #[test]
    fn a_line_gives_rates_of_the_look() {
        let one = thread(7, 8, 1, "loop");
        let text = rows(&[&one], 80);
        let [heading, line] = text.lines().collect::<Vec<_>>()[..] else { panic!("{text}") };
        let words: Vec<&str> = line.split_whitespace().collect();
        assert_eq!(
            words,
            ["7", "8", "S", "fifo:80", "-", "1", "1", "25.0", "100", "6", "0.0", "loop"]
        );
        assert_eq!(heading.split_whitespace().count(), words.len());
    }

    #[test]
    fn no_line_is_wider_than_the_terminal() {
        let mut kernel = thread(1_018, 1_018, 2, "irq/24-ACPI:Ged");
        kernel.kernel = true;
        kernel.role =
            Some("moves threads between CPUs; stop class, runs before everything".to_owned());
        let mut known = thread(12_345, 12_345, 1, "x");
        known.role = Some("short".to_owned());
        let mut long = thread(12_346, 12_346, 2, "kworker/0:1-events_freezable_power_efficient");
        long.kernel = true;
        let text = rows(&[&kernel, &known, &long], 80);
        assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
        let below =
            "\n              (moves threads between CPUs; stop class, runs before everything)\n";
        assert!(text.contains(below) && text.contains(" x  (short)\n"), "{text}");
        assert!(
            text.contains("\n              [kworker/0:1-events_freezable_power_efficient]\n"),
            "{text}"
        );
    }

    #[test]
    fn children_stand_below_their_parents() {
        let all = [
            thread(9, 9, 2, "orphan"),
            thread(5, 5, 3, "child"),
            thread(3, 4, 1, "thread"),
            thread(3, 3, 1, "parent"),
        ];
        let shown: Vec<&Thread> = all.iter().collect();
        let text = tree(&shown, 80);
        let at = text.find("NAME").expect("a heading");
        let ends: Vec<&str> = text.lines().skip(1).map(|line| &line[at..]).collect();
        assert_eq!(ends, ["parent", " thread", "  child", "orphan"]);
    }
}
