//! The methods by which engines compress what they store, and their names.
//!
//! A file has one, chosen when it is created and stated in its superblock. Of a hash file each value is compressed, of a tree file each
//! page. It does not know what is compressed, nor where.

/// How a file stores its values, or its pages; fixed when it is created.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub enum Compression {
    /// As they are.
    #[default]
    None = 0,
    /// lz4: fast, about half the size of text.
    Lz4 = 1,
    /// zstd at its default level: slower to write, smaller.
    Zstd = 2,
}

impl Compression {
    pub(crate) const fn from_byte(byte: u8) -> Option<Self> {
        Some(match byte {
            0 => Self::None,
            1 => Self::Lz4,
            2 => Self::Zstd,
            _ => return None,
        })
    }

    /// Its word.
    pub const fn word(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Lz4 => "lz4",
            Self::Zstd => "zstd",
        }
    }

    /// The one of this word.
    pub fn from_word(word: &str) -> Option<Self> {
        [Self::None, Self::Lz4, Self::Zstd]
            .into_iter()
            .find(|of| of.word() == word)
    }
}
