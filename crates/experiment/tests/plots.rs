//! Plots draw what the rows say.

mod common;

use common::{experiment, gathered, sample, task};
use headwater_experiment::experiment::{Engine, Experiment, Figure, PlotKind, Scale};
use headwater_experiment::table::{FlowRow, Tables};

fn figures(experiment: &Experiment, tables: &Tables) -> Vec<Figure> {
    let axes = experiment.axes_at(Engine::Packet, Scale::Paper);
    let draw = |plot: &headwater_experiment::experiment::Plot| {
        plot.figure(Engine::Packet, Scale::Paper, tables, &axes, &experiment.schemes)
    };
    experiment.plots.iter().map(draw).collect()
}

#[test]
fn boxes_have_a_place_per_network_and_quartiles_over_seeds() {
    let fig8 = experiment("ppush/fig8");
    let tables = gathered(&fig8, Scale::Paper, |job| {
        let mut tables = Tables::default();
        if job.scheme != "reno" {
            task("t0", job.seed as f64).push(&mut tables.tasks);
        }
        tables
    });
    let figure = &figures(&fig8, &tables)[0];
    assert_eq!((figure.kind, figure.categories.len()), (PlotKind::Box, 3));
    assert_eq!(figure.series.len(), 6, "what has no rows is not drawn");
    let point = figure.series[0].points[2];
    assert_eq!((point.x, point.y, point.quartiles), (2.0, 10.5, Some((5.75, 15.25))));
    let (low, high) = point.interval.unwrap();
    // 20 seeds of deviation 5.916: 2.093 * 5.916 / sqrt(20) = 2.769.
    assert!((high - low - 2.0 * 2.7688).abs() < 1e-3, "{low} {high}");
}

#[test]
fn lines_run_along_the_numbers_of_their_axis() {
    let fig11a = experiment("ppush/fig11a");
    let tables = gathered(&fig11a, Scale::Paper, |job| {
        let mut tables = Tables::default();
        task("t0", 2.0 * job.point[0].1.parse::<f64>().unwrap()).push(&mut tables.tasks);
        tables
    });
    let figure = &figures(&fig11a, &tables)[0];
    assert!(figure.categories.is_empty());
    let line: Vec<(f64, f64)> = figure.series[0].points.iter().map(|p| (p.x, p.y)).collect();
    assert_eq!(line.len(), 7);
    assert!(line.iter().all(|(x, y)| (y - 2.0 * x).abs() < 1e-9), "{line:?}");
}

#[test]
fn distributions_rise_to_one() {
    let fig9 = experiment("ppush/fig9");
    let tables = gathered(&fig9, Scale::Paper, |_| {
        let mut tables = Tables::default();
        for i in 1..=300u64 {
            let share = i as f64 / 300.0;
            let (task, flow) = (format!("t{i}"), format!("t{i}.0"));
            let row = FlowRow {
                task,
                flow,
                source: 0,
                receiver: 1,
                packets: i,
                share,
                start_s: 0.0,
                finish_s: 1.0,
                timeouts: 0,
                losses: 0,
                marks: 0,
            };
            row.push(&mut tables.flows);
        }
        tables
    });
    let figure = &figures(&fig9, &tables)[0];
    assert_eq!(figure.series.len(), 4);
    for series in &figure.series {
        assert!(series.points.len() <= 2000, "6000 rows are thinned");
        assert!(series.points.windows(2).all(|pair| pair[0].x <= pair[1].x && pair[0].y < pair[1].y));
        let last = series.points.last().unwrap();
        assert_eq!((last.x, last.y), (1.0, 1.0));
    }
}

#[test]
fn time_series_show_the_first_seed_and_engines_stand_side_by_side() {
    let fig2 = experiment("ppush/fig2");
    let tables = gathered(&fig2, Scale::Paper, |job| {
        let mut tables = Tables::default();
        for step in 0..5 {
            sample(f64::from(step), "f1", "window", job.seed as f64).push(&mut tables.samples);
        }
        tables
    });
    let figure = figures(&fig2, &tables).remove(0);
    assert_eq!(figure.series.len(), 1, "f2 has no samples");
    assert_eq!(figure.series[0].name, "f1");
    assert!(figure.series[0].points.iter().all(|p| p.y == 1.0) && figure.series[0].points.len() == 5);
    let both = Figure::beside(vec![("packet".into(), figure.clone()), ("fluid".into(), figure)]).unwrap();
    let names: Vec<&str> = both.series.iter().map(|s| s.name.as_str()).collect();
    assert_eq!(names, ["f1 (packet)", "f1 (fluid)"]);
}
