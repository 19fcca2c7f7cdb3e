//! One or more files as one source.

use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

use adjoin_device::{Device, FileStamp, ReadFile};

use super::dense::DenseFormat;
use super::digest::Digest;
use super::elements::StoredElement;
use super::facts::{Dimensions, Facts};
use super::file::SourceFile;
use super::foreign::changed;
use super::format::{Format, check_rows};
use super::options::{ScanOptions, SourceOptions};
use super::vector_source::{SourceInfo, VectorSource};
use super::vectors::{IdKind, VectorBatch, VectorScan};
use crate::base::context::Context;
use crate::base::error::{Error, Result};
use crate::base::options::VectorType;

/// A file of a source. It is open only while it is scanned, since a source may have more files than a process may
/// open.
struct Shard {
    /// Path relative to the name that the user gave, e.g. relative to a folder.
    name: PathBuf,
    path: PathBuf,
    format: Format,
    facts: Facts,
    first_row: u64,
    /// State of the file when it was first opened. Every scan must match it: a store must not mix two versions of the
    /// data.
    stamp: FileStamp,
    /// Digest of the first complete scan of the file. Every later complete scan must match it.
    digest: OnceLock<[u64; 3]>,
}

/// Consecutive files of one source. Their vectors and ids have the same types.
pub(super) struct Shards {
    device: Arc<dyn Device>,
    options: SourceOptions,
    shards: Vec<Shard>,
    info: SourceInfo,
    notes: Vec<String>,
}

impl Shards {
    /// Opens a source by reading the headers of `files`, which must not be empty.
    pub(super) fn open(
        context: &Context,
        files: Vec<(PathBuf, PathBuf, Format)>,
        options: &SourceOptions,
        mut notes: Vec<String>,
    ) -> Result<Self> {
        let mut shards: Vec<Shard> = Vec::with_capacity(files.len());
        let mut rows = 0u64;
        for (name, path, format) in files {
            let file = context.device.open(&path)?;
            // The stamp is taken before the headers are read, so the first scan notices any change after this moment.
            let stamp = file.stamp()?;
            let ahead_bytes = file.read_ahead_bytes();
            let held = context.reserve_between_runs(ahead_bytes, &format!("{}: reading ahead", path.display()))?;
            let mut facts = format.inspect(context, &path, file, options)?;
            drop(held);
            facts.memory.held = facts.memory.held.saturating_add(ahead_bytes);
            let first_row = rows;
            rows = check_rows(&path, rows.checked_add(facts.rows))?;
            shards.push(Shard { name, path, format, facts, first_row, stamp, digest: OnceLock::new() });
        }
        let vectors = agreed_type(&shards)?;
        let rounded_from_f64 = shards.iter().any(|shard| shard.facts.element == StoredElement::F64);
        let untyped = |shard: &&Shard| {
            shard.format == Format::Dense(DenseFormat::Npy) && shard.facts.element == StoredElement::Bf16
        };
        if let Some(shard) = shards.iter().find(untyped) {
            notes.push(format!("{}: dtype |V2 is read as bfloat16, which NumPy saves as that", shard.path.display()));
        }
        let info = SourceInfo { rows, vectors, ids: telling(&shards)[0].facts.ids, rounded_from_f64 };
        Ok(Self { device: context.device.clone(), options: options.clone(), shards, info, notes })
    }
}

impl VectorSource for Shards {
    fn info(&self) -> &SourceInfo {
        &self.info
    }

    fn scan(&self, batch_bytes: usize) -> Result<Box<dyn VectorScan + '_>> {
        self.scan_from(batch_bytes, 0)
    }

    fn scan_from(&self, batch_bytes: usize, row: u64) -> Result<Box<dyn VectorScan + '_>> {
        // Files that end before the row are not opened.
        let next_shard = self.shards.partition_point(|shard| shard.first_row + shard.facts.rows <= row);
        let mut scan = ShardsScan { source: self, batch_bytes, first_row: row, next_shard, current: None };
        scan.start_next()?;
        Ok(Box::new(scan))
    }

    fn scan_bytes(&self, batch_bytes: u64) -> u64 {
        // One file is open at a time. Its data are converted to a batch.
        let held = self.shards.iter().map(|shard| shard.facts.memory.held).max().unwrap_or(0);
        // Twice the size of a batch: the decoded batch, and the data from which it is decoded.
        held + 2 * batch_bytes.max(self.info.vectors.bytes() as u64)
    }

    fn id_bytes(&self) -> Option<u64> {
        self.shards.iter().map(|shard| shard.facts.memory.id_bytes).max().filter(|bytes| *bytes > 0)
    }

    fn row_bytes(&self) -> Option<u64> {
        self.shards.iter().map(|shard| shard.facts.memory.row_bytes).max().filter(|bytes| *bytes > 0)
    }

    fn notes(&self) -> Vec<String> {
        self.notes.clone()
    }

    fn files(&self) -> Vec<SourceFile> {
        let of = |shard: &Shard| SourceFile {
            name: shard.name.clone(),
            path: shard.path.clone(),
            format: shard.format,
            first_row: shard.first_row,
            rows: shard.facts.rows,
            stamp: shard.stamp,
            lines: shard.facts.lines.clone(),
            arrays: shard.facts.arrays.clone(),
            writing: OnceLock::new(),
        };
        self.shards.iter().map(of).collect()
    }

    fn locate(&self, row: u64) -> (PathBuf, u64) {
        // Finds the last shard that starts at or before the row. Empty shards before it may start at the same row.
        let shard = &self.shards[self.shards.partition_point(|shard| shard.first_row <= row).saturating_sub(1)];
        (shard.path.clone(), row - shard.first_row)
    }
}

/// Returns the files with known columns. If there are none, returns all files.
fn telling(shards: &[Shard]) -> Vec<&Shard> {
    // An empty JSON lines file has no columns at all, so it cannot contradict another file.
    let telling: Vec<&Shard> = shards.iter().filter(|shard| !shard.facts.says_nothing()).collect();
    if telling.is_empty() { shards.iter().collect() } else { telling }
}

/// Returns the type of the vectors, on which all files must agree. The number of dimensions is taken from a header if
/// one states it, otherwise from the first list that is not empty. If later lists have other lengths, the reader of
/// rows reports it. If no list was read, the number is a header's estimate.
fn agreed_type(shards: &[Shard]) -> Result<VectorType> {
    let shards = telling(shards);
    let first = shards[0];
    // A stated number takes precedence over the length of a list, since that list may be the exception in its file.
    let stating = shards.iter().find(|shard| matches!(shard.facts.dimensions, Dimensions::Stated(_)));
    let named = shards.iter().find(|shard| shard.facts.vector_column.is_some());
    for &shard in &shards {
        let (facts, first_facts) = (&shard.facts, &first.facts);
        if facts.element.element() != first_facts.element.element() {
            return Err(mismatch(first, first_facts.element.element(), shard, facts.element.element(), "elements"));
        }
        if facts.ids != first_facts.ids {
            return Err(mismatch(first, kind_name(first_facts.ids), shard, kind_name(facts.ids), "ids"));
        }
        if let (Some(named), Some(other)) = (named, &facts.vector_column)
            && named.facts.vector_column.as_ref() != Some(other)
        {
            let known = named.facts.vector_column.as_deref().unwrap_or_default();
            return Err(mismatch(named, known, shard, other, "their columns of vectors"));
        }
        if let (Some(stating), Dimensions::Stated(dimensions)) = (stating, facts.dimensions)
            && stating.facts.dimensions != facts.dimensions
        {
            let known = stating.facts.dimensions.known().unwrap_or_default();
            return Err(mismatch(stating, known, shard, dimensions, "dimensions"));
        }
    }
    let stated = stating.and_then(|shard| shard.facts.dimensions.known());
    let seen = || shards.iter().find_map(|shard| shard.facts.dimensions.known());
    let likely = || shards.iter().find_map(|shard| shard.facts.dimensions.likely());
    let Some(dimensions) = stated.or_else(seen).or_else(likely) else {
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
        "{} and {} differ in {what}: {a_has} and {b_has}; all files of a set must agree",
        a.path.display(),
        b.path.display()
    ))
}

impl Shard {
    fn check_stamp(&self, file: &dyn ReadFile) -> Result<()> {
        if file.stamp()?.has_contents_of(&self.stamp) { Ok(()) } else { Err(changed(&self.path)) }
    }
}

/// A scan of all files, one after the other.
struct ShardsScan<'a> {
    source: &'a Shards,
    batch_bytes: usize,
    /// Row that is needed first.
    first_row: u64,
    next_shard: usize,
    current: Option<Current<'a>>,
}

/// The file that is being scanned.
struct Current<'a> {
    shard: &'a Shard,
    file: Arc<dyn ReadFile>,
    scan: Box<dyn VectorScan>,
    rows_done: u64,
    /// Digest of all batches; `None` if the scan did not start at the first row of the file.
    digest: Option<Digest>,
}

impl ShardsScan<'_> {
    /// Opens the next file that has rows, if any.
    fn start_next(&mut self) -> Result<()> {
        self.current = None;
        while let Some(shard) = self.source.shards.get(self.next_shard) {
            self.next_shard += 1;
            if shard.facts.rows == 0 {
                continue;
            }
            // The file is opened again, since a source may have more files than a process may have open.
            let Shards { device, options, info, .. } = self.source;
            let file = device.open(&shard.path)?;
            shard.check_stamp(&*file)?;
            let (batch_bytes, piece_bytes_max) = (self.batch_bytes, shard.facts.memory.piece);
            let first_row = self.first_row.saturating_sub(shard.first_row);
            let wanted = ScanOptions { vectors: info.vectors, batch_bytes, piece_bytes_max, first_row };
            let scan = shard.format.scan(&shard.path, file.clone(), options, wanted, &shard.facts)?;
            self.current = Some(Current { shard, file, scan, rows_done: 0, digest: Some(Digest::default()) });
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
    /// Returns the next rows of the file. Their row numbers are those of the source.
    fn next_batch(&mut self, vectors: VectorType) -> Result<Option<VectorBatch>> {
        // If another process writes to the file, its data may seem damaged. So the stamp is checked first.
        let next = self.scan.next_batch().or_else(|error| self.shard.check_stamp(&*self.file).and(Err(error)));
        let Some(mut batch) = next? else {
            return match self.rows_done == self.shard.facts.rows {
                true => self.check_unchanged().map(|()| None),
                false => Err(self.changed()),
            };
        };
        if self.rows_done == 0 && batch.first_row > 0 {
            (self.rows_done, self.digest) = (batch.first_row, None);
        }
        self.rows_done += batch.rows as u64;
        // In a damaged table, columns may have more or fewer rows than the header states.
        if self.rows_done > self.shard.facts.rows || batch.bytes.len() != batch.rows * vectors.bytes() {
            return Err(self.changed());
        }
        // Stamps have the resolution of the file system's clock, so the contents are compared, too.
        self.digest.iter_mut().for_each(|digest| digest.add(&batch));
        batch.first_row += self.shard.first_row;
        Ok(Some(batch))
    }

    /// Checks that the file has not changed since it was opened, and that it has the same rows as in an earlier scan.
    fn check_unchanged(&self) -> Result<()> {
        self.shard.check_stamp(&*self.file)?;
        let Some(digest) = self.digest.as_ref().map(Digest::finish) else { return Ok(()) };
        // The first complete scan sets the digest. An incomplete scan neither sets nor compares it.
        match self.shard.digest.get_or_init(|| digest) == &digest {
            true => Ok(()),
            false => Err(changed(&self.shard.path)),
        }
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
