//! Clusters: rows connected by chains of pairs, which are connected components.

use std::sync::Arc;

use arrow_array::{ArrayRef, BooleanArray, StringArray};
use arrow_schema::{DataType, Field, Schema};

use super::components::Components;
use super::line_table::{CarriedColumns, LineTable};
use super::pairs::TWO_SETS;
use super::row_ids::{IdColumn, Rows, SinkNeeds};
use super::sink::{PairBatch, PairSink, Written};
use crate::base::context::Context;
use crate::base::error::Result;
use crate::base::options::format_count;
use crate::base::output::Target;
use crate::load::Sets;
use crate::store::check_one_kind;

/// Writes clusters: columns `id` and `cluster`, which is the id of the cluster's first row. Rows without neighbors are
/// left out. The rows of a cluster are consecutive.
///
/// If there are two sets, a cluster has rows of both. A third column `side` is `left` for rows of the first set and
/// `right` for rows of the second. The first row of a cluster is always of the first set.
///
/// If a set has new rows, clusters are connected by pairs with a new row only. A third column `new` states whether a row
/// is new.
pub struct Clusters<'a> {
    rows: Rows<'a>,
    components: Components,
    origin: Option<Origin>,
    table: Option<LineTable<'a>>,
}

/// Column that states whether a row is of the first or of the second set.
#[derive(Clone, Copy)]
enum Origin {
    /// The column `side` of the rows of two sets.
    Side,
    /// The column `new` of the rows of a set and of its new rows.
    New,
}

impl Origin {
    /// Names of the sides.
    const SIDES: [&str; 2] = ["left", "right"];

    /// Returns the column for these sets. A single set needs none.
    fn of(sets: Sets<'_>) -> Option<Self> {
        sets.other_side().map(|_| if sets.have_grown() { Self::New } else { Self::Side })
    }

    fn field(self) -> Field {
        match self {
            Self::Side => Field::new("side", DataType::Utf8, false),
            Self::New => Field::new("new", DataType::Boolean, false),
        }
    }

    /// Returns the values of rows. `are_of_second` states whether each row is of the second set.
    fn values(self, are_of_second: Vec<bool>) -> ArrayRef {
        match self {
            Self::Side => {
                let sides = are_of_second.into_iter().map(|is_of_second| Self::SIDES[usize::from(is_of_second)]);
                Arc::new(StringArray::from_iter_values(sides))
            }
            Self::New => Arc::new(BooleanArray::from(are_of_second)),
        }
    }
}

/// Summary of the clusters written.
#[derive(Default)]
struct Sizes {
    clusters: u64,
    rows: u64,
    largest: u64,
}

impl<'a> Clusters<'a> {
    /// Creates the sink. Without a target, it only reports the summary. It reserves its memory before the join is
    /// planned, and leaves at least `join_bytes` bytes for the join.
    ///
    /// # Errors
    /// If two sets have ids of different kinds, memory does not suffice, or the table cannot be
    /// created ([`super::PairWriter::create`]).
    pub fn create(
        context: &'a Context,
        sets: impl Into<Sets<'a>>,
        target: Option<&Target>,
        join_bytes: u64,
    ) -> Result<Self> {
        Self::with_columns(context, sets, target, join_bytes, None)
    }

    /// Creates the sink as [`Self::create`] does. Rows carry `columns`, if given, which take additional memory. The rows
    /// of two sets must be numbered as those of one set ([`Sets::united`]).
    ///
    /// # Errors
    /// As [`Self::create`].
    pub(crate) fn with_columns(
        context: &'a Context,
        sets: impl Into<Sets<'a>>,
        target: Option<&Target>,
        join_bytes: u64,
        columns: Option<CarriedColumns<'a>>,
    ) -> Result<Self> {
        let sets = sets.into();
        let kinds = [sets.left(), sets.right()].map(|store| store.manifest().ids);
        check_one_kind(["the rows of the first set", "those of the second"], kinds)?;
        let ids = kinds[0];
        let origin = Origin::of(sets);
        let end = Rows::end(sets);
        let bytes = Components::memory_bytes(end);
        // Lines are written with their columns after the join, with memory that the join has used before.
        let join_bytes = join_bytes + columns.as_ref().map_or(0, CarriedColumns::bytes);
        // Pairs only update the components in memory. Rows are sorted once, when all clusters are known.
        let needs = SinkNeeds { bytes, sorters_during: 0, sorters_after: 1, join_bytes, purpose: "finding clusters" };
        let rows = Rows::reserve(context, sets, [target, None], needs)?;
        let fields = [ids.field("id"), ids.field("cluster")].into_iter().chain(origin.map(Origin::field));
        let fields: Vec<Field> = fields.collect();
        let (key, value) = TWO_SETS;
        let metadata = matches!(origin, Some(Origin::Side)).then(|| (key.to_owned(), value.to_owned()));
        let schema = Schema::new_with_metadata(fields, metadata.into_iter().collect());
        let table = |target| LineTable::create(context, target, schema, columns, &[""]);
        let table = target.map(table).transpose()?;
        Ok(Self { rows, components: Components::new(end), origin, table })
    }
}

impl PairSink for Clusters<'_> {
    fn wants_ids(&self) -> bool {
        false
    }

    fn accept(&mut self, batch: &PairBatch) -> Result<()> {
        for (&left, &right) in batch.left_rows.iter().zip(&batch.right_rows) {
            // Rows of a second set are numbered after the rows of the first.
            let (row, other) = self.rows.later_first(left, right);
            self.components.join(row, other);
        }
        Ok(())
    }

    fn finish(self: Box<Self>) -> Result<Written> {
        let Self { rows, mut components, origin, mut table } = *self;
        let mut members = rows.sorter();
        rows.each("clusters", |row, id, _| match components.is_paired(row) {
            // Members are sorted by cluster, then by row. So the first member is the first row, whose id names the
            // cluster.
            true => members.push((components.first(row), row), id),
            false => Ok(()),
        })?;
        drop(components);
        let mut members = members.finish()?;
        let (mut ids, mut clusters) = (IdColumn::new(rows.ids()), IdColumn::new(rows.ids()));
        // The numbers of the rows in all sets, by which their columns are read, and whether they are of the second set.
        let (mut numbers, mut are_of_second) = (Vec::new(), Vec::new());
        let (mut id, mut first, mut sizes) = (Vec::new(), Vec::new(), Sizes::default());
        let mut size = 0;
        loop {
            let member = members.next(&mut id)?;
            if let Some((cluster, row)) = member {
                if cluster == row {
                    first.clone_from(&id);
                    sizes.clusters += 1;
                    size = 0;
                }
                size += 1;
                sizes.rows += 1;
                sizes.largest = sizes.largest.max(size);
                if table.is_some() {
                    ids.push(rows.own_number(row), &id);
                    clusters.push(cluster, &first);
                    numbers.push(row);
                    are_of_second.push(rows.is_of_second(row));
                }
            }
            if (member.is_none() || ids.is_full())
                && let Some(table) = &mut table
            {
                let (numbers, are_of_second) = (std::mem::take(&mut numbers), std::mem::take(&mut are_of_second));
                let origin = origin.map(|origin| origin.values(are_of_second));
                table.write([ids.take(), clusters.take()].into_iter().chain(origin).collect(), &[&numbers])?;
            }
            if member.is_none() {
                break;
            }
        }
        let Sizes { clusters, rows: clustered, largest } = sizes;
        let clusters = format_count(clusters, "cluster");
        let [clustered, largest] = [clustered, largest].map(|rows| format_count(rows, "row"));
        rows.context.progress.note(&format!("{clusters} with {clustered}, the largest with {largest}"));
        let written = table.map_or(Ok(Written::default()), |table| table.end()?.publish())?;
        let written = Written { spill_bytes: members.spilled(), largest_cluster: Some(sizes.largest), ..written };
        written.cluster_warning(rows.all_rows()).iter().for_each(|warning| rows.context.progress.note(warning));
        Ok(written)
    }
}
