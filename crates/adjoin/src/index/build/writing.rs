//! Writes the vectors, codes and ids of an index, a few pages at a time from the first page to the last. One thread
//! gathers the vertices of pages while another appends the pages before.

use std::ops::Range;
use std::panic::resume_unwind;
use std::path::Path;

use adjoin_device::{AlignedBuffer, Reservation};
use adjoin_kernels::Panel;
use crossbeam_channel::bounded;

use super::PURPOSE;
use super::gathering::Gathering;
use super::origin::{GatherRoom, Origin, VectorsToGather};
use super::reach::{RangeLists, Repaired};
use crate::base::error::{Error, Result};
use crate::base::geometry::Coordinate;
use crate::base::row_numbers::RankedSet;
use crate::base::sorter::{SORTER_BYTES_MIN, Sorter};
use crate::base::workers::spawn_scoped;
use crate::index::drafting::{Draft, Drafted};
use crate::index::layout::Places;
use crate::index::page::PageShape;
use crate::index::rows::{Duplicates, IdDraft};
use crate::quantize::Quantizer;
use crate::source::Ids;
use crate::store::{Drafts, FileFacts, Role, Store};

/// Inputs for writing the files of an index.
pub(in crate::index) struct Writing<'a, O> {
    pub(in crate::index) origin: &'a O,
    pub(in crate::index) graph: &'a Repaired,
    pub(in crate::index) shape: PageShape,
    pub(in crate::index) quantizer: &'a Quantizer,
    pub(in crate::index) drafts: &'a Drafts<'a>,
    pub(in crate::index) temporary: &'a Path,
    pub(in crate::index) places: &'a Places,
    /// Source rows that a merge inserts. Empty unless this build is part of a merge.
    pub(in crate::index) inserted: Range<u64>,
}

/// Files under construction that are written together.
struct OutputFiles {
    pages: Draft,
    codes: Draft,
    ids: IdDraft,
}

/// Consecutive pages that are about to be written.
struct GatheredPages<'a, T> {
    /// Number of the first page.
    first: u32,
    /// Pages without checksums.
    pages: AlignedBuffer,
    /// Vertices in the order of their places.
    vertices: Vec<u32>,
    /// The vertices, with the rank of each. The other fields are in the order of the ranks.
    ranks: RankedSet,
    codes: Vec<Code<'a>>,
    /// Vectors of the vertices without known codes.
    panel: Panel<T>,
    ids: Ids,
}

/// Code of a vertex.
enum Code<'a> {
    Known(&'a [u8]),
    /// The code must be made of the vector in this row of a panel.
    OfRow(usize),
}

/// Result of writing.
pub(in crate::index) struct Written {
    pub(in crate::index) drafted: Vec<Drafted>,
    pub(in crate::index) duplicates: Duplicates,
    pub(in crate::index) inserted: InsertedEntries,
}

/// Entries of the rows that a merge inserted, ascending.
pub(in crate::index) struct InsertedEntries {
    pub(in crate::index) entries: Vec<u32>,
    _memory: Reservation,
}

/// Returns the bytes for the entries of `rows` inserted rows.
pub(in crate::index) fn inserted_bytes(rows: u64) -> u64 {
    rows * size_of::<u32>() as u64
}

/// Returns the bytes of a vertex while it is written, in addition to its vector.
pub(in crate::index) fn bytes_of_vertex(id_bytes: u64, shape: PageShape, code_bytes: usize) -> u64 {
    let of_id = 2 * (id_bytes + size_of::<u64>() as u64);
    (shape.bytes() / shape.records() + 1 + 3 * code_bytes) as u64 + of_id
}

/// Number of parts of the pages that are in memory at once.
const PARTS_IN_MEMORY: usize = 2;
/// Bytes for buffers of files.
const FILES_BYTES: u64 = 6 << 20;

/// Returns the least bytes for writing, in addition to the vectors and vertices that are written at once. The largest
/// window takes `window_bytes` bytes.
pub(in crate::index) fn least_bytes(window_bytes: u64) -> u64 {
    FILES_BYTES + window_bytes.max(SORTER_BYTES_MIN)
}

impl<O: Origin> Writing<'_, O> {
    /// Writes pages, codes and ids, window by window.
    ///
    /// # Errors
    /// If the store or the lists cannot be read, if a file cannot be written, or if memory does not suffice.
    pub(in crate::index) fn run<T: Coordinate>(&self, windows: &[Range<u32>]) -> Result<Written> {
        let context = self.origin.context();
        let (kind, id_bytes) = self.origin.ids();
        let rows = self.inserted.end - self.inserted.start;
        let of_inserted = context.reserve(inserted_bytes(rows), PURPOSE)?;
        let mut inserted = Vec::with_capacity(rows as usize);
        let mut out = OutputFiles {
            pages: Draft::new(context, self.drafts, Role::Pages)?,
            codes: Draft::new(context, self.drafts, Role::Codes)?,
            ids: IdDraft::new(context, self.drafts, self.temporary, kind, PURPOSE)?,
        };
        let of_vertex = bytes_of_vertex(id_bytes, self.shape, self.quantizer.code_bytes());
        let GatherRoom { bytes, vector_bytes } = self.origin.room();
        // Some pages are gathered while others are appended.
        let together = (bytes / (vector_bytes + of_vertex)) as usize / PARTS_IN_MEMORY;
        context.progress.begin("write", "pages", self.shape.pages(self.origin.vertices()));
        let (send, receive) = bounded::<GatheredPages<'_, T>>(0);
        std::thread::scope(|scope| {
            let out = &mut out;
            let appending = spawn_scoped(scope, "adjoin writer", move || {
                receive.iter().try_for_each(|some| self.append(some, out))
            })?;
            let gathered = self.gather(windows, together, &mut inserted, &mut |some| {
                // Sending fails only if pages can no longer be appended. That error is reported below.
                send.send(some).map_err(|_| Error::input("pages can no longer be written"))
            });
            drop(send);
            appending.join().unwrap_or_else(|panic| resume_unwind(panic)).and(gathered)
        })?;
        let duplicates = self.others(&mut out, &mut inserted)?;
        let drafted = vec![out.pages.finish()?, out.codes.finish()?, out.ids.finish()?];
        // Entries within a part are not in order. Entries of further rows follow the entries of all vertices.
        inserted.sort_unstable();
        let inserted = InsertedEntries { entries: inserted, _memory: of_inserted };
        Ok(Written { drafted, duplicates, inserted })
    }

    /// Passes all pages to `take`, with about `together` vertices at a time. Adds the entries of inserted rows to
    /// `inserted`.
    fn gather<'s, T: Coordinate>(
        &'s self,
        windows: &[Range<u32>],
        together: usize,
        inserted: &mut Vec<u32>,
        take: &mut dyn FnMut(GatheredPages<'s, T>) -> Result<()>,
    ) -> Result<()> {
        let (context, records) = (self.origin.context(), self.shape.records());
        // Each part has whole pages.
        let together = (together / records).max(1) * records;
        for window in windows {
            let lists = self.graph.range(context, window.clone())?;
            let _of_order = context.reserve(Places::memory_bytes(window.len() as u64), PURPOSE)?;
            let order = self.places.order(window.clone());
            for (start, vertices) in window.clone().step_by(together).zip(order.chunks(together)) {
                take(self.gather_some(start, vertices, &lists, inserted)?)?;
                context.progress.advance(u64::from(self.shape.page_of(start)) + (vertices.len() / records) as u64);
            }
        }
        Ok(())
    }

    /// Gathers vertices, which are given in the order of their places. The first of them, at place `start`, begins a
    /// page.
    fn gather_some<T: Coordinate>(
        &self,
        start: u32,
        vertices: &[u32],
        lists: &RangeLists<'_>,
        inserted: &mut Vec<u32>,
    ) -> Result<GatheredPages<'_, T>> {
        let (origin, shape) = (self.origin, self.shape);
        let wanted = VectorsToGather::of(origin.vertices(), vertices.iter().copied());
        let (ranks, mut loading) = (wanted.ranked(), origin.loading());
        let mut pages = AlignedBuffer::zeroed(vertices.len().div_ceil(shape.records()) * shape.bytes());
        let mut unknown = 0;
        let code_of = |vertex| match origin.code(vertex) {
            Some(code) => Code::Known(code),
            None => {
                unknown += 1;
                Code::OfRow(unknown - 1)
            }
        };
        let codes: Vec<Code<'_>> = ranks.iter().map(code_of).collect();
        let mut panel = Panel::<T>::zeroed(unknown, origin.space().dimensions());
        let mut ids = Ids::empty(origin.ids().0);
        let mut neighbors = Vec::new();
        let first = shape.page_of(start);
        let mut at = 0;
        origin.each(&ranks, true, &mut |row| {
            let place = self.places.by_vertex[row.vertex as usize];
            neighbors.clear();
            neighbors.extend(lists.of(row.vertex).iter().map(|&neighbor| self.places.by_vertex[neighbor as usize]));
            let (page, slot) = ((shape.page_of(place) - first) as usize, (place - start) as usize % shape.records());
            let page = &mut pages[page * shape.bytes()..][..shape.bytes()];
            shape.put(page, slot, row.stored, row.row, &neighbors);
            if let Code::OfRow(row_of_panel) = codes[at] {
                loading.load(row.stored, &mut panel, row_of_panel);
            }
            ids.push_from(row.ids, row.id_at);
            if self.inserted.contains(&row.row) {
                inserted.push(place);
            }
            at += 1;
            Ok(())
        })?;
        Ok(GatheredPages { first, pages, vertices: vertices.to_vec(), ranks, codes, panel, ids })
    }

    /// Appends gathered pages, and the codes and ids of their vertices, to the files.
    fn append<T: Coordinate>(&self, some: GatheredPages<'_, T>, out: &mut OutputFiles) -> Result<()> {
        let GatheredPages { first, mut pages, vertices, ranks, codes: known, panel, ids } = some;
        (first..)
            .zip(pages.chunks_exact_mut(self.shape.bytes()))
            .for_each(|(number, page)| PageShape::seal(page, number));
        out.pages.append(&pages)?;
        let made = self.quantizer.encode(self.origin.context(), &panel)?;
        let code_bytes = self.quantizer.code_bytes();
        let (mut codes, mut id) = (Vec::with_capacity(vertices.len() * code_bytes), Vec::new());
        for vertex in vertices {
            let rank = ranks.rank(vertex) as usize;
            codes.extend_from_slice(match known[rank] {
                Code::Known(code) => code,
                Code::OfRow(row) => &made[row * code_bytes..][..code_bytes],
            });
            id.clear();
            ids.append_bytes_of(rank, &mut id);
            out.ids.push(&id)?;
        }
        out.codes.append(&codes)
    }

    /// Collects the further rows of vertices, by place. Writes their ids, which follow the ids of first rows.
    fn others(&self, out: &mut OutputFiles, inserted: &mut Vec<u32>) -> Result<Duplicates> {
        let context = self.origin.context();
        let mut duplicates = Duplicates::default();
        if !self.origin.has_others() {
            return Ok(duplicates);
        }
        let memory = SORTER_BYTES_MIN.max(context.budget().free() / 2);
        let _memory = context.reserve(memory, PURPOSE)?;
        // Further rows are sorted by place and then by row, which is the order of their entries.
        let mut sorter = Sorter::new(context, self.temporary, memory);
        let mut id = Vec::new();
        self.origin.each_other(true, &mut |row| {
            id.clear();
            row.ids.append_bytes_of(row.id_at, &mut id);
            sorter.push((self.places.by_vertex[row.vertex as usize].into(), row.row), &id)
        })?;
        let mut sorted = sorter.finish()?;
        let mut of_place: (u32, Vec<u64>) = (0, Vec::new());
        // The entries of further rows follow those of all vertices.
        let mut entries = self.origin.vertices()..;
        while let Some((place, row)) = sorted.next(&mut id)? {
            if u64::from(of_place.0) != place {
                duplicates.push(of_place.0, of_place.1.drain(..));
                of_place.0 = place as u32;
            }
            of_place.1.push(row);
            let entry = entries.next().expect("entries have numbers of 32 bits");
            if self.inserted.contains(&row) {
                inserted.push(entry);
            }
            out.ids.push(&id)?;
        }
        duplicates.push(of_place.0, of_place.1.into_iter());
        Ok(duplicates)
    }
}

impl Writing<'_, Gathering<'_>> {
    /// Writes the columns of a store by entry, if it has any. Returns the facts for the manifest about the file, and
    /// the bytes that were written to temporary files.
    ///
    /// # Errors
    /// If the store cannot be read, if a file cannot be written, or if memory does not suffice.
    pub(in crate::index) fn attributes(
        &self,
        store: &Store,
        duplicates: &Duplicates,
    ) -> Result<Option<(FileFacts, u64)>> {
        let Some(columns) = store.columns() else { return Ok(None) };
        let Gathering { context, map, .. } = *self.origin;
        let _of_others = context.reserve(duplicates.len() as u64 * size_of::<u32>() as u64, PURPOSE)?;
        let mut others: Vec<u32> = Vec::with_capacity(duplicates.len());
        if map.has_others() {
            self.origin.each_other(false, &mut |row| {
                let (first, rows) = duplicates.of(self.places.by_vertex[row.vertex as usize]);
                let at = rows.binary_search(&row.row).expect("a row without a place is a further row of its vertex");
                others.push(map.len() + (first + at) as u32);
                Ok(())
            })?;
        }
        let entry = |place: u32| match map.other_at(place) {
            Some(other) => others[other],
            None => self.places.by_vertex[map.vertex_at(place) as usize],
        };
        columns.reorder(context, self.drafts, self.temporary, entry).map(Some)
    }
}
