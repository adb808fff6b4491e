//! The arrows of ARCHITECTURE.md hold: which crate may know which, and that no machine can reach a socket, a clock, a
//! disk or unseeded randomness.
//!
//! Cargo is asked for the graph; the sources are scanned for what the standard library would let a machine do. Both
//! checks are functions of plain data, so that the tests below can show that they are able to fail.

#[path = "../../lab/code_hash.rs"]
#[allow(dead_code)]
mod code_hash;
mod sources;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use cargo_metadata::{CargoOpt, DependencyKind, Metadata, MetadataCommand};
use sources::modules::{circles, module_arrows};

/// Crates that each crate may know; `cli` and `headwater`, which stand above, may know all.
const ARROWS: &[(&str, &[&str])] = &[
    ("units", &[]),
    ("wire", &["units"]),
    ("codec", &["units"]),
    ("fabric", &["units"]),
    ("policy", &["fabric", "units"]),
    ("machine", &["wire", "units"]),
    ("controller", &["policy", "fabric", "machine", "wire", "units"]),
    ("flow", &["machine", "wire", "units"]),
    ("transport", &["flow", "machine", "policy", "wire", "units"]),
    ("baseline", &["transport", "machine", "wire", "units"]),
    ("switch", &["wire", "units"]),
    ("node", &["transport", "machine", "switch", "wire", "units"]),
    ("skips", &[]),
    ("testkit", &["controller", "transport", "machine", "wire", "units"]),
    ("store", &["codec", "units"]),
    ("driver", &["node", "transport", "machine", "udp", "store", "codec", "wire", "units"]),
    ("udp", &["wire", "units"]),
    ("control", &["udp", "wire", "units"]),
    ("agent", &["control", "transport", "machine", "policy", "units"]),
    ("lab", &["experiment"]),
    ("drill", &["lab", "experiment", "units"]),
    ("testbed", &["experiment", "sim", "switch", "fabric", "wire", "units"]),
    (
        "experiment",
        &["sim", "controller", "baseline", "transport", "switch", "policy", "fabric", "wire", "units"],
    ),
    (
        "api",
        &[
            "agent",
            "driver",
            "control",
            "controller",
            "node",
            "store",
            "transport",
            "udp",
            "machine",
            "codec",
            "wire",
            "units",
        ],
    ),
    (
        "bench",
        &[
            "agent",
            "testbed",
            "api",
            "lab",
            "experiment",
            "sim",
            "driver",
            "store",
            "transport",
            "switch",
            "fabric",
            "codec",
            "control",
            "udp",
            "wire",
            "units",
        ],
    ),
    (
        "sim",
        &[
            "controller",
            "node",
            "baseline",
            "transport",
            "machine",
            "switch",
            "codec",
            "policy",
            "fabric",
            "wire",
            "units",
        ],
    ),
];

/// The crates that stand above all others: the command line, and the package that has the binary.
const ABOVE: [&str; 2] = ["cli", "headwater"];

/// Lines that the exercise of a new transport adds outside its own room, by file: to the list of transports on the
/// wire, that of their crate, and the names of schemes.
const EXERCISE: &[(&str, usize)] = &[
    ("crates/experiment/src/scenario/scheme.rs", 4),
    ("crates/transport/src/lib.rs", 1),
    ("crates/transport/src/transports/mod.rs", 16),
    ("crates/wire/src/control/task.rs", 3),
];

/// Its room, and its test in the simulator.
const EXERCISE_ALONE: [&str; 2] =
    ["crates/transport/src/stop_and_wait/", "crates/experiment/tests/stop_and_wait.rs"];

/// The crates that run the same on sockets and in simulation: they decide, and leave all doing to a driver.
const MACHINES: [&str; 15] = [
    "units",
    "wire",
    "fabric",
    "policy",
    "codec",
    "machine",
    "flow",
    "transport",
    "baseline",
    "controller",
    "switch",
    "node",
    "sim",
    "experiment",
    "testkit",
];

/// Rooms of other crates that decide, and leave all doing to a driver beside them.
const MACHINE_ROOMS: [&str; 2] = ["crates/agent/src/hub.rs", "crates/agent/src/hub"];

/// Crates that a machine may not name in its manifest: runtimes, sockets, system calls, clocks, entropy.
const DENIED: &[&str] = &[
    "async-std",
    "chrono",
    "futures",
    "getrandom",
    "hyper",
    "io-uring",
    "libc",
    "mio",
    "nix",
    "quinn",
    "quinn-proto",
    "quinn-udp",
    "redb",
    "rustix",
    "rustls",
    "smol",
    "socket2",
    "tempfile",
    "time",
    "tokio",
    "tracing-subscriber",
];

/// Crates that may not even come with a machine's dependencies. System calls are not among these: some CPU feature
/// detection needs them.
const DENIED_ANYWHERE: &[&str] =
    &["async-std", "mio", "quinn", "quinn-proto", "quinn-udp", "smol", "socket2", "tokio"];

/// One arrow of the graph; workspace crates by their short names (`wire`, not `headwater-wire`).
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Arrow {
    from: String,
    to: String,
}

/// The arrows among `crates` that the list does not allow, each with a sentence. A crate that the list does not know
/// may point nowhere and be pointed at by nobody but those above.
fn forbidden_arrows(crates: &BTreeSet<String>, arrows: &[Arrow]) -> Vec<String> {
    let allowed = |from: &str| ARROWS.iter().find(|(name, _)| *name == from).map_or(&[][..], |(_, to)| *to);
    arrows
        .iter()
        .filter(|arrow| !ABOVE.contains(&arrow.from.as_str()) && crates.contains(&arrow.to))
        .filter(|arrow| !allowed(&arrow.from).contains(&arrow.to.as_str()))
        .map(|arrow| {
            format!("{} may not know {}; it may know {:?}", arrow.from, arrow.to, allowed(&arrow.from))
        })
        .collect()
}

/// Direct dependencies of machines that are on the list of denied ones.
fn denied_dependencies(arrows: &[Arrow]) -> Vec<String> {
    arrows
        .iter()
        .filter(|arrow| MACHINES.contains(&arrow.from.as_str()) && DENIED.contains(&arrow.to.as_str()))
        .map(|arrow| format!("{} is a machine and may not depend on {}", arrow.from, arrow.to))
        .collect()
}

/// Dependencies that a machine brings along from afar and that no machine may have: follows `graph` (crate to its
/// dependencies) to the end.
fn denied_in_the_distance(graph: &BTreeMap<String, BTreeSet<String>>) -> Vec<String> {
    let mut complaints = Vec::new();
    for machine in MACHINES {
        let mut seen = BTreeSet::from([machine.to_owned()]);
        let mut open = vec![machine.to_owned()];
        while let Some(name) = open.pop() {
            for next in graph.get(&name).into_iter().flatten() {
                if DENIED_ANYWHERE.contains(&next.as_str()) {
                    complaints.push(format!("{machine} is a machine and gets {next} by way of {name}"));
                } else if seen.insert(next.clone()) {
                    open.push(next.clone());
                }
            }
        }
    }
    complaints
}

fn short(package: &str) -> String {
    package.strip_prefix("headwater-").unwrap_or(package).to_owned()
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

/// Cargo's description of this workspace, from the lock file and without network.
fn metadata() -> Metadata {
    metadata_command().exec().unwrap()
}

fn metadata_command() -> MetadataCommand {
    let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let version = std::process::Command::new(rustc).arg("-vV").output().unwrap().stdout;
    let version = String::from_utf8(version).unwrap();
    let host_triple = version.lines().find_map(|line| line.strip_prefix("host: ")).unwrap();
    // Other platforms' crates were never downloaded.
    let options = ["--offline", "--filter-platform", host_triple].map(str::to_owned).to_vec();
    let mut command = MetadataCommand::new();
    command.manifest_path(root().join("Cargo.toml")).other_options(options);
    command
}

/// All that `headwater` is built from, near and far, with the features that `metadata` was asked for.
fn built_into_the_product(metadata: &Metadata) -> BTreeSet<String> {
    let nodes = &metadata.resolve.as_ref().expect("cargo resolves the graph").nodes;
    let names: BTreeMap<_, _> = metadata.packages.iter().map(|it| (&it.id, short(&it.name))).collect();
    let mut seen = BTreeSet::from(["headwater".to_owned()]);
    let mut open = vec!["headwater".to_owned()];
    while let Some(name) = open.pop() {
        for node in nodes.iter().filter(|node| names[&node.id] == name) {
            let built = node
                .deps
                .iter()
                .filter(|it| it.dep_kinds.iter().any(|kind| kind.kind == DependencyKind::Normal));
            open.extend(built.map(|it| names[&it.pkg].clone()).filter(|name| seen.insert(name.clone())));
        }
    }
    seen
}

/// The declared dependencies of the workspace's crates that end up in what they build (not of their tests).
fn declared_arrows(metadata: &Metadata) -> Vec<Arrow> {
    let mut arrows = Vec::new();
    for package in metadata.workspace_packages() {
        let built = package.dependencies.iter().filter(|it| it.kind != DependencyKind::Development);
        arrows.extend(built.map(|it| Arrow { from: short(&package.name), to: short(&it.name) }));
    }
    arrows.sort();
    arrows
}

#[test]
fn crates_know_only_what_the_arrows_allow() {
    let metadata = metadata();
    let arrows = declared_arrows(&metadata);
    let crates: BTreeSet<String> = metadata.workspace_packages().iter().map(|it| short(&it.name)).collect();
    assert!(crates.contains("transport") && arrows.len() > 10, "the graph was not read: {crates:?}");
    assert_eq!(forbidden_arrows(&crates, &arrows), Vec::<String>::new());
    assert_eq!(denied_dependencies(&arrows), Vec::<String>::new());
}

#[test]
fn every_crate_stands_on_the_map() {
    let map = std::fs::read_to_string(root().join("ARCHITECTURE.md")).unwrap();
    for package in metadata().workspace_packages() {
        let name = short(&package.name);
        assert!(map.contains(&format!("`{name}`")), "ARCHITECTURE.md says nothing of `{name}`");
    }
}

#[test]
fn machines_bring_no_runtime_along() {
    let metadata = metadata();
    let nodes = &metadata.resolve.as_ref().expect("cargo resolves the graph").nodes;
    let names: BTreeMap<_, _> = metadata.packages.iter().map(|it| (&it.id, short(&it.name))).collect();
    let mut graph = BTreeMap::<String, BTreeSet<String>>::new();
    for node in nodes {
        let built =
            node.deps.iter().filter(|it| it.dep_kinds.iter().any(|kind| kind.kind == DependencyKind::Normal));
        graph.entry(names[&node.id].clone()).or_default().extend(built.map(|it| names[&it.pkg].clone()));
    }
    assert!(graph["transport"].contains("wire"), "the graph was not read");
    assert_eq!(denied_in_the_distance(&graph), Vec::<String>::new());
}

#[test]
fn a_product_without_the_laboratory_draws_no_plots_and_writes_no_arrow_files() {
    const LABORATORY: [&str; 7] =
        ["lab", "drill", "testbed", "bench", "plotters", "arrow-array", "arrow-ipc"];
    let with = built_into_the_product(&metadata());
    assert!(LABORATORY.iter().all(|it| with.contains(*it)), "the graph was not read: {with:?}");
    let without = metadata_command().features(CargoOpt::NoDefaultFeatures).exec().unwrap();
    let without = built_into_the_product(&without);
    assert!(
        without.contains("transport") && without.contains("control"),
        "the graph was not read: {without:?}"
    );
    let left: Vec<_> = LABORATORY.iter().filter(|it| without.contains(**it)).collect();
    assert!(left.is_empty(), "built without the laboratory, and yet with {left:?}");
}

/// A run carries a hash of the code that made it: that of all crates of ours behind it.
#[test]
fn the_hashes_of_code_cover_every_crate_that_decides_what_a_run_records() {
    let arrows = declared_arrows(&metadata());
    let behind = |name: &str| {
        let mut found = BTreeSet::from([name.to_owned()]);
        while let Some(next) =
            arrows.iter().find(|it| found.contains(&it.from) && is_ours(&it.to) && !found.contains(&it.to))
        {
            found.insert(next.to.clone());
        }
        found
    };
    let named = |names: &[&str]| names.iter().map(|it| (*it).to_owned()).collect::<BTreeSet<_>>();
    let models = named(&code_hash::MODELS);
    assert_eq!(models, behind("experiment"));
    // Crates that draw plots and judge record nothing.
    let judges = named(&["lab", "drill", "cli", "headwater"]);
    assert_eq!(&named(&code_hash::REAL) | &models, &behind("headwater") - &judges);
}

/// Whether a crate of this name is in the workspace.
fn is_ours(name: &str) -> bool {
    ARROWS.iter().any(|(known, _)| *known == name) || ABOVE.contains(&name)
}

/// At the root of a crate and in each of its folders: what lies next to each other can be read one after the other.
#[test]
fn modules_know_each_other_in_no_circle() {
    let (mut found, mut arrows) = (Vec::new(), 0);
    for package in metadata().workspace_packages() {
        let src = package.manifest_path.parent().unwrap().join("src");
        for (parent, below) in module_arrows(src.as_std_path()) {
            arrows += below.values().map(BTreeSet::len).sum::<usize>();
            let place = [vec![short(&package.name)], parent].concat().join("::");
            found.extend(circles(&below).iter().map(|circle| format!("{place}: {circle:?}")));
        }
    }
    assert!(arrows > 500, "the sources were not read: {arrows}");
    assert_eq!(found, Vec::<String>::new());
}

/// A newcomer must be able to read a crate.
#[test]
fn no_crate_is_too_large_to_be_read() {
    let lines_of = |file: &Path| {
        let text = std::fs::read_to_string(file).unwrap();
        text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default().lines().count()
    };
    let is_test = |file: &&PathBuf| {
        file.components().any(|part| ["tests", "tests.rs"].map(AsRef::as_ref).contains(&part.as_os_str()))
    };
    for package in metadata().workspace_packages() {
        let src = package.manifest_path.parent().unwrap().join("src");
        let files = sources::rust_files(src.as_std_path());
        let files: Vec<&PathBuf> = files.iter().filter(|file| !is_test(file)).collect();
        let lines: usize = files.iter().map(|file| lines_of(file)).sum();
        assert!((1..20_000).contains(&lines), "{} has {lines} lines without its tests", package.name);
    }
}

/// Lines that a patch adds, by file.
///
/// # Panics
/// If it takes something away.
fn added_lines(patch: &str) -> BTreeMap<String, usize> {
    let mut added = BTreeMap::new();
    let mut file = "";
    for line in patch.lines() {
        if let Some(name) = line.strip_prefix("+++ b/") {
            file = name;
        } else if line.starts_with('+') {
            *added.entry(file.to_owned()).or_default() += 1;
        } else {
            assert!(!line.starts_with('-') || line.starts_with("--- "), "it takes away: {line}");
        }
    }
    added
}

/// docs/adding-a-transport.md says that a transport is a room of its own and a line in few lists: here is one, and how many.
#[test]
fn a_new_transport_touches_nothing_but_the_lists_that_name_transports() {
    let patch = root().join("docs/adding-a-transport/stop-and-wait.patch");
    let added = added_lines(&std::fs::read_to_string(patch).unwrap());
    let elsewhere = added.iter().filter(|(file, _)| !EXERCISE_ALONE.iter().any(|its| file.starts_with(its)));
    let elsewhere: Vec<(&str, usize)> = elsewhere.map(|(file, lines)| (file.as_str(), *lines)).collect();
    assert_eq!(
        elsewhere, EXERCISE,
        "what another transport must touch is a matter of the lists, not of the exercise"
    );
    assert!(EXERCISE_ALONE.iter().all(|its| added.keys().any(|file| file.starts_with(its))));
}

#[test]
fn machines_touch_no_clock_socket_disk_or_entropy() {
    let mut complaints = Vec::new();
    let crates = MACHINES.map(|machine| root().join("crates").join(machine).join("src"));
    for place in crates.into_iter().chain(MACHINE_ROOMS.map(|room| root().join(room))) {
        assert!(place.exists(), "{} was not found", place.display());
        for file in sources::rust_files(&place) {
            let text = std::fs::read_to_string(&file).unwrap();
            let shown = file.strip_prefix(root()).unwrap().display().to_string();
            // The one conversion between our durations and the standard library's.
            let converts = shown == "crates/units/src/time.rs";
            complaints.extend(
                sources::impurities(&text)
                    .into_iter()
                    .filter(|what| !(converts && what == "std::time"))
                    .map(|what| format!("{shown}: {what}")),
            );
        }
    }
    assert_eq!(complaints, Vec::<String>::new());
}

/// docs/papers.md names a file for every equation and algorithm, and each file names the item back.
#[test]
fn every_item_of_the_papers_has_a_home_that_says_so() {
    let table = std::fs::read_to_string(root().join("docs/papers.md")).unwrap();
    let homes = sources::homes(&table);
    assert!(homes.len() >= 10, "the table was not read: {homes:?}");
    let complaints: Vec<String> = homes
        .iter()
        .filter_map(|(item, file)| match std::fs::read_to_string(root().join(file)) {
            Err(error) => Some(format!("{item}: {file}: {error}")),
            Ok(text) => (!sources::names(&text, item)).then(|| format!("{file} does not mention {item}")),
        })
        .collect();
    assert_eq!(complaints, Vec::<String>::new());
}

/// Every `docs/decisions/NNNN` that code or a document cites is there, and nobody cites a decision by a bare number.
#[test]
fn every_decision_that_is_cited_has_a_record() {
    let (mut complaints, mut cited) = (Vec::new(), 0);
    let records = records();
    for file in sources::records::citing_files(&root()) {
        let text = std::fs::read_to_string(&file).unwrap();
        let shown = file.strip_prefix(root()).unwrap().display();
        for number in sources::records::citations(&text) {
            cited += 1;
            if !records.iter().any(|(name, _)| name.starts_with(&format!("{number}-"))) {
                complaints.push(format!("{shown}: there is no record docs/decisions/{number}"));
            }
        }
        let bare = sources::records::bare_numbers(&text);
        complaints.extend(bare.iter().map(|it| format!("{shown}: '{it}': say docs/decisions/NNNN")));
    }
    assert!(cited >= 50, "the citations were not found: {cited}");
    assert_eq!(complaints, Vec::<String>::new());
}

#[test]
fn every_decision_record_is_in_the_index() {
    let index = std::fs::read_to_string(root().join("docs/decisions/README.md")).unwrap();
    let records = records();
    assert!(records.len() >= 34, "the records were not found: {records:?}");
    assert_eq!(sources::records::index_complaints(&index, &records), Vec::<String>::new());
}

/// Files and folders below `crates/` that a record names are there, unless the record says that they were removed.
#[test]
fn every_path_in_a_decision_record_exists() {
    let (mut missing, mut named) = (Vec::new(), 0);
    for (name, _) in records() {
        let text = std::fs::read_to_string(root().join("docs/decisions").join(&name)).unwrap();
        for path in sources::records::named_paths(&text) {
            named += 1;
            if !root().join(path).exists() {
                missing.push(format!("docs/decisions/{name}: there is no {path}"));
            }
        }
    }
    assert!(named >= 20, "the paths were not found: {named}");
    assert_eq!(missing, Vec::<String>::new());
}

/// File name and first line of every decision record, in order.
fn records() -> Vec<(String, String)> {
    let folder = std::fs::read_dir(root().join("docs/decisions")).unwrap();
    let mut records: Vec<(String, String)> = folder
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.file_name().is_some_and(|name| name != "README.md"))
        .map(|path| {
            let text = std::fs::read_to_string(&path).unwrap();
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            (name, text.lines().next().unwrap_or_default().to_owned())
        })
        .collect();
    records.sort();
    records
}

mod the_checks_can_fail {
    use super::*;

    fn graph(arrows: &[(&str, &str)]) -> (BTreeSet<String>, Vec<Arrow>) {
        let arrows: Vec<Arrow> = arrows
            .iter()
            .map(|(from, to)| Arrow { from: (*from).to_owned(), to: (*to).to_owned() })
            .collect();
        let known = ARROWS.iter().map(|(name, _)| *name);
        let ours: Vec<&str> = known.chain(ABOVE).chain(["new"]).collect();
        (ours.iter().map(|it| (*it).to_owned()).collect(), arrows)
    }

    #[test]
    fn arrow_that_points_back_is_found() {
        let (crates, arrows) = graph(&[
            ("transport", "wire"),
            ("transport", "codec"),
            ("units", "wire"),
            ("headwater", "codec"),
        ]);
        let found = forbidden_arrows(&crates, &arrows);
        assert_eq!(found.len(), 2, "{found:?}");
        assert!(found[0].starts_with("transport may not know codec"), "{found:?}");
        assert!(found[1].starts_with("units may not know wire"), "{found:?}");
    }

    #[test]
    fn controller_and_transports_may_not_know_each_other() {
        let (crates, arrows) = graph(&[
            ("controller", "transport"),
            ("transport", "controller"),
            ("transport", "baseline"),
            ("machine", "transport"),
            ("baseline", "transport"),
        ]);
        let found = forbidden_arrows(&crates, &arrows);
        assert_eq!(found.len(), 4, "{found:?}");
    }

    #[test]
    fn crate_that_nobody_listed_may_not_point_at_ours_or_be_pointed_at() {
        let (crates, arrows) =
            graph(&[("new", "units"), ("policy", "new"), ("new", "serde"), ("headwater", "new")]);
        assert_eq!(forbidden_arrows(&crates, &arrows).len(), 2);
    }

    #[test]
    fn machine_with_a_socket_crate_is_found() {
        let (_, arrows) =
            graph(&[("transport", "tokio"), ("store", "rustix"), ("wire", "libc"), ("codec", "serde")]);
        let found = denied_dependencies(&arrows);
        assert_eq!(found.len(), 2, "store may: it does I/O. {found:?}");
    }

    #[test]
    fn runtime_behind_a_harmless_name_is_found() {
        let edges = [("codec", "helper"), ("helper", "deeper"), ("deeper", "tokio"), ("deeper", "helper")];
        let mut graph = BTreeMap::<String, BTreeSet<String>>::new();
        for (from, to) in edges {
            graph.entry(from.to_owned()).or_default().insert(to.to_owned());
        }
        assert_eq!(denied_in_the_distance(&graph), ["codec is a machine and gets tokio by way of deeper"]);
    }
}
