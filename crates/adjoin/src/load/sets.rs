//! The input of a join: one set of vectors, or two sets that are joined with each other.

use adjoin_device::Reservation;
use xxhash_rust::xxh3::{Xxh3, xxh3_64};

use super::buckets::Buckets;
use super::pair_filter::PairFilter;
use super::subset::{Subset, starts};
use crate::base::context::Context;
use crate::base::error::Result;
use crate::base::message::Argument;
use crate::sql::{Condition, PairCondition};
use crate::store::{FilterBitmap, Store};

/// The rows of a store that pass a filter. Other rows do not take part in the join.
pub struct RowFilter {
    passing: FilterBitmap,
    starts: Vec<u32>,
    _memory: Reservation,
}

impl RowFilter {
    /// Evaluates a filter on the columns of a store.
    ///
    /// # Errors
    /// Fails as [`Store::passing`] does.
    pub fn new(context: &Context, store: &Store, condition: &Condition) -> Result<Self> {
        let passing = store.passing(context, condition)?;
        let bytes = (store.extents().len() + 1) * size_of::<u32>();
        let memory = context.reserve(bytes as u64, "the filtered rows")?;
        Ok(Self { passing, starts: starts(store.extents()), _memory: memory })
    }

    /// Returns the number of rows that pass.
    pub fn rows(&self) -> u64 {
        self.passing.count()
    }

    fn subset(&self) -> Subset<'_> {
        Subset { places: self.passing.rows(), starts: &self.starts }
    }
}

/// The rows of a store to join: all, or only rows that pass a filter.
#[derive(Clone, Copy)]
pub struct JoinSide<'a> {
    store: &'a Store,
    filter: Option<&'a RowFilter>,
}

impl<'a> JoinSide<'a> {
    /// Creates a side from a store and an optional filter.
    pub fn new(store: &'a Store, filter: Option<&'a RowFilter>) -> Self {
        Self { store, filter }
    }

    /// Returns the store.
    pub fn store(self) -> &'a Store {
        self.store
    }

    /// Returns the number of rows to join.
    pub fn rows(self) -> u64 {
        self.passing_rows().unwrap_or(self.store.manifest().rows)
    }

    /// Returns the number of rows that pass the filter, if there is one.
    pub fn passing_rows(self) -> Option<u64> {
        self.filter.map(RowFilter::rows)
    }

    /// Returns a checksum that identifies this side. It combines the checksum of the store's manifest and, if there is
    /// a filter, a checksum of the rows that pass.
    fn checksum(self) -> String {
        let of_store = &self.store.manifest().manifest_xxh3;
        let of_rows = |filter: &RowFilter| {
            let mut hash = Xxh3::new();
            filter.passing.iter().for_each(|row| hash.update(&row.to_le_bytes()));
            format!("{of_store}-{:016x}", hash.digest())
        };
        self.filter.map_or_else(|| of_store.clone(), of_rows)
    }

    /// Returns the members of the store's buckets that pass the filter, if there is one.
    pub(super) fn subset(self) -> Option<Subset<'a>> {
        self.filter.map(RowFilter::subset)
    }
}

impl<'a> From<&'a Store> for JoinSide<'a> {
    fn from(store: &'a Store) -> Self {
        Self::new(store, None)
    }
}

/// The sets to join. Either the rows of one set are joined with each other, or with the rows of a second set.
#[derive(Clone, Copy)]
pub struct Sets<'a> {
    first: JoinSide<'a>,
    second: Option<JoinSide<'a>>,
    /// Whether the second set contains new rows of the first set.
    is_grown: bool,
    /// Filter on pairs, if any.
    pairs: Option<&'a PairFilter>,
}

impl<'a, S: Into<JoinSide<'a>>> From<S> for Sets<'a> {
    fn from(side: S) -> Self {
        Self { first: side.into(), second: None, is_grown: false, pairs: None }
    }
}

impl<'a> Sets<'a> {
    /// Creates the input of a join of each row of the first set with each row of the second.
    pub fn between(first: impl Into<JoinSide<'a>>, second: impl Into<JoinSide<'a>>) -> Self {
        Self { second: Some(second.into()), ..first.into().into() }
    }

    /// Creates the input of a join of new rows with old rows and with each other. Old and new rows form one set, in
    /// which new rows have the higher numbers. Pairs of two old rows are already known, so they are not joined.
    pub fn grown(old: impl Into<JoinSide<'a>>, new: impl Into<JoinSide<'a>>) -> Self {
        Self { is_grown: true, ..Self::between(old, new) }
    }

    /// Returns these sets with their rows numbered as one set: the rows of the second follow those of the first.
    #[must_use]
    pub(crate) fn united(self) -> Self {
        Self { is_grown: self.second.is_some(), ..self }
    }

    /// Returns whether the second set contains new rows of the first set.
    pub fn have_grown(self) -> bool {
        self.is_grown
    }

    /// Returns the command-line option that names the second set, if there is a second set.
    pub(crate) fn second_by(self) -> Option<Argument> {
        self.second.map(|_| if self.is_grown { Argument::New } else { Argument::With })
    }

    /// Returns the side that results per row describe: the new rows if a set has grown, otherwise the left side.
    pub fn results_of(self) -> JoinSide<'a> {
        self.second.filter(|_| self.is_grown).unwrap_or(self.first)
    }

    /// Creates the filter for a condition on pairs of these sets.
    ///
    /// # Errors
    /// Fails if a store lacks the columns that the condition names, types do not match, a file is damaged, or memory
    /// does not suffice.
    pub fn pairs_that_meet(self, context: &Context, condition: PairCondition) -> Result<PairFilter> {
        let are_two = self.second.is_some() && !self.is_grown;
        PairFilter::new(context, &self.stores().collect::<Vec<_>>(), are_two, condition)
    }

    /// Restricts the join to pairs that a filter accepts. The filter must have been created from these sets.
    #[must_use]
    pub fn with_pairs(self, pairs: Option<&'a PairFilter>) -> Self {
        Self { pairs, ..self }
    }

    /// Returns the side of the left rows of pairs.
    pub fn left_side(self) -> JoinSide<'a> {
        self.first
    }

    /// Returns the second side, if there are two.
    pub fn other_side(self) -> Option<JoinSide<'a>> {
        self.second
    }

    /// Returns the store of the left rows of pairs.
    pub fn left(self) -> &'a Store {
        self.first.store
    }

    /// Returns the store of the right rows of pairs.
    pub fn right(self) -> &'a Store {
        self.second.unwrap_or(self.first).store
    }

    /// Returns the store of the second side, if there are two.
    pub fn other(self) -> Option<&'a Store> {
        self.second.map(JoinSide::store)
    }

    /// Returns the sides: one or two.
    pub fn sides(self) -> impl Iterator<Item = JoinSide<'a>> + Clone {
        std::iter::once(self.first).chain(self.second)
    }

    /// Returns the stores of the sides: one or two.
    pub fn stores(self) -> impl Iterator<Item = &'a Store> + Clone {
        self.sides().map(JoinSide::store)
    }

    /// Returns checksums that identify these sets.
    pub(crate) fn checksums(self) -> Vec<String> {
        let pairs = self.pairs.map(|pairs| format!("{:016x}", xxh3_64(pairs.text().as_bytes())));
        let grown = self.is_grown.then(|| "grown".to_owned());
        self.sides().map(JoinSide::checksum).chain(grown).chain(pairs).collect()
    }

    /// Returns the buckets of the sets, restricted to the rows to join.
    ///
    /// # Errors
    /// Fails if the vectors of two stores cannot be compared.
    pub fn buckets(self) -> Result<Buckets<'a>> {
        let buckets = match self.second {
            None => Buckets::of(self.first.store),
            Some(second) if self.is_grown => Buckets::grown(self.first.store, second.store)?,
            Some(second) => Buckets::between(self.first.store, second.store)?,
        };
        Ok(buckets.among(self.sides().map(JoinSide::subset).collect(), self.pairs))
    }
}
