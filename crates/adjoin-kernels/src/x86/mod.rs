//! Levels of x86-64.
//!
//! Registers are filled from references to arrays, not through pointers: tests keep debug assertions,
//! under which `loadu` intrinsics, `add` and `get_unchecked` test their arguments at every step, while the bounds of
//! slices that were cut to one length before a loop cost next to nothing in it (bytes: 2.2 times as fast).

// Loops over register tiles index several arrays at once; they unroll completely.
#![allow(clippy::needless_range_loop)]

mod avx2;
mod avx512;

pub(crate) use avx2::Avx2;
pub(crate) use avx512::Avx512;

use crate::lists::{self, Lists};
use crate::near::{self, Near};
use crate::rounding::{self, Grid, Rounding};
use crate::wide::{self, Wide};

/// Compiles the sums in f64 for a level.
macro_rules! wide_sums {
    ($level:ty, $feature:literal) => {
        impl Wide for $level {
            fn dot(&self, x: &[f32], y: &[f32]) -> f64 {
                #[target_feature(enable = $feature)]
                fn dot(x: &[f32], y: &[f32]) -> f64 {
                    wide::dot(x, y)
                }
                // SAFETY: `self` proves the level.
                unsafe { dot(x, y) }
            }

            fn squared_distance(&self, x: &[f32], y: &[f32]) -> f64 {
                #[target_feature(enable = $feature)]
                fn squared_distance(x: &[f32], y: &[f32]) -> f64 {
                    wide::squared_distance(x, y)
                }
                // SAFETY: `self` proves the level.
                unsafe { squared_distance(x, y) }
            }
        }
    };
}

/// Compiles the searches in lists for a level.
macro_rules! list_searches {
    ($level:ty, $feature:literal) => {
        impl Lists for $level {
            fn first_least_u32(&self, values: &[u32]) -> usize {
                #[target_feature(enable = $feature)]
                fn first_least(values: &[u32]) -> usize {
                    lists::first_least(values)
                }
                // SAFETY: `self` proves the level.
                unsafe { first_least(values) }
            }

            fn first_least_f32(&self, values: &[f32]) -> usize {
                #[target_feature(enable = $feature)]
                fn first_least(values: &[f32]) -> usize {
                    lists::first_least(values)
                }
                // SAFETY: `self` proves the level.
                unsafe { first_least(values) }
            }

            fn at_most(&self, values: &[u32], most: u32, found: &mut Vec<u64>) {
                #[target_feature(enable = $feature)]
                fn at_most(values: &[u32], most: u32, found: &mut Vec<u64>) {
                    lists::at_most(values, most, found);
                }
                // SAFETY: `self` proves the level.
                unsafe { at_most(values, most, found) }
            }

            fn count_at_most(&self, values: &[u32], most: u32) -> u64 {
                #[target_feature(enable = $feature)]
                fn count_at_most(values: &[u32], most: u32) -> u64 {
                    lists::count_at_most(values, most)
                }
                // SAFETY: `self` proves the level.
                unsafe { count_at_most(values, most) }
            }
        }
    };
}

/// Compiles the sums in f32 for a level.
macro_rules! near_sums {
    ($level:ty, $feature:literal) => {
        impl Near for $level {
            fn dot(&self, x: &[f32], y: &[f32]) -> f32 {
                #[target_feature(enable = $feature)]
                fn dot(x: &[f32], y: &[f32]) -> f32 {
                    near::dot(x, y)
                }
                // SAFETY: `self` proves the level.
                unsafe { dot(x, y) }
            }

            fn squared_distance(&self, x: &[f32], y: &[f32]) -> f32 {
                #[target_feature(enable = $feature)]
                fn squared_distance(x: &[f32], y: &[f32]) -> f32 {
                    near::squared_distance(x, y)
                }
                // SAFETY: `self` proves the level.
                unsafe { squared_distance(x, y) }
            }

            fn halves_as_floats(&self, halves: &[u8], floats: &mut [f32]) {
                #[target_feature(enable = $feature)]
                fn halves_as_floats(halves: &[u8], floats: &mut [f32]) {
                    near::halves_as_floats(halves, floats);
                }
                // SAFETY: `self` proves the level.
                unsafe { halves_as_floats(halves, floats) }
            }
        }
    };
}

/// Compiles the rounding of floats to bytes for a level.
macro_rules! rounds {
    ($level:ty, $feature:literal) => {
        impl Rounding for $level {
            fn round(&self, vector: &[f32], scale: f32, grid: Grid<'_>, bytes: &mut [u8]) -> f32 {
                #[target_feature(enable = $feature)]
                fn round(vector: &[f32], scale: f32, grid: Grid<'_>, bytes: &mut [u8]) -> f32 {
                    rounding::round(vector, scale, grid, bytes)
                }
                // SAFETY: `self` proves the level.
                unsafe { round(vector, scale, grid, bytes) }
            }
        }
    };
}

list_searches!(Avx2, "avx2");
list_searches!(Avx512, "avx512f,avx512bw,avx512vl");

wide_sums!(Avx2, "avx2");
wide_sums!(Avx512, "avx512f");

near_sums!(Avx2, "avx2");
near_sums!(Avx512, "avx512f,avx512bw,avx512vl");

rounds!(Avx2, "avx2");
rounds!(Avx512, "avx512f,avx512bw,avx512vl");
