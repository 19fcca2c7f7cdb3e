//! Here are my vectors in files, read them: a [`VectorSource`] for each format.

mod vectors;

pub use vectors::{IdKind, Ids, SourceInfo, TextIds, VectorBatch, VectorScan, VectorSource};
