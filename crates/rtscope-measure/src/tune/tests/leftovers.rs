//! What a run that died left behind, and who puts it back.

use super::*;

#[test]
fn what_a_dead_run_left_is_restored_last_first() {
    let bench = Bench::new();
    bench.fake.file(THROTTLING, "-1\n");
    bench.fake.file(MIGRATION, "0\n");
    bench.left(
        &(line("throttling", THROTTLING, "950000", "-1")
            + &line("timer-migration", MIGRATION, "1", "0")),
    );
    let error = bench.refused(&[("throttling", "off")]).to_string();
    assert!(error.contains("rtscope restore"), "{error}");
    let restored = bench.restore();
    let told: Vec<(&str, &str, Option<&str>)> =
        restored.iter().map(|r| (r.setting.as_str(), r.to.as_str(), r.error.as_deref())).collect();
    assert_eq!(told, [("timer-migration", "1", None), ("throttling", "950000", None)]);
    assert_eq!(bench.fake.read(THROTTLING), "950000");
    assert_eq!(bench.journals(), [""; 0]);
    assert_eq!(bench.restore(), []);
}

#[test]
fn a_process_that_panics_restores_its_own_settings_and_leaves_those_of_others() {
    let bench = Bench::new();
    let applied = bench.applied(&[("throttling", "off")]);
    bench.fake.file(MIGRATION, "0\n");
    bench.left(&line("timer-migration", MIGRATION, "1", "0"));
    let [restored] = restore_own(&bench.fake.tree, bench.journals.path()).try_into().expect("one");
    assert_eq!((restored.setting.as_str(), restored.error), ("throttling", None));
    assert_eq!(bench.fake.read(THROTTLING), "950000");
    assert_eq!((bench.fake.read(MIGRATION).trim(), bench.journals().len()), ("0", 1));
    // Where a panic unwinds, the values that hold settings are dropped after its hook.
    drop(applied);
    assert_eq!(bench.fake.read(THROTTLING), "950000");
}

#[test]
fn a_run_that_died_before_it_changed_anything_leaves_nothing_to_do() {
    let bench = Bench::new();
    bench.left(&line("throttling", THROTTLING, "950000", "-1"));
    assert_eq!(bench.restore(), []);
    assert_eq!(bench.fake.read(THROTTLING), "950000");
    assert_eq!(bench.journals(), [""; 0]);
}

/// Its files go with it. When it is back, the kernel has kept what was written.
#[test]
fn what_is_about_a_cpu_that_is_offline_waits_for_it() {
    let bench = Bench::new();
    let path = "sys/devices/system/cpu/cpu3/cpufreq/scaling_governor";
    bench.fake.file("sys/devices/system/cpu/cpu3/online", "0\n");
    bench.left(&line("governor", path, "powersave", "performance"));
    let [restored] = bench.restore().try_into().expect("one");
    assert!(restored.error.is_some_and(|error| error.starts_with("CPU 3 is offline")));
    bench.fake.file("sys/devices/system/cpu/cpu3/online", "1\n");
    bench.fake.file(path, "performance\n");
    let [restored] = bench.restore().try_into().expect("one");
    assert_eq!((restored.error, bench.fake.read(path).trim()), (None, "powersave"));
    assert_eq!(bench.journals(), [""; 0]);
    // The idle states of a CPU that comes back are as after a boot.
    bench.fake.file("sys/devices/system/cpu/cpu3/online", "0\n");
    bench.left(&line("idle-state", "sys/devices/system/cpu/cpu3/cpuidle/state1/disable", "0", "1"));
    assert_eq!((bench.restore(), bench.journals().len()), (Vec::new(), 0));
}

#[test]
fn a_process_with_the_same_number_is_another_one() {
    let bench = Bench::new();
    bench.fake.file(THROTTLING, "-1\n");
    let name = format!("{}-1.jsonl", std::process::id());
    let text = line("throttling", THROTTLING, "950000", "-1");
    fs::write(bench.journals.path().join(name), text).expect("a journal");
    assert_eq!(bench.restore().len(), 1);
    assert_eq!(bench.fake.read(THROTTLING), "950000");
}

#[test]
fn what_somebody_else_changed_since_is_left_alone() {
    let bench = Bench::new();
    bench.fake.file(THROTTLING, "800000\n");
    bench.left(&line("throttling", THROTTLING, "950000", "-1"));
    let [restored] = bench.restore().try_into().expect("one");
    let text = restored.to_string();
    assert!(text.contains("800000") && text.contains("the original value was 950000"), "{text}");
    assert_eq!(bench.fake.read(THROTTLING), "800000");
    assert_eq!(bench.journals(), [""; 0]);

    let applied = bench.applied(&[("throttling", "off")]);
    bench.fake.file(THROTTLING, "700000\n");
    let mut events = Vec::new();
    applied.restore(&mut |event| events.push(event));
    let [Event::Found(finding)] = events.as_slice() else { panic!("{events:?}") };
    assert_eq!(finding.code, "setting-changed-elsewhere");
    assert_eq!(bench.fake.read(THROTTLING), "700000");
}

#[test]
fn a_restore_that_fails_names_the_command_and_keeps_the_journal() {
    let bench = Bench::new();
    fs::remove_file(bench.fake.tree.path(MIGRATION)).expect("removed");
    bench.fake.link(MIGRATION, REFUSES);
    let version = bench.fake.read(MIGRATION);
    bench.left(&line("timer-migration", MIGRATION, "1", &version));
    let command = format!("echo 1 > {}", bench.fake.tree.path(MIGRATION).display());
    for _ in 0..2 {
        let [restored] = bench.restore().try_into().expect("one");
        let error = restored.error.expect("not restored");
        assert!(error.contains(&command), "{error}");
        assert_eq!(bench.journals(), [NOBODY]);
    }

    let bench = Bench::new();
    let applied = bench.applied(&[("throttling", "off")]);
    fs::remove_file(bench.fake.tree.path(THROTTLING)).expect("removed");
    fs::create_dir(bench.fake.tree.path(THROTTLING)).expect("in its place");
    let mut events = Vec::new();
    applied.restore(&mut |event| events.push(event));
    let [Event::Found(finding)] = events.as_slice() else { panic!("{events:?}") };
    assert!(finding.advice.contains("echo 950000 > "), "{finding:?}");
    assert_eq!(bench.journals().len(), 1);
}

#[test]
fn what_was_restored_beside_a_failure_is_not_restored_again() {
    let bench = Bench::new();
    fs::remove_file(bench.fake.tree.path(MIGRATION)).expect("removed");
    bench.fake.link(MIGRATION, REFUSES);
    let version = bench.fake.read(MIGRATION);
    let off = || bench.fake.file(THROTTLING, "-1\n");
    off();
    let both = line("throttling", THROTTLING, "950000", "-1")
        + &line("timer-migration", MIGRATION, "1", &version);
    bench.left(&both);
    assert_eq!(bench.restore().len(), 2);
    assert_eq!(bench.fake.read(THROTTLING), "950000");
    // Days later somebody switches it off.
    off();
    let [failed] = bench.restore().try_into().expect("one is left to do");
    assert_eq!(failed.setting, "timer-migration");
    assert_eq!(
        (bench.fake.read(THROTTLING).as_str(), bench.journals()),
        ("-1", vec![NOBODY.to_owned()])
    );
    // The same of a run that restores its own.
    let bench = Bench::new();
    let applied = bench.applied(&[("throttling", "off"), ("thp", "never")]);
    fs::remove_file(bench.fake.tree.path(HUGE)).expect("removed");
    fs::create_dir(bench.fake.tree.path(HUGE)).expect("in its place");
    applied.restore(&mut |_| {});
    let [name] = bench.journals().try_into().expect("one journal");
    let text = fs::read_to_string(bench.journals.path().join(name)).expect("a journal");
    assert!(text.contains("\"thp\"") && !text.contains("\"throttling\""), "{text}");
}

#[test]
fn a_file_that_went_away_needs_no_restore() {
    let bench = Bench::new();
    let path = "proc/irq/9/smp_affinity_list";
    bench.fake.file(path, "0-3\n");
    let applied = bench.applied(&[("irq-affinity", "0")]);
    fs::remove_file(bench.fake.tree.path(path)).expect("removed");
    let mut events = Vec::new();
    applied.restore(&mut |event| events.push(event));
    let [Event::Found(finding)] = events.as_slice() else { panic!("{events:?}") };
    assert_eq!(finding.code, "setting-gone");
    assert_eq!(bench.journals(), [""; 0]);
    bench.left(&line("irq-affinity", path, "0-3", "0"));
    assert_eq!(bench.restore(), []);
    assert_eq!(bench.journals(), [""; 0]);
}

#[test]
fn the_command_that_repairs_is_safe_to_type() {
    let change = Change::file("thp", HUGE, "it's; rm", "never");
    assert_eq!(change.repair_command(&Tree::default()), format!(r"echo 'it'\''s; rm' > /{HUGE}"));
}

#[test]
fn damaged_lines_are_reported_once_and_the_rest_is_restored() {
    let bench = Bench::new();
    bench.fake.file(THROTTLING, "-1\n");
    bench.fake.file("etc/passwd", "new\n");
    bench.left(
        &("{\"setting\":12}\n".to_owned()
            + &line("throttling", THROTTLING, "950000", "-1")
            + &line("throttling", "etc/passwd", "evil", "new")
            + "\u{fffd}\0\n"),
    );
    let restored = bench.restore();
    let damaged: Vec<&str> = restored
        .iter()
        .filter(|restored| restored.setting == "journal")
        .filter_map(|restored| restored.error.as_deref())
        .collect();
    let lines: Vec<&str> = damaged.iter().filter_map(|text| text.get(..6)).collect();
    assert_eq!(lines, ["line 1", "line 3", "line 4"]);
    assert!(damaged[1].contains("etc/passwd is not a file of throttling"), "{damaged:?}");
    assert_eq!(bench.fake.read("etc/passwd"), "new");
    assert_eq!(bench.fake.read(THROTTLING), "950000");
    assert_eq!(bench.journals(), ["4194999-1.damaged"]);
    assert_eq!(bench.restore(), []);
}

#[test]
fn a_run_that_was_killed_while_it_wrote_its_journal_leaves_nothing_to_do() {
    let bench = Bench::new();
    let part = bench.journals.path().join(format!("{NOBODY}.part"));
    fs::write(part, line("throttling", THROTTLING, "950000", "-1")).expect("a part");
    assert_eq!(bench.restore(), []);
    assert_eq!(bench.fake.read(THROTTLING), "950000");
    assert_eq!(bench.journals(), [""; 0]);
}

/// A journal has its name only when it is whole, so one with a torn line was damaged later.
#[test]
fn a_torn_journal_is_reported_wherever_it_was_cut() {
    let first = line("throttling", THROTTLING, "950000", "-1");
    let whole = first.clone() + &line("thp", HUGE, "madvise", "never");
    // A journal of an older version doesn't say how many changes it has. At the end of a line, and without its newline,
    // nothing can be seen.
    let ends = [first.len() - 1, first.len(), whole.len() - 1];
    for length in (0..whole.len()).filter(|length| !ends.contains(length)) {
        let bench = Bench::new();
        bench.fake.file(THROTTLING, "-1\n");
        bench.left(&whole[..length]);
        let restored = bench.restore();
        let torn = |one: &Restored| one.setting == "journal" && one.error.is_some();
        assert!(restored.iter().any(torn), "{length} bytes: {restored:?}");
        let expected = if length < first.len() { "-1" } else { "950000" };
        assert_eq!(bench.fake.read(THROTTLING), expected, "{length} bytes");
        assert_eq!(bench.journals(), ["4194999-1.damaged"], "{length} bytes");
    }
}

#[test]
fn a_journal_that_lacks_whole_lines_is_reported() {
    let bench = Bench::new();
    let applied = bench.applied(&[("throttling", "off"), ("thp", "never")]);
    let [own] = bench.journals().try_into().expect("one journal");
    let whole = fs::read_to_string(bench.journals.path().join(own)).expect("a journal");
    drop(applied);
    for kept in 1..=2 {
        bench.left(&whole.split_inclusive('\n').take(kept).collect::<String>());
        let restored = bench.restore();
        let cut =
            |one: &Restored| one.error.as_deref().is_some_and(|why| why.contains("it was cut"));
        assert!(restored.iter().any(cut), "{kept}: {restored:?}");
        let aside = bench.journals.path().join("4194999-1.damaged");
        assert_eq!(damaged(bench.journals.path()), std::slice::from_ref(&aside));
        fs::remove_file(aside).expect("removed");
    }
}

#[test]
fn a_journal_that_cannot_be_written_leaves_no_part_of_it() {
    let bench = Bench::new();
    let applied = bench.applied(&[("thp", "never")]);
    let own = bench.journals();
    applied.restore(&mut |_| {});
    // A folder in the journal's place can't be replaced by a file.
    fs::create_dir(bench.journals.path().join(&own[0])).expect("a folder");
    let error = bench.refused(&[("thp", "never")]).to_string();
    assert!(error.contains("write a journal to"), "{error}");
    assert_eq!((bench.fake.read(HUGE), bench.journals()), ("madvise".to_owned(), own));
}

/// A process may change settings several times, as a plan does in each phase.
#[test]
fn what_could_not_be_restored_stays_named_when_the_process_changes_more() {
    let bench = Bench::new();
    let first = bench.applied(&[("throttling", "off")]);
    fs::remove_file(bench.fake.tree.path(THROTTLING)).expect("removed");
    fs::create_dir(bench.fake.tree.path(THROTTLING)).expect("in its place");
    first.restore(&mut |_| {});
    let second = bench.applied(&[("thp", "never")]);
    second.restore(&mut |_| {});
    assert_eq!(bench.fake.read(HUGE), "madvise");
    let [journal] = bench.journals().try_into().expect("one journal");
    let text = fs::read_to_string(bench.journals.path().join(journal)).expect("a journal");
    assert!(text.contains("throttling") && !text.contains("thp"), "{text}");
}

#[test]
fn a_journal_that_is_no_file_of_this_user_is_reported_and_not_believed() {
    let bench = Bench::new();
    bench.fake.file(THROTTLING, "-1\n");
    let real = bench.journals.path().join("real");
    fs::write(&real, line("throttling", THROTTLING, "950000", "-1")).expect("a file");
    std::os::unix::fs::symlink(&real, bench.journals.path().join(NOBODY)).expect("a link");
    let [restored] = bench.restore().try_into().expect("one");
    assert!(restored.error.is_some_and(|why| why.contains("ignores it")), "{}", restored.path);
    assert_eq!(bench.fake.read(THROTTLING), "-1");
}

#[test]
fn a_journal_of_an_earlier_boot_is_only_removed() {
    let bench = Bench::new();
    // The new kernel was made to start with the value that the run had set.
    bench.fake.file(THROTTLING, "-1\n");
    bench.left(
        &("{\"boot\":\"earlier\"}\n".to_owned() + &line("throttling", THROTTLING, "950000", "-1")),
    );
    assert_eq!(bench.restore(), []);
    assert_eq!(bench.fake.read(THROTTLING), "-1");
    assert_eq!(bench.journals(), [""; 0]);
}
