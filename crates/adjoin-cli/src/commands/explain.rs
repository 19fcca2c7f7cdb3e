use adjoin::error::Result;
use adjoin::join::{JoinOptions, prepare};
use adjoin::options::parse_bytes;
use adjoin::store::Store;

use crate::Outcome;
use crate::args::Explain;
use crate::print::print;
use crate::resolve;
use crate::signals::Stopped;

pub(crate) fn explain(arguments: &Explain, stopped: &Stopped) -> Result<Outcome> {
    let context = resolve::context(&arguments.resources, stopped)?;
    let predicate = resolve::predicate(&arguments.threshold)?;
    let strategy = resolve::strategy(arguments.strategy.as_deref(), &["rule"])?;
    let cache_bytes = arguments.cache.as_deref().map(parse_bytes).transpose()?;
    let options = JoinOptions { rule: strategy.rule, cache_bytes, ..JoinOptions::exact(predicate) };
    let store = Store::open(&context, &arguments.store)?;
    let prepared = prepare(&context, &store, &options, true)?;
    drop(context); // ends the progress bar
    print(&prepared.explain(&store).to_string())?;
    Ok(Outcome::Done)
}
