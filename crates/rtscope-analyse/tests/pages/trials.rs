//! Settings that were tried, for their page.

use rtscope_analyse::{
    compare::trial::{Trial, TrialCost, TrialEffect, TrialFigure, TrialRatio},
    report::trials::{self, NotTried, TrialSeries, TuneTrials},
};
use rtscope_model::finding::{Finding, Weight};

fn figure(load: &str, found: f64, ratio: f64, differs: bool) -> TrialFigure {
    TrialFigure {
        load: load.to_owned(),
        statistic: "p99".to_owned(),
        is_share: false,
        found,
        tried: found * ratio,
        change: Some(TrialRatio { ratio, low: 0.8 * ratio, high: 1.25 * ratio }),
        chance: None,
        differs,
    }
}

fn trial(name: &str, effect: TrialEffect, ratio: f64) -> Trial {
    let differs = effect != TrialEffect::NotShown;
    let change = TrialRatio { ratio: 0.9, low: 0.85, high: 0.95 };
    let (load, what) = ("message load".to_owned(), "work of message groups=10".to_owned());
    Trial {
        name: name.to_owned(),
        effect,
        blocks: 5,
        figures: vec![
            figure("rest", 20_000.0, 1.0, false),
            figure("message load", 60_000.0, ratio, differs),
        ],
        costs: vec![TrialCost { load, what, found: 500.0, tried: 450.0, change }],
    }
}

/// One setting that helps, one that hurts, one of which nothing is shown, and one that wasn't tried.
pub(crate) fn tried() -> String {
    let series = |trials| TrialSeries {
        record: "tune/<alone>".to_owned(),
        blocks: 5,
        cell_ns: 5_000_000_000,
        cells_left_out: 2,
        findings: vec![Finding::new("load-died", Weight::Invalidates, "the load <disk> died")],
        trials,
    };
    let better = || trial("governor=performance <b>", TrialEffect::Better, 0.5);
    let all = TuneTrials {
        format: trials::FORMAT,
        version: "0".to_owned(),
        plan: "quick".to_owned(),
        kernel: "6.12.9".to_owned(),
        block: "round",
        is_virtual: false,
        budget_ns: Some(600_000_000_000),
        alone: series(vec![
            better(),
            trial("idle-state=-1", TrialEffect::Worse, 3.0),
            trial("timer-migration=off", TrialEffect::NotShown, 0.95),
        ]),
        not_tried: vec![NotTried {
            name: "thp=never".to_owned(),
            why: "it is already set".to_owned(),
        }],
        together: Some(series(vec![better()])),
        apply: Some("rtscope tune apply --keep governor=performance".to_owned()),
    };
    let text = trials::text(&all);
    assert!(
        text.starts_with(
            "governor=performance <b> helps: p99 under message load from 60.0 us to 30.0 us (-50 %, 95 % interval \
             -60 % to -37 %); worse: idle-state=-1.\n"
        ),
        "{text}"
    );
    let notes = "  Note: 2 cells left out, because a load failed or nothing was recorded\n  Note: load-died: the load \
                 <disk> died\n";
    assert_eq!(text.matches(notes).count(), 2, "{text}");
    assert!(text.contains("\nNot tried:\n  thp=never: it is already set\n"), "{text}");
    trials::page(&all)
}
