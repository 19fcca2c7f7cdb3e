//! From a store to an index: all vectors in memory, a graph over them, an order for the pages, and codes.

use adjoin_device::{AlignedBuffer, Reservation};
use adjoin_kernels::Panel;
use xxhash_rust::xxh3::Xxh3;

use super::layout::Arrangement;
use super::manifest::{FORMAT_VERSION, IndexManifest, KIND};
use super::navigation::{self, Navigation};
use super::options::IndexOptions;
use super::page::PageShape;
use super::promise::{calibration_of, least_bytes_at_build};
use super::rows::{Duplicates, ids_to_bytes};
use super::{BuiltIndex, Index, PURPOSE_BUILD, blocks};
use crate::context::Context;
use crate::error::{Error, Result};
use crate::geometry::{Coordinate, Space, copy_row};
use crate::graph::{Graph, VERTICES_MAX, Vertices};
use crate::load::{Buckets, ReadAhead, least_read_ahead, read_ahead_bytes};
use crate::options::VectorType;
use crate::plan::Load;
use crate::quantize::{CodeKind, Quantizer};
use crate::random::Random;
use crate::report::Stopwatch;
use crate::source::Ids;
use crate::store::format::checksum;
use crate::store::{Drafts, FileFacts, Files, NO_CHECKSUM, Role, Store};

/// Vectors of which codes are learned at most.
const CODE_SAMPLE: u64 = 32 << 10;
/// Bytes that are written at once, about.
const WRITE_BYTES: usize = 1 << 20;

/// All vectors of a store, in the order of its buckets.
struct Loaded {
    stored: Vec<u8>,
    rows: Vec<u64>,
    ids: Ids,
    _memory: Reservation,
}

/// A build under way.
pub(super) struct Build<'a> {
    pub(super) context: &'a Context,
    pub(super) store: &'a Store,
    pub(super) options: &'a IndexOptions,
    pub(super) drafts: Drafts<'a>,
    pub(super) force: bool,
}

/// Bytes with which an index of a store can be built, about: of all that is held at the same time, the most.
pub(super) fn least_bytes<T: Coordinate>(context: &Context, store: &Store, options: &IndexOptions) -> u64 {
    let manifest = store.manifest();
    let (rows, vectors) = (manifest.rows, manifest.vectors);
    let ids: u64 = store.extents().iter().map(|extent| extent.id_bytes).sum();
    let loaded = rows * (vectors.bytes() as u64 + 16) + 6 * ids;
    let panel = Panel::<T>::bytes_for(rows as usize, vectors.dimensions);
    let graph = Graph::build_bytes(context.threads, rows as usize, &options.graph);
    let finding = rows * (size_of::<(u64, u32)>() as u64 + 4 * size_of::<u32>() as u64);
    let space = Space::plain(vectors, manifest.metric);
    let sample = 4 * Panel::<f32>::bytes_for(rows.min(CODE_SAMPLE) as usize, vectors.dimensions);
    let encoding = context.threads as u64 * 3 * Panel::<f32>::bytes_for(1_024, vectors.dimensions);
    let codes = 4 * rows * code_bytes(options, vectors) as u64 + sample + encoding + (1 << 20);
    let after = Arrangement::memory_bytes(rows) + codes + navigation::memory_bytes(rows, space, &options.graph);
    let reading = 2 * least_read_ahead(store.extents(), true);
    let laying = loaded + panel + finding.max(graph + after).max(reading) + 8 * rows;
    laying.max(least_to_calibrate::<T>(context, store, options))
}

/// Bytes with which the recall of an index of a store can be learned, once nothing but the index is in memory.
fn least_to_calibrate<T: Coordinate>(context: &Context, store: &Store, options: &IndexOptions) -> u64 {
    let no_files = Files::new(&[], |_| unreachable!("there are none"));
    let index = manifest(store, options, (store.manifest().rows as u32, 0.0, 0), no_files);
    let rows = index.rows;
    let codebook = (1 << 10) * index.vectors.dimensions as u64;
    let navigation = navigation::memory_bytes(rows, index.space(), &options.graph);
    let held = rows * index.code_bytes as u64 + 4 * (codebook + 16 * rows) + 5 * navigation;
    held + least_bytes_at_build::<T>(context, &index)
}

/// Bytes of a code of vectors of a type.
fn code_bytes(options: &IndexOptions, vectors: VectorType) -> usize {
    options.code_bytes.min(vectors.dimensions)
}

/// Refuses stores with more vectors than a graph in memory has.
pub(super) fn check_rows(store: &Store) -> Result<()> {
    let rows = store.manifest().rows;
    if rows > VERTICES_MAX as u64 {
        let at = store.folder().display();
        return Err(Error::input(format!("{at} has {rows} vectors, an index at most {VERTICES_MAX}; split the set")));
    }
    Ok(())
}

impl Build<'_> {
    pub(super) fn run<T: Coordinate>(self, space: Space<'_>) -> Result<BuiltIndex> {
        let mut built = self.lay::<T>(space)?;
        let mut watch = Stopwatch::start();
        let calibration = {
            let index = Index::of_drafts(self.context, self.drafts.folder(), built.manifest.clone())?;
            calibration_of::<T>(self.context, &index)?
        };
        let role = Role::Calibration;
        built.manifest.files.add(role, FileFacts::of(&role.file_of(checksum(&calibration)), &calibration));
        built.calibrate_seconds = watch.lap();
        let encoded = built.manifest.encode();
        let files = &built.manifest.files;
        built.bytes_written = files.iter().map(|(_, facts)| facts.bytes).sum::<u64>() + encoded.len() as u64;
        self.drafts.publish((files, &encoded), &[(role, &calibration)], self.force)?;
        built.write_seconds += watch.lap();
        Ok(built)
    }

    /// Writes all files but the calibration, for which vectors and graph need not be in memory any more.
    fn lay<T: Coordinate>(&self, space: Space<'_>) -> Result<BuiltIndex> {
        let mut watch = Stopwatch::start();
        let Self { context, options, .. } = *self;
        let loaded = self.load()?;
        let vector_bytes = space.vectors.bytes();
        let vertices = Vertices::of(context, &loaded.stored, vector_bytes)?;
        let _of_vertices = context.reserve(12 * loaded.rows.len() as u64, PURPOSE_BUILD)?;
        let _of_panel =
            context.reserve(Panel::<T>::bytes_for(vertices.len(), space.vectors.dimensions), PURPOSE_BUILD)?;
        let panel = panel_of::<T>(context, space, &loaded, &vertices);
        let load_seconds = watch.lap();
        let graph = Graph::build(context, &panel, &options.graph)?;
        let graph_seconds = watch.lap();
        let shape = PageShape::new(space.vectors, options.graph.degree, options.page_bytes);
        let _of_order = context.reserve(Arrangement::memory_bytes(vertices.len() as u64), PURPOSE_BUILD)?;
        let first_row = |vertex: u32| loaded.first_row(&vertices, vertex).1;
        let arrangement = Arrangement::of(context, &graph, options.layout, shape.records(), first_row)?;
        let layout_seconds = watch.lap();
        let laid = Laid { context, options, space, shape, loaded: &loaded, vertices: &vertices, graph: &graph };
        let manifest = laid.write(&self.drafts, self.store, arrangement, &panel)?;
        Ok(BuiltIndex {
            manifest,
            bytes_written: 0,
            load_seconds,
            graph_seconds,
            layout_seconds,
            write_seconds: watch.lap(),
            calibrate_seconds: 0.0,
        })
    }

    /// Reads all vectors.
    fn load(&self) -> Result<Loaded> {
        let (context, manifest) = (self.context, self.store.manifest());
        let buckets = &Buckets::of(self.store);
        let rows = manifest.rows as usize;
        let ids: u64 = buckets.extents().iter().map(|extent| extent.id_bytes).sum();
        let held = rows as u64 * (manifest.vectors.bytes() as u64 + 8) + 4 * ids;
        let memory = read_ahead_bytes(buckets.extents(), true, context.budget().free() / 4);
        let _reading = context.reserve(memory, PURPOSE_BUILD)?;
        let mut loaded = Loaded {
            stored: Vec::with_capacity(rows * manifest.vectors.bytes()),
            rows: Vec::with_capacity(rows),
            ids: Ids::empty(manifest.ids),
            _memory: context.reserve(held, PURPOSE_BUILD)?,
        };
        context.progress.begin("load", "buckets", buckets.count().into());
        let loads = Load::each(buckets.count());
        let mut ahead = ReadAhead::new(context, "index", buckets, true, memory, loads, &context.cancel)?;
        while let Some(bucket) = ahead.next_bucket()? {
            context.cancel.check()?;
            let decoded = bucket.decode(buckets)?;
            loaded.stored.extend_from_slice(&bucket.bytes()[decoded.vectors]);
            (0..decoded.rows.len()).for_each(|k| loaded.ids.push_from(&decoded.ids, k));
            loaded.rows.extend(decoded.rows);
            context.progress.advance(bucket.number().into());
        }
        Ok(loaded)
    }
}

impl Loaded {
    /// The rows of a vertex, each with its place in memory, ascending.
    fn rows_of(&self, vertices: &Vertices, vertex: u32) -> Vec<(u32, u64)> {
        let mut rows: Vec<(u32, u64)> = vertices.rows(vertex).iter().map(|&at| (at, self.rows[at as usize])).collect();
        rows.sort_unstable_by_key(|&(_, row)| row);
        rows
    }

    fn first_row(&self, vertices: &Vertices, vertex: u32) -> (u32, u64) {
        let rows = vertices.rows(vertex).iter().map(|&at| (at, self.rows[at as usize]));
        rows.min_by_key(|&(_, row)| row).expect("a vertex stands for a row")
    }

    /// A vector of a vertex, as stored.
    fn vector(&self, vertices: &Vertices, vertex: u32, bytes: usize) -> &[u8] {
        &self.stored[vertices.rows(vertex)[0] as usize * bytes..][..bytes]
    }
}

/// The vectors of the vertices as coordinates.
fn panel_of<T: Coordinate>(context: &Context, space: Space<'_>, loaded: &Loaded, vertices: &Vertices) -> Panel<T> {
    let (dimensions, bytes) = (space.vectors.dimensions, space.vectors.bytes());
    let mut panel = Panel::zeroed(vertices.len(), dimensions);
    let mut one = Panel::zeroed(1, dimensions);
    for vertex in 0..vertices.len() as u32 {
        T::load(space, context.kernel, loaded.vector(vertices, vertex, bytes), &mut one);
        copy_row(&one, 0, &mut panel, vertex as usize);
    }
    panel
}

/// A graph that is laid out on pages.
struct Laid<'a> {
    context: &'a Context,
    options: &'a IndexOptions,
    space: Space<'a>,
    shape: PageShape,
    loaded: &'a Loaded,
    vertices: &'a Vertices,
    graph: &'a Graph,
}

/// Files beside the pages, by role.
type Contents = Vec<(Role, Vec<u8>)>;

impl Laid<'_> {
    /// Writes all files but the calibration; returns the manifest.
    fn write<T: Coordinate>(
        &self,
        drafts: &Drafts<'_>,
        store: &Store,
        arrangement: Arrangement,
        panel: &Panel<T>,
    ) -> Result<IndexManifest> {
        let Arrangement { order, overlap_ratio } = arrangement;
        let mut places = vec![0u32; order.len()];
        (0..).zip(&order).for_each(|(place, &vertex)| places[vertex as usize] = place);
        let (digest, pages_bytes) = self.write_pages(drafts, &order, &places)?;
        let (codebook, codes) = self.codes(panel, &order)?;
        let bytes = self.space.vectors.bytes();
        let vector = |place: u32| self.loaded.vector(self.vertices, order[place as usize], bytes);
        let count = order.len() as u32;
        let navigation = Navigation::build::<T>(self.context, self.space, count, &self.options.graph, vector)?;
        let (duplicates, ids) = self.rows(&order);
        let contents = vec![
            (Role::Codes, codes),
            (Role::Codebook, codebook),
            (Role::Navigation, navigation.to_bytes()),
            (Role::Duplicates, duplicates.to_bytes()),
            (Role::Ids, blocks::encode(&ids_to_bytes(&ids))),
        ];
        let files = files(&contents, digest, pages_bytes);
        let entry = self.graph.entry().map_or(0, |entry| places[entry as usize]);
        contents.into_iter().try_for_each(|(role, contents)| drafts.write(role.file(), &contents))?;
        Ok(manifest(store, self.options, (count, overlap_ratio, entry), files))
    }

    /// Writes all pages into a draft; returns a checksum of them and their bytes.
    fn write_pages(&self, drafts: &Drafts<'_>, order: &[u32], places: &[u32]) -> Result<(u64, u64)> {
        let Self { context, shape, .. } = *self;
        let mut file = context.device.create(&drafts.path(Role::Pages.file()))?;
        let pages = shape.pages(order.len() as u32);
        let together = (WRITE_BYTES / shape.bytes()).max(1);
        let _buffer = context.reserve((together * shape.bytes()) as u64, PURPOSE_BUILD)?;
        let mut buffer = AlignedBuffer::zeroed(together * shape.bytes());
        let mut hash = Xxh3::new();
        context.progress.begin("write", "pages", pages);
        for first in (0..pages as u32).step_by(together) {
            context.cancel.check()?;
            let some = together.min((pages - u64::from(first)) as usize);
            let buffer = &mut buffer[..some * shape.bytes()];
            buffer.fill(0);
            for (page, number) in buffer.chunks_exact_mut(shape.bytes()).zip(first..) {
                self.fill_page(page, number, (order, places));
            }
            hash.update(buffer);
            file.append(buffer)?;
            context.progress.advance(u64::from(first) + some as u64);
        }
        file.sync()?;
        Ok((hash.digest(), pages * shape.bytes() as u64))
    }

    fn fill_page(&self, page: &mut [u8], number: u32, (order, places): (&[u32], &[u32])) {
        let Self { shape, loaded, vertices, graph, space, .. } = *self;
        let mut neighbours = Vec::new();
        for (slot, place) in shape.vertices(number, order.len() as u32).enumerate() {
            let vertex = order[place as usize];
            neighbours.clear();
            neighbours.extend(graph.neighbours(vertex).iter().map(|&neighbour| places[neighbour as usize]));
            let vector = loaded.vector(vertices, vertex, space.vectors.bytes());
            shape.put(page, slot, vector, loaded.first_row(vertices, vertex).1, &neighbours);
        }
        PageShape::seal(page, number);
    }

    /// A codebook, and the codes of all vertices in their order on pages.
    fn codes<T: Coordinate>(&self, panel: &Panel<T>, order: &[u32]) -> Result<(Vec<u8>, Vec<u8>)> {
        let Self { context, options, space, .. } = *self;
        let (count, seed) = (panel.rows() as u64, options.graph.seed);
        let drawn = Random::new(seed, "sample for codes").ascending_sample(count.min(CODE_SAMPLE), count);
        let _sample = context.reserve(Panel::<f32>::bytes_for(drawn.len(), panel.dimensions()), PURPOSE_BUILD)?;
        let mut sample = Panel::zeroed(drawn.len(), panel.dimensions());
        for (to, &from) in drawn.iter().enumerate() {
            let coordinates = panel.row(from as usize).iter().map(|x| x.value() as f32);
            sample.row_mut(to).iter_mut().zip(coordinates).for_each(|(to, x)| *to = x);
        }
        let code_bytes = code_bytes(options, space.vectors);
        let quantizer = Quantizer::train(context, &sample, CodeKind::default(), code_bytes, seed)?;
        let _codes = context.reserve(2 * count * code_bytes as u64, PURPOSE_BUILD)?;
        let by_vertex = quantizer.encode(context, panel)?;
        let code = |&vertex: &u32| &by_vertex[vertex as usize * code_bytes..][..code_bytes];
        Ok((quantizer.to_bytes(), order.iter().flat_map(code).copied().collect()))
    }

    /// Rows of vertices that stand for several, and ids by entry.
    fn rows(&self, order: &[u32]) -> (Duplicates, Ids) {
        let (mut duplicates, kind) = (Duplicates::default(), self.loaded.ids.kind());
        let (mut ids, mut further) = (Ids::empty(kind), Ids::empty(kind));
        for (place, &vertex) in (0..).zip(order) {
            let rows = self.loaded.rows_of(self.vertices, vertex);
            ids.push_from(&self.loaded.ids, rows[0].0 as usize);
            rows[1..].iter().for_each(|&(at, _)| further.push_from(&self.loaded.ids, at as usize));
            duplicates.push(place, rows[1..].iter().map(|&(_, row)| row));
        }
        (0..duplicates.len()).for_each(|k| ids.push_from(&further, k));
        (duplicates, ids)
    }
}

/// What an index of a store says of itself, with its number of vertices, its overlap ratio and its entry point.
fn manifest(
    store: &Store,
    options: &IndexOptions,
    (vertices, overlap_ratio, entry): (u32, f64, u32),
    files: Files,
) -> IndexManifest {
    let of_store = store.manifest();
    IndexManifest {
        kind: KIND.into(),
        format_version: FORMAT_VERSION,
        vectors: of_store.vectors,
        rows: of_store.rows,
        source_rows: of_store.source_rows,
        vertices,
        metric: of_store.metric,
        ids: of_store.ids,
        degree: options.graph.degree,
        build_list: options.graph.build_list,
        alpha: options.graph.alpha,
        seed: options.graph.seed,
        code_bytes: code_bytes(options, of_store.vectors),
        page_bytes: options.page_bytes,
        layout: options.layout,
        overlap_ratio,
        entry,
        files,
        manifest_xxh3: NO_CHECKSUM.into(),
    }
}

/// The files of an index but its calibration: all have one tag, which changes with the contents of any.
fn files(contents: &Contents, digest: u64, pages_bytes: u64) -> Files {
    let checksums = contents.iter().flat_map(|(_, bytes)| checksum(bytes).to_le_bytes());
    let tag = checksum(&digest.to_le_bytes().into_iter().chain(checksums).collect::<Vec<u8>>());
    let roles: Vec<Role> = Role::INDEX.into_iter().filter(|role| !role.is_optional()).collect();
    Files::new(&roles, |role| match contents.iter().find(|(with, _)| *with == role) {
        None => FileFacts { name: role.file_of(tag), bytes: pages_bytes, xxh3: None },
        // Blocks have checksums of their own, so that some can be read without the others.
        Some((Role::Ids, bytes)) => FileFacts { name: role.file_of(tag), bytes: bytes.len() as u64, xxh3: None },
        Some((_, bytes)) => FileFacts::of(&role.file_of(tag), bytes),
    })
}
