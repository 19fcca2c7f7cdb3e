//! Runs a reading part: assigns its rows to centers, and writes them to a file, sorted by center.

use std::ops::Range;
use std::path::Path;

use zerocopy::IntoBytes;

use super::{BuildPartCounts, BuildPartStatistics, BuildPhase, BuildPlan};
use crate::base::context::Context;
use crate::base::error::Result;
use crate::base::geometry::{Coordinate, Space, with_coordinates};
use crate::base::options::VectorType;
use crate::base::part_files::create_part_folder;
use crate::base::report::Stopwatch;
use crate::source::{RowRange, VectorSource};
use crate::store::assign::TwoLevel;
use crate::store::intake::{self, Intake};
use crate::store::memory::{BuildInput, BuildMemory};
use crate::store::options::BuildOptions;
use crate::store::partitions::{Partitions, Records};
use crate::store::records::{RECORD_BYTES, Record, RecordHead, Tally};
use crate::store::shuffle::{FRAME_BYTES, SHUFFLE, ShuffleWriter};
use crate::store::sorting::Sorting;
use crate::store::writer::{partition_of, partitions_of_centers};

/// Memory of the frame that is being filled, and of the table of a section.
const FRAMES_BYTES: u64 = 2 * FRAME_BYTES as u64;

impl BuildPlan {
    /// Runs a reading part.
    pub(super) fn read_rows(&self, context: &Context, number: u32, folder: &Path) -> Result<BuildPartStatistics> {
        let watch = Stopwatch::start();
        create_part_folder(context, folder)?;
        let file = self.files().create(context, folder, number, SHUFFLE, &self.part_head(number))?;
        let source = self.open_source(context)?;
        // The merge reads the columns, so a part needs no memory for them.
        let options = BuildOptions { attributes: Vec::new(), ..self.options(false) };
        let plain = Space::plain(self.head.vectors, self.head.metric);
        let input = BuildInput { source: &*source, options: &options, columns_bytes: Some(0) };
        let least = with_coordinates!(plain, T => BuildMemory::foresee::<T>(context.threads, input, 0, 0).least);
        // A refusal of the frame names the memory for assigning rows, too.
        let context = &context.naming_more(FRAMES_BYTES + least);
        let _frame = context.reserve(FRAMES_BYTES, "the build")?;
        let (run, memory) = with_coordinates!(plain, T => BuildMemory::plan::<T>(context, input)?);
        let part = ReadingPart { plan: self, context: &run, memory, temporary: &run.temporary(Some(folder)) };
        let space = self.space();
        let done =
            with_coordinates!(space, T => part.run::<T>(&*source, number as usize - 1, ShuffleWriter::new(file)))?;
        let counts = BuildPartCounts { phase: Some(BuildPhase::Read), rows: done.rows, buckets: 0 };
        let mut statistics = self.statistics(context, "run-part", counts);
        statistics.common.seconds.total = watch.seconds();
        statistics.common.io.bytes_written = Some(done.bytes);
        statistics.common.io.spill_bytes = Some(done.spilled);
        Ok(statistics)
    }
}

struct ReadingPart<'a> {
    plan: &'a BuildPlan,
    context: &'a Context,
    memory: BuildMemory,
    /// Folder for rows that do not fit in memory.
    temporary: &'a Path,
}

struct ReadRows {
    rows: u64,
    bytes: u64,
    spilled: u64,
}

impl ReadingPart<'_> {
    fn run<T: Coordinate>(&self, source: &dyn VectorSource, part: usize, mut out: ShuffleWriter) -> Result<ReadRows> {
        let Self { plan, context, memory, .. } = *self;
        let (space, head) = (plan.space(), &plan.head);
        let scanning = context.reserve(memory.assigning(), "the build")?;
        let (centers, order) = plan.centers::<T>(context)?;
        let rows = part.checked_sub(1).map_or(0, |before| head.row_ends[before])..head.row_ends[part];
        let row_bytes = head.vectors.bytes() as u64 + RECORD_BYTES + head.learned.id_bytes / head.learned.usable_rows;
        let sizes = memory.partitions((rows.end - rows.start) * row_bytes, order.len());
        let records = Partitions::new(context, self.temporary, "rows", sizes);
        let partition_of_center = partitions_of_centers(&order, records.count());
        let tallies = vec![Tally::default(); order.len()];
        let mut sorting = Sorting { records, tallies, partition_of_center, kept: None, distances_a_row: 0 };
        let range = RowRange::new(source, rows);
        let mut usable_rows = 0;
        if range.info().rows > 0 {
            let levels = TwoLevel::new(context.kernel, &centers);
            context.progress.begin("assign", "rows", range.info().rows);
            usable_rows = sorting.scan(&self.intake(&range), &levels, space, |_, _| Ok(()))?.usable_rows;
        }
        drop((centers, scanning));
        sorting.measure(space);
        let Sorting { records, tallies, .. } = sorting;
        let records = records.finish()?;
        let _memory = context.reserve(memory.writing(0), "the build")?;
        Rows { records: &records, vectors: head.vectors, order: &order, tallies: &tallies, load_bytes: memory.load }
            .write(plan, context, &mut out)?;
        Ok(ReadRows { rows: usable_rows, bytes: out.finish(usable_rows)?, spilled: records.spilled() })
    }

    fn intake<'s>(&'s self, source: &'s dyn VectorSource) -> Intake<'s> {
        let (context, head) = (self.context, &self.plan.head);
        let (metric, on_bad, remedy, batch_bytes) = (head.metric, head.on_bad, intake::fix_or_skip, self.memory.batch);
        Intake { context, source, metric, on_bad, left_out: None, remedy, batch_bytes }
    }
}

/// Rows in partitions.
struct Rows<'a> {
    records: &'a Records,
    vectors: VectorType,
    /// Numbers of the centers, in tree order.
    order: &'a [u32],
    /// Tallies by center.
    tallies: &'a [Tally],
    /// Maximum number of bytes that are sorted at a time.
    load_bytes: u64,
}

impl Rows<'_> {
    /// Writes all sections.
    fn write(&self, plan: &BuildPlan, context: &Context, out: &mut ShuffleWriter) -> Result<()> {
        let mut places = vec![0; self.order.len()];
        self.order.iter().zip(0u32..).for_each(|(&center, place)| places[center as usize] = place);
        context.progress.begin("sort", "centers", self.order.len() as u64);
        for section in 0..plan.head.place_ends.len() {
            let all = plan.places(section);
            let mut start = all.start;
            while start < all.end {
                context.cancel.check()?;
                let end = self.end_of_load(start, all.end);
                self.write_load(start..end, all.start, &places, out)?;
                context.progress.advance(end as u64);
                start = end;
            }
            out.end_section(all.map(|place| self.tallies[self.order[place] as usize]))?;
        }
        Ok(())
    }

    fn partition(&self, place: usize) -> usize {
        partition_of(place, self.records.count(), self.order.len())
    }

    /// Returns the bytes of the records of the center at a place.
    fn bytes(&self, place: usize) -> u64 {
        let tally = self.tallies[self.order[place] as usize];
        tally.rows * (RECORD_BYTES + self.vectors.bytes() as u64) + tally.id_bytes
    }

    /// Returns the end of the places from `start` on that are in one partition and fit in a load.
    fn end_of_load(&self, start: usize, most: usize) -> usize {
        let (mut end, mut bytes) = (start + 1, self.bytes(start));
        while end < most && self.partition(end) == self.partition(start) {
            bytes += self.bytes(end);
            if bytes > self.load_bytes {
                break;
            }
            end += 1;
        }
        end
    }

    /// Writes the records of the centers at `load`. `first` is the first place of the section, and `places` has the place
    /// of each center.
    fn write_load(&self, load: Range<usize>, first: usize, places: &[u32], out: &mut ShuffleWriter) -> Result<()> {
        let bytes: u64 = load.clone().map(|place| self.bytes(place)).sum();
        if bytes == 0 {
            return Ok(());
        }
        let partition = self.partition(load.start);
        let mut encoded = Vec::new();
        let encode = |record: &Record<'_>, encoded: &mut Vec<u8>| {
            encoded.clear();
            encoded.extend_from_slice(RecordHead::new(record.center, record.row, record.id).as_bytes());
            encoded.extend_from_slice(record.vector);
            encoded.extend_from_slice(record.id);
        };
        if load.len() == 1 {
            // The records of one center are in order already, so they need no memory.
            let mut pushed = Ok(());
            return self.records.read(partition, |records| {
                Record::each(records, self.vectors, |record| {
                    if pushed.is_ok() && places[record.center as usize] as usize == load.start {
                        encode(record, &mut encoded);
                        pushed = out.push(load.start - first, &encoded);
                    }
                });
                std::mem::replace(&mut pushed, Ok(()))
            });
        }
        // Each center has a range of the buffer, which its records fill in the order in which they arrived.
        let mut sorted = vec![0; bytes as usize];
        let mut ends = Vec::with_capacity(load.len());
        ends.extend(load.clone().scan(0, |end, place| {
            let start = *end;
            *end += self.bytes(place) as usize;
            Some(start)
        }));
        self.records.read(partition, |records| {
            Record::each(records, self.vectors, |record| {
                let place = places[record.center as usize] as usize;
                if load.contains(&place) {
                    encode(record, &mut encoded);
                    let end = &mut ends[place - load.start];
                    sorted[*end..*end + encoded.len()].copy_from_slice(&encoded);
                    *end += encoded.len();
                }
            });
            Ok(())
        })?;
        let mut rest = &sorted[..];
        for place in load {
            let (of_center, others) = rest.split_at(self.bytes(place) as usize);
            rest = others;
            Record::each_encoded(of_center, self.vectors, |record| out.push(place - first, record))?;
        }
        Ok(())
    }
}
