#![no_main]

use rtscope_fuzz::{Stages, doctor};

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| doctor(bytes, Stages::wanted()));
