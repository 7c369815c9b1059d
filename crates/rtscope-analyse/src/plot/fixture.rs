//! Records to draw in tests: latencies as a busy machine gives them, but the same in each run.

use std::sync::LazyLock;

use rtscope_model::{
    event::{CpuSpan, Event, Stamped, SystemSpan},
    finding::{Finding, Weight},
    frames::{FramePart, Frames, PART_LAYOUT, PartCounts},
    histogram::Histogram,
    record::Record,
    slice::Extent,
};

use crate::{
    judge,
    judgement::Judgement,
    test_support::{INTERVAL_NS, Run, SECOND_NS},
};

/// Rest, message load, rest; a requirement that is met and one that is not.
pub(crate) const PLAN: &str = r#"
name = "quick"
title = "Rest, message load, rest"
about = "How late does this machine wake a thread, at rest and under load?"
require = ["max < 200us", "p99.9 < 1ms"]

[[phase]]
name = "rest before"
duration = "5s"

[[phase]]
name = "message"
duration = "10s"
load = ["message groups=1"]

[[phase]]
name = "rest after"
duration = "5s"
"#;

/// A linear congruential generator (Knuth's MMIX constants): no latency here is random.
#[derive(Debug)]
pub(crate) struct Dice(pub(crate) u64);

impl Dice {
    /// From 0 to below 1.
    pub(crate) fn roll(&mut self) -> f64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 11) as f64 / (1u64 << 53) as f64
    }

    /// A latency: a body around a level, and one in a thousand up to `tail_ns` beyond it.
    fn latency_ns(&mut self, level_ns: f64, tail_ns: f64) -> u64 {
        let body = level_ns * (0.7 + 0.5 * self.roll() + 0.25 * -(1.0 - self.roll()).ln());
        let tail = if self.roll() < 0.001 { tail_ns * self.roll().powi(3) } else { 0.0 };
        (body + tail) as u64
    }

    pub(crate) fn latencies_ns(&mut self, n: usize, level_ns: f64, tail_ns: f64) -> Vec<u64> {
        (0..n).map(|_| self.latency_ns(level_ns, tail_ns)).collect()
    }
}

/// A run of [`PLAN`] on two CPUs. With `per_second` below 1,000 wake-ups all of it takes shorter, for
/// where the size of the outcome matters.
pub(crate) fn run(per_second: usize) -> Run {
    let mut dice = Dice(42);
    let mut run = Run::new(PLAN, 2);
    for (cell, (seconds, level_ns, tail_ns)) in
        (0u32..).zip([(5, 6_000.0, 60_000.0), (10, 11_000.0, 500_000.0), (5, 6_000.0, 60_000.0)])
    {
        let n = seconds * per_second;
        let mut first = dice.latencies_ns(n, level_ns, tail_ns);
        let second = dice.latencies_ns(n, level_ns * 1.3, tail_ns);
        if cell == 1 {
            first[n * 3 / 5] = 3_412_345;
        }
        run = run.cell(cell, &[&first, &second]);
        if cell == 1 {
            run = run.load(1, "message groups=1", &[]);
        }
    }
    let span_ns = per_second as u64 * INTERVAL_NS;
    spread(&mut run, span_ns);
    run.end()
}

/// Gives the run one report of loads and CPU times each span, as a recorder writes them.
fn spread(run: &mut Run, span_ns: u64) {
    let mut dice = Dice(7);
    let end_ns = run.events.last().map_or(0, |last| last.at_ns);
    let mut loaded = (0, 0);
    for stamped in &run.events {
        match &stamped.event {
            Event::PhaseStarted { cell: 1, .. } => loaded.0 = stamped.at_ns,
            Event::PhaseEnded { cell: 1, .. } => loaded.1 = stamped.at_ns,
            _ => {}
        }
    }
    run.events.retain(|stamped| !matches!(stamped.event, Event::System(_)));
    for at_ns in (1..=end_ns / span_ns).map(|n| n * span_ns) {
        let is_loaded = at_ns > loaded.0 && at_ns <= loaded.1;
        let share = if is_loaded { 0.9 } else { 0.02 };
        let cpu = |cpu: u32, roll: f64| CpuSpan {
            cpu,
            busy_ns: (span_ns as f64 * (share + 0.08 * roll)) as u64,
            ..CpuSpan::default()
        };
        let cpus = (0..2).map(|n| cpu(n, dice.roll())).collect();
        let span = SystemSpan { span_ns, cpus, ..SystemSpan::default() };
        run.events.push(Stamped { at_ns, event: Event::System(span) });
        if is_loaded {
            let per_second = 118_000.0 + 9_000.0 * dice.roll();
            let work = (per_second * span_ns as f64 / 1e9) as u64;
            let rate = Event::load_rate(1, 0, span_ns, work, "messages");
            run.events.push(Stamped { at_ns, event: rate });
        }
    }
    run.events.sort_by_key(|stamped| stamped.at_ns);
}

/// The typical record, with findings of every weight.
pub(crate) fn typical() -> Record {
    let mut record = run((SECOND_NS / INTERVAL_NS) as usize).record();
    record.findings = vec![
        Finding::new("throttling", Weight::Note, "real-time throttling is lifted for this run"),
        Finding::new("governor", Weight::Warning, "the frequency governor of CPU 1 is powersave")
            .advise("set it to performance: cpupower frequency-set -g performance"),
    ];
    record
}

/// A record of few wake-ups, for snapshots that are to be read.
pub(crate) fn small() -> Record {
    run(40).record()
}

/// A run of one cell and one thread, of so many slices of ten wake-ups each; the one in the middle
/// holds a latency of 777 us.
pub(crate) fn long(slices: u64) -> Record {
    let plan = "name = \"long\"\n[[phase]]\nname = \"rest\"\nduration = \"1h\"\n";
    let latencies_ns: Vec<u64> = (5..15).map(|us| us * 1_000).collect();
    let mut run = Run::new(plan, 1).cell(0, &[&latencies_ns]);
    let model = run.slices.remove(0);
    for n in 0..slices {
        let mut slice = model.clone();
        (slice.start_ns, slice.end_ns) = (n * SECOND_NS, (n + 1) * SECOND_NS);
        slice.max_at_ns = slice.start_ns;
        if n == slices / 2 {
            slice.bins.pop();
            slice.bins.push((777, 1));
            slice.max_ns = 777_000;
        }
        run.slices.push(slice);
    }
    run.end().record()
}

/// A run on so many CPUs through so many cells, each with a load of its own.
pub(crate) fn wide(cpus: u32, cells: u32) -> Record {
    let mut plan = "name = \"wide\"\nrequire = [\"max < 50us\"]\n".to_owned();
    for cell in 0..cells {
        plan += &format!(
            "[[phase]]\nname = \"cell {cell}\"\nduration = \"1s\"\nload = [\"cpu percent={cell}\"]\n"
        );
    }
    let mut dice = Dice(3);
    let mut run = Run::new(&plan, cpus);
    for cell in 0..cells {
        let level_ns = 4_000.0 + 500.0 * f64::from(cell);
        let latencies: Vec<Vec<u64>> =
            (0..cpus).map(|_| dice.latencies_ns(50, level_ns, 90_000.0)).collect();
        let latencies: Vec<&[u64]> = latencies.iter().map(Vec::as_slice).collect();
        run = run.cell(cell, &latencies);
    }
    run.end().record()
}

/// A run of a network sampler: 1,000 cycles at rest and 1,000 under a load, of which 7 frames are late, 3 lost and 2 were
/// not sent.
pub(crate) fn network() -> Run {
    let plan = "name = \"network\"\n[sampler]\nnetwork = \"udp\"\n[[phase]]\nname = \"rest\"\nduration = \"1s\"\n\
                [[phase]]\nname = \"message\"\nduration = \"1s\"\nload = [\"message groups=1\"]\n";
    let mut dice = Dice(11);
    let ways: Vec<Vec<[u64; 4]>> =
        [(1_000, 1.0), (988, 3.0)].map(|(frames, busy)| ways(&mut dice, frames, busy)).into();
    let mut run = Run::new(plan, 1);
    for (cell, ways) in (0u32..).zip(&ways) {
        let latencies_ns: Vec<u64> = ways.iter().map(|way| way.iter().sum()).collect();
        run = run.cell(cell, &[&latencies_ns]);
        if cell == 1 {
            run = run.load(1, "message groups=1", &[118_000]);
        }
    }
    for (slice, (ways, (late, lost))) in
        run.slices.iter_mut().zip(ways.iter().zip([(0, 0), (7, 3)]))
    {
        slice.missed = late + lost + 2 * u64::from(lost > 0);
        slice.planned = slice.recorded + slice.missed;
        slice.end_ns = slice.start_ns + SECOND_NS;
        slice.omitted = (slice.missed > 0).then_some((1_000, slice.missed)).into_iter().collect();
        let sent = slice.recorded + late + lost;
        let odd = u64::from(late > 0);
        let parts = part_counts(ways);
        let frames = Frames { sent, late, lost, out_of_order: odd, parts, ..Frames::default() };
        slice.frames = Some(Box::new(frames));
    }
    let mut run = run.end();
    // The second cell lasts as long as its cycles that brought nothing, too.
    let late = run.events.iter_mut().filter(|stamped| stamped.at_ns > SECOND_NS);
    late.for_each(|stamped| stamped.at_ns = 2 * SECOND_NS);
    run
}

/// Wake-up, send path, wire, and receive path of so many frames.
fn ways(dice: &mut Dice, frames: usize, busy: f64) -> Vec<[u64; 4]> {
    let levels_ns = [4_000.0, 2_500.0, 9_000.0, 5_000.0];
    (0..frames).map(|_| levels_ns.map(|level| dice.latency_ns(level * busy, 80_000.0))).collect()
}

fn part_counts(ways: &[[u64; 4]]) -> Vec<PartCounts> {
    use FramePart::{Receive, RoundTrip, Send, WakeUp, Wire};
    let part = |part: FramePart| {
        let mut histogram = Histogram::new(PART_LAYOUT);
        for &[wake_up, send, wire, receive] in ways {
            histogram.record(match part {
                WakeUp => wake_up,
                Send => send,
                Wire => wire,
                Receive => receive,
                _ => send + wire + receive,
            });
        }
        let extent = Extent {
            min_ns: histogram.min_ns().unwrap_or(0),
            max_ns: histogram.max_ns().unwrap_or(0),
            sum_ns: histogram.sum_ns() as u64,
        };
        PartCounts { part, bins: histogram.bins(), extent }
    };
    [WakeUp, Send, Wire, Receive, RoundTrip].map(part).into()
}

/// As wide as it comes: 64 CPUs through 30 cells, judged.
pub(crate) static WIDEST: LazyLock<(Record, Judgement)> = LazyLock::new(|| {
    let record = wide(64, 30);
    let judgement = judge(&record, &[]);
    (record, judgement)
});

/// A record whose run was killed before the first cell, on a machine that was not looked at.
pub(crate) fn empty() -> Record {
    let mut run = Run::new(PLAN, 2);
    (run.before, run.after) = (None, None);
    run.record()
}

/// A record that breaks off in the middle of the second cell.
pub(crate) fn cut_short() -> Record {
    let mut run = run(40);
    run.after = None;
    run.events.retain(|stamped| stamped.at_ns < 9 * SECOND_NS);
    run.slices.retain(|slice| slice.start_ns < 9 * SECOND_NS);
    run.record()
}

/// Records whose latencies are at an end of every scale: one or all of them 0, below the first bucket, equal,
/// or hours.
pub(crate) fn extreme() -> Vec<Record> {
    let plan = "name = \"extreme\"\nrequire = [\"max < 1h\"]\n[[phase]]\nname = \"rest\"\nduration = \"1s\"\n";
    let hours = 10 * 3_600 * SECOND_NS;
    let all: [&[u64]; 7] = [
        &[],
        &[0],
        &[0; 2_000],
        &[1; 50],
        &[300, 700, 999],
        &[1_000; 2_000],
        &[1, INTERVAL_NS, hours / 1_000],
    ];
    all.map(|latencies| Run::new(plan, 1).cell(0, &[latencies]).end().record()).into()
}

/// A record in which every name that someone else chose tries to break out of the page.
pub(crate) fn hostile() -> Record {
    let evil = "<script>alert(1)</script>\"'&]]>-->";
    let mut record = small();
    record.plan.name = evil.to_owned();
    record.plan.title = evil.to_owned();
    record.plan.about = evil.to_owned();
    record.plan.phases[0].name = evil.to_owned();
    record.plan.phases[1].name = "</title></svg><img src=x onerror=alert(1)>\u{2028}".to_owned();
    let line = "external -- <img src=x onerror=alert(1)>".parse().expect("a load's line");
    record.plan.phases[1].loads = vec![line];
    for machine in record.before.iter_mut().chain(&mut record.after) {
        machine.host = evil.to_owned();
        machine.kernel.cmdline = format!("quiet {evil}");
        machine.kernel.release = evil.to_owned();
        machine.cpus.model = evil.to_owned();
        machine.sysctl.insert(evil.to_owned(), evil.to_owned());
    }
    for stamped in &mut record.events {
        if let Event::RunStarted { version, command, wall_clock, .. } = &mut stamped.event {
            (*version, *wall_clock) = (evil.to_owned(), evil.to_owned());
            command.push(evil.to_owned());
        }
    }
    record.findings.push(Finding::new(evil, Weight::Warning, evil).advise(evil));
    record
}

/// Whether a text is well-formed markup: every element closed in order, no attribute twice, no
/// bare `<` or `&`. Says what is wrong.
pub(crate) fn check_markup(text: &str) -> Result<(), String> {
    let mut open: Vec<&str> = Vec::new();
    for (n, part) in text.split('<').enumerate() {
        let (tag, content) = match n {
            0 => ("", part),
            _ => part.split_once('>').ok_or_else(|| format!("unclosed tag {part:?}"))?,
        };
        for entity in content.split('&').skip(1).chain(tag.split('&').skip(1)) {
            if entity.split_once(';').is_none_or(|(name, _)| name.len() > 6) {
                return Err(format!("bare & in {entity:?}"));
            }
        }
        let name = tag.split([' ', '\n', '/']).next().unwrap_or_default();
        if let Some(closed) = tag.strip_prefix('/') {
            if open.pop() != Some(closed) {
                return Err(format!("</{closed}> closes nothing"));
            }
            continue;
        }
        let mut names: Vec<&str> = tag
            .split("=\"")
            .map(|left| left.rsplit([' ', '\n']).next().unwrap_or_default())
            .collect();
        names.pop();
        let count = names.len();
        names.sort_unstable();
        names.dedup();
        if names.len() != count {
            return Err(format!("an attribute twice in <{tag}>"));
        }
        if n > 0 && !tag.ends_with('/') {
            open.push(name);
        }
    }
    if open.is_empty() { Ok(()) } else { Err(format!("never closed: {open:?}")) }
}
