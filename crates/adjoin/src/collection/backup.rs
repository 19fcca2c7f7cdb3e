//! Backup: copies a collection into another folder while a process may write to it. The copy is a collection too.
//!
//! Files of an index never change, and a log only grows at its end. So once all files that a manifest names are open,
//! they are a consistent snapshot, no matter what is written and merged later. An open file stays readable after its
//! name is removed.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use adjoin_device::{ReadFile, WRITE_BUFFER_BYTES};
use serde::Serialize;

use super::Collection;
use super::change::Change;
use super::frame::{RecordLinks, push_frame};
use super::log_files::Segments;
use super::long_term_index::{folder_name, places_name};
use super::manifest::CollectionManifest;
use super::memory::{CollectionWork, collection_context};
use super::segment::{Point, SegmentWriter};
use crate::base::context::Context;
use crate::base::error::{Error, Result};
use crate::base::locks::OwnFolder;
use crate::base::options::format_bytes;
use crate::base::output::Target;
use crate::index::file_names;
use crate::store::{FolderKind, ReplacedFolder, check_target, is_replaced};

/// Bytes that are copied with one read.
const PIECE_BYTES: usize = 1 << 20;
/// Name of the copy in its draft folder.
const COPY: &str = "live";
/// Name of the command, for the names of temporary folders and for messages.
const BY: &str = "backup";
/// Purpose of the memory, for error messages.
const PURPOSE: &str = "copying a collection";

/// Content of a backup.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct BackupReport {
    /// Number of live rows.
    pub rows: u64,
    /// Sequence number of the last write.
    pub sequence: u64,
    /// Bytes that were copied.
    pub bytes: u64,
}

impl Collection {
    /// Copies a collection to the folder `target`. The copy contains all writes that were acknowledged before the
    /// call. Other processes may write and merge meanwhile. The copy is built in a draft folder, read back and
    /// verified, and then renamed to `target`. If `force` is set and `target` is a collection, that collection is
    /// first renamed to `target.replaced` and removed after the copy has its name.
    ///
    /// # Errors
    /// If there is no collection, it is damaged, `target` exists and must not be replaced or is being written to, or
    /// memory or disk space does not suffice. In these cases, nothing of the copy is left.
    pub fn backup(context: &Context, source: &Path, target: &Path, force: bool) -> Result<BackupReport> {
        // If a backup was killed between two renames, the only old copy has a temporary name. It gets its name back
        // first.
        let replaced = ReplacedFolder { target, kind: FolderKind::Collection, by: BY };
        replaced.settle(context)?;
        let context = &collection_context(context, source, CollectionWork::Verify); // the last step verifies the copy
        check(context, source, target, force)?;
        let parts = Parts::open(context, source)?;
        let (bytes, free) = (parts.bytes(), context.device.free_bytes(Target::parent_of(target))?);
        if bytes > free {
            return Err(Error::device(format!(
                "{} needs {}, but its disk has {} free; choose a folder on another disk",
                target.display(),
                format_bytes(bytes),
                format_bytes(free)
            )));
        }
        // The draft is next to the target, so that the rename stays within one file system.
        let drafts = OwnFolder::create(&context.device, Target::parent_of(target), BY)?;
        let copy = drafts.path().join(COPY);
        let bytes = parts.copy(context, &copy)?;
        // The copy is read back before it replaces anything: a damaged copy must not replace a sound backup.
        let report = Collection::verify(context, &copy)?;
        if !report.is_sound() {
            let at = source.display();
            return Err(Error::corrupt(format!(
                "the copy of {at} is damaged, so the collection or its disk may be too; check it with: adjoin verify"
            )));
        }
        replaced.publish(context, drafts, COPY, force)?;
        Ok(BackupReport { rows: report.facts.rows, sequence: report.facts.sequence, bytes })
    }
}

/// Refuses a target that is in use or is inside the collection.
fn check(context: &Context, source: &Path, target: &Path, force: bool) -> Result<()> {
    let at = target.display();
    if target.starts_with(source) {
        let source = source.display();
        return Err(Error::option(format!("{at} is inside {source}, so it cannot be its copy; choose another folder")));
    }
    if target.file_name().is_none() {
        return Err(Error::option(format!("{at} is not the name of a folder; name one for the backup")));
    }
    check_target(context, target, FolderKind::Collection, force)
}

/// The open files of a collection at one moment.
struct Parts {
    manifest: CollectionManifest,
    /// Files of the long-term index and of its id lookup, with their paths within the folder.
    files: Vec<(PathBuf, Arc<dyn ReadFile>)>,
    log: Segments,
}

impl Parts {
    fn open(context: &Context, source: &Path) -> Result<Self> {
        loop {
            let manifest = CollectionManifest::read(context, source)?;
            let opened = Self::of_manifest(context, source, manifest.clone());
            // If a merge ended meanwhile, the listing may lack files that the merge removed. Then the new manifest is
            // copied instead.
            if !is_replaced(context, source, &manifest.manifest_xxh3) {
                return opened;
            }
            context.cancel.check()?;
        }
    }

    fn of_manifest(context: &Context, source: &Path, manifest: CollectionManifest) -> Result<Self> {
        let mut files = Vec::new();
        if let Some(sequence) = manifest.merged() {
            let folder = PathBuf::from(folder_name(sequence));
            // Only files that the index names are copied: other files may be created and removed meanwhile.
            let of_index = file_names(context, &source.join(&folder))?;
            let names = of_index.into_iter().map(|name| folder.join(name)).chain([places_name(sequence).into()]);
            for name in names {
                let file = context.device.open(&source.join(&name))?;
                files.push((name, file));
            }
        }
        let log = Segments::open(context, source, manifest.log())?;
        Ok(Self { manifest, files, log })
    }

    fn bytes(&self) -> u64 {
        self.files.iter().map(|(_, file)| file.len()).sum::<u64>() + self.log.file_bytes()
    }

    /// Writes all files to a new folder and syncs them. Returns the number of bytes written.
    fn copy(self, context: &Context, to: &Path) -> Result<u64> {
        let device = &context.device;
        device.create_folder(to)?;
        let index = self.manifest.merged().map(|sequence| to.join(folder_name(sequence)));
        index.iter().try_for_each(|folder| device.create_folder(folder))?;
        let _memory = context.reserve_between_runs((PIECE_BYTES + WRITE_BUFFER_BYTES) as u64, PURPOSE)?;
        context.progress.begin("copy", "bytes", self.bytes());
        let (mut piece, mut bytes) = (vec![0; PIECE_BYTES], 0);
        for (name, file) in &self.files {
            let mut copy = device.create(&to.join(name))?;
            for start in (0..file.len()).step_by(PIECE_BYTES) {
                context.cancel.check()?;
                let some = &mut piece[..(file.len() - start).min(PIECE_BYTES as u64) as usize];
                file.read_at(start, some)?;
                copy.append(some)?;
                bytes += some.len() as u64;
                context.progress.advance(bytes);
            }
            copy.sync()?;
        }
        bytes += copy_log(context, &self.manifest, self.log, to)?;
        index.iter().try_for_each(|folder| device.sync_folder(folder))?;
        // The manifest is written last; without it the folder is not a collection.
        self.manifest.publish(context, to)?;
        Ok(bytes)
    }
}

/// Copies all complete records of the log to one file, and appends a closing record. It states that all records before
/// it are durable, so that later damage to any of them is detected. Returns the size of the file in bytes; 0 if there
/// is no log.
fn copy_log(context: &Context, manifest: &CollectionManifest, log: Segments, to: &Path) -> Result<u64> {
    let salt = manifest.log().salt;
    let nothing = Change::empty(manifest.ids).to_bytes();
    let (mut writer, mut is_closed) = (None, true);
    let found = log.read(context, None, &mut |frame| {
        context.cancel.check()?;
        let start = Point { next: frame.head.sequence, previous: frame.head.previous };
        if writer.is_none() {
            writer = Some(SegmentWriter::draft(context, to, salt, start)?);
        }
        is_closed = frame.payload == nothing;
        writer.as_mut().map_or(Ok(()), |writer| writer.append(frame.bytes))
    })?;
    let mut writer = match writer {
        Some(writer) => writer,
        None if found.files == 0 => return Ok(0),
        None => SegmentWriter::draft(context, to, salt, found.point)?,
    };
    // If the collection was closed, its log already ends with a closing record.
    if !is_closed {
        let (Point { next, previous }, mut closing) = (found.point, Vec::new());
        push_frame(&mut closing, salt, RecordLinks { sequence: next, previous, durable: next - 1 }, &nothing);
        writer.append(&closing)?;
    }
    writer.place(context, to)?;
    Ok(writer.bytes)
}
