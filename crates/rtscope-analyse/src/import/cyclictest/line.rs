//! Lines of cyclictest: a latency of a log, and the figures of a thread.

use memchr::memchr;

use crate::import::{
    cell::Said,
    contradiction::Contradictions,
    number::{self, Printed, latency, whole},
};

/// What a `T:` line says.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Status {
    /// The thread's number in the system.
    pub(super) tid: u64,
    pub(super) priority: u64,
    pub(super) interval_us: u64,
    pub(super) cycles: u64,
    /// The largest latency that was ever shown as the last one.
    pub(super) act: Option<u64>,
    pub(super) said: Said,
}

impl Status {
    /// A screen that is drawn while the thread wakes may show the latency before the maximum: later ones make
    /// up for it.
    pub(super) fn check(&self, label: &str, found: &mut Contradictions) {
        if let (Some(act), Some(max)) = (self.act, self.said.max)
            && act > max
        {
            found.add(format!("{label} shows a latency of {act}, and a maximum of {max}"));
        }
    }

    /// Holds a line of a screen against the histogram that was written later.
    pub(super) fn check_histogram(
        &self,
        label: &str,
        placed: u64,
        last: &Said,
        found: &mut Contradictions,
    ) {
        if self.said.max.zip(last.max).is_some_and(|(before, last)| before > last) {
            found.add(format!("the maximum of {label} is smaller than it was on the screen"));
        }
        let Some(overflow) = last.overflow else { return };
        let counted = placed.saturating_add(overflow);
        // A thread counts its cycle and its latency one after the other.
        if self.cycles > counted.saturating_add(1) {
            found.add(format!(
                "{label} had {} cycles on the screen, and its histogram has {counted} latencies",
                self.cycles
            ));
        }
    }
}

/// `%8d:%8lu:%8ld`, 26 bytes of the usual width.
#[inline]
pub(super) fn fixed(line: &[u8]) -> Option<(u64, u64, u64)> {
    let field = |at: usize| number::field(line.get(at..at + 8)?.try_into().ok()?);
    if line.get(8) != Some(&b':') || line.get(17) != Some(&b':') {
        return None;
    }
    Some((field(0)?, field(9)?, field(18)?))
}

/// A sample line of any width.
pub(super) fn sample(line: &[u8]) -> Option<(u64, u64, Printed)> {
    let first = memchr(b':', line)?;
    let second = first + 1 + memchr(b':', &line[first + 1..])?;
    let thread = whole(line[..first].trim_ascii())?;
    let cycle = whole(line[first + 1..second].trim_ascii())?;
    let value = latency(line[second + 1..].trim_ascii())?;
    Some((thread, cycle, value))
}

/// Whether a line that `sample` can't read has the form of a latency: three fields, and digits in two of them.
pub(super) fn is_like_sample(line: &[u8]) -> bool {
    let fields: Vec<&[u8]> = line.split(|&byte| byte == b':').map(<[u8]>::trim_ascii).collect();
    let is_word = |field: &&[u8]| !field.iter().any(u8::is_ascii_whitespace);
    let has_digit = |field: &&&[u8]| field.iter().any(u8::is_ascii_digit);
    fields.len() == 3 && fields.iter().all(is_word) && fields.iter().filter(has_digit).count() >= 2
}

/// `T: 0 Spike:      87: TS:   1234567890`, which `--spike` prints at the end.
pub(super) fn is_spike(line: &[u8]) -> bool {
    let text = String::from_utf8_lossy(line);
    let words: Vec<&str> = text.split(':').map(str::trim).collect();
    let is_number = |word: &str| whole(word.as_bytes()).is_some();
    let ["T", spike, latency, "TS", at] = words.as_slice() else { return false };
    let thread = spike.strip_suffix("Spike").map(str::trim);
    thread.is_some_and(is_number) && is_number(latency) && is_number(at)
}

/// `T: 0 (18607) P:80 I:1000 C:   3000 Min:      4 Act:   10 Avg:    9 Max:      98`.
pub(super) fn status(line: &[u8]) -> Option<(u64, Status)> {
    let text = std::str::from_utf8(line).ok()?;
    let after = |key: &str| {
        let rest = text[text.find(key)? + key.len()..].trim_start();
        rest.split(|c: char| c.is_ascii_whitespace() || c == '(').next()
    };
    let number = |key: &str| whole(after(key)?.as_bytes());
    // Old versions print no average; what is printed and isn't a number makes the line unreadable.
    let printed = |key: &str| match after(key) {
        Some(word) => latency(word.as_bytes()).map(Some),
        None => Some(None),
    };
    let late = |printed: Option<Printed>| match printed {
        Some(Printed::Late(value)) => Some(value),
        _ => None,
    };
    let (min, mean, max) = (printed("Min:")?, printed("Avg:")?, Some(printed("Max:")??));
    let act = late(printed("Act:")?);
    // Only wake-ups before their time make an average negative.
    if mean == Some(Printed::Early) && min != Some(Printed::Early) {
        return None;
    }
    let cycles = number("C:")?;
    let said = Said {
        count: Some(cycles),
        min: late(min),
        max: late(max),
        mean: late(mean).map(|mean| mean as f64),
        early: u64::from([min, max].contains(&Some(Printed::Early))),
        ..Said::default()
    };
    let tid = after("(").and_then(|tid| whole(tid.trim_end_matches(')').as_bytes())).unwrap_or(0);
    let interval_us = number("I:").unwrap_or(0);
    let priority = number("P:").unwrap_or(0);
    Some((number("T:")?, Status { tid, priority, interval_us, cycles, act, said }))
}
