use super::*;

fn machine() -> Machine {
    let set = |text: &str| text.parse::<CpuSet>().expect("a set");
    Machine { allowed: set("0-3"), configured: set("0-7"), online: set("0-7") }
}

fn read(line: &str) -> Parsed {
    let words: Vec<String> = line.split('|').map(str::to_owned).collect();
    parse(&words, &machine())
}

fn run(line: &str) -> (Options, Vec<String>) {
    let parsed = read(line);
    match parsed.outcome {
        Action::Run(options) => (*options, parsed.stderr),
        other => panic!("{line}: {other:?} {:?}", parsed.stderr),
    }
}

fn help(line: &str) -> u8 {
    match read(line).outcome {
        Action::Help(code) => code,
        other => panic!("{line}: {other:?}"),
    }
}

#[test]
fn rtevals_words_are_read() {
    // As its module builds them: a value with a leading blank, and perhaps an empty word.
    let (options, said) =
        run("-i100|-qmu|-h 3500|-p95|-t2|-a0-1|--default-system|-b200|--tracemark|");
    assert_eq!((options.interval_us, options.buckets, options.priority), (100, 3500, 95));
    assert_eq!((options.threads, options.policy), (2, Policy::Fifo));
    assert!(options.quiet && options.lock_memory && options.tracemark);
    assert_eq!((options.latency_us, options.break_above), (None, Some(200)));
    assert_eq!(said, ["WARN: not setting cpu_dma_latency from cyclictest"]);
}

#[test]
fn words_that_look_like_values_are_taken_and_others_are_not() {
    let (options, _) = run("-a|-t|-p80|-q");
    assert_eq!((options.affinity, options.threads), (Affinity::Each, 4));
    let (options, _) = run("-a|2-3|-t|-q");
    assert_eq!((options.cpus_of(3, &machine()).to_string(), options.threads), ("3".into(), 2));
    assert_eq!(run("-a|foo|-q").0.affinity, Affinity::Each);
    assert_eq!((help("-afoo"), help("-a|77"), help("-t0")), (1, 1, 1));
    // A number of threads below 0 is an option that there isn't.
    assert_eq!(help("-t|-5"), 0);
}

#[test]
fn the_bundle_smp_takes_the_next_word_for_the_priority() {
    let (options, said) = run("-smp|-p|80");
    // What cyclictest makes of it, and what it does not say.
    assert_eq!((options.priority, options.threads), (2, 1));
    assert!(said[0].starts_with("WARN: the priority is \"-p\""), "{said:?}");
}

#[test]
fn policies_and_priorities_decide_each_other() {
    let of = |line: &str| {
        let (options, said) = run(line);
        (options.policy, options.priority, said)
    };
    assert_eq!(of("-q"), (Policy::Other, 0, vec![]));
    assert_eq!(of("-p80"), (Policy::Fifo, 80, vec![]));
    assert_eq!(of("-t2|--policy|RR").1, 3);
    assert_eq!(of("--policy|rr|-p5").0, Policy::Rr);
    let said = ["policy and priority don't match: setting policy to SCHED_FIFO"];
    assert_eq!(of("-p5|--policy|other"), (Policy::Fifo, 5, said.map(str::to_owned).to_vec()));
    assert_eq!(of("--policy|other|-p5"), (Policy::Fifo, 5, vec![]));
    assert_eq!(of("-p0"), (Policy::Fifo, 2, vec!["defaulting realtime priority to 2".to_owned()]));
    assert_eq!(of("--policy|normal").0, Policy::Other);
    assert_eq!(of("-p0|--policy|other"), (Policy::Other, 0, vec![]));
    let (options, _) = run("-t4|-p2|--priospread");
    assert_eq!([0, 1, 2, 3].map(|n| options.priority_of(n)), [2, 1, 0, -1]);
}

#[test]
fn a_spread_without_a_priority_runs_as_fifo() {
    let of = |line: &str| {
        let (options, said) = run(line);
        (options.policy, options.priority, said.len())
    };
    assert_eq!(of("--priospread"), (Policy::Fifo, 2, 2));
    assert_eq!(of("--priospread|-S"), (Policy::Fifo, 5, 2));
    assert_eq!(of("--priospread|-h|5"), (Policy::Fifo, 2, 2));
    assert_eq!(of("--policy=other|--priospread|-t3"), (Policy::Fifo, 4, 2));
    assert_eq!(of("--policy=rr|--priospread"), (Policy::Rr, 2, 1));
    let said = run("--priospread").1;
    assert_eq!(said[0], "defaulting realtime priority to 2");
    assert_eq!(said[1], "policy and priority don't match: setting policy to SCHED_FIFO");
}

#[test]
fn what_leaves_the_idle_states_alone_wins_over_a_latency_in_either_order() {
    let of = |line: &str| {
        let (options, said) = run(line);
        (options.latency_us, said)
    };
    let laptop = vec!["WARN: not setting cpu_dma_latency to save battery power".to_owned()];
    let system = vec!["WARN: not setting cpu_dma_latency from cyclictest".to_owned()];
    assert_eq!(of("--laptop|--latency=5"), (None, laptop.clone()));
    assert_eq!(of("--latency=5|--laptop"), (None, laptop.clone()));
    assert_eq!(of("--default-system|--latency|5"), (None, system.clone()));
    assert_eq!(of("--latency|5|--default-system"), (None, system));
    assert_eq!(of("--default-system|--laptop"), (None, laptop));
    assert_eq!(of("--latency=-1"), (Some(0), vec![]));
    assert_eq!(of("--deepest-idle-state=1").0, None);
}

#[test]
fn a_word_without_a_dash_is_named() {
    let said = |line: &str| run(line).1;
    let expected =
        "WARN: \"p99\" is a stray word and is ignored: an option begins with a dash, as in -p99";
    assert_eq!(said("-q|p99"), [expected]);
    assert_eq!(said("-q|100|-l5|--|-m").len(), 2);
    // The values of -a and -t, and rteval's empty word.
    assert_eq!(said("-a|0-1|-t|2|-A|100|-q|"), Vec::<String>::new());
}

#[test]
fn intervals_grow_by_the_distance_but_not_with_a_histogram() {
    let (options, _) = run("-t2|-i|200");
    assert_eq!((options.interval_of(0), options.interval_of(1)), (200, 700));
    let (options, said) = run("-t2|-i200|-h5|-d|10");
    assert_eq!(options.interval_of(1), 200);
    assert_eq!(said, ["WARN: distance is ignored and set to 0, if histogram enabled"]);
    assert_eq!((help("-i0"), help("-t3|-i100|-d-50")), (1, 1));
}

#[test]
fn durations_and_limits_have_their_suffixes() {
    assert_eq!(["15", "15s", "2m", "3H", "1d"].map(seconds), [15, 15, 120, 10_800, 86_400]);
    assert_eq!(run("-h|2000000").0.buckets, 1_000_000);
    assert_eq!(run("-b|-5").0.break_above, Some(u64::MAX));
}

#[test]
fn mistakes_end_as_cyclictest_ends_them() {
    let codes =
        ["-p|100", "-h|0", "-o|2", "-o|0|-v", "-o|-3|-v", "-c|3", "-A|--secaligned"].map(help);
    assert_eq!(codes, [1; 7]);
    assert_eq!(read("-o|2").stderr, ["WARN: -o option only meaningful, if verbose"]);
    assert_eq!((run("-o|1").0.oscope, run("-q").0.oscope), (1, 1));
    assert_eq!((help("--bogus"), help("--help"), help("-l")), (0, 0, 0));
    assert_eq!(help("--bogus|--strict-exit"), 64);
    assert_eq!(read("--bogus").stderr[0], "cyclictest: unrecognized option '--bogus'");
    assert!(matches!(read("-c|aux0").outcome, Action::Refused(1)));
}

#[test]
fn idle_states_are_forbidden_from_a_number_on() {
    let state = |line| run(line).0.idle_state;
    let lines =
        ["-q", "--deepest-idle-state=2", "--deepest-idle-state|-1", "--deepest-idle-state=-2"];
    assert_eq!(lines.map(state), [None, Some(2), Some(-1), None]);
}

#[test]
fn obsolete_and_contrary_options_are_said() {
    let (_, said) = run("-n|-p80");
    assert_eq!(said, ["WARN: -n is obsolete: clock_nanosleep is always used"]);
    assert_eq!(run("--nanosleep").1, said);
    assert_eq!(
        run("--notrace").1,
        ["WARN: --notrace is obsolete: nothing is traced without --tracemark"]
    );
    let (options, said) = run("-y|rr|-p5");
    assert_eq!(
        (options.policy, said),
        (Policy::Rr, vec!["WARN: -y is obsolete: write --policy".to_owned()])
    );
    for line in ["-w", "-C", "--wakeup", "-f", "-Tfunction"] {
        let parsed = read(line);
        assert!(matches!(parsed.outcome, Action::Help(0)), "{line}");
        assert!(parsed.stderr[1].contains("chose a tracer"), "{:?}", parsed.stderr);
    }
    assert!(read("-Up99").stderr[1].contains("write -a -t"));
    // A new name must not make an old abbreviation ambiguous.
    assert!(run("--n").0.nanoseconds);
    let (options, said) = run("-S|-a|1|-t|3");
    assert_eq!((options.threads, options.affinity), (4, Affinity::Each));
    assert_eq!(said, ["WARN: -a ignored due to smp mode", "WARN: -t ignored due to smp mode"]);
    let (options, said) = run("-s|-x");
    assert_eq!((options.wake, said.len()), (Wake::ClockNanosleep, 3));
    let words = ["-c|realtime", "-c|1", "-c|clock"].map(|line| run(line).0.clock);
    assert_eq!(words, [ClockName::Realtime, ClockName::Realtime, ClockName::Monotonic]);
    assert_eq!(run("-c|clock").1, ["WARN: --clock: \"clock\" is not a number and counts as 0"]);
    assert_eq!(run("-l|many").1, ["WARN: --loops: \"many\" is not a number and counts as 0"]);
}
