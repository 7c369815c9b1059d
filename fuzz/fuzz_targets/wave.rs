#![no_main]

use rtscope_fuzz::{Stages, wave};

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| wave(bytes, Stages::wanted()));
