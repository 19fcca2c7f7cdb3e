//! Byte layout and constants of a store on disk. `docs/format.md` describes them for readers in other languages.
//!
//! All numbers are little-endian, as in the memory of the machines that adjoin supports. So structs are stored as they
//! are in memory.

use std::ops::Range;

use xxhash_rust::xxh3::xxh3_64;
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes};

use crate::base::error::{Error, Result};
use crate::base::options::{ROWS_MAX, VectorType};
use crate::source::{IdKind, Ids, TextIds};

/// Version of the whole format. Readers refuse newer versions.
pub(crate) const FORMAT_VERSION: u32 = 1;
/// Format version of a store with rows sorted by a column within buckets. Other stores have version 1.
pub const SORTED_VERSION: u32 = 2;
/// Newest format version of a collection. Version 2 has columns, version 1 does not.
pub(crate) const LIVE_VERSION: u32 = 2;
/// Name of the file that makes a folder a store.
pub(crate) const MANIFEST_FILE: &str = "manifest.json";
/// Name of the file of the centers.
pub(crate) const CENTERS_FILE: &str = "centers.bin";
/// Name of the file of the bucket table.
pub(crate) const TABLE_FILE: &str = "buckets.bin";
/// Name of the file of the buckets.
pub(crate) const VECTORS_FILE: &str = "vectors.bin";
/// Name of the file of the block checksums.
pub(crate) const BLOCKS_FILE: &str = "blocks.bin";
/// Alignment of extents in the file of buckets, in bytes: the logical block size of common devices.
pub const EXTENT_ALIGNMENT: u64 = 512;
/// Alignment of the length of the file of buckets, in bytes.
pub(crate) const FILE_ALIGNMENT: u64 = 4096;
/// Size of a block of the file of buckets, in bytes. If a store has block checksums, there is one for each block.
pub const BLOCK_BYTES: u64 = FILE_ALIGNMENT;
/// Size of an extent's header, in bytes.
pub const HEADER_BYTES: usize = size_of::<Header>();
/// Size of an entry of the bucket table, in bytes.
pub(crate) const ENTRY_BYTES: usize = size_of::<Extent>();

const _: () = assert!(cfg!(target_endian = "little") && HEADER_BYTES == 64 && ENTRY_BYTES == 32);

const EXTENT_MAGIC: [u8; 8] = *b"ADJOINBK";

/// Returns the tag in a file's name (`TAG` in `vectors-TAG.bin`, 16 hexadecimal digits); `None` if the name has another
/// form.
pub(super) fn tag_of<'a>(name: &'a str, file: &str) -> Option<&'a str> {
    let (stem, ending) = file.rsplit_once('.')?;
    let tag = name.strip_prefix(stem)?.strip_prefix('-')?.strip_suffix(ending)?.strip_suffix('.')?;
    let is_digit = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
    (tag.len() == 16 && tag.bytes().all(is_digit)).then_some(tag)
}

/// Computes the checksum of bytes: XXH3, 64 bits, seed 0.
pub fn checksum(bytes: &[u8]) -> u64 {
    xxh3_64(bytes)
}

/// Formats a checksum as manifests and file names spell it.
pub(crate) fn hexadecimal(checksum: u64) -> String {
    format!("{checksum:016x}")
}

/// Properties that all buckets of a store share.
#[derive(Debug, Clone, Copy)]
pub struct BucketFacts {
    /// Type of the vectors.
    pub vectors: VectorType,
    /// Kind of the ids.
    pub ids: IdKind,
    /// Number of rows of the source; all row numbers are below it.
    pub source_rows: u64,
    /// Whether rows are sorted by a column within buckets, in which case row numbers are not ascending.
    pub is_sorted: bool,
}

/// State of a check that the numbers of a bucket ascend up to a bound. The numbers are row numbers or the ends of text ids.
pub(super) struct Ascent {
    /// Least valid value of the next number.
    least: u64,
    most: u64,
    step: u64,
    good: bool,
    /// Numbers that may arrive in any order. They are collected, and checked at the end.
    unordered: Option<Vec<u64>>,
}

impl Ascent {
    /// Creates a check of row numbers. They must be distinct and less than `source_rows`. They must also ascend,
    /// unless rows are sorted by a column.
    pub(super) fn of_rows(source_rows: u64, is_sorted: bool) -> Self {
        let unordered = is_sorted.then(Vec::new);
        Self { least: 0, most: source_rows.saturating_sub(1), step: 1, good: source_rows > 0, unordered }
    }

    /// Creates a check of the ends of texts. The last end must be `text_bytes`, the total length of the texts.
    fn of_ends(text_bytes: u64) -> Self {
        Self { least: 0, most: text_bytes, step: 0, good: true, unordered: None }
    }

    /// Creates a check of the text ids of a bucket with `rows` vectors. Returns `None` if the ids are not texts or if
    /// `id_bytes` is too small for their ends.
    pub(super) fn of_ids(kind: IdKind, rows: u32, id_bytes: u64) -> Option<Self> {
        let text_bytes = id_bytes.checked_sub(8 * u64::from(rows))?;
        (kind == IdKind::Utf8).then(|| Self::of_ends(text_bytes))
    }

    pub(super) fn take(&mut self, number: u64) {
        match &mut self.unordered {
            Some(unordered) => unordered.push(number),
            None => self.look_at(number),
        }
    }

    fn look_at(&mut self, number: u64) {
        self.good &= (self.least..=self.most).contains(&number);
        self.least = number.saturating_add(self.step);
    }

    /// Returns whether all numbers are valid.
    pub(super) fn holds(mut self) -> bool {
        let mut unordered = self.unordered.take().unwrap_or_default();
        unordered.sort_unstable();
        unordered.into_iter().for_each(|number| self.look_at(number));
        // The last end of the texts must be their length; otherwise some bytes would belong to no id.
        self.good && (self.step == 1 || self.least == self.most)
    }
}

/// An entry of the bucket table: the location of a bucket.
#[derive(Debug, Clone, Copy, PartialEq, FromBytes, IntoBytes, Immutable)]
#[repr(C)]
pub struct Extent {
    /// Start in the file of the buckets.
    pub offset: u64,
    /// Number of vectors in the bucket.
    pub rows: u32,
    /// Upper bound on the distance of any vector from the center, in coordinates.
    pub radius: f32,
    /// Bytes of the header, the vectors and the row numbers.
    pub body_bytes: u64,
    /// Bytes of the ids, which follow the body.
    pub id_bytes: u64,
}

impl Extent {
    /// Returns the bytes of header, vectors and row numbers of a bucket of `rows` vectors.
    pub fn body_bytes_of(rows: u32, vectors: VectorType) -> u64 {
        HEADER_BYTES as u64 + vector_section_bytes(rows, vectors) + 8 * u64::from(rows)
    }

    /// Returns the bytes to read, with or without the ids.
    pub fn bytes(&self, with_ids: bool) -> u64 {
        self.body_bytes + if with_ids { self.id_bytes } else { 0 }
    }

    /// Returns the byte range of the vectors of some members in the file of the buckets.
    pub(crate) fn vectors_of(&self, members: Range<u32>, vectors: VectorType) -> Range<u64> {
        entries(self.offset + HEADER_BYTES as u64, members, vectors.bytes() as u64)
    }

    /// Returns the byte range of the row numbers of some members.
    pub(crate) fn rows_of(&self, members: Range<u32>) -> Range<u64> {
        entries(self.offset + self.body_bytes - 8 * u64::from(self.rows), members, 8)
    }

    /// Returns the byte range of the ids of some members. For texts, this is the range of all ids, since the ends are
    /// needed to find one.
    pub(crate) fn ids_of(&self, members: Range<u32>, kind: IdKind) -> Range<u64> {
        let start = self.offset + self.body_bytes;
        match kind {
            IdKind::None => start..start,
            IdKind::Int64 => entries(start, members, 8),
            IdKind::Utf8 => start..start + self.id_bytes,
        }
    }

    /// Returns whether `id_bytes` is a possible length for ids of this kind.
    fn has_ids_of(&self, kind: IdKind) -> bool {
        let numbers = 8 * u64::from(self.rows);
        match kind {
            IdKind::None => self.id_bytes == 0,
            IdKind::Int64 => self.id_bytes == numbers,
            IdKind::Utf8 => self.id_bytes >= numbers,
        }
    }
}

/// Returns the byte range of some entries of an array.
fn entries(start: u64, some: Range<u32>, bytes: u64) -> Range<u64> {
    start + bytes * u64::from(some.start)..start + bytes * u64::from(some.end)
}

/// A bucket's header.
#[derive(FromBytes, IntoBytes, Immutable)]
#[repr(C)]
pub(super) struct Header {
    magic: [u8; 8],
    pub(super) number: u32,
    pub(super) rows: u32,
    /// Checksum of the vectors, their padding and the row numbers.
    pub(super) body_checksum: u64,
    pub(super) id_checksum: u64,
    pub(super) id_bytes: u64,
    unused: [u8; 16],
    /// Checksum of all fields before this one.
    checksum: u64,
}

impl Header {
    /// Reads a header; `None` if its bytes are damaged.
    pub(super) fn decode(bytes: &[u8; HEADER_BYTES]) -> Option<Self> {
        let header: Self = zerocopy::transmute!(*bytes);
        (header.checksum == header.own_checksum() && header.magic == EXTENT_MAGIC).then_some(header)
    }

    /// Returns the header with another number of the bucket.
    pub(super) fn with_number(self, number: u32) -> Self {
        let mut header = Self { number, ..self };
        header.checksum = header.own_checksum();
        header
    }

    fn own_checksum(&self) -> u64 {
        checksum(&self.as_bytes()[..std::mem::offset_of!(Self, checksum)])
    }

    /// Returns the bucket's entry in the bucket table for an extent at `offset`, without the radius.
    pub(super) fn extent(&self, offset: u64, vectors: VectorType) -> Extent {
        let body_bytes = Extent::body_bytes_of(self.rows, vectors);
        Extent { offset, rows: self.rows, radius: 0.0, body_bytes, id_bytes: self.id_bytes }
    }
}

/// The parts of a bucket's bytes, after verification.
#[derive(Debug, PartialEq, Eq)]
pub struct Bucket {
    /// Row numbers; ascending unless rows are sorted by a column.
    pub rows: Vec<u64>,
    /// Byte range of the vectors within the decoded bytes.
    pub vectors: Range<usize>,
    /// Ids, if they were read.
    pub ids: Ids,
}

/// Appends a bucket's extent to `out`, without the padding after it. Returns the bytes of its body and of its ids.
pub(crate) fn encode_bucket<'a>(
    number: u32,
    vectors: VectorType,
    rows: &[u64],
    stored: impl Iterator<Item = &'a [u8]>,
    ids: &Ids,
    out: &mut Vec<u8>,
) -> (u64, u64) {
    let start = out.len();
    // Leaves space for the header, which is written last because it has the checksums of the other parts.
    out.resize(start + HEADER_BYTES, 0);
    stored.for_each(|piece| out.extend_from_slice(piece));
    out.resize(start + HEADER_BYTES + vector_section_bytes(rows.len() as u32, vectors) as usize, 0);
    out.extend(rows.iter().flat_map(|row| row.to_le_bytes()));
    let body_end = out.len();
    encode_ids(ids, out);

    let mut header = Header {
        magic: EXTENT_MAGIC,
        number,
        rows: rows.len() as u32,
        body_checksum: checksum(&out[start + HEADER_BYTES..body_end]),
        id_checksum: checksum(&out[body_end..]),
        id_bytes: (out.len() - body_end) as u64,
        ..Header::new_zeroed()
    };
    header.checksum = header.own_checksum();
    out[start..start + HEADER_BYTES].copy_from_slice(header.as_bytes());
    ((body_end - start) as u64, header.id_bytes)
}

/// Verifies a bucket's bytes and locates its parts. `bytes` has the length that [`Extent::bytes`] returns; ids are
/// decoded if they were read.
///
/// # Errors
/// Fails if a byte is damaged or a value is impossible. The error names the part.
pub fn decode_bucket(number: u32, facts: &BucketFacts, extent: &Extent, bytes: &[u8]) -> Result<Bucket> {
    let BucketFacts { vectors, ids: kind, .. } = *facts;
    let broken = |part: &str| Error::corrupt(format!("bucket {number}: {part}: checksum mismatch"));
    let header = bytes.first_chunk().ok_or_else(|| broken("length"))?;
    let header = Header::decode(header).ok_or_else(|| broken("header"))?;
    // A bucket with valid checksums may still be from another store or another place of the file.
    let as_listed = header.number == number
        && header.extent(extent.offset, vectors) == (Extent { radius: 0.0, ..*extent })
        && bytes.len() as u64 >= extent.body_bytes;
    if !as_listed {
        return Err(Error::corrupt(format!("bucket {number}: its header and the bucket table disagree")));
    }
    let (body, ids) = bytes.split_at(extent.body_bytes as usize);
    if header.body_checksum != checksum(&body[HEADER_BYTES..]) {
        return Err(broken("vectors or row numbers"));
    }
    let ids = if ids.is_empty() {
        Ids::None
    } else {
        let section = ids.get(..extent.id_bytes as usize).ok_or_else(|| broken("length"))?;
        if header.id_checksum != checksum(section) {
            return Err(broken("ids"));
        }
        decode_ids(kind, extent.rows as usize, section).ok_or_else(|| broken("ids"))?
    };
    let rows_start = HEADER_BYTES + vector_section_bytes(extent.rows, vectors) as usize;
    let rows = decode_rows(number, facts, &body[rows_start..])?;
    Ok(Bucket { rows, vectors: HEADER_BYTES..HEADER_BYTES + extent.rows as usize * vectors.bytes(), ids })
}

/// Decodes the row numbers of a bucket or of some of its members.
fn decode_rows(number: u32, facts: &BucketFacts, bytes: &[u8]) -> Result<Vec<u64>> {
    let rows: Vec<u64> = bytes.as_chunks::<8>().0.iter().map(|&row| u64::from_le_bytes(row)).collect();
    // Row numbers are used as indices later, so their range is checked even if the checksum matches.
    let mut ascent = Ascent::of_rows(facts.source_rows, facts.is_sorted);
    rows.iter().for_each(|&row| ascent.take(row));
    match ascent.holds() {
        true => Ok(rows),
        false => Err(Error::corrupt(format!("bucket {number}: {}", impossible_rows(facts)))),
    }
}

/// Describes the fault of impossible row numbers.
pub(super) fn impossible_rows(facts: &BucketFacts) -> String {
    let how = if facts.is_sorted { "occur twice" } else { "do not ascend" };
    format!("its row numbers {how}, or are not below the {} rows of the source", facts.source_rows)
}

/// Bytes of some members of a bucket, as read from the file of buckets.
pub(crate) struct MemberBytes<'a> {
    pub(crate) members: Range<u32>,
    /// Row numbers of the members, from [`Extent::rows_of`].
    pub(crate) rows: &'a [u8],
    /// Ids of the members, from [`Extent::ids_of`]; empty to skip the ids.
    pub(crate) ids: &'a [u8],
}

/// Decodes the row numbers and ids of some members of a bucket. The caller has verified their checksums. Returns no ids
/// if the bytes of the ids are empty.
///
/// # Errors
/// Fails if a value is impossible.
pub(super) fn decode_members(
    number: u32,
    read: MemberBytes<'_>,
    facts: &BucketFacts,
    extent: &Extent,
) -> Result<(Vec<u64>, Ids)> {
    let MemberBytes { members, rows, ids } = read;
    let rows = decode_rows(number, facts, rows)?;
    let broken = || Error::corrupt(format!("bucket {number}: ids: wrong end positions"));
    let ids = match facts.ids {
        _ if ids.is_empty() => Ids::None,
        IdKind::Utf8 => {
            let all = decode_ids(IdKind::Utf8, extent.rows as usize, ids).ok_or_else(broken)?;
            let mut some = Ids::empty(IdKind::Utf8);
            members.for_each(|member| some.push_from(&all, member as usize));
            some
        }
        kind => decode_ids(kind, rows.len(), ids).ok_or_else(broken)?,
    };
    Ok((rows, ids))
}

/// Decodes and checks the bucket table: consecutive extents that fill a file of `file_bytes` bytes and have `rows` rows
/// in all.
///
/// # Errors
/// Fails if an entry is impossible.
pub fn decode_table(bytes: &[u8], facts: &BucketFacts, rows: u64, file_bytes: u64) -> Result<Vec<Extent>> {
    let (entries, rest) = bytes.as_chunks::<ENTRY_BYTES>();
    if !rest.is_empty() || rows > ROWS_MAX {
        return Err(Error::corrupt("the bucket table has a wrong length"));
    }
    let extents: Vec<Extent> = entries.iter().map(|&entry| zerocopy::transmute!(entry)).collect();
    // Each extent must start at the first aligned offset after the previous one. So no two extents overlap, and none
    // is outside the file.
    let mut free_from = 0;
    for (number, extent) in extents.iter().enumerate() {
        let end = extent.offset.checked_add(extent.body_bytes).and_then(|end| end.checked_add(extent.id_bytes));
        let end = end.filter(|end| {
            extent.rows > 0
                && extent.offset == u64::next_multiple_of(free_from, EXTENT_ALIGNMENT)
                && extent.body_bytes == Extent::body_bytes_of(extent.rows, facts.vectors)
                && extent.has_ids_of(facts.ids)
                && *end <= file_bytes
                && extent.radius >= 0.0
        });
        free_from = end.ok_or_else(|| Error::corrupt(format!("entry {number} of the bucket table is invalid")))?;
    }
    if free_from.checked_next_multiple_of(FILE_ALIGNMENT) != Some(file_bytes) {
        return Err(Error::corrupt("the bucket table and the manifest differ in the length of the file of buckets"));
    }
    if extents.iter().map(|extent| u64::from(extent.rows)).sum::<u64>() != rows {
        return Err(Error::corrupt("the bucket table and the manifest differ in the number of rows"));
    }
    Ok(extents)
}

/// Returns the bytes of the vectors of a bucket, padded so that the row numbers after them are aligned.
fn vector_section_bytes(rows: u32, vectors: VectorType) -> u64 {
    (u64::from(rows) * vectors.bytes() as u64).next_multiple_of(8)
}

fn encode_ids(ids: &Ids, out: &mut Vec<u8>) {
    match ids {
        Ids::None => {}
        Ids::Int64(ids) => out.extend(ids.iter().flat_map(|id| id.to_le_bytes())),
        Ids::Utf8(texts) => {
            out.extend(texts.ends.iter().flat_map(|end| end.to_le_bytes()));
            out.extend_from_slice(&texts.bytes);
        }
    }
}

fn decode_ids(kind: IdKind, rows: usize, bytes: &[u8]) -> Option<Ids> {
    match kind {
        IdKind::None => None,
        IdKind::Int64 => {
            let (ids, rest) = bytes.as_chunks::<8>();
            (ids.len() == rows && rest.is_empty())
                .then(|| Ids::Int64(ids.iter().map(|&id| i64::from_le_bytes(id)).collect()))
        }
        IdKind::Utf8 => {
            let (ends, texts) = bytes.split_at_checked(8 * rows)?;
            let ends: Vec<u64> = ends.as_chunks::<8>().0.iter().map(|&end| u64::from_le_bytes(end)).collect();
            let mut ascent = Ascent::of_ends(texts.len() as u64);
            ends.iter().for_each(|&end| ascent.take(end));
            ascent.holds().then(|| Ids::Utf8(TextIds { ends, bytes: texts.to_vec() }))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::options::Element;

    const VECTORS: VectorType = VectorType { element: Element::U8, dimensions: 3 };

    fn facts(ids: IdKind) -> BucketFacts {
        BucketFacts { vectors: VECTORS, ids, source_rows: 10, is_sorted: false }
    }

    fn sample(ids: &Ids) -> (Extent, Vec<u8>) {
        bucket_of(&[4, 9], ids)
    }

    fn bucket_of(rows: &[u64; 2], ids: &Ids) -> (Extent, Vec<u8>) {
        let mut bytes = Vec::new();
        let (body_bytes, id_bytes) =
            encode_bucket(7, VECTORS, rows, [&[1, 2, 3, 4, 5, 6][..]].into_iter(), ids, &mut bytes);
        (Extent { offset: 0, rows: 2, radius: 1.5, body_bytes, id_bytes }, bytes)
    }

    #[test]
    fn buckets_round_trip() {
        let texts = TextIds { ends: vec![1, 3], bytes: b"abc".to_vec() };
        for ids in [Ids::None, Ids::Int64(vec![-5, i64::MAX]), Ids::Utf8(texts)] {
            let facts = facts(ids.kind());
            let (extent, bytes) = sample(&ids);
            assert_eq!(bytes.len() as u64, extent.bytes(true));
            let bucket = decode_bucket(7, &facts, &extent, &bytes).unwrap();
            assert_eq!((bucket.rows, bucket.ids), (vec![4, 9], ids));
            assert_eq!(bytes[bucket.vectors], [1, 2, 3, 4, 5, 6]);
            let body = &bytes[..extent.bytes(false) as usize];
            assert_eq!(decode_bucket(7, &facts, &extent, body).unwrap().ids, Ids::None);
        }
    }

    #[test]
    fn flipped_bits_of_a_bucket_are_detected() {
        let (extent, bytes) = sample(&Ids::Int64(vec![1, 2]));
        let facts = facts(IdKind::Int64);
        for bit in 0..bytes.len() * 8 {
            let mut flipped = bytes.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert!(decode_bucket(7, &facts, &extent, &flipped).is_err(), "bit {bit}");
        }
        for len in 0..bytes.len() - 16 {
            assert!(decode_bucket(7, &facts, &extent, &bytes[..len]).is_err(), "{len} bytes");
        }
        assert!(decode_bucket(8, &facts, &extent, &bytes).is_err());
    }

    #[test]
    fn refuses_invalid_rows_and_texts_with_valid_checksums() {
        for rows in [[4, 10], [9, 4], [4, 4], [0, u64::MAX]] {
            let (extent, bytes) = bucket_of(&rows, &Ids::None);
            let error = decode_bucket(7, &facts(IdKind::None), &extent, &bytes).unwrap_err().to_string();
            assert!(error.contains("bucket 7: its row numbers do not ascend, or are not below the 10 rows"), "{error}");
        }
        for ends in [vec![1, 2], vec![1, 4], vec![3, 1], vec![u64::MAX, 3]] {
            let (extent, bytes) = sample(&Ids::Utf8(TextIds { ends, bytes: b"abc".to_vec() }));
            assert!(decode_bucket(7, &facts(IdKind::Utf8), &extent, &bytes).is_err());
        }
    }

    #[test]
    fn refuses_inconsistent_bucket_tables() {
        let (extent, _) = sample(&Ids::None);
        let facts = facts(IdKind::None);
        let decode = |extent: Extent| decode_table(extent.as_bytes(), &facts, extent.rows.into(), 4096);
        assert_eq!(decode(extent).unwrap(), [extent]);
        assert!(decode(Extent { offset: 100, ..extent }).is_err());
        assert!(decode(Extent { offset: 512, ..extent }).is_err());
        assert!(decode(Extent { offset: u64::MAX - 511, ..extent }).is_err());
        assert!(decode(Extent { rows: 3, ..extent }).is_err());
        let none = Extent { rows: 0, body_bytes: HEADER_BYTES as u64, ..extent };
        assert!(decode(none).is_err());
        assert!(decode(Extent { id_bytes: 16, ..extent }).is_err());
        assert!(decode(Extent { radius: f32::NAN, ..extent }).is_err());
        assert!(decode(Extent { offset: 4096, ..extent }).is_err());
        assert!(decode_table(&extent.as_bytes()[1..], &facts, 2, 4096).is_err());
        assert!(decode_table(extent.as_bytes(), &facts, 3, 4096).is_err());
        assert!(decode_table(extent.as_bytes(), &facts, 2, 8192).is_err());
        for (kind, id_bytes, possible) in [
            (IdKind::Int64, 16, true),
            (IdKind::Int64, 17, false),
            (IdKind::Utf8, 17, true),
            (IdKind::Utf8, 15, false),
            (IdKind::Utf8, u64::MAX - 4096, false),
        ] {
            let extent = Extent { id_bytes, ..extent };
            let facts = BucketFacts { ids: kind, ..facts };
            assert_eq!(decode_table(extent.as_bytes(), &facts, 2, 4096).is_ok(), possible, "{kind:?} {id_bytes}");
        }
    }
}
