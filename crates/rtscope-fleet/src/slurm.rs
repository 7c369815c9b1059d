//! Nodes of a Slurm cluster. A batch job holds the node, and every script for the place is a step of that job.
//!
//! Slurm ends the processes of a step with the step. So the keeper is not started by a script that rtscope sends, but by
//! the script of the batch job (`scripts/hold_slurm.sh`). It ends with the allocation, whatever happens to rtscope.

use std::{
    fmt, thread,
    time::{Duration, Instant},
};

use rtscope_model::{printable::printable, text::shell_word};
use serde::Deserialize;

use crate::{
    error::FleetError,
    facts::Facts,
    selector::Selector,
    shell::{NOT_FOUND, Shell, ShellAnswer, Stop},
};

/// Before a job's name, so that a person sees whose it is.
const PREFIX: &str = "rtscope-";

/// How long a job may wait for a node that nobody has. Slurm's scheduler may need a minute to look.
const START_MAX: Duration = Duration::from_secs(90);

/// What an allocation lasts longer than the lease, so that the keeper ends first, and in order.
const LONGER: Duration = Duration::from_secs(120);

/// How long a cancelled job may need: Slurm gives its processes 30 s (KillWait).
const END_MAX: Duration = Duration::from_secs(60);

const PAUSE: Duration = Duration::from_millis(300);

/// States of a node in which it takes no job, as far as they are a word of `State=`.
const UNFIT: [&str; 9] = [
    "DOWN",
    "DRAIN",
    "DRAINED",
    "DRAINING",
    "FAIL",
    "FAILING",
    "NOT_RESPONDING",
    "UNKNOWN",
    "FUTURE",
];

/// The section `[slurm]` of the file of places.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Cluster {
    /// Only its nodes are places. None for all nodes, and Slurm's default partition.
    partition: Option<String>,
    /// Further arguments for sbatch.
    #[serde(default)]
    arguments: Vec<String>,
    /// Further tags of all nodes.
    #[serde(default)]
    tags: Vec<String>,
}

/// A node as Slurm lists it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListedNode {
    pub name: String,
    pub tags: Vec<String>,
    partitions: Vec<String>,
    machine: String,
    kernel: String,
    state: String,
    reason: String,
}

/// The batch job that holds a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Allocation {
    /// Slurm's number of the job.
    number: String,
    name: String,
    node: String,
}

/// A line of squeue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueuedJob {
    number: String,
    state: String,
    user: String,
    seconds_left: Option<u64>,
    reason: String,
    name: String,
}

impl fmt::Display for Allocation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Slurm's job {} at {}", self.number, self.node)
    }
}

impl Cluster {
    /// What is wrong with the section.
    pub(crate) fn problem(&self) -> Option<String> {
        let is_name = |name: &String| {
            let is_known = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
            !name.is_empty() && !name.starts_with('-') && name.chars().all(is_known)
        };
        if let Some(partition) = self.partition.as_ref().filter(|name| !is_name(name)) {
            return Some(format!("{partition:?} is not a partition: write a single name"));
        }
        let tag = self.tags.iter().find(|tag| !Selector::is_tag(tag))?;
        Some(format!("the tag {tag:?} is neither a word nor KEY=VALUE"))
    }

    pub(crate) fn list(&self) -> Result<Vec<ListedNode>, FleetError> {
        let said = ask(&["scontrol", "show", "node", "--oneliner"], &|| false)?;
        let mut nodes: Vec<ListedNode> = said.lines().filter_map(ListedNode::read).collect();
        nodes
            .retain(|node| self.partition.as_ref().is_none_or(|one| node.partitions.contains(one)));
        for node in &mut nodes {
            node.tags.extend(self.tags.iter().cloned());
        }
        Ok(nodes)
    }

    /// What a node is, and who has it.
    pub(crate) fn look(node: &str, stop: Stop<'_>) -> Result<Facts, FleetError> {
        let said = ask(&["scontrol", "show", "node", node, "--oneliner"], stop)?;
        let listed = said.lines().find_map(ListedNode::read);
        let listed = listed.ok_or_else(|| FleetError::said(&said))?;
        if let Some(why) = listed.unfit() {
            return Err(FleetError::Connection(why));
        }
        let at = format!("--nodelist={node}");
        let jobs = queue(&[&at, "--states=RUNNING,COMPLETING,CONFIGURING,SUSPENDED"], stop)?;
        let is_used = ["ALLOCATED", "MIXED", "COMPLETING"]
            .iter()
            .any(|state| listed.state.split('+').any(|word| word == *state));
        let held = match jobs.first() {
            Some(job) => Some((job.holder(), job.seconds_left)),
            None if is_used => Some(("another job of Slurm".to_owned(), None)),
            None => None,
        };
        Ok(Facts::of_listed(listed.machine, listed.kernel, held))
    }

    /// Submits the job that holds a node, and waits until it runs.
    ///
    /// # Errors
    ///
    /// Somebody has the node, or Slurm doesn't start the job; then nothing of it is left. [`FleetError::Unsettled`] when
    /// something may be left.
    pub(crate) fn acquire(
        &self,
        node: &str,
        job: &str,
        folder: &str,
        lease: Duration,
        stop: Stop<'_>,
    ) -> Result<Allocation, FleetError> {
        if let Some((holder, seconds)) = Cluster::look(node, stop)?.held {
            return Err(FleetError::Taken { holder, seconds });
        }
        let begun = self.submit(node, job, folder, lease).and_then(|()| started(node, job, stop));
        begun.map_err(|why| match release(job) {
            Ok(()) => why,
            Err(e) => FleetError::Unsettled(format!("{why}; then {e}")),
        })
    }

    fn submit(
        &self,
        node: &str,
        job: &str,
        folder: &str,
        lease: Duration,
    ) -> Result<(), FleetError> {
        let seconds = lease.as_secs().max(1);
        let minutes = (lease + LONGER).as_secs().div_ceil(60);
        let words = [folder, node, job, &seconds.to_string()].map(shell_word).join(" ");
        let script = format!("set -- {words}\n{}", include_str!("scripts/hold_slurm.sh"));
        let mut command: Vec<String> =
            ["sbatch", "--parsable", "--exclusive", "--nodes=1", "--mem=0"]
                .map(str::to_owned)
                .to_vec();
        command.extend(self.partition.iter().map(|name| format!("--partition={name}")));
        command.extend(self.arguments.iter().cloned());
        // After the user's, which can't change them.
        command.extend([
            format!("--job-name={PREFIX}{job}"),
            format!("--nodelist={node}"),
            format!("--time={minutes}"),
            "--no-requeue".to_owned(),
            "--chdir=/".to_owned(),
            "--output=/dev/null".to_owned(),
            format!("--wrap={script}"),
        ]);
        let command: Vec<&str> = command.iter().map(String::as_str).collect();
        // Not to be interrupted: what it began would have to be found again.
        ask(&command, &|| false).map(drop)
    }
}

/// Waits until a job runs.
fn started(node: &str, job: &str, stop: Stop<'_>) -> Result<Allocation, FleetError> {
    let since = Instant::now();
    loop {
        let found = newest(job, stop)?;
        match found {
            Some(found) if found.state == "RUNNING" => return Ok(found.allocation(job, node)),
            Some(found) if found.has_ended() => {
                return Err(FleetError::Place(format!(
                    "Slurm's job {} has ended: {} ({})",
                    found.number, found.state, found.reason
                )));
            }
            Some(found) if since.elapsed() > START_MAX => {
                let seconds = START_MAX.as_secs();
                let holder = format!("Slurm: its job waited for {seconds} s ({})", found.reason);
                return Err(FleetError::Taken { holder, seconds: None });
            }
            None if since.elapsed() > START_MAX => {
                return Err(FleetError::Connection("Slurm doesn't list its job".to_owned()));
            }
            _ => {}
        }
        if stop() {
            return Err(FleetError::Interrupted);
        }
        thread::sleep(PAUSE);
    }
}

/// The allocation of an earlier job; none when it has ended.
pub(crate) fn find(
    node: &str,
    job: &str,
    stop: Stop<'_>,
) -> Result<Option<Allocation>, FleetError> {
    let found = newest(job, stop)?.filter(|found| !found.has_ended());
    Ok(found.map(|found| found.allocation(job, node)))
}

/// Cancels a job if it is there, and waits until it has ended.
///
/// # Errors
///
/// Slurm doesn't answer, or the job goes on.
pub(crate) fn release(job: &str) -> Result<(), FleetError> {
    let since = Instant::now();
    let mut cancelled = false;
    loop {
        let all = queue(&[&format!("--name={PREFIX}{job}"), "--me", "--states=all"], &|| false)?;
        let alive: Vec<&QueuedJob> = all.iter().filter(|job| !job.has_ended()).collect();
        let is_over = since.elapsed() > END_MAX;
        // A node that doesn't answer ends it when it is back: until then nobody gets the node.
        if alive.iter().all(|job| job.state == "COMPLETING" && is_over) {
            return Ok(());
        }
        if is_over {
            let numbers: Vec<&str> = alive.iter().map(|job| job.number.as_str()).collect();
            return Err(FleetError::Connection(format!(
                "Slurm's job {} doesn't end although it was cancelled",
                numbers.join(" ")
            )));
        }
        if !cancelled {
            let numbers = alive.iter().map(|job| job.number.as_str());
            let command: Vec<&str> = ["scancel"].into_iter().chain(numbers).collect();
            // It may have ended in the meantime: the next look says so.
            cancelled = run(&command, &|| false)?.code == 0;
        }
        thread::sleep(PAUSE);
    }
}

impl Allocation {
    /// The words of a program that runs a step in it.
    pub(crate) fn words(&self) -> Vec<String> {
        let mut words = ["srun", "--overlap", "--ntasks=1", "--nodes=1", "--quiet", "--chdir=/"]
            .map(str::to_owned)
            .to_vec();
        words.push("--cpu-bind=none".to_owned());
        words.push(format!("--jobid={}", self.number));
        words
    }

    /// A step failed: whether that is because the allocation has ended.
    pub(crate) fn explained(&self, why: FleetError) -> FleetError {
        if !why.is_connection() {
            return why;
        }
        self.ended().map_or(why, FleetError::AllocationEnded)
    }

    /// How it ended; none while it goes on, and when Slurm doesn't answer.
    pub(crate) fn ended(&self) -> Option<String> {
        match newest(&self.name, &|| false).ok()? {
            Some(found) if !found.has_ended() => None,
            Some(found) => {
                Some(format!("Slurm has ended its job {}: {}", found.number, found.state))
            }
            None => Some(format!("{self} no longer exists")),
        }
    }
}

impl QueuedJob {
    /// Reads a line; none where it isn't that of a job.
    #[must_use]
    pub fn read(line: &str) -> Option<QueuedJob> {
        let fields: Vec<&str> = line.trim().splitn(6, '|').collect();
        let [number, state, user, left, reason, name] = fields.as_slice() else { return None };
        let text = |text: &str| printable(text).into_owned();
        number.starts_with(|c: char| c.is_ascii_digit()).then(|| QueuedJob {
            number: text(number),
            state: text(state),
            user: text(user),
            seconds_left: seconds_of(left),
            reason: text(reason),
            name: text(name),
        })
    }

    fn has_ended(&self) -> bool {
        rtscope_sys::slurm::ENDED.contains(&self.state.as_str())
    }

    /// Who has the node.
    #[must_use]
    pub fn holder(&self) -> String {
        match self.name.strip_prefix(PREFIX) {
            Some(job) => job.to_owned(),
            None => format!("{} (Slurm's job {}, {})", self.user, self.number, self.name),
        }
    }

    fn allocation(self, job: &str, node: &str) -> Allocation {
        Allocation { number: self.number, name: job.to_owned(), node: node.to_owned() }
    }
}

impl ListedNode {
    /// Reads a line of `scontrol show node --oneliner`.
    #[must_use]
    pub fn read(line: &str) -> Option<ListedNode> {
        let line = printable(line.trim()).into_owned();
        let rest_of = |key: &str| {
            let at = match line.strip_prefix(key) {
                Some(_) => 0,
                None => line.find(&format!(" {key}"))? + 1,
            };
            Some(&line[at + key.len()..])
        };
        let word = |key: &str| {
            let word = rest_of(key).unwrap_or_default().split(' ').next().unwrap_or_default();
            if word == "(null)" { String::new() } else { word.to_owned() }
        };
        let name = word("NodeName=");
        if name.is_empty() {
            return None;
        }
        let machine = word("Arch=");
        let listed = |key: &str| -> Vec<String> {
            word(key).split(',').filter(|one| !one.is_empty()).map(str::to_owned).collect()
        };
        let mut tags = listed("ActiveFeatures=");
        if !machine.is_empty() && !tags.iter().any(|tag| tag.starts_with("arch=")) {
            tags.push(format!("arch={machine}"));
        }
        tags.retain(|tag| Selector::is_tag(tag));
        // `OS=Linux RELEASE #1 ...`
        let kernel = rest_of("OS=").and_then(|os| os.split(' ').nth(1)).unwrap_or_default();
        Some(ListedNode {
            name,
            tags,
            partitions: listed("Partitions="),
            kernel: kernel.to_owned(),
            machine,
            state: word("State="),
            reason: rest_of("Reason=").unwrap_or_default().to_owned(),
        })
    }

    /// Why it takes no job.
    #[must_use]
    pub fn unfit(&self) -> Option<String> {
        let is_silent = self.state.ends_with('*');
        let state = self.state.trim_end_matches('*');
        let is_unfit = state.split('+').any(|word| UNFIT.contains(&word.trim_end_matches('*')));
        (is_silent || is_unfit).then(|| match self.reason.is_empty() {
            true => format!("Slurm's node is {}", self.state),
            false => format!("Slurm's node is {}: {}", self.state, self.reason),
        })
    }
}

/// `1-02:03:04`, `02:03` and so on, in seconds.
fn seconds_of(text: &str) -> Option<u64> {
    let (days, time) = text.split_once('-').unwrap_or(("0", text));
    let add =
        |sum: Option<u64>, part: &str| sum?.checked_mul(60)?.checked_add(part.parse::<u64>().ok()?);
    let days = days.parse::<u64>().ok()?.checked_mul(86_400)?;
    days.checked_add(time.split(':').fold(Some(0), add)?)
}

/// The job that holds, or held, a node by this name, the last one if there are several.
fn newest(job: &str, stop: Stop<'_>) -> Result<Option<QueuedJob>, FleetError> {
    Ok(queue(&[&format!("--name={PREFIX}{job}"), "--me", "--states=all"], stop)?.pop())
}

fn queue(words: &[&str], stop: Stop<'_>) -> Result<Vec<QueuedJob>, FleetError> {
    let command = ["squeue", "--noheader", "--sort=i", "--format=%i|%T|%u|%L|%r|%j"];
    let said = ask(&[&command, words].concat(), stop)?;
    Ok(said.lines().filter_map(QueuedJob::read).collect())
}

/// What a program of Slurm says.
fn ask(command: &[&str], stop: Stop<'_>) -> Result<String, FleetError> {
    let answer = run(command, stop)?;
    match answer.code {
        0 => Ok(answer.said),
        _ => Err(FleetError::of_slurm(&answer.complaint)),
    }
}

fn run(command: &[&str], stop: Stop<'_>) -> Result<ShellAnswer, FleetError> {
    let answer = Shell::here().run("exec \"$@\"", command, stop)?;
    if answer.code == NOT_FOUND {
        return Err(FleetError::Refused(format!(
            "this machine lacks {}, which rtscope uses to query Slurm: run `apt-get install slurm-client`, or install it another way",
            command.first().copied().unwrap_or_default()
        )));
    }
    Ok(answer)
}

impl FleetError {
    /// What a program of Slurm complains about: its controller may come back, anything else is a refusal.
    fn of_slurm(complaint: &str) -> FleetError {
        let signs = [
            "Unable to contact slurm controller",
            "timed out",
            "Zero Bytes were transmitted",
            "Connection refused",
            "Slurm backup controller in standby",
            "Unexpected missing socket",
            "Insane message length",
            "Munge",
            "authentication",
            "Communication connection failure",
            "temporarily",
        ];
        match signs.iter().any(|sign| complaint.contains(sign)) {
            true => FleetError::Connection(format!("Slurm: {complaint}")),
            false => FleetError::Place(format!("Slurm: {complaint}")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NODE: &str = "NodeName=n1 Arch=x86_64 CoresPerSocket=1  CPUAlloc=0 CPUTot=1 CPULoad=1.28 \
        AvailableFeatures=rt,board=drill,a$b ActiveFeatures=rt,board=drill,a$b Gres=(null) NodeAddr=127.0.0.1 \
        NodeHostName=vm Version=22.05.8 OS=Linux 6.12.9-rt #1 SMP PREEMPT_RT RealMemory=1 State=DOWN*+DRAIN \
        ThreadsPerCore=1 Partitions=all,rt  BootTime=2026-11-25T14:35:44 Reason=Not responding [root@2026-11-25T18:00:00]";

    #[test]
    fn a_node_has_its_features_as_tags() {
        let node = ListedNode::read(NODE).expect("a node");
        assert_eq!(node.name, "n1");
        assert_eq!(node.tags, ["rt", "board=drill", "arch=x86_64"]);
        assert_eq!(node.partitions, ["all", "rt"]);
        assert_eq!((node.machine.as_str(), node.kernel.as_str()), ("x86_64", "6.12.9-rt"));
        let why = node.unfit().expect("unfit");
        assert!(why.contains("DOWN*+DRAIN: Not responding [root"), "{why}");
        for (state, is_unfit) in [
            ("IDLE", false),
            ("MIXED", false),
            ("IDLE+CLOUD+POWERED_DOWN", false),
            ("IDLE*", true),
            ("IDLE+DRAIN", true),
            ("ALLOCATED+NOT_RESPONDING", true),
        ] {
            let node = ListedNode { state: state.to_owned(), ..node.clone() };
            assert_eq!(node.unfit().is_some(), is_unfit, "{state}");
        }
        assert_eq!(ListedNode::read("slurm_load_node error"), None);
        let bare =
            ListedNode::read("NodeName=n2 ActiveFeatures=(null) State=IDLE").expect("a node");
        assert!(bare.tags.is_empty() && bare.partitions.is_empty() && bare.unfit().is_none());
        let odd = ListedNode::read("NodeName=n3 Arch=a$b State=IDLE").expect("a node");
        assert!(odd.tags.is_empty(), "no selector could name it: {odd:?}");
    }

    #[test]
    fn a_line_of_the_queue_says_who_has_a_node() {
        let ours =
            QueuedJob::read("7|RUNNING|root|1-00:02:03|None|rtscope-root-desk-1").expect("a job");
        assert_eq!((ours.holder().as_str(), ours.seconds_left), ("root-desk-1", Some(86_523)));
        let other = QueuedJob::read("8_1|RUNNING|ann|UNLIMITED|None|a|b\u{1b}[2J").expect("a job");
        assert_eq!(other.seconds_left, None);
        assert!(other.holder().starts_with("ann (Slurm's job 8_1, a|b"), "{}", other.holder());
        assert!(!other.holder().contains('\u{1b}') && !other.has_ended());
        assert_eq!(QueuedJob::read("slurm_load_jobs error: x"), None);
        assert_eq!(
            (seconds_of("02:03"), seconds_of("INVALID"), seconds_of("")),
            (Some(123), None, None)
        );
        for too_long in
            ["999999999999999999-00:00", "999999999999999999:00:00", "0-18446744073709551615:9"]
        {
            assert_eq!(seconds_of(too_long), None, "{too_long}");
        }
    }

    #[test]
    fn a_controller_that_is_away_may_come_back() {
        let away = FleetError::of_slurm(
            "slurm_load_jobs error: Unable to contact slurm controller (connect failure)",
        );
        assert!(away.is_connection(), "{away}");
        assert!(
            !FleetError::of_slurm("sbatch: error: invalid partition specified: x").is_connection()
        );
    }
}
