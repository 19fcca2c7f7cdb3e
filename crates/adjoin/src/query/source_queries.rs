//! Reads the queries of a source, checks and converts them, and passes them to a callback in batches that fit in
//! memory.

use std::path::Path;

use adjoin_device::Reservation;
use adjoin_kernels::Kernel;

use crate::base::context::Context;
use crate::base::error::{Error, Result};
use crate::base::geometry::{Space, as_floats};
use crate::base::options::{Element, VectorType};
use crate::source::{IdKind, Ids, VectorSource};
use crate::store::{Intake, OnBad, batch_bytes, fix, scan_bytes, tell};

/// Approximate limit on the bytes of the text ids of waiting queries, if little memory is free.
const ID_BYTES: u64 = 256 << 10;
/// Divisor of the free memory. If this part of it is larger than [`ID_BYTES`], it is the limit.
const ID_BYTES_PART: u64 = 16;

/// Queries of a search as sources of vectors.
#[derive(Clone, Copy)]
pub struct QuerySources<'a> {
    /// The queries.
    pub queries: &'a dyn VectorSource,
    /// Calibration queries, which must be distributed like the queries. If `None`, the recall is calibrated with a
    /// sample of the rows of the searched folder.
    pub calibrate_with: Option<&'a dyn VectorSource>,
}

impl<'a> QuerySources<'a> {
    /// Creates sources without calibration queries, so that rows of the searched folder are used instead.
    pub fn new(queries: &'a dyn VectorSource) -> Self {
        Self { queries, calibrate_with: None }
    }
}

/// A batch of stored queries.
pub(crate) struct QueryBatch {
    pub(crate) vectors: VectorType,
    pub(crate) stored: Vec<u8>,
    pub(crate) rows: Vec<u64>,
    pub(crate) ids: Ids,
    /// Bucket and position of each query, if the queries are rows of the store.
    pub(crate) places: Option<Vec<(u32, u32)>>,
}

impl QueryBatch {
    /// Creates a batch without queries. It has room for places if `has_places` is set.
    pub(crate) fn empty(vectors: VectorType, ids: IdKind, has_places: bool) -> Self {
        let (stored, rows, ids) = (Vec::new(), Vec::new(), Ids::empty(ids));
        Self { vectors, stored, rows, ids, places: has_places.then(Vec::new) }
    }

    /// Keeps only the queries whose row satisfies `keep`.
    pub(crate) fn retain(&mut self, keep: impl Fn(u64) -> bool) {
        let bytes = self.vectors.bytes();
        let mut ids = Ids::empty(self.ids.kind());
        let mut stored = Vec::new();
        for (k, _) in self.rows.iter().enumerate().filter(|(_, row)| keep(**row)) {
            stored.extend_from_slice(&self.stored[k * bytes..][..bytes]);
            ids.push_from(&self.ids, k);
        }
        // `keep` needs the row of each place, so places are filtered before the rows are removed.
        let mut kept = self.rows.iter().map(|&row| keep(row));
        self.places.iter_mut().for_each(|places| places.retain(|_| kept.next() == Some(true)));
        self.rows.retain(|&row| keep(row));
        (self.stored, self.ids) = (stored, ids);
    }
}

/// A query to add to a batch, without its vector.
pub(crate) struct QueryRow<'a> {
    pub(crate) row: u64,
    /// Ids of several queries. The id of this query is at position `id_at`.
    pub(crate) ids: &'a Ids,
    pub(crate) id_at: usize,
    /// Bucket and position of the query, if it is a row of the store.
    pub(crate) place: Option<(u32, u32)>,
}

/// Collects queries until a batch is complete.
pub(crate) struct Gathering<'a> {
    at_once: usize,
    /// Bytes of text ids at which a batch is complete, even if it has few queries.
    id_bytes: u64,
    _of_ids: Option<Reservation>,
    waiting: QueryBatch,
    take: &'a mut dyn FnMut(QueryBatch) -> Result<()>,
}

/// Queries of a source, to be compared with the vectors of a space.
#[derive(Clone, Copy)]
pub(crate) struct SourceQueries<'a> {
    pub(crate) source: &'a dyn VectorSource,
    pub(crate) space: Space<'a>,
}

impl SourceQueries<'_> {
    /// Returns the type to which the queries are converted. If coordinates are floats, this is their own type.
    /// Otherwise it is the type of the space.
    pub(crate) fn vectors(self) -> VectorType {
        if self.space.is_of_floats() { self.source.info().vectors } else { self.space.vectors }
    }

    /// Returns the bytes held while the queries are read.
    pub(crate) fn reading_bytes(self) -> u64 {
        let info = self.source.info();
        scan_bytes(self.source, batch_bytes(0)) + gathering_bytes(info.ids)
    }

    /// Checks that queries have as many dimensions as the vectors of a folder.
    ///
    /// # Errors
    /// If they do not.
    pub(crate) fn check(self, folder: &Path) -> Result<()> {
        let (theirs, ours) = (self.source.info().vectors.dimensions, self.space.vectors.dimensions);
        if theirs == ours {
            return Ok(());
        }
        let (file, folder) = (self.source.locate(0).0, folder.display());
        Err(Error::input(format!(
            "{}: queries have {theirs} dimensions, but the vectors of {folder} have {ours}; give queries of the same \
             model",
            file.display()
        )))
    }

    /// Passes all queries to `take`, at most `at_once` at a time.
    ///
    /// # Errors
    /// If a query cannot be read or converted, or if `take` fails.
    pub(crate) fn each(
        self,
        context: &Context,
        at_once: usize,
        take: &mut dyn FnMut(QueryBatch) -> Result<()>,
    ) -> Result<()> {
        let Self { source, space } = self;
        let empty = QueryBatch::empty(self.vectors(), source.info().ids, false);
        let mut all = Gathering::new(context, at_once, empty, take);
        // Each query must get an answer, so an invalid query is an error, even though other commands skip bad rows.
        let (metric, on_bad, left_out, batch_bytes) = (space.metric, OnBad::Error, None, batch_bytes(0));
        tell(context, source);
        let intake = Intake { context, source, metric, on_bad, left_out, remedy: fix, batch_bytes };
        intake.scan(|usable| {
            let from = source.info().vectors;
            for (k, vector) in usable.stored.chunks_exact(from.bytes()).enumerate() {
                let query = QueryRow { row: usable.rows[k], ids: &usable.ids, id_at: k, place: None };
                all.add(query, |stored| self.convert(context.kernel, usable.rows[k], vector, stored))?;
            }
            Ok(())
        })?;
        all.finish()
    }

    /// Converts the vector of a row to the type [`Self::vectors`], and appends it to `stored`.
    fn convert(self, kernel: Kernel, row: u64, vector: &[u8], stored: &mut Vec<u8>) -> Result<()> {
        let (from, to) = (self.source.info().vectors, self.vectors().element);
        if from.element == to {
            stored.extend_from_slice(vector);
            return Ok(());
        }
        // Converting to floats first avoids a separate conversion for each pair of types.
        let mut floats = vec![0.0; from.dimensions];
        as_floats(kernel, from.element, vector, &mut floats);
        query_as_stored(&floats, to, stored).map_err(|unfit| {
            let (file, row) = self.source.locate(row);
            Error::input(format!("{}: {}", file.display(), unfit.message(&format!("row {row}"))))
        })
    }
}

/// Returns the bytes for the ids of waiting queries. They include the spare capacity of a growing vector.
pub(crate) fn gathering_bytes(ids: IdKind) -> u64 {
    if ids == IdKind::Utf8 { 2 * ID_BYTES } else { 0 }
}

impl<'a> Gathering<'a> {
    /// Creates a collector that starts with the batch `empty`, and passes each batch of `at_once` queries to `take`.
    /// The caller must have reserved [`gathering_bytes`].
    pub(crate) fn new(
        context: &Context,
        at_once: usize,
        empty: QueryBatch,
        take: &'a mut dyn FnMut(QueryBatch) -> Result<()>,
    ) -> Self {
        let more = (context.budget().free() / ID_BYTES_PART).saturating_sub(ID_BYTES);
        // If this memory is not free, batches with long ids have fewer queries.
        let of_ids = if empty.ids.kind() == IdKind::Utf8 { context.budget().reserve(2 * more).ok() } else { None };
        let id_bytes = ID_BYTES + if of_ids.is_some() { more } else { 0 };
        Self { at_once, id_bytes, _of_ids: of_ids, waiting: empty, take }
    }

    pub(crate) fn add(
        &mut self,
        QueryRow { row, ids, id_at, place }: QueryRow<'_>,
        append_vector: impl FnOnce(&mut Vec<u8>) -> Result<()>,
    ) -> Result<()> {
        append_vector(&mut self.waiting.stored)?;
        self.waiting.rows.push(row);
        self.waiting.ids.push_from(ids, id_at);
        if let Some(places) = &mut self.waiting.places {
            places.extend(place);
        }
        match self.waiting.rows.len() < self.at_once && self.waiting.ids.bytes_of_texts() < self.id_bytes {
            true => Ok(()),
            false => self.take_batch(),
        }
    }

    /// Completes the batch if `count` more queries do not fit in it, so that they are in one batch.
    pub(crate) fn keep_together(&mut self, count: usize) -> Result<()> {
        let waiting = self.waiting.rows.len();
        if waiting == 0 || waiting + count <= self.at_once { Ok(()) } else { self.take_batch() }
    }

    fn take_batch(&mut self) -> Result<()> {
        let QueryBatch { vectors, ids, places, .. } = &self.waiting;
        let empty = QueryBatch::empty(*vectors, ids.kind(), places.is_some());
        (self.take)(std::mem::replace(&mut self.waiting, empty))
    }

    pub(crate) fn finish(self) -> Result<()> {
        if self.waiting.rows.is_empty() { Ok(()) } else { (self.take)(self.waiting) }
    }
}

/// An element of a query that the stored type cannot represent.
pub(crate) struct UnfitElement {
    place: usize,
    value: f32,
    stored: Element,
}

impl UnfitElement {
    /// Describes the element of `query` in an error message.
    pub(crate) fn message(&self, query: &str) -> String {
        let Self { place, value, stored } = self;
        format!(
            "element {place} of {query} is {value}; the vectors of the store are {stored}, so queries need whole \
             numbers of that type"
        )
    }
}

/// Appends a query to `stored`, with elements of type `to`, which is `f32` or the integer type of the store.
///
/// # Errors
/// If the type cannot represent an element. The error has the first such element.
pub(crate) fn query_as_stored(
    query: &[f32],
    to: Element,
    stored: &mut Vec<u8>,
) -> std::result::Result<(), UnfitElement> {
    for (place, &value) in query.iter().enumerate() {
        match to {
            Element::F32 => stored.extend(value.to_le_bytes()),
            // Values are not rounded to integers, since that would change distances.
            _ => stored.push(byte_of(value, to).ok_or(UnfitElement { place, value, stored: to })?),
        }
    }
    Ok(())
}

/// Returns the stored byte of an integer element, or `None` if the value is not an integer of that type.
fn byte_of(value: f32, element: Element) -> Option<u8> {
    let whole = value.fract() == 0.0;
    match element {
        Element::I8 if whole && (-128.0..=127.0).contains(&value) => Some((value as i8).cast_unsigned()),
        Element::U8 if whole && (0.0..=255.0).contains(&value) => Some(value as u8),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_that_fit_in_a_batch_are_kept_together() {
        let vectors = VectorType { element: Element::U8, dimensions: 1 };
        let (mut batches, mut row) = (Vec::new(), 0);
        let mut take = |batch: QueryBatch| {
            batches.push(batch.rows);
            Ok(())
        };
        let empty = QueryBatch::empty(vectors, IdKind::None, false);
        let mut all = Gathering::new(&Context::default(), 5, empty, &mut take);
        // The group of 12 fits in no batch.
        for count in [2, 3, 4, 2, 1, 12] {
            all.keep_together(count).unwrap();
            for _ in 0..count {
                let query = QueryRow { row, ids: &Ids::None, id_at: 0, place: None };
                all.add(query, |stored| {
                    stored.push(0);
                    Ok(())
                })
                .unwrap();
                row += 1;
            }
        }
        all.finish().unwrap();
        let lengths: Vec<usize> = batches.iter().map(Vec::len).collect();
        assert_eq!(lengths, [5, 4, 3, 5, 5, 2]);
        assert!(batches.concat().into_iter().eq(0..24));
    }

    #[test]
    fn only_whole_numbers_of_the_type_become_bytes() {
        assert_eq!(byte_of(255.0, Element::U8), Some(255));
        assert_eq!(byte_of(-128.0, Element::I8), Some(0x80));
        for (value, element) in [(0.5, Element::U8), (-1.0, Element::U8), (128.0, Element::I8), (f32::NAN, Element::U8)]
        {
            assert_eq!(byte_of(value, element), None, "{value}");
        }
    }
}
