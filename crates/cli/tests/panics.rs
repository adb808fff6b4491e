//! A panic in a thread that moves data ends the process, one elsewhere does not.

#![allow(clippy::disallowed_methods, reason = "a process that is to end is given the time for it")]

use std::process::{Command, Output};
use std::time::Duration;

/// The name of the thread that panics in the other process.
const THREAD: &str = "TEST_THREAD_THAT_PANICS";

/// Not a test: what the other process runs.
#[test]
#[ignore = "run by the tests below"]
fn other_process() {
    headwater_cli::panics::end_the_process();
    let name = std::env::var(THREAD).expect("run by the tests below");
    let thread = std::thread::Builder::new().name(name).spawn(|| panic!("a block too many")).unwrap();
    assert!(thread.join().is_err());
    std::thread::sleep(Duration::from_millis(100));
    eprintln!("it went on");
}

fn with_a_panic_in(thread: &str) -> (Output, String) {
    let program = std::env::current_exe().unwrap();
    let arguments = ["--exact", "other_process", "--ignored", "--nocapture"];
    let output = Command::new(program).args(arguments).env(THREAD, thread).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    (output, said)
}

#[test]
fn a_panic_in_a_thread_that_moves_data_ends_the_process() {
    for thread in ["data", "worker-3"] {
        let (output, said) = with_a_panic_in(thread);
        assert_eq!(output.status.code(), Some(101), "{said}");
        assert!(said.contains("a block too many") && said.contains("Start it again"), "{said}");
        assert!(!said.contains("it went on"), "{said}");
    }
}

#[test]
fn a_panic_elsewhere_does_not() {
    let (output, said) = with_a_panic_in("reader");
    assert!(output.status.success() && said.contains("it went on"), "{said}");
}
