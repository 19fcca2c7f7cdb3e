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

/// A candidate that may be kept.
#[derive(Debug, Clone, Copy)]
struct Open {
    candidate: Candidate,
    /// Least squared distance to a kept candidate that is nearer to the vertex; NaN if there is none.
    least: f64,
}

impl Open {
    /// Returns whether a kept candidate excludes this candidate: whether the squared distance between the two, times
    /// `factor`, is at most the squared distance of this candidate to the vertex.
    fn is_removed<T: Coordinate>(&self, factor: f64) -> bool {
        // This is false as long as `least` is NaN, that is, if there is no kept candidate.
        factor * self.least <= self.candidate.squared::<T>()
    }
}

/// Candidates of a vertex, and the kept ones among them.
pub struct Pruner<T: Coordinate> {
    vertex: u32,
    pool: Vec<Candidate>,
    /// Candidates that may still be kept with a factor of at most the square of alpha, nearest first.
    open: Vec<Open>,
    kept: Vec<Candidate>,
    /// Vertices that are being compared. At the end, the kept vertices.
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
            open: Vec::new(),
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
        self.open.clear();
        self.open.extend(self.pool.iter().map(|&candidate| Open { candidate, least: f64::NAN }));
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
            match self.open[at].is_removed::<T>(factor) {
                true => at += 1,
                false => self.take(vectors, at),
            }
        }
    }

    /// Keeps an open candidate. Compares the farther candidates with it, and drops those that it excludes.
    fn take(&mut self, Vectors { kernel, panel }: Vectors<'_, T>, place: usize) {
        let taken = self.open[place].candidate;
        self.kept.push(taken);
        self.vertices.clear();
        self.vertices.extend(self.open[place + 1..].iter().map(|open| open.candidate.vertex()));
        self.distances.resize(self.vertices.len(), T::Distance::default());
        kernel.one_to_some(panel.row(taken.vertex() as usize), panel, &self.vertices, &mut self.distances);
        // The taken candidate is overwritten. Candidates that are excluded even with the configured alpha are dropped.
        let mut left = place;
        for (other, &distance) in (place + 1..).zip(&self.distances) {
            let mut open = self.open[other];
            // The distance is converted to a key and back, since the distances of candidates are stored as keys.
            open.least = open.least.min(T::distance_of(T::distance_key(distance)));
            if !open.is_removed::<T>(self.alpha_squared) {
                self.open[left] = open;
                left += 1;
            }
        }
        self.open.truncate(left);
    }
}
