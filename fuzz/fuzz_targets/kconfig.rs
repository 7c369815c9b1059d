#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| rtscope_fuzz::kconfig(bytes));
