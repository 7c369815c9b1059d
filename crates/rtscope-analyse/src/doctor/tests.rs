//! Tests of the ranking. The rules have trees of machines, in `crates/rtscope/tests/it/doctor.rs`.

use rtscope_model::{
    cpu::CpuSet,
    environment::{Cpu, IdleState, Kernel, Preemption},
};

use super::*;

/// A machine with two CPUs whose deepest idle state has this exit latency.
fn asleep(latency_us: u64) -> MachineFacts {
    let mut facts = MachineFacts::default();
    let environment = &mut facts.environment;
    environment.kernel = Kernel {
        release: "6.6.0".to_owned(),
        preemption: Preemption::RealTime,
        ..Kernel::default()
    };
    environment.cpus.online = "0-1".parse().expect("a set");
    environment.cpus.isolated = "1".parse().expect("a set");
    environment.cpus.nohz_full = "1".parse().expect("a set");
    environment.kernel.cmdline = "rcu_nocbs=1".to_owned();
    let idle_states = vec![IdleState { name: "C6".to_owned(), latency_us }];
    let cpu = Cpu { cpu: 1, idle_states, siblings: CpuSet::default(), ..Cpu::default() };
    environment.cpus.each = vec![cpu];
    facts
}

fn judged(facts: &MachineFacts, deadline_us: u64) -> DoctorDocument {
    diagnose(facts, &PURPOSES[0], deadline_us * 1_000, "test")
}

#[test]
fn a_delay_is_ranked_by_its_share_of_the_deadline() {
    let severity = |deadline_us| {
        let document = judged(&asleep(100), deadline_us);
        assert_eq!(document.findings.len() + document.left_out.len(), 1, "{document:?}");
        document.findings.first().map(|finding| finding.severity)
    };
    assert_eq!(severity(200), Some(Severity::High));
    assert_eq!(severity(201), Some(Severity::Medium));
    assert_eq!(severity(1_000), Some(Severity::Medium));
    assert_eq!(severity(1_001), Some(Severity::Low));
    assert_eq!(severity(10_000), Some(Severity::Low));
    assert_eq!(severity(10_001), None);
}

#[test]
fn the_verdict_names_the_deadline_and_counts() {
    let document = judged(&asleep(100), 150);
    assert_eq!(document.readiness, Readiness::NotReady);
    assert_eq!(
        document.verdict,
        "not ready for a deadline of 150 us: 1 finding of high severity, which may use half of the deadline or \
         prevent real-time scheduling"
    );
    assert_eq!(
        judged(&asleep(100), 500).verdict,
        "no finding alone is estimated to use half of a deadline of 500 us, but 1 may use a tenth or more; measure \
         with rtscope run"
    );
    assert_eq!(judged(&asleep(100), 500).readiness, Readiness::Ready);
    assert_eq!(judged(&MachineFacts::default(), 500).readiness, Readiness::NotKnown);
}

#[test]
fn what_is_not_known_has_no_delay_and_does_not_fail() {
    let mut facts = asleep(0);
    facts.environment.kernel.preemption = Preemption::Unknown;
    let document = judged(&facts, 500);
    let [finding] = &document.findings[..] else { panic!("{document:?}") };
    assert_eq!((finding.severity, finding.delay_ns), (Severity::Unknown, None));
    assert_eq!(document.readiness, Readiness::Ready);
}

#[test]
fn the_rules_of_a_record_see_the_measured_cpus_only() {
    let facts = asleep(100);
    let on = |cpu: u32| symptom("deep-idle", &facts, [cpu].into_iter().collect(), u64::MAX);
    assert!(on(1).is_some() && on(0).is_none());
    let held = symptom("deep-idle", &facts, [1].into_iter().collect(), 50);
    assert!(held.is_none());
}
