//! Writes a data set without its near-duplicates, shard by shard, with all columns unchanged.
//!
//! Rows with equal texts are removed first (`equal.rs`). The others are joined, and of near rows the first in the
//! requested order (`order.rs`) is kept. Then each file of the source is written again without the removed rows
//! ([`crate::source`]), to a file or folder that appears atomically (`place.rs`). The removed rows are listed with the
//! reasons (`removed.rs`).

mod equal;
mod order;
mod place;
mod removed;
mod texts;

use std::path::Path;
use std::sync::Arc;

use adjoin_device::Reservation;
use serde::Serialize;

use self::place::OutputPlace;
use self::removed::Removed;
use crate::base::context::Context;
use crate::base::error::{Error, Result};
use crate::base::message::Argument;
use crate::base::options::VectorType;
use crate::base::output::Target;
use crate::base::report::{CommonStatistics, DedupeCounts, DedupeStatistics, JoinCounts, JoinStatistics, Stopwatch};
use crate::base::row_numbers::{RowNumbers, RowSet};
use crate::base::sorter::{SORTER_BYTES_MIN, Sorter};
use crate::job::{Conditions, Job, Output, removals_bytes};
use crate::join::JoinOptions;
use crate::sink::{CarriedColumns, PairWriter, Removals, RemovedRows, RemovedTable};
use crate::source::{self, Attributes, IdChoice, IdKind, SourceFile, SourceOptions, VectorSource};
use crate::sql::OrderBy;
use crate::store::{BuildOptions, FolderKind, NoUsableRow, OnBad};

pub(crate) use removed::Example;

/// Name of the command in statistics.
const COMMAND: &str = "dedupe";
/// Rows of a table decoded at a time.
const BATCH_ROWS: usize = 1_024;
/// Sorting gets one part in this many of the free memory.
const SORTING_SHARE: u64 = 4;
/// Sorters at work at once while removed rows are listed.
const LISTING_SORTERS: u64 = 4;
/// Most memory for sorting; more would not make it faster.
const SORTING_BYTES_MAX: u64 = 256 << 20;

/// Parameters of a deduplication.
pub struct Dedupe<'a> {
    /// Files, folders and globs, as accepted by [`open_source`](crate::open_source).
    pub inputs: &'a [String],
    /// Columns of the vectors and, for the list of removed rows, of the ids.
    pub source: SourceOptions,
    /// Options of the store built for the join.
    pub build: BuildOptions,
    /// Options of the join that finds near rows.
    pub join: JoinOptions,
    /// Order in which the first of near rows is kept; default: order of the source.
    pub keep_by: Option<OrderBy>,
    /// Rows with equal values of this expression are duplicates, whatever their vectors.
    pub exact_text: Option<OrderBy>,
    /// Output: a file if the source is one, else a folder.
    pub output: &'a Path,
    /// Output of the list of removed rows.
    pub removed: Option<Target>,
    /// Columns of both rows that the lines of that list carry.
    pub columns: &'a [String],
    /// Whether an existing file is replaced.
    pub force: bool,
}

/// Result of a deduplication.
#[derive(Debug, Serialize)]
pub struct Deduped {
    /// Statistics of the whole run, including the join.
    pub statistics: DedupeStatistics,
    /// Some rows removed because a near row is kept, least near first.
    pub examples: Vec<Example>,
}

/// Statistics of the join.
type Joined = (CommonStatistics, JoinCounts);

/// The files of a source, and facts about their columns.
struct Tables<'a> {
    context: &'a Context,
    files: Vec<SourceFile>,
    rows: u64,
    vectors: VectorType,
    /// Bytes for the columns of removed rows, which sorting leaves free.
    carrying: u64,
}

impl Dedupe<'_> {
    /// Runs the deduplication.
    ///
    /// # Errors
    /// If the source cannot be read, names and types are inconsistent, memory or disk space does not suffice, or the
    /// output exists. No output is left behind then.
    pub fn run(&self, context: &Context) -> Result<Deduped> {
        let watch = Stopwatch::start();
        self.refuse_stores(context)?;
        // The join needs no ids, and two rows may have the same one.
        let by_number = SourceOptions { ids: IdChoice::RowNumbers, ..self.source.clone() };
        let source = source::open_nonempty(context, self.inputs, &by_number)?;
        let (rows, vectors) = (source.info().rows, source.info().vectors);
        let tables = Tables { context, files: source.files(), rows, vectors, carrying: 0 };
        // All checks that need no row come first: a run of hours must not end with a refusal.
        let place = OutputPlace::new(self.output, &tables.files, self.inputs, self.force)?;
        place.check(context)?;
        let ids = tables.id_kind(&self.source)?;
        let writing = place.writing_bytes(&tables)?;
        let columns = self.carried(context, source.files())?;
        let carrying = columns.as_ref().map_or(0, CarriedColumns::bytes);
        let context = &context.naming_at_least(self.least_bytes(&*source, writing, carrying));
        let tables = Tables { context, carrying, ..tables };
        drop(context.reserve(writing, "writing the data set again")?); // refused before any work
        let metric = self.join.predicate.metric();
        let table = |target| RemovedTable::create(context, target, [ids; 2], metric, true, columns);
        let table = self.removed.as_ref().map(table).transpose()?; // an invalid name is reported before any work

        let (places, _places_memory) = self.places(&tables)?.unzip();
        let places = places.map(Arc::new);
        let equal = self.exact_text.as_ref().map(|text| equal::rows(&tables, text, places.as_deref())).transpose()?;
        // Its memory serves the join, which opens the files again.
        drop(source);
        let left_out = equal.as_ref().map(|equal| equal.gone.clone());
        let ((mut common, join), decided) = self.near(&tables, by_number, left_out, places)?;
        let equal_rows = equal.as_ref().map_or(0, |equal| equal.gone.len());
        let near_rows = decided.gone.len();
        // The join counts left-out rows as skipped, but these had vectors.
        common.skipped_rows -= equal_rows;

        let (mut gone, memory) = (decided.gone, decided._memory);
        if let Some(equal) = &equal {
            gone.extend(&equal.gone);
        }
        let removed = Removed::new(&tables, metric, decided.pairs, equal)?;
        if let Some(target) = self.removed.as_ref().filter(|_| ids != IdKind::None) {
            common.duplicate_ids = Some(tables.note_duplicate_ids(&self.source, target)?);
        }
        let (listed, examples) = removed.list(&tables, &self.source, table)?;
        drop(memory);
        common.io.bytes_written = Some(place.write(&tables, &gone, listed)?);
        common.command = COMMAND;
        common.seconds.total = watch.seconds();
        common.memory = context.memory();
        let kept_rows = tables.rows - equal_rows - near_rows;
        let dedupe = DedupeCounts { source_rows: tables.rows, equal_rows, near_rows, kept_rows, join };
        Ok(Deduped { statistics: DedupeStatistics { common, dedupe }, examples })
    }

    /// Opens the columns that the list of removed rows carries, if any.
    fn carried(&self, context: &Context, files: Vec<SourceFile>) -> Result<Option<CarriedColumns<'static>>> {
        if self.columns.is_empty() {
            return Ok(None);
        }
        let columns = Attributes::of_files(context, files, self.columns, &Argument::Columns.into())?;
        Ok(Some(CarriedColumns::of_files(columns)))
    }

    /// Returns a bound on the memory of all steps, of which `writing` bytes are for the last, and `carrying` bytes for
    /// the columns of removed rows.
    fn least_bytes(&self, source: &dyn VectorSource, writing: u64, carrying: u64) -> u64 {
        let rows = source.info().rows;
        let of_order = if self.keep_by.is_some() { RowNumbers::memory_bytes(rows) } else { 0 };
        let of_equal =
            if self.exact_text.is_some() { 2 * RowSet::memory_bytes(rows) + 2 * SORTER_BYTES_MIN } else { 0 };
        let joining = removals_bytes(source, &self.build, &self.join);
        let listing = RowSet::memory_bytes(rows) + LISTING_SORTERS * SORTER_BYTES_MIN + PairWriter::memory_bytes(true);
        let listing = listing + carrying;
        of_order + of_equal + joining.max(listing).max(writing)
    }

    fn refuse_stores(&self, context: &Context) -> Result<()> {
        for input in self.inputs {
            if let Some(kind) = FolderKind::of(context, Path::new(input))? {
                let remedy = match kind {
                    FolderKind::Collection => "write its vectors to a file with: adjoin collection snapshot",
                    FolderKind::Store | FolderKind::Index => "name the data set that it was built of",
                };
                return Err(Error::input(format!("{input} is {kind}, which holds vectors alone; {remedy}")));
            }
        }
        Ok(())
    }

    /// Returns the position of each row in the requested order, and its memory reservation.
    fn places(&self, tables: &Tables<'_>) -> Result<Option<(RowNumbers, Reservation)>> {
        self.keep_by.as_ref().map(|order| order::places(tables, order)).transpose()
    }

    /// Determines which rows to remove, other than `left_out`, because a near row is kept. Rows are kept in the order
    /// of `places`, if given.
    fn near(
        &self,
        tables: &Tables<'_>,
        source: SourceOptions,
        left_out: Option<Arc<RowSet>>,
        places: Option<Arc<RowNumbers>>,
    ) -> Result<(Joined, RemovedRows)> {
        let context = tables.context;
        let removals = Removals::new(places);
        let job = Job {
            conditions: Conditions::default(),
            columns: &[],
            inputs: self.inputs,
            with: &[],
            new: &[],
            source,
            build: BuildOptions { left_out, ..self.build.clone() },
            join: self.join,
            output: Output::Removals(removals.clone()),
            yes: false,
            resume: false,
        };
        let opened = match job.open(context) {
            // If all rows are skipped, nothing is a duplicate, and all rows are copied.
            Err(error) if is_for_want_of_rows(&error) && self.build.on_bad == OnBad::Skip => {
                return self.nothing_near(tables);
            }
            opened => opened?,
        };
        let JoinStatistics { common, join, .. } = job.run(context, &opened)?;
        let decided = removals.take().ok_or_else(|| Error::input("the join ended without a decision"))?;
        Ok(((common, join), decided))
    }

    /// Returns the result if no row has a vector, so that all are kept.
    fn nothing_near(&self, tables: &Tables<'_>) -> Result<(Joined, RemovedRows)> {
        let (sorter, memory) = tables.sorter(SORTING_SHARE)?;
        let decided = RemovedRows { gone: RowSet::new(tables.rows), pairs: sorter.finish()?, _memory: memory };
        let (eps, min_similarity) = self.join.predicate.thresholds();
        let common = CommonStatistics {
            dimensions: tables.vectors.dimensions,
            element: tables.vectors.element.to_string(),
            metric: self.join.predicate.metric().to_string(),
            seed: self.build.seed,
            skipped_rows: tables.rows,
            ..tables.context.statistics(COMMAND)
        };
        let join = JoinCounts { eps, min_similarity, ..JoinCounts::default() };
        Ok(((common, join), decided))
    }
}

/// Returns whether a build failed because no usable row was left.
fn is_for_want_of_rows(error: &Error) -> bool {
    std::error::Error::source(error).is_some_and(|cause| cause.is::<NoUsableRow>())
}

impl Tables<'_> {
    /// Creates a sorter with one part in `share` of the free memory.
    fn sorter(&self, share: u64) -> Result<(Sorter, Reservation)> {
        let bytes = self.context.budget().free().saturating_sub(self.carrying) / share;
        let bytes = bytes.clamp(SORTER_BYTES_MIN, SORTING_BYTES_MAX);
        let memory = self.context.reserve(bytes, "sorting rows")?;
        Ok((Sorter::new(self.context, &self.context.temporary(None), bytes), memory))
    }
}
