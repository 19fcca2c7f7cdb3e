//! The manifest, the file that makes a folder a store: contents, build options and file names.

use std::fmt;
use std::path::Path;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::files::{Files, Role, read_whole};
use super::format::{
    BLOCK_BYTES, BucketFacts, ENTRY_BYTES, FILE_ALIGNMENT, FORMAT_VERSION, LIVE_VERSION, MANIFEST_FILE, SORTED_VERSION,
    checksum, hexadecimal,
};
use crate::base::context::Context;
use crate::base::error::{Error, Result};
use crate::base::geometry::Space;
use crate::base::options::{DIMENSIONS_MAX, Metric, ROWS_MAX, VectorType, format_count};
use crate::base::report::CommonStatistics;
use crate::source::IdKind;

/// Maximum length of a manifest that is read, in bytes. A real manifest has about 1,000 bytes. Parsing a file may take
/// 80 times its length in memory.
const MANIFEST_BYTES_MAX: u64 = 64 << 10;
/// Maximum length of an excerpt of a manifest in an error message, in characters.
const FAULT_CHARACTERS_MAX: usize = 300;

/// Manifest of a store. It holds no time, path, thread count or budget.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StoreManifest {
    /// Version of the format.
    pub format_version: u32,
    /// Type of the vectors.
    #[serde(flatten)]
    pub vectors: VectorType,
    /// Number of vectors in the store.
    pub rows: u64,
    /// Rows of the source, including skipped ones.
    pub source_rows: u64,
    /// Rows left out because they had no usable vector.
    pub skipped_rows: u64,
    /// Rows with the id of an earlier row.
    pub duplicate_ids: u64,
    /// Metric that the buckets were built for.
    pub metric: Metric,
    /// Length of the longest vector; inner products only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub longest: Option<f64>,
    /// Number of rows of the source of the first build, on which the centers were trained. Absent unless rows were
    /// appended or removed since then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub built_rows: Option<u64>,
    /// Number of skipped rows that were once in the store.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub removed_rows: u64,
    /// Column by which rows are sorted within buckets, if any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sorted_by: Option<String>,
    /// Kind of the ids.
    pub ids: IdKind,
    /// Whether the source had f64 elements, which the store rounds to f32.
    pub rounded_from_f64: bool,
    /// Seed of the training sample.
    pub seed: u64,
    /// How the centers were chosen.
    pub centers: Centers,
    /// How vectors were assigned to centers.
    pub assignment: Assignment,
    /// Number of buckets; no bucket is empty.
    pub buckets: u32,
    /// Files by role.
    pub files: Files,
    /// Checksum of this file, computed with these 16 digits set to zero. [`StoreManifest::encode`] fills it in.
    pub manifest_xxh3: String,
}

fn is_zero(count: &u64) -> bool {
    *count == 0
}

/// Placeholder for a checksum that is not computed yet.
pub(crate) const NO_CHECKSUM: &str = "0000000000000000";

/// Kind of a folder with a manifest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FolderKind {
    /// Vectors in buckets, for joins and searches; the default if a manifest names no kind.
    Store,
    /// A graph over the vectors of a store.
    Index,
    /// A collection: an index that accepts inserts and deletes.
    Collection,
}

impl FolderKind {
    /// All kinds.
    pub const ALL: [Self; 3] = [Self::Store, Self::Index, Self::Collection];

    /// Returns the name in commands, statistics and Python. In manifests, a collection has another name (`live`).
    pub fn name(self) -> &'static str {
        match self {
            Self::Store => "store",
            Self::Index => "index",
            Self::Collection => "collection",
        }
    }

    /// Returns the kind with this name in a manifest.
    fn of_name(name: &str) -> Option<Self> {
        match name {
            "store" => Some(Self::Store),
            "index" => Some(Self::Index),
            "live" => Some(Self::Collection),
            _ => None,
        }
    }

    /// Returns the roles of the files of this kind.
    pub(super) fn roles(self) -> &'static [Role] {
        match self {
            Self::Store => &Role::STORE,
            Self::Index => &Role::INDEX,
            Self::Collection => &[],
        }
    }

    /// Returns the newest known version of the format.
    pub(super) fn version_max(self) -> u32 {
        match self {
            Self::Store => SORTED_VERSION,
            Self::Index => FORMAT_VERSION,
            Self::Collection => LIVE_VERSION,
        }
    }

    /// Returns the remedy for a damaged folder, as part of a message.
    pub(crate) fn remedy(self) -> &'static str {
        match self {
            Self::Store => "build the store again",
            Self::Index => "build the index again",
            Self::Collection => "restore the folder from a backup",
        }
    }

    /// Returns the command that creates a folder of this kind.
    pub(super) fn made_with(self) -> &'static str {
        match self {
            Self::Store => "adjoin build",
            Self::Index => "adjoin index build",
            Self::Collection => "adjoin collection create",
        }
    }

    /// Returns the command that searches a folder of this kind.
    fn searched_with(self) -> &'static str {
        match self {
            Self::Store => "adjoin search",
            Self::Index => "adjoin search",
            Self::Collection => "adjoin search",
        }
    }

    /// Returns the error for a folder of this kind that was given instead of the `expected` kind.
    pub(crate) fn is_not(self, expected: Self, folder: &Path) -> Error {
        let (at, searched_with, made_with) = (folder.display(), self.searched_with(), expected.made_with());
        Error::input(format!(
            "{at} is {self}, not {expected}; search it with: {searched_with}; or create {expected} in another folder \
             with: {made_with}"
        ))
    }
}

impl fmt::Display for FolderKind {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Self::Store => "a store",
            Self::Index => "a graph index",
            Self::Collection => "a collection",
        })
    }
}

/// Reason why a manifest cannot be used.
#[derive(Debug)]
pub(crate) enum Unreadable {
    /// The manifest is intact, but has this newer format version.
    Newer(u64),
    /// The manifest is intact, but of this kind instead of the expected one.
    Other(FolderKind),
    /// The manifest is intact, but only a later version of adjoin knows its kind.
    UnknownKind(String),
    /// The manifest is damaged or contains impossible values.
    Damaged(String),
}

impl Unreadable {
    /// Returns the error for `folder`, which has this manifest. `expected` is the kind that the caller expected.
    pub(crate) fn in_folder(self, folder: &Path, expected: FolderKind) -> Error {
        let at = folder.display();
        match self {
            Self::Newer(version) => {
                let known = expected.version_max();
                Error::input(format!(
                    "{at} has format version {version}, but this adjoin reads versions up to {known}; upgrade adjoin"
                ))
            }
            Self::Other(kind) => kind.is_not(expected, folder),
            Self::UnknownKind(kind) => {
                Error::input(format!("{at} is of the kind {kind}, which this adjoin does not know; upgrade adjoin"))
            }
            Self::Damaged(why) => {
                Error::corrupt(format!("{}: {why}; {}", folder.join(MANIFEST_FILE).display(), expected.remedy()))
            }
        }
    }
}

/// The part that manifests of all kinds and versions share: an intact checksum and a kind.
pub(super) struct Envelope {
    pub(super) kind: FolderKind,
    value: Value,
}

impl Envelope {
    pub(super) fn parse(bytes: &[u8]) -> std::result::Result<Self, Unreadable> {
        let damaged = |why: &str| Unreadable::Damaged(why.to_owned());
        let text = std::str::from_utf8(bytes).map_err(|_| damaged("the manifest is not text"))?;
        let value: Value = serde_json::from_str(text).map_err(|_| damaged("the manifest is not JSON"))?;
        let digits = value.get("manifest_xxh3").and_then(Value::as_str).unwrap_or_default();
        if digits.len() != NO_CHECKSUM.len() {
            return Err(damaged("the manifest has no checksum"));
        }
        // The checksum covers the text, not the parsed value, since a later version may add roles.
        let blank = text.replace(digits, NO_CHECKSUM);
        if hexadecimal(checksum(blank.as_bytes())) != digits {
            return Err(damaged("checksum mismatch"));
        }
        let kind = match value.get("kind") {
            None => FolderKind::Store,
            Some(kind) => {
                let name = kind.as_str().ok_or_else(|| damaged("the manifest does not state its kind"))?;
                FolderKind::of_name(name).ok_or_else(|| Unreadable::UnknownKind(shortened(name)))?
            }
        };
        Ok(Self { kind, value })
    }

    /// Returns the checksum that the manifest states.
    fn digits(&self) -> Option<&str> {
        self.value.get("manifest_xxh3").and_then(Value::as_str)
    }

    /// Returns the files that the manifest names. Fails if the format version is newer, or if the kind requires a role
    /// for which the manifest names no file.
    pub(super) fn files(&self) -> std::result::Result<Files, Unreadable> {
        let version = self.value.get("format_version").and_then(Value::as_u64).unwrap_or(0);
        if version > u64::from(self.kind.version_max()) {
            return Err(Unreadable::Newer(version));
        }
        let files: Files = understood(self.value.get("files").cloned().unwrap_or_default())?;
        files.require(self.kind.roles()).map_err(|why| not_understood(&why))?;
        Ok(files)
    }
}

fn understood<T: DeserializeOwned>(value: Value) -> std::result::Result<T, Unreadable> {
    serde_json::from_value(value).map_err(|error| not_understood(&error.to_string()))
}

fn not_understood(why: &str) -> Unreadable {
    Unreadable::Damaged(format!("the manifest cannot be parsed: {}", shortened(why)))
}

/// Encodes a manifest as JSON with its own checksum, which replaces the last [`NO_CHECKSUM`] in `blank`.
pub(crate) fn sealed(blank: &impl Serialize) -> Vec<u8> {
    let text = serde_json::to_string_pretty(blank).expect("a manifest has no map with other keys than text") + "\n";
    let digits = hexadecimal(checksum(text.as_bytes()));
    // The checksum is the last field; an earlier one may hold the same digits.
    let at = text.rfind(NO_CHECKSUM).expect("a blank manifest contains the placeholder");
    [&text[..at], &digits, &text[at + digits.len()..]].concat().into_bytes()
}

/// Decodes a manifest of the `expected` kind. Fails unless the manifest is intact, has a known version, and names all
/// required files.
pub(crate) fn unsealed<M: DeserializeOwned>(bytes: &[u8], expected: FolderKind) -> std::result::Result<M, Unreadable> {
    let envelope = Envelope::parse(bytes)?;
    if envelope.kind != expected {
        return Err(Unreadable::Other(envelope.kind));
    }
    envelope.files()?;
    understood(envelope.value)
}

/// Shortens text of a manifest for use in messages.
fn shortened(text: &str) -> String {
    match text.char_indices().nth(FAULT_CHARACTERS_MAX) {
        Some((end, _)) => format!("{}...", &text[..end]),
        None => text.to_owned(),
    }
}

/// Reads the bytes of a folder's manifest.
pub(crate) fn read_manifest_bytes(context: &Context, folder: &Path) -> Result<Vec<u8>> {
    let file = context.device.open(&folder.join(MANIFEST_FILE))?;
    // Checked before the file is read: any file may have this name, and parsing takes a multiple of its length.
    if file.len() > StoreManifest::bytes_max() {
        return Err(Error::corrupt(format!(
            "{}: the manifest is longer than any that adjoin writes",
            folder.display()
        )));
    }
    read_whole(&*file)
}

/// Reads the manifest of a store.
pub(crate) fn read_manifest(context: &Context, folder: &Path) -> Result<StoreManifest> {
    StoreManifest::decode(folder, &read_manifest_bytes(context, folder)?)
}

/// Returns the names of all files in the folder's current manifest, including roles that only a later version knows.
///
/// # Errors
/// Fails if the manifest cannot be read, or is damaged or newer.
pub(crate) fn named_files(context: &Context, folder: &Path) -> Result<Vec<String>> {
    let envelope = Envelope::parse(&read_manifest_bytes(context, folder)?);
    let kind = envelope.as_ref().map_or(FolderKind::Store, |envelope| envelope.kind);
    let files = envelope.and_then(|envelope| envelope.files());
    let files = files.map_err(|unreadable| unreadable.in_folder(folder, kind))?;
    Ok(files.iter().map(|(_, facts)| facts.name.clone()).collect())
}

/// Returns whether the folder's manifest has been replaced since `manifest` was read. Returns `false` if the current
/// manifest cannot be read.
pub(crate) fn is_other_manifest(context: &Context, folder: &Path, manifest: &[u8]) -> bool {
    let digits = Envelope::parse(manifest).ok().and_then(|envelope| envelope.digits().map(str::to_owned));
    digits.is_some_and(|digits| is_replaced(context, folder, &digits))
}

/// Returns whether the folder's manifest has another checksum than `digits`. If so, the folder was built again, and
/// files of the old generation may be missing.
pub(crate) fn is_replaced(context: &Context, folder: &Path, digits: &str) -> bool {
    // If the current manifest cannot be read, the caller reports its own error, which is more specific.
    let now = read_manifest_bytes(context, folder).ok().and_then(|bytes| Envelope::parse(&bytes).ok());
    now.is_some_and(|now| now.digits() != Some(digits))
}

/// How centers are chosen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Centers {
    /// Trained by k-means on a sample.
    Trained,
    /// Computed by another program.
    #[serde(alias = "random")]
    Given,
}

impl Centers {
    /// Returns the name of the strategy.
    pub fn name(self) -> &'static str {
        match self {
            Self::Trained => "trained",
            Self::Given => "given",
        }
    }
}

/// How vectors are assigned to centers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Assignment {
    /// Each vector is assigned to the nearest center among the groups of centers that are nearest to it.
    TwoLevel,
}

/// Returns whether `longest` is a valid length of the longest vector: present exactly for inner products, finite and
/// not negative.
pub(crate) fn is_longest(metric: Metric, longest: Option<f64>) -> bool {
    longest.is_some() == (metric == Metric::Ip) && longest.is_none_or(|longest| longest.is_finite() && longest >= 0.0)
}

impl StoreManifest {
    /// Describes the rows and buckets of the store in one line.
    pub fn in_words(&self) -> String {
        let [rows, buckets] =
            [(self.rows, "vector"), (self.buckets.into(), "bucket")].map(|(n, of)| format_count(n, of));
        format!("{rows} of {} x {} in {buckets}", self.vectors.dimensions, self.vectors.element)
    }

    /// Returns the number of rows left out for lack of a usable vector. Removed rows had a usable vector, so they are
    /// not counted.
    pub(crate) fn without_vectors(&self) -> u64 {
        self.skipped_rows - self.removed_rows
    }

    /// Returns the statistics that commands on this store report.
    pub(crate) fn statistics(&self, context: &Context, command: &'static str) -> CommonStatistics {
        CommonStatistics {
            rows: self.rows,
            dimensions: self.vectors.dimensions,
            element: self.vectors.element.to_string(),
            metric: self.metric.to_string(),
            seed: self.seed,
            skipped_rows: self.without_vectors(),
            duplicate_ids: Some(self.duplicate_ids),
            ..context.statistics(command)
        }
    }

    /// Encodes the manifest as JSON with its own checksum.
    pub fn encode(&self) -> Vec<u8> {
        sealed(&Self { manifest_xxh3: NO_CHECKSUM.into(), ..self.clone() })
    }

    /// Decodes a manifest and checks everything that does not depend on the other files.
    ///
    /// # Errors
    /// Fails if the manifest is damaged, of a newer version, or contains impossible values.
    pub fn decode(folder: &Path, bytes: &[u8]) -> Result<Self> {
        Self::parse(bytes).map_err(|unreadable| unreadable.in_folder(folder, FolderKind::Store))
    }

    /// Decodes a manifest like [`Self::decode`], but returns the reason for a failure instead of an error message.
    pub(super) fn parse(bytes: &[u8]) -> std::result::Result<Self, Unreadable> {
        let manifest: Self = unsealed(bytes, FolderKind::Store)?;
        match manifest.contradiction() {
            None => Ok(manifest),
            Some(what) => Err(Unreadable::Damaged(format!("the manifest has an invalid value: {what}"))),
        }
    }

    /// Returns the first impossible or contradictory value, if any. The length of a file is accepted only if the other
    /// values imply it.
    fn contradiction(&self) -> Option<&'static str> {
        let Self { rows, source_rows, .. } = *self;
        let (buckets, dimensions) = (u64::from(self.buckets), self.vectors.dimensions);
        if !(1..=DIMENSIONS_MAX).contains(&dimensions) {
            return Some("its number of dimensions");
        }
        let space = self.space();
        let center = space.dimensions() as u64 * space.center_bytes();
        let (centers, table) = (&self.files[Role::Centers], &self.files[Role::Table]);
        let vectors = self.files[Role::Vectors].bytes;
        let facts = [
            ("its number of rows", (1..=ROWS_MAX).contains(&rows) && rows <= source_rows && source_rows <= ROWS_MAX),
            ("its number of skipped rows", source_rows.checked_sub(rows) == Some(self.skipped_rows)),
            ("its number of removed rows", self.removed_rows <= self.skipped_rows),
            ("its number of rows when it was built", self.built_rows.is_none_or(|built| built <= source_rows)),
            ("its number of duplicate ids", self.duplicate_ids < rows),
            ("its number of buckets", (1..=rows).contains(&buckets)),
            ("the length of its table", table.bytes == buckets * ENTRY_BYTES as u64),
            ("the length of its centers", centers.bytes == buckets * center),
            ("its sort column", self.is_sorted_as_it_says()),
            ("the length of its longest vector", is_longest(self.metric, self.longest)),
            // Each bucket also has a header and a row number for each vector. The bucket table accounts for these
            // bytes.
            (
                "the length of its vectors",
                vectors / self.vectors.bytes() as u64 >= rows && vectors.is_multiple_of(FILE_ALIGNMENT),
            ),
        ];
        facts.into_iter().find(|(_, holds)| !holds).map(|(what, _)| what)
    }

    /// Returns how the vectors become coordinates.
    pub(crate) fn space(&self) -> Space<'static> {
        Space::plain(self.vectors, self.metric).up_to_length(self.longest)
    }

    /// Returns whether a store with sorted rows has everything that readers of sorted rows need: columns, block
    /// checksums, and a format version that older readers refuse. Returns true if rows are not sorted.
    fn is_sorted_as_it_says(&self) -> bool {
        let blocks_bytes = self.files[Role::Vectors].bytes / BLOCK_BYTES * size_of::<u64>() as u64;
        let is_there = self.files.get(Role::Blocks).is_some_and(|blocks| blocks.bytes == blocks_bytes)
            && self.files.get(Role::Attributes).is_some();
        self.sorted_by.is_none() || (is_there && self.format_version >= SORTED_VERSION)
    }

    /// Returns the properties that all buckets share.
    pub(super) fn bucket_facts(&self) -> BucketFacts {
        let is_sorted = self.sorted_by.is_some();
        BucketFacts { vectors: self.vectors, ids: self.ids, source_rows: self.source_rows, is_sorted }
    }

    /// Returns the maximum length of a manifest, in bytes. Longer files are not read.
    pub fn bytes_max() -> u64 {
        MANIFEST_BYTES_MAX
    }
}

#[cfg(test)]
mod tests {
    use super::super::files::FileFacts;
    use super::*;
    use crate::base::options::Element;

    fn sample() -> StoreManifest {
        let lengths = |role| match role {
            Role::Centers => 3 * 384 * 4,
            Role::Table => 3 * 32,
            _ => 12 * 4096,
        };
        let file = |role: Role| FileFacts { bytes: lengths(role), ..FileFacts::of(role.name(), b"its contents") };
        StoreManifest {
            format_version: FORMAT_VERSION,
            vectors: VectorType { element: Element::F16, dimensions: 384 },
            rows: 10,
            source_rows: 12,
            skipped_rows: 2,
            duplicate_ids: 0,
            metric: Metric::Cosine,
            longest: None,
            built_rows: Some(11),
            removed_rows: 1,
            sorted_by: None,
            ids: IdKind::Utf8,
            rounded_from_f64: false,
            seed: u64::MAX,
            centers: Centers::Trained,
            assignment: Assignment::TwoLevel,
            buckets: 3,
            files: Files::new(&[Role::Centers, Role::Table, Role::Vectors], file),
            manifest_xxh3: NO_CHECKSUM.into(),
        }
    }

    #[test]
    fn manifests_round_trip_and_flipped_bits_are_detected() {
        let folder = Path::new("store");
        let bytes = sample().encode();
        let read = StoreManifest::decode(folder, &bytes).unwrap();
        assert_eq!(StoreManifest { manifest_xxh3: NO_CHECKSUM.into(), ..read }, sample());
        for bit in 0..bytes.len() * 8 {
            let mut flipped = bytes.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert!(StoreManifest::decode(folder, &flipped).is_err(), "bit {bit}");
        }
    }

    /// Returns the sample manifest with one replacement and a corrected checksum.
    fn edited(what: &str, by: &str) -> std::result::Result<StoreManifest, Error> {
        let text = String::from_utf8(sample().encode()).unwrap();
        let digits = StoreManifest::decode(Path::new("store"), text.as_bytes()).unwrap().manifest_xxh3;
        let edited = text.replace(&digits, NO_CHECKSUM).replacen(what, by, 1);
        let sealed = edited.replace(NO_CHECKSUM, &hexadecimal(checksum(edited.as_bytes())));
        StoreManifest::decode(Path::new("store"), sealed.as_bytes())
    }

    #[test]
    fn file_roles_of_later_versions_are_preserved() {
        for more in ["\"later\"", "{\"parts\": []}"] {
            let read = edited("\"files\": {", &format!("\"files\": {{ \"codes\": {more},")).unwrap();
            assert_eq!(read.files.iter().map(|(role, _)| role).collect::<Vec<_>>(), ["centers", "table", "vectors"]);
        }
        let codes = r#""codes": {"name": "codes.bin", "bytes": 5, "xxh3": "0011223344556677", "bits": 4},"#;
        let read = edited("\"files\": {", &format!("\"files\": {{ {codes}")).unwrap();
        let facts = FileFacts { name: "codes.bin".into(), bytes: 5, xxh3: Some("0011223344556677".into()) };
        assert_eq!(read.files.unknown(&Role::STORE).collect::<Vec<_>>(), [("codes", &facts)]);
    }

    #[test]
    fn newer_versions_and_other_kinds_are_refused() {
        let said = |by: &str| edited("\"format_version\": 1", by).unwrap_err().to_string();
        let newer = said("\"format_version\": 3");
        assert!(newer.contains("format version 3, but this adjoin reads versions up to 2; upgrade adjoin"), "{newer}");
        for (kind, words) in [("index", "store is a graph index, not a store"), ("live", "store is a collection")] {
            let other = said(&format!("\"kind\": \"{kind}\", \"format_version\": 7"));
            assert!(other.starts_with(words), "{other}");
        }
        let unknown = said(&format!("\"kind\": \"{}\\n\", \"format_version\": 1", "tree".repeat(1_000)));
        assert!(unknown.contains("is of the kind treetree") && unknown.len() < 500, "{unknown}");
        assert!(edited("\"format_version\"", "\"kind\": \"store\", \"format_version\"").is_ok());
    }

    #[test]
    fn refuses_inconsistent_manifests() {
        for (what, by) in [
            ("\"rows\": 10", "\"rows\": 11"),
            ("\"rows\": 10", "\"rows\": 0"),
            ("\"source_rows\": 12", "\"source_rows\": 9"),
            ("\"source_rows\": 12", "\"source_rows\": 18446744073709551615"),
            ("\"skipped_rows\": 2", "\"skipped_rows\": 3"),
            ("\"duplicate_ids\": 0", "\"duplicate_ids\": 10"),
            ("\"removed_rows\": 1", "\"removed_rows\": 3"),
            ("\"built_rows\": 11", "\"built_rows\": 13"),
            ("\"ids\"", "\"sorted_by\": \"year\", \"ids\""),
            ("\"buckets\": 3", "\"buckets\": 4"),
            ("\"buckets\": 3", "\"buckets\": 0"),
            ("\"dimensions\": 384", "\"dimensions\": 383"),
            ("\"dimensions\": 384", "\"dimensions\": 0"),
            ("\"bytes\": 4608", "\"bytes\": 4398046511104"),
            ("\"bytes\": 96", "\"bytes\": 4398046511104"),
            ("\"bytes\": 49152", "\"bytes\": 4096"),
            ("\"bytes\": 49152", "\"bytes\": 49153"),
        ] {
            let said = edited(what, by).unwrap_err().to_string();
            assert!(said.contains("the manifest has an invalid value: "), "{by}: {said}");
        }
    }
}
