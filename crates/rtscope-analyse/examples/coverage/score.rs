//! How often an interval was given, and how often it held the truth.

/// Intervals of many runs of one system.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Score {
    /// Runs.
    pub(crate) runs: u32,
    /// Runs with an interval.
    pub(crate) given: u32,
    /// Intervals without an upper end.
    pub(crate) open: u32,
    /// Intervals that enclose the truth.
    pub(crate) held: u32,
}

impl Score {
    /// Counts one run: the ends of its interval, none when it was refused. An end that is missing is
    /// infinitely far away.
    pub(crate) fn add(&mut self, interval: Option<(Option<f64>, Option<f64>)>, truth: f64) {
        self.runs += 1;
        let Some((low, high)) = interval else { return };
        self.given += 1;
        self.open += u32::from(high.is_none());
        let holds = low.is_none_or(|low| low <= truth) && high.is_none_or(|high| truth <= high);
        self.held += u32::from(holds);
    }

    /// Share of the intervals that enclose the truth, in percent; none when there was no interval.
    pub(crate) fn held_percent(&self) -> Option<f64> {
        (self.given > 0).then(|| 100.0 * f64::from(self.held) / f64::from(self.given))
    }

    /// Share of the runs without an interval, in percent.
    pub(crate) fn refused_percent(&self) -> f64 {
        100.0 * f64::from(self.runs - self.given) / f64::from(self.runs.max(1))
    }
}

/// Prints the head of a table in Markdown.
pub(crate) fn print_head() {
    println!("| figure | system | run | held if independent | held | refused | no upper end |");
    println!("|---|---|---:|---:|---:|---:|---:|");
}

/// Prints a line of it.
pub(crate) fn print_line(
    figure: &str,
    system: &str,
    seconds: u64,
    independent: &Score,
    honest: &Score,
) {
    let percent =
        |share: Option<f64>| share.map_or_else(String::new, |share| format!("{share:.0} %"));
    let open = Some(100.0 * f64::from(honest.open) / f64::from(honest.given.max(1)));
    println!(
        "| {figure} | {system} | {seconds} s | {} | {} | {} | {} |",
        percent(independent.held_percent()),
        percent(honest.held_percent()),
        percent(Some(honest.refused_percent())),
        percent(open)
    );
}
