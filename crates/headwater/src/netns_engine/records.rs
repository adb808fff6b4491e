//! What was seen, as the packet engine records it: from there on all engines are alike.

use std::collections::BTreeMap;
use std::path::PathBuf;

use headwater_fabric::LinkId;
use headwater_sim::packet::{Counts, FlowRow, Records, SampleRow, TaskRow};
use headwater_sim::run::Stage;
use headwater_switch::{FaultCounts, PortStats};
use headwater_units::{Duration, FlowId, Time};

use super::Trouble;
use super::cast::{Cast, Part};
use super::play::Played;
use super::timeline::{Series, Timeline, total, value_at};

/// What flows say of themselves at their source, as it is called in samples.
const AT_SOURCE: [&str; 6] = ["window", "rtt", "mark_fraction", "theta", "in_flight", "rate"];

/// A flow of a task: what its source and its receiver wrote, each under all ids that it had.
#[derive(Clone, Debug, Default)]
struct Flow {
    sent: Vec<Series>,
    received: Vec<Series>,
}

/// Reads all timelines and puts everything on one axis.
pub(super) fn records(
    stage: &Stage,
    cast: &Cast<'_>,
    played: &Played,
    written: &[(Part, usize, PathBuf)],
) -> Result<Records, Trouble> {
    let flows = flows(stage, cast, played, written)?;
    let mut records = Records { links: links(played), ..Records::default() };
    for (number, (task, flows)) in stage.tasks.iter().zip(&flows).enumerate() {
        let useful: Vec<f64> = flows.iter().map(|flow| sum(&flow.received, "useful")).collect();
        let all: f64 = useful.iter().sum();
        // What goes on in the background is nobody's task.
        let wanted = number < stage.tasks.len() - stage.background.len();
        records.tasks.extend(wanted.then(|| TaskRow {
            task: number as u32,
            name: task.name.clone(),
            arrival: task.at,
            finish: played.finished[number],
            failure: None,
            blocks_done: 0,
            blocks: None,
            closed: None,
            packets: task.packets,
            useful: all as u64,
            receiver: task.receiver,
            sources: task.sources.len() as u32,
        }));
        for (place, (flow, useful)) in flows.iter().zip(&useful).enumerate() {
            let increases = flow.received.iter().filter_map(|series| last_increase(series.get("useful")?));
            let starts =
                flow.sent.iter().flat_map(|series| series.values().filter_map(|v| Some(v.first()?.0)));
            records.flows.push(FlowRow {
                task: number as u32,
                flow: FlowId(place as u64),
                source: task.sources[place],
                start: starts.min().unwrap_or(task.at).max(task.at),
                last: increases.max(),
                useful: *useful as u64,
                share: useful / all.max(1.0),
                sent: sum(&flow.sent, "sent") as u64,
                lost: sum(&flow.sent, "lost") as u64,
                marked: sum(&flow.sent, "marked") as u64,
                timeouts: sum(&flow.sent, "timeouts") as u64,
                theta: flow.sent.iter().map(|series| total(series, "theta")).next_back().unwrap_or(0.0),
            });
        }
    }
    records.counts = counts(played, &records.links);
    if let Some(every) = stage.every {
        records.samples = samples(stage, played, &flows, every);
    }
    Ok(records)
}

/// By task and place of the source.
fn flows(
    stage: &Stage,
    cast: &Cast<'_>,
    played: &Played,
    written: &[(Part, usize, PathBuf)],
) -> Result<Vec<Vec<Flow>>, Trouble> {
    let mut flows: Vec<Vec<Flow>> =
        stage.tasks.iter().map(|task| vec![Flow::default(); task.sources.len()]).collect();
    let tasks: BTreeMap<&str, usize> =
        cast.objects.iter().enumerate().map(|(task, object)| (object.as_str(), task)).collect();
    // Which source a flow is of, its receiver does not say.
    let mut places: BTreeMap<String, usize> = BTreeMap::new();
    let mut received = Vec::new();
    for (part, host, path) in written {
        let timeline = Timeline::read(path, played.begin_ns)?;
        for ((object, flow), series) in timeline.flows {
            match part {
                Part::Serve => {
                    let Some(&task) = tasks.get(object.as_str()) else { continue };
                    let sources = &stage.tasks[task].sources;
                    let Some(place) = sources.iter().position(|source| *source as usize == *host) else {
                        continue;
                    };
                    places.insert(flow, place);
                    flows[task][place].sent.push(series);
                }
                Part::Get(task) => received.push((*task, flow, series)),
                Part::TcpSend(task, place) => flows[*task][*place].sent.push(series),
                Part::TcpReceive(task) => {
                    let place = object.rsplit_once('.').and_then(|(_, place)| place.parse::<usize>().ok());
                    if let Some(flow) = place.and_then(|place| flows[*task].get_mut(place)) {
                        flow.received.push(series);
                    }
                }
                Part::Controller => {}
            }
        }
    }
    for (task, flow, series) in received {
        if let Some(place) = places.get(&flow) {
            flows[task][*place].received.push(series);
        }
    }
    Ok(flows)
}

fn sum(all: &[Series], quantity: &str) -> f64 {
    all.iter().map(|series| total(series, quantity)).sum()
}

fn last_increase(values: &[(Time, f64)]) -> Option<Time> {
    let before = std::iter::once(0.0).chain(values.iter().map(|(_, value)| *value));
    values.iter().zip(before).filter(|((_, value), before)| value > before).map(|((at, _), _)| *at).last()
}

/// What each port did during the run.
fn links(played: &Played) -> Vec<PortStats> {
    let pairs = played.first.links.iter().zip(&played.last.links);
    let since = pairs.map(|(first, last)| {
        let (first, last) = (&first.port, &last.port);
        PortStats {
            frames_in: last.frames_in - first.frames_in,
            bytes_in: last.bytes_in - first.bytes_in,
            frames_out: last.frames_out - first.frames_out,
            bytes_out: last.bytes_out - first.bytes_out,
            dropped: last.dropped - first.dropped,
            bytes_dropped: last.bytes_dropped - first.bytes_dropped,
            marked: last.marked - first.marked,
            trimmed: last.trimmed - first.trimmed,
            bytes_trimmed: last.bytes_trimmed - first.bytes_trimmed,
            // Before the beginning nothing filled a queue.
            high_water: last.high_water,
        }
    });
    since.collect()
}

fn counts(played: &Played, links: &[PortStats]) -> Counts {
    let (first, last) = (played.first.counts.faults(), played.last.counts.faults());
    let add = |of: fn(&PortStats) -> u64| links.iter().map(of).sum();
    Counts {
        ended: played.ended,
        events: 0,
        hops: add(|port| port.frames_out),
        offered: add(|port| port.frames_in),
        drops: add(|port| port.dropped),
        marks: add(|port| port.marked),
        trims: add(|port| port.trimmed),
        queued: 0,
        faults: FaultCounts {
            lost: last.lost - first.lost,
            duplicated: last.duplicated - first.duplicated,
            reordered: last.reordered - first.reordered,
            unroutable: last.unroutable - first.unroutable,
        },
        ..Counts::default()
    }
}

/// Time series at multiples of `every`: means of queues and goodput since the one before, else the value in force.
fn samples(stage: &Stage, played: &Played, flows: &[Vec<Flow>], every: Duration) -> Vec<SampleRow> {
    let names: BTreeMap<LinkId, &str> =
        stage.queues.iter().map(|(name, link)| (*link, name.as_str())).collect();
    let mut queues: BTreeMap<(u64, LinkId), (f64, u32)> = BTreeMap::new();
    for (at, link, packets) in &played.looks {
        let (sum, count) = queues.entry((cell(*at, every), *link)).or_default();
        (*sum, *count) = (*sum + *packets as f64, *count + 1);
    }
    let mut rows = Vec::new();
    let cells = played.ended.as_nanos() / every.as_nanos().max(1);
    for number in 0..cells {
        let (before, at) = (Time::ZERO + every * number, Time::ZERO + every * (number + 1));
        let mut row = |entity: &str, quantity: &'static str, value: f64| {
            rows.push(SampleRow { at, entity: entity.to_owned(), quantity, value });
        };
        for (link, name) in &names {
            if let Some((sum, count)) = queues.get(&(number, *link)) {
                row(name, "queue", sum / f64::from(*count));
            }
        }
        for (task, flows) in flows.iter().enumerate() {
            let plan = &stage.tasks[task];
            let over = played.finished[task].or(played.stopped[task]).unwrap_or(played.ended);
            if at < plan.at || over < at {
                continue;
            }
            let useful = |at: Time| -> f64 {
                let all = flows.iter().flat_map(|flow| &flow.received);
                all.filter_map(|series| value_at(series.get("useful")?, at)).sum()
            };
            row(&plan.name, "goodput", (useful(at) - useful(before)) / every.as_secs_f64());
            for (place, flow) in flows.iter().enumerate() {
                let entity =
                    if flows.len() == 1 { plan.name.clone() } else { format!("{}.{place}", plan.name) };
                for quantity in AT_SOURCE {
                    let known = flow.sent.iter().rev().find_map(|series| value_at(series.get(quantity)?, at));
                    known.into_iter().for_each(|value| row(&entity, quantity, value));
                }
            }
        }
    }
    rows
}

fn cell(at: Time, every: Duration) -> u64 {
    at.as_nanos() / every.as_nanos().max(1)
}
