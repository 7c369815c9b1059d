//! A job's definition: what a server that isn't ours asks for. Nothing of it is run here, and nothing of it names a file here.
//!
//! The fields are those of `config/runtime/base/pull_labs.jinja2` of kernelci-core.

use std::collections::BTreeMap;

use rtscope_model::printable::make_printable;
use serde_json::Value;

use super::http::check_address;

/// Tests of a job. More are a mistake.
const TESTS_MAX: usize = 64;

/// Characters of a name.
const NAME_MAX: usize = 128;

/// Commands of a test, and other lists.
const LIST_MAX: usize = 256;

/// A job as its definition says it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct JobDefinition {
    /// Addresses by the kind of file, as `kernel` or `modules`.
    pub artifacts: BTreeMap<String, String>,
    /// SHA-256 of some of them, in small letters.
    pub sha256: BTreeMap<String, String>,
    pub tests: Vec<JobTest>,
    /// The kernel's name of the architecture; empty where it isn't said.
    pub arch: String,
}

/// A test that a job asks for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct JobTest {
    pub id: String,
    pub kind: String,
    /// Tests that must pass before it.
    pub depends: Vec<String>,
    pub timeout_s: Option<u64>,
    /// Names and values; a name may be there several times.
    pub parameters: Vec<(String, String)>,
    /// What it asks for that no test of ours can do, as the end of a sentence.
    pub beyond: Vec<String>,
}

impl JobDefinition {
    /// Takes a document apart.
    ///
    /// # Errors
    ///
    /// What is wrong with it, in one line.
    pub fn parse(mut document: Value) -> Result<JobDefinition, String> {
        make_printable(&mut document);
        if !document.is_object() {
            return Err("the job's definition is not an object".to_owned());
        }
        let mut artifacts = BTreeMap::new();
        for (name, address) in document["artifacts"].as_object().into_iter().flatten() {
            let Some(address) = address.as_str() else { continue };
            check_address(address).map_err(|why| format!("artifact {name}: {why}"))?;
            artifacts.insert(name.clone(), address.to_owned());
        }
        let sums = document["integrity"]["sha256"].as_object().into_iter().flatten();
        // The template writes a comment there where it knows none.
        let sha256 = sums
            .filter_map(|(name, sum)| Some((name.clone(), sum.as_str()?.to_ascii_lowercase())))
            .filter(|(_, sum)| sum.len() == 64 && sum.bytes().all(|c| c.is_ascii_hexdigit()))
            .collect();
        let tests = document["tests"].as_array().map(Vec::as_slice).unwrap_or_default();
        if tests.is_empty() || tests.len() > TESTS_MAX {
            let count = tests.len();
            return Err(format!("the job has {count} tests: at least 1 and at most {TESTS_MAX}"));
        }
        let tests = tests.iter().map(JobTest::parse).collect::<Result<Vec<_>, _>>()?;
        for (at, test) in tests.iter().enumerate() {
            if tests[..at].iter().any(|other| other.id == test.id) {
                return Err(format!("two tests of the job have the id {}", test.id));
            }
        }
        let arch = document["environment"]["arch"].as_str().unwrap_or_default();
        Ok(JobDefinition { artifacts, sha256, tests, arch: arch.to_owned() })
    }
}

impl JobTest {
    fn parse(value: &Value) -> Result<JobTest, String> {
        let name = |key: &str| {
            let text =
                value[key].as_str().ok_or_else(|| format!("a test of the job has no {key}"))?;
            check_name(text).map_err(|why| format!("the {key} {text:?} of a test {why}"))?;
            Ok::<_, String>(text.to_owned())
        };
        let (id, kind) = (name("id")?, name("type")?);
        let mut beyond = Vec::new();
        for (key, what) in [
            ("pre-commands", "commands before it"),
            ("post-commands", "commands after it"),
            ("subset", "a subset of its cases"),
        ] {
            if is_asked(&value[key]) {
                beyond.push(format!("{what} ({key})"));
            }
        }
        let depends = value["depends"].as_array().into_iter().flatten().take(LIST_MAX);
        Ok(JobTest {
            parameters: parameters(&value["parameters"])
                .map_err(|why| format!("the parameters of the test {id}: {why}"))?,
            depends: depends.filter_map(|one| one.as_str().map(str::to_owned)).collect(),
            timeout_s: value["timeout_s"].as_u64(),
            id,
            kind,
            beyond,
        })
    }
}

/// Whether a field asks for anything.
fn is_asked(value: &Value) -> bool {
    match value {
        Value::Null => false,
        Value::Array(list) => !list.is_empty(),
        Value::String(text) => !text.trim().is_empty(),
        Value::Object(map) => !map.is_empty(),
        Value::Bool(_) | Value::Number(_) => true,
    }
}

/// Names of tests go into documents for others; they name no files.
fn check_name(text: &str) -> Result<(), String> {
    let is_good = |c: char| c.is_ascii_alphanumeric() || "._-:+/".contains(c);
    if text.is_empty() || text.len() > NAME_MAX || !text.chars().all(is_good) {
        return Err(format!(
            "must have 1 to {NAME_MAX} characters: letters, digits and ._-:+/ only"
        ));
    }
    Ok(())
}

/// The template writes a text such as `tst_cmd=cyclictest workers=2`; an object is taken too.
fn parameters(value: &Value) -> Result<Vec<(String, String)>, String> {
    let mut found = Vec::new();
    match value {
        Value::Null => {}
        Value::String(text) => {
            for word in text.split_whitespace() {
                let (name, value) =
                    word.split_once('=').ok_or_else(|| format!("{word:?} has no '='"))?;
                found.push((name.to_lowercase(), value.to_owned()));
            }
        }
        Value::Object(map) => {
            for (name, value) in map {
                let values =
                    value.as_array().map_or_else(|| vec![value], |list| list.iter().collect());
                for value in values {
                    let text = match value {
                        Value::String(text) => text.clone(),
                        Value::Number(_) | Value::Bool(_) => value.to_string(),
                        _ => {
                            return Err(format!(
                                "the value of {name} must be a text, a number or a boolean"
                            ));
                        }
                    };
                    found.push((name.to_lowercase(), text));
                }
            }
        }
        _ => return Err("they are neither a text nor an object".to_owned()),
    }
    if found.len() > LIST_MAX {
        return Err(format!("there are more than {LIST_MAX}"));
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn job() -> Value {
        json!({
            "artifacts": {
                "kernel": "https://files.example/k/bzImage",
                "modules": "https://files.example/k/modules.tar.xz",
            },
            "tests": [
                { "id": "boot-test-6870c1b2", "type": "boot", "depends": [], "timeout_s": 600,
                  "pre-commands": [], "post-commands": [] },
                { "id": "rt", "type": "rt-tests", "depends": ["boot-test-6870c1b2"], "timeout_s": 60,
                  "parameters": "tst_cmd=cyclictest MAX_LATENCY=200",
                  "pre-commands": ["echo 1"], "post-commands": [] },
            ],
            "environment": { "platform": "qemu-x86", "arch": "x86_64",
                             "console": { "method": "serial", "baud": 115_200 } },
            "callback": { "url": "https://api.example/node/1", "token_name": "t" },
            "integrity": { "sha256": {
                "kernel": "ABCDEF0123456789abcdef0123456789abcdef0123456789abcdef0123456789",
                "_comment": "Checksums would be here" } },
        })
    }

    #[test]
    fn a_definition_of_the_template_is_read() {
        let found = JobDefinition::parse(job()).expect("a job");
        assert_eq!(found.artifacts["kernel"], "https://files.example/k/bzImage");
        assert_eq!(found.arch, "x86_64");
        assert_eq!(found.sha256.len(), 1);
        assert!(found.sha256["kernel"].starts_with("abcdef01"));
        let [boot, rt] = found.tests.as_slice() else { panic!("{found:?}") };
        assert_eq!((boot.kind.as_str(), boot.timeout_s), ("boot", Some(600)));
        assert!(boot.beyond.is_empty() && boot.parameters.is_empty());
        assert_eq!(rt.depends, ["boot-test-6870c1b2"]);
        let named = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        assert_eq!(rt.parameters, [named("tst_cmd", "cyclictest"), named("max_latency", "200")]);
        assert_eq!(rt.beyond, ["commands before it (pre-commands)"]);
    }

    #[test]
    fn a_definition_that_makes_no_sense_is_refused_with_the_reason() {
        let said = |change: &dyn Fn(&mut Value)| {
            let mut changed = job();
            change(&mut changed);
            JobDefinition::parse(changed).expect_err("no job")
        };
        assert!(said(&|job| *job = json!([1])).contains("not an object"));
        assert!(said(&|job| job["tests"] = json!([])).contains("0 tests"));
        assert!(said(&|job| job["tests"] = json!(vec![json!({}); 65])).contains("65 tests"));
        assert!(said(&|job| job["tests"][0]["id"] = Value::Null).contains("no id"));
        assert!(said(&|job| job["tests"][0]["id"] = json!("a\u{1b}[2J")).contains("characters"));
        assert!(said(&|job| job["tests"][0]["id"] = json!("rt")).contains("two tests"));
        assert!(said(&|job| job["tests"][1]["parameters"] = json!("x")).contains("no '='"));
        let kernel = said(&|job| job["artifacts"]["kernel"] = json!("file:///etc/shadow"));
        assert!(kernel.contains("artifact kernel") && kernel.contains("HTTP"), "{kernel}");
        let mut changed = job();
        changed["tests"][1]["parameters"] =
            json!({ "require": ["max < 200us", "missed = 0"], "n": 2 });
        let found = JobDefinition::parse(changed).expect("a job");
        assert_eq!(found.tests[1].parameters.len(), 3);
    }

    proptest! {
        #[test]
        fn nothing_that_is_json_makes_it_panic(text in "[\\[\\]{}:,\"a-z0-9. -]{0,200}") {
            if let Ok(document) = serde_json::from_str(&text) {
                let _ = JobDefinition::parse(document);
            }
        }
    }
}
