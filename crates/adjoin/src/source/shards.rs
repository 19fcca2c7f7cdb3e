//! Several files as one source, and one file as the source it is.

use std::path::PathBuf;
use std::sync::Arc;

use adjoin_device::Device;

use super::elements::StoredElement;
use super::facts::Facts;
use super::open::{Format, ScanOptions, SourceOptions};
use super::vectors::{IdKind, SourceInfo, VectorBatch, VectorScan, VectorSource};
use crate::context::Context;
use crate::error::{Error, Result};
use crate::options::{ROWS_MAX, VectorType};

/// A file of a source. It is opened for the time of its scan only: a source may have more files than a process may open.
struct Shard {
    path: PathBuf,
    format: Format,
    facts: Facts,
    first_row: u64,
}

/// Files that agree in the type of their vectors and ids, one after the other.
pub(super) struct Shards {
    device: Arc<dyn Device>,
    options: SourceOptions,
    shards: Vec<Shard>,
    info: SourceInfo,
}

impl Shards {
    /// Reads the headers of all files, of which there is at least one.
    pub(super) fn open(context: &Context, files: Vec<(PathBuf, Format)>, options: &SourceOptions) -> Result<Self> {
        let mut shards: Vec<Shard> = Vec::with_capacity(files.len());
        let mut rows = 0u64;
        for (path, format) in files {
            let file = context.device.open(&path)?;
            let facts = format.inspect(context, &path, file, options)?;
            let first_row = rows;
            rows = rows.checked_add(facts.rows).filter(|rows| *rows <= ROWS_MAX).ok_or_else(|| {
                Error::input(format!(
                    "{}: with it the set has more than {ROWS_MAX} rows; split the set",
                    path.display()
                ))
            })?;
            shards.push(Shard { path, format, facts, first_row });
        }
        let vectors = agreed_type(&shards)?;
        let rounded_from_f64 = shards.iter().any(|shard| shard.facts.element == StoredElement::F64);
        let info = SourceInfo { rows, vectors, ids: shards[0].facts.ids, rounded_from_f64 };
        Ok(Self { device: context.device.clone(), options: options.clone(), shards, info })
    }
}

impl VectorSource for Shards {
    fn info(&self) -> &SourceInfo {
        &self.info
    }

    fn scan(&self, batch_bytes: usize) -> Result<Box<dyn VectorScan + '_>> {
        let mut scan = ShardsScan { source: self, batch_bytes, next_shard: 0, current: None };
        scan.start_next()?;
        Ok(Box::new(scan))
    }

    fn scan_bytes(&self, batch_bytes: u64) -> u64 {
        // One file is open at a time; what is read of it becomes a batch.
        let held = self.shards.iter().map(|shard| shard.facts.memory.held).max().unwrap_or(0);
        held + 2 * batch_bytes.max(self.info.vectors.bytes() as u64)
    }

    fn locate(&self, row: u64) -> (PathBuf, u64) {
        // the last shard that starts at or before the row; an empty one before it starts there too
        let shard = &self.shards[self.shards.partition_point(|shard| shard.first_row <= row).saturating_sub(1)];
        (shard.path.clone(), row - shard.first_row)
    }
}

/// The type that all files agree on; those without a vector, or whose vectors were not looked at, agree with any number of
/// dimensions.
fn agreed_type(shards: &[Shard]) -> Result<VectorType> {
    let first = &shards[0];
    let sized = shards.iter().find(|shard| shard.facts.dimensions.is_some());
    for shard in shards {
        let (facts, first_facts) = (&shard.facts, &first.facts);
        if facts.element.element() != first_facts.element.element() {
            return Err(mismatch(first, first_facts.element.element(), shard, facts.element.element(), "elements"));
        }
        if facts.ids != first_facts.ids {
            return Err(mismatch(first, kind_name(first_facts.ids), shard, kind_name(facts.ids), "ids"));
        }
        if let (Some(sized), Some(dimensions)) = (sized, facts.dimensions)
            && sized.facts.dimensions != facts.dimensions
        {
            let known = sized.facts.dimensions.unwrap_or_default();
            return Err(mismatch(sized, known, shard, dimensions, "dimensions"));
        }
    }
    let likely = || shards.iter().find_map(|shard| shard.facts.likely_dimensions);
    let Some(dimensions) = sized.and_then(|shard| shard.facts.dimensions).or_else(likely) else {
        return Err(Error::input(format!(
            "{}: no row has a vector, so the number of dimensions is not known; give a set with vectors",
            first.path.display()
        )));
    };
    Ok(VectorType { element: first.facts.element.element(), dimensions })
}

fn kind_name(ids: IdKind) -> &'static str {
    match ids {
        IdKind::None => "none",
        IdKind::Int64 => "int64",
        IdKind::Utf8 => "text",
    }
}

fn mismatch(a: &Shard, a_has: impl std::fmt::Display, b: &Shard, b_has: impl std::fmt::Display, what: &str) -> Error {
    Error::input(format!(
        "{} and {} differ in {what}: {a_has} and {b_has}; all files of a set must have the same",
        a.path.display(),
        b.path.display()
    ))
}

/// A scan of one file after the other.
struct ShardsScan<'a> {
    source: &'a Shards,
    batch_bytes: usize,
    next_shard: usize,
    current: Option<Current<'a>>,
}

/// The file at hand.
struct Current<'a> {
    shard: &'a Shard,
    scan: Box<dyn VectorScan>,
    rows_done: u64,
}

impl ShardsScan<'_> {
    /// Goes to the next file with rows, if there is one.
    fn start_next(&mut self) -> Result<()> {
        self.current = None;
        while let Some(shard) = self.source.shards.get(self.next_shard) {
            self.next_shard += 1;
            if shard.facts.rows == 0 {
                continue;
            }
            let Shards { device, options, info, .. } = self.source;
            let file = device.open(&shard.path)?;
            let (batch_bytes, piece_bytes_max) = (self.batch_bytes, shard.facts.memory.piece);
            let wanted = ScanOptions { vectors: info.vectors, batch_bytes, piece_bytes_max };
            let scan = shard.format.scan(&shard.path, file, options, wanted)?;
            self.current = Some(Current { shard, scan, rows_done: 0 });
            break;
        }
        Ok(())
    }
}

impl VectorScan for ShardsScan<'_> {
    fn next_batch(&mut self) -> Result<Option<VectorBatch>> {
        while let Some(current) = &mut self.current {
            if let Some(batch) = current.next_batch(self.source.info.vectors)? {
                return Ok(Some(batch));
            }
            self.start_next()?;
        }
        Ok(None)
    }
}

impl Current<'_> {
    /// The file's next rows, numbered as the set's.
    fn next_batch(&mut self, vectors: VectorType) -> Result<Option<VectorBatch>> {
        let Some(mut batch) = self.scan.next_batch()? else {
            return if self.rows_done == self.shard.facts.rows { Ok(None) } else { Err(self.changed()) };
        };
        self.rows_done += batch.rows as u64;
        // the columns of a damaged table may hold more or fewer rows than its header says
        if self.rows_done > self.shard.facts.rows || batch.bytes.len() != batch.rows * vectors.bytes() {
            return Err(self.changed());
        }
        batch.first_row += self.shard.first_row;
        Ok(Some(batch))
    }

    fn changed(&self) -> Error {
        Error::input(format!(
            "{}: {} rows expected, {} found; it is damaged, or has changed since it was opened",
            self.shard.path.display(),
            self.shard.facts.rows,
            self.rows_done
        ))
    }
}
