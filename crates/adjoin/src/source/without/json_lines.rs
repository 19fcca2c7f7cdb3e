//! Copies JSON lines without some rows. Kept lines and blank lines are copied unchanged.

use std::io::{BufWriter, Write};
use std::sync::Arc;

use adjoin_device::ReadFile;

use super::{Without, cannot_write};
use crate::base::error::Result;
use crate::base::output::OutputWriter;
use crate::source::json_types::LineFacts;
use crate::source::lines::Lines;

const WRITE_BYTES: usize = 1 << 20;
/// Number of rows after which progress is reported.
const ROWS_AT_ONCE: u64 = 1 << 12;

pub(super) fn held_bytes(lines: &LineFacts) -> u64 {
    lines.lines_bytes() + WRITE_BYTES as u64
}

pub(super) fn write(
    lines: &LineFacts,
    request: &Without<'_>,
    file: Arc<dyn ReadFile>,
    out: OutputWriter,
) -> Result<OutputWriter> {
    let mut out = BufWriter::with_capacity(WRITE_BYTES, out);
    let mut lines = Lines::of(request.path, file, lines.line_bytes_max);
    let mut row = 0;
    while let Some(line) = lines.next_line()? {
        let is_row = !line.is_blank();
        if !(is_row && (request.is_removed)(row)) {
            out.write_all(line.bytes).map_err(cannot_write)?;
        } else if line.number == 1 {
            // The byte order mark belongs to the file, so it is written even if the first row is removed.
            out.write_all(line.mark()).map_err(cannot_write)?;
        }
        row += u64::from(is_row);
        if is_row && row % ROWS_AT_ONCE == 0 {
            request.advance(ROWS_AT_ONCE)?;
        }
    }
    request.advance(row % ROWS_AT_ONCE)?;
    out.into_inner().map_err(|error| cannot_write(error.into_error()))
}
