//! The arrays of an `.npz` file: the directory of the file, and the headers and bytes of its arrays.

use std::io::{self, BufReader, Read};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use adjoin_device::{DeviceError, ReadFile};
use arrow_schema::{DataType, Field, Schema, SchemaRef};
use flate2::Crc;
use flate2::bufread::DeflateDecoder;
use rawzip::{CompressionMethod, RangeReader, ReaderAt, ZipArchive};

use super::npy::{self, Header};
use super::options::{IdChoice, SourceOptions};
use crate::base::error::{Error, Result};
use crate::base::message::{Argument, message};

/// Maximum number of arrays in a file, and maximum number of bytes in a row of an array.
const ARRAYS_MAX: usize = 1_000;
const ROW_BYTES_MAX: u64 = 16 << 20;
/// Size of the pieces in which the directory is read, in bytes. Each piece has at least one entry.
pub(super) const DIRECTORY_BYTES: usize = 128 << 10;
/// Memory for reading an array, in bytes: a buffer, and the state of the decompression.
const BUFFER_BYTES: usize = 64 << 10;
pub(super) const READER_BYTES: u64 = BUFFER_BYTES as u64 + (96 << 10);
/// Limits on the facts about an array: bytes of its name and its dtype, and number of its dimensions.
const NAME_BYTES_MAX: usize = 1_000;
const DTYPE_BYTES_MAX: usize = 100;
const DIMENSIONS_OF_ARRAYS_MAX: usize = 64;
/// Upper bound on the compression ratio of deflate.
const GROWTH_MAX: u64 = 1_040;

/// Type that marks arrays that cannot be columns. Columns never have this type.
pub(super) const NO_COLUMN: DataType = DataType::Binary;

/// Contents of a file's directory and of the headers of its arrays.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Arrays {
    pub(super) arrays: Vec<Stored>,
    pub(super) schema: SchemaRef,
    pub(super) rows: u64,
}

/// An array in a file.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Stored {
    pub(super) name: String,
    pub(super) header: Header,
    /// Size of its header, which precedes the values.
    pub(super) header_bytes: u64,
    place: Range<u64>,
    pub(super) is_deflated: bool,
    /// Decompressed size in bytes, including the header.
    pub(super) bytes: u64,
    crc: u32,
}

impl Stored {
    /// Returns the size of a row in bytes. Returns `None` if the dtype does not state the size of an element.
    pub(super) fn row_bytes(&self) -> Option<u64> {
        let width = self.header.element_bytes()?;
        self.header.shape.get(1..)?.iter().try_fold(width, |bytes, length| bytes.checked_mul(*length))
    }

    /// Returns the number of rows, which is the first dimension.
    pub(super) fn rows(&self) -> Option<u64> {
        self.header.shape.first().copied()
    }

    /// Returns whether the values of a row are not contiguous, as in Fortran order.
    pub(super) fn is_by_columns(&self) -> bool {
        self.header.fortran_order && self.header.shape.len() > 1
    }

    /// Returns the type of the array as a column.
    pub(super) fn data_type(&self) -> DataType {
        let element = element_type(&self.header.descr);
        match (&self.header.shape[..], element) {
            // A row is read as a whole, so its size is checked first.
            _ if self.row_bytes().is_none_or(|bytes| bytes > ROW_BYTES_MAX) => NO_COLUMN,
            ([_], Some(element)) => element,
            // In Fortran order, the values of a row are not contiguous, but the array is read from front to back.
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

/// Returns the type of numbers or texts that a dtype describes, if it is supported.
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
    /// Returns the schema of all arrays.
    pub(super) fn schema(&self) -> SchemaRef {
        self.schema.clone()
    }

    /// Returns all arrays, in order.
    pub(super) fn all(&self) -> &[Stored] {
        &self.arrays
    }

    /// Iterates over the arrays that have as many rows as there are vectors.
    pub(super) fn of_rows(&self) -> impl Iterator<Item = &Stored> {
        self.arrays.iter().filter(|array| array.rows() == Some(self.rows))
    }

    /// Reads the directory and the headers of a file.
    pub(super) fn read(path: &Path, file: Arc<dyn ReadFile>) -> Result<Self> {
        let bytes = file.len();
        let zip = Zip(file);
        let failed = |error: rawzip::Error| failed(path, "its directory", &io::Error::other(error));
        let mut buffer = vec![0; DIRECTORY_BYTES];
        let archive = ZipArchive::with_max_search_space(DIRECTORY_BYTES as u64);
        let archive = archive.locate_in_reader(zip.clone(), &mut buffer, bytes).map_err(|(_, error)| failed(error))?;
        let mut entries = archive.entries(&mut buffer);
        let mut arrays = Vec::new();
        while let Some(entry) = entries.next_entry().map_err(failed)? {
            // Members with other names are not arrays. NumPy skips them, too.
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
            // Checked before anything is allocated, since a small file may claim any size.
            let is_possible = if is_deflated { bytes / GROWTH_MAX <= stored } else { bytes == stored };
            if end > archive.get_ref().0.len() || !is_possible {
                return Err(wrong("does not have the size that the zip states; it is damaged: save it again"));
            }
            if arrays.len() == ARRAYS_MAX {
                return Err(wrong("is beyond the 1,000 arrays that can be read; save fewer arrays"));
            }
            let member = Member { place: start..end, is_deflated, bytes, crc };
            // Headers are read now, because the directory does not state types and shapes.
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

    /// Returns the error for an array that the options choose although it cannot be a column. Returns `None` if there
    /// is no such array.
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

/// Location and size of an array in a zip file.
struct Member {
    place: Range<u64>,
    is_deflated: bool,
    bytes: u64,
    crc: u32,
}

impl Member {
    /// Reads the header of the array. Checks that it implies the size that the directory states.
    fn stored(self, path: &Path, name: String, zip: &Zip) -> Result<Stored> {
        let Self { place, is_deflated, bytes, crc } = self;
        let mut stored = Stored { name, header: Header::default(), header_bytes: 0, place, is_deflated, bytes, crc };
        let mut reader = Values::at_start(path, &stored, zip.0.clone());
        let mut head = vec![0; bytes.min(npy::START_BYTES as u64) as usize];
        reader.read(&mut head)?;
        let wrong = |what: String| refused(path, &stored.name, &what);
        let range = npy::header_range(&head, bytes).map_err(wrong)?;
        let mut text = vec![0; (range.end - range.start) as usize];
        // The fields before the text are shorter in version 1.0, so a part of the text may have been read already.
        let begun = (head.len() as u64).saturating_sub(range.start) as usize;
        let begun = begun.min(text.len());
        text[..begun].copy_from_slice(&head[range.start as usize..range.start as usize + begun]);
        reader.read(&mut text[begun..])?;
        let header = Header::read(&text).map_err(|what| refused(path, &stored.name, &what))?;
        let is_usual = header.descr.len() <= DTYPE_BYTES_MAX && header.shape.len() <= DIMENSIONS_OF_ARRAYS_MAX;
        if !is_usual || stored.name.len() > NAME_BYTES_MAX {
            let name: String = stored.name.chars().take(DTYPE_BYTES_MAX).collect();
            return Err(refused(path, &name, "has a longer name, dtype or shape than NumPy writes; save it again"));
        }
        (stored.header, stored.header_bytes) = (header, range.end);
        let values =
            || stored.rows().map_or(stored.header.element_bytes(), |rows| stored.row_bytes()?.checked_mul(rows));
        // If the size of an element is unknown, the array is never read, so its size does not matter.
        match values() {
            Some(values) if values.checked_add(range.end) != Some(bytes) => Err(refused(
                path,
                &stored.name,
                &format!(
                    "has {bytes} bytes, but its header states {} with dtype {} and shape {:?}; save it again",
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

/// Searches an error and its causes for an error of the device.
fn device_error<'a>(error: &'a (dyn std::error::Error + 'static)) -> Option<&'a DeviceError> {
    let inner = error.downcast_ref::<io::Error>().and_then(|error| error.get_ref());
    let below = || error.source().and_then(device_error);
    error.downcast_ref().or_else(|| inner.and_then(|error| device_error(error))).or_else(below)
}

/// Adapter of a file of the device for the zip crate.
#[derive(Clone)]
struct Zip(Arc<dyn ReadFile>);

impl ReaderAt for Zip {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        // The crate expects a short read at the end of the file, but the device would report an error.
        let present = self.0.len().saturating_sub(offset).min(buffer.len() as u64) as usize;
        self.0.read_at(offset, &mut buffer[..present]).map_err(io::Error::other)?;
        Ok(present)
    }
}

/// Reader of the bytes of an array: first its header, then its values.
pub(super) struct Values {
    pub(super) path: PathBuf,
    pub(super) name: String,
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
    /// Creates a reader at the first byte of the header.
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

    /// Reads the next bytes, which must exist. After the last byte of the array, verifies the checksum.
    pub(super) fn read(&mut self, buffer: &mut [u8]) -> Result<()> {
        let read = match &mut self.bytes {
            Bytes::Stored(bytes) => bytes.read_exact(buffer),
            Bytes::Deflated(bytes) => bytes.read_exact(buffer),
        };
        read.map_err(|error| failed(&self.path, &format!("array {}", self.name), &error))?;
        self.crc.update(buffer);
        self.left = self.left.saturating_sub(buffer.len() as u64);
        // The checksum covers the whole array, so values are returned before it can be verified.
        if self.left == 0 && self.crc.sum() != self.expected_crc {
            let fault = "checksum mismatch";
            return Err(super::foreign::damaged(&self.path, format!("array {}", self.name), fault));
        }
        Ok(())
    }

    /// Skips the next `bytes` bytes.
    pub(super) fn skip(&mut self, bytes: u64) -> Result<()> {
        // Reads the bytes instead of seeking, since the checksum covers them and deflate streams cannot be skipped.
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
