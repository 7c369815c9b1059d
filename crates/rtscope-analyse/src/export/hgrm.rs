//! The percentile table of HdrHistogram (`.hgrm`), as its plotter reads it, in us.
//!
//! ```text
//!        Value     Percentile TotalCount 1/(1-Percentile)
//!        4.999 0.500000000000        512           2.00
//! ```
//!
//! Percentiles step as HdrHistogram's do: five to each halving of the distance to 100 %. A value is
//! the upper edge of its bucket, clipped to the exact maximum. Mean and maximum are exact; the
//! deviation is that of the buckets' middles.

use rtscope_model::histogram::Histogram;

use super::Format;

pub(super) const FORMAT: Format = Format {
    name: "hgrm",
    what: "HdrHistogram's percentile table in us, all threads together; of one cell",
    ending: "hgrm",
    write: |subject| {
        let cell = subject.only()?;
        let unplaced = cell.all.histogram.unplaced().count;
        match unplaced {
            0 => Ok((table(&cell.all.histogram) + &wait(cell.all.waited_ns())).into_bytes()),
            n => Err(format!(
                "{n} latencies of {} are in no bucket: no percentile is known",
                cell.name
            )),
        }
    },
};

/// A comment on an activation that was never answered: it has no latency, and no percentile includes it.
fn wait(waited_ns: Option<u64>) -> String {
    let text =
        |ns: u64| format!("#[Waited  = at least {:.3}, longer than Max]\n", ns as f64 / 1_000.0);
    waited_ns.map(text).unwrap_or_default()
}

/// Percentiles to each halving of the distance to 100 %.
const TICKS: f64 = 5.0;

fn table(histogram: &Histogram) -> String {
    let (layout, bins, total) = (histogram.layout(), histogram.bins(), histogram.count());
    let max_ns = histogram.max_ns().unwrap_or(0);
    let value_us = |index: u32| layout.upper_ns(index).min(max_ns) as f64 / 1_000.0;
    let mut text = "       Value     Percentile TotalCount 1/(1-Percentile)\n\n".to_owned();
    let (mut seen, mut wanted) = (0u64, 0.0f64);
    for (index, count) in &bins {
        seen += count;
        let reached = seen as f64 / total as f64;
        while wanted <= reached {
            let value = value_us(*index);
            let inverse = 1.0 / (1.0 - wanted);
            text += &format!("{value:12.3} {wanted:.12} {seen:10} {inverse:14.2}\n");
            wanted = next(wanted);
            // The last bucket comes once, and then at 100 %.
            if seen == total {
                break;
            }
        }
    }
    // The last line is the maximum, at 100 %.
    let max_us = max_ns as f64 / 1_000.0;
    text += &format!("{max_us:12.3} {:.12} {total:10}\n", 1.0);
    let mean_ns = histogram.mean_ns().unwrap_or(0.0);
    let square = |(index, count): &(u32, u64)| {
        let lower_ns = layout.lower_ns(*index);
        let middle_ns = lower_ns.midpoint(layout.upper_ns(*index).min(max_ns)) as f64;
        (middle_ns - mean_ns).powi(2) * *count as f64
    };
    let deviation_ns = (bins.iter().map(square).sum::<f64>() / total.max(1) as f64).sqrt();
    let (mean_us, deviation_us) = (mean_ns / 1_000.0, deviation_ns / 1_000.0);
    text += &format!("#[Mean    = {mean_us:12.3}, StdDeviation   = {deviation_us:12.3}]\n");
    text += &format!("#[Max     = {max_us:12.3}, Total count    = {total:12}]\n");
    text += &format!("#[Buckets = {:12}, SubBuckets     = {:12}]\n", 1, layout.exact);
    text
}

/// The percentile after one: a step of a fifth of the last halving, `2^-k`, that it lies in.
fn next(percentile: f64) -> f64 {
    let halvings = (-(1.0 - percentile).log2()).floor();
    percentile + 1.0 / (TICKS * 2f64.powf(halvings + 1.0))
}
