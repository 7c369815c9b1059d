//! What the two sides tell each other: a line of JSON each, over a TCP connection of their own.

use std::{
    io::{self, Read, Write},
    net::TcpStream,
    time::Duration,
};

use rtscope_model::throughput::{Received, TransportProtocol};
use serde::{Deserialize, Serialize, de::DeserializeOwned};

/// Version of this exchange.
pub(super) const VERSION: u32 = 1;

/// How long the other side may take to answer.
pub(super) const PATIENCE: Duration = Duration::from_secs(10);

const LINE_MAX: usize = 4096;

/// What the sending side wants.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Request {
    /// A transfer is to come.
    Transfer {
        /// [`VERSION`].
        version: u32,
        protocol: TransportProtocol,
        /// Socket buffer of the receiving side.
        window_bytes: u64,
        /// How long it will be at most.
        limit_ns: u64,
    },
    /// All datagrams are sent.
    Finished,
    /// Flood me with echo requests until this connection ends.
    Flood {
        /// [`VERSION`].
        version: u32,
        /// Bytes in a request.
        size: u64,
    },
}

/// What the receiving side answers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Answer {
    /// Send to this port.
    Ready {
        /// Of the same address.
        port: u16,
    },
    /// What came.
    Report(Received),
    /// Replies that came back since the last of these.
    Flooded { replies: u64 },
    /// Why not.
    Refused(String),
}

pub(super) fn send(stream: &mut TcpStream, what: &impl Serialize) -> io::Result<()> {
    let mut line = serde_json::to_vec(what)?;
    line.push(b'\n');
    stream.write_all(&line)
}

/// Waits for a line; none when the other side is gone. A line is never followed by another before it is
/// answered, but for [`Request::Finished`].
pub(super) fn hear<T: DeserializeOwned>(stream: &mut TcpStream) -> io::Result<Option<T>> {
    let mut line = Vec::new();
    let mut byte = [0];
    loop {
        match stream.read(&mut byte) {
            Ok(1) => {}
            Ok(_) => break,
            // As after Ctrl-Z and `fg`.
            Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
            Err(e) => return Err(e),
        }
        if byte[0] == b'\n' {
            return serde_json::from_slice(&line).map(Some).map_err(io::Error::from);
        }
        line.push(byte[0]);
        if line.len() > LINE_MAX {
            break;
        }
    }
    match line.is_empty() {
        true => Ok(None),
        false => Err(io::Error::new(
            io::ErrorKind::InvalidData,
            "the other side is not rtscope throughput",
        )),
    }
}
