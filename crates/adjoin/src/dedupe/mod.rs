//! The data set without its near-duplicates: all columns, shard by shard, as they were.
//!
//! Rows that say the same go first (`equal.rs`), the others are joined, and of near ones the first stays, in the order that
//! was asked for (`order.rs`). Then each file of the source is written again without the rows that go ([`crate::source`]),
//! into a place that appears at once (`place.rs`), and what went is listed with its reasons (`removed.rs`).

mod equal;
mod order;
mod place;
mod removed;
mod texts;

use std::path::Path;
use std::sync::Arc;

use adjoin_device::Reservation;
use serde::Serialize;

use self::place::Place;
use self::removed::Removed;
use crate::context::Context;
use crate::error::{Error, Result};
use crate::job::{Conditions, Job, Output};
use crate::join::JoinOptions;
use crate::options::VectorType;
use crate::output::Target;
use crate::report::{CommonStatistics, DedupeCounts, DedupeStatistics, JoinCounts, JoinStatistics, Stopwatch};
use crate::row_numbers::{RowNumbers, RowSet};
use crate::sink::{Decided, Removals, RemovedTable};
use crate::sorter::{SORTER_BYTES_MIN, Sorter};
use crate::source::{self, IdChoice, IdKind, SourceFile, SourceOptions};
use crate::sql::OrderBy;
use crate::store::{BuildOptions, Kind, NoUsableRow, OnBad, kind_of};

pub use removed::Example;

/// As statistics call it.
const COMMAND: &str = "dedupe";
/// Rows of a table that are decoded at a time.
const BATCH_ROWS: usize = 1_024;
/// The part of the free memory that goes to sorting.
const SORTING_SHARE: u64 = 4;
/// The most that sorting is given: more would not make it faster.
const SORTING_BYTES_MAX: u64 = 256 << 20;

/// What is wanted.
pub struct Dedupe<'a> {
    /// Files, folders and globs, as [`source::open`] takes them.
    pub inputs: &'a [String],
    /// Which columns are the vectors and, in the list of what went, the ids.
    pub source: SourceOptions,
    /// How vectors are laid on disk for the join.
    pub build: BuildOptions,
    /// Which rows are near each other.
    pub join: JoinOptions,
    /// Of near rows the first in this order stays; the first of the source where none is given.
    pub keep_by: Option<OrderBy>,
    /// Rows for which this is equal count as one, whatever their vectors are.
    pub exact_text: Option<OrderBy>,
    /// Where the data set goes: a file where the source is one, else a folder.
    pub output: &'a Path,
    /// Where the list of rows that went goes.
    pub removed: Option<Target>,
    /// Whether a file that is there is replaced.
    pub force: bool,
}

/// What was done.
#[derive(Debug, Serialize)]
pub struct Deduped {
    /// Of the whole, the join in it.
    pub statistics: DedupeStatistics,
    /// Some rows that went because they are near one that stays, the least near first.
    pub examples: Vec<Example>,
}

/// What the join within tells.
type Joined = (CommonStatistics, JoinCounts);

/// The files of a source and what is read of their columns.
struct Tables<'a> {
    context: &'a Context,
    files: Vec<SourceFile>,
    rows: u64,
    vectors: VectorType,
}

impl Dedupe<'_> {
    /// Does it.
    ///
    /// # Errors
    /// Where the source cannot be read, names and types do not go together, memory or disk do not suffice, or the output
    /// is there already. Nothing is left of the output then.
    pub fn run(&self, context: &Context) -> Result<Deduped> {
        let watch = Stopwatch::start();
        self.refuse_stores(context)?;
        let by_number = SourceOptions { ids: IdChoice::RowNumbers, ..self.source.clone() };
        let source = source::open_nonempty(context, self.inputs, &by_number)?;
        let (rows, vectors) = (source.info().rows, source.info().vectors);
        let tables = Tables { context, files: source.files(), rows, vectors };
        let place = Place::new(self.output, &tables.files, self.inputs, self.force)?;
        place.check(context)?;
        let ids = tables.id_kind(&self.source)?;
        place.check_memory(&tables)?;
        let metric = self.join.predicate.metric();
        let table = |target| RemovedTable::create(context, target, ([ids; 2], metric), true);
        let table = self.removed.as_ref().map(table).transpose()?; // what is wrong with its name shows before any work

        let (places, _places_memory) = self.places(&tables)?.unzip();
        let places = places.map(Arc::new);
        let equal = self.exact_text.as_ref().map(|text| equal::rows(&tables, text, places.as_deref())).transpose()?;
        drop(source);
        let left_out = equal.as_ref().map(|equal| equal.gone.clone());
        let ((mut common, join), decided) = self.near(&tables, by_number, (left_out, places))?;
        let equal_rows = equal.as_ref().map_or(0, |equal| equal.gone.len());
        let near_rows = decided.gone.len();
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

    fn refuse_stores(&self, context: &Context) -> Result<()> {
        for input in self.inputs {
            if let Some(kind) = kind_of(context, Path::new(input))? {
                let remedy = match kind {
                    Kind::Live => "write its vectors to a file with: adjoin live snapshot",
                    Kind::Store | Kind::Index => "name the data set that it was built of",
                };
                return Err(Error::input(format!("{input} is {kind}, which holds vectors alone; {remedy}")));
            }
        }
        Ok(())
    }

    /// The place of each row in the order that was asked for, and the memory of that.
    fn places(&self, tables: &Tables<'_>) -> Result<Option<(RowNumbers, Reservation)>> {
        self.keep_by.as_ref().map(|order| order::places(tables, order)).transpose()
    }

    /// Which of the rows that are not left out go, as they are near one that stays.
    fn near(
        &self,
        tables: &Tables<'_>,
        source: SourceOptions,
        (left_out, places): (Option<Arc<RowSet>>, Option<Arc<RowNumbers>>),
    ) -> Result<(Joined, Decided)> {
        let context = tables.context;
        let removals = Removals::new(places);
        let job = Job {
            conditions: Conditions::default(),
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
            Err(error) if is_for_want_of_rows(&error) && self.build.on_bad == OnBad::Skip => {
                return self.nothing_near(tables);
            }
            opened => opened?,
        };
        let JoinStatistics { common, join, .. } = job.run(context, &opened)?;
        let decided = removals.take().ok_or_else(|| Error::input("the join ended without a decision"))?;
        Ok(((common, join), decided))
    }

    /// What there is to say where no row has a vector, so that all stay.
    fn nothing_near(&self, tables: &Tables<'_>) -> Result<(Joined, Decided)> {
        let (sorter, memory) = tables.sorter(SORTING_SHARE)?;
        let decided = Decided { gone: RowSet::new(tables.rows), pairs: sorter.finish()?, _memory: memory };
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

/// Whether a build had no row left to build a store of.
fn is_for_want_of_rows(error: &Error) -> bool {
    std::error::Error::source(error).is_some_and(|cause| cause.is::<NoUsableRow>())
}

impl Tables<'_> {
    /// A sorter beside others: `share` is one over its part of the free memory.
    fn sorter(&self, share: u64) -> Result<(Sorter, Reservation)> {
        let bytes = self.context.budget().free() / share;
        let bytes = bytes.clamp(SORTER_BYTES_MIN, SORTING_BYTES_MAX);
        let memory = self.context.reserve(bytes, "sorting rows")?;
        Ok((Sorter::new(self.context, &self.context.temporary(None), bytes), memory))
    }
}
