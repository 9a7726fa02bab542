//! The units of the data, read many at a time: the scan of recovery and of repair.
//!
//! Extents are verified here, chunk by chunk, so that a scan reads the data once: of a chunk that the window does not hold whole,
//! the beginning is read again. Where many units cannot be read together, those that are wanted are read alone.
//!
//! It does not know which extents count.

use crate::error::Result;
use crate::io::aligned::AlignedBuf;
use crate::object::Core;
use crate::object::place::extent::{self, Header, PIECE, Seal, UNIT};

/// Units that a scan reads at once.
pub(crate) const WINDOW_UNITS: u64 = 256;

/// The units that were read last.
pub(crate) struct Window<'c> {
    core: &'c Core,
    buf: AlignedBuf,
    unit: u64,
    units: u64,
}

impl<'c> Window<'c> {
    /// A window of so many units, [`WINDOW_UNITS`] at most.
    pub(crate) fn new(core: &'c Core, units: u64) -> Result<Self> {
        let len = (units.min(WINDOW_UNITS) * UNIT) as usize;
        Ok(Self {
            core,
            buf: AlignedBuf::zeroed(len, core.data.alignment())?,
            unit: 0,
            units: 0,
        })
    }

    /// The bytes of `wanted` units; of the units up to `end`, as many as fit are read with them. Errors are the device's.
    pub(crate) fn bytes(&mut self, unit: u64, wanted: u64, end: u64) -> Result<&[u8]> {
        if unit < self.unit || unit + wanted > self.unit + self.units {
            let all = (end - unit).min(self.buf.len() as u64 / UNIT);
            self.units = 0;
            let read = match self.read(unit, all) {
                Err(_) if wanted < all => self.read(unit, wanted),
                other => other,
            };
            (self.unit, self.units) = (unit, read?);
        }
        let at = ((unit - self.unit) * UNIT) as usize;
        Ok(&self.buf[at..at + (wanted * UNIT) as usize])
    }

    fn read(&mut self, unit: u64, units: u64) -> Result<u64> {
        let offset = self.core.data_offset + unit * UNIT;
        let into = &mut self.buf[..(units * UNIT) as usize];
        self.core.data.read_at(offset, into)?;
        Ok(units)
    }

    /// Whether the extent that begins at `unit` with this header is whole, and of one put. Errors are the device's.
    pub(crate) fn holds(&mut self, unit: u64, header: &Header, end: u64) -> Result<bool> {
        let len = u64::from(header.len);
        let seal = Seal::new(self.core.salt, unit * (UNIT / PIECE), header.id);
        let mut reading = seal.reading(len, &(0..u64::MAX));
        for chunk in 0..extent::chunks(len) {
            let within = extent::bytes_of(len, &(chunk..chunk + 1));
            let units = (within.end - within.start) / UNIT;
            let bytes = self.bytes(unit + within.start / UNIT, units, end)?;
            if reading.verify(bytes).is_err() {
                return Ok(false);
            }
        }
        let sequence = reading.sequence();
        Ok(sequence.is_ok_and(|of| of == header.sequence))
    }
}
