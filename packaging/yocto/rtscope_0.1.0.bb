# Written by `cargo xtask packaging` from Cargo.toml, Cargo.lock, .cargo/config.toml and packaging/description.toml.
# Needs a layer with Rust 1.91 or newer.
SUMMARY = "Measure whether Linux wakes a real-time thread in time"
DESCRIPTION = "rtscope measures, at rest and under load, how late a real-time thread wakes, accounts for everything that was lost on the way, judges the result against requirements, and writes a page that says it. It also makes real-time kernels and compares kernels in an emulator. The program is static: it needs no library."
HOMEPAGE = "https://example.org/rtscope"
SECTION = "console/utils"
LICENSE = "MIT | Apache-2.0"
LIC_FILES_CHKSUM = " \
    file://LICENSE-MIT;md5=4973911523a3c26eda1f45b9b3803df1 \
    file://LICENSE-APACHE;md5=da742c5f80a30d3ebb5ad0e17dd30330 \
"

SRC_URI = "https://example.org/rtscope/releases/download/v${PV}/rtscope-${PV}.tar.gz"
# The checksum follows with the release.

require ${BPN}-crates.inc

inherit cargo systemd

CARGO_BUILD_FLAGS:append = " --package rtscope"

# The flags of Yocto replace those of .cargo/config.toml. The lab copies the program into guests that have no libraries.
RUSTFLAGS:append = " -C target-feature=+crt-static"
export LIBSQLITE3_FLAGS = "-USQLITE_ENABLE_FTS3 -USQLITE_ENABLE_FTS3_PARENTHESIS -USQLITE_ENABLE_FTS5 -USQLITE_ENABLE_RTREE -USQLITE_ENABLE_STAT4 -USQLITE_ENABLE_DBSTAT_VTAB -USQLITE_ENABLE_API_ARMOR -USQLITE_ENABLE_LOAD_EXTENSION -USQLITE_ENABLE_COLUMN_METADATA -USQLITE_ENABLE_MEMORY_MANAGEMENT -DSQLITE_OMIT_JSON -DSQLITE_OMIT_DEPRECATED -DSQLITE_OMIT_SHARED_CACHE -DSQLITE_OMIT_LOAD_EXTENSION -DSQLITE_OMIT_UTF16 -DSQLITE_OMIT_DESERIALIZE -DSQLITE_OMIT_INTROSPECTION_PRAGMAS"

# The targets that Yocto describes to rustc don't say that a program can be static, so rustc would ignore the flag.
python do_rust_gen_targets:append() {
    import glob, json
    for name in glob.glob(d.getVar('RUST_TARGETS_DIR') + '/*.json'):
        with open(name) as file:
            target = json.load(file)
        target['crt-static-respected'] = True
        with open(name, 'w') as file:
            json.dump(target, file, indent=4)
}

# Yocto strips programs itself, and keeps what debuggers read.
export CARGO_PROFILE_RELEASE_STRIP = "none"

do_install:append() {
    ${READELF} --program-headers ${D}${bindir}/rtscope > headers
    if grep -q INTERP headers; then
        bbfatal "rtscope is not static"
    fi
    install -d ${D}${systemd_system_unitdir}
    install -m 0644 ${S}/packaging/systemd/* ${D}${systemd_system_unitdir}
}

SYSTEMD_SERVICE:${PN} = "rtscope-doctor.timer rtscope-history.timer"
SYSTEMD_AUTO_ENABLE:${PN} = "disable"
FILES:${PN} += "${systemd_system_unitdir}"
