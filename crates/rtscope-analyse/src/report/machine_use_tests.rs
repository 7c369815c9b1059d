//! What is shown of the CPU time and the interrupts of a cell, in each document.

use super::{html::page, published};
use crate::{judge, statistics::machine_use::tests::run, verdict_document::document};

#[test]
fn page_json_and_published_figures_show_them() {
    let record = run().record();
    let judgement = judge(&record, &[]);
    let document = document(&judgement, &record);
    let cell = &document["cells"][1];
    assert_eq!(cell["cpu_time"][0]["cpu"], serde_json::Value::Null);
    assert_eq!(cell["cpu_time"][1]["cpu"], 0);
    assert!(
        cell["cpu_time"][1]["softirq"].as_f64().is_some_and(|share| (share - 0.8).abs() < 1e-6)
    );
    assert_eq!(cell["interrupts"][0]["line"], "24");
    assert_eq!(document["cells"][0]["cpu_time"].as_array().map(Vec::len), Some(0));
    let page = page(&record, &judgement);
    assert!(
        page.contains("busy left 0.0 % of CPU time idle and used 40.0 % as softirq time"),
        "{page}"
    );
    assert!(page.contains("eth0 &#60;b&#62;"), "names are escaped");
    let published: Vec<String> = published::of_run(&record, &judgement)
        .iter()
        .map(|one| format!("{} {}", one.name(), one.ours()))
        .collect();
    assert_eq!(published, ["busy, user 40%", "busy, softirq 40%", "busy, idle 0%"]);
}
