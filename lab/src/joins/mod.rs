//! Joins with other rules, orders and caches, to compare the engine's choices with.
//!
//! `join STORE [NAME=VALUE]...` joins a store with itself, or with the store that `with` names. It writes the
//! statistics of the run. Names:
//! - `eps` or `similarity`; `recall` (default 0.95; `1` for every pair); `recall-of` (pairs-and-vectors or pairs);
//!   `seed`
//! - `rule`: union, margin-sum, or one of `crate::rules`. Without `order`, rules of `crate::rules` run in memory. With
//!   `order` and `cache`, rules for whole buckets run from disk, on one thread
//! - `threshold`: threshold of a rule of `crate::rules`, if it is not to be calibrated; `candidates`: number of nearest
//!   buckets that an arc rule considers for each bucket, which counts itself (default all)
//! - `order`: tree, block-nested, id, gorder, gorder-out or rcm; `lead`: left or right; if `lead` is given and
//!   `order` is not, the order is tree
//! - `caching`: belady, lru, lfu or fifo; `cache` in bytes; `memory`; `threads`
//! - `stats`: JSON file for the statistics; `counts`: file for the number of neighbors of each row; `trace`: file for
//!   all operations on files
//!
//! `build SOURCE STORE [NAME=VALUE]...` builds a store. Names: `centers` (trained or random); `assign` (levels, or with
//! random centers hnsw or hnsw-two); `buckets`, `seed`, `memory`, `threads`.

mod build;
mod caches;
pub(crate) mod loads;
mod reorder;

use std::path::Path;
use std::str::FromStr;
use std::sync::Arc;

use adjoin::{
    Context, Error, JoinEffort, JoinOptions, PairSink, Predicate, Result, Store, Target,
    device::Recorder,
    lab::{
        join::{self, Prepared, Sets},
        load::Buckets,
        plan::{self, CacheStart, Lead, Order, Policy, Step, Steps, Task},
        report::Stopwatch,
        sink::{Counts, Discard},
        truth::Recalls,
    },
    parse_bytes,
};
use serde_json::json;

pub(crate) use self::build::build;
use self::caches::CachePolicy;
use self::reorder::BucketOrder;
use crate::rules::{self, RuleJoin};

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

/// An order of tasks, either of the engine or of this module.
#[derive(Clone, Copy)]
enum TaskOrder {
    Engine(Order),
    Lab(BucketOrder),
}

impl TaskOrder {
    fn name(self) -> &'static str {
        match self {
            Self::Engine(order) => order.name(),
            Self::Lab(order) => order.name(),
        }
    }

    /// Sorts tasks. `sizes` has the size of each bucket in memory, in bytes. `capacity` is the number of bytes that
    /// fit in memory at the same time.
    fn sort(self, tasks: &mut [Task], sizes: &[u64], capacity: u64, lead: Lead) {
        match self {
            Self::Engine(order) => plan::sort_tasks(tasks, sizes, capacity, order, lead),
            Self::Lab(order) => order.sort(tasks, sizes, capacity, lead),
        }
    }
}

impl FromStr for TaskOrder {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self> {
        match Order::ALL.into_iter().find(|order| order.name() == name) {
            Some(order) => Ok(Self::Engine(order)),
            None => name.parse().map(Self::Lab),
        }
    }
}

/// A cache policy, either of the engine or of this module.
#[derive(Clone, Copy)]
enum Caching {
    Engine(Policy),
    Lab(CachePolicy),
}

impl Caching {
    fn steps(self, tasks: &[Task], sizes: &[u64], capacity: u64) -> Vec<Step> {
        match self {
            Self::Engine(policy) => Steps::new(tasks, sizes, CacheStart { capacity, policy }).collect(),
            Self::Lab(policy) => caches::steps(tasks, sizes, capacity, policy),
        }
    }
}

impl FromStr for Caching {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self> {
        match name {
            "lfu" => Ok(Self::Lab(CachePolicy::Lfu)),
            "fifo" => Ok(Self::Lab(CachePolicy::Fifo)),
            _ => {
                Policy::ALL.into_iter().find(|policy| policy.name() == name).map(Self::Engine).ok_or_else(|| {
                    Error::option(format!("no such cache: {name}; choose one of belady, lru, lfu, fifo"))
                })
            }
        }
    }
}

/// The requested order and cache policy. If a field is `None`, the plan of the engine is used.
struct Ways {
    order: Option<TaskOrder>,
    lead: Option<Lead>,
    caching: Option<Caching>,
}

impl Ways {
    fn of(named: &Named<'_>) -> Result<Self> {
        let lead = |name: &str| {
            let found = Lead::ALL.into_iter().find(|lead| lead.name() == name);
            found.ok_or_else(|| Error::option(format!("no set can lead by the name {name}; choose left or right")))
        };
        Ok(Self {
            order: named.text("order").map(str::parse).transpose()?,
            lead: named.text("lead").map(lead).transpose()?,
            caching: named.text("caching").map(str::parse).transpose()?,
        })
    }

    /// Returns the plan with the requested order, and with the steps of the requested cache policy.
    fn applied(&self, context: &Context, sets: Sets<'_>, prepared: Prepared) -> Result<Prepared> {
        let Self { order, lead, caching } = *self;
        if order.is_none() && lead.is_none() && caching.is_none() {
            return Ok(prepared);
        }
        let order = order.or(lead.map(|_| TaskOrder::Engine(Order::Tree)));
        let (capacity, sizes) = prepared.cache();
        let sizes = sizes.memory.clone();
        let name = order.map_or_else(|| prepared.explain(sets).order, |order| order.name().to_owned());
        let lead = lead.unwrap_or(Lead::Left);
        let sort = |tasks: &mut [Task]| {
            if let Some(order) = order {
                order.sort(tasks, &sizes, capacity, lead);
            }
        };
        // For Belady's algorithm, the engine computes the steps.
        let caching = caching.filter(|caching| !matches!(caching, Caching::Engine(Policy::Belady)));
        let steps = |tasks: &[Task]| caching.map(|caching| caching.steps(tasks, &sizes, capacity));
        let plan = prepared.plan(sets).reordered(&name, lead, sort, steps);
        drop(prepared); // frees the memory that it holds for a run
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
    let aim = aim.with_recall_of(named.text("recall-of").unwrap_or(JoinEffort::RECALL_OF[0]))?;
    let ways = Ways::of(named)?;
    let predicate = Predicate::of(named.value("eps")?, named.value("similarity")?)?;
    let seed = named.value("seed")?.unwrap_or(1);
    let rule = match named.text("rule") {
        None => None,
        Some("union") => Some(plan::Rule::Union),
        Some("margin-sum") => Some(plan::Rule::MarginSum),
        Some(rule) => {
            let (rule, t, recall): (rules::Rule, _, _) = (rule.parse()?, named.value("threshold")?, aim.target());
            let candidates = named.value("candidates")?;
            if candidates.is_some() && !rule.is_arc() {
                return Err(Error::option(format!(
                    "the rule {} has no candidates; leave out candidates=",
                    rule.name()
                )));
            }
            let of_pairs_only = matches!(aim, JoinEffort::RecallOfPairs(_));
            let join = RuleJoin { rule, predicate, recall, of_pairs_only, t, candidates, seed };
            return match ways.order {
                None => by_other_rule(context, &store, join, named),
                Some(order) => by_other_rule_from_disk(context, &store, join, order, ways.caching, named),
            };
        }
    };
    let cache_bytes = named.text("cache").map(parse_bytes).transpose()?;
    let options = JoinOptions { rule, seed, cache_bytes, ..JoinOptions::approximate(predicate, aim) };
    let target = named.text("counts").map(|path| Target::File { path: path.into(), force: true });
    let beside = join::least_memory(sets, &options)?;
    let sink: Box<dyn PairSink + '_> = match &target {
        Some(target) => Box::new(Counts::create(context, sets, Some(target), beside)?),
        None => Box::new(Discard),
    };
    let prepared = options.prepare(context, sets, false)?;
    let prepared = ways.applied(context, sets, prepared)?;
    let statistics = prepared.run(context, sets, sink)?;
    print(&serde_json::to_string_pretty(&statistics).expect("statistics are numbers and text"), named)
}

/// Joins by a rule of the laboratory in memory, and writes the statistics.
fn by_other_rule(context: &Context, store: &Store, join: RuleJoin, named: &Named<'_>) -> Result<()> {
    let rules::Joined { t, recalls, found, calibrate_seconds, plan_seconds, execute_seconds } =
        join.run(context, store)?;
    write_counts(&found, named)?;
    let seconds = [calibrate_seconds, plan_seconds, execute_seconds];
    let statistics = statistics(context, store, join, (t, &recalls), &found, seconds);
    print(&format!("{statistics:#}"), named)
}

/// Joins by a rule for whole buckets from disk, and writes the statistics.
fn by_other_rule_from_disk(
    context: &Context,
    store: &Store,
    join: RuleJoin,
    order: TaskOrder,
    caching: Option<Caching>,
    named: &Named<'_>,
) -> Result<()> {
    let capacity = named.text("cache").map(parse_bytes).transpose()?;
    let capacity =
        capacity.ok_or_else(|| Error::option("give cache=BYTES with order= and a rule of the laboratory"))?;
    let rules::Planned { t, recalls, mut tasks, calibrate_seconds, mut plan_seconds } = join.plan(context, store)?;
    let sizes: Vec<u64> = Buckets::of(store).extents().iter().map(|extent| extent.bytes(false)).collect();
    let pair = tasks.iter().map(|&(i, j)| sizes[i as usize] + if i == j { 0 } else { sizes[j as usize] }).max();
    if let Some(least) = pair.filter(|&pair| pair > capacity) {
        return Err(Error::option(format!("two buckets need {least} bytes together; give cache={least} or more")));
    }
    let mut watch = Stopwatch::start();
    order.sort(&mut tasks, &sizes, capacity, Lead::Left);
    let steps = caching.unwrap_or(Caching::Engine(Policy::Belady)).steps(&tasks, &sizes, capacity);
    plan_seconds += watch.lap();
    let found = rules::execute(context, store, join.predicate, &steps)?;
    let execute_seconds = watch.lap();
    write_counts(&found, named)?;
    let loads = steps
        .iter()
        .filter_map(|step| if let Step::Load(bucket) = step { Some(sizes[*bucket as usize]) } else { None });
    let (loads, bytes) = loads.fold((0, 0), |(loads, bytes), size| (loads + 1, bytes + size));
    let seconds = [calibrate_seconds, plan_seconds, execute_seconds];
    let mut statistics = statistics(context, store, join, (t, &recalls), &found, seconds);
    statistics["threads"] = json!(1);
    statistics["strategy"]["order"] = json!(order.name());
    statistics["io"] = json!({"cache_loads": loads, "bytes_requested": bytes});
    statistics["predicted"] =
        json!({"bytes_read": bytes, "bytes_read_min": loads::least_bytes(&tasks, &sizes, capacity)});
    print(&format!("{statistics:#}"), named)
}

/// Writes the number of neighbors of each row, if a file for it is named.
fn write_counts(found: &rules::Found, named: &Named<'_>) -> Result<()> {
    let Some(path) = named.text("counts") else { return Ok(()) };
    let lines = (0..).zip(&found.of_rows).map(|(row, count): (u64, _)| format!("{row},{count}\n"));
    std::fs::write(path, std::iter::once("id,count\n".to_owned()).chain(lines).collect::<String>())
        .map_err(|error| Error::device(format!("{path}: {error}")))
}

/// Returns the statistics of a join by a rule of the laboratory. `decided` is the rule's threshold and its recall, and
/// `seconds` are those of the calibration, the plan and the execution.
fn statistics(
    context: &Context,
    store: &Store,
    join: RuleJoin,
    decided: (Option<f64>, &Recalls),
    found: &rules::Found,
    seconds: [f64; 3],
) -> serde_json::Value {
    let interval = |of: adjoin::Interval| json!({"estimate": of.estimate, "low": of.low, "high": of.high});
    let ((t, recalls), [calibrate, plan, execute]) = (decided, seconds);
    json!({
        "command": "join",
        "rows": store.manifest().rows,
        "threads": context.threads,
        "strategy": {"rule": join.rule.name(), "t": t, "sample_seed": join.seed},
        "recall": {
            "target": join.recall,
            "pair": interval(recalls.pair),
            "per_vector": interval(recalls.per_vector),
        },
        "join": {
            "pairs": found.pairs,
            "candidate_pairs": found.candidate_pairs,
            "verified_pairs": found.verified_pairs,
            "center_distances": found.center_distances,
            "edges": found.edges,
        },
        "seconds": {
            "total": calibrate + plan + execute, "calibrate": calibrate, "plan": plan, "execute": execute,
        },
        "memory": {},
    })
}

/// Writes statistics to the requested file, or to standard output if none is requested.
fn print(text: &str, named: &Named<'_>) -> Result<()> {
    match named.text("stats") {
        Some(path) => std::fs::write(path, text).map_err(|error| Error::device(format!("{path}: {error}"))),
        None => {
            println!("{text}");
            Ok(())
        }
    }
}
