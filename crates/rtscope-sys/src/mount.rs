//! Mounting the kernel's own file systems: what the first process of a system does.

use std::{ffi::CString, path::Path};

use crate::error::{Error, check};

/// Mounts a file system without a device, as `proc` or `tmpfs`, on a folder that exists.
///
/// # Errors
///
/// ENODEV when the kernel has no such file system, EBUSY when it is mounted there already, EPERM
/// without `CAP_SYS_ADMIN`.
pub fn mount(kind: &str, folder: &Path) -> Result<(), Error> {
    let call = || format!("mount {kind} on {}", folder.display());
    let text = |bytes: &[u8]| CString::new(bytes).unwrap_or_default();
    let (source, target) = (text(kind.as_bytes()), text(folder.as_os_str().as_encoded_bytes()));
    // SAFETY: the pointers are valid for C strings; no data is allowed.
    let answer = unsafe {
        libc::mount(source.as_ptr(), target.as_ptr(), source.as_ptr(), 0, std::ptr::null())
    };
    check(i64::from(answer), call).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_system_that_does_not_exist_is_named() {
        let folder = tempfile::tempdir().expect("a folder");
        let error = mount("no-such-file-system", folder.path()).expect_err("refused").to_string();
        assert!(error.contains("mount no-such-file-system on "), "{error}");
    }
}
