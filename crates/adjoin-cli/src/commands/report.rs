use std::path::Path;

use adjoin::{CommonStatistics, Context, Error, Result, device::Reservation, format_count, format_number};

use super::memory::memory_verdict;
use crate::Outcome;
use crate::args::Report;
use crate::report::{Names, PageNames, PageSources, write_page};
use crate::resolve;
use crate::signals::Stopped;

pub(crate) fn report(arguments: &Report, stopped: &Stopped) -> Result<Outcome> {
    let context = resolve::limited_context(&arguments.limit, None, &arguments.quiet, stopped)?;
    let Report { result, output, replace, .. } = arguments;
    let read = [Some(result), arguments.stats.as_ref()].into_iter().flatten();
    let names = [&arguments.names, &arguments.with_names].into_iter().flatten().cloned();
    let read: Vec<String> = read.map(|path| path.display().to_string()).chain(names).collect();
    resolve::check_files(&context, &read, &[("-o", output)])?;

    let stats = arguments.stats.as_deref().map(|path| read_statistics(&context, path)).transpose()?;
    let (stats, stats_memory) = stats.unzip();
    let first = names_in(&arguments.names, &arguments.id_column, &arguments.name_column);
    let second = names_in(&arguments.with_names, &arguments.with_id_column, &arguments.with_name_column);
    let names = first.map(|first| PageNames { first, second });
    let page = write_page(&context, PageSources { result, stats, names }, output, replace.force)?;
    let memory = context.memory();
    drop((context, stats_memory)); // ends the progress bar
    if !arguments.quiet.quiet {
        let (lines, shown) = (format_count(page.total(), page.unit()), format_number(page.shown() as u64));
        eprintln!("{lines}, of which {shown} are on the page {}", output.display());
    }
    Ok(memory_verdict(&memory))
}

fn names_in<'a>(
    files: &'a Option<String>,
    id_column: &'a Option<String>,
    name_column: &'a Option<String>,
) -> Option<Names<'a>> {
    let (id_column, name_column) = (id_column.as_deref(), name_column.as_deref());
    files.as_deref().map(|files| Names { files, id_column, name_column })
}

/// Memory of parsed statistics, in bytes per byte of their text. In the worst case, the text is a list of digits: it
/// has a value every two bytes, and each value takes 32 bytes in a vector that grows.
const STATISTICS_GROWTH: u64 = 24;

/// Reads the statistics of a run from a file that `--stats` has written. They hold the reservation of their memory.
///
/// # Errors
/// If the file cannot be read, has no statistics of the current version, or memory does not suffice.
pub fn read_statistics(context: &Context, path: &Path) -> Result<(serde_json::Value, Reservation)> {
    let at = path.display();
    let file = context.device.open(path)?;
    let bytes = file.len();
    let memory = context.reserve(STATISTICS_GROWTH.saturating_mul(bytes), &format!("{at}: its statistics"))?;
    let mut text = vec![0; bytes as usize];
    file.read_at(0, &mut text)?;
    let refused = || Error::input(format!("{at} is not a file of statistics; name one that --stats has written"));
    let statistics: serde_json::Value = serde_json::from_slice(&text).map_err(|_| refused())?;
    // The page uses the values that are checked here.
    let command = statistics["command"].as_str().filter(|_| statistics["memory"]["budget_bytes"].is_u64());
    let command = command.ok_or_else(refused)?;
    if !["join", "dedupe", "search", "merge"].contains(&command) {
        return Err(Error::input(format!(
            "{at} has statistics of {command}, which writes no result that a page shows; name those of join, merge, \
             dedupe or search"
        )));
    }
    if statistics["version"] != CommonStatistics::VERSION {
        return Err(Error::input(format!(
            "{at} has statistics of version {}, but a page needs version {}; join again with \
             --stats, or leave --stats out",
            statistics["version"],
            CommonStatistics::VERSION
        )));
    }
    Ok((statistics, memory))
}
