//! Two nodes in one process, over loopback: an object is put at the first, fetched and kept by the second, and cast to it.
//!
//! `cargo run -p headwater-api --example two_nodes`

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use headwater_api::{
    AppError, Cast, CastResult, Config, Event, GetResult, Node, Output, Put, PutResult, Receivers, Update,
};
use headwater_units::Duration;

/// Results of the example.
pub struct Story {
    /// The object that was put at the first node.
    pub put: PutResult,
    /// The second node's get of it, to a file.
    pub got: GetResult,
    /// Where that file is.
    pub file: PathBuf,
    /// How far the get was, each time that it told.
    pub progress: usize,
    /// The first node's cast of something that was read.
    pub cast: CastResult,
    /// Events at the second node.
    pub events: Vec<Event>,
}

/// Any free port of loopback.
const ANYWHERE: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 0);

/// Does it all in a folder, and closes both nodes.
///
/// # Errors
/// As the nodes have them.
pub async fn tell(folder: &Path, content: &[u8]) -> Result<Story, AppError> {
    let file = folder.join("model.bin");
    std::fs::write(&file, content).map_err(|e| AppError::io("cannot write the file", e))?;

    // The first has the controller; the second joins it.
    let settings =
        |name: &str| Config::new(folder.join(name)).name(name).listen(ANYWHERE).drain(Duration::from_secs(2));
    let first = Node::open(settings("first")).await?;
    let address = first.address().expect("a resident node listens");
    let second = Node::open(settings("second").join(address.to_string())).await?;

    let mut watched = second.watch();
    let watching = tokio::spawn(async move {
        let mut events = Vec::new();
        while let Some(event) = watched.next().await {
            println!("second: {event:?}");
            events.push(event);
        }
        events
    });

    let put = first.put(Put::path(&file)).await?;
    println!("put {} as {:?}", put.object, put.name);

    // Followed while it runs; `get.cancel()` would end it.
    let copy = folder.join("copy.bin");
    let mut get = second.get("model.bin", Output::File(copy.clone()));
    let mut progress = 0;
    while let Some(update) = get.next().await {
        match update {
            Update::Progress(at) => {
                progress += 1;
                println!("{} of {} bytes at {}", at.bytes_done, at.bytes_total, at.rate);
            }
            Update::Note(line) => println!("{line}"),
            _ => {}
        }
    }
    let got = get.await?;

    // Bytes from a reader need a name; a node that gets them by a cast keeps and serves them.
    let news = std::io::Cursor::new(content.to_ascii_uppercase());
    first.put(Put::reader("the news", news).name("news")).await?;
    let cast = first.cast(Cast::new("news", Receivers::Named(vec!["second".to_owned()]))).await?;
    println!("{} of {} receivers have it", cast.receivers.len(), cast.receivers.len());

    first.close().await;
    second.close().await;
    let events = watching.await.expect("nothing panics there");
    Ok(Story { put, got, file: copy, progress, cast, events })
}

#[tokio::main]
async fn main() -> Result<(), AppError> {
    let folder = std::env::temp_dir().join(format!("two-nodes-{}", std::process::id()));
    std::fs::create_dir_all(&folder).map_err(|e| AppError::io("cannot make a folder", e))?;
    let told = tell(&folder, &b"an object that is worth having twice ".repeat(100_000)).await;
    let _ = std::fs::remove_dir_all(&folder);
    let Story { got, file, cast, events, progress, .. } = told?;
    println!(
        "fetched {} bytes to {} in {:.3} s, told {progress} times",
        got.bytes,
        file.display(),
        got.seconds
    );
    println!("cast {}: {} events at the second node", cast.object, events.len());
    Ok(())
}
