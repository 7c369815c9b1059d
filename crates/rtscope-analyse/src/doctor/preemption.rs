//! Whether a kernel is `PREEMPT_RT`, from several sources.
//!
//! The kernel's name isn't among them. Mainline `PREEMPT_RT`, since Linux 6.12, has neither `-rt` in its name nor the
//! file `/sys/kernel/realtime`.

use rtscope_model::{
    doctor::{FileValue, MachineFacts, PreemptionProof},
    environment::{Environment, Preemption},
};

/// Kernel threads that only `PREEMPT_RT` starts: those of `irq_work` (since 5.16) and of timers.
const THREADS: [&str; 3] = ["irq_work", "ktimers", "ktimersoftd"];

/// The sources for and against.
pub(super) fn proof(facts: &MachineFacts) -> PreemptionProof {
    let environment = &facts.environment;
    let mut proof = PreemptionProof::default();
    let mut add = |speaks_for: bool, file: &str, value: String| {
        let side = if speaks_for { &mut proof.real_time } else { &mut proof.not_real_time };
        side.push(FileValue { file: file.to_owned(), value });
    };
    let kernel = &environment.kernel;
    if !kernel.version.is_empty() {
        add(names_rt(&kernel.version), BUILD, kernel.version.clone());
    }
    if !kernel.config.is_empty() {
        let option = ["PREEMPT_RT", "PREEMPT_RT_FULL"]
            .into_iter()
            .find(|option| kernel.config.get(*option).is_some_and(|value| value == "y"));
        let value = option.map_or("CONFIG_PREEMPT_RT is not set".to_owned(), |option| {
            format!("CONFIG_{option}=y")
        });
        add(option.is_some(), kernel.config_source.as_deref().unwrap_or("configuration"), value);
    }
    if let Some(text) = facts.text("sys/kernel/realtime") {
        add(text == "1", MARK, text.to_owned());
    }
    if let Some((is_rt, name)) = behaviour(environment) {
        add(is_rt, THREAD_NAMES, name);
    }
    proof.model = match (environment.kernel.preemption, is_denied(&proof)) {
        (Preemption::RealTime, true) => "PREEMPT_RT not confirmed".to_owned(),
        (model, _) => model.word().to_owned(),
    };
    proof
}

/// Names of sources that the running kernel answers itself. A configuration can be that of another kernel.
const BUILD: &str = "uname -v";
const MARK: &str = "/sys/kernel/realtime";
const THREAD_NAMES: &str = "kernel threads";

/// Whether the running kernel says that it isn't `PREEMPT_RT`, and nothing in it says that it is. Its threads don't
/// decide this alone: a missing thread is weaker than the build string, which is there on every running kernel.
fn is_denied(proof: &PreemptionProof) -> bool {
    let runs = |one: &FileValue| [BUILD, MARK, THREAD_NAMES].contains(&one.file.as_str());
    proof.not_real_time.iter().any(|one| one.file == BUILD) && !proof.real_time.iter().any(runs)
}

/// The preemption model. Where only a configuration says `PREEMPT_RT`, it is the one that the build string shows.
pub(super) fn model(facts: &MachineFacts) -> Preemption {
    let kernel = &facts.environment.kernel;
    if kernel.preemption != Preemption::RealTime || !is_denied(&proof(facts)) {
        return kernel.preemption;
    }
    let words: Vec<&str> = kernel.version.split_whitespace().collect();
    match () {
        () if words.contains(&"PREEMPT_DYNAMIC") => Preemption::Dynamic,
        () if words.contains(&"PREEMPT") => Preemption::Full,
        // Neither model is in the build string: the one that preempts less often can't be excluded.
        () => Preemption::Voluntary,
    }
}

/// Whether the build string says so. Patches before 5.x wrote two words.
fn names_rt(version: &str) -> bool {
    let words: Vec<&str> = version.split_whitespace().collect();
    words.contains(&"PREEMPT_RT") || words.windows(2).any(|pair| pair == ["PREEMPT", "RT"])
}

/// The first two numbers of the release: `(6, 12)`.
pub(super) fn version(environment: &Environment) -> Option<(u32, u32)> {
    let mut numbers = environment.kernel.release.split(|c: char| !c.is_ascii_digit());
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}

/// What the kernel's own threads show; none where they can't be seen, or where an old kernel shows nothing.
fn behaviour(environment: &Environment) -> Option<(bool, String)> {
    let threads = || environment.real_time_threads.iter().filter(|thread| thread.kernel);
    let stem = |name: &str| name.split('/').next().unwrap_or_default().to_owned();
    if let Some(thread) = threads().find(|thread| THREADS.contains(&stem(&thread.name).as_str())) {
        return Some((true, thread.name.clone()));
    }
    let is_new = version(environment)? >= (5, 16);
    let are_seen = threads().any(|thread| stem(&thread.name) == "migration");
    (is_new && are_seen).then(|| (false, "no thread irq_work/N".to_owned()))
}

#[cfg(test)]
mod tests {
    use rtscope_model::{
        environment::{Kernel, RealTimeThread},
        schedule::Policy,
    };

    use super::*;

    fn facts(version: &str, threads: &[&str]) -> MachineFacts {
        let kernel = Kernel {
            release: "6.12.9".to_owned(),
            version: version.to_owned(),
            ..Kernel::default()
        };
        let thread = |name: &&str| RealTimeThread {
            pid: 2,
            tid: 2,
            name: (*name).to_owned(),
            process: None,
            policy: Policy::Fifo,
            priority: 1,
            cpus: "0".parse().expect("a set"),
            kernel: true,
        };
        let real_time_threads = threads.iter().map(thread).collect();
        let environment = Environment { kernel, real_time_threads, ..Environment::default() };
        MachineFacts { environment, ..MachineFacts::default() }
    }

    #[test]
    fn a_configuration_of_another_kernel_does_not_make_it_real_time() {
        let decided = |version: &str, threads: &[&str]| {
            let mut facts = facts(version, threads);
            facts.environment.kernel.preemption = Preemption::RealTime;
            facts.environment.kernel.config =
                [("PREEMPT_RT".to_owned(), "y".to_owned())].into_iter().collect();
            (model(&facts), proof(&facts).model)
        };
        let denied = |model| (model, "PREEMPT_RT not confirmed".to_owned());
        assert_eq!(decided("#1 SMP PREEMPT", &["migration/0"]), denied(Preemption::Full));
        assert_eq!(decided("#1 SMP PREEMPT_DYNAMIC", &[]), denied(Preemption::Dynamic));
        let real = (Preemption::RealTime, "PREEMPT_RT".to_owned());
        assert_eq!(decided("#1 SMP PREEMPT_RT", &[]), real);
        assert_eq!(decided("#1 SMP", &["irq_work/0"]), real);
        assert_eq!(decided("", &["migration/0"]), real);
    }

    #[test]
    fn the_kernels_threads_prove_what_it_is() {
        let sides = |facts: &MachineFacts| {
            let proof = proof(facts);
            (proof.real_time.len(), proof.not_real_time.len())
        };
        assert_eq!(sides(&facts("#1 SMP PREEMPT_RT", &["migration/0", "irq_work/0"])), (2, 0));
        assert_eq!(sides(&facts("#1 SMP PREEMPT_DYNAMIC", &["migration/0"])), (0, 2));
        // A container doesn't see them.
        assert_eq!(sides(&facts("#1 SMP PREEMPT_RT", &[])), (1, 0));
        assert_eq!(sides(&MachineFacts::default()), (0, 0));
    }
}
