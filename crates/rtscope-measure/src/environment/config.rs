//! The configuration the kernel was built with.

use std::{collections::BTreeMap, io::Read};

use flate2::read::GzDecoder;
use rtscope_sys::tree::Tree;

/// Far above any configuration: guards against a file that is something else.
const CONFIG_BYTES_MAX: u64 = 16 * 1024 * 1024;

/// Options and the file they were read from: `/proc/config.gz`, else what the distribution put beside
/// the kernel. The latter is found by the release, and may be stale when a kernel was built twice
/// under one name.
pub(super) fn collect(tree: &Tree, release: &str) -> (BTreeMap<String, String>, Option<String>) {
    let packed = tree.read_bytes("proc/config.gz").ok().and_then(|bytes| unpack(&bytes));
    if let Some(text) = packed {
        return (options(&text), Some("/proc/config.gz".to_owned()));
    }
    let beside = [format!("boot/config-{release}"), format!("lib/modules/{release}/config")];
    for path in beside.into_iter().filter(|_| !release.is_empty()) {
        if let Ok(text) = tree.read(&path) {
            return (options(&text), Some(format!("/{path}")));
        }
    }
    (BTreeMap::new(), None)
}

fn unpack(bytes: &[u8]) -> Option<String> {
    let mut text = String::new();
    GzDecoder::new(bytes).take(CONFIG_BYTES_MAX).read_to_string(&mut text).ok()?;
    Some(text)
}

/// Every option that is set, without `CONFIG_` and without the quotes around a text.
fn options(text: &str) -> BTreeMap<String, String> {
    let option = |line: &str| {
        let (name, value) = line.strip_prefix("CONFIG_")?.split_once('=')?;
        Some((name.to_owned(), value.trim().trim_matches('"').to_owned()))
    };
    text.lines().filter_map(option).collect()
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use flate2::{Compression, write::GzEncoder};

    use super::*;
    use crate::environment::fake::FakeTree;

    const TEXT: &str = "# Linux/arm64\nCONFIG_HZ=250\n# CONFIG_PREEMPT is not set\nCONFIG_PREEMPT_RT=y\n\
                        CONFIG_MSR=m\nCONFIG_LOCALVERSION=\"-v8\"\n";

    #[test]
    fn the_packed_configuration_comes_first() {
        let fake = FakeTree::new();
        let mut packer = GzEncoder::new(Vec::new(), Compression::default());
        packer.write_all(TEXT.as_bytes()).expect("memory");
        fake.bytes("proc/config.gz", &packer.finish().expect("memory"));
        fake.file("boot/config-6.1.0", "CONFIG_HZ=100\n");
        let (options, source) = collect(&fake.tree, "6.1.0");
        assert_eq!(source.as_deref(), Some("/proc/config.gz"));
        let pairs: Vec<(&str, &str)> =
            options.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        let expected = [("HZ", "250"), ("LOCALVERSION", "-v8"), ("MSR", "m"), ("PREEMPT_RT", "y")];
        assert_eq!(pairs, expected);
    }

    #[test]
    fn a_damaged_pack_falls_back_to_boot() {
        let fake = FakeTree::new();
        fake.bytes("proc/config.gz", b"not gzip");
        fake.file("boot/config-6.1.0", TEXT);
        let (options, source) = collect(&fake.tree, "6.1.0");
        assert_eq!(source.as_deref(), Some("/boot/config-6.1.0"));
        assert_eq!(options.len(), 4);
        assert_eq!(collect(&fake.tree, "6.2.0"), (BTreeMap::new(), None));
    }
}
