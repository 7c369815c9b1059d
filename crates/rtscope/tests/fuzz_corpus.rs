//! Every input that the fuzz targets start from goes through every stage of the pipe, in every test run.

use std::{fs, path::Path};

#[path = "../../../fuzz/src/lib.rs"]
#[expect(dead_code, unreachable_pub, reason = "the fuzz targets choose the stages by the input")]
mod fuzz;

use fuzz::Stages;

/// Gives each file of a corpus to a target.
fn replay(name: &str, target: impl Fn(&[u8])) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus").join(name);
    for entry in fs::read_dir(&folder).expect("a corpus").flatten() {
        eprintln!("{}", entry.path().display());
        target(&fs::read(entry.path()).expect("readable"));
    }
}

#[test]
fn records_damaged_or_not_reach_the_end_of_the_pipe() {
    replay("record", |bytes| fuzz::record(bytes, Stages::All));
    replay("series", |bytes| fuzz::series(bytes, Stages::All));
    replay("kcidb", fuzz::kcidb);
}

#[test]
fn imports_reach_the_end_of_the_pipe() {
    for (format, _) in rtscope_analyse::import::formats() {
        replay(format, |bytes| fuzz::import(format, bytes, Stages::All));
    }
}

#[test]
fn plans_and_captures_are_read() {
    replay("plan", fuzz::plan);
    replay("wave", |bytes| fuzz::wave(bytes, Stages::All));
}

#[test]
fn what_machines_and_kernels_say_is_read() {
    replay("cmdline", fuzz::cmdline);
    replay("doctor", |bytes| fuzz::doctor(bytes, Stages::All));
    replay("kconfig", fuzz::kconfig);
    replay("spec", fuzz::spec);
    replay("symbols", fuzz::symbols);
}

#[test]
fn answers_of_places_and_servers_are_read() {
    replay("places", fuzz::places);
    replay("pull-lab", fuzz::pull_lab);
}

#[test]
fn traces_and_files_of_guests_are_read() {
    replay("trace", |bytes| fuzz::trace(bytes, Stages::All));
    replay("explain", |bytes| fuzz::explain(bytes, Stages::All));
    replay("guest", |bytes| fuzz::guest(bytes, Stages::All));
    replay("pages", |bytes| fuzz::pages(bytes, Stages::All));
}
