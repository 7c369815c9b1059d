//! Softirqs, by the functions that a replay shows.

use rtscope_model::trace::Section;

use crate::statistics::explain::cpu;

/// Functions that run softirqs.
pub(super) const RUN_SOFTIRQS: [&str; 3] =
    ["__do_softirq", "handle_softirqs", "__softirqentry_text_start"];

/// The handlers of softirqs by their numbers (`include/linux/interrupt.h`); some have had several names.
const HANDLERS: [&[&str]; 10] = [
    &["tasklet_hi_action"],
    &["run_timer_softirq"],
    &["net_tx_action"],
    &["net_rx_action"],
    &["blk_done_softirq"],
    &["irq_poll_softirq"],
    &["tasklet_action"],
    &["run_rebalance_domains", "sched_balance_softirq"],
    &["hrtimer_run_softirq"],
    &["rcu_core_si"],
];

/// The name of what softirqs take beside their handlers.
pub(in crate::statistics::explain) const SOFTIRQS: &str = "softirqs";

/// What a softirq is called whose handler this is.
pub(super) fn softirq_of(handler: &str) -> Option<String> {
    let number = HANDLERS.iter().position(|names| names.contains(&handler))?;
    Some(cpu::section_name(Section::Softirq(number as u32)))
}
