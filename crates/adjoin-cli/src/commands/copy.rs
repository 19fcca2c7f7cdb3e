use adjoin::{Folder, Result, device::Location, format_bytes, format_count};

use super::memory::{memory_verdict, print_memory};
use crate::Outcome;
use crate::args::Copy;
use crate::resolve;
use crate::signals::Stopped;

pub(crate) fn copy(arguments: &Copy, stopped: &Stopped) -> Result<Outcome> {
    let Copy { source, target, limit, replace, quiet } = arguments;
    let context = resolve::limited_context(limit, None, quiet, stopped)?;
    if !Location::is_remote(target) {
        resolve::check_outputs(&context, &[source.display().to_string()], &[("the copy", target)])?;
    }
    let copied = Folder::copy(&context, source, target, replace.force)?;
    let memory = context.memory();
    drop(context); // ends the progress bar
    if !quiet.quiet {
        let (files, bytes) = (format_count(copied.files, "file"), format_bytes(copied.bytes));
        eprintln!("{}: {} copied and verified, {bytes} in {files}", target.display(), copied.kind);
        print_memory(&memory);
    }
    Ok(memory_verdict(&memory))
}
