//! CPU time by class and interrupts by line, phase by phase.

use rtscope_model::{machine_use::CpuClass, record::Record};

use crate::{
    judgement::Judgement,
    number::per_second,
    plot::table::Table,
    statistics::machine_use::{self, MachineUse},
};

/// CPUs up to which each has a column in the table of interrupts.
const COLUMNS_MAX: usize = 8;

/// Interrupt lines that are shown; the JSON document has all.
const LINES_SHOWN: usize = 8;

#[derive(Debug)]
pub(super) struct MachineUseView {
    pub(super) headline: String,
    pub(super) cells: Vec<CellUse>,
}

#[derive(Debug)]
pub(super) struct CellUse {
    pub(super) name: String,
    pub(super) cpus: Table,
    pub(super) lines: Table,
}

impl MachineUseView {
    /// None where the record holds neither.
    pub(super) fn new(record: &Record, judgement: &Judgement) -> Option<MachineUseView> {
        let found = judgement.cells.iter().map(|cell| {
            let found = machine_use::of_cell(record, cell.cell);
            (cell.name.clone(), found)
        });
        let found: Vec<(String, MachineUse)> =
            found.filter(|(_, found)| !found.cpus.is_empty() || !found.lines.is_empty()).collect();
        let headline = headline(&found)?;
        let cells = found.into_iter().map(|(name, found)| {
            let (cpus, lines) = (cpus(&found), lines(&found));
            CellUse { name, cpus, lines }
        });
        Some(MachineUseView { headline, cells: cells.collect() })
    }
}

/// The phase that left the least time idle, and what took the most of it.
fn headline(found: &[(String, MachineUse)]) -> Option<String> {
    let busy = |found: &MachineUse| found.all().map_or(0.0, |all| 1.0 - all.share(CpuClass::Idle));
    let (name, found) = found.iter().max_by(|a, b| busy(&a.1).total_cmp(&busy(&b.1)))?;
    let Some(all) = found.all() else {
        return Some("Interrupts of each phase".to_owned());
    };
    let classes = CpuClass::ALL.into_iter().filter(|class| *class != CpuClass::Idle);
    let most = classes.max_by(|a, b| all.share(*a).total_cmp(&all.share(*b)))?;
    Some(format!(
        "{name} left {:.1} % of CPU time idle and used {:.1} % as {} time",
        all.share(CpuClass::Idle) * 100.0,
        all.share(most) * 100.0,
        most.name()
    ))
}

fn cpus(found: &MachineUse) -> Table {
    let mut table =
        Table::new(["CPU"].into_iter().chain(CpuClass::ALL.iter().map(|class| class.name())));
    for one in &found.cpus {
        let label = one.cpu.map_or("all".to_owned(), |cpu| cpu.to_string());
        let shares = one.shares.iter().map(|share| format!("{:.2}", share * 100.0));
        table.row(std::iter::once(label).chain(shares));
    }
    table
}

fn lines(found: &MachineUse) -> Table {
    let mut cpus: Vec<u32> =
        found.lines.iter().flat_map(|line| line.cpus.iter().map(|(cpu, _)| *cpu)).collect();
    cpus.sort_unstable();
    cpus.dedup();
    let by_cpu = cpus.len() <= COLUMNS_MAX;
    let columns = if by_cpu { cpus.as_slice() } else { &[] };
    let head = ["line", "what", "all CPUs"].map(str::to_owned).into_iter();
    let mut table = Table::new(head.chain(columns.iter().map(|cpu| format!("CPU {cpu}"))));
    for line in found.lines.iter().take(LINES_SHOWN) {
        let mut row = vec![line.line.clone(), line.name.clone(), per_second(line.per_second)];
        for cpu in columns {
            let known = line.cpus.iter().find(|(known, _)| known == cpu);
            row.push(known.map_or("0".to_owned(), |(_, rate)| per_second(*rate)));
        }
        table.row(row);
    }
    let left = found.lines.len().saturating_sub(LINES_SHOWN);
    let mut notes = Vec::new();
    if left > 0 {
        notes.push(format!("{left} more lines are in verdict.json."));
    }
    if !by_cpu {
        notes.push("verdict.json has the rates of each CPU.".to_owned());
    }
    table.note = notes.join(" ");
    table
}
