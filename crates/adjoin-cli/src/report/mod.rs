//! HTML pages, each one file that needs no network. The page about the pairs of a join is here; the flash commands
//! write others.

mod html;
mod needs;
mod page;
mod pairs;
mod table;

use std::path::Path;

use adjoin::{Argument, Context, Error, ErrorKind, Message, Result, Target};

use pairs::PairFile;

pub(crate) use html::{Drawn, write_html};
pub use page::Page;

/// Tables with names or texts of ids.
#[derive(Debug, Clone, Copy)]
pub struct Names<'a> {
    /// A table, a folder of tables or a glob.
    pub files: &'a str,
    /// The column of ids. Default: `id`, if present, else row numbers.
    pub id_column: Option<&'a str>,
    /// The column of texts. Default: the first text column other than the ids.
    pub name_column: Option<&'a str>,
}

/// Names of the rows on both sides of pairs.
#[derive(Debug, Clone, Copy)]
pub struct PageNames<'a> {
    /// Names of the rows of the first set, or of the only one.
    pub first: Names<'a>,
    /// Names of the rows of the set of `--with`.
    pub second: Option<Names<'a>>,
}

/// What a page is made of.
#[derive(Debug, Clone)]
pub struct PageSources<'a> {
    /// File of the pairs.
    pub pairs: &'a Path,
    /// Statistics of the run that found them.
    pub stats: Option<serde_json::Value>,
    /// Names of their rows.
    pub names: Option<PageNames<'a>>,
}

/// Writes a page about the pairs in a file, with the statistics of the run and with names, if given. Replaces an
/// existing page only if `force` is true.
///
/// # Errors
/// If an input cannot be read, is invalid, or does not fit into memory; if the page exists or cannot be written; if the
/// pairs are of two sets and there are names of one only.
pub fn write_page(context: &Context, sources: PageSources<'_>, output: &Path, force: bool) -> Result<Page> {
    let PageSources { pairs, stats, names } = sources;
    Target::check_free(&*context.device, output, force)?;
    let are_two_sets = stats.as_ref().is_some_and(is_of_two) || names.is_some_and(|names| names.second.is_some());
    let page = read_page(context, (pairs, stats), names).map_err(|error| match error.kind() {
        // The step that failed has computed only its own needs, so its figure would be too small.
        ErrorKind::Budget => needs::refusal(context, pairs, names, are_two_sets, error),
        _ => error,
    })?;
    Target::write_file(context, output, force, |out| page.write(out))?;
    Ok(page)
}

/// Reads everything that a page shows.
fn read_page(
    context: &Context,
    (pairs, stats): (&Path, Option<serde_json::Value>),
    names: Option<PageNames<'_>>,
) -> Result<Page> {
    let [first, second] = [names.map(|names| names.first), names.and_then(|names| names.second)];
    let reading = needs::names_bytes(context, names)?;
    // Refuses a budget that is much too small before files are read.
    drop(context.reserve(pairs::LEAST_BYTES + reading, pairs::PURPOSE)?);
    let file = PairFile::open(context, pairs)?;
    let of_two_sets = are_of_two_sets(&file, stats.as_ref(), second.is_some())?;
    if of_two_sets && first.is_some() && second.is_none() {
        return Err(names_of_one_set(pairs));
    }
    let mut page = Page::read(context, file, of_two_sets, stats, reading)?;
    for (side, names) in [first, second].into_iter().enumerate() {
        let Some(names) = names else { continue };
        let texts = table::names_of(context, names, &page.ids(side))?;
        // In pairs of one set, the left row number is the smaller one. Other pairs are of two sets.
        if texts.by_number && !of_two_sets && !page.is_ordered() {
            return Err(names_of_one_set(pairs));
        }
        page.give_names(side, texts);
    }
    Ok(page)
}

/// Returns whether statistics are of a join of two sets.
fn is_of_two(stats: &serde_json::Value) -> bool {
    !stats["join"]["with_rows"].is_null()
}

/// Returns whether left and right rows are of two sets: if their file or their statistics state so, or there are names
/// of two.
fn are_of_two_sets(file: &PairFile, stats: Option<&serde_json::Value>, names_of_two: bool) -> Result<bool> {
    let of_two = stats.map(is_of_two);
    if names_of_two && of_two == Some(false) {
        let before = "the statistics are of a join of one set; leave out ";
        return Err(refusal(before, ", or name the statistics of this result"));
    }
    Ok(names_of_two || of_two == Some(true) || file.is_marked_of_two_sets())
}

fn names_of_one_set(pairs: &Path) -> Error {
    let before = format!("{} has pairs of two sets, and the names are of one; give ", pairs.display());
    refusal(before, " for the rows on the right: the same table again, if it has the ids of both")
}

/// Returns an error about the names of the second set.
fn refusal(before: impl Into<Message>, after: &str) -> Error {
    let parts: [Message; 3] = [before.into(), Argument::WithNames.into(), after.into()];
    Error::option(parts.into_iter().collect::<Message>())
}
