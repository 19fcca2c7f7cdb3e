//! Reserves memory for the ids and columns of hits.

use adjoin_device::Reservation;

use crate::base::context::Context;
use crate::base::error::Error;

/// Least bytes by which the reservation grows, if the budget allows it.
const STEP_BYTES: u64 = 256 << 10;

/// Memory for the ids and columns of one group of hits.
pub(crate) struct IdRoom<'a> {
    pub(super) context: &'a Context,
    /// Bytes that are taken so far.
    pub(super) bytes: u64,
    /// Bytes that were reserved before, for the whole search.
    pub(super) set_aside: u64,
    /// Bytes that an error message adds to the budget that it recommends, for delivering the longest row to the sink.
    pub(super) named_beyond: u64,
    pub(super) purpose: &'static str,
    /// Reservation in addition to `set_aside`.
    pub(super) beyond: Option<Reservation>,
}

impl IdRoom<'_> {
    /// Takes the memory for an id of `bytes` bytes. Returns `false` if the budget is too small.
    pub(crate) fn take_id(&mut self, bytes: u64) -> bool {
        // A growing vector may have twice the capacity that it needs.
        self.take(2 * (bytes + size_of::<u64>() as u64))
    }

    /// Takes `bytes` bytes. Returns `false` if the budget is too small.
    pub(super) fn take(&mut self, bytes: u64) -> bool {
        self.bytes += bytes;
        let more = self.missing();
        if more == 0 {
            return true;
        }
        let budget = self.context.budget();
        // Memory is reserved in large steps, so that the budget is not locked for each id. Near the limit of the
        // budget, only the missing bytes are reserved.
        let Ok(reserved) = budget.reserve(more.max(STEP_BYTES)).or_else(|_| budget.reserve(more)) else { return false };
        match &mut self.beyond {
            Some(beyond) => beyond.join(reserved),
            None => self.beyond = Some(reserved),
        }
        true
    }

    /// Returns the bytes that are taken but not reserved yet.
    fn missing(&self) -> u64 {
        self.bytes.saturating_sub(self.set_aside + self.beyond.as_ref().map_or(0, Reservation::bytes))
    }

    /// Returns the error for a hit whose id or columns do not fit.
    pub(super) fn refused(&self) -> Error {
        let least = self.context.budget().reserved() + self.missing() + self.named_beyond;
        self.context.too_small(least, self.purpose)
    }
}
