#![no_main]

use rtscope_fuzz::{Stages, pages};

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| pages(bytes, Stages::wanted()));
