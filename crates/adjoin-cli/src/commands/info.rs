use adjoin::context::Context;
use adjoin::error::{Error, Result};
use adjoin::options::{format_bytes, format_count, format_number};
use adjoin::source::IdKind;
use adjoin::store::{Store, bucket_bytes};

use crate::Outcome;
use crate::args::Info;
use crate::print::print;

pub(crate) fn info(arguments: &Info) -> Result<Outcome> {
    let context = Context::default();
    let store = Store::open(&context, &arguments.store)?;
    let manifest = store.manifest();
    if arguments.json {
        let text = serde_json::to_string_pretty(manifest);
        print(&(text.map_err(|error| Error::corrupt(error.to_string()))? + "\n"))?;
        return Ok(Outcome::Done);
    }
    print(&describe(&store))?;
    Ok(Outcome::Done)
}

fn describe(store: &Store) -> String {
    let manifest = store.manifest();
    let buckets = store.extents().len() as u64;
    let largest = store.extents().iter().map(|extent| extent.rows.into()).max().unwrap_or(0);
    let ids = match manifest.ids {
        IdKind::None => "none",
        IdKind::Int64 => "int64",
        IdKind::Utf8 => "utf8",
    };
    let lines = [
        format!(
            "vectors      {} of {} x {}",
            format_number(manifest.rows),
            manifest.vectors.dimensions,
            manifest.vectors.element
        ),
        format!(
            "skipped      {} of {}",
            format_count(manifest.skipped_rows, "row"),
            format_number(manifest.source_rows)
        ),
        format!("ids          {ids}"),
        format!("metric       {}", manifest.metric),
        format!(
            "buckets      {}, of {} on average, {} at most",
            format_number(buckets),
            format_count(manifest.rows / buckets, "vector"),
            format_number(largest)
        ),
        format!("on disk      {} of buckets", format_bytes(bucket_bytes(store.extents(), true))),
        format!("seed         {}", manifest.seed),
    ];
    lines.map(|line| line + "\n").concat()
}
