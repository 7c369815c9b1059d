use std::collections::BTreeMap;

use rtscope_model::record::Record;

use super::*;
use crate::{judge, plot::fixture, verdict_document::document};

fn page_of(record: &Record) -> String {
    page(record, &judge(record, &[]))
}

/// The text of a section.
fn section<'a>(page: &'a str, id: &str) -> &'a str {
    let start = page.find(&format!("<section id=\"{id}\"")).unwrap_or_else(|| panic!("no {id}"));
    let end = page[start..].find("</section>").expect("its end");
    &page[start..start + end]
}

fn records() -> Vec<(&'static str, Record)> {
    vec![
        ("typical", fixture::typical()),
        ("small", fixture::small()),
        ("empty", fixture::empty()),
        ("cut-short", fixture::cut_short()),
        ("hostile", fixture::hostile()),
        ("long", fixture::long(4_000)),
        ("one-cell", fixture::wide(1, 1)),
        ("wide", fixture::wide(20, 12)),
    ]
}

/// A page without what stands between these: the start stays.
fn without(page: &str, start: &str, end: &str) -> String {
    let mut parts = page.split(start);
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |text, part| {
        text + start + part.split_once(end).map_or("", |(_, after)| after)
    })
}

#[test]
fn the_page_looks_as_reviewed() {
    let mut page = page_of(&fixture::small());
    // Style and script are files of their own, plots and document have snapshots of their own.
    for (start, end) in [
        ("<style>", "</style>"),
        ("<script>", "</script>"),
        ("id=\"record\">", "</script>"),
        ("<svg xmlns", "</svg>"),
    ] {
        page = without(&page, start, end);
    }
    insta::assert_snapshot!(page);
}

#[test]
fn every_record_gives_a_whole_page() {
    for (name, record) in records() {
        let page = page_of(&record);
        for (id, _) in sections(&record, false, false) {
            assert!(section(&page, id).contains("<h"), "{name}: section {id} has no heading");
        }
        for kind in PlotKind::of_page(&record) {
            let section = section(&page, kind.name());
            assert!(section.contains("<svg "), "{name}: no plot in {kind}");
            let has_numbers = section.contains("<table>") || section.contains("Nothing to list.");
            assert!(has_numbers, "{name}: no table behind {kind}");
            assert!(section.contains("can&#39;t"), "{name}: {kind} doesn't say what it can't show");
        }
        assert!(!page.contains("NaN"), "{name}");
    }
}

#[test]
fn the_largest_page_is_still_one_that_opens() {
    let (record, judgement) = &*fixture::WIDEST;
    let page = page(record, judgement);
    assert!(page.len() < 4_000_000, "{} bytes", page.len());
    assert!(page.contains("To keep the page small, the figures of single threads"));
    assert!(section(&page, "figures").contains("cell 29, thread by thread"));
}

#[test]
fn every_element_is_closed() {
    for (name, record) in records() {
        let page = page_of(&record);
        // Elements of HTML that have no end, and texts that are not markup.
        let (_, body) = page.split_once("<body>").expect("a body");
        let (body, _) = body.split_once("<script>").expect("our script");
        let (before, rest) = body.split_once("<script type=\"application/json\"").expect("JSON");
        let (_, after) = rest.split_once("</script>").expect("its end");
        let markup = format!("{before}{}", after.replace("&shy;", ""));
        let whole = markup.rsplit_once("</section>").expect("a section").0.to_owned();
        let tail = "</section></main></div>";
        fixture::check_markup(&(whole + tail)).unwrap_or_else(|why| panic!("{name}: {why}"));
    }
}

#[test]
fn nothing_is_loaded_from_anywhere() {
    for (name, record) in records() {
        let page = page_of(&record).replace("xmlns=\"http://www.w3.org/2000/svg\"", "");
        for address in
            ["http://", "https://", "//cdn", " src=", "@import", "srcset", "<iframe", "<object"]
        {
            let shown = page.find(address).map(|at| &page[at.saturating_sub(60)..at + 60]);
            let escaped_only = name == "hostile" && address == " src=";
            assert!(shown.is_none() || escaped_only, "{name}: {address} in {shown:?}");
        }
        for link in page.split("href=\"").skip(1) {
            assert!(link.starts_with('#') || link.starts_with("data:,"), "{name}: {}", &link[..30]);
        }
        for link in page.split("url(").skip(1) {
            assert!(link.starts_with('#'), "{name}: {}", &link[..30]);
        }
    }
}

#[test]
fn hostile_names_stay_texts() {
    let page = page_of(&fixture::hostile());
    assert!(page.contains("alert(1)"), "the names are shown");
    for broken in ["<script>alert", "<img", "</title></svg>", "</script>\"'&"] {
        assert!(!page.contains(broken), "{broken}");
    }
    let scripts = page.matches("<script").count();
    assert_eq!((scripts, page.matches("</script").count()), (2, 2));
}

#[test]
fn the_json_block_is_what_the_command_line_prints() {
    for (name, record) in records() {
        let judgement = judge(&record, &[]);
        let page = page(&record, &judgement);
        let (_, rest) = page.split_once("id=\"record\">").expect("the block");
        let (json, _) = rest.split_once("</script>").expect("its end");
        let json: serde_json::Value = serde_json::from_str(json).expect("JSON");
        // Through a text, as the page: a float may lose its last bit on the way.
        let expected = document(&judgement, &record).to_string();
        let mut expected: serde_json::Value = serde_json::from_str(&expected).expect("JSON");
        if name == "wide" {
            let cells = expected["cells"].as_array_mut().expect("cells");
            cells.iter_mut().for_each(|cell| {
                cell.as_object_mut().expect("a cell").remove("cpus");
            });
        }
        assert_eq!(json["verdict"], expected, "{name}");
        for (cell, shown) in judgement.cells.iter().zip(json["histograms"].as_array().expect("all"))
        {
            let all = shown["rows"].as_array().and_then(|rows| rows.last()).expect("all threads");
            let bins: Vec<(u32, u64)> = serde_json::from_value(all["bins"].clone()).expect("bins");
            assert_eq!(bins, cell.all.histogram.bins(), "{name}");
        }
    }
}

#[test]
fn figures_reappear() {
    let record = fixture::typical();
    let page = page_of(&record);
    assert!(
        section(&page, "verdict").contains(
            "late by 53.2 us in rest before, 3.41 ms in message and 70.4 us in rest after"
        )
    );
    let figures = section(&page, "figures");
    assert!(
        figures.contains("<td>3,412</td><td>3</td><td>42.0<small>"),
        "what decides comes first"
    );
    assert!(figures.contains("<td>20,000</td><td>20,003</td><td>0</td></tr>"));
    assert!(section(&page, "figures").contains("corrected"));
    assert!(section(&page, "findings").contains("cpupower frequency-set -g performance"));
    assert!(section(&page, "provenance").contains("Every planned activation is accounted for"));
}

#[test]
fn what_was_seen_of_a_requirement_is_told_once() {
    let page = page_of(&fixture::typical());
    let verdict = section(&page, "verdict");
    assert!(
        verdict.contains("<li>1 of 6 requirements is not met: max &#60; 200us in message.</li>")
    );
    assert_eq!(verdict.matches("8 of 20,000 latencies were 200us or more").count(), 1);
    let facts = verdict.find("<dl class=\"facts\">").expect("facts");
    assert!(facts < verdict.find("class=\"tile").expect("tiles"), "host and kernel come first");
}

#[test]
fn the_pacing_of_network_cards_is_on_the_page() {
    use rtscope_model::environment::{InterruptPacing, NetworkCard};
    let mut record = fixture::typical();
    assert!(!page_of(&record).contains("network card"), "none is known");
    let pacing =
        InterruptPacing { receive_us: 50, receive_frames: 1, ..InterruptPacing::default() };
    let card = |name: &str, pacing| NetworkCard { name: name.to_owned(), driver: None, pacing };
    let before = record.before.as_mut().expect("an environment");
    before.network = vec![card("eth0", Some(pacing)), card("eth1", None)];
    let page = page_of(&record);
    let shown = section(&page, "environment");
    assert!(shown.contains("2 network cards") && shown.contains("50 us or 1 packet<"), "{shown}");
    assert!(shown.contains("0 us or 0 packets<"), "{shown}");
}

#[test]
fn what_changed_during_the_run_is_listed() {
    let mut record = fixture::small();
    let after = record.after.as_mut().expect("an environment");
    after.clock.current = Some("hpet".to_owned());
    after.memory.available_kib = Some(5);
    let page = page_of(&record);
    let environment = section(&page, "environment");
    assert!(environment.contains(">clock.current</th><td>tsc</td><td>hpet</td>"));
    assert!(!environment.contains("memory.available_kib"));
}

#[test]
fn of_the_kernels_configuration_only_what_touches_latency_is_on_the_page() {
    let mut record = fixture::small();
    let drivers = (0..2_000).map(|n| (format!("SND_CARD_{n}"), "m".to_owned()));
    let matters = [("PREEMPT_RT", "y"), ("HZ", "1000"), ("SMP", "y")];
    let matters = matters.map(|(option, value)| (option.to_owned(), value.to_owned()));
    let config: BTreeMap<String, String> = drivers.chain(matters).collect();
    let machines = record.before.iter_mut().chain(&mut record.after);
    machines.for_each(|found| found.kernel.config = config.clone());
    let page = page_of(&record);
    let environment = section(&page, "environment");
    assert!(environment.contains("3 options of the kernel&#39;s configuration that touch latency"));
    assert!(environment.contains(">PREEMPT_RT</th><td>y</td>"));
    assert!(environment.contains("2,000 others are not shown: see environment.before.json"));
    assert!(!page.contains("SND_CARD"));
}

#[test]
fn the_script_is_small_and_says_when_it_is_ready() {
    let script = include_str!("../template/script.js");
    assert!(script.len() < 13 * 1024, "{} bytes", script.len());
    assert!(script.trim_end().ends_with("document.documentElement.dataset.script = \"ready\";"));
}

#[test]
fn sentences_begin_and_end() {
    assert_eq!(sentence("the load stood still"), "The load stood still.");
    assert_eq!(sentence("p99.9 is 3 us"), "p99.9 is 3 us.");
    assert_eq!(sentence(""), "");
    assert_eq!(ended("why?"), "why?");
}
