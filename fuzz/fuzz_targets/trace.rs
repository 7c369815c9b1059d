#![no_main]

use rtscope_fuzz::{Stages, trace};

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| trace(bytes, Stages::wanted()));
