//! Verifies every byte of a store and lists the damage, part by part.
//!
//! A damaged part does not end the check. If the bucket table itself is damaged, buckets are found by their headers.

mod buckets;
mod pieces;
mod report;

use std::io::ErrorKind;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use adjoin_device::{Location, ReadFile, Reservation};
use xxhash_rust::xxh3::Xxh3;
use zerocopy::IntoBytes;

use self::buckets::Buckets;
use self::pieces::{BlocksRead, PIECE_BYTES, Pieces};
use self::report::LISTED_MAX;
pub use self::report::{Damage, DamagedPart, StoreVerifyReport};
use super::files::{FileFacts, Role, read_whole};
use super::format::{self, Extent, MANIFEST_FILE, decode_table, hexadecimal};
use super::kind::has_manifest;
use super::manifest::{FolderKind, StoreManifest, Unreadable, is_replaced};
use super::publish::is_ours;
use super::reader::Store;
use crate::base::context::Context;
use crate::base::error::{Error, Result};
use crate::base::locks::is_writer_file;

impl Store {
    /// Reads every file of a store and lists every damaged part. Needs memory only for the bucket table and one piece
    /// of a file at a time.
    ///
    /// # Errors
    /// Fails if the folder holds no store, if the store is of a newer version, if the bucket table does not fit in the
    /// budget, or if the caller cancels. Damage is not an error: the report lists it.
    pub fn verify(context: &Context, folder: &Path) -> Result<StoreVerifyReport> {
        if !has_manifest(context, folder)? {
            return Err(Error::input(format!(
                "{} is not a store: it has no {MANIFEST_FILE}; name a store, or create one with: adjoin build",
                folder.display()
            )));
        }
        // Memory for a piece of the centers, a piece of the buckets, and the buffer through which the device reads an
        // unaligned end.
        let client = if Location::is_remote(folder) { context.device.object_reading_bytes() } else { 0 };
        let _memory = context.reserve(4 * PIECE_BYTES as u64 + client, "verifying")?;
        loop {
            let mut check = Check { context, folder, report: StoreVerifyReport::default() };
            let Some(manifest) = check.manifest()? else { return Ok(check.report) };
            check.list_unnamed(&manifest)?;
            check.files(&manifest)?;
            // A build may have replaced the store in the meantime. Then some files may have been missing, and new
            // files may have been taken for leftovers. So the new store is checked instead.
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
            fault: format!("{fault}; the files that it names were not checked"),
        };
        let read = || -> std::result::Result<Vec<u8>, String> {
            let file = self.context.device.open(&self.folder.join(MANIFEST_FILE)).map_err(|error| error.to_string())?;
            if file.len() > StoreManifest::bytes_max() {
                return Err("is longer than any manifest that adjoin writes".into());
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

    /// Lists the files that the manifest does not name. A file counts as a leftover, which may be deleted, only if
    /// nothing but a build uses such a name.
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
        // Files of roles that only later versions know are verified, too, since the manifest states their checksums.
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
        // Buckets state their own numbers and lengths, so they can be verified even if the table is damaged.
        match &table {
            Some(table) => buckets.all_listed(&table.extents)?,
            None => buckets.all_found()?,
        }
        let Buckets { pieces, headers, .. } = buckets;
        self.report.bytes_read += pieces.bytes_read;
        // This is checked only if everything else is sound. After other damage, a mismatch would be a consequence of
        // it.
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

    /// Opens a file and checks its length. Returns `None` if it cannot be opened.
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
            let fault = if has < written { "it is cut off" } else { "extra bytes follow the end" };
            self.damage(part, facts, Some(range), format!("has {has} bytes instead of {written}: {fault}"));
        }
        Ok(Some(file))
    }

    /// Checks the length of a file, and its checksum if the manifest states one. Returns the file unless it has a
    /// wrong length or cannot be opened.
    fn whole(&mut self, part: DamagedPart, facts: &FileFacts) -> Result<Option<Pieces>> {
        // A file of another length cannot have the right checksum, and its length is already reported.
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

    /// Reads the bucket table. Returns `None` if it is damaged.
    fn table(&mut self, manifest: &StoreManifest) -> Result<Option<Table>> {
        let facts = &manifest.files[Role::Table];
        let Some(file) = self.open(DamagedPart::Table, facts)?.filter(|file| file.len() == facts.bytes) else {
            return Ok(None);
        };
        // The manifest states the length, so the memory is reserved before it is allocated. The entries are held
        // twice: as bytes and decoded.
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

    /// Checks that the block checksums match the buckets. All buckets were read from front to back and are undamaged.
    fn blocks_belong(&mut self, manifest: &StoreManifest, blocks: Option<BlocksRead>) {
        let (Some(BlocksRead { sums, .. }), Some(facts)) = (blocks, manifest.files.get(Role::Blocks)) else { return };
        if !facts.has_checksum(sums.digest()) {
            self.damage(DamagedPart::Blocks, facts, None, "its checksums do not match the buckets");
        }
    }

    /// Checks that intact buckets belong to this manifest and not to another store. The name of their file contains a
    /// tag, which the manifest's checksum covers. The tag is a checksum of all headers, the centers and the table.
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
            let fault = "its buckets are intact, but belong to another store; restore the file of this store";
            self.damage(DamagedPart::Vectors, facts, None, fault);
        }
        Ok(())
    }
}
