//! A panic in a thread that moves data ends the process, one elsewhere does not.

#![allow(clippy::disallowed_methods, reason = "a process that is to end is given the time for it")]

use std::fs::File;
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

fn process_with_a_panic_in(thread: &str) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "other_process", "--ignored", "--nocapture"]).env(THREAD, thread);
    command
}

fn with_a_panic_in(thread: &str) -> (Output, String) {
    let output = process_with_a_panic_in(thread).output().unwrap();
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
fn it_ends_with_the_same_code_where_the_disk_has_no_room_for_the_message() {
    let full = File::options().write(true).open("/dev/full").unwrap();
    let output = process_with_a_panic_in("data").stderr(full).output().unwrap();
    assert_eq!(output.status.code(), Some(101), "{output:?}");
}

#[test]
fn a_panic_elsewhere_does_not() {
    let (output, said) = with_a_panic_in("reader");
    assert!(output.status.success() && said.contains("it went on"), "{said}");
}
