//! Ground truth files for searches, in the formats of `compute_groundtruth` of DiskANN
//! (<https://github.com/microsoft/DiskANN>) and the harness of big-ann-benchmarks
//! (<https://github.com/harsha-simhadri/big-ann-benchmarks>).
//!
//! All numbers are little-endian.
//!
//! - Vectors: u32 rows, u32 dimensions, the rows.
//! - Tags: u32 rows, u32 1, a u32 per row of the base.
//! - Nearest rows: i32 queries, i32 k, u32 ids `[queries x k]`, f32 distances `[queries x k]`.
//! - Rows within a threshold: i32 queries, i32 total rows found, i32 counts `[queries]`, u32 ids `[found]`. For
//!   big-ann-benchmarks, f32 distances `[found]` follow; DiskANN expects none.

use std::io::{self, Write};
use std::path::Path;

use super::groundtruth_nearest::{Comparison, TrueNeighbor, TruthTarget};
use crate::base::choice::choices;
use crate::base::context::Context;
use crate::base::error::{Error, Result};
use crate::base::geometry::{Space, with_coordinates};
use crate::base::options::{Element, Metric};
use crate::base::output::LaterFile;
use crate::source::{VectorSource, open_counted};

/// Largest count that an i32 holds.
const COUNT_MAX: u64 = i32::MAX as u64;
/// Bytes of the header of a file, which has two counts.
const HEADER_BYTES: u64 = 8;

/// Files to read and write.
#[derive(Debug, Clone, Copy)]
pub struct TruthFiles<'a> {
    /// The vectors to find.
    pub base: &'a Path,
    /// The query vectors.
    pub queries: &'a Path,
    /// Element type of both files.
    pub element: Element,
    /// File with the ids of the rows of the base. `None` if the row numbers are the ids.
    pub tags: Option<&'a Path>,
    /// The file to write.
    pub truth: &'a Path,
    /// Whether an existing file may be replaced.
    pub force: bool,
}

/// Search target of each query.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum GroundtruthTarget {
    /// The K nearest rows; ties are broken by the smaller id.
    Nearest(u64),
    /// All rows whose distance, as written, is at most this; for inner products, at least this.
    Within(f64, RangeForm),
}

/// Format of the file of rows within a threshold.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum RangeForm {
    /// With distances.
    #[default]
    BigAnn,
    /// Without distances.
    DiskAnn,
}

choices! { "the format" => RangeForm { BigAnn = "bigann", DiskAnn = "diskann" } }

/// Summary of the ground truth.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TruthReport {
    /// Rows of the base.
    pub rows: u64,
    /// Queries, each compared with all rows.
    pub queries: u64,
    /// Number of rows found for all queries together.
    pub found: u64,
}

impl TruthFiles<'_> {
    /// Finds the true answers to all queries and writes them, nearest first. Distances are squared under L2. Under cosine
    /// they are squared distances of the normalized vectors (2 - 2 cos). For inner products, the product itself is written,
    /// and the largest are first.
    ///
    /// # Errors
    /// If a file cannot be read or does not have the length in its header, a vector is unusable, dimensions or numbers of
    /// rows are inconsistent, memory does not suffice, or the result cannot be written.
    pub fn compare(&self, context: &Context, metric: Metric, target: GroundtruthTarget) -> Result<TruthReport> {
        let wanted = wanted(metric, target)?;
        let base = open_counted(context, self.base, self.element)?;
        let queries = open_counted(context, self.queries, self.element)?;
        check_fit(self, &*base, &*queries, target)?;
        let rows = base.info().rows;
        let _of_tags = self.tags.map(|_| context.reserve(4 * rows, "the tags")).transpose()?;
        let tags = self.tags.map(|path| read_tags(context, path, self.base, rows)).transpose()?;
        // An existing file that must not be replaced is refused before the work.
        let output = LaterFile::begin(context, self.truth, self.force)?;
        let comparison =
            Comparison { context, base: &*base, queries: &*queries, metric, wanted, tags: tags.as_deref() };
        let space = Space::plain(base.info().vectors, metric);
        let (found, _memory) = with_coordinates!(space, T => comparison.run::<T>()?);
        let total: u64 = found.iter().map(|found| found.len() as u64).sum();
        if total > COUNT_MAX {
            return Err(Error::input(format!(
                "{total} rows are within the threshold, but a file of this format holds at most {COUNT_MAX}; give a \
                 stricter threshold or fewer queries"
            )));
        }
        output.finish(|to| write(to, &found, metric, target))?;
        Ok(TruthReport { rows, queries: queries.info().rows, found: total })
    }
}

/// Converts the target to a number of rows, or to a maximum nearness.
fn wanted(metric: Metric, target: GroundtruthTarget) -> Result<TruthTarget> {
    match (target, metric) {
        (GroundtruthTarget::Nearest(0), _) => Err(Error::option("K is 0, which finds nothing; give at least 1")),
        (GroundtruthTarget::Nearest(count), _) => Ok(TruthTarget::Nearest(count as usize)),
        (GroundtruthTarget::Within(most, _), _) if !most.is_finite() => {
            Err(Error::option(format!("the range threshold is {most}; it must be a finite number")))
        }
        (GroundtruthTarget::Within(most, _), Metric::L2 | Metric::Cosine) if most < 0.0 => {
            Err(Error::option(format!("the range threshold is {most}; a squared distance is at least 0")))
        }
        (GroundtruthTarget::Within(most, _), Metric::L2) => Ok(TruthTarget::Within(most)),
        // The squared distance of unit vectors is 2 - 2 cos, and nearness is -cos.
        (GroundtruthTarget::Within(most, _), Metric::Cosine) => Ok(TruthTarget::Within(most / 2.0 - 1.0)),
        (GroundtruthTarget::Within(least, _), Metric::Ip) => Ok(TruthTarget::Within(0.0 - least)),
    }
}

/// Refuses inconsistent files, and sizes that the output format cannot represent.
fn check_fit(
    files: &TruthFiles<'_>,
    base: &dyn VectorSource,
    queries: &dyn VectorSource,
    target: GroundtruthTarget,
) -> Result<()> {
    let (base_at, queries_at) = (files.base.display(), files.queries.display());
    let (base, queries) = (base.info(), queries.info());
    if base.vectors.dimensions != queries.vectors.dimensions {
        return Err(Error::input(format!(
            "{queries_at}: queries have {} dimensions, but the vectors of {base_at} have {}; give files of the same \
             dimensions",
            queries.vectors.dimensions, base.vectors.dimensions
        )));
    }
    for (at, rows) in [(&base_at, base.rows), (&queries_at, queries.rows)] {
        if rows > COUNT_MAX {
            return Err(Error::input(format!(
                "{at}: {rows} rows are more than the {COUNT_MAX} that a ground truth file can number; split the set"
            )));
        }
    }
    match target {
        GroundtruthTarget::Nearest(count) if count > base.rows => Err(Error::input(format!(
            "{base_at}: K is {count}, but there are {} rows to find; give a smaller K",
            base.rows
        ))),
        _ => Ok(()),
    }
}

/// Reads the tags of the `rows` rows of a base.
fn read_tags(context: &Context, path: &Path, base: &Path, rows: u64) -> Result<Vec<u32>> {
    let at = path.display();
    let file = context.device.open(path)?;
    let mut header = [0; HEADER_BYTES as usize];
    if file.len() < HEADER_BYTES {
        let len = file.len();
        return Err(Error::input(format!(
            "{at}: {len} bytes long, but its header of two counts alone takes {HEADER_BYTES}; it is truncated"
        )));
    }
    file.read_at(0, &mut header)?;
    let (counts, _) = header.as_chunks::<4>();
    let [tags, columns] = [counts[0], counts[1]].map(u32::from_le_bytes);
    if columns != 1 {
        return Err(Error::input(format!(
            "{at}: its header states {columns} tags per row, but a row has 1; give a file of tags: u32 rows, u32 1, \
             tags"
        )));
    }
    if u64::from(tags) != rows {
        return Err(Error::input(format!(
            "{at}: has {tags} tags, but {} has {rows} rows; give a tag for each row",
            base.display()
        )));
    }
    let expected = HEADER_BYTES + 4 * rows;
    if file.len() != expected {
        let found = file.len();
        return Err(Error::input(format!(
            "{at}: its header says {tags} tags, so {expected} bytes expected, found {found}; write or copy it again"
        )));
    }
    let mut read = vec![0; READ_TAGS.min(rows as usize) * 4];
    let mut all = Vec::with_capacity(rows as usize);
    while all.len() < rows as usize {
        let some = &mut read[..READ_TAGS.min(rows as usize - all.len()) * 4];
        file.read_at(HEADER_BYTES + 4 * all.len() as u64, some)?;
        all.extend(some.as_chunks().0.iter().map(|&tag| u32::from_le_bytes(tag)));
    }
    Ok(all)
}

/// Number of tags that are read at once.
const READ_TAGS: usize = 4_096;

fn write(to: &mut dyn Write, found: &[Vec<TrueNeighbor>], metric: Metric, target: GroundtruthTarget) -> io::Result<()> {
    let mut to = io::BufWriter::with_capacity(64 << 10, to);
    let count = |count: usize| (count as i32).to_le_bytes(); // larger counts were refused
    to.write_all(&count(found.len()))?;
    match target {
        GroundtruthTarget::Nearest(each) => to.write_all(&count(each as usize))?,
        GroundtruthTarget::Within(..) => {
            to.write_all(&count(found.iter().map(Vec::len).sum()))?;
            found.iter().try_for_each(|found| to.write_all(&count(found.len())))?;
        }
    }
    found.iter().flatten().try_for_each(|hit| to.write_all(&hit.id.to_le_bytes()))?;
    if !matches!(target, GroundtruthTarget::Within(_, RangeForm::DiskAnn)) {
        let distance = |hit: &TrueNeighbor| distance(metric, hit.nearness).to_le_bytes();
        found.iter().flatten().try_for_each(|hit| to.write_all(&distance(hit)))?;
    }
    to.flush()
}

/// Converts a nearness to the distance that is written.
fn distance(metric: Metric, nearness: f64) -> f32 {
    match metric {
        Metric::L2 => nearness as f32,
        Metric::Cosine => (2.0 + 2.0 * nearness).max(0.0) as f32,
        Metric::Ip => (0.0 - nearness) as f32,
    }
}
