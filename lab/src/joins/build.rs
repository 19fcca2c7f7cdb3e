//! Builds stores with centers and assignments of DiskJoin (section 5.1).

use std::path::Path;
use std::str::FromStr;
use std::sync::Arc;

use adjoin::{
    BuildOptions, Context, Error, Metric, Random, Result, SourceOptions, Store, VectorSource,
    kernels::Panel,
    lab::{
        default_buckets,
        geometry::{Coordinate, Space},
        source,
        workers::map_items,
    },
};

use super::Named;
use crate::hnsw::{Hnsw, HnswOptions, HnswSearch};

/// Parameters of the authors' program: M and efConstruction.
const HNSW: HnswOptions = HnswOptions { links: 20, candidates: 100 };
/// Number of candidates of a search in the authors' program, ef. That program searches the lowest layer only; here, searches
/// descend from the highest one.
const SEARCH_CANDIDATES: usize = 20;
/// Factor of the rule for the second nearest center in the authors' program, for squared distances.
const HARDLY_FARTHER: f64 = 1.2;
/// Bytes of vectors that a scan returns at once.
const BATCH_BYTES: usize = 1 << 20;
/// Number of rows that a thread assigns at once.
const ROWS_TOGETHER: usize = 256;

/// How rows are assigned to centers.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Assignment {
    /// By the engine, with two levels of centers.
    Levels,
    /// To the nearest center that a search of an HNSW finds.
    Hnsw,
    /// As in the authors' program: to the second nearest of these centers if it has fewer rows so far than the nearest
    /// and its squared distance is less than 1.2 times as large.
    HnswTwo,
}

impl FromStr for Assignment {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self> {
        match name {
            "levels" => Ok(Self::Levels),
            "hnsw" => Ok(Self::Hnsw),
            "hnsw-two" => Ok(Self::HnswTwo),
            _ => Err(Error::option(format!("no such assignment: {name}; choose one of levels, hnsw, hnsw-two"))),
        }
    }
}

pub(crate) fn build(arguments: &[String]) -> Result<()> {
    let [files, folder, named @ ..] = arguments else {
        return Err(Error::option("give SOURCE STORE [NAME=VALUE]..."));
    };
    let named = Named(named);
    let context = named.context()?;
    let usual = BuildOptions::default();
    let (mut buckets, seed) = (named.value("buckets")?, named.value("seed")?.unwrap_or(usual.seed));
    let assignment = named.text("assign").map_or(Ok(Assignment::Levels), str::parse)?;
    let source = source::open(&context, std::slice::from_ref(files), &SourceOptions::default())?;
    let centers = match named.text("centers") {
        None | Some("trained") => None,
        Some("random") => {
            let count = *buckets.get_or_insert(default_buckets(source.info().rows));
            Some(drawn(&*source, count.into(), seed)?)
        }
        Some(_) => return Err(Error::option("centers are trained or random")),
    };
    let assignment = match (assignment, &centers) {
        (Assignment::Levels, _) => None,
        (_, None) => return Err(Error::option("an HNSW needs its centers before the build; give centers=random")),
        (assignment, Some(centers)) => Some(assigned(&context, &*source, centers, assignment, seed)?.into()),
    };
    let options = BuildOptions { centers, assignment, buckets, seed, force: true, ..usual };
    Store::build(&context, &*source, Path::new(folder), &options).map(drop)
}

/// Returns randomly sampled rows of a source, to be used as centers. The result is their stored bytes, one row after
/// the other.
fn drawn(source: &dyn VectorSource, count: u64, seed: u64) -> Result<Arc<[u8]>> {
    let (rows, bytes) = (source.info().rows, source.info().vectors.bytes());
    let mut wanted = Random::new(seed, "random centers").ascending_sample(count.min(rows), rows).into_iter().peekable();
    let mut centers = Vec::new();
    let mut scan = source.scan(BATCH_BYTES)?;
    while let Some(batch) = scan.next_batch()? {
        while let Some(row) = wanted.next_if(|&row| row < batch.first_row + batch.rows as u64) {
            centers.extend_from_slice(&batch.bytes[(row - batch.first_row) as usize * bytes..][..bytes]);
        }
    }
    Ok(centers.into())
}

/// Returns the number of the center of each row. `centers` holds stored vectors, end to end.
fn assigned(
    context: &Context,
    source: &dyn VectorSource,
    centers: &[u8],
    assignment: Assignment,
    seed: u64,
) -> Result<Vec<u32>> {
    let space = Space::plain(source.info().vectors, Metric::L2);
    if space.is_of_floats() {
        assigned_in::<f32>(context, source, space, centers, assignment, seed)
    } else {
        assigned_in::<u8>(context, source, space, centers, assignment, seed)
    }
}

fn assigned_in<T: Coordinate>(
    context: &Context,
    source: &dyn VectorSource,
    space: Space<'_>,
    centers: &[u8],
    assignment: Assignment,
    seed: u64,
) -> Result<Vec<u32>> {
    let (bytes, dimensions) = (space.vectors.bytes(), space.dimensions());
    let mut panel = Panel::<T>::zeroed(centers.len() / bytes, dimensions);
    T::load(space, context.kernel, centers, &mut panel);
    let graph = Hnsw::build(context.kernel, &panel, HNSW, seed);
    let (mut sizes, mut chosen) = (vec![0_u64; panel.rows()], Vec::with_capacity(source.info().rows as usize));
    let mut scan = source.scan(BATCH_BYTES)?;
    while let Some(batch) = scan.next_batch()? {
        let chunks: Vec<&[u8]> = batch.bytes.chunks(ROWS_TOGETHER * bytes).collect();
        let state = || (HnswSearch::default(), Panel::<T>::zeroed(ROWS_TOGETHER, dimensions));
        let nearest = map_items(context.threads, chunks.len(), &context.cancel, state, |(search, rows), k| {
            T::load(space, context.kernel, chunks[k], rows);
            let near =
                |row| graph.nearest(rows.row(row), SEARCH_CANDIDATES, search).into_iter().take(2).collect::<Vec<_>>();
            Ok((0..chunks[k].len() / bytes).map(near).collect::<Vec<_>>())
        })?;
        // The sizes count all earlier rows, so this loop is in the order of the rows.
        for near in nearest.iter().flatten() {
            let center = match near[..] {
                [first, second]
                    if assignment == Assignment::HnswTwo
                        && sizes[second.vertex as usize] < sizes[first.vertex as usize]
                        && second.squared::<T>() < HARDLY_FARTHER * first.squared::<T>() =>
                {
                    second.vertex
                }
                _ => near[0].vertex,
            };
            sizes[center as usize] += 1;
            chosen.push(center);
        }
    }
    Ok(chosen)
}
