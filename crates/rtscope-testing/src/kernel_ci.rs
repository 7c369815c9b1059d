//! A small KernelCI on this machine, for the tests of a pull lab: the API's events and nodes, files, and KCIDB's `/submit`.
//!
//! It answers as `api/main.py` of kernelci-api, the models of kernelci-core and `kcidb-restd-rs` of kcidb-ng do: which events a
//! query gives, which states a node may take, which fields of it are kept, and who may change it.

use std::{
    collections::BTreeMap,
    io::{BufRead, BufReader, Read, Write},
    net::{TcpListener, TcpStream},
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    thread,
    time::{Duration, Instant},
};

use serde_json::{Value, json};

/// The tokens that it knows.
pub const API_TOKEN: &str = "api-token-of-the-tests";
pub const KCIDB_TOKEN: &str = "kcidb.jwt-of-the-tests";

/// What happens to a request instead of what would.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// It is answered with this status, and nothing else happens.
    Status(u16),
    /// It is taken and never answered.
    Swallowed,
    /// What it asks for is done, and nobody is told.
    Unanswered,
}

#[derive(Debug)]
struct Planned {
    /// What the request's line begins with, as `PUT /latest/node/`; with a word of its body behind a blank.
    of: (String, String),
    fault: Fault,
    times: u32,
}

#[derive(Debug, Default)]
struct Inside {
    nodes: BTreeMap<String, Value>,
    events: Vec<Value>,
    files: BTreeMap<String, Vec<u8>>,
    submissions: Vec<Value>,
    /// Method and path of each request, in their order.
    requests: Vec<String>,
    /// Results that nodes were ended with, as `NODE result`.
    ended: Vec<String>,
    faults: Vec<Planned>,
    /// Requests that met a fault.
    met: u32,
}

/// The server. It ends with the process of the test.
#[derive(Clone, Debug)]
pub struct FakeKernelCi {
    inside: Arc<(Mutex<Inside>, Condvar)>,
    host: String,
}

/// Fields that a test's node keeps in its data.
const DATA: [&str; 7] =
    ["error_code", "error_msg", "platform", "device", "runtime", "job_id", "kernel_revision"];

const ERROR_CODES: [&str; 6] =
    ["Infrastructure", "invalid_job_params", "Job", "Test", "Canceled", "Bug"];

impl FakeKernelCi {
    /// Starts it.
    ///
    /// # Panics
    ///
    /// This machine has no port left.
    #[must_use]
    pub fn start() -> FakeKernelCi {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let host = format!("http://{}", listener.local_addr().expect("bound"));
        let server = FakeKernelCi { inside: Arc::default(), host };
        let own = server.clone();
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let own = own.clone();
                thread::spawn(move || own.serve(stream));
            }
        });
        server
    }

    fn inside(&self) -> MutexGuard<'_, Inside> {
        self.inside.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    #[must_use]
    pub fn api(&self) -> String {
        format!("{}/latest", self.host)
    }

    #[must_use]
    pub fn kcidb(&self) -> String {
        format!("{}/submit", self.host)
    }

    /// The address of a file.
    #[must_use]
    pub fn file(&self, name: &str) -> String {
        format!("{}/files/{name}", self.host)
    }

    pub fn put_file(&self, name: &str, bytes: &[u8]) {
        self.inside().files.insert(name.to_owned(), bytes.to_vec());
    }

    /// Makes a job of a runtime available, as KernelCI's scheduler does: its build, its definition and its event.
    pub fn add_job(&self, node: &str, runtime: &str, definition: &Value) {
        self.put_file(&format!("{node}.json"), definition.to_string().as_bytes());
        let address = self.file(&format!("{node}.json"));
        let mut inside = self.inside();
        let build = "6870c1b20000000000000001";
        inside.nodes.insert(
            build.to_owned(),
            json!({ "id": build, "kind": "kbuild", "name": "kbuild-gcc-14-x86", "parent": "6870c1b20000000000000000",
                    "state": "done", "result": "pass", "data": { "arch": "x86_64" } }),
        );
        inside.nodes.insert(
            node.to_owned(),
            json!({ "id": node, "kind": "job", "name": "rt-tests-pull", "path": ["checkout", "kbuild", "rt-tests-pull"],
                    "group": "rt-tests-pull-labs", "parent": build, "state": "available", "result": null,
                    "owner": "maestro", "created": "2026-07-21T06:00:00", "user_groups": [],
                    "artifacts": { "job_definition": address },
                    "data": { "runtime": runtime, "platform": "qemu-x86", "kernel_revision": { "tree": "mainline" } } }),
        );
        inside.publish("created", node);
    }

    /// Lets the next requests of a kind meet a fault. `of` is method and path, as far as they matter; `body` is a word of
    /// the body, or empty.
    pub fn plan(&self, of: &str, body: &str, fault: Fault, times: u32) {
        let of = (of.to_owned(), body.to_owned());
        let mut inside = self.inside();
        inside.met = 0;
        inside.faults = vec![Planned { of, fault, times }];
    }

    /// Waits until a request has met the planned fault.
    ///
    /// # Panics
    ///
    /// None does so in a minute.
    pub fn wait_for_fault(&self) {
        let until = Instant::now() + Duration::from_secs(60);
        let mut inside = self.inside();
        while inside.met == 0 {
            assert!(Instant::now() < until, "no request met the fault: {:?}", inside.requests);
            inside = self
                .inside
                .1
                .wait_timeout(inside, Duration::from_millis(100))
                .unwrap_or_else(PoisonError::into_inner)
                .0;
        }
    }

    /// A node as it is.
    #[must_use]
    pub fn node(&self, id: &str) -> Value {
        self.inside().nodes.get(id).cloned().unwrap_or_default()
    }

    /// Changes a field of a node behind the lab's back.
    pub fn change(&self, id: &str, change: impl FnOnce(&mut Value)) {
        if let Some(node) = self.inside().nodes.get_mut(id) {
            change(node);
        }
    }

    /// The documents that KCIDB has taken.
    #[must_use]
    pub fn submissions(&self) -> Vec<Value> {
        self.inside().submissions.clone()
    }

    /// The ends of nodes, as `NODE result`.
    #[must_use]
    pub fn ended(&self) -> Vec<String> {
        self.inside().ended.clone()
    }

    /// Requests whose method and path begin so.
    #[must_use]
    pub fn requests(&self, begin: &str) -> Vec<String> {
        let inside = self.inside();
        inside.requests.iter().filter(|line| line.starts_with(begin)).cloned().collect()
    }

    fn serve(&self, mut stream: TcpStream) -> Option<()> {
        let mut reader = BufReader::new(stream.try_clone().ok()?);
        let mut line = String::new();
        reader.read_line(&mut line).ok()?;
        let mut words = line.split_whitespace();
        let (method, path) = (words.next()?.to_owned(), words.next()?.to_owned());
        let (mut length, mut token) = (0, String::new());
        loop {
            let mut header = String::new();
            reader.read_line(&mut header).ok()?;
            let Some((name, value)) = header.trim_end().split_once(':') else { break };
            match name.to_ascii_lowercase().as_str() {
                "content-length" => length = value.trim().parse().ok()?,
                "authorization" => token = value.trim().to_owned(),
                "expect" => stream.write_all(b"HTTP/1.1 100 Continue\r\n\r\n").ok()?,
                _ => {}
            }
        }
        let mut body = vec![0; length];
        reader.read_exact(&mut body).ok()?;
        let (status, answer) = self.answer(&method, &path, &token, &body)?;
        let head = format!(
            "HTTP/1.1 {status} Answer\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
            answer.len()
        );
        stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(&answer)).ok()
    }

    /// The answer; none where nobody is to get one, and then the connection stays as it is for a while.
    fn answer(&self, method: &str, path: &str, token: &str, body: &[u8]) -> Option<(u16, Vec<u8>)> {
        let mut inside = self.inside();
        let line = format!("{method} {path}");
        inside.requests.push(line.clone());
        let text = String::from_utf8_lossy(body).into_owned();
        let fault = inside.fault(&line, &text);
        if fault.is_some() {
            self.inside.1.notify_all();
        }
        let (status, answer) = match fault {
            Some(Fault::Status(status)) => (status, json!({ "detail": "a planned failure" })),
            Some(Fault::Swallowed) => {
                drop(inside);
                thread::sleep(HOLD);
                return None;
            }
            other => {
                let found = match inside.file(method, path) {
                    Some(bytes) => return Some((200, bytes)),
                    None => inside.route(method, path, token, &text),
                };
                if other.is_some() {
                    drop(inside);
                    thread::sleep(HOLD);
                    return None;
                }
                found
            }
        };
        Some((status, answer.to_string().into_bytes()))
    }
}

/// How long a request without an answer waits: the test has killed the one who asks long before.
const HOLD: Duration = Duration::from_secs(20);

fn detail(status: u16, text: &str) -> (u16, Value) {
    (status, json!({ "detail": text }))
}

impl Inside {
    fn fault(&mut self, line: &str, body: &str) -> Option<Fault> {
        let planned = self.faults.iter_mut().find(|planned| {
            planned.times > 0 && line.starts_with(&planned.of.0) && body.contains(&planned.of.1)
        })?;
        planned.times -= 1;
        self.met += 1;
        Some(planned.fault)
    }

    fn file(&self, method: &str, path: &str) -> Option<Vec<u8>> {
        let name = path.strip_prefix("/files/").filter(|_| method == "GET")?;
        self.files.get(name).cloned()
    }

    /// An event of a node as it is now. Python leaves out a fraction of 0.
    fn publish(&mut self, op: &str, id: &str) {
        let at = self.events.len();
        let fraction = if at == 0 { String::new() } else { format!(".{at:06}") };
        let node = self.nodes.get(id).cloned().unwrap_or_default();
        let mut data = json!({ "op": op });
        for field in ["id", "kind", "name", "path", "group", "state", "result", "owner", "data"] {
            data[field] = node[field].clone();
        }
        self.events.push(json!({
            "id": format!("{at:024x}"), "timestamp": format!("2026-07-21T06:03:23{fraction}"),
            "channel": "node", "data": data,
        }));
    }

    fn route(&mut self, method: &str, path: &str, token: &str, body: &str) -> (u16, Value) {
        let (path, query) = path.split_once('?').unwrap_or((path, ""));
        let node = path.strip_prefix("/latest/node/");
        match (method, path, node) {
            ("GET", "/latest/events", _) => self.events(query),
            ("GET", _, Some(id)) => match self.nodes.get(id) {
                Some(node) => (200, node.clone()),
                None => detail(404, "Node not found with the provided id"),
            },
            ("PUT", _, Some(id)) => self.put(id, token, body),
            ("POST", "/submit", _) => self.submit(token, body),
            _ => detail(404, "Not Found"),
        }
    }

    fn events(&self, query: &str) -> (u16, Value) {
        let pairs: BTreeMap<&str, &str> =
            query.split('&').filter_map(|pair| pair.split_once('=')).collect();
        let limit: Option<usize> = pairs.get("limit").and_then(|limit| limit.parse().ok());
        let is_recursive = pairs.contains_key("recursive");
        if is_recursive && limit.is_none_or(|limit| limit == 0 || limit > 1000) {
            return detail(400, "Recursive limit is too large, max is 1000");
        }
        let time = |text: &str| text.parse::<jiff::civil::DateTime>().ok();
        let after = match pairs.get("from").map(|text| time(text)) {
            Some(None) => {
                return detail(400, "Invalid 'from' parameter, must be an ISO 8601 datetime");
            }
            after => after.flatten(),
        };
        let fits = |event: &&Value| {
            let is = |key: &str| pairs.get(key).is_none_or(|asked| event["data"][key] == **asked);
            let at = event["timestamp"].as_str().and_then(time);
            is("kind") && is("state") && after.is_none_or(|after| at > Some(after))
        };
        let found = self.events.iter().filter(fits).take(limit.unwrap_or(usize::MAX));
        let with_node = |event: &Value| {
            let mut event = event.clone();
            let id = event["data"]["id"].as_str().unwrap_or_default().to_owned();
            if let Some(node) = self.nodes.get(&id).filter(|_| is_recursive) {
                event["node"] = node.clone();
            }
            event
        };
        (200, found.map(with_node).collect())
    }

    fn put(&mut self, id: &str, token: &str, body: &str) -> (u16, Value) {
        if token != format!("Bearer {API_TOKEN}") {
            return detail(401, "Unauthorized to complete the operation");
        }
        let Some(old) = self.nodes.get(id).cloned() else {
            return detail(404, "Node not found");
        };
        let Ok(Value::Object(put)) = serde_json::from_str::<Value>(body) else {
            return detail(422, "not an object");
        };
        if let Some(name) =
            ["id", "owner", "created", "user_groups"].iter().find(|name| put.contains_key(**name))
        {
            return detail(422, &format!("{name} is not accepted"));
        }
        let state = put.get("state").and_then(Value::as_str).unwrap_or_default().to_owned();
        let allowed = match old["state"].as_str().unwrap_or_default() {
            same if same == state => true,
            "running" => ["available", "closing", "done"].contains(&state.as_str()),
            "available" => ["closing", "done"].contains(&state.as_str()),
            "closing" => state == "done",
            _ => false,
        };
        if !allowed {
            return detail(400, &format!("Transition not allowed with state: {state}"));
        }
        let result = put.get("result").cloned().unwrap_or_default();
        let is_result = result.is_null()
            || ["pass", "fail", "skip", "incomplete"].iter().any(|known| result == **known);
        let code = put.get("data").map(|data| data["error_code"].clone()).unwrap_or_default();
        if !is_result || !(code.is_null() || ERROR_CODES.iter().any(|known| code == **known)) {
            return detail(422, "value is not a valid enumeration member");
        }
        let mut node = old.clone();
        for (name, value) in put {
            node[name.as_str()] = value;
        }
        if let Some(data) = node["data"].as_object_mut() {
            data.retain(|name, _| DATA.contains(&name.as_str()));
        }
        if old["state"] != "done" && state == "done" {
            self.ended.push(format!("{id} {}", result.as_str().unwrap_or("none")));
        }
        self.nodes.insert(id.to_owned(), node.clone());
        self.publish("updated", id);
        (200, node)
    }

    fn submit(&mut self, token: &str, body: &str) -> (u16, Value) {
        let said = |status: &str, id: &str, message: &str| json!({ "id": id, "status": status, "message": message });
        if token.split(' ').nth(1) != Some(KCIDB_TOKEN) {
            return (401, said("error", "0", "InvalidToken"));
        }
        match serde_json::from_str(body) {
            Ok(document) => {
                self.submissions.push(document);
                let id = format!("s{:031}", self.submissions.len());
                (200, said("ok", &id, "Received submission"))
            }
            Err(e) => (400, said("error", "0", &e.to_string())),
        }
    }
}
