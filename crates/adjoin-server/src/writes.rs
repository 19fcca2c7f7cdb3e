//! Rows of a live index that come and go.

use std::path::PathBuf;
use std::sync::Arc;

use adjoin::context::Context;
use adjoin::error::{Error, Result};
use adjoin::live::{Attribute, Collection, Durability, Write, Written};
use adjoin::options::{Element, VectorType};
use adjoin::report::Cancel;
use adjoin::source::{AttributeTables, IdKind, Ids, SourceAttributes, SourceInfo, VectorScan, VectorSource};
use adjoin::sql::Condition;
use arrow_array::RecordBatch;
use arrow_json::ReaderBuilder;
use arrow_schema::{ArrowError, Field, Schema, SchemaRef};
use axum::http::StatusCode;
use half::f16;
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::ids::GivenIds;
use crate::json::{self, Vectors};
use crate::problem::Problem;
use crate::request::{Part, Together};

/// How many times its bytes a body of rows takes until these are in the log: `{}` becomes a reference to it.
pub(crate) const WRITE_TIMES: u64 = 12;
/// How messages call the rows of a request.
const ROWS: &str = "vectors";

/// Returns the answer to a write that failed. If `is_alone`, nothing else took memory meanwhile, so the budget is too small;
/// otherwise the client may send the write again. `log_failed` if the log cannot be written now, for example on a full disk.
pub(crate) fn problem_of(error: &Problem, is_alone: bool, log_failed: bool) -> Problem {
    match error.status {
        StatusCode::INTERNAL_SERVER_ERROR if log_failed => Problem::unavailable(error.detail.clone()),
        StatusCode::INSUFFICIENT_STORAGE if !is_alone => {
            Problem::crowded("other writes and merges take the memory that this one needs; write it again later", 1)
        }
        // The write waited in vain and changed nothing.
        StatusCode::GATEWAY_TIMEOUT => {
            Problem::unavailable("merges are behind, or others hold the memory for this write; write it again later")
        }
        StatusCode::SERVICE_UNAVAILABLE => Problem::draining(),
        _ => error.clone(),
    }
}

/// Rows that come.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Coming<'a> {
    vectors: Vectors,
    #[serde(default)]
    ids: GivenIds,
    /// An object for each row.
    #[serde(borrow)]
    attributes: Option<Vec<&'a RawValue>>,
    #[serde(default)]
    put: PutName,
    #[serde(default)]
    durability: DurabilityName,
}

/// Rows that go: those of some ids, or those that meet a condition.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Going {
    ids: Option<GivenIds>,
    r#where: Option<String>,
    #[serde(default)]
    durability: DurabilityName,
}

#[derive(Default, Clone, Copy, Deserialize)]
#[serde(rename_all = "lowercase")]
enum PutName {
    #[default]
    Upsert,
    Insert,
}

#[derive(Default, Clone, Copy, Deserialize)]
#[serde(rename_all = "lowercase")]
enum DurabilityName {
    #[default]
    Group,
    Buffered,
}

impl From<DurabilityName> for Durability {
    fn from(name: DurabilityName) -> Self {
        match name {
            DurabilityName::Group => Self::Group,
            DurabilityName::Buffered => Self::Buffered,
        }
    }
}

/// Writes the rows that a body in JSON has.
///
/// # Errors
/// Where the body is not as expected, or as [`Collection::write`].
pub(crate) fn put(collection: &Collection, body: &[u8], cancel: &Cancel) -> std::result::Result<Written, Problem> {
    let coming: Coming<'_> = json::parse(body)?;
    let manifest = collection.manifest();
    let Vectors { rows, kind, stored } = coming.vectors;
    let given = coming.ids.0.len();
    if coming.ids.0.kind() != manifest.ids || given != rows {
        let kind = if manifest.ids == IdKind::Utf8 { "a text" } else { "an integer" };
        return Err(Problem::bad_request(format!("{rows} vectors have {given} ids; give {kind} for each in `ids`")));
    }
    let stored = as_element(stored, manifest.vectors.element)?;
    let vectors = VectorType { element: manifest.vectors.element, ..kind };
    let table = table_of(&manifest.attributes, coming.attributes, rows)?;
    let part = Part { rows, stored: &stored, ids: &coming.ids.0 };
    let source = Rows { of: Together::new(vectors, manifest.ids, (vec![part], ROWS)), table };
    let write = match coming.put {
        PutName::Insert => Write { insert: Some(&source), ..Write::default() },
        PutName::Upsert => Write { upsert: Some(&source), ..Write::default() },
    };
    Ok(collection.write_until(&write, coming.durability.into(), cancel)?)
}

/// Deletes the rows that a body in JSON names.
///
/// # Errors
/// Where the body is not as expected, or as [`Collection::write`] and [`Collection::delete_where`].
pub(crate) fn delete(collection: &Collection, body: &[u8], cancel: &Cancel) -> std::result::Result<Written, Problem> {
    let Going { ids, r#where, durability } = json::parse(body)?;
    Ok(match (ids, r#where) {
        (Some(GivenIds(Ids::None)), None) => Written { sequence: collection.facts().sequence, ..Written::default() },
        (Some(GivenIds(ids)), None) => {
            collection.write_until(&Write { delete: Some(&ids), ..Write::default() }, durability.into(), cancel)?
        }
        (None, Some(condition)) => {
            collection.delete_where_until(&Condition::parse(&condition)?, durability.into(), cancel)?
        }
        _ => return Err(Problem::bad_request("say which rows are to go: either `ids` or `where`")),
    })
}

/// Numbers of f32 as another type of elements, which must hold them: integers exactly, f16 rounded.
///
/// # Errors
/// Names the first that it does not hold.
fn as_element(floats: Vec<u8>, element: Element) -> std::result::Result<Vec<u8>, Problem> {
    if element == Element::F32 {
        return Ok(floats);
    }
    let mut stored = Vec::with_capacity(floats.len() / 4 * element.bytes());
    for (at, &bytes) in floats.as_chunks::<4>().0.iter().enumerate() {
        let value = f32::from_le_bytes(bytes);
        let (low, high) = if element == Element::U8 { (0.0, 255.0) } else { (-128.0, 127.0) };
        let is_whole = value.fract() == 0.0 && (low..=high).contains(&value);
        match element {
            Element::F16 if f16::from_f32(value).is_finite() => stored.extend(f16::from_f32(value).to_le_bytes()),
            Element::U8 if is_whole => stored.push(value as u8),
            Element::I8 if is_whole => stored.push((value as i8).cast_unsigned()),
            _ => {
                return Err(Problem::bad_request(format!(
                    "number {at} of vectors is {value}, which {element} does not hold"
                )));
            }
        }
    }
    Ok(stored)
}

/// The attributes of some rows as a table.
///
/// # Errors
/// Where there are not as many objects as rows, or one has what the rows do not have.
fn table_of(
    attributes: &[Attribute],
    objects: Option<Vec<&RawValue>>,
    rows: usize,
) -> std::result::Result<Option<RecordBatch>, Problem> {
    let Some(objects) = objects else { return Ok(None) };
    if objects.len() != rows {
        let given = objects.len();
        return Err(Problem::bad_request(format!("{rows} vectors have {given} attributes; give an object for each")));
    }
    let field = |attribute: &Attribute| Field::new(&attribute.name, attribute.kind.data_type(), true);
    let schema = Arc::new(Schema::new(attributes.iter().map(field).collect::<Vec<_>>()));
    let read = || {
        let mut decoder = ReaderBuilder::new(schema).with_batch_size(rows).with_strict_mode(true).build_decoder()?;
        for object in objects {
            let _ = decoder.decode(object.get().as_bytes())?;
            let _ = decoder.decode(b"\n")?; // an object that ends is not known as such before something follows
        }
        decoder.flush()
    };
    let table = read().map_err(|error: ArrowError| Problem::bad_request(format!("the attributes: {error}")))?;
    match table {
        Some(table) if table.num_rows() == rows => Ok(Some(table)),
        _ => Err(Problem::bad_request("the attributes: give one object for each vector")),
    }
}

/// Rows with their attributes.
struct Rows<'a> {
    of: Together<'a>,
    table: Option<RecordBatch>,
}

impl VectorSource for Rows<'_> {
    fn info(&self) -> &SourceInfo {
        self.of.info()
    }

    fn scan(&self, batch_bytes: usize) -> Result<Box<dyn VectorScan + '_>> {
        self.of.scan(batch_bytes)
    }

    fn scan_bytes(&self, batch_bytes: u64) -> u64 {
        self.of.scan_bytes(batch_bytes)
    }

    fn attributes(&self) -> Option<&dyn SourceAttributes> {
        self.table.as_ref().map(|_| self as _)
    }

    fn locate(&self, row: u64) -> (PathBuf, u64) {
        self.of.locate(row)
    }
}

impl SourceAttributes for Rows<'_> {
    fn schema(&self) -> Result<SchemaRef> {
        let none = || Error::input("the rows have no attributes");
        self.table.as_ref().map(RecordBatch::schema).ok_or_else(none)
    }

    fn tables(&self, _context: &Context) -> Result<AttributeTables<'_>> {
        Ok(Box::new(self.table.iter().cloned().map(Ok)))
    }
}

#[cfg(test)]
mod tests {
    use adjoin::live::AttributeKind;

    use arrow_array::cast::AsArray;

    use super::*;

    #[test]
    fn a_passing_shortage_is_no_lack_of_memory() {
        let of = |status: u16, is_alone| {
            let problem = Problem::new(StatusCode::from_u16(status).unwrap(), "why");
            let told = problem_of(&problem, is_alone, false);
            (told.status.as_u16(), told.retry_after.is_some())
        };
        assert_eq!((of(507, true), of(507, false)), ((507, false), (429, true)));
        assert_eq!((of(504, true), of(503, true)), ((503, true), (503, true)));
        assert_eq!((of(400, false), of(500, false)), ((400, false), (500, false)));
        let problem = Problem::new(StatusCode::INTERNAL_SERVER_ERROR, "the disk is full");
        assert_eq!(problem_of(&problem, true, true), Problem::unavailable("the disk is full"));
    }

    #[test]
    fn numbers_become_elements_that_hold_them() {
        let floats = |values: &[f32]| -> Vec<u8> { values.iter().flat_map(|value| value.to_le_bytes()).collect() };
        assert_eq!(as_element(floats(&[0.0, 255.0]), Element::U8).unwrap(), [0, 255]);
        assert_eq!(as_element(floats(&[-128.0, 1.0]), Element::I8).unwrap(), [0x80, 1]);
        assert_eq!(as_element(floats(&[1.0]), Element::F16).unwrap(), f16::ONE.to_le_bytes());
        for (value, element) in [(0.5, Element::U8), (-1.0, Element::U8), (128.0, Element::I8), (1e6, Element::F16)] {
            let problem = as_element(floats(&[0.0, value]), element).unwrap_err();
            assert!(problem.detail.contains("number 1 of vectors"), "{}", problem.detail);
        }
    }

    #[test]
    fn attributes_are_objects_that_become_columns() {
        let attributes = |names: &[(&str, AttributeKind)]| -> Vec<Attribute> {
            names.iter().map(|&(name, kind)| Attribute { name: name.into(), kind }).collect()
        };
        let known = attributes(&[("lang", AttributeKind::Text), ("year", AttributeKind::Int64)]);
        let of = |text: &str, rows| table_of(&known, Some(serde_json::from_str(text).unwrap()), rows);
        let table = of(r#"[{"lang": "en"}, {"year": 7, "lang": null}]"#, 2).unwrap().unwrap();
        assert_eq!((table.num_rows(), table.column(0).as_string::<i32>().value(0)), (2, "en"));
        assert_eq!((table.column(0).null_count(), table.column(1).null_count()), (1, 1));
        for (text, rows) in [("[{}]", 2), (r#"[{"other": 1}]"#, 1), (r#"[{"year": "x"}]"#, 1), ("[7]", 1), ("[[]]", 1)]
        {
            assert_eq!(of(text, rows).unwrap_err().status, 400, "{text}");
        }
    }
}
