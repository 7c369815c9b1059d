//! What a test of a job asks for, in the words of this program: a plan with its requirements.

use clap::Parser;
use rtscope_fleet::pull_lab::definition::JobTest;
use rtscope_model::{plan::Plan, text::is_toml_file, verdict::Requirement};

use crate::{cli::shape::Shape, failure::error_text, plans};

/// What to do for a test.
#[derive(Debug)]
pub(super) enum AskedTest {
    /// Boot the kernel and see whether a program runs in it.
    Boot(Box<Plan>),
    Plan(Box<Plan>),
    /// Nothing of ours answers it, and why.
    Skip(String),
}

/// A guest with this plan shows that its kernel boots.
const BOOT: &str = "
name = 'boot'
title = 'Boot, and 100 ms at rest'
[sampler]
policy = 'fifo'
priority = 90
interval = '1ms'
[[phase]]
name = 'rest'
duration = '100ms'
";

/// Options of a plan that a job may give, by the name of a parameter. A number alone is in us where `in_us` says so: these
/// are cyclictest's.
const PARAMETERS: &[(&str, &str, bool)] = &[
    ("require", "--require", false),
    ("scale", "--scale", false),
    ("duration", "--duration", false),
    ("cycles", "--cycles", false),
    ("interval", "--interval", true),
    ("priority", "--priority", false),
    ("policy", "--policy", false),
];

/// The options that shape a plan, read apart from any other.
#[derive(Debug, Parser)]
#[command(name = "parameters", disable_help_flag = true)]
struct Words {
    #[command(flatten)]
    shape: Shape,
}

/// Reads `TYPE=PLAN`.
pub(super) fn parse_assignment(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((kind, plan)) if !kind.is_empty() && !plan.is_empty() => {
            Ok((kind.to_owned(), plan.to_owned()))
        }
        _ => Err("write the type of a test and a plan, such as ltp-rt=lab-quick".to_owned()),
    }
}

/// Refuses assignments whose plan isn't there or makes no sense in a guest.
pub(super) fn check(assigned: &[(String, String)]) -> anyhow::Result<()> {
    for (_, plan) in assigned {
        Shape::default().guest_plan(Some(plan), plans::DEFAULT_LAB)?;
    }
    Ok(())
}

/// What to do for a test. `required` holds where the test itself requires nothing.
pub(super) fn find(
    test: &JobTest,
    assigned: &[(String, String)],
    required: &[Requirement],
) -> AskedTest {
    if let Some(beyond) = test.beyond.first() {
        let text = "a lab guest runs only rtscope";
        return AskedTest::Skip(format!("the test asks for {beyond}, but {text}"));
    }
    let known = assigned.iter().find(|(kind, _)| [&test.kind, &test.id].contains(&kind));
    let plan = match known {
        Some((_, plan)) => Some(plan.clone()),
        None => match named_plan(test) {
            Ok(plan) => plan,
            Err(why) => return AskedTest::Skip(why),
        },
    };
    let Some(plan) = plan else {
        return match rtscope_model::plan::parse("the boot test", BOOT) {
            Ok(plan) => AskedTest::Boot(Box::new(plan)),
            Err(e) => AskedTest::Skip(e.to_string()),
        };
    };
    match shaped(&plan, test, required) {
        Ok(plan) => AskedTest::Plan(Box::new(plan)),
        Err(why) => AskedTest::Skip(why),
    }
}

/// The plan that a test names by its type; none for a boot.
fn named_plan(test: &JobTest) -> Result<Option<String>, String> {
    let parameter = |name: &str| {
        let mut of = test.parameters.iter().filter(|(known, _)| known == name);
        of.next().map(|(_, value)| value.as_str())
    };
    let kind = test.kind.to_lowercase();
    let own = kind.strip_prefix("rtscope").map(|rest| rest.trim_start_matches(['-', '.', ':']));
    match (kind.as_str(), own) {
        ("boot" | "baseline", _) => Ok(None),
        (_, Some(rest)) => {
            let named = parameter("plan").unwrap_or(rest);
            let plan = if named.is_empty() { plans::DEFAULT_LAB } else { named };
            // A job names no file of this machine.
            match plans::SHIPPED.iter().any(|shipped| shipped.name == plan) {
                true => Ok(Some(plan.to_owned())),
                false => Err(format!("rtscope has no plan {plan:?}")),
            }
        }
        ("cyclictest" | "rt-tests-cyclictest" | "rt-tests.cyclictest", _) => {
            Ok(Some(plans::DEFAULT_LAB.to_owned()))
        }
        ("rt-tests", _) if parameter("tst_cmd") == Some("cyclictest") => {
            Ok(Some(plans::DEFAULT_LAB.to_owned()))
        }
        _ => Err(format!(
            "rtscope has no test of the type {:?}: it has boot, cyclictest, rtscope and rtscope-PLAN",
            test.kind
        )),
    }
}

fn shaped(name: &str, test: &JobTest, required: &[Requirement]) -> Result<Plan, String> {
    let mut words = vec!["parameters".to_owned()];
    for (parameter, value) in &test.parameters {
        let in_us = |value: &str| match value.bytes().all(|c| c.is_ascii_digit()) {
            true => format!("{value}us"),
            false => value.to_owned(),
        };
        let known = PARAMETERS.iter().find(|(known, ..)| known == parameter);
        match (parameter.as_str(), known) {
            ("plan" | "tst_cmd", _) => {}
            // A guest has one CPU.
            ("threads", _) if value == "1" => {}
            ("max_latency", _) => words.push(format!("--require=max<{}", in_us(value))),
            (_, Some((_, option, true))) => words.push(format!("{option}={}", in_us(value))),
            (_, Some((_, option, false))) => words.push(format!("{option}={value}")),
            _ => {
                return Err(format!(
                    "rtscope doesn't know the test's parameter {parameter}={value}"
                ));
            }
        }
    }
    let read = Words::try_parse_from(&words)
        .map_err(|e| format!("can't use the test's parameters: {}", first_line(&e.to_string())))?;
    let plan = read.shape.guest_plan(Some(name), plans::DEFAULT_LAB);
    let mut plan = plan.map_err(|e| first_line(&error_text(&e)))?;
    let requires =
        !plan.require.is_empty() || plan.phases.iter().any(|phase| !phase.require.is_empty());
    if !requires {
        plan.require.extend(required);
    }
    if is_toml_file(name) && plan.name.is_empty() {
        return Err(format!("the plan {name} has no name"));
    }
    Ok(plan)
}

fn first_line(text: &str) -> String {
    text.lines().next().unwrap_or_default().trim_start_matches("error: ").to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn test(kind: &str, parameters: &[(&str, &str)]) -> JobTest {
        let own = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
        JobTest {
            id: "an-id".to_owned(),
            kind: kind.to_owned(),
            parameters: parameters.iter().map(own).collect(),
            ..JobTest::default()
        }
    }

    fn plan(test: &JobTest) -> Plan {
        match find(test, &[], &[]) {
            AskedTest::Plan(plan) => *plan,
            other => panic!("{other:?}"),
        }
    }

    fn skipped(test: &JobTest) -> String {
        match find(test, &[], &[]) {
            AskedTest::Skip(why) => why,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_test_s_type_and_parameters_become_a_plan() {
        for kind in ["boot", "baseline", "BOOT"] {
            assert!(matches!(find(&test(kind, &[]), &[], &[]), AskedTest::Boot(_)), "{kind}");
        }
        let cyclictest = [
            ("tst_cmd", "cyclictest"),
            ("max_latency", "150"),
            ("interval", "250"),
            ("threads", "1"),
        ];
        let found = plan(&test("rt-tests", &cyclictest));
        assert_eq!(found.name, "lab-quick");
        assert_eq!(
            found.require.iter().map(ToString::to_string).collect::<Vec<_>>(),
            ["max < 150us"]
        );
        assert!(found.to_toml().contains("interval = \"250us\""), "{}", found.to_toml());
        let both = [("require", "max<200us"), ("require", "missed=0"), ("cycles", "300")];
        let found = plan(&test("rtscope-lab-course", &both));
        assert_eq!((found.name.as_str(), found.require.len()), ("lab-course", 2));
        assert_eq!(plan(&test("rtscope", &[("plan", "policies")])).name, "policies");
    }

    #[test]
    fn what_no_test_answers_is_skipped_with_the_reason() {
        for (test, why) in [
            (test("ltp", &[]), "no test of the type \"ltp\""),
            (test("rt-tests", &[("tst_cmd", "pmqtest")]), "no test of the type \"rt-tests\""),
            (test("cyclictest", &[("histogram", "400")]), "parameter histogram=400"),
            (test("cyclictest", &[("threads", "4")]), "parameter threads=4"),
            (test("cyclictest", &[("require", "max")]), "no '<'"),
            (test("cyclictest", &[("interval", "--until=x")]), "--until"),
            (test("rtscope", &[("plan", "/etc/passwd")]), "no plan \"/etc/passwd\""),
            (test("rtscope-nosuch", &[]), "no plan \"nosuch\""),
        ] {
            let said = skipped(&test);
            assert!(said.contains(why), "{test:?}: {said}");
        }
        let beyond = JobTest { beyond: vec!["commands before it".to_owned()], ..test("boot", &[]) };
        assert!(skipped(&beyond).contains("commands before it"));
    }

    #[test]
    fn the_lab_assigns_plans_and_requirements() {
        let assigned = [("ltp".to_owned(), "lab-quick".to_owned())];
        let required: Vec<Requirement> = vec!["max < 1ms".parse().expect("a requirement")];
        let found = find(&test("ltp", &[]), &assigned, &required);
        assert!(matches!(found, AskedTest::Plan(plan) if plan.require == required));
        // What the job requires counts alone.
        let own = test("cyclictest", &[("max_latency", "5")]);
        let found = find(&own, &assigned, &required);
        assert!(
            matches!(found, AskedTest::Plan(plan) if plan.require.len() == 1 && plan.require != required)
        );
        assert!(check(&assigned).is_ok());
        assert!(check(&[("x".to_owned(), "no-such-plan".to_owned())]).is_err());
        assert!(parse_assignment("ltp=").is_err() && parse_assignment("a=b=c").is_ok());
    }
}
