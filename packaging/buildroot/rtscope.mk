################################################################################
#
# rtscope
#
# Written by `cargo xtask packaging` from Cargo.toml, Cargo.lock and packaging/description.toml.
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

$(eval $(cargo-package))
