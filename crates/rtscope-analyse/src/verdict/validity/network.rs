//! Rules about the frames of a network sampler.

use rtscope_model::finding::{Finding, Weight};

use super::{Scene, listed};
use crate::{judgement::CellSummary, number::grouped};

/// Cells that sent frames.
fn cells<'a>(scene: &'a Scene) -> impl Iterator<Item = &'a CellSummary> {
    scene.cells.iter().filter(|cell| cell.all.frames.is_some())
}

/// Frames that did not come back in their cycle.
pub(super) fn not_back(scene: &Scene) -> Option<Finding> {
    let places = listed(cells(scene).filter_map(|cell| {
        let frames = cell.all.frames.as_ref().filter(|frames| frames.late + frames.lost > 0)?;
        let [late, lost, sent] = [frames.late, frames.lost, frames.sent].map(grouped);
        Some(format!("{} ({late} late and {lost} lost of {sent} sent)", cell.name))
    }))?;
    let text = format!("frames did not come back in their cycle: {places}");
    let advice = "late frames: see which part of the round trip is long; lost frames: look for drops with `ip -s link` and \
                  `nstat` on both sides";
    Some(Finding::new("frames-not-back", Weight::Warning, text).advise(advice))
}

/// Cycles in which no frame was sent.
pub(super) fn not_sent(scene: &Scene) -> Option<Finding> {
    let places = listed(cells(scene).filter_map(|cell| {
        let not_sent = cell.all.not_sent().filter(|count| *count > 0)?;
        let (not_sent, planned) = (grouped(not_sent), grouped(cell.all.planned));
        Some(format!("{} ({not_sent} of {planned} cycles)", cell.name))
    }))?;
    let text = format!("cycles without a frame, because the thread was too late: {places}");
    let advice =
        "explain the late wake-ups first: `rtscope run` with the same load, or `rtscope explain`";
    Some(Finding::new("frames-not-sent", Weight::Warning, text).advise(advice))
}

/// Frames that came twice, in another order, or from somewhere else.
pub(super) fn odd(scene: &Scene) -> Option<Finding> {
    let places = listed(cells(scene).filter_map(|cell| {
        let frames = cell.all.frames.as_ref()?;
        let all = [
            (frames.out_of_order, "out of order"),
            (frames.duplicates, "twice"),
            (frames.strays, "not of this phase"),
        ];
        let odd = all.into_iter().filter(|(count, _)| *count > 0);
        let odd: Vec<String> =
            odd.map(|(count, how)| format!("{} {how}", grouped(count))).collect();
        (!odd.is_empty()).then(|| format!("{} ({})", cell.name, odd.join(", ")))
    }))?;
    let text = format!("frames came out of order, twice, or from elsewhere: {places}");
    let advice =
        "look for a loop or two paths in the network, and for other senders of the same frames";
    Some(Finding::new("frames-odd", Weight::Warning, text).advise(advice))
}

#[cfg(test)]
mod tests {
    use rtscope_model::frames::Frames;

    use crate::{judge, test_support::Run};

    const PLAN: &str = "name = 'net'\nrequire = ['lost = 0', 'late <= 3', 'missed <= 6']\n[sampler]\nnetwork = 'udp'\n\
                        [[phase]]\nname = 'rest'\nduration = '1s'\n";

    /// A run of 1,000 cycles of which some frames are late or lost.
    fn run(late: u64, lost: u64, duplicates: u64) -> Run {
        let mut run = Run::new(PLAN, 1).cell(0, &[&[3_000; 1_000]]).end();
        let slice = &mut run.slices[0];
        let missing = late + lost;
        (slice.recorded, slice.missed) = (slice.recorded - missing, missing);
        slice.bins[0].1 -= missing;
        slice.omitted = vec![(1_000, missing)];
        slice.frames =
            Some(Box::new(Frames { sent: 1_000, late, lost, duplicates, ..Frames::default() }));
        run
    }

    fn codes(run: &Run) -> Vec<String> {
        let judgement = judge(&run.record(), &[]);
        let codes = judgement.findings.iter().map(|finding| finding.code.as_str().to_owned());
        codes.filter(|code| code.starts_with("frames-")).collect()
    }

    #[test]
    fn each_rule_fires_where_it_should_and_nowhere_else() {
        assert_eq!(codes(&run(0, 0, 0)), [""; 0]);
        assert_eq!(codes(&run(2, 0, 0)), ["frames-not-back"]);
        assert_eq!(codes(&run(0, 1, 0)), ["frames-not-back"]);
        assert_eq!(codes(&run(0, 0, 4)), ["frames-odd"]);
        let mut swallowed = run(1, 0, 0);
        swallowed.slices[0].frames.as_mut().expect("frames").late = 0;
        assert_eq!(codes(&swallowed), ["frames-not-sent"]);
    }

    #[test]
    fn lost_and_late_frames_are_required_by_their_counts() {
        let verdicts = |run: &Run| -> Vec<(String, String)> {
            let outcomes = judge(&run.record(), &[]).outcomes;
            outcomes.iter().map(|o| (o.figures_verdict.to_string(), o.sentence.clone())).collect()
        };
        let found = verdicts(&run(4, 1, 0));
        let words: Vec<&str> = found.iter().map(|(verdict, _)| verdict.as_str()).collect();
        assert_eq!(words, ["Fail", "Fail", "Pass"]);
        assert_eq!(found[0].1, "1 of 1,000 frames was lost");
        assert_eq!(found[1].1, "4 of 1,000 frames were late");
        let found = verdicts(&run(3, 0, 0));
        assert!(found.iter().all(|(verdict, _)| verdict == "Pass"), "{found:?}");
        assert_eq!(found[0].1, "none of 1,000 frames was lost");
        let none = Run::new(PLAN, 1).cell(0, &[&[3_000; 1_000]]).end();
        let found = verdicts(&none);
        assert_eq!(found[0].0, "Inconclusive");
        assert!(found[0].1.contains("no frame was sent"), "{}", found[0].1);
    }
}
