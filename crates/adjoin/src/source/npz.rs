//! Reads NumPy's `.npz` files, which are zip files of arrays. Arrays with a value for each row are columns of a table.
//!
//! A two-dimensional array is a column of lists of a fixed length. A one-dimensional array is a column of numbers or
//! texts. The claims of an array's header are checked against its size in the zip file before they are used. Its
//! checksum is verified after its last byte was read.

use std::path::Path;
use std::sync::Arc;

use adjoin_device::ReadFile;
use arrow_array::{
    ArrayRef, ArrowPrimitiveType, BooleanArray, FixedSizeListArray, PrimitiveArray, RecordBatch, RecordBatchOptions,
    StringArray, downcast_primitive,
};
use arrow_buffer::{Buffer, ScalarBuffer};
use arrow_schema::{DataType, FieldRef, Schema, SchemaRef};

use super::columns::{ColumnScan, Holding, TableColumns, Tables};
use super::facts::{Facts, ScanMemory};
use super::nested::ColumnPlace;
use super::npy;
use super::npz_arrays::{Arrays, DIRECTORY_BYTES, NO_COLUMN, READER_BYTES, Values, refused};
use super::options::{ScanOptions, SourceOptions};
use super::vectors::VectorScan;
use crate::base::context::Context;
use crate::base::error::Result;

/// Maximum size of the rows that are decoded at a time, in bytes (unless one row is larger) and in rows.
const DECODED_BYTES: u64 = 1 << 20;
const DECODED_ROWS_MAX: u64 = 1 << 16;
/// Number of copies of rows in memory: as stored, as delivered, and buffers of texts that grow.
const DECODED_COPIES: u64 = 4;

impl Arrays {
    /// Returns the bytes held while the arrays at `places` are read.
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
    // Arrays are inspected one after the other, so only one reader and one header are in memory.
    let room = DIRECTORY_BYTES as u64 + READER_BYTES + npy::HEADER_BYTES_MAX;
    let _room = context.reserve_between_runs(room, &format!("{}: its arrays", path.display()))?;
    let mut arrays = Arrays::read(path, file.clone())?;
    let columns = TableColumns::choose(path, &arrays.schema, options);
    let columns = columns.map_err(|error| arrays.no_column(path, options).unwrap_or(error))?;
    // The array of vectors determines the number of rows. Other arrays are columns only if they have as many rows.
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

/// Reads the columns at `places` of all rows of a file.
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

/// Returns the bytes that [`tables`] reserves. Refuses arrays that cannot be columns.
pub(super) fn tables_bytes(
    path: &Path,
    file: Arc<dyn ReadFile>,
    places: &[ColumnPlace],
    arrays: &Arc<Arrays>,
) -> Result<u64> {
    // Refuses arrays with another number of rows when the source is opened, instead of in the middle of a scan.
    drop(Rows::new(path, file, arrays, places)?);
    let tops: Vec<usize> = places.iter().map(ColumnPlace::top_index).collect();
    Ok(arrays.held_bytes(&tops))
}

/// Iterator over the rows of some arrays, as tables.
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
                    &format!(
                        "has dtype {}, which is not supported for columns; name another array",
                        array.header.descr
                    ),
                ));
            };
            if array.rows() != Some(rows) {
                let has = array.rows().unwrap_or(0);
                return Err(refused(
                    path,
                    &array.name,
                    &format!("has {has} rows, but there are {rows} vectors; save one row per vector"),
                ));
            }
            let mut values = Values::at_start(path, array, file.clone());
            if rows > 0 {
                values.skip(array.header_bytes)?;
            }
            columns.push(Column { values, data_type, row_bytes, is_wide: array.header.descr.starts_with("<U") });
        }
        let row_bytes: u64 = columns.iter().map(|column| column.row_bytes).sum();
        // The rows of all columns together must fit in the memory that was planned.
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

    /// Decodes a text of fixed width, which NumPy pads with zeros.
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

/// Copies bytes to an address with sufficient alignment for numbers of any size.
fn aligned(bytes: &[u8]) -> Buffer {
    // In the buffer that was read, values follow a header of any length, so they are rarely aligned.
    Buffer::from_slice_ref(bytes)
}

#[cfg(test)]
mod tests {
    use rawzip::CompressionMethod;

    use super::super::options::IdChoice;
    use super::*;
    use crate::source::fixtures::{Folder, error_of, read_all, try_read_all};
    use crate::source::{IdKind, Ids};
    use flate2::Compression;
    use flate2::write::DeflateEncoder;
    use rawzip::ZipArchiveWriter;
    use std::io::Write;

    /// Creates a file from arrays. Each has a name, a dtype, a shape, and its bytes.
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
            (with_id("<i8", &[2], &[0; 16]), "array id has 2 rows, but there are 3 vectors"),
            (with_id("<U1", &[3], &[0xFF; 12]), "array id has a text that is not UTF-8"),
            (bomb, "array v has 176 bytes, but its header states"),
            (one("<f4", &[3, 5], &values), "its header states 188 with dtype <f4 and shape [3, 5]"),
            (damage(at_values), "checksum mismatch"),
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
