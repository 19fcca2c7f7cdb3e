//! The output data set: a file or a folder that appears atomically.

use std::collections::{BTreeSet, HashMap};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use adjoin_device::{FileKind, Location};

use super::Tables;
use super::removed::Listed;
use crate::base::context::Context;
use crate::base::error::{Error, Result};
use crate::base::locks::OwnFolder;
use crate::base::output::{Draft, OutputWriter, Target, check_parent};
use crate::base::row_numbers::RowSet;
use crate::base::workers::map_items;
use crate::source::SourceFile;

/// Location of the output data set.
pub(super) enum OutputPlace<'a> {
    /// A file, if the source is one.
    File { path: &'a Path, force: bool },
    /// A folder of files named by their paths relative to the input paths.
    Folder { path: &'a Path },
}

/// Returns whether an input is a folder, or the URL of one. A URL is known as a folder by the name of its only `file`.
fn is_folder(input: &str, file: &SourceFile) -> bool {
    let input = Path::new(input);
    match Location::of(input) {
        Location::Local(path) => path.is_dir(),
        Location::Remote(_) => input.file_name() != file.path.file_name(),
    }
}

impl<'a> OutputPlace<'a> {
    /// Chooses a file if the source is a single file, otherwise a folder.
    ///
    /// # Errors
    /// If two files would have the same name, or the output's extension differs from the source's.
    pub(super) fn new(path: &'a Path, files: &[SourceFile], inputs: &[String], force: bool) -> Result<Self> {
        // The output for a folder is a folder even if it has only one file, so that the layout does not depend on the
        // number of shards.
        let is_one_file = matches!((files, inputs), ([file], [input]) if !is_folder(input, file));
        let at = path.display();
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
            Self::File { path, force } => return Target::check_free(&*context.device, path, *force),
            Self::Folder { path } => path,
        };
        let at = path.display();
        match context.device.kind(path)? {
            None => check_parent(&*context.device, path),
            Some(FileKind::Folder) => {
                Err(Error::input(format!("{at} exists already; remove that folder, or name another one")))
            }
            Some(_) => Err(Error::input(format!("{at} is a file, but the source has several files; name a folder"))),
        }
    }

    /// Returns the memory for writing the output.
    pub(super) fn writing_bytes(&self, tables: &Tables<'_>) -> Result<u64> {
        Ok(largest(tables)? + RowSet::memory_bytes(tables.rows))
    }

    /// Writes all files without the removed rows. Then publishes the list of removed rows, and finally the data set.
    /// Returns the bytes of the data set.
    pub(super) fn write(&self, tables: &Tables<'_>, removed: &RowSet, listed: Option<Listed>) -> Result<u64> {
        let context = tables.context;
        context.progress.begin("write", "rows", tables.rows);
        match self {
            Self::File { path, force } => {
                let (draft, out) = Draft::create(context, path, *force)?;
                let bytes = write_file(context, &tables.files[0], removed, &AtomicU64::new(0), out)?;
                // The list is published first, so that it exists when the data set appears.
                listed.map_or(Ok(()), Listed::publish)?;
                draft.publish()?;
                Ok(bytes)
            }
            Self::Folder { path } => {
                // The temporary folder is next to the result, since a rename cannot cross file systems.
                let own = OwnFolder::create(&context.device, Target::parent_of(path), "dedupe")?;
                let folder = own.path().join("result");
                let bytes = write_folder(tables, removed, &folder)?;
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

/// Returns the maximum memory for writing a single file.
fn largest(tables: &Tables<'_>) -> Result<u64> {
    let needs = tables.files.iter().map(|file| file.writing_bytes(tables.context));
    Ok(needs.collect::<Result<Vec<_>>>()?.into_iter().max().unwrap_or(0))
}

/// Writes all files into a folder, with as many threads as memory allows.
fn write_folder(tables: &Tables<'_>, removed: &RowSet, folder: &Path) -> Result<u64> {
    let Tables { context, files, .. } = tables;
    let folders = make_folders(tables, folder)?;
    // Each thread writes one file at a time, so it gets the memory for the largest file.
    let fit = context.budget().free() / largest(tables)?.max(1);
    let threads = context.threads.min(files.len()).min(fit as usize).max(1);
    let done = AtomicU64::new(0);
    let bytes = map_items(
        threads,
        files.len(),
        &context.cancel,
        || (),
        |(), number| {
            let file = &files[number];
            let out = OutputWriter::file(context.device.create(&folder.join(&file.name))?);
            write_file(context, file, removed, &done, out)
        },
    )?;
    // Inner folders are synced first, so that a durable folder contains only durable folders.
    for folder in folders.iter().rev() {
        context.device.sync_folder(folder)?;
    }
    Ok(bytes.into_iter().sum())
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
