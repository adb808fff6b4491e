//! Marks on real packets: a router's CE reaches the window through real sockets, and a path that clears the field is
//! noticed. The receiver's own namespace plays the router, by nftables in front of its IP layer.

#![allow(clippy::disallowed_methods, reason = "this test drives processes and waits for them")]

use std::io::{BufRead, BufReader};
use std::process::{Child, Stdio};

use headwater_testbed::netns::{Capability, HostSpec, Net, Spec};
use headwater_units::BitRate;
use serde_json::Value;

const SOURCE: usize = 0;
const RECEIVER: usize = 1;
const BYTES: usize = 8 << 20;

struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Fetches over a network whose receiver runs these nftables rules on what arrives; `None` where that cannot be.
fn get_through(rule: &str) -> Option<Value> {
    match Capability::probe() {
        Ok(Capability { loss: true, .. }) => {}
        Ok(_) => {
            headwater_skips::cannot("no nftables here");
            return None;
        }
        Err(why) => {
            headwater_skips::cannot(why);
            return None;
        }
    }
    let host = HostSpec { uplink: Some(BitRate::new(200_000_000)), ..HostSpec::default() };
    let net = Net::build(&Spec { hosts: vec![host, HostSpec::default()], ..Spec::default() }).unwrap();
    let hook = "type filter hook prerouting priority -300;";
    let rules = format!("table inet t {{\nchain c {{\n{hook}\nudp length > 1000 {rule}\n}}\n}}\n");
    let loaded = net.command(RECEIVER, "nft").unwrap().arg(&rules).output().unwrap();
    assert!(loaded.status.success(), "{}", String::from_utf8_lossy(&loaded.stderr));

    let folder = tempfile::tempdir().unwrap();
    let content: Vec<u8> = (0..BYTES).map(|i| (i * i / 7 % 251) as u8).collect();
    std::fs::write(folder.path().join("object.bin"), &content).unwrap();
    let binary = env!("CARGO_BIN_EXE_headwater");
    let address = format!("{}:7001", net.ipv4(SOURCE));
    let mut source = net.command(SOURCE, binary).unwrap();
    source.args(["serve", "object.bin", "--listen", &address, "--state", "s", "--json"]);
    let mut source =
        Killed(source.current_dir(&folder).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap());
    let mut ready = String::new();
    BufReader::new(source.0.stdout.take().unwrap()).read_line(&mut ready).unwrap();
    let mut get = net.command(RECEIVER, binary).unwrap();
    get.args(["get", "object.bin", "--from", &address, "-o", "out.bin", "--state", "r", "--json"]);
    let got = get.current_dir(&folder).output().unwrap();
    assert!(got.status.success(), "{}", String::from_utf8_lossy(&got.stderr));
    assert_eq!(std::fs::read(folder.path().join("out.bin")).unwrap(), content);
    Some(serde_json::from_slice(&got.stdout).unwrap())
}

#[test]
fn marks_of_a_router_are_what_a_flow_goes_by() {
    let Some(result) = get_through("numgen random mod 50 == 0 ip ecn set ce") else { return };
    println!("{result}");
    assert_eq!(result["mark_signal"], "ecn");
    assert_eq!(result["duplicate_share"].as_f64().map(|share| share < 0.01), Some(true));
}

#[test]
fn a_path_that_clears_the_field_falls_back_to_delay() {
    let Some(result) = get_through("ip ecn set not-ect") else { return };
    println!("{result}");
    assert_eq!(result["mark_signal"], "delay");
}
