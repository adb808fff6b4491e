//! A recorded real run, fed again to the same machines, gives the same outputs.

#![allow(clippy::disallowed_methods, reason = "these tests drive processes and wait for them")]

mod cluster;

use std::time::Duration;

use cluster::{Process, random_file, text};

const PATIENCE: Duration = Duration::from_secs(60);

#[test]
fn a_recorded_run_with_loss_replays_identically() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let content = random_file(&folder.join("object.bin"), 3 << 20, 7);
    let file = text(&folder.join("object.bin"));
    let mut sources = Vec::new();
    let mut addresses = Vec::new();
    let tape = |n: usize| text(&folder.join(format!("source{n}.tape")));
    for n in 0..2 {
        let (state, record) = (text(&folder.join(format!("source{n}"))), tape(n));
        let args = ["serve", &file, "--listen", "127.0.0.1:0", "--state", &state, "--record", &record];
        let mut source = Process::start(folder, &format!("source{n}"), &args);
        addresses.push(source.line(PATIENCE)["address"].as_str().unwrap().to_owned());
        sources.push(source);
    }
    let (out, state) = (text(&folder.join("out.bin")), text(&folder.join("receiver")));
    let (from, record) = (addresses.join(","), text(&folder.join("receiver.tape")));
    let args = ["get", "object.bin", "--from", &from, "-o", &out, "--state", &state, "--record", &record];
    let get = Process::start_with(folder, "receiver", &args, &[("HEADWATER_DROP", "0.03:7")]);
    let ended = get.end(PATIENCE);
    assert_eq!(ended.code, Some(0), "{}", ended.log);
    assert_eq!(std::fs::read(folder.join("out.bin")).unwrap(), content);
    let lost: u64 =
        ended.last.unwrap()["sources"].as_array().unwrap().iter().map(|s| s["lost"].as_u64().unwrap()).sum();
    assert!(lost > 0, "the run was meant to lose symbols");
    for source in sources {
        source.interrupt();
        source.end(PATIENCE);
    }
    let replayed = |tape: &str| {
        let ended = Process::start(folder, "replay", &["debug", "replay", tape]).end(PATIENCE);
        assert_eq!(ended.code, Some(0), "{tape}: {}", ended.log);
        let result = ended.last.unwrap();
        println!("{tape}: {result}");
        assert_eq!(result["identical"], serde_json::Value::Bool(true), "{result}");
        result["outputs"].as_u64().unwrap()
    };
    assert!(replayed(&record) > 100);
    // How the work is spread depends on the machine.
    assert!(replayed(&tape(0)) + replayed(&tape(1)) > 100);
    // A process that is killed leaves a truncated tape, which plays up to its end.
    let whole = std::fs::read(&record).unwrap();
    std::fs::write(&record, &whole[..whole.len() * 2 / 3 + 1]).unwrap();
    assert!(replayed(&record) > 50);
}

/// The record is that of the host: whatever it fetches at the same time is in it.
#[test]
fn a_recorded_host_with_several_fetches_at_once_replays_identically() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let files = folder.join("files");
    std::fs::create_dir(&files).unwrap();
    let content: Vec<_> =
        (0..6).map(|n| random_file(&files.join(format!("{n}.bin")), 300_000 + 1000 * n, n as u64)).collect();
    let (offered, state) = (text(&files), text(&folder.join("source")));
    let args = ["serve", &offered, "--listen", "127.0.0.1:0", "--state", &state];
    let mut source = Process::start(folder, "source", &args);
    let address = source.line(PATIENCE)["address"].as_str().unwrap().to_owned();
    let (out, state) = (text(&folder.join("out")), text(&folder.join("receiver")));
    let record = text(&folder.join("receiver.tape"));
    let args = ["get", "files", "--from", &address, "-o", &out, "--state", &state, "--record", &record];
    let ended = Process::start(folder, "receiver", &args).end(PATIENCE);
    assert_eq!(ended.code, Some(0), "{}", ended.log);
    for (n, content) in content.iter().enumerate() {
        assert!(std::fs::read(folder.join(format!("out/{n}.bin"))).unwrap() == *content, "file {n}");
    }
    let ended = Process::start(folder, "replay", &["debug", "replay", &record]).end(PATIENCE);
    assert_eq!(ended.code, Some(0), "{}", ended.log);
    let result = ended.last.unwrap();
    assert_eq!(result["identical"], serde_json::Value::Bool(true), "{result}");
    // Six files of 33 symbols each or more, beside the list of them: loopback carries 9 KB.
    assert!(result["inputs"].as_u64().unwrap() > 6 * 33, "{result}");
}
