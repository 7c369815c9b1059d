//! Where the scope looks from: the best place that the machine permits, and why it isn't a better one.
//!
//! A scope that shares its CPU with busy programs is blind most of the time, and blind just when the
//! wave's own program is woken on its CPU. A FIFO thread isn't. It is only asked for where it can do no
//! harm: with real-time throttling on, a second CPU, and a rest in each second that is longer than the one
//! that the kernel would force on it.

use std::fmt::Write as _;

use rtscope_model::{
    cpu::CpuSet,
    schedule::{Placement, Policy},
    time::Nanos,
};
use rtscope_sys::{sched, tree::Tree};

use super::scope::Rest;

/// Below the interrupt threads (50).
const PRIORITY: u8 = 49;

/// What the scope would like among ordinary threads: nearly all of its CPU.
const NICE: i8 = -20;

/// Looks of 900 ms and rests of 70 ms: 93 % of a second, below the 95 % of real-time throttling.
const REST: Rest = Rest { after_ns: 900_000_000, for_ns: 70_000_000 };

/// Beside a real-time subject that spins on the only other CPU: two fifths of this one stay for all else.
const MODEST_REST: Rest = Rest { after_ns: 90_000_000, for_ns: 60_000_000 };

/// Where the scope looks from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seat {
    pub place: Placement,
    /// Its rests; none for a thread that others can preempt.
    pub rest: Option<Rest>,
    /// Why it isn't a real-time thread, for people.
    pub finding: Option<String>,
}

impl Seat {
    /// The best seat on some CPUs: real-time, else an ordinary thread with the best nice value that is
    /// permitted.
    #[must_use]
    pub fn best(cpus: &CpuSet, tree: &Tree) -> Seat {
        let real_time = fixed(Policy::Fifo, PRIORITY, 0, cpus);
        match obstacle(tree) {
            Some(why) => Seat::ordinary(cpus, &why),
            None if is_permitted(&real_time) => Seat::real_time(real_time),
            None => Seat::ordinary(
                cpus,
                "the scope is not permitted to be a real-time thread: run it as root, or raise RLIMIT_RTPRIO",
            ),
        }
    }

    /// The same seat beside a real-time subject that may spin on the only other CPU: with more rests, so
    /// that the machine stays usable.
    #[must_use]
    pub fn modest(&self) -> Seat {
        let rest = self.rest.map(|_| MODEST_REST);
        Seat { rest, ..self.clone() }
    }

    /// Its place, its rests, and why it isn't a better one: for people.
    #[must_use]
    pub fn text(&self) -> String {
        let mut text = self.place.to_string();
        if let Some(rest) = self.rest {
            let _ =
                write!(text, ", pauses for {} after {}", Nanos(rest.for_ns), Nanos(rest.after_ns));
        }
        if let Some(finding) = &self.finding {
            let _ = write!(text, ": {finding}");
        }
        text
    }

    /// A real-time thread that was asked for.
    #[must_use]
    pub fn real_time(place: Placement) -> Seat {
        Seat { place, rest: Some(REST), finding: None }
    }

    /// An ordinary thread, because of something.
    #[must_use]
    pub fn ordinary(cpus: &CpuSet, why: &str) -> Seat {
        let eager = fixed(Policy::Other, 0, NICE, cpus);
        let place = if is_permitted(&eager) { eager } else { fixed(Policy::Other, 0, 0, cpus) };
        let finding =
            Some(format!("{why}; the scope is blind while other programs run on its CPU"));
        Seat { place, rest: None, finding }
    }
}

/// Above every subject.
const COUNTING_PRIORITY: u8 = 99;

/// The place of a scope that counts: on the subject's own CPU, above it. It sleeps nearly all of the time. None where
/// that is not permitted.
#[must_use]
pub fn counting(cpus: &CpuSet) -> Option<Placement> {
    let place = fixed(Policy::Fifo, COUNTING_PRIORITY, 0, cpus);
    is_permitted(&place).then_some(place)
}

/// Why a real-time thread that never sleeps would do harm here.
#[must_use]
pub fn obstacle(tree: &Tree) -> Option<String> {
    if is_unthrottled(tree) {
        let why = "real-time throttling is off, and a real-time thread that never sleeps would block its CPU";
        return Some(why.to_owned());
    }
    let cpus = sched::affinity(sched::SELF).map_or(1, |cpus| cpus.len());
    (cpus < 2).then(|| "a real-time thread that never sleeps needs a second CPU".to_owned())
}

/// Whether real-time threads may take all of a CPU's time.
#[must_use]
pub fn is_unthrottled(tree: &Tree) -> bool {
    let throttling = tree.read("proc/sys/kernel/sched_rt_runtime_us").unwrap_or_default();
    // From Linux 6.12 on, a server on each CPU guarantees time for ordinary threads instead.
    const SERVERS: &str = "sys/kernel/debug/sched/fair_server";
    let runtime = |cpu: &String| tree.read(format!("{SERVERS}/{cpu}/runtime")).ok();
    let is_without = tree.list(SERVERS).iter().filter_map(runtime).any(|ns| ns == "0");
    throttling == "-1" || is_without
}

fn fixed(policy: Policy, priority: u8, nice: i8, cpus: &CpuSet) -> Placement {
    Placement { policy, priority, nice, budget: None, cpus: cpus.clone() }
}

/// Tried on a thread that ends at once.
fn is_permitted(place: &Placement) -> bool {
    std::thread::scope(|scope| {
        let tried = scope.spawn(|| sched::set_policy(sched::SELF, place).is_ok());
        tried.join().unwrap_or(false)
    })
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn without_throttling_the_scope_stays_an_ordinary_thread_and_says_why() {
        let folder = tempfile::tempdir().expect("a folder");
        let kernel = folder.path().join("proc/sys/kernel");
        fs::create_dir_all(&kernel).expect("a folder");
        fs::write(kernel.join("sched_rt_runtime_us"), "-1\n").expect("written");
        let cpus: CpuSet = [0].into_iter().collect();
        let tree = Tree::under(folder.path());
        let seat = Seat::best(&cpus, &tree);
        assert_eq!((seat.place.policy, &seat.rest), (Policy::Other, &None));
        assert!(seat.finding.expect("said").contains("throttling is off"));
        // From Linux 6.12 on.
        fs::write(kernel.join("sched_rt_runtime_us"), "950000\n").expect("written");
        let server = folder.path().join("sys/kernel/debug/sched/fair_server/cpu1");
        fs::create_dir_all(&server).expect("a folder");
        for (runtime, unthrottled) in [("50000000\n", false), ("0\n", true)] {
            fs::write(server.join("runtime"), runtime).expect("written");
            assert_eq!(is_unthrottled(&tree), unthrottled);
        }
    }

    #[test]
    fn the_rests_leave_more_than_throttling_would_take() {
        for rest in [REST, MODEST_REST] {
            let share = rest.after_ns as f64 / (rest.after_ns + rest.for_ns) as f64;
            assert!(share < 0.95, "{share}");
        }
    }
}
