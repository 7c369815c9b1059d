//! How often an interval was given, and how often it held the truth.

/// The ends of an interval; one that is missing is infinitely far away.
pub(crate) type Ends = (Option<f64>, Option<f64>);

/// What an interval ought to enclose.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Truth {
    pub(crate) of_system: f64,
    /// The value that the conditions of this run would have in the long run.
    pub(crate) of_run: f64,
    /// Whether the run met any disturbance. One that didn't can't know of it.
    pub(crate) has_met: bool,
}

/// Intervals of many runs of one system.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Score {
    pub(crate) runs: u32,
    pub(crate) given: u32,
    /// Intervals without an upper end.
    pub(crate) open: u32,
    /// Intervals that enclose the value of the system.
    pub(crate) held: u32,
    /// Intervals that enclose the value of the conditions of the run.
    pub(crate) held_of_run: u32,
}

impl Score {
    /// Counts one run: the ends of its interval, none when it was refused. An end that is missing is
    /// infinitely far away.
    pub(crate) fn add(&mut self, interval: Option<Ends>, truth: Truth) {
        self.runs += 1;
        let Some((low, high)) = interval else { return };
        self.given += 1;
        self.open += u32::from(high.is_none());
        let holds = |truth: f64| {
            low.is_none_or(|low| low <= truth) && high.is_none_or(|high| truth <= high)
        };
        self.held += u32::from(holds(truth.of_system));
        self.held_of_run += u32::from(holds(truth.of_run));
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

#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Figure {
    /// If wake-ups were independent.
    pub(crate) independent: Score,
    /// As they are.
    pub(crate) all: Score,
    /// As they are, of the runs that met a disturbance.
    pub(crate) met: Score,
}

impl Figure {
    /// Counts one run.
    pub(crate) fn add(&mut self, independent: Option<Ends>, honest: Option<Ends>, truth: Truth) {
        self.independent.add(independent, truth);
        self.all.add(honest, truth);
        if truth.has_met {
            self.met.add(honest, truth);
        }
    }
}

/// Prints the head of a table in Markdown.
pub(crate) fn print_head() {
    println!(
        "| figure | system | run | held if independent | held | held for the run | refused | no upper end |"
    );
    println!("|---|---|---:|---:|---:|---:|---:|---:|");
}

/// Prints the line of a figure, and one of the runs that met a disturbance where some didn't.
pub(crate) fn print_lines(figure: &str, system: &str, seconds: u64, scores: &Figure) {
    let independent = scores.independent.held_percent();
    let print = |system: &str, independent: Option<f64>, score: &Score| {
        let percent =
            |share: Option<f64>| share.map_or_else(String::new, |share| format!("{share:.0} %"));
        let of_given = |count: u32| {
            (score.given > 0).then(|| 100.0 * f64::from(count) / f64::from(score.given))
        };
        println!(
            "| {figure} | {system} | {seconds} s | {} | {} | {} | {} | {} |",
            percent(independent),
            percent(of_given(score.held)),
            percent(of_given(score.held_of_run)),
            percent(Some(score.refused_percent())),
            percent(of_given(score.open))
        );
    };
    print(system, independent, &scores.all);
    let (met, runs) = (scores.met.runs, scores.all.runs);
    if met < runs {
        let share = 100.0 * f64::from(met) / f64::from(runs);
        print(&format!("the {share:.0} % of these runs that met a spell"), None, &scores.met);
    }
}
