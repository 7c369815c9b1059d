//! Latencies, counted in memory that is there from the start: from the programmed instant to the first
//! clock reading after it.

use std::{
    fs::File,
    io::{self, BufWriter, Write},
    path::Path,
};

/// Buckets of 1 us; what is later is an overflow.
const BUCKETS: usize = 10_000;

/// Counted latencies.
#[derive(Debug)]
pub struct Latencies {
    count: Vec<u64>,
    overflow: u64,
    cycles: u64,
    min_ns: i64,
    max_ns: i64,
    sum_ns: i64,
}

impl Latencies {
    pub fn new() -> Latencies {
        Latencies {
            count: vec![0; BUCKETS],
            overflow: 0,
            cycles: 0,
            min_ns: i64::MAX,
            max_ns: 0,
            sum_ns: 0,
        }
    }

    pub fn note(&mut self, latency_ns: i64) {
        let us = usize::try_from(latency_ns / 1000).unwrap_or(BUCKETS);
        *self.count.get_mut(us).unwrap_or(&mut self.overflow) += 1;
        self.min_ns = self.min_ns.min(latency_ns);
        self.max_ns = self.max_ns.max(latency_ns);
        self.sum_ns += latency_ns;
        self.cycles += 1;
    }

    pub fn cycles(&self) -> u64 {
        self.cycles
    }

    pub fn min_us(&self) -> i64 {
        if self.cycles == 0 {
            0
        } else {
            self.min_ns / 1000
        }
    }

    pub fn avg_us(&self) -> i64 {
        self.sum_ns / self.cycles.max(1) as i64 / 1000
    }

    pub fn max_us(&self) -> i64 {
        self.max_ns / 1000
    }

    /// Writes a histogram as cyclictest does: rtscope import reads it.
    pub fn write(&self, path: &Path) -> io::Result<()> {
        let mut file = BufWriter::new(File::create(path)?);
        writeln!(file, "# Histogram")?;
        for (us, count) in self.count.iter().enumerate() {
            writeln!(file, "{us:06} {count:06}")?;
        }
        writeln!(file, "# Total: {:09}", self.cycles - self.overflow)?;
        writeln!(file, "# Min Latencies: {:05}", self.min_us())?;
        writeln!(file, "# Avg Latencies: {:05}", self.avg_us())?;
        writeln!(file, "# Max Latencies: {:05}", self.max_us())?;
        writeln!(file, "# Histogram Overflows: {:05}", self.overflow)?;
        file.flush()
    }
}
