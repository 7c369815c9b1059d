//! The options that change a plan's sampler.

use rtscope_model::plan::{SamplerPatch, parse_sampler};

use super::place::PolicyChoice;

// Numbers and times take a minus sign, so that the range is named and no other spelling is advised.
/// Changes to the plan's sampler. Without them the plan decides.
#[derive(Clone, Debug, Default, clap::Args)]
#[command(next_help_heading = "Sampler")]
#[group(id = "sampler")]
pub(crate) struct Options {
    /// Number of threads [default: one for each measured CPU]
    #[arg(short, long, value_name = "N", allow_hyphen_values = true)]
    threads: Option<String>,
    /// CPUs to measure: all, last, or a set such as 0-3,6; isolated CPUs are measured only if named
    #[arg(short, long, alias = "cpu", value_name = "SET")]
    cpus: Option<String>,
    /// Placement of the threads: pinned (each on one CPU) or free (on any of them)
    #[arg(long, value_name = "HOW")]
    placement: Option<String>,
    /// Policy: fifo, rr, other, batch, idle or deadline; also with its priority, for example fifo:80
    #[arg(long, value_name = "POLICY")]
    policy: Option<PolicyChoice>,
    /// Real-time priority, 1 to 99
    #[arg(short, long, value_name = "N", allow_hyphen_values = true)]
    priority: Option<String>,
    /// Nice value of the fair policies, -20 to 19
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    nice: Option<String>,
    /// CPU time in each interval under the deadline policy
    #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
    runtime: Option<String>,
    /// Time between two wake-ups of a thread, for example 200us or 1ms
    #[arg(short, long, alias = "cycle", value_name = "TIME", allow_hyphen_values = true)]
    interval: Option<String>,
    /// Add n times this to the interval of thread n (first thread: 0)
    #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
    distance: Option<String>,
    /// Intervals of the threads, separated by commas
    #[arg(long, value_name = "TIMES", allow_hyphen_values = true)]
    intervals: Option<String>,
    /// Let wake-ups fall at all points of the kernel's tick period. Without a value, each interval is 0.62 % longer.
    /// With --spread=PART, each expiry is delayed by a pseudo-random time of up to that part of the interval; only
    /// 100% is certain to cover the whole tick period
    #[arg(long, value_name = "PART", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    spread: Option<String>,
    /// Seed of the pseudo-random times of --spread=PART
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    spread_seed: Option<String>,
    /// Clock of the sleep: monotonic or realtime
    #[arg(long, value_name = "CLOCK")]
    clock: Option<String>,
    /// Sleep of the threads: absolute or relative
    #[arg(long, value_name = "HOW")]
    sleep: Option<String>,
    /// Handle activations missed by a late wake-up: skip (and count) them, or replay them
    #[arg(long, value_name = "HOW")]
    overrun: Option<String>,
    /// Start of the threads: together, or second (at the next full second)
    #[arg(long, value_name = "WHEN")]
    start: Option<String>,
    /// Delay the start of thread n by n times this (first thread: 0)
    #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
    stagger: Option<String>,
    /// Time at the start in which samples don't count
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
    /// Send a frame at each activation and wait for it, for example 'udp', 'raw over=veth' or
    /// 'udp over=peer peer=HOST'; off measures wake-ups. See rtscope network
    #[arg(long, value_name = "FRAMES")]
    network: Option<String>,
    /// Keep every sample in DIR/raw
    #[arg(long)]
    raw: bool,
}

impl Options {
    /// The patch, read by the same rules as a plan's `[sampler]` table.
    ///
    /// # Errors
    ///
    /// A value makes no sense, or --policy and --priority name two priorities.
    pub(crate) fn patch(&self) -> anyhow::Result<SamplerPatch> {
        let named = self.policy.and_then(|choice| choice.priority).map(|number| number.to_string());
        if let (Some(choice), Some(named), Some(other)) = (self.policy, &named, &self.priority)
            && named != other
        {
            return Err(choice.contradicts(other).into());
        }
        let given = self.given().filter(|(key, _)| named.is_none() || *key != "priority");
        Ok(parse_sampler(given.chain(named.as_deref().map(|number| ("priority", number))))?)
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
            ("policy", self.policy.map(|choice| choice.policy.word())),
            ("priority", self.priority.as_deref()),
            ("nice", self.nice.as_deref()),
            ("runtime", self.runtime.as_deref()),
            ("interval", self.interval.as_deref()),
            ("distance", self.distance.as_deref()),
            ("intervals", self.intervals.as_deref()),
            ("spread", self.spread.as_deref()),
            ("spread_seed", self.spread_seed.as_deref()),
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
            ("network", self.network.as_deref()),
            ("raw", self.raw.then_some("true")),
        ];
        values.into_iter().filter_map(|(key, value)| Some((key, value?)))
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Typed {
        #[command(flatten)]
        options: Options,
    }

    fn patch(words: &str) -> Result<String, String> {
        let words = std::iter::once("x").chain(words.split_whitespace());
        let typed = Typed::try_parse_from(words).map_err(|e| e.to_string())?;
        typed.options.patch().map(|patch| format!("{patch:?}")).map_err(|e| e.to_string())
    }

    #[test]
    fn a_policy_may_name_its_priority() {
        assert_eq!(patch("--policy rr:70 --cpus 1"), patch("--policy rr -p 70 --cpu 1"));
        assert_eq!(patch("--policy rr:70 -p 70"), patch("--policy rr:70"));
        assert_ne!(patch("--policy rr:70"), patch("--policy rr"));
        let said = patch("--policy rr:70 -p 60").expect_err("two priorities");
        assert!(said.contains("contradict each other"), "{said}");
        let said = patch("-p 100").expect_err("too high");
        assert!(said.contains("99"), "{said}");
    }
}
