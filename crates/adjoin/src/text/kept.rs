//! Texts that are kept so far, by their keys. Their sets are written to disk if memory is scarce.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use adjoin_device::{ReadFile, WRITE_BUFFER_BYTES, WriteFile};
use zerocopy::IntoBytes;

use crate::base::context::Context;
use crate::base::error::Result;
use crate::base::locks::OwnFolder;
use crate::base::mutex::lock;

/// End of a chain of entries.
const NONE: u32 = u32::MAX;
/// Initial length of the table of chains. It is a power of two.
const HEADS_MIN: usize = 1 << 10;
/// Memory of the sets that a thread has read from disk, in bytes.
const CACHE_BYTES: u64 = 256 << 10;

/// Texts that are kept, by their keys.
pub(super) struct KeptTexts {
    /// Limit on the memory, without the sets.
    memory: u64,
    /// Memory that each text takes in addition, since a thread that looks up keys may find all of them.
    found_bytes: u64,
    /// Row number of each text.
    rows: Vec<u64>,
    /// First entry of each chain, by the lower bits of a key.
    heads: Vec<u32>,
    entries: Vec<Entry>,
    sets: Sets,
}

/// A key of a text. Entries are chained from the newest to the oldest.
struct Entry {
    key: u32,
    text: u32,
    next: u32,
}

impl KeptTexts {
    /// Returns the least memory of the texts, in bytes, if no set has more than `set_bytes` bytes and no text more than
    /// `keys` keys.
    pub(super) fn least_bytes(set_bytes: u64, keys: u64, threads: usize) -> u64 {
        let table = (2 * HEADS_MIN as u64 + 4 * keys) * (size_of::<Entry>() + size_of::<u32>()) as u64;
        table + 2 * set_bytes + WRITE_BUFFER_BYTES as u64 + threads as u64 * (CACHE_BYTES + set_bytes)
    }

    /// Creates an empty collection that takes at most `memory` bytes, which are at least [`Self::least_bytes`]. It
    /// writes sets that do not fit to a private folder inside `at`.
    pub(super) fn new(context: &Context, at: &Path, memory: u64, set_bytes: u64) -> Self {
        let threads = context.threads as u64;
        let memory = memory - WRITE_BUFFER_BYTES as u64 - threads * (CACHE_BYTES + set_bytes);
        let sets_bytes = (memory / 2).max(set_bytes);
        Self {
            memory: memory - sets_bytes,
            found_bytes: 8 * threads,
            rows: Vec::new(),
            heads: vec![NONE; HEADS_MIN],
            entries: Vec::new(),
            sets: Sets::new(context, at, sets_bytes),
        }
    }

    pub(super) fn len(&self) -> u32 {
        self.rows.len() as u32
    }

    /// Returns the row number of a text.
    pub(super) fn row(&self, text: u32) -> u64 {
        self.rows[text as usize]
    }

    /// Returns the bytes written to disk.
    pub(super) fn spilled(&self) -> u64 {
        self.sets.start * size_of::<u64>() as u64
    }

    /// Adds a text. Returns false if it does not fit into memory.
    ///
    /// # Errors
    /// If a file cannot be written.
    pub(super) fn push(&mut self, row: u64, keys: &[u32], set: &[u64]) -> Result<bool> {
        let entries = self.entries.len() + keys.len();
        let grown =
            |capacity: usize, wanted: usize| if wanted > capacity { wanted.max(2 * capacity) } else { capacity };
        let entries_capacity = grown(self.entries.capacity(), entries);
        let rows_capacity = grown(self.rows.capacity(), self.rows.len() + 1);
        let heads = if entries > self.heads.len() { entries.next_power_of_two() } else { self.heads.len() };
        let bytes = entries_capacity * size_of::<Entry>() + heads * size_of::<u32>();
        let bytes = (bytes + rows_capacity * 2 * size_of::<u64>()) as u64 + self.found_bytes * rows_capacity as u64;
        // A vector that grows is copied, so the old one exists at the same time.
        let copied = if entries_capacity > self.entries.capacity() { self.entries.capacity() } else { 0 };
        if bytes + (copied * size_of::<Entry>()) as u64 > self.memory || entries >= NONE as usize {
            return Ok(false);
        }
        self.entries.reserve_exact(entries_capacity - self.entries.len());
        if heads > self.heads.len() {
            self.heads = vec![NONE; heads];
            (0..self.entries.len()).for_each(|entry| self.link(entry));
        }
        let text = self.len();
        for &key in keys {
            self.entries.push(Entry { key, text, next: NONE });
            self.link(self.entries.len() - 1);
        }
        self.rows.push(row);
        self.sets.push(set)?;
        Ok(true)
    }

    fn link(&mut self, entry: usize) {
        let head = self.entries[entry].key as usize % self.heads.len();
        self.entries[entry].next = std::mem::replace(&mut self.heads[head], entry as u32);
    }

    /// Finds the texts from number `first` on that have one of the keys. They are ascending and distinct.
    pub(super) fn find(&self, keys: &[u32], first: u32, found: &mut Vec<u32>) {
        found.clear();
        let mut distinct = 0;
        for &key in keys {
            let mut next = self.heads[key as usize % self.heads.len()];
            while next != NONE {
                let entry = &self.entries[next as usize];
                if entry.text < first {
                    break; // all later entries of the chain are older
                }
                if entry.key == key {
                    found.push(entry.text);
                }
                next = entry.next;
            }
            // Removes repetitions early, so that `found` has at most two numbers per text.
            if found.len() > 2 * distinct + 64 {
                found.sort_unstable();
                found.dedup();
                distinct = found.len();
            }
        }
        found.sort_unstable();
        found.dedup();
    }

    /// Returns the number of shingles of a text.
    pub(super) fn set_len(&self, text: u32) -> usize {
        let (start, end) = self.sets.range(text);
        (end - start) as usize
    }

    /// Returns the set of a text. `cache` has the sets that the calling thread has read from disk.
    ///
    /// # Errors
    /// If the file cannot be read.
    pub(super) fn set<'a>(&'a self, text: u32, cache: &'a mut SetCache) -> Result<&'a [u64]> {
        self.sets.get(text, cache)
    }
}

/// Sets that a thread has read from disk.
#[derive(Default)]
pub(super) struct SetCache {
    sets: HashMap<u32, Vec<u64>>,
    bytes: u64,
}

/// The sets of all kept texts. The latest ones are in memory, the others in a file.
struct Sets {
    context: Context,
    at: PathBuf,
    /// Maximum memory of `latest`.
    memory: u64,
    /// End of each set, in elements.
    ends: Vec<u64>,
    latest: Vec<u64>,
    /// Number of elements before `latest`, which are in the file.
    start: u64,
    file: Option<SetFile>,
}

/// A file to which sets are appended. It is opened again for reading after each write.
struct SetFile {
    /// Only one thread writes, but the threads that read share this struct.
    writer: Mutex<Box<dyn WriteFile>>,
    reader: Option<Arc<dyn ReadFile>>,
    path: PathBuf,
    _folder: OwnFolder,
}

impl Sets {
    fn new(context: &Context, at: &Path, memory: u64) -> Self {
        let (context, at) = (context.clone(), at.to_owned());
        Self { context, at, memory, ends: Vec::new(), latest: Vec::new(), start: 0, file: None }
    }

    fn push(&mut self, set: &[u64]) -> Result<()> {
        let most = self.memory as usize / size_of::<u64>();
        if self.latest.len() + set.len() > most {
            self.spill()?;
        }
        let wanted = self.latest.len() + set.len();
        if wanted > self.latest.capacity() {
            // A vector that grows is copied, so a third of the memory is the largest length that can be doubled.
            let grown = if wanted.max(2 * self.latest.capacity()) > most / 3 {
                most
            } else {
                wanted.max(2 * self.latest.capacity())
            };
            self.latest.reserve_exact(grown.max(wanted) - self.latest.len());
        }
        self.latest.extend_from_slice(set);
        self.ends.push(self.start + self.latest.len() as u64);
        Ok(())
    }

    fn spill(&mut self) -> Result<()> {
        let device = &self.context.device;
        let file = match &mut self.file {
            Some(file) => file,
            None => {
                let folder = OwnFolder::create(device, &self.at, "texts")?;
                let path = folder.path().join("sets");
                let writer = Mutex::new(device.create(&path)?);
                self.file.insert(SetFile { writer, reader: None, path, _folder: folder })
            }
        };
        file.reader = None;
        let mut writer = lock(&file.writer);
        writer.append(self.latest.as_bytes())?;
        writer.flush()?;
        drop(writer);
        file.reader = Some(device.open(&file.path)?);
        self.start += self.latest.len() as u64;
        self.latest.clear();
        Ok(())
    }

    fn range(&self, text: u32) -> (u64, u64) {
        let before = (text as usize).checked_sub(1).map_or(0, |before| self.ends[before]);
        (before, self.ends[text as usize])
    }

    fn get<'a>(&'a self, text: u32, cache: &'a mut SetCache) -> Result<&'a [u64]> {
        let (start, end) = self.range(text);
        let reader = self.file.as_ref().and_then(|file| file.reader.as_ref()).filter(|_| start < self.start);
        let Some(reader) = reader else {
            return Ok(&self.latest[(start - self.start) as usize..(end - self.start) as usize]);
        };
        let bytes = (end - start) * size_of::<u64>() as u64;
        if !cache.sets.contains_key(&text) {
            if cache.bytes + bytes > CACHE_BYTES {
                *cache = SetCache::default();
            }
            let mut set = vec![0u64; (end - start) as usize];
            reader.read_at(start * size_of::<u64>() as u64, set.as_mut_bytes())?;
            cache.sets.insert(text, set);
            cache.bytes += bytes;
        }
        Ok(&cache.sets[&text])
    }
}
