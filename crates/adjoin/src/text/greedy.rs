//! Passes texts in the requested order, and removes each text that is near a text kept before.
//!
//! Only kept texts are looked up. So a group of many near texts costs one comparison per text, not one per pair. If the
//! kept texts do not fit into memory, the remaining texts are compared with those that fit, and are passed again.

use std::path::Path;

use super::jaccard::{can_reach, similarity};
use super::kept::{KeptTexts, SetCache};
use super::scheme::Scheme;
use crate::base::context::Context;
use crate::base::error::Result;
use crate::base::row_numbers::{ROW_BYTES, packed, unpacked};
use crate::base::sorter::{Sorted, Sorter};
use crate::base::workers::map_items;

/// Number of texts of a batch. Its texts are compared with the texts kept before on all threads, and then with each
/// other on one.
const BATCH_TEXTS: usize = 1 << 10;
/// Maximum bytes of the sets of a batch, unless a single set is larger.
const BATCH_BYTES: usize = 2 << 20;
/// Number of texts that a thread takes at a time.
const PIECE_TEXTS: usize = 32;

/// A text with the nearest text that is known to be kept before it.
pub(crate) struct Record {
    /// Position of the text in the requested order.
    place: u64,
    row: u64,
    near: Option<Near>,
    set: Vec<u64>,
}

/// A kept text near another text.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Near {
    row: u64,
    similarity: f32,
}

impl Record {
    /// Creates the record of a text with the set `set`.
    pub(crate) fn new(place: u64, row: u64, set: Vec<u64>) -> Self {
        Self { place, row, near: None, set }
    }

    /// Adds the record to a sorter, with `bytes` as a buffer.
    ///
    /// # Errors
    /// If a file cannot be written.
    pub(crate) fn push_to(&self, sorter: &mut Sorter, bytes: &mut Vec<u8>) -> Result<()> {
        let near = self.near.unwrap_or(Near { row: 0, similarity: 0.0 });
        bytes.clear();
        bytes.extend_from_slice(&near.similarity.to_le_bytes());
        bytes.extend_from_slice(&packed(near.row));
        bytes.extend(self.set.iter().flat_map(|hash| hash.to_le_bytes()));
        sorter.push((self.place, self.row), bytes)
    }

    fn next_of(sorted: &mut Sorted, bytes: &mut Vec<u8>) -> Result<Option<Self>> {
        let Some((place, row)) = sorted.next(bytes)? else { return Ok(None) };
        let (similarity, rest) = bytes.split_first_chunk().expect("a record begins with a similarity");
        let (kept, set) = rest.split_at(ROW_BYTES);
        let near = Near { row: unpacked(kept), similarity: f32::from_le_bytes(*similarity) };
        let set = set.as_chunks().0.iter().map(|hash| u64::from_le_bytes(*hash)).collect();
        Ok(Some(Self { place, row, near: Some(near).filter(|near| near.similarity > 0.0), set }))
    }

    /// Notes a kept text if it is nearer than the one known so far. Of equally near texts, the first one is noted.
    fn note(&mut self, near: Near) {
        if self.near.is_none_or(|known| near.similarity > known.similarity) {
            self.near = Some(near);
        }
    }
}

/// Amount of work.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Compared {
    /// Number of pairs with a common key.
    pub(crate) pairs: u64,
    /// Number of these that reach the threshold.
    pub(crate) near_pairs: u64,
    /// Number of passes over texts.
    pub(crate) passes: u64,
    /// Bytes written to disk.
    pub(crate) spilled: u64,
}

/// Parameters of a search for near texts.
pub(crate) struct GreedyTexts<'a> {
    pub(crate) context: &'a Context,
    /// Folder of temporary files.
    pub(crate) at: &'a Path,
    pub(crate) scheme: &'a Scheme,
    pub(crate) min_jaccard: f64,
    /// Number of texts, at the first positions of the order, that are never removed.
    pub(crate) never_removed: u64,
    /// Size of the largest set, in bytes.
    pub(crate) set_bytes: u64,
    /// Memory of the kept texts, at least [`GreedyTexts::kept_bytes_min`].
    pub(crate) kept_bytes: u64,
    /// Memory of a sorter for texts that are passed again.
    pub(crate) sorter_bytes: u64,
}

/// Texts that do not fit into memory, if any, and the kept texts.
struct Pass {
    kept: KeptTexts,
    rest: Option<Sorter>,
}

impl GreedyTexts<'_> {
    /// Returns the memory of a batch of texts, if no set has more than `set_bytes` bytes.
    pub(crate) fn batch_bytes(set_bytes: u64) -> u64 {
        // The sets, their keys, and the buffer of a record. At most as many keys as shingles are computed at once, as
        // pairs of numbers.
        4 * (BATCH_BYTES as u64).max(2 * set_bytes) + (BATCH_TEXTS * 2 * size_of::<Record>()) as u64
    }

    /// Returns the least memory of the kept texts.
    pub(crate) fn kept_bytes_min(scheme: &Scheme, set_bytes: u64, threads: usize) -> u64 {
        let keys = scheme.keys_max((set_bytes as usize / size_of::<u64>()).max(1));
        KeptTexts::least_bytes(set_bytes, keys as u64, threads)
    }

    /// Returns the least memory of the kept texts, before the scheme is known.
    pub(crate) fn kept_bytes_least(set_bytes: u64, threads: usize) -> u64 {
        KeptTexts::least_bytes(set_bytes, set_bytes / size_of::<u64>() as u64, threads)
    }

    /// Passes each removed row to `remove`, with the nearest row that is kept and the similarity of both.
    ///
    /// # Errors
    /// If a file cannot be written or read, or if the work is cancelled.
    pub(crate) fn decide(
        &self,
        mut texts: Sorted,
        mut remove: impl FnMut(u64, u64, f32) -> Result<()>,
    ) -> Result<Compared> {
        let mut compared = Compared::default();
        let mut done = 0;
        loop {
            compared.passes += 1;
            let mut pass = Pass { kept: self.kept_texts(), rest: None };
            while let Some(mut batch) = next_batch(&mut texts)? {
                self.context.cancel.check()?;
                let keys = self.compare_with_kept(&pass.kept, &mut batch, &mut compared)?;
                done += self.decide_batch(&mut pass, batch, &keys, &mut compared, &mut remove)?;
                self.context.progress.advance(done);
            }
            compared.spilled += texts.spilled() + pass.kept.spilled();
            match pass.rest {
                None => return Ok(compared),
                Some(rest) => texts = rest.finish()?,
            }
        }
    }

    fn kept_texts(&self) -> KeptTexts {
        KeptTexts::new(self.context, self.at, self.kept_bytes, self.set_bytes)
    }

    /// Compares a batch with the texts that were kept before it. Returns the keys of its texts.
    fn compare_with_kept(
        &self,
        kept: &KeptTexts,
        batch: &mut [Record],
        compared: &mut Compared,
    ) -> Result<Vec<Vec<u32>>> {
        let pieces: Vec<&[Record]> = batch.chunks(PIECE_TEXTS).collect();
        let nearest = |buffers: &mut Buffers, text: &Record| {
            let keys = self.scheme.keys(&text.set);
            let nearest = self.nearest(kept, text, &keys, 0, buffers)?;
            Ok((keys, nearest))
        };
        let work = |buffers: &mut Buffers, piece: usize| {
            pieces[piece].iter().map(|text| nearest(buffers, text)).collect::<Result<Vec<_>>>()
        };
        let results = map_items(self.context.threads, pieces.len(), &self.context.cancel, Buffers::default, work)?;
        let mut all_keys = Vec::with_capacity(batch.len());
        for (text, (keys, nearest)) in batch.iter_mut().zip(results.into_iter().flatten()) {
            nearest.add_to(text, compared);
            all_keys.push(keys);
        }
        Ok(all_keys)
    }

    /// Decides a batch whose texts were compared with all texts that were kept before. Returns the number of decided
    /// texts.
    fn decide_batch(
        &self,
        pass: &mut Pass,
        batch: Vec<Record>,
        keys: &[Vec<u32>],
        compared: &mut Compared,
        remove: &mut impl FnMut(u64, u64, f32) -> Result<()>,
    ) -> Result<u64> {
        let (first, mut decided, mut bytes) = (pass.kept.len(), 0, Vec::new());
        let mut buffers = Buffers::default();
        for (mut text, keys) in batch.into_iter().zip(keys) {
            self.nearest(&pass.kept, &text, keys, first, &mut buffers)?.add_to(&mut text, compared);
            // If a text did not fit, all later ones are decided in another pass, since it might be kept.
            if pass.rest.is_none() {
                let is_decided = match text.near {
                    Some(near) => remove(text.row, near.row, near.similarity).map(|()| true)?,
                    None => pass.kept.push(text.row, keys, &text.set)?,
                };
                if is_decided {
                    decided += 1;
                    continue;
                }
            }
            let rest = pass.rest.get_or_insert_with(|| Sorter::new(self.context, self.at, self.sorter_bytes));
            text.push_to(rest, &mut bytes)?;
        }
        Ok(decided)
    }

    /// Finds the nearest of the kept texts from number `first` on that have one of the keys of a text.
    fn nearest(
        &self,
        kept: &KeptTexts,
        text: &Record,
        keys: &[u32],
        first: u32,
        Buffers { found, cache }: &mut Buffers,
    ) -> Result<Nearest> {
        let mut nearest = Nearest::default();
        if text.place < self.never_removed {
            return Ok(nearest);
        }
        kept.find(keys, first, found);
        for &other in &*found {
            nearest.pairs += 1;
            if !can_reach(text.set.len(), kept.set_len(other), self.min_jaccard) {
                continue;
            }
            let Some(similarity) = similarity(&text.set, kept.set(other, cache)?, self.min_jaccard) else { continue };
            nearest.near_pairs += 1;
            // Kept texts are found in the requested order, so the first of equally near ones is chosen.
            if nearest.near.is_none_or(|near| similarity > near.similarity) {
                nearest.near = Some(Near { row: kept.row(other), similarity });
            }
        }
        Ok(nearest)
    }
}

/// Reads the next batch of texts. Returns `None` after the last one.
fn next_batch(texts: &mut Sorted) -> Result<Option<Vec<Record>>> {
    let (mut batch, mut bytes, mut set_bytes) = (Vec::new(), Vec::new(), 0);
    while batch.len() < BATCH_TEXTS && set_bytes < BATCH_BYTES {
        let Some(text) = Record::next_of(texts, &mut bytes)? else { break };
        set_bytes += text.set.len() * size_of::<u64>();
        batch.push(text);
    }
    Ok(Some(batch).filter(|batch| !batch.is_empty()))
}

/// Result of comparing a text with kept texts.
#[derive(Default)]
struct Nearest {
    near: Option<Near>,
    pairs: u64,
    near_pairs: u64,
}

impl Nearest {
    fn add_to(&self, text: &mut Record, compared: &mut Compared) {
        compared.pairs += self.pairs;
        compared.near_pairs += self.near_pairs;
        self.near.iter().for_each(|near| text.note(*near));
    }
}

/// Buffers of a thread.
#[derive(Default)]
struct Buffers {
    found: Vec<u32>,
    cache: SetCache,
}
