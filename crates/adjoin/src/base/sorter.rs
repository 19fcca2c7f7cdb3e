//! External merge sort: sorts records by key within any memory. Sorted runs are written to disk.

use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;
use std::panic::resume_unwind;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use adjoin_device::{ReadFile, WRITE_BUFFER_BYTES, WriteFile};

use crate::base::context::Context;
use crate::base::error::Result;
use crate::base::locks::OwnFolder;
use crate::base::row_numbers::{ROW_BYTES, packed, unpacked};
use crate::base::workers::spawn_scoped;

/// Minimum memory of a sorter, in bytes. It works well with this much.
pub(crate) const SORTER_BYTES_MIN: u64 = 2 << 20;
/// Number of bytes to read at a time from each run that is merged.
const BLOCK_BYTES: usize = 64 << 10;

/// Maximum number of runs to merge at a time. A process may open about 1,000 files, and three sorters may merge at the
/// same time.
const RUNS_AT_ONCE: usize = 256;

/// Memory for each run that is merged, in bytes: a block, and the rest of the previous block.
const READER_BYTES: usize = 2 * BLOCK_BYTES;

/// Number of records that one thread sorts in less time than starting another thread is worth.
const RECORDS_OF_A_THREAD: usize = 64 << 10;

/// Sort key, which consists of two row numbers. Records are sorted by the first number, then by the second number,
/// then by the bytes of their payloads.
pub(crate) type Key = (u64, u64);

/// Collector of the records to sort. Records may be added in any order.
pub(crate) struct Sorter {
    disk: Disk,
    memory: u64,
    held: HeldRecords,
    runs: Vec<PathBuf>,
    /// Buffer for the payload in [`Sorter::push_row`].
    payload: Vec<u8>,
}

/// Interprets bytes as a big-endian number, so that numbers have the same order as the bytes.
pub(crate) fn number(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0, |number, byte| number << 8 | u64::from(*byte))
}

/// Iterator over the sorted records, which can be restarted.
pub(crate) struct Sorted {
    disk: Disk,
    held: HeldRecords,
    next: usize,
    runs: Vec<PathBuf>,
    merge: Option<Merge>,
}

/// Location of the runs. It is a private folder, which is created when the first run is written.
struct Disk {
    context: Context,
    parent: PathBuf,
    folder: Option<OwnFolder>,
    written: u64,
    names: u64,
}

/// Records that are in memory.
#[derive(Default)]
struct HeldRecords {
    entries: Vec<Entry>,
    payloads: Vec<u8>,
}

struct Entry {
    key: Key,
    start: u32,
    bytes: u32,
}

impl Entry {
    fn payload<'a>(&self, payloads: &'a [u8]) -> &'a [u8] {
        &payloads[self.start as usize..][..self.bytes as usize]
    }
}

impl HeldRecords {
    fn payload(&self, entry: &Entry) -> &[u8] {
        entry.payload(&self.payloads)
    }

    /// Sorts the records on `threads` threads.
    fn sort(&mut self, threads: usize) -> Result<()> {
        let payloads = &self.payloads;
        let by_payload = |a: &Entry, b: &Entry| a.payload(payloads).cmp(b.payload(payloads));
        // Records with equal keys are ordered by their payloads, so the order of records depends neither on the memory
        // nor on the order of arrival.
        sort_entries(&mut self.entries, threads, &|a, b| a.key.cmp(&b.key).then_with(|| by_payload(a, b)))
    }

    /// Returns the bytes that the records will take after a payload of `payload` bytes is added.
    fn bytes_with(&self, payload: usize) -> u64 {
        // A full vector at least doubles its capacity. So this uses the capacity after the push, not the length.
        let grown =
            |capacity: usize, wanted: usize| if wanted > capacity { wanted.max(2 * capacity) } else { capacity };
        let entries = grown(self.entries.capacity(), self.entries.len() + 1) * size_of::<Entry>();
        (entries + grown(self.payloads.capacity(), self.payloads.len() + payload)) as u64
    }
}

/// Sorts entries in place on `threads` threads. Equal entries may be in any order, as in `sort_unstable_by`.
fn sort_entries(
    entries: &mut [Entry],
    threads: usize,
    order: &(impl Fn(&Entry, &Entry) -> Ordering + Sync),
) -> Result<()> {
    if threads < 2 || entries.len() <= RECORDS_OF_A_THREAD {
        entries.sort_unstable_by(order);
        return Ok(());
    }
    // All entries before the median are at most as large as those after it, so both parts can be sorted on their own.
    let (before, _, after) = entries.select_nth_unstable_by(entries.len() / 2, order);
    std::thread::scope(|scope| {
        let other = spawn_scoped(scope, "adjoin sort", move || sort_entries(before, threads / 2, order))?;
        sort_entries(after, threads - threads / 2, order)?;
        other.join().unwrap_or_else(|panic| resume_unwind(panic))
    })
}

impl Sorter {
    /// Creates a sorter that holds about `memory` bytes. It writes other records to a private folder inside `parent`.
    pub(crate) fn new(context: &Context, parent: &Path, memory: u64) -> Self {
        let disk = Disk { context: context.clone(), parent: parent.to_owned(), folder: None, written: 0, names: 0 };
        // The upper limit is necessary because entries refer to payloads by 32-bit numbers.
        let memory = memory.clamp(SORTER_BYTES_MIN, u32::MAX.into()) - WRITE_BUFFER_BYTES as u64;
        Self { disk, memory, held: HeldRecords::default(), runs: Vec::new(), payload: Vec::new() }
    }

    /// Returns the memory that a sorter with `memory` bytes needs after its records are sorted. The write buffer is
    /// not needed then.
    pub(crate) fn bytes_when_sorted(memory: u64) -> u64 {
        memory.saturating_sub(WRITE_BUFFER_BYTES as u64)
    }

    /// Adds a record.
    ///
    /// # Errors
    /// Fails if a file cannot be written.
    pub(crate) fn push(&mut self, key: Key, payload: &[u8]) -> Result<()> {
        // At least one record is held, even if it is larger than the memory.
        if self.held.bytes_with(payload.len()) > self.memory && !self.held.entries.is_empty() {
            self.spill()?;
        }
        let (start, bytes) = (self.held.payloads.len() as u32, payload.len() as u32);
        self.held.payloads.extend_from_slice(payload);
        self.held.entries.push(Entry { key, start, bytes });
        Ok(())
    }

    /// Adds a row with a sort key of any length. Rows with equal keys are sorted by their numbers.
    ///
    /// # Errors
    /// Fails as [`Self::push`] does.
    pub(crate) fn push_row(&mut self, bytes: &[u8], row: u64) -> Result<()> {
        // The first ten bytes of `bytes` become the key, which is compared first. The rest and the row number become
        // the payload, which is compared last.
        let (mut first, rest) = ([0; 2 * ROW_BYTES], bytes.get(2 * ROW_BYTES..).unwrap_or_default());
        let taken = bytes.len().min(2 * ROW_BYTES);
        first[..taken].copy_from_slice(&bytes[..taken]);
        let (a, b) = first.split_at(ROW_BYTES);
        let mut payload = std::mem::take(&mut self.payload);
        payload.clear();
        payload.extend_from_slice(rest);
        // Big-endian numbers have the same order as their bytes.
        payload.extend_from_slice(&row.to_be_bytes());
        let pushed = self.push((number(a), number(b)), &payload);
        self.payload = payload;
        pushed
    }

    fn spill(&mut self) -> Result<()> {
        self.disk.context.cancel.check()?;
        let held = &mut self.held;
        held.sort(self.disk.context.threads)?;
        let mut run = self.disk.begin()?;
        for entry in &held.entries {
            run.append(entry.key, held.payload(entry))?;
        }
        self.runs.push(run.finish(&mut self.disk)?);
        held.entries.clear();
        held.payloads.clear();
        Ok(())
    }

    /// Ends the input and sorts the records. Records that were written to disk take no memory until the first record
    /// is requested.
    ///
    /// # Errors
    /// Fails if a file cannot be written.
    pub(crate) fn finish(mut self) -> Result<Sorted> {
        // If all records fit in memory, no file is written.
        if self.runs.is_empty() {
            self.held.sort(self.disk.context.threads)?;
        } else {
            self.spill()?;
            self.held = HeldRecords::default(); // its memory is for the blocks now
            self.merge_to((self.memory as usize / READER_BYTES).min(RUNS_AT_ONCE))?;
        }
        let Self { disk, held, runs, .. } = self;
        Ok(Sorted { disk, held, next: 0, runs, merge: None })
    }

    /// Merges runs, oldest first, until at most `at_once` runs are left.
    fn merge_to(&mut self, at_once: usize) -> Result<()> {
        // With fewer than two runs at a time, the number of runs would never decrease.
        let at_once = at_once.max(2);
        while self.runs.len() > at_once {
            // Merges only as many runs as necessary, so that most records are written only once.
            let few: Vec<PathBuf> = self.runs.drain(..at_once.min(self.runs.len() - at_once + 1)).collect();
            self.runs.push(self.disk.merge(&few)?);
        }
        Ok(())
    }
}

impl Sorted {
    /// Returns the key of the next record and writes its payload to `payload`. Returns `None` after the last record.
    ///
    /// # Errors
    /// Fails if a file cannot be read.
    pub(crate) fn next(&mut self, payload: &mut Vec<u8>) -> Result<Option<Key>> {
        if !self.runs.is_empty() {
            // The merge is created for the first record, so its buffers are not held before.
            let merge = match &mut self.merge {
                Some(merge) => merge,
                None => self.merge.insert(Merge::new(&self.disk, &self.runs)?),
            };
            return merge.next(payload);
        }
        let Some(entry) = self.held.entries.get(self.next) else { return Ok(None) };
        payload.clear();
        payload.extend_from_slice(self.held.payload(entry));
        self.next += 1;
        Ok(Some(entry.key))
    }

    /// Returns the next row that [`Sorter::push_row`] added. Uses `payload` as a buffer. Returns `None` after the last
    /// row.
    ///
    /// # Errors
    /// Fails as [`Self::next`] does.
    pub(crate) fn next_row(&mut self, payload: &mut Vec<u8>) -> Result<Option<u64>> {
        let next = self.next(payload)?;
        Ok(next.and_then(|_| payload.last_chunk()).map(|row| u64::from_be_bytes(*row)))
    }

    /// Starts again with the first record.
    pub(crate) fn restart(&mut self) {
        self.next = 0;
        self.merge = None;
    }

    /// Returns the number of bytes written to disk.
    pub(crate) fn spilled(&self) -> u64 {
        self.disk.written
    }
}

/// Sorted records, of which the next one is already read.
pub(crate) struct Records {
    sorted: Sorted,
    next: Option<Key>,
    payload: Vec<u8>,
}

impl Records {
    pub(crate) fn new(mut sorted: Sorted) -> Result<Self> {
        let mut payload = Vec::new();
        let next = sorted.next(&mut payload)?;
        Ok(Self { sorted, next, payload })
    }

    /// Passes the second number and the payload of each record with the first number `row` to `take`. Must be called
    /// with ascending values of `row`.
    pub(crate) fn each_of(&mut self, row: u64, mut take: impl FnMut(u64, &[u8]) -> Result<()>) -> Result<()> {
        while let Some((first, second)) = self.next
            && first == row
        {
            take(second, &self.payload)?;
            self.next = self.sorted.next(&mut self.payload)?;
        }
        Ok(())
    }

    /// Passes both numbers of each record to `take` if its first number is below `row`.
    pub(crate) fn each_before(&mut self, row: u64, mut take: impl FnMut(u64, u64) -> Result<()>) -> Result<()> {
        while let Some((first, second)) = self.next
            && first < row
        {
            take(first, second)?;
            self.next = self.sorted.next(&mut self.payload)?;
        }
        Ok(())
    }

    /// Returns the number of bytes written to disk.
    pub(crate) fn spilled(&self) -> u64 {
        self.sorted.spilled()
    }
}

impl Disk {
    fn begin(&mut self) -> Result<RunWriter> {
        let device = &self.context.device;
        // The folder is created with the first run. So a sort within memory writes nothing to disk.
        let folder = match &self.folder {
            Some(folder) => folder,
            None => self.folder.insert(OwnFolder::create(device, &self.parent, "sorted")?),
        };
        let path = folder.path().join(self.names.to_string());
        self.names += 1;
        Ok(RunWriter { file: device.create(&path)?, path, block: Vec::new(), written: 0 })
    }

    /// Merges several runs into one.
    fn merge(&mut self, runs: &[PathBuf]) -> Result<PathBuf> {
        let mut merge = Merge::new(self, runs)?;
        let (mut run, mut payload) = (self.begin()?, Vec::new());
        while let Some(key) = merge.next(&mut payload)? {
            run.append(key, &payload)?;
        }
        // Closes the files of the runs before they are removed.
        drop(merge);
        // The new run has all records of the old runs. These are removed now, since disk space may be scarce.
        runs.iter().try_for_each(|path| self.context.device.remove(path))?;
        run.finish(self)
    }
}

struct RunWriter {
    file: Box<dyn WriteFile>,
    path: PathBuf,
    /// Records that are not written yet.
    block: Vec<u8>,
    written: u64,
}

impl RunWriter {
    /// Appends a record: its key, the length of its payload, and its payload.
    fn append(&mut self, key: Key, payload: &[u8]) -> Result<()> {
        self.block.extend_from_slice(&packed(key.0));
        self.block.extend_from_slice(&packed(key.1));
        let mut bytes = payload.len();
        // Each byte has seven bits of the length. The highest bit is set if more bytes follow. So a short payload
        // needs one byte for its length.
        while bytes >= 0x80 {
            self.block.push(bytes as u8 | 0x80);
            bytes >>= 7;
        }
        self.block.push(bytes as u8);
        self.block.extend_from_slice(payload);
        if self.block.len() >= BLOCK_BYTES { self.write() } else { Ok(()) }
    }

    fn write(&mut self) -> Result<()> {
        self.file.append(&self.block)?;
        self.written += self.block.len() as u64;
        self.block.clear();
        Ok(())
    }

    fn finish(mut self, disk: &mut Disk) -> Result<PathBuf> {
        self.write()?;
        self.file.sync()?; // reads of the run bypass the page cache
        disk.written += self.written;
        Ok(self.path)
    }
}

/// Merge of the records of several runs.
struct Merge {
    context: Context,
    runs: Vec<RunReader>,
    /// Next key of each run that has more records.
    next: BinaryHeap<Reverse<(Key, usize)>>,
    taken: u64,
}

impl Merge {
    fn new(disk: &Disk, runs: &[PathBuf]) -> Result<Self> {
        let runs = runs.iter().map(|path| RunReader::open(disk, path)).collect::<Result<Vec<_>>>()?;
        let mut merge = Self { context: disk.context.clone(), runs, next: BinaryHeap::new(), taken: 0 };
        for run in 0..merge.runs.len() {
            merge.look(run)?;
        }
        Ok(merge)
    }

    fn look(&mut self, run: usize) -> Result<()> {
        if let Some(key) = self.runs[run].peek()? {
            self.next.push(Reverse((key, run)));
        }
        Ok(())
    }

    fn next(&mut self, payload: &mut Vec<u8>) -> Result<Option<Key>> {
        let Some(Reverse((key, first))) = self.next.pop() else { return Ok(None) };
        let run = self.least_payload(key, first)?;
        self.taken += 1;
        if self.taken.is_multiple_of(1 << 16) {
            self.context.cancel.check()?;
        }
        self.runs[run].take(payload)?;
        self.look(run)?;
        Ok(Some(key))
    }
}

impl Merge {
    /// Returns the run with the least payload among the runs whose next key is `key`. One of them is `first`. The
    /// others are put back into the heap.
    fn least_payload(&mut self, key: Key, first: usize) -> Result<usize> {
        let mut least = first;
        let mut others = Vec::new();
        // Rarely does more than one run have the same key, so it is fast enough to compare payloads one by one.
        while let Some(Reverse((_, run))) = self.next.peek().copied().filter(|Reverse((next, _))| *next == key) {
            self.next.pop();
            let payload = self.runs[run].peek_payload()?.to_vec();
            let is_less = payload.as_slice() < self.runs[least].peek_payload()?;
            others.push(if is_less { std::mem::replace(&mut least, run) } else { run });
        }
        self.next.extend(others.into_iter().map(|run| Reverse((key, run))));
        Ok(least)
    }
}

/// Reader of a run, block by block.
struct RunReader {
    file: Arc<dyn ReadFile>,
    offset: u64,
    block: Vec<u8>,
    at: usize,
}

impl RunReader {
    fn open(disk: &Disk, path: &Path) -> Result<Self> {
        Ok(Self { file: disk.context.device.open(path)?, offset: 0, block: Vec::new(), at: 0 })
    }

    /// Returns the key of the next record; `None` if there is none.
    fn peek(&mut self) -> Result<Option<Key>> {
        if self.at == self.block.len() && self.offset == self.file.len() {
            return Ok(None);
        }
        let key = self.bytes(0, 2 * ROW_BYTES)?;
        Ok(Some((unpacked(&key[..ROW_BYTES]), unpacked(&key[ROW_BYTES..]))))
    }

    /// Skips the next record, which must exist, and writes its payload to `payload`.
    fn take(&mut self, payload: &mut Vec<u8>) -> Result<()> {
        let (at, bytes) = self.payload_place()?;
        payload.clear();
        payload.extend_from_slice(self.bytes(at, bytes)?);
        self.at += at + bytes;
        Ok(())
    }

    /// Returns the payload of the next record, which must exist.
    fn peek_payload(&mut self) -> Result<&[u8]> {
        let (at, bytes) = self.payload_place()?;
        self.bytes(at, bytes)
    }

    /// Returns the offset of the payload within the next record, and the length of the payload.
    fn payload_place(&mut self) -> Result<(usize, usize)> {
        let (mut bytes, mut at) = (0, 2 * ROW_BYTES);
        loop {
            let part = self.bytes(at, 1)?[0];
            bytes |= usize::from(part & 0x7F) << (7 * (at - 2 * ROW_BYTES));
            at += 1;
            if part < 0x80 {
                return Ok((at, bytes));
            }
        }
    }

    /// Returns `bytes` bytes of the next record, from offset `from` on.
    fn bytes(&mut self, from: usize, bytes: usize) -> Result<&[u8]> {
        let end = from + bytes;
        if self.block.len() - self.at < end {
            // A record may cross the end of a block. So the unread rest of the block is moved to the front.
            self.block.drain(..self.at);
            self.at = 0;
            let more = (end - self.block.len()).max(BLOCK_BYTES) as u64;
            let more = more.min(self.file.len() - self.offset) as usize;
            let held = self.block.len();
            self.block.resize(held + more, 0);
            self.file.read_at(self.offset, &mut self.block[held..])?;
            self.offset += more as u64;
        }
        Ok(&self.block[self.at + from..self.at + end])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::allocated::{allocated, assert_states_bytes};
    use crate::base::random::Random;

    fn sorted_by(memory: u64, records: &[(Key, Vec<u8>)]) -> (Vec<(Key, Vec<u8>)>, u64) {
        let folder = tempfile::tempdir().unwrap();
        let mut sorter = Sorter::new(&Context::default(), folder.path(), memory);
        sorter.memory = memory;
        records.iter().for_each(|(key, payload)| sorter.push(*key, payload).unwrap());
        let mut sorted = sorter.finish().unwrap();
        let mut payload = Vec::new();
        let mut all = || {
            sorted.restart();
            let mut all = Vec::new();
            while let Some(key) = sorted.next(&mut payload).unwrap() {
                all.push((key, payload.clone()));
            }
            all
        };
        let (once, again) = (all(), all());
        assert!(once == again);
        let spilled = sorted.spilled();
        drop(sorted);
        assert_eq!(folder.path().read_dir().unwrap().count(), 0, "temporary files are removed");
        (once, spilled)
    }

    #[test]
    fn a_sorter_holds_at_most_its_memory() {
        let folder = tempfile::tempdir().unwrap();
        let (sorter, held) = allocated(|| {
            let mut sorter = Sorter::new(&Context::default(), folder.path(), SORTER_BYTES_MIN);
            (0..100_000).for_each(|k| sorter.push((k % 1_000, k), &[7; 30]).unwrap());
            sorter
        });
        assert_states_bytes(held, Sorter::bytes_when_sorted(SORTER_BYTES_MIN));
        let mut sorted = sorter.finish().unwrap();
        let mut payload = Vec::new();
        // Reading the first record opens all runs.
        let (first, held) = allocated(|| sorted.next(&mut payload).unwrap());
        assert!(first.is_some() && sorted.spilled() > 0 && held <= SORTER_BYTES_MIN, "{held}");
    }

    #[test]
    fn the_order_does_not_depend_on_the_memory() {
        let mut random = Random::new(1, "records");
        let mut records: Vec<(Key, Vec<u8>)> = (0..5_000u64)
            .map(|k| {
                let long = if k % 1000 == 7 { 200_000 } else { 0 };
                let payload = vec![k as u8; random.below(300) as usize + long];
                // Some keys occur more than once.
                let key = if k % 3 == 0 { (k % 30, 0) } else { (random.below(1 << 40), k) };
                (key, payload)
            })
            .collect();
        let (in_memory, spilled) = sorted_by(1 << 30, &records);
        assert_eq!(spilled, 0);
        records.sort();
        assert!(in_memory == records);
        // With the smallest memory, two runs are merged at a time.
        for memory in [1 << 18, 1] {
            let shuffled: Vec<_> = records.iter().rev().cloned().collect();
            let (same, spilled) = sorted_by(memory, &shuffled);
            assert!(same == records && spilled > 0, "{memory}");
        }
        assert_eq!(sorted_by(1 << 20, &[]).0, []);
    }

    #[test]
    fn the_order_does_not_depend_on_the_threads() {
        let mut random = Random::new(2, "records");
        // Most keys occur several times, so payloads decide, and some records are equal.
        let records: Vec<(Key, Vec<u8>)> = (0..5 * RECORDS_OF_A_THREAD)
            .map(|_| ((random.below(100), random.below(1_000)), vec![random.below(9) as u8; random.below(3) as usize]))
            .collect();
        let mut wanted = records.clone();
        wanted.sort();
        for threads in [1, 2, 3, 8] {
            let mut held = HeldRecords::default();
            for (key, payload) in &records {
                let (start, bytes) = (held.payloads.len() as u32, payload.len() as u32);
                held.payloads.extend_from_slice(payload);
                held.entries.push(Entry { key: *key, start, bytes });
            }
            held.sort(threads).unwrap();
            let sorted = held.entries.iter().map(|entry| (entry.key, held.payload(entry).to_vec()));
            assert!(sorted.eq(wanted.iter().cloned()), "{threads} threads");
        }
    }
}
