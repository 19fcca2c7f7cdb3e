//! Builds an index of a store within the memory budget.
//!
//! Rows with equal vectors become one vertex (`vertices.rs`). The graph of the vertices is built from the nearest rows
//! of each row (`joined.rs`), unless the caller gives a graph (`given.rs`). Then every vertex is made reachable
//! (`reach.rs`). The lists of the graph are stored by windows of vertices, in memory or in temporary files
//! (`lists.rs`). Vectors are read from the store when they are compared (`gathering.rs`). After the order of the
//! vertices on pages is computed, window by window, vectors are written with their codes and ids (`writing.rs`).
//!
//! Vertices, lists and pages do not depend on the memory budget.

pub(super) mod finishing;
mod foreseen;
mod gathering;
mod given;
mod joined;
pub(super) mod lists;
pub(super) mod origin;
pub(super) mod pruning;
pub(super) mod reach;
#[cfg(test)]
mod tests;
mod vertices;
pub(super) mod writing;

use std::ops::Range;

use adjoin_device::release_freed_memory;
use adjoin_kernels::Panel;

use self::finishing::{CODE_SAMPLE, arranged, windows_of};
pub(crate) use self::foreseen::building_bytes_of;
use self::gathering::Gathering;
pub(super) use self::given::GivenGraph;
pub use self::given::{VertexVectors, vertex_vectors};
use self::joined::JoinBuild;
use self::lists::Windows;
use self::origin::{GatherNeeds, GatherRoom};
use self::vertices::VertexMap;
use self::writing::{InsertedEntries, Writing, Written};
use super::drafting::{Contents, write_rest};
use super::layout::{GROWN, Places, window_bytes, window_vertices};
use super::manifest::{FORMAT_VERSION, IndexManifest, KIND, NEAR};
use super::navigation;
use super::options::IndexParameters;
use super::page::PageShape;
use super::promise::{self, CalibrationAims};
use super::sample::draw_inserted;
use super::{BuildIo, BuiltIndex, PURPOSE_BUILD as PURPOSE, lost};
use crate::base::context::Context;
use crate::base::error::{Error, Result};
use crate::base::geometry::{Coordinate, Space};
use crate::base::report::Stopwatch;
use crate::buckets::least_near_rows;
use crate::graph::VERTICES_MAX;
use crate::load::Buckets;
use crate::store::{Drafts, Files, NO_CHECKSUM, Role, Store};

/// Least bytes for the vectors that are gathered at once, and for the work on them.
const GATHERED_BYTES_MIN: u64 = 6 << 20;
/// Bytes for small items that are not counted individually, such as positions of blocks in temporary files, and growing
/// lists.
const SMALL_BYTES: u64 = 4 << 20;
/// Divisor of the spare memory. The vectors of all vertices are held in memory if they need at most this part of it.
const ALL_SHARE: u64 = 4;
/// Divisor of the spare memory. The lists, the edges back, and the lists with edges back may each take this part of it.
const LISTS_SHARE: u64 = 16;
/// Divisors of the spare memory. Gathering takes this part of it while the graph is built and while pages are written.
const GRAPH_GATHERED_SHARE: u64 = 16;
const WRITE_GATHERED_SHARE: u64 = 4;

/// A build in progress.
pub(super) struct Build<'a> {
    pub(super) context: &'a Context,
    pub(super) store: &'a Store,
    pub(super) options: &'a IndexParameters,
    /// Graph of the vertices, if the caller gives one.
    pub(super) graph: Option<GivenGraph<'a>>,
    pub(super) drafts: Drafts<'a>,
    /// Bytes for entries of inserted rows, in addition to the least bytes of the build.
    pub(super) inserted_bytes: u64,
    pub(super) force: bool,
    /// Source rows that a merge inserts. Empty unless this build is part of a merge.
    pub(super) inserted: Range<u64>,
}

/// Returns the least bytes for building an index of a store. This is the maximum over the steps of the build.
pub(super) fn least_bytes<T: Coordinate>(
    context: &Context,
    store: &Store,
    options: &IndexParameters,
    column_bytes: u64,
) -> u64 {
    let BuildNeeds { held, graph, rest } = BuildNeeds::of::<T>(context, store, options);
    // Columns are written after the graph is complete.
    held + graph.max(rest + column_bytes)
}

/// Least bytes of the steps of a build.
struct BuildNeeds {
    /// Held throughout the build.
    held: u64,
    /// Held in addition while the graph is built.
    graph: u64,
    /// Held in addition after the graph is built.
    rest: u64,
}

impl BuildNeeds {
    fn of<T: Coordinate>(context: &Context, store: &Store, options: &IndexParameters) -> Self {
        let buckets = &Buckets::of(store).between_rows();
        let (rows, vectors, degree) = (buckets.rows(), buckets.vectors(), options.graph.degree);
        let (space, dimensions) = (buckets.space(), buckets.space().dimensions());
        let shape = PageShape::new(vectors, degree, options.page_bytes);
        let gathering = Gathering::bytes(buckets, gather_room::<T>(buckets, options, 0));
        let held = VertexMap::memory_bytes(buckets) + navigation::held_bytes(rows, space, options) + SMALL_BYTES;
        let centers = Panel::<T>::bytes_for(buckets.count() as usize, dimensions);
        let leading_in = navigation::building_bytes(rows, space, options);
        let windows = Windows::within(0, rows as u32);
        let near = least_near_rows(context, buckets, joined::near_rows(&options.graph));
        let graph = near.max(windows.bytes() + windows.window_bytes(degree)) + 2 * windows.bytes();
        let making_graph =
            centers + gathering + vertices::least_bytes(buckets, context.threads).max(leading_in).max(graph);
        let largest = window_vertices(rows as u32, shape.records()) as u64;
        let lists = windows.range_bytes(largest, degree);
        // The size of the changed lists is unknown here. Usually no list is changed.
        let reaching = reach::memory_bytes(rows) + lists;
        let laying_out = window_bytes(largest as usize, degree) + lists;
        let sample = 4 * Panel::<f32>::bytes_for(rows.min(CODE_SAMPLE) as usize, dimensions);
        let encoding = context.threads as u64 * 3 * Panel::<f32>::bytes_for(1_024, dimensions) + (2 << 20);
        let writing = writing::least_bytes(lists + Places::memory_bytes(largest) + encoding);
        let with_places = Places::memory_bytes(rows) + laying_out.max(gathering + writing.max(sample).max(leading_in));
        Self { held, graph: making_graph, rest: windows.bytes() + reaching.max(with_places) }
    }
}

/// Returns the memory for gathering vectors, with `spare` bytes of spare memory.
fn gather_room<T: Coordinate>(buckets: &Buckets<'_>, options: &IndexParameters, spare: u64) -> GatherRoom {
    let shape = PageShape::new(buckets.vectors(), options.graph.degree, options.page_bytes);
    let ids: u64 = buckets.extents().iter().map(|extent| extent.id_bytes).sum();
    let written = writing::bytes_of_vertex(ids / buckets.rows(), shape, options.code_bytes);
    let needs = GatherNeeds {
        vertices: buckets.rows(),
        vector_bytes: Panel::<T>::bytes_for(1, buckets.space().dimensions()),
        vertex_bytes: joined::bytes_of_vertex(&options.graph).max(written),
        candidates_max: joined::candidates_max(&options.graph),
        records: shape.records() as u64,
    };
    GatherRoom::within(GATHERED_BYTES_MIN + spare, needs)
}

/// Checks that a store has no more vectors than a graph can have vertices.
pub(super) fn check_rows(store: &Store) -> Result<()> {
    let rows = store.manifest().rows;
    if rows > VERTICES_MAX as u64 {
        let at = store.folder().display();
        return Err(Error::input(format!(
            "{at} has {rows} vectors, but an index holds at most {VERTICES_MAX}; split \
                                         the set"
        )));
    }
    Ok(())
}

impl Build<'_> {
    pub(super) fn run<T: Coordinate>(self, space: Space<'_>) -> Result<BuiltIndex> {
        let (mut built, inserted) = self.lay::<T>(space)?;
        let mut watch = Stopwatch::start();
        let Self { context, drafts, force, .. } = self;
        // `lay` has freed all memory except the memory of the drafts and of the inserted entries. The codes are read next,
        // which are one large block.
        release_freed_memory();
        let manifest = lost::lead_in::<T>(context, &drafts, built.manifest, &inserted.entries)?;
        let inserted = draw_inserted(manifest.seed, &inserted.entries);
        let aims = CalibrationAims { inserted: &inserted, first: None };
        (built.manifest, built.io.bytes_written) = promise::publish::<T>(context, drafts, manifest, force, aims)?;
        built.calibrate_seconds = watch.lap();
        Ok(built)
    }

    /// Writes all files except the calibration. Returns the result so far, and the entries of inserted rows.
    fn lay<T: Coordinate>(&self, space: Space<'_>) -> Result<(BuiltIndex, InsertedEntries)> {
        let mut watch = Stopwatch::start();
        let Self { context, options, store, .. } = *self;
        let temporary = &context.temporary(Some(store.folder()));
        // Free memory beyond the least makes some steps faster.
        let needs = BuildNeeds::of::<T>(context, store, options);
        let free = context.budget().free().saturating_sub(needs.held);
        let (of_graph, spare) =
            (free.saturating_sub(needs.graph), free.saturating_sub(needs.rest + self.inserted_bytes));
        // Neighbors in the graph are rows near each other, no matter which metric searches use.
        let buckets = &Buckets::of(store).between_rows();
        let _small = context.reserve(SMALL_BYTES, PURPOSE)?;
        let centers_bytes = Panel::<T>::bytes_for(buckets.count() as usize, space.dimensions());
        let of_centers = context.reserve(centers_bytes, PURPOSE)?;
        let centers = buckets.centers::<T>()?;
        let map = &VertexMap::find(context, buckets, &centers, temporary)?;
        // Pruning also takes the memory that is free when it begins.
        let gathering = self.gathering::<T>(buckets, map, of_graph, GRAPH_GATHERED_SHARE)?;
        let navigation = finishing::navigation::<T>(&gathering, options)?;
        let load_seconds = watch.lap();
        let memory = spare.min(of_graph) / LISTS_SHARE;
        let (lists, entry, spilled) = match self.graph {
            None => {
                let all = finishing::all::<T>(&gathering, of_graph / ALL_SHARE)?;
                let all = all.as_ref().map(|(all, _memory)| all);
                let joined = JoinBuild { gathering: &gathering, all, options: &options.graph, temporary, memory };
                let (lists, spilled) = joined.build(&centers)?;
                (lists, navigation.graph.entry(), spilled)
            }
            Some(given) => given.lists(context, map.len(), temporary, memory)?,
        };
        // The repair and the layout need this memory.
        drop((gathering, centers, of_centers));
        let graph = reach::repair(context, lists, entry, options.graph.degree)?;
        let graph_seconds = watch.lap();
        let shape = PageShape::new(space.vectors, options.graph.degree, options.page_bytes);
        let _of_places = context.reserve(Places::memory_bytes(map.len().into()), PURPOSE)?;
        let places = &arranged(context, &graph, map.len(), options.graph.degree, shape, None)?;
        let layout_seconds = watch.lap();
        let gathering = &self.gathering::<T>(buckets, map, spare, WRITE_GATHERED_SHARE)?;
        let navigation = navigation.with_islands::<T>(gathering, &graph, &options.graph)?;
        let (quantizer, code_error) = &finishing::quantizer::<T>(gathering, options.code_bytes, options.graph.seed)?;
        let drafts = &self.drafts;
        let inserted = self.inserted.clone();
        let writing =
            Writing { origin: gathering, graph: &graph, shape, quantizer, drafts, temporary, places, inserted };
        let Written { drafted, duplicates, inserted } = writing.run::<T>(&windows_of(map.len(), shape))?;
        let attributes = writing.attributes(store, &duplicates)?;
        let contents: Contents = vec![
            (Role::Codebook, quantizer.to_bytes()),
            (Role::Navigation, navigation.graph.to_bytes(|vertex| places.by_vertex[vertex as usize])),
            (Role::Duplicates, duplicates.to_bytes()),
        ];
        let files = write_rest(drafts, &contents, &drafted)?;
        let mut manifest = self.manifest(map.len(), places, entry, files, *code_error);
        let mut spilled = spilled;
        if let Some((facts, more)) = attributes {
            manifest.files.add(Role::Attributes, facts);
            spilled += more;
        }
        let io = BuildIo { bytes_read: buckets.read_counts().bytes_read, bytes_written: 0, spill_bytes: spilled };
        let write_seconds = watch.lap();
        let calibrate_seconds = 0.0;
        let built =
            BuiltIndex { manifest, io, load_seconds, graph_seconds, layout_seconds, write_seconds, calibrate_seconds };
        Ok((built, inserted))
    }

    /// Returns the manifest of the index. `entry` is the vertex at which walks start.
    fn manifest(&self, vertices: u32, places: &Places, entry: u32, files: Files, code_error: f64) -> IndexManifest {
        let (of_store, options) = (self.store.manifest(), self.options);
        IndexManifest {
            kind: KIND.into(),
            format_version: FORMAT_VERSION,
            vectors: of_store.vectors,
            rows: of_store.rows,
            source_rows: of_store.source_rows,
            vertices,
            metric: of_store.metric,
            longest: of_store.longest,
            ids: of_store.ids,
            method: self.graph.map_or(NEAR, |given| given.method).to_owned(),
            degree: options.graph.degree,
            build_list: options.graph.build_list,
            alpha: options.graph.alpha,
            seed: options.graph.seed,
            code_bytes: options.code_bytes,
            code_error: Some(code_error),
            navigation: options.navigation,
            page_bytes: options.page_bytes,
            layout: GROWN.to_owned(),
            overlap_ratio: places.overlap_ratio,
            entry: places.by_vertex[entry as usize],
            files,
            manifest_xxh3: NO_CHECKSUM.into(),
        }
    }

    /// Creates a reader of vectors. Gathering takes the part 1 / `share` of `spare` bytes of spare memory, and reading
    /// ahead takes a small part.
    fn gathering<'b, T: Coordinate>(
        &self,
        buckets: &'b Buckets<'b>,
        map: &'b VertexMap,
        spare: u64,
        share: u64,
    ) -> Result<Gathering<'b>>
    where
        Self: 'b,
    {
        let room = gather_room::<T>(buckets, self.options, spare / share);
        Gathering::new(self.context, buckets, map, room)?.reading_ahead(spare / 8)
    }
}
