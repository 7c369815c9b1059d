################################################################################
#
# rtscope
#
# Written by `cargo xtask packaging` from Cargo.toml, Cargo.lock, .cargo/config.toml and packaging/description.toml.
# Needs Rust 1.91 or newer.
#
################################################################################

RTSCOPE_VERSION = 0.1.0
RTSCOPE_SITE = https://example.org/rtscope/releases/download/v$(RTSCOPE_VERSION)
RTSCOPE_SOURCE = rtscope-$(RTSCOPE_VERSION).tar.gz
RTSCOPE_LICENSE = MIT or Apache-2.0
RTSCOPE_LICENSE_FILES = LICENSE-MIT LICENSE-APACHE
RTSCOPE_SUBDIR = crates/rtscope

# Buildroot's .cargo/config hides that of the source. The lab copies the program into guests that have no libraries.
RTSCOPE_RUSTFLAGS = -C target-feature=+crt-static
ifeq ($(NORMALIZED_ARCH),arm)
# RUSTFLAGS replaces what Buildroot sets for this architecture.
RTSCOPE_RUSTFLAGS += -C link-arg=-Wl,--allow-multiple-definition
endif
RTSCOPE_CARGO_ENV = RUSTFLAGS="$(RTSCOPE_RUSTFLAGS)"
RTSCOPE_CARGO_ENV += LIBSQLITE3_FLAGS="-USQLITE_ENABLE_FTS3 -USQLITE_ENABLE_FTS3_PARENTHESIS -USQLITE_ENABLE_FTS5 -USQLITE_ENABLE_RTREE -USQLITE_ENABLE_STAT4 -USQLITE_ENABLE_DBSTAT_VTAB -USQLITE_ENABLE_API_ARMOR -USQLITE_ENABLE_LOAD_EXTENSION -USQLITE_ENABLE_COLUMN_METADATA -USQLITE_ENABLE_MEMORY_MANAGEMENT -DSQLITE_OMIT_JSON -DSQLITE_OMIT_DEPRECATED -DSQLITE_OMIT_SHARED_CACHE -DSQLITE_OMIT_LOAD_EXTENSION -DSQLITE_OMIT_UTF16 -DSQLITE_OMIT_DESERIALIZE -DSQLITE_OMIT_INTROSPECTION_PRAGMAS"

define RTSCOPE_CHECK_STATIC
	$(TARGET_READELF) --program-headers $(TARGET_DIR)/usr/bin/rtscope > $(@D)/headers
	if grep -q INTERP $(@D)/headers; then echo 'rtscope is not static'; exit 1; fi
endef
RTSCOPE_POST_INSTALL_TARGET_HOOKS += RTSCOPE_CHECK_STATIC

$(eval $(cargo-package))
