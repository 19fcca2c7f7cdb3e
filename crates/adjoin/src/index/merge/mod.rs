//! Merges inserted rows and deletes into an index. Lists of the graph that they do not affect are kept.
//!
//! This is a variant of StreamingMerge of FreshDiskANN (Singh et al., 2021, section 5.3). One pass over the pages finds
//! deleted vertices, and inserted rows whose vector exists in the index (`survey.rs`). Comparisons with cells of the old
//! index find the vertices near inserted rows (`near.rs`). A last pass over the pages builds all lists (`linking.rs`). It
//! combines the delete phase and the patch phase of the paper, so that no list is pruned twice.
//!
//! The navigation graph changes only by the vertices that leave and join its sample. Pages keep the vertices that they
//! have, new vertices fill them up, and swaps improve them (`layout/kept.rs`). Codes are kept as long as their error is
//! small. The recall is measured again.
//!
//! Memory holds the codes, a few bits per vertex, and the inserted and deleted rows. While pages are ordered and
//! written, it also holds the places of all vertices.

mod attributes;
mod cells;
mod linking;
mod mixed;
mod near;
mod numbering;
mod pages;
mod survey;
#[cfg(test)]
mod tests;

use std::collections::HashSet;
use std::ops::Range;
use std::path::Path;

use adjoin_device::release_freed_memory;
use adjoin_kernels::Panel;
use xxhash_rust::xxh3::xxh3_64;

use self::linking::Linking;
use self::mixed::Mixed;
use self::near::{Near, NewVertices};
use self::numbering::{Numbering, Vertex};
use self::survey::Survey;
use super::Index;
use super::build::finishing::{self, NavigationWithMemory, arranged, windows_of};
use super::build::lists::Lists;
use super::build::origin::{GatherNeeds, GatherRoom};
use super::build::pruning::spread;
use super::build::reach;
use super::build::writing::{self, InsertedEntries, Writing, Written};
use super::delete_list::DeleteList;
use super::drafting::{Contents, write_rest};
use super::layout::{GROWN, Places, ROWS};
use super::lost;
use super::manifest::IndexManifest;
use super::navigation::{self, Navigation, StoredVertices};
use super::promise::{self, CalibrationAims};
use super::rows::EntryOrder;
use super::sample::draw_inserted;
use crate::base::context::Context;
use crate::base::error::Result;
use crate::base::geometry::{Coordinate, with_coordinates};
use crate::base::options::Metric;
use crate::base::row_numbers::RankedSet;
use crate::quantize::Quantizer;
use crate::source::{AttributeTables, Ids};
use crate::store::{Drafts, FolderKind, NO_CHECKSUM, Role};

/// Purpose of the memory in error messages.
const PURPOSE: &str = "merging rows into the index";
/// Divisor of the number of kept rows. Changing an index is faster than building one only if at most this part is
/// inserted, since an inserted row costs more than a row of a build.
const CAME_SHARE: u64 = 8;
/// Divisor of the number of kept rows. Changing an index is faster than building one only if at most this part is
/// inserted or deleted, since otherwise nearly all lists change.
const CHANGED_SHARE: u64 = 4;
/// Largest ratio of the error of old codes to their error at the training, or to the error of newly trained codes, at
/// which old vertices keep their codes.
const CODES_WORSE: f64 = 1.1;
/// Numerator and denominator. The navigation graph is built from a new sample if fewer vertices than this part of the
/// sample would remain and join.
const NAVIGATION_SHARE: (u64, u64) = (3, 4);
/// Divisor of the spare memory. The vectors of all vertices are held in memory if they need at most this part of it.
const ALL_SHARE: u64 = 2;
/// Divisor of the spare memory. The lists and the edges back may each take this part of it.
const LISTS_SHARE: u64 = 16;
/// Divisor of the free memory. Gathering takes this part of it.
const GATHERED_SHARE: u64 = 16;
/// Least bytes for the vectors that are gathered at once, and for the work on them.
const GATHERED_BYTES_MIN: u64 = 6 << 20;

/// Inserted rows, numbered from 0 in the order of insertion.
pub(crate) trait Newcomers: Sync {
    /// Returns the number of rows.
    fn rows(&self) -> u32;

    /// Returns the stored vector of a row.
    fn vector(&self, number: u32) -> &[u8];

    /// Returns the mean bytes of a text id, in the part of the rows in which ids are longest. Returns 0 if ids are not
    /// texts.
    fn id_bytes(&self) -> u64 {
        0
    }

    /// Appends the id of a row to `ids`, which are of its kind.
    fn push_id(&self, number: u32, ids: &mut Ids);

    /// Returns the columns of all rows, in the order of the rows. Returns no tables if rows have no columns.
    ///
    /// # Errors
    /// If memory does not suffice.
    fn attributes(&self, _context: &Context) -> Result<AttributeTables<'_>> {
        Ok(Box::new(std::iter::empty()))
    }
}

/// Value of [`Merge::replacements`] of usual merges. With all neighbors, the recall is about equal after many merges, but
/// pruning takes twice as long.
pub(crate) const REPLACEMENTS: usize = 8;

/// A merged index, of which all files except the calibration are written.
struct Laid {
    manifest: IndexManifest,
    /// Bytes written to temporary files.
    spilled: u64,
    inserted: InsertedEntries,
}

/// A merge of rows into an index.
pub(crate) struct Merge<'a> {
    pub(crate) context: &'a Context,
    pub(crate) index: &'a Index,
    /// Rows of the index that were deleted.
    pub(crate) deleted: &'a DeleteList,
    pub(crate) newcomers: &'a dyn Newcomers,
    /// If a vertex has a deleted neighbor, at most this number of the kept neighbors of the deleted vertex become its
    /// candidates, nearest first. FreshDiskANN uses all of them (Algorithm 4).
    pub(crate) replacements: usize,
}

impl Merge<'_> {
    /// Returns whether the index can be changed. It cannot if no row remains, if pages are ordered by row, or if the
    /// metric is inner product, since the nearest vertices are not those with the largest inner product then.
    pub(crate) fn is_possible(&self) -> bool {
        let facts = self.index.facts();
        let can_be = facts.metric != Metric::Ip && facts.layout != ROWS;
        can_be && self.deleted.len() < facts.rows
    }

    /// Returns whether changing the index is possible and faster than building a new one.
    pub(crate) fn pays(&self) -> bool {
        let left = self.index.facts().rows - self.deleted.len();
        let came = u64::from(self.newcomers.rows());
        let changed = self.deleted.len() + came;
        self.is_possible() && came * CAME_SHARE <= left && changed * CHANGED_SHARE <= left
    }

    /// Writes the merged index into a folder that has none. Returns the bytes written.
    ///
    /// # Errors
    /// If the index cannot be read, if a file cannot be written, if memory does not suffice, or if the work is
    /// cancelled. The folder is then left unchanged.
    pub(crate) fn run(&self, folder: &Path) -> Result<u64> {
        let space = self.index.facts().space();
        with_coordinates!(space, T => {
            let context = &self.context.for_run(self.least_bytes::<T>()?, PURPOSE)?;
            let merge = Merge { context, ..*self };
            let drafts = Drafts::begin(context, folder, FolderKind::Index)?;
            let laid = merge.lay::<T>(&drafts, folder)?;
            let Laid { manifest, spilled, inserted } = laid;
            // The codes of the merged index are read next, which are one large block.
            release_freed_memory();
            let manifest = lost::lead_in::<T>(context, &drafts, manifest, &inserted.entries)?;
            let inserted = draw_inserted(manifest.seed, &inserted.entries);
            let aims = CalibrationAims { inserted: &inserted, first: merge.index.longest_list() };
            let (_, bytes) = promise::publish::<T>(context, drafts, manifest, true, aims)?;
            Ok(spilled + bytes)
        })
    }

    /// Returns the approximate least bytes of the merge.
    fn least_bytes<T: Coordinate>(&self) -> Result<u64> {
        let facts = self.index.facts();
        let (vertices, rows) = (u64::from(facts.vertices), u64::from(self.newcomers.rows()));
        let (all, of_number) = (vertices + rows, size_of::<u32>() as u64);
        let of_newcomer = (2 * facts.build_list as u64 + 3 * facts.degree as u64 + 32) * of_number;
        let numbers = Numbering::memory_bytes(vertices, rows) + 4 * RankedSet::memory_bytes(all);
        let attributes = self.index.columns().map_or(Ok(0), |columns| columns.reordering_bytes(facts.rows + rows))?;
        let of_rows = rows * of_newcomer + Places::memory_bytes(all) + reach::memory_bytes(all);
        let of_deleted = survey::lists_bytes(self.deleted, facts.degree);
        let near = near::least_bytes::<T>(self.context, facts, rows);
        Ok(numbers + of_rows + of_deleted + (2 * GATHERED_BYTES_MIN).max(attributes).max(near))
    }

    /// Writes all files except the calibration.
    fn lay<T: Coordinate>(&self, drafts: &Drafts<'_>, folder: &Path) -> Result<Laid> {
        let Self { context, index, deleted, newcomers, .. } = *self;
        let (facts, options) = (index.facts(), &index.facts().parameters());
        let temporary = &context.temporary(Some(folder));
        let survey = &Survey::of(context, index, deleted, newcomers)?;
        let alone: Vec<u32> = survey.alone().collect();
        let rows = NewVertices { newcomers, numbers: &alone };
        let near = &Near::find::<T>(context, index, &survey.kept, rows, options.graph.build_list)?;
        let (places, behind) = near.order(survey.kept.iter().next().expect("the survey keeps a vertex") as u32);
        let numbering = &Numbering::new(survey.kept.clone(), &behind);
        let standing: Vec<u32> = places.iter().map(|&place| alone[place as usize]).collect();
        let left = &RankedSet::new(deleted.entries().complement(facts.rows));
        let mut mixed = self.mixed::<T>(survey, numbering, &standing, left)?;
        let navigation = self.navigation::<T>(&mixed)?;
        let (lists, spilled) = self.link::<T>(&mixed, survey, near, &places, temporary)?;
        let (vertices, entry) = (numbering.vertices(), navigation.graph.entry());
        let graph = reach::repair(context, lists, entry, facts.degree)?;
        let navigation = navigation.with_islands::<T>(&mixed, &graph, &options.graph)?;
        let _of_places = context.reserve(Places::memory_bytes(vertices.into()), PURPOSE)?;
        let pages_before = &|window: Range<u32>| {
            let of_vertex = |vertex| match vertex {
                Vertex::Old(old) => Some(facts.shape().page_of(old)),
                Vertex::New(_) => None,
            };
            numbering.vertices_of(&window.collect::<Vec<u32>>()).into_iter().map(of_vertex).collect()
        };
        let places = &arranged(context, &graph, vertices, facts.degree, facts.shape(), Some(pages_before))?;
        let (learned, code_error) = self.quantizer::<T>(&mixed)?;
        mixed.keeps_codes = learned.is_none();
        let quantizer = learned.as_ref().unwrap_or(&index.quantizer);
        let shape = facts.shape();
        let rows = u64::from(left.len()) + u64::from(newcomers.rows());
        let inserted = left.len().into()..rows;
        let writing = Writing { origin: &mixed, graph: &graph, shape, quantizer, drafts, temporary, places, inserted };
        let Written { drafted, duplicates, inserted } = writing.run::<T>(&windows_of(vertices, shape))?;
        let attributes =
            mixed.attributes(drafts, temporary, deleted, EntryOrder { places, duplicates: &duplicates })?;
        let contents: Contents = vec![
            (Role::Codebook, quantizer.to_bytes()),
            (Role::Navigation, navigation.graph.to_bytes(|vertex| places.by_vertex[vertex as usize])),
            (Role::Duplicates, duplicates.to_bytes()),
        ];
        let mut manifest = IndexManifest {
            rows,
            source_rows: rows,
            vertices,
            layout: GROWN.to_owned(),
            code_error: Some(code_error),
            overlap_ratio: places.overlap_ratio,
            entry: places.by_vertex[entry as usize],
            files: write_rest(drafts, &contents, &drafted)?,
            manifest_xxh3: NO_CHECKSUM.into(),
            ..facts.clone()
        };
        let mut spilled = spilled;
        if let Some((facts, more)) = attributes {
            manifest.files.add(Role::Attributes, facts);
            spilled += more;
        }
        Ok(Laid { manifest, spilled, inserted })
    }

    /// Changes the navigation graph: deleted vertices leave it, and some new vertices join it, so that it remains a random
    /// sample of all vertices.
    fn navigation<T: Coordinate>(&self, mixed: &Mixed<'_>) -> Result<NavigationWithMemory> {
        let Self { context, index, newcomers, .. } = *self;
        let (numbering, options, space) = (mixed.numbering, &index.facts().parameters(), index.facts().space());
        let vertices = u64::from(numbering.vertices());
        let wanted = navigation::sample_len(vertices, options);
        // A new vertex is drawn if the hash of its vector is low.
        let vector = |new: u32| newcomers.vector(mixed.standing[new as usize]);
        let is_low = |new: &u32| u128::from(xxh3_64(vector(*new))) * u128::from(vertices) < u128::from(wanted) << 64;
        let new: Vec<u32> = (0..numbering.new_vertices()).filter(is_low).take(wanted as usize).collect();
        let kept: Vec<u32> =
            index.navigation.vertices().iter().copied().filter(|&old| numbering.is_kept(old)).collect();
        // There is room for the new vertices. After deletes, the sample may also be a little too large.
        let kept: HashSet<u32> = spread(&kept, wanted as usize - new.len()).collect();
        if ((kept.len() + new.len()) as u64) * NAVIGATION_SHARE.1 < wanted * NAVIGATION_SHARE.0 {
            return finishing::navigation::<T>(mixed, options);
        }
        let memory = context.reserve(Navigation::stored_bytes(wanted, space), PURPOSE)?;
        let panel = Panel::<T>::bytes_for(wanted as usize, space.dimensions());
        let _working = context.reserve(wanted * size_of::<[u32; 4]>() as u64 + panel, PURPOSE)?;
        let more = StoredVertices {
            vertices: new.iter().map(|&new| numbering.of_new(new)).collect(),
            stored: new.iter().flat_map(|&new| vector(new)).copied().collect(),
        };
        let number_of = |old: u32| kept.contains(&old).then(|| numbering.of_old(old));
        let graph = index.navigation.changed::<T>(context, space, number_of, more, &options.graph)?;
        Ok(NavigationWithMemory { graph, memory })
    }

    /// Trains codes, unless the old codes are about as good as when they were trained, or as new ones. Then old vertices
    /// keep their codes and are not encoded again. Returns the new quantizer, if there is one, and the relative error
    /// at the training of the codes that are used.
    fn quantizer<T: Coordinate>(&self, mixed: &Mixed<'_>) -> Result<(Option<Quantizer>, f64)> {
        let (index, facts) = (self.index, self.index.facts());
        let error = finishing::code_error::<T>(mixed, &index.quantizer, facts.seed)?;
        if let Some(trained) = facts.code_error.filter(|trained| error <= CODES_WORSE * trained) {
            return Ok((None, trained));
        }
        let (learned, trained) = finishing::quantizer::<T>(mixed, facts.code_bytes, facts.seed)?;
        Ok(((error > CODES_WORSE * trained).then_some(learned), trained))
    }

    /// Chooses the out-neighbors of all vertices. Returns their lists, and the bytes written to temporary files.
    fn link<T: Coordinate>(
        &self,
        mixed: &Mixed<'_>,
        survey: &Survey,
        near: &Near,
        places: &[u32],
        temporary: &Path,
    ) -> Result<(Lists, u64)> {
        let (options, replacements) = (&self.index.facts().parameters().graph, self.replacements);
        let mut new_at = vec![0; places.len()];
        (0..).zip(places).for_each(|(new, &place)| new_at[place as usize] = new);
        let spare = self.context.budget().free();
        let all = finishing::all::<T>(mixed, spare / ALL_SHARE)?;
        let all: Option<&Panel<T>> = all.as_ref().map(|(all, _memory)| all);
        let (new_at, memory) = (&new_at[..], spare / LISTS_SHARE);
        Linking { mixed, survey, near, places, new_at, all, options, replacements, temporary, memory }.lists()
    }

    /// Combines all vertices under one numbering, with a part of the spare memory for gathering vectors.
    fn mixed<'b, T: Coordinate>(
        &'b self,
        survey: &'b Survey,
        numbering: &'b Numbering,
        standing: &'b [u32],
        left: &'b RankedSet,
    ) -> Result<Mixed<'b>> {
        let Self { context, index, newcomers, .. } = *self;
        let (facts, options) = (index.facts(), index.facts().parameters());
        let ids = facts.id_bytes().max(newcomers.id_bytes());
        let needs = GatherNeeds {
            vertices: numbering.vertices().into(),
            vector_bytes: Panel::<T>::bytes_for(1, facts.space().dimensions()),
            vertex_bytes: writing::bytes_of_vertex(ids, facts.shape(), facts.code_bytes),
            candidates_max: linking::candidates_max(&options.graph, self.replacements) as u64,
            records: facts.shape().records() as u64,
        };
        let room = GatherRoom::within(GATHERED_BYTES_MIN.max(context.budget().free() / GATHERED_SHARE), needs);
        let memory = context.reserve(room.bytes, PURPOSE)?;
        let keeps_codes = false;
        Ok(Mixed { context, index, newcomers, survey, numbering, standing, left, keeps_codes, room, _memory: memory })
    }
}

/// Returns one of several concatenated lists, given the end of each.
fn list_of<'a>(ends: &[u32], all: &'a [u32], number: usize) -> &'a [u32] {
    let start = if number == 0 { 0 } else { ends[number - 1] };
    &all[start as usize..ends[number] as usize]
}
