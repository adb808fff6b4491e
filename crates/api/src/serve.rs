//! `headwater serve`: files and folders offered in place; nothing is copied.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use headwater_store::{BlockHashes, FolderListing, NameFacts, SourceFile};
use headwater_units::{Bytes, ObjectId};

use super::host::{Held, Host, HostConfig, given};
use super::put::{left_out, own_name};
use super::{
    AppError, LeftOut, Listening, NODE_PORT, ObjectLine, Phase, Progress, Reload, Reloads, ServeOptions,
    Shutdown, Watch, data_config, drain, metrics_page, service, tape, wildcard,
};
use headwater_driver::NodeConfig;

/// Offers the files until told to stop.
///
/// # Errors
/// A file cannot be read, or an address cannot be used.
pub async fn serve(
    options: ServeOptions,
    shutdown: &Shutdown,
    reloads: Reloads,
    watch: &mut dyn Watch,
    ready: impl FnOnce(&Listening),
) -> Result<(), AppError> {
    let common = &options.common;
    let mut objects: Vec<(ObjectId, Held)> = Vec::new();
    let mut not_offered = Vec::new();
    for path in &options.files {
        if shutdown.is_set() {
            return Err(AppError::Interrupted { resumable: false });
        }
        let (held, left_out) = prepare(&options, path, watch).await?;
        objects.extend(held);
        not_offered.extend(left_out);
    }
    let listen = options.listen.unwrap_or_else(|| wildcard(NODE_PORT));
    let mut bind = listen;
    bind.set_port(common.data_port);
    let record_source = tape(options.record.as_deref())?;
    let node = NodeConfig { record_source, ..data_config(common, bind)? };
    let host = Host::start(HostConfig {
        common,
        listen: Some(listen),
        controller: None,
        node: Some(node),
        passes_on: true,
    })?;
    if let Some(hint) = host.node().buffer_hint() {
        watch.note(hint);
    }
    for (object, held) in &objects {
        host.hold(*object, held.clone());
    }
    if let Some(at) = &options.metrics {
        metrics_page::start(*at, host.clone(), "serve").await?;
    }
    if let Some(controller) = &options.controller {
        let path = host.new_path();
        host.asks_for_names(path);
        host.ops().join(path, controller);
        host.keep_dialled(path, controller, true).await?;
    }
    let listening = listening(&host, objects.iter().map(|(id, held)| (*id, held)));
    ready(&Listening { left_out: not_offered, ..listening });
    service::ready();
    service::keep_alive(&host);
    let mut patience = options.drain;
    let apply = |reload: Reload| {
        patience = reload.drain;
        restate(&host, reload);
    };
    drain::stay(host.ops().end_of_a_part(), shutdown, reloads, apply).await?;
    service::stopping("draining");
    drain::drain(&host, patience.into()).await;
    host.close().await;
    Ok(())
}

/// Takes over what a source can while it runs.
pub(super) fn restate(host: &Host, reload: Reload) {
    host.node().limit(reload.limit);
    host.restate(reload.rack, reload.labels);
}

/// Output once a process listens.
pub(super) fn listening<'a>(host: &Host, held: impl Iterator<Item = (ObjectId, &'a Held)>) -> Listening {
    let address = host.listen().expect("a serving process listens");
    let lines = held.filter(|(_, h)| !h.names.is_empty()).flat_map(|(object, held)| {
        held.names.keys().map(move |name| ObjectLine {
            object,
            name: Some(name.clone()),
            bytes: held.file.size(),
            holders: vec![address.to_string()],
        })
    });
    Listening {
        address,
        data_address: host.data_address(),
        fingerprint: host.id(),
        objects: lines.collect(),
        left_out: Vec::new(),
    }
}

/// Hashes a file, or a folder with everything in it.
async fn prepare(options: &ServeOptions, path: &Path, watch: &mut dyn Watch) -> Result<Scanned, AppError> {
    let meta = std::fs::metadata(path).map_err(|e| match e.kind() {
        std::io::ErrorKind::NotFound => AppError::NotFound(format!("no such file: {}", path.display())),
        _ => AppError::io(format!("cannot read {}", path.display()), e),
    })?;
    let name = match &options.name {
        Some(name) => Some(name.clone()),
        None => own_name(path)?,
    };
    name.as_deref().map_or(Ok(()), headwater_store::check_name)?;
    let label = path.display().to_string();
    let mut shown = |(done, total): (Bytes, Bytes)| {
        watch.progress(&Progress {
            object: label.clone(),
            bytes_done: done.get(),
            bytes_total: total.get(),
            phase: Phase::Hashing,
            ..Progress::default()
        });
    };
    let folder = meta.is_dir().then(|| Folder {
        path: path.to_owned(),
        label: label.clone(),
        name: name.clone(),
        manifests: options.common.state.join("manifests"),
        skip_special: options.skip_special,
        times: options.times,
    });
    let path = path.to_owned();
    let (done, mut progress) = tokio::sync::mpsc::unbounded_channel();
    let work = tokio::task::spawn_blocking(move || {
        let mut report = |bytes: Bytes, total: Bytes| {
            let _ = done.send((bytes, total));
        };
        match folder {
            None => {
                let total = Bytes::new(meta.len());
                let (file, hashes) = SourceFile::hash(&path, &mut |bytes| report(bytes, total))?;
                Ok((vec![held(file, hashes, name)], Vec::new()))
            }
            Some(folder) => folder.scan(&mut report),
        }
    });
    while let Some(news) = progress.recv().await {
        shown(news);
    }
    let (objects, left_out): Scanned =
        work.await.map_err(|e| AppError::Failed(e.to_string()))?.map_err(|e: AppError| e)?;
    left_out.iter().for_each(|it| watch.note(&format!("left out: {it}")));
    Ok((objects, left_out))
}

/// An object ready to be offered.
pub(super) fn held(file: SourceFile, hashes: BlockHashes, name: Option<String>) -> (ObjectId, Held) {
    let names: BTreeMap<String, NameFacts> =
        name.into_iter().map(|name| (name, given(hashes.root()))).collect();
    (hashes.root(), Held { file: Arc::new(file), hashes, names })
}

type Scanned = (Vec<(ObjectId, Held)>, Vec<LeftOut>);

/// A folder to be offered.
struct Folder {
    path: PathBuf,
    /// As the user calls it.
    label: String,
    name: Option<String>,
    /// Where manifests are kept.
    manifests: PathBuf,
    skip_special: bool,
    times: bool,
}

impl Folder {
    /// A folder is a manifest and the files that it names.
    fn scan(self, report: &mut dyn FnMut(Bytes, Bytes)) -> Result<Scanned, AppError> {
        let listing = FolderListing::of(&self.path)?;
        let left_out = left_out(&listing, &self.label, self.skip_special)?;
        let total = listing.total_bytes();
        let mut objects = Vec::new();
        let mut each = |path: &Path, progress: &mut dyn FnMut(Bytes)| {
            let (file, hashes) = SourceFile::hash(path, progress)?;
            objects.push(held(file, hashes.clone(), None));
            Ok(hashes)
        };
        let manifest = listing.scan(self.times, &mut each, &mut |bytes| report(bytes, total))?;
        let file = write_manifest(&self.manifests, &manifest.encode())?;
        let (file, hashes) = SourceFile::hash(&file, &mut |_| {})?;
        objects.push(held(file, hashes, self.name));
        Ok((objects, left_out))
    }
}

fn write_manifest(folder: &Path, bytes: &[u8]) -> Result<PathBuf, AppError> {
    let write = || -> std::io::Result<PathBuf> {
        std::fs::create_dir_all(folder)?;
        let path = folder.join(BlockHashes::of_bytes(bytes).root().to_string());
        // Another process may be serving the same folder from this file: never write into it.
        if std::fs::read(&path).is_ok_and(|there| there == bytes) {
            return Ok(path);
        }
        let fresh = folder.join(format!(".{}.new", std::process::id()));
        std::fs::write(&fresh, bytes)?;
        std::fs::rename(&fresh, &path)?;
        Ok(path)
    };
    write().map_err(|e| AppError::state(folder, e))
}
