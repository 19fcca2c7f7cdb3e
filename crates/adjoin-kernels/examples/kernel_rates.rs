//! Prints how many pairs a second each level computes on one core, on tiles that stay in the cache.
//!
//! ```text
//! cargo run --release -p adjoin-kernels --example kernel_rates
//! ```

use std::hint::black_box;
use std::time::{Duration, Instant};

use adjoin_kernels::{Kernel, PackedColumns, Panel, Scalar};

/// Rows and columns of a tile.
const SIDE: usize = 256;

/// A panel whose elements a plain generator picks.
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

/// Billions of pairs a second in the best of many rounds of `pairs`.
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
        let pack = rate(SIDE * dimensions * size_of::<T>(), || {
            kernel.pack_into(&others, &order, &mut columns);
            black_box(&columns);
        });
        println!(
            "{name:<10} {:<12} within {within:7.4}  nearest {nearest:7.4}  many_to_many {many:7.4}  one_to_many {one:7.4} G pairs/s  pack {pack:6.1} GB/s",
            kernel.name()
        );
    }
}

fn main() {
    for dimensions in [96, 128, 384, 960] {
        print_rates(&format!("u8  {dimensions}"), dimensions, |byte| byte, 10);
    }
    for dimensions in [96, 128, 384, 960] {
        print_rates(&format!("f32 {dimensions}"), dimensions, f32::from, 10.0);
    }
}
