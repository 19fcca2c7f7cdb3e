//! Sorts records into partitions as they are pushed, and reads them back by partition. Records are held in memory up
//! to a limit. The rest is written to temporary files. The limit does not affect which records are read back, or their
//! order.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use adjoin_device::{ReadFile, WRITE_BUFFER_BYTES, WriteFile};

use serde::{Deserialize, Serialize};
use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::format;
use super::record_runs::{AHEAD_BYTES_MAX, BlockRun, read_runs};
use crate::base::checkpoint::{self, Checkpoint};
use crate::base::context::Context;
use crate::base::error::{Error, Result};
use crate::base::locks::OwnFolder;

/// Maximum size of a block, in bytes. It is long enough for a disk to read at its full rate.
pub(crate) const BLOCK_BYTES_MAX: u64 = 1 << 20;
/// Minimum size of a block, in bytes. Smaller blocks are not worth a request to the disk.
const BLOCK_BYTES_MIN: u64 = 8 << 10;

/// Maximum size of several blocks that are read at once, in bytes.
const READ_BYTES_MAX: u64 = 128 << 10;

/// Name of the file for records that do not fit in memory.
const RECORDS_FILE: &str = "records";

/// Number of partitions, and the memory that they may use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PartitionSizes {
    pub(crate) partitions: usize,
    /// Maximum number of bytes of all blocks in memory.
    memory: u64,
    block: u64,
}

impl PartitionSizes {
    /// Returns sizes for about `partitions` partitions within `memory` bytes. If the memory is too small, there are
    /// fewer partitions.
    pub(crate) fn within(memory: u64, partitions: u64) -> Self {
        let memory = memory.max(Self::least()) - WRITE_BUFFER_BYTES as u64;
        // There is memory for twice as many blocks as partitions. So a partition that fills fast has several blocks to
        // write at once.
        let partitions = partitions.clamp(1, memory / BLOCK_BYTES_MIN / 2);
        let block = (memory / partitions / 2).clamp(BLOCK_BYTES_MIN, BLOCK_BYTES_MAX);
        Self { partitions: partitions as usize, memory, block }
    }

    /// Returns the bytes of all blocks in memory and of the write buffer.
    pub(crate) fn memory_bytes(self) -> u64 {
        self.memory + WRITE_BUFFER_BYTES as u64
    }

    /// Returns sizes for exactly `partitions` partitions in the same memory. Returns `None` if they do not fit.
    pub(crate) fn of(self, partitions: usize) -> Option<Self> {
        let sizes = Self::within(self.memory_bytes(), partitions as u64);
        (sizes.partitions == partitions).then_some(sizes)
    }

    /// Returns the minimum memory for one partition, in bytes.
    pub(crate) fn least() -> u64 {
        Self::least_for(1)
    }

    /// Returns the minimum memory for `partitions` partitions, in bytes.
    pub(crate) fn least_for(partitions: u64) -> u64 {
        WRITE_BUFFER_BYTES as u64 + 2 * partitions * BLOCK_BYTES_MIN
    }
}

/// Records by partition. Within a partition, they are in the order in which they were pushed.
pub(crate) struct Records {
    context: Context,
    place: Place,
    /// The complete files: one in total, or one per checkpoint.
    files: Vec<Arc<dyn ReadFile>>,
    partitions: Vec<Partition>,
    /// Bytes written to the files.
    spilled: u64,
}

/// Destination of records that do not fit in memory.
enum Place {
    /// One file in a private folder inside `at`, to which no other run writes. The folder is created when it is first
    /// needed. Its name contains `name`.
    Temporary { at: PathBuf, name: &'static str, folder: Option<OwnFolder> },
    /// Files in a folder that outlives the run.
    Checkpoint(PathBuf),
}

#[derive(Default)]
struct Partition {
    /// Blocks in the files, in order.
    written: Vec<Block>,
    /// Blocks in memory. Their records were pushed after those in `written`.
    held: Vec<Vec<u8>>,
}

/// A block in a file.
#[derive(Clone, Copy)]
struct Block {
    file: u32,
    bytes: u32,
    offset: u64,
    /// Present if the block belongs to a checkpoint.
    checksum: Option<u64>,
}

/// Facts about a file of checkpointed records that another run needs.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(crate) struct BlocksCheckpoint {
    /// Length of the file that lists the blocks.
    list_bytes: u64,
}

/// Entry for one block in the list of blocks of a checkpoint.
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct ListedBlock {
    partition: U32,
    bytes: U32,
    checksum: U64,
}

/// Number of blocks per frame of the list of blocks.
const BLOCKS_A_FRAME: usize = 16 << 10;

/// Partitions that are being filled.
pub(crate) struct Partitions {
    sizes: PartitionSizes,
    records: Records,
    writer: Option<Box<dyn WriteFile>>,
    /// Bytes in the file that is being written.
    written: u64,
    /// Blocks in the file that is being written, in order. Empty if the file does not belong to a checkpoint.
    listed: Vec<ListedBlock>,
    blocks_held: u64,
    /// Bytes allocated for blocks that hold records and for spare blocks.
    allocated: u64,
    /// Spare blocks: they have the usual size, were written to the file, and can be reused.
    spare: Vec<Vec<u8>>,
}

/// Returns the name of a file of checkpointed records.
fn kept_file(number: usize) -> String {
    format!("rows-{number}")
}

fn list_file(number: usize) -> String {
    format!("blocks-{number}")
}

impl Partitions {
    /// Creates empty partitions. Records that do not fit in memory are written to a private folder inside `at`, with
    /// `name` in its name. The folder is removed with the records.
    pub(crate) fn new(context: &Context, at: &Path, name: &'static str, sizes: PartitionSizes) -> Self {
        Self::at(context, Place::Temporary { at: at.to_owned(), name, folder: None }, sizes)
    }

    fn at(context: &Context, place: Place, sizes: PartitionSizes) -> Self {
        let partitions = (0..sizes.partitions).map(|_| Partition::default()).collect();
        let records = Records { context: context.clone(), place, files: Vec::new(), partitions, spilled: 0 };
        let (listed, spare) = (Vec::new(), Vec::new());
        Self { sizes, records, writer: None, written: 0, listed, blocks_held: 0, allocated: 0, spare }
    }

    /// Opens partitions with the records of `files`, the files of a checkpoint. New records are also written to files
    /// that outlive the run.
    ///
    /// # Errors
    /// Fails if a checkpoint is damaged or the device fails.
    pub(crate) fn kept<S>(
        context: &Context,
        kept: &Checkpoint<S>,
        sizes: PartitionSizes,
        files: &[BlocksCheckpoint],
    ) -> Result<Self> {
        let mut partitions = Self::at(context, Place::Checkpoint(kept.path("")), sizes);
        let records = &mut partitions.records;
        for (number, &BlocksCheckpoint { list_bytes }) in files.iter().enumerate() {
            let mut list = kept.read(&list_file(number), list_bytes)?;
            let mut offset = 0;
            while let Some(frame) = list.next()? {
                for block in frame.chunks_exact(size_of::<ListedBlock>()).flat_map(ListedBlock::ref_from_bytes) {
                    let (file, bytes, checksum) = (number as u32, block.bytes.get(), Some(block.checksum.get()));
                    let Some(partition) = records.partitions.get_mut(block.partition.get() as usize) else {
                        return Err(list.damaged());
                    };
                    partition.written.push(Block { file, bytes, offset, checksum });
                    offset += u64::from(bytes);
                }
            }
            let file = kept.open_whole(&kept_file(number), offset)?;
            records.files.push(file);
            records.spilled += offset;
        }
        Ok(partitions)
    }

    /// Returns the number of partitions.
    pub(crate) fn count(&self) -> usize {
        self.sizes.partitions
    }

    /// Makes all records that were pushed since the last call durable, in file number `number`. Returns `None` if
    /// there are no such records.
    ///
    /// # Errors
    /// Fails if a file cannot be written.
    pub(crate) fn persist<S>(&mut self, kept: &Checkpoint<S>, number: usize) -> Result<Option<BlocksCheckpoint>> {
        // This also writes blocks that are not full, since the next run starts with nothing in memory.
        while self.blocks_held > 0 {
            self.spill()?;
        }
        let Some(mut file) = self.writer.take() else { return Ok(None) };
        // The list is written after the sync: it must not name blocks that a power failure could still remove.
        file.sync()?;
        drop(file);
        let mut list = kept.create(&list_file(number))?;
        for blocks in self.listed.chunks(BLOCKS_A_FRAME) {
            list.append(blocks.as_bytes())?;
        }
        // The checkpoint's state names the list only after both files are durable. Until then, the earlier checkpoint
        // is valid.
        let list_bytes = list.finish()?;
        self.listed.clear();
        self.records.files.push(kept.open_whole(&kept_file(number), self.written)?);
        self.written = 0;
        Ok(Some(BlocksCheckpoint { list_bytes }))
    }

    /// Appends a record, given in pieces, to a partition.
    ///
    /// # Errors
    /// Fails if a file cannot be written.
    pub(crate) fn push(&mut self, partition: usize, pieces: &[&[u8]]) -> Result<()> {
        let bytes: usize = pieces.iter().map(|piece| piece.len()).sum();
        let fits = |block: &Vec<u8>| block.len() + bytes <= self.sizes.block as usize;
        if !self.records.partitions[partition].held.last().is_some_and(fits) {
            let block = self.empty_block(bytes as u64)?;
            self.records.partitions[partition].held.push(block);
            self.blocks_held += 1;
        }
        let block = self.records.partitions[partition].held.last_mut().expect("the partition was just given a block");
        pieces.iter().for_each(|piece| block.extend_from_slice(piece));
        Ok(())
    }

    /// Returns an empty block for a record of `bytes` bytes. If memory does not suffice for another block, writes held
    /// blocks to the file first. A record that is longer than a block gets a block of its own length.
    fn empty_block(&mut self, bytes: u64) -> Result<Vec<u8>> {
        let PartitionSizes { memory, block, .. } = self.sizes;
        let size = bytes.max(block);
        while size > block || self.spare.is_empty() {
            // If no other block is allocated, a long record may exceed the limit: it must be held somewhere.
            if self.allocated + size <= memory || self.allocated == 0 {
                let new = Vec::with_capacity(size as usize);
                self.allocated += new.capacity() as u64;
                return Ok(new);
            }
            // A block of unusual size needs memory that spare blocks use, so frees a spare block.
            match self.spare.pop() {
                Some(spare) => self.allocated -= spare.capacity() as u64,
                None => self.spill()?,
            }
        }
        Ok(self.spare.pop().expect("the loop ended with a spare block"))
    }

    /// Writes all blocks of the partition that has the most blocks in memory.
    fn spill(&mut self) -> Result<()> {
        let records = &mut self.records;
        let file = match &mut self.writer {
            Some(file) => file,
            none => none.insert(records.begin_file()?),
        };
        let is_kept = matches!(records.place, Place::Checkpoint(_));
        // Writing the fullest partition frees the most memory, and its blocks are consecutive in the file when they
        // are read.
        let fullest = (0..).zip(&mut records.partitions).max_by_key(|(_, partition)| partition.held.len());
        let (number, partition) = fullest.expect("there is at least one partition");
        for mut block in partition.held.drain(..) {
            file.append(&block)?;
            let (bytes, checksum) = (block.len() as u32, is_kept.then(|| format::checksum(&block)));
            // The file is added to `files` when it is complete, so its number is the current length of `files`.
            partition.written.push(Block { file: records.files.len() as u32, bytes, offset: self.written, checksum });
            let listed = |checksum: u64| ListedBlock {
                partition: U32::new(number),
                bytes: bytes.into(),
                checksum: checksum.into(),
            };
            self.listed.extend(checksum.map(listed));
            self.written += u64::from(bytes);
            records.spilled += u64::from(bytes);
            self.blocks_held -= 1;
            if block.capacity() as u64 > self.sizes.block {
                self.allocated -= block.capacity() as u64;
                continue;
            }
            block.clear();
            // The capacity is reused, so writing blocks does not allocate memory while memory is scarce.
            self.spare.push(block);
        }
        Ok(())
    }

    /// Completes the partitions and returns the records.
    ///
    /// # Errors
    /// Fails if a file cannot be written.
    pub(crate) fn finish(mut self) -> Result<Records> {
        if let Some(mut file) = self.writer.take() {
            file.sync()?; // later reads bypass the page cache
            drop(file);
            self.records.files.push(self.records.context.device.open(&self.records.file_path())?);
        }
        Ok(self.records)
    }
}

impl Records {
    /// Returns the path of the next file to write.
    fn file_path(&self) -> PathBuf {
        match &self.place {
            Place::Temporary { folder, .. } => {
                folder.as_ref().expect("the folder was created before its file").path().join(RECORDS_FILE)
            }
            Place::Checkpoint(folder) => folder.join(kept_file(self.files.len())),
        }
    }

    fn begin_file(&mut self) -> Result<Box<dyn WriteFile>> {
        let device = &self.context.device;
        if let Place::Temporary { at, name, folder } = &mut self.place {
            // The folder is created when the first block is written, so a build that fits in memory creates no folder.
            *folder = Some(OwnFolder::create(device, at, name)?);
        }
        Ok(device.create(&self.file_path())?)
    }

    /// Passes the records of a partition to `take`, in the order in which they were pushed. Each call passes many
    /// complete records.
    ///
    /// # Errors
    /// Fails if a file cannot be read, if `take` fails, or if a checkpoint is damaged.
    pub(crate) fn read(&self, partition: usize, mut take: impl FnMut(&[u8]) -> Result<()>) -> Result<()> {
        let Partition { written, held } = &self.partitions[partition];
        let runs: Vec<&[Block]> = runs(written).collect();
        let to_read = runs.iter().map(|run| BlockRun {
            file: &self.files[run[0].file as usize],
            offset: run[0].offset,
            bytes: run.iter().map(|block| u64::from(block.bytes)).sum(),
        });
        read_runs(&*self.context.device, &to_read.collect::<Vec<_>>(), |run, mut read| {
            runs[run].iter().try_for_each(|&Block { file, bytes, offset, checksum }| {
                let block = read.split_off(..bytes as usize).expect("all blocks were read");
                if checksum.is_some_and(|checksum| checksum != format::checksum(block)) {
                    return Err(damaged_in(&self.place, file, offset));
                }
                take(block)
            })
        })?;
        // Blocks in memory are always newer than written blocks, because a spill writes all blocks of a partition.
        held.iter().try_for_each(|block| take(block))
    }

    /// Returns the number of partitions.
    pub(crate) fn count(&self) -> usize {
        self.partitions.len()
    }

    /// Returns the total size of the records of a partition, in bytes.
    pub(crate) fn bytes(&self, partition: usize) -> u64 {
        let Partition { written, held } = &self.partitions[partition];
        let written: u64 = written.iter().map(|block| u64::from(block.bytes)).sum();
        written + held.iter().map(Vec::len).sum::<usize>() as u64
    }

    /// Returns the allocated size of the blocks in memory, in bytes.
    pub(crate) fn held_bytes(&self) -> u64 {
        self.partitions.iter().flat_map(|partition| &partition.held).map(|block| block.capacity() as u64).sum()
    }

    /// Returns the memory in bytes of a thread that reads.
    pub(crate) fn reading_bytes(&self) -> u64 {
        if self.spilled > 0 { AHEAD_BYTES_MAX } else { 0 }
    }

    /// Returns the bytes written to files.
    pub(crate) fn spilled(&self) -> u64 {
        self.spilled
    }
}

/// Divides blocks into runs that are read at once. A run is a single block, or consecutive blocks of a file with at most
/// `READ_BYTES_MAX` bytes.
fn runs(blocks: &[Block]) -> impl Iterator<Item = &[Block]> {
    let mut bytes = 0;
    blocks.chunk_by(move |block, next| {
        bytes += u64::from(block.bytes);
        let follows = next.file == block.file && next.offset == block.offset + u64::from(block.bytes);
        let continues = follows && bytes + u64::from(next.bytes) <= READ_BYTES_MAX;
        if !continues {
            bytes = 0;
        }
        continues
    })
}

/// Returns the error for a damaged block of a checkpoint.
fn damaged_in(place: &Place, file: u32, offset: u64) -> Error {
    let folder = if let Place::Checkpoint(folder) = place { folder.as_path() } else { Path::new("") };
    checkpoint::damaged(&folder.join(kept_file(file as usize)), &format!("at byte {offset}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn contents(memory: u64, wanted: u64) -> (Vec<Vec<u8>>, u64) {
        let folder = tempfile::tempdir().unwrap();
        let sizes = PartitionSizes { partitions: wanted as usize, ..PartitionSizes::within(memory, wanted) };
        let mut partitions = Partitions::new(&Context::default(), folder.path(), "p", sizes);
        for k in 0u32..60_000 {
            let record = [&k.to_le_bytes()[..], &[7; 9][..k as usize % 9]].concat();
            partitions.push((k * k % 5) as usize % wanted as usize, &[&record[..2], &record[2..]]).unwrap();
        }
        partitions.push(0, &[&vec![3; 300_000]]).unwrap();
        let partitions = partitions.finish().unwrap();
        let all = (0..wanted as usize).map(|k| {
            let mut bytes = Vec::new();
            let take = |block: &[u8]| {
                bytes.extend_from_slice(block);
                Ok(())
            };
            partitions.read(k, take).unwrap();
            bytes
        });
        (all.collect(), partitions.spilled())
    }

    #[test]
    fn partition_contents_do_not_depend_on_memory() {
        for wanted in [1, 4] {
            let (all, spilled) = contents(64 << 20, wanted);
            assert_eq!(spilled, 0);
            let (same, spilled) = contents(0, wanted);
            assert!(all == same && spilled > 400_000);
        }
    }

    #[test]
    fn blocks_that_follow_each_other_are_read_at_once() {
        let block = |(file, offset, bytes): (u32, u64, u32)| Block { file, bytes, offset, checksum: None };
        let large = READ_BYTES_MAX as u32;
        let blocks = [(0, 0, 9), (0, 9, 20), (0, 30, 8), (1, 38, 8), (1, 46, large - 8), (1, 38 + u64::from(large), 1)];
        let blocks = blocks.map(block);
        let of_runs = |blocks: &[Block]| runs(blocks).map(<[Block]>::len).collect::<Vec<_>>();
        assert_eq!(of_runs(&blocks), [2, 1, 2, 1]);
        assert!(of_runs(&[]).is_empty());
        assert_eq!(of_runs(&[block((0, 0, 2 * large)), block((0, 2 * u64::from(large), 1))]), [1, 1]);
    }

    #[test]
    fn many_blocks_are_read_ahead_in_order() {
        let folder = tempfile::tempdir().unwrap();
        let sizes = PartitionSizes::within(0, 1);
        let mut partitions = Partitions::new(&Context::default(), folder.path(), "p", sizes);
        let record = |k: u64| [&k.to_le_bytes()[..], &[k as u8; 5]].concat(); // 13 bytes, so no block is aligned
        (0..300_000).for_each(|k| partitions.push(0, &[&record(k)]).unwrap());
        let records = partitions.finish().unwrap();
        assert!(records.spilled() > 3 << 20 && records.reading_bytes() > 0);
        let (mut next, mut calls) = (0, 0);
        let count = |block: &[u8]| {
            assert!(block.chunks_exact(13).zip(next..).all(|(bytes, k)| bytes == record(k)));
            (next, calls) = (next + block.len() as u64 / 13, calls + 1);
            Ok(())
        };
        records.read(0, count).unwrap();
        assert!(next == 300_000 && calls > 100);
        // An error ends the reads in flight.
        let mut before = 5;
        let stops = |_: &[u8]| {
            before -= 1;
            if before > 0 { Ok(()) } else { Err(Error::cancelled()) }
        };
        assert!(records.read(0, stops).is_err());
    }

    #[test]
    fn partition_sizes_fit_the_memory() {
        for (memory, wanted) in [(0, 1), (0, 1000), (20 << 20, 79), (1 << 40, 3)] {
            let sizes = PartitionSizes::within(memory, wanted);
            assert!(sizes.partitions >= 1 && sizes.partitions as u64 <= wanted);
            assert!(sizes.block * 2 * sizes.partitions as u64 <= sizes.memory || sizes.block == BLOCK_BYTES_MIN);
            assert!(sizes.memory + WRITE_BUFFER_BYTES as u64 <= memory.max(PartitionSizes::least()));
        }
    }
}
