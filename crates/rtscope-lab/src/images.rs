//! The guests' file systems in the cache: each build of the program makes another, so old ones go.

use std::{
    fs::{self, File, TryLockError},
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, SystemTime},
};

use rustix::{
    fs::{FlockOperation, flock},
    io::Errno,
};

use crate::{cache::write_file, disk, error::LabError};

/// An image that nobody has used for so long goes.
const UNUSED: Duration = Duration::from_secs(14 * 24 * 3600);

/// Above so many bytes of images those go that were not used the longest.
const BYTES_MAX: u64 = 2 << 30;

/// An image in use: it stays in the cache until this and every clone of it is dropped.
#[derive(Clone, Debug, Default)]
pub struct ImageInUse {
    _file: Option<Arc<File>>,
}

impl ImageInUse {
    /// Holds an image and notes that it was used now; none when it isn't there.
    #[must_use]
    pub fn image(path: &Path) -> Option<ImageInUse> {
        let file = File::open(path).ok()?;
        while flock(&file, FlockOperation::LockShared) == Err(Errno::INTR) {}
        // It may have gone before it was locked.
        if !path.is_file() {
            return None;
        }
        let _ = file.set_modified(SystemTime::now());
        Some(ImageInUse { _file: Some(Arc::new(file)) })
    }
}

/// Puts an image into a folder of images, under its hash; it is held. A file of that name with other bytes is
/// replaced: guests that boot it now keep theirs.
///
/// # Errors
///
/// There is no room for it, or it can't be written.
pub(crate) fn store(
    folder: &Path,
    hash: &str,
    bytes: &[u8],
) -> Result<(PathBuf, ImageInUse), LabError> {
    fs::create_dir_all(folder).map_err(LabError::file("make", folder))?;
    let path = folder.join(format!("{hash}.cpio"));
    if let Some(held) = ImageInUse::image(&path)
        && fs::read(&path).is_ok_and(|there| there == bytes)
    {
        return Ok((path, held));
    }
    sweep(folder, UNUSED, BYTES_MAX.saturating_sub(bytes.len() as u64));
    disk::require(folder, (bytes.len() as u64 >> 20) + 1, " with --cache DIR")?;
    write_file(&path, bytes).map_err(LabError::file("write", &path))?;
    let held = ImageInUse::image(&path).unwrap_or_default();
    Ok((path, held))
}

/// Whether somebody holds an image. Where a file system has no locks, nobody does.
pub(crate) fn is_in_use(path: &Path) -> bool {
    File::open(path).is_ok_and(|file| matches!(file.try_lock(), Err(TryLockError::WouldBlock)))
}

/// Removes images that were not used for a time, and then the longest unused until the others have no more
/// than so many bytes. Those in use stay.
fn sweep(folder: &Path, unused: Duration, bytes_max: u64) {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let image = |entry: fs::DirEntry| {
        let (path, there) = (entry.path(), entry.metadata().ok()?);
        let is_image = path.extension().is_some_and(|extension| extension == "cpio");
        is_image.then_some((there.modified().ok()?, there.len(), path))
    };
    let mut images: Vec<_> = entries.filter_map(image).collect();
    images.sort();
    let mut kept = 0;
    for (used, bytes, path) in images.into_iter().rev() {
        let old = used.elapsed().is_ok_and(|age| age > unused);
        let goes = (old || kept + bytes > bytes_max) && {
            let file = File::open(&path);
            file.is_ok_and(|file| {
                flock(&file, FlockOperation::NonBlockingLockExclusive).is_ok()
                    && fs::remove_file(&path).is_ok()
            })
        };
        kept += if goes { 0 } else { bytes };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_unused_images_go_and_those_in_use_stay() {
        let folder = tempfile::tempdir().expect("a folder");
        let hour = Duration::from_secs(3600);
        let image = |name: &str, hours: u32| {
            let path = folder.path().join(format!("{name}.cpio"));
            fs::write(&path, [0; 1000]).expect("written");
            let used = SystemTime::now() - hour * hours;
            File::open(&path).and_then(|file| file.set_modified(used)).expect("set");
            path
        };
        let all = [("old", 400), ("third", 30), ("second", 20), ("first", 10)];
        let paths = all.map(|(name, hours)| image(name, hours));
        let left = || paths.iter().map(|path| path.exists()).collect::<Vec<_>>();
        sweep(folder.path(), UNUSED, 1 << 20);
        assert_eq!(left(), [false, true, true, true], "not used for 14 days");
        sweep(folder.path(), UNUSED, 2500);
        assert_eq!(left(), [false, false, true, true], "the longest unused of too many");
        let used = File::open(&paths[2]).expect("there");
        flock(&used, FlockOperation::LockShared).expect("another rtscope works with it");
        sweep(folder.path(), UNUSED, 0);
        assert_eq!(left(), [false, false, true, false]);
        // One that is taken again counts as used now.
        let before = fs::metadata(&paths[2]).and_then(|it| it.modified()).expect("there");
        let (_, held) = store(folder.path(), "second", &[0; 1000]).expect("it is there");
        assert!(fs::metadata(&paths[2]).and_then(|it| it.modified()).expect("there") > before);
        drop((used, held));
        sweep(folder.path(), UNUSED, 0);
        assert!(!left()[2]);
    }

    #[test]
    fn an_image_that_was_altered_in_the_cache_is_written_again() {
        let folder = tempfile::tempdir().expect("a folder");
        let kept = || store(folder.path(), "hash", b"interval = 500us").expect("stored").0;
        for altered in [b"interval = 900us".as_slice(), b"interval", b""] {
            fs::write(kept(), altered).expect("altered");
            assert_eq!(fs::read(kept()).expect("there"), b"interval = 500us");
        }
        assert_eq!(fs::read_dir(folder.path()).expect("a folder").count(), 1);
    }
}
