//! Writes a data set without its near-duplicates. The output has the shards of the source, and all columns unchanged.
//!
//! First, rows that a user decided to remove (`decisions.rs`) and rows with equal texts (`equal.rs`) are removed. The
//! other rows are joined by their vectors (`near_vectors.rs`) or compared by their texts (`near_texts.rs`). Of several
//! near rows, the first one in the requested order (`order.rs`) is kept. Then each file of the source is written again
//! without the removed rows ([`crate::source`]), to a file or folder that appears atomically (`place.rs`). The removed
//! rows are listed with the reasons (`removed.rs`).

mod decisions;
mod equal;
mod near_texts;
mod near_vectors;
mod order;
mod place;
mod removed;
mod texts;

use std::path::Path;
use std::sync::Arc;

use adjoin_device::Reservation;
use serde::Serialize;

use self::decisions::Decisions;
use self::equal::Equal;
use self::near_texts::NearTexts;
use self::near_vectors::NearVectors;
use self::place::OutputPlace;
use self::removed::Removed;
use crate::base::context::Context;
use crate::base::error::{Error, Result};
use crate::base::message::Argument;
use crate::base::options::Metric;
use crate::base::output::Target;
use crate::base::report::{CommonStatistics, DedupeCounts, DedupeStatistics, JoinCounts, Stopwatch, TextCounts};
use crate::base::row_numbers::{RowNumbers, RowSet};
use crate::base::sorter::{SORTER_BYTES_MIN, Sorter};
use crate::join::JoinOptions;
use crate::sink::{CarriedColumns, PairWriter, Reasons, RemovedRows, RemovedTable};
use crate::source::{Attributes, IdKind, SourceFile, SourceOptions};
use crate::sql::OrderBy;
use crate::store::{BuildOptions, FolderKind};

pub use near_texts::TextOptions;
pub(crate) use removed::Example;

/// Name of the command in statistics.
const COMMAND: &str = "dedupe";
/// Number of rows of a table that are decoded at once.
const BATCH_ROWS: usize = 1_024;
/// A sorter gets the free memory divided by this number.
const SORTING_SHARE: u64 = 4;
/// Number of sorters that exist at the same time while removed rows are listed.
const LISTING_SORTERS: u64 = 4;
/// Maximum memory of a sorter. With more memory, it would not be faster.
const SORTING_BYTES_MAX: u64 = 256 << 20;

/// Parameters of a deduplication.
pub struct Dedupe<'a> {
    /// Files, folders and globs, as accepted by [`open_source`](crate::open_source).
    pub inputs: &'a [String],
    /// Columns of the vectors and, for the list of removed rows, of the ids.
    pub source: SourceOptions,
    /// What makes two rows near-duplicates.
    pub by: Nearness,
    /// Order of the rows: of several near rows, the first in this order is kept. `None` for the order of the source.
    pub keep_by: Option<OrderBy>,
    /// Expression: rows with equal values are duplicates, even if their vectors differ.
    pub exact_text: Option<OrderBy>,
    /// File with decisions about single rows, as JSON lines. A row with the decision `keep` is never removed, and a
    /// row with the decision `remove` is always removed.
    pub decisions: Option<&'a Path>,
    /// Output: a file if the source is a single file, otherwise a folder.
    pub output: &'a Path,
    /// Target for the list of removed rows, if requested.
    pub removed: Option<Target>,
    /// Columns of the removed row and of the kept row that the lines of the list carry.
    pub columns: &'a [String],
    /// Whether an existing file is replaced.
    pub force: bool,
}

/// What makes two rows near-duplicates.
pub enum Nearness {
    /// Their vectors are within the threshold of a join.
    Vectors {
        /// Options of the store built for the join.
        build: BuildOptions,
        /// Options of the join that finds near rows.
        join: JoinOptions,
    },
    /// Their texts have many shingles in common.
    Texts(TextOptions),
}

/// Result of a deduplication.
#[derive(Debug, Serialize)]
pub struct Deduped {
    /// Statistics of the whole run, including the join.
    pub statistics: DedupeStatistics,
    /// Some rows that were removed because a near row is kept. The farthest from their kept rows are first.
    pub examples: Vec<Example>,
}

/// The files of a source, and facts about their columns.
struct Tables<'a> {
    context: &'a Context,
    files: Vec<SourceFile>,
    rows: u64,
    /// Memory for the columns of removed rows. Sorters leave it free.
    carrying: u64,
}

impl Dedupe<'_> {
    /// Runs the deduplication.
    ///
    /// # Errors
    /// If the source cannot be read, names and types are inconsistent, memory or disk space does not suffice, or the
    /// output exists. No output exists then.
    pub fn run(&self, context: &Context) -> Result<Deduped> {
        let watch = Stopwatch::start();
        self.refuse_stores(context)?;
        let finder = self.finder(context)?;
        let tables = Tables { context, files: finder.files(), rows: finder.rows(), carrying: 0 };
        // All checks that need no rows are done first, so that a run of hours does not end with a refusal.
        let place = OutputPlace::new(context, self.output, &tables.files, self.inputs, self.force)?;
        place.check(context)?;
        let ids = tables.id_kind(&self.source)?;
        let writing = place.writing_bytes(&tables)?;
        let columns = self.carried(context, tables.files.clone())?;
        let carrying = columns.as_ref().map_or(0, CarriedColumns::bytes);
        let deciding = self.decisions.map(|path| decisions::reading_bytes(context, path)).transpose()?;
        let others = writing.max(deciding.unwrap_or(0));
        let context = &context.naming_at_least(self.least_bytes(&finder, context, others, carrying));
        let tables = Tables { context, carrying, ..tables };
        drop(context.reserve(writing, "writing the data set again")?); // refused before any work
        let metric = finder.metric();
        let reasons = if self.decisions.is_some() { Reasons::WithDecisions } else { Reasons::NearOrEqual };
        let table = |target| RemovedTable::create(context, target, [ids; 2], metric, reasons, columns);
        let table = self.removed.as_ref().map(table).transpose()?; // an invalid name is reported before any work

        let read = |path| Decisions::read(&tables, &self.source, path);
        let decisions = self.decisions.map(read).transpose()?;
        let (places, _places_memory) = self.places(&tables, decisions.as_ref())?.unzip();
        let places = places.map(Arc::new);
        let equal = |text| equal::rows(&tables, text, places.as_deref(), decisions.as_ref());
        let equal = self.exact_text.as_ref().map(equal).transpose()?;
        let (left_out, _left_out_memory) = left_out(&tables, equal.as_ref(), decisions.as_ref())?;
        let never_removed = decisions.as_ref().map_or(0, |decisions| decisions.kept.len());
        let order = RowOrder { places, never_removed };
        let Found { mut common, join, text, removed: decided } = finder.find(&tables, left_out.clone(), order)?;
        let equal_rows = equal.as_ref().map_or(0, |equal| equal.gone.len());
        let decided_rows = decisions.as_ref().map_or(0, |decisions| decisions.removed.len());
        let near_rows = decided.gone.len();

        let (mut gone, memory) = (decided.gone, decided._memory);
        left_out.iter().for_each(|left_out| gone.extend(left_out));
        let by_decision = decisions.as_ref().map(|decisions| &*decisions.removed);
        let removed = Removed::new(&tables, metric, decided.pairs, equal, by_decision)?;
        if let Some(target) = self.removed.as_ref().filter(|_| ids != IdKind::None) {
            common.duplicate_ids = Some(tables.note_duplicate_ids(&self.source, target)?);
        }
        let (listed, examples) = removed.list(&tables, &self.source, table)?;
        drop(memory);
        common.io.bytes_written = Some(place.write(&tables, &gone, listed)?);
        common.command = COMMAND;
        common.seconds.total = watch.seconds();
        common.memory = context.memory();
        let kept_rows = tables.rows - equal_rows - near_rows - decided_rows;
        let source_rows = tables.rows;
        let dedupe = DedupeCounts { source_rows, equal_rows, near_rows, decided_rows, kept_rows, text, join };
        Ok(Deduped { statistics: DedupeStatistics { common, dedupe }, examples })
    }

    /// Opens the rows to compare.
    fn finder(&self, context: &Context) -> Result<Finder<'_>> {
        Ok(match &self.by {
            Nearness::Vectors { build, join } => {
                Finder::Vectors(NearVectors::open(context, self.inputs, &self.source, build, join)?)
            }
            Nearness::Texts(options) => Finder::Texts(NearTexts::open(context, self.inputs, &self.source, options)?),
        })
    }

    /// Opens the columns that the list of removed rows carries, if any.
    fn carried(&self, context: &Context, files: Vec<SourceFile>) -> Result<Option<CarriedColumns<'static>>> {
        if self.columns.is_empty() {
            return Ok(None);
        }
        let columns = Attributes::of_files(context, files, self.columns, &Argument::Columns.into())?;
        Ok(Some(CarriedColumns::of_files(columns)))
    }

    /// Returns an upper bound on the memory of all steps. `others` is the memory for reading decisions and for
    /// writing the data set, and `carrying` the memory for the columns of removed rows.
    fn least_bytes(&self, finder: &Finder<'_>, context: &Context, others: u64, carrying: u64) -> u64 {
        let rows = finder.rows();
        let has_order = self.keep_by.is_some() || self.decisions.is_some();
        let of_order = if has_order { RowNumbers::memory_bytes(rows) } else { 0 };
        // The union of the rows that are left out (by decision, or because of equal texts) is an additional set.
        let of_decisions = Decisions::memory_bytes(rows) + RowSet::memory_bytes(rows);
        let of_decisions = if self.decisions.is_some() { of_decisions } else { 0 };
        let of_equal =
            if self.exact_text.is_some() { 2 * RowSet::memory_bytes(rows) + 2 * SORTER_BYTES_MIN } else { 0 };
        let joining = finder.least_bytes(context);
        let listing = RowSet::memory_bytes(rows) + LISTING_SORTERS * SORTER_BYTES_MIN + PairWriter::memory_bytes(true);
        let listing = listing + carrying;
        of_order + of_decisions + of_equal + joining.max(listing).max(others)
    }

    fn refuse_stores(&self, context: &Context) -> Result<()> {
        for input in self.inputs {
            if let Some(kind) = FolderKind::of(context, Path::new(input))? {
                let remedy = match kind {
                    FolderKind::Collection => "write its vectors to a file with: adjoin collection snapshot",
                    FolderKind::Store | FolderKind::Index => "name the data set that it was built from",
                };
                return Err(Error::input(format!("{input} is {kind}, which is not a data set; {remedy}")));
            }
        }
        Ok(())
    }

    /// Returns the position of each row in the requested order, and the reservation for the positions. Rows that a
    /// user decided to keep are first.
    fn places(&self, tables: &Tables<'_>, decisions: Option<&Decisions>) -> Result<Option<(RowNumbers, Reservation)>> {
        let first = decisions.map(|decisions| &decisions.kept).filter(|kept| kept.len() > 0);
        match (self.keep_by.as_ref(), first) {
            (None, None) => Ok(None),
            (order, first) => order::places(tables, order, first).map(Some),
        }
    }
}

/// Order of the rows: of several near rows, the first one is kept.
struct RowOrder {
    /// Position of each row. `None` for the order of the source.
    places: Option<Arc<RowNumbers>>,
    /// Number of rows, at the first positions, that are never removed.
    never_removed: u64,
}

/// Rows to remove because a near row is kept.
struct Found {
    common: CommonStatistics,
    join: JoinCounts,
    text: Option<TextCounts>,
    removed: RemovedRows,
}

/// Search for near rows whose source is open.
enum Finder<'a> {
    Vectors(NearVectors<'a>),
    Texts(NearTexts<'a>),
}

impl Finder<'_> {
    fn files(&self) -> Vec<SourceFile> {
        match self {
            Self::Vectors(vectors) => vectors.files(),
            Self::Texts(texts) => texts.files(),
        }
    }

    fn rows(&self) -> u64 {
        match self {
            Self::Vectors(vectors) => vectors.rows(),
            Self::Texts(texts) => texts.rows(),
        }
    }

    /// Returns the metric that names and orders the values of pairs. Jaccard similarities are named and ordered like
    /// cosine similarities.
    fn metric(&self) -> Metric {
        match self {
            Self::Vectors(vectors) => vectors.metric(),
            Self::Texts(_) => Metric::Cosine,
        }
    }

    /// Returns an upper bound on the memory of the search.
    fn least_bytes(&self, context: &Context) -> u64 {
        match self {
            Self::Vectors(vectors) => vectors.least_bytes(),
            Self::Texts(texts) => texts.least_bytes(context),
        }
    }

    /// Determines which rows to remove because a near row is kept. The rows in `left_out` are not compared.
    fn find(self, tables: &Tables<'_>, left_out: Option<Arc<RowSet>>, order: RowOrder) -> Result<Found> {
        match self {
            Self::Vectors(vectors) => vectors.find(tables, left_out, order),
            Self::Texts(texts) => texts.find(tables, left_out.as_deref(), &order),
        }
    }
}

/// Returns the rows that the join leaves out: rows with equal texts, and rows removed by decision.
fn left_out(
    tables: &Tables<'_>,
    equal: Option<&Equal>,
    decisions: Option<&Decisions>,
) -> Result<(Option<Arc<RowSet>>, Option<Reservation>)> {
    Ok(match (equal, decisions) {
        (None, None) => (None, None),
        (Some(equal), None) => (Some(equal.gone.clone()), None),
        (None, Some(decisions)) => (Some(decisions.removed.clone()), None),
        (Some(equal), Some(decisions)) => {
            let memory = tables.context.reserve(RowSet::memory_bytes(tables.rows), "rows to leave out")?;
            let mut both = RowSet::clone(&equal.gone);
            both.extend(&decisions.removed);
            (Some(Arc::new(both)), Some(memory))
        }
    })
}

impl Tables<'_> {
    /// Creates a sorter that gets the free memory divided by `share`.
    fn sorter(&self, share: u64) -> Result<(Sorter, Reservation)> {
        self.sorter_beside(0, share)
    }

    /// Creates a sorter that gets the free memory, except `others` bytes for other work, divided by `share`.
    fn sorter_beside(&self, others: u64, share: u64) -> Result<(Sorter, Reservation)> {
        let bytes = self.context.budget().free().saturating_sub(self.carrying + others) / share;
        let bytes = bytes.clamp(SORTER_BYTES_MIN, SORTING_BYTES_MAX);
        let memory = self.context.reserve(bytes, "sorting rows")?;
        Ok((Sorter::new(self.context, &self.context.temporary(None), bytes), memory))
    }
}
