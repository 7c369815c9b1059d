//! A document of KCIDB, KernelCI's database of results: a test for the run, and one for each figure of each cell.
//!
//! ```text
//! rtscope.PLAN                     the run: its verdict
//! rtscope.PLAN.PHASE.STATISTIC     a figure, and what its requirements say
//! ```
//!
//! A pass and a failure are the judgement's. A figure without a requirement is DONE, and so is an open question, whose
//! reasons are in `misc.inconclusive`. What was cut short is an ERROR, and what never began a MISS, since the question is
//! open there because of something else than the kernel's latency.

mod cells;
mod schema;
mod submission;

use rtscope_model::{
    environment::Kernel,
    event::{EndReason, Event},
    finding::Weight,
    verdict::Verdict,
};
use serde_json::{Map, Value, json};

use self::schema::{
    Build, Checkout, Document, Reached, Status, Test, TestEnvironment, Version, seconds,
};
pub use self::submission::{BuildId, NotAName, PublishedFiles, Submission, SubmissionOrigin};
use super::{Exported, FleetExported, Format, PlaceExported, PlaceWithout};

pub(super) const FORMAT: Format = Format {
    name: "kcidb",
    what: "KCIDB's JSON, version 5.3, for KernelCI: a test for the run and for each figure",
    ending: "json",
    write: |subject| {
        let mut document = Document::new();
        document.add(&Part::new(subject)?);
        document.bytes()
    },
};

/// The tests of all places. A place that may still bring a record is left out: what is said of it would stay in
/// KernelCI's database.
pub(super) fn of_fleet(fleet: &FleetExported<'_>) -> Result<Vec<u8>, String> {
    let mut document = Document::new();
    for place in &fleet.places {
        match place {
            PlaceExported::Run(subject) => document.add(&Part::new(subject)?),
            PlaceExported::Without(without) if without.is_open => {}
            PlaceExported::Without(without) => document.add_missing(without, fleet),
        }
    }
    document.bytes()
}

/// A run as KernelCI sees it.
struct Part<'a> {
    subject: &'a Exported<'a>,
    build: BuildId,
    /// Begins the name of each test.
    id: String,
    environment: TestEnvironment,
}

impl Document {
    fn new() -> Document {
        let version = Version { major: 5, minor: 3 };
        Document { version, checkouts: Vec::new(), builds: Vec::new(), tests: Vec::new() }
    }

    fn bytes(&self) -> Result<Vec<u8>, String> {
        serde_json::to_string_pretty(self)
            .map(|text| (text + "\n").into_bytes())
            .map_err(|e| e.to_string())
    }

    fn add(&mut self, part: &Part<'_>) {
        let kernel = part.subject.record.before.as_ref().map(|found| found.kernel.clone());
        let kernel = kernel.unwrap_or_default();
        self.add_build(&part.subject.submission, &part.build, &kernel);
        self.tests.push(part.run());
        self.tests.extend(part.figures());
    }

    /// A test of a build that nobody else submits would never be valid.
    fn add_build(&mut self, submission: &Submission, build: &BuildId, kernel: &Kernel) {
        if submission.build.is_some() {
            return;
        }
        let (id, origin) = (build.to_string(), submission.origin.to_string());
        let build = Build {
            checkout_id: id.clone(),
            id: id.clone(),
            origin: origin.clone(),
            comment: format!("Linux {} {}", kernel.release, kernel.version).trim_end().to_owned(),
            architecture: architecture(&kernel.machine),
        };
        if self.builds.iter().all(|known| known.id != build.id) {
            self.checkouts.push(Checkout { id, origin });
            self.builds.push(build);
        }
    }

    /// The run of a place that brought none.
    fn add_missing(&mut self, without: &PlaceWithout, fleet: &FleetExported<'_>) {
        let origin = &fleet.submission.origin;
        let (release, machine) = (without.kernel.clone(), without.machine.clone());
        let kernel = Kernel { release, machine, ..Kernel::default() };
        let build = fleet.submission.build.clone();
        let build = build.unwrap_or_else(|| BuildId::of_kernel(origin, &kernel));
        self.add_build(&fleet.submission, &build, &kernel);
        let id = [&without.place, fleet.plan, &without.job].map(words).join("-");
        self.tests.push(Test {
            id: format!("{origin}:{id}"),
            origin: origin.to_string(),
            build_id: build.to_string(),
            path: path(fleet.plan, &[]),
            status: Status::Miss,
            number: None,
            comment: without.why.clone(),
            start_time: None,
            duration: None,
            log_url: None,
            output_files: Vec::new(),
            environment: TestEnvironment {
                comment: format!("place {}", without.place),
                misc: [("place".to_owned(), json!(without.place))].into_iter().collect(),
                ..TestEnvironment::default()
            },
            misc: Map::new(),
        });
    }
}

impl<'a> Part<'a> {
    fn new(subject: &'a Exported<'a>) -> Result<Part<'a>, String> {
        let build = build(subject)?;
        let run = run_id(subject, &build);
        let id = subject.place.iter().map(|place| words(place)).chain([run]);
        let id = format!("{}:{}", subject.submission.origin, id.collect::<Vec<_>>().join("-"));
        Ok(Part { subject, build, id, environment: environment(subject) })
    }

    fn origin(&self) -> String {
        self.subject.submission.origin.to_string()
    }

    /// The path of the run, or of a figure in a cell.
    fn path(&self, names: &[&str]) -> String {
        path(&self.subject.record.plan.name, names)
    }

    /// Whether its times are those of a clock on the wall: not those of an import, nor of a guest in virtual time.
    fn has_wall_clock(&self) -> bool {
        let record = self.subject.record;
        !record.is_imported() && record.virtual_time.is_none()
    }

    /// When something of the run began, RFC 3339.
    fn start_time(&self, at_ns: u64) -> Option<String> {
        let (_, began) = self.subject.started();
        let began: jiff::Timestamp = began.parse().ok()?;
        let at = began.checked_add(jiff::SignedDuration::from_nanos(at_ns.cast_signed())).ok()?;
        // RFC 3339 has no negative years, and no run began before 1970.
        let is_written = at >= jiff::Timestamp::UNIX_EPOCH;
        (is_written && self.has_wall_clock()).then(|| at.to_string())
    }

    /// How long something took, in seconds.
    fn duration(&self, ns: u64) -> Option<f64> {
        (ns > 0 && self.has_wall_clock()).then(|| seconds(ns))
    }

    /// The run as a whole.
    fn run(&self) -> Test {
        let Exported { record, judgement, .. } = self.subject;
        let reached = self.reached();
        let status = Status::of(Some(judgement.verdict), reached);
        let (version, _) = self.subject.started();
        let mut misc = Map::new();
        misc.insert("rtscope".to_owned(), json!(version));
        misc.insert("verdict".to_owned(), json!(judgement.verdict));
        let why = match judgement.verdict {
            Verdict::Inconclusive => "inconclusive",
            _ => "reasons",
        };
        misc.insert(why.to_owned(), json!(judgement.reasons));
        let codes: Vec<&str> = judgement.findings.iter().map(|f| f.code.as_str()).collect();
        misc.insert("findings".to_owned(), json!(codes));
        misc.insert("accepted".to_owned(), json!(judgement.accepted));
        if record.virtual_time.is_some() {
            misc.insert("virtual_time".to_owned(), json!(true));
        }
        let took_ns = record.events.last().map_or(0, |last| last.at_ns);
        Test {
            id: self.id.clone(),
            origin: self.origin(),
            build_id: self.build.to_string(),
            path: self.path(&[]),
            status,
            number: None,
            comment: format!("{}: {}", record.plan.title, judgement.verdict),
            start_time: self.start_time(0),
            duration: self.duration(took_ns),
            log_url: self.subject.submission.files.log_url(),
            output_files: self.subject.submission.files.output_files(),
            environment: self.environment.clone(),
            misc,
        }
    }

    /// How far the run came. A phase that failed, as one whose load did not start, cuts it too.
    fn reached(&self) -> Reached {
        let Exported { record, judgement, .. } = self.subject;
        let why = record.events.iter().rev().find_map(|stamped| match &stamped.event {
            Event::RunEnded { why, .. } => Some(*why),
            _ => None,
        });
        let has_failed =
            judgement.findings.iter().any(|f| f.code == "run-failed" && f.weight > Weight::Warning);
        match why {
            _ if record.is_imported() => Reached::Complete,
            None | Some(EndReason::Interrupted | EndReason::Failed) => Reached::WasCut,
            Some(_) if has_failed => Reached::WasCut,
            Some(_) => Reached::Complete,
        }
    }
}

/// The build's name: the one that was given, or one of what the kernel says of itself.
fn build(subject: &Exported<'_>) -> Result<BuildId, String> {
    let Submission { origin, build, .. } = &subject.submission;
    if let Some(build) = build {
        return Ok(build.clone());
    }
    let found = subject.record.before.as_ref().filter(|_| !subject.record.is_imported());
    let kernel = found.map(|found| &found.kernel).filter(|kernel| !kernel.release.is_empty());
    let kernel = kernel
        .ok_or("the record doesn't say which kernel it is of: name its build with --build-id")?;
    Ok(BuildId::of_kernel(origin, kernel))
}

impl BuildId {
    /// Of what a kernel says of itself: its version has the date of the build, or its number.
    fn of_kernel(origin: &SubmissionOrigin, kernel: &Kernel) -> BuildId {
        let name = [&kernel.machine, &kernel.release, &kernel.version].map(|part| words(part));
        let name = name.join("-");
        match name.trim_matches('-') {
            "" => BuildId::made(origin, "unknown-kernel"),
            name => BuildId::made(origin, name),
        }
    }
}

/// What KernelCI calls a machine of `uname -m`: by the kernel's name for its architecture.
fn architecture(machine: &str) -> String {
    let is_good = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
    match machine {
        "aarch64" => "arm64".to_owned(),
        "riscv64" | "riscv32" => "riscv".to_owned(),
        arm if arm.starts_with("armv") => "arm".to_owned(),
        other => other.chars().filter(|c| is_good(*c)).collect(),
    }
}

/// The path of a run, or of a figure in a cell.
fn path(plan: &str, names: &[&str]) -> String {
    let names = [plan].into_iter().chain(names.iter().copied());
    names.fold("rtscope".to_owned(), |path, name| path + "." + &node(name))
}

/// What tells a run from all others, and is the same however often it is exported or judged.
fn run_id(subject: &Exported<'_>, build: &BuildId) -> String {
    let record = subject.record;
    let (_, began) = subject.started();
    let mut hash = Fnv::new();
    // Two builds may behave alike to the instruction, and then their guests' records only differ in this.
    hash.add(build.to_string().as_bytes());
    let found = record.before.clone().unwrap_or_default();
    for text in [&found.host, &found.kernel.release, &found.kernel.version, &found.kernel.cmdline] {
        hash.add(text.as_bytes());
    }
    for stamped in &record.events {
        if let Event::RunStarted { monotonic_ns, command, .. } = &stamped.event {
            hash.add(&monotonic_ns.to_le_bytes());
            command.iter().for_each(|word| hash.add(word.as_bytes()));
        }
    }
    for slice in &record.slices {
        [slice.start_ns, slice.end_ns, slice.recorded, slice.min_ns, slice.max_ns, slice.max_at_ns]
            .iter()
            .for_each(|ns| hash.add(&ns.to_le_bytes()));
    }
    let parts =
        [words(&record.plan.name), words(&began.replace(':', "")), format!("{:016x}", hash.0)];
    parts.join("-")
}

/// The machine. Each text is as it was found.
fn environment(subject: &Exported<'_>) -> TestEnvironment {
    let found = subject.record.before.as_ref().filter(|_| !subject.record.is_imported());
    let Some(found) = found else { return TestEnvironment::default() };
    let kernel = &found.kernel;
    let machine = found.machine_model.as_deref().unwrap_or(&found.cpus.model);
    // The schema takes no blank there.
    let compatible = found
        .compatible
        .iter()
        .filter(|name| !name.contains(' ') && name.split(',').all(|part| !part.is_empty()));
    let place = subject.place.as_deref().unwrap_or_default();
    let comment = match (place, machine) {
        ("", machine) => machine.to_owned(),
        (place, "") => format!("place {place}"),
        (place, machine) => format!("place {place}: {machine}"),
    };
    let facts: [(&str, Value); 12] = [
        ("place", json!(place)),
        ("host", json!(found.host)),
        ("machine_model", json!(found.machine_model.as_deref().unwrap_or_default())),
        ("cpu_model", json!(found.cpus.model)),
        ("cpus_online", json!(found.cpus.online.to_string())),
        ("virtualisation", json!(found.virtualisation.as_deref().unwrap_or_default())),
        ("memory_kib", json!(found.memory.total_kib)),
        ("kernel_release", json!(kernel.release)),
        ("kernel_version", json!(kernel.version)),
        ("kernel_machine", json!(kernel.machine)),
        ("kernel_command_line", json!(kernel.cmdline)),
        ("preemption", json!(kernel.preemption.word())),
    ];
    let is_known = |value: &Value| !value.is_null() && value.as_str() != Some("");
    let facts = facts.into_iter().filter(|(_, value)| is_known(value));
    TestEnvironment {
        compatible: compatible.cloned().collect(),
        comment,
        misc: facts.map(|(key, value)| (key.to_owned(), value)).collect(),
    }
}

/// A node of a path: letters, digits, `_` and `-`, since a dot would begin the next one.
fn node(name: &str) -> String {
    match words(name).replace(['.', '+', '~'], "_") {
        none if none.is_empty() => "-".to_owned(),
        node => node,
    }
}

/// A name of letters, digits and some marks, with a `-` for whatever else is between them.
fn words(name: &str) -> String {
    let parts = name.split(|c: char| !(c.is_ascii_alphanumeric() || "._+~-".contains(c)));
    parts.filter(|part| !part.is_empty()).collect::<Vec<_>>().join("-")
}

/// FNV-1a of 64 bits: the standard library's hashes may change with its version.
struct Fnv(u64);

impl Fnv {
    const fn new() -> Fnv {
        Fnv(0xcbf2_9ce4_8422_2325)
    }

    fn add(&mut self, bytes: &[u8]) {
        // The end counts, so that no two texts are one.
        for byte in bytes.iter().chain(&[0]) {
            self.0 = (self.0 ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }
}

#[cfg(test)]
mod tests;
