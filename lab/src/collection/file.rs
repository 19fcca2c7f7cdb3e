//! Vectors of a file, and a collection of some of them.

use std::path::Path;
use std::sync::Arc;

use adjoin::{
    Collection, CollectionOptions, Context, Durability, Element, IdKind, IndexOptions, Metric, Result, VectorType,
    lab::collection::Put,
};

use super::rows::Rows;

/// Vectors of a `.u8bin` file. It starts with the number of rows and the number of dimensions, both u32.
pub(super) struct File {
    pub(super) vectors: VectorType,
    bytes: Vec<u8>,
}

impl File {
    pub(super) fn read(path: &Path) -> std::io::Result<Self> {
        let all = std::fs::read(path)?;
        let dimensions = u32::from_le_bytes(all[4..8].try_into().expect("four bytes")) as usize;
        Ok(Self { vectors: VectorType { element: Element::U8, dimensions }, bytes: all[8..].to_vec() })
    }

    pub(super) fn rows(&self) -> usize {
        self.bytes.len() / self.vectors.bytes()
    }

    /// Returns rows `first..first + count` with ids from `id` on. The last row of the file is followed by the first
    /// one.
    pub(super) fn part(&self, first: usize, count: usize, id: i64) -> Rows {
        let bytes = self.vectors.bytes();
        let row = |row: usize| &self.bytes[row % self.rows() * bytes..][..bytes];
        Rows::new(self.vectors, id, (first..first + count).flat_map(row).copied().collect())
    }
}

/// Creates a collection with the first `rows` rows of a file. All of them are on disk.
pub(super) fn opened(context: &Context, folder: &Path, file: &File, rows: usize) -> Result<Arc<Collection>> {
    let (vectors, metric, ids, attributes, index) =
        (file.vectors, Metric::L2, IdKind::Int64, Vec::new(), IndexOptions::default());
    Collection::create(context, folder, &CollectionOptions { vectors, metric, ids, attributes, index })?;
    let collection = Collection::open(context, folder)?;
    collection.load(&file.part(0, rows, 0), Put::Insert, Durability::Buffered)?;
    collection.merge(context)?;
    Ok(Arc::new(collection))
}
