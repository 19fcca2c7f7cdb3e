//! The output data set: a file or a folder that appears atomically.
//!
//! A folder in an object store cannot be renamed. Its shards are uploaded one after the other, and an empty object with
//! the name `_SUCCESS` last, which marks the data set as complete.

use std::collections::{BTreeSet, HashMap};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use adjoin_device::{FileKind, Location, NewObject, RemoteName};

use super::Tables;
use super::removed::Listed;
use crate::base::context::Context;
use crate::base::error::{Error, Result};
use crate::base::locks::OwnFolder;
use crate::base::message::{Argument, message};
use crate::base::mutex::lock;
use crate::base::output::{OutputWriter, Target, check_parent};
use crate::base::report::Silent;
use crate::base::row_numbers::RowSet;
use crate::base::upload::ResultDraft;
use crate::base::workers::map_items;
use crate::source::{SourceFile, check_remote};

/// Name of the object that marks a data set in an object store as complete. Sources skip it.
const COMPLETE: &str = "_SUCCESS";

/// Location of the output data set.
pub(super) enum OutputPlace<'a> {
    /// A file, if the source is one.
    File { path: &'a Path, force: bool },
    /// A folder of files named by their paths relative to the input paths.
    Folder { path: &'a Path },
}

impl<'a> OutputPlace<'a> {
    /// Chooses a file if the source is a single file, otherwise a folder.
    ///
    /// # Errors
    /// If two files would have the same name, the output's extension differs from the source's, or an output in an
    /// object store is within the source.
    pub(super) fn new(
        context: &Context,
        path: &'a Path,
        files: &[SourceFile],
        inputs: &[String],
        force: bool,
    ) -> Result<Self> {
        let at = path.display();
        let mut sources = inputs.iter().map(Path::new).chain(files.iter().map(|file| file.path.as_path()));
        if Location::is_remote(path) && sources.any(|source| path.starts_with(source)) {
            return Err(Error::option(format!("{at} is the source or within it; choose another name for the output")));
        }
        // The output for a folder is a folder even if it has only one file, so that the layout does not depend on the
        // number of shards.
        let is_one_file = match (files, inputs) {
            ([_], [input]) => context.device.kind(Path::new(input))? != Some(FileKind::Folder),
            _ => false,
        };
        if is_one_file {
            let ending = |path: &Path| path.extension().map(|ending| ending.to_ascii_lowercase()).unwrap_or_default();
            // Other programs recognize the format by the extension, so the output must have the extension of the
            // source.
            if ending(path) != ending(&files[0].path) {
                let (source, ending) = (files[0].path.display(), ending(&files[0].path));
                return Err(Error::option(format!(
                    "the output has the format of {source}, but {at} has another extension; name it .{}",
                    ending.display()
                )));
            }
            return Ok(Self::File { path, force });
        }
        let mut names = HashMap::new();
        for file in files {
            if let Some(other) = names.insert(&file.name, &file.path) {
                return Err(Error::option(format!(
                    "{} and {} would both be called {} in {at}; name a folder that holds both",
                    other.display(),
                    file.path.display(),
                    file.name.display()
                )));
            }
        }
        Ok(Self::Folder { path })
    }

    /// Returns an error if the output exists already and may not be replaced.
    pub(super) fn check(&self, context: &Context) -> Result<()> {
        let path = match self {
            Self::File { path, force } => return ResultDraft::check(context, path, *force),
            Self::Folder { path } => path,
        };
        let at = path.display();
        if let Location::Remote(name) = Location::of(path) {
            return check_objects(context, path, name);
        }
        match context.device.kind(path)? {
            None => check_parent(&*context.device, path),
            Some(FileKind::Folder) => {
                let folder = format!("{at} exists already, and ");
                Err(Error::input(message![
                    folder,
                    Argument::Force,
                    " does not replace folders; remove it, or name another one"
                ]))
            }
            Some(_) => Err(Error::input(format!("{at} is a file, but the source has several files; name a folder"))),
        }
    }

    /// Returns the memory for writing the output.
    pub(super) fn writing_bytes(&self, tables: &Tables<'_>) -> Result<u64> {
        Ok(self.file_bytes(tables)? + RowSet::memory_bytes(tables.rows))
    }

    /// Returns the maximum memory for writing a single file.
    fn file_bytes(&self, tables: &Tables<'_>) -> Result<u64> {
        let (Self::File { path, .. } | Self::Folder { path }) = self;
        let mut most = 0;
        for file in &tables.files {
            most = most.max(file.writing_bytes(tables.context)?);
        }
        Ok(most + ResultDraft::memory_bytes(tables.context, path))
    }

    /// Writes all files by `write`, with as many threads as memory allows. Returns the sum of its results.
    fn write_files(
        &self,
        tables: &Tables<'_>,
        write: &(dyn Fn(&SourceFile, &AtomicU64) -> Result<u64> + Sync),
    ) -> Result<u64> {
        let Tables { context, files, .. } = tables;
        // Each thread writes one file at a time, so it gets the memory for the largest file.
        let fit = context.budget().free() / self.file_bytes(tables)?.max(1);
        let threads = context.threads.min(files.len()).min(fit as usize).max(1);
        let done = AtomicU64::new(0);
        let write = |(): &mut (), number: usize| write(&files[number], &done);
        Ok(map_items(threads, files.len(), &context.cancel, || (), write)?.into_iter().sum())
    }

    /// Writes all files without the removed rows. Then publishes the list of removed rows, and finally the data set.
    /// Returns the bytes of the data set.
    pub(super) fn write(&self, tables: &Tables<'_>, removed: &RowSet, listed: Option<Listed>) -> Result<u64> {
        let context = tables.context;
        context.progress.begin("write", "rows", tables.rows);
        match self {
            Self::File { path, force } => {
                let (draft, out) = ResultDraft::create(context, path, *force)?;
                let bytes = write_file(context, &tables.files[0], removed, &AtomicU64::new(0), out)?;
                // The list is published first, so that it exists when the data set appears.
                listed.map_or(Ok(()), Listed::publish)?;
                draft.publish()?;
                Ok(bytes)
            }
            Self::Folder { path } if Location::is_remote(path) => {
                let shards = RemoteShards { context, folder: path, uploaded: Mutex::default() };
                let bytes = self.write_files(tables, &|file, done| shards.write(file, removed, done))?;
                listed.map_or(Ok(()), Listed::publish)?;
                shards.complete()?;
                Ok(bytes)
            }
            Self::Folder { path } => {
                // The temporary folder is next to the result, since a rename cannot cross file systems.
                let own = OwnFolder::create(&context.device, Target::parent_of(path), "dedupe")?;
                let folder = own.path().join("result");
                let folders = make_folders(tables, &folder)?;
                let bytes = self.write_files(tables, &|file, done| {
                    let out = OutputWriter::file(context.device.create(&folder.join(&file.name))?);
                    write_file(context, file, removed, done, out)
                })?;
                // Inner folders are synced first, so that a durable folder contains only durable folders.
                folders.iter().rev().try_for_each(|folder| context.device.sync_folder(folder))?;
                listed.map_or(Ok(()), Listed::publish)?;
                // Another program may have created the folder during the run.
                self.check(context)?;
                context.device.rename(&folder, path)?;
                drop(own);
                context.device.sync_folder(Target::parent_of(path))?;
                Ok(bytes)
            }
        }
    }
}

/// Checks that nothing exists in an object store under the name of the output folder.
fn check_objects(context: &Context, path: &Path, name: RemoteName<'_>) -> Result<()> {
    check_remote(&*context.device, name)?;
    let at = name.public_url();
    if name.is_web() || name.key.is_empty() {
        return Err(Error::option(format!("{at} is not the name of a folder in a bucket; name one for the output")));
    }
    match context.device.kind(path)? {
        None => Ok(()),
        Some(FileKind::Folder) => Err(Error::input(format!(
            "{at} exists already, and is complete only if it has {COMPLETE}; remove its objects, or name another folder"
        ))),
        Some(_) => Err(Error::input(format!("{at} is a file, but the source has several files; name a folder"))),
    }
}

/// Shards that are uploaded to a folder in an object store. Dropping them removes the uploaded ones, unless the folder
/// is complete.
struct RemoteShards<'a> {
    context: &'a Context,
    folder: &'a Path,
    uploaded: Mutex<Vec<PathBuf>>,
}

impl RemoteShards<'_> {
    /// Writes and uploads a shard.
    fn write(&self, file: &SourceFile, removed: &RowSet, done: &AtomicU64) -> Result<u64> {
        // The progress counts rows. The uploads of several threads would replace it by bytes.
        let mut context = self.context.clone();
        context.progress = Arc::new(Silent);
        let url = self.folder.join(&file.name);
        let (draft, out) = ResultDraft::create(&context, &url, false)?;
        let bytes = write_file(self.context, file, removed, done, out)?;
        draft.publish()?;
        lock(&self.uploaded).push(url);
        Ok(bytes)
    }

    /// Marks the folder as complete.
    fn complete(self) -> Result<()> {
        let device = &self.context.device;
        let (path, memory_bytes) = (self.folder.join(COMPLETE), device.object_writing_bytes(0));
        // The mark may exist even if its upload fails, so the shards are not removed from here on.
        lock(&self.uploaded).clear();
        Ok(device.create_object(&path, NewObject { len: 0, memory_bytes, replace: false })?.sync()?)
    }
}

impl Drop for RemoteShards<'_> {
    fn drop(&mut self) {
        for url in lock(&self.uploaded).iter() {
            let _ = self.context.device.remove(url); // best effort: without the mark, the folder is not complete
        }
    }
}

/// Creates the output folder and the subfolders of its files, outer ones first.
fn make_folders(tables: &Tables<'_>, folder: &Path) -> Result<Vec<PathBuf>> {
    let mut folders: BTreeSet<PathBuf> = [folder.to_owned()].into();
    for file in &tables.files {
        let path = folder.join(&file.name);
        folders.extend(path.ancestors().skip(1).take_while(|above| *above != folder).map(Path::to_owned));
    }
    let folders: Vec<PathBuf> = folders.into_iter().collect();
    folders.iter().try_for_each(|folder| tables.context.device.create_folder(folder))?;
    Ok(folders)
}

/// Writes a file without the removed rows. Adds the number of its rows to `done`, the progress of all files.
fn write_file(
    context: &Context,
    file: &SourceFile,
    removed: &RowSet,
    done: &AtomicU64,
    out: OutputWriter,
) -> Result<u64> {
    let written = out.written();
    let is_removed = |row: u64| removed.contains(file.first_row + row);
    let advance = |rows: u64| context.progress.advance(done.fetch_add(rows, Ordering::Relaxed) + rows);
    file.write_without(context, &is_removed, &advance, out)?.sync()?;
    Ok(written.load(Ordering::Relaxed))
}
