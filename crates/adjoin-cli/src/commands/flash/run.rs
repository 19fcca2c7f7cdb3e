use std::path::Path;

use adjoin::{
    Context, Error, Result, Target,
    flash_model::{Config, Platform},
};
use serde::Serialize;
use serde_json::{Value, json};

use super::workload::{Workload, config, read_by};
use super::{as_csv, as_perfetto, check_results, write_text};
use crate::Outcome;
use crate::args::{FlashRun, FlashSweep, count};
use crate::report::{Drawn, write_html};
use crate::resolve;
use crate::signals::Stopped;

/// Maximum number of spans in a timeline; ui.perfetto.dev loads this number without delay.
const SPANS_MAX: usize = 1_000_000;

pub(super) fn run(arguments: &FlashRun, stopped: &Stopped) -> Result<Outcome> {
    let context = resolve::context(&arguments.resources, stopped)?;
    let config = config(&arguments.model)?;
    // Checked before vectors are read and their graph is built, which may take long.
    check_written(&context, arguments)?;
    let workload = Workload::of(&context, arguments)?;
    let spans_max = if arguments.perfetto.is_some() { SPANS_MAX } else { 0 };
    let (figures, spans) = workload.run(&context, arguments, &config, spans_max)?;
    if let Some(path) = &arguments.perfetto {
        Target::write_file(&context, path, arguments.replace.force, |out| as_perfetto(&spans, out))?;
    }
    write_results(&context, arguments, &Results { over: None, values: Vec::new(), figures: vec![figures] })?;
    Ok(Outcome::Done)
}

pub(super) fn sweep(arguments: &FlashSweep, stopped: &Stopped) -> Result<Outcome> {
    let FlashSweep { run, over } = arguments;
    let context = resolve::context(&run.resources, stopped)?;
    let usual = config(&run.model)?;
    let (name, values) = over
        .split_once('=')
        .ok_or_else(|| Error::option(format!("--over {over}: give NAME=V,V,..., such as timing.read=5,40,106")))?;
    check_written(&context, run)?;
    // All values use one set of vectors and one graph, so these are prepared only once.
    let workload = Workload::of(&context, run)?;
    let mut results = Results { over: Some(name.to_owned()), values: Vec::new(), figures: Vec::new() };
    for value in values.split(',') {
        let (changed_run, config) =
            changed(run, &usual, name, value).map_err(|error| Error::option(format!("--over {over}: {error}")))?;
        // No spans are kept: a sweep writes no timeline.
        let (figures, _) = workload.run(&context, &changed_run, &config, 0)?;
        results.values.push(value.to_owned());
        results.figures.push(figures);
    }
    write_results(&context, run, &results)?;
    Ok(Outcome::Done)
}

/// Refuses results that would replace inputs or existing files.
fn check_written(context: &Context, arguments: &FlashRun) -> Result<()> {
    let FlashRun { model, searched, trace, perfetto, output, replace, .. } = arguments;
    let results = [("-o", output), ("--perfetto", perfetto)];
    let results: Vec<(&str, &Path)> =
        results.into_iter().filter_map(|(option, path)| Some((option, path.as_deref()?))).collect();
    check_results(context, &read_by(model, searched, trace.as_slice()), &results, replace.force)
}

/// Results of a run, or of several runs that differ in the value of one parameter. `assets/flash.js` uses these
/// names.
#[derive(Serialize)]
struct Results {
    over: Option<String>,
    values: Vec<String>,
    figures: Vec<Value>,
}

impl Results {
    /// Formats the results with one line per run; names of nested figures are joined by dots.
    fn csv(&self) -> String {
        let line = |(k, figures): (usize, &Value)| match &self.over {
            Some(name) => json!({ name: self.values[k], "": figures }),
            None => figures.clone(),
        };
        as_csv(&self.figures.iter().enumerate().map(line).collect::<Vec<_>>())
    }
}

/// Writes results in the format of the file's extension: a page with charts, CSV, or JSON. Without such an extension,
/// a single run is written as JSON, and several runs as CSV.
fn write_results(context: &Context, arguments: &FlashRun, results: &Results) -> Result<()> {
    let FlashRun { output, replace, .. } = arguments;
    let ending = output.as_ref().and_then(|path| path.extension()).unwrap_or_default();
    match (output, &results.figures[..]) {
        (Some(path), _) if ending == "html" => {
            let section = "<section id=\"all\" aria-label=\"All figures\"></section>\n";
            let drawn = Drawn { section, script: include_str!("../../../assets/flash.js") };
            Target::write_file(context, path, replace.force, |out| write_html(out, &drawn, results))
        }
        (_, [figures]) if ending != "csv" && results.over.is_none() => {
            write_text(context, output.as_deref(), replace.force, &format!("{figures:#}\n"))
        }
        _ => write_text(context, output.as_deref(), replace.force, &results.csv()),
    }
}

/// Returns a run with the figure or option `name` set to `value`.
fn changed(run: &FlashRun, usual: &Config, name: &str, value: &str) -> Result<(FlashRun, Config)> {
    let (mut run, mut config) = (run.clone(), usual.clone());
    let wrong = || Error::option(format!("{value} is not a value of {name}"));
    let whole = || count(value).map_err(|error| Error::option(format!("{value} is not a value of {name}; {error}")));
    match name {
        "batch" => run.searched.batch = whole()?,
        "list" => run.searched.list = whole()?,
        "depth" => run.depth = whole()?,
        "memory-share" => run.searched.memory_share = value.parse().map_err(|_| wrong())?,
        "platform" => run.platform = Some(Platform::named(value).ok_or_else(wrong)?),
        _ => config.set(name, value.parse().map_err(|_| wrong())?, "--over")?,
    }
    Ok((run, config))
}
