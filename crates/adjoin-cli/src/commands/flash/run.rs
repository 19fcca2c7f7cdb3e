use adjoin::error::{Error, Result};
use adjoin::flash::model::Config;
use adjoin::output::{check_free, write_file};
use serde_json::json;

use super::workload::{Workload, config};
use super::{as_csv, as_perfetto, write_text};
use crate::Outcome;
use crate::args::{FlashRun, FlashSweep};
use crate::resolve;
use crate::signals::Stopped;

/// Spans of a picture, at most: what ui.perfetto.dev shows without waiting.
const SPANS_MAX: usize = 1_000_000;

pub(super) fn run(arguments: &FlashRun, stopped: &Stopped) -> Result<Outcome> {
    let context = resolve::context(&arguments.resources, stopped)?;
    let config = config(&arguments.model)?;
    for path in [&arguments.output, &arguments.perfetto].into_iter().flatten() {
        check_free(&*context.device, path, arguments.force)?;
    }
    let workload = Workload::of(&context, arguments)?;
    let spans = if arguments.perfetto.is_some() { SPANS_MAX } else { 0 };
    let (figures, spans) = workload.run(&context, (arguments, &config), spans)?;
    if let Some(path) = &arguments.perfetto {
        write_file(&context, path, arguments.force, |out| as_perfetto(&spans, out))?;
    }
    let is_csv = arguments.output.as_ref().is_some_and(|path| path.extension().is_some_and(|ending| ending == "csv"));
    let text = if is_csv { as_csv(&[figures]) } else { format!("{figures:#}\n") };
    write_text(&context, arguments.output.as_deref(), arguments.force, &text)?;
    Ok(Outcome::Done)
}

pub(super) fn sweep(arguments: &FlashSweep, stopped: &Stopped) -> Result<Outcome> {
    let FlashSweep { run, over } = arguments;
    let context = resolve::context(&run.resources, stopped)?;
    let usual = config(&run.model)?;
    let (name, values) = over
        .split_once('=')
        .ok_or_else(|| Error::option(format!("--over {over}: give NAME=V,V,..., such as timing.read=5,40,106")))?;
    if let Some(path) = &run.output {
        check_free(&*context.device, path, run.force)?;
    }
    let workload = Workload::of(&context, run)?;
    let mut results = Vec::new();
    for value in values.split(',') {
        let (of, config) =
            changed(run, &usual, (name, value)).map_err(|error| Error::option(format!("--over {over}: {error}")))?;
        let (figures, _) = workload.run(&context, (&of, &config), 0)?;
        results.push(json!({ name: value, "": figures }));
    }
    write_text(&context, run.output.as_deref(), run.force, &as_csv(&results))?;
    Ok(Outcome::Done)
}

/// A run in which a figure or an option has another value.
fn changed(run: &FlashRun, usual: &Config, (name, value): (&str, &str)) -> Result<(FlashRun, Config)> {
    let (mut run, mut config) = (run.clone(), usual.clone());
    let wrong = || Error::option(format!("{value} is no value of {name}"));
    let whole = || value.parse::<usize>().map_err(|_| wrong());
    match name {
        "batch" => run.searched.batch = whole()?,
        "list" => run.searched.list = whole()?,
        "depth" => run.depth = whole()?,
        "memory-share" => run.searched.memory_share = value.parse().map_err(|_| wrong())?,
        "platform" => run.platform = Some(value.to_owned()),
        _ => config.set(name, value.parse().map_err(|_| wrong())?, "--over")?,
    }
    Ok((run, config))
}
