//! Runs that take the time that they measure: one at a time, told to stop, and skipped where the machine was too busy.

use super::*;

fn real(sandbox: &Sandbox) -> RunOptions {
    RunOptions { engine: Some(Engine::Netns), ..sandbox.options() }
}

fn skipping(scheme: &'static str, seed: Option<u64>) -> Arc<Fake> {
    Arc::new(Fake { skips: Some((scheme, seed)), ..Arc::into_inner(fake()).unwrap() })
}

#[test]
fn a_skipped_run_is_no_number_no_pass_and_no_failure_and_is_tried_again() {
    let sandbox = Sandbox::new();
    let catalogue = Catalogue::at(&sandbox.folder.path().join("experiments")).unwrap();
    let mut heard = Heard::default();
    let result = run(&real(&sandbox), &catalogue, skipping("dctcp", Some(2)), &|| false, &mut heard).unwrap();
    let result = &result[0];
    assert_eq!((result.ran, result.skipped.len(), result.failures.len(), result.misses()), (6, 2, 0, 0));
    let skipped = result.skipped[0].to_string();
    assert!(skipped.contains("load 0.5, dctcp, seed 2") && skipped.contains("machine too busy"), "{skipped}");
    assert!(heard.notes[0].starts_with("skipped: ") && heard.notes.len() == 2, "{:?}", heard.notes);
    assert_eq!(heard.progress.last().unwrap().skipped, 2);
    // A ratio of two schemes has only the seed that both have.
    let gain = &result.verdicts[0].verdict;
    assert_eq!((gain.seeds, gain.verdict), (1, Verdicted::Pass));
    assert_eq!(gain.note, "2 of 8 runs skipped");
    // Means over all seeds of the other scheme.
    assert_eq!(result.verdicts[1].verdict.seeds, 2);

    let again = sandbox.run_with(&real(&sandbox), &fake()).unwrap().remove(0);
    assert_eq!(
        (again.kept, again.ran, again.skipped.len()),
        (6, 2, 0),
        "it is not kept, so it is tried again"
    );
    let gain = &again.verdicts[0].verdict;
    assert_eq!((gain.seeds, gain.note.as_str()), (2, ""));
}

#[test]
fn a_claim_with_no_run_left_is_pending_with_the_reason() {
    let sandbox = Sandbox::new();
    let result = sandbox.run_with(&real(&sandbox), &skipping("dctcp", None)).unwrap().remove(0);
    let verdicts: Vec<Verdicted> = result.verdicts.iter().map(|v| v.verdict.verdict).collect();
    assert_eq!(verdicts, [Verdicted::Pending, Verdicted::Pass]);
    let note = &result.verdicts[0].verdict.note;
    assert!(note.contains("4 of 8 runs skipped") && note.contains("machine too busy"), "{note}");

    let sandbox = Sandbox::new();
    let results = sandbox.folder.path().join("results");
    let options = RunOptions { scale: Scale::Paper, store: Some(results), ..real(&sandbox) };
    let result = sandbox.run_with(&options, &skipping("", None)).unwrap().remove(0);
    assert_eq!((result.ran, result.skipped.len(), result.stored.as_ref()), (0, 12, None), "nothing to keep");
    for judged in &result.verdicts {
        let verdict = &judged.verdict;
        assert_eq!((verdict.verdict, verdict.measured, verdict.seeds), (Verdicted::Pending, None, 0));
        assert!(verdict.note.contains("machine too busy"), "{}", verdict.note);
    }
}

#[test]
fn what_is_stored_says_where_it_was_measured_and_how_often_it_was_tried() {
    let sandbox = Sandbox::new();
    let results = sandbox.folder.path().join("results");
    let options = RunOptions { scale: Scale::Paper, store: Some(results.clone()), ..real(&sandbox) };
    let busy = Fake { invalid_tries: 2.0, ..Arc::into_inner(skipping("dctcp", Some(3))).unwrap() };
    let result = sandbox.run_with(&options, &Arc::new(busy)).unwrap().remove(0);
    assert_eq!((result.ran, result.invalid_tries), (10, 20));
    let stored = results::load(&results, "ppush/fig0").unwrap().unwrap();
    let run = &stored.runs[0];
    assert_eq!(run.amount(), "10 runs, 20 tries invalid, 2 runs skipped");
    assert!(run.machine.as_ref().is_some_and(|machine| !machine.cpu.is_empty()), "{:?}", run.machine);
    assert!(run.skipped[0].run.contains("seed 3"), "{:?}", run.skipped);
}

#[test]
fn runs_in_real_time_are_alone_whatever_the_number_of_threads() {
    let sandbox = Sandbox::new();
    let mixed = EXPERIMENT.replace(r#"["packet", "fluid", "netns"]"#, r#"["netns"]"#);
    fs::write(sandbox.folder.path().join("experiments/ppush/fig1.toml"), mixed).unwrap();
    fs::write(sandbox.folder.path().join("experiments/ppush/fig2.toml"), EXPERIMENT).unwrap();
    let fake = fake();
    // In between experiments whose runs may be beside each other.
    let what = ["fig0", "fig1", "fig2"].map(str::to_owned).to_vec();
    let options = RunOptions { what, threads: 4, ..sandbox.options() };
    let done = sandbox.run_with(&options, &fake).unwrap();
    let engines: Vec<_> = done.iter().map(|run| (run.engine, run.ran)).collect();
    assert_eq!(engines, [(Engine::Packet, 8), (Engine::Netns, 8), (Engine::Packet, 8)]);
    assert_eq!(fake.disturbed.load(Ordering::SeqCst), 0);
}

#[test]
fn a_stop_ends_a_run_in_real_time_and_waits_for_it() {
    let sandbox = Sandbox::new();
    let endless = Arc::new(Fake { endless: Some(0.into()), ..Arc::into_inner(fake()).unwrap() });
    let catalogue = Catalogue::at(&sandbox.folder.path().join("experiments")).unwrap();
    let begun = || endless.ran.load(Ordering::SeqCst) == 1;
    let stopped =
        run(&real(&sandbox), &catalogue, endless.clone(), &begun, &mut Heard::default()).unwrap_err();
    assert!(matches!(stopped, LabError::Stopped { done: 0, jobs: 8, .. }), "{stopped}");
    let ended = endless.endless.as_ref().unwrap().load(Ordering::SeqCst);
    assert_eq!((endless.ran.load(Ordering::SeqCst), ended), (1, 1), "it is over before the call returns");
    assert_eq!(fs::read_dir(sandbox.out().join("ppush/fig0/netns-small/jobs")).unwrap().count(), 0);
}

#[test]
fn captures_have_a_folder_per_run_and_are_made_where_they_are_missing() {
    let sandbox = Sandbox::new();
    let pcap = sandbox.folder.path().join("pcap");
    let options = RunOptions { pcap: Some(pcap.clone()), ..real(&sandbox) };
    let refused = sandbox.run_with(&RunOptions { engine: None, ..options.clone() }, &fake()).unwrap_err();
    assert!(
        refused.to_string().contains("--engine netns") && refused.to_string().contains("packet"),
        "{refused}"
    );

    sandbox.run_with(&real(&sandbox), &fake()).unwrap();
    let first = fake();
    assert_eq!(sandbox.run_with(&options, &first).unwrap()[0].ran, 8, "runs without captures do not count");
    let contexts = first.contexts.lock().unwrap();
    let folders: Vec<PathBuf> = contexts.iter().filter_map(|context| context.pcap.clone()).collect();
    assert_eq!(folders.len(), 8);
    assert!(folders.iter().all(|folder| folder.parent() == Some(&pcap.join("ppush/fig0"))), "{folders:?}");
    let logs = contexts[0].logs.as_ref().unwrap();
    assert_eq!(logs.parent(), Some(&*sandbox.out().join("ppush/fig0/netns-small/logs")));
    for folder in &folders {
        fs::create_dir_all(folder).unwrap();
    }
    assert_eq!(sandbox.run_with(&options, &fake()).unwrap()[0].kept, 8, "all are there");
}
