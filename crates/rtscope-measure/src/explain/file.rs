//! Explains what others recorded: the files of `trace-cmd record`, what `trace-cmd report` prints, and copies of
//! `/sys/kernel/tracing/trace`.

use std::collections::BTreeMap;

use rtscope_model::{
    explain::{ExplainRecord, FORMAT},
    time::Nanos,
    trace::{Event, What},
};

use super::{
    ExplainError, Keep,
    clock_fit::ClockFit,
    finder::{Finder, Limits},
    named,
};
use crate::trace::{
    foreign::{self, TraceDat},
    text,
};

/// A trace, however it was written.
struct Trace {
    events: Vec<Event>,
    /// Where events are missing: the last event before, and the first one after.
    gaps: Vec<(u64, u64)>,
    /// What `CLOCK_REALTIME` is ahead of the events' clock.
    realtime_ns: u64,
    lost: u64,
    kernel: Option<String>,
    missing: Vec<String>,
}

/// Explains the threads of a trace that set timers, or one of all its threads.
///
/// # Errors
///
/// When the file is damaged, or holds no event that tells of a thread.
pub fn read_trace(
    bytes: &[u8],
    only: Option<u32>,
    keep: Keep,
) -> Result<ExplainRecord, ExplainError> {
    if bytes.is_empty() {
        return Err(ExplainError::EmptyFile);
    }
    if !foreign::is_trace_dat(bytes) {
        let trace = of_text(&String::from_utf8_lossy(bytes));
        return explained(trace, only, keep);
    }
    let dat = foreign::read(bytes)?;
    let symbols = dat.symbols.clone();
    let mut record = explained(of_dat(dat), only, keep)?;
    record.symbols = named(&mut record.spikes, Some(&symbols));
    Ok(record)
}

fn of_text(text: &str) -> Trace {
    let (mut events, mut expiries) = (Vec::new(), Vec::new());
    for line in text.lines() {
        let Some(event) = text::parse(line) else { continue };
        expiries.extend(text::expiry_ns(line).map(|now_ns| (event.at_ns, now_ns)));
        events.push(event);
    }
    // The kernel writes events in order. A thread's name that looks like an event can break the order.
    events.sort_by_key(|event| event.at_ns);
    mark_interrupts(&mut events);
    let fit = ClockFit::new(&expiries);
    fit.apply(&mut events);
    Trace {
        events,
        gaps: Vec::new(),
        realtime_ns: fit.realtime_ns(),
        lost: text.lines().find_map(text::lost).unwrap_or(0),
        kernel: None,
        missing: vec!["the stack of a timer's expiry".to_owned()],
    }
}

fn of_dat(dat: TraceDat) -> Trace {
    let mut events = dat.events;
    let fit = ClockFit::new(&dat.expiries);
    if dat.clock != "mono" {
        fit.apply(&mut events);
    }
    let is_stack = |event: &Event| matches!(event.what, What::Interrupted(_));
    let missing = match events.iter().any(is_stack) {
        true => Vec::new(),
        false => vec!["the stack of a timer's expiry".to_owned()],
    };
    Trace {
        events,
        lost: dat.gaps.len() as u64,
        gaps: dat.gaps,
        realtime_ns: fit.realtime_ns(),
        // "Linux HOST RELEASE MACHINE"
        kernel: dat.machine.and_then(|all| all.split(' ').nth(2).map(str::to_owned)),
        missing,
    }
}

/// Marks what happened between the begin and the end of an interrupt: `trace-cmd report` leaves out what says so.
fn mark_interrupts(events: &mut [Event]) {
    let mut depth = BTreeMap::new();
    for event in events {
        let depth = depth.entry(event.cpu).or_insert(0_u32);
        match event.what {
            What::Enter(_) => *depth += 1,
            What::Leave(_) => *depth = depth.saturating_sub(1),
            What::Switch { .. } => *depth = 0,
            _ => event.in_interrupt |= *depth > 0,
        }
    }
}

fn explained(trace: Trace, only: Option<u32>, keep: Keep) -> Result<ExplainRecord, ExplainError> {
    let events = &trace.events;
    let (Some(first), Some(last)) = (events.first(), events.last()) else {
        return Err(ExplainError::NoEvents);
    };
    let duration = Nanos(last.at_ns - first.at_ns);
    let limits: Limits = keep.limits(trace.realtime_ns);
    let mut finder = Finder::new(limits);
    let sets_timer = |event: &&Event| {
        matches!(event.what, What::TimerStart { function, .. } if function.ends_a_sleep())
            && !event.in_interrupt
    };
    match only {
        Some(tid) => finder.watch(tid),
        None => events.iter().filter(sets_timer).for_each(|event| finder.watch(event.tid)),
    }
    let mut gaps = trace.gaps.iter().peekable();
    for event in events {
        while let Some((from_ns, _)) = gaps.next_if(|gap| gap.1 <= event.at_ns) {
            finder.lost(*from_ns);
        }
        finder.see(event);
    }
    let (threads, spikes) = finder.finish();
    let record = ExplainRecord {
        format: FORMAT,
        version: keep.version,
        wall_clock: keep.wall_clock,
        wall_ahead_ns: None,
        kernel: trace.kernel.unwrap_or_else(|| "unknown".to_owned()),
        is_preempt_rt: None,
        is_guest: false,
        program: "a trace".to_owned(),
        duration,
        above: keep.above,
        kept_max: keep.kept_max,
        events: Vec::new(),
        missing: trace.missing,
        threads,
        spikes,
        symbols: Vec::new(),
        lost: trace.lost,
        lost_by_cpu: BTreeMap::new(),
        pauses: Vec::new(),
    };
    Ok(record)
}
