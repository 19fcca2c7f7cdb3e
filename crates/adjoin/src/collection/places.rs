//! Lookup of entries of the long-term index by id. It is a file of pairs of a key and an entry, sorted by key. The
//! first key of each block is held in memory. The key of an integer id is the integer. The key of a text id is a hash,
//! so the text is also compared.
//!
//! A block has 4,096 bytes: a checksum (u64), 340 records of a key (u64) and an entry (u32), and 8 zero bytes. The
//! checksum is the XXH3 of the bytes after it, with the number of the block as seed. Unused records have all bits set.

use std::path::Path;
use std::sync::Arc;

use adjoin_device::{ReadFile, Reservation, WRITE_BUFFER_BYTES};
use xxhash_rust::xxh3::{xxh3_64, xxh3_64_with_seed};

use crate::base::context::Context;
use crate::base::error::{Error, Result};
use crate::index::Index;
use crate::source::{IdKind, Ids};

pub(crate) const BLOCK_BYTES: usize = 4_096;
const CHECKSUM_BYTES: usize = 8;
const RECORD_BYTES: usize = 12;
const RECORDS: usize = 340;
/// Purpose of the memory, for error messages.
const PURPOSE: &str = "the places of ids";

/// A key, and an entry whose id has this key.
type Record = (u64, u32);
const NONE: Record = (u64::MAX, u32::MAX);

/// The open file.
pub(super) struct Places {
    file: Arc<dyn ReadFile>,
    path: std::path::PathBuf,
    /// The first key of each block.
    first: Vec<u64>,
    _memory: Reservation,
}

/// Returns the key of id `k`.
fn key(ids: &Ids, k: usize) -> u64 {
    match ids {
        Ids::Int64(ids) => ids[k].cast_unsigned(),
        Ids::Utf8(ids) => xxh3_64(ids.get(k)),
        Ids::None => 0,
    }
}

/// Returns the key of an id of type `kind`, given its bytes.
fn key_of_bytes(kind: IdKind, id: &[u8]) -> u64 {
    match (kind, id.as_array()) {
        (IdKind::Int64, Some(&id)) => u64::from_le_bytes(id),
        _ => xxh3_64(id),
    }
}

/// Returns the size in bytes of the file for `rows` rows.
pub(super) fn file_bytes(rows: u64) -> u64 {
    rows.div_ceil(RECORDS as u64) * BLOCK_BYTES as u64
}

/// Returns the peak memory in bytes for opening the file of `rows` rows.
pub(super) fn memory_bytes(rows: u64) -> u64 {
    8 * file_bytes(rows).div_ceil(BLOCK_BYTES as u64) + PIECE_BLOCKS * BLOCK_BYTES as u64
}

/// Writes and syncs the lookup file of an index. If memory is short, makes several passes over the ids.
///
/// # Errors
/// If ids cannot be read, memory does not suffice, or the device fails.
pub(super) fn write(context: &Context, index: &Index, path: &Path) -> Result<()> {
    let (rows, kind) = (index.facts().rows, index.facts().ids);
    let least = (WRITE_BUFFER_BYTES + RECORDS * 4 * RECORD_BYTES) as u64;
    let wanted = (rows * 2 * size_of::<Record>() as u64).max(least);
    let memory = context.reserve(wanted.min((context.budget().free() / 2).max(least)), PURPOSE)?;
    // Hashes are spread evenly, integers are not. So a pass does not take a fixed range of keys. It takes as many as
    // fit into memory, starting with the smallest key that no earlier pass took.
    let held =
        (memory.bytes().saturating_sub(WRITE_BUFFER_BYTES as u64) as usize / (2 * size_of::<Record>())).max(RECORDS);
    let mut file = context.device.create(path)?;
    let (mut block, mut number, mut above) = (Vec::with_capacity(BLOCK_BYTES), 0, None);
    let mut left = rows;
    while left > 0 {
        let mut some: Vec<Record> = Vec::with_capacity(2 * held);
        index.each_id(context, &mut |entry, id| {
            let record = (key_of_bytes(kind, id), entry);
            // Records are compared by key and entry, since records with equal keys may be taken in different passes.
            if above.is_none_or(|above| record > above) {
                some.push(record);
                // The buffer is cut back to half its size only when it is full, so the cost per record is constant on
                // average.
                if some.len() == 2 * held {
                    some.select_nth_unstable(held - 1);
                    some.truncate(held);
                }
            }
            Ok(())
        })?;
        some.sort_unstable();
        some.truncate(held);
        above = some.last().copied();
        left -= some.len() as u64;
        for &record in &some {
            push(&mut block, record);
            if block.len() == CHECKSUM_BYTES + RECORDS * RECORD_BYTES {
                end_block(&mut block, &mut number, &mut *file)?;
            }
        }
    }
    if !block.is_empty() {
        while block.len() < CHECKSUM_BYTES + RECORDS * RECORD_BYTES {
            push(&mut block, NONE);
        }
        end_block(&mut block, &mut number, &mut *file)?;
    }
    Ok(file.sync()?)
}

fn push(block: &mut Vec<u8>, record: Record) {
    let (key, entry) = record;
    if block.is_empty() {
        block.resize(CHECKSUM_BYTES, 0);
    }
    block.extend(key.to_le_bytes());
    block.extend(entry.to_le_bytes());
}

fn end_block(block: &mut Vec<u8>, number: &mut u64, file: &mut dyn adjoin_device::WriteFile) -> Result<()> {
    block.resize(BLOCK_BYTES, 0);
    let checksum = xxh3_64_with_seed(&block[CHECKSUM_BYTES..], *number);
    block[..CHECKSUM_BYTES].copy_from_slice(&checksum.to_le_bytes());
    file.append(block)?;
    block.clear();
    *number += 1;
    Ok(())
}

impl Places {
    /// Opens the lookup file of an index, and verifies it by reading all of it.
    ///
    /// # Errors
    /// If it is missing or damaged, or memory does not suffice.
    pub(super) fn open(context: &Context, index: &Index, path: &Path) -> Result<Self> {
        let file = context.device.open(path)?;
        let blocks = index.facts().rows.div_ceil(RECORDS as u64);
        let memory = context.reserve_between_runs(8 * blocks, PURPOSE)?;
        let mut places = Self { file, path: path.to_owned(), first: Vec::new(), _memory: memory };
        if places.file.len() != file_bytes(index.facts().rows) {
            return Err(places.damaged("its length does not match its index"));
        }
        let _piece = context.reserve_between_runs(PIECE_BLOCKS * BLOCK_BYTES as u64, PURPOSE)?;
        let mut piece = vec![0; PIECE_BLOCKS as usize * BLOCK_BYTES];
        for start in (0..blocks).step_by(PIECE_BLOCKS as usize) {
            context.cancel.check()?;
            let some = (blocks - start).min(PIECE_BLOCKS) as usize;
            places.file.read_at(start * BLOCK_BYTES as u64, &mut piece[..some * BLOCK_BYTES])?;
            for (number, block) in (start..).zip(piece[..some * BLOCK_BYTES].chunks_exact(BLOCK_BYTES)) {
                let first = places.checked(number, block)?.next().map_or(u64::MAX, |(key, _)| key);
                places.first.push(first);
            }
        }
        Ok(places)
    }

    fn damaged(&self, why: &str) -> Error {
        Error::corrupt(format!("{}: {why}; restore the folder from a backup", self.path.display()))
    }

    /// Verifies the checksum of a block, and returns its records.
    fn checked<'b>(&self, number: u64, block: &'b [u8]) -> Result<impl Iterator<Item = Record> + 'b> {
        let checksum = xxh3_64_with_seed(&block[CHECKSUM_BYTES..], number);
        if block[..CHECKSUM_BYTES] != checksum.to_le_bytes() {
            return Err(self.damaged(&format!("block {number}: checksum mismatch")));
        }
        let (records, _) = block[CHECKSUM_BYTES..].as_chunks::<RECORD_BYTES>();
        Ok(records[..RECORDS].iter().map(|record| {
            let (key, entry) = record.split_at(size_of::<u64>());
            let number = |bytes: &[u8]| bytes.iter().rev().fold(0, |number, &byte| number << 8 | u64::from(byte));
            (number(key), number(entry) as u32)
        }))
    }

    /// Returns the entry of each id; `None` for an id that is not in the index. If a block holds several of the ids,
    /// it is read once.
    ///
    /// # Errors
    /// If blocks or ids cannot be read, or are damaged.
    pub(super) fn entries(&self, index: &Index, ids: &Ids) -> Result<Vec<Option<u32>>> {
        let mut order: Vec<(u64, usize)> = (0..ids.len()).map(|k| (key(ids, k), k)).collect();
        order.sort_unstable();
        let (mut found, mut block) = (vec![None; ids.len()], None);
        for (key, k) in order {
            for candidate in self.candidates(key, &mut block)? {
                if self.is_of(index, candidate, ids, k)? {
                    found[k] = Some(candidate);
                    break;
                }
            }
        }
        Ok(found)
    }

    /// Returns whether an entry with a matching key has id `k`.
    fn is_of(&self, index: &Index, entry: u32, ids: &Ids, k: usize) -> Result<bool> {
        if u64::from(entry) >= index.facts().rows {
            return Err(self.damaged("it names a row that is not in the index"));
        }
        // An integer is its own key. Texts with equal hashes may differ.
        let Ids::Utf8(texts) = ids else { return Ok(true) };
        let of_entry = index.ids_of(IdKind::Utf8, &[entry])?;
        Ok(matches!(&of_entry, Ids::Utf8(of_entry) if of_entry.get(0) == texts.get(k)))
    }

    /// Returns the entries whose ids have the key `key`. `block` caches the block that was read last.
    fn candidates(&self, key: u64, block: &mut Option<(u64, Vec<Record>)>) -> Result<Vec<u32>> {
        let mut found = Vec::new();
        // The first block whose first key is `key` may not hold the first record of this key: that can be in the block
        // before.
        let start = self.first.partition_point(|&first| first < key).saturating_sub(1);
        for number in start..self.first.len() {
            if self.first[number] > key {
                break;
            }
            let records = self.block(number as u64, block)?;
            let from = records.partition_point(|&(other, _)| other < key);
            // The id -1 has the same key as unused records; only the entry distinguishes them.
            let same = records[from..].iter().take_while(|record| record.0 == key && **record != NONE);
            found.extend(same.map(|&(_, entry)| entry));
        }
        Ok(found)
    }

    fn block<'b>(&self, number: u64, held: &'b mut Option<(u64, Vec<Record>)>) -> Result<&'b [Record]> {
        if held.as_ref().is_none_or(|(other, _)| *other != number) {
            let mut bytes = [0; BLOCK_BYTES];
            self.file.read_at(number * BLOCK_BYTES as u64, &mut bytes)?;
            *held = Some((number, self.checked(number, &bytes)?.collect()));
        }
        Ok(held.as_ref().map_or(&[], |(_, records)| records))
    }
}

/// Number of blocks per read when the whole file is read.
const PIECE_BLOCKS: u64 = 64;
