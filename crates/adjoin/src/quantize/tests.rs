//! Compares codes and distances with plain f64 computed from a serialized quantizer.

use super::*;
use crate::base::error::ErrorKind;
use crate::base::random::Random;
use crate::test_sets::vectors;

/// Returns small integers with many ties.
fn small_bytes(rows: usize, dimensions: usize, seed: u64) -> Panel<u8> {
    let mut random = Random::new(seed, "bytes");
    let mut panel = Panel::zeroed(rows, dimensions);
    (0..rows).for_each(|row| panel.row_mut(row).iter_mut().for_each(|x| *x = random.below(4) as u8));
    panel
}

fn as_floats(bytes: &Panel<u8>) -> Panel<f32> {
    let mut floats = Panel::zeroed(bytes.rows(), bytes.dimensions());
    (0..bytes.rows()).for_each(|row| widen(bytes.row(row), floats.row_mut(row)));
    floats
}

fn train(sample: &Panel<f32>, bytes: usize) -> Quantizer {
    Quantizer::train(&Context::default(), sample, bytes, 7).unwrap()
}

fn exact<T: Coordinate>(panel: &Panel<T>, row: usize) -> Vec<f64> {
    panel.row(row)[..panel.dimensions()].iter().map(|x| x.value()).collect()
}

fn dot(x: &[f64], y: &[f64]) -> f64 {
    x.iter().zip(y).map(|(x, y)| x * y).sum()
}

fn squared(x: &[f64], y: &[f64]) -> f64 {
    x.iter().zip(y).map(|(x, y)| (x - y).powi(2)).sum()
}

/// Parser of a serialized quantizer that shares no code with it.
struct Said<'a>(&'a [u8]);

impl Said<'_> {
    fn count(&mut self) -> usize {
        let (count, rest) = self.0.split_first_chunk().unwrap();
        self.0 = rest;
        u32::from_le_bytes(*count) as usize
    }

    fn rows(&mut self, rows: usize, dimensions: usize) -> Vec<Vec<f64>> {
        let (floats, rest) = self.0.split_at(4 * rows * dimensions);
        self.0 = rest;
        let floats: Vec<f64> = floats.as_chunks().0.iter().map(|&x| f32::from_le_bytes(x).into()).collect();
        floats.chunks(dimensions).map(<[f64]>::to_vec).collect()
    }
}

/// A product quantizer in f64.
struct NaiveProduct {
    axes: Option<Vec<Vec<f64>>>,
    /// First dimension and centroids of each chunk.
    codebooks: Vec<(usize, Vec<Vec<f64>>)>,
}

impl NaiveProduct {
    fn of(quantizer: &Quantizer) -> Self {
        let bytes = quantizer.to_bytes();
        let mut said = Said(&bytes);
        let [kind, dimensions, chunks, centroids, rotated] = [(); 5].map(|()| said.count());
        assert_eq!((kind, chunks), (0, quantizer.code_bytes()));
        let axes = (rotated == 1).then(|| said.rows(dimensions, dimensions));
        let start = |chunk: usize| chunk * dimensions / chunks;
        let codebook = |chunk| (start(chunk), said.rows(centroids, start(chunk + 1) - start(chunk)));
        Self { axes, codebooks: (0..chunks).map(codebook).collect() }
    }

    /// Returns the squared distances of each chunk of a vector to its centroids.
    fn table(&self, vector: &[f64]) -> Vec<Vec<f64>> {
        let turned = |axes: &Vec<Vec<f64>>| axes.iter().map(|axis| dot(axis, vector)).collect();
        let vector = self.axes.as_ref().map_or(vector.to_vec(), turned);
        let of_chunk = |(start, centroids): &(usize, Vec<Vec<f64>>)| {
            centroids.iter().map(|centroid| squared(centroid, &vector[*start..][..centroid.len()])).collect()
        };
        self.codebooks.iter().map(of_chunk).collect()
    }
}

/// Checks codes and distances of some vectors against plain f64, for equality if all sums are exact.
fn check_product<T: Coordinate>(quantizer: &Quantizer, vectors: &Panel<T>, exactly: bool) {
    let (naive, context) = (NaiveProduct::of(quantizer), Context::default());
    let codes = quantizer.encode(&context, vectors).unwrap();
    let chunks = quantizer.code_bytes();
    for row in 0..vectors.rows() {
        let table = naive.table(&exact(vectors, row));
        for (chunk, distances) in table.iter().enumerate() {
            let code = usize::from(codes[row * chunks + chunk]);
            let least = distances.iter().copied().reduce(f64::min).unwrap();
            let first = distances.iter().position(|&distance| distance == least).unwrap();
            let size = 1e-5 * (least + dot(&exact(vectors, row), &exact(vectors, row)));
            assert!(
                if exactly { code == first } else { distances[code] <= least + size },
                "{row} {chunk} {code} {first}"
            );
        }
    }
    let mut random = Random::new(3, "vertices");
    let vertices: Vec<u32> = (0..100).map(|_| random.below(vectors.rows() as u64) as u32).collect();
    let (mut table, mut out) = (Table::default(), vec![f32::NAN; vertices.len()]);
    for query in 0..vectors.rows().min(5) {
        let expected = naive.table(&exact(vectors, query));
        quantizer.fill_table(context.kernel, vectors.row(query), &mut table);
        quantizer.distances(context.kernel, &table, &codes, &vertices, &mut out);
        for (&vertex, &distance) in vertices.iter().zip(&out) {
            let code = &codes[vertex as usize * chunks..][..chunks];
            let sum: f64 = expected.iter().zip(code).map(|(entries, &code)| entries[usize::from(code)]).sum();
            assert!(
                (f64::from(distance) - sum).abs() <= if exactly { 0.0 } else { 1e-5 * sum + 1e-3 },
                "{distance} {sum}"
            );
            assert_eq!(distance.to_bits(), quantizer.distance(context.kernel, &table, code).to_bits());
        }
    }
}

#[test]
fn product_codes_select_nearest_centroids_and_tables_distances() {
    for (dimensions, chunks) in [(1, 1), (7, 7), (10, 4), (33, 5), (48, 16), (100, 9)] {
        let quantizer = train(&vectors(2_000, dimensions, dimensions, 1), chunks);
        assert_eq!((quantizer.dimensions(), quantizer.code_bytes()), (dimensions, chunks));
        check_product(&quantizer, &vectors(1_500, dimensions, dimensions, 2), false);
        let bytes = small_bytes(2_000, dimensions, 3);
        check_product(&train(&as_floats(&bytes), chunks), &bytes, false);
    }
    let hidden = vectors(3_000, 32, 5, 1);
    let quantizer = train(&hidden, 4);
    assert_eq!(quantizer.to_string(), "product, rotated");
    check_product(&quantizer, &vectors(500, 32, 5, 2), false);
}

/// Few points get one centroid each. If several centroids are equally near, the first one is used.
#[test]
fn ties_select_the_lowest_centroid_and_few_vectors_are_exact() {
    for rows in [1, 2, 100, 256] {
        // Two values in two dimensions: principal axes cannot reduce the error, which is zero.
        let mut bytes = Panel::<u8>::zeroed(rows, 4);
        (0..rows).for_each(|row| bytes.row_mut(row).copy_from_slice(&[(row % 3) as u8, 5, 200, (row / 2 % 2) as u8]));
        let quantizer = train(&as_floats(&bytes), 2);
        assert_eq!(quantizer.to_string(), "product");
        check_product(&quantizer, &bytes, true);
        let (context, mut table) = (Context::default(), Table::default());
        let codes = quantizer.encode(&context, &bytes).unwrap();
        for (row, code) in codes.chunks(2).enumerate() {
            quantizer.fill_table(context.kernel, bytes.row(row), &mut table);
            assert_eq!(quantizer.distance(context.kernel, &table, code), 0.0);
        }
    }
}

#[test]
fn equal_vectors_have_one_code_at_distance_zero() {
    let mut equal = Panel::<f32>::zeroed(600, 12);
    (0..600).for_each(|row| equal.row_mut(row).fill(0.1));
    let (context, mut table) = (Context::default(), Table::default());
    let quantizer = train(&equal, 6);
    let codes = quantizer.encode(&context, &equal).unwrap();
    assert!(codes.chunks(quantizer.code_bytes()).all(|code| code == &codes[..quantizer.code_bytes()]));
    quantizer.fill_table(context.kernel, equal.row(0), &mut table);
    assert_eq!(quantizer.distance(context.kernel, &table, &codes[..quantizer.code_bytes()]), 0.0);
}

/// More centroids or bytes never increase the error.
#[test]
fn more_code_bytes_reduce_the_error() {
    let (sample, others, context) = (vectors(4_000, 24, 24, 1), vectors(300, 24, 24, 2), Context::default());
    let error = |bytes: usize| {
        let quantizer = train(&sample, bytes);
        let (codes, mut table) = (quantizer.encode(&context, &others).unwrap(), Table::default());
        let mut sum = 0.0;
        for query in 0..others.rows() {
            quantizer.fill_table(context.kernel, others.row(query), &mut table);
            for (row, code) in codes.chunks(quantizer.code_bytes()).enumerate() {
                let truth = squared(&exact(&others, query), &exact(&others, row));
                sum += (f64::from(quantizer.distance(context.kernel, &table, code)) - truth).powi(2);
            }
        }
        sum.sqrt() / others.rows() as f64
    };
    let errors = [6, 10, 16].map(error);
    assert!(errors[0] > 1.3 * errors[1] && errors[1] > 1.3 * errors[2], "{errors:?}");
}

#[test]
fn results_do_not_depend_on_threads_or_kernels() {
    let (sample, others) = (vectors(3_000, 21, 6, 1), vectors(2_500, 21, 6, 2));
    let results: Vec<_> = Kernel::available()
        .into_iter()
        .flat_map(|kernel| [1, 3].map(|threads| (kernel, threads)))
        .map(|(kernel, threads)| {
            let mut context = Context::default();
            (context.kernel, context.threads) = (kernel, threads);
            let quantizer = Quantizer::train(&context, &sample, 7, 5).unwrap();
            let codes = quantizer.encode(&context, &others).unwrap();
            let (mut table, mut out) = (Table::default(), vec![0.0; 2_500]);
            quantizer.fill_table(context.kernel, others.row(3), &mut table);
            let vertices: Vec<u32> = (0..2_500).collect();
            quantizer.distances(context.kernel, &table, &codes, &vertices, &mut out);
            (quantizer.to_bytes(), codes, out.into_iter().map(f32::to_bits).collect::<Vec<_>>())
        })
        .collect();
    assert!(results.iter().all(|result| result == &results[0]));
    assert_ne!(results[0].0, Quantizer::train(&Context::default(), &sample, 7, 6).unwrap().to_bytes());
}

#[test]
fn invalid_quantizer_options_are_refused_with_a_message() {
    let (context, sample) = (Context::default(), vectors(20, 10, 10, 1));
    let refused = |sample: &Panel<f32>, bytes| {
        let error = Quantizer::train(&context, sample, bytes, 1).err().unwrap();
        (error.kind(), error.to_string())
    };
    for (bytes, words) in [
        (0, "product codes of 0 bytes for vectors of 10 dimensions; give 1 to 10 bytes"),
        (11, "product codes of 11 bytes for vectors of 10 dimensions; give 1 to 10 bytes"),
    ] {
        assert_eq!(refused(&sample, bytes), (ErrorKind::Option, words.to_owned()));
    }
    // Too wide for principal axes.
    assert_eq!(train(&Panel::zeroed(1, 2_049), 64).to_string(), "product");
    assert_eq!(refused(&Panel::zeroed(0, 10), 2).0, ErrorKind::Input);
    let small = Context::default().with_memory(19_000_000);
    let sample = vectors(20_000, 32, 32, 1);
    let error = Quantizer::train(&small, &sample, 8, 1).err().unwrap();
    assert_eq!(error.kind(), ErrorKind::Budget, "{error}");
}

/// Extreme vectors get codes too, if not good ones.
#[test]
fn extreme_vectors_can_be_encoded() {
    let mut sample = vectors(300, 6, 6, 1);
    for (row, x) in [f32::MAX, f32::MIN, 1e-45, 0.0, 1e30].into_iter().enumerate() {
        sample.row_mut(row).fill(x);
    }
    let (context, mut table) = (Context::default(), Table::default());
    let quantizer = train(&sample, 6);
    let codes = quantizer.encode(&context, &sample).unwrap();
    quantizer.fill_table(context.kernel, sample.row(0), &mut table);
    quantizer.distances(context.kernel, &table, &codes, &[0, 1, 299], &mut [0.0; 3]);
    Quantizer::from_bytes(&quantizer.to_bytes()).unwrap();
}

#[test]
fn quantizers_round_trip() {
    let (context, others) = (Context::default(), vectors(50, 13, 4, 2));
    for hidden in [13, 4] {
        let quantizer = train(&vectors(500, 13, hidden, 1), 6);
        let bytes = quantizer.to_bytes();
        let again = Quantizer::from_bytes(&bytes).unwrap();
        assert_eq!((again.to_bytes(), again.bytes()), (bytes, quantizer.bytes()));
        assert_eq!(again.encode(&context, &others).unwrap(), quantizer.encode(&context, &others).unwrap());
    }
}

/// Bytes that were truncated, extended or changed are refused, or they give a quantizer that works.
#[test]
fn damaged_quantizer_bytes_do_not_panic() {
    let (mut random, context, others) = (Random::new(4, "damage"), Context::default(), vectors(20, 9, 9, 2));
    for hidden in [9, 3] {
        let bytes = train(&vectors(40, 9, hidden, 1), 5).to_bytes();
        for length in 0..bytes.len() {
            let error = Quantizer::from_bytes(&bytes[..length]).err().unwrap();
            assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
        }
        assert!(Quantizer::from_bytes(&[&bytes[..], &[0]].concat()).is_err());
        for case in 0..2_000 {
            let mut damaged = bytes.clone();
            for _ in 0..=random.below(3) {
                // Half of the damage is in the counts.
                let end = if case % 2 == 0 { 24.min(bytes.len()) } else { bytes.len() };
                damaged[random.below(end as u64) as usize] = random.below(256) as u8;
            }
            let Ok(quantizer) = Quantizer::from_bytes(&damaged) else { continue };
            let codes: Vec<u8> = (0..8 * quantizer.code_bytes()).map(|_| random.below(256) as u8).collect();
            if quantizer.dimensions() == 9 {
                let mut table = Table::default();
                quantizer.fill_table(context.kernel, others.row(0), &mut table);
                quantizer.distances(context.kernel, &table, &codes, &[7, 0], &mut [0.0; 2]);
                quantizer.encode(&context, &others).unwrap();
            }
        }
    }
}
