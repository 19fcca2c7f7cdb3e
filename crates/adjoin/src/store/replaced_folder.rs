//! Puts a whole folder in the place of another one, by renaming both.

use std::path::{Path, PathBuf};

use adjoin_device::FileKind;

use super::kind::has_manifest;
use super::manifest::FolderKind;
use super::publish::check_target;
use crate::base::context::Context;
use crate::base::error::{Error, Result};
use crate::base::locks::{OwnFolder, WriterLock};
use crate::base::output::Target;

/// File that marks a folder that is being replaced, created before the folder is renamed.
pub(crate) const REPLACED_MARK: &str = "replaced.partial";
/// Name of the old folder among the drafts.
const OLD: &str = "replaced";

/// The place of a folder that appears whole, and may replace another one of its kind. Between two renames, the old one
/// is named `TARGET.replaced`.
#[derive(Clone, Copy)]
pub(crate) struct ReplacedFolder<'a> {
    /// Path of the folder.
    pub(crate) target: &'a Path,
    /// Its kind.
    pub(crate) kind: FolderKind,
    /// Name of the work in one word, such as backup, for draft folders and messages.
    pub(crate) by: &'static str,
}

impl ReplacedFolder<'_> {
    /// Returns the temporary name of the folder that is replaced.
    fn aside(self) -> Option<PathBuf> {
        let mut name = self.target.file_name()?.to_owned();
        name.push(".replaced");
        Some(self.target.with_file_name(name))
    }

    /// Cleans up after a process that was killed while it replaced the folder: restores the old one if it is the only
    /// one, else removes it. A folder of that name without the mark is left alone.
    pub(crate) fn settle(self, context: &Context) -> Result<()> {
        let (device, target) = (&context.device, self.target);
        let Some(aside) = self.aside() else { return Ok(()) };
        if device.kind(&aside)? != Some(FileKind::Folder) || device.kind(&aside.join(REPLACED_MARK))?.is_none() {
            return Ok(());
        }
        // Another process may be about to replace it.
        let Ok(lock) = WriterLock::take(device, &aside) else { return Ok(()) };
        if device.kind(target)?.is_none() {
            device.remove(&aside.join(REPLACED_MARK))?;
            lock.release()?;
            device.rename(&aside, target)?;
        } else if has_manifest(context, target)? {
            let drafts = OwnFolder::create(device, Target::parent_of(target), self.by)?;
            device.rename(&aside, &drafts.path().join(OLD))?;
            drop(lock); // its file was moved with the folder
        }
        Ok(device.sync_folder(Target::parent_of(target))?)
    }

    /// Renames the folder `name` in `drafts` to the target. It is complete and durable.
    pub(crate) fn publish(self, context: &Context, drafts: OwnFolder, name: &str, force: bool) -> Result<()> {
        let (device, copy, target) = (&context.device, drafts.path().join(name), self.target);
        // The name may have been taken in the meantime.
        check_target(context, target, self.kind, force)?;
        if has_manifest(context, target)? {
            let aside = self.aside().expect("the target has a file name, as checked before");
            if device.kind(&aside)?.is_some() {
                let (at, target, by) = (aside.display(), target.display(), self.by);
                return Err(Error::input(format!(
                    "{at} is there, and a {by} to {target} needs that name for the old folder; move it or remove it"
                )));
            }
            // No other process may open the old folder for writing while it is renamed.
            let lock = WriterLock::take(device, target)?;
            // Marks the old folder, so that a later run recognizes it if this process is killed before the end.
            device.create(&target.join(REPLACED_MARK))?.sync()?;
            device.sync_folder(target)?;
            if let Err(error) = device.rename(target, &aside).and_then(|()| device.rename(&copy, target)) {
                // Best effort: the original error is reported.
                let _ = device.rename(&aside, target);
                let _ = device.remove(&target.join(REPLACED_MARK));
                return Err(error.into());
            }
            drop(lock); // its file was moved with the folder
            // Before the old one is removed: until this sync, a loss of power may undo the renames.
            device.sync_folder(Target::parent_of(target))?;
            device.rename(&aside, &drafts.path().join(OLD))?;
        } else {
            device.rename(&copy, target)?;
        }
        drop(drafts);
        Ok(device.sync_folder(Target::parent_of(target))?)
    }
}
