//! The engine that does nothing: what is left of a phase is the cost of the harness.
//!
//! It looks at every key, claims that every record is there, and shows no value. Its figures are to
//! be compared with those of real engines: key formatting, the generator and the loop.
//!
//! It can wait in each call for as long as a real engine takes: then the noise of the machine hits as large
//! a part of its calls.

use std::hint::{black_box, spin_loop};
use std::time::{Duration, Instant};

use azekura::engine::Durability;
use azekura::error::Result;

use crate::target::{Setup, Target};

/// Nothing.
#[derive(Debug, Default)]
pub struct Nothing {
    /// How long each call takes at least.
    pub wait: Duration,
}

impl Nothing {
    #[inline]
    fn wait(&self) {
        if self.wait > Duration::ZERO {
            let start = Instant::now();
            while start.elapsed() < self.wait {
                spin_loop();
            }
        }
    }
}

impl Target for Nothing {
    const NAME: &'static str = "none";
    const PERSISTENT: bool = false;
    type Position<'t> = ();

    fn open(_: &Setup) -> Result<Self> {
        Ok(Self::default())
    }
    fn close(self) -> Result<()> {
        Ok(())
    }
    #[inline]
    fn set(&self, key: &[u8], value: &[u8]) -> Result<()> {
        self.wait();
        black_box((key, value));
        Ok(())
    }
    #[inline]
    fn has(&self, key: &[u8]) -> Result<bool> {
        self.wait();
        black_box(key);
        Ok(true)
    }
    #[inline]
    fn get(&self, key: &[u8], _: &mut Vec<u8>) -> Result<bool> {
        self.wait();
        black_box(key);
        Ok(false)
    }
    #[inline]
    fn remove(&self, key: &[u8]) -> Result<bool> {
        self.wait();
        black_box(key);
        Ok(true)
    }
    fn position(&self) -> Result<()> {
        Ok(())
    }
    #[inline]
    fn jump(&self, (): &mut (), key: &[u8], _: &mut impl FnMut(&[u8], &[u8])) -> Result<()> {
        self.wait();
        black_box(key);
        Ok(())
    }
    fn sync(&self, _: Durability) -> Result<()> {
        Ok(())
    }
}
