//! Merges the results of all writing parts to a store.

use std::path::Path;

use adjoin_kernels::Panel;
use zerocopy::IntoBytes;

use super::write::BucketsIndex;
use super::{BuildPartCounts, BuildPartStatistics, BuildPlan};
use crate::base::context::Context;
use crate::base::error::{Error, Result};
use crate::base::geometry::with_coordinates;
use crate::base::locks::WriterLock;
use crate::base::message::Argument;
use crate::base::options::VectorType;
use crate::base::report::Stopwatch;
use crate::base::sealed::SealedReader;
use crate::source::{Attributes, VectorSource};
use crate::store::attributes::RowPlaces;
use crate::store::bucket_file::{Writing, Written, pad};
use crate::store::files::{FileFacts, Role};
use crate::store::format::{BLOCK_BYTES, EXTENT_ALIGNMENT, Extent, HEADER_BYTES, Header};
use crate::store::manifest::FolderKind;
use crate::store::publish::{Drafts, check_target};
use crate::store::writer::{BuildReport, BuildSeconds, FinishedBuild, stored_centers};

/// Size of a batch in bytes, for columns that are not in files.
const BATCH_BYTES: u64 = 64 << 10;
/// Purpose of the memory, for messages.
const PURPOSE: &str = "merging the parts of the build";

impl BuildPlan {
    /// Merges the results of all parts in a folder to a store. The store equals the one of a build on one machine.
    ///
    /// # Errors
    /// Fails if a part is missing, damaged or of another plan, the source of kept columns has changed, `store` exists and
    /// `force` is false, memory does not suffice, another process merges the folder, or a disk fails. No store appears
    /// then.
    pub fn merge(
        &self,
        context: &Context,
        folder: &Path,
        store: &Path,
        force: bool,
    ) -> Result<(BuildReport, BuildPartStatistics)> {
        let watch = Stopwatch::start();
        check_target(context, store, FolderKind::Store, force)?;
        let lock = WriterLock::take_for(&context.device, folder, "merged")?;
        let (files, first) = (self.files(), self.phase_parts() + 1);
        files.check_all(folder, first..=files.parts, |part| self.open_part(context, folder, part))?;
        let drafts = Drafts::begin(context, store, FolderKind::Store)?;
        let merging = Merging { plan: self, context, folder, vectors: self.head.vectors };
        let mut places = self.row_places(context, &drafts)?;
        let written = merging.unite(&drafts, places.as_mut())?;
        let (attributes, spilled) = self.write_columns(context, places, &drafts)?.unzip();
        let centers = self.stored_centers(context, &written.centers)?;
        let buckets = written.centers.len() as u64;
        let (info, options, learned) = (self.info(), self.options(force), &self.head.learned);
        let finished = FinishedBuild { info: &info, options: &options, learned, written, centers, attributes };
        let (manifest, bytes_written) = finished.publish(drafts)?;
        lock.release()?;
        let seconds = BuildSeconds { total: watch.seconds(), write: watch.seconds(), ..BuildSeconds::default() };
        let counts = BuildPartCounts { phase: None, rows: learned.usable_rows, buckets };
        let mut statistics = self.statistics(context, "merge", counts);
        (statistics.common.seconds.total, statistics.common.io.bytes_written) = (seconds.total, Some(bytes_written));
        let center_distances = learned.distances + self.head.distances;
        let spill_bytes = spilled.unwrap_or(0);
        let report = BuildReport { manifest, center_distances, bytes_written, spill_bytes, seconds, resume: None };
        Ok((report, statistics))
    }

    fn row_places(&self, context: &Context, drafts: &Drafts<'_>) -> Result<Option<RowPlaces>> {
        let places = || RowPlaces::new(context, &drafts.temporary(), 0..self.head.rows);
        (!self.head.columns.is_empty()).then(places).transpose()
    }

    /// Writes the kept columns, if any. Returns their manifest entry, and the bytes that did not fit in memory.
    fn write_columns(
        &self,
        context: &Context,
        places: Option<RowPlaces>,
        drafts: &Drafts<'_>,
    ) -> Result<Option<(FileFacts, u64)>> {
        let Some(places) = places else { return Ok(None) };
        let source = self.open_source(context)?;
        let source: &dyn VectorSource = &*source;
        let columns = Attributes::of(context, source, &self.head.columns, &Argument::Columns.into())?;
        let reading = columns.reading_bytes().unwrap_or_else(|| source.scan_bytes(BATCH_BYTES));
        places.write(context, &columns, reading, drafts).map(Some)
    }

    fn stored_centers(&self, context: &Context, of_extents: &[u32]) -> Result<Vec<u8>> {
        let space = self.space();
        let stored = (of_extents.len() * self.head.vectors.dimensions * size_of::<f32>()) as u64;
        with_coordinates!(space, T => {
            let of_centers = Panel::<T>::bytes_for(self.head.learned.centers, space.dimensions());
            let _memory = context.reserve(of_centers + stored, PURPOSE)?;
            let (centers, _) = self.centers::<T>(context)?;
            Ok(stored_centers(space, &centers, of_extents))
        })
    }
}

struct Merging<'a> {
    plan: &'a BuildPlan,
    context: &'a Context,
    folder: &'a Path,
    vectors: VectorType,
}

impl Merging<'_> {
    /// Appends the extents of all parts to the file of buckets.
    fn unite(&self, drafts: &Drafts<'_>, mut places: Option<&mut RowPlaces>) -> Result<Written> {
        let Self { plan, context, folder, .. } = *self;
        let parts = plan.phase_parts() + 1..=plan.files().parts;
        let (mut total, mut rows) = (0, 0);
        let mut memory = context.reserve(0, PURPOSE)?;
        for part in parts.clone() {
            let (extents, _) = BucketsIndex::read(&self.open(part)?)?;
            total += extents.len();
            rows += extents.iter().map(|extent| u64::from(extent.rows)).sum::<u64>();
            let largest = extents.iter().map(|extent| extent.bytes(true) + BLOCK_BYTES).max().unwrap_or(0);
            let lists = (total * (size_of::<Extent>() + size_of::<u32>())) as u64;
            // A frame, and the lists of all parts and of the current one.
            context.grow(&mut memory, 2 * (largest + lists), PURPOSE)?;
        }
        if rows != plan.head.learned.usable_rows {
            let (at, planned) = (folder.display(), plan.head.learned.usable_rows);
            return Err(Error::corrupt(format!(
                "the parts in {at} have {rows} rows instead of {planned}; run them again"
            )));
        }
        let file = context.device.create(&drafts.path(Role::Vectors.file()))?;
        let mut writing = Writing::new(file, None);
        context.progress.begin("merge", "buckets", total as u64);
        for part in parts {
            self.append(part, total, &mut writing, places.as_deref_mut())?;
        }
        writing.file.sync()?;
        writing.finish()
    }

    fn open(&self, part: u32) -> Result<SealedReader> {
        let path = self.plan.files().path(self.folder, part);
        self.plan.open_part(self.context, self.folder, part)?.ok_or_else(|| {
            Error::input(format!("{} was removed during the merge; run that part again", path.display()))
        })
    }

    /// Appends the extents of a part. `total` is the number of all extents.
    fn append(
        &self,
        part: u32,
        total: usize,
        writing: &mut Writing<'_>,
        mut places: Option<&mut RowPlaces>,
    ) -> Result<()> {
        let mut reader = self.open(part)?;
        let (extents, centers) = BucketsIndex::read(&reader)?;
        let mut bytes = Vec::new();
        for (extent, center) in extents.iter().zip(centers) {
            self.context.cancel.check()?;
            bytes.clear();
            bytes.extend_from_slice(reader.next()?.unwrap_or_default());
            let number = writing.written.centers.len();
            let header = bytes.first_chunk().and_then(Header::decode).filter(|header| {
                let found = header.extent(extent.offset, self.vectors);
                found == Extent { radius: 0.0, ..*extent } && bytes.len() as u64 >= extent.bytes(true)
            });
            let Some(header) = header else { return Err(reader.damaged()) };
            // A part numbers its extents from 0, since other parts have not counted theirs yet.
            bytes[..HEADER_BYTES].copy_from_slice(header.with_number(number as u32).as_bytes());
            bytes.truncate(extent.bytes(true) as usize);
            let offset = writing.written.bytes;
            let alignment = if number + 1 == total { BLOCK_BYTES } else { EXTENT_ALIGNMENT };
            pad(&mut bytes, 0, offset, alignment as usize);
            if let Some(places) = &mut places {
                let numbers = Extent { offset: 0, ..*extent }.rows_of(0..extent.rows);
                let numbers = bytes[numbers.start as usize..numbers.end as usize].as_chunks().0;
                places.add(&numbers.iter().map(|&row| u64::from_le_bytes(row)).collect::<Vec<u64>>())?;
            }
            writing.append(center, &Extent { offset, ..*extent }, &bytes)?;
            self.context.progress.advance(number as u64 + 1);
        }
        // The frames after the extents, and the seal.
        while reader.next()?.is_some() {}
        Ok(())
    }
}
