//! Requests by the system's own curl, which knows its proxies and certificates.
//!
//! curl reads no configuration of the user's, only speaks HTTP, and gets the token on its standard input, so that no list of
//! processes shows it. What it brings is read up to a limit, whatever the server says of its size.

use std::{
    fs::{self, File},
    io::{self, Read, Write},
    path::Path,
    process::{Child, Command, Stdio},
    time::Duration,
};

use rtscope_model::printable::printable;
use serde_json::Value;

use super::token::{ServerToken, remove_tokens};
use crate::{parcel::Hashed, shell::Stop};

/// Time until a connection, and without a byte, after which curl gives up.
const SILENCE_S: u64 = 30;

/// Redirections of a download. The API answers itself: a token goes to nobody else.
const REDIRECTIONS: &str = "5";

/// Bytes of an address.
const ADDRESS_MAX: usize = 2048;

/// Bytes of what a server says when it refuses something.
const REFUSAL_MAX: usize = 400;

/// Why a request brought nothing.
#[derive(Debug, thiserror::Error)]
pub enum HttpFailure {
    /// The server answered with another status than 2xx.
    #[error("the server answers {code}{}", after(said))]
    Status { code: u16, said: String },
    #[error("no connection: {0}")]
    NoAnswer(String),
    /// The answer can't be what was asked for.
    #[error("{0}")]
    Unusable(String),
    #[error("interrupted")]
    Stopped,
}

fn after(said: &str) -> String {
    if said.is_empty() { String::new() } else { format!(": {said}") }
}

impl HttpFailure {
    /// Whether the same request may succeed later.
    #[must_use]
    pub fn is_passing(&self) -> bool {
        match self {
            HttpFailure::Status { code, .. } => *code >= 500 || [408, 425, 429].contains(code),
            HttpFailure::NoAnswer(_) => true,
            HttpFailure::Unusable(_) | HttpFailure::Stopped => false,
        }
    }

    /// Whether the server doesn't know the token, or what it may do.
    #[must_use]
    pub fn is_forbidden(&self) -> bool {
        matches!(self, HttpFailure::Status { code: 401 | 403, .. })
    }
}

/// How a request is sent.
#[derive(Clone, Copy)]
#[expect(missing_debug_implementations, reason = "holds a function, which shows nothing")]
pub struct Curl<'a> {
    /// Words before curl's: a program that ends it when this process ends. Empty for none.
    pub guard: &'a [String],
    pub stop: Stop<'a>,
    /// Folder for what is sent.
    pub folder: &'a Path,
}

/// What is asked of a server.
struct HttpRequest<'a> {
    method: &'static str,
    address: &'a str,
    token: Option<&'a ServerToken>,
    body: Option<&'a Path>,
    bytes_max: u64,
    limit: Duration,
}

/// File of what is sent.
const BODY: &str = "request.json";

/// The length of anything but a download.
const ANSWER_IN: Duration = Duration::from_secs(120);

impl Curl<'_> {
    /// Reads a document.
    ///
    /// # Errors
    ///
    /// There is none, or it is too large or isn't JSON.
    pub fn get(
        &self,
        address: &str,
        token: Option<&ServerToken>,
        bytes_max: u64,
    ) -> Result<Value, HttpFailure> {
        let limit = ANSWER_IN;
        let request = HttpRequest { method: "GET", address, token, body: None, bytes_max, limit };
        document(&self.answer(&request)?)
    }

    /// Sends a document by `PUT` or `POST`; what the server says, if that is JSON.
    ///
    /// # Errors
    ///
    /// The server didn't take it, or nobody knows whether it did.
    pub fn send(
        &self,
        method: &'static str,
        address: &str,
        token: Option<&ServerToken>,
        body: &[u8],
    ) -> Result<Value, HttpFailure> {
        let path = self.folder.join(BODY);
        let failed =
            |e: io::Error| HttpFailure::Unusable(format!("can't write {}: {e}", path.display()));
        fs::write(&path, body).map_err(failed)?;
        let (bytes_max, limit) = (4 << 20, ANSWER_IN);
        let request = HttpRequest { method, address, token, body: Some(&path), bytes_max, limit };
        let answer = self.answer(&request);
        let _ = fs::remove_file(&path);
        Ok(document(&answer?).unwrap_or_default())
    }

    /// Downloads a file of at most so many bytes; its SHA-256. What was there is replaced.
    ///
    /// # Errors
    ///
    /// It can't be had, is too large, or the disk is full. Then there is no file.
    pub fn download(
        &self,
        address: &str,
        file: &Path,
        bytes_max: u64,
        limit: Duration,
    ) -> Result<String, HttpFailure> {
        let request =
            HttpRequest { method: "GET", address, token: None, body: None, bytes_max, limit };
        let failed =
            |e: io::Error| HttpFailure::Unusable(format!("can't write {}: {e}", file.display()));
        let mut to = Hashed::new(File::create(file).map_err(failed)?);
        match self.exchange(&request, &mut to) {
            Ok((code, _)) if (200..300).contains(&code) => Ok(to.digits()),
            other => {
                let _ = fs::remove_file(file);
                Err(match other {
                    // An error's page is no part of the message: it is as long as it likes.
                    Ok((code, _)) => HttpFailure::Status { code, said: String::new() },
                    Err(failure) => failure,
                })
            }
        }
    }

    fn answer(&self, request: &HttpRequest<'_>) -> Result<Vec<u8>, HttpFailure> {
        let mut bytes = Vec::new();
        let (code, _) = self.exchange(request, &mut bytes)?;
        if (200..300).contains(&code) {
            return Ok(bytes);
        }
        Err(HttpFailure::Status { code, said: refusal(&bytes) })
    }

    /// Sends a request and hands on what comes; the status, and how many bytes came.
    fn exchange(
        &self,
        request: &HttpRequest<'_>,
        to: &mut dyn Write,
    ) -> Result<(u16, u64), HttpFailure> {
        check_address(request.address).map_err(HttpFailure::Unusable)?;
        let mut curl = self.start(request)?;
        let copied = self.copy(&mut curl, request.bytes_max, to);
        if copied.is_err() {
            let _ = curl.kill();
        }
        let mut said = String::new();
        if let Some(pipe) = curl.stderr.take() {
            let _ = pipe.take(64 << 10).read_to_string(&mut said);
        }
        let status = curl.wait().map_err(|e| HttpFailure::NoAnswer(e.to_string()))?;
        let bytes = copied?;
        // curl's own messages, and the status in the last line.
        let (said, code) = said.trim_end().rsplit_once('\n').unwrap_or(("", said.trim_end()));
        match (status.success(), code.parse()) {
            (true, Ok(code)) => Ok((code, bytes)),
            _ => Err(HttpFailure::NoAnswer(printable(said.trim()).into_owned())),
        }
    }

    fn start(&self, request: &HttpRequest<'_>) -> Result<Child, HttpFailure> {
        // `--disable` must come first: it keeps the user's configuration out.
        let mut words = self.guard.iter().map(String::as_str).chain(["curl", "--disable"]);
        let program = words.next().unwrap_or("curl");
        let mut command = Command::new(program);
        command.args(words);
        command.args(["--silent", "--show-error", "--globoff", "--proto", "=http,https"]);
        command.args(["--write-out", "%{stderr}\n%{http_code}", "--request", request.method]);
        command.args(["--header", "Accept: application/json, */*"]);
        let silence = SILENCE_S.to_string();
        command.args([
            "--connect-timeout",
            &silence,
            "--speed-limit",
            "1",
            "--speed-time",
            &silence,
        ]);
        command.args(["--max-time", &request.limit.as_secs().max(1).to_string()]);
        if request.token.is_none() && request.body.is_none() {
            command.args(["--location", "--max-redirs", REDIRECTIONS]);
        }
        if let Some(body) = request.body {
            command.args(["--header", "Content-Type: application/json", "--data-binary"]);
            command.arg(format!("@{}", body.display()));
        }
        command.args(["--config", "-", "--url", request.address]);
        remove_tokens(&mut command);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let failed = |e: io::Error| match e.kind() {
            io::ErrorKind::NotFound => HttpFailure::Unusable(NO_CURL.to_owned()),
            _ => HttpFailure::NoAnswer(e.to_string()),
        };
        let mut curl = command.spawn().map_err(failed)?;
        if let Some(mut pipe) = curl.stdin.take() {
            let header = request.token.map(|token| format!("header = \"{}\"\n", token.header()));
            // A curl that is gone says why on its standard error.
            let _ = pipe.write_all(header.unwrap_or_default().as_bytes());
        }
        Ok(curl)
    }

    fn copy(
        &self,
        curl: &mut Child,
        bytes_max: u64,
        to: &mut dyn Write,
    ) -> Result<u64, HttpFailure> {
        let Some(mut from) = curl.stdout.take() else { return Ok(0) };
        let mut buffer = vec![0; 64 << 10];
        let mut bytes = 0_u64;
        loop {
            let count = match from.read(&mut buffer) {
                Ok(0) => return Ok(bytes),
                Ok(count) => count,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
                Err(e) => return Err(HttpFailure::NoAnswer(e.to_string())),
            };
            bytes += count as u64;
            if bytes > bytes_max {
                let text = format!("the answer is larger than {} KiB", bytes_max >> 10);
                return Err(HttpFailure::Unusable(text));
            }
            to.write_all(&buffer[..count])
                .map_err(|e| HttpFailure::Unusable(format!("can't keep the answer: {e}")))?;
            if (self.stop)() {
                return Err(HttpFailure::Stopped);
            }
        }
    }
}

/// What to do without curl.
pub const NO_CURL: &str = "this machine lacks curl: run `apt-get install curl`";

fn document(bytes: &[u8]) -> Result<Value, HttpFailure> {
    serde_json::from_slice(bytes)
        .map_err(|e| HttpFailure::Unusable(format!("the answer is not JSON: {e}")))
}

/// What a server says of its refusal, in one line.
fn refusal(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(&bytes[..bytes.len().min(REFUSAL_MAX)]).into_owned();
    let text = match serde_json::from_slice::<Value>(bytes) {
        Ok(found) => ["detail", "message"]
            .iter()
            .find_map(|key| {
                found[*key].as_str().map(|said| said.chars().take(REFUSAL_MAX).collect())
            })
            .unwrap_or(text),
        Err(_) => text,
    };
    printable(text.trim()).into_owned()
}

/// Refuses what is no address of HTTP, or what could be taken for more than one word.
///
/// # Errors
///
/// What is wrong with it.
pub fn check_address(address: &str) -> Result<(), String> {
    let rest = address.strip_prefix("http://").or_else(|| address.strip_prefix("https://"));
    let is_good = |c: char| c.is_ascii_graphic() && !['"', '\\', '<', '>', '^', '`'].contains(&c);
    match rest {
        Some(rest)
            if !rest.is_empty()
                && !rest.starts_with('/')
                && address.len() <= ADDRESS_MAX
                && address.chars().all(is_good) =>
        {
            Ok(())
        }
        _ => {
            let shown: String = address.chars().take(80).collect();
            Err(format!("{:?} is not an HTTP address", printable(&shown)))
        }
    }
}

/// Whether a token may go to an address: encrypted, or not beyond this machine.
#[must_use]
pub fn is_private(address: &str) -> bool {
    let Some(rest) = address.strip_prefix("http://") else { return true };
    let host = rest.split(['/', '?', '#']).next().unwrap_or_default();
    let host = host.rsplit_once('@').map_or(host, |(_, host)| host);
    ["localhost", "127.0.0.1", "[::1]"]
        .iter()
        .any(|own| host == *own || host.strip_prefix(own).is_some_and(|rest| rest.starts_with(':')))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_addresses_of_http_are_asked() {
        for good in ["http://127.0.0.1:8001/latest", "https://a.example/x?y=z&q=%20#f"] {
            assert_eq!(check_address(good), Ok(()), "{good}");
        }
        let long = format!("http://a/{}", "x".repeat(ADDRESS_MAX));
        for bad in [
            "",
            "file:///etc/passwd",
            "-o/x",
            "http://",
            "https:///x",
            "http://a b",
            "http://a\n",
            "ftp://a",
            &long,
        ] {
            assert!(check_address(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_token_travels_encrypted_or_stays_here() {
        for good in
            ["https://a.example", "http://localhost:8001/x", "http://127.0.0.1/", "http://[::1]:80"]
        {
            assert!(is_private(good), "{good}");
        }
        for bad in [
            "http://a.example",
            "http://127.0.0.1.example/x",
            "http://localhost.example",
            "http://127.0.0.1@a.example/",
            "http://a.example/127.0.0.1",
        ] {
            assert!(!is_private(bad), "{bad}");
        }
    }

    #[test]
    fn what_may_pass_is_told_from_what_stays() {
        let status = |code| HttpFailure::Status { code, said: String::new() };
        assert!(
            [500, 502, 503, 429, 408].map(|code| status(code).is_passing()).iter().all(|is| *is)
        );
        assert!(
            [400, 401, 403, 404, 422].map(|code| status(code).is_passing()).iter().all(|is| !is)
        );
        assert!(HttpFailure::NoAnswer(String::new()).is_passing());
        assert!(status(401).is_forbidden() && !status(404).is_forbidden());
        assert_eq!(refusal(b"{\"detail\":\"Node not\\nfound\"}"), "Node not\\nfound");
        assert_eq!(refusal(b"<html>"), "<html>");
    }
}
