//! Which changes of a thread would starve the machine. A rule of thumb, made of what was seen in one
//! look: a thread that sleeps now may spin later.

use rtscope_model::{
    cpu::CpuSet,
    environment::Throttling,
    schedule::{Placement, Policy},
    thread::Thread,
};

/// A thread that used at least so much of a CPU in the look counts as one that does not sleep.
const BUSY_PERCENT: f64 = 50.0;

/// Why it would starve others to place one of these threads so; none when nothing speaks against it.
/// Without a look no thread is known to be busy.
#[must_use]
pub fn starvation(
    threads: &[Thread],
    tid: u32,
    wanted: &Placement,
    throttling: Throttling,
    online: &CpuSet,
) -> Option<String> {
    let thread = threads.iter().find(|thread| thread.tid == tid)?;
    let lowered = thread.placement.policy.is_real_time() && !wanted.policy.is_real_time();
    if thread.kernel && (lowered || wanted.policy == Policy::Idle) {
        return Some(format!(
            "{} is the kernel's own: others wait for it, and it would wait for them",
            thread.name
        ));
    }
    if wanted.policy.has_priority() && wanted.priority == 99 && !thread.kernel {
        return Some("priority 99 is for the kernel's own threads: use 98 or less".to_owned());
    }
    let busy = |thread: &Thread| {
        thread.state == "R" && thread.look.is_some_and(|look| look.cpu_percent() >= BUSY_PERCENT)
    };
    if !wanted.policy.has_priority() || !busy(thread) {
        return None;
    }
    let share = thread.look.map_or(0.0, |look| look.cpu_percent());
    if throttling.runtime_us == Some(-1) {
        return Some(format!(
            "{} used {share:.0} % of a CPU and throttling is off: it would not give the CPU back",
            thread.name
        ));
    }
    let others: CpuSet = threads
        .iter()
        .filter(|other| other.tid != tid && other.placement.policy.is_real_time() && busy(other))
        .map(|other| other.cpu)
        .collect();
    let left = online.without(&others);
    // One CPU must stay that no busy real-time thread is on, after this one has taken its own.
    let takes_last = left.len() <= usize::from(!left.common(&wanted.cpus).is_empty());
    takes_last.then(|| {
        format!(
            "{} used {share:.0} % of a CPU: no CPU would be left without a busy real-time thread",
            thread.name
        )
    })
}

#[cfg(test)]
mod tests {
    use rtscope_model::thread::Look;

    use super::*;

    fn cpus(text: &str) -> CpuSet {
        text.parse().expect("CPUs")
    }

    fn place(policy: Policy, priority: u8) -> Placement {
        Placement { policy, priority, nice: 0, budget: None, cpus: cpus("0-1") }
    }

    fn thread(tid: u32, policy: Policy, busy_percent: u64, cpu: u32) -> Thread {
        let look = Look { span_ns: 100, cpu_ns: busy_percent, ..Look::default() };
        Thread {
            pid: tid,
            tid,
            parent: 1,
            name: format!("t{tid}"),
            state: if busy_percent > 0 { "R" } else { "S" }.to_owned(),
            placement: place(policy, u8::from(policy.has_priority()) * 50),
            cpu,
            kernel: tid < 10,
            role: None,
            cpu_ns: None,
            waited_ns: None,
            voluntary_switches: None,
            involuntary_switches: None,
            migrations: None,
            look: Some(look),
        }
    }

    const ON: Throttling = Throttling { runtime_us: Some(950_000), period_us: Some(1_000_000) };
    const OFF: Throttling = Throttling { runtime_us: Some(-1), period_us: Some(1_000_000) };

    #[test]
    fn a_sleeping_thread_may_be_real_time() {
        let threads = [thread(20, Policy::Other, 3, 0)];
        for throttling in [ON, OFF] {
            let fifo = place(Policy::Fifo, 80);
            assert_eq!(starvation(&threads, 20, &fifo, throttling, &cpus("0-1")), None);
        }
    }

    #[test]
    fn a_busy_thread_needs_throttling_and_a_cpu_that_stays_free() {
        let threads = [
            thread(20, Policy::Other, 97, 0),
            thread(21, Policy::Fifo, 98, 1),
            thread(22, Policy::Rr, 0, 0),
        ];
        let fifo = place(Policy::Fifo, 10);
        let why = |threads: &[Thread], throttling, online: &str| {
            starvation(threads, 20, &fifo, throttling, &cpus(online))
        };
        assert!(why(&threads, ON, "0-1").is_some_and(|why| why.contains("no CPU would be left")));
        assert_eq!(why(&threads, ON, "0-2"), None);
        assert_eq!(why(&threads[..1], ON, "0-1"), None);
        assert!(why(&threads[..1], ON, "0").is_some());
        assert!(why(&threads, OFF, "0-7").is_some_and(|why| why.contains("throttling is off")));
    }

    #[test]
    fn the_kernels_threads_and_its_priority_stay_its_own() {
        let threads = [thread(5, Policy::Fifo, 0, 0), thread(20, Policy::Other, 0, 0)];
        let other = place(Policy::Other, 0);
        assert!(starvation(&threads, 5, &other, ON, &cpus("0-1")).is_some());
        assert_eq!(starvation(&threads, 5, &place(Policy::Fifo, 60), ON, &cpus("0-1")), None);
        assert!(starvation(&threads, 20, &place(Policy::Fifo, 99), ON, &cpus("0-1")).is_some());
    }
}
