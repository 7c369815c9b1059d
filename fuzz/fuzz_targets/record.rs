#![no_main]

use rtscope_fuzz::{Stage, record};

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| record(bytes, Stage::of(bytes)));
