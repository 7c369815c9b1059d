//! The sending side towards somebody else's receiver: `iperf3 -s`, a stream at a time.
//!
//! Its control connection carries states of a byte, and JSON behind a length of four bytes. What it
//! counted is its bytes; its own span holds the pause in which it is given time to read all, so the
//! span is ours: up to the instant at which its system has acknowledged everything.

use std::{
    io::{self, Read, Write},
    net::{SocketAddr, TcpStream},
    thread,
    time::{Duration, Instant},
};

use rtscope_model::throughput::Received;
use rtscope_sys::{
    clock::{Clock, SystemClock},
    net::unacknowledged,
};
use serde_json::{Value, json};

use super::{
    send::{self, Here, Sent},
    wire::PATIENCE,
};

/// States of its control connection.
mod state {
    pub(super) const TEST_START: i8 = 1;
    pub(super) const TEST_RUNNING: i8 = 2;
    pub(super) const TEST_END: i8 = 4;
    pub(super) const PARAM_EXCHANGE: i8 = 9;
    pub(super) const CREATE_STREAMS: i8 = 10;
    pub(super) const SERVER_TERMINATE: i8 = 11;
    pub(super) const EXCHANGE_RESULTS: i8 = 13;
    pub(super) const DISPLAY_RESULTS: i8 = 14;
    pub(super) const DONE: i8 = 16;
    pub(super) const ACCESS_DENIED: i8 = -1;
    pub(super) const SERVER_ERROR: i8 = -2;
}

/// What names a test on all its connections, with the byte 0 at its end.
const COOKIE: usize = 37;

/// After all was acknowledged: the receiving program reads what its system holds.
const READ_OUT: Duration = Duration::from_millis(300);

/// Between two tries to reach a server that is busy, or between two tests.
const RETRY: Duration = Duration::from_millis(100);

/// How long a server may take to listen for the next test.
const READY: Duration = Duration::from_secs(1);

/// The longest JSON that is taken.
const JSON_MAX: usize = 1 << 20;

/// A transfer: what was sent, what came.
pub(super) fn transfer(
    address: SocketAddr,
    window_bytes: u64,
    duration: Duration,
    here: Here<'_>,
) -> io::Result<(Sent, Received)> {
    let mut test = Test::begin_when_ready(address, window_bytes, duration)?;
    test.expect(state::CREATE_STREAMS)?;
    let mut data = TcpStream::connect_timeout(&address, PATIENCE)?;
    data.write_all(&test.cookie)?;
    test.expect(state::TEST_START)?;
    test.expect(state::TEST_RUNNING)?;
    let sent = send::into_stream(&mut data, window_bytes as usize, duration, here)?;
    let start = Instant::now();
    while unacknowledged(&data)? > 0 {
        if start.elapsed() > PATIENCE {
            return Err(io::Error::new(io::ErrorKind::TimedOut, "the peer does not read"));
        }
        thread::sleep(Duration::from_micros(100));
    }
    let span_ns = sent.span_ns + start.elapsed().as_nanos() as u64;
    thread::sleep(READ_OUT);
    test.send_state(state::TEST_END)?;
    test.expect(state::EXCHANGE_RESULTS)?;
    test.tell_json(&own_results(&sent))?;
    let bytes = received_bytes(&test.hear_json()?)?;
    test.expect(state::DISPLAY_RESULTS)?;
    test.send_state(state::DONE)?;
    Ok((sent, Received { bytes, span_ns, ..Received::default() }))
}

/// What the sender counted.
fn own_results(sent: &Sent) -> Value {
    json!({
        "cpu_util_total": 0, "cpu_util_user": 0, "cpu_util_system": 0, "sender_has_retransmits": 0,
        "streams": [{
            "id": 1, "bytes": sent.bytes, "retransmits": -1, "jitter": 0, "errors": 0, "packets": 0,
            "start_time": 0, "end_time": sent.span_ns as f64 / 1e9,
        }],
    })
}

fn received_bytes(results: &Value) -> io::Result<u64> {
    let bytes = results["streams"][0]["bytes"].as_u64();
    bytes.ok_or_else(|| invalid("the iperf3 server's results have no bytes"))
}

fn invalid(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what.to_owned())
}

/// A test by its control connection.
struct Test {
    control: TcpStream,
    cookie: [u8; COOKIE],
}

impl Test {
    /// Begins as soon as the server is ready: it takes one test at a time, and between two of them it
    /// listens anew. It refuses who comes meanwhile, and resets who waited at its old socket.
    fn begin_when_ready(
        address: SocketAddr,
        window_bytes: u64,
        duration: Duration,
    ) -> io::Result<Test> {
        use io::ErrorKind::{BrokenPipe, ConnectionRefused, ConnectionReset, WouldBlock};
        let begin = Instant::now();
        loop {
            let error = match Test::begin(address, window_bytes, duration) {
                Ok(test) => return Ok(test),
                Err(error) => error,
            };
            let patience = match error.kind() {
                WouldBlock => PATIENCE,
                ConnectionRefused | ConnectionReset | BrokenPipe => READY,
                _ => return Err(error),
            };
            if begin.elapsed() > patience {
                return Err(error);
            }
            thread::sleep(RETRY);
        }
    }

    /// Connects and says what is to be sent.
    fn begin(address: SocketAddr, window_bytes: u64, duration: Duration) -> io::Result<Test> {
        let control = TcpStream::connect_timeout(&address, PATIENCE)?;
        control.set_nodelay(true)?;
        control.set_read_timeout(Some(duration + PATIENCE))?;
        control.set_write_timeout(Some(PATIENCE))?;
        let mut test = Test { control, cookie: cookie() };
        test.control.write_all(&test.cookie.clone())?;
        test.expect(state::PARAM_EXCHANGE)?;
        test.tell_json(&json!({
            "tcp": true,
            "omit": 0,
            // Whole seconds, and for its own watch only: the sender says when it ends.
            "time": duration.as_secs() + 1,
            "num": 0,
            "blockcount": 0,
            "parallel": 1,
            "len": send::WRITE,
            "window": window_bytes,
            "pacing_timer": 1000,
            "client_version": "3.12",
        }))?;
        Ok(test)
    }

    fn send_state(&mut self, state: i8) -> io::Result<()> {
        self.control.write_all(&state.to_be_bytes())
    }

    /// Waits for a state.
    fn expect(&mut self, wanted: i8) -> io::Result<()> {
        let mut byte = [0];
        self.control.read_exact(&mut byte)?;
        match i8::from_be_bytes(byte) {
            found if found == wanted => Ok(()),
            state::ACCESS_DENIED => {
                let text = "the iperf3 server is busy with another client";
                Err(io::Error::new(io::ErrorKind::WouldBlock, text))
            }
            state::SERVER_TERMINATE => Err(invalid("the iperf3 server was terminated")),
            state::SERVER_ERROR => {
                let mut numbers = [0; 8];
                self.control.read_exact(&mut numbers)?;
                let number = |at: usize| {
                    numbers[at..at + 4].iter().fold(0_i32, |n, b| n << 8 | i32::from(*b))
                };
                let cause = io::Error::from_raw_os_error(number(4));
                Err(invalid(&format!(
                    "the iperf3 server reported error {} ({cause}): perhaps it does not allow this window",
                    number(0)
                )))
            }
            found => Err(invalid(&format!("the iperf3 server is in state {found}, not {wanted}"))),
        }
    }

    fn tell_json(&mut self, value: &Value) -> io::Result<()> {
        let text = value.to_string();
        let length = u32::try_from(text.len()).unwrap_or(u32::MAX);
        self.control.write_all(&length.to_be_bytes())?;
        self.control.write_all(text.as_bytes())
    }

    fn hear_json(&mut self) -> io::Result<Value> {
        let mut length = [0; 4];
        self.control.read_exact(&mut length)?;
        let length = u32::from_be_bytes(length) as usize;
        if length > JSON_MAX {
            return Err(invalid("this is not an iperf3 server"));
        }
        let mut text = vec![0; length];
        self.control.read_exact(&mut text)?;
        Ok(serde_json::from_slice(&text)?)
    }
}

/// Two tests of one machine differ by their instants, two machines by their process and instant.
fn cookie() -> [u8; COOKIE] {
    let text = format!(
        "{:016x}{:020x}",
        SystemClock::REALTIME.now_ns(),
        u64::from(std::process::id()) << 32 | SystemClock::MONOTONIC.now_ns() & 0xffff_ffff
    );
    let mut cookie = [0; COOKIE];
    cookie[..COOKIE - 1].copy_from_slice(text.as_bytes());
    cookie
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    /// A server that plays its part and answers with states, and what it says it has got.
    fn server(states: &'static [i8], more: &'static [u8]) -> (SocketAddr, thread::JoinHandle<()>) {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("bound");
        let serving = thread::spawn(move || {
            let (mut control, _) = listener.accept().expect("a client");
            let mut cookie = [0; COOKIE];
            control.read_exact(&mut cookie).expect("a cookie");
            assert!(cookie[..COOKIE - 1].iter().all(u8::is_ascii_hexdigit) && cookie[36] == 0);
            for state in states {
                control.write_all(&state.to_be_bytes()).expect("told");
            }
            control.write_all(more).expect("told");
            let _ = control.read_to_end(&mut Vec::new());
        });
        (address, serving)
    }

    fn refused(states: &'static [i8], more: &'static [u8]) -> String {
        let (address, serving) = server(states, more);
        let said = Test::begin(address, 65_536, Duration::from_secs(1)).err().expect("refused");
        serving.join().expect("no panic");
        said.to_string()
    }

    #[test]
    fn a_server_that_refuses_is_told_as_it_says_it() {
        assert!(refused(&[state::ACCESS_DENIED], b"").contains("busy"));
        let said = refused(&[state::SERVER_ERROR], &[0, 0, 0, 29, 0, 0, 0, 105]);
        assert!(said.contains("error 29") && said.contains("window"), "{said}");
        assert!(refused(&[72], b"").contains("state 72"));
    }

    #[test]
    fn who_is_reset_between_two_tests_tries_again() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("bound");
        let serving = thread::spawn(move || {
            let (early, _) = listener.accept().expect("a client");
            // A socket that is closed with bytes that nobody read resets its peer.
            assert!(early.peek(&mut [0]).expect("a cookie") > 0);
            drop(early);
            let (mut control, _) = listener.accept().expect("the client again");
            control.write_all(&state::PARAM_EXCHANGE.to_be_bytes()).expect("told");
            let _ = control.read_to_end(&mut Vec::new());
        });
        let begun = Test::begin_when_ready(address, 65_536, Duration::from_secs(1));
        drop(begun.expect("the second try succeeds"));
        serving.join().expect("no panic");
    }

    #[test]
    fn results_are_read_and_others_refused() {
        let results = json!({ "streams": [{ "id": 1, "bytes": 12_345 }] });
        assert_eq!(received_bytes(&results).expect("bytes"), 12_345);
        assert!(received_bytes(&json!({ "streams": [] })).is_err());
        assert_ne!(cookie(), [0; COOKIE]);
        let own = own_results(&Sent { bytes: 7, span_ns: 2_000_000_000, ..Sent::default() });
        assert_eq!(
            (&own["streams"][0]["bytes"], &own["streams"][0]["end_time"]),
            (&7.into(), &2.0.into())
        );
    }
}
