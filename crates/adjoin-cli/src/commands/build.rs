use adjoin::{BuildOptions, Result, Store, format_bytes, format_count, format_number};

use super::memory::{memory_verdict, print_memory};
use crate::Outcome;
use crate::args::Build;
use crate::resolve;
use crate::signals::Stopped;

pub(crate) fn build(arguments: &Build, stopped: &Stopped) -> Result<Outcome> {
    let context = resolve::context(&arguments.resources, stopped)?;
    let context = resolve::temporary(context, &arguments.temporary)?;
    // Only the same command may continue from a checkpoint, so the checkpoint records the options of the source.
    let resume = arguments.resume.then(|| resolve::source_options(&arguments.store.columns)).transpose()?;
    let options = BuildOptions {
        attributes: arguments.columns.names.clone(),
        sort_by: arguments.sort_by.clone(),
        force: arguments.replace.force,
        resume,
        ..resolve::build_options(&arguments.store, arguments.metric)
    };
    resolve::check_outputs(&context, &arguments.sources, &[("-o", &arguments.output)])?;
    let source = resolve::source(&context, &arguments.sources, &arguments.store.columns)?;
    let report = Store::build(&context, &*source, &arguments.output, &options)?;
    let memory = context.memory();
    drop(context); // ends the progress bar
    if !arguments.resources.quiet.quiet {
        let manifest = &report.manifest;
        let (what, bytes) = (manifest.in_words(), format_bytes(report.bytes_written));
        eprintln!("{}: {what}, {bytes} written in {:.1} s", arguments.output.display(), report.seconds.total);
        if let Some(resume) = report.resume.filter(|resume| resume.runs > 1) {
            let runs = resume.runs;
            let before = format_count(resume.rows_before, "row");
            let [again, all] = [resume.center_distances_max, report.center_distances].map(format_number);
            eprintln!(
                "run {runs} of this build: {before} assigned before, at most {again} of {all} distances computed again"
            );
        }
        let seconds = report.seconds;
        eprintln!(
            "checked in {:.1} s, trained in {:.1} s, assigned in {:.1} s ({:.1} s waiting for the source), \
             wrote buckets in {:.1} s ({:.1} s reading back)",
            seconds.survey, seconds.train, seconds.assign, seconds.assign_waited, seconds.write, seconds.write_waited,
        );
        if report.spill_bytes > 0 {
            eprintln!("{} written to temporary files", format_bytes(report.spill_bytes));
        }
        if manifest.skipped_rows > 0 {
            eprintln!("{} without a usable vector skipped", format_count(manifest.skipped_rows, "row"));
        }
        print_memory(&memory);
    }
    Ok(memory_verdict(&memory))
}
