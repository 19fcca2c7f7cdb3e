//! Bodies that have arrived, and their limits.

use adjoin::{
    device::{MemoryBudget, Reservation},
    format_bytes,
};
use axum::http::StatusCode;

use crate::problem::Problem;

/// A body that has arrived.
pub(crate) struct BodyBytes {
    pub(crate) bytes: Vec<u8>,
    /// Reservation of the number of bytes times [`Limits::times`].
    pub(crate) memory: Reservation,
}

/// Limits of a body.
pub(crate) struct Limits<'a> {
    pub(crate) bytes: u64,
    /// Memory that a body takes until it is parsed, as a multiple of its size.
    pub(crate) times: u64,
    pub(crate) clients: &'a MemoryBudget,
}

/// Returns the problem for a body for which no memory is free.
pub(crate) fn crowded<E>(_: E) -> Problem {
    Problem::crowded("other requests hold the memory for bodies; try again later", 1)
}

pub(crate) fn too_large(limits: &Limits<'_>) -> Problem {
    let most = format_bytes(limits.bytes);
    Problem::new(
        StatusCode::PAYLOAD_TOO_LARGE,
        format!("a body may have at most {most}, decompressed; split it into several requests"),
    )
}
