//! The bytes that a port's trimming leaves of a real packet are part of a scenario, and are as most switches have it if
//! nobody says.

use headwater_experiment::scenario::{Scenario, StaleOrRepaired, Trim};
use headwater_units::Bytes;

fn network(port: &str) -> Result<Scenario, String> {
    let fabric = "fabric = { kind = 'dumbbell', left = 1, right = 1, rate = '20 Mbit/s', delay = '1 ms' }";
    Scenario::of_network(&format!("{fabric}\nport = {{ when_full = 'trim'{port} }}"))
        .map_err(|it| it.to_string())
}

#[test]
fn unless_told_otherwise_128_bytes_are_left_and_udp_is_not_repaired() {
    let usual = Trim { to: Bytes::new(128), udp: StaleOrRepaired::Stale };
    let scenario = network("").unwrap();
    assert_eq!(scenario.port.trim, usual);
    // So a scenario of before is the same text, and its runs keep their names.
    assert!(!toml::to_string(&scenario).unwrap().contains("udp"));
}

#[test]
fn both_are_read_and_written() {
    let scenario = network(", trim = { to = '256 B', udp = 'repaired' }").unwrap();
    assert_eq!(scenario.port.trim, Trim { to: Bytes::new(256), udp: StaleOrRepaired::Repaired });
    let text = toml::to_string(&scenario).unwrap();
    assert_eq!(toml::from_str::<Scenario>(&text).unwrap(), scenario);
}

#[test]
fn less_than_the_shortest_frame_and_unknown_words_are_refused() {
    for (port, reason) in [
        (", trim = { to = '63 B' }", "port.trim.to"),
        (", trim = { to = '10 KB' }", "64 to 9216 bytes"),
        (", trim = { udp = 'mended' }", "repaired"),
        (", trim = { keep = '128 B' }", "keep"),
    ] {
        let error = network(port).unwrap_err();
        assert!(error.contains(reason), "{error}");
    }
}
