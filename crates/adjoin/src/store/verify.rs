//! Verifies every byte of a store and lists the damage, part by part.
//!
//! A damaged part does not end the check. If the bucket table itself is damaged, buckets are found by their headers.

use std::fmt;
use std::io::ErrorKind;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use adjoin_device::{AlignedBuffer, DeviceError, ReadFile, Reservation};
use xxhash_rust::xxh3::Xxh3;
use zerocopy::IntoBytes;

use super::blocks::BlockHasher;
use super::files::{FileFacts, Role, read_whole};
use super::format::{
    self, Ascent, EXTENT_ALIGNMENT, Extent, HEADER_BYTES, Header, MANIFEST_FILE, decode_table, hexadecimal,
};
use super::kind::has_manifest;
use super::manifest::{FolderKind, StoreManifest, Unreadable, is_replaced};
use super::publish::is_ours;
use super::reader::Store;
use crate::base::context::Context;
use crate::base::error::{Error, Result};
use crate::base::locks::is_writer_file;
use crate::base::message::Message;

/// Bytes in memory at a time, whatever the size of a bucket.
const PIECE_BYTES: usize = 1 << 20;
/// Most damages and leftovers to list individually; further ones are only counted.
const LISTED_MAX: usize = 1_000;

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
    /// Zeros after a bucket. No result depends on them.
    Padding,
}

/// A damaged part of a store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Damage {
    /// The part.
    pub part: DamagedPart,
    /// Name of the file in the store's folder.
    pub file: String,
    /// The bucket, or the one before the padding.
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
            let behind = if self.part == DamagedPart::Padding { "behind " } else { "" };
            text += &format!(", {behind}bucket {bucket}");
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

/// Formats the damage as one line. File names are taken from the manifest, so they may contain anything.
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
    /// The first thousand leftovers of interrupted builds in the folder; harmless.
    pub leftovers: Vec<String>,
    /// The first thousand other files and folders that the manifest does not name. A build did not create them.
    pub strangers: Vec<String>,
    /// Files of roles that this version does not know, each with its role.
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
            Some("only padding changed, so joins still give the right result; copy the store again or build it again")
        } else if !self.beyond_unknown {
            Some(
                "files of roles that this version does not know are damaged, so its joins still give the right result; \
                 copy the store again, or build it again with the version that wrote it",
            )
        } else if !self.beyond_table {
            Some(
                "nothing is lost: the bucket table could be made again from the headers of the buckets and the centers, which are \
                 sound; this version cannot do that, so build the store again from its source",
            )
        } else {
            Some("this cannot be repaired; build the store again from its source")
        }
    }

    fn add(&mut self, damage: Damage) {
        self.damage_count += 1;
        self.beyond_padding |= damage.part != DamagedPart::Padding;
        self.beyond_unknown |= !matches!(damage.part, DamagedPart::Padding | DamagedPart::Unknown);
        self.beyond_table |= !matches!(damage.part, DamagedPart::Padding | DamagedPart::Unknown | DamagedPart::Table);
        if self.damages.len() < LISTED_MAX {
            self.damages.push(damage);
        }
    }
}

impl Store {
    /// Reads every file of a store and lists every damaged part. Needs little memory, whatever the store's size: a piece of
    /// a file at a time, and the bucket table.
    ///
    /// # Errors
    /// Fails if the folder holds no store, the store is of a newer version, the budget does not hold the bucket table, or
    /// the caller cancels. Damage is not an error: it is listed in the report.
    pub fn verify(context: &Context, folder: &Path) -> Result<StoreVerifyReport> {
        if !has_manifest(context, folder)? {
            return Err(Error::input(format!(
                "{} is not a store: it has no {MANIFEST_FILE}; name a store, or make one with: adjoin build",
                folder.display()
            )));
        }
        // A piece of the centers, one of the buckets, and the buffer through which the device reads an unaligned end.
        let _memory = context.reserve(4 * PIECE_BYTES as u64, "verifying")?;
        loop {
            let mut check = Check { context, folder, report: StoreVerifyReport::default() };
            let Some(manifest) = check.manifest()? else { return Ok(check.report) };
            check.list_unnamed(&manifest)?;
            check.files(&manifest)?;
            // If a build has replaced the store meanwhile, files may have been missed, and files of the new one taken for
            // leftovers. Check the new store instead.
            if !is_replaced(context, folder, &manifest.manifest_xxh3) {
                return Ok(check.report);
            }
        }
    }
}

/// A bucket table that passed its checks.
struct Table {
    extents: Vec<Extent>,
    _memory: Reservation,
}

struct Check<'a> {
    context: &'a Context,
    folder: &'a Path,
    report: StoreVerifyReport,
}

impl Check<'_> {
    fn manifest(&mut self) -> Result<Option<StoreManifest>> {
        let damage = |fault: String| Damage {
            part: DamagedPart::Manifest,
            file: MANIFEST_FILE.into(),
            bucket: None,
            bytes: None,
            rows: None,
            fault: format!("{fault}; what it names was not checked"),
        };
        let read = || -> std::result::Result<Vec<u8>, String> {
            let file = self.context.device.open(&self.folder.join(MANIFEST_FILE)).map_err(|error| error.to_string())?;
            if file.len() > StoreManifest::bytes_max() {
                return Err("is too long to be a manifest".into());
            }
            read_whole(&*file).map_err(|error| error.to_string())
        };
        match read().map(|bytes| (StoreManifest::parse(&bytes), bytes.len())) {
            Ok((Ok(manifest), bytes)) => {
                self.report.bytes_read += bytes as u64;
                return Ok(Some(manifest));
            }
            Ok((Err(Unreadable::Damaged(fault)), _)) => self.report.add(damage(fault)),
            Ok((Err(unreadable), _)) => return Err(unreadable.in_folder(self.folder, FolderKind::Store)),
            Err(fault) => self.report.add(damage(fault)),
        }
        Ok(None)
    }

    /// Lists the files that the manifest does not name. Only names that no one but a build uses are leftovers, which
    /// may be deleted.
    fn list_unnamed(&mut self, manifest: &StoreManifest) -> Result<()> {
        let entries = self.context.device.list(self.folder)?;
        let others = entries.iter().filter(|name| !is_writer_file(name));
        for name in others.map(|name| name.to_string_lossy().into_owned()) {
            if name == MANIFEST_FILE || manifest.files.iter().any(|(_, facts)| facts.name == name) {
                continue;
            }
            let StoreVerifyReport { leftovers, strangers, .. } = &mut self.report;
            let listed = if is_ours(&name) { leftovers } else { strangers };
            if listed.len() < LISTED_MAX {
                listed.push(name);
            }
        }
        Ok(())
    }

    fn files(&mut self, manifest: &StoreManifest) -> Result<()> {
        // Files of later versions are verified too, since the manifest states their checksums.
        for (role, facts) in manifest.files.unknown(&Role::STORE) {
            self.report.unknown.push((facts.name.clone(), role.to_owned()));
            self.whole(DamagedPart::Unknown, facts)?;
        }
        for (role, part) in [(Role::Attributes, DamagedPart::Attributes), (Role::Blocks, DamagedPart::Blocks)] {
            let Some(facts) = manifest.files.get(role) else { continue };
            let read = self.whole(part, facts)?;
            self.report.bytes_read += read.map_or(0, |read| read.bytes_read);
        }
        let mut centers = self.whole(DamagedPart::Centers, &manifest.files[Role::Centers])?;
        let table = self.table(manifest)?;
        let Some(file) = self.open(DamagedPart::Vectors, &manifest.files[Role::Vectors])? else { return Ok(()) };
        self.context.progress.begin("verify", "buckets", u64::from(manifest.buckets));
        let mut pieces = Pieces::new(file);
        pieces.blocks = manifest.files.get(Role::Blocks).map(|_| BlocksRead::default());
        let mut buckets = Buckets { check: self, manifest, pieces, headers: Xxh3::new() };
        // Buckets state their own number and lengths, so they can be verified without the table.
        match &table {
            Some(table) => buckets.all_listed(&table.extents)?,
            None => buckets.all_found()?,
        }
        let Buckets { pieces, headers, .. } = buckets;
        self.report.bytes_read += pieces.bytes_read;
        // Only if all else is sound: after any other damage, a mismatch would be a consequence of it.
        if let (Some(table), Some(centers), true) = (table, &mut centers, self.report.is_sound()) {
            self.blocks_belong(manifest, pieces.blocks);
            self.belong_together(manifest, headers.digest(), centers, &table.extents)?;
        }
        self.report.bytes_read += centers.map_or(0, |centers| centers.bytes_read);
        Ok(())
    }

    fn damage(&mut self, part: DamagedPart, facts: &FileFacts, bytes: Option<Range<u64>>, fault: impl Into<String>) {
        let file = facts.name.clone();
        self.report.add(Damage { part, file, bucket: None, bytes, rows: None, fault: fault.into() });
    }

    /// Opens a file and compares its length; `None` if it cannot be opened.
    fn open(&mut self, part: DamagedPart, facts: &FileFacts) -> Result<Option<Arc<dyn ReadFile>>> {
        let file = match self.context.device.open(&facts.path(self.folder)) {
            Ok(file) => file,
            Err(error) if error.source.kind() == ErrorKind::NotFound => {
                self.damage(part, facts, None, "is missing");
                return Ok(None);
            }
            Err(error) => {
                self.damage(part, facts, None, error.to_string());
                return Ok(None);
            }
        };
        let (has, written) = (file.len(), facts.bytes);
        if has != written {
            let range = has.min(written)..has.max(written);
            let fault = if has < written { "it is cut off" } else { "something follows what was written" };
            self.damage(part, facts, Some(range), format!("has {has} bytes instead of {written}: {fault}"));
        }
        Ok(Some(file))
    }

    /// Checks a file by its length and by its checksum, if it has one. Returns the file if it can be read further.
    fn whole(&mut self, part: DamagedPart, facts: &FileFacts) -> Result<Option<Pieces>> {
        // A file of another length cannot match its checksum, and its length is reported already.
        let Some(file) = self.open(part, facts)?.filter(|file| file.len() == facts.bytes) else { return Ok(None) };
        let mut pieces = Pieces::new(file);
        let Some(written) = facts.xxh3.as_ref() else { return Ok(Some(pieces)) };
        let mut hash = Xxh3::new();
        match pieces.visit(self.context, 0..facts.bytes, &mut |bytes| hash.update(bytes))? {
            Err(error) => self.damage(part, facts, None, error.to_string()),
            Ok(()) if *written != hexadecimal(hash.digest()) => {
                self.damage(part, facts, None, "checksum mismatch");
            }
            Ok(()) => {}
        }
        Ok(Some(pieces))
    }

    /// Reads the bucket table; `None` if it is damaged.
    fn table(&mut self, manifest: &StoreManifest) -> Result<Option<Table>> {
        let facts = &manifest.files[Role::Table];
        let Some(file) = self.open(DamagedPart::Table, facts)?.filter(|file| file.len() == facts.bytes) else {
            return Ok(None);
        };
        // The manifest states the length, so reserve the memory before allocating. The entries are held twice: as bytes
        // and decoded.
        let memory = self.context.reserve(2 * facts.bytes, "verifying")?;
        let bytes = match read_whole(&*file) {
            Ok(bytes) => bytes,
            Err(error) => {
                self.damage(DamagedPart::Table, facts, None, error.to_string());
                return Ok(None);
            }
        };
        self.report.bytes_read += facts.bytes;
        if !facts.matches(&bytes) {
            self.damage(DamagedPart::Table, facts, None, "checksum mismatch");
            return Ok(None);
        }
        let vectors_bytes = manifest.files[Role::Vectors].bytes;
        match decode_table(&bytes, &manifest.bucket_facts(), manifest.rows, vectors_bytes) {
            Ok(extents) => Ok(Some(Table { extents, _memory: memory })),
            Err(error) => {
                self.damage(DamagedPart::Table, facts, None, error.to_string());
                Ok(None)
            }
        }
    }

    /// Checks that the block checksums match the buckets, which were all read front to back and are undamaged.
    fn blocks_belong(&mut self, manifest: &StoreManifest, blocks: Option<BlocksRead>) {
        let (Some(BlocksRead { sums, .. }), Some(facts)) = (blocks, manifest.files.get(Role::Blocks)) else { return };
        if !facts.has_checksum(sums.digest()) {
            self.damage(DamagedPart::Blocks, facts, None, "its checksums are not those of the buckets");
        }
    }

    /// Checks that intact buckets belong to this manifest and not to another store. The tag in the name of their file,
    /// which the manifest's checksum covers, is a checksum of all headers, the centers and the table.
    fn belong_together(
        &mut self,
        manifest: &StoreManifest,
        headers: u64,
        centers: &mut Pieces,
        table: &[Extent],
    ) -> Result<()> {
        let facts = &manifest.files[Role::Vectors];
        let Some(tag) = format::tag_of(&facts.name, Role::Vectors.file()) else { return Ok(()) };
        let mut hash = Xxh3::new();
        hash.update(&headers.to_le_bytes());
        let read =
            centers.visit(self.context, 0..manifest.files[Role::Centers].bytes, &mut |bytes| hash.update(bytes))?;
        table.iter().for_each(|extent| hash.update(extent.as_bytes()));
        if read.is_ok() && tag != hexadecimal(hash.digest()) {
            let fault = "its buckets are whole, but not those of this store; put the file back that belongs here";
            self.damage(DamagedPart::Vectors, facts, None, fault);
        }
        Ok(())
    }
}

/// A section of a bucket that has its own checksum.
struct Section<'a> {
    /// Its contents, for messages.
    name: &'static str,
    /// Its bytes in the file.
    range: Range<u64>,
    /// The checksum that the header states.
    checksum: u64,
    /// Bytes of the numbers in it that must ascend.
    numbers: Option<(Range<u64>, Ascent)>,
    /// The fault if they do not.
    impossible: &'a str,
}

/// The file of the buckets.
struct Buckets<'a, 'b> {
    check: &'a mut Check<'b>,
    manifest: &'a StoreManifest,
    pieces: Pieces,
    /// Checksum of all headers.
    headers: Xxh3,
}

impl Buckets<'_, '_> {
    /// Checks the buckets at the offsets in the table.
    fn all_listed(&mut self, extents: &[Extent]) -> Result<()> {
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

    /// Finds the buckets by their headers, and checks them.
    fn all_found(&mut self) -> Result<()> {
        let present = self.pieces.file.len();
        let mut found = 0;
        let mut at = 0;
        let mut last = None;
        while let Some((number, extent)) = self.next_found(at)? {
            if extent.offset > at {
                self.damage(DamagedPart::Bucket, None, Some(at..extent.offset), "no bucket can be recognized there");
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
            let fault =
                format!("{found} buckets can be recognized by their headers, instead of {}", self.manifest.buckets);
            self.damage(DamagedPart::Vectors, None, None, fault);
        }
        Ok(())
    }

    /// Returns the first bucket from `offset` on with an intact header and an extent within the file.
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
            // Extents start at multiples of the alignment, and a false header has a wrong checksum.
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
        // Also for a damaged header: the digest is compared only if there is no damage.
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
        // Unsorted row numbers are checked as they are read; those of a sorted store are collected first.
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
            impossible: "the ends of its ids do not ascend to the end of the texts",
        };
        self.section(number, extent, ids_section)
    }

    /// Compares a section of a bucket with its checksum, and checks the numbers in it.
    fn section(&mut self, number: u32, extent: &Extent, section: Section<'_>) -> Result<()> {
        let Section { name, range, checksum, mut numbers, impossible } = section;
        let (mut hash, mut at) = (Xxh3::new(), range.start);
        let mut see = |bytes: &[u8]| {
            hash.update(bytes);
            if let Some((places, ascent)) = &mut numbers {
                // Pieces and sections start at multiples of eight, like the numbers.
                let within = |place: u64| place.clamp(at, at + bytes.len() as u64) - at;
                // The part of this piece that has numbers; empty before the first and after the last.
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
        // Tells the user which rows of the source are affected, even if only some bytes are damaged.
        let rows = self.rows(extent)?;
        let file = self.manifest.files[Role::Vectors].name.clone();
        let bucket = Some(number);
        self.check.report.add(Damage { part: DamagedPart::Bucket, file, bucket, bytes: Some(range), rows, fault });
        Ok(())
    }

    /// Returns the first and last row of a bucket, if its row numbers are plausible.
    fn rows(&mut self, extent: &Extent) -> Result<Option<(u64, u64)>> {
        // First and last say nothing if row numbers do not ascend.
        if extent.rows == 0 || self.manifest.sorted_by.is_some() {
            return Ok(None);
        }
        let end = extent.offset + extent.body_bytes;
        let first = self.row(end - 8 * u64::from(extent.rows))?;
        let last = self.row(end - 8)?;
        Ok(first.zip(last).filter(|(first, last)| {
            // The numbers may be what is damaged, so they are shown only if they can be true.
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

    /// Checks that only zeros follow a bucket.
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

/// Checksums of the blocks of a file, as far as it was read.
#[derive(Default)]
struct BlocksRead {
    hasher: BlockHasher,
    /// The checksum of the checksums of all blocks.
    sums: Xxh3,
}

/// A file read front to back, with one piece of it in memory.
struct Pieces {
    file: Arc<dyn ReadFile>,
    buffer: AlignedBuffer,
    start: u64,
    len: usize,
    bytes_read: u64,
    /// Blocks read so far, if their checksums are requested.
    blocks: Option<BlocksRead>,
}

impl Pieces {
    fn new(file: Arc<dyn ReadFile>) -> Self {
        let len = file.len().min(PIECE_BYTES as u64) as usize;
        Self { file, buffer: AlignedBuffer::zeroed(len), start: 0, len: 0, bytes_read: 0, blocks: None }
    }

    /// Passes the bytes of a range within the file to `see`, in order and in pieces. The inner error is one of the
    /// device, to be listed as damage; the outer error ends the check.
    fn visit(
        &mut self,
        context: &Context,
        range: Range<u64>,
        see: &mut dyn FnMut(&[u8]),
    ) -> Result<std::result::Result<(), DeviceError>> {
        let mut at = range.start;
        while at < range.end {
            context.cancel.check()?;
            let piece = match self.from(at) {
                Ok(piece) => piece,
                Err(error) => return Ok(Err(error)),
            };
            let seen = (range.end - at).min(piece.len() as u64);
            see(&piece[..seen as usize]);
            at += seen;
        }
        Ok(Ok(()))
    }

    /// Returns the bytes in memory from `offset` on, which must lie within the file.
    fn from(&mut self, offset: u64) -> std::result::Result<&[u8], DeviceError> {
        assert!(offset < self.file.len(), "reads stay within the file");
        if !(self.start..self.start + self.len as u64).contains(&offset) {
            // Pieces start at multiples of their size, so that direct reads are aligned.
            let start = offset - offset % PIECE_BYTES as u64;
            let len = (self.file.len() - start).min(PIECE_BYTES as u64) as usize;
            self.len = 0; // if the read fails, nothing is in memory
            self.bytes_read += self.file.read_at(start, &mut self.buffer[..len])?;
            (self.start, self.len) = (start, len);
            if let Some(BlocksRead { hasher, sums }) = &mut self.blocks {
                hasher.update(&self.buffer[..len], |sum| sums.update(&sum.to_le_bytes()));
            }
        }
        Ok(&self.buffer[(offset - self.start) as usize..self.len])
    }
}
