//! Queries on their way in: checked, of the store's kind, and as many at once as memory holds.

use std::path::Path;

use adjoin_kernels::Kernel;

use super::searcher::Searcher;
use crate::error::{Error, Result};
use crate::geometry::{Coordinate, Space, as_floats};
use crate::load::{Buckets, ReadAhead, least_read_ahead};
use crate::options::{Element, VectorType};
use crate::plan::Load;
use crate::source::{IdKind, Ids, VectorSource};
use crate::store::{Intake, OnBad, batch_bytes, fix, scan_bytes, tell};

/// What is asked.
#[derive(Clone, Copy)]
pub enum QuerySet<'a> {
    /// The vectors of a source, in their order.
    Source(&'a dyn VectorSource),
    /// The vectors of the store itself, in the order in which they lie there; none finds itself.
    Rows,
}

/// Some queries as they are stored.
pub(super) struct QueryBatch {
    pub(super) vectors: VectorType,
    pub(super) stored: Vec<u8>,
    pub(super) rows: Vec<u64>,
    pub(super) ids: Ids,
    /// Where they lie in the store, of queries that do.
    pub(super) places: Option<Vec<(u32, u32)>>,
}

impl QueryBatch {
    /// Keeps the queries of some rows.
    pub(super) fn retain(&mut self, keep: impl Fn(u64) -> bool) {
        let bytes = self.vectors.bytes();
        let mut ids = Ids::empty(self.ids.kind());
        let mut stored = Vec::new();
        for (k, _) in self.rows.iter().enumerate().filter(|(_, row)| keep(**row)) {
            stored.extend_from_slice(&self.stored[k * bytes..][..bytes]);
            ids.push_from(&self.ids, k);
        }
        let mut kept = self.rows.iter().map(|&row| keep(row));
        self.places.iter_mut().for_each(|places| places.retain(|_| kept.next() == Some(true)));
        self.rows.retain(|&row| keep(row));
        (self.stored, self.ids) = (stored, ids);
    }
}

/// Queries that wait until they are as many as are searched at once.
struct Gathering<'a> {
    at_once: usize,
    waiting: QueryBatch,
    take: &'a mut dyn FnMut(QueryBatch) -> Result<()>,
}

impl QuerySet<'_> {
    /// How many there are, those that are refused later among them.
    pub(super) fn count(self, buckets: &Buckets<'_>) -> u64 {
        match self {
            Self::Source(source) => source.info().rows,
            Self::Rows => buckets.rows(),
        }
    }

    /// Their type once they are compared: their own where coordinates are floats, else that of the store.
    pub(super) fn vectors(self, space: Space<'_>) -> VectorType {
        match self {
            Self::Source(source) if space.is_of_floats() => source.info().vectors,
            _ => space.vectors,
        }
    }

    /// Kind of their ids.
    pub(super) fn ids(self, store: IdKind) -> IdKind {
        match self {
            Self::Source(source) => source.info().ids,
            Self::Rows => store,
        }
    }

    /// Bytes that are held while they are read.
    pub(super) fn reading_bytes(self, buckets: &Buckets<'_>) -> u64 {
        match self {
            Self::Source(source) => scan_bytes(source.info(), batch_bytes(0)) + source.scan_bytes(batch_bytes(0)),
            Self::Rows => 2 * least_read_ahead(buckets.extents(), true),
        }
    }

    /// Refuses queries of other dimensions than the vectors of a store.
    pub(super) fn check(self, space: Space<'_>, store: &Path) -> Result<()> {
        let Self::Source(source) = self else { return Ok(()) };
        let (theirs, ours) = (source.info().vectors.dimensions, space.vectors.dimensions);
        if theirs == ours {
            return Ok(());
        }
        let (file, store) = (source.locate(0).0, store.display());
        Err(Error::input(format!(
            "{}: queries have {theirs} dimensions, the vectors of {store} {ours}; give queries of the same model",
            file.display()
        )))
    }

    /// Hands all queries to `take`, at most `at_once` at a time.
    ///
    /// # Errors
    /// Where they cannot be read or are none that the store can have, or `take` fails.
    pub(super) fn each<T: Coordinate>(
        self,
        searcher: &Searcher<'_, T>,
        at_once: usize,
        take: &mut dyn FnMut(QueryBatch) -> Result<()>,
    ) -> Result<()> {
        let Searcher { context, buckets, .. } = *searcher;
        let (space, bytes) = (buckets.space(), buckets.vectors().bytes());
        let places = match self {
            Self::Source(_) => None,
            Self::Rows => Some(Vec::new()),
        };
        let (vectors, ids) = (self.vectors(space), Ids::empty(self.ids(buckets.ids(0))));
        let waiting = QueryBatch { vectors, stored: Vec::new(), rows: Vec::new(), ids, places };
        let mut all = Gathering { at_once, waiting, take };
        match self {
            Self::Source(source) => {
                let (metric, on_bad, left_out, batch_bytes) = (buckets.metric(), OnBad::Error, None, batch_bytes(0));
                tell(context, source);
                let intake = Intake { context, source, metric, on_bad, left_out, remedy: fix, batch_bytes };
                intake.scan(|usable| {
                    let from = source.info().vectors;
                    for (k, vector) in usable.stored.chunks_exact(from.bytes()).enumerate() {
                        all.add(usable.rows[k], (&usable.ids, k), None, |stored| {
                            convert(context.kernel, source, (vector, usable.rows[k]), vectors.element, stored)
                        })?;
                    }
                    Ok(())
                })?;
            }
            Self::Rows => {
                let loads = Load::each(buckets.count());
                let memory = least_read_ahead(buckets.extents(), true);
                let mut ahead = ReadAhead::new(context, "queries", buckets, true, memory, loads, &context.cancel)?;
                while let Some(stored) = ahead.next_bucket()? {
                    let bucket = stored.decode(buckets)?;
                    let all_vectors = stored.bytes()[bucket.vectors.clone()].chunks_exact(bytes);
                    for ((k, vector), &row) in all_vectors.enumerate().zip(&bucket.rows) {
                        all.add(row, (&bucket.ids, k), Some((stored.number(), k as u32)), |stored| {
                            stored.extend_from_slice(vector);
                            Ok(())
                        })?;
                    }
                }
            }
        }
        all.finish()
    }
}

impl Gathering<'_> {
    fn add(
        &mut self,
        row: u64,
        (ids, k): (&Ids, usize),
        place: Option<(u32, u32)>,
        vector: impl FnOnce(&mut Vec<u8>) -> Result<()>,
    ) -> Result<()> {
        vector(&mut self.waiting.stored)?;
        self.waiting.rows.push(row);
        self.waiting.ids.push_from(ids, k);
        if let Some(places) = &mut self.waiting.places {
            places.extend(place);
        }
        if self.waiting.rows.len() < self.at_once {
            return Ok(());
        }
        let QueryBatch { vectors, ids, places, .. } = &self.waiting;
        let (vectors, ids, places) = (*vectors, Ids::empty(ids.kind()), places.as_ref().map(|_| Vec::new()));
        let empty = QueryBatch { vectors, stored: Vec::new(), rows: Vec::new(), ids, places };
        (self.take)(std::mem::replace(&mut self.waiting, empty))
    }

    fn finish(self) -> Result<()> {
        if self.waiting.rows.is_empty() { Ok(()) } else { (self.take)(self.waiting) }
    }
}

/// Adds a vector of a source to those of an element type.
fn convert(
    kernel: Kernel,
    source: &dyn VectorSource,
    (vector, row): (&[u8], u64),
    to: Element,
    stored: &mut Vec<u8>,
) -> Result<()> {
    let from = source.info().vectors;
    if from.element == to {
        stored.extend_from_slice(vector);
        return Ok(());
    }
    let mut floats = vec![0.0; from.dimensions];
    as_floats(kernel, from.element, vector, &mut floats);
    for (place, &value) in floats.iter().enumerate() {
        stored.push(byte_of(value, to).ok_or_else(|| {
            let (file, row) = source.locate(row);
            Error::input(format!(
                "{}: element {place} of row {row} is {value}; the vectors of the store are {to}, so queries hold whole \
                 numbers of that type",
                file.display()
            ))
        })?);
    }
    Ok(())
}

/// The stored byte of an integer element.
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
    fn only_whole_numbers_of_the_type_become_bytes() {
        assert_eq!(byte_of(255.0, Element::U8), Some(255));
        assert_eq!(byte_of(-128.0, Element::I8), Some(0x80));
        for (value, element) in [(0.5, Element::U8), (-1.0, Element::U8), (128.0, Element::I8), (f32::NAN, Element::U8)]
        {
            assert_eq!(byte_of(value, element), None, "{value}");
        }
    }
}
