//! What must be known of a run that cyclictest printed.

use rtscope_model::finding::Weight;

use super::{Lane, Log, Run};
use crate::import::samples::Samples;

impl Run {
    /// What must be known of this run.
    pub(super) fn add_findings(&mut self, log: &mut Log, has_histogram: bool, has_samples: bool) {
        let reading = &mut log.reading;
        if let Some(value) = self.break_value {
            let unit_ns = log.layout.unit_ns;
            let text = format!(
                "cyclictest stopped at a latency of {} us: what came after was not measured",
                value.saturating_mul(unit_ns) / 1_000
            );
            reading.note("break-hit", Weight::PreventsPass, text);
        }
        if has_histogram && !has_samples && !self.summary.has_maxima() {
            let text = "the histogram has no summary after it: it was cut off, or its comments \
                        were taken out, and latencies beyond it are not known";
            reading.note("import-truncated", Weight::PreventsPass, text);
        }
        if !has_histogram && !has_samples {
            let text = "the file holds minimum, mean and maximum, but no histogram: quantiles \
                        and exceedances are not known";
            reading.note("import-no-histogram", Weight::PreventsPass, text).advice =
                "run cyclictest with a histogram, for example -h 1000".to_owned();
        }
        let overflow = self.summary.overflow(self.threads_in_rows());
        if overflow > 0 && !has_samples {
            let text = format!(
                "{overflow} latencies lie beyond the histogram: each is known to be at \
                 least {} units, and only the maximum is known exactly",
                self.rows.last + 1
            );
            reading.note("import-overflow", Weight::Warning, text).advice =
                "run cyclictest with a histogram that is wide enough".to_owned();
        }
        if self.rows.disordered > 0 || self.rows.short > 0 || self.rows.repeated > 0 {
            let text = format!(
                "{} rows of the histogram are out of order, {} are repeated and {} have another number of \
                 columns",
                self.rows.disordered, self.rows.repeated, self.rows.short
            );
            reading.note("import-damaged", Weight::PreventsPass, text);
        }
        let counted = |figure: fn(&Samples) -> u64| -> u64 {
            let samples = self.lanes.iter().filter_map(|lane| lane.samples.as_ref());
            samples.map(figure).fold(0, u64::saturating_add)
        };
        let behind = |lane: &Lane| {
            let told = lane.status.map_or(0, |status| status.cycles);
            let logged = lane.samples.as_ref().map_or(0, Samples::next);
            if has_samples { told.saturating_sub(logged) } else { 0 }
        };
        let tail = self.lanes.iter().map(behind).fold(0, u64::saturating_add);
        let (lost, repeated) = (counted(|s| s.lost).saturating_add(tail), counted(|s| s.repeated));
        log.absurd += counted(|s| s.absurd) + self.rows.absurd;
        log.unreadable += self.summary.unreadable();
        if lost > 0 {
            let text = format!("{lost} cycles are not in the log: their latencies are not known");
            reading.note("import-samples-missing", Weight::PreventsPass, text).advice =
                "let cyclictest write to memory, for example /dev/shm, or use a histogram"
                    .to_owned();
        }
        if repeated > 0 {
            let text =
                format!("{repeated} cycles are repeated or out of order: the log is damaged");
            reading.note("import-damaged", Weight::PreventsPass, text);
        }
    }
}
