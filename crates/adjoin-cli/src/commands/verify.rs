use adjoin::{Error, FolderKind, Result, Store, format_bytes, format_count};

use super::damage::{BUILD_LEFT, listed, print_damages, unnamed};
use super::{collection, index};
use crate::Outcome;
use crate::args::{ProgressForm, Quiet, Verify};
use crate::print::print;
use crate::resolve;
use crate::signals::Stopped;

pub(crate) fn verify(arguments: &Verify, stopped: &Stopped) -> Result<Outcome> {
    // If the kind cannot be read from the manifest, the folder is verified as a store, which reports the damage.
    let kind = FolderKind::of(&resolve::plain_context(), &arguments.folder).ok().flatten().unwrap_or(FolderKind::Store);
    verify_of(arguments, kind, stopped)
}

/// Verifies a folder of a given kind; refuses a folder of another kind.
pub(super) fn verify_of(arguments: &Verify, kind: FolderKind, stopped: &Stopped) -> Result<Outcome> {
    let Verify { folder, limit, quiet } = arguments;
    let quiet = *quiet;
    let context = resolve::limited_context(limit, None, &Quiet { quiet, progress: ProgressForm::Text }, stopped)?;
    match kind {
        FolderKind::Index => return index::verify(context, folder, quiet),
        FolderKind::Collection => return collection::verify(context, folder, quiet),
        FolderKind::Store => {}
    }
    let report = Store::verify(&context, folder)?;
    drop(context); // ends the progress bar
    if !quiet {
        let mut text = String::new();
        if report.is_sound() {
            let (bytes, buckets) = (format_bytes(report.bytes_read), format_count(report.buckets, "bucket"));
            text += &format!("sound: all checksums match, {bytes} in {buckets}\n");
        }
        let unknown = report
            .unknown
            .iter()
            .map(|(name, role)| format!("of a role unknown to this version: {name}, {role}; it belongs to the store"));
        text += &listed(unknown);
        print(&(text + &unnamed("the store", BUILD_LEFT, &report.leftovers, &report.strangers)))?;
    }
    let Some(remedy) = report.remedy() else { return Ok(Outcome::Done) };
    let count = print_damages(&report.damages, report.damage_count);
    Err(Error::corrupt(format!("{} is damaged in {count}; {remedy}", folder.display())))
}
