//! Replaces a whole folder with another one by renaming both.

use std::path::{Path, PathBuf};

use adjoin_device::FileKind;

use super::kind::has_manifest;
use super::manifest::FolderKind;
use super::publish::check_target;
use crate::base::context::Context;
use crate::base::error::{Error, Result};
use crate::base::locks::{OwnFolder, WriterLock};
use crate::base::output::Target;

/// File that marks a folder as being replaced. It is created before the folder is renamed.
pub(crate) const REPLACED_MARK: &str = "replaced.partial";
/// Name of the old folder within the draft folder.
const OLD: &str = "replaced";

/// A folder that is published as a whole and may replace another folder of its kind. Between the two renames, the old
/// folder has the name `TARGET.replaced`.
#[derive(Clone, Copy)]
pub(crate) struct ReplacedFolder<'a> {
    /// Path of the published folder.
    pub(crate) target: &'a Path,
    /// Kind of the folder.
    pub(crate) kind: FolderKind,
    /// Name of the operation in one word, such as backup. Used in messages and in the name of the draft folder.
    pub(crate) by: &'static str,
}

impl ReplacedFolder<'_> {
    /// Returns the temporary path of the old folder.
    fn aside(self) -> Option<PathBuf> {
        let mut name = self.target.file_name()?.to_owned();
        name.push(".replaced");
        Some(self.target.with_file_name(name))
    }

    /// Cleans up after a process that was killed while it replaced the folder. If the target is missing, restores the
    /// old folder. If the target has a manifest, removes the old folder. A folder with the temporary name but without
    /// the mark is left alone.
    pub(crate) fn settle(self, context: &Context) -> Result<()> {
        let (device, target) = (&context.device, self.target);
        let Some(aside) = self.aside() else { return Ok(()) };
        if device.kind(&aside)? != Some(FileKind::Folder) || device.kind(&aside.join(REPLACED_MARK))?.is_none() {
            return Ok(());
        }
        // Another process may be replacing the folder at this moment.
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

    /// Publishes the folder `name` in `drafts` by renaming it to the target. The folder must be complete and durable.
    pub(crate) fn publish(self, context: &Context, drafts: OwnFolder, name: &str, force: bool) -> Result<()> {
        let (device, copy, target) = (&context.device, drafts.path().join(name), self.target);
        // A folder with this name may have been created since the first check.
        check_target(context, target, self.kind, force)?;
        if has_manifest(context, target)? {
            let aside = self.aside().expect("the target has a file name, as checked before");
            if device.kind(&aside)?.is_some() {
                let (at, target, by) = (aside.display(), target.display(), self.by);
                return Err(Error::input(format!(
                    "{at} exists, but a {by} to {target} needs that name for the old folder; move it or remove it"
                )));
            }
            // Other processes must not open the old folder for writing while it is renamed.
            let lock = WriterLock::take(device, target)?;
            // Marks the old folder, so that a later run recognizes it if this process is killed before it has
            // finished.
            device.create(&target.join(REPLACED_MARK))?.sync()?;
            device.sync_folder(target)?;
            if let Err(error) = device.rename(target, &aside).and_then(|()| device.rename(&copy, target)) {
                // Errors of this cleanup are ignored, since the original error is reported.
                let _ = device.rename(&aside, target);
                let _ = device.remove(&target.join(REPLACED_MARK));
                return Err(error.into());
            }
            drop(lock); // its file was moved with the folder
            // Sync before the old folder is removed. Until this sync, a power failure may undo the renames.
            device.sync_folder(Target::parent_of(target))?;
            device.rename(&aside, &drafts.path().join(OLD))?;
        } else {
            device.rename(&copy, target)?;
        }
        drop(drafts);
        Ok(device.sync_folder(Target::parent_of(target))?)
    }
}
