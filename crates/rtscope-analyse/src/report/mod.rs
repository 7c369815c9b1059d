//! The judgement as text and as pages for people.

pub mod check;
pub mod compare;
pub mod compare_lab;
pub mod doctor;
pub mod drift;
pub mod explain;
pub mod explain_lab;
pub mod fleet;
pub mod fleet_compare;
pub mod html;
pub mod interruptions;
pub mod lab;
#[cfg(test)]
mod machine_use_tests;
pub mod published;
pub mod sched;
pub mod stat;
pub mod terminal;
pub mod throughput;
pub mod trials;
pub mod tune;
pub mod wave;
pub mod worst_lab;

/// A document of plain fields as JSON, without a character that could end a script element or start a comment in one.
pub(crate) fn harmless_json(document: &impl serde::Serialize) -> String {
    let json = serde_json::to_string(document).expect("plain fields");
    json.replace('<', "\\u003c")
        .replace('>', "\\u003e")
        .replace('&', "\\u0026")
        .replace('\u{2028}', "\\u2028")
        .replace('\u{2029}', "\\u2029")
}
