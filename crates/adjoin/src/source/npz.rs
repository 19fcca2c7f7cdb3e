//! Reads NumPy's `.npz`: a zip of arrays. Arrays with a value for each row are the columns of a table.
//!
//! Two-dimensional arrays are lists of a fixed length, one-dimensional ones numbers or texts. The claims of an array
//! are checked against its bytes in the zip before they are used, and its checksum is compared at its end.

use std::io::{self, BufReader, Read};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use adjoin_device::{DeviceError, ReadFile};
use arrow_array::{
    ArrayRef, ArrowPrimitiveType, BooleanArray, FixedSizeListArray, PrimitiveArray, RecordBatch, RecordBatchOptions,
    StringArray, downcast_primitive,
};
use arrow_buffer::{Buffer, ScalarBuffer};
use arrow_schema::{DataType, Field, FieldRef, Schema, SchemaRef};
use flate2::Crc;
use flate2::bufread::DeflateDecoder;
use rawzip::{CompressionMethod, RangeReader, ReaderAt, ZipArchive};

use super::columns::{ColumnScan, Holding, TableColumns, Tables};
use super::facts::{Facts, ScanMemory};
use super::nested::ColumnPlace;
use super::npy::{self, Header};
use super::open::{IdChoice, ScanOptions, SourceOptions};
use super::vectors::VectorScan;
use crate::base::context::Context;
use crate::base::error::{Error, Result};
use crate::base::message::{Argument, message};

/// Most arrays in a file, and most bytes of a row of an array.
const ARRAYS_MAX: usize = 1_000;
const ROW_BYTES_MAX: u64 = 16 << 20;
/// Size of the pieces in which the directory is read; each holds at least one entry.
const DIRECTORY_BYTES: usize = 128 << 10;
/// Memory for reading an array: a buffer, and the state of inflating.
const BUFFER_BYTES: usize = 64 << 10;
pub(super) const READER_BYTES: u64 = BUFFER_BYTES as u64 + (96 << 10);
/// Limits of the rows to decode at a time, in bytes (unless one row is larger) and in rows.
const DECODED_BYTES: u64 = 1 << 20;
const DECODED_ROWS_MAX: u64 = 1 << 16;
/// Copies of rows in memory: as stored, as delivered, and a part of a text that grows.
const DECODED_COPIES: u64 = 4;
/// Limits of the facts kept of each array: its name, its dtype and its shape.
const NAME_BYTES_MAX: usize = 1_000;
const DTYPE_BYTES_MAX: usize = 100;
const DIMENSIONS_OF_ARRAYS_MAX: usize = 64;
/// Largest factor by which deflate compresses.
const GROWTH_MAX: u64 = 1_040;

/// Type of arrays that are not columns. No column has it.
const NO_COLUMN: DataType = DataType::Binary;

/// Contents of the directory of a file and of the headers of its arrays.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Arrays {
    arrays: Vec<Stored>,
    schema: SchemaRef,
    pub(super) rows: u64,
}

/// An array in a file.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Stored {
    pub(super) name: String,
    pub(super) header: Header,
    /// Bytes before its values.
    pub(super) header_bytes: u64,
    place: Range<u64>,
    pub(super) is_deflated: bool,
    /// Bytes after inflating, including the header.
    pub(super) bytes: u64,
    crc: u32,
}

impl Stored {
    /// Returns the bytes of a row, if the dtype states the bytes of an element.
    pub(super) fn row_bytes(&self) -> Option<u64> {
        let width = self.header.element_bytes()?;
        self.header.shape.get(1..)?.iter().try_fold(width, |bytes, length| bytes.checked_mul(*length))
    }

    /// Returns the first dimension.
    pub(super) fn rows(&self) -> Option<u64> {
        self.header.shape.first().copied()
    }

    /// Returns whether the values of a row are scattered, as in Fortran order.
    pub(super) fn is_by_columns(&self) -> bool {
        self.header.fortran_order && self.header.shape.len() > 1
    }

    /// Returns the type of its column.
    fn data_type(&self) -> DataType {
        let element = element_type(&self.header.descr);
        match (&self.header.shape[..], element) {
            // A row is read as a whole, so its length is limited before anything else.
            _ if self.row_bytes().is_none_or(|bytes| bytes > ROW_BYTES_MAX) => NO_COLUMN,
            ([_], Some(element)) => element,
            // In Fortran order, the values of a row are scattered over the array, which is read front to back.
            ([_, length], Some(element)) if !self.header.fortran_order && element.is_numeric() => {
                match i32::try_from(*length) {
                    Ok(length) => DataType::FixedSizeList(Arc::new(Field::new_list_field(element, false)), length),
                    Err(_) => NO_COLUMN,
                }
            }
            _ => NO_COLUMN,
        }
    }
}

/// Returns the type of numbers or texts of a dtype.
fn element_type(descr: &str) -> Option<DataType> {
    Some(match descr {
        "|b1" => DataType::Boolean,
        "|i1" | "<i1" => DataType::Int8,
        "<i2" => DataType::Int16,
        "<i4" => DataType::Int32,
        "<i8" => DataType::Int64,
        "|u1" | "<u1" => DataType::UInt8,
        "<u2" => DataType::UInt16,
        "<u4" => DataType::UInt32,
        "<u8" => DataType::UInt64,
        "<f2" => DataType::Float16,
        "<f4" => DataType::Float32,
        "<f8" => DataType::Float64,
        text if text.starts_with("<U") || text.starts_with("|S") => DataType::Utf8,
        _ => return None,
    })
}

impl Arrays {
    /// Returns the columns.
    pub(super) fn schema(&self) -> SchemaRef {
        self.schema.clone()
    }

    /// Returns all arrays, in order.
    pub(super) fn all(&self) -> &[Stored] {
        &self.arrays
    }

    /// Iterates over the arrays with as many rows as there are vectors.
    pub(super) fn of_rows(&self) -> impl Iterator<Item = &Stored> {
        self.arrays.iter().filter(|array| array.rows() == Some(self.rows))
    }

    /// Returns the bytes held while the arrays at some places are read.
    fn held_bytes(&self, places: &[usize]) -> u64 {
        let row: u64 = places.iter().filter_map(|place| self.arrays[*place].row_bytes()).sum();
        places.len() as u64 * READER_BYTES + DECODED_COPIES * row.max(DECODED_BYTES)
    }
}

/// Reads the headers of a file and returns facts about its contents.
pub(super) fn inspect(
    context: &Context,
    path: &Path,
    file: Arc<dyn ReadFile>,
    options: &SourceOptions,
) -> Result<Facts> {
    // Arrays are inspected one after the other, so one reader and one header are in memory.
    let room = DIRECTORY_BYTES as u64 + READER_BYTES + npy::HEADER_BYTES_MAX;
    let _room = context.reserve_between_runs(room, &format!("{}: its arrays", path.display()))?;
    let mut arrays = Arrays::read(path, file.clone())?;
    let columns = TableColumns::choose(path, &arrays.schema, options);
    let columns = columns.map_err(|error| arrays.no_column(path, options).unwrap_or(error))?;
    // The vectors decide how many rows there are. Other arrays are columns only if they have as many.
    arrays.rows = arrays.arrays[columns.vector().0.top_index()].rows().unwrap_or(0);
    let places: Vec<usize> = columns.places().iter().map(ColumnPlace::top_index).collect();
    let memory = ScanMemory::claimed(arrays.held_bytes(&places), 0);
    let arrays = Arc::new(arrays);
    // Checks all chosen arrays now, even if the first vector is not read.
    let rows = Rows::new(path, file, &arrays, &columns.places())?;
    let facts = columns.facts(context, arrays.rows, 0, memory, || Ok(Box::new(rows) as Tables))?;
    Ok(Facts { arrays: Some(arrays), ..facts })
}

/// Starts a scan of a file.
pub(super) fn scan(
    path: &Path,
    file: Arc<dyn ReadFile>,
    options: &SourceOptions,
    scan: ScanOptions,
    arrays: &Arc<Arrays>,
) -> Result<Box<dyn VectorScan>> {
    let columns = TableColumns::choose(path, &arrays.schema, options)?;
    let rows = Rows::new(path, file, arrays, &columns.places())?;
    Ok(Box::new(ColumnScan::new(columns, scan.vectors, scan.batch_bytes, Box::new(rows))))
}

/// Reads the rows of a file. Only the columns at `places` are read.
pub(super) fn tables(
    context: &Context,
    path: &Path,
    file: Arc<dyn ReadFile>,
    places: &[ColumnPlace],
    arrays: &Arc<Arrays>,
) -> Result<Tables> {
    let tops: Vec<usize> = places.iter().map(ColumnPlace::top_index).collect();
    let held = context.reserve(arrays.held_bytes(&tops), &format!("{}: some arrays", path.display()))?;
    Ok(Box::new(Holding::new(Box::new(Rows::new(path, file, arrays, places)?), held)))
}

/// Returns the bytes that [`tables`] reserves, and refuses arrays that are no columns.
pub(super) fn tables_bytes(
    path: &Path,
    file: Arc<dyn ReadFile>,
    places: &[ColumnPlace],
    arrays: &Arc<Arrays>,
) -> Result<u64> {
    // Refuses arrays of other lengths when the source is opened, not in the middle of a scan.
    drop(Rows::new(path, file, arrays, places)?);
    let tops: Vec<usize> = places.iter().map(ColumnPlace::top_index).collect();
    Ok(arrays.held_bytes(&tops))
}

impl Arrays {
    fn read(path: &Path, file: Arc<dyn ReadFile>) -> Result<Self> {
        let bytes = file.len();
        let zip = Zip(file);
        let failed = |error: rawzip::Error| failed(path, "its directory", &io::Error::other(error));
        let mut buffer = vec![0; DIRECTORY_BYTES];
        let archive = ZipArchive::with_max_search_space(DIRECTORY_BYTES as u64);
        let archive = archive.locate_in_reader(zip.clone(), &mut buffer, bytes).map_err(|(_, error)| failed(error))?;
        let mut entries = archive.entries(&mut buffer);
        let mut arrays = Vec::new();
        while let Some(entry) = entries.next_entry().map_err(failed)? {
            // Other members are not arrays; NumPy skips them too.
            let name = String::from_utf8_lossy(entry.file_path().as_ref()).into_owned();
            let Some(name) = name.strip_suffix(".npy") else { continue };
            let wrong = |what: &str| refused(path, name, what);
            let is_deflated = match entry.compression_method() {
                _ if entry.flags().is_encrypted() => return Err(wrong("is encrypted; save it again with np.savez")),
                CompressionMethod::STORE => false,
                CompressionMethod::DEFLATE => true,
                _ => {
                    return Err(wrong("is neither stored nor deflated; save it with np.savez or np.savez_compressed"));
                }
            };
            let (bytes, crc, found) = (entry.uncompressed_size_hint(), entry.crc32(), entry.wayfinder());
            let (start, end) = archive.get_entry(found).map_err(failed)?.compressed_data_range();
            let stored = end.saturating_sub(start);
            // Checked before anything is allocated: a small file may claim any size.
            let is_possible = if is_deflated { bytes / GROWTH_MAX <= stored } else { bytes == stored };
            if end > archive.get_ref().0.len() || !is_possible {
                return Err(wrong("has not the bytes that the zip claims; it is damaged: save it again"));
            }
            if arrays.len() == ARRAYS_MAX {
                return Err(wrong("is one of too many arrays; 1,000 can be read"));
            }
            let member = Member { place: start..end, is_deflated, bytes, crc };
            // Headers are read now, since the directory does not state types and shapes.
            arrays.push(member.stored(path, name.to_owned(), &zip)?);
        }
        let field = |array: &Stored| Field::new(&array.name, array.data_type(), false);
        let schema = Arc::new(Schema::new(arrays.iter().map(field).collect::<Vec<_>>()));
        Ok(Self { arrays, schema, rows: 0 })
    }

    fn has_vectors(&self) -> bool {
        let is_vectors = |array: &Stored| {
            matches!(
                (&*array.header.descr, array.data_type()),
                ("<f4" | "<f2" | "<f8" | "|u1" | "|i1", DataType::FixedSizeList(_, _))
            )
        };
        self.arrays.iter().any(is_vectors)
    }

    /// Returns the error for a requested array that cannot be a column.
    pub(super) fn no_column(&self, path: &Path, options: &SourceOptions) -> Option<Error> {
        let named = |name: &str| self.arrays.iter().find(|array| array.name == name && array.data_type() == NO_COLUMN);
        let id = match &options.ids {
            IdChoice::Column(name) => named(name),
            IdChoice::IfThere => named("id"),
            IdChoice::RowNumbers => None,
        };
        let is_lists = |array: &&Stored| array.header.shape.len() > 1;
        let vector = match options.vector_column.as_deref() {
            Some(name) => named(name),
            None => self.arrays.iter().find(is_lists).filter(|_| !self.has_vectors()),
        };
        let (array, option) = vector
            .map(|array| (array, Argument::VectorColumn))
            .or_else(|| id.map(|array| (array, Argument::IdColumn)))?;
        Some(Error::input(message![
            format!(
                "{}: array {} has dtype {} and shape {:?}{}; vectors are rows of a 2-d array (in C order) of float32, float16, float64, \
                 uint8 or int8, ids a 1-d array of integers or of text (dtype <U); save it as such, or give ",
                path.display(),
                array.name,
                array.header.descr,
                array.header.shape,
                if array.header.fortran_order { " in Fortran order" } else { "" }
            ),
            option,
            " another array"
        ]))
    }
}

/// Place of an array in a zip.
struct Member {
    place: Range<u64>,
    is_deflated: bool,
    bytes: u64,
    crc: u32,
}

impl Member {
    /// Reads the array's header, and checks that it implies as many bytes as the directory states.
    fn stored(self, path: &Path, name: String, zip: &Zip) -> Result<Stored> {
        let Self { place, is_deflated, bytes, crc } = self;
        let mut stored = Stored { name, header: Header::default(), header_bytes: 0, place, is_deflated, bytes, crc };
        let mut reader = Values::at_start(path, &stored, zip.0.clone());
        let mut head = vec![0; bytes.min(npy::START_BYTES as u64) as usize];
        reader.read(&mut head)?;
        let wrong = |what: String| refused(path, &stored.name, &what);
        let range = npy::header_range(&head, bytes).map_err(wrong)?;
        let mut text = vec![0; (range.end - range.start) as usize];
        // the start is shorter in version 1, so some of the text has been read already
        let begun = (head.len() as u64).saturating_sub(range.start) as usize;
        let begun = begun.min(text.len());
        text[..begun].copy_from_slice(&head[range.start as usize..range.start as usize + begun]);
        reader.read(&mut text[begun..])?;
        let header = Header::read(&text).map_err(|what| refused(path, &stored.name, &what))?;
        let is_usual = header.descr.len() <= DTYPE_BYTES_MAX && header.shape.len() <= DIMENSIONS_OF_ARRAYS_MAX;
        if !is_usual || stored.name.len() > NAME_BYTES_MAX {
            let name: String = stored.name.chars().take(DTYPE_BYTES_MAX).collect();
            return Err(refused(path, &name, "has a name, a dtype or a shape that is longer than those of NumPy"));
        }
        (stored.header, stored.header_bytes) = (header, range.end);
        let values =
            || stored.rows().map_or(stored.header.element_bytes(), |rows| stored.row_bytes()?.checked_mul(rows));
        // nothing is read of arrays of unknown width
        match values() {
            Some(values) if values.checked_add(range.end) != Some(bytes) => Err(refused(
                path,
                &stored.name,
                &format!(
                    "has {bytes} bytes, and its header asks for {} with dtype {} and shape {:?}; save it again",
                    values.saturating_add(range.end),
                    stored.header.descr,
                    stored.header.shape
                ),
            )),
            _ => Ok(stored),
        }
    }
}

/// Returns the error for an invalid array.
pub(super) fn refused(path: &Path, array: &str, what: &str) -> Error {
    Error::input(format!("{}: array {array} {what}", path.display()))
}

fn failed(path: &Path, place: &str, error: &io::Error) -> Error {
    match device_error(error) {
        Some(error) => Error::device(error.to_string()),
        None => super::foreign::damaged(path, place, &error.to_string()),
    }
}

/// Returns the device's error beneath the errors of crates, if there is one.
fn device_error<'a>(error: &'a (dyn std::error::Error + 'static)) -> Option<&'a DeviceError> {
    let inner = error.downcast_ref::<io::Error>().and_then(|error| error.get_ref());
    let below = || error.source().and_then(device_error);
    error.downcast_ref().or_else(|| inner.and_then(|error| device_error(error))).or_else(below)
}

/// A file of the device, for the zip crate.
#[derive(Clone)]
struct Zip(Arc<dyn ReadFile>);

impl ReaderAt for Zip {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        // The crate expects a short read at the end of the file; the device reports an error there.
        let present = self.0.len().saturating_sub(offset).min(buffer.len() as u64) as usize;
        self.0.read_at(offset, &mut buffer[..present]).map_err(io::Error::other)?;
        Ok(present)
    }
}

/// The bytes of an array, header and values, read in order.
pub(super) struct Values {
    path: PathBuf,
    name: String,
    bytes: Bytes,
    crc: Crc,
    expected_crc: u32,
    left: u64,
}

enum Bytes {
    Stored(BufReader<RangeReader<Zip>>),
    Deflated(Box<DeflateDecoder<BufReader<RangeReader<Zip>>>>),
}

impl Values {
    /// Starts at the first byte of the header.
    pub(super) fn at_start(path: &Path, array: &Stored, file: Arc<dyn ReadFile>) -> Self {
        let range = RangeReader::new(Zip(file), array.place.clone());
        let stored = BufReader::with_capacity(BUFFER_BYTES, range);
        let bytes = match array.is_deflated {
            true => Bytes::Deflated(Box::new(DeflateDecoder::new(stored))),
            false => Bytes::Stored(stored),
        };
        let (path, name) = (path.to_owned(), array.name.clone());
        Self { path, name, bytes, crc: Crc::new(), expected_crc: array.crc, left: array.bytes }
    }

    /// Reads the next bytes, which must exist. Compares the checksum at the end of the array.
    pub(super) fn read(&mut self, buffer: &mut [u8]) -> Result<()> {
        let read = match &mut self.bytes {
            Bytes::Stored(bytes) => bytes.read_exact(buffer),
            Bytes::Deflated(bytes) => bytes.read_exact(buffer),
        };
        read.map_err(|error| failed(&self.path, &format!("array {}", self.name), &error))?;
        self.crc.update(buffer);
        self.left = self.left.saturating_sub(buffer.len() as u64);
        // The checksum covers all of the array, so values are passed on before it is known.
        if self.left == 0 && self.crc.sum() != self.expected_crc {
            let fault = "its checksum is not the one that the zip has";
            return Err(super::foreign::damaged(&self.path, format!("array {}", self.name), fault));
        }
        Ok(())
    }

    /// Skips bytes.
    pub(super) fn skip(&mut self, bytes: u64) -> Result<()> {
        // Reads instead of seeking: the checksum covers the skipped bytes too, and deflated ones cannot be skipped.
        let mut buffer = vec![0; bytes.min(BUFFER_BYTES as u64) as usize];
        let mut left = bytes;
        while left > 0 {
            let some = left.min(BUFFER_BYTES as u64) as usize;
            self.read(&mut buffer[..some])?;
            left -= some as u64;
        }
        Ok(())
    }
}

/// The rows of some arrays as tables.
struct Rows {
    columns: Vec<Column>,
    schema: SchemaRef,
    rows_at_once: u64,
    left: u64,
}

struct Column {
    values: Values,
    data_type: DataType,
    row_bytes: u64,
    /// Whether texts have four bytes per character (`<U`).
    is_wide: bool,
}

impl Rows {
    fn new(path: &Path, file: Arc<dyn ReadFile>, arrays: &Arrays, places: &[ColumnPlace]) -> Result<Self> {
        let rows = arrays.rows;
        let mut columns = Vec::with_capacity(places.len());
        for place in places {
            let array = &arrays.arrays[place.top_index()];
            let data_type = array.data_type();
            let row_bytes = array.row_bytes().filter(|_| data_type != NO_COLUMN);
            let Some(row_bytes) = row_bytes else {
                return Err(refused(
                    path,
                    &array.name,
                    &format!("has dtype {}, which is no column", array.header.descr),
                ));
            };
            if array.rows() != Some(rows) {
                let has = array.rows().unwrap_or(0);
                return Err(refused(
                    path,
                    &array.name,
                    &format!("has {has} rows, and there are {rows} vectors; save as many"),
                ));
            }
            let mut values = Values::at_start(path, array, file.clone());
            if rows > 0 {
                values.skip(array.header_bytes)?;
            }
            columns.push(Column { values, data_type, row_bytes, is_wide: array.header.descr.starts_with("<U") });
        }
        let row_bytes: u64 = columns.iter().map(|column| column.row_bytes).sum();
        // Rows of all columns together stay within the memory that was planned.
        let rows_at_once = (DECODED_BYTES / row_bytes.max(1)).clamp(1, DECODED_ROWS_MAX);
        let fields: Vec<FieldRef> =
            places.iter().map(|place| arrays.schema.fields()[place.top_index()].clone()).collect();
        Ok(Self { columns, schema: Arc::new(Schema::new(fields)), rows_at_once, left: rows })
    }

    fn next_table(&mut self) -> Result<Option<RecordBatch>> {
        let rows = self.left.min(self.rows_at_once);
        if rows == 0 {
            return Ok(None);
        }
        self.left -= rows;
        let columns: Vec<ArrayRef> =
            self.columns.iter_mut().map(|column| column.read(rows as usize)).collect::<Result<_>>()?;
        let options = RecordBatchOptions::new().with_row_count(Some(rows as usize));
        let table = RecordBatch::try_new_with_options(self.schema.clone(), columns, &options);
        Ok(Some(table.expect("columns are made for the schema")))
    }
}

impl Iterator for Rows {
    type Item = Result<RecordBatch>;

    fn next(&mut self) -> Option<Self::Item> {
        self.next_table().transpose()
    }
}

impl Column {
    fn read(&mut self, rows: usize) -> Result<ArrayRef> {
        let mut bytes = vec![0; rows * self.row_bytes as usize];
        self.values.read(&mut bytes)?;
        Ok(match &self.data_type {
            DataType::FixedSizeList(field, length) => {
                let values = numbers(field.data_type(), bytes);
                Arc::new(
                    FixedSizeListArray::try_new_with_length(field.clone(), *length, values, None, rows)
                        .expect("the bytes were checked against the shape"),
                )
            }
            DataType::Boolean => Arc::new(bytes.iter().map(|byte| Some(*byte != 0)).collect::<BooleanArray>()),
            DataType::Utf8 => {
                let width = self.row_bytes as usize;
                let text = |row: usize| self.text(&bytes[row * width..(row + 1) * width]);
                Arc::new(StringArray::from_iter_values((0..rows).map(text).collect::<Result<Vec<String>>>()?))
            }
            number => numbers(number, bytes),
        })
    }

    /// Decodes a text of fixed width, which is padded with zeros.
    fn text(&self, bytes: &[u8]) -> Result<String> {
        let characters = || {
            let (points, _) = bytes.as_chunks::<4>();
            points.iter().map(|point| char::from_u32(u32::from_le_bytes(*point))).collect::<Option<String>>()
        };
        let text = if self.is_wide { characters() } else { String::from_utf8(bytes.to_vec()).ok() };
        let no_text =
            || refused(&self.values.path, &self.values.name, "has a text that is not UTF-8; save it with dtype <U");
        // NumPy pads texts with zeros, so trailing zeros are not part of a text.
        Ok(text.ok_or_else(no_text)?.trim_end_matches('\0').to_owned())
    }
}

/// Converts bytes to numbers.
fn numbers(kind: &DataType, bytes: Vec<u8>) -> ArrayRef {
    fn of<T: ArrowPrimitiveType>(bytes: Vec<u8>) -> ArrayRef {
        let count = bytes.len() / size_of::<T::Native>();
        Arc::new(PrimitiveArray::<T>::new(ScalarBuffer::new(aligned(&bytes), 0, count), None))
    }
    macro_rules! numbers {
        ($t:ty) => {
            of::<$t>(bytes)
        };
    }
    downcast_primitive! {
        kind => (numbers),
        other => unreachable!("{other} is no number")
    }
}

/// Copies bytes to an address that is aligned for numbers of any size.
fn aligned(bytes: &[u8]) -> Buffer {
    // Values follow a header of any length, so they are rarely aligned in the buffer that was read.
    Buffer::from_slice_ref(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::fixtures::{Folder, error_of, read_all, try_read_all};
    use crate::source::{IdKind, Ids};
    use flate2::Compression;
    use flate2::write::DeflateEncoder;
    use rawzip::ZipArchiveWriter;
    use std::io::Write;

    /// Creates a file of arrays, each with its dtype, its shape and its bytes.
    fn npz(arrays: &[(&str, &str, &[u64], &[u8])], is_deflated: bool) -> Vec<u8> {
        let mut archive = ZipArchiveWriter::new(Vec::new());
        for (name, descr, shape, values) in arrays {
            let method = if is_deflated { CompressionMethod::DEFLATE } else { CompressionMethod::STORE };
            let name = format!("{name}.npy");
            let (mut entry, config) = archive.new_file(name.as_str()).compression_method(method).start().unwrap();
            let bytes = [npy::header_of(descr, shape).as_slice(), values].concat();
            let descriptor = if is_deflated {
                let mut writer = config.wrap(DeflateEncoder::new(&mut entry, Compression::default()));
                writer.write_all(&bytes).unwrap();
                let (encoder, descriptor) = writer.finish().unwrap();
                encoder.finish().unwrap();
                descriptor
            } else {
                let mut writer = config.wrap(&mut entry);
                writer.write_all(&bytes).unwrap();
                writer.finish().unwrap().1
            };
            entry.finish(descriptor).unwrap();
        }
        archive.finish().unwrap()
    }

    fn floats(count: u16) -> Vec<u8> {
        (0..count).flat_map(|value| f32::from(value).to_le_bytes()).collect()
    }

    fn wide(texts: &[&str], width: usize) -> Vec<u8> {
        let text = |text: &&str| -> Vec<u8> {
            let characters = text.chars().map(u32::from).chain(std::iter::repeat(0)).take(width);
            characters.flat_map(u32::to_le_bytes).collect()
        };
        texts.iter().flat_map(text).collect()
    }

    #[test]
    fn npz_rows_equal_the_array_with_its_ids_in_any_batch() {
        let folder = Folder::new();
        let vectors = floats(12);
        let texts = wide(&["a", "", "\u{e4}\u{1f600}b"], 4);
        let numbers: Vec<u8> = [7i64, -1, 9].iter().flat_map(|id| id.to_le_bytes()).collect();
        let arrays: [(&str, &str, &[u64], &[u8]); 4] = [
            ("number", "<i8", &[3], &numbers),
            ("v", "<f4", &[3, 4], &vectors),
            ("about", "<f4", &[1], &[0; 4]),
            ("id", "<U4", &[3], &texts),
        ];
        folder.write("v.npy", &[npy::header_of("<f4", &[3, 4]), vectors.clone()].concat());
        let plain = read_all(folder.open(&["v.npy"]).unwrap().as_ref(), 1 << 20).bytes;
        for is_deflated in [false, true] {
            folder.write("a.npz", &npz(&arrays, is_deflated));
            let source = folder.open(&["a.npz"]).unwrap();
            assert_eq!((source.info().rows, source.info().vectors.dimensions, source.info().ids), (3, 4, IdKind::Utf8));
            for batch_bytes in [1, 16, 1 << 20] {
                let all = read_all(source.as_ref(), batch_bytes);
                assert_eq!(all.bytes, plain);
                let Ids::Utf8(ids) = all.ids else { panic!("ids are texts") };
                assert_eq!(
                    [0, 1, 2].map(|k| ids.get(k).to_vec()),
                    ["a", "", "\u{e4}\u{1f600}b"].map(|id| id.as_bytes().to_vec())
                );
            }
            let ids = IdChoice::Column("number".into());
            let options = SourceOptions { ids, ..SourceOptions::default() };
            let all = read_all(folder.open_with(&["a.npz"], &options).unwrap().as_ref(), 100);
            assert!(matches!(all.ids, Ids::Int64(ids) if ids == [7, -1, 9]));
        }
    }

    #[test]
    fn faults_are_reported_with_a_remedy() {
        let folder = Folder::new();
        let values = floats(12);
        let one = |descr, shape, values: &[u8]| npz(&[("v", descr, shape, values)], false);
        let two = npz(&[("a", "<f4", &[3, 4], &values), ("b", "<f4", &[3, 4], &values)], true);
        let with_id =
            |descr, shape, ids: &[u8]| npz(&[("v", "<f4", &[3, 4], &values), ("id", descr, shape, ids)], true);
        let whole = one("<f4", &[3, 4], &values);
        let damage = |at: usize| {
            let mut bytes = whole.clone();
            bytes[at] ^= 1;
            bytes
        };
        let at_values = whole.windows(4).position(|bytes| bytes == 5f32.to_le_bytes()).unwrap();
        let bomb = npz(&[("v", "<f4", &[1 << 50, 4], &values)], true);
        let cases = [
            (two, "several columns hold vectors; pass vector-column NAME (one of: a, b)"),
            (one("<i8", &[3, 2], &[0; 48]), "array v has dtype <i8 and shape [3, 2]; vectors are rows of a 2-d array"),
            (one("<f4", &[2, 3, 2], &values), "array v has dtype <f4 and shape [2, 3, 2]; vectors"),
            (one("<f4", &[12], &values), "no column holds vectors"),
            (with_id("|O", &[3], b"pickled"), "array id has dtype |O and shape [3]"),
            (with_id("<i8", &[2], &[0; 16]), "array id has 2 rows, and there are 3 vectors"),
            (with_id("<U1", &[3], &[0xFF; 12]), "array id has a text that is not UTF-8"),
            (bomb, "array v has 176 bytes, and its header asks for"),
            (one("<f4", &[3, 5], &values), "its header asks for 188 with dtype <f4 and shape [3, 5]"),
            (damage(at_values), "its checksum is not the one that the zip has"),
            (damage(60), "array v"),
            (whole[..whole.len() / 2].to_vec(), "cannot read its directory"),
            (Vec::new(), "cannot read its directory"),
            (npz(&[], false), "no column holds vectors"),
        ];
        for (bytes, words) in cases {
            folder.write("a.npz", &bytes);
            let message = error_of(folder.open(&["a.npz"]).and_then(|source| try_read_all(source.as_ref(), 100)));
            assert!(message.contains(words) && message.contains("a.npz"), "{message}");
        }
        folder.write("a.npz", &npz(&[("v", "<f4", &[0, 4], &[]), ("id", "<i8", &[0], &[])], false));
        assert_eq!(folder.open(&["a.npz"]).unwrap().info().rows, 0);
    }
}
