//! Whatever becomes of a run, and whatever runs beside it, nothing of it stays.

use std::fs;
use std::process::Command;
use std::time::{Duration, Instant};

use super::common::{Printed, Running, alone_and_seen, asks, entries, it, slow, tiny, wait_for};

/// How soon a run is gone, and all that it has made.
const GONE: Duration = Duration::from_secs(5);
/// How soon one is under way.
const BEGUN: Duration = Duration::from_secs(60);

/// Scratch folders of a process's runs.
fn folders(pid: u32) -> Vec<String> {
    let beginning = format!("headwater-experiment-{pid}-");
    let places = ["/dev/shm".into(), std::env::temp_dir()];
    let found = places.iter().flat_map(|place| {
        entries(place, &beginning).into_iter().map(move |name| place.join(name).display().to_string())
    });
    found.collect()
}

/// Everything that there is of a process's runs: namespaces, folders, processes.
fn left(pid: u32) -> Vec<String> {
    let mut left = entries("/run/netns", &format!("hw-{pid}-"));
    left.extend(folders(pid));
    let beginning = format!("headwater-experiment-{pid}-");
    let processes = fs::read_dir("/proc").unwrap().flatten();
    let lines = processes.filter_map(|entry| fs::read_to_string(entry.path().join("cmdline")).ok());
    left.extend(lines.filter(|line| line.contains(&beginning)).map(|line| line.replace('\0', " ")));
    left
}

/// A run that would take longer than this test, once packets flow.
fn in_the_middle(folder: &tempfile::TempDir) -> Running {
    let mut running = Running::start(it(folder));
    wait_for("packets", BEGUN, || {
        assert!(running.process.try_wait().unwrap().is_none(), "it ended by itself");
        let timelines = folders(running.pid()).into_iter().map(|folder| folder + "/task-0.0.csv");
        timelines.filter_map(|path| fs::read_to_string(path).ok()).find(|text| text.contains("useful"))
    });
    assert_eq!(running.namespaces().len(), 3, "two hosts and the switch");
    let all = left(running.pid()).join("\n");
    for part in ["hw-", "controller", "serve", "get", "headwater-experiment-"] {
        assert!(all.contains(part), "{part} is not there: {all}");
    }
    running
}

/// Goal: a run that dies without a chance to clean up is cleaned up after.
#[test]
fn a_killed_run_leaves_nothing() {
    let Some(_alone) = alone_and_seen() else { return };
    let folder = tiny(20_000, "");
    let mut running = in_the_middle(&folder);
    running.process.kill().unwrap();
    running.process.wait().unwrap();
    let start = Instant::now();
    let pid = running.pid();
    while !left(pid).is_empty() {
        assert!(start.elapsed() < GONE, "{:#?}", left(pid));
        std::thread::sleep(Duration::from_millis(20));
    }
    eprintln!("gone after {:?}", start.elapsed());
}

/// Goal: who stops a run is told so by its exit code, and then nothing is there any more.
#[test]
fn an_interrupted_run_leaves_nothing_and_says_that_it_was_interrupted() {
    let Some(_alone) = alone_and_seen() else { return };
    let folder = tiny(20_000, "");
    let mut running = in_the_middle(&folder);
    let (start, pid) = (Instant::now(), running.pid());
    assert!(Command::new("kill").args(["-INT", &pid.to_string()]).status().unwrap().success());
    let ended = wait_for("its end", GONE, || running.process.try_wait().unwrap());
    assert_eq!(ended.code(), Some(130));
    assert_eq!(left(pid), Vec::<String>::new());
    eprintln!("gone after {:?}", start.elapsed());
}

/// Goal: several runs side by side do not meet.
#[test]
fn two_runs_side_by_side_both_end_as_they_should() {
    let Some(_alone) = alone_and_seen() else { return };
    let count = asks("packets", "{}", r#"{ kind = "column", table = "flows", column = "packets" }"#);
    let folders = [slow(200, &count), slow(300, &count)];
    let mut both = folders.each_ref().map(|folder| Running::start(it(folder)));
    wait_for("both networks at once", BEGUN, || {
        both.iter().all(|running| running.namespaces().len() == 3).then_some(())
    });
    let [first, second] = both.each_mut().map(|running| {
        let ended = wait_for("its end", BEGUN, || running.process.try_wait().unwrap());
        assert_eq!(left(running.pid()), Vec::<String>::new());
        let mut output = std::process::Output { status: ended, stdout: Vec::new(), stderr: Vec::new() };
        for (stream, to) in [
            (&mut running.process.stdout.take().unwrap() as &mut dyn std::io::Read, &mut output.stdout),
            (&mut running.process.stderr.take().unwrap(), &mut output.stderr),
        ] {
            stream.read_to_end(to).unwrap();
        }
        Printed::of(&output).ends_well()
    });
    for (said, packets) in [(first, 200.0), (second, 300.0)] {
        assert!(said.value("packets").is_none_or(|seen| seen == packets), "{said:?}");
    }
}
