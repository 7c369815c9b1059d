//! Buildroot: a package for its cargo infrastructure.

use std::path::Path;

use anyhow::Result;

use super::{Description, HEAD, sum};

pub(super) fn recipes(description: &Description, root: &Path) -> Result<Vec<(String, String)>> {
    Ok(vec![
        ("buildroot/Config.in".to_owned(), config(description)),
        ("buildroot/rtscope.mk".to_owned(), makefile(description)),
        ("buildroot/rtscope.hash".to_owned(), hashes(root)?),
    ])
}

fn config(description: &Description) -> String {
    // A tab and two blanks before each line of help, 72 columns in all.
    let paragraphs: Vec<String> = description
        .folded(62)
        .into_iter()
        .map(|lines| lines.into_iter().map(|line| format!("\t  {line}\n")).collect())
        .collect();
    format!(
        "# {HEAD}
config BR2_PACKAGE_RTSCOPE
\tbool \"rtscope\"
\tdepends on BR2_PACKAGE_HOST_RUSTC_TARGET_ARCH_SUPPORTS
\tdepends on BR2_TOOLCHAIN_USES_GLIBC
\tselect BR2_PACKAGE_HOST_RUSTC
\thelp
{}
\t  {}

comment \"rtscope needs a toolchain w/ glibc\"
\tdepends on BR2_PACKAGE_HOST_RUSTC_TARGET_ARCH_SUPPORTS
\tdepends on !BR2_TOOLCHAIN_USES_GLIBC
",
        paragraphs.join("\n"),
        description.homepage
    )
}

fn makefile(description: &Description) -> String {
    let archive = description.archive("$(RTSCOPE_VERSION)");
    let (site, source) = archive.rsplit_once('/').unwrap_or(("", &archive));
    let line = "#".repeat(80);
    format!(
        "{line}
#
# rtscope
#
# {HEAD}
# Needs Rust {rust} or newer.
#
{line}

RTSCOPE_VERSION = {version}
RTSCOPE_SITE = {site}
RTSCOPE_SOURCE = {source}
RTSCOPE_LICENSE = {licences}
RTSCOPE_LICENSE_FILES = LICENSE-MIT LICENSE-APACHE
RTSCOPE_SUBDIR = crates/rtscope

# Buildroot's .cargo/config hides that of the source. The lab copies the program into guests that have no libraries.
RTSCOPE_RUSTFLAGS = -C target-feature=+crt-static
ifeq ($(NORMALIZED_ARCH),arm)
# RUSTFLAGS replaces what Buildroot sets for this architecture.
RTSCOPE_RUSTFLAGS += -C link-arg=-Wl,--allow-multiple-definition
endif
RTSCOPE_CARGO_ENV = RUSTFLAGS=\"$(RTSCOPE_RUSTFLAGS)\"
RTSCOPE_CARGO_ENV += LIBSQLITE3_FLAGS=\"{sqlite}\"

define RTSCOPE_CHECK_STATIC
\t$(TARGET_READELF) --program-headers $(TARGET_DIR)/usr/bin/rtscope > $(@D)/headers
\tif grep -q INTERP $(@D)/headers; then echo 'rtscope is not static'; exit 1; fi
endef
RTSCOPE_POST_INSTALL_TARGET_HOOKS += RTSCOPE_CHECK_STATIC

$(eval $(cargo-package))
",
        rust = description.rust,
        version = description.version,
        licences = description.licences.join(" or "),
        sqlite = description.sqlite,
    )
}

fn hashes(root: &Path) -> Result<String> {
    let mut text = format!(
        "# {HEAD}\n# Buildroot adds the crates to the archive, so its checksum depends on Buildroot. Add the line that \
         sha256sum\n# prints for the archive in dl/rtscope.\n"
    );
    for name in ["LICENSE-MIT", "LICENSE-APACHE"] {
        text += &format!("sha256  {}  {name}\n", sum("sha256sum", &root.join(name))?);
    }
    Ok(text)
}
