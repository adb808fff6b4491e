//! Links to other processes: accepted, dialled, redialled, served and closed.

use std::sync::atomic::Ordering;
use std::time::Duration;

use headwater_control::{Backoff, Expect, GOING_AWAY, Link};
use headwater_node as node;
use headwater_units::{self as units, NodeId, PathId};
use headwater_wire::{Control, ToController, network_of};
use tokio::sync::mpsc::Receiver;
use tokio::task::JoinSet;

use super::dialling::{Dialling, ending};
use super::{Host, Peer};
use crate::AppError;
use crate::outbox::Outbox;
use crate::query::{Answer, Query, Role, ask};
use headwater_driver::control_path;

/// Maximum time for queued messages to arrive and connections to close when the process ends.
const LAST_WORDS: Duration = Duration::from_millis(250);
const CLOSING: Duration = Duration::from_millis(5);
/// Time for the controller to write down its state: a disk may be slow.
const WRITING_DOWN: Duration = Duration::from_secs(2);
/// Maximum time for a peer to read the answer to its request.
const ANSWER_WITHIN: Duration = Duration::from_secs(30);
/// Delay between attempts at the addresses of a name (RFC 8305 §5: 250 ms).
const NEXT_ADDRESS: Duration = Duration::from_millis(250);
/// Maximum wait for a dialled peer to state its role; a peer that is too busy is taken for what it should be.
const ROLE_PATIENCE: Duration = Duration::from_secs(3);

/// Where links of one kind lead.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Peers {
    /// Patient: a peer that cannot be reached now may be later.
    Controllers {
        patient: bool,
    },
    Sources,
}

impl Peers {
    fn role(self) -> node::Role {
        match self {
            Peers::Controllers { .. } => node::Role::Controller,
            Peers::Sources => node::Role::Source,
        }
    }
}

impl Host {
    pub(super) fn link(&self, path: PathId) -> Option<Link> {
        self.state().peers.get(&path).map(|p| p.link.clone())
    }

    /// Reserves a path; a link for it may come and go.
    pub(crate) fn new_path(&self) -> PathId {
        control_path(self.inner.next_path.fetch_add(1, Ordering::Relaxed))
    }

    pub(super) async fn accept(self) {
        while let Some(link) = self.inner.endpoint.accept().await {
            let path = self.new_path();
            self.spawn(self.clone().serve_link(path, link, node::Role::Caller));
        }
    }

    /// Dials `at` (host:port) once, or for up to `patience` again while somebody is there who does not come to it. A
    /// name is looked up each time, so a node that has moved is found; of several addresses the first that answers is
    /// taken, each tried a little after the one before.
    async fn dial_for(&self, at: &str, patience: Option<units::Duration>) -> Result<Link, AppError> {
        let expect = self.inner.pin.map_or(Expect::Pinned, Expect::Stated);
        let found = tokio::net::lookup_host(at).await.map_err(|e| unresolved(at, &e))?;
        let mut dialling = JoinSet::new();
        for (place, address) in (0u32..).zip(found) {
            let host = self.clone();
            dialling.spawn(async move {
                tokio::time::sleep(NEXT_ADDRESS * place).await;
                let (endpoint, silent_too) = (&host.inner.endpoint, host.inner.patience_stated);
                let dialled = match patience {
                    None => endpoint.dial(address, expect).await,
                    Some(patience) => endpoint.dial_patiently(address, expect, patience, silent_too).await,
                };
                dialled.map_err(|error| (place, error))
            });
        }
        let mut failed: Vec<(u32, AppError)> = Vec::new();
        while let Some(dialled) = dialling.join_next().await {
            match dialled {
                Ok(Ok(link)) => return Ok(link),
                Ok(Err((place, error))) => failed.push((place, error.into())),
                Err(error) => failed.push((u32::MAX, AppError::Failed(error.to_string()))),
            }
        }
        failed.sort_by_key(|(place, error)| (!error.is_about_trust(), *place));
        let first = failed.into_iter().next();
        Err(first.map_or_else(|| unresolved(at, &"it has no address"), |(_, error)| error))
    }

    /// Keeps a link to the controller at `at` on `path`, dialling again whenever it is lost. The first attempt's error
    /// is returned, unless `patient`; so is the error that the answering process is no controller. Who is patient says
    /// it once, and goes on trying.
    pub(crate) async fn keep_dialled(&self, path: PathId, at: &str, patient: bool) -> Result<(), AppError> {
        self.keep(path, at, Peers::Controllers { patient }).await
    }

    /// The same of a source.
    pub(crate) async fn keep_source(&self, path: PathId, at: &str) -> Result<(), AppError> {
        self.keep(path, at, Peers::Sources).await
    }

    async fn keep(&self, path: PathId, at: &str, peers: Peers) -> Result<(), AppError> {
        let patient = peers == Peers::Controllers { patient: true };
        let mut backoff = Backoff::new(rand::random());
        let mut wait = backoff.next_wait();
        let mut news = Dialling::new(self, path, at);
        let first = match self.dial_one_of(peers, at, (!patient).then_some(self.inner.patience)).await {
            Ok(link) => Some(link),
            Err(error) if patient && !error.is_about_trust() => {
                news.failed(&error, wait);
                None
            }
            Err(error) => return Err(error),
        };
        let at = at.to_owned();
        let host = self.clone();
        if patient {
            self.state().controller_at = Some(at.clone());
        }
        // The link is known before the caller says anything over the path.
        let serving = first.map(|link| host.begin_link(path, link, peers.role()));
        self.spawn(async move {
            if let Some((link, commands)) = serving {
                news.connected();
                host.clone().run_link(path, link.clone(), peers.role(), commands).await;
                news.lost(&link, wait);
            }
            loop {
                tokio::time::sleep(wait.into()).await;
                match host.dial_one_of(peers, &at, None).await {
                    Ok(link) => {
                        backoff.reset();
                        wait = backoff.next_wait();
                        news.connected();
                        host.clone().serve_link(path, link.clone(), peers.role()).await;
                        news.lost(&link, wait);
                    }
                    Err(error) => {
                        wait = backoff.next_wait();
                        news.failed(&error, wait);
                    }
                }
            }
        });
        Ok(())
    }

    /// Dials one that is what it should be.
    async fn dial_one_of(
        &self,
        peers: Peers,
        at: &str,
        patience: Option<units::Duration>,
    ) -> Result<Link, AppError> {
        let link = self.dial_for(at, patience).await?;
        if let Peers::Controllers { patient } = peers
            && let Ok(Ok(Answer::Role(role))) =
                tokio::time::timeout(ROLE_PATIENCE, ask(&link, &Query::Role)).await
            && !role.controls
        {
            link.close("no controller");
            return Err(unreachable(at, &not_a_controller(&role, at, patient)));
        }
        Ok(link)
    }

    /// Makes a link known and introduces this node over it.
    fn begin_link(&self, path: PathId, link: Link, role: node::Role) -> (Link, Receiver<Control>) {
        let (out, commands) = Outbox::to(&link, role);
        let peer = Peer { link: link.clone(), out };
        if self.introduces_itself() {
            peer.say(ToController::Hello(self.info_for(&link)));
            // Other peers that want to know what is held ask ([`Host::introduce`]).
            if role == node::Role::Controller {
                for holding in self.holdings() {
                    peer.say(ToController::Hold(holding));
                }
                for naming in self.namings() {
                    peer.say(ToController::Named(naming));
                }
            }
            let state = self.state();
            for claim in state.claims().into_iter().filter(|_| state.asks(path)) {
                peer.say(claim);
            }
            if state.leaving {
                peer.say(ToController::Leaving);
            } else if state.keeps {
                peer.say(ToController::Keeps);
            }
        }
        if let Some(controller) = &self.inner.controller {
            self.state().hashes.referrals.allow(peer.link.peer());
            let network = network_of(link.remote_addr().ip());
            controller.attach(path, peer.link.peer(), Some(network), peer.out.clone());
        }
        self.state().peers.insert(path, peer);
        (link, commands)
    }

    async fn serve_link(self, path: PathId, link: Link, role: node::Role) {
        let (link, commands) = self.begin_link(path, link, role);
        if role == node::Role::Source {
            let host = self.clone();
            self.spawn(async move {
                if let Err(error) = host.introduce(path).await {
                    tracing::debug!(%error, "a source that is back does not say what it holds");
                }
            });
        }
        self.run_link(path, link, role, commands).await;
    }

    async fn run_link(self, path: PathId, link: Link, role: node::Role, mut commands: Receiver<Control>) {
        let sender = link.clone();
        let sending = tokio::spawn(async move {
            while let Some(control) = commands.recv().await {
                if sender.send(control.to_bytes()).await.is_err() {
                    return;
                }
            }
        });
        let (asked, host) = (link.clone(), self.clone());
        let answering = tokio::spawn(async move {
            while let Some(request) = asked.incoming_request().await {
                let host = host.clone();
                let asked = asked.clone();
                tokio::spawn(async move {
                    let Ok(query) = postcard::from_bytes(&request.bytes) else {
                        return request.responder.refuse();
                    };
                    let Some((bytes, _held)) = host.make_answer(&asked, query).await else {
                        return request.responder.refuse();
                    };
                    let _ = tokio::time::timeout(ANSWER_WITHIN, request.responder.respond(&bytes)).await;
                });
            }
        });
        while let Some(frame) = link.recv().await {
            match Control::parse(&frame) {
                Ok(control) => self.on_control(path, &link, role, (control, frame.into_unread())),
                Err(error) => {
                    tracing::warn!(peer = %link.peer(), %error, "link closed");
                    link.close("malformed message");
                }
            }
        }
        sending.abort();
        answering.abort();
        tracing::debug!(peer = %link.peer(), end = ?link.end(), "link ended");
        let mut state = self.state();
        // A newer link may have taken the path over.
        if state.peers.get(&path).is_some_and(|p| p.link.is_same(&link)) {
            state.peers.remove(&path);
            state.held_by.lose(path);
            state.labels.lose(link.peer());
            drop(state);
            if let Some(controller) = &self.inner.controller {
                self.state().hashes.referrals.leave_out(link.peer());
                controller.lost(path, link.was_left(), ending(&link));
            }
        }
    }

    /// Lets queued messages go out, then closes every link.
    pub(crate) async fn close(&self) {
        self.close_but(&[]).await;
    }

    /// The same without last words to nodes that do not hear them.
    pub(crate) async fn close_but(&self, silent: &[NodeId]) {
        let mut links: Vec<Link> = self.state().peers.values().map(|p| p.link.clone()).collect();
        links.retain(|link| !silent.contains(&link.peer()));
        let mut finishing = tokio::task::JoinSet::new();
        for link in links {
            finishing.spawn(async move { link.finish().await });
        }
        let _ =
            tokio::time::timeout(LAST_WORDS, async { while finishing.join_next().await.is_some() {} }).await;
        // The closing packets leave at once; QUIC would go on listening for three timeouts.
        let _ = tokio::time::timeout(CLOSING, self.inner.endpoint.close(GOING_AWAY)).await;
        if let Some(controller) = &self.inner.controller {
            let _ = tokio::time::timeout(WRITING_DOWN, controller.close()).await;
        }
    }
}

/// No address comes of what the user wrote.
fn unresolved(at: &str, reason: &dyn std::fmt::Display) -> AppError {
    let name = at.rsplit_once(':').map_or(at, |(name, _)| name);
    unreachable(
        at,
        &format_args!(
            "the name {name} does not resolve ({reason}): check its spelling and DNS, or give an IP address"
        ),
    )
}

fn unreachable(at: &str, reason: &dyn std::fmt::Display) -> AppError {
    AppError::Unreachable { who: at.to_owned(), reason: reason.to_string() }
}

pub(super) fn no_controller() -> AppError {
    let reason = "no connection to it, or whoever answers there is a plain source: a controller is what `headwater up` and \
                  `headwater controller` run; sources are asked with --from";
    unreachable("the controller", &reason)
}

/// Advice about a peer that is no controller.
fn not_a_controller(role: &Role, at: &str, joins: bool) -> String {
    let what = match &role.controller {
        Some(controller) => {
            format!("a node, and no controller: its own is at {controller}, give that instead")
        }
        None if role.sends => "a source (`headwater serve`), and no controller".to_owned(),
        None => "no controller".to_owned(),
    };
    let next = match (joins, role.sends) {
        _ if role.controller.is_some() => String::new(),
        (true, _) => {
            "; start one with `headwater up` (or `headwater controller`) on the first machine, and join that"
                .to_owned()
        }
        (false, true) => format!(
            "; give --controller the address where `headwater up` or `headwater controller` runs, or fetch from it alone: \
             headwater get NAME --from {at}"
        ),
        (false, false) => {
            "; give --controller the address where `headwater up` or `headwater controller` runs".to_owned()
        }
    };
    format!("whoever answers there is {what}{next}")
}
