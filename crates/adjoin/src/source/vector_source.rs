//! The interface of all inputs: a set of vectors that can be scanned from the first to the last row any number of
//! times.

use std::path::PathBuf;

use adjoin_device::FileStamp;
use arrow_array::RecordBatch;
use arrow_schema::SchemaRef;

use super::file::SourceFile;
use super::vectors::{IdKind, VectorScan};
use crate::base::checkpoint::Fact;
use crate::base::context::Context;
use crate::base::error::{Error, Result};
use crate::base::message::{Argument, message};
use crate::base::options::VectorType;

/// Properties of a source that are known without a scan.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SourceInfo {
    /// Number of rows, including those without a usable vector.
    pub rows: u64,
    /// Type of the vectors as delivered.
    pub vectors: VectorType,
    /// Kind of the ids.
    pub ids: IdKind,
    /// Whether f64 elements are rounded to f32.
    pub rounded_from_f64: bool,
}

/// A set of vectors outside a store.
pub trait VectorSource: Send + Sync {
    /// Returns the known properties of the source.
    fn info(&self) -> &SourceInfo;

    /// Starts a scan at the first row. A batch has about `batch_bytes` bytes of vectors, and at least one row.
    ///
    /// # Errors
    /// Fails if the source cannot be opened again.
    fn scan(&self, batch_bytes: usize) -> Result<Box<dyn VectorScan + '_>>;

    /// Starts a scan at row `row`, or at an earlier row.
    ///
    /// # Errors
    /// Fails if the source cannot be opened again.
    fn scan_from(&self, batch_bytes: usize, row: u64) -> Result<Box<dyn VectorScan + '_>> {
        let _ = row; // a source that is read from its start only
        self.scan(batch_bytes)
    }

    /// Returns the maximum number of bytes that such a scan holds, without the batches that it returns.
    fn scan_bytes(&self, batch_bytes: u64) -> u64;

    /// Frees memory that only makes the next scan faster.
    fn release(&self) {}

    /// Returns the size of a temporary file from which scans read, in bytes.
    fn temporary_bytes(&self) -> u64 {
        0
    }

    /// Returns the mean length of text ids in the part of the source with the longest ids, if it is known without a
    /// scan.
    fn id_bytes(&self) -> Option<u64> {
        None
    }

    /// Returns the mean size of a row with all of its columns, in the part of the source with the longest rows, in
    /// bytes. Returns `None` if it is not known without a scan.
    fn row_bytes(&self) -> Option<u64> {
        None
    }

    /// Returns notes for the user, such as the files of a folder that are left out. They are available before a scan.
    fn notes(&self) -> Vec<String> {
        Vec::new()
    }

    /// Returns the files that the source consists of, in order. The list is empty if the source does not consist of
    /// files.
    fn files(&self) -> Vec<SourceFile> {
        Vec::new()
    }

    /// Returns the columns in addition to the vectors, if they are not in files.
    fn attributes(&self) -> Option<&dyn SourceAttributes> {
        None
    }

    /// Returns the file that contains a row, and the row's number in that file, for messages.
    fn locate(&self, row: u64) -> (PathBuf, u64);
}

/// Columns of a source in addition to its vectors.
pub trait SourceAttributes: Sync {
    /// Returns the names and types of the columns.
    ///
    /// # Errors
    /// Fails if the columns cannot be read.
    fn schema(&self) -> Result<SchemaRef>;

    /// Returns the bytes that [`Self::tables`] reserves, plus the bytes of one table. Returns `None` if a scan of the
    /// vectors holds as much.
    ///
    /// # Errors
    /// Fails if the columns cannot be read.
    fn reading_bytes(&self) -> Result<Option<u64>> {
        Ok(None)
    }

    /// Reads the columns of all rows, in the order of the source. The caller has reserved memory for one table at a
    /// time. All other memory is reserved from the budget of `context`.
    ///
    /// # Errors
    /// Fails if the columns cannot be read or memory does not suffice.
    fn tables(&self, context: &Context) -> Result<AttributeTables<'_>>;
}

/// Tables of consecutive rows.
pub type AttributeTables<'a> = Box<dyn Iterator<Item = Result<RecordBatch>> + 'a>;

/// Returns facts that identify a source: its files and their state.
///
/// # Errors
/// Fails if the source is not made of files.
pub(crate) fn facts_of_files(source: &dyn VectorSource) -> Result<Vec<Fact>> {
    let files = source.files();
    if files.is_empty() {
        return Err(Error::option(message![
            "the source has no files, so changes between two runs cannot be detected; leave out ",
            Argument::Resume,
            ", or give files"
        ]));
    }
    let of_file = |SourceFile { path, stamp, .. }: &SourceFile| {
        // Programs can set the time of the last write, but not the time of the last change.
        let FileStamp { len, written_ns, changed_ns, version } = stamp;
        let is = format!("{len} bytes written at {written_ns} ns, changed at {changed_ns} ns");
        let is = if *version == 0 { is } else { format!("{is}, version {version:016x}") };
        Fact::new(format!("the file {}", path.display()), is)
    };
    Ok(files.iter().map(of_file).collect())
}
