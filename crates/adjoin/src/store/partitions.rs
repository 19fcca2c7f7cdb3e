//! Records sorted into partitions as they come, and read back partition by partition: in memory as far as a grant
//! reaches, the rest in one temporary file. What is read back does not depend on the grant.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use adjoin_device::{ReadFile, WRITE_BUFFER_BYTES, WriteFile};

use crate::context::Context;
use crate::error::Result;
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
    /// Where a folder for the file is made, and for what.
    at: PathBuf,
    name: &'static str,
    /// The file, once it can be read.
    file: Option<Arc<dyn ReadFile>>,
    /// What the file lies in, where something had to go there; nobody else writes to it.
    folder: Option<OwnFolder>,
    partitions: Vec<Partition>,
    /// Bytes written to it.
    spilled: u64,
}

#[derive(Default)]
struct Partition {
    /// Places of the blocks in the file, in order.
    written: Vec<(u64, usize)>,
    /// The blocks behind those.
    held: Vec<Vec<u8>>,
}

/// Partitions that are being filled.
pub(crate) struct Partitions {
    sizes: PartitionSizes,
    records: Records,
    writer: Option<Box<dyn WriteFile>>,
    blocks_held: u64,
    /// Blocks that were written, empty again.
    spare: Vec<Vec<u8>>,
}

impl Partitions {
    /// Empty partitions; what does not fit goes to a folder of its own inside `at`, removed with the records, whose
    /// name says that it is for `name`.
    pub(crate) fn new(context: &Context, at: &Path, name: &'static str, sizes: PartitionSizes) -> Self {
        let partitions = (0..sizes.partitions).map(|_| Partition::default()).collect();
        let (context, at) = (context.clone(), at.to_owned());
        let records = Records { context, at, name, file: None, folder: None, partitions, spilled: 0 };
        Self { sizes, records, writer: None, blocks_held: 0, spare: Vec::new() }
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
            None => {
                let device = &records.context.device;
                let folder = OwnFolder::create(device, &records.at, records.name)?;
                let folder = records.folder.insert(folder);
                self.writer.insert(device.create(&folder.path().join(RECORDS_FILE))?)
            }
        };
        let fullest = records.partitions.iter_mut().max_by_key(|partition| partition.held.len());
        let partition = fullest.expect("there is at least one partition");
        for mut block in partition.held.drain(..) {
            file.append(&block)?;
            partition.written.push((records.spilled, block.len()));
            records.spilled += block.len() as u64;
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
            let folder = self.records.folder.as_ref().expect("what is written to lies in it");
            self.records.file = Some(self.records.context.device.open(&folder.path().join(RECORDS_FILE))?);
        }
        Ok(self.records)
    }
}

impl Records {
    /// Hands the records of a partition to `take`, whole ones and many at once, in the order of pushing.
    ///
    /// # Errors
    /// Where the disk or `take` fails.
    pub(crate) fn read(&self, partition: usize, mut take: impl FnMut(&[u8]) -> Result<()>) -> Result<()> {
        let Partition { written, held } = &self.partitions[partition];
        let mut block = Vec::new();
        for &(offset, bytes) in written {
            block.resize(bytes, 0);
            self.file.as_ref().expect("what was written can be read").read_at(offset, &mut block)?;
            take(&block)?;
        }
        held.iter().try_for_each(|block| take(block))
    }

    /// Bytes of the records of a partition.
    pub(crate) fn bytes(&self, partition: usize) -> u64 {
        let Partition { written, held } = &self.partitions[partition];
        let written: usize = written.iter().map(|&(_, bytes)| bytes).sum();
        (written + held.iter().map(Vec::len).sum::<usize>()) as u64
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
