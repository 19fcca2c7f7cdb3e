//! Reads columns of the rows of a set, given their row numbers.

use std::ops::ControlFlow;
use std::sync::Arc;

use adjoin_device::Reservation;
use arrow_array::RecordBatch;

use super::buckets::Buckets;
use super::read_ahead::{ReadAhead, read_ahead_bytes};
use super::sets::Sets;
use crate::base::context::Context;
use crate::base::error::{Error, Result};
use crate::base::message::{Argument, message};
use crate::base::row_numbers::RowNumbers;
use crate::plan::Load;
use crate::store::{ColumnNeeds, ResultColumns, Store};

/// Purpose of the memory in error messages.
const PURPOSE: &str = "the columns of the rows of a result";

/// Columns of the rows of a store, or of a store and its new rows, which are numbered after the rows of the store.
pub(crate) struct SetColumns<'a> {
    stores: Vec<StoreColumns<'a>>,
    needs: ColumnNeeds,
}

/// Columns of the rows of a store.
struct StoreColumns<'a> {
    columns: ResultColumns<'a>,
    /// Position of each row in bucket order. Columns are stored in this order.
    places: RowNumbers,
    rows: u64,
    source_rows: u64,
    _memory: Reservation,
}

impl<'a> Sets<'a> {
    /// Returns the memory needs of the columns `names`, for the set of the left rows of pairs and for the set of the
    /// right rows. There is one result if both are the same set.
    ///
    /// # Errors
    /// Fails if a store does not keep a column, a name is given twice, a set and its new rows differ in the type of a
    /// column, or a file cannot be read.
    pub(crate) fn column_needs(self, names: &[String]) -> Result<Vec<ColumnNeeds>> {
        self.by_side().iter().map(|stores| needs_of_set(stores, names)).collect()
    }

    /// Opens the columns `names`, for the set of the left rows of pairs and for the set of the right rows. There is
    /// one result if both are the same set.
    ///
    /// # Errors
    /// Fails as [`Self::column_needs`] does, or if memory does not suffice.
    pub(crate) fn columns(self, context: &Context, names: &[String]) -> Result<Vec<SetColumns<'a>>> {
        self.by_side().iter().map(|stores| SetColumns::open(context, stores, names)).collect()
    }

    /// Returns the memory in bytes of [`Self::columns`] for sets of `rows` rows, including skipped rows.
    pub(crate) fn columns_bytes(rows: u64) -> u64 {
        RowNumbers::memory_bytes(rows)
    }

    fn by_side(self) -> Vec<Vec<&'a Store>> {
        let all: Vec<&Store> = self.stores().collect();
        // New rows and the rows of the store form one set.
        if self.have_grown() { vec![all] } else { all.into_iter().map(|store| vec![store]).collect() }
    }
}

/// Returns the memory needs of the columns of a store, or of a store and its new rows.
fn needs_of_set(stores: &[&Store], names: &[String]) -> Result<ColumnNeeds> {
    let mut all: Option<ColumnNeeds> = None;
    for store in stores {
        let needs = columns_of(store, names)?.needs()?;
        all = Some(match all {
            None => needs,
            Some(mut first) if first.schema == needs.schema => {
                first.reading_bytes = first.reading_bytes.max(needs.reading_bytes);
                first.add_rows(needs.row_bytes_max);
                first
            }
            Some(first) => {
                let differs = |(a, b): &(&Arc<_>, &Arc<_>)| a != b;
                let mut pairs = first.schema.fields().iter().zip(needs.schema.fields());
                let (old, new) = pairs.find(differs).expect("the schemas differ in a column");
                let [first, second] = [old, new].map(|field| field.data_type());
                let types = format!(" is {first} in one set and {second} in the other; give both the same type");
                return Err(Error::input(message![Argument::Columns.with(old.name()), types]));
            }
        });
    }
    Ok(all.expect("a set has at least one store"))
}

fn columns_of<'a>(store: &'a Store, names: &[String]) -> Result<ResultColumns<'a>> {
    Ok(store.result_columns(names)?.expect("there is at least one name"))
}

impl<'a> SetColumns<'a> {
    fn open(context: &Context, stores: &[&'a Store], names: &[String]) -> Result<Self> {
        let needs = needs_of_set(stores, names)?;
        let stores =
            stores.iter().map(|store| StoreColumns::open(context, store, names)).collect::<Result<Vec<_>>>()?;
        Ok(Self { stores, needs })
    }

    /// Returns the schema and the memory of the columns.
    pub(crate) fn needs(&self) -> &ColumnNeeds {
        &self.needs
    }

    /// Returns the position of a row in the order in which columns are read.
    ///
    /// # Panics
    /// Panics if there is no such row.
    pub(crate) fn place(&self, mut row: u64) -> u64 {
        let mut before = 0;
        for store in &self.stores {
            if row < store.source_rows {
                return before + store.places.get(row);
            }
            row -= store.source_rows;
            before += store.rows;
        }
        panic!("a result names rows of its sets only");
    }

    /// Passes the columns of the rows at `places` to `take`, as tables of consecutive rows. Places must be distinct
    /// and in ascending order. Ends early if `take` breaks.
    ///
    /// # Errors
    /// Fails if a file cannot be read or is damaged, memory does not suffice, or `take` fails.
    pub(crate) fn each_of(
        &self,
        context: &Context,
        places: &[u64],
        take: &mut dyn FnMut(RecordBatch) -> Result<ControlFlow<()>>,
    ) -> Result<()> {
        let (mut before, mut rest, mut is_over) = (0, places, false);
        for store in &self.stores {
            let (here, after) = rest.split_at(rest.partition_point(|&place| place < before + store.rows));
            let here: Vec<u32> = here.iter().map(|&place| (place - before) as u32).collect();
            store.columns.each_of(context, &here, &mut |table| {
                let flow = take(table)?;
                is_over = flow.is_break();
                Ok(flow)
            })?;
            if is_over {
                return Ok(());
            }
            before += store.rows;
            rest = after;
        }
        Ok(())
    }
}

impl<'a> StoreColumns<'a> {
    fn open(context: &Context, store: &'a Store, names: &[String]) -> Result<Self> {
        let (rows, source_rows) = (store.manifest().rows, store.manifest().source_rows);
        let columns = columns_of(store, names)?;
        let memory = context.reserve(RowNumbers::memory_bytes(source_rows), PURPOSE)?;
        let mut places = RowNumbers::new(source_rows, |_| 0);
        let buckets = Buckets::of(store);
        let ahead = read_ahead_bytes(buckets.extents(), false, context.budget().free());
        let _ahead_memory = context.reserve(ahead, PURPOSE)?;
        let loads = Load::each(buckets.count());
        let mut ahead = ReadAhead::new(context, "places", &buckets, false, ahead, loads, &context.cancel)?;
        let mut place = 0;
        context.progress.begin("look up", "rows", rows);
        while let Some(stored) = ahead.next_bucket()? {
            context.cancel.check()?;
            for &row in &stored.decode(&buckets)?.rows {
                places.set(row, place);
                place += 1;
            }
            context.progress.advance(place);
        }
        Ok(Self { columns, places, rows, source_rows, _memory: memory })
    }
}
