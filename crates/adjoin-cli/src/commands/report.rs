use std::sync::Arc;

use adjoin::error::{Error, Result};
use adjoin::options::{format_count, format_number};
use adjoin::output::{check_free, write_file};

use crate::Outcome;
use crate::args::Report;
use crate::progress::Terminal;
use crate::report::{Page, names_of};
use crate::resolve;
use crate::signals::Stopped;

pub(crate) fn report(arguments: &Report, stopped: &Stopped) -> Result<Outcome> {
    let mut context = resolve::own_context().with_resources(arguments.memory.as_deref(), None)?;
    context.cancel = stopped.cancel.clone();
    if !arguments.quiet {
        context.progress = Arc::new(Terminal::new());
    }
    let Report { result, output, force, .. } = arguments;
    let read = [Some(result), arguments.stats.as_ref(), arguments.names.as_ref()];
    let read: Vec<String> = read.into_iter().flatten().map(|path| path.display().to_string()).collect();
    resolve::check_outputs(&context, &read, &[("-o", output)])?;
    check_free(&*context.device, output, *force)?;

    let statistics = arguments.stats.as_deref().map(read_statistics).transpose()?;
    let mut page = Page::read(&context, result, statistics)?;
    if let Some(names) = &arguments.names {
        let columns = (arguments.id_column.as_deref(), arguments.name_column.as_deref());
        page.give_names(names_of(&context, names, columns, &page.ids())?);
    }
    write_file(&context, output, *force, |out| page.write(out))?;
    drop(context); // ends the progress bar
    if !arguments.quiet {
        let (pairs, shown) = (format_count(page.total(), "pair"), format_number(page.shown() as u64));
        eprintln!("{pairs}, of which {shown} are on the page {}", output.display());
    }
    Ok(Outcome::Done)
}

fn read_statistics(path: &std::path::Path) -> Result<serde_json::Value> {
    let at = path.display();
    let text = std::fs::read_to_string(path).map_err(|error| Error::device(format!("cannot read {at}: {error}")))?;
    let refused = || Error::input(format!("{at} is not what --stats of a join writes; name that file"));
    let statistics: serde_json::Value = serde_json::from_str(&text).map_err(|_| refused())?;
    // What the page draws.
    let is_there = statistics["command"] == "join" && statistics["memory"]["peak_bytes"].is_u64();
    if is_there { Ok(statistics) } else { Err(refused()) }
}
