//! Modules of the kernel.

use std::{fs::File, os::fd::AsRawFd, path::Path};

use crate::error::{Error, check};

/// Loads a module that the running kernel was built with. One that is loaded already is no error.
///
/// # Errors
///
/// The file can't be opened; ENOEXEC for a module of another kernel, ENOENT when a module that it
/// depends on isn't loaded, EPERM without `CAP_SYS_MODULE`, ENOSYS in a kernel without modules.
pub fn load(path: &Path) -> Result<(), Error> {
    let file = File::open(path).map_err(|source| Error::File {
        operation: "open",
        path: path.to_owned(),
        source,
    })?;
    // SAFETY: the descriptor is open and the text without parameters is a C string.
    let answer =
        unsafe { libc::syscall(libc::SYS_finit_module, file.as_raw_fd(), c"".as_ptr(), 0) };
    match check(answer, || format!("finit_module {}", path.display())) {
        Err(e) if e.errno() == Some(libc::EEXIST) => Ok(()),
        answer => answer.map(drop),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_module_is_named() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("veth.ko");
        assert!(load(&path).expect_err("absent").to_string().contains("open "));
        std::fs::write(&path, "no module").expect("written");
        let said = load(&path).expect_err("no module").to_string();
        assert!(said.contains("finit_module") && said.contains("veth.ko"), "{said}");
    }
}
