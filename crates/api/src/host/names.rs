//! Names of the objects that this process offers: announced to its controller, claimed, and given up when they stand for something else.
//!
//! Only one controller decides about names ([`Host::asks_for_names`]): other peers are told what was granted, and asked nothing.

use std::collections::BTreeMap;

use headwater_store::{NameFacts, NameStanding};
use headwater_units::{ObjectId, PathId};
use headwater_wire::{Claim, ClaimRule, MAX_NAMES, NameStands, Naming, ToController, WhyUnnamed};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::oneshot;

use super::{Held, Host, LOCAL, State};

/// A controller's news of a name of this process.
#[derive(Clone, Debug)]
pub(crate) enum NameNews {
    /// It stands for this object, as said.
    Stands(Naming),
    /// This object does not have it: it stands for another, perhaps because this node has given it to that.
    Lost { object: ObjectId, stands: Naming, by_itself: bool },
}

/// Names that the controller has not answered for yet.
#[derive(Default)]
pub(super) struct Asked {
    controller: Option<PathId>,
    claims: BTreeMap<u64, Waiting>,
    news: Option<UnboundedSender<NameNews>>,
    /// Until somebody hears it.
    heard: Option<UnboundedReceiver<NameNews>>,
}

struct Waiting {
    claim: Claim,
    answer: Option<oneshot::Sender<NameAnswer>>,
}

/// What the controller says to a claim: what the name stands for, or why it is nobody's and yet not given.
pub(crate) type NameAnswer = Result<NameStands, WhyUnnamed>;

/// How a node insists on a name that stands so in its store.
pub(crate) fn rule(standing: NameStanding) -> ClaimRule {
    match standing {
        NameStanding::Copied => ClaimRule::Copy,
        NameStanding::Given | NameStanding::Granted => ClaimRule::Give,
        NameStanding::Replacing => ClaimRule::Replace,
    }
}

/// Why a controller does not grant a name that nobody else has.
pub(crate) fn refused(why: WhyUnnamed) -> String {
    match why {
        WhyUnnamed::TooMany => {
            format!(
                "the object has {MAX_NAMES} names of this node, and more there may not be; remove one with `headwater rm NAME`"
            )
        }
        WhyUnnamed::Full => {
            "the controller has no room for another name of this node; remove some with `headwater rm NAME`"
                .to_owned()
        }
    }
}

/// A name that was given here just now.
pub(crate) fn given(object: ObjectId) -> NameFacts {
    NameFacts { object, generation: 1, owner: None, standing: NameStanding::Given }
}

fn granted(naming: &Naming) -> NameFacts {
    NameFacts {
        object: naming.object,
        generation: naming.generation,
        owner: Some(naming.owner),
        standing: NameStanding::Granted,
    }
}

/// The names of an object that some controller has granted.
pub(super) fn namings(held: &Held) -> impl Iterator<Item = Naming> + '_ {
    held.names.iter().filter_map(|(name, facts)| {
        let owner = facts.owner.filter(|_| facts.standing == NameStanding::Granted)?;
        let NameFacts { object, generation, .. } = *facts;
        Some(Naming { name: name.clone(), object, generation, owner })
    })
}

impl State {
    /// Claims to be asked of the controller.
    pub(super) fn claims(&self) -> Vec<ToController> {
        self.asked.claims.values().map(|it| ToController::Claim(it.claim.clone())).collect()
    }

    pub(super) fn asks(&self, path: PathId) -> bool {
        self.asked.controller == Some(path)
    }

    /// The names of an object are offered now, and of nothing else here. What there is to say about it.
    pub(super) fn offer_names(&mut self, object: ObjectId, held: &Held) -> Vec<ToController> {
        let mut says = Vec::new();
        for (name, facts) in &held.names {
            for (other, there) in self.held.iter_mut().filter(|(other, _)| **other != object) {
                if there.names.remove(name).is_some() {
                    says.push(ToController::Unname { object: *other, name: name.clone() });
                }
            }
            self.asked.claims.retain(|_, it| it.claim.name != *name || it.claim.object == object);
            let is_asked = self.asked.claims.values().any(|it| it.claim.name == *name);
            if facts.standing != NameStanding::Granted && !is_asked {
                let (name, rule) = (name.clone(), rule(facts.standing));
                says.push(
                    self.ask(Claim { number: 0, name, object, at_least: facts.generation, rule }, None),
                );
            }
        }
        says.extend(namings(held).map(ToController::Named));
        says
    }

    fn ask(&mut self, claim: Claim, answer: Option<oneshot::Sender<NameAnswer>>) -> ToController {
        let claim = Claim { number: rand::random(), ..claim };
        self.asked.claims.insert(claim.number, Waiting { claim: claim.clone(), answer });
        ToController::Claim(claim)
    }
}

impl Host {
    /// The controller behind this path decides about names.
    pub(crate) fn asks_for_names(&self, path: PathId) {
        let (to, heard) = unbounded_channel();
        let asked = &mut self.state().asked;
        (asked.controller, asked.news, asked.heard) = (Some(path), Some(to), Some(heard));
    }

    /// Hands over what becomes of names since there is somebody to ask; once.
    pub(crate) fn hear_names(&self) -> UnboundedReceiver<NameNews> {
        self.state().asked.heard.take().unwrap_or_else(|| unbounded_channel().1)
    }

    /// Says something to the controller that decides about names.
    fn say_of_names(&self, control: ToController) {
        let path = self.state().asked.controller;
        if let Some(path) = path {
            self.say(path, control);
        }
    }

    /// Asks for a name for an object that is offered already. `None`: no controller can be asked now; it is when it is back.
    pub(crate) fn claim(
        &self,
        name: &str,
        object: ObjectId,
        at_least: u64,
        rule: ClaimRule,
    ) -> Option<oneshot::Receiver<NameAnswer>> {
        let (answer, answered) = oneshot::channel();
        let mut state = self.state();
        let path = state.asked.controller?;
        if path != LOCAL && !state.peers.contains_key(&path) {
            return None;
        }
        state.asked.claims.retain(|_, it| it.claim.name != name);
        let claim = Claim { number: 0, name: name.to_owned(), object, at_least, rule };
        let control = state.ask(claim, Some(answer));
        drop(state);
        self.say(path, control);
        Some(answered)
    }

    /// These names are no longer offered for the object.
    pub(crate) fn unname(&self, object: ObjectId, names: &[String]) {
        let mut state = self.state();
        if let Some(held) = state.held.get_mut(&object) {
            held.names.retain(|name, _| !names.contains(name));
        }
        state.asked.claims.retain(|_, it| it.claim.object != object || !names.contains(&it.claim.name));
        drop(state);
        for name in names {
            self.say_of_names(ToController::Unname { object, name: name.clone() });
        }
    }

    /// The controller does not grant a claim, although nobody else has the name. Where no command waits for the answer, the claim stays:
    /// it is made again when the link is new.
    pub(super) fn name_refused(&self, path: PathId, claim: u64, why: WhyUnnamed) {
        let mut state = self.state();
        if !state.asks(path) {
            return;
        }
        let claims = &mut state.asked.claims;
        let Some(waiting) = claims.get_mut(&claim) else { return };
        let Some(answer) = waiting.answer.take() else {
            let Claim { name, object, .. } = &waiting.claim;
            tracing::warn!(name, %object, reason = refused(why),
                "the controller does not give the name: the object is offered by its id only");
            return;
        };
        claims.remove(&claim);
        drop(state);
        let _ = answer.send(Err(why));
    }

    /// The controller says what a name stands for.
    pub(super) fn name_stands(&self, path: PathId, stands: NameStands) {
        let NameStands { claim, naming, owner_is, .. } = &stands;
        let name = &naming.name;
        let mut state = self.state();
        if !state.asks(path) {
            return;
        }
        let mut news = Vec::new();
        let mut lost: Vec<ObjectId> = Vec::new();
        let waiting = claim.and_then(|number| state.asked.claims.remove(&number));
        if let Some(waiting) = &waiting
            && waiting.claim.object != naming.object
        {
            lost.push(waiting.claim.object);
            let quietly = waiting.answer.is_some() || waiting.claim.rule == ClaimRule::Copy;
            if !quietly {
                let object = waiting.claim.object;
                tracing::warn!(name, %object, stands_for = %naming.object, owner = owner_is,
                    "the name belongs to somebody else: the object is offered by its id only; give it another name");
            }
        }
        let is_older = |object: &ObjectId, facts: &NameFacts| {
            *object != naming.object
                && facts.standing == NameStanding::Granted
                && facts.generation <= naming.generation
        };
        let held = state.held.iter();
        lost.extend(
            held.filter(|(id, held)| held.names.get(name).is_some_and(|it| is_older(id, it))).map(|it| *it.0),
        );
        if let Some(held) = state.held.get_mut(&naming.object)
            && (waiting.is_some() || held.names.contains_key(name))
        {
            held.names.insert(name.clone(), granted(naming));
            news.push(NameNews::Stands(naming.clone()));
        }
        for object in lost {
            if let Some(held) = state.held.get_mut(&object) {
                held.names.remove(name);
            }
            let by_itself = waiting.as_ref().is_some_and(|it| it.claim.object == naming.object);
            news.push(NameNews::Lost { object, stands: naming.clone(), by_itself });
        }
        let to = state.asked.news.clone();
        drop(state);
        for news in news {
            if let NameNews::Lost { object, .. } = &news {
                self.say_of_names(ToController::Unname { object: *object, name: name.clone() });
            }
            if let Some(to) = &to {
                let _ = to.send(news);
            }
        }
        if let Some(answer) = waiting.and_then(|waiting| waiting.answer) {
            let _ = answer.send(Ok(stands));
        }
    }
}
