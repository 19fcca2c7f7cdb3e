//! The random model of generated vectors.
//!
//! A row is a mix of a core, which other rows share, and its own random draw:
//!
//! ```text
//! row = sqrt(1 - s^2) * core + s * draw
//! ```
//!
//! Cores and draws have the same distribution. Therefore all rows have this distribution, too, for any s. Three
//! properties were fitted to 200,000 SIFT descriptors of photographs:
//!
//! - **Sizes of groups**: the number of a row's core is floor(first / u), with a uniform random u. A few cores have many
//!   rows and most cores have few. `first` is [`HEAVIEST`], but above 200,000 rows it grows with them. So there are then
//!   more groups, not larger ones, and rows have about as many neighbors in any larger set.
//! - **Tightness**: s is sqrt(u), with a uniform random u, but at most 1. A group is dense near its core and becomes
//!   sparse until it merges with the background. Every set has near-duplicates and also rows without any neighbor.
//! - **Spectrum**: the j-th strongest direction has the variance 1 / ((j + [`BEND`]) * (j + [`FALL`])). So about 15
//!   directions matter for any number of dimensions. A Walsh-Hadamard transform distributes them over all dimensions.
//!
//! Hardness h multiplies s, `BEND` and `FALL`. At 0, all rows are copies of cores. Beyond 1, groups dissolve and the
//! spectrum becomes flat, until rows are normally distributed in all directions.
//!
//! IEEE 754 defines the results of all operations here to the last bit, so a seed gives the same bytes on every
//! machine.

use half::f16;

use super::Generated;
use crate::base::options::Element;
use crate::base::random::Random;

/// Least number of a core. Of up to 200,000 rows, one in `HEAVIEST` + 1 belongs to it.
const HEAVIEST: f64 = 48.0;
/// Number of rows to which the model was fitted. Larger sets have as many rows per core.
const ROWS_OF_FIT: f64 = 200_000.0;
/// Index at which the spectrum starts to fall as 1 / j.
const BEND: f64 = 1.0;
/// Index at which the spectrum starts to fall as 1 / j^2.
const FALL: f64 = 20.0;
/// Maximum hardness. A greater hardness would have no visible effect. The limit keeps products finite.
const HARDNESS_MAX: f64 = 1e9;
/// Standard deviation of an integer element, as in SIFT. With it, 1 element in 10,000 is clipped.
const INTEGER_SCALE: f32 = 33.0;
/// Maximum number of cores in memory, and maximum size of them in bytes. Other cores are computed each time they are
/// needed.
const CORES_HELD_MAX: usize = 1 << 15;
const CORES_BYTES_MAX: usize = 16 << 20;

/// Generator of rows.
pub(super) struct Model {
    element: Element,
    dimensions: usize,
    hardness: f64,
    /// Least number of a core. Cores with small numbers have the most rows.
    heaviest: f64,
    /// Standard deviations of the directions, strongest first. The number of directions is a power of two.
    deviations: Vec<f32>,
    cores: Vec<Option<Box<[f32]>>>,
    cores_seed: u64,
    random: Random,
    row: Vec<f32>,
}

impl Model {
    pub(super) fn new(what: &Generated) -> Self {
        let hardness = what.hardness.min(HARDNESS_MAX);
        let deviations = deviations(what.vectors.dimensions.next_power_of_two(), hardness);
        let held = (CORES_BYTES_MAX / size_of_val(&*deviations)).min(CORES_HELD_MAX);
        let mut random = Random::new(what.seed, "generate");
        Self {
            element: what.vectors.element,
            dimensions: what.vectors.dimensions,
            hardness,
            heaviest: HEAVIEST * (what.rows as f64 / ROWS_OF_FIT).max(1.0),
            row: vec![0.0; deviations.len()],
            deviations,
            cores: vec![None; held],
            cores_seed: random.below(u64::MAX),
            random,
        }
    }

    /// Appends the bytes of the next row.
    pub(super) fn write_row(&mut self, bytes: &mut Vec<u8>) {
        let number = core_number(&mut self.random, self.heaviest);
        let spread = (self.hardness * self.random.uniform().sqrt()).min(1.0);
        self.set_core(number);
        // The squares of both weights add up to 1, so that all rows have the same variance for any spread.
        let kept = (1.0 - spread * spread).sqrt() as f32;
        let spread = spread as f32;
        for (x, deviation) in self.row.iter_mut().zip(&self.deviations) {
            *x = kept * *x + spread * (deviation * self.random.rough_normal());
        }
        transform(&mut self.row);
        let row = &self.row[..self.dimensions];
        match self.element {
            Element::F32 => row.iter().for_each(|x| bytes.extend(x.to_le_bytes())),
            Element::F16 => row.iter().for_each(|&x| bytes.extend(f16::from_f32(x).to_le_bytes())),
            Element::U8 => bytes.extend(row.iter().map(|&x| integer(x))),
            Element::I8 => bytes.extend(row.iter().map(|&x| integer(x).wrapping_sub(128))),
        }
    }

    /// Writes a core to `row`.
    fn set_core(&mut self, number: u64) {
        // The cores with the most rows have the smallest numbers, so these are held.
        let held = usize::try_from(number - self.heaviest as u64).ok().and_then(|place| self.cores.get_mut(place));
        // Each core has its own random generator. So a core that is not held gets the same values each time it is
        // computed.
        let mut random = Random::new(self.cores_seed.wrapping_add(number), "core");
        let drawn = self.deviations.iter().map(|deviation| deviation * random.rough_normal());
        match held {
            Some(core) => self.row.copy_from_slice(core.get_or_insert_with(|| drawn.collect())),
            None => self.row.iter_mut().zip(drawn).for_each(|(x, drawn)| *x = drawn),
        }
    }
}

/// Chooses the core of a row at random. The number of a rare core is limited only by 64 bits.
fn core_number(random: &mut Random, heaviest: f64) -> u64 {
    // `uniform` may return 0 but never 1, so this is never 0.
    let above_zero = 1.0 - random.uniform();
    (heaviest / above_zero) as u64
}

/// Returns the standard deviations of the directions. The sum of their squares is 1, so that the transform gives each
/// element a variance of 1.
fn deviations(directions: usize, hardness: f64) -> Vec<f32> {
    let variance = |j: usize| 1.0 / ((j as f64 + hardness * BEND) * (j as f64 + hardness * FALL));
    let sum: f64 = (1..=directions).map(variance).sum();
    (1..=directions).map(|j| (variance(j) / sum).sqrt() as f32).collect()
}

/// Applies the Walsh-Hadamard transform: a rotation, scaled by the square root of the length of `row`.
fn transform(row: &mut [f32]) {
    let mut half = row.len() / 2;
    while half > 0 {
        for block in row.chunks_exact_mut(2 * half) {
            let (left, right) = block.split_at_mut(half);
            for (a, b) in left.iter_mut().zip(right) {
                (*a, *b) = (*a + *b, *a - *b);
            }
        }
        half /= 2;
    }
}

/// Converts an element to an integer around 128.
fn integer(x: f32) -> u8 {
    // Adding a half makes the cast round to the nearest integer. The cast clips at 0 and 255.
    (INTEGER_SCALE * x + 128.5) as u8
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::options::VectorType;

    fn rows(element: Element, dimensions: usize, rows: u64, hardness: f64) -> Vec<u8> {
        let what = Generated { rows, vectors: VectorType { element, dimensions }, hardness, seed: 1 };
        let mut model = Model::new(&what);
        let mut bytes = Vec::new();
        (0..rows).for_each(|_| model.write_row(&mut bytes));
        assert_eq!(bytes.len() as u64, rows * what.vectors.bytes() as u64);
        bytes
    }

    fn floats(dimensions: usize, count: u64, hardness: f64) -> Vec<f32> {
        let bytes = rows(Element::F32, dimensions, count, hardness);
        bytes.as_chunks().0.iter().map(|&bytes| f32::from_le_bytes(bytes)).collect()
    }

    /// Returns the squared distances of all pairs with the numbers of their rows, in ascending order.
    fn distances(rows: &[f32], dimensions: usize) -> Vec<(f32, usize, usize)> {
        let rows: Vec<&[f32]> = rows.chunks_exact(dimensions).collect();
        let squared = |i: usize, j: usize| rows[i].iter().zip(rows[j]).map(|(x, y)| (x - y) * (x - y)).sum::<f32>();
        let mut all: Vec<_> =
            (0..rows.len()).flat_map(|i| (0..i).map(move |j| (i, j))).map(|(i, j)| (squared(i, j), i, j)).collect();
        all.sort_unstable_by(|a, b| a.0.total_cmp(&b.0));
        all
    }

    #[test]
    fn generated_bytes_of_a_seed_are_fixed() {
        let checksum = |element, dimensions| xxhash_rust::xxh3::xxh3_64(&rows(element, dimensions, 300, 1.0));
        let sums = [
            checksum(Element::F32, 128),
            checksum(Element::F16, 100),
            checksum(Element::U8, 128),
            checksum(Element::I8, 3),
            checksum(Element::F32, 1),
        ];
        let expected: [u64; 5] = [
            7_385_542_742_941_630_200,
            5_830_875_677_019_953_974,
            4_925_670_232_697_324_048,
            7_471_941_221_355_441_881,
            15_912_094_458_465_598_898,
        ];
        assert_eq!(sums, expected);
    }

    #[test]
    fn generated_elements_of_all_types_represent_the_same_vectors() {
        let f32s = floats(20, 50, 1.0);
        let f16s = rows(Element::F16, 20, 50, 1.0);
        let f16s = f16s.as_chunks().0.iter().map(|&bytes| f16::from_le_bytes(bytes));
        assert!(f16s.zip(&f32s).all(|(half, &x)| half == f16::from_f32(x)));
        let u8s = rows(Element::U8, 20, 50, 1.0);
        let i8s = rows(Element::I8, 20, 50, 1.0);
        for ((&x, &unsigned), &signed) in f32s.iter().zip(&u8s).zip(&i8s) {
            assert!((f32::from(unsigned) - 128.0 - INTEGER_SCALE * x).abs() <= 0.5001);
            assert_eq!(i16::from(signed.cast_signed()), i16::from(unsigned) - 128);
        }
    }

    #[test]
    fn generated_elements_have_variance_1_in_any_dimension() {
        for dimensions in [1, 3, 64, 100, 8192] {
            let count = (200_000 / dimensions).max(1000) as u64;
            let values = floats(dimensions, count, 1.0);
            let moment = |power| values.iter().map(|&x| f64::from(x).powi(power)).sum::<f64>() / values.len() as f64;
            assert!((0.8..1.2).contains(&moment(2)), "{dimensions}: {}", moment(2));
            assert!(moment(1).abs() < 0.2, "{dimensions}: {}", moment(1));
        }
    }

    #[test]
    fn generated_integers_are_rarely_clipped() {
        let bytes = rows(Element::U8, 128, 2000, 1.0);
        let clipped = bytes.iter().filter(|&&x| x == 0 || x == 255).count();
        assert!(clipped * 2000 < bytes.len(), "{clipped}");
    }

    #[test]
    fn a_few_generated_rows_have_most_of_the_pairs() {
        let (count, wanted) = (3000, 10);
        let mut neighbors = vec![0; count];
        for (_, i, j) in distances(&floats(32, count as u64, 1.0), 32).into_iter().take(count * wanted / 2) {
            neighbors[i] += 1;
            neighbors[j] += 1;
        }
        neighbors.sort_unstable();
        let of_the_first_tenth: usize = neighbors[count - count / 10..].iter().sum();
        assert!(of_the_first_tenth > count * wanted / 3);
        assert!(neighbors[count / 10] == 0, "some have none");
    }

    #[test]
    fn larger_sets_have_more_groups_instead_of_larger_ones() {
        // Returns how many rows of a set have the heaviest core, as far as 200,000 draws tell.
        let of_heaviest = |rows: u64| {
            let vectors = VectorType { element: Element::U8, dimensions: 1 };
            let mut model = Model::new(&Generated { rows, vectors, hardness: 1.0, seed: 1 });
            let least = model.heaviest as u64;
            let draws = 200_000;
            let found = (0..draws).filter(|_| core_number(&mut model.random, model.heaviest) == least).count();
            found as f64 * rows as f64 / f64::from(draws)
        };
        let expected = [(20_000, 408.0), (200_000, 4_082.0), (400_000, 4_124.0), (2_000_000, 4_158.0)];
        for (rows, expected) in expected {
            let found = of_heaviest(rows);
            assert!((0.8..1.2).contains(&(found / expected)), "{rows} rows: {found}");
        }
    }

    #[test]
    fn hardness_ranges_from_copies_to_noise() {
        // Distance of near pairs, divided by the median distance.
        let contrast = |hardness| {
            let all = distances(&floats(32, 1000, hardness), 32);
            (all[all.len() / 500].0 / all[all.len() / 2].0).sqrt()
        };
        let contrasts = [0.0, 0.3, 1.0, 3.0, f64::MAX].map(contrast);
        assert_eq!(contrasts[0], 0.0);
        assert!(contrasts.is_sorted_by(|a, b| a < b), "{contrasts:?}");
        assert!(contrasts[4] > 0.5, "{contrasts:?}");
    }
}
