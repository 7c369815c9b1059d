//! Whatever a file holds, an import ends, in pieces of any size alike, and what it makes is a record.
//!
//! The files are those that the fuzz targets start from: `fuzz/corpus/FORMAT/`.

#![expect(clippy::disallowed_methods, reason = "the corpus is files")]

use std::{fs, path::Path};

use proptest::prelude::*;
use rtscope_analyse::{
    export::{Exported, FORMATS},
    import::{self, Import, ImportOptions, ImportReading, Stream},
    judge, report,
};
use rtscope_model::record::Record;

fn options() -> ImportOptions {
    ImportOptions { name: "file".to_owned(), ..ImportOptions::default() }
}

fn read(format: Option<&str>, bytes: &[u8], piece: usize) -> ImportReading {
    let mut stream = Stream::open(format, options()).expect("a known format");
    bytes.chunks(piece).for_each(|piece| stream.feed(piece));
    stream.finish()
}

/// Reads a file as each format, in pieces of several sizes.
fn read_in_every_way(bytes: &[u8]) -> Vec<ImportReading> {
    let formats = import::formats().map(|(name, _)| Some(name)).chain([None]);
    let each = formats.map(|format| {
        let whole = read(format, bytes, usize::MAX);
        for piece in [1, 27] {
            assert_eq!(read(format, bytes, piece), whole, "{format:?} in pieces of {piece}");
        }
        whole
    });
    each.collect()
}

/// Whatever is made of a file is a record, unless the file holds no latency.
fn recorded(reading: ImportReading) -> Option<Record> {
    let has_cells = !reading.cells.is_empty();
    let files = import::files(&Import::default(), vec![("file".to_owned(), reading)]);
    assert_eq!(files.is_ok(), has_cells);
    let record = Record::read(&files.ok()?).expect("a record");
    assert_eq!(record.findings, [], "an import is a sound record");
    Some(record)
}

/// And it can be judged.
fn judged(reading: ImportReading) {
    let Some(record) = recorded(reading) else { return };
    let judgement = judge(&record, &[]);
    assert!(judgement.findings.iter().all(|finding| finding.code != "accounting"));
}

fn corpora() -> Vec<Vec<u8>> {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus");
    let folders = import::formats().map(|(name, _)| corpus.join(name));
    let entries = folders.flat_map(|folder| fs::read_dir(folder).expect("a corpus").flatten());
    entries.map(|entry| fs::read(entry.path()).expect("readable")).collect()
}

/// Files that tools wrote contradict themselves in nothing, and have a maximum.
#[test]
fn real_files_are_free_of_contradictions() {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus");
    let mut read_files = 0;
    for format in ["cyclictest", "cyclictest-json", "jitterdebugger", "rtla", "linuxcnc", "osadl"] {
        for entry in fs::read_dir(corpus.join(format)).expect("a folder").flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            if name.starts_with("hostile") || name.starts_with("binary") {
                continue;
            }
            let reading = read(Some(format), &fs::read(entry.path()).expect("bytes"), usize::MAX);
            let has = |code: &str| reading.findings.iter().any(|finding| finding.code == code);
            assert!(!has("import-contradiction"), "{format}/{name}: {:?}", reading.findings);
            let is_cut = has("import-truncated");
            assert!(is_cut || !has("import-no-maximum"), "{format}/{name}: {:?}", reading.findings);
            read_files += 1;
        }
    }
    assert!(read_files > 20, "{read_files}");
}

#[test]
fn the_corpora_are_read_in_every_way() {
    let corpora = corpora();
    assert!(corpora.len() >= 30, "{} files", corpora.len());
    for bytes in &corpora {
        read_in_every_way(bytes);
        judged(read(None, bytes, usize::MAX));
    }
}

#[test]
fn the_corpora_can_be_exported_and_their_counts_read_back() {
    for bytes in corpora() {
        let Some(record) = recorded(read(None, &bytes, usize::MAX)) else { continue };
        let judgement = judge(&record, &[]);
        for cell in &judgement.cells {
            let mut subject = Exported::new(&record, &judgement, Some(&cell.name)).expect("a cell");
            subject.submission.build = Some("origin:build".parse().expect("a build"));
            for format in FORMATS {
                let Ok(document) = format.write(&subject) else {
                    let may_refuse =
                        ["hgrm", "cyclictest", "cyclictest-json", "osadl", "csv-samples"];
                    assert!(may_refuse.contains(&format.name), "{} refuses", format.name);
                    continue;
                };
                if format.name.starts_with("cyclictest") && cell.all.recorded > 0 {
                    let again = read(Some(format.name), &document, usize::MAX);
                    let count: u64 = again.cells.iter().map(import::ImportedCell::count).sum();
                    assert_eq!(count, cell.all.recorded, "{} of {}", format.name, cell.name);
                    // Nor does it say that rows and summary differ, unless the file did.
                    let code = "import-contradiction";
                    let tells = again.findings.iter().any(|finding| finding.code == code);
                    assert!(!tells, "{} of {}: {:?}", format.name, cell.name, again.findings);
                }
            }
        }
    }
}

#[test]
fn the_corpora_can_be_shown() {
    for bytes in corpora() {
        let reading = read(None, &bytes, usize::MAX);
        let readings = vec![("file".to_owned(), reading)];
        let Ok(files) = import::files(&Import::default(), readings) else { continue };
        let record = Record::read(&files).expect("a record");
        let page = report::html::page(&record, &judge(&record, &[]));
        assert!(page.contains("</html>"));
    }
}

#[test]
fn a_file_that_was_cut_or_damaged_ends_in_findings() {
    for bytes in corpora() {
        for n in 1..6 {
            let at = bytes.len() * n / 6;
            judged(read(None, &bytes[..at], usize::MAX));
            let mut changed = bytes.clone();
            changed.iter_mut().skip(at).take(1).for_each(|byte| *byte ^= 0x11);
            judged(read(None, &changed, usize::MAX));
        }
    }
}

/// Lines that look like those of the tools.
const LINES: &str = "(T: ?[0-9]{1,3} \\([0-9]{1,5}\\) P:[0-9]{1,2} I:[0-9]{1,9} C: ?[0-9]{1,20} \
    Min: [0-9-]{1,8} Act: 1 Avg: [0-9]{1,20} Max: [0-9-]{1,20}\
    |# (Histogram|Total:|Min Latencies:|Max Latencies:|Histogram Overflows:)( [0-9]{1,20}){0,3}\
    |[0-9]{1,20}([ \t][0-9]{1,20}){0,3}\
    |[ ]{0,7}[0-9]{1,8}:[ ]{0,7}[0-9]{1,8}:[ ]{0,7}-?[0-9]{1,8}\
    |Thread [0-9]{1,3} Interval: [0-9]{1,20}\
    |(over|count|min|avg|max|ALL):( +[0-9]{1,20}){0,3}\
    |Index( +(IRQ|Thr|Usr|CPU)-[0-9]{1,4}){0,3}|# RTLA timerlat histogram\
    |# Duration: +[0-9]{1,6} [0-9]{2}:[0-9]{2}:[0-9]{2}\
    | +[0-9]{1,6} s servo min:-?[0-9]{1,12}.[0-9] us max: [0-9]{1,12}.[0-9] us)\r?";

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    #[test]
    fn random_bytes_end_in_findings(bytes in prop::collection::vec(any::<u8>(), 0..600)) {
        read_in_every_way(&bytes);
    }

    #[test]
    fn random_lines_that_look_right_end_in_findings(lines in prop::collection::vec(LINES, 0..30)) {
        let text = lines.join("\n");
        read_in_every_way(text.as_bytes());
        recorded(read(None, text.as_bytes(), usize::MAX));
    }
}
