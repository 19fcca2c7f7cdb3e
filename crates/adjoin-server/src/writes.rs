//! Inserts, updates and deletes of rows of a collection.

use std::path::PathBuf;

use adjoin::{
    Cancel, Collection, Condition, Context, Durability, Element, Error, IdKind, Ids, Result, SourceAttributes,
    SourceInfo, VectorScan, VectorSource, VectorType, Write, WriteReport,
};
use arrow_array::RecordBatch;
use arrow_schema::SchemaRef;
use axum::http::StatusCode;
use half::f16;
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::attributes::table_of;
use crate::ids::GivenIds;
use crate::json::{self, Vectors};
use crate::problem::Problem;
use crate::request::{Part, Together};

/// Memory for a body of rows until they are in the log, as a multiple of its size. In the worst case, each object
/// `{}` becomes a reference.
pub(crate) const WRITE_TIMES: u64 = 12;
/// Name of the rows of a request in messages.
const ROWS: &str = "vectors";

/// Returns the answer to a failed write. If `is_alone` is true, no other work used memory, so the budget is too small
/// for the write; otherwise the client may retry. `log_failed` means that the log cannot be written now, for example
/// because the disk is full.
pub(crate) fn problem_of(error: &Problem, is_alone: bool, log_failed: bool) -> Problem {
    match error.status {
        StatusCode::INTERNAL_SERVER_ERROR if log_failed => Problem::unavailable(error.detail.clone()),
        StatusCode::INSUFFICIENT_STORAGE if !is_alone => {
            Problem::crowded("other writes and merges hold the memory for this write; write it again later", 1)
        }
        // The write timed out and changed nothing.
        StatusCode::GATEWAY_TIMEOUT => Problem::unavailable(
            "merges cannot keep up, or other requests hold the memory for this write; write it again \
                                  later",
        ),
        StatusCode::SERVICE_UNAVAILABLE => Problem::draining(),
        _ => error.clone(),
    }
}

/// Rows to write.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct UpsertRequest<'a> {
    vectors: Vectors,
    #[serde(default)]
    ids: GivenIds,
    /// Column values: one object per row.
    #[serde(borrow)]
    columns: Option<Vec<&'a RawValue>>,
    #[serde(default)]
    put: PutName,
    #[serde(default)]
    durability: Durability,
}

/// Rows to delete: by id, or by a filter.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct DeleteRequest {
    ids: Option<GivenIds>,
    r#where: Option<String>,
    #[serde(default)]
    durability: Durability,
}

#[derive(Default, Clone, Copy, Deserialize)]
#[serde(rename_all = "lowercase")]
enum PutName {
    #[default]
    Upsert,
    Insert,
}

/// Writes the rows of a JSON body.
///
/// # Errors
/// If the body is not valid, or [`Collection::write`] fails.
pub(crate) fn put(collection: &Collection, body: &[u8], cancel: &Cancel) -> std::result::Result<WriteReport, Problem> {
    let coming: UpsertRequest<'_> = json::object(body, r#"{"ids": [1], "vectors": [[0.5, 1.5]]}"#)?;
    let manifest = collection.manifest();
    let Vectors { rows, kind, stored } = coming.vectors;
    let given = coming.ids.0.len();
    if coming.ids.0.kind() != manifest.ids || given != rows {
        return Err(Problem::bad_request(wrong_ids(rows, &coming.ids.0, manifest.ids)));
    }
    let stored = as_element(stored, manifest.vectors.element)?;
    let vectors = VectorType { element: manifest.vectors.element, ..kind };
    let table = table_of(&manifest.attributes, coming.columns, rows)?;
    let part = Part { rows, stored: &stored, ids: &coming.ids.0 };
    let source = Rows { of: Together::new(vectors, manifest.ids, vec![part], ROWS), table };
    let write = match coming.put {
        PutName::Insert => Write { insert: Some(&source), ..Write::default() },
        PutName::Upsert => Write { upsert: Some(&source), ..Write::default() },
    };
    Ok(collection.write_until(&write, coming.durability, cancel)?)
}

/// Describes the ids that `rows` vectors should have.
fn wrong_ids(rows: usize, given: &Ids, expected: IdKind) -> String {
    let (name, one) = if expected == IdKind::Utf8 { ("texts", "a text") } else { ("integers", "an integer") };
    match (given.len(), given.kind()) {
        (count, _) if count != rows => format!(
            "there are {rows} vectors, but {count} ids; give {one} for each vector \
                                                in `ids`"
        ),
        _ => format!("the ids of this collection are {name}; give {one} for each vector in `ids`"),
    }
}

/// Deletes the rows that a JSON body selects.
///
/// # Errors
/// If the body is not valid, or if [`Collection::write`] or [`Collection::delete_where`] fails.
pub(crate) fn delete(
    collection: &Collection,
    body: &[u8],
    cancel: &Cancel,
) -> std::result::Result<WriteReport, Problem> {
    let DeleteRequest { ids, r#where, durability } = json::object(body, r#"{"ids": [1]}"#)?;
    Ok(match (ids, r#where) {
        // If the list of ids is empty, nothing is deleted, and the answer has the number of the last write.
        (Some(GivenIds(Ids::None)), None) => {
            WriteReport { sequence: collection.facts().sequence, ..WriteReport::default() }
        }
        (Some(GivenIds(ids)), None) => {
            collection.write_until(&Write { delete: Some(&ids), ..Write::default() }, durability, cancel)?
        }
        (None, Some(condition)) => collection.delete_where_until(&Condition::parse(&condition)?, durability, cancel)?,
        _ => return Err(Problem::bad_request("name the rows to delete: either `ids` or `where`")),
    })
}

/// Converts f32 values to another element type. Integer types must represent each value exactly; f16 is rounded.
///
/// # Errors
/// If the type cannot represent a value. The error names the first such value.
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
                    "number {at} of vectors is {value}, which {element} cannot represent"
                )));
            }
        }
    }
    Ok(stored)
}

/// Rows with their columns.
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
        let none = || Error::input("the rows have no columns");
        self.table.as_ref().map(RecordBatch::schema).ok_or_else(none)
    }

    fn tables(&self, _context: &Context) -> Result<Box<dyn Iterator<Item = Result<RecordBatch>> + '_>> {
        Ok(Box::new(self.table.iter().cloned().map(Ok)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn temporary_memory_shortage_can_be_retried() {
        let of = |status: u16, is_alone| {
            let problem = Problem::new(StatusCode::from_u16(status).unwrap(), "why");
            let refusal = problem_of(&problem, is_alone, false);
            (refusal.status.as_u16(), refusal.retry_after.is_some())
        };
        assert_eq!((of(507, true), of(507, false)), ((507, false), (429, true)));
        assert_eq!((of(504, true), of(503, true)), ((503, true), (503, true)));
        assert_eq!((of(400, false), of(500, false)), ((400, false), (500, false)));
        let problem = Problem::new(StatusCode::INTERNAL_SERVER_ERROR, "the disk is full");
        assert_eq!(problem_of(&problem, true, true), Problem::unavailable("the disk is full"));
    }

    #[test]
    fn numbers_are_converted_to_elements_or_refused() {
        let floats = |values: &[f32]| -> Vec<u8> { values.iter().flat_map(|value| value.to_le_bytes()).collect() };
        assert_eq!(as_element(floats(&[0.0, 255.0]), Element::U8).unwrap(), [0, 255]);
        assert_eq!(as_element(floats(&[-128.0, 1.0]), Element::I8).unwrap(), [0x80, 1]);
        assert_eq!(as_element(floats(&[1.0]), Element::F16).unwrap(), f16::ONE.to_le_bytes());
        for (value, element) in [(0.5, Element::U8), (-1.0, Element::U8), (128.0, Element::I8), (1e6, Element::F16)] {
            let problem = as_element(floats(&[0.0, value]), element).unwrap_err();
            assert!(problem.detail.contains("number 1 of vectors"), "{}", problem.detail);
        }
    }
}
