//! Stored vectors as coordinates, ready for the kernels, and what decides their pairs.

use std::sync::OnceLock;

use adjoin_kernels::{Kernel, Panel, wide_error};

use super::codes::{Codes, Coding};
use crate::geometry::Coordinate;
use crate::options::{Element, Metric, VectorType};
use crate::predicate::{Predicate, cosine_of_floats, dot, halves_as_floats, squared_norms};

/// Vectors as coordinates, and what the last decision needs beside them.
pub(crate) struct Members<T> {
    pub(crate) panel: Panel<T>,
    /// Under cosine, whose coordinates are rounded to unit length.
    exact: Option<Exact>,
    /// Made when they are first asked for.
    codes: OnceLock<Codes>,
    vectors: VectorType,
}

/// Vectors as they are stored, with their squared lengths.
struct Exact {
    values: Values,
    squared_norms: Vec<f64>,
}

enum Values {
    Floats(Vec<f32>),
    /// Of any other type.
    Stored(Element, Vec<u8>),
}

/// Vectors as they are stored, as floats.
struct AsFloats<'a> {
    values: &'a Values,
    dimensions: usize,
    /// The last one that was converted.
    converted: Option<u32>,
    floats: Vec<f32>,
}

impl AsFloats<'_> {
    fn member(&mut self, member: u32) -> &[f32] {
        let at = member as usize * self.dimensions;
        match self.values {
            Values::Floats(values) => &values[at..at + self.dimensions],
            Values::Stored(_, stored) => {
                if self.converted.replace(member) != Some(member) {
                    self.floats.resize(self.dimensions, 0.0);
                    halves_as_floats(&stored[2 * at..2 * (at + self.dimensions)], &mut self.floats);
                }
                &self.floats
            }
        }
    }
}

impl Exact {
    /// Takes vectors as stored, and writes them, divided by their lengths, to the rows of a panel.
    fn load<T: Coordinate>(kernel: Kernel, vectors: VectorType, stored: &[u8], panel: &mut Panel<T>) -> Self {
        let (values, squared_norms) = match vectors.element {
            Element::F16 => {
                let mut floats = vec![0.0; vectors.dimensions];
                let load = |(row, vector): (usize, &[u8])| {
                    halves_as_floats(vector, &mut floats);
                    load_floats(kernel, &floats, panel.row_mut(row))
                };
                let squared_norms = stored.chunks_exact(vectors.bytes()).enumerate().map(load).collect();
                (Values::Stored(vectors.element, stored.to_vec()), squared_norms)
            }
            Element::F32 => {
                let floats: Vec<f32> = stored.as_chunks().0.iter().map(|&bytes| f32::from_le_bytes(bytes)).collect();
                let rows = floats.chunks_exact(vectors.dimensions).enumerate();
                let squared_norms = rows.map(|(row, x)| load_floats(kernel, x, panel.row_mut(row))).collect();
                (Values::Floats(floats), squared_norms)
            }
            element => {
                T::load(vectors, Metric::Cosine, stored, panel);
                (Values::Stored(element, stored.to_vec()), squared_norms(vectors, stored))
            }
        };
        Self { values, squared_norms }
    }

    /// Bytes that so many vectors take.
    fn memory_bytes(rows: u64, vectors: VectorType) -> u64 {
        rows * (vectors.bytes() + size_of::<f64>()) as u64
    }

    fn as_floats(&self, dimensions: usize) -> AsFloats<'_> {
        AsFloats { values: &self.values, dimensions, converted: None, floats: Vec::new() }
    }

    /// Decides pairs of members by their cosine, into `decided`.
    fn decide(
        &self,
        kernel: Kernel,
        predicate: Predicate,
        dimensions: usize,
        (pairs, other): (&[(u32, u32)], &Self),
        decided: &mut Vec<Option<f32>>,
    ) {
        let lengths = |(x, y): (u32, u32)| self.squared_norms[x as usize] * other.squared_norms[y as usize];
        if let (Values::Stored(Element::U8 | Element::I8, a), Values::Stored(element, b)) =
            (&self.values, &other.values)
        {
            let at = |member: u32| member as usize * dimensions..(member as usize + 1) * dimensions;
            let value = |pair: (u32, u32)| dot(*element, &a[at(pair.0)], &b[at(pair.1)]) / lengths(pair).sqrt();
            return decided.extend(pairs.iter().map(|&pair| predicate.accept(value(pair))));
        }
        let (mut a, mut b) = (self.as_floats(dimensions), other.as_floats(dimensions));
        decided.extend(pairs.iter().map(|&pair| {
            let (a, b, length) = (a.member(pair.0), b.member(pair.1), lengths(pair).sqrt());
            // The terms of the inner product add up to one length at most, and the lengths are off by half as much.
            let nearly = (kernel.dot_wide(a, b) / length, 2.0 * wide_error(dimensions));
            predicate.accept_near(nearly, || cosine_of_floats(a, b))
        }));
    }
}

/// Writes a vector divided by its length; returns its squared length.
fn load_floats<T: Coordinate>(kernel: Kernel, vector: &[f32], to: &mut [T]) -> f64 {
    let squared_norm = kernel.dot_wide(vector, vector);
    let length = squared_norm.sqrt();
    to.iter_mut().zip(vector).for_each(|(to, &x)| *to = T::from_mean(f64::from(x) / length));
    squared_norm
}

impl<T: Coordinate> Members<T> {
    /// Takes vectors as stored, end to end.
    pub(crate) fn new(kernel: Kernel, vectors: VectorType, metric: Metric, stored: &[u8]) -> Self {
        let mut panel = Panel::zeroed(stored.len() / vectors.bytes(), vectors.dimensions);
        let exact = (metric == Metric::Cosine).then(|| Exact::load(kernel, vectors, stored, &mut panel));
        if exact.is_none() {
            T::load(vectors, metric, stored, &mut panel);
        }
        Self { panel, exact, codes: OnceLock::new(), vectors }
    }

    /// Bytes that so many vectors take in memory.
    pub(crate) fn memory_bytes(rows: u64, vectors: VectorType, metric: Metric) -> u64 {
        let exact = if metric == Metric::Cosine { Exact::memory_bytes(rows, vectors) } else { 0 };
        let codes = if T::is_float() { Codes::memory_bytes(rows as usize, vectors.dimensions) } else { 0 };
        Panel::<T>::bytes_for(rows as usize, vectors.dimensions) + exact + codes
    }

    /// The vectors rounded; always with the same coding.
    pub(crate) fn codes(&self, coding: &Coding) -> &Codes {
        self.codes.get_or_init(|| coding.codes(&self.panel))
    }

    pub(crate) fn len(&self) -> usize {
        self.panel.rows()
    }

    /// Decides pairs (member, member of `other`): the distances or similarities of those that belong to the result. Under
    /// L2, coordinates are the stored elements, or as far from each other.
    pub(crate) fn decide(
        &self,
        kernel: Kernel,
        predicate: Predicate,
        pairs: &[(u32, u32)],
        other: &Self,
        decided: &mut Vec<Option<f32>>,
    ) {
        decided.clear();
        match (&self.exact, &other.exact) {
            (Some(a), Some(b)) => a.decide(kernel, predicate, self.vectors.dimensions, (pairs, b), decided),
            _ => {
                decided.extend(pairs.iter().map(|&(x, y)| {
                    T::decide(kernel, predicate, self.panel.row(x as usize), other.panel.row(y as usize))
                }))
            }
        }
    }
}
