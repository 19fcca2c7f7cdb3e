//! Compares every level of this processor with sums that share no code with it.
//!
//! The environment variable `ADJOIN_REQUIRE` lists prefixes of the names of levels that must exist. If the processor
//! lacks one of these levels, the test fails. Other missing levels are only printed.

use adjoin_kernels::{
    Centroids, CodeRows, Grid, HitMask, Kernel, LEAST_RANKS, LeastOfColumn, MASK_COLUMNS, PackedColumns, Panel, Scalar,
    TABLE_ENTRIES, TILE_COLUMNS, TILE_ROWS, near_error, relative_error, wide_error,
};
use proptest::prelude::*;

type Hits = Vec<(u32, u32)>;

fn panel<T: Scalar>(vectors: &[Vec<T>], dimensions: usize) -> Panel<T> {
    let mut panel = Panel::zeroed(vectors.len(), dimensions);
    for (row, vector) in vectors.iter().enumerate() {
        panel.row_mut(row).copy_from_slice(vector);
    }
    panel
}

/// Pseudorandom numbers (splitmix64, 64 bits per step).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, end: usize) -> usize {
        (self.next() % end as u64) as usize
    }

    fn vectors<T>(&mut self, count: usize, dimensions: usize, element: fn(&mut Self) -> T) -> Vec<Vec<T>> {
        (0..count).map(|_| (0..dimensions).map(|_| element(self)).collect()).collect()
    }

    fn order(&mut self, len: usize, rows: usize) -> Vec<u32> {
        if rows == 0 { Vec::new() } else { (0..len).map(|_| self.below(rows) as u32).collect() }
    }

    /// Returns a random byte. It is 0 or 255 in half of the cases.
    fn byte(&mut self) -> u8 {
        match self.below(4) {
            0 => 0,
            1 => 255,
            _ => self.next() as u8,
        }
    }

    fn float(&mut self) -> f32 {
        (self.next() >> 40) as f32 / (1 << 23) as f32 - 1.0
    }

    fn extreme_float(&mut self) -> f32 {
        let scale = [1e30, 1e-40, 1.0, 0.0, -1e19, 3e38, -1e-20, 1e-45][self.below(8)];
        scale * self.float()
    }
}

fn exact_u8(x: &[u8], y: &[u8]) -> i64 {
    x.iter().zip(y).map(|(&x, &y)| (i64::from(x) - i64::from(y)).pow(2)).sum()
}

fn exact_f32(x: &[f32], y: &[f32]) -> f64 {
    x.iter().zip(y).map(|(&x, &y)| (f64::from(x) - f64::from(y)).powi(2)).sum()
}

/// Returns whether the bits are equal. Any two NaN count as equal.
fn same(a: f32, b: f32) -> bool {
    a.to_bits() == b.to_bits() || (a.is_nan() && b.is_nan())
}

/// Returns how many pairs `Kernel::within` must compute by its documented rule.
fn expected_count(reach: &[u32], columns: usize) -> u64 {
    let group = |reach: &[u32]| {
        let largest = *reach.iter().max().expect("a group is not empty") as usize;
        reach.len() * columns.min(largest.div_ceil(TILE_COLUMNS) * TILE_COLUMNS)
    };
    reach.chunks(TILE_ROWS).map(group).sum::<usize>() as u64
}

/// Returns the pairs that `Kernel::within` must compute and that `near` accepts, in order.
fn expected_hits(reach: &[u32], columns: usize, near: impl Fn(usize, usize) -> bool) -> Hits {
    let mut hits = Hits::new();
    for row in 0..reach.len() {
        let group = row / TILE_ROWS * TILE_ROWS..reach.len().min(row / TILE_ROWS * TILE_ROWS + TILE_ROWS);
        let end = expected_count(&reach[group.clone()], columns) as usize / group.len();
        hits.extend((0..end).filter(|&column| near(row, column)).map(|column| (row as u32, column as u32)));
    }
    hits
}

/// Vectors of one shape, and the arguments of all calls.
struct Case<T> {
    rows: Vec<Vec<T>>,
    others: Vec<Vec<T>>,
    dimensions: usize,
    order: Vec<u32>,
    picked: Vec<u32>,
    reach: Vec<u32>,
}

impl<T: Scalar> Case<T> {
    fn new(seed: u64, dimensions: usize, rows: usize, columns: usize, element: fn(&mut Random) -> T) -> Self {
        let mut random = Random(seed);
        let (own, others) = (random.vectors(rows, dimensions, element), random.vectors(columns, dimensions, element));
        let order = random.order(rows, rows);
        let picked = random.order(columns, columns);
        let reach =
            order.iter().map(|_| if random.below(3) == 0 { 0 } else { random.below(columns + 20) as u32 }).collect();
        Self { rows: own, others, dimensions, order, picked, reach }
    }

    fn pair(&self, row: usize, column: usize) -> (&[T], &[T]) {
        (&self.rows[self.order[row] as usize], &self.others[self.picked[column] as usize])
    }

    /// Returns the matrix of `many_to_many`. Checks that `one_to_many`, `one_to_some` (cached or not) and `distance` return
    /// distances that are equal to its elements, by `equal`.
    fn matrix(&self, kernel: Kernel, equal: fn(T::Distance, T::Distance) -> bool) -> Vec<T::Distance> {
        let (rows, others) = (panel(&self.rows, self.dimensions), panel(&self.others, self.dimensions));
        let columns = kernel.pack(&others, &self.picked);
        assert!(columns.bytes() <= PackedColumns::<T>::bytes_for(columns.len(), self.dimensions));
        let mut matrix = vec![T::Distance::default(); self.order.len() * columns.len()];
        kernel.many_to_many(&rows, &self.order, &columns, &mut matrix);
        let mut line = vec![T::Distance::default(); self.others.len()];
        for (row, &member) in self.order.iter().enumerate() {
            kernel.one_to_many(rows.row(member as usize), &others, &mut line);
            let mut some = vec![T::Distance::default(); self.picked.len()];
            kernel.one_to_some(rows.row(member as usize), &others, &self.picked, &mut some);
            let mut cached = vec![T::Distance::default(); self.picked.len()];
            kernel.one_to_some_cached(rows.row(member as usize), &others, &self.picked, &mut cached);
            for (column, &other) in self.picked.iter().enumerate() {
                assert!(equal(line[other as usize], some[column]), "{} some {:?}", kernel.name(), some[column]);
                assert!(equal(some[column], cached[column]), "{} cached {:?}", kernel.name(), cached[column]);
                let (one, many) = (line[other as usize], matrix[row * self.picked.len() + column]);
                assert!(equal(one, many), "{} one {one:?} many {many:?}", kernel.name());
                let pair = kernel.distance(rows.row(member as usize), others.row(other as usize));
                assert!(equal(one, pair), "{} one {one:?} pair {pair:?}", kernel.name());
            }
        }
        if !columns.is_empty() {
            let mut nearest = vec![(7, T::Distance::default()); self.order.len()];
            kernel.nearest(&rows, &self.order, &columns, &mut nearest);
            assert_eq!(nearest, expected_nearest(&matrix, columns.len(), T::FARTHEST), "{}", kernel.name());
            let own: Vec<T::Distance> = matrix.iter().step_by(columns.len()).copied().collect();
            let mut least = vec![LeastOfColumn::NONE; columns.len()];
            kernel.least_of_columns(&rows, &self.order, &own, &columns, &mut least);
            for (column, least) in least.iter().enumerate() {
                let of_column = || matrix.chunks_exact(columns.len()).map(|line| line[column]);
                let margins = of_column().zip(&own).map(|(distance, &own)| T::margin(distance, own));
                assert_eq!(least.distances, expected_least(of_column(), T::FARTHEST), "{}", kernel.name());
                assert_eq!(least.margins, expected_least(margins, T::MARGIN_MAX), "{}", kernel.name());
            }
        }
        matrix
    }

    /// Returns the sorted hits of `within`. Checks the number of computed pairs.
    fn within(&self, kernel: Kernel, limit: T::Distance) -> Hits {
        let (rows, others) = (panel(&self.rows, self.dimensions), panel(&self.others, self.dimensions));
        // The columns first hold other data, packed for another level and for this one.
        let mut columns = Kernel::named("reference").expect("always there").pack(&rows, &self.order);
        kernel.pack_into(&rows, &self.order, &mut columns);
        kernel.pack_into(&others, &self.picked, &mut columns);
        let mut masks: Vec<HitMask> = Vec::new();
        let computed = kernel.within(&rows, &self.order, &columns, &self.reach, limit, &mut masks);
        assert_eq!(computed, expected_count(&self.reach, self.picked.len()), "{} computed pairs", kernel.name());
        assert!(
            masks
                .iter()
                .all(|mask| mask.bits != 0 && mask.columns().all(|column| column < mask.column + MASK_COLUMNS as u32))
        );
        assert_eq!(masks.iter().map(|mask| mask.count() as usize).sum::<usize>(), hits_of(&masks).len());
        hits_of(&masks)
    }

    /// Returns the sorted hits of `within_each`. Checks the number of computed pairs.
    fn within_each(&self, kernel: Kernel, limits: &[T::Distance]) -> Hits {
        let (rows, others) = (panel(&self.rows, self.dimensions), panel(&self.others, self.dimensions));
        let columns = kernel.pack(&others, &self.picked);
        let mut masks: Vec<HitMask> = Vec::new();
        let computed = kernel.within_each(&rows, &self.order, limits, &columns, &mut masks);
        assert_eq!(computed, (self.order.len() * self.picked.len()) as u64, "{} computed pairs", kernel.name());
        hits_of(&masks)
    }
}

fn hits_of(masks: &[HitMask]) -> Hits {
    let mut hits: Hits = masks.iter().flat_map(|mask| mask.columns().map(|column| (mask.row, column))).collect();
    hits.sort_unstable();
    hits
}

/// Returns for each row the largest limit of its group.
fn limits_of_groups<D: Copy + PartialOrd>(limits: &[D]) -> Vec<D> {
    let largest = |group: &[D]| group.iter().copied().reduce(|a, b| if b > a { b } else { a }).expect("it has a row");
    limits.chunks(TILE_ROWS).flat_map(|group| vec![largest(group); group.len()]).collect()
}

/// Returns the nearest column of each row of the matrix, and its distance. If columns are equally near, it is the
/// first one; if no distance is below `farthest`, it is column 0.
fn expected_nearest<D: Copy + PartialOrd>(matrix: &[D], columns: usize, farthest: D) -> Vec<(u32, D)> {
    let of = |line: &[D]| {
        let mut nearest = (0, farthest);
        for (column, &distance) in line.iter().enumerate() {
            if distance < nearest.1 {
                nearest = (column as u32, distance);
            }
        }
        nearest
    };
    matrix.chunks_exact(columns).map(of).collect()
}

/// Returns the smallest values in ascending order. If there are fewer than `LEAST_RANKS`, `most` fills the rest.
fn expected_least<V: Copy + PartialOrd>(values: impl Iterator<Item = V>, most: V) -> [V; LEAST_RANKS] {
    let mut values: Vec<V> = values.filter(|&value| value < most).chain([most; LEAST_RANKS]).collect();
    values.sort_by(|a, b| a.partial_cmp(b).expect("what is not a number is not below the largest"));
    std::array::from_fn(|rank| values[rank])
}

/// Returns an element of the matrix that `seed` selects.
fn chosen<D: Copy + Default>(matrix: &[D], seed: u64) -> D {
    if matrix.is_empty() { D::default() } else { matrix[Random(seed).below(matrix.len())] }
}

fn check_u8(seed: u64, dimensions: usize, rows: usize, columns: usize) {
    check_bytes(&Case::new(seed, dimensions, rows, columns, Random::byte), seed);
}

/// Checks that all levels compute exact distances of bytes.
fn check_bytes(case: &Case<u8>, seed: u64) {
    let (rows, columns) = (case.order.len(), case.picked.len());
    let mut exact = Vec::new();
    for row in 0..rows {
        exact.extend((0..columns).map(|column| {
            let (x, y) = case.pair(row, column);
            u32::try_from(exact_u8(x, y)).expect("32 bits suffice")
        }));
    }
    let edge = chosen(&exact, seed);
    for kernel in Kernel::available() {
        assert_eq!(case.matrix(kernel, |a, b| a == b), exact, "{}", kernel.name());
        for limit in [0, edge.saturating_sub(1), edge, edge + 1, u32::MAX] {
            let expected = expected_hits(&case.reach, columns, |r, c| exact[r * columns + c] <= limit);
            assert_eq!(case.within(kernel, limit), expected, "{} limit {limit}", kernel.name());
        }
        let limits: Vec<u32> = (0..rows as u64).map(|row| chosen(&exact, seed ^ row) / (1 + row as u32 % 2)).collect();
        let (all, of_groups) = (vec![columns as u32; rows], limits_of_groups(&limits));
        let expected = expected_hits(&all, columns, |r, c| exact[r * columns + c] <= of_groups[r]);
        assert_eq!(case.within_each(kernel, &limits), expected, "{} limits {limits:?}", kernel.name());
    }
}

/// Checks that all levels compute the same distances as the reference. Returns the matrix of the reference.
fn check_f32(case: &Case<f32>, seed: u64) -> Vec<f32> {
    let columns = case.picked.len();
    let truth = case.matrix(Kernel::named("reference").expect("always there"), same);
    let edge = chosen(&truth, seed);
    for kernel in Kernel::available() {
        for (computed, &expected) in case.matrix(kernel, same).into_iter().zip(&truth) {
            assert!(same(computed, expected), "{} {computed:e} for {expected:e}", kernel.name());
        }
        for limit in [0.0, edge.next_down(), edge, edge.next_up(), f32::MAX, f32::INFINITY] {
            let near = |r, c| {
                let distance: f32 = truth[r * columns + c];
                distance <= limit || distance.is_nan() || limit.is_nan()
            };
            let expected = expected_hits(&case.reach, columns, near);
            assert_eq!(case.within(kernel, limit), expected, "{} limit {limit:e}", kernel.name());
        }
    }
    truth
}

fn check_ordinary_f32(seed: u64, dimensions: usize, rows: usize, columns: usize) {
    let case = Case::new(seed, dimensions, rows, columns, Random::float);
    let truth = check_f32(&case, seed);
    for (place, &computed) in truth.iter().enumerate() {
        let (x, y) = case.pair(place / columns, place % columns);
        let exact = exact_f32(x, y);
        let error = (f64::from(computed) - exact).abs();
        assert!(error <= relative_error(dimensions) * exact, "{computed:e} for {exact:e} in {dimensions} dimensions");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn bytes_are_exact(seed in any::<u64>(), dimensions in 1_usize..=200, rows in 0_usize..40, columns in 0_usize..70) {
        check_u8(seed, dimensions, rows, columns);
    }

    #[test]
    fn floats_equal_the_reference_and_its_bound(
        seed in any::<u64>(), dimensions in 1_usize..=200, rows in 0_usize..40, columns in 0_usize..70
    ) {
        check_ordinary_f32(seed, dimensions, rows, columns);
    }

    #[test]
    fn extreme_floats_equal_the_reference(
        seed in any::<u64>(), dimensions in 1_usize..=70, rows in 0_usize..20, columns in 0_usize..40
    ) {
        check_f32(&Case::new(seed, dimensions, rows, columns, Random::extreme_float), seed);
    }
}

#[test]
fn kernels_match_the_reference_for_edge_case_shapes() {
    for (rows, columns) in [(0, 0), (0, 5), (5, 0), (1, 1), (4, 16), (5, 17), (8, 64), (9, 65), (7, 150)] {
        for dimensions in [0, 1, 3, 4, 5, 15, 16, 17, 63, 64, 65, 128] {
            check_u8(7, dimensions, rows, columns);
            check_ordinary_f32(8, dimensions, rows, columns);
        }
    }
}

#[test]
fn kernels_match_the_reference_for_more_columns_than_the_cache() {
    check_u8(1, 100, 9, 1000);
    check_ordinary_f32(2, 300, 9, 200);
}

/// Some levels add products of narrow columns in 16 bits. These sums must not overflow for any center, width and row.
#[test]
fn bytes_in_narrow_ranges_are_exact() {
    for (low, high) in
        [(0, 0), (0, 15), (0, 63), (0, 127), (0, 128), (0, 129), (64, 191), (128, 255), (127, 255), (255, 255)]
    {
        for largest in [0, 1, 31, 63, 127, 255] {
            for dimensions in [1, 7, 64, 129] {
                let mut case = Case::new(11, dimensions, 9, 37, Random::byte);
                // Many bytes are clamped to the lowest or highest value.
                let fit = |byte: &mut u8, low: u8, high: u8| *byte = (*byte).clamp(low, high);
                case.rows.iter_mut().flatten().for_each(|byte| fit(byte, 0, largest));
                case.others.iter_mut().flatten().for_each(|byte| fit(byte, low, high));
                check_bytes(&case, 11);
            }
        }
    }
    // All products are as large as possible and have the same sign.
    for (row, column) in [(255, 0), (255, 128), (127, 0), (80, 0), (63, 0), (63, 63), (36, 0), (31, 0)] {
        let mut case = Case::new(12, 1000, 5, 17, Random::byte);
        case.rows.iter_mut().flatten().for_each(|byte| *byte = row);
        case.others.iter_mut().for_each(|vector| vector.fill(column));
        case.others[0].fill(128 - column);
        case.picked = (0..17).collect();
        check_bytes(&case, 12);
    }
}

/// Some levels add the products of a group with a block in 16 bits if they are small. Each block of columns has another
/// range, and the rows of each group another largest byte.
#[test]
fn bytes_with_a_range_of_each_block_are_exact() {
    for dimensions in [5, 96, 130] {
        let mut case = Case::new(13, dimensions, 24, 8 * TILE_COLUMNS, Random::byte);
        case.order = (0..24).collect();
        case.picked = (0..8 * TILE_COLUMNS as u32).collect();
        case.reach = vec![u32::MAX; 24];
        for (group, most) in case.rows.chunks_mut(TILE_ROWS).zip([0, 63, 127, 150, 180, 255]) {
            group.iter_mut().flatten().for_each(|byte| *byte = (*byte).min(most));
        }
        let ranges = [(0, 255), (0, 181), (0, 1), (200, 255), (100, 228), (127, 128), (255, 255), (3, 200)];
        for (block, (low, high)) in case.others.chunks_mut(TILE_COLUMNS).zip(ranges) {
            block.iter_mut().flatten().for_each(|byte| *byte = (*byte).clamp(low, high));
        }
        check_bytes(&case, 13);
    }
}

/// Levels stop when the first elements of a block show that all its pairs are beyond the limit. Here, all pairs of a
/// block have one distance, to which only the first elements contribute, or only the last ones. `check_bytes` and
/// `check_f32` use limits just below, at and above it.
#[test]
fn pairs_at_the_limit_are_hits_wherever_they_differ() {
    for dimensions in [95, 96, 100, 128, 200, 256, 384, 2048, 2049] {
        for differing in [0..1, 0..32, 31..33, dimensions / 2..dimensions / 2 + 2, dimensions - 1..dimensions] {
            for by in [1, 100, 200] {
                let vectors = |by: u8| {
                    let mut vector = vec![37; dimensions];
                    vector[differing.clone()].fill(37 + by);
                    vector
                };
                let (order, picked): (Vec<u32>, Vec<u32>) = ((0..5).collect(), (0..70).collect());
                let case = Case {
                    rows: vec![vectors(by); 5],
                    others: vec![vectors(0); 70],
                    dimensions,
                    order: order.clone(),
                    picked: picked.clone(),
                    reach: vec![u32::MAX; 5],
                };
                check_bytes(&case, 14);
                let floats = |vectors: &[Vec<u8>]| -> Vec<Vec<f32>> {
                    vectors.iter().map(|vector| vector.iter().map(|&byte| f32::from(byte) / 7.0).collect()).collect()
                };
                let (rows, others) = (floats(&case.rows), floats(&case.others));
                check_f32(&Case { rows, others, dimensions, order, picked, reach: case.reach }, 14);
            }
        }
    }
}

/// Some levels widen bytes in stripes of 2048 dimensions. Tests lengths around multiples of that.
#[test]
fn kernels_match_the_reference_around_stripes_of_dimensions() {
    for dimensions in [2047, 2048, 2049, 4095, 4096, 4097] {
        check_u8(9, dimensions, 5, 33);
        check_ordinary_f32(10, dimensions, 5, 33);
    }
}

#[test]
fn kernels_match_the_reference_for_the_most_dimensions() {
    check_u8(3, 8192, 6, 37);
    check_ordinary_f32(4, 8192, 6, 37);
    check_u8(5, adjoin_kernels::DIMENSIONS_MAX, 2, 3);
    check_ordinary_f32(6, adjoin_kernels::DIMENSIONS_MAX, 2, 3);
}

#[test]
fn farthest_bytes_do_not_overflow() {
    for dimensions in [8192, adjoin_kernels::DIMENSIONS_MAX] {
        let far = (255_u32 * 255) * dimensions as u32;
        let corners = panel(&[vec![0; dimensions], vec![255; dimensions]], dimensions);
        for kernel in Kernel::available() {
            let columns = kernel.pack(&corners, &[0, 1]);
            let mut matrix = [1; 4];
            kernel.many_to_many(&corners, &[0, 1], &columns, &mut matrix);
            assert_eq!(matrix, [0, far, far, 0], "{}", kernel.name());
            kernel.one_to_many(corners.row(1), &corners, &mut matrix[..2]);
            assert_eq!(matrix[..2], [far, 0], "{}", kernel.name());
        }
    }
}

#[test]
fn overflow_and_nan_are_equal_on_every_level() {
    let values = [0.0, f32::MAX, f32::MIN, f32::INFINITY, f32::NAN, 1e-45, 1e20, 1.9e19];
    let vectors: Vec<Vec<f32>> = values.iter().map(|&value| vec![value; 20]).collect();
    let all: Vec<u32> = (0..values.len() as u32).collect();
    let reach = vec![u32::MAX; values.len()];
    let case = Case { rows: vectors.clone(), others: vectors, dimensions: 20, order: all.clone(), picked: all, reach };
    let truth = check_f32(&case, 1);
    assert_eq!(truth[1], f32::INFINITY);
    assert!(truth[4].is_nan());
}

#[test]
fn unknown_names_are_no_kernel_level() {
    assert!(Kernel::named("").is_none() && Kernel::named("avx1024").is_none());
    assert_eq!(Kernel::detect().name(), Kernel::available().last().unwrap().name());
}

#[test]
fn columns_of_another_level_are_refused() {
    let rows = Panel::<u8>::zeroed(1, 8);
    for packer in Kernel::available() {
        for kernel in Kernel::available() {
            let columns = packer.pack(&rows, &[0]);
            let outcome = std::panic::catch_unwind(|| kernel.within(&rows, &[0], &columns, &[1], 0, &mut Vec::new()));
            assert_eq!(outcome.is_ok(), kernel.name() == packer.name(), "{} by {}", packer.name(), kernel.name());
        }
    }
}

#[test]
fn required_kernel_levels_are_available() {
    let here: Vec<_> = Kernel::available().iter().map(Kernel::name).collect();
    let required = std::env::var("ADJOIN_REQUIRE").unwrap_or_default();
    for level in Kernel::NAMES {
        let is_required = required.split(',').any(|word| !word.trim().is_empty() && level.starts_with(word.trim()));
        if !here.contains(&level) {
            assert!(!is_required, "ADJOIN_REQUIRE={required}, but this processor has only {here:?}");
            eprintln!("skipped: this processor lacks {level}");
        }
    }
}

#[test]
fn list_searches_equal_plain_loops() {
    let mut random = Random(12);
    for len in [0, 1, 15, 16, 17, 31, 32, 33, 100, 1000] {
        let values: Vec<u32> = (0..len).map(|_| random.below(50) as u32 * 0x0400_0000).collect();
        let floats: Vec<f32> = values.iter().map(|&value| value as f32 - 1e9).collect();
        let least = values.iter().min().map_or(0, |least| values.iter().position(|value| value == least).unwrap());
        for kernel in Kernel::available() {
            assert_eq!(kernel.first_least::<u8>(&values), least, "{} of {len}", kernel.name());
            assert_eq!(kernel.first_least::<f32>(&floats), least, "{} of {len}", kernel.name());
            for most in [0, 0x2000_0000, u32::MAX] {
                let mut found = vec![1];
                kernel.at_most(&values, most, &mut found);
                let places = (0..len).filter(|&place| values[place] <= most);
                let expected: Vec<u64> = places.map(|place| u64::from(values[place]) << 32 | place as u64).collect();
                assert_eq!((found[0], &found[1..]), (1, &expected[..]), "{} of {len}", kernel.name());
                assert_eq!(kernel.count_at_most(&values, most), expected.len() as u64);
            }
        }
    }
}

/// Checks that all levels find the same centroid, and that no other centroid is nearer by more than rounding.
#[test]
fn nearest_centroids_are_the_nearest() {
    let mut random = Random(13);
    for (dimensions, count, start) in
        [(1, 1, 0), (1, 255, 3), (2, 16, 1), (4, 256, 0), (7, 17, 5), (24, 200, 8), (96, 33, 0)]
    {
        let (points, centroids) = (
            random.vectors(40, start + dimensions + 2, Random::float),
            random.vectors(count, dimensions, Random::float),
        );
        let (points, columns) =
            (panel(&points, start + dimensions + 2), Centroids::new(&panel(&centroids, dimensions)));
        let mut expected = vec![(0, 0.0); points.rows()];
        Kernel::available()[0].nearest_centroids(&points, start, &columns, &mut expected);
        for (row, &(centroid, distance)) in expected.iter().enumerate() {
            let point = &points.row(row)[start..][..dimensions];
            let least = centroids.iter().map(|centroid| exact_f32(point, centroid)).fold(f64::INFINITY, f64::min);
            let found = exact_f32(point, &centroids[centroid as usize]);
            assert!(found <= least * (1.0 + 1e-4), "{found} > {least}");
            assert!((f64::from(distance) - found).abs() <= found * 1e-4, "{distance} for {found}");
        }
        for kernel in Kernel::available() {
            let mut nearest = vec![(9, 9.0); points.rows()];
            kernel.nearest_centroids(&points, start, &columns, &mut nearest);
            assert_eq!(nearest, expected, "{} of {dimensions}", kernel.name());
        }
    }
    // If centroids are equally near, the result is the first one. If all are infinitely far, it is the first one at
    // infinity.
    let (same, far) = (panel(&vec![vec![1.0_f32; 3]; 40], 3), panel(&[vec![f32::MAX; 3]], 3));
    for kernel in Kernel::available() {
        let mut nearest = [(7, 7.0)];
        kernel.nearest_centroids(&same, 0, &Centroids::new(&same), &mut nearest);
        assert_eq!(nearest, [(0, 0.0)], "{}", kernel.name());
        kernel.nearest_centroids(&far, 0, &Centroids::new(&same), &mut nearest);
        assert_eq!(nearest, [(0, f32::INFINITY)], "{}", kernel.name());
    }
}

/// Checks that sums in f64 are equal on every level, and close to sums in the order of the elements.
#[test]
fn sums_in_f64_are_close_to_sequential_sums() {
    let mut random = Random(11);
    for dimensions in [0, 1, 2, 31, 32, 33, 64, 100, 384, 1023, 8192] {
        for element in [Random::float, Random::extreme_float] {
            let [x, y] = [(); 2].map(|()| random.vectors(1, dimensions, element).remove(0));
            let terms = || x.iter().zip(&y).map(|(&x, &y)| (f64::from(x), f64::from(y)));
            let (in_order, absolute) =
                terms().fold((0.0, 0.0), |(sum, all): (f64, f64), (x, y)| (sum + x * y, all + (x * y).abs()));
            let squared = exact_f32(&x, &y);
            for kernel in Kernel::available() {
                let (dot, distance) = (kernel.dot_wide(&x, &y), kernel.squared_distance_wide(&x, &y));
                let reference = Kernel::named("reference").unwrap();
                assert_eq!(dot.to_bits(), reference.dot_wide(&x, &y).to_bits(), "{} {dimensions}", kernel.name());
                assert_eq!(distance.to_bits(), reference.squared_distance_wide(&x, &y).to_bits(), "{}", kernel.name());
                assert!((dot - in_order).abs() <= wide_error(dimensions) * absolute, "{dot:e} {in_order:e}");
                assert!((distance - squared).abs() <= wide_error(dimensions) * squared, "{distance:e} {squared:e}");
            }
        }
    }
}

/// Checks that all levels round floats to the same bytes, which are the nearest, and that the distance is right.
#[test]
fn floats_are_rounded_to_the_nearest_bytes() {
    let mut random = Random(13);
    for dimensions in [0, 1, 15, 16, 17, 33, 100, 384] {
        for (scale, step) in [(1.0, 0.01), (0.3, 0.5), (1.0, 1e-6)] {
            let [x, origin] = [(); 2].map(|()| random.vectors(1, dimensions, Random::float).remove(0));
            let grid = Grid { origin: &origin, step };
            let rounded = |kernel: &Kernel| {
                let mut bytes = vec![7; dimensions];
                (kernel.round_to_bytes(&x, scale, grid, &mut bytes).to_bits(), bytes)
            };
            let (squared, bytes) = rounded(&Kernel::named("reference").unwrap());
            let mut left_over = 0.0;
            for ((&x, &origin), &byte) in x.iter().zip(&origin).zip(&bytes) {
                let away = |byte: f64| f64::from(x * scale - origin) - (byte - 128.0) * f64::from(step);
                let left = away(byte.into());
                left_over += left * left;
                let others =
                    [f64::from(byte) - 1.0, f64::from(byte) + 1.0].into_iter().filter(|b| (0.0..=255.0).contains(b));
                others.for_each(|other| assert!(left.abs() <= away(other).abs() + 1e-5 * f64::from(step), "{left}"));
            }
            let squared = f64::from(f32::from_bits(squared));
            assert!((squared - left_over).abs() <= 1e-4 * left_over + 1e-9, "{squared} {left_over}");
            for kernel in Kernel::available() {
                assert_eq!(rounded(&kernel), ((squared as f32).to_bits(), bytes.clone()), "{}", kernel.name());
            }
        }
    }
}

/// Checks values that no byte represents, and ties.
#[test]
fn floats_beyond_the_grid_get_the_first_or_last_byte() {
    let x =
        [f32::NEG_INFINITY, -1e30, -129.0, -128.5, -128.0, -0.5, 0.5, 1.5, 127.0, 127.5, 1e30, f32::INFINITY, f32::NAN];
    let nearest = [0, 0, 0, 0, 0, 128, 129, 130, 255, 255, 255, 255, 0];
    let grid = Grid { origin: &[0.0; 13], step: 1.0 };
    for kernel in Kernel::available() {
        let mut bytes = [7; 13];
        kernel.round_to_bytes(&x, 1.0, grid, &mut bytes);
        assert_eq!(bytes, nearest, "{}", kernel.name());
    }
}

/// Checks that sums in f32 are equal on every level, and within `near_error` of the exact ones.
#[test]
fn sums_in_f32_are_within_their_error_bound() {
    let mut random = Random(14);
    for dimensions in [0, 1, 63, 64, 65, 128, 384, 1023, 8192] {
        let [x, y] = [(); 2].map(|()| random.vectors(1, dimensions, Random::float).remove(0));
        let terms = || x.iter().zip(&y).map(|(&x, &y)| f64::from(x) * f64::from(y));
        let (dot, absolute) = (terms().sum::<f64>(), terms().map(f64::abs).sum::<f64>());
        let (squared, reference) = (exact_f32(&x, &y), Kernel::named("reference").unwrap());
        for kernel in Kernel::available() {
            let near = [kernel.dot_near(&x, &y), kernel.squared_distance_near(&x, &y)];
            let same = [reference.dot_near(&x, &y), reference.squared_distance_near(&x, &y)];
            assert_eq!(near.map(f32::to_bits), same.map(f32::to_bits), "{} {dimensions}", kernel.name());
            assert!((f64::from(near[0]) - dot).abs() <= near_error(dimensions) * absolute, "{near:?} {dot:e}");
            assert!((f64::from(near[1]) - squared).abs() <= near_error(dimensions) * squared, "{near:?} {squared:e}");
        }
    }
}

/// Converts every finite f16, and compares the result with its value by arithmetic.
#[test]
fn halves_are_converted_to_equal_floats() {
    let finite = (0..=u16::MAX).filter(|half| half & 0x7c00 != 0x7c00);
    let value = |half: u16| {
        let (exponent, digits) = (i32::from(half >> 10 & 31), f64::from(half & 1023));
        let size = if exponent == 0 { digits * 2f64.powi(-24) } else { (1024.0 + digits) * 2f64.powi(exponent - 25) };
        if half & 0x8000 == 0 { size } else { -size }
    };
    let (stored, values): (Vec<[u8; 2]>, Vec<f64>) = finite.map(|half| (half.to_le_bytes(), value(half))).unzip();
    for kernel in Kernel::available() {
        let mut floats = vec![1.0; values.len()];
        kernel.halves_as_floats(stored.as_flattened(), &mut floats);
        assert!(floats.iter().zip(&values).all(|(&float, &value)| f64::from(float) == value), "{}", kernel.name());
        assert!(floats[0].is_sign_positive() && floats[values.len() / 2].is_sign_negative(), "zeros keep their sign");
    }
}

/// Checks that sums of table entries are equal on every level and are right, for any length, stride and order.
#[test]
fn lookup_sums_are_equal_on_every_level() {
    let mut random = Random(17);
    for (chunks, beyond) in [(0, 3), (1, 0), (7, 2), (8, 0), (9, 0), (16, 4), (33, 1), (64, 0), (200, 5)] {
        let stride = chunks + beyond;
        let tables: Vec<[f32; TABLE_ENTRIES]> =
            (0..chunks).map(|_| std::array::from_fn(|_| 100.0 * random.float())).collect();
        let codes: Vec<u8> = (0..40 * stride).map(|_| random.byte()).collect();
        let rows = random.order(90, 40);
        let codes_of = CodeRows { bytes: &codes, stride };
        let mut reference = vec![f32::NAN; rows.len()];
        Kernel::named("reference").unwrap().sum_lookups(&tables, codes_of, &rows, &mut reference);
        for (&row, &sum) in rows.iter().zip(&reference) {
            let entry = |chunk: usize| f64::from(tables[chunk][usize::from(codes[row as usize * stride + chunk])]);
            let (exact, absolute) =
                (0..chunks).fold((0.0, 0.0), |(sum, all), k| (sum + entry(k), all + entry(k).abs()));
            let bound = (chunks.div_ceil(8) + 4) as f64 * 2f64.powi(-24) * absolute;
            assert!((f64::from(sum) - exact).abs() <= bound, "{sum} {exact}");
        }
        for kernel in Kernel::available() {
            let mut sums = vec![f32::NAN; rows.len()];
            kernel.sum_lookups(&tables, codes_of, &rows, &mut sums);
            assert!(sums.iter().zip(&reference).all(|(&a, &b)| same(a, b)), "{} {chunks}", kernel.name());
        }
    }
}
