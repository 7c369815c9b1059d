//! The kernel's trace: finding it, marking it, and stopping it.

use std::{
    ffi::CString,
    fs::{File, OpenOptions},
    io::Write,
    os::fd::{AsRawFd, FromRawFd, OwnedFd},
    path::{Path, PathBuf},
    sync::Arc,
};

use crate::{Error, tree::Tree};

/// Where tracefs is mounted by custom.
const MOUNT: &str = "sys/kernel/tracing";

/// The longest text of a mark.
const TEXT_BYTES: usize = 96;

/// `trace_marker` and `tracing_on`, open, so that a thread that was late marks and stops the trace
/// without looking for them.
#[derive(Clone, Debug)]
pub struct Marker {
    marker: Arc<File>,
    switch: Arc<File>,
    /// Nanoseconds in a unit of the figures in the text.
    unit_ns: u64,
    /// Where tracefs was mounted for this process alone.
    _place: Option<Arc<TracefsFolder>>,
}

impl Marker {
    /// Opens the trace. The figures in its marks are in units of `unit_ns`. Where tracefs is not mounted,
    /// it is mounted for this process alone.
    ///
    /// # Errors
    ///
    /// When the kernel has no tracefs, or it may not be written.
    pub fn open(tree: &Tree, unit_ns: u64) -> Result<Marker, Error> {
        let mounted = folder(tree);
        let place = if mounted.is_none() { TracefsFolder::find(tree).map(Arc::new) } else { None };
        let private = place.as_ref().map(|place| tree.path(&place.folder));
        let folder = mounted.or(private).unwrap_or_else(|| tree.path(MOUNT));
        let open = |name: &str| {
            let path = folder.join(name);
            let file = OpenOptions::new().write(true).open(&path);
            file.map(Arc::new).map_err(|source| Error::File { operation: "open", path, source })
        };
        let (marker, switch) = (open("trace_marker")?, open("tracing_on")?);
        Ok(Marker { marker, switch, unit_ns, _place: place })
    }

    /// Writes `hit latency threshold (LATENCY > LIMIT)` into the trace and stops it. Doesn't allocate;
    /// what the kernel refuses is not repeated.
    pub fn hit(&self, latency_ns: u64, limit_ns: u64) {
        let mut text = [0u8; TEXT_BYTES];
        let mut rest = &mut text[..];
        let (latency, limit) = (latency_ns / self.unit_ns, limit_ns / self.unit_ns);
        let _ = write!(rest, "hit latency threshold ({latency} > {limit})");
        let length = TEXT_BYTES - rest.len();
        let _ = (&*self.marker).write_all(&text[..length]);
        let _ = (&*self.switch).write_all(b"0\n");
    }
}

/// The folder of tracefs: where it is by custom, or where it is mounted.
fn folder(tree: &Tree) -> Option<PathBuf> {
    let usual = tree.path(MOUNT);
    if usual.join("trace_marker").exists() {
        return Some(usual);
    }
    let mounts = tree.read("proc/mounts").unwrap_or_default();
    let mut folders = mounts.lines().filter_map(|line| {
        let mut words = line.split(' ').skip(1);
        let (place, kind) = (words.next()?, words.next()?);
        let place = match kind {
            "tracefs" => PathBuf::from(place),
            "debugfs" => Path::new(place).join("tracing"),
            _ => return None,
        };
        Some(tree.path(place.strip_prefix("/").unwrap_or(&place)))
    });
    // A debugfs may be mounted without tracefs in it.
    folders.find(|folder| folder.join("trace_marker").exists())
}

/// A folder of tracefs that this process can use, whether it is mounted or not.
#[derive(Debug)]
pub struct TracefsFolder {
    /// Relative to the tree's root.
    pub folder: String,
    /// A mount that only this process has; closing it unmounts.
    _mount: Option<OwnedFd>,
}

impl TracefsFolder {
    /// Finds tracefs: where it is mounted, else mounted for this process alone, nowhere in the tree of
    /// files (the system stays as it was). None where the kernel has no tracing, or without permission.
    #[must_use]
    pub fn find(tree: &Tree) -> Option<TracefsFolder> {
        const PLACES: [&str; 2] = ["sys/kernel/tracing", "sys/kernel/debug/tracing"];
        let is_there = |place: &&str| tree.path(format!("{place}/instances")).is_dir();
        if let Some(place) = PLACES.into_iter().find(is_there) {
            return Some(TracefsFolder { folder: place.to_owned(), _mount: None });
        }
        // Another root is a test's.
        if tree.path("") != Path::new("/") {
            return None;
        }
        let mount = mount_unseen("tracefs")?;
        let folder = format!("proc/self/fd/{}", mount.as_raw_fd());
        tree.path(format!("{folder}/instances"))
            .is_dir()
            .then_some(TracefsFolder { folder, _mount: Some(mount) })
    }
}

/// Mounts a file system without a device at no place (`fsopen`, `fsmount`; Linux 5.2).
fn mount_unseen(kind: &str) -> Option<OwnedFd> {
    const CLOSE_ON_EXEC: libc::c_ulong = 1;
    const CREATE: libc::c_ulong = 6;
    let name = CString::new(kind).ok()?;
    let null = std::ptr::null::<libc::c_void>();
    let owned = |answer: libc::c_long| {
        let number = i32::try_from(answer).ok().filter(|number| *number >= 0)?;
        // SAFETY: the kernel has just opened it for us.
        Some(unsafe { OwnedFd::from_raw_fd(number) })
    };
    // SAFETY: the name is a C string that lives until the call returns.
    let context = owned(unsafe { libc::syscall(libc::SYS_fsopen, name.as_ptr(), CLOSE_ON_EXEC) })?;
    let number = context.as_raw_fd();
    // SAFETY: plain numbers; the command takes no key and no value.
    if unsafe { libc::syscall(libc::SYS_fsconfig, number, CREATE, null, null, 0) } != 0 {
        return None;
    }
    // SAFETY: plain numbers.
    owned(unsafe { libc::syscall(libc::SYS_fsmount, number, CLOSE_ON_EXEC, 0) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tracefs_is_found_where_it_is_mounted_and_mounted_in_no_tests_tree() {
        let root = tempfile::tempdir().expect("a folder");
        let tree = Tree::under(root.path());
        assert!(TracefsFolder::find(&tree).is_none());
        std::fs::create_dir_all(tree.path("sys/kernel/debug/tracing/instances")).expect("a folder");
        assert_eq!(TracefsFolder::find(&tree).expect("there").folder, "sys/kernel/debug/tracing");
    }

    #[test]
    fn a_hit_marks_and_then_stops_the_trace() {
        let root = tempfile::tempdir().expect("a folder");
        let tree = Tree::under(root.path());
        assert!(Marker::open(&tree, 1_000).is_err());
        // Mounted at an unusual place, behind a debugfs that has no tracefs.
        let place = tree.path("mnt/trace");
        std::fs::create_dir_all(&place).expect("a folder");
        std::fs::create_dir_all(tree.path("proc")).expect("a folder");
        std::fs::write(
            tree.path("proc/mounts"),
            "none /mnt/debug debugfs rw 0 0\nnone /mnt/trace tracefs rw 0 0\n",
        )
        .expect("a file");
        std::fs::write(place.join("trace_marker"), "").expect("a file");
        std::fs::write(place.join("tracing_on"), "1\n").expect("a file");
        let marker = Marker::open(&tree, 1_000).expect("both files");
        marker.hit(74_900, 50_000);
        let read = |name: &str| std::fs::read_to_string(place.join(name)).expect("a file");
        assert_eq!(read("trace_marker"), "hit latency threshold (74 > 50)");
        assert_eq!(read("tracing_on"), "0\n");
    }
}
