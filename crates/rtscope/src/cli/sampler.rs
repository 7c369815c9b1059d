//! The options that change a plan's sampler.

use rtscope_model::plan::{SamplerPatch, parse_sampler};

// Numbers and times take a minus sign, so that the range is named and no other spelling is advised.
/// Changes to the plan's sampler. Without them the plan decides.
#[derive(Clone, Debug, Default, clap::Args)]
#[command(next_help_heading = "Sampler")]
#[group(id = "sampler")]
pub(crate) struct Options {
    /// Number of threads [default: one for each measured CPU]
    #[arg(short, long, value_name = "N", allow_hyphen_values = true)]
    threads: Option<String>,
    /// CPUs to measure: all, last, or a set such as 0-3,6; isolated CPUs only if named
    #[arg(short, long, value_name = "SET")]
    cpus: Option<String>,
    /// pinned: each thread on one CPU; free: on any of them
    #[arg(long, value_name = "HOW")]
    placement: Option<String>,
    /// fifo, rr, other, batch, idle or deadline
    #[arg(long, value_name = "POLICY")]
    policy: Option<String>,
    /// Real-time priority, 1 to 99
    #[arg(short, long, value_name = "N", allow_hyphen_values = true)]
    priority: Option<String>,
    /// Nice value of the fair policies, -20 to 19
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    nice: Option<String>,
    /// Runtime of the deadline policy in each interval
    #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
    runtime: Option<String>,
    /// Time between two wake-ups of a thread, for example 200us or 1ms
    #[arg(short, long, value_name = "TIME", allow_hyphen_values = true)]
    interval: Option<String>,
    /// Thread n's interval is longer by n times this
    #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
    distance: Option<String>,
    /// Each thread's interval, separated by commas
    #[arg(long, value_name = "TIMES", allow_hyphen_values = true)]
    intervals: Option<String>,
    /// Make each interval 0.62 % longer, so that wake-ups visit all phases of the kernel's tick
    #[arg(long)]
    spread: bool,
    /// monotonic or realtime
    #[arg(long, value_name = "CLOCK")]
    clock: Option<String>,
    /// absolute or relative
    #[arg(long, value_name = "HOW")]
    sleep: Option<String>,
    /// How to handle activations missed by a late wake-up: skip (and count) them, or replay them
    #[arg(long, value_name = "HOW")]
    overrun: Option<String>,
    /// together, or second: at the next full second
    #[arg(long, value_name = "WHEN")]
    start: Option<String>,
    /// Thread n starts later by n times this
    #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
    stagger: Option<String>,
    /// Time before samples count
    #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
    warmup: Option<String>,
    /// Width of a histogram bucket: 1us or 1ns
    #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
    resolution: Option<String>,
    /// Number of exact histogram buckets; larger latencies are kept to within 3 %
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    buckets: Option<String>,
    /// Length of a slice of the record
    #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
    slice: Option<String>,
    /// End the run when a latency is above this
    #[arg(short, long, value_name = "TIME", allow_hyphen_values = true)]
    break_above: Option<String>,
    /// Keep every sample in DIR/raw
    #[arg(long)]
    raw: bool,
}

impl Options {
    /// The patch, read by the same rules as a plan's `[sampler]` table.
    pub(crate) fn patch(&self) -> anyhow::Result<SamplerPatch> {
        Ok(parse_sampler(self.given())?)
    }

    /// The name of the first option that was given.
    pub(crate) fn first_given(&self) -> Option<String> {
        self.given().next().map(|(key, _)| key.replace('_', "-"))
    }

    /// The options that were given, as a plan names them.
    fn given(&self) -> impl Iterator<Item = (&str, &str)> {
        let values = [
            ("threads", self.threads.as_deref()),
            ("cpus", self.cpus.as_deref()),
            ("placement", self.placement.as_deref()),
            ("policy", self.policy.as_deref()),
            ("priority", self.priority.as_deref()),
            ("nice", self.nice.as_deref()),
            ("runtime", self.runtime.as_deref()),
            ("interval", self.interval.as_deref()),
            ("distance", self.distance.as_deref()),
            ("intervals", self.intervals.as_deref()),
            ("spread", self.spread.then_some("true")),
            ("clock", self.clock.as_deref()),
            ("sleep", self.sleep.as_deref()),
            ("overrun", self.overrun.as_deref()),
            ("start", self.start.as_deref()),
            ("stagger", self.stagger.as_deref()),
            ("warmup", self.warmup.as_deref()),
            ("resolution", self.resolution.as_deref()),
            ("buckets", self.buckets.as_deref()),
            ("slice", self.slice.as_deref()),
            ("break_above", self.break_above.as_deref()),
            ("raw", self.raw.then_some("true")),
        ];
        values.into_iter().filter_map(|(key, value)| Some((key, value?)))
    }
}
