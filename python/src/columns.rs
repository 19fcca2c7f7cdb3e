//! Columns passed from Python, written as a table that the engine reads.

use std::fs::File;
use std::io::BufWriter;
use std::path::PathBuf;
use std::sync::Arc;

use adjoin::{Error, Result};
use arrow_array::types::{ArrowPrimitiveType, Float16Type, Float32Type, Float64Type, Int8Type, UInt8Type};
use arrow_array::{
    Array, ArrayRef, BooleanArray, FixedSizeListArray, Float64Array, Int64Array, LargeStringArray, NullArray,
    PrimitiveArray, RecordBatch, StringArray,
};
use arrow_ipc::writer::StreamWriter;
use arrow_schema::{ArrowError, Field, Schema};
use pyo3::prelude::*;

use crate::run::raised;

/// A value of a column.
#[derive(FromPyObject)]
pub(crate) enum Value {
    Bool(bool),
    Integer(i64),
    Float(f64),
    Text(String),
}

/// A column of vectors or of values.
#[derive(FromPyObject)]
pub(crate) enum Column {
    /// The elements of all vectors in one buffer, little-endian; the NumPy name of their type; and the number of
    /// dimensions.
    Vectors(Vec<u8>, String, i32),
    /// Values, with `None` for missing ones.
    Values(Vec<Option<Value>>),
}

/// Writes named columns to an Arrow file.
#[pyfunction]
pub(crate) fn write_columns(py: Python<'_>, columns: Vec<(String, Column)>, path: PathBuf) -> PyResult<()> {
    let written = py.detach(|| {
        let (fields, arrays): (Vec<Field>, Vec<ArrayRef>) = columns
            .into_iter()
            .map(|(name, column)| {
                let array = array_of(&name, column)?;
                Ok((Field::new(name, array.data_type().clone(), true), array))
            })
            .collect::<Result<Vec<_>>>()?
            .into_iter()
            .unzip();
        let rows: Vec<String> = arrays.iter().map(|array| array.len().to_string()).collect();
        if rows.iter().any(|count| *count != rows[0]) {
            let rows = rows.join(", ");
            return Err(Error::input(format!("the columns given have {rows} rows; give as many of each")));
        }
        let schema = Arc::new(Schema::new(fields));
        let failed = |error: ArrowError| Error::device(format!("cannot write {}: {error}", path.display()));
        let file = File::create(&path).map_err(|error| failed(error.into()))?;
        let table = RecordBatch::try_new(schema.clone(), arrays).map_err(failed)?;
        let mut writer = StreamWriter::try_new(BufWriter::new(file), &schema).map_err(failed)?;
        writer.write(&table).and_then(|()| writer.finish()).map_err(failed)
    });
    written.map_err(|error| raised(py, &error))
}

fn array_of(name: &str, column: Column) -> Result<ArrayRef> {
    match column {
        Column::Values(values) => values_of(name, &values),
        Column::Vectors(bytes, element, dimensions) => {
            let elements: ArrayRef = match element.as_str() {
                "f2" => elements::<Float16Type, 2>(&bytes, <Float16Type as ArrowPrimitiveType>::Native::from_le_bytes),
                "f4" => elements::<Float32Type, 4>(&bytes, f32::from_le_bytes),
                "f8" => elements::<Float64Type, 8>(&bytes, f64::from_le_bytes),
                "u1" => elements::<UInt8Type, 1>(&bytes, u8::from_le_bytes),
                _ => elements::<Int8Type, 1>(&bytes, i8::from_le_bytes),
            };
            let field = Arc::new(Field::new("item", elements.data_type().clone(), false));
            let vectors = FixedSizeListArray::try_new(field, dimensions, elements, None);
            vectors.map(|vectors| Arc::new(vectors) as ArrayRef).map_err(|error| Error::input(error.to_string()))
        }
    }
}

fn elements<T: ArrowPrimitiveType, const N: usize>(bytes: &[u8], value: fn([u8; N]) -> T::Native) -> ArrayRef {
    let (elements, _) = bytes.as_chunks::<N>();
    Arc::new(PrimitiveArray::<T>::from_iter_values(elements.iter().map(|&element| value(element))))
}

/// Converts values to one Arrow type. If there are floats, integers are converted to floats too; an integer that
/// would be rounded is refused.
fn values_of(name: &str, values: &[Option<Value>]) -> Result<ArrayRef> {
    let kinds = [
        |value: &Value| matches!(value, Value::Bool(_)),
        |value: &Value| matches!(value, Value::Integer(_)),
        |value: &Value| matches!(value, Value::Integer(_) | Value::Float(_)),
        |value: &Value| matches!(value, Value::Text(_)),
    ];
    if values.iter().all(Option::is_none) {
        return Ok(Arc::new(NullArray::new(values.len())));
    }
    let values = || values.iter().map(Option::as_ref);
    match kinds.iter().position(|is_one| values().flatten().all(is_one)) {
        Some(0) => Ok(Arc::new(values().map(|value| value.and_then(Value::truth)).collect::<BooleanArray>())),
        Some(1) => Ok(Arc::new(values().map(|value| value.and_then(Value::integer)).collect::<Int64Array>())),
        Some(2) if let Some(integer) = values().flatten().find_map(Value::rounded) => Err(Error::input(format!(
            "column {name} of the source has fractions and {integer}, which a 64-bit float cannot represent; give \
             values of one type"
        ))),
        Some(2) => Ok(Arc::new(values().map(|value| value.and_then(Value::float)).collect::<Float64Array>())),
        Some(_) => {
            let texts = || values().map(|value| value.and_then(Value::text));
            let bytes: usize = texts().flatten().map(str::len).sum();
            // Offsets of 32 bits suffice for most columns.
            Ok(match i32::try_from(bytes) {
                Ok(_) => Arc::new(texts().collect::<StringArray>()) as ArrayRef,
                Err(_) => Arc::new(texts().collect::<LargeStringArray>()),
            })
        }
        None => {
            Err(Error::input(format!("column {name} of the source has values of several types; give those of one")))
        }
    }
}

impl Value {
    fn truth(&self) -> Option<bool> {
        if let Self::Bool(value) = *self { Some(value) } else { None }
    }

    fn integer(&self) -> Option<i64> {
        if let Self::Integer(value) = *self { Some(value) } else { None }
    }

    fn float(&self) -> Option<f64> {
        if let Self::Float(value) = *self { Some(value) } else { self.integer().map(|value| value as f64) }
    }

    /// Returns the integer if it changes when it is converted to a float.
    fn rounded(&self) -> Option<i64> {
        self.integer().filter(|&value| value as f64 as i128 != i128::from(value))
    }

    fn text(&self) -> Option<&str> {
        if let Self::Text(value) = self { Some(value) } else { None }
    }
}
