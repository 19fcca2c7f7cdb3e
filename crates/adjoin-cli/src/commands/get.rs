use adjoin::{ClosedFolder, Folder, Result, Target, format_bytes, format_count};

use super::ids::ids_of;
use super::memory::{memory_verdict, print_memory};
use crate::Outcome;
use crate::args::Get;
use crate::resolve;
use crate::signals::Stopped;

pub(crate) fn get(arguments: &Get, stopped: &Stopped) -> Result<Outcome> {
    let Get { folder, ids, output, on_missing, replace, resources } = arguments;
    let context = resolve::context(resources, stopped)?;
    let target = Target::File { path: output.clone(), force: replace.force };
    Folder::check_rows_target(&target)?;
    resolve::check_files(&context, &[folder.display().to_string()], &[("-o", output)])?;
    Target::check_free(&*context.device, output, replace.force)?;
    // The manifest gives the type of the ids and the memory that opening takes.
    let closed = ClosedFolder::read(&context, folder)?;
    let wanted = ids_of(ids, closed.ids())?;
    let context = closed.fetching_context(&context, &wanted)?;
    let opened = closed.open(&context)?;
    let run = opened.fetching_run(&context, &wanted)?;
    let found = opened.find(&run, &wanted)?;
    // Checked before the file is created, so that no output is left if an id is missing.
    found.check_missing(&wanted, *on_missing)?;
    let (written, missing) = (found.write(&run, &target)?, found.missing().len() as u64);
    drop(found);
    drop((run, opened));
    let memory = context.memory();
    drop(context); // ends the progress bar
    if !resources.quiet.quiet {
        let skipped =
            if missing > 0 { format!("; {} have no row", format_count(missing, "id")) } else { String::new() };
        let (rows, bytes) = (format_count(written.rows, "row"), format_bytes(written.bytes));
        eprintln!("{}: {rows}, {bytes}{skipped}", output.display());
        print_memory(&memory);
    }
    Ok(memory_verdict(&memory))
}
