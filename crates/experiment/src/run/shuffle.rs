//! Jobs of MapReduce on the packet engine, and for engines under real packets.

use headwater_baseline as baseline;
use headwater_policy::coflow::Queues;
use headwater_policy::coflow::courier::Limits;
use headwater_sim::packet::shuffle::{
    self, Carrier, Classes, JobPlan, JobRow, Order, ShuffleOutcome, ShuffleSetup,
};
use headwater_switch::{ClassMap, Limit, PortConfig, QueueConfig, Service, Threshold};
use headwater_transport::courier::CourierConfig;
use headwater_units::{Bytes, Duration, Packets, Time};

use super::common::empty_tables;
use super::network::{self, NetworkSetup};
use super::{Progress, RunError, packet};
use crate::scenario::{Routing, Scenario, ScenarioError, Scheme, ShuffleOrder};
use crate::stats;
use crate::table::{MeasureRow, Tables, TaskRow};
use crate::workload::{Buffers, ShuffleText, Workload};

/// IPv4 and TCP in a frame of data, and Ethernet's header around them: what it carries is shorter by this.
const HEADERS: u64 = 40;
/// Django's stand-in looks every 100 ms at the trace's scale, as in the model of rates.
const DJANGO_PERIOD: Duration = Duration::from_millis(100);

/// Runs it.
pub(super) fn run(
    scenario: &Scenario,
    seed: u64,
    watch: &mut dyn FnMut(Progress),
) -> Result<Tables, RunError> {
    let setup = setup(scenario, seed)?;
    let (jobs, payload) = (setup.jobs.len(), setup.payload);
    let outcome = shuffle::run(setup, &mut |left, events| {
        watch(Progress { done: 1.0 - left as f64 / jobs.max(1) as f64, events });
    })?;
    Ok(tables(&outcome.jobs, payload, &measures(&outcome)))
}

/// A shuffle for engines outside the models.
pub struct ShuffleStage<'a> {
    /// Its constants.
    pub text: &'a ShuffleText,
    /// Scheduler that orders flows.
    pub order: ShuffleOrder,
    /// Whether agents carry them.
    pub courier: bool,
    /// By arrival.
    pub jobs: Vec<JobPlan>,
    payload: Bytes,
}

impl<'a> ShuffleStage<'a> {
    /// Shuffle of a scenario with this seed; none if it is no shuffle.
    pub fn new(scenario: &'a Scenario, seed: u64, hosts: u32) -> Option<Self> {
        match (&scenario.workload, scenario.scheme) {
            (Workload::Shuffle(text), Scheme::Shuffle { order, courier }) => Some(ShuffleStage {
                text,
                order,
                courier,
                jobs: text.plan(hosts, seed),
                payload: payload(scenario),
            }),
            _ => None,
        }
    }

    /// The tables that the packet engine writes, with these measures.
    pub fn tables(&self, jobs: &[JobRow], measures: &[(&str, f64)]) -> Tables {
        tables(jobs, self.payload, measures)
    }
}

fn payload(scenario: &Scenario) -> Bytes {
    Bytes::new(scenario.packet.data.get().saturating_sub(HEADERS).max(1))
}

fn setup(scenario: &Scenario, seed: u64) -> Result<ShuffleSetup, RunError> {
    let (Workload::Shuffle(text), Scheme::Shuffle { order, courier }) = (&scenario.workload, scenario.scheme)
    else {
        return Err(ScenarioError::NotShuffle(scenario.scheme).into());
    };
    let NetworkSetup { topology, routes, port, choice, changes } = network::setup(scenario, seed)?;
    if !changes.is_empty() || scenario.has_background() || scenario.carry_bytes {
        return Err(packet::unsupported("faults, background or true bytes beside a shuffle"));
    }
    let hosts = topology.hosts().len() as u32;
    text.check(hosts).map_err(ScenarioError::from)?;
    let classes = match order {
        ShuffleOrder::Sincronia => Classes { count: text.classes, restart_window: text.restart_window },
        ShuffleOrder::None | ShuffleOrder::Aalo | ShuffleOrder::DjangoLike => Classes::ONE,
    };
    let (buffers, class_mark) = (text.buffers, text.class_mark);
    let port = move |link, is_nic| with_classes(port(link, is_nic), classes.count, buffers, class_mark);
    let data = scenario.packet.data;
    Ok(ShuffleSetup {
        jobs: text.plan(hosts, seed),
        topology,
        routes,
        port: Box::new(port),
        choice,
        data,
        ack: scenario.packet.ack,
        payload: payload(scenario),
        jitter: network::jitter(scenario),
        delay: text.delay,
        sender: sender(scenario, text),
        slots: (text.slots > 0).then_some(text.slots),
        fetches: (text.fetches > 0).then_some(text.fetches),
        combiner: text.combiner,
        order: order_of(order, text),
        classes,
        carrier: if courier { agents(scenario, text) } else { Carrier::Flows },
        until: scenario.until.map(|until| Time::ZERO + until),
        seed,
    })
}

/// The same port with a queue for control and one for each class of data, if there are several.
fn with_classes(port: PortConfig, classes: u8, buffers: Buffers, mark: Option<Bytes>) -> PortConfig {
    if classes < 2 {
        return port;
    }
    let (room, of_all) = (port.queues[0].limit, port.queues[0].mark_threshold);
    let part = |limit| match limit {
        Limit::Bytes(bytes) => Limit::Bytes(Bytes::new(bytes.get() / u64::from(classes))),
        Limit::Packets(packets) => Limit::Packets(packets / u32::from(classes)),
    };
    let pooled = buffers == Buffers::Pool && room.is_some();
    let data = QueueConfig {
        limit: if pooled { None } else { room.map(part) },
        mark_threshold: mark.map(Threshold::Bytes).filter(|_| of_all.is_some()).or(of_all),
        shares_pool: pooled,
    };
    let control = QueueConfig { limit: room, mark_threshold: None, shares_pool: false };
    let mut queues = vec![control];
    queues.extend(std::iter::repeat_n(data, classes.into()));
    PortConfig {
        queues,
        classes: ClassMap::default(),
        limit: None,
        pool: if pooled { room } else { None },
        service: Service::Strict,
        ..port
    }
}

fn sender(scenario: &Scenario, text: &ShuffleText) -> baseline::SenderConfig {
    let transport = &scenario.transport;
    let dctcp = baseline::DctcpConfig { gain: transport.gain, ..baseline::DctcpConfig::default() };
    let config = baseline::SenderConfig::data_centre(baseline::Scheme::Dctcp(dctcp));
    let mut rtt = config.rtt;
    rtt.min_rto = transport.min_rto;
    rtt.initial_rto = text.first_timeout.max(transport.min_rto);
    rtt.granularity = text.tick;
    baseline::SenderConfig {
        initial_window: Packets::new(transport.initial_window),
        sack: transport.sack,
        rtt,
        ..config
    }
}

fn order_of(order: ShuffleOrder, text: &ShuffleText) -> Order {
    match order {
        ShuffleOrder::None => Order::None,
        ShuffleOrder::Sincronia if text.inverted => Order::SincroniaInverted,
        ShuffleOrder::Sincronia => Order::Sincronia,
        ShuffleOrder::Aalo => Order::Aalo(Queues {
            first: text.shrunk(text.first_queue),
            period: text.shrunk_time(text.sync),
            ..Queues::default()
        }),
        ShuffleOrder::DjangoLike => {
            Order::DjangoLike { flows: text.django_flows, period: text.shrunk_time(DJANGO_PERIOD) }
        }
    }
}

fn agents(scenario: &Scenario, text: &ShuffleText) -> Carrier {
    let bound = |number: u32| (number > 0).then_some(number);
    let block = text.block;
    let limits = Limits {
        max_num: bound(text.max_num).unwrap_or(u32::MAX),
        min_size: text.shrunk(text.min_size),
        max_per_pair: bound(text.max_per_pair),
        block,
    };
    let agent = CourierConfig { block, pipeline: text.pipeline, ..CourierConfig::paper() };
    let (pinned, per_class) = (scenario.routing == Routing::SourceSpray, text.lane_per_class);
    Carrier::Courier { limits, agent, pinned, per_class, merges: !text.unmerged }
}

/// Tasks are jobs: a job's name, its packets, and its completion time.
fn tables(jobs: &[JobRow], payload: Bytes, measures: &[(&str, f64)]) -> Tables {
    let mut tables = empty_tables();
    let mut times = Vec::new();
    for job in jobs {
        let arrival_s = job.arrival.as_secs_f64();
        let finish_s = job.finished.map_or(f64::NAN, Time::as_secs_f64);
        let packets = job.bytes.get().div_ceil(payload.get());
        times.push(finish_s - arrival_s);
        let row = TaskRow {
            task: format!("j{}", job.task),
            arrival_s,
            finish_s,
            tct_s: finish_s - arrival_s,
            normalised: f64::NAN,
            packets,
            receiver: 0,
            fanout: 0,
            timeouts: u64::from(job.last_timed_out),
            goodput: packets as f64 / (finish_s - arrival_s),
            slowdown: f64::NAN,
            trimmed: f64::NAN,
            unneeded: f64::NAN,
        };
        row.push(&mut tables.tasks);
    }
    let all = |q| stats::quantile(&times, q).unwrap_or(f64::NAN);
    let of_all = [
        ("cct_mean_s", stats::mean(&times).unwrap_or(f64::NAN)),
        ("cct_p50_s", all(0.5)),
        ("cct_p99_s", all(0.99)),
    ];
    for (name, value) in of_all.iter().chain(measures) {
        MeasureRow { name: (*name).to_owned(), value: *value }.push(&mut tables.measures);
    }
    tables
}

fn measures(outcome: &ShuffleOutcome) -> Vec<(&'static str, f64)> {
    // Jobs that stay on their hosts have no last flow.
    let crossing: Vec<_> = outcome.jobs.iter().filter(|job| job.bytes > Bytes::ZERO).collect();
    let timed_out = crossing.iter().filter(|job| job.last_timed_out).count();
    vec![
        ("loss_rate", outcome.dropped as f64 / outcome.sent.max(1) as f64),
        ("drops", outcome.dropped as f64),
        ("sent", outcome.sent as f64),
        ("resent", outcome.resent as f64),
        ("timeouts", outcome.timeouts as f64),
        ("last_timed_out", timed_out as f64 / crossing.len().max(1) as f64),
        ("queue_max", outcome.longest_queue as f64),
        ("flows", outcome.flows as f64),
        ("flows_max", outcome.most_flows as f64),
        ("connections", outcome.connections as f64),
        ("connections_max", outcome.most_busy as f64),
        ("lanes_max", outcome.most_lanes as f64),
        ("plans", outcome.plans as f64),
        ("events", outcome.events as f64),
    ]
}
