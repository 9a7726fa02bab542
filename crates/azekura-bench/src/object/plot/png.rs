//! The least of PNG that a plot needs: one picture of palette colours, a byte a pixel.
//!
//! ```text
//!   signature | IHDR width, height, 8 bits, palette | PLTE | IDAT rows, each behind a filter byte 0 | IEND
//!   a chunk is: length u32, name, bytes, CRC-32 of name and bytes; numbers are big-endian
//! ```
//!
//! It reads none, and does not know what is drawn.

#![expect(
    clippy::big_endian_bytes,
    reason = "the numbers of a PNG are big-endian"
)]

use miniz_oxide::deflate::compress_to_vec_zlib;

const SIGNATURE: [u8; 8] = *b"\x89PNG\r\n\x1a\n";
/// As dense as is worth the time for a picture that is mostly white.
const LEVEL: u8 = 6;

/// A picture whose pixels, row by row from the top, are places in `palette`.
pub(super) fn encode(width: usize, palette: &[[u8; 3]], pixels: &[u8]) -> Vec<u8> {
    let rows = pixels.chunks_exact(width);
    let mut header = [0; 13];
    header[..4].copy_from_slice(&(width as u32).to_be_bytes());
    header[4..8].copy_from_slice(&(rows.len() as u32).to_be_bytes());
    header[8..10].copy_from_slice(&[8, 3]);
    let filtered: Vec<u8> = rows
        .flat_map(|row| std::iter::once(&0).chain(row))
        .copied()
        .collect();
    let mut bytes = SIGNATURE.to_vec();
    chunk(&mut bytes, *b"IHDR", &header);
    chunk(&mut bytes, *b"PLTE", palette.as_flattened());
    chunk(
        &mut bytes,
        *b"IDAT",
        &compress_to_vec_zlib(&filtered, LEVEL),
    );
    chunk(&mut bytes, *b"IEND", &[]);
    bytes
}

fn chunk(bytes: &mut Vec<u8>, name: [u8; 4], content: &[u8]) {
    bytes.extend((content.len() as u32).to_be_bytes());
    let start = bytes.len();
    bytes.extend(name);
    bytes.extend(content);
    bytes.extend(crc(&bytes[start..]).to_be_bytes());
}

/// CRC-32 of ISO 3309, bit by bit: a picture is some 50 KB.
fn crc(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(!0, |crc, &byte| {
        (0..8).fold(crc ^ u32::from(byte), |crc, _| {
            (crc >> 1) ^ (0xedb8_8320 & (crc & 1).wrapping_neg())
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sum_is_the_standard_one() {
        assert_eq!(crc(b"123456789"), 0xcbf4_3926);
        assert_eq!(crc(b"IEND"), 0xae42_6082);
    }

    #[test]
    fn a_picture_holds_its_pixels() {
        let pixels = [0, 1, 2, 2, 1, 0];
        let bytes = encode(3, &[[255; 3], [1, 2, 3], [4, 5, 6]], &pixels);
        assert_eq!(bytes[..8], SIGNATURE);
        let mut rest = &bytes[8..];
        let mut found = Vec::new();
        while let Some((len, after)) = rest.split_first_chunk() {
            let len = u32::from_be_bytes(*len) as usize;
            let (named, after) = after.split_at(4 + len);
            let (sum, after) = after.split_first_chunk().unwrap();
            assert_eq!(crc(named), u32::from_be_bytes(*sum));
            found.push((&named[..4], &named[4..]));
            rest = after;
        }
        let names: Vec<&[u8]> = found.iter().map(|(name, _)| *name).collect();
        assert_eq!(names, [&b"IHDR"[..], b"PLTE", b"IDAT", b"IEND"]);
        assert_eq!(found[0].1, [0, 0, 0, 3, 0, 0, 0, 2, 8, 3, 0, 0, 0]);
        assert_eq!(found[1].1, [255, 255, 255, 1, 2, 3, 4, 5, 6]);
        let rows = miniz_oxide::inflate::decompress_to_vec_zlib(found[2].1).unwrap();
        assert_eq!(rows, [0, 0, 1, 2, 0, 2, 1, 0]);
    }
}
