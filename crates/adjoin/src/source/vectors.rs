//! Vectors and ids of rows, as scans return them.

use crate::base::choice::choices;
use crate::base::error::Result;
use crate::base::options::VectorType;

/// Kind of a set's ids.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum IdKind {
    /// No ids: rows are identified by their number.
    None,
    /// Signed 64-bit integers.
    Int64,
    /// UTF-8 text.
    Utf8,
}

choices! { "the kind of the ids" => IdKind { None = "none", Int64 = "int64", Utf8 = "text" } }

impl IdKind {
    /// Kinds of ids that a collection can have.
    pub const OF_COLLECTIONS: &'static [Self] = &[Self::Int64, Self::Utf8];
}

/// Ids of some rows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ids {
    /// No ids: rows are identified by their number.
    None,
    /// One integer per row.
    Int64(Vec<i64>),
    /// One text per row.
    Utf8(TextIds),
}

/// Concatenated texts: text `k` is `bytes[ends[k - 1]..ends[k]]`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TextIds {
    /// End of each text in `bytes`.
    pub ends: Vec<u64>,
    /// The texts, in UTF-8.
    pub bytes: Vec<u8>,
}

/// Consecutive rows of a source.
#[derive(Debug, Clone, PartialEq)]
pub struct VectorBatch {
    /// Number of the first row.
    pub first_row: u64,
    /// Number of rows.
    pub rows: usize,
    /// The vectors, row-major, little-endian, of type [`SourceInfo::vectors`](super::SourceInfo::vectors).
    pub bytes: Vec<u8>,
    /// Rows of this batch without a vector of the set's type, in ascending order, and the reasons. Their bytes are
    /// zero.
    pub faults: Vec<(usize, Fault)>,
    /// An id for each row, or no ids.
    pub ids: Ids,
}

/// Reason why a row has no vector of its set's type.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Fault {
    /// The row is null.
    Null,
    /// An element is null.
    NullElement {
        /// Index of the first such element.
        at: usize,
    },
    /// The list has this length, unlike the vectors of the set.
    Length(usize),
    /// An f64 element exceeds the range of f32.
    TooLarge {
        /// Index of the first such element.
        at: usize,
        /// Value of that element.
        value: f64,
    },
}

impl Fault {
    /// Describes the fault of a row in a set with this vector type.
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

/// A scan in progress.
pub trait VectorScan {
    /// Returns the next rows in order, or `None` after the last.
    ///
    /// # Errors
    /// Fails if the source cannot be read or contradicts its header.
    fn next_batch(&mut self) -> Result<Option<VectorBatch>>;
}

impl Ids {
    /// Creates an empty list of ids of a kind.
    pub fn empty(kind: IdKind) -> Self {
        match kind {
            IdKind::None => Self::None,
            IdKind::Int64 => Self::Int64(Vec::new()),
            IdKind::Utf8 => Self::Utf8(TextIds::default()),
        }
    }

    /// Returns the kind of the ids.
    pub fn kind(&self) -> IdKind {
        match self {
            Self::None => IdKind::None,
            Self::Int64(_) => IdKind::Int64,
            Self::Utf8(_) => IdKind::Utf8,
        }
    }

    /// Returns the number of ids; 0 if rows are identified by their numbers.
    pub fn len(&self) -> usize {
        match self {
            Self::None => 0,
            Self::Int64(ids) => ids.len(),
            Self::Utf8(ids) => ids.len(),
        }
    }

    /// Returns whether there are no ids.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the bytes that the ids take in memory.
    pub fn held_bytes(&self) -> u64 {
        match self {
            Self::Utf8(texts) => self.bytes() + 8 * texts.ends.len() as u64,
            _ => self.bytes(),
        }
    }

    /// Returns the total size of the ids in bytes, without the ends of texts.
    pub fn bytes(&self) -> u64 {
        match self {
            Self::None => 0,
            Self::Int64(ids) => 8 * ids.len() as u64,
            Self::Utf8(texts) => texts.bytes.len() as u64,
        }
    }

    /// Returns the total length of the texts in bytes; 0 if ids are not texts.
    pub(crate) fn bytes_of_texts(&self) -> u64 {
        match self {
            Self::Utf8(texts) => texts.bytes.len() as u64,
            Self::None | Self::Int64(_) => 0,
        }
    }

    /// Returns the length of the text of row `k` in bytes; 0 if ids are not texts.
    pub fn bytes_of(&self, k: usize) -> u64 {
        match self {
            Self::Utf8(texts) => texts.get(k).len() as u64,
            Self::None | Self::Int64(_) => 0,
        }
    }

    /// Returns the bytes of the id of row `k`, as records hold it; 0 if there are no ids.
    pub(crate) fn len_of(&self, k: usize) -> u64 {
        match self {
            Self::None => 0,
            Self::Int64(_) => size_of::<i64>() as u64,
            Self::Utf8(_) => self.bytes_of(k),
        }
    }

    /// Makes room for `rows` more ids; of texts, for their ends alone.
    pub(crate) fn reserve(&mut self, rows: usize) {
        match self {
            Self::None => {}
            Self::Int64(ids) => ids.reserve_exact(rows),
            Self::Utf8(texts) => texts.ends.reserve_exact(rows),
        }
    }

    /// Appends all of `other`, which must be of the same kind.
    ///
    /// # Panics
    /// Panics if the kinds differ.
    pub(crate) fn append(&mut self, other: &Self) {
        match (self, other) {
            (Self::None, Self::None) => {}
            (Self::Int64(to), Self::Int64(from)) => to.extend_from_slice(from),
            (Self::Utf8(to), Self::Utf8(from)) => {
                let before = to.bytes.len() as u64;
                to.ends.extend(from.ends.iter().map(|end| before + end));
                to.bytes.extend_from_slice(&from.bytes);
            }
            _ => unreachable!("ids of one set are of one kind"),
        }
    }

    /// Appends row `k` of `other`, which must be of the same kind.
    ///
    /// # Panics
    /// Panics if the kinds differ.
    #[inline] // called once per pair
    pub fn push_from(&mut self, other: &Self, k: usize) {
        match (self, other) {
            (Self::None, Self::None) => {}
            (Self::Int64(to), Self::Int64(from)) => to.push(from[k]),
            (Self::Utf8(to), Self::Utf8(from)) => to.push(from.get(k)),
            _ => unreachable!("ids of one set are of one kind"),
        }
    }

    /// Appends the bytes of the id of row `k` to `out`. [`Ids::push_bytes`] restores the id.
    pub(crate) fn append_bytes_of(&self, k: usize, out: &mut Vec<u8>) {
        match self {
            Self::None => {}
            Self::Int64(ids) => out.extend_from_slice(&ids[k].to_le_bytes()),
            Self::Utf8(ids) => out.extend_from_slice(ids.get(k)),
        }
    }

    /// Appends the length of the id of row `k` as a little-endian u32, then its bytes. Appends nothing if rows have no ids.
    pub(crate) fn append_sized(&self, k: usize, out: &mut Vec<u8>) {
        if *self == Self::None {
            return;
        }
        // The length is written after the id has been appended, when it is known.
        let start = out.len();
        out.extend_from_slice(&[0; size_of::<u32>()]);
        self.append_bytes_of(k, out);
        let bytes = (out.len() - start - size_of::<u32>()) as u32;
        out[start..][..size_of::<u32>()].copy_from_slice(&bytes.to_le_bytes());
    }

    /// Appends an id that has the form of [`Ids::append_bytes_of`].
    pub(crate) fn push_bytes(&mut self, bytes: &[u8]) {
        match self {
            Self::None => {}
            Self::Int64(ids) => ids.push(i64::from_le_bytes(bytes.try_into().expect("bytes of an integer"))),
            Self::Utf8(ids) => ids.push(bytes),
        }
    }

    /// Formats the id of row `k` for a message. If there are no ids, formats the row number `row`.
    pub fn display(&self, k: usize, row: u64) -> String {
        match self {
            Self::None => row.to_string(),
            Self::Int64(ids) => ids[k].to_string(),
            Self::Utf8(ids) => String::from_utf8_lossy(ids.get(k)).into_owned(),
        }
    }
}

impl<T: AsRef<str>> FromIterator<T> for Ids {
    fn from_iter<I: IntoIterator<Item = T>>(texts: I) -> Self {
        let mut ids = TextIds::default();
        texts.into_iter().for_each(|text| ids.push(text.as_ref().as_bytes()));
        Self::Utf8(ids)
    }
}

impl TextIds {
    /// Returns the number of texts.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Returns whether there are no texts.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// Returns the total length of the texts in bytes.
    pub fn bytes(&self) -> usize {
        self.bytes.len()
    }

    /// Returns text `k` as bytes.
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
