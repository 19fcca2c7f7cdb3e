//! Results of the parts of a job, as sealed files in one folder.

use std::io::ErrorKind as IoErrorKind;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};

use adjoin_device::{FileKind, Location};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::base::context::Context;
use crate::base::error::{Error, ErrorKind, Result};
use crate::base::locks::OwnFolder;
use crate::base::message::{Argument, message};
use crate::base::options::format_count;
use crate::base::sealed::{SealedKind, SealedReader, SealedWriter};

/// Maximum number of missing parts that a message lists.
const LISTED: usize = 8;

/// The parts of a plan.
#[derive(Clone, Copy)]
pub(crate) struct PartFiles<'a> {
    /// File of the plan.
    pub(crate) plan: &'a Path,
    /// Number of parts.
    pub(crate) parts: u32,
}

impl PartFiles<'_> {
    /// Parses the number of a part, such as `3/256`.
    ///
    /// # Errors
    /// Fails if there is no such part.
    pub(crate) fn number(self, text: &str) -> Result<u32> {
        let parts = self.parts;
        let number = text.split_once('/');
        let number = number.and_then(|(number, of)| Some((number.parse::<u32>().ok()?, of.parse::<u32>().ok()?)));
        match number {
            Some((number, of)) if of == parts && (1..=parts).contains(&number) => Ok(number),
            _ => {
                let at = self.plan.display();
                Err(Error::option(message![
                    Argument::Part.with(text),
                    format!(" is not a part of {at}; give 1/{parts} to {parts}/{parts}")
                ]))
            }
        }
    }

    /// Returns the path of the result of a part.
    pub(crate) fn path(self, folder: &Path, number: u32) -> PathBuf {
        folder.join(format!("part-{number:05}-of-{:05}", self.parts))
    }

    /// Creates the result of a part. An existing result is replaced by an equal one, so two concurrent runs of a part do
    /// no harm.
    ///
    /// # Errors
    /// Fails if a file cannot be written.
    pub(crate) fn create(
        self,
        context: &Context,
        folder: &Path,
        number: u32,
        kind: SealedKind,
        head: &impl Serialize,
    ) -> Result<SealedWriter> {
        let mut file = SealedWriter::create(context, &self.path(folder, number), true, kind)?;
        file.append(&serde_json::to_vec(head).expect("a head has no map"))?;
        Ok(file)
    }

    /// Opens the result of a part, and reads its first frame, which must be `head`. Returns `None` if there is no result.
    ///
    /// # Errors
    /// Fails if the result is truncated, damaged or of another plan.
    pub(crate) fn open<H: DeserializeOwned + PartialEq>(
        self,
        context: &Context,
        folder: &Path,
        number: u32,
        kind: SealedKind,
        head: &H,
    ) -> Result<Option<SealedReader>> {
        let path = self.path(folder, number);
        let Some(mut reader) = SealedReader::open(context, &path, kind)? else { return Ok(None) };
        let found: Option<H> = serde_json::from_slice(reader.next()?.unwrap_or_default()).ok();
        let Some(found) = found else { return Err(reader.damaged()) };
        if found != *head {
            let (at, plan) = (path.display(), self.plan.display());
            return Err(Error::input(message![
                format!("{at} is a part of another plan than {plan}; choose another folder, or run the part with "),
                Argument::Force
            ]));
        }
        Ok(Some(reader))
    }

    /// Returns whether a complete result of a part exists. A damaged result counts as missing. `open` opens the result.
    ///
    /// # Errors
    /// Fails if the result is of another plan or cannot be read.
    pub(crate) fn is_done(
        self,
        context: &Context,
        folder: &Path,
        open: impl FnOnce() -> Result<Option<SealedReader>>,
    ) -> Result<bool> {
        let read = || -> Result<bool> {
            let Some(mut reader) = open()? else { return Ok(false) };
            while reader.next()?.is_some() {
                context.cancel.check()?;
            }
            // Creating a folder of our own removes the leftovers of killed runs. An error is ignored: leftovers do no
            // harm.
            let _ = OwnFolder::create(&context.device, folder, "part");
            Ok(true)
        };
        match read() {
            Err(error) if error.kind() == ErrorKind::Corrupt => {
                context.progress.note(&format!("{error}: it is computed again"));
                Ok(false)
            }
            read => read,
        }
    }

    /// Checks that all parts in a range exist. `open` opens one, which checks it as well.
    ///
    /// # Errors
    /// Fails if parts are missing, or as `open` does.
    pub(crate) fn check_all(
        self,
        folder: &Path,
        parts: RangeInclusive<u32>,
        mut open: impl FnMut(u32) -> Result<Option<SealedReader>>,
    ) -> Result<()> {
        let mut missing = Vec::new();
        for number in parts {
            if open(number)?.is_none() {
                missing.push(number);
            }
        }
        if missing.is_empty() {
            return Ok(());
        }
        let listed: Vec<String> = missing.iter().take(LISTED).map(u32::to_string).collect();
        let more = if missing.len() > LISTED { ", ..." } else { "" };
        Err(Error::input(format!(
            "{} of {} missing in {}: {}{more}; run them first",
            missing.len(),
            format_count(self.parts.into(), "part"),
            folder.display(),
            listed.join(", ")
        )))
    }
}

/// Creates the folder for the results of parts, if it is missing. Object stores have no folders.
///
/// # Errors
/// Fails if it is a file or cannot be created.
pub(crate) fn create_part_folder(context: &Context, folder: &Path) -> Result<()> {
    if Location::is_remote(folder) {
        return Ok(());
    }
    match context.device.create_folder(folder) {
        Err(error) if error.source.kind() == IoErrorKind::AlreadyExists => match context.device.kind(folder)? {
            Some(FileKind::Folder) => Ok(()),
            _ => Err(Error::input(format!("{} is a file; name a folder for the results of parts", folder.display()))),
        },
        created => Ok(created?),
    }
}
