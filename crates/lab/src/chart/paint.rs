//! The forms of plots: lines with bands, bars with whiskers, boxes, distributions, time series.

use plotters::prelude::DrawingBackend;

use super::Panel;
use super::canvas::{Canvas, Position};
use super::style::{INK, Look};
use crate::results::{Kind, Line};

/// Where a panel is, in units.
#[derive(Clone, Copy, Debug)]
pub(super) struct Frame {
    pub(super) left: f64,
    pub(super) top: f64,
    pub(super) width: f64,
    pub(super) height: f64,
}

/// Part of a place's room that its bars take together.
const GROUP: f64 = 0.82;
/// Marks along a line that has more points than could carry one each.
const SPARSE_MARKS: usize = 7;
/// A line with no more points has a mark on each.
const FEW: usize = 40;

impl Frame {
    pub(super) fn x(&self, part: f64) -> f64 {
        self.left + part.clamp(0.0, 1.0) * self.width
    }

    pub(super) fn y(&self, part: f64) -> f64 {
        self.top + (1.0 - part.clamp(0.0, 1.0)) * self.height
    }

    /// All around and back.
    pub(super) fn corners(&self) -> [Position; 5] {
        let (right, bottom) = (self.left + self.width, self.top + self.height);
        let start = (self.left, self.top);
        [start, (right, self.top), (right, bottom), (self.left, bottom), start]
    }
}

/// A point of a line, and what is around it.
#[derive(Clone, Copy, Debug)]
struct At {
    x: f64,
    y: f64,
    interval: Option<(f64, f64)>,
    quartiles: Option<(f64, f64)>,
}

fn points(line: &Line) -> impl Iterator<Item = At> {
    line.points.iter().filter_map(|row| {
        let get = |i: usize| row.get(i).copied().flatten();
        Some(At { x: get(0)?, y: get(1)?, interval: get(2).zip(get(3)), quartiles: get(4).zip(get(5)) })
    })
}

/// Draws the lines of a panel.
pub(super) fn paint<B: DrawingBackend>(
    canvas: &Canvas<'_, B>,
    frame: &Frame,
    panel: &Panel<'_>,
) -> Result<(), String> {
    match panel.kind {
        Kind::Lines => {
            // All bands lie under all lines.
            panel.lines.iter().try_for_each(|(line, look)| band(canvas, frame, panel, line, *look))?;
            panel.lines.iter().enumerate().try_for_each(|(number, (line, look))| {
                stroke(canvas, frame, panel, &points(line).collect::<Vec<_>>(), *look, 2.0, number)
            })
        }
        Kind::Series => panel.lines.iter().enumerate().try_for_each(|(number, (line, look))| {
            // Dashes would be lost in a sawtooth; marks tell these lines apart.
            let look = Look { dashes: &[], ..*look };
            stroke(canvas, frame, panel, &points(line).collect::<Vec<_>>(), look, 1.4, number)
        }),
        Kind::Cdf => panel.lines.iter().enumerate().try_for_each(|(number, (line, look))| {
            stroke(canvas, frame, panel, &stairs(line), *look, 2.0, number)
        }),
        Kind::Bars | Kind::Box => {
            let count = panel.lines.len();
            panel.lines.iter().enumerate().try_for_each(|(number, (line, look))| {
                bars(canvas, frame, panel, line, *look, (number, count))
            })
        }
    }
}

/// The 95 % interval along a line.
fn band<B: DrawingBackend>(
    canvas: &Canvas<'_, B>,
    frame: &Frame,
    panel: &Panel<'_>,
    line: &Line,
    look: Look,
) -> Result<(), String> {
    let ends: Vec<(f64, f64, f64)> = points(line)
        .filter_map(|at| {
            let x = frame.x(panel.x.place(at.x)?);
            let (low, high) = at.interval?;
            // An end that has no place on a logarithmic axis is below all others.
            let y = |end: f64| frame.y(panel.y.place(end).unwrap_or(0.0));
            Some((x, y(low), y(high)))
        })
        .collect();
    match ends[..] {
        [] => Ok(()),
        [(x, low, high)] => whisker(canvas, x, low, high, 5.0),
        _ => {
            let up = ends.iter().map(|(x, low, _)| (*x, *low));
            let back = ends.iter().rev().map(|(x, _, high)| (*x, *high));
            canvas.area(&up.chain(back).collect::<Vec<_>>(), look.colour, 0.16)
        }
    }
}

/// A line with its marks; what has no place on the axes is a gap.
fn stroke<B: DrawingBackend>(
    canvas: &Canvas<'_, B>,
    frame: &Frame,
    panel: &Panel<'_>,
    line: &[At],
    look: Look,
    width: f64,
    number: usize,
) -> Result<(), String> {
    let places: Vec<Option<Position>> =
        line.iter().map(|at| Some((frame.x(panel.x.place(at.x)?), frame.y(panel.y.place(at.y)?)))).collect();
    for piece in places.split(Option::is_none) {
        let piece: Vec<Position> = piece.iter().flatten().copied().collect();
        if piece.len() > 1 {
            canvas.line(&piece, look.colour, width, look.dashes)?;
        }
    }
    let whole: Vec<Position> = places.into_iter().flatten().collect();
    if panel.kind == Kind::Lines && whole.len() <= FEW {
        return whole.iter().try_for_each(|at| canvas.mark(*at, look.mark, look.colour, 4.0));
    }
    // Each line begins elsewhere, so that marks of lines that coincide lie beside each other.
    let (Some(first), Some(last)) = (whole.first(), whole.last()) else { return Ok(()) };
    let step = (last.0 - first.0) / SPARSE_MARKS as f64;
    let offset = step * (0.3 + 0.4 * (number % 3) as f64 / 2.0);
    for mark in 0..SPARSE_MARKS {
        let x = first.0 + offset + mark as f64 * step;
        if let Some(at) = whole.iter().find(|at| at.0 >= x) {
            canvas.mark(*at, look.mark, look.colour, 3.4)?;
        }
    }
    Ok(())
}

/// A distribution as steps, from zero.
fn stairs(line: &Line) -> Vec<At> {
    let mut before = 0.0;
    let mut steps = Vec::new();
    for at in points(line) {
        steps.push(At { y: before, ..at });
        steps.push(at);
        before = at.y;
    }
    steps
}

/// Bars from zero with whiskers, or boxes between quartiles with the mean; `(number, count)` is the line's place in a
/// group.
fn bars<B: DrawingBackend>(
    canvas: &Canvas<'_, B>,
    frame: &Frame,
    panel: &Panel<'_>,
    line: &Line,
    look: Look,
    (number, count): (usize, usize),
) -> Result<(), String> {
    let wide = GROUP / count as f64;
    for at in points(line) {
        let Some(place) = panel.named.iter().position(|x| *x == at.x) else { continue };
        let from = place as f64 - GROUP / 2.0 + number as f64 * wide;
        let (Some(left), Some(right)) =
            (panel.x.place(from + wide * 0.06), panel.x.place(from + wide * 0.94))
        else {
            continue;
        };
        let (left, right) = (frame.x(left), frame.x(right));
        let middle = (left + right) / 2.0;
        let y = |value: f64| frame.y(panel.y.place(value).unwrap_or(0.0));
        let rectangle = |a: f64, b: f64| [(left, a), (right, a), (right, b), (left, b), (left, a)];
        if panel.kind == Kind::Bars {
            fill(canvas, (left, y(at.y)), (right, y(0.0)), look)?;
            if let Some((low, high)) = at.interval {
                whisker(canvas, middle, y(low), y(high), ((right - left) / 4.0).min(6.0))?;
            }
        } else {
            let (low, high) = at.quartiles.unwrap_or((at.y, at.y));
            canvas.area(&rectangle(y(low), y(high)), look.colour, 0.35)?;
            canvas.line(&rectangle(y(low), y(high)), look.colour, 1.5, &[])?;
            canvas.line(&[(left, y(at.y)), (right, y(at.y))], INK, 1.5, &[])?;
            canvas.mark((middle, y(at.y)), look.mark, look.colour, 3.6)?;
        }
    }
    Ok(())
}

/// A bar's area: full, or light with a broken edge for another engine's.
pub(super) fn fill<B: DrawingBackend>(
    canvas: &Canvas<'_, B>,
    (left, top): Position,
    (right, bottom): Position,
    look: Look,
) -> Result<(), String> {
    let corners = [(left, top), (right, top), (right, bottom), (left, bottom), (left, top)];
    if !look.layered {
        return canvas.area(&corners, look.colour, 1.0);
    }
    canvas.area(&corners, look.colour, 0.3)?;
    canvas.line(&corners, look.colour, 1.5, look.dashes)
}

/// An interval's ends, joined.
fn whisker<B: DrawingBackend>(
    canvas: &Canvas<'_, B>,
    x: f64,
    low: f64,
    high: f64,
    half: f64,
) -> Result<(), String> {
    for line in
        [[(x, low), (x, high)], [(x - half, low), (x + half, low)], [(x - half, high), (x + half, high)]]
    {
        canvas.line(&line, INK, 1.2, &[])?;
    }
    Ok(())
}
