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

/// Vectors as they are stored; halves as the equal floats, since decisions would convert them again and again.
enum Exact {
    Floats { values: Vec<f32>, squared_norms: Vec<f64> },
    Integers { element: Element, stored: Vec<u8>, squared_norms: Vec<f64> },
}

impl Exact {
    fn new(kernel: Kernel, vectors: VectorType, stored: &[u8]) -> Self {
        let values = match vectors.element {
            Element::F16 => halves_as_floats(stored),
            Element::F32 => stored.as_chunks().0.iter().map(|&bytes| f32::from_le_bytes(bytes)).collect(),
            element => {
                let squared_norms = squared_norms(vectors, stored);
                return Self::Integers { element, stored: stored.to_vec(), squared_norms };
            }
        };
        let squared_norms =
            values.chunks_exact(vectors.dimensions).map(|vector| kernel.dot_wide(vector, vector)).collect();
        Self::Floats { values, squared_norms }
    }

    /// Bytes that so many vectors take, and as many again while halves become floats.
    fn memory_bytes(rows: u64, vectors: VectorType) -> u64 {
        let wider = if vectors.element == Element::F16 { 4 } else { 1 };
        rows * (wider * vectors.bytes() + size_of::<f64>()) as u64
    }

    /// Writes the vectors, divided by their lengths, to the rows of a panel.
    fn load<T: Coordinate>(&self, vectors: VectorType, panel: &mut Panel<T>) {
        match self {
            Self::Floats { values, squared_norms } => {
                let vectors = values.chunks_exact(vectors.dimensions).zip(squared_norms);
                for (row, (vector, squared_norm)) in vectors.enumerate() {
                    let length = squared_norm.sqrt();
                    let to = panel.row_mut(row).iter_mut().zip(vector);
                    to.for_each(|(to, &x)| *to = T::from_mean(f64::from(x) / length));
                }
            }
            Self::Integers { stored, .. } => T::load(vectors, Metric::Cosine, stored, panel),
        }
    }

    /// Decides a member and one of others by their cosine.
    fn decide(
        &self,
        kernel: Kernel,
        predicate: Predicate,
        dimensions: usize,
        (x, y): (u32, u32),
        other: &Self,
    ) -> Option<f32> {
        let (x, y) = (x as usize, y as usize);
        let at = |member: usize| member * dimensions..(member + 1) * dimensions;
        match (self, other) {
            (
                Self::Floats { values: a, squared_norms: a_norms },
                Self::Floats { values: b, squared_norms: b_norms },
            ) => {
                let (a, b, length) = (&a[at(x)], &b[at(y)], (a_norms[x] * b_norms[y]).sqrt());
                // The terms of the inner product add up to one length at most, and the lengths are off by half as much.
                let nearly = (kernel.dot_wide(a, b) / length, 2.0 * wide_error(dimensions));
                predicate.accept_near(nearly, || cosine_of_floats(a, b))
            }
            (
                Self::Integers { element, stored: a, squared_norms: a_norms },
                Self::Integers { stored: b, squared_norms: b_norms, .. },
            ) => predicate.accept(dot(*element, &a[at(x)], &b[at(y)]) / (a_norms[x] * b_norms[y]).sqrt()),
            _ => unreachable!("both are of stores of one type"),
        }
    }
}

impl<T: Coordinate> Members<T> {
    /// Takes vectors as stored, end to end.
    pub(crate) fn new(kernel: Kernel, vectors: VectorType, metric: Metric, stored: &[u8]) -> Self {
        let mut panel = Panel::zeroed(stored.len() / vectors.bytes(), vectors.dimensions);
        let exact = (metric == Metric::Cosine).then(|| Exact::new(kernel, vectors, stored));
        match &exact {
            Some(exact) => exact.load(vectors, &mut panel),
            None => T::load(vectors, metric, stored, &mut panel),
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
        decided.extend(pairs.iter().map(|&pair| match (&self.exact, &other.exact) {
            (Some(a), Some(b)) => a.decide(kernel, predicate, self.vectors.dimensions, pair, b),
            _ => {
                let (x, y) = (self.panel.row(pair.0 as usize), other.panel.row(pair.1 as usize));
                T::decide(kernel, predicate, x, y)
            }
        }));
    }
}
