//! Chooses rows to remove, so that no two kept rows are near each other.

use adjoin_device::WRITE_BUFFER_BYTES;

use super::components::Components;
use super::line_table::CarriedColumns;
use super::removed_table::{NamedRow, Reason, Reasons, RemovedTable};
use super::row_ids::{IdColumn, Rows, SinkNeeds};
use super::sink::{PairBatch, PairSink, Written};
use super::table::{Ended, TableWriter};
use crate::base::choice::choices;
use crate::base::context::Context;
use crate::base::error::{Error, Result};
use crate::base::message::{Argument, message};
use crate::base::options::{Metric, VectorType, format_count, format_number};
use crate::base::output::Target;
use crate::base::predicate::{Predicate, cosine, squared_distance};
use crate::base::row_numbers::{ROW_BYTES, RowSet};
use crate::base::sorter::{Records, Sorted, Sorter};
use crate::load::Sets;
use crate::store::Store;

/// Rule that chooses the rows to keep.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum KeepRule {
    /// Visits rows in order, and removes a row only if a kept row is within the threshold. The nearest such row is
    /// the row kept for it. So each removed row is near a kept one, also in a chain of neighbors.
    #[default]
    Greedy,
    /// Keeps only the first row of each cluster, even if other rows are far from it.
    Cluster,
}

choices! { "the rule to keep rows" => KeepRule { Greedy = "greedy", Cluster = "cluster" } }

/// Chooses the rows to keep. If there are two sets, a row of the first set is removed if a row of the second is
/// within the threshold; all rows of the second are kept. If a set has grown, only its new rows are removed.
///
/// The table of removed rows has a line per row: `id`, `kept_id`, and the `distance` or `similarity` of the two rows.
/// The kept rows that pass the filter can be written to a second table: `id`, in the order of rows.
pub struct Keep<'a> {
    rows: Rows<'a>,
    pairs: Pairs,
    tables: Tables<'a>,
    /// Predicate of the join. The cluster rule uses it to count removed rows that are not within the threshold of their
    /// kept row.
    predicate: Option<Predicate>,
}

/// Data that is collected from pairs, by rule.
enum Pairs {
    /// All pairs, sorted by their later row.
    Greedy(Box<Sorter>),
    Cluster(Components),
}

impl<'a> Keep<'a> {
    /// Bytes on disk of a pair that is sorted for the greedy rule: two rows, the length of the value, and the value.
    pub const BYTES_OF_A_PAIR: u64 = (2 * ROW_BYTES + 1 + size_of::<f32>()) as u64;

    /// Creates the sink for the tables `removed` and `kept`. Without these tables, the sink only reports the summary.
    /// Reserves its memory before the join is planned, and leaves at least `join_bytes` bytes for the join.
    ///
    /// # Errors
    /// If memory does not suffice, or a table cannot be created ([`super::PairWriter::create`]).
    pub fn create(
        context: &'a Context,
        sets: impl Into<Sets<'a>>,
        rule: KeepRule,
        removed: Option<&Target>,
        kept: Option<&Target>,
        join_bytes: u64,
    ) -> Result<Self> {
        Self::with_columns(context, sets, rule, [removed, kept], join_bytes, None)
    }

    /// Creates the sink as [`Self::create`] does. Removed rows carry `columns`, if given, which take additional
    /// memory.
    ///
    /// # Errors
    /// As [`Self::create`].
    pub(crate) fn with_columns(
        context: &'a Context,
        sets: impl Into<Sets<'a>>,
        rule: KeepRule,
        [removed, kept]: [Option<&Target>; 2],
        join_bytes: u64,
        columns: Option<CarriedColumns<'a>>,
    ) -> Result<Self> {
        let sets = sets.into();
        let store = sets.left();
        refuse_duplicate_ids(sets.results_of().store())?;
        if let Some(option) = sets.second_by().filter(|_| rule == KeepRule::Cluster) {
            return Err(Error::option(message!["clusters need a single set; leave out the rule cluster, or ", option]));
        }
        let end = Rows::end(sets);
        let (bytes, sorters_during, sorters_after) = match rule {
            // During the join, one sorter has the pairs. After the join, there are three at the same time: one has the
            // rows, one the removed rows by their kept row, and one the removed rows by their own row.
            KeepRule::Greedy => (RowSet::memory_bytes(end) + WRITE_BUFFER_BYTES as u64, 1, 3),
            KeepRule::Cluster => (Components::memory_bytes(end), 0, 1),
        };
        // Removed rows are written with their columns after the join, with memory that the join has used before.
        let join_bytes = join_bytes + columns.as_ref().map_or(0, CarriedColumns::bytes);
        let needs = SinkNeeds { bytes, sorters_during, sorters_after, join_bytes, purpose: "choosing rows to keep" };
        let rows = Rows::reserve(context, sets, [removed, kept], needs)?;
        let pairs = match rule {
            KeepRule::Greedy => Pairs::Greedy(Box::new(rows.sorter())),
            KeepRule::Cluster => Pairs::Cluster(Components::new(end)),
        };
        let ids = [sets.results_of().store(), sets.right()].map(|store| store.manifest().ids);
        let metric = store.manifest().metric;
        let table = |target| RemovedTable::create(context, target, ids, metric, Reasons::Near, columns);
        let removed = removed.map(table).transpose()?;
        let kept = kept.map(|target| KeptRows::create(&rows, target)).transpose()?;
        Ok(Self { rows, pairs, tables: Tables { removed, kept }, predicate: None })
    }

    /// Makes the cluster rule count removed rows that are not within the threshold of the row kept for them.
    #[must_use]
    pub fn of_pairs(self, predicate: Predicate) -> Self {
        Self { predicate: Some(predicate), ..self }
    }
}

/// Summary of the removed rows.
#[derive(Default)]
struct Removed {
    rows: u64,
    largest_cluster: u64,
    beyond_threshold: Option<u64>,
    spill_bytes: u64,
}

impl PairSink for Keep<'_> {
    fn wants_ids(&self) -> bool {
        false
    }

    fn accept(&mut self, batch: &PairBatch) -> Result<()> {
        let mut pairs = batch.left_rows.iter().zip(&batch.right_rows).zip(&batch.values);
        match &mut self.pairs {
            Pairs::Greedy(sorter) => pairs.try_for_each(|((&left, &right), value)| {
                let (row, near) = self.rows.later_first(left, right);
                sorter.push((row, near), &value.to_le_bytes())
            }),
            Pairs::Cluster(components) => {
                pairs.for_each(|((&left, &right), _)| components.join(left, right));
                Ok(())
            }
        }
    }

    fn finish(self: Box<Self>) -> Result<Written> {
        let Self { rows, pairs, mut tables, predicate } = *self;
        let done = match pairs {
            Pairs::Greedy(pairs) => greedy(&rows, pairs.finish()?, &mut tables)?,
            Pairs::Cluster(components) => first_of_each(&rows, components, &mut tables, predicate)?,
        };
        let (all, progress) = (rows.covered_rows(), rows.context.progress.clone());
        progress.note(&done.in_words(all));
        // Both files are completed before either is published.
        let Tables { removed, kept } = tables;
        let (removed, kept) = (removed.map(RemovedTable::end).transpose()?, kept.map(KeptRows::end).transpose()?);
        let publish = |ended: Option<Ended>| ended.map_or(Ok(Written::default()), Ended::publish);
        let (removed, kept) = (publish(removed)?, publish(kept)?);
        let written = Written {
            rows: removed.rows,
            kept_rows: kept.rows,
            bytes: removed.bytes + kept.bytes,
            spill_bytes: done.spill_bytes,
            largest_cluster: Some(done.largest_cluster),
            removed_beyond_threshold: done.beyond_threshold,
        };
        written.cluster_warning(all).iter().for_each(|warning| progress.note(warning));
        Ok(written)
    }
}

impl Removed {
    fn in_words(&self, all: u64) -> String {
        let [to_keep, of, to_remove] = [all - self.rows, all, self.rows].map(format_number);
        let summary = format!("{to_keep} of {of} rows to keep, {to_remove} to remove");
        match self.beyond_threshold {
            Some(beyond) if beyond > 0 => {
                let [beyond, largest] = [beyond, self.largest_cluster].map(format_number);
                format!(
                    "{summary}; {beyond} of these are not within the threshold of their kept row (the largest \
                     cluster has {largest} rows)"
                )
            }
            _ => summary,
        }
    }
}

/// Refuses a store with duplicate ids. A duplicate id does not identify a row: a user who removes all rows with this
/// id would also remove the row to keep.
fn refuse_duplicate_ids(store: &Store) -> Result<()> {
    match store.manifest().duplicate_ids {
        0 => Ok(()),
        count => {
            let count = format_count(count, "id");
            Err(Error::input(message![
                format!(
                    "{count} found more than once, so ids do not identify the rows to keep; make ids unique, or build \
                     with "
                ),
                Argument::NoIds,
                " to use row numbers"
            ]))
        }
    }
}

/// Tables of removed and of kept rows, if requested.
struct Tables<'a> {
    removed: Option<RemovedTable<'a>>,
    kept: Option<KeptRows>,
}

/// Applies the greedy rule. In the summary, a cluster is a kept row with the rows that were removed for it.
fn greedy(rows: &Rows<'_>, mut pairs: Sorted, tables: &mut Tables<'_>) -> Result<Removed> {
    let mut removed_rows = RowSet::new(rows.count());
    let (mut by_kept, mut removed) = (rows.sorter(), Removed::default());
    decide(&mut pairs, rows.store.manifest().metric, &mut removed_rows, |(row, near), record| {
        removed.rows += 1;
        by_kept.push((near, row), &record[..size_of::<f32>()])
    })?;
    removed.spill_bytes = pairs.spilled();
    // The sorted pairs are dropped now, to free their memory and disk space before the next sort.
    drop(pairs);
    // Ids are read in the order of rows. So removed rows are sorted by kept row first, to get the id of the kept row,
    // and then by their own row.
    let mut by_kept = by_kept.finish()?;
    removed.largest_cluster = largest_cluster(&mut by_kept)?;
    removed.spill_bytes += match tables {
        Tables { removed: None, kept: None } => by_kept.spilled(),
        tables => name(rows, &removed_rows, by_kept, tables)?,
    };
    Ok(removed)
}

/// Returns the number of rows of the largest cluster. `by_kept` has the removed rows, sorted by the row kept for
/// them.
pub(super) fn largest_cluster(by_kept: &mut Sorted) -> Result<u64> {
    let (mut payload, mut kept, mut size, mut largest) = (Vec::new(), None, 0, 0);
    while let Some((near, _)) = by_kept.next(&mut payload)? {
        if kept != Some(near) {
            (kept, size) = (Some(near), 1); // the kept row itself
        }
        size += 1;
        largest = largest.max(size);
    }
    by_kept.restart();
    Ok(largest)
}

/// Decides which rows are removed: a row is removed if a kept row is near.
///
/// `pairs` must be sorted by the row that may be removed, then by the other row. In one set, the later row of a pair
/// may be removed; in a join of two sets, the row of the first set. Each record begins with the value of the pair.
/// `remove` is called for each removed row, with the nearest kept row and the record of that pair.
pub(super) fn decide(
    pairs: &mut Sorted,
    metric: Metric,
    removed: &mut RowSet,
    mut remove: impl FnMut((u64, u64), &[u8]) -> Result<()>,
) -> Result<()> {
    let (mut best, mut best_record, mut record) = (None, Vec::new(), Vec::new());
    loop {
        let pair = pairs.next(&mut record)?;
        // After the last pair of a row, the row can be decided, since all earlier rows have been decided.
        if let Some((row, near, _)) = best
            && pair.is_none_or(|(later, _)| later != row)
        {
            removed.insert(row);
            remove((row, near), &best_record)?;
            best = None;
        }
        let Some((row, near)) = pair else { return Ok(()) };
        let by = value_in(&record).0;
        // A removed row does not cause the removal of another row. Otherwise only the first row of a chain would be
        // kept.
        if !removed.contains(near) && best.is_none_or(|(_, _, other)| is_nearer(metric, by, other)) {
            best = Some((row, near, by));
            // The buffers are swapped, not copied. The next record overwrites the old best one.
            std::mem::swap(&mut best_record, &mut record);
        }
    }
}

/// Writes the tables, with ids. `by_kept` has the removed rows, sorted by the row kept for them. Returns the bytes of
/// temporary files.
fn name(rows: &Rows<'_>, removed_rows: &RowSet, by_kept: Sorted, tables: &mut Tables<'_>) -> Result<u64> {
    let (mut names, mut by_row, mut id) = (rows.sorted()?, rows.sorter(), Vec::new());
    let mut by_kept = Records::new(by_kept)?;
    while let Some(row) = names.next(&mut id)? {
        if let Some(kept) = &mut tables.kept
            && rows.covers(row)
            && !removed_rows.contains(row)
        {
            kept.push(row, &id)?;
        }
        by_kept.each_of(row, |removed, value| by_row.push((removed, row), &[value, &id].concat()))?;
    }
    let mut spilled = by_kept.spilled();
    drop(by_kept);
    let Some(table) = &mut tables.removed else { return Ok(spilled + names.spilled()) };
    let mut by_row = Records::new(by_row.finish()?)?;
    // The ids are read a second time, for the removed rows themselves.
    names.restart();
    while let Some(row) = names.next(&mut id)? {
        by_row.each_of(row, |kept, record| {
            let (value, kept_id) = value_in(record);
            let kept = NamedRow { row: rows.own_number(kept), id: kept_id };
            table.push(NamedRow { row, id: &id }, kept, Reason::Near(value))
        })?;
    }
    spilled += by_row.spilled();
    Ok(spilled + names.spilled())
}

/// Returns the value at the beginning of a record, and the rest.
pub(super) fn value_in(record: &[u8]) -> (f32, &[u8]) {
    let (value, rest) = record.split_first_chunk().expect("a record begins with a value");
    (f32::from_le_bytes(*value), rest)
}

fn is_nearer(metric: Metric, value: f32, than: f32) -> bool {
    match metric {
        Metric::L2 => value < than,
        Metric::Cosine | Metric::Ip => value > than,
    }
}

/// Keeps the first row of each cluster. The members of clusters are sorted together with their vectors, since most
/// members are in no pair with the first row, so that their distance must be computed.
fn first_of_each(
    rows: &Rows<'_>,
    mut components: Components,
    tables: &mut Tables<'_>,
    predicate: Option<Predicate>,
) -> Result<Removed> {
    let (vectors, metric) = (rows.store.manifest().vectors, rows.store.manifest().metric);
    let mut members = rows.sorter();
    // If kept rows are written, they include the rows without any pair.
    rows.each("keep", |row, id, vector| match components.is_paired(row) || tables.kept.is_some() {
        true => members.push((components.first(row), row), &[vector, id].concat()),
        false => Ok(()),
    })?;
    // The components are dropped to free memory before the rows are sorted.
    drop(components);
    let mut members = members.finish()?;
    let (mut member, mut first) = (Vec::new(), Vec::new());
    let (mut size, mut beyond, mut done) = (0, 0, Removed::default());
    while let Some((cluster, row)) = members.next(&mut member)? {
        let (vector, id) = member.split_at(vectors.bytes());
        if row == cluster {
            // Within a cluster, members are sorted by row, so the first member is the first row.
            first.clone_from(&member);
            size = 1;
            tables.kept.as_mut().map_or(Ok(()), |kept| kept.push(row, id))?;
            continue;
        }
        done.rows += 1;
        size += 1;
        done.largest_cluster = done.largest_cluster.max(size);
        let (first, first_id) = first.split_at(vectors.bytes());
        beyond += u64::from(predicate.is_some_and(|predicate| predicate.decide(vectors, first, vector).is_none()));
        let value = value_of(metric, vectors, first, vector);
        if let Some(table) = &mut tables.removed {
            table.push(NamedRow { row, id }, NamedRow { row: cluster, id: first_id }, Reason::Near(value))?;
        }
    }
    Ok(Removed { beyond_threshold: predicate.map(|_| beyond), spill_bytes: members.spilled(), ..done })
}

/// Returns the distance (L2) or similarity (cosine) of two stored vectors, as in results.
fn value_of(metric: Metric, vectors: VectorType, x: &[u8], y: &[u8]) -> f32 {
    match metric {
        Metric::L2 => squared_distance(vectors.element, x, y).sqrt() as f32,
        Metric::Cosine | Metric::Ip => cosine(vectors.element, x, y) as f32,
    }
}

/// The table of kept rows.
struct KeptRows {
    table: TableWriter,
    ids: IdColumn,
}

impl KeptRows {
    fn create(rows: &Rows<'_>, target: &Target) -> Result<Self> {
        let table = TableWriter::create(rows.context, target, vec![rows.ids().field("id")])?;
        Ok(Self { table, ids: IdColumn::new(rows.ids()) })
    }

    fn push(&mut self, row: u64, id: &[u8]) -> Result<()> {
        self.ids.push(row, id);
        if self.ids.is_full() { self.table.write(vec![self.ids.take()]) } else { Ok(()) }
    }

    fn end(mut self) -> Result<Ended> {
        self.table.write(vec![self.ids.take()])?;
        self.table.end()
    }
}
