//! The receivers of a cast: nodes by their names, or by their labels.

use std::collections::BTreeMap;

use headwater_units::NodeId;

use crate::named_nodes::named_nodes;
use crate::requests::Receivers;
use crate::{AppError, NodeLine, StatusReport};

/// Maximum number of labels listed in the error when none matches.
const MOST_LISTED: usize = 12;

impl Receivers {
    /// Their ids, and what the user is to know of the choice; no ids: all.
    ///
    /// # Errors
    /// A name means no node, or several; no node carries the labels.
    pub(in super::super) fn ids(
        &self,
        report: &StatusReport,
    ) -> Result<(Vec<NodeId>, Option<String>), AppError> {
        match self {
            Receivers::All => Ok((Vec::new(), None)),
            Receivers::Named(to) => Ok((named(to, report)?, None)),
            Receivers::Labelled(labels) => labelled(labels, report),
        }
    }
}

fn named(to: &[String], report: &StatusReport) -> Result<Vec<NodeId>, AppError> {
    let mut ids = Vec::new();
    for text in to {
        let id = node_of(text, &report.nodes)?;
        if !ids.contains(&id) {
            ids.push(id);
        }
    }
    Ok(ids)
}

fn node_of(text: &str, nodes: &[NodeLine]) -> Result<NodeId, AppError> {
    // A node that came back as another one, with a new folder, has left its old line behind.
    match named_nodes(text, nodes, true)[..] {
        [node] => Ok(node.id),
        [] => Err(AppError::NotFound(format!(
            "the controller knows no node '{text}'; `headwater status` lists names, addresses and fingerprints"
        ))),
        [one, other, ..] => Err(AppError::Usage(format!(
            "'{text}' is more than one node ({} and {}): name it by its address or fingerprint",
            one.listen, other.listen
        ))),
    }
}

fn labelled(
    labels: &[(String, String)],
    report: &StatusReport,
) -> Result<(Vec<NodeId>, Option<String>), AppError> {
    let carries = |node: &&NodeLine| labels.iter().all(|(key, value)| node.labels.get(key) == Some(value));
    let wanted: Vec<String> = labels.iter().map(|(key, value)| format!("{key}={value}")).collect();
    let wanted = wanted.join(" and ");
    let carrying: Vec<&NodeLine> = report.nodes.iter().filter(carries).collect();
    if carrying.is_empty() {
        return Err(AppError::NotFound(format!("no node carries {wanted}; {}", known(&report.nodes))));
    }
    let here: Vec<&NodeLine> = carrying.iter().filter(|node| node.up && node.keeps).copied().collect();
    let away = carrying.iter().filter(|node| !node.up).count();
    if here.is_empty() {
        return Err(AppError::NotFound(format!(
            "no node that carries {wanted} can receive: of {}, {away} are not connected, and the others keep no objects; \
             `headwater status` lists them",
            carrying.len()
        )));
    }
    let missing = if away > 0 { format!(", {away} more are not connected") } else { String::new() };
    let note = format!("to {} nodes that carry {wanted}{missing}", here.len());
    Ok((here.into_iter().map(|node| node.id).collect(), Some(note)))
}

/// The labels that nodes carry, in a sentence.
fn known(nodes: &[NodeLine]) -> String {
    let mut counts: BTreeMap<(&str, &str), usize> = BTreeMap::new();
    for (key, value) in nodes.iter().flat_map(|node| &node.labels) {
        *counts.entry((key, value)).or_default() += 1;
    }
    if counts.is_empty() {
        return "none carries any label: start nodes with `headwater node --label KEY=VALUE`".to_owned();
    }
    let listed: Vec<String> = counts
        .iter()
        .take(MOST_LISTED)
        .map(|((key, value), nodes)| format!("{key}={value} ({nodes})"))
        .collect();
    let more = if counts.len() > MOST_LISTED { ", and more" } else { "" };
    format!("there are {}{more}", listed.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(n: u8, name: &str, labels: &[(&str, &str)]) -> NodeLine {
        let labels = labels.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
        NodeLine { labels, ..NodeLine::example(n, name) }
    }

    #[test]
    fn a_node_is_named_by_whatever_is_its_own() {
        let nodes = [line(0xa1, "red", &[]), line(0xa2, "blue", &[]), line(0xa3, "blue", &[])];
        let found = |text: &str| node_of(text, &nodes).map(|id| id.0[0]).map_err(|e| e.to_string());
        for text in ["red", "10.0.0.161:7001", "10.0.0.161", "a1a1a1a1", "A1A1A1A1A1"] {
            assert_eq!(found(text), Ok(0xa1), "{text}");
        }
        assert!(found("blue").unwrap_err().contains("10.0.0.162:7001 and 10.0.0.163:7001"));
        let gone = [NodeLine { up: false, ..line(0xa1, "red", &[]) }, line(0xa4, "red", &[])];
        assert_eq!(node_of("red", &gone).map(|id| id.0[0]).ok(), Some(0xa4), "the one that is here");
        assert_eq!(node_of("red", &gone[..1]).map(|id| id.0[0]).ok(), Some(0xa1));
        assert!(found("a1a1").unwrap_err().contains("knows no node 'a1a1'"), "too short to be told apart");
    }

    #[test]
    fn labels_choose_the_nodes_that_carry_all_of_them_and_can_receive() {
        let (r1, r2, eu) = (("rack", "r1"), ("rack", "r2"), ("zone", "eu"));
        let mut nodes = vec![
            line(1, "a", &[r1, eu]),
            line(2, "b", &[r1]),
            line(3, "c", &[r2, eu]),
            line(4, "d", &[r1, eu]),
        ];
        nodes[3].up = false;
        let report = StatusReport { nodes, ..StatusReport::default() };
        let chosen = |labels: &[(&str, &str)]| {
            let labels = labels.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
            let ids = Receivers::Labelled(labels).ids(&report);
            ids.map(|(ids, note)| (ids.iter().map(|id| id.0[0]).collect::<Vec<_>>(), note.unwrap()))
                .map_err(|error| error.to_string())
        };
        let (ids, note) = chosen(&[r1]).unwrap();
        assert_eq!(
            (ids, note.as_str()),
            (vec![1, 2], "to 2 nodes that carry rack=r1, 1 more are not connected")
        );
        assert_eq!(
            chosen(&[eu, r2]).unwrap(),
            (vec![3], "to 1 nodes that carry zone=eu and rack=r2".to_owned())
        );
        let error = chosen(&[r2, ("zone", "us")]).unwrap_err();
        assert!(error.contains("no node carries rack=r2 and zone=us; there are rack=r1 (3)"), "{error}");

        let nodes = report.nodes.iter().cloned().map(|node| NodeLine { keeps: false, ..node }).collect();
        let idle = StatusReport { nodes, ..StatusReport::default() };
        let wanted = Receivers::Labelled(vec![("rack".to_owned(), "r1".to_owned())]);
        let error = wanted.ids(&idle).unwrap_err().to_string();
        assert!(error.contains("of 3, 1 are not connected, and the others keep no objects"), "{error}");
        let error = wanted.ids(&StatusReport::default()).unwrap_err().to_string();
        assert!(error.contains("headwater node --label KEY=VALUE"), "{error}");
    }
}
