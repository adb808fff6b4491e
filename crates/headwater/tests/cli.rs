//! The binary as people and scripts meet it: exit codes, what goes to which stream, JSON shapes, help, settings,
//! completions, manual pages and the text format of symbols. Nothing here needs a network.

use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use serde_json::Value;
use tempfile::TempDir;

/// A home of our own: the user's config file, state and environment do not matter.
struct Home(TempDir);

impl Home {
    fn new() -> Self {
        Home(tempfile::tempdir().expect("a temporary folder"))
    }

    fn path(&self) -> &Path {
        self.0.path()
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_headwater"));
        for (variable, _) in std::env::vars().filter(|(variable, _)| variable.starts_with("HEADWATER_")) {
            command.env_remove(variable);
        }
        command.args(arguments).current_dir(self.path()).env("HOME", self.path()).env_remove("RUST_LOG");
        command
            .env("XDG_CONFIG_HOME", self.path().join("config"))
            .env("XDG_DATA_HOME", self.path().join("data"));
        command.stdin(Stdio::null());
        command
    }

    fn run(&self, arguments: &[&str]) -> Answer {
        Answer::of(self.command(arguments).output().expect("the binary runs"))
    }

    /// Runs with this on standard input.
    fn feed(&self, arguments: &[&str], input: &[u8]) -> Answer {
        let mut child = self
            .command(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the binary runs");
        let mut stdin = child.stdin.take().expect("a pipe");
        std::thread::scope(|scope| {
            // The binary may stop reading at the first bad line.
            scope.spawn(move || drop(stdin.write_all(input)));
            Answer::of(child.wait_with_output().expect("the binary ends"))
        })
    }
}

struct Answer {
    code: i32,
    bytes: Vec<u8>,
    out: String,
    err: String,
}

impl Answer {
    fn of(output: Output) -> Self {
        Answer {
            code: output.status.code().expect("ended by itself"),
            out: String::from_utf8_lossy(&output.stdout).into_owned(),
            err: String::from_utf8_lossy(&output.stderr).into_owned(),
            bytes: output.stdout,
        }
    }

    /// Standard output, which must be JSON objects, one per line.
    fn json(&self) -> Vec<Value> {
        let parse = |line: &str| serde_json::from_str(line).unwrap_or_else(|e| panic!("{e}: {line}"));
        self.out.lines().map(parse).collect()
    }

    #[track_caller]
    fn ends_with(&self, code: i32) -> &Self {
        assert_eq!(self.code, code, "stdout: {}\nstderr: {}", self.out, self.err);
        self
    }
}

#[test]
fn help_is_an_answer_and_lists_commands_and_exit_codes() {
    let home = Home::new();
    let help = home.run(&["--help"]);
    help.ends_with(0);
    let laboratory = if cfg!(feature = "laboratory") { "headwater demo" } else { "without the laboratory" };
    for part in ["serve", "get", laboratory, "Exit codes:", "130", "verification failed", "headwater up"] {
        assert!(help.out.contains(part), "{part}\n{}", help.out);
    }
    let short = home.run(&["-h"]);
    assert!(short.ends_with(0).out.contains("Exit codes: 0 done"));
    assert_eq!(short.out.contains("without the laboratory"), cfg!(not(feature = "laboratory")));
    assert!(home.run(&["--version"]).ends_with(0).out.starts_with("headwater "));
}

#[test]
fn help_of_each_command_teaches_by_example() {
    let home = Home::new();
    for command in [
        "up",
        "controller",
        "node",
        "serve",
        "get",
        "cast",
        "put",
        "ls",
        "rm",
        "status",
        "forget",
        #[cfg(feature = "laboratory")]
        "demo",
        #[cfg(feature = "laboratory")]
        "emulate",
        "man",
    ] {
        let help = home.run(&[command, "--help"]);
        assert!(help.ends_with(0).out.contains("Examples:\n  headwater "), "{command}\n{}", help.out);
    }
    let help = home.run(&["get", "--help"]).out;
    assert!(help.contains("A included, B not") && help.contains("HEADWATER_HOME"), "{help}");
}

#[test]
fn wrong_usage_is_exit_code_2_and_says_what_would_be_right() {
    let home = Home::new();
    for (arguments, hint) in [
        (&["fetch"] as &[&str], "unrecognized subcommand"),
        (&["get"], "<NAME|ID>"),
        (&["get", "x"], "--from"),
        (&["get", "x", "--from", "a", "--controller", "b"], "cannot be used with"),
        (&["get", "x", "--from", "a", "--range", "5-5"], "is empty"),
        (&["get", "x", "--controller", "a", "--theta", "4"], "needs --from"),
        (&["get", "x", "--from", "a", "--hash", "abc"], "64 hex digits"),
        (&["get", "x", "--from", "a", "--limit", "50"], "50Mbit/s or 50MB/s"),
        (&["get", "x", "--from", "a", "--limit", "10M"], "10Mbit/s or 10MB/s"),
        (&["get", "x", "--from", "a", "--limit", "10mb/s"], "50MB/s"),
        (&["get", "x", "--from", "a", "--limit", "50bit/s"], "less than a packet a second"),
        (&["up", "--quota", "500"], "500MiB"),
        (&["cast", "x", "--controller", "a"], "--all"),
        (&["node"], "--join"),
        (&["serve", "a", "b", "--name", "n"], "names one object"),
        (&["up", "--uplink", "fast"], "50Mbit/s"),
        (&["up", "--dscp", "64"], "0..=63"),
        #[cfg(feature = "laboratory")]
        (&["demo", "--kill", "3@2s"], "sources are 0 to 2"),
        #[cfg(feature = "laboratory")]
        (&["demo", "--loss", "1"], "1%"),
        #[cfg(not(feature = "laboratory"))]
        (&["lab", "list"], "built without the laboratory"),
        #[cfg(not(feature = "laboratory"))]
        (&["debug", "tcp", "send"], "built without the laboratory"),
        (&["ls", "-v", "-q"], "cannot be used with"),
    ] {
        let answer = home.run(arguments);
        assert!(answer.ends_with(2).err.contains(hint), "{arguments:?}\n{}", answer.err);
        assert!(answer.out.is_empty(), "{arguments:?}\n{}", answer.out);
    }
    assert_eq!(fs::read_dir(home.path()).unwrap().count(), 0, "nothing was started, so nothing was written");
}

#[test]
fn a_failure_with_json_is_one_object_and_the_words_are_on_stderr() {
    let home = Home::new();
    let answer = home.run(&["get", "x", "--json"]);
    answer.ends_with(2);
    let [error] = &answer.json()[..] else { panic!("{}", answer.out) };
    // Programs are told of a line that does not even parse, too.
    for line in [&["ls", "--json", "--nonsense"] as &[&str], &["--json", "fetch"], &["get", "--json"]] {
        let answer = home.run(line);
        answer.ends_with(2);
        let [error] = &answer.json()[..] else { panic!("{line:?}: {}", answer.out) };
        assert_eq!((&error["error"]["kind"], &error["error"]["exit_code"]), (&"usage".into(), &2.into()));
        assert!(error["error"]["message"].as_str().is_some_and(|it| it.contains("--help")), "{error}");
        assert!(answer.err.starts_with("error: "), "{}", answer.err);
    }
    assert_eq!((&error["error"]["kind"], &error["error"]["exit_code"]), (&"usage".into(), &2.into()));
    assert!(answer.err.starts_with("error: "), "{}", answer.err);
    // Where standard output is for data, it stays empty.
    let answer = home.run(&["get", "x", "--json", "-o", "-"]);
    assert!(answer.ends_with(2).out.is_empty() && answer.err.contains(r#""kind":"usage""#), "{}", answer.err);
}

#[test]
fn a_controller_that_is_not_there_is_exit_code_4() {
    let home = Home::new();
    // Reserved and released: nobody listens there.
    let socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    let address = socket.local_addr().unwrap().to_string();
    drop(socket);
    let answer = home.run(&["ls", "--controller", &address, "--timeout", "2s", "--json"]);
    answer.ends_with(4);
    assert_eq!(answer.json().last().unwrap()["error"]["kind"], "no_source");
}

/// The value and origin of one setting.
fn setting(answer: &Answer, name: &str) -> (Value, Value) {
    let rows = answer.ends_with(0).json();
    let row = rows.iter().find(|row| row["name"] == name).unwrap_or_else(|| panic!("no {name}"));
    (row["value"].clone(), row["origin"].clone())
}

#[test]
fn a_flag_beats_the_environment_and_the_environment_beats_the_file() {
    let home = Home::new();
    fs::create_dir_all(home.path().join("config/headwater")).unwrap();
    let file = "uplink = '1Mbit/s'\ndownlink = '1Mbit/s'\nlimit = '1Mbit/s'\ngentle = true\n";
    fs::write(home.path().join("config/headwater/config.toml"), file).unwrap();
    let mut command = home.command(&["config", "--json", "--limit", "3Mbit/s", "--gentle=false"]);
    command
        .env("HEADWATER_DOWNLINK", "2Mbit/s")
        .env("HEADWATER_LIMIT", "2Mbit/s")
        .env("HEADWATER_HOME", "/somewhere");
    let answer = Answer::of(command.output().unwrap());
    for (name, value, origin) in [
        ("uplink", Value::from("1Mbit/s"), "file"),
        ("downlink", "2Mbit/s".into(), "env"),
        ("limit", "3Mbit/s".into(), "flag"),
        ("gentle", false.into(), "flag"),
        ("state", "/somewhere".into(), "env"),
        ("dscp", 0.into(), "default"),
    ] {
        assert_eq!(setting(&answer, name), (value, origin.into()), "{name}");
    }
    assert_eq!(setting(&answer, "quota"), (Value::Null, Value::Null));
}

#[test]
fn what_config_prints_is_a_config_file_that_says_the_same() {
    let home = Home::new();
    let flags = [
        "--uplink",
        "123456789bit/s",
        "--rack",
        "r \"7\"=10Gbit/s",
        "--listen",
        ":9",
        "--timeout",
        "1.5s",
        "--quota",
        "3GiB",
    ];
    let first = home.run(&[&["config"] as &[&str], &flags].concat());
    fs::write(home.path().join("c.toml"), &first.ends_with(0).out).unwrap();
    let values = |answer: &Answer| -> Vec<(Value, Value)> {
        answer
            .ends_with(0)
            .json()
            .into_iter()
            .map(|row| (row["name"].clone(), row["value"].clone()))
            .collect()
    };
    let direct = home.run(&[&["config", "--json"] as &[&str], &flags].concat());
    let mut command = home.command(&["config", "--json=true"]);
    let by_variable =
        Answer::of(command.env("HEADWATER_CONFIG", home.path().join("c.toml")).output().unwrap());
    assert_eq!(values(&by_variable), values(&direct));
    assert_eq!(setting(&by_variable, "uplink"), ("123456789bit/s".into(), "file".into()));
}

#[test]
fn a_misspelt_setting_is_an_error_that_names_the_nearest_one() {
    let home = Home::new();
    fs::write(home.path().join("c.toml"), "up-link = '1Mbit/s'\n").unwrap();
    let answer = home.run(&["config", "--config", "c.toml"]);
    assert!(
        answer.ends_with(2).err.contains("'up-link'") && answer.err.contains("'uplink'"),
        "{}",
        answer.err
    );
    let answer = home.run(&["config", "--config", "missing.toml"]);
    assert!(answer.ends_with(2).err.contains("missing.toml"), "{}", answer.err);
    let answer = Answer::of(home.command(&["config"]).env("HEADWATER_MTU", "12").output().unwrap());
    assert!(answer.ends_with(2).err.contains("HEADWATER_MTU"), "{}", answer.err);
}

#[test]
fn the_controller_that_a_daemon_noted_is_used_by_the_others_but_a_flag_wins() {
    let home = Home::new();
    fs::write(home.path().join("controller-address"), "10.0.0.1:7000\n").unwrap();
    let answer = home.run(&["config", "--json", "--state", "."]);
    assert_eq!(setting(&answer, "controller"), ("10.0.0.1:7000".into(), "daemon".into()));
    let answer = home.run(&["config", "--json", "--state", ".", "--controller", "h"]);
    assert_eq!(setting(&answer, "controller"), ("h".into(), "flag".into()));
}

#[test]
fn shells_complete_commands_and_options() {
    let home = Home::new();
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let script = home.run(&["completions", shell]);
        assert!(script.ends_with(0).out.contains("max-sources") && script.err.is_empty(), "{shell}");
    }
    home.run(&["completions", "cmd.exe"]).ends_with(2);
}

#[test]
fn every_command_has_a_manual_page() {
    let home = Home::new();
    let answer = home.run(&["man", "pages/man1", "--json"]);
    let files = answer.ends_with(0).json()[0]["files"].as_array().unwrap().len();
    let names: Vec<_> = fs::read_dir(home.path().join("pages/man1"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    assert_eq!(names.len(), files);
    for name in [
        "headwater.1",
        "headwater-get.1",
        "headwater-debug-symbols.1",
        #[cfg(feature = "laboratory")]
        "headwater-demo.1",
        #[cfg(feature = "laboratory")]
        "headwater-emulate-exec.1",
    ] {
        assert!(names.iter().any(|n| n == name), "{name} of {names:?}");
    }
    let page = fs::read_to_string(home.path().join("pages/man1/headwater-get.1")).unwrap();
    assert!(page.contains(".TH") && page.contains("range"), "{page}");
    assert!(home.run(&["man"]).ends_with(0).out.contains("Exit codes"));
}

/// Bytes that are the same in every run and differ from block to block.
fn content(len: usize) -> Vec<u8> {
    (0..len as u64).map(|i| (i.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 56) as u8).collect()
}

#[test]
fn symbols_through_a_pipe_give_the_block_again_for_any_symbol_size() {
    let home = Home::new();
    let bytes = content((256 << 10) + 5000);
    fs::write(home.path().join("file"), &bytes).unwrap();
    // Not only multiples of 8, and one symbol larger than the last block.
    for (block, size, esis) in [
        ("0", "1376", "3-200"),
        ("1", "1001", "2-8"),
        ("1", "7", "100-900"),
        ("1", "9000", "5-7"),
        ("0", "65535", "1-6"),
    ] {
        let block_bytes = if block == "0" { &bytes[..256 << 10] } else { &bytes[256 << 10..] };
        let lines =
            home.run(&["debug", "symbols", "file", "--block", block, "--symbol-size", size, "--esi", esis]);
        let mut shuffled: Vec<_> = lines.ends_with(0).out.lines().collect();
        shuffled.reverse();
        let length = block_bytes.len().to_string();
        let decode = ["debug", "decode", "--block-bytes", &length, "--symbol-size", size];
        let decoded = home.feed(&decode, (shuffled.join("\n") + "\n").as_bytes());
        assert_eq!(decoded.ends_with(0).bytes, block_bytes, "block {block}, symbols of {size}");
    }
}

#[test]
fn bad_lines_are_named_and_nothing_is_written() {
    let home = Home::new();
    let decode = ["debug", "decode", "--block-bytes", "16", "--symbol-size", "8"];
    for (input, hint) in [
        ("0 0011223344556677\n1 00\n", "line 2: 2 hex digits"),
        ("0 001122334455667g\n", "line 1: 'g'"),
        ("16777216 0011223344556677\n", "line 1: '16777216'"),
        ("0 0011223344556677\n0 0011223344556678\n", "line 2: symbol 0 came before"),
        ("0 0011223344556677\n", "at least 1 more"),
        ("", "at least 2 more"),
    ] {
        let answer = home.feed(&decode, input.as_bytes());
        assert!(answer.ends_with(1).err.contains(hint), "{input:?}\n{}", answer.err);
        assert!(answer.bytes.is_empty(), "{input:?}");
    }
    let answer = home.feed(&["debug", "decode", "--block-bytes", "0", "--symbol-size", "8"], b"");
    answer.ends_with(2);
}

#[test]
fn symbols_that_are_not_there_are_exit_code_3() {
    let home = Home::new();
    fs::write(home.path().join("file"), content(100)).unwrap();
    let symbols = |file, block| {
        home.run(&["debug", "symbols", file, "--block", block, "--symbol-size", "8", "--esi", "0"])
    };
    assert!(symbols("file", "0").ends_with(0).out.starts_with("0 "));
    assert!(symbols("file", "1").ends_with(3).err.contains("no block 1"));
    assert!(symbols("missing", "0").ends_with(3).err.contains("missing"));
}

#[test]
fn symbols_with_json_are_an_object_per_line() {
    let home = Home::new();
    fs::write(home.path().join("file"), content(20)).unwrap();
    let flags = ["debug", "symbols", "file", "--block", "0", "--symbol-size", "8", "--esi", "1-2"];
    let plain = home.run(&flags);
    let lines = home.run(&[&flags as &[&str], &["--json"]].concat());
    let rows = lines.ends_with(0).json();
    let rebuilt: Vec<_> =
        rows.iter().map(|row| format!("{} {}", row["esi"], row["symbol"].as_str().unwrap())).collect();
    assert_eq!(rebuilt.join("\n") + "\n", plain.ends_with(0).out);
}

#[test]
fn a_reader_that_has_seen_enough_is_no_news() {
    let home = Home::new();
    let mut child =
        home.command(&["completions", "bash"]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert!(!String::from_utf8_lossy(&output.stderr).contains("panicked"));
}
