//! One hash per table of every shipped experiment at small scale: `scripts/golden` compares them with the committed ones.
//!
//! A line is `EXPERIMENT ENGINE TABLE HASH`, where the hash is BLAKE3 over names, kinds and exact bits of all columns. Arguments: ids of
//! experiments (`ppush/fig8`), or none for all.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use headwater_experiment::experiment::{Experiment, Job, Scale};
use headwater_experiment::run::run_job;
use headwater_experiment::table::{Column, Table, Tables};

const FOLDERS: [&str; 8] = ["ppush", "scdp", "datacast", "pam", "courier", "bench", "emulate", "scale"];

/// Every experiment file, by id.
fn shipped(wanted: &[String]) -> BTreeMap<String, String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../experiments");
    let mut found = BTreeMap::new();
    for folder in FOLDERS {
        for entry in std::fs::read_dir(root.join(folder)).expect("the repository has experiments") {
            let path = entry.expect("the folder can be read").path();
            if path.extension().is_some_and(|ending| ending == "toml") {
                let id = format!("{folder}/{}", path.file_stem().expect("a file has a name").display());
                if wanted.is_empty() || wanted.contains(&id) {
                    found.insert(id, std::fs::read_to_string(&path).expect("an experiment can be read"));
                }
            }
        }
    }
    found
}

fn hash(table: &Table) -> blake3::Hash {
    let mut hasher = blake3::Hasher::new();
    for (name, column) in &table.columns {
        hasher.update(name.as_bytes()).update(&[0]);
        let bytes: Vec<u8> = match column {
            Column::F64(values) => values.iter().flat_map(|value| value.to_bits().to_be_bytes()).collect(),
            Column::U64(values) => values.iter().flat_map(|value| value.to_be_bytes()).collect(),
            Column::Text(values) => values.iter().flat_map(|text| [text.as_bytes(), &[0]].concat()).collect(),
        };
        hasher.update(&bytes);
    }
    hasher.finalize()
}

/// The tables of jobs, in their order, from a thread per processor.
fn run(jobs: &[(String, Job)]) -> Vec<Option<Tables>> {
    let (next, done) = (AtomicUsize::new(0), Mutex::new(vec![None; jobs.len()]));
    let work = || {
        while let Some((at, (id, job))) =
            Some(next.fetch_add(1, Ordering::Relaxed)).and_then(|at| Some((at, jobs.get(at)?)))
        {
            match run_job(job, &mut |_| {}) {
                Ok(tables) => done.lock().expect("nobody panics with it")[at] = Some(tables),
                Err(error) => eprintln!("{id} {:?}: {error}", job.engine()),
            }
        }
    };
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| (0..threads).for_each(|_| drop(scope.spawn(work))));
    done.into_inner().expect("nobody panics with it")
}

fn main() {
    let wanted: Vec<String> = std::env::args().skip(1).collect();
    let mut jobs = Vec::new();
    for (id, text) in shipped(&wanted) {
        let experiment = Experiment::parse(&id, &text).unwrap_or_else(|error| panic!("{error}"));
        // Namespaces give no two equal tables.
        for engine in experiment.engines.iter().filter(|engine| !engine.is_real_time()) {
            let all =
                experiment.jobs(*engine, Scale::Small, None).unwrap_or_else(|error| panic!("{id}: {error}"));
            jobs.extend(all.into_iter().map(|job| (id.clone(), job)));
        }
    }
    let tables = run(&jobs);
    let mut gathered: BTreeMap<(String, String), Tables> = BTreeMap::new();
    for ((id, job), tables) in jobs.iter().zip(tables) {
        let engine = format!("{:?}", job.engine()).to_lowercase();
        let all = gathered.entry((id.clone(), engine)).or_insert_with(Tables::gathering);
        if let Some(tables) = tables {
            job.gather(tables, all).unwrap_or_else(|error| panic!("{id}: {error}"));
        }
    }
    for ((id, engine), Tables { tasks, flows, samples, measures }) in gathered {
        for (name, table) in
            [("tasks", tasks), ("flows", flows), ("samples", samples), ("measures", measures)]
        {
            println!("{id} {engine} {name} {}", hash(&table).to_hex());
        }
    }
}
