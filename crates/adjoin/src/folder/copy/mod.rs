//! Copies a whole folder between disks and object stores.
//!
//! Every file is verified while it is copied, by the checksums that the folder has. The manifest is written last, so a
//! copy that is interrupted cannot be opened. On a disk, the copy is written into a draft folder, read back, and
//! renamed. In an object store, objects cannot be renamed. There, files are written under their final names, and each
//! appears only once it is complete.

mod check;
mod files;
mod target;

use std::path::Path;
use std::sync::Arc;

use adjoin_device::{FileStamp, Location, READ_AHEAD_PIECE_BYTES, ReadFile};
use serde::Serialize;
use xxhash_rust::xxh3::Xxh3;

use self::files::{CopiedFile, CopiedFiles};
use self::target::CopyTarget;
use super::Folder;
use crate::base::context::Context;
use crate::base::error::{Error, Result};

/// Number of bytes that are copied at once.
const PIECE_BYTES: usize = 1 << 20;
/// Purpose of the memory, for error messages.
const PURPOSE: &str = "copying a folder";

/// Size of a copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct CopyReport {
    /// `store`, `index` or `collection`.
    pub kind: &'static str,
    /// Number of files, including the manifest.
    pub files: u64,
    /// Total bytes of these files.
    pub bytes: u64,
}

impl Folder {
    /// Copies a store, an index or a collection from `source` to `target`. Both may be folders on this machine or in
    /// object stores. The copy appears only once it is complete. If `force` is set, it may replace a folder of its
    /// kind.
    ///
    /// # Errors
    /// If there is no folder at `source`, if it is damaged, if it changes, or if it is a collection that another
    /// process writes to. If `target` exists and must not be replaced, if an object store refuses a request, or if
    /// memory or disk space does not suffice.
    pub fn copy(context: &Context, source: &Path, target: &Path, force: bool) -> Result<CopyReport> {
        let (source, target) = (&place_of(source), &place_of(target));
        if target.starts_with(source) {
            let (at, source) = (target.display(), source.display());
            return Err(Error::option(format!(
                "{at} is inside {source}, so it cannot be its copy; choose another folder"
            )));
        }
        let mut files = CopiedFiles::open(context, source)?;
        let target = CopyTarget::new(context, target, files.kind, force)?;
        target.check(&files)?;
        let least = least_bytes(&files, &target);
        let context = &files.check_log(context, least)?;
        Copying { context, source, files: &files, target: &target }.run(least)
    }
}

/// Returns the path or URL of a name. A slash at the end of a URL is removed.
fn place_of(name: &Path) -> std::path::PathBuf {
    match Location::of(name) {
        Location::Local(path) => path.into_owned(),
        Location::Remote(remote) => remote.url.into(),
    }
}

/// Returns the least bytes of memory for copying files.
fn least_bytes(files: &CopiedFiles, target: &CopyTarget<'_>) -> u64 {
    let ahead_bytes = files.files.iter().map(|file| file.file.read_ahead_bytes()).max().unwrap_or(0);
    PIECE_BYTES as u64 + files.checking_bytes() + ahead_bytes + target.writing_bytes(files.len_max())
}

/// A file that was written.
struct Written {
    /// Checksum of all bytes.
    hash: u64,
    /// Version of the object, if the file is in an object store.
    stamp: Option<FileStamp>,
}

struct Copying<'a> {
    context: &'a Context,
    source: &'a Path,
    files: &'a CopiedFiles,
    target: &'a CopyTarget<'a>,
}

impl Copying<'_> {
    fn run(self, least: u64) -> Result<CopyReport> {
        let Self { context, files, target, .. } = &self;
        let _memory = context.reserve(least, PURPOSE)?;
        // An upload is faster if more parts are in flight.
        let spare = target.spare_bytes(files.len_max()).min(context.budget().free() / 2);
        let _spare = context.reserve(spare, PURPOSE)?;
        let writing_bytes = target.writing_bytes(files.len_max()) + spare;
        let draft = target.begin(files)?;
        let folder = draft.folder();
        context.progress.begin("copy", "bytes", files.bytes());
        let (mut piece, mut copied, mut whole, mut written) = (vec![0; PIECE_BYTES], 0, 0, Vec::new());
        let done = files.files.iter().try_for_each(|file| {
            written.push(self.copy_file(file, &folder, writing_bytes, &mut piece, &mut copied)?);
            whole = copied;
            Ok(())
        });
        let done = done.and_then(|()| self.check_written(&folder, &written, &mut piece));
        if let Err(error) = done.and_then(|()| draft.publish(&files.manifest)) {
            target.note_leftovers(whole);
            return Err(error);
        }
        let (count, bytes) = (files.files.len() as u64 + 1, copied + files.manifest.len() as u64);
        Ok(CopyReport { kind: files.kind.name(), files: count, bytes })
    }

    /// Copies a file, and verifies its bytes before it is complete.
    fn copy_file(
        &self,
        from: &CopiedFile,
        folder: &Path,
        writing_bytes: u64,
        piece: &mut [u8],
        copied: &mut u64,
    ) -> Result<Written> {
        let context = self.context;
        let path = folder.join(&from.name);
        let (file, len) = (ahead(&from.file), from.file.len());
        let mut check = self.files.check_of(from).map_err(|error| self.damaged(from, &error.to_string()))?;
        let mut to = self.target.create(&path, len, writing_bytes)?;
        let mut hash = Xxh3::new();
        for start in (0..len).step_by(PIECE_BYTES) {
            context.cancel.check()?;
            let some = &mut piece[..(len - start).min(PIECE_BYTES as u64) as usize];
            file.read_at(start, some)?;
            hash.update(some);
            check.update(some).map_err(|fault| self.damaged(from, &fault))?;
            to.append(some)?;
            *copied += some.len() as u64;
            context.progress.advance(*copied);
        }
        let hash = hash.digest();
        check.finish(hash).map_err(|fault| self.damaged(from, &fault))?;
        to.sync()?;
        drop(to);
        let stamp = self.target.is_remote().then(|| context.device.open(&path)?.stamp()).transpose()?;
        Ok(Written { hash, stamp })
    }

    /// Reads files on a disk back and verifies them. For objects, verifies that their versions are the written ones, so
    /// that no other process has replaced them.
    fn check_written(&self, folder: &Path, written: &[Written], piece: &mut [u8]) -> Result<()> {
        let context = self.context;
        if !self.target.is_remote() {
            context.progress.begin("read back", "bytes", self.files.bytes());
        }
        let mut read = 0;
        for (from, written) in self.files.files.iter().zip(written) {
            context.cancel.check()?;
            let path = folder.join(&from.name);
            let file = context.device.open(&path)?;
            let is_same = match written.stamp {
                Some(stamp) => file.stamp()? == stamp,
                None => file.len() == from.file.len() && self.hash_of(&*file, piece, &mut read)? == written.hash,
            };
            if !is_same {
                let (at, source) = (path.display(), self.source.display());
                return Err(Error::device(format!(
                    "{at} differs from what was copied from {source}; check the disk, and whether another program \
                     writes there"
                )));
            }
        }
        Ok(())
    }

    fn hash_of(&self, file: &dyn ReadFile, piece: &mut [u8], read: &mut u64) -> Result<u64> {
        let mut hash = Xxh3::new();
        for start in (0..file.len()).step_by(PIECE_BYTES) {
            self.context.cancel.check()?;
            let some = &mut piece[..(file.len() - start).min(PIECE_BYTES as u64) as usize];
            file.read_at(start, some)?;
            hash.update(some);
            *read += some.len() as u64;
            self.context.progress.advance(*read);
        }
        Ok(hash.digest())
    }

    fn damaged(&self, file: &CopiedFile, fault: &str) -> Error {
        let (at, name) = (self.source.display(), file.name.display());
        Error::corrupt(format!("{at} is damaged, so no copy was made: {name}: {fault}; {}", self.files.kind.remedy()))
    }
}

/// Returns a view of a file that reads ahead if the file is remote.
fn ahead(file: &Arc<dyn ReadFile>) -> Arc<dyn ReadFile> {
    let starts = (0..file.len()).step_by(READ_AHEAD_PIECE_BYTES as usize);
    let ranges = starts.map(|start| start..(start + READ_AHEAD_PIECE_BYTES).min(file.len()));
    match file.is_remote() {
        true => file.clone().read_ahead(ranges.collect()).unwrap_or_else(|| file.clone()),
        false => file.clone(),
    }
}
