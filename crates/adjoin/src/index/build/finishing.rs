//! Implements the last steps of builds and merges: codes, the navigation graph, and the order of vertices on pages.
//! These steps do not depend on how the graph was built.

use std::ops::Range;

use adjoin_device::Reservation;
use adjoin_kernels::Panel;

use super::PURPOSE;
use super::origin::{Origin, VectorsToGather};
use super::reach::Repaired;
use crate::base::context::Context;
use crate::base::error::Result;
use crate::base::geometry::Coordinate;
use crate::base::random::Random;
use crate::base::workers::map_items;
use crate::graph::GraphOptions;
use crate::index::layout::{Arrangement, Places, window_bytes, windows};
use crate::index::navigation::{Navigation, StoredVertices};
use crate::index::options::IndexParameters;
use crate::index::page::PageShape;
use crate::quantize::{Quantizer, widen};

/// Largest number of vectors on which codes are trained.
pub(super) const CODE_SAMPLE: u64 = 16 << 10;
/// Largest number of vectors with which the error of codes is measured.
const ERROR_SAMPLE: u64 = 2 << 10;

/// Returns the vectors of all vertices, or `None` if they need more than `memory` bytes.
///
/// # Errors
/// If they cannot be read.
pub(in crate::index) fn all<T: Coordinate>(
    origin: &impl Origin,
    memory: u64,
) -> Result<Option<(Panel<T>, Reservation)>> {
    let vertices = origin.vertices();
    let bytes = Panel::<T>::bytes_for(vertices as usize, origin.space().dimensions());
    if bytes > memory {
        return Ok(None);
    }
    let memory = origin.context().reserve(bytes, PURPOSE)?;
    let panel = origin.vectors::<T>(VectorsToGather::of(vertices, 0..vertices))?.panel;
    Ok(Some((panel, memory)))
}

/// A navigation graph, and the reservation for its vectors.
pub(in crate::index) struct NavigationWithMemory {
    pub(in crate::index) graph: Navigation,
    pub(in crate::index) memory: Reservation,
}

/// Builds the navigation graph over a random sample of the vertices.
///
/// # Errors
/// If vectors cannot be read, or if memory does not suffice.
pub(in crate::index) fn navigation<T: Coordinate>(
    origin: &impl Origin,
    options: &IndexParameters,
) -> Result<NavigationWithMemory> {
    let sample = Navigation::sample(origin.vertices(), options);
    let (sample, memory) = stored(origin, sample)?;
    let graph = Navigation::build::<T>(origin.context(), origin.space(), sample, &options.graph)?;
    Ok(NavigationWithMemory { graph, memory })
}

impl NavigationWithMemory {
    /// Adds one vertex of each island ([`Repaired::islands`]).
    ///
    /// # Errors
    /// If vectors cannot be read, or if memory does not suffice.
    pub(in crate::index) fn with_islands<T: Coordinate>(
        mut self,
        origin: &impl Origin,
        graph: &Repaired,
        options: &GraphOptions,
    ) -> Result<Self> {
        // A vertex of an island may be in the random sample too.
        let more: Vec<u32> = graph.islands().iter().copied().filter(|&vertex| !self.graph.has(vertex)).collect();
        if more.is_empty() {
            return Ok(self);
        }
        let (context, space) = (origin.context(), origin.space());
        let count = (self.graph.vertices().len() + more.len()) as u64;
        let panel = Panel::<T>::bytes_for(count as usize, space.dimensions());
        // Both graphs are in memory until this function returns.
        let _of_both = context.reserve(Navigation::stored_bytes(count, space) + panel, PURPOSE)?;
        let (more, memory) = stored(origin, more)?;
        self.graph = self.graph.with::<T>(context, space, more, options)?;
        self.memory.join(memory);
        Ok(self)
    }
}

/// Reads the vectors of some vertices, given in ascending order.
fn stored(origin: &impl Origin, vertices: Vec<u32>) -> Result<(StoredVertices, Reservation)> {
    let (context, space) = (origin.context(), origin.space());
    let memory = context.reserve(Navigation::stored_bytes(vertices.len() as u64, space), PURPOSE)?;
    let wanted = VectorsToGather::of(origin.vertices(), vertices.iter().copied());
    let mut stored = Vec::with_capacity(vertices.len() * space.vectors.bytes());
    origin.each(&wanted.ranked(), false, &mut |row| {
        stored.extend_from_slice(row.stored);
        Ok(())
    })?;
    Ok((StoredVertices { vertices, stored }, memory))
}

/// Trains a quantizer on a random sample of the vectors. Returns it with its [`code_error`].
///
/// # Errors
/// If vectors cannot be read, or if memory does not suffice.
pub(in crate::index) fn quantizer<T: Coordinate>(
    origin: &impl Origin,
    code_bytes: usize,
    seed: u64,
) -> Result<(Quantizer, f64)> {
    let (sample, memory) = drawn::<T>(origin, Random::new(seed, "sample for codes"), CODE_SAMPLE)?;
    let learned = Quantizer::train(origin.context(), &sample, code_bytes, seed)?;
    drop((sample, memory));
    let error = code_error::<T>(origin, &learned, seed)?;
    Ok((learned, error))
}

/// Returns the relative error of codes for drawn vectors. Unless there are few vectors, they are not those on which codes
/// are trained, whose error is smaller.
///
/// # Errors
/// If vectors cannot be read, or if memory does not suffice.
pub(in crate::index) fn code_error<T: Coordinate>(
    origin: &impl Origin,
    quantizer: &Quantizer,
    seed: u64,
) -> Result<f64> {
    let lot = Random::new(seed, "sample for errors of codes");
    let (sample, _memory) = drawn::<T>(origin, lot, ERROR_SAMPLE)?;
    quantizer.relative_error(origin.context(), &sample)
}

/// Draws up to `most` vectors.
fn drawn<T: Coordinate>(origin: &impl Origin, mut lot: Random, most: u64) -> Result<(Panel<f32>, Reservation)> {
    let (context, vertices, dimensions) = (origin.context(), origin.vertices(), origin.space().dimensions());
    let count = u64::from(vertices).min(most);
    let _stored = context.reserve(Panel::<T>::bytes_for(count as usize, dimensions), PURPOSE)?;
    let memory = context.reserve(Panel::<f32>::bytes_for(count as usize, dimensions), PURPOSE)?;
    let drawn = lot.ascending_sample(count, vertices.into());
    let wanted = VectorsToGather::of(vertices, drawn.into_iter().map(|vertex| vertex as u32));
    let drawn = origin.vectors::<T>(wanted)?.panel;
    let mut sample = Panel::zeroed(drawn.rows(), drawn.dimensions());
    for row in 0..drawn.rows() {
        widen(drawn.row(row), sample.row_mut(row));
    }
    Ok((sample, memory))
}

/// Returns the windows of vertices that are laid out separately.
pub(in crate::index) fn windows_of(vertices: u32, shape: PageShape) -> Vec<Range<u32>> {
    windows(vertices, shape.records()).collect()
}

/// Returns the page that each vertex of a window had in an earlier order, or `None` for new vertices.
pub(in crate::index) type PagesBefore<'a> = &'a (dyn Fn(Range<u32>) -> Vec<Option<u32>> + Sync);

/// Computes the order of all vertices on pages from the edges of the graph. If `before` is given, earlier pages are kept as
/// far as their vertices remain.
///
/// # Errors
/// If lists cannot be read, if memory does not suffice, or if the work is cancelled.
pub(in crate::index) fn arranged(
    context: &Context,
    graph: &Repaired,
    vertices: u32,
    degree: usize,
    shape: PageShape,
    before: Option<PagesBefore<'_>>,
) -> Result<Places> {
    let windows = windows_of(vertices, shape);
    // The lists of a window are reserved when they are read, so they are not part of `bytes`.
    let largest = windows.iter().map(Range::len).max().unwrap_or(0);
    let bytes = window_bytes(largest, degree);
    let whole = bytes + graph.windows().range_bytes(largest as u64, degree);
    // At least one window is processed at a time. If it does not fit in memory, a reservation below fails and names its
    // size.
    let workers = ((context.budget().free() / whole.max(1)) as usize).clamp(1, context.threads.min(windows.len()));
    let _memory = context.reserve(bytes * workers as u64, PURPOSE)?;
    context.progress.begin("layout", "windows", windows.len() as u64);
    let laid = map_items(
        workers,
        windows.len(),
        &context.cancel,
        || (),
        |(), number| {
            let window = windows[number].clone();
            let lists = graph.range(context, window.clone())?;
            let before = before.map(|before| before(window.clone()));
            Arrangement::of_window(&context.cancel, shape.records(), window, before.as_deref(), |vertex| {
                lists.of(vertex)
            })
        },
    )?;
    Ok(Places::of_windows(vertices, windows.iter().map(|window| window.start).zip(laid)))
}
