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

/// A candidate that may be kept.
#[derive(Debug, Clone, Copy)]
struct Open {
    candidate: Candidate,
    /// The least squared distance to what is kept of the nearer ones; not a number where nothing is.
    least: f64,
}

impl Open {
    /// Whether something that is kept removes the candidate by this factor of squared distances.
    fn is_removed<T: Coordinate>(&self, factor: f64) -> bool {
        factor * self.least <= self.candidate.squared::<T>()
    }
}

/// Candidates of a vertex, and what is kept of them.
pub(crate) struct Pruner<T: Coordinate> {
    vertex: u32,
    pool: Vec<Candidate>,
    /// Those that may still be kept by some factor up to alpha, ascending.
    open: Vec<Open>,
    kept: Vec<Candidate>,
    /// Vertices that are compared, and their distances; at the end, what is kept.
    vertices: Vec<u32>,
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
            open: Vec::new(),
            kept: Vec::new(),
            vertices: Vec::new(),
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

    /// All candidates as vertices, nearest first.
    pub(crate) fn sorted(&mut self) -> &[u32] {
        self.pool.sort_unstable();
        self.vertices.clear();
        self.vertices.extend(self.pool.iter().map(|candidate| candidate.vertex()));
        &self.vertices
    }

    /// Keeps candidates that nothing nearer removes by this factor.
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
    fn take(&mut self, Vectors { kernel, panel }: Vectors<'_, T>, at: usize) {
        let taken = self.open[at].candidate;
        self.kept.push(taken);
        self.vertices.clear();
        self.vertices.extend(self.open[at + 1..].iter().map(|open| open.candidate.vertex()));
        self.distances.resize(self.vertices.len(), T::Distance::default());
        kernel.one_to_some(panel.row(taken.vertex() as usize), panel, &self.vertices, &mut self.distances);
        let mut left = at;
        for (other, &distance) in (at + 1..).zip(&self.distances) {
            let mut open = self.open[other];
            open.least = open.least.min(T::distance_of(T::distance_key(distance)));
            if !open.is_removed::<T>(self.alpha_squared) {
                self.open[left] = open;
                left += 1;
            }
        }
        self.open.truncate(left);
    }
}
