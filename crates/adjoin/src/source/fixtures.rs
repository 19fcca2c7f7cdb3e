//! Files for tests of sources, and functions that scan them.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use adjoin_device::{Device, FileSystem};
use arrow_array::{ArrayRef, RecordBatch};
use arrow_ipc::writer::{FileWriter, StreamWriter};
use parquet::arrow::ArrowWriter;

use super::open::open;
use super::options::SourceOptions;
use super::vector_source::VectorSource;
use super::vectors::{Ids, VectorBatch};
use crate::base::context::{Context, DEFAULT_MEMORY_BYTES};
use crate::base::error::{ErrorKind, Result};

/// Creates a context for a device.
pub(super) fn on(device: Arc<dyn Device>) -> Context {
    let mut context = Context::default();
    context.device = device;
    context
}

/// A temporary folder for files.
pub(super) struct Folder(tempfile::TempDir);

impl Folder {
    pub(super) fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    pub(super) fn write(&self, name: &str, bytes: &[u8]) {
        fs::write(self.path(name), bytes).unwrap();
    }

    pub(super) fn open(&self, sources: &[&str]) -> Result<Arc<dyn VectorSource>> {
        self.open_with(sources, &SourceOptions::default())
    }

    pub(super) fn open_with(&self, sources: &[&str], options: &SourceOptions) -> Result<Arc<dyn VectorSource>> {
        self.open_within(sources, options, DEFAULT_MEMORY_BYTES)
    }

    /// Opens sources with options and a budget.
    pub(super) fn open_within(
        &self,
        sources: &[&str],
        options: &SourceOptions,
        memory_bytes: u64,
    ) -> Result<Arc<dyn VectorSource>> {
        let sources: Vec<String> = sources.iter().map(|source| self.path(source).to_str().unwrap().into()).collect();
        open(&on(Arc::new(FileSystem::pread())).with_memory(memory_bytes), &sources, options)
    }

    /// Writes a file, opens it and scans it. Errors are fine, but nothing may panic.
    pub(super) fn survive(&self, name: &str, bytes: &[u8]) {
        self.write(name, bytes);
        let Ok(source) = self.open(&[name]) else { return };
        let Ok(mut scan) = source.scan(64) else { return };
        let mut rows = 0;
        while let Ok(Some(batch)) = scan.next_batch() {
            assert_eq!(batch.bytes.len(), batch.rows * source.info().vectors.bytes());
            rows += batch.rows as u64;
        }
        assert!(rows <= source.info().rows);
    }
}

/// Scans a source and returns all batches as one. Checks that the batches are consecutive.
pub(super) fn read_all(source: &dyn VectorSource, batch_bytes: usize) -> VectorBatch {
    try_read_all(source, batch_bytes).unwrap()
}

pub(super) fn try_read_all(source: &dyn VectorSource, batch_bytes: usize) -> Result<VectorBatch> {
    let info = source.info();
    let ids = Ids::empty(info.ids);
    let mut all = VectorBatch { first_row: 0, rows: 0, bytes: Vec::new(), faults: Vec::new(), ids };
    let mut scan = source.scan(batch_bytes)?;
    while let Some(batch) = scan.next_batch()? {
        assert_eq!(batch.first_row, all.rows as u64);
        assert_eq!(batch.bytes.len(), batch.rows * info.vectors.bytes());
        assert!(batch.rows == 1 || batch.bytes.len() <= batch_bytes);
        all.bytes.extend(&batch.bytes);
        all.faults.extend(batch.faults.iter().map(|(row, fault)| (row + all.rows, *fault)));
        (0..batch.rows).for_each(|k| all.ids.push_from(&batch.ids, k));
        all.rows += batch.rows;
    }
    assert!(scan.next_batch()?.is_none());
    assert_eq!(all.rows as u64, info.rows);
    Ok(all)
}

/// Returns the message of an error. Checks that it is an error of the input or the device.
pub(super) fn error_of<T>(result: Result<T>) -> String {
    let error = result.err().unwrap();
    assert!(matches!(error.kind(), ErrorKind::Input | ErrorKind::Device), "{error}");
    error.to_string()
}

pub(super) fn u8bin(dimensions: usize, elements: &[u8]) -> Vec<u8> {
    [counts(elements.len() / dimensions, dimensions).as_slice(), elements].concat()
}

pub(super) fn fbin(dimensions: usize, elements: &[f32]) -> Vec<u8> {
    let bytes: Vec<u8> = elements.iter().flat_map(|element| element.to_le_bytes()).collect();
    [counts(elements.len() / dimensions, dimensions).as_slice(), &bytes].concat()
}

pub(super) fn counts(rows: usize, dimensions: usize) -> [u8; 8] {
    let [rows, dimensions] = [rows, dimensions].map(|count| u32::try_from(count).unwrap().to_le_bytes());
    [rows, dimensions].concat().try_into().unwrap()
}

/// File names for [`write_tables`]: a Parquet file, an Arrow file and an Arrow stream.
pub(super) const TABLE_FORMATS: [&str; 3] = ["a.parquet", "a.arrow", "a.ipc"];

pub(super) fn table(columns: &[(&str, ArrayRef)]) -> RecordBatch {
    RecordBatch::try_from_iter_with_nullable(columns.iter().map(|(name, column)| (*name, column.clone(), true)))
        .unwrap()
}

/// Writes a file with one row group or record batch for each table.
pub(super) fn write_tables(folder: &Folder, name: &str, tables: &[RecordBatch]) {
    let schema = tables[0].schema();
    let mut bytes = Vec::new();
    match name.rsplit_once('.').unwrap().1 {
        "parquet" => {
            let mut writer = ArrowWriter::try_new(&mut bytes, schema, None).unwrap();
            for table in tables {
                writer.write(table).unwrap();
                writer.flush().unwrap();
            }
            writer.close().unwrap();
        }
        "arrow" => {
            let mut writer = FileWriter::try_new(&mut bytes, &schema).unwrap();
            tables.iter().for_each(|table| writer.write(table).unwrap());
            writer.finish().unwrap();
        }
        _ => {
            let mut writer = StreamWriter::try_new(&mut bytes, &schema).unwrap();
            tables.iter().for_each(|table| writer.write(table).unwrap());
            writer.finish().unwrap();
        }
    }
    folder.write(name, &bytes);
}

/// Returns the folder with real data sets, if this machine has it.
pub(super) fn real_sets() -> Option<PathBuf> {
    std::env::var_os("ADJOIN_DATA").map(PathBuf::from).filter(|folder| Path::is_dir(folder))
}
