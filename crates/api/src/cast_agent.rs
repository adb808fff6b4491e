//! Cast agent of a node ([`Invitations`]): when the node is invited to a cast, it joins the group, fetches into its
//! store, and reports the end.

use std::collections::BTreeMap;
use std::sync::Arc;

use headwater_node::{InvitationAction, Invitations};
use headwater_udp::GroupAddr;
use headwater_units::{Bytes, ObjectId, PathId};
use headwater_wire::{
    Class, FetchEnd, Fetched, FlowSecret, GroupInvitation, Invitation, MAX_FLOWS, MAX_REASON, SpreadRule,
    ToController, ToNode,
};
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::task::{AbortHandle, JoinSet};

use super::desk::Wanted;
use super::events::Event;
use super::get::blocking;
use super::host::Host;
use super::keep::Keeper;
use super::{AppError, GetResult, Progress, SourceShare, Watch};

/// The invitations of a node.
pub(super) struct CastAgent {
    keeper: Arc<Keeper>,
    host: Host,
    controller: PathId,
    heard: UnboundedReceiver<(PathId, ToNode)>,
    machine: Invitations,
    running: BTreeMap<u64, AbortHandle>,
    fetches: JoinSet<Fetched>,
}

impl CastAgent {
    /// Says to everybody that invitations are welcome.
    pub(super) fn new(keeper: Arc<Keeper>, host: Host, controller: PathId) -> Self {
        let heard = host.hear_invitations();
        host.keeps();
        let machine = Invitations::new(controller);
        let (running, fetches) = Default::default();
        CastAgent { keeper, host, controller, heard, machine, running, fetches }
    }

    pub(super) async fn run(mut self) {
        loop {
            tokio::select! {
                heard = self.heard.recv() => match heard {
                    Some((path, control)) => {
                        if !self.machine.on_control(path, control) {
                            tracing::warn!(path = path.0, "somebody else than the controller gave orders");
                        }
                    }
                    None => return,
                },
                ended = self.fetches.join_next(), if !self.fetches.is_empty() => {
                    if let Some(Ok(fetched)) = ended {
                        self.running.remove(&fetched.request);
                        self.machine.ended(fetched);
                    }
                }
            }
            self.act();
        }
    }

    fn act(&mut self) {
        while let Some(action) = self.machine.poll() {
            match action {
                InvitationAction::Fetch(invitation) => {
                    let request = invitation.request;
                    tracing::info!(object = %invitation.object, name = invitation.name, "invited");
                    let (object, name) = (invitation.object, invitation.name.clone());
                    self.host.events().tell(Event::CastJoined { object, name });
                    let (keeper, host) = (self.keeper.clone(), self.host.clone());
                    let running = self.fetches.spawn(async move { follow(&keeper, host, *invitation).await });
                    self.running.insert(request, running);
                }
                InvitationAction::Stop(request) => {
                    if let Some(running) = self.running.remove(&request) {
                        running.abort();
                    }
                }
                InvitationAction::Answer(fetched) => {
                    self.host.say(self.controller, ToController::Fetched(*fetched));
                }
            }
        }
    }
}

/// Fetches what a node is invited to. Dropping the future leaves the group and ends the fetch.
async fn follow(keeper: &Arc<Keeper>, host: Host, invitation: Invitation) -> Fetched {
    let Invitation { request, name, object, class, group } = invitation;
    let known = keeper.clone();
    let nothing = |end, files| {
        let (by_group, by_unicast, relayed, from) = Default::default();
        Fetched { request, end, by_group, by_unicast, relayed, from, files }
    };
    if matches!(blocking(move || known.has(object)).await, Ok(true)) {
        return nothing(FetchEnd::Had, files_of(keeper, object).await);
    }
    let membership = group.and_then(|group| Membership::begin(host, group));
    let wanted = Wanted {
        what: name,
        hash: Some(object),
        anew: false,
        gentle: class == Class::Gentle,
        delivery: None,
        spread: SpreadRule::Listed,
        max_sources: None,
    };
    match keeper.fetch(&wanted, Some(request), &mut Unwatched).await {
        Ok(mut kept) => {
            let got = std::mem::take(&mut kept.result);
            // The inviting controller hears at once. Only the group is left no sooner than its source knows.
            tokio::spawn(async move {
                kept.left().await;
                drop(membership);
            });
            let end = if was_here(&got) { FetchEnd::Had } else { FetchEnd::Kept };
            let all: u64 = got.sources.iter().map(|source| source.bytes).sum();
            let by_group = Bytes::new(got.group_bytes);
            let share = |source: &SourceShare| {
                let bytes = source.bytes.saturating_sub(source.group_bytes);
                (bytes > 0).then(|| Some((source.id.parse().ok()?, Bytes::new(bytes)))).flatten()
            };
            Fetched {
                request,
                end,
                by_group,
                by_unicast: Bytes::new(all) - by_group,
                relayed: Bytes::new(got.relayed_bytes),
                from: got.sources.iter().filter_map(share).take(MAX_FLOWS).collect(),
                files: files_of(keeper, object).await,
            }
        }
        Err(error) => nothing(FetchEnd::Failed(reason(&error)), Bytes::ZERO),
    }
}

/// The size of a folder's files; zero if the object is no folder.
async fn files_of(keeper: &Arc<Keeper>, object: ObjectId) -> Bytes {
    let keeper = keeper.clone();
    match blocking(move || keeper.manifest(object)).await {
        Ok(Ok(Some(manifest))) => manifest.total_bytes(),
        Ok(Ok(None)) => Bytes::ZERO,
        Ok(Err(error)) | Err(error) => {
            tracing::warn!(%error, "the size of what was cast is not known");
            Bytes::ZERO
        }
    }
}

/// Another fetch has brought it meanwhile.
fn was_here(got: &GetResult) -> bool {
    got.sources.is_empty() && got.resumed_bytes == got.bytes
}

fn reason(error: &AppError) -> String {
    let mut text = error.to_string();
    let ends = text.char_indices().map(|(at, c)| at + c.len_utf8());
    let most = ends.take_while(|end| *end <= MAX_REASON).last().unwrap_or(0);
    text.truncate(most);
    text
}

/// A node in a group; it leaves when this is dropped.
struct Membership {
    host: Host,
    group: GroupAddr,
    asked: FlowSecret,
}

impl Membership {
    /// `None`: it cannot be joined, and so nobody will hear an answer.
    fn begin(host: Host, invitation: GroupInvitation) -> Option<Membership> {
        let GroupInvitation { at, source, asked, own } = invitation;
        let joined = GroupAddr::towards(at, source).and_then(|group| {
            host.node().join(group)?;
            Ok(group)
        });
        match joined {
            Ok(group) => {
                host.node().answer_probes(asked.clone(), own);
                Some(Membership { host, group, asked })
            }
            Err(error) => {
                tracing::info!(%error, %at, "a group cannot be joined");
                None
            }
        }
    }
}

impl Drop for Membership {
    fn drop(&mut self) {
        self.host.node().ignore_probes(self.asked.flow);
        self.host.node().leave(self.group);
    }
}

/// Progress is not shown here: the controller tells it.
struct Unwatched;

impl Watch for Unwatched {
    fn progress(&mut self, _: &Progress) {}
    fn note(&mut self, line: &str) {
        tracing::warn!("{line}");
    }
}
