//! Options of old versions that scripts still have. rt-tests 1.5 and later don't know them: they show their help,
//! and measure nothing.

/// What is said of `-n` and `--nanosleep`.
pub(super) const NANOSLEEP: &str = "-n is obsolete: clock_nanosleep is always used";

/// The names that getopt puts between quotes.
fn name(message: &str) -> Option<&str> {
    message.split('\'').nth(1)
}

/// What is said of an option that asked for what is so anyway: it is skipped.
pub(super) fn harmless(message: &str) -> Option<&'static str> {
    match name(message)? {
        "--nanosleep" => Some(NANOSLEEP),
        "--notrace" => Some("--notrace is obsolete: nothing is traced without --tracemark"),
        _ => None,
    }
}

/// What is said of an option that did something else: nothing is measured.
pub(super) fn removed(message: &str) -> Option<&'static str> {
    let is_unknown = message.starts_with("invalid option") || message.starts_with("unrecognized");
    let is_tracer = |name: &str| {
        let short = matches!(name, "B" | "C" | "E" | "f" | "I" | "O" | "P" | "T" | "w" | "W");
        let long = ["preemptirqs", "context", "event", "ftrace", "irqsoff", "traceopt"];
        let more = ["preemptoff", "tracer", "wakeup", "wakeuprt"];
        let bare = name.strip_prefix("--");
        short || bare.is_some_and(|name| long.contains(&name) || more.contains(&name))
    };
    match name(message).filter(|_| is_unknown)? {
        "U" | "--numa" => Some(
            "this option was removed in rt-tests 1.5: write -a -t for one thread on each CPU, whose memory is on \
             its node",
        ),
        name if is_tracer(name) => Some(
            "this option chose a tracer and was removed in rt-tests 1.5: trace with trace-cmd, and stop the trace \
             with -b USEC --tracemark",
        ),
        _ => None,
    }
}
