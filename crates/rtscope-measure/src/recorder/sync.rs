//! Has the record taken to the disk while it runs, so that a machine that locks up, as it may in a long
//! test, loses no more than the last 10 s; and does other work that waits for the disk.
//!
//! A thread of its own does it and waits for the disk; the control thread never does. It has ordinary priority and
//! the control thread's CPUs, so that it is no part of what is measured.

use std::{
    fs::File,
    sync::{
        Arc,
        mpsc::{Receiver, RecvTimeoutError, Sender, channel},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use rtscope_model::{
    cpu::CpuSet,
    schedule::{Placement, Policy},
};
use rtscope_sys::{sched, thread::block_signals};

/// Time between two rounds: half of what may be lost, the other half is for a slow disk.
const EVERY: Duration = Duration::from_secs(5);

/// The thread's stack: memory of a run is locked.
const STACK_BYTES: usize = 256 << 10;

/// What the thread is to do.
enum Task {
    /// Another file or folder to sync.
    Add(Arc<File>),
    /// One that need not be synced any more.
    Forget(Arc<File>),
    /// The CPUs to run on.
    Move(CpuSet),
    /// Work that waits for the disk.
    Run(Box<dyn FnOnce() + Send>),
}

/// Syncs files, each in every round, and does other work between rounds. Dropping it waits for a last round.
#[derive(Debug)]
pub(super) struct Syncer {
    tasks: Option<Sender<Task>>,
    /// None when the kernel gave no thread: it then writes the files when it likes to.
    thread: Option<JoinHandle<()>>,
}

impl Syncer {
    pub(super) fn start() -> Syncer {
        // A file that can't be synced can't be written either: that is told by the write.
        Syncer::with(EVERY, |file| drop(file.sync_data()))
    }

    pub(super) fn with(every: Duration, sync: impl Fn(&File) + Send + 'static) -> Syncer {
        let (tasks, given) = channel();
        let work = move || {
            block_signals();
            be_ordinary();
            serve(&given, every, sync);
        };
        let builder = thread::Builder::new().name("rtscope-sync".to_owned());
        let thread = builder.stack_size(STACK_BYTES).spawn(work).ok();
        Syncer { tasks: Some(tasks), thread }
    }

    /// Syncs a file or folder from now on.
    pub(super) fn add(&self, file: Arc<File>) {
        self.send(Task::Add(file));
    }

    /// Leaves a file out of the rounds to come.
    pub(super) fn forget(&self, file: Arc<File>) {
        self.send(Task::Forget(file));
    }

    /// Moves the thread to other CPUs.
    pub(super) fn move_to(&self, cpus: &CpuSet) {
        self.send(Task::Move(cpus.clone()));
    }

    /// Has work done by the thread. Its result never comes where there is no thread.
    pub(super) fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Receiver<T> {
        let (done, result) = channel();
        self.send(Task::Run(Box::new(move || drop(done.send(work())))));
        result
    }

    fn send(&self, task: Task) {
        // Without a thread nobody listens.
        if let Some(tasks) = &self.tasks {
            let _ = tasks.send(task);
        }
    }
}

impl Drop for Syncer {
    fn drop(&mut self) {
        self.tasks = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// A thread begins with the policy of the one that starts it, which may be a real-time one.
fn be_ordinary() {
    let Ok(own) = sched::placement(sched::SELF) else { return };
    if own.policy.is_real_time() {
        let ordinary =
            Placement { policy: Policy::Other, priority: 0, nice: 0, budget: None, ..own };
        let _ = sched::set_policy(sched::SELF, &ordinary);
    }
}

fn serve(tasks: &Receiver<Task>, every: Duration, sync: impl Fn(&File)) {
    let mut files: Vec<Arc<File>> = Vec::new();
    let mut next = Instant::now() + every;
    loop {
        match tasks.recv_timeout(next.saturating_duration_since(Instant::now())) {
            Ok(Task::Add(file)) => files.push(file),
            Ok(Task::Forget(file)) => files.retain(|known| !Arc::ptr_eq(known, &file)),
            Ok(Task::Move(cpus)) => drop(sched::set_affinity(sched::SELF, &cpus)),
            // One at a time, so that the next round is not late.
            Ok(Task::Run(work)) => work(),
            Err(ended) => {
                files.iter().for_each(|file| sync(file));
                if ended == RecvTimeoutError::Disconnected {
                    return;
                }
                next = Instant::now() + every;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    const NEVER: Duration = Duration::from_secs(1 << 30);

    fn file() -> Arc<File> {
        Arc::new(tempfile::tempfile().expect("a file"))
    }

    fn tells(to: Sender<()>) -> impl Fn(&File) {
        move |_| {
            let _ = to.send(());
        }
    }

    #[test]
    fn every_file_is_synced_again_and_again_and_once_more_at_the_end() {
        let (tell, told) = channel();
        let syncer = Syncer::with(Duration::from_millis(1), tells(tell));
        syncer.add(file());
        (0..3).for_each(|_| told.recv().expect("a round"));
        drop(syncer);
        let (tell, told) = channel();
        let syncer = Syncer::with(NEVER, tells(tell));
        (0..2).for_each(|_| syncer.add(file()));
        drop(syncer);
        assert_eq!(told.iter().count(), 2, "a last round");
    }

    #[test]
    fn a_disk_that_does_not_answer_holds_up_nobody() {
        let (open, gate) = channel::<()>();
        let gate = Mutex::new(gate);
        let (tell, told) = channel();
        let sync = move |_: &File| {
            let _ = tell.send(());
            // Until the other end is gone.
            let _ = gate.lock().map(|gate| gate.recv());
        };
        let syncer = Syncer::with(Duration::from_millis(1), sync);
        syncer.add(file());
        told.recv().expect("it waits for the disk");
        // Would wait without end if it waited for the disk.
        (0..100).for_each(|_| syncer.add(file()));
        drop(open);
        drop(syncer);
        assert!(told.iter().count() >= 101, "the last round has them all");
    }

    #[test]
    fn it_is_an_ordinary_thread_on_the_cpus_it_is_given() {
        let cpu = sched::affinity(sched::SELF).expect("CPUs").iter().next().expect("a CPU");
        let cpus: CpuSet = [cpu].into_iter().collect();
        let fifo = Placement {
            policy: Policy::Fifo,
            priority: 1,
            nice: 0,
            budget: None,
            cpus: cpus.clone(),
        };
        // Where that isn't allowed, there is nothing to inherit.
        let _ = sched::set_policy(sched::SELF, &fifo);
        let (tell, told) = channel();
        let place = move |_: &File| drop(tell.send(sched::placement(sched::SELF)));
        let syncer = Syncer::with(NEVER, place);
        syncer.move_to(&cpus);
        syncer.add(file());
        drop(syncer);
        let found = told.recv().expect("a round").expect("readable");
        assert_eq!((found.policy, found.cpus), (Policy::Other, cpus));
    }
}
