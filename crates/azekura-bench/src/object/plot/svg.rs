//! A plot as SVG text: axes, round numbers at them, and a small square for each mark, darker where there are more.
//!
//! Marks in the same place become one, so the file is at most as large as the plot, however many there are. It knows
//! nothing of where marks come from, nor of files.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use super::{Figure, round_ticks};
use crate::report::duration;

/// Least marks in a place, and its colour.
const SHADES: [(u32, &str); 5] = [
    (1, "#4682d2"),
    (2, "#285fb4"),
    (4, "#144191"),
    (10, "#0a2864"),
    (40, "#820a3c"),
];
/// Pixels around the field of marks.
const LEFT: usize = 90;
const RIGHT: usize = 30;
const TOP: usize = 60;
const BOTTOM: usize = 50;

/// The text of an image of so many pixels, which have to be more than the margins.
pub(super) fn draw(figure: &Figure, width: usize, height: usize) -> String {
    let (columns, rows) = (width - LEFT - RIGHT, height - TOP - BOTTOM);
    let (base, right) = (height - BOTTOM, width - RIGHT);
    let mut grid = String::new();
    let mut labels = String::new();
    for tick in figure.scale.ticks() {
        let Some(part) = figure.scale.height(tick) else {
            continue;
        };
        let y = base as f64 - part * rows as f64;
        let _ = write!(grid, "M{LEFT} {y:.1}H{right}");
        let (x, label) = (LEFT - 8, duration(tick));
        let _ = writeln!(
            labels,
            "<text x=\"{x}\" y=\"{:.1}\" text-anchor=\"end\">{label}</text>",
            y + 4.0
        );
    }
    for tick in round_ticks(f64::from(figure.last.max(1))) {
        if tick.fract() > 1e-6 {
            continue;
        }
        let x = LEFT as f64 + tick / (f64::from(figure.last) + 1.0) * columns as f64;
        let _ = write!(grid, "M{x:.1} {TOP}V{base}");
        let _ = writeln!(
            labels,
            "<text x=\"{x:.1}\" y=\"{}\" text-anchor=\"middle\">{tick:.0}</text>",
            base + 20
        );
    }
    let title = escaped(&figure.title);
    let label = escaped(&figure.label());
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" \
         font-family=\"sans-serif\" font-size=\"13\">\n\
         <rect width=\"{width}\" height=\"{height}\" fill=\"#fff\"/>\n\
         <path d=\"{grid}\" stroke=\"#e2e2e2\"/>\n{}\
         <path d=\"M{LEFT} {TOP}V{base}H{right}\" fill=\"none\" stroke=\"#202020\"/>\n\
         <text x=\"{LEFT}\" y=\"22\" font-size=\"16\">{title}</text>\n\
         <text x=\"{LEFT}\" y=\"46\">{label}</text>\n{labels}\
         <text x=\"{right}\" y=\"{}\" text-anchor=\"end\">sequence number</text>\n</svg>\n",
        marks(figure, columns, rows, base),
        height - 8,
    )
}

/// A path of squares for each shade.
fn marks(figure: &Figure, columns: usize, rows: usize, base: usize) -> String {
    let mut counts: BTreeMap<(usize, usize), u32> = BTreeMap::new();
    for cell in figure.cells(columns, rows) {
        *counts.entry(cell).or_default() += 1;
    }
    let mut paths = SHADES.map(|_| String::new());
    for ((column, row), count) in counts {
        let shade = SHADES.iter().rposition(|(least, _)| count >= *least);
        let path = &mut paths[shade.unwrap_or(0)];
        let _ = write!(path, "M{} {}h3", LEFT + column, base - row);
    }
    let mut text = String::new();
    for (path, (_, colour)) in paths.into_iter().zip(SHADES) {
        if !path.is_empty() {
            let _ = writeln!(
                text,
                "<path d=\"{path}\" stroke=\"{colour}\" stroke-width=\"3\"/>"
            );
        }
    }
    text
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::object::plot::PlotPlan;
    use crate::object::plot::tests::figure;

    #[test]
    fn marks_in_one_place_are_one_darker_square_and_titles_are_escaped() {
        let plan = PlotPlan {
            title: "a < b & c".into(),
            ..PlotPlan::default()
        };
        let text = draw(&figure(&plan, &[0.1, 0.2, 50.0]), 640, 480);
        assert_eq!(text.matches("h3").count(), 3, "{text}");
        assert!(text.contains(">a &lt; b &amp; c</text>"), "{text}");
        assert!(text.contains(SHADES[0].1) && !text.contains(SHADES[1].1));
        let crowded = draw(&figure(&plan, &vec![0.5; 4000]), 200, 150);
        assert!(crowded.contains(SHADES[4].1), "{crowded}");
        assert!(crowded.matches("h3").count() <= 80, "{crowded}");
    }

    #[test]
    fn images_of_nothing_and_of_the_smallest_size_are_drawn() {
        for latencies in [&[][..], &[0.1]] {
            let text = draw(&figure(&PlotPlan::default(), latencies), 200, 150);
            assert!(text.starts_with("<svg ") && text.ends_with("</svg>\n"));
            assert!(text.contains("width=\"200\" height=\"150\""), "{text}");
        }
    }
}
