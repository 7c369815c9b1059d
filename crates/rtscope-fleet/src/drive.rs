//! One job at one place, step by step: take, copy, begin, wait, collect, give back.

use std::{
    fmt,
    fs::File,
    io::{Seek, SeekFrom, Write},
    path::{Path, PathBuf},
    thread,
    time::{Duration, Instant},
};

use crate::{
    agent::{self, JobState, RunEnd},
    error::FleetError,
    facts::Facts,
    hold::Hold,
    journal::{FleetJournal, JobStep},
    link::{Link, Say},
    machines::Machines,
    parcel::{self, RecordArrival, RecordManifest},
    places::{FleetPlace, Reach},
    shell::{NOT_EXECUTABLE, Shell, Stop},
    slurm,
};

/// How often a broken connection is tried again before the place counts as lost, while a program is copied or a
/// record collected.
const TRIES: u32 = 6;

/// Between two tries.
const PAUSE: Duration = Duration::from_secs(2);

/// Between two questions whether an allocation is still there: each is work for Slurm's controller.
const ALLOCATION_LOOK: Duration = Duration::from_secs(60);

/// Between two looks at a run that should be over.
const LOOKS: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(10)];

/// What a place must have free for the record, besides the program.
const ROOM_KIB: u64 = 64 << 10;

/// Runs this program at the place for a job: base, job and the rest are its words.
const ASK: &str = r#"
[ -e "$1/$2/rtscope" ] || { echo '"gone"'; exit 0; }
exec "$1/$2/rtscope" fleet-agent "$3" --base "$1" --job "$2" ${4:+"$4"} ${5:+"$5"}
"#;

/// What [`ASK`] says where the job is no more.
const GONE: &str = "\"gone\"";

/// Makes the program of the copy: a new file, which a broken connection's last writer doesn't hold open. Without a copy,
/// an earlier try made it, and its answer was lost. That try may still be running, so the new file has its own name.
const INSTALL: &str = r#"
[ ! -e "$1" ] && [ -e "$2" ] && exit 0
umask 077; cp "$1" "$2.$$" && chmod 700 "$2.$$" && mv "$2.$$" "$2" && rm -f "$1"
"#;

/// What the script says that takes a place and made nothing there.
const MADE_NOTHING: i32 = 3;

/// How often a program that arrived damaged is copied.
const COPIES: u32 = 3;

const SAVE: &str = r#"umask 077; cat >"$1""#;

/// What is done at each place.
pub struct Task<'a> {
    /// The plan, as TOML.
    pub plan: &'a str,
    /// How long the run takes.
    pub planned: Duration,
    /// How long a place stays taken when nobody gives it back.
    pub lease: Duration,
    /// How long a place that doesn't answer any more is waited for.
    pub patience: Duration,
    pub journal: &'a FleetJournal,
    pub stop: Stop<'a>,
    pub say: Say<'a>,
    pub machines: &'a Machines,
}

impl fmt::Debug for Task<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Task")
            .field("planned", &self.planned)
            .field("lease", &self.lease)
            .finish_non_exhaustive()
    }
}

/// A job at a place, and how to get there.
pub struct Drive<'a> {
    pub place: &'a FleetPlace,
    pub job: &'a str,
    pub journal: &'a FleetJournal,
    pub stop: Stop<'a>,
    say: Say<'a>,
    shell: Shell,
}

impl fmt::Debug for Drive<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Drive")
            .field("place", &self.place)
            .field("job", &self.job)
            .finish_non_exhaustive()
    }
}

impl<'a> Drive<'a> {
    /// Reaches the place of an earlier job.
    ///
    /// # Errors
    ///
    /// A coordinator doesn't hand it out.
    pub fn reach(
        place: &'a FleetPlace,
        job: &'a str,
        journal: &'a FleetJournal,
        (stop, say): (Stop<'a>, Say<'a>),
    ) -> Result<Drive<'a>, FleetError> {
        Drive::handed_out(place, job, journal, (stop, say), None)
    }

    /// Without a lease for a job that has the place already, as far as its coordinator knows.
    fn handed_out(
        place: &'a FleetPlace,
        job: &'a str,
        journal: &'a FleetJournal,
        (stop, say): (Stop<'a>, Say<'a>),
        lease: Option<Duration>,
    ) -> Result<Drive<'a>, FleetError> {
        let shell = match &place.reach {
            Reach::Labgrid { coordinator, ssh_options } => {
                let reach = coordinator.acquire(&place.name, lease.is_none())?;
                Shell::of(&FleetPlace { reach: reach.with_options(ssh_options), ..place.clone() })
            }
            Reach::Slurm { cluster } => Shell::of_allocation(match lease {
                Some(lease) => {
                    let folder = place.folder.as_deref().unwrap_or_default();
                    Some(cluster.acquire(&place.name, job, folder, lease, stop)?)
                }
                None => slurm::find(&place.name, job, stop)?,
            }),
            _ => Shell::of(place),
        };
        Ok(Drive { place, job, journal, stop, say, shell })
    }

    fn note(&self, step: JobStep) -> Result<(), FleetError> {
        self.journal.step(&self.place.name, self.job, step)
    }

    /// Does all of it; the record is in `record` then. Whether the run came to its end.
    ///
    /// # Errors
    ///
    /// A step fails. What is at the place then is given back, or, when it can't be reached, removed there when the lease
    /// ends.
    pub fn perform(
        place: &'a FleetPlace,
        job: &'a str,
        task: &Task<'a>,
        program: &dyn Fn(&str) -> Result<PathBuf, FleetError>,
        record: &Path,
    ) -> Result<bool, FleetError> {
        let Task { journal, stop, say, .. } = *task;
        journal.step(&place.name, job, JobStep::Asked)?;
        // Refused by a coordinator, there is nothing at the place.
        let handed_out = Drive::handed_out(place, job, journal, (stop, say), Some(task.lease));
        let drive = handed_out.or_else(|e| {
            if !matches!(e, FleetError::Unsettled(_)) {
                journal.step(&place.name, job, JobStep::GivenBack)?;
            }
            Err(e)
        })?;
        let facts = drive.take(task.lease)?;
        let base = facts.base.clone();
        let is_another = task.machines.note(&facts.boot, place);
        let begun = is_another.and_then(|()| drive.send_and_begin(task, &facts, program));
        if begun.as_ref().is_err_and(|e| !e.is_connection()) {
            let _ = drive.give_back(Some(&base));
        }
        begun?;
        let done =
            drive.sit_out(task.planned).and_then(|()| drive.finish(&base, record, task.patience));
        // From here on the run goes on, or its record is there: whatever fails here, it can be collected later.
        if matches!(done, Err(FleetError::Interrupted)) {
            let _ = drive.give_back(Some(&base));
        }
        done
    }

    /// Goes on with a job that another process began. Whether its run came to its end; none when it had not begun, and
    /// nothing is left of it.
    ///
    /// # Errors
    ///
    /// As [`Drive::finish`].
    pub fn resume(
        &self,
        base: Option<&Path>,
        record: &Path,
        patience: Duration,
    ) -> Result<Option<bool>, FleetError> {
        let state = base.map(|base| self.again(|| self.state(base))).transpose();
        match (base, state) {
            (None, _) | (_, Ok(Some(JobState::Copied) | None)) => {
                self.give_back(base).map(|()| None)
            }
            (_, Err(e)) if !e.is_end_of_job() => Err(e),
            (Some(base), _) => self.finish(base, record, patience).map(Some),
        }
    }

    fn take(&self, lease: Duration) -> Result<Facts, FleetError> {
        let folder = self.place.folder.as_deref().unwrap_or_default();
        let seconds = lease.as_secs().max(1);
        let words = [folder, self.job, &seconds.to_string(), self.place.node()];
        // Not to be interrupted: what it began would have to be found again.
        let answer = self.shell.run(include_str!("scripts/take.sh"), &words, &|| false);
        if matches!(answer, Err(FleetError::NotLetIn(_))) {
            self.nothing_is_left()?;
        }
        let answer = answer?;
        if answer.code == MADE_NOTHING {
            self.nothing_is_left()?;
            return answer.success().map(|said| Facts::read(&said));
        }
        let taken = answer.success().and_then(|said| self.taken(Facts::read(&said), seconds));
        match &taken {
            Ok(_) => {}
            Err(FleetError::Taken { .. }) => self.nothing_is_left()?,
            Err(_) => {
                let _ = self.give_back(None);
            }
        }
        taken
    }

    /// Notes that the job has the place, if it has.
    fn taken(&self, facts: Facts, seconds: u64) -> Result<Facts, FleetError> {
        if let Some((holder, seconds)) = facts.held {
            return Err(FleetError::Taken { holder, seconds });
        }
        if !facts.base.is_absolute() {
            return Err(FleetError::Place("its shell did not report the job's folder".to_owned()));
        }
        self.note(JobStep::Taken {
            base: facts.base.clone(),
            machine: facts.machine.clone(),
            kernel: facts.kernel.clone(),
            model: facts.model.clone(),
            lease_seconds: seconds,
        })?;
        Ok(facts)
    }

    fn send_and_begin(
        &self,
        task: &Task<'_>,
        facts: &Facts,
        program: &dyn Fn(&str) -> Result<PathBuf, FleetError>,
    ) -> Result<(), FleetError> {
        let program = program(&facts.machine)?;
        let mut file = File::open(&program).map_err(FleetError::file("read", &program))?;
        let bytes = file.metadata().map_err(FleetError::file("read", &program))?.len();
        let needed_kib = (bytes >> 10) + ROOM_KIB;
        if facts.free_kib < needed_kib {
            return Err(FleetError::Place(format!(
                "{} has {} MiB free, and a job needs {}: make space there, or name another `folder`",
                facts.base.display(),
                facts.free_kib >> 10,
                needed_kib >> 10
            )));
        }
        let hold = Hold::new(&facts.base, self.job)?;
        let path = |name: &str| hold.path(name).display().to_string();
        self.save(task.plan, &path(agent::PLAN))?;
        let sha256 = parcel::sha256_of(&program).map_err(FleetError::file("read", &program))?;
        for n in 1..=COPIES {
            let copy = path(&format!("copy-{n}"));
            self.copy(&mut file, bytes, &copy)?;
            let words = [copy.as_str(), &path(agent::PROGRAM)];
            self.again(|| self.shell.run(INSTALL, &words, self.stop)?.success())?;
            self.note(JobStep::Copied { program_bytes: bytes })?;
            // A try whose answer was lost may have begun: then the next one is told so.
            let begin = || self.ask::<JobState>(&facts.base, "begin", &["--sha256", &sha256]);
            match self.again(begin)? {
                JobState::Copied => return Err(FleetError::NotBegun),
                JobState::Damaged => {}
                _ => return self.note(JobStep::Started),
            }
        }
        Err(FleetError::Place(
            "every copy of rtscope arrived damaged: check the connection and the disk there"
                .to_owned(),
        ))
    }

    /// Copies a file, and goes on where a broken connection left it.
    fn copy(&self, file: &mut File, bytes: u64, to: &str) -> Result<(), FleetError> {
        // Not known after a broken connection; the script then says it, and takes nothing.
        let mut have = Some(0);
        loop {
            let (from, found) = self.again(|| {
                let from = have.take();
                file.seek(SeekFrom::Start(from.unwrap_or(bytes)))
                    .map_err(FleetError::file("read", to))?;
                let length = from.map_or_else(|| "-1".to_owned(), |from| from.to_string());
                let script = include_str!("scripts/copy.sh");
                let said = self.shell.send(script, &[to, &length], file, self.stop)?.success()?;
                let found = said.lines().find_map(|line| line.strip_prefix("have=")?.parse().ok());
                let found = found.filter(|n| *n <= bytes).ok_or_else(|| FleetError::said(&said))?;
                Ok((from, found))
            })?;
            if found == bytes {
                return Ok(());
            }
            if from == Some(found) {
                return Err(FleetError::Place(format!(
                    "the place accepted only {found} of {bytes} bytes: is its disk full?"
                )));
            }
            have = Some(found);
        }
    }

    fn save(&self, text: &str, to: &str) -> Result<(), FleetError> {
        let mut file = tempfile()?;
        file.write_all(text.as_bytes()).map_err(FleetError::file("write", "a temporary file"))?;
        self.again(|| {
            file.rewind().map_err(FleetError::file("read", "a temporary file"))?;
            self.shell.send(SAVE, &[to], &mut file, self.stop)?.success().map(drop)
        })
    }

    /// Asks the program at the place.
    fn ask<T: serde::de::DeserializeOwned>(
        &self,
        base: &Path,
        what: &str,
        words: &[&str],
    ) -> Result<T, FleetError> {
        let base = base.display().to_string();
        let words = [&[&base, self.job, what], words].concat();
        let answer = self.shell.run(ASK, &words, self.stop)?;
        if answer.code == NOT_EXECUTABLE {
            return Err(FleetError::Place(format!(
                "programs can't run in {base} (is it mounted noexec?): name another `folder`"
            )));
        }
        let said = answer.success()?;
        // A greeting of the place's shell comes before it.
        let last = said.trim().lines().next_back().unwrap_or_default();
        if last == GONE {
            return Err(match self.place.reach {
                // It ends a job in order before it says so, for example to preempt it.
                Reach::Slurm { .. } => FleetError::AllocationEnded(
                    "Slurm has ended the processes of its job, or the lease has ended".to_owned(),
                ),
                _ => FleetError::Gone,
            });
        }
        rtscope_model::printable::from_json(last).map_err(|_| FleetError::said(&said))
    }

    /// Tries a step again after a pause while the connection is broken.
    fn again<T>(&self, mut step: impl FnMut() -> Result<T, FleetError>) -> Result<T, FleetError> {
        let (mut tries, mut link) = (0, Link::new(self.say));
        loop {
            match step() {
                Err(e) if e.is_connection() && tries < TRIES => {
                    link.is_down(&e);
                    tries += 1;
                    self.sleep(PAUSE * tries)?;
                }
                Err(e) => return Err(e),
                done => {
                    link.is_up();
                    return done;
                }
            }
        }
    }

    fn sleep(&self, time: Duration) -> Result<(), FleetError> {
        let since = Instant::now();
        while since.elapsed() < time {
            if (self.stop)() {
                return Err(FleetError::Interrupted);
            }
            thread::sleep(Duration::from_millis(100).min(time));
        }
        Ok(())
    }

    /// Waits as long as the plan takes, and asks nothing of the place. Slurm is asked whether the node is still ours.
    fn sit_out(&self, planned: Duration) -> Result<(), FleetError> {
        let since = Instant::now();
        while let Some(left) = planned.checked_sub(since.elapsed()).filter(|left| !left.is_zero()) {
            self.sleep(left.min(ALLOCATION_LOOK))?;
            if self.shell.is_lost() {
                break;
            }
        }
        Ok(())
    }

    /// Waits for the run's end, brings the record and gives the place back. Whether the run came to its end.
    ///
    /// # Errors
    ///
    /// The place can't be reached until the lease is over, or what it says ends the job.
    pub fn finish(
        &self,
        base: &Path,
        record: &Path,
        patience: Duration,
    ) -> Result<bool, FleetError> {
        let end = match self.wait(base, patience) {
            Err(gone) if gone.is_end_of_job() => {
                self.give_back(Some(base))?;
                return Err(gone);
            }
            end => end?,
        };
        self.note(JobStep::Ended { end: end.clone() })?;
        if let Some(above) = record.parent() {
            std::fs::create_dir_all(above).map_err(FleetError::file("make", above))?;
        }
        // What arrived damaged is sent again, once.
        let bytes = match self.collect(base, record) {
            Err(FleetError::Parcel(_)) => self.collect(base, record),
            bytes => bytes,
        };
        if bytes.as_ref().is_err_and(FleetError::is_end_of_job) {
            self.give_back(Some(base))?;
        }
        let bytes = bytes?;
        if bytes == 0 {
            self.give_back(Some(base))?;
            return Err(FleetError::Place(agent::why_no_record(end.as_ref())));
        }
        let is_whole = end.is_some_and(|end| end.exit_code.is_some());
        let below = record.strip_prefix(self.journal.folder()).unwrap_or(record).to_owned();
        self.note(JobStep::Collected { record: below, bytes, is_whole })?;
        self.give_back(Some(base))?;
        Ok(is_whole)
    }

    /// How the run ended; none when it was cut.
    fn wait(&self, base: &Path, patience: Duration) -> Result<Option<RunEnd>, FleetError> {
        let (mut link, [mut pause, pause_max]) = (Link::new(self.say), LOOKS);
        loop {
            let state = self.state(base);
            if state.is_ok() {
                link.is_up();
            }
            match state {
                Ok(JobState::Ended(end)) => return Ok(Some(end)),
                Ok(JobState::Cut) => return Ok(None),
                Ok(JobState::Running) => {}
                Ok(JobState::Copied | JobState::Damaged) => {
                    return Err(FleetError::Place("the run never began there".to_owned()));
                }
                Err(e) if e.is_connection() && link.age() < patience => link.is_down(&e),
                Err(e) => return Err(e),
            }
            self.sleep(pause)?;
            pause = (pause * 2).min(pause_max);
        }
    }

    /// Brings the record; how many bytes it has.
    fn collect(&self, base: &Path, record: &Path) -> Result<u64, FleetError> {
        let manifest = self.again(|| self.ask::<RecordManifest>(base, "list", &[]))?;
        let bytes = manifest.bytes();
        if bytes == 0 {
            return Ok(0);
        }
        let base_text = base.display().to_string();
        let mut arrival = RecordArrival::open(record, manifest)?;
        let mut tries = 0;
        let mut link = Link::new(self.say);
        while arrival.rest()?.1 > 0 {
            let before = arrival.arrived()?;
            let offset = before.to_string();
            let words = [base_text.as_str(), self.job, "send", "--offset", &offset];
            let (file, missing) = arrival.rest()?;
            let answer = self.shell.receive(ASK, &words, (file, missing), self.stop);
            // How it ended doesn't matter while something arrives.
            if arrival.arrived()? > before {
                link.is_up();
                tries = 0;
                continue;
            }
            tries += 1;
            match answer {
                Err(e) if !e.is_connection() || tries > TRIES => return Err(e),
                Ok(_) if tries > TRIES => {
                    return Err(FleetError::Connection(format!(
                        "{missing} bytes of the record are missing"
                    )));
                }
                answer => {
                    if let Err(why) = answer {
                        link.is_down(&why);
                    }
                    self.sleep(PAUSE * tries)?;
                }
            }
        }
        arrival.unpack().map(|()| bytes)
    }

    /// How far the job is.
    ///
    /// # Errors
    ///
    /// The place can't be reached, or doesn't have the job any more.
    pub fn state(&self, base: &Path) -> Result<JobState, FleetError> {
        self.ask(base, "state", &[])
    }

    /// Removes everything at the place; without a base, what a try left that got no answer.
    ///
    /// # Errors
    ///
    /// It can't be reached: then its own keeper does it when the lease ends.
    pub fn give_back(&self, base: Option<&Path>) -> Result<(), FleetError> {
        // Also when the user ends everything: this is how it ends.
        let patient = Drive { stop: &|| false, shell: self.shell.clone(), ..*self };
        let released = base.map(|base| patient.ask::<serde_json::Value>(base, "release", &[]));
        // Cancelling Slurm's job removes everything as well.
        let is_slurm = matches!(self.place.reach, Reach::Slurm { .. });
        match released {
            _ if is_slurm => {}
            // Not to be taken away from a keeper that still ends its run: two runs at a time would disturb each other.
            Some(Ok(serde_json::Value::Bool(false))) => {
                return Err(FleetError::Unsettled("the run there doesn't end".to_owned()));
            }
            Some(Ok(_)) => {}
            Some(Err(_)) | None => {
                let base = base.map(|base| base.display().to_string()).unwrap_or_default();
                let folder = self.place.folder.as_deref().unwrap_or_default();
                let (drop, words) = (include_str!("scripts/drop.sh"), [&base, self.job, folder]);
                patient.again(|| patient.shell.run(drop, &words, patient.stop)?.success())?;
            }
        }
        patient.nothing_is_left()
    }

    /// Nothing of the job is at the place any more: a coordinator gets it back.
    fn nothing_is_left(&self) -> Result<(), FleetError> {
        match &self.place.reach {
            Reach::Labgrid { coordinator, .. } => {
                self.again(|| coordinator.release(&self.place.name))?;
            }
            Reach::Slurm { .. } => self.again(|| slurm::release(self.job))?,
            Reach::Local | Reach::Ssh { .. } => {}
        }
        self.note(JobStep::GivenBack)
    }
}

/// A file without a name, in memory.
fn tempfile() -> Result<File, FleetError> {
    let made = rustix::fs::memfd_create("plan", rustix::fs::MemfdFlags::CLOEXEC);
    made.map(File::from).map_err(|e| FleetError::file("write", "a file in memory")(e.into()))
}

#[cfg(test)]
#[path = "drive_tests.rs"]
mod tests;
