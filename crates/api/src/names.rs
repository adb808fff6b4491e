//! Names of this machine's store, and what leaves it: a name is asked for, moved and given up; what nothing needs is removed.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use headwater_store::{Collected, Gathering, GcOptions, NameFacts, NameStanding, Store, StoreError};
use headwater_units::ObjectId;
use headwater_wire::NameStands;
use tokio::sync::mpsc::UnboundedReceiver;

use super::host::{Host, NameNews, refused, rule};
use super::{AppError, GcResult};

/// A controller that has restarted waits for the owner of a name before it gives it to somebody else, 10 s at most.
const VERDICT: Duration = Duration::from_secs(15);
/// Interval at which a daemon removes what nothing needs, beside at its start.
const COLLECTS_EVERY: Duration = Duration::from_secs(3600);
/// Time for which the remains of an unfinished transfer are kept: a get within a week goes on with them.
const KEEPS_UNFINISHED: Duration = Duration::from_secs(7 * 24 * 3600);

/// The outcome of a request for a name.
pub(super) struct Given {
    /// As granted; `None` while no controller has been asked.
    pub(super) generation: Option<u64>,
    /// Object that it stood for here before, if another one.
    pub(super) replaced: Option<ObjectId>,
}

/// Gives an object of the store a name, by leave of the controller where there is one. It must be offered already.
pub(super) fn give(
    store: &Store,
    host: Option<&Host>,
    name: Option<&str>,
    object: ObjectId,
    replace: bool,
) -> Result<Given, AppError> {
    let Some(name) = name else {
        store.keep(object, None)?;
        return Ok(Given { generation: None, replaced: None });
    };
    let standing = if replace { NameStanding::Replacing } else { NameStanding::Given };
    let before = store.name_facts(name)?;
    let at_least = match before {
        None => 1,
        Some(before) if before.object == object => before.generation,
        Some(before) => before.generation.saturating_add(1),
    };
    let asked = host.and_then(|host| host.claim(name, object, at_least, rule(standing)));
    let verdict = asked.and_then(|answer| {
        // This thread may wait: it is none of those that serve links.
        let answered = tokio::runtime::Handle::current()
            .block_on(async { tokio::time::timeout(VERDICT, answer).await.ok()?.ok() });
        if answered.is_none() {
            tracing::warn!(name, %object, "the controller does not answer; the name is asked for again when it is back");
        }
        answered
    });
    let generation = match verdict {
        Some(Ok(stands)) if stands.naming.object == object => {
            let (generation, owner) = (stands.naming.generation, Some(stands.naming.owner));
            let facts = NameFacts { object, generation, owner, standing: NameStanding::Granted };
            store.set_name(name, &facts)?;
            Some(generation)
        }
        Some(Ok(stands)) => return Err(taken(name, &stands, replace)),
        Some(Err(why)) => {
            return Err(AppError::Failed(format!(
                "'{name}' is not given, and nothing was stored here: {}",
                refused(why)
            )));
        }
        None => {
            store.keep(object, Some((name, standing)))?;
            None
        }
    };
    Ok(Given { generation, replaced: before.map(|before| before.object).filter(|before| *before != object) })
}

fn taken(name: &str, stands: &NameStands, replace: bool) -> AppError {
    let NameStands { naming, owner_is, owner_is_here, .. } = stands;
    let owner = match owner_is.as_str() {
        "" => format!("node {}", naming.owner.short()),
        known => known.to_owned(),
    };
    let object = naming.object.short();
    let state = if *owner_is_here { "is up" } else { "is away, but others hold copies" };
    let advice = match (owner_is_here, replace) {
        (false, false) => "; take it over with --replace, or give another name with --name",
        _ => "; put it on that machine, or give another name with --name",
    };
    AppError::Failed(format!(
        "'{name}' belongs to {owner}, which {state}: it stands for {object} there (generation {}), and nothing was stored here{advice}",
        naming.generation
    ))
}

/// Removes what was put and has come to nothing, and offers it no longer.
pub(super) fn give_up(store: &Store, host: Option<&Host>, gathering: Gathering) {
    match store.give_up(gathering) {
        Ok(gone) => {
            if let Some(host) = host {
                gone.into_iter().for_each(|object| host.withdraw(object));
            }
        }
        Err(error) => tracing::warn!(%error, "what a failed put left is removed at the next start"),
    }
}

/// Withdraws objects and names that a removal took out of the store.
pub(super) fn withdraw(host: &Host, removed: &headwater_store::Removed) {
    host.unname(removed.id, &removed.names);
    removed.objects.iter().for_each(|object| host.withdraw(*object));
}

/// Before a command works on a store without a daemon: what an earlier one left that was stopped in the middle goes first.
pub(super) fn clear_up(store: &Store) {
    if let Err(error) = collect(store, None, false, KEEPS_UNFINISHED) {
        tracing::warn!(%error, "what nothing needs could not be removed from the store");
    }
}

/// Removes what nothing needs and nobody is sending.
pub(super) fn collect(
    store: &Store,
    host: Option<&Host>,
    dry_run: bool,
    keep_unfinished: Duration,
) -> Result<Collected, StoreError> {
    let options =
        GcOptions { dry_run, now_unix_secs: unix_seconds(), keep_unfinished_secs: keep_unfinished.as_secs() };
    let sent: Vec<ObjectId> = host
        .and_then(Host::snapshot)
        .map_or_else(Vec::new, |snapshot| snapshot.flows.iter().map(|flow| flow.object).collect());
    let collected = store.gc(options, &|object| sent.contains(&object))?;
    if let Some(host) = host.filter(|_| !dry_run) {
        collected.objects.iter().for_each(|object| host.withdraw(*object));
    }
    Ok(collected)
}

/// `headwater gc`.
pub(super) fn gc(store: &Store, host: Option<&Host>, dry_run: bool) -> Result<GcResult, AppError> {
    let collected = collect(store, host, dry_run, Duration::ZERO)?;
    Ok(GcResult {
        dry_run,
        objects: collected.objects.iter().map(ObjectId::to_string).collect(),
        freed_bytes: (collected.object_bytes + collected.partial_bytes).get(),
        partials: collected.partials,
        partial_bytes: collected.partial_bytes.get(),
        unreadable: collected.unreadable.iter().map(ObjectId::to_string).collect(),
    })
}

/// Maintenance of a daemon's store: writes down changes of names, and removes what nothing needs.
pub(super) async fn look_after(store: Arc<Store>, host: Host, mut news: UnboundedReceiver<NameNews>) {
    let mut again = tokio::time::interval(COLLECTS_EVERY);
    again.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        let (store, host) = (store.clone(), host.clone());
        tokio::select! {
            heard = news.recv() => {
                let Some(heard) = heard else { return };
                let _ = tokio::task::spawn_blocking(move || write_down(&store, heard)).await;
            }
            _ = again.tick() => {
                tokio::task::spawn_blocking(move || collect_by_itself(&store, &host));
            }
        }
    }
}

fn collect_by_itself(store: &Store, host: &Host) {
    match collect(store, Some(host), false, KEEPS_UNFINISHED) {
        Ok(Collected { objects, object_bytes, partials, partial_bytes, unreadable }) => {
            if !objects.is_empty() || partials > 0 {
                let bytes = (object_bytes + partial_bytes).get();
                tracing::info!(objects = objects.len(), partials, bytes, "removed what nothing needs");
            }
            for folder in unreadable {
                tracing::warn!(%folder, "a folder in the store cannot be read: put it again, or rm it");
            }
        }
        Err(error) => tracing::warn!(%error, "what nothing needs could not be removed from the store"),
    }
}

fn write_down(store: &Store, news: NameNews) {
    let written = match news {
        NameNews::Stands(naming) => match store.name_facts(&naming.name) {
            Ok(Some(facts)) if facts.object == naming.object => {
                let (generation, owner) = (naming.generation, Some(naming.owner));
                let granted = NameFacts { generation, owner, standing: NameStanding::Granted, ..facts };
                if granted == facts {
                    return;
                }
                tracing::info!(name = naming.name, object = %naming.object, generation, "name granted");
                store.set_name(&naming.name, &granted).map(drop)
            }
            other => other.map(drop),
        },
        NameNews::Lost { object, stands, by_itself } => {
            let lost = store.unname(&stands.name, object);
            if matches!(lost, Ok(true)) && !by_itself {
                tracing::warn!(name = stands.name, %object, stands_for = %stands.object, generation = stands.generation,
                    "the name stands for another object now; this one stays, by its id");
            }
            lost.map(drop)
        }
    };
    if let Err(error) = written {
        tracing::error!(%error, "what became of a name could not be written down");
    }
}

/// Now, in seconds since 1970.
pub(super) fn unix_seconds() -> u64 {
    #[allow(clippy::disallowed_methods)] // A date, not a step of a machine.
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |d| d.as_secs())
}
