//! Whether a scenario can be run at all: its network can be built, its tasks planned, and what it names is there.

use std::collections::BTreeSet;

use headwater_fabric::{FabricError, HostId, LinkId, Topology};
use headwater_units::{Duration, Time};
use headwater_wire::Class;
use thiserror::Error;

use super::{
    Action, AllocatorSpec, Amount, ArrivingBackground, Machines, PamSpec, PermutedBackground, PortSpec,
    Scenario, Scheme, Service, Target, TransportSpec,
};
use crate::workload::{Network, TaskPlan, Workload, WorkloadError};

/// Why a scenario cannot be run.
#[derive(Clone, Debug, PartialEq, Error)]
#[non_exhaustive]
pub enum ScenarioError {
    /// The network cannot be built.
    #[error("fabric: {0}")]
    Fabric(#[from] FabricError),
    /// The tasks cannot be planned.
    #[error("workload: {0}")]
    Workload(#[from] WorkloadError),
    /// A link that is not there.
    #[error("{place}: there is no link '{name}'; write the two points it joins, as in '{example}'")]
    NoLink {
        /// Where it is named.
        place: String,
        /// As given.
        name: String,
        /// One that is there.
        example: String,
    },
    /// A host that is not there.
    #[error("{place}: there is no host {host}; there are {hosts}, numbered from 0")]
    NoHost {
        /// Where it is named.
        place: String,
        /// As given.
        host: u32,
        /// How many there are.
        hosts: u32,
    },
    /// A rack that is not there.
    #[error("{place}: there is no rack {rack}; racks are numbered from 0, and only some fabrics have them")]
    NoRack {
        /// Where it is named.
        place: String,
        /// As given.
        rack: u32,
    },
    /// A property of a host is asked of a link, or the other way round.
    #[error("{place}: this happens to a {needs}, not to a {given}")]
    WrongPlace {
        /// Where it is named.
        place: String,
        /// `link` or `host`.
        needs: &'static str,
        /// `link` or `host`.
        given: &'static str,
    },
    /// A number outside its range.
    #[error("{place} is {value}; it must be {must}")]
    OutOfRange {
        /// Which field.
        place: String,
        /// Its value.
        value: f64,
        /// Condition that it must meet.
        must: &'static str,
    },
    /// A constant beside machines that have their own.
    #[error("transport.{field} is {value} beside machines = \"product\", which have their own; leave it out")]
    NotOfProduct {
        /// Which field.
        field: String,
        /// As given.
        value: String,
    },
    /// Background of a kind that there is none of.
    #[error("{place} cannot be {scheme}; background is reno, cubic, bic, vegas, dctcp, dccp or ndp")]
    NoBackground {
        /// Which field.
        place: String,
        /// As given.
        scheme: Scheme,
    },
    /// Background that ends before it begins.
    #[error("background '{name}' stops at {stop}, which is not after its start at {start}")]
    BackgroundEmpty {
        /// The name.
        name: String,
        /// As given.
        start: Duration,
        /// As given.
        stop: Duration,
    },
    /// A class with two queues.
    #[error("{place}.classes names class {class} twice; each class has one queue")]
    ClassTwice {
        /// Which port.
        place: String,
        /// The class.
        class: u8,
    },
    /// A workload of casts without the scheme for it, or the other way round.
    #[error(
        "scheme {0} and this workload do not go together: `cast` is for workloads of kind \"cast\", and no other scheme is"
    )]
    NotCast(Scheme),
    /// A workload of shuffles without a scheme for it, or the other way round.
    #[error(
        "scheme {0} and this workload do not go together: hadoop, courier and those with a scheduler (aalo+courier) are for workloads of \
         kind \"shuffle\", and no other scheme is"
    )]
    NotShuffle(Scheme),
    /// Casts by other machines than the product's.
    #[error("the scheme cast runs the product's machines: write transport = {{ machines = \"product\" }}")]
    CastMachines,
    /// A flow without an end, in a run without one.
    #[error("task '{0}' has no end: give the run an `until`, or the flow `packets` or a `stop`")]
    Endless(String),
}

impl Scenario {
    /// Builds the network.
    ///
    /// # Errors
    /// [`FabricError`].
    pub fn topology(&self) -> Result<Topology, FabricError> {
        self.fabric.build(self.packet.data)
    }

    /// Whether it can be run: builds the network, plans the tasks of seed 1, and looks up every link and host.
    ///
    /// # Errors
    /// [`ScenarioError`], for the first thing that is wrong.
    pub fn check(&self) -> Result<(), ScenarioError> {
        self.check_numbers()?;
        let topology = self.topology()?;
        let network = Network::of(&topology, self.packet.data);
        let tasks = self.plan(&network, 1)?;
        if matches!(self.workload, Workload::Cast(_)) != (self.scheme == Scheme::Cast) {
            return Err(ScenarioError::NotCast(self.scheme));
        }
        if matches!(self.workload, Workload::Shuffle(_)) != self.scheme.is_shuffle() {
            return Err(ScenarioError::NotShuffle(self.scheme));
        }
        if self.scheme == Scheme::Cast && self.transport.machines != Machines::Product {
            return Err(ScenarioError::CastMachines);
        }
        if let Some(background) = &self.arriving_background {
            // The requests of the first moment stand for all of them.
            background.arriving().plan(&network, 1, Time::from_nanos(1_000_000))?;
        }
        let ends = self.until.is_some() || !self.workload.join_windows().is_empty();
        self.check_background(&topology, &tasks)?;
        let endless = tasks.iter().find(|task| !ends && task.packets.is_none() && task.stop.is_none());
        if let Some(task) = endless {
            return Err(ScenarioError::Endless(task.name.clone()));
        }
        for link in self.sample.iter().flat_map(|sample| &sample.links) {
            look_up(&topology, "sample.links", link)?;
        }
        self.check_faults(&topology)
    }

    /// Whether its network can be built and all that goes wrong in it is somewhere.
    ///
    /// # Errors
    /// [`ScenarioError`], for the first thing that is wrong.
    pub(super) fn check_network(&self) -> Result<(), ScenarioError> {
        self.check_numbers()?;
        self.check_faults(&self.topology()?)
    }

    /// Background of the scenario's own scheme.
    fn check_scheme_of(&self, place: &str) -> Result<(), ScenarioError> {
        match self.scheme.may_be_beside() || self.scheme == Scheme::Scdp {
            true => Ok(()),
            false => {
                let place = format!("{place} (of the scenario's scheme)");
                Err(ScenarioError::NoBackground { place, scheme: self.scheme })
            }
        }
    }

    fn check_background(&self, topology: &Topology, tasks: &[TaskPlan]) -> Result<(), ScenarioError> {
        let hosts = topology.hosts().len() as u32;
        let mut names: BTreeSet<&str> = tasks.iter().map(|task| task.name.as_str()).collect();
        for (i, flow) in self.background.iter().enumerate() {
            let place = |field: &str| format!("background.{i}.{field}");
            for (field, host) in [("from", flow.from), ("to", flow.to)] {
                if host >= hosts {
                    return Err(ScenarioError::NoHost { place: place(field), host, hosts });
                }
            }
            if flow.from == flow.to {
                let (task, host) = (flow.name.clone(), flow.from);
                return Err(WorkloadError::HostTwice { task, host }.into());
            }
            if !names.insert(&flow.name) {
                return Err(WorkloadError::NameTwice(flow.name.clone()).into());
            }
            if !flow.scheme.may_be_beside() {
                return Err(ScenarioError::NoBackground { place: place("scheme"), scheme: flow.scheme });
            }
            if let Some(stop) = flow.stop.filter(|stop| *stop <= flow.start) {
                let (name, start) = (flow.name.clone(), flow.start);
                return Err(ScenarioError::BackgroundEmpty { name, start, stop });
            }
        }
        Ok(())
    }

    fn check_faults(&self, topology: &Topology) -> Result<(), ScenarioError> {
        for (i, fault) in self.faults.iter().enumerate() {
            let place = format!("faults.{i}");
            let (needs, given) = (fault.what.place(), fault.on.kind());
            if needs != given {
                return Err(ScenarioError::WrongPlace { place, needs, given });
            }
            match &fault.on {
                Target::Controller => {}
                Target::Rack(rack) => {
                    let hosts = topology.hosts().len() as u32;
                    if !(0..hosts).any(|host| topology.rack_of(HostId(host)) == Some(*rack)) {
                        return Err(ScenarioError::NoRack { place, rack: *rack });
                    }
                }
                Target::Link(name) => {
                    look_up(topology, &place, name)?;
                }
                Target::Host(host) => {
                    let hosts = topology.hosts().len() as u32;
                    if *host >= hosts {
                        return Err(ScenarioError::NoHost { place, host: *host, hosts });
                    }
                }
            }
        }
        for (i, drawn) in self.drawn_faults.iter().enumerate() {
            let (needs, given) = (drawn.what.place(), "host");
            if needs != given {
                let place = format!("drawn_faults.{i}");
                return Err(ScenarioError::WrongPlace { place, needs, given });
            }
        }
        Ok(())
    }

    fn check_numbers(&self) -> Result<(), ScenarioError> {
        self.transport.check()?;
        let data = self.packet.data.get() as f64;
        within("packet.data", data, (1.0..=65_536.0).contains(&data), "1 to 65536 bytes")?;
        let ack = self.packet.ack.get() as f64;
        within("packet.ack", ack, (1.0..=65_536.0).contains(&ack), "1 to 65536 bytes")?;
        let failed = self.link_failure_rate;
        within("link_failure_rate", failed, (0.0..=1.0).contains(&failed), "a part of the cables, 0 to 1")?;
        if let Some(sample) = &self.sample {
            let every = sample.every.as_secs_f64();
            within("sample.every", every, every > 0.0, "more than no time")?;
        }
        if let Some(PermutedBackground { share, apart, .. }) = self.permuted_background {
            within("permuted_background.share", share, (0.0..=1.0).contains(&share), "a share, 0 to 1")?;
            let ok = !apart || self.workload.draws_hosts();
            within("permuted_background.apart", 1.0, ok, "left out where the workload states its hosts")?;
            self.check_scheme_of("permuted_background")?;
        }
        if let Some(ArrivingBackground { load, packets, access, .. }) = &self.arriving_background {
            let place = |field: &str| format!("arriving_background.{field}");
            within(&place("load"), *load, *load > 0.0 && *load <= 10.0, "above 0 and at most 10")?;
            within(&place("packets"), *packets as f64, *packets > 0, "at least 1")?;
            within(&place("access"), 0.0, !access.is_empty(), "a list of one or more")?;
            self.check_scheme_of("arriving_background")?;
        }
        if let Some(lead) = self.lead {
            let ok = self.workload.join_windows().is_empty();
            within("lead", lead.as_secs_f64(), ok, "left out where flows join one at a time")?;
        }
        self.port.check("port")?;
        self.nic.as_ref().map_or(Ok(()), |nic| nic.check("nic"))?;
        let check_probability = |place: String, what: &Action| match what.probability() {
            None => Ok(()),
            Some((p, most)) => {
                let must = if most < 1.0 { "a probability, 0 to 0.5" } else { "a probability, 0 to 1" };
                within(&format!("{place}.what.p"), p, (0.0..=most).contains(&p), must)
            }
        };
        for (i, fault) in self.faults.iter().enumerate() {
            check_probability(format!("faults.{i}"), &fault.what)?;
        }
        for (i, drawn) in self.drawn_faults.iter().enumerate() {
            let place = format!("drawn_faults.{i}");
            let share = drawn.share;
            within(
                &format!("{place}.share"),
                share,
                (0.0..=1.0).contains(&share),
                "a part of the hosts, 0 to 1",
            )?;
            let to = drawn.to.as_secs_f64();
            within(&format!("{place}.to"), to, drawn.from <= drawn.to, "no earlier than `from`")?;
            check_probability(place, &drawn.what)?;
        }
        Ok(())
    }
}

impl PortSpec {
    fn check(&self, place: &str) -> Result<(), ScenarioError> {
        let mut known = BTreeSet::new();
        for (i, class) in self.classes.iter().enumerate() {
            for &number in &class.of {
                let of = f64::from(number);
                let ok = usize::from(number) < Class::ALL.len();
                within(&format!("{place}.classes.{i}.of"), of, ok, "a class, 0 to 5")?;
                if !known.insert(number) {
                    return Err(ScenarioError::ClassTwice { place: place.to_owned(), class: number });
                }
            }
            let weight = f64::from(class.weight);
            within(&format!("{place}.classes.{i}.weight"), weight, class.weight > 0, "at least 1")?;
        }
        let left = self.trim.to.get() as f64;
        within(&format!("{place}.trim.to"), left, (64.0..=9216.0).contains(&left), "64 to 9216 bytes")?;
        if let Some(allocator) = &self.allocator {
            allocator.check(&format!("{place}.allocator"))?;
        }
        if self.service == Service::FirstAgainstRest {
            let classes = self.classes.len();
            let must = "two or more where service is first-against-rest";
            within(&format!("the number of {place}.classes"), classes as f64, classes > 1, must)?;
        }
        Ok(())
    }
}

impl AllocatorSpec {
    /// Whether every number is one that an allocator can have; what its times must be to each other, the port says.
    fn check(&self, place: &str) -> Result<(), ScenarioError> {
        let number =
            |field: &str, value: f64, ok: bool, must| within(&format!("{place}.{field}"), value, ok, must);
        let (idle, decay) = (self.idle_share, self.decay);
        number("idle_share", idle, (0.0..=1.0).contains(&idle), "a part of the room, 0 to 1")?;
        number("decay", decay, (0.001..=1.0).contains(&decay), "0.001 to 1")?;
        let shifts = f64::from(self.shifts);
        number("shifts", shifts, (1.0..=8.0).contains(&shifts), "1 to 8")?;
        let cells = self.filter_cells;
        let ok = cells.is_power_of_two() && (64..=1 << 24).contains(&cells);
        number("filter_cells", f64::from(cells), ok, "a power of two, 64 to 2^24")
    }
}

impl PamSpec {
    /// Whether every number is one that a machine can run with.
    fn check(&self) -> Result<(), ScenarioError> {
        let (gamma, tau) = (self.gamma, self.tau);
        within("transport.pam.gamma", gamma, (0.0..=1.0).contains(&gamma), "a part of the offer, 0 to 1")?;
        within("transport.pam.tau", tau, (0.0..=1.0).contains(&tau), "a probability, 0 to 1")?;
        for (field, span) in [
            ("probe_interval", self.probe_interval),
            ("first_probe", self.first_probe),
            ("longest_gap", self.longest_gap),
        ] {
            let (place, span) = (format!("transport.pam.{field}"), span.as_secs_f64());
            within(&place, span, span > 0.0 && span <= 60.0, "above 0 and at most 60 s")?;
        }
        let per = self.probe_per.get() as f64;
        within("transport.pam.probe_per", per, per >= 1.0, "at least 1 byte")
    }
}

impl TransportSpec {
    /// Whether every number is one that a machine can run with.
    ///
    /// # Errors
    /// [`ScenarioError::OutOfRange`], for the first one that is not; [`ScenarioError::NotOfProduct`].
    pub fn check(&self) -> Result<(), ScenarioError> {
        let (window, gain, floor) = (self.initial_window, self.gain, self.theta_floor);
        within("transport.initial_window", window, (1.0..=1e6).contains(&window), "1 to 10^6 packets")?;
        within("transport.gain", gain, gain > 0.0 && gain <= 1.0, "above 0 and at most 1")?;
        within("transport.theta_floor", floor, floor > 0.0 && floor <= 1.0, "above 0 and at most 1")?;
        if let Some(ceiling) = self.theta_ceiling {
            let ok = ceiling >= floor && ceiling.is_finite();
            within("transport.theta_ceiling", ceiling, ok, "a number not below theta_floor")?;
        }
        let (symbols, acks) = (f64::from(self.block_symbols), f64::from(self.ack_every));
        within(
            "transport.block_symbols",
            symbols,
            (1.0..=56_403.0).contains(&symbols),
            "1 to 56403 (RFC 6330)",
        )?;
        within("transport.ack_every", acks, acks >= 1.0, "at least 1")?;
        let pushed = f64::from(self.pull.window);
        within("transport.pull.window", pushed, (1.0..=1e6).contains(&pushed), "1 to 10^6 packets")?;
        let of_many = f64::from(self.pull.many_window);
        within(
            "transport.pull.many_window",
            of_many,
            (1.0..=4096.0).contains(&of_many),
            "1 to 4096 packets",
        )?;
        for (n, level) in self.pull.levels.iter().enumerate() {
            let place = format!("transport.pull.levels.{n}");
            let (least, most) = (Amount::Packets(1), Amount::Unlimited);
            let below = self.pull.levels[..n].last().copied().unwrap_or(least);
            let ok =
                of_one_kind(below, *level) != Some(false) && *level != Amount::Packets(0) && *level != most;
            within(&place, n as f64, ok, "a number of packets or bytes, not less than the level before")?;
        }
        let held_up = self.pull.detach_after.as_secs_f64();
        within("transport.pull.detach_after", held_up, held_up > 0.0, "more than no time")?;
        let reordering = f64::from(self.pull.reordering);
        within("transport.pull.reordering", reordering, reordering >= 1.0, "at least 1")?;
        let rto = self.pull.min_rto.as_secs_f64();
        within("transport.pull.min_rto", rto, rto > 0.0 && rto <= 60.0, "above 0 and at most 60 s")?;
        let headroom = self.pull.headroom.get() as f64;
        within("transport.pull.headroom", headroom, headroom <= 65_536.0, "at most 65536 bytes")?;
        let credit = f64::from(self.datacast.credit);
        within("transport.datacast.credit", credit, credit >= 1.0, "at least 1")?;
        self.pam.check()?;
        let peers = f64::from(self.swarm.peers);
        within("transport.swarm.peers", peers, peers >= 1.0, "at least 1")?;
        let block = self.swarm.block.get() as f64;
        within("transport.swarm.block", block, block >= 1.0, "at least 1 byte")?;
        let trees = self.datacast.trees.map_or(1.0, f64::from);
        within("transport.datacast.trees", trees, trees >= 1.0, "at least 1")?;
        self.check_machines()
    }

    /// The product's machines are what they are: nothing may be stated that they would not follow.
    fn check_machines(&self) -> Result<(), ScenarioError> {
        if self.machines == Machines::Paper {
            let stated = f64::from(u8::from(self.states_rates));
            let place = "transport.states_rates";
            return within(place, stated, self.states_rates, "left out, but beside machines = \"product\"");
        }
        let free = TransportSpec {
            machines: self.machines,
            states_rates: self.states_rates,
            class: self.class,
            block_symbols: self.block_symbols,
            decode: self.decode.clone(),
            ..TransportSpec::default()
        };
        let [stated, free] = [self, &free].map(|spec| {
            toml::Table::try_from(spec).expect("constants are numbers and words, which a table can hold")
        });
        match stated.into_iter().find(|(field, value)| free.get(field) != Some(value)) {
            Some((field, value)) => Err(ScenarioError::NotOfProduct { field, value: value.to_string() }),
            None => Ok(()),
        }
    }
}

/// Whether the second is not less than the first; `None` if they cannot be compared.
fn of_one_kind(first: Amount, second: Amount) -> Option<bool> {
    match (first, second) {
        (Amount::Packets(a), Amount::Packets(b)) => Some(a <= b),
        (Amount::Bytes(a), Amount::Bytes(b)) => Some(a <= b),
        _ => None,
    }
}

fn within(place: &str, value: f64, ok: bool, must: &'static str) -> Result<(), ScenarioError> {
    match ok {
        true => Ok(()),
        false => Err(ScenarioError::OutOfRange { place: place.to_owned(), value, must }),
    }
}

/// The link from one point to another, written `a-b`.
///
/// # Errors
/// [`ScenarioError::NoLink`].
pub(crate) fn look_up(topology: &Topology, place: &str, name: &str) -> Result<LinkId, ScenarioError> {
    link_named(topology, name).ok_or_else(|| ScenarioError::NoLink {
        place: place.to_owned(),
        name: name.to_owned(),
        example: link_name(topology, LinkId(0)).unwrap_or_default(),
    })
}

/// The link from one point to another, written `a-b`; the names may have hyphens of their own.
pub fn link_named(topology: &Topology, name: &str) -> Option<LinkId> {
    let cuts = name.match_indices('-').map(|(at, _)| at);
    cuts.filter_map(|at| topology.link_between(&name[..at], &name[at + 1..])).next()
}

/// How a link is written in files and tables: `a-b`, from a to b.
pub fn link_name(topology: &Topology, link: LinkId) -> Option<String> {
    let link = topology.fabric().link(link)?;
    Some(format!("{}-{}", topology.name(link.from)?, topology.name(link.to)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = r#"
        scheme = "dctcp"
        fabric = { kind = "graph", switches = ["s-1"], hosts = ["a on s-1, 1 Mpps, 1 us", "b on s-1, 1 Mpps, 1 us"] }
        sample = { every = "1 ms", what = ["queue"], links = ["s-1-b"] }
        until = "1 s"
        workload = { kind = "long-flows", flows = [{ name = "f", from = 0, to = 1 }] }
        faults = [{ on = "link a-s-1", what = { kind = "random-loss", p = 0.5 } }]
    "#;

    fn check(from: &str, to: &str) -> Result<(), ScenarioError> {
        assert!(from.is_empty() || GOOD.contains(from), "nothing to replace: {from}");
        toml::from_str::<Scenario>(&GOOD.replace(from, to)).unwrap().check()
    }

    #[test]
    fn links_are_found_by_the_points_they_join_even_with_hyphens() {
        assert_eq!(check("p = 0.5", "p = 0.5"), Ok(()));
        let topology = toml::from_str::<Scenario>(GOOD).unwrap().topology().unwrap();
        let link = link_named(&topology, "s-1-b").unwrap();
        assert_eq!(link_name(&topology, link).as_deref(), Some("s-1-b"));
    }

    #[test]
    fn beside_the_products_machines_only_what_they_follow_may_be_stated() {
        let stated = |constants: &str| {
            check("scheme =", &format!("transport = {{ machines = 'product'{constants} }}\nscheme ="))
        };
        assert_eq!(stated(""), Ok(()));
        assert_eq!(stated(", class = 'gentle', block_symbols = 30, decode = { overhead = 0 }"), Ok(()));
        assert_eq!(stated(", states_rates = false"), Ok(()));
        let alone = check("scheme =", "transport = { states_rates = false }\nscheme =");
        assert!(matches!(alone, Err(ScenarioError::OutOfRange { .. })), "{alone:?}");
        for (constant, field, value) in [
            ("assignment = 'listed'", "assignment", "\"listed\""),
            ("initial_window = 10.0", "initial_window", "10.0"),
            ("theta_ceiling = 9.0", "theta_ceiling", "9.0"),
            ("feedback_every = '5 ms'", "feedback_every", "\"5 ms\""),
            ("loss_response = 'guarded'", "loss_response", "\"guarded\""),
        ] {
            let error = stated(&format!(", {constant}")).unwrap_err();
            let (field, value) = (field.to_owned(), value.to_owned());
            assert_eq!(error, ScenarioError::NotOfProduct { field, value }, "{constant}");
        }
        let error = stated(", gain = 2.0").unwrap_err();
        assert!(matches!(error, ScenarioError::OutOfRange { .. }), "{error}");
    }

    #[test]
    fn what_is_not_there_is_named_with_an_example() {
        let error = check("s-1-b", "b-a").unwrap_err().to_string();
        assert!(
            error.contains("sample.links") && error.contains("'b-a'") && error.contains("'a-s-1'"),
            "{error}"
        );
        assert!(matches!(check("to = 1", "to = 2"), Err(ScenarioError::Workload(_))));
        assert!(matches!(check("1 Mpps", "0 bit/s"), Err(ScenarioError::Fabric(_))));
        assert!(matches!(check("p = 0.5", "p = 1.5"), Err(ScenarioError::OutOfRange { .. })));
        assert!(matches!(check("link a-s-1", "host 0"), Err(ScenarioError::WrongPlace { .. })));
        assert!(matches!(check("until = \"1 s\"", ""), Err(ScenarioError::Endless(_))));
        let background = |flow: &str| check("scheme =", &format!("background = [{flow}]\nscheme ="));
        assert_eq!(background("{ name = 'tcp', from = 0, to = 1, scheme = 'cubic' }"), Ok(()));
        for (flow, named) in [
            ("{ name = 'tcp', from = 0, to = 2, scheme = 'reno' }", "background.0.to"),
            ("{ name = 'tcp', from = 1, to = 1, scheme = 'reno' }", "host 1 twice"),
            ("{ name = 'f', from = 0, to = 1, scheme = 'reno' }", "two tasks are called 'f'"),
            (
                "{ name = 'tcp', from = 0, to = 1, scheme = 'ppush(1,1)' }",
                "reno, cubic, bic, vegas, dctcp, dccp or ndp",
            ),
            ("{ name = 'tcp', from = 0, to = 1, scheme = 'reno', start = '2 s', stop = '1 s' }", "not after"),
        ] {
            let error = background(flow).unwrap_err().to_string();
            assert!(error.contains(named), "{flow}: {error}");
        }
        let host = check(
            "{ on = \"link a-s-1\", what = { kind = \"random-loss\", p = 0.5 } }",
            "{ on = \"host 9\", what = { kind = \"host-pause\" } }",
        );
        assert!(matches!(host, Err(ScenarioError::NoHost { host: 9, .. })));
    }
}
