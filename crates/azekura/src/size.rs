//! Sizes in flags, configuration files and workloads: `1048576`, `64KiB`, `2 GiB`.
//!
//! It promises that every program reads the same text as the same number of bytes.
//! It does not know what the size is of.

/// Reads a number of bytes: a whole number, followed by B, KiB, MiB, GiB, TiB or nothing.
pub fn parse_size(text: &str) -> Result<u64, String> {
    let wrong =
        || format!("`{text}` is not a size: a number of bytes, or one with KiB, MiB, GiB or TiB");
    let digits = text.trim_end_matches(|c: char| !c.is_ascii_digit());
    let shift = match text.get(digits.len()..).unwrap_or_default().trim() {
        "" | "B" => 0,
        "KiB" => 10,
        "MiB" => 20,
        "GiB" => 30,
        "TiB" => 40,
        _ => return Err(wrong()),
    };
    let number: u64 = digits.parse().map_err(|_| wrong())?;
    number
        .checked_mul(1 << shift)
        .ok_or_else(|| format!("`{text}` does not fit in 64 bits"))
}

/// So many bytes, exactly, in the largest unit that divides them: [`parse_size`] reads it back.
pub fn size_text(bytes: u64) -> String {
    const UNITS: [&str; 5] = ["B", "KiB", "MiB", "GiB", "TiB"];
    let index =
        (0..UNITS.len()).rfind(|index| bytes != 0 && bytes.is_multiple_of(1 << (10 * index)));
    let index = index.unwrap_or(0);
    format!("{} {}", bytes >> (10 * index), UNITS[index])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_size_is_shown_exactly_and_is_read_back() {
        for (bytes, text) in [
            (0, "0 B"),
            (1025, "1025 B"),
            (4096, "4 KiB"),
            (1536 << 10, "1536 KiB"),
            (1 << 40, "1 TiB"),
        ] {
            assert_eq!(size_text(bytes), text);
            assert_eq!(parse_size(text), Ok(bytes));
        }
    }

    #[test]
    fn sizes_are_numbers_with_or_without_a_unit() {
        for (text, bytes) in [
            ("7", 7),
            ("4096B", 4096),
            ("64KiB", 65_536),
            ("1 GiB", 1 << 30),
            ("2TiB", 2 << 40),
        ] {
            assert_eq!(parse_size(text), Ok(bytes));
        }
        for wrong in [
            "",
            "KiB",
            "1KB",
            "1.5MiB",
            "-1",
            "1kib",
            "17000000TiB",
            "1\u{fc}",
        ] {
            assert!(parse_size(wrong).is_err(), "{wrong}");
        }
    }
}
