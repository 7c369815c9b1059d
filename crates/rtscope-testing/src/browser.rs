//! Chromium without a window, driven through its pipe of the DevTools protocol: JSON, each message ended by a
//! zero byte, on the file descriptors 3 and 4.

use std::{
    fs,
    io::{BufRead, BufReader, Write},
    path::{Path, PathBuf},
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
    sync::mpsc,
    thread,
    time::Duration,
};

use serde_json::{Value, json};

use crate::skip;

/// How long the browser may live: a test that hangs ends here. At `SCHED_IDLE` it may get little CPU time.
const LIMIT: Duration = Duration::from_secs(20 * 60);

/// Arguments that keep Chromium to itself: nothing but the page is loaded.
const QUIET: [&str; 9] = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--hide-scrollbars",
    "--remote-debugging-pipe",
];

/// Widths of windows in CSS pixels: a phone, a notebook, a desk.
pub const WIDTHS: [u32; 3] = [400, 1280, 1600];

/// The colours that a page is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Theme {
    /// Dark on white.
    Light,
    /// Light on black.
    Dark,
}

/// A running browser with one tab.
#[derive(Debug)]
pub struct Browser {
    folder: tempfile::TempDir,
    child: Child,
    orders: ChildStdin,
    answers: BufReader<ChildStdout>,
    session: Value,
    calls: u64,
    /// Dropped when the browser is no longer needed.
    _alive: mpsc::Sender<()>,
}

/// Chromium; the build without windows of its own starts in a third of the CPU time.
#[must_use]
pub fn program() -> Option<PathBuf> {
    ["chromium-headless-shell", "chromium"].into_iter().find_map(skip::program)
}

impl Browser {
    /// Starts the browser; none where there is no Chromium.
    ///
    /// # Panics
    ///
    /// It doesn't start.
    #[must_use]
    pub fn start() -> Option<Browser> {
        let program = program()?;
        let folder = tempfile::tempdir().expect("a folder");
        // The shell moves its own ends of the two pipes to where the browser looks for them.
        let mut command = Command::new("sh");
        command.args(["-c", "exec \"$@\" 3<&0 4>&1 0</dev/null 1>/dev/null 2>/dev/null", "sh"]);
        command.arg(program).args(QUIET);
        command.arg(format!("--user-data-dir={}", folder.path().join("profile").display()));
        let mut child =
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("a shell");
        let orders = child.stdin.take().expect("a pipe");
        let answers = BufReader::new(child.stdout.take().expect("a pipe"));
        let (alive, ended) = mpsc::channel::<()>();
        let id = child.id().to_string();
        thread::spawn(move || {
            if ended.recv_timeout(LIMIT) == Err(mpsc::RecvTimeoutError::Timeout) {
                let _ = Command::new("kill").args(["-KILL", &id]).status();
            }
        });
        let session = Value::Null;
        let mut browser =
            Browser { folder, child, orders, answers, session, calls: 0, _alive: alive };
        let target = browser.call("Target.createTarget", &json!({ "url": "about:blank" }));
        let target = json!({ "targetId": target["targetId"], "flatten": true });
        browser.session = browser.call("Target.attachToTarget", &target)["sessionId"].take();
        browser.call("Page.enable", &json!({}));
        Some(browser)
    }

    /// Calls a method of the protocol and waits for what it answers.
    ///
    /// # Panics
    ///
    /// The browser has ended, or refuses the call. So it is with everything that calls it.
    pub fn call(&mut self, method: &str, parameters: &Value) -> Value {
        self.calls += 1;
        let id = self.calls;
        let mut order = json!({ "id": id, "method": method, "params": parameters });
        if !self.session.is_null() {
            order["sessionId"] = self.session.clone();
        }
        write!(self.orders, "{order}\0").expect("the browser listens");
        let mut answer = self.wait(|message| message["id"] == id);
        assert!(answer["error"].is_null(), "{method}: {}", answer["error"]);
        answer["result"].take()
    }

    /// Reads messages up to the one that is meant.
    fn wait(&mut self, is_meant: impl Fn(&Value) -> bool) -> Value {
        loop {
            let mut bytes = Vec::new();
            self.answers.read_until(0, &mut bytes).expect("the browser speaks");
            bytes.pop();
            let message: Value = serde_json::from_slice(&bytes).expect("the browser has ended");
            if is_meant(&message) {
                return message;
            }
        }
    }

    /// Loads a page from a file of the browser's own.
    pub fn open(&mut self, name: &str, page: &str) {
        let file = self.file(name);
        fs::write(&file, page).expect("written");
        self.visit(&file);
    }

    /// Loads the page of a file.
    pub fn visit(&mut self, file: &Path) {
        let url = format!("file://{}", file.display());
        // Its events may come before the answer: the instant when its script has run is asked for instead.
        self.call("Page.navigate", &json!({ "url": url }));
        let until = "new Promise(done => document.readyState == 'complete' ? done() : addEventListener('load', done))";
        self.evaluate(until);
    }

    fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join(name).with_extension("html")
    }

    /// Gives the page a finger instead of a mouse, or takes it away.
    pub fn touch(&mut self, is_touched: bool) {
        self.resize(800, is_touched);
        let touch = json!({ "enabled": is_touched, "maxTouchPoints": 1 });
        self.call("Emulation.setTouchEmulationEnabled", &touch);
    }

    /// Sets the page on A4 with margins of a centimetre.
    pub fn print(&mut self) {
        self.resize(718, false);
        self.call("Emulation.setEmulatedMedia", &json!({ "media": "print" }));
    }

    fn resize(&mut self, width: u32, is_mobile: bool) {
        let size =
            json!({ "width": width, "height": 900, "deviceScaleFactor": 1, "mobile": is_mobile });
        self.call("Emulation.setDeviceMetricsOverride", &size);
    }

    /// Sets the width of the window in CSS pixels, and which colours the page is asked for.
    pub fn show(&mut self, width: u32, theme: Theme) {
        self.resize(width, false);
        let value = if theme == Theme::Dark { "dark" } else { "light" };
        let features = json!([{ "name": "prefers-color-scheme", "value": value }]);
        self.call(
            "Emulation.setEmulatedMedia",
            &json!({ "media": "screen", "features": features }),
        );
    }

    /// The value of an expression in the page; a promise is waited for.
    pub fn evaluate(&mut self, expression: &str) -> Value {
        let asked =
            json!({ "expression": expression, "awaitPromise": true, "returnByValue": true });
        let mut answer = self.call("Runtime.evaluate", &asked);
        assert!(answer["exceptionDetails"].is_null(), "{}", answer["exceptionDetails"]);
        answer["result"]["value"].take()
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        let _ = write!(self.orders, "{}\0", json!({ "id": 0, "method": "Browser.close" }));
        let _ = self.child.wait();
    }
}
