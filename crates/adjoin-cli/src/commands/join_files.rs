//! The files that a join writes.

use std::path::Path;

use adjoin::{Context, Result, TableFormat, Target};

use crate::args::Join;
use crate::resolve;

/// Refuses output files that exist or would replace inputs, before any work.
pub(super) fn check_files(context: &Context, arguments: &Join) -> Result<()> {
    let Join { inputs, other, output, .. } = arguments;
    let results = resolve::targets(output);
    let results = results.iter().map(|(option, target)| (*option, target.as_ref().and_then(Target::path)));
    let others = [("--stats", &output.statistics.stats), ("--trace", &output.tracing.trace)];
    let others = others.map(|(option, path)| (option, path.as_deref()));
    let outputs = results.chain(others);
    let outputs: Vec<(&str, &Path)> = outputs.filter_map(|(option, path)| Some((option, path?))).collect();
    let inputs = [&inputs[..], &other.with, &other.new].concat();
    resolve::check_files(context, &inputs, &outputs)?;
    for (option, path) in outputs {
        // Only results are tables. Statistics and traces have formats of their own.
        if matches!(option, "-o" | "--kept") {
            TableFormat::of(path)?;
        }
        Target::check_free(&*context.device, path, output.replace.force)?;
    }
    Ok(())
}
