//! A node in one process with others: what the example does, cancelling, closing, and opening again.

use std::io::Read;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::sync::mpsc;

use headwater_api::{
    AppError, Cast, Common, Config, Event, Get, Node, Outcome, Output, Put, Receivers, TransferKind, Where,
};
use headwater_units::{BitRate, Bytes, Duration};

#[path = "../examples/two_nodes.rs"]
#[allow(dead_code, unreachable_pub, reason = "the example is a program of its own")]
mod two_nodes;

fn config(state: &Path) -> Config {
    Config::new(state).listen(SocketAddr::from((Ipv4Addr::LOCALHOST, 0))).drain(Duration::from_secs(2))
}

fn content(len: usize) -> Vec<u8> {
    (0..len).map(|at| ((at * 7919) >> 3) as u8).collect()
}

/// Goal: an object that was put at one node is fetched and cast to another one, and a watcher hears of it.
#[tokio::test(flavor = "multi_thread")]
async fn two_nodes_put_get_and_cast() {
    let folder = tempfile::tempdir().unwrap();
    let bytes = content(3_000_000);
    let told = two_nodes::tell(folder.path(), &bytes).await.unwrap();
    assert_eq!(std::fs::read(&told.file).unwrap(), bytes);
    assert_eq!(
        (told.got.object.clone(), told.got.bytes, told.got.verified),
        (told.put.object, 3_000_000, true)
    );
    assert_eq!(told.got.sources.len(), 1, "{:?}", told.got.sources);
    assert!(told.progress > 0);
    assert!(told.cast.complete, "{:?}", told.cast);
    let done = |wanted: TransferKind| {
        let of = |event: &Event| match event {
            Event::TransferEnded { transfer, outcome: Outcome::Done { object, .. } }
                if transfer.kind == wanted =>
            {
                Some(object.clone())
            }
            _ => None,
        };
        told.events.iter().filter_map(of).collect::<Vec<_>>()
    };
    assert_eq!(done(TransferKind::Get), [told.got.object, told.cast.object.clone()], "{:?}", told.events);
    let offered = |event: &Event| {
        matches!(event, Event::ObjectOffered { object, names, .. }
            if object.to_string() == told.cast.object && *names == ["news"])
    };
    assert!(told.events.iter().any(offered), "{:?}", told.events);
    let joined = |event: &Event| matches!(event, Event::CastJoined { name, .. } if name == "news");
    assert_eq!(told.events.iter().filter(|event| joined(event)).count(), 1, "{:?}", told.events);
    assert_eq!(told.events.last(), Some(&Event::Closed));
}

/// Goal: a node that was closed has let go of its store and its port, and has what it had when it is opened again.
#[tokio::test(flavor = "multi_thread")]
async fn a_closed_node_can_be_opened_again_at_the_same_place() {
    let folder = tempfile::tempdir().unwrap();
    let node = Node::open(config(folder.path())).await.unwrap();
    let put = node.put(Put::reader("bytes", &b"some bytes"[..]).name("a")).await.unwrap();
    let (id, at) = (node.id(), node.address().unwrap());
    let mut events = node.watch();
    node.close().await;
    node.close().await;
    assert_eq!(events.next().await, Some(Event::Closed));
    assert_eq!(events.next().await, None);
    let refused = node.get("a", Output::Store).await;
    assert!(matches!(&refused, Err(AppError::Usage(text)) if text.contains("closed")), "{refused:?}");

    let again = Node::open(config(folder.path()).listen(at)).await.unwrap();
    assert_eq!((again.id(), again.address()), (id, Some(at)));
    let objects = again.objects().await.unwrap();
    assert!(matches!(&objects[..], [one] if one.object.to_string() == put.object), "{objects:?}");
    let file = folder.path().join("a");
    again.get("a", Output::File(file.clone())).await.unwrap();
    assert_eq!(std::fs::read(file).unwrap(), b"some bytes");
    assert_eq!(again.remove("a").await.unwrap().object, put.object);
    assert!(again.objects().await.unwrap().is_empty());
    again.close().await;
}

/// Goal: an object has so many names at a node, and a further one is refused in words, not forgotten.
#[tokio::test(flavor = "multi_thread")]
async fn a_name_too_many_is_refused_and_the_others_stay() {
    let folder = tempfile::tempdir().unwrap();
    let node = Node::open(config(folder.path())).await.unwrap();
    for n in 0..16 {
        node.put(Put::reader("bytes", &b"some bytes"[..]).name(format!("name-{n}"))).await.unwrap();
    }
    let refused = node.put(Put::reader("bytes", &b"some bytes"[..]).name("one too many")).await;
    assert!(
        matches!(&refused, Err(AppError::Failed(text)) if text.contains("'one too many' is not given") && text.contains("16 names")),
        "{refused:?}"
    );
    for n in 0..16 {
        let file = folder.path().join(format!("file-{n}"));
        node.get(format!("name-{n}"), Output::File(file)).await.unwrap();
    }
    node.close().await;
}

/// A reader that gives nothing until its test says so.
struct Waiting(mpsc::Receiver<()>);

impl Read for Waiting {
    fn read(&mut self, _: &mut [u8]) -> std::io::Result<usize> {
        let _ = self.0.recv();
        Ok(0)
    }
}

/// Goal: a put that is cancelled ends although its reader does not, and leaves nothing.
#[tokio::test(flavor = "multi_thread")]
async fn a_cancelled_put_leaves_nothing_and_waits_for_no_reader() {
    let folder = tempfile::tempdir().unwrap();
    let node = Node::open(config(folder.path())).await.unwrap();
    let mut events = node.watch();
    let (open, reader) = mpsc::channel();
    let put = node.put(Put::reader("nothing", Waiting(reader)).name("a"));
    while !matches!(events.next().await, Some(Event::TransferBegun(_))) {}
    put.cancel();
    assert!(matches!(put.await, Err(AppError::Interrupted { .. })));
    assert!(node.objects().await.unwrap().is_empty());
    drop(open);
    node.close().await;
}

/// Goal: a get that is cancelled in the middle goes on from there when it is asked for again, and a node that is closed cancels its
/// transfers.
#[tokio::test(flavor = "multi_thread")]
async fn a_cancelled_get_goes_on_from_where_it_was() {
    let folder = tempfile::tempdir().unwrap();
    let bytes = content(4 << 20);
    let source = Node::open(config(&folder.path().join("source"))).await.unwrap();
    source.put(Put::reader("bytes", std::io::Cursor::new(bytes.clone())).name("a")).await.unwrap();
    let at = source.address().unwrap().to_string();

    // Slow enough to be seen in the middle: four seconds for all of it.
    let slow = Common { limit: Some(BitRate::new(8_000_000)), ..Common::new(folder.path().join("guest")) };
    let guest = Node::open(Config::guest(slow, Where::Controller(at.clone()))).await.unwrap();
    let file = folder.path().join("a");
    let mut get = guest.get("a", Output::File(file.clone()));
    while let Some(update) = get.next().await {
        if matches!(update, headwater_api::Update::Progress(at) if at.bytes_done > 0) {
            break;
        }
    }
    guest.close().await;
    assert!(matches!(get.await, Err(AppError::Interrupted { resumable: true })));
    assert!(!file.exists());

    let common = Common::new(folder.path().join("guest"));
    let guest = Node::open(Config::guest(common, Where::Controller(at))).await.unwrap();
    let got =
        guest.get(Get::new("a").timeout(Duration::from_secs(60)), Output::File(file.clone())).await.unwrap();
    assert!(got.resumed_bytes > 0, "{got:?}");
    assert_eq!(std::fs::read(&file).unwrap(), bytes);

    // A range of it, and what a guest cannot do.
    let part = folder.path().join("part");
    let range = Get::new("a").range(Bytes::new(10), Some(Bytes::new(20)));
    guest.get(range, Output::File(part.clone())).await.unwrap();
    assert_eq!(std::fs::read(&part).unwrap().len(), 10);
    let unknown = guest.cast(Cast::new("a", Receivers::Named(vec!["nobody".to_owned()]))).await;
    assert!(matches!(unknown, Err(AppError::NotFound(_))), "{unknown:?}");
    guest.close().await;
    source.close().await;
}
