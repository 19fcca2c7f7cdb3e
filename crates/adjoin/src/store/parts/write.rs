//! Runs a writing part: reads the rows of its centers from the results of all reading parts, and writes their buckets.

use std::path::Path;

use adjoin_device::Reservation;
use serde::{Deserialize, Serialize};

use super::{BUCKETS, BuildPartCounts, BuildPartStatistics, BuildPhase, BuildPlan};
use crate::base::context::Context;
use crate::base::error::{Error, ErrorKind, Result};
use crate::base::part_files::create_part_folder;
use crate::base::report::Stopwatch;
use crate::base::sealed::SealedReader;
use crate::store::bucket_file::Written;
use crate::store::buckets::{BucketWriter, extent_rows_max};
use crate::store::format::{ENTRY_BYTES, Extent};
use crate::store::held::AssignedRows;
use crate::store::memory::{BuildMemory, WritingPart};
use crate::store::records::Tally;
use crate::store::shuffle::{FRAME_BYTES, ShuffleSection, ShuffledRows};

/// Purpose of the memory, for messages.
const PURPOSE: &str = "writing buckets";
/// Memory for reading records: a frame, and its successor while it grows.
const READING_BYTES: u64 = 2 * FRAME_BYTES as u64;

/// Index of the result of a writing part.
#[derive(Serialize, Deserialize)]
pub(super) struct BucketsIndex {
    /// Number of extents, which are the frames after the head.
    pub(super) extents: usize,
    /// Offset of the frame of the bucket table, which the frame of the numbers of centers follows.
    table: u64,
}

impl BucketsIndex {
    /// Reads the index of a result, its bucket table, and the number of the center of each extent.
    ///
    /// # Errors
    /// Fails if the result is damaged or cannot be read.
    pub(super) fn read(reader: &SealedReader) -> Result<(Vec<Extent>, Vec<u32>)> {
        let index: Option<Self> = serde_json::from_slice(&reader.index()?).ok();
        let Some(index) = index else { return Err(reader.damaged()) };
        let mut frames = Vec::new();
        reader.each_frame(index.table, 2, |frame| {
            frames.push(frame.to_vec());
            Ok(())
        })?;
        let extents: Vec<Extent> =
            frames[0].as_chunks::<ENTRY_BYTES>().0.iter().map(|&entry| zerocopy::transmute!(entry)).collect();
        let centers: Vec<u32> = frames[1].as_chunks().0.iter().map(|&center| u32::from_le_bytes(center)).collect();
        match extents.len() == index.extents && centers.len() == index.extents {
            true => Ok((extents, centers)),
            false => Err(reader.damaged()),
        }
    }
}

/// The rows of a section.
struct Section {
    rows: ShuffledRows,
    /// Tallies of its centers, in tree order.
    tallies: Vec<Tally>,
    /// Memory of the lists of frames.
    _lists: Reservation,
}

impl BuildPlan {
    /// Checks that all reading parts exist.
    fn check_read(&self, context: &Context, number: u32, folder: &Path) -> Result<()> {
        let (files, reading) = (self.files(), self.phase_parts());
        files.check_all(folder, 1..=reading, |part| self.open_part(context, folder, part)).map_err(|error| {
            let which = format!("part {number} of {} writes rows that parts 1 to {reading} read: ", files.parts);
            if error.kind() == ErrorKind::Input { error.after(&which) } else { error }
        })
    }

    /// Opens a section of the results of all reading parts.
    fn section(&self, context: &Context, section: usize, folder: &Path) -> Result<Section> {
        let (files, centers, reading) = (self.files(), self.places(section).len(), self.phase_parts());
        let mut lists = context.reserve(0, PURPOSE)?;
        let (mut rows, mut usable_rows) = (ShuffledRows::new(context, centers), 0);
        let mut tallies = vec![Tally::default(); centers];
        for part in 1..=reading {
            let path = files.path(folder, part);
            let Some(reader) = self.open_part(context, folder, part)? else {
                return Err(Error::input(format!("{} was removed; run that part again", path.display())));
            };
            let read = ShuffleSection::read(&reader, section, centers)?;
            let held = lists.bytes() + read.frames_bytes();
            context.grow(&mut lists, held, PURPOSE)?;
            tallies.iter_mut().zip(&read.tallies).for_each(|(sum, tally)| sum.add(tally));
            usable_rows += read.usable_rows;
            rows.add(&path, read.frames);
        }
        if usable_rows != self.head.learned.usable_rows {
            let (plan, planned) = (self.path.display(), self.head.learned.usable_rows);
            return Err(Error::input(format!(
                "parts 1 to {reading} read {usable_rows} rows, but {plan} has {planned}: the source has changed; plan again"
            )));
        }
        Ok(Section { rows, tallies, _lists: lists })
    }

    /// Runs the writing part of a section.
    pub(super) fn write_section(
        &self,
        context: &Context,
        number: u32,
        section: usize,
        folder: &Path,
    ) -> Result<BuildPartStatistics> {
        let watch = Stopwatch::start();
        let (places, learned) = (self.places(section), &self.head.learned);
        self.check_read(context, number, folder)?;
        create_part_folder(context, folder)?;
        let mut file = self.files().create(context, folder, number, BUCKETS, &self.part_head(number))?;
        let (vectors, rows, buckets) = (self.head.vectors, learned.usable_rows, learned.centers);
        let writing = WritingPart { vectors, rows, buckets, records: READING_BYTES };
        // A refusal of the lists of frames names the memory for writing, too.
        let context = &context.naming_more(BuildMemory::least_to_write(&writing));
        let Section { rows: all, tallies: sums, _lists } = self.section(context, section, folder)?;
        let (run, memory) = BuildMemory::plan_writing(context, &writing)?;
        let order = self.order(&mut self.reopen(&run)?)?;
        let order = &order[places];
        let mut tallies = vec![Tally::default(); buckets];
        order.iter().zip(sums).for_each(|(&center, sum)| tallies[center as usize] = sum);
        let partition_of: Vec<u32> = (0..order.len() as u32).collect();
        let rows = AssignedRows::Shuffled(all);
        let writer = BucketWriter {
            context: &run,
            rows: &rows,
            before: None,
            vectors,
            ids: self.head.ids,
            order,
            partition_of: &partition_of,
            tallies: &tallies,
            extent_rows_max: extent_rows_max(learned.usable_rows, buckets as u64, vectors),
            load_bytes: memory.load,
            kept: None,
            sorted: None,
        };
        let _memory = run.reserve(memory.writing(writer.largest_extent()), PURPOSE)?;
        let Written { centers, table, .. } = writer.write_to(&mut file)?;
        let index = BucketsIndex { extents: centers.len(), table: file.offset() };
        file.append(&table)?;
        file.append(&centers.iter().flat_map(|center| center.to_le_bytes()).collect::<Vec<u8>>())?;
        let bytes = file.finish_with_index(&serde_json::to_vec(&index).expect("an index has no map"))?;
        let rows = tallies.iter().map(|tally| tally.rows).sum();
        let counts = BuildPartCounts { phase: Some(BuildPhase::Write), rows, buckets: index.extents as u64 };
        let mut statistics = self.statistics(context, "run-part", counts);
        statistics.common.seconds.total = watch.seconds();
        statistics.common.io.bytes_written = Some(bytes);
        Ok(statistics)
    }
}
