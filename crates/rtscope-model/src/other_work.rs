//! What else the machine did in a phase: the CPU time of processes that are not rtscope's, and
//! real-time threads that were there beside the sampler's.

use serde::{Deserialize, Serialize};

use crate::environment::RealTimeThread;

/// CPU time in a phase, by whose it was. rtscope's own is that of its process and of its loads.
///
/// Interrupts belong to nobody here. The kernel counts in clock ticks, often of 10 ms.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct OtherWork {
    pub cell: u32,
    /// Length of the time that was looked at.
    pub span_ns: u64,
    /// CPU time of rtscope and its loads.
    pub ours_ns: u64,
    /// CPU time of kernel threads.
    pub kernel_ns: u64,
    /// CPU time of all other processes, those that could not be named included.
    pub others_ns: u64,
    /// How long each CPU ran any thread.
    pub cpus: Vec<BusyCpu>,
    /// Processes and kernel threads that used most, the largest first.
    pub processes: Vec<BusyProcess>,
}

/// How long a CPU ran threads, interrupts left out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct BusyCpu {
    pub cpu: u32,
    pub threads_ns: u64,
}

/// What a process used.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BusyProcess {
    pub pid: u32,
    /// Its name, at most 15 bytes.
    pub name: String,
    /// Whether it is the kernel's own.
    pub kernel: bool,
    /// CPU time of all its threads in the phase.
    pub cpu_ns: u64,
}

/// Real-time threads of one owner that were not there before the run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NewRealTimeThreads {
    pub cell: u32,
    /// Index of the load whose threads they are; none for threads of other processes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub load: Option<u32>,
    /// Some of them, those that run first before the others.
    pub threads: Vec<RealTimeThread>,
    pub count: u32,
}

impl OtherWork {
    /// The part of the CPU time in the phase that others used on the busiest of some CPUs, 0 to 1.
    ///
    /// Which CPU a process ran on is not known. The estimate takes rtscope's own time as spread
    /// evenly over these CPUs and all of the kernel threads' as theirs, so it is rather too low.
    #[must_use]
    pub fn others_share_of(&self, cpus: &crate::cpu::CpuSet) -> f64 {
        let ours_ns = self.ours_ns / (cpus.len() as u64).max(1) + self.kernel_ns;
        let on_these = self.cpus.iter().filter(|busy| cpus.contains(busy.cpu));
        let busiest_ns = on_these.map(|busy| busy.threads_ns).max().unwrap_or(0);
        let others_ns = busiest_ns.saturating_sub(ours_ns).min(self.others_ns);
        others_ns as f64 / self.span_ns.max(1) as f64
    }

    /// The part of all CPUs' time that others used, 0 to 1.
    #[must_use]
    pub fn others_share(&self) -> f64 {
        self.share(self.others_ns)
    }

    /// The part of all CPUs' time that kernel threads used, 0 to 1.
    #[must_use]
    pub fn kernel_share(&self) -> f64 {
        self.share(self.kernel_ns)
    }

    fn share(&self, used_ns: u64) -> f64 {
        used_ns as f64 / (self.span_ns as f64 * self.cpus.len() as f64).max(1.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_share_on_measured_cpus_leaves_out_our_own_time() {
        let cpu = |cpu, threads_ns| BusyCpu { cpu, threads_ns };
        let work = OtherWork {
            span_ns: 1_000,
            ours_ns: 100,
            kernel_ns: 20,
            others_ns: 900,
            cpus: vec![cpu(0, 950), cpu(1, 70)],
            ..OtherWork::default()
        };
        let share = |cpus: &str| work.others_share_of(&cpus.parse().expect("a set"));
        // (950 - 100 / 2 - 20) / 1000; of CPU 1 alone nothing is left.
        assert!((share("0-1") - 0.88).abs() < 1e-9);
        assert!((share("1") - 0.0).abs() < 1e-9);
        assert!((share("7") - 0.0).abs() < 1e-9);
        assert!((work.others_share() - 0.45).abs() < 1e-9);
        assert!((work.kernel_share() - 0.01).abs() < 1e-9);
        assert!((OtherWork::default().others_share() - 0.0).abs() < 1e-9);
    }
}
