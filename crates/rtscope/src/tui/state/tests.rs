use rtscope_model::{
    event::CpuSpan,
    finding::{Finding, Weight},
    machine_use::InterruptLine,
};

use super::*;
use crate::tui::script::{Script, plan};

#[test]
fn a_new_state_knows_the_plan() {
    let state = State::new(&plan());
    let names: Vec<_> = state.cells.iter().map(|cell| cell.name.as_str()).collect();
    assert_eq!(names, ["rest", "message load", "rest again"]);
    assert!(state.cells.iter().all(|cell| cell.status == Status::ToCome));
    let of_all = Limits { missed: Some(0), ..Limits::default() };
    assert_eq!(state.cells[0].limits, of_all);
    assert_eq!(state.cells[1].limits, Limits { max_ns: Some(100_000), ..of_all });
    assert_eq!((state.phase_name(), state.left_ns), ("starting", 20_000_000_000));
}

#[test]
fn phases_run_one_after_the_other() {
    let mut script = Script::placed(2);
    assert_eq!(script.state.phase_name(), "warm-up");
    script.begins(0);
    assert_eq!((script.state.running, script.state.phase_name()), (Some(0), "rest"));
    script.after_ms(5_000).ends(0, EndReason::Duration);
    assert_eq!((script.state.running, script.state.phase_name()), (None, "between phases"));
    script.begins(1);
    script.after_ms(10).ends(1, EndReason::Failed);
    script.begins(2);
    script.after_ms(10).ends(2, EndReason::Interrupted);
    script.happens(Event::run_ended(EndReason::Interrupted));
    let statuses: Vec<_> = script.state.cells.iter().map(|cell| cell.status).collect();
    assert_eq!(statuses, [Status::Done, Status::Failed, Status::Cut]);
    assert_eq!(script.state.ended, Some(EndReason::Interrupted));
    assert_eq!(script.state.cells[0].ended_ns, 5_000_000_000);
}

#[test]
fn live_figures_reach_their_lane_and_start_anew_with_a_phase() {
    let mut script = Script::placed(2);
    script.begins(0);
    script.after_ms(125).shows(Some(0), 35_200);
    let maxima: Vec<_> = script.state.lanes.iter().map(|lane| lane.live.max_ns).collect();
    assert_eq!(maxima, [34_200, 35_200]);
    assert!((script.state.done - 0.00625).abs() < 1e-9);
    assert_eq!(script.state.left_ns, 19_875_000_000);
    script.begins(1);
    assert!(script.state.lanes.iter().all(|lane| lane.live.recorded == 0));
}

#[test]
fn a_summary_waits_for_the_last_slices_of_its_phase() {
    let mut script = Script::placed(2);
    script.begins(0);
    script.after_ms(1_000).sees(0, 0, &[1_000, 20_000]);
    script.ends(0, EndReason::Duration);
    script.begins(1);
    assert_eq!(script.state.take_summary(), None, "the last slices are still to come");
    script.after_ms(50).sees(0, 0, &[34_200]);
    script.sees(1, 0, &[28_000]);
    script.sees(1, 1, &[99_000]);
    script.after_ms(75).shows(Some(1), 5_000);
    let summary = script.state.take_summary().expect("its time is over");
    assert_eq!((summary.cell, summary.took_ns), (0, 1_000_000_000));
    let maxima: Vec<_> = summary.lanes.iter().map(|(l, sum)| (l.as_str(), sum.max_ns)).collect();
    assert_eq!(maxima, [("CPU 0", 34_200), ("CPU 1", 28_000)]);
    assert_eq!(summary.lanes[0].1.recorded, 3);
    assert_eq!(script.state.take_summary(), None);
    // What came in for the next phase counts there, although it came early.
    assert_eq!(script.state.all.count(), 1);
}

#[test]
fn a_session_that_ends_closes_its_last_phase() {
    let mut script = Script::placed(1);
    script.begins(0);
    script.ends(0, EndReason::Duration);
    script.sees(0, 0, &[7_000]);
    script.session(1, 1);
    let summary = script.state.take_summary().expect("closed");
    assert_eq!(summary.lanes[0].1.max_ns, 7_000);
    // The next session's thread has a new number, and the trail of its CPU goes on.
    script.begins(1);
    script.after_ms(10).sees(1, 1, &[9_000]);
    assert_eq!(script.state.trails.len(), 1);
    assert_eq!(script.state.trails[0].points, [(0, 7_000), (10_000_000, 9_000)]);
    // A thread of the session before is none of this session's.
    script.sees(0, 1, &[11_000]);
    assert_eq!(script.state.all.count(), 1);
}

#[test]
fn loads_show_what_they_achieve() {
    let mut script = Script::under_load(2);
    let load = &script.state.loads[0];
    assert_eq!((load.line.as_str(), load.unit.as_str()), ("message groups=10", "messages"));
    assert_eq!((load.rate, load.ended), (Some(123_456.0), None));
    let how = "killed by signal 9".to_owned();
    script.happens(Event::LoadEnded { cell: 1, load: 0, work: 1, ok: false, how });
    assert_eq!(script.state.loads[0].ended, Some(false));
    assert_eq!(script.state.log.entries.back().map(|entry| entry.tone), Some(Tone::Bad));
    // An index that skips one is not ours to guess about.
    let line = "cpu".to_owned();
    script.happens(Event::LoadStarted { cell: 1, load: 7, line, pid: 1 });
    assert_eq!(script.state.loads.len(), 1);
}

#[test]
fn the_machine_is_shown_by_second() {
    let mut script = Script::placed(1);
    let cpu = |steal_ns| CpuSpan {
        cpu: 0,
        busy_ns: 900_000_000,
        steal_ns,
        times_ns: Some([500_000_000, 0, 300_000_000, 0, 0, 100_000_000, 1_000_000_000 - steal_ns]),
    };
    script.happens(Event::System(SystemSpan {
        span_ns: 2_000_000_000,
        context_switches: 5_000,
        interrupts: 1_000,
        throttled: None,
        own_ns: Some(200_000_000),
        energy_uj: None,
        cpus: vec![cpu(0), cpu(400_000_000)],
        lines: vec![InterruptLine {
            line: "LOC".to_owned(),
            name: "Local timer interrupts".to_owned(),
            counts: vec![(0, 700), (1, 100)],
        }],
    }));
    let others = Some(0.4);
    let classes = Some([1e9, 0.0, 6e8, 0.0, 0.0, 2e8, 4e8, 1.6e9].map(|ns| ns / 3.8e9));
    let busiest = Some(("Local timer interrupts".to_owned(), 400.0));
    let expected =
        Machine { switches: 2_500.0, interrupts: 500.0, stolen: 0.1, others, classes, busiest };
    assert_eq!(script.state.machine, Some(expected));
}

#[test]
fn the_log_is_bounded_and_counts_what_matters() {
    let mut script = Script::placed(1);
    for n in 0..200 {
        script.happens(Event::Found(Finding::new("a", Weight::Note, format!("note {n}"))));
    }
    script.happens(Event::Found(Finding::new("b", Weight::Invalidates, "no sample")));
    script.happens(Event::SettingChanged {
        setting: "throttling".to_owned(),
        path: "proc/sys/kernel/sched_rt_runtime_us".to_owned(),
        from: "950000".to_owned(),
        to: "-1".to_owned(),
    });
    let log = &script.state.log;
    assert!(log.entries.len() < 100);
    assert_eq!((log.warnings, log.last_warning.as_deref()), (1, Some("no sample")));
    let last = log.entries.back().expect("an entry");
    assert_eq!((last.text.as_str(), last.tone), ("throttling set to -1 (was 950000)", Tone::Note));
}
