//! Evaluates conditions on pairs of rows. Each row gets one rank for each comparison in the condition. A pair is then
//! decided by comparing the ranks, which are integers.

use std::collections::HashMap;
use std::ops::Range;

use adjoin_device::Reservation;
use arrow_array::{Array, ArrayRef, RecordBatch};
use arrow_row::{RowConverter, SortField};
use arrow_schema::DataType;

use super::subset::starts;
use crate::base::context::Context;
use crate::base::error::{Error, Result};
use crate::base::message::Argument;
use crate::sql::{BoundPairs, NULL, PairCondition, Rank};
use crate::store::Store;

/// Purpose of the memory, for messages.
const PURPOSE: &str = "the columns that pairs are filtered by";
/// Approximate memory per distinct value in bytes, in addition to the value itself. It is for an entry in a hash table
/// that doubles, and an entry in a list of all values.
const VALUE_BYTES: u64 = 96;

/// A condition on pairs of rows, with the ranks of all rows that it compares.
pub struct PairFilter {
    condition: PairCondition,
    /// For each comparison, the indexes of its rank among the ranks of the left row and of the right row.
    places: Vec<[usize; 2]>,
    /// Ranks of the rows of each store. The stores form one set, or two sets that are joined with each other.
    stores: Vec<RowRanks>,
    is_of_two_sets: bool,
    _memory: Reservation,
}

/// Meaning of a rank.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct RankKind {
    /// The comparison that uses the rank.
    comparison: usize,
    /// Whether the row is the left (0) or the right one (1) of the pair.
    side: usize,
}

/// Ranks of the rows of a store.
struct RowRanks {
    /// Meaning of each rank of a row.
    kinds: Vec<RankKind>,
    /// Ranks of all rows, in bucket order.
    ranks: Vec<Rank>,
    /// Position of the first row of each bucket, followed by the number of rows.
    starts: Vec<u32>,
}

impl PairFilter {
    /// Reads the columns that the condition names for all rows of the stores, and computes the ranks. The stores form
    /// one set, or two sets that are joined with each other.
    ///
    /// # Errors
    /// Fails if a store lacks the columns that the condition names, types do not match, a file is damaged, or memory
    /// does not suffice.
    pub(super) fn new(
        context: &Context,
        stores: &[&Store],
        is_of_two_sets: bool,
        condition: PairCondition,
    ) -> Result<Self> {
        let schema = |store: &&Store| store.attribute_schema(context, Argument::WherePair);
        let schemas = stores.iter().map(schema).collect::<Result<Vec<_>>>()?;
        let sides = if is_of_two_sets { vec![0..1, 1..2] } else { vec![0..2; stores.len()] };
        // If two sets are joined, each store is on one side. Otherwise a row of any store may be on either side.
        let bind = |of: usize| match is_of_two_sets {
            true => condition.bind([&schemas[0], &schemas[1]]),
            false => condition.bind([&schemas[of]; 2]),
        };
        let bound = condition.together((0..stores.len()).map(bind).collect::<Result<Vec<_>>>()?)?;
        let kinds: Vec<_> = sides.into_iter().map(|sides| kinds_of(&condition, sides)).collect();
        let bytes = |(store, kinds): (&&Store, &Vec<_>)| RowRanks::memory_bytes(store, kinds.len());
        // This is done before any column is read, since the size of the ranks follows from the number of rows.
        let memory = context.reserve(stores.iter().zip(&kinds).map(bytes).sum(), PURPOSE)?;
        let values = bound[0].kinds.iter().map(Values::new).collect::<Result<Vec<_>>>()?;
        // All stores share one numbering, since ranks of two stores are compared with each other.
        let mut numbering = Numbering { context, values, of_ranks: memory.bytes(), memory };
        let read = |((store, bound), kinds): ((&&Store, _), _)| RowRanks::read(store, bound, kinds, &mut numbering);
        let mut stores = stores.iter().zip(&bound).zip(kinds).map(read).collect::<Result<Vec<_>>>()?;
        let (ranks, memory) = numbering.ranks();
        // Numbers can become ranks only after all rows are read, since a later value may be between two earlier ones.
        stores.iter_mut().for_each(|store| store.put_in_order(&ranks));
        drop(bound);
        let places = (0..condition.comparisons()).map(|comparison| places_of(&stores, comparison)).collect();
        Ok(Self { condition, places, stores, is_of_two_sets, _memory: memory })
    }

    /// Returns the condition as the user typed it.
    pub(super) fn text(&self) -> &str {
        self.condition.text()
    }

    /// Returns the memory in bytes of the ranks of one row of a store.
    pub(super) fn row_bytes(&self, store: usize) -> u64 {
        (self.stores[store].kinds.len() * size_of::<Rank>()) as u64
    }

    /// Returns the ranks of a member of a bucket. `bucket` is the number of the bucket in its store.
    pub(super) fn ranks(&self, store: usize, bucket: u32, member: u32) -> &[Rank] {
        let RowRanks { kinds, ranks, starts } = &self.stores[store];
        let place = (starts[bucket as usize] + member) as usize;
        &ranks[place * kinds.len()..][..kinds.len()]
    }

    /// Returns whether the condition is true for a pair of rows with these ranks.
    pub(crate) fn accepts(&self, left: &[Rank], right: &[Rank]) -> bool {
        self.condition.is_true(|comparison| {
            let [of_left, of_right] = self.places[comparison];
            [left[of_left], right[of_right]]
        })
    }

    /// Returns whether the two rows of a pair belong to different sets. The row of the first set is then the left one.
    pub(super) fn is_of_two_sets(&self) -> bool {
        self.is_of_two_sets
    }
}

/// Lists the ranks that a row needs if it may be on these sides. If an expression is identical for both sides, one
/// rank suffices.
fn kinds_of(condition: &PairCondition, sides: Range<usize>) -> Vec<RankKind> {
    let sides = |comparison: usize| match sides.len() {
        2 if condition.is_alike(comparison) => 0..1,
        _ => sides.clone(),
    };
    let kinds = |comparison: usize| sides(comparison).map(move |side| RankKind { comparison, side });
    (0..condition.comparisons()).flat_map(kinds).collect()
}

/// Returns the indexes of a comparison's rank in the left row and in the right row.
fn places_of(stores: &[RowRanks], comparison: usize) -> [usize; 2] {
    let place =
        |store: &RowRanks, side: usize| store.kinds.iter().position(|&kind| kind == RankKind { comparison, side });
    let left = place(&stores[0], 0).expect("the left row has a rank for each comparison");
    // An expression that is identical for both sides has only the rank of the left side.
    [left, place(&stores[stores.len() - 1], 1).unwrap_or(left)]
}

impl RowRanks {
    fn memory_bytes(store: &Store, width: usize) -> u64 {
        let starts = (store.extents().len() + 1) * size_of::<u32>();
        starts as u64 + store.manifest().rows * (width * size_of::<Rank>()) as u64
    }

    /// Reads the columns of a store, and numbers the values of all rows.
    fn read(
        store: &Store,
        bound: &BoundPairs<'_>,
        kinds: Vec<RankKind>,
        numbering: &mut Numbering<'_>,
    ) -> Result<Self> {
        let width = kinds.len();
        let mut ranks = vec![NULL; store.manifest().rows as usize * width];
        // The expressions for the left and for the right row may use different columns.
        for side in 0..2 {
            let of_side: Vec<_> = kinds.iter().enumerate().filter(|(_, kind)| kind.side == side).collect();
            if of_side.is_empty() {
                continue;
            }
            let (context, places) = (numbering.context, &bound.places[side]);
            store.each_attributes(context, places, Argument::WherePair, |first, table| {
                for &(at, &kind) in &of_side {
                    let to = ranks[first as usize * width..].iter_mut().skip(at).step_by(width);
                    numbering.number(bound, kind, table, to)?;
                }
                // This is done after each table, so at most the values of one table are not yet reserved.
                numbering.grow()
            })?;
        }
        Ok(Self { kinds, ranks, starts: starts(store.extents()) })
    }

    /// Replaces the numbers of values by their ranks. `ranks` maps numbers to ranks for each comparison.
    fn put_in_order(&mut self, ranks: &[Vec<Rank>]) {
        for row in self.ranks.chunks_exact_mut(self.kinds.len()) {
            for (rank, &RankKind { comparison, .. }) in row.iter_mut().zip(&self.kinds) {
                if *rank != NULL {
                    *rank = ranks[comparison][*rank as usize];
                }
            }
        }
    }
}

/// Distinct values of all comparisons, collected while rows are read.
struct Numbering<'a> {
    context: &'a Context,
    /// Distinct values by comparison.
    values: Vec<Values>,
    /// Memory of the ranks of rows, and of the values.
    memory: Reservation,
    of_ranks: u64,
}

impl Numbering<'_> {
    /// Numbers the values of one comparison for the rows of `table`. Writes the numbers to `to`.
    fn number<'r>(
        &mut self,
        bound: &BoundPairs<'_>,
        kind: RankKind,
        table: &RecordBatch,
        to: impl Iterator<Item = &'r mut Rank>,
    ) -> Result<()> {
        let column = bound.values(kind.comparison, kind.side, table)?;
        self.values[kind.comparison].number(&column, to)
    }

    /// Reserves memory for the values collected so far.
    fn grow(&mut self) -> Result<()> {
        let of_values: u64 = self.values.iter().map(|values| values.bytes).sum();
        self.context.grow(&mut self.memory, self.of_ranks + of_values, PURPOSE)
    }

    /// Returns a map from numbers to ranks for each comparison, and the reservation for the ranks of rows.
    fn ranks(self) -> (Vec<Vec<Rank>>, Reservation) {
        let Self { values, mut memory, of_ranks, .. } = self;
        let ranks = values.into_iter().map(Values::ranks).collect();
        // The values are dropped, since only ranks are compared from now on.
        memory.shrink(of_ranks);
        (ranks, memory)
    }
}

/// The distinct values of a comparison, numbered in the order of arrival.
struct Values {
    converter: RowConverter,
    known: HashMap<Box<[u8]>, Rank>,
    /// Approximate memory of the values in bytes.
    bytes: u64,
}

impl Values {
    fn new(kind: &DataType) -> Result<Self> {
        let converter = RowConverter::new(vec![SortField::new(kind.clone())]);
        let converter = converter.map_err(|error| Error::option(format!("cannot compare {kind}: {error}")))?;
        Ok(Self { converter, known: HashMap::new(), bytes: 0 })
    }

    /// Numbers the values of a column. Nulls get no number.
    fn number<'r>(&mut self, column: &ArrayRef, to: impl Iterator<Item = &'r mut Rank>) -> Result<()> {
        // Equal values have equal bytes in the row format of Arrow, so one map suffices for all types.
        let rows = self.converter.convert_columns(std::slice::from_ref(column));
        let rows = rows.map_err(|error| Error::input(error.to_string()))?;
        for (_, (row, to)) in rows.iter().zip(to).enumerate().filter(|(k, _)| column.is_valid(*k)) {
            *to = match self.known.get(row.data()) {
                Some(&number) => number,
                None => {
                    let number = self.known.len() as Rank;
                    self.known.insert(row.data().into(), number);
                    self.bytes += VALUE_BYTES + row.data().len() as u64;
                    number
                }
            };
        }
        Ok(())
    }

    /// Returns the rank of each number. Encoded rows sort in the order of their values.
    fn ranks(self) -> Vec<Rank> {
        let mut all: Vec<(Box<[u8]>, Rank)> = self.known.into_iter().collect();
        all.sort_unstable();
        let mut ranks = vec![0; all.len()];
        (0..).zip(&all).for_each(|(rank, &(_, number))| ranks[number as usize] = rank);
        ranks
    }
}
