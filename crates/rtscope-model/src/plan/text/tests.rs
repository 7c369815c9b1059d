use super::*;
use crate::{
    plan::{Pinning, Spread},
    schedule::Policy,
};

const PHASES: &str = r#"
name = "two"
require = ["max < 200us"]
settings = { throttling = "off" }

[sampler]
priority = 80
interval = "500us"

[[phase]]
name = "rest"
duration = "5s"

[[phase]]
name = "load"
cycles = 1000
load = ["message groups=1", "external -- make all"]
sampler.policy = "rr"
"#;

#[test]
fn a_plan_is_read_and_written_back() {
    let plan = parse("two.toml", PHASES).expect("a plan");
    assert_eq!(plan.phases.len(), 2);
    assert_eq!(plan.phases[0].sampler.priority, 80);
    assert_eq!(plan.phases[1].sampler.policy, Policy::Rr);
    assert_eq!(plan.sessions(), [0..1, 1..2]);
    assert_eq!(plan.phases[1].expected(), Nanos::from_ms(500));
    assert_eq!(parse("again", &plan.to_toml()), Ok(plan));
}

#[test]
fn a_published_figure_belongs_to_a_phase() {
    let with = |entry: &str| {
        let source = "source = \"a lab\"";
        format!("{PHASES}\n[[published]]\n{source}\nkernel = \"stock\"\n{entry}\n")
    };
    let figures = "figures = { max = \"878us\", p99 = \"40us\", missed = 13, 'above 1ms' = 2 }";
    for who in
        ["phase = \"rest\"", "load = \"none\"", "policy = \"rr\"", "load = \"message + external\""]
    {
        let plan = parse("two.toml", &with(&format!("{who}\n{figures}"))).expect("a plan");
        assert_eq!(plan.published[0].figures.0.len(), 4);
        assert_eq!(parse("again", &plan.to_toml()), Ok(plan));
    }
    for (entry, part) in [
        (
            "phase = \"rset\"\nfigures = { max = \"3us\" }",
            "two.toml:20: a published figure names phase \"rset\", which does not exist (did you mean \"rest\"?)",
        ),
        ("figures = { maxx = \"3us\" }", "two.toml:23: \"maxx\" is not a statistic"),
        (
            "figures = { max = \"3kHz\" }",
            "two.toml:23: max: \"3kHz\" is not a valid value here: write a time",
        ),
        (
            "policy = \"other\"\nfigures = { max = \"3us\" }",
            "two.toml:20: no phase of the plan has this",
        ),
        ("phase = \"rest\"", "two.toml:20: a published entry needs figures, or the reason"),
    ] {
        let said = parse("two.toml", &with(entry)).expect_err("refused").to_string();
        assert!(said.contains(part), "{entry}: {said}");
    }
    // All mistakes at once.
    let two = with("figures = { max = \"3kHz\" }").replace("priority = 80", "priority = 100");
    let said = parse("two.toml", &two).expect_err("refused").to_string();
    assert!(said.contains("two.toml:7:") && said.contains("two.toml:23:"), "{said}");
}

/// A mistake doesn't hide others, and none is told that only follows from another.
#[test]
fn all_mistakes_of_a_plan_are_told_at_once() {
    let plan = r#"
[sampler]
interval = "0us"
priority = 150
[[phase]]
name = "x"
duration = "5s"
sampler = { placement = "nowhere", policy = "fito", spread = true }
[[phase]]
name = "x"
duration = "-5s"
[[phase]]
loads = ["cpu"]
cycles = 10
[[published]]
phase = "x"
figures = { maxx = "3us", p99 = "3kHz", 'above x' = 1, missed = 3 }
source = "page 3"
[[published]]
phase = "x"
figures = { min = 3 }
[[published]]
phase = "y"
figures = { min = "3us" }
source = "page 4"
"#;
    let said = parse("p", plan).expect_err("refused").to_string();
    let expected = [
        "p:1: missing key `name`",
        "p:3: interval is out of range",
        "p:4: priority is out of range",
        "p:8: unknown value `fito`",
        "p:8: unknown value `nowhere`",
        "p:9: two phases are named \"x\"",
        "p:11: \"-5s\" is not a duration",
        "p:12: missing key `name`",
        "p:13: unknown key `loads`",
        "p:17: \"maxx\" is not a statistic",
        "p:17: p99: \"3kHz\" is not a valid value",
        "p:17: \"above x\": \"x\" is not a duration",
        "p:21: min: \"3\" is not a valid value",
        "p:22: a published figure names phase \"y\"",
    ];
    for part in expected {
        assert!(said.contains(part), "{part}: {said}");
    }
    assert_eq!(said.lines().count(), expected.len(), "{said}");
}

#[test]
fn mistakes_are_named_with_line_and_suggestion() {
    let wrong = |from: &str, to: &str| {
        parse("p.toml", &PHASES.replace(from, to)).expect_err("refused").to_string()
    };
    assert!(wrong("priority = 80", "prioritty = 80").contains("p.toml:7: unknown key `prioritty`"));
    assert!(wrong("priority = 80", "prioritty = 80").contains("did you mean \"priority\"?"));
    assert!(
        wrong("priority = 80", "priority = 100").contains("p.toml:7: priority is out of range")
    );
    assert!(wrong("\"500us\"", "\"0\"").contains("p.toml:8: interval is out of range"));
    assert!(wrong("\"500us\"", "\"fast\"").contains("is not a duration"));
    assert!(wrong("cycles = 1000\n", "").contains("phase \"load\" has no end"));
    assert!(wrong("\"load\"", "\"rest\"").contains("p.toml:14: two phases are named"));
    let pinned = "\"deadline\"\nsampler.placement = \"pinned\"";
    assert!(wrong("\"rr\"", pinned).contains("refuses to pin"));
    assert!(wrong("\"rr\"", "\"fito\"").contains("did you mean \"fifo\"?"));
    assert!(wrong("groups=1", "groups").contains("key=value"));
    assert!(wrong("max < 200us", "max").contains("p.toml:3:"));
    assert!(parse("p", "name = \"x\"").expect_err("refused").to_string().contains("no phase"));
}

#[test]
fn what_has_no_meaning_for_a_policy_is_refused_where_it_is_typed() {
    let said = |from: &str, to: &str| match parse("p.toml", &PHASES.replace(from, to)) {
        Ok(_) => String::new(),
        Err(refused) => refused.to_string(),
    };
    let other = "policy = \"other\"\npriority = 80";
    // Phase "load" is RR: the plan's priority is for it.
    assert_eq!(said("priority = 80", other), "");
    assert_eq!(said("\"rr\"", "\"other\""), "", "phase \"rest\" is still FIFO");
    let dotted =
        "sampler.policy = \"other\"\nload = [\"cpu policy=fifo priority=3\"]\nsampler.priority = 5";
    let both = "p.toml:19: priority has no meaning for policy other: leave it out, or write \
                policy = \"fifo\" or policy = \"rr\"";
    let loads = "load = [\"message groups=1\", \"external -- make all\"]\nsampler.policy = \"rr\"";
    assert_eq!(said(loads, dotted), both);
    let inline = "sampler = { policy = \"fifo\", nice = 5 }";
    assert!(said("sampler.policy = \"rr\"", inline).starts_with("p.toml:18: nice has no"));
    assert!(
        said("priority = 80", "runtime = \"1ms\"")
            .starts_with("p.toml:7: runtime has no meaning for policy fifo and rr")
    );
    let too_many = said("priority = 80", "threads = 1\nintervals = [\"1ms\", \"2ms\"]");
    assert!(too_many.contains("2 values for 1 thread:"), "{too_many}");
    let at_root = "name = \"x\"\nsampler.policy = \"idle\"\nsampler.nice = 5\n[[phase]]\nname = \"p\"\ncycles = 10";
    let refused = parse("p.toml", at_root).expect_err("refused").to_string();
    assert!(refused.starts_with("p.toml:3: nice has no meaning for policy idle"), "{refused}");
    parse_kept("plan.toml", at_root).expect("an earlier rtscope took it");
}

#[test]
fn an_axis_of_priorities_needs_one_policy_that_takes_them() {
    let matrix = |policies: &str| {
        let text = format!(
            "name = 'm'\n[matrix]\ncycles = 10\npolicy = [{policies}]\npriority = [10, 50]\n"
        );
        parse("m.toml", &text).map_err(|e| e.to_string())
    };
    let refused = matrix("'other', 'batch'").expect_err("refused");
    assert!(refused.starts_with("m.toml:5: priority has no meaning for policy batch and other"));
    let plan = matrix("'fifo', 'other'").expect("FIFO takes them");
    assert_eq!(plan.phases.len(), 4);
    // What is kept of it can be run again, with the same sessions.
    let again = parse("plan.toml", &plan.to_toml()).expect("sound");
    assert_eq!(again.sessions(), plan.sessions());
}

#[test]
fn a_command_line_is_refused_what_no_phase_takes() {
    let refused = |pairs: &[(&'static str, &'static str)]| {
        let patch = parse_sampler(pairs.iter().copied()).expect("each is sound");
        let mut plan = parse("two.toml", PHASES).expect("a plan");
        plan.patch_sampler(&patch);
        // What the plan's own priority was is kept out of the record: it can be run again.
        parse("plan.toml", &plan.to_toml()).expect("sound");
        plan.refusals(&patch).into_iter().next().unwrap_or_default()
    };
    assert_eq!(refused(&[("policy", "other")]), "");
    assert_eq!(refused(&[("priority", "5")]), "");
    assert_eq!(
        refused(&[("policy", "other"), ("priority", "5")]),
        "--priority has no meaning for policy other: leave it out, or write --policy fifo or \
         --policy rr"
    );
    assert!(refused(&[("nice", "5")]).starts_with("--nice has no meaning for policy fifo and"));
    assert!(refused(&[("runtime", "5ms")]).ends_with("or write --policy deadline"));
}

#[test]
fn deadline_threads_are_free_and_pinning_them_is_refused() {
    let of = |words: &[(&str, &str)]| {
        let patch = parse_sampler(words.iter().copied()).expect("sound");
        let mut plan = parse("two.toml", PHASES).expect("a plan");
        plan.patch_sampler(&patch);
        let refused = plan.refusals(&patch).into_iter().next();
        (plan.phases[0].sampler.placement, refused.unwrap_or_default())
    };
    assert_eq!(of(&[("policy", "deadline")]), (Pinning::Free, String::new()));
    let (_, refused) = of(&[("policy", "deadline"), ("placement", "pinned")]);
    assert!(refused.ends_with("set --placement free"), "{refused}");
    let in_file = PHASES.replace("\"rr\"", "\"deadline\"\nsampler.placement = \"pinned\"");
    let refused = parse("p", &in_file).expect_err("refused").to_string();
    assert!(refused.ends_with("set placement = \"free\""), "{refused}");
}

#[test]
fn a_zero_on_the_command_line_is_no_wish_for_the_default() {
    for (key, said) in [
        ("threads", "--threads 0: at least one thread"),
        ("break_above", "--break-above 0: every latency is above 0"),
        ("runtime", "--runtime 0: a deadline thread"),
    ] {
        let refused = parse_sampler([(key, "0")]).expect_err(key).to_string();
        assert!(refused.starts_with(said), "{refused}");
    }
    for (key, value, said) in [
        ("priority", "-1", "--priority -1: priority is out of range"),
        ("threads", "-1", "--threads -1: threads is out of range"),
        ("interval", "-5us", "is not a duration"),
    ] {
        let refused = parse_sampler([(key, value)]).expect_err(key).to_string();
        assert!(refused.contains(said), "{refused}");
    }
}

#[test]
fn sampler_options_follow_the_same_rules() {
    let read = |pairs: &[(&'static str, &'static str)]| parse_sampler(pairs.iter().copied());
    let patch = read(&[("priority", "80"), ("cpus", "1"), ("interval", "200us"), ("raw", "true")]);
    let sampler = patch.expect("sound").applied_to(&Sampler::default());
    assert_eq!((sampler.priority, sampler.interval, sampler.raw), (80, Nanos::from_us(200), true));
    let intervals = read(&[("intervals", "1ms, 2ms")]).expect("sound").intervals;
    assert_eq!(intervals, Some(vec![Nanos::from_ms(1), Nanos::from_ms(2)]));
    let spread = read(&[("spread", "true")]).expect("sound").applied_to(&sampler);
    assert_eq!((sampler.interval_of(0), spread.interval_of(0)), (Nanos(200_000), Nanos(201_236)));
    let part = |text| read(&[("spread", text)]).map(|patch| patch.spread);
    assert_eq!(part("25%"), Ok(Some(Spread::Part(25))));
    assert_eq!(part("0.25"), Ok(Some(Spread::Part(25))));
    for out_of_range in ["0%", "101%", "0.125", "most", "-1"] {
        let said = part(out_of_range).expect_err(out_of_range).to_string();
        assert!(said.contains("1% to 100%"), "{said}");
    }
    let wrong = |pairs| read(pairs).expect_err("refused").to_string();
    assert!(
        wrong(&[("cpus", "0"), ("priority", "100")])
            .starts_with("--priority 100: priority is out of range")
    );
    assert!(wrong(&[("interval", "0")]).contains("out of range"));
    // The interval of the last thread was a product that overflowed.
    assert!(wrong(&[("distance", "9999d")]).contains("at most 1h"));
    assert!(wrong(&[("stagger", "9999d")]).contains("at most 1h"));
    assert!(wrong(&[("policy", "fito")]).contains("did you mean \"fifo\""));
}

#[test]
fn a_plan_that_no_clock_would_see_end_is_refused() {
    let mut plan = parse("two.toml", PHASES).expect("a plan");
    assert_eq!(plan.too_long(), None);
    plan.scale(1e30);
    assert!(plan.too_long().is_some_and(|why| why.contains("longer than 36500 d")));
    let refused = |from, to| parse("p", &PHASES.replace(from, to)).expect_err(to).to_string();
    assert!(refused("\"5s\"", "\"200000d\"").contains("longer than"));
    assert!(refused("cycles = 1000", "cycles = 9223372036854775807").contains("longer than"));
}

#[test]
fn every_phase_may_end_by_a_count_instead() {
    let mut plan = parse("two.toml", PHASES).expect("a plan");
    plan.end_by_cycles(20);
    let ends: Vec<_> = plan.phases.iter().map(|p| (p.end.duration, p.end.cycles)).collect();
    assert_eq!(ends, [(None, Some(20)), (None, Some(20))]);
    assert_eq!(plan.phases[0].expected(), Nanos::from_ms(10));
}

#[test]
fn scaling_keeps_a_plan_runnable() {
    let mut plan = parse("two.toml", PHASES).expect("a plan");
    plan.scale(0.001);
    assert_eq!(plan.phases[0].end.duration, Some(Nanos::from_ms(100)));
    assert_eq!(plan.phases[1].end.cycles, Some(10));
    plan.scale_to(Nanos::from_secs(2));
    assert!(
        (plan.phases.iter().map(|p| p.expected().as_secs_f64()).sum::<f64>() - 2.0).abs() < 0.1
    );
}

#[test]
fn all_mistakes_of_a_plan_are_told_at_once_each_on_its_line() {
    let text = r#"
name = "many"
require = [
  "max < 200us",
  "p99 < 200",
]

[sampler]
prioritty = 80
interval = "fast"

[[phase]]
name = "a"
duration = "2M"
load = [
  "cpu",
  "memory size=2M",
  "mesage",
]

[[phase]]
name = "b"
duration = "2s"
load = ["memory size=2M"]
settings = { throttling = "maybe" }
colour = "red"

[[phase]]
name = "c"
"#;
    let load = |line: &LoadLine| match line.name.as_str() {
        "cpu" => Ok(()),
        name => Err(Problem::new(format!("bad {name}"))),
    };
    let setting = |name: &str, _: &str| Err(Problem::new(format!("bad {name}")));
    let checks = Checks { load: &load, setting: &setting };
    let refused = parse_checked("p", text, &checks).expect_err("refused").to_string();
    let expected = [
        "p:5: \"200\" is not a duration",
        "p:9: unknown key `prioritty`",
        "p:10: \"fast\" is not a duration",
        "p:14: \"2M\" is not a duration",
        "p:17: bad memory",
        "p:18: bad mesage",
        "p:24: bad memory",
        "p:25: bad throttling",
        "p:26: unknown key `colour`",
        "p:28: phase \"c\" has no end",
    ];
    assert_eq!(refused.lines().count(), expected.len(), "{refused}");
    for (said, expected) in refused.lines().zip(expected) {
        assert!(said.starts_with(expected), "{expected}: {refused}");
    }
}

#[test]
fn a_mistake_hides_what_only_follows_from_it() {
    let refused = |from: &str, to: &str| {
        parse("p.toml", &PHASES.replace(from, to)).expect_err("refused").to_string()
    };
    // Without its duration the phase had no end, and without its name it is no phase.
    assert_eq!(refused("\"5s\"", "\"5x\"").lines().count(), 1);
    assert_eq!(refused("name = \"rest\"", "name = 5").lines().count(), 1);
    // A text that isn't TOML ends reading where nothing can be left out.
    assert_eq!(refused("[sampler]", "[sampler").lines().count(), 1);
}

#[test]
fn slices_are_10_ms_at_least() {
    let of = |slice: &str| {
        let text = format!(
            "name = 'x'\n[sampler]\nslice = '{slice}'\n[[phase]]\nname = 'a'\nduration = '1s'\n"
        );
        parse("x.toml", &text)
    };
    assert_eq!(of("10ms").expect("a plan").phases[0].sampler.slice, Nanos::from_ms(10));
    let refused = of("9ms").expect_err("too short").to_string();
    assert!(refused.contains("slice is out of range: 10ms to 1h"), "{refused}");
}

/// The keys that a table may have, by what serde says of one that it may not.
fn keys_of<T: serde::de::DeserializeOwned + std::fmt::Debug>() -> Vec<String> {
    let refused = toml::from_str::<T>("no-such-key = 1").expect_err("an unknown key").to_string();
    let listed = refused.split_once("expected one of ").expect("a list").1;
    let names = listed.split('`').skip(1).step_by(2);
    names.map(str::to_owned).collect()
}

#[test]
fn the_reference_has_every_key_and_no_other() {
    let page = include_str!("../../../../../docs/reference/plan.md");
    let listed = |heading: &str| -> Vec<String> {
        let section = page.split("\n## ").find(|section| section.starts_with(heading));
        let rows = section.expect("a section").lines().filter_map(|line| line.strip_prefix("| `"));
        rows.filter_map(|row| Some(row.split_once('`')?.0.to_owned())).collect()
    };
    let sorted = |mut keys: Vec<String>| {
        keys.sort();
        keys
    };
    let same = |heading, keys| assert_eq!(sorted(listed(heading)), sorted(keys), "{heading}");
    same("At the top", keys_of::<PlanText>());
    same("A phase", keys_of::<PhaseText>());
    same("A matrix", keys_of::<Matrix>());
    same("The sampler", keys_of::<SamplerPatch>());
    for row in page.split("\n## The sampler").nth(1).expect("a section").lines() {
        let Some((key, default)) = row.strip_prefix("| `").and_then(|row| row.split_once("` | "))
        else {
            continue;
        };
        let default = default.split(" |").next().unwrap_or_default().trim_matches('`');
        let of_text = |text: &str| toml::from_str::<SamplerPatch>(text).expect(text);
        let is_told = !matches!(key, "runtime" | "intervals");
        if is_told {
            let set = of_text(&format!("{key} = {default}")).applied_to(&Sampler::default());
            assert_eq!(set, Sampler::default(), "the default of {key} isn't {default}");
        }
    }
}
