//! Who holds a CPU against a thread that waits for it.

use rtscope_model::{cpu::CpuSet, thread::Thread};
use rtscope_sys::tree::Tree;

use super::threads;

/// Who runs on some CPUs at this instant before all others, in words: real-time threads of other processes,
/// one for each CPU.
#[must_use]
pub fn holder(cpus: &CpuSet) -> String {
    named(&threads(&Tree::default()), cpus, std::process::id())
}

/// As [`holder`], of threads in the order in which they run.
fn named(threads: &[Thread], cpus: &CpuSet, own_pid: u32) -> String {
    let holds = |thread: &&Thread, cpu: u32| {
        let runs = thread.state == "R" && thread.cpu == cpu;
        runs && thread.placement.policy.is_real_time() && thread.pid != own_pid
    };
    let first = |cpu| threads.iter().find(|thread| holds(thread, cpu));
    let held = cpus.iter().filter_map(|cpu| {
        let Thread { name, pid, placement, .. } = first(cpu)?;
        let (policy, priority) = (placement.policy.word(), placement.priority);
        Some(format!("CPU {cpu} is held by {name} (process {pid}, {policy} {priority})"))
    });
    let held: Vec<String> = held.collect();
    if held.is_empty() {
        return format!("no real-time thread of another process was seen running on CPU {cpus}");
    }
    held.join(", ")
}

#[cfg(test)]
mod tests {
    use rtscope_model::schedule::{Placement, Policy};

    use super::*;

    fn thread(pid: u32, cpu: u32, state: &str, policy: Policy, priority: u8) -> Thread {
        let cpus: CpuSet = [cpu].into_iter().collect();
        Thread {
            pid,
            tid: pid,
            parent: 1,
            name: format!("p{pid}"),
            state: state.to_owned(),
            placement: Placement { policy, priority, nice: 0, budget: None, cpus },
            cpu,
            kernel: false,
            role: None,
            cpu_ns: None,
            waited_ns: None,
            voluntary_switches: None,
            involuntary_switches: None,
            migrations: None,
            look: None,
        }
    }

    #[test]
    fn the_first_that_runs_on_each_cpu_is_named() {
        let threads = [
            thread(7, 1, "R", Policy::Fifo, 98),
            thread(8, 1, "S", Policy::Fifo, 97),
            thread(9, 1, "R", Policy::Rr, 96),
            thread(10, 1, "R", Policy::Fifo, 95),
            thread(11, 0, "R", Policy::Other, 0),
            thread(12, 2, "R", Policy::Fifo, 50),
        ];
        let of = |cpus: &str| named(&threads, &cpus.parse().expect("CPUs"), 7);
        assert_eq!(of("0-1"), "CPU 1 is held by p9 (process 9, rr 96)");
        assert_eq!(
            of("1-2"),
            "CPU 1 is held by p9 (process 9, rr 96), CPU 2 is held by p12 (process 12, fifo 50)"
        );
        assert_eq!(of("0"), "no real-time thread of another process was seen running on CPU 0");
    }
}
