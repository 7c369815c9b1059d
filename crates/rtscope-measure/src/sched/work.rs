//! A calibrated amount of computing, and the time stamps that the computing thread leaves.

use std::hint::black_box;

use rtscope_model::{sched::CpuInterval, time::Nanos};
use rtscope_sys::{clock::Clock, thread};

/// CPU time of a piece of work: long beside a reading of the clock, short beside every turn of a scheduler.
const PIECE_NS: u64 = 50_000;

/// Rounds of the pieces by which it is found how many rounds one takes.
const PROBE_ROUNDS: u64 = 2_000;

/// Pieces that are timed at once, so that asking for the CPU time counts little.
const BATCH: u64 = 16;

/// Room for runs; what doesn't fit is counted.
const ROOM: usize = 16_384;

/// How long computing takes here.
#[derive(Clone, Copy, Debug)]
pub(super) struct Calibration {
    /// Rounds of a piece.
    rounds: u64,
    /// CPU time of a piece, with the time stamp after it.
    piece_ns: u64,
}

/// One piece: each round needs the result of the one before, so that the CPU can't overlap them.
fn piece(seed: u64, rounds: u64) -> u64 {
    let mut state = seed | 1;
    for _ in 0..rounds {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
    }
    black_box(state)
}

/// Finds how many rounds a piece takes on this machine, be it a board or an emulated one, and then times
/// pieces with their time stamps on the CPU clock of the calling thread.
pub(super) fn calibrate(clock: &impl Clock) -> Calibration {
    let probe_ns = timed(PROBE_ROUNDS, 11, clock);
    let rounds = (PIECE_NS * PROBE_ROUNDS / probe_ns).clamp(100, 10_000_000);
    Calibration { rounds, piece_ns: timed(rounds, 49, clock) }
}

/// CPU time of a piece. The lower quartile of many: the first are slow, and ticks, a busy neighbour or a
/// hypervisor make some slow later; none is too fast.
fn timed(rounds: u64, batches: usize, clock: &impl Clock) -> u64 {
    let mut pieces = Pieces::new();
    pieces.begin(clock.now_ns(), clock.cpu());
    let mut batch = || {
        let before = thread::usage();
        for n in 0..BATCH {
            piece(n, rounds);
            pieces.note(clock.now_ns(), clock.cpu(), PIECE_NS, u64::MAX);
        }
        (thread::usage() - before).cpu_ns / BATCH
    };
    let mut times: Vec<u64> = (0..batches).map(|_| batch()).collect();
    times.sort_unstable();
    times[times.len() / 4].max(1)
}

impl Calibration {
    /// Computes for an amount of CPU time, noting when it was interrupted.
    pub(super) fn compute(&self, work: Nanos, clock: &impl Clock, pieces: &mut Pieces) {
        let count = ((work.0 + self.piece_ns / 2) / self.piece_ns).max(1);
        // A piece that takes twice its time was interrupted.
        let gap_ns = self.piece_ns * 2 + 20_000;
        pieces.begin(clock.now_ns(), clock.cpu());
        for n in 0..count {
            piece(n, self.rounds);
            pieces.note(clock.now_ns(), clock.cpu(), self.piece_ns, gap_ns);
        }
    }
}

/// When a thread computed where, as far as it can tell itself.
#[derive(Debug)]
pub(super) struct Pieces {
    runs: Vec<CpuInterval>,
    now: CpuInterval,
    /// Runs that had no room.
    pub(super) lost: u64,
}

impl Pieces {
    pub(super) fn new() -> Pieces {
        let now = CpuInterval { cpu: 0, start_ns: 0, end_ns: 0 };
        Pieces { runs: Vec::with_capacity(ROOM), now, lost: 0 }
    }

    fn begin(&mut self, now_ns: u64, cpu: u32) {
        if self.now.end_ns > self.now.start_ns {
            self.keep();
        }
        self.now = CpuInterval { cpu, start_ns: now_ns, end_ns: now_ns };
    }

    fn note(&mut self, now_ns: u64, cpu: u32, piece_ns: u64, gap_ns: u64) {
        let took = now_ns - self.now.end_ns;
        if took > gap_ns || cpu != self.now.cpu {
            // The piece itself ran at one end of the gap; which, nobody saw.
            self.keep();
            let start_ns = now_ns.saturating_sub(piece_ns).max(self.now.end_ns);
            self.now = CpuInterval { cpu, start_ns, end_ns: now_ns };
        }
        self.now.end_ns = now_ns;
    }

    fn keep(&mut self) {
        if self.runs.len() < ROOM {
            self.runs.push(self.now);
        } else {
            self.lost += 1;
        }
    }

    pub(super) fn runs(&self) -> Vec<CpuInterval> {
        self.runs
            .iter()
            .copied()
            .chain([self.now])
            .filter(|run| run.end_ns > run.start_ns)
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use rtscope_testing::clock::SimulatedClock;

    use super::*;

    #[test]
    fn an_interrupted_thread_has_two_runs() {
        let clock = SimulatedClock::at(0).with_reading(10_000).with_pauses([(30_000, 5_000_000)]);
        let mut pieces = Pieces::new();
        Calibration { rounds: 10, piece_ns: 10_000 }.compute(Nanos(80_000), &clock, &mut pieces);
        // Readings at 10, 20, 30 us, then held 5 ms, then six more.
        let runs: Vec<(u64, u64)> =
            pieces.runs().iter().map(|run| (run.start_ns, run.end_ns)).collect();
        assert_eq!(runs, [(10_000, 30_000), (5_030_000, 5_090_000)]);
        assert_eq!(pieces.now.end_ns, 5_090_000);
        assert_eq!(pieces.lost, 0);
    }

    #[test]
    fn another_cpu_begins_another_run() {
        let clock = SimulatedClock::at(19_980_000).with_reading(10_000).with_move(20_000_000);
        let mut pieces = Pieces::new();
        Calibration { rounds: 10, piece_ns: 10_000 }.compute(Nanos(40_000), &clock, &mut pieces);
        assert_eq!(pieces.runs().iter().map(|run| run.cpu).collect::<Vec<_>>(), [0, 1]);
    }
}
