//! The objects that this process offers, and what it has to know of an object to offer or to fetch it.

use std::net::SocketAddr;

use headwater_control::Link;
use headwater_units::{ObjectId, PathId};
use headwater_wire::{Holding, Naming, NodeInfo, Spoiled, ToController};

use super::links::no_controller;
use super::names::namings;
use super::{Held, Host, LOCAL};
use crate::AppError;
use crate::events::Event;
use crate::query::{Answer, Query, ask};
use headwater_driver::{room_in, room_towards};

/// Maximum number of spoiled objects to remember: their copies changed, so they are no longer offered.
const SPOILED_KEPT: usize = 1024;

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

    /// Objects that its names stand for, by the word of some controller.
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
        state.spoiled.remove(&object);
        let before = state.held.remove(&object).map(|before| before.names);
        let names_before = before.as_ref().map(|names| names.keys().cloned().collect::<Vec<_>>());
        for (name, facts) in before.into_iter().flatten() {
            held.names.entry(name).or_insert(facts);
        }
        let names: Vec<String> = held.names.keys().cloned().collect();
        if names_before.as_ref() != Some(&names) {
            let bytes = held.file.size();
            self.inner.events.tell(Event::ObjectOffered { object, bytes, names });
        }
        let mut says: Vec<ToController> =
            holdings_of(object, &held).into_iter().map(ToController::Hold).collect();
        says.extend(state.offer_names(object, &held));
        state.held.insert(object, held);
        // Of names that were not granted yet, only their controller is told.
        let for_all =
            |word: &ToController| !matches!(word, ToController::Claim(_) | ToController::Unname { .. });
        for (path, peer) in &state.peers {
            let decides = state.asks(*path);
            for control in says.iter().filter(|control| decides || for_all(control)) {
                peer.say(control.clone());
            }
        }
        let decides = state.asks(LOCAL);
        drop(state);
        if let Some(controller) = &self.inner.controller {
            says.retain(|control| decides || for_all(control));
            says.into_iter().for_each(|control| controller.deliver(LOCAL, control, None));
        }
    }

    /// Offers an object no longer.
    pub(crate) fn withdraw(&self, object: ObjectId) {
        self.hold_no_longer(object, &ToController::Drop { object });
    }

    /// Offers an object no longer, since the copy here is not it any more, and tells everybody so.
    pub(super) fn spoiled(&self, object: ObjectId, how: Spoiled) {
        if let Some(held) = self.hold_no_longer(object, &ToController::Spoiled { object, how }) {
            let spoiled = &mut self.state().spoiled;
            if spoiled.len() >= SPOILED_KEPT {
                spoiled.pop_first();
            }
            spoiled.insert(object, (how, holdings_of(object, &held)));
        }
    }

    fn hold_no_longer(&self, object: ObjectId, word: &ToController) -> Option<Held> {
        self.node().withdraw(object);
        let mut state = self.state();
        let held = state.held.remove(&object)?;
        self.inner.events.tell(Event::ObjectWithdrawn { object });
        for peer in state.peers.values() {
            peer.say(word.clone());
        }
        drop(state);
        if let Some(controller) = &self.inner.controller {
            controller.deliver(LOCAL, word.clone(), None);
        }
        Some(held)
    }

    /// Objects that were offered until their copies turned out not to be them any more, and are not offered under these
    /// names again.
    pub(super) fn spoiled_holdings(&self) -> Vec<(Holding, Spoiled)> {
        let state = self.state();
        let offered = |name: &String| state.held.values().any(|held| held.names.contains_key(name));
        let of = |(how, holdings): &(Spoiled, Vec<Holding>)| {
            let gone = holdings.iter().filter(|holding| !holding.name.as_ref().is_some_and(offered));
            gone.map(|holding| (holding.clone(), *how)).collect::<Vec<_>>()
        };
        state.spoiled.values().flat_map(of).collect()
    }

    /// Asks a source what it holds and tells the own controller, so that a request finds it there.
    pub(crate) async fn introduce(&self, path: PathId) -> Result<usize, AppError> {
        let link = self.link(path).ok_or_else(no_controller)?;
        let Answer::Holdings { info, holdings, names, spoiled } = ask(&link, &Query::Holdings).await? else {
            let reason =
                "it answers, but it is no source; a controller is asked with --controller".to_owned();
            return Err(AppError::Unreachable { who: link.remote_addr().to_string(), reason });
        };
        let count = holdings.len();
        self.on_word(path, &link, ToController::Hello(*info), None);
        for holding in holdings {
            self.on_word(path, &link, ToController::Hold(holding), None);
        }
        for naming in names {
            self.on_word(path, &link, ToController::Named(naming), None);
        }
        // So that askers for it hear why it is not to be had.
        for (holding, how) in spoiled {
            let object = holding.object;
            self.on_word(path, &link, ToController::Hold(holding), None);
            self.on_word(path, &link, ToController::Spoiled { object, how }, None);
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
