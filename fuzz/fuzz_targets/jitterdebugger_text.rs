#![no_main]

use rtscope_fuzz::{Stages, import};

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| import("jitterdebugger-text", bytes, Stages::wanted()));
