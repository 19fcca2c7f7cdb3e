//! Copies files with rows of a fixed size without some rows.

use std::io::{BufWriter, Write};
use std::path::Path;

use adjoin_device::ReadFile;

use super::{Without, cannot_write};
use crate::base::error::{Error, Result};
use crate::base::options::DIMENSIONS_MAX;
use crate::base::output::OutputWriter;
use crate::source::dense::DenseFormat;
use crate::source::dense_layout::DenseLayout;
use crate::source::{npy, safetensors};

/// Number of bytes to read at a time.
const BLOCK_BYTES: usize = 1 << 20;
/// Memory for the rows that are read and the rows that are written. A row may be longer than a block.
const HELD_BYTES: u64 = 2 * (BLOCK_BYTES + 8 * DIMENSIONS_MAX) as u64;

/// Returns the bytes held while a file is copied.
///
/// # Errors
/// Fails if a copy would lack anything other than the removed rows.
pub(super) fn held_bytes(format: DenseFormat, path: &Path, file: &dyn ReadFile) -> Result<u64> {
    if format == DenseFormat::Safetensors {
        safetensors::refuse_others(path, file)?;
    }
    Ok(HELD_BYTES)
}

pub(super) fn write(
    format: DenseFormat,
    request: &Without<'_>,
    file: &dyn ReadFile,
    out: OutputWriter,
) -> Result<OutputWriter> {
    let layout = format.layout(request.path, file, None)?;
    let dimensions = layout.dimensions.unwrap_or(0); // unknown only if there are no rows
    let row_bytes = layout.row_bytes(dimensions).max(1);
    let rows_at_once = (BLOCK_BYTES / row_bytes).max(1);
    let mut out = BufWriter::with_capacity(rows_at_once * row_bytes, out);
    // The header states the number of rows, so the kept rows are counted before anything is written.
    out.write_all(&header(format, request, file, &layout)?).map_err(cannot_write)?;
    let mut block = vec![0; rows_at_once * row_bytes];
    for first in (0..layout.rows).step_by(rows_at_once) {
        let rows = rows_at_once.min((layout.rows - first) as usize);
        let block = &mut block[..rows * row_bytes];
        file.read_at(layout.start + first * row_bytes as u64, block)?;
        let rows = (first..).zip(block.chunks_exact(row_bytes));
        for (_, row) in rows.filter(|(row, _)| !(request.is_removed)(*row)) {
            out.write_all(row).map_err(cannot_write)?;
        }
        request.advance(block.len() as u64 / row_bytes as u64)?;
    }
    out.into_inner().map_err(|error| cannot_write(error.into_error()))
}

/// Returns the header for the kept rows.
fn header(format: DenseFormat, request: &Without<'_>, file: &dyn ReadFile, layout: &DenseLayout) -> Result<Vec<u8>> {
    let rows = request.count(0..layout.rows);
    let dimensions = layout.dimensions.unwrap_or(0);
    Ok(match format {
        DenseFormat::Npy => npy::new_header(layout.element, rows, dimensions),
        DenseFormat::Safetensors => {
            let name = safetensors::only_name(request.path, file)?;
            safetensors::new_header(&name, layout.element, rows, dimensions)
        }
        DenseFormat::CountedRows(_) => Vec::new(),
        DenseFormat::CountedFile(_) => {
            // The result has at most as many rows as the source, and the source states their number in 32 bits.
            let rows = u32::try_from(rows).map_err(|_| Error::input("more than 2^32 - 1 rows in one file"))?;
            [rows.to_le_bytes(), (dimensions as u32).to_le_bytes()].concat()
        }
    })
}
