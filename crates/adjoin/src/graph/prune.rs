//! RobustPrune (FreshDiskANN, Algorithm 3): chooses the out-neighbors of a vertex among many candidates.

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
    /// Least squared distance to the kept candidates that are nearer to the vertex; NaN if there are none.
    least: f64,
}

impl Open {
    /// Returns whether a kept candidate removes this one, with this factor of squared distances.
    fn is_removed<T: Coordinate>(&self, factor: f64) -> bool {
        // False while `least` is NaN: without a kept candidate, nothing is removed.
        factor * self.least <= self.candidate.squared::<T>()
    }
}

/// Candidates of a vertex, and the kept ones.
pub struct Pruner<T: Coordinate> {
    vertex: u32,
    pool: Vec<Candidate>,
    /// Candidates that may still be kept with some factor up to alpha, ascending.
    open: Vec<Open>,
    kept: Vec<Candidate>,
    /// Vertices being compared, and their distances; at the end, the kept vertices.
    vertices: Vec<u32>,
    distances: Vec<T::Distance>,
    degree: usize,
    /// The square of alpha, since distances are squared.
    alpha_squared: f64,
}

impl<T: Coordinate> Pruner<T> {
    /// Prunes by the degree and the alpha of a graph.
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

    /// Starts over with another vertex.
    pub fn begin(&mut self, vertex: u32) {
        self.vertex = vertex;
        self.pool.clear();
    }

    /// Adds candidates with known distances to the vertex.
    pub(super) fn add(&mut self, candidates: impl Iterator<Item = Candidate>) {
        self.pool.extend(candidates);
    }

    /// Adds candidates, and computes their distances.
    pub fn add_vertices(&mut self, vectors: Vectors<'_, T>, vertices: &[u32]) {
        self.distances.resize(vertices.len(), T::Distance::default());
        let x = vectors.panel.row(self.vertex as usize);
        vectors.kernel.one_to_some(x, vectors.panel, vertices, &mut self.distances);
        let candidates = vertices.iter().zip(&self.distances);
        self.pool.extend(candidates.map(|(&vertex, &distance)| Candidate::new::<T>(distance, vertex)));
    }

    /// Returns the out-neighbors of the vertex, nearest first, without the vertex itself, and at most as many as the
    /// degree.
    ///
    /// A candidate is left out if a nearer kept one is nearer to it, by alpha, than the vertex is. The paper's loop
    /// keeps candidates in order until there are enough. With an alpha above 1, near ones alone then fill the list.
    /// Therefore all candidates are tested with an alpha of 1 first, which keeps edges in all directions and of all
    /// lengths. Then the list is filled up with the configured alpha, as DiskANN's code does.
    pub fn prune(&mut self, vectors: Vectors<'_, T>) -> &[u32] {
        self.pool.retain(|candidate| candidate.vertex() != self.vertex);
        self.pool.sort_unstable();
        // Candidates from the walk and from the old neighbors overlap.
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

    /// Keeps candidates that no nearer one removes with this factor.
    fn keep(&mut self, vectors: Vectors<'_, T>, factor: f64) {
        let mut at = 0;
        while at < self.open.len() && self.kept.len() < self.degree {
            match self.open[at].is_removed::<T>(factor) {
                true => at += 1,
                false => self.take(vectors, at),
            }
        }
    }

    /// Keeps an open candidate, and compares the farther ones with it.
    fn take(&mut self, Vectors { kernel, panel }: Vectors<'_, T>, place: usize) {
        let taken = self.open[place].candidate;
        self.kept.push(taken);
        self.vertices.clear();
        self.vertices.extend(self.open[place + 1..].iter().map(|open| open.candidate.vertex()));
        self.distances.resize(self.vertices.len(), T::Distance::default());
        kernel.one_to_some(panel.row(taken.vertex() as usize), panel, &self.vertices, &mut self.distances);
        // The taken candidate is overwritten, and the ones that no factor up to alpha would keep are dropped for good.
        let mut left = place;
        for (other, &distance) in (place + 1..).zip(&self.distances) {
            let mut open = self.open[other];
            // Converted by way of the key, as the distances of candidates are.
            open.least = open.least.min(T::distance_of(T::distance_key(distance)));
            if !open.is_removed::<T>(self.alpha_squared) {
                self.open[left] = open;
                left += 1;
            }
        }
        self.open.truncate(left);
    }
}
