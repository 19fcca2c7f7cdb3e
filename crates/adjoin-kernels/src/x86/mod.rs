//! Levels of x86-64.
//!
//! Registers are loaded from references to arrays, not through pointers. Tests keep debug assertions, and with them,
//! `loadu` intrinsics, `add` and `get_unchecked` check their arguments at every step. Slices are cut to one length
//! before a loop, so their bounds checks inside it cost almost nothing (for bytes, loops are 2.2 times as fast).

// Loops over register tiles index several arrays at once; they unroll completely.
#![allow(clippy::needless_range_loop)]

mod avx2;
pub(crate) mod avx512;
mod avx_vnni;
mod rows;

pub(crate) use avx_vnni::AvxVnni;
pub(crate) use avx2::Avx2;
pub(crate) use avx512::Avx512;
