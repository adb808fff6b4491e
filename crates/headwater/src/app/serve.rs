//! `headwater serve`: files and folders as they lie, offered to receivers; nothing is copied.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use headwater_store::{BlockHashes, FolderScan, SourceFile};
use headwater_units::{Bytes, ObjectId};

use super::host::{Held, Host, HostConfig};
use super::{
    AppError, Common, Listening, NODE_PORT, ObjectLine, Phase, Progress, ServeOptions, Shutdown, Watch,
    data_config, metrics_page, tape, wildcard,
};
use crate::node::NodeConfig;

/// Offers the files until told to stop.
///
/// # Errors
/// A file cannot be read, or an address cannot be used.
pub async fn serve(
    options: ServeOptions,
    shutdown: &Shutdown,
    watch: &mut dyn Watch,
    ready: impl FnOnce(&Listening),
) -> Result<(), AppError> {
    let common = &options.common;
    let mut objects: Vec<(ObjectId, Held)> = Vec::new();
    for path in &options.files {
        if shutdown.is_set() {
            return Err(AppError::Interrupted { resumable: false });
        }
        objects.extend(prepare(common, path, options.name.as_deref(), watch).await?);
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
        metrics_page::start(*at, host.clone()).await?;
    }
    if let Some(controller) = &options.controller {
        host.keep_dialled(host.new_path(), controller, true).await?;
    }
    ready(&listening(&host, objects.iter().map(|(id, held)| (*id, held))));
    shutdown.wait().await;
    host.close().await;
    Ok(())
}

/// What is printed once a process listens.
pub(super) fn listening<'a>(host: &Host, held: impl Iterator<Item = (ObjectId, &'a Held)>) -> Listening {
    let address = host.listen().expect("a serving process listens");
    let lines = held.filter(|(_, h)| !h.names.is_empty()).flat_map(|(object, held)| {
        held.names.iter().map(move |name| ObjectLine {
            object,
            name: Some(name.clone()),
            bytes: held.file.size(),
            holders: vec![address.to_string()],
        })
    });
    Listening { address, data_address: host.data_address(), fingerprint: host.id(), objects: lines.collect() }
}

/// Hashes a file, or a folder with everything in it.
async fn prepare(
    common: &Common,
    path: &Path,
    name: Option<&str>,
    watch: &mut dyn Watch,
) -> Result<Vec<(ObjectId, Held)>, AppError> {
    let meta = std::fs::metadata(path).map_err(|e| match e.kind() {
        std::io::ErrorKind::NotFound => AppError::NotFound(format!("no such file: {}", path.display())),
        _ => AppError::io(format!("cannot read {}", path.display()), e),
    })?;
    let name = match name {
        Some(name) => name.to_owned(),
        None => own_name(path)?,
    };
    let label = path.display().to_string();
    let mut shown = |done: Bytes| {
        watch.progress(&Progress {
            object: label.clone(),
            bytes_done: done.get(),
            bytes_total: if meta.is_file() { meta.len() } else { 0 },
            phase: Phase::Hashing,
            ..Progress::default()
        });
    };
    let (path, folder) = (path.to_owned(), meta.is_dir());
    let manifests = common.state.join("manifests");
    let (done, mut progress) = tokio::sync::mpsc::unbounded_channel();
    let work = tokio::task::spawn_blocking(move || {
        let mut report = |bytes: Bytes| {
            let _ = done.send(bytes);
        };
        match folder {
            false => {
                let (file, hashes) = SourceFile::hash(&path, &mut report)?;
                Ok((vec![held(file, hashes, Some(name))], Vec::new()))
            }
            true => scan(&path, name, &manifests, &mut report),
        }
    });
    while let Some(bytes) = progress.recv().await {
        shown(bytes);
    }
    let (objects, skipped): (_, Vec<String>) =
        work.await.map_err(|e| AppError::Failed(e.to_string()))?.map_err(|e: AppError| e)?;
    for line in skipped {
        watch.note(&line);
    }
    Ok(objects)
}

fn own_name(path: &Path) -> Result<String, AppError> {
    let absolute = std::fs::canonicalize(path)
        .map_err(|e| AppError::io(format!("cannot read {}", path.display()), e))?;
    let name = path.file_name().or(absolute.file_name()).and_then(|n| n.to_str());
    name.map(str::to_owned).ok_or_else(|| {
        AppError::Usage(format!(
            "{} has no name that others could ask for; give one with --name",
            path.display()
        ))
    })
}

/// An object ready to be offered.
pub(super) fn held(file: SourceFile, hashes: BlockHashes, name: Option<String>) -> (ObjectId, Held) {
    let names: BTreeSet<String> = name.into_iter().collect();
    (hashes.root(), Held { file: Arc::new(file), hashes, names })
}

type Scanned = (Vec<(ObjectId, Held)>, Vec<String>);

/// A folder is a manifest and the files that it names.
fn scan(
    path: &Path,
    name: String,
    manifests: &Path,
    report: &mut dyn FnMut(Bytes),
) -> Result<Scanned, AppError> {
    let mut objects = Vec::new();
    let scanned = FolderScan::of(
        path,
        &mut |file, hashes| {
            objects.push(held(file, hashes, None));
            Ok(())
        },
        report,
    )?;
    let file = write_manifest(manifests, &scanned.manifest.encode())?;
    let (file, hashes) = SourceFile::hash(&file, &mut |_| {})?;
    objects.push(held(file, hashes, Some(name)));
    let skipped =
        scanned.skipped.iter().map(|s| format!("left out: {} ({})", s.path.display(), s.reason)).collect();
    Ok((objects, skipped))
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
