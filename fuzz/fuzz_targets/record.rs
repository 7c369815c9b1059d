#![no_main]

use rtscope_fuzz::{Stages, record};

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| record(bytes, Stages::wanted()));
