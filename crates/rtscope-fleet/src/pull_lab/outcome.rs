//! What came of a job: the result of its node, and the document for KCIDB.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

/// The state of a test, in the words of the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PullStatus {
    Pass,
    Fail,
    Skip,
    Error,
}

/// What came of a test of a job.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TestOutcome {
    /// The job's name for it.
    pub id: String,
    /// Its path in KCIDB.
    pub path: String,
    pub status: PullStatus,
    /// A sentence for whoever asks why.
    pub why: String,
    /// KernelCI's word for a failure that isn't the kernel's.
    pub code: Option<String>,
    /// Whether it ran to its end and can't answer.
    pub is_inconclusive: bool,
    /// Whether it has figures and nothing was required of them.
    pub is_measured: bool,
    /// Rows of the record, as `rtscope export` writes them for KCIDB.
    pub rows: Vec<Value>,
}

impl TestOutcome {
    /// One without a record.
    #[must_use]
    pub fn plain(id: &str, path: &str, status: PullStatus, why: String) -> TestOutcome {
        TestOutcome {
            id: id.to_owned(),
            path: path.to_owned(),
            status,
            why,
            code: None,
            is_inconclusive: false,
            is_measured: false,
            rows: Vec::new(),
        }
    }

    /// KCIDB's word for its state.
    fn kcidb_status(&self) -> &'static str {
        match self.status {
            _ if self.is_inconclusive || self.is_measured => "DONE",
            PullStatus::Pass => "PASS",
            PullStatus::Fail => "FAIL",
            PullStatus::Skip => "SKIP",
            PullStatus::Error => "ERROR",
        }
    }
}

/// What came of a job.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct JobOutcome {
    pub tests: Vec<TestOutcome>,
    /// The kernel build that was tested, by KernelCI's name for it.
    pub build: Option<String>,
}

impl JobOutcome {
    /// Of a job that no test could be run of.
    #[must_use]
    pub fn failed(code: &str, why: String) -> JobOutcome {
        let mut test = TestOutcome::plain("job", "rtscope.job", PullStatus::Error, why);
        test.code = Some(code.to_owned());
        JobOutcome { tests: vec![test], build: None }
    }

    fn has(&self, status: PullStatus) -> bool {
        self.tests.iter().any(|test| test.status == status)
    }

    /// The result of the job's node: a failure counts most, and one that passes is needed for a pass.
    #[must_use]
    pub fn result(&self) -> &'static str {
        if self.has(PullStatus::Fail) {
            "fail"
        } else if self.has(PullStatus::Error) || self.tests.is_empty() {
            "incomplete"
        } else if self.has(PullStatus::Pass) {
            "pass"
        } else {
            "skip"
        }
    }

    /// KernelCI's word for a failure that isn't the kernel's, if that is the result; and the sentences that say why the result
    /// is no pass.
    #[must_use]
    pub fn error(&self) -> (Option<&str>, String) {
        let worst = match self.result() {
            "pass" => return (None, String::new()),
            "fail" => PullStatus::Fail,
            "skip" => PullStatus::Skip,
            _ => PullStatus::Error,
        };
        let tests = || self.tests.iter().filter(move |test| test.status == worst);
        let code = (worst == PullStatus::Error)
            .then(|| tests().find_map(|test| test.code.as_deref()).unwrap_or("Infrastructure"));
        let said: Vec<String> = tests().map(|test| format!("{}: {}", test.id, test.why)).collect();
        let mut said = said.join("; ");
        if let Some((at, _)) = said.char_indices().nth(WHY_MAX) {
            said.truncate(at);
            said += "...";
        }
        (code, said)
    }

    /// The document for KCIDB: a test for each test of the job, and for each figure of its records. It is the same whenever
    /// it is made, and so are the names of its tests.
    #[must_use]
    pub fn document(&self, origin: &str, node: &str) -> Value {
        let unknown = format!("{origin}:unknown_{node}");
        let build = self.build.as_deref().unwrap_or(&unknown);
        let mut tests = Vec::new();
        for (at, test) in self.tests.iter().enumerate() {
            let id = format!("{origin}:{node}.{at}");
            let mut misc = json!({ "kernelci_node_id": node, "kernelci_test_id": test.id });
            if test.is_inconclusive {
                misc["inconclusive"] = json!([test.why]);
            }
            let mut row = json!({
                "id": id, "origin": origin, "build_id": build, "path": kcidb_path(&test.path),
                "status": test.kcidb_status(), "comment": test.why, "misc": misc,
            });
            for field in ["environment", "log_url", "output_files"] {
                let found = test.rows.first().and_then(|of_run| of_run.get(field));
                found.into_iter().for_each(|value| row[field] = value.clone());
            }
            tests.push(row);
            tests.extend(test.rows.iter().filter_map(|row| of_record(row, &id, node, build)));
        }
        json!({ "version": { "major": 5, "minor": 3 }, "tests": tests })
    }
}

/// A row of a record under a name of the job: two tests of a job may have the same record.
fn of_record(row: &Value, id: &str, node: &str, build: &str) -> Option<Value> {
    let mut row: Map<String, Value> = row.as_object()?.clone();
    let path = row.get("path")?.as_str()?.to_owned();
    row.insert("id".to_owned(), json!(format!("{id}.{path}")));
    row.insert("build_id".to_owned(), json!(build));
    let misc = row.entry("misc").or_insert_with(|| json!({}));
    misc["kernelci_node_id"] = json!(node);
    Some(Value::Object(row))
}

/// Characters of the sentences of a node.
const WHY_MAX: usize = 1000;

/// A path that KCIDB takes: parts of letters, digits, `_` and `-`, with dots between them.
#[must_use]
pub fn kcidb_path(text: &str) -> String {
    let is_good = |c: char| c.is_ascii_alphanumeric() || "_-".contains(c);
    let parts = text.split(['.', '/', ':']).filter(|part| !part.is_empty());
    let parts: Vec<String> = parts
        .map(|part| part.chars().map(|c| if is_good(c) { c } else { '-' }).collect())
        .collect();
    if parts.is_empty() { "rtscope.job".to_owned() } else { parts.join(".") }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcome(states: &[PullStatus]) -> JobOutcome {
        let test = |(at, status): (usize, &PullStatus)| {
            TestOutcome::plain(&format!("t{at}"), "a b/c..d", *status, format!("why {at}"))
        };
        JobOutcome { tests: states.iter().enumerate().map(test).collect(), build: None }
    }

    #[test]
    fn a_node_fails_before_it_is_incomplete_and_passes_only_with_a_pass() {
        use PullStatus::{Error, Fail, Pass, Skip};
        for (states, result) in [
            (&[Pass, Skip][..], "pass"),
            (&[Pass, Error], "incomplete"),
            (&[Error, Fail, Pass], "fail"),
            (&[Skip, Skip], "skip"),
            (&[], "incomplete"),
        ] {
            assert_eq!(outcome(states).result(), result, "{states:?}");
        }
        assert_eq!(outcome(&[Pass]).error(), (None, String::new()));
        assert_eq!(outcome(&[Skip, Fail]).error(), (None, "t1: why 1".to_owned()));
        let mut both = outcome(&[Error, Error]);
        assert_eq!(both.error().0, Some("Infrastructure"));
        both.tests[1].code = Some("Test".to_owned());
        assert_eq!(both.error(), (Some("Test"), "t0: why 0; t1: why 1".to_owned()));
        let failed = JobOutcome::failed("invalid_job_params", "no tests".to_owned());
        assert_eq!(failed.result(), "incomplete");
        assert_eq!(failed.error(), (Some("invalid_job_params"), "job: no tests".to_owned()));
    }

    #[test]
    fn the_document_names_each_test_once() {
        let mut both = outcome(&[PullStatus::Pass, PullStatus::Error]);
        both.build = Some("maestro:68".to_owned());
        let row = json!({ "id": "x:same", "path": "rtscope.p.rest.max", "origin": "lab",
                          "build_id": "lab:0", "status": "DONE", "environment": { "comment": "m" } });
        both.tests[0].rows = vec![row.clone()];
        both.tests[1].rows = vec![row];
        both.tests[1].is_inconclusive = true;
        let document = both.document("lab", "6870c1b2");
        let tests = document["tests"].as_array().expect("tests");
        let ids: Vec<&str> = tests.iter().filter_map(|test| test["id"].as_str()).collect();
        assert_eq!(
            ids,
            [
                "lab:6870c1b2.0",
                "lab:6870c1b2.0.rtscope.p.rest.max",
                "lab:6870c1b2.1",
                "lab:6870c1b2.1.rtscope.p.rest.max"
            ]
        );
        assert!(tests.iter().all(|test| test["build_id"] == "maestro:68"));
        assert!(tests.iter().all(|test| test["misc"]["kernelci_node_id"] == "6870c1b2"));
        assert_eq!((&tests[0]["status"], &tests[2]["status"]), (&json!("PASS"), &json!("DONE")));
        assert_eq!(tests[2]["misc"]["inconclusive"], json!(["why 1"]));
        assert_eq!(tests[0]["path"], "a-b.c.d");
        assert_eq!(tests[0]["environment"]["comment"], "m");
        assert_eq!(kcidb_path("..\u{e4}"), "-");
        assert_eq!(kcidb_path("//"), "rtscope.job");
    }
}
