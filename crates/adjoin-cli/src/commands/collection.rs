use std::path::Path;

use adjoin::{
    Attribute, Collection, CollectionOptions, Condition, Context, Durability, Error, Result, Target, VectorSource,
    VectorType, Write, WriteReport, format_bytes, format_count, format_number,
};
use serde::Serialize;

use super::damage::{print_damages, unnamed};
use super::ids::{ids_of, say_missing};
use super::memory::{memory_verdict, print_memory};
use super::words::{columns_in_words, kind_of_ids, manifest_as_json};
use crate::Outcome;
use crate::args::{
    Collection as CollectionCommand, CollectionBackup, CollectionCreate, CollectionMerge, CollectionSnapshot,
    CollectionWrite,
};
use crate::print::print;
use crate::resolve;
use crate::signals::Stopped;

pub(crate) fn collection(command: &CollectionCommand, stopped: &Stopped) -> Result<Outcome> {
    match command {
        CollectionCommand::Create(arguments) => create(arguments),
        CollectionCommand::Write(arguments) => write(arguments, stopped),
        CollectionCommand::Merge(arguments) => merge(arguments, stopped),
        CollectionCommand::Snapshot(arguments) => snapshot(arguments, stopped),
        CollectionCommand::Backup(arguments) => backup(arguments, stopped),
    }
}

fn create(arguments: &CollectionCreate) -> Result<Outcome> {
    let vectors = VectorType { element: arguments.element, dimensions: arguments.dimensions };
    let (metric, ids) = (arguments.metric, arguments.ids);
    let index = resolve::index_options(&arguments.shape, arguments.seed.seed)?;
    let attributes = arguments.columns.iter().map(|text| text.parse()).collect::<Result<Vec<Attribute>>>()?;
    let options = CollectionOptions { vectors, metric, ids, attributes, index };
    Collection::create(&resolve::own_context(), &arguments.folder, &options)?;
    Ok(Outcome::Done)
}

fn write(arguments: &CollectionWrite, stopped: &Stopped) -> Result<Outcome> {
    let CollectionWrite { folder, delete, delete_where, insert, upsert, resources, .. } = arguments;
    if delete.is_none() && delete_where.is_none() && insert.is_empty() && upsert.is_empty() {
        return Err(Error::option("nothing to write: give --insert, --upsert, --delete or --delete-where"));
    }
    let condition = delete_where.as_deref().map(Condition::parse).transpose()?;
    let context = resolve::context(resources, stopped)?;
    let (all, now) = write_all(&context, arguments, condition.as_ref(), arguments.durability)?;
    let memory = context.memory();
    drop(context); // ends the progress bar
    // The sequence number is the result of this command, so `--quiet` does not apply to it.
    print(&format!("{}\n", all.sequence))?;
    if !resources.quiet.quiet {
        let WriteReport { rows, deleted, missing, .. } = all;
        let [rows, deleted] = [rows, deleted].map(|count| format_count(count, "row"));
        eprintln!(
            "{}: {rows} written, {deleted} deleted or replaced; {} now",
            folder.display(),
            format_count(now, "row")
        );
        say_missing(missing);
        print_memory(&memory);
    }
    Ok(memory_verdict(&memory))
}

/// Deletes, inserts and upserts the rows of a command. Returns the report of the write, and the number of rows after
/// it.
fn write_all(
    context: &Context,
    arguments: &CollectionWrite,
    condition: Option<&Condition>,
    durability: Durability,
) -> Result<(WriteReport, u64)> {
    let CollectionWrite { folder, delete, insert, upsert, columns, .. } = arguments;
    // All sources are opened before anything is written.
    let open = |names: &[String]| (!names.is_empty()).then(|| resolve::source(context, names, columns)).transpose();
    let (insert, upsert) = (open(insert)?, open(upsert)?);
    let [insert, upsert] = [&insert, &upsert].map(|source| source.as_deref().map(|source| source as &dyn VectorSource));
    let sources: Vec<_> = [insert, upsert].into_iter().flatten().collect();
    let context = &Collection::context_of_write(context, folder, &sources);
    let collection = Collection::open(context, folder)?;
    let ids = delete.as_ref().map(|file| ids_of(file, collection.manifest().ids)).transpose()?;
    let write = Write { delete: ids.as_ref(), insert, upsert };
    let all = collection.write_all(&write, condition, durability)?;
    let rows = collection.facts().rows;
    // The collection is closed here, since a destructor could not report an error of the log.
    collection.close()?;
    Ok((all, rows))
}

fn merge(arguments: &CollectionMerge, stopped: &Stopped) -> Result<Outcome> {
    let CollectionMerge { folder, method, temporary, resources } = arguments;
    let mut context = resolve::temporary(resolve::context(resources, stopped)?, temporary)?;
    let method = method.parse()?;
    context = Collection::context_of_merge(&context, folder);
    let collection = Collection::open(&context, folder)?;
    let merged = collection.merge_by(&context, method)?;
    let (rows, seconds) = (merged.rows, merged.seconds);
    collection.close()?;
    let memory = context.memory();
    drop(context); // ends the progress bar
    if !resources.quiet.quiet {
        eprintln!("{}: {} in the index on disk; merged in {seconds:.1} s", folder.display(), format_count(rows, "row"));
        print_memory(&memory);
    }
    Ok(memory_verdict(&memory))
}

fn snapshot(arguments: &CollectionSnapshot, stopped: &Stopped) -> Result<Outcome> {
    let CollectionSnapshot { folder, output, replace, resources } = arguments;
    let mut context = resolve::context(resources, stopped)?;
    resolve::check_files(&context, &[folder.display().to_string()], &[("-o", output)])?;
    let target = Target::File { path: output.clone(), force: replace.force };
    context = Collection::context_of_snapshot(&context, folder);
    // Another process may write to the collection meanwhile. The snapshot is of the state at this moment.
    let collection = Collection::open_read_only(&context, folder)?;
    let written = target.write_vectors(&context, &collection.snapshot())?;
    let sequence = collection.facts().sequence;
    drop(collection);
    let memory = context.memory();
    drop(context); // ends the progress bar
    if !resources.quiet.quiet {
        let (rows, bytes) = (format_count(written.rows, "row"), format_bytes(written.bytes));
        eprintln!("{}: {rows} as of write {sequence}, {bytes}", output.display());
        print_memory(&memory);
    }
    Ok(memory_verdict(&memory))
}

fn backup(arguments: &CollectionBackup, stopped: &Stopped) -> Result<Outcome> {
    let CollectionBackup { folder, copy, replace, resources } = arguments;
    let context = resolve::context(resources, stopped)?;
    resolve::check_outputs(&context, &[folder.display().to_string()], &[("the backup", copy)])?;
    let copied = Collection::backup(&context, folder, copy, replace.force)?;
    let memory = context.memory();
    drop(context); // ends the progress bar
    if !resources.quiet.quiet {
        let (rows, bytes, sequence) = (format_count(copied.rows, "row"), format_bytes(copied.bytes), copied.sequence);
        eprintln!("{}: {rows} as of write {sequence}, {bytes} copied and verified", copy.display());
        print_memory(&memory);
    }
    Ok(memory_verdict(&memory))
}

/// Manifest and statistics of a collection.
#[derive(Serialize)]
struct CollectionInfo<M, S> {
    #[serde(flatten)]
    manifest: M,
    stats: S,
}

/// Prints the manifest and statistics of a collection.
pub(super) fn info(folder: &Path, json: bool) -> Result<Outcome> {
    let context = resolve::own_context();
    let collection = Collection::open_read_only(&context, folder)?;
    let info = match json {
        true => manifest_as_json(&CollectionInfo { manifest: collection.manifest(), stats: collection.statistics()? })?,
        false => describe(&collection)?,
    };
    print(&info)?;
    Ok(Outcome::Done)
}

fn describe(collection: &Collection) -> Result<String> {
    let (manifest, stats) = (collection.manifest(), collection.statistics()?);
    let facts = stats.facts;
    let of_attribute = |Attribute { name, kind }: &Attribute| (name.clone(), kind.to_string());
    let columns: Vec<_> = manifest.attributes.iter().map(of_attribute).collect();
    let lines = [
        format!(
            "vectors      {} of {} x {}",
            format_number(facts.rows),
            manifest.vectors.dimensions,
            manifest.vectors.element
        ),
        format!("ids          {}", kind_of_ids(manifest.ids)),
        format!("metric       {}", manifest.metric),
        format!("last record  {} of the log", facts.sequence),
        format!(
            "unmerged     {}, {} of memory",
            format_count(facts.unmerged, "row"),
            format_bytes(stats.unmerged_bytes)
        ),
        format!(
            "deleted      {} deleted or replaced, about {} on disk until the next merge",
            format_count(facts.deleted, "row"),
            format_bytes(stats.dead_bytes)
        ),
        format!("index        {} of {}", format_bytes(stats.index_bytes), format_count(manifest.merged_rows, "row")),
        format!(
            "graph        {} neighbors at most, of {} candidates, alpha {}",
            manifest.degree, manifest.build_list, manifest.alpha
        ),
        format!("pages        of {}", format_bytes(manifest.page_bytes)),
        format!("codes        {} of a vector, in memory", format_count(manifest.code_bytes as u64, "byte")),
        format!("log          {} in {}", format_bytes(facts.log_bytes), format_count(facts.log_files as u64, "file")),
    ];
    Ok(lines.map(|line| line + "\n").concat() + &columns_in_words(&columns))
}

/// Reads every byte of a collection.
pub(super) fn verify(context: Context, folder: &Path, quiet: bool) -> Result<Outcome> {
    let report = Collection::verify(&context, folder)?;
    drop(context); // ends the progress bar
    if let Some(damaged) = report.index.as_ref().filter(|index| !index.is_sound()) {
        let count = print_damages(&damaged.damages, damaged.damage_count);
        let said = format!("{} is damaged in {count} of its index; restore it from a backup", folder.display());
        return Err(Error::corrupt(said));
    }
    if !quiet {
        let cut =
            if report.facts.log_was_cut { "; it ends in an incomplete write that was never acknowledged" } else { "" };
        let (rows, log) = (format_count(report.facts.rows, "row"), format_bytes(report.facts.log_bytes));
        let left = "from an interrupted write or merge; it is harmless";
        let others = unnamed("the collection", left, &report.leftovers, &report.strangers);
        print(&format!("sound: all checksums match, {rows}, {log} of log{cut}\n{others}"))?;
    }
    Ok(Outcome::Done)
}
