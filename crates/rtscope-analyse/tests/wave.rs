//! Captures of instruments meet the judge with exact results; whatever a file holds, reading it ends.
//!
//! The files are those that the fuzz target starts from: `fuzz/corpus/wave/`. `sigrok.csv` was written by
//! sigrok-cli 0.7.2, the others by hand with the figures that are asserted here.

#![expect(clippy::disallowed_methods, reason = "the corpus is files")]

use std::{fs, path::Path};

use proptest::prelude::*;
use rtscope_analyse::{
    instrument::{self, CaptureChoice, CaptureReading, Unreadable},
    statistics::wave::{Wave, judge},
};
use rtscope_model::wave::{Capture, Edge, Gap};

fn corpus() -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/wave")
}

fn bytes(file: &str) -> Vec<u8> {
    fs::read(corpus().join(file)).expect("a file of the corpus")
}

fn read(file: &str, choice: CaptureChoice<'_>) -> CaptureReading {
    instrument::read(&bytes(file), choice).expect("a capture")
}

fn judged(file: &str) -> (Wave, Vec<String>) {
    let reading = read(file, CaptureChoice::default());
    (judge(&reading.capture, None), reading.findings)
}

fn close(is: Option<f64>, wanted: f64) {
    let is = is.expect("a figure");
    assert!((is - wanted).abs() <= wanted.abs() * 1e-9 + 1e-6, "{is} is not {wanted}");
}

#[test]
fn a_steady_wave_of_a_logic_analyser_comes_out_exactly() {
    let (wave, findings) = judged("steady.vcd");
    assert!(matches!(&findings[..], [one] if one.contains("multiples of 100 us")), "{findings:?}");
    close(wave.frequency_hz, 1_000.0);
    close(wave.duty, 0.3);
    assert_eq!((wave.edges, wave.periods, wave.glitches, wave.lost), (202, 100, 0, None));
    let period = wave.period.expect("periods");
    assert_eq!((period.ns_min, period.ns_max), (1_000_000, 1_000_000));
}

#[test]
fn piscope_s_microseconds_and_known_jitter() {
    let reading = read("piscope.vcd", CaptureChoice::default());
    assert_eq!((reading.capture.line.as_str(), reading.channels.len()), ("2", 5));
    // The unit is 1 us, but no edge lies beside a grid of 20 us.
    assert_eq!(reading.capture.resolution_ns, 20_000);
    let wave = judge(&reading.capture, None);
    // Every other edge is 20 us late: periods of 2,020 and 1,980 us.
    close(wave.frequency_hz, 500.0);
    let period = wave.period.expect("periods");
    close(Some(period.jitter_ns_rms), 20_000.0);
    assert_eq!(period.cycle_to_cycle_ns_max, Some(40_000));
}

#[test]
fn a_drift_is_seen_in_units_of_the_time_scale() {
    let (wave, findings) = judged("drift.vcd");
    assert_eq!(findings, [""; 0]);
    let period = wave.period.expect("periods");
    // x(n) = 10,000 n + n^2 in units of 10 ns: periods of 10,003 to 10,199 units.
    assert_eq!((period.ns_min, period.ns_max), (100_030, 101_990));
    assert_eq!(period.cycle_to_cycle_ns_max, Some(20));
}

#[test]
fn an_unknown_level_is_a_gap_and_hides_its_edges() {
    let reading = read("gap.vcd", CaptureChoice::default());
    let gap = Gap { start_ns: 39_900_000, end_ns: 59_900_000, moved: false };
    assert_eq!(reading.capture.gaps, [gap]);
    let wave = judge(&reading.capture, None);
    assert_eq!((wave.edges, wave.blind_ns, wave.missing_edges), (160, 20_000_000, 0));
    close(wave.frequency_hz, 1_000.0);
}

#[test]
fn sigrok_s_csv_is_read_by_its_sample_rate() {
    let reading = read("sigrok.csv", CaptureChoice::default());
    assert_eq!(
        (reading.format, reading.channels.as_slice()),
        ("sigrok CSV", &["CLK".to_owned(), "GND".to_owned()][..])
    );
    assert_eq!((reading.capture.edges.len(), reading.capture.resolution_ns), (40, 100_000));
    let wave = judge(&reading.capture, None);
    close(wave.frequency_hz, 1_000.0);
    close(wave.duty, 0.3);
    let timed = judge(&read("times.csv", CaptureChoice::default()).capture, None);
    close(timed.frequency_hz, 4_000.0);
    close(timed.duty, 0.4);
}

#[test]
fn one_of_several_channels_is_chosen() {
    let several = instrument::read(&bytes("two.vcd"), CaptureChoice::default());
    let there = vec!["first (100 edges)".to_owned(), "second (50 edges)".to_owned()];
    assert_eq!(several, Err(Unreadable::Several { there }));
    let second =
        read("two.vcd", CaptureChoice { channel: Some("second"), ..CaptureChoice::default() });
    close(judge(&second.capture, None).frequency_hz, 5_000.0);
    let absent = CaptureChoice { channel: Some("third"), ..CaptureChoice::default() };
    let said = instrument::read(&bytes("two.vcd"), absent).expect_err("absent").to_string();
    assert_eq!(said, "it has no channel \"third\"; there are first, second");
}

#[test]
fn samples_without_a_rate_need_one() {
    let none = instrument::read(&bytes("rate.csv"), CaptureChoice::default());
    assert_eq!(none, Err(Unreadable::NoTimes));
    let given =
        read("rate.csv", CaptureChoice { samples_hz: Some(1e6), ..CaptureChoice::default() });
    assert_eq!(given.capture.edges.len(), 6);
    assert_eq!(instrument::read(b"hello\n", CaptureChoice::default()), Err(Unreadable::Format));
}

#[test]
fn a_broken_file_gives_findings_and_what_could_be_read() {
    let reading =
        read("broken.vcd", CaptureChoice { channel: Some("D0"), ..CaptureChoice::default() });
    for part in [
        "no time scale",
        "without a name",
        "goes backwards",
        "no variable declares",
        "within a section",
    ] {
        assert!(reading.findings.iter().any(|said| said.contains(part)), "{part}: {reading:?}");
    }
    let reading =
        read("broken.csv", CaptureChoice { channel: Some("D0"), ..CaptureChoice::default() });
    assert_eq!(reading.findings.len(), 4, "{:?}", reading.findings);
    assert_eq!(reading.findings[0], "line 7: \"1\" is not a valid sample: treated as a gap");
    assert_eq!(reading.capture.edges.len() + reading.capture.gaps.len(), 3, "{reading:?}");
}

/// Whatever was read can be judged and written, and is read back as it was.
fn sound(bytes: &[u8]) {
    for samples_hz in [None, Some(1e6)] {
        let Ok(reading) = instrument::read(bytes, CaptureChoice { channel: None, samples_hz })
        else {
            continue;
        };
        let capture = &reading.capture;
        assert!(capture.edges.is_sorted_by_key(|edge| edge.at_ns()));
        let _ = judge(capture, None);
        let _ = instrument::write_vcd(capture);
    }
}

#[test]
fn the_corpus_is_read_cut_at_every_byte() {
    for entry in fs::read_dir(corpus()).expect("a corpus").flatten() {
        let bytes = fs::read(entry.path()).expect("readable");
        let step = (bytes.len() / 200).max(1);
        (0..=bytes.len()).step_by(step).for_each(|end| sound(&bytes[..end]));
    }
}

/// A capture with edges and gaps that don't overlap.
fn captures() -> impl Strategy<Value = Capture> {
    let steps = proptest::collection::vec((1_u64..1_000_000, 0_u8..8), 1..200);
    (steps, 0_u64..1_000_000, any::<bool>()).prop_map(|(steps, start_ns, first)| {
        let (mut at_ns, mut level) = (start_ns, first);
        let (mut edges, mut gaps) = (Vec::new(), Vec::new());
        for (step, kind) in steps {
            at_ns += step;
            match kind {
                0 | 1 => {
                    let moved = step % 2 == 1;
                    level ^= moved;
                    gaps.push(Gap { start_ns: at_ns, end_ns: at_ns + step, moved });
                    at_ns += step;
                }
                _ => {
                    level = !level;
                    edges.push(Edge::new(at_ns, level));
                }
            }
        }
        Capture {
            line: "memory:x".to_owned(),
            start_ns,
            end_ns: at_ns + 1,
            resolution_ns: 240,
            starts_high: edges.is_empty().then_some(false),
            made: Some(edges.len() as u64),
            made_in_gaps: Some(0),
            edges,
            gaps,
            is_full: false,
        }
    })
}

/// The fuzzer found a header of `$var wire 1 ! $end`: the file could not be read back.
#[test]
fn a_capture_without_a_name_is_written_and_read_back() {
    for (line, read_back) in [("", "line"), ("$end", "_end"), ("a b", "a_b")] {
        let edges =
            [(1_000, true), (2_000, false), (3_000, true)].map(|(ns, up)| Edge::new(ns, up));
        let capture = Capture {
            line: line.to_owned(),
            start_ns: 0,
            end_ns: 4_000,
            resolution_ns: 1,
            starts_high: None,
            edges: edges.to_vec(),
            gaps: Vec::new(),
            // A scope of several lines can't tell how many were in gaps. That was read back as none.
            made: Some(9),
            made_in_gaps: None,
            is_full: false,
        };
        let written = instrument::write_vcd(&capture);
        let again =
            instrument::read(written.as_bytes(), CaptureChoice::default()).expect(&written).capture;
        assert_eq!((again.line.as_str(), &again.edges), (read_back, &capture.edges));
        assert_eq!((again.made, again.made_in_gaps), (Some(9), None));
    }
}

/// The fuzzer found an edge before the capture's start, which was not read back.
#[test]
fn changes_before_the_first_instant_are_no_edges() {
    let text = "$timescale 1 us $end\n$var wire 1 ! a $end\n$enddefinitions $end\n0! 1! #7 0! #9 1!\n#12\n";
    let capture =
        instrument::read(text.as_bytes(), CaptureChoice::default()).expect("read").capture;
    assert_eq!(capture.start_ns, 7_000);
    assert_eq!(capture.edges, [Edge::new(7_000, false), Edge::new(9_000, true)]);
    let written = instrument::write_vcd(&capture);
    let again =
        instrument::read(written.as_bytes(), CaptureChoice::default()).expect("read").capture;
    assert_eq!(again.edges, capture.edges);
}

#[test]
fn a_channel_s_name_is_printable() {
    let text = "$timescale 1 us $end\n$var wire 1 ! a\u{1b}[2J $end\n$enddefinitions $end\n#0 0!\n#5 1!\n#9 0!\n";
    let reading = instrument::read(text.as_bytes(), CaptureChoice::default()).expect("read");
    assert_eq!(reading.capture.line, "a\\u001b[2J");
}

proptest! {
    #[test]
    fn a_capture_is_written_and_read_back(capture in captures()) {
        let text = instrument::write_vcd(&capture);
        let reading = instrument::read(text.as_bytes(), CaptureChoice::default()).expect("ours");
        prop_assert_eq!(reading.findings, [""; 0]);
        prop_assert_eq!(reading.capture, capture);
    }

    #[test]
    fn no_bytes_make_it_panic(words in proptest::collection::vec(
        prop_oneof![
            Just("$timescale 1 us $end\n"), Just("$var wire 1 ! a $end\n"), Just("#5\n"), Just("#3 1!\n"),
            Just("0!\n"), Just("x!\n"), Just("b1 !\n"), Just("$comment rtscope-capture made=9 $end\n"),
            Just("; CSV\n"), Just("META samplerate: 3\n"), Just("0,1\n"), Just("1,0\n"), Just("Time,a\n"),
            Just("1e300,1\n"), Just("-5,1\n"), Just("$end\n"), Just("#99999999999\n"), Just("é,\u{0}\n"),
        ], 0..40)) {
        sound(words.concat().as_bytes());
    }
}
