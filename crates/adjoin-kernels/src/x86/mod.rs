//! Levels of x86-64.
//!
//! Registers are filled from references to arrays, not through pointers: our release profile keeps debug assertions,
//! under which `loadu` intrinsics, `add` and `get_unchecked` test their arguments at every step, while the bounds of
//! slices that were cut to one length before a loop cost next to nothing in it (bytes: 2.2 times as fast).

// Loops over register tiles index several arrays at once; they unroll completely.
#![allow(clippy::needless_range_loop)]

mod avx2;
mod avx512;

pub(crate) use avx2::Avx2;
pub(crate) use avx512::Avx512;
