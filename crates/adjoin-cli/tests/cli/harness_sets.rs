//! Random sets of vectors with ids and columns, as Parquet files.

use std::fs::File;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use adjoin::Random;
use arrow_array::types::{ArrowPrimitiveType, Float32Type, Int8Type, UInt8Type};
use arrow_array::{ArrayRef, FixedSizeListArray, Int64Array, PrimitiveArray, RecordBatch, StringArray};
use arrow_schema::Field;
use parquet::arrow::ArrowWriter;
use parquet::file::properties::WriterProperties;

/// Number of rows of a row group.
const GROUP_ROWS: u64 = 500;
/// Number of rows of a cluster. They are near each other.
const CLUSTER_ROWS: u64 = 20;
/// Approximate number of vector elements in a set.
const ELEMENTS: u64 = 400_000;

/// Element types of vectors.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Element {
    F32,
    U8,
    I8,
}

/// Type of the ids.
#[derive(Debug, Clone, Copy)]
pub(crate) enum IdLength {
    Number,
    /// Texts with this number of bytes.
    Text(usize),
}

/// Size and types of a set.
#[derive(Debug)]
pub(crate) struct Shape {
    pub(crate) rows: u64,
    pub(crate) queries: u64,
    pub(crate) dimensions: usize,
    pub(crate) element: Element,
    pub(crate) ids: IdLength,
    /// Number of bytes per value of the text column; 0 if there is no such column.
    pub(crate) text_bytes: usize,
    /// Number of distinct vectors. The other vectors are copies of these.
    pub(crate) distinct: u64,
    /// Threshold. Most rows of a cluster are within it.
    pub(crate) eps: f64,
}

impl Element {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::F32 => "f32",
            Self::U8 => "u8",
            Self::I8 => "i8",
        }
    }
}

impl Shape {
    pub(crate) fn draw(random: &mut Random) -> Self {
        fn one<T: Copy>(random: &mut Random, of: &[T]) -> T {
            of[random.below(of.len() as u64) as usize]
        }
        let dimensions = one(random, &[8, 32, 128, 768]);
        let rows = (ELEMENTS / dimensions as u64).min(20_000) * one(random, &[1, 2, 4]);
        let ids = one(random, &[IdLength::Number, IdLength::Text(8), IdLength::Text(200), IdLength::Text(2_000)]);
        let rows = if matches!(ids, IdLength::Text(2_000)) { rows.min(8_000) } else { rows };
        // All copies of all rows of a cluster are pairs. 2,000 rows thus have millions of pairs.
        let of_copies = random.below(4) == 0;
        let rows = if of_copies { rows.min(2_000) } else { rows };
        Self {
            rows,
            queries: one(random, &[1, 20, 200]).min(rows),
            dimensions,
            element: one(random, &[Element::F32, Element::U8, Element::I8]),
            ids,
            text_bytes: one(random, &[0, 100, 3_000]),
            distinct: if of_copies { rows / 100 + 1 } else { rows },
            // Two vectors of a cluster differ in each element by the difference of two numbers with a standard
            // deviation of 2.
            eps: (dimensions as f64 * 8.0).sqrt(),
        }
    }

    /// Returns the option with which a folder keeps the columns of this set.
    pub(crate) fn columns(&self) -> &'static str {
        if self.text_bytes > 0 { "--columns number,text" } else { "--columns number" }
    }

    fn id(&self, row: u64) -> String {
        match self.ids {
            IdLength::Number => row.to_string(),
            IdLength::Text(bytes) => format!("{row:0>bytes$}"),
        }
    }

    /// Returns the elements of the vector of a row.
    fn vector(&self, row: u64, seed: u64) -> Vec<f32> {
        let number = row % self.distinct;
        let mut center = Random::new(number / CLUSTER_ROWS, "center");
        let mut noise = Random::new(seed << 40 | number, "noise");
        let element = |_| (center.below(160) as f32 + 48.0 + 2.0 * noise.rough_normal()).round();
        (0..self.dimensions).map(element).collect()
    }

    fn vectors<T: ArrowPrimitiveType>(
        &self,
        rows: std::ops::Range<u64>,
        seed: u64,
        convert: impl Fn(f32) -> T::Native,
    ) -> ArrayRef {
        let elements = rows.flat_map(|row| self.vector(row, seed)).map(convert);
        let elements = PrimitiveArray::<T>::from_iter_values(elements);
        let field = Arc::new(Field::new("item", T::DATA_TYPE, false));
        Arc::new(FixedSizeListArray::new(field, self.dimensions as i32, Arc::new(elements), None))
    }

    fn batch(&self, rows: std::ops::Range<u64>, seed: u64) -> RecordBatch {
        let ids: ArrayRef = match self.ids {
            IdLength::Number => Arc::new(Int64Array::from_iter_values(rows.clone().map(|row| row as i64))),
            IdLength::Text(_) => Arc::new(StringArray::from_iter_values(rows.clone().map(|row| self.id(row)))),
        };
        let vectors = match self.element {
            Element::F32 => self.vectors::<Float32Type>(rows.clone(), seed, |element| element),
            Element::U8 => self.vectors::<UInt8Type>(rows.clone(), seed, |element| element as u8),
            Element::I8 => self.vectors::<Int8Type>(rows.clone(), seed, |element| (element - 128.0) as i8),
        };
        let numbers = Int64Array::from_iter_values(rows.clone().map(|row| (row * 7_919 % 1_000) as i64));
        let bytes = self.text_bytes;
        let texts = StringArray::from_iter_values(rows.map(|row| format!("{:x<bytes$}", row * 31 % 1_009)));
        let columns: [(&str, ArrayRef); 4] =
            [("id", ids), ("vector", vectors), ("number", Arc::new(numbers)), ("text", Arc::new(texts))];
        RecordBatch::try_from_iter(columns).unwrap()
    }
}

/// Writes a range of the rows of a set as a Parquet file.
pub(crate) fn write_set(path: &Path, shape: &Shape, rows: Range<u64>, seed: u64) {
    let properties = WriterProperties::builder().set_max_row_group_row_count(Some(GROUP_ROWS as usize)).build();
    let mut writer = None;
    for start in rows.clone().step_by(GROUP_ROWS as usize) {
        let batch = shape.batch(start..rows.end.min(start + GROUP_ROWS), seed);
        let writer = writer.get_or_insert_with(|| {
            ArrowWriter::try_new(File::create(path).unwrap(), batch.schema(), Some(properties.clone())).unwrap()
        });
        writer.write(&batch).unwrap();
    }
    writer.expect("a set has rows").close().unwrap();
}
