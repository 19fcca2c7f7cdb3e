//! Formats of files, by their extensions.

use std::path::Path;
use std::sync::Arc;

use adjoin_device::{Location, ReadFile};

use super::dense::{DenseFormat, DenseScan};
use super::facts::Facts;
use super::foreign::changed;
use super::options::{IdChoice, ScanOptions, SourceOptions};
use super::vectors::VectorScan;
use super::{ahead, arrow, json_lines, npz, parquet};
use crate::base::context::Context;
use crate::base::error::{Error, Result};
use crate::base::message::{Argument, message};
use crate::base::options::{Element, ROWS_MAX};

/// Extensions of the files that can be read, as messages list them.
pub(super) const ENDINGS: &str = ".parquet, .arrow, .feather, .ipc, .jsonl, .ndjson, .npy, .npz, .safetensors, .fbin, .u8bin, .i8bin, .fvecs, .bvecs";

pub(super) fn unsupported(path: &Path) -> Error {
    // If the file does not exist, reports that instead of its extension.
    if !Location::is_remote(path) && matches!(path.try_exists(), Ok(false)) {
        return no_such_file(path);
    }
    let (at, ending) = (path.display(), ending(path));
    let remedy = match ending.as_str() {
        "csv" | "tsv" => {
            "convert the file, such as with pip install duckdb, then python3 -c \"import duckdb; \
             duckdb.read_csv('rows.csv').write_parquet('rows.parquet')\""
        }
        _ => "decompress or convert the file",
    };
    let ending = if ending.is_empty() { "(none)".to_owned() } else { format!(".{ending}") };
    Error::input(format!("{at}: the extension {ending} is not supported, only {ENDINGS}; {remedy}"))
}

/// Format of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Format {
    Parquet,
    Arrow,
    JsonLines,
    Npz,
    Dense(DenseFormat),
}

impl Format {
    /// Returns the format for the extension of a path, if it is known.
    pub(super) fn of(path: &Path) -> Option<Self> {
        Some(match ending(path).as_str() {
            "parquet" => Self::Parquet,
            "arrow" | "feather" | "ipc" => Self::Arrow,
            "jsonl" | "ndjson" => Self::JsonLines,
            "npz" => Self::Npz,
            "npy" => Self::Dense(DenseFormat::Npy),
            "safetensors" => Self::Dense(DenseFormat::Safetensors),
            "fbin" => Self::Dense(DenseFormat::CountedFile(Element::F32)),
            "u8bin" => Self::Dense(DenseFormat::CountedFile(Element::U8)),
            "i8bin" => Self::Dense(DenseFormat::CountedFile(Element::I8)),
            "fvecs" => Self::Dense(DenseFormat::CountedRows(Element::F32)),
            "bvecs" => Self::Dense(DenseFormat::CountedRows(Element::U8)),
            _ => return None,
        })
    }

    /// Reads a file's headers and returns facts about its contents.
    pub(super) fn inspect(
        self,
        context: &Context,
        path: &Path,
        file: Arc<dyn ReadFile>,
        options: &SourceOptions,
    ) -> Result<Facts> {
        match self {
            Self::Parquet => parquet::inspect(context, path, file, options),
            Self::Arrow => arrow::inspect(context, path, file, options),
            Self::JsonLines => json_lines::inspect(context, path, ahead::sequential(file), options),
            Self::Npz => npz::inspect(context, path, file, options),
            Self::Dense(format) => {
                refuse_columns(format, path, options)?;
                format.layout(path, file.as_ref(), options.vector_column.as_deref()).map(|layout| layout.facts())
            }
        }
    }

    /// Starts a scan of a file of this format.
    pub(super) fn scan(
        self,
        path: &Path,
        file: Arc<dyn ReadFile>,
        options: &SourceOptions,
        scan: ScanOptions,
        facts: &Facts,
    ) -> Result<Box<dyn VectorScan>> {
        // Parquet files are not read sequentially: only the chunks of some columns are read.
        let file = if self == Self::Parquet { file } else { ahead::sequential(file) };
        match self {
            Self::Parquet => parquet::scan(path, file, options, scan),
            Self::Arrow => arrow::scan(path, file, options, scan),
            Self::JsonLines => {
                let lines = facts.lines.as_deref().ok_or_else(|| changed(path))?;
                json_lines::scan(path, file, options, scan, lines)
            }
            Self::Npz => {
                let arrays = facts.arrays.as_ref().ok_or_else(|| changed(path))?;
                npz::scan(path, file, options, scan, arrays)
            }
            Self::Dense(format) => {
                let layout = format.layout(path, file.as_ref(), options.vector_column.as_deref())?;
                Ok(Box::new(DenseScan::new(path.to_owned(), file, layout, scan)))
            }
        }
    }
}

fn refuse_columns(format: DenseFormat, path: &Path, options: &SourceOptions) -> Result<()> {
    let (option, column) = match (&options.vector_column, &options.ids) {
        (Some(column), _) if format != DenseFormat::Safetensors => (Argument::VectorColumn, column),
        (_, IdChoice::Column(column)) => (Argument::IdColumn, column),
        _ => return Ok(()),
    };
    Err(Error::input(message![
        format!("{}: its format has no columns, so no column {column}; leave out ", path.display()),
        option,
        ", or give a file of Parquet, Arrow or JSON lines"
    ]))
}

/// Returns the number of rows of a set, unless there are too many. `path` is its last file.
pub(super) fn check_rows(path: &Path, rows: Option<u64>) -> Result<u64> {
    rows.filter(|rows| *rows <= ROWS_MAX).ok_or_else(|| {
        let at = path.display();
        Error::input(format!("{at}: with it the set has more than {ROWS_MAX} rows; split the set"))
    })
}

pub(super) fn no_such_file(path: &Path) -> Error {
    Error::input(format!("{}: there is no such file or folder; check the path", path.display()))
}

fn ending(path: &Path) -> String {
    path.extension().map(|ending| ending.to_string_lossy().to_ascii_lowercase()).unwrap_or_default()
}
