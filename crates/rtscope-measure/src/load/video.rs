//! `video`: reads frames from a video device.
//!
//! Exercises the video layer: its buffers, its timers and wake-ups, and copies of whole frames. By default the
//! device is that of the kernel's test driver `vivid`, which computes its frames. So the load can't show
//! anything of a camera, its bus and its DMA; name a camera with `device` for that.
//!
//! A unit of work is a byte of a frame.

use std::{
    fs::{self, File},
    io::{ErrorKind, Read},
    path::{Path, PathBuf},
};

use super::{
    LoadDescriptor, LoadError, any_options, leaves_nothing,
    options::{LoadOption, LoadOptions, ValueKind},
    worker::{Job, Processes},
};

const OPTIONS: &[LoadOption] = &[LoadOption {
    name: "device",
    kind: ValueKind::Text,
    default: "",
    about: "video device, for example /dev/video0; that of the test driver vivid when it isn't given",
}];

pub(super) const DESCRIPTOR: LoadDescriptor = LoadDescriptor {
    name: "video",
    about: "reads frames from a video device",
    unit: |_| "bytes",
    options: OPTIONS,
    check: any_options,
    is_here: |options| device(options, Path::new("/sys/class/video4linux")).map(drop),
    run,
    clean: leaves_nothing,
};

/// Room for what is read at a time: several lines of a frame.
const ROOM: usize = 1 << 20;

/// The device to read from.
fn device(options: &LoadOptions, class: &Path) -> Result<PathBuf, LoadError> {
    if let Some(device) = options.given("device") {
        let path = PathBuf::from(device);
        let opened = File::open(&path).map_err(LoadError::io(format!("open {device}")));
        return opened.map(|_| path);
    }
    let entries = fs::read_dir(class).into_iter().flatten().flatten();
    let mut found: Vec<String> = entries
        .filter(|entry| {
            let name = fs::read_to_string(entry.path().join("name")).unwrap_or_default();
            // The driver has outputs and radios too; captures come first and say so.
            name.starts_with("vivid") && name.contains("vid-cap")
        })
        .filter_map(|entry| entry.file_name().into_string().ok())
        .collect();
    found.sort_unstable();
    let first = found.into_iter().next();
    first.map(|name| Path::new("/dev").join(name)).ok_or(LoadError::NoVideo)
}

fn run(job: &Job) -> Result<(), LoadError> {
    let path = device(&job.options, Path::new("/sys/class/video4linux"))?;
    let what = format!("read from {}", path.display());
    // A process has a device's stream to itself.
    let mut file = File::open(&path).map_err(LoadError::io(format!("open {}", path.display())))?;
    let mut crew = Processes::new(job)?;
    crew.add(&job.placement, move |counter| {
        let mut room = vec![0; ROOM];
        loop {
            match file.read(&mut room) {
                Ok(read) => counter.add(read as u64),
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(e) => return Err(LoadError::io(what)(e)),
            }
        }
    })?;
    crew.work()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_test_drivers_capture_is_found_or_its_absence_said() {
        let folder = tempfile::tempdir().expect("a folder");
        let options =
            LoadOptions::parse(&"video".parse().expect("a line"), OPTIONS).expect("options");
        let absent = device(&options, folder.path()).expect_err("none").to_string();
        assert!(absent.contains("modprobe vivid") && absent.contains("load external"), "{absent}");
        for (name, says) in
            [("video0", "webcam"), ("video3", "vivid-000-vid-cap"), ("video4", "vivid-000-vid-out")]
        {
            fs::create_dir(folder.path().join(name)).expect("a folder");
            fs::write(folder.path().join(name).join("name"), format!("{says}\n")).expect("written");
        }
        assert_eq!(device(&options, folder.path()).expect("found"), Path::new("/dev/video3"));
    }
}
