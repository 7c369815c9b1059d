//! Pages of the kernel's ring buffer, in the file of `trace-cmd record` around them.

use std::sync::OnceLock;

use super::{Stages, explain};

/// A file of a kernel with its pages.
const FILE: &[u8] = include_bytes!("../corpus/explain/small.dat");

/// What stands before the table of each CPU's pages.
const TABLE: &[u8] = b"flyrecord\0";

/// The file without its pages, and where its table is.
fn head() -> &'static (Vec<u8>, usize) {
    static HEAD: OnceLock<(Vec<u8>, usize)> = OnceLock::new();
    HEAD.get_or_init(|| {
        let at = FILE.windows(TABLE.len()).position(|bytes| bytes == TABLE).expect("a table");
        let table = at + TABLE.len();
        let first = FILE[table..].first_chunk().expect("a number");
        (FILE[..u64::from_ne_bytes(*first) as usize].to_vec(), table)
    })
}

/// Reads bytes as the pages of the first CPU.
///
/// # Panics
///
/// As [`explain`].
pub fn pages(bytes: &[u8], stages: Stages) {
    let (head, table) = head();
    let mut file = [head, bytes].concat();
    let extent = [head.len() as u64, bytes.len() as u64, 0, 0].map(u64::to_ne_bytes).concat();
    file[*table..][..extent.len()].copy_from_slice(&extent);
    explain(&file, stages);
}
