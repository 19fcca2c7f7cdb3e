//! Writes the pages of an existing index in another order: the same vectors, edges and codes under new numbers.
//!
//! The pages are read twice, window by window (`layout/mod.rs`): for the edges that determine the order of a window,
//! and, once all orders are known, to be written under the new numbers.

use std::ops::Range;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use adjoin_device::AlignedBuffer;
use adjoin_kernels::Panel;

use super::Index;
use super::calibration::{Calibration, Inserted};
use super::drafting::{Contents, Draft, Drafted, write_rest};
use super::layout::{Arrangement, Layout, PageOrder, Places, window_bytes, window_vertices, windows};
use super::manifest::IndexManifest;
use super::page::{Page, PageShape};
use super::promise::{publish, publishing_bytes};
use super::rows::{Duplicates, IdDraft};
use super::scan::Scan;
use crate::context::Context;
use crate::error::{Error, Result};
use crate::geometry::{as_floats, with_coordinates};
use crate::message::{Argument, message};
use crate::options::Metric;
use crate::report::Stopwatch;
use crate::store::{AttributeFile, Drafts, FileFacts, FolderFiles, Kind, Role, check_target};
use crate::workers::map_items;

/// Purpose of the memory in error messages.
const PURPOSE: &str = "laying out the index anew";

/// Result of [`relayout`].
#[derive(Debug, Clone)]
pub struct RelayoutReport {
    /// Manifest that was published. It states the overlap ratio OR(G).
    pub manifest: IndexManifest,
    /// Bandwidth of the order: the mean distance, in places, from a vertex to its farthest out-neighbor (NDSearch,
    /// section VI-A, equation 1).
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

/// Result of [`try_layout`].
#[derive(Debug, Clone, Copy)]
pub struct TriedLayout {
    /// Overlap ratio OR(G).
    pub overlap_ratio: f64,
    /// Seconds to read the index and find an order.
    pub seconds: f64,
}

/// Measures how good a layout would be for an index and how long finding it takes. Writes nothing. `rounds_max` limits
/// the rounds of a layout that improves another one (Starling's beta, appendix C).
///
/// # Errors
/// If only a build can compute the layout, if the index cannot be read, or if the budget is too small.
pub fn try_layout(context: &Context, index: &Index, layout: Layout, rounds_max: usize) -> Result<TriedLayout> {
    check_layout(layout)?;
    let facts = index.facts();
    let least = Places::memory_bytes(facts.vertices.into()) + worker_bytes(facts, layout);
    let context = &context.for_run(least, PURPOSE)?;
    let shape = facts.shape();
    let way = PageOrder { rounds_max, ..PageOrder::usual(layout, shape.records()) };
    let mut watch = Stopwatch::start();
    let _places = context.reserve(Places::memory_bytes(facts.vertices.into()), PURPOSE)?;
    let overlap_ratio = Relayout { context, index, shape, way }.arrange()?.overlap_ratio;
    Ok(TriedLayout { overlap_ratio, seconds: watch.lap() })
}

/// Rejects layouts that only a build can compute.
fn check_layout(layout: Layout) -> Result<()> {
    if matches!(layout, Layout::Rows | Layout::Buckets) {
        let why = " is an order that an index does not hold; give another one, or build the index again";
        return Err(Error::option(message![Argument::Layout.with(layout), why]));
    }
    Ok(())
}

/// Writes the index in a folder with another layout: to `output`, where `force` replaces an existing index, or in place
/// if `output` is `None`. Rows, ids, edges and the recall of searches do not change. The result depends only on the
/// index and the layout, byte for byte.
///
/// # Errors
/// If only a build can compute the layout, if there is no index or it is damaged, if the output exists already, or if
/// the budget is too small. The folders are then left unchanged.
pub fn relayout(
    context: &Context,
    folder: &Path,
    output: Option<&Path>,
    layout: Layout,
    force: bool,
) -> Result<RelayoutReport> {
    check_layout(layout)?;
    let facts = Index::manifest(context, folder)?;
    let target = output.unwrap_or(folder);
    check_target(context, (target, Kind::Index), force || output.is_none())?;
    let files = FolderFiles { folder, kind: Kind::Index, files: &facts.files };
    let of_attributes = match AttributeFile::open(context, files)? {
        Some(attributes) => attributes.reordering_bytes(files, facts.rows)?,
        None => 0,
    };
    let context = &context.for_run(least_bytes(context, &facts, layout) + of_attributes, PURPOSE)?;
    let drafts = Drafts::begin(context, (target, Kind::Index))?;
    // Opened after the drafts, whose lock keeps other writers from replacing the index.
    let index = Index::open(context, folder)?;
    let shape = index.facts().shape();
    let relayout = Relayout { context, index: &index, shape, way: PageOrder::usual(layout, shape.records()) };
    let (mut relaid, inserted) = relayout.run(&drafts)?;
    // The codes in memory make room for the codes of the new index.
    drop(index);
    let mut watch = Stopwatch::start();
    with_coordinates!(facts.space(), T => {
        let force = force || output.is_none();
        (relaid.manifest, relaid.bytes_written) = publish::<T>(context, drafts, relaid.manifest, force, &inserted)?;
    });
    relaid.calibrate_seconds = watch.lap();
    Ok(relaid)
}

/// Returns the least bytes of a relayout.
fn least_bytes(context: &Context, facts: &IndexManifest, layout: Layout) -> u64 {
    let shape = facts.shape();
    let writing = Scan::memory_bytes(shape) + shape.bytes() as u64;
    let order = Places::memory_bytes(facts.vertices.into());
    let laying =
        Index::memory_bytes(facts) + order + worker_bytes(facts, layout).max(writing).max(contents_bytes(facts));
    laying.max(with_coordinates!(facts.space(), T => publishing_bytes::<T>(context, facts)))
}

/// Returns the bytes of a thread that orders a window.
fn worker_bytes(facts: &IndexManifest, layout: Layout) -> u64 {
    let window = window_vertices(facts.vertices, facts.shape().records());
    let slots = window * (facts.degree + 1) * size_of::<u32>();
    let dimensions = facts.vectors.dimensions;
    let vectors = if layout.goes_by_vectors() { Panel::<f32>::bytes_for(window, dimensions) } else { 0 };
    window_bytes(layout, window, facts.degree) + slots as u64 + vectors + Scan::memory_bytes(facts.shape())
}

/// Returns the bytes of all files but the pages while they are written, window by window.
fn contents_bytes(facts: &IndexManifest) -> u64 {
    let bytes = |role| facts.files[role].bytes;
    let window = window_vertices(facts.vertices, facts.shape().records()) as u64;
    let of_window = |role| bytes(role).div_ceil(facts.vertices.into()) * window;
    let small = bytes(Role::Codebook) + bytes(Role::Navigation) + 3 * bytes(Role::Duplicates);
    // Entries, positions of their ids, and their order; texts pass through a block and a write buffer.
    of_window(Role::Codes) + small + 5 * of_window(Role::Ids) + 52 * window + (2 << 20)
}

struct Relayout<'a> {
    context: &'a Context,
    index: &'a Index,
    shape: PageShape,
    way: PageOrder,
}

/// Inputs to the order of a window.
struct Window {
    /// Each vertex has a slot: the number of its neighbors, the neighbors, and room up to the degree.
    slots: Vec<u32>,
    /// Vectors, if the layout is based on them.
    vectors: Option<Panel<f32>>,
}

impl Relayout<'_> {
    /// Writes all files but the calibration. Also returns the rows with which the recall of inserted rows is measured.
    fn run(&self, drafts: &Drafts<'_>) -> Result<(RelayoutReport, Inserted)> {
        let (context, facts) = (self.context, self.index.facts());
        let mut watch = Stopwatch::start();
        let _places = context.reserve(Places::memory_bytes(facts.vertices.into()), PURPOSE)?;
        let places = &self.arrange()?;
        let layout_seconds = watch.lap();
        let (pages, bandwidth) = self.write_pages(drafts, &places.of)?;
        let _contents = context.reserve(contents_bytes(facts), PURPOSE)?;
        let codes = self.write_codes(drafts, places)?;
        let (duplicates, ids) = self.write_ids(drafts, places)?;
        let attributes = self.write_attributes(drafts, (places, &duplicates))?;
        let inserted = self.inserted((places, &duplicates));
        let contents: Contents = vec![
            (Role::Codebook, self.index.quantizer.to_bytes()),
            (Role::Navigation, self.index.navigation.to_bytes(|vertex| places.of[vertex as usize])),
            (Role::Duplicates, duplicates.to_bytes()),
        ];
        let mut files = write_rest(drafts, &contents, &[pages, codes, ids])?;
        attributes.into_iter().for_each(|facts| files.add(Role::Attributes, facts));
        let manifest = IndexManifest {
            layout: self.way.layout,
            overlap_ratio: places.overlap_ratio,
            entry: places.of[facts.entry as usize],
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

    /// Returns the calibration's rows that the last merge inserted, at their new places.
    fn inserted(&self, order: (&Places, &Duplicates)) -> Inserted {
        let known = self.index.calibration.as_ref().map(Calibration::inserted).cloned();
        let mut inserted = known.unwrap_or_default();
        inserted.entries.iter_mut().for_each(|entry| *entry = self.new_entry(order, *entry));
        inserted.entries.sort_unstable();
        inserted
    }

    /// Returns the new entry of a row, given the places and further rows in the new order.
    fn new_entry(&self, (places, duplicates): (&Places, &Duplicates), old: u32) -> u32 {
        let (index, vertices) = (self.index, self.index.facts().vertices);
        let Some(further) = old.checked_sub(vertices) else { return places.of[old as usize] };
        let vertex = index.duplicates.vertex_of(further as usize);
        let (before, after) = (index.duplicates.of(vertex).0, duplicates.of(places.of[vertex as usize]).0);
        vertices + (after + further as usize - before) as u32
    }

    fn arrange(&self) -> Result<Places> {
        let (context, facts) = (self.context, self.index.facts());
        let windows: Vec<Range<u32>> = windows(facts.vertices, self.shape.records()).collect();
        let bytes = worker_bytes(facts, self.way.layout);
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
                let of_window = self.window(scan, window.clone())?;
                let neighbors = |vertex: u32| {
                    let slot = &of_window.slots[(vertex - window.start) as usize * (facts.degree + 1)..];
                    &slot[1..][..slot[0] as usize]
                };
                let vectors = of_window.vectors.as_ref().map(|panel| (context.kernel, panel));
                let of = Arrangement::of_window(&context.cancel, self.way, window.clone(), neighbors, vectors);
                context.progress.advance(1 + done.fetch_add(1, Ordering::Relaxed));
                of
            },
        )?;
        Ok(Places::of_windows(facts.vertices, windows.iter().map(|window| window.start).zip(laid)))
    }

    /// Reads the inputs to the order of a window.
    fn window(&self, scan: &mut Scan, window: Range<u32>) -> Result<Window> {
        let facts = self.index.facts();
        let size = facts.degree + 1;
        let (mut slots, mut neighbors) = (vec![0; window.len() * size], Vec::new());
        let panel = || Panel::zeroed(window.len(), facts.vectors.dimensions);
        let mut vectors = self.way.layout.goes_by_vectors().then(panel);
        self.each_record(scan, window.clone(), &mut |vertex, page, slot| {
            let at = (vertex - window.start) as usize;
            let own = &mut slots[at * size..][..size];
            self.neighbors(vertex, page, slot, &mut neighbors)?;
            own[0] = neighbors.len() as u32;
            own[1..][..neighbors.len()].copy_from_slice(&neighbors);
            if let Some(panel) = &mut vectors {
                self.load(self.stored(page, slot), panel.row_mut(at));
            }
            Ok(())
        })?;
        Ok(Window { slots, vectors })
    }

    /// Returns the stored vector of a record.
    fn stored<'p>(&self, page: Page<'p>, slot: usize) -> &'p [u8] {
        let bytes = self.index.facts().vectors.bytes();
        &page.vectors(slot + 1)[slot * bytes..][..bytes]
    }

    /// Converts a stored vector to floats, scaled to length 1 under cosine.
    fn load(&self, stored: &[u8], to: &mut [f32]) {
        let (kernel, facts) = (self.context.kernel, self.index.facts());
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
        self.index.add_neighbors(vertex, (page, slot), neighbors)
    }

    /// Writes all pages into a draft. Also returns the bandwidth.
    fn write_pages(&self, drafts: &Drafts<'_>, places: &[u32]) -> Result<(Drafted, f64)> {
        let Self { context, shape, .. } = *self;
        let vertices = places.len() as u32;
        let mut draft = Draft::new(context, drafts, Role::Pages)?;
        let _scan = context.reserve(Scan::memory_bytes(shape), PURPOSE)?;
        let largest = window_vertices(vertices, shape.records()).div_ceil(shape.records());
        // A window is read once for each part of it that fits into memory.
        let together = ((context.budget().free() / shape.bytes() as u64) as usize).clamp(1, largest);
        let _buffer = context.reserve((together * shape.bytes()) as u64, PURPOSE)?;
        let (mut scan, mut buffer) = (Scan::new(shape), AlignedBuffer::zeroed(together * shape.bytes()));
        let mut farthest = 0u64;
        context.progress.begin("write", "pages", shape.pages(vertices));
        for window in windows(vertices, shape.records()) {
            for start in window.clone().step_by(together * shape.records()) {
                let end = window.end.min(start.saturating_add((together * shape.records()) as u32));
                let pages = (end - start).div_ceil(shape.records() as u32) as usize;
                let buffer = &mut buffer[..pages * shape.bytes()];
                farthest += self.fill(&mut scan, buffer, (window.clone(), start..end), places)?;
                draft.append(buffer)?;
                context.progress.advance(u64::from(shape.page_of(end - 1)) + 1);
            }
        }
        Ok((draft.finish()?, farthest as f64 / f64::from(vertices)))
    }

    /// Builds the pages of a part of a window, given by the new numbers of its vertices. Returns the sum over these
    /// vertices of the distance to the farthest neighbor.
    fn fill(
        &self,
        scan: &mut Scan,
        pages: &mut [u8],
        (window, part): (Range<u32>, Range<u32>),
        places: &[u32],
    ) -> Result<u64> {
        let shape = self.shape;
        let (mut farthest, mut neighbors) = (0, Vec::new());
        pages.fill(0);
        self.each_record(scan, window, &mut |vertex, page, slot| {
            let place = places[vertex as usize];
            if !part.contains(&place) {
                return Ok(());
            }
            self.neighbors(vertex, page, slot, &mut neighbors)?;
            neighbors.iter_mut().for_each(|neighbor| *neighbor = places[*neighbor as usize]);
            farthest += neighbors.iter().map(|&neighbor| u64::from(neighbor.abs_diff(place))).max().unwrap_or(0);
            let at = (place - part.start) as usize;
            let to = &mut pages[at / shape.records() * shape.bytes()..][..shape.bytes()];
            shape.put(to, at % shape.records(), self.stored(page, slot), page.row(slot), &neighbors);
            Ok(())
        })?;
        let first = shape.page_of(part.start);
        (first..).zip(pages.chunks_exact_mut(shape.bytes())).for_each(|(number, page)| PageShape::seal(page, number));
        Ok(farthest)
    }

    fn windows(&self) -> impl Iterator<Item = Range<u32>> {
        windows(self.index.facts().vertices, self.shape.records())
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

    /// Writes ids by entry. Also returns the further rows of vertices in the new order.
    fn write_ids(&self, drafts: &Drafts<'_>, places: &Places) -> Result<(Duplicates, Drafted)> {
        let Self { context, index, .. } = *self;
        let facts = index.facts();
        let temporary = &context.temporary(Some(index.folder()));
        let mut draft = IdDraft::new(context, (drafts, temporary), facts.ids, PURPOSE)?;
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
        let together = window_vertices(facts.vertices, self.shape.records());
        further.chunks(together).try_for_each(|entries| self.copy_ids(entries, &mut draft))?;
        Ok((duplicates, draft.finish()?))
    }

    /// Writes columns by entry, if there are any. `order` has the new places and further rows.
    fn write_attributes(&self, drafts: &Drafts<'_>, order: (&Places, &Duplicates)) -> Result<Option<FileFacts>> {
        let Self { context, index, .. } = *self;
        let Some(attributes) = &index.attributes else { return Ok(None) };
        let (rows, entry) = (index.facts().rows, |old: u32| self.new_entry(order, old));
        let temporary = &context.temporary(Some(index.folder()));
        let (facts, _) = attributes.reorder((context, index.files()), (drafts, temporary), (rows, entry))?;
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
