//! Writes an existing index with its vertices in another order. Vectors, edges and codes do not change, but vertices
//! get new numbers.
//!
//! The pages are read twice, window by window (`layout/mod.rs`). The first pass reads the edges, which determine the
//! order of each window. The second pass writes the pages with the new numbers.

use std::ops::Range;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use adjoin_device::AlignedBuffer;
use adjoin_kernels::Panel;

use super::Index;
use super::calibration::{Calibration, Inserted};
use super::drafting::{Contents, Draft, Drafted, write_rest};
use super::layout::{Arrangement, GROWN, Places, window_bytes, window_vertices, windows};
use super::manifest::IndexManifest;
use super::page::{Page, PageShape};
use super::promise::{CalibrationAims, publish, publishing_bytes};
use super::rows::{Duplicates, EntryOrder, IdDraft};
use super::scan::Scan;
use crate::base::context::Context;
use crate::base::error::Result;
use crate::base::geometry::{as_floats, with_coordinates};
use crate::base::options::Metric;
use crate::base::report::Stopwatch;
use crate::base::workers::map_items;
use crate::store::{AttributeFile, Drafts, FileFacts, FolderFiles, FolderKind, Role, check_target};

/// Purpose of the memory in error messages.
const PURPOSE: &str = "changing the layout of the index";

/// Result of [`Index::relayout`](crate::Index::relayout).
#[derive(Debug, Clone)]
pub struct RelayoutReport {
    /// Manifest that was published. It states the overlap ratio OR(G).
    pub manifest: IndexManifest,
    /// Bandwidth of the order: the mean distance from a vertex to its farthest out-neighbor, as a difference of vertex
    /// numbers (NDSearch, section VI-A, equation 1).
    pub bandwidth: f64,
    /// Bytes written to the index.
    pub bytes_written: u64,
    /// Seconds to read the edges and find an order.
    pub layout_seconds: f64,
    /// Seconds to write the index.
    pub write_seconds: f64,
    /// Seconds to calibrate the recall.
    pub calibrate_seconds: f64,
}

/// An order of pages for [`relayout_in_order`].
#[derive(Debug, Clone, Copy)]
pub struct GivenOrder<'a> {
    /// Name of the order in the manifest.
    pub name: &'a str,
    /// The vertex at each place.
    pub order: &'a [u32],
}

/// Graph and vectors of an index, from which an order of pages can be computed.
pub struct PageGraph {
    /// Number of vertices on a page.
    pub records: usize,
    /// Row number of each vertex.
    pub rows: Vec<u64>,
    /// Vector of each vertex as floats. Scaled to length 1 if the metric is cosine.
    pub vectors: Panel<f32>,
    lists: Lists,
}

impl PageGraph {
    /// Reads all pages of an index into memory.
    ///
    /// # Errors
    /// If the index cannot be read.
    pub fn read(context: &Context, index: &Index) -> Result<Self> {
        let facts = index.facts();
        let relayout = Relayout::new(context, index, None);
        let all = 0..facts.vertices;
        let (mut rows, mut vectors) = (Vec::new(), Panel::zeroed(all.len(), facts.vectors.dimensions));
        let lists = relayout.lists(&mut Scan::new(relayout.shape), all, &mut |vertex, page, slot| {
            rows.push(page.row(slot));
            relayout.load(relayout.stored(page, slot), vectors.row_mut(vertex as usize));
        })?;
        Ok(Self { records: relayout.shape.records(), rows, vectors, lists })
    }

    /// Returns the out-neighbors of a vertex, nearest first.
    pub fn neighbors(&self, vertex: u32) -> &[u32] {
        self.lists.of(vertex)
    }
}

impl Index {
    /// Writes the index in a folder with another layout, to the folder `output` or, if this is `None`, in place. An
    /// existing index in `output` is replaced only if `force` is set. Rows, ids, edges and the recall of searches do
    /// not change. The bytes of the result depend only on the index and the layout.
    ///
    /// # Errors
    /// If there is no index or it is damaged, if the output exists, or if the budget is too small. The folders are then
    /// unchanged.
    pub fn relayout(context: &Context, folder: &Path, output: Option<&Path>, force: bool) -> Result<RelayoutReport> {
        lay_out(context, folder, output, None, force)
    }
}

/// Writes the index in a folder with its vertices in a given order, as [`Index::relayout`](crate::Index::relayout) does
/// in an order that it computes. The whole graph must fit in memory.
///
/// # Errors
/// The errors of [`Index::relayout`](crate::Index::relayout).
///
/// # Panics
/// If the order does not hold each vertex of the index once.
pub fn relayout_in_order(
    context: &Context,
    folder: &Path,
    output: Option<&Path>,
    order: GivenOrder<'_>,
    force: bool,
) -> Result<RelayoutReport> {
    lay_out(context, folder, output, Some(order), force)
}

fn lay_out(
    context: &Context,
    folder: &Path,
    output: Option<&Path>,
    order: Option<GivenOrder<'_>>,
    force: bool,
) -> Result<RelayoutReport> {
    let facts = Index::manifest(context, folder)?;
    let target = output.unwrap_or(folder);
    check_target(context, target, FolderKind::Index, force || output.is_none())?;
    let files = FolderFiles { folder, kind: FolderKind::Index, files: &facts.files };
    let of_attributes = match AttributeFile::open(context, files)? {
        Some(file) => file.columns(files, facts.rows).reordering_bytes(facts.rows)?,
        None => 0,
    };
    let window = largest_window(&facts, order);
    let context = &context.for_run(least_bytes(context, &facts, window) + of_attributes, PURPOSE)?;
    let drafts = Drafts::begin(context, target, FolderKind::Index)?;
    // The index is opened after the drafts are created. Their lock keeps other writers from replacing the index.
    let index = Index::open(context, folder)?;
    let (mut relaid, inserted) = Relayout::new(context, &index, order).run(&drafts)?;
    let first = index.longest_list();
    // Frees the memory of the old codes before the new index is opened.
    drop(index);
    let mut watch = Stopwatch::start();
    with_coordinates!(facts.space(), T => {
        let force = force || output.is_none();
        let aims = CalibrationAims { inserted: &inserted, first };
        (relaid.manifest, relaid.bytes_written) = publish::<T>(context, drafts, relaid.manifest, force, aims)?;
    });
    relaid.calibrate_seconds = watch.lap();
    Ok(relaid)
}

/// Returns the number of vertices in the largest window. A given order may move any vertex anywhere, so it has one
/// window.
fn largest_window(facts: &IndexManifest, order: Option<GivenOrder<'_>>) -> usize {
    match order {
        Some(_) => facts.vertices as usize,
        None => window_vertices(facts.vertices, facts.shape().records()),
    }
}

/// Returns the least bytes for writing an index in another order.
fn least_bytes(context: &Context, facts: &IndexManifest, window: usize) -> u64 {
    let shape = facts.shape();
    let writing = Scan::memory_bytes(shape) + shape.bytes() as u64;
    let order = Places::memory_bytes(facts.vertices.into());
    let laying = Index::memory_bytes(facts)
        + order
        + worker_bytes(facts, window).max(writing).max(contents_bytes(facts, window));
    laying.max(with_coordinates!(facts.space(), T => publishing_bytes::<T>(context, facts)))
}

/// Returns the bytes that a thread needs to find the order of a window of `window` vertices.
fn worker_bytes(facts: &IndexManifest, window: usize) -> u64 {
    let slots = window * (facts.degree + 1) * size_of::<u32>();
    window_bytes(window, facts.degree) + slots as u64 + Scan::memory_bytes(facts.shape())
}

/// Returns the bytes for writing all files except the pages, in windows of `window` vertices.
fn contents_bytes(facts: &IndexManifest, window: usize) -> u64 {
    let bytes = |role| facts.files[role].bytes;
    let window = window as u64;
    let of_window = |role| bytes(role).div_ceil(facts.vertices.into()) * window;
    let small = bytes(Role::Codebook) + bytes(Role::Navigation) + 3 * bytes(Role::Duplicates);
    // The 52 bytes per vertex are for entries, positions of their ids, and their order. The constant is for a block and
    // a write buffer of texts.
    of_window(Role::Codes) + small + 5 * of_window(Role::Ids) + 52 * window + (2 << 20)
}

struct Relayout<'a> {
    context: &'a Context,
    index: &'a Index,
    shape: PageShape,
    /// Given order; `None` if the edges of each window decide the order.
    order: Option<GivenOrder<'a>>,
}

/// The out-neighbors of some consecutive vertices.
struct Lists {
    first: u32,
    degree: usize,
    /// Each vertex has a slot of `degree + 1` numbers: the number of its neighbors, then the neighbors.
    slots: Vec<u32>,
}

impl Lists {
    fn of(&self, vertex: u32) -> &[u32] {
        let slot = &self.slots[(vertex - self.first) as usize * (self.degree + 1)..];
        &slot[1..][..slot[0] as usize]
    }
}

impl<'a> Relayout<'a> {
    fn new(context: &'a Context, index: &'a Index, order: Option<GivenOrder<'a>>) -> Self {
        Self { context, index, shape: index.facts().shape(), order }
    }
}

impl Relayout<'_> {
    /// Writes all files except the calibration. Returns the report and the rows that measure the recall of inserted
    /// rows.
    fn run(&self, drafts: &Drafts<'_>) -> Result<(RelayoutReport, Inserted)> {
        let (context, facts) = (self.context, self.index.facts());
        let mut watch = Stopwatch::start();
        let _places = context.reserve(Places::memory_bytes(facts.vertices.into()), PURPOSE)?;
        let places = &self.arrange()?;
        let layout_seconds = watch.lap();
        let (pages, bandwidth) = self.write_pages(drafts, &places.by_vertex)?;
        let _contents = context.reserve(contents_bytes(facts, largest_window(facts, self.order)), PURPOSE)?;
        let codes = self.write_codes(drafts, places)?;
        let (duplicates, ids) = self.write_ids(drafts, places)?;
        let attributes = self.write_attributes(drafts, EntryOrder { places, duplicates: &duplicates })?;
        let inserted = self.inserted(EntryOrder { places, duplicates: &duplicates });
        let contents: Contents = vec![
            (Role::Codebook, self.index.quantizer.to_bytes()),
            (Role::Navigation, self.index.navigation.to_bytes(|vertex| places.by_vertex[vertex as usize])),
            (Role::Duplicates, duplicates.to_bytes()),
        ];
        let mut files = write_rest(drafts, &contents, &[pages, codes, ids])?;
        attributes.into_iter().for_each(|facts| files.add(Role::Attributes, facts));
        let manifest = IndexManifest {
            layout: self.order.map_or(GROWN, |given| given.name).to_owned(),
            overlap_ratio: places.overlap_ratio,
            entry: places.by_vertex[facts.entry as usize],
            files,
            ..facts.clone()
        };
        let write_seconds = watch.lap();
        let relaid = RelayoutReport {
            manifest,
            bandwidth,
            bytes_written: 0,
            layout_seconds,
            write_seconds,
            calibrate_seconds: 0.0,
        };
        Ok((relaid, inserted))
    }

    /// Returns the inserted rows of the calibration, with their new entries.
    fn inserted(&self, order: EntryOrder<'_>) -> Inserted {
        let known = self.index.calibration.as_ref().map(Calibration::inserted).cloned();
        let mut inserted = known.unwrap_or_default();
        inserted.entries.iter_mut().for_each(|entry| *entry = self.new_entry(order, *entry));
        inserted.entries.sort_unstable();
        inserted
    }

    /// Returns the new entry of a row.
    fn new_entry(&self, EntryOrder { places, duplicates }: EntryOrder<'_>, old: u32) -> u32 {
        let (index, vertices) = (self.index, self.index.facts().vertices);
        // The further rows of a vertex have consecutive entries, and their order does not change. Therefore the entry
        // of a further row changes by as much as the entry of the first further row of its vertex.
        let Some(further) = old.checked_sub(vertices) else { return places.by_vertex[old as usize] };
        let vertex = index.duplicates.vertex_of(further as usize);
        let (before, after) = (index.duplicates.of(vertex).0, duplicates.of(places.by_vertex[vertex as usize]).0);
        vertices + (after + further as usize - before) as u32
    }

    /// Computes the new places of all vertices.
    fn arrange(&self) -> Result<Places> {
        let (context, facts, records) = (self.context, self.index.facts(), self.shape.records());
        let windows: Vec<Range<u32>> = self.windows().collect();
        let bytes = worker_bytes(facts, largest_window(facts, self.order));
        let workers = ((context.budget().free() / bytes) as usize).clamp(1, context.threads.min(windows.len()));
        let _memory = context.reserve(bytes * workers as u64, PURPOSE)?;
        context.progress.begin("layout", "windows", windows.len() as u64);
        let done = AtomicU64::new(0);
        let laid = map_items(
            workers,
            windows.len(),
            &context.cancel,
            || Scan::new(self.shape),
            |scan, number| {
                let window = windows[number].clone();
                let lists = self.lists(scan, window.clone(), &mut |_, _, _| {})?;
                let neighbors = |vertex: u32| lists.of(vertex);
                let of = match self.order {
                    Some(given) => Ok(Arrangement::in_order(given.order.to_vec(), records, neighbors)),
                    None => Arrangement::of_window(&context.cancel, records, window, None, neighbors),
                };
                context.progress.advance(1 + done.fetch_add(1, Ordering::Relaxed));
                of
            },
        )?;
        Ok(Places::of_windows(facts.vertices, windows.iter().map(|window| window.start).zip(laid)))
    }

    /// Reads the out-neighbors of the vertices of a window. Also passes each record to `also`.
    fn lists(&self, scan: &mut Scan, window: Range<u32>, also: &mut dyn FnMut(u32, Page<'_>, usize)) -> Result<Lists> {
        let degree = self.index.facts().degree;
        let (mut slots, mut neighbors) = (vec![0; window.len() * (degree + 1)], Vec::new());
        self.each_record(scan, window.clone(), &mut |vertex, page, slot| {
            let own = &mut slots[(vertex - window.start) as usize * (degree + 1)..][..degree + 1];
            self.neighbors(vertex, page, slot, &mut neighbors)?;
            own[0] = neighbors.len() as u32;
            own[1..][..neighbors.len()].copy_from_slice(&neighbors);
            also(vertex, page, slot);
            Ok(())
        })?;
        Ok(Lists { first: window.start, degree, slots })
    }

    /// Returns the stored vector of a record.
    fn stored<'p>(&self, page: Page<'p>, slot: usize) -> &'p [u8] {
        let bytes = self.index.facts().vectors.bytes();
        &page.vectors(slot + 1)[slot * bytes..][..bytes]
    }

    /// Converts a stored vector to floats, scaled to length 1 under cosine.
    fn load(&self, stored: &[u8], to: &mut [f32]) {
        let (kernel, facts) = (self.context.kernel, self.index.facts());
        // Stored vectors are not scaled, but cosine depends only on their direction.
        as_floats(kernel, facts.vectors.element, stored, to);
        if facts.metric == Metric::Cosine {
            let length = kernel.dot_wide(to, to).sqrt();
            to.iter_mut().for_each(|x| *x = (f64::from(*x) / length) as f32);
        }
    }

    /// Passes the vertices of a window to `take`, each with its page and slot.
    fn each_record(
        &self,
        scan: &mut Scan,
        window: Range<u32>,
        take: &mut dyn FnMut(u32, Page<'_>, usize) -> Result<()>,
    ) -> Result<()> {
        let pages = self.shape.page_of(window.start)..self.shape.page_of(window.end - 1) + 1;
        scan.each(&self.context.cancel, &*self.index.pages, pages, &mut |number, page| {
            let page = page.map_err(|no_page| self.index.no_page(number, no_page))?;
            let mut vertices = self.shape.vertices(number, self.index.facts().vertices).enumerate();
            vertices.try_for_each(|(slot, vertex)| take(vertex, page, slot))
        })
    }

    /// Replaces the contents of `neighbors` with the neighbors of a vertex.
    fn neighbors(&self, vertex: u32, page: Page<'_>, slot: usize, neighbors: &mut Vec<u32>) -> Result<()> {
        neighbors.clear();
        self.index.add_neighbors(vertex, page, slot, neighbors)
    }

    /// Writes all pages into a draft. Returns the draft and the bandwidth.
    fn write_pages(&self, drafts: &Drafts<'_>, places: &[u32]) -> Result<(Drafted, f64)> {
        let Self { context, shape, .. } = *self;
        let vertices = places.len() as u32;
        let mut draft = Draft::new(context, drafts, Role::Pages)?;
        let _scan = context.reserve(Scan::memory_bytes(shape), PURPOSE)?;
        let largest = largest_window(self.index.facts(), self.order).div_ceil(shape.records());
        // If the pages of a window do not fit in memory, they are built in parts, and the window is read once per part.
        let together = ((context.budget().free() / shape.bytes() as u64) as usize).clamp(1, largest);
        let _buffer = context.reserve((together * shape.bytes()) as u64, PURPOSE)?;
        let (mut scan, mut buffer) = (Scan::new(shape), AlignedBuffer::zeroed(together * shape.bytes()));
        let mut farthest = 0u64;
        context.progress.begin("write", "pages", shape.pages(vertices));
        for window in self.windows() {
            for start in window.clone().step_by(together * shape.records()) {
                let end = window.end.min(start.saturating_add((together * shape.records()) as u32));
                let pages = (end - start).div_ceil(shape.records() as u32) as usize;
                let buffer = &mut buffer[..pages * shape.bytes()];
                farthest += self.fill(&mut scan, buffer, window.clone(), start..end, places)?;
                draft.append(buffer)?;
                context.progress.advance(u64::from(shape.page_of(end - 1)) + 1);
            }
        }
        Ok((draft.finish()?, farthest as f64 / f64::from(vertices)))
    }

    /// Builds the pages of `part`, a range of new vertex numbers in a window. Returns the sum over these vertices of
    /// the distance to the farthest neighbor.
    fn fill(
        &self,
        scan: &mut Scan,
        pages: &mut [u8],
        window: Range<u32>,
        part: Range<u32>,
        places: &[u32],
    ) -> Result<u64> {
        let shape = self.shape;
        let (mut farthest, mut neighbors) = (0, Vec::new());
        pages.fill(0);
        self.each_record(scan, window, &mut |vertex, page, slot| {
            let place = places[vertex as usize];
            // Any vertex of the window may belong to this part, so the whole window is read for each part.
            if !part.contains(&place) {
                return Ok(());
            }
            self.neighbors(vertex, page, slot, &mut neighbors)?;
            neighbors.iter_mut().for_each(|neighbor| *neighbor = places[*neighbor as usize]);
            farthest += neighbors.iter().map(|&neighbor| u64::from(neighbor.abs_diff(place))).max().unwrap_or(0);
            let record = (place - part.start) as usize;
            let to = &mut pages[record / shape.records() * shape.bytes()..][..shape.bytes()];
            shape.put(to, record % shape.records(), self.stored(page, slot), page.row(slot), &neighbors);
            Ok(())
        })?;
        let first = shape.page_of(part.start);
        (first..).zip(pages.chunks_exact_mut(shape.bytes())).for_each(|(number, page)| PageShape::seal(page, number));
        Ok(farthest)
    }

    /// Returns the windows. A vertex gets a new number within its window.
    fn windows(&self) -> Box<dyn Iterator<Item = Range<u32>>> {
        let vertices = self.index.facts().vertices;
        match self.order {
            Some(_) => Box::new(std::iter::once(0..vertices)),
            None => Box::new(windows(vertices, self.shape.records())),
        }
    }

    fn write_codes(&self, drafts: &Drafts<'_>, places: &Places) -> Result<Drafted> {
        let Self { context, index, .. } = *self;
        let mut draft = Draft::new(context, drafts, Role::Codes)?;
        for window in self.windows() {
            let codes: Vec<u8> =
                places.order(window).into_iter().flat_map(|vertex| index.code(vertex)).copied().collect();
            draft.append(&codes)?;
        }
        draft.finish()
    }

    /// Writes ids by entry. Returns the further rows of vertices in the new order, and the file of ids.
    fn write_ids(&self, drafts: &Drafts<'_>, places: &Places) -> Result<(Duplicates, Drafted)> {
        let Self { context, index, .. } = *self;
        let facts = index.facts();
        let temporary = &context.temporary(Some(index.folder()));
        let mut draft = IdDraft::new(context, drafts, temporary, facts.ids, PURPOSE)?;
        let mut duplicates = Duplicates::default();
        let mut further: Vec<u32> = Vec::with_capacity(index.duplicates.len());
        for window in self.windows() {
            let order = places.order(window.clone());
            for (place, &vertex) in (window.start..).zip(&order) {
                duplicates.push(place, index.duplicates.of(vertex).1.iter().copied());
                further.extend(index.further_entries(vertex));
            }
            self.copy_ids(&order, &mut draft)?;
        }
        let together = largest_window(facts, self.order);
        further.chunks(together).try_for_each(|entries| self.copy_ids(entries, &mut draft))?;
        Ok((duplicates, draft.finish()?))
    }

    /// Writes columns by entry, if there are any.
    fn write_attributes(&self, drafts: &Drafts<'_>, order: EntryOrder<'_>) -> Result<Option<FileFacts>> {
        let Self { context, index, .. } = *self;
        let Some(columns) = index.columns() else { return Ok(None) };
        let temporary = &context.temporary(Some(index.folder()));
        let (facts, _) = columns.reorder(context, drafts, temporary, |old| self.new_entry(order, old))?;
        Ok(Some(facts))
    }

    /// Writes the ids of some entries.
    fn copy_ids(&self, entries: &[u32], draft: &mut IdDraft) -> Result<()> {
        self.context.cancel.check()?;
        let ids = self.index.ids_of(self.index.facts().ids, entries)?;
        let mut id = Vec::new();
        (0..ids.len()).try_for_each(|k| {
            id.clear();
            ids.append_bytes_of(k, &mut id);
            draft.push(&id)
        })
    }
}
