//! `rtscope run --until CLAIM`: a phase that lasts until a claim is backed or refuted.

use rtscope_analyse::statistics::claim::{self, Claim, ClaimWatch};
use rtscope_measure::signals::Interrupt;
use rtscope_model::{
    event::{Event, Stamped},
    histogram::Layout,
    plan::{PhaseEnd, Plan, Sampler},
    slice::Scope,
    time::Nanos,
    verdict::{Requirement, Verdict},
};

use super::Refused;

/// Exceedances in spite of which the time without `--at-most` suffices.
const EVENTS_ALLOWED: u64 = 3;

/// The shortest slice that a plan may have.
const SLICE_MIN: Nanos = Nanos::from_ms(10);

/// Makes the only phase of a plan last until the claim is decided.
pub(super) fn prolong(
    plan: &mut Plan,
    claim: Requirement,
    at_most: Option<Nanos>,
) -> anyhow::Result<()> {
    let refused = |text: String| Err(Refused(text).into());
    let Some((_, once_in)) = claim.claim() else {
        return refused(format!(
            "--until '{claim}' contains no rate: write it as 'max < 200us once in 1h'"
        ));
    };
    let [phase] = plan.phases.as_mut_slice() else {
        return refused(format!(
            "plan {} has {} phases, but --until needs a plan with one phase: name such a plan, for example soak, or \
                write one",
            plan.name,
            plan.phases.len()
        ));
    };
    if phase.end.load_ends {
        return refused(format!(
            "phase {:?} ends with its load, so --until can't prolong it: remove load_ends from the plan",
            phase.name
        ));
    }
    // The windows of three events are not counted: 3.69 times the claimed time becomes about 12.
    let enough = || Nanos(claim::time_for(once_in, EVENTS_ALLOWED).0.saturating_add(once_in.0));
    let duration = at_most.unwrap_or_else(enough);
    if duration == Nanos::ZERO {
        return refused("--at-most 0: nothing to measure".to_owned());
    }
    phase.end = PhaseEnd { duration: Some(duration), cycles: None, load_ends: false };
    let slice = &mut phase.sampler.slice;
    if *slice == Sampler::default().slice {
        // Exceedances of one slice can't be told apart, so it is no longer than a window.
        *slice = (*slice).min(Nanos(claim::window(once_in)).max(SLICE_MIN));
    }
    plan.require.push(claim);
    plan.until_decided = true;
    Ok(())
}

/// Holds the claims of a running phase against its slices, and ends the phase when all are decided.
pub(super) struct Watched<'a> {
    plan: &'a Plan,
    interrupt: &'a Interrupt,
    layout: Layout,
    threads: Vec<u32>,
    cell: Option<u32>,
    watches: Vec<ClaimWatch>,
    /// Wall time that the last progress was made of.
    told_ns: u64,
}

impl<'a> Watched<'a> {
    /// None when the plan doesn't end by its claims.
    pub(super) fn new(plan: &'a Plan, interrupt: &'a Interrupt) -> Option<Watched<'a>> {
        plan.until_decided.then(|| Watched {
            plan,
            interrupt,
            layout: Layout::default(),
            threads: Vec::new(),
            cell: None,
            watches: Vec::new(),
            told_ns: 0,
        })
    }

    /// Takes in an event. When the claims' state has changed: that of one that is still open, or else
    /// of the first.
    pub(super) fn event(&mut self, stamped: &Stamped) -> Option<Claim> {
        match &stamped.event {
            Event::SessionStarted { layout, .. } => {
                self.layout = *layout;
                self.threads.clear();
            }
            Event::ThreadPlaced { thread, .. } => self.threads.push(*thread),
            Event::PhaseStarted { cell, .. } => self.begin(*cell),
            Event::PhaseEnded { .. } => self.cell = None,
            Event::Slice(slice) if self.cell.map(Scope::Cell) == Some(slice.scope) => {
                self.watches.iter_mut().for_each(|watch| watch.add(slice));
            }
            // Slices come in a batch before it: then every thread is as far as the others.
            Event::Progress(_) if self.cell.is_some() => return self.look(),
            _ => {}
        }
        None
    }

    fn begin(&mut self, cell: u32) {
        let phase = self.plan.phases.get(cell as usize);
        let required =
            self.plan.require.iter().chain(phase.iter().flat_map(|phase| &phase.require));
        let watch = |(limit, once_in)| {
            ClaimWatch::new(limit, once_in, self.layout, self.threads.iter().copied())
        };
        self.watches = required.filter_map(Requirement::claim).map(watch).collect();
        (self.cell, self.told_ns) = (Some(cell), 0);
    }

    fn look(&mut self) -> Option<Claim> {
        let claims: Vec<Claim> = self.watches.iter().map(ClaimWatch::claim).collect();
        let wall_ns = claims.iter().map(|claim| claim.wall_ns).min().unwrap_or(0);
        if wall_ns == self.told_ns {
            return None;
        }
        self.told_ns = wall_ns;
        let open = claims.iter().find(|claim| claim.verdict == Verdict::Inconclusive);
        if self.watches.iter().all(ClaimWatch::is_decided) {
            self.interrupt.decide();
        }
        open.or(claims.first()).copied()
    }
}

#[cfg(test)]
mod tests {
    use rtscope_model::plan;

    use super::*;

    const ONE: &str = "name = \"one\"\n[[phase]]\nname = \"load\"\ncycles = 100";

    fn prolonged(text: &str, claim: &str, at_most: Option<Nanos>) -> Result<Plan, String> {
        let mut plan = plan::parse("p", text).expect("a plan");
        let claim = claim.parse().expect("a requirement");
        prolong(&mut plan, claim, at_most).map(|()| plan).map_err(|e| e.to_string())
    }

    #[test]
    fn a_plan_of_one_phase_is_prolonged() {
        let claim = "max < 200us once in 1h";
        let plan = prolonged(ONE, claim, Some(Nanos::from_secs(60))).expect("fits");
        let end = PhaseEnd { duration: Some(Nanos::from_secs(60)), ..PhaseEnd::default() };
        assert_eq!((plan.phases[0].end.clone(), plan.until_decided), (end, true));
        let text = plan.to_toml();
        assert_eq!(plan::parse("again", &text), Ok(plan));
        let said = plan::parse("p", &text.replace(" once in 1h", "")).expect_err("refused");
        assert!(said.to_string().contains("until_decided needs a claim"), "{said}");
        let hours = prolonged(ONE, claim, None).expect("fits").expected().as_secs_f64() / 3_600.0;
        assert!((11.0..14.0).contains(&hours), "{hours}");
    }

    #[test]
    fn what_can_not_be_prolonged_is_refused_with_advice() {
        let said = |text: &str, claim| prolonged(text, claim, None).expect_err("refused");
        assert!(said(ONE, "max < 200us").contains("write it as 'max < 200us once in 1h'"));
        let two = format!("{ONE}\n[[phase]]\nname = \"rest\"\ncycles = 10");
        let claim = "max < 200us once in 1h";
        assert!(said(&two, claim).contains("plan one has 2 phases"));
        let ends = format!("{ONE}\nload_ends = true\nload = [\"message loops=10\"]");
        assert!(said(&ends, claim).contains("remove load_ends"));
    }
}
