//! Joins with rules, orders and caches to compare the engine's choices with.
//!
//! `join STORE [NAME=VALUE]...` joins a store with itself, or with the store named by `with`, and writes the statistics
//! of the run. Names:
//! - `eps` or `similarity`; `recall` (default 0.95, `1` for every pair); `seed`
//! - `rule`, and `threshold` to set its threshold by hand
//! - `order`: tree, block-nested, id, gorder, gorder-out or rcm; `lead`: left or right
//! - `caching`: belady, lru, lfu or fifo; `cache` bytes; `memory`; `threads`
//! - `stats`: a JSON file of the statistics; `counts`: a file of the number of neighbors of each row; `trace`: a file
//!   of all file operations
//!
//! `build SOURCE STORE [NAME=VALUE]...` builds a store with `centers` trained or random, `buckets`, `seed`, `memory`.

mod caches;
mod reorder;

use std::path::Path;
use std::str::FromStr;
use std::sync::Arc;

use adjoin::context::Context;
use adjoin::device::Recorder;
use adjoin::error::{Error, Result};
use adjoin::join::{self, JoinEffort, JoinOptions, Prepared};
use adjoin::load::Sets;
use adjoin::options::parse_bytes;
use adjoin::output::Target;
use adjoin::plan::{Lead, Order, Policy};
use adjoin::predicate::Predicate;
use adjoin::sink::{Counts, Discard, PairSink};
use adjoin::source::{self, SourceOptions};
use adjoin::store::{self, BuildOptions, Centers, Store};

use self::caches::CachePolicy;
use self::reorder::BucketOrder;

/// Arguments of the form NAME=VALUE.
struct Named<'a>(&'a [String]);

impl<'a> Named<'a> {
    fn text(&self, name: &str) -> Option<&'a str> {
        self.0.iter().find_map(|word| word.strip_prefix(name)?.strip_prefix('='))
    }

    fn value<T: FromStr>(&self, name: &str) -> Result<Option<T>> {
        let parse = |text: &str| text.parse().map_err(|_| Error::option(format!("{name}={text} is no value of that")));
        self.text(name).map(parse).transpose()
    }

    fn context(&self) -> Result<Context> {
        Context::default().with_resources(self.text("memory"), self.value("threads")?)
    }
}

/// An order of tasks, of the engine or of this module.
enum TaskOrder {
    Engine(Order),
    Lab(BucketOrder),
}

/// A cache policy, of the engine or of this module.
enum Caching {
    Engine(Policy),
    Lab(CachePolicy),
}

/// The requested order and cache policy.
struct Ways {
    order: Option<TaskOrder>,
    caching: Option<Caching>,
}

impl Ways {
    fn of(named: &Named<'_>) -> Result<Self> {
        let order = |name: &str| match name.parse() {
            Ok(order) => Ok(TaskOrder::Engine(order)),
            Err(_) => name.parse().map(TaskOrder::Lab),
        };
        let caching = |name: &str| match name {
            "lfu" => Ok(Caching::Lab(CachePolicy::Lfu)),
            "fifo" => Ok(Caching::Lab(CachePolicy::Fifo)),
            _ => name.parse().map(Caching::Engine),
        };
        Ok(Self {
            order: named.text("order").map(order).transpose()?,
            caching: named.text("caching").map(caching).transpose()?,
        })
    }

    /// Returns the plan with the order and the steps of this module, if they were requested.
    fn applied(&self, context: &Context, sets: Sets<'_>, prepared: Prepared, lead: Lead) -> Result<Prepared> {
        let (order, policy) = match self {
            Self { order: Some(TaskOrder::Lab(order)), caching: Some(Caching::Lab(policy)) } => {
                (Some(*order), Some(*policy))
            }
            Self { order: Some(TaskOrder::Lab(order)), .. } => (Some(*order), None),
            Self { caching: Some(Caching::Lab(policy)), .. } => (None, Some(*policy)),
            _ => return Ok(prepared),
        };
        let (capacity, sizes) = prepared.cache();
        let sizes = sizes.memory.clone();
        let name = order.map_or_else(|| prepared.explain(sets).order, |order| order.name().to_owned());
        let sort = |tasks: &mut [adjoin::plan::Task]| {
            if let Some(order) = order {
                order.sort(tasks, &sizes, capacity, lead);
            }
        };
        let steps = |tasks: &[adjoin::plan::Task]| policy.map(|policy| caches::steps(tasks, &sizes, capacity, policy));
        let plan = prepared.plan(sets).reordered(&name, sort, steps);
        drop(prepared); // frees the memory of its run
        join::resume(context, sets, plan)
    }
}

pub(crate) fn run(arguments: &[String]) -> Result<()> {
    let [store, named @ ..] = arguments else { return Err(Error::option("give STORE [NAME=VALUE]...")) };
    let named = Named(named);
    let mut context = named.context()?;
    let recorder = named.text("trace").map(|path| {
        let recorder = Recorder::create(context.device.clone(), Path::new(path));
        recorder.map(Arc::new).map_err(|error| Error::device(format!("{path}: {error}")))
    });
    let recorder = recorder.transpose()?;
    if let Some(recorder) = &recorder {
        context.device = recorder.clone();
    }
    joined(&context, Path::new(store), &named)?;
    match recorder {
        Some(recorder) => recorder.finish().map_err(|error| Error::device(error.to_string())),
        None => Ok(()),
    }
}

fn joined(context: &Context, store: &Path, named: &Named<'_>) -> Result<()> {
    let store = Store::open(context, store)?;
    let other = named.text("with").map(|other| Store::open(context, Path::new(other))).transpose()?;
    let sets = match &other {
        Some(other) => Sets::between(&store, other),
        None => Sets::from(&store),
    };
    let aim = match named.value("recall")? {
        Some(1.0) => JoinEffort::Every,
        Some(recall) => JoinEffort::recall(recall)?,
        None => JoinEffort::Unsaid,
    };
    let ways = Ways::of(named)?;
    let lead: Option<Lead> = named.text("lead").map(str::parse).transpose()?;
    let options = JoinOptions {
        rule: named.text("rule").map(str::parse).transpose()?,
        t: named.value("threshold")?,
        seed: named.value("seed")?.unwrap_or(1),
        order: if let Some(TaskOrder::Engine(order)) = ways.order { Some(order) } else { None },
        lead,
        policy: if let Some(Caching::Engine(policy)) = ways.caching { Some(policy) } else { None },
        cache_bytes: named.text("cache").map(parse_bytes).transpose()?,
        ..JoinOptions::approximate(Predicate::of(named.value("eps")?, named.value("similarity")?)?, aim)
    };
    let target = named.text("counts").map(|path| Target::File { path: path.into(), force: true });
    let beside = join::least_memory(sets, &options)?;
    let sink: Box<dyn PairSink + '_> = match &target {
        Some(target) => Box::new(Counts::create(context, sets, Some(target), beside)?),
        None => Box::new(Discard),
    };
    let prepared = join::prepare(context, sets, &options, false)?;
    let prepared = ways.applied(context, sets, prepared, lead.unwrap_or(Lead::Left))?;
    let statistics = join::join(context, sets, &prepared, sink)?;
    let text = serde_json::to_string_pretty(&statistics).expect("statistics are numbers and text");
    match named.text("stats") {
        Some(path) => std::fs::write(path, text).map_err(|error| Error::device(format!("{path}: {error}"))),
        None => {
            println!("{text}");
            Ok(())
        }
    }
}

pub(crate) fn build(arguments: &[String]) -> Result<()> {
    let [files, folder, named @ ..] = arguments else {
        return Err(Error::option("give SOURCE STORE [NAME=VALUE]..."));
    };
    let named = Named(named);
    let context = named.context()?;
    let centers = match named.text("centers") {
        None => None,
        Some("trained") => Some(Centers::Trained),
        Some("random") => Some(Centers::Random),
        Some(_) => return Err(Error::option("centers are trained or random")),
    };
    let usual = BuildOptions::default();
    let (buckets, seed) = (named.value("buckets")?, named.value("seed")?.unwrap_or(usual.seed));
    let options = BuildOptions { centers, buckets, seed, force: true, ..usual };
    let source = source::open(&context, std::slice::from_ref(files), &SourceOptions::default())?;
    store::build(&context, &*source, Path::new(folder), &options).map(drop)
}
