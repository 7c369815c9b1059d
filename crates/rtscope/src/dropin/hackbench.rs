//! `hackbench`: its command line, worked by the load `message`.
//!
//! The time is that of the messages alone: from the opening of the gate, when all senders and
//! receivers are there and placed, to the end of the last of them.

use std::time::Duration;

use rtscope_measure::{
    load::{Launcher, run_to_end},
    signals::Interrupt,
};
use rtscope_model::time::Nanos;
use rtscope_sys::sched;

use crate::leftovers;

use super::{
    RT_TESTS_VERSION,
    getopt::{Arguments, Opt, ParsedOption, Value, atoi, stray},
    print, say,
};

const TABLE: &[Opt] = &[
    Opt::new("fds", Some('f'), Value::Required),
    Opt::new("fifo", Some('F'), Value::None),
    Opt::new("groups", Some('g'), Value::Required),
    Opt::new("help", Some('h'), Value::None),
    Opt::new("inet", Some('i'), Value::None),
    Opt::new("loops", Some('l'), Value::Required),
    Opt::new("pipe", Some('p'), Value::None),
    Opt::new("processes", Some('P'), Value::None),
    Opt::new("datasize", Some('s'), Value::Required),
    Opt::new("threads", Some('T'), Value::None),
];

/// Nothing of it may outlive this, whatever happens.
const LIMIT: Duration = Duration::from_secs(24 * 3_600);

/// What a command line asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Options {
    groups: u64,
    fds: u64,
    loops: u64,
    bytes: u64,
    threads: bool,
    pipe: bool,
    inet: bool,
    fifo: bool,
}

impl Default for Options {
    fn default() -> Options {
        let (threads, pipe, inet, fifo) = (false, false, false, false);
        Options { groups: 10, fds: 20, loops: 100, bytes: 100, threads, pipe, inet, fifo }
    }
}

/// Reads a command line. An error is the line that is said, if any, and the exit code.
fn parse(words: &[String]) -> Result<Options, (Option<String>, u8)> {
    let mut options = Options::default();
    let mut words = Arguments::new(TABLE, words);
    while let Some(option) = words.option() {
        let found = option.map_err(|message| (Some(message), 1))?;
        match found.name {
            "fds" => options.fds = number(&found, 'f')?,
            "groups" => options.groups = number(&found, 'g')?,
            "loops" => options.loops = number(&found, 'l')?,
            "datasize" => options.bytes = number(&found, 's')?,
            "fifo" => options.fifo = true,
            "inet" => options.inet = true,
            "pipe" => options.pipe = true,
            "processes" => options.threads = false,
            "threads" => options.threads = true,
            _ => return Err((None, 0)),
        }
    }
    words.strays().iter().for_each(|word| say(&format!("hackbench: {}", stray(TABLE, word))));
    if options.pipe && options.inet {
        return Err((Some("--pipe|-p and --inet|-i cannot be used together".to_owned()), 1));
    }
    Ok(options)
}

fn number(found: &ParsedOption, letter: char) -> Result<u64, (Option<String>, u8)> {
    let number = atoi(found.value.as_deref().unwrap_or_default());
    let refusal = || (Some(format!("--{}|-{letter} requires an integer > 0", found.name)), 1);
    u64::try_from(number).ok().filter(|n| *n > 0).ok_or_else(refusal)
}

impl Options {
    /// The lines before the work.
    fn announcement(&self) -> String {
        let mode = if self.threads { "threaded" } else { "process" };
        let (descriptors, tasks) = (2 * self.fds, self.tasks());
        format!(
            "Running in {mode} mode with {} groups using {descriptors} file descriptors each (== {tasks} tasks)\n\
             Each sender will pass {} messages of {} bytes\n",
            self.groups, self.loops, self.bytes
        )
    }

    /// Senders and receivers.
    fn tasks(&self) -> u64 {
        2 * self.fds * self.groups
    }

    /// The load that does the work.
    fn load(&self) -> String {
        let via = match (self.pipe, self.inet) {
            (true, _) => "pipe",
            (_, true) => "inet",
            _ => "socket",
        };
        let mode = if self.threads { "thread" } else { "process" };
        let policy = if self.fifo { " policy=fifo priority=1" } else { "" };
        let Options { groups, fds, loops, bytes, .. } = self;
        format!(
            "message groups={groups} fds={fds} loops={loops} size={bytes}B via={via} mode={mode}{policy}"
        )
    }
}

/// Runs hackbench with these words and answers its exit code.
pub(super) fn main(words: &[String]) -> u8 {
    let options = match parse(words) {
        Ok(options) => options,
        Err((message, code)) => {
            message.iter().for_each(|text| say(&format!("hackbench: {text}")));
            print(&help());
            return code;
        }
    };
    leftovers::restore();
    print(&options.announcement());
    match work(&options) {
        Ok(time) => {
            print(&format!("Time: {:.3}\n", time.as_secs_f64()));
            0
        }
        Err(e) => {
            say(&format!("hackbench: {}", crate::failure::error_text(&e)));
            1
        }
    }
}

fn work(options: &Options) -> anyhow::Result<Duration> {
    let interrupt = Interrupt::install_patient()?;
    let line = options.load().parse().map_err(crate::failure::Refused)?;
    let all = sched::affinity(sched::SELF)?;
    let launcher = Launcher::new(all.clone(), all);
    let is_over = || interrupt.is_stopped();
    let time_ns = run_to_end(&launcher, &line, Nanos(LIMIT.as_nanos() as u64), is_over)?;
    if interrupt.is_stopped() {
        print(&format!("signaling {} worker threads to terminate\n", options.tasks()));
        say("hackbench: a signal ended the run: the time covers only the part before the signal");
    }
    Ok(Duration::from_nanos(time_ns))
}

fn help() -> String {
    let version = env!("CARGO_PKG_VERSION");
    format!(
        "hackbench V {RT_TESTS_VERSION} (rtscope {version})\nUsage:\nhackbench <options>\n\n\
         -f N  --fds=N       senders in a group, and as many receivers (default 20)\n\
         -F    --fifo        senders and receivers run with SCHED_FIFO 1\n\
         -g N  --groups=N    groups (default 10)\n\
         -h    --help        this text\n\
         -i    --inet        send through TCP connections\n\
         -l N  --loops=N     messages from each sender to each receiver (default 100)\n\
         -p    --pipe        send through pipes\n\
         -P    --processes   senders and receivers are processes (default)\n\
         -s N  --datasize=N  bytes of a message (default 100)\n\
         -T    --threads     senders and receivers are threads\n"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(line: &str) -> Result<Options, (Option<String>, u8)> {
        let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
        parse(&words)
    }

    #[test]
    fn options_are_read_and_become_a_load() {
        // As rteval calls it.
        let options = read("-P -g 6 -l 1000 -s 1000").expect("options");
        let asked = Options { groups: 6, loops: 1000, bytes: 1000, ..Options::default() };
        assert_eq!(options, asked);
        let load = "message groups=6 fds=20 loops=1000 size=1000B via=socket mode=process";
        assert_eq!(options.load(), load);
        assert!(rtscope_measure::load::check(&load.parse().expect("a line")).is_ok());
        let words = "-T -p -F -f3".split(' ').collect::<Vec<_>>().join(" ");
        let load = read(&words).expect("options").load();
        assert!(load.ends_with("via=pipe mode=thread policy=fifo priority=1"), "{load}");
        let inet = read("-i").expect("options").load();
        assert!(rtscope_measure::load::check(&inet.parse().expect("a line")).is_ok(), "{inet}");
    }

    #[test]
    fn the_lines_before_the_work_are_hackbenchs() {
        let expected = "Running in threaded mode with 1 groups using 6 file descriptors each (== 6 tasks)\n\
                        Each sender will pass 10 messages of 50 bytes\n";
        let options = read("-g1 -l10 -T -p -s 50 -f 3").expect("options");
        assert_eq!(options.announcement(), expected);
    }

    #[test]
    fn mistakes_end_as_hackbench_ends_them() {
        let said = |line: &str| read(line).expect_err("refused");
        assert_eq!(said("-h"), (None, 0));
        assert_eq!(said("--bogus"), (Some("unrecognized option '--bogus'".to_owned()), 1));
        let text = "--groups|-g requires an integer > 0";
        assert_eq!(said("-g 0"), (Some(text.to_owned()), 1));
        let text = "--pipe|-p and --inet|-i cannot be used together";
        assert_eq!(said("-p -i"), (Some(text.to_owned()), 1));
    }
}
