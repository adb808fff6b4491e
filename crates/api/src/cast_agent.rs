//! Cast agent of a node ([`Invitations`]): when the node is invited to a cast, it joins the group, fetches into its
//! store, and reports the end.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use headwater_node::{InvitationAction, Invitations};
use headwater_udp::GroupAddr;
use headwater_units::{Bytes, ObjectId, PathId};
use headwater_wire::{
    Class, FetchEnd, FlowSecret, GroupInvitation, Invitation, MAX_REASON, SpreadRule, ToController, ToNode,
};
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::task::{AbortHandle, JoinSet};

use super::desk::Wanted;
use super::events::Event;
use super::get::blocking;
use super::host::Host;
use super::keep::{Keeper, Kept};
use super::{AppError, GetResult, Progress, Watch};

/// The invitations of a node.
pub(super) struct CastAgent {
    keeper: Arc<Keeper>,
    host: Host,
    controller: PathId,
    heard: UnboundedReceiver<(PathId, ToNode)>,
    machine: Invitations,
    running: BTreeMap<u64, AbortHandle>,
    groups: BTreeMap<u64, Membership>,
    tasks: JoinSet<Done>,
}

/// A task for an invitation has come to its end.
enum Done {
    Looked { request: u64, is_here: bool, files: Bytes },
    Ended { request: u64, end: FetchEnd, kept: Option<Box<Kept>>, files: Bytes },
    Left { request: u64 },
}

impl CastAgent {
    /// Says to everybody that invitations are welcome.
    pub(super) fn new(keeper: Arc<Keeper>, host: Host, controller: PathId) -> Self {
        let heard = host.hear_invitations();
        host.keeps();
        let machine = Invitations::new(controller);
        let (running, groups, tasks) = Default::default();
        CastAgent { keeper, host, controller, heard, machine, running, groups, tasks }
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
                done = self.tasks.join_next(), if !self.tasks.is_empty() => {
                    if let Some(Ok(done)) = done {
                        self.on_done(done);
                    }
                }
            }
            self.act();
        }
    }

    fn on_done(&mut self, done: Done) {
        match done {
            Done::Looked { request, is_here, files } => {
                self.running.remove(&request);
                self.machine.looked(request, is_here, files);
            }
            Done::Ended { request, end, kept, files } => {
                self.running.remove(&request);
                let flows = kept.as_ref().map_or(&[][..], |kept| &kept.flows);
                self.machine.ended(request, end, flows, files);
                if let Some(mut kept) = kept {
                    self.tasks.spawn(async move {
                        kept.left().await;
                        Done::Left { request }
                    });
                }
            }
            Done::Left { request } => self.machine.left(request),
        }
    }

    fn act(&mut self) {
        while let Some(action) = self.machine.poll() {
            match action {
                InvitationAction::Look { request, object } => {
                    let looking = look(self.keeper.clone(), request, object);
                    self.running.insert(request, self.tasks.spawn(looking));
                }
                InvitationAction::Join { request, group } => {
                    let joined = Membership::begin(self.host.clone(), *group);
                    self.groups.extend(joined.map(|joined| (request, joined)));
                }
                InvitationAction::Fetch(invitation) => {
                    let request = invitation.request;
                    tracing::info!(object = %invitation.object, name = invitation.name, "invited");
                    let (object, name) = (invitation.object, invitation.name.clone());
                    self.host.events().tell(Event::CastJoined { object, name });
                    let fetching = fetch(self.keeper.clone(), *invitation);
                    self.running.insert(request, self.tasks.spawn(fetching));
                }
                InvitationAction::Stop(request) => {
                    if let Some(running) = self.running.remove(&request) {
                        running.abort();
                    }
                }
                InvitationAction::Answer(fetched) => {
                    self.host.say(self.controller, ToController::Fetched(*fetched));
                }
                InvitationAction::Leave { request, .. } => drop(self.groups.remove(&request)),
            }
        }
    }
}

async fn look(keeper: Arc<Keeper>, request: u64, object: ObjectId) -> Done {
    let known = keeper.clone();
    let is_here = matches!(blocking(move || known.has(object)).await, Ok(true));
    let files = if is_here { files_of(&keeper, object).await } else { Bytes::ZERO };
    Done::Looked { request, is_here, files }
}

/// Fetches what a node is invited to. Dropping the future ends the fetch.
async fn fetch(keeper: Arc<Keeper>, invitation: Invitation) -> Done {
    let Invitation { request, name, object, class, .. } = invitation;
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
        Ok(kept) => {
            let end = if was_here(&kept.result) { FetchEnd::Had } else { FetchEnd::Kept };
            let files = files_of(&keeper, object).await;
            Done::Ended { request, end, kept: Some(Box::new(kept)), files }
        }
        Err(error) => {
            let end = FetchEnd::Failed(reason(&error));
            Done::Ended { request, end, kept: None, files: Bytes::ZERO }
        }
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
    fn interval(&self) -> Duration {
        Duration::from_secs(1)
    }
    fn progress(&mut self, _: &Progress) {}
    fn note(&mut self, line: &str) {
        tracing::warn!("{line}");
    }
}
