//! Status of a controller, for people: nodes, objects, tasks, casts and coflows.

use std::fmt::Write;

use headwater_api::{
    CastLine, CoflowLine, NodeLine, ObjectLine, StandingLine, StatusReport, TaskLine, TaskSource,
};
use headwater_units::{BitRate, Bytes};

use super::{Table, or_dash, percent, short};
use crate::output::bar::span;
use crate::output::printable;
use crate::pages::{self, Part};

/// `headwater ls`.
pub(crate) fn objects(objects: &[ObjectLine]) -> String {
    if objects.is_empty() {
        return "no objects".to_owned();
    }
    let mut table = Table::new(&["ID", " SIZE", "NAME", "HOLDERS"]);
    for line in objects {
        let name = line.name.clone().unwrap_or_else(|| "-".to_owned());
        table.row([short(&line.object), line.bytes.to_string(), name, pages::holders(&line.holders)]);
    }
    table.render("")
}

/// `headwater status`.
pub(crate) fn status(report: &StatusReport, part: &Part) -> String {
    if report.controller.is_empty() {
        return format!("no controller is known, only this machine's store:\n\n{}", objects(&report.objects));
    }
    let mut text = format!("controller {}\n\n", printable(&report.controller));
    text.extend(pages::totals(&report.nodes).map(|totals| totals + "\n"));
    let (shown, others) = part.of(&report.nodes, "nodes");
    text += &nodes(shown);
    text.extend(others.map(|others| others + "\n"));
    text.push('\n');
    let (shown, others) = part.of(&report.objects, "objects");
    text += objects(shown).trim_end();
    text.push('\n');
    text.extend(others.map(|others| others + "\n"));
    text.push('\n');
    if report.tasks.is_empty() {
        text += "no running tasks\n";
    }
    text += &standing(&report.standing);
    text += &casts(&report.casts);
    let (shown, others) = part.of(&report.tasks, "tasks");
    for (i, line) in shown.iter().enumerate() {
        if i > 0 {
            text.push('\n');
        }
        text += &task(line);
    }
    text.extend(others.map(|others| format!("\n{others}\n")));
    let (shown, others) = part.of(&report.coflows, "coflows");
    text += &coflows(shown);
    text.extend(others.map(|others| others + "\n"));
    text
}

/// Coflows that agents fetch; nothing if there are none.
fn coflows(coflows: &[CoflowLine]) -> String {
    if coflows.is_empty() {
        return String::new();
    }
    let mut table = Table::new(&["APPLICATION", " COFLOW", " RANK", " HERE", " LEFT", "AT", "WAITS FOR"]);
    for it in coflows {
        table.row([
            it.application.clone(),
            it.coflow.to_string(),
            it.rank.map_or_else(|| "-".to_owned(), |rank| rank.to_string()),
            it.here.to_string(),
            it.left.map_or_else(|| "-".to_owned(), |left| left.to_string()),
            pages::holders(&it.receivers),
            pages::holders(&it.sources),
        ]);
    }
    format!("\n{}", table.render(""))
}

/// How a cast does at the rate that switches compute, and against its deadline.
fn rates(cast: &CastLine) -> String {
    let mut says = Vec::new();
    match (cast.paused_seconds, cast.rate) {
        (Some(paused), _) => {
            let behind = cast.behind.as_ref().map(|name| format!(" behind {}", printable(name)));
            says.push(format!("paused for {paused:.1} s{}", behind.unwrap_or_default()));
        }
        (None, Some(rate)) => says.push(format!("at {rate}")),
        (None, None) => {}
    }
    if let (Some(receiver), Some(offer)) = (&cast.least_receiver, cast.least_offer) {
        says.push(format!("{} offers least, {offer}", printable(receiver)));
    }
    let finish = cast.finish_seconds.map(|at| format!("expected at {at:.1} s"));
    match (finish, cast.deadline_seconds) {
        (Some(finish), Some(deadline)) => says.push(format!("{finish}, deadline at {deadline:.1} s")),
        (None, Some(deadline)) => says.push(format!("deadline at {deadline:.1} s")),
        (finish, None) => says.extend(finish),
    }
    says.extend(cast.unscheduled.clone());
    if says.is_empty() { String::new() } else { format!("  {}\n", says.join("; ")) }
}

/// Running casts; an empty text if there are none.
fn casts(casts: &[CastLine]) -> String {
    let mut text = String::new();
    for cast in casts {
        let what = cast.name.clone().unwrap_or_else(|| short(&cast.object));
        let _ = write!(
            text,
            "cast {}: {} of {} receivers have it after {:.1} s",
            printable(&what),
            cast.done,
            cast.receivers,
            cast.age_seconds
        );
        if cast.failed > 0 {
            let _ = write!(text, ", {} will not", cast.failed);
        }
        if cast.multicast_bytes > Bytes::ZERO {
            let _ = write!(text, "; {} of {} sent to the group", cast.multicast_bytes, cast.bytes);
        }
        let _ = writeln!(text, "; {}: {}", cast.via, printable(&cast.why));
        text += &rates(cast);
    }
    if !casts.is_empty() {
        text.push('\n');
    }
    text
}

/// Casts that go on for nodes that join later; nothing if there are none.
fn standing(casts: &[StandingLine]) -> String {
    let mut text = String::new();
    for cast in casts {
        let labels: Vec<String> = cast.labels.iter().map(|(key, value)| format!("{key}={value}")).collect();
        let whom = if labels.is_empty() {
            "each node".to_owned()
        } else {
            format!("each node with {}", labels.join(","))
        };
        let _ = writeln!(text, "standing cast {}: to {} that joins", printable(&cast.name), printable(&whom));
    }
    if !casts.is_empty() {
        text.push('\n');
    }
    text
}

fn nodes(nodes: &[NodeLine]) -> String {
    if nodes.is_empty() {
        return "no nodes\n".to_owned();
    }
    let mut table = Table::new(&[
        "NODE",
        "FINGERPRINT",
        "ADDRESS",
        " UPLINK",
        " DOWNLINK",
        "RACK",
        "LABELS",
        " OBJECTS",
        " MERGED",
        "STATE",
    ]);
    for node in nodes {
        table.row([
            node.name.clone(),
            short(&node.id),
            node.listen.clone(),
            or_dash(node.uplink),
            or_dash(node.downlink),
            or_dash(node.rack.as_deref()),
            or_dash(labels(node)),
            node.objects.to_string(),
            or_dash(merged(node)),
            if node.up { "up" } else { "down" }.to_owned(),
        ]);
    }
    let mut text = table.render("");
    for node in nodes {
        for warning in node.data_path.iter().flat_map(|path| &path.warnings) {
            let _ = writeln!(text, "{}: {}", printable(&node.name), printable(warning));
        }
    }
    text
}

/// Labels of a node, but for its rack.
fn labels(node: &NodeLine) -> Option<String> {
    let others = node.labels.iter().filter(|(key, _)| *key != "rack");
    let labels: Vec<String> = others.map(|(key, value)| format!("{key}={value}")).collect();
    (!labels.is_empty()).then(|| labels.join(","))
}

/// Datagrams per receive buffer, at a high rate if there was one.
fn merged(node: &NodeLine) -> Option<String> {
    let path = node.data_path.as_ref()?;
    let ratio = path.datagrams_per_buffer_at_speed.or(path.datagrams_per_buffer)?;
    Some(format!("{ratio:.1}"))
}

fn task(task: &TaskLine) -> String {
    let what = task.name.clone().unwrap_or_else(|| short(&task.object));
    let done = if task.bytes == Bytes::ZERO { 1.0 } else { task.done.get() as f64 / task.bytes.get() as f64 };
    let mut text = format!(
        "task {}: {} to {}, {} of {} ({}), {}",
        task.task,
        printable(&what),
        printable(&task.receiver),
        task.done,
        task.bytes,
        percent(done),
        task.rate
    );
    if let Some(eta) = task.eta {
        let _ = write!(text, ", {} left", span(eta));
    }
    let _ = writeln!(text, ", limited by {}", printable(&task.limited_by));
    if !task.sources.is_empty() {
        let headings = ["SOURCE", " RATE", " SHARE", " THETA", "MARKS", " RTT", " WINDOW", ""];
        let mut table = Table::new(&headings);
        for source in &task.sources {
            table.row(source_cells(source));
        }
        text += &table.render("  ");
    }
    text
}

fn source_cells(source: &TaskSource) -> [String; 8] {
    [
        source.node.clone(),
        source.rate.to_string(),
        percent(source.share),
        format!("{:.2}", source.theta),
        source.mark_signal.clone(),
        or_dash(source.rtt),
        format!("{:.1}", source.window),
        if source.starved { "waits for its disk" } else { "" }.to_owned(),
    ]
}

/// The rate of a whole list of tasks, for the title of `status --watch`.
pub(crate) fn total_rate(report: &StatusReport) -> BitRate {
    report.tasks.iter().map(|task| task.rate).sum()
}

#[cfg(test)]
mod tests {
    use headwater_api::DataPath;
    use headwater_units::{Duration, NodeId, ObjectId, TaskId};

    use super::*;

    fn object(name: &str, holders: &[&str]) -> ObjectLine {
        ObjectLine {
            object: ObjectId([0xab; 32]),
            name: Some(name.into()),
            bytes: Bytes::mib(256),
            holders: holders.iter().map(|&holder| holder.into()).collect(),
        }
    }

    #[test]
    fn objects_are_listed_in_columns() {
        assert_eq!(objects(&[]), "no objects");
        let text = objects(&[object("model", &["10.0.0.1:7001", "10.0.0.2:7001"]), object("m2", &[])]);
        assert_eq!(
            text,
            "ID                 SIZE  NAME   HOLDERS\n\
             abababababab  256.0 MiB  model  10.0.0.1:7001 10.0.0.2:7001\n\
             abababababab  256.0 MiB  m2     nobody\n"
        );
    }

    #[test]
    fn names_from_elsewhere_cannot_move_the_cursor() {
        assert!(!objects(&[object("\x1b[2Jmodel\n", &[])]).contains('\x1b'));
    }

    #[test]
    #[expect(clippy::too_many_lines, reason = "a page and what it is made of")]
    fn a_status_shows_each_source_of_each_task() {
        let source = TaskSource {
            node: "10.0.0.1:7001".into(),
            share: 0.2,
            rate: BitRate::new(98_200_000),
            theta: 1.25,
            mark_signal: "delay".into(),
            rtt: Some(Duration::from_micros(1500)),
            window: 12.3,
            starved: true,
        };
        let report = StatusReport {
            controller: "10.0.0.9:7000".into(),
            nodes: vec![NodeLine {
                name: "alpha".into(),
                id: NodeId([1; 32]),
                listen: "10.0.0.1:7001".into(),
                uplink: Some(BitRate::new(100_000_000)),
                downlink: None,
                rack: Some("r7".into()),
                labels: [("rack", "r7"), ("zone", "eu")].map(|(k, v)| (k.into(), v.into())).into(),
                keeps: true,
                objects: 3,
                up: false,
                data_path: Some(DataPath {
                    datagrams_per_buffer: Some(7.25),
                    datagrams_per_buffer_at_speed: Some(1.04),
                    warnings: vec!["nothing merges\x1b them".into()],
                    ..DataPath::default()
                }),
            }],
            objects: vec![object("model", &["10.0.0.1:7001"])],
            tasks: vec![TaskLine {
                task: TaskId(4),
                object: ObjectId([0xab; 32]),
                name: Some("model".into()),
                receiver: "beta".into(),
                bytes: Bytes::mib(256),
                done: Bytes::mib(64),
                rate: BitRate::new(98_200_000),
                eta: Some(Duration::from_secs(16)),
                limited_by: "path".into(),
                symbol_size: 1424,
                sources: vec![source],
            }],
            casts: vec![CastLine {
                name: Some("model".into()),
                bytes: Bytes::mib(256),
                via: "multicast".into(),
                why: "all hear it".into(),
                receivers: 4,
                done: 2,
                failed: 1,
                multicast_bytes: Bytes::mib(64),
                age_seconds: 1.25,
                paused_seconds: Some(0.5),
                behind: Some("urgent".into()),
                least_receiver: Some("10.0.0.3:7001".into()),
                least_offer: Some(BitRate::new(5_000_000)),
                deadline_seconds: Some(9.0),
                ..CastLine::default()
            }],
            standing: vec![StandingLine {
                name: "model".into(),
                labels: [("zone".into(), "eu".into())].into(),
            }],
            coflows: vec![CoflowLine {
                application: "sort".into(),
                coflow: 7,
                rank: Some(2),
                here: Bytes::mib(3),
                left: None,
                receivers: vec!["a".into(), "b".into()],
                sources: vec!["c".into()],
            }],
        };
        let text = status(&report, &Part::default());
        for part in [
            "controller 10.0.0.9:7000",
            "standing cast model: to each node with zone=eu that joins",
            "alpha  010101010101  10.0.0.1:7001  100.0 Mbit/s         -  r7    zone=eu        3     1.0  down",
            "\nalpha: nothing merges\u{fffd} them\n",
            "\ncast model: 2 of 4 receivers have it after 1.2 s, 1 will not; 64.0 MiB of 256.0 MiB sent to the group; multicast: all hear it\n  paused for 0.5 s behind urgent; 10.0.0.3:7001 offers least, 5.0 Mbit/s; deadline at 9.0 s\n\ntask",
            "task 4: model to beta, 64.0 MiB of 256.0 MiB (25.0 %), 98.2 Mbit/s, 16 s left, limited by path",
            "\nsort              7     2  3.0 MiB     -  a b  c\n",
            "  10.0.0.1:7001  98.2 Mbit/s  20.0 %   1.25  delay  1500.0 us    12.3  waits for its disk",
        ] {
            assert!(text.contains(part), "{part}\n{text}");
        }
        let alone = status(&StatusReport::default(), &Part::default());
        assert!(alone.starts_with("no controller") && alone.contains("no objects"), "{alone}");
        let empty = StatusReport { controller: "10.0.0.9:7000".into(), ..StatusReport::default() };
        let nothing = status(&empty, &Part::default());
        assert!(
            nothing.contains("no nodes")
                && nothing.contains("no objects")
                && nothing.contains("no running tasks")
        );
    }
}
