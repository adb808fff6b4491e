//! Storm of a seed: a text that anybody can run.

use std::fmt::Write;

use headwater_experiment::run::CastSpec;
use headwater_fabric::LinkId;
use rand::seq::SliceRandom;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

/// The text of a storm: a network, who wants what, and what goes wrong.
pub(crate) fn text(seed: u64) -> String {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let mut text = network(&mut rng);
    let parts = Parts::draw(&mut rng, hosts(&text));
    let faults = faults(&mut rng, &parts, &links(&text));
    if !faults.is_empty() {
        let _ = writeln!(text, "faults = [\n    {},\n]", faults.join(",\n    "));
    }
    text += &parts.text(&mut rng);
    text
}

pub(crate) fn pick<T: Copy>(rng: &mut ChaCha8Rng, from: &[T]) -> T {
    from[rng.random_range(0..from.len())]
}

/// Microseconds, as often few as many.
pub(crate) fn micros(rng: &mut ChaCha8Rng, from: f64, to: f64) -> u64 {
    rng.random_range(from.ln()..to.ln()).exp() as u64
}

fn network(rng: &mut ChaCha8Rng) -> String {
    let rate = pick(rng, &["20 Mbit/s", "100 Mbit/s", "1 Gbit/s"]);
    let delay = pick(rng, &["1 us", "50 us", "500 us", "2 ms"]);
    let kind = match rng.random_range(0..6) {
        0..=2 => format!("kind = 'big-switch', hosts = {}", rng.random_range(3..=8)),
        3 => {
            let [leaves, spines] = [rng.random_range(2..=3), rng.random_range(1..=3)];
            format!("kind = 'leaf-spine', leaves = {leaves}, spines = {spines}, hosts_per_leaf = 2")
        }
        4 => {
            let (n, k) = pick(rng, &[(2, 1), (2, 2), (3, 1)]);
            format!("kind = 'bcube', n = {n}, k = {k}")
        }
        _ => "kind = 'fat-tree', k = 4".to_owned(),
    };
    let mut text = format!("fabric = {{ {kind}, rate = '{rate}', delay = '{delay}' }}\n");
    if rng.random_bool(0.7) {
        let packets = pick(rng, &[10, 40, 200]);
        let fullness = if rng.random_bool(0.2) { ", when_full = 'trim'" } else { "" };
        let marks = packets / 3;
        let _ = writeln!(
            text,
            "port = {{ queue = '{packets} packets', mark_threshold = '{marks} packets'{fullness} }}"
        );
        // A host's own queue has an end, as Linux's has: what a liar makes a source send would stand in it for minutes after the lie.
        text += "nic = { queue = '1000 packets' }\n";
    }
    if rng.random_bool(0.5) {
        let routing = pick(rng, &["ecmp", "spray"]);
        let _ = writeln!(text, "routing = '{routing}'");
    }
    text
}

/// A cast of next to nothing on a network, to look at that.
fn spec(network: &str) -> CastSpec {
    CastSpec::of_text(&format!("{network}[cast]\nobject = '1 B'"))
        .unwrap_or_else(|error| panic!("{network}: {error}"))
}

fn hosts(network: &str) -> u32 {
    spec(network).network.topology().expect("it is one").hosts().len() as u32
}

/// The names of all links of a network.
fn links(network: &str) -> Vec<String> {
    let topology = spec(network).network.topology().expect("it is one");
    let fabric = topology.fabric();
    let name = |point| topology.name(point).expect("every point has a name");
    let links = (0..fabric.link_count() as u32).filter_map(|link| fabric.link(LinkId(link)));
    links.map(|link| format!("{}-{}", name(link.from), name(link.to))).collect()
}

/// Hosts that have the object, and hosts that want it.
struct Parts {
    /// The first is the source.
    holders: Vec<u32>,
    by_cast: Vec<u32>,
    gets: Vec<u32>,
    wish: &'static str,
}

impl Parts {
    fn draw(rng: &mut ChaCha8Rng, hosts: u32) -> Parts {
        let mut all: Vec<u32> = (0..hosts).collect();
        all.shuffle(rng);
        all.truncate(8);
        let (only_gets, several) = (rng.random_bool(0.35), rng.random_bool(0.4));
        let most = all.len() - 1;
        let holders = if several { rng.random_range(1..=3.min(most)) } else { 1 };
        let holders: Vec<u32> = all.drain(..holders).collect();
        let gets = match only_gets {
            true => rng.random_range(1..=all.len()),
            false if rng.random_bool(0.4) => rng.random_range(1..=all.len()).min(2),
            false => 0,
        };
        let gets: Vec<u32> = all.drain(..gets).collect();
        if only_gets {
            all.clear();
        }
        let wish = pick(rng, &["best", "overlay", "unicast", "multicast", "trees"]);
        Parts { holders, by_cast: all, gets, wish }
    }

    fn wanting(&self) -> Vec<u32> {
        self.by_cast.iter().chain(&self.gets).copied().collect()
    }

    fn text(&self, rng: &mut ChaCha8Rng) -> String {
        let bytes = match rng.random_range(0..8) {
            0 => rng.random_range(1..2000),
            1 => rng.random_range(2000..100_000),
            _ => rng.random_range(100_000..=3 << 20),
        };
        let mut text = format!("\n[cast]\nobject = '{bytes} B'\nsource = {}\n", self.holders[0]);
        if self.holders.len() > 1 {
            let _ = writeln!(text, "holders = {:?}", &self.holders[1..]);
        }
        let _ = writeln!(text, "receivers = {:?}", self.by_cast);
        if !self.by_cast.is_empty() {
            let _ = writeln!(text, "wish = '{}'", self.wish);
        }
        let close = rng.random_bool(0.5);
        let get = |host: &u32| {
            let at = if close { micros(rng, 1.0, 50e3) } else { micros(rng, 10.0, 3e6) };
            let by = pick(rng, &["", "", ", by = 'push'", ", by = 'pull'"]);
            format!("{{ host = {host}, at = '{at} us'{by} }}")
        };
        let gets: Vec<String> = self.gets.iter().map(get).collect();
        if !gets.is_empty() {
            let _ = writeln!(text, "gets = [\n    {},\n]", gets.join(",\n    "));
        }
        let _ = writeln!(text, "control_delay = '{} us'", micros(rng, 10.0, 20e3));
        let _ = writeln!(text, "noticed = '{}'", pick(rng, &["500 ms", "8 s"]));
        let _ = writeln!(text, "prepare = '{}'", pick(rng, &["0 s", "100 us", "5 ms"]));
        let _ = writeln!(text, "decode = '{}'", pick(rng, &["0 s", "500 us", "20 ms"]));
        for flag in ["states_rates", "multicast", "knows_network"] {
            if rng.random_bool(0.4) {
                let _ = writeln!(text, "{flag} = true");
            }
        }
        text + "until = '400 s'\ndrain = '120 s'\n"
    }
}

/// Faults and their places; all but the death of hosts pass.
fn faults(rng: &mut ChaCha8Rng, parts: &Parts, links: &[String]) -> Vec<String> {
    let mut faults = Vec::new();
    let mut add = |rng: &mut ChaCha8Rng, on: String, what: String, passes: bool| {
        let at = micros(rng, 100.0, 3e6);
        let until = at + micros(rng, 1e3, 4e6);
        let until = if passes { format!(", until = '{until} us'") } else { String::new() };
        faults.push(format!("{{ at = '{at} us'{until}, on = '{on}', what = {{ {what} }} }}"));
    };
    let several = |rng: &mut ChaCha8Rng, p: f64, most: u32| match rng.random_bool(p) {
        true => rng.random_range(1..=most),
        false => 0,
    };
    for _ in 0..several(rng, 0.6, 6) {
        let link = format!("link {}", links[rng.random_range(0..links.len())]);
        let [some, more] = [rng.random_range(0.0..0.2), rng.random_range(0.0..0.5)];
        let by = micros(rng, 1.0, 5e3);
        let what = match rng.random_range(0..5) {
            0 | 1 => format!("kind = 'random-loss', p = {some:.3}"),
            2 => format!("kind = 'reorder', p = {more:.3}, by = '{by} us'"),
            3 => format!("kind = 'duplicate', p = {some:.3}"),
            _ => "kind = 'link-down'".to_owned(),
        };
        add(rng, link, what, true);
    }
    if rng.random_bool(0.3) {
        // Few, and once: one packet goes out per timeout where all are lost, timeouts double, and patience ends after 30 s.
        let link = format!("link {}", links[rng.random_range(0..links.len())]);
        let what = format!("kind = 'drop-run', packets = {}", rng.random_range(1..=4));
        add(rng, link, what, false);
    }
    let wanting = parts.wanting();
    let somebody = |rng: &mut ChaCha8Rng| match rng.random_bool(0.7) {
        true => pick(rng, &wanting),
        false => pick(rng, &parts.holders),
    };
    for _ in 0..several(rng, 0.4, 2) {
        let host = format!("host {}", somebody(rng));
        let what = pick(rng, &["host-pause", "host-pause", "host-restart", "host-kill"]);
        let passes = what != "host-kill" || rng.random_bool(0.6);
        add(rng, host, format!("kind = '{what}'"), passes);
    }
    for _ in 0..several(rng, 0.3, 2) {
        let forgets = rng.random_bool(0.4);
        let what = format!("kind = 'controller-restart', forgets = {forgets}");
        add(rng, "controller".to_owned(), what, false);
    }
    for _ in 0..several(rng, 0.25, 2) {
        let host = format!("host {}", somebody(rng));
        let what = match rng.random_range(0..5) {
            0 | 1 => "kind = 'disk-full'".to_owned(),
            2 => "kind = 'disk-unreadable'".to_owned(),
            _ => format!("kind = 'disk-late', by = '{} us'", micros(rng, 100.0, 1e6)),
        };
        add(rng, host, what, true);
    }
    for _ in 0..several(rng, 0.3, 2) {
        let host = format!("host {}", somebody(rng));
        let p = rng.random_range(0.01..0.4);
        let what = match rng.random_bool(0.5) {
            true => format!("kind = 'corrupt', p = {p:.3}"),
            false => format!("kind = 'replay', p = {p:.3}, by = '{} us'", micros(rng, 1.0, 2e6)),
        };
        add(rng, host, what, true);
    }
    if rng.random_bool(0.3) {
        let host = format!("host {}", somebody(rng));
        let p = pick(rng, &[0.01, 0.1, 0.5, 1.0]);
        let what = if rng.random_bool(0.6) { "wrong-symbols" } else { "forged-feedback" };
        // From the beginning: what it does before that is honest.
        let at = if rng.random_bool(0.7) { 0 } else { micros(rng, 100.0, 1e6) };
        let until = at + micros(rng, 1e4, 2e7);
        faults.push(format!(
            "{{ at = '{at} us', until = '{until} us', on = '{host}', what = {{ kind = '{what}', p = {p} }} }}"
        ));
    }
    faults
}
