//! The concrete tasks of one seed.
//!
//! Arrivals, sizes, receivers and sources come from streams of their own, so that a change of the one (another load,
//! another fanout) leaves the others as they are; and the sources of a small fanout are the first of a larger one's.

use headwater_units::{Duration, Time};

use super::bounds::{count, rate};
use super::draw::{Draw, Stream};
use super::multicasts::Multicasts;
use super::requests::Requests;
use super::{
    Deadline, LoadOn, Network, Placement, Sizes, TaskFlows, TaskPlan, Workload, WorkloadError, group, plain,
    sessions,
};

impl Workload {
    /// The tasks of one seed, in the order of their arrival. The scheme has no part in it.
    ///
    /// # Errors
    /// [`WorkloadError`] if the network has too few hosts, or a number is out of range.
    pub fn plan(&self, network: &Network, seed: u64) -> Result<Vec<TaskPlan>, WorkloadError> {
        let mut tasks = match self {
            Workload::LongFlows { flows } => flows
                .iter()
                .map(|flow| TaskPlan {
                    name: flow.name.clone(),
                    at: Time::ZERO + flow.start,
                    packets: flow.packets,
                    sources: vec![flow.from],
                    receiver: flow.to,
                    further: Vec::new(),
                    relayed: false,
                    theta: flow.theta,
                    deadline: None,
                    flows: TaskFlows::Scheme,
                    stop: flow.stop.map(|stop| Time::ZERO + stop),
                    awaited: true,
                })
                .collect(),
            Workload::TaskList { tasks } => tasks
                .iter()
                .map(|task| TaskPlan {
                    packets: Some(task.packets),
                    further: task.further.clone(),
                    stop: task.stop.map(|stop| Time::ZERO + stop),
                    theta: task.theta,
                    deadline: task.deadline.map(Deadline::After),
                    flows: task.flows,
                    ..plain(task.name.clone(), Time::ZERO + task.at, task.sources.clone(), task.receiver)
                })
                .collect(),
            Workload::JoiningFlows { flows, source, .. } => self.joining(network, *flows, *source)?,
            Workload::Tasks { count, load, load_on, sizes, placement } => {
                poisson(network, seed, *count, (*load, *load_on), sizes, *placement)?
            }
            Workload::Redistribution { objects, replicas, fanout, sizes } => {
                redistribution(network, seed, *objects, *replicas, *fanout, sizes)?
            }
            &Workload::Requests { count, per_second, packets, replicas, access } => {
                Requests { count, per_second, packets, replicas, access }.plan(network, seed)?
            }
            Workload::Sessions { count, per_second, sizes, awaited } => {
                sessions::plan(network, seed, (*count, *per_second), sizes, *awaited)?
            }
            Workload::Multicasts { count, load, sizes, spread, deadlines, replaced } => {
                let (count, load, spread) = (*count, *load, *spread);
                let (deadlines, replaced) = (*deadlines, *replaced);
                Multicasts { count, load, sizes, spread, deadlines, replaced }.plan(network, seed)?
            }
            &Workload::Group { members, packets } => group::plan(network, seed, members, packets)?,
            Workload::Permutation { multiplier, offset, packets } => {
                permutation(network, *multiplier, *offset, *packets)?
            }
            &Workload::Incast { senders, drawn, receiver, packets } => {
                incast(network, senders, drawn.then_some(seed), receiver, packets)?
            }
            // Nothing is sent.
            Workload::Coding { .. } => Vec::new(),
            Workload::Cast(cast) => cast.plan(network.hosts)?,
            // Its jobs are no tasks of one receiver each.
            Workload::Shuffle(shuffle) => {
                shuffle.check(network.hosts)?;
                Vec::new()
            }
        };
        check(&tasks, network)?;
        // Stable: tasks of one moment stay in the order of the file.
        tasks.sort_by_key(|task| task.at);
        Ok(tasks)
    }

    /// Pairs of hosts, from and to: `share` of all hosts, drawn by the seed, each send to one other of them and receive from one
    /// other (SCDP §IV-A: "30% of the nodes run background long flows", "a permutation traffic matrix").
    pub(crate) fn permuted_pairs(network: &Network, share: f64, seed: u64) -> Vec<(u32, u32)> {
        let among = (f64::from(network.hosts) * share).round() as u32;
        let drawn = Draw::new(seed, Stream::Background).several(network.hosts, among);
        // Around a circle in random order, nobody sends to itself.
        let next = drawn.iter().cycle().skip(1);
        let pairs = drawn.iter().zip(next).map(|(from, to)| (*from, *to));
        pairs.filter(|(from, to)| from != to).collect()
    }

    /// Time that normalises completion times: mean size over the rate of a host, seconds (PPUSH §V-B); none where sizes
    /// are not drawn.
    ///
    /// # Errors
    /// [`WorkloadError::OutOfRange`] for sizes that are no range, or a host rate that is not positive.
    pub fn normaliser_s(&self, network: &Network) -> Result<Option<f64>, WorkloadError> {
        match self {
            Workload::Tasks { sizes, .. } | Workload::Redistribution { sizes, .. } => {
                Ok(Some(sizes.mean()? / rate(network)?))
            }
            _ => Ok(None),
        }
    }

    /// For [`Workload::JoiningFlows`]: after each join, how many flows there are and when the queue is watched.
    pub fn join_windows(&self) -> Vec<(u32, Time, Time)> {
        let Workload::JoiningFlows { flows, settle, measure, .. } = self else { return Vec::new() };
        let window = |n: u32| {
            let from = joined_at(n, *settle, *measure) + *settle;
            (n + 1, from, from + *measure)
        };
        (0..*flows).map(window).collect()
    }

    fn joining(&self, network: &Network, flows: u32, source: u32) -> Result<Vec<TaskPlan>, WorkloadError> {
        let Workload::JoiningFlows { settle, measure, .. } = self else { return Ok(Vec::new()) };
        count("flows", flows)?;
        let receivers: Vec<u32> = (0..network.hosts).filter(|host| *host != source).collect();
        if receivers.is_empty() {
            return Err(WorkloadError::TooFewHosts { what: "flows", needed: 2, there: network.hosts.into() });
        }
        let join = |n: u32| {
            let receiver = receivers[n as usize % receivers.len()];
            let at = joined_at(n, *settle, *measure);
            TaskPlan { packets: None, ..plain(format!("f{}", n + 1), at, vec![source], receiver) }
        };
        Ok((0..flows).map(join).collect())
    }
}

fn joined_at(n: u32, settle: Duration, measure: Duration) -> Time {
    Time::ZERO + (settle + measure) * u64::from(n)
}

fn poisson(
    network: &Network,
    seed: u64,
    tasks: u32,
    (load, load_on): (f64, LoadOn),
    sizes: &Sizes,
    placement: Placement,
) -> Result<Vec<TaskPlan>, WorkloadError> {
    count("count", tasks)?;
    if !(load > 0.0 && load <= 10.0) {
        return Err(WorkloadError::OutOfRange { what: "load", value: load, must: "above 0 and at most 10" });
    }
    let (drawn, mean) = (sizes.drawn()?, sizes.mean()?);
    let places = PlacedHosts::new(network, seed, placement)?;
    let links = match (load_on, placement) {
        (LoadOn::StorageUplinks, Placement::Storage { nodes, .. }) => f64::from(nodes),
        // Without storage nodes, every host is one.
        (LoadOn::StorageUplinks | LoadOn::HostLinks, _) => f64::from(network.hosts),
    };
    // Every packet of a task crosses one of these links (for host links: one up and one down).
    let tasks_per_second = load * links * rate(network)? / mean;
    let (mut arrivals, mut of_size) = (Draw::new(seed, Stream::Arrivals), Draw::new(seed, Stream::Sizes));
    let mut at = 0.0;
    let task = |n: u32| {
        at += arrivals.gap(tasks_per_second);
        let (sources, receiver) = places.of_task(seed, n);
        let when = Time::ZERO + Duration::from_secs_f64(at);
        TaskPlan {
            packets: Some(drawn.at(of_size.unit())),
            ..plain(format!("t{n}"), when, sources, receiver)
        }
    };
    Ok((0..tasks).map(task).collect())
}

/// Hosts that may send and hosts that may receive.
struct PlacedHosts {
    /// With storage nodes: those, and everybody else.
    storage: Option<(Vec<u32>, Vec<u32>)>,
    hosts: u32,
    fanout: u32,
}

impl PlacedHosts {
    fn new(network: &Network, seed: u64, placement: Placement) -> Result<Self, WorkloadError> {
        let hosts = network.hosts;
        let few = |what, needed: u32, there: u32| WorkloadError::TooFewHosts {
            what,
            needed: needed.into(),
            there: there.into(),
        };
        let mut draw = Draw::new(seed, Stream::Storage);
        match placement {
            Placement::RandomSources { fanout } => {
                count("fanout", fanout)?;
                if fanout >= hosts {
                    return Err(few("fanout (and one receiver)", fanout.saturating_add(1), hosts));
                }
                Ok(PlacedHosts { storage: None, hosts, fanout })
            }
            Placement::Storage { nodes, fanout, per_pod } => {
                count("fanout", fanout)?;
                if fanout > nodes {
                    return Err(few("fanout", fanout, nodes));
                }
                if nodes >= hosts {
                    return Err(few("nodes (and one receiver)", nodes.saturating_add(1), hosts));
                }
                let mut storage = match per_pod {
                    false => draw.several(hosts, nodes),
                    true => one_per_pod(network, nodes, &mut draw)?,
                };
                storage.sort_unstable();
                let others = (0..hosts).filter(|host| storage.binary_search(host).is_err()).collect();
                Ok(PlacedHosts { storage: Some((storage, others)), hosts, fanout })
            }
        }
    }

    /// Sources and receiver of the n-th task.
    fn of_task(&self, seed: u64, n: u32) -> (Vec<u32>, u32) {
        let mut draw = Draw::new(seed, Stream::Task(n));
        match &self.storage {
            Some((storage, others)) => {
                let receiver = others[draw.below(others.len() as u32) as usize];
                let places = draw.several(storage.len() as u32, self.fanout);
                (places.into_iter().map(|place| storage[place as usize]).collect(), receiver)
            }
            None => {
                let mut all = draw.several(self.hosts, self.fanout + 1);
                let receiver = all.remove(0);
                (all, receiver)
            }
        }
    }
}

fn one_per_pod(network: &Network, nodes: u32, draw: &mut Draw) -> Result<Vec<u32>, WorkloadError> {
    let mut pods = network.pods.clone();
    pods.sort_unstable();
    pods.dedup();
    if pods.len() != nodes as usize {
        return Err(WorkloadError::PerPod { pods: pods.len() as u32, nodes });
    }
    let one = |pod: &u32| {
        let members: Vec<u32> =
            (0..network.hosts).filter(|h| network.pods.get(*h as usize) == Some(pod)).collect();
        members.get(draw.below(members.len().max(1) as u32) as usize).copied()
    };
    let chosen: Option<Vec<u32>> = pods.iter().map(one).collect();
    chosen.ok_or(WorkloadError::PerPod { pods: pods.len() as u32, nodes })
}

fn redistribution(
    network: &Network,
    seed: u64,
    objects: u32,
    replicas: u32,
    fanout: u32,
    sizes: &Sizes,
) -> Result<Vec<TaskPlan>, WorkloadError> {
    count("objects", objects)?;
    count("fanout", fanout)?;
    let sites = network.hosts;
    // A survivor must be there to send, and a site without the object to receive.
    if replicas < 2 || replicas >= sites {
        let (value, must) = (f64::from(replicas), "at least 2 and less than the number of sites");
        return Err(WorkloadError::OutOfRange { what: "replicas", value, must });
    }
    let drawn = sizes.drawn()?;
    let mut of_size = Draw::new(seed, Stream::Sizes);
    let lost = Draw::new(seed, Stream::Storage).below(sites);
    let mut tasks = Vec::new();
    for n in 0..objects {
        let mut draw = Draw::new(seed, Stream::Task(n));
        let size = drawn.at(of_size.unit());
        let holders = draw.several(sites, replicas);
        if !holders.contains(&lost) {
            continue;
        }
        let elsewhere: Vec<u32> = (0..sites).filter(|site| !holders.contains(site)).collect();
        let receiver = elsewhere[draw.below(elsewhere.len() as u32) as usize];
        // In the order in which they were drawn, which is random.
        let sources = holders.into_iter().filter(|site| *site != lost).take(fanout as usize).collect();
        tasks.push(TaskPlan { packets: Some(size), ..plain(format!("o{n}"), Time::ZERO, sources, receiver) });
    }
    Ok(tasks)
}

fn permutation(
    network: &Network,
    multiplier: u32,
    offset: u32,
    packets: u64,
) -> Result<Vec<TaskPlan>, WorkloadError> {
    let hosts = network.hosts;
    let to = |i: u32| ((u64::from(multiplier) * u64::from(i) + u64::from(offset)) % u64::from(hosts)) as u32;
    let mut met: Vec<u32> = (0..hosts).map(to).collect();
    let to_itself = met.iter().enumerate().any(|(i, to)| i as u32 == *to);
    met.sort_unstable();
    met.dedup();
    if met.len() != hosts as usize || to_itself {
        return Err(WorkloadError::NoPermutation { multiplier, hosts });
    }
    let flow =
        |i: u32| TaskPlan { packets: Some(packets), ..plain(format!("f{i}"), Time::ZERO, vec![i], to(i)) };
    Ok((0..hosts).map(flow).collect())
}

fn incast(
    network: &Network,
    senders: u32,
    drawn: Option<u64>,
    receiver: u32,
    packets: u64,
) -> Result<Vec<TaskPlan>, WorkloadError> {
    count("senders", senders)?;
    if senders >= network.hosts {
        let (needed, there) = (u64::from(senders) + 1, network.hosts.into());
        return Err(WorkloadError::TooFewHosts { what: "senders (and the receiver)", needed, there });
    }
    let all = match drawn {
        Some(seed) => Draw::new(seed, Stream::Storage).several(network.hosts, network.hosts),
        None => (0..network.hosts).collect(),
    };
    let hosts = all.into_iter().filter(|host| *host != receiver).take(senders as usize);
    let flow = |host: u32| TaskPlan {
        packets: Some(packets),
        ..plain(format!("f{host}"), Time::ZERO, vec![host], receiver)
    };
    Ok(hosts.map(flow).collect())
}

fn check(tasks: &[TaskPlan], network: &Network) -> Result<(), WorkloadError> {
    let mut names = std::collections::BTreeSet::new();
    for task in tasks {
        if !names.insert(&task.name) {
            return Err(WorkloadError::NameTwice(task.name.clone()));
        }
        if task.packets == Some(0) {
            return Err(WorkloadError::OutOfRange { what: "packets", value: 0.0, must: "at least 1" });
        }
        if let Some(theta) = task.theta.filter(|theta| !(*theta > 0.0 && theta.is_finite())) {
            return Err(WorkloadError::OutOfRange { what: "theta", value: theta, must: "a positive number" });
        }
        if task.sources.is_empty() {
            return Err(WorkloadError::TooFewHosts { what: "sources", needed: 1, there: 0 });
        }
        let mut seen = std::collections::BTreeSet::new();
        let named = task.sources.iter().chain([&task.receiver]).chain(&task.further);
        for (i, host) in named.enumerate() {
            if *host >= network.hosts {
                let place = if i < task.sources.len() { "a source" } else { "a receiver" };
                let what = format!("{place} of task '{}'", task.name);
                return Err(WorkloadError::NoHost { what, host: *host, hosts: network.hosts });
            }
            if !seen.insert(*host) {
                return Err(WorkloadError::HostTwice { task: task.name.clone(), host: *host });
            }
        }
    }
    Ok(())
}
