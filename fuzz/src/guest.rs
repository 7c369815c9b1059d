//! What comes out of a guest, or lies in a folder that another machine wrote: frames on a serial line, the
//! console, the files beside a record.

use rtscope_analyse::report::sched;
use rtscope_lab::{config::merge, console, inputs::Inputs};
use rtscope_model::{
    guest::{Cost, GuestExtras, OURS, THEIRS},
    guest_link,
    sched::{Experiment, ExperimentRecord},
};

use super::{
    Stages, parts,
    pipe::{self, Stage},
};

/// Reads bytes as parts, each under a line `== NAME`, as the file of that name.
///
/// # Panics
///
/// When a reader fails, or when what was read and written out reads back as something else.
pub fn guest(bytes: &[u8], stages: Stages) {
    line(bytes);
    let text = String::from_utf8_lossy(bytes);
    for (name, content) in parts(&text) {
        match name {
            "console" => console_of(content),
            "lab.json" => inputs(content),
            "guest.toml" => beside(content),
            "experiment.toml" => experiment_text(content),
            "experiment.json" => experiment_record(content, stages.has(Stage::Page, bytes)),
            ".config" => configuration(content),
            _ => {}
        }
    }
}

/// Frames are found among noise, and those of a sender come through it.
fn line(bytes: &[u8]) {
    let piece = bytes.first().map_or(1, |&byte| usize::from(byte) + 1);
    let mut reader = guest_link::FrameReader::default();
    bytes.chunks(piece).for_each(|piece| drop(reader.feed(piece)));
    let (name, body) = bytes.split_at(bytes.len().min(8));
    let Some(frame) = guest_link::file(&String::from_utf8_lossy(name), body) else { return };
    let frames = guest_link::FrameReader::default().feed(&frame);
    assert!(matches!(&frames[..], [guest_link::Frame::File { body: read, .. }] if read == body));
}

fn console_of(text: &str) {
    let _ = console::has_ended(text);
    console::trouble(text).iter().for_each(|trouble| drop(trouble.sentence()));
    assert!(console::tail(text, 5).len() <= 5);
    for whose in [OURS, THEIRS] {
        let costs = console::agent_lines(text).filter_map(|line| Cost::find(line, whose));
        let sum: Cost = costs.sum();
        assert!(sum.each_ns().is_none_or(f64::is_finite));
    }
}

fn inputs(text: &str) {
    let Ok(read) = serde_json::from_str::<Inputs>(text) else { return };
    let written = serde_json::to_string(&read).expect("plain fields");
    assert_eq!(serde_json::from_str::<Inputs>(&written).expect("it was written"), read);
}

fn beside(text: &str) {
    if let Ok(read) = GuestExtras::parse(text) {
        assert_eq!(GuestExtras::parse(&read.to_toml()), Ok(read));
    }
}

fn experiment_text(text: &str) {
    let Ok(read) = Experiment::parse("fuzz", text) else { return };
    let written = read.to_toml();
    let again = Experiment::parse("fuzz", &written).expect("an experiment that was written");
    assert_eq!(again.to_toml(), written);
}

fn experiment_record(text: &str, has_page: bool) {
    let Ok(record) = serde_json::from_str::<ExperimentRecord>(text) else { return };
    let table = sched::table(&record);
    assert!(!table.is_empty());
    drop(sched::document(&record));
    if has_page {
        pipe::check_page(&sched::page(&record));
    }
}

fn configuration(text: &str) {
    let read = merge::read(text);
    assert_eq!(merge::read(&merge::write(&read)), read);
}
