#![no_main]

use rtscope_analyse::{
    instrument::{self, Choice},
    statistics::edges,
};

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let Ok(reading) = instrument::read(bytes, Choice { channel: None, samples_hz: Some(1e6) }) else {
        return;
    };
    let _ = edges::judge(&reading.capture, None);
    let _ = instrument::write_vcd(&reading.capture);
});
