//! Damaged parts of a store, and the result of its verification.

use std::fmt;
use std::ops::Range;

use crate::base::message::Message;

/// Maximum number of damages, and of unnamed files of each kind, to list. Further damages are only counted.
pub(super) const LISTED_MAX: usize = 1_000;

/// A part of a store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DamagedPart {
    /// The manifest.
    Manifest,
    /// The centers.
    Centers,
    /// The bucket table.
    Table,
    /// The file of the buckets as a whole: missing, of a wrong length, or from another store.
    Vectors,
    /// A bucket: its header, vectors, row numbers or ids.
    Bucket,
    /// The columns of the rows.
    Attributes,
    /// The checksums of blocks of the buckets, which verify parts of buckets.
    Blocks,
    /// A file of a role that this version does not know. No result of this version depends on it.
    Unknown,
    /// Zeros after a bucket. No result depends on this padding.
    Padding,
}

/// A damaged part of a store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Damage {
    /// Kind of the part.
    pub part: DamagedPart,
    /// Name of the file in the store's folder.
    pub file: String,
    /// Number of the damaged bucket, or of the bucket before the damaged padding.
    pub bucket: Option<u32>,
    /// Byte range that contains the damage.
    pub bytes: Option<Range<u64>>,
    /// First and last row of the source in the bucket, if its row numbers are plausible.
    pub rows: Option<(u64, u64)>,
    /// Description of the damage.
    pub fault: String,
}

impl Damage {
    fn text(&self) -> String {
        let mut text = self.file.clone();
        if let Some(bucket) = self.bucket {
            let after = if self.part == DamagedPart::Padding { "after " } else { "" };
            text += &format!(", {after}bucket {bucket}");
        }
        if let Some(bytes) = &self.bytes {
            text += &format!(", bytes {} to {}", bytes.start, bytes.end.saturating_sub(1));
        }
        if let Some((first, last)) = self.rows {
            text += &format!(", rows {first} to {last} of the source");
        }
        text + ": " + &self.fault
    }
}

/// Formats the damage as one line. File names are from the manifest, so they may contain any character.
impl fmt::Display for Damage {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&Message::one_line(self.text()))
    }
}

/// Result of [`Store::verify`](crate::Store::verify).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct StoreVerifyReport {
    /// Number of buckets checked.
    pub buckets: u64,
    /// Bytes read.
    pub bytes_read: u64,
    /// The first thousand damages.
    pub damages: Vec<Damage>,
    /// Number of all damages.
    pub damage_count: u64,
    /// The first thousand leftovers of interrupted builds in the folder. They are harmless.
    pub leftovers: Vec<String>,
    /// The first thousand other files and folders that the manifest does not name. A build did not create them.
    pub strangers: Vec<String>,
    /// Files of roles that this version does not know, and their roles.
    pub unknown: Vec<(String, String)>,
    beyond_table: bool,
    beyond_unknown: bool,
    beyond_padding: bool,
}

impl StoreVerifyReport {
    /// Returns whether no damage was found.
    pub fn is_sound(&self) -> bool {
        self.damage_count == 0
    }

    /// Returns what to do about the damage; `None` if there is none.
    pub fn remedy(&self) -> Option<&'static str> {
        if self.is_sound() {
            None
        } else if !self.beyond_padding {
            Some("only padding changed, so joins still give correct results; copy the store again or build it again")
        } else if !self.beyond_unknown {
            Some(
                "files of roles that this version does not know are damaged, so joins still give correct results; \
                 copy the store again, or build it again with the version that wrote it",
            )
        } else if !self.beyond_table {
            Some(
                "no vector is lost: the bucket table could be rebuilt from the headers of the buckets and the \
                 centers, which are intact; this version cannot do that, so build the store again from its source",
            )
        } else {
            Some("this cannot be repaired; build the store again from its source")
        }
    }

    pub(super) fn add(&mut self, damage: Damage) {
        self.damage_count += 1;
        self.beyond_padding |= damage.part != DamagedPart::Padding;
        self.beyond_unknown |= !matches!(damage.part, DamagedPart::Padding | DamagedPart::Unknown);
        self.beyond_table |= !matches!(damage.part, DamagedPart::Padding | DamagedPart::Unknown | DamagedPart::Table);
        if self.damages.len() < LISTED_MAX {
            self.damages.push(damage);
        }
    }
}
