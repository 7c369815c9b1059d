#![no_main]

use rtscope_fuzz::{Stages, guest};

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| guest(bytes, Stages::wanted()));
