//! What a job makes of the pairs, and whether there is room for that.

use std::path::Path;

use crate::context::Context;
use crate::error::{Error, ErrorKind, Result};
use crate::join::{JoinOptions, Sets, least_memory, more_to_calibrate};
use crate::message::{Argument, message};
use crate::options::{format_bytes, format_count};
use crate::output::{Target, parent};
use crate::predicate::Predicate;
use crate::sink::{Clusters, Counts, Discard, Keep, KeepRule, PairSchema, PairSink, PairWriter, Removals, TableFormat};
use crate::store::Store;

/// A result is announced when it is so many times as large as the vectors, and not small.
const RESULT_MUCH_LARGER: u64 = 4;
const RESULT_SMALL_BYTES: u64 = 16 << 20;

/// What a result of rows holds whatever they are: sorters and tables; and of each row, about.
const ROWS_BYTES: u64 = 14 << 20;
const BYTES_A_ROW: u64 = 12;

/// What a job gives beside its statistics.
pub enum Output<'a> {
    /// The pairs as a table; nothing where it goes nowhere.
    Pairs(Option<Target>),
    /// The pairs with their ids, to a sink that the caller makes for them.
    Sink(&'a (dyn Fn(PairSchema) -> Result<Box<dyn PairSink>> + Sync)),
    /// The number of neighbours of each row.
    Counts(Option<Target>),
    /// Rows connected by chains of pairs.
    Clusters(Option<Target>),
    /// Rows that go, so that of similar ones one is left, for the caller to go on with.
    Removals(Removals),
    /// Rows that stay and rows that go, as tables of ids.
    Keep {
        /// Which one.
        rule: KeepRule,
        /// The table of rows that go.
        removed: Option<Target>,
        /// The table of rows that stay.
        kept: Option<Target>,
    },
}

impl Output<'_> {
    /// Where most of it goes.
    pub fn target(&self) -> Option<&Target> {
        match self {
            Self::Pairs(target) | Self::Counts(target) | Self::Clusters(target) => target.as_ref(),
            Self::Keep { removed, kept, .. } => removed.as_ref().or(kept.as_ref()),
            Self::Sink(_) | Self::Removals(_) => None,
        }
    }

    /// Its name.
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
        matches!(self, Self::Pairs(Some(_)) | Self::Sink(_))
    }

    /// Returns a bound on what the result holds of so many rows beside the join, about.
    pub(super) fn bound(&self, rows: u64) -> u64 {
        match self {
            Self::Pairs(_) | Self::Sink(_) => 0,
            _ => ROWS_BYTES + rows * BYTES_A_ROW,
        }
    }

    /// A sink for rows; it takes its memory, and refuses a budget that holds it but not the join.
    pub(super) fn sink_of_rows<'s>(
        &self,
        context: &'s Context,
        sets: Sets<'s>,
        options: &JoinOptions,
    ) -> Result<Option<Box<dyn PairSink + 's>>> {
        match self {
            Self::Pairs(_) | Self::Sink(_) => Ok(None),
            _ => {
                let least = least_memory(sets, options)?;
                self.rows(context, sets, options.predicate, least).or_else(|refused| match refused.kind() {
                    // A budget that the refusal names must suffice for a calibration too, which may not come.
                    ErrorKind::Budget => {
                        self.rows(context, sets, options.predicate, least + more_to_calibrate(sets, options)?)
                    }
                    _ => Err(refused),
                })
            }
        }
    }

    /// A sink that says something of each row, given which pairs it takes, while `beside` bytes are left to others; none
    /// where pairs are wanted.
    ///
    /// # Errors
    /// Where memory does not suffice, or a table cannot be written.
    pub fn rows<'s>(
        &self,
        context: &'s Context,
        sets: Sets<'s>,
        predicate: Predicate,
        beside: u64,
    ) -> Result<Option<Box<dyn PairSink + 's>>> {
        Ok(match self {
            Self::Pairs(_) | Self::Sink(_) => None,
            Self::Counts(target) => Some(Box::new(Counts::create(context, sets, target.as_ref(), beside)?)),
            Self::Clusters(target) => Some(Box::new(Clusters::create(context, sets, target.as_ref(), beside)?)),
            Self::Removals(removals) => Some(Box::new(removals.sink(context, sets.left(), beside)?)),
            Self::Keep { rule, removed, kept } => {
                let targets = (removed.as_ref(), kept.as_ref());
                Some(Box::new(Keep::create(context, sets, *rule, targets, beside)?.of_pairs(predicate)))
            }
        })
    }

    /// Where pairs go as they come.
    pub(super) fn sink_of_pairs(&self, context: &Context, sets: Sets<'_>) -> Result<Box<dyn PairSink>> {
        let schema = schema_of(sets);
        Ok(match self {
            Self::Pairs(Some(target)) => Box::new(PairWriter::create(context, target, schema)?),
            Self::Sink(make) => make(schema)?,
            _ => Box::new(Discard),
        })
    }

    /// Says so where the result is going to be much larger than what it is made from; refuses it where the disk has no
    /// room for it and nobody said to try.
    pub(super) fn announce(&self, context: &Context, sets: Sets<'_>, pairs: u64, yes: bool) -> Result<()> {
        let Some(path) = self.target().and_then(Target::path) else { return Ok(()) };
        let (place, sorting) = (path.display(), context.temporary(Some(parent(path))));
        let (a_pair, what, at): (_, _, &Path) = match self {
            Self::Pairs(_) => {
                (TableFormat::of(path)?.bytes_of_a_pair(schema_of(sets).ids), place.to_string(), parent(path))
            }
            Self::Keep { rule: KeepRule::Greedy, .. } => {
                (Keep::BYTES_OF_A_PAIR, format!("sorting pairs for {place}"), &sorting)
            }
            _ => return Ok(()), // a line for each row at most
        };
        let bytes = pairs.saturating_mul(a_pair);
        let of = |store: &Store| store.manifest().rows * store.manifest().vectors.bytes() as u64;
        let source: u64 = sets.stores().map(of).sum();
        let free = context.device.free_bytes(at)?;
        if bytes > free && !yes {
            let (wanted, free) = (format_bytes(bytes), format_bytes(free));
            return Err(Error::device(message![
                format!("{what} would take about {wanted}, the disk has {free} free; give a stricter threshold, "),
                "another folder, or ",
                Argument::Yes,
                " to try"
            ]));
        }
        if bytes > (RESULT_MUCH_LARGER * source).max(RESULT_SMALL_BYTES) {
            let (pairs, result, source) = (format_count(pairs, "pair"), format_bytes(bytes), format_bytes(source));
            context.progress.note(&format!("about {pairs} expected, which take {result}; the vectors take {source}"));
        }
        Ok(())
    }
}

/// What is known of the pairs of sets before the first comes.
pub fn schema_of(sets: Sets<'_>) -> PairSchema {
    let ids = [sets.left(), sets.right()].map(|store| store.manifest().ids);
    PairSchema { ids, metric: sets.left().manifest().metric }
}
