//! KernelCI: the jobs that its server offers, and the documents for its database.

use rtscope_analyse::{
    export::{Exported, FORMATS},
    judge,
};
use rtscope_fleet::pull_lab::{
    api,
    definition::{JobDefinition, JobTest},
    outcome::{JobOutcome, PullStatus, TestOutcome},
};
use rtscope_model::record::Record;
use serde_json::Value;

use super::{files, parts, pipe};

/// Reads bytes as answers of KernelCI's server, each under a line `== NAME`, and writes what came of a job.
///
/// # Panics
///
/// When a text has characters that a terminal obeys, or the document doesn't fit KCIDB's schema.
pub fn pull_lab(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    for (name, content) in parts(&text) {
        match name {
            "events" => events(content),
            "job" => job(content),
            "times" => times(content),
            _ => {}
        }
    }
}

fn events(text: &str) {
    let Ok(events) = serde_json::from_str(text) else { return };
    let Ok(page) = api::page_of(events, "mine", &[]) else { return };
    for job in &page.jobs {
        assert!(api::is_node_id(&job.node));
        pipe::check_text(&job.definition);
    }
    // The next request has it in its address.
    let is_word = |last: &String| !last.contains([' ', '&', '#', '\n']);
    assert!(page.last.as_ref().is_none_or(is_word), "{page:?}");
}

fn times(text: &str) {
    let (one, other) = text.split_once('\n').unwrap_or((text, ""));
    if api::is_time(one) && api::is_time(other) {
        assert!(!(api::is_later(one, other) && api::is_later(other, one)));
        let earlier = api::earlier(one, 10);
        assert!(api::is_time(&earlier) && !api::is_later(&earlier, one), "{one:?} {earlier:?}");
    }
}

fn job(text: &str) {
    let Ok(document) = serde_json::from_str(text) else { return };
    let job = match JobDefinition::parse(document) {
        Ok(job) => job,
        Err(why) => return pipe::check_text(&why),
    };
    let plain = |test: &JobTest| {
        TestOutcome::plain(&test.id, &test.kind, PullStatus::Skip, test.beyond.join(", "))
    };
    let tests = job.tests.iter().map(plain);
    let outcome = JobOutcome { tests: tests.collect(), build: None };
    pipe::check_text(&outcome.error().1);
    check_document(&outcome.document("mine", "node"));
}

/// Reads bytes as a record, judges it and writes it for KCIDB.
///
/// # Panics
///
/// When the document doesn't fit the schema.
pub fn kcidb(bytes: &[u8]) {
    if let Ok(record) = Record::read(&files(bytes)) {
        let format = FORMATS.iter().find(|format| format.name == "kcidb").expect("a format");
        let judgement = judge(&record, &[]);
        let subject = Exported::new(&record, &judgement, None).expect("all cells");
        // A record that doesn't say which kernel it is of has no document.
        if let Ok(written) = format.write(&subject) {
            check_document(&serde_json::from_slice(&written).expect("a document"));
        }
    }
}

/// What KCIDB's schema, version 5.3, says of the fields that are written (`kcidb_io.schema.v05_03`).
fn check_document(document: &Value) {
    assert_eq!(
        (&document["version"]["major"], &document["version"]["minor"]),
        (&5.into(), &3.into())
    );
    assert!(fields(document, &["version", "checkouts", "builds", "tests"], &["version"]));
    let rows = |name: &str| document[name].as_array().into_iter().flatten();
    for one in rows("checkouts") {
        assert!(fields(one, &["id", "origin"], &["id", "origin"]) && is_named(one), "{one}");
    }
    for one in rows("builds") {
        let needed = ["checkout_id", "id", "origin"];
        let known = ["checkout_id", "id", "origin", "comment", "architecture"];
        assert!(
            fields(one, &known, &needed) && is_named(one) && is_id(&one["checkout_id"]),
            "{one}"
        );
        assert!(is_small(one["architecture"].as_str().unwrap_or_default()), "{one}");
        assert!(is_text(&one["comment"]), "{one}");
    }
    rows("tests").for_each(check_test);
}

fn check_test(test: &Value) {
    let needed = ["build_id", "id", "origin"];
    let known = [
        "build_id",
        "id",
        "origin",
        "environment",
        "path",
        "comment",
        "log_url",
        "status",
        "number",
        "start_time",
        "duration",
        "output_files",
        "misc",
    ];
    assert!(fields(test, &known, &needed) && is_named(test) && is_id(&test["build_id"]), "{test}");
    assert!(
        is_path(test["path"].as_str().unwrap_or_default()) && is_text(&test["comment"]),
        "{test}"
    );
    let states = ["FAIL", "ERROR", "MISS", "PASS", "DONE", "SKIP"];
    assert!(states.contains(&test["status"].as_str().unwrap_or("SKIP")), "{test}");
    assert!(test.get("duration").is_none_or(Value::is_number), "{test}");
    let is_date = |at: &Value| {
        at.as_str().is_some_and(|at| at.len() >= 20 && at.find('-') == Some(4) && at.ends_with('Z'))
    };
    assert!(test.get("start_time").is_none_or(is_date), "{test}");
    if let Some(number) = test.get("number") {
        assert!(fields(number, &["value", "unit", "prefix"], &["value"]), "{test}");
        assert!(number["value"].is_number(), "{test}");
    }
    let Some(environment) = test.get("environment") else { return };
    assert!(fields(environment, &["compatible", "comment", "misc"], &[]), "{test}");
    for name in environment["compatible"].as_array().into_iter().flatten() {
        let is_part = |part: &str| !part.is_empty() && !part.contains([' ', '\0']);
        assert!(name.as_str().is_some_and(|name| name.split(',').all(is_part)), "{test}");
    }
}

/// Whether an object has no other fields than these, and all that are needed; none of them is null.
fn fields(object: &Value, known: &[&str], needed: &[&str]) -> bool {
    object.as_object().is_some_and(|map| {
        map.iter().all(|(name, value)| known.contains(&name.as_str()) && !value.is_null())
            && needed.iter().all(|name| map.contains_key(*name))
    })
}

fn is_small(text: &str) -> bool {
    text.bytes().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == b'_')
}

/// `^[a-z0-9_]+:[^\0]*$`
fn is_id(value: &Value) -> bool {
    let parts = value.as_str().and_then(|id| id.split_once(':'));
    parts.is_some_and(|(origin, rest)| {
        !origin.is_empty() && is_small(origin) && !rest.contains('\0')
    })
}

/// Whether the name and the origin of an object are good.
fn is_named(object: &Value) -> bool {
    let origin = object["origin"].as_str().unwrap_or_default();
    !origin.is_empty() && is_small(origin) && is_id(&object["id"])
}

fn is_text(value: &Value) -> bool {
    value.is_null() || value.as_str().is_some_and(|text| !text.contains('\0'))
}

/// `^([a-zA-Z0-9_-]+(\.[a-zA-Z0-9_-]+)*)?$`
fn is_path(text: &str) -> bool {
    let is_good = |c: u8| c.is_ascii_alphanumeric() || b"_-".contains(&c);
    text.is_empty() || text.split('.').all(|part| !part.is_empty() && part.bytes().all(is_good))
}
