//! Copies a zip of arrays without some rows. Rows are removed from arrays with a value for each row. Other arrays are
//! copied.

use std::io::{BufWriter, Write};
use std::path::Path;
use std::sync::Arc;

use adjoin_device::ReadFile;
use flate2::Compression;
use flate2::write::DeflateEncoder;
use rawzip::{CompressionMethod, ZipArchiveWriter};

use super::{Without, cannot_write};
use crate::base::error::Result;
use crate::base::output::OutputWriter;
use crate::source::npy;
use crate::source::npz_arrays::{Arrays, READER_BYTES, Stored, Values, refused};

/// Number of bytes to copy at a time. Exceeded only if a single row is larger.
const BLOCK_BYTES: u64 = 1 << 20;
/// Memory for a block, the buffer of the result, and the states of compression and decompression.
const HELD_BYTES: u64 = 2 * BLOCK_BYTES + (512 << 10) + READER_BYTES;

/// Returns the bytes held while a file is copied.
///
/// # Errors
/// Fails if an array has a value for each row, but the values cannot be separated.
pub(super) fn held_bytes(path: &Path, arrays: &Arrays) -> Result<u64> {
    let mut row_bytes_max = 0;
    for array in arrays.of_rows() {
        let row_bytes = array.row_bytes().filter(|_| !array.is_by_columns());
        row_bytes_max = row_bytes_max.max(row_bytes.ok_or_else(|| {
            refused(
                path,
                &array.name,
                "has a value for each row that cannot be separated from the next (Python objects, \
                structured, or in Fortran order); save it as numbers or text, or leave it out of the .npz",
            )
        })?);
    }
    Ok(HELD_BYTES + row_bytes_max)
}

type Target = BufWriter<OutputWriter>;

pub(super) fn write(
    arrays: &Arrays,
    request: &Without<'_>,
    file: Arc<dyn ReadFile>,
    out: OutputWriter,
) -> Result<OutputWriter> {
    let mut target = ZipArchiveWriter::new(BufWriter::with_capacity(BLOCK_BYTES as usize, out));
    // The headers state the number of rows, so the kept rows are counted before the first array is written.
    let kept = request.count(0..request.rows);
    for array in arrays.all() {
        let method = if array.is_deflated { CompressionMethod::DEFLATE } else { CompressionMethod::STORE };
        let name = format!("{}.npy", array.name);
        let file_of_array = target.new_file(name.as_str()).compression_method(method);
        let (mut entry, config) = file_of_array.start().map_err(cannot_write)?;
        let values = Values::at_start(request.path, array, file.clone());
        let descriptor = if array.is_deflated {
            let mut out = config.wrap(DeflateEncoder::new(&mut entry, Compression::default()));
            copy(array, arrays.rows, kept, request, values, &mut out)?;
            let (encoder, descriptor) = out.finish().map_err(cannot_write)?;
            encoder.finish().map_err(cannot_write)?;
            descriptor
        } else {
            let mut out = config.wrap(&mut entry);
            copy(array, arrays.rows, kept, request, values, &mut out)?;
            out.finish().map_err(cannot_write)?.1
        };
        entry.finish(descriptor).map_err(cannot_write)?;
    }
    // All arrays have the same rows, so progress is reported once, at the end.
    request.advance(request.rows)?;
    let target: Target = target.finish().map_err(cannot_write)?;
    target.into_inner().map_err(|error| cannot_write(error.into_error()))
}

/// Copies an array without the removed rows. If it does not have a value for each row, copies all of it.
fn copy(
    array: &Stored,
    rows: u64,
    kept: u64,
    request: &Without<'_>,
    mut values: Values,
    out: &mut impl Write,
) -> Result<()> {
    // An array of another length, such as a description of the set, has no value for each row. It is copied as it is.
    let row_bytes = array.row_bytes().filter(|_| array.rows() == Some(rows));
    let Some(row_bytes) = row_bytes else { return copy_all(array.bytes, request, values, out) };
    values.skip(array.header_bytes)?;
    let shape: Vec<u64> = [kept].into_iter().chain(array.header.shape[1..].iter().copied()).collect();
    out.write_all(&npy::header_of(&array.header.descr, &shape)).map_err(cannot_write)?;
    let rows_at_once = (BLOCK_BYTES / row_bytes.max(1)).max(1);
    let mut block = vec![0; (rows_at_once.min(rows) * row_bytes) as usize];
    let mut first = 0;
    while first < rows {
        let some = rows_at_once.min(rows - first);
        let block = &mut block[..(some * row_bytes) as usize];
        values.read(block)?;
        let of_row = |row: u64| &block[((row - first) * row_bytes) as usize..((row - first + 1) * row_bytes) as usize];
        for row in (first..first + some).filter(|row| !(request.is_removed)(*row)) {
            out.write_all(of_row(row)).map_err(cannot_write)?;
        }
        first += some;
        // This only checks for cancellation. Rows are complete when all arrays are copied.
        request.advance(0)?;
    }
    Ok(())
}

fn copy_all(bytes: u64, request: &Without<'_>, mut values: Values, out: &mut impl Write) -> Result<()> {
    let mut block = vec![0; bytes.min(BLOCK_BYTES) as usize];
    let mut left = bytes;
    while left > 0 {
        let some = &mut block[..left.min(BLOCK_BYTES) as usize];
        values.read(some)?;
        out.write_all(some).map_err(cannot_write)?;
        left -= some.len() as u64;
        request.advance(0)?;
    }
    Ok(())
}
