use std::collections::BTreeMap;
use std::path::Path;

use adjoin::{
    AtThreshold, BuildOptions, CommonStatistics, Context, Error, Estimate, Interval, Job, JoinEffort, JoinOptions,
    Metric, Predicate, Result, Store, format_bytes, format_count, format_number, open_source,
};

use crate::Outcome;
use crate::args::Explain;
use crate::print::{percent, print};
use crate::resolve;
use crate::signals::Stopped;

pub(crate) fn explain(arguments: &Explain, stopped: &Stopped) -> Result<Outcome> {
    let context = resolve::context(&arguments.resources, stopped)?;
    let context = resolve::temporary(context, &arguments.temporary)?;
    let aim = if arguments.no_calibrate {
        JoinEffort::Every
    } else {
        JoinEffort::of(arguments.wanted.recall, arguments.wanted.exact)?
    };
    let source = resolve::source_options(&arguments.store.columns)?;
    let asked = match (arguments.threshold.eps, arguments.threshold.min_similarity) {
        (None, None) => None,
        (eps, min_similarity) => Some(Predicate::of(eps, min_similarity)?),
    };
    let of_threshold = asked.map(|asked| asked.metric());
    let metric = arguments.metric.or(of_threshold).unwrap_or(Metric::L2);
    let build = resolve::build_options(&arguments.store, metric);
    // If the input is a store, the plan of a join is printed. For any other input, a sample is compared with all
    // rows.
    if let Some(store) = Store::sole_input(&context, &arguments.inputs, source.only_for_builds(&build))? {
        return explain_store(context, store, arguments, aim);
    }
    refuse_of_stores(arguments)?;
    let source = open_source(&context, &arguments.inputs, &source)?;
    let build = BuildOptions { attributes: arguments.columns.clone(), ..build };
    let estimate = Estimate::new(&context, &*source, &build, asked, aim)?;
    drop(context); // ends the progress bar
    print(&if arguments.json { json(&estimate)? } else { in_words(&estimate, option_of(metric)) })?;
    Ok(Outcome::Done)
}

/// Refuses options that apply only to the plan of a store.
fn refuse_of_stores(arguments: &Explain) -> Result<()> {
    match arguments.cache.is_given() {
        true => Err(Error::option("--cache is for the plan of a store; build one first, or leave it out")),
        false => Ok(()),
    }
}

fn explain_store(context: Context, folder: &Path, arguments: &Explain, aim: JoinEffort) -> Result<Outcome> {
    if arguments.metric.is_some() {
        return Err(Error::option(format!(
            "{} has a metric, and the threshold decides the metric: --eps is a distance (L2), --min-similarity a \
             similarity (cosine); leave out --metric",
            folder.display()
        )));
    }
    if !arguments.columns.is_empty() {
        return Err(Error::option("--columns shows rows of a SOURCE; name the data set that the store was built from"));
    }
    if arguments.json {
        return Err(Error::option("--json is for the estimate from a source, not the plan of a store; leave it out"));
    }
    let predicate = Predicate::of(arguments.threshold.eps, arguments.threshold.min_similarity)?;
    let cache_bytes = arguments.cache.bytes()?;
    let seed = arguments.store.seed.seed;
    let options = JoinOptions { seed, cache_bytes, ..JoinOptions::approximate(predicate, aim) };
    let context = Job::context_of_store(&context, folder, true)?;
    let store = Store::open(&context, folder)?;
    let curve = store.neighbor_curve(&context, seed)?; // before the plan, which holds the memory of its run
    let prepared = options.prepare(&context, &store, true)?;
    drop(context); // ends the progress bar
    let recall = resolve::recall_in_words(prepared.recall());
    let name = option_of(store.manifest().metric);
    let point = |(neighbors, threshold): &(f64, f64)| format!("             {neighbors:>6}  {name} {threshold:.4}\n");
    let curve: String = curve.iter().map(point).collect();
    let plan = prepared.explain(&store);
    print(&format!("{plan}recall       {recall}\nneighbors    of a vector on average, by threshold, about:\n{curve}"))?;
    Ok(Outcome::Done)
}

fn option_of(metric: Metric) -> &'static str {
    match metric {
        Metric::L2 => "--eps",
        Metric::Cosine | Metric::Ip => "--min-similarity",
    }
}

fn json(estimate: &Estimate) -> Result<String> {
    let text = serde_json::to_string_pretty(estimate);
    Ok(text.map_err(|error| Error::corrupt(error.to_string()))? + "\n")
}

fn in_words(estimate: &Estimate, option: &str) -> String {
    let Estimate { common, explain } = estimate;
    let CommonStatistics { rows, dimensions, skipped_rows, ref element, ref metric, ref memory, .. } = *common;
    let footprint = explain.footprint;
    let mut text = format!(
        "vectors      {} of {dimensions} {element}, {metric}; {} compared with all of them\n",
        format_number(rows),
        format_count(explain.compared_rows, "row")
    );
    if skipped_rows > 0 {
        text += &format!("skipped      {} without a usable vector\n", format_count(skipped_rows, "row"));
    }
    let bytes = |bytes: Interval| between(bytes, |bytes| format_bytes(bytes as u64));
    let budget = format_bytes(memory.budget_bytes);
    text += &format!("memory       needs {}\n", bytes(footprint.least_memory_bytes));
    text += &format!("             would use {} of the {budget} allowed\n", bytes(footprint.memory_bytes));
    text += &format!("disk         {} for a temporary store\n", bytes(footprint.store_bytes));
    if footprint.spill_bytes.high > 0.0 {
        text += &format!("             {} for other temporary files\n", bytes(footprint.spill_bytes));
    }
    for at in &explain.thresholds {
        text += &threshold_in_words(at, option, rows);
    }
    text
}

fn threshold_in_words(at: &AtThreshold, option: &str, rows: u64) -> String {
    let AtThreshold { threshold, asked, neighbors, pairs, pairs_bytes, removed_rows, seconds, ref examples } = *at;
    let asked = if asked { ", requested" } else { "" };
    let text = format!(
        "\n{option} {threshold}{asked}: {} neighbors per vector\n  pairs      {}; as Parquet {}\n  removed    {} rows of near-duplicates, {} of all\n  time       {}\n",
        short(neighbors),
        between(pairs, |number| format_number(number.round() as u64)),
        between(pairs_bytes, |bytes| format_bytes(bytes as u64)),
        between(removed_rows, |number| format_number(number.round() as u64)),
        percent(removed_rows.estimate / rows as f64),
        between(seconds, |number| format!("{} s", short(number))),
    );
    let examples = examples.iter().map(|example| {
        let row = |row, values: &BTreeMap<_, _>| format!("row {row}{}\n", in_line(values));
        let [left, right] = [row(example.left_row, &example.left), row(example.right_row, &example.right)];
        format!("  {:<10} {left}             {right}", format!("{:.4}", example.value))
    });
    text + &examples.collect::<String>()
}

/// Formats the columns of a row. The name is left out if there is only one column.
fn in_line(values: &BTreeMap<String, Option<String>>) -> String {
    let value = |(name, value): (&String, &Option<String>)| {
        let value = value.as_deref().unwrap_or("null");
        if values.len() == 1 { format!(": {value}") } else { format!("; {name}: {value}") }
    };
    values.iter().map(value).collect()
}

/// Formats an estimate with its bounds, unless they are equal.
fn between(Interval { estimate, low, high }: Interval, write: impl Fn(f64) -> String) -> String {
    match low < high {
        true => format!("about {} (between {} and {})", write(estimate), write(low), write(high)),
        false => write(estimate),
    }
}

/// Formats a number with about three digits.
fn short(number: f64) -> String {
    match number {
        large if large >= 100.0 => format_number(large.round() as u64),
        middle if middle >= 10.0 => format!("{middle:.0}"),
        small if small >= 1.0 => format!("{small:.1}"),
        least => format!("{least:.2}"),
    }
}
