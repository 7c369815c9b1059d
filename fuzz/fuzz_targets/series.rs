#![no_main]

use rtscope_fuzz::{Stages, series};

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| series(bytes, Stages::wanted()));
