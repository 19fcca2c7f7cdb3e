//! Decisions of a user about single rows, which a deduplication obeys.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

use adjoin_device::Reservation;
use serde::Deserialize;

use super::Tables;
use crate::base::context::Context;
use crate::base::error::{Error, Result};
use crate::base::row_numbers::RowSet;
use crate::source::{IdKind, SourceOptions};

/// Maximum memory for decisions, in bytes per byte of their file: for its text, its ids, and a hash table if all
/// lines are as short as possible.
const GROWTH: u64 = 12;
/// Maximum number of characters of an id in a message.
const ID_CHARACTERS: usize = 100;

/// Rows that a user marked.
pub(super) struct Decisions {
    /// Rows that are kept, even if they are near other rows.
    pub(super) kept: RowSet,
    /// Rows that are removed, even if no kept row is near.
    pub(super) removed: Arc<RowSet>,
    _memory: Reservation,
}

/// A line of a file of decisions.
#[derive(Deserialize)]
struct Line {
    id: Id,
    decision: Decision,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Id {
    Number(i64),
    Text(String),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Decision {
    Keep,
    Remove,
}

/// A decision with the number of its line, and with its row once it is known.
struct Marked {
    decision: Decision,
    line: u64,
    row: Option<u64>,
}

/// Returns the memory for reading a file of decisions.
///
/// # Errors
/// If the file cannot be opened.
pub(super) fn reading_bytes(context: &Context, path: &Path) -> Result<u64> {
    Ok(GROWTH.saturating_mul(context.device.open(path)?.len()))
}

impl Decision {
    fn name(self) -> &'static str {
        match self {
            Self::Keep => "keep",
            Self::Remove => "remove",
        }
    }
}

impl Decisions {
    /// Returns the memory for the decisions about `rows` rows.
    pub(super) fn memory_bytes(rows: u64) -> u64 {
        2 * RowSet::memory_bytes(rows)
    }

    /// Reads the decisions in a file of JSON lines, and finds their rows.
    ///
    /// # Errors
    /// If the file cannot be read or does not fit into memory, if a line is no decision, if two lines contradict each
    /// other, or if an id belongs to no row or to several rows.
    pub(super) fn read(tables: &Tables<'_>, options: &SourceOptions, path: &Path) -> Result<Self> {
        let (context, rows) = (tables.context, tables.rows);
        let memory = context.reserve(Self::memory_bytes(rows), "decisions about rows")?;
        let file = context.device.open(path)?;
        let _reading = context.reserve(reading_bytes(context, path)?, "reading decisions about rows")?;
        let mut bytes = vec![0; file.len() as usize];
        file.read_at(0, &mut bytes)?;
        let kind = tables.id_kind(options)?;
        let mut marked = parse(path, &bytes, kind)?;
        let (mut kept, mut removed) = (RowSet::new(rows), RowSet::new(rows));
        tables.each_id(options, |row, id| {
            let number = row.to_le_bytes();
            let Some(marked) = marked.get_mut(if kind == IdKind::None { &number[..] } else { id }) else {
                return Ok(());
            };
            if let Some(other) = marked.row.replace(row) {
                let (at, line) = (path.display(), marked.line);
                return Err(Error::input(format!(
                    "{at}: line {line}: rows {other} and {row} both have this id; give each row its own id"
                )));
            }
            match marked.decision {
                Decision::Keep => kept.insert(row),
                Decision::Remove => removed.insert(row),
            }
            Ok(())
        })?;
        // The first line with an unknown id is reported, so that the message does not depend on the order in a hash
        // map.
        let unknown = marked.iter().filter(|(_, marked)| marked.row.is_none()).min_by_key(|(_, marked)| marked.line);
        if let Some((id, Marked { line, .. })) = unknown {
            let (at, id) = (path.display(), shown(kind, id));
            return Err(Error::input(format!(
                "{at}: line {line}: no row has the id {id}; remove the line, or name the data set of these decisions"
            )));
        }
        Ok(Self { kept, removed: Arc::new(removed), _memory: memory })
    }
}

/// Parses the decisions in a file. The keys are the bytes of their ids.
fn parse(path: &Path, bytes: &[u8], kind: IdKind) -> Result<HashMap<Vec<u8>, Marked>> {
    let mut marked: HashMap<Vec<u8>, Marked> = HashMap::new();
    let at = |line: u64, what: &str| Error::input(format!("{}: line {line} {what}", path.display()));
    // Some editors begin a file with the mark of UTF-8.
    let bytes = bytes.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(bytes);
    for (line, text) in (1..).zip(bytes.split(|&byte| byte == b'\n')) {
        if text.trim_ascii().is_empty() {
            continue;
        }
        let Line { id, decision } = serde_json::from_slice(text)
            .map_err(|_| at(line, "is not a decision; write {\"id\": ..., \"decision\": \"keep\"} or \"remove\""))?;
        let id =
            id_bytes(&id, kind).ok_or_else(|| at(line, "has a text as its id; the ids of the rows are integers"))?;
        let known = marked.get(&id).map(|known| (known.decision, known.line));
        match known {
            Some((other, before)) if other != decision => {
                let (decision, other) = (decision.name(), other.name());
                return Err(at(
                    line,
                    &format!(
                        "marks a row as {decision}, but line {before} marks it as {other}; remove one of these \
                              lines"
                    ),
                ));
            }
            Some(_) => (),
            None => drop(marked.insert(id, Marked { decision, line, row: None })),
        }
    }
    Ok(marked)
}

/// Returns the bytes of an id of this kind. Returns `None` if the id is of another kind. If rows have no ids, their
/// numbers are their ids.
fn id_bytes(id: &Id, kind: IdKind) -> Option<Vec<u8>> {
    match (kind, id) {
        (IdKind::Utf8, Id::Text(text)) => Some(text.as_bytes().to_vec()),
        (IdKind::Utf8, Id::Number(number)) => Some(number.to_string().into_bytes()),
        // Row numbers have as many bytes as integer ids.
        (_, Id::Number(number)) => Some(number.to_le_bytes().to_vec()),
        (_, Id::Text(text)) => text.parse::<i64>().ok().map(|number| number.to_le_bytes().to_vec()),
    }
}

/// Formats an id for a message.
fn shown(kind: IdKind, id: &[u8]) -> String {
    match id.first_chunk() {
        Some(number) if kind != IdKind::Utf8 => i64::from_le_bytes(*number).to_string(),
        _ => String::from_utf8_lossy(id).chars().take(ID_CHARACTERS).collect(),
    }
}
