#![no_main]

use rtscope_fuzz::{Stage, import};

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| import("cyclictest", bytes, Stage::of(bytes)));
