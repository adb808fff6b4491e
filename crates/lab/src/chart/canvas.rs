//! Drawing surface of a chart: lines with dashes, marks, areas and text, in units of the chart's own size.
//!
//! A canvas is [`DETAIL`] times as fine as these units in each direction, since the drawing library places
//! everything on whole dots.

use std::fmt::Display;

use plotters::coord::Shift;
use plotters::prelude::{Circle, DrawingArea, DrawingBackend, PathElement, Polygon, Text};
use plotters::style::text_anchor::{HPos, Pos, VPos};
use plotters::style::{
    Color, FontDesc, FontFamily, FontStyle, FontTransform, RGBColor, ShapeStyle, TextStyle,
};

/// Dots per unit.
pub(super) const DETAIL: f64 = 4.0;
/// The name that the font goes by; viewers of an SVG file, who do not have it, take their own.
pub(super) const FONT: &str = "sans-serif";

/// A point in units from the top left.
pub(super) type Position = (f64, f64);

/// How a line is broken: lengths of dash and gap in turn; unbroken if empty.
pub(super) type Dashes = &'static [f64];

/// The marks that tell lines apart where colours do not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mark {
    Disc,
    Square,
    Up,
    Diamond,
    Down,
    Ring,
    Cross,
    Plus,
}

/// File format of a canvas; the library places and sizes text differently in each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Medium {
    Svg,
    Png,
}

pub(super) struct Canvas<'a, B: DrawingBackend> {
    area: &'a DrawingArea<B, Shift>,
    medium: Medium,
}

/// Distance by which the library draws text above the middle that it was to be centred on, in heights of the text: its
/// box is taken to be 1/1.24 high with the baseline at one half, capitals of this font are 0.52 high.
const TOO_HIGH: f64 = 0.12;
/// The library's SVG has an em of height / 1.24, its dots one of height / 1.362 (this font's line).
const SVG_SIZE: f64 = 1.24 / 1.362;

fn dots(place: Position) -> (i32, i32) {
    ((place.0 * DETAIL).round() as i32, (place.1 * DETAIL).round() as i32)
}

fn words(error: impl Display) -> String {
    error.to_string()
}

impl<'a, B: DrawingBackend> Canvas<'a, B> {
    pub(super) fn new(area: &'a DrawingArea<B, Shift>, medium: Medium) -> Self {
        Canvas { area, medium }
    }

    /// A font that is that high in this medium, and how far to move its text.
    fn font(&self, size: f64) -> (FontDesc<'static>, f64) {
        match self.medium {
            Medium::Svg => (font(size * SVG_SIZE), 0.0),
            Medium::Png => (font(size), size * TOO_HIGH),
        }
    }

    pub(super) fn line(
        &self,
        points: &[Position],
        colour: RGBColor,
        width: f64,
        dashes: Dashes,
    ) -> Result<(), String> {
        let style = colour.stroke_width((width * DETAIL).round() as u32);
        for piece in dashed(points, dashes) {
            let piece: Vec<_> = piece.into_iter().map(dots).collect();
            self.area.draw(&PathElement::new(piece, style)).map_err(words)?;
        }
        Ok(())
    }

    pub(super) fn area(&self, corners: &[Position], colour: RGBColor, opacity: f64) -> Result<(), String> {
        let corners: Vec<_> = corners.iter().copied().map(dots).collect();
        let style: ShapeStyle = colour.mix(opacity).filled();
        self.area.draw(&Polygon::new(corners, style)).map_err(words)
    }

    pub(super) fn mark(&self, at: Position, mark: Mark, colour: RGBColor, size: f64) -> Result<(), String> {
        let around = |corners: &[(f64, f64)]| -> Vec<Position> {
            corners.iter().map(|(x, y)| (at.0 + x * size, at.1 + y * size)).collect()
        };
        let strokes = |ends: [[(f64, f64); 2]; 2]| {
            ends.iter().try_for_each(|ends| self.line(&around(ends), colour, 1.6, &[]))
        };
        match mark {
            Mark::Disc => self.disc(at, size, colour.filled()),
            Mark::Ring => {
                self.disc(at, size, plotters::style::WHITE.filled())?;
                self.disc(at, size, colour.stroke_width((1.5 * DETAIL) as u32))
            }
            Mark::Square => {
                self.area(&around(&[(-0.9, -0.9), (0.9, -0.9), (0.9, 0.9), (-0.9, 0.9)]), colour, 1.0)
            }
            Mark::Up => self.area(&around(&[(0.0, -1.2), (1.1, 0.8), (-1.1, 0.8)]), colour, 1.0),
            Mark::Down => self.area(&around(&[(0.0, 1.2), (1.1, -0.8), (-1.1, -0.8)]), colour, 1.0),
            Mark::Diamond => {
                self.area(&around(&[(0.0, -1.3), (1.1, 0.0), (0.0, 1.3), (-1.1, 0.0)]), colour, 1.0)
            }
            Mark::Cross => strokes([[(-0.9, -0.9), (0.9, 0.9)], [(-0.9, 0.9), (0.9, -0.9)]]),
            Mark::Plus => strokes([[(-1.2, 0.0), (1.2, 0.0)], [(0.0, -1.2), (0.0, 1.2)]]),
        }
    }

    fn disc(&self, at: Position, size: f64, style: ShapeStyle) -> Result<(), String> {
        self.area.draw(&Circle::new(dots(at), (size * DETAIL).round() as i32, style)).map_err(words)
    }

    /// Text of that height with its left end, middle or right end at a place, centred on it upright.
    pub(super) fn text(
        &self,
        text: &str,
        at: Position,
        end: HPos,
        size: f64,
        colour: RGBColor,
    ) -> Result<(), String> {
        let (font, down) = self.font(size);
        let style = TextStyle::from(font).color(&colour).pos(Pos::new(end, VPos::Center));
        self.area.draw(&Text::new(text, dots((at.0, at.1 + down)), style)).map_err(words)
    }

    /// Text that reads upwards, its middle at a place.
    pub(super) fn upright(
        &self,
        text: &str,
        at: Position,
        size: f64,
        colour: RGBColor,
    ) -> Result<(), String> {
        let (font, down) = self.font(size);
        let font = font.transform(FontTransform::Rotate270);
        let style = TextStyle::from(font).color(&colour).pos(Pos::new(HPos::Center, VPos::Center));
        // Down is to the right for what reads upwards.
        self.area.draw(&Text::new(text, dots((at.0 + down, at.1)), style)).map_err(words)
    }
}

/// How wide a text of that height is.
pub(super) fn width(text: &str, size: f64) -> f64 {
    font(size).box_size(text).map_or(0.0, |(width, _)| f64::from(width) / DETAIL)
}

fn font(size: f64) -> FontDesc<'static> {
    FontDesc::new(FontFamily::SansSerif, size * DETAIL, FontStyle::Normal)
}

/// A line in pieces.
fn dashed(points: &[Position], dashes: Dashes) -> Vec<Vec<Position>> {
    if dashes.is_empty() {
        return vec![points.to_vec()];
    }
    let mut pieces = Vec::new();
    let mut piece: Vec<Position> = points.first().copied().into_iter().collect();
    let (mut part, mut left) = (0, dashes[0]);
    for pair in points.windows(2) {
        let (mut from, to) = (pair[0], pair[1]);
        let mut rest = (to.0 - from.0).hypot(to.1 - from.1);
        while rest > left {
            let share = left / rest;
            from = (from.0 + (to.0 - from.0) * share, from.1 + (to.1 - from.1) * share);
            rest -= left;
            // Even parts are dashes, odd ones gaps.
            if part % 2 == 0 {
                piece.push(from);
                pieces.push(std::mem::take(&mut piece));
            } else {
                piece = vec![from];
            }
            part = (part + 1) % dashes.len();
            left = dashes[part];
        }
        left -= rest;
        if part % 2 == 0 {
            piece.push(to);
        }
    }
    pieces.push(piece);
    pieces.retain(|piece| piece.len() > 1);
    pieces
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_broken_line_has_its_dashes_around_corners() {
        let corner = [(0.0, 0.0), (10.0, 0.0), (10.0, 10.0)];
        let pieces = dashed(&corner, &[6.0, 3.0]);
        let expected: [&[Position]; 3] = [
            &[(0.0, 0.0), (6.0, 0.0)],
            &[(9.0, 0.0), (10.0, 0.0), (10.0, 5.0)],
            &[(10.0, 8.0), (10.0, 10.0)],
        ];
        assert_eq!(pieces, expected);
        assert_eq!(dashed(&corner, &[]), [corner.to_vec()]);
        assert!(dashed(&[], &[6.0, 3.0]).is_empty());
    }
}
