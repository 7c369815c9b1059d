//! Whether the latencies of an import cover the time that its tool ran.
//!
//! No format has the time of each latency. Two figures tell of a gap all the same:
//!
//! * Threads of one run start and end together. One whose cycles cover less time than those of another
//!   was waiting when the run ended: a thread that woke would have counted a latency as long as the gap. So
//!   what is missing was due and never answered, as in a run of our own.
//! * Some tools say how long they ran, by a wall clock. That clock may have been set meanwhile, so a gap is
//!   told, and no latency is made of it.

use rtscope_model::{finding::Weight, time::Nanos};

use super::{
    ImportReading,
    cell::{ImportedCell, ImportedThread, LONGEST_NS},
};

/// What threads of one run may differ by when nothing is missing: they are started one after the other,
/// and a tool looks a few times a second whether the run is over. Wall clocks are told in whole seconds.
const TOLERANCE_NS: u64 = 2_000_000_000;

/// The share of a run, one in so many, that may be missing besides: a relative sleep stretches each
/// cycle by the time that the loop takes.
const TOLERANCE_SHARE: u64 = 50;

/// Cycles that a thread may be behind where the interval isn't known: the same tolerance at the usual 1 ms.
const UNEVEN_CYCLES: u64 = 2_000;

/// Threads that a finding names.
const NAMED: usize = 4;

/// Looks for gaps in a cell: notes on its threads how long they waited, and tells of it.
pub(super) fn check(cell: &mut ImportedCell, reading: &mut ImportReading) {
    if cell.is_one_run {
        unanswered(cell, reading);
        uneven(cell, reading);
    }
    if let Some(ran_ns) = cell.ran_ns {
        shortfall(cell, ran_ns, reading);
    }
}

/// The time that a thread's cycles cover at least; none without an interval.
fn covered_ns(thread: &ImportedThread) -> Option<u64> {
    let interval_ns = thread.interval_ns.filter(|&interval_ns| interval_ns > 0)?;
    Some(cycles(thread).saturating_mul(interval_ns).min(LONGEST_NS))
}

/// Cycles of a thread from its first on, those that a log leaves out included.
fn cycles(thread: &ImportedThread) -> u64 {
    thread.parts.last().map_or(0, |part| part.end)
}

/// The time that is missing of what a thread should cover, beyond what can be explained otherwise.
///
/// `grain_ns` is what another tool may have cut from each latency. Threads of one run lose alike, a wall clock nothing.
fn missing_ns(thread: &ImportedThread, expected_ns: u64, grain_ns: u64) -> Option<u64> {
    let late_ns = thread.parts.iter().fold(0u64, |sum, part| {
        sum.saturating_add(part.sum_ns).saturating_add(part.count.saturating_mul(grain_ns))
    });
    let tolerance_ns = TOLERANCE_NS.saturating_add(expected_ns / TOLERANCE_SHARE);
    let explained_ns = covered_ns(thread)?.saturating_add(late_ns).saturating_add(tolerance_ns);
    expected_ns.checked_sub(explained_ns).filter(|&missing_ns| missing_ns > 0)
}

/// Threads that were waiting when the longest of their run ended.
fn unanswered(cell: &mut ImportedCell, reading: &mut ImportReading) {
    let Some(expected_ns) = cell.threads.iter().filter_map(covered_ns).max() else { return };
    // Threads may end after a number of cycles: those that did it together aren't short.
    let most = cell.threads.iter().map(cycles).max().unwrap_or(0);
    let together = cell.threads.iter().filter(|thread| cycles(thread) == most).count() > 1;
    let mut places = Vec::new();
    for thread in cell.threads.iter_mut().filter(|thread| !together || cycles(thread) < most) {
        thread.waited_ns = missing_ns(thread, expected_ns, 0);
        if let Some(waited_ns) = thread.waited_ns {
            places.push(format!("{} (waited at least {})", thread.label, Nanos(waited_ns)));
        }
    }
    if places.is_empty() {
        return;
    }
    let text = format!(
        "threads covered less time than others of their run, so activations were due and never \
         answered. They count as missed, with the time that they are known to have waited: {}",
        shortened(&places)
    );
    reading.note("unanswered", Weight::PreventsPass, text).advice =
        "find out what held the CPU, for example a real-time load above the sampler's priority"
            .to_owned();
}

/// Threads of one run that have no latency, or far fewer than others where no interval tells how long they waited.
fn uneven(cell: &ImportedCell, reading: &mut ImportReading) {
    let most = cell.threads.iter().map(cycles).max().unwrap_or(0);
    let is_silent = |thread: &&ImportedThread| cycles(thread) == 0 && thread.waited_ns.is_none();
    let silent: Vec<String> =
        cell.threads.iter().filter(is_silent).map(|t| t.label.clone()).collect();
    if most > 0 && !silent.is_empty() {
        let text = format!(
            "threads have no readable latency, but others of their run have up to {most}: {}",
            shortened(&silent)
        );
        reading.note("import-thread-silent", Weight::PreventsPass, text).advice =
            "find out why these threads recorded nothing, and measure again".to_owned();
    }
    // Tools that count in a histogram give all threads one interval; those that log may not.
    let has_rows = cell.threads.iter().flat_map(|t| &t.parts).any(|part| !part.bins.is_empty());
    if !has_rows || cell.origin.is_in_order {
        return;
    }
    let is_short = |thread: &&ImportedThread| {
        let cycles = cycles(thread);
        let is_far_behind = cycles < most / 2 && most - cycles > UNEVEN_CYCLES;
        cycles > 0 && thread.interval_ns.is_none() && is_far_behind
    };
    let place = |thread: &ImportedThread| format!("{}: {}", thread.label, cycles(thread));
    let places: Vec<String> = cell.threads.iter().filter(is_short).map(place).collect();
    if !places.is_empty() {
        let text = format!(
            "a thread of the run counted {most} latencies, but these threads counted fewer than half as many: {}. Activations \
             were missed, or the threads stopped early",
            shortened(&places)
        );
        reading.note("import-shortfall", Weight::PreventsPass, text).advice =
            "give the interval, for example with --interval 1ms, to see how long they waited"
                .to_owned();
    }
}

/// Threads that cover less time than their tool says that it ran.
fn shortfall(cell: &ImportedCell, ran_ns: u64, reading: &mut ImportReading) {
    let short = cell.threads.iter().filter(|thread| thread.waited_ns.is_none());
    let place = |thread: &ImportedThread| {
        missing_ns(thread, ran_ns, cell.layout.unit_ns)?;
        Some(format!("{}: {}", thread.label, Nanos(covered_ns(thread)?)))
    };
    let places: Vec<String> = short.filter_map(place).collect();
    if !places.is_empty() {
        let text = format!(
            "the tool ran for {}, and the cycles of these threads cover less: {}. Activations were \
             missed, samples were lost, or the clock was set or the machine suspended during the run",
            Nanos(ran_ns),
            shortened(&places)
        );
        reading.note("import-shortfall", Weight::PreventsPass, text).advice =
            "measure again, and compare the number of cycles with the duration".to_owned();
    }
}

fn shortened(places: &[String]) -> String {
    let named = places.iter().take(NAMED).cloned().collect::<Vec<_>>().join(", ");
    match places.len().saturating_sub(NAMED) {
        0 => named,
        n => format!("{named}, and {n} more"),
    }
}
