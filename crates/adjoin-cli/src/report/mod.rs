//! Pages to look at, each one file that needs no network: of the pairs of a join here, of other devices by who models these.

mod html;
mod page;
mod pairs;
mod table;

use std::path::Path;

use adjoin::context::Context;
use adjoin::error::{ErrorKind, Result};
use adjoin::output::{check_free, write_file};

pub(crate) use html::{Drawn, write_html};
pub use page::Page;

/// Where the names or texts of ids are.
#[derive(Debug, Clone, Copy)]
pub struct Names<'a> {
    /// A table, a folder of tables or a glob.
    pub files: &'a str,
    /// The column of ids; `id` where not given, or rows go by their number where there is none.
    pub id_column: Option<&'a str>,
    /// The column of texts; the first one that is not the ids where not given.
    pub name_column: Option<&'a str>,
}

/// Makes a page of the pairs in a file, with what the run did and with names where these are given, and writes it to a
/// file, which it replaces only where that is forced.
///
/// # Errors
/// Where something cannot be read, is not what it must be, or does not fit into memory, and where the page is there or
/// cannot be written.
pub fn write_page(
    context: &Context,
    (pairs, stats): (&Path, Option<serde_json::Value>),
    names: Option<Names<'_>>,
    (output, force): (&Path, bool),
) -> Result<Page> {
    check_free(&*context.device, output, force)?;
    let reading = names.map_or(Ok(0), |names| table::reading_bytes(context, names)).map_err(|refused| {
        // Headers that do not fit: what the page itself needs may be more.
        let least = context.reserve(pairs::LEAST_BYTES, "this report").err();
        least.filter(|_| refused.kind() == ErrorKind::Budget).unwrap_or(refused)
    })?;
    drop(context.reserve(pairs::LEAST_BYTES + reading, "this report")?);
    let mut page = Page::read(context, pairs, stats, reading)?;
    if let Some(names) = names {
        page.give_names(table::names_of(context, names, &page.ids())?);
    }
    write_file(context, output, force, |out| page.write(out))?;
    Ok(page)
}
