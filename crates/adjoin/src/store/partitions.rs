//! Records sorted into partitions as they come, and read back partition by partition: in memory as far as a grant
//! reaches, the rest in one temporary file. What is read back does not depend on the grant.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use adjoin_device::{ReadFile, WRITE_BUFFER_BYTES, WriteFile};

use serde::{Deserialize, Serialize};
use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::format;
use crate::context::Context;
use crate::error::{Error, Result};
use crate::kept::{self, Kept};
use crate::locks::OwnFolder;

/// Largest block: long enough for a disk to read at its full rate.
pub(crate) const BLOCK_BYTES_MAX: u64 = 1 << 20;
/// Smallest block that is worth a request.
const BLOCK_BYTES_MIN: u64 = 8 << 10;

/// The file of what did not fit.
const RECORDS_FILE: &str = "records";

/// How many partitions, and what they may hold in memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PartitionSizes {
    pub(crate) partitions: usize,
    /// Bytes of all blocks in memory.
    memory: u64,
    block: u64,
}

impl PartitionSizes {
    /// Sizes for about `partitions` partitions within `memory` bytes; fewer where the memory is too small for as many.
    pub(crate) fn within(memory: u64, partitions: u64) -> Self {
        let memory = memory.max(Self::least()) - WRITE_BUFFER_BYTES as u64;
        // Twice as many blocks as partitions, so that those which fill faster have more than one to write at once.
        let partitions = partitions.clamp(1, memory / BLOCK_BYTES_MIN / 2);
        let block = (memory / partitions / 2).clamp(BLOCK_BYTES_MIN, BLOCK_BYTES_MAX);
        Self { partitions: partitions as usize, memory, block }
    }

    /// Bytes of all blocks in memory, and of what is being written.
    pub(crate) fn memory_bytes(self) -> u64 {
        self.memory + WRITE_BUFFER_BYTES as u64
    }

    /// The same for exactly so many partitions, if the memory has room for as many.
    pub(crate) fn of(self, partitions: usize) -> Option<Self> {
        let sizes = Self::within(self.memory_bytes(), partitions as u64);
        (sizes.partitions == partitions).then_some(sizes)
    }

    /// The least memory with which there can be a partition.
    pub(crate) fn least() -> u64 {
        Self::least_for(1)
    }

    /// The least memory with which there can be so many.
    pub(crate) fn least_for(partitions: u64) -> u64 {
        WRITE_BUFFER_BYTES as u64 + 2 * partitions * BLOCK_BYTES_MIN
    }
}

/// Records, partition by partition, each in the order in which it was pushed.
pub(crate) struct Records {
    context: Context,
    place: Place,
    /// The files, once they can be read: one, or one for each time that records were kept.
    files: Vec<Arc<dyn ReadFile>>,
    partitions: Vec<Partition>,
    /// Bytes written to them.
    spilled: u64,
}

/// Where what does not stay in memory goes.
enum Place {
    /// To one file in a folder of its own inside `at`, made for `name` when something has to go there; nobody else writes to it.
    Temporary { at: PathBuf, name: &'static str, folder: Option<OwnFolder> },
    /// To files in a folder that outlives the run.
    Kept(PathBuf),
}

#[derive(Default)]
struct Partition {
    /// The blocks in the files, in order.
    written: Vec<Block>,
    /// The blocks behind those.
    held: Vec<Vec<u8>>,
}

/// A block in a file.
#[derive(Clone, Copy)]
struct Block {
    file: u32,
    bytes: u32,
    offset: u64,
    /// Of one that is kept.
    checksum: Option<u64>,
}

/// What another run is to know of a file of kept records.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(crate) struct KeptBlocks {
    /// Bytes of the file that lists its blocks.
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

/// Blocks of a frame of such a list.
const BLOCKS_A_FRAME: usize = 16 << 10;

/// Partitions that are being filled.
pub(crate) struct Partitions {
    sizes: PartitionSizes,
    records: Records,
    writer: Option<Box<dyn WriteFile>>,
    /// Bytes in the file that is written.
    written: u64,
    /// What is in it, in order, where it is kept.
    listed: Vec<ListedBlock>,
    blocks_held: u64,
    /// Blocks that were written, empty again.
    spare: Vec<Vec<u8>>,
}

/// The files of kept records, and of the lists of their blocks.
fn kept_file(number: usize) -> String {
    format!("rows-{number}")
}

fn list_file(number: usize) -> String {
    format!("blocks-{number}")
}

impl Partitions {
    /// Empty partitions; what does not fit goes to a folder of its own inside `at`, removed with the records, whose
    /// name says that it is for `name`.
    pub(crate) fn new(context: &Context, at: &Path, name: &'static str, sizes: PartitionSizes) -> Self {
        Self::at(context, Place::Temporary { at: at.to_owned(), name, folder: None }, sizes)
    }

    fn at(context: &Context, place: Place, sizes: PartitionSizes) -> Self {
        let partitions = (0..sizes.partitions).map(|_| Partition::default()).collect();
        let records = Records { context: context.clone(), place, files: Vec::new(), partitions, spilled: 0 };
        Self { sizes, records, writer: None, written: 0, listed: Vec::new(), blocks_held: 0, spare: Vec::new() }
    }

    /// Partitions with records that were kept; all go to files that outlive the run.
    ///
    /// # Errors
    /// Where what was kept is not as written, or the device fails.
    pub(crate) fn kept<S>(
        context: &Context,
        kept: &Kept<S>,
        sizes: PartitionSizes,
        files: &[KeptBlocks],
    ) -> Result<Self> {
        let mut partitions = Self::at(context, Place::Kept(kept.path("")), sizes);
        let records = &mut partitions.records;
        for (number, &KeptBlocks { list_bytes }) in files.iter().enumerate() {
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

    /// How many partitions there are.
    pub(crate) fn count(&self) -> usize {
        self.sizes.partitions
    }

    /// Makes all records durable that were pushed since the last call, in file `number`; none where there are none.
    ///
    /// # Errors
    /// Where the device refuses.
    pub(crate) fn persist<S>(&mut self, kept: &Kept<S>, number: usize) -> Result<Option<KeptBlocks>> {
        while self.blocks_held > 0 {
            self.spill()?;
        }
        let Some(mut file) = self.writer.take() else { return Ok(None) };
        file.sync()?;
        drop(file);
        let mut list = kept.create(&list_file(number))?;
        for blocks in self.listed.chunks(BLOCKS_A_FRAME) {
            list.append(blocks.as_bytes())?;
        }
        let list_bytes = list.finish()?;
        self.listed.clear();
        self.records.files.push(kept.open_whole(&kept_file(number), self.written)?);
        self.written = 0;
        Ok(Some(KeptBlocks { list_bytes }))
    }

    /// Appends a record, given in pieces, to a partition.
    ///
    /// # Errors
    /// Where the disk refuses.
    pub(crate) fn push(&mut self, partition: usize, pieces: &[&[u8]]) -> Result<()> {
        let bytes: usize = pieces.iter().map(|piece| piece.len()).sum();
        let fits = |block: &Vec<u8>| block.len() + bytes <= self.sizes.block as usize;
        if !self.records.partitions[partition].held.last().is_some_and(fits) {
            if (self.blocks_held + 1) * self.sizes.block > self.sizes.memory {
                self.spill()?;
            }
            // A record longer than a block makes its block longer.
            let new = || Vec::with_capacity(bytes.max(self.sizes.block as usize));
            let block = self.spare.pop().unwrap_or_else(new);
            self.records.partitions[partition].held.push(block);
            self.blocks_held += 1;
        }
        let block = self.records.partitions[partition].held.last_mut().expect("there is one now");
        pieces.iter().for_each(|piece| block.extend_from_slice(piece));
        Ok(())
    }

    /// Writes the blocks of the partition that holds most.
    fn spill(&mut self) -> Result<()> {
        let records = &mut self.records;
        let file = match &mut self.writer {
            Some(file) => file,
            none => none.insert(records.begin_file()?),
        };
        let is_kept = matches!(records.place, Place::Kept(_));
        let fullest = (0..).zip(&mut records.partitions).max_by_key(|(_, partition)| partition.held.len());
        let (number, partition) = fullest.expect("there is at least one partition");
        for mut block in partition.held.drain(..) {
            file.append(&block)?;
            let (bytes, checksum) = (block.len() as u32, is_kept.then(|| format::checksum(&block)));
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
            block.clear();
            self.spare.push(block);
        }
        Ok(())
    }

    /// Ends the pushing.
    ///
    /// # Errors
    /// Where the disk refuses.
    pub(crate) fn finish(mut self) -> Result<Records> {
        if let Some(mut file) = self.writer.take() {
            file.sync()?; // what was written is read past the page cache
            drop(file);
            self.records.files.push(self.records.context.device.open(&self.records.file_path())?);
        }
        Ok(self.records)
    }
}

impl Records {
    /// Where the next file goes.
    fn file_path(&self) -> PathBuf {
        match &self.place {
            Place::Temporary { folder, .. } => {
                folder.as_ref().expect("what is written to lies in it").path().join(RECORDS_FILE)
            }
            Place::Kept(folder) => folder.join(kept_file(self.files.len())),
        }
    }

    fn begin_file(&mut self) -> Result<Box<dyn WriteFile>> {
        let device = &self.context.device;
        if let Place::Temporary { at, name, folder } = &mut self.place {
            *folder = Some(OwnFolder::create(device, at, name)?);
        }
        Ok(device.create(&self.file_path())?)
    }

    /// Hands the records of a partition to `take`, whole ones and many at once, in the order of pushing.
    ///
    /// # Errors
    /// Where the disk or `take` fails, or what was kept is not as written.
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
        held.iter().try_for_each(|block| take(block))
    }

    /// How many partitions there are.
    pub(crate) fn count(&self) -> usize {
        self.partitions.len()
    }

    /// Bytes of the records of a partition.
    pub(crate) fn bytes(&self, partition: usize) -> u64 {
        let Partition { written, held } = &self.partitions[partition];
        let written: u64 = written.iter().map(|block| u64::from(block.bytes)).sum();
        written + held.iter().map(Vec::len).sum::<usize>() as u64
    }

    /// Bytes of the blocks in memory.
    pub(crate) fn held_bytes(&self) -> u64 {
        self.partitions.iter().flat_map(|partition| &partition.held).map(|block| block.capacity() as u64).sum()
    }

    /// Bytes that went to the file.
    pub(crate) fn spilled(&self) -> u64 {
        self.spilled
    }
}

/// The error of a kept block that is not as written.
fn damaged_in(place: &Place, file: u32, offset: u64) -> Error {
    let folder = if let Place::Kept(folder) = place { folder.as_path() } else { Path::new("") };
    kept::damaged(&folder.join(kept_file(file as usize)), &format!("at byte {offset}"))
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
    fn what_comes_back_does_not_depend_on_the_memory() {
        for wanted in [1, 4] {
            let (all, spilled) = contents(64 << 20, wanted);
            assert_eq!(spilled, 0);
            let (same, spilled) = contents(0, wanted);
            assert!(all == same && spilled > 400_000);
        }
    }

    #[test]
    fn sizes_stay_within_the_memory() {
        for (memory, wanted) in [(0, 1), (0, 1000), (20 << 20, 79), (1 << 40, 3)] {
            let sizes = PartitionSizes::within(memory, wanted);
            assert!(sizes.partitions >= 1 && sizes.partitions as u64 <= wanted);
            assert!(sizes.block * 2 * sizes.partitions as u64 <= sizes.memory || sizes.block == BLOCK_BYTES_MIN);
            assert!(sizes.memory + WRITE_BUFFER_BYTES as u64 <= memory.max(PartitionSizes::least()));
        }
    }
}
