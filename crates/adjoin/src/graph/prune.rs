//! RobustPrune (FreshDiskANN, Algorithm 3): chooses the out-neighbors of a vertex from many candidates.

use adjoin_kernels::{Kernel, Panel};

use super::candidate::Candidate;
use super::options::GraphOptions;
use crate::base::geometry::Coordinate;

/// Vectors, and the kernel that compares them.
pub struct Vectors<'a, T> {
    /// The kernel.
    pub kernel: Kernel,
    /// The vectors.
    pub panel: &'a Panel<T>,
}

impl<T> Clone for Vectors<'_, T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Vectors<'_, T> {}

/// Key of [`OpenCandidates::least`] without a kept candidate. It is more than the key of any distance.
const NONE_KEPT: u32 = u32::MAX;

/// Candidates that may still be kept, nearest first. Distances are squared, and stored as keys
/// ([`Coordinate::distance_key`]). The parts of a candidate are in separate lists, which are quick to scan.
#[derive(Default)]
struct OpenCandidates {
    vertices: Vec<u32>,
    /// Distance of each candidate to the vertex.
    keys: Vec<u32>,
    /// Least distance of each candidate to a kept candidate that is nearer to the vertex.
    least: Vec<u32>,
}

impl OpenCandidates {
    /// Sets the candidates. None of them is kept yet.
    fn fill(&mut self, candidates: &[Candidate]) {
        let Self { vertices, keys, least } = self;
        vertices.clear();
        vertices.extend(candidates.iter().map(|candidate| candidate.vertex()));
        keys.clear();
        keys.extend(candidates.iter().map(|candidate| candidate.key()));
        least.clear();
        least.resize(candidates.len(), NONE_KEPT);
    }

    fn len(&self) -> usize {
        self.vertices.len()
    }

    /// Removes the candidate at a position, which is kept, and the farther candidates that it excludes with this factor.
    /// `distances` has its distances to all farther candidates.
    fn remove<T: Coordinate>(&mut self, at: usize, distances: &[T::Distance], factor: f64) {
        let count = self.len();
        let (vertices, keys, least) = (&mut self.vertices[..count], &mut self.keys[..count], &mut self.least[..count]);
        let mut left = at;
        for (other, &distance) in (at + 1..count).zip(distances) {
            let (key, nearest) = (keys[other], least[other].min(T::distance_key(distance)));
            // Each candidate is moved, so that no branch depends on the distances.
            (vertices[left], keys[left], least[left]) = (vertices[other], key, nearest);
            left += usize::from(!is_removed::<T>(nearest, key, factor));
        }
        [&mut self.vertices, &mut self.keys, &mut self.least].into_iter().for_each(|list| list.truncate(left));
    }
}

/// Returns whether a kept candidate excludes a candidate: whether the squared distance between the two, times `factor`, is
/// at most the squared distance of the candidate to the vertex. Both are keys.
fn is_removed<T: Coordinate>(least: u32, key: u32, factor: f64) -> bool {
    least != NONE_KEPT && factor * T::distance_of(least) <= T::distance_of(key)
}

/// Candidates of a vertex, and the kept ones among them.
pub struct Pruner<T: Coordinate> {
    vertex: u32,
    pool: Vec<Candidate>,
    /// Candidates that may still be kept with a factor of at most the square of alpha.
    open: OpenCandidates,
    kept: Vec<Candidate>,
    /// The result: the kept vertices, or all candidates.
    vertices: Vec<u32>,
    /// Distances of the vertices that are being compared.
    distances: Vec<T::Distance>,
    degree: usize,
    /// The square of alpha, since distances are squared.
    alpha_squared: f64,
}

impl<T: Coordinate> Pruner<T> {
    /// Creates a pruner with the degree and the alpha of `options`.
    pub fn new(options: &GraphOptions) -> Self {
        Self {
            vertex: 0,
            pool: Vec::new(),
            open: OpenCandidates::default(),
            kept: Vec::new(),
            vertices: Vec::new(),
            distances: Vec::new(),
            degree: options.degree,
            alpha_squared: options.alpha * options.alpha,
        }
    }

    /// Starts with another vertex, which has no candidates yet.
    pub fn begin(&mut self, vertex: u32) {
        self.vertex = vertex;
        self.pool.clear();
    }

    /// Adds candidates with known distances to the vertex.
    pub(super) fn add(&mut self, candidates: impl Iterator<Item = Candidate>) {
        self.pool.extend(candidates);
    }

    /// Adds candidates. Computes their distances to the vertex.
    pub fn add_vertices(&mut self, vectors: Vectors<'_, T>, vertices: &[u32]) {
        self.distances.resize(vertices.len(), T::Distance::default());
        let x = vectors.panel.row(self.vertex as usize);
        vectors.kernel.one_to_some(x, vectors.panel, vertices, &mut self.distances);
        let candidates = vertices.iter().zip(&self.distances);
        self.pool.extend(candidates.map(|(&vertex, &distance)| Candidate::new::<T>(distance, vertex)));
    }

    /// Chooses the out-neighbors of the vertex. Returns them nearest first. There are at most as many as the degree,
    /// and the vertex itself is not one of them.
    ///
    /// A candidate is left out if its distance to a kept candidate, times alpha, is at most its distance to the vertex.
    /// The algorithm of the paper keeps candidates, nearest first, until there are enough. If alpha is above 1, near
    /// candidates alone may fill the list. Therefore all candidates are first tested with an alpha of 1, which keeps
    /// edges in all directions and of all lengths. Then the list is filled up with the configured alpha, as in
    /// DiskANN's code.
    pub fn prune(&mut self, vectors: Vectors<'_, T>) -> &[u32] {
        self.pool.retain(|candidate| candidate.vertex() != self.vertex);
        self.pool.sort_unstable();
        // A candidate may have been added twice, for example from the walk and from the old neighbors.
        self.pool.dedup();
        self.open.fill(&self.pool);
        self.kept.clear();
        self.keep(vectors, 1.0);
        self.keep(vectors, self.alpha_squared);
        self.kept.sort_unstable();
        self.vertices.clear();
        self.vertices.extend(self.kept.iter().map(|candidate| candidate.vertex()));
        &self.vertices
    }

    /// Returns all candidates as vertices, nearest first.
    pub(crate) fn sorted(&mut self) -> &[u32] {
        self.pool.sort_unstable();
        self.vertices.clear();
        self.vertices.extend(self.pool.iter().map(|candidate| candidate.vertex()));
        &self.vertices
    }

    /// Keeps the open candidates that no kept candidate excludes with this factor, until there are enough.
    fn keep(&mut self, vectors: Vectors<'_, T>, factor: f64) {
        let mut at = 0;
        while at < self.open.len() && self.kept.len() < self.degree {
            match is_removed::<T>(self.open.least[at], self.open.keys[at], factor) {
                true => at += 1,
                false => self.take(vectors, at),
            }
        }
    }

    /// Keeps an open candidate. Compares the farther candidates with it, and drops those that it excludes even with the
    /// configured alpha.
    fn take(&mut self, Vectors { kernel, panel }: Vectors<'_, T>, at: usize) {
        let taken = self.open.vertices[at];
        self.kept.push(Candidate::of_key(self.open.keys[at], taken));
        let farther = &self.open.vertices[at + 1..];
        self.distances.resize(farther.len(), T::Distance::default());
        // The candidates were compared with the vertex or with another kept one just before.
        kernel.one_to_some_cached(panel.row(taken as usize), panel, farther, &mut self.distances);
        self.open.remove::<T>(at, &self.distances, self.alpha_squared);
    }
}
