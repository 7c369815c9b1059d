//! Yocto: a recipe, and the list of crates that it fetches before it builds without a network.

use std::path::Path;

use anyhow::{Context, Result};

use super::{Description, HEAD, Locked, sum};

/// What makes rustc heed the flag for a static program.
const CAN_BE_STATIC: &str = "\
# The targets that Yocto describes to rustc don't say that a program can be static, so rustc would ignore the flag.
python do_rust_gen_targets:append() {
    import glob, json
    for name in glob.glob(d.getVar('RUST_TARGETS_DIR') + '/*.json'):
        with open(name) as file:
            target = json.load(file)
        target['crt-static-respected'] = True
        with open(name, 'w') as file:
            json.dump(target, file, indent=4)
}";

pub(super) fn recipes(
    description: &Description,
    locked: &[Locked],
    root: &Path,
) -> Result<Vec<(String, String)>> {
    Ok(vec![
        (format!("yocto/rtscope_{}.bb", description.version), recipe(description, root)?),
        ("yocto/rtscope-crates.inc".to_owned(), crates(locked)?),
    ])
}

fn recipe(description: &Description, root: &Path) -> Result<String> {
    let licence = |name: &str| -> Result<String> {
        Ok(format!("file://{name};md5={}", sum("md5sum", &root.join(name))?))
    };
    let sum = description.sha256.as_ref().map_or_else(
        || "# The checksum follows with the release.".to_owned(),
        |sum| format!("SRC_URI[sha256sum] = \"{sum}\""),
    );
    Ok(format!(
        "# {HEAD}
# Needs a layer with Rust {rust} or newer.
SUMMARY = \"{title}\"
DESCRIPTION = \"{paragraphs}\"
HOMEPAGE = \"{homepage}\"
SECTION = \"console/utils\"
LICENSE = \"{licences}\"
LIC_FILES_CHKSUM = \" \\
    {mit} \\
    {apache} \\
\"

SRC_URI = \"{archive}\"
{sum}

require ${{BPN}}-crates.inc

inherit cargo systemd

CARGO_BUILD_FLAGS:append = \" --package rtscope\"

# The flags of Yocto replace those of .cargo/config.toml. The lab copies the program into guests that have no libraries.
RUSTFLAGS:append = \" -C target-feature=+crt-static\"
export LIBSQLITE3_FLAGS = \"{sqlite}\"

{CAN_BE_STATIC}

# Yocto strips programs itself, and keeps what debuggers read.
export CARGO_PROFILE_RELEASE_STRIP = \"none\"

do_install:append() {{
    ${{READELF}} --program-headers ${{D}}${{bindir}}/rtscope > headers
    if grep -q INTERP headers; then
        bbfatal \"rtscope is not static\"
    fi
    install -d ${{D}}${{systemd_system_unitdir}}
    install -m 0644 ${{S}}/packaging/systemd/* ${{D}}${{systemd_system_unitdir}}
}}

SYSTEMD_SERVICE:${{PN}} = \"rtscope-doctor.timer rtscope-history.timer\"
SYSTEMD_AUTO_ENABLE:${{PN}} = \"disable\"
FILES:${{PN}} += \"${{systemd_system_unitdir}}\"
",
        rust = description.rust,
        title = description.title(),
        paragraphs = description.paragraphs.join(" "),
        homepage = description.homepage,
        licences = description.licences.join(" | "),
        mit = licence("LICENSE-MIT")?,
        apache = licence("LICENSE-APACHE")?,
        archive = description.archive("${PV}"),
        sqlite = description.sqlite,
    ))
}

/// Each crate with the checksum that `Cargo.lock` has. Crates of tests and of other systems are there too: cargo reads
/// the whole file before it builds anything.
fn crates(locked: &[Locked]) -> Result<String> {
    let line = |one: &Locked| format!("    crate://crates.io/{}/{} \\\n", one.name, one.version);
    let addresses: String = locked.iter().map(line).collect();
    let mut sums = String::new();
    for Locked { name, version, checksum, .. } in locked {
        let sum = checksum.as_ref().with_context(|| format!("{name} has no checksum"))?;
        sums += &format!("SRC_URI[{name}-{version}.sha256sum] = \"{sum}\"\n");
    }
    Ok(format!("# {HEAD}\nSRC_URI += \" \\\n{addresses}\"\n\n{sums}"))
}
