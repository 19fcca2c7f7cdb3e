//! The files of a folder by role. Building, reading, replacing and verifying all use this one list.

use std::collections::BTreeMap;
use std::ops::{Index, IndexMut};
use std::path::{Path, PathBuf};

use adjoin_device::ReadFile;
use serde::{Deserialize, Serialize};

use super::format::{BLOCKS_FILE, CENTERS_FILE, MANIFEST_FILE, TABLE_FILE, VECTORS_FILE, checksum, hexadecimal};

/// Longest file name that common file systems allow, in bytes.
const NAME_BYTES_MAX: usize = 255;

/// The purpose of a file of a store or an index. Later versions may add roles; this version ignores them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// Centers, in bucket order.
    Centers,
    /// The bucket table.
    Table,
    /// The buckets; each has its own checksums.
    Vectors,
    /// The pages of a graph: vectors with their neighbors. Each page has its own checksum.
    Pages,
    /// The code of each vector of a graph.
    Codes,
    /// The codebook: how to decode the codes.
    Codebook,
    /// The navigation graph. It is held in memory and leads searches into the graph on pages.
    Navigation,
    /// For vectors that occur in more than one row: their rows.
    Duplicates,
    /// Ids of the rows of a graph, in blocks with checksums; empty if the rows have no ids.
    Ids,
    /// Calibration data: the known recall of a graph.
    Calibration,
    /// Columns of the source, which filters can use.
    Attributes,
    /// A checksum for each block of the buckets. It exists if parts of buckets can be read.
    Blocks,
}

impl Role {
    /// The roles of a store.
    pub const STORE: [Self; 5] = [Self::Centers, Self::Table, Self::Vectors, Self::Attributes, Self::Blocks];
    /// The roles of an index.
    pub const INDEX: [Self; 8] = [
        Self::Pages,
        Self::Codes,
        Self::Codebook,
        Self::Navigation,
        Self::Duplicates,
        Self::Ids,
        Self::Calibration,
        Self::Attributes,
    ];

    /// Returns whether a folder may lack the file of this role.
    pub fn is_optional(self) -> bool {
        matches!(self, Self::Calibration | Self::Attributes | Self::Blocks)
    }

    /// Returns the name of the role in the manifest.
    pub fn name(self) -> &'static str {
        match self {
            Self::Centers => "centers",
            Self::Table => "table",
            Self::Vectors => "vectors",
            Self::Pages => "pages",
            Self::Codes => "codes",
            Self::Codebook => "codebook",
            Self::Navigation => "navigation",
            Self::Duplicates => "duplicates",
            Self::Ids => "ids",
            Self::Calibration => "calibration",
            Self::Attributes => "attributes",
            Self::Blocks => "blocks",
        }
    }

    /// Returns the name of the file in a draft.
    pub(crate) fn file(self) -> &'static str {
        match self {
            Self::Centers => CENTERS_FILE,
            Self::Table => TABLE_FILE,
            Self::Vectors => VECTORS_FILE,
            Self::Pages => "pages.bin",
            Self::Codes => "codes.bin",
            Self::Codebook => "codebook.bin",
            Self::Navigation => "navigation.bin",
            Self::Duplicates => "duplicates.bin",
            Self::Ids => "ids.bin",
            Self::Calibration => "calibration.bin",
            Self::Attributes => "attributes.parquet",
            Self::Blocks => BLOCKS_FILE,
        }
    }

    /// Returns the name of the file in a folder. `contents` is the checksum of a generation, so files of a new
    /// generation have new names. Only the rename of the manifest replaces the old generation.
    pub(crate) fn file_of(self, contents: u64) -> String {
        let (stem, ending) = self.file().rsplit_once('.').expect("each file name has an extension");
        format!("{stem}-{}.{ending}", hexadecimal(contents))
    }
}

/// A file's name, length and checksum.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileFacts {
    /// Name within the folder.
    pub name: String,
    /// Length in bytes.
    pub bytes: u64,
    /// Checksum of the whole file as 16 hexadecimal digits; `None` if its parts have their own checksums.
    pub xxh3: Option<String>,
}

impl FileFacts {
    /// Describes a file that is verified as a whole.
    pub fn of(name: &str, contents: &[u8]) -> Self {
        Self::new(name, contents.len() as u64, Some(checksum(contents)))
    }

    /// Describes a file of `bytes` bytes. `checksum` is present if the file is verified as a whole.
    pub(crate) fn new(name: &str, bytes: u64, checksum: Option<u64>) -> Self {
        Self { name: name.into(), bytes, xxh3: checksum.map(hexadecimal) }
    }

    /// Returns whether `contents` match the recorded length and checksum.
    pub fn matches(&self, contents: &[u8]) -> bool {
        self.bytes == contents.len() as u64 && self.has_checksum(checksum(contents))
    }

    /// Returns whether `checksum` is the recorded checksum of the whole file.
    pub(crate) fn has_checksum(&self, checksum: u64) -> bool {
        self.xxh3.as_deref() == Some(&hexadecimal(checksum))
    }

    /// Returns the path of the file. The path is inside the folder: a manifest with other names is refused when it is
    /// read.
    pub(crate) fn path(&self, folder: &Path) -> PathBuf {
        folder.join(&self.name)
    }
}

/// Reads all bytes of a file. The caller has reserved the memory.
pub(crate) fn read_whole(file: &dyn ReadFile) -> crate::base::error::Result<Vec<u8>> {
    let mut contents = vec![0; file.len() as usize];
    adjoin_device::prefer_large_pages(&mut contents);
    file.read_at(0, &mut contents)?;
    Ok(contents)
}

/// Returns whether a name denotes a file directly in the folder, other than the manifest.
fn is_plain(name: &str) -> bool {
    // A damaged manifest must not make a cleanup remove files elsewhere.
    let outside = ["", ".", "..", MANIFEST_FILE].contains(&name) || name.contains(['/', '\0']);
    !outside && name.len() <= NAME_BYTES_MAX
}

/// The files of a folder by role. May include roles that this version does not know.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "BTreeMap<String, serde_json::Value>")]
pub struct Files(BTreeMap<String, FileFacts>);

impl Files {
    /// Creates a list with one file for each of these roles.
    pub fn new(roles: &[Role], facts: impl Fn(Role) -> FileFacts) -> Self {
        Self(roles.iter().map(|&role| (role.name().to_owned(), facts(role))).collect())
    }

    /// Checks that every role in `roles` has a file, unless the role is optional.
    pub(super) fn require(&self, roles: &[Role]) -> Result<(), String> {
        match roles.iter().find(|role| !role.is_optional() && !self.0.contains_key(role.name())) {
            None => Ok(()),
            Some(role) => Err(format!("it names no file for the role {}", role.name())),
        }
    }

    /// Returns the file of a role, if present.
    pub fn get(&self, role: Role) -> Option<&FileFacts> {
        self.0.get(role.name())
    }

    /// Adds the file of a role.
    pub(crate) fn add(&mut self, role: Role, facts: FileFacts) {
        self.0.insert(role.name().to_owned(), facts);
    }

    /// Iterates over the files and the names of their roles.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &FileFacts)> {
        self.0.iter().map(|(role, facts)| (&**role, facts))
    }

    /// Iterates over the files of all roles that are not in `roles`.
    pub fn unknown(&self, roles: &[Role]) -> impl Iterator<Item = (&str, &FileFacts)> {
        self.iter().filter(|(role, _)| !roles.iter().any(|known| known.name() == *role))
    }
}

impl Index<Role> for Files {
    type Output = FileFacts;

    fn index(&self, role: Role) -> &FileFacts {
        &self.0[role.name()]
    }
}

impl IndexMut<Role> for Files {
    fn index_mut(&mut self, role: Role) -> &mut FileFacts {
        self.0.get_mut(role.name()).expect("a manifest has a file for each role of its kind")
    }
}

impl TryFrom<BTreeMap<String, serde_json::Value>> for Files {
    type Error = String;

    fn try_from(roles: BTreeMap<String, serde_json::Value>) -> Result<Self, String> {
        // A later version may describe a role that is not a file; skip what cannot be parsed as one.
        let facts = roles.into_iter().filter_map(|(role, facts)| Some((role, serde_json::from_value(facts).ok()?)));
        let files: BTreeMap<String, FileFacts> = facts.collect();
        let names: Vec<&str> = files.values().map(|facts| &*facts.name).collect();
        if !names.iter().all(|name| is_plain(name)) {
            return Err("it names a file outside of its folder".into());
        }
        // One file cannot have two roles, because each role has its own length and checksum.
        if names.iter().enumerate().any(|(k, name)| names[..k].contains(name)) {
            return Err("it names a file for two roles".into());
        }
        Ok(Self(files))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn files(text: &str) -> Result<Files, String> {
        let known = r#""centers": {"name": "a", "bytes": 1, "xxh3": null},
                       "table": {"name": "b", "bytes": 1, "xxh3": null},
                       "vectors": {"name": "c", "bytes": 1, "xxh3": null}"#;
        serde_json::from_str(&format!("{{{known}{text}}}")).map_err(|error| error.to_string())
    }

    #[test]
    fn file_names_are_within_the_folder_and_one_per_role() {
        let named = |name: &str| files(&format!(r#", "codes": {{"name": "{name}", "bytes": 1}}"#));
        assert_eq!(
            named("codes.bin").unwrap().unknown(&Role::STORE).map(|(role, _)| role).collect::<Vec<_>>(),
            ["codes"]
        );
        for bad in ["", ".", "..", "../codes", "/etc/passwd", "a/b", "\\u0000", "manifest.json", &"x".repeat(256)] {
            assert!(named(bad).unwrap_err().contains("outside of its folder"), "{bad}");
        }
        assert!(named("c").unwrap_err().contains("two roles"));
        let other = serde_json::from_str::<Files>(r#"{"centers": {"name": "a", "bytes": 1, "xxh3": null}}"#);
        assert!(other.unwrap().require(&Role::STORE).unwrap_err().contains("no file for the role table"));
    }
}
