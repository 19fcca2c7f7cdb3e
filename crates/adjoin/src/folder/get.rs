//! Fetches rows of any folder by id.

use std::ops::Range;

use adjoin_device::Reservation;
use arrow_array::RecordBatch;
use arrow_schema::Schema;

use super::{Folder, FolderFacts};
use crate::base::choice::choices;
use crate::base::context::Context;
use crate::base::error::{Error, ErrorKind, Result};
use crate::base::message::{Argument, message};
use crate::base::options::VectorType;
use crate::base::output::Target;
use crate::base::report::Written;
use crate::collection::LocatedRows;
use crate::index::Index;
use crate::load;
use crate::sink::{TableFormat, TableWriter, add_columns, vector_column, vector_field, vectors_bytes};
use crate::source::{IdKind, Ids, Named};
use crate::store::{AttributeRows, FetchingBytes, Store, StoredColumns};

/// Handling of ids that no row has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnMissing {
    /// Fail with an error that names the first such id.
    Error,
    /// Leave these ids out.
    Skip,
}

choices! { Argument::OnMissing => OnMissing { Error = "error", Skip = "skip" } }

/// Purpose of the memory in error messages.
const PURPOSE: &str = "fetching rows by their ids";
/// Number of copies of vectors and ids in memory, as they are read and as columns.
const COPIES: u64 = 3;
/// Bytes of a row for its place, and for its position in an order.
const PLACE_BYTES: u64 = 32;
/// Divisor of the free memory. Vectors are fetched in this part of it. The rest is for the other columns and for the
/// output.
const VECTORS_SHARE: u64 = 4;
/// Approximate bytes of vectors that are written at once. Encoding them takes several times these bytes.
const WRITTEN_BYTES: usize = 256 << 10;

/// Rows found by id, in the order of the ids.
pub struct FoundRows<'a> {
    rows: PlacedRows<'a>,
    ids: Ids,
    missing: Vec<usize>,
    folder: &'a Folder,
    _memory: Reservation,
}

/// The places of rows in a folder.
enum PlacedRows<'a> {
    /// Positions of the rows in bucket order.
    Store(&'a Store, Vec<u64>),
    /// Entries of the rows.
    Index(&'a Index, Vec<u32>),
    Collection(LocatedRows),
}

/// Table of some of the rows, with the reservation of its memory.
struct RowTable {
    table: RecordBatch,
    _memory: (Reservation, AttributeRows),
}

impl Folder {
    /// Finds the rows with the given ids. If rows have no ids, `ids` are row numbers. An id may be given several times.
    ///
    /// A collection looks up ids in a sorted file. A store or an index has no such file, so all of its ids are read
    /// once. For a store, this reads the vectors too.
    ///
    /// # Errors
    /// If the ids are of another kind, if the folder cannot be read or is damaged, or if the budget is too small.
    pub fn find(&self, context: &Context, ids: &Ids) -> Result<FoundRows<'_>> {
        let memory =
            context.reserve_between_runs(Named::memory_bytes(ids) + PLACE_BYTES * ids.len() as u64, PURPOSE)?;
        let (rows, missing) = match self {
            Self::Store(store) => {
                let (places, missing) = there(load::places_named(context, store, ids)?);
                (PlacedRows::Store(store, places), missing)
            }
            Self::Index(index) => {
                let (entries, missing) = there(index.entries_named(context, ids)?);
                (PlacedRows::Index(index, entries.into_iter().map(|entry| entry as u32).collect()), missing)
            }
            Self::Collection(collection) => {
                let (located, missing) = collection.locate(ids)?;
                (PlacedRows::Collection(located), missing)
            }
        };
        let mut found = Ids::empty(ids.kind());
        let mut absent = missing.iter().peekable();
        (0..ids.len()).filter(|k| absent.next_if_eq(&k).is_none()).for_each(|k| found.push_from(ids, k));
        Ok(FoundRows { rows, ids: found, missing, folder: self, _memory: memory })
    }

    /// Returns a context for fetching rows by these ids and writing them. If the budget is too small, the error names a
    /// budget that suffices for the longest row, unless that is an unmerged row of a collection.
    ///
    /// # Errors
    /// If the file of the columns cannot be read, and the errors of [`Context::for_run`].
    pub fn fetching_run(&self, context: &Context, ids: &Ids) -> Result<Context> {
        let pass = match self {
            Self::Store(store) => {
                let columns =
                    store.columns().map_or_else(|| Ok(FetchingBytes::default()), StoredColumns::fetching_bytes);
                columns?.or(load::least_pass_bytes(store, store.manifest().ids != IdKind::None))
            }
            Self::Index(index) => index.fetching_bytes()?,
            Self::Collection(collection) => collection.fetching_bytes()?,
        };
        let FetchingBytes { least, longest } = pass.and(fetching_bytes(ids, self.facts().vectors));
        context.naming_more(longest).for_run(least, PURPOSE)
    }
}

/// Returns the bytes that a row takes while it is fetched, not counting its columns.
fn row_bytes(vector_bytes: u64) -> u64 {
    COPIES * vector_bytes + PLACE_BYTES
}

/// Returns the bytes that suffice for fetching rows by these ids and writing them. The bytes for a pass over ids,
/// vectors or columns are not included.
pub(super) fn fetching_bytes(ids: &Ids, vectors: VectorType) -> u64 {
    let names = 2 * Named::memory_bytes(ids) + PLACE_BYTES * ids.len() as u64;
    let row = VECTORS_SHARE * row_bytes(vectors.bytes() as u64);
    names + row + vectors_bytes(vectors)
}

/// Returns the places that are known, and the indices of the places that are `None`.
fn there(places: Vec<Option<u64>>) -> (Vec<u64>, Vec<usize>) {
    let missing = (0..places.len()).filter(|&k| places[k].is_none()).collect();
    (places.into_iter().flatten().collect(), missing)
}

impl FoundRows<'_> {
    /// Returns the indices of the ids that no row has, ascending.
    pub fn missing(&self) -> &[usize] {
        &self.missing
    }

    /// Checks that each id has a row, unless missing ids are skipped.
    ///
    /// # Errors
    /// If an id has no row. The error names the first such id.
    pub fn check_missing(&self, ids: &Ids, on_missing: OnMissing) -> Result<()> {
        let first = self.missing.first().filter(|_| on_missing == OnMissing::Error);
        let Some(&first) = first else { return Ok(()) };
        let id = match ids {
            Ids::Utf8(_) => format!("{:?}", ids.display(first, 0)),
            Ids::Int64(_) | Ids::None => ids.display(first, 0),
        };
        let count = self.missing.len();
        let what = if self.folder.facts().ids == IdKind::None { "number" } else { "id" };
        let others = if count > 1 { format!(", {count} of {} ids are missing", ids.len()) } else { String::new() };
        let missing = format!("no row has the {what} {id}{others}; leave these out, or give ");
        Err(Error::input(message![missing, Argument::OnMissing.with("skip")]))
    }

    /// Returns the number of rows.
    pub fn len(&self) -> usize {
        self.ids.len()
    }

    /// Returns whether no row was found.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the stored vectors of all rows, concatenated.
    ///
    /// # Errors
    /// If the folder cannot be read or is damaged, or if the budget is too small.
    pub fn vectors(&self, context: &Context) -> Result<Vec<u8>> {
        let bytes = self.folder.facts().vectors.bytes() as u64;
        let _memory = context.reserve_between_runs(self.len() as u64 * row_bytes(bytes), PURPOSE)?;
        self.stored(context, 0..self.len())
    }

    /// Returns all rows as a table. It has the column `id` (the row number if rows have no ids), the column `vector`,
    /// and the columns that are stored with rows. If a stored column is named `id` or `vector`, it is renamed to
    /// `columns.id` or `columns.vector`.
    ///
    /// # Errors
    /// The errors of [`Self::vectors`].
    pub fn table(&self, context: &Context) -> Result<RecordBatch> {
        Ok(self.read(context, 0..self.len())?.table)
    }

    /// Writes all rows to a Parquet or JSON lines file, with the columns of [`Self::table`].
    ///
    /// # Errors
    /// If the file cannot be written or is a CSV file, if the folder cannot be read or is damaged, or if the budget is
    /// too small.
    pub fn write(&self, context: &Context, target: &Target) -> Result<Written> {
        Folder::check_rows_target(target)?;
        let vectors = self.folder.facts().vectors;
        let _writing = context.reserve(vectors_bytes(vectors), PURPOSE)?;
        let schema = self.read(context, 0..0)?.table.schema();
        let mut table = TableWriter::create_of(context, target, schema.as_ref().clone())?;
        let at_once = context.budget().free() / VECTORS_SHARE / row_bytes(vectors.bytes() as u64);
        let at_once = (at_once as usize).clamp(1, self.len().max(1));
        context.progress.begin("fetch", "rows", self.len() as u64);
        for start in (0..self.len()).step_by(at_once) {
            self.write_some(context, &mut table, start..(start + at_once).min(self.len()))?;
        }
        table.finish()
    }

    /// Writes a range of the rows. If memory does not hold their columns, writes the two halves of the range
    /// separately.
    fn write_some(&self, context: &Context, out: &mut TableWriter, range: Range<usize>) -> Result<()> {
        let rows = match self.read(context, range.clone()) {
            Err(error) if error.kind() == ErrorKind::Budget && range.len() > 1 => {
                let half = range.start + range.len() / 2;
                self.write_some(context, out, range.start..half)?;
                return self.write_some(context, out, half..range.end);
            }
            rows => rows?,
        };
        let at_once = (WRITTEN_BYTES / self.folder.facts().vectors.bytes()).max(1);
        for start in (0..range.len()).step_by(at_once) {
            let some = rows.table.slice(start, at_once.min(range.len() - start));
            out.write(some.columns().to_vec())?;
        }
        context.progress.advance(range.end as u64);
        Ok(())
    }

    /// Reads a range of the rows.
    fn read(&self, context: &Context, range: Range<usize>) -> Result<RowTable> {
        let FolderFacts { vectors, ids: kind, .. } = self.folder.facts();
        let mut ids = Ids::empty(self.ids.kind());
        range.clone().for_each(|k| ids.push_from(&self.ids, k));
        let bytes = range.len() as u64 * row_bytes(vectors.bytes() as u64) + COPIES * ids.held_bytes();
        let memory = context.reserve(bytes, PURPOSE)?;
        let attributes = match &self.rows {
            PlacedRows::Store(store, places) => store.attributes_at(context, &places[range.clone()])?,
            PlacedRows::Index(index, entries) => index.attributes_of(context, &entries[range.clone()])?,
            PlacedRows::Collection(located) => located.attributes(context, range.clone())?,
        };
        let (numbers, ids) = match (kind, ids) {
            (IdKind::None, Ids::Int64(numbers)) => (numbers.into_iter().map(i64::cast_unsigned).collect(), Ids::None),
            (_, ids) => (Vec::new(), ids),
        };
        let vectors_column = vector_column(vectors, &self.stored(context, range)?);
        let mut fields = vec![kind.field("id"), vector_field(vectors)];
        add_columns(&mut fields, &attributes.table.schema());
        let mut all = vec![ids.column(&numbers), vectors_column];
        all.extend(attributes.table.columns().iter().cloned());
        let table = RecordBatch::try_new(Schema::new(fields).into(), all);
        let table = table.map_err(|error| Error::input(error.to_string()))?;
        Ok(RowTable { table, _memory: (memory, attributes) })
    }

    /// Reads the vectors of a range of the rows. The caller must have reserved their memory.
    fn stored(&self, context: &Context, range: Range<usize>) -> Result<Vec<u8>> {
        match &self.rows {
            PlacedRows::Store(store, places) => load::vectors_at(context, store, &places[range]),
            PlacedRows::Index(index, entries) => index.vectors_of(context, &entries[range]),
            PlacedRows::Collection(located) => located.vectors(context, range),
        }
    }
}

impl Folder {
    /// Checks that rows can be written to a target. Its format is determined by the name of the file.
    ///
    /// # Errors
    /// If the format cannot have vectors, or if the target is not a file.
    pub fn check_rows_target(target: &Target) -> Result<()> {
        let Some(path) = target.path() else {
            return Err(Error::option("rows with vectors are written to a file, not to standard output; name one"));
        };
        match TableFormat::of(path) {
            Ok(TableFormat::Parquet | TableFormat::JsonLines) => Ok(()),
            Ok(TableFormat::Csv) | Err(_) => {
                let at = path.display();
                Err(Error::option(format!(
                    "{at}: rows with vectors are written as .parquet or .jsonl; give one of these extensions"
                )))
            }
        }
    }
}
