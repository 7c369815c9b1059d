//! Writes the record of a long run without running it: a simulated machine through the recorder. What
//! reading it takes is in `docs/format/record.md`.
//!
//! ```sh
//! cargo run --release -p rtscope-measure --example long_record -- DIR THREADS HOURS
//! ```

mod machine;

use std::{env, path::Path, process::ExitCode, time::Instant};

use self::machine::Machine;

fn main() -> ExitCode {
    let words: Vec<String> = env::args().skip(1).collect();
    let number = |at: usize| words.get(at).and_then(|word| word.parse().ok());
    let (Some(folder), Some(threads), Some(hours)) = (words.first(), number(1), number(2)) else {
        eprintln!("usage: long_record DIR THREADS HOURS");
        return ExitCode::FAILURE;
    };
    let mut machine = Machine::new(threads, u64::from(hours) * 3_600);
    let mut recorder = machine.recorder(Path::new(folder));
    let before = Instant::now();
    while machine.second < machine.seconds {
        machine.run(&mut recorder, 900);
        recorder.catch_up();
        let hours = machine.second as f64 / 3_600.0;
        eprint!("\r{hours:.2} h of the run in {:.0} s", before.elapsed().as_secs_f64());
    }
    machine.end(&mut recorder);
    let (_, trouble) = recorder.finish();
    eprintln!();
    assert_eq!(trouble, None, "all of it is on disk");
    ExitCode::SUCCESS
}
