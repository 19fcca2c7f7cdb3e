//! Rows fetched by id.

use arrow_array::cast::AsArray;
use arrow_array::{Array, RecordBatch, RecordBatchIterator};
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use pyo3_arrow::PyRecordBatchReader;

use crate::search::{IdColumn, id_column};

/// Rows in memory: the columns `id`, `vector`, and others.
#[pyclass(frozen)]
pub(crate) struct Rows(pub(crate) RecordBatch);

#[pymethods]
impl Rows {
    /// Streams the rows in the Arrow format.
    fn rows(&self) -> PyRecordBatchReader {
        let batches = RecordBatchIterator::new([Ok(self.0.clone())], self.0.schema());
        PyRecordBatchReader::new(Box::new(batches))
    }

    /// Returns the ids, and their type: `u8`, `i8` (of eight bytes) or `text`.
    fn ids<'py>(&self, py: Python<'py>) -> PyResult<IdColumn<'py>> {
        id_column(py, &[self.0.column(0).clone()])
    }

    /// Returns the elements of all vectors in one buffer, little-endian.
    fn vectors<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        let elements = self.0.column(1).as_fixed_size_list().values().to_data();
        PyBytes::new(py, elements.buffers()[0].as_slice())
    }

    fn __len__(&self) -> usize {
        self.0.num_rows()
    }
}
