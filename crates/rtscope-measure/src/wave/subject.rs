//! Subjects: programs that make a square wave, each in its language's own way.
//!
//! The contract is tiny: `PROGRAM LINE FREQUENCY`. LINE is an address as `memory:NAME`; FREQUENCY is in
//! Hz. The program makes the wave until it is killed, and exits with a message when it can't.

use std::{
    fs, io,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::{Arc, Mutex, PoisonError},
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use rtscope_sys::{fork::signal, line::MemoryLine, process, sched, tree::Tree};

use super::WaveError;

/// How long a program may take until its first edge.
const START_LIMIT: Duration = Duration::from_secs(5);

/// How a source becomes a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Making {
    /// `TOOL ARGUMENTS -o PROGRAM SOURCE`, and for a program without shared libraries more arguments behind.
    Compiled(&'static [&'static str], &'static [&'static str]),
    /// `TOOL SOURCE LINE FREQUENCY`
    Interpreted,
}

/// A subject that comes with rtscope.
#[derive(Clone, Copy, Debug)]
pub struct ShippedSubject {
    /// Word on the command line.
    pub name: &'static str,
    pub about: &'static str,
    file: &'static str,
    source: &'static str,
    tool: &'static str,
    package: &'static str,
    making: Making,
}

/// The word of the generator of rtscope itself, as a subject.
pub const OWN: &str = "rust";

/// All that come with rtscope, besides [`OWN`].
pub const SHIPPED: &[ShippedSubject] = &[
    ShippedSubject {
        name: "c",
        about: "C, nanosleep",
        file: "square.c",
        source: include_str!("../../subjects/square.c"),
        tool: "cc",
        package: "gcc",
        making: Making::Compiled(&["-O2"], &["-static"]),
    },
    ShippedSubject {
        name: "c-rt",
        about: "C, SCHED_FIFO 49 and a spin loop",
        file: "square_rt.c",
        source: include_str!("../../subjects/square_rt.c"),
        tool: "cc",
        package: "gcc",
        making: Making::Compiled(&["-O2"], &["-static"]),
    },
    ShippedSubject {
        name: "cpp",
        about: "C++, std::this_thread::sleep_until",
        file: "square.cpp",
        source: include_str!("../../subjects/square.cpp"),
        tool: "c++",
        package: "g++",
        making: Making::Compiled(&["-O2", "-std=c++17"], &["-static"]),
    },
    ShippedSubject {
        name: "python",
        about: "Python, time.sleep",
        file: "square.py",
        source: include_str!("../../subjects/square.py"),
        tool: "python3",
        package: "python3",
        making: Making::Interpreted,
    },
    ShippedSubject {
        name: "ada",
        about: "Ada, delay until",
        file: "square.adb",
        source: include_str!("../../subjects/square.adb"),
        tool: "gnatmake",
        package: "gnat",
        making: Making::Compiled(&["-q", "-O2"], &["-bargs", "-static", "-largs", "-static"]),
    },
];

/// The programs of a university course, written from what its lab report says of them. `all` leaves them out: they
/// stand beside that report's figures.
const COURSE: &[ShippedSubject] = &[
    ShippedSubject {
        name: "course-c",
        about: "C, a busy delay in whole microseconds",
        file: "course.c",
        source: include_str!("../../subjects/course.c"),
        tool: "cc",
        package: "gcc",
        making: Making::Compiled(&["-O2"], &["-static"]),
    },
    ShippedSubject {
        name: "course-c-rt",
        about: "C, SCHED_FIFO 49 and a loop that doesn't look at the clock",
        file: "course_rt.c",
        source: include_str!("../../subjects/course_rt.c"),
        tool: "cc",
        package: "gcc",
        making: Making::Compiled(&["-O2"], &["-static"]),
    },
    ShippedSubject {
        name: "course-python",
        about: "Python, a thread with two sleeps in a period",
        file: "course.py",
        source: include_str!("../../subjects/course.py"),
        tool: "python3",
        package: "python3",
        making: Making::Interpreted,
    },
];

/// A subject that comes with rtscope, by its word.
fn shipped(word: &str) -> Option<&'static ShippedSubject> {
    SHIPPED.iter().chain(COURSE).find(|shipped| shipped.name == word)
}

/// The words of all subjects whose tool is installed, and those that have none.
#[must_use]
pub fn all() -> (Vec<&'static str>, Vec<&'static ShippedSubject>) {
    there_and_missing(SHIPPED.iter())
}

/// As [`all`], of those that a guest can run: those that need no interpreter.
#[must_use]
pub fn all_static() -> (Vec<&'static str>, Vec<&'static ShippedSubject>) {
    let is_compiled = |shipped: &&ShippedSubject| matches!(shipped.making, Making::Compiled(..));
    there_and_missing(SHIPPED.iter().filter(is_compiled))
}

fn there_and_missing(
    shipped: impl Iterator<Item = &'static ShippedSubject>,
) -> (Vec<&'static str>, Vec<&'static ShippedSubject>) {
    let (there, missing): (Vec<&ShippedSubject>, Vec<&ShippedSubject>) =
        shipped.partition(|shipped| find(shipped.tool).is_some());
    (there.iter().map(|shipped| shipped.name).chain([OWN]).collect(), missing)
}

impl ShippedSubject {
    /// What has to be installed for it, for people.
    #[must_use]
    pub fn lack(&self) -> String {
        format!(
            "{} is left out: it needs {} (apt-get install {})",
            self.name, self.tool, self.package
        )
    }
}

/// A program that makes a wave.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Subject {
    /// Its name in tables.
    pub name: String,
    /// The words before LINE and FREQUENCY.
    words: Vec<PathBuf>,
    /// Words after them.
    after: Vec<String>,
    /// Whether FREQUENCY follows this option.
    option: Option<&'static str>,
}

impl Subject {
    /// A subject by its word, or a program by its path (with a slash in it). Sources are made into
    /// programs in a folder, unless the program is in the folder of those that were compiled before.
    ///
    /// # Errors
    ///
    /// When there is no such subject or program, or its compiler is missing or fails.
    pub fn prepare(
        word: &str,
        own: &Path,
        folder: &Path,
        compiled: Option<&Path>,
    ) -> Result<Subject, WaveError> {
        let plain =
            |words| Subject { name: word.to_owned(), words, after: Vec::new(), option: None };
        if word == OWN {
            let words = vec![own.to_owned(), "wave".into(), "generate".into()];
            let after = ["--duration", "60s", "--quiet"].map(str::to_owned).into();
            return Ok(Subject { after, option: Some("--freq"), ..plain(words) });
        }
        let file_name = Path::new(word).file_name().unwrap_or_default();
        let compiled = compiled.map(|folder| folder.join(file_name)).filter(|path| path.is_file());
        if let Some(program) = compiled {
            return Ok(plain(vec![program]));
        }
        if let Some(shipped) = shipped(word) {
            return Ok(plain(shipped.make(folder, false)?));
        }
        let shipped = SHIPPED.iter().chain(COURSE).map(|shipped| shipped.name);
        let names: Vec<&str> = shipped.chain([OWN]).collect();
        let failed = |why: String| WaveError::Subject { subject: word.to_owned(), why };
        if !word.contains('/') {
            let names = names.join(", ");
            return Err(failed(format!(
                "not known: use {names}, or a program's path such as ./{word}"
            )));
        }
        let program = fs::canonicalize(word).map_err(|e| failed(e.to_string()))?;
        Ok(plain(vec![program]))
    }

    /// The words of its command line.
    #[must_use]
    pub fn command(&self, line: &str, frequency_hz: f64) -> Vec<PathBuf> {
        let option = self.option.map(PathBuf::from);
        let after = self.after.iter().map(PathBuf::from);
        let frequency = PathBuf::from(frequency_hz.to_string());
        self.words
            .iter()
            .cloned()
            .chain([line.into()])
            .chain(option)
            .chain([frequency])
            .chain(after)
            .collect()
    }
}

impl ShippedSubject {
    fn make(&self, folder: &Path, is_static: bool) -> Result<Vec<PathBuf>, WaveError> {
        let tool = find(self.tool).ok_or(WaveError::NoTool {
            subject: self.name,
            program: self.tool,
            package: self.package,
        })?;
        let source = folder.join(self.file);
        fs::write(&source, self.source).map_err(|e| WaveError::File {
            operation: "write",
            path: source.clone(),
            source: e,
        })?;
        let Making::Compiled(arguments, for_static) = self.making else {
            return Ok(vec![tool, source]);
        };
        let program = folder.join(self.name);
        let failed = |why| WaveError::Subject { subject: self.name.to_owned(), why };
        let output = Command::new(&tool)
            .args(arguments)
            .arg("-o")
            .args([&program, &source])
            .args(for_static.iter().filter(|_| is_static))
            .current_dir(folder)
            .stdin(Stdio::null())
            .output()
            .map_err(|e| failed(format!("{}: {e}", self.tool)))?;
        if !output.status.success() {
            let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
            return Err(failed(format!("{} failed:\n{said}", self.tool)));
        }
        Ok(vec![program])
    }
}

/// The compiler of a subject that comes with rtscope, and the Debian package that has it.
#[must_use]
pub fn compiler(word: &str) -> Option<(&'static str, &'static str)> {
    shipped(word).map(|shipped| (shipped.tool, shipped.package))
}

/// The file of a subject that comes with rtscope, compiled in a folder so that it needs no shared library; none for
/// rtscope's own generator.
///
/// # Errors
///
/// It is interpreted, or its compiler is missing or fails.
pub fn compile_static(word: &str, folder: &Path) -> Result<Option<PathBuf>, WaveError> {
    let Some(shipped) = shipped(word) else {
        return Ok(None);
    };
    match (shipped.making, shipped.make(folder, true)?.as_slice()) {
        (Making::Compiled(..), [program]) => Ok(Some(program.clone())),
        _ => {
            let why = format!("it needs {}, which a guest doesn't have", shipped.tool);
            Err(WaveError::Subject { subject: word.to_owned(), why })
        }
    }
}

/// A program of the search path.
fn find(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|folder| folder.join(program)).find(|file| file.is_file())
}

/// A subject that runs. Dropping it kills it with all it has started.
#[derive(Debug)]
pub struct RunningSubject {
    child: Child,
    name: String,
    /// What it said on standard error so far, and who reads it. A full pipe would stop the subject.
    said: Arc<Mutex<Vec<u8>>>,
    reader: JoinHandle<()>,
}

/// How many bytes of what a subject says are kept: the last ones.
const SAID_MAX: usize = 8 * 1024;

/// How long to wait for the last words of a subject that has ended.
const LAST_WORDS: Duration = Duration::from_millis(500);

/// Reads what a subject says until nobody can say more.
fn read_all(mut errors: impl io::Read, said: &Mutex<Vec<u8>>) {
    let mut room = [0; 1024];
    loop {
        match errors.read(&mut room) {
            Ok(0) => return,
            Ok(count) => {
                let mut said = said.lock().unwrap_or_else(PoisonError::into_inner);
                said.extend(&room[..count]);
                let beyond = said.len().saturating_sub(SAID_MAX);
                said.drain(..beyond);
            }
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(_) => return,
        }
    }
}

impl RunningSubject {
    /// Starts a command, which becomes the head of a process group, and waits until it makes edges.
    ///
    /// # Errors
    ///
    /// When it can't be started, ends, or makes no edge within 5 s.
    pub fn start(
        name: &str,
        command: &mut Command,
        line: &MemoryLine,
    ) -> Result<RunningSubject, WaveError> {
        let failed = |why: String| WaveError::Subject { subject: name.to_owned(), why };
        line.reset();
        let mut child = command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(|e| failed(e.to_string()))?;
        let said = Arc::new(Mutex::new(Vec::new()));
        let (errors, to) = (child.stderr.take(), said.clone());
        let reader = thread::spawn(move || errors.into_iter().for_each(|pipe| read_all(pipe, &to)));
        let mut running = RunningSubject { child, name: name.to_owned(), said, reader };
        let until = Instant::now() + START_LIMIT;
        while line.changes() == 0 && !line.is_high() {
            running.check()?;
            if Instant::now() > until {
                return Err(WaveError::NoEdge { subject: name.to_owned() });
            }
            thread::sleep(Duration::from_micros(500));
        }
        Ok(running)
    }

    /// Whether one of its threads is a real-time one: two of them that never sleep, the subject and the
    /// scope, would leave a machine of two CPUs nothing.
    #[must_use]
    pub fn is_real_time(&self, tree: &Tree) -> bool {
        let threads = tree.list(format!("proc/{}/task", self.child.id()));
        threads
            .iter()
            .filter_map(|thread| sched::placement(thread.parse().ok()?).ok())
            .any(|place| place.policy.is_real_time())
    }

    /// Whether it still runs.
    ///
    /// # Errors
    ///
    /// When it has ended, with what it said.
    pub fn check(&mut self) -> Result<(), WaveError> {
        let Ok(Some(status)) = self.child.try_wait() else { return Ok(()) };
        // What it started may go on and hold the pipe open.
        let until = Instant::now() + LAST_WORDS;
        while !self.reader.is_finished() && Instant::now() < until {
            thread::sleep(Duration::from_millis(1));
        }
        let said = self.said.lock().unwrap_or_else(PoisonError::into_inner);
        let why = format!("it ended ({status}): {}", String::from_utf8_lossy(&said).trim());
        Err(WaveError::Subject { subject: self.name.clone(), why })
    }
}

impl Drop for RunningSubject {
    fn drop(&mut self) {
        // Before it heads a group of its own only the process can be named.
        let _ = process::signal_group(self.child.id(), signal::KILL);
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_words_of_a_subject_that_said_much_are_told() {
        let folder = tempfile::tempdir().expect("a folder");
        let line = MemoryLine::open(folder.path(), "chatty").expect("a line");
        let mut chatty = Command::new("sh");
        // More than a pipe holds. The child holds the pipe open.
        let script = "yes chatter | head -c 200000 >&2; sleep 60 & echo no motor >&2; exit 3";
        process::bind_to_us(chatty.args(["-c", script]), true);
        let said = match RunningSubject::start("chatty", &mut chatty, &line) {
            Err(error) => error.to_string(),
            Ok(_) => panic!("it makes no edge"),
        };
        assert!(said.contains("exit status: 3") && said.ends_with("no motor"), "{said}");
    }

    #[test]
    fn all_is_ours_and_each_that_has_its_tool_or_says_what_it_lacks() {
        let (there, missing) = all();
        assert_eq!(there.len() + missing.len(), SHIPPED.len() + 1);
        assert!(there.contains(&OWN));
        assert!(SHIPPED[0].lack().contains("apt-get install gcc"));
    }

    #[test]
    fn what_needs_an_interpreter_does_not_run_in_a_guest() {
        let folder = tempfile::tempdir().expect("a folder");
        assert_eq!(compile_static(OWN, folder.path()).expect("ours"), None);
        assert!(!all_static().0.contains(&"python"));
        if find("python3").is_some() {
            let why = compile_static("python", folder.path()).expect_err("interpreted");
            assert!(why.to_string().contains("a guest doesn't have"), "{why}");
        }
    }

    #[test]
    fn a_subject_is_a_word_or_a_path() {
        let folder = tempfile::tempdir().expect("a folder");
        let own = Subject::prepare(OWN, Path::new("/x"), folder.path(), None).expect("ours");
        let words: Vec<String> =
            own.command("memory:a", 50.5).iter().map(|word| word.display().to_string()).collect();
        assert_eq!(words[..6], ["/x", "wave", "generate", "memory:a", "--freq", "50.5"]);
        let none =
            Subject::prepare("pascal", Path::new("/x"), folder.path(), None).expect_err("none");
        assert!(
            none.to_string()
                .contains("c, c-rt, cpp, python, ada, course-c, course-c-rt, course-python, rust"),
            "{none}"
        );
        assert!(Subject::prepare("./nowhere", Path::new("/x"), folder.path(), None).is_err());
        let path =
            Subject::prepare("/bin/sh", Path::new("/x"), folder.path(), None).expect("there");
        assert_eq!(path.command("memory:a", 7.0).len(), 3);
    }
}
