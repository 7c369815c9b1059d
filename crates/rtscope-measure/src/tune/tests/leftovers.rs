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
    assert!(text.contains("800000") && text.contains("before, it was 950000"), "{text}");
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
    let whole =
        line("throttling", THROTTLING, "950000", "-1") + &line("thp", HUGE, "madvise", "never");
    for length in 0..whole.len() {
        let bench = Bench::new();
        bench.left(&whole[..length]);
        assert_eq!(bench.restore(), [], "{length} bytes");
        assert_eq!(bench.fake.read(THROTTLING), "950000");
        assert_eq!(bench.journals(), [""; 0], "{length} bytes");
    }
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
