//! KernelCI's API as a pull lab sees it: events, and the nodes of its jobs.

use rtscope_model::printable::make_printable;
use serde_json::{Map, Value, json};

use super::{
    http::{Curl, HttpFailure},
    token::ServerToken,
};

/// Events of one request: the most that the API gives with their nodes.
pub const EVENTS_MAX: usize = 1000;

/// Before the first event.
pub const BEGINNING: &str = "1970-01-01T00:00:00.000000";

const EVENTS_BYTES: u64 = 128 << 20;
const NODE_BYTES: u64 = 8 << 20;

/// Nodes between a job and its build.
const ANCESTORS: usize = 8;

/// Fields of a node that the API keeps itself: a node that is put back must not have them.
const READ_ONLY: [&str; 12] = [
    "id",
    "_id",
    "created",
    "updated",
    "user",
    "user_groups",
    "owner",
    "submitter",
    "treeid",
    "processed_by_kcidb_bridge",
    "retry_counter",
    "timeout",
];

#[expect(missing_debug_implementations, reason = "holds a function, which shows nothing")]
pub struct KernelCiApi<'a> {
    /// Up to its version, as `https://api.example/latest`.
    pub address: &'a str,
    pub token: &'a ServerToken,
    pub curl: Curl<'a>,
}

/// A job that became available.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobEvent {
    pub node: String,
    /// Address of the job's definition.
    pub definition: String,
}

/// What a request for events brought.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EventPage {
    /// The jobs for this lab, in their order.
    pub jobs: Vec<JobEvent>,
    /// When the last event of all was.
    pub last: Option<String>,
    /// Whether there may be more.
    pub is_full: bool,
}

impl KernelCiApi<'_> {
    /// Job nodes that became available after a time: those of a runtime and, if any are named, of some platforms.
    ///
    /// # Errors
    ///
    /// The API doesn't answer, or not with a list.
    pub fn events(
        &self,
        after: &str,
        runtime: &str,
        platforms: &[String],
    ) -> Result<EventPage, HttpFailure> {
        let base = self.address.trim_end_matches('/');
        let after = after.replace('+', "%2B");
        let address = format!(
            "{base}/events?state=available&kind=job&recursive=true&limit={EVENTS_MAX}&from={after}"
        );
        page_of(self.curl.get(&address, Some(self.token), EVENTS_BYTES)?, runtime, platforms)
    }

    /// A node as it is now.
    ///
    /// # Errors
    ///
    /// There is none, or the API doesn't answer.
    pub fn node(&self, id: &str) -> Result<Value, HttpFailure> {
        self.curl.get(&self.node_address(id), Some(self.token), NODE_BYTES)
    }

    fn node_address(&self, id: &str) -> String {
        format!("{}/node/{id}", self.address.trim_end_matches('/'))
    }

    /// Writes that a job is ours.
    ///
    /// # Errors
    ///
    /// The API doesn't take it.
    pub fn claim(&self, id: &str, node: Value, claim: &str) -> Result<(), HttpFailure> {
        self.put(id, node, &[("job_id", json!(claim))], &[])
    }

    /// Ends a job's node with a result. `error` is KernelCI's word for a failure of the lab or of the job, and why the
    /// result is none of a test.
    ///
    /// # Errors
    ///
    /// The API doesn't take it.
    pub fn finish(
        &self,
        id: &str,
        node: Value,
        result: &str,
        error: (Option<&str>, &str),
    ) -> Result<(), HttpFailure> {
        let mut data = Vec::new();
        if let Some(code) = error.0 {
            data.push(("error_code", json!(code)));
        }
        if !error.1.is_empty() {
            data.push(("error_msg", json!(error.1)));
        }
        self.put(id, node, &data, &[("state", json!("done")), ("result", json!(result))])
    }

    fn put(
        &self,
        id: &str,
        node: Value,
        data: &[(&str, Value)],
        fields: &[(&str, Value)],
    ) -> Result<(), HttpFailure> {
        let node = changed(node, data, fields);
        let body = Value::Object(node).to_string();
        self.curl.send("PUT", &self.node_address(id), Some(self.token), body.as_bytes()).map(drop)
    }

    /// The kernel build that a job tests: the nearest ancestor that is one.
    ///
    /// # Errors
    ///
    /// The API doesn't answer.
    pub fn build(&self, job: &Value) -> Result<Option<Value>, HttpFailure> {
        let mut node = job.clone();
        for _ in 0..ANCESTORS {
            if node["kind"] == "kbuild" {
                return Ok(Some(node));
            }
            let Some(parent) = node["parent"].as_str().filter(|id| is_node_id(id)) else {
                return Ok(None);
            };
            node = self.node(parent)?;
        }
        Ok(None)
    }
}

/// A node with some fields changed, without those that the API keeps.
fn changed(node: Value, data: &[(&str, Value)], fields: &[(&str, Value)]) -> Map<String, Value> {
    let mut node = match node {
        Value::Object(node) => node,
        _ => Map::new(),
    };
    READ_ONLY.iter().for_each(|name| drop(node.remove(*name)));
    if !data.is_empty() {
        let of_node = node.entry("data").or_insert_with(|| json!({}));
        if !of_node.is_object() {
            *of_node = json!({});
        }
        data.iter().for_each(|(name, value)| of_node[*name] = value.clone());
    }
    fields.iter().for_each(|(name, value)| drop(node.insert((*name).to_owned(), value.clone())));
    node
}

/// Whether a text may be the name of a node: it becomes a part of addresses and the name of a folder.
#[must_use]
pub fn is_node_id(text: &str) -> bool {
    (1..=64).contains(&text.len()) && text.bytes().all(|c| c.is_ascii_alphanumeric())
}

/// What a list of events says.
///
/// # Errors
///
/// It is no list.
pub fn page_of(
    mut events: Value,
    runtime: &str,
    platforms: &[String],
) -> Result<EventPage, HttpFailure> {
    make_printable(&mut events);
    let Value::Array(events) = events else {
        return Err(HttpFailure::Unusable("the answer is not a list of events".to_owned()));
    };
    let mut page = EventPage { is_full: events.len() >= EVENTS_MAX, ..EventPage::default() };
    // More were not asked for.
    for event in events.iter().take(EVENTS_MAX) {
        if let Some(at) = event["timestamp"].as_str().filter(|at| is_time(at))
            && page.last.as_deref().is_none_or(|last| is_later(at, last))
        {
            page.last = Some(at.to_owned());
        }
        let node = &event["node"];
        let data = &node["data"];
        let is_ours = data["runtime"] == runtime
            && (platforms.is_empty()
                || platforms.iter().any(|platform| data["platform"] == *platform.as_str()));
        let (Some(id), Some(definition)) = (
            node["id"].as_str().or_else(|| event["data"]["id"].as_str()),
            node["artifacts"]["job_definition"].as_str(),
        ) else {
            continue;
        };
        if is_ours && is_node_id(id) && page.jobs.iter().all(|job| job.node != id) {
            page.jobs.push(JobEvent { node: id.to_owned(), definition: definition.to_owned() });
        }
    }
    Ok(page)
}

/// A time of the API: `2026-07-21T06:03:23.123000`, in UTC, with or without a fraction and an offset.
fn civil(text: &str) -> Option<jiff::civil::DateTime> {
    let text = text.strip_suffix('Z').or_else(|| text.strip_suffix("+00:00")).unwrap_or(text);
    text.parse().ok()
}

/// Whether a text is a time of the API.
#[must_use]
pub fn is_time(text: &str) -> bool {
    // A year before the first one is written in another way than it is read.
    text.len() <= 40
        && text.is_ascii()
        && !text.contains([' ', '&', '#'])
        && civil(text).is_some_and(|at| at.year() > 0)
}

/// Whether a time of the API is after another one.
#[must_use]
pub fn is_later(one: &str, other: &str) -> bool {
    civil(one) > civil(other)
}

/// A time of the API some seconds before another one.
#[must_use]
pub fn earlier(text: &str, seconds: i64) -> String {
    let before = civil(text)
        .and_then(|at| at.checked_sub(jiff::SignedDuration::from_secs(seconds)).ok())
        .filter(|at| at.year() > 0);
    before.map_or_else(|| text.to_owned(), |at| at.strftime("%Y-%m-%dT%H:%M:%S%.6f").to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(id: &str, at: &str, runtime: &str) -> Value {
        json!({ "id": "e", "timestamp": at, "data": { "id": id, "kind": "job", "state": "available" },
                "node": { "id": id, "data": { "runtime": runtime, "platform": "qemu-x86" },
                          "artifacts": { "job_definition": format!("http://a/{id}.json") } } })
    }

    #[test]
    fn jobs_of_this_runtime_are_found_once_and_the_cursor_is_the_latest() {
        let mut events = vec![
            event("a1", "2026-07-21T06:03:24", "mine"),
            event("b2", "2026-07-21T06:03:23.900000", "other"),
            event("c3", "2026-07-21T06:03:24.000001", "mine"),
            event("a1", "2026-07-21T06:03:22", "mine"),
            event("../x", "2026-07-21T06:03:20", "mine"),
            json!({ "timestamp": "tomorrow" }),
            json!(7),
        ];
        events[4]["node"]["id"] = json!("../x");
        let found = page_of(Value::Array(events.clone()), "mine", &[]).expect("a page");
        let ids: Vec<&str> = found.jobs.iter().map(|job| job.node.as_str()).collect();
        assert_eq!(ids, ["a1", "c3"]);
        assert_eq!(found.last.as_deref(), Some("2026-07-21T06:03:24.000001"));
        assert!(!found.is_full);
        let other = ["rpi".to_owned()];
        assert!(page_of(Value::Array(events), "mine", &other).expect("a page").jobs.is_empty());
        assert!(page_of(json!({}), "mine", &[]).is_err());
    }

    #[test]
    fn of_a_list_without_end_no_more_is_read_than_was_asked_for() {
        let events = (0..=EVENTS_MAX).map(|n| event(&n.to_string(), "", "mine")).collect();
        let found = page_of(Value::Array(events), "mine", &[]).expect("a page");
        assert_eq!((found.jobs.len(), found.is_full), (EVENTS_MAX, true));
    }

    #[test]
    fn times_are_compared_as_times() {
        assert!(is_later("2026-07-21T06:03:23.1", "2026-07-21T06:03:23"));
        assert!(is_later("2026-07-21T06:03:24Z", "2026-07-21T06:03:23.999999+00:00"));
        assert_eq!(earlier("2026-07-21T00:00:05.5", 10), "2026-07-20T23:59:55.500000");
        assert_eq!(earlier(BEGINNING, 10), "1969-12-31T23:59:50.000000");
        let first = "0001-01-01T00:00:00";
        assert!(is_time(first) && is_time(&earlier(first, 10)));
        for bad in [
            "",
            "now",
            "2026-07-21T06:03:23&x=1",
            "2026-07-21 06:03:23",
            "-009999-02-01T00:00:00",
            "0000-01-01T00:00:00",
        ] {
            assert!(!is_time(bad), "{bad}");
        }
    }

    #[test]
    fn a_node_goes_back_without_what_the_api_keeps() {
        let node = json!({ "id": "1", "owner": "x", "timeout": "t", "state": "available", "name": "n",
                           "data": { "runtime": "mine" } });
        let put = changed(node, &[("job_id", json!("c"))], &[("state", json!("done"))]);
        let expected =
            json!({ "state": "done", "name": "n", "data": { "runtime": "mine", "job_id": "c" } });
        assert_eq!(Value::Object(put), expected);
        let put = changed(json!({ "data": null }), &[("job_id", json!("c"))], &[]);
        assert_eq!(Value::Object(put), json!({ "data": { "job_id": "c" } }));
    }
}
