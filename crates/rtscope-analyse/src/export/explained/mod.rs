//! Late activations as documents for trace viewers.

mod perfetto;
mod protobuf;

use rtscope_model::explain::ExplainRecord;

/// Late activations, and the kernel's pages around them.
#[derive(Clone, Copy, Debug)]
pub struct Lateness<'a> {
    pub record: &'a ExplainRecord,
    /// The record's `trace.dat`, where it has one.
    pub pages: Option<&'a [u8]>,
}

/// A format of late activations.
#[derive(Debug)]
pub struct TraceFormat {
    /// Word on the command line.
    pub name: &'static str,
    /// What is in it, for a list.
    pub what: &'static str,
    /// How the name of such a file ends, without the dot.
    pub ending: &'static str,
    write: fn(&Lateness<'_>) -> Result<Vec<u8>, String>,
}

impl TraceFormat {
    /// The document.
    ///
    /// # Errors
    ///
    /// When the record doesn't hold what the format needs: a sentence.
    pub fn write(&self, lateness: &Lateness<'_>) -> Result<Vec<u8>, String> {
        (self.write)(lateness)
    }
}

pub const TRACE_FORMATS: &[TraceFormat] = &[
    TraceFormat {
        name: "perfetto",
        what: "late activations and their pieces as a trace for ui.perfetto.dev",
        ending: "perfetto-trace",
        write: |lateness| Ok(perfetto::trace(lateness.record)),
    },
    TraceFormat {
        name: "trace.dat",
        what: "the kernel's events around late activations for trace-cmd and KernelShark",
        ending: "dat",
        write: pages,
    },
];

/// The kernel's pages as they were kept.
fn pages(lateness: &Lateness<'_>) -> Result<Vec<u8>, String> {
    let lacking = "the record has no trace.dat: it was made from a file, or by an earlier version, or the kernel's \
                   events were read as text";
    lateness.pages.map(<[u8]>::to_vec).ok_or_else(|| lacking.to_owned())
}
