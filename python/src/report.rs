//! HTML pages about results.

use std::fs::File;
use std::path::{Path, PathBuf};

use adjoin::{Context, Error, Result};
use adjoin_cli::{Names, PageNames, PageSources, read_statistics, write_page};
use parquet::arrow::ArrowWriter;
use pyo3::exceptions::PyOSError;
use pyo3::prelude::*;
use pyo3_arrow::PyRecordBatchReader;

use crate::options::Resources;
use crate::run::{Running, raised};

/// Tables with names of ids.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub(crate) struct NameTable {
    files: String,
    id_column: Option<String>,
    name_column: Option<String>,
}

impl NameTable {
    fn names(&self) -> Names<'_> {
        let (id_column, name_column) = (self.id_column.as_deref(), self.name_column.as_deref());
        Names { files: &self.files, id_column, name_column }
    }
}

/// A page to write.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub(crate) struct PageRequest {
    pub(crate) path: PathBuf,
    /// Names of the rows on the left and on the right.
    names: [Option<NameTable>; 2],
    pub(crate) force: bool,
}

impl PageRequest {
    /// Writes the page about the result in a file. `stats` are the statistics of its run, as JSON.
    pub(crate) fn write(&self, context: &Context, result: &Path, stats: &str) -> Result<()> {
        let stats = serde_json::from_str(stats).map_err(|error| Error::corrupt(error.to_string()))?;
        self.write_with(context, result, Some(stats))
    }

    fn write_with(&self, context: &Context, result: &Path, stats: Option<serde_json::Value>) -> Result<()> {
        let [first, second] = self.names.each_ref().map(|names| names.as_ref().map(NameTable::names));
        let names = first.map(|first| PageNames { first, second });
        write_page(context, PageSources { result, stats, names }, &self.path, self.force).map(drop)
    }
}

/// Statistics of a run.
#[derive(FromPyObject)]
pub(crate) enum RunStatistics {
    /// The statistics as JSON.
    #[pyo3(transparent)]
    Text(String),
    /// The file with the statistics.
    #[pyo3(transparent)]
    File(PathBuf),
}

/// Writes a page about the result in a file.
#[pyfunction]
pub(crate) fn report(
    py: Python<'_>,
    result: PathBuf,
    stats: Option<RunStatistics>,
    page: PageRequest,
    resources: Resources,
) -> PyResult<()> {
    let running = Running::new(&resources, None).map_err(|error| raised(py, &error))?;
    running.run(py, |context| match stats {
        None => page.write_with(context, &result, None),
        Some(RunStatistics::Text(stats)) => page.write(context, &result, &stats),
        Some(RunStatistics::File(file)) => {
            let (stats, _memory) = read_statistics(context, &file)?;
            page.write_with(context, &result, Some(stats))
        }
    })
}

/// Writes an Arrow stream to a Parquet file.
#[pyfunction]
pub(crate) fn write_parquet(py: Python<'_>, rows: PyRecordBatchReader, path: PathBuf) -> PyResult<()> {
    let rows = rows.into_reader()?;
    let cannot =
        |error: &dyn std::fmt::Display| PyOSError::new_err(format!("cannot write {}: {error}", path.display()));
    py.detach(|| {
        let file = File::create(&path).map_err(|error| cannot(&error))?;
        let mut writer = ArrowWriter::try_new(file, rows.schema(), None).map_err(|error| cannot(&error))?;
        for batch in rows {
            Python::attach(|py| py.check_signals())?;
            writer.write(&batch.map_err(|error| cannot(&error))?).map_err(|error| cannot(&error))?;
        }
        writer.close().map(drop).map_err(|error| cannot(&error))
    })
}
