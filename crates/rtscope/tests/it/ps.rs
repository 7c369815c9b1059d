//! `rtscope ps`: threads as they are, and a change that is read back or refused.

use std::process::{Child, Command};

use crate::support::{folder, json, output, root_or_skip, text};

/// A process that is ended with the value.
struct ChildProcess(Child);

impl ChildProcess {
    fn start(program: &str, argument: &str) -> ChildProcess {
        let child = Command::new(program).args(argument.split_whitespace()).spawn();
        ChildProcess(child.expect("a standard program"))
    }

    fn tid(&self) -> u32 {
        self.0.id()
    }
}

impl Drop for ChildProcess {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_changed_thread_is_shown_as_it_was_changed_and_goes_back() {
    if !root_or_skip("a_changed_thread_is_shown_as_it_was_changed_and_goes_back") {
        return;
    }
    let folder = folder();
    let subject = ChildProcess::start("sleep", "60");
    let tid = subject.tid();
    let set = format!("ps --set {tid} --policy rr --priority 7 --cpus 0 --look 20ms");
    let said = output(folder.path(), &set);
    assert!(said.status.success(), "{}", text(&said.stderr));
    let said = text(&said.stdout);
    assert!(said.contains("-> rr 7 on CPU 0"), "{said}");

    let shown = json(folder.path(), &format!("ps --pid {tid} --look 20ms --json"));
    let thread = &shown["threads"][0];
    assert_eq!(shown["threads"].as_array().map(Vec::len), Some(1));
    assert_eq!((&thread["policy"], &thread["priority"]), (&"rr".into(), &7.into()));
    assert_eq!((&thread["cpus"], &thread["name"]), (&"0".into(), &"sleep".into()));
    assert_eq!(thread["look"]["cpu_ns"], 0);
    for (above, count) in [(6, 1), (7, 0)] {
        let shown =
            json(folder.path(), &format!("ps --pid {tid} --above {above} --look 5ms --json"));
        assert_eq!(shown["threads"].as_array().map(Vec::len), Some(count), "above {above}");
    }

    let goes_back = |said: &str| {
        let back = said.split_once("To go back: rtscope ").expect("the way back").1.trim();
        assert!(output(folder.path(), back).status.success());
        json(folder.path(), &format!("ps --pid {tid} --look 5ms --json"))["threads"][0].clone()
    };
    let before = goes_back(&said);
    assert_eq!(before["policy"], "other");
    let said = output(folder.path(), &format!("ps --set {tid} --nice 5 --look 5ms"));
    let after = goes_back(&text(&said.stdout));
    let nice = |thread: &serde_json::Value| thread["nice"].as_i64().unwrap_or(0);
    assert!(nice(&before) != 5 && nice(&after) == nice(&before), "{before} {after}");
}

#[test]
fn a_thread_or_cpu_that_is_not_there_is_said_in_words() {
    let folder = folder();
    let own = std::process::id();
    for (line, said) in [
        (format!("ps --set {own} --cpus 4095"), "--cpus 4095: not online; this machine has CPU"),
        ("ps --set 99999999 --nice 5".to_owned(), "there is no thread with this ID"),
    ] {
        let refused = output(folder.path(), &line);
        let told = text(&refused.stderr);
        assert_eq!(refused.status.code(), Some(64), "{line}: {told}");
        assert!(told.contains(said), "{line}: {told}");
    }
}

#[test]
fn what_would_starve_the_machine_is_refused() {
    if !root_or_skip("what_would_starve_the_machine_is_refused") {
        return;
    }
    let folder = folder();
    let subject = ChildProcess::start("sleep", "60");
    let tid = subject.tid();
    let set = format!("ps --set {tid} --policy fifo --priority 99 --look 5ms");
    let refused = output(folder.path(), &set);
    assert_eq!(refused.status.code(), Some(64));
    assert!(text(&refused.stderr).contains("--force"), "{}", text(&refused.stderr));
    let shown = json(folder.path(), &format!("ps --pid {tid} --look 5ms --json"));
    assert_eq!(shown["threads"][0]["policy"], "other", "a refusal changes nothing");
    // A thread that sleeps starves nobody: forced, it may have it.
    assert!(output(folder.path(), &(set + " --force")).status.success());
    let shown = json(folder.path(), &format!("ps --pid {tid} --look 5ms --json"));
    assert_eq!(shown["threads"][0]["priority"], 99);
}

#[test]
fn the_kernels_own_threads_say_what_they_are_for() {
    let folder = folder();
    let shown = json(folder.path(), "ps --kernel --name ksoftirqd/0 --look 5ms --json");
    let Some(thread) = shown["threads"].as_array().and_then(|all| all.first()) else {
        // A container shows no kernel threads.
        return crate::support::skip(
            "the_kernels_own_threads_say_what_they_are_for",
            "no kernel threads here",
        );
    };
    assert_eq!(thread["kernel"], true);
    assert!(thread["role"].as_str().is_some_and(|role| role.contains("softirq")), "{thread}");
    let table = text(&output(folder.path(), "ps --kernel --name ksoftirqd/0 --look 5ms").stdout);
    assert!(table.contains("[ksoftirqd/0]"), "{table}");
}

#[test]
fn a_watch_shows_as_many_looks_as_asked() {
    let folder = folder();
    let own = std::process::id();
    let watch = format!("ps --pid {own} --watch 20ms --count 3 --json");
    let shown = text(&output(folder.path(), &watch).stdout);
    let looks = serde_json::Deserializer::from_str(&shown).into_iter::<serde_json::Value>();
    assert_eq!(
        looks.map(|look| look.expect("a document")["look_ns"].is_u64()).collect::<Vec<_>>(),
        [true; 3]
    );
}
