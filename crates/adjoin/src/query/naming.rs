//! Looks up the ids and columns of hits, for as many hits at a time as memory holds.

use std::sync::atomic::{AtomicUsize, Ordering};

use adjoin_device::Reservation;

use super::id_room::IdRoom;
use crate::base::context::Context;
use crate::base::error::Result;
use crate::execute::Hit;
use crate::load::{Buckets, ReadAhead, least_read_ahead};
use crate::plan::Load;
use crate::source::{IdKind, Ids};
use crate::store::{ColumnNeeds, GATHERED_LINE_BYTES, GatheredColumns};

/// Purposes of the memory in error messages.
const PURPOSE: &str = "the ids of the hits";
const PURPOSE_COLUMNS: &str = "the columns of the hits";
/// Bytes set aside for ids during a whole search, so that some hits can always be named.
const SET_ASIDE_BYTES: u64 = 1 << 20;
/// Number of copies of a row of columns while it is read: the row itself, and the piece of the file that has it.
const GATHERED_COPIES: u64 = 2;
/// Number of copies of a row while it is delivered: in batches that wait, and in the buffers of a table.
pub(super) const SENT_COPIES: u64 = 8;
/// Bytes of a hit during the lookup: its place, its rank in the order of places, the position of its id, and its
/// bucket.
const BYTES_OF_HIT: u64 = (size_of::<(u32, u32)>() + 3 * size_of::<u32>()) as u64;

/// Kind of the ids and the columns to look up for hits.
#[derive(Debug, Clone)]
pub(crate) struct HitLookup {
    pub(crate) ids: IdKind,
    /// Bytes for reading ids.
    pub(crate) naming_bytes: u64,
    /// Columns that hits carry, if any.
    pub(crate) columns: Option<ColumnNeeds>,
}

impl HitLookup {
    /// Returns the bytes that an error message adds to the budget that it recommends, so that the longest row fits. The
    /// bytes for a row of mean length are set aside already.
    pub(crate) fn long_row_bytes(&self) -> u64 {
        let beyond_mean = |columns: &ColumnNeeds| columns.row_bytes_max.saturating_sub(columns.row_bytes);
        (GATHERED_COPIES + SENT_COPIES) * self.columns.as_ref().map_or(0, beyond_mean)
    }
}

/// Memory for the ids and columns of hits during a search.
pub(crate) struct IdMemory<'a> {
    context: &'a Context,
    kind: IdKind,
    columns: Option<ColumnMemory>,
    _set_aside: Reservation,
    /// Largest number of hits that are looked up at once. Halved when memory does not suffice.
    at_once: AtomicUsize,
}

/// The columns that hits carry, and the memory for reading them.
pub(super) struct ColumnMemory {
    pub(super) needs: ColumnNeeds,
    pub(super) reading: Context,
}

/// Ids and columns of some hits. If several hits are one row, they share an id.
pub(crate) struct NamedHits {
    pub(super) ids: Ids,
    /// Position in `ids` of the id of each hit.
    pub(super) positions: Vec<u32>,
    /// Columns of the hits, if the search asks for any.
    pub(super) columns: Option<GatheredColumns>,
}

/// Lookup in progress. It assigns ids to hits in the order of their places.
pub(crate) struct Naming<'a> {
    places: &'a [(u32, u32)],
    order: Vec<u32>,
    next: usize,
    named: NamedHits,
}

/// Callback that looks up the ids and columns of hits by their places. Returns `None` if they do not fit in the given
/// memory.
pub(crate) type NameHits<'a> = dyn FnMut(&[(u32, u32)], &mut IdRoom<'_>) -> Result<Option<NamedHits>> + 'a;

impl<'a> IdMemory<'a> {
    /// Sets memory aside for ids and columns, and for reading them.
    ///
    /// # Errors
    /// If the budget is too small.
    pub(crate) fn new(context: &'a Context, lookup: HitLookup) -> Result<Self> {
        let purpose = if lookup.columns.is_some() { PURPOSE_COLUMNS } else { PURPOSE };
        let columns_bytes = lookup.columns.as_ref().map_or(0, |columns| columns.reading_bytes);
        let set_aside = context.reserve(Self::least_bytes(&lookup) - columns_bytes, purpose)?;
        let columns = match lookup.columns {
            Some(needs) => Some(ColumnMemory { reading: context.with_reserved(needs.reading_bytes, purpose)?, needs }),
            None => None,
        };
        let at_once = AtomicUsize::new(usize::MAX);
        Ok(Self { context, kind: lookup.ids, columns, _set_aside: set_aside, at_once })
    }

    /// Returns the bytes that [`IdMemory::new`] sets aside.
    pub(crate) fn least_bytes(HitLookup { ids, naming_bytes, columns }: &HitLookup) -> u64 {
        let of_ids = if *ids == IdKind::None { 0 } else { SET_ASIDE_BYTES + naming_bytes };
        let of_columns = columns.as_ref().map_or(0, |columns| columns.reading_bytes + columns_set_aside(columns));
        of_ids + of_columns
    }

    pub(crate) fn kind(&self) -> IdKind {
        self.kind
    }

    /// Returns the columns that hits carry, if any.
    pub(super) fn columns(&self) -> Option<&ColumnMemory> {
        self.columns.as_ref()
    }

    /// Looks up ids and columns with `name`, for as many hits at once as memory holds. Passes them to `take`, with the
    /// number of hits, in the order of the hits.
    ///
    /// # Errors
    /// If the id and the columns of a single hit do not fit in memory, or if `name` or `take` fails.
    pub(super) fn each(
        &self,
        found: &[Vec<Hit>],
        name: &mut NameHits<'_>,
        take: &mut dyn FnMut(&NamedHits, usize) -> Result<()>,
    ) -> Result<()> {
        let total: usize = found.iter().map(Vec::len).sum();
        if self.kind == IdKind::None && self.columns.is_none() {
            return take(&NamedHits::unnamed(), total);
        }
        let mut done = 0;
        while done < total {
            let count = self.at_once.load(Ordering::Relaxed).min(total - done);
            let mut room = self.room();
            // The lookup itself takes memory for each hit.
            let named = if room.take(count as u64 * self.hit_bytes()) {
                let mut places = Vec::with_capacity(count);
                places.extend(found.iter().flatten().skip(done).take(count).map(|hit| hit.place));
                name(&places, &mut room)?
            } else {
                None
            };
            match named {
                Some(named) => {
                    take(&named, count)?;
                    done += count;
                }
                None if count == 1 => return Err(room.refused()),
                // The number stays halved for the rest of the search, since the ids of other hits are probably as long.
                None => self.at_once.store(count / 2, Ordering::Relaxed),
            }
        }
        Ok(())
    }

    /// Returns the memory for the ids and columns of a group of hits. At first it has the bytes that are set aside.
    fn room(&self) -> IdRoom<'a> {
        let of_ids = if self.kind == IdKind::None { 0 } else { SET_ASIDE_BYTES };
        let columns = self.columns.as_ref().map(|columns| &columns.needs);
        IdRoom {
            context: self.context,
            bytes: 0,
            set_aside: of_ids + columns.map_or(0, columns_set_aside),
            named_beyond: columns.map_or(0, |columns| SENT_COPIES * columns.row_bytes_max),
            purpose: if columns.is_some() { PURPOSE_COLUMNS } else { PURPOSE },
            beyond: None,
        }
    }

    fn hit_bytes(&self) -> u64 {
        BYTES_OF_HIT + self.columns.as_ref().map_or(0, |_| GATHERED_LINE_BYTES)
    }
}

/// Returns the bytes to set aside for the columns of hits, so that some rows can always be read.
fn columns_set_aside(ColumnNeeds { row_bytes, .. }: &ColumnNeeds) -> u64 {
    SET_ASIDE_BYTES + GATHERED_COPIES * row_bytes
}

impl NamedHits {
    /// Creates hits without ids and columns.
    pub(super) fn unnamed() -> Self {
        Self { ids: Ids::None, positions: Vec::new(), columns: None }
    }
}

impl<'a> Naming<'a> {
    pub(crate) fn new(kind: IdKind, places: &'a [(u32, u32)]) -> Self {
        // Ids are looked up in the order of places, so that each part of the file is read once.
        let mut order: Vec<u32> = (0..places.len() as u32).collect();
        order.sort_unstable_by_key(|&hit| places[hit as usize]);
        let named = NamedHits { ids: Ids::empty(kind), positions: vec![0; places.len()], columns: None };
        Self { places, order, next: 0, named }
    }

    /// Returns the next place whose id is needed. Places ascend.
    pub(crate) fn place(&self) -> Option<(u32, u32)> {
        self.order.get(self.next).map(|&hit| self.places[hit as usize])
    }

    /// Returns the ids that are known so far. The caller appends the id of the current place and then calls
    /// [`Naming::advance`].
    pub(crate) fn ids(&mut self) -> &mut Ids {
        &mut self.named.ids
    }

    /// Assigns the last id to all hits at the current place, and moves to the next place.
    pub(crate) fn advance(&mut self) {
        let (place, last) = (self.place(), self.named.ids.len() as u32 - 1);
        while self.place() == place && place.is_some() {
            self.named.positions[self.order[self.next] as usize] = last;
            self.next += 1;
        }
    }

    /// Returns all ids.
    ///
    /// # Panics
    /// If a place has no id yet.
    pub(crate) fn finish(self) -> NamedHits {
        assert!(self.place().is_none(), "each place has an id");
        self.named
    }
}

/// Returns the bytes that [`name_places`] needs for reading a bucket and for decoding the rows and ids of its members.
pub(crate) fn naming_bytes(buckets: &Buckets<'_>) -> u64 {
    // All ids of a part of a bucket are decoded before some are copied.
    let decoded = buckets
        .extents()
        .iter()
        .map(|extent| 2 * size_of::<u64>() as u64 * u64::from(extent.rows) + 2 * extent.id_bytes);
    least_read_ahead(buckets.extents(), true) + decoded.max().unwrap_or(0)
}

/// Reads the ids of members, which are given by bucket and position in the bucket. Returns `None` if the ids do not fit
/// in `room`. The caller must have reserved [`naming_bytes`].
///
/// # Errors
/// If a bucket is damaged.
pub(crate) fn name_places(
    context: &Context,
    buckets: &Buckets<'_>,
    kind: IdKind,
    places: &[(u32, u32)],
    room: &mut IdRoom<'_>,
) -> Result<Option<NamedHits>> {
    let read_ahead = least_read_ahead(buckets.extents(), true);
    let mut naming = Naming::new(kind, places);
    let mut numbers: Vec<u32> = naming.order.iter().map(|&hit| places[hit as usize].0).collect();
    // Places are sorted, so equal buckets are adjacent.
    numbers.dedup();
    let loads = numbers.iter().map(|&bucket| Load { bucket, step: bucket.into() });
    let mut ahead = ReadAhead::new(context, "ids", buckets, true, read_ahead, loads, &context.cancel)?.in_parts();
    while let Some(stored) = ahead.next_bucket()? {
        context.cancel.check()?;
        let members = stored.members(buckets)?;
        while let Some((_, place)) = naming.place().filter(|&(number, _)| number == stored.number()) {
            let member = (place - members.first) as usize;
            if !room.take_id(members.ids.bytes_of(member)) {
                return Ok(None);
            }
            naming.ids().push_from(&members.ids, member);
            naming.advance();
        }
    }
    Ok(Some(naming.finish()))
}

/// Reads the ids of members, in the order of `places`.
///
/// # Errors
/// If a bucket is damaged, or if the ids do not fit in memory.
pub(crate) fn ids_of(context: &Context, buckets: &Buckets<'_>, kind: IdKind, places: &[(u32, u32)]) -> Result<Ids> {
    let mut ids = Ids::empty(kind);
    if kind == IdKind::None {
        return Ok(ids);
    }
    let _reading = context.reserve(naming_bytes(buckets), PURPOSE)?;
    let mut room = IdRoom { context, bytes: 0, set_aside: 0, named_beyond: 0, purpose: PURPOSE, beyond: None };
    let fits = room.take(places.len() as u64 * BYTES_OF_HIT);
    let named = if fits { name_places(context, buckets, kind, places, &mut room)? } else { None };
    let Some(named) = named else { return Err(room.refused()) };
    // If several hits are one row, they share an id, but the result has an id for each hit.
    for &position in &named.positions {
        if !room.take_id(named.ids.bytes_of(position as usize)) {
            return Err(room.refused());
        }
        ids.push_from(&named.ids, position as usize);
    }
    Ok(ids)
}
