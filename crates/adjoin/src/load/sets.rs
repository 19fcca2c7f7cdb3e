//! What is joined: a set of vectors with itself, or two with each other.

use adjoin_device::Reservation;
use xxhash_rust::xxh3::{Xxh3, xxh3_64};

use super::buckets::Buckets;
use super::pair_filter::PairFilter;
use super::subset::{Subset, starts};
use crate::context::Context;
use crate::error::Result;
use crate::message::Argument;
use crate::sql::{Condition, PairCondition};
use crate::store::{Passing, Store};

/// The rows of a store that meet a condition: the others take no part.
pub struct RowFilter {
    passing: Passing,
    starts: Vec<u32>,
    _memory: Reservation,
}

impl RowFilter {
    /// Reads the attributes that the condition names.
    ///
    /// # Errors
    /// As [`Store::passing`].
    pub fn new(context: &Context, store: &Store, condition: &Condition) -> Result<Self> {
        let passing = store.passing(context, condition)?;
        let bytes = (store.extents().len() + 1) * size_of::<u32>();
        let memory = context.reserve(bytes as u64, "the rows that meet a condition")?;
        Ok(Self { passing, starts: starts(store.extents()), _memory: memory })
    }

    /// How many rows meet the condition.
    pub fn rows(&self) -> u64 {
        self.passing.count()
    }

    fn subset(&self) -> Subset<'_> {
        Subset { places: self.passing.rows(), starts: &self.starts }
    }
}

/// The rows of a store that are joined: all, or those that a filter lets pass.
#[derive(Clone, Copy)]
pub struct Side<'a> {
    store: &'a Store,
    filter: Option<&'a RowFilter>,
}

impl<'a> Side<'a> {
    /// Those of a store that pass.
    pub fn new(store: &'a Store, filter: Option<&'a RowFilter>) -> Self {
        Self { store, filter }
    }

    /// The store.
    pub fn store(self) -> &'a Store {
        self.store
    }

    /// How many rows take part.
    pub fn rows(self) -> u64 {
        self.passing_rows().unwrap_or(self.store.manifest().rows)
    }

    /// The same where there is a filter.
    pub fn passing_rows(self) -> Option<u64> {
        self.filter.map(RowFilter::rows)
    }

    /// What tells it from others: of the store's manifest, and of the rows that take part where not all do.
    fn checksum(self) -> String {
        let of_store = &self.store.manifest().manifest_xxh3;
        let of_rows = |filter: &RowFilter| {
            let mut hash = Xxh3::new();
            filter.passing.iter().for_each(|row| hash.update(&row.to_le_bytes()));
            format!("{of_store}-{:016x}", hash.digest())
        };
        self.filter.map_or_else(|| of_store.clone(), of_rows)
    }

    /// Which members of the buckets of the store take part, where not all do.
    pub(super) fn subset(self) -> Option<Subset<'a>> {
        self.filter.map(RowFilter::subset)
    }
}

impl<'a> From<&'a Store> for Side<'a> {
    fn from(store: &'a Store) -> Self {
        Self::new(store, None)
    }
}

/// What is joined: the rows of a set with each other, or with those of another.
#[derive(Clone, Copy)]
pub struct Sets<'a> {
    first: Side<'a>,
    second: Option<Side<'a>>,
    /// Whether the second has rows that come to those of the first.
    is_grown: bool,
    /// Which pairs count, where not all do.
    pairs: Option<&'a PairFilter>,
}

impl<'a, S: Into<Side<'a>>> From<S> for Sets<'a> {
    fn from(side: S) -> Self {
        Self { first: side.into(), second: None, is_grown: false, pairs: None }
    }
}

impl<'a> Sets<'a> {
    /// Each row of the first set with each of the second.
    pub fn between(first: impl Into<Side<'a>>, second: impl Into<Side<'a>>) -> Self {
        Self { second: Some(second.into()), ..first.into().into() }
    }

    /// A set to which rows come: it is one set then, whose new rows are numbered behind the others, and of whose pairs those of
    /// two old rows are known. The new rows are joined with the old ones and with each other.
    pub fn grown(old: impl Into<Side<'a>>, new: impl Into<Side<'a>>) -> Self {
        Self { is_grown: true, ..Self::between(old, new) }
    }

    /// Whether this is a set to which rows come.
    pub fn have_grown(self) -> bool {
        self.is_grown
    }

    /// The option by which there is a second set, where there is one.
    pub(crate) fn second_by(self) -> Option<Argument> {
        self.second.map(|_| if self.is_grown { Argument::New } else { Argument::With })
    }

    /// The rows that results tell of: those on the left of pairs of two sets, the new ones of a set that has grown.
    pub fn results_of(self) -> Side<'a> {
        self.second.filter(|_| self.is_grown).unwrap_or(self.first)
    }

    /// What tells which of the pairs of these sets meet a condition.
    ///
    /// # Errors
    /// Where a store has no attributes or not those that are asked for, types do not go together, a file is damaged, or memory
    /// does not suffice.
    pub fn pairs_that_meet(self, context: &Context, condition: PairCondition) -> Result<PairFilter> {
        let are_two = self.second.is_some() && !self.is_grown;
        PairFilter::new(context, (&self.stores().collect::<Vec<_>>(), are_two), condition)
    }

    /// The same of which only the pairs count that a filter accepts, which is of these sets.
    #[must_use]
    pub fn with_pairs(self, pairs: Option<&'a PairFilter>) -> Self {
        Self { pairs, ..self }
    }

    /// The rows on the left of pairs.
    pub fn left_side(self) -> Side<'a> {
        self.first
    }

    /// The rows that are joined with those of [`Sets::left_side`], where these are two sets.
    pub fn other_side(self) -> Option<Side<'a>> {
        self.second
    }

    /// The store of the left rows of pairs.
    pub fn left(self) -> &'a Store {
        self.first.store
    }

    /// The store of the right rows of pairs.
    pub fn right(self) -> &'a Store {
        self.second.unwrap_or(self.first).store
    }

    /// The store whose rows are joined with those of [`Sets::left`], where these are two.
    pub fn other(self) -> Option<&'a Store> {
        self.second.map(Side::store)
    }

    /// The sides, each once.
    pub fn sides(self) -> impl Iterator<Item = Side<'a>> + Clone {
        std::iter::once(self.first).chain(self.second)
    }

    /// The stores, each once.
    pub fn stores(self) -> impl Iterator<Item = &'a Store> + Clone {
        self.sides().map(Side::store)
    }

    /// What tells them from others.
    pub(crate) fn checksums(self) -> Vec<String> {
        let pairs = self.pairs.map(|pairs| format!("{:016x}", xxh3_64(pairs.text().as_bytes())));
        let grown = self.is_grown.then(|| "grown".to_owned());
        self.sides().map(Side::checksum).chain(grown).chain(pairs).collect()
    }

    /// Their buckets, with the members that take part.
    ///
    /// # Errors
    /// Where the vectors of two stores cannot be compared.
    pub fn buckets(self) -> Result<Buckets<'a>> {
        let buckets = match self.second {
            None => Buckets::of(self.first.store),
            Some(second) if self.is_grown => Buckets::grown(self.first.store, second.store)?,
            Some(second) => Buckets::between(self.first.store, second.store)?,
        };
        Ok(buckets.among(self.sides().map(Side::subset).collect(), self.pairs))
    }
}
