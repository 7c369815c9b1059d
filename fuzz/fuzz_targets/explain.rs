#![no_main]

use rtscope_fuzz::{Stages, explain};

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| explain(bytes, Stages::wanted()));
