//! Storm of a seed with up to 200 receivers: a cast, others who join it while it runs, and hosts, cables and racks that fail.
//!
//! Sizes are skewed: half of the storms have fewer than 20 receivers, a seventh more than 100. Faults fall into the time that the cast
//! takes. Hosts do not lie and disks are sound: that is what small storms are for (`small`).

use std::fmt::Write;

use rand::Rng;
use rand::SeedableRng;
use rand::seq::SliceRandom;
use rand_chacha::ChaCha8Rng;

use super::small::{micros, pick};

/// Most hosts that want the object.
const MOST: f64 = 200.0;
/// Bytes of an object times the hosts that want it, so that a storm takes a fraction of a second.
const MOST_BYTES: u64 = 96 << 20;

/// The text of a storm.
pub(crate) fn text(seed: u64) -> String {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let wanting = rng.random_range(2_f64.ln()..(MOST + 1.0).ln()).exp() as u32;
    let holders = if rng.random_bool(0.4) { rng.random_range(2..=3) } else { 1 };
    let network = Network::draw(&mut rng, wanting + holders + 1);
    let parts = Parts::draw(&mut rng, &network, wanting, holders);
    let mut text = network.text(&mut rng);
    let faults = Faults { network: &network, parts: &parts, all: Vec::new() }.draw(&mut rng);
    if !faults.is_empty() {
        let _ = writeln!(text, "faults = [\n    {},\n]", faults.join(",\n    "));
    }
    text + &parts.text(&mut rng, &network)
}

/// A star, or racks on spines.
struct Network {
    /// Mbit/s of each host's cable.
    rate: u64,
    delay: &'static str,
    /// Number of leaves, hosts of each, and spines; one leaf: a star.
    shape: (u32, u32, u32),
}

impl Network {
    fn draw(rng: &mut ChaCha8Rng, hosts: u32) -> Network {
        let rate = pick(rng, &[20, 100, 1000]);
        let delay = pick(rng, &["1 us", "50 us", "500 us", "2 ms"]);
        let shape = match rng.random_bool(0.5) {
            true => (1, hosts, 0),
            false => {
                let leaves = rng.random_range(2..=8.min(hosts));
                (leaves, hosts.div_ceil(leaves), rng.random_range(1..=2))
            }
        };
        Network { rate, delay, shape }
    }

    fn hosts(&self) -> u32 {
        self.shape.0 * self.shape.1
    }

    fn text(&self, rng: &mut ChaCha8Rng) -> String {
        let Network { rate, delay, shape: (leaves, hosts, spines) } = self;
        let kind = match leaves {
            1 => format!("kind = 'big-switch', hosts = {hosts}"),
            _ => {
                // Racks whose cables carry what their hosts do, or as much as one or two of these.
                let fabric = if rng.random_bool(0.5) { rate * u64::from(*hosts) } else { *rate };
                format!(
                    "kind = 'leaf-spine', leaves = {leaves}, spines = {spines}, hosts_per_leaf = {hosts}, fabric_rate = '{fabric} Mbit/s'"
                )
            }
        };
        let mut text = format!("fabric = {{ {kind}, rate = '{rate} Mbit/s', delay = '{delay}' }}\n");
        if rng.random_bool(0.7) {
            let packets = pick(rng, &[40, 100, 200]);
            let _ = writeln!(
                text,
                "port = {{ queue = '{packets} packets', mark_threshold = '{} packets' }}",
                packets / 3
            );
            text += "nic = { queue = '1000 packets' }\n";
        }
        text
    }

    /// The switch of a host.
    fn switch_of(&self, host: u32) -> String {
        match self.shape {
            (1, ..) => "switch".to_owned(),
            (_, hosts, _) => format!("leaf{}", host / hosts),
        }
    }

    /// The links from a host, and towards it.
    fn cable_of(&self, host: u32) -> [String; 2] {
        let switch = self.switch_of(host);
        [format!("link h{host}-{switch}"), format!("link {switch}-h{host}")]
    }

    /// All links between a rack and the others, if there are racks.
    fn cables_of_rack(&self, leaf: u32) -> Vec<String> {
        let both = |spine| [format!("link leaf{leaf}-spine{spine}"), format!("link spine{spine}-leaf{leaf}")];
        (0..self.shape.2).flat_map(both).collect()
    }
}

/// Hosts that have the object, and hosts that want it.
struct Parts {
    bytes: u64,
    /// The first is the source.
    holders: Vec<u32>,
    by_cast: Vec<u32>,
    gets: Vec<u32>,
    /// Receivers of a second cast, of which some may be of the first as well.
    further: Vec<u32>,
    wish: &'static str,
    /// Seconds that one copy takes on a host's link.
    one_copy: f64,
}

impl Parts {
    fn draw(rng: &mut ChaCha8Rng, network: &Network, wanting: u32, holders: u32) -> Parts {
        let mut all: Vec<u32> = (0..network.hosts()).collect();
        all.shuffle(rng);
        let holders: Vec<u32> = all.drain(..holders as usize).collect();
        all.truncate(wanting as usize);
        let most = (MOST_BYTES / u64::from(wanting)).min(4 << 20);
        let bytes = match rng.random_range(0..8) {
            0 => rng.random_range(1..2000),
            1 => rng.random_range(2000..200_000),
            _ => rng.random_range(200_000..=most.max(400_000)),
        };
        let mut late = |rng: &mut ChaCha8Rng, p: f64| match rng.random_bool(p) {
            true => {
                let most = (all.len() - 1).min(1 + all.len() / 3);
                let some = rng.random_range(0..=most);
                all.drain(..some).collect()
            }
            false => Vec::new(),
        };
        let gets = late(rng, 0.5);
        let mut further: Vec<u32> = late(rng, 0.4);
        if !further.is_empty() && rng.random_bool(0.5) {
            let again = rng.random_range(1..=all.len());
            further.extend(&all[..again]);
            further.extend(gets.iter().take(2));
        }
        let widest = all.len().max(further.len());
        let mut wish = pick(
            rng,
            &[
                "overlay",
                "overlay",
                "overlay",
                "overlay",
                "overlay",
                "best",
                "best",
                "multicast",
                "trees",
                "unicast",
            ],
        );
        if wish == "multicast" && widest > 64 {
            wish = "overlay";
        }
        let one_copy = bytes as f64 * 8.0 / (network.rate as f64 * 1e6);
        Parts { bytes, holders, by_cast: all, gets, further, wish, one_copy }
    }

    fn wanting(&self) -> Vec<u32> {
        let mut all = [&self.by_cast[..], &self.gets, &self.further].concat();
        all.sort_unstable();
        all.dedup();
        all
    }

    /// Some time while the cast runs, more often than not; microseconds.
    fn during(&self, rng: &mut ChaCha8Rng) -> u64 {
        rng.random_range(0.0..(0.4 + 1.5 * self.one_copy) * 1e6) as u64
    }

    fn text(&self, rng: &mut ChaCha8Rng, network: &Network) -> String {
        let mut text = format!("\n[cast]\nobject = '{} B'\nsource = {}\n", self.bytes, self.holders[0]);
        if self.holders.len() > 1 {
            let _ = writeln!(text, "holders = {:?}", &self.holders[1..]);
        }
        let _ = writeln!(text, "receivers = {:?}\nwish = '{}'", self.by_cast, self.wish);
        let get = |host: &u32| {
            let by = pick(rng, &["", "", "", ", by = 'push'", ", by = 'pull'"]);
            format!("{{ host = {host}, at = '{} us'{by} }}", self.during(rng))
        };
        let gets: Vec<String> = self.gets.iter().map(get).collect();
        if !gets.is_empty() {
            let _ = writeln!(text, "gets = [\n    {},\n]", gets.join(",\n    "));
        }
        if !self.further.is_empty() {
            let at = self.during(rng);
            let _ = writeln!(text, "further = [{{ at = '{at} us', receivers = {:?} }}]", self.further);
        }
        let _ = writeln!(text, "control_delay = '{} us'", micros(rng, 10.0, 20e3));
        let _ = writeln!(text, "noticed = '{}'", pick(rng, &["500 ms", "8 s"]));
        let _ = writeln!(text, "prepare = '{}'", pick(rng, &["0 s", "100 us", "5 ms"]));
        let _ = writeln!(text, "decode = '{}'", pick(rng, &["0 s", "500 us", "20 ms"]));
        let is_small = self.by_cast.len().max(self.further.len()) <= 64;
        for (flag, may) in [
            ("states_rates", true),
            ("states_racks", network.shape.0 > 1),
            ("multicast", is_small),
            ("knows_network", true),
        ] {
            let p = if flag == "knows_network" { 0.1 } else { 0.4 };
            if rng.random_bool(p) && may {
                let _ = writeln!(text, "{flag} = true");
            }
        }
        text + "until = '400 s'\ndrain = '120 s'\n"
    }
}

/// Faults and their places. Deaths, slow links and cuts may last, all else passes.
struct Faults<'a> {
    network: &'a Network,
    parts: &'a Parts,
    all: Vec<String>,
}

impl Faults<'_> {
    fn draw(mut self, rng: &mut ChaCha8Rng) -> Vec<String> {
        let wanting = self.parts.wanting();
        self.hosts(rng, &wanting);
        self.links(rng, &wanting);
        let restarts = if rng.random_bool(0.25) { rng.random_range(1..=2) } else { 0 };
        for _ in 0..restarts {
            let forgets = rng.random_bool(0.3);
            let what = format!("kind = 'controller-restart', forgets = {forgets}");
            self.add(rng, &["controller".to_owned()], &what, None);
        }
        self.all
    }

    /// The same on all of these places at one time. `passes`: after which time, in microseconds.
    fn add(&mut self, rng: &mut ChaCha8Rng, on: &[String], what: &str, passes: Option<u64>) {
        let at = self.parts.during(rng);
        let until = passes.map(|after| format!(", until = '{} us'", at + after)).unwrap_or_default();
        let one = |on: &String| format!("{{ at = '{at} us'{until}, on = '{on}', what = {{ {what} }} }}");
        self.all.extend(on.iter().map(one));
    }

    fn hosts(&mut self, rng: &mut ChaCha8Rng, wanting: &[u32]) {
        let mut mortal = wanting.to_vec();
        mortal.shuffle(rng);
        let share = |rng: &mut ChaCha8Rng, p: f64, most: usize| match rng.random_bool(p) {
            true => rng.random_range(1..=most.max(1)),
            false => 0,
        };
        let most = if rng.random_bool(0.2) { wanting.len() / 2 } else { wanting.len() / 8 };
        for _ in 0..share(rng, 0.7, most) {
            let Some(host) = mortal.pop() else { break };
            let passes = rng.random_bool(0.4).then(|| micros(rng, 1e4, 8e6));
            self.add(rng, &[format!("host {host}")], "kind = 'host-kill'", passes);
        }
        for _ in 0..share(rng, 0.5, wanting.len() / 8) {
            let Some(host) = mortal.pop() else { break };
            let passes = Some(micros(rng, 1e4, 4e6));
            self.add(rng, &[format!("host {host}")], "kind = 'host-pause'", passes);
        }
        for _ in 0..share(rng, 0.3, wanting.len() / 16) {
            let Some(host) = mortal.pop() else { break };
            self.add(rng, &[format!("host {host}")], "kind = 'host-restart'", None);
        }
        for holder in self.parts.holders.clone() {
            let what = pick(rng, &["", "", "", "host-kill", "host-kill", "host-pause", "host-restart"]);
            let passes = (what != "host-kill" || rng.random_bool(0.5)).then(|| micros(rng, 1e4, 8e6));
            if !what.is_empty() {
                self.add(rng, &[format!("host {holder}")], &format!("kind = '{what}'"), passes);
            }
        }
    }

    fn links(&mut self, rng: &mut ChaCha8Rng, wanting: &[u32]) {
        let several = |rng: &mut ChaCha8Rng, p: f64| match rng.random_bool(p) {
            true => rng.random_range(1..=2 + wanting.len() / 16),
            false => 0,
        };
        for _ in 0..several(rng, 0.5) {
            let cable = self.network.cable_of(pick(rng, wanting));
            // More often the link by which a host passes on.
            let link = cable[usize::from(rng.random_bool(0.3))].clone();
            let rate = self.network.rate * 1000 / rng.random_range(2..=20);
            let passes = rng.random_bool(0.4).then(|| micros(rng, 1e4, 4e6));
            self.add(rng, &[link], &format!("kind = 'set-rate', rate = '{rate} kbit/s'"), passes);
        }
        for _ in 0..several(rng, 0.3) {
            let [from, towards] = self.network.cable_of(pick(rng, wanting));
            let on = if rng.random_bool(0.5) { vec![from, towards] } else { vec![from] };
            let passes = rng.random_bool(0.7).then(|| micros(rng, 1e4, 4e6));
            self.add(rng, &on, "kind = 'link-down'", passes);
        }
        for _ in 0..several(rng, 0.3) {
            let [from, towards] = self.network.cable_of(pick(rng, wanting));
            let what = match rng.random_range(0..3) {
                0 => format!("kind = 'random-loss', p = {:.3}", rng.random_range(0.0..0.1)),
                1 => format!("kind = 'duplicate', p = {:.3}", rng.random_range(0.0..0.2)),
                _ => format!("kind = 'reorder', p = {:.3}, by = '1 ms'", rng.random_range(0.0..0.5)),
            };
            let passes = Some(micros(rng, 1e4, 4e6));
            self.add(rng, &[from, towards], &what, passes);
        }
        let (leaves, _, _) = self.network.shape;
        if leaves > 1 && rng.random_bool(0.25) {
            let on = self.network.cables_of_rack(rng.random_range(0..leaves));
            let passes = rng.random_bool(0.7).then(|| micros(rng, 1e4, 4e6));
            self.add(rng, &on, "kind = 'link-down'", passes);
        }
    }
}
