//! Status of a controller, as the command line shows it.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use headwater_controller::{CastView, CoflowView, ControllerView, NodeView, TaskView};
use headwater_units::{BitRate, Bytes, Duration, NodeId, Rank};
use headwater_wire::{CastRoute, MarkSignal, NodeInfo, WhyUnicast, WhyUnscheduled, resolve_address};

use super::{CastLine, CoflowLine, NodeLine, ObjectLine, StandingLine, StatusReport, TaskLine, TaskSource};

/// Renders a view; `controller` is its own address, `here` stands for its machine. Counters of the data sockets are not
/// part of it.
pub(crate) fn report(view: &ControllerView, controller: String, here: SocketAddr) -> StatusReport {
    let nodes: BTreeMap<NodeId, &NodeView> = view.nodes.iter().map(|n| (n.info.node, n)).collect();
    let address = |node: &NodeId| nodes.get(node).map_or_else(|| node.short(), |n| address_of(&n.info, here));
    // An object that nobody holds any more, here or away, is only remembered.
    let objects = view.objects.iter().filter(|o| !(o.holders.is_empty() && o.away.is_empty()));
    let objects = objects.flat_map(|o| {
        let holders: Vec<String> = o.holders.iter().map(address).collect();
        let line =
            move |name| ObjectLine { object: o.object, name, bytes: o.bytes, holders: holders.clone() };
        match o.names.is_empty() {
            true => vec![line(None)],
            false => o.names.iter().cloned().map(Some).map(line).collect(),
        }
    });
    let mut held: BTreeMap<NodeId, u64> = BTreeMap::new();
    view.objects.iter().flat_map(|o| &o.holders).for_each(|node| *held.entry(*node).or_default() += 1);
    let mut objects: Vec<ObjectLine> = objects.collect();
    objects.sort_by(|a, b| (&a.name, a.object).cmp(&(&b.name, b.object)));
    let mut lines: Vec<NodeLine> = view
        .nodes
        .iter()
        .filter(|n| is_node(n))
        .map(|n| NodeLine {
            name: n.info.name.clone(),
            id: n.info.node,
            listen: address_of(&n.info, here),
            uplink: n.info.uplink,
            downlink: n.info.downlink,
            rack: n.info.rack_name().map(str::to_owned),
            labels: labels_of(n),
            keeps: n.keeps,
            objects: held.get(&n.info.node).copied().unwrap_or(0),
            up: n.here,
            data_path: None,
        })
        .collect();
    lines.sort_by(|a, b| (&a.name, &a.listen).cmp(&(&b.name, &b.listen)));
    let tasks = view.tasks.iter().map(|t| task_line(t, &nodes, &address)).collect();
    let casts = view.casts.iter().map(|cast| cast_line(cast, &view.casts, &address)).collect();
    let standing = view
        .standing
        .iter()
        .map(|cast| StandingLine { name: cast.name.clone(), labels: cast.labels.clone() });
    let coflows = view.coflows.iter().map(coflow_line).collect();
    StatusReport { controller, nodes: lines, objects, tasks, casts, standing: standing.collect(), coflows }
}

fn coflow_line(coflow: &CoflowView) -> CoflowLine {
    CoflowLine {
        application: coflow.name.application.clone(),
        coflow: coflow.name.number,
        rank: coflow.rank.map(Rank::get),
        here: coflow.here,
        left: coflow.left,
        receivers: coflow.receivers.clone(),
        sources: coflow.sources.clone(),
    }
}

/// Labels of a node, its rack too.
fn labels_of(node: &NodeView) -> BTreeMap<String, String> {
    let rack = node.info.rack_name().map(|rack| ("rack".to_owned(), rack.to_owned()));
    node.info.labels.clone().into_iter().chain(rack).collect()
}

fn cast_line(cast: &CastView, all: &[CastView], address: &dyn Fn(&NodeId) -> String) -> CastLine {
    let named = |number: u64| {
        let other = all.iter().find(|it| it.cast == number);
        other.map_or_else(|| number.to_string(), |it| it.name.clone())
    };
    let rates = cast.rates.as_ref();
    let undecided = || ("undecided", "receivers are being asked".to_owned());
    let (via, why) = route_in_words(cast.route).unwrap_or_else(undecided);
    let object = cast.object.to_string();
    CastLine {
        cast: cast.cast,
        name: Some(cast.name.clone()).filter(|name| !object.starts_with(name)),
        object,
        bytes: cast.bytes,
        source: address(&cast.source),
        via: via.to_owned(),
        why,
        receivers: cast.of,
        done: cast.done,
        failed: cast.failed,
        multicast_bytes: cast.to_group,
        age_seconds: cast.age.as_secs_f64(),
        rate: rates.map(|it| it.rate),
        least_receiver: rates.and_then(|it| it.least.map(|(node, _)| address(&node))),
        least_offer: rates.and_then(|it| it.least.map(|(_, offer)| offer)),
        paused_seconds: rates.and_then(|it| it.paused).map(Duration::as_secs_f64),
        behind: rates.and_then(|it| it.behind).map(named),
        finish_seconds: rates.and_then(|it| it.finish).map(Duration::as_secs_f64),
        deadline_seconds: cast.deadline.map(Duration::as_secs_f64),
        unscheduled: cast.unscheduled.map(unscheduled_in_words),
    }
}

/// A process that only fetches is no node to be listed, unless it has capacities to state.
fn is_node(node: &NodeView) -> bool {
    let NodeInfo { listen, uplink, downlink, rack, .. } = &node.info;
    listen.is_some() || uplink.is_some() || downlink.is_some() || rack.is_some()
}

/// Where a node listens, or where its data comes from if it only dials.
pub(crate) fn address_of(info: &NodeInfo, here: SocketAddr) -> String {
    let said = info.listen.or(info.data.first().copied());
    said.map_or_else(|| info.node.short(), |at| resolve_address(at, here).to_string())
}

fn task_line(
    task: &TaskView,
    nodes: &BTreeMap<NodeId, &NodeView>,
    address: &dyn Fn(&NodeId) -> String,
) -> TaskLine {
    let total: Bytes = task.flows.iter().map(|f| f.bytes).sum();
    let rate: BitRate = task.flows.iter().map(|f| f.rate).sum();
    let sources: Vec<TaskSource> = task
        .flows
        .iter()
        .map(|f| TaskSource {
            node: address(&f.node),
            share: f.bytes.get() as f64 / total.get().max(1) as f64,
            rate: f.rate,
            theta: f.theta.get(),
            mark_signal: signal(f.signal).to_owned(),
            rtt: f.rtt,
            window: f.window.get(),
            starved: f.starved,
        })
        .collect();
    let starved = !sources.is_empty() && sources.iter().all(|s| s.starved);
    TaskLine {
        task: task.task,
        object: task.object,
        name: Some(task.name.clone()).filter(|n| *n != task.object.to_string()),
        receiver: nodes.get(&task.receiver).map_or_else(|| task.receiver.short(), |n| n.info.name.clone()),
        bytes: task.bytes,
        done: task.bytes - task.remaining,
        rate,
        eta: (rate > BitRate::ZERO && task.remaining > Bytes::ZERO).then(|| task.remaining / rate),
        limited_by: if task.held_up {
            "disk".to_owned()
        } else if starved {
            "source".to_owned()
        } else {
            "path".to_owned()
        },
        symbol_size: task.symbol_size,
        sources,
    }
}

/// A congestion signal as it is printed.
pub(crate) fn signal(signal: MarkSignal) -> &'static str {
    match signal {
        MarkSignal::Unknown => "unknown",
        MarkSignal::Ecn => "ecn",
        MarkSignal::Delay => "delay",
    }
}

/// The word for it and the reason, once it is decided.
pub(crate) fn route_in_words(route: CastRoute) -> Option<(&'static str, String)> {
    Some(match route {
        CastRoute::Open => return None,
        CastRoute::Multicast { at, members, of } => {
            let who = if members == of {
                format!("all {of} receivers hear the group {at}")
            } else {
                format!("{members} of {of} receivers hear the group {at}, the others are served one by one")
            };
            ("multicast", format!("by multicast: {who}"))
        }
        CastRoute::Rates { at, members, of } => {
            let who = if members == of {
                format!("all {of} receivers hear the group {at}")
            } else {
                format!("{members} of {of} receivers hear the group {at}, the others are served one by one")
            };
            ("rates", format!("by multicast at the rate that switches compute: {who}"))
        }
        CastRoute::Trees { trees, members, of, hops } => {
            let which = match trees {
                1 => "a tree".to_owned(),
                _ => format!("{trees} trees that share no link"),
            };
            let who = if members == of {
                format!("{of} receivers")
            } else {
                format!("{members} of {of} receivers, the others are served one by one")
            };
            ("trees", format!("by {which}, at most {hops} hops to {who}"))
        }
        CastRoute::Unicast(why) => ("unicast", format!("one by one: {}", why_not(why))),
        CastRoute::Overlay { members, why, racks } => {
            let how = format!("{members} receivers pass on to each other what comes to them");
            let once = match racks {
                0 => String::new(),
                1 => ", once into a rack with several of them".to_owned(),
                _ => format!(", once into each of {racks} racks with several of them"),
            };
            ("overlay", format!("by overlay: {how}{once} ({})", why_not(why)))
        }
    })
}

/// Why a cast goes no longer at the rate that switches compute.
pub(crate) fn unscheduled_in_words(why: WhyUnscheduled) -> String {
    let seen = match why {
        WhyUnscheduled::NotStated => "nobody has said that switches compute rates here",
        WhyUnscheduled::Loss => "a receiver lost more than 2 % of what was sent",
        WhyUnscheduled::StandingQueue => "a queue stood on the way to a receiver for ten round trips",
    };
    format!("not every switch on the way computes rates, as it seems: {seen}; receivers pull instead")
}

/// Why there is no group.
fn why_not(why: WhyUnicast) -> String {
    match why {
        WhyUnicast::Wished => "as asked for".to_owned(),
        WhyUnicast::TooFew => "fewer than two receivers need it".to_owned(),
        WhyUnicast::TooMany => "there are more receivers than a group has members".to_owned(),
        WhyUnicast::NoGroups => "the controller has no group addresses for this network".to_owned(),
        WhyUnicast::Unheard { of } => {
            format!("multicast does not work here, fewer than two of {of} receivers heard a probe")
        }
        WhyUnicast::NoTrees => "no tree of the network leads to two receivers".to_owned(),
        WhyUnicast::Source => "the source could not open a group".to_owned(),
    }
}
