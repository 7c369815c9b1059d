//! Threads as lines of text.

use std::{collections::BTreeMap, fmt::Write};

use rtscope_model::thread::Thread;

/// Names of the columns.
pub(super) const HEADING: &str =
    "    PID     TID S POLICY   PRIO NICE  CPU CPUS         CPU%  WAKE/s PREEMPT/s  WAITED NAME\n";

/// One line a thread.
pub(super) fn rows(threads: &[&Thread], indent: usize) -> String {
    threads.iter().fold(String::new(), |text, thread| text + &row(thread, indent))
}

fn row(thread: &Thread, indent: usize) -> String {
    let place = &thread.placement;
    let or_dash = |shown: bool, value: String| if shown { value } else { "-".to_owned() };
    let priority = or_dash(place.policy.has_priority(), place.priority.to_string());
    let nice = or_dash(!place.policy.is_real_time(), place.nice.to_string());
    let per_second =
        |count: u64, span_ns: u64| format!("{:.0}", count as f64 * 1e9 / span_ns.max(1) as f64);
    let look = thread.look.map_or_else(
        || ["-", "-", "-", "-"].map(str::to_owned),
        |look| {
            [
                format!("{:.1}", look.cpu_percent()),
                per_second(look.wakeups, look.span_ns),
                per_second(look.preemptions, look.span_ns),
                format!("{:.1}%", look.waited_ns as f64 * 100.0 / look.span_ns.max(1) as f64),
            ]
        },
    );
    let [share, wakeups, preemptions, waited] = look;
    let role = thread.role.as_ref().map(|role| format!("  ({role})")).unwrap_or_default();
    let kernel = if thread.kernel { ("[", "]") } else { ("", "") };
    let mut text = String::new();
    let _ = writeln!(
        text,
        "{:7} {:7} {} {:8} {priority:>4} {nice:>4} {:>4} {:10} {share:>6} {wakeups:>7} {preemptions:>9} {waited:>7} {:indent$}{}{}{}{role}",
        thread.pid,
        thread.tid,
        thread.state,
        place.policy,
        thread.cpu,
        place.cpus,
        "",
        kernel.0,
        thread.name,
        kernel.1,
    );
    text
}

/// Threads below their process, processes below the one that started them. A process whose parent
/// is not shown stands at the left.
pub(super) fn tree(threads: &[&Thread]) -> String {
    let mut processes: BTreeMap<u32, Vec<&Thread>> = BTreeMap::new();
    for thread in threads {
        processes.entry(thread.pid).or_default().push(thread);
    }
    let mut text = String::new();
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
        text += &rows(first, depth * 2);
        text += &rows(rest, depth * 2 + 1);
        let children: Vec<u32> = processes
            .iter()
            .filter(|(child, own)| own[0].parent == pid && **child != pid)
            .map(|(child, _)| *child)
            .collect();
        open.extend(children.into_iter().rev().map(|child| (child, depth + 1)));
    }
    text
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
        let words: Vec<String> = rows(&[&one], 0).split_whitespace().map(str::to_owned).collect();
        assert_eq!(
            words,
            ["7", "8", "S", "fifo", "80", "-", "1", "1", "25.0", "100", "6", "0.0%", "loop"]
        );
        assert_eq!(HEADING.split_whitespace().count(), words.len());
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
        let text = tree(&shown);
        let ends: Vec<&str> =
            text.lines().map(|line| &line[line.find('%').expect("a share") + 2..]).collect();
        assert_eq!(ends, ["parent", " thread", "  child", "orphan"]);
    }
}
