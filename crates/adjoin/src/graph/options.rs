//! Options of a graph.

use crate::base::error::{Error, Result};
use crate::base::message::{Argument, message};

/// Largest allowed degree.
const DEGREE_MAX: usize = 1_024;
/// Longest allowed list of candidates.
const BUILD_LIST_MAX: usize = 65_536;
/// Largest allowed alpha.
const ALPHA_MAX: f64 = 10.0;

/// Options of a graph.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct GraphOptions {
    /// Largest number of out-neighbors of a vertex (R), 2 to 1,024.
    pub degree: usize,
    /// Number of candidates that the search for the neighbors of a new vertex keeps (L). From the degree to 65,536.
    pub build_list: usize,
    /// Pruning factor, 1 to 10. An edge is left out if the distance from another neighbor to its target, times this
    /// factor, is at most the length of the edge.
    pub alpha: f64,
    /// Seed of the order in which vertices are inserted.
    pub seed: u64,
}

impl Default for GraphOptions {
    /// Returns the degree and list length of DiskANN's benchmarks.
    fn default() -> Self {
        Self { degree: 32, build_list: 75, alpha: 1.2, seed: 0 }
    }
}

impl GraphOptions {
    /// Checks the ranges of all options.
    ///
    /// # Errors
    /// If an option is out of range. The error names the first such option and its range.
    pub fn check(&self) -> Result<()> {
        let Self { degree, build_list, alpha, .. } = *self;
        if !(2..=DEGREE_MAX).contains(&degree) {
            return Err(Error::option(message![Argument::Degree, format!(" is {degree}; give 2 to {DEGREE_MAX}")]));
        }
        if !(degree..=BUILD_LIST_MAX).contains(&build_list) {
            let range = format!(" is {build_list}; give at least the degree, {degree}, and at most {BUILD_LIST_MAX}");
            return Err(Error::option(message![Argument::BuildList, range]));
        }
        if !(1.0..=ALPHA_MAX).contains(&alpha) {
            return Err(Error::option(message![Argument::Alpha, format!(" is {alpha}; give 1 to {ALPHA_MAX}")]));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_out_of_range_are_named() {
        let usual = GraphOptions::default();
        usual.check().unwrap();
        for (options, says) in [
            (GraphOptions { degree: 1, ..usual }, "degree is 1; give 2 to 1024"),
            (GraphOptions { degree: 2_000, build_list: 2_000, ..usual }, "degree is 2000"),
            (GraphOptions { build_list: 31, ..usual }, "build-list is 31; give at least the degree, 32"),
            (GraphOptions { build_list: 1 << 20, ..usual }, "build-list is 1048576"),
            (GraphOptions { alpha: 0.99, ..usual }, "alpha is 0.99; give 1 to 10"),
            (GraphOptions { alpha: f64::NAN, ..usual }, "alpha is NaN"),
        ] {
            let said = options.check().unwrap_err().to_string();
            assert!(said.contains(says), "{said}");
        }
    }
}
