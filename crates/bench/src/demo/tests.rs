//! The orchestration, with a shell script in the place of this program: it speaks the same lines and moves nothing.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration as StdDuration;

use headwater_api::{Progress, SourceShare};
use headwater_units::{BitRate, Bytes, Duration};
use tempfile::TempDir;

use super::*;
use crate::subprocess;

const SIZE: Bytes = Bytes::new(100_000);
const SEED: u64 = 7;

/// Daemons say that they listen and sleep; `ls` lists everybody who did; `get` does what `$GET` says.
const SCRIPT: &str = r#"#!/bin/sh
command=$1 state= output= file=$2
while [ $# -gt 0 ]; do
  case $1 in
    --state) state=$2 ;;
    -o) output=$2 ;;
  esac
  shift
done
folder=${state%/*}
[ -s "$0.folder" ] || echo "$folder" >"$0.folder"
echo $$ >>"$0.pids"
case $command in
  controller) echo '{"address":"127.0.0.1:1"}'; exec sleep 60 ;;
  serve) echo "127.0.0.1:${state##*-}" >>"$folder/holders"
         echo "{\"address\":\"127.0.0.1:${state##*-}\"}"; exec sleep 60 ;;
  ls) holders=$(sed 's/.*/"&"/' "$folder/holders" | tr '\n' ',')
      echo "{\"object\":\"OBJECT\",\"name\":\"demo.bin\",\"bytes\":1,\"holders\":[${holders%,}]}" ;;
  get) progress() { echo "{\"type\":\"progress\",\"object\":\"x\",\"bytes_done\":$1,\"bytes_total\":100000,\"rate\":5,\"eta_seconds\":null,\"sources\":[{\"node\":\"127.0.0.1:$2\",\"rate\":5,\"share\":0.5,\"theta\":null,\"live\":true}],\"phase\":\"receiving\"}"; }
       file="$folder/demo.bin"
       GET ;;
esac
"#;

struct Fake {
    folder: TempDir,
    options: DemoOptions,
}

impl Fake {
    fn new(get: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let object = subprocess::write_random(&folder.path().join("object"), SIZE, SEED).unwrap();
        let result = GetResult {
            object: object.to_string(),
            bytes: SIZE.get(),
            seconds: 0.5,
            verified: true,
            sources: vec![SourceShare {
                node: "127.0.0.1:1".into(),
                bytes: 100_000,
                share: 1.0,
                symbols: 70,
                lost: 0,
                ..SourceShare::default()
            }],
            ..GetResult::default()
        };
        let result = format!("echo '{}'", serde_json::to_string(&result).unwrap());
        let script = SCRIPT.replace("GET ;;", &format!("{get} ;;"));
        let script = script.replace("RESULT", &result).replace("OBJECT", &object.to_string());
        write_program(folder.path(), &script);
        let common = Common {
            state: "/nowhere".into(),
            node_name: None,
            pin: None,
            uplink: None,
            downlink: None,
            rack: None,
            labels: Default::default(),
            limit: None,
            gentle: false,
            dscp: headwater_wire::CodePoints::default(),
            mtu: None,
            data_port: 0,
            loss_response_ignore: false,
            patience: headwater_units::Duration::from_secs(60),
            patience_stated: false,
            experiments: Default::default(),
        };
        let options = DemoOptions {
            common,
            rates: vec![BitRate::new(1_000_000), BitRate::new(3_000_000)],
            size: SIZE,
            loss: 0.0,
            kills: vec![],
            joins: vec![],
            rerates: vec![],
            seed: SEED,
            keep: false,
        };
        Fake { folder, options }
    }

    fn program(&self) -> PathBuf {
        self.folder.path().join("program")
    }

    async fn run(&self, watch: &mut Notes) -> Result<DemoResult, AppError> {
        let script = Script::of(&self.options).unwrap();
        let run = Run { options: &self.options, script, network: Network::Loopback, program: self.program() };
        run.run(watch).await
    }

    fn lines(&self, of: &str) -> Vec<String> {
        let path = self.folder.path().join(format!("program.{of}"));
        std::fs::read_to_string(path).unwrap_or_default().lines().map(str::to_owned).collect()
    }

    /// No process runs and no file lies around.
    fn assert_gone(&self) {
        let (folder, pids) = (self.lines("folder"), self.lines("pids"));
        assert!(!folder.is_empty() && !pids.is_empty());
        assert!(!Path::new(&folder[0]).exists(), "{folder:?}");
        let alive = |pid: &String| {
            let stat = std::fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            stat.contains("program") || stat == "sleep\x0060\0"
        };
        assert_eq!(pids.iter().filter(|pid| alive(pid)).count(), 0);
    }
}

/// Written by another process: a file that this one ever had open for writing may still be open in a child that another
/// test forks just now, and then cannot be executed.
fn write_program(folder: &Path, script: &str) {
    let text = folder.join("text");
    std::fs::write(&text, script).unwrap();
    let command = r#"cp "$1/text" "$1/copy" && chmod 700 "$1/copy" && mv "$1/copy" "$1/program""#;
    let done = Command::new("sh").args(["-c", command, "sh"]).arg(folder).status().unwrap();
    assert!(done.success());
}

#[derive(Default)]
struct Notes {
    notes: Vec<String>,
    progress: Vec<Progress>,
}

impl Watch for Notes {
    fn progress(&mut self, progress: &Progress) {
        self.progress.push(progress.clone());
    }
    fn note(&mut self, line: &str) {
        self.notes.push(line.to_owned());
    }
}

#[tokio::test]
async fn a_run_reports_what_the_receiver_said_and_what_happened_meanwhile() {
    let mut fake = Fake::new(
        r#"progress 0 0; sleep 0.3; progress 5 0; sleep 0.3; progress 9 2; cp "$file" "$output"; RESULT"#,
    );
    fake.options.kills = vec![(0, Duration::from_millis(100))];
    fake.options.joins = vec![(BitRate::new(4_000_000), Duration::from_millis(200))];
    let mut watch = Notes::default();
    let result = fake.run(&mut watch).await.unwrap();
    fake.assert_gone();

    assert_eq!(
        (result.network.as_str(), result.source_rates.as_slice()),
        ("loopback", &[1_000_000, 3_000_000, 4_000_000][..])
    );
    // 0.8 Mbit at 4, then at 3, then at 7 Mbit/s; the changes come after 0.1 and 0.2 s, or later on a busy machine.
    let (killed, joined) = (result.killed[0].at_seconds, result.joined[0].at_seconds);
    assert!(killed >= 0.1 && joined >= 0.2, "{result:?}");
    let left = 0.8 - 4.0 * killed;
    let ideal = match left - 3.0 * (joined - killed) {
        _ if left <= 0.0 => 0.2,
        later if later <= 0.0 => killed + left / 3.0,
        later => joined + later / 7.0,
    };
    assert!((result.get.ideal_seconds.unwrap() - ideal).abs() < 1e-4, "{ideal}: {result:?}");
    assert!((result.get.ratio.unwrap() - 0.5 / result.get.ideal_seconds.unwrap()).abs() < 1e-9);
    let shares: Vec<f64> = result.get.sources.iter().map(|source| source.share).collect();
    assert_eq!(shares, [0.0, 1.0, 0.0]);
    let joined = &result.joined[0];
    assert_eq!(joined.source, 2);
    assert!(joined.used_after_seconds.is_some_and(|after| after > 0.3), "{joined:?}");
    assert_eq!(watch.progress.len(), 3);
    assert!(watch.notes.iter().any(|note| note.contains("source 0 has vanished")), "{:?}", watch.notes);

    let table = result.table();
    assert!(table.contains("vanished at 0.1") && table.contains("100.00 %"), "{table}");
    let json = serde_json::to_value(&result).unwrap();
    let again: DemoResult = serde_json::from_value(json.clone()).unwrap();
    assert_eq!((again, &json["ratio"]), (result.clone(), &result.get.ratio.into()));
}

#[tokio::test]
async fn a_failing_receiver_is_quoted() {
    let fake = Fake::new("progress 0 0; echo 'no luck today' >&2; exit 9");
    let error = fake.run(&mut Notes::default()).await.unwrap_err().to_string();
    assert!(error.contains("receiver ended without a result") && error.contains("no luck today"), "{error}");
    fake.assert_gone();

    let fake =
        Fake::new(r#"progress 0 0; echo '{"error":{"kind":"no_room","message":"full","exit_code":6}}'"#);
    let error = fake.run(&mut Notes::default()).await.unwrap_err();
    assert!(matches!(error, AppError::NoRoom(_)) && error.to_string().contains("full"), "{error}");
}

#[tokio::test]
async fn a_receiver_that_lies_is_found_out() {
    let fake = Fake::new(r#"progress 0 0; echo wrong >"$output"; RESULT"#);
    let error = fake.run(&mut Notes::default()).await.unwrap_err();
    assert!(matches!(error, AppError::Verification(_)), "{error}");
    fake.assert_gone();
}

#[tokio::test]
async fn a_source_that_cannot_start_is_quoted() {
    let fake = Fake::new("exit 1");
    let script = std::fs::read_to_string(fake.program()).unwrap();
    let script = script.replace("  serve) ", "  serve) echo 'port taken' >&2; exit 1 ;;\n  never) ");
    write_program(fake.folder.path(), &script);
    let error = fake.run(&mut Notes::default()).await.unwrap_err().to_string();
    assert!(error.contains("source 0 ended before it was ready") && error.contains("port taken"), "{error}");
    fake.assert_gone();
}

#[tokio::test]
async fn nothing_is_left_when_the_user_stops_it() {
    let fake = Fake::new("progress 0 0; exec sleep 60");
    let mut watch = Notes::default();
    let stopped = tokio::time::timeout(StdDuration::from_secs(2), fake.run(&mut watch)).await;
    assert!(stopped.is_err() && !watch.progress.is_empty());
    fake.assert_gone();
}
