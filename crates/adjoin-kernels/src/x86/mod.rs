//! Levels of x86-64.
//!
//! Registers are filled from references to arrays, not through pointers. Tests keep debug assertions, under which
//! `loadu` intrinsics, `add` and `get_unchecked` check their arguments at every step. Bounds checks of slices that were
//! cut to one length before a loop cost almost nothing inside it (bytes: 2.2 times as fast).

// Loops over register tiles index several arrays at once; they unroll completely.
#![allow(clippy::needless_range_loop)]

mod avx2;
mod avx512;
mod avx_vnni;

pub(crate) use avx_vnni::AvxVnni;
pub(crate) use avx2::Avx2;
pub(crate) use avx512::Avx512;

use crate::centroids::{self, Centroids, Short};
use crate::lists::{self, Lists};
use crate::lookup::{self, CodeRows, Lookup, TABLE_ENTRIES};
use crate::near::{self, Near};
use crate::panel::Panel;
use crate::rounding::{self, Grid, Rounding};
use crate::wide::{self, Wide};

/// Compiles plain loops for both levels. Each function of the trait is a loop of another module.
macro_rules! compiled {
    ($trait:ident { $(fn $name:ident($($argument:ident: $type:ty),*) $(-> $out:ty)? = $loop:path;)* }) => {
        compiled!(Avx2, "avx2", $trait { $(fn $name($($argument: $type),*) $(-> $out)? = $loop;)* });
        compiled!(Avx512, "avx512f,avx512bw,avx512vl", $trait { $(fn $name($($argument: $type),*) $(-> $out)? = $loop;)* });
    };
    ($level:ty, $feature:literal, $trait:ident { $(fn $name:ident($($argument:ident: $type:ty),*) $(-> $out:ty)? = $loop:path;)* }) => {
        impl $trait for $level {
            $(fn $name(&self, $($argument: $type),*) $(-> $out)? {
                #[target_feature(enable = $feature)]
                fn compiled($($argument: $type),*) $(-> $out)? {
                    $loop($($argument),*)
                }
                // SAFETY: `self` proves the level.
                unsafe { compiled($($argument),*) }
            })*
        }
    };
}

compiled!(Avx2, "avx2", Lists {
    fn first_least_u32(values: &[u32]) -> usize = lists::first_least;
    fn first_least_f32(values: &[f32]) -> usize = lists::first_least;
    fn at_most(values: &[u32], most: u32, found: &mut Vec<u64>) = lists::at_most;
    fn count_at_most(values: &[u32], most: u32) -> u64 = lists::count_at_most;
});

// The compiler does not turn sixteen comparisons into a mask by itself.
compiled!(Avx512, "avx512f,avx512bw,avx512vl", Lists {
    fn first_least_u32(values: &[u32]) -> usize = lists::first_least;
    fn first_least_f32(values: &[f32]) -> usize = lists::first_least;
    fn at_most(values: &[u32], most: u32, found: &mut Vec<u64>) = avx512::at_most;
    fn count_at_most(values: &[u32], most: u32) -> u64 = lists::count_at_most;
});

compiled!(Lookup {
    fn sum_lookups(tables: &[[f32; TABLE_ENTRIES]], codes: CodeRows<'_>, rows: &[u32], out: &mut [f32]) = lookup::sum_lookups;
});

compiled!(Wide {
    fn dot(x: &[f32], y: &[f32]) -> f64 = wide::dot;
    fn squared_distance(x: &[f32], y: &[f32]) -> f64 = wide::squared_distance;
});

compiled!(Near {
    fn dot(x: &[f32], y: &[f32]) -> f32 = near::dot;
    fn squared_distance(x: &[f32], y: &[f32]) -> f32 = near::squared_distance;
    fn halves_as_floats(halves: &[u8], floats: &mut [f32]) = near::halves_as_floats;
});

compiled!(Rounding {
    fn round(vector: &[f32], scale: f32, grid: Grid<'_>, bytes: &mut [u8]) -> f32 = rounding::round;
});

compiled!(Short {
    fn nearest_centroids(points: &Panel<f32>, start: usize, centroids: &Centroids, out: &mut [(u32, f32)]) = centroids::nearest_centroids;
});
