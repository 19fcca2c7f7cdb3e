//! Arrow batches in temporary files: tables from Python, and pairs for Python.

use std::fs::File;
use std::io::{BufReader, BufWriter};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use adjoin::{Context, Error, IdKind, Ids, PairBatch, PairSchema, PairSink, Predicate, Result, Written};
use arrow_array::cast::AsArray;
use arrow_array::types::{Float32Type, Int64Type, UInt64Type};
use arrow_array::{
    Array, ArrayRef, BooleanArray, Float32Array, OffsetSizeTrait, RecordBatch, RecordBatchOptions, UInt64Array,
};
use arrow_cast::cast;
use arrow_ipc::reader::StreamReader;
use arrow_ipc::writer::StreamWriter;
use arrow_schema::{ArrowError, DataType, Field, FieldRef, Fields, Schema, SchemaRef};
use arrow_select::filter::filter_record_batch;
use pyo3::exceptions::PyOSError;
use pyo3::prelude::*;
use pyo3_arrow::PyRecordBatchReader;
use pyo3_arrow::input::AnyArray;

use crate::options::StoreOptions;
use crate::run::raised;

/// Approximate bytes of a batch in a file. The engine holds two of them while it reads.
const BATCH_BYTES: usize = 8 << 20;

/// Name of a table in messages.
const TABLE: &str = "the table given";

/// Name of the vector column of an array.
const VECTORS: &str = "vector";

/// Writes a table, or an array of lists, to an Arrow stream in batches of moderate size. Writes all columns, or only
/// those that the engine reads. Returns the name of the source in messages.
///
/// The format is a stream, since the parts of a categorical column may have different dictionaries, which an Arrow
/// file does not allow.
#[pyfunction]
pub(crate) fn spool(
    py: Python<'_>,
    source: AnyArray,
    path: PathBuf,
    options: StoreOptions,
    whole: bool,
) -> PyResult<&'static str> {
    let reader = source.into_reader()?;
    py.detach(|| {
        let field = reader.field();
        let (name, schema) = match field.data_type() {
            DataType::Struct(fields) => (TABLE, Schema::new(fields.clone())),
            vectors => ("the array given", Schema::new(vec![Field::new(VECTORS, vectors.clone(), true)])),
        };
        // A whole table need not have vectors. The engine checks its columns.
        let columns = match whole {
            true => Ok((0..schema.fields().len()).collect()),
            false => options.columns_read(name, &schema),
        };
        let columns = columns.map_err(|error| Python::attach(|py| raised(py, &error)))?;
        let file = BufWriter::new(File::create(&path).map_err(|error| spool_failed(&path, &error))?);
        let read = schema.project(&columns).map_err(|error| spool_failed(&path, &error))?;
        let (read, schema) = (Arc::new(schema_without_views(&read)), Arc::new(schema));
        let mut writer = StreamWriter::try_new(file, &read).map_err(|error| spool_failed(&path, &error))?;
        for part in reader {
            let cannot_read = |error: ArrowError| PyOSError::new_err(format!("cannot read {name}: {error}"));
            let batch = part.and_then(|part| batch_of(part, &schema)?.project(&columns)).map_err(cannot_read)?;
            let rows = (BATCH_BYTES / row_bytes(&batch)).max(1);
            for start in (0..batch.num_rows()).step_by(rows) {
                Python::attach(|py| py.check_signals())?;
                let part = batch.slice(start, rows.min(batch.num_rows() - start));
                let part = without_views(&part, &read).map_err(cannot_read)?;
                writer.write(&part).map_err(|error| spool_failed(&path, &error))?;
            }
        }
        writer.finish().map_err(|error| spool_failed(&path, &error))?;
        Ok(name)
    })
}

/// Returns the names of the columns of a table that the engine reads.
#[pyfunction]
pub(crate) fn columns(py: Python<'_>, table: PyRecordBatchReader, options: StoreOptions) -> PyResult<Vec<String>> {
    let schema = table.schema_ref()?;
    let columns = options.columns_read(TABLE, &schema);
    let columns = columns.map_err(|error| raised(py, &error))?;
    Ok(columns.into_iter().map(|column| schema.field(column).name().clone()).collect())
}

/// Converts a part of a table or of an array to a batch of rows.
fn batch_of(part: ArrayRef, schema: &SchemaRef) -> std::result::Result<RecordBatch, ArrowError> {
    match part.as_struct_opt() {
        Some(rows) if rows.null_count() > 0 => {
            Err(ArrowError::InvalidArgumentError("it has rows that are null".into()))
        }
        Some(rows) => RecordBatch::try_new_with_options(
            schema.clone(),
            rows.columns().to_vec(),
            &RecordBatchOptions::new().with_row_count(Some(rows.len())),
        ),
        None => RecordBatch::try_new(schema.clone(), vec![part]),
    }
}

/// Replaces list views in a schema by plain lists, since a slice of list views would be written with the elements of
/// all rows.
fn schema_without_views(schema: &Schema) -> Schema {
    let plain = |field: &FieldRef| match field.data_type() {
        DataType::ListView(values) | DataType::LargeListView(values) => {
            Arc::new(field.as_ref().clone().with_data_type(DataType::LargeList(values.clone())))
        }
        _ => field.clone(),
    };
    Schema::new_with_metadata(schema.fields().iter().map(plain).collect::<Fields>(), schema.metadata().clone())
}

/// Converts a part of a table to the schema without list views.
fn without_views(part: &RecordBatch, schema: &SchemaRef) -> std::result::Result<RecordBatch, ArrowError> {
    if part.schema_ref().fields() == schema.fields() {
        return Ok(part.clone());
    }
    let plain = |(column, field): (&ArrayRef, &FieldRef)| match column.data_type() == field.data_type() {
        true => Ok(column.clone()),
        false => cast(column, field.data_type()),
    };
    let columns = part.columns().iter().zip(schema.fields()).map(plain).collect::<std::result::Result<_, _>>()?;
    let rows = RecordBatchOptions::new().with_row_count(Some(part.num_rows()));
    RecordBatch::try_new_with_options(schema.clone(), columns, &rows)
}

/// Returns the approximate bytes per row. Buffer sizes cannot be used, since the buffers of a slice contain the rows
/// of the whole table.
fn row_bytes(batch: &RecordBatch) -> usize {
    let elements = |column: &ArrayRef| {
        if let Some(lists) = column.as_fixed_size_list_opt() {
            return lists.len() * lists.value_length() as usize;
        }
        let small = column.as_list_opt::<i32>().map(|lists| spanned(lists.value_offsets()));
        let large = || column.as_list_opt::<i64>().map(|lists| spanned(lists.value_offsets()));
        let view = || column.as_list_view_opt::<i32>().map(|lists| sum(lists.value_sizes()));
        let large_view = || column.as_list_view_opt::<i64>().map(|lists| sum(lists.value_sizes()));
        small.or_else(large).or_else(view).or_else(large_view).unwrap_or(column.len())
    };
    let all: usize = batch.columns().iter().map(elements).sum();
    (all * size_of::<f64>() / batch.num_rows().max(1)).max(1)
}

/// Returns the sum of list sizes.
fn sum<O: OffsetSizeTrait>(sizes: &[O]) -> usize {
    sizes.iter().map(|size| size.as_usize()).sum()
}

/// Returns the number of elements between the first offset and the last.
fn spanned<O: OffsetSizeTrait>(offsets: &[O]) -> usize {
    offsets.last().zip(offsets.first()).map_or(0, |(&end, &start)| (end - start).as_usize())
}

fn spool_failed(path: &Path, error: &dyn std::error::Error) -> PyErr {
    let error = format!("cannot write {}: {error}; name a folder with room as temporary", path.display());
    Python::attach(|py| raised(py, &Error::device(error)))
}

/// Columns of row numbers in a file of pairs. The columns that Python gets follow them.
const ROW_COLUMNS: [&str; 2] = ["left_row", "right_row"];
/// Number of columns if at least one set has ids. If the other set has none, its id column has row numbers.
const WITH_IDS: usize = 5;

/// Writes pairs with rows and ids to a file that can be read repeatedly.
pub(crate) struct PairFileWriter {
    path: PathBuf,
    writer: StreamWriter<BufWriter<File>>,
    schema: SchemaRef,
    rows: u64,
}

impl PairFileWriter {
    pub(crate) fn create(path: &Path, PairSchema { ids: kinds, metric, .. }: PairSchema) -> Result<Self> {
        let mut fields: Vec<Field> = ROW_COLUMNS.map(|name| Field::new(name, DataType::UInt64, false)).into();
        if kinds != [IdKind::None; 2] {
            fields.extend(PairSchema::ID_COLUMNS.into_iter().zip(kinds).map(|(name, kind)| kind.field(name)));
        }
        fields.push(metric.value_field());
        let schema = Arc::new(Schema::new(fields));
        let file = File::create(path).map_err(|error| failed(path, error))?;
        let writer = StreamWriter::try_new(BufWriter::new(file), &schema).map_err(|error| failed(path, error))?;
        Ok(Self { path: path.to_owned(), writer, schema, rows: 0 })
    }
}

fn failed(path: &Path, error: impl std::error::Error + Send + Sync + 'static) -> Error {
    Error::device(format!("cannot write {}: {error}", path.display())).caused_by(error)
}

impl PairSink for PairFileWriter {
    fn wants_ids(&self) -> bool {
        true
    }

    fn accept(&mut self, batch: &PairBatch) -> Result<()> {
        self.rows += batch.len() as u64;
        let mut columns: Vec<ArrayRef> = Vec::with_capacity(5);
        for rows in [&batch.left_rows, &batch.right_rows] {
            columns.push(Arc::new(UInt64Array::from(rows.clone())));
        }
        if self.schema.fields().len() == WITH_IDS {
            columns.push(batch.left_ids.column(&batch.left_rows));
            columns.push(batch.right_ids.column(&batch.right_rows));
        }
        columns.push(Arc::new(Float32Array::from(batch.values.clone())));
        let columns = RecordBatch::try_new(self.schema.clone(), columns).expect("columns are made for the schema");
        self.writer.write(&columns).map_err(|error| failed(&self.path, error))
    }

    fn finish(mut self: Box<Self>) -> Result<Written> {
        self.writer.finish().map_err(|error| failed(&self.path, error))?;
        let file = self.writer.into_inner().map_err(|error| failed(&self.path, error))?;
        let file = file.into_inner().map_err(|error| failed(&self.path, error.into_error()))?;
        let bytes = file.metadata().map_err(|error| failed(&self.path, error))?.len();
        Ok(Written { rows: self.rows, bytes, ..Written::default() })
    }
}

/// Reads a file of pairs.
struct PairFile {
    path: PathBuf,
    reader: StreamReader<BufReader<File>>,
}

impl PairFile {
    fn open(path: &Path) -> Result<Self> {
        let cannot = |error: String| Error::device(format!("cannot read {}: {error}", path.display()));
        let file = File::open(path).map_err(|error| cannot(error.to_string()))?;
        let reader = StreamReader::try_new(BufReader::new(file), None).map_err(|error| cannot(error.to_string()))?;
        Ok(Self { path: path.to_owned(), reader })
    }
}

/// Streams the pairs for Python, with ids, or with row numbers if there are no ids.
pub(crate) fn stream(path: &Path) -> Result<PyRecordBatchReader> {
    let PairFile { reader, .. } = PairFile::open(path)?;
    let all = reader.schema();
    let has_ids = all.fields().len() == WITH_IDS;
    let columns: Vec<usize> = if has_ids { vec![2, 3, 4] } else { vec![0, 1, 2] };
    let [left, right] = PairSchema::ID_COLUMNS;
    let names = [left, right, all.field(all.fields().len() - 1).name()];
    let fields = columns.iter().zip(names).map(|(&k, name)| all.field(k).clone().with_name(name));
    let schema = Arc::new(Schema::new(fields.collect::<Vec<_>>()));
    let wanted = schema.clone();
    let batches = reader.map(move |batch| {
        let columns = batch?.project(&columns)?.columns().to_vec();
        RecordBatch::try_new(wanted.clone(), columns)
    });
    Ok(PyRecordBatchReader::new(Box::new(arrow_array::RecordBatchIterator::new(batches, schema))))
}

/// Copies the pairs within a predicate to another file. Returns their number. Distances and similarities are compared as
/// they are reported, as f32.
pub(crate) fn copy_within(context: &Context, from: &Path, to: &Path, predicate: Predicate) -> Result<u64> {
    let is_within = |value: f32| match predicate {
        Predicate::L2 { eps } => value <= eps as f32,
        Predicate::Cosine { min_similarity } => value >= min_similarity as f32,
        Predicate::InnerProduct { .. } => unreachable!("inner products are not joined"),
    };
    let (PairFile { path, reader }, mut count) = (PairFile::open(from)?, 0);
    let cannot_write = |error: ArrowError| failed(to, error);
    let file = File::create(to).map_err(|error| failed(to, error))?;
    let mut writer = StreamWriter::try_new(BufWriter::new(file), &reader.schema()).map_err(cannot_write)?;
    for batch in reader {
        context.cancel.check()?;
        let batch = batch.map_err(|error| Error::device(format!("cannot read {}: {error}", path.display())))?;
        let values = batch.column(batch.num_columns() - 1).as_primitive::<Float32Type>().values();
        let within: BooleanArray = values.iter().map(|&value| Some(is_within(value))).collect();
        let batch = filter_record_batch(&batch, &within).expect("a value for each pair");
        count += batch.num_rows() as u64;
        writer.write(&batch).map_err(cannot_write)?;
    }
    writer.finish().map_err(cannot_write)?;
    Ok(count)
}

/// Passes the pairs of a file to a sink, with ids if the sink needs them and they exist.
pub(crate) fn replay(context: &Context, path: &Path, sink: &mut dyn PairSink) -> Result<()> {
    let PairFile { path, reader } = PairFile::open(path)?;
    for batch in reader {
        context.cancel.check()?;
        let batch = batch.map_err(|error| Error::device(format!("cannot read {}: {error}", path.display())))?;
        let rows = |column: usize| batch.column(column).as_primitive::<UInt64Type>().values().to_vec();
        let values = batch.column(batch.num_columns() - 1).as_primitive::<Float32Type>().values().to_vec();
        let has_ids = batch.num_columns() == WITH_IDS && sink.wants_ids();
        let ids = |column: usize| if has_ids { ids_of(batch.column(column)) } else { Ids::None };
        let (left_rows, right_rows, left_ids, right_ids) = (rows(0), rows(1), ids(2), ids(3));
        sink.accept(&PairBatch { left_rows, right_rows, left_ids, right_ids, values })?;
    }
    Ok(())
}

/// Converts a column written by [`id_column`] back to ids.
fn ids_of(column: &ArrayRef) -> Ids {
    if column.data_type() == &DataType::UInt64 {
        return Ids::None;
    }
    if let Some(numbers) = column.as_primitive_opt::<Int64Type>() {
        return Ids::Int64(numbers.values().to_vec());
    }
    column.as_string::<i32>().iter().flatten().collect()
}
