//! HTML pages, each in one file that needs no network: the page about a result, and the parts that the pages of
//! `adjoin flash` share.

mod html;
mod lines;
mod needs;
mod page;
mod result;
mod rows;
mod table;

use std::path::Path;

use adjoin::{Argument, Context, Error, ErrorKind, Message, Result, Target};

use result::{Kind, ResultFile};

pub(crate) use html::{Drawn, write_html};
pub use page::Page;

/// Tables with names or texts of ids.
#[derive(Debug, Clone, Copy)]
pub struct Names<'a> {
    /// A table, a folder of tables or a glob.
    pub files: &'a str,
    /// The column of ids. Default: the column `id`, or row numbers if there is no such column.
    pub id_column: Option<&'a str>,
    /// The column of texts. Default: the first text column other than the ids.
    pub name_column: Option<&'a str>,
}

/// Names of the rows on the left and on the right of the lines of a result.
#[derive(Debug, Clone, Copy)]
pub struct PageNames<'a> {
    /// Names of the rows of the first or only set. If the result is hits, names of the queries.
    pub first: Names<'a>,
    /// Names of the rows of the second set (`--with`). If the result is hits, names of the rows that were found.
    pub second: Option<Names<'a>>,
}

/// Inputs of a page.
#[derive(Debug, Clone)]
pub struct PageSources<'a> {
    /// File of the result.
    pub result: &'a Path,
    /// Statistics of the run that wrote the result.
    pub stats: Option<serde_json::Value>,
    /// Names of the rows in the result.
    pub names: Option<PageNames<'a>>,
}

/// Writes a page about a result to `output`, with the statistics of its run and with names, if given. Replaces an
/// existing page only if `force` is true.
///
/// # Errors
/// If an input cannot be read, is invalid, or does not fit into memory; if the page exists or cannot be written; if
/// the result is of two sets without texts, and names are given for only one set.
pub fn write_page(context: &Context, sources: PageSources<'_>, output: &Path, force: bool) -> Result<Page> {
    let PageSources { result, stats, names } = sources;
    Target::check_free(&*context.device, output, force)?;
    let are_two_sets = stats.as_ref().is_some_and(is_of_two) || names.is_some_and(|names| names.second.is_some());
    let page = read_page(context, (result, stats), names).map_err(|error| match error.kind() {
        // The refusal names only the memory of the step that failed. The report as a whole may need more.
        ErrorKind::Budget => needs::refusal(context, result, names, are_two_sets, error),
        _ => error,
    })?;
    Target::write_file(context, output, force, |out| page.write(out))?;
    Ok(page)
}

/// Reads everything that a page shows.
fn read_page(
    context: &Context,
    (result, stats): (&Path, Option<serde_json::Value>),
    names: Option<PageNames<'_>>,
) -> Result<Page> {
    let [first, second] = [names.map(|names| names.first), names.and_then(|names| names.second)];
    let file = ResultFile::open(context, result)?;
    let reading = needs::names_bytes(context, names, &file.counted())?;
    // Refuses a budget that is much too small before lines are read.
    drop(context.reserve(lines::LEAST_BYTES + reading, lines::PURPOSE)?);
    let of_two_sets = are_of_two_sets(&file, stats.as_ref(), second.is_some())?;
    let lacks_names = first.is_some() && second.is_none() && !file.carries(1) && file.kind != Kind::Hits;
    if of_two_sets && lacks_names {
        return Err(names_of_one_set(result));
    }
    let of_one_set = stats.as_ref().is_some_and(|stats| !is_of_two(stats));
    let spare = reading.max(rows::counts_bytes(&file));
    let mut page = Page::read(context, &file, of_two_sets, stats, spare)?;
    page.check_statistics(result)?;
    if !file.carried.is_empty() {
        let rows = rows::read(context, &file, [page.ids(0), page.ids(1)], page.has_sides())?;
        page.give_columns(&file, rows);
    }
    if let Some(set) = first.filter(|_| file.kind == Kind::Removed && !of_two_sets) {
        page.count_rows(context, set)?;
    }
    let mut unused = [first, second.filter(|_| of_two_sets)];
    for side in 0..=usize::from(page.has_sides()) {
        let Some(names) = (if of_two_sets { [first, second][side] } else { first }) else { continue };
        let texts = table::names_of(context, names, &page.ids(side))?;
        if !texts.of.is_empty() {
            unused[usize::from(of_two_sets) * side] = None;
        }
        // If the lines are of one set, the smaller row number is always on the same side. If it is not, they may be
        // of two sets.
        let may_be_of_two = !of_two_sets && !of_one_set && !page.is_ordered();
        if texts.by_number && may_be_of_two && lacks_names {
            return Err(names_of_one_set(result));
        }
        page.give_names(side, texts);
    }
    page.give_texts();
    match unused.into_iter().flatten().next().filter(|_| page.shown() > 0) {
        Some(names) => Err(no_names(result, names)),
        None => Ok(page),
    }
}

/// Returns whether the statistics describe a join of two sets.
fn is_of_two(stats: &serde_json::Value) -> bool {
    !stats["join"]["with_rows"].is_null()
}

/// Returns whether left and right rows are of two sets. They are if the file or the statistics say so, or if names of
/// two sets are given. Hits are of two sets unless the statistics say that they are neighbors of rows.
fn are_of_two_sets(file: &ResultFile, stats: Option<&serde_json::Value>, names_of_two: bool) -> Result<bool> {
    if file.kind == Kind::Hits {
        return Ok(names_of_two || stats.is_none_or(|stats| stats["nearest"].is_null()));
    }
    let of_two = stats.map(is_of_two);
    if names_of_two && of_two == Some(false) {
        let before = "the statistics are of a join of one set; leave out ";
        return Err(refusal(before, ", or name the statistics of this result"));
    }
    if file.kind == Kind::Clusters {
        return Ok(file.is_marked_of_two_sets());
    }
    Ok(names_of_two || of_two == Some(true) || file.is_marked_of_two_sets())
}

fn names_of_one_set(result: &Path) -> Error {
    let before = format!("{} has rows of two sets, but the names are of one; give ", result.display());
    refusal(before, " for the rows on the right: the same table again, if it has the ids of both")
}

/// Returns the error for a table that names no row of the result.
fn no_names(result: &Path, names: Names<'_>) -> Error {
    let files = names.files;
    Error::input(format!(
        "{files}: none of its ids is in {}; name the column of the ids, or a table of the rows of this result",
        result.display()
    ))
}

/// Returns an error about the names of the second set.
fn refusal(before: impl Into<Message>, after: &str) -> Error {
    let parts: [Message; 3] = [before.into(), Argument::WithNames.into(), after.into()];
    Error::option(parts.into_iter().collect::<Message>())
}
