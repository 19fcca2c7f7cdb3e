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

/// Returns a context for opening these names that in refusals names the memory of later work too, if they are a
/// collection. `bytes_of` returns the bytes of that work, given a source of the shape of the rows.
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

/// Opens names as one set of vectors: files, folders and globs, or one collection. A collection is read as it is at
/// this moment, with its ids.
///
/// # Errors
/// Fails if a file or a collection cannot be opened. Also fails if there are no rows, or a collection is not the
/// only name or is given together with an option for files.
pub fn open_source(context: &Context, names: &[String], options: &SourceOptions) -> Result<Arc<dyn VectorSource>> {
    // All names are checked, so that a collection among files is refused as such and not as an unknown file.
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
