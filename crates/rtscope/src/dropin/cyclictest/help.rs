//! The text of `--help`, which cyclictest also prints after a mistake.

use crate::dropin::RT_TESTS_VERSION;

/// An option: how it is written, and what it does.
const LINES: &[(&str, &str)] = &[
    (
        "-a [CPUSET] --affinity",
        "thread n on the n-th CPU, or the n-th of a set: 3-5,0  !0  +0-1  all",
    ),
    ("-A [USEC] --aligned", "threads start together, each USEC after the one before"),
    ("-b USEC  --breaktrace=USEC", "end when a latency is above USEC (ns with -N)"),
    ("-c CLOCK --clock=CLOCK", "0 or monotonic (default), 1 or realtime"),
    ("--default-system", "leave /dev/cpu_dma_latency alone"),
    ("--deepest-idle-state=N", "measured CPUs enter no idle state deeper than N; -1: none at all"),
    ("-d DIST  --distance=DIST", "thread n has interval INTV + n * DIST us (default 500)"),
    ("-D TIME  --duration=TIME", "how long: seconds, or with m, h, d at the end"),
    ("-F PATH  --fifo=PATH", "a named pipe that shows the state to whoever reads it"),
    ("-h US    --histogram=US", "print a histogram of US buckets of 1 us (ns with -N) at the end"),
    ("-H US    --histofall=US", "the same with a column of sums"),
    ("--histfile=PATH", "the histogram goes to a file instead"),
    ("-i INTV  --interval=INTV", "interval of thread 0 in us (default 1000)"),
    ("--json=FILE", "results as JSON, - for standard output"),
    ("--laptop", "as --default-system"),
    ("--latency=US", "what /dev/cpu_dma_latency is held at (default 0)"),
    ("-l LOOPS --loops=LOOPS", "cycles of a thread (default 0, no end)"),
    ("--mainaffinity=CPUSET", "CPUs of the control thread"),
    ("-m       --mlockall", "lock memory"),
    ("-M       --refresh_on_max", "draw the screen only for a new maximum"),
    ("-N       --nsecs", "all values in ns"),
    ("-o N     --oscope=N", "with -v: the largest of every N samples"),
    ("-p PRIO  --priority=PRIO", "real-time priority, SCHED_FIFO"),
    ("--policy=NAME", "other, normal, batch, idle, fifo or rr"),
    ("--priospread", "thread n has priority PRIO - n"),
    ("-q       --quiet", "print results only at the end"),
    ("-r       --relative", "relative instead of absolute sleeps"),
    ("-R       --resolution", "check the clock's resolution"),
    ("--secaligned [USEC]", "start at a full second, or USEC later"),
    ("-s       --system", "sleep with nanosleep"),
    ("-S       --smp", "one thread on each allowed CPU, all of the same priority"),
    ("--spike=US", "note every latency above US"),
    ("--spike-nodes=N", "note at most N of them (default 1024; after --spike)"),
    ("--smi", "count system management interrupts (Intel, root, with -a or -S)"),
    ("-t [N]   --threads=N", "threads: N, or one for each CPU (default 1)"),
    ("--tracemark", "with -b: mark and stop the kernel's trace"),
    ("-u       --unbuffered", "write output at once (always so)"),
    ("-v       --verbose", "print every sample as n:c:v, thread, cycle, value"),
    ("-x       --posix_timers", "sleep with POSIX timers"),
    ("--strict-exit", "rtscope's own: 2 when -b was hit, 64 for an unknown option"),
];

pub(super) fn text() -> String {
    let version = env!("CARGO_PKG_VERSION");
    let head = format!(
        "cyclictest V {RT_TESTS_VERSION} (rtscope {version})\nUsage:\ncyclictest <options>\n\n"
    );
    let lines = LINES.iter().map(|(option, about)| format!("{option:<26} {about}\n"));
    head + &lines.collect::<String>()
}
