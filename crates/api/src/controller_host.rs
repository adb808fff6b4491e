//! Drives a controller machine: its clock, its peers, the database that lets its tasks and names survive a restart, and its log.

mod chronicle;

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use headwater_control::Unread;
use headwater_controller::{
    Controller, ControllerCommand, ControllerConfig, ControllerEvent, ControllerView, NameRecord,
    NotForgotten, Origin, StandingRecord, TaskRecord,
};
use headwater_machine::{Endpoint, Input, Output, Packet};
use headwater_units::{NodeId, PathId, TaskId, Time};
use headwater_wire::{Body, Control, NodeInfo, StandingCast, ToController};
use redb::{Database, ReadableDatabase, ReadableTable, TableDefinition, TableHandle};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::oneshot;

use self::chronicle::Chronicle;
pub(crate) use self::chronicle::Tally;
use super::AppError;
use super::outbox::Outbox;

/// Task -> its record, postcard of [`TaskRecord`]. The digit is the format's version.
const TASKS: TableDefinition<u64, &[u8]> = TableDefinition::new("tasks 1");
/// The same before it had a version. Receivers that wait for such a task ask again.
const OLD_TASKS: &str = "tasks";
/// Name -> what it stands for, postcard of [`NameRecord`]. The digit is the format's version.
const NAMES: TableDefinition<&str, &[u8]> = TableDefinition::new("names 1");
/// Standing casts, by what they are.
const STANDING: TableDefinition<&[u8], &[u8]> = TableDefinition::new("standing casts 1");

#[expect(
    clippy::large_enum_variant,
    reason = "control messages are rare, and nothing else is handed over here"
)]
enum Order {
    Attach { path: PathId, node: NodeId, network: Option<IpAddr>, to: Outbox },
    Deliver { path: PathId, word: ToController, unread: Option<Unread> },
    Lost { path: PathId, left: bool, reason: String },
    View(oneshot::Sender<ControllerView>),
    Infos { of: Vec<NodeId>, reply: oneshot::Sender<Vec<NodeInfo>> },
    Answer(oneshot::Sender<()>),
    Forget { node: NodeId, from: Origin, reply: oneshot::Sender<Result<(), NotForgotten>> },
    Close(oneshot::Sender<()>),
}

/// A running controller. Clones are the same one; it ends when the last is dropped, or when it is closed.
#[derive(Clone)]
pub(crate) struct ControllerHost {
    orders: UnboundedSender<Order>,
    tally: Arc<Tally>,
}

impl ControllerHost {
    /// Starts one, with the tasks that the database at `state` remembers, if a path is given.
    pub(crate) fn start(config: ControllerConfig, state: Option<&Path>) -> Result<Self, AppError> {
        let returned = state.is_some_and(Path::exists);
        let database = state.map(Tasks::open).transpose()?;
        let mut machine = Controller::new(config, rand::random());
        if returned {
            let command = ControllerCommand::Returned;
            machine.handle(Time::ZERO, Input::Command(command));
        }
        for record in database.as_ref().map_or(Ok(Vec::new()), Tasks::load_standing)? {
            let command = ControllerCommand::RestoreStanding(Box::new(record));
            machine.handle(Time::ZERO, Input::Command(command));
        }
        for record in database.as_ref().map_or(Ok(Vec::new()), Tasks::load_names)? {
            let command = ControllerCommand::RestoreName(Box::new(record));
            machine.handle(Time::ZERO, Input::Command(command));
        }
        let records = database.as_ref().map_or(Ok(Vec::new()), Tasks::load)?;
        let tally = Arc::new(Tally::default());
        let mut chronicle = Chronicle::new(tally.clone());
        for record in records {
            chronicle.restored(&record);
            let command = ControllerCommand::Restore(Box::new(record));
            machine.handle(Time::ZERO, Input::Command(command));
        }
        let (orders, queue) = unbounded_channel();
        #[allow(clippy::disallowed_methods)] // The machine's clock starts here.
        let started = Instant::now();
        let (peers, names, records, standing, said, closed) = Default::default();
        let running =
            Running { machine, started, peers, database, names, records, standing, said, chronicle, closed };
        tokio::spawn(running.run(queue));
        Ok(ControllerHost { orders, tally })
    }

    fn order(&self, order: Order) {
        // The task ends only with the last handle.
        let _ = self.orders.send(order);
    }

    /// What the machine says to `path` goes to `to`; whoever is there has proved this key, and speaks from this network.
    pub(crate) fn attach(&self, path: PathId, node: NodeId, network: Option<IpAddr>, to: Outbox) {
        self.order(Order::Attach { path, node, network, to });
    }

    /// Hands in what came by `path`. While it waits, that much less is read from its sender.
    pub(crate) fn deliver(&self, path: PathId, word: ToController, unread: Option<Unread>) {
        self.order(Order::Deliver { path, word, unread });
    }

    /// The peer behind `path` is gone, for this reason; `left`: it has said so, since its process ends.
    pub(crate) fn lost(&self, path: PathId, left: bool, reason: String) {
        self.order(Order::Lost { path, left, reason });
    }

    /// True once it has come to this question; false if it has ended.
    pub(crate) async fn answers(&self) -> bool {
        let (reply, answer) = oneshot::channel();
        self.order(Order::Answer(reply));
        answer.await.is_ok()
    }

    /// Waits until it has ended.
    pub(crate) async fn ended(&self) {
        self.orders.closed().await;
    }

    /// Counts of its tasks and casts.
    pub(crate) fn tally(&self) -> &Tally {
        &self.tally
    }

    /// Snapshot of the controller's state.
    pub(crate) async fn view(&self) -> Option<ControllerView> {
        let (reply, view) = oneshot::channel();
        self.order(Order::View(reply));
        view.await.ok()
    }

    /// Introductions of these nodes, as far as they are known.
    pub(crate) async fn infos(&self, of: Vec<NodeId>) -> Vec<NodeInfo> {
        let (reply, infos) = oneshot::channel();
        self.order(Order::Infos { of, reply });
        infos.await.unwrap_or_default()
    }

    /// Writes everything down and lets go of the database; nothing is heard any more.
    pub(crate) async fn close(&self) {
        let (reply, closed) = oneshot::channel();
        self.order(Order::Close(reply));
        let _ = closed.await;
    }

    /// Drops a node that is away, for whoever asks from there.
    pub(crate) async fn forget(&self, node: NodeId, from: Origin) -> Option<Result<(), NotForgotten>> {
        let (reply, outcome) = oneshot::channel();
        self.order(Order::Forget { node, from, reply });
        outcome.await.ok()
    }
}

struct Running {
    machine: Controller,
    started: Instant,
    peers: BTreeMap<PathId, Outbox>,
    database: Option<Tasks>,
    /// Names to be written down, or to be forgotten, when nothing else is to be done: of a thousand that a node brings, one sync of the
    /// disk for all.
    names: BTreeMap<String, Option<NameRecord>>,
    /// Tasks to be written down, or to be forgotten, before any waiting message leaves: one sync of the disk for all
    /// that many receivers have asked for at the same time.
    records: BTreeMap<TaskId, Option<Box<TaskRecord>>>,
    /// Standing casts to be written down, or to be forgotten, before that too.
    standing: BTreeMap<StandingCast, Option<StandingRecord>>,
    /// Messages to send once they are.
    said: Vec<(PathId, Control)>,
    chronicle: Chronicle,
    /// Answers here when it has ended.
    closed: Option<oneshot::Sender<()>>,
}

/// Messages that wait for the disk together, at most.
const MOST_WAITING: usize = 1024;
/// Orders that are heard before timers are looked at again, at most.
const MOST_AT_ONCE: usize = 256;

impl Running {
    fn now(&self) -> Time {
        Time::from_nanos(self.started.elapsed().as_nanos() as u64)
    }

    async fn run(mut self, mut queue: UnboundedReceiver<Order>) {
        loop {
            let wake = self.drain();
            if queue.is_empty() || self.said.len() >= MOST_WAITING {
                self.say();
            }
            if queue.is_empty() {
                self.save_names();
            }
            let order = match wake {
                None => queue.recv().await,
                Some(at) => {
                    let wait = at.since(self.now()).into();
                    match tokio::time::timeout(wait, queue.recv()).await {
                        Ok(order) => order,
                        Err(_) => continue,
                    }
                }
            };
            let Some(order) = order else {
                self.say();
                return self.save_names();
            };
            self.take(order);
            // A message that came in time is heard before anybody is found to be silent.
            for _ in 0..MOST_AT_ONCE {
                let Ok(order) = queue.try_recv() else { break };
                self.take(order);
            }
            if let Some(closed) = self.closed.take() {
                self.drain();
                self.say();
                self.save_names();
                drop(self);
                let _ = closed.send(());
                return;
            }
        }
    }

    fn take(&mut self, order: Order) {
        let now = self.now();
        match order {
            Order::Attach { path, node, network, to } => {
                self.peers.insert(path, to);
                let opened = ControllerCommand::PathOpened { path, node, network };
                self.machine.handle(now, Input::Command(opened));
            }
            Order::Deliver { path, word, unread } => {
                self.machine.handle(now, Input::Packet(Packet::control(path, word)));
                drop(unread);
            }
            Order::Lost { path, left, reason } => {
                self.peers.remove(&path);
                self.chronicle.path_lost(reason);
                let command = match left {
                    true => ControllerCommand::PathLeft { path },
                    false => ControllerCommand::PathLost { path },
                };
                self.machine.handle(now, Input::Command(command));
            }
            Order::View(reply) => drop(reply.send(self.machine.view(now))),
            Order::Infos { of, reply } => {
                let known = of.iter().filter_map(|node| self.machine.info_of(*node));
                drop(reply.send(known.cloned().collect()));
            }
            Order::Answer(reply) => drop(reply.send(())),
            Order::Forget { node, from, reply } => drop(reply.send(self.forget(now, node, from))),
            Order::Close(reply) => self.closed = Some(reply),
        }
    }

    fn forget(&mut self, now: Time, node: NodeId, from: Origin) -> Result<(), NotForgotten> {
        let info = self.machine.may_forget(now, node, from)?;
        tracing::info!(node = %node, name = info.name, "node forgotten");
        let command = ControllerCommand::ForgetNode { node };
        self.machine.handle(now, Input::Command(command));
        Ok(())
    }

    /// Polls until the machine wants to wait; returns until when.
    fn drain(&mut self) -> Option<Time> {
        let now = self.now();
        loop {
            match self.machine.poll(now) {
                Output::Wake(at) => return at,
                Output::Transmit(packet) => {
                    if let Body::Control(control) = packet.datagram.body {
                        self.said.push((packet.path, *control));
                    }
                }
                Output::Event(event) => self.on_event(event),
            }
        }
    }

    /// Writes down what has changed of tasks, and then says what was waiting for it.
    fn say(&mut self) {
        let records = std::mem::take(&mut self.records);
        if !records.is_empty() {
            self.save(|tasks| tasks.put_tasks(&records));
        }
        let standing = std::mem::take(&mut self.standing);
        if !standing.is_empty() {
            self.save(|tasks| tasks.put_standing(&standing));
        }
        for (path, control) in self.said.drain(..) {
            if let Some(peer) = self.peers.get(&path) {
                peer.say(control);
            }
        }
    }

    fn on_event(&mut self, event: ControllerEvent) {
        self.chronicle.on_event(&event);
        match event {
            ControllerEvent::Persist(record) => drop(self.records.insert(record.task, Some(record))),
            ControllerEvent::Forget { task, .. } => drop(self.records.insert(task, None)),
            ControllerEvent::NameChanged(record) => {
                self.names.insert(record.naming.name.clone(), Some(*record));
            }
            ControllerEvent::NameForgotten { name } => drop(self.names.insert(name, None)),
            ControllerEvent::StandingBegun(record) => {
                self.standing.insert(record.cast.clone(), Some(*record));
            }
            ControllerEvent::StandingEnded(cast) => drop(self.standing.insert(*cast, None)),
            ControllerEvent::NodeUp(_)
            | ControllerEvent::NodeDown { .. }
            | ControllerEvent::CastBegun(_)
            | ControllerEvent::CastOver { .. } => {}
        }
    }

    fn save_names(&mut self) {
        let names = std::mem::take(&mut self.names);
        if !names.is_empty() {
            self.save(|tasks| tasks.put_names(&names));
        }
    }

    fn save(&mut self, change: impl FnOnce(&Tasks) -> Result<(), AppError>) {
        if let Some(tasks) = &self.database {
            self.chronicle.saved(change(tasks));
        }
    }
}

/// The database of running tasks and of names.
struct Tasks {
    database: Database,
    path: PathBuf,
}

impl Tasks {
    fn open(path: &Path) -> Result<Self, AppError> {
        if let Some(folder) = path.parent() {
            std::fs::create_dir_all(folder).map_err(|e| AppError::state(folder, e))?;
        }
        let database = Database::create(path).map_err(|e| AppError::state(path, e))?;
        let tasks = Tasks { database, path: path.to_owned() };
        tasks.refuse_newer()?;
        tasks.change(|_| Ok(()))?;
        tasks.put_names(&BTreeMap::new())?;
        tasks.put_standing(&BTreeMap::new())?;
        Ok(tasks)
    }

    /// Refuses a database that a newer program has written.
    fn refuse_newer(&self) -> Result<(), AppError> {
        let known = [TASKS.name(), NAMES.name(), STANDING.name(), OLD_TASKS];
        let tables = || -> Result<Vec<String>, redb::Error> {
            let transaction = self.database.begin_read()?;
            let tables = transaction.list_tables()?;
            Ok(tables.map(|table| table.name().to_owned()).collect())
        };
        let tables = tables().map_err(|e| AppError::state(&self.path, e))?;
        match tables.into_iter().find(|table| !known.contains(&&table[..])) {
            None => Ok(()),
            Some(table) => Err(AppError::Failed(format!(
                "{} was written by a newer headwater (table {table:?}): install that version here, or choose another folder with --state",
                self.path.display()
            ))),
        }
    }

    fn load_names(&self) -> Result<Vec<NameRecord>, AppError> {
        self.records(NAMES, "a name")
    }

    fn load_standing(&self) -> Result<Vec<StandingRecord>, AppError> {
        self.records(STANDING, "a standing cast")
    }

    /// All records of a table, each `of` this.
    fn records<K: redb::Key + 'static, T: serde::de::DeserializeOwned>(
        &self,
        table: TableDefinition<K, &'static [u8]>,
        of: &str,
    ) -> Result<Vec<T>, AppError> {
        let read = || -> Result<Vec<T>, redb::Error> {
            let table = self.database.begin_read()?.open_table(table)?;
            let mut records = Vec::new();
            for entry in table.iter()? {
                let record = postcard::from_bytes(entry?.1.value());
                records.push(record.map_err(|e| redb::Error::Corrupted(format!("record of {of}: {e}")))?);
            }
            Ok(records)
        };
        read().map_err(|e| AppError::state(&self.path, e))
    }

    /// Writes records of names down, and forgets those that have none any more.
    fn put_names(&self, names: &BTreeMap<String, Option<NameRecord>>) -> Result<(), AppError> {
        let write = || -> Result<(), redb::Error> {
            let transaction = self.database.begin_write()?;
            {
                let mut table = transaction.open_table(NAMES)?;
                for (name, record) in names {
                    match record {
                        Some(record) => {
                            let bytes = postcard::to_stdvec(record).expect("a record can be written");
                            table.insert(&name[..], &bytes[..])?;
                        }
                        None => drop(table.remove(&name[..])?),
                    }
                }
            }
            transaction.commit()?;
            Ok(())
        };
        write().map_err(|e| AppError::state(&self.path, e))
    }

    /// Writes records of standing casts down, and forgets those that have none any more.
    fn put_standing(&self, casts: &BTreeMap<StandingCast, Option<StandingRecord>>) -> Result<(), AppError> {
        let write = || -> Result<(), redb::Error> {
            let transaction = self.database.begin_write()?;
            {
                let mut table = transaction.open_table(STANDING)?;
                for (cast, record) in casts {
                    let key = postcard::to_stdvec(cast).expect("a cast can be written");
                    match record {
                        Some(record) => {
                            let bytes = postcard::to_stdvec(record).expect("a record can be written");
                            table.insert(&key[..], &bytes[..])?;
                        }
                        None => drop(table.remove(&key[..])?),
                    }
                }
            }
            transaction.commit()?;
            Ok(())
        };
        write().map_err(|e| AppError::state(&self.path, e))
    }

    fn load(&self) -> Result<Vec<TaskRecord>, AppError> {
        let read = || -> Result<Vec<TaskRecord>, redb::Error> {
            let table = self.database.begin_read()?.open_table(TASKS)?;
            let mut records = Vec::new();
            for entry in table.iter()? {
                // A record of an older version is of no use: its receiver will ask again.
                if let Ok(record) = postcard::from_bytes(entry?.1.value()) {
                    records.push(record);
                }
            }
            Ok(records)
        };
        read().map_err(|e| AppError::state(&self.path, e))
    }

    /// Writes records of tasks down, and forgets those that have none any more. Of a task that was never written down, as those of trees,
    /// nothing need be removed: that would be a sync of the disk, and what others say would wait for it.
    fn put_tasks(&self, records: &BTreeMap<TaskId, Option<Box<TaskRecord>>>) -> Result<(), AppError> {
        let known = || -> Result<Vec<TaskId>, redb::Error> {
            let table = self.database.begin_read()?.open_table(TASKS)?;
            let gone = records.iter().filter(|(_, record)| record.is_none());
            let mut known = Vec::new();
            for (task, _) in gone {
                known.extend(table.get(task.0)?.map(|_| *task));
            }
            Ok(known)
        };
        let known = known().map_err(|e| AppError::state(&self.path, e))?;
        let kept = || records.values().flatten();
        if known.is_empty() && kept().next().is_none() {
            return Ok(());
        }
        self.change(|table| {
            for task in &known {
                table.remove(task.0)?;
            }
            for record in kept() {
                let bytes = postcard::to_stdvec(record).expect("a record can be written");
                table.insert(record.task.0, bytes.as_slice())?;
            }
            Ok(())
        })
    }

    fn change(
        &self,
        change: impl FnOnce(&mut redb::Table<'_, u64, &[u8]>) -> Result<(), redb::StorageError>,
    ) -> Result<(), AppError> {
        let write = || -> Result<(), redb::Error> {
            let transaction = self.database.begin_write()?;
            change(&mut transaction.open_table(TASKS)?)?;
            transaction.commit()?;
            Ok(())
        };
        write().map_err(|e| AppError::state(&self.path, e))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(task: u64) -> Box<TaskRecord> {
        Box::new(TaskRecord {
            task: TaskId(task),
            request: 1,
            receiver: NodeId([1; 32]),
            object: headwater_units::ObjectId([2; 32]),
            bytes: headwater_units::Bytes::mib(1),
            name: "model".to_owned(),
            symbol_size: 1000,
            class: Default::default(),
            spread: Default::default(),
            delivery: Default::default(),
            max_sources: 3,
            residue_classes: 64,
            flows_version: task as u32,
            flows: Vec::new(),
            distrusted: Vec::new(),
        })
    }

    #[test]
    fn tasks_are_written_down_together_and_of_those_never_written_nothing_is_removed() {
        let folder = tempfile::tempdir().unwrap();
        let tasks = Tasks::open(&folder.path().join("controller.redb")).unwrap();
        let put = |records: Vec<(u64, Option<Box<TaskRecord>>)>| {
            tasks.put_tasks(&records.into_iter().map(|(task, it)| (TaskId(task), it)).collect()).unwrap();
            tasks.load().unwrap().iter().map(|record| record.task.0).collect::<Vec<_>>()
        };
        assert_eq!(put(vec![(1, Some(record(1))), (2, Some(record(2))), (3, None)]), [1, 2]);
        assert_eq!(put(vec![(4, None)]), [1, 2]);
        assert_eq!(put(vec![(1, None), (2, Some(record(2))), (5, Some(record(5)))]), [2, 5]);
    }

    #[test]
    fn what_a_newer_program_has_written_is_refused_by_name_and_left_alone() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("controller.redb");
        drop(Tasks::open(&path).unwrap());
        const NEWER: TableDefinition<u64, u64> = TableDefinition::new("tasks 2");
        let database = Database::create(&path).unwrap();
        let transaction = database.begin_write().unwrap();
        transaction.open_table(NEWER).unwrap();
        transaction.commit().unwrap();
        drop(database);
        let refused = Tasks::open(&path).err().unwrap().to_string();
        assert!(refused.contains("newer headwater") && refused.contains("tasks 2"), "{refused}");
        assert!(Database::open(&path).unwrap().begin_read().unwrap().open_table(NEWER).is_ok());
    }
}
