//! Copies Arrow IPC files and streams without some rows, one record batch at a time.

use std::io::{self, BufReader, BufWriter, Read, Seek, SeekFrom};
use std::path::Path;
use std::sync::Arc;

use adjoin_device::ReadFile;
use arrow_array::{BooleanArray, RecordBatch};
use arrow_ipc::CompressionType;
use arrow_ipc::reader::{FileReader, StreamReader};
use arrow_ipc::writer::{FileWriter, IpcWriteOptions, StreamWriter};
use arrow_schema::{ArrowError, SchemaRef};
use arrow_select::filter::filter_record_batch;

use super::{RowsToKeep, Without, cannot_write};
use crate::base::context::Context;
use crate::base::error::Result;
use crate::base::output::OutputWriter;
use crate::source::arrow::Layout;
use crate::source::foreign::guarded;

const WRITE_BYTES: usize = 1 << 20;

/// Returns the memory for a batch, for its kept rows, and for these rows while they are written.
pub(super) fn held_bytes(context: &Context, path: &Path, file: Arc<dyn ReadFile>) -> Result<u64> {
    Ok(Layout::of(context, path, file)?.batch_bytes.saturating_mul(3) + 2 * WRITE_BYTES as u64)
}

pub(super) fn write(request: &Without<'_>, file: Arc<dyn ReadFile>, out: OutputWriter) -> Result<OutputWriter> {
    // The result has the layout of the source. A file remains a file, a stream remains a stream, with the same
    // compression.
    let layout = Layout::of(request.context, request.path, file.clone())?;
    let reader = BufReader::new(Reading { file, position: 0 });
    let out = BufWriter::with_capacity(WRITE_BYTES, out);
    let read = |error: ArrowError| error.to_string();
    let mut target = if layout.is_file {
        let batches = guarded(request.path, "its Arrow footer", || FileReader::try_new(reader, None).map_err(read))?;
        let target = Target::file(out, &batches.schema(), layout.compression)?;
        copy(request, batches, target)?
    } else {
        let batches = guarded(request.path, "its schema", || StreamReader::try_new(reader, None).map_err(read))?;
        let target = Target::stream(out, &batches.schema(), layout.compression)?;
        copy(request, batches, target)?
    };
    target.finish()?;
    target.into_inner()?.into_inner().map_err(|error| cannot_write(error.into_error()))
}

fn copy(
    request: &Without<'_>,
    mut batches: impl Iterator<Item = std::result::Result<RecordBatch, ArrowError>>,
    mut target: Target,
) -> Result<Target> {
    let mut first = 0;
    while let Some(batch) = guarded(request.path, format!("the rows from {first} on"), || batches.next().transpose())? {
        let rows = first..first + batch.num_rows() as u64;
        first = rows.end;
        request.advance(batch.num_rows() as u64)?;
        match request.kept(rows.clone()) {
            RowsToKeep::None => {}
            RowsToKeep::All => target.write(&batch)?,
            RowsToKeep::Some => {
                let stays: BooleanArray = rows.map(|row| Some(!(request.is_removed)(row))).collect();
                let place = format!("the rows before {first}");
                target.write(&guarded(request.path, place, || filter_record_batch(&batch, &stays))?)?;
            }
        }
    }
    Ok(target)
}

type Out = BufWriter<OutputWriter>;

enum Target {
    File(Box<FileWriter<Out>>),
    Stream(Box<StreamWriter<Out>>),
}

impl Target {
    fn file(out: Out, schema: &SchemaRef, compression: Option<CompressionType>) -> Result<Self> {
        let writer = FileWriter::try_new_with_options(out, schema, options(compression)?).map_err(cannot_write)?;
        Ok(Self::File(Box::new(writer)))
    }

    fn stream(out: Out, schema: &SchemaRef, compression: Option<CompressionType>) -> Result<Self> {
        let writer = StreamWriter::try_new_with_options(out, schema, options(compression)?).map_err(cannot_write)?;
        Ok(Self::Stream(Box::new(writer)))
    }

    fn write(&mut self, batch: &RecordBatch) -> Result<()> {
        match self {
            Self::File(writer) => writer.write(batch),
            Self::Stream(writer) => writer.write(batch),
        }
        .map_err(cannot_write)
    }

    fn finish(&mut self) -> Result<()> {
        match self {
            Self::File(writer) => writer.finish(),
            Self::Stream(writer) => writer.finish(),
        }
        .map_err(cannot_write)
    }

    fn into_inner(self) -> Result<Out> {
        match self {
            Self::File(writer) => writer.into_inner(),
            Self::Stream(writer) => writer.into_inner(),
        }
        .map_err(cannot_write)
    }
}

fn options(compression: Option<CompressionType>) -> Result<IpcWriteOptions> {
    IpcWriteOptions::default().try_with_compression(compression).map_err(cannot_write)
}

/// Adapter that implements `Read` and `Seek` for a file of the device.
struct Reading {
    file: Arc<dyn ReadFile>,
    position: u64,
}

impl Read for Reading {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        // At the end of the file, the Arrow crate expects a short read, as the standard library returns it.
        let present = self.file.len().saturating_sub(self.position).min(buffer.len() as u64) as usize;
        self.file.read_at(self.position, &mut buffer[..present]).map_err(io::Error::other)?;
        self.position += present as u64;
        Ok(present)
    }
}

impl Seek for Reading {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        let place = match to {
            SeekFrom::Start(place) => Some(place),
            SeekFrom::End(after) => self.file.len().checked_add_signed(after),
            SeekFrom::Current(after) => self.position.checked_add_signed(after),
        };
        self.position = place.ok_or_else(|| io::Error::other("a place before the file"))?;
        Ok(self.position)
    }
}
