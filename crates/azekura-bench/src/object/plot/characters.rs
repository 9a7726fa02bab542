//! A plot of characters: the more marks in a place, the darker its character.
//!
//! Round latencies stand at the left, the first and last number below. It knows nothing of where marks
//! come from.

use super::{Figure, place};
use crate::object::lines::duration;

/// One mark, several, many, most.
const SHADES: [(usize, char); 4] = [(1, '.'), (3, ':'), (10, '*'), (30, '#')];
const MARGIN: usize = 10;

/// The lines, with a title if there is one.
pub(super) fn draw(figure: &Figure, width: usize, height: usize) -> String {
    let (columns, rows) = (width.saturating_sub(MARGIN + 2).max(1), height.max(2));
    let mut counts = vec![vec![0_usize; columns]; rows];
    for (column, row) in figure.cells(columns, rows) {
        counts[row][column] += 1;
    }
    let mut labels = vec![String::new(); rows];
    for tick in figure.scale.ticks() {
        if let Some(part) = figure.scale.height(tick) {
            labels[place(part, rows).min(rows - 1)] = duration(tick);
        }
    }
    let mut lines = Vec::new();
    if !figure.title.is_empty() {
        lines.push(format!("{:MARGIN$} {}", "", figure.title));
    }
    lines.push(figure.label());
    for (row, label) in counts.iter().zip(&labels).rev() {
        let marks: String = row.iter().map(|&count| shade(count)).collect();
        lines.push(format!("{label:>MARGIN$} |{marks}").trim_end().to_owned());
    }
    lines.push(format!("{:MARGIN$} +{}", "", "-".repeat(columns)));
    let last = figure.last.to_string();
    let gap = columns.saturating_sub(1);
    lines.push(format!("{:MARGIN$}  0{last:>gap$}", ""));
    lines.join("\n")
}

fn shade(count: usize) -> char {
    let reached = SHADES.iter().rev().find(|(least, _)| count >= *least);
    reached.map_or(' ', |(_, shade)| *shade)
}

#[cfg(test)]
mod tests {
    use crate::object::plot::tests::{figure, plan};
    use crate::object::plot::{PlotPlan, characters};

    #[test]
    fn a_plot_of_characters_is_what_it_is() {
        let plan = PlotPlan {
            title: "get".into(),
            y_max: Some(4.0),
            ..plan()
        };
        let figure = figure(&plan, &[0.5, 0.5, 0.5, 0.5, 3.5, 2.5, 1.5, 4.5]);
        let drawn = characters::draw(&figure, 14, 4);
        let expected = [
            "           get",
            "latency (1 of 8 over 4.00 s)",
            "    4.00 s | .",
            "    2.00 s | .",
            "    1.00 s | .",
            "       0 s |:",
        ];
        for (found, expected) in drawn.lines().zip(expected) {
            assert_eq!(found, expected, "{drawn}");
        }
        assert!(
            drawn.ends_with("\n           +--\n            07"),
            "{drawn}"
        );
    }
}
