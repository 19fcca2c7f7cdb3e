use adjoin::error::Result;
use adjoin::options::format_bytes;
use adjoin::store;

use crate::Outcome;
use crate::args::Build;
use crate::resolve;
use crate::signals::Stopped;

pub(crate) fn build(arguments: &Build, stopped: &Stopped) -> Result<Outcome> {
    let context = resolve::context(&arguments.resources, stopped)?;
    let strategy = resolve::strategy(arguments.strategy.as_deref(), &["centers"])?;
    let metric = arguments.metric.parse()?;
    let options = resolve::build_options(&arguments.store, metric, strategy.centers, arguments.force)?;
    let source = resolve::source(&context, &arguments.sources, &arguments.store.columns)?;
    let report = store::build(&context, &*source, &arguments.output, &options)?;
    drop(context); // ends the progress bar
    if !arguments.resources.quiet {
        let manifest = &report.manifest;
        eprintln!(
            "{}: {} vectors of {} x {} in {} buckets, {} written in {:.1} s",
            arguments.output.display(),
            manifest.rows,
            manifest.vectors.dimensions,
            manifest.vectors.element,
            manifest.buckets,
            format_bytes(report.bytes_written),
            report.seconds,
        );
        if manifest.skipped_rows > 0 {
            eprintln!("{} rows had no usable vector and were skipped", manifest.skipped_rows);
        }
    }
    Ok(Outcome::Done)
}
