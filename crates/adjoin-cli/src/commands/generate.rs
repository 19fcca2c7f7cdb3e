use std::path::Path;

use adjoin::{Context, Error, Generated, Result, Target, VectorType, format_bytes, format_count};

use crate::Outcome;
use crate::args::Gen;
use crate::progress::with_progress;
use crate::signals::Stopped;

pub(crate) fn generate(arguments: &Gen, stopped: &Stopped) -> Result<Outcome> {
    let mut context = with_progress(Context::default(), &arguments.quiet);
    context.cancel = stopped.cancel.clone();
    let vectors = VectorType { element: arguments.element, dimensions: arguments.dimensions };
    let what = Generated { rows: arguments.rows, vectors, hardness: arguments.hardness, seed: arguments.seed.seed };
    let target = Target::File { path: arguments.output.clone(), force: arguments.replace.force };
    Target::check_free(&*context.device, &arguments.output, arguments.replace.force)?;
    check_room(&context, &what, &arguments.output)?;
    let bytes = what.write(&context, &target)?;
    drop(context); // ends the progress bar
    if !arguments.quiet.quiet {
        let vectors = format_count(arguments.rows, "vector");
        eprintln!("{}: {vectors}, {}", arguments.output.display(), format_bytes(bytes));
    }
    Ok(Outcome::Done)
}

/// Refuses vectors that do not fit on the disk.
fn check_room(context: &Context, what: &Generated, path: &Path) -> Result<()> {
    // The product saturates, since a mistyped number of rows may make it exceed 64 bits.
    let needed = what.rows.saturating_mul(what.vectors.bytes() as u64);
    let free = context.device.free_bytes(Target::parent_of(path))?;
    if needed <= free {
        return Ok(());
    }
    Err(Error::device(format!(
        "{} needs {}, but its disk has {} free; give fewer --rows, or another folder",
        path.display(),
        format_bytes(needed),
        format_bytes(free)
    )))
}
