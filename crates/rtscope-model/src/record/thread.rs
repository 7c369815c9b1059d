//! The sampling threads of a record, as its events tell of them.

use crate::{
    event::{Event, Stamped, Tally},
    schedule::{Placement, Policy},
};

#[derive(Clone, Debug, PartialEq)]
pub struct ThreadRecord {
    /// Index over all sessions.
    pub thread: u32,
    pub session: u32,
    pub interval_ns: u64,
    pub asked: Placement,
    pub found: Placement,
    /// What was read back when it had left its loop; none when the record doesn't say.
    pub found_at_end: Option<Placement>,
    /// What it cost and suffered; none when the record was cut short.
    pub tally: Option<Tally>,
    /// Name of an imported thread. Of such a one nothing was read back: its placement holds no more
    /// than its CPU, if that is known, and an interval of 0 is one that is not known.
    pub imported: Option<String>,
}

/// The threads that events tell of, in their order.
pub(super) fn threads(events: &[Stamped]) -> Vec<ThreadRecord> {
    let mut threads: Vec<ThreadRecord> = Vec::new();
    for stamped in events {
        match &stamped.event {
            Event::ThreadPlaced { thread, session, interval_ns, asked, found, .. } => {
                threads.push(ThreadRecord {
                    thread: *thread,
                    session: *session,
                    interval_ns: *interval_ns,
                    asked: asked.clone(),
                    found: found.clone(),
                    found_at_end: None,
                    tally: None,
                    imported: None,
                });
            }
            Event::ThreadImported { thread, session, label, cpu, interval_ns } => {
                let place = Placement {
                    policy: Policy::Other,
                    priority: 0,
                    nice: 0,
                    budget: None,
                    cpus: cpu.iter().copied().collect(),
                };
                threads.push(ThreadRecord {
                    thread: *thread,
                    session: *session,
                    interval_ns: interval_ns.unwrap_or(0),
                    asked: place.clone(),
                    found: place,
                    found_at_end: None,
                    tally: None,
                    imported: Some(label.clone()),
                });
            }
            Event::ThreadEnded { thread, tally, found } => {
                if let Some(ended) = threads.iter_mut().find(|t| t.thread == *thread) {
                    ended.found_at_end.clone_from(found);
                    ended.tally = Some(*tally);
                }
            }
            _ => {}
        }
    }
    threads
}
