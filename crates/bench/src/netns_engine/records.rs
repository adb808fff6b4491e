//! Observations of a run, recorded as by the packet engine: from there on all engines are alike.

use std::collections::BTreeMap;
use std::path::PathBuf;

use headwater_experiment::run::Stage;
use headwater_fabric::LinkId;
use headwater_sim::packet::{Counts, FlowRow, Records, SampleRow, TaskRow};
use headwater_switch::{FaultCounts, PortStats};
use headwater_units::{Duration, FlowId, Time};

use super::deployment::Part;
use super::play::Played;
use super::timeline::{Series, Timeline, total, value_at};
use super::{Kind, Trouble};

/// Quantities that flows report at their source, by their names in samples.
const AT_SOURCE: [&str; 6] = ["window", "rtt", "mark_fraction", "theta", "in_flight", "rate"];

/// A flow of a task: what its source and its receiver wrote, each under all ids that it had.
#[derive(Clone, Debug, Default)]
struct Flow {
    sent: Vec<Series>,
    received: Vec<Series>,
}

/// Reads all timelines and puts everything on one axis; `objects` by task.
pub(super) fn records(
    stage: &Stage,
    kind: Kind<'_>,
    objects: &[String],
    played: &Played,
    written: &[(Part, usize, PathBuf)],
) -> Result<Records, Trouble> {
    let flows = flows(stage, objects, played, written)?;
    let mut records = Records { links: links(played), ..Records::default() };
    for (number, (task, flows)) in stage.tasks.iter().zip(&flows).enumerate() {
        let useful: Vec<f64> = flows.iter().map(|flow| sum(&flow.received, "useful")).collect();
        let all: f64 = useful.iter().sum();
        let start = |flow: &Flow| {
            let starts =
                flow.sent.iter().flat_map(|series| series.values().filter_map(|v| Some(v.first()?.0)));
            starts.min().unwrap_or(task.at).max(task.at)
        };
        // The models' groups are there when a task arrives.
        let arrival = match kind {
            Kind::Groups => flows.iter().map(start).min().unwrap_or(task.at),
            _ => task.at,
        };
        // Background flows are nobody's task.
        let wanted = number < stage.tasks.len() - stage.background.len();
        records.tasks.extend(wanted.then(|| TaskRow {
            task: number as u32,
            name: task.name.clone(),
            arrival,
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
            records.flows.push(FlowRow {
                task: number as u32,
                flow: FlowId(place as u64),
                source: task.sources[place],
                start: start(flow),
                last: increases.max(),
                useful: *useful as u64,
                share: useful / all.max(1.0),
                sent: sum(&flow.sent, "sent") as u64,
                lost: sum(&flow.sent, "lost") as u64,
                marked: sum(&flow.sent, "marked") as u64,
                // A receiver that pulls does not count them by source.
                timeouts: sum(&flow.sent, "timeouts") as u64
                    + if place == 0 { played.asked_again[number] } else { 0 },
                theta: flow.sent.iter().map(|series| total(series, "theta")).next_back().unwrap_or(0.0),
                ..FlowRow::default()
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
    objects: &[String],
    played: &Played,
    written: &[(Part, usize, PathBuf)],
) -> Result<Vec<Vec<Flow>>, Trouble> {
    let mut flows: Vec<Vec<Flow>> =
        stage.tasks.iter().map(|task| vec![Flow::default(); task.sources.len()]).collect();
    let tasks: BTreeMap<&str, usize> =
        objects.iter().enumerate().map(|(task, object)| (object.as_str(), task)).collect();
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
                Part::Node => {
                    let Some(&task) = tasks.get(object.as_str()) else { continue };
                    let (plan, flow) = (&stage.tasks[task], &mut flows[task][0]);
                    // A task is shown as its first receiver sees it.
                    if plan.sources[0] as usize == *host {
                        flow.sent.push(series);
                    } else if plan.receiver as usize == *host {
                        flow.received.push(series);
                    }
                }
                Part::TcpSend(task, place) => flows[*task][*place].sent.push(series),
                Part::TcpReceive(task) => {
                    let place = object.rsplit_once('.').and_then(|(_, place)| place.parse::<usize>().ok());
                    if let Some(flow) = place.and_then(|place| flows[*task].get_mut(place)) {
                        flow.received.push(series);
                    }
                }
                Part::Controller | Part::Asker | Part::Cast(_) => {}
                Part::Agent | Part::ShuffleServe | Part::ShuffleFetch(_) => {}
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

/// Counters of each port during the run.
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

#[cfg(test)]
mod tests {
    use headwater_experiment::scenario::Scenario;
    use headwater_testbed::soft_switch::{NotForwarded, Snapshot, Validity};

    use super::*;

    const SCENARIO: &str = r#"
        scheme = "ppush(1,1)"
        packet = { data = "1514 B" }
        until = "1 s"
        sample = { every = "100 ms", what = ["window", "goodput", "queue"], links = ["switch-h2"] }
        workload = { kind = "task-list", tasks = [{ name = "t", packets = 100, sources = [0, 1], receiver = 2 }] }
        fabric = { kind = "big-switch", hosts = 3, rate = "10 Mbit/s", delay = "1 ms" }
    "#;
    /// The beginning of the run by the clock of the timelines, ns.
    const BEGIN: u64 = 5_000_000_000;

    fn nothing_counted() -> Snapshot {
        let validity = Validity {
            sent: 0,
            p50: Duration::ZERO,
            p99: Duration::ZERO,
            p999: Duration::ZERO,
            max: Duration::ZERO,
            read_p99: Duration::ZERO,
            limit: Duration::ZERO,
            missed: 0,
            valid: true,
        };
        Snapshot {
            at: Time::ZERO,
            links: Vec::new(),
            counts: Default::default(),
            in_flight: 0,
            ports: Vec::new(),
            not_forwarded: [0; NotForwarded::ALL.len()],
            unsent: 0,
            buffers: 0,
            port_errors: 0,
            groups: 0,
            memberships: 0,
            groups_refused: 0,
            captured: None,
            validity,
        }
    }

    fn at(ms: u64) -> Time {
        Time::from_nanos(ms * 1_000_000)
    }

    /// A run of 300 ms in which the second source died and came back as another flow; lines are `ms flow quantity value`.
    fn recorded(task_finish: Option<Time>) -> Records {
        let scenario: Scenario = toml::from_str(SCENARIO).unwrap();
        let stage = Stage::new(&scenario, 1).unwrap();
        let folder = tempfile::tempdir().unwrap();
        let mut written = Vec::new();
        for (part, host, lines) in [
            (Part::Controller, 2, ""),
            (Part::Serve, 0, "0 a window 10;50 a sent 20;150 a window 12;250 a sent 60;250 a marked 4"),
            (Part::Serve, 1, "0 b window 3;100 b sent 15;100 b lost 2"),
            (Part::Serve, 1, "180 c window 7;250 c sent 30;250 c lost 1"),
            (
                Part::Get(0),
                2,
                "90 a useful 15;90 b useful 10;190 a useful 40;290 a useful 60;290 c useful 28;295 x useful 9",
            ),
        ] {
            let path = folder.path().join(format!("{}.csv", written.len()));
            let mut text = "t_ns,object,flow,quantity,value\n".to_owned();
            for line in lines.split(';').filter(|line| !line.is_empty()) {
                let (ms, rest) = line.split_once(' ').unwrap();
                let ns = BEGIN + ms.parse::<u64>().unwrap() * 1_000_000;
                text += &format!("{ns},ab,{}\n", rest.replace(' ', ","));
            }
            std::fs::write(&path, text).unwrap();
            written.push((part, host, path));
        }
        let link = stage.queues[0].1;
        let looks =
            [(10, 2), (60, 4), (110, 8), (150, 12), (190, 10)].map(|(ms, n)| (at(ms), link, n)).to_vec();
        let played = Played {
            begin_ns: BEGIN,
            ended: at(300),
            requested: Time::ZERO,
            repairs: Vec::new(),
            finished: vec![task_finish],
            stopped: vec![None],
            asked_again: vec![0],
            first: nothing_counted(),
            last: nothing_counted(),
            looks,
        };
        records(&stage, Kind::Tasks, &["ab".to_owned()], &played, &written).unwrap()
    }

    /// `ms: value`.
    fn series(records: &Records, entity: &str, quantity: &str) -> Vec<(u64, f64)> {
        let rows = records.samples.iter().filter(|row| row.entity == entity && row.quantity == quantity);
        rows.map(|row| (row.at.as_nanos() / 1_000_000, row.value)).collect()
    }

    #[test]
    fn a_flow_is_what_its_source_and_its_receiver_wrote_and_its_lives_are_added_up() {
        let records = recorded(Some(at(300)));
        let [first, second] = &records.flows[..] else { panic!("{:?}", records.flows) };
        assert_eq!((first.useful, first.sent, first.lost, first.marked), (60, 60, 0, 4));
        // Flow x is of no source that is known.
        assert_eq!((second.useful, second.sent, second.lost, second.marked), (38, 45, 3, 0));
        assert_eq!((first.source, second.source, second.start, second.last), (0, 1, at(0), Some(at(290))));
        assert!((second.share - 38.0 / 98.0).abs() < 1e-12);
        assert_eq!((records.tasks[0].useful, records.tasks[0].finish), (98, Some(at(300))));
    }

    #[test]
    fn samples_are_means_of_queues_differences_of_counts_and_values_in_force() {
        let records = recorded(Some(at(300)));
        assert_eq!(series(&records, "switch-h2", "queue"), [(100, 3.0), (200, 10.0)]);
        assert_eq!(series(&records, "t", "goodput"), [(100, 250.0), (200, 250.0), (300, 480.0)]);
        assert_eq!(series(&records, "t.0", "window"), [(100, 10.0), (200, 12.0), (300, 12.0)]);
        assert_eq!(series(&records, "t.1", "window"), [(100, 3.0), (200, 7.0), (300, 7.0)]);
    }

    #[test]
    fn a_task_that_is_over_has_no_more_samples() {
        let over = recorded(Some(at(210)));
        assert_eq!(series(&over, "t", "goodput").len(), 2);
        assert_eq!(series(&recorded(None), "t", "goodput").len(), 3);
    }
}
