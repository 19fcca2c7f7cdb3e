use std::path::Path;

use adjoin::device::Location;
use adjoin::{
    BuildOptions, Dedupe, Deduped, JoinEffort, JoinOptions, Metric, Nearness, OrderBy, Predicate, Result, TableFormat,
    Target, TextOptions, format_count, format_number,
};

use super::memory::{memory_verdict, print_memory};
use super::statistics_file::StatisticsFile;
use crate::Outcome;
use crate::args;
use crate::print::percent;
use crate::resolve;
use crate::signals::Stopped;

pub(crate) fn dedupe(arguments: &args::Dedupe, stopped: &Stopped) -> Result<Outcome> {
    let context = resolve::context(&arguments.resources, stopped)?;
    // Temporary files are next to the output by default, since that disk must have space for the output anyway.
    let context = resolve::temporary(context, &arguments.temporary)?.or_temporary(Target::parent_of(&arguments.output));
    let what = Dedupe {
        inputs: &arguments.sources,
        source: resolve::source_options(&arguments.columns)?,
        by: nearness(arguments)?,
        keep_by: arguments.keep_by.as_deref().map(OrderBy::parse).transpose()?,
        exact_text: arguments.exact_text.as_deref().map(OrderBy::parse).transpose()?,
        decisions: arguments.decisions.as_deref(),
        output: &arguments.output,
        removed: arguments.removed.as_ref().map(|file| resolve::target(file, arguments.force, true)),
        columns: &arguments.removed_columns,
        force: arguments.force,
    };
    check_outputs(&context, arguments)?;
    let stats = arguments.statistics.stats.as_deref();
    let stats = stats.map(|path| StatisticsFile::begin(&context, path, arguments.force)).transpose()?;
    let mut done = what.run(&context)?;
    stats.map_or(Ok(()), |stats| stats.finish(&mut done.statistics, |of| &mut of.common.memory))?;
    drop(context); // ends the progress bar
    if !arguments.resources.quiet.quiet {
        summarize(&done, arguments);
    }
    let common = &done.statistics.common;
    match common.recall.as_ref().filter(|recall| !recall.kept) {
        Some(recall) => {
            eprintln!("adjoin: the recall target was missed: {}", resolve::recall_in_words(recall));
            Ok(Outcome::PromiseNotKept)
        }
        None => Ok(memory_verdict(&common.memory)),
    }
}

/// Returns what makes two rows near-duplicates.
fn nearness(arguments: &args::Dedupe) -> Result<Nearness> {
    let aim = JoinEffort::of(arguments.wanted.recall, arguments.wanted.exact)?;
    let (seed, on_bad) = (arguments.seed.seed, arguments.on_bad);
    let texts = &arguments.texts;
    if let Some(column) = texts.text.clone() {
        let (min_jaccard, unit, size) = (texts.min_jaccard, texts.shingles, texts.shingle_size);
        return Ok(Nearness::Texts(TextOptions { column, min_jaccard, aim, unit, size, seed }));
    }
    let predicate = Predicate::of(arguments.threshold.eps, arguments.threshold.min_similarity)?;
    let build = BuildOptions { metric: predicate.metric(), seed, on_bad, ..BuildOptions::default() };
    Ok(Nearness::Vectors { build, join: JoinOptions { seed, ..JoinOptions::approximate(predicate, aim) } })
}

/// Refuses existing output files before any work.
fn check_outputs(context: &adjoin::Context, arguments: &args::Dedupe) -> Result<()> {
    let removed = arguments.removed.as_ref().map(Path::new);
    let tables = [("--removed", removed), ("--stats", arguments.statistics.stats.as_deref())];
    let tables: Vec<(&str, &Path)> = tables.into_iter().filter_map(|(option, path)| Some((option, path?))).collect();
    // The engine checks an output in an object store.
    let output = Some(arguments.output.as_path()).filter(|path| !Location::is_remote(path));
    let outputs: Vec<(&str, &Path)> = output.into_iter().map(|path| ("-o", path)).chain(tables.clone()).collect();
    let decisions = arguments.decisions.iter().map(|path| path.display().to_string());
    let read: Vec<String> = arguments.sources.iter().cloned().chain(decisions).collect();
    resolve::check_files(context, &read, &outputs)?;
    // Checked here, since an unknown extension would otherwise be found only after the whole run.
    removed.map_or(Ok(()), |path| TableFormat::of(path).map(drop))?;
    tables.iter().try_for_each(|(_, path)| Target::check_free(&*context.device, path, arguments.force))
}

/// Formats a row: its number, and its text if known.
fn called(row: u64, text: &Option<String>) -> String {
    let text = text.as_ref().map_or_else(String::new, |text| format!(" {text:?}"));
    format!("row {}{text}", format_number(row))
}

/// Describes the comparison of texts by bands. Returns `None` if it was exact, or if vectors were compared.
fn by_bands(done: &Deduped) -> Option<String> {
    let text = done.statistics.dedupe.text.as_ref()?;
    let [bands, hashes] = [text.bands?, text.hashes_per_band?].map(format_number);
    let recall = percent(text.promised_recall);
    Some(format!("{recall} of the pairs at the threshold are compared (MinHash, {bands} bands of {hashes} hashes)"))
}

fn summarize(done: &Deduped, arguments: &args::Dedupe) {
    let (common, dedupe) = (&done.statistics.common, &done.statistics.dedupe);
    let [equal, near, kept] = [dedupe.equal_rows, dedupe.near_rows, dedupe.kept_rows].map(format_number);
    let equal = if arguments.exact_text.is_some() { format!("{equal} equal another in text, ") } else { String::new() };
    let decided = arguments.decisions.as_ref().map(|_| format_number(dedupe.decided_rows));
    let decided = decided.map_or_else(String::new, |rows| format!(", {rows} are removed by decision"));
    let all = format_count(dedupe.source_rows, "row");
    eprintln!("of {all} {equal}{near} are near a kept row{decided}; {kept} are kept");
    if common.skipped_rows > 0 {
        let what = if dedupe.text.is_some() { "text" } else { "usable vector" };
        eprintln!("kept without a comparison: {} without a {what}", format_count(common.skipped_rows, "row"));
    }
    if arguments.decisions.is_some() {
        eprintln!("a row that a decision keeps removes the rows near it; to keep both of two rows, mark both");
    }
    let what = if common.metric == Metric::L2.to_string() { "distance" } else { "similarity" };
    for example in &done.examples {
        let [text, kept_text] = &example.texts;
        let [row, kept] = [(example.row, text), (example.kept_row, kept_text)].map(|(row, text)| called(row, text));
        eprintln!("  such as {row} for {kept}, {what} {:.4}", example.value);
    }
    eprintln!("written to {} in {:.1} s", arguments.output.display(), common.seconds.total);
    if let Some(removed) = &arguments.removed {
        eprintln!("removed rows are listed in {removed}");
    }
    if let Some(recall) = &common.recall {
        match by_bands(done) {
            Some(bands) => eprintln!("recall: {bands}; at least {} requested", percent(recall.target)),
            None => eprintln!("recall: {}", resolve::recall_in_words(recall)),
        }
    }
    print_memory(&common.memory);
}
