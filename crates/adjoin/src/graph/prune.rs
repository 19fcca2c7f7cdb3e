//! RobustPrune (FreshDiskANN, Algorithm 3): which of many candidates become the out-neighbours of a vertex.

use adjoin_kernels::{Kernel, Panel};

use super::candidate::Candidate;
use super::options::GraphOptions;
use crate::geometry::Coordinate;

/// Vectors and the kernel that compares them.
pub(crate) struct Vectors<'a, T> {
    pub(crate) kernel: Kernel,
    pub(crate) panel: &'a Panel<T>,
}

impl<T> Clone for Vectors<'_, T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Vectors<'_, T> {}

/// Kept neighbours that a candidate is compared with at once.
const TOGETHER: usize = 16;

/// Candidates of a vertex, and what is kept of them.
pub(crate) struct Pruner<T: Coordinate> {
    vertex: u32,
    /// Candidates that were not kept, ascending once they are looked at.
    pool: Vec<Candidate>,
    /// What is kept, ascending, and the same as vertices.
    kept: Vec<Candidate>,
    kept_vertices: Vec<u32>,
    distances: Vec<T::Distance>,
    degree: usize,
    /// The square of alpha, as distances are squared.
    alpha_squared: f64,
}

impl<T: Coordinate> Pruner<T> {
    pub(crate) fn new(options: &GraphOptions) -> Self {
        Self {
            vertex: 0,
            pool: Vec::new(),
            kept: Vec::new(),
            kept_vertices: Vec::new(),
            distances: Vec::new(),
            degree: options.degree,
            alpha_squared: options.alpha * options.alpha,
        }
    }

    /// Begins with another vertex.
    pub(crate) fn begin(&mut self, vertex: u32) {
        self.vertex = vertex;
        self.pool.clear();
    }

    /// Adds candidates at their distances to the vertex.
    pub(super) fn add(&mut self, candidates: impl Iterator<Item = Candidate>) {
        self.pool.extend(candidates);
    }

    /// Adds candidates whose distances are not known yet.
    pub(crate) fn add_vertices(&mut self, vectors: Vectors<'_, T>, vertices: &[u32]) {
        self.distances.resize(vertices.len(), T::Distance::default());
        let x = vectors.panel.row(self.vertex as usize);
        vectors.kernel.one_to_some(x, vectors.panel, vertices, &mut self.distances);
        let candidates = vertices.iter().zip(&self.distances);
        self.pool.extend(candidates.map(|(&vertex, &distance)| Candidate::new::<T>(distance, vertex)));
    }

    /// The out-neighbours of the vertex, nearest first: never the vertex itself, at most as many as its degree allows.
    ///
    /// A candidate is left out where a nearer one that is kept is nearer to it, by alpha, than the vertex is. The paper's
    /// loop takes what it keeps from candidates in their order, until there are enough; with an alpha above 1 near ones
    /// alone fill the list then. So all are looked at with an alpha of 1 first, which keeps edges in all directions and of
    /// all lengths, and the list is filled up with the alpha asked for (as DiskANN's code does).
    pub(crate) fn prune(&mut self, vectors: Vectors<'_, T>) -> &[u32] {
        self.pool.retain(|candidate| candidate.vertex() != self.vertex);
        self.pool.sort_unstable();
        self.pool.dedup();
        self.kept.clear();
        self.kept_vertices.clear();
        self.keep(vectors, 1.0);
        self.keep(vectors, self.alpha_squared);
        &self.kept_vertices
    }

    /// All candidates as vertices, nearest first.
    pub(crate) fn sorted(&mut self) -> &[u32] {
        self.pool.sort_unstable();
        self.kept_vertices.clear();
        self.kept_vertices.extend(self.pool.iter().map(|candidate| candidate.vertex()));
        &self.kept_vertices
    }

    /// Keeps candidates that nothing nearer removes by this factor of squared distances. What can be kept by no factor up
    /// to alpha leaves the pool.
    fn keep(&mut self, vectors: Vectors<'_, T>, factor: f64) {
        let (mut nearer, mut left) = (0, 0);
        for place in 0..self.pool.len() {
            if self.kept.len() == self.degree {
                return;
            }
            let candidate = self.pool[place];
            nearer += self.kept[nearer..].iter().take_while(|kept| **kept < candidate).count();
            match self.removed_by(vectors, candidate, nearer, factor) {
                None => {
                    self.kept.insert(nearer, candidate);
                    self.kept_vertices.insert(nearer, candidate.vertex());
                }
                Some(squared) if self.alpha_squared * squared > candidate.squared::<T>() => {
                    self.pool[left] = candidate;
                    left += 1;
                }
                Some(_) => {}
            }
        }
        self.pool.truncate(left);
    }

    /// How far from a candidate that is which removes it, among the first of the kept ones: squared.
    fn removed_by(
        &self,
        Vectors { kernel, panel }: Vectors<'_, T>,
        candidate: Candidate,
        nearer: usize,
        factor: f64,
    ) -> Option<f64> {
        let (x, own) = (panel.row(candidate.vertex() as usize), candidate.squared::<T>());
        let mut distances = [T::Distance::default(); TOGETHER];
        let mut least_of = self.kept_vertices[..nearer].chunks(TOGETHER).map(|kept| {
            let distances = &mut distances[..kept.len()];
            kernel.one_to_some(x, panel, kept, distances);
            let keys = distances.iter().map(|&distance| T::distance_key(distance));
            T::distance_of(keys.min().unwrap_or(u32::MAX))
        });
        least_of.find(|least| factor * least <= own)
    }
}
