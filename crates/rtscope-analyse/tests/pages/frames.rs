//! The section of the frames of a network run: its figures are those of the document, and its picture can be read. That
//! axe-core finds nothing there is a test of all pages.

use rtscope_analyse::{judge, verdict_document};
use rtscope_testing::{
    browser::{Browser, Theme},
    skip::skip,
};
use serde_json::Value;

use crate::{fixture, kinds};

/// The texts of all cells of a table of the section, row by row, without its head.
fn rows(browser: &mut Browser, caption: &str) -> Vec<Vec<String>> {
    let script = format!(
        "[...document.querySelectorAll('#frames table')].filter(one => one.caption.textContent.startsWith('{caption}'))\
         .flatMap(one => [...one.tBodies[0].rows].map(row => [...row.cells].map(cell => cell.innerText)))"
    );
    serde_json::from_value(browser.evaluate(&script)).expect("texts")
}

fn opened() -> Option<Browser> {
    let mut browser = Browser::start()?;
    let (name, page) = kinds::PAGES.iter().find(|(name, _)| *name == "page-network")?;
    browser.open(name, page);
    browser.show(400, Theme::Light);
    Some(browser)
}

#[test]
fn the_figures_of_frames_are_those_of_the_document() {
    let Some(mut browser) = opened() else {
        return skip("the_figures_of_frames_are_those_of_the_document", "without chromium");
    };
    let record = fixture::network().record();
    let document = verdict_document::document(&judge(&record, &[]), &record);
    let cells = document["cells"].as_array().expect("cells");
    let counts = rows(&mut browser, "What became");
    let parts = rows(&mut browser, "Parts of");
    assert_eq!((counts.len(), parts.len()), (2, 10), "two phases of five parts");
    for cell in cells {
        let frames = &cell["all"]["frames"];
        let name = cell["name"].as_str().expect("a name");
        let row = counts.iter().find(|row| row[0] == name).expect("a row");
        let shown: Vec<u64> = row[1..].iter().map(|text| whole(text)).collect();
        let keys = [
            "planned",
            "not_sent",
            "sent",
            "in_time",
            "late",
            "lost",
            "refused",
            "out_of_order",
            "duplicates",
            "strays",
        ];
        assert_eq!(shown, keys.map(|key| frames[key].as_u64().expect("a count")), "{name}");
        let own = parts.iter().filter(|row| row[0] == name);
        for (row, part) in own.zip(frames["parts"].as_array().expect("parts")) {
            assert_eq!(whole(&row[2]), part["count"].as_u64().expect("a count"), "{row:?}");
            let columns = ["min", "mean", "p50", "p99", "p99_9", "max"];
            for (text, key) in row[3..].iter().zip(columns) {
                assert_shows(text, &part[key], &format!("{key} of {row:?}"));
            }
        }
    }
}

fn whole(text: &str) -> u64 {
    text.replace(',', "").parse().unwrap_or_else(|_| panic!("{text:?} is not a count"))
}

/// A text in us shows a time in ns to the digits that it has.
fn assert_shows(text: &str, ns: &Value, what: &str) {
    let shown: f64 = text.replace(',', "").parse().unwrap_or_else(|_| panic!("{what}: {text:?}"));
    let digits = text.split_once('.').map_or(0, |(_, digits)| digits.len());
    let us = ns.as_f64().expect("a time") / 1e3;
    let unit = 10f64.powi(-(digits as i32));
    assert!((shown - us).abs() <= unit * 0.500_001, "{what}: {text} for {us} us");
    assert!(digits > 0 || us >= 100.0, "{what}: {text} has too few digits for {us} us");
}

#[test]
fn the_picture_of_the_parts_can_be_read_on_a_phone_and_aloud() {
    let test = "the_picture_of_the_parts_can_be_read_on_a_phone_and_aloud";
    let Some(mut browser) = opened() else { return skip(test, "without chromium") };
    let named = browser.evaluate(
        "(() => { const svg = document.querySelector('#frames svg[role=img]');\
         return svg.getAttribute('aria-labelledby').split(' ').map(id => document.getElementById(id).textContent); })()",
    );
    let named: Vec<String> = serde_json::from_value(named).expect("texts");
    assert!(
        named[0].contains("the longest part of the round trip is: drivers, wire and peer"),
        "{named:?}"
    );
    assert!(named[1].contains("One row a part"), "{named:?}");
    // All of it is on the screen of a phone without scrolling, in letters that can be read.
    let sheet = browser.evaluate(
        "(() => { const svg = document.querySelector('#frames svg[role=img]'), box = svg.getBoundingClientRect();\
         return [box.left, box.right, 11 * svg.getScreenCTM().a]; })()",
    );
    let [left, right, letter]: [f64; 3] = serde_json::from_value(sheet).expect("numbers");
    assert!(left >= 0.0 && right <= 400.0, "{left} to {right}");
    assert!(letter >= 7.9, "{letter} px");
    assert_eq!(browser.evaluate("document.documentElement.scrollWidth"), 400);
    let names = "[...document.querySelectorAll('#frames svg .text')].filter(one => {\
         const box = one.getBoundingClientRect(); return box.left >= 0 && box.right <= 400 && box.height >= 8; })\
         .map(one => one.textContent)";
    let names: Vec<String> = serde_json::from_value(browser.evaluate(names)).expect("texts");
    for part in ["wake-up", "send path", "drivers, wire, peer", "receive, wake-up", "round trip"] {
        assert_eq!(names.iter().filter(|name| *name == part).count(), 2, "{part}: {names:?}");
    }
}
