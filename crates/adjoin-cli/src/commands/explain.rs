use adjoin::error::Result;
use adjoin::join::{Aim, JoinOptions, neighbour_curve, prepare};
use adjoin::options::{Metric, parse_bytes};
use adjoin::predicate::Predicate;
use adjoin::store::Store;

use crate::Outcome;
use crate::args::Explain;
use crate::print::print;
use crate::resolve::{self, Strategy};
use crate::signals::Stopped;

pub(crate) fn explain(arguments: &Explain, stopped: &Stopped) -> Result<Outcome> {
    let context = resolve::context(&arguments.resources, stopped)?;
    let context = resolve::temporary(context, &arguments.temporary)?;
    let predicate = Predicate::of(arguments.threshold.eps, arguments.threshold.min_similarity)?;
    let strategy = resolve::strategy(arguments.strategy.as_deref(), &["rule", "threshold", "order", "cache"])?;
    let cache_bytes = arguments.cache.as_deref().map(parse_bytes).transpose()?;
    let aim =
        if arguments.no_calibrate { Aim::Every } else { Aim::of(arguments.wanted.recall, arguments.wanted.exact)? };
    let (seed, Strategy { rule, t, order, policy, .. }) = (arguments.seed, strategy);
    let options = JoinOptions { predicate, aim, rule, t, seed, order, policy, cache_bytes };
    let store = Store::open(&context, &arguments.store)?;
    let curve = neighbour_curve(&context, &store, arguments.seed)?; // first: a plan holds the memory of its run
    let prepared = prepare(&context, &store, &options, true)?;
    drop(context); // ends the progress bar
    let recall = resolve::recall_in_words(prepared.recall());
    let name = match store.manifest().metric {
        Metric::L2 => "--eps",
        Metric::Cosine => "--min-similarity",
    };
    let point = |(neighbours, threshold): &(f64, f64)| format!("             {neighbours:>6}  {name} {threshold:.4}\n");
    let curve: String = curve.iter().map(point).collect();
    let plan = prepared.explain(&store);
    print(&format!("{plan}recall       {recall}\nneighbours   of a vector on average, by threshold, about:\n{curve}"))?;
    Ok(Outcome::Done)
}
