//! The CPUs: which run, which are kept apart, what they are.

use rtscope_model::{
    cmdline,
    cpu::CpuSet,
    environment::{Cpu, Cpus},
};
use rtscope_sys::tree::Tree;

use super::{
    power,
    text::{numbered, value, values},
};

const FOLDER: &str = "sys/devices/system/cpu";

pub(super) fn collect(tree: &Tree, cpuinfo: &str, line: &str) -> Cpus {
    let listed = |path: &str| tree.read(path).ok().and_then(|text| text.parse::<CpuSet>().ok());
    let known = |name: &str| listed(&format!("{FOLDER}/{name}"));
    let online = online(tree);
    // The command line is what old kernels show; partitions of cpuset are made while running.
    let isolated = known("isolated")
        .or_else(|| cmdline::cpus(line, "isolcpus", online.last()))
        .unwrap_or_default();
    let apart = listed("sys/fs/cgroup/cpuset.cpus.isolated").unwrap_or_default();
    Cpus {
        model: model(cpuinfo),
        each: online.iter().map(|cpu| one(tree, cpu)).collect(),
        allowed: allowed(tree),
        isolated: isolated.iter().chain(apart.iter()).collect(),
        nohz_full: known("nohz_full")
            .or_else(|| cmdline::cpus(line, "nohz_full", online.last()))
            .unwrap_or_default(),
        online,
    }
}

/// The memory node of a CPU; 0 where the kernel shows none.
#[must_use]
pub fn memory_node(tree: &Tree, cpu: u32) -> i32 {
    let names = tree.list(format!("{FOLDER}/cpu{cpu}"));
    let node = names.iter().find_map(|name| name.strip_prefix("node")?.parse().ok());
    node.unwrap_or(0)
}

/// The CPUs that run; empty when neither `/sys` nor `/proc` shows them.
#[must_use]
pub fn online(tree: &Tree) -> CpuSet {
    let listed = tree.read(format!("{FOLDER}/online")).ok().and_then(|text| text.parse().ok());
    listed.unwrap_or_else(|| {
        let mut names = tree.list(FOLDER);
        if names.is_empty() {
            // Its lines `cpu0`, `cpu1`... are those that run.
            let stat = tree.read("proc/stat").unwrap_or_default();
            names = stat.lines().filter_map(|l| l.split(' ').next().map(str::to_owned)).collect();
        }
        numbered(names, "cpu").into_iter().map(|(cpu, _)| cpu).collect()
    })
}

/// The CPUs that run and that this process may use.
pub(crate) fn usable(tree: &Tree) -> CpuSet {
    allowed(tree).common(&online(tree))
}

/// The CPUs that this process may use.
fn allowed(tree: &Tree) -> CpuSet {
    let status = tree.read("proc/self/status").unwrap_or_default();
    value(&status, "Cpus_allowed_list").and_then(|list| list.parse().ok()).unwrap_or_default()
}

fn one(tree: &Tree, cpu: u32) -> Cpu {
    let folder = format!("{FOLDER}/cpu{cpu}");
    let core = tree.read(format!("{folder}/topology/thread_siblings_list")).unwrap_or_default();
    let core: CpuSet = core.parse().unwrap_or_default();
    Cpu {
        cpu,
        siblings: core.iter().filter(|sibling| *sibling != cpu).collect(),
        governor: power::governor(tree, &folder),
        frequency_khz: power::frequency_khz(tree, &folder),
        idle_states: power::idle_states(tree, &folder),
    }
}

/// The model in words: x86 names it; ARM shows numbers of cores, several on a big.LITTLE machine;
/// RISC-V a micro-architecture; others a `cpu` line.
fn model(cpuinfo: &str) -> String {
    if let Some(name) = value(cpuinfo, "model name").filter(|name| !name.is_empty()) {
        return name.split_whitespace().collect::<Vec<_>>().join(" ");
    }
    let implementers = values(cpuinfo, "CPU implementer");
    let mut cores: Vec<String> = implementers
        .zip(values(cpuinfo, "CPU part"))
        .map(|(by, part)| arm_core(by, part))
        .collect();
    cores.dedup();
    cores.sort();
    cores.dedup();
    if !cores.is_empty() {
        return cores.join(" + ");
    }
    let other =
        ["uarch", "cpu model", "cpu", "isa"].into_iter().find_map(|key| value(cpuinfo, key));
    other.unwrap_or_default().to_owned()
}

/// Arm Limited's part numbers (main ID register) of cores on common boards.
const ARM_CORES: [(&str, &str); 19] = [
    ("0xb76", "ARM1176"),
    ("0xc07", "Cortex-A7"),
    ("0xc08", "Cortex-A8"),
    ("0xc09", "Cortex-A9"),
    ("0xc0f", "Cortex-A15"),
    ("0xd03", "Cortex-A53"),
    ("0xd04", "Cortex-A35"),
    ("0xd05", "Cortex-A55"),
    ("0xd07", "Cortex-A57"),
    ("0xd08", "Cortex-A72"),
    ("0xd09", "Cortex-A73"),
    ("0xd0a", "Cortex-A75"),
    ("0xd0b", "Cortex-A76"),
    ("0xd0c", "Neoverse-N1"),
    ("0xd40", "Neoverse-V1"),
    ("0xd41", "Cortex-A78"),
    ("0xd42", "Cortex-A78AE"),
    ("0xd49", "Neoverse-N2"),
    ("0xd4f", "Neoverse-V2"),
];

fn arm_core(implementer: &str, part: &str) -> String {
    let known = ARM_CORES.iter().find(|(number, _)| implementer == "0x41" && *number == part);
    known.map_or_else(
        || format!("Arm core {part} of implementer {implementer}"),
        |(_, name)| (*name).to_owned(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::environment::fake::FakeTree;

    #[test]
    fn models_of_other_machines_are_named() {
        let pi = include_str!("fixtures/cpuinfo-raspberry-pi-4");
        assert_eq!(model(pi), "Cortex-A72");
        let rockchip = include_str!("fixtures/cpuinfo-big-little");
        assert_eq!(model(rockchip), "Cortex-A55 + Cortex-A76");
        let pc = include_str!("fixtures/cpuinfo-x86");
        assert_eq!(model(pc), "Intel(R) Core(TM) i5-8500T CPU @ 2.10GHz");
        let board = include_str!("fixtures/cpuinfo-riscv");
        assert_eq!(model(board), "sifive,u74-mc");
        assert_eq!(
            model("CPU implementer\t: 0x61\nCPU part\t: 0x022\n"),
            "Arm core 0x022 of implementer 0x61"
        );
    }

    #[test]
    fn sets_and_siblings_are_read() {
        let fake = FakeTree::new();
        fake.file("sys/devices/system/cpu/online", "0-3\n");
        fake.file("sys/devices/system/cpu/isolated", "3\n");
        fake.file("sys/fs/cgroup/cpuset.cpus.isolated", "2\n");
        // What kernels without any such CPU print.
        fake.file("sys/devices/system/cpu/nohz_full", "  (null)\n");
        fake.file("sys/devices/system/cpu/cpu1/topology/thread_siblings_list", "1,3\n");
        fake.file(
            "proc/self/status",
            "Name:\trtscope\nCpus_allowed:\t3\nCpus_allowed_list:\t0-1\n",
        );
        let cpus = collect(&fake.tree, "", "isolcpus=1");
        let words =
            [&cpus.online, &cpus.isolated, &cpus.nohz_full, &cpus.allowed, &cpus.each[1].siblings];
        assert_eq!(words.map(ToString::to_string), ["0-3", "2-3", "", "0-1", "3"]);
        assert_eq!(cpus.each.iter().map(|cpu| cpu.cpu).collect::<Vec<_>>(), [0, 1, 2, 3]);
    }

    #[test]
    fn the_command_line_tells_what_an_old_kernel_does_not() {
        let fake = FakeTree::new();
        fake.file("sys/devices/system/cpu/cpu0/uevent", "");
        fake.file("sys/devices/system/cpu/cpu10/uevent", "");
        let cpus = collect(&fake.tree, "", "isolcpus=nohz,10 nohz_full=10");
        assert_eq!(cpus.online.to_string(), "0,10");
        assert_eq!(cpus.isolated.to_string(), "10");
        assert_eq!(cpus.nohz_full.to_string(), "10");
    }

    #[test]
    fn without_sys_the_cpus_that_proc_lists_are_online() {
        let fake = FakeTree::new();
        fake.file("proc/stat", "cpu  1 2 3\ncpu0 1 2 3\ncpu3 1 2 3\nintr 5\n");
        assert_eq!(online(&fake.tree).to_string(), "0,3");
    }
}
