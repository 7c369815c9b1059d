//! A trace of others, or a record of late threads, as `explain` reads them.

use rtscope_analyse::{
    export::{Lateness, TRACE_FORMATS},
    report::explain as report,
    statistics::explain as statistics,
};
use rtscope_measure::explain::{Keep, read_trace};
use rtscope_model::explain::ExplainRecord;

use super::{
    Stages,
    pipe::{self, Stage},
};

/// Reads bytes as a trace, or as a record where they are JSON, explains what is late in it, and takes that to the
/// documents and exports.
///
/// # Panics
///
/// When the pieces of a latency don't add up to it, or one of the others fails.
pub fn explain(bytes: &[u8], stages: Stages) {
    let keep = Keep { above: None, kept_max: 4, version: String::new(), wall_clock: String::new() };
    let record: ExplainRecord = match serde_json::from_slice(bytes) {
        Ok(record) => record,
        Err(_) => match read_trace(bytes, None, keep) {
            Ok(record) => record,
            Err(_) => return,
        },
    };
    for one in statistics::explain(&record) {
        let sum: u64 = one.pieces.iter().map(|piece| piece.ns).sum();
        assert_eq!(sum, one.latency_ns, "{:?}", one.pieces);
    }
    pipe::check_text(&report::table(&record));
    drop(report::document(&record));
    if stages.has(Stage::Page, bytes) {
        pipe::check_page(&report::page(&record));
    }
    if stages.has(Stage::Export, bytes) {
        for format in TRACE_FORMATS {
            let _ = format.write(&Lateness { record: &record, pages: Some(bytes) });
        }
    }
}
