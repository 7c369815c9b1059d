//! What a guest does beside its plan: modules and a GPIO chip before it; after it, cyclictest and a
//! tracer of the kernel, each under the same loads as the phase.

use std::{fs, io::Write, path::Path, thread, time::Duration};

use rtscope_model::{
    guest::{self, GuestExtras, RECORD, Tracer},
    plan::Phase,
};
use rtscope_sys::module;

use super::{cyclictest::Watch, gpio, say, stage::on_stage};

/// The places of the kernel's tracing files: its own file system, or within the debug one.
const TRACING: [&str; 2] = ["/sys/kernel/tracing", "/sys/kernel/debug/tracing"];

/// What the lab asks beside the plan; nothing when there is no such file.
pub(super) fn read() -> Result<GuestExtras, String> {
    match fs::read_to_string(Path::new("/").join(guest::PATH)) {
        Ok(text) => GuestExtras::parse(&text),
        Err(_) => Ok(GuestExtras::default()),
    }
}

/// Loads modules, and makes the GPIO chip, which is tried where the guest has a plan: what that showed, and a line
/// for each thing that could not be done. The plan or the verbs run whatever happens here.
pub(super) fn before(beside: &GuestExtras) -> (Option<String>, String) {
    let mut failures = String::new();
    let mut fail = |what: &str, why: String| {
        say(&format!("{what}: {why}"));
        failures.push_str(&format!("{what}: {why}\n"));
    };
    for path in &beside.modules {
        if let Err(e) = module::load(&Path::new("/").join(path)) {
            fail(path, e.to_string());
        }
    }
    let make_or_try = |lines| match beside.commands.is_empty() {
        true => gpio::make_and_try(lines),
        false => gpio::make(lines).map(|_| String::new()),
    };
    let tried = beside.gpio_lines.map(make_or_try).transpose();
    (tried.map_err(|why| fail("gpio-sim", why)).ok().flatten(), failures)
}

/// Adds lines to the file of a record that says what could not be done beside its plan.
pub(super) fn note(record: &Path, lines: &str) {
    if lines.is_empty() {
        return;
    }
    let path = record.join(guest::FAILURES);
    let add = || {
        fs::create_dir_all(record)?;
        fs::OpenOptions::new().create(true).append(true).open(&path)?.write_all(lines.as_bytes())
    };
    if let Err(e) = add() {
        say(&format!("{}: {e}", path.display()));
    }
}

/// Measures each phase once more by cyclictest, and traces it. A file of the record says what could
/// not be done; the record of the plan itself is whole whatever happens here.
pub(super) fn after(mut watch: Watch<'_>) {
    let (beside, plan) = (watch.beside, watch.plan);
    let mut failures = String::new();
    for (cell, phase) in plan.phases.iter().enumerate() {
        if beside.cyclictest {
            say(&format!("cyclictest {}/{} {}", cell + 1, plan.phases.len(), phase.name));
            let said = on_stage(phase, |stage| watch.cyclictest(cell, stage));
            keep("cyclictest", cell, phase, said, &mut failures);
        }
        if let Some(tracer) = beside.tracer {
            say(&format!("{tracer} {}/{} {}", cell + 1, plan.phases.len(), phase.name));
            let said = on_stage(phase, |stage| {
                let _loads = stage.start_loads()?;
                thread::sleep(Duration::from_nanos(phase.settle.0));
                trace(tracer, phase)
            });
            keep(tracer.name(), cell, phase, said, &mut failures);
        }
    }
    note(Path::new(RECORD), &failures);
}

/// Writes what was said beside the record.
fn keep(
    kind: &str,
    cell: usize,
    phase: &Phase,
    said: Result<String, String>,
    failures: &mut String,
) {
    match said {
        Ok(text) => write(&guest::phase_file(kind, cell), &text, failures),
        Err(why) => {
            say(&format!("{kind} of {}: {why}", phase.name));
            failures.push_str(&format!("{kind} of {}: {why}\n", phase.name));
        }
    }
}

/// Writes a file of the record.
pub(super) fn write(name: &str, text: &str, failures: &mut String) {
    let path = Path::new(RECORD).join(name);
    let parent = path.parent().unwrap_or(Path::new(RECORD));
    if let Err(e) = fs::create_dir_all(parent).and_then(|()| fs::write(&path, text)) {
        failures.push_str(&format!("{name}: {e}\n"));
    }
}

/// What a tracer of the kernel says in as much time as a phase takes.
fn trace(tracer: Tracer, phase: &Phase) -> Result<String, String> {
    let folder = TRACING.into_iter().map(Path::new).find(|f| f.join("current_tracer").exists());
    let folder = folder.ok_or("the kernel has no tracing: it needs CONFIG_FTRACE")?;
    let put = |name: &str, text: &str| {
        fs::write(folder.join(name), text).map_err(|e| format!("{name}: {e}"))
    };
    let known = fs::read_to_string(folder.join("available_tracers")).unwrap_or_default();
    if !known.split_whitespace().any(|name| name == tracer.name()) {
        let option = tracer.name().to_uppercase();
        return Err(format!("the kernel lacks CONFIG_{option}_TRACER; it has {}", known.trim()));
    }
    put("trace", "")?;
    put("current_tracer", tracer.name())?;
    put("tracing_on", "1")?;
    thread::sleep(Duration::from_nanos(phase.expected().0));
    put("tracing_on", "0")?;
    let text = fs::read_to_string(folder.join("trace")).map_err(|e| format!("trace: {e}"));
    put("current_tracer", "nop")?;
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_guest_without_further_wishes_does_nothing() {
        assert_eq!(before(&GuestExtras::default()), (None, String::new()));
    }

    #[test]
    fn what_fails_before_the_plan_is_noted_beside_what_fails_after_it() {
        let beside =
            GuestExtras { modules: vec!["nowhere/a.ko".to_owned()], ..GuestExtras::default() };
        let (_, failures) = before(&beside);
        assert!(failures.starts_with("nowhere/a.ko: "), "{failures}");
        let record = tempfile::tempdir().expect("a folder");
        let path = record.path().join(guest::FAILURES);
        note(record.path(), "");
        assert!(!path.exists());
        fs::write(&path, "cyclictest of rest: no\n").expect("written");
        note(record.path(), &failures);
        let all = fs::read_to_string(path).expect("there");
        assert_eq!(all, format!("cyclictest of rest: no\n{failures}"));
    }
}
