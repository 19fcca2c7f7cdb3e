use adjoin::error::Result;
use adjoin::options::{format_count, format_number};
use adjoin::predicate::Predicate;
use adjoin::sink::{PairSchema, PairWriter};
use adjoin::truth::{GroundtruthOptions, groundtruth as find};

use crate::Outcome;
use crate::args::Groundtruth;
use crate::resolve;
use crate::signals::Stopped;

pub(crate) fn groundtruth(arguments: &Groundtruth, stopped: &Stopped) -> Result<Outcome> {
    let context = resolve::context(&arguments.resources, stopped)?;
    let predicate = Predicate::of(arguments.threshold.eps, arguments.threshold.min_similarity)?;
    let source = resolve::source(&context, &arguments.sources, &arguments.columns)?;
    let target = resolve::target(&arguments.output, arguments.force, false);
    let outputs: Vec<_> = target.path().map(|path| ("-o", path)).into_iter().collect();
    resolve::check_outputs(&context, &arguments.sources, &outputs)?;
    let schema = PairSchema { ids: source.info().ids, metric: predicate.metric() };
    let sink = Box::new(PairWriter::create(&context, &target, schema)?);
    let options = GroundtruthOptions { predicate, sample: arguments.sample, seed: arguments.seed };
    let report = find(&context, &*source, &options, sink)?;
    drop(context); // ends the progress bar
    if !arguments.resources.quiet {
        let (pairs, rows) = (format_count(report.pairs, "pair"), format_count(report.rows, "row"));
        let place = target.path().map_or_else(String::new, |path| format!(" written to {}", path.display()));
        eprintln!(
            "{pairs}{place}: {rows} compared with all, distances computed: {}",
            format_number(report.verified_pairs)
        );
    }
    Ok(Outcome::Done)
}
