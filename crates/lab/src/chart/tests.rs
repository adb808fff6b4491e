//! Charts of each kind are whole, the same every time, and have their words in them.

use super::*;

pub(super) fn drawn(kind: Kind) -> Drawn {
    let bars = matches!(kind, Kind::Bars | Kind::Box);
    let schemes = ["ppush(0,0)", "ppush(0,1)", "ppush(1,0)", "ppush(1,1)", "dctcp", "dccp", "reno"];
    let line = |(number, name): (usize, &&str)| {
        let point = |i: usize| {
            let steps = [0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99];
            let x = if bars { i as f64 } else { steps[i] };
            let y = (1.0 + 0.3 * number as f64) / (1.05 - if bars { 0.3 * i as f64 } else { steps[i] });
            let half = y * 0.06;
            vec![Some(x), Some(y), Some(y - half), Some(y + half), Some(y - half / 2.0), Some(y + half / 2.0)]
        };
        let wave = |i: usize| {
            let t = i as f64 / 75.0;
            let y = 15.0 + 12.0 * ((t * 9.0 + number as f64).fract() - 0.3) * (1.0 + number as f64 * 0.4);
            vec![Some(t), Some(y)]
        };
        let share =
            |i: usize| vec![Some(((i + number * 9) as f64 / 150.0).powi(2)), Some((i + 1) as f64 / 120.0)];
        let points = match kind {
            Kind::Lines => (0..7).map(point).collect(),
            Kind::Bars | Kind::Box => (0..3).map(point).collect(),
            Kind::Series => (0..600).map(wave).collect(),
            Kind::Cdf => (0..120).map(share).collect(),
        };
        Line { name: (*name).to_owned(), points }
    };
    let most = match kind {
        Kind::Series => 2,
        Kind::Cdf => 4,
        _ => schemes.len(),
    };
    let (x_label, y_label) = match kind {
        Kind::Lines => ("load of the storage nodes' uplinks", "normalised ATCT"),
        Kind::Bars | Kind::Box => ("", "ATCT (s)"),
        Kind::Series => ("time (s)", "window (packets)"),
        Kind::Cdf => ("share of the task", "share of flows"),
    };
    Drawn {
        title: "Task completion times under load".into(),
        kind,
        x_label: x_label.into(),
        y_label: y_label.into(),
        log_x: false,
        log_y: false,
        categories: if bars {
            ["obs", "leaf-spine", "fat-tree"].map(str::to_owned).to_vec()
        } else {
            Vec::new()
        },
        series: schemes.iter().take(most).enumerate().map(line).collect(),
    }
}

const KINDS: [Kind; 5] = [Kind::Lines, Kind::Bars, Kind::Box, Kind::Cdf, Kind::Series];

#[test]
fn every_kind_is_drawn_with_its_labels_and_legend() {
    for kind in KINDS {
        let drawn = drawn(kind);
        let svg = Chart::new(&[("packet", &drawn)]).unwrap().svg().unwrap();
        let words = [drawn.title.as_str(), drawn.y_label.as_str(), "ppush(0,0)", "ppush(0,1)"];
        for word in words.iter().chain(drawn.categories.iter().map(String::as_str).collect::<Vec<_>>().iter())
        {
            assert!(svg.contains(word), "{kind:?} lacks {word}");
        }
        assert!(svg.trim_end().ends_with("</svg>"), "{kind:?}");
    }
}

#[test]
fn pictures_are_the_same_every_time_and_twice_the_size_as_png() {
    let drawn = drawn(Kind::Lines);
    let chart = Chart::new(&[("packet", &drawn)]).unwrap();
    let (svg, png) = (chart.svg().unwrap(), chart.png().unwrap());
    assert_eq!((chart.svg().unwrap(), chart.png().unwrap()), (svg.clone(), png.clone()));
    let info = png::Decoder::new(std::io::Cursor::new(&png)).read_info().unwrap();
    let (wide, high) = chart.size();
    assert_eq!(info.info().size(), ((wide * 2.0) as u32, (high * 2.0) as u32));
    assert!(svg.contains(&format!("width=\"{wide}\" height=\"{high}\"")), "{}", &svg[..200]);
}

#[test]
fn engines_lie_over_each_other_but_time_series_beside_each_other() {
    let (lines, series) = (drawn(Kind::Lines), drawn(Kind::Series));
    let over = Chart::new(&[("packet", &lines), ("flow", &lines)]).unwrap();
    assert_eq!((over.panels.len(), over.legend.len()), (1, 14));
    assert!(over.svg().unwrap().contains("reno (flow)"));
    let beside = Chart::new(&[("packet", &series), ("fluid", &series)]).unwrap();
    assert_eq!((beside.panels.len(), beside.legend.len()), (2, 2));
    assert!(beside.svg().unwrap().contains("fluid"));
}

#[test]
fn a_plot_without_points_is_no_chart() {
    let empty = Drawn { series: Vec::new(), ..drawn(Kind::Lines) };
    assert!(Chart::new(&[("packet", &empty)]).is_none());
    assert!(Chart::new(&[]).is_none());
}

#[test]
fn numbers_that_have_no_place_leave_gaps_and_break_nothing() {
    let mut lines = drawn(Kind::Lines);
    (lines.log_x, lines.log_y) = (true, true);
    lines.series[0].points[2][1] = Some(-1.0);
    lines.series[1].points[3] = vec![None, Some(f64::NAN)];
    lines.series[2].points = vec![vec![Some(0.7), Some(0.0), Some(-1.0), Some(1e30)]];
    lines.series[3].points.clear();
    Chart::new(&[("packet", &lines)]).unwrap().svg().unwrap();
}

/// Writes one picture per kind into the folder that is named, for people to look at.
#[test]
#[ignore = "makes pictures for people: CHARTS=folder cargo test -p headwater-lab --lib chart -- --ignored"]
fn pictures_for_people() {
    let folder = std::path::PathBuf::from(std::env::var_os("CHARTS").expect("CHARTS names a folder"));
    let write = |name: &str, figures: &[(&str, &Drawn)]| {
        let chart = Chart::new(figures).unwrap();
        std::fs::write(folder.join(format!("{name}.png")), chart.png().unwrap()).unwrap();
        std::fs::write(folder.join(format!("{name}.svg")), chart.svg().unwrap()).unwrap();
    };
    for kind in KINDS {
        write(&format!("{kind:?}").to_lowercase(), &[("packet", &drawn(kind))]);
    }
    let series = drawn(Kind::Series);
    write("beside", &[("packet", &series), ("fluid", &series)]);
    let mut few = drawn(Kind::Bars);
    few.series.truncate(3);
    write("bars-layered", &[("packet", &few), ("flow", &few)]);
    let mut log = drawn(Kind::Lines);
    (log.log_x, log.log_y) = (true, true);
    for (number, line) in log.series.iter_mut().enumerate() {
        for (i, point) in line.points.iter_mut().enumerate() {
            let y = 2e6 / 10_f64.powi(i as i32) * (1.0 + number as f64);
            *point = vec![Some(10_f64.powi(i as i32 - 5)), Some(y)];
        }
    }
    write("log", &[("packet", &log)]);
    log.log_y = false;
    write("factor", &[("packet", &log), ("flow", &log)]);
}
