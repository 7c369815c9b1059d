//! The parts of KCIDB's schema, version 5.3, that we fill. What isn't known is left out: nothing may be null.

use rtscope_model::verdict::Verdict;
use serde::Serialize;
use serde_json::{Map, Value, json};

#[derive(Debug, Serialize)]
pub(super) struct Document {
    pub(super) version: Version,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) checkouts: Vec<Checkout>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) builds: Vec<Build>,
    pub(super) tests: Vec<Test>,
}

#[derive(Debug, Serialize)]
pub(super) struct Version {
    pub(super) major: u32,
    pub(super) minor: u32,
}

/// Where the source of a build came from: which is not known here.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub(super) struct Checkout {
    pub(super) id: String,
    pub(super) origin: String,
}

#[derive(Debug, PartialEq, Eq, Serialize)]
pub(super) struct Build {
    pub(super) checkout_id: String,
    pub(super) id: String,
    pub(super) origin: String,
    pub(super) comment: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(super) architecture: String,
}

#[derive(Debug, Serialize)]
pub(super) struct Test {
    pub(super) id: String,
    pub(super) origin: String,
    pub(super) build_id: String,
    pub(super) path: String,
    pub(super) status: Status,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) number: Option<Number>,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(super) comment: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) start_time: Option<String>,
    /// In seconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) duration: Option<f64>,
    /// Where the kernel's messages are.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) log_url: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) output_files: Vec<OutputFile>,
    pub(super) environment: TestEnvironment,
    #[serde(skip_serializing_if = "Map::is_empty")]
    pub(super) misc: Map<String, Value>,
}

#[derive(Debug, Serialize)]
pub(super) struct OutputFile {
    pub(super) name: String,
    pub(super) url: String,
}

#[derive(Clone, Debug, Default, Serialize)]
pub(super) struct TestEnvironment {
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) compatible: Vec<String>,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(super) comment: String,
    #[serde(skip_serializing_if = "Map::is_empty")]
    pub(super) misc: Map<String, Value>,
}

/// As the schema words them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "UPPERCASE")]
pub(super) enum Status {
    /// A requirement is not met.
    Fail,
    /// It began, and did not come to its end.
    Error,
    /// It never began.
    Miss,
    /// Each requirement is met.
    Pass,
    /// It came to its end, and says nothing about the kernel: no requirement, or no answer.
    Done,
}

/// How far something came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reached {
    NeverBegan,
    WasCut,
    Complete,
}

impl Status {
    /// What was seen to fail has failed, and what is seen as a pass has passed, however it ended.
    pub(super) fn of(verdict: Option<Verdict>, reached: Reached) -> Status {
        match (verdict, reached) {
            (Some(Verdict::Fail), _) => Status::Fail,
            (Some(Verdict::Pass), _) => Status::Pass,
            (_, Reached::Complete) => Status::Done,
            (_, Reached::WasCut) => Status::Error,
            (_, Reached::NeverBegan) => Status::Miss,
        }
    }
}

/// A figure; readers choose the prefix of its unit. A count has no unit.
#[derive(Debug, Serialize)]
pub(super) struct Number {
    pub(super) value: Value,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) unit: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) prefix: Option<&'static str>,
}

impl Number {
    pub(super) fn seconds(ns: u64) -> Number {
        Number { value: json!(seconds(ns)), unit: Some("s"), prefix: Some("metric") }
    }

    pub(super) fn count(count: u64) -> Number {
        Number { value: json!(count), unit: None, prefix: None }
    }
}

pub(super) fn seconds(ns: u64) -> f64 {
    ns as f64 / 1e9
}
