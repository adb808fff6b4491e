//! The part of long lists that a status shows: of a controller with ten thousand nodes a page, those that are asked for, and how many
//! there are.

use std::collections::BTreeSet;

use headwater_api::{CoflowLine, NodeLine, ObjectLine, StatusReport, TaskLine};

/// Lines of a page. Shorter lists are shown as they are.
pub(crate) const PAGE: usize = 40;
/// Addresses of the holders of an object that are shown.
const HOLDERS: usize = 8;

/// Part of a status to show.
#[derive(Clone, Debug)]
pub(crate) struct Part {
    /// This must occur in what is shown, if it is given.
    pub(crate) only: Option<String>,
    /// The page of each list, from 1 on.
    pub(crate) page: u32,
}

impl Default for Part {
    fn default() -> Self {
        Part { only: None, page: 1 }
    }
}

impl Part {
    fn has(&self, mut texts: impl Iterator<Item = String>) -> bool {
        self.only.as_ref().is_none_or(|only| texts.any(|text| text.contains(only)))
    }

    /// Those of a report that are asked for.
    pub(crate) fn select(&self, report: &StatusReport) -> StatusReport {
        let node = |node: &&NodeLine| {
            let labels = node.labels.iter().map(|(key, value)| format!("{key}={value}"));
            let rack = node.rack.iter().map(|rack| format!("rack={rack}"));
            let names = [node.name.clone(), node.listen.clone(), node.id.to_string()];
            self.has(names.into_iter().chain(labels).chain(rack))
        };
        let object = |object: &&ObjectLine| {
            self.has([object.object.to_string()].into_iter().chain(object.name.clone()))
        };
        let task = |task: &&TaskLine| {
            let names = [task.object.to_string(), task.receiver.clone()];
            self.has(names.into_iter().chain(task.name.clone()))
        };
        let coflow = |coflow: &&CoflowLine| {
            let hosts = coflow.receivers.iter().chain(&coflow.sources).cloned();
            self.has(hosts.chain([coflow.application.clone()]))
        };
        StatusReport {
            controller: report.controller.clone(),
            nodes: report.nodes.iter().filter(node).cloned().collect(),
            objects: report.objects.iter().filter(object).cloned().collect(),
            tasks: report.tasks.iter().filter(task).cloned().collect(),
            casts: report.casts.clone(),
            standing: report.standing.clone(),
            coflows: report.coflows.iter().filter(coflow).cloned().collect(),
        }
    }

    /// The lines of a list that are shown, and what to say of the others.
    pub(crate) fn of<'a, T>(&self, all: &'a [T], what: &str) -> (&'a [T], Option<String>) {
        if all.len() <= PAGE {
            return (all, None);
        }
        let pages = all.len().div_ceil(PAGE);
        let page = (self.page.max(1) as usize).min(pages);
        let (from, to) = ((page - 1) * PAGE, (page * PAGE).min(all.len()));
        let note = format!("{} to {to} of {} {what} (--page 1 to {pages}, --only TEXT)", from + 1, all.len());
        (&all[from..to], Some(note))
    }
}

/// How many nodes there are, if they are more than a page.
pub(crate) fn totals(nodes: &[NodeLine]) -> Option<String> {
    if nodes.len() <= PAGE {
        return None;
    }
    let up = nodes.iter().filter(|node| node.up).count();
    let racks: BTreeSet<&str> = nodes.iter().filter_map(|node| node.rack.as_deref()).collect();
    let of_racks = if racks.is_empty() { String::new() } else { format!(" in {} racks", racks.len()) };
    Some(format!("{} nodes{of_racks}: {up} up, {} down", nodes.len(), nodes.len() - up))
}

/// The holders of an object, or the hosts of a coflow, the first ones by name.
pub(crate) fn holders(holders: &[String]) -> String {
    match holders.len() {
        0 => "nobody".to_owned(),
        n if n > HOLDERS => format!("{} and {} more", holders[..HOLDERS].join(" "), n - HOLDERS),
        _ => holders.join(" "),
    }
}

#[cfg(test)]
mod tests {
    use headwater_units::NodeId;

    use super::*;

    fn report(nodes: u32) -> StatusReport {
        let node = |n: u32| NodeLine {
            name: format!("node-{n}"),
            id: NodeId([(n % 251) as u8; 32]),
            listen: format!("10.0.{}.{}:7001", n / 256, n % 256),
            uplink: None,
            downlink: None,
            rack: Some(format!("r{}", n / 32)),
            labels: [("zone".to_owned(), if n.is_multiple_of(2) { "eu" } else { "us" }.to_owned())].into(),
            keeps: true,
            objects: 1,
            up: !n.is_multiple_of(10),
            data_path: None,
        };
        StatusReport { nodes: (0..nodes).map(node).collect(), ..StatusReport::default() }
    }

    #[test]
    fn of_ten_thousand_nodes_a_page_is_shown_and_how_many_there_are() {
        let all = report(10_000);
        assert_eq!(totals(&all.nodes).unwrap(), "10000 nodes in 313 racks: 9000 up, 1000 down");
        let second = Part { only: None, page: 2 };
        let (shown, note) = second.of(&all.nodes, "nodes");
        assert_eq!((shown.len(), shown[0].name.as_str()), (40, "node-40"));
        assert_eq!(note.unwrap(), "41 to 80 of 10000 nodes (--page 1 to 250, --only TEXT)");
        let last = Part { only: None, page: 9_999 };
        assert_eq!(last.of(&all.nodes, "nodes").0.last().unwrap().name, "node-9999");
        let few = report(40);
        assert_eq!((totals(&few.nodes), Part::default().of(&few.nodes, "nodes").1), (None, None));
    }

    #[test]
    fn nodes_are_found_by_whatever_is_their_own() {
        let all = report(100);
        let found = |only: &str| {
            let part = Part { only: Some(only.to_owned()), page: 1 };
            part.select(&all).nodes.iter().map(|node| node.name.clone()).collect::<Vec<_>>()
        };
        assert_eq!(found("10.0.0.7:"), ["node-7"]);
        assert_eq!(found("rack=r3"), ["node-96", "node-97", "node-98", "node-99"]);
        assert_eq!((found("zone=eu").len(), found("node-9").len(), found("nothing").len()), (50, 11, 0));
    }

    #[test]
    fn an_object_of_many_says_how_many() {
        let all: Vec<String> = (0..10).map(|n| format!("h{n}")).collect();
        assert_eq!(holders(&all), "h0 h1 h2 h3 h4 h5 h6 h7 and 2 more");
        assert_eq!((holders(&all[..2]), holders(&[])), ("h0 h1".to_owned(), "nobody".to_owned()));
    }
}
