//! Computes the pairs of a result by the formula of the predicate, for every pair of rows. Sums are in f64 (of
//! integers, in integers) and in the order of the elements. Shares no code with the engine, not even for reading
//! elements.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use adjoin::{Element, Metric, Predicate, VectorType};

/// A pair of the result as passed to sinks: left row, right row, value.
pub(crate) type Pair = (u64, u64, f32);

/// Number of threads.
const THREADS: usize = 2;
/// Number of rows of a tile. The sums of a tile are held in registers.
const TILE_ROWS: usize = 2;
/// Number of columns of a tile. The compiler vectorizes across columns, so each sum is still in the order of the
/// elements.
const TILE_COLUMNS: usize = 8;
/// Number of rows that a thread takes at a time and compares with all later ones.
const CHUNK_ROWS: usize = 64;

/// Pairs of a set, with the values that decide whether they belong to a result.
pub(crate) struct Oracle {
    metric: Metric,
    /// Left row, right row, and squared distance or similarity of each pair, ordered by rows.
    found: Vec<(u64, u64, f64)>,
}

impl Oracle {
    /// Computes all pairs of vectors. `stored` has the bytes of all vectors.
    pub(crate) fn of_all(vectors: VectorType, stored: &[u8], metric: Metric) -> Self {
        Self::new(vectors, stored, metric, |_| true)
    }

    /// Computes the pairs that `loosest` accepts. They include all pairs that a stricter predicate of the metric
    /// accepts.
    pub(crate) fn within(vectors: VectorType, stored: &[u8], loosest: Predicate) -> Self {
        Self::new(vectors, stored, loosest.metric(), |value| belongs(loosest, value))
    }

    fn new(vectors: VectorType, stored: &[u8], metric: Metric, keep: impl Fn(f64) -> bool + Sync) -> Self {
        let found = match vectors.element {
            Element::U8 | Element::I8 => compare(&integers(vectors.element, stored), vectors.dimensions, metric, keep),
            Element::F16 | Element::F32 => compare(&floats(vectors.element, stored), vectors.dimensions, metric, keep),
        };
        Self { metric, found }
    }

    /// Returns the result of a join with `predicate`.
    pub(crate) fn pairs(&self, predicate: Predicate) -> Vec<Pair> {
        assert_eq!(predicate.metric(), self.metric);
        let wanted = self.found.iter().filter(|pair| belongs(predicate, pair.2));
        wanted.map(|&(left, right, value)| (left, right, reported(self.metric, value))).collect()
    }

    /// Returns the value that a result reports for a pair. The pair must have been computed.
    pub(crate) fn value(&self, left: u64, right: u64) -> f32 {
        let at = self.found.binary_search_by_key(&(left, right), |pair| (pair.0, pair.1)).unwrap();
        reported(self.metric, self.found[at].2)
    }

    /// Returns the squared distances or similarities of all pairs in ascending order, without NaN.
    pub(crate) fn values(&self) -> Vec<f64> {
        let mut values: Vec<f64> = self.found.iter().map(|pair| pair.2).filter(|value| !value.is_nan()).collect();
        values.sort_unstable_by(f64::total_cmp);
        values
    }
}

/// Returns whether the predicate accepts a value.
fn belongs(predicate: Predicate, value: f64) -> bool {
    match predicate {
        Predicate::L2 { eps } => value <= eps * eps,
        Predicate::Cosine { min_similarity } => value >= min_similarity,
        Predicate::InnerProduct { .. } => unreachable!("inner products are not joined"),
    }
}

fn reported(metric: Metric, value: f64) -> f32 {
    match metric {
        Metric::L2 => value.sqrt() as f32,
        Metric::Cosine | Metric::Ip => value as f32,
    }
}

/// An element in the form in which it is compared.
trait Number: Copy + Default + Send + Sync {
    type Sum: Copy + Default + Into<f64> + Send + Sync;

    fn add_squared_difference(sum: Self::Sum, x: Self, y: Self) -> Self::Sum;
    fn add_product(sum: Self::Sum, x: Self, y: Self) -> Self::Sum;
}

impl Number for f64 {
    type Sum = Self;

    fn add_squared_difference(sum: Self, x: Self, y: Self) -> Self {
        sum + (x - y) * (x - y)
    }

    fn add_product(sum: Self, x: Self, y: Self) -> Self {
        sum + x * y
    }
}

/// A byte, signed or unsigned. The sum of 8,192 squares of 255 fits in an i32, so nothing wraps around.
impl Number for i16 {
    type Sum = i32;

    fn add_squared_difference(sum: i32, x: Self, y: Self) -> i32 {
        let difference = i32::from(x.wrapping_sub(y));
        sum.wrapping_add(difference.wrapping_mul(difference))
    }

    fn add_product(sum: i32, x: Self, y: Self) -> i32 {
        sum.wrapping_add(i32::from(x).wrapping_mul(i32::from(y)))
    }
}

fn integers(element: Element, stored: &[u8]) -> Vec<i16> {
    let signed = element == Element::I8;
    stored.iter().map(|&byte| if signed { i16::from(byte.cast_signed()) } else { i16::from(byte) }).collect()
}

/// Decodes stored floats.
pub(crate) fn floats(element: Element, stored: &[u8]) -> Vec<f64> {
    match element {
        Element::F16 => stored.chunks_exact(2).map(|two| half(u16::from_le_bytes([two[0], two[1]]))).collect(),
        Element::F32 => stored
            .chunks_exact(4)
            .map(|four| f64::from(f32::from_le_bytes([four[0], four[1], four[2], four[3]])))
            .collect(),
        Element::U8 | Element::I8 => unreachable!("bytes are no floats"),
    }
}

/// Decodes an IEEE 754 binary16 number by its definition.
fn half(bits: u16) -> f64 {
    let exponent = i32::from(bits >> 10 & 0x1f);
    let fraction = f64::from(bits & 0x3ff) / 1024.0;
    let size = match exponent {
        0 => fraction * 2f64.powi(-14),
        31 if fraction == 0.0 => f64::INFINITY,
        31 => f64::NAN,
        _ => (1.0 + fraction) * 2f64.powi(exponent - 15),
    };
    if bits >> 15 == 1 { -size } else { size }
}

fn compare<N: Number>(
    values: &[N],
    dimensions: usize,
    metric: Metric,
    keep: impl Fn(f64) -> bool + Sync,
) -> Vec<(u64, u64, f64)> {
    let rows: Vec<&[N]> = values.chunks_exact(dimensions).collect();
    match metric {
        Metric::L2 => scan(&rows, dimensions, N::add_squared_difference, |_, _, sum| sum, keep),
        Metric::Cosine => {
            let norm = |x: &[N]| x.iter().fold(N::Sum::default(), |sum, &x| N::add_product(sum, x, x)).into();
            let norms: Vec<f64> = rows.iter().map(|row| norm(row)).collect();
            scan(&rows, dimensions, N::add_product, |x, y, dot| dot / (norms[x] * norms[y]).sqrt(), keep)
        }
        Metric::Ip => unreachable!("inner products are not joined"),
    }
}

/// Computes the value of every pair once, and keeps the pairs that `keep` accepts.
fn scan<N: Number>(
    rows: &[&[N]],
    dimensions: usize,
    add: impl Fn(N::Sum, N, N) -> N::Sum + Copy + Sync,
    value: impl Fn(usize, usize, f64) -> f64 + Sync,
    keep: impl Fn(f64) -> bool + Sync,
) -> Vec<(u64, u64, f64)> {
    let blocks: Vec<Vec<[N; TILE_COLUMNS]>> =
        rows.chunks(TILE_COLUMNS).map(|block| transposed(block, dimensions)).collect();
    let next = AtomicUsize::new(0);
    let all = Mutex::new(Vec::new());
    let work = || {
        let mut found = Vec::new();
        loop {
            let start = next.fetch_add(1, Ordering::Relaxed) * CHUNK_ROWS;
            if start >= rows.len() {
                break;
            }
            let chunk = start..rows.len().min(start + CHUNK_ROWS);
            for (number, block) in blocks.iter().enumerate().skip(start / TILE_COLUMNS) {
                for x in chunk.clone().step_by(TILE_ROWS) {
                    let tile = std::array::from_fn(|r| rows[(x + r).min(chunk.end - 1)]);
                    for (r, sums) in sums(tile, block, add).into_iter().enumerate() {
                        let columns = (number * TILE_COLUMNS..rows.len()).zip(sums);
                        let later = columns.filter(|&(y, _)| x + r < chunk.end && y > x + r);
                        let valued = later.map(|(y, sum)| (x + r, y, value(x + r, y, sum.into())));
                        found.extend(valued.filter(|pair| keep(pair.2)).map(|(x, y, v)| (x as u64, y as u64, v)));
                    }
                }
            }
        }
        all.lock().unwrap().append(&mut found);
    };
    std::thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(work);
        }
    });
    let mut all = all.into_inner().unwrap();
    all.sort_unstable_by_key(|pair| (pair.0, pair.1));
    all
}

/// Transposes the vectors of a block: entry `i` has element `i` of all vectors. Missing vectors are zero.
fn transposed<N: Number>(block: &[&[N]], dimensions: usize) -> Vec<[N; TILE_COLUMNS]> {
    let column = |i: usize, c: usize| block.get(c).map_or(N::default(), |row| row[i]);
    (0..dimensions).map(|i| std::array::from_fn(|c| column(i, c))).collect()
}

/// Computes the sums of a tile, each in the order of the elements.
fn sums<N: Number>(
    rows: [&[N]; TILE_ROWS],
    block: &[[N; TILE_COLUMNS]],
    add: impl Fn(N::Sum, N, N) -> N::Sum,
) -> [[N::Sum; TILE_COLUMNS]; TILE_ROWS] {
    let mut sums = [[N::Sum::default(); TILE_COLUMNS]; TILE_ROWS];
    let rows = rows.map(|row| &row[..block.len()]);
    for (i, ys) in block.iter().enumerate() {
        for (sums, row) in sums.iter_mut().zip(&rows) {
            let x = row[i];
            for (sum, &y) in sums.iter_mut().zip(ys) {
                *sum = add(*sum, x, y);
            }
        }
    }
    sums
}

#[test]
fn the_oracle_is_right_for_small_sets() {
    let bytes = VectorType { element: Element::U8, dimensions: 2 };
    let all = Oracle::of_all(bytes, &[0, 0, 3, 4, 0, 5], Metric::L2);
    assert_eq!(all.found, [(0, 1, 25.0), (0, 2, 25.0), (1, 2, 10.0)]);
    assert_eq!(all.pairs(Predicate::L2 { eps: 5.0 }).len(), 3);
    assert_eq!(all.pairs(Predicate::L2 { eps: 5f64.next_down() }), [(1, 2, 10f32.sqrt())]);
    let signed = VectorType { element: Element::I8, dimensions: 2 };
    let all = Oracle::of_all(signed, &[1, 0, 255, 0, 0, 7], Metric::Cosine);
    assert_eq!(all.found, [(0, 1, -1.0), (0, 2, 0.0), (1, 2, 0.0)]);
}

#[test]
fn half_conversion_equals_the_library() {
    for bits in 0..=u16::MAX {
        let library = half::f16::from_bits(bits).to_f64();
        assert!(half(bits).to_bits() == library.to_bits() || (half(bits).is_nan() && library.is_nan()), "{bits:x}");
    }
}

#[test]
fn tiled_sums_equal_a_plain_loop() {
    let vectors = VectorType { element: Element::F32, dimensions: 37 };
    let rows = 203;
    let stored: Vec<u8> = (0..rows * 37u32).flat_map(|k| ((f64::from(k) * 0.7).sin() as f32).to_le_bytes()).collect();
    let values = floats(Element::F32, &stored);
    let row = |k: u64| &values[k as usize * 37..][..37];
    for metric in [Metric::L2, Metric::Cosine] {
        let all = Oracle::of_all(vectors, &stored, metric);
        assert_eq!(all.found.len() as u32, rows * (rows - 1) / 2);
        for &(x, y, value) in &all.found {
            let (mut squared, mut dot, mut xx, mut yy) = (0.0, 0.0, 0.0, 0.0);
            for (x, y) in row(x).iter().zip(row(y)) {
                squared += (x - y) * (x - y);
                dot += x * y;
                xx += x * x;
                yy += y * y;
            }
            let expected: f64 = if metric == Metric::L2 { squared } else { dot / f64::sqrt(xx * yy) };
            assert_eq!(value.to_bits(), expected.to_bits(), "{metric} of {x} and {y}");
        }
    }
}
