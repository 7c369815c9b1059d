//! What every target does with its bytes.

use rtscope_analyse::{
    export::{FORMATS, Subject},
    import::{self, Import, Options, Stream},
    judge,
};
use rtscope_model::record::Record;

/// Reads bytes as a format in pieces of a size that they say themselves; what comes out must be a
/// record that can be judged, and each of its cells be written in every form or refused.
///
/// # Panics
///
/// When it is not: that is what the fuzzer looks for.
pub fn import(format: &str, bytes: &[u8]) {
    let options = Options { name: "file".to_owned(), ..Options::default() };
    let mut stream = Stream::open(Some(format), options).expect("a known format");
    let piece = bytes.first().map_or(1, |&byte| usize::from(byte) + 1);
    bytes.chunks(piece).for_each(|piece| stream.feed(piece));
    let readings = vec![("file".to_owned(), stream.finish())];
    let Ok(files) = import::files(&Import::default(), readings) else { return };
    let record = Record::read(&files).expect("a record");
    assert!(record.findings.is_empty(), "{:?}", record.findings);
    let judgement = judge(&record, &[]);
    for cell in &judgement.cells {
        let subject = Subject::new(&record, &judgement, Some(&cell.name)).expect("a cell");
        FORMATS.iter().for_each(|format| drop(format.write(&subject)));
    }
}
