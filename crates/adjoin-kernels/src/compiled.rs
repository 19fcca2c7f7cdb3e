//! Plain loops of other modules, compiled for each level. AVX-VNNI and NEON with `dotprod` add only distances of
//! bytes to the level below, so they use the loops of that level.

#[cfg(target_arch = "aarch64")]
use crate::aarch64::{self, Neon};
use crate::centroids::{Centroids, Short};
use crate::lists::{self, Lists};
use crate::lookup::{self, CodeRows, Lookup, TABLE_ENTRIES};
use crate::near::{self, Near};
use crate::panel::Panel;
use crate::rounding::{self, Grid, Rounding};
use crate::wide::{self, Wide};
#[cfg(target_arch = "x86_64")]
use crate::x86::{Avx2, Avx512, avx512};

/// Compiles the plain loops of a trait for one level, or for all levels. Each function of the trait is a loop of
/// another module.
macro_rules! compiled {
    ($trait:ident { $(fn $name:ident($($argument:ident: $type:ty),*) $(-> $out:ty)? = $loop:path;)* }) => {
        #[cfg(target_arch = "x86_64")]
        compiled!(Avx2, "avx2", $trait { $(fn $name($($argument: $type),*) $(-> $out)? = $loop;)* });
        #[cfg(target_arch = "x86_64")]
        compiled!(Avx512, "avx512f,avx512bw,avx512vl", $trait { $(fn $name($($argument: $type),*) $(-> $out)? = $loop;)* });
        #[cfg(target_arch = "aarch64")]
        compiled!(Neon, "neon", $trait { $(fn $name($($argument: $type),*) $(-> $out)? = $loop;)* });
    };
    ($level:ty, $feature:literal, $trait:ident { $(fn $name:ident($($argument:ident: $type:ty),*) $(-> $out:ty)? = $loop:path;)* }) => {
        impl $trait for $level {
            $(fn $name(&self, $($argument: $type),*) $(-> $out)? {
                #[target_feature(enable = $feature)]
                fn compiled($($argument: $type),*) $(-> $out)? {
                    $loop($($argument),*)
                }
                // SAFETY: `self` proves that the processor has the level.
                unsafe { compiled($($argument),*) }
            })*
        }
    };
}

#[cfg(target_arch = "x86_64")]
compiled!(Avx2, "avx2", Lists {
    fn first_least_u32(values: &[u32]) -> usize = lists::first_least;
    fn first_least_f32(values: &[f32]) -> usize = lists::first_least;
    fn at_most(values: &[u32], most: u32, found: &mut Vec<u64>) = lists::at_most;
    fn count_at_most(values: &[u32], most: u32) -> u64 = lists::count_at_most;
});

// `at_most` is written with intrinsics, since the compiler does not turn sixteen comparisons into a mask.
#[cfg(target_arch = "x86_64")]
compiled!(Avx512, "avx512f,avx512bw,avx512vl", Lists {
    fn first_least_u32(values: &[u32]) -> usize = lists::first_least;
    fn first_least_f32(values: &[f32]) -> usize = lists::first_least;
    fn at_most(values: &[u32], most: u32, found: &mut Vec<u64>) = avx512::at_most;
    fn count_at_most(values: &[u32], most: u32) -> u64 = lists::count_at_most;
});

#[cfg(target_arch = "aarch64")]
compiled!(Neon, "neon", Lists {
    fn first_least_u32(values: &[u32]) -> usize = lists::first_least;
    fn first_least_f32(values: &[f32]) -> usize = lists::first_least;
    fn at_most(values: &[u32], most: u32, found: &mut Vec<u64>) = aarch64::at_most;
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

#[cfg(target_arch = "x86_64")]
compiled!(Avx2, "avx2", Short {
    fn nearest_centroids(points: &Panel<f32>, start: usize, centroids: &Centroids, out: &mut [(u32, f32)]) = crate::centroids::nearest_centroids;
});

#[cfg(target_arch = "x86_64")]
compiled!(Avx512, "avx512f,avx512bw,avx512vl", Short {
    fn nearest_centroids(points: &Panel<f32>, start: usize, centroids: &Centroids, out: &mut [(u32, f32)]) = crate::centroids::nearest_centroids;
});

// This loop is written with intrinsics: the compiler does not vectorize the selection of the sixteen block numbers.
#[cfg(target_arch = "aarch64")]
compiled!(Neon, "neon", Short {
    fn nearest_centroids(points: &Panel<f32>, start: usize, centroids: &Centroids, out: &mut [(u32, f32)]) = aarch64::nearest_centroids;
});
