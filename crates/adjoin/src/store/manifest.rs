//! The one file that makes a folder a store: what it holds, under which options, in which files.

use std::path::Path;

use serde::{Deserialize, Serialize};

use super::format::{FORMAT_VERSION, MANIFEST_FILE, checksum};
use crate::error::{Error, Result};
use crate::options::{DIMENSIONS_MAX, Metric, ROWS_MAX, VectorType};
use crate::source::IdKind;

/// Largest manifest that is read; a real one has a few thousand bytes.
const MANIFEST_BYTES_MAX: u64 = 1 << 20;

/// What a store says of itself. It holds no time, path, thread count or budget.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Manifest {
    /// Version of the format.
    pub format_version: u32,
    /// Type of the vectors.
    #[serde(flatten)]
    pub vectors: VectorType,
    /// Vectors in the store.
    pub rows: u64,
    /// Rows of the source, those that were skipped included.
    pub source_rows: u64,
    /// Rows left out because they had no usable vector.
    pub skipped_rows: u64,
    /// Rows whose id an earlier row has.
    pub duplicate_ids: u64,
    /// Metric that the buckets were made for.
    pub metric: Metric,
    /// Kind of the ids.
    pub ids: IdKind,
    /// Whether the source had f64 elements, rounded to f32 here.
    pub rounded_from_f64: bool,
    /// Seed of the training sample.
    pub seed: u64,
    /// How the centers were chosen.
    pub centers: Centers,
    /// How vectors were assigned to centers.
    pub assignment: Assignment,
    /// Number of buckets; none is empty.
    pub buckets: u32,
    /// Files by role.
    pub files: Files,
    /// Checksum of this file with these 16 digits as zeros; filled in by [`Manifest::encode`].
    pub manifest_xxh3: String,
}

/// The digits of a checksum that is not known yet.
pub(super) const NO_CHECKSUM: &str = "0000000000000000";

/// Why a manifest cannot be read.
#[derive(Debug)]
pub(super) enum Unreadable {
    /// It is whole, and of this later version.
    Newer(u64),
    /// It is not as written, or says what cannot be.
    Damaged(String),
}

/// How centers are chosen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Centers {
    /// Trained by k-means on a sample.
    Trained,
    /// A random sample of the vectors (DiskJoin, section 5.1).
    Random,
}

/// How vectors are assigned to centers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Assignment {
    /// Each to the nearest center of the groups of centers that are nearest to it.
    TwoLevel,
}

/// The files of a store.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Files {
    /// Centers, in bucket order.
    pub centers: FileFacts,
    /// The bucket table.
    pub table: FileFacts,
    /// The buckets; each has checksums of its own.
    pub vectors: FileFacts,
}

/// A file's name, length and checksum.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileFacts {
    /// Name within the folder.
    pub name: String,
    /// Length in bytes.
    pub bytes: u64,
    /// Checksum of the whole file as 16 hexadecimal digits; none for the buckets.
    pub xxh3: Option<String>,
}

impl FileFacts {
    /// Facts of a file that is checked as a whole.
    pub fn of(name: &str, contents: &[u8]) -> Self {
        Self { name: name.into(), bytes: contents.len() as u64, xxh3: Some(hexadecimal(checksum(contents))) }
    }

    /// Whether `contents` are as written.
    pub fn matches(&self, contents: &[u8]) -> bool {
        self.bytes == contents.len() as u64 && self.xxh3.as_deref() == Some(&hexadecimal(checksum(contents)))
    }
}

impl Manifest {
    /// The manifest as stored: JSON that holds its own checksum.
    pub fn encode(&self) -> Vec<u8> {
        let blank = Self { manifest_xxh3: NO_CHECKSUM.into(), ..self.clone() };
        let text =
            serde_json::to_string_pretty(&blank).expect("a manifest has no map with other keys than text") + "\n";
        let digits = hexadecimal(checksum(text.as_bytes()));
        let at = text.rfind(NO_CHECKSUM).expect("it was put there");
        [&text[..at], &digits, &text[at + digits.len()..]].concat().into_bytes()
    }

    /// Reads a manifest and checks what can be checked without the other files.
    ///
    /// # Errors
    /// Where it is damaged, of a newer version, or promises what cannot be.
    pub fn decode(folder: &Path, bytes: &[u8]) -> Result<Self> {
        Self::parse(bytes).map_err(|unreadable| match unreadable {
            Unreadable::Newer(version) => Self::newer(folder, version),
            Unreadable::Damaged(why) => {
                Error::corrupt(format!("{}: {why}; build the store again", folder.join(MANIFEST_FILE).display()))
            }
        })
    }

    /// The same, without the words around what is wrong.
    pub(super) fn parse(bytes: &[u8]) -> std::result::Result<Self, Unreadable> {
        let damaged = |why: &str| Unreadable::Damaged(why.to_owned());
        let text = std::str::from_utf8(bytes).map_err(|_| damaged("the manifest is no text"))?;
        let value: serde_json::Value = serde_json::from_str(text).map_err(|_| damaged("the manifest is no JSON"))?;
        let digits = value.get("manifest_xxh3").and_then(serde_json::Value::as_str).unwrap_or_default();
        if digits.len() != NO_CHECKSUM.len() {
            return Err(damaged("the manifest has no checksum"));
        }
        // Over the text and not over what was understood of it: a later version may add roles.
        let blank = text.replace(digits, NO_CHECKSUM);
        if hexadecimal(checksum(blank.as_bytes())) != digits {
            return Err(damaged("the manifest is not as written (checksum)"));
        }
        let version = value.get("format_version").and_then(serde_json::Value::as_u64).unwrap_or(0);
        if version > u64::from(FORMAT_VERSION) {
            return Err(Unreadable::Newer(version));
        }
        let manifest: Self = serde_json::from_value(value).map_err(|error| Unreadable::Damaged(error.to_string()))?;
        let possible = (1..=DIMENSIONS_MAX).contains(&manifest.vectors.dimensions)
            && (1..=ROWS_MAX).contains(&manifest.rows)
            && (1..=manifest.rows).contains(&u64::from(manifest.buckets));
        if possible { Ok(manifest) } else { Err(damaged("the manifest promises what cannot be")) }
    }

    /// The error of a store that a later adjoin wrote.
    pub(super) fn newer(folder: &Path, version: u64) -> Error {
        Error::input(format!(
            "{} has format version {version}, this adjoin reads up to {FORMAT_VERSION}; use a newer adjoin",
            folder.display()
        ))
    }

    /// Largest length of a manifest file that is worth reading.
    pub fn bytes_max() -> u64 {
        MANIFEST_BYTES_MAX
    }
}

pub(super) fn hexadecimal(checksum: u64) -> String {
    format!("{checksum:016x}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::Element;

    fn sample() -> Manifest {
        let file = |name: &str| FileFacts::of(name, name.as_bytes());
        Manifest {
            format_version: FORMAT_VERSION,
            vectors: VectorType { element: Element::F16, dimensions: 384 },
            rows: 10,
            source_rows: 12,
            skipped_rows: 2,
            duplicate_ids: 0,
            metric: Metric::Cosine,
            ids: IdKind::Utf8,
            rounded_from_f64: false,
            seed: u64::MAX,
            centers: Centers::Trained,
            assignment: Assignment::TwoLevel,
            buckets: 3,
            files: Files { centers: file("a"), table: file("b"), vectors: file("c") },
            manifest_xxh3: NO_CHECKSUM.into(),
        }
    }

    #[test]
    fn comes_back_as_written_and_every_flipped_bit_is_found() {
        let folder = Path::new("store");
        let bytes = sample().encode();
        let read = Manifest::decode(folder, &bytes).unwrap();
        assert_eq!(Manifest { manifest_xxh3: NO_CHECKSUM.into(), ..read }, sample());
        for bit in 0..bytes.len() * 8 {
            let mut flipped = bytes.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert!(Manifest::decode(folder, &flipped).is_err(), "bit {bit}");
        }
    }

    #[test]
    fn roles_of_later_versions_are_ignored() {
        let text = String::from_utf8(sample().encode()).unwrap();
        let checksum_of = |text: &str| hexadecimal(checksum(text.as_bytes()));
        let digits = Manifest::decode(Path::new("store"), text.as_bytes()).unwrap().manifest_xxh3;
        let more =
            text.replace(&digits, NO_CHECKSUM).replace("\"files\": {", "\"files\": {\n    \"codes\": \"later\",");
        let more = more.replace(NO_CHECKSUM, &checksum_of(&more));
        assert!(Manifest::decode(Path::new("store"), more.as_bytes()).is_ok());
    }

    #[test]
    fn newer_versions_are_refused() {
        let newer = Manifest { format_version: FORMAT_VERSION + 1, ..sample() }.encode();
        let error = Manifest::decode(Path::new("store"), &newer).unwrap_err().to_string();
        assert!(error.contains("format version 2, this adjoin reads up to 1; use a newer adjoin"), "{error}");
    }
}
