use adjoin::{Error, FolderKind, Result, Store, format_bytes, format_count, format_number};

use super::words::{columns_in_words, escaped, kind_of_ids, manifest_as_json};
use super::{collection, index};
use crate::Outcome;
use crate::args::Info;
use crate::print::print;
use crate::resolve;

pub(crate) fn info(arguments: &Info) -> Result<Outcome> {
    // A folder without a manifest is treated as a store, and refused when it is opened.
    let kind = FolderKind::of(&resolve::plain_context(), &arguments.folder)?.unwrap_or(FolderKind::Store);
    info_of(arguments, kind)
}

/// Prints the contents of a folder of a given kind; refuses a folder of another kind.
pub(super) fn info_of(Info { folder, json }: &Info, kind: FolderKind) -> Result<Outcome> {
    match kind {
        FolderKind::Index => return index::info(folder, *json),
        FolderKind::Collection => return collection::info(folder, *json),
        FolderKind::Store => {}
    }
    let store = Store::open(&resolve::plain_context(), folder)?;
    let columns = || Ok::<_, Error>(columns_in_words(&store.attributes()?) + &order_in_words(&store));
    let text = || Ok::<_, Error>(describe(&store) + &columns()?);
    print(&if *json { manifest_as_json(store.manifest())? } else { text()? })?;
    Ok(Outcome::Done)
}

fn describe(store: &Store) -> String {
    let manifest = store.manifest();
    let buckets = store.extents().len() as u64;
    let largest = store.extents().iter().map(|extent| extent.rows.into()).max().unwrap_or(0);
    let lines = [
        format!(
            "vectors      {} of {} x {}",
            format_number(manifest.rows),
            manifest.vectors.dimensions,
            manifest.vectors.element
        ),
        format!(
            "skipped      {} of {}{}",
            format_count(manifest.skipped_rows, "row"),
            format_number(manifest.source_rows),
            growth_in_words(store)
        ),
        format!("ids          {}", kind_of_ids(manifest.ids)),
        format!("metric       {}", manifest.metric),
        format!(
            "buckets      {}, of {} on average, {} at most",
            format_number(buckets),
            format_count(manifest.rows / buckets, "vector"),
            format_number(largest)
        ),
        format!("on disk      {} of buckets", format_bytes(store.bucket_bytes())),
        format!("seed         {}", manifest.seed),
    ];
    lines.map(|line| line + "\n").concat()
}

/// Describes how many rows were appended and deleted since a store was built. Returns an empty text if none were.
fn growth_in_words(store: &Store) -> String {
    let manifest = store.manifest();
    let Some(built) = manifest.built_rows else { return String::new() };
    let removed = format_number(manifest.removed_rows);
    let came = format_count(manifest.source_rows - built, "row");
    format!(" ({removed} deleted); {came} appended since it was built from {}", format_number(built))
}

/// Returns a line about the column that rows are sorted by within buckets, if any.
fn order_in_words(store: &Store) -> String {
    store.manifest().sorted_by.as_ref().map_or_else(String::new, |name| format!("sorted by    {}\n", escaped(name)))
}
