use std::path::Path;

use adjoin::{
    Context, Element, Error, GroundtruthOptions, GroundtruthTarget, Metric, PairSchema, PairWriter, Predicate, Result,
    format_count, format_number,
};

use crate::Outcome;
use crate::args::{Groundtruth, TruthFiles};
use crate::resolve;
use crate::signals::Stopped;

pub(crate) fn groundtruth(arguments: &Groundtruth, stopped: &Stopped) -> Result<Outcome> {
    let context = resolve::context(&arguments.resources, stopped)?;
    match given(&arguments.files, arguments.replace.force)? {
        Some((files, metric, sought)) => neighbors(context, arguments, &files, metric, sought),
        None => pairs(context, arguments),
    }
}

/// Finds all pairs of a source within a threshold.
fn pairs(context: Context, arguments: &Groundtruth) -> Result<Outcome> {
    let predicate = Predicate::of(arguments.threshold.eps, arguments.threshold.min_similarity)?;
    let source = resolve::source(&context, &arguments.sources, &arguments.columns)?;
    let output = arguments.output.as_deref().unwrap_or_default(); // clap requires the option
    let target = resolve::target(output, arguments.replace.force, false);
    let outputs: Vec<_> = target.path().map(|path| ("-o", path)).into_iter().collect();
    resolve::check_outputs(&context, &arguments.sources, &outputs)?;
    let schema = PairSchema { ids: [source.info().ids; 2], metric: predicate.metric(), of_two_sets: false };
    let sink = Box::new(PairWriter::create(&context, &target, schema)?);
    let options = GroundtruthOptions { predicate, sample: arguments.sample, seed: arguments.seed.seed };
    let report = options.run(&context, &*source, sink)?;
    drop(context); // ends the progress bar
    if !arguments.resources.quiet.quiet {
        let (pairs, rows) = (format_count(report.pairs, "pair"), format_count(report.rows, "row"));
        let place = target.path().map_or_else(String::new, |path| format!(" written to {}", path.display()));
        eprintln!(
            "{pairs}{place}: {rows} compared with all, distances computed: {}",
            format_number(report.verified_pairs)
        );
    }
    Ok(Outcome::Done)
}

/// Finds the neighbors of queries in a base.
fn neighbors(
    context: Context,
    arguments: &Groundtruth,
    files: &adjoin::TruthFiles<'_>,
    metric: Metric,
    sought: GroundtruthTarget,
) -> Result<Outcome> {
    let inputs = [Some(files.base), Some(files.queries), files.tags].into_iter().flatten();
    let inputs: Vec<String> = inputs.map(|path| path.display().to_string()).collect();
    resolve::check_files(&context, &inputs, &[("--gt_file", files.truth)])?;
    let report = files.compare(&context, metric, sought)?;
    drop(context); // ends the progress bar
    if !arguments.resources.quiet.quiet {
        let (found, rows) = (format_number(report.found), format_count(report.rows, "row"));
        let queries = format_number(report.queries);
        eprintln!("queries: {queries}, each compared with {rows}; {found} found, written to {}", files.truth.display());
    }
    Ok(Outcome::Done)
}

/// Returns the request of DiskANN's flags, if given; clap checks that the flags are complete.
fn given(arguments: &TruthFiles, force: bool) -> Result<Option<(adjoin::TruthFiles<'_>, Metric, GroundtruthTarget)>> {
    let paths = [&arguments.base_file, &arguments.query_file, &arguments.gt_file].map(|path| path.as_deref());
    let [Some(base), Some(queries), Some(truth)]: [Option<&Path>; 3] = paths else { return Ok(None) };
    let element = arguments.data_type.map_or(Element::F32, Element::from);
    let metric = arguments.dist_fn.map_or(Metric::L2, Metric::from);
    let sought = match (arguments.count, arguments.range_threshold) {
        (Some(count), _) => GroundtruthTarget::Nearest(count),
        (None, Some(most)) => GroundtruthTarget::Within(most, arguments.range_form),
        (None, None) => {
            return Err(Error::option(
                "give --K for the K nearest rows, or --range_threshold for all rows within a distance",
            ));
        }
    };
    let files = adjoin::TruthFiles { base, queries, element, tags: arguments.tags_file.as_deref(), truth, force };
    Ok(Some((files, metric, sought)))
}
