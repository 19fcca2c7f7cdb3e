//! Verifies the buckets of a store. It finds them by the bucket table, or by their own headers.

use std::ops::Range;

use adjoin_device::DeviceError;
use xxhash_rust::xxh3::Xxh3;

use super::Check;
use super::pieces::Pieces;
use super::report::{Damage, DamagedPart};
use crate::base::error::Result;
use crate::store::files::Role;
use crate::store::format::{self, Ascent, EXTENT_ALIGNMENT, Extent, HEADER_BYTES, Header};
use crate::store::manifest::StoreManifest;

/// A section of a bucket that has its own checksum.
struct Section<'a> {
    /// Name of its contents, for messages.
    name: &'static str,
    /// Range of its bytes in the file.
    range: Range<u64>,
    /// Checksum that the header states.
    checksum: u64,
    /// Range of the bytes of its numbers that must ascend, and the check of these numbers.
    numbers: Option<(Range<u64>, Ascent)>,
    /// Description of the damage if the numbers do not ascend.
    impossible: &'a str,
}

/// Verification of the file of buckets.
pub(super) struct Buckets<'a, 'b> {
    pub(super) check: &'a mut Check<'b>,
    pub(super) manifest: &'a StoreManifest,
    pub(super) pieces: Pieces,
    /// Checksum of all headers.
    pub(super) headers: Xxh3,
}

impl Buckets<'_, '_> {
    /// Checks the buckets at the offsets that the table states.
    pub(super) fn all_listed(&mut self, extents: &[Extent]) -> Result<()> {
        let present = self.pieces.file.len();
        let written = self.manifest.files[Role::Vectors].bytes;
        for (number, extent) in extents.iter().enumerate() {
            self.bucket(number as u32, extent)?;
            let end = extent.offset + extent.bytes(true);
            let next = extents.get(number + 1).map_or(written, |next| next.offset);
            self.zeros(number as u32, end..next.min(present))?;
        }
        Ok(())
    }

    /// Finds the buckets by their headers and checks them.
    pub(super) fn all_found(&mut self) -> Result<()> {
        let present = self.pieces.file.len();
        let mut found = 0;
        let mut at = 0;
        let mut last = None;
        while let Some((number, extent)) = self.next_found(at)? {
            if extent.offset > at {
                self.damage(DamagedPart::Bucket, None, Some(at..extent.offset), "these bytes are not a bucket");
            }
            self.bucket(number, &extent)?;
            let end = extent.offset + extent.bytes(true);
            at = end.next_multiple_of(EXTENT_ALIGNMENT).min(present);
            self.zeros(number, end..at)?;
            (found, last) = (found + 1, Some(number));
        }
        if let Some(last) = last {
            self.zeros(last, at..present.min(self.manifest.files[Role::Vectors].bytes))?;
        }
        if found != self.manifest.buckets {
            let fault = format!("{found} buckets were found by their headers, instead of {}", self.manifest.buckets);
            self.damage(DamagedPart::Vectors, None, None, fault);
        }
        Ok(())
    }

    /// Returns the first bucket at or after `offset` with an intact header and an extent within the file.
    fn next_found(&mut self, mut offset: u64) -> Result<Option<(u32, Extent)>> {
        let present = self.pieces.file.len();
        while offset.checked_add(HEADER_BYTES as u64).is_some_and(|end| end <= present) {
            if let Ok(header) = self.header(offset)?
                && let Some(header) = Header::decode(&header)
            {
                let extent = header.extent(offset, self.manifest.vectors);
                let end = extent.body_bytes.checked_add(extent.id_bytes).and_then(|bytes| bytes.checked_add(offset));
                if end.is_some_and(|end| end <= present) {
                    return Ok(Some((header.number, extent)));
                }
            }
            // Extents start at multiples of the alignment. Other bytes are not taken for a header, since their
            // checksum is wrong.
            offset += EXTENT_ALIGNMENT;
        }
        Ok(None)
    }

    fn header(&mut self, offset: u64) -> Result<std::result::Result<[u8; HEADER_BYTES], DeviceError>> {
        let mut header = [0; HEADER_BYTES];
        let mut filled = 0;
        let read = self.pieces.visit(self.check.context, offset..offset + HEADER_BYTES as u64, &mut |bytes| {
            header[filled..filled + bytes.len()].copy_from_slice(bytes);
            filled += bytes.len();
        })?;
        Ok(read.map(|()| header))
    }

    fn damage(&mut self, part: DamagedPart, bucket: Option<u32>, bytes: Option<Range<u64>>, fault: impl Into<String>) {
        let file = self.manifest.files[Role::Vectors].name.clone();
        self.check.report.add(Damage { part, file, bucket, bytes, rows: None, fault: fault.into() });
    }

    fn bucket(&mut self, number: u32, extent: &Extent) -> Result<()> {
        self.check.context.cancel.check()?;
        self.check.report.buckets += 1;
        self.check.context.progress.advance(self.check.report.buckets);
        let (start, end) = (extent.offset, extent.offset + extent.bytes(true));
        let present = self.pieces.file.len();
        if end > present {
            let fault = format!("its {} vectors are cut off: the file ends at byte {present}", extent.rows);
            self.damage(DamagedPart::Bucket, Some(number), Some(start..end), fault);
            return Ok(());
        }
        let bytes = match self.header(start)? {
            Ok(bytes) => bytes,
            Err(error) => {
                self.damage(DamagedPart::Bucket, Some(number), Some(start..end), error.to_string());
                return Ok(());
            }
        };
        // This includes damaged headers, since the digest is only compared if there is no damage.
        self.headers.update(&bytes);
        let header_range = Some(start..start + HEADER_BYTES as u64);
        let Some(header) = Header::decode(&bytes) else {
            let fault = "checksum mismatch in its header, so its vectors and ids cannot be checked";
            self.damage(DamagedPart::Bucket, Some(number), header_range, fault);
            return Ok(());
        };
        if header.number != number || header.extent(start, self.manifest.vectors) != (Extent { radius: 0.0, ..*extent })
        {
            self.damage(DamagedPart::Bucket, Some(number), header_range, "its header and the bucket table disagree");
            return Ok(());
        }
        let (rows, body) = (u64::from(extent.rows), start + HEADER_BYTES as u64..start + extent.body_bytes);
        let (facts, ids) = (self.manifest.bucket_facts(), self.manifest.ids);
        let ascent = Ascent::of_rows(facts.source_rows, facts.is_sorted);
        // Row numbers that must ascend are checked as they are read. In a store with sorted rows, they are collected
        // first.
        let _unordered = self.check.context.reserve(if facts.is_sorted { 8 * rows } else { 0 }, "verifying")?;
        let impossible = format::impossible_rows(&facts);
        let rows_section = Section {
            name: "vectors or row numbers",
            range: body.clone(),
            checksum: header.body_checksum,
            numbers: Some((body.end - 8 * rows..body.end, ascent)),
            impossible: &impossible,
        };
        self.section(number, extent, rows_section)?;
        let ends = Ascent::of_ids(ids, extent.rows, extent.id_bytes);
        let ids_section = Section {
            name: "ids",
            range: body.end..end,
            checksum: header.id_checksum,
            numbers: ends.map(|ends| (body.end..body.end + 8 * rows, ends)),
            impossible: "the end positions of its ids are invalid",
        };
        self.section(number, extent, ids_section)
    }

    /// Verifies the checksum of a section of a bucket and the numbers in it.
    fn section(&mut self, number: u32, extent: &Extent, section: Section<'_>) -> Result<()> {
        let Section { name, range, checksum, mut numbers, impossible } = section;
        let (mut hash, mut at) = (Xxh3::new(), range.start);
        let mut see = |bytes: &[u8]| {
            hash.update(bytes);
            if let Some((places, ascent)) = &mut numbers {
                // Pieces and sections start at multiples of eight, so no number is divided between two pieces.
                let within = |place: u64| place.clamp(at, at + bytes.len() as u64) - at;
                // The part of this piece that contains numbers. It is empty if the piece has none.
                let (start, end) = (within(places.start) as usize, within(places.end) as usize);
                bytes[start..end].as_chunks().0.iter().for_each(|&number| ascent.take(u64::from_le_bytes(number)));
            }
            at += bytes.len() as u64;
        };
        let read = self.pieces.visit(self.check.context, range.clone(), &mut see)?;
        let fault = match read {
            Ok(()) if hash.digest() != checksum => format!("{name}: checksum mismatch"),
            Ok(()) if numbers.is_none_or(|(_, ascent)| ascent.holds()) => return Ok(()),
            Ok(()) => impossible.to_owned(),
            Err(error) => error.to_string(),
        };
        // The report names the affected rows of the source, even if only some bytes are damaged.
        let rows = self.rows(extent)?;
        let file = self.manifest.files[Role::Vectors].name.clone();
        let bucket = Some(number);
        self.check.report.add(Damage { part: DamagedPart::Bucket, file, bucket, bytes: Some(range), rows, fault });
        Ok(())
    }

    /// Returns the first and last row of a bucket, if its row numbers are plausible.
    fn rows(&mut self, extent: &Extent) -> Result<Option<(u64, u64)>> {
        // If row numbers do not ascend, the first and the last one do not bound the others.
        if extent.rows == 0 || self.manifest.sorted_by.is_some() {
            return Ok(None);
        }
        let end = extent.offset + extent.body_bytes;
        let first = self.row(end - 8 * u64::from(extent.rows))?;
        let last = self.row(end - 8)?;
        Ok(first.zip(last).filter(|(first, last)| {
            // The row numbers themselves may be damaged, so they are reported only if they are possible.
            let spread = last.checked_sub(*first);
            *last < self.manifest.source_rows && spread.is_some_and(|spread| spread + 1 >= u64::from(extent.rows))
        }))
    }

    fn row(&mut self, offset: u64) -> Result<Option<u64>> {
        let mut number = Vec::with_capacity(8);
        let read =
            self.pieces.visit(self.check.context, offset..offset + 8, &mut |bytes| number.extend_from_slice(bytes))?;
        Ok(read.ok().and_then(|()| number.try_into().ok()).map(u64::from_le_bytes))
    }

    /// Checks that the bytes in `range`, which follow a bucket, are all zero.
    fn zeros(&mut self, number: u32, range: Range<u64>) -> Result<()> {
        let mut all_zero = true;
        let mut see = |bytes: &[u8]| all_zero &= bytes.iter().all(|&byte| byte == 0);
        let fault = match self.pieces.visit(self.check.context, range.clone(), &mut see)? {
            Ok(()) if all_zero => return Ok(()),
            Ok(()) => "the padding is not all zeros".to_owned(),
            Err(error) => error.to_string(),
        };
        self.damage(DamagedPart::Padding, Some(number), Some(range), fault);
        Ok(())
    }
}
