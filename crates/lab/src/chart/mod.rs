//! Stored plots as SVG and PNG pictures: the same layout in both, and the same bytes every time.
//!
//! The drawing library only puts lines, areas and text on a canvas; axes, legend and the forms of plots are laid out
//! here, since its own charts have neither dashes on logarithmic axes nor room for long legends. The font is Noto Sans
//! (`assets/NotoSans-Regular.ttf`, Apache License 2.0).

mod canvas;
mod paint;
mod scale;
mod style;

use std::sync::Once;

use plotters::backend::{BitMapBackend, SVGBackend};
use plotters::coord::Shift;
use plotters::prelude::{DrawingArea, DrawingBackend, IntoDrawingArea};
use plotters::style::text_anchor::HPos;
use plotters::style::{FontStyle, WHITE, register_font};

use self::canvas::{Canvas, DETAIL, FONT, Medium, width};
use self::paint::{Frame, fill, paint};
use self::scale::Scale;
use self::style::{GREY, GRID, INK, Look, looks};
use super::LabError;
use super::results::{Drawn, Kind, Line};

static NOTO_SANS: &[u8] = include_bytes!("../../assets/NotoSans-Regular.ttf");

const TITLE: f64 = 19.0;
const LABEL: f64 = 15.5;
const SMALL: f64 = 14.0;
const MARGIN: f64 = 14.0;
const PANEL_WIDTH: f64 = 620.0;
/// Of one of several panels beside each other.
const SHARED_WIDTH: f64 = 420.0;
const PANEL_HEIGHT: f64 = 300.0;
const LEGEND_ROW: f64 = 22.0;
const SWATCH: f64 = 30.0;
/// Dots of the fine canvas that become one dot of a PNG, in each direction: this smooths all edges.
const SMOOTH: usize = 2;

/// A picture before it is drawn.
#[derive(Debug)]
pub(super) struct Chart<'a> {
    title: &'a str,
    panels: Vec<Panel<'a>>,
    legend: Vec<(String, Look)>,
    /// Whether the swatches of the legend are areas.
    filled: bool,
    x_label: &'a str,
    y_label: &'a str,
}

/// One frame with its lines.
#[derive(Debug)]
struct Panel<'a> {
    caption: &'a str,
    kind: Kind,
    lines: Vec<(&'a Line, Look)>,
    x: Scale,
    y: Scale,
    /// The numbers at places 0, 1, ..., where numbers are shown as names.
    named: Vec<f64>,
}

impl<'a> Chart<'a> {
    /// One plot as several engines give it, each with the engine's name: time series beside each other, everything
    /// else over each other. Nothing if there is no line.
    pub(super) fn new(figures: &[(&'a str, &'a Drawn)]) -> Option<Chart<'a>> {
        let with_lines: Vec<_> = figures.iter().filter(|(_, drawn)| !drawn.series.is_empty()).collect();
        let (_, first) = with_lines.first()?;
        let beside = first.kind == Kind::Series && with_lines.len() > 1;
        let several = with_lines.len() > 1;
        let layers = with_lines
            .iter()
            .enumerate()
            .flat_map(|(layer, (engine, drawn))| drawn.series.iter().map(move |line| (layer, *engine, line)));
        let layers: Vec<_> = layers.collect();
        let keys: Vec<(&str, usize)> = layers
            .iter()
            .map(|(layer, _, line)| (line.name.as_str(), if beside { 0 } else { *layer }))
            .collect();
        let looks = looks(&keys);
        let mut legend: Vec<(String, Look)> = Vec::new();
        for ((_, engine, line), look) in layers.iter().zip(&looks) {
            let label =
                if several && !beside { format!("{} ({engine})", line.name) } else { line.name.clone() };
            if !legend.iter().any(|(other, _)| *other == label) {
                legend.push((label, *look));
            }
        }
        let groups: Vec<(&str, Vec<(&Line, Look)>)> = if beside {
            let of = |layer: usize| {
                let own = layers.iter().zip(&looks).filter(move |((on, ..), _)| *on == layer);
                own.map(|((_, _, line), look)| (*line, *look)).collect()
            };
            with_lines.iter().enumerate().map(|(layer, (engine, _))| (*engine, of(layer))).collect()
        } else {
            vec![("", layers.iter().zip(&looks).map(|((_, _, line), look)| (*line, *look)).collect())]
        };
        // Panels beside each other are compared, so they share their axes.
        let all: Vec<&Line> = layers.iter().map(|(_, _, line)| *line).collect();
        let (x, y, named) = scales(first, &all);
        let panels = groups.into_iter().map(|(caption, lines)| Panel {
            caption,
            kind: first.kind,
            lines,
            x: x.clone(),
            y: y.clone(),
            named: named.clone(),
        });
        Some(Chart {
            title: &first.title,
            panels: panels.collect(),
            legend,
            filled: matches!(first.kind, Kind::Bars | Kind::Box),
            x_label: &first.x_label,
            y_label: &first.y_label,
        })
    }

    /// As an SVG file, with text as text.
    pub(super) fn svg(&self) -> Result<String, LabError> {
        let (wide, high) = self.size();
        let mut text = String::new();
        let dots = ((wide * DETAIL) as u32, (high * DETAIL) as u32);
        self.draw(&SVGBackend::with_string(&mut text, dots).into_drawing_area(), Medium::Svg)?;
        // The library draws in whole units; a finer grid is shown at its true size by its view box.
        let fine = format!("<svg width=\"{}\" height=\"{}\"", dots.0, dots.1);
        assert!(text.starts_with(&fine), "the library's SVG begins with its size");
        Ok(text.replacen(&fine, &format!("<svg width=\"{wide}\" height=\"{high}\""), 1))
    }

    /// As a PNG file, with two dots per unit of the SVG file.
    pub(super) fn png(&self) -> Result<Vec<u8>, LabError> {
        let (wide, high) = self.size();
        let (wide, high) = ((wide * DETAIL) as usize, (high * DETAIL) as usize);
        let mut fine = vec![0; wide * high * 3];
        let area = BitMapBackend::with_buffer(&mut fine, (wide as u32, high as u32)).into_drawing_area();
        self.draw(&area, Medium::Png)?;
        // It borrows the dots.
        drop(area);
        let (small_wide, small_high) = (wide / SMOOTH, high / SMOOTH);
        let mut smooth = Vec::with_capacity(small_wide * small_high * 3);
        for y in 0..small_high {
            for x in 0..small_wide {
                for colour in 0..3 {
                    let dot = |dx: usize, dy: usize| {
                        u32::from(fine[((y * SMOOTH + dy) * wide + x * SMOOTH + dx) * 3 + colour])
                    };
                    let sum: u32 = (0..SMOOTH * SMOOTH).map(|i| dot(i % SMOOTH, i / SMOOTH)).sum();
                    smooth.push((sum / (SMOOTH * SMOOTH) as u32) as u8);
                }
            }
        }
        let mut bytes = Vec::new();
        let mut encoder = png::Encoder::new(&mut bytes, small_wide as u32, small_high as u32);
        encoder.set_color(png::ColorType::Rgb);
        encoder.set_compression(png::Compression::High);
        let written = encoder.write_header().and_then(|mut image| image.write_image_data(&smooth));
        written.map_err(|error| self.failed(&error.to_string()))?;
        Ok(bytes)
    }

    fn failed(&self, reason: &str) -> LabError {
        LabError::Draw { title: self.title.to_owned(), reason: reason.to_owned() }
    }

    /// Left of the first frame: the label, the numbers, the marks.
    fn left(&self) -> f64 {
        let labels = self.panels.iter().flat_map(|panel| &panel.y.ticks).map(|(_, t)| width(t, SMALL));
        MARGIN + LABEL + 10.0 + labels.fold(0.0, f64::max) + 10.0
    }

    fn panel_width(&self) -> f64 {
        if self.panels.len() > 1 { SHARED_WIDTH } else { PANEL_WIDTH }
    }

    fn size(&self) -> (f64, f64) {
        register();
        let count = self.panels.len() as f64;
        let wide = self.left() + count * self.panel_width() + (count - 1.0) * MARGIN * 2.0 + MARGIN * 2.0;
        let label = if self.x_label.is_empty() { 0.0 } else { LABEL + 10.0 };
        (wide.ceil(), (self.top() + PANEL_HEIGHT + 22.0 + label + MARGIN).ceil())
    }

    /// Above the frames: title, legend, captions.
    fn top(&self) -> f64 {
        let captions = if self.panels.len() > 1 { 22.0 } else { 8.0 };
        MARGIN + TITLE + 8.0 + self.legend_rows().len() as f64 * LEGEND_ROW + captions
    }

    /// The entries of the legend in rows that fit.
    fn legend_rows(&self) -> Vec<Vec<(f64, &str, Look)>> {
        let room = self.panel_width() * self.panels.len() as f64;
        let mut rows = vec![Vec::new()];
        let mut x = 0.0;
        for (label, look) in &self.legend {
            let needs = SWATCH + 6.0 + width(label, SMALL) + 18.0;
            if x + needs > room && x > 0.0 {
                rows.push(Vec::new());
                x = 0.0;
            }
            if let Some(row) = rows.last_mut() {
                row.push((x, label.as_str(), *look));
            }
            x += needs;
        }
        rows
    }

    fn draw<B: DrawingBackend>(&self, area: &DrawingArea<B, Shift>, medium: Medium) -> Result<(), LabError> {
        register();
        area.fill(&WHITE).map_err(|error| self.failed(&error.to_string()))?;
        self.lay_out(&Canvas::new(area, medium)).map_err(|error| self.failed(&error))?;
        area.present().map_err(|error| self.failed(&error.to_string()))
    }

    fn lay_out<B: DrawingBackend>(&self, canvas: &Canvas<'_, B>) -> Result<(), String> {
        let (left, top) = (self.left(), self.top());
        canvas.text(self.title, (left, MARGIN + TITLE / 2.0), HPos::Left, TITLE, INK)?;
        for (number, row) in self.legend_rows().into_iter().enumerate() {
            let y = MARGIN + TITLE + 8.0 + (number as f64 + 0.5) * LEGEND_ROW;
            for (x, label, look) in row {
                let (from, to) = (left + x, left + x + SWATCH);
                if self.filled {
                    fill(canvas, (from + 4.0, y - 6.0), (to, y + 6.0), look)?;
                } else {
                    canvas.line(&[(from, y), (to, y)], look.colour, 2.0, look.dashes)?;
                    canvas.mark(((from + to) / 2.0, y), look.mark, look.colour, 3.8)?;
                }
                canvas.text(label, (to + 6.0, y), HPos::Left, SMALL, INK)?;
            }
        }
        for (number, panel) in self.panels.iter().enumerate() {
            let x = left + number as f64 * (self.panel_width() + MARGIN * 2.0);
            let frame = Frame { left: x, top, width: self.panel_width(), height: PANEL_HEIGHT };
            if !panel.caption.is_empty() {
                canvas.text(panel.caption, (x, top - 11.0), HPos::Left, LABEL, INK)?;
            }
            axes(canvas, panel, &frame, number == 0)?;
            paint(canvas, &frame, panel)?;
            canvas.line(&frame.corners(), INK, 1.0, &[])?;
            let under = top + PANEL_HEIGHT + 32.0 + LABEL / 2.0;
            canvas.text(self.x_label, (x + frame.width / 2.0, under), HPos::Center, LABEL, INK)?;
        }
        let label = (MARGIN + LABEL / 2.0, top + PANEL_HEIGHT / 2.0);
        canvas.upright(self.y_label, label, LABEL, INK)
    }
}

/// Grid, marks and numbers of a frame.
fn axes<B: DrawingBackend>(
    canvas: &Canvas<'_, B>,
    panel: &Panel<'_>,
    frame: &Frame,
    first: bool,
) -> Result<(), String> {
    let bottom = frame.top + frame.height;
    let names = panel.kind == Kind::Bars || panel.kind == Kind::Box;
    for (value, label) in &panel.x.ticks {
        let Some(x) = panel.x.place(*value).map(|p| frame.x(p)) else { continue };
        if !names {
            canvas.line(&[(x, frame.top), (x, bottom)], GRID, 1.0, &[])?;
            canvas.line(&[(x, bottom), (x, bottom - 5.0)], INK, 1.0, &[])?;
        }
        canvas.text(label, (x, bottom + 6.0 + SMALL / 2.0), HPos::Center, SMALL, INK)?;
    }
    for (value, label) in &panel.y.ticks {
        let Some(y) = panel.y.place(*value).map(|p| frame.y(p)) else { continue };
        canvas.line(&[(frame.left, y), (frame.left + frame.width, y)], GRID, 1.0, &[])?;
        canvas.line(&[(frame.left, y), (frame.left + 5.0, y)], INK, 1.0, &[])?;
        if first {
            canvas.text(label, (frame.left - 7.0, y), HPos::Right, SMALL, INK)?;
        }
    }
    for x in panel.x.minor.iter().filter_map(|v| panel.x.place(*v)).map(|p| frame.x(p)) {
        canvas.line(&[(x, bottom), (x, bottom - 3.0)], INK, 1.0, &[])?;
    }
    for y in panel.y.minor.iter().filter_map(|v| panel.y.place(*v)).map(|p| frame.y(p)) {
        canvas.line(&[(frame.left, y), (frame.left + 3.0, y)], INK, 1.0, &[])?;
    }
    if first && !panel.y.factor.is_empty() {
        canvas.text(&panel.y.factor, (frame.left - 7.0, frame.top - 11.0), HPos::Right, SMALL, GREY)?;
    }
    if !panel.x.factor.is_empty() {
        let right = frame.left + frame.width;
        canvas.text(&panel.x.factor, (right, bottom + 32.0 + LABEL / 2.0), HPos::Right, SMALL, GREY)?;
    }
    Ok(())
}

/// The axes for these lines, and the numbers that stand as names.
fn scales(drawn: &Drawn, lines: &[&Line]) -> (Scale, Scale, Vec<f64>) {
    let points = || lines.iter().flat_map(|line| &line.points);
    let column = |at: usize| points().filter_map(move |p| p.get(at).copied().flatten());
    let names_only = matches!(drawn.kind, Kind::Bars | Kind::Box);
    let mut named = Vec::new();
    let x = if !drawn.categories.is_empty() {
        named = (0..drawn.categories.len()).map(|place| place as f64).collect();
        Scale::for_names(&drawn.categories)
    } else if names_only {
        named = column(0).collect();
        named.sort_by(f64::total_cmp);
        named.dedup();
        Scale::for_names(&named.iter().map(f64::to_string).collect::<Vec<_>>())
    } else {
        Scale::for_values(column(0), drawn.log_x, false)
    };
    let y = match drawn.kind {
        Kind::Cdf => Scale::for_values([0.0, 1.0].into_iter(), false, true),
        kind => {
            let room = room_of(column(1));
            // Boxes have quartiles in place of intervals.
            let first = if kind == Kind::Box { 4 } else { 2 };
            let ends = column(first).chain(column(first + 1));
            let ends = ends.map(move |end| end.clamp(room.0, room.1));
            Scale::for_values(column(1).chain(ends), drawn.log_y, kind == Kind::Bars && !drawn.log_y)
        }
    };
    (x, y, named)
}

/// How far intervals may stretch an axis: few seeds can give ends that would leave everything else a flat line.
fn room_of(values: impl Iterator<Item = f64>) -> (f64, f64) {
    let (low, high) =
        values.fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), v| (low.min(v), high.max(v)));
    if low > high {
        return (f64::NEG_INFINITY, f64::INFINITY);
    }
    let room = (high - low).max(high.abs() * 0.5);
    // Below zero only what is drawn there.
    (if low >= 0.0 { (low - room).max(0.0) } else { low - room }, high + room)
}

/// Makes the font known, once per process.
fn register() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let known = register_font(FONT, FontStyle::Normal, NOTO_SANS);
        assert!(known.is_ok(), "the font in assets/ is a whole TrueType file");
    });
}

#[cfg(test)]
mod tests;
