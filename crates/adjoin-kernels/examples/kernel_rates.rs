//! Prints how many pairs per second each level computes on one core, for tiles that fit in the cache. Also prints
//! which fraction of the core's peak rate of multiply-adds this is.
//!
//! ```text
//! cargo run --release -p adjoin-kernels --example kernel_rates
//! ```

use std::hint::black_box;
use std::time::{Duration, Instant};

use adjoin_kernels::{Kernel, PackedColumns, Panel, Scalar};

/// Number of rows and number of columns of a tile.
const SIDE: usize = 256;

/// Creates a panel with pseudorandom elements.
fn panel<T: Scalar>(rows: usize, dimensions: usize, element: fn(u8) -> T) -> Panel<T> {
    let mut state = 1_u64;
    let mut panel = Panel::zeroed(rows, dimensions);
    for row in 0..rows {
        for place in panel.row_mut(row) {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            *place = element((state >> 40) as u8);
        }
    }
    panel
}

/// Runs `round` many times, which computes `pairs` pairs each time. Returns the rate of the fastest run, in billions
/// of pairs per second.
fn rate(pairs: usize, mut round: impl FnMut()) -> f64 {
    let (start, mut best) = (Instant::now(), Duration::MAX);
    while start.elapsed() < Duration::from_millis(400) {
        let round_start = Instant::now();
        round();
        best = best.min(round_start.elapsed());
    }
    pairs as f64 / best.as_secs_f64() / 1e9
}

fn print_rates<T: Scalar>(name: &str, dimensions: usize, element: fn(u8) -> T, nothing: T::Distance) {
    let (rows, others) = (panel(SIDE, dimensions, element), panel(SIDE, dimensions, element));
    let order: Vec<u32> = (0..SIDE as u32).collect();
    let (reach, pairs) = (vec![SIDE as u32; SIDE], SIDE * SIDE);
    for kernel in Kernel::available() {
        let mut columns: PackedColumns<T> = kernel.pack(&others, &order);
        let (mut hits, mut matrix) = (Vec::new(), vec![T::Distance::default(); pairs]);
        let within = rate(pairs, || {
            black_box(kernel.within(&rows, &order, &columns, &reach, nothing, &mut hits));
            hits.clear();
        });
        let mut best = vec![(0, T::FARTHEST); SIDE];
        let nearest = rate(pairs, || kernel.nearest(&rows, &order, &columns, black_box(&mut best)));
        let many = rate(pairs, || kernel.many_to_many(&rows, &order, &columns, black_box(&mut matrix)));
        let one = rate(SIDE, || kernel.one_to_many(rows.row(0), &others, black_box(&mut matrix[..SIDE])));
        let share = match peak_of(&kernel, size_of::<T>() == 1) {
            Some(peak) => format!("{:4.0} %", 100.0 * within * dimensions as f64 / peak),
            None => "     -".into(),
        };
        let pack = rate(SIDE * dimensions * size_of::<T>(), || {
            kernel.pack_into(&others, &order, &mut columns);
            black_box(&columns);
        });
        println!(
            "{name:<10} {:<12} within {within:7.4} = {share} of the peak  nearest {nearest:7.4}  many_to_many {many:7.4}  one_to_many {one:7.4} G pairs/s  pack {pack:6.1} GB/s",
            kernel.name()
        );
    }
}

/// Returns the level's peak rate of multiply-adds on registers, in billions of products per second. `None` if it is
/// unknown.
#[cfg(target_arch = "x86_64")]
#[expect(unsafe_code)]
fn peak_of(kernel: &Kernel, bytes: bool) -> Option<f64> {
    let peak: unsafe fn() -> f64 = match (kernel.name(), bytes) {
        ("avx512-vnni", true) => peaks::vnni,
        ("avx512-vnni", false) => peaks::wide_floats,
        ("avx-vnni", true) => peaks::narrow_vnni,
        ("avx2", true) => peaks::words,
        ("avx2" | "avx-vnni", false) => peaks::floats,
        _ => return None,
    };
    // SAFETY: a level is available only if the processor has its instructions.
    Some(unsafe { peak() })
}

#[cfg(not(target_arch = "x86_64"))]
fn peak_of(_: &Kernel, _: bool) -> Option<f64> {
    None
}

/// Loops of multiply-add instructions. Each adds to enough independent sums to hide the latency of the instruction.
#[cfg(target_arch = "x86_64")]
mod peaks {
    use std::arch::x86_64::*;
    use std::hint::black_box;

    const ROUNDS: usize = 1 << 16;
    const SUMS: usize = 12;

    macro_rules! peak {
        ($name:ident, $features:literal, $products:literal, $zero:expr, $one:expr, |$sum:ident, $x:ident| $step:expr) => {
            #[target_feature(enable = $features)]
            pub(super) fn $name() -> f64 {
                super::rate(ROUNDS * SUMS * $products, || {
                    let $x = black_box($one);
                    let mut sums = [$zero; SUMS];
                    for _ in 0..ROUNDS {
                        for $sum in &mut sums {
                            *$sum = $step;
                        }
                    }
                    black_box(sums);
                })
            }
        };
    }

    peak!(vnni, "avx512f,avx512vnni", 64, _mm512_setzero_si512(), _mm512_set1_epi8(1), |sum, x| {
        _mm512_dpbusd_epi32(*sum, x, x)
    });
    peak!(narrow_vnni, "avx2,avxvnni", 32, _mm256_setzero_si256(), _mm256_set1_epi8(1), |sum, x| {
        _mm256_dpbusd_avx_epi32(*sum, x, x)
    });
    // Without VNNI, bytes are widened to words. The words are multiplied, added in pairs, and added to the sum.
    peak!(words, "avx2", 16, _mm256_setzero_si256(), _mm256_set1_epi16(1), |sum, x| {
        _mm256_add_epi32(*sum, _mm256_madd_epi16(*sum, x))
    });
    peak!(wide_floats, "avx512f", 16, _mm512_setzero_ps(), _mm512_set1_ps(1.0), |sum, x| _mm512_fmadd_ps(x, x, *sum));
    peak!(floats, "avx2,fma", 8, _mm256_setzero_ps(), _mm256_set1_ps(1.0), |sum, x| _mm256_fmadd_ps(x, x, *sum));
}

fn main() {
    // Bytes of 7 and 6 bits can exceed the peak of AVX2, since that peak is for words.
    for bits in [8, 7, 6] {
        let element = [|byte: u8| byte, |byte| byte >> 1, |byte| byte >> 2][8 - bits];
        for dimensions in [96, 128, 384, 768, 1_536] {
            print_rates(&format!("u{bits}  {dimensions}"), dimensions, element, 10);
        }
    }
    for dimensions in [96, 128, 384, 768, 1_536] {
        print_rates(&format!("f32 {dimensions}"), dimensions, f32::from, 10.0);
    }
}
