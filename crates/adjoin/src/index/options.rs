//! Options of building an index.

use super::page::PageShape;
use crate::base::error::{Error, Result};
use crate::base::message::{Argument, message};
use crate::base::options::VectorType;
use crate::graph::GraphOptions;

/// Valid page sizes.
const PAGE_BYTES: [u64; 3] = [4 << 10, 8 << 10, 16 << 10];
/// Largest code in bytes.
const CODE_BYTES_MAX: usize = 1_024;
/// Least bytes of a code by default.
const CODE_BYTES: usize = 32;
/// Number of dimensions per byte of a code by default.
const DIMENSIONS_OF_BYTE: usize = 4;
/// Degrees among which the default is chosen, after the default of [`GraphOptions`].
const LARGER_DEGREES: [usize; 2] = [48, 64];

/// Options of building an index. What is not given follows from the type of the vectors.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct IndexOptions {
    /// Largest number of out-neighbors of a vertex (R), 2 to 1,024. The default is 64, 48 or 32, and at most
    /// `build_list`: the largest of these with which as many vectors fit on a page as with 32. So more neighbors only
    /// use space that would be left over.
    pub degree: Option<usize>,
    /// Number of candidates that the search for the neighbors of a new vertex keeps (L). From the degree to 65,536.
    pub build_list: usize,
    /// Pruning factor; see [`GraphOptions::alpha`].
    pub alpha: f64,
    /// Seed of all random choices: the order in which vertices are inserted, and the vectors that are sampled for the
    /// codes and for the navigation graph.
    pub seed: u64,
    /// Bytes of the code of a vector, 1 to 1,024. The default is one byte for four dimensions, at least 32 and at most
    /// 1,024. A code never has more bytes than a vector has dimensions.
    pub code_bytes: Option<usize>,
    /// Number of vectors in the navigation graph, which a search holds in memory. At least 1. The default is one in a
    /// hundred vectors, at most 10,000.
    pub navigation: Option<u32>,
    /// Bytes of a page: 4, 8 or 16 KiB.
    pub page_bytes: u64,
}

impl Default for IndexOptions {
    fn default() -> Self {
        let GraphOptions { build_list, alpha, seed, .. } = GraphOptions::default();
        Self { degree: None, build_list, alpha, seed, code_bytes: None, navigation: None, page_bytes: PAGE_BYTES[0] }
    }
}

/// Options of an index of vectors of a known type.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct IndexParameters {
    pub(crate) graph: GraphOptions,
    /// Bytes of the code of a vector.
    pub(crate) code_bytes: usize,
    /// Number of vectors in the navigation graph, if it is not the default.
    pub(crate) navigation: Option<u32>,
    pub(crate) page_bytes: u64,
}

impl IndexOptions {
    /// Checks the ranges of all options.
    ///
    /// # Errors
    /// Names the first option that is out of range, and its range.
    pub fn check(&self) -> Result<()> {
        let degree = self.degree.unwrap_or(GraphOptions::default().degree.min(self.build_list));
        self.with(degree, self.code_bytes.unwrap_or(CODE_BYTES)).check()
    }

    /// Returns the options of the graph over such vectors.
    pub fn graph(&self, vectors: VectorType) -> GraphOptions {
        self.parameters(vectors).graph
    }

    /// Chooses what is not given. The options must be in range.
    pub(crate) fn parameters(&self, vectors: VectorType) -> IndexParameters {
        let code_bytes = (vectors.dimensions / DIMENSIONS_OF_BYTE).clamp(CODE_BYTES, CODE_BYTES_MAX);
        let degree = self.degree.unwrap_or_else(|| self.degree_that_fits(vectors));
        self.with(degree, self.code_bytes.unwrap_or(code_bytes).min(vectors.dimensions))
    }

    /// Returns the largest usual degree with which as many vectors fit on a page as with the least one.
    fn degree_that_fits(&self, vectors: VectorType) -> usize {
        let least = GraphOptions::default().degree;
        let shape = |degree| PageShape::new(vectors, degree, self.page_bytes);
        let is_free = |degree: &usize| {
            let (shape, least) = (shape(*degree), shape(least));
            (shape.records(), shape.bytes()) == (least.records(), least.bytes())
        };
        LARGER_DEGREES.into_iter().take_while(is_free).last().unwrap_or(least).min(self.build_list)
    }

    fn with(&self, degree: usize, code_bytes: usize) -> IndexParameters {
        let Self { build_list, alpha, seed, navigation, page_bytes, .. } = *self;
        IndexParameters { graph: GraphOptions { degree, build_list, alpha, seed }, code_bytes, navigation, page_bytes }
    }
}

impl IndexParameters {
    /// Checks the ranges of all options.
    ///
    /// # Errors
    /// Names the first option that is out of range, and its range.
    pub(crate) fn check(&self) -> Result<()> {
        self.graph.check()?;
        if !(1..=CODE_BYTES_MAX).contains(&self.code_bytes) {
            let range = format!(" is {}; give 1 to {CODE_BYTES_MAX}", self.code_bytes);
            return Err(Error::option(message![Argument::CodeBytes, range]));
        }
        if self.navigation == Some(0) {
            return Err(Error::option(message![Argument::Navigation, " is 0; give 1 or more"]));
        }
        if !PAGE_BYTES.contains(&self.page_bytes) {
            let range = format!(" is {} bytes; give 4KiB, 8KiB or 16KiB", self.page_bytes);
            return Err(Error::option(message![Argument::Page, range]));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::options::Element;

    #[test]
    fn defaults_follow_from_the_vectors() {
        let of = |element, dimensions| {
            let parameters = IndexOptions::default().parameters(VectorType { element, dimensions });
            (parameters.graph.degree, parameters.code_bytes)
        };
        // 15 vectors of a page leave room for 34 neighbors each.
        assert_eq!(of(Element::U8, 128), (32, 32));
        assert_eq!(of(Element::U8, 8), (32, 8));
        assert_eq!(of(Element::F32, 128), (32, 32));
        assert_eq!(of(Element::F16, 384), (48, 96));
        assert_eq!(of(Element::F32, 384), (64, 96));
        assert_eq!(of(Element::F32, 768), (64, 192));
        // A vector takes two pages.
        assert_eq!(of(Element::F32, 1_536), (64, 384));
        assert_eq!(of(Element::F32, 8_192), (64, 1_024));
        let given = IndexOptions { degree: Some(20), code_bytes: Some(7), ..IndexOptions::default() };
        let parameters = given.parameters(VectorType { element: Element::F32, dimensions: 384 });
        assert_eq!((parameters.graph.degree, parameters.code_bytes), (20, 7));
    }

    #[test]
    fn a_short_build_list_bounds_the_degree() {
        let vectors = VectorType { element: Element::F32, dimensions: 384 };
        for build_list in [8, 40, 50] {
            let options = IndexOptions { build_list, ..IndexOptions::default() };
            options.check().unwrap();
            assert_eq!(options.parameters(vectors).graph.degree, build_list);
            options.parameters(vectors).check().unwrap();
        }
    }
}
