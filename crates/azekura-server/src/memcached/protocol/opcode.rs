//! The operations of the binary protocol: their codes, and what a code states of its packet.
//!
//! | method | what it states |
//! |---|---|
//! | `is_quiet` | successes are not answered, or misses of a read |
//! | `loud` | the same operation, answered in full and without a key |
//! | `shows_key` | the answer repeats the key |
//! | `mode` | how the value is stored; `None`: it is not |
//! | `shape` | which lengths extras, key and value may have |
//!
//! This is the only place that knows the codes. It knows no packets.

#![deny(clippy::indexing_slicing, clippy::unwrap_used, clippy::expect_used)]

use super::text::Mode;

/// Names every operation once, with its code.
macro_rules! opcodes {
    ($($name:ident = $code:literal)*) => {
        /// What a packet asks for.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(crate) enum Opcode { $($name = $code),* }

        impl Opcode {
            /// The operation of a code.
            #[inline]
            pub(crate) const fn of(code: u8) -> Option<Self> {
                match code {
                    $($code => Some(Self::$name),)*
                    _ => None,
                }
            }
        }
    };
}

opcodes! {
    Get = 0x00
    Set = 0x01
    Add = 0x02
    Replace = 0x03
    Delete = 0x04
    Increment = 0x05
    Decrement = 0x06
    Quit = 0x07
    Flush = 0x08
    GetQuiet = 0x09
    Noop = 0x0a
    Version = 0x0b
    GetWithKey = 0x0c
    GetWithKeyQuiet = 0x0d
    Append = 0x0e
    Prepend = 0x0f
    Stat = 0x10
    SetQuiet = 0x11
    AddQuiet = 0x12
    ReplaceQuiet = 0x13
    DeleteQuiet = 0x14
    IncrementQuiet = 0x15
    DecrementQuiet = 0x16
    QuitQuiet = 0x17
    FlushQuiet = 0x18
    AppendQuiet = 0x19
    PrependQuiet = 0x1a
    Touch = 0x1c
    GetAndTouch = 0x1d
    GetAndTouchQuiet = 0x1e
    AuthList = 0x20
    AuthStart = 0x21
    AuthStep = 0x22
    GetAndTouchWithKey = 0x23
    GetAndTouchWithKeyQuiet = 0x24
}

/// Which lengths a part of a packet may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    Empty,
    Present,
    Any,
}

impl Part {
    pub(crate) const fn admits(self, len: usize) -> bool {
        match self {
            Self::Empty => len == 0,
            Self::Present => len > 0,
            Self::Any => true,
        }
    }
}

/// Which lengths the packets of an operation have.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shape {
    pub(crate) extras: &'static [usize],
    pub(crate) key: Part,
    pub(crate) value: Part,
}

impl Opcode {
    /// The operation without its quietness.
    pub(crate) const fn loud(self) -> Self {
        match self {
            Self::GetQuiet => Self::Get,
            Self::GetWithKeyQuiet => Self::GetWithKey,
            Self::SetQuiet => Self::Set,
            Self::AddQuiet => Self::Add,
            Self::ReplaceQuiet => Self::Replace,
            Self::DeleteQuiet => Self::Delete,
            Self::IncrementQuiet => Self::Increment,
            Self::DecrementQuiet => Self::Decrement,
            Self::QuitQuiet => Self::Quit,
            Self::FlushQuiet => Self::Flush,
            Self::AppendQuiet => Self::Append,
            Self::PrependQuiet => Self::Prepend,
            Self::GetAndTouchQuiet => Self::GetAndTouch,
            Self::GetAndTouchWithKeyQuiet => Self::GetAndTouchWithKey,
            loud => loud,
        }
    }

    /// Whether successes, or misses of a read, are not answered.
    pub(crate) fn is_quiet(self) -> bool {
        self.loud() != self
    }

    /// Whether the answer repeats the key.
    pub(crate) fn shows_key(self) -> bool {
        matches!(self.loud(), Self::GetWithKey | Self::GetAndTouchWithKey)
    }

    /// Whether it reads a key and changes nothing.
    #[inline]
    pub(crate) fn is_read(self) -> bool {
        matches!(self.loud(), Self::Get | Self::GetWithKey)
    }

    /// Whether it is a step of an authentication.
    pub(crate) const fn is_authentication(self) -> bool {
        matches!(self, Self::AuthList | Self::AuthStart | Self::AuthStep)
    }

    /// How its value is stored; `None`: it is not.
    pub(crate) fn mode(self) -> Option<Mode> {
        match self.loud() {
            Self::Set => Some(Mode::Set),
            Self::Add => Some(Mode::Add),
            Self::Replace => Some(Mode::Replace),
            Self::Append => Some(Mode::Append),
            Self::Prepend => Some(Mode::Prepend),
            _ => None,
        }
    }

    /// The lengths that its packets have.
    pub(crate) fn shape(self) -> Shape {
        let of = |extras, key, value| Shape { extras, key, value };
        match self.loud() {
            Self::Set | Self::Add | Self::Replace => of(&[8], Part::Present, Part::Any),
            Self::Append | Self::Prepend | Self::AuthStart | Self::AuthStep => {
                of(&[0], Part::Present, Part::Any)
            }
            Self::Increment | Self::Decrement => of(&[20], Part::Present, Part::Empty),
            Self::Touch | Self::GetAndTouch | Self::GetAndTouchWithKey => {
                of(&[4], Part::Present, Part::Empty)
            }
            Self::Flush => of(&[0, 4], Part::Empty, Part::Empty),
            Self::Quit | Self::Noop | Self::Version | Self::AuthList => {
                of(&[0], Part::Empty, Part::Empty)
            }
            Self::Stat => of(&[0], Part::Any, Part::Empty),
            _ => of(&[0], Part::Present, Part::Empty),
        }
    }

    /// Its word, for people.
    pub(crate) fn word(self) -> &'static str {
        match self.loud() {
            Self::Get | Self::GetWithKey => "get",
            Self::Set => "set",
            Self::Add => "add",
            Self::Replace => "replace",
            Self::Delete => "delete",
            Self::Increment => "incr",
            Self::Decrement => "decr",
            Self::Flush => "flush_all",
            Self::Append => "append",
            Self::Prepend => "prepend",
            Self::Stat => "stats",
            Self::Touch => "touch",
            Self::GetAndTouch | Self::GetAndTouchWithKey => "gat",
            Self::AuthList | Self::AuthStart | Self::AuthStep => "auth",
            _ => "packet",
        }
    }
}
