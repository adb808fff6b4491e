//! Views of a controller, here or elsewhere, and statistics of data sockets.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use headwater_control::Link;
use headwater_units::{NodeId, PathId};
use headwater_wire::resolve_address;

use super::links::no_controller;
use super::{Host, LOCAL};
use crate::query::{Answer, MOST_ADDRESSES, Query, ask};
use crate::report::{address_of, report};
use crate::{AppError, DataPath, StatusReport};

/// Of more nodes than this, `status` does not ask each how its data socket does: their metrics pages say that.
const MOST_ASKED: usize = 256;
/// Time that a status waits for the nodes' reports about their sockets.
const DATA_PATH_PATIENCE: Duration = Duration::from_millis(500);
/// Maximum wait for a controller to list the addresses of its nodes.
const LABELS_PATIENCE: Duration = Duration::from_millis(500);

impl Host {
    /// Status of the controller at `path`; [`LOCAL`] is this process's own.
    pub(crate) async fn report(&self, path: PathId) -> Result<StatusReport, AppError> {
        if path == LOCAL {
            return self.own_report(None).await.ok_or_else(no_controller);
        }
        self.ask_for_report(path, &Query::View).await
    }

    /// The same with how the nodes' data sockets do, of a controller elsewhere: each node is asked.
    pub(crate) async fn status(&self, path: PathId) -> Result<StatusReport, AppError> {
        self.ask_for_report(path, &Query::Status).await
    }

    /// Asks the peer at the other end of `path`.
    pub(crate) async fn query(&self, path: PathId, query: &Query) -> Result<Answer, AppError> {
        let link = self.link(path).ok_or_else(no_controller)?;
        Ok(ask(&link, query).await?)
    }

    async fn ask_for_report(&self, path: PathId, query: &Query) -> Result<StatusReport, AppError> {
        match self.query(path, query).await? {
            Answer::View { json } => serde_json::from_str(&json)
                .map_err(|e| AppError::Failed(format!("the controller's answer makes no sense: {e}"))),
            _ => Err(no_controller()),
        }
    }

    /// For an asker over a link, if there is one.
    pub(super) async fn own_report(&self, asking: Option<&Link>) -> Option<StatusReport> {
        let view = self.inner.controller.as_ref()?.view().await?;
        let here = SocketAddr::new(self.own_ip(asking), 0);
        let own = self.inner.listen.map(|listen| resolve_address(listen, here).to_string());
        Some(report(&view, own.unwrap_or_default(), here))
    }

    pub(super) async fn own_status(&self, asking: &Link) -> Option<StatusReport> {
        let mut report = self.own_report(Some(asking)).await?;
        if report.nodes.len() > MOST_ASKED {
            return Some(report);
        }
        let mut data_paths = self.data_paths().await;
        for node in &mut report.nodes {
            node.data_path = data_paths.remove(&node.id);
        }
        Some(report)
    }

    /// How the data sockets of this process and of all peers do; without those that do not say so soon.
    async fn data_paths(&self) -> BTreeMap<NodeId, DataPath> {
        let links: Vec<Link> = self.state().peers.values().map(|peer| peer.link.clone()).collect();
        let mut asked = tokio::task::JoinSet::new();
        for link in links {
            asked.spawn(async move {
                let answer = tokio::time::timeout(DATA_PATH_PATIENCE, ask(&link, &Query::DataPath)).await;
                match answer {
                    Ok(Ok(Answer::View { json })) => Some((link.peer(), serde_json::from_str(&json).ok()?)),
                    _ => None,
                }
            });
        }
        let mut answers: BTreeMap<_, _> = asked.join_all().await.into_iter().flatten().collect();
        if let Some(own) = self.data_path() {
            answers.insert(self.id(), own);
        }
        answers
    }

    pub(super) fn data_path(&self) -> Option<DataPath> {
        self.snapshot().map(|snapshot| DataPath::of(&snapshot))
    }

    /// Asks the controller at `path` where those of these nodes are reached that this process does not know. One that does not answer
    /// soon is not waited for: the addresses are for people to read, and nothing else needs them.
    pub(crate) async fn learn_labels(&self, path: PathId, nodes: impl IntoIterator<Item = NodeId>) {
        let unknown: Vec<NodeId> = nodes.into_iter().filter(|node| self.label(*node).is_none()).collect();
        for of in unknown.chunks(MOST_ADDRESSES) {
            let answer = self.addresses(path, of.to_vec());
            let Ok(Some(found)) = tokio::time::timeout(LABELS_PATIENCE, answer).await else { return };
            self.state().labels.learn(found);
        }
    }

    async fn addresses(&self, path: PathId, of: Vec<NodeId>) -> Option<Vec<(NodeId, String)>> {
        if path == LOCAL {
            let here = SocketAddr::new(self.own_ip(None), 0);
            let infos = self.inner.controller.as_ref()?.infos(of).await.into_iter();
            return Some(infos.map(|info| (info.node, address_of(&info, here))).collect());
        }
        match self.query(path, &Query::Addresses { of }).await.ok()? {
            Answer::Addresses(found) => Some(found),
            _ => None,
        }
    }

    /// Where nodes are reached, as far as it is known.
    pub(crate) fn labels(&self) -> Vec<(NodeId, String)> {
        self.state().labels.all().map(|(node, label)| (node, label.clone())).collect()
    }

    /// Where a node is reached, if it said so to this process.
    pub(crate) fn label(&self, node: NodeId) -> Option<String> {
        self.state().labels.get(node).cloned()
    }
}
