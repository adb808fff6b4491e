//! Frames of programs and of agents, from anybody: nothing panics, and what parses says itself again.
#![no_main]

use headwater_agent::client_frames::{FromProgram, Heard, LONGEST_FROM_PROGRAM, length};
use headwater_agent::peer_frames::{FromFetcher, FromSource};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    if let Ok(Some(length)) = length(bytes, LONGEST_FROM_PROGRAM) {
        assert!(length <= LONGEST_FROM_PROGRAM as usize + 4);
    }
    if let Ok(frame) = FromProgram::parse(bytes) {
        let mut again = Vec::new();
        frame.emit(&mut again);
        assert_eq!(again, bytes);
    }
    if let Ok(frame) = FromFetcher::parse(bytes) {
        let mut again = Vec::new();
        frame.emit(&mut again);
        assert_eq!(again, bytes);
    }
    let _ = Heard::parse(bytes);
    let _ = FromSource::parse(bytes);
});
