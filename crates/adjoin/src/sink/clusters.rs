//! Clusters: rows connected by chains of pairs, which are connected components.

use super::components::Components;
use super::row_ids::{IdColumn, Rows, SinkNeeds};
use super::sink::{PairBatch, PairSink, Written};
use super::table::TableWriter;
use crate::base::context::Context;
use crate::base::error::{Error, Result};
use crate::base::message::message;
use crate::base::options::format_count;
use crate::base::output::Target;
use crate::load::Sets;

/// Writes clusters: columns `id` and `cluster`, which is the id of the cluster's first row. Rows without neighbors are
/// left out. The rows of a cluster are consecutive.
pub struct Clusters<'a> {
    rows: Rows<'a>,
    components: Components,
    table: Option<TableWriter>,
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
    /// If there are two sets, memory does not suffice, or the table cannot be created
    /// ([`super::PairWriter::create`]).
    pub fn create(
        context: &'a Context,
        sets: impl Into<Sets<'a>>,
        target: Option<&Target>,
        join_bytes: u64,
    ) -> Result<Self> {
        let sets = sets.into();
        if let Some(option) = sets.second_by() {
            return Err(Error::option(message![
                "clusters need a single set; choose another result, or leave out ",
                option
            ]));
        }
        let store = sets.left();
        let end = Rows::end(store);
        let bytes = Components::memory_bytes(end);
        // Pairs only update the components in memory. Rows are sorted once, when all clusters are known.
        let needs = SinkNeeds { bytes, sorters_during: 0, sorters_after: 1, join_bytes, purpose: "finding clusters" };
        let column = store.manifest().ids.field("cluster");
        let (rows, table) = Rows::with_table(context, sets, target, needs, column)?;
        Ok(Self { rows, components: Components::new(end), table })
    }
}

impl PairSink for Clusters<'_> {
    fn wants_ids(&self) -> bool {
        false
    }

    fn accept(&mut self, batch: &PairBatch) -> Result<()> {
        batch.left_rows.iter().zip(&batch.right_rows).for_each(|(&left, &right)| self.components.join(left, right));
        Ok(())
    }

    fn finish(self: Box<Self>) -> Result<Written> {
        let Self { rows, mut components, mut table } = *self;
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
                ids.push(row, &id);
                clusters.push(cluster, &first);
            }
            // Without a target, only the sizes are counted, but the loop must still end.
            if (member.is_none() || ids.is_full())
                && let Some(table) = &mut table
            {
                table.write(vec![ids.take(), clusters.take()])?;
            }
            if member.is_none() {
                break;
            }
        }
        let Sizes { clusters, rows: clustered, largest } = sizes;
        let clusters = format_count(clusters, "cluster");
        let [clustered, largest] = [clustered, largest].map(|rows| format_count(rows, "row"));
        rows.context.progress.note(&format!("{clusters} with {clustered}, the largest with {largest}"));
        let written = table.map_or(Ok(Written::default()), TableWriter::finish)?;
        let written = Written { spill_bytes: members.spilled(), largest_cluster: Some(sizes.largest), ..written };
        written.cluster_warning(rows.covered_rows()).iter().for_each(|warning| rows.context.progress.note(warning));
        Ok(written)
    }
}
