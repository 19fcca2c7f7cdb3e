//! Digest of the rows of a scan. All complete scans of a file must have the same digest.

use xxhash_rust::xxh3::Xxh3;

use super::vectors::{Ids, VectorBatch};

/// Digest of the rows so far. It does not depend on their division into batches.
#[derive(Default)]
pub(super) struct Digest {
    vectors: Xxh3,
    ids: Xxh3,
    faults: Xxh3,
}

impl Digest {
    pub(super) fn add(&mut self, batch: &VectorBatch) {
        self.vectors.update(&batch.bytes);
        for (row, _) in &batch.faults {
            self.faults.update(&(batch.first_row + *row as u64).to_le_bytes());
        }
        match &batch.ids {
            Ids::None => {}
            Ids::Int64(ids) => ids.iter().for_each(|id| self.ids.update(&id.to_le_bytes())),
            // The length of each text is included. Otherwise the texts "ab" and "c" would have the same digest as "a"
            // and "bc".
            Ids::Utf8(texts) => (0..texts.len()).for_each(|k| {
                let text = texts.get(k);
                self.ids.update(&(text.len() as u64).to_le_bytes());
                self.ids.update(text);
            }),
        }
    }

    pub(super) fn finish(&self) -> [u64; 3] {
        [self.vectors.digest(), self.ids.digest(), self.faults.digest()]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::{Fault, TextIds};

    fn batch(first_row: u64, vectors: &[u8], ids: &[&str], faults: &[usize]) -> VectorBatch {
        let mut texts = TextIds::default();
        ids.iter().for_each(|id| texts.push(id.as_bytes()));
        let faults = faults.iter().map(|&row| (row, Fault::Null)).collect();
        VectorBatch { first_row, rows: ids.len(), bytes: vectors.to_vec(), faults, ids: Ids::Utf8(texts) }
    }

    fn digest(batches: &[VectorBatch]) -> [u64; 3] {
        let mut digest = Digest::default();
        batches.iter().for_each(|batch| digest.add(batch));
        digest.finish()
    }

    #[test]
    fn the_digest_depends_on_rows_not_batches() {
        let whole = digest(&[batch(0, &[1, 2, 3], &["a", "bc", ""], &[2])]);
        assert_eq!(whole, digest(&[batch(0, &[1], &["a"], &[]), batch(1, &[2, 3], &["bc", ""], &[1])]));
        for other in [
            batch(0, &[1, 2, 4], &["a", "bc", ""], &[2]),
            batch(0, &[1, 2, 3], &["ab", "c", ""], &[2]),
            batch(0, &[1, 2, 3], &["a", "bc", ""], &[1]),
        ] {
            assert_ne!(whole, digest(&[other]));
        }
    }
}
