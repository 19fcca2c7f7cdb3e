//! Vectors as coordinates for the kernels, and exact decisions about pairs of vectors.

use adjoin_device::MappedBlocks;
use adjoin_kernels::{Kernel, Panel, near_error, wide_error};

use crate::base::geometry::{Converted, Coordinate, Space, Threshold, as_floats};
use crate::base::options::{Element, Metric, VectorType};
use crate::base::predicate::{Estimate, Predicate, cosine_of_floats, dot_of_floats};

/// Vectors as coordinates, with the data for exact decisions.
pub(crate) struct Members<T> {
    pub(crate) panel: Panel<T>,
    /// Upper bounds on the distance between each vector and its rounded form, in coordinates. Empty if no vector was
    /// rounded.
    residuals: Vec<f32>,
    /// The largest of them. Computed once, since limits need it for each pair of buckets and each nearer hit.
    residual_max: f64,
    /// Stored vectors. `None` unless coordinates were rounded to unit length or to bytes.
    exact: Option<Exact>,
}

/// Vectors as stored. For cosine and inner products, also their squared lengths.
struct Exact {
    values: Values,
    squared_norms: Vec<f64>,
    dimensions: usize,
}

enum Values {
    Floats(Vec<f32>),
    /// All other types.
    Stored(Element, Vec<u8>),
}

/// Whether a decision also computes the value of a pair.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PairDetail {
    /// Decides whether a pair belongs to the result, and computes its value if it does.
    Values,
    /// Decides only whether a pair belongs to the result. Values may be NaN.
    Members,
}

/// Decides whether pairs of vectors belong to the result.
#[derive(Clone, Copy)]
pub(crate) struct Decider {
    pub(crate) kernel: Kernel,
    pub(crate) predicate: Predicate,
}

/// Stored vectors, converted to floats on demand.
struct AsFloats<'a> {
    kernel: Kernel,
    values: &'a Values,
    dimensions: usize,
    /// The member converted last.
    converted: Option<u32>,
    floats: Vec<f32>,
}

impl AsFloats<'_> {
    fn member(&mut self, member: u32) -> &[f32] {
        let at = member as usize * self.dimensions;
        match self.values {
            Values::Floats(values) => &values[at..at + self.dimensions],
            Values::Stored(element, stored) => {
                // Consecutive pairs often share a member, which is then converted once.
                if self.converted.replace(member) != Some(member) {
                    self.floats.resize(self.dimensions, 0.0);
                    let bytes = element.bytes();
                    let stored = &stored[at * bytes..(at + self.dimensions) * bytes];
                    as_floats(self.kernel, *element, stored, &mut self.floats);
                }
                &self.floats
            }
        }
    }
}

impl Exact {
    fn new(kernel: Kernel, vectors: VectorType, stored: &[u8], squared_norms: Vec<f64>) -> Self {
        let values = match vectors.element {
            Element::F32 => {
                let mut floats = vec![0.0; stored.len() / vectors.element.bytes()];
                as_floats(kernel, vectors.element, stored, &mut floats);
                Values::Floats(floats)
            }
            // Other types take less memory in their stored form. They are converted only for the few pairs that are
            // decided exactly.
            element => Values::Stored(element, stored.to_vec()),
        };
        Self { values, squared_norms, dimensions: vectors.dimensions }
    }

    /// Returns the bytes of `rows` vectors.
    fn memory_bytes(rows: u64, vectors: VectorType) -> u64 {
        [vectors.bytes(), size_of::<f64>()].map(|bytes| MappedBlocks::block_bytes(rows * bytes as u64)).iter().sum()
    }

    fn as_floats(&self, kernel: Kernel) -> AsFloats<'_> {
        AsFloats { kernel, values: &self.values, dimensions: self.dimensions, converted: None, floats: Vec::new() }
    }

    /// Computes nearnesses for [`Members::each_nearness`].
    fn each_nearness(
        &self,
        mut decider: Decider,
        x: u32,
        other: &Self,
        ys: impl Iterator<Item = u32>,
        mut take: impl FnMut(u32, f64) -> Predicate,
    ) {
        let (mut a, mut b) = (self.as_floats(decider.kernel), other.as_floats(decider.kernel));
        let pair_length = self.pair_length(decider.predicate.metric(), other);
        for y in ys {
            if let Some(value) = decider.decide_floats(a.member(x), b.member(y), pair_length(x, y)) {
                decider.predicate = take(y, decider.predicate.nearness_of(value));
            }
        }
    }

    /// Returns the product of the lengths of two members, for decisions about cosines and inner products.
    fn pair_length(&self, metric: Metric, other: &Self) -> impl Fn(u32, u32) -> f64 {
        move |x, y| match metric {
            Metric::L2 => 1.0,
            Metric::Cosine | Metric::Ip => (self.squared_norms[x as usize] * other.squared_norms[y as usize]).sqrt(),
        }
    }

    /// Decides pairs of members by their stored values, and appends the results to `decided`.
    fn decide(
        &self,
        decider: Decider,
        detail: PairDetail,
        pairs: &[(u32, u32)],
        other: &Self,
        decided: &mut Vec<Option<f32>>,
    ) {
        let Decider { kernel, predicate } = decider;
        let pair_length = self.pair_length(predicate.metric(), other);
        let (mut a, mut b) = (self.as_floats(kernel), other.as_floats(kernel));
        decided.extend(pairs.iter().map(|&pair| {
            let (a, b, length) = (a.member(pair.0), b.member(pair.1), pair_length(pair.0, pair.1));
            // Sums in f32 decide most pairs. Sums in f64 are computed only for the remaining pairs, and for pairs
            // whose values are needed.
            match predicate.accepts_near(decider.near(a, b, length)) {
                Some(false) => None,
                Some(true) if detail == PairDetail::Members => Some(f32::NAN),
                _ => decider.decide_floats(a, b, length),
            }
        }));
    }
}

impl Decider {
    /// Estimates the squared distance, the cosine or the inner product of two vectors, with sums in f32. `length` is
    /// the product of their lengths, which L2 ignores.
    fn near(self, a: &[f32], b: &[f32], length: f64) -> Estimate {
        let Self { kernel, predicate } = self;
        let error = near_error(a.len());
        // Products below the normal range of f32 lose all relative precision, so they get an absolute bound.
        let underflow = a.len() as f64 * f64::from(f32::MIN_POSITIVE);
        match predicate {
            Predicate::L2 { .. } => {
                let squared = f64::from(kernel.squared_distance_near(a, b));
                Estimate { value: squared, error: squared * error + underflow }
            }
            // The terms of the inner product add up to at most `length` in absolute value, and the error of `length`
            // is small.
            Predicate::Cosine { .. } => Estimate {
                value: f64::from(kernel.dot_near(a, b)) / length,
                error: error + underflow / length + wide_error(a.len()),
            },
            Predicate::InnerProduct { .. } => Estimate {
                value: kernel.dot_near(a, b).into(),
                error: (error + wide_error(a.len())) * length + underflow,
            },
        }
    }

    /// Decides a pair with sums in f64.
    fn decide_floats(self, a: &[f32], b: &[f32], length: f64) -> Option<f32> {
        let Self { kernel, predicate } = self;
        match predicate {
            Predicate::L2 { .. } => f32::decide(kernel, predicate, a, b),
            // The terms of the inner product add up to at most `length` in absolute value. The relative error of
            // `length` is half of that of the sum.
            Predicate::Cosine { .. } => {
                let nearly = Estimate { value: kernel.dot_wide(a, b) / length, error: 2.0 * wide_error(a.len()) };
                predicate.accept_near(nearly, || cosine_of_floats(a, b))
            }
            Predicate::InnerProduct { .. } => {
                let nearly = Estimate { value: kernel.dot_wide(a, b), error: 2.0 * wide_error(a.len()) * length };
                predicate.accept_near(nearly, || dot_of_floats(a, b))
            }
        }
    }
}

impl<T: Coordinate> Members<T> {
    /// Converts stored vectors, given end to end.
    pub(crate) fn new(kernel: Kernel, space: Space<'_>, stored: &[u8]) -> Self {
        let mut panel = Panel::zeroed(stored.len() / space.vectors.bytes(), space.dimensions());
        let Converted { squared_norms, residuals } = T::load(space, kernel, stored, &mut panel);
        let exact = space.keeps_stored().then(|| Exact::new(kernel, space.vectors, stored, squared_norms));
        let residual_max = residuals.iter().copied().fold(0.0, f32::max).into();
        Self { panel, residuals, residual_max, exact }
    }

    /// Returns the memory in bytes of `rows` vectors.
    pub(crate) fn memory_bytes(rows: u64, space: Space<'_>) -> u64 {
        // If floats are compared as bytes, their stored values are also held, even if `space` has no coding yet.
        let rounded = space.keeps_stored() || (!space.vectors.element.is_integer() && !T::is_float());
        let exact = if rounded { Exact::memory_bytes(rows, space.vectors) } else { 0 };
        let residuals = if rounded { MappedBlocks::block_bytes(rows * size_of::<f32>() as u64) } else { 0 };
        MappedBlocks::block_bytes(Panel::<T>::bytes_for(rows as usize, space.dimensions())) + exact + residuals
    }

    /// Returns an upper bound on the distance between a member and its rounded form, in coordinates.
    pub(crate) fn residual_of(&self, member: u32) -> f64 {
        self.residuals.get(member as usize).copied().unwrap_or(0.0).into()
    }

    /// Returns the largest residual ([`Self::residual_of`]) of some members. A few members may have residuals that are
    /// many times as large as those of all others, since a coding clips coordinates that are out of its range.
    pub(crate) fn residual_among(&self, members: &[u32]) -> f64 {
        members.iter().map(|&member| self.residual_of(member)).fold(0.0, f64::max)
    }

    /// Returns the largest residual of all members.
    pub(crate) fn residual_max(&self) -> f64 {
        self.residual_max
    }

    /// Returns the threshold for pairs of a query and rows of `space`, up to a nearness ([`Predicate::up_to`]). The
    /// query is number `query` of these members.
    pub(crate) fn threshold(&self, query: u32, nearness: f64, space: Space<'_>) -> Threshold {
        let norms = self.exact.as_ref().map(|exact| &exact.squared_norms);
        let length = norms.and_then(|norms| norms.get(query as usize)).map_or(1.0, |squared| squared.sqrt());
        Threshold::up_to(nearness, space, length)
    }

    pub(crate) fn len(&self) -> usize {
        self.panel.rows()
    }

    /// Returns whether distances of coordinates equal distances of the vectors to the last bit.
    pub(crate) fn are_exact(&self) -> bool {
        self.exact.is_none() && !T::is_float()
    }

    /// Decides pairs of member `x` and each member in `ys` of `other`. Passes the members in the result to `take`,
    /// with the nearness of the pair ([`Predicate::up_to`]). `take` returns the predicate for the remaining members.
    pub(crate) fn each_nearness(
        &self,
        decider: Decider,
        x: u32,
        other: &Self,
        ys: impl Iterator<Item = u32>,
        mut take: impl FnMut(u32, f64) -> Predicate,
    ) {
        match (&self.exact, &other.exact) {
            // Stored vectors are held only if coordinates were rounded. Otherwise, coordinates are exact.
            (Some(a), Some(b)) => a.each_nearness(decider, x, b, ys, take),
            _ => {
                let (x, mut predicate) = (self.panel.row(x as usize), decider.predicate);
                for y in ys {
                    if let Some(nearness) = T::nearness(decider.kernel, predicate, x, other.panel.row(y as usize)) {
                        predicate = take(y, nearness);
                    }
                }
            }
        }
    }

    /// Decides a pair of member `x` and member `y` of `other` by L2, if the distance of their codes suffices for that.
    pub(crate) fn decide_by_codes(
        &self,
        kernel: Kernel,
        threshold: &Threshold,
        x: u32,
        other: &Self,
        y: u32,
    ) -> Option<bool> {
        if self.residuals.is_empty() {
            return None;
        }
        let squared = kernel.distance(self.panel.row(x as usize), other.panel.row(y as usize));
        threshold.decides(T::at_most(squared, threshold.dimensions), self.residual_of(x) + other.residual_of(y))
    }

    /// Decides pairs of a member and a member of `other`. For each pair, `decided` gets `None` if it is not in the
    /// result, otherwise its distance or similarity. If `detail` asks for no values, the number is arbitrary. If
    /// nothing was rounded, the decision uses coordinates, which have the distances of the stored vectors.
    pub(crate) fn decide(
        &self,
        decider: Decider,
        detail: PairDetail,
        pairs: &[(u32, u32)],
        other: &Self,
        decided: &mut Vec<Option<f32>>,
    ) {
        decided.clear();
        match (&self.exact, &other.exact) {
            (Some(a), Some(b)) => a.decide(decider, detail, pairs, b, decided),
            _ => {
                let Decider { kernel, predicate } = decider;
                decided.extend(pairs.iter().map(|&(x, y)| {
                    T::decide(kernel, predicate, self.panel.row(x as usize), other.panel.row(y as usize))
                }))
            }
        }
    }
}
