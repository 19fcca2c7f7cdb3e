//! The face of every input: a set of vectors that can be scanned from its first row to its last, as often as needed.

use std::path::PathBuf;

use arrow_array::RecordBatch;
use arrow_schema::SchemaRef;

use super::file::SourceFile;
use crate::context::Context;
use crate::error::Result;
use crate::options::VectorType;

/// What is known of a source before it is scanned.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SourceInfo {
    /// Number of rows, those without a usable vector included.
    pub rows: u64,
    /// Type of the vectors as delivered.
    pub vectors: VectorType,
    /// Kind of the ids.
    pub ids: IdKind,
    /// Whether f64 elements are rounded to f32.
    pub rounded_from_f64: bool,
}

/// Kind of a set's ids.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum IdKind {
    /// Rows are named by their number.
    None,
    /// Signed 64-bit integers.
    Int64,
    /// UTF-8 text.
    Utf8,
}

/// Ids of some rows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ids {
    /// None: rows are named by their number.
    None,
    /// One integer a row.
    Int64(Vec<i64>),
    /// One text a row.
    Utf8(TextIds),
}

/// Texts laid end to end: text `k` is `bytes[ends[k - 1]..ends[k]]`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TextIds {
    /// End of each text in `bytes`.
    pub ends: Vec<u64>,
    /// The texts, UTF-8.
    pub bytes: Vec<u8>,
}

/// Consecutive rows of a source.
#[derive(Debug, Clone, PartialEq)]
pub struct VectorBatch {
    /// Number of the first row.
    pub first_row: u64,
    /// Number of rows.
    pub rows: usize,
    /// The vectors, row-major, little-endian, as [`SourceInfo::vectors`] says.
    pub bytes: Vec<u8>,
    /// Rows of this batch that hold no vector of the set's type, ascending, and why; their bytes are zero.
    pub faults: Vec<(usize, Fault)>,
    /// An id for each row, or none.
    pub ids: Ids,
}

/// Why a row holds no vector of its set's type.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Fault {
    /// It is null.
    Null,
    /// An element is null.
    NullElement {
        /// The first such element.
        at: usize,
    },
    /// Its list has another length than the set's vectors.
    Length(usize),
    /// An element of f64 is beyond what f32 can hold.
    TooLarge {
        /// The first such element.
        at: usize,
        /// Its value.
        value: f64,
    },
}

impl Fault {
    /// What is wrong with a row of a set of such vectors.
    pub(crate) fn in_words(self, vectors: VectorType) -> String {
        let expected = vectors.dimensions;
        match self {
            Self::Null => "is null".into(),
            Self::NullElement { at } => format!("has a null element (element {at})"),
            Self::Length(0) => format!("is an empty list; {expected} elements are expected"),
            Self::Length(1) => format!("has 1 element; {expected} are expected"),
            Self::Length(length) => format!("has {length} elements; {expected} are expected"),
            Self::TooLarge { at, value } => format!("has {value:?} at element {at}, which does not fit into f32"),
        }
    }
}

/// A set of vectors outside a store.
pub trait VectorSource: Send + Sync {
    /// What is known of it.
    fn info(&self) -> &SourceInfo;

    /// Starts a scan from the first row; a batch holds about `batch_bytes` of vectors, at least one row.
    ///
    /// # Errors
    /// Where the source cannot be opened again.
    fn scan(&self, batch_bytes: usize) -> Result<Box<dyn VectorScan + '_>>;

    /// Bytes that such a scan holds at most, the batches that it delivers apart.
    fn scan_bytes(&self, batch_bytes: u64) -> u64;

    /// What a person should read once before it is scanned, such as files of a folder that are left out.
    fn notes(&self) -> Vec<String> {
        Vec::new()
    }

    /// The files that it was opened from, in order; none where it is made of something else.
    fn files(&self) -> Vec<SourceFile> {
        Vec::new()
    }

    /// Its columns beside the vectors, where they are not in files.
    fn attributes(&self) -> Option<&dyn SourceAttributes> {
        None
    }

    /// The file that holds a row, and the row's number in it: for messages.
    fn locate(&self, row: u64) -> (PathBuf, u64);
}

/// Columns beside the vectors of a source.
pub trait SourceAttributes {
    /// Their names and types.
    ///
    /// # Errors
    /// Where they cannot be read.
    fn schema(&self) -> Result<SchemaRef>;

    /// Them for all rows, in the order of the source; whoever asks has memory for a table at a time, the rest is reserved
    /// from the budget of `context`.
    ///
    /// # Errors
    /// Where they cannot be read, or memory does not suffice.
    fn tables(&self, context: &Context) -> Result<AttributeTables<'_>>;
}

/// Tables of consecutive rows.
pub type AttributeTables<'a> = Box<dyn Iterator<Item = Result<RecordBatch>> + 'a>;

/// A scan under way.
pub trait VectorScan {
    /// The next rows in order, or `None` after the last.
    ///
    /// # Errors
    /// Where the source cannot be read or is not what its header says.
    fn next_batch(&mut self) -> Result<Option<VectorBatch>>;
}

impl Ids {
    /// No ids yet, of a kind.
    pub fn empty(kind: IdKind) -> Self {
        match kind {
            IdKind::None => Self::None,
            IdKind::Int64 => Self::Int64(Vec::new()),
            IdKind::Utf8 => Self::Utf8(TextIds::default()),
        }
    }

    /// Their kind.
    pub fn kind(&self) -> IdKind {
        match self {
            Self::None => IdKind::None,
            Self::Int64(_) => IdKind::Int64,
            Self::Utf8(_) => IdKind::Utf8,
        }
    }

    /// How many; none where rows are named by their numbers.
    pub fn len(&self) -> usize {
        match self {
            Self::None => 0,
            Self::Int64(ids) => ids.len(),
            Self::Utf8(ids) => ids.len(),
        }
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Bytes that they take in memory.
    pub fn held_bytes(&self) -> u64 {
        match self {
            Self::Utf8(texts) => self.bytes() + 8 * texts.ends.len() as u64,
            _ => self.bytes(),
        }
    }

    /// Bytes of all ids.
    pub fn bytes(&self) -> u64 {
        match self {
            Self::None => 0,
            Self::Int64(ids) => 8 * ids.len() as u64,
            Self::Utf8(texts) => texts.bytes.len() as u64,
        }
    }

    /// Bytes of all texts; 0 if ids are no texts.
    pub(crate) fn bytes_of_texts(&self) -> u64 {
        match self {
            Self::Utf8(texts) => texts.bytes.len() as u64,
            Self::None | Self::Int64(_) => 0,
        }
    }

    /// Bytes of the text of row `k`; 0 if ids are no texts.
    pub fn bytes_of(&self, k: usize) -> u64 {
        match self {
            Self::Utf8(texts) => texts.get(k).len() as u64,
            Self::None | Self::Int64(_) => 0,
        }
    }

    /// Appends row `k` of `other`, which is of the same kind.
    ///
    /// # Panics
    /// Where the kinds differ.
    pub fn push_from(&mut self, other: &Self, k: usize) {
        match (self, other) {
            (Self::None, Self::None) => {}
            (Self::Int64(to), Self::Int64(from)) => to.push(from[k]),
            (Self::Utf8(to), Self::Utf8(from)) => to.push(from.get(k)),
            _ => unreachable!("ids of one set are of one kind"),
        }
    }

    /// Appends the bytes of the id of row `k` to `out`; [`Ids::push_bytes`] makes an id of them again.
    pub(crate) fn append_bytes_of(&self, k: usize, out: &mut Vec<u8>) {
        match self {
            Self::None => {}
            Self::Int64(ids) => out.extend_from_slice(&ids[k].to_le_bytes()),
            Self::Utf8(ids) => out.extend_from_slice(ids.get(k)),
        }
    }

    /// Appends an id, given the bytes of one of the same kind.
    pub(crate) fn push_bytes(&mut self, bytes: &[u8]) {
        match self {
            Self::None => {}
            Self::Int64(ids) => ids.push(i64::from_le_bytes(bytes.try_into().expect("bytes of an integer"))),
            Self::Utf8(ids) => ids.push(bytes),
        }
    }

    /// The id of row `k` for a message; its number where there are no ids.
    pub fn display(&self, k: usize, row: u64) -> String {
        match self {
            Self::None => row.to_string(),
            Self::Int64(ids) => ids[k].to_string(),
            Self::Utf8(ids) => String::from_utf8_lossy(ids.get(k)).into_owned(),
        }
    }
}

impl TextIds {
    /// Number of texts.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// Returns the bytes of all texts.
    pub fn bytes(&self) -> usize {
        self.bytes.len()
    }

    /// The bytes of text `k`.
    pub fn get(&self, k: usize) -> &[u8] {
        let start = if k == 0 { 0 } else { self.ends[k - 1] as usize };
        &self.bytes[start..self.ends[k] as usize]
    }

    /// Appends a text.
    pub fn push(&mut self, text: &[u8]) {
        self.bytes.extend_from_slice(text);
        self.ends.push(self.bytes.len() as u64);
    }
}
