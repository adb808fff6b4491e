//! What this process offers, and what it has to know of an object to offer or to fetch it.

use std::net::SocketAddr;

use headwater_store::BlockHashes;
use headwater_units::{ObjectId, PathId};
use headwater_wire::{Control, Holding, Naming, NodeInfo};

use super::links::no_controller;
use super::names::namings;
use super::{Held, Host, LOCAL};
use crate::app::AppError;
use crate::app::query::{Answer, Query, ask};
use crate::control::Link;
use crate::node::{room_in, room_towards};

/// Block hashes of this many objects of others are remembered.
const HASHES_KEPT: usize = 64;

impl Host {
    pub(super) fn room(&self, towards: SocketAddr) -> u16 {
        match self.inner.mtu {
            Some(mtu) => room_in(mtu, towards),
            None => room_towards(towards),
        }
    }

    /// Bytes of symbol that a datagram between here and the peer of `path` carries.
    pub(crate) fn room_on(&self, path: PathId) -> u16 {
        let towards = self.link(path).map_or(SocketAddr::from(([127, 0, 0, 1], 1)), |l| l.remote_addr());
        self.room(towards)
    }

    pub(super) fn info_for(&self, link: &Link) -> NodeInfo {
        NodeInfo {
            room: self.room(link.remote_addr()),
            rtt: Some(link.round_trip()),
            ..self.template().clone()
        }
    }

    /// What its names stand for by the word of some controller.
    pub(super) fn namings(&self) -> Vec<Naming> {
        self.state().held.values().flat_map(namings).collect()
    }

    pub(super) fn holdings(&self) -> Vec<Holding> {
        self.state().held.iter().flat_map(|(&object, held)| holdings_of(object, held)).collect()
    }

    /// Offers an object to everybody.
    pub(crate) fn hold(&self, object: ObjectId, mut held: Held) {
        self.node().hold(object, held.file.clone());
        let mut state = self.state();
        for (name, facts) in state.held.remove(&object).into_iter().flat_map(|before| before.names) {
            held.names.entry(name).or_insert(facts);
        }
        let mut says: Vec<Control> = holdings_of(object, &held).into_iter().map(Control::Hold).collect();
        says.extend(state.offer_names(object, &held));
        state.held.insert(object, held);
        // Of names that were not granted yet, only their controller is told.
        let for_all = |control: &Control| !matches!(control, Control::Claim(_) | Control::Unname { .. });
        for (path, peer) in &state.peers {
            let decides = state.asks(*path);
            for control in says.iter().filter(|control| decides || for_all(control)) {
                let _ = peer.out.send(control.clone());
            }
        }
        let decides = state.asks(LOCAL);
        drop(state);
        if let Some(controller) = &self.inner.controller {
            says.retain(|control| decides || for_all(control));
            says.into_iter().for_each(|control| controller.deliver(LOCAL, control));
        }
    }

    /// Offers an object no longer.
    pub(crate) fn withdraw(&self, object: ObjectId) {
        self.node().withdraw(object);
        let mut state = self.state();
        if state.held.remove(&object).is_none() {
            return;
        }
        for peer in state.peers.values() {
            let _ = peer.out.send(Control::Drop { object });
        }
        drop(state);
        if let Some(controller) = &self.inner.controller {
            controller.deliver(LOCAL, Control::Drop { object });
        }
    }

    /// The block hashes of an object: from here, from a peer that holds it, or from the controller at `path`.
    /// Whoever they come from, they are what the object's id says.
    pub(crate) async fn hashes(&self, object: ObjectId, path: Option<PathId>) -> Option<BlockHashes> {
        let links: Vec<Link> = {
            let state = self.state();
            if let Some(held) = state.held.get(&object) {
                return Some(held.hashes.clone());
            }
            if let Some(hashes) = state.hashes.get(&object) {
                return Some(hashes.clone());
            }
            let holders = state.held_by.get(&object).into_iter().flatten().copied();
            holders.chain(path).filter_map(|p| Some(state.peers.get(&p)?.link.clone())).collect()
        };
        for link in links {
            let Ok(Answer::Hashes { bytes, hashes }) = ask(&link, &Query::Hashes { object }).await else {
                continue;
            };
            match BlockHashes::verified(object, bytes, hashes) {
                Ok(hashes) => {
                    let mut state = self.state();
                    if state.hashes.len() >= HASHES_KEPT {
                        state.hashes.pop_first();
                    }
                    state.hashes.insert(object, hashes.clone());
                    return Some(hashes);
                }
                Err(error) => tracing::warn!(peer = %link.peer(), %error, "wrong block hashes"),
            }
        }
        None
    }

    /// Asks a source what it holds and tells the own controller, so that a request finds it there.
    pub(crate) async fn introduce(&self, path: PathId) -> Result<usize, AppError> {
        let link = self.link(path).ok_or_else(no_controller)?;
        let Answer::Holdings { info, holdings, names } = ask(&link, &Query::Holdings).await? else {
            let reason =
                "it answers, but it is no source; a controller is asked with --controller".to_owned();
            return Err(AppError::Unreachable { who: link.remote_addr().to_string(), reason });
        };
        let count = holdings.len();
        self.on_control(path, &link, Control::Hello(*info));
        for holding in holdings {
            self.on_control(path, &link, Control::Hold(holding));
        }
        for naming in names {
            self.on_control(path, &link, Control::Named(naming));
        }
        Ok(count)
    }
}

fn holdings_of(object: ObjectId, held: &Held) -> Vec<Holding> {
    let bytes = held.file.size();
    let holding = |name: Option<&String>| Holding { object, bytes, name: name.cloned() };
    match held.names.is_empty() {
        true => vec![holding(None)],
        false => held.names.keys().map(|name| holding(Some(name))).collect(),
    }
}
