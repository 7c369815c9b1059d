//! The records of a fleet's places in one document.

use super::{Exported, Format, Submission, junit, kcidb, ktap, openmetrics};

/// What the places of a fleet brought.
#[derive(Clone, Debug)]
pub struct FleetExported<'a> {
    /// Name of the plan.
    pub plan: &'a str,
    pub places: Vec<PlaceExported<'a>>,
    /// What a document for KernelCI is named by.
    pub submission: Submission,
}

/// What a place brought.
#[derive(Clone, Debug)]
pub enum PlaceExported<'a> {
    /// A record, with its place.
    Run(Box<Exported<'a>>),
    Without(PlaceWithout),
}

/// A place without a record.
#[derive(Clone, Debug)]
pub struct PlaceWithout {
    pub place: String,
    /// A sentence.
    pub why: String,
    /// Whether it may still bring one.
    pub is_open: bool,
    /// Name of the last job there; empty if none has begun.
    pub job: String,
    /// As `uname -m` and `uname -r` said; empty before it has answered.
    pub machine: String,
    pub kernel: String,
}

/// Writes a fleet.
type Write = fn(&FleetExported<'_>) -> Result<Vec<u8>, String>;

/// The formats that hold several places, by their names.
const FORMATS_OF_FLEETS: [(&str, Write); 4] = [
    ("junit", |fleet| Ok(junit::of_fleet(fleet).into_bytes())),
    ("kcidb", kcidb::of_fleet),
    ("ktap", |fleet| Ok(ktap::of_fleet(fleet).into_bytes())),
    ("openmetrics", |fleet| Ok(openmetrics::of_fleet(fleet).into_bytes())),
];

impl Format {
    /// The document of a fleet.
    ///
    /// # Errors
    ///
    /// When the format holds one run.
    pub fn write_fleet(&self, fleet: &FleetExported<'_>) -> Result<Vec<u8>, String> {
        let known = FORMATS_OF_FLEETS.iter().find(|(name, _)| *name == self.name);
        let (_, write) = known.ok_or_else(|| {
            let names = FORMATS_OF_FLEETS.map(|(name, _)| name).join(", ");
            let places = "name the record of a place, as FLEET/places/NAME";
            format!("this format holds one run: {places}, or take one of {names}")
        })?;
        write(fleet)
    }
}

impl<'a> FleetExported<'a> {
    /// The records that there are.
    pub(super) fn runs(&self) -> Vec<&Exported<'a>> {
        let runs = self.places.iter().filter_map(|place| match place {
            PlaceExported::Run(subject) => Some(&**subject),
            PlaceExported::Without(_) => None,
        });
        runs.collect()
    }
}

#[cfg(test)]
mod tests {
    use rtscope_model::record::Record;
    use serde_json::Value;

    use super::*;
    use crate::{judge, test_support::Run};

    const PLAN: &str =
        "name = \"p\"\nrequire = [\"max < 200us\"]\n[[phase]]\nname = \"rest\"\nduration = \"2s\"";

    fn record(max_ns: u64) -> Record {
        let mut latencies = [10_000; 2_000];
        latencies[700] = max_ns;
        Run::new(PLAN, 1).cell(0, &[&latencies]).end().record()
    }

    fn without(place: &str, is_open: bool) -> PlaceExported<'static> {
        PlaceExported::Without(PlaceWithout {
            place: place.to_owned(),
            why: "it is lost".to_owned(),
            is_open,
            job: "job-1".to_owned(),
            machine: "aarch64".to_owned(),
            kernel: "6.12.0".to_owned(),
        })
    }

    /// A place that is good, one that is late, one that is lost and one that goes on, in a format.
    fn document(format: &str) -> String {
        let records = [("good", record(10_000)), ("late", record(300_000))];
        let runs = records.iter().map(|(place, record)| {
            let mut subject = Exported::new(record, &judge(record, &[]), None).expect("all cells");
            subject.place = Some((*place).to_owned());
            PlaceExported::Run(Box::new(subject))
        });
        let places = runs.chain([without("lost", false), without("slow", true)]).collect();
        let fleet = FleetExported { plan: "p", places, submission: Submission::default() };
        let format = Format::named(format).expect("a format");
        String::from_utf8(format.write_fleet(&fleet).expect("written")).expect("a text")
    }

    #[test]
    fn each_place_has_suites_of_its_own() {
        let text = document("junit");
        assert!(
            text.contains("name=\"rtscope p\" tests=\"6\" failures=\"1\" errors=\"2\""),
            "{text}"
        );
        let suites: Vec<&str> = text
            .split("<testsuite name=\"")
            .skip(1)
            .filter_map(|part| part.split('"').next())
            .collect();
        assert_eq!(
            suites,
            ["good.run", "good.rest", "late.run", "late.rest", "lost.run", "slow.run"]
        );
        assert!(text.contains("classname=\"rtscope.p.late.rest\""), "{text}");
        assert!(text.contains("message=\"it is lost\""), "{text}");
    }

    #[test]
    fn each_subtest_is_named_after_its_place() {
        let text = document("ktap");
        let results = text.lines().filter(|line| line.starts_with("ok") || line.starts_with("not"));
        assert_eq!(
            results.collect::<Vec<_>>(),
            [
                "ok 1 good.run",
                "ok 2 good.rest",
                "ok 3 late.run",
                "not ok 4 late.rest",
                "not ok 5 lost.run # ERROR inconclusive",
                "not ok 6 slow.run # ERROR inconclusive"
            ]
        );
    }

    #[test]
    fn a_family_of_metrics_has_all_places_and_is_there_once() {
        let text = document("openmetrics");
        let heads: Vec<&str> = text.lines().filter(|line| line.starts_with("# TYPE")).collect();
        let once: std::collections::BTreeSet<&&str> = heads.iter().collect();
        assert_eq!(heads.len(), once.len(), "{text}");
        assert_eq!(text.matches("# EOF").count(), 1, "{text}");
        for line in [
            "rtscope_requirement_met{place=\"good\",plan=\"p\",cell=\"rest\",requirement=\"max < 200us\"} 1",
            "rtscope_requirement_met{place=\"late\",plan=\"p\",cell=\"rest\",requirement=\"max < 200us\"} 0",
            "rtscope_place_has_record{place=\"late\",plan=\"p\"} 1",
            "rtscope_place_has_record{place=\"lost\",plan=\"p\"} 0",
        ] {
            assert!(text.lines().any(|one| one == line), "{line}: {text}");
        }
        assert!(text.contains("rtscope_wakeup_latency_seconds_count{place=\"good\","), "{text}");
    }

    #[test]
    fn kernel_ci_is_told_of_what_is_lost_and_not_of_what_goes_on() {
        let document: Value = serde_json::from_str(&document("kcidb")).expect("JSON");
        let tests = document["tests"].as_array().expect("tests");
        let of_run = tests.iter().filter(|test| test["path"] == "rtscope.p");
        let seen: Vec<(&str, &str)> = of_run
            .map(|test| {
                let place = test["environment"]["misc"]["place"].as_str().expect("a place");
                (place, test["status"].as_str().expect("a status"))
            })
            .collect();
        assert_eq!(seen, [("good", "PASS"), ("late", "FAIL"), ("lost", "MISS")]);
        let builds = document["builds"].as_array().expect("builds");
        let builds: Vec<&str> = builds.iter().filter_map(|build| build["id"].as_str()).collect();
        assert_eq!(builds, ["rtscope:6.12.0-rt", "rtscope:aarch64-6.12.0"]);
        let ids: std::collections::BTreeSet<String> =
            tests.iter().map(|test| test["id"].to_string()).collect();
        assert_eq!(ids.len(), tests.len(), "{ids:?}");
    }

    #[test]
    fn a_format_of_one_run_says_which_hold_several() {
        let fleet =
            FleetExported { plan: "p", places: Vec::new(), submission: Submission::default() };
        let csv = Format::named("csv").expect("a format");
        let refused = csv.write_fleet(&fleet).expect_err("one run");
        assert!(refused.contains("junit, kcidb, ktap, openmetrics"), "{refused}");
    }
}
