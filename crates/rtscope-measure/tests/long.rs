//! Runs of hours on a simulated machine, through the recorder and back.

#[path = "../examples/long_record/machine.rs"]
mod machine;

use std::{fs, path::Path};

use rtscope_measure::recorder::RecordFiles;
use rtscope_model::{
    event::Event,
    histogram::Layout,
    record::{CellSum, Record},
    slice::Slice,
};

use self::machine::Machine;

const SECOND_NS: u64 = 1_000_000_000;
const HOUR: u64 = 3_600;

fn read(folder: &Path) -> Record {
    RecordFiles::open(folder).expect("a folder").read().expect("a record")
}

fn codes(record: &Record) -> Vec<&str> {
    record.findings.iter().map(|finding| finding.code.as_str()).collect()
}

/// Whether the record has every latency that the machine had, at its place in the sums.
fn has_everything(record: &Record, machine: &Machine) {
    for thread in 0..machine.threads {
        let sum_of = |slices: &mut dyn Iterator<Item = Slice>| {
            let mut sum = CellSum::new(Layout::default());
            slices.for_each(|slice| sum.add(&slice));
            sum.histogram(0, thread)
        };
        let told = sum_of(&mut (0..machine.second).map(|second| machine.slice(thread, second)));
        let found = record.slices.iter().filter(|slice| slice.thread == thread).cloned();
        assert!(told == sum_of(&mut { found }), "thread {thread}");
    }
    let mut before: Option<&Slice> = None;
    for slice in &record.slices {
        let joins = before.is_none_or(|b| b.thread != slice.thread || b.is_followed_by(slice));
        assert!(joins, "no gap at {}", slice.start_ns);
        before = Some(slice);
    }
}

fn bytes(folder: &Path) -> u64 {
    let files = fs::read_dir(folder.join("slices")).expect("slices");
    files.map(|file| file.and_then(|file| file.metadata()).expect("a file").len()).sum()
}

#[test]
fn a_long_run_has_every_latency_in_a_small_record() {
    let folder = tempfile::tempdir().expect("a folder");
    let out = folder.path().join("run");
    let mut machine = Machine::new(4, 8 * HOUR);
    machine.spikes = vec![(1, 2 * HOUR, 700_000), (2, 5 * HOUR, 1_200_000)];
    let mut recorder = machine.recorder(&out);
    machine.run(&mut recorder, 8 * HOUR);
    machine.end(&mut recorder);
    assert_eq!(recorder.finish().1, None);

    let record = read(&out);
    assert_eq!(codes(&record), [""; 0]);
    has_everything(&record, &machine);
    // Up to 7 hours of minutes and 90 minutes of seconds, instead of 8 hours of seconds.
    let lines: u64 = record.content.slices.values().sum();
    assert!(lines < 4 * (7 * 60 + HOUR + HOUR / 2 + 100), "{lines} slices");
    assert!(bytes(&out) < 4 * 5_400 * 1_000, "{} bytes", bytes(&out));
    for &(thread, second, latency_ns) in &machine.spikes {
        // In the file: reading it may join slices once more, to bound its memory.
        let file = out.join(format!("slices/t{thread}.jsonl"));
        let text = fs::read_to_string(file).expect("a file of slices");
        let mut slices = text.lines().map(|line| serde_json::from_str::<Slice>(line).expect("one"));
        let kept = slices.find(|slice| slice.max_ns == latency_ns);
        assert_eq!(kept, Some(machine.slice(thread, second)), "its second is kept");
    }
    // Counters: an hour of seconds, then minutes.
    assert!(record.content.events < HOUR + 7 * 60 + 50, "{} events", record.content.events);
    let interrupts = record.events.iter().map(|stamped| match &stamped.event {
        Event::System(span) => span.interrupts,
        _ => 0,
    });
    assert_eq!(interrupts.sum::<u64>(), 8 * HOUR * 4_000);
}

#[test]
fn a_long_run_that_is_killed_loses_nothing_that_was_told() {
    for seconds in [HOUR, 3 * HOUR / 2 + 1, 2 * HOUR + 77] {
        let folder = tempfile::tempdir().expect("a folder");
        let out = folder.path().join("run");
        let mut machine = Machine::new(2, 8 * HOUR);
        let mut recorder = machine.recorder(&out);
        machine.run(&mut recorder, seconds);
        // As it is left at this instant, whatever is being written: a copy made while it goes on.
        let killed = folder.path().join("killed");
        fs::create_dir_all(killed.join("slices")).expect("a folder");
        for name in ["plan.toml", "events.jsonl", "slices/t0.jsonl", "slices/t1.jsonl"] {
            fs::copy(out.join(name), killed.join(name)).expect("a copy");
        }
        // What a rewriting that was killed leaves.
        fs::write(killed.join("slices/t0.part"), "{\"thread\":0,\"sco").expect("written");
        let record = read(&killed);
        assert_eq!(codes(&record), ["record-cut-short"], "after {seconds} s");
        has_everything(&record, &machine);
        drop(recorder);
    }
}

#[test]
fn a_file_of_slices_that_is_removed_or_in_the_way_is_no_harm() {
    let folder = tempfile::tempdir().expect("a folder");
    let out = folder.path().join("run");
    let mut machine = Machine::new(2, 3 * HOUR);
    let mut recorder = machine.recorder(&out);
    machine.run(&mut recorder, HOUR);
    // One can't be rewritten, because a folder has the name of the new file. The other is gone.
    fs::create_dir(out.join("slices/t0.part")).expect("a folder");
    fs::remove_file(out.join("slices/t1.jsonl")).expect("removed");
    machine.run(&mut recorder, 2 * HOUR);
    machine.end(&mut recorder);
    assert_eq!(recorder.finish().1, None);
    let record = read(&out);
    assert_eq!(codes(&record), [""; 0]);
    has_everything(&record, &machine);
    let ends = record.slices.iter().map(|slice| slice.end_ns).max();
    assert_eq!(ends, Some((3 * HOUR + 1) * SECOND_NS));
}
