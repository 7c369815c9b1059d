//! Throughput by window size, with and without a latency sampler beside it.

use serde::{Deserialize, Serialize};

use crate::{schedule::Placement, time::Nanos};

/// Version of the format of [`ThroughputRecord`].
pub const FORMAT: u32 = 1;

/// What the bytes travel by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum TransportProtocol {
    /// A stream.
    Tcp,
    /// Numbered datagrams, as fast as they can be sent.
    Udp,
}

impl TransportProtocol {
    /// Its name for people.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            TransportProtocol::Tcp => "TCP",
            TransportProtocol::Udp => "UDP",
        }
    }
}

/// What a latency sampler saw.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SampledLatencies {
    /// Where it ran, as read back.
    pub placement: Placement,
    /// Time between two expiries.
    pub interval_ns: u64,
    pub latencies_ns: Vec<u64>,
    /// Expiries that were swallowed by late wake-ups.
    pub missed: u64,
}

/// What the receiving side counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Received {
    pub bytes: u64,
    /// Datagrams, each counted once.
    pub datagrams: u64,
    /// Datagrams that came again.
    pub duplicates: u64,
    /// Datagrams that came after a later one.
    pub reordered: u64,
    /// From the first to the last of them.
    pub span_ns: u64,
    /// CPU load of its machine, 0 to 1 of all CPUs; none when it doesn't tell.
    pub cpu_load: Option<f64>,
    /// Its socket buffer, as read back: the kernel makes it twice what was asked. None when it doesn't
    /// tell.
    pub buffer_bytes: Option<u64>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Transfer {
    pub protocol: TransportProtocol,
    /// Socket buffers that were asked for on both sides.
    pub window_bytes: u64,
    /// The sender's, as read back.
    pub buffer_bytes: u64,
    pub sent_bytes: u64,
    pub sent_datagrams: u64,
    /// Time that the sender sent.
    pub span_ns: u64,
    /// CPU load of the sender's machine, 0 to 1 of all CPUs.
    pub cpu_load: f64,
    /// The other side.
    pub received: Received,
    /// The sampler beside it, if there was one.
    pub sampled: Option<SampledLatencies>,
}

impl Transfer {
    /// Datagrams that never came.
    #[must_use]
    pub fn lost_datagrams(&self) -> u64 {
        self.sent_datagrams.saturating_sub(self.received.datagrams)
    }

    /// Bits a second that came.
    #[must_use]
    pub fn bits_per_second(&self) -> f64 {
        self.received.bytes as f64 * 8e9 / self.received.span_ns.max(1) as f64
    }
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ThroughputRecord {
    /// [`FORMAT`].
    pub format: u32,
    pub version: String,
    /// Wall clock at its start, RFC 3339.
    pub wall_clock: String,
    /// `uname -r`.
    pub kernel: String,
    /// Over what: `loopback`, `veth`, or the peer.
    pub over: String,
    /// CPUs of this machine.
    pub cpus: u64,
    /// How long each transfer was meant to take.
    pub duration: Nanos,
    /// The sampler without traffic; none if no sampler was asked for.
    pub rest: Option<SampledLatencies>,
    /// The transfers in their order.
    pub transfers: Vec<Transfer>,
    /// It was ended early.
    pub interrupted: bool,
}
