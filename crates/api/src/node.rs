//! A node in this process: it puts, fetches and casts objects, and serves them.
//!
//! ```no_run
//! # async fn example() -> Result<(), headwater_api::AppError> {
//! use headwater_api::{Cast, Config, Node, Output, Put, Receivers};
//!
//! let node = Node::open(Config::new("/var/lib/headwater")).await?;
//! let put = node.put(Put::path("model.bin")).await?;
//! let everywhere = node.cast(Cast::new(put.object, Receivers::All)).await?;
//! assert!(everywhere.complete);
//! let mut other = node.get("dataset", Output::File("dataset".into()));
//! while let Some(update) = other.next().await {
//!     println!("{update:?}");
//! }
//! other.await?;
//! node.close().await;
//! # Ok(())
//! # }
//! ```
//!
//! A node needs a tokio runtime with time and I/O enabled, of which it takes a share: data has threads of its own. Errors say what to do
//! next ([`AppError`]); [`AppError::kind`] is one word for programs.

mod config;
mod guest;
mod resident;

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use headwater_units::{Duration, NodeId};

pub use self::config::{Config, ControllerAt, NodeKind};
use self::guest::Guest;
use self::resident::{Opened, Resident, ResidentPlace};
use super::events::EventFeed;
use super::host::Host;
use super::transfer::Reporter;
use super::{
    AppError, Cast, CastResult, Event, Events, Get, GetResult, Listening, ObjectLine, Output, Put, PutResult,
    QueryOptions, Reload, RmOptions, RmResult, Shutdown, ShutdownTrigger, StatusReport, Transfer,
    TransferKind, Where, local,
};

/// Maximum wait for a controller's answer.
const ANSWER: Duration = Duration::from_secs(10);

/// A node in this process. Clones are the same one. Without [`Node::close`] it goes on until the runtime ends.
#[derive(Clone)]
pub struct Node {
    inner: Arc<Inner>,
}

struct Inner {
    /// Until it is closed.
    parts: Mutex<Option<Parts>>,
    listening: Option<Listening>,
    warnings: Vec<String>,
    events: EventFeed,
    /// The means to end running transfers.
    transfers: Mutex<Vec<Arc<ShutdownTrigger>>>,
}

#[derive(Clone)]
enum Parts {
    Resident(Box<Resident>),
    Guest(Box<Guest>),
}

impl Node {
    /// Opens a node. A resident one listens from now on, offers what its store holds, and joins or starts its controller; a controller
    /// elsewhere need not be there yet.
    ///
    /// # Errors
    /// An address or the state folder cannot be used, another process has the store, or the process at the
    /// controller's address does not have the pinned key. Nothing goes on then.
    pub async fn open(config: Config) -> Result<Node, AppError> {
        let (parts, listening, warnings, events) = match config.kind.clone() {
            NodeKind::Guest(at) => {
                let guest = Guest::new(config.common.clone(), at, config.quota);
                (Parts::Guest(Box::new(guest)), None, Vec::new(), EventFeed::new())
            }
            NodeKind::Resident { controller, listen, metrics, drain } => {
                let place = ResidentPlace { controller, listen, metrics, drain };
                let (resident, Opened { listening, warnings }) = Resident::open(&config, &place).await?;
                let events = resident.host.events().clone();
                (Parts::Resident(Box::new(resident)), Some(listening), warnings, events)
            }
        };
        let (parts, transfers) = (Mutex::new(Some(parts)), Mutex::default());
        Ok(Node { inner: Arc::new(Inner { parts, listening, warnings, events, transfers }) })
    }

    /// Where it listens and what it held when it was opened; a guest listens nowhere.
    pub fn listening(&self) -> Option<&Listening> {
        self.inner.listening.as_ref()
    }

    /// The address of its control links, which others give to [`Config::join`] if its controller is here; a guest has none.
    pub fn address(&self) -> Option<SocketAddr> {
        self.inner.listening.as_ref().map(|listening| listening.address)
    }

    /// Its key's fingerprint; a guest shows it only to peers that it asks.
    pub fn id(&self) -> Option<NodeId> {
        self.inner.listening.as_ref().map(|listening| listening.fingerprint)
    }

    /// Warnings for its operator about its store and its sockets, found while it was opened.
    pub fn warnings(&self) -> &[String] {
        &self.inner.warnings
    }

    /// Takes a file, a folder or what a reader gives into the store, from where it is offered to others under its name. A put that fails
    /// or is cancelled leaves nothing in the store.
    ///
    /// The transfer's errors: it cannot be read ([`AppError::Io`]), there is no room for it ([`AppError::NoRoom`]), the name is another
    /// node's ([`AppError::Failed`]), or a folder holds what cannot be delivered ([`AppError::Undeliverable`]).
    pub fn put(&self, put: impl Into<Put>) -> Transfer<PutResult> {
        let put = put.into();
        self.transfer(|parts, shutdown, reporter, events| async move {
            let mut watch = reporter.teller();
            match parts? {
                // Events are sent by the side that does the work, as they are for puts by commands.
                Parts::Resident(resident) => resident.put(put, &shutdown, &mut watch).await,
                Parts::Guest(guest) => {
                    let label = put.label();
                    let ongoing = events.begin(TransferKind::Put, &label);
                    let result = guest.put(put, &shutdown, &mut watch).await;
                    ongoing.end(&result, |put| (put.object.clone(), put.bytes));
                    result
                }
            }
        })
    }

    /// Fetches an object, or a folder with all its files, from everybody who has it, to where `output` says; [`Output::Store`] keeps and
    /// offers it. Every block is verified. What is finished stays if the transfer is cancelled or fails, and the same request goes on
    /// from there.
    ///
    /// The transfer's errors: nobody knows it ([`AppError::NotFound`]) or has all of it ([`AppError::NoSource`]), the controller cannot
    /// be reached ([`AppError::Unreachable`]), it is not what was expected ([`AppError::Verification`]), the output cannot be written
    /// ([`AppError::Usage`], [`AppError::Io`], [`AppError::NoRoom`]), or the time is over ([`AppError::TimedOut`]).
    pub fn get(&self, get: impl Into<Get>, output: Output) -> Transfer<GetResult> {
        let get = get.into();
        self.transfer(|parts, shutdown, reporter, events| async move {
            let (what, kept) = (get.what.clone(), output == Output::Store);
            match parts? {
                Parts::Resident(resident) if kept => {
                    resident.get(get, output, &shutdown, &mut reporter.teller()).await
                }
                parts => {
                    let ongoing = events.begin(TransferKind::Get, &what);
                    let result = match parts {
                        Parts::Resident(resident) => {
                            resident.get(get, output, &shutdown, &mut reporter.teller()).await
                        }
                        Parts::Guest(guest) => guest.get(get, output, &shutdown, &reporter).await,
                    };
                    ongoing.end(&result, |got| (got.object.clone(), got.bytes));
                    result
                }
            }
        })
    }

    /// Fetches several objects, each as `get` says but for its name, into the folder or the store that is `output`:
    /// some of them at a time, of a resident node one after the other. The end of each is an
    /// [`Update::Ended`](crate::Update::Ended); one that fails does not hold up the others.
    ///
    /// The transfer's errors: what concerns all of them; then nothing was fetched.
    pub fn get_several(&self, what: Vec<String>, get: Get, output: Output) -> Transfer<()> {
        self.transfer(|parts, shutdown, reporter, _| async move {
            match parts? {
                Parts::Guest(guest) => guest.get_several(&what, get, output, &shutdown, &reporter).await,
                Parts::Resident(resident) => {
                    for what in what {
                        let one = Get { hash: what.parse().ok(), what: what.clone(), ..get.clone() };
                        let result =
                            resident.get(one, output.clone(), &shutdown, &mut reporter.teller()).await;
                        reporter.ended(&what, result);
                    }
                    Ok(())
                }
            }
        })
    }

    /// Has many nodes fetch an object into their stores, the best route that the network allows. Cancelling it stops the cast; it goes on
    /// without this node if only the connection to the controller is lost.
    ///
    /// The transfer's errors: the controller cannot be reached ([`AppError::Unreachable`]), knows no such object
    /// ([`AppError::NotFound`]) or receiver, or the time is over ([`AppError::TimedOut`]). Receivers that do not have
    /// the object in the end are no error: see [`CastResult::complete`].
    pub fn cast(&self, cast: Cast) -> Transfer<CastResult> {
        self.transfer(|parts, shutdown, reporter, events| async move {
            let mut watch = reporter.teller();
            let ongoing = events.begin(TransferKind::Cast, &cast.what);
            let result = match parts? {
                Parts::Resident(resident) => resident.cast(&cast, &shutdown, &mut watch).await,
                Parts::Guest(guest) => guest.cast(&cast, &shutdown, &mut watch).await,
            };
            ongoing.end(&result, |cast| (cast.object.clone(), cast.bytes));
            result
        })
    }

    /// Events at the node from now on: objects that it offers, transfers, casts that it takes part in, and its
    /// controller. Of a guest, its own transfers only. Any number may watch.
    pub fn watch(&self) -> Events {
        self.inner.events.watch()
    }

    /// Objects in the node's store, in order of names and ids.
    ///
    /// # Errors
    /// The store cannot be read.
    pub async fn objects(&self) -> Result<Vec<ObjectLine>, AppError> {
        let common = match self.parts()? {
            Parts::Resident(resident) => return local::objects(resident.store, Some(resident.host)).await,
            Parts::Guest(guest) => guest.common,
        };
        local::ls(QueryOptions { common, controller: None, timeout: ANSWER }).await
    }

    /// Status of the controller: nodes, objects, running tasks and casts.
    ///
    /// # Errors
    /// It cannot be reached; a guest knows none.
    pub async fn status(&self) -> Result<StatusReport, AppError> {
        match self.parts()? {
            Parts::Resident(resident) => resident.host.report(resident.controller).await,
            Parts::Guest(guest) => {
                let Where::Controller(controller) = guest.at else {
                    return Err(AppError::Usage(
                        "the guest knows no controller: give its address".to_owned(),
                    ));
                };
                let (common, controller) = (guest.common, Some(controller));
                local::status(QueryOptions { common, controller, timeout: ANSWER }).await
            }
        }
    }

    /// Removes an object, or one of its names, from the node's store: by a name, an id, or the beginning of one.
    ///
    /// # Errors
    /// [`AppError::NotFound`] if there is none.
    pub async fn remove(&self, what: &str) -> Result<RmResult, AppError> {
        let what = what.to_owned();
        match self.parts()? {
            Parts::Resident(resident) => local::remove(resident.store, Some(resident.host), what).await,
            Parts::Guest(guest) => local::rm(RmOptions { common: guest.common, what }).await,
        }
    }

    /// Takes over what can change while a resident node runs; a guest has nothing of it.
    pub fn reload(&self, reload: Reload) {
        if let Ok(Parts::Resident(resident)) = self.parts() {
            resident.reload(reload);
        }
    }

    /// Closes the node without leaving anybody in the middle of an object: its own transfers are cancelled, nothing new is taken, and
    /// those who are served are served on for as long as was configured ([`Config::drain`]; a guest's for 2 s). Then as
    /// [`Node::close_now`], which may also be called meanwhile, or after this was dropped.
    pub async fn close(&self) {
        self.cancel_all();
        match self.parts() {
            Ok(Parts::Resident(resident)) => resident.drain().await,
            Ok(Parts::Guest(guest)) => guest.drain().await,
            Err(_) => return,
        }
        self.close_now().await;
    }

    /// Closes the node: transfers are cancelled, receivers that it serves turn to other sources, and sockets, threads
    /// and the store are released. The same state folder can be opened again. Closing it once more does nothing.
    pub async fn close_now(&self) {
        self.cancel_all();
        let parts = self.inner.parts.lock().unwrap_or_else(PoisonError::into_inner).take();
        match parts {
            Some(Parts::Resident(resident)) => resident.end().await,
            Some(Parts::Guest(guest)) => guest.end().await,
            None => return,
        }
        self.inner.events.tell(Event::Closed);
    }

    /// The host of a resident node.
    pub(crate) fn host(&self) -> Option<Host> {
        match self.parts() {
            Ok(Parts::Resident(resident)) => Some(resident.host),
            _ => None,
        }
    }

    fn parts(&self) -> Result<Parts, AppError> {
        let parts = self.inner.parts.lock().unwrap_or_else(PoisonError::into_inner).clone();
        parts.ok_or_else(|| AppError::Usage("the node was closed; open it again".to_owned()))
    }

    fn transfers(&self) -> MutexGuard<'_, Vec<Arc<ShutdownTrigger>>> {
        self.inner.transfers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn cancel_all(&self) {
        self.transfers().iter().for_each(|transfer| transfer.set());
    }

    fn transfer<T, F>(
        &self,
        work: impl FnOnce(Result<Parts, AppError>, Shutdown, Reporter, EventFeed) -> F,
    ) -> Transfer<T>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, AppError>> + Send + 'static,
    {
        let (parts, events) = (self.parts(), self.inner.events.clone());
        let transfer = Transfer::spawn(|shutdown, reporter| work(parts, shutdown, reporter, events));
        let mut transfers = self.transfers();
        // Those that have ended are held by nobody else.
        transfers.retain(|transfer| Arc::strong_count(transfer) > 1);
        transfers.push(transfer.trigger());
        transfer
    }
}
