//! Figures for people: counts with separators, rates, times, and a histogram drawn in text.
//!
//! Promises: what is shown has three or four digits that mean something.
//! It does not know what was measured.

use std::fmt;
use std::time::Duration;

/// Width of the longest bar.
const BAR: u64 = 48;
/// Upper ends of the classes, in nanoseconds; the last class has none.
const EDGES: [u64; 14] = [
    100,
    200,
    300,
    500,
    700,
    1_000,
    1_500,
    2_000,
    3_000,
    5_000,
    10_000,
    100_000,
    1_000_000,
    u64::MAX,
];

/// `34931` as `34,931`.
pub(super) fn count(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// A time, as `740 ns`, `12.3 us`, `4.51 ms` or `2.30 s`.
pub(super) fn seconds(time: Duration) -> String {
    let nanos = time.as_nanos() as f64;
    match nanos {
        n if n < 1e3 => format!("{n:.0} ns"),
        n if n < 1e6 => format!("{:.1} us", n / 1e3),
        n if n < 1e9 => format!("{:.2} ms", n / 1e6),
        n => format!("{:.2} s", n / 1e9),
    }
}

/// `34,931 records in 0.02 s, 1.75 million a second`.
pub(super) fn rate(number: u64, things: &str, time: Duration) -> String {
    let per_second = u128::from(number) * 1_000_000_000 / time.as_nanos().max(1);
    let per_second = if per_second >= 1_000_000 {
        format!("{:.2} million", per_second as f64 / 1e6)
    } else {
        count(per_second as u64)
    };
    format!(
        "{} {things} in {}, {per_second} a second",
        count(number),
        seconds(time)
    )
}

/// At most `columns` characters of `bytes`, escaped.
pub(super) fn cut(bytes: &[u8], columns: usize) -> String {
    let text = crate::text::escape(bytes);
    match text.char_indices().nth(columns) {
        Some((at, _)) => format!("{}...", &text[..at]),
        None => text,
    }
}

/// Brings `items` into a random order that is the same in every run.
pub(super) fn shuffle<T>(items: &mut [T]) {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    for index in (1..items.len()).rev() {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        items.swap(index, (state % (index as u64 + 1)) as usize);
    }
}

/// How many times took how long.
#[derive(Default)]
pub(super) struct Histogram {
    counts: [u64; EDGES.len()],
}

impl Histogram {
    /// Counts `time`.
    pub(super) fn add(&mut self, time: Duration) {
        let nanos = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX - 1);
        let class = EDGES
            .iter()
            .position(|edge| nanos < *edge)
            .unwrap_or(EDGES.len() - 1);
        self.counts[class] += 1;
    }
}

impl fmt::Display for Histogram {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let total = self.counts.iter().sum::<u64>().max(1);
        let most = self.counts.iter().max().copied().unwrap_or(0).max(1);
        let first = self.counts.iter().position(|n| *n > 0).unwrap_or(0);
        let last = self.counts.iter().rposition(|n| *n > 0).unwrap_or(0);
        for class in first..=last {
            if class > first {
                writeln!(f)?;
            }
            let number = self.counts[class];
            let (word, edge) = if EDGES[class] == u64::MAX {
                ("over", EDGES[class - 1])
            } else {
                ("under", EDGES[class])
            };
            let edge = if edge < 1_000 {
                format!("{edge} ns")
            } else {
                format!("{} us", edge as f64 / 1e3)
            };
            let bar = "#".repeat((number * BAR).div_ceil(most) as usize);
            let share = number as f64 * 100.0 / total as f64;
            write!(f, "   {word:>5} {edge:>7} |{bar:<48} {share:>7.3} %")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_grouped_and_have_units() {
        assert_eq!(count(0), "0");
        assert_eq!(count(999), "999");
        assert_eq!(count(1_234_567), "1,234,567");
        assert_eq!(seconds(Duration::from_nanos(740)), "740 ns");
        assert_eq!(seconds(Duration::from_micros(4510)), "4.51 ms");
        let text = rate(2_000_000, "gets", Duration::from_secs(1));
        assert_eq!(text, "2,000,000 gets in 1.00 s, 2.00 million a second");
        assert_eq!(
            cut("\u{6821}\u{5009}\tx".as_bytes(), 3),
            "\u{6821}\u{5009}\\..."
        );
    }

    #[test]
    fn a_histogram_shows_the_classes_between_first_and_last() {
        let mut histogram = Histogram::default();
        for nanos in [150, 150, 450, 9_000_000_000] {
            histogram.add(Duration::from_nanos(nanos));
        }
        let text = histogram.to_string();
        assert_eq!(text.lines().count(), 13, "{text}");
        assert!(text.starts_with("   under  200 ns |####"), "{text}");
        assert!(text.contains(" 50.000 %"), "{text}");
        assert!(
            text.lines().last().unwrap().contains("over 1000 us |####"),
            "{text}"
        );
    }

    #[test]
    fn shuffling_keeps_every_item() {
        let mut items: Vec<u32> = (0..1000).collect();
        shuffle(&mut items);
        assert_ne!(items[..10], [0, 1, 2, 3, 4, 5, 6, 7, 8, 9]);
        items.sort_unstable();
        assert_eq!(items, (0..1000).collect::<Vec<_>>());
    }
}
