//! The result of a job, and the check that the disk has enough space for it.

use std::path::{Path, PathBuf};

use crate::base::choice::choices;
use crate::base::context::Context;
use crate::base::error::{Error, Result};
use crate::base::message::{Argument, message};
use crate::base::options::{format_bytes, format_count};
use crate::base::output::Target;
use crate::base::predicate::Predicate;
use crate::join::{JoinOptions, Sets, least_memory};
use crate::sink::{
    CarriedColumns, Clusters, Counts, Discard, Keep, KeepRule, PairSchema, PairSink, PairWriter, Removals, TableFormat,
};
use crate::source::IdKind;
use crate::store::Store;

/// The size of a result is reported if it is at least this multiple of the size of the vectors, and at least
/// `RESULT_SMALL_BYTES`.
const RESULT_MUCH_LARGER: u64 = 4;
const RESULT_SMALL_BYTES: u64 = 16 << 20;

/// Memory of a result about rows: for sorters and tables, and approximately per row.
const ROWS_BYTES: u64 = 14 << 20;
const BYTES_A_ROW: u64 = 12;

/// Kind of a join's result.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum ResultKind {
    /// All pairs.
    #[default]
    Pairs,
    /// The number of neighbors of each row.
    Counts,
    /// Rows connected by chains of pairs.
    Clusters,
    /// Rows to remove, so that one of several similar rows is left. Each is listed with the row that is kept for it.
    Removed,
    /// The rows that are kept.
    Kept,
}

choices! {
    "the result" => ResultKind {
        Pairs = "pairs", Counts = "counts", Clusters = "clusters", Removed = "removed", Kept = "kept",
    }
}

impl ResultKind {
    /// Returns the output of this kind. `rule` selects the rows to keep.
    pub fn output(self, target: Option<Target>, rule: KeepRule) -> Output<'static> {
        match self {
            Self::Pairs => Output::Pairs(target),
            Self::Counts => Output::Counts(target),
            Self::Clusters => Output::Clusters(target),
            Self::Removed => Output::Keep { rule, removed: target, kept: None },
            Self::Kept => Output::Keep { rule, removed: None, kept: target },
        }
    }
}

/// Result of a job, in addition to its statistics.
pub enum Output<'a> {
    /// The pairs, as a table. `None` discards them.
    Pairs(Option<Target>),
    /// The pairs with their ids, passed to a sink that the caller creates.
    Sink(&'a (dyn Fn(PairSchema) -> Result<Box<dyn PairSink>> + Sync)),
    /// The number of neighbors of each row.
    Counts(Option<Target>),
    /// Clusters: rows connected by chains of pairs.
    Clusters(Option<Target>),
    /// Rows to remove, so that one of several similar rows is left. The caller processes them further.
    Removals(Removals),
    /// Kept and removed rows, as tables of ids.
    Keep {
        /// The rule that selects the kept row.
        rule: KeepRule,
        /// The table of removed rows.
        removed: Option<Target>,
        /// The table of kept rows.
        kept: Option<Target>,
    },
}

impl Output<'_> {
    /// Returns the main target of the result.
    pub fn target(&self) -> Option<&Target> {
        match self {
            Self::Pairs(target) | Self::Counts(target) | Self::Clusters(target) => target.as_ref(),
            Self::Keep { removed, kept, .. } => removed.as_ref().or(kept.as_ref()),
            Self::Sink(_) | Self::Removals(_) => None,
        }
    }

    /// Returns the folder for temporary files of work on the result.
    pub(super) fn temporary(&self, context: &Context) -> PathBuf {
        context.temporary(self.target().and_then(Target::path).map(Target::parent_of))
    }

    /// Returns the name of the result.
    pub(super) fn name(&self) -> String {
        match self {
            Self::Pairs(_) | Self::Sink(_) => "pairs".into(),
            Self::Counts(_) => "counts".into(),
            Self::Clusters(_) => "clusters".into(),
            Self::Removals(_) => "removals".into(),
            Self::Keep { rule, .. } => format!("keep {rule:?}"),
        }
    }

    pub(super) fn wants_ids(&self) -> bool {
        // Results about rows look up ids at the end, only for the rows of the result.
        matches!(self, Self::Pairs(Some(_)) | Self::Sink(_))
    }

    /// Returns the kinds of the left and right ids with which pairs are stored for the result.
    pub(super) fn ids_of_pairs(&self, sets: Sets<'_>) -> [IdKind; 2] {
        let wanted = self.wants_ids();
        [sets.left(), sets.right()].map(|store| if wanted { store.manifest().ids } else { IdKind::None })
    }

    /// Returns an approximate upper bound on the memory of the result for `rows` rows. The memory of the join is not
    /// included.
    pub(super) fn bound(&self, rows: u64) -> u64 {
        match self {
            // The memory of the writer of pairs is part of the memory of the join.
            Self::Pairs(_) | Self::Sink(_) => 0,
            _ => ROWS_BYTES + rows * BYTES_A_ROW,
        }
    }

    /// Creates a sink for results about rows and reserves its memory. Fails if the budget does not suffice for the
    /// sink and the join together.
    pub(super) fn sink_of_rows<'s>(
        &self,
        context: &'s Context,
        sets: Sets<'s>,
        options: &JoinOptions,
    ) -> Result<Option<Box<dyn PairSink + 's>>> {
        match self {
            Self::Pairs(_) | Self::Sink(_) => Ok(None),
            _ => self.rows(context, sets, options.predicate, least_memory(sets, options)?, &[]),
        }
    }

    /// Creates a sink for pairs within `predicate` that an earlier join has found. Pairs, removed rows and
    /// rows of clusters carry the columns `columns`, which all stores must keep.
    ///
    /// # Errors
    /// Fails if memory does not suffice, a table cannot be written, or columns cannot be read.
    pub fn sink<'s>(
        &self,
        context: &'s Context,
        sets: Sets<'s>,
        predicate: Predicate,
        columns: &[String],
    ) -> Result<Box<dyn PairSink + 's>> {
        let rows = self.rows(context, sets, predicate, 0, columns)?;
        rows.map_or_else(|| self.sink_of_pairs(context, sets, columns), Ok)
    }

    /// Returns the sets with rows numbered as in the result. Rows of clusters have one column for the rows of both sets.
    pub(super) fn numbered<'s>(&self, sets: Sets<'s>) -> Sets<'s> {
        if matches!(self, Self::Clusters(_)) { sets.united() } else { sets }
    }

    /// Refuses columns if the lines of the result cannot carry them.
    pub(super) fn check_columns(&self, columns: &[String]) -> Result<()> {
        let words = match self {
            _ if columns.is_empty() => return Ok(()),
            Self::Pairs(_) | Self::Sink(_) | Self::Clusters(_) | Self::Keep { removed: Some(_), .. } => return Ok(()),
            _ => " is for pairs, removed rows and clusters; leave it out",
        };
        Err(Error::option(message![Argument::Columns, words]))
    }

    /// Creates a sink for results about rows, from pairs within `predicate`. Leaves `join_bytes` bytes of memory for
    /// the join. Returns `None` if the result is pairs. Removed rows and rows of clusters carry `columns`.
    ///
    /// # Errors
    /// Fails if memory does not suffice or a table cannot be written.
    pub(super) fn rows<'s>(
        &self,
        context: &'s Context,
        sets: Sets<'s>,
        predicate: Predicate,
        join_bytes: u64,
        columns: &[String],
    ) -> Result<Option<Box<dyn PairSink + 's>>> {
        Ok(match self {
            Self::Pairs(_) | Self::Sink(_) => None,
            Self::Counts(target) => Some(Box::new(Counts::create(context, sets, target.as_ref(), join_bytes)?)),
            Self::Clusters(target) => {
                let columns = CarriedColumns::of_sets(context, self.numbered(sets), columns)?;
                Some(Box::new(Clusters::with_columns(context, sets, target.as_ref(), join_bytes, columns)?))
            }
            Self::Removals(removals) => Some(Box::new(removals.sink(context, sets.left(), join_bytes)?)),
            Self::Keep { rule, removed, kept } => {
                let columns = CarriedColumns::of_sets(context, sets, columns)?;
                let targets = [removed.as_ref(), kept.as_ref()];
                let keep = Keep::with_columns(context, sets, *rule, targets, join_bytes, columns)?;
                Some(Box::new(keep.of_pairs(predicate)))
            }
        })
    }

    /// Creates the sink if the result is pairs. Pairs carry `columns`.
    pub(super) fn sink_of_pairs<'s>(
        &self,
        context: &Context,
        sets: Sets<'s>,
        columns: &[String],
    ) -> Result<Box<dyn PairSink + 's>> {
        let schema = sets.schema();
        Ok(match self {
            Self::Pairs(Some(target)) => {
                let columns = CarriedColumns::of_sets(context, sets, columns)?;
                Box::new(PairWriter::with_columns(context, target, schema, columns)?)
            }
            Self::Sink(make) => make(schema)?,
            _ => Box::new(Discard),
        })
    }

    /// Reports if the result will be much larger than its input. Fails if the disk has too little space for it, unless
    /// `yes` is true.
    pub(super) fn announce(&self, context: &Context, sets: Sets<'_>, pairs: u64, yes: bool) -> Result<()> {
        let Some(path) = self.target().and_then(Target::path) else { return Ok(()) };
        let (place, sorting) = (path.display(), context.temporary(Some(Target::parent_of(path))));
        // The greedy rule sorts all pairs in temporary files. These may be on another disk than the result.
        let (a_pair, what, at): (_, _, &Path) = match self {
            Self::Pairs(_) => {
                (TableFormat::of(path)?.bytes_of_a_pair(sets.schema().ids), place.to_string(), Target::parent_of(path))
            }
            Self::Keep { rule: KeepRule::Greedy, .. } => {
                (Keep::BYTES_OF_A_PAIR, format!("sorting pairs for {place}"), &sorting)
            }
            _ => return Ok(()), // at most one line per row
        };
        // The product saturates, since the estimated number of pairs may be very large.
        let bytes = pairs.saturating_mul(a_pair);
        let of = |store: &Store| store.manifest().rows * store.manifest().vectors.bytes() as u64;
        let source: u64 = sets.stores().map(of).sum();
        let free = context.device.free_bytes(at)?;
        if bytes > free && !yes {
            let (wanted, free) = (format_bytes(bytes), format_bytes(free));
            return Err(Error::device(message![
                format!("{what} needs about {wanted}, but the disk has {free} free; give a stricter threshold, "),
                "another folder, or ",
                Argument::Yes,
                " to try anyway"
            ]));
        }
        if bytes > (RESULT_MUCH_LARGER * source).max(RESULT_SMALL_BYTES) {
            let (pairs, result, source) = (format_count(pairs, "pair"), format_bytes(bytes), format_bytes(source));
            context.progress.note(&format!(
                "about {pairs} expected, which take {result}, while the vectors take \
                                            {source}"
            ));
        }
        Ok(())
    }
}

impl Sets<'_> {
    /// Returns the properties of the pairs of two sets that are known in advance.
    pub fn schema(self) -> PairSchema {
        let ids = [self.left(), self.right()].map(|store| store.manifest().ids);
        // New rows and the rows of the store form one set, with consecutive row numbers.
        let of_two_sets = self.second_by() == Some(Argument::With);
        PairSchema { ids, metric: self.left().manifest().metric, of_two_sets }
    }
}
