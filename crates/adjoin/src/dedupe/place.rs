//! Where the new data set goes: a file or a folder that appears at once.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use adjoin_device::FileKind;

use super::Tables;
use super::removed::Listed;
use crate::context::Context;
use crate::error::{Error, Result};
use crate::locks::OwnFolder;
use crate::output::{Draft, OutputWriter, check_free, check_parent, parent};
use crate::row_numbers::RowSet;
use crate::source::SourceFile;

/// Where the files of a data set go.
pub(super) enum Place<'a> {
    /// A file, as the source is one.
    File { path: &'a Path, force: bool },
    /// A folder, in which files are called as they are within what was named.
    Folder { path: &'a Path },
}

impl<'a> Place<'a> {
    /// As the source is.
    ///
    /// # Errors
    /// Where two files would have one name, or the output has another ending than the source.
    pub(super) fn new(path: &'a Path, files: &[SourceFile], inputs: &[String], force: bool) -> Result<Self> {
        let is_one_file = matches!(files, [_]) && matches!(inputs, [input] if !Path::new(input).is_dir());
        let at = path.display();
        if is_one_file {
            let ending = |path: &Path| path.extension().map(|ending| ending.to_ascii_lowercase());
            if ending(path) != ending(&files[0].path) {
                let source = files[0].path.display();
                return Err(Error::option(format!(
                    "{source} is written again in its own format, and {at} ends otherwise; give the output the same ending"
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

    /// Refuses a name that is taken.
    pub(super) fn check(&self, context: &Context) -> Result<()> {
        let path = match self {
            Self::File { path, force } => return check_free(&*context.device, path, *force),
            Self::Folder { path } => path,
        };
        let at = path.display();
        match context.device.kind(path)? {
            None => check_parent(&*context.device, path),
            Some(FileKind::Folder) => {
                Err(Error::input(format!("{at} exists already; remove that folder, or name another one")))
            }
            Some(_) => Err(Error::input(format!("{at} is a file, and the source has several; name a folder"))),
        }
    }

    /// Writes all files without the rows that are gone; then the list of those appears, and last the data set. Returns
    /// its bytes.
    pub(super) fn write(&self, tables: &Tables<'_>, gone: &RowSet, listed: Option<Listed>) -> Result<u64> {
        let context = tables.context;
        context.progress.begin("write", "rows", tables.rows);
        match self {
            Self::File { path, force } => {
                let (draft, out) = Draft::create(context, path, *force)?;
                let bytes = write_file(tables, &tables.files[0], gone, out)?;
                listed.map_or(Ok(()), Listed::publish)?;
                draft.publish()?;
                Ok(bytes)
            }
            Self::Folder { path } => {
                let own = OwnFolder::create(&context.device, parent(path), "dedupe")?;
                let folder = own.path().join("result");
                let bytes = write_folder(tables, gone, &folder)?;
                listed.map_or(Ok(()), Listed::publish)?;
                self.check(context)?;
                context.device.rename(&folder, path)?;
                drop(own);
                context.device.sync_folder(parent(path))?;
                Ok(bytes)
            }
        }
    }
}

fn write_folder(tables: &Tables<'_>, gone: &RowSet, folder: &Path) -> Result<u64> {
    let device = &tables.context.device;
    let mut folders: Vec<PathBuf> = Vec::new();
    let mut bytes = 0;
    for file in &tables.files {
        let path = folder.join(&file.name);
        let within: Vec<&Path> = parent(&path).ancestors().take_while(|above| above.starts_with(folder)).collect();
        for above in
            within.into_iter().rev().filter(|above| !folders.iter().any(|made| made == above)).collect::<Vec<_>>()
        {
            device.create_folder(above)?;
            folders.push(above.to_owned());
        }
        bytes += write_file(tables, file, gone, OutputWriter::file(device.create(&path)?))?;
    }
    for folder in folders.iter().rev() {
        device.sync_folder(folder)?;
    }
    Ok(bytes)
}

fn write_file(tables: &Tables<'_>, file: &SourceFile, gone: &RowSet, out: OutputWriter) -> Result<u64> {
    let written = out.written();
    let is_gone = |row: u64| gone.contains(file.first_row + row);
    file.write_without(tables.context, &is_gone, out)?.sync()?;
    Ok(written.load(std::sync::atomic::Ordering::Relaxed))
}
