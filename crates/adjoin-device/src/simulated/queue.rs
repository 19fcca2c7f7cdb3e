//! Reads that complete out of order.

use std::sync::Arc;

use super::faults::Coins;
use crate::aligned::AlignedBuffer;
use crate::device::{Cause, Completion, ReadFile, ReadQueue};
use crate::error::DeviceError;

/// Queue that performs a read when it is submitted, so that reads are numbered in this order. It returns the
/// completions in a shuffled but reproducible order.
pub(super) struct SimulatedQueue {
    done: Vec<Completion>,
    coins: Coins,
}

impl Default for SimulatedQueue {
    fn default() -> Self {
        Self { done: Vec::new(), coins: Coins(1) }
    }
}

impl ReadQueue for SimulatedQueue {
    fn submit(
        &mut self,
        token: u64,
        _cause: Cause,
        file: &Arc<dyn ReadFile>,
        offset: u64,
        mut buffer: AlignedBuffer,
    ) -> Result<(), DeviceError> {
        let result = file.read_at(offset, &mut buffer);
        self.done.push(Completion { token, buffer, result });
        Ok(())
    }

    fn wait(&mut self) -> Option<Completion> {
        let choices = self.done.len() as u64;
        (choices > 0).then(|| self.done.swap_remove((self.coins.next() % choices) as usize))
    }

    fn in_flight(&self) -> usize {
        self.done.len()
    }
}
