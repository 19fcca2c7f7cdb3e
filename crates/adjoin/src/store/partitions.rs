//! Sorts records into partitions as they are pushed, and reads them back partition by partition. Records are held in
//! memory up to a limit; the rest is written to a temporary file. The limit does not affect the records read back.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use adjoin_device::{ReadFile, WRITE_BUFFER_BYTES, WriteFile};

use serde::{Deserialize, Serialize};
use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::format;
use crate::base::checkpoint::{self, Checkpoint};
use crate::base::context::Context;
use crate::base::error::{Error, Result};
use crate::base::locks::OwnFolder;

/// Largest block: long enough for a disk to read at its full rate.
pub(crate) const BLOCK_BYTES_MAX: u64 = 1 << 20;
/// Smallest block that is worth a request.
const BLOCK_BYTES_MIN: u64 = 8 << 10;

/// Name of the file of records that did not fit in memory.
const RECORDS_FILE: &str = "records";

/// Number of partitions and their memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PartitionSizes {
    pub(crate) partitions: usize,
    /// Bytes of all blocks in memory.
    memory: u64,
    block: u64,
}

impl PartitionSizes {
    /// Returns sizes for about `partitions` partitions within `memory` bytes; fewer if the memory is too small.
    pub(crate) fn within(memory: u64, partitions: u64) -> Self {
        let memory = memory.max(Self::least()) - WRITE_BUFFER_BYTES as u64;
        // Twice as many blocks as partitions, so that partitions that fill faster have several blocks to write at once.
        let partitions = partitions.clamp(1, memory / BLOCK_BYTES_MIN / 2);
        let block = (memory / partitions / 2).clamp(BLOCK_BYTES_MIN, BLOCK_BYTES_MAX);
        Self { partitions: partitions as usize, memory, block }
    }

    /// Returns the bytes of all blocks in memory and of the write buffer.
    pub(crate) fn memory_bytes(self) -> u64 {
        self.memory + WRITE_BUFFER_BYTES as u64
    }

    /// Returns sizes for exactly `partitions` partitions in the same memory, if they fit.
    pub(crate) fn of(self, partitions: usize) -> Option<Self> {
        let sizes = Self::within(self.memory_bytes(), partitions as u64);
        (sizes.partitions == partitions).then_some(sizes)
    }

    /// Returns the least memory for one partition.
    pub(crate) fn least() -> u64 {
        Self::least_for(1)
    }

    /// Returns the least memory for `partitions` partitions.
    pub(crate) fn least_for(partitions: u64) -> u64 {
        WRITE_BUFFER_BYTES as u64 + 2 * partitions * BLOCK_BYTES_MIN
    }
}

/// Records by partition, in the order in which they were pushed.
pub(crate) struct Records {
    context: Context,
    place: Place,
    /// The files, once they can be read: one, or one per checkpoint.
    files: Vec<Arc<dyn ReadFile>>,
    partitions: Vec<Partition>,
    /// Bytes written to the files.
    spilled: u64,
}

/// Destination of records that do not fit in memory.
enum Place {
    /// One file in a private folder inside `at`. The folder is created on first use, with `name` in its name, and no
    /// other run writes to it.
    Temporary { at: PathBuf, name: &'static str, folder: Option<OwnFolder> },
    /// Files in a folder that outlives the run.
    Checkpoint(PathBuf),
}

#[derive(Default)]
struct Partition {
    /// Blocks in the files, in order.
    written: Vec<Block>,
    /// Later blocks, still in memory.
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

/// What another run must know of a file of checkpointed records.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(crate) struct BlocksCheckpoint {
    /// Length of the file that lists its blocks.
    list_bytes: u64,
}

/// A block in such a list.
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct ListedBlock {
    partition: U32,
    bytes: U32,
    checksum: U64,
}

/// Blocks per frame of such a list.
const BLOCKS_A_FRAME: usize = 16 << 10;

/// Partitions that are being filled.
pub(crate) struct Partitions {
    sizes: PartitionSizes,
    records: Records,
    writer: Option<Box<dyn WriteFile>>,
    /// Bytes in the file that is being written.
    written: u64,
    /// Blocks in that file, in order, if it belongs to a checkpoint.
    listed: Vec<ListedBlock>,
    blocks_held: u64,
    /// Bytes of the blocks that are held, and of the spare ones.
    allocated: u64,
    /// Blocks of the usual size that were written and can be reused.
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
    /// Creates empty partitions. Records that do not fit go to a private folder inside `at`, with `name` in its name.
    /// It is removed with the records.
    pub(crate) fn new(context: &Context, at: &Path, name: &'static str, sizes: PartitionSizes) -> Self {
        Self::at(context, Place::Temporary { at: at.to_owned(), name, folder: None }, sizes)
    }

    fn at(context: &Context, place: Place, sizes: PartitionSizes) -> Self {
        let partitions = (0..sizes.partitions).map(|_| Partition::default()).collect();
        let records = Records { context: context.clone(), place, files: Vec::new(), partitions, spilled: 0 };
        let (listed, spare) = (Vec::new(), Vec::new());
        Self { sizes, records, writer: None, written: 0, listed, blocks_held: 0, allocated: 0, spare }
    }

    /// Opens partitions with the records of checkpoints. All records go to files that outlive the run.
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

    /// Makes all records durable that were pushed since the last call, in file `number`. Returns `None` if there are
    /// none.
    ///
    /// # Errors
    /// Fails if the device refuses.
    pub(crate) fn persist<S>(&mut self, kept: &Checkpoint<S>, number: usize) -> Result<Option<BlocksCheckpoint>> {
        // Including blocks that are not full: the next run starts with nothing in memory.
        while self.blocks_held > 0 {
            self.spill()?;
        }
        let Some(mut file) = self.writer.take() else { return Ok(None) };
        // The list must not name blocks that a loss of power could still remove.
        file.sync()?;
        drop(file);
        let mut list = kept.create(&list_file(number))?;
        for blocks in self.listed.chunks(BLOCKS_A_FRAME) {
            list.append(blocks.as_bytes())?;
        }
        // The state names the list once both files are durable; until then the earlier checkpoint counts.
        let list_bytes = list.finish()?;
        self.listed.clear();
        self.records.files.push(kept.open_whole(&kept_file(number), self.written)?);
        self.written = 0;
        Ok(Some(BlocksCheckpoint { list_bytes }))
    }

    /// Appends a record, given in pieces, to a partition.
    ///
    /// # Errors
    /// Fails if the disk refuses.
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

    /// Returns an empty block for a record of `bytes` bytes, and writes others if memory does not hold it too. A record
    /// that is longer than a block gets one of its own length.
    fn empty_block(&mut self, bytes: u64) -> Result<Vec<u8>> {
        let PartitionSizes { memory, block, .. } = self.sizes;
        let size = bytes.max(block);
        while size > block || self.spare.is_empty() {
            // If nothing else is held, a record may take more than the memory: it must be somewhere.
            if self.allocated + size <= memory || self.allocated == 0 {
                let new = Vec::with_capacity(size as usize);
                self.allocated += new.capacity() as u64;
                return Ok(new);
            }
            // A block of unusual size needs memory that spare blocks occupy.
            match self.spare.pop() {
                Some(spare) => self.allocated -= spare.capacity() as u64,
                None => self.spill()?,
            }
        }
        Ok(self.spare.pop().expect("the loop ended with a spare block"))
    }

    /// Writes the blocks of the partition with the most blocks in memory.
    fn spill(&mut self) -> Result<()> {
        let records = &mut self.records;
        let file = match &mut self.writer {
            Some(file) => file,
            none => none.insert(records.begin_file()?),
        };
        let is_kept = matches!(records.place, Place::Checkpoint(_));
        // The fullest partition frees most memory, and its blocks are read back in long runs.
        let fullest = (0..).zip(&mut records.partitions).max_by_key(|(_, partition)| partition.held.len());
        let (number, partition) = fullest.expect("there is at least one partition");
        for mut block in partition.held.drain(..) {
            file.append(&block)?;
            let (bytes, checksum) = (block.len() as u32, is_kept.then(|| format::checksum(&block)));
            // The file gets its place in `files` when it is complete, so its number is known already.
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
            // Its capacity is reused, so spilling does not allocate while memory is short.
            self.spare.push(block);
        }
        Ok(())
    }

    /// Ends the pushing and returns the records.
    ///
    /// # Errors
    /// Fails if the disk refuses.
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
    /// Returns the path of the next file.
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
            // Created at the first spill, so a build that fits in memory creates no folder.
            *folder = Some(OwnFolder::create(device, at, name)?);
        }
        Ok(device.create(&self.file_path())?)
    }

    /// Passes the records of a partition to `take` in the order in which they were pushed. Each call gets many whole
    /// records.
    ///
    /// # Errors
    /// Fails if the disk or `take` fails, or a checkpoint is damaged.
    pub(crate) fn read(&self, partition: usize, mut take: impl FnMut(&[u8]) -> Result<()>) -> Result<()> {
        let Partition { written, held } = &self.partitions[partition];
        let mut block = Vec::new();
        for &Block { file, bytes, offset, checksum } in written {
            block.resize(bytes as usize, 0);
            self.files[file as usize].read_at(offset, &mut block)?;
            if checksum.is_some_and(|checksum| checksum != format::checksum(&block)) {
                return Err(damaged_in(&self.place, file, offset));
            }
            take(&block)?;
        }
        // Blocks in memory are always newer than written ones, because a spill writes all of a partition.
        held.iter().try_for_each(|block| take(block))
    }

    /// Returns the number of partitions.
    pub(crate) fn count(&self) -> usize {
        self.partitions.len()
    }

    /// Returns the bytes of the records of a partition.
    pub(crate) fn bytes(&self, partition: usize) -> u64 {
        let Partition { written, held } = &self.partitions[partition];
        let written: u64 = written.iter().map(|block| u64::from(block.bytes)).sum();
        written + held.iter().map(Vec::len).sum::<usize>() as u64
    }

    /// Returns the bytes of the blocks in memory.
    pub(crate) fn held_bytes(&self) -> u64 {
        self.partitions.iter().flat_map(|partition| &partition.held).map(|block| block.capacity() as u64).sum()
    }

    /// Returns the bytes written to files.
    pub(crate) fn spilled(&self) -> u64 {
        self.spilled
    }
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
    fn partition_sizes_fit_the_memory() {
        for (memory, wanted) in [(0, 1), (0, 1000), (20 << 20, 79), (1 << 40, 3)] {
            let sizes = PartitionSizes::within(memory, wanted);
            assert!(sizes.partitions >= 1 && sizes.partitions as u64 <= wanted);
            assert!(sizes.block * 2 * sizes.partitions as u64 <= sizes.memory || sizes.block == BLOCK_BYTES_MIN);
            assert!(sizes.memory + WRITE_BUFFER_BYTES as u64 <= memory.max(PartitionSizes::least()));
        }
    }
}
