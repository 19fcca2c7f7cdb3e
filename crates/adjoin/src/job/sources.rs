//! Opens named vectors: files, or a collection.

use std::path::Path;
use std::sync::Arc;

use super::only_for_files;
use crate::base::context::Context;
use crate::base::error::{Error, Result};
use crate::base::message::message;
use crate::collection;
use crate::source::{self, SourceOptions, VectorSource};
use crate::store::FolderKind;

/// Returns a context for opening `names`. If they are a collection, its refusals name at least the memory that later
/// work needs. `bytes_of` returns the memory of that work, given a source with the number and type of the rows.
pub(super) fn context_of_later(
    context: &Context,
    names: &[String],
    bytes_of: &dyn Fn(&dyn VectorSource) -> u64,
) -> Context {
    match names {
        [name] if matches!(FolderKind::of(context, Path::new(name)), Ok(Some(FolderKind::Collection))) => {
            collection::context_of_rows(context, Path::new(name), bytes_of)
        }
        _ => context.clone(),
    }
}

/// Opens names as one set of vectors: files, folders and globs, or one collection. The rows of a collection are those
/// that it has at this moment, with their ids.
///
/// # Errors
/// Fails if a file or a collection cannot be opened, or if there are no rows. Also fails if a collection is given
/// together with other names, or with an option that applies only to files.
pub fn open_source(context: &Context, names: &[String], options: &SourceOptions) -> Result<Arc<dyn VectorSource>> {
    // All names are checked, so that the message for a collection among files does not say that its format is
    // unknown.
    for name in names {
        if FolderKind::of(context, Path::new(name))? == Some(FolderKind::Collection) {
            return open_live(context, names, name, options);
        }
    }
    source::open_nonempty(context, names, options)
}

fn open_live(
    context: &Context,
    names: &[String],
    name: &str,
    options: &SourceOptions,
) -> Result<Arc<dyn VectorSource>> {
    if names.len() > 1 {
        return Err(Error::option(format!(
            "{name} is a collection, which cannot be combined with other sources; give it alone, or only files"
        )));
    }
    if let Some(option) = only_for_files(options) {
        return Err(Error::option(message![
            format!("{name} is a collection, and "),
            option,
            " applies only to files; leave it out"
        ]));
    }
    let rows = collection::open_rows(context, Path::new(name))?;
    if rows.info().rows == 0 {
        return Err(Error::input(format!("{name} has no rows; write some to it with: adjoin collection write")));
    }
    Ok(rows)
}
