//! The page of a small fixture, letter by letter, and what it says of results that do not fit any more.

use headwater_experiment::claim::Published;

use super::super::fixture;
use super::super::results::{Kind, Line};
use super::super::{Machine, Provenance, Shipped, SkippedRun};
use super::*;

fn stored_run(engine: Engine, verdicts: Vec<Verdict>) -> StoredRun {
    let line = |name: &str, up: f64| Line {
        name: name.into(),
        points: vec![
            vec![Some(0.5), Some(1.0 + up), Some(0.9 + up), Some(1.1 + up)],
            vec![Some(0.9), Some(5.0 + up), Some(4.5 + up), Some(5.5 + up)],
        ],
    };
    StoredRun {
        engine,
        scale: Scale::Paper,
        seeds: 3,
        commit: Some("0123456789abcdef0123456789abcdef01234567".into()),
        code: "c0de".into(),
        provenance: Provenance::default(),
        machine: None,
        skipped: Vec::new(),
        verdicts,
        means: Vec::new(),
        figures: vec![Drawn {
            title: "Mean completion time".into(),
            kind: Kind::Lines,
            x_label: "load".into(),
            y_label: "completion time (s)".into(),
            log_x: false,
            log_y: false,
            categories: Vec::new(),
            series: vec![line("ppush(1,1)", 0.0), line("dctcp", 1.0)],
        }],
    }
}

/// Verdicts of the fixture's claims as they are now: the first passes, the second misses.
fn verdicts(experiment: &Experiment, engine: Engine) -> Vec<Verdict> {
    let mut verdicts = experiment.pending(engine, Scale::Paper, "");
    (verdicts[0].seeds, verdicts[0].measured) = (3, Some(1.98765));
    (verdicts[0].ci95, verdicts[0].verdict) = (Some((1.96, 2.0149)), Outcome::Pass);
    (verdicts[1].seeds, verdicts[1].measured) = (3, Some(2.0));
    verdicts[1].verdict = Outcome::Miss;
    verdicts[1].note = "12 | 14 packets".into();
    verdicts
}

struct Sandbox {
    folder: tempfile::TempDir,
    experiment: Experiment,
}

impl Sandbox {
    /// Two experiments, of which the first has results.
    fn new() -> Sandbox {
        let folder = tempfile::tempdir().unwrap();
        for name in ["ppush/fig0", "scdp/fig1"] {
            let path = folder.path().join(format!("experiments/{name}.toml"));
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            // A claim belongs to one experiment.
            let own = if name == "scdp/fig1" { "U-" } else { "T-" };
            fs::write(path, fixture::EXPERIMENT.replace("T-", own)).unwrap();
        }
        let experiment = Experiment::parse("ppush/fig0", fixture::EXPERIMENT).unwrap();
        Sandbox { folder, experiment }
    }

    fn options(&self) -> ReportOptions {
        ReportOptions {
            results: self.folder.path().join("experiments/results"),
            out: self.folder.path().join("docs"),
            html: true,
        }
    }

    fn catalogue(&self) -> Catalogue {
        Catalogue::at(&self.folder.path().join("experiments")).unwrap()
    }

    fn store(&self, run: StoredRun) {
        results::store(&self.options().results, "ppush/fig0", run).unwrap();
    }

    fn page(&self) -> (Report, String) {
        let report = report(&self.options(), &self.catalogue(), &Shipped).unwrap();
        let text = fs::read_to_string(&report.page).unwrap();
        (report, text)
    }

    /// The page of the paper that has results.
    fn paper(&self) -> String {
        let _ = self.page();
        fs::read_to_string(self.options().out.join("reproduction/ppush.md")).unwrap()
    }
}

/// Rows that the fixture's first claim decides, that its second one does, and that nothing does.
const ROWS: &str = r#"
[[row]]
id = "T-1"
heart = true
setup = "two hosts"
metric = "gain"
published = "2x (abs)"
tolerance = "R 10%"
seeds = 5
parts = [{ claim = "T-1", published = 2.0, within = "10 %" }]

[[row]]
id = "T-2"
heart = true
setup = "two hosts"
metric = "losses"
published = "none (t)"
tolerance = "EXACT"
parts = [{ claim = "T-2/small", engines = ["packet"], within = "at most 0" }]

[[row]]
id = "T-3"
setup = "a survey"
metric = "cores"
published = "64 (T)"
tolerance = "RPT"
without = "a survey of processors"
"#;

#[test]
fn the_pages_of_the_fixture_are_the_golden_ones() {
    let sandbox = Sandbox::new();
    fs::write(sandbox.folder.path().join("experiments/catalogue.toml"), ROWS).unwrap();
    let notes = sandbox.options().results.join("notes");
    fs::create_dir_all(&notes).unwrap();
    fs::write(notes.join("changed.md"), "- T-1: the load was 0.8 at first; with it the gain is 1.8.\n")
        .unwrap();
    sandbox.store(stored_run(Engine::Packet, verdicts(&sandbox.experiment, Engine::Packet)));
    let (written, text) = sandbox.page();
    assert_eq!(text, include_str!("golden.md"), "if the new page is better, make it the golden one:\n{text}");
    let paper = sandbox.paper();
    assert_eq!(
        paper,
        include_str!("golden_paper.md"),
        "if the new page is better, make it the golden one:\n{paper}"
    );
    assert_eq!(written.counts, Counts { pass: 1, miss: 1, pending: 2, ..Counts::default() });
    let rows = RowCounts { rows: 3, pass: 1, miss: 1, report: 1, stale: 2, ..RowCounts::default() };
    assert_eq!((written.plots, written.rows), (1, rows));
    for ending in ["svg", "png"] {
        let picture = sandbox.options().out.join(format!("reproduction/ppush-fig0-1.{ending}"));
        assert!(fs::metadata(&picture).unwrap().len() > 1000, "{}", picture.display());
    }
    let html = fs::read_to_string(sandbox.options().out.join("reproduction.html")).unwrap();
    assert!(
        html.contains("<svg") && html.contains("href=\"#ppush-fig0\"") && !html.contains(".md\""),
        "{html}"
    );
    let (_, again) = sandbox.page();
    assert_eq!(again, text);
}

#[test]
fn an_interval_that_crosses_its_line_is_undecided_whatever_was_stored() {
    let sandbox = Sandbox::new();
    let mut wide = verdicts(&sandbox.experiment, Engine::Packet);
    wide[0].ci95 = Some((1.5, 2.5));
    sandbox.store(stored_run(Engine::Packet, wide));
    let (written, _) = sandbox.page();
    assert_eq!((written.counts.pass, written.counts.undecided), (0, 1));
}

#[test]
fn several_engines_have_a_column_each_and_one_picture() {
    let sandbox = Sandbox::new();
    for engine in [Engine::Netns, Engine::Packet, Engine::Fluid] {
        let mut verdicts = verdicts(&sandbox.experiment, engine);
        if engine == Engine::Netns {
            verdicts[0].range = Some((1.9412, 2.05));
            verdicts[0].tolerance = "20 %".into();
        }
        let run = stored_run(engine, verdicts);
        sandbox.store(run);
    }
    // A tolerance of its own is another claim, which the fixture has not; here the page's rows are looked at alone.
    let runs = results::load(&sandbox.options().results, "ppush/fig0").unwrap().unwrap().runs;
    for run in runs {
        let below = sandbox.folder.path().join(format!("out/ppush/fig0/{}-paper", run.engine));
        fs::create_dir_all(&below).unwrap();
        results::summarise(&below, Heading::of(&sandbox.experiment), &run).unwrap();
    }
    let (folder, out) = (sandbox.folder.path().join("out"), sandbox.folder.path().join("page"));
    let written = report_runs(&folder, &out).unwrap();
    let text = fs::read_to_string(&written.page).unwrap();
    assert_eq!(written.page, out.join("report.md"));
    let rows: Vec<&str> =
        text.lines().filter(|line| line.starts_with("| Claim") || line.starts_with("| T-")).collect();
    assert_eq!(
        rows,
        [
            "| Claim | What | Where | Published | Within | fluid | packet | netns |",
            "| T-1 | gain at load 0.9 | abstract | 2 | 10 % (fluid, packet), 20 % (netns) | \
             1.988 [1.96, 2.015]<br>3 seeds<br>pass | 1.988 [1.96, 2.015]<br>3 seeds<br>pass | \
             1.988 [1.96, 2.015]<br>1.941 to 2.05, 3 seeds<br>pass |",
            "| T-2/small | nothing is lost | Fig. 0 | - | at most 0 | 2<br>3 seeds<br>**miss** | \
             2<br>3 seeds<br>**miss** | 2<br>3 seeds<br>**miss** |",
        ],
        "{text}"
    );
    assert_eq!(written.counts, Counts { pass: 3, miss: 3, ..Counts::default() });
    assert_eq!(written.plots, 1, "the engines share it");
    let svg = fs::read_to_string(out.join("report/ppush-fig0-paper-1.svg")).unwrap();
    let places = ["fluid", "packet", "netns"].map(|engine| svg.find(&format!("dctcp ({engine})")).unwrap());
    assert!(places.is_sorted(), "from equations to real packets: {places:?}");
    assert!(!text.contains("On the misses"), "nobody is asked to explain a run of one's own");

    let (written, text) = (sandbox.page().0, sandbox.paper());
    assert!(text.contains("| Within | fluid | packet | netns |"), "{text}");
    assert_eq!((written.plots, written.counts.pass), (1, 2), "what another claim gave does not count");
}

#[test]
fn every_scale_of_a_folder_has_a_section_and_an_empty_folder_says_what_to_do() {
    let sandbox = Sandbox::new();
    let folder = sandbox.folder.path().join("out");
    let none = report_runs(sandbox.folder.path(), &folder).unwrap_err();
    assert!(matches!(none, LabError::NoRuns { .. }) && none.to_string().contains("lab run"), "{none}");
    for scale in [Scale::Paper, Scale::Small] {
        let run =
            StoredRun { scale, ..stored_run(Engine::Packet, verdicts(&sandbox.experiment, Engine::Packet)) };
        let below = folder.join(format!("ppush/fig0/packet-{scale}"));
        fs::create_dir_all(&below).unwrap();
        results::summarise(&below, Heading::of(&sandbox.experiment), &run).unwrap();
    }
    let written = report_runs(&folder, &folder).unwrap();
    let text = fs::read_to_string(&written.page).unwrap();
    for scale in ["small", "paper"] {
        assert!(text.contains(&format!("<a id=\"ppush-fig0-{scale}\"></a>")), "{text}");
        assert!(text.contains(&format!("packet engine at {scale} scale")), "{text}");
    }
    assert_eq!((written.plots, written.counts.pass), (2, 2));
    let listed = verdicts_of_runs(&folder).unwrap();
    assert_eq!(listed.len(), 4);
    assert!(listed[0].commit.as_deref().is_some_and(|commit| commit.starts_with("0123456789ab")));
}

#[test]
fn claims_that_one_engine_lacks_stand_where_the_file_has_them() {
    let experiment = Sandbox::new().experiment;
    let named = |engine: Engine, claims: &[&str]| {
        let one =
            |claim: &&str| Verdict { claim: (*claim).into(), ..verdicts(&experiment, engine).remove(0) };
        stored_run(engine, claims.iter().map(one).collect())
    };
    let runs = [
        named(Engine::Fluid, &["a", "c", "e"]),
        named(Engine::Packet, &["a", "b", "c", "d"]),
        named(Engine::Netns, &["z", "e"]),
    ];
    let order: Vec<(String, Engine)> = by_claim(&runs).into_iter().map(|it| (it.claim, it.engine)).collect();
    let claims: Vec<&str> = order.iter().map(|(claim, _)| claim.as_str()).collect();
    assert_eq!(claims, ["z", "a", "a", "b", "c", "c", "d", "e", "e"]);
    assert_eq!(order[1].1, Engine::Fluid);
}

#[test]
fn runs_in_real_time_say_on_what_machine_and_what_was_skipped() {
    let sandbox = Sandbox::new();
    let mut run = stored_run(Engine::Netns, verdicts(&sandbox.experiment, Engine::Netns));
    run.machine =
        Some(Machine { cpu: "Some CPU".into(), cores: 2, kernel: "6.1.0".into(), date: "2026-11-22".into() });
    run.skipped = vec![SkippedRun { run: "seed 2 (key)".into(), reason: "machine too busy".into() }];
    sandbox.store(run);
    let text = sandbox.paper();
    let line = "code `c0de`; 0 runs, 1 run skipped; Some CPU, 2 cores, Linux 6.1.0, 2026-11-22; **stale**: of other code\n  - skipped: seed 2";
    assert!(text.contains(line), "{text}");
}

#[test]
fn a_verdict_of_a_claim_that_is_another_now_does_not_count() {
    let sandbox = Sandbox::new();
    let mut old = verdicts(&sandbox.experiment, Engine::Packet);
    old[0].published = Some(Published::Number(1.9));
    old[1].claim = "T-0".into();
    sandbox.store(stored_run(Engine::Packet, old));
    let (written, text) = (sandbox.page().0, sandbox.paper());
    assert_eq!(written.counts, Counts { pending: 4, ..Counts::default() });
    assert!(text.contains("T-1 (packet): the claim has changed since it was run"), "{text}");
    assert!(text.contains("T-2/small (packet): the claim is newer than the stored run"), "{text}");
    assert!(!text.contains("T-0"), "{text}");
}

#[test]
fn a_claim_of_the_small_scale_alone_is_not_awaited_on_the_page() {
    let mut experiment = Sandbox::new().experiment;
    experiment.claims[1].scales = Some(vec![Scale::Small]);
    let claims: Vec<_> = super::verdicts(&experiment, None).into_iter().map(|it| it.claim).collect();
    assert!(claims.contains(&"T-1".to_owned()) && !claims.contains(&"T-2/small".to_owned()), "{claims:?}");
}

#[test]
fn a_note_about_misses_is_on_the_page() {
    let sandbox = Sandbox::new();
    sandbox.store(stored_run(Engine::Packet, verdicts(&sandbox.experiment, Engine::Packet)));
    let note = sandbox.options().results.join("notes/ppush/fig0.md");
    fs::create_dir_all(note.parent().unwrap()).unwrap();
    fs::write(note, "The queue is shorter than the paper's.\n").unwrap();
    let text = sandbox.paper();
    assert!(text.contains("**On the misses.** The queue is shorter than the paper's.\n"), "{text}");
}

#[test]
fn stored_verdicts_are_listed_with_their_commit() {
    let sandbox = Sandbox::new();
    sandbox.store(stored_run(Engine::Packet, verdicts(&sandbox.experiment, Engine::Packet)));
    let listed = standing(&sandbox.options().results, &sandbox.catalogue(), &Shipped).unwrap().verdicts;
    assert_eq!(listed.len(), 2);
    let json = serde_json::to_value(&listed[0]).unwrap();
    assert_eq!((&json["claim"], &json["verdict"]), (&"T-1".into(), &"pass".into()));
    assert!(json["commit"].as_str().unwrap().starts_with("0123456789ab"));
}
