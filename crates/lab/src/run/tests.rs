//! Runs of made-up models: what is kept, what is computed again, and what comes out.

use std::io::Cursor;
use std::sync::atomic::Ordering;

use arrow_array::cast::AsArray;
use arrow_array::types::{Float64Type, UInt64Type};
use arrow_ipc::reader::FileReader;
use tempfile::TempDir;

use super::super::fixture::{EXPERIMENT, Fake};
use super::*;
use crate::LabProgress;

mod real_time;

/// An experiment in a folder of its own, and an output folder.
struct Sandbox {
    folder: TempDir,
}

/// Remembers what it is told.
#[derive(Default)]
struct Heard {
    notes: Vec<String>,
    progress: Vec<LabProgress>,
    concluded: Vec<String>,
}

impl LabWatch for Heard {
    fn progress(&mut self, progress: &LabProgress) {
        self.progress.push(progress.clone());
    }
    fn note(&mut self, line: &str) {
        self.notes.push(line.to_owned());
    }
    fn concluded(&mut self, run: &ExperimentRun) {
        self.concluded.push(run.experiment.clone());
    }
}

impl Sandbox {
    fn new() -> Sandbox {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir_all(folder.path().join("experiments/ppush")).unwrap();
        fs::write(folder.path().join("experiments/ppush/fig0.toml"), EXPERIMENT).unwrap();
        Sandbox { folder }
    }

    fn out(&self) -> PathBuf {
        self.folder.path().join("out")
    }

    fn runs(&self) -> PathBuf {
        self.out().join("ppush/fig0/packet-small")
    }

    fn options(&self) -> RunOptions {
        RunOptions {
            what: vec!["fig0".into()],
            all: false,
            engine: None,
            scale: Scale::Small,
            seeds: None,
            threads: 2,
            out: self.out(),
            fresh: false,
            pcap: None,
            store: None,
            commit: Some("c0ffee".into()),
        }
    }

    fn run_with(&self, options: &RunOptions, fake: &Arc<Fake>) -> Result<Vec<ExperimentRun>, LabError> {
        let catalogue = Catalogue::at(&self.folder.path().join("experiments")).unwrap();
        run(options, &catalogue, fake.clone(), &|| false, &mut Heard::default())
    }

    #[track_caller]
    fn run(&self, fake: &Arc<Fake>) -> ExperimentRun {
        let mut all = self.run_with(&self.options(), fake).unwrap();
        assert_eq!(all.len(), 1);
        all.remove(0)
    }

    /// A file of finished runs, the one of that scheme and seed at the first point.
    fn job_file(&self, beginning: &str) -> PathBuf {
        let mut files: Vec<PathBuf> =
            fs::read_dir(self.runs().join("jobs")).unwrap().map(|e| e.unwrap().path()).collect();
        files.sort();
        let named = |p: &&PathBuf| p.file_name().unwrap().to_string_lossy().starts_with(beginning);
        files.iter().find(named).unwrap_or_else(|| panic!("no {beginning} in {files:?}")).clone()
    }
}

fn fake() -> Arc<Fake> {
    Arc::new(Fake { code: "c0de", ..Fake::default() })
}

/// All files below a folder with their bytes, but for times and locks.
fn raw(folder: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut found = BTreeMap::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(
                raw(&path).into_iter().map(|(p, b)| (Path::new(path.file_name().unwrap()).join(p), b)),
            );
        } else if path.file_name().is_some_and(|name| name != "times" && name != ".lock") {
            found.insert(path.file_name().unwrap().into(), fs::read(&path).unwrap());
        }
    }
    found
}

#[test]
fn the_bytes_are_the_same_whatever_the_number_of_threads() {
    let (one, four) = (Sandbox::new(), Sandbox::new());
    one.run_with(&RunOptions { threads: 1, ..one.options() }, &fake()).unwrap();
    four.run_with(&RunOptions { threads: 4, ..four.options() }, &fake()).unwrap();
    let (ours, theirs) = (raw(&one.out()), raw(&four.out()));
    // Eight runs, four tables, the verdicts, the summary.
    assert_eq!(ours.len(), 14, "{:?}", ours.keys());
    assert_eq!(ours, theirs);
}

#[test]
fn a_run_that_was_cut_short_goes_on_with_what_is_missing() {
    let sandbox = Sandbox::new();
    let stuck = Arc::new(Fake { stuck_from: 4, ..Arc::into_inner(fake()).unwrap() });
    let held = stuck.stuck.lock().unwrap();
    let options = RunOptions { threads: 1, ..sandbox.options() };
    let catalogue = Catalogue::at(&sandbox.folder.path().join("experiments")).unwrap();
    let enough = || stuck.ran.load(Ordering::SeqCst) >= 4;
    let stopped = run(&options, &catalogue, stuck.clone(), &enough, &mut Heard::default()).unwrap_err();
    assert!(matches!(stopped, LabError::Stopped { done: 3, jobs: 8, .. }), "{stopped}");
    assert!(stopped.to_string().contains("the same command goes on from there"), "{stopped}");
    // A process that is killed while it writes leaves such a file.
    let torn = sandbox.runs().join("jobs/.dctcp-s1-00.arrow.1-0.tmp");
    fs::write(&torn, "half of a").unwrap();

    let second = fake();
    let result = sandbox.run(&second);
    assert_eq!((result.kept, result.ran), (3, 5));
    assert_eq!(second.ran.load(Ordering::SeqCst), 5);
    assert!(!torn.exists());
    let whole = Sandbox::new();
    whole.run(&fake());
    assert_eq!(raw(&sandbox.out()), raw(&whole.out()), "a resumed run is the same as an unbroken one");
    drop(held);
}

#[test]
fn what_is_finished_is_not_computed_again_unless_asked() {
    let sandbox = Sandbox::new();
    let first = sandbox.run(&fake());
    assert_eq!((first.ran, first.kept, first.seeds), (8, 0, 2));
    let again = fake();
    assert_eq!((sandbox.run(&again).kept, again.ran.load(Ordering::SeqCst)), (8, 0));
    let options = RunOptions { fresh: true, ..sandbox.options() };
    assert_eq!(sandbox.run_with(&options, &fake()).unwrap()[0].ran, 8);
    let options = RunOptions { seeds: Some(3), ..sandbox.options() };
    let more = &sandbox.run_with(&options, &fake()).unwrap()[0];
    assert_eq!((more.ran, more.kept, more.seeds), (4, 8, 3), "a further seed is all that is missing");
}

#[test]
fn runs_of_other_code_are_computed_again() {
    let sandbox = Sandbox::new();
    sandbox.run(&fake());
    let other = Arc::new(Fake { code: "beef", ..Fake::default() });
    assert_eq!(sandbox.run(&other).ran, 8);
}

#[test]
fn damaged_files_are_computed_again_and_nothing_else_is() {
    let sandbox = Sandbox::new();
    sandbox.run(&fake());
    let before = raw(&sandbox.out());
    let cut = sandbox.job_file("ppush11-s1");
    fs::write(&cut, &fs::read(&cut).unwrap()[..100]).unwrap();
    let changed = sandbox.job_file("dctcp-s2");
    let mut bytes = fs::read(&changed).unwrap();
    // 0.51 in little-endian: a value among the rows.
    let middle = bytes.len() / 2;
    bytes[middle..middle + 64].fill(0x5a);
    fs::write(&changed, bytes).unwrap();
    fs::write(sandbox.job_file("dctcp-s1"), "").unwrap();
    let again = fake();
    let result = sandbox.run(&again);
    assert_eq!((result.ran, result.kept, again.ran.load(Ordering::SeqCst)), (3, 5, 3));
    assert_eq!(raw(&sandbox.out()), before);
}

#[test]
fn tables_have_the_runs_in_order_with_their_coordinates() {
    let sandbox = Sandbox::new();
    sandbox.run(&fake());
    let bytes = fs::read(sandbox.runs().join("tasks.arrow")).unwrap();
    let reader = FileReader::try_new(Cursor::new(bytes), None).unwrap();
    let schema = reader.schema();
    assert_eq!(schema.metadata().get("headwater.experiment").map(String::as_str), Some("ppush/fig0"));
    let mut seen = Vec::new();
    for batch in reader {
        let batch = batch.unwrap();
        let text = |name: &str| batch.column_by_name(name).unwrap().as_string::<i32>().value(0).to_owned();
        let seed = batch.column_by_name("seed").unwrap().as_primitive::<UInt64Type>().value(0);
        seen.push((text("load"), text("scheme"), seed));
        assert_eq!(batch.column_by_name("tct_s").unwrap().as_primitive::<Float64Type>().len(), 4);
    }
    let run = |load: &str, scheme: &str, seed| (load.to_owned(), scheme.to_owned(), seed);
    assert_eq!(seen[..3], [run("0.5", "ppush(1,1)", 1), run("0.5", "ppush(1,1)", 2), run("0.5", "dctcp", 1)]);
    assert_eq!(seen.len(), 8);
}

#[test]
fn verdicts_are_a_line_each_with_everything_that_decides_them() {
    let sandbox = Sandbox::new();
    let result = sandbox.run(&fake());
    assert_eq!(result.misses(), 0, "{:?}", result.verdicts);
    let text = fs::read_to_string(sandbox.runs().join("verdicts.json")).unwrap();
    assert_eq!(text.lines().count(), 4);
    let json: serde_json::Value = serde_json::from_str(&text).unwrap();
    let gain = &json[0];
    for (field, value) in [
        ("experiment", serde_json::json!("ppush/fig0")),
        ("claim", "T-1".into()),
        ("engine", "packet".into()),
        ("scale", "small".into()),
        ("seeds", 2.into()),
        ("published", 2.0.into()),
        ("tolerance", "10 %".into()),
        ("verdict", "pass".into()),
        ("commit", "c0ffee".into()),
    ] {
        assert_eq!(gain[field], value, "{field}");
    }
    let measured = gain["measured"].as_f64().unwrap();
    let interval = [gain["ci95"][0].as_f64().unwrap(), gain["ci95"][1].as_f64().unwrap()];
    assert!(interval[0] <= measured && measured <= interval[1] && (measured - 2.0).abs() < 0.01, "{gain}");
}

#[test]
fn a_claim_that_misses_is_counted() {
    let sandbox = Sandbox::new();
    let lossy = Arc::new(Fake { drops: 1.0, code: "c0de", ..Fake::default() });
    let result = sandbox.run(&lossy);
    assert_eq!(result.misses(), 1);
    assert_eq!(result.verdicts[1].verdict.claim, "T-2/small");
}

#[test]
fn a_run_that_fails_or_panics_takes_no_other_with_it_and_nothing_is_judged() {
    for by_panic in [false, true] {
        let sandbox = Sandbox::new();
        let failing = Arc::new(Fake { fails: Some(("dctcp", 2, by_panic)), code: "c0de", ..Fake::default() });
        let result = sandbox.run(&failing);
        assert_eq!((result.ran, result.failures.len(), result.verdicts.len()), (6, 2, 0));
        let reason = if by_panic { "negative length" } else { "no path" };
        let failure = &result.failures[0];
        assert!(failure.contains("load 0.5, dctcp, seed 2") && failure.contains(reason), "{failure}");
        assert!(!sandbox.runs().join("verdicts.json").exists());
        assert_eq!(sandbox.run(&fake()).ran, 2, "only those are missing");
    }
}

#[test]
fn claims_about_what_is_not_modelled_are_pending() {
    let sandbox = Sandbox::new();
    let result = sandbox.run(&Arc::new(Fake { unknown: Some("dctcp"), code: "c0de", ..Fake::default() }));
    let verdicts: Vec<Verdicted> = result.verdicts.iter().map(|v| v.verdict.verdict).collect();
    assert_eq!(verdicts, [Verdicted::Pending, Verdicted::Pass]);
    assert_eq!((result.not_modelled, result.misses()), (4, 0));

    let sandbox = Sandbox::new();
    let nothing = Arc::new(Fake { unknown: Some(""), code: "c0de", ..Fake::default() });
    let result = sandbox.run(&nothing);
    assert_eq!((result.not_modelled, result.ran), (8, 0));
    assert!(result.verdicts.iter().all(|v| v.verdict.note.contains("comes later")), "{result:?}");
}

#[test]
fn a_folder_that_cannot_be_written_is_named_with_what_to_do() {
    let sandbox = Sandbox::new();
    fs::write(sandbox.out(), "a file where a folder should be").unwrap();
    let error = sandbox.run_with(&sandbox.options(), &fake()).unwrap_err();
    let text = error.to_string();
    assert!(text.contains(&sandbox.out().display().to_string()) && text.contains("--out"), "{text}");
}

#[test]
fn two_processes_do_not_write_to_one_folder() {
    let sandbox = Sandbox::new();
    let _claimed = claim_folder(&sandbox.runs()).unwrap();
    let error = sandbox.run_with(&sandbox.options(), &fake()).unwrap_err();
    assert!(matches!(error, LabError::Busy { .. }), "{error}");
}

#[test]
fn what_was_asked_for_must_exist_and_fit() {
    let sandbox = Sandbox::new();
    let ask = |change: &dyn Fn(&mut RunOptions)| {
        let mut options = sandbox.options();
        change(&mut options);
        sandbox.run_with(&options, &fake()).unwrap_err().to_string()
    };
    assert!(ask(&|o| o.what = vec!["fig9".into()]).contains("did you mean ppush/fig0"));
    assert!(ask(&|o| o.what.clear()).contains("--all"));
    assert!(ask(&|o| o.engine = Some(Engine::Flow)).contains("only on: packet, fluid, netns"));
    assert!(ask(&|o| o.store = Some("x".into())).contains("--scale paper"));
    let nothing = ask(&|o| (o.all, o.what, o.engine) = (true, Vec::new(), Some(Engine::Flow)));
    assert!(nothing.contains("flow engine"), "{nothing}");
}

#[test]
fn an_experiment_named_in_several_ways_is_run_once() {
    let sandbox = Sandbox::new();
    let what = ["ppush/fig0", "fig0", "T-1"].map(str::to_owned).to_vec();
    let runs = sandbox.run_with(&RunOptions { what, ..sandbox.options() }, &fake()).unwrap();
    assert_eq!((runs.len(), runs[0].ran), (1, 8));
}

#[test]
fn a_summary_is_stored_with_means_per_run_and_the_points_of_the_plots() {
    let sandbox = Sandbox::new();
    let results = sandbox.folder.path().join("results");
    let options = RunOptions { scale: Scale::Paper, store: Some(results.clone()), ..sandbox.options() };
    let result = sandbox.run_with(&options, &fake()).unwrap().remove(0);
    assert_eq!(result.stored, Some(results.join("ppush/fig0.json")));
    let stored = results::load(&results, "ppush/fig0").unwrap().unwrap();
    let [run] = &stored.runs[..] else { panic!("{stored:?}") };
    assert_eq!((run.seeds, run.code.as_str(), run.commit.as_deref()), (3, "c0de", Some("c0ffee")));
    assert_eq!((run.verdicts.len(), run.means.len(), run.figures.len()), (2, 12, 2));
    assert_eq!(run.means[0].measures, BTreeMap::from([("drops".to_owned(), 0.0)]));
    let lines = &run.figures[0];
    assert_eq!(lines.series.iter().map(|s| s.name.as_str()).collect::<Vec<_>>(), ["ppush(1,1)", "dctcp"]);
    assert_eq!(lines.series[0].points[1][0], Some(0.9));
    assert_eq!(lines.series[0].points[1].len(), 4, "a mean over seeds comes with its interval");
}

#[test]
fn progress_ends_at_everything() {
    let sandbox = Sandbox::new();
    let catalogue = Catalogue::at(&sandbox.folder.path().join("experiments")).unwrap();
    let mut heard = Heard::default();
    run(&sandbox.options(), &catalogue, fake(), &|| false, &mut heard).unwrap();
    let last = heard.progress.last().unwrap();
    assert_eq!((last.runs, last.done, last.part), (8, 8, 1.0));
    assert!(heard.progress.is_sorted_by(|a, b| a.part <= b.part));
    assert!(heard.notes.is_empty(), "{:?}", heard.notes);
}

#[test]
fn experiments_are_told_of_in_order_and_those_that_are_done_when_another_is_stuck() {
    let sandbox = Sandbox::new();
    let folder = sandbox.folder.path().join("experiments");
    for name in ["fig1", "fig2"] {
        fs::write(folder.join(format!("ppush/{name}.toml")), EXPERIMENT).unwrap();
    }
    let catalogue = Catalogue::at(&folder).unwrap();
    let options = RunOptions { all: true, what: Vec::new(), threads: 3, ..sandbox.options() };
    let mut heard = Heard::default();
    let done = run(&options, &catalogue, fake(), &|| false, &mut heard).unwrap();
    assert_eq!(heard.concluded, ["ppush/fig0", "ppush/fig1", "ppush/fig2"]);
    assert_eq!(done.len(), 3);

    let stuck = Arc::new(Fake { stuck_from: 20, ..Arc::into_inner(fake()).unwrap() });
    let held = stuck.stuck.lock().unwrap();
    let options = RunOptions { fresh: true, threads: 1, ..options };
    let enough = || stuck.ran.load(Ordering::SeqCst) >= 20;
    let mut heard = Heard::default();
    run(&options, &catalogue, stuck.clone(), &enough, &mut heard).unwrap_err();
    assert_eq!(heard.concluded, ["ppush/fig0", "ppush/fig1"]);
    drop(held);
}
