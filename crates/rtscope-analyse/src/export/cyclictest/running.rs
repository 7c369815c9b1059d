//! A run of cyclictest while it goes on: what slices, live figures and single samples add to it.

use rtscope_model::{
    event::{Live, Tally},
    schedule::Placement,
    slice::{RawSample, Scope, Slice},
    time::Nanos,
};

use super::{CyclictestFigures, CyclictestRun, CyclictestThread, sample_line, spike_lines};

/// What is kept of single samples.
#[derive(Clone, Copy, Debug, Default)]
pub struct SampleOptions {
    pub lines: bool,
    /// Of so many samples in a row only the largest gets a line; 0 for each.
    pub window: u64,
    /// Samples above this, in units.
    pub spikes_above: Option<u64>,
    /// At most so many of those.
    pub spikes_max: usize,
}

/// A run that goes on.
#[derive(Debug)]
pub struct LiveRun {
    /// The run so far.
    pub run: CyclictestRun,
    kept: SampleOptions,
    /// Thread, latency, instant on the clock.
    spikes: Vec<(usize, u64, u64)>,
    /// Of each thread: samples of the window so far, the largest, and its cycle.
    windows: Vec<(u64, u64, u64)>,
    lines: Vec<String>,
    /// How long each thread had waited at least when the run ended.
    waited_ns: Vec<u64>,
}

impl LiveRun {
    /// A run that begins.
    #[must_use]
    pub fn new(run: CyclictestRun, kept: SampleOptions) -> LiveRun {
        let threads = run.threads.len();
        let (windows, waited_ns) = (vec![(0, 0, 0); threads], vec![0; threads]);
        LiveRun { run, kept, spikes: Vec::new(), windows, lines: Vec::new(), waited_ns }
    }

    /// Adds what a thread has measured.
    pub fn add_slice(&mut self, slice: &Slice) {
        let Some(thread) = self.run.threads.get_mut(slice.thread as usize) else { return };
        if slice.scope == Scope::Cell(0) {
            let sum_ns = u128::from(slice.sum_ns);
            thread.histogram.add(&slice.bins, slice.min_ns, slice.max_ns, sum_ns);
            thread.missed += slice.missed;
        }
    }

    /// Adds a slice that was left when the threads ended: one without a measured activation is a wait that was
    /// never answered.
    pub fn add_last_slice(&mut self, slice: &Slice) {
        if let Some(waited_ns) = self.waited_ns.get_mut(slice.thread as usize)
            && slice.recorded == 0
        {
            *waited_ns = slice.omitted_extent.max_ns.max(*waited_ns);
        }
        self.add_slice(slice);
    }

    /// Adds what the threads show now. Whether one of them has a new maximum.
    pub fn show(&mut self, live: &[Live]) -> bool {
        let mut larger = false;
        for (thread, live) in self.run.threads.iter_mut().zip(live) {
            if live.recorded == 0 {
                continue;
            }
            larger |= thread.figures.is_none_or(|figures| figures.max_ns < live.max_ns);
            thread.cpu = live.cpu;
            thread.figures = Some(CyclictestFigures {
                cycles: live.recorded,
                min_ns: live.min_ns,
                last_ns: live.now_ns,
                mean_ns: live.mean_ns as f64,
                max_ns: live.max_ns,
            });
        }
        larger
    }

    pub fn add_sample(&mut self, thread: u32, sample: &RawSample) {
        let RawSample { expiry_ns, latency_ns, cycle } = *sample;
        let (index, unit, buckets) = (thread as usize, self.run.unit, self.run.buckets);
        let Some(thread) = self.run.threads.get_mut(index) else { return };
        let value = unit.whole(latency_ns);
        let overflow = &mut thread.overflow_cycles;
        if value >= u64::from(buckets) && overflow.len() < buckets as usize {
            overflow.push(cycle);
        }
        let SampleOptions { lines, window, spikes_above, spikes_max } = self.kept;
        if spikes_above.is_some_and(|above| value > above) && self.spikes.len() < spikes_max {
            self.spikes.push((index, latency_ns, expiry_ns + latency_ns));
        }
        if !lines {
            return;
        }
        if window == 0 {
            self.lines.push(sample_line(index, cycle, latency_ns, unit));
            return;
        }
        let (count, largest_ns, at) = &mut self.windows[index];
        if *count == 0 || latency_ns > *largest_ns {
            (*largest_ns, *at) = (latency_ns, cycle);
        }
        *count += 1;
        if *count == window {
            self.lines.push(sample_line(index, *at, *largest_ns, unit));
            *count = 0;
        }
    }

    /// The lines of samples so far. With counts of system management interrupts each line gets a column; those
    /// of a thread since the last look stand at its last line, 0 at the others.
    pub fn take_lines(&mut self, smis: Option<&[u64]>) -> String {
        let mut lines = std::mem::take(&mut self.lines);
        if let Some(smis) = smis {
            let mut left: Vec<u64> = smis.to_vec();
            for line in lines.iter_mut().rev() {
                let thread = line.split(':').next().and_then(|number| number.trim().parse().ok());
                let count = thread.and_then(|n: usize| left.get_mut(n)).map_or(0, std::mem::take);
                *line = format!("{}{count:8}\n", line.trim_end());
            }
        }
        lines.concat()
    }

    /// Sets how many system management interrupts each thread's CPU has had since the run began. How many of
    /// them are new.
    pub fn set_smis(&mut self, counts: &[u64]) -> Vec<u64> {
        let step = |(thread, count): (&mut CyclictestThread, &u64)| {
            count.saturating_sub(thread.smi.replace(*count).unwrap_or(0))
        };
        self.run.threads.iter_mut().zip(counts).map(step).collect()
    }

    /// Completes the figures of threads that have ended.
    pub fn end(&mut self) {
        for (thread, waited_ns) in self.run.threads.iter_mut().zip(&self.waited_ns) {
            // The slices have the exact figures; which was the last only the live ones know.
            let last_ns = thread.figures.map_or(0, |figures| figures.last_ns);
            thread.figures = CyclictestFigures::from_histogram(&thread.histogram, last_ns);
            thread.add_wait(*waited_ns);
        }
    }

    /// Which threads had not woken when the run ended, which no sample shows: a sentence each.
    #[must_use]
    pub fn wait_sentences(&self) -> Vec<String> {
        let waits = self.waited_ns.iter().zip(&self.run.threads).enumerate();
        let waits = waits.filter(|(_, (waited_ns, _))| **waited_ns > 0);
        let sentence = |(n, (waited_ns, thread)): (usize, (&u64, &CyclictestThread))| {
            let (waited, missed) = (Nanos(*waited_ns), thread.missed);
            format!(
                "when the run ended, thread {n} had waited for at least {waited} and missed {missed} cycles in \
                 total. Its maximum includes this wait"
            )
        };
        waits.map(sentence).collect()
    }

    /// The latencies above `--spike`, as text.
    #[must_use]
    pub fn spikes(&self) -> String {
        spike_lines(&self.spikes, self.run.unit)
    }
}

/// That samples were measured and got no line; none when each got one.
#[must_use]
pub fn lost_sentence<'a>(tallies: impl Iterator<Item = &'a Tally>) -> Option<String> {
    let lost: u64 = tallies.map(|tally| tally.raw_lost).sum();
    let text =
        "samples were measured but not printed one by one: the main thread was held up".to_owned();
    (lost > 0).then(|| format!("{lost} {text}"))
}

/// That threads no longer ran as they were asked to when they ended, from what was asked and found of
/// each; none when all did.
#[must_use]
pub fn changed_placement<'a>(
    places: impl Iterator<Item = (&'a Placement, &'a Placement)>,
) -> Option<String> {
    let what = |place: &Placement| (place.policy, place.priority, place.cpus.clone());
    let mut changed =
        (0..).zip(places).filter(|(_, (asked, found))| what(asked) != what(found)).peekable();
    let (n, (asked, found)) = *changed.peek()?;
    let more = match changed.count() - 1 {
        0 => String::new(),
        1 => ", and 1 more thread was changed".to_owned(),
        more => format!(", and {more} more threads were changed"),
    };
    Some(format!(
        "T:{n} was started as {asked} and ended as {found}{more}: somebody changed it while it measured"
    ))
}

#[cfg(test)]
mod tests {
    use rtscope_model::{
        histogram::{Histogram, Layout},
        schedule::Policy,
        slice::Extent,
    };

    use super::*;

    fn place(policy: Policy, priority: u8) -> Placement {
        let cpus = std::iter::once(1).collect();
        Placement { policy, priority, nice: 0, budget: None, cpus }
    }

    /// A run of two threads with a histogram of 3 us.
    fn running(kept: SampleOptions) -> LiveRun {
        let empty = || Histogram::new(Layout { unit_ns: 1_000, exact: 64 });
        let thread =
            |tid| CyclictestThread::placed(tid, 1_000_000, &place(Policy::Fifo, 80), empty());
        let run = CyclictestRun {
            buckets: 3,
            threads: vec![thread(10), thread(11)],
            ..CyclictestRun::default()
        };
        LiveRun::new(run, kept)
    }

    fn sample(latency_ns: u64, cycle: u64) -> RawSample {
        RawSample { expiry_ns: 1_000_000 * cycle, latency_ns, cycle }
    }

    #[test]
    fn the_largest_sample_of_a_window_gets_the_line() {
        let mut all = running(SampleOptions { lines: true, window: 3, ..SampleOptions::default() });
        for (cycle, latency_ns) in [2_000, 9_000, 4_000, 1_000, 1_000].into_iter().enumerate() {
            all.add_sample(1, &sample(latency_ns, cycle as u64));
        }
        assert_eq!(all.take_lines(None), "       1:       1:       9\n");
        all.add_sample(1, &sample(1_500, 5));
        assert_eq!(all.take_lines(None), "       1:       5:       1\n");
    }

    #[test]
    fn new_smis_stand_at_the_last_line_of_their_thread() {
        let mut all = running(SampleOptions { lines: true, ..SampleOptions::default() });
        assert_eq!(all.set_smis(&[2, 0]), [2, 0]);
        (0..2).for_each(|cycle| all.add_sample(0, &sample(1_000, cycle)));
        let steps = all.set_smis(&[5, 0]);
        assert_eq!(steps, [3, 0]);
        let lines = "       0:       0:       1       0\n       0:       1:       1       3\n";
        assert_eq!(all.take_lines(Some(&steps)), lines);
    }

    #[test]
    fn spikes_and_overflows_are_kept_up_to_their_numbers() {
        let mut all = running(SampleOptions {
            spikes_above: Some(4),
            spikes_max: 2,
            ..SampleOptions::default()
        });
        for cycle in 0..5 {
            all.add_sample(0, &sample(5_000, cycle));
        }
        // 4.9 us is 4 us in whole units: not above, but beyond the histogram.
        all.add_sample(1, &sample(4_900, 7));
        // Of a thread that there isn't.
        all.add_sample(2, &sample(9_000, 1));
        assert!(all.spikes().ends_with("\nspikes = 2\n\n"), "{}", all.spikes());
        assert!(
            all.spikes().contains("T: 0 Spike:       5: TS:         1005\n"),
            "{}",
            all.spikes()
        );
        let cycles = all.run.threads.iter().map(|thread| thread.overflow_cycles.as_slice());
        assert_eq!(cycles.collect::<Vec<_>>(), [&[0, 1, 2][..], &[7]]);
    }

    #[test]
    fn a_wait_without_an_answer_is_part_of_the_maximum() {
        let slice = |text: &str| -> Slice {
            let text = format!("{{\"thread\":0,{text},\"max_at_ns\":0,\"max_cpu\":0}}");
            serde_json::from_str(&text).expect("a slice")
        };
        let mut all = running(SampleOptions::default());
        all.add_slice(&slice(
            "\"scope\":{\"cell\":0},\"start_ns\":0,\"end_ns\":2000000,\"planned\":2,\"recorded\":2,\
             \"missed\":0,\"min_ns\":2000,\"max_ns\":4000,\"sum_ns\":6000,\"bins\":[[2,1],[4,1]]",
        ));
        let wait = slice(
            "\"scope\":{\"cell\":0},\"start_ns\":2000000,\"end_ns\":5000000,\"planned\":3,\"recorded\":0,\
             \"missed\":3,\"min_ns\":0,\"max_ns\":0,\"sum_ns\":0,\"bins\":[]",
        );
        let omitted_extent = Extent { max_ns: 3_000_000, ..Extent::default() };
        all.add_last_slice(&Slice { omitted_extent, ..wait });
        all.end();
        let figures = all.run.threads[0].figures.expect("figures");
        assert_eq!((figures.cycles, figures.min_ns, figures.max_ns), (2, 2_000, 3_000_000));
        let sentences = all.wait_sentences();
        assert_eq!(sentences.len(), 1);
        assert!(sentences[0].contains("thread 0 had waited for at least 3"), "{sentences:?}");
        assert!(sentences[0].contains("missed 3 cycles"), "{sentences:?}");
    }

    #[test]
    fn a_thread_that_was_demoted_is_told() {
        let (asked, demoted) = (place(Policy::Fifo, 80), place(Policy::Other, 0));
        assert_eq!(changed_placement([(&asked, &asked)].into_iter()), None);
        assert_eq!(
            changed_placement([(&asked, &asked), (&asked, &demoted)].into_iter()).as_deref(),
            Some(
                "T:1 was started as fifo 80 on CPU 1 and ended as other on CPU 1: somebody changed it \
                 while it measured"
            )
        );
        let two = changed_placement([(&asked, &demoted); 2].into_iter()).expect("two");
        assert!(two.starts_with("T:0 ") && two.contains("and 1 more thread was changed:"), "{two}");
    }
}
