#![no_main]

use rtscope_fuzz::{Stage, import};

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| import("linuxcnc", bytes, Stage::of(bytes)));
