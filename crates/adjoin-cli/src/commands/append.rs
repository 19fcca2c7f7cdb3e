use adjoin::{AppendReport, Result, Store, VectorSource, format_bytes, format_count, format_number};

use super::ids::{ids_of, say_missing};
use super::memory::{memory_verdict, print_memory};
use crate::Outcome;
use crate::args::Append;
use crate::resolve;
use crate::signals::Stopped;

pub(crate) fn append(arguments: &Append, stopped: &Stopped) -> Result<Outcome> {
    let Append { store, new, delete, columns, temporary, resources, .. } = arguments;
    let context = resolve::temporary(resolve::context(resources, stopped)?, temporary)?;
    // The append replaces files of the store, so a source must not be one of them.
    resolve::check_outputs(&context, new, &[("the store", store)])?;
    let context = Store::append_context(&context, store)?;
    // The ids of the store decide whether lines are read as texts or as numbers.
    let kind = Store::open(&context, store)?.manifest().ids;
    let delete = delete.as_deref().map(|file| ids_of(file, kind)).transpose()?;
    let source = (!new.is_empty()).then(|| resolve::source(&context, new, columns)).transpose()?;
    let wanted = adjoin::Append {
        new: source.as_deref().map(|source| source as &dyn VectorSource),
        delete: delete.as_ref(),
        on_bad: arguments.bad_rows.on_bad,
        on_duplicate_id: arguments.on_duplicate_id,
    };
    let report = Store::append(&context, store, &wanted)?;
    let memory = context.memory();
    drop(context); // ends the progress bar
    if !resources.quiet.quiet {
        summarize(arguments, &report);
        print_memory(&memory);
    }
    Ok(memory_verdict(&memory))
}

fn summarize(Append { store, .. }: &Append, report: &AppendReport) {
    let [came, went] = [report.new_rows, report.removed_rows].map(|count| format_count(count, "row"));
    let (rows, read, written) =
        (report.manifest.rows, format_bytes(report.bytes_read), format_bytes(report.bytes_written));
    eprintln!("{}: {came} appended, {went} deleted; {} now", store.display(), format_number(rows));
    eprintln!("{read} read and {written} written in {:.1} s", report.seconds);
    if report.spill_bytes > 0 {
        eprintln!("{} written to temporary files", format_bytes(report.spill_bytes));
    }
    if report.skipped_rows > 0 {
        eprintln!("{} without a usable vector skipped", format_count(report.skipped_rows, "row"));
    }
    say_missing(report.missing_ids);
}
