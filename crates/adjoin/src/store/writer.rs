//! From a source to a store on disk: centers, assignment, buckets in tree order, published by one rename.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use adjoin_device::BLOCK_BYTES;
use adjoin_kernels::Panel;
use xxhash_rust::xxh3::Xxh3;

use super::assign::{Nearest, nearest_of_stored, working_bytes};
use super::centers::{default_buckets, sample_rows, train, tree_order};
use super::format::{self, EXTENT_ALIGNMENT, Extent, HEADER_BYTES};
use super::intake::{Intake, intake_bytes, read_all};
use super::manifest::{Assignment, Centers, FileFacts, Files, Manifest, NO_CHECKSUM};
use crate::context::Context;
use crate::error::{Error, Result};
use crate::geometry::Coordinate;
use crate::geometry::with_coordinates;
use crate::options::{Metric, VectorType};
use crate::output::check_parent;
use crate::random::Random;
use crate::report::Stopwatch;
use crate::source::{Ids, SourceInfo, VectorSource};

/// What a build is to do with rows that have no usable vector.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnBad {
    /// Refuse the source and name the first of them.
    Error,
    /// Leave them out and count them.
    Skip,
}

/// What a build is to do with ids that occur twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnDuplicateId {
    /// Refuse the source and name the first of them.
    Error,
    /// Keep all rows: several vectors of one document.
    Keep,
}

/// How to build a store.
#[derive(Debug, Clone)]
pub struct BuildOptions {
    /// Metric of the joins to come.
    pub metric: Metric,
    /// Seed of the training sample.
    pub seed: u64,
    /// Number of buckets; by the number of rows where not given.
    pub buckets: Option<u32>,
    /// How centers are chosen.
    pub centers: Centers,
    /// Rows without a usable vector.
    pub on_bad: OnBad,
    /// Ids that occur twice.
    pub on_duplicate_id: OnDuplicateId,
    /// Replace a store that is there.
    pub force: bool,
}

impl Default for BuildOptions {
    fn default() -> Self {
        Self {
            metric: Metric::L2,
            seed: 1,
            buckets: None,
            centers: Centers::Trained,
            on_bad: OnBad::Error,
            on_duplicate_id: OnDuplicateId::Error,
            force: false,
        }
    }
}

/// What a build did.
#[derive(Debug, Clone)]
pub struct BuildReport {
    /// The manifest that was published.
    pub manifest: Manifest,
    /// Distances to centers that were computed.
    pub center_distances: u64,
    /// Bytes written.
    pub bytes_written: u64,
    /// Seconds spent in all.
    pub seconds: f64,
}

/// A store in a temporary place; removed when dropped.
pub struct TemporaryStore {
    folder: PathBuf,
}

impl TemporaryStore {
    /// Builds a store in a new folder in `beside`.
    ///
    /// # Errors
    /// As [`build`].
    pub fn build(
        context: &Context,
        source: &dyn VectorSource,
        beside: &Path,
        options: &BuildOptions,
    ) -> Result<(Self, BuildReport)> {
        let temporary = Self { folder: Self::new_folder(context, beside)? };
        let report = build(context, source, &temporary.folder, options)?;
        Ok((temporary, report))
    }

    /// Makes a folder that nobody else has, not even a run of the same number that was killed.
    fn new_folder(context: &Context, beside: &Path) -> Result<PathBuf> {
        for attempt in 0.. {
            let folder = beside.join(format!(".adjoin-{}-{attempt}.store", std::process::id()));
            match context.device.create_folder(&folder) {
                Err(error) if error.source.kind() == ErrorKind::AlreadyExists => {}
                made => return Ok(made.map(|()| folder)?),
            }
        }
        unreachable!("some name is free")
    }

    /// Where it lies.
    pub fn folder(&self) -> &Path {
        &self.folder
    }
}

impl Drop for TemporaryStore {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.folder); // what cannot be removed was never promised
    }
}

/// Builds a store in the folder `store` from a source.
///
/// # Errors
/// Where the source has unusable rows or ids, the budget is too small, something is at `store` already, or the disk
/// refuses. The folder is then as it was before.
pub fn build(
    context: &Context,
    source: &dyn VectorSource,
    store: &Path,
    options: &BuildOptions,
) -> Result<BuildReport> {
    let watch = Stopwatch::start();
    let old_files = check_target(context, store, options.force)?;
    let unfinished = Unfinished::begin(context, store)?;
    let info = source.info();
    if info.rounded_from_f64 {
        context.progress.note("the source has f64 elements; they are rounded to f32");
    }
    let (manifest, center_distances, bytes_written) = with_coordinates!(info.vectors, options.metric, T => {
        let _memory = context.reserve(bytes_needed::<T>(context, info, options)?, "the build")?;
        let intake = read_all(context, source, options)?;
        let arranged = arrange::<T>(context, &intake, info, options)?;
        let (manifest, written) = write_store(unfinished, &intake, &arranged, info, options, &old_files)?;
        (manifest, arranged.center_distances, written)
    });
    Ok(BuildReport { manifest, center_distances, bytes_written, seconds: watch.seconds() })
}

/// Refuses a target that is taken. Returns the files of the store that is to be replaced.
fn check_target(context: &Context, store: &Path, force: bool) -> Result<Vec<String>> {
    let at = store.display();
    if !store.exists() {
        check_parent(store)?;
        return Ok(Vec::new());
    }
    if !store.is_dir() {
        return Err(Error::input(format!("{at} is a file; a store is a folder: choose another name")));
    }
    if !store.join(format::MANIFEST_FILE).exists() {
        let mut entries =
            std::fs::read_dir(store).map_err(|error| Error::device(format!("cannot list {at}: {error}")))?;
        if entries.next().is_some() {
            return Err(Error::input(format!("{at} holds something that is no store; choose another folder")));
        }
        return Ok(Vec::new());
    }
    if !force {
        return Err(Error::input(format!("{at} is a store already; give --force to replace it")));
    }
    // A damaged store may be replaced too; its files are then left where they are.
    let files = super::Store::open(context, store).map(|store| store.manifest().files.clone()).ok();
    Ok(files.map_or_else(Vec::new, |files| [files.centers, files.table, files.vectors].map(|file| file.name).into()))
}

/// Memory that the build holds at most.
fn bytes_needed<T: Coordinate>(context: &Context, info: &SourceInfo, options: &BuildOptions) -> Result<u64> {
    if info.rows == 0 {
        return Err(Error::input("the source has no rows; there is nothing to join"));
    }
    let sample = sample_rows(info.rows);
    let buckets = u64::from(options.buckets.unwrap_or(default_buckets(info.rows))).min(sample) as usize;
    let assigned = info.rows * (2 * size_of::<Nearest<T::Distance>>() + size_of::<u32>()) as u64;
    let training = Panel::<T>::bytes_for(sample as usize, info.vectors.dimensions) + 24 * sample;
    let sums = (buckets * info.vectors.dimensions * 8) as u64;
    Ok(intake_bytes(info) + assigned + training + sums + working_bytes::<T>(context.threads, buckets, info.vectors))
}

/// Which rows lie in which bucket, and where the buckets' centers are.
struct Arranged<T> {
    /// Centers in bucket order.
    centers: Panel<T>,
    /// Places of the rows in the intake, bucket by bucket, ascending in each.
    places: Vec<u32>,
    /// End of each bucket in `places`.
    ends: Vec<usize>,
    /// Radius of each bucket.
    radii: Vec<f32>,
    center_distances: u64,
}

fn arrange<T: Coordinate>(
    context: &Context,
    intake: &Intake,
    info: &SourceInfo,
    options: &BuildOptions,
) -> Result<Arranged<T>> {
    let rows = intake.rows.len();
    if rows == 0 {
        return Err(Error::input("no row of the source has a usable vector"));
    }
    if u32::try_from(rows).is_err() {
        return Err(Error::input(format!("{rows} rows are more than this version can arrange in memory")));
    }
    context.progress.begin("arrange", "rows", rows as u64);
    let sample = sample::<T>(intake, info.vectors, options);
    let buckets = options.buckets.unwrap_or(default_buckets(rows as u64));
    let trained = options.centers == Centers::Trained;
    let centers = train(context, &sample, buckets, trained, options.seed)?;
    let nearest = nearest_of_stored(context, info.vectors, options.metric, &intake.stored, &centers)?;
    context.progress.advance(rows as u64);
    let center_distances = (rows * centers.rows()) as u64;
    Ok(Arranged { center_distances, ..in_tree_order(context, &centers, &nearest) })
}

/// The training sample: chosen by the number of rows, the dimensions and the seed alone.
fn sample<T: Coordinate>(intake: &Intake, vectors: VectorType, options: &BuildOptions) -> Panel<T> {
    let rows = intake.rows.len() as u64;
    let picked = Random::new(options.seed, "training sample").ascending_sample(sample_rows(rows), rows);
    let bytes = vectors.bytes();
    let stored: Vec<u8> =
        picked.iter().flat_map(|&row| &intake.stored[row as usize * bytes..][..bytes]).copied().collect();
    let mut panel = Panel::zeroed(picked.len(), vectors.dimensions);
    T::load(vectors, options.metric, &stored, &mut panel);
    panel
}

/// Drops centers without rows, orders the others by their tree, sorts the rows by bucket.
fn in_tree_order<T: Coordinate>(
    context: &Context,
    centers: &Panel<T>,
    nearest: &[Nearest<T::Distance>],
) -> Arranged<T> {
    let mut counts = vec![0usize; centers.rows()];
    nearest.iter().for_each(|nearest| counts[nearest.center as usize] += 1);
    let used: Vec<u32> = (0..centers.rows() as u32).filter(|&k| counts[k as usize] > 0).collect();
    let order: Vec<u32> = tree_order(context.kernel, &pick(centers, &used)).iter().map(|&k| used[k as usize]).collect();

    let mut bucket_of = vec![0u32; centers.rows()];
    let mut ends = Vec::with_capacity(order.len());
    for (bucket, &center) in order.iter().enumerate() {
        bucket_of[center as usize] = bucket as u32;
        ends.push(ends.last().unwrap_or(&0) + counts[center as usize]);
    }
    let mut next: Vec<usize> = std::iter::once(0).chain(ends.iter().copied()).take(order.len()).collect();
    let mut places = vec![0u32; nearest.len()];
    let mut squared_radii = vec![0f64; order.len()];
    for (row, nearest) in nearest.iter().enumerate() {
        let bucket = bucket_of[nearest.center as usize] as usize;
        places[next[bucket]] = row as u32;
        next[bucket] += 1;
        squared_radii[bucket] = squared_radii[bucket].max(T::at_most(nearest.squared, centers.dimensions()));
    }
    let radii = squared_radii.iter().map(|squared| (squared.sqrt() as f32).next_up()).collect();
    Arranged { centers: pick(centers, &order), places, ends, radii, center_distances: 0 }
}

fn pick<T: Coordinate>(centers: &Panel<T>, order: &[u32]) -> Panel<T> {
    let mut picked = Panel::zeroed(order.len(), centers.dimensions());
    for (k, &center) in order.iter().enumerate() {
        let coordinates = &centers.row(center as usize)[..centers.dimensions()];
        picked.row_mut(k).copy_from_slice(coordinates);
    }
    picked
}

/// Removes what a build that failed has left.
struct Unfinished<'a> {
    context: &'a Context,
    store: &'a Path,
    files: Vec<PathBuf>,
    made_folder: bool,
}

impl<'a> Unfinished<'a> {
    /// Makes the folder of the store, unless it is there: before any work, as the disk may refuse.
    fn begin(context: &'a Context, store: &'a Path) -> Result<Self> {
        let made_folder = !store.exists();
        if made_folder {
            context.device.create_folder(store)?;
        }
        Ok(Self { context, store, files: Vec::new(), made_folder })
    }

    fn add(&mut self, path: PathBuf) -> PathBuf {
        self.files.push(path.clone());
        path
    }

    fn keep(mut self) {
        self.files.clear();
        self.made_folder = false;
    }
}

impl Drop for Unfinished<'_> {
    fn drop(&mut self) {
        // Best effort: the error that led here is the one to report.
        for path in self.files.iter().filter(|path| path.exists()) {
            let _ = self.context.device.remove(path);
        }
        if self.made_folder {
            let _ = self.context.device.remove_folder(self.store);
        }
    }
}

fn write_store<T: Coordinate>(
    mut unfinished: Unfinished<'_>,
    intake: &Intake,
    arranged: &Arranged<T>,
    info: &SourceInfo,
    options: &BuildOptions,
    old_files: &[String],
) -> Result<(Manifest, u64)> {
    let Unfinished { context, store, .. } = unfinished;
    let device = &context.device;
    let partial = unfinished.add(store.join(format!("{}.partial", format::VECTORS_FILE)));
    let written = write_buckets(context, &partial, intake, arranged, info.vectors)?;
    let mut centers = Vec::new();
    for k in 0..arranged.centers.rows() {
        T::write_center(info.vectors.element, &arranged.centers.row(k)[..info.vectors.dimensions], &mut centers);
    }
    // Names that change with the contents: a store is replaced by the rename of its manifest and nothing else.
    let tag =
        format!("{:016x}", format::checksum(&[&written.digest.to_le_bytes()[..], &centers, &written.table].concat()));
    let name = |file: &str| file.replace(".bin", &format!("-{tag}.bin"));
    let vectors_name = name(format::VECTORS_FILE);
    device.rename(&partial, &unfinished.add(store.join(&vectors_name)))?;
    let centers_file = FileFacts::of(&name(format::CENTERS_FILE), &centers);
    let table_file = FileFacts::of(&name(format::TABLE_FILE), &written.table);
    for (facts, contents) in [(&centers_file, &centers), (&table_file, &written.table)] {
        write_file(context, &unfinished.add(store.join(&facts.name)), contents)?;
    }
    let manifest = Manifest {
        format_version: format::FORMAT_VERSION,
        vectors: info.vectors,
        rows: intake.rows.len() as u64,
        source_rows: info.rows,
        skipped_rows: intake.skipped_rows,
        duplicate_ids: intake.duplicate_ids,
        metric: options.metric,
        ids: info.ids,
        rounded_from_f64: info.rounded_from_f64,
        seed: options.seed,
        centers: options.centers,
        assignment: Assignment::Nearest,
        buckets: arranged.ends.len() as u32,
        files: Files {
            centers: centers_file,
            table: table_file,
            vectors: FileFacts { name: vectors_name, bytes: written.bytes, xxh3: None },
        },
        manifest_xxh3: NO_CHECKSUM.into(),
    };
    let encoded = manifest.encode();
    let draft = unfinished.add(store.join(format!("{}.partial", format::MANIFEST_FILE)));
    write_file(context, &draft, &encoded)?;
    device.sync_folder(store)?;
    device.rename(&draft, &store.join(format::MANIFEST_FILE))?;
    unfinished.keep();
    device.sync_folder(store)?;
    let new_files = [&manifest.files.centers.name, &manifest.files.table.name, &manifest.files.vectors.name];
    for old in old_files.iter().filter(|old| !new_files.contains(old)) {
        device.remove(&store.join(old))?;
    }
    let bytes = written.bytes + (centers.len() + written.table.len() + encoded.len()) as u64;
    Ok((manifest, bytes))
}

fn write_file(context: &Context, path: &Path, contents: &[u8]) -> Result<()> {
    let mut file = context.device.create(path)?;
    file.append(contents)?;
    Ok(file.sync()?)
}

/// The file of the buckets as it was written.
struct Written {
    table: Vec<u8>,
    bytes: u64,
    /// Of all headers, and so of all that they have checksums of.
    digest: u64,
}

fn write_buckets<T>(
    context: &Context,
    path: &Path,
    intake: &Intake,
    arranged: &Arranged<T>,
    vectors: VectorType,
) -> Result<Written> {
    let mut file = context.device.create(path)?;
    let mut written = Written { table: Vec::new(), bytes: 0, digest: 0 };
    let mut headers = Xxh3::new();
    let mut start = 0;
    context.progress.begin("write", "buckets", arranged.ends.len() as u64);
    for (number, (&end, &radius)) in arranged.ends.iter().zip(&arranged.radii).enumerate() {
        context.cancel.check()?;
        let mut bytes = Vec::new();
        let places = &arranged.places[start..end];
        let (body_bytes, id_bytes) = encode(number as u32, intake, places, vectors, &mut bytes);
        headers.update(&bytes[..HEADER_BYTES]);
        let extent = Extent { offset: written.bytes, rows: places.len() as u32, radius, body_bytes, id_bytes };
        written.table.extend(extent.encode());
        let alignment = if end == intake.rows.len() { BLOCK_BYTES } else { EXTENT_ALIGNMENT as usize };
        let padded = (written.bytes as usize + bytes.len()).next_multiple_of(alignment) - written.bytes as usize;
        bytes.resize(padded, 0);
        file.append(&bytes)?;
        written.bytes += padded as u64;
        start = end;
        context.progress.advance(number as u64 + 1);
    }
    file.sync()?;
    written.digest = headers.digest();
    Ok(written)
}

fn encode(number: u32, intake: &Intake, places: &[u32], vectors: VectorType, out: &mut Vec<u8>) -> (u64, u64) {
    let mut rows = Vec::with_capacity(places.len());
    let mut stored = Vec::with_capacity(places.len() * vectors.bytes());
    let mut ids = Ids::empty(intake.ids.kind());
    for &place in places {
        rows.push(intake.rows[place as usize]);
        stored.extend_from_slice(&intake.stored[place as usize * vectors.bytes()..][..vectors.bytes()]);
        ids.push_from(&intake.ids, place as usize);
    }
    format::encode_bucket(number, vectors, &rows, &stored, &ids, out)
}
