//! A plot of pixels: axes, round numbers at them, and a small square for each mark, darker where there are
//! more.
//!
//! Letters are drawn from a table of five by seven dots; small ones look like large ones. It knows nothing
//! of where marks come from, nor of files.

use super::{Figure, place, png, round_ticks};
use crate::object::measured::duration;

const WHITE: u8 = 0;
const GRID: u8 = 1;
const INK: u8 = 2;
/// The first of the shades of marks, light to dark.
const SHADE: u8 = 3;
const PALETTE: [[u8; 3]; 8] = [
    [255, 255, 255],
    [226, 226, 226],
    [32, 32, 32],
    [70, 130, 210],
    [40, 95, 180],
    [20, 65, 145],
    [10, 40, 100],
    [130, 10, 60],
];
/// Marks in a pixel at which the next shade begins.
const SHADES: [u32; 4] = [2, 4, 10, 40];
/// Pixels of a dot of a letter, and from one letter to the next.
const DOT: usize = 2;
const ADVANCE: usize = 6 * DOT;
const LETTER_HEIGHT: usize = 7 * DOT;
/// Pixels around the field of marks.
const LEFT: usize = 110;
const RIGHT: usize = 30;
const TOP: usize = 60;
const BOTTOM: usize = 50;

struct Canvas {
    width: usize,
    height: usize,
    pixels: Vec<u8>,
}

/// The bytes of a PNG of so many pixels, which have to be more than the margins.
pub(super) fn draw(figure: &Figure, width: usize, height: usize) -> Vec<u8> {
    let mut canvas = Canvas {
        width,
        height,
        pixels: vec![WHITE; width * height],
    };
    let (columns, rows) = (width - LEFT - RIGHT, height - TOP - BOTTOM);
    let base = height - BOTTOM;
    for tick in figure.scale.ticks() {
        let Some(part) = figure.scale.height(tick) else {
            continue;
        };
        let y = base - place(part, rows);
        canvas.fill(LEFT, y, columns, 1, GRID);
        let label = duration(tick);
        let x = LEFT.saturating_sub(8 + label.len() * ADVANCE);
        canvas.write(x, y.saturating_sub(LETTER_HEIGHT / 2), &label);
    }
    for tick in round_ticks(f64::from(figure.last.max(1))) {
        if tick.fract() > 1e-6 {
            continue;
        }
        let x = LEFT + place(tick / (f64::from(figure.last) + 1.0), columns);
        canvas.fill(x, TOP, 1, rows, GRID);
        let label = format!("{tick:.0}");
        canvas.write(
            x.saturating_sub(label.len() * ADVANCE / 2),
            base + 10,
            &label,
        );
    }
    canvas.marks(figure, columns, rows);
    canvas.fill(LEFT, TOP, 1, rows + 1, INK);
    canvas.fill(LEFT, base, columns, 1, INK);
    canvas.write(LEFT, 8, &figure.title);
    canvas.write(LEFT, 32, &figure.label());
    canvas.write(
        width.saturating_sub(RIGHT + 15 * ADVANCE),
        height - LETTER_HEIGHT - 6,
        "sequence number",
    );
    png::encode(width, &PALETTE, &canvas.pixels)
}

impl Canvas {
    fn fill(&mut self, x: usize, y: usize, width: usize, height: usize, colour: u8) {
        let columns = x.min(self.width)..(x + width).min(self.width);
        for y in y..(y + height).min(self.height) {
            let row = y * self.width;
            self.pixels[row + columns.start..row + columns.end].fill(colour);
        }
    }

    /// Three by three pixels a mark; they are counted first, so that the shade tells how many there are.
    fn marks(&mut self, figure: &Figure, columns: usize, rows: usize) {
        let mut counts = vec![0_u32; columns * rows];
        for (column, row) in figure.cells(columns, rows) {
            for y in row.saturating_sub(1)..(row + 2).min(rows) {
                for x in column.saturating_sub(1)..(column + 2).min(columns) {
                    counts[y * columns + x] += 1;
                }
            }
        }
        for (place, &count) in counts.iter().enumerate().filter(|(_, count)| **count > 0) {
            let shade = SHADES.iter().filter(|&&least| count >= least).count() as u8;
            let (x, y) = (
                LEFT + place % columns,
                self.height - BOTTOM - 1 - place / columns,
            );
            self.pixels[y * self.width + x] = SHADE + shade;
        }
    }

    fn write(&mut self, x: usize, y: usize, text: &str) {
        for (place, letter) in text.chars().enumerate() {
            for (row, dots) in dots(letter).into_iter().enumerate() {
                for column in (0..5).filter(|column| dots & (0x10 >> column) != 0) {
                    let (x, y) = (x + place * ADVANCE + column * DOT, y + row * DOT);
                    self.fill(x, y, DOT, DOT, INK);
                }
            }
        }
    }
}

/// What stands for a letter that is not in the table.
const UNKNOWN: [u8; 7] = [0x1f, 0x11, 0x11, 0x11, 0x11, 0x11, 0x1f];

/// Letters, and their rows of five dots from the top, the leftmost the highest bit.
#[rustfmt::skip]
const LETTERS: [(char, [u8; 7]); 51] = [
    (' ', [0; 7]),
    ('0', [0x0e, 0x11, 0x13, 0x15, 0x19, 0x11, 0x0e]),
    ('1', [0x04, 0x0c, 0x04, 0x04, 0x04, 0x04, 0x0e]),
    ('2', [0x0e, 0x11, 0x01, 0x02, 0x04, 0x08, 0x1f]),
    ('3', [0x1f, 0x02, 0x04, 0x02, 0x01, 0x11, 0x0e]),
    ('4', [0x02, 0x06, 0x0a, 0x12, 0x1f, 0x02, 0x02]),
    ('5', [0x1f, 0x10, 0x1e, 0x01, 0x01, 0x11, 0x0e]),
    ('6', [0x06, 0x08, 0x10, 0x1e, 0x11, 0x11, 0x0e]),
    ('7', [0x1f, 0x01, 0x02, 0x04, 0x08, 0x08, 0x08]),
    ('8', [0x0e, 0x11, 0x11, 0x0e, 0x11, 0x11, 0x0e]),
    ('9', [0x0e, 0x11, 0x11, 0x0f, 0x01, 0x02, 0x0c]),
    ('A', [0x0e, 0x11, 0x11, 0x1f, 0x11, 0x11, 0x11]),
    ('B', [0x1e, 0x11, 0x11, 0x1e, 0x11, 0x11, 0x1e]),
    ('C', [0x0e, 0x11, 0x10, 0x10, 0x10, 0x11, 0x0e]),
    ('D', [0x1e, 0x11, 0x11, 0x11, 0x11, 0x11, 0x1e]),
    ('E', [0x1f, 0x10, 0x10, 0x1e, 0x10, 0x10, 0x1f]),
    ('F', [0x1f, 0x10, 0x10, 0x1e, 0x10, 0x10, 0x10]),
    ('G', [0x0e, 0x11, 0x10, 0x17, 0x11, 0x11, 0x0f]),
    ('H', [0x11, 0x11, 0x11, 0x1f, 0x11, 0x11, 0x11]),
    ('I', [0x0e, 0x04, 0x04, 0x04, 0x04, 0x04, 0x0e]),
    ('J', [0x07, 0x02, 0x02, 0x02, 0x02, 0x12, 0x0c]),
    ('K', [0x11, 0x12, 0x14, 0x18, 0x14, 0x12, 0x11]),
    ('L', [0x10, 0x10, 0x10, 0x10, 0x10, 0x10, 0x1f]),
    ('M', [0x11, 0x1b, 0x15, 0x15, 0x11, 0x11, 0x11]),
    ('N', [0x11, 0x19, 0x15, 0x13, 0x11, 0x11, 0x11]),
    ('O', [0x0e, 0x11, 0x11, 0x11, 0x11, 0x11, 0x0e]),
    ('P', [0x1e, 0x11, 0x11, 0x1e, 0x10, 0x10, 0x10]),
    ('Q', [0x0e, 0x11, 0x11, 0x11, 0x15, 0x12, 0x0d]),
    ('R', [0x1e, 0x11, 0x11, 0x1e, 0x14, 0x12, 0x11]),
    ('S', [0x0f, 0x10, 0x10, 0x0e, 0x01, 0x01, 0x1e]),
    ('T', [0x1f, 0x04, 0x04, 0x04, 0x04, 0x04, 0x04]),
    ('U', [0x11, 0x11, 0x11, 0x11, 0x11, 0x11, 0x0e]),
    ('V', [0x11, 0x11, 0x11, 0x11, 0x11, 0x0a, 0x04]),
    ('W', [0x11, 0x11, 0x11, 0x15, 0x15, 0x1b, 0x11]),
    ('X', [0x11, 0x11, 0x0a, 0x04, 0x0a, 0x11, 0x11]),
    ('Y', [0x11, 0x11, 0x0a, 0x04, 0x04, 0x04, 0x04]),
    ('Z', [0x1f, 0x01, 0x02, 0x04, 0x08, 0x10, 0x1f]),
    ('.', [0x00, 0x00, 0x00, 0x00, 0x00, 0x0c, 0x0c]),
    (',', [0x00, 0x00, 0x00, 0x00, 0x0c, 0x04, 0x08]),
    ('-', [0x00, 0x00, 0x00, 0x1f, 0x00, 0x00, 0x00]),
    ('+', [0x00, 0x04, 0x04, 0x1f, 0x04, 0x04, 0x00]),
    ('/', [0x01, 0x01, 0x02, 0x04, 0x08, 0x10, 0x10]),
    (':', [0x00, 0x0c, 0x0c, 0x00, 0x0c, 0x0c, 0x00]),
    ('(', [0x02, 0x04, 0x08, 0x08, 0x08, 0x04, 0x02]),
    (')', [0x08, 0x04, 0x02, 0x02, 0x02, 0x04, 0x08]),
    ('%', [0x18, 0x19, 0x02, 0x04, 0x08, 0x13, 0x03]),
    ('_', [0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x1f]),
    ('=', [0x00, 0x00, 0x1f, 0x00, 0x1f, 0x00, 0x00]),
    ('<', [0x02, 0x04, 0x08, 0x10, 0x08, 0x04, 0x02]),
    ('>', [0x08, 0x04, 0x02, 0x01, 0x02, 0x04, 0x08]),
    ('\'', [0x04, 0x04, 0x08, 0x00, 0x00, 0x00, 0x00]),
];

fn dots(letter: char) -> [u8; 7] {
    let large = letter.to_ascii_uppercase();
    let found = LETTERS.iter().find(|(known, _)| *known == large);
    found.map_or(UNKNOWN, |(_, dots)| *dots)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::object::plot::PlotPlan;
    use crate::object::plot::tests::{figure, plan};

    #[test]
    fn every_letter_that_labels_use_is_in_the_table() {
        let plan = PlotPlan {
            logscale: true,
            ..plan()
        };
        let figure = figure(&plan, &[0.000_001, 0.5, 3.0]);
        let labels = figure.scale.ticks().into_iter().map(duration);
        let text = figure.label() + &labels.collect::<String>() + "sequence number";
        assert!(text.chars().all(|letter| dots(letter) != UNKNOWN), "{text}");
        assert_eq!(dots('*'), UNKNOWN);
    }

    #[test]
    fn pictures_of_nothing_of_one_and_of_the_smallest_size_are_drawn() {
        for latencies in [&[][..], &[0.1], &[0.1, 0.2, 50.0]] {
            for (width, height) in [(200, 150), (640, 480)] {
                let bytes = draw(&figure(&plan(), latencies), width, height);
                let said = |at: usize| usize::from(bytes[at]) << 8 | usize::from(bytes[at + 1]);
                assert_eq!((said(18), said(22)), (width, height));
            }
        }
    }
}
